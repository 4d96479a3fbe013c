"""Cycles of an execution of oneDNN 3.13 beside those of its generated code.

Measured from inside the library (`benchmarks.inside`) on one core of an Emerald Rapids, without the queue and the
threads of a runtime. A product of 2 x 2 x 2 takes 1080 to 1180 cycles under two ISA caps. A product is cut into calls
of a kernel; their own cost was fitted to 217 products in seven pairs of types and caps, whose error goes from 6.2 to
5.8 % with it (docs/validation/libraries.md has halves). Calls for lines of a convolution, and what sums of weights cost
that the older GEMM makes in C++, were measured on a Zen 4 (docs/validation/cpu-kernels.md), calls of kernels on tiles
on a Granite Rapids (docs/validation/amx.md).
"""

from __future__ import annotations

from math import prod

from isa_models import Machine
from isa_models.formats import fmt
from isa_models.isa import implied
from simdnn.kernels.common.problems import ConvProblem, MatmulProblem, Problem
from simdnn.kernels.common.sums import TileBlocks
from simdnn.libraries.model import OperatorCall, OperatorForm
from simdnn.libraries.onednn import loops
from simdnn.libraries.onednn.blocking import (
    BY_LINES,
    BYTES_WITHOUT_VNNI,
    CONVOLUTIONS,
    CONVOLUTIONS_ON_TILES,
    ON_TILES,
    block_rows,
    knows_tile,
    packs,
    words_tile,
)
from simdnn.libraries.onednn.sums import by_older_kernel
from simdnn.libraries.onednn.tile_blocks import PIXELS, tile_blocks
from simdnn.libraries.onednn.tile_lines import columns_of, lines_at_once

EXECUTION = 1100.0  # cycles: arguments, scratchpad, threads asked for, and back, with one call of a kernel
#: cycles that an inner product takes more than the matmul that it runs: 18 pairs of them on a Redwood Cove, three
#: shapes in six pairs of types and caps, 742 to 902
NESTED = 820.0
KERNEL = 150.0  # cycles of a call: its parameters, its registers saved, the last turns of its loops foreseen wrongly
KERNEL_OF_TWO_ROWS = 250.0  # the same with one or two rows, which hide nothing of how weights start to flow again
KERNEL_ON_TILES = 240.0  # the same on tiles
#: cycles of a line that a call on tiles fetches ahead for the next one (`prefetcht1`), from L2 and from L3: a loop of
#: two blocks of 32 rows over a panel of 384 elements of K takes 2150 cycles without, 2401 with 384 of them from L2;
#: 4767 and 5626 from L3
FETCHED, FETCHED_FROM_L3 = 0.65, 2.2
LINE = 250.0  # cycles of a line of outputs by a block of columns: a call, and the addresses of its taps one by one
#: cycles of an execution of a depthwise convolution by the newer kernel, and of a call of that, for a line of outputs:
#: 1 to 32 images of 3 x 3 and 6 x 6 outputs in 8 to 32 channels on a Zen 3 take 80 to 125 a line beyond their kernel
DEPTHWISE, LINE_OF_PIXELS = 560.0, 100.0
#: cycles a weight of the older GEMM's copy, where lines of 16 columns are gone before the next 16 come, which are in
#: the same lines: 0.21 to 0.24 at five such strides of rows, 0.10 at three others (its loop, timed by itself on a
#: Golden Cove); where a machine has a cache's `set_cycles`, these tell it
COLLIDING = 0.14
#: cycles that an execution of the older GEMM takes beside, by the source (its buffers, for s8 one of sums more), and
#: cycles an element of the source that it copies: 44 products on a Redwood Cove, 1 to 256 rows by 16 to 256 columns
OLDER = {"u8": 600.0, "s8": 2400.0}
SOURCE_COPIED = {"u8": 0.08, "s8": 0.08, "bf16": 0.14}
#: cycles a weight of sums along K, column after column, where a column's lines stay: a chain of adds, 1.0 by loops of a
#: Redwood Cove
SUMMED, SUMMED_THERE = 1.3, 1.0
#: the same where lines come from the second cache anew, as they meet in few sets of the first: bytes read down columns
#: of 256 to 3000 rows, 512, 768 or 1536 bytes apart, take 2.1 to 3.5 cycles on a Redwood Cove, 1.0 where a column's
#: lines stay, and 1.3 to 1.4, the second cache's rate, where they are too many but in all sets (466, 903, 960, 1513)
SUMMED_FROM_L2 = 3.4
#: cycles of an execution of a primitive beside products, and of each call of its kernel, measured on a Zen 4 with the
#: smallest problems (docs/validation/primitives-cost.md)
OPERATORS = {
    "eltwise": (210.0, 0.0),
    "binary": (900.0, 0.0),
    "conversion": (390.0, 0.0),
    "softmax": (440.0, 35.0),
    "layer_normalization": (1400.0, 0.0),
    "batch_normalization": (530.0, 0.0),
    "reduction": (360.0, 20.0),
    "pooling": (1070.0, 90.0),
    "resampling": (780.0, 0.0),
}
#: cycles an element of an image in rows whose blocks of channels its pooling brings into its own layout, or back:
#: 0.35 to 0.46 with f32 and bf16, two problems each
TURNED = 0.42
_COLUMNS = 64  # of a call
_REGISTER = 16  # f32
_TOGETHER = 384  # rows of weights that are packed before the next
_AT_ONCE = {"s8": 16, "bf16": 48}  # and columns of them


