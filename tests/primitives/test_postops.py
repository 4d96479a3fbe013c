"""Post-operations in order: values against plain NumPy, both engines, what is refused, and that they cost something."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import simdnn
from isa_models.formats import fmt
from isa_models.readings.arrays import Array
from simdnn import Attr, InvalidArgument, Quant, Unimplemented
from simdnn.program.records import Register
from tests.draws import whole
from tests.effort import examples, one_in

DTYPES = {
    "f32": np.float32,
    "s32": np.int32,
    "bf16": ml_dtypes.bfloat16,
    "f16": np.float16,
    "s8": np.int8,
    "u8": np.uint8,
}


def small(rng: np.random.Generator, shape: tuple[int, ...], dtype: Any) -> Array:
    return rng.integers(0 if dtype == np.uint8 else -3, 4, shape).astype(np.int8).astype(dtype)


def expected(sums: Array, ops: list[Any], into: Array | None, dst: str) -> Array:
    """Integers all along, so every rounding is exact but the last."""
    value = sums.astype(np.float64)
    for op in ops:
        if op == "relu":
            value = np.maximum(value, 0)
        elif op == "sum" or op[0] == "sum":
            assert into is not None
            value = value + (1.0 if op == "sum" else op[1]) * into.astype(np.float64)
        else:
            added = np.asarray(op[1], np.float64)
            value = value + (added[:, None, None] if added.ndim == 1 and added.size > 1 and value.ndim == 4 else added)
    low, high = {"s8": (-128, 127), "u8": (0, 255)}.get(dst, (-(2**31), 2**31))
    return np.clip(value, low, high).astype(np.float32).astype(DTYPES[dst])


def operations(rng: np.random.Generator, channels: int, shape: tuple[int, ...]) -> list[Any]:
    found: list[Any] = []
    for kind in rng.permutation(["relu", "sum", "scaled", "common", "per_oc", "full"])[: rng.integers(1, 4)]:
        sizes: dict[str, tuple[int, ...]] = {"common": (1,), "per_oc": (channels,), "full": shape}
        found.append(
            "relu"
            if kind == "relu"
            else "sum"
            if kind == "sum"
            else ("sum", 2.0)
            if kind == "scaled"
            else ("add", small(rng, sizes[kind], np.float32))
        )
    return found


@examples(40)
@given(seed=st.integers(0, 2**32 - 1))
def test_values(seed: int) -> None:
    rng = np.random.default_rng(seed)
    src, wei = [("f32", "f32"), ("u8", "s8"), ("s8", "s8"), ("bf16", "bf16")][rng.integers(4)]
    dst = str(rng.choice(["f32", "bf16", "s8", "u8"] + (["s32"] if wei == "s8" else ["f16"])))
    machine, isa = [("zen4", "avx2"), ("zen4", "avx512_core"), ("zen4", "avx512_core_vnni"), ("a770", None)][seed % 4]
    isa = None if src == "bf16" else isa
    engine = str(rng.choice(["reference", "auto"]))
    where: dict[str, Any] = {"machine": machine, "isa": isa, "dst": dst, "engine": engine}
    k = int(rng.integers(1, 9))
    if machine != "zen4" or rng.random() < 0.5:
        m, n = int(rng.integers(1, 9)), int(rng.integers(1, 40))
        a, b = small(rng, (m, k), DTYPES[src]), small(rng, (k, n), DTYPES[wei])
        sums, channels = a.astype(np.float64) @ b.astype(np.float64), n
    else:
        groups = int(rng.choice([1, 1, 3]))
        a, b = small(rng, (2, groups * k, 3, 3), DTYPES[src]), small(rng, (groups * 5, k, 1, 1), DTYPES[wei])
        parts = a.astype(np.float64).reshape(2, groups, k, 9), b.astype(np.float64).reshape(groups, 5, k)
        sums, channels = np.einsum("ngkp,gok->ngop", *parts).reshape(2, groups * 5, 3, 3), groups * 5
    ops = operations(rng, channels, sums.shape)
    summed = any(op == "sum" or op[0] == "sum" for op in ops)
    into = small(rng, sums.shape, DTYPES[dst]) if summed else None
    attr = Attr(post_ops=ops, exact_int8=True)
    if a.ndim == 2:
        result = simdnn.matmul(a, b, attr=attr, into=into, **where)
    else:
        result = simdnn.convolution(a, b, groups=a.shape[1] // k, attr=attr, into=into, **where)
    assert (result.output == expected(sums, ops, into, dst)).all()


@pytest.mark.parametrize("machine", ["zen4", "a770", "b580"])
@pytest.mark.parametrize("dst", ["f32", "f16", "bf16", "s8", "u8", "s32"])
def test_every_destination(machine: str, dst: str) -> None:
    rng = np.random.default_rng(6)
    a, b = whole("u8", (9, 32), rng), whole("s8", (32, 20), rng)
    before = rng.integers(0, 100, (9, 20)).astype(fmt(dst).dtype)
    column, full = rng.integers(-9, 9, 20).astype("f4"), rng.integers(-9, 9, (9, 20)).astype("f4")
    attr = Attr(scales={"src": 2.0**-8}, post_ops=[("sum", 0.5), ("add", column), "relu", ("add", full), ("add", 3.0)])
    sums = (a.astype(int) @ b.astype(int)).astype("f4") * np.float32(2.0**-8) + before.astype("f4") * np.float32(0.5)
    right = np.maximum(sums + column, 0) + full + np.float32(3)
    if not fmt(dst).is_float:
        right = np.clip(np.rint(right), fmt(dst).low, fmt(dst).high)
    r = simdnn.matmul(a, b, machine=machine, dst=dst, attr=attr, into=before, engine="reference")
    assert r.output.dtype == before.dtype and (r.output == right.astype(before.dtype)).all()
    assert r.cycles == simdnn.estimate("matmul", m=9, n=20, k=32, dt=f"u8:s8:{dst}", machine=machine, attr=attr).cycles


@pytest.mark.parametrize("machine", ["zen4", "a770", "b580"])
def test_relu_of_integers(machine: str) -> None:
    a = np.full((1, 32), 127, np.int8)
    for sign in (1, -1):
        r = simdnn.matmul(a, sign * a.T.copy(), machine=machine, attr=Attr(post_ops=["relu"]), engine="reference")
        assert r.output.dtype == np.int32 and r.output[0, 0] == max(0, sign * 32 * 127**2)


def test_threads_with_several_blocks_of_columns() -> None:
    """Small problems give a GPU's thread one block: each block takes its own part of bias, scales and additions."""
    rng = np.random.default_rng(7)
    a, b = whole("u8", (256, 32), rng), whole("s8", (32, 512), rng)
    bias, column = (rng.integers(-999, 999, 512).astype("f4") for _ in range(2))
    full, before = (rng.integers(-999, 999, (256, 512)).astype("f4") for _ in range(2))
    scale = 2.0 ** rng.integers(-3, 3, 512).astype("f4")
    attr = Attr(scales={"wei": scale}, post_ops=[("add", column), ("add", full), ("sum", 2.0), "relu"])
    r = simdnn.matmul(a, b, bias, machine="a770", attr=attr, into=before)
    right = (a.astype(int) @ b.astype(int)) * scale + bias + column + full + 2 * before
    assert (r.output == np.maximum(right, 0)).all()
    assert "c_0_1" in {op.dst.name for op, _ in r.kernel.program.ops() if isinstance(op.dst, Register)}


