"""Blocks of attention in one kernel on NVIDIA's GPUs, and which problems have such a kernel."""

from __future__ import annotations

from dataclasses import dataclass

from isa_models import GpuMachine, Unimplemented
from simdnn.kernels.common.attention import AttentionProblem

NAME = "flash"


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


def name_of(machine: GpuMachine, unit: str) -> str:
    """The name of the kernel that multiplies by a unit."""
    return f"{NAME}:{machine.platform.name}_{unit}"


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


def flash_tile(p: AttentionProblem, machine: GpuMachine, unit: str = "mma") -> FlashTile:
    """The smallest tile that has room for a head."""
    if reason := refused(p, machine):
        raise Unimplemented(f"attention in one kernel on {machine.name!r}: {reason}")
    form = machine.platform.name, unit
    tiles = CAUSAL_TILES.get(form, TILES[form]) if p.causal else TILES[form]
    return next(tile for tile in tiles if tile.size >= p.d)
