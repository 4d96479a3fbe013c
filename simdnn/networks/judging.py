"""How good a network's outputs are: an error against others, the share of labels met, a metric of the caller's."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from isa_models import InvalidArgument
from isa_models.readings.arrays import Array
from simdnn.exactness import measures
from simdnn.networks.result import NetworkResult
from simdnn.networks.runner import Row
from simdnn.networks.types import is_float

Metric = Callable[[Any], float]  # of outputs by name, or of a list of them; larger is better
NO_FLOATS = "no output holds floats, or all are empty, so there is no error to tell: labels or a metric judge it"


@dataclass(frozen=True, eq=False)
class Judging:
    """How good outputs are beside what f32 gives. `alone`: one feed, whose outputs a metric gets without a list."""

    labels: Array | None
    metric: Metric | None
    alone: bool

    def row(self, outputs: Sequence[Mapping[str, Any]]) -> Row:
        """Columns accuracy and metric, as far as they are asked for. `InvalidArgument` for labels that do not fit."""
        found: Row = {}
        if self.labels is not None:
            first = np.concatenate([np.atleast_1d(next(iter(one.values()))) for one in outputs])
            drawn = first.dtype.kind not in "iu" and first.ndim > 1
            classes = first.argmax(axis=-1) if drawn else first
            if classes.dtype.kind not in "iu" or self.labels.shape != classes.shape:
                said = f"labels of shape {self.labels.shape} for outputs of {first.shape}"
                raise InvalidArgument(f"{said}; a class for each row of the first output is needed")
            if self.labels.dtype.kind not in "iu":
                raise InvalidArgument(f"labels of {self.labels.dtype}; integers are needed, the classes' numbers")
            if drawn and self.labels.size and not 0 <= self.labels.min() <= self.labels.max() < first.shape[-1]:
                worst = self.labels.flat[abs(self.labels.astype(np.int64) * 2 - first.shape[-1] + 1).argmax()]
                raise InvalidArgument(f"label {worst}; the outputs have classes 0 to {first.shape[-1] - 1}")
            found |= {"accuracy": float((classes == self.labels).mean()), "images": int(self.labels.size)}
        if self.metric:
            value = self.metric(outputs[0] if self.alone else list(outputs))
            if isinstance(value, bool) or not isinstance(value, int | float | np.number) or not np.isfinite(value):
                raise InvalidArgument(f"metric gives {value!r:.60}; a finite number is needed")
            found["metric"] = float(value)
        return found


def floats_of(result: NetworkResult) -> list[Array]:
    """The outputs that are floats, and not empty."""
    return list(filter(has_floats, result.outputs.values()))


def has_floats(value: object) -> bool:
    """Whether an output is an array that an error can be told of."""
    return isinstance(value, np.ndarray) and is_float(value.dtype) and value.size > 0


def error_of(values: list[Array], reference: list[Array]) -> dict[str, float]:
    """Errors over all outputs taken as one."""
    if not values:
        return {}
    return measures.errors_over(values, reference)
