"""Calls of simdnn's primitives for a case: sizes, types, layouts; or a refusal with its reason."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from math import prod
from typing import Any

from isa_models import Unimplemented
from isa_models.errors import counted
from simdnn.benchdnn.descriptors import Axis, ConvDims, IpDims, MatmulDims
from simdnn.benchdnn.layouts import Moved, letters_of, matrix_layout, moved, plain_layouts, strided, user_strides
from simdnn.benchdnn.options import Case
from simdnn.benchdnn.subset import NEUTRAL
from simdnn.benchdnn.tasks import Task, axes_of
from simdnn.libraries import LIBRARIES
from simdnn.primitives.checks import gpu_of

_BIASES = ("undef", "f32", "bf16", "f16", "s32", "s8", "u8")
_OWN_LAYOUT = "weights come in the kernel's own layout"


def task(case: Case) -> Task:
    """The call of a primitive that a case asks; `Unimplemented` with the reason for what none here does."""
    for name, neutral in NEUTRAL.items():
        hint = ""
        if name == "engine":
            kind = "cpu" if gpu_of(case.options["machine"]) is None else "gpu"
            neutral = (*neutral, kind, f"{kind}:0")
            other = "b580 a GPU" if kind == "cpu" else "zen4 a CPU"
            hint = f"; {case.options['machine']!r} is a {kind.upper()}, --machine={other}"
        if case.options.get(name, neutral[0]) not in neutral:
            raise Unimplemented(f"--{name}={case.options[name]}: not modelled{hint}")
    types = case.options["dt"].split(":")
    src, wei, dst = types * 3 if len(types) == 1 else types
    return _BUILDERS[case.driver](case, (src, wei, dst))


def _matmul(case: Case, types: tuple[str, str, str]) -> Task:
    """The matmul of a case: sizes, layouts with the reorders that they take, batch and bias."""
    dims = case.dims
    assert isinstance(dims, MatmulDims)
    batch, m, k, n = dims.sizes
    letters = "abcdefghijkl"[: dims.ndims]
    runtime = _runtime_dims(case, dims.ndims)
    remarks = ("runtime dimensions are known ones here",) if runtime and case.options["dispatch"] == "fastest" else ()
    front = tuple(map(max, dims.src[:-2], dims.wei[:-2]))
    of_src, of_wei, of_dst = user_strides(case.options["strides"], dims.ndims)
    moves = [
        *_move("src", case.options["stag"], of_src, dims.src, types[0], letters),
        *_move("dst", case.options["dtag"], of_dst, (*front, dims.src[-2], dims.wei[-1]), types[2], letters),
    ]
    wtag = letters_of(case.options["wtag"], dims.ndims)
    tags = {"wei_tag": {letters: "ab", letters[:-2] + letters[-1] + letters[-2]: "ba"}.get(wtag, "any")}
    if case.options["dispatch"] in LIBRARIES:
        tags = _named_matrices(case, types, runtime)
    elif wtag != "any" and tags["wei_tag"] == "any" or of_wei:
        tags, remarks = {"wei_tag": "any"}, (*remarks, _OWN_LAYOUT)
    bias = case.options["bia-dt"] != "undef"
    _check_bias(case)
    mask = int(case.options["bia_mask"] or 2)
    usual = mask == 1 << (dims.ndims - 1)
    facts: dict[str, Any] = {"moves": tuple(moves), "remarks": remarks, "bias_mask": 0 if usual or not bias else mask}
    sizes: dict[str, Any] = {"m": m, "n": n, "k": k, **tags}
    if runtime and not remarks:
        sizes["runtime_dims"] = runtime
    if batch == 1:
        return Task(case, "matmul", sizes, types, bias and usual, **facts)
    src, wei = dims.src[:-2], dims.wei[:-2]
    several = sizes | {"src_batch": src, "wei_batch": wei}
    return Task(case, "matmul", several, types, bias and usual, batch=(src, wei, front), **facts)


def _named_matrices(case: Case, types: tuple[str, str, str], runtime: str) -> dict[str, str]:
    """The layouts of matrices as a library is told; `Unimplemented` for those it takes otherwise."""
    dims, options = case.dims, case.options
    assert isinstance(dims, MatmulDims)
    m, n = dims.src[-2], dims.wei[-1]
    front = tuple(map(max, dims.src[:-2], dims.wei[:-2]))
    shapes = {"s": dims.src, "w": dims.wei, "d": (*front, m, n)}
    places = zip(shapes.items(), user_strides(options["strides"], dims.ndims), strict=True)
    src, wei, dst = (matrix_layout(options[f"{one}tag"], strides, shape) for (one, shape), strides in places)
    blocks = bool(re.search(r"\d", options["dtag"]))
    turned = blocks or dst.endswith("ba") and 1 not in (m, n)
    slopes = dst.endswith("ba") and 1 in (m, n) and "prelu" in options["attr-post-ops"]  # which lie as the destination
    spread = dst.startswith("apart") and src == "ba" and n == 1  # its kernel stores registers
    if slopes or spread or not (src and wei and (dst or blocks)) or src.startswith("blocks"):
        raise _other_kernels(case, "any, and what has rows or columns beside each other, weights in blocks of 16 rows")
    return {"src_tag": src, "wei_tag": wei, "dst_tag": "ba" if turned else "any"}


def _runtime_dims(case: Case, ndims: int) -> str:
    """The dimensions that a library learns at run time only, by the masks of source and weights."""
    masks = [int(mask or 0) for mask in case.options["runtime_dims_masks"].split(":")]
    names = "b" * (ndims - 2) + "mk", "b" * (ndims - 2) + "kn"
    found = {name for mask, of in zip(masks, names, strict=False) for i, name in enumerate(of) if mask >> i & 1}
    return "".join(name for name in "bmkn" if name in found)


def _move(
    name: str, tag: str, strides: tuple[int, ...], shape: tuple[int, ...], dtype: str, *own: str
) -> tuple[Moved, ...]:
    """The copy that a tag or strides of source or destination ask for; none for the layouts `own`."""
    if strides:
        found = strided(name, strides, shape, dtype)
        return (found,) if found else ()
    if tag == "any" or letters_of(tag, len(shape)) in own:
        return ()
    return (moved(name, tag, shape, dtype),)


def _convolution(case: Case, types: tuple[str, str, str]) -> Task:
    """The convolution of a case: sizes, layouts with the reorders that they take, bias."""
    dims, options = case.dims, case.options
    assert isinstance(dims, ConvDims)
    bias = _has_bias(case, "convolution")
    remarks: tuple[str, ...] = ()
    if options["alg"].lower().endswith("wino"):
        if options["dispatch"] in LIBRARIES:
            raise Unimplemented(f"--alg={options['alg']}: no Winograd kernel here; what works: direct, auto")
        remarks = ("computed direct, not by Winograd",)
    plain_tags = ("abx", "goihw", "abcde") if dims.has_groups else ("abx", "oihw", "abcd", "oiw", "abc")
    own = options["wtag"] not in ("any", *plain_tags)
    remarks += (_OWN_LAYOUT,) if own else ()
    every = axes_of(case)
    mb = int(options["mb"]) or dims.mb
    spatial, taken = every[3 - dims.written :], every[0 if dims.written == 3 else 1 :]
    height, width = every[1:]
    of_src, of_wei, of_dst = user_strides(options["strides"], 2 + len(spatial))
    last = "acdef"[: len(spatial) + 1] + "b"  # channels last, as kernels here keep images
    moves = [
        *_move("src", options["stag"], of_src, (mb, dims.ic, *(axis.i for axis in spatial)), types[0], last),
        *_move("dst", options["dtag"], of_dst, (mb, dims.oc, *(axis.o for axis in spatial)), types[2], last),
    ]
    wei_tag = "any" if options["wtag"] == "any" or own or of_wei else "oihw"
    tags = {"src_tag": "any", "wei_tag": wei_tag, "dst_tag": "any"}
    if options["dispatch"] in LIBRARIES:
        tags = _named_layouts(case, mb, spatial)
    sizes = {
        "mb": mb,
        "ic": dims.ic,
        "oc": dims.oc,
        "groups": dims.groups,
        "ih": height.i,
        "iw": width.i,
        "kh": height.k,
        "kw": width.k,
        "strides": tuple(axis.s for axis in taken),
        "dilation": tuple(axis.d + 1 for axis in taken),
        "padding": (*(axis.p for axis in taken), *(max(axis.after, 0) for axis in taken)),
        **tags,
    }
    sizes |= {"id": every[0].i, "kd": every[0].k} if dims.written == 3 else {}
    return Task(case, "convolution", sizes, types, bias, moves=tuple(moves), remarks=remarks)


def _named_layouts(case: Case, mb: int, spatial: Sequence[Axis]) -> dict[str, str]:
    """The layouts of a convolution as a library is told; `Unimplemented` for those that are no plain ones."""
    dims, options, count = case.dims, case.options, len(spatial)
    assert isinstance(dims, ConvDims)
    of_src, of_wei, of_dst = user_strides(options["strides"], 2 + count)
    last = f"a{'cdef'[:count]}b"
    images = [
        plain_layouts(options[name], strides, (mb, channels, *sizes), last)
        for name, strides, channels, sizes in (
            ("stag", of_src, dims.ic, (axis.i for axis in spatial)),
            ("dtag", of_dst, dims.oc, (axis.o for axis in spatial)),
        )
    ]
    kernel = (dims.oc // dims.groups, dims.ic // dims.groups, *(axis.k for axis in spatial))
    shape = (dims.groups, *kernel) if dims.has_groups else kernel
    last = f"{'defgh'[:count]}cab" if dims.has_groups else f"{'cdef'[:count]}ba"
    weights = plain_layouts(options["wtag"], of_wei, shape, last)
    src, dst = ("last" if "last" in kinds else next(iter(kinds), "") for kinds in images)
    both = len(weights) > 1  # one that goes with the images
    wei = ("rows" if "last" not in (src, dst) else "") if both else next(iter(weights), "")
    if not (src and wei and dst):
        raise _other_kernels(case, "any, abx and axb, --wtag=any, abx and what has channels behind pixels")
    words = {"any": "any", "last": "nhwc", "rows": "nchw"}
    own = {"any": "any", "last": "hwio", "rows": "oihw"}
    return {"src_tag": words[src], "wei_tag": own[wei], "dst_tag": words[dst]}


def _other_kernels(case: Case, works: str) -> Unimplemented:
    """Why a library's bits are not known over the layouts asked for: its reference takes them, or an older kernel."""
    said = " ".join(
        f"--{name}={case.options[name]}" for name in ("stag", "wtag", "dtag", "strides") if case.options[name]
    )
    return Unimplemented(
        f"{said} under --dispatch={case.options['dispatch']}: a library takes other kernels over such layouts, not "
        f"modelled; what works: {works}"
    )


