"""Windows of text, perplexity; and, where it is fetched, the real model's own figures."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import simdnn
from isa_models import InvalidArgument
from simdnn.cli import main, run_prompt
from tests.workloads import gguf_file, test_llama
from workloads import bpe, gguf, language_model, llama, packages
from workloads.bpe import Tokenizer
from workloads.language_model import WINDOW, quality, windows

HERE = all((packages.folder() / "llm" / name).is_file() for name in ("smollm2-135m.gguf", "news.txt"))
LETTERS = Tokenizer(list(bpe.alphabet().values()), {})


def documents(count: int) -> list[str]:
    """Every other one is too short; the long ones begin with a letter of their own."""
    return [chr(ord("A") + i) + "x" * (WINDOW if i % 2 else 5) for i in range(count)]


def first_letters(found: list[list[int]]) -> str:
    return "".join(LETTERS.decode(window)[0] for window in found)


def test_windows_are_apart_from_what_calibrates() -> None:
    test, calibration = windows(LETTERS, documents(16), 3)
    assert (first_letters(test), first_letters(calibration)) == ("BDF", "PN")
    assert {len(window) for window in test + calibration} == {WINDOW}
    assert first_letters(windows(LETTERS, documents(16), 3, seed=1)[0]) == "HJL"
    for count, seed in ((7, 0), (3, 2), (0, 0)):
        with pytest.raises(InvalidArgument, match=f"{count} windows of 128 tokens with seed {seed}; 16 documents"):
            windows(LETTERS, documents(16), count, seed)


def test_perplexity_is_that_of_the_probabilities() -> None:
    rng = np.random.default_rng(0)
    logits = [rng.normal(size=(5, 7)) * 3 + 100, rng.normal(size=(3, 7))]
    tokens = [[0, 3, 2, 6, 1], [4, 4, 0]]
    chance, right = 1.0, 0
    for scores, window in zip(logits, tokens, strict=True):
        for row, token in zip(scores, window[1:], strict=False):
            chance *= np.exp(row[token]) / sum(np.exp(row))
            right += token == max(range(7), key=lambda i: row[i])
    found = quality(logits, tokens)
    assert found["perplexity"] == pytest.approx(chance ** (-1 / 6))
    assert found["next_token"] == pytest.approx(right / 6)


@pytest.fixture
def fetched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The tiny model and letters for news where the fetched ones would be."""
    monkeypatch.setenv("SIMDNN_MODELS", str(tmp_path))
    folder = tmp_path / "llm"
    folder.mkdir()
    (folder / "smollm2-135m.gguf").write_bytes(gguf_file.content(test_llama.METADATA, test_llama.tensors()))
    rng = np.random.default_rng(0)
    (folder / "news.txt").write_text("\n".join("".join(rng.choice(list("abcdefgh"), 130)) for _ in range(4)))
    return folder / "smollm2-135m.gguf"


def test_run_llm(fetched: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A tiny model all the way: its stored weights say the same as those in f32, and each phase has its speed."""
    words = ["run", "llm", "--machine", "icx", "--modes", "f32,q4_1", "--samples", "1", "--json"]
    assert main(words) == 0
    rows = {(row["mode"], row["phase"]): row for row in json.loads(capsys.readouterr().out)["totals"]}
    assert len(rows) == 4 and {phase for _, phase in rows} == {"prefill 128", "decode"}
    exact = rows["f32", "decode"]
    assert exact["perplexity"] > 1 and exact["samples"] == 1
    assert rows["q4_1", "decode"]["perplexity"] == pytest.approx(exact["perplexity"], rel=1e-5)
    for (_, phase), row in rows.items():
        tokens = {"prefill 128": 128, "decode": 1}[phase]
        assert row["tokens_per_s"] == pytest.approx(tokens * 1e6 / row["time_us"])


def test_prompt(fetched: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """The likeliest letter after all those before, one after the other."""
    monkeypatch.setattr(run_prompt, "TOKENS", 4)
    file = gguf.read(fetched)
    letters = test_llama.METADATA["tokenizer.ggml.tokens"]
    text = "hello"
    for _ in range(4):
        logits = test_llama.by_hand(file, [letters.index(letter) for letter in text])
        text += letters[int(logits[-1].argmax())]
    assert main(["run", "llm", "--machine", "icx", "--prompt", "hello"]) == 0
    assert capsys.readouterr().out == f"f32: {text}\n"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["llm", "--prompt", "a", "--samples", "3"], "says nothing about fetched language models with --prompt"),
        (["llm", "--prompt", ""], "the beginning of a text is needed"),
        (["llm", "--prompt", "a-b"], "the vocabulary has no '-'"),
        (["ocr", "--prompt", "a"], "--prompt is for fetched language models"),
        (["digits", "--prompt", "a"], "--prompt is for"),
        (["llm", "--samples", "3"], "3 windows of 128 tokens with seed 0; 4 documents are not enough"),
    ],
)
def test_what_a_command_cannot_do(
    fetched: Path, words: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["run", *words]) == 2
    assert message in capsys.readouterr().err


@pytest.mark.sweep
@pytest.mark.skipif(not HERE, reason="`simdnn fetch-models llm` has not been run")
def test_the_real_model_knows_a_capital() -> None:
    file = language_model._file()
    size, tokens = llama.sizes(file), bpe.tokenizer(file)
    feeds = llama.feeds(size, prompt := tokens.encode("The capital of France is"), wanted=[4])
    assert len(prompt) == 5
    for weights in ("f32", "own"):
        logits = simdnn.load(language_model.model(weights)).run(feeds, machine="zen4").outputs["logits"]
        assert tokens.decode([int(logits[0].argmax())]) == " Paris"
