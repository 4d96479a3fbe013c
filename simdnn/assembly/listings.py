"""Listings without bytes, as gdb, `objdump -d --no-show-raw-insn` and hsdis (Java) print them, brought to assembly
text; of IDA's lines the addresses are left out.
"""

from __future__ import annotations

import re

from simdnn.assembly.dialects import Symbols

_HEAD = re.compile(r"[0-9a-f]{8,16} <(.+)>:\s*|Dump of assembler code for function (.+?):\s*")
_LISTED = re.compile(
    r"(?:=>)?\s*(?:0x)?(?P<address>[0-9a-f]+)(?: <(?:[^<>]+)?\+\d+>)?:\s+(?:(?:[0-9a-f]{2}\s)+\s*)?"
    r"(?P<code>[a-z{][^#;]*[^#;\s])\s*(?:[#;].*)?"
)
_BRANCH = re.compile(
    r"(?P<jump>(?:(?:bnd|notrack|data16|[cd]s)\s+)*(?:j[a-z]+|call[a-z]?|loopn?[ez]?)(?:,p[nt])?\s+)"
    r"(?:0x)?(?P<to>[0-9a-f]+)(?:\s+<(?P<name>.+)>)?"
)
_RELOCATION = re.compile(r"\s*[0-9a-f]+:\s+R_X86_64_(?:PLT|PC)32\s+(\S+)-0x4\s*")
#: lines of a listing that was pasted in part, without a head: gdb's have an offset, objdump's have bytes, hsdis's have
#: addresses of 64 bits, and comments that may be alone on a line
_PASTED = re.compile(
    r"\s*0x[0-9a-f]{16}:\s+[a-z{].*|\s*;.*|"
    r"(?:=>)?\s*0x[0-9a-f]+ <(?:[^<>]+)?\+\d+>:\s.*|\s*[0-9a-f]+:\s+(?:[0-9a-f]{2} )*[0-9a-f]{2}\s+[a-z{].*|"
    r"\s*[0-9a-f]+:\t(?:[0-9a-f]{2} )*[0-9a-f]{2}\s*"
)
_IDA = re.compile(r"^\.\w+:[0-9A-F]{8,16}(?: |$)", re.MULTILINE)
_OFFSET = re.compile(r".*\+(?:0x[0-9a-f]+|\d+)")


def is_listing(text: str) -> bool:
    """Whether a text has the heads of functions that these tools print, or all its lines are some of theirs."""
    lines = [line for line in text.splitlines() if line.strip()]
    heads = any("<" in line and _HEAD.fullmatch(line) or line.startswith("Dump of") for line in lines)
    return heads or bool(lines) and all(map(_PASTED.fullmatch, lines))


def without_addresses(text: str) -> str:
    """The text without what IDA puts in front of every line; another text as it is.

    >>> without_addresses(".text:0000000140001010 dec ecx")
    'dec ecx'
    """
    return _IDA.sub("", text) if _IDA.match(text.lstrip()) else text


def of_listing(text: str) -> str:
    """The listing as assembly text, line for line: instructions, and a label where a branch goes to.

    >>> print(of_listing("00000010 <f>:\\n  10:\\tdec %ecx\\n  12:\\tjne 10 <f>"))
    .globl f; f:
    .L10: dec %ecx
    jne .L10
    """
    lines = text.splitlines()
    heads, listed = map(_HEAD.fullmatch, lines), [_LISTED.fullmatch(line) for line in lines]
    branches = [one and _BRANCH.fullmatch(one["code"]) for one in listed]
    own = {int(one["address"], 16) for one in listed if one}
    aims = own & {int(one["to"], 16) for one in branches if one}
    moved = [_RELOCATION.fullmatch(line) for line in (*lines[1:], "")]
    symbols, found = Symbols(), []
    for head, one, branch, other in zip(heads, listed, branches, moved, strict=True):
        if head:
            name = symbols.of(head[1] or head[2])
            found.append(f".globl {name}; {name}:")
        elif one:
            label = f".L{int(one['address'], 16):x}: " if int(one["address"], 16) in aims else ""
            found.append(label + (_aimed(branch, other and other[1], own, symbols) if branch else one["code"]))
        else:
            found.append("")
    return "\n".join(found)


def _aimed(branch: re.Match[str], other: str | None, own: set[int], symbols: Symbols) -> str:
    """A branch to a label, or to the function `other` that a relocation names, or that the listing does."""
    address, name = int(branch["to"], 16), other or branch["name"] or ""
    if other or name and address not in own and not _OFFSET.fullmatch(name):
        return f"{branch['jump']}{symbols.of(name.removesuffix('@plt'))}"
    return f"{branch['jump']}.L{address:x}"
