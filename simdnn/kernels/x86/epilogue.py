"""How accumulators reach the destination, as passes over a tile: each loads one parameter and applies it everywhere.

Order and roundings follow oneDNN 3.13 (docs/numerics.md, rule 7): s32 compensation, then f32 with source scale,
weights scale, bias, relu, destination scale, destination zero point, clamp, round to nearest even.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from isa_models.formats import fmt
from isa_models.isa import implied
from isa_models.readings.arrays import Array
from simdnn.kernels.common.activations import is_formula
from simdnn.kernels.common.code import Code, op
from simdnn.kernels.common.epilogue import Epilogue, Parameters
from simdnn.kernels.common.postops import BINARY, RELU, PostOp, previous_type, sums_first
from simdnn.kernels.common.roles import PARAMETERS
from simdnn.kernels.x86 import formula_pass, postop
from simdnn.kernels.x86.code import Unit, broadcast32, load32, load_float, store32, store_bytes, zero
from simdnn.kernels.x86.rounding import nearest_even, rounding_constants, without_denormals
from simdnn.program.records import Affine, Memory, Register, Tensor

_BF16_BITS = 16  # of an f32 that bf16 lacks


@dataclass(frozen=True)
class Plan:
    """The epilogue of one kernel: the problem's part and the kernel's own."""

    epilogue: Epilogue
    integer: bool  # the accumulator is s32
    compensate: str = ""  # "" | "channel" | "position": s32 tensor `comp`, one a channel or one an output element
    doubled: bool = False  # halved weights: the sum counts twice
    merged_scales: bool = False  # source and weights scale multiplied with each other beforehand
    through_float: bool = False  # even an s32 destination gets the sum as rounded to f32
    reference: bool = False  # as oneDNN's reference: divides by the destination's scale, relu keeps a zero's sign
    nan_to_bound: bool = False  # a NaN becomes the upper bound of an integer destination
    scaled_inside: bool = False  # the weights' scale is on each product already
    summed: bool = False  # what the first post-operation adds is in the sums already
    terms: str = ""  # "" | "channel" | "position": f32 tensor `terms`, added to sums in f32

    @property
    def shift_type(self) -> str:
        return "f32" if self.epilogue.lifted == "all" else "s32"

    @property
    def in_float(self) -> bool:
        return self.integer and (self.epilogue.in_float or self.doubled or self.through_float)

    def tensors(self, unit: Unit, channels: int, positions: int, outputs: int) -> list[Tensor]:
        """The parameter tensors that the passes read; `channels` counts the padding of panels."""
        e = self.epilogue
        previous = previous_type(e.post_ops, e.dst)
        sizes = {"channel": channels, "position": channels * positions, "": 0}
        wanted = [
            ("comp", self.shift_type, sizes[self.compensate], bool(self.compensate)),
            ("terms", "f32", sizes[self.terms], bool(self.terms)),
            ("src_scale", "f32", 1, e.src_scale and not self.merged_scales),
            ("wei_scale", "f32", channels if self.scale_by_channel else 1, self.scale_pass),
            ("bias", "s32" if e.bias_in_sums else "f32", channels, e.bias),
            *((f"post{i}", "f32", size, True) for i, size in enumerate(self._operands(channels, outputs)) if size),
            ("previous", previous, outputs, bool(previous)),
            ("dst_scale", "f32", 1, e.dst_scale),
            (
                "dst_zero_point",
                "s32" if e.rounds_first else "f32",
                channels if "dst" in e.by_channel else 1,
                e.dst_zero_point,
            ),
            *((name, "f32", 1, e.rounds_first) for name in ("low", "high")),
        ]
        tensors = [
            Tensor(name, dtype, size, role=PARAMETERS.get(name, "")) for name, dtype, size, used in wanted if used
        ]
        if self.doubled and self.in_float:
            tensors.append(Tensor.constant("two", "f32", np.float32(2).tobytes()))
        low, high = (None, None) if e.rounds_first else self.bounds
        tensors += store_constants(unit, e.dst) + postop.constants(unit, e.post_ops, self.reference)
        tensors += formula_pass.tensors(unit, e.post_ops, self.reference)
        for name, value in (("low", low), ("high", high)):
            if value is not None:
                tensors.append(Tensor.constant(name, "f32", np.float32(value).tobytes()))
        return tensors

    def inputs(self, p: Parameters, spread: Callable[[Array], Array]) -> dict[str, Array]:
        """The values of `tensors`, but for `comp`; `spread` lays one value a channel out as the kernel reads them."""
        scale = np.asarray(1.0 if p.wei_scale is None else p.wei_scale, np.float32).reshape(-1)
        if self.merged_scales:
            scale = (scale * np.float32(p.src_scale)).astype(np.float32)
        divisor = np.array([p.dst_scale], np.float32)
        found: dict[str, Array] = {
            "src_scale": np.array([p.src_scale], np.float32),
            "wei_scale": spread(scale) if self.scale_by_channel else scale,
            "dst_scale": divisor if self.reference else np.float32(1) / divisor,
            "dst_zero_point": np.asarray(p.dst_zero_point, np.float32).reshape(-1),
        }
        if self.epilogue.rounds_first:
            held, point = fmt(self.epilogue.dst), found["dst_zero_point"]
            found |= {"low": np.float32(held.low) - point, "high": np.float32(held.high) - point}
            found["dst_zero_point"] = point.astype(np.int32)
        if "dst" in self.epilogue.by_channel:
            found["dst_zero_point"] = spread(found["dst_zero_point"])
        for i, (post_op, values) in enumerate(zip(self.epilogue.post_ops, p.operands, strict=False)):
            found[f"post{i}"] = spread(values) if post_op.per_channel else values
        if p.previous is not None:
            found["previous"] = p.previous
        if p.bias is not None:
            found["bias"] = spread(np.asarray(p.bias, np.int32 if self.epilogue.bias_in_sums else np.float32))
        return found

    def _operands(self, channels: int, outputs: int) -> list[int]:
        """How many values each post-operation reads, the destination apart."""
        return [post_op.size(channels, outputs) for post_op in self.epilogue.post_ops]

    def without(self, parts: Sequence[str]) -> Plan:
        """The plan of sums that have their "bias", or what `sum` adds, already."""
        if not parts:
            return self
        bias = self.epilogue.bias and "bias" not in parts
        return replace(self, epilogue=replace(self.epilogue, bias=bias), summed="sum" in parts)

    @property
    def sums_first(self) -> bool:
        """Whether the first post-operation adds what the destination held, as it is."""
        ops = self.epilogue.post_ops
        return sums_first(ops) and bool(previous_type(ops, self.epilogue.dst))

    @property
    def scale_by_channel(self) -> bool:
        """Whether the weights' scale has a value for each channel."""
        return self.epilogue.wei_scale is not None and self.epilogue.wei_scale.by_channel

    @property
    def scale_pass(self) -> bool:
        return bool(self.epilogue.wei_scale) or (self.epilogue.src_scale and self.merged_scales)

    @property
    def fuses_bias(self) -> bool:
        """Whether one multiply-add has the weights' scale and the bias."""
        return self.epilogue.bias_fused and self.epilogue.bias and self.scale_pass and not self.scaled_inside

    @property
    def nan_to_zero(self) -> bool:
        """Whether a NaN may reach s8 as oneDNN's reference makes it: 0 there (in u8 the lower bound does that)."""
        e = self.epilogue
        return self.reference and e.dst == "s8" and (not self.integer or bool(set(e.post_ops) - {RELU}))

    @property
    def bounds(self) -> tuple[float | None, float | None]:
        """f32 clamps before the conversion to an integer destination; conversion itself clamps below s8 and s32. Where
        a zero point is added to integers, both bounds are less that.
        """
        if self.epilogue.rounds_first:
            held = fmt(self.epilogue.dst)
            return float(held.low), float(held.high)
        if self.epilogue.dst == "u8":
            return 0.0, 255.0
        if self.epilogue.dst == "s8":
            return None, 127.0
        if self.epilogue.dst == "s32" and (self.in_float or not self.integer):
            return None, 2147483520.0  # the greatest f32 below 2**31
        return None, None


