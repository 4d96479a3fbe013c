"""The inner loop of a program that most of its work is in: its steps, as the clock reads them, and their texts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from isa_models.machines.cpu_record import Machine
from simdnn.program.records import Loop, Memory, Op, Place, Program, Statement
from simdnn.timing.cpu.pipeline import LoopTiming, loop_cycles
from simdnn.timing.cpu.steps import Step, lower
from simdnn.timing.cpu.stream import Stream


@dataclass(frozen=True)
class InnerLoop:
    """A loop without loops inside; `variable` "" where a program has no loop: all of it.

    `texts` are those of the ops that the core sees: fused steps have one.
    """

    variable: str
    iterations: int
    steps: tuple[Step, ...]
    texts: tuple[str, ...]
    timing: LoopTiming


def inner_loop(program: Program, machine: Machine) -> InnerLoop:
    """The innermost loop whose instructions are executed most often, all together."""
    loops = list(_innermost(program.body, 1))
    stream = Stream(program)
    if loops:
        loop, times = max(loops, key=lambda found: found[1] * len(found[0].body))
        ops, control, variable = [s for s in loop.body if isinstance(s, Op)], stream.control(loop), loop.var
    else:
        ops, control, variable, times = [op for op, _ in program.ops()], (), "", 1
    lines = [stream.line(op, {}, variable) for op in ops]
    steps = (*(line.step for line in lines), *(line.step for line in control))
    texts = [text(op) for op in ops] + [line.step.mnemonic for line in control]
    shown, at = [], 0
    for lowered in lower(machine, steps):
        shown.append("+".join(texts[at : at + lowered.steps]))
        at += lowered.steps
    return InnerLoop(variable, times, steps, tuple(shown), loop_cycles(machine, steps))


def text(op: Op) -> str:
    """An instruction without types and addresses.

    >>> from simdnn.program import Affine, Register
    >>> word = Register("x", "u32", 16)
    >>> text(Op("vmovdqu", word, (Memory("src", Affine(), "u32", 16),)))
    'vmovdqu x, [src]'
    """
    places = [*dict.fromkeys(map(_place, (op.dst, *op.srcs)))]
    return f"{op.definition.name} {', '.join(places)}"


def _place(place: Place) -> str:
    return f"[{place.tensor}]" if isinstance(place, Memory) else place.name


def _innermost(body: Sequence[Statement], times: int) -> Iterator[tuple[Loop, int]]:
    for loop in (statement for statement in body if isinstance(statement, Loop)):
        inner = list(_innermost(loop.body, times * loop.extent))
        yield from inner or [(loop, times * loop.extent)]
