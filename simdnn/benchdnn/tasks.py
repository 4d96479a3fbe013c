"""One call of a primitive, as a case of benchdnn asks it: where, shapes, attributes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from math import prod
from typing import Any

import numpy as np

from isa_models import InvalidArgument, Unimplemented
from simdnn.benchdnn import attributes
from simdnn.benchdnn.attributes import Parameter
from simdnn.benchdnn.descriptors import Axis, ConvDims, IpDims, MatmulDims
from simdnn.benchdnn.layouts import Moved
from simdnn.benchdnn.options import Case
from simdnn.kernels.common.postops import BINARY
from simdnn.primitives import Attr, Quant, inner_product
from simdnn.primitives.run import Target

#: the values of a parameter: its option, itself, and the shape of the array needed
Values = Callable[[str, Parameter, tuple[int, ...]], Any]


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
    def target(self) -> Target:
        """Where it is asked for, on one thread."""
        return Target.of(**self.case.where, threads=1, engine="auto")

    def weights_tag(self, attr: Attr | None) -> str:
        """The layout of the weights of an inner product in a library. Raises `Unimplemented` for what it has not."""
        return inner_product.layout(self.target, self.types[0], self.channels, self.pixels, attr)[0]

    def library_name(self, matmul: str) -> str:
        """A library's name of the implementation; raises `Unimplemented` where it leaves an inner product to another
        one than to that of the `matmul`.
        """
        if not self.pixels:
            return matmul
        types = *self.types, self.case.bias_type if self.bias else ""
        return inner_product.library_name(self.target, (types, matmul, self.sizes["n"], self.pixels))

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
        planes, *image = axes_of(self.case)
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


def axes_of(case: Case) -> tuple[Axis, Axis, Axis]:
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
