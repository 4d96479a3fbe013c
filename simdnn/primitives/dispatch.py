"""Which kernel runs: every row of the kernel table is a candidate, with its cycles or the reason why it is out.

"fastest" takes the least estimated time, cycles at the clock of such code; a library's name takes what that picks
(`simdnn.libraries`); the name of a kernel takes that one or refuses with its reason. Choices are cached, so a second
call of the same shape builds and estimates nothing.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

from isa_models import GpuMachine, InvalidArgument, Unimplemented, UnknownTiming
from isa_models.errors import what_is_allowed
from isa_models.isa import caps, strongest
from isa_models.plugins import with_failures
from simdnn.garbage import collected_later
from simdnn.kernels.common.kernel import Kernel, KernelKind
from simdnn.kernels.common.problems import ConvProblem, Problem
from simdnn.kernels.table import kernels, kind_of
from simdnn.late import frames, pd
from simdnn.libraries import LIBRARIES, UNKNOWN, modelled
from simdnn.primitives.candidates import Candidate, Kinds, Request, candidate_of, considered, out, refusal, refused_sums
from simdnn.primitives.costs import Outlives, Timed, built, clock_at_peak, just_built, timed

if TYPE_CHECKING:
    from simdnn.timing.estimate import Cost


def check_dispatch(value: object, libraries: bool = True) -> str:
    """A rule of dispatch or the name of a kernel, or `InvalidArgument` with the nearest one.

    `libraries`: whether the rules count that pick as a library does, beside "fastest".
    """
    rules = ("fastest", *(LIBRARIES if libraries else ()))
    if isinstance(value, str) and (value in rules or kind_of(value)):
        return value
    if isinstance(value, str) and value in UNKNOWN:
        raise InvalidArgument(
            f"dispatch {value!r}: what {UNKNOWN[value]} picks, and its order of sums, is not known here; {modelled()}; "
            "dispatch='fastest' works, or a kernel's name as in r.dispatch"
        )
    said = what_is_allowed(value, rules, [kind.name for kind in kernels()])
    raise with_failures(InvalidArgument(f"dispatch {value!r:.60}{said}, or a kernel's name as in r.dispatch"))


@dataclass(frozen=True)
class Choice:
    """The kernel that runs, and what it was chosen from."""

    request: Request
    kind: KernelKind
    candidates: tuple[Candidate, ...]
    library: str = ""  # a library's name of the implementation, where it was asked what it picks

    @property
    def problem(self) -> Problem:
        """The problem, and what the kind decided of it."""
        return self.kind.refine(self.request.problem)

    @property
    def kernel(self) -> Kernel:
        return built(self.kind, self.problem, self.request.machine)

    @property
    def cost(self) -> Cost:
        """The kernel's cost on one core; raises `UnknownTiming`."""
        return self.cost_on(1)

    def cost_on(self, threads: int) -> Cost:
        """The kernel's cost on one core, or on several, which share L3 and DRAM; raises `UnknownTiming`."""
        return _cost(self.kind, self.request, threads)

    @property
    def told(self) -> Outlives:
        """Facts of the kernel, which need not be there."""
        try:
            return _timed(self.kind, self.request, self.request.threads).told
        except UnknownTiming:
            return Outlives.of(just_built(self.kind, self.problem, self.request.machine))

    @property
    def exactness_decided(self) -> bool:
        """Whether exact kernels stood beside others, so that their cost decided which runs."""
        able = {c.kind.exact for c in self.candidates if not c.reason}
        return self.request.dispatch == "fastest" and len(able) > 1

    @collected_later()
    def frame(self) -> pd.DataFrame:
        """Every candidate: implementation, isa, cycles (on one core; missing where it is out), chosen, reason.

        The chosen one first, then the others by their cycles; behind them those that are out, in the table's order. One
        whose peak rate alone takes longer than all of the kernel that runs is out by that bound, and not timed.
        """
        kinds, reasons = (list(column) for column in zip(*self.candidates, strict=True))
        times, least = self._times(kinds, reasons)
        fewer = least and any([time.cycles < least.cycles for time in times.values()])
        for place in [place for place, reason in enumerate(reasons) if not reason]:
            compared = times[place].relative_to(least) if place in times and least else None
            reasons[place] = self._why(kinds[place], compared, "least time" if fewer else "fewest cycles")
        chosen = [place for place, kind in enumerate(kinds) if kind is self.kind]
        first = chosen + sorted(times.keys() - chosen, key=lambda place: (times[place].cycles, place))
        order = first + [place for place in range(len(kinds)) if place not in first]
        columns = {
            "implementation": ("str", tuple([kinds[place].name for place in order])),
            "isa": ("str", tuple([kinds[place].isa for place in order])),
            "cycles": ("float64", [times[place].cycles if place in times else math.nan for place in order]),
            "chosen": ("bool", [kinds[place] is self.kind for place in order]),
            "reason": ("str", [reasons[place] for place in order]),
        }
        return frames.framed(columns, printed=("implementation", "cycles", "reason"))

    def _times(self, kinds: Sequence[KernelKind], reasons: list[str]) -> tuple[dict[int, Time], Time | None]:
        """The times of candidates that may run, by their places, and of the one that runs; the reason is told where
        there is none.
        """
        times, least = dict[int, Time](), _time(self.kind, self.request)[0]
        for place, kind in enumerate(kinds):
            if kind is not self.kind:
                reasons[place] = reasons[place] or self._ruled_out(kind, least)
                if reasons[place]:
                    continue
            time, reasons[place] = _time(kind, in_tiles_of_library(self.request, kind))
            if time:
                times[place] = time
        return times, least

    def _ruled_out(self, kind: KernelKind, least: Time | None) -> str:
        """Why a kind need not be timed: its bound is above `least`, the time of the kind that runs; "" if it is not."""
        if least is None or _floor(kind, self.request, 1) <= least.seconds:
            return ""
        floor = self.request.floor(kind, self.problem, self.request.machine)
        return f"{self._why(kind)}: ruled out by a bound, at least {math.floor(floor):,} at its unit's peak rate"

    def _why(self, kind: KernelKind, compared: str | None = None, fastest: str = "") -> str:
        """Why a kind that may run was taken or left; `compared`: how its time stands to that of the one taken;
        `fastest`: what makes that one the fastest.
        """
        library = LIBRARIES.get(self.request.dispatch)
        if library:
            chosen, other = "exact_int8", f"not {library.title}'s choice"
        elif self.request.dispatch == "fastest":
            chosen, other = fastest, compared or "more cycles"
        else:
            chosen, other = "named", "not named"
        if self.exactness_decided:
            cores = f" on {self.request.threads} cores" if self.request.threads > 1 else ""
            if kind.exact is not self.kind.exact:
                other = f"exact, but more cycles{cores}" if kind.exact else f"not exact, and no fewer cycles{cores}"
            chosen = f"exact at no more cycles{cores}" if self.kind.exact else chosen
        if kind is not self.kind:
            return self._among_equals(kind) if other == EQUAL else other
        return f"{library.title}'s choice: {self.library}" if library and self.library else chosen

    def _among_equals(self, kind: KernelKind) -> str:
        """Why another kind of as many cycles was taken."""
        order = [c.kind for c in self.candidates]
        first = order.index(self.kind) < order.index(kind)
        return f"as many cycles; the {'first of the table' if first else 'one of the higher peak rate'} runs"


