"""Cases of benchdnn's drivers of one operator as calls of primitives here; or a refusal with its reason."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from isa_models import Unimplemented
from isa_models.errors import counted, unknown_name
from isa_models.formats import fmt
from simdnn.benchdnn import attributes
from simdnn.benchdnn.descriptors import ConvDims, NormDims, ResponseDims, WindowDims
from simdnn.benchdnn.layouts import Moved, letters_of, moved, strided, user_strides
from simdnn.benchdnn.operator_layouts import (
    ANY_ORDER,
    ANY_TAG,
    Named,
    blocks_alike,
    copies,
    copies_alike,
    copies_of_images,
    lies_last,
)
from simdnn.benchdnn.operator_tasks import OperatorTask
from simdnn.benchdnn.operators import POOLING, RESAMPLING, RESPONSES, SOFTMAX, Tensors, plain
from simdnn.operators.graph_builder import BINARY, ELTWISE, STORED, TYPES
from simdnn.operators.graphs import NORMS, REDUCTIONS

if TYPE_CHECKING:
    from simdnn.benchdnn.options import Case

_ACCUMULATIONS = ("", "strict", "relaxed", "any", "f32")  # sums here are of f32
_NEUTRAL = {"attr-rounding-mode": ("", "dst:environment"), "attr-acc-mode": _ACCUMULATIONS, "attr-dropout": ("",)}
_NEUTRAL |= {"attr-float-model": None, "attr-fpmath": None, "cross-engine": ("none", "")}  # type: ignore[dict-item]
_FLOATING = ("softmax", "lnorm", "gnorm")  # no library takes s32 there
_HANDLED = ("attr-scales", "attr-zero-points", "attr-post-ops")


def task(case: Case) -> OperatorTask:
    """The call of a primitive that a case asks; `Unimplemented` with the reason for what none here does."""
    options = case.options
    if not options.get("dir", "FWD_D").upper().startswith("FWD"):
        raise Unimplemented(f"--dir={options['dir']}: no backward primitive here; what works: FWD_D, FWD_I")
    if options["dispatch"] != "fastest":
        _check_library(case)
    for name, value in options.items():
        if (name.startswith("attr-") or name in _NEUTRAL) and name not in _HANDLED:
            allowed = _NEUTRAL.get(name, ("",))
            if allowed is not None and value not in allowed:
                raise Unimplemented(f"--{name}={value}: not modelled for --{case.driver}")
    return BUILDERS[case.driver](case)


def _check_library(case: Case) -> None:
    """`Unimplemented` for a library's bits of what its layouts or other primitives have a say in."""
    said = f"--dispatch={case.options['dispatch']} of --{case.driver}"
    if case.driver in ANY_ORDER:
        return
    if case.driver == "deconv":
        _check_deconvolution(case, said)
        return
    tags = {tag for name in ("tag", "stag", "dtag") for tag in case.options.get(name, "").split(":")}
    shape = _shapes(case)[0]
    letters = letters_of("abx", len(shape))
    orders = {letters_of(tag, len(shape)) for tag in tags - set(ANY_TAG)}
    works, known = "abx, or axb of all", {letters, letters_of("axb", len(shape)), *blocks_alike(case, shape)}
    if case.driver == "lnorm":  # lines of the last dimension, in any order
        works = "abx"
        known = {order for order in orders if sorted(order) == list(letters) and order[-1:] == letters[-1:]}
    mixed = len(orders) > 1 and case.driver not in ("lnorm", "reduction")
    if mixed or orders - known:
        raise Unimplemented(f"{said} in {' and '.join(sorted(tags - set(ANY_TAG)))}; what works: {works}")


def _check_deconvolution(case: Case, said: str) -> None:
    """Raises for layouts other than its own, which for integers have channels last, and channels last on both sides."""
    options, ndims = case.options, 2 + case.dims.written  # type: ignore[union-attr]
    tags = options["stag"], options["dtag"]
    sides = [tag if tag in ANY_TAG else letters_of(tag, ndims) for tag in tags]
    last = [side == letters_of("axb", ndims) for side in sides]
    own = [side in ANY_TAG for side in sides]
    whole = not fmt(options["dt"].split(":")[0]).is_float
    if options["wtag"] not in ANY_TAG or not (all(last) or all(own) or whole and all(map(max, last, own))):
        met = {options["wtag"], *tags} - set(ANY_TAG)
        raise Unimplemented(f"{said} in {' and '.join(sorted(met))}; what works: any, its own layouts, and axb to axb")


