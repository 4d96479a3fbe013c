"""simdnn.estimate: what a problem costs, without data."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from os import PathLike
from typing import Any

from isa_models import GpuMachine, InvalidArgument, Machine
from isa_models.block_formats import block_format
from isa_models.formats import FORMATS, fmt
from simdnn.kernels.common.layouts import Layouts
from simdnn.kernels.common.problems import Problem
from simdnn.primitives import arrays, blocks_product
from simdnn.primitives.attr import Attr
from simdnn.primitives.blocks_product import is_blocks
from simdnn.primitives.checks import integer, keyword, keywords, one_of
from simdnn.primitives.convolution import problem_of as convolution_of
from simdnn.primitives.matmul import problem_of as matmul_of
from simdnn.primitives.problems import CONV_SIZES, MATMUL_SIZES, Taps, conv_shape, matrices_of, tensors
from simdnn.primitives.products import Products, batch_of
from simdnn.primitives.resolve import Resolved
from simdnn.primitives.result import Estimate
from simdnn.primitives.run import Target, chosen, priced, resolved

_NAME = "|".join(sorted(FORMATS, key=len, reverse=True))
_TOGETHER = re.compile(rf"({_NAME})\W?({_NAME})(?:\W?({_NAME}))?")  # types without the colons, or without the last one
_SIZES = {"matmul": MATMUL_SIZES, "convolution": CONV_SIZES}
_OPTIONS: dict[str, dict[str, Any]] = {
    "matmul": {
        "src_batch": (),
        "wei_batch": (),
        "wei_tag": "any",
        "src_tag": "any",
        "dst_tag": "any",
        "runtime_dims": "",
    },
    "convolution": {
        "mb": 1,
        "strides": 1,
        "padding": 0,
        "dilation": 1,
        "groups": 1,
        "wei_tag": "any",
        "src_tag": "any",
        "dst_tag": "any",
        "id": 0,
        "kd": 0,
    },
}


@keywords
def estimate(
    primitive: str,
    *,
    dt: str = "f32",
    bias: bool = False,
    machine: str | PathLike[str] | Machine | GpuMachine,
    isa: str | None = None,
    attr: Attr | None = None,
    threads: int = 1,
    dispatch: str = "fastest",
    **shape: int | str | Sequence[int],
) -> Estimate:
    """The cost of a problem; no operand is allocated. `dt` is src:weights:dst, or one type for all three; weights of a
    matmul may be a type of block ("f32:q4_0:f32").

    "matmul": m, n, k, src_batch=(), wei_batch=(): the sizes in front of the matrices, which broadcast; runtime_dims="":
    of "m", "n", "k" and "b", those in front, what the library of `dispatch` learns at run time, and takes otherwise.
    "convolution": ic, ih, iw, oc, kh, kw, mb=1, strides=1, padding=0, dilation=1, groups=1, and id and kd of three
    spatial dimensions; without ih and kh there is one. Both: wei_tag="any", and
    src_tag and dst_tag, which are "any" or what kernels here read and write: "ab" or "nhwc", with a library's dispatch
    also "ba", "nchw", "hwio" of weights; of a matmul weights in "blocks", "blocks2" and "blocks4" (BA16a64b,
    BA16a64b2a …), and source and weights "apart ab" and "apart ba", which are not dense. The answer's `src_desc`,
    `weights_desc` and `dst_desc` tell the layouts and types that the kernel wants. Parameters of `attr` may be
    `Quant(None, …)`. Raises `InvalidArgument` for sizes that do not fit, `Unimplemented` with what works for what no
    kernel computes.

    >>> import simdnn
    >>> sizes = {"m": 256, "n": 256, "k": 256, "machine": "icx"}
    >>> f32, int8 = (simdnn.estimate("matmul", dt=dt, **sizes) for dt in ("f32", "u8:s8:s32"))
    >>> int8.implementation, f"{f32.cycles / int8.cycles:.0f} times as fast"
    ('gemm:avx512_core_vnni', '4 times as fast')
    """
    one_of("primitive", primitive, _SIZES)
    return estimate_on(Target.of(machine, isa, threads, "auto", dispatch), primitive, dt, bias, attr, **shape)


def estimate_on(
    target: Target,
    primitive: str,
    dt: str = "f32",
    bias: bool = False,
    attr: Attr | None = None,
    **shape: int | str | Sequence[int],
) -> Estimate:
    """`estimate` of a product for who has checked once where it runs; `turned`: of a transposed convolution."""
    if not isinstance(bias, bool):
        raise InvalidArgument(f"bias is a {type(bias).__name__}; True or False is needed: an estimate reads no data")
    names, given = _SIZES[primitive], dict(_OPTIONS[primitive])
    turned = bool(shape.pop("turned", False))
    line = primitive == "convolution" and {"iw", "kw"} == {"ih", "iw", "kh", "kw", "id", "kd"} & set(shape)
    shape = shape | {"ih": 1, "kh": 1} if line else shape
    for key, value in shape.items():
        given[keyword(primitive, key, dict.fromkeys([*names, *_OPTIONS[primitive]]))] = value
    if missing := [name for name in names if name not in given]:
        raise InvalidArgument(f"{primitive} without {', '.join(missing)}; needed: {', '.join(names)}")
    sizes = {name: integer(name, given.pop(name)) for name in names}
    if given.get("id") or given.get("kd"):
        sizes |= {name: integer(name, given[name]) for name in ("id", "kd")}
    given["spatial"] = 3 if "kd" in sizes else 1 if line else 2
    given["turned"] = turned
    problem, modes = _problem(primitive, sizes, given, _types(dt), target, attr, bias)
    arrays.check_sizes(tensors(problem))
    return priced(chosen(problem, target, modes), target)


def _products(sizes: Mapping[str, int], options: Mapping[str, Any], apart: bool, layouts: Layouts) -> Products:
    outer = (batch_of(name, options[name]) for name in ("src_batch", "wei_batch"))
    inner = (sizes["m"], sizes["k"]), (sizes["k"], sizes["n"])
    src, wei = ((*front, *matrix) for front, matrix in zip(outer, inner, strict=True))
    return Products.of(src, wei, apart, options["runtime_dims"], layouts)


def _types(dt: object) -> tuple[str, str, str]:
    """src, weights, dst."""
    parts = dt.split(":") if isinstance(dt, str) else []
    together = _TOGETHER.fullmatch(str(dt).lower())
    if len(parts) == 1 and not together:
        parts *= 3
    if len(parts) != 3:
        example = "u8:s8:s32"
        if together:
            src, wei, dst = together.groups()
            example = f"{src}:{wei}:{dst or ('f32' if fmt(src).is_float else 's32')}"
        raise InvalidArgument(f"dt={dt!r:.60}; src:weights:dst is needed, e.g. {example!r}, or one type for all three")
    for name in parts:
        if not (name == parts[1] and is_blocks(name)):
            fmt(name)
    return parts[0], parts[1], parts[2]


def _problem(
    primitive: str,
    sizes: Mapping[str, int],
    options: Mapping[str, Any],
    types: tuple[str, str, str],
    target: Target,
    attr: Attr | None,
    bias: bool,
) -> tuple[Problem, Resolved]:
    """The problem, and the attribute that it was made with."""
    *operands, dst = types
    if primitive == "matmul":
        wei_tag, layouts = matrices_of(options["src_tag"], options["wei_tag"], options["dst_tag"])
        products = _products(sizes, options, target.apart(*operands), layouts)
        if is_blocks(operands[1]):
            blocks = operands[1]
            blocks_product.nothing_beside(blocks, bias)
            given = resolved(products.of_types(operands[0], block_format(blocks).codes), attr, target, blocks=True)
            return blocks_product.problem_of(products, given, blocks, dst, wei_tag, target), given
        given = resolved(products.of_types(*operands), attr, target, dst)
        return matmul_of(products, given, dst, bias, wei_tag, target)[0], given
    strides, padding, dilation, groups = (options[name] for name in ("strides", "padding", "dilation", "groups"))
    taps = Taps.of(strides, padding, dilation, groups, options["spatial"], options["turned"])
    given = resolved(conv_shape(sizes, taps, *operands), attr, target)
    tags = options["src_tag"], options["wei_tag"], options["dst_tag"]
    return convolution_of(sizes, taps, given, dst, bias, tags, target)[0], given
