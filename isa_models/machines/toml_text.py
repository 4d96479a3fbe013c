"""TOML of a machine file's values: numbers, texts, lists, inline tables."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

_BARE = re.compile(r"[A-Za-z0-9_-]+")


def assignment(key: str, value: Any) -> str:
    """A line that gives a dotted key a value.

    >>> assignment('instructions.vaddps zmm,*.uops', [["FP2", "FP3"]])
    'instructions."vaddps zmm,*".uops = [["FP2", "FP3"]]\\n'
    """
    return f"{'.'.join(map(name, key.split('.')))} = {inline(value)}\n"


def name(key: str) -> str:
    """A key's part, in quotes where TOML wants them."""
    return key if _BARE.fullmatch(key) else _text(key)


def inline(value: Any) -> str:
    """A value on one line, which reads as the same value.

    >>> inline({"value": 0.1, "source": 'as "read"', "on": True})
    '{value = 0.1, source = "as \\\\"read\\\\"", on = true}'
    """
    if isinstance(value, str):
        return _text(value)
    if isinstance(value, list):
        return f"[{', '.join(map(inline, value))}]"
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{name(key)} = {inline(inner)}" for key, inner in value.items()) + "}"
    return str(value).lower() if isinstance(value, bool) else repr(value)


def _text(value: str) -> str:
    """A basic string, whose escapes are JSON's and one more."""
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
