"""onnxruntime's operators one by one: its bits as recorded at two ISA caps, and beside the library on this host."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import simdnn
from isa_models.isa import host_caps
from tests.effort import one_in

onnx = pytest.importorskip("onnx")
STORED = np.load(Path(__file__).parents[1] / "vectors" / "onnxruntime" / "operators.npz")
NAMES = sorted({key.split("/")[0] for key in STORED})
PLACES = {"avx2": "hsw", "avx512_core_vnni": "zen4"}


@cache
def model(name: str) -> bytes:
    found: bytes = STORED[f"{name}/model"].tobytes()
    return found


def feeds(name: str) -> dict[str, Any]:
    return {key.split("/")[2]: STORED[key] for key in STORED if key.startswith(f"{name}/feeds/")}


def differing(name: str, isa: str, wanted: dict[str, Any]) -> list[str]:
    """Outputs of a model that are others here."""
    made = simdnn.load(onnx.load_from_string(model(name)))
    found = made.run(feeds(name), machine=PLACES[isa], dispatch="onnxruntime").outputs
    assert set(found) == set(wanted)
    return [
        key
        for key, value in found.items()
        if (value.dtype, value.shape, value.tobytes()) != (wanted[key].dtype, wanted[key].shape, wanted[key].tobytes())
    ]


def recorded(name: str, isa: str) -> dict[str, Any]:
    return {key.split("/")[2]: STORED[key] for key in STORED if key.startswith(f"{name}/{isa}/")}


@one_in(2, "family")
@pytest.mark.parametrize("isa", PLACES)
@pytest.mark.parametrize("family", sorted({name.split("_")[0] for name in NAMES}))
def test_recorded_operators_have_its_bits(family: str, isa: str) -> None:
    """Half of a family at each cap, so that all run."""
    mine = [name for name in NAMES if name.split("_")[0] == family][list(PLACES).index(isa) :: 2]
    assert not {name: found for name in mine if (found := differing(name, isa, recorded(name, isa)))}


@pytest.mark.sweep
@pytest.mark.parametrize("isa", PLACES)
def test_all_recorded_operators(isa: str) -> None:
    assert not [name for name in NAMES if differing(name, isa, recorded(name, isa))]


@pytest.mark.skipif("avx512_core_vnni" not in host_caps(), reason="the library would take kernels of another CPU")
def test_the_library_itself_gives_what_was_recorded() -> None:
    """A session a family: the file tells what is installed here, too."""
    runtime = pytest.importorskip("onnxruntime")
    options = runtime.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = 1, 4
    for name in NAMES[::4]:
        session = runtime.InferenceSession(model(name), options, providers=["CPUExecutionProvider"])
        found = dict(zip([port.name for port in session.get_outputs()], session.run(None, feeds(name)), strict=True))
        assert not differing(name, "avx512_core_vnni", found), name


@pytest.mark.parametrize(("bits", "level", "more"), [(2, 4, ()), (4, 0, ("z", "g")), (8, 0, ("g",))])
def test_blocks_whose_order_is_not_known_are_refused_by_name(bits: int, level: int, more: tuple[str, ...]) -> None:
    """Another rule takes them, and gives what the codes stand for."""
    rng = np.random.default_rng(bits)
    held = {"b": rng.integers(0, 256, (3, 2, 4 * bits)).astype(np.uint8), "s": np.full((3, 2), 0.5, np.float32)}
    held |= {"z": np.zeros((3, bits // 4 or 1), np.uint8), "g": (np.arange(64) % 2).astype(np.int32)}
    names = ["a", "b", "s", *(key if key in more else "" for key in "zg")]
    where = {"K": 64, "N": 3, "bits": bits, "block_size": 32, "accuracy_level": level}
    layer = onnx.helper.make_node("MatMulNBits", names, ["y"], domain="com.microsoft", **where)
    port = onnx.helper.make_tensor_value_info("a", onnx.TensorProto.FLOAT, (2, 64))
    tensors = [onnx.numpy_helper.from_array(value, key) for key, value in held.items() if key in names]
    graph = onnx.helper.make_graph([layer], "g", [port], [onnx.ValueInfoProto(name="y")], tensors)
    opsets = [onnx.helper.make_opsetid("", 17), onnx.helper.make_opsetid("com.microsoft", 1)]
    made, a = simdnn.load(onnx.helper.make_model(graph, opset_imports=opsets)), np.ones((2, 64), np.float32)
    with pytest.raises(simdnn.Unimplemented, match=f"{bits} bits, accuracy_level={level}"):
        made.run({"a": a}, machine="zen4", dispatch="onnxruntime")
    codes = np.stack([held["b"] >> shift & (1 << bits) - 1 for shift in range(0, 8, bits)], -1).reshape(3, 64)
    zero = 0 if "z" in more else 1 << (bits - 1)
    np.testing.assert_array_equal(
        made.run({"a": a}, machine="zen4").outputs["y"], [(0.5 * (codes.astype(np.float32) - zero)).sum(1)] * 2
    )