@dataclass(frozen=True)
class TileSums:
    """The accumulators of a tile and where they belong: row i, column vector j holds `lanes[j]` live lanes."""

    unit: Unit
    registers: Sequence[Sequence[Register]]
    lanes: Sequence[int]
    row_index: Sequence[Affine]  # in dst
    channel: Affine  # first channel of the tile, in parameter tensors (padded panels)
    position: Sequence[Affine]  # rows in `comp`, where it is one an output element
    row_number: Sequence[Affine] = ()  # rows in `rowsum`
    free: Sequence[str] = ()  # registers by name that the kernel needs no more, where there are few


def finish_tile(plan: Plan, tile: TileSums, rowsum: bool = False) -> Code:
    """The passes and the stores of one tile."""
    e, passes = plan.epilogue, _Passes(plan, tile)
    low, high = plan.bounds
    to_integer = e.dst in ("s32", "s8", "u8") and (plan.in_float or not plan.integer)
    late = plan.shift_type == "f32"
    steps: tuple[tuple[bool, Callable[[], Code]], ...] = (
        (plan.compensate == "channel" and not late, lambda: passes.per_channel("vpaddd", "s32", "comp")),
        (plan.compensate == "position", lambda: passes.per_position("vpaddd", "s32", "comp")),
        (rowsum and not e.late_terms, passes.subtract_row_sums),
        (e.bias_in_sums, lambda: passes.per_channel("vpaddd", "s32", "bias")),
        (plan.in_float, lambda: passes.convert("vcvtdq2ps", "f32", "s32")),
        (plan.compensate == "channel" and late, lambda: passes.per_channel("vaddps", "f32", "comp")),
        (plan.terms == "channel", lambda: passes.per_channel("vaddps", "f32", "terms")),
        (plan.terms == "position", lambda: passes.per_position("vaddps", "f32", "terms")),
        (rowsum and e.late_terms, passes.subtract_row_sums),
        (plan.doubled, lambda: passes.common("vmulps", "two")),
        (e.src_scale and not plan.merged_scales, lambda: passes.common("vmulps", "src_scale")),
        (plan.scale_pass and not plan.scaled_inside and not plan.fuses_bias, passes.scale),
        (plan.fuses_bias, passes.scale_and_bias),
        (e.bias and not e.bias_in_sums and not plan.fuses_bias, lambda: passes.per_channel("vaddps", "f32", "bias")),
        (bool(e.post_ops), passes.post_ops),
        (e.dst_scale, lambda: passes.common("vdivps" if plan.reference else "vmulps", "dst_scale")),
        (
            e.dst_zero_point and not e.rounds_first and "dst" not in e.by_channel,
            lambda: passes.common("vaddps", "dst_zero_point"),
        ),
        ("dst" in e.by_channel, lambda: passes.per_channel("vaddps", "f32", "dst_zero_point")),
        (plan.nan_to_zero, passes.nan_to_zero),
        (low is not None, lambda: passes.bound("vmaxps", "low")),
        (high is not None, lambda: passes.bound("vminps", "high")),
        (to_integer, lambda: passes.convert("vcvtps2dq", "s32", "f32")),
        (e.dst_zero_point and e.rounds_first, lambda: passes.common("vpaddd", "dst_zero_point", "s32")),
        (True, passes.store),
    )
    return [instruction for wanted, step in steps if wanted for instruction in step()]


