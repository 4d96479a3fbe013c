"""Images of another size, channels last: each output pixel is a source pixel, or a blend of two by two of them.

Sizes are as p to q in lowest terms, so q neighbouring outputs read the source at fixed places, and the next q ones p
places on: an iteration of the loops makes q x q pixels.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from math import gcd, prod

import numpy as np

from isa_models.readings.arrays import Array
from simdnn.kernels.common.code import Code
from simdnn.kernels.common.expression import Element, trace
from simdnn.kernels.common.vocabulary import Formula, Spread, Vocabulary, filled, inside, steps_of
from simdnn.program.check import verify
from simdnn.program.records import SOURCE, Affine, Program, Tensor

MOST_PIXELS = 16  # of an iteration


@dataclass(frozen=True)
class ResampleProblem:
    """dst (mb, oh, ow, c) of src (mb, ih, iw, c), f32. `places`: by axis, where each output of an iteration reads, its
    lower place and its upper one (alone: the nearest), counted from the iteration's own; what lies beyond the image is
    its edge.
    """

    mb: int
    c: int
    size: tuple[int, int]
    out: tuple[int, int]
    places: tuple[tuple[tuple[int, ...], ...], tuple[tuple[int, ...], ...]]

    @property
    def blends(self) -> bool:
        return len(self.places[0][0]) == 2

    @property
    def steps(self) -> tuple[tuple[int, int], tuple[int, int]]:
        """The places that an iteration moves on, and the outputs that it makes, by axis."""
        return _ratio(self.size[0], self.out[0]), _ratio(self.size[1], self.out[1])

    @property
    def before(self) -> tuple[int, int]:
        """The places ahead of the image that are read, by axis."""
        ahead = [max(0, -min(min(pair) for pair in axis)) for axis in self.places]
        return ahead[0], ahead[1]

    @property
    def whole(self) -> tuple[int, int]:
        """The image's sizes with what is read ahead of it and behind."""
        found = []
        for axis, (p, q), ahead, out in zip(self.places, self.steps, self.before, self.out, strict=True):
            found.append(ahead + (out // q - 1) * p + max(max(pair) for pair in axis) + 1)
        return found[0], found[1]


def _ratio(size: int, out: int) -> tuple[int, int]:
    return size // gcd(size, out), out // gcd(size, out)


def places_of(size: int, out: int, indices: tuple[Array, ...]) -> tuple[tuple[int, ...], ...] | None:
    """The places of an axis from those of all outputs (as many arrays as places for each), or None where outputs of
    different iterations do not read alike. Where an output reads the edge, what it reads beyond is told by others.
    """
    p, q = _ratio(size, out)
    turns = np.arange(out // q)
    found = []
    for r in range(q):
        mine = []
        for index in indices:
            own = index[r::q] - p * turns
            middle = int(own[len(own) // 2])
            if (np.clip(p * turns + middle, 0, size - 1) != index[r::q]).any():
                return None
            mine.append(middle)
        found.append(tuple(mine))
    return tuple(found)


@functools.lru_cache(maxsize=256)
def resampling(p: ResampleProblem, words: Vocabulary) -> Spread:
    """Inputs src (channels last) and, for blends, `rows` (oh, 2) and `columns` (ow, 2): shares; output dst."""
    of = _Resampling(p, words)
    code = of.lines.nest(of.start(), of.vector, ["f32"])
    program = verify(Program(f"resample {p.size} to {p.out}", words.isa, tuple(of.tensors()), tuple(code)))
    return Spread(program, of.prepare, lambda found: inside(found["dst"], of.dest, (p.mb, *p.out, p.c)))


class _Resampling:
    """The generator for one problem: an iteration makes `high` by `wide` outputs; operands of a blend are its four
    corners, then the shares of rows and of columns, which stay in registers.
    """

    def __init__(self, p: ResampleProblem, words: Vocabulary) -> None:
        self.p, self.words = p, words
        (self.down, self.high), (self.across, self.wide) = p.steps
        self.lines = words.lines((p.mb, p.out[0] // self.high, p.out[1] // self.wide), p.c)
        images, turns_down, turns_across, channels = self.lines.full
        self.dest = (images, turns_down * self.high, turns_across * self.wide, channels)
        self.source = (images, *p.whole, channels)
        self.n, self.y, self.x = (self.lines.index(axis) for axis in range(3))
        self.formulas = {(r, s): self.formula(r, s) for r in range(self.high) for s in range(self.wide)}

    @property
    def shares(self) -> list[tuple[str, Affine, int]]:
        """Each share of an iteration: (tensor, place, 0 or 1 of the two neighbours)."""
        rows = [("rows", self.y * self.high + r, i) for r in range(self.high) for i in (0, 1)]
        return rows + [("columns", self.x * self.wide + r, i) for r in range(self.wide) for i in (0, 1)]

    def formula(self, r: int, s: int) -> Formula:
        inputs = ["f32"] * (4 + len(self.shares))
        fixed = range(4, len(inputs)) if self.p.blends else ()
        blend = functools.partial(_blend, 4 + 2 * r, 4 + 2 * self.high + 2 * s)
        return self.words.formula(trace(blend, inputs), "f32", fixed)

    def place(self, row: Affine, column: Affine, shape: tuple[int, ...]) -> Affine:
        return sum((i * step for i, step in zip((self.n, row, column), steps_of(shape), strict=False)), Affine())

    def start(self) -> Code:
        """Shares into their registers."""
        code: Code = []
        for i, (name, position, which) in enumerate(self.shares if self.p.blends else (), 4):
            code += self.words.load(f"x{i}", name, "f32", position * 2 + which, self.words.lanes, same=True)
        return code

    def vector(self, channel: Affine, lanes: int, same: bool) -> Code:
        """The outputs of an iteration in some channels."""
        p, words = self.p, self.words
        code: Code = []
        for (r, s), formula in self.formulas.items():
            rows = [self.y * self.down + (at + p.before[0]) for at in p.places[0][r]]
            columns = [self.x * self.across + (at + p.before[1]) for at in p.places[1][s]]
            corners = [self.place(row, column, self.source) + channel for row in rows for column in columns]
            target = self.place(self.y * self.high + r, self.x * self.wide + s, self.dest) + channel
            if p.blends:
                steps, result = formula.code(functools.partial(_corner, words, corners, lanes, same), lanes)
            else:
                steps, result = words.load("x", "src", "f32", corners[0], lanes, same), words.register("x", lanes)
            code += steps + words.store("f32", target, result, lanes)
        return code

    def tensors(self) -> list[Tensor]:
        sides = (("rows", self.dest[1]), ("columns", self.dest[2])) if self.p.blends else ()
        return [
            Tensor("src", "f32", prod(self.source), role=SOURCE),
            *(Tensor(name, "f32", 2 * size) for name, size in sides),
            Tensor("dst", "f32", prod(self.dest), "output"),
        ]

    def prepare(self, given: Mapping[str, Array]) -> dict[str, Array]:
        """The program's inputs: images with their edges repeated, shares filled up."""
        p = self.p
        image = given["src"].reshape(p.mb, *p.size, p.c)
        for axis, (size, ahead, whole) in enumerate(zip(p.size, p.before, p.whole, strict=True), 1):
            image = image.take(np.clip(np.arange(whole) - ahead, 0, size - 1), axis)
        found = {"src": filled(image, self.source)}
        for name, size in (("rows", self.dest[1]), ("columns", self.dest[2])):
            if name in given:
                found[name] = filled(given[name], (size, 2))
        return found


def _blend(row: int, column: int, *values: Element) -> Element:
    """The four corners by the shares of their columns, then the two by those of their rows; each second product is not
    rounded by itself.
    """
    (low, high), (left, right) = values[row : row + 2], values[column : column + 2]
    above, beneath = (values[i + 1].fma(right, values[i] * left) for i in (0, 2))
    return beneath.fma(high, above * low)


def _corner(words: Vocabulary, corners: list[Affine], lanes: int, same: bool, register: str, operand: int) -> Code:
    return words.load(register, "src", "f32", corners[operand], lanes, same)
