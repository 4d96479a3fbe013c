"""The Pareto front of recipes, from few of them: an additive model, an exact search on it, and runs that correct it.

What a layer's mode adds to the energy of the output's error is taken as independent of the others' (as rounding errors
are, about); what it adds to the cycles, as a figure of its own and one of each pair of neighbours. Dynamic programming
over the layers then finds every combination that is on the model's front: of the modes of those layers that later
neighbours still ask for, it keeps what nothing else beats in cycles and energy.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

Modes = tuple[str, ...]  # of all layers, in order
MOST_KEPT = 256  # points kept for one state: where there are more, the front is thinned along its energies


@dataclass(frozen=True)
class Point:
    """What a recipe is worth, modelled or measured: its cycles, and the energy of its error over that of the output."""

    cycles: float
    energy: float
    modes: Modes


@dataclass(frozen=True)
class Additive:
    """`alone`: cycles over f32's and energy of each layer and mode; `pairs`: what neighbours add by their modes."""

    base: float  # cycles of f32
    options: Sequence[Sequence[str]]
    alone: Sequence[Mapping[str, tuple[float, float]]]
    pairs: Mapping[tuple[int, int], Mapping[tuple[str, str], float]] = field(default_factory=dict)

    def point(self, modes: Modes) -> Point:
        """What the model says of a recipe."""
        found = [self.alone[place][mode] for place, mode in enumerate(modes)]
        between = sum(table.get((modes[i], modes[j]), 0.0) for (i, j), table in self.pairs.items())
        return Point(self.base + sum(c for c, _ in found) + between, sum(e for _, e in found), modes)

    def front(self) -> list[Point]:
        """All recipes that none beats, the fastest first."""
        last = {i: max(j for a, j in self.pairs if a == i) for i, _ in self.pairs}
        states: dict[tuple[tuple[int, str], ...], list[Point]] = {(): [Point(self.base, 0.0, ())]}
        for place, options in enumerate(self.options):
            grown: dict[tuple[tuple[int, str], ...], list[Point]] = {}
            for state, points in states.items():
                for mode in options:
                    more, energy = self.alone[place][mode]
                    more += sum(self.pairs.get((i, place), {}).get((own, mode), 0.0) for i, own in state)
                    known = tuple((i, own) for i, own in (*state, (place, mode)) if last.get(i, -1) > place)
                    grown.setdefault(known, []).extend(
                        Point(p.cycles + more, p.energy + energy, (*p.modes, mode)) for p in points
                    )
            states = {state: thinned(undominated(points), MOST_KEPT) for state, points in grown.items()}
        return undominated([point for points in states.values() for point in points])


def undominated(points: Sequence[Point]) -> list[Point]:
    """The points that no other beats in cycles and energy, the fastest first; of equal ones the first.

    >>> [p.modes for p in undominated([Point(2, 1, ("a",)), Point(1, 3, ("b",)), Point(3, 1, ("c",))])]
    [('b',), ('a',)]
    """
    best, found = np.inf, []
    for point in sorted(points, key=lambda p: (p.cycles, p.energy)):
        if point.energy < best:
            best = point.energy
            found.append(point)
    return found


def thinned(points: list[Point], most: int) -> list[Point]:
    """At most so many of a front, both ends among them."""
    if len(points) <= most:
        return points
    return [points[i] for i in sorted({round(i) for i in np.linspace(0, len(points) - 1, most)})]


def confirmed(
    model: Additive, run: Callable[[Modes], Point | None], known: Mapping[Modes, Point], most: int, rounds: int = 12
) -> int:
    """Run the recipes of the model's front, and then those beside what was found, until nothing new comes up.

    `run` measures a recipe (None where it is refused); `known` fills as it does. Beside the front is what differs from
    one of its points in one layer and could, by the model and the largest error that it was seen to make, be on the
    front as well. Returns the number of rounds; at most `most` recipes are run in each.
    """
    for point in thinned(model.front(), most):
        run(point.modes)
    for done in range(1, rounds + 1):
        front = undominated(list(known.values()))
        near = candidates(model, front, known)
        for point in thinned(near, most):
            run(point.modes)
        if not near or [p.modes for p in undominated(list(known.values()))] == [p.modes for p in front]:
            return done
    return rounds


def candidates(model: Additive, front: Sequence[Point], known: Mapping[Modes, Point]) -> list[Point]:
    """Recipes beside the front that may be on it, as far off as the model was seen to be."""
    cost, energy = margins(model, known)
    found: dict[Modes, Point] = {}
    for point in front:
        for place, options in enumerate(model.options):
            for mode in options:
                modes = (*point.modes[:place], mode, *point.modes[place + 1 :])
                if modes in known or modes in found:
                    continue
                said = model.point(modes)
                best = Point(said.cycles * (1 - cost), said.energy * (1 - energy), modes)
                if not any(p.cycles <= best.cycles and p.energy <= best.energy for p in front):
                    found[modes] = said
    return sorted(found.values(), key=lambda p: (p.cycles, p.energy))


def margins(model: Additive, known: Mapping[Modes, Point]) -> tuple[float, float]:
    """The largest shares by which recipes were cheaper, and better, than the model had said."""
    cost = energy = 0.0
    for point in known.values():
        said = model.point(point.modes)
        cost = max(cost, 1 - point.cycles / said.cycles)
        if said.energy:
            energy = max(energy, 1 - point.energy / said.energy)
    return cost, min(energy, 0.9)
