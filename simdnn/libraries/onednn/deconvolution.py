"""oneDNN's transposed convolutions: which implementation takes one, and in which order that adds up
(docs/numerics.md, rule 18).

It has kernels for strides of 1, which are convolutions of turned weights, and for others ("strided"). What these leave
is the gradient of a convolution towards its source in f32, by older kernels and a GEMM; its end is the reference's.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np

from isa_models import Unimplemented
from isa_models.formats import fmt
from simdnn.kernels.common.postops import BINARY
from simdnn.libraries.model import OperatorCall, OperatorForm
from simdnn.libraries.onednn.endings import BYTES, WHOLE, Refused, by_kernel, refuse_ending
from simdnn.libraries.onednn.log import family, instructions
from simdnn.libraries.onednn.tiles import on_tiles
from simdnn.libraries.onednn.transposed import Transposed

#: types of biases that its kernels read; its reference reads floats
_BIASES = {"f32": ("f32",), "bf16": ("f32", "bf16"), "f16": ("f32", "f16")}
_BIASES |= dict.fromkeys(BYTES, ("f32", "s32", "s8", "u8"))
_WORKS = "what works: dispatch='fastest'"
_MOST_CHANNELS = 256  # sums of more were not looked at
_LANES = 16
_FIRST_CUT = 96  # channels that AVX2's GEMM of floats sums before it cuts


def _by_kernel(call: OperatorCall, p: Transposed, whole: bool = True) -> bool:
    """Whether kernels have what stands behind the sums."""
    own = call.bias in ("", *_BIASES[p.src])
    return own and by_kernel(call, p.shape, ("scalar", "channel"), whole=whole)


def _in_any_order(call: OperatorCall, p: Transposed, order: str) -> bool:
    """Whether a kernel of floats sums channels that lie last as it sums rows."""
    emulated = p.src == "bf16" and "avx512_core_bf16" not in call.caps
    return (
        order in ("strided", "tiles", "reference")
        or (order == "chain" and p.depthwise)
        or (order == "blocks" and emulated)
    )


def form(call: OperatorCall) -> OperatorForm:
    """The implementation that takes a transposed convolution, by its name in oneDNN's log, and its order of sums:
    "strided", "chain", "blocks" (sizes: channels of a block, and how many blocks are summed from zero,
    0: all), "products" of a tap each, the "reference"'s loops (sizes as of blocks). Raises `Refused`.
    """
    p = Transposed.of(call)
    if p.src == "bf16" and "avx512_core" not in call.caps:
        raise Refused("bf16 needs avx512_core")
    if floats := {"f32": _f32, "bf16": _bf16, "f16": _f16}.get(p.src):
        found = floats(call, p)
        avx2 = p.src == "f32" and "avx512_core" not in call.caps and found.order == "products"
        if not avx2 and found.order not in ("tiles", "reference") and p.ic > _MOST_CHANNELS:
            raise Refused("sums of more than 256 channels, which it may cut")
    elif p.src in BYTES:
        found = _bytes(call, p)
    else:
        raise Refused("the order of its sums is not followed")
    if found.by_reference and call.bias in WHOLE:
        raise Refused(f"its reference has no bias of {call.bias}: f32, bf16 and f16 work")
    if call.named_last and p.src not in BYTES and not _in_any_order(call, p, found.order):
        raise Refused("channels last in memory, over which its older kernels and GEMM sum in other orders")
    refuse_ending(call, p.shape)
    return found


def _f32(call: OperatorCall, p: Transposed) -> OperatorForm:
    if call.types[1] != "f32" or (call.dst != "f32" and not call.post_ops and "bias" not in call.rows):
        raise Refused("f32 with other types is not followed")
    tiers = [(isa, lanes) for isa, lanes in (("avx512_core", 16), ("avx2", 8)) if isa in call.caps]
    if call.dst == "f32" and _by_kernel(call, p):
        for isa, lanes in tiers:
            if p.strided(lanes):
                return _strided(isa)
    for isa, lanes in tiers:
        if p.strided(lanes):
            return OperatorForm(f"conv:any+brgconv_strided:{isa}", True, "strided")
        if p.depthwise and len(p.size) == 2 and max(p.dilation) == 1:
            return OperatorForm(f"conv:any+jit_dw:{isa}", True, "chain")
        if p.single_tap:
            return OperatorForm(f"conv:any+jit_1x1:{isa}", True, *_of_single_taps(p, isa))
        if isa == "avx512_core" and p.divided_by(16, 8, 4) and not (p.outside or p.both) and p.fits_registers():
            return OperatorForm(f"conv:any+jit:{isa}", True, "blocks", (p.block, 1))
        if isa == "avx2" and _by_jit_avx2(p):
            together = 1 if len(p.size) == 3 else 4 if p.size[-1] < 15 else 2 if p.size[-1] < 40 else 1
            return OperatorForm(f"conv:any+jit:{isa}", True, "blocks", (8, together))
    if "avx512_core" not in call.caps and p.oc * prod(p.kernel) == 1 and p.ic > _FIRST_CUT:
        raise Refused("the order of its GEMM for one row is not known")
    return OperatorForm("conv:any+x64:gemm:jit", True, "products")


def _of_single_taps(p: Transposed, isa: str) -> tuple[str, tuple[int, ...]]:
    """The order of an older kernel of one tap, and channels of a block, and blocks summed together: 64 channels under
    AVX2; of images of some lines to few channels 80 of f32 and 160 of bf16, else all of up to 256 (`reduce_blocking` of
    jit_avx2_1x1_conv_kernel_f32.cpp, jit_avx512_common_1x1_conv_kernel.cpp, jit_avx512_core_bf16_1x1_conv_kernel.cpp).
    """
    most = 160 if p.src == "bf16" else 64 if isa == "avx2" else 80
    few = isa == "avx2" or (10 < prod(p.size[:-1]) < 28 and p.oc <= 256)
    together = min(p.ic, most) if few else p.ic
    if isa != "avx2" and prod(p.size) * together * fmt(p.src).bytes > 7 << 16:
        raise Refused("an image whose pixels alias in the second cache, which may make its blocks of channels smaller")
    block = 8 if isa == "avx2" else 16
    return ("chain", ()) if p.ic <= together else ("blocks", (block, most // block))


def _strided(isa: str) -> OperatorForm:
    """The kernel for strides, its end included."""
    name = f"brg_deconv:{isa}+brgconv_strided:{isa}"
    return OperatorForm(name, False, "strided", slopes="sign" if isa == "avx2" else "no greater")


def _by_jit_avx2(p: Transposed) -> bool:
    """Whether the older kernel of AVX2 takes it: strides alike on rows and columns, what it cuts off within a tile."""
    depth, rows, columns = (*(1,) * (3 - len(p.size)), *p.strides)
    if not p.divided_by(8) or p.outside or p.both or columns != rows or depth != 1:
        return False
    width, channels = p.out[-1], p.oc if p.groups > 1 else -(-p.oc // 8) * 8
    if p.oc < 8 and p.kernel[-1] > 3 and columns > 1:
        return False
    left = max(0, (p.reach[-1] - 1 - p.before[-1]) // columns)
    best, tile = 0, 1
    for several in (n for n in range(1, 5) if channels // 8 % n == 0):
        step = columns
        while step * several + step // columns <= 15 and step < width + columns:
            taken = min(step, width)
            if not (left * columns > taken and taken != width):
                steps = -(-taken // columns) * several
                if steps > best or steps == best and tile < taken:
                    best, tile = steps, taken
            step += columns
    rest = width % tile
    right = max(0, int((p.reach[-1] - 1 - p.behind[-1] - rest) / columns))
    split = width > tile
    return best > 0 and not (right * columns > tile or split and (tile % columns or p.behind[-1] + rest < 0))


#: of floats of 16 bits: caps with a kernel for strides, their names in oneDNN's log, and its order
_STRIDED = {
    "bf16": (("avx512_core_amx", "avx10_1_512_amx", "tiles"), ("avx512_core_bf16", "avx512_core_bf16", "strided")),
    "f16": (("avx512_core_amx_fp16", "avx10_1_512_amx_fp16", "tiles"), ("avx512_core_fp16", "avx10_1_512", "strided")),
}


def _by_strides(call: OperatorCall, p: Transposed) -> OperatorForm | None:
    """The kernel for strides of floats of 16 bits, by itself or ahead of the reference's end."""
    for cap, isa, order in _STRIDED[p.src]:
        if cap in call.caps and (p.strided_on_tiles() if order == "tiles" else p.strided(_LANES)):
            if _by_kernel(call, p):
                if order == "tiles":
                    _refuse_unseen(call, p)
                return OperatorForm(f"brg_deconv:{isa}+brgconv_strided:{isa}", False, order, slopes="no greater")
            return OperatorForm(f"conv:any+brgconv_strided:{isa}", True, order)
        if cap == "avx512_core_amx" in call.caps and p.older_on_tiles() and not any(map(_of_two, call.post_ops)):
            raise Refused("its older kernel on tiles is not followed")
    return None


