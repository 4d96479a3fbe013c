"""Plain matrices brought into blocks ahead of a GEMM, where an Intel GPU has no message that reads blocks of a matrix.

oneDNN's systolic GEMM for Xe-HP and Xe-HPG copies each matrix that is not in blocks by a kernel of its own where M x N
is large (src/gpu/intel/gemm/jit_xe_hp_systolic.cpp, use_nocopy, for matrices stored by rows); a smaller one's elements
are put in order on their way into shared memory. Here the copy is a stage that the clock sees: as many bytes read and
written, whatever their order. Values do not come from it, blocks are what the program is given.
"""

from __future__ import annotations

from dataclasses import replace

from isa_models import GpuMachine
from isa_models.formats import fmt
from simdnn.kernels.common.code import Code, loop, op
from simdnn.program.records import Affine, Memory, Program, Register, Tensor

LANES = 64  # of 32 bits: what a load or a store of a thread moves
#: sides of the square M x N from which on matrices are copied: oneDNN's figures for 16-bit floats and for bytes
COPIED_FROM = {"floats": 2880, "integers": 1344}


def is_copied(machine: GpuMachine, dtype: str, m: int, n: int) -> bool:
    """Whether plain matrices of a problem are brought into blocks by kernels of their own."""
    platform = machine.platform
    if not platform.exec_size or platform.block_loads or fmt(dtype).bits > 16:
        return False
    return m * n >= COPIED_FROM["floats" if fmt(dtype).is_float else "integers"] ** 2


def with_copies(program: Program, machine: GpuMachine, names: tuple[str, ...]) -> Program:
    """The program behind a copy of each of the tensors named, for the clock."""
    code: Code = []
    tensors = list(program.tensors)
    for name in names:
        copied = program.tensor[name]
        words = copied.nbytes // 4
        code += _copy(machine, name, words)
        whole = Tensor(name, "u32", _whole(machine, words), role=copied.role)
        tensors.append(replace(whole, name=_plain(name)))
        tensors[tensors.index(copied)] = whole
    return Program(program.name, program.isa, tuple(tensors), (*code, *program.body))


def copy_alone(program: Program, machine: GpuMachine, name: str) -> Program:
    """The copy of one tensor by itself: done once, ahead of all runs."""
    whole = with_copies(program, machine, (name,))
    return Program(f"copy {name}", program.isa, tuple(whole.tensor[n] for n in (_plain(name), name)), whole.body[:1])


def _plain(name: str) -> str:
    return f"plain_{name}"


def _sizes(machine: GpuMachine, words: int) -> tuple[int, int, int]:
    """Workgroups, threads of one, vectors of a thread: four, or fewer where all cores would not have work."""
    threads = machine.engines_per_core * machine.threads
    vectors = -(-words // LANES)
    each = max(1, min(4, vectors // (threads * machine.xe_cores)))
    return -(-vectors // (threads * each)), threads, each


def _whole(machine: GpuMachine, words: int) -> int:
    groups, threads, each = _sizes(machine, words)
    return groups * threads * each * LANES


def _copy(machine: GpuMachine, name: str, words: int) -> Code:
    groups, threads, each = _sizes(machine, words)
    at = (Affine.var("group_m") * threads + Affine.var("thread_m")) * (each * LANES)
    registers = [Register(f"v_{i}", "u32", LANES) for i in range(each)]
    body: Code = [
        op("load.u32", r, Memory(_plain(name), at + i * LANES, "u32", LANES)) for i, r in enumerate(registers)
    ]
    body += [op("store.u32", Memory(name, at + i * LANES, "u32", LANES), r) for i, r in enumerate(registers)]
    return loop("group_m", groups, loop("thread_m", threads, body, parallel=True, threads=True), parallel=True)
