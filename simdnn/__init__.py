"""simdnn: what number comes out, and how long it takes, for deep-learning kernels on modelled SIMD hardware.

    >>> import numpy as np
    >>> r = matmul(np.full((4, 64), 2, np.uint8), np.full((64, 8), -3, np.int8), machine="zen4")
    >>> int(r.output[0, 0]), r.output.dtype.name
    (-384, 'int32')
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from isa_models import (
    InvalidArgument,
    MachineFileError,
    ProgramError,
    SimdnnError,
    Unimplemented,
    UnknownName,
    UnknownTiming,
    instruction,
    machine,
    what_if,
)
from simdnn.memory import MemoryDesc
from simdnn.nibbles import pack_nibbles, unpack_nibbles
from simdnn.primitives import (
    Attr,
    Quant,
    Quantized,
    Reordered,
    convolution,
    estimate,
    matmul,
    quantize_dynamic,
    reorder,
)
from simdnn.primitives.mathmode import (
    cold_weights,
    exact_int8,
    fpmath_mode,
    get_default_fpmath_mode,
    set_default_exact_int8,
    set_default_fpmath_mode,
)
from simdnn.remedies import remedies
from simdnn.result import Conversion, Estimate, Result, version
from simdnn.safety import ranges

if TYPE_CHECKING:
    from simdnn.assembly.analysis import Analysis, analyze
    from simdnn.comparison import Comparison, compare
    from simdnn.graph import float16_report, quantize_onnx, transpile_float16
    from simdnn.graph.network import Network, load
    from simdnn.lanes import explain
else:
    # A third of the time that importing everything takes, and a script that prices a matmul wants none of it.
    _LATER = {
        "simdnn.assembly.analysis": ("Analysis", "analyze"),
        "simdnn.comparison": ("Comparison", "compare"),
        "simdnn.graph": ("float16_report", "quantize_onnx", "transpile_float16"),
        "simdnn.graph.network": ("Network", "load"),
        "simdnn.lanes": ("explain",),
    }

    def __getattr__(name: str) -> Any:
        """Import a name of `_LATER` when it is first asked for."""
        for module, names in _LATER.items():
            if name in names:
                return globals().setdefault(name, getattr(import_module(module), name))
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


__version__ = version()

__all__ = [
    "Analysis",
    "Attr",
    "Comparison",
    "Conversion",
    "Estimate",
    "InvalidArgument",
    "MachineFileError",
    "MemoryDesc",
    "Network",
    "ProgramError",
    "Quant",
    "Quantized",
    "Reordered",
    "Result",
    "SimdnnError",
    "Unimplemented",
    "UnknownName",
    "UnknownTiming",
    "analyze",
    "cold_weights",
    "compare",
    "convolution",
    "estimate",
    "exact_int8",
    "explain",
    "fpmath_mode",
    "get_default_fpmath_mode",
    "instruction",
    "float16_report",
    "load",
    "machine",
    "matmul",
    "pack_nibbles",
    "quantize_dynamic",
    "quantize_onnx",
    "ranges",
    "remedies",
    "reorder",
    "set_default_exact_int8",
    "set_default_fpmath_mode",
    "transpile_float16",
    "unpack_nibbles",
    "what_if",
]


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
