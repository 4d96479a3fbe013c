"""What to run: layer tables of standard networks, seeded tensors for them, and trained networks with real data."""

from __future__ import annotations

from . import data
from .catalog import load, names
from .layer import ConvLayer, Layer, MatmulLayer
from .networks import NETWORKS, Network, NetworkLayer, cancer, digits
from .table import Workload

__all__ = [
    "NETWORKS",
    "ConvLayer",
    "Layer",
    "MatmulLayer",
    "Network",
    "NetworkLayer",
    "Workload",
    "cancer",
    "data",
    "digits",
    "load",
    "names",
]
