"""GEMM and convolution from one generator: a matmul is a convolution with one tap.

copy the source where it must be (source.py)
for each chunk of rows, each panel of columns:      parallel
    for each block of rows:                          a register tile (tile.py)
        for each tap, for each step of channels      dot products (dots.py)
        epilogue, store (epilogue.py)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from isa_models.formats import fmt
from isa_models.readings.arrays import Array, to_a_line
from simdnn.kernels.common import pack
from simdnn.kernels.common.code import Code, Unit, broadcast32, loop, op, zero
from simdnn.kernels.common.edges import Edges
from simdnn.kernels.common.rounding import ahead
from simdnn.kernels.common.spec import ConvProblem, Epilogue, Kernel, MatmulProblem, Parameters, Problem
from simdnn.kernels.x86.blocking import SECOND_LEVEL, Blocking, choose, chunk, row_blocks
from simdnn.kernels.x86.dots import COUNT, MULTIPLY_ADD, MULTIPLY_SCALE_ADD, Dot
from simdnn.kernels.x86.epilogue import Plan
from simdnn.kernels.x86.order import Order
from simdnn.kernels.x86.packing import Packing, stored
from simdnn.kernels.x86.source_steps import Reading, fold_weights, reading
from simdnn.kernels.x86.tile import Chain, Group, Panel, Part, Reduction, Repeat, Taps, tile
from simdnn.program.check import verify
from simdnn.program.records import Affine, Memory, Program, Register, Tensor


@dataclass(frozen=True)
class Options:
    """How a kernel treats its problem, beyond the dot product."""

    halve: bool = False  # s8 convolution on vpmaddubsw: weights times 1/2
    merged_scales: bool = False
    cut: int = 0  # channels after which a sum restarts (floating point)
    split_k: int = 0  # matmul: K in parts of this length, dot products restart at each
    order: Order = Order()  # of a convolution's taps
    through_float: bool = False  # an s32 sum is rounded to f32 on its way to an s32 destination
    reference: bool = False  # ends as oneDNN's reference does


class Gemm:
    """The generator for one problem. `program` is the verified Program, `kernel` what dispatch hands out."""

    def __init__(self, name: str, problem: Problem, unit: Unit, dot: Dot, options: Options) -> None:
        self.name = name
        self.problem = problem
        self.unit = unit
        #: the reference multiplies each product by the source's scale
        self.dot = MULTIPLY_SCALE_ADD if dot == MULTIPLY_ADD and problem.epilogue.src_scale else dot
        self.options = options
        self.conv = as_convolution(problem, options.split_k)
        self.shifted = dot.unsigned and problem.src == "s8"

    # -- shapes ---------------------------------------------------------------------------------------------------
    @cached_property
    def flat(self) -> bool:
        """Whether all pixels of the batch are one run of rows."""
        c = self.conv
        return self.is_matmul or (c.kh, c.kw, c.strides, c.padding) == (1, 1, (1, 1), (0, 0, 0, 0))

    @property
    def is_matmul(self) -> bool:
        return isinstance(self.problem, MatmulProblem)

    @property
    def tag(self) -> str:
        return self.problem.wei_tag

    @property
    def plain(self) -> bool:
        """Whether the dots read the weights as the user stores them: rows of f32 or f16."""
        return self.tag == "ab" and self.dot.depth == 1

    @property
    def packed_here(self) -> bool:
        """Whether the program has to bring the weights into its own layout itself."""
        return self.tag != "any" and not self.plain

    @cached_property
    def ic(self) -> int:
        return self.conv.ic // self.conv.groups

    @cached_property
    def oc(self) -> int:
        return self.conv.oc // self.conv.groups

    @cached_property
    def reading(self) -> Reading:
        return reading(self.conv, self.unit, self.dot, self.options.order, bool(self.options.split_k))

    @cached_property
    def rows(self) -> int:
        """Rows that tiles are cut from: all pixels, or one line of them."""
        c = self.conv
        return c.mb * c.oh * c.ow if self.flat else c.ow

    @cached_property
    def blocking(self) -> Blocking:
        return choose(self.unit, self.dot, self.rows, self.oc, self.shifted)

    @cached_property
    def row_blocks(self) -> list[tuple[int, int, int]]:
        """(first row, height, how many) of the blocks of rows that are tiles."""
        return row_blocks(self.rows, self.blocking.rows)

    @property
    def second_level(self) -> int:
        """Bytes of source kept beside the weights."""
        return SECOND_LEVEL

    @cached_property
    def layout(self) -> pack.Layout:
        lanes = self.unit.lanes
        width = self.blocking.vectors * lanes
        rest = self.oc % width
        tail = -(-rest // lanes) * lanes
        return pack.Layout(self.conv.groups, self.oc, width, tail, self.dot.depth, self.reading.ic)

    @cached_property
    def own(self) -> pack.Blocked:
        """The weights as the dots read them."""
        c, split = self.conv, self.options.split_k
        sizes = (self.problem_k, 1, 1, split) if self.is_matmul else (self.ic, c.kh, c.kw, 0)
        rounds = self.dot.rounds if self.dot.wei == "f32" else ""
        return pack.Blocked(self.unit.isa, self.dot.wei, self.layout, *sizes, rounds=rounds)

    @property
    def blocked(self) -> pack.Blocked | None:
        """The weights' layout where they come in the kernel's own; None where a reorder cannot make it (yet)."""
        folded = self.options.halve or self.options.order.fold
        return None if self.tag != "any" or folded else self.own

    @cached_property
    def plan(self) -> Plan:
        if self.dot == COUNT:
            return Plan(self.conv.epilogue, integer=True)
        compensate = ""
        if self.shifted or self.conv.epilogue.zp_src or self.conv.epilogue.zp_wei:
            edges = self.conv.epilogue.zp_src and any(self.conv.padding)
            compensate = "position" if edges else "channel"
        o, integer = self.options, self.dot.acc == "s32"
        epilogue = replace(self.conv.epilogue, src_scale=False) if self.dot.scaled else self.conv.epilogue
        return Plan(epilogue, integer, compensate, o.halve, o.merged_scales, o.through_float, o.reference)

    # -- program --------------------------------------------------------------------------------------------------
    @cached_property
    def program(self) -> Program:
        c, e = self.conv, self.conv.epilogue
        code = self.setup() + self.reading.stage(self.unit)
        if self.packed_here:
            code += Packing(self.unit, stored(self.tag, self.problem.wei, self.own), self.own).stage()
        if e.zp_wei:
            code += self.row_sums()
        for first, height, count in self.row_blocks:
            for panels, panel in self.panels():
                code += self.nest(first, height, count, panels, panel)
        isa, text = self.unit.isa, f"{self.name} {c}"
        return verify(Program(text, isa, tuple(self.tensors()), tuple(code)))

    def setup(self) -> Code:
        """What comes before everything else, once."""
        return []

    def tensors(self) -> list[Tensor]:
        c, e, layout = self.conv, self.conv.epilogue, self.layout
        per_column = self.reading.weights * c.groups
        outputs = c.mb * c.oh * c.ow
        tensors = self.reading.tensors()
        if self.plain:
            tensors.append(Tensor("wei", self.dot.wei, c.ic * c.oc))
        elif self.packed_here:
            rows = self.problem_k if self.is_matmul else self.ic * c.kh * c.kw
            tensors.append(Tensor("plain", self.problem.wei, rows * c.oc))
        kind = "scratch" if self.packed_here else "input"
        if layout.full and not self.plain:
            tensors.append(Tensor("wei", self.dot.wei, per_column * layout.full * layout.width, kind))
        if layout.tail and not self.plain:
            tensors.append(Tensor("wei_tail", self.dot.wei, per_column * layout.tail, kind))
        tensors += self.plan.tensors(self.unit, c.groups * layout.channels, c.oh * c.ow, outputs * c.oc)
        if self.dot.scaled:
            tensors.append(Tensor("src_scale", "f32", 1))
        if self.dot.ones:
            tensors.append(Tensor.constant("ones", "s16", np.ones(2, np.int16).tobytes()))
        if self.shifted:
            tensors.append(Tensor.constant("shift", "u8", bytes([128] * 4)))
        if e.zp_wei:
            tensors += [Tensor("zp_wei", "s32", 1), Tensor("rowsum", "s32", outputs, "scratch")]
            unit_weight = np.ones(4 // (fmt(self.dot.wide).bits // 8), fmt(self.dot.wide).dtype)
            tensors.append(Tensor.constant("unit_weight", self.dot.wide, unit_weight.tobytes()))
        if self.total == "total" and self.chained:
            tensors.append(Tensor("total", "f32", outputs * c.oc, "scratch"))
        return [*tensors, Tensor("dst", e.dst, outputs * c.oc, "output")]

    @property
    def total(self) -> str:
        """The tensor of the sum of chains so far: dst itself where it is f32."""
        return "dst" if self.conv.epilogue.dst == "f32" else "total"

    def panels(self) -> list[tuple[int, Panel]]:
        """(how many, the panel) for whole panels and for the narrower last one; `g` and `j` are the loops around."""
        layout, lanes = self.layout, self.unit.lanes
        column = self.reading.weights
        group = Affine.var("g")
        found = []
        if layout.full:
            base = group * (column * layout.full * layout.width) + Affine.var("j") * (column * layout.width)
            dst = group * self.oc + Affine.var("j") * layout.width
            channel = group * layout.channels + Affine.var("j") * layout.width
            vectors = layout.width // lanes
            live = [min(lanes, self.oc - j * lanes) for j in range(vectors)]  # only a lone panel can be part empty
            step = layout.width * layout.depth
            if self.plain:
                base, step = Affine.var("j") * layout.width, self.oc
            found.append((layout.full, Panel("wei", vectors, tuple(live), base, step, dst, channel, self.plain)))
        if layout.tail:
            first = layout.full * layout.width
            vectors = layout.tail // lanes
            live = [min(lanes, self.oc - first - j * lanes) for j in range(vectors)]
            base = group * (column * layout.tail)
            dst, channel = group * self.oc + first, group * layout.channels + first
            tensor, step = "wei_tail", layout.tail * layout.depth
            if self.plain:
                tensor, base, step = "wei", Affine(first), self.oc
            found.append((1, Panel(tensor, vectors, tuple(live), base, step, dst, channel, self.plain)))
        return found

    def nest(self, first: int, height: int, count: int, panels: int, panel: Panel, parallel: bool = True) -> Code:
        """All tiles of one height over one kind of panel."""
        c, r = self.conv, self.reading
        size = fmt(r.source.read).bits // 8
        block = Affine.var("r") * height
        inner = count
        outer: list[tuple[str, int]] = []
        base_source, base_row = Affine(), Affine()
        if self.flat:
            channels = self.options.cut if self.by_parts(panel) else r.column
            together = chunk(count, height * channels * size, self.second_level)
            outer.append(("q", count // together))
            inner = together
            block = block + Affine.var("q") * (height * together)
        else:
            together = chunk(c.oh, r.line * size, self.second_level)
            outer += [("n", c.mb), ("q", c.oh // together)]
            lines = Affine.var("q") * together + Affine.var("y")
            base_source = Affine.var("n") * r.image + lines * r.line + r.origin
            base_row = Affine.var("n") * (c.oh * c.ow) + lines * c.ow
        numbers = [base_row + block + (first + i) for i in range(height)]
        sources = [base_source + (block + (first + i)) * r.column + Affine.var("g") * r.group for i in range(height)]
        in_image = [n + Affine.var("n") * -(c.oh * c.ow) for n in numbers]
        position = [p * (c.groups * self.layout.channels) for p in in_image]
        parts = self.tile(panel, sources, position, numbers)
        if self.by_parts(panel):
            body = [s for part in parts for s in replace(part, code=loop("r", inner, part.code)).whole]
        else:
            body = loop("r", inner, [s for part in parts for s in part.whole])
        if not self.flat:
            body = loop("y", together, body)
        for var, extent in reversed([*outer, ("g", c.groups), ("j", panels)]):
            body = loop(var, extent, body, parallel)
        return body

    def tile(
        self, panel: Panel, sources: Sequence[Affine], position: Sequence[Affine], numbers: Sequence[Affine]
    ) -> list[Part]:
        """One tile from nothing to dst; for each row its source, where it is in `comp`, and its number."""
        c = self.conv
        reduction = Reduction(self.dot, self.reading.tensor, self.shifted, self.sums(panel.step), self.group)
        return tile(
            self.unit,
            reduction,
            self.plan,
            panel,
            sources,
            [n * c.oc for n in numbers],
            self.total,
            position,
            numbers,
            c.epilogue.zp_wei,
        )

    def by_parts(self, panel: Panel) -> bool:
        """Whether all rows of a chunk are taken through one part of the sums before the next: where the second cache
        holds a part of a panel's weights, and not all of them.
        """
        size = self.reading.weights * panel.vectors * self.unit.lanes * fmt(self.dot.wei).bits // 8
        return self.flat and self.chained and self.group is None and size > 2 * SECOND_LEVEL

    @property
    def group(self) -> Group | None:
        """What makes terms of integer chains, where scales change along K (grouped.py)."""
        return None

    @cached_property
    def chained(self) -> bool:
        """Whether an output is more than one sum."""
        return sum(len(repeat.chains) * repeat.over.extent for repeat in self.sums(0)) > 1

    def sums(self, step: int) -> tuple[Repeat, ...]:
        """The chains of a sum: cut between channels, or as the order of a convolution has it; `step` in weights."""
        r, order, depth = self.reading, self.options.order, self.dot.depth
        steps = r.ic // depth
        tap = steps * step
        cut = min(self.options.cut // depth or steps, steps)
        rows = Taps("u", r.kh, r.down, r.kw * tap)

        def chain(columns: tuple[int, int], *outside: Taps, first: int = 0) -> Chain:
            """Over a run of columns, and up to `cut` steps of channels from `first`."""
            taps = (*outside, Taps("w", columns[1], r.across, tap))
            at = columns[0] * r.across + first * depth, columns[0] * tap + first * step
            return Chain(taps, min(cut, steps - first), *at)

        if order.parts:
            return tuple(
                Repeat(tuple(chain(c, first=first) for c in part.columns), replace(rows, var="part"))
                if part.row_by_row
                else Repeat(tuple(chain(c, rows, first=first) for c in part.columns))
                for first in range(0, steps, cut)
                for part in order.parts
            )
        if order.block:
            some = order.block // depth
            blocks = Taps("block", steps // some, order.block, some * step)
            return (Repeat((replace(chain((0, r.kw), blocks, rows), steps=some),)),)
        times = -(-steps // cut) - 1
        last = chain((0, r.kw), rows, first=times * cut)
        if order.columns_outside:
            last = replace(last, taps=last.taps[::-1])
        if not times:
            return (Repeat((last,)),)
        return Repeat((chain((0, r.kw), rows),), Taps("part", times, cut * depth, cut * step)), Repeat((last,))

    def row_sums(self) -> Code:
        """rowsum[m] = weights' zero point x sum of row m, by the same dot product against ones."""
        dot, r, unit = self.dot, self.reading, self.unit
        steps = r.column // dot.depth
        a = unit.reg("a")
        row = Affine.var("m") * r.column
        body: Code = [broadcast32(a, r.tensor, row + Affine.var("k") * dot.depth)]
        if self.shifted:
            body.append(op("vpaddb", a.as_("s8"), a.as_("s8"), unit.reg("shift", "s8")))
        body += dot.emit(unit, "c0_0", "a", "b0", "t0")
        total, factor = unit.reg("c0_0", "s32"), unit.reg("p", "s32")
        code: Code = [broadcast32(unit.reg("b0"), "unit_weight", Affine()), zero(total)]
        if dot.ones:
            code.append(broadcast32(unit.reg("ones"), "ones", Affine()))
        if self.shifted:
            code.append(broadcast32(unit.reg("shift"), "shift", Affine()))
        code += loop("k", steps, body)
        code += [broadcast32(factor, "zp_wei", Affine()), op("vpmulld", total, total, factor)]
        code.append(op("vmovd", Memory("rowsum", Affine.var("m"), "u32", 1), Register("c0_0", "u32", 4)))
        return loop("m", self.rows, code, parallel=True)

    # -- between the user's arrays and the program's tensors --------------------------------------------------------
    def kernel(self) -> Kernel:
        halves = self.options.halve
        saturates = self.dot.saturates and not halves
        return Kernel(
            self.name,
            self.program,
            self.prepare,
            self.finish,
            self.dot.compute,
            blocked=self.blocked,
            counting=self.counting if saturates else None,
            sums=self.summing if saturates else None,
            halves=halves,
        )

    def counting(self) -> Kernel:
        """This kernel's walk over its operands, counting saturated pairs (s32 outputs) instead of adding them up."""
        problem = replace(self.problem, epilogue=Epilogue("s32"))
        return Gemm(f"{self.name}, saturated pairs", problem, self.unit, COUNT, self.options).kernel()

    def summing(self) -> Kernel:
        """This kernel's sums, less zero points, written to s32 without any other step of the epilogue."""
        e = self.problem.epilogue
        problem = replace(self.problem, epilogue=Epilogue("s32", e.zp_src, e.zp_wei))
        options = replace(self.options, through_float=False)
        return Gemm(f"{self.name}, sums", problem, self.unit, self.dot, options).kernel()

    def prepare(self, src: Array, weights: Array, parameters: Parameters) -> dict[str, Array]:
        """The program's inputs."""
        if self.options.split_k:
            src = split_rows(src, self.ic)
        elif not self.is_matmul:
            src = src.transpose(0, 2, 3, 1)
        multiplied = self.multiplied(weights)
        inputs = {
            "src": to_a_line(src).reshape(-1),
            **self.weight_tensors(weights, multiplied),
            **self.parameter_tensors(multiplied, parameters),
        }
        return {t.name: inputs[t.name] for t in self.program.tensors if t.kind == "input"}

    def multiplied(self, weights: Array) -> Array:
        """The weights that the dots multiply, as goihw: halved or rounded where they are."""
        c = self.conv
        if self.options.split_k:
            rows = split_rows(weights.T, self.ic)
            weights = rows.reshape(1, c.oc, c.kw, self.ic).transpose(0, 1, 3, 2)[:, :, :, None, :]
        elif self.is_matmul:
            weights = weights.T.reshape(1, c.oc, c.ic, 1, 1)
        else:
            weights = weights.reshape(c.groups, self.oc, self.ic, c.kh, c.kw)
        if self.options.halve:
            weights = pack.halved(weights)
        if weights.dtype == np.float32:  # as the program would; a reorder may have done it
            weights = ahead(weights, self.dot.wei, self.dot.rounds)
        return weights

    def weight_tensors(self, weights: Array, multiplied: Array) -> dict[str, Array]:
        """The tensors that hold the weights: as the user stores them, or in the kernel's own layout."""
        if self.plain:
            return {"wei": to_a_line(weights).reshape(-1)}
        if self.packed_here:
            return {"plain": to_a_line(weights.T if self.tag == "ba" else weights).reshape(-1)}
        whole, tail = pack.pack(fold_weights(multiplied, self.options.order.fold), self.layout)
        return {"wei": whole, "wei_tail": tail}

    def parameter_tensors(self, weights: Array, p: Parameters) -> dict[str, Array]:
        tensors = self.plan.inputs(p, lambda values: pack.per_channel(values, self.layout, "f32"))
        tensors["zp_wei"] = pack.wrap32(np.array([p.zp_wei]))
        if self.plan.compensate:
            tensors["comp"] = self.compensation(weights, p)
        return tensors

    def compensation(self, weights: Array, p: Parameters) -> Array:
        """What an s32 sum lacks: the shift of s8 sources, and what does not depend on the source of zero points.

        sum (a - zs)(w - zw) = sum a w - zs sum w - zw sum a + K zs zw. A padding pixel stands for the zero point, so
        it takes no part in the terms with zs; the shift by 128 it does take part in.
        """
        c = self.conv
        by_tap = weights.sum(axis=2, dtype=np.int64)
        total = by_tap.sum(axis=(2, 3))
        shift = 128 * total if self.shifted else np.zeros_like(total)
        e = c.epilogue
        zs, zw = (int(p.zp_src) if e.zp_src else 0), (int(p.zp_wei) if e.zp_wei else 0)
        k = c.ic // c.groups * c.kh * c.kw if not self.options.split_k else self.problem_k
        constant = k * zs * zw
        if self.shifted:  # the row sums are of shifted sources too, padded channels included
            constant += zw * 128 * c.kh * c.kw * self.layout.icp
        constant %= 1 << 32  # as all of it wraps in the end
        if self.plan.compensate == "channel":
            values = constant - shift - zs * total
            return pack.per_channel(pack.wrap32(values), self.layout, "s32")
        edges = Edges.of(c)
        values = constant - shift - zs * edges.sums(by_tap)
        padded = np.zeros((*values.shape[:3], self.layout.channels), np.int32)
        padded[..., : self.oc] = pack.wrap32(values)
        return edges.spread(padded).reshape(-1)

    @property
    def problem_k(self) -> int:
        assert isinstance(self.problem, MatmulProblem)
        return self.problem.k

    def finish(self, outputs: Mapping[str, Array]) -> Array:
        """dst in the user's layout."""
        c = self.conv
        if self.is_matmul:
            return outputs["dst"].reshape(self.rows, c.oc)
        nhwc = outputs["dst"].reshape(c.mb, c.oh, c.ow, c.oc)
        return np.ascontiguousarray(nhwc.transpose(0, 3, 1, 2))


def as_convolution(problem: Problem, split_k: int) -> ConvProblem:
    """A matmul as rows of pixels with one tap; with `split_k`, with taps of which each is a part of K."""
    if isinstance(problem, ConvProblem):
        return problem
    p = problem
    if split_k:
        parts = -(-p.k // split_k)
        return ConvProblem(1, split_k, 1, parts * p.m, p.n, 1, parts, p.src, p.wei, p.epilogue, strides=(1, parts))
    return ConvProblem(1, p.k, 1, p.m, p.n, 1, 1, p.src, p.wei, p.epilogue)


def split_rows(rows: Array, length: int) -> Array:
    """(R, K) padded with zeros to whole parts of K."""
    return np.pad(rows, ((0, 0), (0, -rows.shape[1] % length)))
