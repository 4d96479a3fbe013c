"""Sums of integers that a library scales by one factor, to floats or to 8 bits: what that makes of an epilogue."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from isa_models import Unimplemented
from isa_models.readings.arrays import Array
from simdnn.kernels.common.epilogue import Epilogue, Parameters
from simdnn.kernels.common.params import Param

_COMMON = Param("wei", 0, 0, "f32")


def with_one_factor(
    epilogue: Epilogue, parameters: Parameters, bias: Array | bool | None, title: str, fused: bool = False
) -> tuple[Epilogue, Parameters]:
    """Source scale x weights scale / destination scale, in this order, as the weights' scale; a bias of s32 is in the
    sums, one of floats is added with one rounding where `fused`; to 8 bits zero points are added to rounded integers.

    Raises `Unimplemented` for a bias of other types to 8 bits.
    """
    narrow = epilogue.dst in ("s8", "u8")
    stored = bias.dtype if isinstance(bias, np.ndarray) else np.dtype(np.int32) if narrow else None
    if narrow and epilogue.bias and stored != np.int32:
        raise Unimplemented(
            f"{title} has no bias of {stored} to {epilogue.dst}: one of s32 works, the integers of bias / (source "
            "scale * weights scale), and so does dispatch='fastest'"
        )
    if epilogue.src_scale or epilogue.dst_scale:
        wei = np.float32(1) if parameters.wei_scale is None else np.asarray(parameters.wei_scale, np.float32)
        factor = np.float32(parameters.src_scale) * wei / np.float32(parameters.dst_scale)
        epilogue = replace(epilogue, src_scale=False, wei_scale=epilogue.wei_scale or _COMMON, dst_scale=False)
        parameters = replace(parameters, src_scale=1.0, wei_scale=np.atleast_1d(factor), dst_scale=1.0)
    in_sums = epilogue.bias and stored == np.int32
    if in_sums and isinstance(bias, np.ndarray):
        parameters = replace(parameters, bias=bias)
    fused = fused and epilogue.bias and not in_sums
    return replace(epilogue, bias_in_sums=in_sums, bias_fused=fused, rounds_first=narrow), parameters
