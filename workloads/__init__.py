"""Things to run: layer tables of standard networks, seeded tensors for them, and trained networks with real data."""

from __future__ import annotations

from workloads import data, language_model, ocr, sentences, super_resolution
from workloads.catalog import load, names
from workloads.layer import ConvLayer, Layer, MatmulLayer
from workloads.networks import NETWORKS, Classifier, NetworkLayer, cancer, digits
from workloads.real import RealNetwork
from workloads.table import Workload

REAL_NETWORKS: dict[str, RealNetwork] = {
    network.name: network
    for network in (ocr.NETWORK, super_resolution.NETWORK, sentences.NETWORK, language_model.NETWORK)
}

__all__ = [
    "NETWORKS",
    "REAL_NETWORKS",
    "Classifier",
    "ConvLayer",
    "Layer",
    "MatmulLayer",
    "NetworkLayer",
    "RealNetwork",
    "Workload",
    "cancer",
    "data",
    "digits",
    "load",
    "names",
]
