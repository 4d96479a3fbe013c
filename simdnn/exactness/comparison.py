"""Two configurations on the same operands: outputs side by side, how far they differ, how fast, and why."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from isa_models import InvalidArgument, Machine
from isa_models.formats import fmt, name_of
from isa_models.keywords import keywords, typed_parts
from isa_models.readings.arrays import Array
from isa_models.records.alike import Alike
from isa_models.records.display import InNotebooks
from simdnn.exactness import measures
from simdnn.exactness.pairs import saturated_pairs
from simdnn.explanations.departures import HALVED as HALVED_KIND
from simdnn.explanations.departures import PAIR, SUM
from simdnn.kernels import kernels
from simdnn.kernels.common.epilogue import Epilogue, Parameters
from simdnn.kernels.common.problems import MatmulProblem, Problem
from simdnn.late import frames, pd
from simdnn.primitives.checks import one_of
from simdnn.primitives.convolution import convolution
from simdnn.primitives.costs import built
from simdnn.primitives.matmul import matmul
from simdnn.primitives.result import Result
from simdnn.primitives.run import values, whole
from simdnn.progress import working
from workloads import ConvLayer, MatmulLayer, data

Configuration = Mapping[str, Any] | str
_SIDES = ("a", "b")
SATURATED = "saturated pairs"
SATURATED_SUM = "saturated sums of pairs"
HALVED = "odd weights lose their last bit when halved"
ROUNDED_SUM = "a sum beyond 2**24 is rounded to f32"
_REASONS = {PAIR: SATURATED, SUM: SATURATED_SUM, HALVED_KIND: HALVED}
_COUNTED = {PAIR: "pairs", SUM: "sums"}
AFTER = "rounding after equal sums: scales, bias, destination"
ORDER = "order of accumulation"


@keywords
@working("compare")
def compare(problem: Any, a: Configuration, b: Configuration, **common: Any) -> Comparison:
    """Run one problem in two configurations.

    `problem`: (src, weights) or (src, weights, bias) as `matmul` takes them, batches as well, or as `convolution`
    (sources of four dimensions with weights of four or five); or a layer of a workload, with seeded data of the types
    `dt` ("u8:s8:s32"). `a` and `b`: keyword arguments of the primitive (machine, isa, attr, dispatch, engine, dst …),
    or the name of a machine; `common`: those that both share.
    Raises what the primitive raises, and `InvalidArgument` for outputs of different types.

    >>> src, weights = np.full((1, 4), 255, np.uint8), np.full((4, 1), 127, np.int8)
    >>> found = compare((src, weights), "skx", "clx")
    >>> found.differing, [int(r.output[0, 0]) for r in (found.a, found.b)]
    (1, [65534, 129540])
    """
    operands, common = _operands(problem, dict(common))
    images = operands[0].ndim == 4 and operands[1].ndim >= 4
    call: Callable[..., Result] = convolution if images else matmul
    given = [common | _configuration(name, c) for name, c in zip(_SIDES, (a, b), strict=True)]
    for key in (*given[0], *given[1]):
        one_of(f"argument of {call.__name__}", key, tuple(inspect.signature(call).parameters)[len(operands) :])
    results = [call(*operands, **keywords) for keywords in given]
    if results[0].output.dtype != results[1].output.dtype:
        types = [result.output.dtype for result in results]
        raise InvalidArgument(f"outputs of {types[0]} and {types[1]}; name one dst for both: compare(…, dst='f32')")
    src, weights = operands[:2]
    if images and weights.ndim == 5:
        weights = weights.reshape(-1, *weights.shape[2:])
    return Comparison(results[0], results[1], src.copy(), weights.copy())


def _operands(problem: Any, common: dict[str, Any]) -> tuple[tuple[Array, ...], dict[str, Any]]:
    if isinstance(problem, (ConvLayer, MatmulLayer)):
        made = data.tensors(problem, common.pop("dt", "u8:s8:s32"), common.pop("seed", 0))
        if isinstance(problem, ConvLayer):
            common = {"strides": problem.stride, "padding": problem.pad, "groups": problem.groups} | common
        return (made.src, made.weights), common
    if not isinstance(problem, (tuple, list)) or not 2 <= len(problem) <= 3:
        kind = type(problem).__name__
        raise InvalidArgument(
            f"problem is a {kind}; (src, weights), (src, weights, bias) or a workload's layer is needed"
        )
    if not all(isinstance(array, np.ndarray) for array in problem) or min(a.ndim for a in problem[:2]) < 2:
        raise InvalidArgument("problem: arrays of two dimensions or more (matmul), or four (convolution), are needed")
    return tuple(problem), common


def _configuration(name: str, given: Configuration) -> dict[str, Any]:
    if isinstance(given, str):
        return {"machine": given}
    if not isinstance(given, Mapping):
        raise InvalidArgument(f"{name}={given!r:.60}; a machine's name or a dict, e.g. {{'machine': 'skx'}}, is needed")
    return dict(given)


@typed_parts("simdnn.compare")
@dataclass(frozen=True, eq=False, repr=False)
class Comparison(Alike, InNotebooks):
    """Two results of one problem; `a` is what `b` is measured against."""

    a: Result
    b: Result
    src: Array
    weights: Array

    # -- how far ----------------------------------------------------------------------------------------------------
    @cached_property
    def outputs(self) -> pd.DataFrame:
        """Frame, a row an element: its place, a, b, abs, rel (to a), ulp.

        The place: m, n, of products of a batch behind `batch` (`batch_0`, `batch_1` … where several sizes stand in
        front); of a convolution image, channel, y, x.
        """
        shape = self.a.output.shape
        names = (*_fronts(len(shape) - 2), "m", "n") if self._products else ("image", "channel", "y", "x")
        frame = pd.DataFrame(dict(zip(names, np.indices(shape).reshape(len(shape), -1), strict=True)))
        wide = [_wide(r.output).reshape(-1) for r in (self.a, self.b)]
        frame["a"], frame["b"] = wide
        with np.errstate(all="ignore"):
            frame["abs"] = np.where(self._differ.reshape(-1), np.abs(wide[1] - wide[0]), 0)
            frame["rel"] = np.where(frame["abs"] == 0, 0.0, frame["abs"] / np.abs(wide[0]))
        frame["ulp"] = _ulp(self.a.output, self.b.output).reshape(-1)
        return frames.shown(frame)

    @property
    def _products(self) -> bool:
        """Whether these are products of matrices."""
        return isinstance(self.a.problem, MatmulProblem)

    @cached_property
    def _differ(self) -> Array:
        """Where the bits differ."""
        bits = [np.ascontiguousarray(r.output).view(f"u{r.output.dtype.itemsize}") for r in (self.a, self.b)]
        differ: Array = bits[0] != bits[1]
        return differ

    @property
    def differing(self) -> int:
        """How many elements differ."""
        return int(self._differ.sum())

    @property
    def differences(self) -> pd.DataFrame:
        """The rows of `outputs` that differ, the farthest first."""
        return self.outputs[self._differ.reshape(-1)].sort_values("abs", ascending=False)

    @property
    def speed_ratio(self) -> float:
        """How many times faster b is than a."""
        return self.a.seconds / self.b.seconds

    @cached_property
    def summary(self) -> dict[str, Any]:
        """Elements, differing, max_abs_error, max_rel, max_ulp, relative_l2, sqnr_db (of b against a), speed_ratio."""
        wide = [_wide(r.output).astype(np.float64) for r in (self.a, self.b)]
        return {
            "a": self._name(self.a),
            "b": self._name(self.b),
            "elements": self._differ.size,
            "differing": self.differing,
            **measures.errors(wide[1], wide[0]),
            "max_rel": float(self.outputs["rel"].max()),
            "max_ulp": int(self.outputs["ulp"].max()),
            "a_cycles": self.a.cycles,
            "b_cycles": self.b.cycles,
            "speed_ratio": self.speed_ratio,
        }

    def to_frame(self) -> pd.DataFrame:
        """`summary` as a frame of one row."""
        return frames.shown(pd.DataFrame([self.summary]), ["differing", "max_abs_error", "sqnr_db", "speed_ratio"])

    # -- why --------------------------------------------------------------------------------------------------------
    @cached_property
    @working("reasons why two results differ")
    def reasons(self) -> pd.DataFrame:
        """Frame: reason, side ("a", "b", "both"), elements (that differ for it; one may have several), detail."""
        found = self._integer_reasons() if self._plain_integers else self._other_reasons()
        rows = [(reason, side, int(mask.sum()), detail) for reason, side, mask, detail in found if mask.any()]
        return frames.shown(pd.DataFrame(rows, columns=["reason", "side", "elements", "detail"]))

    @property
    def _plain_integers(self) -> bool:
        p = self.a.problem
        grouped = isinstance(p, MatmulProblem) and (p.group_scales or p.decompression)
        on_cpus = all(isinstance(result.machine, Machine) for result in (self.a, self.b))
        return on_cpus and not fmt(p.src).is_float and not grouped

    def _other_reasons(self) -> list[tuple[str, str, Array, str]]:
        types = [r.compute_dtype for r in (self.a, self.b)]
        for side, result in zip(_SIDES, (self.a, self.b), strict=True):
            if result.saturation is not None:
                count = result.saturation
                detail = f"{int(count.sum())} pairs in {int((count > 0).sum())} outputs of {result.implementation}"
                return [
                    (SATURATED, side, self._differ & (count > 0), detail),
                    (ORDER, "both", self._differ & (count == 0), detail),
                ]
        names = f"{self.a.implementation} and {self.b.implementation}"
        if types[0] != types[1]:
            return [(f"products in {types[0]} against {types[1]}", "both", self._differ, names)]
        return [(f"{ORDER} and rounding of sums", "both", self._differ, names)]

    def _integer_reasons(self) -> list[tuple[str, str, Array, str]]:
        """Each side's departures from exact sums where sums differ; of several kinds in an output the first."""
        found: list[tuple[str, str, Array, str]] = []
        exact = _sums(_exact_kind(self.a.problem), self.a, self.src, self.weights)
        sums = [_sums(r.implementation, r, self.src, self.weights) for r in (self.a, self.b)]
        for side, result, met in zip(_SIDES, (self.a, self.b), sums, strict=True):
            off = self._differ & (sums[0] != sums[1]) & (met != exact)
            for kind, reason in _REASONS.items():
                count = result.departure_map(kind)
                found.append((reason, side, off & (count > 0), self._detail(kind, result, count)))
                off = off & (count == 0)
            found.append((ROUNDED_SUM, side, off, result.implementation))
        same = self._differ & (sums[0] == sums[1])
        names = f"{self.a.implementation} and {self.b.implementation}"
        return [*found, (AFTER, "both", same, names)]

    def _detail(self, kind: str, result: Result, count: Array) -> str:
        if kind == HALVED_KIND:
            odd = int((self.weights % 2 != 0).sum())
            return f"{odd} of {self.weights.size} weights are odd; {result.implementation} halves them"
        return f"{int(count.sum())} {_COUNTED[kind]} in {int((count > 0).sum())} outputs of {result.implementation}"

    @working("saturated pairs")
    def saturated(self, side: str, by: str = "output") -> pd.DataFrame:
        """How many pairs saturated in side "a" or "b".

        `by` "output": its place, pairs; "channel": outputs, pairs and share of each channel; "k": the positions of each
        pair along the sum, and outputs that it saturated in.
        """
        if side not in _SIDES or by not in ("output", "channel", "k"):
            raise InvalidArgument(f"side={side!r}, by={by!r}; allowed: a, b; output, channel, k")
        result: Result = getattr(self, side)
        counts = result.saturation
        if counts is None:
            counts = np.zeros(result.output.shape, np.int64)
        if by == "output":
            frame = self.outputs.iloc[:, : counts.ndim].copy()
            frame["pairs"] = counts.reshape(-1)
            return frame[frame["pairs"] > 0]
        if by == "channel":
            channels = counts.ndim - 1 if self._products else 1
            each = np.moveaxis(counts, channels, 0).reshape(counts.shape[channels], -1)
            frame = pd.DataFrame({"channel": np.arange(len(each)), "outputs": (each > 0).sum(axis=1)})
            return frame.assign(pairs=each.sum(axis=1), share=(each > 0).mean(axis=1))
        return saturated_pairs(result, self.src, self.weights)

    # -- text -------------------------------------------------------------------------------------------------------
    def _name(self, result: Result) -> str:
        return f"{result.implementation} on {result.machine.name}"

    def __str__(self) -> str:
        s = self.summary
        lines = [
            f"a: {s['a']}, {s['a_cycles']:.0f} cycles",
            f"b: {s['b']}, {s['b_cycles']:.0f} cycles",
            f"b is {s['speed_ratio']:.3g} times as fast as a",
            f"{s['differing']} of {s['elements']} elements differ",
        ]
        if self.differing:
            lines.append(
                f"max abs {s['max_abs_error']:.6g}, max rel {s['max_rel']:.3g}, max ulp {s['max_ulp']}, "
                f"SQNR {s['sqnr_db']:.1f} dB"
            )
            lines += [f"  {r.reason} ({r.side}): {r.elements} elements; {r.detail}" for r in self.reasons.itertuples()]
        return "\n".join(lines)

    def __repr__(self) -> str:
        return f"Comparison({self.differing} of {self._differ.size} differ)"


