"""How good outputs are: their labels' share, a metric of the caller's, or the signal to error against f32's."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from isa_models import InvalidArgument
from isa_models.readings.arrays import Array
from simdnn.networks.judging import NO_FLOATS, Judging, Metric, error_of, has_floats
from simdnn.networks.load import read
from simdnn.tuning.subjects import Outputs
from workloads import REAL_NETWORKS, RealNetwork
from workloads.real import Data


@dataclass(frozen=True, eq=False)
class OwnScore:
    """The first metric of a fetched network, minus it where lower is better."""

    network: RealNetwork
    data: Data

    def __reduce__(self) -> tuple[Any, ...]:
        return _own_score, (self.network.name, len(self.data.samples))

    def score(self, outputs: Outputs, reference: Outputs) -> float:
        """Outputs of all samples, beside those of f32 where the network is judged against them."""
        first = self.network.metrics[0]
        answers, wanted = ([self.data.answer(one) for one in some] for some in (outputs, reference))
        found = self.data.score(answers, wanted if self.network.against_f32 else [])[first.name]
        return found if first.higher_is_better else -found


@dataclass(frozen=True, eq=False)
class Judge:
    """`alone`: one feed, whose outputs a metric gets without a list."""

    labels: Array | None
    metric: Metric | OwnScore | None
    alone: bool

    @property
    def measure(self) -> str:
        return "metric" if self.metric else "sqnr_db" if self.labels is None else "accuracy"

    def quality(self, outputs: Outputs, reference: Outputs, sqnr_db: float) -> float:
        """The quality of a recipe's outputs; `InvalidArgument` for labels that do not fit, and no number."""
        if self.measure == "sqnr_db" and not any(has_floats(v) for one in reference for v in one.values()):
            raise InvalidArgument(NO_FLOATS)
        own = self.metric if isinstance(self.metric, OwnScore) else None
        metric = (lambda _: own.score(outputs, reference)) if own else self.metric
        found = Judging(None if metric else self.labels, metric, self.alone).row(outputs)  # type: ignore[arg-type]
        return float(found.get(self.measure, sqnr_db))

    @staticmethod
    def sqnr_db(outputs: Outputs, reference: Outputs) -> float:
        """Signal to error over all outputs that are floats; minus infinity where they are no numbers."""
        found, wanted = ([v for one in some for v in one.values() if has_floats(v)] for some in (outputs, reference))
        with np.errstate(all="ignore"):
            ratio = error_of(found, wanted).get("sqnr_db", np.inf)
        return float(ratio) if not np.isnan(ratio) else -np.inf


def _own_score(name: str, count: int) -> OwnScore:
    network = REAL_NETWORKS[name]
    return OwnScore(network, network.data(read(network.model())[0], count, 0))
