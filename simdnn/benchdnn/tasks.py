"""Calls of simdnn's primitives for a case: sizes, types, attributes; or a refusal with its reason."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any

import numpy as np

from isa_models import InvalidArgument, Unimplemented
from simdnn.benchdnn import attributes
from simdnn.benchdnn.attributes import Parameter
from simdnn.benchdnn.descriptors import Axis, ConvDims, IpDims, MatmulDims
from simdnn.benchdnn.layouts import Moved, letters_of, matrix_layout, moved, plain_layouts, strided, user_strides
from simdnn.benchdnn.options import Case
from simdnn.benchdnn.subset import NEUTRAL
from simdnn.kernels.common.postops import BINARY
from simdnn.libraries import LIBRARIES
from simdnn.primitives import Attr, Quant, inner_product
from simdnn.primitives.checks import gpu_of
from simdnn.primitives.run import Target

_BIASES = ("undef", "f32", "bf16", "f16", "s32", "s8", "u8")
#: the values of a parameter: its option, itself, and the shape of the array needed
Values = Callable[[str, Parameter, tuple[int, ...]], Any]
_OWN_LAYOUT = "weights come in the kernel's own layout"


@dataclass(frozen=True)
class Task:
    """One primitive call. `sizes` are the arguments that `simdnn.estimate` needs for the shape.

    `batch`: what stands in front of a matmul's source, weights and destination.
    """

    case: Case
    primitive: str
    sizes: Mapping[str, Any]
    types: tuple[str, str, str]
    bias: bool
    batch: tuple[tuple[int, ...], ...] = ((), (), ())
    moves: tuple[Moved, ...] = ()  # copies of source and destination into and out of the kernel's layouts
    remarks: tuple[str, ...] = ()  # what is not as the options say
    bias_mask: int = 0  # of a bias that is not one value per column: an addition
    channels: int = 0  # of an inner product that a library has as a matmul
    pixels: int = 0

    @property
    def where(self) -> dict[str, Any]:
        """The keyword arguments that say on what it runs."""
        options = self.case.options
        return {"machine": options["machine"], "isa": options["isa"] or None, "dispatch": options["dispatch"]}

    @property
    def target(self) -> Target:
        """Where it is asked for, on one thread."""
        return Target.of(**self.where, threads=1, engine="auto")

    def weights_tag(self, attr: Attr | None) -> str:
        """The layout of the weights of an inner product in a library. Raises `Unimplemented` for what it has not."""
        return inner_product.layout(self.target, self.types[0], self.channels, self.pixels, attr)[0]

    def library_name(self, matmul: str) -> str:
        """A library's name of the implementation; raises `Unimplemented` where it leaves an inner product to another
        one than to that of the `matmul`.
        """
        if not self.pixels:
            return matmul
        own = self.types, matmul, self.sizes["n"], self.pixels
        return inner_product.library_name(self.target, own)

    @property
    def macs(self) -> int:
        """Multiply-accumulates, those on padding included."""
        s = self.sizes
        if self.primitive == "matmul":
            return int(prod(self.batch[2]) * s["m"] * s["n"] * s["k"])
        taps = s.get("kd", 1) * s["kh"] * s["kw"] * s["ic"] // s["groups"]
        return int(prod(self.output) * taps)

    @property
    def rows_and_columns(self) -> dict[str, tuple[int, int]]:
        """Rows and columns of a matmul's arguments: src (M, K), wei (K, N), dst (M, N)."""
        m, k, n = (self.sizes[name] for name in ("m", "k", "n"))
        return {"src": (m, k), "wei": (k, n), "dst": (m, n)}

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """The shape of each argument of a matmul: a batch's sizes, then rows and columns."""
        return {
            name: (*front, *matrix)
            for (name, matrix), front in zip(self.rows_and_columns.items(), self.batch, strict=True)
        }

    def attr(self, values: Values) -> Attr:
        """The attributes, with parameters that `values` makes."""
        options = self.case.options
        mode, integers = attributes.math_mode(options["attr-fpmath"])
        return Attr(
            fpmath=mode,
            apply_to_int=integers,
            scales=self._quants("attr-scales", values),
            zero_points=self._quants("attr-zero-points", values),
            precomputed_reductions=self._reductions(values),
            exact_int8=attributes.truth(options["attr-exact-int8"]),
            float_model=options["attr-float-model"],
            zero_point_strategy=options["zero-point-strategy"],
            acc_mode=options["attr-acc-mode"] or None,
            post_ops=[self._post_op(op, values) for op in self._asked()],
        )

    @property
    def output(self) -> tuple[int, ...]:
        """The shape of the output."""
        s = self.sizes
        if self.primitive == "matmul":
            return self.shapes["dst"]
        planes, *image = _axes(self.case)
        return s["mb"], s["oc"], *((planes.o,) if "kd" in s else ()), *(axis.o for axis in image)

    def _asked(self) -> tuple[attributes.AskedPostOp, ...]:
        """The post-operations, an unusual bias ahead of them."""
        bias = (attributes.AskedPostOp("add", mask=self.bias_mask),) if self.bias_mask else ()
        return (*bias, *attributes.modelled_post_ops(self.case.options["attr-post-ops"]))

    def _post_op(self, op: attributes.AskedPostOp, values: Values) -> Any:
        if op.kind == "sum":
            scale, *point = op.numbers
            return ("sum", scale, int(point[0]), op.dtype or None) if point else ("sum", scale)
        if op.kind == "select":
            other, condition = (self._second(op, mask, values, whole=True) for mask in (op.mask, op.condition))
            drawn = condition.values
            return "select", other, replace(condition, values=None if drawn is None else np.signbit(drawn))
        if op.kind not in BINARY:
            return (op.kind, *op.numbers) if op.numbers else op.kind
        return op.kind, self._second(op, op.mask, values)

    def _second(self, op: attributes.AskedPostOp, told: int | str, values: Values, whole: bool = False) -> Quant:
        """Second operands that vary along a mask's dimensions; `whole`: with all dimensions, of 1 where they do not."""
        dims = self.case.dims
        ndims, channels = (dims.ndims, dims.ndims - 1) if isinstance(dims, MatmulDims) else (len(self.output), 1)
        parameter = Parameter("dst", told)
        bits = attributes.mask_bits(parameter, self.primitive, ndims, False)
        shapes: dict[int, tuple[str | int, tuple[int, ...]]] = {
            0: ("common", ()),
            1 << channels: ("per_oc", (self.sizes["n" if self.primitive == "matmul" else "oc"],)),
            (1 << ndims) - 1: (bits, self.output),
        }
        along = tuple(size if bits >> i & 1 else 1 for i, size in enumerate(self.output))
        if len(self.output) < ndims:  # a batch that is rows of one product
            (rows, columns), moves = self.output, (bits & (1 << channels) - 1 > 0, bits >> channels > 0)
            along = rows if moves[0] else 1, columns if moves[1] else 1
            bits = bits if bits in shapes else moves[0] | moves[1] << 1
        if bits not in shapes and op.kind == "prelu":
            raise Unimplemented(f"post-operation {op.kind} with mask {op.mask}; what works: common, per_oc, per_tensor")
        mask, shape = (bits, along) if whole else shapes.get(bits, (bits, along))
        return Quant(values("attr-post-ops", parameter, shape), mask, None, "f32")

    def _quants(self, option: str, values: Values) -> dict[str, Quant]:
        found = attributes.parameters(option, self.case.options[option])
        return {p.argument: self._quant(option, p, values) for p in found if not p.precomp}

    def _reductions(self, values: Values) -> dict[str, Quant]:
        """Reductions by argument, from --attr-precomputed-reductions or --attr-zero-points with PRECOMP."""
        option, other = "attr-precomputed-reductions", "attr-zero-points"
        proposed = [p for p in attributes.parameters(other, self.case.options[other]) if p.precomp]
        found = [*attributes.parameters(option, self.case.options[option]), *proposed]
        if len({p.argument for p in found}) < len(found):
            raise InvalidArgument(f"reductions twice: --{option} and PRECOMP of --{other} mean the same")
        return {p.argument: self._quant(option, p, values) for p in found}

    def _quant(self, option: str, parameter: Parameter, values: Values) -> Quant:
        if parameter.argument not in ("src", "wei", "dst"):
            raise Unimplemented(f"--{option} of {parameter.argument}; what works: src, wei, dst")
        dims = self.case.dims
        matmul, grouped = isinstance(dims, MatmulDims), isinstance(dims, ConvDims) and dims.has_groups
        ndims = dims.ndims if isinstance(dims, MatmulDims | IpDims) else 4
        if parameter.argument == "dst" and option == "attr-scales" and parameter.mask in attributes.FOUND:
            trailing = _trailing(option, parameter)
            return Quant(None, 3, trailing, parameter.dtype, attributes.FOUND[parameter.mask])
        bits = attributes.mask_bits(parameter, "matmul" if matmul else "convolution", ndims, grouped)
        if not bits and not parameter.groups:
            return Quant(values(option, parameter, ()), 0, None, parameter.dtype)
        if matmul:
            return self._matmul_quant(option, parameter, values, bits)
        if parameter.groups:
            raise Unimplemented(f"--{option}: groups of {parameter.argument}: what works: --matmul")
        if option == "attr-zero-points" and parameter.argument in ("src", "dst") and bits == 2 and "ic" in self.sizes:
            channels = self.sizes["ic" if parameter.argument == "src" else "oc"]
            return Quant(values(option, parameter, (channels,)), 2, None, parameter.dtype)
        if parameter.argument != "wei" or bits != (3 if grouped else 1):
            raise Unimplemented(
                f"--{option} of {parameter.argument} with mask {parameter.mask}; what works: common, "
                "per_oc of the weights, and zero points of source and destination by channel"
            )
        channels = self.sizes["n" if self.primitive == "matmul" else "oc"]
        return Quant(values(option, parameter, (channels,)), "per_oc", None, parameter.dtype)

    def _matmul_quant(self, option: str, parameter: Parameter, values: Values, bits: int) -> Quant:
        """A parameter of one product: the mask without the batch, groups where a mask alone would not say enough."""
        dims = self.case.dims
        assert isinstance(dims, MatmulDims)
        batch, mask = dims.ndims - 2, bits >> (dims.ndims - 2)
        own = dims.wei if parameter.argument == "wei" else dims.src
        varied = any(bits >> i & 1 and own[i] > 1 for i in range(batch))
        if varied and dims.folded and not mask & 1:
            raise Unimplemented(f"--{option} of {parameter.argument} that differ along the batch alone")
        rows, columns = self.rows_and_columns[parameter.argument]
        groups = _trailing(option, parameter)
        first, second = groups or (1, 1)
        sized = (first if mask & 1 else rows, second if mask & 2 else columns)
        per_oc = parameter.argument == "wei" and mask == 2 and not groups
        if parameter.argument == "dst" or per_oc:
            return Quant(values(option, parameter, (columns,)), mask, None, parameter.dtype)
        if not all(sized):
            raise Unimplemented(f"--{option}: groups of 0")
        if mask == 0:
            return Quant(values(option, parameter, ()), 0, None, parameter.dtype)
        shape = rows // sized[0], columns // sized[1]
        return Quant(values(option, parameter, shape), mask, sized, parameter.dtype)


def _trailing(option: str, parameter: Parameter) -> tuple[int, int] | None:
    """The groups along the two dimensions of a product; those of a batch must be 1."""
    groups = parameter.groups
    if groups is None:
        return None
    if len(groups) < 2 or any(group != 1 for group in groups[:-2]):
        raise Unimplemented(f"--{option}: groups {'x'.join(map(str, groups))}; two are needed, as in 32x1")
    return groups[-2], groups[-1]


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
    every = _axes(case)
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


def _axes(case: Case) -> tuple[Axis, Axis, Axis]:
    """Depth, height and width, without the last planes, rows and columns that no output reads."""
    dims = case.dims
    assert isinstance(dims, ConvDims)
    axes = []
    for axis in (dims.depth, dims.height, dims.width):
        unread = max(-axis.after, 0)
        if unread >= axis.i:
            raise Unimplemented("the output does not read the source")
        axes.append(Axis(axis.i - unread, axis.o, axis.k, axis.s, axis.p, axis.d))
    return axes[0], axes[1], axes[2]


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
        raise Unimplemented(f"--{name}={tag}: no plain layout of {dims.ndims} dimensions; what works: any, abx, axb")
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
