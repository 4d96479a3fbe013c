"""The output of `perf annotate`, brought to a listing: each line's share of samples is left out."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

#: --stdio: a share or none, a colon, the number of a line of source or none, and what objdump printed
_STDIO = re.compile(r"\s*(?:\d+\.\d+)?\s+:\s(?:\s*\d+\s{2,})?\s*(.*)")
_LISTED = re.compile(r"([0-9a-f]+:)\s+((?:[0-9a-f]{2} )*[0-9a-f]{2}\s\s+|)([a-z{].*|)")
_HEAD = re.compile(r"[0-9a-f]{8,16} <.+>:")
#: --stdio2 and the terminal's page: an address stands where a branch goes to alone, an arrow at a branch, and code in
#: one column
_PAGE = re.compile(r"\s*(?:\d+\.\d+\s*)?(?:│\s*)?(?:([0-9a-f]+):\s*)?(?:[↑↓←→]\s*)?(?<=\s)")
_ARROW = re.compile(r"[^↑↓←→]*[↑↓←→]\s+")
_BRANCH = re.compile(r"(j[a-z]+|loopn?[ez]?)(\s+)([0-9a-f]+)(?:\s+<.*>)?")


def without_shares(text: str) -> str:
    """The listing below perf's shares, line for line; another text as it is.

    >>> without_shares(" Percent | Source code\\n 0.00 : 1130: xor %eax,%eax\\n : 5 i++;").splitlines()
    ['', '1130:\\txor %eax,%eax']
    >>> print(without_shares("Percent│\\n 98.2 │10:   dec %ecx\\n      │    i--;\\n  1.8 │    ↑ jne  10"))
    <BLANKLINE>
    .L10: dec %ecx
    <BLANKLINE>
    jne  .L10
    """
    lines = text.splitlines()
    if any(line.lstrip().startswith("Percent |") for line in lines[:4]):
        return "\n".join(map(_of_stdio, lines))
    if any(line.strip(" │") == "Percent" for line in lines[:4]):
        return "\n".join(_of_page(lines))
    return text


def _of_stdio(line: str) -> str:
    rest = found[1] if (found := _STDIO.fullmatch(line)) else ""
    if listed := _LISTED.fullmatch(rest):
        return "\t".join(part.strip() for part in listed.groups() if part)  # tabs are objdump's
    return rest if _HEAD.fullmatch(rest) else ""


def _of_page(lines: Sequence[str]) -> Iterator[str]:
    column = next((found.end() for line in lines if (found := _ARROW.match(line))), 0)
    for line in lines:
        head, code = _PAGE.fullmatch(line[:column]), line[column:].rstrip()
        if not head or not code[:1].isalpha():
            yield ""
            continue
        branch = _BRANCH.fullmatch(code)
        label = f".L{head[1]}: " if head[1] else ""
        yield label + (f"{branch[1]}{branch[2]}.L{branch[3]}" if branch else code)
