"""onnxruntime's bits: recorded models at four ISA caps, the library on this host, and what is refused by name."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import simdnn
from isa_models.isa import host_caps
from simdnn import Attr, Unimplemented, libraries
from tests.effort import one_in

onnx = pytest.importorskip("onnx")
FILE = Path(__file__).parents[1] / "vectors" / "onnxruntime" / "models.npz"
STORED = np.load(FILE)
FLOATS = np.load(FILE.parent / "floats.npz")
NAMES = sorted({key.split("/")[0] for key in STORED})
#: where each cap is: CPUs with and without VNNI
PLACES = {"avx2": "hsw", "avx512_core": "skx", "avx2_vnni": "adl-p", "avx512_core_vnni": "icx"}


def model(name: str) -> Any:
    return onnx.load_from_string(STORED[f"{name}/model"].tobytes())


def feeds(name: str) -> dict[str, Any]:
    return {key.split("/")[2]: STORED[key] for key in STORED if key.startswith(f"{name}/feeds/")}


@cache
def network(name: str) -> simdnn.Network:
    return simdnn.load(model(name))


@one_in(4)
@pytest.mark.parametrize("family", sorted({name.split("_")[0] for name in NAMES}))
def test_recorded_models_have_its_bits_with_and_without_vnni(family: str) -> None:
    """Every second model of a family at each cap, so that all run under a cap with VNNI and under one without."""
    wrong = []
    for number, name in enumerate(name for name in NAMES if name.split("_")[0] == family):
        for isa in ("avx2", "avx512_core_vnni") if number % 2 else ("avx512_core", "avx2_vnni"):
            r = network(name).run(feeds(name), machine=PLACES[isa], isa=isa, dispatch="onnxruntime")
            found = next(iter(r.outputs.values()))
            expected = STORED[f"{name}/{isa}"]
            if (found.dtype, found.tobytes()) != (expected.dtype, expected.tobytes()):
                wrong.append((name, isa))
    assert not wrong


@pytest.mark.sweep
@pytest.mark.parametrize("isa", PLACES)
def test_all_recorded_models(isa: str) -> None:
    for name in NAMES:
        r = network(name).run(feeds(name), machine=PLACES[isa], isa=isa, dispatch="onnxruntime")
        assert next(iter(r.outputs.values())).tobytes() == STORED[f"{name}/{isa}"].tobytes(), name


def test_the_recorded_models_tell_cpus_apart() -> None:
    """Else the comparison above would hold for any kernel."""
    integers = [name for name in NAMES if "_f32_" not in name]  # floats: by the width of registers alone
    differ = {name for name in integers if (STORED[f"{name}/avx2"] != STORED[f"{name}/avx512_core_vnni"]).any()}
    assert {name.split("_")[0] for name in differ} == {"MatMulInteger", "QGemm", "QLinearConv", "QLinearMatMul", "qdq"}
    assert all("_u8_s8" in name or name.startswith("qdq") and "_s8" in name for name in differ)


@pytest.mark.skipif(not host_caps().intersection(PLACES), reason="the library would take kernels of another CPU")
def test_the_library_itself_beside_the_package() -> None:
    """Recorded outputs of a cap are what the installed onnxruntime gives on a CPU that ends there."""
    isa = [cap for cap in PLACES if cap in host_caps()][-1]
    runtime = pytest.importorskip("onnxruntime")
    options = runtime.SessionOptions()
    options.log_severity_level = 4
    for name in NAMES[::7]:
        session = runtime.InferenceSession(STORED[f"{name}/model"].tobytes(), options, ["CPUExecutionProvider"])
        assert session.run(None, feeds(name))[0].tobytes() == STORED[f"{name}/{isa}"].tobytes(), name


# -- products by themselves -------------------------------------------------------------------------------------------
ONES = np.full((2, 5), 255, np.uint8)


def test_pairs_saturate_where_the_sources_are_u8_and_the_weights_s8() -> None:
    weights = np.full((5, 3), 127, np.int8)
    for machine, expected in (("hsw", 2 * 32767 + 255 * 127), ("skx", 2 * 32767 + 255 * 127), ("icx", 5 * 255 * 127)):
        r = simdnn.matmul(ONES, weights, machine=machine, dispatch="onnxruntime")
        assert r.output.tolist() == [[expected] * 3] * 2
    r = simdnn.matmul(ONES.view(np.int8), weights, machine="hsw", dispatch="onnxruntime")
    assert r.output[0, 0] == -5 * 127 and r.implementation == "gemm:avx2_int8_exact"
    r = simdnn.matmul(ONES, weights.view(np.uint8) + np.uint8(128), machine="hsw", dispatch="onnxruntime")
    assert r.output[0, 0] == 5 * 255 * 255 and r.saturation is None


def test_k_is_one_line_however_long() -> None:
    """oneDNN cuts K of 258 to 766 in halves, whose pairs begin anew; here they do not."""
    src, weights = np.full((1, 514), 255, np.uint8), np.zeros((514, 1), np.int8)
    weights[256:258] = 127
    own, other = (simdnn.matmul(src, weights, machine="hsw", dispatch=rule) for rule in ("onnxruntime", "onednn"))
    assert (int(own.output[0, 0]), int(other.output[0, 0])) == (32767, 2 * 255 * 127)


@pytest.mark.parametrize("machine", ["hsw", "skx", "zen4"])
@pytest.mark.parametrize("columns", [1, 9])
def test_sums_to_floats_are_scaled_by_one_factor(machine: str, columns: int) -> None:
    """As MatMulIntegerToFloat: source scale * weights scale, times the sum, and then the bias; not one by one."""
    rng = np.random.default_rng(columns)
    src, weights = rng.integers(0, 128, (5, 40)).astype(np.uint8), rng.integers(-60, 60, (40, 9)).astype(np.int8)
    scales = {"src": np.array([0.0371], np.float32), "wei": (rng.random(columns) * 0.01).astype(np.float32)}
    bias = rng.standard_normal(9).astype(np.float32)
    r = simdnn.matmul(src, weights, bias, machine=machine, dispatch="onnxruntime", dst="f32", attr=Attr(scales=scales))
    sums = (src.astype(np.int32) @ weights.astype(np.int32)).astype(np.float32)
    assert r.output.tobytes() == (sums * (scales["src"] * scales["wei"]) + bias).tobytes()
    assert r.output.tobytes() != (sums * scales["src"] * scales["wei"] + bias).tobytes()


@pytest.mark.parametrize("machine", ["hsw", "skx"])
def test_pairs_of_a_convolution_cross_taps_and_edges(machine: str) -> None:
    """Three channels: the last of a tap and the first of the next are a pair; padding holds the zero point of 255."""
    src, weights = np.full((1, 3, 2, 2), 255, np.uint8), np.full((4, 3, 1, 2), 127, np.int8)
    attr = Attr(zero_points={"src": np.array([255], np.int32)})
    both = [
        simdnn.convolution(
            src, weights, padding=(0, 1, 0, 0), machine=machine, attr=attr, dispatch="onnxruntime", engine=engine
        )
        for engine in ("reference", "compiled")
    ]
    lost = 3 * (2 * 255 * 127 - 32767)
    for r in both:
        assert (r.output == -lost).all()
        assert (r.saturation == 3).all()
    exact = simdnn.convolution(src, weights, padding=(0, 1, 0, 0), machine="icx", attr=attr, dispatch="onnxruntime")
    assert not exact.output.any()


@pytest.mark.parametrize(("channels", "groups"), [(4, 4), (1, 1)])
def test_one_channel_a_group_is_exact(channels: int, groups: int) -> None:
    src, weights = np.full((1, channels, 3, 3), 255, np.uint8), np.full((channels, 1, 3, 3), 127, np.int8)
    r = simdnn.convolution(src, weights, groups=groups, machine="hsw", dispatch="onnxruntime")
    assert (r.output == 9 * 255 * 127).all()


def test_floats_are_cut_as_their_weights_come() -> None:
    """Parts of 256 where weights are packed ahead of time; of plain ones by the shape; the bias first."""
    rng = np.random.default_rng(0)
    src, weights = (rng.standard_normal(size).astype(np.float32) for size in ((2, 300), (300, 40)))
    packed, plain = (
        simdnn.matmul(src, weights, machine="icx", dispatch="onnxruntime", wei_tag=tag).output for tag in ("any", "ab")
    )
    assert packed.tobytes() == plain.tobytes()  # 40 columns: parts of 256, too
    wide = np.repeat(weights, 8, 1)
    packed, plain = (
        simdnn.matmul(src, wide, machine="icx", dispatch="onnxruntime", wei_tag=tag).output for tag in ("any", "ab")
    )
    assert packed.tobytes() != plain.tobytes()


@pytest.mark.parametrize(
    ("dt", "attr", "more", "why"),
    [
        ("f32", Attr(fpmath="bf16"), {}, "no math mode 'bf16'"),
        ("bf16", Attr(), {}, "bf16:bf16:bf16 is not modelled"),
        ("u8:s8:s8", Attr(), {}, "no product of u8 to s8"),
        ("s8:u8:s8", Attr(), {}, "no product of s8 x u8 to s8"),
        ("u8:s4:s32", Attr(), {}, "no integer product of s4 weights"),
        ("f32", Attr(post_ops=["relu"]), {}, "no post-operation 'relu'"),
        ("f32:s8:f32", Attr(apply_to_int=True), {}, "onnxruntime has no kernel here for compressed weights"),
        ("u8:s8:s32", Attr(zero_points={"src": simdnn.Quant(None, mask=1, dtype="s32")}), {}, "zero points by group"),
    ],
)
def test_what_is_not_known_of_it_is_refused_by_name(dt: str, attr: Attr, more: dict[str, Any], why: str) -> None:
    with pytest.raises(Unimplemented, match=why) as caught:
        simdnn.estimate(
            "matmul", **{"m": 4, "n": 32, "k": 64} | more, dt=dt, attr=attr, machine="hsw", dispatch="onnxruntime"
        )
    assert "onnxruntime" in str(caught.value) or "Mlas" in str(caught.value)


@pytest.mark.parametrize("channels", [9, 18])
def test_convolutions_of_floats_to_one_pixel_are_refused_by_name(channels: int) -> None:
    sizes = {"ic": channels, "oc": 8, **dict.fromkeys(("ih", "iw", "kh", "kw"), 3)}
    with pytest.raises(Unimplemented, match="MlasConv adds up f32 is not known"):
        simdnn.estimate("convolution", **sizes, machine="hsw", dispatch="onnxruntime")


def followed(op: str, feeds: dict[str, Any], **beside: Any) -> simdnn.Network:
    """A product of floats, x and constants w, and arithmetic on it and on what else there is."""
    helper, arrays = onnx.helper, onnx.numpy_helper
    product = helper.make_node("Conv" if feeds["x"].ndim > 3 else "MatMul", ["x", "w"], ["t"])
    last = helper.make_node(op, ["t", next(name for name in (*beside, *feeds) if name not in "xw")], ["y"])
    tensors = [arrays.from_array(np.asarray(value), name) for name, value in beside.items()]
    ports = [helper.make_tensor_value_info(n, onnx.TensorProto.FLOAT, v.shape) for n, v in feeds.items()]
    graph = helper.make_graph([product, last], "g", ports, [onnx.ValueInfoProto(name="y")], tensors)
    return simdnn.load(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8))


@pytest.mark.parametrize("op", ["add", "subtract", "multiply", "divide"])
def test_a_constant_that_follows_a_product_of_floats(op: str) -> None:
    """Added to columns it is a bias, before the sums; one number is a factor; others are operators of their own."""
    rng = np.random.default_rng(0)
    x, w, c = (rng.standard_normal(size).astype(np.float32) for size in ((6, 40), (40, 5), 5))
    kind = {"add": "Add", "subtract": "Sub", "multiply": "Mul", "divide": "Div"}[op]
    options: dict[str, Any] = {"machine": "hsw", "dispatch": "onnxruntime"}
    sums, biased = (simdnn.matmul(x, w, bias, **options).output for bias in (None, c))
    r = followed(kind, {"x": x.reshape(2, 3, 40)}, w=w, c=c).run({"x": x.reshape(2, 3, 40)}, **options)
    assert [run.node.op for run in r.nodes] == (["MatMulBias"] if op == "add" else ["MatMul", kind])
    wanted = biased if op == "add" else getattr(np, op)(sums, c)
    assert r.outputs["y"].tobytes() == wanted.tobytes()
    if op in ("multiply", "divide"):
        r = followed(kind, {"x": x}, w=w, c=np.float32(3)).run({"x": x}, **options)
        factor = np.float32(3) if op == "multiply" else np.float32(1) / np.float32(3)
        assert [run.node.op for run in r.nodes] == ["FusedMatMul"]
        assert r.outputs["y"].tobytes() == (sums * factor).tobytes()


@one_in(2)
@pytest.mark.parametrize("isa", ["avx2", "avx512_core_vnni"])
def test_recorded_convolutions_of_floats(isa: str) -> None:
    """Onto a value where both lie in blocks of channels, else added by itself; and as products of matrices."""
    names = sorted({key.split("/")[0] for key in FLOATS})
    kernels = set()
    for name in names:
        given = {key.split("/")[2]: FLOATS[key] for key in FLOATS if key.startswith(f"{name}/feeds/")}
        made = simdnn.load(onnx.load_from_string(FLOATS[f"{name}/model"].tobytes()))
        r = made.run(given, machine=PLACES[isa], dispatch="onnxruntime")
        assert next(iter(r.outputs.values())).tobytes() == FLOATS[f"{name}/{isa}"].tobytes(), name
        kernels |= {call.split("_")[-1] for call in r.to_frame().implementation}
        onto = "ConvOnto" in {run.node.op for run in r.nodes}
        apart = ["twice", *(["pooled"] if isa != "avx2" else [])]  # read twice, or pooled where pools lie in rows
        assert onto == (name.startswith("onto") and name.split("_")[1] not in apart)
    assert {"nchwc", "columns"} <= kernels and len(names) == 12


def test_what_is_added_to_a_convolution_by_matrices_is_added_by_itself() -> None:
    """Where channels, no multiple of 4, make it a product of matrices; so is a factor."""
    rng = np.random.default_rng(0)
    image, kernel = (rng.standard_normal(size).astype(np.float32) for size in ((1, 9, 4, 4), (9, 9, 1, 1)))
    feeds, options = {"x": image, "v": image}, {"machine": "icx", "dispatch": "onnxruntime"}
    nothing = {"x": image, "v": np.zeros_like(image)}
    product = followed("Add", nothing, w=kernel).run(nothing, **options).outputs["y"]
    for op, wanted in (("Add", product + image), ("Mul", product * image)):
        assert followed(op, feeds, w=kernel).run(feeds, **options).outputs["y"].tobytes() == wanted.tobytes()


def test_names_of_what_it_takes() -> None:
    r = simdnn.estimate("matmul", m=4, n=4, k=4, dt="u8:s8:s32", machine="hsw", dispatch="onnxruntime")
    assert r.library == "MlasGemm:U8S8:avx2"
    assert libraries.choose("onnxruntime", r.problem, "avx2").row == r.implementation == "gemm:avx2_int8_line"
