"""Compressed weights in registers: rows from storage to floating point, with their zero points and scales.

    (w - zero point) * scale in f32, rounded to what is multiplied

A scale that is common or per channel multiplies the result instead (docs/numerics.md, rule 10), but not where sums are
of f16: stored integers up to 255 would leave its range, which their scale keeps them in.
"""

from __future__ import annotations

from dataclasses import replace
from math import gcd, lcm

import numpy as np

from isa_models.formats import fmt
from isa_models.readings.arrays import Array
from simdnn.kernels.common import pack
from simdnn.kernels.common.code import Code, op
from simdnn.kernels.common.epilogue import Decompression, Parameters
from simdnn.kernels.common.narrow_floats import is_narrow
from simdnn.kernels.common.params import Param
from simdnn.kernels.common.problems import MatmulProblem
from simdnn.kernels.x86.code import broadcast32, load32, load_float
from simdnn.kernels.x86.constants import Constants
from simdnn.kernels.x86.dots import Dot
from simdnn.kernels.x86.epilogue import Plan
from simdnn.kernels.x86.product import Product, runs
from simdnn.kernels.x86.stored import StoredRows, in_nibbles, odd_nibbles
from simdnn.kernels.x86.tile import Panel
from simdnn.program.records import SCALES, ZEROS, Affine, Register, Tensor

_MOST_UNROLLED = 256  # rows


