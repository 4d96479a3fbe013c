"""How the forms of a family are named: one template writes a form's fields into its name and reads them out of it."""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Any

WORD = r"\w+"  # a field of letters, digits and underscores
NAME = r"[\w.]+"  # a field that is an instruction's name, dots and all
_TOKEN = re.compile(r"\{(\w+)\}|([^{}]+)")


class Naming:
    """A template such as "{unit}.{m}x{n}.{way}", and for each field that is no number the words that it may be.

    A part in brackets is there where its field is: it is left out for a field that is "".

    >>> dpas = Naming("dpas.{type}.x{n}[.{model}]", type=("s8", "bf16"), model=WORD)
    >>> dpas.of(type="s8", n=16, model="")
    'dpas.s8.x16'
    >>> dpas.read("dpas.bf16.x8.pairwise")
    {'type': 'bf16', 'n': 8, 'model': 'pairwise'}
    >>> dpas.read("dpas.f64.x8") is None
    True
    """

    def __init__(self, template: str, **words: str | Collection[str]) -> None:
        self.words = words
        self.parts = [part for part in re.split(r"\[(.*?)\]|([^[]+)", template) if part]
        self.optional = [f"[{part}]" in template for part in self.parts]
        found = (
            f"(?:{self._pattern(part)})?" if optional else self._pattern(part)
            for part, optional in zip(self.parts, self.optional, strict=True)
        )
        self.pattern = re.compile("".join(found))

    def _pattern(self, part: str) -> str:
        return "".join(
            f"(?P<{field}>{self._values(field)})" if field else re.escape(text) for field, text in _TOKEN.findall(part)
        )

    def _values(self, field: str) -> str:
        words = self.words.get(field, r"\d+")
        return words if isinstance(words, str) else "|".join(map(re.escape, words))

    def of(self, **fields: str | int) -> str:
        """The name of a form with these fields."""
        return "".join(
            part.format(**fields)
            for part, optional in zip(self.parts, self.optional, strict=True)
            if not optional or all(fields[field] for field, _ in _TOKEN.findall(part) if field)
        )

    def read(self, name: str) -> dict[str, Any] | None:
        """The fields of a form's name, those left out as ""; None for any other name."""
        if (match := self.pattern.fullmatch(name)) is None:
            return None
        return {key: (text or "") if key in self.words else int(text) for key, text in match.groupdict().items()}
