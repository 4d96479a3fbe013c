"""The most multiply-accumulates a cycle that a core can reach, by the type in which products are formed."""

from __future__ import annotations

import functools
from dataclasses import dataclass

from isa_models import GpuMachine, InvalidArgument
from isa_models.isa import implied
from isa_models.machines.cpu_record import Machine
from simdnn.timing.cpu.pipeline import loop_cycles
from simdnn.timing.cpu.steps import Step


@dataclass(frozen=True)
class _Unit:
    """The instructions of one multiply-accumulate step; `macs` of it in each 32-bit lane of a register."""

    isa: str  # the cap that brings it
    compute: str
    step: tuple[str, ...]
    macs: int
    tile: bool = False


#: by compute type, the fastest unit first
_UNITS = (
    _Unit("avx512_core_amx", "bf16", ("tdpbf16ps",), 32, tile=True),
    _Unit("avx512_core_amx", "s8", ("tdpbusd",), 64, tile=True),
    _Unit("avx512_core_amx_fp16", "f16", ("tdpfp16ps",), 32, tile=True),
    _Unit("avx2", "f32", ("vfmadd231ps",), 1),
    _Unit("avx2", "tf32", ("vfmadd231ps",), 1),
    _Unit("avx512_core_bf16", "bf16", ("vdpbf16ps",), 2),
    _Unit("avx512_core_fp16", "f16", ("vfmadd231ph",), 2),
    _Unit("avx2", "f16", ("vfmadd231ps",), 1),  # f16 operands, multiplied as f32
    _Unit("avx512_core_vnni", "s8", ("vpdpbusd",), 4),
    _Unit("avx2_vnni", "s8", ("vpdpbusd",), 4),
    _Unit("avx2", "s8", ("vpmaddubsw", "vpmaddwd", "vpaddd"), 4),
    _Unit("avx2", "s16", ("vpmaddwd", "vpaddd"), 2),
    _Unit("avx2", "s32", ("vpmulld", "vpaddd"), 1),
)


@functools.cache
def peak_macs_per_cycle(machine: Machine | GpuMachine, compute: str, isa: str) -> float:
    """Multiply-accumulates a cycle that one core can reach on registers, products formed in `compute` under `isa`.

    Of a GPU: those of all its engines.

    >>> from isa_models import machine
    >>> peak_macs_per_cycle(machine("zen4"), "f32", "avx512_core")
    16.0
    """
    if isinstance(machine, GpuMachine):
        vector = compute == "f32" or not machine.systolic_ops
        rate = machine.vector_ops["f32" if compute == "f32" else "dp4a"] if vector else None
        return (rate or machine.systolic_rate(compute, compute)[0]) * machine.engines / 2
    unit = _unit_of(compute, isa)
    register, lanes = ("tmm", 256) if unit.tile else ("zmm", 16) if "avx512_core" in implied(isa) else ("ymm", 8)
    form = ",".join([register] * 3)
    copies = 8  # independent steps: nothing waits for a result
    steps = [
        Step(name, form, (f"a{i}", f"b{i}"), (f"r{i}{j}",)) for i in range(copies) for j, name in enumerate(unit.step)
    ]
    limits = loop_cycles(machine, steps).limits
    return lanes * unit.macs * copies / max(limits["compute"], limits["front-end"])


def peak_ghz(machine: Machine, compute: str, isa: str) -> float:
    """The clock while the unit of `peak_macs_per_cycle` works, in its widest registers.

    >>> from isa_models import machine
    >>> peak_ghz(machine("skx"), "f32", "avx512_core") < peak_ghz(machine("skx"), "f32", "avx2")
    True
    """
    bits = 512 if "avx512_core" in implied(isa) else 256
    return machine.frequency.ghz(bits, True, _unit_of(compute, isa).tile)


def _unit_of(compute: str, isa: str) -> _Unit:
    unit = next((u for u in _UNITS if u.compute == compute and u.isa in implied(isa)), None)
    if unit is None:
        raise InvalidArgument(f"no unit under {isa} forms products in {compute}")
    return unit
