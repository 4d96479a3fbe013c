"""Sources, and weights in a kernel's own layout, stored as narrow floats: a stage ahead makes what it multiplies.

for each row of the source, each group of K:     parallel
    its codes to f32, times their scale where K has groups of it, to the kernel's type
for each vector of stored panels, and of a convolution's source:     parallel
    its codes to the kernel's type
the kernel itself
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from isa_models.formats import encode, fmt
from isa_models.readings.arrays import Array
from simdnn.kernels.common.code import Code, along, loop, op
from simdnn.kernels.common.epilogue import Parameters
from simdnn.kernels.common.kernel import Kernel
from simdnn.kernels.common.narrow_floats import is_narrow
from simdnn.kernels.common.problems import MatmulProblem, Problem
from simdnn.kernels.x86.code import Unit, broadcast32, store32, unit_of
from simdnn.kernels.x86.constants import Constants
from simdnn.kernels.x86.narrow import Decoding, in_runs, load
from simdnn.program.check import verify
from simdnn.program.records import SCALES, SOURCE, WEIGHTS, Affine, Memory, Register, Tensor

_PANELS = ("wei", "wei_tail", "plain")
_HELD = tuple(f"d{i}" for i in range(4))  # constants of decoding


def from_codes(kernel: Kernel, problem: Problem, panels: bool = False) -> Kernel:
    """The kernel of the problem with a source of the kernel's own type, told narrow codes instead.

    `panels`: its weights are narrow, too, and the kernel takes floats of its own type.
    """
    stage = _Widening(kernel, problem, panels)
    code = stage.code()
    program = kernel.program
    made = verify(replace(program, tensors=tuple(stage.tensors()), body=(*code, *program.body)))

    def prepare(src: Array, weights: Array, p: Parameters) -> dict[str, Array]:
        return stage.inputs(src, weights, p)

    names = tuple(f"stored_{name}" for name in _PANELS) if panels else kernel.weights
    return replace(kernel, program=made, prepare=prepare, weights=names, blocked=None)


def codes_of(values: Array, dtype: str) -> Array:
    """The codes of a narrow float's values, infinity and NaN among them; other floats in their type."""
    if not is_narrow(dtype):
        return values.astype(fmt(dtype).dtype)
    return encode(values.astype(np.float32), dtype, overflow="ieee")