def add_parts(plan: Plan, tile: TileSums, parts: Sequence[str]) -> Code:
    """Adds those that are named, what the destination held ("sum") and the "bias", to sums of floats."""
    passes = _Passes(plan, tile)
    held = passes.sum(plan.epilogue.post_ops[0], "post0") if "sum" in parts else []
    return held + (passes.per_channel("vaddps", "f32", "bias") if "bias" in parts else [])


@dataclass(frozen=True)
class _Passes:
    """The passes over one tile; each holds the value that it applies in the register `p`."""

    plan: Plan
    tile: TileSums

    def value(self, dtype: str = "u32") -> Register:
        return self.tile.unit.reg("p", dtype)

    def accumulators(self, dtype: str) -> list[Register]:
        return [acc.as_(dtype) for row in self.tile.registers for acc in row]

    def each(self, name: str, dtype: str) -> Code:
        """acc = name(acc, p) everywhere, p holding a common value."""
        return [op(name, acc, acc, self.value(dtype)) for acc in self.accumulators(dtype)]

    def convert(self, name: str, to: str, dtype: str) -> Code:
        return [op(name, acc.as_(to), acc) for acc in self.accumulators(dtype)]

    def common(self, name: str, tensor: str, dtype: str = "f32") -> Code:
        return [broadcast32(self.value(dtype), tensor, Affine()), *self.each(name, dtype)]

    def bound(self, name: str, tensor: str) -> Code:
        """The greater or the lesser of accumulator and bound; a NaN becomes what stands second."""
        reference = self.plan.reference and self.plan.epilogue.dst != "s32"  # s32 gets the conversion's own answer
        if self.plan.nan_to_bound or reference:
            return self.common(name, tensor)
        code: Code = [broadcast32(self.value("f32"), tensor, Affine())]
        return code + [op(name, acc, self.value("f32"), acc) for acc in self.accumulators("f32")]

    def nan_to_zero(self) -> Code:
        """max(acc, 0) + min(acc, 0): where acc is a NaN, both are the zero that stands second."""
        nothing, below = self.value("f32"), self.tile.unit.reg("a", "f32")
        code: Code = [zero(nothing)]
        for acc in self.accumulators("f32"):
            code += [op("vminps", below, acc, nothing), op("vmaxps", acc, acc, nothing), op("vaddps", acc, acc, below)]
        return code

    def per_channel(self, name: str, dtype: str, tensor: str) -> Code:
        unit = self.tile.unit
        code: Code = []
        for j in range(len(self.tile.lanes)):
            code.append(load32(unit, self.value(dtype), tensor, self.tile.channel + j * unit.lanes, unit.lanes))
            column = (row[j].as_(dtype) for row in self.tile.registers)
            code += [op(name, acc, acc, self.value(dtype)) for acc in column]
        return code

    def per_position(self, name: str, dtype: str, tensor: str) -> Code:
        unit = self.tile.unit
        code: Code = []
        for row, position in zip(self.tile.registers, self.tile.position, strict=True):
            for j, acc in enumerate(acc.as_(dtype) for acc in row):
                code.append(load32(unit, self.value(), tensor, position + j * unit.lanes, unit.lanes))
                code.append(op(name, acc, acc, self.value(dtype)))
        return code

    def subtract_row_sums(self) -> Code:
        late = self.plan.epilogue.late_terms
        name, dtype = ("vsubps", "f32") if late else ("vpsubd", "s32")
        code: Code = []
        for row, number in zip(self.tile.registers, self.tile.row_number, strict=True):
            code.append(broadcast32(self.value(), "rowsum", number))
            if late:
                code.append(op("vcvtdq2ps", self.value("f32"), self.value("s32")))
            code += [op(name, acc, acc, self.value(dtype)) for acc in (acc.as_(dtype) for acc in row)]
        return code

    def scale(self) -> Code:
        """The weights' scale."""
        if self.plan.scale_by_channel:
            return self.per_channel("vmulps", "f32", "wei_scale")
        return self.common("vmulps", "wei_scale")

    def scale_and_bias(self) -> Code:
        """The weights' scale and the bias in one multiply-add."""
        unit, factor = self.tile.unit, self.value("f32")
        by_channel, added = self.plan.scale_by_channel, self.tile.unit.reg("a", "f32")
        code: Code = [] if by_channel else [broadcast32(factor, "wei_scale", Affine())]
        for j in range(len(self.tile.lanes)):
            at = self.tile.channel + j * unit.lanes
            if by_channel:
                code.append(load32(unit, factor, "wei_scale", at, unit.lanes))
            code.append(load32(unit, added, "bias", at, unit.lanes))
            for acc in (row[j].as_("f32") for row in self.tile.registers):
                code.append(op("vfmadd213ps", acc, acc, factor, added))
        return code

    def post_ops(self) -> Code:
        code: Code = []
        for i, post_op in enumerate(self.plan.epilogue.post_ops):
            if i == 0 and self.plan.summed:
                continue
            code += self.relu() if post_op == RELU else self.post_op(post_op, i)
        return code

    def relu(self) -> Code:
        """max(acc, 0); in the reference acc > 0 ? acc : 0 acc, which is -0 where acc is negative."""
        nothing, lost = self.value("f32"), self.tile.unit.reg("a", "f32")
        code: Code = [zero(nothing)]
        if not self.plan.reference or self.plan.integer and not self.plan.in_float:  # s32 has no -0
            return code + self.each("vmaxps", "f32")
        for acc in self.accumulators("f32"):
            code += [
                op("vminps", lost, nothing, acc),
                op("vmulps", lost, lost, nothing),
                op("vmaxps", acc, acc, nothing),
                op("vpor", acc.as_("u32"), acc.as_("u32"), lost.as_("u32")),
            ]
        return code

    def post_op(self, post_op: PostOp, place: int) -> Code:
        """One of two operands, one of a single operand, or sum; `place` among the post-operations."""
        kind, tensor = post_op.kind, f"post{place}"
        unit, value = self.tile.unit, self.value("f32")
        if kind == "sum":
            return self.sum(post_op, tensor)
        if is_formula(post_op):
            sums, free = self.accumulators("f32"), self.tile.free
            return formula_pass.code(unit, post_op, place, tensor, sums, self.plan.reference, free)
        if kind not in BINARY:
            return postop.eltwise(unit, kind, tensor, self.accumulators("f32"), fused=not self.plan.reference)
        if post_op.per_output:
            return [
                instruction
                for acc, at, lanes in self.places("f32")
                for instruction in (load32(unit, value, tensor, at, lanes), *self.binary(kind, acc))
            ]
        code: Code = [] if post_op.per_channel else [broadcast32(value, tensor, Affine())]
        for j in range(len(self.tile.lanes)):
            if post_op.per_channel:
                code.append(load32(unit, value, tensor, self.tile.channel + j * unit.lanes, unit.lanes))
            for row in self.tile.registers:
                code += self.binary(kind, row[j].as_("f32"))
        return code

    def binary(self, kind: str, acc: Register) -> Code:
        """An accumulator and the second operands in `p`."""
        return postop.binary(self.tile.unit, kind, acc, self.value("f32"), self.plan.reference)

    def sum(self, post_op: PostOp, tensor: str) -> Code:
        """acc + scale * (previous - zero point), the last two fused but for the reference."""
        unit, value, scale = self.tile.unit, self.value("f32"), self.tile.unit.reg("a", "f32")
        zero_point = unit.reg("b0", "f32")
        stored, shifted = post_op.stored or self.plan.epilogue.dst, post_op.zero_point
        code: Code = [broadcast32(scale, tensor, Affine())]
        code += [broadcast32(zero_point, tensor, Affine(1))] if shifted else []
        for acc, at, lanes in self.places("f32"):
            code += load_float(unit, "p", "previous", stored, at, lanes)
            code += [op("vsubps", value, value, zero_point)] if shifted else []
            if self.plan.reference:
                code += [op("vmulps", value, value, scale), op("vaddps", acc, acc, value)]
            else:
                code.append(op("vfmadd231ps", acc, acc, value, scale))
        return code

    def places(self, dtype: str) -> Iterator[tuple[Register, Affine, int]]:
        """Each accumulator with its index in the destination and its live lanes."""
        for row, index in zip(self.tile.registers, self.tile.row_index, strict=True):
            columns = index.steps(self.tile.unit.lanes, len(row))
            for acc, at, lanes in zip(row, columns, self.tile.lanes, strict=True):
                yield acc.as_(dtype), at, lanes

    def store(self) -> Code:
        e, unit = self.plan.epilogue, self.tile.unit
        return [part for place in self.places("u32") for part in store(unit, e.dst, *place, flushes=e.flushes)]


