"""simdnn.invariance: one order is equal bits whatever the input; what is said to differ does, when it is run."""

from __future__ import annotations

import itertools
import json
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import simdnn
from isa_models.readings.arrays import Array, ArrayValue
from isa_models.readings.orders import OrderValue
from simdnn.cli import main
from simdnn.kernels.common.epilogue import Parameters
from simdnn.numerics.reference import Interpreter
from simdnn.numerics.sampled import sample
from simdnn.program.records import Op
from tests.effort import examples, one_in
from tests.streams import error_line

TYPES = {"f32": np.float32, "f16": np.float16, "u8": np.uint8, "s8": np.int8}
#: cases of one sum: what changes, and the rest
CASES: dict[str, tuple[dict[str, list[Any]], dict[str, Any]]] = {
    "f32": ({"machine": ["hsw", "spr", "v100", "b580"], "m": [1, 3, 17]}, {"k": 37}),
    "f32 layouts": ({"wei_tag": ["any", "ab", "ba"], "m": [1, 9]}, {"k": 70, "machine": "zen4"}),
    "f32 libraries": ({"dispatch": ["fastest", "onednn"], "m": [1, 9]}, {"k": 130, "machine": "icx"}),
    "f16": ({"machine": ["zen4", "b580", "v100"], "m": [1, 9]}, {"k": 50, "dt": "f16:f16:f16"}),
    "integers": ({"isa": ["avx2", "avx512_core_vnni"], "m": [1, 9]}, {"k": 50, "dt": "u8:s8:s32", "machine": "spr"}),
}


def hard(rng: np.random.Generator, shape: tuple[int, ...], dtype: str) -> Array:
    """Numbers of all sizes whose sums cancel out."""
    if dtype in ("u8", "s8"):
        span = np.iinfo(TYPES[dtype])
        return rng.integers(span.min, span.max + 1, shape).astype(TYPES[dtype])
    found = rng.normal(size=shape) * 2.0 ** rng.integers(-8, 9, shape)
    return np.where(rng.random(shape) < 0.1, 0 * found, found).astype(TYPES[dtype])


def outputs(row: Mapping[str, Any], problem: Mapping[str, Any], src: Array, weights: Array) -> Array:
    """The first row's and the last row's bits, by the primitive, of a source that is `src` in all rows."""
    given = {key: value for key, value in {**problem, **row}.items() if key not in ("m", "n", "k", "dt")}
    dst = str(problem.get("dt", "f32")).split(":")[-1]
    rows = np.repeat(src[None], row.get("m", 3), axis=0)
    output = simdnn.matmul(rows, weights, dst=dst, engine="reference", **given).output
    return np.ascontiguousarray(output[[0, -1]])


@one_in(2)
@pytest.mark.parametrize("case", CASES)
def test_one_order_has_equal_bits_and_two_have_a_witness(case: str) -> None:
    over, problem = CASES[case]
    frame = simdnn.invariance("matmul", over=over, n=5, **problem)
    rng = np.random.default_rng(7)
    types = [*str(problem.get("dt", "f32")).split(":"), "f32"][:2]
    for _ in range(2):
        src, weights = hard(rng, (problem["k"],), types[0]), hard(rng, (problem["k"], 5), types[1])
        met: dict[int, bytes] = {}
        for row in frame.to_dict("records"):
            bits = outputs({axis: row[axis] for axis in over}, problem, src, weights)
            assert (bits[0].tobytes() == bits[1].tobytes()) or row["orders"] > 1
            assert met.setdefault(row["order"], bits.tobytes()) == bits.tobytes(), row
    for pair, witness in frame.attrs["witnesses"].items():
        assert witness is not None, pair
        one, other = witness.run("reference")
        assert [v.tobytes() for v in (one, other)] == [v.tobytes() for v in witness.values]
        assert one.tobytes() != other.tobytes()  # zeros of either sign are equal, and have other bits
    if case == "f32":
        assert frame["order"].nunique() > 1


