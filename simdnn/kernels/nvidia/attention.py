"""Attention in one kernel for NVIDIA's tensor cores: scores stay in registers (FlashAttention-2, arXiv:2307.08691).

for each head, each block of queries:           parallel: workgroups
    for each warp, its rows of the block:       parallel
        for each block of keys, the last one first:
            scores of the rows                  mma, f32
            rows' maxima so far; what was found is scaled down to them
            shares = 2**(scores * c - maxima * c), c = scale * log2(e): one fma, then ex2
            sums of rows                        of shares in f32, by each of the four threads of a row
            found += shares, in the operands' type, x values       mma
        found / sums; store

Blocks are those of FlashAttention-2 (`attention_tiles`): so are the orders of maxima and sums (softmax.h). With warp
groups they are FlashAttention-3's (arXiv:2407.08608): products with values stand among the exponentials of the next
block, and groups do not wait for each other.
A last block of keys is filled up, and what is filled up hidden by minus infinity, as are keys that come later than
their query (causal): blocks of these alone change no bit, and the clock does not see them. Queries and sizes of heads
are filled up with zeros. As in a product (`gemm`), fragments are read with ld.shared, and the loop over keys says that
a workgroup brings them there (`staged`).
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import prod

import numpy as np

from isa_models import GpuMachine
from isa_models.formats import fmt
from isa_models.gpu.platforms import MOST_GRFS
from isa_models.nvidia.mma import MmaShape
from isa_models.readings.arrays import Array
from simdnn.kernels.common.attention import AttentionProblem
from simdnn.kernels.common.code import Code, nest, op
from simdnn.kernels.nvidia.attention_code import (
    AHEAD,
    COLUMNS,
    DEPTH,
    MINUS_INFINITY,
    QUADS,
    ROWS,
    THREADS,
    Parts,
    ahead,
    blocks,
    log2_factor,
    mixed,
    staggered,
    turned,
)
from simdnn.kernels.nvidia.attention_parts import Joined
from simdnn.kernels.nvidia.attention_tiles import FlashTile, name_of
from simdnn.program.check import verify
from simdnn.program.records import Affine, Loop, Memory, Op, Place, Program, Register, Tensor

ROUNDS = 32  # of workgroups that are handed out, in which those of unequal length are followed


@dataclass(frozen=True)
class FlashAttention:
    """The kernel of one problem."""

    problem: AttentionProblem
    machine: GpuMachine
    tile: FlashTile
    parts: int = 0  # of the keys, each with workgroups of its own; 0: the kernel of many queries
    clocked: bool = False  # the program that the clock sees, and not the one of values

    @property
    def name(self) -> str:
        return name_of(self.machine, self.tile.unit, self.parts > 0)

    @property
    def splits(self) -> int:
        """Parts of the keys."""
        return max(1, self.parts)

    @property
    def overlapped(self) -> bool:
        """Whether products with values of a block are among the exponentials of the next one."""
        return self.tile.unit == "wgmma"

    # -- sizes ------------------------------------------------------------------------------------------------------
    @property
    def down(self) -> range:
        """A warp's blocks of rows."""
        return range(self.tile.rows // ROWS // self.tile.warps)

    @property
    def across(self) -> range:
        """Blocks of columns of the scores."""
        return range(self.tile.keys // COLUMNS)

    @property
    def wide(self) -> range:
        """Blocks of columns of what is found."""
        return range(self.tile.size // COLUMNS)

    @property
    def groups(self) -> int:
        """Blocks of queries."""
        return -(-self.problem.lq // self.tile.rows)

    @property
    def each(self) -> int:
        """Blocks of keys of a part."""
        blocks = -(-self.problem.lk // self.tile.keys)
        return -(-blocks // self.splits)

    @property
    def turns(self) -> int:
        """Blocks of keys, with what fills up the last part."""
        return self.each * self.splits

    @property
    def warps(self) -> int:
        """Warps of a workgroup: for values, those that have queries."""
        few = self.groups == 1 and not self.clocked
        return -(-self.problem.lq // (ROWS * len(self.down))) if few else self.tile.warps

    @property
    def rows(self) -> int:
        """Rows that a block of queries takes in memory."""
        return self.warps * len(self.down) * ROWS

    @property
    def alike(self) -> bool:
        """Whether all warps do what the first one does, as there are no more queries than its rows."""
        return self.clocked and self.problem.lq <= ROWS * len(self.down)

    # -- registers ----------------------------------------------------------------------------------------------------
    def sums(self, name: str, i: int, j: int) -> Register:
        return Register(f"{name}_{i}_{j}", "f32", ROWS * COLUMNS)

    def of_row(self, name: str, i: int) -> Register:
        return Register(f"{name}_{i}", "f32", QUADS)

    def shares(self, i: int, t: int) -> Register:
        """Two blocks of shares as an operand: in the place of the first of them, or beside the next block's scores."""
        name = f"p_{i}_{t}" if self.overlapped else f"s_{i}_{2 * t}"
        return Register(name, self.problem.dtype, ROWS * DEPTH)

    # -- program ------------------------------------------------------------------------------------------------------
    @cached_property
    def program(self) -> Program:
        """Every block of queries over every block of keys: one whose keys are all hidden leaves all as it was."""
        some = self.turns * self.tile.keys > self.problem.lk
        hidden = self.each if self.problem.causal or (some and self.splits > 1) else int(some)
        return self.verified(self.nest(self.queries(Affine.var("group_m"), self.each, hidden), self.groups))

    @cached_property
    def timed(self) -> Program:
        """The program that the clock sees. With a causal mask workgroups leave out blocks of keys that are all hidden;
        all are alike here, each with the mean of these counts, or with two blocks of queries around it, beside the time
        in which the last ones are `late`.
        """
        if not self.clocked:
            return replace(self, clocked=True).timed
        if not self.problem.causal or self.splits > 1:
            hidden = self.seen(0)[1] if self.problem.causal else self.turns * self.tile.keys > self.problem.lk
            return self.verified(self.nest(self.queries(Affine.var("group_m"), self.each, int(hidden)), self.groups))
        turns, hidden = (sum(each) / self.groups for each in zip(*map(self.seen, range(self.groups)), strict=True))
        low, few = int(turns), max(1, round(hidden))
        several = [low, low + 1] if 0.25 <= turns - low < 0.75 and self.groups % 2 == 0 else [round(turns)]
        groups, place = self.groups // len(several), Affine.var("group_m") * len(several)
        each = [self.queries(place + n, max(count, few), few) for n, count in enumerate(several)]
        late = self.late(len(several), sum(several))
        return self.verified(self.nest([step for code in each for step in code], groups, late, len(several)))

    def late(self, together: int, turns: int) -> float:
        """How long the last workgroups work alone, in the time of one of `together` blocks of queries in so many turns.

        FlashAttention-2 hands out blocks of queries in order, those that see most keys of each head last.
        FlashAttention-3 begins with them.
        """
        blocks = [self.seen(block)[0] for block in range(self.groups)]
        heads, room = self.problem.batch * self.problem.heads, self.machine.xe_cores * self.resident
        count = heads * self.groups
        last = min(count, count % room + ROUNDS * room)  # they decide; those before them fill all places
        order = [turns for turns in blocks[::-1] for _ in range(heads)] if self.overlapped else blocks * heads
        alike = max(1, -(-last // together // room)) * turns
        return max(0.0, done(order[-last:], room) - alike) / turns

    def seen(self, block: int) -> tuple[int, int]:
        """The blocks of keys that any of a block of queries sees, with a causal mask, and those that are compared with
        it: that not all see, or, in FlashAttention-2 with a window, all.
        """
        first = block * self.tile.rows + self.problem.lk - self.problem.lq + 1  # keys up to its first query
        last = min(self.problem.lk, first + self.tile.rows - 1)
        before, whole = 0, 0  # blocks that none sees, and keys that the last query does not
        if self.problem.window:
            before = max(0, first - self.problem.window) // self.tile.keys
            whole = max(0, last - self.problem.window)
        turns = -(-last // self.tile.keys) - before
        if self.problem.window and not self.overlapped:
            return turns, turns
        return turns, turns - max(0, min(first // self.tile.keys - -(-whole // self.tile.keys), turns))

    def queries(self, place: Affine, turns: int, hidden: int) -> Code:
        """A block of queries over blocks of keys, or those of a part of them, the last one first; some keys of the
        first ones are `hidden`.
        """
        code, done = self.start(), 0
        before = Affine.var("group_k") * self.each if self.splits > 1 else Affine()
        if self.overlapped:
            last = before + (turns - 1)
            first = [*self.scored(place, last, hidden > 0), *self.maxima(), *self.exponentials(), *self.packed()]
            code += [Loop("j", 1, tuple(first), staged=1, apart=True)]
            done = 1
        for count, masked in ((max(hidden - done, 0), True), (turns - max(hidden, done), False)):
            step = before + Affine.var("j") * -1 + (turns - 1 - done)
            body = self.following(place, step, masked) if self.overlapped else self.block(place, step, masked)
            code += [Loop("j", count, tuple(body), staged=1, apart=self.overlapped)] if count else []
            done += count
        return [*code, *(ahead(self.found(before), AHEAD) if self.overlapped else []), *self.end(place)]

    def nest(self, code: Code, groups: int, late: float = 0.0, each: int = 1) -> Code:
        """Workgroups that each have so many blocks of queries, and their threads; behind them those that put the parts
        of the keys together.
        """
        code = nest([("thread", self.warps)], code, parallel=True, threads=True)
        p, parts = self.problem, [("group_k", self.splits)] if self.splits > 1 else []
        live, bare = p.lq / (self.groups * self.tile.rows), (self.bare,) * each
        for var, extent in (*parts, ("group_m", groups), ("group_h", p.shared), ("group_b", p.batch * p.kv_heads)):
            code = [Loop(var, extent, tuple(code), True, resident=self.resident, late=late, live=live, bare=bare)]
        return code + (Joined(self).code() if self.splits > 1 else [])

    def verified(self, code: Code) -> Program:
        p = self.problem
        text = f"{self.name} {p.heads}x{p.lq}x{p.d} {p.kv_heads}x{p.lk} {p.dtype}:{p.dst}{' causal' * p.causal}"
        return verify(Program(text, self.machine.platform.name, tuple(self.tensors()), tuple(code)))

    @property
    def resident(self) -> int:
        """Workgroups that an SM has registers (large ones: two warps of each partition) and shared memory for.
        FlashAttention-3's stay, one on each SM.
        """
        if self.overlapped:
            return 1
        warps = self.machine.engines_per_core * self.machine.threads_of(MOST_GRFS)
        return max(1, min(warps // self.tile.warps, self.machine.l1.size_bytes // self.tile.shared_bytes))

    @property
    def bare(self) -> int:
        """Bytes that nothing hides: queries and first keys, awaited by the first product, and stored outputs."""
        rows = min(self.problem.lq, self.tile.rows)
        return self.tile.size * (2 * (rows + self.tile.keys) + rows * fmt(self.problem.dst).bits // 8)

    def start(self) -> Code:
        code: Code = []
        if self.overlapped:  # what a loop alone writes is unknown behind it
            pairs = [self.shares(i, t).as_("u32") for i in self.down for t in range(self.tile.keys // DEPTH)]
            code += [op("rz.b32", *[pair] * 3) for pair in pairs]
        for i in self.down:
            code += [op("rz.b32", *[self.sums("o", i, j).as_("u32")] * 3) for j in self.wide]
            top, total = (self.of_row(name, i).as_("u32") for name in "ml")
            code += [op("xor.b32", top, top, top), op("ptx_add.u32.imm", top, top, imm=MINUS_INFINITY)]
            code.append(op("xor.b32", total, total, total))
        return code

    def block(self, place: Affine, step: Affine, masked: bool) -> Code:
        """The steps for a block of keys, one after the other; `masked`: some of the keys are hidden."""
        code = [*self.scored(place, step, masked), *self.maxima(), *self.rescaled(), *self.exponentials()]
        return [*code, *self.packed(), *ahead(self.found(step), AHEAD)]

    def following(self, place: Affine, step: Affine, masked: bool) -> Code:
        """The steps for a block of keys, with what the one before it has left to do."""
        products = ahead(self.found(step + 1), AHEAD)
        among = mixed(products, [*self.maxima(), *self.exponentials()])
        return [*self.scored(place, step, masked), *among, *self.rescaled(), *self.packed()]

    def scored(self, place: Affine, step: Affine, masked: bool) -> Code:
        """Scores of a block of keys."""
        code: Code = [op("rz.b32", *[self.sums("s", i, j).as_("u32")] * 3) for i in self.down for j in self.across]
        code += ahead(self.scores(place, step), AHEAD)
        return code + (self.hidden(place, step) if masked else [])

    def hidden(self, place: Affine, step: Affine) -> Code:
        """Minus infinity in place of scores of keys that come later than their query, or fill up the last block (which
        is later than all queries).
        """
        if not self.problem.causal and self.splits == 1:
            last = self.problem.lk - (self.turns - 1) * self.tile.keys
            live = [(j, min(max(last - j * COLUMNS, 0), COLUMNS)) for j in self.across]
            sums = [(self.sums("s", i, j), left) for j, left in live if left < COLUMNS for i in self.down]
            return [op("selp.f32.columns", s, s, imm=left) for s, left in sums]
        code: Code = []
        window = self.problem.window
        sides = (("below", "x", window), *([("from", "y", 0)] if window else []))
        for side, name, behind in sides:
            for i in self.down:
                ahead_of = (
                    self.row(place, i) * ROWS + step * -self.tile.keys + (self.turns - 1) * self.tile.keys + behind
                )
                where = ahead_of * THREADS if self.problem.causal else step * QUADS
                code.append(op("ld.global.s32", self.limit(name, i), Memory("seen", where, "s32", QUADS)))
            for j in self.across:
                for i in self.down:
                    s = self.sums("s", i, j)
                    code.append(op(f"selp.f32.{side}", s, s, self.limit(name, i), imm=j * COLUMNS))
        return code

    def limit(self, name: str, i: int) -> Register:
        """How many keys of a block a row sees, or the first of them."""
        return self.of_row(name, i).as_("s32")

    def scores(self, place: Affine, step: Affine) -> Parts:
        """Loads and products of the scores, one after the other."""
        parts = Parts()
        for k in range(self.tile.size // DEPTH):
            rows = [Register(f"q_{i}_{k % 2}", self.problem.dtype, ROWS * DEPTH) for i in self.down]
            for j in self.across:
                loads, column = self.column(len(parts), "k", self.of_key(step, j, k))
                loads += [self.loaded(row, "q", self.of_query(place, i, k)) for i, row in enumerate(rows) if j == 0]
                sums = [self.sums("s", i, j) for i in self.down]
                products: Code = [op(self.product, s, s, q, column) for s, q in zip(sums, rows, strict=True)]
                parts.append((loads, products))
        return parts

    def maxima(self) -> Code:
        """Maxima of rows with this block; sums of those before are scaled down to them."""
        code: Code = []
        for j in self.across:
            for way in ("even", "odd"):
                first = j == 0 and way == "even"
                for i in self.down:
                    top = self.of_row("n", i)
                    code.append(
                        op(f"ptx_max.f32.{way}", top, self.of_row("m", i) if first else top, self.sums("s", i, j))
                    )
        for lanes in (2, 1):
            for i in self.down:
                top, other = self.of_row("n", i), self.of_row("x", i)
                code += [op("shfl.bfly.f32", other, top, imm=lanes), op("ptx_max.f32", top, top, other)]
        factor = log2_factor(self.problem.scale)
        for i in self.down:
            m, top, x, a, total = (self.of_row(name, i) for name in "mnxal")
            code += [op("selp.f32.seen", x, top), op("sub.rn.f32", a, m, x), op("mul.rn.f32.imm", a, a, imm=factor)]
            code += [op("ex2.approx.ftz.f32", a, a), op("mov.b32", m.as_("u32"), top.as_("u32"))]
            code += [op("mul.rn.f32.imm", x, x, imm=factor), op("mul.rn.f32", total, total, a)]
        return code

    def rescaled(self) -> Code:
        """The sums of values of the blocks before, scaled down to the new maxima."""
        found = [(self.sums("o", i, j), self.of_row("a", i)) for j in self.wide for i in self.down]
        return [op("mul.rn.f32.thread", o, o, a) for o, a in found]

    def exponentials(self) -> Code:
        """Shares and their sums, each step of a block of columns some blocks behind the one before."""
        factor = log2_factor(self.problem.scale)
        stages: list[list[Code]] = [[], [], []]
        for j in self.across:
            rows = [(self.of_row("x", i), self.of_row("l", i), self.sums("s", i, j)) for i in self.down]
            stages[0].append([op("fma.rn.f32.imm.thread", s, s, x, imm=factor) for x, _, s in rows])
            stages[1].append([op("ex2.approx.ftz.f32", s, s) for _, _, s in rows])
            stages[2].append([op(f"add.rn.f32.{way}", t, t, s) for way in ("even", "odd") for _, t, s in rows])
        return staggered(stages, (0, 1, 3))

    def packed(self) -> Code:
        """Shares in the operands' type."""
        name = f"cvt.rn.{self.problem.dtype}x2.f32"
        places = [(i, t) for t in range(self.tile.keys // DEPTH) for i in self.down]
        return [op(name, self.shares(i, t), *[self.sums("s", i, 2 * t + n) for n in (0, 1)]) for i, t in places]

    def found(self, step: Affine) -> Parts:
        """Loads and products of shares and values, one after the other."""
        parts = Parts()
        for t in range(self.tile.keys // DEPTH):
            for j in self.wide:
                loads, column = self.column(len(parts), "v", self.of_value(step, t, j))
                pairs = [(self.sums("o", i, j), self.shares(i, t)) for i in self.down]
                parts.append((loads, [op(self.product, o, o, share, column) for o, share in pairs]))
        return parts

    @property
    def product(self) -> str:
        """The instruction of products. One of wgmma has more columns; its parts are named one by one here."""
        p = self.problem
        return MmaShape(self.tile.unit, self.machine.platform.name, p.dtype, "f32", ROWS, COLUMNS, DEPTH).name

    def column(self, number: int, tensor: str, place: Affine) -> tuple[Code, Place]:
        """Loads of a block of columns and the operand; wgmma reads it where it lies."""
        if self.tile.unit == "wgmma":
            return [], Memory(tensor, place, self.problem.dtype, DEPTH * COLUMNS)
        register = Register(f"b_{number % (AHEAD + 1)}", self.problem.dtype, DEPTH * COLUMNS)
        return [self.loaded(register, tensor, place)], register

    def end(self, place: Affine) -> Code:
        code: Code = []
        for lanes in (2, 1):
            for i in self.down:
                total, other = self.of_row("l", i), self.of_row("x", i)
                code += [op("shfl.bfly.f32", other, total, imm=lanes), op("add.rn.f32", total, total, other)]
        if self.splits > 1:
            return code + Joined(self).part(place)
        code += [op("rcp.approx.ftz.f32", total, total) for total in (self.of_row("l", i) for i in self.down)]
        pairs = [(i, j) for i in self.down for j in self.wide[::2]]
        return code + [found for n, (i, j) in enumerate(self.mine(pairs)) for found in self.stored(place, n, i, j)]

    def mine(self, stored: Sequence[tuple[int, int]]) -> Sequence[tuple[int, int]]:
        """The blocks that a warp stores of its own: where only few of the rows are queries, its share of these."""
        count = -(-len(stored) * self.problem.lq // self.tile.rows) if self.alike else len(stored)
        return stored[:count]

    def stored(self, block: Affine, number: int, i: int, j: int) -> Code:
        """Two blocks of a row of them over its sums, in the destination's type."""
        code, dst, total = Code(), self.problem.dst, self.of_row("l", i)
        pair = [self.sums("o", i, j), self.sums("o", i, j + 1)]
        code += [op("mul.rn.f32.thread", o, o, total) for o in pair]
        if dst != "f32":
            pair = [Register(pair[0].name, dst, ROWS * DEPTH)]
            code.append(op(f"cvt.rn.{dst}x2.f32", pair[0], self.sums("o", i, j), self.sums("o", i, j + 1)))
        for part, found in enumerate(pair):
            place = self.of_mine(block, number, len(self.wide) // 2, ROWS * DEPTH) + part * found.lanes
            code.append(op(f"st.global.{dst}", Memory("dst", place, dst, found.lanes), found))
        return code

    # -- memory -------------------------------------------------------------------------------------------------------
    def loaded(self, register: Register, tensor: str, place: Affine) -> Op:
        memory = Memory(tensor, place, register.dtype, register.lanes)
        return op(f"ld.shared.{register.dtype}.to1", register, memory)

    @property
    def head(self) -> Affine:
        """The number of a head of queries."""
        return Affine.var("group_b") * self.problem.shared + Affine.var("group_h")

    def row(self, place: Affine, i: int = 0) -> Affine:
        """The number of a warp's block of rows, where its block of queries has that of `place`."""
        warp = Affine() if self.alike else Affine.var("thread")
        return (place * self.warps + warp) * len(self.down) + i

    def of_query(self, place: Affine, i: int, k: int) -> Affine:
        """Where a block of a warp's queries lies; `place`: of the block of queries."""
        row = self.row(self.head * self.groups + place, i)
        return (row * (self.tile.size // DEPTH) + k) * (ROWS * DEPTH)

    def of_mine(self, place: Affine, number: int, each: int, lanes: int) -> Affine:
        """Where a number of what a warp stores lies, of which a block of rows has `each` so large."""
        first = self.row(self.head * self.groups + place) * each
        if self.alike:
            first = first + Affine.var("thread") * len(self.mine([(i, n) for i in self.down for n in range(each)]))
        return (first + number) * lanes

    def of_key(self, step: Affine, j: int, k: int) -> Affine:
        block = (Affine.var("group_b") * self.turns + step) * len(self.across) + j
        return (block * (self.tile.size // DEPTH) + k) * (DEPTH * COLUMNS)

    def of_value(self, step: Affine, t: int, j: int) -> Affine:
        block = (Affine.var("group_b") * self.turns + step) * (self.tile.keys // DEPTH) + t
        return (block * len(self.wide) + j) * (DEPTH * COLUMNS)

    def tensors(self) -> list[Tensor]:
        p, size = self.problem, self.tile.size
        queries = p.batch * p.heads * self.groups * self.rows * size
        keys = p.batch * p.kv_heads * self.turns * self.tile.keys * size
        inputs = [Tensor(name, p.dtype, count) for name, count in (("q", queries), ("k", keys), ("v", keys))]
        found = [*inputs, Tensor("dst", p.dst, queries, "output")]
        if self.splits > 1:
            found += Joined(self).tensors()
        if p.causal:  # the keys of a block that a query sees, by how far it is behind the block
            reach = (self.groups + 1) * self.tile.rows + (self.turns - 1) * self.tile.keys + p.window
            seen = np.arange(reach, dtype=np.int32) + (p.lk - p.lq + 1 - p.window - (self.turns - 1) * self.tile.keys)
            found.append(Tensor.constant("seen", "s32", np.repeat(seen, THREADS).tobytes()))
        elif self.splits > 1:  # the keys that there are from each block on
            left = p.lk - np.arange(self.turns, dtype=np.int32) * self.tile.keys
            found.append(Tensor.constant("seen", "s32", np.repeat(left, QUADS).tobytes()))
        return found

    # -- between the user's arrays and the program's ------------------------------------------------------------------
    def prepare(self, arrays: Mapping[str, Array]) -> dict[str, Array]:
        """q (…, queries, d), k and v (…, keys, d) as blocks, in the order of fragments; zeros beyond their ends."""
        q = self.filled(arrays["q"].reshape(-1, self.problem.lq, self.problem.d), self.groups * self.rows)
        k, v = (self.filled(arrays[name], self.turns * self.tile.keys) for name in "kv")
        return {"q": blocks(q, ROWS, DEPTH), "k": turned(k, DEPTH, COLUMNS), "v": blocks(v, DEPTH, COLUMNS)}

    def filled(self, array: Array, rows: int) -> Array:
        found = np.zeros((array.size // prod(array.shape[-2:]), rows, self.tile.size), array.dtype)
        found[:, : array.shape[-2], : array.shape[-1]] = array.reshape(-1, *array.shape[-2:])
        return found

    def finish(self, left: Mapping[str, Array]) -> Array:
        p, size = self.problem, self.tile.size
        wide = COLUMNS if p.dst == "f32" or self.splits > 1 else DEPTH
        found = left["dst"].reshape(p.batch * p.heads, -1, size // wide, ROWS, wide).swapaxes(2, 3)
        return np.ascontiguousarray(found.reshape(p.batch * p.heads, -1, size)[:, : p.lq, : p.d])


def done(lengths: Sequence[int], places: int) -> int:
    """When the last of workgroups is done that are handed out in order, each to the place that is free first."""
    free = [0] * places
    for length in lengths:
        heapq.heapreplace(free, free[0] + length)
    return max(free)
