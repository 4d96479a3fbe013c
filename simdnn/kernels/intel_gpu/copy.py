"""Plain matrices brought into blocks ahead of a GEMM, where an Intel GPU has no message that reads blocks of a matrix.

oneDNN's systolic GEMM for Xe-HPG copies each matrix that is not in blocks by a kernel of its own where M x N is large
(src/gpu/intel/gemm/jit_xe_hp_systolic.cpp, use_nocopy_xehpg, since 2023-11, for a source stored by rows); a smaller
one's elements are put in order on their way into shared memory. Here the copy is a stage that the clock sees: as many
bytes read and written, whatever their order. Values do not come from it, blocks are what the program is given.
"""

from __future__ import annotations

from dataclasses import replace

from isa_models import GpuMachine
from isa_models.formats import fmt
from simdnn.kernels.common.code import Code, loop, op
from simdnn.kernels.gpu.problem import GpuMatmulProblem
from simdnn.program.records import Affine, Memory, Program, Register, Tensor

LANES = 64  # of 32 bits: what a load or a store of a thread moves
FEW = 1024  # rows or columns: matrices of so few are not copied
MOST = 1 << 17  # rows or columns that count
LINE = 64  # bytes: rows that do not all begin on such a place count as unaligned
SOME = 1 << 20  # results
#: from more than how many times `SOME` results on matrices are copied: oneDNN's figures for 16-bit floats and for bytes
#: with weights by rows and by columns, and for rows that do not begin on a line
_RESULTS = {
    (True, "ab", True): 8,
    (True, "ba", True): 16,
    (True, "ba", False): 16,
    (False, "ab", True): 16,
    (False, "ba", True): 12,
    (False, "ba", False): 24,
}


def is_copied(machine: GpuMachine, problem: GpuMatmulProblem) -> bool:
    """Whether plain matrices of a problem are brought into blocks by kernels of their own; weights that come as the
    kernel wants them go by the rule of those by rows.
    """
    platform, p, stored = machine.platform, problem, fmt(problem.src)
    if not platform.exec_size or platform.block_loads or stored.bits > 16 or min(p.m, p.n) <= FEW:
        return False
    tag = "ba" if p.wei_tag == "ba" else "ab"
    rows = (p.k * stored.bits, (p.k if tag == "ba" else p.n) * fmt(p.wei).bits)
    aligned = not any(bits % (8 * LINE) for bits in rows)
    if not aligned and (tag == "ab" or (p.k <= 2 * FEW if stored.is_float else p.k >= FEW // 2)):
        return False
    return min(p.m, MOST) * min(p.n, MOST) > _RESULTS[stored.is_float, tag, aligned] * SOME


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
