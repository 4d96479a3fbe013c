"""simdnn.quantize_dynamic: a floating source as s8 or u8 with scales found on the fly; values and cost."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from os import PathLike
from typing import TYPE_CHECKING, Any

import numpy as np

from isa_models import GpuMachine, InvalidArgument, Machine, Unimplemented
from isa_models.keywords import typed_parts
from isa_models.readings.arrays import Array
from isa_models.records.alike import Alike
from isa_models.records.display import shape_and_type
from simdnn.kernels.common.dynamic import Dynamic
from simdnn.kernels.x86.code import unit_of
from simdnn.kernels.x86.dynamic import outputs_of, quantization
from simdnn.primitives import arrays
from simdnn.primitives.attr import Attr
from simdnn.primitives.checks import flag, integer, keywords, one_of, vector_cap
from simdnn.primitives.costs import warm_cost
from simdnn.primitives.result import Priced
from simdnn.primitives.run import Target
from simdnn.program.records import Program

if TYPE_CHECKING:
    from simdnn.timing.estimate import Cost


@typed_parts("simdnn.quantize_dynamic")
@dataclass(frozen=True, eq=False)
class Quantized(Alike, Priced):
    """The outcome of `quantize_dynamic`: real value = (output - zero point) * scale, G = K / group along K.

    `output` (M, K) s8 or u8; `scales` (M, G) f32; `zero_points` (M, G) s32, None where symmetric; `reductions` (M, K/R)
    s32, the sums of `output` over R k each, None unless asked for. `attr` puts all but the first into a `simdnn.Attr`.
    """

    output: Array
    scales: Array
    zero_points: Array | None
    reductions: Array | None
    problem: Dynamic
    machine: Machine | GpuMachine
    isa: str  # the ISA cap, or the GPU platform, whose instructions are used
    threads: int
    program: Program

    @functools.cached_property
    def cost(self) -> Cost:
        """The clock's full answer; raises `UnknownTiming`."""
        return _cost(self.program, self.machine, self.threads)

    def attr(self, **fields: Any) -> Attr:
        """The attribute of a product of this source: `simdnn.Attr(**fields)` with its scales, zero points and, where
        there are zero points of the weights, which they serve, reductions.

        >>> import numpy as np, simdnn
        >>> q = simdnn.quantize_dynamic(np.ones((2, 64), np.float32), reductions=True, machine="b580")
        >>> attr = q.attr(zero_points={"wei": 3}, scales={"wei": 0.5})
        >>> simdnn.matmul(q.output, np.full((64, 1), 5, np.int8), machine="b580", attr=attr).output.tolist()
        [[64.0], [64.0]]
        """
        found = {"scales": self.scales, "zero_points": self.zero_points}
        found |= {"precomputed_reductions": self.reductions} if "wei" in fields.get("zero_points", {}) else {}
        for name, values in found.items():
            if values is not None:
                fields[name] = {**fields.get(name, {}), "src": values}
        return Attr(**fields)

    def _summary(self) -> dict[str, Any]:
        p = self.problem
        held = {"zero_points": self.zero_points, "reductions": self.reductions}
        parts = {name: "none" if array is None else shape_and_type(array) for name, array in held.items()}
        given = {"source": f"{p.src} {p.m}x{p.k}", "output": shape_and_type(self.output)}
        where = {"machine": self.machine.name, "isa": self.isa, "threads": self.threads}
        return given | {"scales": shape_and_type(self.scales)} | parts | where | self._cost_summary()

    def __repr__(self) -> str:
        p = self.problem
        return f"Quantized({p.src} to {p.dst} {p.m}x{p.k}, {p.parts} scales a row on {self.machine.name})"


