"""A problem with operands of its own, as far as its kernel: what a primitive does before it runs anything."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from isa_models import InvalidArgument, Unimplemented
from isa_models.block_encoders import ENCODED
from isa_models.readings.arrays import Array, ArrayValue
from simdnn.exactness.probes import Probe
from simdnn.kernels.common.edges import taps_inside
from simdnn.kernels.common.epilogue import Parameters
from simdnn.kernels.common.problems import ConvProblem, MatmulProblem, Problem
from simdnn.primitives.attr import Attr, Quant
from simdnn.primitives.convolution import convolution
from simdnn.primitives.convolution import problem_of as convolution_of
from simdnn.primitives.estimate import estimate
from simdnn.primitives.matmul import matmul
from simdnn.primitives.matmul import problem_of as matmul_of
from simdnn.primitives.postops import with_operands
from simdnn.primitives.problems import CONV_SIZES, Taps, conv_shape
from simdnn.primitives.products import products_of
from simdnn.primitives.result import Estimate
from simdnn.primitives.run import Target, resolved
from simdnn.primitives.stored_blocks import quantize_ggml

_BIAS = 0.7310586  # of every column
Bits = Array  # unsigned integers


@dataclass(frozen=True, eq=False)
class Outputs:
    """A run's outputs as numbers and as bits, all NaN alike, and which of them were computed."""

    values: Array
    computed: Array

    @cached_property
    def bits(self) -> Bits:
        """The outputs' bits."""
        values = np.ascontiguousarray(self.values)
        found: Array = values.view(f"u{values.itemsize}").copy()
        if values.dtype.kind not in "iub":
            nan = np.isnan(values.astype(np.float32))
            found[nan] = np.array(np.nan, values.dtype).view(found.dtype)
        return found