def _chosen(case: Case, allowed: Mapping[str, Any] | Sequence[str], default: str) -> str:
    name = plain(case.options["alg"]) or default
    if name not in allowed:
        raise unknown_name(f"--alg of --{case.driver}", name, allowed)
    return name


def _shapes(case: Case) -> tuple[tuple[int, ...], ...]:
    """The sources' shapes, the minibatch as --mb has it."""
    dims = case.dims
    shapes = dims.shapes if isinstance(dims, Tensors) else (dims.shape,)  # type: ignore[union-attr]
    mb = int(case.options.get("mb", "0"))
    return ((mb, *shapes[0][1:]), *shapes[1:]) if mb else shapes


def _types(case: Case, option: str, count: int) -> list[str]:
    """The type of each of `count` tensors, as an option has them: one for all, or one each."""
    found = case.options[option].split(":")
    if len(found) not in (1, count):
        raise Unimplemented(f"--{option}={case.options[option]} for {counted(count, 'tensor')}")
    known = [dtype for dtype in TYPES if dtype != "s32" or case.driver not in _FLOATING]
    known = list(STORED) if case.driver == "reorder" else known
    for dtype in found:
        if dtype not in known:
            raise Unimplemented(
                f"--{option}={dtype}: no kernel of --{case.driver} here; what works: {', '.join(known)}"
            )
    return found * count if len(found) == 1 else found


def _pair(case: Case) -> list[str]:
    """The types of source and destination in --dt."""
    return _types(case, "dt", 2)


def _dst_type(case: Case) -> str:
    return _types(case, "ddt", 1)[0]


# -- primitives -------------------------------------------------------------------------------------------------------
def _call(
    case: Case,
    primitive: str,
    sources: Mapping[str, tuple[tuple[int, ...], str]],
    output: tuple[int, ...],
    dst: str,
    options: Mapping[str, Any],
    copied: Callable[[Case, Sequence[Named]], tuple[Moved, ...]] = copies,
    ahead: tuple[attributes.AskedPostOp, ...] = (),
    **more: Any,
) -> OperatorTask:
    """A call of a primitive: the copies that its layouts ask for, and post-operations, those `ahead` of the case's."""
    moves = copied(case, [*((name, *pair) for name, pair in sources.items()), ("dst", output, dst)])
    post_ops = (*ahead, *attributes.modelled_post_ops(case.options["attr-post-ops"]))
    last = lies_last(case, output)
    more |= {"last": last, "moves": () if last else moves, "post_ops": post_ops}
    return OperatorTask(case, primitive, sources, output, dst, options, **more)


def _softmax(case: Case) -> OperatorTask:
    options = {"axis": int(case.options["axis"]), "logarithm": SOFTMAX[_chosen(case, SOFTMAX, "softmax")]}
    (shape,), (src,), dst = _shapes(case), _types(case, "sdt", 1), _dst_type(case)
    return _call(case, "softmax", {"src": (shape, src)}, shape, dst, options)


def _eltwise(case: Case) -> OperatorTask:
    options = {"algorithm": _chosen(case, ELTWISE, "relu")}
    numbers = {name: float(case.options[name]) for name in ("alpha", "beta")}
    (shape,), (src, dst) = _shapes(case), _pair(case)
    return _call(case, "eltwise", {"src": (shape, src)}, shape, dst, options | numbers, copies_alike)


def _broadcast(first: tuple[int, ...], second: tuple[int, ...]) -> tuple[int, ...]:
    """The second source's shape, dimensions of 1 behind it, where it broadcasts with the first."""
    second = second + (1,) * (len(first) - len(second))
    if len(first) != len(second) or any(a != b and 1 not in (a, b) for a, b in zip(first, second, strict=True)):
        raise Unimplemented(
            f"{first} and {second}: the second source broadcasts over the first, dimension by dimension"
        )
    return second


def _binary(case: Case) -> OperatorTask:
    options = {"algorithm": _chosen(case, (*BINARY, "select"), "add")}
    first, second, *_ = _shapes(case)
    second = _broadcast(first, second)
    output = tuple(map(max, first, second))
    left, right, *_ = _types(case, "sdt", 2)
    dst = _dst_type(case)
    rows = {"condition": output} if options["algorithm"] == "select" else {}
    sources = {"src0": (first, left), "src1": (second, right)}
    return _call(case, "binary", sources, output, dst, options, copies_alike, rows=rows)


