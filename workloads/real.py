"""Trained networks that fetched packages hold, with real data to judge them by: what `simdnn run NAME` needs to know.

A network is added by a record of its own module, in `workloads.REAL_NETWORKS`:

- `packages.MODELS` says which packages carry its weights and data, under the same name;
- `model()` gives the ONNX program, a file or an `onnx.ModelProto` that the module builds from the weights;
- `data(model, count, seed)` gives the samples, the calibration data (other than the samples), `answer`, which takes
  what matters from the outputs of a sample, and `score`, which turns all answers into a figure for each `Metric`.

Modes, costs, table, picture, JSON and progress are the runner's (`simdnn.networks.runner`). Where one number is not
the whole cost (a language model reads a prompt and then writes token after token), `phases` name the parts and what
each is fed with; where outputs are pictures, `picture` shows them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from isa_models.keywords import typed_parts
from isa_models.records.alike import Alike
from isa_models.records.display import Brief, InNotebooks

if TYPE_CHECKING:
    import onnx

Feeds = Mapping[str, NDArray[Any]]  # by input name
Outputs = Mapping[str, NDArray[Any]]  # by output name
Picture = NDArray[np.uint8]  # (H, W, 3)
Continues = Callable[[Callable[[Feeds], Outputs], str, int], Iterator[str]]  # run, text, tokens: texts of the new ones


@dataclass(frozen=True)
class Metric:
    """A column of qualities. `form` shows a value; percentages are shares from 0 to 1 here."""

    name: str
    title: str  # what an axis says
    form: str = "{:.2f}"  # "{:.2%}" for shares
    higher_is_better: bool = True

    @property
    def is_share(self) -> bool:
        """Whether its values are shown in per cent."""
        return "%" in self.form


@dataclass(frozen=True, eq=False, repr=False)
class CostPhase(Alike, Brief):
    """A part of the work with a cost of its own. `feeds`: arrays, or shapes where the values do not matter. `model`
    where it is another program than the network's; int8 modes then need `calibration` for it too. `tokens`: how many it
    reads or writes, where they are counted.
    """

    name: str
    feeds: Mapping[str, NDArray[Any] | Sequence[int]]
    model: onnx.ModelProto | None = None
    calibration: Sequence[Feeds] = ()
    tokens: int = 0


@dataclass(frozen=True, eq=False, repr=False)
class Data(Alike, Brief):
    """The data and measure that a network is judged by.

    `answer(outputs)` is what is kept of the outputs of a sample; `score(answers, reference)` gives a value for each of
    the network's metrics from the answers of all samples and those of f32 (none where the network does not ask for
    them). Without `phases` the cost is that of one sample.
    """

    samples: Sequence[Feeds]
    calibration: Sequence[Feeds]
    answer: Callable[[Outputs], Any]
    score: Callable[[Sequence[Any], Sequence[Any]], Mapping[str, float]]
    phases: Sequence[CostPhase] = ()
    pictures: Mapping[str, Picture] = field(default_factory=dict)  # to stand beside those of the first sample
    picture: Callable[[Outputs], Picture] | None = None


@dataclass(frozen=True, eq=False, repr=False)
class StoredVariant(Alike, Brief):
    """Another program of a network, as its makers stored it: a mode of its own. `fpmath`: a hint as in `Attr`."""

    title: str
    model: Callable[[], Path | onnx.ModelProto]
    fpmath: str | None = None


@typed_parts("workloads.REAL_NETWORKS")
@dataclass(frozen=True, eq=False, repr=False)
class RealNetwork(Alike, Brief, InNotebooks):
    """A trained network. The first of `metrics` is the one that is drawn; `against_f32`: `score` compares with f32.
    `few`: how many samples are enough to tell how far outputs are from f32's.
    """

    name: str
    title: str
    samples: str  # what they are, in the plural
    count: int  # of them where nobody says how many
    metrics: tuple[Metric, ...]
    model: Callable[[], Path | onnx.ModelProto]
    data: Callable[[onnx.ModelProto, int, int], Data]
    against_f32: bool = False
    few: int = 2
    pictures: bool = False  # whether its data make pictures of outputs
    variants: Mapping[str, StoredVariant] = field(default_factory=dict)  # by the mode's name
    continues: Continues | None = None  # a language model: what it writes after a text
