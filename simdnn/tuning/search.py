"""The Pareto front of recipes, from few of them: an additive model, an exact search on it, and runs that correct it.

What a layer's mode adds to the energy of the output's error is taken as independent of the others' (as rounding errors
are, about); what it adds to the cycles, as a figure of its own and one of each pair of neighbours. Dynamic programming
over the layers then finds every combination that is on the model's front: of the modes of those layers that later
neighbours still ask for, it keeps what nothing else beats in cycles and energy. Where those are too many, as between
groups of layers of a transformer, which read many others, it leaves out the pairs that weigh least.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import product
from math import prod

import numpy as np

Modes = tuple[str, ...]  # of all layers, in order
Pairs = Mapping[tuple[int, int], Mapping[tuple[str, str], float]]  # cycles that two layers' modes add, by their places
_MODELLED = 20000  # recipes up to which the model is asked about all
QUIET = 2  # rounds that find nothing, or next to nothing, which end a search
_LITTLE = 0.0025  # of the cycles at the same error, on the mean: what a round is not worth
_LEAST_SEEN, _MOST_SEEN = 0.8, 0.2  # of a recipe's energy over the model's: about 1 dB and 7 dB
MOST_KEPT = 256  # points kept for one state: where there are more, the front is thinned along its energies
_LEAST_KEPT = 16  # where there are many states
MOST_STATES = 256  # of modes that later neighbours ask for, where pairs of layers are weighed


@dataclass(frozen=True)
class Worth:
    """The worth of a recipe, modelled or measured: its cycles, and the energy of its error over that of the output."""

    cycles: float
    energy: float
    modes: Modes


@dataclass(frozen=True)
class Additive:
    """`alone`: cycles over f32's and energy of each layer and mode; `pairs`: what neighbours add by their modes."""

    base: float  # cycles of f32
    options: Sequence[Sequence[str]]
    alone: Sequence[Mapping[str, tuple[float, float]]]
    pairs: Pairs = field(default_factory=dict)

    def knows(self, modes: Modes) -> bool:
        """Whether a recipe has only modes that are modelled."""
        return all(mode in some for mode, some in zip(modes, self.alone, strict=True))

    def point(self, modes: Modes) -> Worth:
        """The model's estimate of a recipe."""
        found = [self.alone[place][mode] for place, mode in enumerate(modes)]
        between = sum(table.get((modes[i], modes[j]), 0.0) for (i, j), table in self.pairs.items())
        return Worth(self.base + sum(c for c, _ in found) + between, sum(e for _, e in found), modes)

    def front(self, most: float = np.inf) -> list[Worth]:
        """All recipes that none beats, the fastest first, of those with an energy of at most `most`."""
        pairs = self._weighed
        last = _last(pairs)
        states: dict[tuple[tuple[int, str], ...], list[Worth]] = {(): [Worth(self.base, 0.0, ())]}
        for place, options in enumerate(self.options):
            grown: dict[tuple[tuple[int, str], ...], list[Worth]] = {}
            for state, points in states.items():
                for mode in options:
                    more, energy = self.alone[place][mode]
                    more += sum(pairs.get((i, place), {}).get((own, mode), 0.0) for i, own in state)
                    known = tuple((i, own) for i, own in (*state, (place, mode)) if last.get(i, -1) > place)
                    grown.setdefault(known, []).extend(
                        Worth(p.cycles + more, p.energy + energy, (*p.modes, mode))
                        for p in points
                        if p.energy + energy <= most
                    )
            kept = min(MOST_KEPT, max(_LEAST_KEPT, MOST_STATES * MOST_KEPT // 4 // len(grown)))
            states = {state: thinned(undominated(points), kept) for state, points in grown.items()}
        return undominated([self.point(point.modes) for points in states.values() for point in points])

    @cached_property
    def _weighed(self) -> Pairs:
        """The pairs that `front` weighs: those that matter most, as far as it can hold their states."""
        found: dict[tuple[int, int], Mapping[tuple[str, str], float]] = {}
        most = {edge: max(map(abs, table.values()), default=0.0) for edge, table in self.pairs.items()}
        for edge in sorted(filter(lambda edge: most[edge], most), key=lambda edge: -most[edge]):
            last = _last([*found, edge])
            open_at = ([i for i, j in last.items() if i <= place < j] for place in range(len(self.options)))
            if max(prod(len(self.options[i]) for i in some) for some in open_at) <= MOST_STATES:
                found[edge] = self.pairs[edge]
        return found


def _last(pairs: Iterable[tuple[int, int]]) -> dict[int, int]:
    """The last layer that is weighed with each one before it."""
    found: dict[int, int] = {}
    for i, j in pairs:
        found[i] = max(j, found.get(i, j))
    return found


def undominated(points: Sequence[Worth]) -> list[Worth]:
    """The points that no other beats in cycles and energy, the fastest first; of equal ones the first.

    >>> [p.modes for p in undominated([Worth(2, 1, ("a",)), Worth(1, 3, ("b",)), Worth(3, 1, ("c",))])]
    [('b',), ('a',)]
    """
    best, found = np.inf, []
    for point in sorted(points, key=lambda p: (p.cycles, p.energy)):
        if point.energy < best:
            best = point.energy
            found.append(point)
    return found


def thinned(points: list[Worth], most: int) -> list[Worth]:
    """At most `most` points of a front, both ends among them."""
    if len(points) <= most:
        return points
    return [points[i] for i in sorted({round(i) for i in np.linspace(0, len(points) - 1, most)})]


def confirmed(
    model: Additive, run: Callable[[Sequence[Modes]], object], known: Mapping[Modes, Worth], most: int, rounds: int = 16
) -> int:
    """Run the recipes of the model's front, and then those beside what was found, until a round finds nothing, or two
    in a row next to nothing.

    `run` measures recipes; `known` fills as it does. Beside the front is what could be on it as well, by the model and
    the largest error that it was seen to make; with `rounds=0` the model's front alone is run. Returns the number of
    rounds; at most `most` recipes are run in each, those first that the model says most good of.
    """
    run([point.modes for point in thinned(model.front(), most)])
    quiet = 0
    for done in range(1, rounds + 1):
        front = undominated(list(known.values()))
        near = candidates(model, front, known)
        run([point.modes for point in near[:most]])
        found = undominated(list(known.values()))
        quiet = quiet + 1 if gained(found, front) < _LITTLE else 0
        if len(near) <= most and found == front or quiet == QUIET:
            return done
    return rounds


def gained(front: Sequence[Worth], before: Sequence[Worth]) -> float:
    """The share of cycles that a front is faster by than an earlier one with the same error, on the mean of its points.

    >>> exact, fast, faster = Worth(100, 0, ("a",)), Worth(60, 0.1, ("b",)), Worth(50, 0.1, ("c",))
    >>> round(gained([faster, exact], [fast, exact]), 3), gained([fast, exact], [fast, exact])
    (0.1, 0.0)
    """
    shares = [
        next((old.cycles for old in before if old.energy <= point.energy), np.inf) / point.cycles - 1 for point in front
    ]
    return float(np.mean(shares))


def candidates(model: Additive, front: Sequence[Worth], known: Mapping[Modes, Worth]) -> list[Worth]:
    """Recipes that are not known and may be on the front, as far off as the model was seen to be; the best said first.

    All recipes are looked at where they are few enough to be modelled; else those that differ from one of the front in
    one layer.
    """
    cost, energy = margins(model, known)
    pool = product(*model.options) if prod(map(len, model.options)) <= _MODELLED else _beside(model, front)
    cycles = [point.cycles for point in front]
    found: list[tuple[float, Worth]] = []
    for modes in pool:
        if modes in known:
            continue
        said = model.point(modes)
        faster = bisect_right(cycles, said.cycles * (1 - cost))  # points of the front that are certainly as fast
        least = front[faster - 1].energy if faster else np.inf
        if said.energy * (1 - energy) < least:
            found.append((said.energy / least, said))
    return [point for _, point in sorted(found, key=lambda pair: (pair[0], pair[1].cycles))]


def between(model: Additive, good: Worth, bad: Worth | None, known: Mapping[Modes, Worth]) -> list[Worth]:
    """Recipes that are not known and should be faster than `good` and better than `bad` (None: however bad), both of
    which were run: the front of what the model says, corrected by what it was wrong by at these two.

    They are on the model's own front, or differ from one of the two in one layer.
    """
    ends = [(point, model.point(point.modes)) for point in (good, bad) if point and model.knows(point.modes)]
    if not ends:
        return []
    ratios = [point.energy / said.energy for point, said in ends if said.energy and point.energy]
    ratio = float(np.exp(np.mean(np.log(ratios)))) if ratios else 1.0
    speed = float(np.mean([point.cycles / said.cycles for point, said in ends]))
    worst = bad.energy if bad else np.inf
    found = [Worth(p.cycles * speed, p.energy * ratio, p.modes) for p in model.front(worst / ratio)]
    for point, was in ends:
        for modes in _beside(model, [point]):
            said = model.point(modes)
            energy = max(0.0, point.energy + (said.energy - was.energy) * ratio)
            found.append(Worth(point.cycles + said.cycles - was.cycles, energy, modes))
    return undominated([p for p in found if p.modes not in known and p.cycles < good.cycles and p.energy < worst])


def _beside(model: Additive, front: Sequence[Worth]) -> Iterator[Modes]:
    """Recipes that differ from a point of the front in one layer."""
    seen = set()
    for point in front:
        if not model.knows(point.modes):
            continue
        for place, options in enumerate(model.options):
            for mode in options:
                modes = (*point.modes[:place], mode, *point.modes[place + 1 :])
                if modes not in seen:
                    seen.add(modes)
                    yield modes


def margins(model: Additive, known: Mapping[Modes, Worth]) -> tuple[float, float]:
    """Shares by which recipes may be cheaper, and better, than the model says: twice what was seen, in decibels."""
    cost, energy = 1.0, _LEAST_SEEN
    for point in known.values():
        if not model.knows(point.modes):
            continue  # what was found to be f32, or no better than another mode
        said = model.point(point.modes)
        cost = min(cost, point.cycles / said.cycles)
        if said.energy:
            energy = min(energy, point.energy / said.energy)
    return 1 - cost**2, 1 - max(energy, _MOST_SEEN) ** 2
