"""Weights in the kernel's own layout, and the per-channel vectors that go with it: prepared ahead of time, in NumPy.

`packing` writes the program that does the same on the machine.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import prod

import numpy as np

from isa_models.readings.arrays import Array, on_a_line
from simdnn.program.records import Program


@dataclass(frozen=True)
class Layout:
    """Panels of `width` output channels (the last one of `tail`), `depth` input channels side by side in each lane."""

    groups: int  # of a convolution, or matrices of a batch: each has panels of its own
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
    def widest(self) -> int:
        """Columns of the widest panel."""
        return self.width if self.full else self.tail

    @property
    def channels(self) -> int:
        """Output channels of a group with the padding of its panels."""
        return self.full * self.width + self.tail


#: (operation, whether there are groups) -> letters of the dimensions outside of blocks, output channels, input channels
_LETTERS = {
    ("matmul", False): ("BA", "b", "a"),
    ("matmul", True): ("aCB", "c", "b"),
    ("convolution", False): ("AcdB", "a", "b"),
    ("convolution", True): ("aBdeC", "b", "c"),
}


@dataclass(frozen=True)
class Blocked:
    """Weights (groups, oc, ic, kh, kw) as one kernel's dot products read them: what a reorder makes ahead of time."""

    isa: str  # whose instructions bring them there
    dtype: str
    layout: Layout
    ic: int  # input channels of a group
    kh: int = 1
    kw: int = 1
    split: int = 0  # of a matmul's K: parts of this length, each padded by itself; the last may be shorter
    rounds: str = ""  # f32 data kept as f32, rounded: a kind of rounding.py, "tf32" or "tf32_cut"
    fold: tuple[int, int] = (1, 1)  # rows and columns of taps that are channels, too: column by column, row by row

    @property
    def holds(self) -> str:
        """The type whose values these are: tf32 is kept as f32."""
        return "tf32" if self.rounds else self.dtype

    @property
    def folded(self) -> int:
        """Input channels of a group with those that taps are."""
        return self.ic * prod(self.fold)

    @property
    def rows(self) -> int:
        """Rows of taps that are left as such."""
        return self.kh // self.fold[0]

    @property
    def across(self) -> int:
        """Columns of taps that are left as such."""
        return self.kw // self.fold[1]

    @property
    def taps(self) -> int:
        return self.rows * self.across * self.parts

    @property
    def parts(self) -> int:
        return -(-self.ic // self.split) if self.split else 1

    def of_batch(self, count: int) -> Blocked:
        """`count` matrices in this layout, one behind the other."""
        return replace(self, layout=replace(self.layout, groups=count))

    @property
    def columns(self) -> bool:
        """Whether this is the plain layout in which the columns of a matrix follow one another ("ba")."""
        return self.layout.width == 1

    @property
    def sizes(self) -> dict[str, int]:
        """Elements of each tensor: whole panels, and the narrower last one."""
        one = self.layout.groups * self.taps * self.layout.icp
        found = {"wei": one * self.layout.full * self.layout.width, "wei_tail": one * self.layout.tail}
        return {name: size for name, size in found.items() if size}

    def tag(self, operation: str) -> str:
        """The layout in oneDNN's letters: capitals are cut into blocks, which stand at the end, innermost last.

        Behind a plus sign is the width of the last block of output channels, behind a colon that of K's parts, behind
        an asterisk how many rows x columns of taps are channels.

        >>> one = Blocked("avx512_core_bf16", "bf16", Layout(1, 112, 48, 16, 2, 64), 64)
        >>> one.tag("matmul"), one.of_batch(24).tag("matmul")
        ('BA48b2a+16', 'aCB48c2b+16')
        """
        grouped = self.layout.groups > 1
        if self.columns:
            return "acb" if grouped else "ba"
        outer, oc, ic = _LETTERS[operation, grouped]
        depth = f"{self.layout.depth}{ic}" if self.layout.depth > 1 else ""
        tail = f"+{self.layout.tail}" if self.layout.tail and self.layout.full else ""
        width = self.layout.widest
        split = f":{self.split}" if self.split else ""
        fold = f"*{self.fold[0]}x{self.fold[1]}" if prod(self.fold) > 1 else ""
        return f"{outer}{width}{oc}{depth}{tail}{split}{fold}"


def halved(weights: Array) -> Array:
    """s8 weights times 1/2, rounded to nearest even: what makes an s8 convolution safe for vpmaddubsw."""
    half: Array = np.rint(weights.astype(np.float32) * np.float32(0.5))
    return half.astype(np.int8)


def pack(weights: Array, layout: Layout) -> tuple[Array, Array]:
    """goihw weights as (whole panels, tail panel), flat: group, panel, kh, kw, channel step, column, depth."""
    whole = layout.full * layout.width
    return _panels(weights[:, :whole], layout, layout.width), _panels(weights[:, whole:], layout, layout.tail)


def _panels(weights: Array, layout: Layout, width: int) -> Array:
    """Panels of one width, the last filled up with zeros; one place of a lane after the other, all columns of a run."""
    groups, oc, _, kh, kw = weights.shape
    panels, whole = (-(-oc // width), oc // width) if width else (0, 0)
    sizes = (groups, panels, kh, kw, layout.icp // layout.depth, width, layout.depth)
    packed = on_a_line(prod(sizes), weights.dtype).reshape(sizes)
    for place in range(layout.depth):
        rows = weights[:, :, place :: layout.depth].transpose(0, 3, 4, 2, 1)  # group, kh, kw, channel step, column
        here = packed[..., : rows.shape[3], :, place]
        full = rows[..., : whole * width]
        here[:, :whole] = full.reshape(*full.shape[:-1], whole, width).transpose(0, 4, 1, 2, 3, 5)
        if whole < panels:
            here[:, whole, ..., : oc - whole * width] = rows[..., whole * width :]
    return packed.reshape(-1)


def unpack(tensors: Mapping[str, Array], blocked: Blocked) -> Array:
    """goihw weights from the tensors that `pack` made of them, in the type that they have there."""
    layout = blocked.layout
    kh, kw = (1, blocked.parts) if blocked.split else (blocked.rows, blocked.across)

    def spread(flat: Array, width: int) -> Array:
        shape = (layout.groups, -1, kh, kw, layout.icp // layout.depth, width, layout.depth)
        moved = flat.reshape(shape).transpose(0, 1, 5, 4, 6, 2, 3)
        return moved.reshape(layout.groups, -1, layout.icp, kh, kw)

    widths = {"wei": layout.width, "wei_tail": layout.tail}
    panels = [spread(tensors[name], widths[name]) for name in blocked.sizes]
    weights = np.concatenate(panels, axis=1)[:, : layout.oc]
    if blocked.split:
        parts = [weights[:, :, : blocked.split, :, part : part + 1] for part in range(kw)]
        weights = np.concatenate(parts, axis=2)
    return np.ascontiguousarray(_unfolded(weights[:, :, : blocked.folded], blocked))


def _unfolded(weights: Array, blocked: Blocked) -> Array:
    """Weights whose taps are taps again."""
    rows, columns = blocked.fold
    groups, oc, _, kh, kw = weights.shape
    apart = weights.reshape(groups, oc, columns, rows, blocked.ic, kh, kw).transpose(0, 1, 4, 5, 3, 6, 2)
    return apart.reshape(groups, oc, blocked.ic, kh * rows, kw * columns)


def plain(tensors: Mapping[str, Array], blocked: Blocked, shape: tuple[int, ...]) -> Array:
    """Weights of a shape, (K, N), (batch, K, N) or oihw, from the tensors that `pack` made of them; in C order."""
    weights = unpack(tensors, blocked)
    values = weights[..., 0, 0].swapaxes(-1, -2) if len(shape) < 4 else weights
    return np.ascontiguousarray(values).reshape(shape)


def per_channel(values: Array, layout: Layout) -> Array:
    """One value for each output channel (groups x oc), with the padding of panels."""
    padded = np.zeros((layout.groups, layout.channels), values.dtype)
    padded[:, : layout.oc] = values.reshape(layout.groups, layout.oc)
    return padded.reshape(-1)


def wrap32(values: Array) -> Array:
    """Integers modulo 2**32, as s32."""
    return (values.astype(np.int64) & 0xFFFFFFFF).astype(np.uint32).view(np.int32)


def filled(values: Array, columns: int) -> Array:
    """Values with zeros behind those of their last dimension, `columns` in all."""
    found = np.zeros((*values.shape[:-1], columns), values.dtype)
    found[..., : values.shape[-1]] = values
    return found


def inputs_of(program: Program, values: Mapping[str, Array]) -> dict[str, Array]:
    """The arrays that a program reads, of those known by its tensors' names."""
    names = [t.name for t in program.tensors if t.kind == "input" and t.name in values]
    return {name: np.ascontiguousarray(values[name]) for name in names}
