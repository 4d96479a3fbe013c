"""The user's arrays made fit for kernels: types by oneDNN's names, native byte order, C order, sizes that fit."""

from __future__ import annotations

from math import prod

import numpy as np

from isa_models import InvalidArgument, Unimplemented, UnknownName
from isa_models.formats import FORMATS, fmt, name_of
from isa_models.readings.arrays import Array, as_array, held, memory_bytes, unmasked
from simdnn.kernels.common.narrow_floats import NARROW, is_narrow

SUPPORTED = ("f32:f32", "bf16:bf16", "f16:f16", "u8:s8", "s8:s8")  # src:weights that every primitive takes as they are
#: that matmuls on CPUs take, and convolutions those of f32: both are widened to f32
_MIXED = ("f32:bf16", "f32:f16", "bf16:f16", "f16:bf16")
_INTEGERS = ("s8", "u8", "s4", "u4")  # weights of a matmul, with an integer source or decompressed for a floating one
_SOURCES, FLOATS = ("u8", "s8"), ("f32", "bf16", "f16")
_FILTERS = NARROW[:4]  # that a convolution of wider floats takes as its weights
_STORED = ("f32", "bf16", "f16", "u8", "s8", "s4", "u4", *NARROW)  # what a source or weights may be stored in
_HINTS = {
    "f64": "pass .astype(np.float32)",
    "s64": "pass .astype(np.int8) or .astype(np.uint8)",
    "s32": "pass .astype(np.int8) or .astype(np.uint8)",
    "b1": "pass .astype(np.uint8)",
}
_BIAS_TYPES = ("bf16", "f16", "s32", "s8", "u8", "f8_e4m3", "f8_e5m2")
_MAX_TENSOR_BYTES = 1 << 36


def type_of(name: str, array: object, further: tuple[str, ...] = ()) -> str:
    """oneDNN's name for an array's type, or `InvalidArgument` where it is no array or of a type that nothing takes."""
    unmasked(name, array)
    if not isinstance(array, np.ndarray):
        how = f"{name}.output" if hasattr(array, "output") else as_array(name, array)
        raise InvalidArgument(f"{name} is a {type(array).__name__}; a NumPy array is needed: {how}")
    try:
        dtype = name_of(array.dtype)
    except UnknownName:
        dtype = str(array.dtype)
    if dtype not in (*_STORED, *further) and not (name == "weights" and dtype in FORMATS and is_narrow(dtype)):
        hint = f" ({_HINTS[dtype]})" if dtype in _HINTS else ""
        met = dtype if array.dtype.names else array.dtype
        raise InvalidArgument(f"{name} of {met}; allowed: {', '.join(_STORED)}{hint}")
    return dtype


def check_types(primitive: str, src: str, wei: str, apply_to_int: bool) -> None:
    """`Unimplemented`, naming what works, for a source and weights that no kernel here multiplies.

    A floating source with integer weights is ambiguous until `apply_to_int` asks for floating computation; oneDNN, too,
    answers "unimplemented" to the question left open, and not "invalid arguments".
    """
    matmul, mixed = primitive == "matmul", _MIXED if primitive == "matmul" else _MIXED[:2]
    filters = src == wei and src in NARROW or src in FLOATS and wei in _FILTERS
    if f"{src}:{wei}" in (*SUPPORTED, *mixed) or not matmul and filters:
        return
    if matmul and src in _SOURCES and wei in _INTEGERS:
        return
    further = f", {', '.join(mixed)}, "
    if matmul:
        further += f"{' or '.join(_SOURCES)} with any of {', '.join(_INTEGERS)}, "
    further += f"and {' or '.join(FLOATS)} with any of {', '.join(NARROW if matmul else _FILTERS)}"
    works = f"src:weights that work: {', '.join(SUPPORTED)}{further}"
    if src not in FLOATS or wei not in _INTEGERS:
        raise Unimplemented(f"{src} source with {wei} weights: no kernel here; {works}")
    ambiguous = f"{src} source with {wei} weights is ambiguous"
    if not apply_to_int:
        raise Unimplemented(
            f"{ambiguous}: quantize the source to u8 or s8 and it is computed in integers; "
            "Attr(fpmath='bf16', apply_to_int=True), or another mode, decompresses the weights and computes in floats"
        )


