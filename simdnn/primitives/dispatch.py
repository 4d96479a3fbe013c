"""Which kernel runs: every row of the kernel table is a candidate, with its cycles or the reason why it is out.

"fastest" takes the least estimated cycles; a library's name takes what that picks (`simdnn.libraries`); the name of a
kernel takes that one or refuses with its reason. Choices are cached, so a second call of the same shape builds and
estimates nothing.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, NamedTuple

from isa_models import GpuMachine, InvalidArgument, Machine, Unimplemented, UnknownTiming
from isa_models.errors import did_you_mean
from isa_models.formats import fmt
from isa_models.isa import caps, strongest
from isa_models.plugins import with_failures
from simdnn.kernels.common.batch import Batch
from simdnn.kernels.common.batched import repeated
from simdnn.kernels.common.spec import Epilogue, Kernel, KernelKind, MatmulProblem, Problem
from simdnn.kernels.gpu.problem import GpuConvProblem
from simdnn.kernels.table import kernels, kind_of
from simdnn.libraries import LIBRARIES, UNKNOWN, Pick, modelled
from simdnn.primitives import compatible
from simdnn.primitives.accumulation import TYPES, parted
from simdnn.program.records import Program

if TYPE_CHECKING:
    import pandas as pd

    from simdnn.timing.estimate import Cost

Kinds = tuple[KernelKind, ...]
Estimator = Callable[..., "Cost"]  # as `estimate_program`; one that is told of no threads counts one core


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
    question = did_you_mean(value, [*rules, *(kind.name for kind in kernels())])
    said = f"dispatch {value!r:.60}: {question}{' ' * bool(question)}"
    error = InvalidArgument(f"{said}Allowed: {', '.join(rules)}, or a kernel's name as in r.dispatch")
    raise with_failures(error)


def estimate_program(program: Program, machine: Machine, cold: tuple[str, ...], threads: int = 1) -> Cost:
    """`simdnn.timing`'s, imported at first use."""
    from simdnn.timing import estimate

    return estimate.estimate_program(program, machine, cold=cold, threads=threads)


def least_cycles(kind: KernelKind, problem: Problem, machine: Machine) -> float:
    """The cycles that the multiply-accumulates take at the peak rate of the kind's unit; 0 where no unit is known."""
    from simdnn.timing.cpu.peak import peak_macs_per_cycle

    try:
        return problem.macs / peak_macs_per_cycle(machine, kind.compute_dtype, kind.isa)
    except (InvalidArgument, UnknownTiming):
        return 0.0


def estimate_on_gpu(
    program: Program, machine: GpuMachine, cold: tuple[str, ...], copies: tuple[tuple[str, float], ...] = ()
) -> Cost:
    """`simdnn.timing.gpu`'s, imported at first use; `cold`: weights and all else come from memory."""
    from simdnn.timing.gpu.estimate import estimate_gpu

    return estimate_gpu(program, machine, cold=bool(cold), copies=dict(copies))


def no_floor(kind: KernelKind, problem: Problem, machine: object) -> float:
    """No least time is known: every kind that may run is timed."""
    return 0.0


@dataclass(frozen=True)
class Request:
    """All that a choice depends on. `caps`: the ISA caps allowed; `fpmath`: the mode in force for f32 data.

    `acc_mode`: the type of sums that is asked for, "" where the math mode decides. `exact_int8`: True exact kernels
    alone, False the library's fast path, None that too unless an exact one costs no more on `threads` cores.
    """

    problem: Problem
    machine: Machine | GpuMachine
    caps: frozenset[str]
    exact_int8: bool | None
    fpmath: str
    dispatch: str
    cold_weights: bool = False
    threads: int = 1
    acc_mode: str = ""
    kinds: Kinds = field(default_factory=kernels)
    estimator: Estimator = estimate_program
    floor: Callable[..., float] = least_cycles
    library: Callable[[Problem, str, str], Pick] | None = None  # instead of the one that `dispatch` names

    @property
    def integer(self) -> bool:
        return not fmt(self.problem.src).is_float


