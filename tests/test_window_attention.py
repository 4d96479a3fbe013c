"""Attention with a sliding window: its values, what a kernel leaves out, and what is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import simdnn
from simdnn import InvalidArgument
from tests.effort import one_in
from tests.test_attention import by_hand, drawn
from tests.test_fused_attention import kernel


def seen_by(queries: int, keys: int, window: int) -> np.ndarray[Any, Any]:
    last = np.arange(queries)[:, None] + keys - queries
    place = np.arange(keys)
    seen: np.ndarray[Any, Any] = (place <= last) & (place > last - window)
    return seen


@one_in(3)
@pytest.mark.parametrize(
    ("machine", "dispatch"), [("zen4", "fastest"), ("a100", "flash:ampere_mma"), ("h100", "flash:hopper_wgmma")]
)
def test_each_query_sees_the_last_keys(machine: str, dispatch: str) -> None:
    q, k, v = drawn(2, 140, 20, dtype=np.float16), *(drawn(1, 300, 20, dtype=np.float16, seed=n) for n in (1, 2))
    r = simdnn.attention(q, k, v, causal=True, window=50, machine=machine, dispatch=dispatch)
    seen = seen_by(140, 300, 50)
    assert seen.sum(1).tolist() == [50] * 140
    exact, size = by_hand(q, k, v, seen), by_hand(q, k, np.abs(v), seen)
    assert (np.abs(r.output.astype(np.float64) - exact) <= 3.1 * 2.0**-11 * size).all()
    sizes: dict[str, Any] = {"heads": 2, "kv_heads": 1, "lq": 140, "lk": 300, "d": 20, "dt": "f16", "causal": True}
    told = simdnn.estimate("attention", **sizes, window=50, machine=machine, dispatch=dispatch)
    assert told.cycles == r.cycles and told.implementation == r.implementation


def test_a_window_as_long_as_the_keys_is_none() -> None:
    q, k = drawn(1, 5, 8), drawn(1, 9, 8)
    one, other = (simdnn.attention(q, k, k, causal=True, window=w, machine="zen4") for w in (9, None))
    assert one.output.tobytes() == other.output.tobytes() and one.cycles == other.cycles


@pytest.mark.parametrize("name", ["a100", "h100", "h100 wgmma"])
@pytest.mark.parametrize(("lq", "lk", "window"), [(300, 300, 64), (256, 1000, 300), (130, 1000, 129), (1, 1000, 128)])
def test_the_clock_sees_the_blocks_that_are_worked_on(name: str, lq: int, lk: int, window: int) -> None:
    """Counted from the mask itself, block by block."""
    made = kernel(name, 128, lq, lk, causal=True, window=window)
    rows, keys = made.tile.rows, made.tile.keys
    seen = seen_by(lq, lk, window)
    for block in range(made.groups):
        mine = seen[block * rows : (block + 1) * rows]
        touched = [mine[:, at : at + keys] for at in range(0, lk, keys)]
        some = [part for part in touched if part.any()]
        turns, compared = made.seen(block)
        last = (block + 1) * rows <= lq  # the last block of queries may be part empty
        assert turns == len(some)
        if last:
            assert compared == (len(some) if not made.overlapped else sum(not part.all() for part in some))


def test_a_window_makes_long_sequences_cheaper() -> None:
    sizes: dict[str, Any] = {"heads": 32, "lq": 16384, "lk": 16384, "d": 128, "dt": "bf16", "causal": True}
    whole, part = (simdnn.estimate("attention", **sizes, window=w, machine="h100").seconds for w in (None, 1024))
    assert 4 < whole / part < 8.5  # 8192 keys in the mean, and 1024 and a block


def test_refused() -> None:
    q = drawn(1, 4, 8)
    with pytest.raises(InvalidArgument, match="window=2 without causal=True"):
        simdnn.attention(q, q, q, window=2, machine="zen4")
    with pytest.raises(InvalidArgument, match="window"):
        simdnn.attention(q, q, q, causal=True, window=0, machine="zen4")
