"""Attention as three primitives: oneDNN's recorded bits, arithmetic by hand, cost, and what is refused."""

from __future__ import annotations

import copy
import json
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import simdnn
from simdnn import InvalidArgument
from tests.effort import one_in

Array = np.ndarray[Any, Any]
RECORDED = Path(__file__).parent / "vectors" / "onednn_attention"
CASES = json.loads((RECORDED / "manifest.json").read_text())["cases"]
BF16 = np.dtype(ml_dtypes.bfloat16)


def drawn(*shape: int, dtype: Any = np.float32, seed: int = 0) -> Array:
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


def by_hand(q: Array, k: Array, v: Array, seen: Array) -> Array:
    """In float64, heads of keys repeated."""
    every = q.shape[-3] // k.shape[-3]
    k, v = (np.repeat(a.astype(np.float64), every, -3) for a in (k, v))
    scores = q.astype(np.float64) @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1])
    shares = np.exp(np.where(seen, scores, -np.inf))
    found: Array = shares / shares.sum(-1, keepdims=True) @ v
    return found


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_the_librarys_bits(case: dict[str, Any]) -> None:
    with np.load(RECORDED / f"{case['name']}.npz") as stored:
        arrays = {n: a.view(BF16) if a.dtype == np.uint16 else a for n, a in stored.items()}
    wanted, mask = arrays.pop("out"), arrays.pop("mask", None)
    r = simdnn.attention(**arrays, mask=mask, scale=case["scale"], machine="spr", dispatch="onednn")
    assert r.output.dtype == wanted.dtype and r.output.tobytes() == wanted.tobytes()


@one_in(3, "dtype")
@pytest.mark.parametrize("machine", ["hsw", "spr", "zen4", "b580", "dg1", "h100", "v100"])
@pytest.mark.parametrize("dtype", ["f32", "f16"])
def test_heads_share_keys(machine: str, dtype: str) -> None:
    """Grouped queries, a batch, later keys unseen: the values, and the cost as it is estimated."""
    kind = {"f32": np.float32, "f16": np.float16}[dtype]
    q, k, v = drawn(2, 4, 5, 32, dtype=kind), *(drawn(2, 2, 9, 32, dtype=kind, seed=n) for n in (1, 2))
    r = simdnn.attention(q, k, v, causal=True, machine=machine, dispatch="three kernels")
    seen = np.arange(9) <= np.arange(5)[:, None] + 4
    assert np.abs(r.output.astype(np.float64) - by_hand(q, k, v, seen)).max() < {"f32": 1e-5, "f16": 3e-3}[dtype]
    sizes: dict[str, Any] = {"heads": 4, "kv_heads": 2, "batch": 2, "lq": 5, "lk": 9, "d": 32}
    told = simdnn.estimate("attention", **sizes, dt=dtype, causal=True, machine=machine, dispatch="three kernels")
    assert told.cycles == r.cycles == sum(step.cycles for _, step in r.steps)
    assert told.implementation == r.implementation


@pytest.mark.parametrize("dtype", ["f32", "f16"])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("batch", [(), (2,)])
def test_the_librarys_cost_is_that_of_the_run(batch: tuple[int, ...], causal: bool, dtype: str) -> None:
    """Keys that are not seen, and one dimension more, choose no other kernel than sizes alone do."""
    kind = {"f32": np.float32, "f16": np.float16}[dtype]
    q, k, v = drawn(*batch, 4, 5, 16, dtype=kind), *(drawn(*batch, 2, 7, d, dtype=kind, seed=d) for d in (16, 12))
    r = simdnn.attention(q, k, v, causal=causal, machine="spr", dispatch="onednn")
    sizes: dict[str, Any] = {"heads": 4, "kv_heads": 2, "batch": sum(batch) or 1, "lq": 5, "lk": 7, "d": 16, "dv": 12}
    told = simdnn.estimate("attention", **sizes, dt=dtype, causal=causal, machine="spr", dispatch="onednn")
    assert told.cycles == r.cycles and told.implementation == r.implementation