class Candidate(NamedTuple):
    """A kernel kind that may run, with `reason` empty; or one that is out."""

    kind: KernelKind
    reason: str


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
        r = self.request
        return estimated(self.kind, self.problem, r.machine, r.cold_weights, r.estimator, threads)

    @property
    def exactness_decided(self) -> bool:
        """Whether exact kernels stood beside others, so that their cost decided which runs."""
        able = {c.kind.exact for c in self.candidates if not c.reason}
        return self.request.dispatch == "fastest" and len(able) > 1

    def frame(self) -> pd.DataFrame:
        """Every candidate: implementation, isa, cycles (on one core; missing where it is out), chosen, reason.

        One whose peak rate alone takes longer than all of the kernel that runs is out by that bound, and not timed.
        """
        import numpy as np
        import pandas as pd

        rows, least = [], _cycles(self.kind, self.request)[0]
        for kind, reason in ((c.kind, c.reason) for c in self.candidates):
            cycles, missing = None, reason
            if kind is self.kind or not (missing := reason or self._ruled_out(kind, least)):
                cycles, missing = _cycles(kind, self.request)
            rows.append((kind.name, kind.isa, cycles, kind is self.kind, missing or self._why(kind, cycles == least)))
        names = ("implementation", "isa", "cycles", "chosen", "reason")
        columns: dict[str, Any] = dict(zip(names, map(list, zip(*rows, strict=True)), strict=True))
        return pd.DataFrame(columns | {"cycles": np.array(columns["cycles"], np.float64)})

    def _ruled_out(self, kind: KernelKind, least: float | None) -> str:
        """Why a kind need not be timed: its bound, where that is above the `least` cycles, of the kind that runs."""
        floor = self.request.floor(kind, self.problem, self.request.machine)
        if least is None or floor <= least:
            return ""
        return f"{self._why(kind, False)}: ruled out by a bound, at least {math.floor(floor):,} at its unit's peak rate"

    def _why(self, kind: KernelKind, equal: bool) -> str:
        """Why a kind that may run was taken or left; `equal`: its cycles are those of the one taken."""
        library = LIBRARIES.get(self.request.dispatch)
        if library:
            chosen, other = "exact_int8", f"not {library.title}'s choice"
        elif self.request.dispatch == "fastest":
            chosen, other = "fewest cycles", "more cycles"
        else:
            chosen, other = "named", "not named"
        if self.exactness_decided:
            cores = f" on {self.request.threads} cores" if self.request.threads > 1 else ""
            if kind.exact is not self.kind.exact:
                other = f"exact, but more cycles{cores}" if kind.exact else f"not exact, and no fewer cycles{cores}"
            chosen = f"exact at no more cycles{cores}" if self.kind.exact else chosen
        if kind is not self.kind:
            return self._among_equals(kind) if equal and other == "more cycles" else other
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
        raise Unimplemented(_refusal(request, candidates))
    if request.dispatch in LIBRARIES:
        return picked(request, able, candidates)
    return Choice(request, _fastest(request, able), candidates)


def _fastest(request: Request, able: Kinds) -> KernelKind:
    """The kind of least cycles. Where some are exact and some are not, an exact one that costs no more than the fastest
    of the others on the threads asked for.
    """
    unknown: list[str] = []
    exact, others = (tuple(kind for kind in able if kind.exact is wanted) for wanted in (True, False))
    threads = request.threads if exact and others else 1
    best = _least(request, others, 1, unknown)
    if best and threads > 1:
        best = _cycles(best[1], request, threads)[0] or best[0], best[1]
    rival = _least(request, exact, threads, unknown, best[0] if best else math.inf)
    if found := rival or best:
        return found[1]
    raise UnknownTiming("; ".join(dict.fromkeys(unknown)))


def _least(
    request: Request, kinds: Kinds, threads: int, unknown: list[str], limit: float = math.inf
) -> tuple[float, KernelKind] | None:
    """The least cycles, no more than `limit`, and their kind; what the machine lacks to tell goes to `unknown`.

    Kinds that cannot win are not timed: those whose peak rate alone takes longer than another one's whole time, and
    those that do the work of another and more.
    """
    names = {kind.name for kind in kinds}
    floors = {kind: request.floor(kind, request.problem, request.machine) / threads for kind in kinds}
    best: tuple[float, KernelKind] | None = None
    for kind in sorted((kind for kind in kinds if kind.more_than not in names), key=floors.__getitem__):
        if floors[kind] <= limit if best is None else floors[kind] < best[0]:
            cycles, missing = _cycles(kind, request, threads)
            if cycles is None:
                unknown.append(missing)
            elif cycles <= limit if best is None else cycles < best[0]:
                best = cycles, kind
    return best


