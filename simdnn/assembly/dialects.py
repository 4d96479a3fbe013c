"""Assembly as NASM, MASM and Compiler Explorer spell it, in GNU's spelling, line for line."""

from __future__ import annotations

import re
from collections.abc import Callable

from isa_models.errors import InvalidArgument
from simdnn.assembly.decode import MNEMONICS, REGISTERS

_NASM = re.compile(
    r"^[ \t]*(?:(?:section|segment|global|extern|bits|use64|default[ \t]+(?:rel|abs)|cpu)\b|\[(?:bits|section)\b"
    r"|%(?:define|macro|include|rep|assign|if)\b)",
    re.IGNORECASE | re.MULTILINE,
)
_MASM = re.compile(
    r"^[ \t]*(?:[^\s;#]+[ \t]+(?:proc|endp|segment|ends)\b|(?:[^\s;#]+:[ \t]*)?j[a-z]+[ \t]+short\b)",
    re.IGNORECASE | re.MULTILINE,
)
_STRING = re.compile(r'\s*"((?:[^"\\]|\\.)*)"\s*')  # a line of C's inline assembly
_DEMANGLED = re.compile(r"([A-Za-z_~:(][^;#\"']*):[ \t]*(?:[#;].*)?")
_OF_CPLUSPLUS = re.compile(r"::|[(<\[ \t]")
_MOST_NAME = 4096  # characters of a line with a name, which compilers make long

LINE_END = re.compile(r"\r\n|[\n\r]")
_QUOTED = re.compile(r"\"[^\"]*\"|'[^']*'")
_CALLED = re.compile(r"(\s*(?:call|jmp|j[a-z]{1,3})\s+)([A-Za-z_~][^%\[\];#]*[:(<][^%\[\];#]*?)\s*", re.IGNORECASE)
_HEX = re.compile(r"(?<![\w.$?@])(\d[0-9a-f]*)h\b", re.IGNORECASE)
_FAR = re.compile(r"^((?:.*:\s*)?j[a-z]+\s+)(?:short|near)\s+(?:ptr\s+)?", re.IGNORECASE)

# -- NASM --------------------------------------------------------------------------------------------------------------
_NASM_NO_CODE = re.compile(
    r"\[?(?:extern|bits|use64|default|cpu|alignb?|common|static|required|struc|endstruc)\b", re.IGNORECASE
)
_NASM_NEVER = re.compile(r"(%\w+|times|incbin)\b", re.IGNORECASE)
_NASM_SECTION = re.compile(r"\[?(?:section|segment)\s+([^\s\]]+).*", re.IGNORECASE)
_NASM_GLOBAL = re.compile(r"\[?global\s+([^\s\]].*?)\]?", re.IGNORECASE)
_NASM_DATA = re.compile(r"(?:([\w.$?@]+):?\s+)?(d[bwdq])\s+(.*)", re.IGNORECASE)
_NASM_SIZE = re.compile(r"\b(byte|[dqoyz]?word)\s+(?:ptr\s+)?(?=\[)", re.IGNORECASE)
_SIZES = {"oword": "xmmword", "yword": "ymmword", "zword": "zmmword"}
_GNU_DATA = {"db": ".byte", "dw": ".short", "dd": ".long", "dq": ".quad"}
_LOCAL = re.compile(r"(?<![\w.$?@)\]])\.([A-Za-z_]\w*)")
_BARE_LABEL = re.compile(r"[A-Za-z_.?$@][\w.$?@]*")

# -- MASM, as MSVC writes it -------------------------------------------------------------------------------------------
_MASM_NO_CODE = re.compile(
    r"(?:public|extrn|extern|externdef|include(?:lib)?|title|option|align|npad|assume|comm|end|comment|\.(?:model|x?mm|code|686p?))\b"
    r"|\S+\s+(?:endp|ends)\b",
    re.IGNORECASE,
)
_MASM_BLOCK = re.compile(r"(\S+)\s+(proc|segment)\b.*", re.IGNORECASE)
_MASM_NAME = re.compile(r"\?\?[\w@?$]+|\?[\w$]+@[\w@?$]*|\$\w+@[\w@?$]+|\b(?!__real@|__[xyz]mm@)[A-Za-z_]\w*@\w*")


class Symbols:
    """Symbols in place of names as C++ has them: `dot` for "dot(float const*, int)", each name its own."""

    def __init__(self) -> None:
        self._found: dict[str, str] = {}

    def of(self, name: str) -> str:
        """The symbol of a name."""
        if name not in self._found:
            bare = name.replace("(anonymous namespace)::", "").partition("(")[0]
            plain = re.sub(r"[^\w.$]+", "_", re.sub(r"<.*>", "", bare)).strip("_") or "function"
            if plain[0].isdigit() or plain.lower() in REGISTERS or plain.lower() in MNEMONICS and plain != name:
                plain = f"_{plain}"
            taken = set(self._found.values())
            others = (f"{plain}.{number}" for number in range(2, len(taken) + 3))
            self._found[name] = next(one for one in (plain, *others) if one not in taken)
        return self._found[name]


