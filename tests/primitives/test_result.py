"""Facts that a result tells beside its values."""

from __future__ import annotations

import hashlib
import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import simdnn
from simdnn import Attr, Quant, frames, timing
from tests.effort import examples


@pytest.fixture(scope="module")
def result() -> simdnn.Result:
    src, weights = np.ones((24, 64), np.uint8), np.ones((64, 32), np.int8)
    return simdnn.matmul(src, weights, machine="zen4")


def test_properties(result: simdnn.Result) -> None:
    assert (result.output == 64).all()
    assert result.implementation.startswith("gemm:avx512_core_vnni") and result.compute_dtype == "s8"
    assert result.isa == "avx512_core_vnni" and result.saturation is None and result.fpmath == "strict"
    assert result.cycles >= 24 * 64 * 32 / 128 / 2  # two 64-byte vpdpbusd a cycle at the very most
    assert result.seconds == pytest.approx(result.cycles / simdnn.machine("zen4").frequency.ghz(512) / 1e9)
    assert result.gops == pytest.approx(2 * 24 * 64 * 32 / result.seconds / 1e9)
    assert result.confidence in ("measured", "documented", "estimated")


@given(
    st.tuples(*[st.integers(1, 70)] * 3),
    st.sampled_from(["f32", "u8:s8:s32", "bf16:bf16:f32", "f32:s8:f32"]),
    st.sampled_from(["hsw", "zen4", "spr", "b580"]),
    st.sampled_from([(), (3,)]),
)
@examples(20)
def test_an_estimate_tells_of_its_kernel_without_it(
    sizes: tuple[int, int, int], dt: str, machine: str, batch: tuple[int, ...]
) -> None:
    """The same as the kernel that is made for who asks for it."""
    weights = Attr(fpmath="any", apply_to_int=True, scales={"wei": Quant(None)}) if dt == "f32:s8:f32" else None
    shape = dict(zip("mnk", sizes, strict=True)) | {"src_batch": batch}
    r = simdnn.estimate("matmul", dt=dt, machine=machine, attr=weights, **shape)
    told = r.compute_dtype, r.nbytes
    moved = sum(t.nbytes for t in r.kernel.program.tensors if t.kind in ("input", "output"))
    assert told == (r.kernel.compute_dtype, moved)


def test_frames(result: simdnn.Result) -> None:
    assert {"instruction", "count", "uops", "ports", "cycles_share"} <= set(result.instructions.columns)
    dots = result.instructions.set_index("instruction").loc["vpdpbusd", "count"]
    assert int(np.sum(dots)) * 64 >= 24 * 64 * 32
    assert {"level", "read_bytes", "written_bytes", "bytes_per_cycle"} <= set(result.traffic.columns)
    assert list(result.dispatch.columns) == ["implementation", "isa", "cycles", "chosen", "reason"]
    (chosen,) = result.dispatch[result.dispatch["chosen"]].to_dict("records")
    assert chosen["implementation"] == result.implementation and chosen["cycles"] == result.cycles
    row = result.to_frame()
    assert len(row) == 1 and row.loc[0, "time_us"] == pytest.approx(result.seconds * 1e6)
    problem = ["primitive", "m", "n", "k", "src", "wei", "dst"]
    assert row.loc[0, problem].tolist() == ["matmul", 24, 32, 64, "u8", "s8", "s32"]


def test_what_is_assumed_of_a_shared_cache() -> None:
    """Half of 16.8 MB of weights in an L3 of 32 MiB for eight cores, which a guest may not have to itself."""
    shape = {"m": 1, "n": 4096, "k": 4096, "dt": "u8:s8:s32", "machine": "zen4"}
    alone, all_ = simdnn.estimate("matmul", **shape), simdnn.estimate("matmul", threads=8, **shape)
    assert "8.4 MB stay in L3, 2.0 times an even share of it" in alone.assumes and alone.assumes in repr(alone)
    assert all_.assumes == "" and simdnn.estimate("matmul", m=8, n=64, k=64, machine="zen4").assumes == ""
    with simdnn.cold_weights():
        assert simdnn.estimate("matmul", **shape).assumes == ""


