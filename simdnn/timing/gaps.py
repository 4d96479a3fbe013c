"""Is a machine's table whole? Forms of the package's instructions that it lacks, and rows without a source."""

from __future__ import annotations

from collections.abc import Iterator

from isa_models.instruction import REGISTRY, Instruction
from isa_models.machines.cpu_record import Machine
from isa_models.machines.gpu_record import GpuMachine
from isa_models.plugins import load
from simdnn.program.records import Affine, Memory, Op, Place, Register
from simdnn.timing.cpu.stream import form, mnemonic


def _variants(definition: Instruction, width: int) -> Iterator[Op]:
    """The instruction on registers, and with its memory operand."""
    lanes = definition.lanes(width)
    sources: list[Place] = []
    for position, operand in enumerate(definition.operands):
        count = definition.operand_lanes(operand, lanes)
        sources.append(Register(f"s{position}", operand.dtype, count))
    dst = Register("s0" if definition.destructive else "d", definition.result, lanes)
    immediates = tuple((name, 0) for name in definition.immediates)
    last = definition.operands[-1]
    if definition.registers:
        yield Op(definition.name, dst, tuple(sources), immediates)
    if definition.memory in ("store", "masked"):
        yield Op(definition.name, Memory("t", Affine(), definition.result, lanes), tuple(sources), immediates)
    elif definition.memory != "none":
        count = 1 if definition.memory == "element" else definition.operand_lanes(last, lanes)
        yield Op(definition.name, dst, (*sources[:-1], Memory("t", Affine(), last.dtype, count)), immediates)


def gaps_of(target: Machine) -> list[tuple[str, str]]:
    """(mnemonic, form) of the package's instructions, within the machine's ISA caps, that its table lacks."""
    load()
    return [
        (mnemonic(op), form(op))
        for definition in REGISTRY.values()
        for width, caps in definition.caps.items()
        if set(caps) & set(target.isa)
        for op in _variants(definition, width)
        if not target.has(mnemonic(op), form(op)) and _encodable(op, target)
    ]


def _encodable(op: Op, target: Machine) -> bool:
    """Whether the machine's encodings have the form."""
    loads = any(isinstance(source, Memory) for source in op.srcs)
    return "avx512_core" in target.isa or not (loads and op.definition.memory == "evex")


def without_source(target: Machine | GpuMachine) -> list[str]:
    """Dotted keys of figures and rows that say not where they are from."""
    instructions = target.instructions.values() if isinstance(target, Machine) else ()
    rows = [f"{row.mnemonic} {row.form}" for row in instructions if not row.source.strip()]
    return rows + [key for key, standing in target.provenance.items() if not standing.source.strip()]
