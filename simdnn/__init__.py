"""simdnn: what number comes out, and how long it takes, for deep-learning kernels on modelled SIMD hardware.

>>> import numpy as np, simdnn
>>> r = simdnn.matmul(np.full((4, 64), 2, np.uint8), np.full((64, 8), -3, np.int8), machine="zen4")
>>> int(r.output[0, 0]), r.output.dtype.name
(-384, 'int32')
"""

import ast as _ast
import logging as _logging
import typing as _typing

# Whoever wants to read what is logged sets a handler or a level: logging.basicConfig(level="DEBUG").
_logging.getLogger("simdnn").addHandler(_logging.NullHandler())

# The public names, and where each is; at run time a name is imported when it is first asked for.
if _typing.TYPE_CHECKING:
    from isa_models import InvalidArgument as InvalidArgument
    from isa_models import MachineFileError as MachineFileError
    from isa_models import ProgramError as ProgramError
    from isa_models import SimdnnError as SimdnnError
    from isa_models import Unimplemented as Unimplemented
    from isa_models import UnknownName as UnknownName
    from isa_models import UnknownTiming as UnknownTiming
    from isa_models import instruction as instruction
    from isa_models import machine as machine
    from isa_models import what_if as what_if
    from simdnn.assembly.analysis import Analysis as Analysis
    from simdnn.assembly.analysis import analyze as analyze
    from simdnn.exactness.comparison import Comparison as Comparison
    from simdnn.exactness.comparison import compare as compare
    from simdnn.exactness.invariance import Witness as Witness
    from simdnn.exactness.invariance import invariance as invariance
    from simdnn.exactness.remedy import remedies as remedies
    from simdnn.exactness.safety import ranges as ranges
    from simdnn.exactness.spellings import spellings as spellings
    from simdnn.explanations.bounds import ErrorBound as ErrorBound
    from simdnn.explanations.lanes import explain as explain
    from simdnn.networks import float16_report as float16_report
    from simdnn.networks import quantize_onnx as quantize_onnx
    from simdnn.networks import transpile_float16 as transpile_float16
    from simdnn.networks.blame import blame as blame
    from simdnn.networks.lint import lint as lint
    from simdnn.networks.modes import run_model as run_model
    from simdnn.networks.network import Network as Network
    from simdnn.networks.network import load as load
    from simdnn.networks.porting import porting as porting
    from simdnn.operators.attention import attention as attention
    from simdnn.operators.elements import binary as binary
    from simdnn.operators.elements import concat as concat
    from simdnn.operators.elements import conversion as conversion
    from simdnn.operators.elements import eltwise as eltwise
    from simdnn.operators.elements import prelu as prelu
    from simdnn.operators.elements import shuffle as shuffle
    from simdnn.operators.elements import weighted_sum as weighted_sum
    from simdnn.operators.estimate import estimate as estimate
    from simdnn.operators.images import deconvolution as deconvolution
    from simdnn.operators.images import lrn as lrn
    from simdnn.operators.images import pooling as pooling
    from simdnn.operators.images import resampling as resampling
    from simdnn.operators.lines import batch_normalization as batch_normalization
    from simdnn.operators.lines import group_normalization as group_normalization
    from simdnn.operators.lines import layer_normalization as layer_normalization
    from simdnn.operators.lines import reduction as reduction
    from simdnn.operators.lines import softmax as softmax
    from simdnn.primitives.attr import Attr as Attr
    from simdnn.primitives.attr import Quant as Quant
    from simdnn.primitives.block_scales import Blocks as Blocks
    from simdnn.primitives.block_scales import quantize_mx as quantize_mx
    from simdnn.primitives.block_scales import quantize_nvfp4 as quantize_nvfp4
    from simdnn.primitives.convolution import convolution as convolution
    from simdnn.primitives.descriptors import MemoryDesc as MemoryDesc
    from simdnn.primitives.dynamic import Quantized as Quantized
    from simdnn.primitives.dynamic import quantize_dynamic as quantize_dynamic
    from simdnn.primitives.inner_product import inner_product as inner_product
    from simdnn.primitives.mathmode import cold_weights as cold_weights
    from simdnn.primitives.mathmode import exact_int8 as exact_int8
    from simdnn.primitives.mathmode import fpmath_mode as fpmath_mode
    from simdnn.primitives.mathmode import get_default_fpmath_mode as get_default_fpmath_mode
    from simdnn.primitives.mathmode import set_default_exact_int8 as set_default_exact_int8
    from simdnn.primitives.mathmode import set_default_fpmath_mode as set_default_fpmath_mode
    from simdnn.primitives.matmul import matmul as matmul
    from simdnn.primitives.nibbles import pack_nibbles as pack_nibbles
    from simdnn.primitives.nibbles import unpack_nibbles as unpack_nibbles
    from simdnn.primitives.reorder import Reordered as Reordered
    from simdnn.primitives.reorder import reorder as reorder
    from simdnn.primitives.result import Conversion as Conversion
    from simdnn.primitives.result import Estimate as Estimate
    from simdnn.primitives.result import Result as Result
    from simdnn.primitives.stored_blocks import ggml_blocks as ggml_blocks
    from simdnn.primitives.stored_blocks import quantize_ggml as quantize_ggml
    from simdnn.quantize import compress_weights as compress_weights
    from simdnn.reporting.pages import report as report
    from simdnn.tuning.tune import tune as tune

    __version__: str
else:

    def _where() -> dict[str, str]:
        """The module of each public name, read from the imports above."""
        block = next(node for node in _ast.parse(__loader__.get_source(__name__)).body if isinstance(node, _ast.If))
        found = (node for node in block.body if isinstance(node, _ast.ImportFrom))
        return {name.name: node.module for node in found for name in node.names}

    _WHERE = _where()
    __all__ = sorted(_WHERE)

    def __getattr__(name: str):
        """Import a public name, or a module of the package: who asks the command for help wants nothing of it."""
        from importlib import import_module, util

        from simdnn.garbage import collected_later

        if name == "__version__":
            found = import_module("simdnn.version").version()
        elif name in _WHERE:
            with collected_later():
                found = getattr(import_module(_WHERE[name]), name)
        elif not name.startswith("_") and util.find_spec(f"{__name__}.{name}") is not None:
            return import_module(f"{__name__}.{name}")
        else:
            from isa_models.errors import did_you_mean

            near = "" if name.startswith("_") else did_you_mean(name, _WHERE)  # tools ask for many such
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}{': ' * bool(near)}{near}")
        return globals().setdefault(name, found)

    def __dir__() -> list[str]:
        return [*__all__, "__version__"]
