"""DPAS, Intel's dot product accumulate systolic: D (M, N) = C + A (M, K) x B (K, N), one instruction.

Source: intel-graphics-compiler, documentation/visa/instructions/DPAS.md and DPASW.md. A form is written as there,
dpas.<B type>.<A type>.<depth>.<repeat count>, and goes on here with what a Program must also know: exec size, result
and accumulator types (one where they are equal, null for none) and the float model: "dpas.s8.u8.8.8.x16.s32".
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, cast

import numpy as np

from isa_models.algebra import Value
from isa_models.errors import InvalidArgument, Unimplemented, counted, unknown_name
from isa_models.formats import fmt, name_of
from isa_models.gpu.naming import WORD, Naming
from isa_models.gpu.platforms import Platform
from isa_models.instruction import FORMS, GPU_REGISTRY, Family, Instruction, Operand, Pieces, element_of
from isa_models.intel_gpu.elements import elements, halves, numbers, quarters, widened
from isa_models.intel_gpu.packing import pack_a, pack_b
from isa_models.intel_gpu.platforms import PLATFORMS
from isa_models.intel_gpu.sums import FLOAT_MODELS, narrow
from isa_models.machines.provenance import Confidence
from isa_models.readings.arrays import Array, ArrayValue, held, unwarned

DEPTH = 8
MOST_REPEATS = 8
EXEC_SIZES = (8, 16)
INTEGERS = ("u8", "s8", "u4", "s4", "u2", "s2")
FLOATS = ("bf16", "f16", "tf32")
DEFAULT_MODEL = "sequential"  # how floats are added up where nobody says
ACCUMULATORS = ("s32", "u32", "f32", "bf16", "f16")
FORM = Naming(
    f"dpas.{{b}}.{{a}}.{DEPTH}.{{m}}.x{{n}}.{{dst}}[.{{acc}}][.{{model}}]",
    b=WORD,
    a=WORD,
    dst=WORD,
    acc=(*ACCUMULATORS, "null"),
    model=WORD,
)
_SUMS = 64  # of floats that are compiled together
_MANUAL = "IGC documentation/visa/instructions/DPAS.md"


@dataclass(frozen=True)
class DpasShape:
    """A form of DPAS: types of the packed operands, result, accumulator ("null": none), sizes, float model."""

    b: str
    a: str
    dst: str
    acc: str
    m: int
    n: int
    model: str = ""  # of floats

    @property
    def ops(self) -> int:
        """Elements of K that a stage takes: as many as the wider operand has in a dword, eight at most."""
        return min(32 // max(fmt(self.a).bits, fmt(self.b).bits), 8)

    @property
    def k(self) -> int:
        return DEPTH * self.ops

    @property
    def integer(self) -> bool:
        return self.a in INTEGERS

    @property
    def a_words(self) -> int:
        """Dwords of A, packed."""
        return self.m * self.k * fmt(self.a).bits // 32

    @property
    def b_words(self) -> int:
        """Dwords of B, packed."""
        return self.k * self.n * fmt(self.b).bits // 32

    @property
    def name(self) -> str:
        return FORM.of(**{**vars(self), "acc": "" if self.acc == self.dst else self.acc})

    @property
    def confidence(self) -> Confidence:
        """How far to trust the bits: integers are documented, the rounding of floats is a candidate."""
        return "documented" if self.integer else "estimated"

    def check(self) -> None:
        """`InvalidArgument` for what no platform has."""
        for side, dtype in (("a", self.a), ("b", self.b)):
            if dtype not in INTEGERS + FLOATS:
                raise unknown_name(f"{side}_dtype of dpas", dtype, INTEGERS + FLOATS)
        if self.integer != (self.b in INTEGERS) or not self.integer and self.a != self.b:
            raise InvalidArgument(
                f"dpas: a_dtype={self.a!r} with b_dtype={self.b!r}; allowed: any two of {', '.join(INTEGERS)}, "
                f"or the same one of {', '.join(FLOATS)}"
            )
        allowed = accumulators(self.a)
        for what, dtype in (("dst_dtype", self.dst), ("an accumulator of", self.acc)):
            if dtype not in allowed and not (dtype == "null" and what != "dst_dtype"):
                raise InvalidArgument(f"dpas: {what} {dtype!r} with {self.a} operands; allowed: {', '.join(allowed)}")
        if not 1 <= self.m <= MOST_REPEATS:
            raise InvalidArgument(f"dpas: repeat count (rows of A) {self.m}; allowed: 1 to {MOST_REPEATS}")
        if self.n not in EXEC_SIZES:
            raise InvalidArgument(f"dpas: exec size (columns of B) {self.n}; allowed: 8 or 16, as the platform has it")
        if not self.integer and self.model not in FLOAT_MODELS:
            raise unknown_name("float_model of dpas", self.model, FLOAT_MODELS)

    def refused_by(self, target: Platform) -> str:
        """Why a platform rejects the form; empty where it has it."""
        if not target.exec_size:
            others = ", ".join(p.name for p in PLATFORMS.values() if p.exec_size)
            return f"has no DPAS (DP4A works there); platforms that have it: {others}"
        if self.n != target.exec_size:
            return f"has exec size {target.exec_size}, not {self.n}"
        if self.integer:
            bits = {fmt(self.a).bits, fmt(self.b).bits}
            if not target.mixed_integers and (len(bits) > 1 or 2 in bits):
                return f"takes no {self.b} with {self.a}: both of 8 or both of 4 bits work"
            return ""
        allowed = target.accumulators(self.a)
        hints = {what: f" ({why})" for what, why in target.why_not}
        if not allowed:
            return f"has no {self.a} operands{hints.get(self.a, '')}; {', '.join(t for t, _ in target.floats)} work"
        narrower = [d for d in (self.dst, self.acc) if d not in (*allowed, "null")]
        if not narrower:
            return ""
        return f"has no {narrower[0]} accumulator{hints.get('acc', '')}; {', '.join(allowed)} works"


def accumulators(dtype: str) -> tuple[str, ...]:
    """Types of result and accumulator that operands of a type can have on some platform."""
    if dtype in INTEGERS:
        return ("s32", "u32")
    return {"bf16": ("f32", "bf16"), "f16": ("f32", "f16")}.get(dtype, ("f32",))


# -- semantics ------------------------------------------------------------------------------------------------------
def _accumulator(acc: Value | None, shape: DpasShape, like: Value) -> Value:
    if acc is None:
        return like.literal(0)
    if shape.integer:
        return acc.view("s32")
    return acc if shape.acc == "f32" else widened(acc)


def multiply(shape: DpasShape, acc: Value | None, b: Value, a: Value) -> Value:
    """D of M x N lanes from packed dwords."""
    if {fmt(shape.a).bits, fmt(shape.b).bits} == {8}:
        return _of_bytes(shape, acc, b, a)
    right = halves(b) if shape.b == "bf16" else (elements(b, shape.b),)
    return _summed(shape, acc, elements(a, shape.a), right)


def _of_bytes(shape: DpasShape, acc: Value | None, b: Value, a: Value) -> Value:
    """D where both operands have a byte for each element: bytes as words, of which a CPU multiplies two at a time."""
    m, n = shape.m, shape.n
    total = _accumulator(acc, shape, a.permute([0] * (m * n)).view("s32"))
    for stage in range(DEPTH):
        rows = quarters(a, shape.a, [r * DEPTH + stage for r in range(m) for _ in range(n)])
        columns = quarters(b, shape.b, [stage * n + column for _ in range(m) for column in range(n)])
        for x, y in zip(rows, columns, strict=True):
            total = total + x * y
    return total.view(shape.dst)


def _summed(shape: DpasShape, acc: Value | None, left: Value, right: Sequence[Value]) -> Value:
    """D from elements in the order in which dwords hold them, those of B in turn from `right`: stage by stage, each
    `ops` elements of K.
    """
    m, n, k = shape.m, shape.n, shape.k
    per = 32 // fmt(shape.b).bits
    step = per // len(right)

    def factors(i: int) -> tuple[Value, Value]:
        word, place = divmod(i, per)
        first = word * n * step + place // len(right)
        rows = left.permute([r * k + i for r in range(m) for _ in range(n)])
        columns = right[place % len(right)]
        return rows, columns.permute([first + column * step for _ in range(m) for column in range(n)])

    total: Value | None = None
    for stage in range(DEPTH):
        products = [factors(stage * shape.ops + i) for i in range(shape.ops)]
        if total is None:
            total = _accumulator(acc, shape, products[0][0])
        if shape.integer:
            for x, y in products:
                total = total + x * y
        else:
            total = FLOAT_MODELS[shape.model](total, products)
    assert total is not None
    if shape.integer:
        return total.view(shape.dst)
    quiet = total.view("u32").literal(0x7FC00000).view("f32")  # which NaN comes out is not published
    return narrow(total.is_nan().where(quiet, total), shape.dst, shape.model)


def rows_of_piece(m: int, n: int) -> int:
    """How many of `m` rows of `n` floats are compiled together: as many sums as hide how long a sum takes."""
    return max(rows for rows in range(1, m + 1) if m % rows == 0 and (rows == 1 or rows * n <= _SUMS))


# -- forms ----------------------------------------------------------------------------------------------------------
@dataclass(frozen=True, repr=False)
class DpasForm(Instruction):
    """One form, on packed registers: acc (M*N lanes, unless null), b and a in dwords. `whole`: its sizes are fixed."""

    shape: DpasShape | None = field(default=None, kw_only=True)
    counts: tuple[int, ...] = field(default=(), kw_only=True)  # lanes of each operand

    def lanes(self, width: int) -> int:
        assert self.shape is not None
        return self.shape.m * self.shape.n

    def operand_lanes(self, operand: Operand, lanes: int) -> int:
        return self.counts[self.operands.index(operand)]

    def pieces(self) -> Pieces | None:
        """Rows of integers: to unpack all rows at once takes LLVM ten times as long. Some rows of floats together."""
        assert self.shape is not None
        rows = 1 if self.shape.integer else rows_of_piece(self.shape.m, self.shape.n)
        return Pieces(dpas_form(replace(self.shape, m=rows)), self.shape.m // rows)

    def element(self) -> Instruction:
        """A row by a column, both as elements of their types."""
        assert self.shape is not None
        one = replace(self.shape, m=1, n=1)

        def add(acc: Value | None, a: Value, b: Value) -> Value:
            return _summed(one, acc, numbers(a, one.a), (numbers(b, one.b),))

        return element_of(self, fmt(one.a).lanes, fmt(one.b).lanes, one.k, add)


@functools.cache
def dpas_form(shape: DpasShape) -> DpasForm:
    """The Instruction of a shape; `InvalidArgument` where no platform has it."""
    shape.check()
    lanes = shape.m * shape.n
    sizes = shape.b_words, shape.a_words
    operands: tuple[Operand, ...] = (Operand("b", "u32", sizes[0] / lanes), Operand("a", "u32", sizes[1] / lanes))
    counts: tuple[int, ...] = sizes
    null = shape.acc == "null"
    if not null:
        operands, counts = (Operand("acc", shape.acc), *operands), (lanes, *sizes)

    def function(*values: Value) -> Value:
        acc = None if null else values[0]
        return multiply(shape, acc, values[-2], values[-1])

    text = f"{shape.m} x {shape.n} sums of {shape.k} products, the operands packed in words."
    others = ", ".join(name for name in FLOAT_MODELS if name != shape.model)
    model = f" Floats add up as {shape.model} (a candidate; others: {others})." if shape.model else ""
    function.__doc__ = text + model

    width = max(32 * size for size in sizes)
    width = max(width, lanes * fmt(shape.dst).bits, 0 if null else lanes * fmt(shape.acc).bits)
    names = tuple(p.name for p in PLATFORMS.values() if not shape.refused_by(p))
    return DpasForm(
        shape.name,
        operands,
        shape.dst,
        function,
        _MANUAL,
        {width: names},
        accumulates=not null and shape.acc == shape.dst,
        native=False,
        whole=True,
        shape=shape,
        counts=counts,
    )


def named_form(name: str) -> DpasForm | None:
    """The form of a full name, None where it is none. Floats without a model at its end have `DEFAULT_MODEL`.

    >>> [o.name for o in named_form("dpas.s8.u4.8.8.x16.s32.null").operands]
    ['b', 'a']
    """
    if (fields := FORM.read(name)) is None:
        return None
    model = fields["model"] or (DEFAULT_MODEL if fields["a"] in FLOATS else "")
    return dpas_form(DpasShape(**{**fields, "acc": fields["acc"] or fields["dst"], "model": model}))


FORMS.append(named_form)


@dataclass(frozen=True, repr=False)
class Dpas(Family):
    """DPAS in all its forms, or DPASW. Called with logical matrices; `dpas_form` has the packed ones."""

    def forms(self) -> list[str]:
        """A form of each type with itself, of the most rows, for 16 columns."""
        types = [(a, accumulators(a)[0]) for a in INTEGERS + FLOATS]
        return [
            DpasShape(a, a, dst, dst, MOST_REPEATS, 16, DEFAULT_MODEL if a in FLOATS else "").name for a, dst in types
        ]

    def __call__(self, *arrays: Any, lanes: int | None = None, **options: Any) -> Array:
        """(acc, a, b, *, a_dtype, b_dtype, dst_dtype, float_model="sequential", platform=None) -> D (…, M, N).

        `a` (…, M, K), `b` (…, K, N), `acc` (…, M, N) or None, leading axes broadcast. M is the repeat count, 1 to 8; N
        the exec size, 8 or 16; K is 8 for tf32, 16 for bf16 and f16, 32 where an integer operand has 8 bits, else 64.
        Types default to the arrays'; integers of any NumPy type do where their values fit, tf32 is float32 (13 low
        bits ignored). Integer sums wrap; how floats round is a candidate (`FLOAT_MODELS`). With `platform` (see
        `PLATFORMS`, or a GPU's name) what it lacks is refused by its name.
        """
        if len(arrays) != 3:
            raise InvalidArgument(f"{self.name} takes acc (or None), a and b; met {counted(len(arrays), 'operand')}")
        if unknown := sorted(set(options) - set(_OPTIONS)):
            raise InvalidArgument(f"{self.name}: unknown option {unknown[0]!r}; allowed: {', '.join(_OPTIONS)}")
        return _called(self.name, *(held(f"{self.name}: an operand", a) for a in arrays), **options)


_OPTIONS = ("a_dtype", "b_dtype", "dst_dtype", "float_model", "platform", "saturate")


def _called(
    name: str,
    acc: Any,
    a: Any,
    b: Any,
    *,
    a_dtype: str | None = None,
    b_dtype: str | None = None,
    dst_dtype: str | None = None,
    float_model: str = DEFAULT_MODEL,
    platform: str | None = None,
    saturate: bool = False,
) -> Array:
    if saturate:
        raise Unimplemented(f"{name}: saturate=True; no platform saturates here (IGA: no attribute), sums wrap")
    left, right = _logical(name, "a", a, a_dtype), _logical(name, "b", b, b_dtype)
    total = None if acc is None else np.asarray(acc)
    acc_dtype = "null" if total is None else _accumulator_type(total, left[1])
    dst = dst_dtype or (accumulators(left[1])[0] if total is None else acc_dtype)
    (m, k), (k_b, n) = left[0].shape[-2:], right[0].shape[-2:]
    model = "" if left[1] in INTEGERS else float_model
    if left[1] in INTEGERS and float_model not in FLOAT_MODELS:
        raise unknown_name("float_model of dpas", float_model, FLOAT_MODELS)
    shape = DpasShape(right[1], left[1], dst, acc_dtype, m, n, model)
    shape.check()
    _refuse(name, shape, platform)
    if k != shape.k or k_b != shape.k:
        raise InvalidArgument(
            f"{name}: a (…, M, K) {left[0].shape} and b (…, K, N) {right[0].shape}; {shape.a} x {shape.b} needs "
            f"K = {shape.k}"
        )
    if total is not None and total.shape[-2:] != (m, n):
        raise InvalidArgument(f"{name}: acc of shape {total.shape}; (…, {m}, {n}) is needed")
    leading = [x.shape[:-2] for x in (total, left[0], right[0]) if x is not None]
    try:
        outer = np.broadcast_shapes(*leading)
    except ValueError:
        raise InvalidArgument(f"{name}: leading axes {', '.join(map(str, leading))} don't broadcast") from None
    if not all(outer):
        return np.zeros((*outer, m, n), fmt(dst).dtype)
    operands = [] if total is None else [ArrayValue(_flat(total.astype(fmt(acc_dtype).dtype, copy=False)), acc_dtype)]
    packed = pack_b(right[0], right[1]), pack_a(left[0], left[1])
    operands += [ArrayValue(words, "u32") for words in packed]
    with unwarned():
        result = cast(ArrayValue, dpas_form(shape).apply(*operands)).array
    return np.ascontiguousarray(result).reshape(*result.shape[:-1], m, n)


def _flat(matrix: Array) -> Array:
    """The rows of the last two axes in one."""
    return np.ascontiguousarray(matrix).reshape(*matrix.shape[:-2], -1)


def _repeats_of_dpasw(shape: DpasShape) -> tuple[int, ...]:
    """Repeat counts that DPASW has for the widths of A and B (intel/llvm, esimd/xmx/dpas.hpp, verify_repeat_count)."""
    a, b = fmt(shape.a).bits, fmt(shape.b).bits
    if a == 2:
        return (8,) if b > 4 else (4, 8)
    return (4, 8) if a == 4 and b > 4 else tuple(range(1, MOST_REPEATS + 1))


def _refuse(name: str, shape: DpasShape, where: str | None) -> None:
    """`Unimplemented`, with the platform's title, for what it rejects."""
    if name == "dpasw" and shape.m not in (counts := _repeats_of_dpasw(shape)):
        raise InvalidArgument(
            f"dpasw: repeat count (rows of A) {shape.m} of {shape.a} with B of {shape.b}; allowed: "
            + ", ".join(map(str, counts))
        )
    if where is None:
        targets = [p for p in PLATFORMS.values() if p.dpasw] if name == "dpasw" else []
        if targets and all(shape.refused_by(p) for p in targets):
            raise Unimplemented(f"dpasw: {targets[-1].title} {shape.refused_by(targets[-1])}")
        return
    from isa_models.machines.loader import platform_of  # a machine says its platform, and so stands above

    target = platform_of(where)
    reason = shape.refused_by(target)
    if name == "dpasw" and not reason and not target.dpasw:
        reason = "has no DPASW; Xe-HP and Xe-HPG have it, dpas works here"
    if reason:
        raise Unimplemented(f"{name} {shape.b}.{shape.a} with {shape.acc} -> {shape.dst}: {target.title} {reason}")


def _logical(name: str, side: str, raw: Any, dtype: str | None) -> tuple[Array, str]:
    """A matrix and its type, its elements checked to be of it."""
    array = np.asarray(raw)
    if array.ndim < 2:
        raise InvalidArgument(f"{name}: {side} of shape {array.shape}; a matrix is needed")
    met = name_of(array.dtype)
    wanted = dtype or met
    if wanted not in INTEGERS + FLOATS:
        raise unknown_name(f"{side}_dtype of {name}", wanted, INTEGERS + FLOATS)
    form, here = fmt(wanted), fmt(met)
    if form.is_float:
        if array.dtype.newbyteorder("=") != form.dtype:
            raise InvalidArgument(f"{name}: {side}_dtype={wanted!r} needs elements of {form.dtype}, met {array.dtype}")
        return array.astype(form.dtype, copy=False), wanted
    if here.is_float or here.is_truth:
        raise InvalidArgument(f"{name}: {side}_dtype={wanted!r} needs integers, met {array.dtype}")
    if here.low < form.low or here.high > form.high:
        wide = array.astype(np.int64)
        if array.size and not form.low <= wide.min() <= wide.max() <= form.high:
            worst = wide.min() if wide.min() < form.low else wide.max()
            raise InvalidArgument(f"{name}: {side} holds {worst}; {wanted} is {form.low} to {form.high}")
    return array.astype(form.dtype), wanted


def _accumulator_type(acc: Array, operand: str) -> str:
    met = name_of(acc.dtype)
    if met not in accumulators(operand):
        raise InvalidArgument(
            f"dpas: an accumulator of {met} with {operand} operands; allowed: {', '.join(accumulators(operand))}"
        )
    return met


_DOC = """D = acc + a x b, stage after stage of a systolic array; integers wrap, floats round as `float_model` says.

>>> import numpy as np
>>> from isa_models import instruction
>>> a, b = np.full((1, 32), 255, np.uint8), np.full((32, 8), -128, np.int8)
>>> instruction("dpas")(None, a, b)[0, :2].tolist()
[-1044480, -1044480]
"""


def _family(name: str, manual: str, doc: str) -> Dpas:
    def documented() -> None: ...

    documented.__doc__ = doc
    brings = tuple(p.name for p in PLATFORMS.values() if (p.dpasw if name == "dpasw" else p.exec_size))
    return Dpas(name, (), "s32", documented, manual, {4096: brings}, native=False, whole=True)


GPU_REGISTRY["dpas"] = _family("dpas", _MANUAL, _DOC)
GPU_REGISTRY["dpasw"] = _family(
    "dpasw",
    "IGC documentation/visa/instructions/DPASW.md",
    "DPAS of two fused engines; each reads half of A (`packing.split_a`), and the arithmetic is that of DPAS.\n\n"
    + _DOC.split("\n\n")[1].replace('"dpas"', '"dpasw"'),
)
