"""Attention as three primitives: the scores of queries and keys, their softmax, and the values that it weighs.

So oneDNN's graph computes it on a CPU (`sdp_decomp_config.cpp`; a matmul to f32 with the scale and the mask as
post-operations, a softmax to the queries' type, a matmul). A kernel that keeps the scores in registers is not modelled.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from math import sqrt
from typing import Any

import numpy as np

from isa_models import GpuMachine, InvalidArgument, Machine, SimdnnError
from isa_models.errors import shortly
from isa_models.machines.provenance import Confidence, weakest
from isa_models.readings.arrays import Array
from isa_models.records.alike import Alike
from simdnn.late import frames, pd
from simdnn.networks.types import label
from simdnn.operators.cost import cost
from simdnn.operators.lines import softmax
from simdnn.operators.results import OperatorEstimate, OperatorResult, Where
from simdnn.primitives import Attr, Quant
from simdnn.primitives.checks import flag, integer, keyword, keywords, one_of
from simdnn.primitives.estimate import estimate as estimate_product
from simdnn.primitives.matmul import matmul
from simdnn.primitives.result import Estimate, Result, plain
from simdnn.primitives.run import Target

TYPES = ("f32", "bf16", "f16")
_SIZES = ("heads", "lq", "lk", "d")
_ROWS = "an array (heads, rows, d) or (batch, heads, rows, d) is needed"
_FITTING = "q (…, heads, queries, d), k (…, kv_heads, keys, d) and v (…, kv_heads, keys, dv) are needed"
_FEW_KEYS = (
    "with causal the last query sees all keys, each before it a key less, and each needs one; "
    "a mask np.tri(queries, keys, dtype=bool) counts from the first"
)
_OPTIONS = {"batch": 1, "kv_heads": None, "dv": None, "causal": False, "mask": False}


@dataclass(frozen=True, eq=False, repr=False)
class AttentionEstimate(Alike):
    """The cost of attention: `scores`, their softmax (`shares`) and what is `found` by it, one after another.

    Each is an estimate, or a result, of its own, with `bound`, `traffic`, `causes` and the like.
    """

    machine: Machine | GpuMachine
    scores: Estimate
    shares: OperatorEstimate
    found: Estimate

    @property
    def steps(self) -> tuple[tuple[str, Estimate | OperatorEstimate], ...]:
        return ("scores", self.scores), ("shares", self.shares), ("found", self.found)

    @property
    def cycles(self) -> float:
        return sum(step.cycles for _, step in self.steps)

    @property
    def seconds(self) -> float:
        return sum(step.seconds for _, step in self.steps)

    @property
    def confidence(self) -> Confidence:
        return weakest([step.confidence for _, step in self.steps])

    @property
    def implementation(self) -> str:
        return " + ".join(dict.fromkeys(step.implementation for _, step in self.steps))

    @property
    def provenance(self) -> dict[str, str]:
        """The sources of the numbers: machine and digest of its file, package version, what ran in each step."""
        scores, shares, found = (dict(step.provenance) for _, step in self.steps)
        ran = {"scores": scores.pop("program"), "shares": shares["nodes_sha256"], "found": found["program"]}
        return scores | ran

    def to_json(self) -> str:
        """The totals, the rows of `to_frame` and `provenance`."""
        names = ("implementation", "cycles", "seconds", "confidence", "provenance")
        record = {"primitive": "attention", "machine": self.machine.name, "threads": self.shares.threads}
        record |= {name: getattr(self, name) for name in names} | {"steps": self.to_frame().to_dict("records")}
        return json.dumps(plain(record), allow_nan=False)

    def to_frame(self) -> pd.DataFrame:
        """A row a step: step, implementation, cycles, time_us, share, confidence."""
        total = self.cycles
        rows = [
            (name, step.implementation, step.cycles, step.seconds * 1e6, step.cycles / total, step.confidence)
            for name, step in self.steps
        ]
        columns = ["step", "implementation", "cycles", "time_us", "share", "confidence"]
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
    """An estimate together with the values: `output`, and those of each step."""

    scores: Result
    shares: OperatorResult
    found: Result
    lines: tuple[int, ...]  # of `q`, all of its sizes but the last

    @property
    def output(self) -> Array:
        """(heads, queries, size), or (batch, heads, queries, size), as the queries are."""
        return self.found.output.reshape(*self.lines, -1)


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
    mask: Array | None = None,
    dst: str | None = None,
    threads: int = 1,
    engine: str = "auto",
    dispatch: str = "fastest",
) -> AttentionResult:
    """softmax(q k^T * scale + mask) v, head by head: values and cost of three kernels, one after another.

    `q` is (heads, queries, d) or (batch, heads, queries, d) of f32, bf16 or f16; `k` and `v` are of its type,
    (kv_heads, keys, d) or with the batch: each head of theirs serves heads / kv_heads neighbouring ones of `q`, whose
    rows go through one product unless a library has one a head. `scale` is 1 / sqrt(d) unless given; `mask`
    (queries, keys) is added to the scores, or says by booleans which keys are seen. With `causal` the last query sees
    all keys, and each one before it a key less. Scores are f32, the softmax is rounded to `q`'s type, and
    `dst` is of it unless named; a math mode in force (`simdnn.fpmath_mode`) holds for both products. `dispatch` is
    "fastest" or "onednn", the bits of its graph's attention. Raises `InvalidArgument` for what does not fit.

    >>> import numpy as np
    >>> q, k = np.ones((2, 3, 8), np.float32), np.ones((1, 4, 8), np.float32)
    >>> v = np.arange(32, dtype=np.float32).reshape(1, 4, 8)
    >>> r = attention(q, k, v, causal=True, machine="zen4")
    >>> r.output[1, :, 0].tolist(), r.to_frame()["step"].tolist()
    ([4.0, 8.0, 12.0], ['scores', 'shares', 'found'])
    """
    target = _target(machine, isa, threads, engine, dispatch)
    given = {"q": q, "k": k, "v": v}
    for name, array in given.items():
        if not isinstance(array, np.ndarray) or array.ndim not in (3, 4) or not array.size:
            raise InvalidArgument(f"{name}={_met(array)}; {_ROWS}")
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
    heads, lines, size = q.shape[-3:]
    groups, places, _ = k.shape[-3:]
    apart, together = _heads_of(target, heads // groups)
    added = _added(lines, places, flag("causal", causal), mask)
    if added is not None:
        added = np.tile(added, (together, 1)).reshape(1, 1, together * lines, places)
    asked, ending = _attr(_factor(size, scale), added), one_of("dst", dtype if dst is None else dst, TYPES)
    where: dict[str, Any] = {"machine": target.machine, "isa": isa, "threads": threads, "dispatch": dispatch}
    where["engine"] = engine
    rows = q.reshape(-1, apart, together * lines, size)
    keys, values = (array.reshape(-1, 1, *array.shape[-2:]) for array in (k, v))
    tags = _tags(target)
    scores = matmul(rows, keys.swapaxes(-1, -2), dst="f32", attr=asked, wei_tag=tags[0], **where)
    shares = softmax(scores.output, -1, dst=dtype, **where)
    found = matmul(shares.output, values, dst=ending, wei_tag=tags[1], **where)
    return AttentionResult(target.machine, scores, shares, found, q.shape[:-1])


def price(dt: str, shape: dict[str, Any], where: dict[str, Any]) -> AttentionEstimate:
    """The cost of attention by sizes, as `simdnn.estimate` takes them; `where`: machine, isa, threads and dispatch."""
    for name in shape:
        keyword("attention", name, (*_SIZES, *_OPTIONS))
    if missing := [name for name in _SIZES if name not in shape]:
        raise InvalidArgument(f"attention without {', '.join(missing)}; needed: {', '.join(_SIZES)}")
    asked = {**_OPTIONS, "kv_heads": shape["heads"], "dv": shape["d"], **shape}
    sizes = {name: integer(name, asked[name]) for name in (*_SIZES, "batch", "kv_heads", "dv")}
    heads, lines, places, size, batch, groups, _ = sizes.values()
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
    apart, together = _heads_of(target, heads // groups)
    rows, operands = together * lines, f"{dtype}:{dtype}"
    shares = cost("softmax", f"f32:{dtype}", False, {"src": (batch * groups, apart, rows, places)}, where)
    assert isinstance(shares, OperatorEstimate)
    where = {**where, "src_batch": (batch * groups, apart), "wei_batch": (batch * groups, 1)}
    added = Quant(None, mask=0b1100) if causal or masked else None  # of rows and keys
    attr, tags = _attr(_factor(size, None), added), _tags(target)
    product = partial(estimate_product, "matmul", m=rows)
    scores = product(n=places, k=size, dt=f"{operands}:f32", attr=attr, wei_tag=tags[0], **where)
    found = product(n=sizes["dv"], k=places, dt=f"{operands}:{(ends or [dtype])[0]}", wei_tag=tags[1], **where)
    return AttentionEstimate(target.machine, scores, shares, found)


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
    one_of("dispatch of attention", dispatch, ("fastest", "onednn"))
    return Target.of(machine, isa, threads, engine, dispatch)


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


def _added(lines: int, places: int, causal: bool, mask: Array | None) -> Array | None:
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
        total[np.arange(places) > np.arange(lines)[:, None] + places - lines] = -np.inf
    if (blind := np.flatnonzero((total == -np.inf).all(1))).size:
        raise InvalidArgument(f"query {blind[0]} sees no key of {places}; each needs one")
    return total
