"""Rows of instructions as a machine's file writes them: one for all forms with equal figures.

``mnemonic`` and ``form`` are a text or a list of them; a row stands for each mnemonic in each form. Where the source
names the form, it is a pattern: ``{MNEMONIC}`` and ``{OPERANDS}`` stand for both as uops.info writes them.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator, Mapping
from itertools import product
from typing import Any

Row = Mapping[str, Any]
Key = tuple[str, str]  # mnemonic, form

_PATTERN = re.compile(r"\{(MNEMONIC|OPERANDS)\}")
_BITS = {"x": 128, "y": 256, "z": 512}


def names(value: object) -> list[str]:
    """The names that a text, or a list of them, gives; none for what is neither."""
    given = value if isinstance(value, list) else [value]
    found = [name for name in given if isinstance(name, str) and name.strip()]
    return found if len(found) == len(given) else []


def keys(row: Row) -> list[Key]:
    """The (mnemonic, form) that a row stands for.

    >>> keys({"mnemonic": ["vaddps", "vsubps"], "form": "ymm,ymm,ymm"})
    [('vaddps', 'ymm,ymm,ymm'), ('vsubps', 'ymm,ymm,ymm')]
    """
    return list(product(names(row.get("mnemonic")), names(row.get("form"))))


def source_of(pattern: str, key: Key) -> str:
    """The source of one form in a row whose source is a pattern.

    >>> source_of("uops: {MNEMONIC} ({OPERANDS}) EVEX", ("vmovups", "zmm{k},m512"))
    'uops: VMOVUPS (ZMM, K, M512) EVEX'
    """
    if "{" not in pattern:
        return pattern
    return _PATTERN.sub(lambda found: key[0].upper() if found[1] == "MNEMONIC" else operands(key[1]), pattern)


@functools.cache  # a machine has thousands of rows, of some hundred forms
def operands(form: str) -> str:
    """A form as uops.info writes it.

    >>> operands("zmm{k},zmm,m32bcst"), operands("r64,i8")
    ('ZMM, K, ZMM, M32_1to16', 'R64, I8')
    """
    widest = max((_BITS.get(part[0], 0) for part in form.split(",") if part[1:3] == "mm"), default=0)
    found = []
    for part in form.split(","):
        name = part.removesuffix("{k}")
        bits = name[1:].removesuffix("bcst")
        broadcast = name.endswith("bcst") and bits.isdecimal() and int(bits)
        found.append(f"M{bits}_1to{widest // int(bits)}" if broadcast else name.upper())
        found += ["K"] if name != part else []
    return ", ".join(found)


def single(row: Row) -> Iterator[tuple[Key, dict[str, Any]]]:
    """A row of its own for each form that a row stands for."""
    for key in keys(row):
        mnemonic, form = key
        yield key, {**row, "mnemonic": mnemonic, "form": form, "source": source_of(str(row.get("source", "")), key)}
