"""Frames that print what they are for within 80 columns, where pandas would print two columns and dots."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import pandas as pd

WIDTH = 80
_ROWS = 20
_TEXT = 16  # characters that a column of text keeps at least
_STRINGS = pd.Series([], dtype="str").array  # pd.array of it would be fixed in width before pandas 3


class ShownFrame(pd.DataFrame):
    """A frame whose text has the `printed` columns, rounded and cut to 80 characters a line; all else is as in pandas.

    Rows that are chosen or sorted print alike; a frame of other columns prints as in pandas.
    """

    _metadata = ["printed", "whole"]
    printed: tuple[str, ...] = ()
    whole: tuple[str, ...] = ()  # the columns of the frame that was made

    @property
    def _constructor(self) -> type[ShownFrame]:
        return ShownFrame

    def __repr__(self) -> str:
        if self.whole != tuple(self.columns):
            return super().__repr__()
        cells = {name: [_text(value) for value in self[name].head(_ROWS)] for name in self.printed}
        widths = {name: max(map(len, [name, *found])) for name, found in cells.items()}
        texts = [name for name in widths if not pd.api.types.is_numeric_dtype(self[name])]
        least = widths | {name: min(widths[name], max(_TEXT, len(name))) for name in texts}
        shown = list(widths)
        while len(shown) > 1 and _over(least[name] for name in shown) > 0:
            shown.pop()
        for name in sorted({*texts} & {*shown}, key=lambda name: -widths[name]):  # the longest texts give way first
            over = _over(widths[name] for name in shown)
            widths[name] -= max(0, min(over, widths[name] - least[name]))
        lines = [
            "  ".join(_cell(row, widths[name], name in texts) for name, row in zip(shown, cut, strict=True)).rstrip()
            for cut in zip(*([name, *cells[name]] for name in shown), strict=True)
        ]
        besides = [str(name) for name in self.columns if name not in shown]
        more = [f"columns besides: {', '.join(besides)}"] if besides else []
        more += [f"{len(self) - _ROWS} rows more"] if len(self) > _ROWS else []
        return "\n".join([*lines, *textwrap.wrap(f"({'; '.join(more)})" if more else "", WIDTH)])

    def _repr_html_(self) -> str | None:
        """Pandas's table, the `printed` columns first: of many it leaves out those in the middle."""
        frame = pd.DataFrame(self)
        if self.whole == tuple(self.columns):
            frame = frame[[*self.printed, *(name for name in self.whole if name not in self.printed)]]
        html: str | None = frame._repr_html_()  # type: ignore[operator]  # pandas's own, which its stubs lack
        return html


def shown(frame: pd.DataFrame, columns: Sequence[str] = ()) -> ShownFrame:
    """The frame with its attributes, as one that prints these columns (all) within 80 characters."""
    found = ShownFrame(frame)
    found.whole = tuple(frame.columns)
    found.printed = tuple(columns) or found.whole
    found.attrs.update(frame.attrs)
    return found


def framed(columns: Mapping[str, tuple[str, Sequence[Any]]], printed: Sequence[str]) -> ShownFrame:
    """A frame of `columns`, each with its type and its values, and those of them that it prints.

    >>> framed({"what": ("str", ["a", "b"]), "cycles": ("float64", [1, 2.5])}, ["cycles", "what"])
    cycles  what
         1  a
       2.5  b
    """
    arrays = [_array(column, kind) for kind, column in columns.values()]
    lines = pd.RangeIndex(len(arrays[0]))
    found: ShownFrame = ShownFrame._from_arrays(arrays, _names(*columns)[:], lines, verify_integrity=False)  # type: ignore[attr-defined]
    found.whole, found.printed = tuple(columns), tuple(printed)
    return found


@lru_cache(maxsize=64)
def _names(*names: str) -> pd.Index[str]:
    """The names of columns; who has a frame may give the index a name of its own, so each has another."""
    return pd.Index(names)


def _array(column: Sequence[Any], kind: str) -> Any:
    """The values of a column; `pd.array` would look anew for the kind of strings each time. Those of a tuple, which
    other frames may have, too, are made once, and stand in an array of this frame's own.
    """
    if kind != "str":
        return np.array(column, kind)
    return _texts(column).copy() if type(column) is tuple else _strings(column)


@lru_cache(maxsize=256)
def _texts(column: tuple[str, ...]) -> Any:
    return _strings(column)


def _strings(column: Sequence[str]) -> Any:
    return _STRINGS._from_sequence(column, dtype=_STRINGS.dtype)  # type: ignore[attr-defined]  # an extension's


def _over(widths: Iterable[int]) -> int:
    """The characters that columns of these widths take beyond a line."""
    return sum(width + 2 for width in widths) - 2 - WIDTH


def _text(value: Any) -> str:
    if isinstance(value, float):
        return "-" if value != value else f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"
    return "-" if value is None else str(value)


def _cell(text: str, width: int, left: bool) -> str:
    cut = text if len(text) <= width else text[: width - 1] + "…"
    return cut.ljust(width) if left else cut.rjust(width)
