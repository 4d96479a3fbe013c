"""oneDNN's inner products at inference: its matmul, channels inside of pixels (docs/numerics.md, rule 18)."""

from __future__ import annotations

from isa_models import Unimplemented
from simdnn.libraries.onednn.log import family

#: rows of K that its blocks of weights keep together, by the type of the source
_BLOCKS = {"f32": 16, "f16": 16, "bf16": 32, "u8": 64, "s8": 64}


def layout(src: str, channels: int, pixels: int, caps: frozenset[str]) -> str:
    """The layout of the matmul's weights: its own blocks, unless they would mix channels of two pixels.

    >>> layout("f32", 24, 1, frozenset({"avx512_core"})), layout("f32", 24, 9, frozenset({"avx512_core"}))
    ('any', 'ba')
    """
    block = 8 if src == "f32" and "avx512_core" not in caps else _BLOCKS.get(src, 64)
    return "any" if pixels == 1 or channels % block == 0 else "ba"


def check(src: str, implementation: str, outputs: int, pixels: int, caps: frozenset[str]) -> None:
    """Raises `Unimplemented` where inner products are not left to the implementation that its matmul has, and where
    they are wrong: plain weights (its GEMM's, and floats of one output channel) have channels outside of pixels, the
    source inside.
    """
    below = family(implementation) == "gemm" and "avx512_core" not in caps
    if pixels > 1 and (below or (outputs == 1 and src not in ("u8", "s8"))):
        raise Unimplemented(
            "oneDNN multiplies the pixels of an inner product by the weights of others, by its GEMM, floats for one "
            "output channel, too; what works: dispatch='fastest', or a source of one pixel"
        )
    if family(implementation) != "brg_matmul" and not below:
        raise Unimplemented(
            f"oneDNN has no inner product by {implementation}; what it takes instead is not modelled; what works: "
            "dispatch='fastest', or dispatch='onednn' for the matmul"
        )
