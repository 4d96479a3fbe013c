"""Bytes that a Program moves between the levels of the memory hierarchy, and the cycles that this takes.

A layered-footprint analysis in closed form, after the layer conditions of stencil models (Stengel et al.,
"Quantifying performance bottlenecks of stencil computations using the execution-cache-memory model", 2015): a cache
keeps a line from one iteration of a loop to the next where one iteration's lines fit, and of more than fits a share
(`CacheLevel.keeps`; under LRU nothing). What stays is fetched once in the loop, what doesn't in every iteration. Lines
at a stride may meet in few of the cache's sets, which then decide.

Assumed, and not seen in any figure: tensors that begin on a line; pages that lie in memory by chance, so that beyond
the first cache only the place in a page tells the set; write allocation (a line that is stored to is fetched first),
write back; hardware prefetching that hides latency at any stride, so that a transfer costs bandwidth alone; addresses
translated in no time, but where a column is read that has too many pages (`simdnn.timing.walked`).
"""

from __future__ import annotations

import functools
import itertools
import operator
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from math import prod
from typing import NamedTuple

from isa_models.machines.cpu_record import Machine
from isa_models.machines.provenance import Confidence
from simdnn.program.records import Op, Program
from simdnn.timing.bundles import Dims, Lines
from simdnn.timing.fetched import Fetched
from simdnn.timing.flows import APART, ASKED, BROUGHT, STORED, STREAMED, TILED, TILED_ASKED, WALKED
from simdnn.timing.footprint import Region, crossing, keep_to_lines, moves_in_lines, parts
from simdnn.timing.prefetched import streamed
from simdnn.timing.spacing import Slower, Spacing
from simdnn.timing.tile_rows import TileRows
from simdnn.timing.walked import ColumnWalk, walked

LINE_BYTES = 64  # that an instruction fetches ahead
_WIDE, _NARROW = 512, 256  # bits of the widest registers, and without AVX-512
LONG = 4  # reorder buffers of instructions: code that is shorter overlaps with what is before and behind it


@dataclass(frozen=True)
class LevelTraffic:
    """Bytes that one level hands towards the core (`read_bytes`) and takes back (`written_bytes`), and their cycles.

    The first level's are the bytes of the instructions' own loads and stores; every other level's are whole lines,
    `read_bytes` including those fetched because they are stored to.
    """

    level: str
    read_bytes: int
    written_bytes: int
    load_bytes_per_cycle: float
    store_bytes_per_cycle: float
    cycles: float
    confidence: Confidence
    exposed: float = 0.0  # share of the cycles that add to the core's own
    exposed_asked: float = 0.0  # the same of lines asked for ahead of their stores, or loaded past the first cache
    exposed_fetched: float = 0.0  # the same of lines fetched ahead of their loads
    exposed_walked: float = 0.0  # the same of lines that are read one of each row, which nothing fetches ahead
    exposed_streamed: float = 0.0  # the same of long runs of lines in order, beside no stores but near ones
    exposed_stored: float = 0.0  # the same of lines that tiles are stored to
    awaited: float = 0.0  # cycles to a line that is walked to and that nothing fetches ahead; 0: as others
    slower: tuple[Slower, ...] = ()  # tensors whose stored lines take longer
    later: tuple[Slower, ...] = ()  # and those whose loaded lines do
    both_ways: bool = False  # whether it hands lines up and takes others at once

    @property
    def bytes(self) -> int:
        return self.read_bytes + self.written_bytes

    def taking(
        self, slower: tuple[Slower, ...], missed: Mapping[str, Lines], line: int, both_ways: bool
    ) -> LevelTraffic:
        """The level beside tiles, where stored lines of some tensors take longer; `missed` are those of each. The
        longer of its two ways counts where it has them.
        """
        missing = Lines()
        more = sum((times - 1) * line * missed.get(name, missing).written for name, times in slower)
        loaded = (self.read_bytes - self.written_bytes) / self.load_bytes_per_cycle
        stored = (self.written_bytes + more) / self.store_bytes_per_cycle
        cycles = max(loaded, stored) if both_ways else loaded + stored
        return replace(self, slower=slower, both_ways=both_ways, cycles=cycles)

    def __mul__(self, times: float) -> LevelTraffic:
        read, written = round(self.read_bytes * times), round(self.written_bytes * times)
        return replace(self, read_bytes=read, written_bytes=written, cycles=self.cycles * times)


class KindOfCode(NamedTuple):
    """The code by which the clock is decided (`Frequency.ghz`): widest registers in bits, heavy use of them, tiles."""

    bits: int
    heavy: bool
    tiles: bool

    def __str__(self) -> str:
        return "tiles" if self.tiles else f"{self.bits} bits{', heavy use' * (self.heavy and self.bits >= 512)}"


