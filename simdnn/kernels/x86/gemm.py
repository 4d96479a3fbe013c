"""GEMM and convolution from one nest: a matmul is a convolution with one tap.

copy the source where it must be (source.py), bring the weights where they must be (weights.py)
for each chunk of rows, each panel of columns:      parallel
    for each block of rows:                          a tile: registers (tile.py), or AMX (amx.py)
        for each tap, for each step of channels      dot products (dots.py), in chains (reduction.py, grouped.py)
        epilogue, store (epilogue.py)

Where a panel's weights are decompressed just before its tiles (decompress.py) the panels are outside.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Protocol

from isa_models.formats import fmt
from isa_models.readings.arrays import Array
from simdnn.kernels.common import pack
from simdnn.kernels.common.code import Code, loop, nest, pieces
from simdnn.kernels.common.epilogue import Epilogue, Parameters
from simdnn.kernels.common.kernel import Kernel, Saturating
from simdnn.kernels.common.problems import Problem
from simdnn.kernels.common.sums import Options, RegisterTile
from simdnn.kernels.x86.blocking import (
    ALL,
    SECOND_LEVEL,
    WIDEST,
    chunk,
    fitting,
    row_blocks,
)
from simdnn.kernels.x86.code import Unit
from simdnn.kernels.x86.compensation import Compensation, compensated, late_terms
from simdnn.kernels.x86.decompress import PanelWeights
from simdnn.kernels.x86.dots import COUNT, COUNT_SUMS, COUNTERS, MADDUBS, Dot, accumulators
from simdnn.kernels.x86.epilogue import Plan
from simdnn.kernels.x86.grouped import GroupedChains
from simdnn.kernels.x86.library_weights import LibraryParts
from simdnn.kernels.x86.product import PanelBlocks, Product
from simdnn.kernels.x86.reduction import Chains
from simdnn.kernels.x86.register_blocks import evenly, in_registers
from simdnn.kernels.x86.tile import Panel, Reduction, TilePart, tile
from simdnn.kernels.x86.weights import PackedWeights, PanelPacked, PanelWidened, PlainWeights, weights_of
from simdnn.program.check import verify
from simdnn.program.records import Affine, Program, Steps, Tensor

Sums = Chains | GroupedChains


class Tiles(Protocol):
    """A generator of tiles: each computes a block of rows by a panel of columns."""

    @property
    def accumulation(self) -> str:
        """The order in which an instruction adds up its products, where there are choices."""

    @property
    def apart(self) -> bool:
        """Whether sums of chains are kept for all outputs, so that chains need not follow each other at once."""

    def setup(self) -> Code:
        """Code that comes before everything else, once."""

    def tensors(self, panels: Sequence[Panel]) -> list[Tensor]:
        """Tensors that tiles read and write beside operands, destination and parameters."""

    def tile(self, panel: Panel, sources: Steps, position: Steps, numbers: Steps) -> list[TilePart]:
        """One tile from nothing to dst; for each row its source, where it is in `comp`, and its number."""


@dataclass(frozen=True, eq=False)
class Gemm:
    """The nest of one problem and the parts that it is made of."""

    product: Product
    blocks: PanelBlocks
    weights: PlainWeights | PackedWeights | PanelWeights
    sums: Sums
    compensation: Compensation
    plan: Plan
    tiles: Tiles

    @cached_property
    def program(self) -> Program:
        return self.program_of(self.nests(), self.tensors())

    def program_of(self, nests: Code, tensors: Sequence[Tensor]) -> Program:
        """The program of products, behind what is copied beforehand."""
        p = self.product
        code = self.tiles.setup() + p.source_steps.stage(p.unit) + self.weights.stage() + self.compensation.stage()
        text = p.problem if isinstance(self.weights, PanelWeights) else p.conv
        return verify(Program(f"{p.name} {text}", p.unit.isa, tuple(tensors), tuple(code + nests)))

    def nests(self) -> Code:
        """The products, behind what was copied for them."""
        if isinstance(self.weights, PanelWidened):
            return self.each_by_parts(self.weights, self.product.options.widens)
        if isinstance(self.weights, PanelPacked):
            return self.parts_outside(self.weights)
        tile = self.product.options.tile
        if isinstance(self.weights, LibraryParts):
            return self.each_by_parts(self.weights, tile.block if tile else 0)
        if isinstance(self.weights, PanelWeights):
            return self.panels_outside(self.weights)
        return self.in_blocks(tile) if tile else self.rows_outside()

    def rows_outside(self) -> Code:
        """All panels meet the blocks of one height before those of the next, or a panel those of all heights."""
        code: Code = []
        if self.blocks.panel_first:
            for panels, panel in self.weights.panels():
                code += self.all_heights(panels, panel)
            return code
        for block in self.blocks.rows:
            for panels, panel in self.weights.panels():
                code += self.near_rows(*block, panels, panel) if self.blocks.near else self.nest(*block, panels, panel)
        return code

    def near_rows(self, first: int, height: int, count: int, panels: int, panel: Panel) -> Code:
        """Blocks of rows go along the panels that a cache keeps, all of them before the next panels come."""
        size = self.product.conv.groups * self.product.panel_bytes(self.blocks.layout.width)
        code: Code = []
        for start, some, times in row_blocks(panels, max(1, self.blocks.near // size)):
            by = Affine.var("js") * some + start if times > 1 else Affine(start)
            code += loop("js", times, self.nest(first, height, count, some, panel.moved("j", by)), parallel=True)
        return code

    def all_heights(self, panels: int, panel: Panel) -> Code:
        """Each of some panels and the blocks of all heights; those in the same loops share them."""
        (loops, body), *others = (self.block(*block, panel) for block in self.blocks.rows)
        apart = [other for other in others if other[0] != loops]
        body = body + [s for around, other in others if around == loops for s in other]
        code: Code = []
        for around, one in [(loops, body), *apart]:
            code += nest([*around, ("j", panels)], one, parallel=True)
        return code

    def in_blocks(self, given: RegisterTile) -> Code:
        """Each panel meets all rows of a block, tiles of every height, before the next panel does; or all blocks."""
        p = self.product
        blocks = pieces("m", p.rows, given.block or p.rows)
        code: Code = []
        kinds: list[tuple[int, list[Panel], int]] = []
        for count, panel in self.weights.panels():
            highest, vectors = _highest_tile(p, self.blocks, panel)
            vectors = min(vectors, panel.vectors)
            firsts = range(0, panel.vectors, vectors)
            parts = [panel.part(at, vectors, p.unit.lanes, p.dot.depth) for at in firsts]
            kinds.append((count, parts, highest))
        if given.by_panel:
            for count, parts, most in kinds:
                every = [
                    s for times, begin, rows in blocks for s in loop("m", times, self.rows(begin, rows, parts, most))
                ]
                code += loop("j", count, every, parallel=True)
            return code
        for times, begin, rows in blocks:
            for count, parts, most in kinds:
                code += nest([("m", times), ("j", count)], self.rows(begin, rows, parts, most), parallel=True)
        return code

    def rows(self, begin: int | Affine, rows: int, panels: Sequence[Panel], highest: int) -> Code:
        """A block of rows, and the parts of a panel: each tile of rows meets all of these, and all such tiles a part of
        the sums before the next part comes.
        """
        heights = self.heights(begin, rows, highest)
        if not self.product.flat:
            return [s for panel in panels for one in heights for s in nest(*self.block(*one, panel))]
        found = [[self.parts(*one, panel) for panel in panels] for one in heights]
        every = [(kinds[0][2], [*zip(*(parts for *_, parts in kinds), strict=True)]) for kinds in found]
        body: Code = []
        if self.by_parts(panels[0]):
            for turn in zip(*(parts for _, parts in every), strict=True):
                alike = zip(every, turn, strict=True)
                tiles = (loop("r", count, [s for one in part for s in one.code]) for (count, _), part in alike)
                body += replace(turn[0][0], code=[s for tile in tiles for s in tile]).whole
        else:
            for count, parts in every:
                body += loop("r", count, [s for part in parts for one in part for s in one.whole])
        return nest([*found[0][0][0], ("g", self.product.conv.groups)], body)

    def panels_outside(self, weights: PanelWeights) -> Code:
        """Some panels' weights are brought into a buffer, and stay there for all rows."""
        code: Code = []
        for turns, some, panel in weights.at_once():
            body = weights.expand(panel, Affine(), weights.k, self.blocks.highest)
            body = loop("j", some, body) if some > 1 else body
            for block in self.blocks.rows:
                body += self.nest(*block, some, panel, parallel=False)
            code += loop("panel", turns, body, parallel=True)
        return code

    def heights(self, begin: int | Affine, rows: int, most: int) -> list[tuple[int | Affine, int, int]]:
        """Tiles of some rows: where those of each height begin, the height, and how many."""
        found = row_blocks(rows, most, evenly(self.product))
        return [(begin + first, height, count) for first, height, count in found]

    def each_by_parts(self, weights: PanelWidened | LibraryParts, together: int) -> Code:
        """Each panel's weights are made floats of in its buffer, by parts of the sums, for all rows or `together`."""
        p, code = self.product, Code()
        for times, begin, rows in pieces("m", p.rows, together or p.rows):
            blocks = self.heights(begin, rows, self.blocks.highest)
            for panels, panel in weights.panels():
                body: Code = []
                for turn, part in self.by_part(weights, panel, blocks):
                    body += loop(turn.var, turn.extent, part)
                code += nest([("m", times), ("panel", panels), ("q", 1), ("g", 1)], body, parallel=True)
        return code

    def parts_outside(self, weights: PanelPacked) -> Code:
        """Part by part of the sums each panel's weights are packed into its buffer, for all rows."""
        kinds = [(panels, self.by_part(weights, panel, self.blocks.rows)) for panels, panel in weights.panels()]
        code: Code = []
        for number in range(len(kinds[0][1])):
            for panels, parts in kinds:
                code += nest([("panel", panels), ("q", 1), ("g", 1)], parts[number][1], parallel=True)
        return code

    def by_part(
        self, weights: PanelPacked | LibraryParts, panel: Panel, rows: Sequence[tuple[int | Affine, int, int]]
    ) -> list[tuple[TilePart, Code]]:
        """For each part of the sums its turns, and a panel's weights of it into their buffer, then blocks of rows."""
        blocks = [self.parts(*block, panel) for block in rows]
        found, begin = [], 0
        for turn in zip(*(parts for *_, parts in blocks), strict=True):
            at = Affine.var(turn[0].var) * weights.rows + begin if turn[0].extent > 1 else Affine(begin)
            begin += turn[0].extent * weights.rows
            count = min(weights.rows, weights.column - begin + weights.rows)
            one = weights.expand(panel, at, count, self.blocks.highest)
            for (_, _, inner, _), part in zip(blocks, turn, strict=True):
                one += loop("r", inner, part.code)
            found.append((turn[0], one))
        return found

    def tensors(self) -> list[Tensor]:
        p, c, layout = self.product, self.product.conv, self.blocks.layout
        kept, apart = joined(p, self.sums), self.tiles.apart and total(p, self.sums) == "total"
        return [
            *p.source_steps.tensors(),
            *self.weights.tensors(),
            *self.plan.tensors(p.unit, c.groups * layout.channels, c.od * c.oh * c.ow, p.outputs),
            *p.tensors(),
            *self.compensation.tensors(),
            *([Tensor("total", kept, p.outputs, "scratch")] if apart and self.sums.chained else []),
            Tensor("dst", c.epilogue.dst, p.outputs, "output"),
            *self.sums.tensors(),
            *self.tiles.tensors([panel for _, panel in self.weights.panels()]),
        ]

    def nest(
        self, first: int | Affine, height: int, count: int, panels: int, panel: Panel, parallel: bool = True
    ) -> Code:
        """All tiles of one height over one kind of panel."""
        loops, body = self.block(first, height, count, panel)
        return nest([*loops, ("j", panels)], body, parallel)

    def block(self, first: int | Affine, height: int, count: int, panel: Panel) -> tuple[list[tuple[str, int]], Code]:
        """`count` tiles of one height over a panel, from row `first` on: the loops around, and what is in them."""
        p = self.product
        outer, lines, inner, parts = self.parts(first, height, count, panel)
        if self.blocks.near:
            every = [("y", lines)] * (not p.flat) + [("r", inner)]
            return [*outer, *every, ("g", p.conv.groups)], [s for part in parts for s in part.whole]
        if self.by_parts(panel):
            body = [s for part in parts for s in replace(part, code=loop("r", inner, part.code)).whole]
        else:
            body = loop("r", inner, [s for part in parts for s in part.whole])
        if not p.flat:
            body = loop("y", lines, body)
        return [*outer, ("g", p.conv.groups)], body

    def parts(
        self, first: int | Affine, height: int, count: int, panel: Panel
    ) -> tuple[list[tuple[str, int]], int, int, list[TilePart]]:
        """Tiles of `block`, part by part of their sums: loops around, lines and tiles that share a pass of weights."""
        p, c, r = self.product, self.product.conv, self.product.source_steps
        size = fmt(r.source.read).bits // 8
        block = Affine.var("r") * height
        inner, lines_together = count, 1
        outer: list[tuple[str, int]] = []
        base_source, base_row = Affine(), Affine()
        if p.flat:
            channels = p.options.cut if self.by_parts(panel) else r.column
            together = count if self.blocks.near else chunk(count, height * channels * size, self.blocks.second_level)
            outer.append(("q", count // together))
            inner = together
            block = block + Affine.var("q") * (height * together)
        else:
            each = self.blocks.lines
            number = c.oh if each == 1 else count
            together = lines_together = chunk(number, each * r.line * size, self.blocks.second_level)
            outer += [("n", c.mb), *([("d", c.od)] if c.depth else []), ("q", number // together)]
            lines = Affine.var("q") * together + Affine.var("y")
            if each > 1:
                turns = lines if number > together else Affine.var("y")
                lines, block, first, inner = turns * each + first, Affine(), 0, 1
            base_source = Affine.var("n") * r.image + lines * r.line + r.origin
            base_row = Affine.var("n") * (c.od * c.oh * c.ow) + lines * c.ow
            if c.depth:
                base_source = base_source + Affine.var("d") * r.plane
                base_row = base_row + Affine.var("d") * (c.oh * c.ow)
        numbers = (base_row + block + first).steps(1, height)
        source = base_source + (block + first) * r.column + Affine.var("g") * r.group
        sources = Steps(source, r.column, height, c.ow if self.blocks.lines > 1 else 0, r.line)
        beside = c.groups * self.blocks.layout.channels
        position = ((numbers[0] + Affine.var("n") * -(c.od * c.oh * c.ow)) * beside).steps(beside, height)
        return outer, lines_together, inner, self.tiles.tile(panel, sources, position, numbers)

    def by_parts(self, panel: Panel) -> bool:
        """Whether all rows of a chunk are taken through one part of the sums before the next: where the second cache
        holds a part of a panel's weights, and not all of them, and where a library does so.
        """
        p = self.product
        together = p.options.tile is not None or p.panel_bytes(panel.vectors * p.unit.lanes) > 2 * SECOND_LEVEL
        return self.tiles.apart and p.flat and self.sums.chained and self.sums.group is None and together

    # -- between the user's arrays and the program's tensors --------------------------------------------------------
    def kernel(self) -> Kernel:
        p, halves = self.product, self.product.options.halve
        parts = self.weights.arrays, self.sums.arrays, self.compensation.arrays, self.epilogue_arrays
        return Kernel(
            p.name,
            self.program,
            p.inputs(self.program, *parts, panels_alone=not (self.compensation.used or self.sums.group)),
            p.finish,
            p.dot.compute,
            self.weights.given,
            self.weights.blocked,
            self.tiles.accumulation,
            saturating=() if halves or not p.dot.saturates else self.saturating(),
            halves=halves,
        )

    def epilogue_arrays(self, weights: Array, parameters: Parameters) -> dict[str, Array]:
        return self.plan.inputs(parameters, lambda values: pack.per_channel(values, self.blocks.layout))

    def saturating(self) -> tuple[Saturating, ...]:
        """Steps that may saturate: pairs of products, and their sums where these stay in 16 bits."""
        dot = self.product.dot
        pairs = Saturating("pair", "vpmaddubsw", partial(self.counting, COUNT), partial(self.summing, MADDUBS))
        sums = Saturating("sum", "vpaddsw", partial(self.counting, COUNT_SUMS), partial(self.summing, dot))
        return (pairs, sums) if dot.narrow_sums else (pairs,)

    def counting(self, counter: Dot) -> Kernel:
        """The kernel that walks over the same operands and counts what saturates instead of adding it up."""
        p = self.product
        problem = replace(p.problem, epilogue=Epilogue("s32"))
        return gemm(f"{p.name}, saturated {counter.name}", problem, p.unit, counter, p.options).kernel()

    def summing(self, dot: Dot) -> Kernel:
        """The kernel whose destination is the s32 sums of a dot product as they are, zero points and all."""
        p, e = self.product, self.product.problem.epilogue
        own = tuple(name for name in e.by_channel if name == "src")
        problem = replace(p.problem, epilogue=Epilogue("s32", e.zp_src, e.zp_wei, by_channel=own))
        options = replace(p.options, through_float=False)
        return gemm(f"{p.name}, sums", problem, p.unit, dot, options).kernel()


@dataclass(frozen=True, eq=False)
class RegisterTiles:
    """Tiles of vector registers."""

    product: Product
    sums: Sums
    plan: Plan
    blocks: PanelBlocks
    accumulation = ""
    apart = True

    @property
    def first(self) -> tuple[str, ...]:
        """The parts of the epilogue that the first chain's sum gets; no scale then stands in between."""
        e, options = self.plan.epilogue, self.product.options
        if e.src_scale or e.wei_scale:
            return ()
        bias = options.bias_first and self.sums.chained and e.bias
        return ("sum",) * (options.sum_first and self.plan.sums_first) + ("bias",) * bias

    def setup(self) -> Code:
        return []

    def tensors(self, panels: Sequence[Panel]) -> list[Tensor]:
        return []

    def tile(self, panel: Panel, sources: Steps, position: Steps, numbers: Steps) -> list[TilePart]:
        p, c = self.product, self.product.conv
        chains, group = self.sums.sums(panel.step), self.sums.group
        given = tile_of(p.options.tile or RegisterTile(0, 0), panel)
        apart, packs = bool(given.rows or p.options.packs), bool(p.options.packs)
        how = p.options.starts, given.one_load, given.fetches, apart, apart and not packs
        highest = _highest_tile(p, self.blocks, panel)
        return tile(
            p.unit,
            Reduction(p.dot, p.source_steps.tensor, p.shifted, chains, group, self.first, *how),
            self.plan,
            panel,
            sources,
            (numbers[0] * c.oc).steps(c.oc, len(numbers)),
            total(p, self.sums),
            position,
            numbers,
            c.epilogue.zp_wei,
            tuple([acc.name for row in accumulators(p.unit, *highest, p.dot) for acc in row]),
        )


def tile_of(given: RegisterTile, panel: Panel) -> RegisterTile:
    """The tile of a panel, which may be the last and narrower one."""
    return given.last or given if panel.tensor != "wei" else given


def _highest_tile(product: Product, blocks: PanelBlocks, panel: Panel) -> tuple[int, int]:
    """Rows and vectors of the highest tile of a panel, or of the widest one like it: what smaller tiles have free."""
    given = product.options.tile or RegisterTile(0, 0)
    own = tile_of(given, panel)
    if own is not given:
        return fitting(own, product.unit, product.dot, product.shifted).rows, own.vectors
    return blocks.highest, given.vectors if given.together else blocks.layout.widest // product.unit.lanes


def joined(product: Product, sums: Sums) -> str:
    """The type in which sums of chains are added up."""
    return "f32" if sums.group else product.dot.joined


def total(product: Product, sums: Sums) -> str:
    """The tensor of the sum of chains so far: dst itself where it is of the type of sums."""
    return "dst" if product.conv.epilogue.dst == joined(product, sums) else "total"


def epilogue_of(product: Product, compensate: str) -> Plan:
    """The plan of the epilogue: the steps of a sum of chains."""
    e, o = product.conv.epilogue, product.options
    if product.dot in COUNTERS:
        return Plan(e, integer=True)
    epilogue = replace(e, src_scale=False) if product.dot.scaled else e
    integer = product.dot.integer
    plan = Plan(
        epilogue,
        integer,
        compensate,
        o.halve,
        o.merged_scales,
        o.through_float,
        o.reference,
        o.nan_to_bound,
        terms=late_terms(product),
    )
    return replace(plan, scaled_inside=product.dot.scaled_weights)


def gemm(name: str, problem: Problem, unit: Unit, dot: Dot, options: Options) -> Gemm:
    """A matmul or a convolution of weights that are multiplied as they are stored, or as the dot wants them."""
    product = Product(name, problem, unit, dot, options)
    blocks = in_registers(product, product.oc)
    compensation = Compensation(product, blocks.layout, compensated(product))
    weights = weights_of(product, blocks.layout)
    in_place, widened = isinstance(weights, PanelPacked), isinstance(weights, PanelWidened)
    plan, sums = epilogue_of(product, compensation.by), Chains(product, in_place, in_place and not widened)
    return Gemm(product, blocks, weights, sums, compensation, plan, RegisterTiles(product, sums, plan, blocks))


def grouped_gemm(name: str, problem: Problem, unit: Unit, dot: Dot) -> Gemm:
    """An integer matmul with `GroupScales`: its terms are of f32."""
    product = Product(name, problem, unit, dot, Options())
    blocks = in_registers(product, product.oc)
    sums = GroupedChains(product, blocks.layout)
    plan = Plan(product.conv.epilogue, integer=False, reference=sums.scales.reference)
    weights, nothing = weights_of(product, blocks.layout), Compensation(product, blocks.layout, "")
    return Gemm(product, blocks, weights, sums, nothing, plan, RegisterTiles(product, sums, plan, blocks))


def compressed_gemm(name: str, problem: Problem, unit: Unit, dot: Dot, options: Options, level: int = ALL) -> Gemm:
    """A matmul with a `Decompression`, or with f32 weights that are rounded to what is multiplied; a source of up to
    `level` bytes meets panels of as many: what the second cache holds beside their codes.
    """
    product = Product(name, problem, unit, dot, options)
    column = product.source_steps.ic * fmt(dot.wei).bits // 8
    columns = max(1, 2 * SECOND_LEVEL // (column * unit.lanes)) * unit.lanes  # whose buffer the second cache holds
    near = product.rows * product.source_steps.column * fmt(product.source_steps.source.read).bits // 8 <= level
    most = min(WIDEST, max(1, level // (column * unit.lanes))) if near else WIDEST
    blocks = in_registers(product, min(product.oc, columns), most)
    weights = (LibraryParts if options.tile else PanelWeights)(product, blocks)
    plan, sums = weights.decompressor.epilogue(), Chains(product, in_place=options.tile is not None)
    nothing = Compensation(product, blocks.layout, "")
    return Gemm(product, blocks, weights, sums, nothing, plan, RegisterTiles(product, sums, plan, blocks))
