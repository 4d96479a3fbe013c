"""Convolution on GPUs: what is asked checked, the product of its pixels built for the machine, its values and cost."""

from __future__ import annotations

import functools
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from isa_models import GpuMachine
from isa_models.formats import fmt
from isa_models.readings.arrays import Array
from simdnn.kernels.common.spec import ConvProblem, Decompression, Epilogue, Kernel, Parameters, Placing, ZeroPoints
from simdnn.kernels.gpu import depthwise
from simdnn.kernels.gpu.implicit import as_convolution, product_of, view_copies
from simdnn.kernels.intel_gpu.gemm import GpuMatmulProblem
from simdnn.primitives import arrays, gpu, sm
from simdnn.primitives.attr import Attr
from simdnn.primitives.gpu_types import cheapest, types_of
from simdnn.primitives.problems import Taps, conv_problem, conv_shape
from simdnn.primitives.resolve import Shape, resolve
from simdnn.primitives.result import Estimate, Result
from simdnn.primitives.run import departures, values
from simdnn.primitives.verbose_line import note
from simdnn.primitives.written import written
from simdnn.primitives.zero_points import refuse_strategy, without_zero_points


@dataclass(frozen=True)
class Asked:
    """A checked convolution and the product that does it; None: the depthwise kernel."""

    problem: ConvProblem
    product: GpuMatmulProblem | None


def convolution_of(
    machine: GpuMachine,
    sizes: dict[str, int],
    taps: Taps,
    types: tuple[str, str],
    attr: Attr,
    dst: str | None,
    bias: Any,
) -> tuple[Asked, Parameters]:
    """The problem of a convolution; refusals name the machine and what works."""
    shape, zeros = conv_shape(sizes, taps, *types), None
    candidates = types_of(machine, shape, attr)
    if machine.nvidia:
        epilogue, parameters = sm.epilogue_of(machine, shape, attr, dst, bias)
    else:
        sm.check_post_ops(machine, attr)
        epilogue, parameters = resolve(attr, shape, dst, bias)
    if depthwise.accepts(own := conv_problem(sizes, taps, shape, epilogue)):
        refuse_strategy(attr, "a depthwise convolution", "its kernel subtracts the zero point from each element")
        return Asked(own, None), parameters
    parts, parameters = _compressed(shape, epilogue, parameters)
    if parts:
        epilogue = replace(epilogue, zp_wei=False)
    elif not machine.nvidia:
        zeros, parameters = _zero_points(attr, shape, parameters)
        epilogue, _ = resolve(without_zero_points(attr) if zeros else attr, shape, dst, bias)
    asked = []
    for t in candidates:
        problem = conv_problem(sizes, taps, replace(shape, src=t.src, wei=t.wei), epilogue)
        parts = parts and replace(parts, computes=(t.compute,))
        product = product_of(problem, float_model=t.model, zero_points=zeros, decompression=parts, compute=t.compute)
        if zeros:
            product = gpu.with_strategy(machine, product, _made_ahead(attr, zeros), parameters)
        asked.append(Asked(problem, product))
    return cheapest(asked, cost, machine), parameters


def _compressed(shape: Shape, epilogue: Epilogue, parameters: Parameters) -> tuple[Decompression | None, Parameters]:
    """How integer weights with a floating source become floats: less their common zero point; scales come later."""
    if not shape.compressed:
        return None, parameters
    point = Placing("common", "s32") if epilogue.zp_wei else None
    table = np.full((1, 1), parameters.zp_wei, np.int32)
    return Decompression((), None, point), replace(parameters, wei_zero_points=table if point else None)


def _zero_points(attr: Attr, shape: Shape, parameters: Parameters) -> tuple[ZeroPoints | None, Parameters]:
    """Common zero points as tables of the product: one row or column for all."""
    wei, src = ("wei" in attr.zero_points), ("src" in attr.zero_points)
    if not wei and not src:
        return None, parameters
    tables = np.full((1, 1), parameters.zp_src, np.int32), np.full((1, 1), parameters.zp_wei, np.int32)
    parameters = replace(
        parameters, src_zero_points=tables[0] if src else None, wei_zero_points=tables[1] if wei else None
    )
    return ZeroPoints(shape.k, wei, src), parameters


def _made_ahead(attr: Attr, zeros: ZeroPoints) -> Attr:
    """The source's zero point alone needs sums of the weights, which every strategy has from before the run."""
    alone = not zeros.wei and attr.zero_point_strategy == "auto"
    return replace(attr, zero_point_strategy="precomputed") if alone else attr


def run(
    machine: GpuMachine, asked: Asked, src: Array, weights: Array, parameters: Parameters, engine: str, attr: Attr
) -> Result:
    """Values and cost of a checked problem; weights are oihw."""
    from simdnn.explanations.element import Explainer

    kernel, p = built(asked, machine), asked.problem
    sizes = {name: tensor.size for name, tensor in kernel.program.tensor.items()}
    view = sizes["src"] * (fmt(kernel.program.tensor["src"].dtype).bits // fmt(p.src).bits)
    arrays.check_memory(
        {"source by taps": ((view,), p.src), "weights": ((sizes["wei"],), p.wei), "dst": ((sizes["dst"],), "f32")}
    )
    operands = arrays.native(src).copy(), arrays.native(weights).copy()
    output = values(kernel, *operands, parameters, engine)
    rebuild = functools.partial(_rebuilt, asked, machine)
    departed = departures(kernel, p, *operands, parameters, output.shape, rebuild, engine)
    explainer = Explainer(kernel, *operands, parameters, machine)
    result = Result(**_cost_part(asked, machine, attr), output=output, departed=departed, explainer=explainer)
    note(result, lambda: written(attr, asked.problem))
    return result


def _rebuilt(asked: Asked, machine: GpuMachine, epilogue: Epilogue) -> Kernel:
    """The kernel of a problem with another epilogue."""
    product = asked.product and replace(asked.product, epilogue=epilogue)
    return built(Asked(replace(asked.problem, epilogue=epilogue), product), machine)


def estimate(machine: GpuMachine, asked: Asked, attr: Attr) -> Estimate:
    """Cost alone."""
    return Estimate(**_cost_part(asked, machine, attr))


@functools.lru_cache(maxsize=256)
def built(asked: Asked, machine: GpuMachine) -> Kernel:
    """The kernel for a problem on a machine."""
    if asked.product is None:
        return depthwise.GpuDepthwise(asked.problem, machine).kernel()
    product = (sm if machine.nvidia else gpu).built(asked.product, machine)
    return as_convolution(product, asked.problem)


@functools.lru_cache(maxsize=1024)
def cost(asked: Asked, machine: GpuMachine, cold: bool) -> Any:
    """What it costs; `cold`: weights and all else come from memory."""
    from simdnn.timing.gpu.estimate import estimate_gpu

    program = built(asked, machine).program
    copies = view_copies(asked.problem, program) if asked.product else {}
    return estimate_gpu(program, machine, cold=cold, copies=copies)


def _cost_part(asked: Asked, machine: GpuMachine, attr: Attr) -> dict[str, Any]:
    mode = sm.math_mode(asked.problem.src, attr)
    part = sm.cost_part(asked, machine, built(asked, machine), cost, mode)
    return part | {"problem": asked.problem}