def _inner_product(case: Case, types: tuple[str, str, str]) -> Task:
    """An inner product is the matmul of its flattened channels: rows of the source by the weights (OC, IC*ID*IH*IW)."""
    dims, options = case.dims, case.options
    assert isinstance(dims, IpDims)
    bias = _has_bias(case, "inner product")
    if options["dispatch"] in LIBRARIES:
        return _inner_product_of_a_library(case, types, bias)
    if options["dtag"] not in ("any", "ab", "abx", "axb"):
        raise Unimplemented(f"--dtag={options['dtag']}: kernels here keep rows contiguous: any, ab, abx")
    own = any(character.isdigit() for character in options["wtag"])  # blocks
    wtag = "any" if own else options["wtag"]
    src, wei = _layout(dims, "stag", options["stag"], "nc"), _layout(dims, "wtag", wtag, "oi")
    if src and src[0] != "a":
        raise Unimplemented(f"--stag={options['stag']}: kernels here keep rows contiguous: any, abx, axb")
    if wei and "a" not in (wei[0], wei[-1]):
        raise Unimplemented(f"--wtag={options['wtag']}: output channels in the middle; what works: any, abx, axb")
    if src and wei and src.replace("a", "") != wei.replace("a", ""):
        raise Unimplemented(
            f"--stag={options['stag']} --wtag={options['wtag']}: source and weights in another order; "
            "what works: --wtag=any"
        )
    wei_tag = "any" if not wei else "ba" if wei[0] == "a" else "ab"
    sizes = {"m": int(options["mb"]) or dims.mb, "n": dims.oc, "k": dims.terms, "wei_tag": wei_tag}
    return Task(case, "matmul", sizes, types, bias, remarks=(_OWN_LAYOUT,) if own else ())


