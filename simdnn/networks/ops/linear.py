"""Products: matrices and convolutions, through the primitives, so with the bits and cycles of their kernels."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from math import prod
from typing import Any, NamedTuple

import numpy as np

from isa_models import Unimplemented
from isa_models.errors import counted
from isa_models.readings.arrays import Array
from simdnn.kernels.common.narrow_floats import NARROW
from simdnn.kernels.common.windows import ImageWindows, window_count
from simdnn.networks.kernels import Kernels
from simdnn.networks.model import Node
from simdnn.networks.ops.elementwise import by_numpy, has_kernel, lines_of, widened
from simdnn.networks.ops.registry import MICROSOFT, need, operator
from simdnn.networks.ops.shape import transposed, view
from simdnn.networks.shadows import shadow
from simdnn.networks.types import F32, is_float, label


def in_own_type(k: Kernels, product: Callable[..., Array], *operands: Array | None) -> Array:
    """`product(*operands, dst=…)` in the operands' float type, or, where the machine has no kernel for it, in f32
    between conversions. A bias is brought to f32 with the weights, before the runs.
    """
    kind = label(next(a for a in operands if a is not None).dtype)
    if kind == "f32":
        return product(*operands)
    try:
        wide = [*operands[:2], *(None if b is None else b.astype(F32) for b in operands[2:])]
        return product(*wide, dst=kind)
    except Unimplemented:
        dtype = np.dtype(operands[0].dtype) if operands[0] is not None else F32
        return converted(k, product(*(None if a is None else converted(k, a, F32) for a in operands)), dtype)


def converted(k: Kernels, x: Array, dtype: np.dtype[Any]) -> Array:
    return x if x.dtype == dtype else k.map(lambda v: v, x, dst=dtype, name="convert")


def in_floats(k: Kernels, x: Array) -> Array:
    """An operand in its own type, or in f32 where no kernel here takes it."""
    return x if has_kernel(x) else converted(k, x, F32)


def products(k: Kernels, a: Array, b: Array, bias: Array | None = None) -> Array:
    """a (..., M, K) x b (..., K, N) + bias (N,) in the type of a."""
    need(a.dtype == b.dtype, f"operands of {label(a.dtype)} and {label(b.dtype)}; one type is needed")
    need(a.shape[-1] == b.shape[-2], f"{a.shape} x {b.shape}: {a.shape[-1]} columns meet {b.shape[-2]} rows")
    shape = (*np.broadcast_shapes(a.shape[:-2], b.shape[:-2]), a.shape[-2], b.shape[-1])
    k.allocate(shape, a.dtype, shadowed=not k.values)
    if prod(shape) == 0 or a.shape[-1] == 0:
        return np.zeros(shape, a.dtype) + (0 if bias is None else bias)
    if not has_kernel(a):
        k.unknown(
            f"a product of {label(a.dtype)} has no kernel here, so its cost is not known; f32, f16, bf16 have one"
        )
        with np.errstate(all="ignore"):
            found: Array = np.matmul(a, b)
        return found if bias is None else found + bias
    return in_own_type(k, lambda x, y, z, **options: k.matmul(x, y, z, **options), a, b, bias)


@operator("MatMul")
def matmul(k: Kernels, node: Node, a: Array, b: Array) -> Array:
    """NumPy's rules: a vector is a row on the left and a column on the right, and its dimension goes again."""
    need(a.ndim > 0 and b.ndim > 0, "a scalar is no matrix")
    left, right = (a[None, :] if a.ndim == 1 else a), (b[:, None] if b.ndim == 1 else b)
    if (
        k.runs_models and b.ndim == 1 and a.ndim > 1 and a.size and has_kernel(a)
    ):  # a product of two vectors for each row
        need(a.shape[-1] == b.size, f"{a.shape} x {b.shape}: {a.shape[-1]} columns meet {b.size} rows")
        row = products(replace(k, constant_weights=False), b[None, :], a.reshape(-1, b.size).T)
        return view(k, row, a.shape[:-1])
    result = products(k if b.ndim > 1 else replace(k, of_line=True), left, right)
    shape = list(result.shape)
    if b.ndim == 1:
        del shape[-1]
    if a.ndim == 1:
        del shape[-1 if b.ndim == 1 else -2]
    return view(k, result, shape)


