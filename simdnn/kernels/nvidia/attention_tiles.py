"""Blocks of attention in one kernel on NVIDIA's GPUs, and which problems have such a kernel."""

from __future__ import annotations

from dataclasses import dataclass

from isa_models import GpuMachine, Unimplemented
from simdnn.kernels.common.attention import AttentionProblem

NAME = "flash"
MOST_PARTS = 128  # of the keys


@dataclass(frozen=True)
class FlashTile:
    """Queries and keys of a block, and the warps of a workgroup, for heads of up to a size; `unit`: mma or wgmma."""

    size: int
    rows: int
    keys: int
    warps: int
    unit: str = "mma"

    @property
    def shared_bytes(self) -> int:
        """Shared memory that queries, keys and values of 16 bits take."""
        return 2 * self.size * (self.rows + 2 * self.keys)


Tiles = tuple[FlashTile, ...]


def _tiles(*sizes: tuple[int, int, int, int]) -> Tiles:
    return tuple(FlashTile(*size) for size in sizes)


def _groups(*sizes: tuple[int, int, int]) -> Tiles:
    """Tiles of wgmma: a warp has 16 rows."""
    return tuple(FlashTile(size, rows, keys, rows // 16, "wgmma") for size, rows, keys in sizes)


_SMALL = (32, 128, 128, 4), (64, 128, 128, 4), (96, 128, 64, 4)
_GROUPS = (96, 192, 144), (128, 128, 176), (192, 128, 112), (256, 128, 80)
#: by platform and unit, for heads of a size and less, without masks: FlashAttention-2's (flash_fwd_launch_template.h,
#: commit 01afd16d, without dropout), and of wgmma FlashAttention-3's (hopper/tile_size.h, commit 07602adc)
TILES: dict[tuple[str, str], Tiles] = {
    ("ampere", "mma"): _tiles(*_SMALL, (128, 128, 64, 4), (192, 128, 64, 8), (256, 128, 64, 8)),
    ("ada", "mma"): _tiles(*_SMALL, (128, 128, 32, 4), (192, 128, 64, 8), (256, 64, 64, 4)),
    ("hopper", "mma"): _tiles(*_SMALL, (128, 128, 64, 4), (192, 128, 64, 8), (256, 64, 64, 4)),
    ("hopper", "wgmma"): _groups((64, 192, 192), *_GROUPS),
}
#: the same with causal masks, where they are others
CAUSAL_TILES: dict[tuple[str, str], Tiles] = {
    ("ada", "mma"): _tiles(*_SMALL[:2], (96, 64, 64, 4), (128, 64, 64, 4), (192, 128, 64, 8), (256, 64, 64, 4)),
    ("hopper", "wgmma"): _groups((64, 192, 128), _GROUPS[0], (128, 128, 128), *_GROUPS[2:]),
}
#: the same with a window, where they are others: FlashAttention-2 has no causal ones there
WINDOW_TILES: dict[tuple[str, str], Tiles] = {
    ("ada", "mma"): TILES["ada", "mma"],
    ("hopper", "wgmma"): _groups((64, 192, 128), (96, 192, 128), (128, 128, 128), (192, 128, 96), (256, 128, 64)),
}
#: FlashAttention-2's for few queries by many keys, in parts or in one (its "splitkv", commit 0251105a);
#: FlashAttention-3 has the same tiles for both
_FEW = (192, 64, 64, 4), (256, 64, 64, 4)
PARTED_TILES = _tiles((32, 64, 256, 4), (64, 64, 256, 4), (96, 64, 128, 4), (128, 64, 128, 4), *_FEW)
ONE_PART_TILES = _tiles((32, 64, 128, 4), (64, 64, 128, 4), (96, 64, 64, 4), (128, 64, 64, 4), *_FEW)


def name_of(machine: GpuMachine, unit: str, split: bool = False) -> str:
    """The name of the kernel that multiplies by a unit, with all keys at once or in parts."""
    return f"{NAME}:{machine.platform.name}_{unit}{'_split' * split}"


def units_on(machine: GpuMachine) -> list[str]:
    """The units of a GPU for which there is a kernel."""
    return [unit for platform, unit in TILES if platform == machine.platform.name]


def refused(p: AttentionProblem, machine: GpuMachine) -> str:
    """Why there is no such kernel for a problem; "" where there is one."""
    units = units_on(machine)
    if not units:
        return f"{machine.platform.title} has no mma of 16 x 8 x 16, which the kernel is made of"
    if p.dtype not in ("f16", "bf16"):
        return f"multiplies f16 and bf16, not {p.dtype}"
    if p.d != p.dv:
        return f"keys and values of one size, not {p.d} and {p.dv}"
    largest = TILES[machine.platform.name, units[0]][-1].size
    if p.d > largest:
        return f"heads of up to {largest}, not {p.d}"
    return "" if p.scale > 0 else "a scale above zero"


def flash_tile(p: AttentionProblem, machine: GpuMachine, unit: str = "mma", parts: int = 0) -> FlashTile:
    """The smallest tile that has room for a head; `parts` of the keys, 0: those of many queries."""
    if reason := refused(p, machine):
        raise Unimplemented(f"attention in one kernel on {machine.name!r}: {reason}")
    form = machine.platform.name, unit
    others = WINDOW_TILES if p.window else CAUSAL_TILES if p.causal else TILES
    tiles = others.get(form, TILES[form])
    if parts and unit == "mma":
        tiles = PARTED_TILES if parts > 1 else ONE_PART_TILES
    return next(tile for tile in tiles if tile.size >= p.d)


def parts_of(p: AttentionProblem, machine: GpuMachine, unit: str, tile: FlashTile | None = None) -> int:
    """The parts that FlashAttention splits a problem's keys into: the least number at 85 % of the best use of the
    places for workgroups; with the tile of its own, or another.

    FlashAttention-3 (hopper/heuristics.h, commit 0251105a) leaves up to four blocks of keys whole. Its predecessor
    (flash_api.cpp), two workgroups an SM, leaves out counts whose parts are as long as those of one less.
    """
    third, tile = unit == "wgmma", tile or flash_tile(p, machine, unit, MOST_PARTS)
    blocks, rows = -(-p.lk // tile.keys), p.batch * p.heads * -(-p.lq // tile.rows)
    places = machine.xe_cores * (1 if third else 2)
    if rows >= 0.8 * places or (third and blocks <= 4):
        return 1
    counts = range(1, min(MOST_PARTS, places, blocks) + 1)
    found = [n for n in counts if third or n == 1 or -(-blocks // n) < -(-blocks // (n - 1))]
    used = {n: rows * n / places / -(-rows * n // places) for n in found}
    return next(n for n in found if used[n] >= 0.85 * max(used.values()))


def unsplit(p: AttentionProblem, machine: GpuMachine, unit: str) -> str:
    """Why there is no kernel that splits a problem's keys; "" where there is one, which may have them in one part."""
    if p.window:
        return "splits keys without a window"
    rows = flash_tile(p, machine, unit, MOST_PARTS).rows
    if p.lq > rows:
        return f"splits keys of up to {rows} queries, not {p.lq}"
    if unit == "mma":
        return ""
    if p.lq > 1 and p.shared > 1:
        return "splits keys of several queries where heads share none"
    return "" if parts_of(p, machine, unit) > 1 else "splits keys where workgroups are few and keys many"