@pytest.mark.parametrize("logarithm", [False, True])
def test_zeros_of_negative_sign_cost_no_more(logarithm: bool) -> None:
    src = drawn(3, 70)
    plain = simdnn.softmax(src, logarithm=logarithm, machine="spr", dispatch="onednn")
    src[0, 0], src[1, 2] = -0.0, -np.inf
    assert simdnn.softmax(src, logarithm=logarithm, machine="spr", dispatch="onednn").cycles == plain.cycles


def test_a_page_of_a_result(tmp_path: Path) -> None:
    r = simdnn.attention(drawn(2, 3, 8), drawn(2, 4, 8), drawn(2, 4, 8), machine="zen4")
    text = simdnn.report(r, tmp_path / "attention.html").read_text()
    assert "attention on zen4" in text and all(step in text for step in ("scores", "shares", "found"))
    record = json.loads(r.to_json())
    assert record["cycles"] == r.cycles and record["provenance"]["machine"] == "zen4" and len(record["steps"]) == 3


def test_booleans_say_which_keys_are_seen() -> None:
    q, k, v = drawn(2, 6, 16), drawn(2, 7, 16, seed=1), drawn(2, 7, 24, seed=2)
    seen = np.random.default_rng(3).random((6, 7)) < 0.5
    seen[:, 2] = True
    added = np.where(seen, np.float32(0), np.float32(-np.inf))
    for dispatch in ("fastest", "onednn"):
        found, same = (
            simdnn.attention(q, k, v, mask=mask, machine="icx", dispatch=dispatch).output for mask in (seen, added)
        )
        assert found.shape == (2, 6, 24) and found.tobytes() == same.tobytes()
        assert np.abs(found - by_hand(q, k, v, seen)).max() < 1e-5
    hidden = v.copy()
    hidden[:, ~seen[0]] = 1e30  # what is not seen is weighed by 0
    again = simdnn.attention(q, k, hidden, mask=seen, machine="icx").output
    assert again[:, 0].tobytes() == simdnn.attention(q, k, v, mask=seen, machine="icx").output[:, 0].tobytes()


@one_in(3)
@pytest.mark.parametrize("machine", ["icx", "spr", "h100", "b580", "lnl"])
def test_twice_the_keys_cost_up_to_twice_the_time(machine: str) -> None:
    """A token by what is kept of those before; what is kept in half the bytes takes less time."""
    sizes: dict[str, Any] = {"heads": 32, "kv_heads": 8, "lq": 1, "d": 128, "machine": machine}
    times = [simdnn.estimate("attention", **sizes, lk=lk, dt="f16").seconds for lk in (4096, 8192)]
    assert times[0] < times[1] < 2.2 * times[0]
    assert times[0] < simdnn.estimate("attention", **sizes, lk=4096, dt="f32").seconds


@pytest.mark.parametrize(("machine", "dispatch"), [("zen4", "fastest"), ("spr", "onednn"), ("a100", "three kernels")])
@pytest.mark.parametrize("batch", [(), (2,)])
def test_an_element_is_explained(machine: str, dispatch: str, batch: tuple[int, ...]) -> None:
    """Its last step stores the output's own value."""
    q, k, v = drawn(*batch, 4, 3, 16), *(drawn(*batch, 2, 5, 16, seed=n) for n in (1, 2))
    r = simdnn.attention(q, k, v, machine=machine, dispatch=dispatch)
    at = (*(size - 1 for size in batch), 3, 1, 7)
    assert float(r.explain(*at).value) == float(r.output[at])
    assert float(r.explain(*at[:-1], -9).value) == float(r.output[at])  # from the end, as of a product
    for odd in ((4, 0), (*at[:-1], 16), (*at[:-1], "7")):
        with pytest.raises(InvalidArgument, match=r"element \("):
            r.explain(*odd)  # type: ignore[arg-type]


def test_one_kernel_is_not_explained() -> None:
    q = drawn(2, 3, 16, dtype=np.float16)
    r = simdnn.attention(q, q, q, machine="a100", dispatch="flash:ampere_mma")
    with pytest.raises(simdnn.Unimplemented, match="three kernels"):
        r.explain(0, 0, 0)


