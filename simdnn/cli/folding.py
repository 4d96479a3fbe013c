"""Text within the width of a terminal: the columns of a table, and lines of help."""

from __future__ import annotations

import re
import shutil
import sys
import textwrap
from collections.abc import Iterable, Sequence

NARROWEST = 12  # characters of a column of words
LONGEST = 36  # of a word that stays whole


def terminal_width() -> int | None:
    """The columns of the terminal that standard output is; None where it is a file or a pipe."""
    return shutil.get_terminal_size().columns if sys.stdout is not None and sys.stdout.isatty() else None


def least(cells: Iterable[str]) -> int:
    """The narrowest that a column of words may get: its longest word stays whole, unless it is a very long one."""
    return max([NARROWEST, *(min(len(word), LONGEST) for cell in cells for word in cell.split())])


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