@operator("Gemm")
def gemm(k: Kernels, node: Node, a: Array, b: Array, c: Array | None = None) -> Array:
    need(a.ndim == 2 and b.ndim == 2, f"{a.shape} x {b.shape}; two matrices are needed")
    alpha, beta = node.number("alpha", 1.0), node.number("beta", 1.0)
    k = _as_given(k, b, bool(node.integer("transA", 0)), bool(node.integer("transB", 0)))
    a = transposed(k, a, (1, 0)) if node.integer("transA", 0) else a
    b = b.T if node.integer("transB", 0) else b  # the kernel lays weights out as it likes
    shape = (a.shape[0], b.shape[1])
    need(c is None or np.broadcast_shapes(c.shape, shape) == shape, f"C of shape {getattr(c, 'shape', ())} for {shape}")
    floating = has_kernel(a)
    if c is not None and k.runs_models and floating and shape[0] == 1:
        c = np.broadcast_to(c, shape)
    fused = c is not None and floating and alpha == beta == 1.0 and c.size == shape[1] and shape[1] == c.shape[-1]
    if k.runs_models and floating and (not fused and (c is not None or alpha != 1.0) or "src" in k.transposed):
        return in_parts(k, a, b, alpha, c if c is None or beta == 1.0 else scaled(k, c, beta), beta == 1.0)
    result = products(k, a, b, np.ascontiguousarray(c).reshape(-1) if fused and c is not None else None)
    if c is None or fused:
        return result if alpha == 1.0 else scaled(k, result, alpha)
    if not floating:
        return by_numpy(k, lambda r, x: alpha * r + beta * x, result, c, steps=2)
    if alpha == 1.0:
        return k.map(lambda r, x: x.fma(beta, r), result, c, name="add")
    return k.map(lambda r, x: r.fma(alpha, x * beta), result, c, name="add")


def _as_given(k: Kernels, b: Array, source: bool, weights: bool) -> Kernels:
    """The kernels for operands that a node says are stored with their dimensions the other way round; b that is packed
    is as products take it.
    """
    if not k.runs_models or k.packs(b):
        return k
    return replace(k, transposed=("src",) * source + ("wei",) * weights)


def in_parts(k: Kernels, a: Array, b: Array, alpha: float, first: Array | None, plain: bool = True) -> Array:
    """alpha * a x b as a library that runs models adds it up: the sum of each part of K times alpha is added, with one
    rounding, to those before it, and to `first` ahead of all. `plain`: `first` comes with no factor of its own.
    """
    library, (inner, n) = k.target.library, b.shape[-2:]
    assert library is not None
    turned = "src" in k.transposed
    if turned and n == 1 and alpha == 1.0 and plain and "wei" not in k.transposed:  # weights and source change places
        bias = None if first is None else np.broadcast_to(first, (a.shape[-2], 1)).reshape(-1)
        row = products(replace(k, transposed=()), np.swapaxes(b, -1, -2), np.swapaxes(a, -1, -2), bias)
        return view(k, row, (*row.shape[:-2], row.shape[-1], 1))
    if alpha != 1.0 or not plain or turned:  # which kernels for a vector do not have
        k = replace(k, of_matrices=True)
    alone = k.of_vector(a, b)
    most = inner if alone else library.part_of_k(n, inner, k.packs(b), turned)
    total = first
    for start in range(0, inner, most):
        part = products(k, a[..., start : start + most], b[..., start : start + most, :])
        if total is None:
            total = part if alpha == 1.0 else scaled(k, part, alpha)
        elif alpha == 1.0:
            total = k.map(lambda r, x: r + x, part, total, name="add")
        else:
            total = k.map(lambda r, x: r.fma(alpha, x), part, total, name="add")
    assert total is not None
    return total


def scaled(k: Kernels, x: Array, factor: float) -> Array:
    if not has_kernel(x):
        return by_numpy(k, lambda v: v * factor, x)
    return k.map(lambda v: v * factor, x, name="mul")


@operator("MatMulBias", domain="simdnn")
def matmul_bias(k: Kernels, node: Node, a: Array, b: Array, bias: Array) -> Array:
    """a (…, K) x b (K, N) + bias (N,), a library's form of a product and an addition: one where a has two dimensions or
    a size that the model fixes, else one behind the other.
    """
    left = a[None, :] if a.ndim == 1 else a
    shape = (*a.shape[:-1], b.shape[1])
    if node.integer("fixed", 1) or a.ndim == 2:
        return view(k, products(k, left, b, bias), shape)
    found = view(k, products(replace(k, followed=""), left, b), shape)
    return k.map(lambda v, c: v + c, found, bias, name="add")


