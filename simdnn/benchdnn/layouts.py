"""Layouts that kernels here do not read or write: what brings them into rows of channels, and how long it takes.

A tag's letters are dimensions in memory's order; a capital is cut into blocks, whose sizes stand behind with the small
letter: `ba`, `aBcd16b`. `x` stands for what follows in order: `abx`, `axb`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING

from isa_models import Unimplemented
from isa_models.errors import counted
from isa_models.formats import fmt
from simdnn.kernels.common.copy import CopyProblem, copying
from simdnn.networks.calls import kernel_cost, words_for
from simdnn.primitives.run import Target

if TYPE_CHECKING:
    from simdnn.timing.estimate import Cost

_BLOCK = re.compile(r"(\d+)([a-l])")
_LETTERS = "abcdefghijkl"
#: dimensions in their own order, D standing for as many of d, h, w as there are: images, weights, sequences
_NAMED = ("ncD", "oiD", "goiD", "tnc", "ldnc", "ldigo", "ldio", "ldgo", "tn")


@dataclass(frozen=True)
class Moved:
    """One tensor that is copied on its way: its name, where its elements stand, and their size in bytes."""

    name: str
    tag: str
    dims: tuple[int, ...]
    strides: tuple[int, ...]
    size: int

    def cost(self, target: Target) -> Cost:
        """How long the copy takes, on one core."""
        words, problem = words_for(target.machine, target.caps), CopyProblem(self.dims, self.strides, self.size)
        return kernel_cost(copying, problem, words, target.machine, 1)


def letters_of(tag: str, ndims: int) -> str:
    """A tag in the letters a, b, c …, without `x` and without names of the dimensions of images, weights or sequences.

    >>> letters_of("axb", 4), letters_of("nhwc", 4), letters_of("aBx16b", 5), letters_of("ncw", 3)
    ('acdb', 'acdb', 'aBcde16b', 'abc')
    >>> letters_of("gOIhw4o4i", 5), letters_of("ntc", 3)
    ('aBCde4b4c', 'bac')
    """
    letters = {c.lower() for c in tag if c.isalpha()}
    for order in _NAMED:
        own = order.replace("D", "dhw"[5 - ndims + ("g" in order) :] if ndims < 6 + ("g" in order) else "dhw")
        if len(own) == ndims and letters == set(own) and not letters <= set(_LETTERS[:ndims]):
            named = dict(zip(own, _LETTERS, strict=False))
            tag = "".join((named[c.lower()].upper() if c.isupper() else named[c]) if c.isalpha() else c for c in tag)
            break
    if "x" in tag:  # abx and axb of one dimension are a
        tag = "".join(c for c in tag if c not in _LETTERS[ndims:])
    said = {c.lower() for c in tag if c.isalpha()} - {"x"}
    rest = "".join(c for c in _LETTERS[:ndims] if c not in said)
    return tag.replace("x", rest, 1)


def moved(name: str, tag: str, shape: tuple[int, ...], dtype: str) -> Moved:
    """The copy between a layout and the dense one of `shape`; `Unimplemented` for a tag that is none of its layouts.

    >>> moved("src", "ba", (3, 5), "bf16")
    Moved(name='src', tag='ba', dims=(3, 5), strides=(1, 3), size=2)
    >>> moved("src", "aB4b", (2, 6), "f32")  # the second dimension is filled up to 8
    Moved(name='src', tag='aB4b', dims=(2, 2, 4), strides=(8, 4, 1), size=4)
    """
    letters = letters_of(tag, len(shape))
    head = re.match(r"[a-lA-L]*", letters)
    outer = head.group() if head else ""
    blocks = [(axis, int(count)) for count, axis in _BLOCK.findall(letters[len(outer) :])]
    spelled = outer + "".join(f"{count}{axis}" for axis, count in blocks)
    if spelled != letters or sorted(outer.lower()) != list(_LETTERS[: len(shape)]) or 0 in (n for _, n in blocks):
        raise Unimplemented(
            f"--{name[0]}tag={tag}: no layout of {counted(len(shape), 'dimension')}; what works: any, abx, axb"
        )
    inner = {axis: prod(n for a, n in blocks if a == axis) for axis in _LETTERS[: len(shape)]}
    pieces = [(c.lower(), -(-shape[_LETTERS.index(c.lower())] // inner[c.lower()])) for c in outer] + blocks
    strides = [prod(n for _, n in pieces[i + 1 :]) for i in range(len(pieces))]
    found = [
        (n, step) for axis in _LETTERS[: len(shape)] for (a, n), step in zip(pieces, strides, strict=True) if a == axis
    ]
    kept = [(n, step) for n, step in found if n > 1] or [(1, 1)]
    dims, steps = zip(*kept, strict=True)
    return Moved(name, tag, dims, steps, _bytes(name, dtype))


def plain_layouts(tag: str, strides: tuple[int, ...], shape: tuple[int, ...], last: str) -> set[str]:
    """How an image or weights lie: "any", "last" (in the order of those letters), "rows" (in their own), both where
    sizes of 1 leave it open, or nothing of these. The first of an order may be further apart than the rest is large.

    >>> plain_layouts("axb", (), (2, 3, 5, 5), "acdb"), sorted(plain_layouts("abx", (), (8, 1, 1, 1), "cdba"))
    ({'last'}, ['last', 'rows'])
    >>> plain_layouts("any", (80, 1, 20, 4), (2, 4, 3, 5), "acdb"), plain_layouts("aBx8b", (), (2, 8, 3, 5), "acdb")
    ({'last'}, set())
    """
    letters = _LETTERS[: len(shape)]
    if not strides:
        own = letters_of(tag, len(shape))
        if tag == "any" or sorted(own) != list(letters):
            return {"any"} if tag == "any" else set()
        if last[0] == letters[0] and own in (last, letters):  # an image goes by its name
            return {"last" if own == last else "rows"}
        strides = _dense(own, shape)
    return {name for name, order in (("last", last), ("rows", letters)) if _lies_so(order, strides, shape)}


def _dense(order: str, shape: tuple[int, ...]) -> tuple[int, ...]:
    """The strides of a dense tensor whose dimensions lie in an order of their letters, the outermost first."""
    letters = _LETTERS[: len(shape)]
    return tuple(prod(shape[letters.index(c)] for c in order[order.index(a) + 1 :]) for a in letters)


def _lies_so(order: str, strides: tuple[int, ...], shape: tuple[int, ...]) -> bool:
    step = 1
    for letter in reversed(order):
        i = _LETTERS.index(letter)
        if shape[i] > 1 and strides[i] != step and not (letter == order[0] and strides[i] > step):
            return False
        step *= shape[i]
    return True


def _same(strides: tuple[int, ...], others: tuple[int, ...], shape: tuple[int, ...]) -> bool:
    """Whether two layouts are one: dimensions of one element say nothing."""
    return all(n == 1 or step == own for n, step, own in zip(shape, strides, others, strict=True))


def matrix_layout(tag: str, strides: tuple[int, ...], shape: tuple[int, ...]) -> str:
    """How the matrices of a batch lie: "any", "ab" (row by row), "ba" (column by column), which rows and columns of one
    element are as the tag has them, "apart" in front where they are not dense; "blocks" of 16 rows, with how many of
    them lie together, else "".

    >>> matrix_layout("cab", (), (1, 30, 20)), matrix_layout("acbd", (), (2, 5, 3, 4))
    ('ba', 'apart ab')
    >>> matrix_layout("BA16a64b2a", (), (64, 64)), matrix_layout("aCB16b16c", (), (3, 30, 16))
    ('blocks2', 'blocks')
    """
    letters, own = _LETTERS[: len(shape)], letters_of(tag, len(shape))
    if tag == "any" and not strides:
        return "any"
    rows, columns = letters[-2], letters[-1]
    order = f"{letters[:-2]}{columns}{rows}16{rows}(?:16|32|48|64){columns}(?:([24]){rows})?"
    blocked = re.fullmatch(order, own.lower())
    if blocked and not strides:
        return f"blocks{blocked[1] or ''}"
    if not strides:
        if sorted(own) != list(letters):
            return ""
        if own in (letters, letters[:-2] + columns + rows):
            return "ab" if own == letters else "ba"
        strides = _dense(own, shape)
    down, along = strides[-2:]
    found = "ab" if along == 1 or shape[-1] == 1 == down else "ba" if down == 1 or shape[-2] == 1 else ""
    dense = any(_same(strides, _dense(order, shape), shape) for order in (letters, letters[:-2] + columns + rows))
    return found if dense or not found else f"apart {'ab' if own == 'adbc' else found}"


def strided(name: str, strides: tuple[int, ...], shape: tuple[int, ...], dtype: str) -> Moved | None:
    """The copy between a tensor with the user's strides and a dense one; None where these are the dense ones."""
    dense = _dense(_LETTERS[: len(shape)], shape)
    steps = [(n, step) for n, step in zip(shape, strides, strict=True) if n > 1] or [(1, 1)]
    if _same(strides, dense, shape):
        return None
    dims, kept = zip(*steps, strict=True)
    return Moved(name, "x".join(map(str, strides)), dims, kept, _bytes(name, dtype))


def _bytes(name: str, dtype: str) -> int:
    if fmt(dtype).bits < 8:
        raise Unimplemented(f"{name} of {dtype} in another layout than rows: what works: rows")
    return fmt(dtype).bits // 8


def user_strides(text: str, ndims: int, count: int = 3) -> tuple[tuple[int, ...], ...]:
    """The strides of source, weights and destination (of `count` tensors) in --strides; () where the tag says them.

    >>> user_strides("8x1::", 2)
    ((8, 1), (), ())
    """
    parts = text.split(":") if text else [""] * count
    found = tuple(tuple(int(n) for n in part.split("x")) if re.fullmatch(r"\d+(x\d+)*", part) else () for part in parts)
    if len(found) != count or any(part and len(own) != ndims for part, own in zip(parts, found, strict=False)):
        which = ":".join(["src", "weights", "dst"] if count == 3 else ["src", "dst"])
        raise Unimplemented(f"--strides={text}; {ndims} numbers for each of {which} are needed, as in 8x1::")
    return found
