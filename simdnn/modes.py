"""The precision modes that studies compare: what is stored in which type, and which kernels may run it."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from isa_models import InvalidArgument, Machine
from isa_models.errors import unknown_name
from isa_models.isa import implied
from simdnn.timing.pipeline import Step, loop_cycles


@dataclass(frozen=True)
class Mode:
    """One precision mode.

    `isas`: the ISA caps that bring its kernels, best first; the first that a machine has is the one it runs under.
    `step`: the instructions of one multiply-accumulate step in the inner loop; `macs` of it in each 32-bit lane.
    """

    name: str
    title: str
    src: str
    weights: str
    isas: tuple[str, ...]
    step: tuple[str, ...]
    macs: int
    exact_int8: bool | None = None

    @property
    def is_integer(self) -> bool:
        return self.src in ("u8", "s8")

    def isa(self, machine: Machine, cap: str | None = None) -> str | None:
        """The ISA cap that the mode runs under on a machine (at most `cap`), or None where it cannot."""
        allowed = implied(cap) if cap else set(self.isas)
        return next((isa for isa in self.isas if machine.supports(isa) and isa in allowed), None)

    def peak_macs_per_cycle(self, machine: Machine, isa: str) -> float:
        """Multiply-accumulates a cycle that one core can reach on registers, with the widest vectors of `isa`."""
        return _peak(self, machine, "zmm" if isa.startswith("avx512") else "ymm")


_FAST = ("vpmaddubsw", "vpmaddwd", "vpaddd")
_NO_VNNI = ("avx512_core", "avx2")
MODES: Mapping[str, Mode] = {
    mode.name: mode
    for mode in (
        Mode("f32", "f32, fused multiply-add", "f32", "f32", _NO_VNNI, ("vfmadd231ps",), 1),
        Mode("bf16", "bf16 products, f32 sums", "bf16", "bf16", ("avx512_core_bf16",), ("vdpbf16ps",), 2),
        Mode("int8-fast", "u8 x s8 without VNNI; pairs saturate at 16 bits", "u8", "s8", _NO_VNNI, _FAST, 4, False),
        Mode("int8-exact", "u8 x s8 without VNNI, exact", "u8", "s8", _NO_VNNI, ("vpmaddwd", "vpaddd"), 2, True),
        Mode("int8-vnni", "u8 x s8 exact, VNNI allowed", "u8", "s8", ("avx512_core_vnni", "avx2_vnni"),
             ("vpdpbusd",), 4, True),
    )
}  # fmt: skip


def choose(
    machine: Machine, modes: Iterable[str] | None = None, isa: str | None = None
) -> tuple[dict[Mode, str], dict[Mode, str]]:
    """The modes to run with the ISA cap of each, and those left out with the reason.

    `modes=None` asks for all; then what the machine lacks is left out. A mode named that the machine lacks, or an
    `isa` that it lacks, is an `InvalidArgument`; an unknown name an `UnknownName`.

    >>> from isa_models import machine
    >>> run, lacking = choose(machine("skx"))
    >>> [mode.name for mode in run], [mode.name for mode in lacking]
    (['f32', 'int8-fast', 'int8-exact'], ['bf16', 'int8-vnni'])
    """
    if isa is not None and isa not in machine.isa:
        implied(isa)  # an unknown name is told apart from one that the machine lacks
        raise InvalidArgument(f"isa={isa!r}; machine {machine.name!r} has {', '.join(machine.isa)}")
    names = tuple(MODES if modes is None else dict.fromkeys(modes))
    for name in names:
        if name not in MODES:
            raise unknown_name("mode", name, MODES)
    if not names:
        raise InvalidArgument(f"no mode given; allowed: {', '.join(MODES)}")
    run: dict[Mode, str] = {}
    lacking: dict[Mode, str] = {}
    for mode in map(MODES.__getitem__, names):
        found = mode.isa(machine, isa)
        if found:
            run[mode] = found
        else:
            limit = f"isa={isa!r} does not include" if mode.isa(machine) else f"machine {machine.name!r} does not have"
            lacking[mode] = f"needs {' or '.join(mode.isas)}, which {limit}"
    if lacking and modes is not None:
        mode, reason = next(iter(lacking.items()))
        able = ", ".join(m.name for m in MODES.values() if m.isa(machine, isa))
        raise InvalidArgument(f"mode {mode.name!r} {reason}; modes that run: {able}")
    if not run:
        mode, reason = next(iter(lacking.items()))
        raise InvalidArgument(f"no mode runs; {mode.name!r} {reason}")
    return run, lacking


@functools.cache
def _peak(mode: Mode, machine: Machine, register: str) -> float:
    form = ",".join([register] * 3)
    lanes = {"ymm": 8, "zmm": 16}[register]
    copies = 8  # independent steps: nothing waits for a result
    steps = [
        Step(name, form, (f"a{i}", f"b{i}"), (f"r{i}{j}",)) for i in range(copies) for j, name in enumerate(mode.step)
    ]
    limits = loop_cycles(machine, steps).limits
    return lanes * mode.macs * copies / max(limits["compute"], limits["front-end"])