def around(problem: Problem, row: str, machine: Machine, threads: int = 1) -> float:
    """Cycles of an execution on a number of threads beside its kernels' own; `row` stands for them.

    >>> from isa_models import machine
    >>> from simdnn.kernels.common.epilogue import Epilogue
    >>> product = MatmulProblem(16, 768, 768, "u8", "s8", Epilogue(), tiles="onednn")
    >>> around(product, "gemm:avx512_core_vnni", machine("spr")) == EXECUTION + 23 * KERNEL
    True
    """
    if not problem.tiles or problem.wei_tag != "any":
        return EXECUTION
    if isinstance(problem, ConvProblem):
        if lines := _lines_of_pixels(problem, row):
            return DEPTHWISE + LINE_OF_PIXELS * lines / threads
        calls = LINE * _lines(problem, row) + KERNEL * _lines_of_words(problem, row)
        return EXECUTION + (calls + KERNEL_ON_TILES * max(0, _blocks_on_tiles(problem, row) - 1)) / threads
    blocks = tile_blocks(problem) if row in ON_TILES else None
    kernel = KERNEL_ON_TILES if blocks else KERNEL if problem.m > 2 else KERNEL_OF_TWO_ROWS
    count = _calls_on_tiles(problem, blocks) if blocks else _calls(problem, row != "gemm:avx2")
    calls = kernel * (problem.batch.count * count - 1)
    calls += _fetched(problem, blocks, machine) * problem.batch.count if blocks else 0.0
    older = _older(problem, machine) if packs(problem, row) else 0.0
    return EXECUTION + (calls + older * problem.batch.count) / threads


def between(problem: Problem) -> float:
    """Cycles between the kernels of two executions. With 0 to 2500 more, five convolutions took as many as without:
    they show no unit for tiles that falls asleep there.
    """
    return EXECUTION if isinstance(problem, MatmulProblem) else 0.0


def around_operator(call: OperatorCall, form: OperatorForm, threads: int) -> float:
    """Cycles that a call of a primitive (no product) takes beyond its kernel's; 0 for primitives not measured."""
    execution, each = OPERATORS.get(call.primitive, (0.0, 0.0))
    return execution + (each * _kernels(call, form) + TURNED * _turned(call) + loops.cycles(call, form)) / threads


def _turned(call: OperatorCall) -> int:
    """Elements of both images of a pooling of floats in rows."""
    if call.primitive != "pooling" or call.channels_last or not fmt(call.types[0]).is_float:
        return 0
    image: list[int] = call.options["out"]
    return prod(call.shapes[0]) + prod(image, start=prod(call.shapes[0][:2]))


