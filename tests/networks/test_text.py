"""Operators on text: by hand, and beside onnxruntime on this host."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import simdnn
from tests.effort import examples

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")
from onnx import helper  # noqa: E402

from tests.networks import peer  # noqa: E402

WORDS = ("the", "Cat", "a-b", "12", "", "naïve", "foo_bar", "日本 x", "x.y,z")


def model(op: str, feeds: dict[str, Any], domain: str = "", outputs: int = 1, **attributes: Any) -> Any:
    kinds = {n: 8 if x.dtype == object else helper.np_dtype_to_tensor_dtype(x.dtype) for n, x in feeds.items()}
    ports = [helper.make_tensor_value_info(name, kind, feeds[name].shape) for name, kind in kinds.items()]
    names = [f"y{i}" for i in range(outputs)]
    layer = helper.make_node(op, list(feeds), names, "it", domain=domain, **attributes)
    graph = helper.make_graph([layer], "g", ports, [onnx.ValueInfoProto(name=name) for name in names])
    opsets = [helper.make_opsetid(*each) for each in (("", 20), ("com.microsoft", 1), ("ai.onnx.ml", 3))]
    return helper.make_model(graph, opset_imports=opsets, ir_version=9)


def found(op: str, *x: Any, domain: str = "", outputs: int = 1, **attributes: Any) -> list[Any]:
    feeds = {f"x{i}": each for i, each in enumerate(x)}
    made = model(op, feeds, domain, outputs, **attributes)
    return list(simdnn.load(made).run(feeds, **peer.ALIKE).outputs.values())


def same_as_library(op: str, *x: Any, domain: str = "", outputs: int = 1, **attributes: Any) -> None:
    feeds = {f"x{i}": each for i, each in enumerate(x)}
    made = model(op, feeds, domain, outputs, **attributes)
    got = simdnn.load(made).run(feeds, **peer.ALIKE).outputs
    for mine, wanted in zip(got.values(), peer.outputs(made, feeds), strict=True):
        assert mine.shape == wanted.shape and (mine.dtype == wanted.dtype or wanted.dtype.kind in "OU")
        assert mine.tolist() == wanted.tolist()


def text(*texts: str) -> Any:
    return np.array(texts, object)


def test_case_and_stop_words() -> None:
    """By hand: the library needs a locale that this host may not have."""
    x = text("The", "CAT", "straße", "the")
    assert found("StringNormalizer", x, case_change_action="LOWER")[0].tolist() == ["the", "cat", "straße", "the"]
    assert found("StringNormalizer", x, case_change_action="UPPER")[0].tolist() == ["THE", "CAT", "STRAßE", "THE"]
    any_case = {"stopwords": ["THE"], "is_case_sensitive": 0}
    assert found("StringNormalizer", x, **any_case)[0].tolist() == ["CAT", "straße"]
    assert found("StringNormalizer", x[None, :1], **any_case)[0].tolist() == [[""]]
    same_as_library("StringNormalizer", x, stopwords=["the"], is_case_sensitive=1)


@examples(12)
@given(st.integers(0, 10**6), st.sampled_from(["[a-zA-Z0-9_]+", ".", "[^ ]+", r"\d*", " ", "-| ", ""]))
def test_tokens_beside_the_library(seed: int, pattern: str) -> None:
    rng = np.random.default_rng(seed)
    x = text(*(" ".join(rng.choice(WORDS, int(rng.integers(0, 5)))) for _ in range(4))).reshape(2, 2)
    where: dict[str, Any] = {"tokenexp": pattern} if len(pattern) in (1, 13, 5, 4) and pattern != " " else {}
    where = where or {"separators": [pattern]}
    least = 1 if pattern in (".", "") else seed % 3 + 1
    same_as_library("Tokenizer", x, domain="com.microsoft", mark=seed % 2, mincharnum=least, pad_value="#", **where)


@examples(12)
@given(st.integers(0, 10**6), st.sampled_from(["TF", "IDF", "TFIDF"]), st.booleans(), st.booleans())
def test_counts_of_n_grams_beside_the_library(seed: int, mode: str, whole: bool, weighted: bool) -> None:
    rng = np.random.default_rng(seed)
    alone = rng.permutation(7)[:4].tolist()
    pairs = sorted({(int(a), int(b)) for a, b in rng.integers(0, 7, (5, 2))})
    pool = [*alone, *(item for pair in pairs for item in pair)]
    count = len(alone) + len(pairs)
    shortest = seed % 2 + 1
    where: dict[str, Any] = {"mode": mode, "min_gram_length": shortest, "max_gram_length": 2, "ngram_counts": [0, 4]}
    where |= {"max_skip_count": seed % 3, "ngram_indexes": rng.permutation(count).tolist()}
    where |= {"weights": rng.standard_normal(count).astype(np.float32).tolist()} if weighted else {}
    x = rng.integers(0, 7, (3, 8))
    if whole:
        same_as_library("TfIdfVectorizer", x, pool_int64s=pool, **where)
    else:
        named = text(*(f"w{v}" for v in x.reshape(-1))).reshape(x.shape)
        same_as_library("TfIdfVectorizer", named, pool_strings=[f"w{v}" for v in pool], **where)


def test_hashes_parts_and_tables_beside_the_library() -> None:
    x = text(*WORDS, "  two  words ")
    for unsigned in (0, 1):
        same_as_library("MurmurHash3", x, domain="com.microsoft", seed=3, positive=unsigned)
    numbers = np.array([[0, -1], [1 << 30, 77]], np.int32)
    same_as_library("MurmurHash3", numbers, domain="com.microsoft")
    same_as_library("StringConcat", x, text("!"))
    same_as_library("RegexFullMatch", x, pattern="[a-z]+")
    same_as_library("StringSplit", x, outputs=2)
    same_as_library("StringSplit", x, outputs=2, maxsplit=1)
    same_as_library("StringSplit", x, outputs=2, delimiter="-", maxsplit=0)
    cats = {"cats_strings": ["the", "Cat"], "cats_int64s": [4, 9]}
    same_as_library("CategoryMapper", x, domain="ai.onnx.ml", **cats)
    same_as_library("CategoryMapper", np.array([9, 5]), domain="ai.onnx.ml", **cats)


@pytest.mark.parametrize(
    ("op", "where", "why"),
    [
        ("Tokenizer", {"tokenexp": "("}, "regular expression"),
        ("Tokenizer", {}, "separators or tokenexp"),
        ("StringNormalizer", {"case_change_action": "TITLE"}, "case_change_action='TITLE'; allowed: LOWER"),
    ],
)
def test_what_does_not_fit_is_named(op: str, where: dict[str, Any], why: str) -> None:
    with pytest.raises(simdnn.InvalidArgument, match=why):
        found(op, text("a"), domain="com.microsoft" if op == "Tokenizer" else "", **where)


def test_text_has_no_cost() -> None:
    x = {"x": text("a b")}
    made = simdnn.load(model("Tokenizer", x, "com.microsoft", separators=[" "], mincharnum=1, pad_value="", mark=0))
    with pytest.raises(simdnn.UnknownTiming, match="text"):
        _ = made.run(x, machine="zen4").cycles