def _rounds_to_bf16(unit: Unit) -> bool:
    """Whether the unit has vcvtneps2bf16."""
    return "avx512_core_bf16" in implied(unit.isa)


def store_constants(unit: Unit, dst: str) -> list[Tensor]:
    """The tensors that `store` reads for a destination of that type."""
    return [rounding_constants(_BF16_BITS)] if dst == "bf16" and not _rounds_to_bf16(unit) else []


def store(unit: Unit, dst: str, acc: Register, at: Affine, lanes: int, flushes: bool = False) -> Code:
    """One accumulator's `lanes` values to dst, narrowed to its type; `flushes`: `Epilogue.flushes`."""
    if dst in ("s32", "f32"):
        return [store32(unit, "dst", at, acc.as_(dst), lanes)]
    if dst == "bf16" and not _rounds_to_bf16(unit):
        return _store_bf16_emulated(unit, acc.as_("u32"), at, lanes, flushes)
    if dst == "bf16":
        half = Register("p", "bf16", unit.lanes)
        whole = lanes == unit.lanes == 4  # half a register, which has a move without a mask
        place = Memory("dst", at, "u64", 1) if whole else Memory("dst", at, "u16", lanes)
        store = op("vmovq" if whole else "vmovdqu16", place, half.as_("u64" if whole else "u16"))
        return [op("vcvtneps2bf16", half, acc.as_("f32")), store]
    if dst == "f16":
        return _store_f16(unit, acc.as_("f32"), at, lanes)
    if unit.masks:
        name = "vpmovsdb" if dst == "s8" else "vpmovusdb"
        source = acc.as_("s32" if dst == "s8" else "u32")
        return [op(name, Memory("dst", at, dst, lanes), source)]
    words = unit.reg("p", "s16")
    low, packed = Register("p", "s16", 8), Register("p", dst, 16)
    return [
        op("vpackssdw", words, acc.as_("s32"), acc.as_("s32")),
        *_side_by_side(unit, words),
        op("vpacksswb" if dst == "s8" else "vpackuswb", packed, low, low),
        *store_bytes(unit, "dst", at, packed, lanes),
    ]


