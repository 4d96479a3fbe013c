"""The package's own exceptions: each message says the value met, what is allowed, and the nearest thing that works."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Sequence

from isa_models.aliases import FIELDS, meant_by, nearest_to

_FEW = 40  # names that still fit an error message
_SHORT = 700  # characters of names that do where no command lists them
_MOST = 1000  # characters of a message
_MOST_QUOTED = 160  # of a value within it
_QUOTED = re.compile(r"'[^'\n]*'|\"[^\"\n]*\"")


def bounded(message: str) -> str:
    """A message of one line and at most a thousand characters; what stands in quotes or brackets is cut first.

    >>> found = bounded(f"unknown machine {'zen' * 1000!r}: did you mean 'zen4'?")
    >>> len(found), found[:21], found[-29:]
    (198, "unknown machine 'zenz", "zenzen': did you mean 'zen4'?")
    """
    if len(message) > _MOST:
        message = _QUOTED.sub(lambda found: _cut(found[0], _MOST_QUOTED), message)
    if len(message) > _MOST:
        message = _shorn(message)
    if not message.isprintable():
        message = " ".join("".join(c if c.isprintable() or c.isspace() else "?" for c in message).split())
    return _cut(message, _MOST)


def _shorn(text: str) -> str:
    """A text with the middle of each long pair of brackets left out: a value that was met, and not what is allowed."""
    parts, depth, start = [""], 0, 0
    for at, c in enumerate(text):
        depth += (c in "([{") - (c in ")]}")
        if c in "([{" and depth == 1:
            parts.append(text[start:at])
            start = at
        elif c in ")]}" and depth == 0:
            parts.append(_cut(text[start : at + 1], _MOST_QUOTED))
            start = at + 1
    return "".join([*parts, text[start:]])


def _cut(text: str, most: int) -> str:
    """A text with its middle left out where it is longer."""
    head = 2 * most // 3
    return text if len(text) <= most else f"{text[:head]} … {text[len(text) - (most - head - 3) :]}"


class SimdnnError(Exception):
    """Base of every error that simdnn and isa_models raise on purpose. Its message is one line of bounded length."""

    def __init__(self, *args: object) -> None:
        super().__init__(*(bounded(arg) if isinstance(arg, str) else arg for arg in args))

    def __str__(self) -> str:  # KeyError below would print the repr of its message
        return str(self.args[0]) if self.args else ""


class InvalidArgument(SimdnnError, ValueError):
    """A value outside what is allowed: shape, type, attribute."""


class Unimplemented(SimdnnError, NotImplementedError):
    """A legal request that no kernel here can do."""


class UnknownTiming(SimdnnError, KeyError):
    """A cost that the machine's table does not hold. Never counted as zero."""


class UnknownName(SimdnnError, KeyError):
    """A machine, instruction, workload or ISA that does not exist."""


class MachineFileError(SimdnnError, ValueError):
    """A machine file that breaks its schema: which key, what was expected."""


class ProgramError(SimdnnError, ValueError):
    """A Program that fails verification; the message names the instruction."""


class OutOfRegisters(ProgramError):
    """A Program that takes more registers than a thread has; a smaller tile may fit."""


_LIKE = 0.6  # difflib's least ratio of two names that may be meant for each other
_LIKE_STEM, _STEM_NAMES = 0.75, 3  # and of a word and how names begin; the names that are told then
_BEGUN = 3  # letters of a name that say which one is meant


def how_to_install(extra: str) -> str:
    """How an optional part of simdnn is installed, from its sources and from a package index.

    >>> how_to_install("onnx")
    'pip install ".[onnx]" in a checkout of simdnn, pip install "simdnn[onnx]" from a package index'
    """
    return f'pip install ".[{extra}]" in a checkout of simdnn, pip install "simdnn[{extra}]" from a package index'


def nearest(name: object, known: Iterable[str], count: int = 1) -> list[str]:
    """The known names that are meant by another, the likeliest first; none where nothing is like it.

    What differs in capitals alone; what the name is an alias of; else what begins with it, is spelt alike, or has its
    letters in another order.

    >>> nearest("fp8", ["f32", "f8_e4m3", "f8_e5m2", "u8"]), nearest("rum", ["run", "list"]), nearest("m1", ["max1550"])
    (['f8_e4m3', 'f8_e5m2'], ['run'], [])
    """
    names, word = sorted(known), _word(name)
    if same := _same(word, names):
        return same[:count]
    for stands_for in (meant_by, nearest_to):
        if found := [one for one in dict.fromkeys(stands_for(word)) if one in names]:
            return found
    begun = [one for one in names if len(word) >= _BEGUN and one.lower().startswith(word)]
    if len(word) >= _BEGUN and is_known(word) and not begun:
        return []  # the word is known, and nothing of this list is like what it stands for
    alike = difflib.get_close_matches(word, names, n=count, cutoff=_LIKE)
    turned = [one for one in names if sorted(one.lower()) == sorted(word)]
    found = list(dict.fromkeys([*sorted(begun, key=len), *alike, *turned]))[:count]
    return found or _begun_alike(word, names)


def _word(name: object) -> str:
    """A name in small letters, as it is looked up; a class, as NumPy's types are, has one of its own."""
    return (name.__name__ if isinstance(name, type) else str(name)).lower()