def _wide(output: Array) -> Array:
    """Integers as s64, floats as f64."""
    return output.astype(np.int64 if output.dtype.kind in "iu" else np.float64)


def _ulp(a: Array, b: Array) -> Array:
    """How many numbers of the type lie between two, plus one; of integers their difference."""
    form = fmt(name_of(a.dtype))
    if not form.is_float:
        distance: Array = np.abs(_wide(a) - _wide(b))
        return distance
    ranks = []
    for array in (a, b):
        bits = np.ascontiguousarray(array).view(f"i{array.dtype.itemsize}").astype(np.int64)
        ranks.append(np.where(bits < 0, -(bits & ((1 << (form.bits - 1)) - 1)), bits))
    between: Array = np.abs(ranks[0] - ranks[1])
    return between


def _exact_kind(problem: Problem) -> str:
    """A kernel that computes the problem's sums exactly, on any machine."""
    if isinstance(problem, MatmulProblem):
        return "gemm:avx512_core_int8_exact"
    return "dw:avx512_core_int8_exact" if problem.depthwise else "conv:avx512_core_int8_exact"


def _sums(name: str, result: Result, src: Array, weights: Array) -> Array:
    """The s32 sums of products alone, by the kernel of that name."""
    problem = replace(result.problem, epilogue=Epilogue("s32"), wei_tag="any")
    kind = next(kind for kind in kernels() if kind.name == name)
    kernel = whole(built(kind, problem, result.machine), problem, result.output.shape)
    if isinstance(problem, MatmulProblem) and problem.batch.count == 1:
        src, weights = src.reshape(problem.m, problem.k), weights.reshape(problem.k, problem.n)
    return values(kernel, src, weights, Parameters(), "auto")


def _fronts(count: int) -> tuple[str, ...]:
    """The names of sizes in front of a matrix.

    >>> _fronts(0), _fronts(1), _fronts(2)
    ((), ('batch',), ('batch_0', 'batch_1'))
    """
    return ("batch",) if count == 1 else tuple(f"batch_{i}" for i in range(count))