class Decompressor:
    """The weights of one matmul with a `Decompression`, or f32 ones that are rounded to what is multiplied (None)."""

    def __init__(self, product: Product, layout: pack.Layout) -> None:
        assert isinstance(product.problem, MatmulProblem)
        self.product, self.layout = product, layout
        self.problem: MatmulProblem = product.problem
        self.unit, self.dot, self.k = product.unit, product.dot, product.k
        self.stored, self.multiplied = self.problem.wei, self.dot.wei
        self.compressed = self.problem.decompression or Decompression((self.dot.compute,))
        words = Constants(self.unit, "decoding") if is_narrow(self.stored) else None
        stored = self.stored, self.problem.wei_tag, self.k, product.oc, layout
        self.rows = StoredRows(self.unit, *stored, self.compressed.by, words)

    @property
    def in_weights(self) -> Param | None:
        """The scale, where it multiplies the weights."""
        return scale_inside(self.compressed, self.dot)

    def epilogue(self) -> Plan:
        """The plan of the epilogue, with the scale where it does not multiply the weights."""
        epilogue = self.product.conv.epilogue
        if not self.problem.decompression:  # f32 weights: their scale is the epilogue's
            return Plan(epilogue, integer=False, merged_scales=self.product.options.merged_scales)
        scale = self.compressed.scale
        after = None if self.in_weights else scale
        each = epilogue.src_scale and not self.dot.scaled
        plan = Plan(replace(epilogue, wei_scale=after, src_scale=each), integer=False)
        return replace(plan, reference=self.compressed.reference, merged_scales=self.compressed.merged)

    def panels(self) -> list[tuple[int, Panel]]:
        """(how many, the panel in a buffer of its own) for whole panels and for the last one; `panel` is the loop."""
        found = []
        for r in runs(self.layout, self.unit.lanes, "panel"):
            step = r.width * self.dot.depth
            panel = Panel(r.tensor, r.lanes, Affine(), step, r.first, r.first, number=r.number)
            found.append((r.count, panel))
        return found

    def parameter_tensors(self) -> list[Tensor]:
        """Scales, zero points, and what the rows of a pair are interleaved by."""
        tensors = []
        points = self.compressed.zero_point
        for name, param, role in (("group_scale", self.in_weights, SCALES), ("zero_point", points, ZEROS)):
            if param:
                tensors.append(Tensor(name, _kept(param), self.values(param), role=role))
        if self.multiplied == "bf16":
            lanes = self.unit.lanes
            order = np.array([k for i in range(lanes) for k in (i, lanes + i)], np.uint16)
            tensors.append(Tensor.constant("interleave", "u16", order.tobytes()))
        return tensors

    def values(self, param: Param) -> int:
        """How many values of a parameter are kept: by group and channel, with the padding of panels."""
        groups = self.k // param.group if param.group else 1
        return groups * (self.layout.channels if param.by_channel else 1)

    # -- in registers -----------------------------------------------------------------------------------------------
    def interleaving(self, register: str) -> Code:
        """Loads what `interleaved` finds in its register 4, if it wants it."""
        if self.multiplied != "bf16":
            return []
        return [load32(self.unit, self.unit.reg(register), "interleave", Affine(), self.unit.lanes)]

    def parameters_of(self, r: list[str], panel: Panel, j: int, row: Affine, further: int) -> Code:
        """Zero points to register 2 and scales to register 3, as f32, of one vector of columns in row `row + further`.

        `row` is the first of a group of each kind, but for the loop over smaller groups within it.
        """
        code: Code = []
        for register, tensor, param in (
            (r[2], "zero_point", self.compressed.zero_point),
            (r[3], "group_scale", self.in_weights),
        ):
            if param is None:
                continue
            at = panel.channel + j * self.unit.lanes if param.by_channel else Affine()
            if 0 < param.group < self.k:
                group = Affine(
                    (row.const + further) // param.group,
                    tuple((name, rows // param.group) for name, rows in row.terms if rows % param.group == 0),
                )
                at = at + group * (self.layout.channels if param.by_channel else 1)
            code += self.load_parameter(register, tensor, param, at)
        return code

    def load_parameter(self, register: str, tensor: str, param: Param, at: Affine) -> Code:
        """A parameter of each column, or one of all, as f32."""
        unit, kept = self.unit, _kept(param)
        if param.by_channel:
            return load_float(unit, register, tensor, kept, at, unit.lanes)
        value = unit.reg(register, "f32")
        if kept == "f32":
            return [broadcast32(value, tensor, at)]
        return [broadcast32(value.as_("u32"), tensor, at), op("vcvtdq2ps", value, value.as_("s32"))]

    def interleaved(self, r: list[str]) -> Code:
        """Two rows of f32, in registers 0 and 1, as pairs of what is multiplied, in register 0."""
        unit = self.unit
        low, high = unit.reg(r[0], "f32"), unit.reg(r[1], "f32")
        if self.multiplied == "bf16":
            words = unit.reg(r[0], "u16")
            return [
                op("vcvtne2ps2bf16", words.as_("bf16"), high, low),
                op("vpermw", words, unit.reg(r[4], "u16"), words),
            ]
        code: Code = []
        for value in (low, high):
            half = Register(value.name, "f16", unit.lanes)
            code += [op("vcvtps2ph", half, value, imm=0), op("vpmovzxwd", value.as_("u32"), half.as_("u16"))]
        first, second = low.as_("u32"), high.as_("u32")
        return [*code, op("vpslld", second, second, imm=16), op("vpor", first, first, second)]

    def dequantize(self, register: str, zero_point: str, scale: str) -> Code:
        """(w - zero point) * scale, two roundings."""
        unit = self.unit
        value = unit.reg(register, "f32")
        code: Code = [] if self.rows.floats else [op("vcvtdq2ps", value, value.as_("s32"))]
        if self.compressed.zero_point:
            code.append(op("vsubps", value, value, unit.reg(zero_point, "f32")))
        if self.in_weights:
            code.append(op("vmulps", value, value, unit.reg(scale, "f32")))
        return code

    # -- arrays ---------------------------------------------------------------------------------------------------
    def arrays(self, weights: Array, parameters: Parameters) -> dict[str, Array]:
        inputs = self.rows.arrays(weights)
        for name, param, values in (
            ("group_scale", self.in_weights, parameters.wei_scale),
            ("zero_point", self.compressed.zero_point, parameters.wei_zero_points),
        ):
            if param:
                assert values is not None
                inputs[name] = self.kept(param, np.asarray(values))
        return inputs

    def kept(self, param: Param, values: Array) -> Array:
        """A parameter in its stored type, by group and channel."""
        dtype = fmt(_kept(param)).dtype
        if not param.by_channel:
            return values.reshape(-1).astype(dtype)
        padded = pack.filled(values.reshape(-1, self.product.oc).astype(np.float64), self.layout.channels)
        exact = padded.astype(np.float32 if fmt(_kept(param)).is_float else np.int64)
        return exact.astype(dtype).reshape(-1)


def scale_inside(d: Decompression, dot: Dot) -> Param | None:
    """The scale, where it multiplies the weights."""
    always = d.reference or dot.narrow_sums
    return d.scale if d.scale and (always or d.scale.group) else None


def lengths(d: Decompression, k: int) -> tuple[int, int]:
    """Runs of rows within K: how many share all parameters at least, and after how many all groups begin together.

    >>> lengths(Decompression(("f32",), Param("wei", 32, 1, "f32"), Param("wei", 0, 1, "s8")), 64)
    (32, 32)
    >>> lengths(Decompression(("f32",), Param("wei", 32, 1, "f32"), Param("wei", 48, 1, "s8")), 96)
    (16, 96)
    """
    groups = _groups(d, k) or [k]
    return gcd(*groups), lcm(*groups)


def nest(d: Decompression, k: int) -> bool:
    """Whether groups are of one length, or of two lengths and one divides the other."""
    return set(_groups(d, k)) <= set(lengths(d, k))


def _groups(d: Decompression, k: int) -> list[int]:
    return [p.group for p in (d.scale, d.zero_point) if p and 0 < p.group < k]


def refuses_groups(problem: MatmulProblem, dot: Dot) -> str:
    """Why groups along K, or plain nibbles, cannot be had; empty where they can."""
    p, k, d = problem, problem.k, problem.decompression
    assert d
    step, large = lengths(d, k)
    if any(k % group for group in _groups(d, k)):
        return f"groups of {sorted(_groups(d, k))} that do not divide K = {k}"
    if not nest(d, k) and large // step > _MOST_UNROLLED:
        return f"groups of {sorted(_groups(d, k))}: none divides the other, and no short run holds both"
    if reason := odd_nibbles(p.wei, p.wei_tag, k, p.n):
        return reason
    if dot.depth == 2 or (in_nibbles(p.wei) and (p.wei_tag != "ab" or p.n == 1)):
        count = 2 * step if nest(d, k) and large % (2 * step) == 0 else lcm(2, large)
        if step % 2 and step < k and count > _MOST_UNROLLED:
            return f"takes rows in pairs: groups of an even length, or up to {_MOST_UNROLLED // 2}, not {step}"
    return ""


def _kept(param: Param) -> str:
    """The type in which a parameter is kept: 4-bit integers in bytes, narrow floats in the least that holds them and
    instructions widen; those of all columns ready for a broadcast.
    """
    dtype = {"s4": "s8", "u4": "u8", "e8m0": "bf16", "f8_e4m3": "f16"}.get(param.dtype, param.dtype)
    if not param.by_channel:
        return "f32" if fmt(dtype).is_float else "s32"
    return dtype
