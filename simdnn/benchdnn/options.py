"""benchdnn's state machine: options hold for the problems after them, comma lists make the cross product."""

from __future__ import annotations

import difflib
import itertools
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from isa_models import InvalidArgument, SimdnnError, UnknownName
from simdnn.benchdnn.descriptors import ConvDims, MatmulDims, conv_dims, matmul_dims
from simdnn.benchdnn.subset import (
    ALIASES,
    DRIVERS,
    FLAGS,
    IGNORED,
    MODES,
    OPTIONS,
    OTHER_DRIVERS,
    SUBSET,
    Option,
)

_DEEPEST = 16  # batch files within batch files
_LARGEST = 64 << 20  # bytes of a batch file
_SPACED = ("machine", "isa", "dispatch", "zero-point-strategy")  # simdnn's own; also --machine NAME


@dataclass(frozen=True)
class Case:
    """One problem with one value of each option. `text` says it again: driver, options that differ, descriptor."""

    driver: str  # matmul | conv
    mode: str  # C | P | CP
    dims: MatmulDims | ConvDims
    options: Mapping[str, str]
    text: str


@dataclass(frozen=True)
class Line:
    """A problem as read, with the options that held there."""

    driver: str
    mode: str
    match: str
    problem: str
    dims: MatmulDims | ConvDims
    values: Mapping[str, tuple[str, ...]]

    def cases(self) -> Iterator[Case]:
        """The cross product, found one by one: it can be large."""
        names = [name for name, option in OPTIONS.items() if self.driver in option.drivers]
        for chosen in itertools.product(*(self.values[name] for name in names)):
            options = dict(zip(names, chosen, strict=True))
            if _repeated(options, self.values):
                continue
            case = Case(self.driver, self.mode, self.dims, options, _text(self, options))
            if re.search(self.match, case.text):
                yield case


def _repeated(options: dict[str, str], values: Mapping[str, tuple[str, ...]]) -> bool:
    """Without a bias its mask says nothing: one case stands for all masks."""
    return options.get("bia-dt") == "undef" and options.get("bia_mask", "") != values["bia_mask"][0]


def _text(line: Line, options: Mapping[str, str]) -> str:
    said = [f"--{name}={value}" for name, value in options.items() if value != OPTIONS[name].default]
    return " ".join([f"--{line.driver}", *said, line.problem])


@dataclass
class _State:
    """What holds at one point of the reading."""

    driver: str = ""
    mode: str = "C"
    match: str = ""
    values: dict[str, tuple[str, ...]] = field(
        default_factory=lambda: {name: (option.default,) for name, option in OPTIONS.items()}
    )
    lines: list[Line] = field(default_factory=list)
    folders: list[Path] = field(default_factory=list)  # of the batch files being read, the innermost last


def read(words: Sequence[str], driver: str = "") -> list[Line]:
    """The problems of a command line in benchdnn's syntax.

    Raises `InvalidArgument` or `UnknownName`, with the batch file and line where it stands in one, for what is not in
    `SUBSET`.

    >>> [case.text for line in read(["--matmul", "--dt=f32,bf16", "2x3:3x4"]) for case in line.cases()]
    ['--matmul 2x3:3x4', '--matmul --dt=bf16 2x3:3x4']
    """
    state = _State(driver)
    waiting = ""
    for word in words:
        if waiting:
            _word(state, f"{waiting}={word}")
            waiting = ""
        elif word.removeprefix("--") in _SPACED and word.startswith("--"):
            waiting = word
        else:
            _word(state, word)
    if waiting:
        raise InvalidArgument(f"{waiting} without a value")
    return state.lines