def _prelu(case: Case) -> OperatorTask:
    first, second = _shapes(case)
    second = _broadcast(first, second)
    left, right = _types(case, "sdt", 2)
    sources = {"src": (first, left), "weights": (second, right)}
    return _call(case, "prelu", sources, first, left, {}, copies_alike)


def _normalization(
    case: Case, primitive: str, shape: tuple[int, ...], options: dict[str, Any], known: str
) -> OperatorTask:
    """A normalization whose flags are letters of `known`: G statistics given, C scale, H shift, M no mean, R relu, A an
    array added ahead of it.
    """
    flags = case.options["flags"].upper()
    if set(flags) - set(known):
        raise Unimplemented(f"--flags={flags} of --{case.driver}; what works: letters of {known}")
    rows = {
        name: shape[-1:] if primitive == "layer_normalization" else shape[1:2]
        for letter, name in (("C", "scale"), ("H", "shift"))
        if letter in flags
    }
    if "G" in flags:
        size = {
            "layer_normalization": (math.prod(shape[:-1]),),
            "group_normalization": (shape[0] * options.get("groups", 1),),
        }.get(primitive, shape[1:2])
        rows |= {"mean": size, "variance": size} if "M" not in flags else {"variance": size}
    added = (attributes.AskedPostOp("add", mask="per_tensor"),) if "A" in flags else ()
    relu = (attributes.AskedPostOp("relu"),) if set("RA") & set(flags) else ()
    src, dst = _pair(case)
    return _call(case, primitive, {"src": (shape, src)}, shape, dst, options, ahead=(*added, *relu), rows=rows)


def _layer_normalization(case: Case) -> OperatorTask:
    (shape,) = _shapes(case)
    rms = {"rms": True} if "M" in case.options["flags"].upper() else {}
    return _normalization(case, "layer_normalization", shape, rms, "GCHM")


def _batch_normalization(case: Case) -> OperatorTask:
    dims = case.dims
    assert isinstance(dims, NormDims)
    (shape,) = _shapes(case)
    return _normalization(case, "batch_normalization", shape, {"epsilon": dims.epsilon}, "GCHRA")


def _group_normalization(case: Case) -> OperatorTask:
    dims = case.dims
    assert isinstance(dims, NormDims)
    (shape,) = _shapes(case)
    options = {"epsilon": dims.epsilon, "groups": dims.groups}
    return _normalization(case, "group_normalization", shape, options, "GCH")


def _reduction(case: Case) -> OperatorTask:
    shape, output = _shapes(case)
    if len(shape) != len(output) or any(b not in (1, a) for a, b in zip(shape, output, strict=True)):
        raise Unimplemented(f"{output} of {shape}: dimensions of the destination are the source's, or 1")
    name = _chosen(case, (*REDUCTIONS, *NORMS), "sum")
    axes = tuple(i for i, (a, b) in enumerate(zip(shape, output, strict=True)) if a != b)
    if not axes:
        raise Unimplemented(f"{output} of {shape}: no dimension is reduced")
    options = {"algorithm": name, "axes": axes, "p": float(case.options["p"]), "eps": float(case.options["eps"])}
    (src,), dst = _types(case, "sdt", 1), _dst_type(case)
    steps = math.prod(shape) // math.prod(output)
    return _call(case, "reduction", {"src": (shape, src)}, output, dst, options, steps=steps)


def _concat(case: Case) -> OperatorTask:
    shapes, axis = _shapes(case), int(case.options["axis"])
    types, dst = _types(case, "sdt", 1) * len(shapes), _dst_type(case)
    first = shapes[0]
    if axis >= len(first) or any(len(shape) != len(first) for shape in shapes):
        raise Unimplemented(f"--axis={axis} of {' and '.join(map(str, shapes))}")
    output = (*first[:axis], sum(shape[axis] for shape in shapes), *first[axis + 1 :])
    full = [pair for pair in zip(shapes, types, strict=True) if 0 not in pair[0]]
    sources = {f"src{i}": pair for i, pair in enumerate(full)}
    options = case.options["stag"].split(":")
    if len(options) == len(shapes):  # what is empty has no layout
        kept = ":".join(tag for tag, shape in zip(options, shapes, strict=True) if 0 not in shape)
        case = replace(case, options={**case.options, "stag": kept})
    return _call(case, "concat", sources, output, dst, {"axis": axis}, copies_alike, listed=True)


