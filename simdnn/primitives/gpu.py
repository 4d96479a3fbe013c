"""Matmul on GPUs: what is asked checked, the kernel built for the machine, its values and its cost."""

from __future__ import annotations

import functools
from dataclasses import replace
from os import PathLike
from typing import Any

import numpy as np

from isa_models import GpuMachine, InvalidArgument, Unimplemented, gpu_machine_names
from isa_models import machine as any_machine
from isa_models.formats import fmt
from isa_models.readings.arrays import Array
from simdnn.kernels.common.batch import as_batched
from simdnn.kernels.common.spec import Epilogue, Kernel, Parameters
from simdnn.kernels.intel_gpu.compute import GpuComputeGemm
from simdnn.kernels.intel_gpu.gemm import GpuGemm, GpuMatmulProblem
from simdnn.kernels.intel_gpu.groups import GpuGroupedGemm
from simdnn.kernels.intel_gpu.upconvert import LARGEST, STEP, GpuUpconvertGemm, unfillable
from simdnn.kernels.intel_gpu.zero import EXACT, GpuZeroGemm
from simdnn.primitives import arrays, sm
from simdnn.primitives.attr import STRATEGIES, Attr
from simdnn.primitives.checks import one_of
from simdnn.primitives.gpu_types import cheapest, check_zero_points, conversion_of, problems_of, types_of
from simdnn.primitives.groups import group_scales, with_groups
from simdnn.primitives.postops import with_operands
from simdnn.primitives.problems import WEI_TAGS
from simdnn.primitives.products import Products, products_of
from simdnn.primitives.resolve import need_values, resolve
from simdnn.primitives.result import Estimate, Result
from simdnn.primitives.run import departures, values
from simdnn.primitives.verbose_line import note
from simdnn.primitives.written import written
from simdnn.primitives.zero_points import MISSING, check_reductions, with_tables, without_zero_points, zero_points

DISPATCH = ("fastest",)


def gpu_of(machine: object) -> GpuMachine | None:
    """The GPU of a name, path or machine; None for what is none."""
    if isinstance(machine, GpuMachine):
        return machine
    named = isinstance(machine, str) and machine in gpu_machine_names()
    if named or isinstance(machine, (str, PathLike)) and str(machine).endswith(".toml"):
        found = any_machine(machine)  # type: ignore[arg-type]  # a path-like of text
        return found if isinstance(found, GpuMachine) else None
    return None


def matmul(
    machine: GpuMachine,
    src: Array,
    weights: Any,
    bias: Any,
    attr: Attr,
    dst: str | None,
    engine: str,
    given: Given,
    into: Any = None,
) -> Result:
    """`simdnn.matmul` on a GPU."""
    given.check(machine)
    need_values(attr)
    types = arrays.type_of("src", src), arrays.type_of("weights", weights)
    asked = products_of(src, weights)
    bias = arrays.bias_of(bias)
    if asked.batch.count == 1:
        src, weights = src.reshape(asked.m, asked.k), weights.reshape(asked.k, asked.n)
    if machine.nvidia:
        if into is not None:
            raise Unimplemented(f"into on {machine.name!r}: no kernel there has the post-operation 'sum'")
        problem, parameters = sm.matmul_of(machine, asked, types, attr, dst, bias, given.tag)
        return sm.run(machine, problem, src, weights, parameters, engine, attr, asked.shape)
    problem, parameters = _problem(machine, asked, types, attr, dst, bias, given.tag)
    parameters = with_operands(parameters, attr.post_ops, problem, into, asked.shape)
    arrays.check_memory(asked.tensors("f32", "f32", "s32"))
    check_reductions(attr, src)
    from simdnn.explanations.element import Explainer

    kernel = as_batched(built(problem, machine), problem.batch, problem.epilogue.post_ops, asked.shape)
    operands = arrays.native(src).copy(), arrays.native(weights).copy()
    output = values(kernel, *operands, parameters, engine)
    rebuild = functools.partial(_rebuilt, problem, machine, asked.shape)
    departed = departures(kernel, problem, *operands, parameters, output.shape, rebuild, engine)
    explainer = Explainer(kernel, *operands, parameters, machine)
    result = Result(**_cost_part(problem, machine, attr), output=output, departed=departed, explainer=explainer)
    note(result, lambda: written(attr, problem))
    return result


