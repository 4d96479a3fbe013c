"""Primitives: a problem checked, a kernel chosen, its values and its cost. The names that other floors use."""

from simdnn.primitives.attr import Attr, Quant
from simdnn.primitives.convolution import convolution
from simdnn.primitives.estimate import estimate
from simdnn.primitives.matmul import matmul
from simdnn.primitives.reorder import Reordered, reorder

__all__ = [
    "Attr",
    "Quant",
    "Reordered",
    "convolution",
    "estimate",
    "matmul",
    "reorder",
]
