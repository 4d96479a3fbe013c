"""Lines of weights that the engine asks for some steps before a product's innermost loop loads them.

Two units of 512 bits take weights from the second cache faster than it brings what nobody asked for. The program has no
such instruction, as the modelled core is another one; no value depends on it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import prod

from simdnn.program.records import Loop, Memory, Op, Program, Statement

CAP = "avx512_core_fp16"  # of cores on which it was measured to pay
_STEPS = 8  # that lines are asked for ahead of their use
_LINE = 64  # bytes
_FIRST_LEVEL = 40 * 1024  # bytes of weights that stay in the first cache from one block of rows to the next
_PRODUCTS = 3  # to a line, at least

#: an operand, and how many bytes further the line lies that is asked for
Ahead = tuple[Memory, int]


def lines_ahead(program: Program, body: Sequence[Statement]) -> dict[int, list[Ahead]]:
    """The operands whose next lines an innermost loop asks for in a turn, by the loop's `id`: those that it reads line
    after line, where all that `body` reads of them is more than the first cache keeps.
    """
    return {id(loop): found for loop, around in _innermost(body, {}) if (found := _streams(program, loop, around))}


def _innermost(body: Sequence[Statement], around: dict[str, int]) -> Iterator[tuple[Loop, dict[str, int]]]:
    """Loops of instructions alone, with the extents of the loops around, and their own."""
    for statement in body:
        if isinstance(statement, Loop):
            within = {**around, statement.var: statement.extent}
            if all(isinstance(one, Op) for one in statement.body):
                yield statement, within
            else:
                yield from _innermost(statement.body, within)


def _streams(program: Program, loop: Loop, around: dict[str, int]) -> list[Ahead]:
    found, size, products = list[Ahead](), 0, 0
    for op in loop.body:
        assert isinstance(op, Op)
        products += op.definition.accumulates
        for place in op.srcs:
            if not isinstance(place, Memory):
                continue
            terms = dict(place.index.terms)
            step = terms.get(loop.var, 0) * program.tensor[place.tensor].element_bytes
            if place.rows == 1 and place.bits // 8 == _LINE <= abs(step):
                found.append((place, _STEPS * step))
                size += _LINE * prod(around.get(name, 1) for name in terms)
    return found if size > _FIRST_LEVEL and products >= _PRODUCTS * len(found) else []
