"""Each argument of each primitive with what nobody would give it: a typed error or an answer, no warning, no other."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Iterator
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import isa_models
import simdnn
from simdnn import SimdnnError
from tests.effort import one_in

IMAGE, ROW = np.ones((2, 4, 6, 6), np.float32), np.ones((4, 8), np.float32)
HEADS, OBJECT = np.ones((2, 3, 4), np.float32), object()
#: what no argument is meant to be, and what comes near to what some are
VALUES: tuple[Any, ...] = (
    *(None, True, -1, 2**70, 0.5, float("nan"), float("inf"), 1j),
    *("", "relu ", b"f32", [], [None], [[1], [1, 2]], (-1, 2), {}, {"src": "x"}, {1}, OBJECT, iter([1])),
    *(np.array([]), np.array(None), np.array([1.0, 2.0]), np.ma.array([1.0], mask=[True]), np.datetime64("2020")),
)
#: arrays of other types, orders and sizes than the usual ones
ARRAYS: tuple[Any, ...] = (
    *(ROW[:0], ROW[0], ROW.astype(">f4"), ROW.astype(object), ROW.astype("S4"), ROW.astype(complex), ROW * np.nan),
    *(ROW.astype(bool), ROW.astype(ml_dtypes.int4), ROW.tolist(), np.float32(1), np.zeros((4, 8), [("a", "f4")])),
    *(np.full((4, 8), 1e308), np.full((4, 8), 2**62), np.ones((1,) * 30, np.float32)),
)
CALLS: dict[str, dict[str, Any]] = {
    "matmul": {"src": ROW, "weights": np.ones((8, 5), np.float32)},
    "convolution": {"src": IMAGE, "weights": np.ones((8, 4, 3, 3), np.float32)},
    "deconvolution": {"src": IMAGE, "weights": np.ones((3, 4, 3, 3), np.float32)},
    "inner_product": {"src": ROW, "weights": np.ones((5, 8), np.float32)},
    "eltwise": {"src": ROW, "algorithm": "relu"},
    "binary": {"src0": ROW, "src1": ROW, "algorithm": "add"},
    "softmax": {"src": ROW},
    "attention": {"q": HEADS, "k": HEADS, "v": HEADS},
    "pooling": {"src": IMAGE, "kernel": 2},
    "reduction": {"src": ROW, "axes": [1]},
    "batch_normalization": {"src": IMAGE},
    "layer_normalization": {"src": ROW},
    "group_normalization": {"src": IMAGE, "groups": 2},
    "prelu": {"src": IMAGE, "weights": np.ones((1, 4, 1, 1), np.float32)},
    "resampling": {"src": IMAGE, "size": 12},
    "lrn": {"src": IMAGE, "size": 3},
    "shuffle": {"src": IMAGE, "group": 2},
    "concat": {"sources": [IMAGE, IMAGE]},
    "weighted_sum": {"sources": [IMAGE, IMAGE]},
    "conversion": {"src": IMAGE, "dst": "bf16"},
    "quantize_dynamic": {"src": ROW},
    "quantize_mx": {"array": np.ones((4, 32), np.float32), "dtype": "f4_e2m1"},
    "quantize_nvfp4": {"array": np.ones((4, 32), np.float32)},
    "quantize_ggml": {"array": np.ones((4, 32), np.float32), "dtype": "q4_0"},
    "ggml_blocks": {"stored": np.zeros((4, 18), np.uint8), "dtype": "q4_0"},
    "pack_nibbles": {"array": np.zeros((4, 8), ml_dtypes.uint4)},
    "unpack_nibbles": {"packed": np.zeros(4, np.uint8), "dtype": "s4", "shape": 8},
    "estimate": {"primitive": "matmul", "m": 4, "n": 8, "k": 16},
    "ranges": {"primitive": "matmul", "weights": np.ones((8, 5), np.int8)},
    "remedies": {"primitive": "matmul", "weights": np.ones((8, 5), np.int8), "src": np.ones((4, 8), np.uint8)},
    "reorder": {"array": ROW, "desc": simdnn.MemoryDesc((4, 8), "f32")},
    "what_if": {"base": "zen4", "figures": {"core.dispatch_slots": 8}},
    "analyze": {"code": "vaddps zmm0, zmm1, zmm2"},
    "Attr": {},
    "Quant": {"values": 1.0},
    "MemoryDesc": {"shape": (4, 8), "dtype": "f32"},
}
#: what holds arrays, of which others are tried, too
OF_ARRAYS = {
    *("src", "weights", "bias", "src0", "src1", "array", "stored", "packed", "sources", "into", "scale", "mean"),
    *("q", "k", "v", "mask"),
}


def spoilt(name: str) -> Iterator[tuple[str, Any, dict[str, Any]]]:
    """Calls in which one argument is another, with that argument and its value."""
    parameters = inspect.signature(getattr(simdnn, name)).parameters
    base = CALLS[name] | ({"machine": "skx"} if "machine" in parameters else {})
    for argument in dict.fromkeys([*base, *(n for n, one in parameters.items() if one.kind is not one.VAR_KEYWORD)]):
        for value in (*VALUES, *(ARRAYS if argument in OF_ARRAYS else ())):
            yield argument, value, base | {argument: value}


@one_in(3)
@pytest.mark.parametrize("name", CALLS)
def test_an_error_is_one_of_this_package(name: str) -> None:
    function, met = getattr(simdnn, name), 0
    for argument, value, given in spoilt(name):
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                function(**given)
        except SimdnnError as error:
            assert len(str(error)) <= 1000 and str(error).isprintable()
            met += 1
        except Exception as error:
            pytest.fail(f"{argument}={value!r:.80}: {error!r:.200}")
    assert met > 5 * len(CALLS[name])


@pytest.mark.parametrize("name", [name for name, given in CALLS.items() if "src" in given or "array" in given])
def test_arrays_as_numpy_has_them(name: str) -> None:
    """Other orders of bytes and elements, and what may not be written, give the same bits, and stay as they were."""
    if name in ("remedies", "pack_nibbles", "reorder"):
        return
    function, argument = getattr(simdnn, name), "src" if "src" in CALLS[name] else "array"
    numbers = np.random.default_rng(0).standard_normal(CALLS[name][argument].shape, np.float32)
    where = {"machine": "zen4"} if "machine" in inspect.signature(function).parameters else {}
    wanted = function(**CALLS[name] | where | {argument: numbers}).output
    fixed = numbers.copy()
    fixed.setflags(write=False)
    turned = numbers[..., ::-1].copy()[..., ::-1]
    for same in (numbers.astype(">f4"), np.asfortranarray(numbers), turned, fixed, numbers.view(np.recarray)):
        found = function(**CALLS[name] | where | {argument: same}).output
        assert found.tobytes() == wanted.tobytes() and not np.shares_memory(found, same)
    assert (numbers == fixed).all()


RECORDS = {
    "a CPU": isa_models.machine("zen4"),
    "a GPU": isa_models.machine("b580"),
    "a loop": simdnn.analyze("vaddps zmm0, zmm1, zmm2", "zen4"),
    "an estimate": simdnn.estimate("matmul", m=4, n=8, k=16, machine="zen4"),
}


@pytest.mark.parametrize("record", RECORDS)
def test_methods_answer_as_functions_do(record: str) -> None:
    """Public methods whose arguments are plain: each with what nobody would give it."""
    one, met = RECORDS[record], 0
    routines = (n for n in dir(type(one)) if n[0] != "_" and inspect.isroutine(getattr(type(one), n)))
    for name, method in ((n, getattr(one, n)) for n in routines):
        if not inspect.ismethod(method):
            continue
        parameters = inspect.signature(method).parameters.values()
        for value in VALUES if parameters else ():
            given = [value] * sum(p.default is p.empty for p in parameters)
            try:
                method(*given or [value])
            except SimdnnError as error:
                assert len(str(error)) <= 1000 and str(error).isprintable()
                met += 1
            except Exception as error:
                pytest.fail(f"{name}({value!r:.80}): {error!r:.200}")
    assert met >= 20