def test_json(result: simdnn.Result) -> None:
    def refuse(constant: str) -> None:
        raise AssertionError(constant)

    record = json.loads(result.to_json(), parse_constant=refuse)
    assert record["cycles"] == result.cycles and record["output"] == "24x32 int32"
    assert any(row["cycles"] is None for row in record["dispatch"])
    machine = simdnn.machine("zen4")
    assert record["provenance"] == {
        "machine": "zen4",
        "machine_sha256": hashlib.sha256(machine.path.read_bytes()).hexdigest(),
        "simdnn": simdnn.__version__,
        "program": result.kernel.program.signature,
    }


def test_frames_of_the_same_texts_are_each_their_own() -> None:
    """Who writes into one changes no other, nor those made later."""
    one, other, later = (frames.framed({"isa": ("str", ("sse41", "avx2"))}, ["isa"]) for _ in range(3))
    one.loc[0, "isa"] = "mine"
    other.iloc[1, 0] = "mine, too"
    told = [frame["isa"].tolist() for frame in (one, other, later)]
    assert told == [["mine", "avx2"], ["sse41", "mine, too"], ["sse41", "avx2"]]


def test_text(result: simdnn.Result) -> None:
    assert repr(result) == f"Result({result.implementation} on zen4: {result.cycles:.0f} cycles, {result.bound})"
    html = result._repr_html_()
    assert html.count("<tr>") == html.count("</tr>") > 10 and result.implementation in html


def test_more_threads_have_values_and_a_cost() -> None:
    src, weights = np.ones((400, 160), np.float32), np.ones((160, 480), np.float32)
    one, two = (simdnn.matmul(src, weights, machine="zen4", threads=n) for n in (1, 2))
    assert (two.output == 160).all() and "2 threads" in repr(two) and "threads" not in repr(one)
    assert one.cycles / 2 <= two.cycles < 0.6 * one.cycles
    assert two.traffic.level.tolist() == one.traffic.level.tolist() and two.confidence == "estimated"
    assert two.instructions["count"].sum() == one.instructions["count"].sum()
    assert json.loads(two.to_json())["threads"] == 2


def test_a_second_call_estimates_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def call(fill: int) -> float:
        return simdnn.matmul(np.full((3, 20), fill, np.uint8), np.ones((20, 7), np.int8), machine="zen4").cycles

    first = call(1)

    def fail(*_: object) -> None:
        raise AssertionError("estimated again")

    monkeypatch.setattr(timing.estimate, "estimate_program", fail)
    assert call(2) == first


SHAPE: dict[str, Any] = {"ic": 8, "ih": 6, "iw": 7, "oc": 16, "kh": 3, "kw": 3}


@pytest.mark.parametrize("dst", ["s32", "f32"])
def test_an_estimate_is_the_cost_of_the_same_call(dst: str) -> None:
    known = Attr(scales={"wei": np.ones(16)}) if dst == "f32" else Attr()
    unknown = Attr(scales={"wei": Quant(None, mask="per_oc")}) if dst == "f32" else Attr()
    src, weights = np.ones((1, 8, 6, 7), np.uint8), np.ones((16, 8, 3, 3), np.int8)
    ran = simdnn.convolution(src, weights, padding=1, strides=(2, 1), attr=known, machine="zen4")
    options: dict[str, Any] = {"padding": 1, "strides": (2, 1), "attr": unknown, "dt": f"u8:s8:{dst}"}
    found = simdnn.estimate("convolution", **SHAPE, **options, machine="zen4")
    assert (found.cycles, found.bound, found.implementation) == (ran.cycles, ran.bound, ran.implementation)
    assert found.problem == ran.problem and not hasattr(found, "output")


def test_an_estimate_takes_no_memory_for_operands() -> None:
    found = simdnn.estimate("matmul", m=1 << 16, n=1 << 16, k=1 << 12, dt="u8:s8:s32", machine="zen4")
    assert found.cycles >= (1 << 44) / 256


