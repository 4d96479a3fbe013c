"""Objects that the package hands out pickle and deep-copy, and tell the same afterwards."""

from __future__ import annotations

import copy
import multiprocessing
import pickle
from collections.abc import Callable
from functools import cache, partial
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import isa_models
import simdnn
from isa_models.records.frozen import Frozen
from simdnn.kernels import KERNELS
from simdnn.primitives.attr import Quant
from tests.effort import one_in

RNG = np.random.default_rng(0)
U8, S8 = RNG.integers(0, 256, (4, 32), np.uint8), RNG.integers(-128, 128, (32, 8)).astype(np.int8)
F32, WEI = RNG.standard_normal((4, 32)).astype(np.float32), RNG.standard_normal((32, 8)).astype(np.float32)
F16, WEI16 = F32.astype(np.float16), WEI.astype(np.float16)
BF16, WEIB = F32.astype(ml_dtypes.bfloat16), WEI.astype(ml_dtypes.bfloat16)
IMAGE, TAPS = RNG.standard_normal((1, 8, 5, 5)).astype(np.float32), RNG.standard_normal((8, 8, 3, 3)).astype(np.float32)
Way = Callable[[Any], Any]
WAYS: dict[str, Way] = {"pickle": lambda found: pickle.loads(pickle.dumps(found)), "deepcopy": copy.deepcopy}
way = pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)


def _matmul(src: Any, wei: Any, machine: str, **more: Any) -> Callable[[], simdnn.Result]:
    return partial(simdnn.matmul, src, wei, machine=machine, **more)


def _convolution(src: Any, wei: Any, machine: str, **more: Any) -> Callable[[], simdnn.Result]:
    return partial(simdnn.convolution, src, wei, machine=machine, **more)


MADE: dict[str, Callable[[], simdnn.Estimate]] = {
    "saturating": _matmul(U8, S8, "skx"),
    "saturating, u8 weights": _matmul(U8, S8.view(np.uint8), "skx"),
    "exact": _matmul(U8, S8, "skx", attr=simdnn.Attr(exact_int8=True)),
    "threads": _matmul(F32, WEI, "zen4", threads=2),
    "by name": _matmul(F32, WEI, "zen4", dispatch="gemm:avx2"),
    "as oneDNN": _matmul(F32, WEI, "zen4", dispatch="onednn"),
    "post ops": _matmul(F32, WEI, "zen4", attr=simdnn.Attr(post_ops=["relu"])),
    "gemv": _matmul(F32[:1], WEI, "zen4"),
    "tiles": _matmul(BF16, WEIB, "spr"),
    "f16": _matmul(F16, WEI16, "zen4"),
    "compressed": _matmul(
        F32, S8, "zen4", attr=simdnn.Attr(fpmath="bf16", apply_to_int=True, scales={"wei": np.ones(8, np.float32)})
    ),
    "Intel GPU": _matmul(F16, WEI16, "a770"),
    "Intel GPU, batch": _matmul(F16[None].repeat(2, 0), WEI16, "a770"),
    "Intel GPU, int8": _matmul(U8, S8, "max1100"),
    "NVIDIA GPU": _matmul(F16, WEI16, "v100"),
    "convolution": _convolution(IMAGE, TAPS, "zen4"),
    "depthwise": _convolution(IMAGE, TAPS[:, :1], "zen4", groups=8),
    "convolution, int8 weights": _convolution(
        IMAGE, TAPS.astype(np.int8), "zen4", attr=simdnn.Attr(fpmath="strict", apply_to_int=True)
    ),
    "convolution on a GPU": _convolution(IMAGE, TAPS, "a770"),
    "depthwise on a GPU": _convolution(IMAGE, TAPS[:, :1], "a770", groups=8),
    "cost alone": partial(simdnn.estimate, "matmul", m=8, n=8, k=8, dt="u8:s8:s32", machine="clx"),
    "cost of a GPU": partial(simdnn.estimate, "matmul", m=8, n=8, k=8, dt="f16", machine="b580"),
}


@cache
def made(name: str) -> simdnn.Estimate:
    return MADE[name]()


def conversion(found: simdnn.Estimate) -> str:
    try:
        return str(found.conversion)
    except simdnn.Unimplemented as error:
        return str(error)