def _rebuilt(problem: GpuMatmulProblem, machine: GpuMachine, shape: tuple[int, ...], epilogue: Epilogue) -> Kernel:
    """The kernel of a problem, whose output has `shape`, with another epilogue."""
    other = replace(problem, epilogue=epilogue)
    return as_batched(built(other, machine), other.batch, epilogue.post_ops, shape)


def estimate(
    machine: GpuMachine, asked: Products, types: tuple[str, str, str], attr: Attr, bias: bool, given: Given
) -> Estimate:
    """`simdnn.estimate` of a matmul on a GPU."""
    given.check(machine)
    src, wei, dst = types
    arrays.check_sizes(asked.tensors(*types))
    if machine.nvidia:
        return sm.estimate(machine, sm.matmul_of(machine, asked, (src, wei), attr, dst, bias, given.tag)[0], attr)
    problem, _ = _problem(machine, asked, (src, wei), attr, dst, bias, given.tag)
    return Estimate(**_cost_part(problem, machine, attr))


class Given:
    """Keyword arguments that mean something on CPUs alone, as the caller gave them."""

    def __init__(
        self,
        isa: object = None,
        threads: object = 1,
        dispatch: object = "fastest",
        tag: Any = "any",
        known: tuple[str, ...] = WEI_TAGS,
    ) -> None:
        self.isa, self.threads, self.dispatch, self.tag, self.known = isa, threads, dispatch, tag, known

    def check(self, machine: GpuMachine) -> None:
        """`InvalidArgument` or `Unimplemented` for what a GPU does not have."""
        name = machine.name
        if self.isa not in (None, machine.platform.name):
            raise InvalidArgument(
                f"isa={self.isa!r}; machine {name!r} is a GPU of platform {machine.platform.name}: leave isa out"
            )
        if self.threads != 1 or isinstance(self.threads, bool):
            raise InvalidArgument(f"threads={self.threads!r}; on {name!r} all cores work: leave it at 1")
        if self.dispatch != "fastest":
            one_of("dispatch", self.dispatch, (*DISPATCH, "onednn"))
            raise Unimplemented(
                f"dispatch={self.dispatch!r} on a GPU: what oneDNN picks there is not modelled; what works: 'fastest'"
            )
        tags = ("any",) if self.known != WEI_TAGS else ("any", "ab") if machine.nvidia else WEI_TAGS
        if one_of("wei_tag", self.tag, self.known) not in tags:
            raise Unimplemented(f"wei_tag={self.tag!r} on {name!r}; what works: {', '.join(map(repr, tags))}")


def _problem(
    machine: GpuMachine, asked: Products, types: tuple[str, str], attr: Attr, dst: str | None, bias: Any, tag: str
) -> tuple[GpuMatmulProblem, Parameters]:
    """What the kernel is asked, its types checked against the platform."""
    shape = asked.of_types(*types)
    candidates = types_of(machine, shape, attr)
    if attr.precomputed_reductions and asked.batch.count > 1:
        raise Unimplemented("precomputed_reductions of a batch: what works: a product with one matrix of weights")
    zeros = zero_points(attr, shape, every=True)
    groups = group_scales(attr, shape, exact=True)
    epilogue, parameters = resolve(without_zero_points(attr) if zeros else attr, shape, dst, bias)
    epilogue, parameters = with_groups(epilogue, parameters, attr, shape, groups)
    problems = problems_of(asked, shape, attr, candidates, epilogue, wei_tag=tag, group_scales=groups)
    problem = cheapest(problems, cost, machine)
    check_zero_points(machine, problem.decompression, parameters)
    if zeros:
        parameters = with_tables(parameters, attr, shape, zeros)
        problem = with_strategy(machine, replace(problem, zero_points=zeros), attr, parameters)
    return problem, parameters