@given(st.integers(0, 2**32 - 1), st.integers(1, 9), st.sampled_from(["f32", "f16"]), st.data())
@examples(10)
def test_orders_of_random_problems(seed: int, n: int, dt: str, data: st.DataObject) -> None:
    """Kernels of one order agree on inputs that were not drawn to find it."""
    k, machine = data.draw(st.integers(1, 40)), data.draw(st.sampled_from(["zen4", "spr", "b580"]))
    problem = {"k": k, "dt": f"{dt}:{dt}:f32", "machine": machine}
    frame = simdnn.invariance("matmul", over={"m": [1, 4, 7]}, n=n, **problem)
    rng = np.random.default_rng(seed)
    src, weights = hard(rng, (k,), dt), hard(rng, (k, n), dt)
    met: dict[int, bytes] = {}
    for row in frame.to_dict("records"):
        bits = outputs({"m": row["m"]}, problem, src, weights).tobytes()
        assert met.setdefault(row["order"], bits) == bits


def orders(over: Mapping[str, Any], **problem: Any) -> list[int]:
    found: list[int] = simdnn.invariance("matmul", over=over, **problem)["order"].tolist()
    return found


def test_registers_of_any_width_add_up_alike_until_k_is_cut() -> None:
    """f32 with AVX2 and AVX-512: one chain a sum; a longer K is cut where the library does, and those differ."""
    names = {"isa": ["avx2", "avx512_core"]}
    assert orders(names, m=4, n=16, k=64, machine="spr") == [1, 1]
    assert orders(names, m=4, n=16, k=800, machine="spr") == [1, 2]


def test_one_row_alone_is_added_up_in_lanes() -> None:
    assert orders({"m": [1, 6, 64]}, n=16, k=64, machine="zen4") == [1, 2, 2]


def test_bf16_pairs_and_tiles_differ() -> None:
    names = ["gemm:avx512_core_bf16", "gemm:avx512_core_amx"]
    assert orders({"dispatch": names}, m=4, n=16, k=64, machine="spr", dt="bf16:bf16:f32") == [1, 2]


def test_products_that_underflow_tell_an_fma_from_a_product_and_a_sum() -> None:
    """Products of bf16 are exact in f32, so that both are one, but where products are denormals."""
    problem: dict[str, Any] = {"m": 5, "n": 8, "k": 16, "dt": "bf16:bf16:f32"}
    frame = simdnn.invariance("matmul", over={"machine": ["b580", "clx"]}, **problem)
    assert frame["order"].tolist() == [1, 2]
    one, other = frame.attrs["witnesses"][1, 2].run("reference")
    assert one.tobytes() != other.tobytes() and abs(one) < 2.0**-120
    assert orders({"machine": ["b580", "zen4"]}, **(problem | {"dt": "f16:f16:f32"})) == [1, 1]


def test_exact_integers_have_one_order_everywhere() -> None:
    machines = {"machine": ["clx", "spr", "zen5", "b580"], "m": [1, 20]}
    exact = simdnn.Attr(exact_int8=True)
    assert set(orders(machines, n=16, k=64, dt="u8:s8:s32", attr=exact)) == {1}
    assert set(orders({"m": [1, 20]}, n=16, k=64, dt="s8:s8:s32", attr=exact, machine="skx")) == {1}


def test_saturation_is_shown() -> None:
    frame = simdnn.invariance("matmul", over={"machine": ["skx", "clx"]}, m=4, n=8, k=64, dt="u8:s8:s32")
    assert frame["order"].tolist() == [1, 2]
    assert len(set(frame.attrs["witnesses"][1, 2].run("reference"))) == 2


