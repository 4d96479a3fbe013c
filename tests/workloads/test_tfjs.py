"""TensorFlow.js models: small ones made here are read, and run beside Keras's rules; broken ones are refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from hypothesis import given
from hypothesis import strategies as st

from isa_models import InvalidArgument, SimdnnError, Unimplemented
from tests.effort import examples
from workloads import tfjs
from workloads.tfjs import F32

Model = dict[str, Any]


def layer(kind: str, name: str, *inputs: str, **config: Any) -> Model:
    calls = [[[source, 0, 0, {}] for source in inputs]] if inputs else []
    return {"class_name": kind, "name": name, "config": {"name": name, **config}, "inbound_nodes": calls}


def convolution(name: str, source: str, filters: int, size: int, **config: Any) -> Model:
    usual = {
        "kernel_size": [size, size],
        "strides": [1, 1],
        "padding": "same",
        "data_format": "channels_last",
        "dilation_rate": [1, 1],
        "activation": "linear",
        "use_bias": True,
    }
    return layer("Conv2D", name, source, filters=filters, **usual | config)


def stored(name: str, values: F32, how: str | None) -> tuple[Model, bytes, F32]:
    """A weight's entry, its bytes, and the values that these stand for."""
    entry: Model = {"name": name, "shape": list(values.shape), "dtype": "float32"}
    if how is None:
        return entry, values.astype("<f4").tobytes(), values
    if how == "float16":
        half = values.astype("<f2")
        return entry | {"quantization": {"dtype": how}}, half.tobytes(), half.astype(np.float32)
    least = float(values.min())
    scale = float(values.max() - least) / (255 if how == "uint8" else 65535) or 1.0
    whole = np.rint((values - least) / scale).astype(how)
    meaning = np.array([float(q) * scale + least for q in whole.reshape(-1)]).astype(np.float32)
    return (
        entry | {"quantization": {"dtype": how, "scale": scale, "min": least}},
        whole.tobytes(),
        meaning.reshape(values.shape),
    )


def write(
    folder: Path,
    change: Callable[[Model], object] = lambda root: None,
    shorter: int = 0,
    how: str | None = "uint8",
    padding: str = "same",
    dilation: int = 1,
) -> tuple[Path, dict[str, F32]]:
    """A model of two branches that are joined, added and enlarged; its weights' values."""
    layers = [
        layer("InputLayer", "in", batch_input_shape=[None, None, None, 2]),
        convolution("a", "in", 3, 3, activation="relu", dilation_rate=[dilation, dilation], padding=padding),
        convolution("b", "a", 3, 1, use_bias=False),
        layer("Activation", "c", "b", activation="relu"),
        layer("Concatenate", "d", "a", "c", axis=3),
        convolution("e", "d", 3, 2),
        layer("Add", "f", "e", "c", "a"),
        layer("UpSampling2D", "g", "f", size=[2, 3], data_format="channels_last", interpolation="nearest"),
    ]
    rng = np.random.default_rng(0)
    shapes = {
        "a/kernel": (3, 3, 2, 3),
        "a/bias": (3,),
        "b/kernel": (1, 1, 3, 3),
        "e/kernel": (2, 2, 6, 3),
        "e/bias": (3,),
    }
    made = [stored(n, rng.normal(size=s).astype(np.float32), how) for n, s in shapes.items()]
    data = b"".join(part for _, part, _ in made)
    cut = len(data) // 3
    root: Model = {
        "format": "layers-model",
        "modelTopology": {
            "model_config": {
                "class_name": "Model",
                "config": {
                    "name": "small",
                    "layers": layers,
                    "input_layers": [["in", 0, 0]],
                    "output_layers": [["g", 0, 0]],
                },
            }
        },
        "weightsManifest": [{"paths": ["1.bin", "2.bin"], "weights": [entry for entry, _, _ in made]}],
    }
    change(root)
    folder.mkdir(exist_ok=True)
    (folder / "1.bin").write_bytes(data[:cut])
    (folder / "2.bin").write_bytes(data[cut : len(data) - shorter])
    (folder / "model.json").write_text(json.dumps(root))
    return folder / "model.json", dict(zip(shapes, (values for _, _, values in made), strict=True))