@dataclass(frozen=True, eq=False)
class Transfers:
    """The traffic of all levels in one run, from L1 to DRAM, and where in the program that of all but the first comes
    from.
    """

    levels: tuple[LevelTraffic, ...]
    fetched: Fetched
    kinds: Mapping[str, int]  # tensors that are told apart (`flows.ASKED` and those beside it)
    ahead: Mapping[str, float]  # tensors whose lines it fetches ahead of their loads: the share of them
    kind: KindOfCode
    loading: float = 0.0  # cycles that tiles take on their way to registers, where L1 holds them
    tiled: Program | None = None  # the program, where it works on tiles
    walked: Mapping[str, ColumnWalk] = field(default_factory=dict)  # tensors that are read down a column


def transfers(
    program: Program, machine: Machine, *, cold: Collection[str] = (), within: Program | None = None
) -> Transfers:
    """The traffic of every level from L1 to DRAM, in this order, of one run on one core, and what each is asked for.

    Caches are warm: the program has just been run on the same tensors, as in a benchmark, so a level that holds all
    of them asks nothing of the level behind it. Tensors named in `cold` start in DRAM all the same. Where the program
    is a part of what a core runs, `within` is all of that, which a level must hold.
    """
    tree = parts(program, machine.caches[0].line_bytes)
    whole = parts(within, tree.line_bytes) if within else None
    forms = _forms(program)
    kind = _kind_of(forms)
    apart = _tensors_of(program, forms.apart)
    fetched = Fetched(tree, machine.caches, cold, whole, apart)
    rows, spacing = TileRows(program, machine) if kind.tiles else None, Spacing(program, machine)
    ghz = machine.frequency.ghz(*kind)
    levels = (
        _first_level(tree, machine, 0.0 if kind.tiles else fetched.missed[0][0]),
        *_other_caches(machine, ghz, fetched, kind, rows.share if rows else 0.0, spacing),
        _dram(machine, ghz, fetched),
    )
    ahead, columns = _ahead(program, forms.fetching), walked(program)
    known = dict.fromkeys(columns, WALKED) | dict.fromkeys(apart, APART)
    kinds = _kinds(program, machine, forms, kind, known, ahead, spacing)
    loading, tiled = (rows.loading, program) if rows else (0.0, None)
    return Transfers(levels, fetched, kinds, ahead, kind, loading, tiled, columns)


def _other_caches(
    machine: Machine, ghz: float, fetched: Fetched, kind: KindOfCode, to_tiles: float, spacing: Spacing
) -> Iterator[LevelTraffic]:
    """The traffic of the caches from the second on; `to_tiles`: the share of the bytes that goes to and from tiles."""
    for place, (inner, outer) in enumerate(itertools.pairwise(machine.caches)):
        keys = f"caches.{inner.name}.size_bytes", f"caches.{outer.name}.load_bytes_per_cycle"
        outer = outer.beside(ghz)
        if kind.bits < _WIDE:
            outer = replace(outer, exposed=outer.exposed_narrow)
        rates = outer.load_bytes_per_cycle, outer.store_bytes_per_cycle
        tiled = outer.exposed + to_tiles * (outer.exposed_to_tiles - outer.exposed)
        behind = outer.exposed_to_tiles if place == 0 else outer.exposed
        exposed = tiled, outer.exposed, outer.exposed_fetched, outer.exposed_walked, outer.exposed_streamed, behind
        found, slower = fetched.missed[place], spacing.stored(outer) if kind.tiles else ()
        level = _level(outer.name, found, inner.line_bytes, rates, machine.confidence_of(*keys), exposed)
        missed = fetched.missed_of(place) if slower else {}
        level = level.taking(slower, missed, inner.line_bytes, place == 0) if slower else level
        level = replace(level, awaited=outer.latency_cycles if outer.exposed_walked > outer.exposed else 0.0)
        yield replace(level, later=spacing.loaded(outer)) if kind.tiles else level


def _dram(machine: Machine, ghz: float, fetched: Fetched) -> LevelTraffic:
    last, per_cycle = machine.caches[-1], machine.dram.gb_s_core / ghz
    confidence = machine.confidence_of(f"caches.{last.name}.size_bytes", "dram.gb_s_core")
    exposed = (machine.dram.exposed,) * 6
    return _level("DRAM", fetched.missed[-1], last.line_bytes, (per_cycle, per_cycle), confidence, exposed)


