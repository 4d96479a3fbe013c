"""GGUF files written byte by byte, for tests: an implementation of its own of what `workloads.gguf` reads."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

TYPES = {"F32": 0, "F16": 1, "Q4_1": 3, "Q8_0": 8}


@dataclass
class Raw:
    """A tensor as it goes into the file."""

    shape: tuple[int, ...]
    type: int
    content: bytes


def text(value: str) -> bytes:
    return struct.pack("<Q", len(value.encode())) + value.encode()


def value(item: Any) -> bytes:
    """A metadata value with its type in front."""
    if isinstance(item, bool):
        return struct.pack("<I?", 7, item)
    if isinstance(item, int):
        return struct.pack("<Iq", 11, item) if item < 0 else struct.pack("<II", 4, item)
    if isinstance(item, float):
        return struct.pack("<If", 6, item)
    if isinstance(item, str):
        return struct.pack("<I", 8) + text(item)
    if all(isinstance(i, str) for i in item):
        return struct.pack("<IIQ", 9, 8, len(item)) + b"".join(map(text, item))
    return struct.pack(f"<IIQ{len(item)}i", 9, 5, len(item), *item)


def f32(values: np.ndarray[Any, Any]) -> Raw:
    return Raw(values.shape, TYPES["F32"], values.astype("<f4").tobytes())


def q4_1(q: np.ndarray[Any, Any], scale: np.ndarray[Any, Any], minimum: np.ndarray[Any, Any]) -> Raw:
    """q (rows, groups, 32) of 0..15, a scale and a minimum (rows, groups) each."""
    content = b""
    for numbers, d, m in zip(q.reshape(-1, 32).tolist(), scale.ravel().tolist(), minimum.ravel().tolist(), strict=True):
        content += struct.pack("<ee", d, m) + bytes(numbers[i] | numbers[i + 16] << 4 for i in range(16))
    return Raw((q.shape[0], q.shape[1] * 32), TYPES["Q4_1"], content)


def q8_0(q: np.ndarray[Any, Any], scale: np.ndarray[Any, Any]) -> Raw:
    """q (rows, groups, 32) of -128..127, a scale (rows, groups) each."""
    content = b""
    for numbers, d in zip(q.reshape(-1, 32).tolist(), scale.ravel().tolist(), strict=True):
        content += struct.pack("<e32b", d, *numbers)
    return Raw((q.shape[0], q.shape[1] * 32), TYPES["Q8_0"], content)


def content(metadata: Mapping[str, Any], tensors: Mapping[str, Raw], version: int = 3) -> bytes:
    """The whole file."""
    head = b"GGUF" + struct.pack("<IQQ", version, len(tensors), len(metadata))
    head += b"".join(text(key) + value(item) for key, item in metadata.items())
    data = b""
    for name, raw in tensors.items():
        data += bytes(-len(data) % 32)
        sizes = raw.shape[::-1]
        head += text(name) + struct.pack(f"<I{len(sizes)}QIQ", len(sizes), *sizes, raw.type, len(data))
        data += raw.content
    return head + bytes(-len(head) % 32) + data