def _sum(case: Case) -> OperatorTask:
    (shape,) = _shapes(case)
    types, dst = case.options["sdt"].split(":"), _dst_type(case)
    types = _types(case, "sdt", max(2, len(types)))
    given = [float(part) for part in case.options["scales"].split(":") if part] or [1.0]
    factors = given * len(types) if len(given) == 1 else given
    sources = {f"src{i}": (shape, dtype) for i, dtype in enumerate(types)}
    return _call(case, "weighted_sum", sources, shape, dst, {"factors": factors}, copies_alike, listed=True)


def _shuffle(case: Case) -> OperatorTask:
    (shape,), (src, dst) = _shapes(case), _pair(case)
    if src != dst or case.options["attr-post-ops"]:
        raise Unimplemented(f"shuffle of {src} to {dst}, or with post-operations: it moves elements alone")
    options = {"axis": int(case.options["axis"]), "group": int(case.options["group"])}
    return _call(case, "shuffle", {"src": (shape, src)}, shape, dst, options, copies_alike)


def _pooling(case: Case) -> OperatorTask:
    dims = case.dims
    assert isinstance(dims, WindowDims)
    (shape,), (src, dst), axes = _shapes(case), _pair(case), dims.axes
    options = {
        "algorithm": POOLING[_chosen(case, POOLING, "max")],
        "kernel": tuple(axis.k for axis in axes),
        "strides": tuple(axis.s for axis in axes),
        "dilation": tuple(axis.d + 1 for axis in axes),
        "padding": (*(axis.p for axis in axes), *(max(axis.after, 0) for axis in axes)),
    }
    output = (*shape[:2], *(axis.o for axis in axes))
    steps = math.prod(axis.k for axis in axes)
    return _call(case, "pooling", {"src": (shape, src)}, output, dst, options, steps=steps)


def _resampling(case: Case) -> OperatorTask:
    dims = case.dims
    assert isinstance(dims, WindowDims)
    (shape,), (src,), dst = _shapes(case), _types(case, "sdt", 1), _dst_type(case)
    size = tuple(axis.o for axis in dims.axes)
    options = {"algorithm": RESAMPLING[_chosen(case, RESAMPLING, "nearest")], "size": size}
    output = (*shape[:2], *size)
    return _call(case, "resampling", {"src": (shape, src)}, output, dst, options)


def _lrn(case: Case) -> OperatorTask:
    dims = case.dims
    assert isinstance(dims, ResponseDims)
    (shape,), (src, dst) = _shapes(case), _pair(case)
    if src != dst or case.options["attr-post-ops"] or src not in ("f32", "bf16", "f16"):
        raise Unimplemented(
            f"lrn of {src} to {dst}, or with post-operations; what works: f32, bf16 and f16, nothing behind"
        )
    if len(shape) < 3:
        raise Unimplemented(f"lrn of {counted(len(shape), 'dimension')}; what works: images")
    algorithm = RESPONSES[_chosen(case, RESPONSES, "across")]
    options = {"algorithm": algorithm, "size": dims.size, "alpha": dims.alpha, "beta": dims.beta, "k": dims.k}
    steps = dims.size ** (1 if algorithm == "across_channels" else len(shape) - 2)
    return _call(case, "lrn", {"src": (shape, src)}, shape, dst, options, steps=steps)


