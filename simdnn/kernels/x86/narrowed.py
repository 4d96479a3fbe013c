"""f32 results brought to a narrow float destination, with a given scale or with scales found for groups of columns.

for each row, each group of columns:             parallel
    amax, the greatest magnitude (NaN left out); s, the scale, stored
    each value times 1 / s, as a code
Without scales to be found, a single pass over all values. What the destination held, which `sum` reads, becomes f32
ahead. `Narrow.reference` has oneDNN 3.13's roundings and overflows:

dynamic_mx   s = 2**(exponent of amax - exponent of the greatest value), at least 2**-127; NaN where amax is infinite
dynamic_fp   s = f8_e4m3(amax / greatest value), 1 where amax is 0; it may round to 0, and 1 / s is infinite then

It rounds by way of f16 and does not saturate. Own kernels round once and saturate; where s is 0, codes are 0.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TypeVar

import numpy as np

from isa_models.formats import fmt
from isa_models.readings.arrays import Array
from simdnn.kernels.common.code import Code, along, loop
from simdnn.kernels.common.epilogue import Parameters
from simdnn.kernels.common.kernel import HELD, Kernel
from simdnn.kernels.common.narrow_floats import Narrow, is_narrow
from simdnn.kernels.common.postops import previous_type
from simdnn.kernels.common.problems import ConvProblem, MatmulProblem
from simdnn.kernels.x86.code import Unit, load32, store32, typed, unit_of
from simdnn.kernels.x86.constants import Constants
from simdnn.kernels.x86.line_sums import horizontal
from simdnn.kernels.x86.narrow import HIDDEN, MAGNITUDE, encode, load, store, widen
from simdnn.program.check import verify
from simdnn.program.records import Affine, Register, Tensor

_ONE = 0x38  # f8_e4m3's
_TOP = 254  # e8m0's greatest


P = TypeVar("P", MatmulProblem, ConvProblem)


def as_f32(problem: P) -> P:
    """The problem whose results are narrowed behind it."""
    ops = tuple(replace(op, stored="") if op.stored else op for op in problem.epilogue.post_ops)
    return replace(problem, epilogue=replace(problem.epilogue, dst="f32", post_ops=ops))


def narrowing(kernel: Kernel, problem: MatmulProblem | ConvProblem, narrow: Narrow) -> Kernel:
    """The kernel of `as_f32(problem)`, with a stage behind that narrows the rows of columns which it leaves, and one
    ahead that widens what `sum` reads.
    """
    dst, held = problem.epilogue.dst, previous_type(problem.epilogue.post_ops, problem.epilogue.dst)
    rows, columns = _rows_and_columns(problem)
    stage, program = _Narrowing(rows, columns, dst, narrow, unit_of(kernel.program.isa)), kernel.program
    ahead = stage.widened(held) if held and is_narrow(held) else []
    code = stage.dynamic() if narrow.dynamic else stage.static()
    between = {"dst", *(["previous"] if ahead else [])}
    tensors = [replace(t, kind="scratch") if t.name in between else t for t in program.tensors]
    tensors += [Tensor(HELD, "u8", rows * columns)] if ahead else []
    made = verify(replace(program, tensors=(*tensors, *stage.tensors()), body=(*ahead, *program.body, *code)))

    def finish(outputs: Mapping[str, Array]) -> Array:
        if "narrowed" not in outputs:  # whoever asks where an output's sum lies
            return kernel.finish(outputs)
        return kernel.finish({"dst": outputs["narrowed"].view(fmt(dst).dtype)})

    def scales(outputs: Mapping[str, Array]) -> Array:
        return outputs["found_scales"].view(fmt(stage.scale).dtype).reshape(rows, -1)

    def prepare(src: Array, weights: Array, p: Parameters) -> dict[str, Array]:
        codes = None if p.previous is None else p.previous.view(np.uint8)
        found = kernel.prepare(src, weights, p)
        return found if codes is None else {**found, HELD: codes}

    given = prepare if ahead else kernel.prepare
    return replace(kernel, program=made, prepare=given, finish=finish, scales=scales if narrow.dynamic else None)


def _rows_and_columns(problem: MatmulProblem | ConvProblem) -> tuple[int, int]:
    """Rows and columns of the destination as a kernel writes it."""
    if isinstance(problem, MatmulProblem):
        return problem.m, problem.n
    return problem.mb * problem.od * problem.oh * problem.ow, problem.oc


class _Narrowing:
    def __init__(self, m: int, n: int, dst: str, narrow: Narrow, unit: Unit) -> None:
        self.m, self.n, self.dst, self.narrow, self.unit = m, n, dst, narrow, unit
        self.words = Constants(unit, "narrowing")
        self.scale = "e8m0" if narrow.dynamic == "dynamic_mx" else "f8_e4m3"

    def tensors(self) -> list[Tensor]:
        found = [*self.words.tensors(), Tensor("narrowed", "u8", self.m * self.n, "output")]
        groups = self.m * self.n // self.narrow.columns if self.narrow.dynamic else 0
        return [*found, *([Tensor("found_scales", "u8", groups, "output")] if groups else [])]

    def reg(self, name: str) -> Register:
        return self.unit.reg(name)

    def load(self, at: Affine, lanes: int) -> Code:
        return [load32(self.unit, self.unit.reg("x", "f32"), "dst", at, lanes)]

    def written(self, at: Affine, lanes: int) -> Code:
        """The value in x as a code in memory."""
        ref = self.narrow.reference
        code = encode(self.words, "x", self.dst, ref, not ref)
        return [*code, *store(self.words, "narrowed", self.reg("n"), at, lanes)]

    def widened(self, held: str) -> Code:
        """Codes of the narrow type `held`, from before the run, as f32 in `previous`."""

        def one(at: Affine, lanes: int) -> Code:
            widened = load(self.words, "x", HELD, held, at, lanes)
            return [*widened, store32(self.unit, "previous", at, self.unit.reg("x", "f32"), lanes)]

        return loop("r", self.m, along(self.n, self.unit.lanes, one, Affine.var("r") * self.n), parallel=True)

    def static(self) -> Code:
        def one(at: Affine, lanes: int) -> Code:
            return [*self.load(at, lanes), *self.written(at, lanes)]

        return loop("r", self.m, along(self.n, self.unit.lanes, one, Affine.var("r") * self.n), parallel=True)

    def dynamic(self) -> Code:
        groups = self.n // self.narrow.columns
        number = Affine.var("r") * groups + Affine.var("g")
        start, columns = number * self.narrow.columns, self.narrow.columns
        a, x = self.reg("a0"), self.reg("x")

        def meet(at: Affine, lanes: int) -> Code:  # the second operand is the result where the first one is NaN
            return [*self.load(at, lanes), typed("vpand", x, x, self.reg("m")), typed("vmaxps", a, x, a)]

        def element(at: Affine, lanes: int) -> Code:
            return [*self.load(at, lanes), typed("vmulps", x, x, self.reg("i")), *self.written(at, lanes)]

        code: Code = [*self.words.word("m", MAGNITUDE), typed("vpxor", a, a, a)]
        code += [*along(columns, self.unit.lanes, meet, start), *horizontal(self.unit, "a0", _greater)]
        code += self.power() if self.scale == "e8m0" else self.float8()
        code += store(self.words, "found_scales", self.reg("s"), number, 1)
        code += along(columns, self.unit.lanes, element, start, "w")
        return loop("r", self.m, loop("g", groups, code, parallel=True), parallel=True)

    def power(self) -> Code:
        """s, the code of a power of two, and i, its inverse."""
        a, s, i, t, k = (self.reg(name) for name in ("a0", "s", "i", "t", "c"))
        top = int(np.floor(np.log2(fmt(self.dst).greatest)))
        code: Code = [typed("vpsrld", a, a, imm=HIDDEN), *self.words.word("c", _TOP), typed("vpsubd", t, k, a)]
        code += [typed("vpsrad", t, t, imm=31), *self.words.word("c", top), typed("vpsubd", s, a, k)]
        code += [typed("vpxor", k, k, k), typed("vpmaxsd", s, s, k)]
        code += [*self.words.word("c", 255), typed("vpand", k, k, t), typed("vpor", s, s, k)]
        code += [*self.words.word("c", _TOP), typed("vpsubd", i, k, s), typed("vpslld", i, i, imm=HIDDEN)]
        code += [*self.words.word("c", 1 << (HIDDEN - 1)), typed("vpmaxud", i, i, k)]
        return [*code, typed("vpand", t, t, k), typed("vpor", i, i, t)]

    def float8(self) -> Code:
        """s, the code of a float, and i, its reciprocal; with the library's roundings, or 0 where s is 0."""
        a, s, i, z, k = (self.reg(name) for name in ("a0", "s", "i", "z", "c"))
        ref = self.narrow.reference
        code: Code = self.positive(z, a)
        code += [*self.words.number("c", fmt(self.dst).greatest), typed("vdivps", a, a, k)]
        code += [*encode(self.words, "a0", "f8_e4m3", ref, not ref), typed("vpand", s, self.reg("n"), z)]
        code += [*self.words.word("c", _ONE), typed("vpandn", z, z, k), typed("vpor", s, s, z)]
        code += [typed("vpor", i, s, s), *widen(self.words, "i", fmt("f8_e4m3"))]
        if not ref:
            code += self.positive(z, i)
        code += [*self.words.number("c", 1.0), typed("vdivps", i, k, i)]
        return [*code, *([] if ref else [typed("vpand", i, i, z)])]

    def positive(self, mask: Register, value: Register) -> Code:
        """All bits of `mask` where a number is above zero, none where it is zero."""
        return [typed("vpxor", *[mask] * 3), typed("vpsubd", mask, mask, value), typed("vpsrad", mask, mask, imm=31)]


def _greater(acc: Register, other: Register) -> Code:
    return [typed("vmaxps", acc, acc, other)]