def keras_conv(x: F32, kernel: F32, dilation: int = 1, same: bool = True) -> F32:
    """(H, W, C) by Keras's rule: the odd row and column of padding lie behind."""
    size = [(n - 1) * dilation for n in kernel.shape[:2]]
    if same:
        x = np.pad(x, [(n // 2, n - n // 2) for n in size] + [(0, 0)])
    rows, columns = x.shape[0] - size[0], x.shape[1] - size[1]
    found = np.zeros((rows, columns, kernel.shape[3]))
    for i in range(kernel.shape[0]):
        for j in range(kernel.shape[1]):
            found += x[i * dilation :, j * dilation :][:rows, :columns].astype(np.float64) @ kernel[i, j]
    return found.astype(np.float32)


def expected(x: F32, w: dict[str, F32], dilation: int, same: bool) -> F32:
    a = np.maximum(keras_conv(x, w["a/kernel"], dilation, same) + w["a/bias"], 0)
    c = np.maximum(keras_conv(a, w["b/kernel"]), 0)
    e = keras_conv(np.concatenate([a, c], axis=2), w["e/kernel"]) + w["e/bias"]
    return (e + c + a).repeat(2, axis=0).repeat(3, axis=1)


@pytest.mark.parametrize("how", [None, "float16", "uint8", "uint16"])
@pytest.mark.parametrize(("padding", "dilation"), [("same", 1), ("same", 2), ("valid", 1)])
def test_model_means_what_keras_means(tmp_path: Path, how: str | None, padding: str, dilation: int) -> None:
    path, weights = write(tmp_path, how=how, padding=padding, dilation=dilation)
    model = tfjs.read(path)
    onnx.checker.check_model(model, full_check=True)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    x = np.random.default_rng(1).normal(size=(6, 7, 2)).astype(np.float32)
    y = session.run(["g"], {"in": x.transpose(2, 0, 1)[None]})[0][0].transpose(1, 2, 0)
    np.testing.assert_allclose(y, expected(x, weights, dilation, padding == "same"), rtol=1e-4, atol=1e-4)


def topology(root: Model) -> Model:
    found: Model = root["modelTopology"]["model_config"]["config"]
    return found


def weight(root: Model) -> Model:
    found: Model = root["weightsManifest"][0]["weights"][0]
    return found


def set_layer(index: int, key: str, value: Any) -> Callable[[Model], object]:
    return lambda root: topology(root)["layers"][index]["config"].__setitem__(key, value)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda r: r.update(format="graph-model"), "'layers-model' is needed"),
        (lambda r: r.pop("modelTopology"), "'modelTopology' is None"),
        (lambda r: r.update(modelTopology=[]), r"'modelTopology' is \[\]"),
        (lambda r: topology(r).update(layers={}), "'layers'"),
        (lambda r: topology(r).update(layers=[3]), "'name' is None"),
        (lambda r: topology(r).update(input_layers=[]), "one input and one output"),
        (lambda r: topology(r).update(output_layers=[["nowhere", 0, 0]]), "'nowhere' of the model is no layer"),
        (lambda r: topology(r)["layers"].reverse(), "which no layer before makes"),
        (lambda r: topology(r)["layers"].append(topology(r)["layers"][1]), "used twice"),
        (lambda r: topology(r)["layers"][2].update(inbound_nodes=[[["a"]]]), "its inputs are no list"),
        (lambda r: topology(r)["layers"][2].update(inbound_nodes=[]), "wrong number of inputs"),
        (lambda r: topology(r)["layers"][2].update(inbound_nodes=[[["a", 0, 0, {}]]] * 2), "called 2 times"),
        (lambda r: topology(r)["layers"][2].update(class_name="Lambda"), "is a Lambda; what works: InputLayer, Conv2D"),
        (lambda r: topology(r)["layers"][7].update(name=""), "one without: ''"),
        (lambda r: topology(r)["layers"][7].update(name="f/2"), "two values of one name, or one without: 'f/2'"),
        (set_layer(1, "activation", "swish"), "activation='swish'; what works"),
        (set_layer(1, "strides", [2, 2]), "strides of 1 work"),
        (set_layer(1, "kernel_size", [3, -3]), "kernel_size of shape"),
        (set_layer(1, "kernel_size", [0, 3]), "two sizes from 1"),
        (set_layer(1, "filters", 10**30), "its kernel is of shape"),
        (set_layer(1, "data_format", "channels_first"), "data_format='channels_first'"),
        (set_layer(7, "size", [2, 10**9]), "two sizes from 1"),
        (set_layer(7, "interpolation", "bilinear"), "interpolation='bilinear'"),
        (lambda r: weight(r).update(name="b/kernel"), "two weights of one name"),
        (lambda r: weight(r).update(name="z/kernel"), "its kernel is missing"),
        (lambda r: weight(r).update(shape=[10**9, 10**9]), "of shape"),
        (lambda r: weight(r).update(shape=[10**6]), "ends at byte 1000000; the shards of its group hold"),
        (lambda r: weight(r).update(shape=[-1, 3]), "of shape"),
        (lambda r: weight(r).update(shape="3"), "of shape"),
        (lambda r: weight(r).update(shape=[3, 3, 2, 2]), "hold 141 bytes; its weights take 123"),
        (lambda r: weight(r).update(dtype="string"), "has type 'string'"),
        (lambda r: weight(r)["quantization"].update(dtype="uint4"), "stored as 'uint4'"),
        (lambda r: weight(r)["quantization"].update(scale="1"), "'scale' is 1; a value of type float"),
        (lambda r: weight(r)["quantization"].update(scale=1e300), "not finite"),
        (lambda r: weight(r)["quantization"].update(min=float("nan")), "not finite"),
        (lambda r: weight(r).pop("name"), "'name' is None"),
        (lambda r: r.update(weightsManifest={}), "'weightsManifest'"),
        (lambda r: r["weightsManifest"][0].update(paths=["../1.bin"]), "only files beside model.json"),
        (lambda r: r["weightsManifest"][0].update(paths=["/etc/hostname"]), "only files beside model.json"),
        (lambda r: r["weightsManifest"][0].update(paths=[".."]), "only files beside model.json"),
        (lambda r: r["weightsManifest"][0].update(paths=[None]), "only files beside model.json"),
        (lambda r: r["weightsManifest"][0].update(paths=["3.bin"]), "3.bin cannot be read"),
        (lambda r: r["weightsManifest"][0].update(paths=["a\0b"]), "cannot be read"),
    ],
)
def test_broken_models(tmp_path: Path, change: Callable[[Model], object], message: str) -> None:
    path, _ = write(tmp_path, change)
    with pytest.raises((InvalidArgument, Unimplemented), match=message) as error:
        tfjs.read(path)
    assert len(str(error.value).splitlines()) == 1 and len(str(error.value)) < 300


