"""NVIDIA GPU generations that machines here have, by the names of `isa_models.nvidia.mma.UNITS`."""

from __future__ import annotations

from isa_models.gpu.platforms import Platform

WARP = 32  # threads of a warp: lanes of a register here, which has 128 bytes

PLATFORMS: dict[str, Platform] = {p.name: p for p in (Platform("volta", "Volta", 4 * WARP),)}
