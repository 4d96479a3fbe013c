"""Scales of a convolution's weights by groups of input channels: as kernels read them, or refused."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from math import prod

import numpy as np

from isa_models import InvalidArgument, Unimplemented
from simdnn.primitives.placed import Valued
from simdnn.primitives.resolve import Resolved


def scale_by_groups(given: Resolved, sizes: Mapping[str, int]) -> Valued | None:
    """The scale of a convolution's weights by groups of input channels, as a table (K / group, OC) whose K runs over
    taps, then channels; None where there is none.
    """
    scale = given.scales.get("wei")
    if scale is None or not scale.param.group:
        return None
    shape, group = given.shape, scale.param.group
    taps = tuple(sizes[name] for name in ("kd", "kh", "kw") if name in sizes)
    channels = shape.k // prod(taps)
    if channels % group:
        raise InvalidArgument(f"scales['wei'] by groups of {group}, which do not divide {channels} input channels")
    if scale.values is None:
        return scale
    wanted = (channels // group, *taps)
    met = scale.values.shape
    axes = met[1:] if met[0] == shape.n else met[2:]  # with groups ahead
    of_lines = (wanted[0], wanted[2]) if taps[:-1] == (1,) else wanted  # one spatial dimension
    if axes not in (wanted, of_lines):
        raise InvalidArgument(f"scales['wei'] of shape {met}; by groups of {group}: {(shape.n, *wanted)}")
    table = scale.values.astype(np.float32).reshape(shape.n, wanted[0], -1).transpose(2, 1, 0).reshape(-1, shape.n)
    return replace(scale, values=np.ascontiguousarray(table))


def refuse_groups(given: Resolved, where: str) -> None:
    """`Unimplemented` for a scale of a convolution's weights by groups of input channels."""
    scale = given.scales.get("wei")
    if given.shape.primitive == "convolution" and scale and scale.param.group:
        raise Unimplemented(
            f"scales['wei'] by groups of {scale.param.group} input channels {where}; what works: a common one, or one "
            f"for each of {given.shape.n} output channels; on GPUs weights of integers and narrow floats beside f32, "
            "bf16 and f16 have groups"
        )
