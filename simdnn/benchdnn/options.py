"""benchdnn's state machine: options hold for the problems after them, comma lists make the cross product.

What makes no sense on the command line is wrong usage, an error. What makes no sense in a batch file is answered: its
line with the reason, and so is every problem after it that asks for an option whose value could not be read.
"""

from __future__ import annotations

import functools
import itertools
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from isa_models import InvalidArgument, SimdnnError
from isa_models.errors import nearest
from isa_models.host import pipes
from simdnn.benchdnn.descriptors import ConvDims, IpDims, MatmulDims, conv_dims, ip_dims, matmul_dims
from simdnn.benchdnn.operators import DIMS as OPERATOR_DIMS
from simdnn.benchdnn.operators import OPERATOR_OPTIONS, OperatorDims, operator_options
from simdnn.benchdnn.subset import (
    ALIASES,
    DRIVERS,
    FLAGS,
    IGNORED,
    MODELLED,
    MODES,
    OPERATORS,
    OPTIONS,
    OTHER_DRIVERS,
    SUBSET,
    Option,
)

_DEEPEST = 16  # batch files within batch files
_LARGEST = 64 << 20  # bytes of a batch file
_SPACED = ("machine", "isa", "dispatch", "zero-point-strategy")  # simdnn's own; also --machine NAME
_NEEDED = " or ".join(f"--{driver}" for driver in DRIVERS)

Dims = MatmulDims | ConvDims | IpDims | OperatorDims
_READERS: Mapping[str, Callable[[str], Dims]] = {
    "matmul": matmul_dims,
    "conv": conv_dims,
    "deconv": lambda text: conv_dims(text, transposed=True),
    "ip": ip_dims,
    **OPERATOR_DIMS,
}
#: descriptors by driver; batch files name the same shapes again and again
_DIMS = {name: functools.lru_cache(maxsize=1 << 15)(reader) for name, reader in _READERS.items()}


def table_of(driver: str) -> Mapping[str, Option]:
    """The options of a driver: products share a table, and drivers of one operator another one."""
    return operator_options(driver) if driver in OPERATORS else OPTIONS


@dataclass(frozen=True)
class Case:
    """One problem with one value of each option. `text` says it again: driver, options that differ, descriptor."""

    driver: str  # one of `subset`: of products, or of one operator
    mode: str  # one of `MODES`
    dims: Dims
    options: Mapping[str, str]
    text: str

    @property
    def where(self) -> dict[str, Any]:
        """The keyword arguments that say on what it runs."""
        return {name: self.options[name] for name in ("machine", "dispatch")} | {"isa": self.options["isa"] or None}

    @property
    def bias_type(self) -> str:
        """The type of a bias, if there is one: f32 unless named."""
        named = self.options.get("bia-dt", "")
        return "f32" if named in ("", "undef") else named


@dataclass(frozen=True)
class Line:
    """A problem as read, with the options that held there."""

    driver: str
    mode: str
    match: str
    problem: str
    dims: Dims
    values: Mapping[str, tuple[str, ...]]

    def cases(self) -> Iterator[Case]:
        """The cross product, found one by one: it can be large."""
        names = [name for name, option in table_of(self.driver).items() if self.driver in option.drivers]
        for chosen in itertools.product(*(self.values[name] for name in names)):
            options = dict(zip(names, chosen, strict=True))
            if _repeated(options, self.values):
                continue
            case = Case(self.driver, self.mode, self.dims, options, _text(self, options))
            if re.search(self.match, case.text):
                yield case


@dataclass(frozen=True)
class Unread:
    """A line that cannot be put to a primitive as a problem: its text, and the reason, which is its answer."""

    text: str
    reason: str

    def cases(self) -> Iterator[Unread]:
        """Itself, as the only one."""
        yield self


def _repeated(options: dict[str, str], values: Mapping[str, tuple[str, ...]]) -> bool:
    """Whether a case repeats another: without a bias its mask says nothing, and one stands for all masks."""
    return options.get("bia-dt") == "undef" and options.get("bia_mask", "") != values["bia_mask"][0]


def _text(line: Line, options: Mapping[str, str]) -> str:
    table = table_of(line.driver)
    said = [f"--{name}={value}" for name, value in options.items() if value != table[name].default]
    return " ".join([f"--{line.driver}", *said, line.problem])