@keywords
def quantize_dynamic(
    src: Array,
    dtype: str = "s8",
    *,
    group: int | None = None,
    symmetric: bool = True,
    reductions: bool | int = False,
    machine: str | PathLike[str] | Machine | GpuMachine,
    isa: str | None = None,
    threads: int = 1,
    engine: str = "auto",
) -> Quantized:
    """Quantize `src` (M, K) of f32, f16 or bf16 to s8 or u8, with a scale for each row and each `group` along K.

    `group` divides K; None is all of K, a scale a token. The formulas, in f32 with each step rounded to nearest even
    (`rint` to an integer, ties to even), x being the values of one group:

    symmetric    scale = max(max |x|, L * 2**-126) / L with L = 127 for s8, 255 for u8, whose x must not be negative;
                 output = rint(x * (1 / scale)): the reciprocal is multiplied with, no value is divided.
    asymmetric   low = min(x, 0), high = max(x, 0), scale = max(high - low, 255 * 2**-126) / 255;
                 n = rint(low * (1 / scale)); zero point = D - n with D = -128 (s8) or 0 (u8);
                 output = rint(min(x * (1 / scale), n + 255)) + zero point.

    So zero is always exact, a group of zeros has the scale 2**-126, and a constant group has one end of its range at
    zero. `reductions` also sums the outputs (s32), for `Attr(precomputed_reductions={"src": …})`: True by group, an
    integer over that number of k, which divides a group (zero points of weights may change more often than its scale).

    Raises `InvalidArgument` for NaN and infinity, a range beyond f32, negative values where symmetric u8 is asked for,
    empty sources and groups that do not divide K; `Unimplemented` below AVX2, on NVIDIA GPUs, and on Intel GPUs for
    groups that are no multiple of 16; `UnknownTiming` when an unknown cost is asked.

    >>> import numpy as np, simdnn
    >>> q = simdnn.quantize_dynamic(np.array([[1, -2, 0.5, 4]], np.float32), group=2, machine="zen4")
    >>> q.output.tolist(), (q.scales * 127).tolist()
    ([[64, -127, 16, 127]], [[2.0, 4.0]])
    """
    problem = _problem(src, dtype, group, symmetric, reductions)
    target = Target.of(machine, isa, threads, engine, "fastest")
    made = _on_gpu(problem, target.gpu) if target.gpu else _on_cpu(problem, target)
    arrays.check_memory({"src": ((problem.m, problem.k), "f32")})
    values = arrays.native(src)
    _check_values(values.astype(np.float32), problem)
    from simdnn import numerics  # brings LLVM, which a cost alone doesn't need

    found = made.finish(numerics.run(made.program, made.prepare(values), engine=engine, threads=threads))
    points, sums = found.get("zero_points"), found.get("reductions")
    machine, program = made.machine, made.program
    return Quantized(found["dst"], found["scales"], points, sums, problem, machine, made.isa, threads, program)


@dataclass(frozen=True)
class _Made:
    """A program for a machine, with what brings arrays into it and out of it."""

    machine: Machine | GpuMachine
    isa: str
    program: Program
    prepare: Callable[[Array], dict[str, Array]]
    finish: Callable[[Mapping[str, Array]], dict[str, Array]]


def _on_cpu(problem: Dynamic, target: Target) -> _Made:
    cap = vector_cap(target.caps)
    if not cap:
        raise Unimplemented(f"quantize_dynamic on {target.machine.name} up to {max(target.caps)}: needs avx2")
    program = quantization(problem, unit_of(cap))
    return _Made(target.machine, cap, program, lambda src: {"src": src}, lambda out: outputs_of(problem, out))


def _on_gpu(problem: Dynamic, machine: GpuMachine) -> _Made:
    if machine.nvidia:
        raise Unimplemented(
            f"quantize_dynamic on {machine.name!r}: no kernel here for NVIDIA GPUs; Intel GPUs and CPUs work"
        )
    from simdnn.kernels.intel_gpu.dynamic import GpuQuantization  # which CPUs do not need

    quantization = GpuQuantization(problem, machine)
    return _Made(machine, machine.platform.name, quantization.program, quantization.prepare, quantization.finish)


def _problem(src: Array, dtype: str, group: int | None, symmetric: bool, reductions: bool | int) -> Dynamic:
    """The arguments checked."""
    source = arrays.type_of("src", src)
    if source not in arrays.FLOATS:
        raise InvalidArgument(f"src of {source}; floats are quantized: {', '.join(arrays.FLOATS)}")
    arrays.check_shape("src", src, ("M", "K"))
    one_of("dtype", dtype, ("s8", "u8"))
    flag("symmetric", symmetric)
    m, k = src.shape
    length = k if group is None else integer("group", group)
    if k % length:
        nearest = max(n for n in range(1, min(length, k) + 1) if k % n == 0)
        raise InvalidArgument(f"group={length} does not divide K={k}; {nearest} does, and None is all of K")
    every = {True: length, False: 0}
    summed = every[reductions] if isinstance(reductions, bool) else integer("reductions", reductions)
    if summed and length % summed:
        raise InvalidArgument(f"reductions={summed} does not divide a group of {length}; True sums by group")
    return Dynamic(m, k, length, source, dtype, symmetric, summed)


def _check_values(values: Array, p: Dynamic) -> None:
    """`InvalidArgument` for values that the formulas do not cover."""
    bad = np.argwhere(~np.isfinite(values))
    if len(bad):
        i, j = (int(n) for n in bad[0])
        raise InvalidArgument(f"src[{i}, {j}] is {values[i, j]}; finite values are needed to find a scale")
    if p.symmetric and p.dst == "u8" and values.min() < 0:
        i, j = (int(n) for n in np.argwhere(values < 0)[0])
        raise InvalidArgument(
            f"src[{i}, {j}] is {values[i, j]}, and symmetric u8 has no negative values; dtype='s8' or symmetric=False"
        )
    groups = values.reshape(p.m, p.parts, p.group)
    with np.errstate(over="ignore"):
        span = np.maximum(groups.max(axis=2), 0) - np.minimum(groups.min(axis=2), 0)
    if not p.symmetric and not np.isfinite(span).all():
        raise InvalidArgument("src has a group whose greatest less least value is beyond f32; symmetric=True takes it")


_cost = functools.lru_cache(maxsize=512)(warm_cost)