@functools.lru_cache(maxsize=512)
def choose(request: Request) -> Choice:
    """The kernel for a request.

    Raises `Unimplemented`, with the reasons, where no kind takes the problem, and `UnknownTiming` where "fastest" has
    no candidate whose cost is known.
    """
    if request.dispatch != "fastest" and request.dispatch not in LIBRARIES:
        return named(request)
    candidates = considered(request)
    able = tuple(c.kind for c in candidates if not c.reason)
    if not able:
        raise Unimplemented(refusal(request, candidates))
    if request.dispatch in LIBRARIES:
        return picked(request, able, candidates)
    return Choice(request, _fastest(request, able), candidates)


def _fastest(request: Request, able: Kinds) -> KernelKind:
    """The kind of least time. Where some are exact and some are not, an exact one that costs no more than the fastest
    of the others on the threads asked for.
    """
    unknown: list[str] = []
    exact, others = (tuple(kind for kind in able if kind.exact is wanted) for wanted in (True, False))
    threads = request.threads if exact and others else 1
    best = _least(request, others, 1, unknown)
    if best and threads > 1:
        time = _time(best[1], request, threads)[0]
        best = time.seconds if time else best[0], best[1]
    rival = _least(request, exact, threads, unknown, best[0] if best else math.inf)
    if found := rival or best:
        return found[1]
    raise UnknownTiming("; ".join(dict.fromkeys(unknown)))


def _least(
    request: Request, kinds: Kinds, threads: int, unknown: list[str], limit: float = math.inf
) -> tuple[float, KernelKind] | None:
    """The least seconds, no more than `limit`, and their kind; what the machine lacks to tell goes to `unknown`.

    Of times that the clock cannot tell apart (`_ALIKE`) the fewest cycles win: what waits for memory takes as long at
    any clock. Kinds that cannot win are not timed: those whose peak rate alone takes longer than another one's whole
    time, and those that do the work of another and more.
    """
    names = {kind.name for kind in kinds}
    floors = {kind: _floor(kind, request, threads) for kind in kinds}
    times: list[tuple[Time, KernelKind]] = []
    for kind in sorted((kind for kind in kinds if kind.more_than not in names), key=floors.__getitem__):
        if floors[kind] <= min((_ALIKE * time.seconds for time, _ in times), default=limit):
            time, missing = _time(kind, request, threads)
            if time is None:
                unknown.append(missing)
            elif time.seconds <= limit:
                times.append((time, kind))
    if not times:
        return None
    least = min(time.seconds for time, _ in times)
    found, kind = min((one for one in times if one[0].seconds <= _ALIKE * least), key=lambda one: one[0].cycles)
    return found.seconds, kind