@dataclass
class _State:
    """The options that hold at one point of the reading."""

    driver: str = ""
    mode: str = "C"
    match: str = ""
    products: dict[str, tuple[str, ...]] = field(default_factory=lambda: _defaults(OPTIONS))
    operators: dict[str, tuple[str, ...]] = field(default_factory=lambda: _defaults(OPERATOR_OPTIONS))
    unread: dict[str, str] = field(default_factory=dict)  # options whose last value makes no sense: where, and why
    where: str = ""  # file and line of the words being read
    lines: list[Line | Unread] = field(default_factory=list)
    files: list[Path] = field(default_factory=list)  # the batch files being read, the innermost last
    behind: list[str] = field(default_factory=list)  # options of the command line that no problem follows
    foreign: list[str] = field(default_factory=list)  # options named behind the driver that it does not have

    @property
    def modelled(self) -> bool:
        """Whether the driver's problems are answered with figures; the options of others are not looked at."""
        return self.driver not in OTHER_DRIVERS

    @property
    def values(self) -> dict[str, tuple[str, ...]]:
        """The options' values that hold for problems of the driver."""
        return self.operators if self.driver in OPERATORS else self.products

    def keep(self, name: str, text: str) -> None:
        """Take an option's values; where they make no sense, remember why."""
        option = table_of(self.driver)[name]
        try:
            found = _values(option, text)
            for values in (self.products, self.operators) if option.kept else (self.values,):
                if name in values:
                    values[name] = found
            self.unread.pop(name, None)
        except SimdnnError as error:
            self.unread[name] = f"{self.where}{error}"
            if self.modelled:
                raise

    def reset(self) -> None:
        """Give options their defaults, but for those that are kept."""
        self.match = ""
        self.foreign.clear()
        for values, table in ((self.products, OPTIONS), (self.operators, OPERATOR_OPTIONS)):
            for key, option in table.items():
                if not option.kept:
                    values[key] = (option.default,)
                    self.unread.pop(key, None)


def _defaults(table: Mapping[str, Option]) -> dict[str, tuple[str, ...]]:
    return {name: (option.default,) for name, option in table.items()}


def read(words: Sequence[str], driver: str = "") -> list[Line | Unread]:
    """The problems of a command line in benchdnn's syntax, batch files included, in their order.

    A line of a batch file that makes no sense is `Unread`, as are problems of drivers that are not modelled. Raises
    `InvalidArgument` or `UnknownName` for what makes no sense on the command line itself.

    >>> [case.text for line in read(["--matmul", "--dt=f32,bf16", "2x3:3x4"]) for case in line.cases()]
    ['--matmul 2x3:3x4', '--matmul --dt=bf16 2x3:3x4']
    >>> [line.reason.split(";")[0] for line in read(["--rnn", "l1t1mb1sic16"])]
    ['not modelled: driver rnn']
    """
    state = _State(driver)
    for word in _joined(words):
        _word(state, word)
    if state.lines and state.behind:
        raise InvalidArgument(
            f"{state.behind[0][:60]} behind the last problem says nothing; options stand before theirs"
        )
    return state.lines


def _joined(words: Iterable[str]) -> Iterator[str]:
    """Words, each option of simdnn's own together with a value that stands behind it."""
    rest = iter(words)
    for word in rest:
        if word.startswith("--") and word[2:] in _SPACED:
            value = next(rest, None)
            if value is None:
                raise InvalidArgument(f"{word} without a value")
            word = f"{word}={value}"
        yield word


def _word(state: _State, word: str) -> None:
    """Take one word of a command line or a batch file: an option, a driver, or a problem."""
    if re.fullmatch(r"-v\d{0,2}", word):
        return
    if not word.startswith("-"):
        state.behind.clear()
        _problem(state, word)
        return
    if not word.startswith("--"):
        raise InvalidArgument(f"option {word[:40]!r}; options start with --. {SUBSET}")
    name, equals, value = word[2:].partition("=")
    name = ALIASES.get(name, name)
    if not equals and name in (*DRIVERS, *OPERATORS, *OTHER_DRIVERS):
        if name in OPERATORS and name != state.driver:  # each has algorithms of its own
            state.operators["alg"] = (OPERATOR_OPTIONS["alg"].default,)
        state.driver = name
        state.foreign.clear()
    elif name == "reset" and not value:
        state.reset()
    elif name == "batch" and equals:
        state.behind.clear()
        _batch(state, value)
    elif name in ("mode", "match", *table_of(state.driver)) and equals:
        _option(state, name, value)
        state.behind += [word] if not state.files else []
    elif state.driver == "graph" and name == "case":  # a partition of the graph driver is named by an option
        _problem(state, word)
    elif name not in IGNORED and state.modelled:
        known = [*table_of(state.driver), *FLAGS, *DRIVERS, *OPERATORS]
        near = nearest(name, known)
        hint = f"{word[:40]!r} needs a value" if name in known else f"unknown option {word[:40]!r}"
        if name == "cfg":  # benchdnn's before oneDNN 3.0
            hint += ": --dt=u8:s8:s32 took its place"
        raise InvalidArgument(f"{hint}{f': did you mean --{near[0]}?' if near and near[0] != name else '.'} {SUBSET}")


