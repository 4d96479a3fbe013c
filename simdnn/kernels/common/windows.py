"""The windows of a convolution of images as columns of a matrix."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from isa_models.readings.arrays import Array


@dataclass(frozen=True)
class ImageWindows:
    """ImageWindows of images (mb, ic, ih, iw) by filters (oc, ic / groups, kh, kw)."""

    src: tuple[int, ...]
    weights: tuple[int, ...]
    strides: tuple[int, int]
    padding: tuple[int, int, int, int]  # top, left, bottom, right
    dilation: tuple[int, int]
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
        top, left, bottom, right = padding
        steps = (strides[0], strides[1]), (dilation[0], dilation[1])
        return cls(tuple(src), tuple(weights), steps[0], (top, left, bottom, right), steps[1], groups)

    @property
    def oh(self) -> int:
        return self._count(0)

    @property
    def ow(self) -> int:
        return self._count(1)

    def _count(self, axis: int) -> int:
        """ImageWindows along rows, or columns."""
        reach = (self.weights[2 + axis] - 1) * self.dilation[axis] + 1
        length = self.src[2 + axis] + self.padding[axis] + self.padding[axis + 2]
        return (length - reach) // self.strides[axis] + 1

    @property
    def pixels(self) -> int:
        return self.oh * self.ow

    @property
    def channels(self) -> int:
        """Input channels of a group."""
        return self.weights[1]

    @property
    def filters(self) -> int:
        """Output channels of a group."""
        return self.weights[0] // self.groups

    @property
    def taps(self) -> tuple[int, int]:
        return self.weights[2], self.weights[3]

    @property
    def as_stored(self) -> bool:
        """Whether a window is a stretch of the image as it lies in memory: of all columns of one channel."""
        plain = (self.strides, self.dilation, self.padding) == ((1, 1), (1, 1), (0, 0, 0, 0))
        return plain and self.channels == 1 and self.taps[1] == self.src[3]

    @property
    def lines(self) -> tuple[int, int, int, int]:
        """The shape of `columns`."""
        return self.src[0], self.groups, self.channels * self.taps[0] * self.taps[1], self.pixels

    def columns(self, src: Array) -> Array:
        """(mb, groups, K, pixels), K being channels, rows and columns of a group's window; padding is zeros."""
        top, left, bottom, right = self.padding
        padded = np.pad(src, ((0, 0), (0, 0), (top, bottom), (left, right)))
        (dy, dx), (sy, sx), (kh, kw) = self.dilation, self.strides, self.taps
        found = np.empty((*src.shape[:2], kh, kw, self.oh, self.ow), src.dtype)
        for y in range(kh):
            for x in range(kw):
                rows = padded[:, :, y * dy : y * dy + (self.oh - 1) * sy + 1 : sy]
                found[:, :, y, x] = rows[..., x * dx : x * dx + (self.ow - 1) * sx + 1 : sx]
        return found.reshape(self.lines)
