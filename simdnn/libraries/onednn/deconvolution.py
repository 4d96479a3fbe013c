"""oneDNN's transposed convolutions: which are convolutions here, which exact sums (docs/numerics.md, rule 18)."""

from __future__ import annotations

from collections.abc import Sequence

from isa_models import Unimplemented
from simdnn.libraries.onednn.log import family

_WORKS = "what works: dispatch='fastest'"


def form(src: str, strides: Sequence[int], caps: frozenset[str]) -> str:
    """The way to compute it: a "convolution" of turned weights, as integers and f16 of two dimensions with strides of 1
    are; or exact "sums" of integers by VNNI, whose order has no say. Raises `Unimplemented` for all others.

    >>> form("u8", (1, 1), frozenset()), form("u8", (2, 2), frozenset({"avx512_core_vnni"}))
    ('convolution', 'sums')
    """
    whole = src in ("u8", "s8")
    if max(strides) == 1 and (whole or (src == "f16" and len(strides) == 2)):
        return "convolution"
    if whole and caps & {"avx512_core_vnni", "avx2_vnni"}:
        return "sums"
    what = f"a deconvolution of {src} over {len(strides)} dimensions with strides of {'x'.join(map(str, strides))}"
    raise Unimplemented(f"dispatch='onednn' for {what}: the order of its sums is not followed; {_WORKS}")


def check(src: str, implementation: str, channels: int, caps: frozenset[str]) -> None:
    """Raises `Unimplemented` where a transposed convolution is not that implementation of the convolution; `channels`:
    of the source in a group.
    """
    exact = src != "f16" and caps & {"avx512_core_vnni", "avx2_vnni"}
    kernel = family(implementation)
    usual = kernel in ("brg_conv_fwd", "brgconv_1x1") or (src == "f16" and kernel == "brdgmm_dw")
    if not (exact or (usual and (channels > 1 or src == "f16"))):
        raise Unimplemented(
            f"dispatch='onednn' for a deconvolution of {src} by its GEMM, where a convolution is {implementation}'s: "
            f"what saturates there is not followed; {_WORKS}"
        )