def _kinds(
    program: Program,
    machine: Machine,
    forms: _FormsMet,
    kind: KindOfCode,
    known: Mapping[str, int],
    ahead: Collection[str],
    spacing: Spacing,
) -> dict[str, int]:
    """Tensors that are told apart, with their kinds, the `known` ones among them: of several the last that is added."""
    asked = _tensors_of(program, forms.asking)
    kinds = {**known, **dict.fromkeys(asked, ASKED)}
    widest = _WIDE if "avx512_core" in machine.isa else _NARROW
    if kind.bits == widest and not kind.tiles and any([c.exposed_streamed != c.exposed for c in machine.caches]):
        long = streamed(program, LONG * machine.core.reorder_buffer).difference(ahead)
        kinds = dict.fromkeys(long, STREAMED) | kinds
    if kind.tiles:
        by_tiles = _tensors_of(program, forms.tiled)
        brought = _brought(program, by_tiles)
        late = brought & kinds.keys()
        kinds = dict.fromkeys(_stored(program), STORED) | dict.fromkeys(brought, BROUGHT) | kinds
        kinds |= dict.fromkeys(late & spacing.lost(), BROUGHT) if late else {}
        kinds |= {name: TILED_ASKED if name in asked else TILED for name in by_tiles}
    return kinds


class _FormsMet(NamedTuple):
    """The forms of a program's ops: their kinds (`Op.kind`), and the numbers of some. `apart`: their lines pass the
    first cache by; `asking`, `fetching`: they ask for lines ahead of stores, or of loads; `tiled`: they store tiles.
    """

    kinds: frozenset[tuple[bool, int, bool]]
    apart: frozenset[int]
    asking: frozenset[int]
    fetching: frozenset[int]
    tiled: frozenset[int]


_MOST_FORMS = 1 << 16
_kinds_known: dict[int, tuple[tuple[bool, int, bool], str]] = {}  # by number: the kind, and `_field_of`


def _stored(program: Program) -> frozenset[str]:
    """Tensors that are stored to."""
    return frozenset([memory.tensor for ops, _ in program.straight for memory, stores, *_ in ops.alike if stores])


def _brought(program: Program, by_tiles: Collection[str]) -> set[str]:
    """Tensors that vectors store to beside their loads of what tiles stored."""
    found = set[str]()
    for ops, _ in program.straight if by_tiles else ():
        moves = [(memory.tensor, stores) for memory, stores, *_ in ops.alike]
        if any(name in by_tiles and not stores for name, stores in moves):
            found |= {name for name, stores in moves if stores}
    return found - set(by_tiles)


def _forms(program: Program) -> _FormsMet:
    """The forms of all ops of a program."""
    numbers = set[int]().union(*[ops.forms for ops, _ in program.straight])
    if not numbers <= _kinds_known.keys():
        if len(_kinds_known) >= _MOST_FORMS:
            _kinds_known.clear()
        _kinds_known.update({form.number: (form.kind, _field_of(form)) for form in program.forms})
    found = [(number, *_kinds_known[number]) for number in numbers]
    rare = [(number, field) for number, _, field in found if field]
    fields = [frozenset([number for number, field in rare if field == name]) for name in _FormsMet._fields[1:]]
    return _FormsMet(frozenset([kind for _, kind, _ in found]), *fields)


def _field_of(form: Op) -> str:
    """The field of `_FormsMet` that has the number of an op's form; "" for most."""
    definition = form.definition
    if definition.apart:
        return "apart"
    if definition.ahead:
        return {"store": "asking", "load": "fetching"}[definition.ahead]
    return "tiled" if definition.tile and form.dst is form.memory else ""


def _ahead(program: Program, forms: Collection[int]) -> dict[str, float]:
    """Tensors whose lines ops of some forms fetch ahead of their loads, and the share of the loaded bytes that these
    lines are.
    """
    fetched, loaded = Counter[str](), Counter[str]()
    for op, times in program.ops() if forms else ():
        if op.memory is not None:
            ahead = op.form.number in forms
            (fetched if ahead else loaded)[op.memory.tensor] += times * (8 * LINE_BYTES if ahead else op.memory.bits)
    return {tensor: min(1.0, bits / max(1, loaded[tensor])) for tensor, bits in fetched.items()}


def _tensors_of(program: Program, forms: Collection[int]) -> frozenset[str]:
    """The tensors that ops of some forms touch."""
    if not forms:
        return frozenset()
    return frozenset([m.tensor for ops, _ in program.straight for m, _, op, *_ in ops.alike if op.form.number in forms])


def kind_of_code(program: Program) -> KindOfCode:
    """The kind of a program's code: heavy where it multiplies and adds, or sums products, in its widest registers."""
    return _kind_of(_forms(program))


def _kind_of(forms: _FormsMet) -> KindOfCode:
    tiles = any([tile for tile, _, _ in forms.kinds])
    bits = 512 if tiles else max([width for _, width, _ in forms.kinds], default=128)
    return KindOfCode(bits, any([sums and width >= bits for _, width, sums in forms.kinds]), tiles)


