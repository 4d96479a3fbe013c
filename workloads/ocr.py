"""Lines of handwritten digits to read: pictures as the recogniser of `packages` takes them, and the texts it gives.

A line is made of real MNIST digits, black on white: each cut to its columns of ink, 6 columns of paper between them, 8
at the ends and 4 rows above and below; then bilinear to 48 rows, three equal channels, pixels (x / 255 - 0.5) / 0.5,
and zeros on the right up to the 320 columns that the recogniser is used with (PaddleOCR, `resize_norm_img`). Texts come
from scores by greedy CTC decoding (A. Graves et al., "Connectionist temporal classification", ICML 2006, section
3.2): the best class at each place, repetitions merged, blanks (class 0) left out.
"""

from __future__ import annotations

import gzip
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from isa_models.errors import InvalidArgument
from workloads import packages
from workloads.real import Data, Metric, Outputs, RealNetwork

if TYPE_CHECKING:
    import onnx

F32 = NDArray[np.float32]
U8 = NDArray[np.uint8]
DIGITS_A_LINE = 8
CALIBRATION_LINES = 8
HEIGHT = 48
WIDTH = 320
GAP, ENDS, ABOVE = 6, 8, 4  # paper between digits, beside them, above and below, in pixels of MNIST's


@dataclass(frozen=True, eq=False)
class LinePictures:
    """Pictures f32 (N, 3, 48, 320) and what is written on them."""

    images: F32
    texts: tuple[str, ...]


def model() -> Path:
    """The recogniser's file. `SimdnnError` where not fetched."""
    return packages.path("ocr", "recogniser.onnx")


def data(model: onnx.ModelProto, count: int, seed: int) -> Data:
    """Lines to read, and others of other digits to calibrate with."""
    test, calibration = draw(*digits(), count, seed)
    letters, name = alphabet(model), model.graph.input[0].name

    def read(outputs: Outputs) -> str:
        return decode(next(iter(outputs.values()))[0], letters)

    def score(texts: Sequence[str], _: Sequence[str]) -> dict[str, float]:
        whole = sum(a == b for a, b in zip(texts, test.texts, strict=True)) / count
        return {"accuracy": character_accuracy(texts, test.texts), "whole_lines": whole}

    return Data([{name: image[None]} for image in test.images], [{name: calibration.images}], read, score)


def alphabet(model: onnx.ModelProto) -> list[str]:
    """The text of each class of a recogniser: none for the blank, the dictionary in its metadata, and the space."""
    found = next((entry.value for entry in model.metadata_props if entry.key == "character"), None)
    if found is None:
        raise InvalidArgument("the recogniser has no dictionary; metadata `character` with a text a line is needed")
    return ["", *found.split("\n"), " "]


def digits() -> tuple[U8, U8]:
    """The 5000 MNIST digits: images (5000, 28, 28), ink 0..255, and labels. `SimdnnError` where not fetched."""
    with gzip.open(packages.path("ocr", "mnist_5k.csv.gz"), "rt", encoding="ascii") as file:
        table = np.loadtxt(file, delimiter=",", dtype=np.uint8)
    return table[:, :-1].reshape(-1, 28, 28), table[:, -1]


def draw(images: U8, labels: U8, count: int, seed: int = 0) -> tuple[LinePictures, LinePictures]:
    """`count` lines of digits drawn without repetition, and `CALIBRATION_LINES` more of digits that those have not.

    `images` (D, 28, 28), `labels` (D,). Raises `InvalidArgument` where there are too few digits.
    """
    most = len(labels) // DIGITS_A_LINE - CALIBRATION_LINES
    if not 1 <= count <= most:
        raise InvalidArgument(f"{count} lines; {len(labels)} digits are enough for 1 to {most}")
    order = np.random.default_rng(seed).permutation(len(labels))
    picked = order[: (count + CALIBRATION_LINES) * DIGITS_A_LINE].reshape(-1, DIGITS_A_LINE)
    apart = CALIBRATION_LINES  # first, so that they do not depend on `count`
    return _lines(images, labels, picked[apart:]), _lines(images, labels, picked[:apart])