def test_modes_reach_the_result(monkeypatch: pytest.MonkeyPatch) -> None:
    def mode(**options: Any) -> str:
        return simdnn.matmul(np.ones((2, 3), np.float32), np.ones((3, 4), np.float32), machine="zen4", **options).fpmath

    monkeypatch.setenv("DNNL_DEFAULT_FPMATH_MODE", "any")
    assert mode() == "any"
    with simdnn.fpmath_mode("bf16"):
        assert mode() == "bf16" and mode(attr=Attr(fpmath="tf32")) == "tf32"
        integers = simdnn.matmul(np.ones((2, 3), np.uint8), np.ones((3, 4), np.int8), machine="zen4")
        assert integers.fpmath == "strict"  # a default is a hint for f32 data, and no error elsewhere
    monkeypatch.setenv("DNNL_DEFAULT_FPMATH_MODE", "b16")
    with pytest.raises(simdnn.InvalidArgument, match="DNNL_DEFAULT_FPMATH_MODE"):
        mode()


@pytest.mark.parametrize("machine", ["zen4", "icx"])
def test_a_math_mode_is_a_hint(machine: str) -> None:
    """The fewest cycles among the types that it allows; oneDNN computes in f32 whatever it says."""
    rng = np.random.default_rng(0)
    src, weights = rng.normal(size=(5, 40)).astype(np.float32), rng.normal(size=(40, 9)).astype(np.float32)
    strict = simdnn.matmul(src, weights, machine=machine)
    assert strict.compute_dtype == "f32"
    for fpmath in ("tf32", "bf16", "f16", "any"):
        attr = Attr(fpmath=fpmath)
        found = simdnn.matmul(src, weights, machine=machine, attr=attr)
        library = simdnn.matmul(src, weights, machine=machine, attr=attr, dispatch="onednn")
        assert library.compute_dtype == "f32" and (library.output == strict.output).all()
        if machine == "icx" or fpmath in ("tf32", "f16"):  # nothing narrower is faster there
            assert found.compute_dtype == "f32" and (found.output == strict.output).all()
        else:
            assert found.compute_dtype == "bf16" and found.cycles < strict.cycles
    rows = strict.dispatch.set_index("implementation")["reason"]
    narrow = rows[[name for name in rows.index if name == "gemm:avx512_core_bf16_down"]]
    assert len(narrow) and narrow.str.startswith("fpmath strict computes in f32" if machine == "zen4" else "isa").all()


def test_numpy_takes_a_result_for_its_output() -> None:
    r = simdnn.matmul(np.ones((4, 8), np.float32), np.ones((8, 4), np.float32), machine="zen4")
    assert np.array_equal(np.asarray(r), r.output) and np.asarray(r, np.float64).dtype == np.float64
    assert np.add(r, 1).dtype == np.float32
    with pytest.raises(simdnn.InvalidArgument, match=r"src is a Result; a NumPy array is needed: src\.output"):
        simdnn.matmul(r, np.ones((4, 4), np.float32), machine="zen4")  # type: ignore[arg-type]
    for package, dtype, how in (
        ("torch", "torch.float32", r"\.detach\(\)\.cpu\(\)\.numpy\(\)$"),
        ("torch.nn.parameter", "torch.bfloat16", r".*\.view\(torch\.int16\)\.numpy\(\)\.view\(ml_dtypes\.bfloat16\)$"),
        ("cupy", "float32", r"\.get\(\)$"),
    ):
        tensor = type("Tensor", (), {"__module__": package, "dtype": dtype})()
        with pytest.raises(simdnn.InvalidArgument, match=f"src is a Tensor; a NumPy array is needed: src{how}"):
            simdnn.softmax(tensor, machine="zen4")


def test_what_is_not_there_is_told_with_the_nearest_or_the_way_to_it() -> None:
    r = simdnn.matmul(np.ones((4, 8), np.float32), np.ones((8, 4), np.float32), machine="zen4")
    with pytest.raises(AttributeError) as met:
        r.cycle  # noqa: B018
    assert met.value.name == "cycle" and met.value.obj is r  # what Python's "Did you mean: 'cycles'?" needs
    cost = simdnn.estimate("matmul", m=4, n=4, k=8, machine="zen4")
    for name in ("output", "saturation", "explain", "departures"):
        with pytest.raises(AttributeError, match=f"{name!r}: it is a cost without values"):
            getattr(cost, name)
        assert not hasattr(cost, name)
    with pytest.raises(AttributeError, match="no attribute 'cycle'$"):
        cost.cycle  # noqa: B018