def test_weights_in_blocks_have_an_order_too() -> None:
    """ggml's dot products have one on every machine, whatever the batch; interleaved by eight rows another one."""
    where = {"machine": ["hsw", "zen4", "spr"], "m": [1, 9], "dispatch": ["ggml", "ggml-repack"]}
    problem: dict[str, Any] = {"n": 16, "k": 128, "dt": "f32:q4_0:f32"}
    frame = simdnn.invariance("matmul", over=where, **problem)
    known = {rule: set(frame[frame["dispatch"] == rule]["order"]) for rule in where["dispatch"]}
    assert known["ggml"] == {1} and 1 not in known["ggml-repack"] and set(frame["orders"]) == {1}
    for (one, other), witness in frame.attrs["witnesses"].items():
        assert one == 1 and witness.run()[0] != witness.run()[1] and witness.run() == witness.values, other
    rng = np.random.default_rng(3)
    src, weights = hard(rng, (128,), "f32"), simdnn.quantize_ggml(hard(rng, (128, 16), "f32"), "q4_0", axis=0)
    for _, rows in frame.groupby("order"):
        bits = set()
        for row in rows.to_dict("records"):
            given = {"machine": row["machine"], "dispatch": row["dispatch"]}
            bits.add(simdnn.matmul(np.repeat(src[None], row["m"], axis=0), weights, **given).output[-1].tobytes())
        assert len(bits) == 1
    with pytest.raises(simdnn.Unimplemented, match="become blocks of q4_K here; what works: q4_0"):
        simdnn.invariance("matmul", over={"m": [1]}, n=4, k=256, dt="f32:q4_K:f32", machine="zen4")


def test_threads_cut_no_sum() -> None:
    assert orders({"threads": [1, 2, 8]}, m=1, n=16, k=300, machine="icx") == [1, 1, 1]


def test_convolution() -> None:
    sizes = {"ic": 4, "kh": 3, "kw": 3, "padding": 1, "iw": 4}
    over = {"isa": ["avx2", "avx512_core"], "mb": [1, 2]}
    frame = simdnn.invariance("convolution", over=over, oc=9, ih=3, machine="spr", **sizes)
    assert set(frame["orders"]) == {1} and set(frame["order"]) == {1}
    gpus = {"machine": ["v100", "zen4"]}
    frame = simdnn.invariance("convolution", over=gpus, oc=9, ih=3, dt="f16:f16:f32", **sizes)
    assert frame["order"].tolist() == [1, 2]
    assert len(set(frame.attrs["witnesses"][1, 2].run("reference"))) == 2


def test_parameters_count_with_their_first_row_and_column() -> None:
    scales = {"wei": np.linspace(0.1, 1, 2 * 20, dtype=np.float32).reshape(2, 20)}
    attr = simdnn.Attr(scales=scales, exact_int8=True)
    frame = simdnn.invariance("matmul", over={"m": [1, 30]}, n=20, k=64, dt="u8:s8:f32", attr=attr, machine="spr")
    assert frame["orders"].tolist() == [1, 1]


def test_a_sample_has_the_bits_of_a_whole_run() -> None:
    rng = np.random.default_rng(3)
    for machine, m, n in (("spr", 40, 70), ("zen4", 30, 20), ("b580", 40, 70), ("v100", 40, 70)):
        r = simdnn.matmul(hard(rng, (m, 19), "f16"), hard(rng, (19, n), "f16"), machine=machine, engine="reference")
        src, weights = hard(rng, (m, 19), "f16"), hard(rng, (19, n), "f16")
        again = simdnn.matmul(src, weights, machine=machine, engine="reference", dispatch=r.implementation)
        inputs = again.kernel.prepare(src, weights, Parameters())
        found, computed = sample(again.kernel.program, inputs)
        whole, _ = sample(again.kernel.program, inputs, middle=True)
        values = again.kernel.finish(found)
        marks = again.kernel.finish({name: one.astype(found[name].dtype) for name, one in computed.items()}) != 0
        assert marks.any() and (values[marks] == again.output[marks]).all() and whole.keys() == found.keys()