def as_gnu(text: str) -> str:
    """A text in GNU's spelling, as many lines; the text itself where it is in that already.

    >>> print(as_gnu("section .text\\nf:\\n.top: vmovaps ymm0, yword [rel table] ; a load\\n jnz .top"))
    .section .text
    f:
    .Lf.top: vmovaps ymm0, ymmword ptr [rip + table]
    jnz .Lf.top
    """
    lines = LINE_END.split(text)
    if all(_STRING.fullmatch(line) for line in lines if line.strip()) and '"' in text:
        lines = [_STRING.sub(r"\1", line).replace("\\n", " ").replace("\\t", " ").replace("%%", "%") for line in lines]
        return "\n".join(lines)
    if _NASM.search(text):
        return _by_line(text, _Nasm().line)
    if _MASM.search(text):
        return _by_line(text, _masm)
    return _of_cplusplus(lines) if any(map(_demangled, lines)) else text


def _by_line(text: str, read: Callable[[int, str], str]) -> str:
    lines = enumerate(LINE_END.split(text), 1)
    gnu = (_FAR.sub(r"\1", read(number, _without_comment(line).strip())) for number, line in lines)
    return "\n".join(_HEX.sub(r"0x\1", line) for line in gnu)


def _without_comment(line: str) -> str:
    """A line up to the semicolon that begins a comment."""
    quotes = [found.span() for found in _QUOTED.finditer(line)]
    places = (found.start() for found in re.finditer(";", line))
    return line[: next((at for at in places if not any(a <= at < b for a, b in quotes)), len(line))]


class _Nasm:
    """NASM's lines, whose labels that begin with a dot belong to the label before."""

    def __init__(self) -> None:
        self.parent = ""

    def line(self, number: int, line: str) -> str:
        """A line in GNU's spelling; `InvalidArgument` for what NASM's own language makes."""
        if never := _NASM_NEVER.match(line):
            raise InvalidArgument(
                f"line {number}: NASM's {never[1]!r} is not read; what it makes of the text is: nasm -f elf64, and the "
                "object file"
            )
        if _NASM_NO_CODE.match(line):
            return ""
        if section := _NASM_SECTION.fullmatch(line):
            return f".section {section[1]}"
        if shown := _NASM_GLOBAL.fullmatch(line):
            return "; ".join(f".globl {name.partition(':')[0].strip()}" for name in shown[1].split(","))
        if data := _NASM_DATA.fullmatch(line):
            return f"{self._label(data[1])} {_GNU_DATA[data[2].lower()]} {data[3]}".strip()
        label, colon, rest = line.partition(":")
        if not colon and _BARE_LABEL.fullmatch(line) and line.lower() not in MNEMONICS:
            label, colon, rest = line, ":", ""
        if not colon or not _BARE_LABEL.fullmatch(label.strip()):
            label, rest = "", line
        return f"{self._label(label.strip())} {self._code(rest.strip())}".strip()

    def _label(self, name: str | None) -> str:
        if not name:
            return ""
        if name[0] == ".":
            return f".L{self.parent}{name}:"
        self.parent = name
        return f"{name}:"

    def _code(self, code: str) -> str:
        code = _NASM_SIZE.sub(lambda found: f"{_SIZES.get(found[1].lower(), found[1])} ptr ", code)
        code = re.sub(r"\[\s*rel\s+", "[rip + ", code, flags=re.IGNORECASE)
        return _LOCAL.sub(lambda found: f".L{self.parent}.{found[1]}", code)


def _masm(number: int, line: str) -> str:
    """A line of MASM in GNU's spelling."""
    if _MASM_NO_CODE.match(line):
        return ""
    line = _MASM_NAME.sub(lambda found: _msvc(found[0]), line)
    if block := _MASM_BLOCK.fullmatch(line):
        if block[2].lower() == "proc":
            return f".globl {block[1]}; {block[1]}:"
        return ".text" if re.search(r"text|code", block[1], re.IGNORECASE) else ".data"
    return line


def _msvc(name: str) -> str:
    """A decorated name: `dot` for "?dot@@YAMPEBM0_K@Z", `.LLL4.dot` for the label "$LL4@dot" of a loop."""
    if name[0] == "$":
        return f".L{re.sub(r'[@?$]+', '.', name).strip('.')}"
    return re.sub(r"[@?$]+", "_", name.lstrip("?").partition("@")[0]) or "_"


def _demangled(line: str) -> str:
    """The name of C++ that a line has for a label; "" for any other line."""
    found = _DEMANGLED.fullmatch(line) if line[:1] not in ("", " ", "\t", ".", "#") and len(line) < _MOST_NAME else None
    return found[1] if found and _OF_CPLUSPLUS.search(found[1]) else ""


def _of_cplusplus(lines: list[str]) -> str:
    """Labels and calls of names as C++ has them, which Compiler Explorer shows, with symbols in their place."""
    symbols = Symbols()

    def spelled(line: str) -> str:
        if name := _demangled(line):
            return f"{symbols.of(name)}:"
        found = _CALLED.fullmatch(line) if len(line) < _MOST_NAME else None
        return f"{found[1]}{symbols.of(found[2].removesuffix('@PLT'))}" if found else line

    return "\n".join(map(spelled, lines))
