"""The LLVM reading of the algebra: a Value is a name in LLVM IR text, and every operation appends a line.

Equal expressions are emitted once (hash consing): unpacking a register that many instructions share costs one line,
which keeps the text small and the compilation short.
"""

from __future__ import annotations

import functools
import struct
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from isa_models.algebra import Value
from isa_models.formats import fmt
from isa_models.isa import host_caps
from isa_models.readings.alarm import Alarms
from isa_models.readings.lookups import lookup_function
from isa_models.readings.pairs import WordHalf, added, halves, quarters

_FLOATS = {"f32": "float", "f64": "double"}


ZERO = "zeroinitializer"  # LLVM's zero of any type
ANY = "any"  # zero has every property that is ever assured


@functools.cache
def lane_type(dtype: str) -> str:
    """LLVM's type of one lane. f16 and bf16 are only moved and taken apart, so they are plain bits."""
    return _FLOATS.get(dtype) or f"i{fmt(dtype).bits}"


@functools.cache
def vector_type(dtype: str, lanes: int) -> str:
    """LLVM's type of a vector: `lanes` elements."""
    return f"<{lanes} x {lane_type(dtype)}>"


_SPREAD = 16, 8  # lanes of a register that one lane of another fills

Carried = list[tuple["LlvmValue", "LlvmValue", "LlvmValue"]]  # value before a loop, its phi, value at the body's end


class Condition(NamedTuple):
    """A test of all elements of an operand's source, as lanes of a type."""

    source: str
    dtype: str
    test: Callable[..., LlvmValue]
    arguments: tuple[Any, ...]


class Emitter:
    """Lines of one LLVM function, with fresh names, scopes of known expressions and the declarations they need.

    `optimistic` code takes every shortcut and returns whether one may have been wrong (see `alarm`); `careful` code has
    none.
    """

    def __init__(self, optimistic: bool = False, careful: bool = False) -> None:
        self.lines: list[str] = []
        self.declarations: dict[str, None] = {}
        self.block = "entry"
        self._count = 0
        self._known: list[dict[str, str]] = [{}]
        self.alarms = Alarms(self) if optimistic else None
        self.careful = careful
        self.assured: set[tuple[str, str]] = set()  # (value's name, fact)
        self.sources: Mapping[str, int] = {}  # whose elements somebody looks at ahead, and the bits of one
        self.asked: dict[Condition, None] = {}  # of these
        self.places: list[str] | None = None  # allocations of vectors whose lanes are spread from memory, if they are

    def name(self, prefix: str = "v") -> str:
        self._count += 1
        return f"%{prefix}{self._count}"

    def line(self, text: str) -> None:
        self.lines.append("  " + text)

    def start(self, label: str) -> None:
        self.lines.append(f"{label}:")
        self.block = label

    def push(self) -> None:
        """Enter blocks that do not dominate what follows them."""
        self._known.append({})

    def pop(self) -> None:
        self._known.pop()

    def loop(self, start: str, stop: str, inside: Callable[[str], Carried]) -> None:
        """A loop over a counter, at least once; `inside` emits its body and says what it carries."""
        head, done = self.name("loop")[1:], self.name("done")[1:]
        before, counter, following = self.block, self.name("i"), self.name("i")
        self.line(f"br label %{head}")
        self.start(head)
        slot = len(self.lines)
        self.line("")
        self.push()
        if self.alarms:
            self.alarms.enter()
        carried = inside(counter)
        phis = self.alarms.leave(before, carried) if self.alarms else []
        self.pop()
        phis.append(f"  {counter} = phi i64 [ {start}, %{before} ], [ {following}, %{self.block} ]")
        for first, phi, last in carried:
            phis.append(f"  {phi.name} = phi {phi.type} [ {first.name}, %{before} ], [ {last.name}, %{self.block} ]")
        self.lines[slot] = "\n".join(phis)
        self.line(f"{following} = add i64 {counter}, 1")
        more = self.name()
        self.line(f"{more} = icmp slt i64 {following}, {stop}")
        self.line(f"br i1 {more}, label %{head}, label %{done}")
        self.start(done)

    def value(self, expression: str, here: bool = False) -> str:
        """The name of a pure expression, emitted now unless a dominating block has it; with `here` unless this one has,
        since LLVM looks at one block when it makes one instruction of several.
        """
        if found := self._met(expression, here):
            return found
        name = self.name()
        self.line(f"{name} = {expression}")
        self._known[-1][expression] = name
        return name

    def _met(self, key: str, here: bool = False) -> str | None:
        """The name under which a dominating block, or with `here` this one, has something."""
        for scope in self._known[-1:] if here else reversed(self._known):
            if key in scope:
                return scope[key]
        return None

    def place_of(self, vector: LlvmValue) -> str:
        """Memory that holds a vector, stored there now unless a dominating block did that."""
        key = f"place of {vector.name}"
        if found := self._met(key):
            return found
        assert self.places is not None
        place = self._known[-1][key] = self.name("place")
        self.places.append(f"  {place} = alloca {vector.type}, align 64")
        self.line(f"store {vector.type} {vector.name}, ptr {place}, align 64")
        return place

    def load_float(self, place: str) -> str:
        """A load of four bytes, of what no store in between changes."""
        return self.value(f"load float, ptr {place}, align 4", here=True)

    def call(self, result: str, function: str, *arguments: tuple[str, str]) -> str:
        """A pure call of an intrinsic, declared on first use; arguments are (type, name)."""
        self.declarations[f"declare {result} @{function}({', '.join(t for t, _ in arguments)})"] = None
        return self.value(f"call {result} @{function}({', '.join(f'{t} {v}' for t, v in arguments)})")