def _inner_product_of_a_library(case: Case, types: tuple[str, str, str], bias: bool) -> Task:
    """The matmul that a library has for it: in layouts of its own; over rows of one pixel, or a source whose channels
    lie last, it sums alike, but for bf16 that is emulated.
    """
    dims, options = case.dims, case.options
    assert isinstance(dims, IpDims)
    pixels = prod(dims.spatial)
    found = Task(case, "matmul", {}, types, bias, channels=dims.ic, pixels=pixels)
    emulated = types[0] == "bf16" and "avx512_core_bf16" not in found.target.caps
    fine = {"any"}
    for name, letters in (("stag", "nc"), ("wtag", "oi")):
        order = _layout(dims, name, options[name], letters) if not re.search(r"\d", options[name]) else ""
        last = name == "stag" and not emulated and order == _layout(dims, name, "axb", letters)
        fine |= {options[name]} if order and (last or pixels == 1 and order[0] == "a") else set()
    if given := {options["stag"], options["wtag"], *{options["dtag"]} - {"ab", "abx", "axb"}} - fine:
        raise Unimplemented(
            f"--dispatch={options['dispatch']} of --ip in {' and '.join(sorted(given))}; what works: any, its own, "
            "rows of one pixel, and --stag=axb"
        )
    sizes = {"m": int(options["mb"]) or dims.mb, "n": dims.oc, "k": dims.terms}
    return replace(found, sizes=sizes | {"wei_tag": found.weights_tag(None)})