def fits(part: Region, capacity_bytes: int) -> bool:
    """Whether one iteration's lines fit."""
    return sum(lines.touched for lines in part.iteration.values()) * part.line_bytes <= capacity_bytes


def borrowed(program: Program, machine: Machine, levels: Sequence[LevelTraffic], threads: int = 1) -> tuple[int, float]:
    """Bytes that are taken to stay in a last cache that cores share, and how many times these cores' even share of it
    they are; zeros where it is no more than the share.
    """
    last = machine.caches[-1]
    touched = sum(lines.touched for lines in parts(program, last.line_bytes).iteration.values()) * last.line_bytes
    held = round(touched) - levels[-1].read_bytes
    share = last.size_bytes / last.shared_by * threads
    own = max((cache.size_bytes for cache in machine.caches if cache.shared_by == 1), default=0) * threads
    return (held, held / share) if last.shared_by > threads and held > max(share, own) else (0, 0.0)


def _first_level(tree: Region, machine: Machine, filled: float) -> LevelTraffic:
    """Loads and stores of the instructions; these have ports of their own, so the slower of the two sets the time.

    One whose bytes lie in two lines is two for the ports. Loads wait for lines that are `filled` from the next level.
    """
    level, line_bytes = machine.caches[0], tree.line_bytes
    moved = [0, 0]  # loads, stores: bytes
    busy = [0.0, 0.0]  # and cycles of their ports: one after the other, in the text's order
    for part, loops in tree.parts_below():
        if not part.accesses:
            continue
        times = prod([extent for _, extent in loops])
        taken: tuple[dict[int, Sequence[float]], dict[int, Sequence[float]]] = {}, {}  # of each op, by its place
        for (_, starts, size, strides, stores, rows, apart), places in zip(part.accesses, part.places, strict=True):
            each = times * _port_cycles(machine, size, stores)
            moves = moves_in_lines(strides, loops, line_bytes)
            found: Iterable[Sequence[float]] = itertools.repeat((each,), len(starts))
            if rows > 1 or not keep_to_lines(starts, size, moves, line_bytes):
                begins = [start % line_bytes for start in starts]
                of_place = {begin: _of_rows(begin, size, moves, rows, apart, each, line_bytes) for begin in set(begins)}
                found = map(of_place.__getitem__, begins)
            taken[stores].update(zip(places, found, strict=True))
            moved[stores] += times * size * rows * len(starts)
        for way, of_ops in enumerate(taken):
            in_order = map(of_ops.__getitem__, sorted(of_ops))
            busy[way] = functools.reduce(operator.add, itertools.chain.from_iterable(in_order), busy[way])
    rates = level.load_bytes_per_cycle, level.store_bytes_per_cycle
    loaded, stored = moved
    fills = filled * level.fill_cycles
    cycles = max(busy[0] + fills, busy[1], loaded / rates[0] + fills, stored / rates[1])
    confidence = machine.confidence_of(*(f"caches.{level.name}.{way}_bytes_per_cycle" for way in ("load", "store")))
    return LevelTraffic(level.name, loaded, stored, *rates, cycles, confidence)


def _of_rows(
    begin: int, size: int, moves: Dims, rows: int, apart: int, each: float, line_bytes: int
) -> Sequence[float]:
    """Cycles of the ports for each row of an op whose first begins at a place in a line; `each` for one in a line."""
    if rows == 1:
        return (each * (1 + crossing(begin, size, moves, line_bytes)),)
    lines = [(begin + row * apart) % line_bytes for row in range(rows)]
    return [each * (1 + crossing(line, size, moves, line_bytes)) for line in lines]


@lru_cache(maxsize=1024)
def _port_cycles(machine: Machine, size: int, stores: bool) -> float:
    """Cycles that a load, or a store, of some bytes takes of its ports."""
    core = machine.core
    return core.store(8 * size).commit_cycles if stores else core.load(8 * size).pipes / len(core.load_ports)


def _level(
    name: str,
    missed: Lines,
    line: int,
    rates: tuple[float, float],
    confidence: Confidence,
    exposed: tuple[float, float, float, float, float, float],
) -> LevelTraffic:
    read, written = round(missed[0] * line), round(missed[1] * line)
    return LevelTraffic(name, read, written, *rates, transfer_cycles(read, written, *rates), confidence, *exposed)


def transfer_cycles(read: float, written: float, load_rate: float, store_rate: float) -> float:
    """Time of whole lines over one shared path, one way at a time; bytes, and bytes a cycle.

    Store rates are measured on streams of stores, so they already hold the fetch of the line that is stored to.
    """
    return (read - written) / load_rate + written / store_rate
