"""Every departure of a result from exact integer arithmetic: which kind, in which outputs, how often, by how much.

Exact means: the sum of products, less zero points, as a number without limits, then the epilogue in f32 on it, then the
destination's type where that holds the result. What f32 rounds in scales and what a destination rounds is asked for and
no departure. Of floating-point products there is no such sum; their integer destinations are judged alone.

A kind is *met* by an output where its event happens on the way there, and *changes* it where the sum is then another
one (events can cancel each other). An output that is not what exact arithmetic makes of it has met at least one kind.
Nothing is computed before it is asked for; then the operands kept with the result are run through the same kernel with
another end (its sums, its counts, its values before the destination).
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from isa_models import InvalidArgument
from isa_models.errors import shortly, what_is_allowed
from isa_models.formats import fmt
from isa_models.readings.arrays import Array
from isa_models.records.alike import Alike
from isa_models.records.display import InNotebooks
from simdnn.explanations.exact import Sums
from simdnn.kernels.common.epilogue import Epilogue, Parameters
from simdnn.kernels.common.kernel import Kernel
from simdnn.kernels.common.pack import halved
from simdnn.kernels.common.problems import MatmulProblem, Problem, of_integers
from simdnn.late import frames, pd
from simdnn.progress import working

PAIR = "saturated pair"
SUM = "saturated sum"
HALVED = "halved weights"
WRAPPED = "wrapped sum"
ROUNDED = "rounded sum"
REDUCTIONS = "wrong reductions"
CLIPPED = "clipped destination"
SATURATED = (PAIR, SUM)
KINDS = (PAIR, SUM, HALVED, REDUCTIONS, WRAPPED, ROUNDED, CLIPPED)
COLUMNS = ("kind", "step", "outputs", "share", "events", "changed", "max_error")

_EXACT_F32 = 1 << 24
_S32 = fmt("s32")
_F16_OVERFLOWS = 65520.0  # what rounds to infinity


@dataclass(frozen=True, eq=False)
class Departure(Alike):
    """One kind where it happened: events by output, and by how much it moved each sum (of CLIPPED: each result)."""

    kind: str
    step: str
    events: Array  # int64
    error: Array  # f64, magnitudes


@dataclass(frozen=True, eq=False)
class Departures(Alike, InNotebooks):
    """A kernel that ran, with its operands and what runs it once more.

    `rebuild` makes the same kernel with another epilogue, `run` the values of a kernel with these operands. `above`: of
    the results that the destination does not hold, those above it alone count, as what is below 0 is to be cut.
    """

    kernel: Kernel
    problem: Problem
    src: Array = field(repr=False)
    weights: Array = field(repr=False)
    parameters: Parameters = field(repr=False)
    shape: tuple[int, ...]  # of the output
    rebuild: Callable[[Epilogue], Kernel] = field(repr=False)
    run: Callable[[Kernel, Array, Array, Parameters], Array] = field(repr=False)
    above: bool = False

    # -- what is asked -------------------------------------------------------------------------------------------------
    @property
    def found(self) -> tuple[Departure, ...]:
        """The kinds that happened, in the order in which a value meets them."""
        return self._on_the_way + self._at_the_end

    @cached_property
    @working("departures from exact sums")
    def _on_the_way(self) -> tuple[Departure, ...]:
        return self._happened(self._integer_kinds())

    @cached_property
    @working("results that the destination does not hold")
    def _at_the_end(self) -> tuple[Departure, ...]:
        return self._happened(self._clipped())

    def _happened(self, kinds: Iterator[Departure]) -> tuple[Departure, ...]:
        """The kinds of departure that happened at all, their events and errors in the output's shape."""
        return tuple(
            replace(d, events=d.events.reshape(self.shape), error=d.error.reshape(self.shape))
            for d in kinds
            if d.events.any()
        )

    def counts(self, kind: str) -> Array:
        """How often a kind happened on the way to each output (int64, of the output's shape)."""
        if not isinstance(kind, str) or kind not in KINDS:
            raise InvalidArgument(f"kind {shortly(kind)}{what_is_allowed(kind, KINDS)}")
        found = self._at_the_end if kind == CLIPPED else self._on_the_way
        return next((d.events for d in found if d.kind == kind), np.zeros(self.shape, np.int64))

    def outputs(self, *kinds: str) -> int:
        """How many outputs met one of some kinds."""
        return int(np.count_nonzero(sum(self.counts(kind) for kind in kinds)))

    @cached_property
    @working("saturated steps, counted")
    def _saturations(self) -> tuple[Array, ...]:
        """How often each step that can saturate did so on the way to each output."""
        return tuple(self._run(step.counting()).reshape(self.shape) for step in self.kernel.saturating)

    @cached_property
    def saturated(self) -> Array | None:
        """Saturated steps on the way to each output; None where no step on the way to the sum saturates."""
        return np.add.reduce(self._saturations) if self.kernel.saturates else None

    @property
    def can(self) -> bool:
        """Whether there is anything to look for: products of integers, or a destination that may not hold a result."""
        return of_integers(self.problem) or self.clips

    @cached_property
    def proven(self) -> bool:
        """Whether these weights let nothing depart, whatever the source (and its zero points stay)."""
        if self.clips or self.kernel.saturates or self.kernel.halves or not of_integers(self.problem):
            return False
        return not self._given_reductions and self._sums.bound(any_source=True) < self._first_limit

    @cached_property
    def departing(self) -> Array:
        """Which outputs met any kind."""
        met = np.zeros(self.shape, bool)
        for d in self.found:
            met |= d.events > 0
        return met

    @property
    def summary(self) -> str:
        """One line, e.g. "halved weights 100 %"; "none" where nothing departed, with the reason where it never can."""
        if self.found:
            return ", ".join(f"{d.kind} {percent((d.events > 0).mean())}" for d in self.found)
        if not of_integers(self.problem):
            return "none (floating-point products)"
        return "none (proven for any source)" if self.proven else "none"

    def frame(self) -> pd.DataFrame:
        """A row a kind that happened, columns `COLUMNS`; `attrs`: outputs, departing, exact, proven, summary."""
        rows = [
            (
                d.kind,
                d.step,
                int((d.events > 0).sum()),
                float((d.events > 0).mean()),
                int(d.events.sum()),
                int((d.error > 0).sum()),
                float(d.error.max()),
            )
            for d in self.found
        ]
        frame = frames.shown(pd.DataFrame(rows, columns=list(COLUMNS)))
        frame.attrs.update(
            {
                "outputs": self.departing.size,
                "departing": int(self.departing.sum()),
                "exact": not self.found,
                "proven": self.proven,
                "summary": self.summary,
            }
        )
        return frame

    # -- on the way to the sum -----------------------------------------------------------------------------------------
    @cached_property
    def _sums(self) -> Sums:
        return Sums.of(self.problem, self.src, self.weights, self.parameters)

    @property
    def _float_sums(self) -> bool:
        """Whether the kernel adds integers up in f32."""
        return fmt(self.kernel.compute_dtype).is_float

    @cached_property
    def _converts(self) -> str:
        """The instruction that brings an s32 sum to f32; "" where the program has none."""
        return converts(self.kernel)

    @property
    def _first_limit(self) -> int:
        """The least magnitude of a sum that may round or wrap."""
        return limit_of(self.kernel)

    def _integer_kinds(self) -> Iterator[Departure]:
        if not of_integers(self.problem):
            return
        sums = self._sums
        if self.kernel.halves:
            wide = self.weights.astype(np.int64)
            lost = 2 * halved(self.weights).astype(np.int64) - wide
            yield Departure(
                HALVED,
                "weights as prepared",
                _total(sums.counting(lost != 0)),
                np.abs(_total(sums.of_weights(lost))).astype(np.float64),
            )
            sums = sums.of_weights(wide + lost)
        if self._given_reductions:
            yield self._wrong_reductions()
        if self.kernel.saturates:
            yield from self._after_saturation()
        elif self._float_sums:
            yield from self._added_in_float()
        elif sums.bound() >= self._first_limit:
            yield from self._as_registers_hold(sums.terms())

    def _after_saturation(self) -> Iterator[Departure]:
        """Departures of a kernel that can saturate: the sums that each of its steps leaves against those before it."""
        if not any(events.any() for events in self._saturations):
            if self._sums.bound() >= self._first_limit:
                yield from self._as_registers_hold(self._sums.terms())
            return
        total = _total(self._sums)
        for step, events in zip(self.kernel.saturating, self._saturations, strict=True):
            if events.any():
                met = self._run(step.sums()).astype(np.int64)
                lost = _wrapped(met - total)  # which is far below 2**31 itself
                error = np.abs(lost.astype(np.float64)).reshape(events.shape)
                yield Departure(f"saturated {step.of}", step.step, events.astype(np.int64), error)
                total = total + lost
        one = self._sums.period == self._sums.length
        yield from self._as_registers_hold(iter([total]) if one else self._sums.terms())

    def _as_registers_hold(self, terms: Iterator[Array]) -> Iterator[Departure]:
        """Sums that s32 wraps, and sums that round on their way to f32."""
        factor = 2 if self.kernel.halves else 1
        kinds = {WRAPPED: "s32 accumulator", ROUNDED: self._converts}
        events = {kind: np.zeros(self.shape, np.int64) for kind in kinds}
        errors = {kind: np.zeros(self.shape) for kind in kinds}
        for term in terms:
            exact = term.reshape(self.shape)
            held = _wrapped(exact // factor) * factor
            after = (held // factor).astype(np.float32).astype(np.float64) * factor if self._converts else held
            for kind, before, now in ((WRAPPED, exact, held), (ROUNDED, held, after)):
                events[kind] += (before != now).astype(np.int64)
                errors[kind] += np.abs((before - now).astype(np.float64))
        yield from (Departure(kind, step, events[kind], errors[kind]) for kind, step in kinds.items())

    def _added_in_float(self) -> Iterator[Departure]:
        """Sums that are floats from the start: none rounds while its products' magnitudes add up to less than 2**24."""
        if self._sums.bound() < _EXACT_F32:
            return
        events = np.zeros(self.shape, np.int64)
        for size in self._sums.of_magnitudes().terms():
            events += (size.reshape(self.shape) >= _EXACT_F32).astype(np.int64)
        e, p = self.problem.epilogue, self.parameters
        unscaled = replace(p, wei_scale=_ones(p.wei_scale), src_group_scale=_ones(p.src_group_scale))
        met = self._run(self.rebuild(Epilogue("f32", e.zp_src, e.zp_wei)), unscaled).reshape(self.shape)
        error = np.abs(met.astype(np.float64) - _total(self._sums).reshape(self.shape).astype(np.float64))
        yield Departure(ROUNDED, "sum of floats", events, np.where(events > 0, error, 0))

    @property
    def _given_reductions(self) -> bool:
        return self.parameters.reductions is not None

    def _wrong_reductions(self) -> Departure:
        """Sums of the source that the user gave, and the kernel trusted, where they are others."""
        given, zeros = self.parameters.reductions, self.parameters.wei_zero_points
        assert given is not None and zeros is not None and isinstance(self.problem, MatmulProblem)
        off = given.astype(np.int64) - self.src.astype(np.int64).reshape(*given.shape, -1).sum(axis=-1)
        points = np.repeat(zeros.astype(np.int64), given.shape[-1] // zeros.shape[0], axis=0)
        points = np.broadcast_to(points, (points.shape[0], self.problem.n))
        events = (off != 0).astype(np.int64) @ (points != 0).astype(np.int64)
        return Departure(REDUCTIONS, "reductions as given", events, np.abs(off @ points).astype(np.float64))

    # -- on the way to the destination ---------------------------------------------------------------------------------
    @property
    def clips(self) -> bool:
        """Whether the destination does not hold every result."""
        e = self.problem.epilogue
        if e.dst != "s32" or not of_integers(self.problem):
            return e.dst in ("s32", "s8", "u8") or (e.dst == "f16" and of_integers(self.problem))
        through_float = bool(self._converts) or self._float_sums
        sum_alone = e == Epilogue("s32", e.zp_src, e.zp_wei)
        return through_float and not (sum_alone and self._sums.bound(any_source=True) < _S32.high)

    def _clipped(self) -> Iterator[Departure]:
        """Results that the destination's type does not hold: the nearest integer it has, an infinity of f16."""
        if not self.clips:
            return
        e, p = self.problem.epilogue, self.parameters
        if p.previous is not None:
            p = replace(p, previous=p.previous.astype(np.float32))
        wide = self._run(self.rebuild(replace(e, dst="f32")), p).astype(np.float64)
        if e.dst == "f16":
            out = np.isfinite(wide) & (np.abs(wide) >= _F16_OVERFLOWS)
            error = np.where(out, np.inf, 0.0)
        else:
            form = fmt(e.dst)
            whole = np.where(np.isnan(wide), 0, np.rint(wide))
            error = np.abs(whole - np.clip(whole, -np.inf if self.above else form.low, form.high))
        yield Departure(CLIPPED, f"store to {e.dst}", (error > 0).astype(np.int64), error)

    def _run(self, kernel: Kernel, parameters: Parameters | None = None) -> Array:
        return self.run(kernel, self.src, self.weights, self.parameters if parameters is None else parameters)


def converts(kernel: Kernel) -> str:
    """The instruction by which a kernel brings an s32 sum to f32; "" where it has none."""
    for op, _ in kernel.program.ops():
        operands = [operand.dtype for operand in op.definition.operands]
        if op.definition.result == "f32" and operands == ["s32"]:
            return op.instruction
    return ""


def limit_of(kernel: Kernel) -> int:
    """The least magnitude of a sum of integers that a kernel may round or wrap."""
    return _EXACT_F32 if fmt(kernel.compute_dtype).is_float or converts(kernel) else _S32.high


def _ones(values: Array | None) -> Array | None:
    return None if values is None else np.ones_like(values)


def _total(sums: Sums) -> Array:
    total: Array = functools.reduce(np.add, sums.terms())
    return total


def _wrapped(sums: Array) -> Array:
    """Integers as s32 holds them, modulo 2**32."""
    found: Array = (sums + (1 << 31)) % (1 << 32) - (1 << 31)
    return found


def percent(share: float) -> str:
    """A share in percent; a share reads as 0 % or 100 % only where it is 0 or 1.

    >>> percent(1.0), percent(0.99999), percent(0.0667)
    ('100 %', '99.99 %', '6.67 %')
    """
    shown = round(100 * share, 2)
    if 0 < share < 1:
        shown = min(max(shown, 0.01), 99.99)
    return f"{shown:g} %"
