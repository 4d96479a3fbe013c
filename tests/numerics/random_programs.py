"""Random small Programs, valid ones and mutated ones, run in every reading. `python -m tests.numerics.random_programs
FIRST_SEED VALID BROKEN` prints what it did, and fails at the first disagreement."""

from __future__ import annotations

import sys
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import numpy as np

from isa_models import REGISTRY, SimdnnError
from isa_models.formats import fmt
from isa_models.isa import implied
from simdnn import numerics
from simdnn.calibration.hostcheck import adversarial
from simdnn.numerics import fitted
from simdnn.numerics.fitted import host_registers
from simdnn.program.check import verify
from simdnn.program.records import Affine, Loop, Memory, Op, Place, Program, Register, Statement, Tensor
from tests.haste import code_of_long_runs

ISAS = (
    "avx2",
    "avx2_vnni",
    "avx2_vnni_int8",
    "avx512_core",
    "avx512_core_vnni",
    "avx512_core_bf16",
    "avx512_core_fp16",
)
INPUTS = {"bytes": "u8", "signed": "s8", "words": "s16", "quads": "s32", "floats": "f32", "halves": "bf16"}
SIZE = 700  # elements of each input
REGION = 256  # bytes of an output that one parallel iteration owns
Random = np.random.Generator


class Generator:
    """Writes one program, keeping to the rules. A register's name says its size, so that loops carry it whole."""

    def __init__(self, rng: Random) -> None:
        self.rng = rng
        self.isa = str(rng.choice(ISAS))
        caps = implied(self.isa)
        vectors = [d for d in REGISTRY.values() if "b1" not in (d.result, *(o.dtype for o in d.operands))]  # no masks
        self.choices = [(d, w) for d in vectors for w, brings in d.caps.items() if caps.intersection(brings)]
        self.dots = [(d, w) for d, w in self.choices if d.destructive]
        self.tensors = [Tensor(name, dtype, SIZE) for name, dtype in INPUTS.items()]

    def program(self, name: str) -> Program:
        body = tuple(self.nest(k) for k in range(int(self.rng.integers(1, 3))))
        return Program(name, self.isa, tuple(self.tensors), body)

    def nest(self, k: int) -> Statement:
        """Up to two parallel loops around instructions and sequential loops, with an output tensor of their own."""
        depth = int(self.rng.integers(0, 3))
        extents = [int(self.rng.integers(1, 4)) for _ in range(depth)]
        variables = [f"p{k}{d}" for d in range(depth)]
        region = Affine()
        stride = REGION
        for var, extent in zip(variables, extents, strict=True):
            region = region + stride * Affine.var(var)
            stride *= extent
        self.output, self.region = f"out{k}", region
        self.tensors.append(Tensor(self.output, "u8", stride, "output"))
        ops: list[Statement] = []
        self.body(ops, set(), dict(zip(variables, extents, strict=True)), 0)
        statement: Statement = Loop(f"s{k}", 1, tuple(ops))
        for var, extent in zip(variables, extents, strict=True):
            statement = Loop(var, extent, (statement,), parallel=True)
        return statement

    def body(self, ops: list[Statement], defined: set[str], extents: dict[str, int], depth: int) -> None:
        for _ in range(int(self.rng.integers(3, 9))):
            if depth < 2 and self.rng.random() < 0.2:
                var, extent = f"k{len(extents)}", int(self.rng.integers(1, 7))  # those of up to 4 may be written out
                inner: list[Statement] = []
                self.body(inner, set(defined), {**extents, var: extent}, depth + 1)
                ops.append(Loop(var, extent, tuple(inner)))
            else:
                self.instruction(ops, defined, extents)
        for name in sorted(defined):
            if self.rng.random() < 0.6:
                self.store(ops, self.register(name, "u32"), extents)

    def instruction(self, ops: list[Statement], defined: set[str], extents: dict[str, int]) -> None:
        choices = self.dots if self.rng.random() < 0.3 else self.choices
        definition, width = choices[int(self.rng.integers(len(choices)))]
        lanes = definition.lanes(width)
        if not definition.whole and self.rng.random() < 0.15:  # the low part of registers
            fewer = lanes // 2 ** int(self.rng.integers(1, 4))
            sizes = [definition.operand_lanes(o, fewer) * fmt(o.dtype).bits for o in definition.operands if o.per]
            if fewer and all(bits >= 32 for bits in (*sizes, fewer * fmt(definition.result).bits)):
                lanes = fewer
        places: list[Place] = []
        memory_free = lanes * fmt(definition.result).bits >= 32
        for position, operand in enumerate(definition.operands):
            count = definition.operand_lanes(operand, lanes)
            fixed = position == 0 and definition.destructive
            wanted = self.rng.random() < 0.3 and all(o.per for o in definition.operands)
            if not operand.per or (wanted and memory_free and not fixed):
                memory_free = False
                places.append(self.memory(operand.dtype, count, extents, bool(operand.per)))
            else:
                places.append(self.defined(ops, operand.dtype, count, defined, extents))
        immediates = tuple((n, int(self.rng.integers(256))) for n in definition.immediates)
        bits = lanes * fmt(definition.result).bits
        if bits < 32:
            target = Memory(self.output, self.region + int(self.rng.integers(REGION - 8)), definition.result, lanes)
            ops.append(Op(definition.name, target, tuple(places), immediates))
            return
        dst = places[0] if definition.destructive else self.register(self.name(bits), definition.result)
        assert isinstance(dst, Register)
        op = Op(definition.name, dst, tuple(places), immediates)
        if op.width in definition.caps and implied(self.isa).intersection(
            definition.caps[op.width]
        ):  # else the only register of that width gave way to memory
            ops.append(op)
            defined.add(dst.name)

    def name(self, bits: int) -> str:
        return f"r{bits}_{int(self.rng.integers(2))}"

    def register(self, name: str, dtype: str) -> Register:
        return Register(name, dtype, int(name[1:].split("_")[0]) // fmt(dtype).bits)

    def defined(
        self, ops: list[Statement], dtype: str, lanes: int, defined: set[str], extents: dict[str, int]
    ) -> Register:
        """A register of that size, zeroed or loaded first where none holds anything yet."""
        register = self.register(self.name(lanes * fmt(dtype).bits), dtype)
        if register.name not in defined:
            words = register.as_("u32")
            if self.rng.random() < 0.3 and register.bits in (128, 256, 512) and register.bits <= self.limit:
                ops.append(Op("vpxor", words, (words, words)))
            else:
                ops.append(Op("vmovdqu", words, (self.memory("u32", words.lanes, extents, False),)))
            defined.add(register.name)
        return register

    @property
    def limit(self) -> int:
        return 512 if "avx512_core" in implied(self.isa) else 256

    def memory(self, dtype: str, lanes: int, extents: dict[str, int], may_mask: bool) -> Memory:
        """Some address inside an input whose elements divide the operand."""
        if may_mask and self.limit == 512 and lanes > 1 and self.rng.random() < 0.2:
            lanes = int(self.rng.integers(1, lanes))
        bits = lanes * fmt(dtype).bits
        fitting = [t for t in self.tensors if t.kind == "input" and bits % fmt(t.dtype).bits == 0]
        like = [t for t in fitting if t.dtype == dtype]
        tensor = (like or fitting)[int(self.rng.integers(len(like or fitting)))]
        last = SIZE - bits // fmt(tensor.dtype).bits
        index = Affine(int(self.rng.integers(last - 40)))
        for var in extents:
            if self.rng.random() < 0.5 and index.range(extents)[1] + 8 < last:
                index = index + int(self.rng.integers(1, 3)) * Affine.var(var)
        return Memory(tensor.name, index, dtype, lanes)

    def store(self, ops: list[Statement], register: Register, extents: dict[str, int]) -> None:
        room = REGION - register.bits // 8
        index = self.region + int(self.rng.integers(room + 1))
        ops.append(Op("vmovdqu", Memory(self.output, index, "u32", register.lanes), (register,)))


def inputs(program: Program, rng: Random) -> dict[str, Any]:
    """Adversarial data, or (half of the time) floats of ordinary size, with which no shortcut is wrong."""
    tame = rng.random() < 0.5
    data: dict[str, Any] = {}
    for tensor in program.tensors:
        if tensor.kind != "input":
            continue
        if tame and tensor.dtype in ("f32", "bf16"):
            data[tensor.name] = rng.standard_normal(tensor.size).astype(fmt(tensor.dtype).dtype)
        else:
            data[tensor.name] = adversarial(tensor.dtype, (tensor.size, 1), rng).reshape(-1)
    return data


def agree(program: Program, rng: Random, readings: tuple[bool, ...] = (True, False)) -> None:
    """Run the program in every reading, in haste and not, portable code as on a host with hardly a register;
    AssertionError where two differ.
    """
    data = inputs(program, rng)
    expected = numerics.run(program, data, engine="reference")
    for native in readings:
        fitted.host_registers = host_registers if native else lambda: fitted.RegisterFile(2, 128)
        threads = int(rng.integers(1, 3))
        for haste in (nullcontext, code_of_long_runs):
            with haste():
                met = numerics.run(program, data, engine="compiled", native=native, threads=threads)
            for name, array in expected.items():
                differ = np.flatnonzero(array.view(np.uint8) != met[name].view(np.uint8))
                how = f"{program.name}: native={native}, {haste.__name__}"
                assert not len(differ), f"{how}: {name} differs at byte {differ[0]}"


# -- mutations ------------------------------------------------------------------------------------------------------
def mutate(program: Program, rng: Random) -> Program:
    """The program with one thing changed somewhere, for the worse or not."""
    if rng.random() < 0.15:
        tensors = list(program.tensors)
        at = int(rng.integers(len(tensors)))
        size = int(rng.choice([0, 1, 5, 64, tensors[at].size - 1, tensors[at].size // 2]))
        kind = str(rng.choice(["input", "output", "scratch", "nonsense", tensors[at].kind]))
        tensors[at] = replace(tensors[at], size=size, kind=kind)
        return replace(program, tensors=tuple(tensors))
    if rng.random() < 0.05:
        return replace(program, isa=str(rng.choice([*ISAS, "sse41", "pentium"])))
    return replace(program, body=_mutate_body(program.body, rng))


def _mutate_body(body: tuple[Statement, ...], rng: Random) -> tuple[Statement, ...]:
    at = int(rng.integers(len(body)))
    statement = body[at]
    roll = rng.random()
    if roll < 0.07:
        return body[:at] + body[at + 1 :]
    if roll < 0.12 and len(body) > 1:
        other = int(rng.integers(len(body)))
        swapped = list(body)
        swapped[at], swapped[other] = swapped[other], swapped[at]
        return tuple(swapped)
    changed: Statement
    if isinstance(statement, Op):
        changed = _mutate_op(statement, rng)
    elif roll < 0.25:
        change: dict[str, Any] = [
            {"extent": 0},
            {"extent": -2},
            {"extent": statement.extent + 5},
            {"parallel": not statement.parallel},
            {"var": "p00"},
            {"var": "elsewhere"},
        ][int(rng.integers(6))]
        changed = replace(statement, **change)
    else:
        changed = replace(statement, body=_mutate_body(statement.body, rng)) if statement.body else statement
    return (*body[:at], changed, *body[at + 1 :])


def _mutate_op(op: Op, rng: Random) -> Op:
    roll = int(rng.integers(8))
    if roll == 0:
        names = [*REGISTRY, "vnonsense"]
        return replace(op, instruction=names[int(rng.integers(len(names)))])
    if roll == 1 and op.immediates:
        return replace(op, immediates=((op.immediates[0][0], int(rng.choice([-1, 256, 300, 7, 1 << 40]))),))
    if roll == 2:
        return replace(op, immediates=(("imm", 3),) if rng.random() < 0.5 else ())
    if roll == 3:
        return replace(op, srcs=op.srcs[1:] if rng.random() < 0.5 else (*op.srcs, op.srcs[0]))
    if roll == 4:
        return replace(op, dst=_mutate_place(op.dst, rng))
    at = int(rng.integers(len(op.srcs)))
    return replace(op, srcs=(*op.srcs[:at], _mutate_place(op.srcs[at], rng), *op.srcs[at + 1 :]))


def _mutate_place(place: Place, rng: Random) -> Place:
    roll = int(rng.integers(5))
    dtypes = ["u8", "s8", "u16", "bf16", "f16", "u32", "s32", "f32", "u64", "s4", "b1", "tf32", "f99"]
    if roll == 0:
        return replace(place, dtype=str(rng.choice(dtypes)))
    if roll == 1:
        return replace(place, lanes=int(rng.choice([-1, 0, 1, 3, place.lanes * 2, place.lanes - 1, 1 << 40])))
    if roll == 2 and isinstance(place, Register):
        return replace(place, name=str(rng.choice(["nowhere", "no name", "r512_0", "r128_1", "", "x\n"])))
    if isinstance(place, Memory):
        if roll == 3:
            return replace(place, tensor=str(rng.choice([*INPUTS, "out0", "missing"])))
        constant = int(rng.choice([-1, SIZE - 1, SIZE, 1 << 20, 1 << 62, place.index.const + 1]))
        terms = place.index.terms if rng.random() < 0.7 else ((*place.index.terms, ("k9", 3)))
        return replace(place, index=Affine(constant, terms))
    return Memory("floats", Affine(), place.dtype, place.lanes)


def main(first: int, valid: int, broken: int) -> None:
    refused = ran = executed = 0
    for seed in range(first, first + valid):
        rng = np.random.default_rng(seed)
        program = verify(Generator(rng).program(f"random{seed}"))
        executed += sum(times for _, times in program.ops())
        agree(program, rng)
    for seed in range(first, first + broken):
        rng = np.random.default_rng(seed)
        program = mutate(Generator(rng).program(f"mutant{seed}"), rng)
        try:
            verify(program)
        except SimdnnError:
            refused += 1
            continue
        agree(program, rng, (bool(rng.integers(2)),))
        ran += 1
    print(f"{valid} valid programs ({executed} instructions), {broken} mutants: {refused} refused, {ran} ran")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:4]))
