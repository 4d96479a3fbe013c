"""Whole networks: ONNX programs over the kernels of a modelled machine."""

from simdnn.graph.network import Network, load
from simdnn.graph.result import NetworkEstimate, NetworkResult

__all__ = ["Network", "NetworkEstimate", "NetworkResult", "load"]