def _of_two(op: Sequence[Any]) -> bool:
    """Whether a post-operation has a second operand."""
    return op[0] in (*BINARY, "prelu")


def _refuse_unseen(call: OperatorCall, p: Transposed) -> None:
    """Raises where the kernel for strides on tiles leaves outputs that see no source as zeros, whatever follows."""
    if (call.post_ops or call.bias or "dst" in call.zero_points) and not p.pointwise and p.seen != p.out:
        raise Refused("on tiles it adds no bias, and does nothing else, where outputs see no source")


def _f16(call: OperatorCall, p: Transposed) -> OperatorForm:
    if call.types[1] != "f16" or call.dst not in ("f16", "f32"):
        raise Refused("f16 to other types is not followed")
    if "avx512_core_fp16" not in call.caps:
        raise Refused("f16 needs avx512_core_fp16")
    if found := _by_strides(call, p):
        return found
    if not (p.stepped or p.outside):
        raise Refused("the gradient of a convolution with strides of 1 by its newer kernel is not followed")
    if "avx512_core_amx_fp16" in call.caps and p.older_on_tiles():
        raise Refused("its older kernel on tiles is not followed")
    channels_first = p.ic <= p.kernel[-1]  # as blocks of one channel; else an output's taps come first
    return OperatorForm("conv:any+ref:any", True, "reference", (1, 0) if channels_first else ())


