"""Weights as they are stored and as they are multiplied: read in place, or in the kernel's own panels.

Those that each panel brings to floating point for itself are in decompress.py.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property

from isa_models.readings.arrays import Array, to_a_line
from simdnn.kernels.common import pack
from simdnn.kernels.common.code import Code, loop, pieces
from simdnn.kernels.common.epilogue import Parameters
from simdnn.kernels.common.weight_cache import made_of
from simdnn.kernels.x86.code import load_float, store32
from simdnn.kernels.x86.packing import Packing, stored
from simdnn.kernels.x86.product import Product, runs
from simdnn.kernels.x86.source_steps import fold_weights, taps_as_channels
from simdnn.kernels.x86.tile import Panel
from simdnn.program.records import WEIGHTS, Affine, Tensor

#: the tensors that may hold the user's weights
_GIVEN = ("wei", "wei_tail", "plain")
#: the buffer in which a panel of a tensor is f32, and the tensor of each buffer
_WIDENED = {"wei": "widened", "wei_tail": "widened_tail"}
_STORED = {buffer: tensor for tensor, buffer in _WIDENED.items()}
_AT_ONCE = 4  # rows of a panel that become f32 in a step
_GROUP = Affine.var("g")


def weights_of(product: Product, layout: pack.Layout) -> PlainWeights | PackedWeights:
    """Plain rows are read in place where each of their elements is a dot product of its own."""
    if product.options.packs or product.options.widens:
        widened = bool(product.options.widens) or product.problem.wei == "f16"
        return (PanelWidened if widened else PanelPacked)(product, layout)
    whole = not product.options.split_k or product.k % product.options.split_k == 0  # no part of K is filled up
    in_place = product.problem.wei_tag == "ab" and product.dot.depth == 1 and whole
    return (PlainWeights if in_place else PackedWeights)(product, layout)


class PlainWeights:
    """Rows of f32 or f16, which the dots read as the user stores them."""

    given = _GIVEN
    blocked = None

    def __init__(self, product: Product, layout: pack.Layout) -> None:
        self.product, self.layout = product, layout
        self.stored = self.multiplied = product.dot.wei

    def tensors(self) -> list[Tensor]:
        rows = self.product.k if self.product.is_matmul else self.product.conv.ic
        return [Tensor("wei", self.multiplied, rows * self.product.conv.oc, role=WEIGHTS)]

    def stage(self) -> Code:
        return []

    def panels(self) -> list[tuple[int, Panel]]:
        """(how many, the panel) for whole panels and for the narrower last one; `g` and `j` are the loops around."""
        oc = self.product.oc
        return [
            (r.count, Panel("wei", r.lanes, r.first, oc, _GROUP * oc + r.first, channel(self.layout, r.first), True))
            for r in runs(self.layout, self.product.unit.lanes, "j")
        ]

    def arrays(self, weights: Array, parameters: Parameters) -> dict[str, Array]:
        return {"wei": to_a_line(weights).reshape(-1)}


class PackedWeights:
    """Panels in the kernel's own layout: given in it, or brought there by the program where they are stored plain."""

    given = _GIVEN

    def __init__(self, product: Product, layout: pack.Layout) -> None:
        self.product, self.layout = product, layout
        self.stored, self.multiplied = product.problem.wei, product.dot.wei
        self.packed = self.multiplied
        self.packed_here = product.problem.wei_tag != "any"

    @cached_property
    def own(self) -> pack.Blocked:
        """The weights in panels."""
        p, c, split = self.product, self.product.conv, self.product.options.split_k
        sizes = (p.k, 1, 1, split) if p.is_matmul else (p.ic, c.tap_rows, c.kw, 0)
        rounds = p.dot.rounds if self.multiplied == "f32" else ""
        fold = taps_as_channels(p.options.order, c)
        return pack.Blocked(p.unit.isa, self.packed, self.layout, *sizes, rounds=rounds, fold=fold)

    @property
    def blocked(self) -> pack.Blocked | None:
        """The weights' layout where they come in the kernel's own; None where a reorder cannot make it (yet)."""
        options = self.product.options
        ours = not options.halve and options.order.fold in ("", "row", "window")
        return self.own if ours and not self.packed_here else None

    @property
    def column(self) -> int:
        """Weights of one output channel, padded."""
        return self.product.source_steps.weights

    def tensors(self) -> list[Tensor]:
        p, c, found = self.product, self.product.conv, []
        if self.packed_here:
            rows = p.k if p.is_matmul else p.ic * c.tap_rows * c.kw
            found.append(Tensor("plain", self.stored, rows * c.oc, role=WEIGHTS))
        kind = "scratch" if self.packed_here else "input"
        for r in runs(self.layout, p.unit.lanes, "j"):
            size = self.column * c.groups * r.count * r.width
            found.append(Tensor(r.tensor, self.multiplied, size, kind, role=WEIGHTS))
        return found

    def stage(self) -> Code:
        """The stage from plain weights to panels."""
        if not self.packed_here:
            return []
        p = self.product
        return Packing(p.unit, stored(p.problem.wei_tag, self.stored, self.own), self.own).stage()

    def panels(self) -> list[tuple[int, Panel]]:
        """(how many, the panel) for whole panels and for the narrower last one; `g` and `j` are the loops around."""
        found = []
        for r in runs(self.layout, self.product.unit.lanes, "j"):
            base = _GROUP * (self.column * r.count * r.width) + r.number * (self.column * r.width)
            dst = _GROUP * self.product.oc + r.first
            step = r.width * self.layout.depth
            found.append((r.count, Panel(r.tensor, r.lanes, base, step, dst, channel(self.layout, r.first))))
        return found

    def arrays(self, weights: Array, parameters: Parameters) -> dict[str, Array]:
        if self.packed_here:
            columns = self.product.problem.wei_tag == "ba"
            return {"plain": to_a_line(weights.T if columns else weights).reshape(-1)}
        if not self.blocked:
            return self.panels_of(weights)
        return dict(made_of(weights, self.own, lambda: self.panels_of(weights)))

    def panels_of(self, weights: Array) -> dict[str, Array]:
        """The tensors in the kernel's own layout."""
        p = self.product
        folded = fold_weights(p.multiplied(weights), p.options.order, p.source_steps.planes, p.dot.whole or p.dot.depth)
        whole, tail = pack.pack(folded, self.layout)
        return {"wei": whole, "wei_tail": tail}


