"""Terms that an s32 sum lacks: the shift of s8 sources on an unsigned unit, and the terms of common zero points.

    sum (a - zs)(w - zw) = sum a w - zs sum w - zw sum a + K zs zw

All but zw sum a depends on the weights alone and is made ahead of time; the sums of the source's rows are a stage.
"""

from __future__ import annotations

import numpy as np

from isa_models import Unimplemented
from isa_models.formats import fmt
from isa_models.readings.arrays import Array
from simdnn.kernels.common import pack
from simdnn.kernels.common.code import Code, loop, op
from simdnn.kernels.common.edges import Edges
from simdnn.kernels.common.epilogue import Parameters
from simdnn.kernels.common.weight_cache import made_of
from simdnn.kernels.x86.code import broadcast32, zero
from simdnn.kernels.x86.dots import COUNTERS, MADDUBS
from simdnn.kernels.x86.lines import EDGE
from simdnn.kernels.x86.product import Product
from simdnn.program.records import ZEROS, Affine, Memory, Register, Tensor

_CONSTANT = "zp_both"  # what zero points of both operands, and the shift beside one, have in common


def compensated(product: Product) -> str:
    """Whether a sum lacks something, one value a "channel" or a "position"; empty where it does not."""
    e = product.conv.epilogue
    if product.dot in COUNTERS or not (product.shifted or e.zp_src or e.zp_wei):
        return ""
    if e.late_terms:
        return "channel" if product.shifted else ""
    line = product.options.order.fold == "line"  # whose edges hold the zero point
    if line and "src" in e.by_channel:
        raise Unimplemented("zero points of the source by channel, in a kernel whose edges hold one for all")
    return "position" if e.zp_src and product.conv.padded and not line else "channel"


def late_terms(product: Product) -> str:
    """Whether terms of the source's zero point are added to sums in f32, one value a "channel" or a "position"."""
    e = product.conv.epilogue
    if product.dot in COUNTERS or not (e.late_terms and e.zp_src):
        return ""
    return "position" if product.conv.padded and product.options.order.fold != "line" else "channel"