def _same(word: str, names: Iterable[str]) -> list[str]:
    """The names that a word is but for capitals, for what parts it, and for a maker's words in front; longest first.

    >>> [_same(word, ["a770", "h100", "rtx4090", "zen4"]) for word in ("zen 4", "geforce rtx 4090", "arc_a770", "arc")]
    [['zen4'], ['rtx4090'], ['a770'], []]
    """
    parts = re.split(r"[-_ ]+", word)
    ends = {"".join(parts[i:]) for i in range(len(parts))} | {word}
    same = [one for one in names if one.lower() == word or one.lower() in ends and len(one) >= _BEGUN]
    return sorted(same, key=len, reverse=True)


def _begun_alike(word: str, names: Iterable[str]) -> list[str]:
    """The names of one stem that a word is spelt nearly as.

    >>> _begun_alike("int9", ["int8-exact", "int8-vnni", "f32"]), _begun_alike("vnn", ["int8-vnni"])
    (['int8-vnni', 'int8-exact'], [])
    """
    stems: dict[str, list[str]] = {}
    for name in names:
        stems.setdefault(name[: len(word)].lower(), []).append(name)
    fits = _BEGUN < len(word) <= max(map(len, stems), default=0)
    near = difflib.get_close_matches(word, stems, n=1, cutoff=_LIKE_STEM) if fits else []
    return sorted(stems[near[0]], key=len)[:_STEM_NAMES] if near else []


def is_known(word: str) -> bool:
    """Whether a word, in small letters, is known to stand for something, here or not."""
    return bool(meant_by(word) or nearest_to(word))


def did_you_mean(name: object, known: Iterable[str]) -> str:
    """A question after the nearest names, empty where there is none; of other hardware, which is nearest to it.

    >>> did_you_mean("gelu", ["relu", "gelu_erf", "gelu_tanh"]), did_you_mean("zen2", ["skx", "zen3"])
    ("did you mean 'gelu_erf' or 'gelu_tanh'?", "it is not here; the nearest is 'zen3'.")
    >>> did_you_mean(float, ["f32", "bf16"])
    "did you mean 'f32'?"
    """
    found = nearest(name, known)
    if not found:
        return ""
    told, word = " or ".join(map(repr, found)), _word(name)
    if set(found) <= set(nearest_to(word)) and not set(found) & {*meant_by(word), *_same(word, found)}:
        return f"it is not here; the nearest {'is' if len(found) == 1 else 'are'} {told}."
    return f"did you mean {told}?"


def no_attribute(made: object, name: str) -> AttributeError:
    """The error for a name that a result lacks: what others call so has its name here told."""
    said = f"{type(made).__name__!r} object has no attribute {name!r}"
    if meant := [one for one in FIELDS.get(name, ()) if one in dir(made)]:
        return AttributeError(f"{said}: did you mean {' or '.join(map(repr, meant))}?")
    return AttributeError(said, name=name, obj=made)  # Python names the nearest


def some(names: Sequence[str], most: int = 8) -> str:
    """The first names, and how many more there are.

    >>> some(["a", "b", "c"], 2)
    'a, b and 1 more'
    """
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")


def counted(number: int, noun: str, plural: str = "") -> str:
    """A number of things: `plural` where the noun takes more than an s.

    >>> counted(1, "node"), counted(2, "node"), counted(0, "entry", "entries")
    ('1 node', '2 nodes', '0 entries')
    """
    return f"{number} {noun if number == 1 else plural or noun + 's'}"


def shortly(value: object, most: int = 60) -> str:
    """A value as a message shows it: in one line, cut where it is long.

    >>> shortly("zen"), shortly([1] * 99, 12)
    ("'zen'", '[1, 1, 1, 1…')
    """
    text = " ".join(repr(value).split())
    return text if len(text) <= most else f"{text[: most - 1]}…"


def what_is_allowed(name: object, allowed: Sequence[str], like: Iterable[str] = ()) -> str:
    """The end of a message about a word that is not taken: the closest one that is, and all of them in their order.

    `like`: more names that may be meant. None is no word, and like nothing.

    >>> what_is_allowed("compile", ["auto", "compiled"]), what_is_allowed(3, ["auto"]), what_is_allowed("x", [])
    (": did you mean 'compiled'? Allowed: auto, compiled", '. Allowed: auto', '. Allowed: none')
    """
    question = "" if name is None else did_you_mean(name, [*allowed, *like])
    return f"{f': {question}' if question else '.'} Allowed: {', '.join(allowed) or 'none'}"


def unknown_name(kind: str, name: object, known: Iterable[str], listed: str = "") -> UnknownName:
    """An `UnknownName` that names the closest known one, and all where they are few; else the command `listed`.

    >>> print(unknown_name("machine", "zen", ["zen4", "skx"]))
    unknown machine 'zen': did you mean 'zen4'? Known: skx, zen4
    """
    return UnknownName(f"unknown {kind} {shortly(name)}{what_is_known(name, known, listed)}")


def what_is_known(name: object, known: Iterable[str], listed: str = "") -> str:
    """The end of a message about an unknown name: the closest known one, and all of them where they are few; else the
    command `listed` that has them, if there is one.

    >>> print(what_is_known("zen", ["zen4", "skx"]))
    : did you mean 'zen4'? Known: skx, zen4
    """
    names = sorted({*known})
    question = did_you_mean(name, names)
    said = f": {question}" if question else "."
    every = ", ".join(names)
    if len(names) <= _FEW or not listed and len(every) <= _SHORT:
        return f"{said} Known: {every}"
    near = [one for one in nearest(name, names, 4) if one not in nearest(name, names)]
    others = f" Near: {', '.join(near)};" if near and not is_known(str(name).lower()) else ""
    return f"{said}{others} {len(names)} are known{listed and f' (`{listed}`)'}"