def _side_by_side(unit: Unit, words: Register) -> Code:
    """The words of the two 128-bit lanes of a register, where it has two."""
    quads = words.as_("u64")
    return [op("vpermq", quads, quads, imm=0b1000)] if unit.lanes > 4 else []


def _store_bf16_emulated(unit: Unit, x: Register, at: Affine, lanes: int, flushes: bool) -> Code:
    """Rounding to bf16 in integer arithmetic, where there is no vcvtneps2bf16."""
    rounded = without_denormals(unit, x, ("p", "a"), _BF16_BITS) if flushes else []
    rounded += nearest_even(unit, x, ("p", "a", "b0"), _BF16_BITS)
    return [*rounded, op("vpsrld", x, x, imm=_BF16_BITS), *_store_low_words(unit, x, at, lanes)]


def _store_f16(unit: Unit, x: Register, at: Affine, lanes: int) -> Code:
    """Rounded to nearest even by the instruction, which stores; without masks a part of a register word by word."""
    if unit.masks or lanes == unit.lanes:
        return [op("vcvtps2ph", Memory("dst", at, "f16", lanes), x, imm=0)]
    words = Register("p", "u16", 8)
    convert = op("vcvtps2ph", words.as_("f16"), x, imm=0)
    return [convert, *[op("vpextrw", Memory("dst", at + i, "u16", 1), words, imm=i) for i in range(lanes)]]


def _store_low_words(unit: Unit, x: Register, at: Affine, lanes: int) -> Code:
    """The low word of each doubleword; the high ones are zero."""
    if unit.masks:
        return [op("vpmovdw", Memory("dst", at, "u16", lanes), x)]
    words = x.as_("u16")
    low = Register(x.name, "u16", 8)
    code: Code = [op("vpackusdw", words, x.as_("s32"), x.as_("s32")), *_side_by_side(unit, words)]
    if lanes == 8:
        return [*code, op("vmovdqu", Memory("dst", at, "u32", 4), low.as_("u32"))]
    return [*code, *[op("vpextrw", Memory("dst", at + i, "u16", 1), low, imm=i) for i in range(lanes)]]
