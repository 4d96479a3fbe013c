"""Proof that a Program is sound: types, lane counts, registers, every address inside its tensor, no races.

What passes runs in every engine without fault and gives one answer; what fails is refused with the instruction named.
Records of a program hold plain data that can't change (`isa_models.plain`), so what was proved once stays proved.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import prod

import numpy as np
import numpy.typing as npt

from isa_models import ProgramError, SimdnnError
from isa_models.formats import fmt
from isa_models.gpu.platforms import MOST_GRFS, PLATFORMS, RESERVED_GRFS, Platform
from isa_models.instruction import TILE_ROW_BITS
from isa_models.isa import implied
from isa_models.plain import MOST
from simdnn.program.records import Affine, Loop, Memory, Op, Place, Program, Register, Statement, Tensor
from simdnn.program.tiles import TILES, rows_of

_MAX_BYTES = 1 << 36
_MAX_ENUMERATED = 1 << 24
_SPARSE = 8  # places for each element that is touched, beyond which they are sorted and not marked
_PROVED = "proved"
_TILE_NAMES = frozenset(TILES)
_ROW = "row of a tile"  # no identifier, so no loop's variable
Registers = dict[str, int]  # name -> bits
Elements = npt.NDArray[np.int64]


def verify(program: Program) -> Program:
    """The program itself, or `ProgramError` naming the instruction that breaks a rule."""
    if type(program) is not Program:
        raise ProgramError(f"a {type(program).__name__}; a simdnn.program.Program is needed")
    if is_proved(program):
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
        checker.statements((statement,), {}, {})
        configured = checker.configured
    _verify_parallel(program)
    vars(program)[_PROVED] = True
    return program


def is_proved(program: Program) -> bool:
    """Whether this very object went through `verify`: a copy, or one with another name, is to be proved again."""
    return _PROVED in vars(program)


def _verify_tensor(program: Program, tensor: Tensor) -> None:
    fmt(tensor.dtype)
    if tensor.kind not in ("input", "output", "scratch", "private", "constant"):
        raise ProgramError(f"{program.name}: tensor {tensor.name} has kind {tensor.kind!r}")
    if tensor.size < 1 or tensor.nbytes > _MAX_BYTES:
        raise ProgramError(f"{program.name}: tensor {tensor.name} has {tensor.size} elements; 1 to {_MAX_BYTES} bytes")
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
        if loop.extent < 1:
            raise self.fail(label, "a loop runs at least once")
        if loop.extent * prod(extents.values()) > MOST:
            raise self.fail(label, f"more than {MOST} iterations with the loops around it")
        if not loop.var.isidentifier():
            raise self.fail(label, f"variable name {loop.var!r}")
        if loop.var in extents:
            raise self.fail(label, f"variable {loop.var} is a loop around it already")
        if not loop.body:
            raise self.fail(label, "an empty body")
        inside, before, self.written = dict(defined), self.written, set()
        around, self.spans = self.spans, {}
        self.statements(loop.body, inside, {**extents, loop.var: loop.extent})
        self.spans = around
        for name, bits in defined.items():
            if inside[name] != bits:
                met = f"{bits} bits and comes back with {inside[name]}"
                raise self.fail(label, f"register {name} is carried with {met}")
        if loop.parallel and (carried := sorted(self.written & defined.keys())):
            raise self.fail(label, f"a parallel loop cannot carry registers {carried}")
        self.written |= before

    def op(self, op: Op, defined: Registers, extents: dict[str, int]) -> None:
        """Checks what holds of an op wherever it stands, once for all of its kind; then what is due to its place."""
        try:
            form = op.form
        except SimdnnError as error:
            raise self.fail(op.instruction, str(error)) from None
        sound = _SOUND.get(form.number)
        if sound is None or self.program.isa not in sound:
            self.form(op)
            if len(_SOUND) >= _MOST_SOUND:
                _SOUND.clear()
            _SOUND[form.number] = {self.program.isa, *(sound or ())}
        definition = form.definition
        if definition.configures:
            self.configure(op, extents)
        elif definition.tile:
            self.tiles(op)
        free = form.is_zero_idiom
        for place in op.srcs:
            if type(place) is Memory:
                self.address(op, place, extents)
            elif not free:
                self.read(op, place, defined)  # type: ignore[arg-type]  # a register
        if type(op.dst) is Register:
            self.write(op, op.dst, defined)
        else:
            self.address(op, op.dst, extents)  # type: ignore[arg-type]  # memory
            if self.program.tensor[op.dst.tensor].kind in ("input", "constant"):  # type: ignore[union-attr]
                raise self.fail(op, f"{op.dst.tensor} is read only")  # type: ignore[union-attr]

    def form(self, op: Op) -> None:
        """Operands by number, type and lanes, whatever registers and addresses they are."""
        definition = op.definition
        if len(op.srcs) != len(definition.operands):
            raise self.fail(op, f"takes {len(definition.operands)} operands")
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
            raise self.fail(op, f"works on whole registers: {definition.lanes(op.width)} lanes of its result")
        for operand, place in zip(definition.operands, op.srcs, strict=True):
            self.place(op, place, operand.dtype, definition.operand_lanes(operand, op.lanes))
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
                raise self.fail(op, f"{place} should have {lanes} lanes")
            if place.bits % 8:
                raise self.fail(op, f"{place} is no whole number of bytes")
            return
        if not 1 <= place.lanes <= lanes:
            raise self.fail(op, f"{place} should have 1 to {lanes} lanes")
        if place.rows != 1 and not op.definition.tile:
            raise self.fail(op, f"{place}: only tiles have rows")

    def address(self, op: Op, place: Memory, extents: dict[str, int]) -> None:
        """The range of an operand's addresses."""
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
        first, reach = place.index.const, place.stride * (place.rows - 1)
        low, last = first + span[0] + min(0, reach), first + span[1] + max(0, reach) + bits // place.rows // unit - 1
        if low < 0 or last >= size:
            raise self.fail(op, f"addresses {low} .. {last} of {place.tensor}, which has 0 .. {size - 1}")

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
        if name in _TILE_NAMES or self.names.get(name, 0) >= bits:
            return
        self.names[name] = bits
        if self.platform:
            self.fits_register_file(op, self.platform)
        elif len(self.names) > self.limit:
            raise self.fail(op, f"more than the {self.limit} vector registers of {self.program.isa}")

    def fits_register_file(self, op: Op, platform: Platform) -> None:
        """All registers of a thread, in whole GRFs, next to those that hold its addresses and loop counters."""
        unit = 8 * platform.grf_bytes
        taken = sum(-(-bits // unit) for bits in self.names.values()) + RESERVED_GRFS
        if taken > MOST_GRFS:
            raise self.fail(op, f"{taken} registers of {platform.grf_bytes} bytes; a thread has {MOST_GRFS}")


_SOUND: dict[int, set[str]] = {}  # forms of ops that have been looked at, by number: the ISA caps under which
_MOST_SOUND = 1 << 16


# -- parallel loops: no iteration touches what another one writes ---------------------------------------------------
@dataclass(frozen=True)
class _Access:
    """`count` elements from `index`, by one iteration of a parallel loop; `inner` are the loops inside it."""

    index: Affine
    count: int
    store: bool
    inner: dict[str, int]

    def stride(self, var: str) -> int:
        return dict(self.index.terms).get(var, 0)

    def around(self, var: str) -> Affine:
        """The part of the index that the loops around the parallel one give: fixed for our purpose."""
        return Affine(0, tuple((n, c) for n, c in self.index.terms if n not in self.inner and n != var))

    def span(self) -> tuple[int, int]:
        """First element and the one behind the last, the loops around and the parallel one at zero."""
        low = high = self.index.const
        for name, coefficient in self.index.terms:
            reach = coefficient * (self.inner.get(name, 1) - 1)
            low, high = low + min(0, reach), high + max(0, reach)
        return low, high + self.count

    @property
    def elements(self) -> int:
        """How many elements the access may touch, those met twice counted twice."""
        return self.count * prod(self.inner.get(name, 1) for name, _ in self.index.terms)

    def points(self) -> Elements | None:
        """All elements that the access may touch; None where they are too many to look at."""
        points = np.arange(self.count)
        for name, coefficient in self.index.terms:
            if name in self.inner:
                if points.size * self.inner[name] > _MAX_ENUMERATED:
                    return None
                points = (points[:, None] + coefficient * np.arange(self.inner[name])[None, :]).ravel()
        return points + self.index.const


def _access(program: Program, memory: Memory, store: bool, inner: dict[str, int]) -> _Access:
    """A memory operand with the loops around it; the rows of a tile are one more."""
    count = memory.bits // memory.rows // fmt(program.tensor[memory.tensor].dtype).bits
    if memory.rows == 1:
        return _Access(memory.index, count, store, inner)
    rows = Affine.var(_ROW) * memory.stride
    return _Access(memory.index + rows, count, store, {**inner, _ROW: memory.rows})


def _verify_parallel(program: Program) -> None:
    _verify_loops(program, program.body, True)
    for statement in program.body:
        _verify_private(program, statement)


def _verify_loops(program: Program, body: Sequence[Statement], nest: bool) -> None:
    """`nest`: nothing but parallel loops around, each the only statement of the one around it."""
    for statement in body:
        if isinstance(statement, Loop):
            if statement.parallel and statement.extent > 1:
                _verify_independent(program, statement, nest)
            _verify_loops(program, statement.body, nest and statement.parallel and len(statement.body) == 1)


def _verify_independent(program: Program, loop: Loop, nest: bool) -> None:
    accesses: dict[str, list[_Access]] = {}
    for op, _, loops in _placed_below(loop.body, (), ()):
        if (memory := op.memory) is not None:
            inner = {around.var: around.extent for around in loops}
            accesses.setdefault(memory.tensor, []).append(_access(program, memory, memory is op.dst, inner))
    for tensor, found in accesses.items():
        if nest and program.tensor[tensor].kind == "private":
            continue  # each iteration has its own
        if any(access.store for access in found) and not _keep_apart(loop, found):
            raise ProgramError(
                f"{program.name}: `parallel for {loop.var} < {loop.extent}`: "
                f"cannot show that its iterations keep apart in {tensor}"
            )


def _placed_below(
    body: Sequence[Statement], place: tuple[int, ...], loops: tuple[Loop, ...]
) -> Iterator[tuple[Op, tuple[int, ...], tuple[Loop, ...]]]:
    """Every op below, its position in the body of each loop around it, outermost first, and these loops."""
    for position, part in enumerate(body):
        if isinstance(part, Loop):
            yield from _placed_below(part.body, (*place, position), (*loops, part))
        else:
            yield part, (*place, position), loops


def _keep_apart(loop: Loop, accesses: list[_Access]) -> bool:
    """Whether no element that one iteration stores is touched by another one."""
    strides = {access.stride(loop.var) for access in accesses}
    if len(strides) != 1 or len({access.around(loop.var) for access in accesses}) != 1:
        return False
    stride = abs(strides.pop())
    spans = [access.span() for access in accesses]
    if stride >= max(high for _, high in spans) - min(low for low, _ in spans):
        return True
    if stride == 0 or any(access.elements > _MAX_ENUMERATED for access in accesses):
        return False
    if any(_places_apart(loop, accesses, stride, row) for row in _rows(accesses, stride)):
        return True
    return _differences_apart(loop, accesses, stride)


def _rows(accesses: Sequence[_Access], stride: int) -> set[int]:
    """Steps of other loops beyond an iteration's stride: an iteration may take some columns of rows so far apart."""
    return {abs(step) for access in accesses for _, step in access.index.terms if abs(step) > stride}


def _places_apart(loop: Loop, accesses: Sequence[_Access], stride: int, row: int) -> bool:
    """Whether iterations keep to places of their own in rows of `row` elements, so that they can't meet in any."""
    lows, highs = [], []
    for access in accesses:
        low = high = access.index.const % row
        for name, step in access.index.terms:
            reach = step * (access.inner.get(name, 1) - 1) if step % row else 0
            low, high = low + min(0, reach), high + max(0, reach)
        lows.append(low)
        highs.append(high + access.count)
    width = max(highs) - min(lows)
    return stride >= width and stride * (loop.extent - 1) + width <= row


def _differences_apart(loop: Loop, accesses: list[_Access], stride: int) -> bool:
    """The exact answer: iterations meet where elements differ by one of the stride's first `extent` multiples.

    Among elements of one remainder it is enough to look at neighbours: those further apart differ by more.
    """
    every = [(access.points(), access.store) for access in accesses]
    found = [(points, store) for points, store in every if points is not None]
    if len(found) < len(every):
        return False
    touched, stored = _touched(found)
    order = np.argsort(touched % stride, kind="stable")
    touched, stored = touched[order], stored[order]
    difference = touched[1:] - touched[:-1]
    near = (difference % stride == 0) & (difference > 0) & (difference < stride * loop.extent)
    return not (near & (stored[1:] | stored[:-1])).any()


def _touched(accesses: Sequence[tuple[Elements, bool]]) -> tuple[Elements, npt.NDArray[np.bool_]]:
    """The elements that accesses (their elements, whether they store) touch, in order, and which of them are stored."""
    low = min(int(points.min()) for points, _ in accesses)
    span = max(int(points.max()) for points, _ in accesses) - low + 1
    if span > _SPARSE * sum(points.size for points, _ in accesses):
        touched = _distinct([points for points, _ in accesses])
        stored = np.zeros(touched.size, bool)
        for points, store in accesses:
            if store:
                stored[np.searchsorted(touched, points)] = True
        return touched, stored
    marks = np.zeros(span, np.uint8)
    for wanted, mark in ((False, 1), (True, 2)):
        for points, store in accesses:
            if store == wanted:
                marks[points - low] = mark
    near = np.flatnonzero(marks)
    return near + low, marks[near] == 2


def _distinct(groups: Sequence[Elements]) -> Elements:
    """The elements of all groups, each once and in order: sorted, since NumPy's `unique` hashes, which takes longer."""
    every = np.sort(np.concatenate(groups))
    each: Elements = every[np.concatenate([[True], every[1:] != every[:-1]])]
    return each


# -- private tensors: nothing is read that the same iteration has not stored before -----------------------------------
@dataclass(frozen=True)
class _Step:
    """An access with its place in the text: the position in the body of each loop around it, outermost first."""

    op: Op
    tensor: str
    access: _Access
    place: tuple[int, ...]
    loops: tuple[str, ...]

    def shared(self, later: _Step) -> tuple[str, ...]:
        """The loops around both."""
        count = next(i for i, (a, b) in enumerate(zip(self.place, later.place, strict=False)) if a != b)
        return self.loops[:count]

    def elements(self, fixed: tuple[str, ...]) -> Elements | None:
        """The elements that are touched while the loops named stand still, at their variables' zero."""
        inner = {name: extent for name, extent in self.access.inner.items() if name not in fixed}
        return _Access(self.access.index, self.access.count, self.access.store, inner).points()


def _verify_private(program: Program, statement: Statement) -> None:
    """Each load of a private tensor must be covered by stores that stand before it under the same loops' variables."""
    private = {tensor.name for tensor in program.tensors if tensor.kind == "private"}
    if not private:
        return
    steps: list[_Step] = []
    for op, place, loops in _placed_below((statement,), (), ()):
        if (memory := op.memory) is not None and memory.tensor in private:
            access = _access(program, memory, memory is op.dst, {loop.var: loop.extent for loop in loops})
            steps.append(_Step(op, memory.tensor, access, place, tuple(loop.var for loop in loops)))
    stored = {name: _Stored() for name in private}
    for step in steps:
        if step.access.store:
            stored[step.tensor].add(step)
        elif not stored[step.tensor].covers(step):
            raise ProgramError(f"{program.name}: `{step.op}`: cannot show that it reads what was stored before")


class _Stored:
    """The stores to a private tensor so far, and the elements that those under the same loops' variables write."""

    def __init__(self) -> None:
        self.stores = list[_Step]()
        self.around: dict[tuple[int, ...], dict[tuple[str, ...], list[_Step]]] = {}  # by the place of a body, and loops
        self.written: dict[tuple[tuple[str, ...], tuple[int, ...]], Elements | None] = {}  # by loops and stores

    def add(self, store: _Step) -> None:
        self.stores.append(store)
        self.around.clear()

    def covers(self, load: _Step) -> bool:
        """Whether stores that share the same loops with the load cover it, wherever those loops stand."""
        body = load.place[:-1]
        if body not in self.around:
            found = self.around[body] = {}
            for store in self.stores:
                found.setdefault(store.shared(load), []).append(store)
        return any(self._all_of(load, stores, loops) for loops, stores in self.around[body].items())

    def _all_of(self, load: _Step, stores: Sequence[_Step], loops: tuple[str, ...]) -> bool:
        if any(step.access.stride(name) != load.access.stride(name) for name in loops for step in stores):
            return False
        key = loops, tuple([id(step) for step in stores])
        if key not in self.written:
            every = [step.elements(loops) for step in stores]
            found = [points for points in every if points is not None]
            self.written[key] = _distinct(found) if len(found) == len(every) else None
        read, written = load.elements(loops), self.written[key]
        if read is None or written is None:
            return False
        return bool((written[np.minimum(np.searchsorted(written, read), len(written) - 1)] == read).all())
