"""Llama from a small GGUF file, all the way: beside a forward pass written here, and beside onnxruntime."""

from __future__ import annotations

import functools
from pathlib import Path
from string import ascii_letters
from typing import Any

import numpy as np
import pytest

import simdnn
from isa_models import InvalidArgument, Unimplemented
from tests.workloads import gguf_file
from tests.workloads.gguf_file import Raw
from workloads import gguf, llama

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")
from tests.effort import one_in  # noqa: E402
from tests.networks import peer  # noqa: E402

LAYERS, WIDTH, HEADS, KV_HEADS, HIDDEN, WORDS, PLACES = 2, 64, 4, 2, 96, 40, 160
HEAD = WIDTH // HEADS
METADATA: dict[str, Any] = {
    "general.architecture": "llama",
    "llama.block_count": LAYERS,
    "llama.embedding_length": WIDTH,
    "llama.attention.head_count": HEADS,
    "llama.attention.head_count_kv": KV_HEADS,
    "llama.feed_forward_length": HIDDEN,
    "llama.context_length": PLACES,
    "llama.rope.freq_base": 100.0,
    "llama.attention.layer_norm_rms_epsilon": 1e-5,
    "tokenizer.ggml.tokens": list(ascii_letters[:WORDS]),
    "tokenizer.ggml.model": "gpt2",
    "tokenizer.ggml.pre": "smollm",
    "tokenizer.ggml.merges": [],
}
TOKENS = [3, 14, 15, 9, 26, 5, 35, 8, 9, 7]