def _bf16(call: OperatorCall, p: Transposed) -> OperatorForm:
    if call.types[1] != "bf16" or call.dst not in ("bf16", "f32"):
        raise Refused("bf16 to other types is not followed")
    if found := _by_strides(call, p):
        return found
    isa = "avx512_core_bf16" if "avx512_core_bf16" in call.caps else "avx512_core"
    if p.depthwise and len(p.size) == 2 and max(p.dilation) == 1:
        return OperatorForm(f"conv:any+jit_dw:{isa}", True, "chain")
    if p.single_tap:
        return OperatorForm(f"conv:any+jit_bf16_1x1:{isa}", True, *_of_single_taps(p, isa))
    if p.divided_by(16, 8, 4) and not (p.outside or p.both) and p.fits_registers():
        return OperatorForm(f"conv:any+jit_bf16:{isa}", True, "blocks", (p.block, 0))
    if prod(p.size) == 1:
        raise Refused("the order of its GEMM for one pixel is not known")
    return OperatorForm("conv:any+x64:gemm:jit", True, "products")


def _bytes(call: OperatorCall, p: Transposed) -> OperatorForm:
    """The implementation for bytes: a kernel, or a GEMM or loops, which hand f32 to the reference's end."""
    if call.types[1] != "s8" or call.dst not in (*WHOLE, "f32", "bf16"):
        raise Refused("other types of weights and destinations are not followed")
    exact = bool(call.caps & {"avx512_core_vnni", "avx2_vnni"})
    by_channel = any(np.ndim(point) for point in call.zero_points.values())  # which no kernel has
    if by_channel and call.caps & {"avx512_core", "avx2_vnni"}:
        raise Refused("zero points by channel are not known but under avx2")
    found = None if by_channel else _by_kernel_of_bytes(call, p)
    if found is None:
        return _by_gemm_of_bytes(call, p, exact)
    if p.src == "s8" and not exact:
        return found._replace(order="halved", lifted="avx512_core" not in call.caps)
    return found._replace(order="pairs") if found.order == "products" else found