def with_strategy(
    machine: GpuMachine, problem: GpuMatmulProblem, attr: Attr, parameters: Parameters
) -> GpuMatmulProblem:
    """The problem with the strategy asked for, or with the cheapest that is allowed; refusals say why."""
    zeros = problem.zero_points
    assert zeros is not None
    reasons = {name: _refused(name, problem, parameters, machine) for name in STRATEGIES[1:]}
    asked = attr.zero_point_strategy
    if asked != "auto":
        if reasons[asked]:
            raise Unimplemented(f"zero_point_strategy={asked!r}: {reasons[asked]}")
        model = attr.float_model if asked == "upconvert" else ""
        return replace(problem, zero_points=replace(zeros, strategy=asked), float_model=model)
    # the matrix of "bias" is work of somebody else's, and "upconvert" has other bits
    allowed = [name for name, reason in reasons.items() if not reason and name not in ("bias", "upconvert")]
    choices = [replace(problem, zero_points=replace(zeros, strategy=name)) for name in allowed]
    return min(choices, key=lambda choice: float(cost(choice, machine, False).cycles))


def _refused(strategy: str, problem: GpuMatmulProblem, parameters: Parameters, machine: GpuMachine) -> str:
    """Why a strategy cannot be had; empty where it can."""
    zeros, points = problem.zero_points, parameters.wei_zero_points
    assert zeros is not None
    if strategy == "upconvert":
        return _not_upconverted(problem, parameters, machine)
    if strategy == "precomputed" and zeros.wei and not zeros.reductions:
        return MISSING
    if strategy in ("in_kernel", "precomputed") and points is not None and np.abs(points).max() >= 1 << 15:
        return "multiplies zero points of 16 bits; what works: bias"
    if strategy == "direct" and zeros.wei:
        form = fmt(problem.wei)
        if points is not None and not form.low <= points.min() <= points.max() <= form.high:
            return f"takes zero points within {problem.wei}, {form.low} to {form.high}; what works: in_kernel, bias"
    return ""


def _not_upconverted(problem: GpuMatmulProblem, parameters: Parameters, machine: GpuMachine) -> str:
    """Why both operands cannot be converted to f16; empty where they can."""
    works = "; what works: " + ", ".join(EXACT)
    for table in (parameters.wei_zero_points, parameters.src_zero_points):
        if table is not None and np.abs(table.astype(np.int64)).max() > LARGEST:
            return f"has differences up to 2048 in f16: zero points up to {LARGEST}{works}"
    if unfillable(problem, parameters):
        return f"fills groups up to {STEP} with zero points, which neither side's type holds{works}"
    return ""


@functools.lru_cache(maxsize=256)
def built(problem: GpuMatmulProblem, machine: GpuMachine) -> Kernel:
    """The kernel for a problem on a machine."""
    if problem.compute:
        return GpuComputeGemm(problem, machine).kernel()
    if problem.zero_points:
        upconverted = problem.zero_points.strategy == "upconvert"
        return (GpuUpconvertGemm if upconverted else GpuZeroGemm)(problem, machine).kernel()
    return (GpuGroupedGemm if problem.group_scales else GpuGemm)(problem, machine).kernel()


@functools.lru_cache(maxsize=1024)
def cost(problem: GpuMatmulProblem, machine: GpuMachine, cold: bool) -> Any:
    """What it costs; `cold`: the weights come from memory, and so does all else."""
    from simdnn.timing.gpu.estimate import estimate_gpu

    kernel = built(problem, machine)
    return estimate_gpu(kernel.timed or kernel.program, machine, cold=cold)


def _cost_part(problem: GpuMatmulProblem, machine: GpuMachine, attr: Attr) -> dict[str, Any]:
    kernel = built(problem, machine)
    part = sm.cost_part(problem, machine, kernel, cost, sm.math_mode(problem.src, attr))
    return part | {"find_conversion": functools.partial(conversion_of, problem, machine, kernel.program)}
