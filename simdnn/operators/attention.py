"""Attention as three primitives, the scores of queries and keys, their softmax, and the values that it weighs; or in
one kernel (`fused_attention`).

As three oneDNN's graph computes it on a CPU (`sdp_decomp_config.cpp`; a matmul to f32 with the scale and the mask as
post-operations, a softmax to the queries' type, a matmul).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from math import prod, sqrt
from typing import TYPE_CHECKING, Any

import numpy as np

from isa_models import GpuMachine, InvalidArgument, Machine, SimdnnError, Unimplemented
from isa_models.errors import no_attribute, shortly
from isa_models.machines.provenance import Confidence, weakest
from isa_models.readings.arrays import Array
from isa_models.records.alike import Alike
from simdnn.explanations.steps import Explanation
from simdnn.kernels.common.attention import AttentionProblem
from simdnn.late import frames, pd
from simdnn.networks.result import longest
from simdnn.networks.types import label
from simdnn.operators.cost import cost
from simdnn.operators.fused_attention import THREE, FusedAttention, Ways, check_asked, fused_on, names_on
from simdnn.operators.lines import softmax
from simdnn.operators.results import OperatorEstimate, OperatorResult, Where
from simdnn.primitives import Attr, Quant
from simdnn.primitives.checks import flag, integer, keyword, keywords, one_of
from simdnn.primitives.estimate import estimate as estimate_product
from simdnn.primitives.matmul import matmul
from simdnn.primitives.result import Estimate, Result, plain
from simdnn.primitives.run import Target

Step = Estimate | OperatorEstimate | FusedAttention
TYPES = ("f32", "bf16", "f16")
_SIZES = ("heads", "lq", "lk", "d")
_ROWS = "an array (heads, rows, d) or (batch, heads, rows, d) is needed"
_FITTING = "q (…, heads, queries, d), k (…, kv_heads, keys, d) and v (…, kv_heads, keys, dv) are needed"
_FEW_KEYS = (
    "with causal the last query sees all keys, each before it a key less, and each needs one; "
    "a mask np.tri(queries, keys, dtype=bool) counts from the first"
)
_OPTIONS = {"batch": 1, "kv_heads": None, "dv": None, "causal": False, "mask": False, "window": None}


@dataclass(frozen=True, eq=False, repr=False)
class AttentionEstimate(Alike):
    """The cost of attention: its `steps`, one after another, by name: "scores", their softmax ("shares") and what is
    "found" by it, or the one kernel that does all ("fused").

    Each is an estimate, or a result, of its own, with `bound`, `traffic`, `causes` and the like.
    """

    machine: Machine | GpuMachine
    threads: int
    steps: tuple[tuple[str, Step], ...]
    find_dispatch: Callable[[], pd.DataFrame]

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            """A step by its name."""
            if name in ("scores", "shares", "found", "fused") and (step := dict(self.steps).get(name)):
                return step
            raise no_attribute(self, name)

    @cached_property
    def dispatch(self) -> pd.DataFrame:
        """Frame, three kernels and one: implementation, cycles, time_us, chosen, and the reason."""
        return self.find_dispatch()

    @property
    def cycles(self) -> float:
        return sum(step.cycles for _, step in self.steps)

    @property
    def seconds(self) -> float:
        return sum(step.seconds for _, step in self.steps)

    @property
    def bound(self) -> str:
        """The bound of the steps that most of the time goes to."""
        return longest((step.bound, step.seconds) for _, step in self.steps)

    @property
    def confidence(self) -> Confidence:
        return weakest([step.confidence for _, step in self.steps])

    @property
    def implementation(self) -> str:
        return " + ".join(dict.fromkeys(step.implementation for _, step in self.steps))

    @property
    def provenance(self) -> dict[str, str]:
        """The sources of the numbers: machine and digest of its file, package version, what ran in each step."""
        told = {name: dict(step.provenance) for name, step in self.steps}
        ran = {name: one.get("program") or one["nodes_sha256"] for name, one in told.items()}
        first = next(iter(told.values()))
        return {name: text for name, text in first.items() if name != "program"} | ran

    def to_json(self) -> str:
        """The totals, the rows of `to_frame` and `provenance`."""
        names = ("implementation", "cycles", "seconds", "bound", "confidence", "provenance")
        record = {"primitive": "attention", "machine": self.machine.name, "threads": self.threads}
        record |= {name: getattr(self, name) for name in names} | {"steps": self.to_frame().to_dict("records")}
        return json.dumps(plain(record), allow_nan=False)

    def to_frame(self) -> pd.DataFrame:
        """A row a step: step, implementation, cycles, time_us, share, bound, confidence."""
        total = self.cycles
        columns = ["step", "implementation", "cycles", "time_us", "share", "bound", "confidence"]
        rows = [
            (name, one.implementation, one.cycles, one.seconds * 1e6, one.cycles / total, one.bound, one.confidence)
            for name, one in self.steps
        ]
        return frames.shown(pd.DataFrame(rows, columns=columns))

    def __repr__(self) -> str:
        try:
            told = f"{self.cycles:,.0f} cycles, {self.seconds * 1e6:,.1f} us, {self.confidence}"
        except SimdnnError as error:  # a figure is missing
            told = f"no cost: {error}"
        return f"{type(self).__name__}({self.implementation} on {self.machine.name}: {told}; .to_frame() by step)"

    def _repr_html_(self) -> str:
        return str(self.to_frame().to_html(index=False))


@dataclass(frozen=True, eq=False, repr=False)
class AttentionResult(AttentionEstimate):
    """An estimate together with the values: `output`, (heads, queries, size) or (batch, heads, queries, size) as the
    queries are. The steps of three kernels have values of their own.
    """

    output: Array

    def explain(self, *index: int) -> Explanation:
        """The chain of instructions that made the output element at `index`, (head, query, column) or with the batch
        before: its shares of the keys by the values of a column. `scores` and `shares` tell where a share is from.

        Raises `InvalidArgument` for an element that is not there, `Unimplemented` for one kernel that did all.
        """
        from simdnn.explanations.element import checked  # brings LLVM

        shape = self.output.shape
        place = checked(index, shape)
        found = dict(self.steps).get("found")
        if not isinstance(found, Result):
            raise Unimplemented(f"explain of {self.implementation!r}; what works: dispatch={THREE!r}")
        *outer, head, row, column = place
        outputs = found.output.shape  # heads of keys, those of queries that have a product of their own, rows, columns
        every = shape[-3] // (outputs[0] // prod(shape[:-3]))
        group, one = divmod((outer[0] if outer else 0) * shape[-3] + head, every)
        apart = outputs[1] == every and every > 1
        return found.explain(group, one if apart else 0, row if apart else one * shape[-2] + row, column)


@keywords
def attention(
    q: Array,
    k: Array,
    v: Array,
    *,
    machine: Where,
    isa: str | None = None,
    scale: float | None = None,
    causal: bool = False,
    window: int | None = None,
    mask: Array | None = None,
    dst: str | None = None,
    threads: int = 1,
    engine: str = "auto",
    dispatch: str = "fastest",
) -> AttentionResult:
    """softmax(q k^T * scale + mask) v, head by head: values and cost of three kernels, one after another, or of one.

    `q` is (heads, queries, d) or (batch, heads, queries, d) of f32, bf16 or f16; `k` and `v` are of its type,
    (kv_heads, keys, d) or with the batch: each head of theirs serves heads / kv_heads neighbouring ones of `q`, whose
    rows go through one product unless a library has one a head. `scale` is 1 / sqrt(d) unless given; `mask`
    (queries, keys) is added to the scores, or says by booleans which keys are seen. With `causal` the last query sees
    all keys, and each one before it a key less; of these each sees the last `window` where that is given. Scores are
    f32, the softmax is rounded to `q`'s type, and `dst` is of it unless named; a math mode in force
    (`simdnn.fpmath_mode`) holds for both products. On GPUs one kernel may do all, with scores in registers and sums of
    f32 (`dispatch` of the answer tells both ways): `dispatch` is "fastest", "onednn", its graph's bits,
    "three kernels", or that kernel's name. Raises `InvalidArgument` for what does not fit, `Unimplemented` where a
    kernel that is named does not take it.

    >>> import numpy as np
    >>> q, k = np.ones((2, 3, 8), np.float32), np.ones((1, 4, 8), np.float32)
    >>> v = np.arange(32, dtype=np.float32).reshape(1, 4, 8)
    >>> r = attention(q, k, v, causal=True, machine="zen4")
    >>> r.output[1, :, 0].tolist(), r.to_frame()["step"].tolist()
    ([4.0, 8.0, 12.0], ['scores', 'shares', 'found'])
    """
    target = _target(machine, isa, threads, engine, dispatch)
    given = {"q": q, "k": k, "v": v}
    dtype = _type_of(given)
    heads, lines, size = q.shape[-3:]
    groups, places, _ = k.shape[-3:]
    ending, factor = one_of("dst", dtype if dst is None else dst, TYPES), _factor(size, scale)
    last = _window(window, flag("causal", causal), places)
    added = _added(lines, places, causal, last, mask)
    sizes = prod(q.shape[:-3]), heads, groups, lines, places, size, v.shape[-1]
    problem = AttentionProblem(*sizes, dtype, ending, float(factor), causal, last)
    where: dict[str, Any] = {"machine": target.machine, "isa": isa, "threads": threads}
    masked = mask is not None
    asked = problem, masked, where, dispatch
    may_be_one = _may_be_one(problem, masked, target, dispatch)
    steps: tuple[tuple[str, Step], ...]
    if may_be_one and (one := _ways(_as_three(target, *asked), target, problem, masked, dispatch).fused):
        output, steps = one.values(given, engine, threads).reshape(*q.shape[:-1], -1), (("fused", one),)
    else:
        results = _run_as_three(given, factor, added, ending, target, {**where, "engine": engine})
        output, steps = results[-1][1].output.reshape(*q.shape[:-1], -1), results
    return AttentionResult(target.machine, threads, steps, partial(_dispatch, *asked), output)


def _run_as_three(
    given: Mapping[str, Array], factor: np.float32, added: Array | None, dst: str, target: Target, where: dict[str, Any]
) -> tuple[tuple[str, Result | OperatorResult], ...]:
    """Values and cost by three kernels."""
    q, k, v = given.values()
    (heads, lines, size), (groups, places, _) = q.shape[-3:], k.shape[-3:]
    apart, together = _heads_of(target, heads // groups)
    if added is not None:
        added = np.tile(added, (together, 1)).reshape(1, 1, together * lines, places)
    where["dispatch"] = target.dispatch
    rows = q.reshape(-1, apart, together * lines, size)
    keys, values = (array.reshape(-1, 1, *array.shape[-2:]) for array in (k, v))
    tags = _tags(target)
    scores = matmul(rows, keys.swapaxes(-1, -2), dst="f32", attr=_attr(factor, added), wei_tag=tags[0], **where)
    shares = softmax(scores.output, -1, dst=label(q.dtype), **where)
    found = matmul(shares.output, values, dst=dst, wei_tag=tags[1], **where)
    return ("scores", scores), ("shares", shares), ("found", found)


def _type_of(given: Mapping[str, Array]) -> str:
    """The type of q, k and v; `InvalidArgument` where they do not go together."""
    for name, array in given.items():
        if not isinstance(array, np.ndarray) or array.ndim not in (3, 4) or not array.size:
            raise InvalidArgument(f"{name}={_met(array)}; {_ROWS}")
    q, k, v = given.values()
    dtype = one_of("type of q", label(q.dtype), TYPES)
    for name in ("k", "v"):
        if label(given[name].dtype) != dtype or given[name].ndim != q.ndim:
            met = f"{name} of {given[name].ndim} dimensions and {label(given[name].dtype)}"
            raise InvalidArgument(f"{met}; {q.ndim} of {dtype} are needed, as q has")
    shapes = [array.shape for array in given.values()]
    if unfit := _unfit(*shapes):
        others = [(*outer, heads, rows, size) for *outer, rows, heads, size in shapes]
        hint = "" if q.ndim == 3 or _unfit(*others) else "; the swapaxes(1, 2) of all three would fit"
        raise InvalidArgument(f"q, k and v of {q.shape}, {k.shape} and {v.shape}: {unfit}; {_FITTING}{hint}")
    return dtype


def price(dt: str, shape: dict[str, Any], where: dict[str, Any]) -> AttentionEstimate:
    """The cost of attention by sizes, as `simdnn.estimate` takes them; `where`: machine, isa, threads and dispatch."""
    for name in shape:
        keyword("attention", name, (*_SIZES, *_OPTIONS))
    if missing := [name for name in _SIZES if name not in shape]:
        raise InvalidArgument(f"attention without {', '.join(missing)}; needed: {', '.join(_SIZES)}")
    asked = {**_OPTIONS, "kv_heads": shape["heads"], "dv": shape["d"], **shape}
    names = ("batch", "heads", "kv_heads", "lq", "lk", "d", "dv")
    batch, heads, groups, lines, places, size, wide = (integer(name, asked[name]) for name in names)
    if heads % groups:
        raise InvalidArgument(f"heads={heads}, kv_heads={groups}; a multiple of kv_heads is needed")
    dtype, *ends = dt.split(":") if isinstance(dt, str) else [dt]
    types = [one_of("dt", name, TYPES) for name in (dtype, *ends)]
    if len({*types[:-1]}) > 1 or len(types) > 2:
        raise InvalidArgument(f"dt={dt!r}; one type, or that of q, k and v and dst's, is needed, e.g. 'bf16:f32'")
    target = _target(**where, engine="auto")
    causal, masked = (flag(name, asked[name]) for name in ("causal", "mask"))
    if causal and lines > places:
        raise InvalidArgument(f"lq={lines}, lk={places}; {_FEW_KEYS}")
    sizes = batch, heads, groups, lines, places, size, wide
    last = _window(asked["window"], causal, places)
    problem = AttentionProblem(*sizes, dtype, types[-1], float(_factor(size, None)), causal, last)
    dispatch = where["dispatch"]
    where = {name: value for name, value in where.items() if name != "dispatch"} | {"machine": target.machine}
    may_be_one = _may_be_one(problem, masked, target, dispatch)
    three = _as_three(target, problem, masked, where, dispatch)
    one = _ways(three, target, problem, masked, dispatch).fused if may_be_one else None
    return replace(three, steps=(("fused", one),)) if one else three


def _dispatch(problem: AttentionProblem, masked: bool, where: dict[str, Any], dispatch: str) -> pd.DataFrame:
    """The frame of the ways to compute attention."""
    target = _target(**where, engine="auto", dispatch=dispatch)
    three = _as_three(target, problem, masked, where, dispatch)
    return _ways(three, target, problem, masked, dispatch).frame()


def _may_be_one(problem: AttentionProblem, masked: bool, target: Target, dispatch: str) -> bool:
    """Whether one kernel may do all; `Unimplemented` where it is asked for and there is none."""
    alone, others = fused_on(target, problem, masked)
    check_asked(dispatch, others)
    return bool(alone) and dispatch != THREE


def _as_three(
    target: Target, problem: AttentionProblem, masked: bool, where: dict[str, Any], dispatch: str
) -> AttentionEstimate:
    """The cost of three kernels."""
    find = partial(_dispatch, problem, masked, where, dispatch)
    return AttentionEstimate(target.machine, target.threads, _steps(problem, masked, target, where), find)


def _ways(three: AttentionEstimate, target: Target, problem: AttentionProblem, masked: bool, dispatch: str) -> Ways:
    """The ways to compute attention, and which of them runs."""
    return Ways(three, *fused_on(target, problem, masked), dispatch)


def _steps(
    p: AttentionProblem, masked: bool, target: Target, where: dict[str, Any]
) -> tuple[tuple[str, Estimate | OperatorEstimate], ...]:
    """The three kernels' cost."""
    apart, together = _heads_of(target, p.shared)
    where = {**where, "dispatch": target.dispatch}
    shares = cost(
        "softmax", f"f32:{p.dtype}", False, {"src": (p.batch * p.kv_heads, apart, together * p.lq, p.lk)}, where
    )
    assert isinstance(shares, OperatorEstimate)
    where |= {"src_batch": (p.batch * p.kv_heads, apart), "wei_batch": (p.batch * p.kv_heads, 1)}
    added = Quant(None, mask=0b1100) if p.causal or masked else None  # of rows and keys
    attr, tags = _attr(np.float32(p.scale), added), _tags(target)
    product, operands = partial(estimate_product, "matmul", m=together * p.lq), f"{p.dtype}:{p.dtype}"
    scores = product(n=p.lk, k=p.d, dt=f"{operands}:f32", attr=attr, wei_tag=tags[0], **where)
    found = product(n=p.dv, k=p.lk, dt=f"{operands}:{p.dst}", wei_tag=tags[1], **where)
    return ("scores", scores), ("shares", shares), ("found", found)


