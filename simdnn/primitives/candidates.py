"""Which kernels can do what is asked: every row of the kernel table is a candidate, or is out for a reason."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from isa_models import GpuMachine, Machine
from isa_models.formats import fmt
from isa_models.isa import strongest
from simdnn.kernels.common.epilogue import Epilogue
from simdnn.kernels.common.kernel import KernelKind
from simdnn.kernels.common.problems import MatmulProblem, Problem
from simdnn.kernels.gpu.problem import GpuConvProblem
from simdnn.kernels.table import kernels
from simdnn.libraries import LIBRARIES, Pick
from simdnn.primitives import mathmode_types
from simdnn.primitives.accumulation import TYPES
from simdnn.primitives.costs import Estimator, estimate_program, least_cycles

Kinds = tuple[KernelKind, ...]
_MOST_REASONS = 4  # that a refusal tells


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


def considered(request: Request) -> tuple[Candidate, ...]:
    """Every kind of the operation, with the reason why it cannot run, or none.

    Where int8 need not be exact, an exact kind that has a fast counterpart for the same ISA cap is an option, which
    "fastest" takes if it costs no more, unless the fast path was asked for; exact kinds without one (VNNI, depthwise)
    are the normal kernels. Where a normal one can run, those that may saturate are out even if they take fewer cycles:
    a CPU with VNNI gives exact sums.
    """
    problem = request.problem
    reasons = {
        kind: refused or kind.accepts(problem, of_form=not kind.sizes) or later
        for kind, refused, later in _of_form(replace(request, problem=problem.form))
    }
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
    return tuple(itertools.starmap(candidate_of, reasons.items()))


@functools.lru_cache(maxsize=1024)
def _of_form(request: Request) -> tuple[tuple[KernelKind, str, str], ...]:
    """The kinds of the operation of a request for a problem's form, each with why it takes no problem of that form, and
    why it is out of those that it takes; empty where it may be taken.
    """
    form, kinds = request.problem, list[tuple[KernelKind, str, str]]()
    for kind in request.kinds:
        if isinstance(form, kind.operation):
            refused = _refused_isa(kind, request) or kind.refuses(form)
            kinds.append((kind, refused, "" if refused else _out_of_accepted(kind, request)))
    return tuple(kinds)


@functools.lru_cache(maxsize=4096)
def candidate_of(kind: KernelKind, reason: str) -> Candidate:
    """One object for what is said of many problems."""
    return Candidate(kind, reason)


def out(kind: KernelKind, request: Request) -> str:
    """Why a kind cannot do what is asked; empty where it can."""
    return _refused_isa(kind, request) or kind.accepts(request.problem) or _out_of_accepted(kind, request)


def _refused_isa(kind: KernelKind, request: Request) -> str:
    return "" if kind.isa in request.caps else f"isa: needs {kind.isa}"


def _out_of_accepted(kind: KernelKind, request: Request) -> str:
    """Why a kind that accepts the problem is out all the same, whatever its sizes are; empty where it is not."""
    if request.integer and request.exact_int8 and not kind.exact:
        return "exact_int8: some step can saturate or round"
    if kind.library and request.dispatch == "fastest":
        title = LIBRARIES[kind.library].title
        return f"a form of {title}'s: dispatch={kind.library!r} takes it where {title} does"
    computes = computes_of(request)
    if kind.unasked and request.dispatch == "fastest" and not _asked_for(kind, request):
        return kind.unasked
    if computes and kind.compute_dtype not in computes:
        return f"fpmath {request.fpmath} computes in {' or '.join(computes)}"
    if reason := refused_sums(kind, request):
        return reason
    if kind.narrow_sums and not request.integer and scaled_sums(request.problem) and request.dispatch == "fastest":
        return f"adds up in {kind.compute_dtype} before it scales, and may overflow: dispatch={kind.name!r} takes it"
    return ""


def _asked_for(kind: KernelKind, request: Request) -> bool:
    """Whether a kind's strategy of zero points, or else the type of its sums, is asked for by name."""
    if kind.strategies:
        return strategy_of(request.problem) in kind.strategies
    return request.acc_mode in kind.accumulates


def refused_sums(kind: KernelKind, request: Request) -> str:
    """Why sums of a kind's type, or of as many products, are not what is asked for; empty where they are."""
    asked, sums = request.acc_mode, " or ".join(kind.accumulates)
    if asked in TYPES:
        had = asked in kind.accumulates and fmt(asked).is_float is not request.integer
        return _refused_interval(kind, request) if had else f"adds up in {sums}: acc_mode={asked!r} is asked for"
    if not kind.narrow_sums:
        return ""
    if asked in ("strict", "relaxed"):
        return f"adds up in {sums}, which acc_mode={asked!r} does not allow"
    if request.integer:
        return ""
    if asked == "any" and "f16" in (request.problem.src, request.problem.epilogue.dst):
        return ""
    allowed = mathmode_types.allowed(request.fpmath, "f16")
    return "" if allowed else f"adds up in {kind.compute_dtype}, which fpmath {request.fpmath} does not allow"


def _refused_interval(kind: KernelKind, request: Request) -> str:
    """Why partial sums of as many products as are asked for cannot be had; empty where they can, or nobody asks."""
    every = request.problem.promote
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
    return mathmode_types.computes(request.fpmath) if problem.src == "f32" else ()


def _adds_up_so(kind: KernelKind, request: Request) -> bool:
    """Whether a kind of a problem's types adds up in the type that is asked for."""
    problem = request.problem
    return request.acc_mode in kind.accumulates and problem.src in kind.sources and kind.reads(problem.wei)


def _is_had(request: Request, acc_mode: str) -> bool:
    """Whether some kind takes a request in another accumulation mode."""
    return any(not c.reason for c in considered(replace(request, acc_mode=acc_mode)))


def _few(names: Iterable[str]) -> str:
    """The first names, and how many more there are."""
    first, *rest = names
    return f"{first} and {len(rest)} more" if len(rest) > 1 else ", ".join([first, *rest])


def refusal(request: Request, candidates: tuple[Candidate, ...]) -> str:
    """One line: the problem, and why the kinds that come nearest are out.

    Nearest are those that would take the problem but for the ISA, exactness or the math mode; else those of the
    strategy that is asked for; else those that would take it with nothing after its sums and its weights in a layout of
    their own; else all. Those that add up in the type asked for are told first, a library's own forms only where there
    is nothing else.
    """
    problem = request.problem
    plain = replace(problem, epilogue=Epilogue("s32" if request.integer else "f32"))
    plain = replace(plain, wei_tag="any")
    candidates = tuple(c for c in candidates if not c.kind.library) or candidates
    near = [c for c in candidates if not c.kind.accepts(problem)]
    if asked := strategy_of(problem):
        near = near or [c for c in candidates if asked in c.kind.strategies]
    near = near or [c for c in candidates if not c.kind.accepts(plain)] or list(candidates)
    near = list(dict.fromkeys([*(c for c in candidates if _adds_up_so(c.kind, request)), *near]))
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