@operator("FusedMatMul", "TransposeMatMul", domain=MICROSOFT)
def fused_matmul(k: Kernels, node: Node, a: Array, b: Array) -> Array:
    batches = node.integer("transBatchA", 0), node.integer("transBatchB", 0)
    a, b = (np.moveaxis(x, 0, -2) if turned else x for x, turned in zip((a, b), batches, strict=True))
    if batches[1] and b.shape[-1 - node.integer("transB", 0)] == 1:  # columns do not lie in one line
        k = replace(k, of_matrices=True)
    k = _as_given(k, b, bool(node.integer("transA", 0)), bool(node.integer("transB", 0)))
    a = np.swapaxes(a, -1, -2) if node.integer("transA", 0) else a
    b = np.swapaxes(b, -1, -2) if node.integer("transB", 0) else b
    alpha = node.number("alpha", 1.0)
    if k.runs_models and (alpha != 1.0 or "src" in k.transposed):
        return in_parts(k, a, b, alpha, None)
    result = products(k, a, b)
    return result if alpha == 1.0 else scaled(k, result, alpha)


# -- convolution ------------------------------------------------------------------------------------------------------
class Windows(NamedTuple):
    """Where a kernel looks, a number for each spatial axis."""

    strides: list[int]
    dilations: list[int]
    before: list[int]  # padding
    after: list[int]


SAME = "SAME_UPPER", "SAME_LOWER"


