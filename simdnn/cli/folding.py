"""Text within the width of a terminal: the columns of a table, and lines of help."""

from __future__ import annotations

import re
import shutil
import sys
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import zip_longest

NARROWEST = 12  # characters of a column of words
LONGEST = 36  # of a word that stays whole
NOTHING = "-"  # in a cell
INDENT = " " * 4  # of columns that stand below their row


def terminal_width() -> int | None:
    """The columns of the terminal that standard output is; None where it is a file or a pipe."""
    return shutil.get_terminal_size().columns if sys.stdout is not None and sys.stdout.isatty() else None


@dataclass(frozen=True)
class Column:
    """A column of a table as text: its name, a cell for each row, and whether they stand to the right."""

    name: str
    cells: list[str]
    right: bool

    @property
    def width(self) -> int:
        """Characters of its longest line."""
        return max(map(len, [self.name, *self.cells]))

    @property
    def whole(self) -> int:
        """The narrowest that it may get with its words whole, unless they are very long ones; numbers stay as wide."""
        words = [min(len(word), LONGEST) for cell in [self.name, *self.cells] for word in cell.split()]
        return self.width if self.right else min(self.width, max([NARROWEST, *words]))

    @property
    def narrowest(self) -> int:
        """The narrowest that it may get with its words cut."""
        return self.width if self.right else min(self.width, NARROWEST)


def rows(columns: Sequence[Column], most: int | None) -> list[str]:
    """The lines of a table, two blanks between columns, its head first.

    Of `most` characters each, where that is given: words are folded; columns from the first on that finds no place
    stand below their row, each behind its name.

    >>> named = {"kernel": "gemm:avx2", "isa": "avx2", "takes": "narrow"}
    >>> print(*rows([Column(name, [cell], False) for name, cell in named.items()], 20), sep=chr(10))
    kernel     isa
    gemm:avx2  avx2
        takes: narrow
    """
    widths, beside = _widths(columns, most)
    shown, below = columns[:beside], columns[beside:]
    lines = _line([column.name for column in shown], shown, widths)
    for number in range(len(columns[0].cells) if columns else 0):
        lines += _line([column.cells[number] for column in shown], shown, widths)
        if below:
            said = [f"{column.name}: {column.cells[number]}" for column in below if column.cells[number] != NOTHING]
            lines += [f"{INDENT}{line}" for line in _filled(said, (most or 0) - len(INDENT))]
    return lines


def _filled(parts: Sequence[str], most: int) -> list[str]:
    """Lines of parts that stay whole, two blanks between, but where one is longer than a line."""
    lines: list[str] = []
    for part in parts:
        if lines and len(lines[-1]) + 2 + len(part) <= most:
            lines[-1] += f"  {part}"
        else:
            lines += fold(part, most)
    return lines


def _widths(columns: Sequence[Column], most: int | None) -> tuple[list[int], int]:
    """The widths of the columns that a row shows beside one another, and how many columns these are."""
    widths = [column.width for column in columns]
    if most is None:
        return widths, len(columns)
    for floors in ([column.whole for column in columns], [column.narrowest for column in columns]):
        if found := narrowed(widths, floors, most):
            return found, len(columns)
    beside = len(columns)
    while beside > 1 and sum(column.whole for column in columns[:beside]) + 2 * (beside - 1) > most:
        beside -= 1
    return narrowed(widths[:beside], [column.whole for column in columns[:beside]], most) or widths[:1], beside


def _line(cells: Sequence[str], columns: Sequence[Column], widths: Sequence[int]) -> list[str]:
    """A row in as many lines as its longest cell takes."""
    parts = [fold(cell, width) for cell, width in zip(cells, widths, strict=True)]
    lines = []
    for texts in zip_longest(*parts, fillvalue=""):
        padded = (
            text.rjust(width) if column.right else text.ljust(width)
            for text, column, width in zip(texts, columns, widths, strict=True)
        )
        lines.append("  ".join(padded).rstrip())
    return lines


def narrowed(widths: Sequence[int], floors: Sequence[int], most: int) -> list[int]:
    """Widths of columns that fit into `most` characters together: the widest gives way first, none below its floor.
    Nothing where they can't.

    >>> narrowed([6, 40, 30], [6, 4, 4], 60), narrowed([6, 40, 30], [6, 39, 30], 60)
    ([6, 25, 25], [])
    """
    gaps = 2 * (len(widths) - 1)
    found = list(widths)
    while sum(found) + gaps > most:
        able = [i for i, low in enumerate(floors) if found[i] > low]
        if not able:
            return []
        found[max(able, key=lambda i: found[i])] -= 1
    return found


def fold(text: str, width: int) -> list[str]:
    """The lines of a cell."""
    return [text] if len(text) <= width else textwrap.wrap(text, width, break_on_hyphens=False) or [""]


def fitted(text: str, width: int) -> str:
    """Text whose lines are no longer than `width`: what a line has too much stands below its last column.

    >>> print(fitted("  gops      1 MAC is 2 operations; inputs and outputs once each", 40))
      gops      1 MAC is 2 operations;
                inputs and outputs once each
    """
    lines = []
    for line in text.split("\n"):
        if len(line) <= width:
            lines.append(line)
            continue
        head = re.match(r" *(?:\S+(?: \S+)*  +)?", line)
        indent = head.end() if head and head.end() <= width // 2 else len(line) - len(line.lstrip())
        lines += textwrap.wrap(
            line,
            width,
            subsequent_indent=" " * indent,
            break_on_hyphens=False,
            break_long_words=False,
            drop_whitespace=True,
        )
    return "\n".join(lines)
