"""Formulas read over arrays: to the bit what NumPy's own functions give, where an operator has no second one."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import product
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper

import simdnn
from isa_models import InvalidArgument, Unimplemented
from simdnn.kernels.common.values import over_arrays
from simdnn.networks.kernels import Kernels
from simdnn.networks.model import Node
from simdnn.networks.ops import elementwise, registry

Array = np.ndarray[Any, np.dtype[Any]]
SPECIAL = [
    0.0,
    -0.0,
    np.inf,
    -np.inf,
    np.nan,
    5e-324,
    -5e-324,
    1e-310,
    1.7e308,
    -1.7e308,
    1.0,
    -1.0,
    0.5,
    709.8,
    -745.0,
]
KNOWN: dict[str, Callable[..., Any]] = {
    "Abs": np.abs,
    "Neg": np.negative,
    "Relu": lambda x: np.maximum(x, 0),
    "Sqrt": np.sqrt,
    "Reciprocal": np.reciprocal,
    "Exp": np.exp,
    "Log": np.log,
    "Sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "Tanh": np.tanh,
    "Erf": lambda x: np.vectorize(math.erf, otypes=[x.dtype])(x),
    "Softsign": lambda x: x / (1 + np.abs(x)),
    "Add": np.add,
    "Sub": np.subtract,
    "Mul": np.multiply,
    "Div": np.true_divide,
}
FORMULAS = {**elementwise._UNARY, **elementwise._BINARY}


def floats() -> Array:
    rng = np.random.default_rng(0)
    return np.concatenate(
        [SPECIAL, rng.standard_normal(500) * 10.0 ** rng.integers(-300, 300, 500), rng.normal(size=500)]
    )


def test_every_formula_is_read_or_has_a_function_of_its_own() -> None:
    assert FORMULAS.keys() == KNOWN.keys() | elementwise._PLAIN.keys()


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("name", sorted(KNOWN))
def test_read_over_floats(name: str, dtype: Any) -> None:
    with np.errstate(all="ignore"):
        x = floats().astype(dtype)
        operands = (x,) if name in elementwise._UNARY else (x[:, None], x[None, :200])
        found, expected = over_arrays(FORMULAS[name])(*operands), KNOWN[name](*operands)
    assert found.dtype == dtype
    assert found.tobytes() == np.asarray(expected).tobytes()


@pytest.mark.parametrize("dtype", [np.int64, np.int32, np.uint8, np.int8])
@pytest.mark.parametrize("name", ["Abs", "Neg", "Relu", "Add", "Sub", "Mul", "Div"])
def test_read_over_integers(name: str, dtype: Any) -> None:
    info = np.iinfo(dtype)
    x = np.random.default_rng(1).integers(info.min, info.max, 300, dtype, endpoint=True)
    y = x[::-1] + (x[::-1] == 0).astype(dtype)
    operands = (x,) if name in elementwise._UNARY else (x, y)
    expected = KNOWN[name](*operands)
    if name == "Div":  # towards zero
        wide = [[int(a), int(b)] for a, b in zip(x, y, strict=True)]
        expected = np.array([abs(a) // abs(b) * (-1 if (a < 0) != (b < 0) else 1) for a, b in wide]).astype(dtype)
    found = over_arrays(FORMULAS[name])(*operands)
    assert found.dtype == dtype
    np.testing.assert_array_equal(found, expected)


def test_numbers_take_the_arrays_type_where_it_has_them() -> None:
    whole = np.array([2**62 + 1, -3], np.int64)
    assert over_arrays(lambda x: x + 1.0)(whole).tolist() == [2**62 + 2, -2]
    assert over_arrays(lambda x: x * 0.5)(np.array([3])).tolist() == [1.5]
    assert over_arrays(lambda x: 1.0 - x)(np.array([0.25])).tolist() == [0.75]


def test_what_no_array_has_is_refused() -> None:
    with pytest.raises(Unimplemented, match="bits of f32, over float64; a NumPy function"):
        over_arrays(lambda x: x.shift("shl", 1))(np.ones(1))
    with pytest.raises(InvalidArgument, match="divided by zero"):
        over_arrays(lambda a, b: a / b)(np.array([1]), np.array([0]))


def test_an_operator_needs_its_formula_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """HostValues and cost on each kind of machine, and values of f64 and of integers, out of one formula."""
    monkeypatch.setattr(registry, "OPERATORS", dict(registry.OPERATORS))

    @registry.operator("SignedSquare", domain="mine")
    def signed_square(k: Kernels, node: Node, x: Array) -> Array:
        return elementwise.computed(k, "signedsquare", lambda v: v * v.abs(), x)

    for machine, dtype in product(("zen4", "b580", "v100"), ("FLOAT", "FLOAT16", "DOUBLE", "INT64")):
        kind = getattr(TensorProto, dtype)
        ports = [helper.make_tensor_value_info(name, kind, [3, 5]) for name in "xy"]
        node = helper.make_node("SignedSquare", ["x"], ["y"], domain="mine")
        graph = helper.make_graph([node], "g", ports[:1], ports[1:])
        opsets = [helper.make_opsetid("", 20), helper.make_opsetid("mine", 1)]
        x = np.linspace(-7, 7, 15, dtype=helper.tensor_dtype_to_np_dtype(kind)).reshape(3, 5)
        network = simdnn.load(helper.make_model(graph, opset_imports=opsets))
        found = network.run({"x": x}, machine=machine)
        assert found.outputs["y"].dtype == x.dtype
        np.testing.assert_array_equal(found.outputs["y"], (x.astype(np.float64) * abs(x)).astype(x.dtype))
        assert found.cycles > 0


def ran(op: str, *operands: Array, machine: str = "zen4", **attributes: float) -> Array:
    """One operator of ONNX on arrays."""
    names = [f"x{i}" for i in range(len(operands))]
    kinds = [helper.np_dtype_to_tensor_dtype(a.dtype) for a in operands]
    ports = [helper.make_tensor_value_info(n, t, a.shape) for n, t, a in zip(names, kinds, operands, strict=True)]
    out = helper.make_tensor_value_info("y", kinds[0], operands[0].shape)
    graph = helper.make_graph([helper.make_node(op, names, ["y"], **attributes)], "g", ports, [out])
    network = simdnn.load(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)]))
    return network.run(dict(zip(names, operands, strict=True)), machine=machine).outputs["y"]


@pytest.mark.parametrize(("alpha", "beta"), [(0.2, 0.5), (1.0, 0.0), (-3.5, 0.25)])
def test_hard_sigmoid_of_f64_is_numpys(alpha: float, beta: float) -> None:
    x = floats()
    alpha, beta = float(np.float32(alpha)), float(np.float32(beta))
    with np.errstate(all="ignore"):
        expected = np.clip(x * alpha + beta, 0, 1)
    assert ran("HardSigmoid", x, alpha=alpha, beta=beta).tobytes() == expected.tobytes()


@pytest.mark.parametrize("dtype", [np.float64, np.int64, np.uint8])
def test_clips_of_other_types_are_numpys(dtype: Any) -> None:
    x = floats() if dtype == np.float64 else np.arange(-9, 9).astype(dtype)
    low, high = (
        np.array(v, dtype) for v in ((0.0, 2.5) if dtype == np.float64 else (3, 2**62 + 1 if dtype == np.int64 else 7))
    )
    x = np.concatenate([x, [high, high - 1]])
    assert ran("Clip", x, low, high).tobytes() == np.minimum(np.maximum(x, low), high).tobytes()