def windows(node: Node, size: Sequence[int], kernel: Sequence[int], padded_as_dense: bool = False) -> Windows:
    """The windows of a node, by its pads or auto_pad, of `kernel` taps over an image of `size`; `padded_as_dense` where
    the padding of SAME does not go by dilations.
    """
    rank = len(size)
    strides, dilations = node.integers("strides", [1] * rank), node.integers("dilations", [1] * rank)
    pads, auto = node.integers("pads", [0] * (2 * rank)), node.text("auto_pad", "NOTSET")
    need(
        len(strides) == len(dilations) == rank and len(pads) == 2 * rank,
        f"strides, dilations or pads not of {rank} axes",
    )
    need(
        min(strides, default=1) > 0 and min(dilations, default=1) > 0, "strides and dilations of at least 1 are needed"
    )
    need(all(abs(p) < 1 << 20 for p in pads), f"pads {pads}")
    if auto in SAME:
        before, after = [], []
        for n, s, w, d in zip(size, strides, kernel, [1] * rank if padded_as_dense else dilations, strict=True):
            total = max(0, (-(-n // s) - 1) * s + (w - 1) * d + 1 - n)
            small = total // 2
            before.append(small if auto == "SAME_UPPER" else total - small)
            after.append(total - before[-1])
        return Windows(strides, dilations, before, after)
    need(auto in ("NOTSET", "VALID", ""), f"auto_pad={auto!r}; allowed: NOTSET, VALID, SAME_UPPER, SAME_LOWER")
    if auto == "VALID":
        return Windows(strides, dilations, [0] * rank, [0] * rank)
    return Windows(strides, dilations, pads[:rank], pads[rank:])


@operator("Conv")
def conv(k: Kernels, node: Node, x: Array, w: Array, bias: Array | None = None) -> Array:
    return convolve(k, node, x, w, bias)


@operator("ConvOnto", domain="simdnn")
def conv_onto(k: Kernels, node: Node, x: Array, w: Array, bias: Array | None, onto: Array) -> Array:
    """A convolution formed onto a value; or its output plus that, where shapes differ."""
    if not node.integer("in_blocks", 1):
        return _begun_with(k, node, x, w, bias, onto)
    sizes = convolve(replace(k, values=False, calls=[]), node, x, w, bias).shape
    if onto.shape != sizes:
        return k.map(lambda a, b: a + b, convolve(k, node, x, w, bias), onto, name="add")
    if w.shape[1] == 1 and w.shape[0] == node.integer("group", 1):  # of each channel by itself: the bias comes last
        found = k.map(lambda a, b: a + b, convolve(k, node, x, w), onto, name="add")
        return k.with_line(found, bias)
    return convolve(k, node, x, w, bias, attr=replace(k.attr, post_ops=["sum"]), into=onto)


def _begun_with(k: Kernels, node: Node, x: Array, w: Array, bias: Array | None, onto: Array) -> Array:
    """A convolution as a library that runs models forms it in no blocks of channels: products of filters and windows
    that begin with a value, and then the bias.
    """
    checked_conv(k, node, x, w)
    window, images = image_windows(node, x, w), x.shape[0]
    k = replace(k, constant_weights=False, transposed=(), followed="")
    if window.as_stored:
        k = replace(k, transposed=("wei",), of_matrices=window.filters > 1)
    lines = k.moved(window.columns(x) if k.values else shadow(window.lines, x.dtype))
    filters = w.reshape(window.groups, window.filters, -1)
    start = onto.reshape(images, window.groups, window.filters, -1)

    def formed(image: int, group: int) -> Array:
        if window.filters == 1:
            return products(k, filters[group], lines[image, group], start[image, group, 0])
        return in_parts(k, filters[group], lines[image, group], 1.0, start[image, group])

    found: Array = np.array([[formed(i, g) for g in range(window.groups)] for i in range(images)]).reshape(onto.shape)
    return k.with_line(found if k.values else shadow(onto.shape, F32), bias)


def checked_conv(k: Kernels, node: Node, x: Array, w: Array) -> None:
    """Shapes of a source and weights that a convolution takes; `Unimplemented` for a padding that a library lacks."""
    need(x.ndim >= 3 and w.ndim == x.ndim, f"a source of shape {x.shape} and weights of {w.shape}")
    kernel = node.integers("kernel_shape", list(w.shape[2:]))
    need(kernel == list(w.shape[2:]), f"kernel_shape {kernel} and weights of shape {w.shape}")
    if k.runs_models and node.text("auto_pad", "NOTSET") in SAME and max(node.integers("dilations", [1])) > 1:
        raise Unimplemented("onnxruntime has no auto_pad='SAME_…' beside dilations; what works: pads=[…]")


def convolve(k: Kernels, node: Node, x: Array, w: Array, bias: Array | None = None, **options: Any) -> Array:
    """One, two or three dimensions: one becomes two with a 1, three become a sum of two over the depth."""
    checked_conv(k, node, x, w)
    products_alone = k.runs_models and is_float(x.dtype) and x.ndim != 4
    k = replace(k, constant_weights=False) if products_alone else k  # which lie in blocks over two dimensions alone
    at = windows(node, x.shape[2:], w.shape[2:])
    if any(p < 0 for p in (*at.before, *at.after)):
        cut = [slice(None)] * 2 + [
            slice(max(0, -a), n - max(0, -b)) for n, a, b in zip(x.shape[2:], at.before, at.after, strict=True)
        ]
        x = x[tuple(cut)]
        at = at._replace(before=[max(0, p) for p in at.before], after=[max(0, p) for p in at.after])
    options = options | {"groups": node.integer("group", 1)}
    if x.ndim == 3:
        one = Windows([1, *at.strides], [1, *at.dilations], [0, *at.before], [0, *at.after])
        return _plane(k, x[:, :, None], w[:, :, None], bias, one, options)[:, :, 0]
    if x.ndim == 4:
        return _plane(k, x, w, bias, at, options)
    need(x.ndim == 5, f"a source of shape {x.shape}; one to three dimensions besides N and C work")
    if products_alone and has_kernel(x):
        return k.convolved_as_products(image_windows(node, x, w), x, w, bias)
    return _volume(k, x, w, bias, at, options)


def image_windows(node: Node, x: Array, w: Array) -> ImageWindows:
    """The windows of a convolution as columns of a matrix."""
    at = windows(node, x.shape[2:], w.shape[2:])
    return ImageWindows.of(
        x.shape, w.shape, at.strides, (*at.before, *at.after), at.dilations, node.integer("group", 1)
    )


def _plane(k: Kernels, x: Array, w: Array, bias: Array | None, at: Windows, options: dict[str, Any]) -> Array:
    where = {"strides": tuple(at.strides), "padding": (*at.before, *at.after), "dilation": tuple(at.dilations)}
    if not has_kernel(x) and label(x.dtype) not in ("u8", "s8", *NARROW):
        raise Unimplemented(f"a convolution of {label(x.dtype)}; f32, f16, bf16 and int8 have kernels")
    if not is_float(x.dtype) or label(x.dtype) in NARROW:
        return k.convolution(x, w, bias, **where, **options)
    return in_own_type(k, lambda a, b, c, **more: k.convolution(a, b, c, **where, **more, **options), x, w, bias)


def _volume(k: Kernels, x: Array, w: Array, bias: Array | None, at: Windows, options: dict[str, Any]) -> Array:
    """One convolution of planes for each weight along the depth, added up."""
    stride, dilation, before, after = (axes[0] for axes in at)
    inner = Windows(*(axes[1:] for axes in at))
    point = options["attr"].zero_points.get("src") if "attr" in options else None
    padding = 0 if point is None else int(np.asarray(point.values).item())  # which stands for zero
    x = np.pad(x, [(0, 0), (0, 0), (before, after), (0, 0), (0, 0)], constant_values=padding)
    depth = window_count(x.shape[2], w.shape[2], stride, dilation)
    need(depth > 0, f"a kernel of depth {w.shape[2]} on a padded source of {x.shape[2]}")
    total: Array | None = None
    for d in range(w.shape[2]):
        planes = x[:, :, d * dilation :][:, :, : (depth - 1) * stride + 1 : stride]
        flat = np.ascontiguousarray(planes.transpose(0, 2, 1, 3, 4)).reshape(-1, x.shape[1], *x.shape[3:])
        part = _plane(k, flat, np.ascontiguousarray(w[:, :, d]), bias if d == 0 else None, inner, options)
        total = part if total is None else k.map(lambda a, b: a + b, total, part, name="add")
    assert total is not None
    return np.ascontiguousarray(total.reshape(x.shape[0], depth, *total.shape[1:]).transpose(0, 2, 1, 3, 4))


@operator("ConvTranspose")
def conv_transpose(k: Kernels, node: Node, x: Array, w: Array, bias: Array | None = None) -> Array:
    """Each input element times the weights, added where it falls: a product, then sums of its parts."""
    need(x.ndim >= 3 and w.ndim == x.ndim, f"a source of shape {x.shape} and weights of {w.shape}")
    rank, groups = x.ndim - 2, node.integer("group", 1)
    size, kernel = list(x.shape[2:]), list(w.shape[2:])
    strides, dilations = node.integers("strides", [1] * rank), node.integers("dilations", [1] * rank)
    extra = node.integers("output_padding", [0] * rank)
    reach = [(w_ - 1) * d + 1 for w_, d in zip(kernel, dilations, strict=True)]
    full = [(n - 1) * s + r for n, s, r in zip(size, strides, reach, strict=True)]
    before, out = _transposed_pads(node, size, strides, full, extra)
    channels = w.shape[1]
    need(
        groups > 0 and x.shape[1] == w.shape[0] and x.shape[1] % groups == 0,
        f"{counted(x.shape[1], 'channel')}, weights {w.shape}",
    )
    k.allocate((x.shape[0], groups * channels, *full), x.dtype, shadowed=not k.values)
    inside = x.shape[1] // groups
    total = F32 if is_float(x.dtype) else np.dtype(np.int32)
    wide = bool(node.integer("wide", 0))  # no attribute of ONNX: sums of narrow floats stay f32
    dtype = x.dtype if is_float(x.dtype) and not wide else total
    around = (x.shape[0], groups * channels, *(max(f, b + o) for f, b, o in zip(full, before, out, strict=True)))
    canvas = np.zeros(around, total) if k.values else shadow(around, total)
    for g in range(groups):
        rows = np.moveaxis(x[:, g * inside : (g + 1) * inside], 1, -1)
        flat = prod(rows.shape[:-1]), inside
        rows = np.ascontiguousarray(rows.reshape(flat)) if k.values else shadow(flat, x.dtype)
        taken = w[g * inside : (g + 1) * inside].reshape(inside, -1)
        if not is_float(x.dtype):  # no ONNX model has it: `simdnn.deconvolution` of integers
            parts = k.matmul(rows, taken, attr=with_attr(k), dst="s32")
        else:
            parts = k.matmul(rows, taken, dst="f32") if wide else products(k, rows, taken)
        shape = x.shape[0], *size, channels, *kernel
        if not k.values:
            k.plain(shadow(shape, total), shadow(shape, total))
            continue
        parts = parts.astype(total).reshape(shape)
        for tap in np.ndindex(*kernel):
            place = [
                slice(t * d, t * d + (n - 1) * s + 1, s)
                for t, d, n, s in zip(tap, dilations, size, strides, strict=True)
            ]
            target = canvas[(slice(None), slice(g * channels, (g + 1) * channels), *place)]
            target += np.moveaxis(parts[(..., *tap)], -1, 1)
        k.plain(parts, parts)
    result = canvas[(slice(None), slice(None), *(slice(b, b + o) for b, o in zip(before, out, strict=True)))]
    if not k.values:
        return shadow(result.shape, dtype)
    if bias is not None:
        result = result + bias.reshape(-1, *[1] * rank)
    return np.ascontiguousarray(result).astype(dtype)


def _transposed_pads(
    node: Node, size: list[int], strides: list[int], full: list[int], extra: list[int]
) -> tuple[list[int], list[int]]:
    """The sizes cut off in front, and the output's size."""
    rank, auto = len(size), node.text("auto_pad", "NOTSET")
    shape = node.get("output_shape")
    pads = node.integers("pads", [0] * (2 * rank))
    if shape is not None:
        shape = list(shape)[-rank:]
    elif auto in ("SAME_UPPER", "SAME_LOWER"):
        shape = [n * s for n, s in zip(size, strides, strict=True)]
    if shape is None:
        return pads[:rank], [f + e - a - b for f, e, a, b in zip(full, extra, pads[:rank], pads[rank:], strict=True)]
    total = [max(0, f + e - o) for f, e, o in zip(full, extra, shape, strict=True)]
    return [t // 2 if auto != "SAME_LOWER" else t - t // 2 for t in total], shape


@operator("Einsum")
def einsum(k: Kernels, node: Node, *operands: Array) -> Array:
    """One product of two operands as batched matrices, or a sum over dimensions of one; other equations by NumPy, at a
    cost that is not known.
    """
    equation = node.text("equation").replace(" ", "")
    if len(operands) == 1 and (found := _summed(k, equation, operands[0])) is not None:
        return found
    if len(operands) == 2 and is_float(operands[0].dtype):
        plan = _as_matmul(equation, *operands)
        if plan is not None:
            left, right, shape, order = plan
            return transposed(k, view(k, products(k, left, right), shape), order)
    k.unknown(f"einsum {equation!r:.60} is no product of two matrices; its cost is not known")
    wide = [widened(x) for x in operands]
    terms = equation.split("->")[0].split(",")
    sizes = {letter: n for term, x in zip(terms, wide, strict=False) for letter, n in zip(term, x.shape, strict=False)}
    k.allocate([sizes.get(letter, 1) for letter in equation.partition("->")[2]], wide[0].dtype)
    return np.asarray(np.einsum(equation, *wide)).astype(operands[0].dtype)


def _summed(k: Kernels, equation: str, x: Array) -> Array | None:
    """The sum over the dimensions whose letter the output lacks, the others in its order; None for other equations."""
    letters, arrow, output = equation.partition("->")
    plain = arrow and letters.isalpha() and len(letters) == x.ndim and len(set(letters)) == len(letters)
    if not plain or not set(output) <= set(letters) or not has_kernel(x) or not x.size:
        return None
    axes, lines = [i for i, c in enumerate(letters) if c not in output], lines_of(k, x)
    if axes:
        x = k.reduce("sum", x, axes, values=None if lines is None else partial(lines.reduced, "sum", x, axes))
    kept = [c for c in letters if c in output]
    return transposed(k, view(k, x, [x.shape[letters.index(c)] for c in kept]), [kept.index(c) for c in output])


def _as_matmul(equation: str, a: Array, b: Array) -> tuple[Array, Array, list[int], list[int]] | None:
    """Operands (batch, M, K) and (batch, K, N), the product's shape by letters, and the order of them in the output."""
    inputs, arrow, output = equation.partition("->")
    left, comma, right = inputs.partition(",")
    if not arrow or not comma or "." in equation or len(left) != a.ndim or len(right) != b.ndim:
        return None
    if any(len(set(t)) != len(t) for t in (left, right, output)) or not set(output) <= set(left) | set(right):
        return None
    size = dict(zip(left, a.shape, strict=True)) | dict(zip(right, b.shape, strict=True))
    batch = [c for c in left if c in right and c in output]
    inner = [c for c in left if c in right and c not in output]
    rows, columns = ([c for c in t if c not in o] for t, o in ((left, right), (right, left)))
    if not inner or any(c not in output for c in (*rows, *columns)):
        return None
    count = [prod(size[c] for c in group) for group in (batch, rows, inner, columns)]
    x = a.transpose([left.index(c) for c in (*batch, *rows, *inner)]).reshape(count[0], count[1], count[2])
    y = b.transpose([right.index(c) for c in (*batch, *inner, *columns)]).reshape(count[0], count[2], count[3])
    letters = [*batch, *rows, *columns]
    return x, y, [size[c] for c in letters], [letters.index(c) for c in output]


def with_attr(k: Kernels, **changes: Any) -> Any:
    """The call's attribute with changes; for integers its math mode does not apply."""
    return replace(k.attr, fpmath=None, apply_to_int=False, **changes)
