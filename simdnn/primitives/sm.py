"""Products on NVIDIA GPUs: what is asked checked, the kernel, its values and its cost."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from isa_models import GpuMachine, Unimplemented
from isa_models.formats import fmt
from isa_models.readings.arrays import Array
from simdnn.kernels.common.batch import as_batched
from simdnn.kernels.common.spec import Epilogue, Kernel, Parameters
from simdnn.kernels.intel_gpu.gemm import GpuMatmulProblem
from simdnn.kernels.nvidia.compute import SmComputeGemm
from simdnn.kernels.nvidia.gemm import SmGemm
from simdnn.primitives import arrays
from simdnn.primitives.attr import Attr
from simdnn.primitives.gpu_types import cheapest, check_zero_points, conversion_of, problems_of, types_of
from simdnn.primitives.mathmode import COLD_WEIGHTS, FPMATH
from simdnn.primitives.products import Products
from simdnn.primitives.resolve import Shape, resolve
from simdnn.primitives.result import Estimate, Result
from simdnn.primitives.run import departures, values
from simdnn.primitives.verbose_line import note
from simdnn.primitives.written import written

_DESTINATIONS = ("f32", "f16")


def matmul_of(
    machine: GpuMachine, asked: Products, types: tuple[str, str], attr: Attr, dst: str | None, bias: Any, tag: str
) -> tuple[GpuMatmulProblem, Parameters]:
    """The problem of a matmul; refusals name the machine and what works."""
    shape = asked.of_types(*types)
    candidates = types_of(machine, shape, attr)
    epilogue, parameters = epilogue_of(machine, shape, attr, dst, bias)
    if shape.compressed and tag != "any":
        raise Unimplemented(f"wei_tag={tag!r} of {shape.wei} weights on {machine.name!r}; what works: 'any'")
    problem = cheapest(problems_of(asked, shape, attr, candidates, epilogue, wei_tag=tag), cost, machine)
    check_zero_points(machine, problem.decompression, parameters)
    return problem, parameters


def epilogue_of(
    machine: GpuMachine, shape: Shape, attr: Attr, dst: str | None, bias: Any
) -> tuple[Epilogue, Parameters]:
    """What follows the sums of a matmul or convolution; refusals name the machine."""
    check_post_ops(machine, attr)
    epilogue, parameters = resolve(attr, shape, dst, bias)
    if any(name != "wei" or not shape.compressed for name in (*attr.scales, *attr.zero_points)):
        raise Unimplemented(
            f"scales or zero points on {machine.name!r}: no kernel here has them but of compressed "
            "weights; bias and relu work"
        )
    if epilogue.dst not in _DESTINATIONS:
        works = ", ".join(_DESTINATIONS)
        raise Unimplemented(f"dst {epilogue.dst!r} on {machine.name!r}: no kernel here stores it; what works: {works}")
    return epilogue, parameters


def check_post_ops(machine: GpuMachine, attr: Attr) -> None:
    """`Unimplemented` for what no GPU kernel does after its sums."""
    if others := [op[0] for op in attr.post_ops if op != "relu"]:
        raise Unimplemented(f"post-operation {others[0]!r} on {machine.name!r}: no kernel here has it; relu works")


def run(
    machine: GpuMachine,
    problem: GpuMatmulProblem,
    src: Array,
    weights: Array,
    parameters: Parameters,
    engine: str,
    attr: Attr,
    shape: tuple[int, ...],
) -> Result:
    """Values and cost of a checked problem whose output has `shape`."""
    kernel = as_batched(built(problem, machine), problem.batch, problem.epilogue.post_ops, shape)
    sizes = {name: tensor.size for name, tensor in kernel.program.tensor.items()}
    arrays.check_memory(
        {
            "src": ((sizes["src"],), problem.src),
            "weights": ((sizes["wei"],), problem.wei),
            "dst": ((sizes["dst"],), "f32"),
        }
    )
    from simdnn.explanations.element import Explainer

    operands = arrays.native(src).copy(), arrays.native(weights).copy()
    output = values(kernel, *operands, parameters, engine)
    rebuild = functools.partial(_rebuilt, problem, machine, shape)
    departed = departures(kernel, problem, *operands, parameters, shape, rebuild, engine)
    explainer = Explainer(kernel, *operands, parameters, machine)
    result = Result(**_cost_part(problem, machine, kernel, attr), output=output, departed=departed, explainer=explainer)
    note(result, lambda: written(attr, problem))
    return result


def _rebuilt(problem: GpuMatmulProblem, machine: GpuMachine, shape: tuple[int, ...], epilogue: Epilogue) -> Kernel:
    """The kernel of a problem, whose output has `shape`, with another epilogue."""
    other = replace(problem, epilogue=epilogue)
    return as_batched(built(other, machine), other.batch, epilogue.post_ops, shape)


def estimate(machine: GpuMachine, problem: GpuMatmulProblem, attr: Attr) -> Estimate:
    """Cost alone."""
    return Estimate(**_cost_part(problem, machine, built(problem, machine), attr))


def _cost_part(problem: GpuMatmulProblem, machine: GpuMachine, kernel: Kernel, attr: Attr) -> dict[str, Any]:
    part = cost_part(problem, machine, kernel, cost, math_mode(problem.src, attr))
    return part | {"find_conversion": functools.partial(conversion_of, problem, machine, kernel.program)}


def math_mode(src: str, attr: Attr) -> str:
    """The mode that a result names: one means something for f32 data alone."""
    return "strict" if fmt(src).bits < 32 else FPMATH.effective(attr.fpmath)


@functools.lru_cache(maxsize=256)
def built(problem: GpuMatmulProblem, machine: GpuMachine) -> Kernel:
    """The kernel for a problem on a machine."""
    return (SmComputeGemm if problem.compute else SmGemm)(problem, machine).kernel()


@functools.lru_cache(maxsize=1024)
def cost(problem: GpuMatmulProblem, machine: GpuMachine, cold: bool) -> Any:
    """What it costs; `cold`: weights and all else come from memory."""
    from simdnn.timing.gpu.estimate import estimate_gpu

    return estimate_gpu(built(problem, machine).program, machine, cold=cold)


def _only(name: str, platform: str, find_cost: Callable[[], Any]) -> Any:
    """The table of candidates where there is one."""
    import pandas as pd

    row = (name, platform, find_cost().cycles, True, "the machine's kernel")
    return pd.DataFrame([row], columns=["implementation", "isa", "cycles", "chosen", "reason"])


def _no_conversion() -> None:
    """Weights are read as the user stores them."""


def cost_part(
    problem: Any, machine: GpuMachine, kernel: Kernel, cost_of: Callable[[Any, GpuMachine, bool], Any], fpmath: str
) -> dict[str, Any]:
    """What an `Estimate` of the only kernel that a GPU has for a problem is made of."""
    cold = COLD_WEIGHTS.effective(None)

    find_cost = functools.partial(cost_of, problem, machine, cold)
    return {
        "problem": problem,
        "machine": machine,
        "isa": machine.platform.name,
        "kernel": kernel,
        "threads": 1,
        "fpmath": fpmath,
        "find_cost": find_cost,
        "find_dispatch": functools.partial(_only, kernel.name, machine.platform.name, find_cost),
        "find_conversion": _no_conversion,
    }