def _word(state: _State, word: str) -> None:
    if re.fullmatch(r"-v\d{0,2}", word):
        return
    if not word.startswith("-"):
        _problem(state, word)
        return
    if not word.startswith("--"):
        raise InvalidArgument(f"option {word[:40]!r}; options start with --. {SUBSET}")
    name, equals, value = word[2:].partition("=")
    name = ALIASES.get(name, name)
    if not equals and name in (*DRIVERS, *OTHER_DRIVERS):
        _driver(state, name)
    elif name == "reset" and not value:
        state.match = ""
        state.values |= {key: (option.default,) for key, option in OPTIONS.items() if not option.kept}
    elif name == "batch" and equals:
        _batch(state, value)
    elif name == "mode" and equals:
        if value.upper() not in MODES:
            raise InvalidArgument(f"--mode={value[:40]!r}; allowed: {', '.join(MODES)}")
        state.mode = value.upper()
    elif name == "match" and equals:
        state.match = _pattern(value)
    elif name in OPTIONS and equals:
        state.values[name] = _values(OPTIONS[name], value)
    elif name not in IGNORED:
        known = [*OPTIONS, *FLAGS, *DRIVERS]
        near = difflib.get_close_matches(name, known, n=1, cutoff=0.6)
        hint = f"{word[:40]!r} needs a value" if name in known else f"unknown option {word[:40]!r}"
        raise InvalidArgument(f"{hint}{f': did you mean --{near[0]}?' if near and near[0] != name else '.'} {SUBSET}")


def _driver(state: _State, name: str) -> None:
    if name not in DRIVERS:
        raise InvalidArgument(f"driver --{name} is not modelled. {SUBSET}")
    state.driver = name


def _pattern(text: str) -> str:
    try:
        re.compile(text)
    except (re.error, RecursionError, OverflowError) as error:
        raise InvalidArgument(f"--match={text[:60]!r}: {error}") from None
    return text


def _values(option: Option, text: str) -> tuple[str, ...]:
    """The values of a comma list; an empty one is the default."""
    found = tuple(part or option.default for part in text.split(","))
    for part in dict.fromkeys(found):
        try:
            option.check(part)
        except OSError as error:
            raise InvalidArgument(f"--{option.name}={part[:60]!r}: {error.strerror or error}") from None
    return found


def _problem(state: _State, word: str) -> None:
    if not state.driver:
        raise InvalidArgument(f"problem {word[:60]!r} before --matmul or --conv")
    dims: MatmulDims | ConvDims = matmul_dims(word) if state.driver == "matmul" else conv_dims(word)
    line = Line(state.driver, state.mode, state.match, word, dims, dict(state.values))
    state.lines.append(line)


def _batch(state: _State, name: str) -> None:
    """Reads a batch file, relative to the one that names it, or else to the folders of those around it."""
    if len(state.folders) >= _DEEPEST:
        raise InvalidArgument(f"--batch={name!r}: batch files nest deeper than {_DEEPEST}")
    path = _located(state, name)
    try:
        with path.open("rb") as file:
            content = file.read(_LARGEST + 1)
    except (OSError, ValueError) as error:
        raise InvalidArgument(f"--batch={name[:200]!r}: {getattr(error, 'strerror', None) or error}") from None
    if len(content) > _LARGEST:
        raise InvalidArgument(f"--batch={name!r} is larger than {_LARGEST >> 20} MiB")
    state.folders.append(path.parent)
    for number, word in _words(content.decode("utf-8", "replace").splitlines()):
        try:
            _word(state, word)
        except (InvalidArgument, UnknownName) as error:
            raise _within(error, f"{path.name}:{number}") from None
    state.folders.pop()


def _located(state: _State, name: str) -> Path:
    candidates = [folder / name for folder in reversed(state.folders)]
    if state.driver:  # as benchdnn, which keeps the files of a driver in a folder of its name
        candidates += [folder.parent / state.driver / name for folder in state.folders]
    try:
        return next((path for path in candidates if path.is_file()), Path(name))
    except (OSError, ValueError):
        return Path(name)


def _within(error: SimdnnError, where: str) -> InvalidArgument:
    return InvalidArgument(f"{where}: {error}")


def _words(lines: Iterable[str]) -> list[tuple[int, str]]:
    """Words of a batch file with their line numbers. `#` at the start of a word makes the rest of its line a comment;
    a backslash, at the end of a word or alone, joins the next word to the one before.

    >>> [word for _, word in _words(["--dt=f32, \\\\", "  bf16 # both", "2x3:3x4"])]
    ['--dt=f32,bf16', '2x3:3x4']
    """
    found: list[tuple[int, str]] = []
    joined = False
    for number, line in enumerate(lines, 1):
        for word in line.split():
            if word.startswith("#"):
                break
            piece = word.removesuffix("\\")
            if joined and found:
                found[-1] = found[-1][0], found[-1][1] + piece
            elif piece:
                found.append((number, piece))
            joined = piece != word
    return found
