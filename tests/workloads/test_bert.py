"""BERT's encoder beside a NumPy reading of the paper, in onnxruntime and on a modelled machine."""

from __future__ import annotations

from math import erf
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from numpy.typing import NDArray

import simdnn
from isa_models import InvalidArgument, Unimplemented
from workloads import bert

F32 = NDArray[np.float32]
CONFIG: dict[str, Any] = {
    "hidden_size": 12,
    "num_attention_heads": 3,
    "num_hidden_layers": 2,
    "intermediate_size": 20,
    "vocab_size": 30,
    "max_position_embeddings": 9,
    "type_vocab_size": 2,
    "layer_norm_eps": 1e-12,
    "hidden_act": "gelu",
}


def tensors() -> dict[str, F32]:
    h, inner = CONFIG["hidden_size"], CONFIG["intermediate_size"]
    shapes: dict[str, tuple[int, ...]] = {
        f"embeddings.{name}_embeddings.weight": (rows, h)
        for name, rows in (("word", 30), ("position", 9), ("token_type", 2))
    }
    norms = ["embeddings.LayerNorm"]
    for i in range(CONFIG["num_hidden_layers"]):
        layer = f"encoder.layer.{i}"
        norms += [f"{layer}.attention.output.LayerNorm", f"{layer}.output.LayerNorm"]
        linear = {f"attention.self.{part}": (h, h) for part in ("query", "key", "value")}
        linear |= {"attention.output.dense": (h, h), "intermediate.dense": (inner, h), "output.dense": (h, inner)}
        shapes |= {f"{layer}.{name}.weight": shape for name, shape in linear.items()}
        shapes |= {f"{layer}.{name}.bias": shape[:1] for name, shape in linear.items()}
    shapes |= {f"{norm}.{part}": (h,) for norm in norms for part in ("weight", "bias")}
    rng = np.random.default_rng(0)
    return {name: rng.normal(size=shape).astype(np.float32) for name, shape in shapes.items()}


def embed(t: dict[str, F32], ids: list[int]) -> NDArray[np.float64]:
    """One sentence without padding, in double precision."""

    def linear(x: NDArray[Any], name: str) -> NDArray[Any]:
        y: NDArray[Any] = x @ t[f"{name}.weight"].astype(np.float64).T + t[f"{name}.bias"]
        return y

    def norm(x: NDArray[Any], name: str) -> NDArray[Any]:
        centred = x - x.mean(-1, keepdims=True)
        y: NDArray[Any] = centred / np.sqrt((centred**2).mean(-1, keepdims=True) + 1e-12)
        return y * t[f"{name}.weight"] + t[f"{name}.bias"]

    n, heads, width = len(ids), CONFIG["num_attention_heads"], 12 // CONFIG["num_attention_heads"]
    table = "embeddings.{}_embeddings.weight".format
    x = norm(
        t[table("word")].astype(np.float64)[ids] + t[table("token_type")][0] + t[table("position")][:n],
        "embeddings.LayerNorm",
    )
    for i in range(CONFIG["num_hidden_layers"]):
        layer = f"encoder.layer.{i}"
        q, k, v = (
            linear(x, f"{layer}.attention.self.{part}").reshape(n, heads, width) for part in ("query", "key", "value")
        )
        scores = np.exp(np.einsum("ihd,jhd->hij", q, k) / np.sqrt(width))
        mixed = np.einsum("hij,jhd->ihd", scores / scores.sum(-1, keepdims=True), v).reshape(n, -1)
        x = norm(x + linear(mixed, f"{layer}.attention.output.dense"), f"{layer}.attention.output.LayerNorm")
        inside = linear(x, f"{layer}.intermediate.dense")
        gelu = inside * (1 + np.vectorize(erf)(inside / np.sqrt(2))) / 2
        x = norm(x + linear(gelu, f"{layer}.output.dense"), f"{layer}.output.LayerNorm")
    mean = x.mean(axis=0)
    found: NDArray[np.float64] = mean / np.linalg.norm(mean)
    return found


def test_encoder() -> None:
    """Three sentences of different lengths in one batch: padding changes nothing."""
    t = tensors()
    model = bert.encoder(CONFIG, t, 7)
    onnx.checker.check_model(model, full_check=True)
    sentences = [[1, 2, 3, 4, 5, 6, 7], [9, 9], [29, 0, 11, 4]]
    feeds = {"ids": np.zeros((3, 7), np.int64), "mask": np.zeros((3, 7), np.float32)}
    for row, sentence in enumerate(sentences):
        feeds["ids"][row, : len(sentence)] = sentence
        feeds["mask"][row, : len(sentence)] = 1
    wanted = np.stack([embed(t, sentence) for sentence in sentences])
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    np.testing.assert_allclose(session.run(["embedding"], feeds)[0], wanted, atol=1e-5)
    result = simdnn.load(model).run(feeds, machine="zen4")
    np.testing.assert_allclose(result.outputs["embedding"], wanted, atol=1e-5)
    assert result.macs > 0 and result.cycles > 0
    half = simdnn.load(simdnn.transpile_float16(model)).run(feeds, machine="zen4").outputs["embedding"]
    np.testing.assert_allclose(half, wanted, atol=0.02)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"hidden_size": None}, "config.json: 'hidden_size' is None"),
        ({"num_attention_heads": 5}, "12 hidden units and 5 heads"),
        ({"num_attention_heads": 0}, "12 hidden units and 0 heads"),
        ({"hidden_act": "relu"}, "'gelu' works"),
        ({"position_embedding_type": "relative_key"}, "'absolute' works"),
        ({"num_hidden_layers": 3}, "encoder.layer.2.attention.self.query.weight' is missing"),
        ({"vocab_size": 31}, r"is float32 \[30, 12\]; float32 \[31, 12\] is needed"),
        ({"max_position_embeddings": 6}, "7 tokens; this model takes 1 to 6"),
        ({"layer_norm_eps": "0"}, "'layer_norm_eps' is 0; a value of type float"),
    ],
)
def test_what_does_not_fit(change: dict[str, Any], message: str) -> None:
    with pytest.raises((InvalidArgument, Unimplemented), match=message):
        bert.encoder(CONFIG | change, tensors(), 7)


def test_other_element_types() -> None:
    t: dict[str, Any] = tensors()
    t["embeddings.LayerNorm.weight"] = t["embeddings.LayerNorm.weight"].astype(np.float16)
    with pytest.raises(InvalidArgument, match=r"is float16 \[12\]; float32 \[12\] is needed"):
        bert.encoder(CONFIG, t, 7)
