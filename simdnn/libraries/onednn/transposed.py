"""A transposed convolution as oneDNN 3.13's implementations look at it (docs/numerics.md, rule 18)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from math import prod

from isa_models.formats import fmt
from simdnn.kernels.common.epilogue import Epilogue
from simdnn.kernels.common.problems import ConvProblem, Depth
from simdnn.libraries.model import OperatorCall
from simdnn.libraries.onednn.caches import FIRST_LEVEL

_ROW_OF_TILES = 16  # channels under which groups are small on tiles
_OUTPUTS = 28  # of a line, in a tile of AVX-512's older kernels
_LARGE = 128  # planes, rows and columns of images of three dimensions that few channels on tiles are slow over


@dataclass(frozen=True)
class Transposed:
    """A transposed convolution: channels of a group, axes with the innermost last; `behind` is cut off the end."""

    src: str
    groups: int
    ic: int
    oc: int
    size: tuple[int, ...]
    kernel: tuple[int, ...]
    strides: tuple[int, ...]
    dilation: tuple[int, ...]
    before: tuple[int, ...]
    behind: tuple[int, ...]
    images: int = 1

    @classmethod
    def of(cls, call: OperatorCall) -> Transposed:
        (images, channels, *size), (oc, ic, *kernel) = call.shapes
        options, rank = call.options, len(size)
        pads = options["padding"]
        behind = tuple(a - b for a, b in zip(pads[rank:], options["output_padding"], strict=True))
        return cls(
            call.types[0],
            channels // ic,
            ic,
            oc * ic // channels,
            tuple(size),
            tuple(kernel),
            tuple(options["strides"]),
            tuple(options["dilation"]),
            tuple(pads[:rank]),
            behind,
            images,
        )

    @cached_property
    def out(self) -> tuple[int, ...]:
        every = zip(self.size, self.strides, self.reach, self.before, self.behind, strict=True)
        return tuple((n - 1) * s + r - a - b for n, s, r, a, b in every)

    @property
    def shape(self) -> tuple[int, ...]:
        """The output's."""
        return (self.images, self.groups * self.oc, *self.out)

    @cached_property
    def reach(self) -> tuple[int, ...]:
        return tuple((k - 1) * d + 1 for k, d in zip(self.kernel, self.dilation, strict=True))

    @property
    def stepped(self) -> bool:
        return max(self.strides) > 1

    @property
    def depthwise(self) -> bool:
        return self.groups > 1 and self.ic == self.oc == 1

    @property
    def outside(self) -> bool:
        """Whether what is cut off on some side is as wide as the whole kernel."""
        return any(r <= max(a, b) for r, a, b in zip(self.reach, self.before, self.behind, strict=True))

    @property
    def both(self) -> bool:
        """Whether strides and dilation come together along an axis."""
        return any(s > 1 and d > 1 for s, d in zip(self.strides, self.dilation, strict=True))

    def strided(self, lanes: int) -> bool:
        """Whether the kernel for strides takes it: not dilated, in one group or in groups of many channels, of integers
        and narrow floats by fours.
        """
        if not self.stepped or max(self.dilation) > 1:
            return False
        return not (self.groups > 1 and self.ic <= lanes and (self.src == "f32" or self.fours))

    @property
    def fours(self) -> bool:
        """Whether channels of a group are multiples of four on both sides."""
        return self.ic % 4 == 0 and self.oc % 4 == 0

    @property
    def pointwise(self) -> bool:
        """Whether there is one tap, and nothing is cut off."""
        return max(self.kernel) == 1 and max(*self.before, *self.behind) <= 0

    @cached_property
    def seen(self) -> tuple[int, ...]:
        """How many outputs along each axis see the source."""
        found = []
        for axis in zip(self.size, self.kernel, self.strides, self.dilation, self.before, self.out, strict=True):
            size, kernel, stride, gap, before, out = axis
            places = {i * stride + tap * gap - before for i in range(size) for tap in range(kernel)}
            found.append(sum(0 <= place < out for place in places))
        return tuple(found)

    def strided_on_tiles(self) -> bool:
        """Whether the kernel for strides takes it on tiles: whole words of channels, no small groups by fours of
        several taps, nor few outputs (`init_jcp` in jit_brgemm_conv_bwd_utils.cpp).
        """
        if not self.stepped or max(self.dilation) > 1 or self.ic * fmt(self.src).bits % 32:
            return False
        one_tap = self.pointwise
        if self.groups > 1 and max(self.ic, self.oc) < _ROW_OF_TILES and self.fours and not one_tap:
            return False
        if len(self.size) == 3 and self.ic * self.oc <= 32 and min(self.out) >= _LARGE:
            return False
        most = FIRST_LEVEL // (2 if one_tap else 1)
        few = prod(self.out) <= 4 and self.ic <= 512
        return not (few and self.images * self.groups * self.ic * self.oc <= most)

    def older_on_tiles(self) -> bool:
        """Whether an older kernel on tiles takes what newer ones leave: not depthwise, channels of groups in blocks of
        16, what is cut off no kernel (`init_conf` in jit_avx512_core_amx_conv_kernel.cpp).
        """
        blocks = self.groups == 1 or (self.ic % 16 == 0 and self.oc % 16 == 0)
        steps = len(self.size) == 3 and self.dilation[0] > 1 < self.strides[0]
        return blocks and not (self.depthwise or self.outside or steps)

    def convolution(self, wei: str, dst: str) -> ConvProblem:
        """The convolution of turned weights that it is with strides of 1."""
        rank = len(self.size)
        reach = [r - 1 for r in self.reach]
        front, top, left = (0,) * (3 - rank) + tuple(r - a for r, a in zip(reach, self.before, strict=True))
        back, bottom, right = (0,) * (3 - rank) + tuple(r - a for r, a in zip(reach, self.behind, strict=True))
        (planes, ih, iw), (kd, kh, kw), (e, f, g) = (
            (1,) * (3 - rank) + axes for axes in (self.size, self.kernel, self.dilation)
        )
        channels, filters = self.groups * self.ic, self.groups * self.oc
        return ConvProblem(
            *(self.images, channels, ih, iw, filters, kh, kw, self.src, wei, Epilogue(dst)),
            padding=(top, left, bottom, right),
            dilation=(f, g),
            groups=self.groups,
            depth=Depth(planes, kd, 1, e, front, back) if rank == 3 else None,
            line=rank == 1,
            turned=True,
        )

    @property
    def single_tap(self) -> bool:
        """Whether an older kernel of one tap takes it."""
        return max(self.kernel) == 1 and not self.stepped and self.groups == 1 and self.out == self.size

    def fits_registers(self) -> bool:
        """Whether what a line's edges reach over stays in a tile of up to 28 outputs, as older kernels ask
        (`init_conf` of the gradient in jit_avx512_common_conv_kernel.cpp).
        """
        width, step, reach = self.out[-1], self.strides[-1], self.reach[-1] - 1
        tile = width if width <= _OUTPUTS else _OUTPUTS // step * step
        rest = width % tile
        left, right = (
            max(0, reach - given) // step * step for given in (self.before[-1], max(0, self.behind[-1] + rest))
        )
        whole = width <= tile or self.behind[-1] + rest >= 0
        return max(left, right) <= tile and whole

    def divided_by(self, *blocks: int) -> bool:
        """Whether there is one group, or some block of channels divides both sides of each."""
        return self.groups == 1 or any(self.ic % block == 0 and self.oc % block == 0 for block in blocks)

    @property
    def block(self) -> int:
        """Channels that an older kernel takes together under AVX-512."""
        return 16 if self.groups == 1 else next(b for b in (16, 8, 4) if self.ic % b == 0 and self.oc % b == 0)