@one_in(3)
@way
@pytest.mark.parametrize("name", MADE)
def test_a_result_tells_the_same(name: str, way: Way) -> None:
    found = made(name)
    other = way(found)
    assert other == found and hash(other) == hash(found)
    assert other.to_json() == found.to_json() and other.machine is found.machine
    assert conversion(other) == conversion(found)
    if isinstance(found, simdnn.Result):
        assert other.output.dtype == found.output.dtype and other.output.tobytes() == found.output.tobytes()
        assert (other.saturation is None) == (found.saturation is None)
        assert np.array_equal(other.saturation, found.saturation) or found.saturation is None
        index = (0,) * found.output.ndim
        assert str(other.explain(*index)) == str(found.explain(*index))


@one_in(2)
@pytest.mark.parametrize("name", MADE)
def test_a_result_is_equal_to_one_made_again_and_to_no_other(name: str) -> None:
    found = made(name)
    found.to_json()  # figures that were asked for make no difference
    assert MADE[name]() == found and not MADE[name]() != found
    assert [other for other in MADE if made(other) == found] == [name]


def test_one_bit_is_a_difference() -> None:
    changed = F32.copy()
    changed[0, 0] = np.nextafter(changed[0, 0], np.float32(9))
    found, other = (simdnn.matmul(src, WEI, machine="zen4") for src in (F32, changed))
    assert found != other and found != found.output.tolist()
    nan = np.full_like(F32, np.nan)
    assert simdnn.matmul(nan, WEI, machine="zen4") == simdnn.matmul(nan, WEI, machine="zen4")


@way
def test_a_comparison(way: Way) -> None:
    found = simdnn.compare((U8, S8), "skx", "clx")
    other = way(found)
    assert other.differing == found.differing > 0
    assert other == found != simdnn.compare((U8, S8), "clx", "skx")
    assert other.reasons.equals(found.reasons)


@way
def test_a_loop_s_analysis(way: Way) -> None:
    found = simdnn.analyze("vpaddd zmm0, zmm1, zmm2\nvpaddd zmm0, zmm0, zmm2\n", machine="zen4")
    assert way(found).cycles_per_iteration == found.cycles_per_iteration and str(way(found)) == str(found)
    assert way(found) == found and len({found, way(found)}) == 1


@way
def test_a_loop_s_values(way: Way) -> None:
    loop = simdnn.analyze("vpmovb2m k1, zmm0\nvpaddb zmm2{k1}, zmm2, zmm0\n", machine="zen5")
    found = loop.values(seed=1)
    assert way(found) == found and hash(way(found)) == hash(found) and found != loop.values(seed=2)
    assert len(repr(found)) < 100


@one_in(2)
@way
def test_a_network_and_its_result(way: Way) -> None:
    pytest.importorskip("onnx")
    from tests.networks.models import small_cnn

    x = {"x": RNG.standard_normal((2, 3, 12, 12)).astype(np.float32)}
    network = simdnn.load(small_cnn())
    for machine in ("zen4", "a770"):
        found = network.run(x, machine=machine)
        other = way(found)
        assert other == found and hash(other) == hash(found) and other != network.run(x, machine="skx")
        assert other.to_json() == found.to_json() and other.outputs["y"].tobytes() == found.outputs["y"].tobytes()
        assert other.saturation.equals(found.saturation)
        assert way(network).run(x, machine=machine).outputs["y"].tobytes() == found.outputs["y"].tobytes()


@way
@pytest.mark.parametrize("name", [*isa_models.machine_names(), *isa_models.gpu_machine_names()])
def test_a_machine_stays_itself(name: str, way: Way) -> None:
    machine = isa_models.machine(name)
    assert way(machine) is machine


@way
@pytest.mark.parametrize(
    ("name", "figure", "value"), [("zen4", "core.dispatch_slots", 8), ("b580", "caches.L2.size_bytes", 2**20)]
)
def test_a_machine_that_does_not_exist(name: str, figure: str, value: int, way: Way) -> None:
    machine = isa_models.what_if(name, {figure: value})
    other = way(machine)
    assert other is machine and other != isa_models.machine(name)


@one_in(2)
@way
def test_a_witness(way: Way) -> None:
    frame = simdnn.invariance("matmul", over={"dispatch": ["gemm:avx2", "onednn"]}, m=1, n=64, k=300, machine="zen4")
    (found,) = frame.attrs["witnesses"].values()
    assert way(found) == found and way(found).run() == found.values
    other = way(frame)
    assert other.equals(frame) and other.attrs == frame.attrs