def _met(value: object) -> str:
    """A value that is no fitting array, in short."""
    if not isinstance(value, np.ndarray):
        return shortly(value)
    return f"an array {value.shape} of {'booleans' if value.dtype == np.bool_ else label(value.dtype)}"


def _unfit(q: Sequence[int], k: Sequence[int], v: Sequence[int]) -> str:
    """Why three shapes of one rank do not go together; "" where they do."""
    if q[:-3] != k[:-3] or k[:-3] != v[:-3]:
        return "batches differ"
    if k[-3:-1] != v[-3:-1]:
        return "k and v differ in heads or keys"
    if q[-1] != k[-1]:
        return f"q has d={q[-1]}, k {k[-1]}"
    return f"{q[-3]} heads are no multiple of {k[-3]} kv_heads" if q[-3] % k[-3] else ""


def _target(machine: Where, isa: str | None, threads: int, engine: str, dispatch: str) -> Target:
    """Where it runs; the kernels of three primitives go by one rule."""
    library = dispatch if dispatch == "onednn" else "fastest"
    target = Target.of(machine, isa, threads, engine, library)
    one_of("dispatch of attention", dispatch, names_on(target))
    return target


def _tags(target: Target) -> tuple[str, str]:
    """How keys, transposed, and values lie: as they are, or as kernels for NVIDIA's have them."""
    of_nvidia = isinstance(target.machine, GpuMachine) and target.machine.platform.cuda_cores is not None
    return ("any", "any") if of_nvidia else ("ba", "ab")


