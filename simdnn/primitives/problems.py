"""The problems that kernels are asked, made of checked sizes, and the tensors that come with them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from isa_models import InvalidArgument
from simdnn.kernels.common.epilogue import Epilogue
from simdnn.kernels.common.layouts import ANY_LAYOUTS, Layouts
from simdnn.kernels.common.problems import ConvProblem, Depth, MatmulProblem, Problem
from simdnn.kernels.gpu.problem import GpuConvProblem
from simdnn.primitives.checks import around, integer, one_of, padding_of, pair, sides, single, three
from simdnn.primitives.placed import Shape

WEI_TAGS = ("any", "ab", "ba")
CONV_WEI_TAGS = ("any", "oihw")
#: layouts of matrices that are apart: with gaps between lines, or dimensions of a batch in another order
_APART = {"apart ab": "ab", "apart ba": "ba"}
#: layouts of a matmul's weights that a library's user names: blocks of 16 rows, of 2 or 4 of them beside each other
_BLOCKS = ("blocks", "blocks2", "blocks4")
#: layouts of images and of weights, however many dimensions they have, by the words for two
IMAGES = {"any": "any", "nchw": "rows", "nhwc": "last"}
PLAIN_WEIGHTS = {"any": "any", "oihw": "rows", "hwio": "last"}
CONV_SIZES = ("mb", "ic", "ih", "iw", "oc", "kh", "kw")
MATMUL_SIZES = ("m", "n", "k")


@dataclass(frozen=True)
class Taps:
    """Where a convolution's kernel looks, checked."""

    strides: tuple[int, int]
    padding: tuple[int, int, int, int]
    dilation: tuple[int, int]
    groups: int
    depth: tuple[int, int, int, int] | None = None  # stride, dilation, padding in front and behind
    line: bool = False  # of one spatial dimension
    turned: bool = False  # of a transposed convolution

    @staticmethod
    def of(
        strides: object, padding: object, dilation: object, groups: object, spatial: int = 2, turned: bool = False
    ) -> Taps:
        """The taps that a caller writes: one integer or several for each, of one to three `spatial` dimensions."""
        count, hint = integer("groups", groups), "1 means dense taps, which oneDNN writes 0"
        if spatial == 1:  # a row of an image
            along, apart = single("strides", strides), single("dilation", dilation, hint=hint)
            left, right = sides(padding)
            return Taps((1, along), (0, left, 0, right), (1, apart), count, None, True, turned)
        if spatial == 2:
            step, gap = pair("strides", strides), pair("dilation", dilation, hint=hint)
            return Taps(step, padding_of(padding), gap, count, turned=turned)
        steps, gaps = three("strides", strides), three("dilation", dilation, hint=hint)
        (front, top, left), (back, bottom, right) = around(padding)
        planes = steps[0], gaps[0], front, back
        return Taps(steps[1:], (top, left, bottom, right), gaps[1:], count, planes, turned=turned)


def matmul_problem(shape: Shape, epilogue: Epilogue, wei_tag: object, layouts: Layouts = ANY_LAYOUTS) -> MatmulProblem:
    """The problem of a checked shape, but for what its parameters add to it."""
    tag = one_of("wei_tag", wei_tag, WEI_TAGS)
    return MatmulProblem(shape.m, shape.n, shape.k, shape.src, shape.wei, epilogue, tag, layouts=layouts)


def matrices_of(src_tag: object, wei_tag: Any, dst_tag: object) -> tuple[Any, Layouts]:
    """The tag of weights that kernels here are asked, and the layouts of a matmul that a library alone goes by."""
    src = one_of("src_tag", src_tag, (*WEI_TAGS, *_APART)).removesuffix("ab").strip() or "any"
    dst = "ba" if one_of("dst_tag", dst_tag, WEI_TAGS) == "ba" else "any"
    if wei_tag in _BLOCKS:
        return "any", Layouts(src, str(wei_tag), dst)
    plain = _APART.get(str(wei_tag))
    return plain or wei_tag, Layouts(src, "apart" if plain else "any", dst)


