"""Post-operations that are formulas: the accumulators of a tile wait in memory, and each goes through the registers."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from simdnn.kernels.common.activations import formula_of, is_formula
from simdnn.kernels.common.code import Code
from simdnn.kernels.common.postops import PostOp
from simdnn.kernels.x86.code import Unit, broadcast32, load32, store32
from simdnn.kernels.x86.formula import X86Formula
from simdnn.program.records import Affine, Op, Register, Statement, Tensor

_WAITING = "waiting"
_SCRATCH = ("p", "a", "b0")  # registers that are free in an epilogue
_NEEDED = 11  # registers that the longest formula takes
_NEEDED_OF_C = 12  # and that the longest function of C's library takes


def tensors(unit: Unit, ops: Sequence[PostOp], reference: bool) -> list[Tensor]:
    """The constants of post-operations that are formulas, and a register's room for each accumulator."""
    formulas = [_formula(unit, op, i, reference) for i, op in enumerate(ops) if is_formula(op)]
    room = Tensor(_WAITING, "f32", unit.registers * unit.lanes, "private")
    return [*(constants for formula in formulas for constants in formula.tensors()), room] if formulas else []


def code(
    unit: Unit,
    post_op: PostOp,
    place: int,
    tensor: str,
    accumulators: list[Register],
    reference: bool = False,
    free: Sequence[str] = (),
) -> Code:
    """The formula of every accumulator for the post-operation at `place`; `tensor` has its numbers. Registers that are
    `free`, by name, are used first.
    """
    return [*_code(unit, post_op, place, tensor, tuple(accumulators), reference, tuple(free))]


@lru_cache(maxsize=512)
def _code(
    unit: Unit,
    post_op: PostOp,
    place: int,
    tensor: str,
    accumulators: tuple[Register, ...],
    reference: bool,
    free: tuple[str, ...],
) -> tuple[Statement, ...]:
    """`code`, which no size of a problem goes into: tiles of many shapes have it in common.

    The steps of one accumulator are those of the next, but for the place where it waits.
    """
    lanes = unit.lanes
    formula = _formula(unit, post_op, place, reference)
    own, needed = [acc.name for acc in accumulators], _NEEDED_OF_C if reference or post_op.power else _NEEDED
    spare, missing = [name for name in free if name not in (*_SCRATCH, *own)], needed - len(_SCRATCH) - len(own)
    formula.registers = [*_SCRATCH, *own, *[*spare, *_others(own, missing)][: max(missing, 0)]]

    def load(register: str, operand: int) -> Code:
        to = unit.reg(register, "f32")
        at = Affine(operand - 1) if operand else Affine()
        return [broadcast32(to, tensor, at) if operand else load32(unit, to, _WAITING, at, lanes)]

    steps, result = formula.code(load, lanes)
    steps.append(store32(unit, _WAITING, Affine(), result, lanes))
    places = [Affine(i * lanes) for i in range(len(accumulators))]
    found: Code = [store32(unit, _WAITING, at, acc, lanes) for at, acc in zip(places, accumulators, strict=True)]
    for at in places:
        found += [step.at(at) if isinstance(step, Op) and _waits(step) else step for step in steps]
    return (*found, *[load32(unit, acc, _WAITING, at, lanes) for at, acc in zip(places, accumulators, strict=True)])


def _waits(step: Op) -> bool:
    """Whether a step loads or stores what waits in memory."""
    return step.memory is not None and step.memory.tensor == _WAITING


def _others(own: list[str], count: int) -> list[str]:
    """Names of registers that kernels have beside a tile's few accumulators: of weights, or of other rows."""
    if "_" in own[0]:
        return [f"b{i + 1}" for i in range(count)]
    return [name for i in range(count + len(own)) if (name := f"c{i}") not in own][: max(count, 0)]


def _formula(unit: Unit, post_op: PostOp, place: int, reference: bool) -> X86Formula:
    return X86Formula(formula_of(post_op, unit.lanes, reference), "f32", (), unit, f"numbers{place}")
