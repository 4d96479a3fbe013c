"""Lines of digits and CTC decoding, on made-up digits."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from isa_models import InvalidArgument
from workloads import ocr

LABELS = np.arange(200, dtype=np.uint8) % 10


def figures() -> ocr.U8:
    """A digit n is a block of ink 5 + n x 25, 20 wide, somewhere in its square."""
    images = np.zeros((len(LABELS), 28, 28), np.uint8)
    for i, label in enumerate(LABELS):
        images[i, :, i % 8 : i % 8 + 20] = 5 + label * 25
    return images


def test_a_line_shows_its_text() -> None:
    test, calibration = ocr.draw(figures(), LABELS, 3, seed=5)
    assert test.images.shape == (3, 3, 48, 320)
    assert test.images.dtype == np.float32
    assert len(calibration.texts) == ocr.CALIBRATION_LINES
    for image, text in zip(test.images, test.texts, strict=True):
        middles = (8 + np.arange(8) * 26 + 10) * 48 // 36
        ink = (1 - image[0, 24, middles]) / 2 * 255
        assert "".join(str(round((value - 5) / 25)) for value in ink) == text
        gaps = (8 + np.arange(7) * 26 + 23) * 48 // 36
        assert (image[0, 24, [2, *gaps]] == 1).all() and (image[0, [0, 47], :] >= 0).all()
        np.testing.assert_array_equal(image[0], image[2])
        assert not image[0, :, 291:].any() and image[0, :, 285].all()  # 218 columns of 36 rows are 291 of 48


def test_wide_digits_are_made_narrower_and_blank_ones_stay() -> None:
    images = np.full((200, 28, 28), 200, np.uint8)
    assert ocr.draw(images, LABELS, 1)[0].images.shape == (1, 3, 48, 320)
    blank = ocr.draw(np.zeros_like(images), LABELS, 1)[0].images
    assert blank.shape == (1, 3, 48, 320) and (blank == 1).all()


def test_lines_are_seeded_and_calibration_is_apart() -> None:
    images = figures()
    for i in range(200):
        images[i, 10:18, i % 8 : i % 8 + 20] = i + 1  # each digit its own mark
    one, apart = ocr.draw(images, LABELS, 5, seed=1)
    more, same = ocr.draw(images, LABELS, 9, seed=1)
    assert more.texts[:5] == one.texts
    np.testing.assert_array_equal(apart.images, same.images)
    assert ocr.draw(images, LABELS, 5, seed=2)[0].texts != one.texts
    middles = (8 + np.arange(8) * 26 + 10) * 48 // 36
    marks = [set(lines.images[:, 0, 24][:, middles].round(4).reshape(-1).tolist()) for lines in (more, apart)]
    assert len(marks[0]) == 72 and not marks[0] & marks[1]


@pytest.mark.parametrize("count", [0, 18, -1])
def test_too_few_digits(count: int) -> None:
    with pytest.raises(InvalidArgument, match="1 to 17"):
        ocr.draw(figures(), LABELS, count)


@given(st.text("abc", max_size=12))
def test_decoding_undoes_an_alignment(text: str) -> None:
    """A blank between equal letters, each place twice."""
    alphabet = ["", "a", "b", "c"]
    places = [0]
    for letter in text:
        places += [alphabet.index(letter)] * 2 + [0]
    assert ocr.decode(np.eye(4)[places], alphabet) == text
    packed = [p for i, p in enumerate(places) if p or i + 1 == len(places) or places[i - 1] == places[i + 1]]
    assert ocr.decode(np.eye(4)[packed], alphabet) == text


def test_decoding_refuses_another_alphabet() -> None:
    with pytest.raises(InvalidArgument, match=r"\(places, 4\)"):
        ocr.decode(np.eye(3), ["", "a", "b", "c"])
    assert ocr.decode(np.zeros((0, 3)), ["", "a", "b"]) == ""


@given(st.text("ab", max_size=8), st.text("ab", max_size=8))
def test_distance_is_a_metric(one: str, other: str) -> None:
    found = ocr.distance(one, other)
    assert found == ocr.distance(other, one)
    assert (found == 0) == (one == other)
    assert abs(len(one) - len(other)) <= found <= max(len(one), len(other))


def test_the_alphabet_is_in_the_model() -> None:
    model = onnx.helper.make_model(onnx.helper.make_graph([], "g", [], []))
    with pytest.raises(InvalidArgument, match="character"):
        ocr.alphabet(model)
    onnx.helper.set_model_props(model, {"character": "x\ny"})
    assert ocr.alphabet(model) == ["", "x", "y", " "]
