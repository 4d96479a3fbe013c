"""Words for reading files that may be truncated, hostile or huge: one line says what is wrong."""

from __future__ import annotations

import errno
import json
from collections.abc import Sequence
from math import prod
from pathlib import Path
from typing import Any

from isa_models.errors import InvalidArgument
from isa_models.host import pipes

MOST_TEXT = 64 << 20  # bytes of a file that somebody may have written by hand
_MOST_ELEMENTS = 1 << 33
_MOST_AXES = 32


def plain(path: Path, most: int = MOST_TEXT) -> bytes:
    """The bytes of a file of at most `most`; `OSError` for others, and for a device or a pipe, which may never end."""
    pipes.refuse(path)
    with path.open("rb") as file:
        data = file.read(most + 1)
    if len(data) > most:
        raise OSError(errno.EFBIG, f"it has more than {most >> 20} MiB")
    return data


def content(path: Path) -> bytes:
    """A file's bytes."""
    try:
        return path.read_bytes()
    except (OSError, ValueError) as error:
        raise InvalidArgument(f"{path.name} cannot be read ({getattr(error, 'strerror', None) or error})") from None


def json_object(text: bytes, what: str) -> dict[str, Any]:
    """The JSON object that `text` holds."""
    try:
        found = json.loads(text.decode("utf-8"))
    except RecursionError:
        raise InvalidArgument(f"{what} is nested too deep") from None
    except ValueError as error:  # no UTF-8, no JSON, or an integer of thousands of digits
        raise InvalidArgument(f"{what} is no JSON, or it is truncated ({str(error):.80})") from None
    if not isinstance(found, dict):
        raise InvalidArgument(f"{what} holds a JSON {type(found).__name__}; an object is needed")
    return found


def field(parent: Any, key: str, kind: type, what: str) -> Any:
    """`parent[key]`, which must be of a type; an integer will do for a float."""
    value = parent.get(key) if isinstance(parent, dict) else None
    if kind is float and isinstance(value, int) and not isinstance(value, bool) and abs(value) < 1 << 53:
        value = float(value)
    if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
        raise InvalidArgument(f"{what}: {key!r} is {str(value):.40}; a value of type {kind.__name__} is needed")
    return value


def shape(value: Any, what: str) -> tuple[int, ...]:
    """Dimensions as a file states them, no more elements than fit any memory."""
    plain = isinstance(value, Sequence) and all(type(n) is int and n >= 0 for n in value)
    if not plain or len(value) > _MOST_AXES or prod(value) > _MOST_ELEMENTS:
        raise InvalidArgument(f"{what} of shape {str(value):.80}; at most {_MOST_ELEMENTS} elements are allowed")
    return tuple(value)
