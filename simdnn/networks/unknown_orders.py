"""Kernels that go on where a library that runs models multiplies floats in an order that is not known here."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from isa_models import Unimplemented
from isa_models.readings.arrays import Array
from simdnn.networks.kernels import Kernels
from simdnn.networks.types import is_float
from simdnn.primitives.run import Target


@dataclass
class Elsewhere(Kernels):
    """A library's kernels; where it is not known how it orders sums, the fastest of AVX2, which every machine has."""

    def unclaimed(self, error: Unimplemented) -> None:
        """Called for each product whose order is not known, with what the library's model says."""

    def matmul(self, a: Array, b: Array, bias: Array | None = None, **options: Any) -> Array:
        """A product, by the library's kernels or AVX2's fastest."""
        return self._claimed(partial(super().matmul, a, b, bias, **options), a)

    def convolution(self, src: Array, weights: Array, bias: Array | None = None, **options: Any) -> Array:
        """A convolution, by the library's kernels or AVX2's fastest."""
        return self._claimed(partial(super().convolution, src, weights, bias, **options), src)

    def _claimed(self, product: Callable[[], Array], src: Array) -> Array:
        try:
            return product()
        except Unimplemented as error:
            if not (self.runs_models and is_float(src.dtype)):
                raise
            self.unclaimed(error)
        t = self.target
        self.target = Target.of(t.machine, "avx2", t.threads, t.engine, "fastest")
        try:
            return product()
        finally:
            self.target = t
