"""What to run: layer tables of standard networks, seeded tensors for them, and a trained network with real data."""

from __future__ import annotations

from . import data
from .catalog import load, names
from .layer import ConvLayer, Layer, MatmulLayer
from .networks import Network, NetworkLayer, digits
from .table import Workload

__all__ = [
    "ConvLayer",
    "Layer",
    "MatmulLayer",
    "Network",
    "NetworkLayer",
    "Workload",
    "data",
    "digits",
    "load",
    "names",
]