@dataclass(frozen=True, eq=False)
class Configured:
    """One configuration: the keywords of `estimate` that make it, and what it answers."""

    primitive: str
    keywords: Mapping[str, Any]
    found: Estimate

    @staticmethod
    def of(primitive: str, keywords: Mapping[str, Any]) -> Configured:
        """Raises what `estimate` raises, `Unimplemented` for what no operands are made for."""
        attr = keywords.get("attr")
        if isinstance(attr, Attr):
            if attr.precomputed_reductions:
                raise Unimplemented("precomputed_reductions: they are the user's sums; what works: leave them out")
        if (batch := sorted({"src_batch", "wei_batch"} & keywords.keys())) and any(keywords[b] for b in batch):
            raise Unimplemented(f"{batch[0]}: products of a batch do not meet; what works: one of them")
        if isinstance(attr, Attr):
            keywords = {**keywords, "attr": _uniform(attr, keywords)}
        found = estimate(primitive, **keywords)
        blocks = found.problem.blocks if isinstance(found.problem, MatmulProblem) else ""
        if blocks and blocks not in ENCODED:
            raise Unimplemented(f"no numbers become blocks of {blocks} here; what works: {', '.join(ENCODED)}")
        if any(op.kind == "sum" for op in found.problem.epilogue.post_ops):
            raise Unimplemented("post-operation 'sum': its addend has no order; what works: leave it out")
        return Configured(primitive, keywords, found)

    @property
    def problem(self) -> Problem:
        return self.found.problem

    @property
    def types(self) -> tuple[str, str]:
        """The types of source and weights as the user stores them; blocks are made of f32."""
        parts = str(self.keywords.get("dt", "f32")).split(":")
        return parts[0], "f32" if self.blocks else parts[-2 if len(parts) == 3 else 0]

    @property
    def blocks(self) -> str:
        """The type of block that weights are stored in, "" for none."""
        return self.problem.blocks if isinstance(self.problem, MatmulProblem) else ""

    @property
    def columns(self) -> int:
        """Columns of weights that a group has."""
        p = self.problem
        return p.oc // p.groups if isinstance(p, ConvProblem) else p.n

    @property
    def along(self) -> tuple[int, int]:
        """K and taps of a `Probe`."""
        p = self.problem
        return (p.ic // p.groups, p.kh * p.kw) if isinstance(p, ConvProblem) else (p.k, 1)

    @property
    def key(self) -> tuple[object, ...]:
        """A key that two configurations share whose programs are one, fed alike."""
        kernel = self.found.kernel
        return kernel.name, kernel.program.signature, self.problem

    # -- a run ------------------------------------------------------------------------------------------------------
    def operands(self, probe: Probe) -> tuple[Any, ...]:
        """Source, weights, and the bias where there is one, as the primitive takes them."""
        p = self.problem
        if isinstance(p, ConvProblem):
            src, weights = probe.convolution((p.mb, p.ih, p.iw), p.oc, (p.kh, p.kw), p.groups)
        else:
            src, weights = probe.matmul(p.m, p.n)
            if self.blocks:
                return src, quantize_ggml(weights, self.blocks, axis=0)
        bias = np.full(p.oc if isinstance(p, ConvProblem) else p.n, _BIAS, np.float32)
        return (src, weights, bias) if self.keywords.get("bias") else (src, weights)

    def call(self) -> dict[str, Any]:
        """The keywords with which the primitive runs this configuration on `operands`."""
        function: Callable[..., Any] = convolution if self.primitive == "convolution" else matmul
        taken = inspect.signature(function).parameters
        kept = {name: value for name, value in self.keywords.items() if name in taken and name != "bias"}
        return kept | {"dst": self.problem.epilogue.dst}

    def run(self, probe: Probe, reading: type[ArrayValue] = ArrayValue) -> Outputs:
        """Outputs of the kernel's program, those of some tiles (`simdnn.numerics.sampled`)."""
        from simdnn.numerics.sampled import sample  # its package brings LLVM

        src, weights, *bias = self.operands(probe)
        kernel, middle = self.found.kernel, isinstance(self.problem, ConvProblem)
        with np.errstate(all="ignore"):
            if self.blocks:
                inputs = kernel.prepare(src, weights.stored, Parameters())
            else:
                inputs = kernel.prepare(src, weights, self._parameters(src, weights, bias[0] if bias else None))
            outputs, computed = sample(kernel.program, inputs, reading, middle)
        marks = {name: mark.astype(outputs[name].dtype) for name, mark in computed.items()}
        return Outputs(kernel.finish(outputs), kernel.finish(marks).astype(np.float32) != 0)

    def _parameters(self, src: Array, weights: Array, bias: Array | None) -> Parameters:
        given, p = self.keywords, self.problem
        target = Target.of(
            given["machine"], given.get("isa"), given.get("threads", 1), "auto", given.get("dispatch", "fastest")
        )
        attr, tag, dst = given.get("attr"), given.get("wei_tag", "any"), p.epilogue.dst
        problem: Problem
        if isinstance(p, MatmulProblem):
            asked = products_of(src, weights)
            found = resolved(asked.of_types(*self.types), attr, target, dst)
            problem, parameters = matmul_of(asked, found, dst, bias, tag, target)
        else:
            taps = Taps.of(p.strides, p.padding, p.dilation, p.groups)
            sizes = {name: getattr(p, name) for name in CONV_SIZES}
            found = resolved(conv_shape(sizes, taps, *self.types), attr, target)
            problem, parameters = convolution_of(sizes, taps, found, dst, bias, ("any", tag, "any"), target)
        return with_operands(parameters, found.post_ops, problem, None)

    # -- outputs that are to be equal ---------------------------------------------------------------------------------
    def alike(self, kinds: int, shape: tuple[int, ...]) -> dict[tuple[int, bytes], Array]:
        """Flat positions of outputs by what they add up: the kind of the column, and the taps on the image."""
        p = self.problem
        if not isinstance(p, ConvProblem):
            kind = np.broadcast_to(np.arange(p.n) % kinds, shape).reshape(-1)
            return {(i, b""): np.flatnonzero(kind == i) for i in range(kinds)}
        inside, where = np.unique(taps_inside(p).reshape(p.oh * p.ow, -1), axis=0, return_inverse=True)
        pixels = np.broadcast_to(where.reshape(p.oh, p.ow), shape).reshape(-1)
        kind = np.arange(p.oc) % (p.oc // p.groups) % kinds
        kind = np.broadcast_to(kind[:, None, None], shape).reshape(-1)
        return {
            (i, np.packbits(taps).tobytes()): np.flatnonzero((kind == i) & (pixels == number))
            for i in range(kinds)
            for number, taps in enumerate(inside)
        }


def _uniform(attr: Attr, keywords: Mapping[str, Any]) -> Attr:
    """The attribute with the first row's and column's scales and zero points in all rows and columns."""
    rows, columns = (int(keywords.get(a, keywords.get(b, 1))) for a, b in (("m", "mb"), ("n", "oc")))

    def alike(given: Mapping[str, Quant]) -> dict[str, Quant]:
        return {name: _alike(name, quant, rows, columns) for name, quant in given.items()}

    return replace(attr, scales=alike(attr.scales), zero_points=alike(attr.zero_points))


def _alike(name: str, quant: Quant, rows: int, columns: int) -> Quant:
    """A parameter whose first column (of weights) or first row (of a source) stands in all columns or rows."""
    values = quant.values
    if values is None:
        raise InvalidArgument(f"{name}: a parameter without values; numbers are needed, as sums are computed")
    values = np.asarray(values)
    if values.size == 1 or name == "dst":
        return quant
    if values.ndim == 1 and name == "wei":
        return replace(quant, values=np.full(columns, values[0]))
    if values.ndim == 2 and name == "wei" and values.shape[1] > 1:
        return replace(quant, values=np.repeat(values[:, :1], columns, axis=1))
    if values.ndim == 2 and name == "src":
        return replace(quant, values=np.repeat(values[:1], rows, axis=0))
    return quant
