"""Integer weights with a floating source: what is computed in floating point, in which type, and by which form.

Such a problem is ambiguous, as it could also be computed in integers, so a call says `Attr(apply_to_int=True)` and the
math mode in force then says which types may be used. Mode bf16 with an f32 source computes in bf16 where there is a
unit for it. Otherwise every type that the mode allows is a candidate, f32 among them always. An f16 source is widened
to f32, or multiplied as it is where the mode allows f16. Mode bf16 for it, or f16 for a bf16 source, asks for a
conversion between types of one size, and is refused. A library may read the mode otherwise (`simdnn.libraries`).
"""

from __future__ import annotations

from isa_models import Unimplemented
from simdnn.kernels.common.epilogue import Decompression
from simdnn.kernels.common.params import Param
from simdnn.kernels.common.problems import MatmulProblem
from simdnn.libraries import Library
from simdnn.primitives import mathmode_types
from simdnn.primitives.resolve import Resolved

_COMPUTES = ("f32", "bf16", "f16")  # what kernels here decompress to


def decompression(
    given: Resolved, problem: MatmulProblem, library: Library | None, caps: frozenset[str]
) -> Decompression | None:
    """A problem's compressed weights; None where they are not compressed. `problem` is what is known of it so far.

    Raises `InvalidArgument` and `Unimplemented`, also for what the library refuses whose choice is asked for.
    """
    if not given.shape.compressed:
        return None
    mode = given.fpmath
    scale, point = weights_params(given)
    if library:
        form = library.decompressed(problem, mode, scale, point, caps)
        if "dst" in given.scales and not form.reference:
            library.check_scaled_dst(given.scales["dst"].param.dtype)
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
    return tuple(dtype for dtype in _COMPUTES if mathmode_types.allowed(mode, dtype) and dtype != narrow)


def weights_params(given: Resolved) -> tuple[Param | None, Param | None]:
    """Scale and zero point of compressed weights."""
    scale, point = (found["wei"].param if "wei" in found else None for found in (given.scales, given.zero_points))
    return scale, point