class LlvmValue(Value):
    """A vector of LLVM's by its name in the text: the reading of the algebra that becomes machine code."""

    def __init__(self, emitter: Emitter, name: str, dtype: str, lanes: int) -> None:
        self.emitter = emitter
        self.name = name
        self.dtype = dtype
        self.lanes = lanes
        self.number: int | float | None = None  # of a literal
        self.test: tuple[str, LlvmValue, int] | None = None  # of a b1 value: ("nan", x, 0) or ("below", x, bound)
        self.word: LlvmValue | None = None  # of every fourth byte: the same as s16
        self.half: WordHalf | None = None  # of words that stand in pairs, and their products
        self.addends: tuple[LlvmValue, dict[WordHalf, LlvmValue]] | None = None  # of a sum: products without partners
        self.spread: tuple[LlvmValue, int] | None = None  # a value and its lane that is in all lanes of this one
        self.halves: tuple[LlvmValue, LlvmValue] | None = None  # that it was put together from
        self.viewed: LlvmValue | None = None  # whose bits it has
        self.source = ""  # a tensor or operand that all its lanes are elements of
        self.address = ""  # a pointer to its bytes, where they were loaded whole

    @property
    def type(self) -> str:
        return vector_type(self.dtype, self.lanes)

    def _new(self, expression: str, dtype: str, lanes: int | None = None) -> LlvmValue:
        return LlvmValue(self.emitter, self.emitter.value(expression), dtype, self.lanes if lanes is None else lanes)

    def like(self, name: str, lanes: int) -> LlvmValue:
        """Another vector of this type of lanes, by its name."""
        return LlvmValue(self.emitter, name, self.dtype, lanes)

    def literal(self, number: int | float) -> LlvmValue:
        value = LlvmValue(self.emitter, constant(self.dtype, self.lanes, number), self.dtype, self.lanes)
        value.number = number
        return value

    def _hands_on(self, *operands: LlvmValue) -> LlvmValue:
        """This float, noted as NaN wherever one of `operands` is."""
        if self.emitter.alarms:
            self.emitter.alarms.hands_on[self.name] = tuple(o.name for o in operands)
        return self

    def assured(self, fact: str) -> bool:
        known = self.emitter.assured
        return self.emitter.alarms is not None and (
            self.name == ZERO or (self.name, fact) in known or (self.name, ANY) in known
        )

    def facts(self) -> list[str]:
        """All that is assured of this value."""
        if self.name == ZERO:
            return [ANY]
        return [fact for name, fact in self.emitter.assured if name == self.name]

    def assure(self, fact: str) -> LlvmValue:
        self.emitter.assured.add((self.name, fact))
        return self

    def view(self, dtype: str) -> LlvmValue:
        lanes = self.lanes * self.format.bits // fmt(dtype).bits
        if vector_type(dtype, lanes) == self.type or self.name == ZERO:
            same = LlvmValue(self.emitter, self.name, dtype, lanes)
            same.source = self.source
            return same
        result = self._new(f"bitcast {self.type} {self.name} to {vector_type(dtype, lanes)}", dtype, lanes)
        result.viewed, result.source = self, self.source
        for fact in self.facts():
            result.assure(fact)
        return result._hands_on(self) if lanes == self.lanes else result

    def to(self, dtype: str) -> LlvmValue:
        source, target = self.format, fmt(dtype)
        if dtype == self.dtype:
            return self
        if self.word and dtype == "s32":
            return self.word.to(dtype)
        if "f16" in (self.dtype, dtype):
            return self._half(dtype)
        if source.is_float and target.is_float:
            op = "fpext" if target.bits > source.bits else "fptrunc"
        elif source.is_float:
            op = "fptosi" if target.signed else "fptoui"
        elif target.is_float:
            op = "sitofp" if source.signed else "uitofp"
        elif target.bits == source.bits:
            return LlvmValue(self.emitter, self.name, dtype, self.lanes)
        elif target.bits < source.bits:
            op = "trunc"
        else:
            op = "sext" if source.signed else "zext"
        result = self._new(f"{op} {self.type} {self.name} to {vector_type(dtype, self.lanes)}", dtype)
        result.half = self.half
        return result

    def _half(self, dtype: str) -> LlvmValue:
        """f16 lanes as f32, or f32 lanes as f16, which are plain bits outside of the conversion."""
        half, bits = f"<{self.lanes} x half>", f"<{self.lanes} x i16>"
        if (self.dtype, dtype) == ("f16", "f32"):
            plain = self.emitter.value(f"bitcast {bits} {self.name} to {half}")
            return self._new(f"fpext {half} {plain} to {vector_type(dtype, self.lanes)}", dtype)
        assert (self.dtype, dtype) == ("f32", "f16"), (self.dtype, dtype)
        rounded = self.emitter.value(f"fptrunc {self.type} {self.name} to {half}")
        return self._new(f"bitcast {half} {rounded} to {bits}", dtype)

    def converted(self, dtype: str) -> LlvmValue | None:
        if (self.dtype, dtype) == ("f32", "bf16"):
            bits = self.view("u32")
            rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16
            return self.is_nan().where((bits >> 16) | 0x40, rounded).to("u16").view("bf16")
        if "avx2" not in host_caps():  # with which F16C comes
            return None
        if (self.dtype, dtype) == ("f32", "f16"):
            return self._half("f16")
        if (self.dtype, dtype) != ("f16", "f32"):
            return None
        wide = self._half("f32")
        bits, quiet = wide.view("u32"), 1 << 22  # which the host sets in NaNs
        own = self.view("u16").to("u32") << 13
        return wide.is_nan().where((bits & ~quiet & 0xFFFFFFFF) | (own & quiet), bits).view("f32")

    def _binary(self, op: str, other: Value) -> LlvmValue:
        assert isinstance(other, LlvmValue) and other.type == self.type, (op, self.dtype, other.dtype)
        if self.format.is_float:
            return self._new(f"f{op} {self.type} {self.name}, {other.name}", self.dtype)._hands_on(self, other)
        if op == "add" and other.half:
            return added(self, other)
        if op == "shr":
            op = "ashr" if self.format.signed else "lshr"
        result = self._new(f"{op} {self.type} {self.name}, {other.name}", self.dtype)
        if op == "mul" and self.half:
            result.half = self.half.times(other.half)
        return result

    def plus(self, other: LlvmValue) -> LlvmValue:
        """The sum of two integers, just so."""
        return self._new(f"add {self.type} {self.name}, {other.name}", self.dtype)

    def split(self, n: int) -> tuple[LlvmValue, ...]:
        parts = super().split(n)
        if n == 4 and self.format.bits == 8 and not self.format.is_float:
            for part, word in zip(parts, quarters(self), strict=True):
                part.word = word
        if n == 2 and self.dtype == "s16":
            return tuple(halves(self))
        return parts

    def _compare(self, op: str, other: Value) -> LlvmValue:
        assert isinstance(other, LlvmValue) and other.dtype == self.dtype and other.lanes == self.lanes
        if self.format.is_float:
            code = "fcmp " + ("une" if op == "ne" else "o" + op)
        elif op in ("eq", "ne"):
            code = "icmp " + op
        else:
            code = "icmp " + ("s" if self.format.signed else "u") + op
        result = self._new(f"{code} {self.type} {self.name}, {other.name}", "b1")
        if code == "fcmp une" and self.name == other.name:
            result.test = ("nan", self, 0)
        elif code == "icmp ult" and isinstance(other.number, int) and other.number > 0:
            result.test = ("below", self, other.number)
        return result

    def minimum(self, other: Value | int) -> LlvmValue:
        return self._extreme("min", other)

    def maximum(self, other: Value | int) -> LlvmValue:
        return self._extreme("max", other)

    def _extreme(self, op: str, other: Value | int) -> LlvmValue:
        right = other if isinstance(other, LlvmValue) else self.literal(other)  # type: ignore[arg-type]
        sign = "s" if self.format.signed else "u"
        return self._intrinsic(f"llvm.{sign}{op}", self, right)

    def _intrinsic(self, name: str, *arguments: LlvmValue) -> LlvmValue:
        suffix = f"v{self.lanes}" + (f"f{self.format.bits}" if self.format.is_float else f"i{self.format.bits}")
        result = self.emitter.call(self.type, f"{name}.{suffix}", *((a.type, a.name) for a in arguments))
        return LlvmValue(self.emitter, result, self.dtype, self.lanes)

    def fma(self, b: Value, c: Value) -> LlvmValue:
        assert isinstance(b, LlvmValue) and isinstance(c, LlvmValue)
        return self._intrinsic("llvm.fma", self, b, c)._hands_on(self, b, c)

    def round_even(self) -> LlvmValue:
        return self._intrinsic("llvm.roundeven", self)

    def sqrt(self) -> LlvmValue:
        return self._intrinsic("llvm.sqrt", self)

    def where(self, yes: Value, no: Value) -> LlvmValue:
        assert isinstance(yes, LlvmValue) and isinstance(no, LlvmValue) and yes.dtype == no.dtype
        expression = f"select {self.type} {self.name}, {yes.type} {yes.name}, {no.type} {no.name}"
        return LlvmValue(self.emitter, self.emitter.value(expression), yes.dtype, yes.lanes)

    def meets(self, test: Callable[..., LlvmValue], *arguments: Any) -> LlvmValue:
        if self.emitter.sources.get(self.source) != self.format.bits:
            return test(self, *arguments)
        self.emitter.asked[Condition(self.source, self.dtype, test, arguments)] = None
        return LlvmValue(self.emitter, ZERO, "b1", self.lanes)

    def permute(self, lanes: Sequence[int], here: bool = False) -> LlvmValue:
        if self.emitter.places is not None and self.dtype in ("f32", "u32"):
            spread, each = _spread(lanes)
            if spread:
                return self.view("f32")._from_memory(spread, each).view(self.dtype)
        expression = f"shufflevector {self.type} {self.name}, {self.type} poison, {_mask(tuple(lanes))}"
        result = LlvmValue(self.emitter, self.emitter.value(expression, here), self.dtype, len(lanes))
        result.spread = (self, lanes[0]) if len(set(lanes)) == 1 else None
        if self.format.bits % self.emitter.sources.get(self.source, 1) == 0:  # whole elements
            result.source = self.source
        return result

    def part(self, number: int, parts: int) -> LlvmValue:
        """One of equal parts, each of neighbouring lanes; under the names that are there, so that what is done to parts
        that are alike is done once.
        """
        lanes = self.lanes // parts
        if parts == 1:
            return self
        if self.viewed:
            return self.viewed.part(number, parts).view(self.dtype)
        if self.spread:
            source, lane = self.spread
            return source.permute([lane] * lanes)
        if self.halves:
            half, within = divmod(number, parts // 2)
            return self.halves[half].part(within, parts // 2)
        return self.permute(range(number * lanes, (number + 1) * lanes))

    def _from_memory(self, lanes: Sequence[int], each: int) -> LlvmValue:
        """Each lane named in all `each` lanes of a register, one register behind the other."""
        emit, place = self.emitter, self.emitter.place_of(self)
        found: list[LlvmValue] = []
        for lane in lanes:
            at = emit.value(f"getelementptr float, ptr {place}, i64 {lane}", here=True)
            one = emit.value(f"insertelement <{each} x float> poison, float {emit.load_float(at)}, i32 0", here=True)
            zeros = f"<{each} x i32> zeroinitializer"
            whole = f"shufflevector <{each} x float> {one}, <{each} x float> poison, {zeros}"
            found.append(LlvmValue(emit, emit.value(whole, here=True), self.dtype, each))
        while len(found) > 1:
            found = [low.concat(high) for low, high in zip(found[::2], found[1::2], strict=True)]
        return found[0]

    def concat(self, other: Value) -> LlvmValue:
        assert isinstance(other, LlvmValue) and other.type == self.type, "concat takes equal lane counts"
        n = 2 * self.lanes
        expression = f"shufflevector {self.type} {self.name}, {other.type} {other.name}, {_mask(tuple(range(n)))}"
        result = self._new(expression, self.dtype, n)
        result.halves = (self, other)
        return result

    def lookup(self, index: Value) -> LlvmValue:
        assert isinstance(index, LlvmValue)
        table, places = (self.lanes, lane_type(self.dtype)), (index.lanes, lane_type(index.dtype))
        name, definition = lookup_function(*table, *places)
        self.emitter.declarations[definition] = None
        result = vector_type(self.dtype, index.lanes)
        return self._new(
            f"call {result} @{name}({self.type} {self.name}, {index.type} {index.name})", self.dtype, index.lanes
        )

    def shortcut(self, usual: Callable[[], tuple[Value, Sequence[Value]]], careful: Callable[[], Value]) -> LlvmValue:
        emit = self.emitter
        if emit.careful:
            result = careful()
            assert isinstance(result, LlvmValue)
            return result
        value, conditions = usual()
        assert isinstance(value, LlvmValue)
        if emit.alarms:
            for condition in conditions:
                assert isinstance(condition, LlvmValue)
                emit.alarms.watch(condition)
            return value
        some = "false"
        for condition in conditions:
            assert isinstance(condition, LlvmValue)
            any_ = emit.call("i1", f"llvm.vector.reduce.or.v{condition.lanes}i1", (condition.type, condition.name))
            some = any_ if some == "false" else emit.value(f"or i1 {some}, {any_}")
        before, slow, join = emit.block, emit.name("rare")[1:], emit.name("join")[1:]
        emit.line(f"br i1 {some}, label %{slow}, label %{join}, !prof !0")
        emit.start(slow)
        emit.push()
        fixed = careful()
        emit.pop()
        assert isinstance(fixed, LlvmValue)
        after = emit.block
        emit.line(f"br label %{join}")
        emit.start(join)
        joined = emit.name()
        emit.line(f"{joined} = phi {value.type} [ {value.name}, %{before} ], [ {fixed.name}, %{after} ]")
        return LlvmValue(emit, joined, value.dtype, value.lanes)


@functools.lru_cache(maxsize=1 << 12)
def _mask(lanes: tuple[int, ...]) -> str:
    """The numbers of lanes as LLVM writes them.

    >>> _mask((3, 0))
    '<2 x i32> <i32 3, i32 0>'
    """
    return f"<{len(lanes)} x i32> <{', '.join([f'i32 {i}' for i in lanes])}>"


def _spread(lanes: Sequence[int]) -> tuple[list[int], int]:
    """The lanes that fill one register, or two, four or eight, each, and how many lanes that has; none where lanes are
    mixed.

    >>> _spread([3] * 16 + [4] * 16), _spread(range(16))
    (([3, 4], 16), ([], 8))
    """
    each = _SPREAD[-1]
    for each in _SPREAD:
        found = [lanes[i : i + each] for i in range(0, len(lanes), each)]
        if len(lanes) % each == 0 and len(found) in (1, 2, 4, 8) and all(len(set(one)) == 1 for one in found):
            return [one[0] for one in found], each
    return [], each


def constant(dtype: str, lanes: int, number: int | float) -> str:
    """A splat in LLVM's text. A float is written as the bits of the double of the same value."""
    form = fmt(dtype)
    if dtype in _FLOATS:
        value = float(number)
        if dtype == "f32":
            value = struct.unpack("<f", struct.pack("<f", value))[0]
        text = f"0x{struct.unpack('<Q', struct.pack('<d', value))[0]:016X}"
    elif form.is_truth:
        text = "true" if number else "false"
    elif form.is_float:  # plain bits
        text = str(int(np.array(number, form.dtype).view(f"u{form.dtype.itemsize}")))
    else:
        text = str(int(number) & ((1 << form.bits) - 1))
    return f"splat ({lane_type(dtype)} {text})"
