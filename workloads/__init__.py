"""What to run: layer tables of standard networks, seeded tensors for them, and trained networks with real data."""

from __future__ import annotations

from . import data, language_model, ocr, sentences, super_resolution
from .catalog import load, names
from .layer import ConvLayer, Layer, MatmulLayer
from .networks import NETWORKS, Network, NetworkLayer, cancer, digits
from .real import RealNetwork
from .table import Workload

REAL_NETWORKS: dict[str, RealNetwork] = {
    network.name: network
    for network in (ocr.NETWORK, super_resolution.NETWORK, sentences.NETWORK, language_model.NETWORK)
}

__all__ = [
    "NETWORKS",
    "REAL_NETWORKS",
    "ConvLayer",
    "Layer",
    "MatmulLayer",
    "Network",
    "NetworkLayer",
    "RealNetwork",
    "Workload",
    "cancer",
    "data",
    "digits",
    "load",
    "names",
]
