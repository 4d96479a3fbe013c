"""The search for the front of one network on one machine: which recipes are run."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise, product
from math import inf, prod
from typing import Any

from isa_models import InvalidArgument
from isa_models.errors import counted
from isa_models.formats import fmt
from simdnn.networks.narrow_weights import NarrowMode
from simdnn.networks.precision import MODES, Mode
from simdnn.progress import Progress
from simdnn.study.results import Results
from simdnn.tuning.judge import Judge
from simdnn.tuning.measured import Ran, RecipeRuns, Task
from simdnn.tuning.search import QUIET, Additive, Modes, Pairs, Worth, between, confirmed, thinned, undominated
from simdnn.tuning.subjects import Subject
from simdnn.workers import Each

MOST_ALONE = 100  # sensitivities; of more, those are left out that whole networks in one mode make needless
MOST_PAIRS = 400  # of neighbours' modes that are priced before a search
Kernel = tuple[str, str, float]  # name, type of products, cycles


class Finding:
    """Recipes that put each group of layers in a mode. `full`: rows over all feeds; `few`: those of sensitivities,
    which are over few feeds where the subject says so, and then of a machine that was searched before as far as it
    ran them (`before`). `keeps` tells whether a row over all feeds is within the bounds on quality (None: no bounds).
    """

    def __init__(
        self, subject: Subject, judge: Judge, kept: Results, few: Judge | None = None, before: Finding | None = None
    ) -> None:
        self.subject = subject
        self.groups = list(subject.groups)
        self.full = RecipeRuns(subject, judge, kept)
        lender: RecipeRuns | None = before.few if before else None
        self.few: RecipeRuns = RecipeRuns(subject, few, kept, few=True, lender=lender) if few else self.full
        self.keeps: Callable[[Mapping[str, Any]], bool] | None = None
        self.points: dict[Modes, Worth] = {}
        self.total = {False: 0, True: 0}  # recipes over all feeds and few that are to be run, as far as is known
        self.stage = ""  # of the search, to be told behind what runs
        self.losses = kept.losses

    def told(self, progress: Progress) -> None:
        """Call `progress` with (done, of how many, what) after each recipe: recipes, or where some run over few feeds
        and some over all, runs of a feed.
        """
        feeds = {few: self.subject.count(few) if self.few is not self.full else 1 for few in (False, True)}
        done = {False: 0, True: 0}
        what = f"{'runs of a sample' if self.few is not self.full else 'recipes'} on {self.subject.machine.name}"

        def tell(few: bool, count: int) -> None:
            done[few] = count
            met = sum(done[few] * feeds[few] for few in done)
            progress(met, sum(max(self.total[few], done[few]) * feeds[few] for few in done), what + self.stage)

        for runs in (self.full, self.few):
            runs.tell = lambda count, few=runs.few: tell(few, count)

    def _expect(self, searched: int, confirmed: int = 0) -> None:
        """Note how many recipes the search runs in all, and where it goes by few feeds how many run over all."""
        apart = self.few is not self.full
        self.total = {True: searched, False: confirmed} if apart else {True: 0, False: searched}

    def run_by(self, each: Each[Task, Ran] | None) -> Finding:
        """This, its recipes run by somebody else (None: this process)."""
        self.full.each = self.few.each = each
        if each is None:
            self.full.tell = self.few.tell = None
        return self

    # -- recipes by groups -----------------------------------------------------------------------------------------
    def recipe(self, key: Modes) -> dict[str, str]:
        """The mode of each layer."""
        own = {layer: mode for group, mode in zip(self.groups, key, strict=True) for layer in group}
        return {layer: own[layer] for layer in self.subject.layers}

    def _all(self, mode: str) -> Modes:
        """One mode in all groups that take it."""
        return tuple(mode if self._takes(place, mode) else "f32" for place in range(len(self.groups)))

    def _takes(self, place: int, mode: str) -> bool:
        """Whether the layers of a group may be in a mode, which is of products alone or of convolutions as well."""
        convolutions = self.subject.convolutions.intersection(self.groups[place])
        return not NarrowMode.kept(MODES[mode].narrow, bool(convolutions))

    def _with(self, own: Mapping[int, str]) -> Modes:
        return tuple(own.get(place, "f32") for place in range(len(self.groups)))

    def _rows(self, keys: Sequence[Modes]) -> list[dict[str, Any]]:
        """Rows over few feeds, by which the search goes."""
        rows = self.few.rows([self.recipe(key) for key in keys])
        for key, row in zip(keys, rows, strict=True):
            self.points[key] = Worth(inf if row["refused"] else row["cycles"], _energy(row), key)
        return rows

    def _measure(self, keys: Sequence[Modes]) -> list[dict[str, Any]]:
        """Rows over all feeds."""
        return self.full.rows([self.recipe(key) for key in keys])

    # -- the search ------------------------------------------------------------------------------------------------
    def search(self, names: Sequence[str]) -> list[str]:
        """Run what the front needs; what is to be said of it."""
        alike = any(len(group) > 1 for group in self.groups)
        many = alike or len(names) * len(self.groups) > MOST_ALONE
        self._expect(1 + len(self.groups) * (len(names) - 1), 1)
        self._rows([self._all("f32")])
        if self._measure([self._all("f32")])[0]["sqnr_db"] == -inf:
            raise InvalidArgument("f32's outputs are no finite numbers over the feeds: no recipe can be judged by them")
        whole = self._whole(names) if many else {}
        wanted = self._wanted(names, whole)
        if alike:
            wanted = self._halved(wanted)
        self._expect(
            len(self.few.modes) + sum(len(some) - 1 for some in wanted) + 2 * self.subject.a_round,
            len(self.full.modes) + self.subject.shown,
        )
        options, lacking = self._options(wanted)
        count = prod(map(len, options))
        if count <= self.subject.enumerable:
            every = list(product(*options))
            self._expect(len(self.few.modes) + sum(key not in self.points for key in every), count)
            self._rows(every)
            self._measure(every)
            ran = f"all {count} recipes were run" if count > 1 else "there is one recipe"
            return [f"{ran}: the front is the true one", *lacking]
        of = len(names) ** len(options) if many else count
        return [*self._modelled(options, whole, of), *lacking]

    def _confirm(self) -> None:
        """Run recipes of the front over few feeds over all; where there are bounds, of those within, and then what may
        be within and is faster, the most accurate first.
        """
        front, some = self._front(), self.subject.shown
        if not self.keeps:
            self._finish([point.modes for point in thinned(front, some)])
            return
        self._finish([point.modes for point in thinned(front[self._crossing(front) :], some // 2)])
        for _ in range(some // 2):
            kept = [row["cycles"] for row in self.full.rows(self.full.modes) if self.keeps(row)]
            faster = [p for p in self.points.values() if p.cycles < min(kept) and not self._known(p.modes)]
            if faster:
                self._finish([min(faster, key=lambda point: point.energy).modes])

    def _finish(self, keys: Sequence[Modes]) -> None:
        """Run recipes over all feeds, behind which no more are foreseen."""
        more = sum(self.recipe(key) not in self.full.modes for key in keys)
        self._expect(len(self.few.modes), len(self.full.modes) + more)
        self._measure(keys)

    def _front(self) -> list[Worth]:
        """Recipes that the search ran and none beats."""
        return undominated([point for point in self.points.values() if point.energy < inf])

    def _at_bound(self, model: Additive) -> int:
        """Run recipes where the front meets the bounds, until nothing new comes up twice; the number of rounds."""
        quiet = 0
        for done in range(1, self.subject.rounds + 1):
            front = self._front()
            at = self._crossing(front)
            near = between(model, front[at], front[at - 1] if at else None, self.points)
            some = thinned(near, self.subject.a_round // 2)
            self._expect(len(self.few.modes) + len(some), len(self.full.modes) + self.subject.shown // 2)
            self._rows([point.modes for point in some])
            quiet = quiet + 1 if self._front() == front else 0
            if not near or quiet == QUIET:
                return done
        return self.subject.rounds

    def _crossing(self, front: Sequence[Worth]) -> int:
        """The place in a front of the fastest recipe within the bounds: half of what is between it and the slowest one
        that is not is run over all feeds, until nothing is. f32 is within all bounds.
        """
        assert self.keeps
        while True:
            known = {at: self._known(point.modes) for at, point in enumerate(front)}
            good = min((at for at, row in known.items() if row and self.keeps(row)), default=len(front) - 1)
            bad = max((at for at, row in known.items() if row and at < good), default=-1)
            middle = (good + bad) // 2
            if middle == bad:
                return good
            self._measure([front[middle].modes])

    def _known(self, key: Modes) -> dict[str, Any]:
        """The row over all feeds of a recipe that was run over them; empty for another one."""
        recipe = self.recipe(key)
        return self.full.row(recipe) if recipe in self.full.modes else {}

    def _whole(self, names: Sequence[str]) -> dict[str, dict[str, Any]]:
        """Whole networks in one mode, over all feeds too; those that are another mode's very run have its row."""
        uniform = dict(zip(names, map(self._all, names), strict=True))
        guess = len(names) + len(self.groups) * (len(names) - 1) // 2  # half of the modes are worth trying
        self._expect(guess, len(names) + self.subject.shown)
        rows = dict(zip(names, self._rows(list(uniform.values())), strict=True))
        twins: dict[str, str] = {}
        for at, name in enumerate(names):
            twin = next((one for one in names[:at] if one not in twins and _alike(rows[one], rows[name])), None)
            twins |= {} if twin is None else {name: twin}
        self._measure([key for name, key in uniform.items() if name not in twins])
        for name, twin in twins.items():
            self.full.share(self.recipe(uniform[name]), self.recipe(uniform[twin]))
        return rows

    def _wanted(self, names: Sequence[str], whole: Mapping[str, Mapping[str, Any]]) -> list[Sequence[str]]:
        """The modes to be tried in each group: all, or what whole networks in one mode leave."""
        kernels = {name: self._kernels(row) for name, row in whole.items() if not row["refused"]}
        places = range(len(self.groups))
        if not kernels:
            return [[name for name in names if self._takes(place, name)] for place in places]
        return [
            worth_trying(names, {name: found[place] for name, found in kernels.items() if self._takes(place, name)})
            for place in places
        ]

    # -- layers alike ----------------------------------------------------------------------------------------------
    def _halved(self, wanted: Sequence[Sequence[str]]) -> list[Sequence[str]]:
        """Halve groups of layers as often as the subject allows, and the modes to be tried in each: always the group
        that has a mode whose gain times whose error is the largest. What one layer of many loses is found so, and
        leaves the others free.
        """
        found = list(wanted)
        many = max(len(some) - 1 for some in found)
        self._expect(len(self.few.modes) + many * (len(found) + 2 * self.subject.halvings), len(self.full.modes))
        self._rows([self._with({place: mode}) for place, some in enumerate(found) for mode in some])
        for _ in range(self.subject.halvings):
            at_stake = {
                place: max(self._at_stake(row) for _, row in self._alone(place, found[place]))
                for place, group in enumerate(self.groups)
                if len(group) > 1
            }
            place = max(at_stake, key=lambda place: at_stake[place], default=-1)
            if place < 0 or not at_stake[place]:
                break
            self._halve(place)
            found.insert(place, found[place])
            self._rows([self._with({half: mode}) for half in (place, place + 1) for mode in found[place]])
        return found

    def _halve(self, place: int) -> None:
        """Two groups in place of one; recipes that ran had the same mode in both."""
        group = self.groups[place]
        self.groups[place : place + 1] = [group[: len(group) // 2], group[len(group) // 2 :]]
        grown = {(*key[: place + 1], *key[place:]): point for key, point in self.points.items()}
        self.points = {key: replace(point, modes=key) for key, point in grown.items()}

    def _at_stake(self, row: Mapping[str, Any]) -> float:
        """The cycles that a mode saves, times its error."""
        return 0.0 if row["refused"] else max(0.0, self._base["cycles"] - row["cycles"]) * _energy(row)

    @property
    def _edges(self) -> list[tuple[int, int]]:
        """Pairs of groups, the second reading the first."""
        at = {layer: place for place, group in enumerate(self.groups) for layer in group}
        return list(dict.fromkeys((at[a], at[b]) for a, b in self.subject.borders if at[a] < at[b]))

    def _modelled(
        self, options: Sequence[Sequence[str]], whole: Mapping[str, Mapping[str, Any]], count: int
    ) -> list[str]:
        """Run what a model of the recipes names, and what they tell of it; notes on how, of `count` recipes in all.
        Recipes of one mode in all layers run first: users expect them, and they show how far off the model is.
        """
        alone = [
            {mode: (row["cycles"] - self._base["cycles"], _energy(row)) for mode, row in self._alone(place, some)}
            for place, some in enumerate(options)
        ]
        pairs = self._pairs(options)
        learned = not pairs and bool(whole)
        model = Additive(self._base["cycles"], options, alone, self._learned(options, whole) if learned else pairs)
        self._rows([self._all(mode) for mode in options[0] if all(mode in some for some in options)])
        rounds = 0 if self.keeps and self.few is not self.full else self.subject.rounds
        rounds = confirmed(model, self._in_rounds(rounds), self.points, self.subject.a_round, rounds)
        rounds += self._at_bound(model) if self.keeps else 0
        if self.few is not self.full:
            self._confirm()
        said = "; what borders cost was taken from whole networks in one mode" if learned else ""
        said = said if pairs or learned else "; borders were not priced beforehand"
        few, full = len(self.few.modes), len(self.full.modes)
        ran = f"{few} of {_many(count)} recipes were run, in {counted(rounds, 'round')}"
        notes = [
            f"{ran}, chosen by an additive model: a recipe that is better than the model says may be missing{said}"
        ]
        if self.few is not self.full:
            notes.append(
                f"the search ran {few} recipes over few samples; the {full} best and uniform ones ran over all"
            )
        if self.few.lender and self.few.lent:
            other = self.few.lender.subject.machine.name
            notes.append(f"in the search {self.few.lent} recipes have the errors that they had on {other}")
        return notes

    def _in_rounds(self, most: int) -> Callable[[Sequence[Modes]], object]:
        """Runs recipes, a round a call after the first; told are as many as at most follow."""
        rounds = iter(range(most + 1))

        def run(keys: Sequence[Modes]) -> None:
            done = next(rounds)
            self._expect(
                len(self.few.modes) + len(keys) + (most - done) * self.subject.a_round,
                len(self.full.modes) + self.subject.shown,
            )
            self.stage = f", round {done} of at most {most}" if done else ""
            self._rows(keys)
            self.stage = ""

        return run

    @property
    def _base(self) -> dict[str, Any]:
        """f32, as sensitivities are over it."""
        return self._rows([self._all("f32")])[0]

    def _options(self, wanted: Sequence[Sequence[str]]) -> tuple[list[list[str]], list[str]]:
        """The modes that each group can have, and why it lacks some: refused, or without any effect."""
        self._rows([self._with({place: mode}) for place, some in enumerate(wanted) for mode in some])
        options, notes = [], []
        for place, group in enumerate(self.groups):
            found, same, lacking = [], [], {}
            for mode, row in self._alone(place, wanted[place]):
                if row["refused"]:
                    lacking[mode] = row["refused"]
                elif mode != "f32" and "f32" in wanted[place] and row == self._base:
                    same.append(mode)
                else:
                    found.append(mode)
            options.append(found or ["f32"])
            layer = group[0] if len(group) == 1 else f"{group[0]} and {len(group) - 1} like it"
            if same:
                notes.append(f"{layer}: {', '.join(same)} would be f32")
            notes += [f"{layer}: no {mode}: {reason}" for mode, reason in lacking.items()]
        return options, notes

    def _alone(self, place: int, modes: Sequence[str]) -> list[tuple[str, dict[str, Any]]]:
        """Each mode with the row of the recipe in which one group alone has it."""
        return list(zip(modes, self._rows([self._with({place: mode}) for mode in modes]), strict=True))

    def _kernels(self, row: Mapping[str, Any]) -> list[list[Kernel]]:
        """The kernels of a row's layers, by group."""
        own = dict(zip(self.subject.layers, json.loads(row["implementation"]), strict=True))
        return [[tuple(own[layer]) for layer in group] for group in self.groups]

    # -- what neighbours cost --------------------------------------------------------------------------------------
    def _pairs(self, options: Sequence[Sequence[str]]) -> Pairs:
        """Cycles that neighbours' modes add beyond what each adds alone; nothing where there are too many."""
        some = {(i, j): [(a, b) for a in options[i] for b in options[j]] for i, j in self._edges}
        if sum(map(len, some.values())) > MOST_PAIRS:
            return {}
        base = self._base["cycles"]
        both = [(i, j, a, b) for (i, j), pairs in some.items() for a, b in pairs if "f32" not in (a, b)]
        whole = self.few.costs([self.recipe(self._with({i: a, j: b})) for i, j, a, b in both])
        found: dict[tuple[int, int], dict[tuple[str, str], float]] = {edge: {} for edge in some}
        for (i, j, a, b), cycles in zip(both, whole, strict=True):
            alone = self._rows([self._with({i: a}), self._with({j: b})])
            found[i, j][a, b] = cycles - base - sum(row["cycles"] - base for row in alone)
        return found

    def _learned(self, options: Sequence[Sequence[str]], whole: Mapping[str, Mapping[str, Any]]) -> Pairs:
        """Cycles that one mode on both sides saves, between each group and the next: so much that the whole network in
        that mode costs what it does. Beyond its kernel, a group alone costs its borders.
        """
        base = self._base
        found: dict[tuple[int, int], dict[tuple[str, str], float]] = {
            pair: {} for pair in pairwise(range(len(options)))
        }
        plain = self._kernels(base)
        for mode, row in whole.items():
            if row["refused"] or mode == "f32":
                continue
            kernels = self._kernels(row)
            borders = []
            for place, some in enumerate(options):
                own = sum(k[2] for k in kernels[place]) - sum(k[2] for k in plain[place])
                alone = self._alone(place, [mode])[0][1]["cycles"] - base["cycles"] if mode in some else 0.0
                borders.append(alone - own if mode in some else 0.0)
            own = sum(k[2] for one in kernels for k in one) - sum(k[2] for one in plain for k in one)
            between = row["cycles"] - base["cycles"] - own
            share = 1 - between / sum(borders) if sum(borders) > 0 else 0.0
            for i, j in found:
                if mode in options[i] and mode in options[j]:
                    ends = [borders[k] / (1 if k in (0, len(options) - 1) else 2) for k in (i, j)]
                    found[i, j][mode, mode] = -share * sum(ends)
        return found


def _many(count: int) -> str:
    return str(count) if count < 10**6 else f"{float(count):.0e}"


def _alike(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Whether two modes of the whole network are one: as many cycles, and the same error, which differs otherwise."""
    return not one["refused"] and (one["cycles"], one["sqnr_db"]) == (other["cycles"], other["sqnr_db"])


def _energy(row: Mapping[str, Any]) -> float:
    return inf if row["refused"] else float(10 ** (-row["sqnr_db"] / 10))


def worth_trying(names: Sequence[str], kernels: Mapping[str, Sequence[Kernel]]) -> list[str]:
    """The modes of some layers that no other one leaves without a point: as close to f32 or closer, and no slower.

    `kernels`: those of the layers by mode. Only modes that change nothing around their layers are compared with others
    than those that store the same.
    """
    cycles = {name: sum(kernel[2] for kernel in some) for name, some in kernels.items()}

    def beats(one: str, other: str) -> bool:
        programs = [[kernel[:2] for kernel in kernels[name]] for name in (one, other)]
        twins = programs[0] == programs[1] and _stored(one) == _stored(other)
        if cycles[one] > cycles[other] or not (twins or closer(MODES[one], MODES[other])):
            return False
        back = twins or closer(MODES[other], MODES[one])  # of equals the first stays
        return cycles[one] < cycles[other] or not back or names.index(one) < names.index(other)

    tried = [name for name in names if name in kernels]
    return [name for name in tried if not any(beats(other, name) for other in tried if other != name)]


def closer(one: Mode, other: Mode) -> bool:
    """Whether products in one mode are at least as close to f32 as in another, and nothing around them differs.

    >>> closer(MODES["fpmath-bf16"], MODES["s8-weights"]), closer(MODES["s8-weights"], MODES["f32"])
    (True, False)
    >>> closer(MODES["int8-vnni"], MODES["int8-fast"]), closer(MODES["bf16"], MODES["int8-vnni"])
    (True, False)
    >>> closer(MODES["s4-g32"], MODES["s4-weights"]), closer(MODES["s4-weights"], MODES["nvfp4"])
    (True, False)
    """
    if one.is_integer or other.is_integer:
        return _stored(one.name) == _stored(other.name) and (
            one.exact_int8 is True or one.exact_int8 == other.exact_int8
        )
    if one.src != other.src or one.fpmath not in (None, other.fpmath):
        return False
    bits = fmt(one.weights).bits - fmt(other.weights).bits
    if bits or not one.stores:
        return bits >= 0
    same = (one.weights, one.narrow) == (other.weights, other.narrow)  # two types, or rules of scales, are not compared
    return same and one.weight_group <= other.weight_group


def _stored(name: str) -> tuple[object, ...]:
    mode = MODES[name]
    return mode.src, mode.weights, mode.weight_group, mode.narrow, mode.zero_points, mode.per_tensor