def picked(request: Request, able: Kinds, candidates: tuple[Candidate, ...]) -> Choice:
    """The kernel of a library's choice; where exactness is asked for and it lacks it, the strongest exact kind."""
    of = LIBRARIES[request.dispatch]
    name, library = (request.library or of.choose)(request.problem, strongest(request.caps), request.fpmath)
    kind = next(kind for kind in request.kinds if kind.name == name)
    if request.integer and request.exact_int8 and not kind.exact:
        kind, library = max(able, key=lambda kind: caps().index(kind.isa)), ""
    if reason := kind.accepts(request.problem) or refused_sums(kind, replace(request, fpmath="any")):
        raise Unimplemented(f"{of.title} takes {library}, whose counterpart {name} cannot do this: {reason}")
    flushes, lifted = of.flushes(request.problem, library, request.caps), of.lifts(request.problem, library)
    if flushes or lifted:
        epilogue = replace(request.problem.epilogue, flushes=flushes, lifted=lifted)
        request = replace(request, problem=replace(request.problem, epilogue=epilogue))
    return Choice(in_tiles_of_library(request, kind), kind, candidates, library)


def in_tiles_of_library(request: Request, kind: KernelKind) -> Request:
    """The request with a library's own tiles for a kind, where it has such a kernel and they are known."""
    library = LIBRARIES.get(request.dispatch)
    if library is None and not request.problem.tiles:
        return request
    plain = replace(request.problem, tiles="")
    if isinstance(plain, ConvProblem):
        plain = replace(plain, caches=(0, 0))
    if library is None or not library.tiles(plain, kind.name):
        return replace(request, problem=plain)
    problem = replace(plain, tiles=request.dispatch)
    if isinstance(problem, ConvProblem) and not isinstance(request.machine, GpuMachine):
        first, second = (cache.size_bytes // cache.shared_by for cache in request.machine.caches[:2])
        problem = replace(problem, caches=(first, second))
    return replace(request, problem=problem)


def named(request: Request) -> Choice:
    """The kernel that `dispatch` names; `Unimplemented` with the reason where it cannot do the problem."""
    kind = next((kind for kind in request.kinds if kind.name == request.dispatch), None) or kind_of(request.dispatch)
    assert kind is not None  # `check_dispatch` knows the table
    if reason := out(kind, request):
        raise Unimplemented(f"dispatch={kind.name!r}: {reason}; dispatch='fastest' picks among those that can")
    candidates = tuple(
        candidate_of(k, out(k, request)) for k in request.kinds if isinstance(request.problem, k.operation)
    )
    return Choice(request, kind, candidates)


class Time(NamedTuple):
    """Time of a kernel, and its cycles."""

    seconds: float
    cycles: float

    def relative_to(self, least: Time) -> str:
        """How it stands to the one taken."""
        if self.seconds == least.seconds:
            return EQUAL
        if self.cycles < least.cycles:
            return f"more time: fewer cycles, at {self.cycles / self.seconds / 1e9:.3g} GHz"
        return "more cycles" if self.cycles > least.cycles else "more time: as many cycles at a lower clock"


def _timed(kind: KernelKind, request: Request, threads: int) -> Timed:
    """A kind's kernel for a request, timed."""
    r = request
    return timed(kind, kind.refine(r.problem), r.machine, r.cold_weights, r.estimator, threads)


def _cost(kind: KernelKind, request: Request, threads: int) -> Cost:
    """A kind's cost, with what a library does around its kernels where its choice is asked for."""
    r = request
    cost = _timed(kind, r, threads).cost
    library = LIBRARIES.get(r.dispatch)
    if library is None or isinstance(r.machine, GpuMachine):
        return cost
    around = library.around(r.problem, kind.name, r.machine, threads)
    return cost.launched(around, library.between(r.problem), library.before_call)


EQUAL = "as many cycles"
_ALIKE = 1.01  # times this near to each other are one: the clock is not surer of either


def _time(kind: KernelKind, request: Request, threads: int = 1) -> tuple[Time | None, str]:
    """A kind's time, or None and the figure that the machine lacks."""
    try:
        cost = _cost(kind, request, threads)
    except UnknownTiming as error:
        return None, str(error)
    return Time(cost.seconds, cost.cycles), ""


def _floor(kind: KernelKind, request: Request, threads: int) -> float:
    """Seconds that a kind takes at the least."""
    cycles = request.floor(kind, request.problem, request.machine)
    if not cycles or isinstance(request.machine, GpuMachine):
        return 0.0
    return cycles / threads / clock_at_peak(kind, request.machine) / 1e9
