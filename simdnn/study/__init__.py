"""Studies as data frames: workloads, networks and whole design spaces, one row a layer and mode or a point of a space.

Columns are `measures.COST_COLUMNS` and `measures.VALUE_COLUMNS` behind `layer`, `count` and `mode`; costs are those
of one occurrence of the layer (`count` says how many there are).
"""

from simdnn.study.layers import Progress, run_layers, select, totals
from simdnn.study.networks import run_network

__all__ = ["Progress", "run_layers", "run_network", "select", "totals"]
