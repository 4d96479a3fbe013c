"""The precision of each layer of a network, chosen by cycles under a bound on what it loses."""

from simdnn.tuning.tune import tune
from simdnn.tuning.tuned import Tuned

__all__ = ["Tuned", "tune"]