def _by_kernel_of_bytes(call: OperatorCall, p: Transposed) -> OperatorForm | None:
    caps = call.caps
    wide = "avx512_core" in caps
    isa: str = next(cap for cap in ("avx512_core_vnni", "avx512_core", "avx2_vnni", "avx2") if cap in caps)
    own, with_vnni = _by_kernel(call, p), isa == "avx2_vnni"
    if own and (p.strided(16) if wide else with_vnni and p.strided(8) and call.dst != "bf16"):
        tiles = "avx512_core_amx" in caps and p.strided_on_tiles()
        if tiles:
            _refuse_unseen(call, p)
            if call.zero_points.get("src") and {"src", "wei"} <= call.scales.keys():
                raise Refused("whether scales come multiplied with each other, as on tiles, is not known here")
        shifted = p.src == "s8" or call.zero_points.get("src")
        if shifted and not _shifts_right(p, p.src == "s8"):
            raise Refused("what it adds for an s8 source or zero point is wrong at edges, or memory not written")
        order = "products" if isa == "avx512_core" or p.depthwise else "strided"
        isa = "avx10_1_512_amx" if tiles else isa
        name = f"brg_deconv:{isa}+brgconv_strided:{isa}"
        return OperatorForm(name, False, order, slopes="no greater" if wide else "sign", merged=tiles)
    if not (wide or with_vnni) and own and p.single_tap and call.dst != "bf16":
        return OperatorForm(
            "jit_deconvolution:avx2+jit_uni_int8_1x1:avx2", False, "products", merged=True, slopes="sign"
        )
    first = not wide or all(name != "sum" for name, *_ in call.post_ops[1:])
    if first and _by_kernel(call, p, whole=False) and _by_older_kernel_of_bytes(call, p, 16 if wide else 8):
        shifted = p.src == "s8" or call.zero_points.get("src")
        if shifted and any(s > k for s, k in zip(p.strides, p.kernel, strict=True)):
            raise Refused("what it adds for an s8 source or zero point is wrong between windows that do not meet")
        unsure = wide and p.groups > 1 and call.dst == "u8"
        if unsure and {name for name, *_ in call.post_ops} & {"div", "sqrt", "pow", "log"}:
            raise Refused("whether a kernel of 256 bits takes it, which makes another number of a NaN, is not known")
        if wide:
            return OperatorForm(f"jit_deconvolution:{isa}", False, "products", slopes="no greater")
        of_nan = "greatest" if call.dst == "s8" else "bounded"
        return OperatorForm(f"jit_uni_int8:{isa}", False, "products", merged=True, slopes="sign", integers=of_nan)
    if "avx512_core_vnni" in caps and not first and own and _by_older_kernel_of_bytes(call, p, 8):
        raise Refused("a kernel of AVX2, whose pairs saturate, takes a sum behind other operations")
    if not wide and own and _by_older_kernel_of_bytes(call, p, 4):
        raise Refused("its kernel of 128 bits is not followed")
    return None


