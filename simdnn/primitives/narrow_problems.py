"""Products with floats of at most a byte as problems: their types, where scales go, what a destination finds."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from isa_models import InvalidArgument, Unimplemented
from isa_models.formats import decode, fmt
from isa_models.readings.arrays import Array
from simdnn.kernels.common.epilogue import Decompression, Epilogue, Parameters
from simdnn.kernels.common.narrow_floats import NARROW, Narrow, is_narrow
from simdnn.kernels.common.params import Param
from simdnn.kernels.common.problems import MatmulProblem
from simdnn.libraries import Library
from simdnn.primitives.decompress import computes as computes_of_source
from simdnn.primitives.placed import Valued
from simdnn.primitives.problems import matmul_problem
from simdnn.primitives.resolve import Resolved, bias_values, floats, resolve, stored_type

#: destinations that a stage narrows
NARROWED = ("f8_e4m3", "f8_e5m2", "f4_e2m1")
_FLOATS = ("f32", "bf16", "f16")  # and those that none narrows
_DESTINATIONS = (*_FLOATS, *NARROWED)
_BYTES = ("s8", "u8")


def takes_part(given: Resolved, dst: str | None) -> bool:
    """Whether a narrow float is among the types, or scales of the destination are to be found."""
    return of_narrow(given.shape.src, given.shape.wei, dst) or bool(_dst_scale_mode(given))


def of_narrow(src: str, wei: str, dst: str | None) -> bool:
    """Whether a narrow float is among the types."""
    return is_narrow(wei) or any(isinstance(dtype, str) and dtype in NARROW for dtype in (src, dst))


def _dst_scale_mode(given: Resolved) -> str:
    """How scales of the destination are found; empty where they are given, or there are none."""
    scale = given.scales.get("dst")
    return scale.mode if scale and scale.mode != "static" else ""


def problem_of(
    given: Resolved,
    dst: str | None,
    bias: Array | bool | None,
    wei_tag: object,
    library: Library | None,
    caps: frozenset[str],
) -> tuple[MatmulProblem, Parameters]:
    """A matmul on a CPU, and its numbers; `library`: whose bits are asked for.

    Raises `InvalidArgument` for scales that do not nest or fit, `Unimplemented` for what no kernel here has.
    """
    if library and given.shape.wei not in NARROW and is_narrow(given.shape.wei):
        reason = f"{library.title} has no such type; dispatch='fastest' takes them"
        raise Unimplemented(f"{given.shape.wei} weights: {reason}")
    if library is None or (given.shape.src, fmt(given.shape.wei).bits) == ("bf16", 8) and given.shape.wei in NARROW:
        return _own(given, dst, bias, wei_tag, library, caps)
    return _reference_like(given.folded, dst, bias, wei_tag)


def _reference_like(
    given: Resolved, dst: str | None, bias: Array | bool | None, wei_tag: object
) -> tuple[MatmulProblem, Parameters]:
    """The problem whose scales multiply every product, as oneDNN's reference has it."""
    shape = given.shape
    dst = "f32" if dst is None else dst
    if dst not in _DESTINATIONS:
        raise Unimplemented(f"dst {dst!r} of {shape.src} x {shape.wei}; what works: {', '.join(_DESTINATIONS)}")
    _refuse_zero_points(given)
    scale = given.scales.get("dst")
    dynamic = _dst_scale_mode(given)
    src, wei = _params(given)
    narrow = Narrow(src, wei, dynamic, _columns(scale, shape.n) if dynamic else 0, reference=True)
    epilogue = Epilogue(
        dst=dst,
        bias=bias is not None and bias is not False,
        post_ops=given.operations,
        dst_scale=scale is not None and not dynamic,
        bias_stored=stored_type(bias),
    )
    parameters = Parameters(
        bias=bias_values(bias, shape) if isinstance(bias, np.ndarray) else None,
        dst_scale=float(floats(scale)[0]) if epilogue.dst_scale else 1.0,
        src_group_scale=_table(given.scales.get("src"), 1),
        wei_scale=_table(given.scales.get("wei"), 0),
    )
    return replace(matmul_problem(shape, epilogue, wei_tag), narrow=narrow), parameters


def of_convolution(
    given: Resolved, dst: str | None, bias: Array | bool | None, library: Library | None
) -> tuple[Epilogue, Parameters]:
    """The epilogue of a convolution of narrow floats; `Unimplemented` for scales where a library's bits are wanted."""
    dst = "f32" if dst is None else dst
    if dst not in (*_FLOATS, *_BYTES, *NARROW):
        works = ", ".join((*_FLOATS, *_BYTES, *NARROW))
        raise Unimplemented(f"dst {dst!r} of a convolution of {given.shape.src}; what works: {works}")
    if given.scales and library:
        raise Unimplemented(
            f"scales of a convolution of {given.shape.src}: the library's bits are known without; what works: "
            "dispatch='fastest'"
        )
    epilogue, parameters = resolve(given, "f32", bias)
    return replace(epilogue, dst=dst), parameters


def _params(given: Resolved) -> tuple[Param | None, Param | None]:
    """The scales of source and of weights, whose groups nest."""
    params = {name: given.scales[name].param for name in ("src", "wei") if name in given.scales}
    lengths = sorted(param.length(given.shape.k) for param in params.values())
    if lengths and lengths[-1] % lengths[0]:
        raise InvalidArgument(f"scales in groups of {lengths} along K; one must divide the other")
    return params.get("src"), params.get("wei")