def _kernels(call: OperatorCall, form: OperatorForm) -> int:
    """How often the kernel of a primitive is called, for those whose calls have cycles of their own."""
    shape = call.shapes[0]
    if call.primitive == "softmax":  # a line; along other dimensions than the last, a register of lines
        axis = call.options.get("axis", -1) % len(shape)
        if call.named_last:
            shape, axis = (shape[0], *shape[2:], shape[1]), {0: 0, 1: len(shape) - 1}.get(axis, axis - 1)
        return prod(shape[:axis]) * -(-prod(shape[axis + 1 :]) // _REGISTER)
    if call.primitive == "reduction":
        reduced = {axis % len(shape) for axis in call.options["axes"]}
        return prod(size for axis, size in enumerate(shape) if axis not in reduced)
    if call.primitive == "pooling":
        if loops.by_pixel(call, form):
            return 0
        rows: list[int] = call.options["out"][:-1]
        return prod(rows, start=shape[0])
    return 1


def _lines(p: ConvProblem, row: str) -> int:
    """Lines of outputs by blocks of columns that its newer kernels are called for: of one tap where pixels are not
    all next to each other (`is_os_blocking_ok` in its sources).
    """
    isa = CONVOLUTIONS.get(row)
    together = p.kh * p.kw == 1 and p.strides[0] == 1 and p.iw % p.strides[1] == 0
    if isa is None or by_older_kernel(p, isa) or together:
        return 0
    columns = _COLUMNS if "avx512_core" in implied(isa) else _COLUMNS // 2
    return p.mb * p.groups * p.oh * -(-(p.oc // p.groups) // columns)


def _blocks_on_tiles(p: ConvProblem, row: str) -> int:
    """Blocks of lines of outputs, or of pixels, by columns that a kernel of a convolution on tiles is called for."""
    if row not in CONVOLUTIONS_ON_TILES:
        return 0
    if p.kh * p.kw == 1:
        return p.mb * p.groups * -(-p.oh * p.ow // PIXELS) * -(-(p.oc // p.groups) // _COLUMNS)
    return p.mb * p.od * p.groups * -(-p.oh // lines_at_once(p)) * -(-(p.oc // p.groups) // columns_of(p))


def _lines_of_pixels(p: ConvProblem, row: str) -> int:
    """Lines of outputs that its newer kernel of depthwise convolutions is called for."""
    return p.mb * p.oh if row in BY_LINES and knows_tile(p, row) else 0


def _lines_of_words(p: ConvProblem, row: str) -> int:
    """Lines of outputs by vectors of channels that its older kernels of depthwise bytes are called for."""
    if row not in BYTES_WITHOUT_VNNI:
        return 0
    wide = "avx512" in row
    return p.mb * p.oh * -(-p.ic // ((16 if wide else 8) * words_tile(p, wide).vectors))


def _older(p: MatmulProblem, machine: Machine) -> float:
    """Cycles of the older GEMM's copies and sums beyond those that the clock sees, and of what is around them."""
    each = _copied(p, machine) + _summed(p, machine)
    return OLDER.get(p.src, 0.0) + SOURCE_COPIED[p.src] * p.m * p.k + each * p.k * p.n


def _copied(p: MatmulProblem, machine: Machine) -> float:
    """Cycles a weight of the older GEMM's copy beyond those that the clock sees, where lines meet in few sets."""
    first, second = machine.caches[:2]
    sets, _ = first.places(_row(p))
    if _row(p) % first.line_bytes or sets * first.ways >= min(p.k, _TOGETHER):
        return 0.0
    if not first.set_cycles:
        return COLLIDING if p.wei == "s8" else 0.0
    return (_anew(p, machine) - first.line_bytes / second.load_bytes_per_cycle) / _AT_ONCE[p.wei]


def _summed(p: MatmulProblem, machine: Machine) -> float:
    """Cycles a weight of the sums that the older GEMM wants beside a source of s8 (`simple_gemm_s8s8s32`): where the
    lines of a column are gone before the next, a line of the second cache for each byte.
    """
    first = machine.caches[0]
    if (p.src, p.wei) != ("s8", "s8"):
        return 0.0
    sets, _ = first.places(_row(p))
    if p.k <= sets * first.ways:
        return SUMMED if first.set_cycles else SUMMED_THERE
    if first.set_cycles:
        return _anew(p, machine)
    meet = sets * first.line_bytes * first.ways < first.size_bytes
    return SUMMED_FROM_L2 if meet else max(SUMMED_THERE, _anew(p, machine))


def _anew(p: MatmulProblem, machine: Machine) -> float:
    """Cycles of each line down a column that comes from the second cache: by its rate, or as lines meet in sets of the
    first one or in its own banks.
    """
    first, second = machine.caches[:2]
    sets, banks = first.places(_row(p))[0], second.places(_row(p))[1]
    rate = first.line_bytes / second.load_bytes_per_cycle
    return max(rate, first.set_cycles / sets, second.bank_cycles / banks)


def _row(p: MatmulProblem) -> int:
    """Bytes of a row of plain weights."""
    return p.n * fmt(p.wei).bits // 8


def _calls_on_tiles(p: MatmulProblem, blocks: TileBlocks) -> int:
    columns = blocks.block_columns if blocks.across else blocks.columns
    return -(-p.m // blocks.block_rows) * -(-p.n // columns) * -(-p.k // blocks.k)


def _fetched(p: MatmulProblem, blocks: TileBlocks, machine: Machine) -> float:
    """Cycles of the lines of the next rows, or the next panel, that calls on tiles fetch meanwhile."""
    if not blocks.fetches:
        return 0.0
    of_weights = blocks.fetches == "wei"
    size, length = fmt(p.src).bits // 8, p.n if of_weights else p.m
    step = blocks.columns if of_weights else blocks.block_rows
    times = -(-p.m // blocks.block_rows) if of_weights else -(-p.n // blocks.block_columns)
    far = length * p.k * size > machine.caches[1].size_bytes
    lines = times * (length - step) * p.k * size / machine.caches[0].line_bytes
    return lines * (FETCHED_FROM_L3 if far else FETCHED)


def _calls(p: MatmulProblem, wide: bool) -> int:
    at_once = 512 if p.k <= 1024 or p.m == 1 else 1024
    return -(-p.m // block_rows(p, wide)) * -(-p.n // _COLUMNS) * -(-p.k // at_once)
