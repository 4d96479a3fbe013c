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
from dataclasses import dataclass
from functools import cached_property
from math import e, log2, prod

import numpy as np

from isa_models import GpuMachine
from isa_models.gpu.platforms import MOST_GRFS
from isa_models.nvidia.mma import MmaShape
from isa_models.readings.arrays import Array
from simdnn.kernels.common.attention import AttentionProblem
from simdnn.kernels.common.code import Code, nest, op
from simdnn.kernels.common.vocabulary import Spread
from simdnn.kernels.nvidia.attention_tiles import FlashTile, name_of
from simdnn.program.check import verify
from simdnn.program.records import Affine, Loop, Memory, Op, Place, Program, Register, Tensor

ROWS, COLUMNS, DEPTH = 16, 8, 16  # of mma.m16n8k16
AHEAD = 3  # fragments that are loaded ahead of the products that read them
ROUNDS = 32  # of workgroups that are handed out, in which those of unequal length are followed
_MINUS_INFINITY = 0xFF800000  # as f32
_THREADS = 4  # of a row of sums
_QUADS = _THREADS * ROWS  # lanes of what each thread keeps of a row


Parts = list[tuple[Code, Code]]  # loads, and what needs them


def log2_factor(scale: float) -> int:
    """The bits of scale * log2(e), as the kernel multiplies scores by it."""
    return int(np.float32(np.float32(scale) * np.float32(log2(e))).view(np.uint32))