def test_truncated_files(tmp_path: Path) -> None:
    path, _ = write(tmp_path, shorter=1)
    with pytest.raises(InvalidArgument, match="ends at byte 141; the shards of its group hold 140"):
        tfjs.read(path)
    for text in (path.read_text()[:-20], "", "[]", "[" * 100_000, '{"format": ' + "9" * 10_000 + "}", "\ud800"):
        path.write_text(text, errors="surrogatepass")
        with pytest.raises(InvalidArgument):
            tfjs.read(path)
    with pytest.raises(InvalidArgument, match="cannot be read"):
        tfjs.read(tmp_path / "none.json")


@examples(100)
@given(data=st.data())
def test_any_value_anywhere_is_read_or_refused(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    """One value of the file, wherever it is, replaced by another."""

    def change(root: Model) -> None:
        place: Any = root
        while True:
            keys = list(place) if isinstance(place, dict) else list(range(len(place)))
            key = data.draw(st.sampled_from(keys))
            inner = place[key]
            if not isinstance(inner, dict | list) or not inner or data.draw(st.integers(0, 3)) == 0:
                place[key] = data.draw(st.sampled_from([None, True, -1, 0, 7, 2**70, 1.5, "", "a", [], [[]], {}]))
                return
            place = inner

    path, _ = write(tmp_path_factory.getbasetemp() / "any", change)
    try:
        model = tfjs.read(path)
    except SimdnnError as error:
        assert len(str(error).splitlines()) == 1
    else:
        onnx.checker.check_model(model)
