"""Random attributes, right and wrong ones: a right answer or a typed refusal, never a crash, never silently ignored."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
from hypothesis import given
from hypothesis import strategies as st

import simdnn
from isa_models.readings.arrays import Array
from simdnn import Attr, Quant, SimdnnError
from tests.effort import examples

TYPES: dict[str, Any] = {
    "f32": np.float32,
    "bf16": ml_dtypes.bfloat16,
    "f16": np.float16,
    "s8": np.int8,
    "u8": np.uint8,
    "s4": ml_dtypes.int4,
    "u4": ml_dtypes.uint4,
    "s32": np.int32,
    "f64": np.float64,
}
RANGES = {"s8": (-128, 128), "u8": (0, 256), "s4": (-8, 8), "u4": (0, 16), "s32": (-50, 50)}
EPS = {"f32": 2.0**-24, "tf32": 2.0**-10, "bf16": 2.0**-8, "f16": 2.0**-10}
PAIRS = [
    ("f32", "f32"),
    ("f32", "s8"),
    ("bf16", "s8"),
    ("f32", "s4"),
    ("u8", "s8"),
    ("bf16", "bf16"),
    ("u8", "s8"),
    ("s8", "s8"),
    ("f32", "s8"),
    ("bf16", "s4"),
    ("f32", "u4"),
    ("f16", "u8"),
    ("bf16", "u8"),
    ("f16", "f16"),
    ("s8", "u8"),
    ("f64", "f32"),
    ("f32", "bf16"),
]


class Draw:
    """Choices from one seed."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)

    def pick(self, *options: Any) -> Any:
        return options[int(self.rng.integers(len(options)))]

    def chance(self, share: float) -> bool:
        return bool(self.rng.random() < share)

    def data(self, dtype: str, shape: tuple[int, ...]) -> Array:
        if dtype in RANGES:
            return self.rng.integers(*RANGES[dtype], shape).astype(TYPES[dtype])
        return self.rng.standard_normal(shape).astype(np.float32).astype(TYPES[dtype])

    def quant(self, argument: str, scale: bool, m: int, k: int, n: int) -> Any:
        """A scale or zero point, now and then one that fits nowhere."""
        along = n if argument == "wei" else m
        group = self.pick(*(g for g in (1, 2, 3, 16, 32, k) if k % g == 0), 7 if self.chance(0.1) else k)
        places: list[tuple[tuple[int, ...], Any, Any]] = [((1,), 0, None), ((1,), None, None), ((n,), None, None)]
        places += [((along,), 1, None)]
        if argument == "dst" or self.chance(0.3):
            places = places[:2]
        if argument == "wei":
            places += [((k // group, n), 3, (group, 1)), ((k // group, n), None, None)]
            places += [((k // group, 1), 1, (group, 1)), ((n,), 2, None), ((n,), "per_oc", None)]
        else:
            places += [((m, k // group), 3, (1, group)), ((m, 1), None, None)]
        shape, mask, groups = self.pick(*places)
        if scale:
            dtype = self.pick("f32", "f32", "bf16", "f16", "s32" if self.chance(0.1) else "f32")
            values: Array = (self.rng.random(shape) + 0.25).astype(np.float32)
        else:
            dtype = self.pick("s32", "s8", "u8", "s4", "u4", "f32" if self.chance(0.1) else "s32")
            values = self.rng.integers(0, 8, shape)
        return Quant(values, mask=mask, groups=groups, dtype=dtype)


def spread(quant: Quant, argument: str, k: int, n: int) -> Array:
    """Values for each element of the source (M, K) or the weights (K, N), or something that NumPy spreads so."""
    values = np.asarray(quant.values).astype(np.float32).astype(np.float64)
    if values.size == 1:
        return values.reshape(())
    if argument == "wei":
        return values if values.ndim == 1 else values.repeat(k // len(values), 0)
    return values.reshape(-1, 1) if values.ndim == 1 else values.repeat(k // values.shape[1], 1)


def exact(src: Array, wei: Array, bias: Array | None, attr: Attr, into: Array | None) -> tuple[Array, Array]:
    """The result in float64 before the last rounding, and the sum of magnitudes."""
    k, n = wei.shape
    operands = []
    for name, array in (("src", src), ("wei", wei)):
        value = array.astype(np.float32).astype(np.float64)
        if name in attr.zero_points:
            value = value - spread(attr.zero_points[name], name, k, n)
        operands.append(value * spread(attr.scales[name], name, k, n) if name in attr.scales else value)
    sums, sizes = operands[0] @ operands[1], abs(operands[0]) @ abs(operands[1])
    if bias is not None:
        sums, sizes = sums + bias, sizes + abs(bias)
    for op in attr.post_ops:
        if op == "relu":
            sums = np.maximum(sums, 0)
            continue
        if op == "tanh":  # no steeper than 1, so errors do not grow
            sums = np.tanh(sums)
            continue
        added = np.asarray(op[1].values, np.float64) if op[0] == "add" else op[1] * into.astype(np.float64)
        sums, sizes = sums + added, sizes + abs(added)
    divisor = float(np.asarray(attr.scales["dst"].values, np.float32).ravel()[0]) if "dst" in attr.scales else 1.0
    shift = float(np.asarray(attr.zero_points["dst"].values).ravel()[0]) if "dst" in attr.zero_points else 0.0
    return sums / divisor + shift, sizes / divisor + abs(shift)


def attempt(seed: int) -> str:
    """One random problem: "" where it was refused, else the implementation; raises where the answer is wrong."""
    d = Draw(seed)
    src_type, wei_type = d.pick(*PAIRS)
    m, k, n = int(d.pick(1, 2, 5, 9)), int(d.pick(1, 2, 3, 16, 32, 33, 48, 64)), int(d.pick(1, 2, 3, 8, 17, 32))
    src, wei = d.data(src_type, (m, k)), d.data(wei_type, (k, n))
    integer = src_type in RANGES and wei_type in RANGES
    bias = d.data("f32", (n,)) if d.chance(0.3) else None
    into = None
    try:
        scales = {a: d.quant(a, True, m, k, n) for a in ("src", "wei", "dst") if d.chance(0.25)}
        points = {
            a: d.quant(a, False, m, k, n)
            for a in ("src", "wei", "dst")
            if d.chance(0.1 + 0.2 * (wei_type in RANGES) * (a == "wei"))
        }
        added = d.data("f32", d.pick((1,), (n,), (m, n)))
        ops: list[Any] = [
            d.pick("relu", "relu", "sum", ("sum", 0.5), ("add", added)) for _ in range(d.pick(0, 0, 1, 2))
        ]
        ops += ["tanh"] if d.chance(0.03) else []
        mode = d.pick(None, None, "strict", "bf16", "tf32", "f16", "any", "fp8" if d.chance(0.05) else None)
        attr = Attr(
            fpmath=None if integer and d.chance(0.9) else mode,
            apply_to_int=d.chance(0.9) if src_type not in RANGES else d.chance(0.03),
            scales=scales,
            zero_points=points,
            post_ops=ops,
            exact_int8=True,
            precomputed_reductions={"src": Quant(np.zeros((m, 1), np.int32))} if d.chance(0.03) else {},
        )
        dst = d.pick(None, "f32", "f32", "bf16", "s8", "u8", "s32", "f16")
        if any(op[0] == "sum" for op in attr.post_ops):
            into = d.data(dst if dst in TYPES else "f32", (m, n))
        where = {"machine": d.pick("zen4", "zen4", "skx", "spr"), "isa": d.pick(None, "avx2", "avx512_core")}
        dispatch = d.pick("fastest", "fastest", "onednn")
        result = simdnn.matmul(
            src,
            wei,
            bias,
            attr=attr,
            dst=dst,
            into=into,
            dispatch=dispatch,
            **where,
            wei_tag=d.pick("any", "any", "ab", "ba"),
        )
    except SimdnnError as error:
        assert str(error) and "\n" not in str(error)
        return ""
    wanted, sizes = exact(src, wei, bias, attr, into)
    kind = str(result.problem.epilogue.dst)
    got = result.output.astype(np.float64)
    inputs = 0.0 if integer else 3 * EPS.get(result.compute_dtype, 2.0**-24)
    allowed = (inputs + (k + 12) * 2.0**-23) * sizes + 1e-6
    if kind in RANGES:
        low, high = {"s8": (-128, 127), "u8": (0, 255)}.get(kind, (-(2**31), 2**31 - 1))
        wanted, allowed = np.clip(np.rint(wanted), low, high), np.ceil(allowed)
    else:
        allowed = allowed + EPS[kind] * abs(wanted)
    finite = np.isfinite(got)
    assert (finite | (kind == "f16")).all() and (abs(got - wanted) <= allowed)[finite].all(), (
        f"{seed}: {src_type}:{wei_type}:{kind} {m}x{k}x{n} {attr} {result.implementation}"
    )
    return str(result.implementation)


@examples(250)
@given(seed=st.integers(0, 2**32 - 1))
def test_a_right_answer_or_a_typed_refusal(seed: int) -> None:
    attempt(seed)


def test_both_come_about() -> None:
    found = [attempt(seed) for seed in range(60)]
    assert 0 < found.count("") < len(found)