def tensors(head: bool = False) -> dict[str, Raw]:
    rng = np.random.default_rng(0)

    def matrix(rows: int, columns: int) -> Raw:
        shape = rows, columns // 32
        scale = rng.uniform(0.02, 0.06, shape)
        return gguf_file.q4_1(rng.integers(0, 16, (*shape, 32)), scale, -8 * scale + rng.normal(0, 0.02, shape))

    def table() -> Raw:
        return gguf_file.q8_0(rng.integers(-127, 128, (WORDS, WIDTH // 32, 32)), rng.uniform(0.01, 0.02, (WORDS, 2)))

    def norm() -> Raw:
        return gguf_file.f32(rng.uniform(0.5, 1.5, WIDTH))

    found = {"token_embd.weight": table(), "output_norm.weight": norm()}
    for i in range(LAYERS):
        found |= {
            f"blk.{i}.{name}.weight": made
            for name, made in {
                "attn_norm": norm(),
                "ffn_norm": norm(),
                "attn_q": matrix(WIDTH, WIDTH),
                "attn_k": matrix(KV_HEADS * HEAD, WIDTH),
                "attn_v": matrix(KV_HEADS * HEAD, WIDTH),
                "attn_output": matrix(WIDTH, WIDTH),
                "ffn_gate": matrix(HIDDEN, WIDTH),
                "ffn_up": matrix(HIDDEN, WIDTH),
                "ffn_down": matrix(WIDTH, HIDDEN),
            }.items()
        }
    return found | ({"output.weight": table()} if head else {})


def file(folder: Path, changed: dict[str, Any] | None = None, weights: dict[str, Raw] | None = None) -> gguf.Gguf:
    path = folder / "tiny.gguf"
    path.write_bytes(gguf_file.content(METADATA | (changed or {}), tensors() if weights is None else weights))
    return gguf.read(path)


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> gguf.Gguf:
    return file(tmp_path_factory.mktemp("tiny"))


session = functools.cache(peer.session)


def by_runtime(made: Any, feeds: llama.Feeds) -> llama.Feeds:
    found = session(made.SerializeToString())
    names = [output.name for output in found.get_outputs()]
    return dict(zip(names, found.run(names, feeds), strict=True))


def by_hand(of: gguf.Gguf, tokens: list[int]) -> Any:
    """Logits of all positions, token by token in f64, neighbours rotated as GGUF stores them."""
    w = {name: of.array(name).astype(np.float64) for name in of.tensors}

    def norm(x: Any, name: str) -> Any:
        return x / np.sqrt((x**2).mean() + 1e-5) * w[f"{name}.weight"]

    def rotate(vector: Any, place: int) -> Any:
        turned = vector.copy()
        for pair in range(HEAD // 2):
            angle = place * 100.0 ** (-2 * pair / HEAD)
            a, b = vector[2 * pair], vector[2 * pair + 1]
            turned[2 * pair] = a * np.cos(angle) - b * np.sin(angle)
            turned[2 * pair + 1] = a * np.sin(angle) + b * np.cos(angle)
        return turned

    keys: list[list[Any]] = [[] for _ in range(LAYERS)]
    values: list[list[Any]] = [[] for _ in range(LAYERS)]
    logits = []
    for place, token in enumerate(tokens):
        x = w["token_embd.weight"][token]
        for i in range(LAYERS):
            h = norm(x, f"blk.{i}.attn_norm")
            q, k, v = (w[f"blk.{i}.attn_{part}.weight"] @ h for part in "qkv")
            keys[i].append([rotate(head, place) for head in k.reshape(KV_HEADS, HEAD)])
            values[i].append(v.reshape(KV_HEADS, HEAD))
            heads = []
            for head, query in enumerate(q.reshape(HEADS, HEAD)):
                shared = head // (HEADS // KV_HEADS)
                scores = np.array([rotate(query, place) @ key[shared] for key in keys[i]]) / np.sqrt(HEAD)
                power = np.exp(scores - scores.max())
                heads.append(sum(p * v[shared] for p, v in zip(power / power.sum(), values[i], strict=True)))
            x = x + w[f"blk.{i}.attn_output.weight"] @ np.concatenate(heads)
            h = norm(x, f"blk.{i}.ffn_norm")
            gate = w[f"blk.{i}.ffn_gate.weight"] @ h
            x = x + w[f"blk.{i}.ffn_down.weight"] @ (gate / (1 + np.exp(-gate)) * (w[f"blk.{i}.ffn_up.weight"] @ h))
        logits.append(w.get("output.weight", w["token_embd.weight"]) @ norm(x, "output_norm"))
    return np.array(logits)


def run(made: Any, feeds: llama.Feeds) -> llama.Feeds:
    return simdnn.load(made).run(feeds, machine="zen4").outputs


@pytest.mark.parametrize("weights", ["f32", "own"])
def test_logits_are_those_of_the_formulas(tiny: gguf.Gguf, weights: str) -> None:
    """f32 weights, or u4 ones with their minima: neither rounds a weight."""
    made = llama.network(tiny, weights)
    onnx.checker.check_model(made)
    feeds = llama.feeds(llama.sizes(tiny), TOKENS)
    found, wanted = run(made, feeds), by_hand(tiny, TOKENS)
    assert np.abs(wanted).max() > 1
    np.testing.assert_allclose(found["logits"], wanted, atol=2e-5 * np.abs(wanted).max())
    for name, values in by_runtime(made, feeds).items():
        np.testing.assert_allclose(found[name], values, atol=2e-5 * np.abs(values).max(), err_msg=name)
    kinds = {node.op_type for node in made.graph.node}
    assert ("MatMulNBits" in kinds) == (weights == "own")


def test_products_with_blocks_are_those_of_ggml(tiny: gguf.Gguf) -> None:
    """Each MulMat is the matmul with its blocks, under "ggml" and "fastest" alike; the other products are untouched."""
    made, feeds = llama.network(tiny, "ggml"), llama.feeds(llama.sizes(tiny), TOKENS)
    network, met = simdnn.load(made), {}

    def watch(node: Any, given: Any) -> None:
        met[node.name] = given[0]

    found = network.run(feeds, machine="hsw", dispatch="ggml", watch=watch)
    nodes = [node for node in made.graph.node if node.op_type == "MulMat"]
    assert len(nodes) == 7 * LAYERS + 1 and {node.domain for node in nodes} == {"ggml"}
    held = {constant.name: onnx.numpy_helper.to_array(constant) for constant in made.graph.initializer}
    for node in nodes[:9]:
        blocks = simdnn.ggml_blocks(held[node.input[1]], node.attribute[0].s.decode())
        product = simdnn.matmul(met[node.input[0]], blocks, machine="hsw", dispatch="ggml")
        assert product.output.tobytes() == met[node.name].tobytes()
    assert run(made, feeds)["logits"].shape == found.outputs["logits"].shape
    noise = np.abs(found.outputs["logits"] - (exact := by_hand(tiny, TOKENS))).max() / np.abs(exact).max()
    assert 1e-4 < noise < 0.05
    rows = network.estimate(feeds, machine="hsw", dispatch="ggml").to_frame()
    kinds = rows.groupby("op").implementation.agg(lambda names: {name.split(":")[0] for name in names})
    assert kinds["MulMat"] == {"vec_dot"} and "vec_dot" not in kinds["MatMul"]
    with pytest.raises(simdnn.Unimplemented, match="ggml of a model that has no weights in its blocks"):
        simdnn.load(llama.network(tiny, "own")).estimate(feeds, machine="hsw", dispatch="ggml")


def test_s8_by_token(tiny: gguf.Gguf) -> None:
    """Near f32's logits, and as a runtime has them but for what falls to the other side of a rounding."""
    made, feeds = llama.network(tiny, "s8"), llama.feeds(llama.sizes(tiny), TOKENS)
    onnx.checker.check_model(made)
    found, exact = run(made, feeds)["logits"], by_hand(tiny, TOKENS)
    noise = np.abs(found - exact).max() / np.abs(exact).max()
    assert 1e-4 < noise < 0.05
    np.testing.assert_allclose(found, by_runtime(made, feeds)["logits"], atol=noise * np.abs(exact).max() / 2)


@one_in(2)
@pytest.mark.parametrize("weights", [pytest.param("f32", marks=pytest.mark.sweep), "own", "s8"])
def test_one_token_after_the_other_is_the_same(tiny: gguf.Gguf, weights: str) -> None:
    """Scales of tokens are their own, so that int8 does not change with what else is read."""
    size, made = llama.sizes(tiny), llama.network(tiny, weights)
    together = run(made, llama.feeds(size, TOKENS))["logits"]
    outputs = run(made, llama.feeds(size, TOKENS[:8], wanted=[7]))
    assert outputs["logits"].shape == (1, WORDS)
    logits = [outputs["logits"][0]]
    for token in TOKENS[8:]:
        outputs = run(made, llama.feeds(size, [token], llama.caches_of(outputs)))
        logits.append(outputs["logits"][0])
    near = {"f32": 2e-5, "own": 2e-5, "s8": 1e-2}[weights]  # a rounding of s8 may fall to the other side
    np.testing.assert_allclose(logits, together[7:], atol=near * np.abs(together).max())
    assert outputs["new_key_0"].shape == (KV_HEADS, HEAD, len(TOKENS))


def test_a_head_of_its_own(tmp_path: Path) -> None:
    apart = file(tmp_path, weights=tensors(head=True))
    wanted = by_hand(apart, TOKENS[:3])
    for weights in ("f32", "own"):
        found = run(llama.network(apart, weights), llama.feeds(llama.sizes(apart), TOKENS[:3]))["logits"]
        np.testing.assert_allclose(found, wanted, atol=2e-5 * np.abs(wanted).max())


def test_cost_of_a_prompt_and_of_a_token(tiny: gguf.Gguf) -> None:
    size, network = llama.sizes(tiny), simdnn.load(llama.network(tiny))
    rows = LAYERS * (2 * WIDTH * (WIDTH + KV_HEADS * HEAD) + 3 * WIDTH * HIDDEN)
    for tokens, past in ((8, 0), (1, 16)):
        feeds = llama.feeds(size, [1] * tokens, llama.blank(size, past), wanted=[tokens - 1])
        cost = network.estimate(feeds, machine="icx")
        attention = LAYERS * 2 * HEADS * HEAD * tokens * (past + tokens)
        assert cost.macs == tokens * rows + attention + WIDTH * WORDS
        assert cost.cycles > 0


@pytest.mark.parametrize(
    ("changed", "error", "message"),
    [
        ({"general.architecture": "gemma"}, Unimplemented, "'gemma'; 'llama' is known"),
        ({"llama.attention.head_count": 3}, InvalidArgument, "heads=3"),
        ({"llama.attention.head_count_kv": 3}, InvalidArgument, "kv_heads=3"),
        ({"llama.attention.head_count": 0}, InvalidArgument, "heads=0"),
        ({"llama.block_count": 3}, InvalidArgument, r"'blk\.2\.attn_norm\.weight' is missing"),
        ({"llama.block_count": "3"}, InvalidArgument, "llama.block_count"),
        ({"llama.feed_forward_length": 64}, InvalidArgument, r"ffn_gate.*of shape \(96, 64\); \(64, 64\) is needed"),
        ({"llama.context_length": 1 << 20}, InvalidArgument, "1048576"),
        ({"llama.rope.freq_base": -1.0}, InvalidArgument, "rope_base"),
        ({"llama.rope.dimension_count": 8}, Unimplemented, "all 16"),
    ],
)
def test_what_does_not_fit(tmp_path: Path, changed: dict[str, Any], error: Any, message: str) -> None:
    with pytest.raises(error, match=message):
        llama.network(file(tmp_path, changed))


def test_unknown_weights(tiny: gguf.Gguf) -> None:
    with pytest.raises(InvalidArgument, match="weights='s4'; allowed: f32, own, ggml, s8"):
        llama.network(tiny, "s4")


def test_too_many_tokens(tiny: gguf.Gguf) -> None:
    size = llama.sizes(tiny)
    with pytest.raises(InvalidArgument, match="161 tokens after 0; 1 to 160"):
        llama.feeds(size, [0] * 161)
    with pytest.raises(InvalidArgument, match="2 tokens after 159; 1 to 1"):
        llama.feeds(size, [0, 0], llama.blank(size, 159))
    with pytest.raises(InvalidArgument, match="0 tokens"):
        llama.feeds(size, [])
