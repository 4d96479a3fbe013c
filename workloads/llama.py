"""Llama's architecture as an ONNX model, from the weights of a GGUF file.

H. Touvron et al., "LLaMA", arXiv:2302.13971, section 2.2 (RMSNorm, SwiGLU, rotary embeddings); J. Ainslie et al.,
"GQA", arXiv:2305.13245 (several query heads share keys and values). One program reads a prompt and writes token after
token: caches of keys and values come in, of any length, and go out with the new rows behind.

GGUF stores the rows of query and key matrices so that a rotation turns neighbours (2i, 2i + 1); they are put back here
into the order of two halves (i, i + head / 2), so that halves move and not neighbours. Scores do not notice.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from isa_models.block_formats import BLOCK_FORMATS, block_format, nibbles
from isa_models.errors import InvalidArgument, Unimplemented, counted
from workloads.gguf import Gguf
from workloads.onnx_writer import Ports, Writer

if TYPE_CHECKING:
    import onnx

F32 = NDArray[np.float32]
U8 = NDArray[np.uint8]
Feeds = dict[str, NDArray[Any]]
_OPSET = 23  # the first with RMSNormalization
_MASKED = -10000.0  # added to the scores of what comes later; f16 holds it, and e to it is 0
_MOST_PLACES = 1 << 16
_CONTRIB = "com.microsoft"
GROUP = block_format("q4_1").group
_BLOCKS = {name.lower(): name for name in BLOCK_FORMATS}  # GGUF writes Q4_0 and Q4_K
_FLOAT, _INT8 = 1, 3  # ONNX's numbers of element types
_TINY = np.float32(1e-30)  # a token of zeros has a scale of this, not 0
WEIGHTS = ("f32", "own", "ggml", "s8")


@dataclass(frozen=True)
class Sizes:
    """A network's sizes, as its metadata say. `width`: of a token's vector; `places`: tokens at most."""

    layers: int
    width: int
    heads: int
    kv_heads: int
    hidden: int
    vocabulary: int
    places: int
    epsilon: float
    rope_base: float

    @property
    def head(self) -> int:
        """Elements of a head."""
        return self.width // self.heads


def sizes(file: Gguf) -> Sizes:
    """A GGUF file's sizes.

    Raises `Unimplemented` for another architecture, `InvalidArgument` where numbers do not fit.
    """
    if (kind := file.get("general.architecture", str)) != "llama":
        raise Unimplemented(f"architecture {kind!r:.40}; 'llama' is known")
    heads = file.get("llama.attention.head_count", int)
    found = Sizes(
        file.get("llama.block_count", int),
        file.get("llama.embedding_length", int),
        heads,
        file.get("llama.attention.head_count_kv", int, heads),
        file.get("llama.feed_forward_length", int),
        len(file.get("tokenizer.ggml.tokens", list)),
        file.get("llama.context_length", int),
        file.get("llama.attention.layer_norm_rms_epsilon", float),
        file.get("llama.rope.freq_base", float, 10000.0),
    )
    whole = (found.layers, found.width, found.heads, found.kv_heads, found.hidden, found.vocabulary, found.places)
    fits = min(whole) > 0 and not found.width % (2 * heads) and not heads % found.kv_heads
    if not fits or not np.isfinite([found.epsilon, found.rope_base]).all() or found.rope_base <= 0:
        raise InvalidArgument(f"{found}: positive numbers, width / heads even, and heads / kv_heads whole are needed")
    if file.get("llama.rope.dimension_count", int, found.head) != found.head:
        raise Unimplemented(f"a rotation of parts of a head; of all {found.head} elements is known")
    return found


def network(file: Gguf, weights: str = "f32") -> onnx.ModelProto:
    """The program: with f32 weights, with its "own" quantized ones as they are stored, multiplied in floats or as
    "ggml" does, or with "s8" ones.

    Inputs, as `feeds` makes them: `tokens` and `places` (n,), `wanted` (w,) the positions whose logits are asked for,
    `mask` (n, past + n) what is added to scores, and for each layer `key_I` (kv_heads, head, past), `value_I`
    (kv_heads, past, head). Outputs: `logits` (w, vocabulary), and the caches with n more, `new_key_I`, `new_value_I`.

    Own Q4_1 weights q d + m (u4 q, scale d and minimum m of each 32 k) have no integer zero point. They are multiplied
    as (q - 8) d, by MatMulNBits, and sums of 32 neighbours of the source times m + 8 d are added: the same sum in
    another order, with no weight rounded.

    With "ggml", blocks stay as they are, and products are nodes of their own, MulMat, which quantize the source by
    blocks as well.

    "s8" weights have a scale for each output channel, and sources are s8 with a scale for each token, found as it runs.
    Raises `InvalidArgument` or `Unimplemented` for a file that is no such network.
    """
    if weights not in WEIGHTS:
        raise InvalidArgument(f"weights={weights!r}; allowed: {', '.join(WEIGHTS)}")
    return _Builder(file, weights).model()


def feeds(size: Sizes, tokens: Sequence[int], caches: Feeds | None = None, wanted: Sequence[int] = ()) -> Feeds:
    """The inputs of the program: `tokens` that come after those in the `caches`, and whose logits are `wanted` (all
    where none is named). Raises `InvalidArgument` for no tokens or too many.
    """
    caches = blank(size, 0) if caches is None else caches
    past, count = caches["value_0"].shape[1], len(tokens)
    if not 1 <= count <= size.places - past:
        raise InvalidArgument(f"{counted(count, 'token')} after {past}; 1 to {size.places - past} are allowed")
    places = past + np.arange(count)
    later = np.arange(past + count) > places[:, None]
    return {
        "tokens": np.array(tokens, np.int64),
        "places": places.astype(np.int64),
        "wanted": np.array(wanted or range(count), np.int64),
        "mask": np.where(later, np.float32(_MASKED), np.float32(0)),
        **caches,
    }


def blank(size: Sizes, past: int) -> Feeds:
    """Caches of `past` tokens, all zero."""
    found: Feeds = {}
    for i in range(size.layers):
        found[f"key_{i}"] = np.zeros((size.kv_heads, size.head, past), np.float32)
        found[f"value_{i}"] = np.zeros((size.kv_heads, past, size.head), np.float32)
    return found


def caches_of(outputs: Mapping[str, NDArray[Any]]) -> Feeds:
    """The caches that the next run is fed with, from the outputs of one."""
    return {name.removeprefix("new_"): array for name, array in outputs.items() if name.startswith("new_")}


class _Builder:
    def __init__(self, file: Gguf, weights: str) -> None:
        self.file, self.weights, self.size, self.writer = file, weights, sizes(file), Writer()
        self.sums: dict[str, str] = {}  # of each 32 elements of a source, by the source's name
        self.narrow: dict[str, tuple[str, str]] = {}  # by its name: a source in s8, the scales of its tokens

    def model(self) -> onnx.ModelProto:
        w, size = self.writer, self.size
        self.constants()
        table = w.hold("token_embd", self.tensor("token_embd.weight", size.vocabulary, size.width))
        x = w.put("Gather", [table, "tokens"], "embedded")
        for i in range(size.layers):
            x = self.layer(x, i)
        last = self.normalized(w.put("Gather", [x, "wanted"], "picked"), "output_norm")
        if "output.weight" in self.file.tensors:
            self.linear(last, "output", size.vocabulary, size.width, "logits")
        elif self.weights == "f32":
            w.put("Gemm", [last, table], "logits", transB=1)  # the table again
        else:
            self.linear(last, "token_embd", size.vocabulary, size.width, "logits")
        return w.model("llama", *self.ports(), opset=_OPSET)

    def ports(self) -> tuple[Ports, Ports]:
        """Inputs and outputs."""
        size = self.size
        inputs: dict[str, tuple[str, list[int | str]]] = {
            "tokens": ("int64", ["n"]),
            "places": ("int64", ["n"]),
            "wanted": ("int64", ["w"]),
            "mask": ("float32", ["n", "all"]),
        }
        outputs: dict[str, tuple[str, list[int | str]]] = {"logits": ("float32", ["w", size.vocabulary])}
        for ports, prefix, length in ((inputs, "", "past"), (outputs, "new_", "all")):
            for i in range(size.layers):
                ports[f"{prefix}key_{i}"] = "float32", [size.kv_heads, size.head, length]
                ports[f"{prefix}value_{i}"] = "float32", [size.kv_heads, length, size.head]
        return inputs, outputs

    def constants(self) -> None:
        """Shapes, and what rotates queries and keys at the `places` of the run: (n, 1, head)."""
        w, size = self.writer, self.size
        if size.places > _MOST_PLACES:
            raise InvalidArgument(f"llama.context_length {size.places}; at most {_MOST_PLACES} are allowed")
        for name, shape in {
            "shape_query": [-1, size.heads, size.head],
            "shape_key": [-1, size.kv_heads, size.head],
            "shape_shared": [size.kv_heads, -1, 0],  # rows of all heads that share keys
            "shape_heads": [size.heads, -1, 0],
            "shape_joined": [-1, size.width],
            "axis_0": [0],
            "axis_1": [1],
            "axis_last": [-1],
            "half": [size.head // 2],
            "end": [size.head],
        }.items():
            w.hold(name, np.array(shape))
        w.hold("scale", np.float32(1 / np.sqrt(size.head)))
        if self.weights == "own":
            w.hold("shape_groups", np.array([0, -1, GROUP]))
        if self.weights == "s8":
            w.hold("one_127th", np.float32(1 / 127))
            w.hold("tiny", _TINY)
        half = size.rope_base ** -(np.arange(0, size.head, 2) / size.head)
        angles = np.arange(size.places)[:, None] * np.concatenate([half, half])
        for name, function in (("cosine", np.cos), ("sine", np.sin)):  # in f64, rounded once
            table = w.hold(f"{name}s", function(angles).astype(np.float32))
            w.put("Unsqueeze", [w.put("Gather", [table, "places"], f"{name}_rows"), "axis_1"], name)

    def layer(self, x: str, i: int) -> str:
        """Attention, then SwiGLU, each of the normalized input and added to it."""
        w, size, name = self.writer, self.size, f"blk.{i}"
        attended = self.attention(self.normalized(x, f"{name}.attn_norm"), i)
        x = w.put("Add", [x, attended], f"{name}.attended")
        inside = self.normalized(x, f"{name}.ffn_norm")
        gate = self.linear(inside, f"{name}.ffn_gate", size.hidden, size.width)
        up = self.linear(inside, f"{name}.ffn_up", size.hidden, size.width)
        swish = w.put("Mul", [gate, w.put("Sigmoid", [gate], f"{name}.sigmoid")], f"{name}.swish")
        down = self.linear(w.put("Mul", [swish, up], f"{name}.gated"), f"{name}.ffn_down", size.width, size.hidden)
        return w.put("Add", [x, down], f"{name}.added")

    def attention(self, x: str, i: int) -> str:
        """Each query against all keys up to its place; heads that share keys are rows of one product."""
        w, size, name = self.writer, self.size, f"blk.{i}"
        narrow = size.kv_heads * size.head
        query = self.rotated(self.linear(x, f"{name}.attn_q", size.width, size.width, heads=size.heads), "shape_query")
        key = self.rotated(self.linear(x, f"{name}.attn_k", narrow, size.width, heads=size.kv_heads), "shape_key")
        value = w.put("Reshape", [self.linear(x, f"{name}.attn_v", narrow, size.width), "shape_key"], f"{name}.value")
        keys = w.put("Transpose", [key], f"{name}.keys", perm=[1, 2, 0])
        values = w.put("Transpose", [value], f"{name}.values", perm=[1, 0, 2])
        keys = w.put("Concat", [f"key_{i}", keys], f"new_key_{i}", axis=2)
        values = w.put("Concat", [f"value_{i}", values], f"new_value_{i}", axis=1)
        rows = w.put("Transpose", [w.put("Mul", [query, "scale"], f"{name}.scaled")], f"{name}.queries", perm=[1, 0, 2])
        rows = w.put("Reshape", [rows, "shape_shared"], f"{name}.rows")
        scores = w.put("Reshape", [w.put("MatMul", [rows, keys], f"{name}.products"), "shape_heads"], f"{name}.scores")
        weights = w.put("Softmax", [w.put("Add", [scores, "mask"], f"{name}.masked")], f"{name}.weights", axis=-1)
        mixed = w.put(
            "MatMul", [w.put("Reshape", [weights, "shape_shared"], f"{name}.shared"), values], f"{name}.mixed"
        )
        heads = w.put(
            "Transpose", [w.put("Reshape", [mixed, "shape_heads"], f"{name}.heads")], f"{name}.turned", perm=[1, 0, 2]
        )
        joined = w.put("Reshape", [heads, "shape_joined"], f"{name}.joined")
        return self.linear(joined, f"{name}.attn_output", size.width, size.width)

    def rotated(self, x: str, shape: str) -> str:
        """(n, heads, head): x cos + (-second half, first half) sin."""
        w = self.writer
        parts = w.put("Reshape", [x, shape], f"{x}.heads")
        first = w.put("Slice", [parts, "axis_0", "half", "axis_last"], f"{x}.first")
        second = w.put("Slice", [parts, "half", "end", "axis_last"], f"{x}.second")
        swapped = w.put("Concat", [w.put("Neg", [second], f"{x}.negated"), first], f"{x}.swapped", axis=2)
        turned = [w.put("Mul", [a, b], f"{x}.{b}") for a, b in ((parts, "cosine"), (swapped, "sine"))]
        return w.put("Add", turned, f"{x}.rotated")

    def normalized(self, x: str, name: str) -> str:
        """x / sqrt(mean of its squares + epsilon) times a weight."""
        weight = self.writer.hold(f"{name}.weight", self.tensor(f"{name}.weight", self.size.width))
        return self.writer.put("RMSNormalization", [x, weight], name, axis=-1, epsilon=self.size.epsilon)

    # -- weights -------------------------------------------------------------------------------------------------
    def linear(self, x: str, name: str, rows: int, columns: int, result: str = "", heads: int = 0) -> str:
        """x times the transpose of a weight (rows, columns), whose rows are put in order where they are of `heads`."""
        tensor, result = f"{name}.weight", result or name
        order = halves(rows, heads) if heads else np.arange(rows)
        kind = self.tensor_type(tensor, rows, columns)
        if self.weights == "s8":
            return self.by_token(x, name, self.file.array(tensor)[order], result)
        if self.weights == "ggml" and kind.lower() in _BLOCKS:
            return self.blocks(x, name, self.file.blocks(tensor)[order], _BLOCKS[kind.lower()], result)
        if self.weights == "own" and kind == "Q4_1":
            return self.nibbles_with_minima(x, name, self.file.blocks(tensor)[order], result)
        if self.weights == "own" and kind == "Q8_0":
            blocks = self.file.blocks(tensor)[order]
            stored = (blocks["q"].astype(np.int16) + 128).astype(np.uint8)
            return self.integers(x, name, stored, blocks["scale"], 8, result)
        weight = self.writer.hold(tensor, self.file.array(tensor)[order])
        return self.writer.put("Gemm", [x, weight], result, transB=1)

    def blocks(self, x: str, name: str, blocks: NDArray[Any], kind: str, result: str) -> str:
        """x times blocks as they are stored, which the product's own kernel reads."""
        rows = np.ascontiguousarray(blocks).view(np.uint8).reshape(len(blocks), -1)
        return self.writer.put(
            "MulMat", [x, self.writer.hold(f"{name}.blocks", rows)], result, domain="ggml", type=kind
        )

    def nibbles_with_minima(self, x: str, name: str, blocks: NDArray[Any], result: str) -> str:
        """x (q - 8) d, plus the sums of groups of x times m + 8 d."""
        w = self.writer
        pairs = nibbles(blocks["q"]).reshape(*blocks.shape, GROUP // 2, 2)
        stored: U8 = pairs[..., 0] | pairs[..., 1] * np.uint8(16)  # neighbours share a byte
        centred = self.integers(x, name, stored, blocks["scale"], 4, f"{result}.centred")
        minima = blocks["minimum"].astype(np.float32) + 8 * blocks["scale"].astype(np.float32)
        if x not in self.sums:
            groups = w.put("Reshape", [x, "shape_groups"], f"{x}.groups")
            self.sums[x] = w.put("ReduceSum", [groups, "axis_last"], f"{x}.sums", keepdims=0)
        return w.put("Gemm", [self.sums[x], w.hold(f"{name}.minima", minima), centred], result, transB=1)

    def integers(self, x: str, name: str, stored: U8, scale: F32, bits: int, result: str) -> str:
        """x times integers (rows, groups, bytes) around their middle, with a scale a group."""
        rows, groups = stored.shape[:2]
        held = [
            self.writer.hold(f"{name}.q", stored),
            self.writer.hold(f"{name}.scale", scale.astype(np.float32).reshape(-1)),
        ]
        return self.writer.put(
            "MatMulNBits", [x, *held], result, domain=_CONTRIB, K=groups * GROUP, N=rows, bits=bits, block_size=GROUP
        )

    def by_token(self, x: str, name: str, weight: F32, result: str) -> str:
        """The two in s8, the largest magnitude of a token and of an output channel being 127; sums in s32."""
        w = self.writer
        if x not in self.narrow:
            top = w.put("ReduceMax", [w.put("Abs", [x], f"{x}.abs"), "axis_last"], f"{x}.top", keepdims=0)
            steps = w.put("Max", [w.put("Mul", [top, "one_127th"], f"{x}.step"), "tiny"], f"{x}.steps")
            s8 = w.put("QuantizeLinear", [x, steps], f"{x}.s8", axis=0, output_dtype=_INT8)
            self.narrow[x] = s8, w.put("Unsqueeze", [steps, "axis_1"], f"{x}.by_token")
        source, by_token = self.narrow[x]
        scale = np.maximum(np.abs(weight).max(axis=1) / np.float32(127), _TINY)
        stored = np.rint(weight / scale[:, None]).astype(np.int8)
        held = [w.hold(f"{name}.s8", stored.T), w.hold(f"{name}.scale", scale)]
        total = w.put(
            "Cast", [w.put("MatMulInteger", [source, held[0]], f"{result}.sums")], f"{result}.total", to=_FLOAT
        )
        return w.put("Mul", [w.put("Mul", [total, by_token], f"{result}.scaled"), held[1]], result)

    def tensor(self, name: str, *shape: int) -> F32:
        self.tensor_type(name, *shape)
        return self.file.array(name)

    def tensor_type(self, name: str, *shape: int) -> str:
        """How a tensor is stored; `InvalidArgument` where it is missing or has another shape."""
        found = self.file.tensors.get(name)
        if found is None or found.shape != shape:
            met = "missing" if found is None else f"of shape {found.shape}"
            raise InvalidArgument(f"tensor {name!r} is {met}; {shape} is needed")
        return found.type


def halves(rows: int, heads: int) -> NDArray[np.intp]:
    """Which stored row stands at each place once a head's neighbours are two halves.

    >>> halves(4, 1).tolist()
    [0, 2, 1, 3]
    """
    places: NDArray[np.intp] = np.arange(rows).reshape(heads, -1, 2).swapaxes(1, 2).reshape(-1)
    return places
