"""Whole networks: ONNX programs over the kernels of a modelled machine."""

from simdnn.networks.float16 import float16_report, transpile_float16
from simdnn.networks.network import Network, load
from simdnn.networks.quantize import quantize_onnx
from simdnn.networks.result import NetworkEstimate, NetworkResult

__all__ = [
    "Network",
    "NetworkEstimate",
    "NetworkResult",
    "float16_report",
    "load",
    "quantize_onnx",
    "transpile_float16",
]