class PanelPacked(PackedWeights):
    """Plain weights that each panel packs for itself, in a buffer that stays in the cache for its tiles: as much of K
    as is added up at once.
    """

    @property
    def rows(self) -> int:
        """Rows of the buffer."""
        return min(self.product.options.cut or self.column, self.column)

    def tensors(self) -> list[Tensor]:
        plain = super().tensors()[0]
        found = runs(self.layout, self.product.unit.lanes, "panel")
        return [plain, *(Tensor(r.tensor, self.multiplied, self.rows * r.width, "private") for r in found)]

    def stage(self) -> Code:
        return []

    def panels(self) -> list[tuple[int, Panel]]:
        """(how many, the panel): `panel` is the loop around."""
        return [
            (r.count, Panel(r.tensor, r.lanes, Affine(), r.width * self.layout.depth, r.first, r.first))
            for r in runs(self.layout, self.product.unit.lanes, "panel")
        ]

    def expand(self, panel: Panel, row: Affine, count: int, height: int) -> Code:
        """`count` rows of the panel from `row` on into its buffer, by registers that tiles of up to `height` rows need
        later.
        """
        plain = stored(self.product.problem.wei_tag, self.stored, self.own)
        widest = self.layout.widest // self.product.unit.lanes
        sums = [f"c{i}_{j}" for i in range(height) for j in range(widest)]
        registers = (*sums, *(f"b{j}" for j in range(8)))[:8]
        packing = Packing(self.product.unit, plain, self.own, alone=panel.tensor, registers=registers)
        return packing.tap(Affine(), row * plain.ic, min(count, self.product.k - row.const))


class PanelWidened(PanelPacked):
    """Panels of f16 or bf16, made f32 part by part in a buffer that stays in the cache for its tiles."""

    def __init__(self, product: Product, layout: pack.Layout) -> None:
        super().__init__(product, layout)
        self.packed = self.stored

    def tensors(self) -> list[Tensor]:
        p, found = self.product, []
        for r in runs(self.layout, p.unit.lanes, "panel"):
            stored = Tensor(r.tensor, self.stored, self.column * r.count * r.width, role=WEIGHTS)
            found += [stored, Tensor(_WIDENED[r.tensor], self.multiplied, self.rows * r.width, "private")]
        return found

    def panels(self) -> list[tuple[int, Panel]]:
        return [(panels, replace(panel, tensor=_WIDENED[panel.tensor])) for panels, panel in super().panels()]

    def expand(self, panel: Panel, row: Affine, count: int, height: int) -> Code:
        """`count` rows of the panel from `row` on into its buffer, a few of them in a step."""
        unit, width = self.product.unit, panel.vectors * self.product.unit.lanes
        tensor = _STORED[panel.tensor]
        first = Affine.var("panel") * (self.column * width) if tensor == "wei" else Affine()
        code: Code = []
        for times, begin, some in pieces("k", count, _AT_ONCE):
            body: Code = []
            for at in range(0, some * width, unit.lanes):
                register, place = f"c0_{at // unit.lanes % panel.vectors}", begin * width + at
                stored = first + row * width + place
                body += load_float(unit, register, tensor, self.stored, stored, unit.lanes)
                body.append(store32(unit, panel.tensor, place, unit.reg(register, "f32"), unit.lanes))
            code += loop("k", times, body)
        return code


def channel(layout: pack.Layout, first: Affine) -> Affine:
    """A panel's first column in the parameter tensors, which count the padding of panels."""
    return _GROUP * layout.channels + first
