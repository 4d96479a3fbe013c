"""x86 AMX: tile dot products, and moves of tiles.

A tile is rows of 64 bytes, one row behind the other: `acc` and `a` have the result's rows, 1 to 16, `b` all of its 16.
Row k of b holds, for each of 16 columns, the elements that meet the k-th doubleword of a's rows. Rows and bytes of a
row come from the tile configuration (LDTILECFG). Here rows are always of 64 bytes; shorter sums are filled up with
zeros, which adds +0.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence

from isa_models.algebra import Value
from isa_models.instruction import TILE_ROWS, MemoryForm, define, example
from isa_models.machines.cpu_record import AMX_ACCUMULATIONS
from isa_models.x86.bf16 import even_and_odd, fine, fma_flushed
from isa_models.x86.floats import choose_nan, daz
from isa_models.x86.widths import AMX, AMX_CONFIG, AMX_FP16, Widths

_COLUMNS = 16
_STEPS = TILE_ROWS  # doublewords of a row of a
Pairs = Callable[[Value], tuple[Value, Value]]  # a tile's even and odd elements, as f32


@functools.cache
def _in_row(k: int, lanes: int) -> list[int]:
    """Doubleword k of every row, in all of the row's columns."""
    return [i - i % _COLUMNS + k for i in range(lanes)]


@functools.cache
def _row(k: int, lanes: int, first: int = 0) -> list[int]:
    """Row k of b, for every row of the result."""
    return [first + k * _COLUMNS + i % _COLUMNS for i in range(lanes)]


def _float_sum(
    acc: Value,
    a: tuple[Value, Value],
    b: tuple[Value, Value],
    accumulation: str,
    fma: Callable[[Value, Value, Value], Value],
) -> Value:
    """acc + the products of even and of odd elements, in the order named; `fma` does each step."""
    n = acc.lanes
    if accumulation == "sequential":
        for k in range(_STEPS):
            for x, y in zip(a, b, strict=True):
                acc = fma(x.permute(_in_row(k, n)), y.permute(_row(k, n)), acc)
        return acc
    x, y = a[0].concat(a[1]), b[0].concat(b[1])  # both sums beside each other
    total = x.literal(0)
    for k in range(_STEPS):
        total = fma(x.permute(_in_row(k, 2 * n)), y.permute([*_row(k, n), *_row(k, n, b[0].lanes)]), total)
    one = acc.literal(1)
    return fma(acc, one, fma(total.permute(range(n)), one, total.permute(range(n, 2 * n))))  # of NaNs the first wins


def _float_dot(
    name: str, dtype: str, caps: Widths, pairs: Pairs, coarse: Callable[[Value], list[Value]], doc: str
) -> None:
    """`coarse`: conditions under which a product may need more than f32's exponents (see `fine`)."""

    @define(
        name,
        f"f32 <- f32, {dtype}*2, {dtype}[512]",
        caps,
        f"Intel SDM Vol. 2B, {name.upper()}",
        accumulates=True,
        tile=True,
        memory="none",
        choices={"accumulation": AMX_ACCUMULATIONS},
        doc=doc,
    )
    def dot(acc: Value, a: Value, b: Value, accumulation: str = AMX_ACCUMULATIONS[0]) -> Value:
        x, y = pairs(a), pairs(b)

        def usual() -> tuple[Value, Sequence[Value]]:
            total = _float_sum(acc, x, y, accumulation, lambda p, q, t: p.fma(q, t))
            return total, [*coarse(a), *coarse(b), fine(acc.view("u32"), "f32", -101), total.is_nan()]

        def careful() -> Value:
            flat_x, flat_y = ((daz(e), daz(o)) for e, o in (x, y))
            return _float_sum(daz(acc), flat_x, flat_y, accumulation, _flushed)

        return acc.shortcut(usual, careful)


def _flushed(x: Value, y: Value, total: Value) -> Value:
    return choose_nan(fma_flushed(x, y, total), x, y, total)


def _f16_pairs(tile: Value) -> tuple[Value, Value]:
    words = tile.view("u32")
    low, high = ((w & 0xFFFF).to("u16").view("f16").to("f32") for w in (words, words >> 16))
    return (
        low.step("widen to f32", lambda: [tile.split(2)[0]]),
        high.step("widen to f32", lambda: [tile.split(2)[1]]),
    )


_DOC = """{what}

    Every step is a fused multiply-add of f32, rounded to nearest even; denormal results and f32 denormals that come in
    count as zeros, and MXCSR has no say. `accumulation` is the order. "even_odd", the manual's pseudocode: the
    products of even and those of odd elements are summed up from zero each, the two sums added, and that added to
    the accumulator. "sequential", Intel's intrinsics guide: every product straight onto the accumulator, k ascending,
    even before odd. {standing} Of several NaNs the
    accumulator's wins, then that of the last even element, a's before b's, then those of odd ones.

    >>> import numpy as np
    >>> from isa_models import instruction
    >>> acc, a, b = (np.zeros((rows, n), t) for rows, n, t in {shapes})
    >>> acc[0, 0], a[0, :2], b[0, :2] = 2**24, 1, 1  # 2**24 + 1 is no f32
    >>> [float(instruction("{name}")(acc, a, b, accumulation=o)[0, 0] - 2**24) for o in ("even_odd", "sequential")]
    [2.0, 0.0]
    """