def considered(request: Request) -> tuple[Candidate, ...]:
    """Every kind of the operation, with the reason why it cannot run, or none.

    Where int8 need not be exact, an exact kind that has a fast counterpart for the same ISA cap is an option, which
    "fastest" takes if it costs no more, unless the fast path was asked for; exact kinds without one (VNNI, depthwise)
    are the normal kernels. Where a normal one can run, those that may saturate are out even if they take fewer cycles:
    a CPU with VNNI gives exact sums.
    """
    kinds = [kind for kind in request.kinds if isinstance(request.problem, kind.operation)]
    reasons = {kind: out(kind, request) for kind in kinds}
    if request.integer and not request.exact_int8:
        able = [kind for kind, reason in reasons.items() if not reason]
        fast = {kind.isa for kind in able if not kind.exact}
        optional = [kind for kind in able if kind.exact and kind.isa in fast]
        normal = [kind.name for kind in able if kind.exact and kind.isa not in fast]
        if normal or request.exact_int8 is False or request.dispatch != "fastest":
            reasons |= dict.fromkeys(optional, "exact_int8: not asked for")
        if normal:
            saturating = f"exact_int8: some step can saturate or round; {normal[0]} is exact and runs"
            reasons |= dict.fromkeys((kind for kind in able if not kind.exact), saturating)
    return tuple(itertools.starmap(_candidate, reasons.items()))


@functools.lru_cache(maxsize=4096)
def _candidate(kind: KernelKind, reason: str) -> Candidate:
    """One object for what is said of many problems."""
    return Candidate(kind, reason)


def out(kind: KernelKind, request: Request) -> str:
    """Why a kind cannot do what is asked; empty where it can."""
    if kind.isa not in request.caps:
        return f"isa: needs {kind.isa}"
    if reason := kind.accepts(request.problem):
        return reason
    if request.integer and request.exact_int8 and not kind.exact:
        return "exact_int8: some step can saturate or round"
    if kind.library and request.dispatch == "fastest":
        title = LIBRARIES[kind.library].title
        return f"a slow form of {title}'s: dispatch={kind.library!r} takes it where {title} does"
    computes = computes_of(request)
    if kind.unasked and request.dispatch == "fastest" and not _asked_for(kind, request):
        return kind.unasked
    if computes and kind.compute_dtype not in computes:
        return f"fpmath {request.fpmath} computes in {' or '.join(computes)}"
    if reason := _refused_sums(kind, request):
        return reason
    if kind.narrow_sums and scaled_sums(request.problem) and request.dispatch == "fastest":
        return f"adds up in {kind.compute_dtype} before it scales, and may overflow: dispatch={kind.name!r} takes it"
    return ""


def _asked_for(kind: KernelKind, request: Request) -> bool:
    """Whether a kind's strategy of zero points, or else the type of its sums, is asked for by name."""
    if kind.strategies:
        return strategy_of(request.problem) in kind.strategies
    return parted(request.acc_mode)[0] in kind.accumulates


def _refused_sums(kind: KernelKind, request: Request) -> str:
    """Why sums of a kind's type, or of as many products, are not what is asked for; empty where they are."""
    asked, sums = parted(request.acc_mode)[0], " or ".join(kind.accumulates)
    if asked in TYPES:
        had = asked in kind.accumulates and fmt(asked).is_float is not request.integer
        return (
            _refused_interval(kind, request)
            if had
            else f"adds up in {sums}: acc_mode={request.acc_mode!r} is asked for"
        )
    if not kind.narrow_sums:
        return ""
    if asked in ("strict", "relaxed"):
        return f"adds up in {sums}, which acc_mode={asked!r} does not allow"
    if asked == "any" and "f16" in (request.problem.src, request.problem.epilogue.dst):
        return ""
    allowed = compatible.allowed(request.fpmath, "f16")
    return "" if allowed else f"adds up in {kind.compute_dtype}, which fpmath {request.fpmath} does not allow"