class _Widening:
    def __init__(self, kernel: Kernel, problem: Problem, panels: bool) -> None:
        self.kernel, self.problem = kernel, problem
        self.unit: Unit = unit_of(kernel.program.isa)
        self.words = Constants(self.unit, "widening panels" if panels else "widening")  # a kernel may have both stages
        tensor = kernel.program.tensor
        given = [tensor[name] for name in _PANELS if name in tensor and tensor[name].kind == "input"]
        self.panels = given if panels else []
        self.source = tensor["src"] if tensor["src"].dtype != problem.src else None
        narrow = problem.narrow if isinstance(problem, MatmulProblem) else None
        self.scale = narrow.src if narrow else None

    def tensors(self) -> list[Tensor]:
        made = [*self.panels, *([self.source] if self.source else [])]
        found = [replace(t, kind="scratch") if t in made else t for t in self.kernel.program.tensors]
        stored = "u8" if is_narrow(self.problem.wei) else self.problem.wei
        found += [Tensor(f"stored_{t.name}", stored, t.size, role=WEIGHTS) for t in self.panels]
        found += [Tensor("codes", "u8", self.source.size, role=SOURCE)] if self.source else []
        if self.scale and isinstance(p := self.problem, MatmulProblem):
            found.append(Tensor("source_scales", "f32", p.m * p.k // self.scale.length(p.k), role=SCALES))
        return [*found, *self.words.tensors()]

    def code(self) -> Code:
        p, code = self.problem, Code()
        for t in self.panels:
            code += self.flat(t, f"stored_{t.name}", p.wei)
        if self.source is None:
            return code
        if isinstance(p, MatmulProblem):
            return code + self.widen(self.source, p)
        return code + self.flat(self.source, "codes", p.src)

    def flat(self, to: Tensor, codes: str, dtype: str) -> Code:
        """All of a tensor, whatever its elements mean."""
        lanes, decoding = self.unit.lanes, Decoding(self.words, dtype) if is_narrow(dtype) else None
        turns, rest = divmod(to.size, lanes)
        setup, run = decoding.setup(_HELD, "t") if decoding else [], in_runs(turns)

        def vector(at: Affine, live: int) -> Code:
            if decoding is None:
                return [*load(self.words, "x", codes, dtype, at, live), *self.store(to, at, live)]
            return [*decoding.load_at("x", codes, at, live, "t", _HELD), *self.store(to, at, live)]

        turn = Affine.var("v") * run + Affine.var("turn")
        code = loop("v", turns // run, [*setup, *loop("turn", run, vector(turn * lanes, lanes))], parallel=True)
        last = [*setup, *vector(Affine(turns * lanes), rest)]
        return code + (loop("last", 1, last, parallel=True) if rest else [])

    def widen(self, source: Tensor, p: MatmulProblem) -> Code:
        """The source of a matmul, group by group of a row."""
        unit, lanes = self.unit, self.unit.lanes
        group = self.scale.length(p.k) if self.scale else p.k
        x, factor = unit.reg("x", "f32"), unit.reg("f", "f32")
        decoding = Decoding(self.words, p.src)

        def step(at: Affine, live: int) -> Code:
            times: Code = [op("vmulps", x, x, factor)] if self.scale else []
            return [*decoding.load_at("x", "codes", at, live, "t", _HELD), *times, *self.store(source, at, live)]

        groups = p.k // group
        number = Affine.var("r") * groups + Affine.var("g")
        body: Code = [broadcast32(factor, "source_scales", number)] if self.scale else []
        body += along(group, lanes, step, number * group)
        return loop("r", p.m, [*decoding.setup(_HELD, "t"), *loop("g", groups, body)], parallel=True)

    def store(self, to: Tensor, at: Affine, lanes: int) -> Code:
        """x rounded to a tensor's type, in it."""
        x = self.unit.reg("x", "f32")
        if to.dtype == "f32":
            return [store32(self.unit, to.name, at, x, lanes)]
        if to.dtype == "f16" and (self.unit.masks or lanes == self.unit.lanes):
            return [op("vcvtps2ph", Memory(to.name, at, "f16", lanes), x, imm=0)]
        half = Register("half", to.dtype, self.unit.lanes)
        words = half.as_("u16")
        if to.dtype == "f16":
            moves = [op("vpextrw", Memory(to.name, at + i, "u16", 1), words, imm=i) for i in range(lanes)]
            return [op("vcvtps2ph", half, x, imm=0), *moves]
        return [op("vcvtneps2bf16", half, x), op("vmovdqu16", Memory(to.name, at, "u16", lanes), words)]

    # -- arrays -----------------------------------------------------------------------------------------------------
    def inputs(self, src: Array, weights: Array, p: Parameters) -> dict[str, Array]:
        """The kernel's own inputs, with codes in place of what the stage makes."""
        problem, own = self.problem, fmt(self.kernel.program.tensor["src"].dtype).dtype
        with np.errstate(all="ignore"):
            floats = weights.astype(np.float32).astype(own) if self.panels else weights
        made: Mapping[str, Array] = self.kernel.prepare(src.astype(own) if self.source else src, floats, p)
        inputs = dict(made)
        for t in self.panels:
            inputs[f"stored_{t.name}"] = codes_of(inputs.pop(t.name), problem.wei)
        if self.source:
            laid_out = inputs.pop("src")  # of a matmul as it is
            flat = isinstance(problem, MatmulProblem)
            inputs["codes"] = src.view(np.uint8).reshape(-1) if flat else codes_of(laid_out, problem.src)
        if self.scale and isinstance(problem, MatmulProblem):
            scales = np.asarray(p.src_group_scale, np.float32)
            inputs["source_scales"] = np.broadcast_to(scales, (problem.m, scales.shape[1])).reshape(-1)
        return {name: np.ascontiguousarray(array) for name, array in inputs.items()}
