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
from simdnn.kernels.common.kept import made_of
from simdnn.kernels.x86.code import broadcast32, zero
from simdnn.kernels.x86.dots import COUNTERS, MADDUBS
from simdnn.kernels.x86.lines import EDGE
from simdnn.kernels.x86.product import Product
from simdnn.program.records import ZEROS, Affine, Memory, Register, Tensor


def compensated(product: Product) -> str:
    """Whether a sum lacks something, one value a "channel" or a "position"; empty where it does not."""
    e = product.conv.epilogue
    if product.dot in COUNTERS or not (product.shifted or e.zp_src or e.zp_wei):
        return ""
    line = product.options.order.fold == "line"  # whose edges hold the zero point
    if line and "src" in e.by_channel:
        raise Unimplemented("zero points of the source by channel, in a kernel whose edges hold one for all")
    return "position" if e.zp_src and product.conv.padded and not line else "channel"


class Compensation:
    """The stage and the arrays of it; the epilogue adds tensor `comp` and takes tensor `rowsum` away."""

    def __init__(self, product: Product, layout: pack.Layout, by: str) -> None:
        self.product, self.layout, self.by = product, layout, by
        self.row_sums = product.conv.epilogue.zp_wei

    def tensors(self) -> list[Tensor]:
        if not self.row_sums:
            return []
        wide = fmt(self.product.dot.wide)
        one = np.ones(4 // (wide.bits // 8), wide.dtype)
        c = self.product.conv
        return [
            Tensor("zp_wei", "s32", 1, role=ZEROS),
            Tensor("rowsum", "s32", c.mb * c.od * c.oh * c.ow, "scratch", role=ZEROS),
            Tensor.constant("unit_weight", self.product.dot.wide, one.tobytes()),
        ]

    def stage(self) -> Code:
        """rowsum[m] = weights' zero point x sum of row m, by a dot product against ones."""
        if not self.row_sums:
            return []
        p = self.product
        r, unit = p.reading, p.unit
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
        code.append(op("vmovd", Memory("rowsum", Affine.var("m"), "u32", 1), Register("c0_0", "u32", 4)))
        return loop("m", p.rows, code, parallel=True)

    def arrays(self, weights: Array, parameters: Parameters) -> dict[str, Array]:
        found = {"zp_wei": pack.wrap32(np.array([parameters.zp_wei]))}
        edge = 0 if np.ndim(parameters.zp_src) else int(parameters.zp_src)
        found[EDGE] = np.full(4, edge & 255, np.uint8)
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
        product, c = self.product, self.product.conv
        by_tap = self.sums(weights)
        total = by_tap.sum(axis=(2, 3))
        shift = 128 * total if product.shifted else np.zeros_like(total)
        e = c.epilogue
        zs, zw = (p.zp_src if e.zp_src else 0), (int(p.zp_wei) if e.zp_wei else 0)
        if np.ndim(zs):  # one a channel, so that they are in the sums already
            rows = np.asarray(zs, np.int64).reshape(c.groups, 1, -1, 1, 1)
            by_tap, zs = (product.multiplied(weights) * rows).sum(axis=2, dtype=np.int64), 1
        lacking = by_tap.sum(axis=(2, 3))
        k = product.k if product.options.split_k else c.ic // c.groups * c.tap_rows * c.kw
        constant = k * zs * zw
        if product.shifted:  # the row sums are of shifted sources too, padded channels included
            constant += zw * 128 * c.tap_rows * c.kw * self.layout.icp
        constant %= 1 << 32  # as all of it wraps in the end
        if self.by == "channel":
            values = constant - shift - zs * lacking
            return pack.per_channel(pack.wrap32(values), self.layout)
        edges = Edges.of(c)
        values = constant - shift - zs * edges.sums(by_tap)
        return edges.spread(pack.filled(pack.wrap32(values), self.layout.channels)).reshape(-1)
