"""GGUF files, read and written: metadata and tensors of a language model, quantized weights as stored or as f32.

The layout (versions 2 and 3, little-endian) is that of docs/gguf.md in ggml; `isa_models.block_formats` has the blocks.
Nothing that a file says is believed before it has been compared with the file's size.
"""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from math import prod
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from isa_models.block_formats import BLOCK_FORMATS
from isa_models.errors import InvalidArgument, SimdnnError, Unimplemented, counted, unknown_name

F32 = NDArray[np.float32]
U8 = NDArray[np.uint8]
_MAGIC = b"GGUF"
_ALIGNMENT = "general.alignment"
_MOST_DIMS = 4
_SCALARS = {
    0: "<u1",
    1: "<i1",
    2: "<u2",
    3: "<i2",
    4: "<u4",
    5: "<i4",
    6: "<f4",
    7: "?",
    10: "<u8",
    11: "<i8",
    12: "<f8",
}
_STRING, _ARRAY = 8, 9
_NAMES = {
    0: "F32",
    1: "F16",
    2: "Q4_0",
    3: "Q4_1",
    6: "Q5_0",
    7: "Q5_1",
    8: "Q8_0",
    9: "Q8_1",
    10: "Q2_K",
    11: "Q3_K",
    12: "Q4_K",
    13: "Q5_K",
    14: "Q6_K",
    15: "Q8_K",
    16: "IQ2_XXS",
    17: "IQ2_XS",
    18: "IQ3_XXS",
    19: "IQ1_S",
    20: "IQ4_NL",
    21: "IQ3_S",
    22: "IQ2_S",
    23: "IQ4_XS",
    24: "I8",
    25: "I16",
    26: "I32",
    27: "I64",
    28: "F64",
    29: "IQ1_M",
    30: "BF16",
    34: "TQ1_0",
    35: "TQ2_0",
    39: "MXFP4",
    40: "NVFP4",
    41: "Q1_0",
    42: "Q2_0",
}
#: bits of an element of types that are not read
_BITS = {
    "Q1_0": 1.125,
    "IQ1_S": 1.5625,
    "TQ1_0": 1.6875,
    "IQ1_M": 1.75,
    "IQ2_XXS": 2.0625,
    "TQ2_0": 2.0625,
    "Q2_0": 2.25,
    "IQ2_XS": 2.3125,
    "IQ2_S": 2.5625,
    "IQ3_XXS": 3.0625,
    "IQ3_S": 3.4375,
}


_PLAIN: dict[str, np.dtype[Any]] = {"F32": np.dtype("<f4"), "F16": np.dtype("<f2"), "BF16": np.dtype("<u2")}
_BLOCKS = {record.name.upper(): record for record in BLOCK_FORMATS.values()}
_READ = (*_PLAIN, *_BLOCKS)


def _layout(kind: str) -> tuple[int, np.dtype[Any]]:
    """Elements of a block of a type, and the block as it is stored; plain numbers are blocks of one."""
    if kind in _PLAIN:
        return 1, _PLAIN[kind]
    layout: np.dtype[Any] = _BLOCKS[kind].layout
    return _BLOCKS[kind].elements, layout


@dataclass(frozen=True)
class GgufTensor:
    """Where a tensor lies: its shape as NumPy orders dimensions, the type's name, the byte at which it starts."""

    name: str
    shape: tuple[int, ...]
    type: str
    start: int