def _deconvolution(case: Case) -> OperatorTask:
    dims, options = case.dims, case.options
    assert isinstance(dims, ConvDims)
    types = options["dt"].split(":")
    src, wei, dst = types * 3 if len(types) == 1 else types
    every = (dims.depth, dims.height, dims.width)[3 - dims.written :]
    mb = int(options["mb"]) or dims.mb
    shape, output = (
        (mb, channels, *sizes)
        for channels, sizes in ((dims.ic, (axis.i for axis in every)), (dims.oc, (axis.o for axis in every)))
    )
    taps = {"groups": dims.groups, "strides": tuple(axis.s for axis in every)}
    taps |= {"dilation": tuple(axis.d + 1 for axis in every)}
    behind = [(axis.i - 1) * axis.s + (axis.k - 1) * (axis.d + 1) + 1 - axis.p - axis.o for axis in every]
    taps |= {"padding": (*(axis.p for axis in every), *(max(size, 0) for size in behind))}
    taps |= {"output_padding": tuple(max(-size, 0) for size in behind)}
    weights = (dims.oc, dims.ic // dims.groups, *(axis.k for axis in every))
    bias = options["dir"].upper() == "FWD_B" or options["bia-dt"] != "undef"
    rows = {"bias": (dims.oc,)} if bias else {}
    remarks: tuple[str, ...] = (
        ("weights come in the kernel's own layout",) if options["wtag"] not in ("any", "abx") else ()
    )
    if options["strides"]:
        raise Unimplemented(f"--strides={options['strides']}: not modelled for --deconv")
    if options["attr-fpmath"]:
        remarks += ("computed in f32, as every math mode allows",)
    sources = {"src": (shape, src), "weights": (weights, wei)}
    more: dict[str, Any] = {"rows": rows, "remarks": remarks, "steps": dims.ic}
    return _call(case, "deconvolution", sources, output, dst, taps, copies_of_images, **more)


def _reorder(case: Case) -> OperatorTask:
    options, (shape,) = case.options, _shapes(case)
    (src,), dst = _types(case, "sdt", 1), _dst_type(case)
    tags, strides = (options["stag"], options["dtag"]), user_strides(options["strides"], len(shape), 2)
    own = letters_of("abx", len(shape))
    layouts = [letters_of(tag, len(shape)) if tag not in ANY_TAG else own for tag in tags]
    copies: list[Moved | None] = []
    bytes_of = ["s8" if dtype in ("s4", "u4", "f4_e2m1") else dtype for dtype in (src, dst)]
    for name, tag, written, dtype in zip(("src", "dst"), layouts, strides, bytes_of, strict=True):
        if written:
            copies.append(strided(name, written, shape, dtype))
        elif layouts[0] != layouts[1] and tag != own:
            copies.append(moved(name, tag, shape, dtype))
    found = [copy for copy in copies if copy is not None]
    changes = src != dst or any(options[name] for name in _HANDLED)
    if not found and not changes:
        found = [moved("src", own, shape, bytes_of[0])]
    remarks: tuple[str, ...]
    remarks = ("runtime dimensions are known ones here",) if options["runtime-dim-mask"] not in ("", "0") else ()
    remarks += ("elements of 4 bits are copied as bytes",) if found and bytes_of != [src, dst] else ()
    more: dict[str, Any] = {"remarks": remarks, "more": tuple(_compensations(case, shape, src))}
    return _call(case, "conversion", {"src": (shape, src)}, shape, dst, {}, lambda *_: tuple(found), **more)


def _compensations(case: Case, shape: tuple[int, ...], src: str) -> list[OperatorTask]:
    """The sums of weights that --oflag asks for, along all dimensions but those of a mask."""
    found, none = [], dict.fromkeys(_HANDLED, "")  # sums are of the weights as they are
    plain_case = replace(case, options={**case.options, **none})
    for part in filter(None, case.options["oflag"].split("+")):
        name, _, mask = part.partition(":")
        if name not in ("s8s8_comp", "zp_comp") or not (mask.isascii() and mask.isdigit() and len(mask) < 9):
            raise Unimplemented(f"--oflag={part}: not modelled; what works: s8s8_comp:MASK, zp_comp:MASK")
        axes = tuple(i for i in range(len(shape)) if not int(mask) >> i & 1)
        output = tuple(1 if i in axes else size for i, size in enumerate(shape))
        if axes:
            given = {"algorithm": "sum", "axes": axes}
            found.append(OperatorTask(plain_case, "reduction", {"src": (shape, src)}, output, "s32", given))
    return found


BUILDERS: Mapping[str, Callable[[Case], OperatorTask]] = {
    "softmax": _softmax,
    "eltwise": _eltwise,
    "binary": _binary,
    "lnorm": _layer_normalization,
    "bnorm": _batch_normalization,
    "gnorm": _group_normalization,
    "reduction": _reduction,
    "prelu": _prelu,
    "concat": _concat,
    "sum": _sum,
    "shuffle": _shuffle,
    "pool": _pooling,
    "resampling": _resampling,
    "lrn": _lrn,
    "deconv": _deconvolution,
    "reorder": _reorder,
}