class Compensation:
    """The stage and the arrays of it; the epilogue adds tensor `comp` and takes tensor `rowsum` away."""

    def __init__(self, product: Product, layout: pack.Layout, by: str) -> None:
        self.product, self.layout, self.by = product, layout, by
        self.row_sums = product.conv.epilogue.zp_wei
        self.late = late_terms(product)

    @property
    def used(self) -> bool:
        """Whether sums lack something that the weights decide."""
        return bool(self.by or self.late)

    def tensors(self) -> list[Tensor]:
        if not self.row_sums:
            return []
        wide = fmt(self.product.dot.wide)
        one = np.ones(4 // (wide.bits // 8), wide.dtype)
        c = self.product.conv
        return [
            Tensor("zp_wei", "s32", 1, role=ZEROS),
            *([Tensor(_CONSTANT, "s32", 1, role=ZEROS)] if c.epilogue.late_terms else []),
            Tensor("rowsum", "s32", c.mb * c.od * c.oh * c.ow, "scratch", role=ZEROS),
            Tensor.constant("unit_weight", self.product.dot.wide, one.tobytes()),
        ]

    def stage(self) -> Code:
        """rowsum[m] = weights' zero point x sum of row m, by a dot product against ones."""
        if not self.row_sums:
            return []
        p = self.product
        r, unit = p.source_steps, p.unit
        dot = MADDUBS if p.dot.narrow_sums else p.dot  # a row's sum is of 32 bits
        a = unit.reg("a")
        row = Affine.var("m") * r.column
        body: Code = [broadcast32(a, r.tensor, row + Affine.var("k") * dot.depth)]
        if p.shifted:
            body.append(op("vpaddb", a.as_("s8"), a.as_("s8"), unit.reg("shift", "s8")))
        body += dot.emit(unit, "c0_0", "a", "b0", "t0")
        total, factor = unit.reg("c0_0", "s32"), unit.reg("p", "s32")
        code: Code = [broadcast32(unit.reg("b0"), "unit_weight", Affine()), zero(total)]
        if dot.ones:
            code.append(broadcast32(unit.reg("ones"), "ones", Affine()))
        if p.shifted:
            code.append(broadcast32(unit.reg("shift"), "shift", Affine()))
        code += loop("k", r.column // dot.depth, body)
        code += [broadcast32(factor, "zp_wei", Affine()), op("vpmulld", total, total, factor)]
        if p.conv.epilogue.late_terms:
            code += [broadcast32(factor, _CONSTANT, Affine()), op("vpsubd", total, total, factor)]
        code.append(op("vmovd", Memory("rowsum", Affine.var("m"), "u32", 1), Register("c0_0", "u32", 4)))
        return loop("m", p.rows, code, parallel=True)

    def arrays(self, weights: Array, parameters: Parameters) -> dict[str, Array]:
        found = {"zp_wei": pack.wrap32(np.array([parameters.zp_wei]))}
        edge = 0 if np.ndim(parameters.zp_src) else int(parameters.zp_src)
        found[EDGE] = np.full(4, edge & 255, np.uint8)
        if self.product.conv.epilogue.late_terms:
            return found | self._late_values(weights, parameters)
        return found | ({"comp": self.values(weights, parameters)} if self.by else {})

    def sums(self, weights: Array) -> Array:
        """The sum over input channels of the weights that the dots multiply: (groups, columns, kh, kw)."""
        c, o = self.product.conv, self.product.options
        what = "sums", c.groups, c.oc, c.ic, c.tap_rows, c.kw, o.split_k, o.halve
        make = self.product.multiplied
        return made_of(weights, what, lambda: {"sums": make(weights).sum(axis=2, dtype=np.int64)})["sums"]

    def values(self, weights: Array, p: Parameters) -> Array:
        """Tensor `comp`. A padding pixel stands for the zero point, so it takes no part in the terms with zs; the shift
        by 128 it does take part in.
        """
        constant, shift = self._constant(p), self._shift(weights)
        if self.by == "channel":
            return pack.per_channel(pack.wrap32(constant - shift + self._terms(weights, p)), self.layout)
        edges = Edges.of(self.product.conv)
        return self._spread(edges, constant - shift + self._terms(weights, p, edges))

    def _late_values(self, weights: Array, p: Parameters) -> dict[str, Array]:
        """The shift alone in `comp`, in `terms` what the source's zero point changes. What two zero points have in
        common is taken from the sums of rows.
        """
        found: dict[str, Array] = {_CONSTANT: pack.wrap32(np.array([self._constant(p)]))}
        if self.by:
            shift = pack.per_channel(pack.wrap32(-self._shift(weights)), self.layout)
            found["comp"] = shift.astype(np.float32) if self.product.conv.epilogue.lifted == "all" else shift
        if self.late == "channel":
            terms = pack.per_channel(pack.wrap32(self._terms(weights, p)), self.layout)
            found["terms"] = terms.astype(np.float32)
        elif self.late:
            edges = Edges.of(self.product.conv)
            found["terms"] = self._spread(edges, self._terms(weights, p, edges)).astype(np.float32)
        return found

    def _spread(self, edges: Edges, values: Array) -> Array:
        return edges.spread(pack.filled(pack.wrap32(values), self.layout.channels)).reshape(-1)

    def _shift(self, weights: Array) -> Array:
        total = self.sums(weights).sum(axis=(2, 3))
        return 128 * total if self.product.shifted else np.zeros_like(total)

    def _terms(self, weights: Array, p: Parameters, edges: Edges | None = None) -> Array:
        """Terms of the source's zero point, one a channel, or where `edges` are given one a position."""
        product, c = self.product, self.product.conv
        by_tap, zs = self.sums(weights), (p.zp_src if c.epilogue.zp_src else 0)
        if np.ndim(zs):  # one a channel, so that they are in the sums already
            rows = np.asarray(zs, np.int64).reshape(c.groups, 1, -1, 1, 1)
            by_tap, zs = (product.multiplied(weights) * rows).sum(axis=2, dtype=np.int64), 1
        return -zs * (edges.sums(by_tap) if edges else by_tap.sum(axis=(2, 3)))

    def _constant(self, p: Parameters) -> int:
        """K zs zw, and the weights' zero point times the shift of sources."""
        product, c = self.product, self.product.conv
        e = c.epilogue
        zw = int(p.zp_wei) if e.zp_wei else 0
        k = product.k if product.options.split_k else c.ic // c.groups * c.tap_rows * c.kw
        constant = k * int(p.zp_src) * zw if zw and e.zp_src else 0
        if product.shifted:  # the row sums are of shifted sources too, padded channels included
            constant += zw * 128 * c.tap_rows * c.kw * self.layout.icp
        return constant % (1 << 32)  # as all of it wraps in the end
