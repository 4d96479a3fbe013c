"""BERT's encoder as an ONNX model that gives a sentence's embedding.

J. Devlin et al., "BERT", NAACL 2019; the pooling is that of N. Reimers and I. Gurevych, "Sentence-BERT", EMNLP 2019:
the mean of the last layer over the tokens of a sentence, scaled to length 1. Weights carry the names that PyTorch's
BertModel gives them, matrices of linear layers as (outputs, inputs).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from isa_models.errors import InvalidArgument, Unimplemented, counted
from workloads import untrusted
from workloads.onnx_writer import Writer

if TYPE_CHECKING:
    import onnx

_MASKED = -10000.0  # added to the scores of padding; f16 holds it


def encoder(config: Mapping[str, Any], tensors: Mapping[str, NDArray[Any]], tokens: int) -> onnx.ModelProto:
    """Inputs: `ids` s64 and `mask` f32 (1: a token, 0: padding), both (n, tokens); output: `embedding` (n, hidden).

    `config` is the content of the model's config.json. Raises `InvalidArgument` where the tensors do not fit it.
    """
    return _Encoder(config, tensors, tokens).model()


class _Encoder:
    def __init__(self, config: Mapping[str, Any], tensors: Mapping[str, NDArray[Any]], tokens: int) -> None:
        self.writer, self.tensors, self.tokens = Writer(), tensors, tokens
        sizes = (
            "hidden_size",
            "num_attention_heads",
            "num_hidden_layers",
            "intermediate_size",
            "vocab_size",
            "max_position_embeddings",
            "type_vocab_size",
        )
        (self.hidden, self.heads, self.layers, self.inner, self.words, self.places, self.kinds) = (
            untrusted.field(dict(config), key, int, "config.json") for key in sizes
        )
        self.epsilon = untrusted.field(dict(config), "layer_norm_eps", float, "config.json")
        for key, works in (("hidden_act", "gelu"), ("position_embedding_type", "absolute")):
            if config.get(key, works) != works:
                raise Unimplemented(f"config.json: {key}={config[key]!r:.40}; {works!r} works")
        if self.heads < 1 or self.hidden < 1 or self.hidden % self.heads:
            raise InvalidArgument(f"config.json: {self.hidden} hidden units and {self.heads} heads, which must divide")
        if not 1 <= tokens <= self.places:
            raise InvalidArgument(f"{counted(tokens, 'token')}; this model takes 1 to {self.places}")

    def model(self) -> onnx.ModelProto:
        w = self.writer
        absent = w.put("Sub", ["mask", w.hold("one", np.float32(1))], "absent")
        rows = w.put("Unsqueeze", [absent, w.hold("axes_1_2", np.array([1, 2]))], "absent_keys")
        mask = w.put("Mul", [rows, w.hold("masked", np.float32(-_MASKED))], "score_mask")
        x = self.embeddings()
        for i in range(self.layers):
            x = self.layer(x, f"encoder.layer.{i}", mask)
        weights = w.put("Unsqueeze", ["mask", w.hold("axis_2", np.array([2]))], "pool_mask")
        axis = w.hold("axis_1", np.array([1]))
        total = w.put("ReduceSum", [w.put("Mul", [x, weights], "kept"), axis], "total", keepdims=0)
        mean = w.put("Div", [total, w.put("ReduceSum", ["mask", axis], "length", keepdims=1)], "mean")
        w.put("Div", [mean, w.put("ReduceL2", [mean, axis], "norm", keepdims=1)], "embedding")
        tokens: list[int | str] = ["n", self.tokens]
        return w.model(
            "bert",
            {"ids": ("int64", tokens), "mask": ("float32", tokens)},
            {"embedding": ("float32", ["n", self.hidden])},
        )

    def embeddings(self) -> str:
        """The name of the normalized sum of the embeddings of words, places and the first kind of sentence."""
        kind = self.tensor("embeddings.token_type_embeddings.weight", self.kinds, self.hidden)[:1]
        places = self.tensor("embeddings.position_embeddings.weight", self.places, self.hidden)[: self.tokens]
        words = self.held("embeddings.word_embeddings.weight", self.words, self.hidden)
        found = self.writer.put("Gather", [words, "ids"], "words")
        here = self.writer.hold("embeddings.places", places + kind)
        return self.normalized(self.writer.put("Add", [found, here], "embedded"), "embeddings.LayerNorm")

    def layer(self, x: str, name: str, mask: str) -> str:
        """Attention and the two linear layers behind it, each added to what it reads and normalized."""
        w, width = self.writer, self.hidden // self.heads
        split = self.shape(f"{name}.split", [0, 0, self.heads, width])
        query, key, value = (
            w.put(
                "Transpose",
                [
                    w.put(
                        "Reshape",
                        [self.linear(x, f"{name}.attention.self.{part}", self.hidden, self.hidden), split],
                        f"{name}.{part}.heads",
                    )
                ],
                f"{name}.{part}.turned",
                perm=turned,
            )
            for part, turned in (("query", [0, 2, 1, 3]), ("key", [0, 2, 3, 1]), ("value", [0, 2, 1, 3]))
        )
        products = w.put("MatMul", [query, key], f"{name}.products")
        scale = w.hold(f"{name}.scale", np.float32(1 / np.sqrt(width)))
        scores = w.put("Add", [w.put("Mul", [products, scale], f"{name}.scaled"), mask], f"{name}.scores")
        mixed = w.put("MatMul", [w.put("Softmax", [scores], f"{name}.attention", axis=-1), value], f"{name}.mixed")
        joined = w.put(
            "Reshape",
            [
                w.put("Transpose", [mixed], f"{name}.rows", perm=[0, 2, 1, 3]),
                self.shape(f"{name}.join", [0, 0, self.hidden]),
            ],
            f"{name}.joined",
        )
        added = self.linear(joined, f"{name}.attention.output.dense", self.hidden, self.hidden)
        x = self.normalized(w.put("Add", [added, x], f"{name}.attended"), f"{name}.attention.output.LayerNorm")
        inside = self.linear(x, f"{name}.intermediate.dense", self.inner, self.hidden)
        outside = self.linear(w.put("Gelu", [inside], f"{name}.gelu"), f"{name}.output.dense", self.hidden, self.inner)
        return self.normalized(w.put("Add", [outside, x], f"{name}.added"), f"{name}.output.LayerNorm")

    # -- parts ---------------------------------------------------------------------------------------------------
    def linear(self, x: str, name: str, outputs: int, inputs: int) -> str:
        matrix = self.writer.hold(f"{name}.weight", self.tensor(f"{name}.weight", outputs, inputs).T)
        product = self.writer.put("MatMul", [x, matrix], f"{name}.product")
        return self.writer.put("Add", [product, self.held(f"{name}.bias", outputs)], name)

    def normalized(self, x: str, name: str) -> str:
        parts = [self.held(f"{name}.{part}", self.hidden) for part in ("weight", "bias")]
        return self.writer.put("LayerNormalization", [x, *parts], name, axis=-1, epsilon=self.epsilon)

    def shape(self, name: str, sizes: list[int]) -> str:
        return self.writer.hold(name, np.array(sizes))

    def held(self, name: str, *sizes: int) -> str:
        return self.writer.hold(name, self.tensor(name, *sizes))

    def tensor(self, name: str, *sizes: int) -> NDArray[np.float32]:
        found = self.tensors.get(name)
        if found is None or found.shape != sizes or found.dtype != np.float32:
            met = "missing" if found is None else f"{found.dtype} {list(found.shape)}"
            raise InvalidArgument(f"tensor {name!r:.80} is {met}; float32 {list(sizes)} is needed")
        return found