@pytest.mark.parametrize(("machine", "addition"), [("zen4", "vaddps"), ("b580", "add.f32")])
def test_they_cost_instructions_and_bytes(machine: str, addition: str) -> None:
    bare = simdnn.estimate("matmul", m=64, n=256, k=16, dt="f32", machine=machine)
    ops = [("sum", 0.5), ("add", Quant(None, mask="per_oc"))]
    whole = simdnn.estimate("matmul", m=64, n=256, k=16, dt="f32", machine=machine, attr=Attr(post_ops=ops))
    names = set(whole.instructions["instruction"]) - set(bare.instructions["instruction"])
    assert any(name.startswith(addition) for name in names) and whole.cycles > bare.cycles
    assert sum(whole.traffic["read_bytes"]) > sum(bare.traffic["read_bytes"])


@pytest.mark.parametrize(
    ("ops", "into", "error"),
    [
        ([("sum", 1.0)], None, "into is missing"),
        (["relu"], np.zeros((2, 3), np.float32), "into is given"),
        (["sum"], np.zeros((3, 2), np.float32), "into of shape"),
        (["sum"], np.zeros((2, 3), np.int8), "into of s8"),
        ([("add", np.zeros(4, np.float32))], None, "4 values"),
        ([("add", np.zeros((3, 3), np.float32))], None, "of shape"),
        ([("add", None)], None, "None"),
        ([("sum", "x")], None, "a number is needed"),
        ([("sum", float("nan"))], None, "finite"),
        ([("sum", 1.0, 2, "s8", 3)], None, "allowed"),
        (["add"], None, "second operands"),
        (["clip"], None, "takes 2 numbers"),
        ([("relu", 0.1, 0.2)], None, "takes 1 numbers"),
        ([7], None, "post-operation"),
        ([()], None, "post-operation"),
    ],
)
@pytest.mark.parametrize("machine", ["zen4", "b580"])
def test_what_does_not_fit_is_refused(machine: str, ops: list[Any], into: Array | None, error: str) -> None:
    a, b = np.ones((2, 4), np.float32), np.ones((4, 3), np.float32)
    with pytest.raises(InvalidArgument, match=error):
        simdnn.matmul(a, b, machine=machine, attr=Attr(post_ops=ops), into=into)


