"""Post-operations on a GPU's blocks of sums in f32 registers, whatever the vendor.

Second operands of an addition, a product and kin are read as they lie: a value for each column, which the instruction
repeats for all rows of a block (`…row`), or a block of their own. Everything else is a formula, for which a block waits
in memory of the thread's own and goes through the registers slice by slice: a compiler would name parts of registers,
which programs here do not. relu without a slope is the epilogue's own.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from isa_models import instruction
from isa_models.formats import fmt
from isa_models.readings.arrays import Array
from simdnn.kernels.common.code import Code, nest, op
from simdnn.kernels.common.epilogue import Parameters
from simdnn.kernels.common.pointwise import formula_on_gpus
from simdnn.kernels.common.postops import RELU, PostOp, previous_type
from simdnn.kernels.common.roles import PARAMETERS
from simdnn.kernels.gpu.formula import GpuFormula
from simdnn.kernels.gpu.words import Words
from simdnn.program.records import Affine, Memory, Op, Place, Register, Tensor

_WAITING = "waiting"
_TOGETHER = (4, 2)  # rows, or slices of a warp, that go through the registers at a time: their steps wait less
#: instructions that do one, each with the next of its operands
_INSTRUCTIONS = {
    **{name: (name,) for name in ("add", "sub", "mul", "div", "max", "min")},
    **dict.fromkeys(("clip", "clip_v2"), ("max", "min")),
}


@dataclass(frozen=True)
class BlockPostOps:
    """The post-operations of an epilogue, over blocks of m rows of n lanes."""

    ops: tuple[PostOp, ...]
    words: Words
    m: int
    n: int
    dst: str  # the destination's type, in which sum reads what it held

    @property
    def lanes(self) -> int:
        return self.m * self.n

    @property
    def slice(self) -> int:
        """Lanes that a formula takes at a time: a warp's, or a row."""
        return min(self.lanes, instruction(self.words.names["add"]).warp or self.n)

    @property
    def asked(self) -> Iterator[tuple[int, PostOp]]:
        """Post-operations that are not the epilogue's own, and their places."""
        return ((i, post_op) for i, post_op in enumerate(self.ops) if post_op != RELU)

    @cached_property
    def formulas(self) -> dict[int, GpuFormula]:
        """Formulas by place. Every operand is in a register when the steps begin."""
        found = {}
        for i, post_op in self.asked:
            if post_op.kind != "sum" and not self._direct(post_op):
                expression = formula_on_gpus(post_op)
                fixed = range(len(expression.inputs))
                found[i] = GpuFormula(expression, fixed, self.words, self.slice, f"numbers{i}")
        return found

    def _direct(self, post_op: PostOp) -> tuple[str, ...]:
        """The instructions that do it, of x and a row; none where it takes a formula."""
        names = tuple(self.words.names.get(step, "") for step in _INSTRUCTIONS.get(post_op.kind, ()))
        rows = post_op.per_output or self.m == 1
        return names if all(name and (rows or "row" in instruction(name).ways) for name in names) else ()

    # -- what is read -------------------------------------------------------------------------------------------------
    def tensors(self, columns: int, outputs: int) -> list[Tensor]:
        """Numbers and operands, constants of formulas, and what the destination held."""
        held = previous_type(self.ops, self.dst)
        sizes = {f"post{i}": post_op.size(columns, outputs) for i, post_op in self.asked}
        found = [Tensor("previous", held, outputs, role=PARAMETERS.get("previous", ""))] if held else []
        found += [Tensor(name, "f32", size, role=PARAMETERS.get(name, "")) for name, size in sizes.items() if size]
        found += [Tensor(_WAITING, "f32", self.lanes, "private")] if self.formulas else []
        return found + [constants for formula in self.formulas.values() for constants in formula.tensors()]

    def start(self) -> Code:
        """Loads, once a thread, what all blocks read: numbers, and the constants of formulas."""
        code: Code = []
        for i, post_op in self.asked:
            lanes = self.slice if i in self.formulas else self.n
            one = post_op.second is not None and not post_op.per_channel and not post_op.per_output
            code += [self._splat(self._number(i, n, lanes), f"post{i}", n) for n in range(post_op.numbers + one)]
        return code + [load for formula in self.formulas.values() for load in formula.start()]

    def column(self, j: int, at: Affine) -> Code:
        """Loads the operands by channel of a column of blocks, which begins at `at`."""
        wide = self.n > self.slice  # those of a formula are loaded with the slice
        named = [(i, post_op) for i, post_op in self.asked if post_op.per_channel and not (wide and i in self.formulas)]
        name = self.words.load_name.format("f32")
        return [op(name, self._row(i, j), Memory(f"post{i}", at, "f32", self.n)) for i, _ in named]

    def _splat(self, register: Register, tensor: str, number: int) -> Op:
        name = self.words.splat_name.format("f32")
        return op(name, register, Memory(tensor, Affine(number), "f32", 1))

    def _number(self, i: int, number: int, lanes: int) -> Register:
        return Register(f"post{i}" if not number else f"post{i}_number{number}", "f32", lanes)

    def _row(self, i: int, j: int) -> Register:
        """One value for each of the columns of block column j."""
        return Register(f"post{i}_{j}", "f32", self.n)

    # -- steps --------------------------------------------------------------------------------------------------------
    def code(self, i: int, x: Register, j: int, column: Affine, place: Affine) -> Code:
        """Post-operation i of a block in block column j, which begins at `column`; its elements begin at `place`."""
        post_op = self.ops[i]
        if post_op.kind == "sum":
            return self._sum(i, x, place)
        if i in self.formulas:
            return self._formula(i, x, j, column, place)
        if post_op.per_output:
            other = Register("other", "f32", x.lanes)
            load = self.words.load(other.name, f"post{i}", "f32", place, x.lanes)
            return [*load, *self.words.apply(post_op.kind, x, x, other)]
        names = self._direct(post_op)
        rows = [self._row(i, j)] if post_op.per_channel else [self._number(i, n, self.n) for n in range(len(names))]
        return [self._by_row(name, x, row) for name, row in zip(names, rows, strict=True)]

    def _by_row(self, name: str, x: Register, *others: Register) -> Op:
        """An instruction whose last operand is repeated for each row of a block."""
        return op(f"{name}.{self.m}x{self.n}.row" if self.m > 1 else name, x, x, *others)

    def _formula(self, i: int, x: Register, j: int, column: Affine, place: Affine) -> Code:
        """A formula over the slices of a block, several at a time, as compilers place what is independent."""
        size, post_op = self.slice, self.ops[i]
        across = max(1, self.n // size)  # slices of a row, or rows of a slice
        down = self.lanes // size // across
        warps = bool(instruction(self.words.names["add"]).warp)
        together = next(n for n in (_TOGETHER[warps], 2, 1) if down % n == 0)
        row, part = Affine.var("row") * together, Affine.var("part") if across > 1 else Affine()
        ahead, others = Code(), [self._number(i, n, size) for n in range(max(1, post_op.numbers))]
        if post_op.per_channel and across == 1:
            others = [self._row(i, j)]
            if size > self.n:
                others = [Register("operand", "f32", size)]
                ahead = self._repeated(self._row(i, j), others[0])
        turns = []
        for turn in range(together):
            at = (row + turn) * (size * across) + part * size
            beside = None
            if post_op.per_output:
                beside = place + at
            elif post_op.per_channel and across > 1:
                beside = column + part * size
            turns.append(self._slice(i, at, beside, others, turn))
        loops = [("row", down // together), *([("part", across)] if across > 1 else [])]
        slices = nest(loops, [step for steps in zip(*turns, strict=True) for step in steps])
        whole = Memory(_WAITING, Affine(), "f32", x.lanes)
        load, store = (name.format("f32") for name in (self.words.load_name, self.words.store_name))
        return [*ahead, op(store, whole, x), *slices, op(load, x, whole)]

    def _slice(self, i: int, at: Affine, beside: Affine | None, others: Sequence[Register], turn: int) -> Code:
        """One slice of what waits, through the registers and back; `beside`: where its own operand is, if anywhere."""
        size, words = self.slice, self.words
        value, other = (Register(f"{name}_{turn}", "f32", size) for name in ("slice", "operand"))
        memory = Memory(_WAITING, at, "f32", size)
        code: Code = [op(words.load_name.format("f32"), value, memory)]
        if beside is not None:
            code += words.load(other.name, f"post{i}", "f32", beside, size)
            others = [other]
        fixed = {number: register.name for number, register in enumerate((value, *others))}
        steps, result = self.formulas[i].code(_nothing, size, fixed)
        code += [*steps, op(words.store_name.format("f32"), memory, result)]
        return _apart(code, {*fixed.values(), *self.formulas[i].number.values()}, f"_{turn}")

    def _repeated(self, row: Register, whole: Register) -> Code:
        """A row's lanes in every row of a slice."""
        bits = whole.as_("u32")
        clear = op(self.words.names["xor"], bits, bits, bits)
        either = f"{self.words.names['or']}.{whole.lanes // self.n}x{self.n}.row"
        return [clear, op(either, bits, bits, row.as_("u32"))]

    def _sum(self, i: int, x: Register, place: Affine) -> Code:
        """x + scale * (what the destination held - zero point), the product and the sum rounded once."""
        post_op, held = self.ops[i], previous_type(self.ops, self.dst)
        other = Register("other", "f32", x.lanes)
        code = self.words.load(other.name, "previous", held, place, x.lanes)
        if not fmt(held).is_float:
            code += self.words.apply("float", other, other)
        if post_op.zero_point:
            code.append(self._by_row(self.words.names["sub"], other, self._number(i, 1, self.n)))
        return [*code, self._by_row(self.words.fused, x, other, self._number(i, 0, self.n))]

    # -- arrays -------------------------------------------------------------------------------------------------------
    def arrays(
        self, given: Parameters, by_column: Callable[[Array], Array], by_block: Callable[[Array], Array]
    ) -> dict[str, Array]:
        """The operands as columns and blocks of the program."""
        found = {}
        for i, post_op in self.asked:
            if not post_op.size(1, 1):
                continue
            operand = given.operands[i]
            found[f"post{i}"] = (
                by_block(operand) if post_op.per_output else by_column(operand) if post_op.per_channel else operand
            )
        if previous_type(self.ops, self.dst):
            assert given.previous is not None
            found["previous"] = by_block(given.previous)
        return found


def _apart(code: Code, kept: Collection[str], ending: str) -> Code:
    """Steps in registers of their own, but for those that are kept."""

    def own(place: Place) -> Place:
        if isinstance(place, Register) and place.name not in kept:
            return replace(place, name=place.name + ending)
        return place

    steps = (step for step in code if isinstance(step, Op))
    return [replace(step, dst=own(step.dst), srcs=tuple(map(own, step.srcs))) for step in steps]


def _nothing(register: str, operand: int) -> Code:
    """No code: the operands of a formula are in registers."""
    return []