@dataclass(frozen=True, eq=False, repr=False)
class Gguf:
    """A file's metadata (numbers, text, lists of text, arrays) and tensors."""

    metadata: dict[str, Any]
    tensors: dict[str, GgufTensor]
    _bytes: U8 = field(repr=False)

    def __repr__(self) -> str:
        kinds = ", ".join(f"{count} {kind}" for kind, count in Counter(t.type for t in self.tensors.values()).items())
        what = self.metadata.get("general.architecture", "no architecture")
        return f"Gguf({what}; {counted(len(self.tensors), 'tensor')}: {kinds}; {counted(len(self.metadata), 'key')})"

    def get(self, key: str, kind: type, default: Any = None) -> Any:
        """A metadata value of a Python type. `InvalidArgument` where it is missing without a default, or another."""
        found = self.metadata.get(key, default)
        if found is None:
            raise InvalidArgument(f"the GGUF file has no {key!r}, which is needed here")
        allowed = (int, float) if kind is float else kind
        if not isinstance(found, allowed) or isinstance(found, bool) != (kind is bool):
            raise InvalidArgument(f"{key!r} is a {type(found).__name__}; {kind.__name__} is needed")
        return found

    def blocks(self, name: str) -> NDArray[Any]:
        """The blocks of a tensor as they are stored, (…, row / elements of a block), with the fields of their record in
        `isa_models.block_formats`.
        """
        tensor = self._find(name)
        elements, layout = _layout(tensor.type)
        shape = (*tensor.shape[:-1], tensor.shape[-1] // elements)
        flat = self._bytes[tensor.start : tensor.start + prod(shape) * layout.itemsize]
        return flat.view(layout).reshape(shape)

    def array(self, name: str) -> F32:
        """A tensor in f32: the bits that ggml's own dequantization yields."""
        tensor, blocks = self._find(name), self.blocks(name)
        if tensor.type in _BLOCKS:
            return _BLOCKS[tensor.type].values(blocks).reshape(tensor.shape)
        if tensor.type == "BF16":
            return (blocks.astype(np.uint32) << 16).view(np.float32)
        return blocks.astype(np.float32)

    def _find(self, name: str) -> GgufTensor:
        if name not in self.tensors:
            raise unknown_name("tensor", name, self.tensors)
        return self.tensors[name]


def read(path: str | PathLike[str]) -> Gguf:
    """The file, its tensors left on disk until they are asked for.

    Raises `InvalidArgument` for what is no GGUF file or a broken one, `Unimplemented` naming a tensor's type that is
    not known here, `SimdnnError` where the file cannot be read.
    """
    try:
        content = np.memmap(path, np.uint8, "r")
    except (OSError, ValueError) as error:  # ValueError: an empty file
        raise SimdnnError(f"{path}: {' '.join(str(error).split())[:100]}") from None
    try:
        return _parsed(_Cursor(content))
    except SimdnnError as error:
        raise type(error)(f"{path}: {error}") from None


def write(path: str | PathLike[str], metadata: Mapping[str, Any], tensors: Mapping[str, NDArray[Any]]) -> None:
    """A GGUF file, version 3. Metadata: text, lists of text, truths, numbers and arrays of numbers; integers become u32
    or the next type that holds them, floats f32.

    A tensor is an array of f32 or f16, or blocks as `isa_models.block_encoders.encode_blocks` makes them and
    `Gguf.blocks` gives them. Raises `InvalidArgument` for others, `SimdnnError` where the file cannot be written.
    """
    alignment, data = 32, b""
    infos: list[bytes] = []
    for name, array in tensors.items():
        kind = _kind_of(name, array)
        elements, layout = _layout(kind)
        sizes = (*array.shape[:-1], array.shape[-1] * elements)[::-1]
        number = next(n for n, known in _NAMES.items() if known == kind)
        data += bytes(-len(data) % alignment)
        infos.append(_text(name) + struct.pack(f"<I{len(sizes)}QIQ", len(sizes), *sizes, number, len(data)))
        data += np.ascontiguousarray(array, layout).tobytes()
    entries = [_text(key) + _entry(key, value) for key, value in metadata.items() if key != _ALIGNMENT]
    head = _MAGIC + struct.pack("<IQQ", 3, len(infos), len(entries)) + b"".join([*entries, *infos])
    try:
        Path(path).write_bytes(head + bytes(-len(head) % alignment) + data)
    except OSError as error:
        raise SimdnnError(f"{path}: {error.strerror}") from None


def _kind_of(name: str, array: NDArray[Any]) -> str:
    """The type of a tensor, by the layout of its elements."""
    known = {**{layout: kind for kind, layout in _PLAIN.items() if kind != "BF16"}}
    known |= {record.layout: kind for kind, record in _BLOCKS.items()}
    if not isinstance(array, np.ndarray) or array.dtype not in known or not 1 <= array.ndim <= _MOST_DIMS:
        met = f"{array.dtype} of shape {array.shape}" if isinstance(array, np.ndarray) else type(array).__name__
        raise InvalidArgument(f"tensor {name!r:.60} is {met:.120}; arrays of f32, f16 or blocks are written")
    return known[array.dtype]


def _text(value: str) -> bytes:
    return struct.pack("<Q", len(value.encode())) + value.encode()


def _entry(key: str, value: Any) -> bytes:
    """A metadata value with its type in front."""
    if isinstance(value, str):
        return struct.pack("<I", _STRING) + _text(value)
    if isinstance(value, (list, tuple)) and all(isinstance(item, str) for item in value):
        return struct.pack("<IIQ", _ARRAY, _STRING, len(value)) + b"".join(map(_text, value))
    kinds = {np.dtype(form): kind for kind, form in _SCALARS.items()}
    array = np.asarray(value)
    if isinstance(value, int) and not isinstance(value, bool):
        fits = (form for form in ("<u4", "<i4", "<u8", "<i8") if np.iinfo(form).min <= value <= np.iinfo(form).max)
        array = np.array(value, next(fits, object))
    elif isinstance(value, float):
        array = np.array(value, "<f4")
    if array.dtype not in kinds or array.ndim > 1:
        raise InvalidArgument(f"metadata {key!r:.60}: {value!r:.60}; text, numbers, and lists of either are written")
    kind = struct.pack("<I", kinds[array.dtype])
    size = struct.pack("<Q", array.size)
    return struct.pack("<I", _ARRAY) + kind + size + array.tobytes() if array.ndim else kind + array.tobytes()


class _Cursor:
    """Reads little-endian values one after the other, and never beyond the end."""

    def __init__(self, content: U8) -> None:
        self.content, self.at = content, 0

    def take(self, count: int, what: str) -> bytes:
        if count > len(self.content) - self.at:
            raise InvalidArgument(
                f"{what} of {count} bytes at byte {self.at}; the file ends at {len(self.content)}: truncated or broken"
            )
        self.at += count
        return self.content[self.at - count : self.at].tobytes()

    def number(self, form: str) -> int:
        return int(struct.unpack(f"<{form}", self.take(struct.calcsize(form), "a number"))[0])

    def text(self) -> str:
        try:
            return self.take(self.number("Q"), "text").decode("utf-8")
        except UnicodeDecodeError as error:
            raise InvalidArgument(f"text before byte {self.at} is no UTF-8 ({error.reason})") from None

    def count(self, what: str, least: int) -> int:
        """A number of things of at least `least` bytes each, which the file must have room for."""
        found = self.number("Q")
        if found * least > len(self.content) - self.at:
            raise InvalidArgument(f"{found} {what} at byte {self.at}; the file ends at {len(self.content)}")
        return found


def _parsed(cursor: _Cursor) -> Gguf:
    magic, version = cursor.take(4, "the magic"), cursor.number("I")
    if magic != _MAGIC:
        raise InvalidArgument(f"starts with {magic!r}; a GGUF file starts with {_MAGIC!r}")
    if version not in (2, 3):
        known = "big-endian files are not read" if version in (2 << 24, 3 << 24) else "2 and 3 are known"
        raise Unimplemented(f"GGUF version {version}; {known}")
    tensor_count, entry_count = cursor.count("tensors", 24), cursor.count("metadata entries", 12)
    metadata: dict[str, Any] = {}
    for _ in range(entry_count):
        key = cursor.text()
        if key in metadata:
            raise InvalidArgument(f"metadata {key!r:.60} twice")
        metadata[key] = _value(cursor, cursor.number("I"))
    tensors: dict[str, GgufTensor] = {}
    for _ in range(tensor_count):
        tensor = _tensor(cursor)
        if tensor.name in tensors:
            raise InvalidArgument(f"tensor {tensor.name!r:.60} twice")
        tensors[tensor.name] = tensor
    return Gguf(metadata, _located(tensors, metadata, cursor), cursor.content)


def _value(cursor: _Cursor, kind: int) -> Any:
    """A number, text, a list of text, or an array of numbers."""
    if kind == _STRING:
        return cursor.text()
    if kind in _SCALARS:
        return _numbers(cursor, kind, 1)[0].item()
    if kind != _ARRAY:
        raise InvalidArgument(f"metadata of type {kind} before byte {cursor.at}; 0 to 12 are known")
    inner = cursor.number("I")
    if inner == _STRING:
        return [cursor.text() for _ in range(cursor.count("texts", 8))]
    if inner not in _SCALARS:
        raise Unimplemented(f"an array of metadata type {inner} before byte {cursor.at}; numbers and text are read")
    return _numbers(cursor, inner, cursor.count("values", np.dtype(_SCALARS[inner]).itemsize))


def _numbers(cursor: _Cursor, kind: int, count: int) -> NDArray[Any]:
    dtype = np.dtype(_SCALARS[kind])
    return np.frombuffer(cursor.take(count * dtype.itemsize, "values"), dtype)


def _tensor(cursor: _Cursor) -> GgufTensor:
    """A tensor with its start counted from where the data begin."""
    name, rank = cursor.text(), cursor.number("I")
    if not 1 <= rank <= _MOST_DIMS:
        raise InvalidArgument(f"tensor {name!r:.60} has {counted(rank, 'dimension')}; 1 to {_MOST_DIMS} are allowed")
    shape = tuple(cursor.number("Q") for _ in range(rank))[::-1]
    kind, start = cursor.number("I"), cursor.number("Q")
    if kind not in _NAMES:
        raise InvalidArgument(f"tensor {name!r:.60} has the unknown type {kind}; read here: {', '.join(_READ)}")
    if _NAMES[kind] not in _READ:
        read = f"read here: {', '.join(_READ)}{_nearest(_NAMES[kind])}"
        raise Unimplemented(f"tensor {name!r:.60} is stored as {_NAMES[kind]}; {read}")
    if 0 in shape or shape[-1] % _layout(_NAMES[kind])[0]:
        raise InvalidArgument(f"tensor {name!r:.60} of {_NAMES[kind]} has shape {shape}: no whole number of blocks")
    return GgufTensor(name, shape, _NAMES[kind], start)


def _nearest(kind: str) -> str:
    """The type of weights that is read and nearest in size to one that is not; "" where no size is known."""
    if (bits := _BITS.get(kind)) is None:
        return ""
    near = min((form for form in BLOCK_FORMATS.values() if form.activations), key=lambda form: abs(form.bits - bits))
    return f"; nearest to its {bits:.4g} bits an element is {near.name.upper()} of {near.bits:.4g}"


def _located(tensors: dict[str, GgufTensor], metadata: dict[str, Any], cursor: _Cursor) -> dict[str, GgufTensor]:
    """The tensors with their starts in the file, all of them inside of it."""
    alignment = metadata.get(_ALIGNMENT, 32)
    if not isinstance(alignment, int) or alignment < 8 or alignment > 1 << 20 or alignment % 8:
        raise InvalidArgument(f"{_ALIGNMENT} {alignment!r:.60}; a multiple of 8 is needed")
    data = -(-cursor.at // alignment) * alignment
    found = {}
    for name, tensor in tensors.items():
        elements, layout = _layout(tensor.type)
        size, start = prod(tensor.shape) // elements * layout.itemsize, data + tensor.start
        if tensor.start % alignment or start + size > len(cursor.content):
            raise InvalidArgument(
                f"tensor {name!r:.60} of {size} bytes at byte {start}; the file ends at {len(cursor.content)}, and "
                f"tensors start at multiples of {alignment}"
            )
        found[name] = GgufTensor(name, tensor.shape, tensor.type, start)
    return found