def _heads_of(target: Target, each: int) -> tuple[int, int]:
    """Two counts for heads that share keys: products of their own, and heads whose rows go through one product."""
    return (1, each) if target.library is None else (each, 1)


def _factor(size: int, scale: float | None) -> np.float32:
    """The number that multiplies the scores."""
    number = isinstance(scale, int | float | np.floating) and not isinstance(scale, bool)
    if scale is None:
        return np.float32(1 / sqrt(size))
    if not (number and abs(scale) <= np.finfo(np.float32).max):
        raise InvalidArgument(f"scale={shortly(scale)}; a finite number is needed, or None for 1 / sqrt(d)")
    return np.float32(scale)


def _attr(factor: np.float32, added: Array | Quant | None) -> Attr:
    """The attributes of the product of scores: a factor, and a summand of each row and key."""
    summands = [] if added is None else [("add", added)]
    return Attr(post_ops=[("mul", np.full((1, 1, 1, 1), factor)), *summands])


def _window(window: int | None, causal: bool, places: int) -> int:
    """The keys of a window, 0 where it leaves out none."""
    if window is None:
        return 0
    if not causal:
        raise InvalidArgument(
            f"window={shortly(window)} without causal=True; with it each query sees the last keys before it"
        )
    found = integer("window", window)
    return found if found < places else 0


def _added(lines: int, places: int, causal: bool, window: int, mask: Array | None) -> Array | None:
    """The summand of the scores, (queries, keys) of f32, -inf where a key is not seen."""
    if mask is None and not causal:
        return None
    total = np.zeros((lines, places), np.float32)
    if mask is not None:
        fits = isinstance(mask, np.ndarray) and mask.shape == total.shape and mask.dtype in (np.bool_, np.float32)
        if not fits:
            raise InvalidArgument(f"mask={_met(mask)}; an array {total.shape} of f32 or of booleans is needed")
        total = np.where(mask, np.float32(0), np.float32(-np.inf)) if mask.dtype == np.bool_ else mask.copy()
    if causal and lines > places:
        raise InvalidArgument(f"{lines} queries and {places} keys; {_FEW_KEYS}")
    if causal:
        last = np.arange(lines)[:, None] + places - lines  # key that each query sees
        total[(np.arange(places) > last) | (np.arange(places) <= last - (window or places))] = -np.inf
    if (blind := np.flatnonzero((total == -np.inf).all(1))).size:
        raise InvalidArgument(f"query {blind[0]} sees no key of {places}; each needs one")
    return total
