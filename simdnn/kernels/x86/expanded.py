"""Convolutions of floats with weights of fewer bits: stored in the kernel's own layout, made floats of once a run.

for each vector of stored weights:               parallel
    integers: widen, convert, less the zero point; narrow floats: decode; store    to the panels that the kernel reads
the convolution itself (gemm.py), whose epilogue has the scales

A kernel that adds up in f16 has the weights' scales in its panels, before they are rounded: stored integers would take
its sums out of f16's range.

4-bit integers lie two to a byte, an element of a vector beside that of the next; floats of 8 and 6 bits lie one in a
byte. oneDNN has no such convolution.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np

from isa_models.formats import fmt
from isa_models.isa import implied
from isa_models.readings.arrays import Array
from simdnn.kernels.common.code import Code, loop, op
from simdnn.kernels.common.epilogue import Parameters
from simdnn.kernels.common.kernel import Kernel, Prepare
from simdnn.kernels.common.narrow_floats import is_narrow
from simdnn.kernels.common.pack import Blocked, per_channel
from simdnn.kernels.common.problems import ConvProblem
from simdnn.kernels.x86.code import Unit, broadcast32, load32, store32, unit_of
from simdnn.kernels.x86.constants import Constants
from simdnn.kernels.x86.narrow import Decoding, in_runs
from simdnn.kernels.x86.stored import in_nibbles, widen
from simdnn.kernels.x86.widened import codes_of
from simdnn.program.check import verify
from simdnn.program.records import SCALES, WEIGHTS, ZEROS, Affine, Memory, Program, Register, Tensor

STORED = ("s8", "u8", "s4", "u4", "f8_e4m3", "f8_e5m2", "f6_e2m3", "f6_e3m2")
_PANELS = ("wei", "wei_tail")
_HELD = tuple(f"d{i}" for i in range(4))  # constants of decoding


def is_stored(problem: ConvProblem) -> bool:
    """Whether a convolution is of floats of 16 bits or more with weights of fewer."""
    return fmt(problem.src).is_float and fmt(problem.src).bits > 8 and problem.wei in STORED


def as_floats(problem: ConvProblem, scaled: bool = False) -> ConvProblem:
    """The problem that the kernel itself is given; `scaled`: its weights come multiplied by their scales."""
    scale = None if scaled else problem.epilogue.wei_scale
    return replace(problem, wei=problem.src, epilogue=replace(problem.epilogue, zp_wei=False, wei_scale=scale))


def refuses_stored(problem: ConvProblem, isa: str, kept: str) -> str:
    """Why a kernel whose panels are of type `kept` cannot be given stored weights; empty where it can."""
    if problem.wei_tag != "any":
        return f"reads {problem.wei} weights in its own layout only (wei_tag='any')"
    if kept == "bf16" and "avx512_core_bf16" not in implied(isa):
        return f"has no way to bring {problem.wei} weights to bf16"
    return ""


def expanding(kernel: Kernel, problem: ConvProblem, scaled: bool) -> Kernel:
    """The kernel of `as_floats(problem, scaled)`, with a stage ahead that fills its panels."""
    program, unit, shifted = kernel.program, unit_of(kernel.program.isa), problem.epilogue.zp_wei
    panels = [t for t in program.tensors if t.name in _PANELS]
    others = [t for t in program.tensors if t.name not in _PANELS]
    small = [
        Tensor(f"stored_{t.name}", _byte(problem.wei), _bytes(t.size, problem.wei, unit), role=WEIGHTS) for t in panels
    ]
    constants = [Tensor.constant("nibble", "u32", np.uint32(15).tobytes())] if problem.wei == "u4" else []
    constants += [Tensor("wei_zero", "f32", 1, role=ZEROS)] if shifted else []
    decoding = Decoding(Constants(unit, "decoding"), problem.wei) if is_narrow(problem.wei) else None
    code: Code = []
    scales = []
    for t in panels:
        row, rows = _rows(kernel.blocked, t) if scaled else (0, 0)
        scales += [Tensor(f"scale_{t.name}", "f32", t.size // rows, role=SCALES)] if scaled else []
        code += _stage(unit, t, problem.wei, shifted, row, rows, decoding)
    constants += decoding.tensors() if decoding else []
    tensors = (*small, *constants, *scales, *(replace(t, kind="scratch") for t in panels), *others)
    text = f"{program.name}, {problem.wei} weights"
    made = verify(Program(text, program.isa, tensors, (*code, *program.body)))
    fed = kernel.prepare, problem, tuple(t.name for t in panels), unit, kernel.blocked if scaled else None
    prepare = partial(_prepared, *fed)
    stored = tuple(t.name for t in small)
    return replace(kernel, program=made, prepare=prepare, blocked=None, weights=stored)


def _rows(blocked: Blocked | None, panel: Tensor) -> tuple[int, int]:
    """(elements of a panel's row: all columns in one step of channels; the number of its rows)."""
    assert blocked  # the kinds whose sums are narrow neither fold nor halve weights
    layout = blocked.layout
    columns = layout.width if panel.name == "wei" else layout.tail
    return columns * layout.depth, blocked.taps * layout.icp // layout.depth


def _scales(blocked: Blocked, oc: int, p: Parameters) -> dict[str, Array]:
    """The weights' scales as rows of each panel have them."""
    assert p.wei_scale is not None
    layout = blocked.layout
    each = per_channel(np.broadcast_to(p.wei_scale.reshape(-1), (oc,)), layout).reshape(layout.groups, -1)
    whole = layout.full * layout.width
    parts = {"wei": each[:, :whole], "wei_tail": each[:, whole:]}
    return {name: part.repeat(layout.depth, 1).reshape(-1) for name, part in parts.items() if part.size}


def _prepared(
    prepare: Prepare,
    problem: ConvProblem,
    panels: tuple[str, ...],
    unit: Unit,
    scaled: Blocked | None,
    src: Array,
    weights: Array,
    p: Parameters,
) -> dict[str, Array]:
    """Inputs with the panels as they are stored; `scaled`: how they are blocked where scales go into them."""
    inputs = prepare(src, weights.astype(np.float32), p)
    numbers = {name: inputs.pop(name).astype(np.float32) for name in panels}
    if problem.epilogue.zp_wei:  # what fills panels up is to be zero behind the subtraction, too
        point, live = np.float32(p.zp_wei), prepare(src, np.ones(weights.shape, np.float32), p)
        numbers = {n: np.where(live[n].astype(np.float32) != 0, v, point) for n, v in numbers.items()}
        inputs["wei_zero"] = np.array([point])
    if scaled:
        inputs |= {f"scale_{name}": v for name, v in _scales(scaled, problem.oc, p).items()}
    return inputs | {f"stored_{name}": _packed(v, problem.wei, unit) for name, v in numbers.items()}


def _byte(wei: str) -> str:
    return "u8" if in_nibbles(wei) or is_narrow(wei) else wei


def _bytes(size: int, wei: str, unit: Unit) -> int:
    """How many bytes store `size` elements of type `wei`, which are whole vectors."""
    return -(-size // (2 * unit.lanes)) * unit.lanes if in_nibbles(wei) else size


def _packed(numbers: Array, wei: str, unit: Unit) -> Array:
    """The stored bytes of a panel tensor."""
    if is_narrow(wei):
        return codes_of(numbers, wei)
    if not in_nibbles(wei):
        return numbers.astype(np.int16).astype(fmt(wei).dtype)
    whole = np.zeros(2 * _bytes(numbers.size, wei, unit), np.uint8)
    whole[: numbers.size] = numbers.astype(np.int8).view(np.uint8) & 15
    pairs = whole.reshape(-1, 2, unit.lanes)
    return np.ascontiguousarray(pairs[:, 0] | pairs[:, 1] << 4).reshape(-1)


def _stage(unit: Unit, panel: Tensor, wei: str, shifted: bool, row: int, rows: int, decoding: Decoding | None) -> Code:
    """Stored bytes become one panel tensor. `row`: elements of a row that have scales, the same in all `rows`."""
    lanes, per = unit.lanes, 2 if in_nibbles(wei) else 1
    turns, rest = divmod(panel.size // lanes, per)
    setup: Code = [broadcast32(unit.reg("zero", "f32"), "wei_zero", Affine())] if shifted else []
    setup += [broadcast32(unit.reg("nibble"), "nibble", Affine())] if wei == "u4" else []
    setup += decoding.setup(_HELD, "t") if decoding else []

    def vectors(turn: Affine, count: int) -> Code:
        source = Memory(f"stored_{panel.name}", turn * lanes, _byte(wei), lanes)
        code: Code = decoding.load("x0", source, "t", _HELD) if decoding else [widen(unit, "x0", source)]
        code += _nibbles(unit, wei, count) if per == 2 else []
        for i in range(count):
            at = turn * (per * lanes) + i * lanes
            code += [] if decoding else [op("vcvtdq2ps", unit.reg(f"x{i}", "f32"), unit.reg(f"x{i}", "s32"))]
            code += _converted(unit, f"x{i}", panel, at, shifted, f"scale{i}" if row else "")
        return code

    if row:
        together = per * lanes
        number, at = Affine.var("panel"), Affine.var("v")
        body: Code = []
        for i in range(per):
            place = number * row + at * together + i * lanes
            body.append(load32(unit, unit.reg(f"scale{i}", "f32"), f"scale_{panel.name}", place, lanes))
        body += loop("row", rows, vectors((number * rows + Affine.var("row")) * (row // together) + at, per))
        return loop("panel", panel.size // (row * rows), [*setup, *loop("v", row // together, body)], parallel=True)
    run = in_runs(turns) if decoding else 1
    turn = Affine.var("v") * run + Affine.var("turn") if run > 1 else Affine.var("v")
    body = loop("turn", run, vectors(turn, per)) if run > 1 else vectors(turn, per)
    code = loop("v", turns // run, [*setup, *body], parallel=True)
    return code + loop("last", 1, [*setup, *vectors(Affine(turns), rest)] if rest else [], parallel=True)


def _nibbles(unit: Unit, wei: str, count: int) -> Code:
    """The high and the low half of each byte of x0, to x1 and x0."""
    low, high = unit.reg("x0"), unit.reg("x1")
    if wei == "u4":
        code: Code = [op("vpsrld", high, low, imm=4)] if count > 1 else []
        return [*code, op("vpand", low, low, unit.reg("nibble"))]
    code = []
    for register, left in ((high, 24), (low, 28))[2 - count :]:
        code += [op("vpslld", register, low, imm=left), op("vpsrad", register.as_("s32"), register.as_("s32"), imm=28)]
    return code


def _converted(unit: Unit, name: str, panel: Tensor, at: Affine, shifted: bool, scale: str) -> Code:
    """A vector of f32 as the panel's floats, in memory."""
    x = unit.reg(name, "f32")
    code: Code = [op("vsubps", x, x, unit.reg("zero", "f32"))] if shifted else []
    code += [op("vmulps", x, x, unit.reg(scale, "f32"))] if scale else []
    if panel.dtype == "f32":
        return [*code, store32(unit, panel.name, at, x, unit.lanes)]
    half = Register(f"h{name}", panel.dtype, unit.lanes)
    code.append(op("vcvtneps2bf16", half, x) if panel.dtype == "bf16" else op("vcvtps2ph", half, x, imm=0))
    words = Memory(panel.name, at, "u32", unit.lanes // 2)
    return [*code, op("vmovdqu", words, half.as_("u32"))]