def _layout(dims: IpDims, name: str, tag: str, letters: str) -> str:
    """The order of an inner product's dimensions in memory, a to e, without those of size 1; "" for any.

    >>> _layout(IpDims(1, 8, 4, (3, 3)), "wtag", "hwio", "oi"), _layout(IpDims(1, 8, 4, (1, 1)), "stag", "axb", "nc")
    ('cdba', 'ab')
    """
    own, known = "abcde"[: dims.ndims], letters + "dhw"[3 - len(dims.spatial) :]
    order = {"any": "", "abx": own, "axb": f"a{own[2:]}b"}.get(tag, tag)
    if sorted(order) == sorted(known):
        order = order.translate(str.maketrans(known, own))
    if order and sorted(order) != list(own):
        raise Unimplemented(
            f"--{name}={tag}: no plain layout of {counted(dims.ndims, 'dimension')}; what works: any, abx, axb"
        )
    single = [axis for axis, size in zip(own[1:], (dims.ic, *dims.spatial), strict=True) if size == 1]
    return "".join(axis for axis in order if axis not in single)


def _has_bias(case: Case, what: str) -> bool:
    """Whether a convolution or an inner product (`what`) has a bias; refuses other directions than forward."""
    direction = case.options["dir"]
    if not direction.upper().startswith("FWD"):
        raise Unimplemented(f"--dir={direction}: no backward {what} here; what works: FWD_B, FWD_D, FWD_I")
    _check_bias(case)
    return direction.upper() == "FWD_B" or case.options["bia-dt"] != "undef"


def _check_bias(case: Case) -> None:
    if (dtype := case.options["bia-dt"]) not in _BIASES:
        raise Unimplemented(f"--bia-dt={dtype}; what works, converted to f32 first: {', '.join(_BIASES)}")


_BUILDERS: Mapping[str, Callable[[Case, tuple[str, str, str]], Task]] = {
    "matmul": _matmul,
    "conv": _convolution,
    "ip": _inner_product,
}
