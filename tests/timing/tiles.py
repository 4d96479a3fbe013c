"""A machine for tests of tile instructions: zen4 with a tile unit, its figures chosen for the tests' own sums."""

from __future__ import annotations

import functools
from dataclasses import replace
from types import MappingProxyType

from isa_models.machines.core_record import Scheduler
from isa_models.machines.cpu_record import Machine
from isa_models.machines.instruction_row import InstructionTiming
from isa_models.machines.loader import cpu_machine as machine
from isa_models.machines.provenance import Provenance

_HERE = Provenance("chosen for the tests", "estimated")
_PRODUCTS = ("tdpbf16ps", "tdpfp16ps", "tdpbssd", "tdpbsud", "tdpbusd", "tdpbuud")


def _row(mnemonic: str, form: str, latency: float, port: str = "", occupancy: int = 1, own: float = 0) -> object:
    uops = ((port,),) if port else ()
    return (mnemonic, form), InstructionTiming(
        mnemonic, form, latency, 1, uops, occupancy, 0.0, own or latency, False, _HERE
    )


@functools.cache
def tiled(accumulation: str = "even_odd") -> Machine:
    """zen4 with AMX: a product every 16 cycles, from accumulator to accumulator too; 52 cycles from its sources."""
    base = machine("zen4")
    rows = [_row(name, "tmm,tmm,tmm", 52, "TMUL", 16, own=16) for name in _PRODUCTS]
    rows += [_row(name, "tmm,m8192", 20) for name in ("tileloadd", "tileloaddt1")]
    rows += [_row("tilestored", "m8192,tmm", 0, "FP4", 16)]
    rows += [_row("tilezero", "tmm", 0), _row("ldtilecfg", "m512", 204, "FP0")]
    core = replace(
        base.core,
        ports=(*base.core.ports, "TMUL"),
        schedulers=(*base.core.schedulers, Scheduler("tiles", ("TMUL",), 64, 0, ())),
    )
    return replace(
        base,
        name="tiled",
        isa=(*base.isa, "avx512_core_fp16", "avx512_core_amx", "avx512_core_amx_fp16"),
        core=core,
        instructions=MappingProxyType({**base.instructions, **dict(rows)}),  # type: ignore[arg-type]
        amx_accumulation=accumulation,
    )
