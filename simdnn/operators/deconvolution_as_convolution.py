"""Transposed convolutions with strides of 1 as convolutions of turned weights, where a library computes them so."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from isa_models import Unimplemented
from isa_models.readings.arrays import Array
from simdnn.networks.types import is_float, label
from simdnn.operators import windows
from simdnn.operators.graph_builder import Ending
from simdnn.operators.table import call_of, shape_of
from simdnn.operators.windows import axes_of, padding_around, spatial_rank
from simdnn.primitives import Attr, Quant
from simdnn.primitives.checks import integer
from simdnn.primitives.convolution import ConvolutionCall, convolution_on
from simdnn.primitives.estimate import estimate_on
from simdnn.primitives.result import Estimate, Result
from simdnn.primitives.run import Target

Data = Mapping[str, Any]


def taken(sources: Data, options: Data, end: Ending, target: Target) -> bool:
    """Whether the library whose bits are asked for takes this one as a convolution.

    Raises `Unimplemented` for a library without transposed convolutions, and for those that are not followed.
    """
    library = target.library
    if library is None:
        return False
    if library.deconvolution is None:
        raise Unimplemented(
            f"{library.title}'s deconvolution is not modelled; what works: dispatch='fastest' or 'onednn'"
        )
    windows.deconvolution(**sources, **options, end=end)  # checks the arguments
    return library.deconvolution(call_of("deconvolution", sources, options, end, target)) == "convolution"


def run(sources: Data, options: Data, end: Ending, target: Target) -> Result:
    """Values and cost."""
    src, weights = sources["src"], sources["weights"]
    shared = _shared(src, weights, options, end)
    spatial = range(2, weights.ndim)
    turned = np.ascontiguousarray(np.flip(weights, tuple(spatial)))
    groups = shared["groups"]
    turned = turned.reshape(groups, -1, *weights.shape[1:]) if groups > 1 else turned
    call = ConvolutionCall(src, turned, sources.get("bias"), **shared, into=end.into, turned=True)
    found = convolution_on(target, call)
    return replace(found, library=_named(src, weights, found.library, target))


def price(sources: Data, options: Data, end: Ending, target: Target) -> Estimate:
    """The cost alone, from sources without values."""
    src, weights = sources["src"], sources["weights"]
    shared = _shared(src, weights, options, end)
    names = [("id", "kd")] * (src.ndim == 5) + [("ih", "kh")] * (src.ndim > 3) + [("iw", "kw")]
    sizes = {
        name: size
        for pair, both in zip(names, zip(src.shape[2:], weights.shape[2:], strict=True), strict=True)
        for name, size in zip(pair, both, strict=True)
    }
    sizes |= {"mb": src.shape[0], "ic": src.shape[1], "oc": weights.shape[0]}
    types = f"{label(src.dtype)}:{label(weights.dtype)}:{shared.pop('dst')}"
    found = estimate_on(target, "convolution", types, "bias" in sources, turned=True, **shared, **sizes)
    return replace(found, library=_named(src, weights, found.library, target))


def _named(src: Array, weights: Array, implementation: str, target: Target) -> str:
    """The library's name; raises `Unimplemented` where it does not leave this one to the convolution."""
    assert target.library
    return target.library.name_deconvolution(label(src.dtype), implementation, weights.shape[1], target.caps)


def _shared(src: Array, weights: Array, options: Data, end: Ending) -> dict[str, Any]:
    """The convolution's arguments: its padding is what the taps reach beyond that of the transposed one."""
    rank = spatial_rank(src)
    gaps, more = (
        axes_of("dilation", options.get("dilation", 1), rank),
        axes_of("output_padding", options.get("output_padding", 0), rank, 0),
    )
    pads = padding_around(options.get("padding", 0), rank)
    reach = [(k - 1) * gap for k, gap in zip(weights.shape[2:], gaps, strict=True)]
    around = [r - p for r, p in zip(reach * 2, pads, strict=True)]
    around = [*around[:rank], *(a + m for a, m in zip(around[rank:], more, strict=True))]
    if min(around) < 0:
        raise Unimplemented(f"padding={options['padding']!r} wider than the kernel; what works: dispatch='fastest'")
    scales = {
        name: Quant(value, "per_oc") if np.ndim(value) else np.float32(value)
        for name, value in (end.scales or {}).items()
    }
    points = {name: np.asarray(value, np.int32) for name, value in (end.zero_points or {}).items() if value is not None}
    usual = label(src.dtype) if is_float(src.dtype) else "f32"
    return {
        "strides": [1] * rank,
        "padding": tuple(around),
        "dilation": gaps,
        "groups": integer("groups", options.get("groups", 1)),
        "dst": usual if end.dst is None else end.dst,
        "attr": Attr(scales=scales, zero_points=points, post_ops=[_whole(op, src.ndim) for op in end.post_ops]),
    }


def _whole(op: Any, rank: int) -> Any:
    """A post-operation whose operand has as many dimensions as it broadcasts to."""
    if isinstance(op, str):
        return op
    return tuple(x.reshape(shape_of(x, rank)) if isinstance(x, np.ndarray) else x for x in op)
