"""Scales and zero points in normal form, as tests ask problems for them."""

from __future__ import annotations

from simdnn.kernels.common.params import Param

#: scales of weights: one for all, and one for each output channel
COMMON = Param("wei", 0, 0, "f32")
BY_CHANNEL = Param("wei", 0, 1, "f32")


def along_k(argument: str, group: int, dtype: str = "f32") -> Param:
    """A value for every `group` k of each row of a source, of each column of weights."""
    return Param(argument, *((1, group) if argument == "src" else (group, 1)), dtype)