@pytest.mark.parametrize("machine", ["hsw", "zen4"])
def test_a_choice_keeps_outputs_where_the_condition_says_so(machine: str) -> None:
    rng = np.random.default_rng(8)
    a, b = rng.integers(-9, 9, (3, 8)).astype(np.int8), rng.integers(-9, 9, (8, 5)).astype(np.int8)
    for other, condition in ((np.float32(-0.0), (3, 5)), (rng.standard_normal((3, 5)), (1, 5)), (np.ones(5), 5)):
        asked = rng.integers(0, 2, condition).astype(np.int8)
        found = simdnn.matmul(a, b, machine=machine, dst="f32", attr=Attr(post_ops=[("select", other, asked)])).output
        wanted = np.where(asked != 0, (a.astype(int) @ b).astype(np.float32), np.float32(other))
        assert found.tobytes() == wanted.tobytes()
    image, weights = a.astype(np.float32).reshape(1, 3, 2, 4), np.ones((2, 3, 1, 1), np.float32)
    keep = np.arange(16).reshape(1, 2, 2, 4) % 3
    sums = simdnn.convolution(image, weights, machine=machine).output
    attr = Attr(post_ops=["relu", ("select", np.full((1, 2, 1, 1), 7.0), keep)])
    found = simdnn.convolution(image, weights, machine=machine, attr=attr).output
    np.testing.assert_array_equal(found, np.where(keep, np.maximum(sums, 0), 7))
    with pytest.raises(Unimplemented, match="oneDNN reads conditions"):
        simdnn.convolution(image, weights, machine=machine, attr=attr, dispatch="onednn")
    with pytest.raises(InvalidArgument, match="as many dimensions"):
        Attr(post_ops=[("select", np.ones(5), np.ones((3, 5)))])


def test_what_is_not_known_of_the_library_is_not_promised() -> None:
    for ops in (["select"], ["dw"]):
        with pytest.raises(Unimplemented):
            Attr(post_ops=ops)


def plain(x: Array, op: Any) -> Array:
    """One post-operation in f32, as its definition has it."""
    name, *v = (op,) if isinstance(op, str) else op
    one = np.float32(1)
    formulas: dict[str, Any] = {
        "relu": lambda: np.where(x > 0, x, x * np.float32(v[0] if v else 0)),
        "prelu": lambda: np.where(x > 0, x, x * v[0]),
        "abs": lambda: abs(x),
        "square": lambda: x * x,
        "sqrt": lambda: np.sqrt(x),
        "linear": lambda: x * np.float32(v[0]) + np.float32(v[1]),
        "clip": lambda: np.clip(x, v[0], v[1]),
        "hardsigmoid": lambda: np.clip(x * np.float32(v[0]) + np.float32(v[1]), 0, one),
        "hardswish": lambda: x * np.clip(x * np.float32(v[0]) + np.float32(v[1]), 0, one),
        **{name: lambda f=f: f(x, v[0]) for name, f in ARITHMETIC.items()},
    }
    return np.asarray(formulas[name]().astype(np.float32))


