"""The configuration of AMX tile registers: what LDTILECFG reads (Intel SDM Vol. 1, 18.2, palette 1)."""

from __future__ import annotations

from collections.abc import Sequence

from isa_models.instruction import TILE_ROW_BITS, TILE_ROWS

TILES = tuple(f"tmm{i}" for i in range(8))
_ROW_BYTES = TILE_ROW_BITS // 8
_COLUMNS_AT, _ROWS_AT, _SIZE = 16, 48, 64


def configuration(rows: Sequence[int]) -> bytes:
    """The 64 bytes that give each tile its rows, all of 64 bytes; tiles with none are not configured.

    >>> rows_of(configuration([16, 3]))
    (16, 3, 0, 0, 0, 0, 0, 0)
    """
    data = bytearray(_SIZE)
    data[0] = 1
    for tile, count in enumerate(rows):
        data[_COLUMNS_AT + 2 * tile] = _ROW_BYTES if count else 0
        data[_ROWS_AT + tile] = count
    return bytes(data)


def rows_of(data: bytes) -> tuple[int, ...]:
    """The rows of each tile; `ValueError` for bytes that are no configuration with rows of 64 bytes."""
    rows = tuple(data[_ROWS_AT : _ROWS_AT + len(TILES)])
    if data != configuration(rows) or max(rows) > TILE_ROWS:
        raise ValueError(f"no tiles of palette 1 with up to {TILE_ROWS} rows of {_ROW_BYTES} bytes: {data.hex()}")
    return rows