def conv_shape(sizes: Mapping[str, int], taps: Taps, src: str, wei: str) -> Shape:
    """The sizes and types that attributes depend on; `InvalidArgument` where groups don't divide the channels."""
    for name in ("ic", "oc"):
        if sizes[name] % taps.groups:
            raise InvalidArgument(f"groups={taps.groups} does not divide {name}={sizes[name]}")
    k = sizes["ic"] // taps.groups * sizes["kh"] * sizes["kw"] * sizes.get("kd", 1)
    dims = 3 if taps.line else 5 if "kd" in sizes else 4
    return Shape("convolution", sizes["mb"], k, sizes["oc"], src, wei, taps.groups, dims)


def layouts_of(src_tag: object, wei_tag: object, dst_tag: object, library: bool) -> Layouts:
    """How the tensors of a convolution lie, as a `library` is told; kernels here read and write channels last, and take
    weights as they are, or ahead of time.
    """
    images = IMAGES if library else ("any", "nhwc")
    src, dst = one_of("src_tag", src_tag, images), one_of("dst_tag", dst_tag, images)
    wei = one_of("wei_tag", wei_tag, PLAIN_WEIGHTS if library else CONV_WEI_TAGS)
    return Layouts(IMAGES[src], PLAIN_WEIGHTS[wei], IMAGES[dst]) if library else ANY_LAYOUTS


def conv_problem(
    sizes: Mapping[str, int],
    taps: Taps,
    shape: Shape,
    epilogue: Epilogue,
    wei_tag: object = "any",
    layouts: Layouts = ANY_LAYOUTS,
) -> ConvProblem:
    """The problem of checked sizes, or `InvalidArgument` where the kernel is larger than the padded source."""
    mb, ic, ih, iw, oc, kh, kw = (sizes[name] for name in CONV_SIZES)
    tag = one_of("wei_tag", wei_tag, CONV_WEI_TAGS)
    named = vars(taps) | {"depth": Depth(sizes["id"], sizes["kd"], *taps.depth) if taps.depth else None}
    named |= {"wei_tag": tag, "layouts": layouts}
    problem = ConvProblem(mb, ic, ih, iw, oc, kh, kw, shape.src, shape.wei, epilogue, **named)
    if problem.depth and problem.od < 1:
        raise InvalidArgument(f"kernel of {problem.depth.k} planes on a source of {problem.depth.i}, padded: too deep")
    if problem.oh < 1 or problem.ow < 1:
        top, left, bottom, right = taps.padding
        tall, wide = ((size - 1) * d + 1 for size, d in zip((problem.kh, problem.kw), taps.dilation, strict=True))
        raise InvalidArgument(
            f"kernel of {tall}x{wide} pixels (dilation included) on a padded source of "
            f"{problem.ih + top + bottom}x{problem.iw + left + right}: it must not be larger"
        )
    return problem


def tensors(problem: Problem) -> dict[str, tuple[tuple[int, ...], str]]:
    """Shape and type of each tensor, a padded source included; what is stored narrower than s32 is summed in it."""
    p = problem
    if isinstance(p, MatmulProblem):
        rows = ("src", (p.m, p.k), p.src), ("wei", (p.k, p.n), p.wei), ("dst", (p.m, p.n), "s32")
        names = {"wei": "weights"}
        return {names.get(side, side): ((p.batch.products(side), *size), dtype) for side, size, dtype in rows}
    top, left, bottom, right = p.padding
    taps = {}
    if isinstance(p, GpuConvProblem):
        from simdnn.kernels.gpu import depthwise  # CPUs have kernels of their own

        if not depthwise.accepts(p):
            taps = {"source by taps": ((p.mb, p.od, p.oh, p.ow, p.ic, p.tap_rows, p.kw), p.src)}
    d = p.depth

    def sized(batch: int, channels: int, deep: int, *image: int) -> tuple[int, ...]:
        return (batch, channels, *((deep,) if d else ()), *image)

    i, k, zeros = (d.i, d.k, d.front + d.back) if d else (1, 1, 0)
    return taps | {
        "src": (sized(p.mb, p.ic, i, p.ih, p.iw), p.src),
        "padded source": (sized(p.mb, p.ic, i + zeros, p.ih + top + bottom, p.iw + left + right), p.src),
        "weights": (sized(p.oc, p.ic // p.groups, k, p.kh, p.kw), p.wei),
        "dst": (sized(p.mb, p.oc, p.od, p.oh, p.ow), "s32"),
    }