def test_a_result_is_kept_and_shown() -> None:
    q = drawn(2, 3, 8)
    r = simdnn.attention(q, q, q, machine="zen4", dst="bf16")
    assert r.output.dtype == BF16 and " on zen4: " in repr(r) and "<table" in r._repr_html_()
    for again in (pickle.loads(pickle.dumps(r)), copy.deepcopy(r)):
        assert again.output.tobytes() == r.output.tobytes() and again.cycles == r.cycles
    frame = r.to_frame()
    assert frame["step"].tolist() == ["scores", "shares", "found"] and frame["share"].sum() == pytest.approx(1)
    assert frame["bound"].tolist() == [step.bound for _, step in r.steps]
    times = frame.groupby("bound")["time_us"].sum()
    assert times[r.bound] == times.max() and json.loads(r.to_json())["bound"] == r.bound


Q, ROWS_FIRST = drawn(2, 3, 8), drawn(1, 3, 2, 8)
REFUSED: tuple[tuple[Callable[[], Any], str], ...] = (
    (lambda: simdnn.attention(Q[0], Q[0], Q[0], machine="zen4"), r"q=.*\(heads, rows, d\)"),
    (lambda: simdnn.attention(Q, Q.astype(np.float16), Q, machine="zen4"), "k of 3 dimensions and f16; 3 of f32"),
    (lambda: simdnn.attention(Q, Q[:, :, :4], Q, machine="zen4"), "q has d=8, k 4; .* are needed$"),
    (lambda: simdnn.attention(Q, Q, Q[:, :2], machine="zen4"), "k and v differ in heads or keys"),
    (lambda: simdnn.attention(Q[None], Q[None], Q[None][[0, 0]], machine="zen4"), "batches differ"),
    (
        lambda: simdnn.attention(ROWS_FIRST, ROWS_FIRST[:, :2, :1], ROWS_FIRST[:, :2, :1], machine="zen4"),
        r"swapaxes\(1, 2\)",
    ),
    (lambda: simdnn.attention(Q, Q, Q, dst="s8", machine="zen4"), "dst 's8'"),
    (
        lambda: simdnn.attention(Q, np.ones((3, 4, 8), "f4"), np.ones((3, 4, 8), "f4"), machine="zen4"),
        "2 heads are no multiple of 3 kv_heads",
    ),
    (lambda: simdnn.attention(Q.astype(np.float64), Q, Q, machine="zen4"), "type of q 'f64'"),
    (
        lambda: simdnn.attention(Q, Q, Q, mask=np.ones((3, 4), bool), machine="zen4"),
        r"\(3, 4\) of booleans; .* \(3, 3\) of f32",
    ),
    (lambda: simdnn.attention(Q, Q, Q, mask=np.zeros((3, 3), bool), machine="zen4"), "query 0 sees no key"),
    (lambda: simdnn.attention(Q, Q[:, :2], Q[:, :2], causal=True, machine="zen4"), r"3 queries and 2 keys; .*np\.tri"),
    (lambda: simdnn.attention(Q, Q, Q, causal=1, machine="zen4"), "causal=1; True or False"),  # type: ignore[arg-type]
    (lambda: simdnn.attention(Q, Q, Q, scale=float("nan"), machine="zen4"), "scale=nan; a finite number"),
    (lambda: simdnn.attention(Q, Q, Q, machine="zen4", dispatch="flash"), "dispatch of attention 'flash'"),
    (lambda: simdnn.attention(Q, Q, Q), "machine"),  # type: ignore[call-arg]
    (lambda: simdnn.estimate("attention", heads=4, lq=1, d=8, machine="zen4"), "without lk"),
    (
        lambda: simdnn.estimate("attention", heads=4, kv_heads=3, lq=1, lk=2, d=8, machine="zen4"),
        "multiple of kv_heads",
    ),
    (lambda: simdnn.estimate("attention", heads=4, lq=1, lk=2, d=8, dt="s8", machine="zen4"), "dt 's8'"),
    (lambda: simdnn.estimate("attention", heads=4, lq=1, lk=2, d=8, kv="s8", machine="zen4"), "'kv'"),
    (lambda: simdnn.estimate("attention", heads=4, lq=1, lk=2, d=8, bias=True, machine="zen4"), "attr or bias"),
)


@pytest.mark.parametrize(("call", "told"), REFUSED, ids=[told for _, told in REFUSED])
def test_refused(call: Callable[[], Any], told: str) -> None:
    with pytest.raises(InvalidArgument, match=told):
        call()
