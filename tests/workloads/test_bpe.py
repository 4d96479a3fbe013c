"""Byte-level BPE: words, merges in their order, and every text comes back."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from isa_models import InvalidArgument, Unimplemented
from tests.workloads import gguf_file
from workloads import bpe, gguf, packages
from workloads.bpe import Tokenizer

MERGES = ["h e", "l l", "he ll", "Ġ t", "Ġt he", "hell o", "l o"]
FETCHED = packages.folder() / "llm" / "smollm2-135m.gguf"


def tokenizer() -> Tokenizer:
    pairs = [tuple(merge.split()) for merge in MERGES]
    tokens = ["<|end|>", *bpe.alphabet().values(), *("".join(pair) for pair in pairs)]
    return Tokenizer(tokens, {(a, b): rank for rank, (a, b) in enumerate(pairs)})


def parts(text: str) -> list[str]:
    made = tokenizer()
    return [made.tokens[number] for number in made.encode(text)]


def test_the_first_merge_of_the_list_comes_first() -> None:
    assert parts("hello") == ["hello"]
    assert parts("helo") == ["he", "lo"]
    assert parts("llo") == ["ll", "o"]  # "l l" stands before "l o"
    assert parts("llll") == ["ll", "ll"]
    assert parts(" the") == ["Ġthe"]
    assert parts("the") == ["t", "he"]
    assert parts("é") == ["Ã", "©"]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("We'll see, don't we?", ["We", "'ll", " see", ",", " don", "'t", " we", "?"]),
        ("2026, ½ and x2", ["2", "0", "2", "6", ",", " ", "½", " and", " x", "2"]),
        ("a  b\n\n c", ["a", " ", " b", "\n\n", " c"]),
        ("snake_case __x", ["snake", "_", "case", " __", "x"]),
        ("naïve 東京", ["naïve", " 東京"]),
        ("end  ", ["end", "  "]),
        ("", []),
    ],
)
def test_words(text: str, words: list[str]) -> None:
    assert bpe.words(text) == words


@given(st.text(max_size=30))
def test_every_text_comes_back(text: str) -> None:
    made = tokenizer()
    assert "".join(bpe.words(text)) == text
    assert made.decode(made.encode(text)) == text


@given(st.text("helo t", max_size=12))
def test_merging_as_by_textual_replacement(text: str) -> None:
    """Merge after merge over the whole word: the same where no later merge makes room for an earlier one."""
    wanted = []
    for word in bpe.words(text):
        spelled = " ".join(word.replace(" ", "Ġ"))
        for pair in MERGES:
            pattern = rf"(?<!\S){re.escape(pair)}(?!\S)"
            spelled = re.sub(pattern, pair.replace(" ", ""), spelled)
        wanted += spelled.split(" ")
    assert parts(text) == wanted


def test_what_is_not_known() -> None:
    made = tokenizer()
    with pytest.raises(InvalidArgument, match="token 264; the vocabulary has 264"):
        made.decode([264])
    with pytest.raises(InvalidArgument, match="token -1"):
        made.decode([-1])
    assert made.decode([0, 66, 255]) == "<|end|>" + made.tokens[66] + "\ufffd"
    with pytest.raises(InvalidArgument, match="the vocabulary has no 'x'"):
        Tokenizer(["a"], {}).encode("ax")


@pytest.mark.parametrize(
    ("metadata", "error", "message"),
    [
        ({"tokenizer.ggml.model": "llama"}, Unimplemented, "tokenizer 'llama'"),
        ({"tokenizer.ggml.pre": "llama-bpe"}, Unimplemented, "'llama-bpe'"),
        ({"tokenizer.ggml.merges": ["a b c"]}, InvalidArgument, "'a b c'"),
        ({"tokenizer.ggml.tokens": 3}, InvalidArgument, "tokens"),
    ],
)
def test_from_metadata(tmp_path: Path, metadata: dict[str, object], error: type[Exception], message: str) -> None:
    good = {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "smollm",
        "tokenizer.ggml.tokens": ["a", "b", "ab"],
        "tokenizer.ggml.merges": ["a b"],
    }
    path = tmp_path / "x.gguf"
    path.write_bytes(gguf_file.content(good, {}))
    assert bpe.tokenizer(gguf.read(path)).encode("abba") == [2, 1, 0]
    path.write_bytes(gguf_file.content({**good, **metadata}, {}))
    with pytest.raises(error, match=message):
        bpe.tokenizer(gguf.read(path))


@pytest.mark.skipif(not FETCHED.is_file(), reason="`simdnn fetch-models llm` has not been run")
def test_of_the_real_model() -> None:
    made = bpe.tokenizer(gguf.read(FETCHED))
    numbers = made.encode("The capital of France is")
    assert [made.tokens[n] for n in numbers] == ["The", "Ġcapital", "Ġof", "ĠFrance", "Ġis"]
    text = "In 1984, it's\tnaïve — 東京 costs £12.50!\r\n  Yes?"
    assert made.decode(made.encode(text)) == text
