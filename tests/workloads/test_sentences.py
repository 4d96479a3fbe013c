"""Sentences and how their embeddings are judged; where fetched, the real encoder as onnxruntime runs it."""

from __future__ import annotations

import numpy as np
import onnxruntime
import pytest

import simdnn
from isa_models import InvalidArgument
from workloads import packages, sentences

HERE = all((packages.folder() / "minilm" / name).is_file() for name in ("model.safetensors", "vocab.txt"))
needs_model = pytest.mark.skipif(not HERE, reason="`simdnn fetch-models minilm` has not been run")


def test_score() -> None:
    rng = np.random.default_rng(0)
    vectors = list(rng.normal(size=(6, 16)))
    assert sentences.score(vectors, vectors) == {"cosine": pytest.approx(1), "same_neighbour": 1}
    assert sentences.score([3 * v for v in vectors], vectors)["cosine"] == pytest.approx(1)
    assert sentences.score([-v for v in vectors], vectors) == {"cosine": pytest.approx(-1), "same_neighbour": 1}
    lost = sentences.score([np.full(16, np.nan)] * 6, vectors)
    assert lost["cosine"] == 0 and lost["same_neighbour"] < 1


def test_no_sentence_twice() -> None:
    every = sentences.SENTENCES + sentences.CALIBRATION
    assert len(set(every)) == len(every) and len(sentences.SENTENCES) == sentences.NETWORK.count


@needs_model
def test_the_real_encoder() -> None:
    """Sentences that say the same are near each other; onnxruntime agrees; neither batch nor padding matters."""
    model, tokens = sentences.model(), sentences.tokens()
    width = model.graph.input[0].type.tensor_type.shape.dim[1].dim_value
    texts = ["A man is playing a guitar.", "Someone plays the guitar.", "The stock market fell."]
    feeds = sentences.feeds(tokens, texts, width)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    wanted = session.run(["embedding"], dict(feeds))[0]
    near, far = wanted[0] @ wanted[1], wanted[0] @ wanted[2]
    assert near > 0.8 and far < 0.2
    np.testing.assert_allclose(np.linalg.norm(wanted, axis=1), 1, atol=1e-5)
    one = sentences.feeds(tokens, texts[1:2], width)
    found = simdnn.load(model).run(one, machine="zen4").outputs["embedding"]
    np.testing.assert_allclose(found[0], wanted[1], atol=1e-5)


@needs_model
def test_which_sentences() -> None:
    model = sentences.model()
    few, more = sentences.data(model, 4, 3), sentences.data(model, 6, 3)
    for a, b in zip(few.samples, more.samples, strict=False):
        np.testing.assert_array_equal(a["ids"], b["ids"])
    assert all(sample["mask"].sum() == np.count_nonzero(sample["ids"]) > 4 for sample in more.samples)
    for count in (1, 49):
        with pytest.raises(InvalidArgument, match=f"{count} sentences; 2 to 48"):
            sentences.data(model, count, 0)