def _option(state: _State, name: str, value: str) -> None:
    """Takes a value for the problems that follow."""
    if name == "match":
        state.match = _pattern(value)
    elif name != "mode":
        state.keep(name, value)
        state.foreign += [name] if state.driver and not _concerns(name, state.driver) else []
    elif value.upper() in MODES:
        state.mode = value.upper()
    else:
        raise InvalidArgument(f"--mode={value[:40]!r}; allowed: {', '.join(MODES)}")


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
        raise InvalidArgument(f"problem {word[:60]!r} before {_NEEDED}")
    reason = f"not modelled: driver {state.driver}; {MODELLED}"
    if state.modelled:
        dims = _DIMS[state.driver](word)
        if state.foreign:
            owners = ", ".join(f"--{driver}" for driver in table_of(state.driver)[state.foreign[0]].drivers)
            raise InvalidArgument(
                f"--{state.foreign[0]} is no option of --{state.driver}; drivers that have it: {owners}"
            )
        reason = next((why for name, why in state.unread.items() if _concerns(name, state.driver)), "")
    if not reason:
        state.lines.append(Line(state.driver, state.mode, state.match, word, dims, dict(state.values)))
    elif re.search(state.match, text := f"--{state.driver} {word}"):
        state.lines.append(Unread(text, reason))


def _concerns(name: str, driver: str) -> bool:
    """Whether an option is one of a driver's."""
    option = table_of(driver).get(name)
    return option is not None and driver in option.drivers


def _batch(state: _State, name: str) -> None:
    """Reads a batch file, relative to the one that names it, or else to the folders of those around it."""
    path = _located(state, name)
    again = os.path.realpath(path) in map(os.path.realpath, state.files)
    if again or len(state.files) >= _DEEPEST:
        why = ": it is being read already" if again else ""
        raise InvalidArgument(f"--batch={name!r}: batch files nest deeper than {_DEEPEST}{why}")
    try:
        content = pipes.content(path, _LARGEST + 1)
    except (OSError, ValueError) as error:
        raise InvalidArgument(f"--batch={name[:200]!r}: {getattr(error, 'strerror', None) or error}") from None
    if len(content) > _LARGEST:
        raise InvalidArgument(f"--batch={name!r} is larger than {_LARGEST >> 20} MiB")
    if b"\0" in content:
        raise InvalidArgument(
            f"--batch={name[:200]!r} is no text: byte {content.index(0)} is 0; lines of options are read"
        )
    state.files.append(path)
    found = _words(content.decode("utf-8", "replace").splitlines())
    for number, words in itertools.groupby(found, key=lambda one: one[0]):
        _line(state, f"{path.name}:{number}: ", [word for _, word in words])
    state.files.pop()


def _line(state: _State, where: str, words: Sequence[str]) -> None:
    """Read a line of a batch file. One that makes no sense is answered with the first reason, and what it asks for
    behind that is left out; its options hold."""
    reason, rest, around = "", iter(words), state.where
    state.where = where
    while True:
        try:
            for word in _joined(rest):
                if not (reason and _asks(word)):
                    _word(state, word)
            break
        except SimdnnError as error:
            reason = reason or f"{where}{error}"
    state.where = around
    if reason:
        state.lines.append(Unread(" ".join(words), reason))


def _asks(word: str) -> bool:
    return not word.startswith("-") or word.startswith("--batch=")


def _located(state: _State, name: str) -> Path:
    folders = [path.parent for path in state.files]
    candidates = [folder / name for folder in reversed(folders)]
    if state.driver:  # as benchdnn, which keeps the files of a driver in a folder of its name
        candidates += [folder.parent / state.driver / name for folder in folders]
    try:
        return next((path for path in candidates if path.is_file()), Path(name))
    except (OSError, ValueError):
        return Path(name)


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
