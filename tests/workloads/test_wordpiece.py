"""Tokens: the rules of BERT's uncased tokenization, on a made-up vocabulary; real sentences where it is fetched."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from isa_models import InvalidArgument
from workloads import packages, wordpiece
from workloads.wordpiece import WordPiece

PIECES = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "un", "##aff", "##able", "a", "##a", "##b", "b", ",", "naive", "文", "字"]
SMALL = WordPiece(PIECES)
HERE = (packages.folder() / "minilm" / "vocab.txt").is_file()


def pieces(text: str) -> list[str]:
    return [PIECES[number] for number in SMALL.encode(text)[1:-1]]


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("unaffable", ["un", "##aff", "##able"]),
        ("aab ab", ["a", "##a", "##b", "a", "##b"]),
        ("bun", ["[UNK]"]),  # its first piece fits, the rest does not
        ("NAÏVE,naïve", ["naive", ",", "naive"]),
        ("文字b", ["文", "字", "b"]),
        ("a\u200b\0\ufffdb", ["a", "##b"]),
        ("a\tb\u3000a\x85", ["a", "b", "a"]),
        ("a" * 100, ["a"] + ["##a"] * 99),
        ("a" * 101, ["[UNK]"]),
        ("[SEP]", ["[UNK]", "[UNK]", "[UNK]"]),
        ("", []),
    ],
)
def test_rules(text: str, wanted: list[str]) -> None:
    assert pieces(text) == wanted


@given(st.text(max_size=30), st.integers(2, 12))
def test_ends_and_length(text: str, most: int) -> None:
    found = SMALL.encode(text, most)
    assert (found[0], found[-1]) == (2, 3) and 2 <= len(found) <= most
    assert found[:-1] == SMALL.encode(text)[: len(found) - 1]


@given(st.text(st.characters(exclude_categories=["C", "Mn"]), max_size=20))
def test_words_lose_nothing_but_spaces_and_case(text: str) -> None:
    plain = "".join("".join(wordpiece.words(c)) for c in text)
    assert "".join(wordpiece.words(text)) == plain
    assert all(word and not word.isspace() for word in wordpiece.words(text))


def test_vocabularies(tmp_path: Path) -> None:
    file = tmp_path / "vocab.txt"
    file.write_text("\n".join(PIECES) + "\n", encoding="utf-8")
    assert wordpiece.read(file).encode("unaffable, 文") == SMALL.encode("unaffable, 文")
    file.write_bytes(b"[UNK]\n[CLS]\n\xff")
    with pytest.raises(InvalidArgument, match="no UTF-8"):
        wordpiece.read(file)
    with pytest.raises(InvalidArgument, match=r"2 pieces without \[CLS\]"):
        WordPiece(["[UNK]", "a"])


@pytest.mark.skipif(not HERE, reason="`simdnn fetch-models minilm` has not been run")
@pytest.mark.parametrize(
    ("text", "wanted"),
    [  # as BertWordPieceTokenizer of the tokenizers package, 0.23.3, gives them
        (
            "She grinds the coffee by hand every morning.",
            [101, 2016, 23088, 2015, 1996, 4157, 2011, 2192, 2296, 2851, 1012, 102],
        ),
        (
            "Naïve café-goers (über 3.5€) antidisestablishmentarianism 東京!",
            [
                101,
                15743,
                7668,
                1011,
                2175,
                2545,
                1006,
                19169,
                1017,
                1012,
                1019,
                30102,
                1007,
                3424,
                10521,
                4355,
                7875,
                13602,
                3672,
                12199,
                2964,
                1879,
                1755,
                999,
                102,
            ],
        ),
    ],
)
def test_the_real_vocabulary(text: str, wanted: list[int]) -> None:
    assert wordpiece.read(packages.path("minilm", "vocab.txt")).encode(text) == wanted