def _columns(scale: Valued | None, n: int) -> int:
    """How many columns share a scale that is found."""
    assert scale
    columns = scale.param.columns
    if n % columns:
        raise InvalidArgument(f"scales['dst'] for {columns} columns each; N = {n} is no multiple")
    return columns


def _table(scale: Valued | None, axis: int) -> Array | None:
    """Scales as f32 with two axes: of a source (M or 1, parts of K), of weights (parts of K, N or 1)."""
    if scale is None:
        return None
    values = floats(scale)
    if scale.param.group:
        return values
    return values.reshape(-1, 1) if axis else values.reshape(1, -1)


def _refuse_zero_points(given: Resolved) -> None:
    for argument in given.zero_points:
        dtype = {"src": given.shape.src, "wei": given.shape.wei}.get(argument, "")
        if dtype and fmt(dtype).is_float:
            raise InvalidArgument(
                f"zero_points[{argument!r}] of {dtype}: integers alone have them (oneDNN 3.13 takes them for floats of "
                "8 bits and ignores them, which is an error of its)"
            )
        raise Unimplemented(f"zero_points[{argument!r}] beside floats of at most a byte: no kernel here has them")


# -- kernels that compute in floats of more bits ----------------------------------------------------------------------
def _own(
    given: Resolved,
    dst: str | None,
    bias: Array | bool | None,
    wei_tag: object,
    library: Library | None,
    caps: frozenset[str],
) -> tuple[MatmulProblem, Parameters]:
    """Narrow sources and weights become floats that a unit multiplies, exactly, times the scales that change along K;
    other scales multiply the sums, those of tensors among them. Destinations saturate.
    """
    given, tensors = _levels(given)
    shape, scales = given.shape, given.scales
    base, parameters = _reference_like(given, dst, bias, wei_tag)
    src, wei = (scales[name].param if name in scales else None for name in ("src", "wei"))
    inside = src if src and src.along_k else None
    if inside and shape.src not in NARROW:
        raise Unimplemented(
            f"scales['src'] by {inside.granularity} of a source of {shape.src}: what works: a common one, or a source "
            f"of {', '.join(NARROW)}"
        )
    assert base.narrow
    narrow = replace(base.narrow, src=inside, wei=None, reference=False)
    unpacked = None
    if is_narrow(shape.wei) or not fmt(shape.wei).is_float:
        computes = ("bf16",) if library else computed(given, "avx512_core_bf16" in caps)
        unpacked = Decompression(computes, wei, merged=library is not None)
        common = wei is not None and not wei.group
        parameters = replace(parameters, wei_scale=floats(scales["wei"]) if common else parameters.wei_scale)
    elif shape.src != shape.wei and shape.src not in NARROW:
        raise Unimplemented(f"{shape.src} source with {shape.wei} weights: oneDNN's reference alone has such products")
    elif wei and wei.group:
        raise Unimplemented(f"scales['wei'] by group of {shape.wei} weights; weights of fewer bits have them")
    epilogue = replace(
        base.epilogue,
        src_scale=bool(tensors) or src is not None and inside is None,
        wei_scale=None if unpacked else wei,
    )
    if epilogue.wei_scale:
        parameters = replace(parameters, wei_scale=floats(scales["wei"]))
    if epilogue.src_scale:
        whole = [] if inside or src is None else [float(floats(scales["src"])[0])]
        factor = np.multiply.reduce(np.array([*whole, *tensors], np.float32))
        parameters = replace(parameters, src_scale=float(factor))
    wanted = narrow if inside or narrow.dynamic or shape.src in NARROW or base.epilogue.dst in NARROW else None
    return replace(base, epilogue=epilogue, decompression=unpacked, narrow=wanted), parameters


def _levels(given: Resolved) -> tuple[Resolved, list[float]]:
    """The parameters less the tensors' scales of those that change along K, and these; others are one number alone."""
    apart = {
        name: scale for name, scale in given.scales.items() if scale.param.along_k and scale.tensor_scale is not None
    }
    inside = {name: replace(scale, tensor_scale=None) for name, scale in apart.items()}
    found = [scale.tensor_scale for scale in apart.values() if scale.tensor_scale is not None]
    return replace(given, scales={**given.scales, **inside}).folded, found


def computed(given: Resolved, has_bf16: bool) -> tuple[str, ...]:
    """The types that products may be formed in: of floats all that hold the source as it is, and the weights with it.

    A math mode has a say for f32 sources, for integer weights and for codes whose values the source's type has not.
    """
    src, floats_alone, greatest = given.shape.src, fmt(given.shape.wei).is_float, fmt(given.shape.wei).greatest
    if src in NARROW:
        return "f32", "bf16", "f16"
    if floats_alone and src != "f32" and _holds(src, given.shape.wei):
        return "f32", src
    return tuple(dtype for dtype in computes_of_source(src, given.fpmath, has_bf16) if fmt(dtype).greatest >= greatest)


def _holds(src: str, wei: str) -> bool:
    """Whether all finite values of a format's codes are numbers of a wider type."""
    values = decode(np.arange(1 << fmt(wei).bits, dtype=np.uint8), wei)
    finite = values[np.isfinite(values)]
    with np.errstate(over="ignore"):
        return bool((finite.astype(fmt(src).dtype).astype(np.float32) == finite).all())
