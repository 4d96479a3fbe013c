"""Integer weights with a floating source: what is computed in floating point, in which type, and by which form.

Such a problem is ambiguous, as it could also be computed in integers, so a call says `Attr(apply_to_int=True)` and the
math mode in force then says which types may be used. Mode bf16 with an f32 source computes in bf16 where there is a
unit for it. Otherwise every type that the mode allows is a candidate, f32 among them always. An f16 source is widened
to f32, or multiplied as it is where the mode allows f16. Mode bf16 for it, or f16 for a bf16 source, asks for a
conversion between types of one size, and is refused. A library may read the mode otherwise (`simdnn.libraries`).
"""

from __future__ import annotations

from isa_models import InvalidArgument, Unimplemented
from simdnn.kernels.common.spec import Decompression, MatmulProblem, Placing
from simdnn.libraries import Library
from simdnn.primitives import compatible
from simdnn.primitives.mathmode import FPMATH
from simdnn.primitives.resolve import Placed, Resolved

_COMPUTES = ("f32", "bf16", "f16")  # what kernels here decompress to


def decompression(
    given: Resolved, asked: MatmulProblem, library: Library | None, caps: frozenset[str]
) -> Decompression | None:
    """What a problem says of its compressed weights; None where they are not compressed. `asked` is the problem so far.

    Raises `InvalidArgument` and `Unimplemented`, also for what the library refuses whose choice is asked for.
    """
    if not given.shape.compressed:
        return None
    mode = FPMATH.effective(given.attr.fpmath)
    scale, point = placings(given)
    if library:
        form = library.decompressed(asked, mode, scale, point, caps)
        return Decompression((form.compute,), scale, point, form.reference)
    return Decompression(computes(given.shape.src, mode, "avx512_core_bf16" in caps), scale, point)


def computes(src: str, mode: str, has_bf16: bool) -> tuple[str, ...]:
    """The types that "fastest" may compute in, on a machine with a unit for bf16 or without one.

    >>> computes("f32", "any", False), computes("f16", "any", False)
    (('f32', 'bf16', 'f16'), ('f32', 'f16'))
    """
    if src == "f32" and mode == "bf16" and has_bf16:
        return ("bf16",)
    narrow = {"f16": "bf16", "bf16": "f16"}.get(src)  # would be a conversion between types of one size
    if mode == narrow:
        raise Unimplemented(
            f"{src} source with fpmath {mode!r}: a conversion between types of one size; what works: fpmath={src!r}, "
            "'any', 'tf32' or 'strict'"
        )
    return tuple(dtype for dtype in _COMPUTES if compatible.allowed(mode, dtype) and dtype != narrow)


def placings(given: Resolved) -> tuple[Placing | None, Placing | None]:
    """Where scale and zero point of compressed weights belong."""
    return _placing("scales", given.scales.get("wei")), _placing("zero_points", given.zero_points.get("wei"))


def _placing(attribute: str, found: Placed | None) -> Placing | None:
    if found is None:
        return None
    quant, shape = found.quant, found.shape
    assert quant.dtype is not None  # Attr has filled it in
    if found.granularity != "grouped":
        return Placing(found.granularity, quant.dtype)
    along_k, along_n = found.groups or (0, shape.n if quant.mask == 1 else 1)
    if along_n not in (1, shape.n):
        raise Unimplemented(
            f"{attribute}['wei']: groups={quant.groups}; along N no kernel here shares a value but for all columns: "
            f"what works: groups=({along_k}, 1) with a (K/{along_k}, N) array, or groups=({along_k}, {shape.n})"
        )
    if not along_k and quant.values is None:
        raise InvalidArgument(f"{attribute}['wei']: mask {quant.mask!r} has groups; say which: groups=(32, 1)")
    return Placing("grouped", quant.dtype, along_k or shape.k // quant.values.shape[0], along_n > 1)