def _document(name: str, what: str, standing: str, element: str) -> str:
    shapes = f'((1, 16, "f4"), (1, 32, {element}), (16, 32, {element}))'
    return _DOC.format(name=name, what=what, standing=standing, shapes=shapes)


_float_dot(
    "tdpbf16ps",
    "bf16",
    AMX,
    even_and_odd,
    lambda tile: [tile.view("u16").meets(fine, "bf16", -55)],
    _document(
        "tdpbf16ps",
        "Pairs of bf16 from a's rows and b's columns, multiplied and summed into f32; bf16 denormals count as zeros.",
        "An Emerald Rapids follows the manual.",
        '__import__("ml_dtypes").bfloat16',
    ),
)
_float_dot(
    "tdpfp16ps",
    "f16",
    AMX_FP16,
    _f16_pairs,
    lambda tile: [],  # products of f16 are multiples of 2**-48
    _document(
        "tdpfp16ps",
        "Pairs of f16 from a's rows and b's columns, multiplied and summed into f32; f16 denormals keep their value.",
        "No CPU that has it was asked; tdpbf16ps follows the manual.",
        '"f2"',
    ),
)


def _integer_dot(name: str, a_type: str, b_type: str) -> None:
    @define(
        name,
        f"s32 <- s32, {a_type}*4, {b_type}[1024]",
        AMX,
        f"Intel SDM Vol. 2B, {name.upper()}",
        accumulates=True,
        tile=True,
        memory="none",
        doc=f"""Quads of bytes from a's rows and b's columns ({a_type} times {b_type}), multiplied and summed into s32,
    which wraps.

    >>> import numpy as np
    >>> from isa_models import instruction
    >>> acc = np.full((1, 16), 2**31 - 1, "i4")
    >>> a, b = np.ones((1, 64), "{_numpy(a_type)}"), np.ones((16, 64), "{_numpy(b_type)}")
    >>> int(instruction("{name}")(acc, a, b)[0, 0]) + 2**31
    63
    """,
    )
    def dot(acc: Value, a: Value, b: Value) -> Value:
        total, rows, columns = acc, a.view("u32"), b.view("u32")
        for k in range(_STEPS):
            x = rows.permute(_in_row(k, acc.lanes)).view(a_type).split(4)
            y = columns.permute(_row(k, acc.lanes)).view(b_type).split(4)
            for one, other in zip(x, y, strict=True):
                total = total + one.to("s32") * other.to("s32")
        return total


def _numpy(dtype: str) -> str:
    return dtype.replace("s", "i").replace("8", "1")


for _name, _a, _b in (("ss", "s8", "s8"), ("su", "s8", "u8"), ("us", "u8", "s8"), ("uu", "u8", "u8")):
    _integer_dot(f"tdpb{_name}d", _a, _b)


def _tile_move(name: str, memory: MemoryForm, text: str, apart: bool = False) -> None:
    @define(
        name,
        "u32 <- u32",
        AMX,
        f"Intel SDM Vol. 2, {name.upper()}",
        moves=True,
        native=False,
        tile=True,
        memory=memory,
        registers=False,
        apart=apart,
        doc=f"""{text}

    >>> import numpy as np
    >>> from isa_models import instruction
    >>> int(instruction("{name}")(np.arange(32, dtype="u4").reshape(2, 16))[1, 0])
    16
    """,
    )
    def move(a: Value) -> Value:
        return a


_tile_move("tileloadd", "load", "Load a tile, row by row, each at a stride from the one before.")
_tile_move(
    "tileloaddt1", "load", "Load a tile as `tileloadd` does; its lines are not kept in the first cache.", apart=True
)
_tile_move("tilestored", "store", "Store a tile, row by row, each at a stride from the one before.")


@define(
    "tilezero",
    "u32 <- u32",
    AMX,
    "Intel SDM Vol. 2B, TILEZERO",
    native=False,
    clears=True,
    memory="none",
    overwrites=True,
    tile=True,
)
def tilezero(a: Value) -> Value:
    """Clear a tile, whatever it holds.

    >>> import numpy as np
    >>> from isa_models import instruction
    >>> int(instruction("tilezero")(np.ones((2, 16), "u4")).sum())
    0
    """
    return a.literal(0)


@define(
    "ldtilecfg",
    "u8 <- u8",
    AMX_CONFIG,
    "Intel SDM Vol. 2A, LDTILECFG",
    native=False,
    configures=True,
    registers=False,
    doc=example("ldtilecfg", "Set the rows of each tile and the bytes of a row, and clear all tiles.", "[1]", "[1]"),
)
def ldtilecfg(a: Value) -> Value:
    return a
