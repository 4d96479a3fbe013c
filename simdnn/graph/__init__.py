"""Whole networks: ONNX programs over the kernels of a modelled machine."""

from simdnn.graph.float16 import float16_report, transpile_float16
from simdnn.graph.network import Network, load
from simdnn.graph.quantize import quantize_onnx
from simdnn.graph.result import NetworkEstimate, NetworkResult

__all__ = [
    "Network",
    "NetworkEstimate",
    "NetworkResult",
    "float16_report",
    "load",
    "quantize_onnx",
    "transpile_float16",
]
