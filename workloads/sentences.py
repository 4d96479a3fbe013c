"""Sentences to embed, and how embeddings are judged against those of f32.

Sentences of eight topics, six each, so that every one has near neighbours to be mistaken for; those of four other
topics calibrate. Each is a sample of its own, padded to the longest one as in a batch. Ratings by people are too coarse
to show what a precision does, so an embedding is compared with its own in f32: by the cosine between the two, and by
whether the nearest of the other sentences is still the same one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from isa_models.errors import InvalidArgument
from workloads import bert, packages, safetensors, untrusted, wordpiece
from workloads.real import Data, Feeds, Metric, RealNetwork

if TYPE_CHECKING:
    import onnx

    from workloads.wordpiece import WordPiece

SENTENCES = (
    "The bread comes out of the oven with a dark, crackling crust.",
    "Knead the dough until it is smooth, then let it rise for an hour.",
    "She grinds the coffee by hand every morning.",
    "A pinch of salt brings out the sweetness of the tomatoes.",
    "The soup needs to simmer slowly for most of the afternoon.",
    "He burned the onions because he was reading the newspaper.",
    "Heavy rain flooded the lower streets of the town.",
    "The storm passed over the coast during the night.",
    "A warm wind from the south melted the last of the snow.",
    "Fog lay over the harbour until noon.",
    "Farmers are waiting for rain after the driest spring in years.",
    "The forecast promises sunshine for the whole weekend.",
    "The midfielder scored twice in the second half.",
    "Our team lost the final after extra time.",
    "She ran the marathon in under three hours.",
    "The goalkeeper saved a penalty in the last minute.",
    "He trains on his bicycle before work.",
    "The swimmer broke her own record by half a second.",
    "The compiler moves the load out of the inner loop.",
    "A cache miss costs more than a hundred cycles here.",
    "The program crashed because the file was truncated.",
    "Vector instructions process sixteen numbers at once.",
    "She found the bug by reading the log from the end.",
    "The new release fixes several security problems.",
    "The central bank raised interest rates by a quarter of a point.",
    "Shares fell sharply after the company cut its forecast.",
    "Rents in the city have doubled within ten years.",
    "The factory will close, and four hundred people will lose their jobs.",
    "Inflation slowed for the third month in a row.",
    "Investors are buying gold because they fear a recession.",
    "The orchestra tuned before the conductor came on stage.",
    "He practises the violin for two hours a day.",
    "Her new album was recorded in an old church.",
    "The choir sang without any accompaniment.",
    "The pianist forgot the middle of the sonata.",
    "We danced until the band packed up its instruments.",
    "The telescope found water in the air of a distant planet.",
    "Astronomers measured the distance to the galaxy anew.",
    "The rocket returned to its launch pad after eight minutes.",
    "Two astronauts repaired the solar panel outside the station.",
    "A comet will be visible just before sunrise.",
    "The probe sent its first pictures of the moon's far side.",
    "The train to the airport leaves every twenty minutes.",
    "Our flight was cancelled because of a strike.",
    "They crossed the mountains on foot in nine days.",
    "The ferry does not run in winter.",
    "He missed his connection and slept at the station.",
    "You need a visa to stay longer than three months.",
)
CALIBRATION = (
    "The doctor told him to rest for a week.",
    "A new vaccine protects against both strains of the virus.",
    "Her broken arm healed faster than expected.",
    "The judge adjourned the trial until Monday.",
    "Both parties signed the contract yesterday evening.",
    "Parliament passed the law with a narrow majority.",
    "The fox crossed the garden without a sound.",
    "Storks nest on the roof of the old mill.",
    "The oak in front of the house is three hundred years old.",
    "The teacher explained fractions with slices of cake.",
    "Students are writing their exams in the gym this week.",
    "The library lends tools as well as books.",
)


def model() -> onnx.ModelProto:
    """The encoder, for as many tokens as the longest sentence has. `SimdnnError` where not fetched."""
    config = untrusted.json_object(untrusted.content(packages.path("minilm", "config.json")), "config.json")
    tensors = safetensors.read(packages.path("minilm", "model.safetensors"))
    tokenizer = tokens()
    return bert.encoder(config, tensors, max(len(tokenizer.encode(text)) for text in SENTENCES + CALIBRATION))


def tokens() -> WordPiece:
    """The tokenizer. `SimdnnError` where not fetched."""
    return wordpiece.read(packages.path("minilm", "vocab.txt"))


def data(model: onnx.ModelProto, count: int, seed: int) -> Data:
    """`count` of the sentences; the seed decides which ones."""
    if not 2 <= count <= len(SENTENCES):
        raise InvalidArgument(f"{count} sentences; 2 to {len(SENTENCES)} of them can be compared")
    order = np.random.default_rng(seed).permutation(len(SENTENCES))[:count]
    width = model.graph.input[0].type.tensor_type.shape.dim[1].dim_value
    tokenizer = tokens()
    return Data(
        samples=[feeds(tokenizer, [SENTENCES[i]], width) for i in order],
        calibration=[feeds(tokenizer, CALIBRATION, width)],
        answer=lambda outputs: outputs["embedding"][0].astype(np.float64),
        score=score,
    )


def feeds(tokenizer: WordPiece, texts: Sequence[str], width: int) -> Feeds:
    """`ids` and `mask` (texts, width) of texts, each cut to `width` tokens or padded."""
    ids = np.full((len(texts), width), tokenizer.numbers["[PAD]"], np.int64)
    mask = np.zeros((len(texts), width), np.float32)
    for row, text in enumerate(texts):
        found = tokenizer.encode(text, width)
        ids[row, : len(found)], mask[row, : len(found)] = found, 1
    return {"ids": ids, "mask": mask}


def score(embeddings: Sequence[NDArray[Any]], reference: Sequence[NDArray[Any]]) -> dict[str, float]:
    """The mean cosine between each embedding and f32's, and the share whose nearest other sentence is f32's.

    >>> round(score(np.eye(3)[[0, 1, 1]], np.array([[1, 0, 0], [0, 1, 0], [0, 0.6, 0.8]]))["cosine"], 3)
    0.867
    """
    found, wanted = (_unit(np.stack(vectors)) for vectors in (embeddings, reference))
    same = _nearest(found) == _nearest(wanted)
    return {"cosine": float(np.mean(np.sum(found * wanted, axis=1))), "same_neighbour": float(np.mean(same))}


def _unit(vectors: NDArray[Any]) -> NDArray[Any]:
    """Rows of length 1; what is no number counts as zero."""
    finite = np.nan_to_num(vectors, posinf=0, neginf=0)
    scaled: NDArray[Any] = finite / np.maximum(np.linalg.norm(finite, axis=1, keepdims=True), 1e-30)
    return scaled


def _nearest(vectors: NDArray[Any]) -> NDArray[Any]:
    """The row that each is most like, itself left out."""
    like = vectors @ vectors.T
    np.fill_diagonal(like, -np.inf)
    found: NDArray[Any] = like.argmax(axis=1)
    return found


NETWORK = RealNetwork(
    name="minilm",
    title="MiniLM-L6",
    samples="sentences",
    count=48,
    metrics=(
        Metric("cosine", "cosine to the f32 embedding", "{:.4f}"),
        Metric("same_neighbour", "nearest sentence as in f32", "{:.1%}"),
    ),
    model=model,
    data=data,
    against_f32=True,
)
