"""The windows of a convolution of images, or of volumes, as columns of a matrix."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

import numpy as np

from isa_models.readings.arrays import Array


def window_count(size: int, taps: int, stride: int = 1, dilation: int = 1, padding: int = 0) -> int:
    """Windows along a dimension of `size` elements, with `padding` more in front and behind together; below 1: none.

    >>> window_count(5, 3), window_count(5, 3, stride=2, padding=2), window_count(7, 3, dilation=2)
    (3, 3, 3)
    """
    return (size + padding - (taps - 1) * dilation - 1) // stride + 1


@dataclass(frozen=True)
class ImageWindows:
    """Windows of images (mb, ic, *size) by filters (oc, ic / groups, *taps), of two dimensions or three."""

    src: tuple[int, ...]
    weights: tuple[int, ...]
    strides: tuple[int, ...]
    padding: tuple[int, ...]  # in front of each dimension, then behind each: top, left, bottom, right
    dilation: tuple[int, ...]
    groups: int

    @classmethod
    def of(
        cls,
        src: Sequence[int],
        weights: Sequence[int],
        strides: Sequence[int] = (1, 1),
        padding: Sequence[int] = (0, 0, 0, 0),
        dilation: Sequence[int] = (1, 1),
        groups: int = 1,
    ) -> ImageWindows:
        """The windows of shapes, and of arguments as `simdnn.convolution` takes them, one number for each dimension."""
        return cls(tuple(src), tuple(weights), tuple(strides), tuple(padding), tuple(dilation), groups)

    @property
    def out(self) -> tuple[int, ...]:
        """Windows along each dimension."""
        dims = len(self.taps)
        around = [a + b for a, b in zip(self.padding[:dims], self.padding[dims:], strict=True)]
        every = zip(self.src[2:], self.taps, self.strides, self.dilation, around, strict=True)
        return tuple(window_count(*one) for one in every)

    @property
    def pixels(self) -> int:
        return prod(self.out)

    @property
    def channels(self) -> int:
        """Input channels of a group."""
        return self.weights[1]

    @property
    def filters(self) -> int:
        """Output channels of a group."""
        return self.weights[0] // self.groups

    @property
    def taps(self) -> tuple[int, ...]:
        return self.weights[2:]

    @property
    def as_stored(self) -> bool:
        """Whether a window is a stretch of the image as it lies in memory: of all columns of one channel."""
        plain = {*self.strides, *self.dilation} == {1} and not any(self.padding)
        return plain and len(self.taps) == 2 and self.channels == 1 and self.taps[-1] == self.src[-1]

    @property
    def lines(self) -> tuple[int, int, int, int]:
        """The shape of `columns`."""
        return self.src[0], self.groups, self.channels * prod(self.taps), self.pixels

    def columns(self, src: Array, padding: int = 0) -> Array:
        """(mb, groups, K, pixels), K being the channels and taps of a group's window; `padding` surrounds images."""
        dims = len(self.taps)
        around = zip(self.padding[:dims], self.padding[dims:], strict=True)
        padded = np.pad(src, ((0, 0), (0, 0), *around), constant_values=padding)
        found = np.empty((*src.shape[:2], *self.taps, *self.out), src.dtype)
        for tap in np.ndindex(*self.taps):
            steps = zip(tap, self.dilation, self.strides, self.out, strict=True)
            cut = tuple(slice(t * d, t * d + (n - 1) * s + 1, s) for t, d, s, n in steps)
            found[(slice(None), slice(None), *tap)] = padded[(slice(None), slice(None), *cut)]
        return found.reshape(self.lines)