ARITHMETIC = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "div": np.divide,
    "max": np.maximum,
    "min": np.minimum,
}
LONE = [
    ("relu", 0.25),
    "abs",
    "square",
    ("linear", 2, 1.5),
    ("clip", -2, 5),
    ("hardsigmoid", 0.25, 0.5),
    ("hardswish", 0.5, 1),
]


@one_in(4, "name")
@pytest.mark.parametrize("machine", ["hsw", "skx", "spr"])
@pytest.mark.parametrize("shape", [(1,), (19,), (1, 19), (5, 19), (5, 1)])
@pytest.mark.parametrize("name", [*ARITHMETIC, "prelu"])
def test_second_operands_broadcast(machine: str, shape: tuple[int, ...], name: str) -> None:
    """Numbers in halves, which f32 holds exactly, in a chain that begins with each of the others."""
    rng = np.random.default_rng(len(shape))
    a, b = small(rng, (5, 7), np.float32), small(rng, (7, 19), np.float32)
    second = (rng.integers(1, 5, shape) * np.float32(0.5)).astype(np.float32)
    first = LONE[len(name) % len(LONE)]
    attr = Attr(post_ops=[first, (name, second)])
    expected = plain(plain(a @ b, first), (name, second))
    for engine in ("compiled", "reference"):
        found = simdnn.matmul(a, b, machine=machine, attr=attr, engine=engine).output
        np.testing.assert_array_equal(found, expected)


@one_in(2, "machine")
@pytest.mark.parametrize("machine", ["hsw", "zen4"])
@pytest.mark.parametrize("op", LONE, ids=str)
def test_each_of_one_operand(machine: str, op: Any) -> None:
    rng = np.random.default_rng(3)
    src, wei = small(rng, (1, 3, 6, 5), np.uint8), small(rng, (17, 3, 3, 3), np.int8)
    sums = simdnn.convolution(src, wei, machine=machine, dst="f32").output
    given: dict[str, Any] = {"machine": machine, "dst": "f32", "attr": Attr(post_ops=[op])}
    for dispatch in ("fastest", "onednn"):
        np.testing.assert_array_equal(simdnn.convolution(src, wei, dispatch=dispatch, **given).output, plain(sums, op))


def test_what_the_destination_held_has_a_zero_point_and_a_type() -> None:
    a, b = np.full((3, 4), 2, np.uint8), np.ones((4, 5), np.int8)
    held = np.arange(15, dtype=np.uint8).reshape(3, 5)
    attr = Attr(post_ops=["relu", ("sum", 0.5, 3, "u8")])
    r = simdnn.matmul(a, b, machine="zen4", dst="f32", attr=attr, into=held)
    np.testing.assert_array_equal(r.output, 8 + (held.astype(np.float32) - 3) / 2)
    with pytest.raises(InvalidArgument, match="into of s8"):
        simdnn.matmul(a, b, machine="zen4", dst="f32", attr=attr, into=held.astype(np.int8))


@pytest.mark.parametrize("dtype", ["bf16", "f16", "s32", "s8", "u8"])
def test_a_bias_of_every_type(dtype: str) -> None:
    a, b = np.ones((2, 4), np.uint8), np.ones((4, 3), np.int8)
    bias = np.array([1, 2, 100]).astype(DTYPES[dtype])
    for dispatch in ("fastest", "onednn"):
        r = simdnn.matmul(a, b, bias, machine="zen4", dst="f32", dispatch=dispatch)
        assert r.output.tolist() == [[5, 6, 104]] * 2
    with pytest.raises(InvalidArgument, match="bias of float64"):
        simdnn.matmul(a, b, bias.astype(np.float64), machine="zen4")
