"""oneDNN's inner products at inference: its matmul, channels inside of pixels (docs/numerics.md, rule 18)."""

from __future__ import annotations

from isa_models import Unimplemented
from simdnn.libraries.onednn.log import family

#: rows of K that its blocks of weights keep together, by the type of the source
_BLOCKS = {"f32": 16, "f16": 16, "bf16": 32, "u8": 64, "s8": 64}

#: implementations that inner products have other names for: a GEMM with emulated bf16, and loops
_NAMES = {"gemm:jit:bf16": "x64:gemm:jit", "ref_int8:any": "ref:any"}


def layout(src: str, channels: int, pixels: int, caps: frozenset[str]) -> tuple[str, bool]:
    """The layout of the matmul's weights, and whether channels lie inside of pixels: its own blocks, unless they would
    mix channels of two pixels; plain ones of a GEMM, as they come.

    >>> layout("f32", 24, 1, frozenset({"avx512_core"})), layout("f32", 24, 9, frozenset({"avx512_core"}))
    (('any', True), ('ba', True))
    >>> layout("bf16", 24, 9, frozenset({"avx512_core"}))
    ('ba', False)
    """
    if src == "bf16" and "avx512_core_bf16" not in caps:
        return "ba", False
    block = 8 if src == "f32" and "avx512_core" not in caps else _BLOCKS.get(src, 64)
    return "any" if pixels == 1 or channels % block == 0 else "ba", True


#: weights and destinations of its inner products, by the type of the source
_TYPES = {
    "f32": (("f32", "bf16", "f16"), ("f32",)),
    "bf16": (("bf16",), ("bf16", "f32")),
    "f16": (("f16",), ("f16", "f32")),
    **dict.fromkeys(("u8", "s8"), (("s8",), ("s32", "f32", "bf16", "s8", "u8"))),
}
#: the cap from which kernels have a type of 16 bits: as destinations of f32 by weights of that type, beside integers
_FROM = {"bf16": "avx512_core", "f16": "avx512_core_fp16"}


def name(types: tuple[str, ...], implementation: str, outputs: int, pixels: int, caps: frozenset[str]) -> str:
    """The library's name of an inner product that is the matmul of an implementation. `types`: of the source, weights,
    destination and bias, the last "" where there is none. Raises `Unimplemented` where it is not left to that, and
    where it is wrong: plain weights (its GEMM's, and floats of one output channel) have channels outside of pixels, the
    source inside.
    """
    src, wei, dst, bias = types
    known, integer = _TYPES.get(src), src in ("u8", "s8")
    own = _FROM.get(dst) in caps and (integer or src == "f32" and dst == wei)
    if known is not None and not (wei in known[0] and (dst in known[1] or own)):
        raise Unimplemented(
            f"oneDNN has no inner product {src}:{wei}:{dst}; {src} has weights of {', '.join(known[0])} and "
            f"destinations of {', '.join(known[1])}; what works: dispatch='fastest'"
        )
    if dst == "bf16" and "avx512_core" not in caps:
        raise Unimplemented("oneDNN has no inner product to bf16 below avx512_core; what works: dispatch='fastest'")
    if integer and _FROM.get(bias, "") not in {"", *caps}:
        raise Unimplemented(
            f"oneDNN has no int8 inner product with a bias of {bias} below {_FROM[bias]}: f32, s32, s8 and u8 work, "
            "and dispatch='fastest'"
        )
    below = family(implementation) == "gemm" and "avx512_core" not in caps
    if pixels > 1 and (below or (outputs == 1 and not integer and implementation not in _NAMES)):
        raise Unimplemented(
            "oneDNN multiplies the pixels of an inner product by the weights of others, by its GEMM, floats for one "
            "output channel, too; what works: dispatch='fastest', or a source of one pixel"
        )
    if family(implementation) != "brg_matmul" and implementation not in _NAMES and not below:
        raise Unimplemented(
            f"oneDNN has no inner product by {implementation}; what it takes instead is not modelled; what works: "
            "dispatch='fastest', or dispatch='onednn' for the matmul"
        )
    return _NAMES.get(implementation, implementation)
