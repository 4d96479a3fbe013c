"""A language model reading news: how well it foretells the next token, and how long a prompt and a token take.

Windows are the first 128 tokens of documents that are as long, and each of their tokens but the first is foretold from
those before it. Perplexity is e to the mean of -ln p over all foretold tokens, p being the probability that the model
gave the one that came. The documents are the 300 news reports of M. Lee, B. Pincombe and M. Welsh ("An empirical
evaluation of models of text document similarity", CogSci 2005) that gensim carries as its tests' data.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from isa_models.errors import InvalidArgument
from workloads import bpe, gguf, llama, packages
from workloads.bpe import Tokenizer
from workloads.gguf import Gguf
from workloads.real import CostPhase, Data, Feeds, Metric, Outputs, RealNetwork, StoredVariant

if TYPE_CHECKING:
    import onnx

WINDOW = 128
CALIBRATION_WINDOWS = 2


def model(weights: str = "f32") -> onnx.ModelProto:
    """SmolLM2-135M-Instruct with weights as `llama.network` takes them. `SimdnnError` where not fetched."""
    return llama.network(_file(), weights)


def data(model: onnx.ModelProto, count: int, seed: int) -> Data:
    """Windows of the news, those to calibrate with from other documents; a prompt and a token after it as phases."""
    del model  # its sizes are in the file
    file = _file()
    size, tokens = llama.sizes(file), bpe.tokenizer(file)
    test, calibration = windows(tokens, news(), count, seed)

    def score(logits: Sequence[NDArray[Any]], _: Sequence[Any]) -> dict[str, float]:
        return quality(logits, test)

    return Data(
        [llama.feeds(size, window) for window in test],
        [llama.feeds(size, window) for window in calibration],
        lambda outputs: outputs["logits"],
        score,
        (
            CostPhase(f"prefill {WINDOW}", llama.feeds(size, test[0], wanted=[WINDOW - 1]), tokens=WINDOW),
            CostPhase("decode", llama.feeds(size, test[0][:1], llama.blank(size, WINDOW)), tokens=1),
        ),
    )


def continues(run: Callable[[Feeds], Outputs], text: str, count: int) -> Iterator[str]:
    """At most `count` new tokens after a text, always the likeliest; `run` runs the program once.

    Raises `InvalidArgument` for no text, or one that is too long.
    """
    file = _file()
    size, tokens = llama.sizes(file), bpe.tokenizer(file)
    end = file.get("tokenizer.ggml.eos_token_id", int, -1)
    read = tokens.encode(text)
    outputs = run(llama.feeds(size, read, wanted=[len(read) - 1]))
    for left in reversed(range(count)):
        token = int(outputs["logits"][0].argmax())
        if token == end:
            return
        yield tokens.decode([token])
        if left:
            outputs = run(llama.feeds(size, [token], llama.caches_of(outputs)))


NETWORK = RealNetwork(
    name="llm",
    title="SmolLM2-135M",
    samples=f"windows of {WINDOW} tokens of news",
    count=8,
    few=1,  # which has 128 tokens, each with all its logits
    metrics=(
        Metric("perplexity", "perplexity of the next token", "{:.2f}", higher_is_better=False),
        Metric("next_token", "share of tokens foretold", "{:.1%}"),
    ),
    model=model,
    data=data,
    variants={
        "q4_1": StoredVariant(
            "its own u4 weights in groups of 32 with float minima, f32 arithmetic", lambda: model("own")
        ),
        "q4_1-bf16": StoredVariant("its own u4 weights, bf16 allowed inside", lambda: model("own"), fpmath="bf16"),
        "ggml": StoredVariant(
            "its own blocks, activations quantized by blocks: ggml's dot products", lambda: model("ggml")
        ),
        "int8-token": StoredVariant("s8 x s8, a scale for each token and each output channel", lambda: model("s8")),
    },
    continues=continues,
)


def news() -> list[str]:
    """The documents. `SimdnnError` where not fetched."""
    return packages.path("llm", "news.txt").read_text(encoding="utf-8").splitlines()


def windows(
    tokens: Tokenizer, documents: Sequence[str], count: int, seed: int = 0
) -> tuple[list[list[int]], list[list[int]]]:
    """`count` windows in the documents' order, from the `seed`th such lot on, and `CALIBRATION_WINDOWS` from the end.

    Raises `InvalidArgument` where there are too few documents of `WINDOW` tokens.
    """
    last = list(islice(_starts(tokens, documents[::-1]), CALIBRATION_WINDOWS))
    rest = documents[: len(documents) - last[-1][0] - 1] if len(last) == CALIBRATION_WINDOWS else []
    found = list(islice(_starts(tokens, rest), seed * count, (seed + 1) * count))
    if count < 1 or len(found) < count:
        raise InvalidArgument(
            f"{count} windows of {WINDOW} tokens with seed {seed}; {len(documents)} documents are not enough for "
            f"{seed * count + count} and {CALIBRATION_WINDOWS} to calibrate with"
        )
    return [window for _, window in found], [window for _, window in last]


def quality(logits: Sequence[NDArray[Any]], tokens: Sequence[Sequence[int]]) -> dict[str, float]:
    """Perplexity, and the share of tokens that had the highest logit: of logits (n, vocabulary) for n tokens each.

    >>> found = quality([np.log([[0.5, 0.25, 0.25], [0.25, 0.5, 0.25], [1, 1, 1]])], [[2, 0, 0]])
    >>> round(found["perplexity"], 3), found["next_token"]
    (2.828, 0.5)
    """
    lost: list[NDArray[np.float64]] = []
    right: list[NDArray[np.bool_]] = []
    for scores, window in zip(logits, tokens, strict=True):
        wanted, told = np.array(window[1:]), scores[:-1].astype(np.float64)
        top = told.max(axis=1)
        total = np.log(np.exp(told - top[:, None]).sum(axis=1)) + top
        lost.append(total - told[np.arange(len(wanted)), wanted])
        right.append(told.argmax(axis=1) == wanted)
    return {"perplexity": float(np.exp(np.concatenate(lost).mean())), "next_token": float(np.concatenate(right).mean())}


def _starts(tokens: Tokenizer, documents: Sequence[str]) -> Iterator[tuple[int, list[int]]]:
    """(position, first WINDOW tokens) of each document that has at least WINDOW tokens."""
    for position, document in enumerate(documents):
        window = tokens.encode(document)[:WINDOW]
        if len(window) == WINDOW:
            yield position, window


def _file() -> Gguf:
    return _opened(packages.path("llm", "smollm2-135m.gguf"))


@functools.lru_cache(maxsize=1)
def _opened(path: Path) -> Gguf:
    return gguf.read(path)