def _refused_interval(kind: KernelKind, request: Request) -> str:
    """Why partial sums of as many products as are asked for cannot be had; empty where they can, or nobody asks."""
    every = parted(request.acc_mode)[1]
    if not every:
        return ""
    if request.dispatch in LIBRARIES:
        return (
            f"cuts sums where {LIBRARIES[request.dispatch].title} does: dispatch='fastest' takes a number of products"
        )
    if not kind.promotes:
        return "cuts sums where it does: no number of products"
    if every % kind.promotes:
        return f"adds up {kind.promotes} products at a time: a multiple of that, not {every}"
    return ""


def strategy_of(problem: Problem) -> str:
    """The strategy of zero points that is asked for; "" where there are none, or any will do."""
    taken = isinstance(problem, (MatmulProblem, GpuConvProblem)) and problem.zero_points
    return taken.strategy if taken else ""


def scaled_sums(problem: Problem) -> bool:
    """Whether sums are scaled that a kernel of narrow sums cannot scale ahead: all but those of integer weights."""
    e = problem.epilogue
    return e.src_scale or (bool(e.wei_scale) and fmt(problem.wei).is_float)


def computes_of(request: Request) -> tuple[str, ...]:
    """The types that products may be formed in where the math mode has a say: for f32 sources and compressed weights.

    Elsewhere, for integers and for the narrow floats that a user stores, it has none, and the answer is empty.
    """
    problem = request.problem
    if isinstance(problem, MatmulProblem) and problem.narrow and problem.narrow.reference:
        return ()
    if isinstance(problem, MatmulProblem) and problem.blocks:
        return ()
    if isinstance(problem, (MatmulProblem, GpuConvProblem)) and problem.decompression:
        return problem.decompression.computes
    return compatible.computes(request.fpmath) if problem.src == "f32" else ()


def picked(request: Request, able: Kinds, candidates: tuple[Candidate, ...]) -> Choice:
    """The kernel of a library's choice; where exactness is asked for and it lacks it, the strongest exact kind."""
    of = LIBRARIES[request.dispatch]
    name, library = (request.library or of.choose)(request.problem, strongest(request.caps), request.fpmath)
    kind = next(kind for kind in request.kinds if kind.name == name)
    if request.integer and request.exact_int8 and not kind.exact:
        kind, library = max(able, key=lambda kind: caps().index(kind.isa)), ""
    if reason := kind.accepts(request.problem) or _refused_sums(kind, replace(request, fpmath="any")):
        raise Unimplemented(f"{of.title} takes {library}, whose counterpart {name} cannot do this: {reason}")
    if of.tiles(request.problem, kind.name) and isinstance(request.problem, MatmulProblem):
        request = replace(request, problem=replace(request.problem, tiles=request.dispatch))
    return Choice(request, kind, candidates, library)


def named(request: Request) -> Choice:
    """The kernel that `dispatch` names; `Unimplemented` with the reason where it cannot do the problem."""
    kind = next((kind for kind in request.kinds if kind.name == request.dispatch), None) or kind_of(request.dispatch)
    assert kind is not None  # `check_dispatch` knows the table
    if reason := out(kind, request):
        raise Unimplemented(f"dispatch={kind.name!r}: {reason}; dispatch='fastest' picks among those that can")
    candidates = tuple(
        _candidate(k, out(k, request)) for k in request.kinds if isinstance(request.problem, k.operation)
    )
    return Choice(request, kind, candidates)


@functools.lru_cache(maxsize=256)
def built(kind: KernelKind, problem: Problem, machine: Machine | GpuMachine) -> Kernel:
    """The kind's kernel for a problem, kept for who runs it again."""
    return made(kind, problem, machine)


@functools.lru_cache(maxsize=2)
def made(kind: KernelKind, problem: Problem, machine: Machine | GpuMachine) -> Kernel:
    """The kind's kernel for a problem; those of CPUs know one product, whose program is repeated for a batch.

    The last few alone are kept, as an estimate wants the figures of many kernels and runs none: a program is thousands
    of objects, which Python's collection of garbage would walk over again and again.
    """
    if not isinstance(problem, MatmulProblem) or problem.batch.count == 1 or isinstance(machine, GpuMachine):
        return kind.build(problem, machine)
    one = kind.build(replace(problem, batch=Batch()), machine)
    return repeated(one, problem.batch, problem.epilogue.post_ops)


