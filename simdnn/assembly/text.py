"""Assembly text as compilers and people write it: the lines that are code, and their form for the assembler."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal

from isa_models.errors import InvalidArgument, unknown_name
from simdnn.assembly.decode import MNEMONICS, REGISTERS
from simdnn.assembly.dialects import LINE_END
from simdnn.assembly.elf import LINE

Syntax = Literal["intel", "att"]
SYNTAX_LINE = {"intel": ".intel_syntax noprefix", "att": ".att_syntax prefix"}
MOST_TEXT = 1 << 23  # characters, debug information and data among them
MOST_LINE = 1 << 16
MOST_CODE_TEXT = 1 << 20  # characters of what the assembler gets

_APART = 1 << 20  # bytes between labels of data: more than a loop's few iterations look ahead

_UNREADABLE = re.compile("[\x00-\x08\x0b\x0e-\x1f\x7f\ud800-\udfff]")
_REMARK = re.compile("#.*")  # in which compilers repeat a byte of data as a character
_PIECE = re.compile(r"""[^"'/#;]+|"(?:\\.|[^"\\])*"?|'(?:\\.|[^\\])'?|/\*|//|#|;[;\s]*|.""", re.DOTALL)
_LABEL = re.compile(r"\s*([A-Za-z_.$?][\w.$@?]*|\d+)\s*:(?!:)\s*")
_DIRECTIVE = re.compile(r"\.([A-Za-z_]\w*)(.*)", re.DOTALL)
_ASSIGNMENT = re.compile(r"(\.|[A-Za-z_.$][\w.$]*)\s*==?(?!=)")
_SYMBOL_SET = re.compile(r"\s*([A-Za-z_.$][\w.$]*)")
_KEPT = {
    "byte",
    "short",
    "word",
    "value",
    "hword",
    "2byte",
    "long",
    "int",
    "4byte",
    "quad",
    "8byte",
    "set",
    "equ",
    "intel_syntax",
    "att_syntax",
}
_PASSED_OVER = re.compile(
    r"globl|global|type|size|p2align\w?|align|balign\w?|cfi_\w+|file|loc\w*|ident|weak\w*|hidden|internal|protected"
    r"|local|addrsig\w*|loh|L?func_\w+|code64|arch|cpu|comm|lcomm|symver|version|def|scl|endef|seh_\w+|cv_\w+"
    r"|build_version|\w+_version_min|subsections_via_symbols|private_extern|weak_\w+|no_dead_strip|zerofill"
    r"|data_region|end_data_region|cg_profile|pseudoprobe|lto_discard|alt_entry|indirect_symbol|gnu_attribute|loc_\w+"
)
_DATA_SECTIONS = {"data", "bss", "rodata", "const", "cstring", "literal4", "literal8", "literal16", "tdata", "tbss"}
_MARKS = ("LLVM-MCA-", "OSACA-", "SIMDNN-")
_JUMP = re.compile(
    r"(?:(?:bnd|notrack)\s+)?(?:j[a-z]+|loopn?[ez]?)(?:,p[nt])?\s+(?:(?:short|near)\s+)?(?:ptr\s+)?"
    r"([A-Za-z_$][\w.$]*|\.[\w.$]+|\d+[bf])\s*",
    re.IGNORECASE,
)
_TEMPORARY = re.compile(r"(?<![\w.$%])\.L[\w.$]+")
_ATT_REGISTER = re.compile(r"%[a-z]")
#: spellings of prefixes, and of conditions, that the decoder's list of mnemonics lacks
_OTHER_MNEMONIC = re.compile(r"rep(n?[ez])?|lock|bnd|notrack|data16|(j|set|cmov)n?([abgl]e?|[cpsoze]|p[eo])|sal|retq?")
_WORDS = re.compile(r"([a-z0-9]+)(?:\s+(?!(?:byte|[xyz]mmword|[dqt]?word|offset|ptr)\b)([a-z]\w*))?")
_BEFORE_A_NAME = re.compile(r"j\w+|call|loopn?[ez]?|rep\w*|lock|bnd|notrack|data16")
_WIDE = re.compile(r"\b([xyz])mm\d+", re.IGNORECASE)
_ELEMENT = re.compile(r"(?<=2)(?:u?(?:qq|dq|w)|pd|ps|ph|bf16)", re.IGNORECASE)
_BITS = {"x": 128, "y": 256, "z": 512, "word": 16, "dword": 32, "qword": 64}
_BITS |= {"qq": 64, "pd": 64, "dq": 32, "ps": 32, "w": 16, "ph": 16, "bf16": 16}


def _broadcast(found: re.Match[str]) -> str:
    """GNU's "DWORD BCST [rax]" with the count that LLVM asks for: "dword ptr [rax]{1to16}".

    The count is that of the elements in the widest register; where a conversion has one register, it is the result.
    """
    size, place, count = found[1].lower(), found[2], found[3]
    mnemonic, _, operands = found.string.partition(" ")
    wide = max((_BITS[one.lower()] for one in _WIDE.findall(operands)), default=0)
    made = _ELEMENT.search(mnemonic) if len(_WIDE.findall(operands)) == 1 else None
    count = count or f"{{1to{wide // _BITS[made[0].lower().lstrip('u') if made else size]}}}"
    return f"{size} ptr {place}{count}"


#: what others write and LLVM's assembler refuses, or takes for another thing: gcc's movsx of 32 bits and its FLAT,
#: LLVM 14's gathers, GNU's broadcasts and roundings, the manual's r8l (Intel syntax), Windows' constants
_OTHERWISE: tuple[tuple[re.Pattern[str], str | Callable[[re.Match[str]], str]], ...] = (
    (re.compile(r"\b([dq]?word) bcst (?:ptr )?(\[[^]]*\])(\{1to\d+\})?", re.IGNORECASE), _broadcast),
    (re.compile(r"(?<=\w)\{(r[nduz]-)?sae\}", re.IGNORECASE), r", {\1sae}"),
    (re.compile(r"(?<![\w.$%@\"])(r(?:8|9|1[0-5]))l(?![\w.$@\"])", re.IGNORECASE), r"\1b"),
    (re.compile(r"movsx(?=\s+r(?:\w\w|\d+)\s*,\s*(?:dword ptr\b|e\w\w$|r\d+d$))", re.IGNORECASE), "movsxd"),
    (re.compile(r"\boffset flat:", re.IGNORECASE), "offset "),
    (re.compile(r"(?<=gather|catter)(\w+ .*?)\b[xyz]mmword ptr (?=\[)", re.IGNORECASE), r"\1"),
    (re.compile(r"\b(__(?:real|[xyz]mm))@"), r"\1_"),
)
_QUOTES = re.compile(r"\"[^\"]*\"|'[^']'")
#: what is written like a register; LLVM takes one that there is not for a place in memory (Intel syntax)
OTHER_MACHINE = "x86-64 is read, and this looks like another CPU's or a GPU's"
#: what stands in PTX, SASS and Xe's assembly, and in ARM's, but in no x86 text
_ELSEWHERE = re.compile(
    r"(?:^|:\s*|@!?%?\w+\s+)[A-Za-z]\w*\.[\w.]+\s|\(\d+\|M\d+\)|\{\s*[%v]\w|\bza?\d+\.[bhsdq]\b|%(?:f|rd|p)\d"
)
_LIKE_REGISTERS = re.compile(r"(?<![\w.$%@])(?:([xyz]?mm|tmm|k)\d+|r\d+[bdwl]?)(?![\w.$@])", re.IGNORECASE)
_OF_OTHERS = re.compile(r"movsx|flat:|gather|scatter|__|bcst|sae|r\d+l", re.IGNORECASE)


@dataclass(frozen=True)
class CleanText:
    """The text that the assembler gets: as many lines as that has, others than code blank; labels nobody sets."""

    syntax: Syntax
    lines: tuple[str, ...]
    before: tuple[str, ...]  # labels set before the first line
    behind: tuple[str, ...]
    elsewhere: tuple[str, ...]  # labels of data
    functions: tuple[tuple[int, str], ...] = ()  # the line of each one's label, and its name, in the text's order
    labels: tuple[tuple[int, str], ...] = ()  # the line and name of each target of a branch

    def place(self, line: int) -> str:
        """A line, and of several functions the one that it is in."""
        inside = [name for first, name in self.functions if first <= line]
        return f"line {line} ({inside[-1]})" if inside and len(self.functions) > 1 else f"line {line}"

    @property
    def listing(self) -> str:
        """The assembler's input; line 1 is not the text's."""
        head = "; ".join([SYNTAX_LINE[self.syntax], *(f"{label}:" for label in self.before)])
        tail = [f"{label}:" for label in self.behind]
        if self.elsewhere:
            tail += [".bss", *(f"{label}: .zero {_APART}" for label in self.elsewhere)]
        return "\n".join([head, *self.lines, *tail]) + "\n"


def read_text(text: str, syntax: Syntax | None = None, function: str | None = None) -> CleanText:
    """The code of a text, or of one of its functions; the syntax is looked for where none is named.

    Directives that make no code are passed over, and what stands in sections of data; where comments mark a region
    (LLVM-MCA-BEGIN, OSACA-BEGIN or SIMDNN-BEGIN, to the same with END), it alone counts. Raises `InvalidArgument`
    with the line of what cannot be read: directives that would need an assembler's full language, above all.
    """
    if syntax is not None and syntax not in SYNTAX_LINE:
        raise InvalidArgument(f"syntax: met {syntax!r}, allowed are {', '.join(map(repr, SYNTAX_LINE))}")
    if len(text) > MOST_TEXT:
        raise InvalidArgument(f"the text has {len(text)} characters, at most {MOST_TEXT} are read")
    if _UNREADABLE.search(text) and (bad := _UNREADABLE.search(_REMARK.sub("", text))):
        raise InvalidArgument(f"the text is no assembly: it holds the character {bad[0]!r}")
    lines = LINE_END.split(text)
    found = _Reading(syntax or syntax_of(lines), _region(lines))
    for number, line in enumerate(lines, 1):
        if len(line) > MOST_LINE and found.sections[-1]:
            raise InvalidArgument(f"line {number} has {len(line)} characters, at most {MOST_LINE} are read")
        found.line(number, line[:MOST_LINE])
        if found.ended:
            break
    if function is not None:
        found.keep_function(function)
    if (size := sum(map(len, found.lines))) > MOST_CODE_TEXT:
        raise InvalidArgument(
            f"the text has {size} characters of code, at most {MOST_CODE_TEXT} are read; name a function, or mark a "
            "part (# LLVM-MCA-BEGIN, # LLVM-MCA-END)"
        )
    return found.source()


def syntax_of(lines: Sequence[str]) -> Syntax:
    """AT&T where the text says so or registers bear a %, else Intel."""
    for line in lines:
        if match := re.match(r"\s*\.(intel|att)_syntax\b", line):
            return "intel" if match[1] == "intel" else "att"
    return "att" if any(_ATT_REGISTER.search(line.partition("#")[0]) for line in lines) else "intel"


def _region(lines: Sequence[str]) -> range:
    """The numbers of the lines that count, from 1 on: those between marks, else all."""
    begin, end = (
        [i for i, line in enumerate(lines, 1) if word in line and any(f"{mark}{word}" in line for mark in _MARKS)]
        for word in ("BEGIN", "END")
    )
    if len(begin) > 1 or len(end) != len(begin) or begin and end[0] < begin[0]:
        raise InvalidArgument(f"marks: met {len(begin)} BEGIN and {len(end)} END; one region is read, BEGIN before END")
    return range(begin[0] + 1, end[0]) if begin else range(1, len(lines) + 1)


@dataclass
class _Reading:
    """The lines so far, and which section the next one is in."""

    syntax: Syntax
    region: range
    lines: list[str] = field(default_factory=list)
    statements: list[tuple[int, str]] = field(default_factory=list)  # with their lines' numbers
    labels: dict[str, int] = field(default_factory=dict)
    functions: dict[str, None] = field(default_factory=dict)
    sections: list[bool] = field(default_factory=lambda: [True])  # whether it holds code; the last is the current one
    before: bool = True  # the section before, which .previous goes back to
    comment: bool = False
    ended: bool = False

    def line(self, number: int, line: str) -> None:
        """Read a line."""
        kept: list[str] = []
        for statement in self._split(line):
            kept += self._statement(number, statement)
        if kept and kept[0].endswith(":"):
            kept.insert(0, f"{LINE}{number}:")
        self.lines.append(" ".join(part if part.endswith(":") else f"{part};" for part in kept).rstrip(";"))

    def _split(self, line: str) -> list[str]:
        """The statements of a line, comments left out."""
        found: list[str] = []
        parts: list[str] = []
        at = 0
        while at < len(line):
            if self.comment:
                end = line.find("*/", at)
                if end < 0:
                    break
                self.comment, at = False, end + 2
                continue
            piece = _PIECE.match(line, at)
            assert piece is not None
            at = piece.end()
            if piece[0] in ("#", "//"):
                break
            if piece[0][0] == ";":
                first = not found and not "".join(parts).strip()
                if self.syntax == "intel" and (first or not is_statement(line[at : at + 80].lower())):
                    break  # a comment, as in MASM and NASM
                found.append("".join(parts))
                parts = []
            elif piece[0] == "/*":
                self.comment = True
                parts.append(" ")
            else:
                parts.append(piece[0])
        return [*found, "".join(parts)]

    def _statement(self, number: int, text: str) -> Iterator[str]:
        """The part of a statement that the assembler gets: labels and code."""
        counts, at = number in self.region, 0
        while label := _LABEL.match(text, at):
            at = label.end()
            if counts and self.sections[-1]:
                self.labels.setdefault(label[1], number)
                yield f"{label[1]}:"
        text = " ".join(text[at:].split())
        if not text or self.ended:
            return
        if text[0] == "." and (directive := _DIRECTIVE.match(text)):
            counts = self._directive(number, directive[1], directive[2], counts)
        elif (assigned := _ASSIGNMENT.match(text)) and assigned[1] == ".":
            raise InvalidArgument(f"line {number}: {text[:60]!r} moves the place of the code, which is not read")
        elif counts and self.sections[-1] and not (text[0].isascii() and text[0].isalpha() or text[0] in "_{$"):
            raise InvalidArgument(f"line {number}: no instruction, label or directive starts like {text[:60]!r}")
        if counts and self.sections[-1]:
            plain = _QUOTES.sub("", text)
            if any(plain.count(opens) != plain.count(closes) for opens, closes in ("[]", "()")):  # LLVM reads on
                raise InvalidArgument(f"line {number}: a bracket without its other half: {text[:60]!r}")
            for pattern, spelled in _OTHERWISE if _OF_OTHERS.search(text) else ():
                text = pattern.sub(spelled, text)
            self.statements.append((number, text))
            yield text

    def _directive(self, number: int, name: str, rest: str, counts: bool) -> bool:
        """Follow a directive; whether the assembler gets it."""
        if self._section(name, rest) or not self.sections[-1]:
            return False
        if name == "end":
            self.ended = True
            return False
        if name in ("globl", "global") or name == "type" and rest.endswith(("@function", "%function")):
            self.functions[rest.partition(",")[0].strip()] = None
        if name in ("set", "equ") and (symbol := _SYMBOL_SET.match(rest)) and symbol[1] == ".":
            raise InvalidArgument(f"line {number}: '.{name}' moves the place of the code, which is not read")
        if _PASSED_OVER.fullmatch(name):
            return False
        if name not in _KEPT and counts:
            raise InvalidArgument(
                f"line {number}: directive '.{name}' is not read; instructions, labels and .byte are. What an "
                "assembler makes of it is: gcc -c, and the object file"
            )
        return counts

    def _section(self, name: str, rest: str) -> bool:
        """Follow a change of section; whether it was one."""
        is_code = name == "text" or name in ("section", "pushsection") and _holds_code(rest)
        if name in ("section", "text") or name in _DATA_SECTIONS:
            self.before, self.sections[-1] = self.sections[-1], is_code
        elif name == "pushsection":
            self.sections.append(is_code)
        elif name == "popsection":
            if len(self.sections) > 1:
                self.sections.pop()
        elif name == "previous":
            self.before, self.sections[-1] = self.sections[-1], self.before
        else:
            return False
        return True

    def keep_function(self, name: str) -> None:
        """Leave only the lines from a label on to the next function."""
        own = {label: line for label, line in self.labels.items() if not label.startswith(".L") and not label.isdigit()}
        starts = {label: line for label, line in own.items() if label in self.functions}
        if name not in own:
            raise unknown_name("function", name, starts or own)
        first = own[name]
        last = min((line for line in starts.values() if line > first), default=len(self.lines) + 1)
        self.lines = [line if first <= number < last else "" for number, line in enumerate(self.lines, 1)]
        self.statements = [(number, text) for number, text in self.statements if first <= number < last]
        self.labels = {label: line for label, line in self.labels.items() if first <= line < last}

    def source(self) -> CleanText:
        """The outcome. Of labels that nobody sets, the last branch's is before the code (it closes a loop)."""
        targets = [match[1] for _, text in self.statements if (match := _JUMP.fullmatch(text))]
        wanted = [t for t in dict.fromkeys(targets) if t not in self.labels and t.lower() not in REGISTERS]
        wanted = [t for t in wanted if not t[0].isdigit()]
        closing = _JUMP.fullmatch(self.statements[-1][1]) if self.statements else None
        before = tuple(label for label in wanted if closing and closing[1] == label)
        behind = tuple(label for label in wanted if label not in before)
        used = [name for _, text in self.statements for name in _TEMPORARY.findall(text)]
        self._check_registers()
        set_here = {*self.labels, *wanted, *_assigned(self.statements)}
        elsewhere = tuple(name for name in dict.fromkeys(used) if name not in set_here)
        labels = sorted((line, label) for label, line in self.labels.items())
        functions = tuple((line, label) for line, label in labels if label in self.functions)
        aims = tuple((line, label) for line, label in labels if label in targets)
        return CleanText(self.syntax, tuple(self.lines), before, behind, elsewhere, functions, aims)

    def _check_registers(self) -> None:
        """`InvalidArgument` for a register that there is not."""
        for number, text in self.statements if self.syntax == "intel" else ():
            for found in _LIKE_REGISTERS.finditer(_QUOTES.sub("", text)):
                if re.sub(r"(\d)b$", r"\1l", found[0].lower()) not in REGISTERS and found[0] not in self.labels:
                    kind = found[1].lower() if found[1] else "r"
                    known = sorted(
                        (r for r in REGISTERS if r[: len(kind)] == kind and r[len(kind) :].isdigit()), key=_number
                    )
                    there = f"{known[0]} to {known[-1]}" if known else "none"
                    said = f"line {number}: no register {found[0]!r}; there are {there}: {text[:60]!r}"
                    raise InvalidArgument(said + elsewhere(text))


def elsewhere(text: str) -> str:
    """The end of an error about a statement that no x86-64 CPU has; "" where one may.

    >>> elsewhere("fma.rn.f32 %f1, %f2, %f3, %f4"), elsewhere("vaddps zmm0, zmm1, [rsi]")
    ("; x86-64 is read, and this looks like another CPU's or a GPU's", '')
    """
    return f"; {OTHER_MACHINE}" if _ELSEWHERE.search(text) else ""


def _number(register: str) -> int:
    return int("".join(filter(str.isdigit, register)))


def _assigned(statements: Sequence[tuple[int, str]]) -> Iterator[str]:
    """Symbols that statements give a value."""
    for _, text in statements:
        if match := re.match(r"\.(?:set|equ)\s+([\w.$]+)|([\w.$]+)\s*=", text):
            yield match[1] or match[2]


def _holds_code(rest: str) -> bool:
    """Whether the arguments of .section name one of code: ELF's, Mach-O's, or any with the flag x."""
    parts = [part.strip().strip('"') for part in rest.split(",")]
    return parts[0].startswith(".text") or "__text" in parts or len(parts) > 1 and "x" in parts[1]


def is_statement(text: str) -> bool:
    """Whether what follows a semicolon can be a statement, and no comment."""
    if _LABEL.match(text) or _ASSIGNMENT.match(text) or _DIRECTIVE.match(text) or text.startswith("{"):
        return True
    words = _WORDS.match(text)
    if words is None or not (words[1] in MNEMONICS or _OTHER_MNEMONIC.fullmatch(words[1])):
        return False
    return words[2] is None or words[2] in REGISTERS or bool(_BEFORE_A_NAME.fullmatch(words[1]))