def _shifts_right(p: Transposed, by_source: bool) -> bool:
    """Whether the kernel for strides adds right what a shift of the source makes of its sums: an s8 one's, `by_source`,
    which it adds to zeros around it, too, or a zero point's.

    Rows that strides do not divide it turns, outputs of an offset beside each other, sums of a shift alike: these may
    lie behind their end, also those of rows that see nothing; and for an s8 source those of the middle output, which
    may not see all taps, stand for all.
    """
    seen = p.seen
    if not all(seen):
        return False  # it crashes
    width, step, size = p.out[-1], p.strides[-1], p.size[-1]
    columns, rest = -(-width // step), width % step
    if not rest:
        return True
    if (columns > 1 and rest != step - 1) or any(map(int.__lt__, seen[:-1], p.out[:-1])):
        return False
    if not by_source:
        return True
    for offset in range(min(step, width)):
        middle = columns // 2 * step + offset
        if middle >= width or offset * columns + columns // 2 >= width:
            return False
        taps = [tap for tap in range(p.kernel[-1]) if (offset + p.before[-1] - tap) % step == 0]
        if not all(0 <= (middle + p.before[-1] - tap) // step < size for tap in taps):
            return False
    return True


def _by_older_kernel_of_bytes(call: OperatorCall, p: Transposed, lanes: int) -> bool:
    """Whether an older kernel takes it: strides or dilation, channels by fours in groups, and an edge within a tile."""
    if call.dst == "bf16" or p.outside or p.both or (p.depthwise and (p.src == "s8" or len(p.size) == 3)):
        return False
    block = lanes
    if p.groups > 1 and not p.depthwise:
        block = next((b for b in (lanes, 8, 4) if p.ic % b == 0 and p.oc % b == 0), 0)
        block = block if lanes == 16 or block in (0, lanes) else 4
    if not block:
        return False
    width, step, before = p.out[-1], p.strides[-1], p.before[-1]
    registers = 30 if lanes == 16 else 12
    many = 1 if p.depthwise else -(-p.oc // block)
    together = min(4, many)
    while together > 1 and (many % together or before > registers // (together + 1)):
        together -= 1
    tile = registers // (together + 1)
    reach = p.reach[-1] - 1
    if width < tile:
        return True
    left = max(0, _towards_zero(reach - before, step))
    for size in range(tile, 0, -1):
        right = max(0, _towards_zero(reach - max(0, p.behind[-1]) - width % size, step))
        if size % step == 0 and size >= left * step and size >= right * step:
            return True
    return False


def _towards_zero(a: int, b: int) -> int:
    return int(a / b)


def _by_gemm_of_bytes(call: OperatorCall, p: Transposed, exact: bool) -> OperatorForm:
    """The GEMM, or loops where that would need much memory beside its tensors."""
    size, out = prod(p.size), prod(p.out)
    behind = call.post_ops or "bias" in call.rows or call.zero_points.keys() or call.scales.keys()
    if not (behind or exact) and call.dst in WHOLE:
        raise Refused("whether its GEMM or loops take it is not known")
    if call.dst == "bf16" and call.post_ops and "avx512_core" not in call.caps:
        raise Refused("the sign of a zero in bf16 is not followed")
    written = 4 if behind else fmt(call.dst).bits // 8
    given = p.images * p.groups * (p.ic * size + p.oc * out * written)
    limit = 15 * (given + p.groups * p.oc * p.ic * prod(p.kernel))
    needed = 4 * (p.oc * prod(p.kernel) * size + out * p.oc)
    if abs(needed - limit) < 512:
        raise Refused("whether a GEMM takes it is not known")
    if needed > limit:
        return OperatorForm("conv:any+ref:any", True, "exact")
    if not exact and (size == 1 or p.oc * prod(p.kernel) == 1):
        raise Refused("its product of a vector is not followed")
    return OperatorForm(f"conv:any+x64:gemm_s8{p.src}s32:jit", True, "products")


def way(call: OperatorCall) -> str:
    """How it is asked for here: as a "convolution" of turned weights, which those of integers and f16 with strides of 1
    are, and of bf16 on tiles; or as sums of its own.
    """
    p = Transposed.of(call)
    if p.stepped:
        return "sums"
    usual = not p.depthwise and not (p.groups > 1 and p.ic <= _LANES and p.fours)
    if p.src == "f16":
        usual = "avx512_core_fp16" in call.caps
    elif p.src not in BYTES and not call.named_last:  # another layout of its own is tiles' alone
        usual = p.src == "bf16" and _on_tiles(call, p)
    wide = bool(call.caps & {"avx512_core", "avx2_vnni"}) or p.src == "f32"
    if p.src == "bf16":
        wide = "avx512_core_bf16" in call.caps
    if p.src in BYTES and call.dst == "bf16":  # which kernels of 256 bits do not write
        wide = "avx512_core" in call.caps
    by_channel = np.ndim(call.zero_points.get("dst", 0))  # which no kernel takes
    own = wide and usual and not p.outside and not by_channel and _by_kernel(call, p)
    return "convolution" if own else "sums"


def _on_tiles(call: OperatorCall, p: Transposed) -> bool:
    """Whether the convolution of turned weights runs on tiles."""
    return (
        "avx512_core_amx" in call.caps and on_tiles(p.convolution(call.types[1], call.dst), call.caps, "") is not None
    )


def name(src: str, implementation: str, channels: int, caps: frozenset[str]) -> str:
    """The library's name of a transposed convolution that is an implementation of the convolution; `channels`: of the
    source in a group. Raises `Unimplemented` where it is not.
    """
    exact = src in BYTES and caps & {"avx512_core_vnni", "avx2_vnni"}
    kernel = family(implementation)
    usual = kernel in ("brg_conv_fwd", "brgconv_1x1") or (src == "f16" and kernel == "brdgmm_dw")
    if src in ("f32", "bf16") and not usual:
        raise Unimplemented(
            f"dispatch='onednn' for a deconvolution of {src} with channels last, where a convolution is "
            f"{implementation}'s: the order of its sums is not followed; {_WORKS}, or rows in memory"
        )
    if kernel == "ref":
        raise Unimplemented(
            f"dispatch='onednn' for a deconvolution of {src}, where a convolution is its reference's: oneDNN has "
            f"none, or takes another way; {_WORKS}"
        )
    if not (exact or (usual and (channels > 1 or src not in BYTES))):
        raise Unimplemented(
            f"dispatch='onednn' for a deconvolution of {src} by its GEMM, where a convolution is {implementation}'s: "
            f"what saturates there is not followed; {_WORKS}"
        )
    if kernel not in ("brg_conv_fwd", "brgconv_1x1"):
        return implementation
    return f"brg_deconv:{instructions(implementation)}+{implementation}"
