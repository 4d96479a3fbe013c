"""Bound programs as one call of machine code: the bits, the copies and the refusals of ordinary runs."""

from __future__ import annotations

import copy
import pickle
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import simdnn
from isa_models.readings import transposed_copy
from isa_models.readings.arrays import Array
from simdnn.kernels.common.weight_cache import BesidePanels
from simdnn.numerics import calls, compiled
from simdnn.primitives import prepared, turned_calls
from simdnn.primitives.prepared import _viewed
from simdnn.primitives.result import Result
from tests.effort import one_in

RNG = np.random.default_rng(0)


@pytest.fixture(autouse=True)
def made(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """Names of calls that were made ready, and of those that ran so, in their order."""
    found: list[str] = []

    def noting(name: str, make: Callable[..., Any]) -> Callable[..., Any]:
        def noted(*args: Any, **named: Any) -> Any:
            call = make(*args, **named)
            if not call:
                return call
            found.append(f"made {name}")

            def run(*arrays: Array) -> Any:
                found.append(name)
                return call(*arrays)

            return run

        return noted

    engines = prepared.engines()
    monkeypatch.setattr(engines, "call_of", noting("call", engines.call_of))
    monkeypatch.setattr(engines, "filling_of", noting("filling", engines.filling_of))
    yield found


def drawn(shape: tuple[int, ...], dtype: str) -> Array:
    if dtype in ("u8", "s8"):
        return RNG.integers(0, 120, shape, np.uint8).view(np.uint8 if dtype == "u8" else np.int8)
    kinds = {"f32": np.float32, "bf16": ml_dtypes.bfloat16, "f16": np.float16}
    return RNG.standard_normal(shape).astype(kinds[dtype])


CASES = [
    ("zen4", "f32:f32", 5, 40, 70),
    ("zen4", "bf16:bf16", 33, 37, 50),
    ("skx", "u8:s8", 20, 65, 33),
    ("spr", "f16:f16", 9, 64, 48),
    ("spr", "bf16:bf16", 70, 65, 49),
    ("spr", "u8:s8", 64, 64, 64),
]


@pytest.mark.parametrize(("machine", "types", "m", "k", "n"), CASES)
def test_calls_leave_what_ordinary_runs_do(machine: str, types: str, m: int, k: int, n: int, made: list[str]) -> None:
    src_type, wei_type = types.split(":")
    new, known = drawn((k, n), wei_type), drawn((k, n), wei_type)
    ahead = simdnn.reorder(
        known, simdnn.matmul(drawn((m, k), src_type), known, machine=machine).weights_desc, machine=machine
    )
    for number in range(6):
        src = drawn((m, k), src_type)
        new[number, 0] = 1  # others each time
        for weights in (new, known, ahead):
            plain = weights if isinstance(weights, np.ndarray) else known
            found = simdnn.matmul(src, weights, machine=machine, engine="compiled")
            expected = simdnn.matmul(src.copy(), plain.copy(), machine=machine, engine="compiled", threads=2)
            assert found.implementation == expected.implementation and found.output.dtype == expected.output.dtype
            np.testing.assert_array_equal(_bits(found.output), _bits(expected.output))
            np.testing.assert_array_equal(_bits(found._operands.src), _bits(src))
            np.testing.assert_array_equal(_bits(found._operands.weights), _bits(plain))
    assert made.count("call") >= 6


IMAGES: list[tuple[str, str, int, int, dict[str, Any]]] = [
    ("zen4", "f32:f32", 24, 3, {"padding": 1}),
    ("spr", "bf16:bf16", 24, 1, {}),
    ("spr", "u8:s8", 3, 5, {"strides": 2, "padding": 2}),
    ("skx", "u8:s8", 40, 3, {"padding": 1, "groups": 40}),
    ("spr", "f16:f16", 16, 3, {"groups": 2}),
]


@one_in(3)
@pytest.mark.parametrize(("machine", "types", "channels", "taps", "how"), IMAGES)
def test_images_are_turned_around_a_call(
    machine: str,
    types: str,
    channels: int,
    taps: int,
    how: dict[str, Any],
    made: list[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """By Python as long as there is no code that turns axes, then by the call itself."""
    monkeypatch.setattr(transposed_copy, "_waited", {})
    monkeypatch.setattr(prepared, "TIMES", 2)
    turned: list[Any] = []

    def viewed(*given: Any) -> Any:
        turned.append(_viewed(*given))
        return turned[-1]

    monkeypatch.setattr(prepared, "_viewed", viewed)
    src_type, wei_type = types.split(":")
    shape = max(40, how.get("groups", 1)), channels // how.get("groups", 1), taps, taps
    new, known = drawn(shape, wei_type), drawn(shape, wei_type)
    for number in range(12):
        monkeypatch.setattr(transposed_copy, "_SOON", 1 << 60 if number < 5 else 0)
        assert number >= 5 or not turned
        src = drawn((2, channels, 12, 13), src_type)
        new[number, 0] = number  # others each time
        for weights in (new, known):
            found = simdnn.convolution(src, weights, machine=machine, engine="compiled", **how)
            ordinary: dict[str, Any] = {**how, "threads": 2, "dispatch": found.implementation}
            expected = simdnn.convolution(src, weights, machine=machine, engine="compiled", **ordinary)
            assert found.implementation == expected.implementation and found.output.flags.c_contiguous
            np.testing.assert_array_equal(_bits(found.output), _bits(expected.output))
            np.testing.assert_array_equal(_bits(np.ascontiguousarray(found._operands.src)), _bits(src))
            np.testing.assert_array_equal(_bits(found._operands.weights), _bits(weights))
        assert found.explain(0, 1, 2, 3).value == found.output[0, 1, 2, 3]
    assert made.count("call") >= 4 and turned


def test_panels_of_another_type_stand_beside_a_copy_of_new_weights() -> None:
    src, weights = drawn((1, 48, 9, 9), "bf16"), drawn((48, 1, 5, 5), "bf16")
    for number in range(40):
        weights[:, 0, 0, 0] = number  # others each time
        result = simdnn.convolution(src, weights, machine="spr", groups=48, engine="compiled")
    known = result._operands.known
    assert isinstance(known, BesidePanels) and {panel.dtype.name for panel in known.tensors.values()} == {"float32"}
    before = weights.copy()
    weights[:] = 0
    np.testing.assert_array_equal(_bits(known.values), _bits(before))
    assert result.explain(0, 1, 2, 3).value == result.output[0, 1, 2, 3]


def test_what_else_a_kernel_does_to_an_output_is_seen() -> None:
    kernel = simdnn.convolution(drawn((1, 3, 6, 5), "u8"), drawn((4, 3, 3, 3), "s8"), machine="zen4").kernel
    assert turned_calls.only_turns(kernel)
    assert not turned_calls.only_turns(replace(kernel, finish=lambda left: kernel.finish(left)[:, ::-1]))
    assert not turned_calls.only_turns(replace(kernel, finish=lambda left: kernel.finish(left) >> 8 << 8))
    assert not turned_calls.only_turns(replace(kernel, finish=lambda left: kernel.finish(left).astype(np.float32)))


def test_a_result_keeps_its_own_numbers(made: list[str]) -> None:
    src, weights = drawn((8, 64), "f32"), drawn((64, 176), "f32")  # weights that no other test packs
    results = []
    for number in range(6):
        src[:], weights[0, 0] = number, number
        results.append((number, weights.copy(), simdnn.matmul(src, weights, machine="zen4", engine="compiled")))
    src[:] = weights[:] = np.nan
    for number, then, result in results:
        np.testing.assert_array_equal(result._operands.src, np.full((8, 64), number, np.float32))
        np.testing.assert_array_equal(result._operands.weights, then)
        assert result.explain(3, 5).value == result.output[3, 5]
    assert "call" in made and "filling" in made


def test_turned_and_unaligned_sources(made: list[str]) -> None:
    weights = drawn((64, 48), "f32")
    whole = drawn((64, 8), "f32")
    shifted = np.empty(8 * 64 + 1, np.float32)[1:].reshape(8, 64)
    for _ in range(5):
        shifted[:] = whole.T
        one, other = (simdnn.matmul(s, weights, machine="zen4", engine="compiled").output for s in (whole.T, shifted))
        np.testing.assert_array_equal(one, other)
    assert "call" in made


def test_an_alarm_is_heard(made: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """An ordinary run answers then, and the next call is made ready anew."""
    monkeypatch.setattr(calls, "runner", lambda *plan: lambda *arrays: 1)
    src, weights = drawn((8, 64), "f32"), drawn((64, 48), "f32")
    expected = simdnn.matmul(src, weights, machine="zen4", engine="compiled", threads=2).output
    for _ in range(6):
        found = simdnn.matmul(src, weights, machine="zen4", engine="compiled").output
        np.testing.assert_array_equal(found, expected)
    assert made.count("made call") == made.count("call") + 1 > 2


def test_better_code_takes_the_place_of_hasty(made: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    src, weights = drawn((8, 64), "f32"), drawn((64, 80), "f32")
    program = simdnn.estimate("matmul", m=8, n=80, k=64, machine="zen4").kernel.program
    monkeypatch.setattr(compiled, "HASTY_OPS", calls._PARTS * 2 * program.executed)
    for _ in range(8 * calls._PARTS):
        found = simdnn.matmul(src, weights, machine="zen4", engine="compiled").output
        np.testing.assert_allclose(found, src.astype(np.float64) @ weights, rtol=1e-4, atol=1e-4)
    assert 1 < made.count("made call") < 2 * calls._PARTS
    assert made[::-1].index("made call") > 2 * calls._PARTS


def test_threads_do_not_share_what_a_run_works_on(made: list[str]) -> None:
    """This kernel copies its source with zeros behind it, into an array that the next run has, too."""
    weights = drawn((65, 49), "bf16")
    sources = [drawn((70, 65), "bf16") for _ in range(4)]
    expected = [simdnn.matmul(src, weights, machine="spr", engine="compiled").output for src in sources]
    wrong: list[int] = []

    def runs(number: int) -> None:
        for _ in range(100):
            found = simdnn.matmul(sources[number], weights, machine="spr", engine="compiled").output
            if not np.array_equal(_bits(found), _bits(expected[number])):
                wrong.append(number)

    threads = [threading.Thread(target=runs, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong and made.count("call") > 300


def test_results_of_one_kind_share_what_an_estimate_says() -> None:
    src, weights = drawn((8, 64), "f32"), drawn((64, 48), "f32")
    results = [simdnn.matmul(src, weights, machine="zen4", engine="compiled") for _ in range(5)]
    first, last = results[0], results[-1]
    assert first.cycles == last.cycles and first.machine is last.machine and {"problem", "cycles"} <= set(dir(last))
    for made in (pickle.loads(pickle.dumps(last)), copy.deepcopy(last), copy.copy(last)):
        assert isinstance(made, Result) and made.implementation == last.implementation and made == last
    with pytest.raises(AttributeError, match="'Result' object has no attribute 'cycle'"):
        _ = last.cycle  # type: ignore[attr-defined]
    assert not hasattr(object.__new__(Result), "machine")


def _bits(array: Array) -> Array:
    return np.ascontiguousarray(array).view(np.uint8)
