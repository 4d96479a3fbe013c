"""Which types a math mode lets f32 data be computed in: a partial order, the more accurate type above.

    f32 > tf32 > bf16   and   f32 > tf32 > f16

bf16 has f32's range and 8 bits of significand, f16 has 11 bits and a small range: neither stands above the other. A
mode is a hint. It allows every type at least as accurate as the one that it names (oneDNN's developer guide,
"Floating-point math mode"; its f16 mode, too, may be computed in tf32 and not in bf16).
"""

from __future__ import annotations

_ABOVE = {"tf32": "f32", "bf16": "tf32", "f16": "tf32"}  # the next more accurate type
FLOATS = ("f32", *_ABOVE)


def at_least(dtype: str) -> tuple[str, ...]:
    """A type and those more accurate, the most accurate first.

    >>> at_least("bf16")
    ('f32', 'tf32', 'bf16')
    """
    return (*at_least(_ABOVE[dtype]), dtype) if dtype in _ABOVE else (dtype,)


def computes(mode: str) -> tuple[str, ...]:
    """The types that a mode lets f32 data be computed in, the most accurate first.

    >>> computes("strict"), computes("tf32")
    (('f32',), ('f32', 'tf32'))
    """
    return FLOATS if mode == "any" else at_least("f32" if mode == "strict" else mode)


def allowed(mode: str, compute_dtype: str) -> bool:
    """Whether f32 data may be computed in a type.

    >>> allowed("bf16", "tf32"), allowed("bf16", "f16")
    (True, False)
    """
    return compute_dtype in computes(mode)
