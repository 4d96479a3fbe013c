"""ISA caps by oneDNN's names: what each one implies, and what this host has."""

from __future__ import annotations

import ctypes
import functools
import platform
from collections.abc import Collection

from isa_models.errors import unknown_name
from isa_models.gpu.platforms import PLATFORMS

#: cap -> (the caps it implies directly, LLVM's feature names that a host must have)
_CAPS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "sse41": ((), ("sse4.1",)),
    "avx2": (("sse41",), ("avx2", "fma", "f16c")),
    "avx2_vnni": (("avx2",), ("avxvnni",)),
    "avx2_vnni_int8": (("avx2_vnni",), ("avxvnniint8",)),
    "avx2_vnni_int16": (("avx2_vnni",), ("avxvnniint16",)),
    "avx512_core": (("avx2",), ("avx512f", "avx512bw", "avx512dq", "avx512vl")),
    "avx512_core_vbmi": (("avx512_core",), ("avx512vbmi", "avx512vbmi2")),  # all machines here have both or none
    "avx512_core_vnni": (("avx512_core",), ("avx512vnni",)),
    "avx512_core_bf16": (("avx512_core_vnni",), ("avx512bf16",)),
    "avx512_core_fp16": (("avx512_core_bf16", "avx2_vnni"), ("avx512fp16",)),
    "avx512_core_amx": (("avx512_core_fp16",), ("amx-tile", "amx-int8", "amx-bf16")),
    "avx512_core_amx_fp16": (("avx512_core_amx",), ("amx-fp16",)),
}


def caps() -> tuple[str, ...]:
    """Every cap's name, weakest first."""
    return tuple(_CAPS)


@functools.cache
def implied(cap: str) -> frozenset[str]:
    """`cap` and everything that a CPU with it also has; a GPU platform implies itself alone.

    >>> "avx2" in implied("avx512_core_vnni"), "avx512_core_bf16" in implied("avx512_core_vnni")
    (True, False)
    """
    if not isinstance(cap, str) or cap not in (*PLATFORMS, *_CAPS):
        raise unknown_name("ISA", cap, _CAPS)
    if cap in PLATFORMS:
        return frozenset({cap})
    return frozenset({cap}).union(*(implied(c) for c in _CAPS[cap][0]))


def strongest(found: Collection[str]) -> str:
    """The cap that stands last among them all; a GPU platform stands alone.

    >>> strongest({"avx2", "sse41"}), strongest({"xe2"})
    ('avx2', 'xe2')
    """
    return max(found, key=lambda cap: caps().index(cap) if cap in _CAPS else 0)


@functools.cache
def host_caps() -> frozenset[str]:
    """The caps that this machine's CPU really has and lets this process use (empty on another architecture)."""
    if platform.machine() not in ("x86_64", "AMD64"):
        return frozenset()
    import llvmlite.binding as llvm  # for this question alone

    features = {name for name, on in llvm.get_host_cpu_features().items() if on}
    if "amx-tile" in features and not _tiles_permitted():
        features -= {name for name in features if name.startswith("amx-")}
    return frozenset(cap for cap in _CAPS if all(features.issuperset(_CAPS[c][1]) for c in implied(cap)))


def _tiles_permitted() -> bool:
    """Whether Linux grants this process, from now on, the state of tile registers, which it saves for who asked."""
    arch_prctl, request, tile_data = 158, 0x1023, 18  # Documentation/arch/x86/xstate.rst
    if platform.system() != "Linux":
        return False
    return int(ctypes.CDLL(None).syscall(arch_prctl, request, tile_data)) == 0
