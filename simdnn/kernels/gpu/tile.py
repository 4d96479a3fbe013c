"""How a GEMM is cut for a GPU: blocks of a matrix instruction, a thread's tile of them, a workgroup of threads.

A Program's parallel loops `group_m` and `group_n` are the workgroups, one for a Xe-core; `thread_m` and `thread_n`
inside are the threads of one, which go through K together and so share what its L1 holds.
"""

from __future__ import annotations

import itertools
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from isa_models import GpuMachine
from isa_models.errors import OutOfRegisters
from isa_models.formats import fmt
from isa_models.gpu.platforms import MOST_GRFS, RESERVED_GRFS
from simdnn.kernels.common.batch import Batch
from simdnn.kernels.common.code import Code, nest
from simdnn.program.records import Affine

#: bytes along K of each row that a workgroup brings into shared memory between two barriers: 32 f16, as in CUTLASS's
#: default tiles for Volta and oneDNN's systolic kernels for Xe-HP and Xe-HPG (K unrolled by 32)
STAGED_BYTES = 64
#: the same where copies are asynchronous: 64 f16, as in the names of cuBLAS's kernels for Ampere that profiles show
#: (ampere_fp16_s16816gemm_fp16_128x256_ldg8_f2f_stages_64x3_tn), and of a row of 128 bytes that TMA swizzles
STAGED_BYTES_ASYNC = 128
Sizes = tuple[tuple[int, int], ...]  # rows and columns of workgroups; empty: any
GROUP_LOOPS = ("group_m", "group_n")
THREAD_LOOPS = ("thread_m", "thread_n")


@dataclass(frozen=True)
class Block(ABC):
    """A block that a step of K multiplies into one accumulator: `m` rows, `n` columns, `k`; types `src`, `wei`."""

    m: int
    n: int
    k: int
    src: str
    wei: str
    unit: str  # the instruction's family: mad | dp4a | dpas | fma | mma
    copies: tuple[int, int] = (1, 1)  # threads whose registers take each element of A, of B
    from_shared: bool = False  # operands are always read from shared memory
    sums: str = ""  # the accumulators' type, where it is narrower than 32 bits
    warps: int = 1  # threads of neighbouring rows that multiply by one B together
    asynchronous: bool = False  # operands come into shared memory past the registers, stages ahead

    @property
    @abstractmethod
    def instruction(self) -> str:
        """The instruction's name, or the form's that stands for several."""

    @abstractmethod
    def rate(self, machine: GpuMachine) -> float:
        """Operations a clock of an engine on the instruction."""

    @property
    def acc(self) -> str:
        """The accumulators' type."""
        return self.sums or ("f32" if fmt(self.src).is_float else "s32")

    @property
    def on_matrix_pipe(self) -> bool:
        """Whether another pipe than the vector pipe multiplies."""
        return self.unit in ("dpas", "mma", "wgmma")

    @property
    def widened(self) -> bool:
        """Whether operands are brought to f32 in registers, for an instruction that takes no other floats."""
        return self.unit == "mad" and self.src != "f32"

    @property
    def a_words(self) -> int:
        """Words of 32 bits that A takes."""
        return self.m * self.k * fmt(self.src).bits // 32

    @property
    def b_words(self) -> int:
        """Words of 32 bits that B takes."""
        return self.n * self.k * fmt(self.wei).bits // 32

    @property
    def read_words(self) -> tuple[int, float]:
        """Words of A, and of B, that a thread reads from shared memory."""
        return self.a_words * self.copies[0], self.b_words * self.copies[1] / self.warps


