"""An estimate of a convolution as oneDNN 3.13 makes it, on vectors and on tiles (`brg_blocking_t` in its
jit_brgemm_conv_utils.cpp): sizes of a group, what a row of taps reads, and what an element costs.
"""

from __future__ import annotations

from dataclasses import dataclass

from isa_models.formats import fmt
from simdnn.kernels.common.problems import ConvProblem
from simdnn.libraries.onednn.rounded_up import up

NEAR, FAR = 2.3, 17.0  # what an element of the second cache, and one from behind it, costs beside the first's
CALL = 1000.0


@dataclass(frozen=True)
class ConvolutionEstimate:
    """One choice for a convolution."""

    p: ConvProblem

    @property
    def oc(self) -> int:
        return self.p.oc // self.p.groups

    @property
    def ic(self) -> int:
        return self.p.ic // self.p.groups

    @property
    def size(self) -> int:
        """Bytes of an element of the source."""
        return fmt(self.p.src).bits // 8

    @property
    def register(self) -> int:
        """Elements of the source that a register holds, by which the library rounds sizes up."""
        return 64 // self.size

    def image(self, pixels: int, channels: int) -> int:
        """Elements of the source that a row of taps reads for some pixels in a row."""
        if self.p.strides[1] == 1 and channels >= self.ic:
            return up(self.reach(pixels) * channels, self.register)
        return self.reach(pixels) * up(channels, self.register)

    def reach(self, pixels: int) -> int:
        """Pixels of the image that some outputs in a row read, as if all were a line."""
        p = self.p
        return min(p.iw, (pixels - 1) * p.strides[1] + (p.kw - 1) * p.dilation[1] + 1)

    def filled(self, columns: int, pixels: int, rows: int, every: int) -> float:
        """The share of a call's room with outputs: blocks of `columns` channels, `pixels` of `every` one, in `rows`."""
        return self.oc / up(self.oc, columns) * every / up(every, pixels) * pixels / up(pixels, rows)


def mean(first: float, others: float, times: int) -> float:
    """The mean of a first cost and the others'."""
    return (first + others * (times - 1)) / times