@way
def test_what_tuning_found(way: Way) -> None:
    pytest.importorskip("onnx")
    from tests.networks.models import small_cnn

    feeds = [{"x": RNG.standard_normal((1, 3, 12, 12)).astype(np.float32)}]
    found = simdnn.tune(small_cnn(), machine="zen4", feeds=feeds, modes=["f32", "bf16"])
    other, row = way(found), int(found.front.index[0])
    assert other == found and other.to_json() == found.to_json() and other.recipe(row) == found.recipe(row)
    assert other.table(row).equals(found.table(row))


@way
def test_weights_brought_to_a_layout_fit_still(way: Way) -> None:
    wanted = simdnn.estimate("matmul", m=4, n=8, k=32, machine="zen4").weights_desc
    weights = way(simdnn.reorder(WEI, wanted, machine="zen4"))
    assert simdnn.matmul(F32, weights, machine="zen4").output.shape == (4, 8)


@way
@pytest.mark.parametrize(
    "found",
    [
        simdnn.Attr(scales={"wei": Quant(np.ones(8, np.float32))}, post_ops=["relu"]),
        simdnn.MemoryDesc((4, 8), "f32", "ab"),
        isa_models.instruction("vpmaddubsw"),
        isa_models.instruction("dpas.s8.s8.8.8.x16.s32"),
        KERNELS[0],
        Frozen({"a": 1}),
    ],
    ids=lambda found: type(found).__name__,
)
def test_small_records(found: Any, way: Way) -> None:
    assert repr(way(found)) == repr(found) and type(way(found)) is type(found)
    if isinstance(found, isa_models.Instruction):
        assert {found: 1}[way(found)] == 1  # a key of a table


@way
def test_a_quantized_source(way: Way) -> None:
    found = simdnn.quantize_dynamic(F32, machine="zen4")
    assert repr(way(found)) == repr(found)


def _answer(src: Any) -> tuple[simdnn.Result, simdnn.Estimate]:
    machine = isa_models.what_if("skx", {"core.dispatch_slots": 8})
    return simdnn.matmul(src, S8, machine=machine), simdnn.estimate("matmul", m=4, n=8, k=8, machine=machine)


def test_joblib_takes_and_gives_results() -> None:
    import joblib  # which scikit-learn brings

    assert joblib.Parallel(2, timeout=300)([joblib.delayed(_answer)(U8)]) == [_answer(U8)]


def test_dask_takes_and_gives_results() -> None:
    import dask

    found = dask.delayed(_answer)(U8).compute(scheduler="processes", num_workers=1)
    assert found == _answer(U8)


@one_in(2)
@pytest.mark.parametrize("start", ["fork", "spawn"])
def test_a_pool_of_processes(start: str) -> None:
    if start not in multiprocessing.get_all_start_methods():
        pytest.skip(f"no {start} here")
    work = partial(simdnn.matmul, weights=S8, machine="skx")
    with multiprocessing.get_context(start).Pool(2) as pool:
        found = pool.map_async(work, [U8, U8[:1]]).get(120)
    assert found == [work(src) for src in (U8, U8[:1])]
    assert [result.to_json() for result in found] == [work(src).to_json() for src in (U8, U8[:1])]


@pytest.mark.parametrize(
    "change",
    [
        lambda mapping: mapping.__setitem__("a", 2),
        lambda mapping: mapping.__delitem__("a"),
        lambda mapping: mapping.clear(),
        lambda mapping: mapping.pop("a"),
        lambda mapping: mapping.popitem(),
        lambda mapping: mapping.update(a=2),
        lambda mapping: mapping.setdefault("b", 2),
        lambda mapping: mapping.__ior__({"a": 2}),
    ],
)
def test_a_frozen_mapping_does_not_change(change: Callable[[Frozen[str, int]], object]) -> None:
    mapping = Frozen({"a": 1})
    with pytest.raises(TypeError, match="can't be changed"):
        change(mapping)
    assert mapping == {"a": 1} and mapping.copy() is mapping


def test_a_machine_made_twice_is_one() -> None:
    """By its name and by `what_if`, whichever comes first, so that a pickled one finds it."""
    named = isa_models.machine("icx with core.dispatch_slots = 7")
    assert isa_models.what_if("icx", {"core.dispatch_slots": 7}) is named
