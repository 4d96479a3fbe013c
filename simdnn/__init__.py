"""simdnn: what number comes out, and how long it takes, for deep-learning kernels on modelled SIMD hardware.

>>> import numpy as np, simdnn
>>> r = simdnn.matmul(np.full((4, 64), 2, np.uint8), np.full((64, 8), -3, np.int8), machine="zen4")
>>> int(r.output[0, 0]), r.output.dtype.name
(-384, 'int32')
"""

from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
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
    from simdnn.assembly.analysis import Analysis, analyze
    from simdnn.exactness.comparison import Comparison, compare
    from simdnn.exactness.remedy import remedies
    from simdnn.exactness.safety import ranges
    from simdnn.exactness.spellings import spellings
    from simdnn.explanations.lanes import explain
    from simdnn.networks import float16_report, quantize_onnx, transpile_float16
    from simdnn.networks.network import Network, load
    from simdnn.primitives.attr import Attr, Quant
    from simdnn.primitives.convolution import convolution
    from simdnn.primitives.descriptors import MemoryDesc
    from simdnn.primitives.dynamic import Quantized, quantize_dynamic
    from simdnn.primitives.estimate import estimate
    from simdnn.primitives.mathmode import (
        cold_weights,
        exact_int8,
        fpmath_mode,
        get_default_fpmath_mode,
        set_default_exact_int8,
        set_default_fpmath_mode,
    )
    from simdnn.primitives.matmul import matmul
    from simdnn.primitives.nibbles import pack_nibbles, unpack_nibbles
    from simdnn.primitives.reorder import Reordered, reorder
    from simdnn.primitives.result import Conversion, Estimate, Result

    __version__: str
else:
    # Who analyses a loop wants no kernels, and who asks the command for help wants nothing.
    _LATER = {
        "isa_models": (
            "InvalidArgument",
            "MachineFileError",
            "ProgramError",
            "SimdnnError",
            "Unimplemented",
            "UnknownName",
            "UnknownTiming",
            "instruction",
            "machine",
            "what_if",
        ),
        "simdnn.assembly.analysis": ("Analysis", "analyze"),
        "simdnn.exactness.comparison": ("Comparison", "compare"),
        "simdnn.networks": ("float16_report", "quantize_onnx", "transpile_float16"),
        "simdnn.networks.network": ("Network", "load"),
        "simdnn.explanations.lanes": ("explain",),
        "simdnn.primitives.descriptors": ("MemoryDesc",),
        "simdnn.primitives.nibbles": ("pack_nibbles", "unpack_nibbles"),
        "simdnn.primitives": (
            "Attr",
            "Quant",
            "Quantized",
            "Reordered",
            "convolution",
            "estimate",
            "matmul",
            "quantize_dynamic",
            "reorder",
        ),
        "simdnn.primitives.mathmode": (
            "cold_weights",
            "exact_int8",
            "fpmath_mode",
            "get_default_fpmath_mode",
            "set_default_exact_int8",
            "set_default_fpmath_mode",
        ),
        "simdnn.exactness.remedy": ("remedies",),
        "simdnn.primitives.result": ("Conversion", "Estimate", "Result"),
        "simdnn.exactness.safety": ("ranges",),
        "simdnn.exactness.spellings": ("spellings",),
    }

    def __getattr__(name: str) -> Any:
        """Import a name of `_LATER`, or a module of the package, when it is first asked for."""
        if name == "__version__":
            return globals().setdefault(name, import_module("simdnn.version").version())
        for module, names in _LATER.items():
            if name in names:
                globals()[name] = found = getattr(import_module(module), name)
                return found
        if not name.startswith("_") and find_spec(f"{__name__}.{name}") is not None:
            return import_module(f"{__name__}.{name}")
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


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
    "spellings",
    "transpile_float16",
    "unpack_nibbles",
    "what_if",
]


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