def check_narrow_types(src: str, wei: str, apply_to_int: bool) -> None:
    """`Unimplemented`, naming what works, for types that no matmul has beside a float of at most a byte."""
    if src not in (*FLOATS, *NARROW):
        floats = ", ".join(("f32", "bf16", "f16", *NARROW))
        raise Unimplemented(f"{src} source beside floats of at most a byte: no kernel here; sources: {floats}")
    if wei in _INTEGERS and not apply_to_int:
        raise Unimplemented(
            f"{src} source with {wei} weights is ambiguous: Attr(fpmath='any', apply_to_int=True), or another mode, "
            "decompresses the weights and computes in floats"
        )


def check_shape(name: str, array: Array, dims: tuple[str, ...], hint: str = "") -> None:
    """`InvalidArgument` unless the array has these dimensions and none of them is empty."""
    wanted = f"({', '.join(dims)})"
    if array.ndim != len(dims):
        raise InvalidArgument(f"{name} of shape {array.shape}; {len(dims)} dimensions {wanted} are needed{hint}")
    for dim, size in zip(dims, array.shape, strict=True):
        if size == 0:
            raise InvalidArgument(f"{name} of shape {array.shape} is empty; {dim} of at least 1 is needed")


def matmul_sizes(src: Array, weights: Array) -> tuple[int, int, int]:
    """M, K, N of a product of two matrices; `InvalidArgument` for operands that have none."""
    check_shape("src", src, ("M", "K"), "; a vector is src[None, :]" if src.ndim == 1 else "")
    check_shape("weights", weights, ("K", "N"), "; a vector is weights[:, None]" if weights.ndim == 1 else "")
    (m, k), (wei_k, n) = src.shape, weights.shape
    if k != wei_k:
        hint = "; weights.T would fit" if k == n else ""
        raise InvalidArgument(f"src (M, K) is {src.shape} and weights (K, N) {weights.shape}: K {k} != {wei_k}{hint}")
    return m, k, n


def native(array: Array) -> Array:
    """An array's values as a plain ndarray in C order and this machine's byte order; not copied where they are so."""
    return np.ascontiguousarray(array, dtype=array.dtype.newbyteorder("="))


def bias_of(bias: object) -> Array | None:
    """Bias values as they are stored, f32, bf16, f16, s32, s8, u8 or f8, or None; a kernel has them as f32."""
    if bias is None:
        return None
    held("bias", bias)
    if not isinstance(bias, np.ndarray):
        raise InvalidArgument(f"bias is a {type(bias).__name__}; a NumPy array of float32 is needed")
    if bias.dtype.newbyteorder("=") == np.float32:
        return native(bias)
    try:
        known = name_of(bias.dtype) in _BIAS_TYPES
    except UnknownName:
        known = False
    if not known:
        works = f"float32 is needed (pass bias.astype(np.float32)), or {', '.join(_BIAS_TYPES)}"
        raise InvalidArgument(f"bias of {bias.dtype}; {works}")
    return native(bias)


def check_sizes(tensors: dict[str, tuple[tuple[int, ...], str]]) -> int:
    """Bytes of tensors given by shape and type; `InvalidArgument` for one that no machine's program could address."""
    total = 0
    for name, (shape, dtype) in tensors.items():
        size = int(prod(shape) * fmt(dtype).bytes)
        if size > _MAX_TENSOR_BYTES:
            raise InvalidArgument(f"{name} of shape {shape} and {dtype} takes {size:.3g} bytes; at most 2**36 work")
        total += size
    return total


def check_memory(tensors: dict[str, tuple[tuple[int, ...], str]]) -> None:
    """`InvalidArgument` where tensors, and as much again for the kernel's own copies, exceed this host's memory."""
    needed, limit = 2 * check_sizes(tensors), memory_bytes()
    if needed > limit:
        raise InvalidArgument(
            f"the problem takes about {needed:.3g} bytes; this host has {limit:.3g} (simdnn.estimate needs no memory)"
        )