@dataclass(frozen=True)
class Tile:
    """A thread's blocks along M and N, and a workgroup's threads along each."""

    block: Block
    rows: int
    cols: int
    threads: tuple[int, int]

    @property
    def m(self) -> int:
        """Rows of a workgroup."""
        return self.block.m * self.rows * self.threads[0]

    @property
    def n(self) -> int:
        """Columns of a workgroup."""
        return self.block.n * self.cols * self.threads[1]

    def groups(self, m: int, n: int) -> tuple[int, int]:
        """Workgroups along M and N of an m x n destination."""
        return -(-m // self.m), -(-n // self.n)

    def blocks(self, m: int, n: int) -> tuple[int, int]:
        """Blocks along M and N of all groups, those beyond the matrix among them."""
        down, across = self.groups(m, n)
        return down * self.threads[0] * self.rows, across * self.threads[1] * self.cols

    def row(self, i: int) -> Affine:
        """The row of blocks, among all, that is a thread's i-th."""
        return (Affine.var(GROUP_LOOPS[0]) * self.threads[0] + Affine.var(THREAD_LOOPS[0])) * self.rows + i

    def col(self, j: int) -> Affine:
        """The column of blocks, among all, that is a thread's j-th."""
        return (Affine.var(GROUP_LOOPS[1]) * self.threads[1] + Affine.var(THREAD_LOOPS[1])) * self.cols + j

    def nest(self, body: Code, groups: tuple[int, int], batch: Batch) -> Code:
        """`body` for every thread of every workgroup of every product of a batch."""
        body = nest(list(zip(THREAD_LOOPS, self.threads, strict=True)), body, parallel=True, threads=True)
        outside = zip((*batch.loops, *GROUP_LOOPS), (*batch.extents, *groups), strict=True)
        return nest(list(outside), body, parallel=True)

    @property
    def is_staged(self) -> bool:
        """Whether operands go through shared memory: not where one block of rows, or of columns, is all there is."""
        several = self.rows * self.threads[0] > 1 and self.cols * self.threads[1] > 1
        return several or self.block.from_shared

    def staged(self, row_bytes: int) -> int:
        """Iterations of K between barriers, where one takes `row_bytes` bytes of a row."""
        whole = STAGED_BYTES_ASYNC if self.block.asynchronous else STAGED_BYTES
        return max(1, whole // row_bytes) if self.is_staged else 0

    def registers(self, grf_bytes: int, copies: int = 1) -> int:
        """GRFs for the accumulators (`copies` of each) and for one step's operands."""
        words = grf_bytes // 4
        b = self.block
        acc = self.rows * self.cols * -(-b.m * b.n // words) * copies
        if b.unit == "mad":  # its operands leave least: a bias by column, a zero to compare with, a narrow result
            acc += self.cols * -(-b.n // words) + 2 * -(-b.m * b.n // words)
        if b.widened:
            acc += -(-b.m * b.k // words) * self.rows + -(-b.k * b.n // words) * self.cols
        b_words = b.b_words if b.warps == 1 else 0  # where several read it together, it stays in shared memory
        return acc + self.rows * -(-b.a_words // words) + self.cols * -(-b_words // words) + RESERVED_GRFS


Blocks = tuple[tuple[Block, Sizes], ...]


@dataclass(frozen=True)
class Budget:
    """Registers that a kernel needs beside the plain GEMM's."""

    registers: int = 0  # GRFs
    copies: int = 1  # accumulators of each block
    per_row: int = 0  # bytes beside each block of rows
    per_column: int = 0
    #: operations on f32 lanes, about, that bring an element of A, and of B, to the type multiplied
    converts: tuple[float, float] = (0.0, 0.0)

    def grfs(self, rows: int, cols: int, grf_bytes: int) -> int:
        """GRFs of a tile."""
        return self.registers + rows * -(-self.per_row // grf_bytes) + cols * -(-self.per_column // grf_bytes)


def choose_tile(
    machine: GpuMachine, blocks: Blocks, m: int, n: int, k: int, budget: Budget | None = None, batch: int = 1
) -> tuple[Tile, float]:
    """The tile of the least time and its cycles, by rates alone: pipes, L1, L2, DRAM, how evenly groups fill the cores.

    `blocks`: those that there are, each with the workgroups' rows and columns that a library has kernels for; a problem
    too small for all of them has others.
    """
    budget = budget or Budget()
    for allowed in (blocks, tuple((block, ()) for block, _ in blocks)):
        found = _tiles(machine, allowed, budget).fastest(m, n, k, batch)
        if found:
            return found
    block = blocks[0][0]
    raise OutOfRegisters(f"no tile of {block.m}x{block.n} blocks leaves {budget.registers} registers of a thread")


@dataclass(frozen=True, eq=False)
class _Tiles:
    """Tiles on a machine, and what is known of each whatever the problem."""

    machine: GpuMachine
    tiles: tuple[Tile, ...]
    figures: npt.NDArray[np.float64]  # a column for each tile: `_figures`

    def fastest(self, m: int, n: int, k: int, batch: int) -> tuple[Tile, float] | None:
        """The tile of the least time and its cycles; None where all are too large for the problem."""
        if not self.tiles:
            return None
        fitting = np.flatnonzero((self.figures[0] < m) & (self.figures[1] < n))
        if not fitting.size:
            return None
        cycles, from_l2, from_shared = _scores(self.machine, self.figures[2:, fitting], m, n, k, batch)
        alike = np.flatnonzero(cycles == cycles.min()).tolist()
        best = min(alike, key=lambda i: (from_l2[i], from_shared[i]))
        return self.tiles[int(fitting[best])], float(cycles[best])


@lru_cache(maxsize=256)
def _tiles(machine: GpuMachine, blocks: Blocks, budget: Budget) -> _Tiles:
    """The tiles of some blocks that fit the registers."""
    tiles = tuple(tile for block, sizes in blocks for tile in _of_block(machine, block, budget, sizes))
    figures = [_figures(machine, tile, budget.converts) for tile in tiles]
    return _Tiles(machine, tiles, np.array(figures, np.float64).T)


def _of_block(machine: GpuMachine, block: Block, budget: Budget, sizes: Sizes) -> Iterator[Tile]:
    """The tiles of a block that fit the registers; of some `sizes`, or of any."""
    grf = machine.platform.grf_bytes
    for rows, cols in itertools.product((1, 2, 4, 8), (1, 2, 4, 8)):
        plain = Tile(block, rows, cols, (1, 1))
        needed = plain.registers(grf, budget.copies) + budget.grfs(rows, cols, grf)
        if needed <= MOST_GRFS:
            capacity = machine.engines_per_core * machine.threads_of(needed)
            yield from _groups(plain, capacity, sizes)


def _groups(plain: Tile, capacity: int, sizes: Sizes) -> Iterator[Tile]:
    """Workgroups of up to `capacity` threads: of some `sizes`, or powers of two along each axis."""
    powers = [1 << i for i in range(capacity.bit_length())]
    counts: Iterable[tuple[int, int]] = itertools.product(powers, powers)
    if sizes:
        whole = ((rows, cols) for rows, cols in sizes if rows % plain.m == 0 and cols % plain.n == 0)
        counts = sorted((rows // plain.m, cols // plain.n) for rows, cols in whole)
    for down, across in counts:
        if down * across <= capacity and down % plain.block.warps == 0:
            yield Tile(plain.block, plain.rows, plain.cols, (down, across))


def _figures(machine: GpuMachine, tile: Tile, converts: tuple[float, float]) -> tuple[float, ...]:
    """Figures of a tile: rows and columns that are too few for it; its own, and k of a step; an engine's cycles of a
    step; bytes of A, of B that a workgroup fetches for one; those from shared memory where copies are asynchronous.
    """
    b, (down, across) = tile.block, tile.threads
    threads = down * across
    few_rows = max(b.m * (tile.rows - 1), b.m * tile.rows * (down // 2) if down > b.warps else 0)
    few_columns = max(b.n * (tile.cols - 1), b.n * tile.cols * (across // 2))
    per_engine = -(-threads // machine.engines_per_core)
    matrix = tile.rows * tile.cols * 2 * b.m * b.n * b.k / b.rate(machine) * per_engine
    elements = tile.rows * b.m * b.k * b.copies[0], tile.cols * b.n * b.k * b.copies[1]
    converted = sum(count * each for count, each in zip(elements, converts, strict=True))
    vector = converted / (machine.vector_ops["f32"] / 2) * per_engine
    matrix = max(matrix, vector) if machine.co_issue and b.on_matrix_pipe else matrix + vector
    of_a, of_b = b.read_words
    read = 4 * (tile.rows * of_a + tile.cols * of_b) * threads
    a_bytes, b_bytes = 4 * tile.rows * b.a_words * down, 4 * tile.cols * b.b_words * across
    # a step's loads, seen by a thread that has the engine to itself: its own, or those into shared memory and out of it
    loads = 1 if machine.platform.block_loads else 2
    waiting = loads * machine.latency.l1 / per_engine if per_engine < 2 and b.on_matrix_pipe else 0.0
    from_shared = 0.0
    if b.asynchronous:
        from_shared = read = read + a_bytes + b_bytes
        waiting = 0.0  # loads stand among the products
    elif not machine.platform.block_loads and tile.is_staged:  # staged: in step, so the first one's loads are seen
        waiting += machine.latency.slm + read / threads / (machine.l1.bytes_per_cycle / machine.engines_per_core)
        read += 2 * (a_bytes + b_bytes)  # on their way into shared memory
    share = machine.l1.bytes_per_cycle / machine.engines_per_core  # of each engine, however few of them have a thread
    step = max(matrix + waiting, read / threads * per_engine / share)
    return few_rows, few_columns, tile.m, tile.n, b.k, step, a_bytes, b_bytes, from_shared


def _scores(
    machine: GpuMachine, figures: npt.NDArray[np.float64], m: int, n: int, k: int, batch: int
) -> tuple[npt.NDArray[np.float64], ...]:
    """Cycles of the whole problem by rates alone; among equals, bytes from L2, then those from shared memory where
    copies into it are asynchronous.
    """
    rows, columns, step_k, engine, a_bytes, b_bytes, from_shared = figures
    gm, gn, steps = np.ceil(m / rows), np.ceil(n / columns), np.ceil(k / step_k)
    size, shared = machine.platform.cluster, a_bytes + b_bytes
    saved = [np.where(count >= size, part * (1 - 1 / size), 0.0) for part, count in ((a_bytes, gn), (b_bytes, gm))]
    step = np.maximum(engine, (shared - np.maximum(*saved)) / machine.l2.bytes_per_cycle)
    cores = machine.xe_cores * machine.stacks
    rounds = np.ceil(gm * gn * batch / cores)
    together = np.sqrt(np.minimum(gm * gn, cores))  # groups at work share rows, columns
    fetched = shared * steps * gm * gn
    dram = fetched * batch / together / (machine.sustained_gb_s * machine.stacks / machine.ghz)
    return np.maximum(rounds * (step * steps + machine.latency.dram), dram), fetched, from_shared
