"""oneDNN's primitives beside products: which implementation takes one, and whether its bits are known here
(docs/numerics.md, rule 18). What stands behind a primitive is `simdnn.libraries.onednn.endings`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod

import numpy as np

from isa_models import Unimplemented
from isa_models.formats import fmt
from simdnn.libraries.model import OperatorCall, OperatorForm, ReorderPart
from simdnn.libraries.onednn import deconvolution, reorders
from simdnn.libraries.onednn.endings import BYTES, Refused, by_kernel, refuse_ending, sharing
from simdnn.libraries.onednn.narrow import F8

_WIDE = ("f32", "bf16", "f16")
#: the ISA cap that brings a type
_NEEDS = {
    "bf16": "avx512_core",
    "f16": "avx512_core_fp16",
    "f8_e4m3": "avx512_core_fp16",
    "f8_e5m2": "avx512_core_fp16",
}
#: functions of elements that an integer kernel has
_OF_INTEGERS = ("relu", "linear", "clip")
_NORMS = ("norm_lp_max", "norm_lp_sum", "norm_lp_power_p_max", "norm_lp_power_p_sum")
#: primitives that its reorders make up
_REORDERED = ("conversion", "concat", "weighted_sum")
_PAIRED, _MANY = 8, 16  # arrays that its sums of bf16 take, and its simple loop
_NEIGHBOURS = 16  # channels that the kernel of lrn for AVX-512 sums
JIT, REFERENCE = OperatorForm("jit"), OperatorForm("ref", True)


def form(call: OperatorCall) -> OperatorForm:
    """The implementation that takes a primitive. Raises `Unimplemented` where the library has none, and where its bits
    are not known here.
    """
    every = (*call.types, call.dst)
    known = (*_WIDE, *BYTES, "s32")
    try:
        asking = every
        if call.primitive in _REORDERED:
            asking = ()
        elif call.primitive == "deconvolution":
            asking = call.types  # its reference's end writes any
        if call.primitive != "resampling" or call.channels_last:  # a simple loop in rows takes any
            asking = (*asking, *call.operands)
        if missing := _missing(asking, call.caps):
            every = (*every, *call.operands)
            raise Refused(f"{':'.join(every)} needs {' and '.join(missing)}")
        other = [dtype for dtype in every if dtype not in known]
        if other and call.primitive not in (*_REORDERED, "shuffle"):
            raise Refused(f"{other[0]} is its reference's, whose functions and zeros are not followed")
        rule = _RULES.get(call.primitive)
        if rule is None:
            raise Refused("its bits are not known")
        found = rule(call)
        if call.primitive == "conversion" or found.parts:
            return found
        return found if found.integers != "bounded" else found._replace(integers=_integers(call, found))
    except Refused as why:
        raise Unimplemented(
            f"dispatch='onednn' for {call.primitive} of {':'.join(every)}: {why}; what works: dispatch='fastest'"
        ) from None


def _missing(types: Sequence[str], caps: frozenset[str]) -> list[str]:
    """ISA caps that types need and that are not there."""
    return sorted({_NEEDS[dtype] for dtype in types if dtype in _NEEDS} - caps)


def _integers(call: OperatorCall, found: OperatorForm) -> str:
    """How f32 becomes bytes: a NaN is 0 in the reference, else -128, or by a conversion of s32 255 with AVX-512."""
    if call.dst not in BYTES:
        return "bounded"
    if found.by_reference:
        return "zero"
    return "greatest" if call.dst == "u8" and "avx512_core" in call.caps else "bounded"


def _refuse_scales(call: OperatorCall) -> None:
    if call.scales:
        raise Refused("it takes no scales")


def _refuse_scaled(call: OperatorCall) -> None:
    """Softmax and normalizations have scales where a side is of bytes."""
    if call.scales and not {*call.types, call.dst} & {*BYTES}:
        raise Refused("scales come with s8 or u8 on a side alone")


def _refuse_s32(call: OperatorCall) -> None:
    if "s32" in (*call.types, call.dst):
        raise Refused("it takes no s32")


def _ended(call: OperatorCall, shape: tuple[int, ...], jit: bool, other: OperatorForm = REFERENCE) -> OperatorForm:
    """The kernel, or another implementation; refused where the ending is not known."""
    found = JIT if jit else other
    refuse_ending(call, shape)
    return found


def _softmax(call: OperatorCall) -> OperatorForm:
    _refuse_s32(call)
    _refuse_scaled(call)
    shape = call.shapes[0]
    of_channels = call.options.get("axis", -1) % len(shape) == 1  # else values by channel are its reference's
    beside = [part for _, *given in call.post_ops for part in given if isinstance(part, tuple)]
    if not by_kernel(call, shape, ("scalar", "channel", "none")) or (
        not of_channels and any("channel" in sharing(operand, shape) for operand in beside)
    ):
        raise Refused("its reference takes what stands behind, whose sums are not followed")
    return _ended(call, shape, True)


def _layer_normalization(call: OperatorCall) -> OperatorForm:
    _refuse_s32(call)
    _refuse_scaled(call)
    shape = call.shapes[0]
    if not 2 <= len(shape) <= 5:
        raise Refused(f"it has no layer normalization of {len(shape)} dimensions")
    if not call.in_rows:
        raise Refused("its reference takes what does not lie in rows, whose sums are not followed")
    if not by_kernel(call, shape, ("scalar", "channel" if len(shape) == 2 else "last")):
        return _ended(call, shape, False, OperatorForm("simple", True))
    return _ended(call, shape, True)


def _batch_normalization(call: OperatorCall) -> OperatorForm:
    _refuse_scales(call)
    dtype = call.types[0]
    if dtype != call.dst or dtype not in (*_WIDE, "s8"):
        raise Refused("it has one type for source and destination, of floats or s8")
    if call.post_ops not in ((), (("relu",),), (("relu", 0.0),)):
        raise Refused("nothing but relu stands behind it")
    shape = call.shapes[0]
    if dtype == "s8":
        if "mean" not in call.rows:
            raise Refused("it has no statistics of s8")
        return JIT if call.channels_last and len(shape) in (4, 5) else REFERENCE
    lanes = 4 if dtype == "f32" else 16
    if call.channels_last and shape[1] % lanes == 0:
        whole = shape[1] % (16 if "avx512_core" in call.caps else 8) == 0
        return OperatorForm("tbb", streams=dtype == "f32" and whole)  # jit_uni_tbb_batch_normalization.cpp
    if call.in_rows and len(shape) > 2:
        return OperatorForm("ncsp", True)
    return OperatorForm("nspc", True)


def _group_normalization(call: OperatorCall) -> OperatorForm:
    _refuse_s32(call)
    if any(dtype not in BYTES for name, dtype in (("src", call.types[0]), ("dst", call.dst)) if name in call.scales):
        raise Refused("a side of bytes alone has a scale")
    shape, last = call.shapes[0], call.channels_last
    of_channels = call.options["groups"] == shape[1]  # its kernel of such groups knows which channel it is at
    if last and by_kernel(call, shape, ("scalar", "channel") if of_channels else ("scalar",)):
        return _ended(call, shape, True)
    if call.in_rows and not call.post_ops:
        return OperatorForm("ncsp", True)
    return _ended(call, shape, False)


def _eltwise(call: OperatorCall) -> OperatorForm:
    name, (dtype,) = call.options["algorithm"], call.types
    _refuse_scales(call)
    if dtype != call.dst:
        raise Refused("it has one type for source and destination")
    if not fmt(dtype).is_float and name not in _OF_INTEGERS:
        raise Refused(f"of integers it computes {', '.join(_OF_INTEGERS)}")
    if name == "round" and dtype != "f32":
        raise Refused("it rounds f32 alone")
    if not call.post_ops:
        return JIT
    return _ended(call, call.shapes[0], False)


def _binary(call: OperatorCall) -> OperatorForm:
    if "dst" in call.scales:
        raise Refused("it takes no scale of the destination")
    first, second = call.shapes
    shape = tuple(np.broadcast_shapes(first, second))
    jit = (call.dst in BYTES or call.types[0] == call.dst) and tuple(first) == shape and len(shape) < 6
    jit = jit and by_kernel(call, shape, ("scalar", "channel", "last", "none"))
    if "sum" in [kind for kind, *_ in call.post_ops] and call.types[0] != call.dst:
        jit = False
    jit = jit and _shared_in_kernel(first, second)
    beside = [part for _, *given in call.post_ops for part in given if isinstance(part, tuple)]
    if jit and call.options["algorithm"] == "select" and any(_by_part(operand, shape) for operand in beside):
        raise Refused("behind select it reads second operands by channel or column at other places")
    return _ended(call, shape, jit)


def _by_part(operand: tuple[int, ...], shape: tuple[int, ...]) -> bool:
    """Whether an operand is neither one value nor as large as the output."""
    return not {"scalar", "none"} & {*sharing(operand, shape)}


def _shared_in_kernel(first: tuple[int, ...], second: tuple[int, ...]) -> bool:
    """Whether the vector kernel of binary takes a second source that is shared so (`is_bcast_allowed` of
    jit_uni_binary.cpp): spatial dimensions from the outermost one on, and with them images, channels, or both. A
    dimension of 1 is shared.
    """
    whole = (*(1,) * (len(first) - len(second)), *second)
    if whole == tuple(first) or len(first) < 3:
        return True
    images, channels, *pixels = (one != other or one == 1 for one, other in zip(first, whole, strict=True))
    if pixels != sorted(pixels, reverse=True):
        return False
    if pixels[-1]:
        return all(pixels) and (images or not channels)
    return channels or not any(pixels)


def _prelu(call: OperatorCall) -> OperatorForm:
    shape, weights = call.shapes
    if call.post_ops or call.scales or call.types[0] != call.dst:
        raise Refused("it has one type for source and destination, no post-operations and no scales")
    by_channel = tuple(size if i == 1 else 1 for i, size in enumerate(shape))
    jit = weights == shape or (len(weights) == len(shape) > 1 and weights == by_channel)
    return JIT if jit else REFERENCE


def _reduction(call: OperatorCall) -> OperatorForm:
    name, integers, (shape,) = call.options["algorithm"], not fmt(call.types[0]).is_float, call.shapes
    _refuse_scales(call)
    reduced = {axis % len(shape) for axis in call.options["axes"]}
    out = tuple(1 if i in reduced else size for i, size in enumerate(shape))
    if out == shape:
        raise Refused("it reduces nothing")
    norm = name in _NORMS
    inner = len(shape)
    while inner and shape[inner - 1] > 1 and inner - 1 in reduced:
        inner -= 1
    along = inner < len(shape) and out[:inner] == tuple(shape[:inner])
    jit = along and call.in_rows and len(shape) < 6 and not norm
    jit = jit and by_kernel(call, out, ("scalar", "channel", "none"))
    if norm and integers:
        raise Refused("norms are of floats")
    return _ended(call, out, jit)


def _pooling(call: OperatorCall) -> OperatorForm:
    _refuse_scales(call)
    (dtype,), (shape,), options = call.types, call.shapes, call.options
    spatial = len(shape) - 2
    dilated = max(options["dilation"]) > 1
    if options.get("algorithm") == "avg_exclude_padding" and _sees_nothing(call):
        raise Refused("means without padding have taps less than an image apart, and padding narrower than windows")
    floats = fmt(dtype).is_float
    out_ops = by_kernel(call, (*shape[:2], *[2] * spatial), ("scalar", "channel", "none"))
    same = dtype == call.dst and not dilated
    if floats:
        wide = "avx512_core" in call.caps
        two = spatial < 2 or (shape[-1] > 1 and shape[-2] > 1)
        rows = wide and shape[1] > 3 and (dtype != "f32" or (spatial > 1 and two))
        jit = same and (call.channels_last or call.in_rows and rows)
        if jit and not call.channels_last and _as_large(call, shape, options["out"]):
            raise Refused("in rows its kernel reads second operands as large as the output at other places")
    else:
        jit = same and call.channels_last and not (options.get("algorithm", "max") == "max" and call.post_ops)
        jit = jit and out_ops and _fits_registers(call)
        refuse_ending(call, (*shape[:2], *[2] * spatial))
        return OperatorForm("jit_int", integers="converted") if jit else REFERENCE
    return _ended(call, (*shape[:2], *[2] * spatial), jit and out_ops)


def _sees_nothing(call: OperatorCall) -> bool:
    """Whether its check fears that a window lies beside the image."""
    options, shape = call.options, call.shapes[0]
    rank = len(shape) - 2
    ends = zip(options["padding"][:rank], options["padding"][rank:], strict=True)
    every = zip(shape[2:], options["kernel"], options["dilation"], ends, strict=True)
    return any(gap > n or max(pads) > (taps - 1) * gap for n, taps, gap, pads in every)


def _by_channel(call: OperatorCall) -> bool:
    """Whether a second operand has a value for each of several channels."""
    return any(isinstance(part, tuple) and prod(part) > 1 for _, *given in call.post_ops for part in given)


def _as_large(call: OperatorCall, shape: tuple[int, ...], out: list[int]) -> bool:
    """Whether a second operand is as large as an output that has more than a pixel."""
    whole = (*shape[:2], *out)
    return prod(out) > 1 and any(part == whole for _, *given in call.post_ops for part in given)


def _fits_registers(call: OperatorCall) -> bool:
    """Whether pooling's kernel of integers takes an image: padding is narrower than the window, and the smaller of
    source and destination fills a register, as it reads and writes whole ones but for AVX-512 (`init_conf` of
    jit_uni_i8i8_pooling.cpp). Raises `Refused` where the kernel for sse41 takes a smaller one, whose functions differ.
    """
    shape, options = call.shapes[0], call.options
    rank = len(shape) - 2
    every = zip(shape[2:], options["out"], options["strides"], options["kernel"], strict=True)
    behind = [(o - 1) * s + k - n - a for (n, o, s, k), a in zip(every, options["padding"][:rank], strict=True)]
    if any(max(pad) >= k for *pad, k in zip(options["padding"][:rank], behind, options["kernel"], strict=True)):
        return False
    held = prod((*shape[:2], *map(min, shape[2:], options["out"]))) * (4 if call.dst == "s32" else 1)
    if "avx512_core" in call.caps or held >= 32:
        return True
    if held >= 16:
        refuse_ending(call, (*shape[:2], *[2] * rank), alike=True)
    return held >= 16


def _resampling(call: OperatorCall) -> OperatorForm:
    _refuse_scales(call)
    (shape,) = call.shapes
    if prod(shape[2:]) == prod(call.options["out"]) == 1:
        raise Refused("from one pixel to one it writes to other memory")
    out = (*shape[:2], *[2] * (len(shape) - 2))
    jit = by_kernel(call, out, ("scalar", "channel")) and not _missing(call.operands, call.caps)
    jit = jit and not (call.in_rows and prod(shape[2:]) == 1)  # which it takes for channels last, unlike the output
    if jit and call.in_rows and shape[0] == prod(call.options["out"]) == 1 and _by_channel(call):
        raise Refused("to one pixel in rows its kernel reads second operands by channel at other places")
    order = "corner by corner" if call.in_rows else "plane by plane"
    return _ended(call, out, jit, OperatorForm("simple" if call.in_rows else "ref", True, order))


def _concat(call: OperatorCall) -> OperatorForm:
    if call.post_ops or "dst" in call.scales:
        raise Refused("it takes scales of sources, and nothing behind them")
    if len({*call.types}) > 1:
        raise Refused("it takes sources of one type")
    src, dst = call.types[0], call.dst
    if src == dst and not call.scales and src not in F8 and _NEEDS.get(src, "avx2") in call.caps:
        return JIT
    return OperatorForm("ref", parts=tuple(_joined(call, i) for i in range(len(call.types))))


def _joined(call: OperatorCall, i: int) -> ReorderPart:
    """The reorder of a source into its part of the destination: between equal layouts along the first dimension."""
    shape, axis = call.shapes[i], call.options.get("axis", 1) % len(call.shapes[i])
    plain, src, dst = f"src{i}" not in call.scales, call.types[i], call.dst
    by = reorders.implementation(src, dst, call.caps, plain, axis == 0)
    if not by:
        raise Refused(f"it has no reorder between {src} and {dst} here")
    lines = call.in_rows and len(shape) in (3, 4) and prod(shape[:axis]) == 1
    copied = lines and plain and src == "f32" and dst in BYTES
    return reorders.part(src, dst, call.caps, "copy" if copied else by, plain, lines)


def _weighted_sum(call: OperatorCall) -> OperatorForm:
    """Dot products of pairs of bf16; a simple loop over one type; or a reorder of each source to f32, and of that."""
    if call.scales or call.post_ops:
        raise Refused("it takes no scales and no post-operations")
    src, dst, caps = call.types[0], call.dst, call.caps
    if {*call.types} == {src} and src in _WIDE and dst in (src, "f32") and _NEEDS.get(src, "avx2") in caps:
        factors = call.options.get("factors", ())
        if src == "bf16" and len(call.types) <= _PAIRED and all(map(_is_bf16, factors)):
            return OperatorForm("jit_xf16", order="flushed pairs" if "avx512_core_bf16" in caps else "pairs")
        if len(call.types) <= _MANY:
            return JIT
    parts = []
    for dtype in call.types:
        if not (by := reorders.implementation(dtype, "f32", caps, False)):
            raise Refused(f"it has no reorder from {dtype} to f32 here")
        parts.append(reorders.part(dtype, "f32", caps, by, False))
    if not (by := reorders.implementation("f32", dst, caps)):
        raise Refused(f"it has no reorder from f32 to {dst} here")
    lines = call.in_rows and len(call.shapes[0]) in (3, 4)
    return OperatorForm("ref", parts=(*parts, reorders.part("f32", dst, caps, by, True, lines)))


def _is_bf16(number: float) -> bool:
    """Whether a number of f32 is one of bf16."""
    return not int(np.float32(number).view(np.uint32)) & 0xFFFF


def _lrn(call: OperatorCall) -> OperatorForm:
    """Kernels for images whose channels fill registers; AVX2's sums go on from channel to channel where these lie in
    planes (`pd_t::init` of jit_avx512_common_lrn.cpp and jit_uni_lrn.cpp).
    """
    (dtype,), (shape,), options = call.types, call.shapes, call.options
    if dtype not in _WIDE:
        raise Refused("it takes f32, bf16 and f16")
    size, beta = options["size"], np.float32(options.get("beta", 0.75))
    across, wide = options.get("algorithm", "across_channels") == "across_channels", "avx512_core" in call.caps
    if len(shape) != 4:
        return REFERENCE._replace(order="rows")
    if wide and across and call.channels_last and size <= _NEIGHBOURS and beta in (0.75, 1):
        return JIT._replace(order="middle")
    for lanes in (16, 8) if wide else (8,):
        if beta != 0.75 or shape[1] % lanes or shape[1] < 2 * lanes or (lanes == 8 and dtype != "f32"):
            continue
        if across and lanes == 8 and size == 5 and (call.in_rows or call.channels_last):
            return JIT._replace(order="sliding" if call.in_rows else "rows")
        if not across and call.named_last and size <= min(5, *shape[2:]):
            return JIT._replace(order="rows")
    return REFERENCE._replace(order="rows")


def _shuffle(call: OperatorCall) -> OperatorForm:
    if call.scales or call.post_ops:
        raise Refused("it takes no scales and no post-operations")
    return JIT


_RULES: dict[str, Callable[[OperatorCall], OperatorForm]] = {
    "softmax": _softmax,
    "layer_normalization": _layer_normalization,
    "batch_normalization": _batch_normalization,
    "group_normalization": _group_normalization,
    "eltwise": _eltwise,
    "binary": _binary,
    "prelu": _prelu,
    "reduction": _reduction,
    "pooling": _pooling,
    "resampling": _resampling,
    "concat": _concat,
    "weighted_sum": _weighted_sum,
    "shuffle": _shuffle,
    "lrn": _lrn,
    "conversion": reorders.form,
    "deconvolution": deconvolution.form,
}
