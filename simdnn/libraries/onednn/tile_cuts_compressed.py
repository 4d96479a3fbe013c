"""How oneDNN 3.13 cuts K of a matmul on AMX tiles whose weights are compressed, on one thread.

It tries blocks of rows and columns, and how many of them go together; K is cut where such a group leaves the second
cache (`matmul_amx_blocking_params_micro_t` in its amx_blocking_heuristics.cpp). The group that fills it best, and uses
its operands most often, is taken.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from itertools import product

from simdnn.libraries.onednn.caches import SECOND

_ROW = 32  # elements of a tile's row
_FLOAT = 2  # bytes of what is multiplied
_SUM = 4


@dataclass(frozen=True)
class ProductSizes:
    """Sizes of one of `products`; `out`: bytes of an output, `tag`: the layout of the weights."""

    m: int
    k: int
    n: int
    out: int
    tag: str
    products: int


@dataclass(frozen=True)
class Compressed(ProductSizes):
    """A product with compressed weights; `read_on`: whether K may be read beyond its end."""

    read_on: bool


def chain_of(p: Compressed) -> int:
    """Products after which a sum starts anew; 0: none."""
    if p.k < _ROW or p.out == _SUM:
        return 0
    chain = _best(p).chain
    return chain if chain < p.k else 0


def rows_together(p: Compressed) -> int:
    """Rows that meet all columns before the next rows do."""
    return _best(p).rows


@cache
def _best(p: Compressed) -> _Group:
    return max(_groups(p), key=lambda group: group.worth)  # of equals the first


@dataclass(frozen=True)
class _Group:
    """Rows and columns of the blocks that go together; `wide`: columns of one block."""

    p: Compressed
    rows: int
    columns: int
    wide: int

    @property
    def chain(self) -> int:
        """Products of a chain: rows of tiles, in as equal parts as leave the group in the cache."""
        tiles = -(-self.p.k // _ROW)
        size = self.bytes(tiles, _ROW, self.p.k % _ROW > 0, False)
        least, most = size // SECOND, -(-size // SECOND)
        power = self.p.k >= 512 and self.p.k & (self.p.k - 1) == 0
        if least <= (2 if power else 0) or tiles == 1:
            return tiles * _ROW
        by_least, by_most = max(tiles // least, 1), -(-tiles // most)
        rest, other = tiles % by_least, tiles % by_most
        equal = other == 0 if rest == 0 or other < rest else True
        return (by_most if equal else by_least) * _ROW

    def bytes(self, tiles: int, block: int, apart: bool, copied: bool) -> int:
        """Bytes of operands, of their copies and of sums; `apart`: sums do not become results at once."""
        p, deep = self.p, tiles * _ROW
        source = deep * self.rows * _FLOAT
        if copied:
            line = -(-block // _ROW) * _ROW
            line += _ROW if line >= 512 and line & (line - 1) == 0 else 0
            source += line * (deep // block or 1) * self.rows * _FLOAT
        weights = deep * self.columns + deep * self.wide * _FLOAT
        return source + weights + self.rows * self.columns * (p.out + apart * _SUM)

    @property
    def worth(self) -> float:
        p, chain = self.p, self.chain
        copied = p.k % 2 > 0 and not (p.read_on and p.k % _ROW and chain > _ROW)
        whole = p.k % chain == 0 or (p.read_on and p.k % _ROW > 0)
        block = min(chain, p.k) if whole else _ROW
        apart = p.k > chain or p.k % block > 0
        size = self.bytes(chain // _ROW, block, apart, copied) if chain <= p.k else self._whole(block, apart, copied)
        filled = 1 - abs(SECOND - size) / max(SECOND, size)
        again = min(self.rows / min(p.m, 256), 1) + min(self.columns / min(p.n, 256 if copied else 64), 1)
        return (filled + again / 2) / 2

    def _whole(self, block: int, apart: bool, copied: bool) -> int:
        """Bytes where a chain has all of K, which is no whole number of rows."""
        tiles = -(-self.p.k // _ROW)
        size = self.bytes(tiles, block, apart, copied)
        left = tiles * _ROW - self.p.k if block == self.p.k else 0  # what no block has
        return size - left * (self.rows * _FLOAT + self.columns + self.wide * _FLOAT)


def _groups(p: Compressed) -> Iterator[_Group]:
    """The groups that the library tries, in its order."""
    high = next((s * r for r, s in product((16, 15, 14, 13), (4, 3, 2)) if p.m % (s * r) == 0), min(p.m, 64))
    wide = min(64, p.n)
    count = p.products * -(-p.m // high) * -(-p.n // wide)
    lowest = -(-high // 2) if count == 1 and high > 32 else high
    heights = [high, *([lowest] if lowest < high else [])]
    heights += range(min(p.m // 16 * 16, 64), -(-lowest // 16) * 16 - 1, -16) if p.m > 16 else []
    narrowest = 32 if count == 1 and wide > 32 and p.tag == "ab" else wide
    most = min(6 if count > 16 else 4, -(-p.n // wide)), min(4, -(-p.m // high))
    for columns in range(wide, narrowest - 1, -16):
        for rows in reversed(list(dict.fromkeys(heights))):
            for across, down in product(range(most[0], 0, -1), range(most[1], 0, -1)):
                yield _Group(p, rows * down, columns * across, columns)
