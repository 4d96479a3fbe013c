"""simdnn.quantize_ggml and ggml_blocks: weights in ggml's block types, made of floats or as its files store them."""

from __future__ import annotations

import numpy as np

from isa_models import InvalidArgument, Unimplemented
from isa_models.block_encoders import ENCODED, encode_blocks
from isa_models.block_formats import BLOCK_FORMATS, BlockFormat, block_format
from isa_models.formats import fmt
from isa_models.readings.arrays import Array
from simdnn.primitives import arrays
from simdnn.primitives.block_scales import Blocks
from simdnn.primitives.checks import integer, keywords, one_of


@keywords
def quantize_ggml(array: Array, dtype: str, *, axis: int = -1) -> Blocks:
    """Quantize f32, f16 or bf16 to blocks of ggml, with the bits of its `quantize_row_*_ref`.

    `dtype`: "q4_0", "q4_1", "q5_0", "q5_1", "q8_0", and what activations become, "q8_1" and "q8_K". Blocks of 32
    (of 256, q8_K) neighbours along `axis` share a scale, of q4_1 and q5_1 a minimum too. "mxfp4" and "nvfp4" (16
    share a scale) are ggml's own: codes are doubled, and the nearest, which quantize_mx and quantize_nvfp4 may miss.

    Raises `Unimplemented` for block types that are read alone, as q4_K, `InvalidArgument` for other names, NaN and
    infinity, and where blocks do not divide the axis.

    >>> import numpy as np, simdnn
    >>> q = simdnn.quantize_ggml(np.linspace(-1, 1, 32, dtype=np.float32), "q4_0")
    >>> q.output[:3].astype(int).tolist(), float(q.scales[0]), q.stored.shape
    ([-8, -7, -7], 0.125, (18,))
    """
    dtype = _named(dtype)
    if isinstance(dtype, str) and dtype in BLOCK_FORMATS and dtype not in ENCODED:
        works = ", ".join(ENCODED)
        raise Unimplemented(f"dtype {dtype!r} is read from a GGUF file alone, by ggml_blocks; what works: {works}")
    one_of("dtype", dtype, ENCODED)
    source = arrays.type_of("array", array)
    if source not in arrays.FLOATS:
        raise InvalidArgument(f"array of {source}; floats are quantized: {', '.join(arrays.FLOATS)}")
    along, form = integer("axis", axis, -array.ndim), block_format(dtype)
    if not array.ndim or not array.size or along >= array.ndim:
        raise InvalidArgument(f"axis={axis} of an array of shape {array.shape}; an axis with elements is needed")
    size = array.shape[along]
    if size % form.elements:
        filled = -(-size // form.elements) * form.elements
        said = f"blocks of {form.elements} do not divide the {size} elements of axis {along % array.ndim}"
        raise InvalidArgument(f"{said}; fill it up with zeros to {filled}")
    rows = np.moveaxis(arrays.native(array).astype(np.float32), along, -1)
    return _of_rows(form, encode_blocks(rows, dtype), along % array.ndim, array)


@keywords
def ggml_blocks(stored: Array, dtype: str) -> Blocks:
    """Weights as ggml stores them: rows (N, bytes) of uint8, one for each output, are blocks of a matrix (K, N); so are
    the rows (N, blocks) that `workloads.gguf` reads.

    `dtype` is any of its block types, in capitals, too: those of `quantize_ggml`, and "q2_K" to "q6_K", "iq4_nl",
    "iq4_xs". `scales` and `offsets` are what integers of a block of 256 come to, in f32.

    Raises `InvalidArgument` for other bytes than whole blocks.

    >>> import numpy as np, simdnn
    >>> w = simdnn.ggml_blocks(np.zeros((4, 2 * 144), np.uint8), "q4_K")
    >>> w, w.dequantize().shape
    (Blocks(q4_K 512x4, 32 along axis 0), (512, 4))
    """
    form = block_format(one_of("dtype", _named(dtype), BLOCK_FORMATS))
    if not isinstance(stored, np.ndarray) or stored.ndim != 2 or not stored.size:
        raise InvalidArgument(f"stored={getattr(stored, 'shape', stored)!r:.40}; rows (N, bytes) of uint8 are needed")
    if stored.dtype == form.layout:
        stored = np.ascontiguousarray(stored).view(np.uint8)
    return _of_rows(form, form.of_bytes(stored), 0, None)


def _named(dtype: str) -> str:
    """A block type's name as it is written here; GGUF files have capitals."""
    return next((name for name in BLOCK_FORMATS if isinstance(dtype, str) and name.upper() == dtype), dtype)


def _of_rows(form: BlockFormat, blocks: Array, axis: int, source: Array | None) -> Blocks:
    """Blocks (…, n) whose elements lie along `axis` of an array."""
    with np.errstate(all="ignore"):
        codes, scales, offsets = form.parts(blocks)

    def placed(values: Array) -> Array:
        return np.ascontiguousarray(np.moveaxis(values.reshape(*blocks.shape[:-1], -1), -1, axis))

    wide = codes.view(np.uint8) if not fmt(form.codes).signed else codes
    stored = np.ascontiguousarray(blocks).view(np.uint8).reshape(*blocks.shape[:-1], -1)
    return Blocks(
        placed(wide.astype(fmt(form.codes).dtype)),
        placed(scales),
        None,
        form.name,
        form.group,
        axis,
        source,
        "ggml",
        offsets=None if offsets is None else placed(offsets),
        stored=stored,
    )