@dataclass(frozen=True)
class FlashAttention:
    """The kernel of one problem."""

    problem: AttentionProblem
    machine: GpuMachine
    tile: FlashTile

    @property
    def name(self) -> str:
        return name_of(self.machine, self.tile.unit)

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
    def turns(self) -> int:
        """Blocks of keys."""
        return -(-self.problem.lk // self.tile.keys)

    # -- registers ----------------------------------------------------------------------------------------------------
    def sums(self, name: str, i: int, j: int) -> Register:
        return Register(f"{name}_{i}_{j}", "f32", ROWS * COLUMNS)

    def of_row(self, name: str, i: int) -> Register:
        return Register(f"{name}_{i}", "f32", _QUADS)

    def shares(self, i: int, t: int) -> Register:
        """Two blocks of shares as an operand: in the place of the first of them, or beside the next block's scores."""
        name = f"p_{i}_{t}" if self.overlapped else f"s_{i}_{2 * t}"
        return Register(name, self.problem.dtype, ROWS * DEPTH)

    # -- program ------------------------------------------------------------------------------------------------------
    @cached_property
    def program(self) -> Program:
        """Every block of queries over every block of keys: one whose keys are all hidden leaves all as it was."""
        hidden = self.turns if self.problem.causal else int(self.turns * self.tile.keys > self.problem.lk)
        return self.verified([self.nest(self.queries(Affine.var("group_m"), self.turns, hidden), self.groups)])

    @cached_property
    def timed(self) -> Program:
        """The program that the clock sees. With a causal mask workgroups leave out blocks of keys that are all hidden;
        all are alike here, each with the mean of these counts, or with two blocks of queries around it, beside the time
        in which the last ones are `late`.
        """
        if not self.problem.causal:
            return self.program
        turns, hidden = (sum(each) / self.groups for each in zip(*map(self.seen, range(self.groups)), strict=True))
        low, few = int(turns), max(1, round(hidden))
        several = [low, low + 1] if 0.25 <= turns - low < 0.75 and self.groups % 2 == 0 else [round(turns)]
        groups, place = self.groups // len(several), Affine.var("group_m") * len(several)
        each = [self.queries(place + n, max(count, few), few) for n, count in enumerate(several)]
        late = self.late(len(several), sum(several))
        return self.verified([self.nest([step for code in each for step in code], groups, late)])

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
        """The blocks of keys that any of a block of queries sees, with a causal mask, and those that not all see."""
        first = block * self.tile.rows + self.problem.lk - self.problem.lq + 1  # keys that its first query sees
        turns = -(-min(self.problem.lk, first + self.tile.rows - 1) // self.tile.keys)
        return turns, turns - min(first // self.tile.keys, turns)

    def queries(self, place: Affine, turns: int, hidden: int) -> Code:
        """A block of queries over blocks of keys, the last one first; some keys of the first ones are `hidden`."""
        code, done = self.start(), 0
        if self.overlapped:
            last = Affine(turns - 1)
            first = [*self.scored(place, last, hidden > 0), *self.maxima(), *self.exponentials(), *self.packed()]
            code += [Loop("j", 1, tuple(first), staged=1, apart=True)]
            done = 1
        for count, masked in ((max(hidden - done, 0), True), (turns - max(hidden, done), False)):
            step = Affine.var("j") * -1 + (turns - 1 - done)
            body = self.following(place, step, masked) if self.overlapped else self.block(place, step, masked)
            code += [Loop("j", count, tuple(body), staged=1, apart=self.overlapped)] if count else []
            done += count
        return [*code, *(ahead(self.found(Affine()), AHEAD) if self.overlapped else []), *self.end(place)]

    def nest(self, code: Code, groups: int, late: float = 0.0) -> Loop:
        """Workgroups of a number of blocks of queries of each head, and their threads."""
        code = nest([("thread", self.tile.warps)], code, parallel=True, threads=True)
        p = self.problem
        for var, extent in (("group_m", groups), ("group_h", p.shared), ("group_b", p.batch * p.kv_heads)):
            code = [Loop(var, extent, tuple(code), parallel=True, resident=self.resident, late=late)]
        (found,) = code
        assert isinstance(found, Loop)
        return found

    def verified(self, code: Code) -> Program:
        p = self.problem
        text = f"{self.name} {p.heads}x{p.lq}x{p.d} {p.kv_heads}x{p.lk} {p.dtype}:{p.dst}{' causal' * p.causal}"
        return verify(Program(text, self.machine.platform.name, tuple(self.tensors()), tuple(code)))

    @property
    def resident(self) -> int:
        """Workgroups that an SM has registers (large ones: two warps of each partition) and shared memory for."""
        warps = self.machine.engines_per_core * self.machine.threads_of(MOST_GRFS)
        return max(1, min(warps // self.tile.warps, self.machine.l1.size_bytes // self.tile.shared_bytes))

    def start(self) -> Code:
        code: Code = []
        if self.overlapped:  # what a loop alone writes is unknown behind it
            pairs = [self.shares(i, t).as_("u32") for i in self.down for t in range(self.tile.keys // DEPTH)]
            code += [op("rz.b32", *[pair] * 3) for pair in pairs]
        for i in self.down:
            code += [op("rz.b32", *[self.sums("o", i, j).as_("u32")] * 3) for j in self.wide]
            top, total = (self.of_row(name, i).as_("u32") for name in "ml")
            code += [op("xor.b32", top, top, top), op("ptx_add.u32.imm", top, top, imm=_MINUS_INFINITY)]
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
        if not self.problem.causal:
            last = self.problem.lk - (self.turns - 1) * self.tile.keys
            live = [(j, min(max(last - j * COLUMNS, 0), COLUMNS)) for j in self.across]
            sums = [(self.sums("s", i, j), left) for j, left in live if left < COLUMNS for i in self.down]
            return [op("selp.f32.columns", s, s, imm=left) for s, left in sums]
        code: Code = []
        for i in self.down:
            row = (place * self.tile.warps + Affine.var("thread")) * (len(self.down) * ROWS) + i * ROWS
            left = row + step * -self.tile.keys + (self.turns - 1) * self.tile.keys
            code.append(op("ld.global.s32", self.limit(i), Memory("seen", left * _THREADS, "s32", _QUADS)))
        for j in self.across:
            for i in self.down:
                s = self.sums("s", i, j)
                code.append(op("selp.f32.below", s, s, self.limit(i), imm=j * COLUMNS))
        return code

    def limit(self, i: int) -> Register:
        """How many keys of a block a row sees."""
        return self.of_row("x", i).as_("s32")

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
        code += [op("rcp.approx.ftz.f32", total, total) for total in (self.of_row("l", i) for i in self.down)]
        return code + [found for i in self.down for found in self.stored(place, i)]

    def stored(self, block: Affine, i: int) -> Code:
        """A row of blocks over its sums, in the destination's type."""
        code, dst, total = Code(), self.problem.dst, self.of_row("l", i)
        for j in self.wide[::2]:
            pair = [self.sums("o", i, j), self.sums("o", i, j + 1)]
            code += [op("mul.rn.f32.thread", o, o, total) for o in pair]
            if dst != "f32":
                pair = [Register(pair[0].name, dst, ROWS * DEPTH)]
                code.append(op(f"cvt.rn.{dst}x2.f32", pair[0], self.sums("o", i, j), self.sums("o", i, j + 1)))
            for part, found in enumerate(pair):
                place = self.of_query(block, i, j // 2) + part * found.lanes
                code.append(op(f"st.global.{dst}", Memory("dst", place, dst, found.lanes), found))
        return code

    # -- memory -------------------------------------------------------------------------------------------------------
    def loaded(self, register: Register, tensor: str, place: Affine) -> Op:
        memory = Memory(tensor, place, register.dtype, register.lanes)
        return op(f"ld.shared.{register.dtype}.to1", register, memory)

    def of_query(self, place: Affine, i: int, k: int) -> Affine:
        """Where a block of a warp's queries, or of what is found for them, lies; `place`: of the block of queries."""
        head = Affine.var("group_b") * self.problem.shared + Affine.var("group_h")
        block = head * self.groups + place
        row = (block * self.tile.warps + Affine.var("thread")) * len(self.down) + i
        return (row * (self.tile.size // DEPTH) + k) * (ROWS * DEPTH)

    def of_key(self, step: Affine, j: int, k: int) -> Affine:
        block = (Affine.var("group_b") * self.turns + step) * len(self.across) + j
        return (block * (self.tile.size // DEPTH) + k) * (DEPTH * COLUMNS)

    def of_value(self, step: Affine, t: int, j: int) -> Affine:
        block = (Affine.var("group_b") * self.turns + step) * (self.tile.keys // DEPTH) + t
        return (block * len(self.wide) + j) * (DEPTH * COLUMNS)

    def tensors(self) -> list[Tensor]:
        p, size = self.problem, self.tile.size
        queries = p.batch * p.heads * self.groups * self.tile.rows * size
        keys = p.batch * p.kv_heads * self.turns * self.tile.keys * size
        inputs = [Tensor(name, p.dtype, count) for name, count in (("q", queries), ("k", keys), ("v", keys))]
        found = [*inputs, Tensor("dst", p.dst, queries, "output")]
        if p.causal:  # the keys of a block that a query sees, by how far it is behind the block
            reach = (self.groups + 1) * self.tile.rows + (self.turns - 1) * self.tile.keys
            seen = np.arange(reach, dtype=np.int32) + (p.lk - p.lq + 1 - (self.turns - 1) * self.tile.keys)
            found.append(Tensor.constant("seen", "s32", np.repeat(seen, _THREADS).tobytes()))
        return found

    # -- between the user's arrays and the program's ------------------------------------------------------------------
    def spread(self) -> Spread:
        """The program; it takes q (…, queries, d), k and v (…, keys, d), and leaves (heads of all, queries, d)."""
        return Spread(self.program, self.prepare, self.finish)

    def prepare(self, arrays: Mapping[str, Array]) -> dict[str, Array]:
        """Matrices as blocks, in the order in which fragments are read; zeros beyond their ends."""
        q = self.filled(arrays["q"], self.groups * self.tile.rows)
        k, v = (self.filled(arrays[name], self.turns * self.tile.keys) for name in "kv")
        return {"q": blocks(q, ROWS, DEPTH), "k": turned(k, DEPTH, COLUMNS), "v": blocks(v, DEPTH, COLUMNS)}

    def filled(self, array: Array, rows: int) -> Array:
        found = np.zeros((array.size // prod(array.shape[-2:]), rows, self.tile.size), array.dtype)
        found[:, : array.shape[-2], : array.shape[-1]] = array.reshape(-1, *array.shape[-2:])
        return found

    def finish(self, left: Mapping[str, Array]) -> Array:
        p, size = self.problem, self.tile.size
        wide = COLUMNS if p.dst == "f32" else DEPTH
        found = left["dst"].reshape(p.batch * p.heads, -1, size // wide, ROWS, wide).swapaxes(2, 3)
        return np.ascontiguousarray(found.reshape(p.batch * p.heads, -1, size)[:, : p.lq, : p.d])


def done(lengths: Sequence[int], places: int) -> int:
    """When the last of workgroups is done that are handed out in order, each to the place that is free first."""
    free = [0] * places
    for length in lengths:
        heapq.heapreplace(free, free[0] + length)
    return max(free)


def blocks(matrices: Array, rows: int, columns: int) -> Array:
    """(…, M, N) as blocks by rows, each row of blocks after the one before."""
    count, m, n = matrices.shape
    cut = matrices.reshape(count, m // rows, rows, n // columns, columns).swapaxes(2, 3)
    return np.ascontiguousarray(cut).reshape(-1)


def turned(matrices: Array, rows: int, columns: int) -> Array:
    """(…, N, M) as `blocks` of columns of the transposed matrix, each block by rows of that."""
    count, n, m = matrices.shape
    cut = matrices.reshape(count, n // columns, columns, m // rows, rows).transpose(0, 1, 3, 4, 2)
    return np.ascontiguousarray(cut).reshape(-1)


def ahead(parts: Parts, count: int) -> Code:
    """Loads and what needs them, one after the other, each load some parts before its own."""
    code = [found for loads, _ in parts[:count] for found in loads]
    for at, (_, products) in enumerate(parts):
        code += [*(parts[at + count][0] if at + count < len(parts) else []), *products]
    return code


def staggered(stages: Sequence[Sequence[Code]], behind: Sequence[int]) -> Code:
    """Steps of several stages side by side, each stage some steps behind the first."""
    code: Code = []
    for at in range(len(stages[0]) + max(behind)):
        for steps, late in zip(stages, behind, strict=True):
            code += steps[at - late] if 0 <= at - late < len(steps) else []
    return code


def mixed(one: Code, other: Code) -> Code:
    """Two sequences, the shorter one spread evenly among the longer one."""
    places = [
        ((n + 0.5) / len(code), which, step) for which, code in enumerate((one, other)) for n, step in enumerate(code)
    ]
    return [step for _, _, step in sorted(places, key=lambda place: place[:2])]
