"""A machine's table in the form of another tool: OSACA's machine file.

What that form cannot say is left out, and the file says how much of it: masked forms (OSACA does not tell them apart),
embedded broadcasts, tiles, eliminated moves, schedulers, what stands between a store and a load. llvm-mca reads no
tables: its scheduling models are compiled into LLVM.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import combinations

from isa_models import GpuMachine, InvalidArgument, Machine, Unimplemented
from isa_models.machines.instruction_row import InstructionTiming
from isa_models.machines.loader import AnyMachine
from simdnn.assembly import TOOLS
from simdnn.primitives.checks import one_of

Pressure = list[tuple[float, tuple[str, ...]]]  # cycles of one of some ports
_REGISTER = re.compile(r"([xyz]?mm|k)")
_GENERAL = re.compile(r"r(8|16|32|64)|cl")
_MEMORY = re.compile(r"m\d+|agen\w*")
_ADDRESS = "  - {class: memory, base: '*', offset: '*', index: '*', scale: '*'}"
_SETS = 4096  # unions of ports that are looked at


def machine_file(machine: AnyMachine, tool: str = "osaca") -> str:
    """The table of a CPU as a file that a tool reads. Raises `Unimplemented` for a tool that reads none.

    >>> from isa_models import machine
    >>> machine_file(machine("zen4")).splitlines()[3:5]
    ['arch_code: zen4', 'isa: x86']
    """
    one_of("tool", tool, TOOLS)
    if tool == "llvm-mca":
        raise Unimplemented(
            "llvm-mca reads no machine file: its scheduling models are part of LLVM, and -mcpu names one of them; what "
            "works: osaca"
        )
    if isinstance(machine, GpuMachine):
        raise InvalidArgument(f"machine {machine.name!r} is a GPU; OSACA's files are of CPUs, e.g. 'zen4'")
    return "\n".join(_osaca(machine)) + "\n"


def _osaca(machine: Machine) -> Iterator[str]:
    core = machine.core
    rows, left_out = _rows(machine)
    first = f"# {machine.name} of simdnn: {len(rows)} instruction forms; "
    yield first + f"{left_out} are left out, which OSACA's form does not tell apart (masks, broadcasts, tiles)"
    yield 'osaca_version: "0.7.1"'
    yield f'micro_architecture: "{machine.title}"'
    yield f"arch_code: {machine.name}"
    yield "isa: x86"
    yield f"ROB_size: {core.reorder_buffer}"
    yield f"dispatched_uops_per_cycle: {core.dispatch_slots}"
    yield f"retired_uOps_per_cycle: {core.retire_slots}"
    yield "scheduler_size: ~"
    yield "hidden_loads: false"
    latencies = {"gpr": core.load(64, True), "mm": core.load(64)}
    latencies |= {f"{letter}mm": core.load(bits) for letter, bits in (("x", 128), ("y", 256), ("z", 512))}
    yield "load_latency: {" + ", ".join(f"{name}: {load.latency:g}" for name, load in latencies.items()) + "}"
    yield "load_throughput: []"
    yield f"load_throughput_default: {_written(_loading(machine, 64))}"
    yield "store_throughput: []"
    yield f"store_throughput_default: {_written(_storing(machine, 64))}"
    yield f"store_to_load_forward_latency: {core.load(64).forward_latency:g}"
    yield f"ports: [{', '.join(map(_quoted, _ports(machine)))}]"
    yield "port_model_scheme: ~"
    yield "instruction_forms:"
    for row, operands in rows:
        yield from _form(machine, row, operands)


def _rows(machine: Machine) -> tuple[list[tuple[InstructionTiming, list[str]]], int]:
    """The rows that OSACA tells apart with their operands, and how many are left out."""
    found: dict[tuple[str, tuple[str, ...]], tuple[InstructionTiming, list[str]]] = {}
    wide = sorted(machine.instructions.values(), key=lambda row: "r32" in row.form)  # one class there: 64 bits stay
    for row in wide:
        operands = _operands(row.form)
        if operands is not None:
            found.setdefault((row.mnemonic, tuple(operands)), (row, operands))
    return list(found.values()), len(machine.instructions) - len(found)


def _operands(form: str) -> list[str] | None:
    """Operands in AT&T order, as OSACA's files have them; None for what they cannot say."""
    lines = []
    for operand in [] if form == "-" else reversed(form.split(",")):
        if _REGISTER.fullmatch(operand):
            lines.append(f"  - {{class: register, name: {operand}}}")
        elif _GENERAL.fullmatch(operand):
            lines.append("  - {class: register, name: gpr}")
        elif _MEMORY.fullmatch(operand):
            lines.append(_ADDRESS)
        elif operand in ("i8", "i11", "i32", "1"):
            lines.append("  - {class: immediate, imd: int}")
        elif operand == "rel":
            lines.append("  - {class: identifier}")
        else:
            return None
    return None if "tmm" in form else lines


def _form(machine: Machine, row: InstructionTiming, operands: Sequence[str]) -> Iterator[str]:
    pressure: Pressure = [] if row.eliminated else [(float(row.occupancy), ports) for ports in row.uops]
    latency = 0.0 if row.eliminated else row.latency
    if row.load_bits:
        pressure += _loading(machine, row.load_bits, not row.vector_bits)
        latency += machine.core.load(row.load_bits, not row.vector_bits).latency
    if row.store_bits:
        pressure += _storing(machine, row.store_bits, not row.vector_bits)
    yield f"- name: {row.mnemonic}"
    yield from ("  operands:", *operands) if operands else ("  operands: []",)
    yield f"  latency: {latency:g}"
    yield f"  port_pressure: {_written(pressure)}"
    yield f"  throughput: {max(row.interval, throughput(pressure), row.slots / machine.core.dispatch_slots):.6g}"
    yield f"  uops: {row.slots}"


def _loading(machine: Machine, bits: int, general: bool = False) -> Pressure:
    return [(machine.core.load(bits, general).pipes, machine.core.load_ports)]


def _storing(machine: Machine, bits: int, general: bool = False) -> Pressure:
    core = machine.core
    data = max(1.0, core.store(bits, general).commit_cycles * len(core.store_data_ports))
    return [(1.0, core.store_address_ports), (data, core.store_data_ports)]


def throughput(pressure: Pressure) -> float:
    """The least cycles between two of an instruction by its ports: of some ports all uops that run there alone.

    >>> throughput([(1, ("a", "b")), (1, ("a",)), (1, ("a",))])
    2.0
    """
    kinds = list(dict.fromkeys(frozenset(ports) for _, ports in pressure))
    unions: set[frozenset[str]] = set()
    for count in range(1, len(kinds) + 1):
        for some in combinations(kinds, count):
            unions.add(frozenset().union(*some))
            if len(unions) > _SETS:
                break
    return max(
        (sum(c for c, ports in pressure if own.issuperset(ports)) / len(own) for own in unions if own), default=0.0
    )


def _ports(machine: Machine) -> Iterable[str]:
    core = machine.core
    used = (port for row in machine.instructions.values() for uop in row.uops for port in uop)
    return dict.fromkeys((*core.ports, *core.load_ports, *core.store_address_ports, *core.store_data_ports, *used))


def _written(pressure: Pressure) -> str:
    return "[" + ", ".join(f"[{c:g}, [{', '.join(map(_quoted, ports))}]]" for c, ports in pressure if ports) + "]"


def _quoted(name: str) -> str:
    return f"'{name}'"
