"""Lines that caches fetch along a program's parts, and the phases of its run: `flows.Flows`, given arrays and asked."""

from __future__ import annotations

import operator
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import accumulate, chain
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from isa_models.host.memory import address
from isa_models.machines.cpu_record import CacheLevel
from simdnn.timing.bundles import Lines
from simdnn.timing.cpu.walk import Iteration
from simdnn.timing.flows import OTHER, Flows
from simdnn.timing.footprint import Region
from simdnn.timing.translate import fields_of
from simdnn.timing.translated import Translated

if TYPE_CHECKING:
    from simdnn.timing.memory import LevelTraffic

PAGE_BYTES = 4096  # the part of an address that a program chooses
_FLOWS = Translated(Flows, {"fetch": [], "cut": []})
_SLOT = {name: place for place, name in enumerate(fields_of(Flows))}
_KINDS = {name: np.float64 if kind == "double*" else np.int64 for name, kind in fields_of(Flows).items()}
_PHASES = 256  # that there is room for at first
_OF_A_PHASE = "times", "core_cycles", "aside", "shown", "streamed", "stored", "brought", "tiled", "waiting"
_OF_A_LEVEL = "awaited", *(f"exposed{to}" for to in ("", "_asked", "_fetched", "_walked", "_streamed", "_stored"))


class Phase(NamedTuple):
    """A part of a run, `times` alike: the core's cycles, those that it has `aside` of tiles, those of each level from
    the second on, and how many of these add to the core's; `streamed`: of lines that are loaded in order; `stored`,
    `brought` and `tiled`: of what is stored beside tiles, brought on from their buffers, and stored by them, which no
    rest of their loads hides. `waiting`: those in which lines that tiles are stored to wait for each other.
    """

    times: float
    core: float
    aside: float
    levels: tuple[float, ...]
    shown: float
    streamed: float
    stored: float
    brought: float
    tiled: float
    waiting: float