def test_rows_that_are_alike_are_computed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each row of a tile has its instructions, whose operands are those of the row before; numbers that differ are
    computed anew.
    """
    found = simdnn.estimate("matmul", m=8, n=16, k=24, machine="icx")
    rng = np.random.default_rng(0)
    row, weights = rng.normal(size=(1, 24)).astype(np.float32), rng.normal(size=(24, 16)).astype(np.float32)
    counts, own = [], Interpreter.applied
    ran: list[str] = []

    def noted(self: Interpreter, op: Op, values: Any) -> ArrayValue:
        ran.append(op.definition.name)
        return own(self, op, values)

    monkeypatch.setattr(Interpreter, "applied", noted)
    for src in (np.repeat(row, 8, axis=0), rng.normal(size=(8, 24)).astype(np.float32)):
        ran.clear()
        outputs, computed = sample(found.kernel.program, found.kernel.prepare(src, weights, Parameters()))
        counts.append(sum("fmadd" in name for name in ran))
        wanted = simdnn.matmul(src, weights, machine="icx", dispatch=found.implementation).output
        marked = found.kernel.finish({k: v.astype(outputs[k].dtype) for k, v in computed.items()}) != 0
        assert marked.any() and (found.kernel.finish(outputs)[marked] == wanted[marked]).all()
    assert counts[0] * 4 <= counts[1]


def test_random_functions_know_what_is_equal() -> None:
    """The reading has equal what IEEE 754 has equal for all numbers, and nothing else."""
    rng = np.random.default_rng(0)
    a, b, c = (OrderValue(rng.normal(size=64).astype(np.float32), "f32") for _ in range(3))

    def same(x: ArrayValue, y: ArrayValue) -> float:
        return float((x.array == y.array).mean())

    one, zero, two = (a.literal(x) for x in (1, 0, 2))
    assert same(a + b, b + a) == same(a * b, b * a) == same(a.fma(b, c), b.fma(a, c)) == 1
    assert same(a + zero, a) == same(a * one, a) == same(a.fma(b, zero), a * b) == same(a.fma(one, c), a + c) == 1
    assert same(a.fma(two, c), (a * two) + c) == same(a - b, a + b * -1) == 1
    assert same((a + b) + c, a + (b + c)) == same(a.fma(b, c), a * b + c) == same((a * b) * c, a * (b * c)) == 0
    for x, y in itertools.combinations([a + b, a * b, a - b, a / b, b / a, a.sqrt(), a.fma(b, c)], 2):
        assert same(x, y) == 0


def test_refusals_name_what_works() -> None:
    problem: dict[str, Any] = {"n": 8, "k": 8, "machine": "spr"}
    with pytest.raises(simdnn.InvalidArgument, match="'k'.*m, n, threads"):
        simdnn.invariance("matmul", over={"k": [1, 2]}, m=1, n=8, machine="spr")
    with pytest.raises(simdnn.InvalidArgument, match="a list"):
        simdnn.invariance("matmul", over={"m": 3}, **problem)
    with pytest.raises(simdnn.InvalidArgument, match="one of the two"):
        simdnn.invariance("matmul", over={"m": [3]}, m=4, **problem)
    with pytest.raises(simdnn.UnknownName, match="avx512_core"):
        simdnn.invariance("matmul", over={"isa": ["avx2", "avx512"]}, m=4, **problem)
    frame = simdnn.invariance(
        "matmul", over={"dispatch": ["onednn", "fastest"], "machine": ["b580", "zen4"]}, m=1, n=8, k=8
    )
    assert frame["order"].isna().tolist() == [True, False, False, False] and "onednn" in frame["refused"].iloc[0]


def test_command(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["matmul", "m=1,6", "n=16", "k=64", "machine=zen4"]
    assert main(["invariance", *words]) == 0
    text = capsys.readouterr().out
    assert "orders 1 and 2 differ" in text and "gemv:avx2" in text
    assert main(["invariance", *words, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [row["order"] for row in found["configurations"]] == [1, 2]
    assert len(set(found["witnesses"][0]["values"])) == 2
    for wrong, said in ((["m=1"], "axis"), (["m"], "KEY=VALUE"), (["m=1,2", "m=3"], "twice")):
        assert main(["invariance", "matmul", *wrong]) == 2
        assert said in error_line(capsys)
