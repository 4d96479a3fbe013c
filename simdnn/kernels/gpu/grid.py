"""How independent pieces are spread over a GPU's workgroups and their threads, whose lanes share a vector."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import prod

import numpy as np

from isa_models import GpuMachine
from isa_models.readings.arrays import Array
from simdnn.kernels.common.code import Code, loop
from simdnn.program.records import Affine, Program

LANES = 32  # of a vector: SIMD32, or a warp


@dataclass(frozen=True)
class Grid:
    """`extents` pieces along each axis; `threads` of a workgroup along each. Axes are filled up to whole workgroups."""

    extents: tuple[int, ...]
    threads: tuple[int, ...]

    @property
    def groups(self) -> tuple[int, ...]:
        return tuple(-(-n // t) for n, t in zip(self.extents, self.threads, strict=True))

    @property
    def full(self) -> tuple[int, ...]:
        """Pieces along each axis, those beyond the end among them."""
        return tuple(n * t for n, t in zip(self.groups, self.threads, strict=True))

    def index(self, axis: int) -> Affine:
        """A thread's piece along an axis."""
        group = Affine.var(f"group_{axis}") if self.groups[axis] > 1 or axis == 0 else Affine()
        thread = Affine.var(f"thread_{axis}") if self.threads[axis] > 1 else Affine()
        return group * self.threads[axis] + thread

    def nest(self, body: Code) -> Code:
        """`body` for every piece."""
        for kind, extents in (("thread", self.threads), ("group", self.groups)):
            for axis, extent in reversed(list(enumerate(extents))):
                if extent > 1 or (kind, axis) == ("group", 0):
                    body = loop(f"{kind}_{axis}", extent, body, parallel=True)
        return body


def spread(extents: tuple[int, ...], machine: GpuMachine) -> Grid:
    """Workgroups as large as leave one for each core, their threads along the innermost axes."""
    cores = machine.xe_cores * machine.stacks
    left = max(1, min(machine.engines_per_core * machine.threads, -(-prod(extents) // cores)))
    threads = []
    for extent in reversed(extents):
        threads.append(min(extent, left))
        left = max(1, left // threads[-1])
    return Grid(extents, tuple(reversed(threads)))


def lanes_for(line: int) -> int:
    """Lanes of a vector along a line: all, or the power of two that holds a short one.

    >>> lanes_for(49), lanes_for(3)
    (32, 4)
    """
    return min(LANES, 1 << (line - 1).bit_length()) if line > 0 else 1


@dataclass(frozen=True)
class Spread:
    """A program, and what it takes for what the problem is given; `finish` gives the flat destination."""

    program: Program
    prepare: Callable[[Mapping[str, Array]], dict[str, Array]]
    finish: Callable[[Mapping[str, Array]], Array]


def filled(array: Array, shape: tuple[int, ...], value: float = 0) -> Array:
    """An array filled up at the end of its axes, flat."""
    return np.pad(
        array, [(0, n - m) for m, n in zip(array.shape, shape, strict=True)], constant_values=array.dtype.type(value)
    ).reshape(-1)


def steps_of(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Element strides of a contiguous array."""
    return tuple(prod(shape[i + 1 :]) for i in range(len(shape)))
