"""Proof that a Program is sound: types, lane counts, registers, every address inside its tensor, no races.

What passes runs in every engine without fault and gives one answer; what fails is refused with the instruction named.
Records of a program hold plain data that can't change (`isa_models.records.plain`), so what was proved stays proved.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from math import prod

from isa_models import ProgramError, SimdnnError
from isa_models.errors import OutOfRegisters, counted
from isa_models.formats import fmt
from isa_models.gpu.platforms import MOST_GRFS, PLATFORMS, RESERVED_GRFS, Platform
from isa_models.instruction import TILE_ROW_BITS
from isa_models.isa import implied
from isa_models.records.plain import MOST
from simdnn.program.apart import verify_apart
from simdnn.program.private import verify_private
from simdnn.program.records import ROLES, Loop, Memory, Op, Place, Program, Register, Straight, Tensor, parts
from simdnn.program.straight import RegisterUse
from simdnn.program.tiles import TILES, rows_of

_MAX_BYTES = 1 << 36
_PROVED = "proved"
_DRAFTS = ContextVar("drafts", default=False)
_TILE_NAMES = frozenset(TILES)
Registers = dict[str, int]  # name -> bits


@contextmanager
def drafts() -> Iterator[None]:
    """Programs made within are drafts: what becomes of them is proved as a whole behind it, so `verify` lets them pass.

    None of them counts as proved: an engine that is given one proves it first.
    """
    before = _DRAFTS.set(True)
    try:
        yield
    finally:
        _DRAFTS.reset(before)


def verify(program: Program) -> Program:
    """The program itself, or `ProgramError` naming the instruction that breaks a rule. Drafts pass (`drafts`)."""
    if type(program) is not Program:
        raise ProgramError(f"a {type(program).__name__}; a simdnn.program.Program is needed")
    if is_proved(program) or _DRAFTS.get():
        return program
    caps = implied(program.isa)
    names = [t.name for t in program.tensors]
    if len(set(names)) != len(names):
        raise ProgramError(f"{program.name}: two tensors of one name among {names}")
    for tensor in program.tensors:
        _verify_tensor(program, tensor)
    configured: tuple[int, ...] | None = None
    for statement in program.body:
        checker = _Checker(program, caps, configured)
        checker.statements(parts((statement,)), {}, {})
        configured = checker.configured
    verify_apart(program, program.parts)
    verify_private(program)
    vars(program)[_PROVED] = True
    return program


def is_proved(program: Program) -> bool:
    """Whether this very object went through `verify`: a copy, or one with another name, is to be proved again."""
    return _PROVED in vars(program)


def _verify_tensor(program: Program, tensor: Tensor) -> None:
    fmt(tensor.dtype)
    if tensor.kind not in ("input", "output", "scratch", "private", "constant"):
        raise ProgramError(f"{program.name}: tensor {tensor.name} has kind {tensor.kind!r}")
    if tensor.role not in ("", *ROLES):
        raise ProgramError(f"{program.name}: tensor {tensor.name} has role {tensor.role!r}; one of {ROLES}, or none")
    if tensor.size < 1 or tensor.nbytes > _MAX_BYTES:
        allowed = f"as it is padded has {tensor.size} elements; 1 to {_MAX_BYTES} bytes work"
        raise ProgramError(f"{program.name}: tensor {tensor.name} {allowed}")
    if fmt(tensor.dtype).bits % 8:
        raise ProgramError(f"{program.name}: tensor {tensor.name} of {tensor.dtype}: store nibbles as u8")
    if tensor.kind == "constant" and len(tensor.data) != tensor.nbytes:
        raise ProgramError(f"{program.name}: constant {tensor.name} holds {len(tensor.data)} of {tensor.nbytes} bytes")
    if tensor.kind != "constant" and tensor.data:
        raise ProgramError(f"{program.name}: {tensor.kind} {tensor.name} holds data, which only a constant does")


class _Checker:
    """One walk over a top-level statement, with the registers defined so far and the loops around."""

    def __init__(self, program: Program, caps: frozenset[str], configured: tuple[int, ...] | None) -> None:
        self.program = program
        self.caps = caps
        self.platform = PLATFORMS.get(program.isa)
        self.configured = configured  # rows of each tile register
        self.limit = 32 if "avx512_core" in caps else 16
        self.names: dict[str, int] = {}  # register -> bits
        self.written: set[str] = set()  # registers, by the loop that is being walked over
        self.spans: dict[tuple[tuple[str, int], ...], tuple[int, int]] = {}  # by an index's terms, in that loop
        self.sizes = {tensor.name: (fmt(tensor.dtype).bits, tensor.size) for tensor in program.tensors}
        self.read_only = {tensor.name for tensor in program.tensors if tensor.kind in ("input", "constant")}

    def fail(self, op: object, why: str) -> ProgramError:
        return ProgramError(f"{self.program.name}: `{op}`: {why}")

    def fail_loop(self, loop: Loop, why: str) -> ProgramError:
        return self.fail(f"for {loop.var} < {loop.extent}", why)

    def statements(self, body: Sequence[Straight | Loop], defined: Registers, extents: dict[str, int]) -> None:
        for part in body:
            if type(part) is Loop:
                self.loop(part, defined, extents)
            else:
                self.straight(part, defined, extents)  # type: ignore[arg-type]  # ops

    def straight(self, ops: Straight, defined: Registers, extents: dict[str, int]) -> None:
        """Ops in a row. Where ops of such forms were sound before, their addresses are left to look at; where each of
        their forms was, their registers, too.
        """
        try:
            key = self.program.isa, self.configured, ops.forms
        except SimdnnError:
            key = None  # an instruction that is none
        use = _USES.get(key)
        if use is None and key is not None and (use := self.use_of(ops)) is not None:
            _keep_use(key, use)
        if use is not None and self.admits(use, defined):
            defined.update(use.leaves)
            self.written.update(use.leaves)
            self.accesses(ops, extents)
            return
        for op in ops:  # one after the other, so that the first that breaks a rule is named
            self.op(op, defined, extents)
        configures = any([op.definition.configures for op in ops])  # to what it reads, which may be another constant
        if key is not None and not configures and (use := RegisterUse.of(ops)) is not None:
            _keep_use(key, use)

    def use_of(self, ops: Straight) -> RegisterUse | None:
        """The registers of ops; None where one is of no sound form, or works on tiles, whose shapes are due to their
        place.
        """
        try:
            for number, op in dict(zip(ops.forms, ops, strict=True)).items():
                if op.definition.tile or op.definition.configures:
                    return None
                self.look_at_form(number, op)
        except SimdnnError:
            return None  # it is told of the first op that breaks a rule, which may stand before this one
        return RegisterUse.of(ops)

    def look_at_form(self, number: int, op: Op) -> None:
        """Checks that hold of an op wherever it stands, once for all of its form."""
        sound = _SOUND.get(number)
        if sound is None or self.program.isa not in sound:
            self.form(op)
            if len(_SOUND) >= _MOST_SOUND:
                _SOUND.clear()
            _SOUND[number] = {self.program.isa, *(sound or ())}

    def accesses(self, ops: Straight, extents: dict[str, int]) -> None:
        """The memory operands of straight code: of those that move alike the lowest and the highest address."""
        try:
            for place, stored, op, constants, _ in ops.alike:
                self.memory(op, place, stored, extents, min(constants), max(constants))
        except ProgramError:
            for place, stored, op in ops.accesses:  # one after the other, so that the first that breaks a rule is named
                self.memory(op, place, stored, extents, place.index.const, place.index.const)
            raise

    def admits(self, use: RegisterUse, defined: Registers) -> bool:
        """Whether registers hold what straight code reads, and there is room for those that it writes."""
        if any([defined.get(name, 0) < bits for name, bits in use.needs.items()]):
            return False
        more = {name: bits for name, bits in use.widest.items() if self.names.get(name, 0) < bits}
        if more and not self.has_room(names := self.names | more):
            return False
        self.names = names if more else self.names
        return True

    def loop(self, loop: Loop, defined: Registers, extents: dict[str, int]) -> None:
        if loop.extent < 1:
            raise self.fail_loop(loop, "a loop runs at least once")
        if loop.extent * prod(extents.values()) > MOST:
            raise self.fail_loop(loop, f"more than {MOST} iterations with the loops around it")
        if not loop.var.isidentifier():
            raise self.fail_loop(loop, f"variable name {loop.var!r}")
        if loop.var in extents:
            raise self.fail_loop(loop, f"variable {loop.var} is a loop around it already")
        if not loop.body:
            raise self.fail_loop(loop, "an empty body")
        inside, before, self.written = dict(defined), self.written, set()
        around, self.spans = self.spans, {}
        self.statements(loop.parts, inside, {**extents, loop.var: loop.extent})
        self.spans = around
        for name, bits in defined.items():
            if inside[name] < bits:
                met = f"{bits} bits and comes back with {inside[name]}"
                raise self.fail_loop(loop, f"register {name} is carried with {met}")
        if loop.parallel and (carried := sorted(self.written & defined.keys())):
            raise self.fail_loop(loop, f"a parallel loop cannot carry registers {carried}")
        self.written |= before

    def op(self, op: Op, defined: Registers, extents: dict[str, int]) -> None:
        """Checks what holds of an op wherever it stands, once for all of its kind; then what is due to its place."""
        try:
            form = op.form
        except SimdnnError as error:
            raise self.fail(op.instruction, str(error)) from None
        self.look_at_form(form.number, op)
        definition = form.definition
        if definition.configures:
            self.configure(op, extents)
        elif definition.tile:
            self.tiles(op)
        free = form.is_zero_idiom
        for place in op.srcs:
            if type(place) is Memory:
                self.memory(op, place, False, extents, place.index.const, place.index.const)
            elif not free:
                self.read(op, place, defined)  # type: ignore[arg-type]  # a register
        if type(op.dst) is Register:
            self.write(op, op.dst, defined)
        else:
            place = op.dst
            self.memory(op, place, True, extents, place.index.const, place.index.const)  # type: ignore[union-attr,arg-type]  # no register

    def form(self, op: Op) -> None:
        """Operands by number, type and lanes, whatever registers and addresses they are."""
        definition = op.definition
        if len(op.srcs) != len(definition.operands):
            raise self.fail(op, f"takes {counted(len(definition.operands), 'operand')}")
        if tuple(sorted(n for n, _ in op.immediates)) != tuple(sorted(definition.immediates)):
            raise self.fail(op, f"takes the immediates {definition.immediates}")
        if not all(0 <= number <= op.definition.greatest_immediate for _, number in op.immediates):
            raise self.fail(op, f"an immediate is {op.definition.immediate_range}")
        twice = len(dict(op.choices)) < len(op.choices)
        if twice or any(given not in definition.choices.get(name, ()) for name, given in op.choices):
            raise self.fail(op, f"takes the choices {dict(definition.choices)}")
        if sum(isinstance(p, Memory) for p in (op.dst, *op.srcs)) > 1:
            raise self.fail(op, "at most one memory operand")
        if op.masked and not self.platform and not self.limit == 32 and definition.memory != "masked":
            raise self.fail(op, f"{self.program.isa} has no masks: {op.memory} should be whole")
        caps = definition.caps.get(op.width)
        if self.platform and not definition.whole:  # vectors of any length: register after register
            caps = tuple(cap for brings in definition.caps.values() for cap in brings)
        if caps is None or not self.caps.intersection(caps):
            raise self.fail(op, f"not in {self.program.isa} at {op.width} bits")
        if definition.whole and op.lanes != definition.lanes(op.width):
            raise self.fail(
                op, f"works on whole registers: {counted(definition.lanes(op.width), 'lane')} of its result"
            )
        for operand, place in zip(definition.operands, op.srcs, strict=True):
            lanes = definition.operand_lanes(operand, op.lanes)
            if operand.per and round(lanes / operand.per) != op.lanes:
                raise self.fail(
                    op, f"{counted(op.lanes, 'lane')} of its result take no whole number of {operand.name}'s"
                )
            self.place(op, place, operand.dtype, lanes)
        self.place(op, op.dst, definition.result, op.lanes)
        registers = [place for place in (op.dst, *op.srcs) if type(place) is Register]
        if not definition.tile and not definition.configures and not _TILE_NAMES.isdisjoint(r.name for r in registers):
            raise self.fail(op, f"{', '.join(TILES)} are tiles")
        if definition.destructive and (type(op.dst) is not Register or op.dst != op.srcs[0]):
            raise self.fail(op, "the destination is the accumulator, its first operand")

    def configure(self, op: Op, extents: dict[str, int]) -> None:
        """Sets the tiles' shapes for all that follows, in every thread: so `op` stands outside all loops."""
        (source,) = op.srcs
        tensor = self.program.tensor.get(source.tensor) if isinstance(source, Memory) else None
        if extents or tensor is None or tensor.kind != "constant":
            raise self.fail(op, "tiles are configured outside all loops, from a constant")
        try:
            self.configured = rows_of(tensor.data)
        except ValueError as error:
            raise self.fail(op, str(error)) from None

    def tiles(self, op: Op) -> None:
        """Registers as they are configured, all different, and memory in rows."""
        registers = [p for p in (op.dst, *op.srcs[op.definition.destructive :]) if isinstance(p, Register)]
        if self.configured is None:
            raise self.fail(op, "no ldtilecfg before it")
        for register in registers:
            if register.name not in TILES:
                raise self.fail(op, f"{register.name} is none of {', '.join(TILES)}")
            rows = self.configured[TILES.index(register.name)]
            if register.bits != rows * TILE_ROW_BITS:
                raise self.fail(op, f"{register} should have the {rows} rows of 64 bytes it is configured with")
        if len({register.name for register in registers}) < len(registers):
            raise self.fail(op, "a tile twice")
        memory = op.memory
        if memory and (memory.bits != memory.rows * TILE_ROW_BITS or memory.rows != op.rows):
            raise self.fail(op, f"{memory} should have {op.rows} rows of 64 bytes")

    def place(self, op: Op, place: Place, dtype: str, lanes: int) -> None:
        """Type and lane count."""
        if place.dtype != dtype:
            raise self.fail(op, f"{place} should be {dtype}")
        if isinstance(place, Register):
            if place.lanes != lanes or lanes < 1:
                raise self.fail(op, f"{place} should have {counted(lanes, 'lane')}")
            if place.bits % 8:
                raise self.fail(op, f"{place} is no whole number of bytes")
            return
        if not 1 <= place.lanes <= lanes:
            raise self.fail(op, f"{place} should have 1 to {lanes} lanes")
        if place.rows != 1 and not op.definition.tile:
            raise self.fail(op, f"{place}: only tiles have rows")

    def memory(self, op: Op, place: Memory, stored: bool, extents: dict[str, int], first: int, last: int) -> None:
        """The range of the addresses of an operand, and of others like it, as the constants of their indices go from
        `first` to `last`; and that no tensor is stored to that is only read.
        """
        if place.tensor not in self.sizes:
            raise self.fail(op, f"no tensor {place.tensor!r}")
        (unit, size), bits = self.sizes[place.tensor], place.bits
        if bits % (unit * place.rows):
            raise self.fail(op, f"{place} is no whole number of {self.program.tensor[place.tensor].dtype}")
        span = self.spans.get(place.index.terms)  # which rows of a tile have in common
        if span is None:
            span = self.spans[place.index.terms] = self.span(op, place, extents)
        if abs(place.stride) > _MAX_BYTES:
            raise self.fail(op, f"{place}: steps of more than {_MAX_BYTES} elements")
        reach = place.stride * (place.rows - 1)
        low, high = first + span[0] + min(0, reach), last + span[1] + max(0, reach) + bits // place.rows // unit - 1
        if low < 0 or high >= size:
            raise self.fail(op, f"addresses {low} .. {high} of {place.tensor}, which has 0 .. {size - 1}")
        if stored and place.tensor in self.read_only:
            raise self.fail(op, f"{place.tensor} is read only")

    def span(self, op: Op, place: Memory, extents: dict[str, int]) -> tuple[int, int]:
        """How far the loops around move an operand, down and up, from where their variables are zero."""
        unknown = [name for name, _ in place.index.terms if name not in extents]
        if unknown:
            raise self.fail(op, f"index variables {unknown} are not loops around it")
        if max([abs(coefficient) for _, coefficient in place.index.terms], default=0) > _MAX_BYTES:
            raise self.fail(op, f"{place}: steps of more than {_MAX_BYTES} elements")
        low, high = place.index.range(extents)
        return low - place.index.const, high - place.index.const

    def read(self, op: Op, register: Register, defined: Registers) -> None:
        held = defined.get(register.name)
        if held is None:
            raise self.fail(op, f"register {register.name} is read before it is written")
        if held < register.bits:
            raise self.fail(op, f"register {register.name} holds {held} bits, not {register.bits}")

    def write(self, op: Op, register: Register, defined: Registers) -> None:
        name, bits = register.name, register.bits
        if not name.isidentifier():
            raise self.fail(op, f"register name {name!r}")
        defined[name] = bits
        self.written.add(name)
        if op.definition.ahead:
            return  # no register of the CPU's: no value comes
        if name in _TILE_NAMES or self.names.get(name, 0) >= bits:
            return
        self.names[name] = bits
        if self.has_room(self.names):
            return
        if not self.platform:
            why = f"more than the {self.limit} vector registers of {self.program.isa}"
        else:
            taken, size = _grfs(self.names, self.platform), self.platform.grf_bytes
            why = f"{taken} registers of {size} bytes; a thread has {MOST_GRFS}"
        raise OutOfRegisters(str(self.fail(op, why)))

    def has_room(self, names: Registers) -> bool:
        """Whether the register file has room for all these."""
        return _grfs(names, self.platform) <= MOST_GRFS if self.platform else len(names) <= self.limit


def _grfs(names: Registers, platform: Platform) -> int:
    """All registers of a thread, in whole GRFs, next to those that hold its addresses and loop counters."""
    unit = 8 * platform.grf_bytes
    return sum([-(-bits // unit) for bits in names.values()]) + RESERVED_GRFS


def _keep_use(key: object, use: RegisterUse) -> None:
    if len(_USES) >= _MOST_USES:
        _USES.clear()
    _USES[key] = use


_SOUND: dict[int, set[str]] = {}  # forms of ops that have been looked at, by number: the ISA caps under which
_MOST_SOUND = 1 << 16
_USES: dict[object, RegisterUse] = {}  # of straight code that is sound where registers admit it
_MOST_USES = 1 << 13