class Fetched:
    """Lines that each of some caches fetches in one run of a program, whose parts are a `tree`.

    The run before left its lines in the caches, as many as stay, except for the tensors named in `cold` (None: all).
    Where the tree is a part of a `whole`, the run before was of the whole. Tensors named in `passing` bypass the first
    cache. `missed`: by cache, the lines that it fetches and the lines that it writes back.
    """

    def __init__(
        self,
        tree: Region,
        caches: Sequence[CacheLevel],
        cold: Collection[str] | None = None,
        whole: Region | None = None,
        passing: Collection[str] = (),
    ) -> None:
        self.names, self.caches = tree.bundles.table.names, caches
        below = tree.parts_below()
        self.parts, self.deepest = [part for part, _ in below], max([len(loops) for _, loops in below])
        self._room = dict[str, tuple[Any, int, int]]()  # arrays that the record of the state points into: their places
        self._state = [0] * len(_SLOT)
        self._give_tree(tree)
        self._give_caches(tree.line_bytes, cold, whole, passing)
        self._ask("fetch")
        missed = (self.array(name).tolist() for name in ("missed", "missed_written"))
        self.missed = [Lines(*lines) for lines in zip(*missed, strict=True)]

    @property
    def _most_flows(self) -> int:
        """Flows at once: in each loop those with work, below it, with work there, and begun."""
        return 4 * len(self.caches) * (self.deepest + 2)

    @property
    def _most_demands(self) -> int:
        """Demands at once: of each flow, and those of two phases."""
        return self._most_flows + 4 * len(self.caches)

    def stays(self) -> list[float]:
        """The share of each tensor's lines, by cache, that is there for the next run; none where nothing is touched."""
        count = len(self.names)
        table = self.array("stays").reshape(len(self.caches), len(self.parts), count)
        return table[:, 0].ravel().tolist()  # type: ignore[no-any-return]

    def missed_of(self, cache: int) -> dict[str, Lines]:
        """Lines of each tensor that a cache fetches, and that it writes back: once, and again in all iterations."""
        first, last = self.array("first_met")[self.array("one")[0] :][:2]
        names = [self.names[tensor] for tensor in self.array("met")[first:last]]
        columns = (self.array(name)[cache * len(self.names) :] for name in ("once", "once_written"))
        found = {name: Lines(*lines) for name, *lines in zip(names, *columns, strict=False)}
        again = cache * len(self.parts)
        for place in range(again * len(self.names), again * len(self.names) + int(self.array("count")[again])):
            more = (float(self.array(name)[place]) for name in ("fetched", "returned"))
            name = self.names[self.array("tensor")[place]]
            found[name] = Lines(*map(operator.add, found[name], more))
        return found

    def _give_tree(self, tree: Region) -> None:
        numbers = {id(part): number for number, part in enumerate(self.parts)}
        table = tree.bundles.table
        self._give(
            np.int64,
            extent=[part.extent for part in self.parts],
            first_inner=list(accumulate([len(part.loops) for part in self.parts], initial=0)),
            inner=[numbers[id(loop)] for part in self.parts for loop in part.loops],
            own=[part.of_own for part in self.parts],
            one=[part.of_one for part in self.parts],
            all=[part.of_all for part in self.parts],
        )
        for name in ("first_met", "met", "touched", "written", "first_run", "more", "low", "high"):
            column = getattr(table, name)
            self._point(column, [name], [len(column)])
        self._set(tensors=len(table.names), parts=len(self.parts), queries=len(table.first_met) - 1)
        self._set(line_bytes=tree.line_bytes)

    def _give_caches(
        self, line_bytes: int, cold: Collection[str] | None, whole: Region | None, passing: Collection[str]
    ) -> None:
        caches, tensors, parts = len(self.caches), len(self.names), len(self.parts)
        places = [cache.size_bytes / line_bytes for cache in self.caches]
        ways = [cache.ways for cache in self.caches]
        sets = [
            max(1, round(min(all_ / way, PAGE_BYTES / line_bytes))) if way else 0
            for all_, way in zip(places, ways, strict=True)
        ]
        rows = [row for cache in self.caches for row in cache.keeps]
        self._give(
            np.int64,
            sets=sets,
            passing=[int(name in passing) for name in self.names] + [0] * (tensors * (caches - 1)),
            cold=[int(cold is None or name in cold) for name in self.names],
            first_row=list(accumulate([len(cache.keeps) for cache in self.caches], initial=0)),
        )
        before = [1.0] * (caches * tensors)
        if whole is not None:
            of_whole = Fetched(whole, self.caches, None, None, passing)
            places_there = {name: place for place, name in enumerate(of_whole.names)}
            count, shares = len(of_whole.names), of_whole.stays()
            before = [shares[cache * count + places_there[name]] for cache in range(caches) for name in self.names]
        self._give(
            np.float64,
            places=places,
            of_set=[all_ / some if some else 0.0 for all_, some in zip(places, sets, strict=True)],
            crowds=[crowd for crowd, _ in rows],
            shares=[share for _, share in rows],
            before=before,
        )
        self._set(caches=caches)
        queries, lists = self._state[_SLOT["queries"]], caches * parts + self._most_demands
        most = max(sets)
        self._make(
            **dict.fromkeys(("tensor", "fetched", "returned"), lists * tensors),
            count=lists,
            again=caches * parts,
            stays=caches * parts * tensors,
            **dict.fromkeys(("once", "once_written"), caches * tensors),
            **dict.fromkeys(("missed", "missed_written"), caches),
            known=caches * queries,
            kept=caches * queries * tensors,
            in_set=most + 1,
            weighed=most,
        )

    def phases(
        self,
        span: Iteration,
        least: int,
        levels: Sequence[LevelTraffic],
        kinds: Mapping[str, int],
        ahead: Mapping[str, float],
        walked: Mapping[str, float],
        store_queue: int = 0,
        vectors: Sequence[float] = (),
    ) -> list[Phase]:
        """The phases of a run; shorter ones than `least` instructions are none. `span` has the core's time of the same
        parts, `levels` stand behind the caches; `kinds` and `ahead` are those of `memory.Transfers`, `walked`
        has shares of a scheduler (`walked.ColumnWalk`). As many lines as the `store_queue` holds stores wait there
        beside other work; `vectors` are the core's cycles of each part in loops without tiles.
        """
        spans = [(span, True), *_spans(span, iter(self.parts[1:]), least)]
        self._give(np.int64, instructions=[part.instructions for part, _ in spans])
        self._give(
            np.float64,
            core=[part.cycles if asked else 0.0 for part, asked in spans],
            vectors=vectors or [0.0] * len(spans),
        )
        self._give_tensors(kinds, ahead, walked)
        self._give_levels(levels)
        self._set(least=least, store_queue=store_queue)
        flows, tensors = self._most_flows, len(self.names)
        self._make(
            **dict.fromkeys(("level", "demanded", "again_of"), flows),
            **dict.fromkeys(("left_has", "left", "left_written"), flows * tensors),
            last_inner=len(self.parts) * tensors,
        )
        return self._cut(len(levels))

    def _give_tensors(self, kinds: Mapping[str, int], ahead: Mapping[str, float], walked: Mapping[str, float]) -> None:
        """Kinds of tensors, and shares of their lines, as `phases` is told them."""
        names = {name: number for number, name in enumerate(self.names)}
        known = [name for name in ahead if name in names]
        self._give(
            np.int64, kinds=[kinds.get(name, OTHER) for name in self.names], ahead=[names[name] for name in known]
        )
        self._give(
            np.float64,
            ahead_share=[ahead[name] for name in known],
            of_scheduler=[walked.get(name, 0.0) for name in self.names],
        )
        self._set(aheads=len(known))

    def _give_levels(self, levels: Sequence[LevelTraffic]) -> None:
        """The rates of levels behind the caches, and what of their cycles is exposed."""
        slower, later = ([dict(getattr(level, way)) for level in levels] for way in ("slower", "later"))
        self._give(
            np.float64,
            load_rate=[level.load_bytes_per_cycle for level in levels],
            store_rate=[level.store_bytes_per_cycle for level in levels],
            store_slower=[of.get(name, 1.0) for of in slower for name in self.names],
            load_slower=[of.get(name, 1.0) for of in later for name in self.names],
            **{name: [getattr(level, name) for level in levels] for name in _OF_A_LEVEL},
        )
        self._set(both_ways=sum(level.both_ways for level in levels))

    def _cut(self, caches: int) -> list[Phase]:
        """The phases, in arrays that are made longer where they do not suffice."""
        most = _PHASES
        while True:
            self._make(busy=most * caches, **dict.fromkeys(_OF_A_PHASE, most))
            self._set(most_phases=most)
            count = self._ask("cut")
            if count <= most:
                break
            most = count
        busy = self.array("busy").reshape(-1, caches)[:count].tolist()
        columns = (self.array(name)[:count].tolist() for name in _OF_A_PHASE)
        return [
            Phase(times, core, aside, tuple(of_levels), *others)
            for times, core, aside, *others, of_levels in zip(*columns, busy, strict=True)
        ]

    # -- the record of the state ------------------------------------------------------------------------------------

    def _give(self, kind: type, **columns: Sequence[float]) -> None:
        """Arrays with what they hold."""
        self._point(np.array(list(chain.from_iterable(columns.values())), kind), columns, map(len, columns.values()))

    def _make(self, **sizes: int) -> None:
        """Arrays of zeros, which are integers and floats alike."""
        self._point(np.zeros(sum(sizes.values())), sizes, sizes.values())

    def _point(self, values: Any, names: Iterable[str], sizes: Iterable[int]) -> None:
        """Arrays that stand behind each other."""
        first, begin, room, state = address(values), 0, self._room, self._state
        for name, size in zip(names, sizes, strict=True):
            room[name] = values, begin, size
            state[_SLOT[name]] = first + 8 * begin
            begin += size

    def array(self, name: str) -> Any:
        """An array of the state, as it is."""
        values, begin, size = self._room[name]
        return values[begin : begin + size].view(_KINDS[name])

    def _set(self, **numbers: int) -> None:
        for name, number in numbers.items():
            self._state[_SLOT[name]] = number

    def _ask(self, entry: str) -> int:
        told = np.array(self._state, np.int64)
        answer = int(_FLOWS[entry](address(told)))
        self._state = told.tolist()
        return answer


def _spans(
    around: Iteration, parts: Iterator[Region], least: int, cut: bool = True
) -> Iterator[tuple[Iteration, bool]]:
    """The spans within one, each before those within itself, and whether phases ask for its time: long ones, within
    iterations that are `cut` themselves.
    """
    for span in around.loops:
        extent = next(parts).extent
        asked = cut and span.instructions * extent >= least
        yield span, asked
        yield from _spans(span, parts, least, asked and span.instructions >= least)
