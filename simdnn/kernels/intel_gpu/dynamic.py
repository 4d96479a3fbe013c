"""Quantization on the fly on Intel GPUs, the same bits as on CPUs (`simdnn.kernels.common.dynamic.Dynamic`).

A thread takes a group where that is enough for all threads. Where not, as with one group a token, the threads of a
workgroup share one, in stages: the extremes of each thread's piece, the scale of each group, the values, and sums of
what goes over several pieces.

The range comes from the greatest and the least value, folded by halves of a register. The unit has a reciprocal and no
division: span / levels is q = span * (1 / levels) with one step of correction, q + (span - q * levels) * (1 / levels),
each part rounded once, which rounds the quotient correctly (P. Markstein, IBM J. Res. Dev. 34 (1), 1990).

The program's rows are filled up with zeros to whole workgroups.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property

import numpy as np

from isa_models import GpuMachine, Unimplemented
from isa_models.formats import fmt
from isa_models.readings.arrays import Array
from simdnn.kernels.common.code import Code, loop, nest, op
from simdnn.kernels.common.dynamic import Dynamic
from simdnn.program.check import verify
from simdnn.program.records import SOURCE, ZEROS, Affine, Memory, Op, Program, Register, Tensor

_WIDTHS = (64, 32, 16)  # lanes at a time, the first that divides a group
_PIECES = (64, 32, 16, 8, 4, 2)  # of a group: what one load brings together again


class GpuQuantization:
    """The generator for one problem on one machine."""

    def __init__(self, problem: Dynamic, machine: GpuMachine) -> None:
        self.problem, self.machine = problem, machine
        shortest = problem.reductions or problem.group
        self.lanes = next((w for w in _WIDTHS if shortest % w == 0), 0)
        if not self.lanes:
            length = -(-shortest // 16) * 16
            raise Unimplemented(
                f"groups of {shortest} on {machine.name!r}: no kernel here for less than vectors "
                f"of 16; what works: multiples of 16, such as {length}"
            )
        cores, threads = machine.xe_cores * machine.stacks, machine.engines_per_core * machine.threads
        groups, source = problem.m * problem.parts, problem.m * problem.k * fmt(problem.src).bits // 8
        again = groups < cores or 2 * source <= machine.l2.size_bytes * machine.stacks  # stages may read it twice
        fitting = (n for n in _PIECES if self.splits(n) and n * groups <= cores * threads and n <= threads)
        self.pieces = next(fitting, 1) if again else 1
        self.length = problem.group // self.pieces  # of what a thread has of a group
        self.summed = min(problem.reductions, self.length)  # by a thread
        most = min(-(-groups // cores), threads // self.pieces)  # groups of a workgroup, spread over the cores
        self.across = max(n for n in range(1, most + 1) if problem.parts % n == 0) if self.pieces == 1 else 1
        self.down = min(most // self.across, problem.m)
        self.rows = -(-problem.m // self.down) * self.down
        row = Affine.var("group_m") * self.down + Affine.var("thread_m")
        part, thread = Affine.var("group_n") * self.across, Affine.var("thread_n")
        self.start = row * problem.k + part * problem.group + thread * self.length
        self.place = row * problem.parts + part + (thread if self.pieces == 1 else 0)
        self.piece = self.place * self.pieces + thread

    def splits(self, pieces: int) -> bool:
        """Whether a group can be cut so: into whole vectors, and no sum across the ends of pieces but whole ones."""
        length, rest = divmod(self.problem.group, pieces)
        sums = self.problem.reductions or length
        return not rest and length % self.lanes == 0 and (length % sums == 0 or sums % length == 0)

    @cached_property
    def program(self) -> Program:
        p, threads = self.problem, self.across * self.pieces
        if self.pieces == 1:
            code = self.nest(threads, [*self.extremes(), *self.scale(), *self.quantize()])
        else:
            kept = {"inverse": "i"} if p.symmetric else {"inverse": "i", "shift": "z"}
            extremes = {"most": "a", "least": "b"}
            code = self.nest(threads, self.extremes() + self.stores(extremes, self.piece))
            code += self.nest(1, self.joined() + self.scale() + self.stores(kept, self.place))
            code += self.nest(threads, self.loads(kept) + self.quantize())
            code += self.nest(1, self.added()) if self.summed < p.reductions else []
        return verify(Program(f"quantize {p}", self.machine.platform.name, tuple(self.tensors()), tuple(code)))

    def nest(self, threads: int, code: Code) -> Code:
        """`code` for the groups of each workgroup, and for its threads along K."""
        p = self.problem
        code = nest([("thread_m", self.down), ("thread_n", threads)], code, parallel=True, threads=True)
        groups = [("group_m", self.rows // self.down), ("group_n", p.parts // self.across)]
        return nest(groups, code, parallel=True)

    # -- from stage to stage ------------------------------------------------------------------------------------------
    def stores(self, kept: Mapping[str, str], at: Affine) -> Code:
        """Registers of a number each, by the tensors that they are kept in."""
        return [op("store.f32", Memory(t, at, "f32", 1), Register(r, "f32", 1)) for t, r in kept.items()]

    def loads(self, kept: Mapping[str, str]) -> Code:
        return [op("load.f32", Register(r, "f32", 1), Memory(t, self.place, "f32", 1)) for t, r in kept.items()]

    def joined(self) -> Code:
        """The extremes of a group, found from its pieces' extremes."""
        code: Code = []
        for name, tensor, register in (("max.f32", "most", "a"), ("min.f32", "least", "b")):
            place = Memory(tensor, self.place * self.pieces, "f32", self.pieces)
            code.append(op("load.f32", Register(register, "f32", self.pieces), place))
            code += self.folded(name, register, "f32", self.pieces)
        return code

    def added(self) -> Code:
        """The reductions that go over several pieces."""
        p = self.problem
        pieces, sums = p.reductions // self.summed, p.group // p.reductions
        here = Memory("sums", self.place * self.pieces + Affine.var("q") * pieces, "s32", pieces)
        there = Memory("reductions", self.place * sums + Affine.var("q"), "s32", 1)
        load = op("load.s32", Register("s", "s32", pieces), here)
        store = op("store.s32", there, Register("s", "s32", 1))
        return loop("q", sums, [load, *self.folded("add.s32", "s", "s32", pieces), store])

    def tensors(self) -> list[Tensor]:
        p = self.problem
        count = self.rows * p.parts
        levels = np.float32(p.levels)
        numbers = [0, p.least, 1 / levels, -levels, fmt(p.dst).low]
        found = [
            Tensor("src", p.src, self.rows * p.k, role=SOURCE),
            Tensor.constant("numbers", "f32", np.array(numbers, np.float32).tobytes()),
            Tensor("dst", p.dst, self.rows * p.k, "output"),
            Tensor("scales", "f32", count, "output"),
        ]
        found += [] if p.symmetric else [Tensor("zero_points", "s32", count, "output", role=ZEROS)]
        if self.pieces > 1:
            sizes = {"most": count * self.pieces, "least": count * self.pieces, "inverse": count}
            sizes |= {} if p.symmetric else {"shift": count}
            found += [Tensor(name, "f32", size, "scratch") for name, size in sizes.items()]
            if self.summed < p.reductions:
                found.append(Tensor("sums", "s32", count * self.pieces, "scratch"))
        sums = self.rows * p.k // (p.reductions or 1)
        return found + ([Tensor("reductions", "s32", sums, "output", role=ZEROS)] if p.reductions else [])

    def splat(self, register: str, index: int, lanes: int = 1) -> Op:
        """A constant in every lane."""
        return op("load_splat.f32", Register(register, "f32", lanes), Memory("numbers", Affine(index), "f32", 1))

    def load(self, base: Affine) -> Code:
        """A vector of the group, from `base` on, in x as f32."""
        p, x = self.problem, Register("x", "f32", self.lanes)
        stored = x if p.src == "f32" else Register("w", p.src, self.lanes)
        at = self.start + base + Affine.var("v") * self.lanes
        code: Code = [op(f"load.{p.src}", stored, Memory("src", at, p.src, self.lanes))]
        return code if p.src == "f32" else [*code, op(f"mov.f32.{p.src}", x, stored)]

    def vectors(self, body: Code, length: int) -> Code:
        return loop("v", length // self.lanes, body)

    def folded(self, name: str, register: str, dtype: str, lanes: int = 0) -> Code:
        """All lanes of a register combined into its first."""
        code, lanes = Code(), lanes or self.lanes
        while lanes > 1:
            whole, half = Register(register, dtype, lanes), Register(register, dtype, lanes // 2)
            code.append(op(f"{name}.fold", half, whole))
            lanes //= 2
        return code

    def extremes(self) -> Code:
        """a the greatest value and b the least, zero among them, in one lane."""
        x = Register("x", "f32", self.lanes)
        pairs = (("max.f32", "a"), ("min.f32", "b"))
        code: Code = [self.splat(name, 0, self.lanes) for _, name in pairs]
        accumulators = [(name, Register(register, "f32", self.lanes)) for name, register in pairs]
        code += self.vectors(
            [*self.load(Affine()), *(op(name, acc, acc, x) for name, acc in accumulators)], self.length
        )
        return code + [s for name, register in pairs for s in self.folded(name, register, "f32")]

    def scale(self) -> Code:
        """i the reciprocal of the scale; where asymmetric z the zero point, as a float."""
        p = self.problem
        high, low, inverse, q, rest, value, levels = (Register(name, "f32", 1) for name in "abiqrcl")
        zero = Register("z", "f32", 1)
        code: Code = []
        if p.symmetric:
            code += [self.splat("q", 0), op("sub.f32", q, q, low), op("max.f32", high, high, q)]
        else:
            code.append(op("sub.f32", high, high, low))
        code += [
            self.splat("c", 1),
            op("max.f32", high, high, value),
            self.splat("c", 2),
            self.splat("l", 3),
            op("mul.f32", q, high, value),
            op("mov.f32", rest, high),
            op("mad.f32", rest, rest, q, levels),
            op("mad.f32", q, q, rest, value),
            op("store.f32", Memory("scales", self.place, "f32", 1), q),
            op("inv.f32", inverse, q),
        ]
        if p.symmetric:
            return code
        byte, stored = Register("n", p.dst, 1), Register("k", "s32", 1)
        return [
            *code,
            op("mul.f32", low, low, inverse),
            op("rnde.f32", low, low),
            self.splat("z", 4),
            op("sub.f32", zero, zero, low),
            op(f"mov.{p.dst}.f32.sat", byte, zero),
            op(f"mov.s32.{p.dst}", stored, byte),
            op("store.s32", Memory("zero_points", self.place, "s32", 1), stored),
        ]

    def quantize(self) -> Code:
        p, lanes = self.problem, self.lanes
        x, byte = Register("x", "f32", lanes), Register("y", p.dst, lanes)
        wide, sums = Register("x", "s32", lanes), Register("s", "s32", lanes)
        base = Affine.var("q") * self.summed
        body = [*self.load(base), op(f"mul.f32.1x{lanes}.col", x, x, Register("i", "f32", 1)), op("rnde.f32", x, x)]
        if not p.symmetric:
            body.append(op(f"add.f32.1x{lanes}.col", x, x, Register("z", "f32", 1)))
        at = self.start + base + Affine.var("v") * lanes
        body += [op(f"mov.{p.dst}.f32.sat", byte, x), op(f"store.{p.dst}", Memory("dst", at, p.dst, lanes), byte)]
        if not p.reductions:
            return self.vectors(body, self.length)
        body += [op(f"mov.s32.{p.dst}", wide, byte), op("add.s32", sums, sums, wide)]
        inside = self.length // self.summed
        clear = op("xor.u32", *[sums.as_("u32")] * 3)
        at = (self.place if self.pieces == 1 else self.piece) * inside + Affine.var("q")
        tensor = "reductions" if self.summed == p.reductions else "sums"
        store = op("store.s32", Memory(tensor, at, "s32", 1), Register("s", "s32", 1))
        code = [clear, *self.vectors(body, self.summed), *self.folded("add.s32", "s", "s32"), store]
        return loop("q", inside, code)

    # -- arrays ---------------------------------------------------------------------------------------------------
    def prepare(self, src: Array) -> dict[str, Array]:
        """The source with rows of zeros below."""
        full = np.zeros((self.rows, self.problem.k), src.dtype)
        full[: len(src)] = src
        return {"src": full.reshape(-1)}

    def finish(self, outputs: Mapping[str, Array]) -> dict[str, Array]:
        """The outputs as matrices, without the rows below."""
        p = self.problem
        return {name: np.ascontiguousarray(a.reshape(self.rows, -1)[: p.m]) for name, a in outputs.items()}
