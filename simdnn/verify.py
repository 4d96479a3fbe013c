"""Proof that a Program is sound: types, lane counts, registers, every address inside its tensor, no races.

What passes runs in every engine without fault and gives one answer; what fails is refused with the instruction named.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from isa_models import ProgramError, SimdnnError
from isa_models.formats import fmt
from isa_models.isa import implied
from simdnn.program import Affine, Loop, Memory, Op, Place, Program, Register, Statement, Tensor

_MAX_BYTES = 1 << 36
_MAX_ENUMERATED = 1 << 24
_MASKED_BEFORE_AVX512 = ("vmaskmovps", "vpmaskmovd")
Registers = dict[str, int]  # name -> bits


def verify(program: Program) -> Program:
    """The program itself, or `ProgramError` naming the instruction that breaks a rule."""
    caps = implied(program.isa)
    names = [t.name for t in program.tensors]
    if len(set(names)) != len(names):
        raise ProgramError(f"{program.name}: two tensors of one name among {names}")
    for tensor in program.tensors:
        _verify_tensor(program, tensor)
    for statement in program.body:
        _Checker(program, caps).statements((statement,), {}, {})
    _verify_parallel(program)
    return program


def _verify_tensor(program: Program, tensor: Tensor) -> None:
    fmt(tensor.dtype)
    if tensor.kind not in ("input", "output", "scratch", "constant"):
        raise ProgramError(f"{program.name}: tensor {tensor.name} has kind {tensor.kind!r}")
    if tensor.size < 1 or tensor.bytes > _MAX_BYTES:
        raise ProgramError(f"{program.name}: tensor {tensor.name} has {tensor.size} elements; 1 to {_MAX_BYTES} bytes")
    if fmt(tensor.dtype).bits % 8:
        raise ProgramError(f"{program.name}: tensor {tensor.name} of {tensor.dtype}: store nibbles as u8")
    if tensor.kind == "constant" and len(tensor.data) != tensor.bytes:
        raise ProgramError(f"{program.name}: constant {tensor.name} holds {len(tensor.data)} of {tensor.bytes} bytes")


class _Checker:
    """One walk over a top-level statement, with the registers defined so far and the loops around."""

    def __init__(self, program: Program, caps: frozenset[str]) -> None:
        self.program = program
        self.caps = caps
        self.limit = 32 if "avx512_core" in caps else 16
        self.names: set[str] = set()

    def fail(self, op: object, why: str) -> ProgramError:
        return ProgramError(f"{self.program.name}: `{op}`: {why}")

    def statements(self, body: Sequence[Statement], defined: Registers, extents: dict[str, int]) -> None:
        for statement in body:
            if isinstance(statement, Loop):
                self.loop(statement, defined, extents)
            else:
                self.op(statement, defined, extents)

    def loop(self, loop: Loop, defined: Registers, extents: dict[str, int]) -> None:
        label = f"for {loop.var} < {loop.extent}"
        if not isinstance(loop.extent, int) or loop.extent < 1:
            raise self.fail(label, "a loop runs at least once")
        if loop.var in extents:
            raise self.fail(label, f"variable {loop.var} is a loop around it already")
        if not loop.body:
            raise self.fail(label, "an empty body")
        inside = dict(defined)
        self.statements(loop.body, inside, {**extents, loop.var: loop.extent})
        for name, bits in defined.items():
            if inside[name] != bits:
                raise self.fail(label, f"register {name} is carried with {bits} bits and comes back with {inside[name]}")
        written = {op.dst.name for op in _ops(loop.body) if isinstance(op.dst, Register)}
        carried = sorted(written & defined.keys())
        if loop.parallel and carried:
            raise self.fail(label, f"a parallel loop cannot carry registers {carried}")

    def op(self, op: Op, defined: Registers, extents: dict[str, int]) -> None:
        try:
            definition = op.definition
        except SimdnnError as error:
            raise self.fail(op.instruction, str(error)) from None
        if len(op.srcs) != len(definition.operands):
            raise self.fail(op, f"takes {len(definition.operands)} operands")
        if tuple(sorted(n for n, _ in op.immediates)) != tuple(sorted(definition.immediates)):
            raise self.fail(op, f"takes the immediates {definition.immediates}")
        if sum(isinstance(p, Memory) for p in (op.dst, *op.srcs)) > 1:
            raise self.fail(op, "at most one memory operand")
        if op.masked and not self.limit == 32 and op.instruction not in _MASKED_BEFORE_AVX512:
            raise self.fail(op, f"{self.program.isa} has no masks: {op.memory} should be whole")
        caps = definition.caps.get(op.width)
        if caps is None or not self.caps.intersection(caps):
            raise self.fail(op, f"not in {self.program.isa} at {op.width} bits")
        for operand, place in zip(definition.operands, op.srcs, strict=True):
            wanted = definition.operand_lanes(operand, op.lanes)
            self.place(op, place, operand.dtype, wanted, extents)
            if isinstance(place, Register) and not op.is_zero_idiom:
                self.read(op, place, defined)
        self.place(op, op.dst, definition.result, op.lanes, extents)
        if isinstance(op.dst, Register):
            self.write(op, op.dst, defined)
        elif self.program.tensor[op.dst.tensor].kind in ("input", "constant"):
            raise self.fail(op, f"{op.dst.tensor} is read only")
        if definition.accumulates and (not isinstance(op.dst, Register) or op.dst != op.srcs[0]):
            raise self.fail(op, "the destination is the accumulator, its first operand")

    def place(self, op: Op, place: Place, dtype: str, lanes: int, extents: dict[str, int]) -> None:
        """Type, lane count, and for memory: the range of its addresses."""
        if place.dtype != dtype:
            raise self.fail(op, f"{place} should be {dtype}")
        if isinstance(place, Register):
            if place.lanes != lanes or lanes < 1:
                raise self.fail(op, f"{place} should have {lanes} lanes")
            return
        if not 1 <= place.lanes <= lanes:
            raise self.fail(op, f"{place} should have 1 to {lanes} lanes")
        if place.tensor not in self.program.tensor:
            raise self.fail(op, f"no tensor {place.tensor!r}")
        tensor = self.program.tensor[place.tensor]
        unit = fmt(tensor.dtype).bits
        if place.bits % unit:
            raise self.fail(op, f"{place} is no whole number of {tensor.dtype}")
        unknown = [name for name, _ in place.index.terms if name not in extents]
        if unknown:
            raise self.fail(op, f"index variables {unknown} are not loops around it")
        low, high = place.index.range(extents)
        last = high + place.bits // unit - 1
        if low < 0 or last >= tensor.size:
            raise self.fail(op, f"addresses {low} .. {last} of {tensor.name}, which has 0 .. {tensor.size - 1}")

    def read(self, op: Op, register: Register, defined: Registers) -> None:
        if register.name not in defined:
            raise self.fail(op, f"register {register.name} is read before it is written")
        if defined[register.name] < register.bits:
            raise self.fail(op, f"register {register.name} holds {defined[register.name]} bits, not {register.bits}")

    def write(self, op: Op, register: Register, defined: Registers) -> None:
        if not register.name.isidentifier():
            raise self.fail(op, f"register name {register.name!r}")
        defined[register.name] = register.bits
        self.names.add(register.name)
        if len(self.names) > self.limit:
            raise self.fail(op, f"more than the {self.limit} vector registers of {self.program.isa}")


def _ops(body: Sequence[Statement]) -> list[Op]:
    found: list[Op] = []
    for statement in body:
        found += _ops(statement.body) if isinstance(statement, Loop) else [statement]
    return found


# -- parallel loops: no iteration touches what another one writes ---------------------------------------------------
Access = tuple[Affine, int, bool]  # first element, number of elements, is a store


def _verify_parallel(program: Program) -> None:
    def visit(body: Sequence[Statement], extents: dict[str, int]) -> None:
        for statement in body:
            if isinstance(statement, Loop):
                if statement.parallel:
                    _verify_independent(program, statement, extents)
                visit(statement.body, {**extents, statement.var: statement.extent})

    visit(program.body, {})


def _verify_independent(program: Program, loop: Loop, outer: dict[str, int]) -> None:
    if loop.extent == 1:
        return
    accesses: dict[str, list[Access]] = {}
    extents = {loop.var: loop.extent}

    def collect(body: Sequence[Statement]) -> None:
        for statement in body:
            if isinstance(statement, Loop):
                extents[statement.var] = max(statement.extent, extents.get(statement.var, 0))
                collect(statement.body)
                continue
            memory = statement.memory
            if memory is not None:
                count = memory.bits // fmt(program.tensor[memory.tensor].dtype).bits
                accesses.setdefault(memory.tensor, []).append((memory.index, count, memory is statement.dst))

    collect(loop.body)
    for tensor, found in accesses.items():
        if any(store for _, _, store in found) and not _disjoint(loop, found, extents):
            raise ProgramError(
                f"{program.name}: `parallel for {loop.var} < {loop.extent}`: "
                f"cannot show that its iterations keep apart in {tensor}"
            )


def _disjoint(loop: Loop, accesses: list[Access], extents: dict[str, int]) -> bool:
    """Whether no element that one iteration stores is touched by another one (for fixed variables around the loop)."""
    strides = {dict(index.terms).get(loop.var, 0) for index, _, _ in accesses}
    outer = {tuple((n, c) for n, c in index.terms if n not in extents) for index, _, _ in accesses}
    if len(strides) != 1 or len(outer) != 1:
        return False
    stride = abs(strides.pop())
    spans = [(i.range({**extents, **{n: 1 for n, _ in i.terms if n not in extents}, loop.var: 1}), c)
             for i, c, _ in accesses]  # fmt: skip
    low, high = min(s[0] for s, _ in spans), max(s[1] + c for s, c in spans)
    if stride >= high - low:
        return True
    return _enumerate(loop, accesses, extents)


def _enumerate(loop: Loop, accesses: list[Access], extents: dict[str, int]) -> bool:
    """The exact answer, by marking for every element the iteration that owns it."""
    inner: list[tuple[np.ndarray, bool]] = []  # type: ignore[type-arg]
    total = 0
    for index, count, store in accesses:
        points = np.arange(count)
        for name, coefficient in index.terms:
            if name != loop.var and name in extents:
                points = (points[:, None] + coefficient * np.arange(extents[name])[None, :]).ravel()
                if points.size > _MAX_ENUMERATED:
                    return False
        total += points.size
        inner.append((points + index.const, store))
    if total * loop.extent > _MAX_ENUMERATED * 4:
        return _enumerate_by_difference(loop, inner, abs(dict(accesses[0][0].terms).get(loop.var, 0)))
    stride = dict(accesses[0][0].terms).get(loop.var, 0)
    low = min(int(p.min()) for p, _ in inner) + min(0, stride * (loop.extent - 1))
    high = max(int(p.max()) for p, _ in inner) + max(0, stride * (loop.extent - 1))
    owner = np.full(high - low + 1, -1, np.int64)
    for store_pass in (True, False):
        for points, store in inner:
            if store != store_pass:
                continue
            for i in range(loop.extent):
                at = points + stride * i - low
                seen = owner[at]
                if ((seen != -1) & (seen != i)).any():
                    return False
                if store:
                    owner[at] = i
    return True


def _enumerate_by_difference(loop: Loop, inner: list[tuple[np.ndarray, bool]], stride: int) -> bool:  # type: ignore[type-arg]
    """As `_enumerate`, for long loops: two iterations d apart meet where two offsets differ by d * stride."""
    if stride == 0:
        return False
    stores = np.unique(np.concatenate([p for p, s in inner if s]))
    touched = np.unique(np.concatenate([p for p, _ in inner]))
    reach = int(max(touched.max() - stores.min(), stores.max() - touched.min()))
    for d in range(1, min(loop.extent - 1, reach // stride) + 1):
        for shifted in (stores + d * stride, stores - d * stride):
            if np.isin(shifted, touched, assume_unique=True).any():
                return False
    return True
