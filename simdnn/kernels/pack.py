"""Weights in the kernel's own layout, and the per-channel vectors that go with it: prepared ahead of time, in NumPy."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from isa_models.arrays import Array
from isa_models.formats import fmt


@dataclass(frozen=True)
class Layout:
    """Panels of `width` output channels (the last one of `tail`), `depth` input channels side by side in each lane."""

    groups: int
    oc: int  # output channels of a group
    width: int
    tail: int  # columns of the narrower last panel, 0 for none (padded to whole vectors)
    depth: int
    icp: int  # input channels of a group, padded

    @property
    def full(self) -> int:
        """Whole panels of a group."""
        return self.oc // self.width if self.tail else -(-self.oc // self.width)

    @property
    def channels(self) -> int:
        """Output channels of a group with the padding of its panels."""
        return self.full * self.width + self.tail


def halved(weights: Array) -> Array:
    """s8 weights times 1/2, rounded to nearest even: what makes an s8 convolution safe for vpmaddubsw."""
    half: Array = np.rint(weights.astype(np.float32) * np.float32(0.5))
    return half.astype(np.int8)


def pack(weights: Array, layout: Layout) -> tuple[Array, Array]:
    """goihw weights as (whole panels, tail panel), flat: group, panel, kh, kw, channel step, column, depth."""
    groups, oc, ic, kh, kw = weights.shape
    wide = np.zeros((groups, layout.channels, layout.icp, kh, kw), weights.dtype)
    wide[:, :oc, :ic] = weights
    whole = layout.full * layout.width

    def arrange(part: Array, width: int) -> Array:
        panels = part.shape[1] // width if width else 0
        shape = (groups, panels, width, layout.icp // layout.depth, layout.depth, kh, kw)
        return np.ascontiguousarray(part.reshape(shape).transpose(0, 1, 5, 6, 3, 2, 4)).reshape(-1)

    return arrange(wide[:, :whole], layout.width), arrange(wide[:, whole:], layout.tail)


def per_channel(values: Array, layout: Layout, dtype: str) -> Array:
    """One value for each output channel (groups x oc), with the padding of panels."""
    padded = np.zeros((layout.groups, layout.channels), fmt(dtype).dtype)
    padded[:, : layout.oc] = values.reshape(layout.groups, layout.oc)
    return padded.reshape(-1)


def wrap32(values: Array) -> Array:
    """Integers modulo 2**32, as s32."""
    return (values.astype(np.int64) & 0xFFFFFFFF).astype(np.uint32).view(np.int32)