def decode(scores: NDArray[Any], alphabet: Sequence[str]) -> str:
    """The text of scores (places, classes); `alphabet` holds a text for each class, the blank's being empty.

    >>> decode(np.eye(3)[[1, 1, 0, 1, 2, 0]], ["", "a", "b"])
    'aab'
    """
    if scores.ndim != 2 or scores.shape[1] != len(alphabet):
        raise InvalidArgument(f"scores of shape {scores.shape}; (places, {len(alphabet)}) is needed")
    best = scores.argmax(axis=1)
    starts = np.concatenate([[True], best[1:] != best[:-1]])[: len(best)]
    return "".join(alphabet[index] for index in best[starts] if index)


def distance(one: str, other: str) -> int:
    """The least number of characters to insert, remove or replace that makes one text the other.

    >>> distance("12345", "1345"), distance("17", "71")
    (1, 2)
    """
    row = list(range(len(other) + 1))
    for i, a in enumerate(one, 1):
        above, row = row, [i]
        for j, b in enumerate(other, 1):
            row.append(min(row[-1] + 1, above[j] + 1, above[j - 1] + (a != b)))
    return row[-1]


def character_accuracy(read: Sequence[str], wanted: Sequence[str]) -> float:
    """1 - distances over the number of characters wanted, and not less than 0.

    >>> character_accuracy(["1234", "5578"], ["1234", "5678"])
    0.875
    """
    wrong = sum(distance(a, b) for a, b in zip(read, wanted, strict=True))
    return max(0.0, 1 - wrong / sum(map(len, wanted)))


def _lines(images: U8, labels: U8, picked: NDArray[Any]) -> LinePictures:
    texts = tuple("".join(map(str, labels[row])) for row in picked)
    return LinePictures(np.stack([_picture(images[row]) for row in picked]), texts)


def _picture(figures: U8) -> F32:
    """(3, 48, 320) of the digits (D, 28, 28) of one line."""
    parts = [_trimmed(figure) for figure in figures]
    spaced = [np.pad(part, ((ABOVE, ABOVE), (0, GAP))) for part in parts]
    ink = np.pad(np.concatenate(spaced, axis=1)[:, :-GAP], ((0, 0), (ENDS, ENDS)))
    width = min(WIDTH, round(ink.shape[1] * HEIGHT / ink.shape[0]))
    paper = 255 - _resized(_resized(ink.astype(np.float64), HEIGHT).T, width).T
    pixels: F32 = ((paper / 255 - 0.5) / 0.5).astype(np.float32)
    return np.repeat(np.pad(pixels, ((0, 0), (0, WIDTH - width)))[None], 3, axis=0)


def _trimmed(figure: U8) -> U8:
    """The picture without the columns beside its ink."""
    columns = np.flatnonzero(figure.any(axis=0))
    return figure[:, columns[0] : columns[-1] + 1] if len(columns) else figure


def _resized(rows: NDArray[np.float64], count: int) -> NDArray[np.float64]:
    """`count` rows, each between the two nearest of the old ones (pixel centres at halves)."""
    place = np.clip((np.arange(count) + 0.5) * len(rows) / count - 0.5, 0, len(rows) - 1)
    low = np.floor(place).astype(int)
    part = (place - low)[:, None]
    mixed: NDArray[np.float64] = rows[low] * (1 - part) + rows[np.minimum(low + 1, len(rows) - 1)] * part
    return mixed


NETWORK = RealNetwork(
    name="ocr",
    title="PP-OCRv6 small",
    samples=f"lines of {DIGITS_A_LINE} MNIST digits",
    count=40,
    metrics=(Metric("accuracy", "characters read right", "{:.2%}"), Metric("whole_lines", "whole lines", "{:.1%}")),
    model=model,
    data=data,
)
