"""Studies as data frames: workloads, networks and whole design spaces.

`run_layers` and `run_network` give a row for each layer and mode, with `measures.COST_COLUMNS` and
`measures.VALUE_COLUMNS` behind `layer`, `count` and `mode`; costs are those of one occurrence of the layer (`count`
says how many there are). `explore` gives a row for each point of a space that a file describes.
"""

from simdnn.networks.classifier import run_network
from simdnn.networks.runner import totals
from simdnn.networks.tables import run_layers, select
from simdnn.progress import Progress, print_progress
from simdnn.study.exploration import explore

__all__ = ["Progress", "explore", "print_progress", "run_layers", "run_network", "select", "totals"]