@functools.lru_cache(maxsize=512)
def estimated(
    kind: KernelKind,
    problem: Problem,
    machine: Machine | GpuMachine,
    cold_weights: bool,
    estimator: Estimator,
    threads: int,
) -> Cost:
    """The kind's cost for a problem on a number of a machine's cores. It keeps no program, but makes it where asked."""
    kernel = made(kind, problem, machine)
    told: dict[str, Any] = {"threads": threads} if threads > 1 else {}
    told |= {"copies": kernel.copies} if kernel.copies else {}
    cold = (*kernel.weights, *kernel.beside) if cold_weights else ()
    cost = estimator(kernel.timed or kernel.program, machine, cold, **told)
    if not hasattr(cost, "without_program"):  # of an estimator that is not the clock
        return cost
    return cost.without_program(functools.partial(_timed, kind, problem, machine))


def _timed(kind: KernelKind, problem: Problem, machine: Machine | GpuMachine) -> Program:
    """The program that the kind's cost for a problem was found from."""
    kernel = made(kind, problem, machine)
    return kernel.timed or kernel.program


@functools.lru_cache(maxsize=512)
def priced_program(program: Program, machine: Machine, cold: tuple[str, ...] = ()) -> Cost:
    """The cost of a program on one core of a machine."""
    return estimate_program(program, machine, cold)


def _cycles(kind: KernelKind, request: Request, threads: int = 1) -> tuple[float | None, str]:
    """Cycles, or None and the figure that the machine lacks."""
    try:
        r = request
        problem = kind.refine(r.problem)
        return estimated(kind, problem, r.machine, r.cold_weights, r.estimator, threads).cycles, ""
    except UnknownTiming as error:
        return None, str(error)


def _is_had(request: Request, acc_mode: str) -> bool:
    """Whether some kind takes a request in another accumulation mode."""
    return any(not c.reason for c in considered(replace(request, acc_mode=acc_mode)))


_MOST_REASONS = 4


def _few(names: Iterable[str]) -> str:
    """The first names, and how many more there are."""
    first, *rest = names
    return f"{first} and {len(rest)} more" if len(rest) > 1 else ", ".join([first, *rest])


def _refusal(request: Request, candidates: tuple[Candidate, ...]) -> str:
    """One line: the problem, and why the kinds that come nearest are out.

    Nearest are those that would take the problem but for the ISA, exactness or the math mode; else those of the
    strategy that is asked for; else those that would take it with nothing after its sums and its weights in a layout of
    their own; else all.
    """
    problem = request.problem
    plain = replace(problem, epilogue=Epilogue("s32" if request.integer else "f32"))
    plain = replace(plain, wei_tag="any")
    near = [c for c in candidates if not c.kind.accepts(problem)]
    if asked := strategy_of(problem):
        near = near or [c for c in candidates if asked in c.kind.strategies]
    near = near or [c for c in candidates if not c.kind.accepts(plain)] or list(candidates)
    reasons: dict[str, list[str]] = {}
    for candidate in near:
        reasons.setdefault(candidate.kind.accepts(problem) or candidate.reason, []).append(candidate.kind.name)
    told = [f"{_few(dict.fromkeys(names))}: {reason}" for reason, names in list(reasons.items())[:_MOST_REASONS]]
    text = "; ".join([*told, "others: see r.dispatch"] if len(reasons) > _MOST_REASONS else told)
    types = f"{problem.src}:{problem.wei}:{problem.epilogue.dst}"
    what = "matmul" if isinstance(problem, MatmulProblem) else "convolution"
    where = f"{request.machine.name} up to {strongest(request.caps)}"
    if request.acc_mode and (works := [mode for mode in ("strict", *TYPES) if _is_had(request, mode)]):
        text += f"; what works: acc_mode={' or '.join(map(repr, works))}, or none"
    return f"no {what} kernel for {types} on {where}: {text or 'the table is empty'}"
