"""PTX mma and wgmma: D (M, N) = C + A (M, K) x B (K, N) on the tensor cores of a generation.

How a warp's threads hold the matrices (PTX ISA, "Matrix Fragments") does not touch the result and is not modelled:
operands are whole matrices by rows. A form is written as PTX does, with the generation in front and the sizes: "mma.
hopper.m16n8k16.f32.f16" (result and accumulator, operands; B's type last where it is not A's). Floats are summed as
`fused_sum` says. Bytes are multiplied exactly and their sums wrap (PTX ISA: without .satfinite).
"""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, cast

import numpy as np

from isa_models.algebra import Value
from isa_models.errors import InvalidArgument, Unimplemented, counted, unknown_name
from isa_models.formats import fmt, name_of
from isa_models.gpu.naming import WORD, Naming
from isa_models.instruction import GPU_REGISTRY, Family, Instruction, Operand, Pieces, element_of
from isa_models.nvidia.fused_sum import Parts, added, as_one_step, fused_sum, parts
from isa_models.nvidia.moderate import MatrixProduct, fits, moderate, moderate_sum
from isa_models.readings.arrays import Array, ArrayValue, held, unwarned

_PIECE, _WIDE_PIECE = 16, 4  # columns of a product that are compiled together; of a row alone
_MANUAL = 'PTX ISA, "Warp-level Matrix Instructions: mma"; sums: MMA-Sim, arXiv:2511.10909'
FORM = Naming(
    "{instruction}.{arch}.m{m}n{n}k{k}.{result}.{operands}[.{weights}]",
    instruction=("mma", "wgmma"),
    arch=WORD,
    result=WORD,
    operands=WORD,
    weights=WORD,
)
_FP8 = ("f8_e4m3", "f8_e5m2")
_BYTES = ("s8", "u8")
#: types of A and B that may differ from one another
MIXED = (_FP8, _BYTES)


@dataclass(frozen=True)
class TensorUnit:
    """How a generation sums operands of one type.

    `ks`: the elements of K that an instruction takes. They are summed in passes, one after the other, each rounded:
    runs of `group` (0: all), and in a run first those whose k mod 4 is among `quarters[0]`, then `quarters[1]`.
    `kept_bits` of an f32 result's digits remain. `late`: the passes begin from zero, and the accumulator is added
    behind them, rounded to nearest even.
    """

    fraction_bits: int
    ks: tuple[int, ...]
    group: int = 0
    kept_bits: int = 23
    results: tuple[str, ...] = ("f32",)
    quarters: tuple[tuple[int, ...], ...] = ((0, 1, 2, 3),)
    late: bool = False

    def passes(self, k: int) -> list[list[int]]:
        """The elements of K of each pass.

        >>> UNITS["mma"]["hopper"]["f8_e4m3"].passes(32)[1][:5]
        [2, 3, 6, 7, 10]
        """
        step = min(self.group or k, k)
        runs = [range(first, first + step) for first in range(0, k, step)]
        return [[i for i in run if i % 4 in among] for run in runs for among in self.quarters]


_BOTH = ("f32", "f16")


def _half(fraction_bits: int, *ks: int, group: int = 0) -> dict[str, TensorUnit]:
    """f16, and bf16, which has f32 results only."""
    f16 = TensorUnit(fraction_bits, ks, group, results=_BOTH)
    return {"f16": f16, "bf16": TensorUnit(fraction_bits, ks, group)}


def _eight(fraction_bits: int, group: int = 0, kept_bits: int = 13, **more: Any) -> dict[str, TensorUnit]:
    return dict.fromkeys(_FP8, TensorUnit(fraction_bits, (32,), group, kept_bits, results=_BOTH, **more))


#: f8 where `mma` has no unit for it: as two products of the f16 unit
_AS_F16 = _eight(25, kept_bits=23, quarters=((0, 1), (2, 3)), late=True)

#: Parameters by instruction and generation. Recorded on GPUs (tests/vectors/tensor_cores: V100, A2, A100, RTX 1000 Ada,
#: L40S, H100, H200, B200; numbers of moderate size): `fraction_bits` and `kept_bits` of f32 results, groups of 16 of 32
#: (Ada's f8) and the whole 32 (wgmma's f8), and how f8 goes through Hopper's and Blackwell's `mma`. MMA-Sim's word:
#: Turing; that the groups of 4 and 8 are no parts of longer ones; that tf32 takes 8 at once on Hopper and Blackwell;
#: wgmma with an accumulator that is not zero. f8 through `mma`: F = 25 is the f16 unit's, those records allow 23 to 27.
UNITS: Mapping[str, Mapping[str, Mapping[str, TensorUnit]]] = {
    "mma": {
        "volta": {"f16": TensorUnit(23, (4,), results=_BOTH)},
        "turing": {"f16": TensorUnit(24, (8,), results=_BOTH)},
        "ampere": _half(24, 8, 16, group=8) | {"tf32": TensorUnit(24, (4, 8), group=4)},
        "ada": _half(24, 8, 16, group=8) | {"tf32": TensorUnit(24, (4, 8), group=4)} | _eight(13, group=16),
        "hopper": _half(25, 8, 16) | {"tf32": TensorUnit(25, (4, 8))} | _AS_F16,
        "blackwell": _half(25, 8, 16) | {"tf32": TensorUnit(25, (4, 8))} | _AS_F16,
    },
    "wgmma": {"hopper": _half(25, 16) | {"tf32": TensorUnit(25, (8,))} | _eight(13)},
}


#: the elements of K that an instruction takes of bytes
BYTES: Mapping[str, Mapping[str, tuple[int, ...]]] = {
    "mma": dict.fromkeys(("ampere", "ada", "hopper", "blackwell"), (16, 32)),
    "wgmma": {"hopper": (32,)},
}


def units_of(instruction: str, arch: str) -> dict[str, TensorUnit]:
    """Units of a generation's instruction by operand type: floats, and bytes, whose sums are s32."""
    ks = BYTES[instruction].get(arch, ())
    return {
        **UNITS[instruction].get(arch, {}),
        **(dict.fromkeys(_BYTES, TensorUnit(0, ks, results=("s32",))) if ks else {}),
    }


def results_of(arch: str, dtype: str, instruction: str = "mma") -> tuple[str, ...]:
    """Types of sums that a generation's instruction has of operands of a type, widest first; none where it lacks them.

    >>> results_of("volta", "f16"), results_of("ampere", "tf32"), results_of("hopper", "s8", "wgmma")
    (('f32', 'f16'), ('f32',), ('s32',))
    """
    unit = units_of(instruction, arch).get(dtype)
    return unit.results if unit else ()


@dataclass(frozen=True)
class MmaShape:
    """One form's instruction, generation, types and sizes."""

    instruction: str
    arch: str
    operands: str
    result: str
    m: int
    n: int
    k: int
    weights: str = ""  # B's type, where it is not A's

    @property
    def b(self) -> str:
        """B's type."""
        return self.weights or self.operands

    @property
    def warps(self) -> int:
        """Warps that read B together, from shared memory."""
        return 4 if self.instruction == "wgmma" else 1

    @property
    def unit(self) -> TensorUnit:
        """How its sums are formed; `UnknownName` or `Unimplemented` where no tensor core has the form."""
        archs = UNITS[self.instruction]
        if self.arch not in archs:
            raise unknown_name(f"arch of {self.instruction}", self.arch, archs)
        units = units_of(self.instruction, self.arch)
        if self.operands not in units:
            has = ", ".join(units)
            raise Unimplemented(f"{self.instruction} on {self.arch}: {self.operands} operands; it has {has}")
        unit = units[self.operands]
        if self.b != self.operands and not any({self.operands, self.b} <= set(pair) for pair in MIXED):
            pairs = " or ".join(" with ".join(pair) for pair in MIXED)
            raise Unimplemented(
                f"{self.instruction}: {self.operands} times {self.b}; operands of two types are {pairs} alone"
            )
        if self.result not in unit.results:
            allowed = ", ".join(unit.results)
            raise Unimplemented(
                f"{self.instruction} on {self.arch}: an accumulator of {self.result} with {self.operands} operands; "
                f"allowed: {allowed}"
            )
        if self.k not in unit.ks:
            raise InvalidArgument(
                f"{self.instruction} on {self.arch}: K = {self.k} of {self.operands}; allowed: "
                f"{', '.join(map(str, unit.ks))} (a longer sum is several instructions)"
            )
        return unit

    @property
    def name(self) -> str:
        return FORM.of(**vars(self))


def multiply(shape: MmaShape, acc: Value, a: Value, b: Value) -> Value:
    """D of M x N lanes from matrices by rows."""
    unit, m, n, k = shape.unit, shape.m, shape.n, shape.k

    def lanes(i: int) -> tuple[Value, Value]:
        rows = [row * k + i for row in range(m) for _ in range(n)]
        return a.permute(rows), b.permute([i * n + column for _ in range(m) for column in range(n)])

    if not fmt(shape.operands).is_float:
        return _of_bytes(shape, acc, a, b)

    def added_up(total: Value, elements: Sequence[int]) -> Value:
        digits = unit.fraction_bits, unit.kept_bits

        def apart() -> list[tuple[Parts, Parts]]:
            return [(parts(x, shape.operands), parts(y, shape.b)) for x, y in map(lanes, elements)]

        def careful() -> Value:
            return fused_sum(total, apart(), *digits)

        def usual() -> tuple[Value, list[Value]]:
            x, y = moderate(a, shape.operands), moderate(b, shape.b)
            found, beyond = moderate_sum(total, MatrixProduct(x, y, m, n, k), elements, *digits)
            found = as_one_step(found, total, lambda: [x.real * y.real for x, y in apart()], len(elements), *digits)
            return found, [x.beyond, y.beyond, beyond]

        return total.shortcut(usual, careful) if short else careful()

    short = all(fits(len(one), unit.fraction_bits) for one in unit.passes(k))
    total = acc.literal(0) if unit.late else acc
    for elements in unit.passes(k):
        total = added_up(total, elements)
    return added(total, acc) if unit.late else total


def _of_bytes(shape: MmaShape, acc: Value, a: Value, b: Value) -> Value:
    """D of integers, those of two neighbours along K as words beside each other: a CPU multiplies two at a time."""
    m, n, k = shape.m, shape.n, shape.k
    pairs, wide = a.to("s16").view("u32"), b.to("s16")
    total = acc
    for i in range(0, k, 2):
        rows = pairs.permute([(r * k + i) // 2 for r in range(m) for _ in range(n)]).view("s16")
        columns = wide.permute([lane for _ in range(m) for c in range(n) for lane in (i * n + c, (i + 1) * n + c)])
        for x, y in zip(rows.split(2), columns.split(2), strict=True):
            total = total + x.to("s32") * y.to("s32")
    return total


@dataclass(frozen=True, repr=False)
class MmaForm(Instruction):
    """One form, on whole matrices by rows: acc (M*N lanes), a (M*K) and b (K*N)."""

    shape: MmaShape | None = field(default=None, kw_only=True)

    def lanes(self, width: int) -> int:
        assert self.shape is not None
        return self.shape.m * self.shape.n

    def operand_lanes(self, operand: Operand, lanes: int) -> int:
        assert self.shape is not None
        s = self.shape
        return {"acc": s.m * s.n, "a": s.m * s.k, "b": s.k * s.n}[operand.name]

    def pieces(self) -> Pieces:
        """Rows, and of a wgmma's 16 columns each: code for more takes LLVM longer and runs no faster. Some columns of a
        row, which are 64 bits wide where they have to be.
        """
        assert self.shape is not None
        n = self.shape.n
        part = math.gcd(n, _PIECE if self.shape.m > 1 else _WIDE_PIECE)
        return Pieces(mma_form(replace(self.shape, m=1, n=part)), self.shape.m, n // part)

    def element(self) -> Instruction:
        """A row by a column, as the unit adds them up."""
        assert self.shape is not None
        one = replace(self.shape, m=1, n=1)

        def add(acc: Value | None, a: Value, b: Value) -> Value:
            assert acc is not None
            return multiply(one, acc, a, b)

        _, a, b = self.operands
        return element_of(self, a.dtype, b.dtype, one.k, add)


@functools.cache
def mma_form(shape: MmaShape) -> MmaForm:
    """The Instruction of a shape; refused where no tensor core has it."""
    s, _ = shape, shape.unit
    stored = fmt(s.operands).lanes
    lanes = s.m * s.n
    operands = (
        Operand("acc", s.result),
        Operand("a", stored, s.m * s.k / lanes),
        Operand("b", fmt(s.b).lanes, s.k * s.n / lanes),
    )

    def function(acc: Value, a: Value, b: Value) -> Value:
        return multiply(shape, acc, a, b)

    function.__doc__ = f"{s.m} x {s.n} sums of {s.k} products, matrices by rows.\n{_sum_of(s)}"

    bits = fmt(stored).bits
    width = max(lanes * fmt(s.result).bits, s.m * s.k * bits, s.k * s.n * bits)
    return MmaForm(
        s.name,
        operands,
        s.result,
        function,
        _MANUAL,
        {width: (s.arch,)},
        accumulates=True,
        native=False,
        whole=True,
        shape=shape,
    )


def _sum_of(shape: MmaShape) -> str:
    """How a form adds up, in words."""
    if shape.result == "s32":
        return "Integers are added exactly, and wrap."
    unit = shape.unit
    passes = unit.passes(shape.k)
    told = f" K goes in {len(passes)} passes of {len(passes[0])}, each rounded." if len(passes) > 1 else ""
    kept = f"cut to f32 with {unit.kept_bits} of its digits" if shape.result == "f32" else "rounded to nearest even"
    late = "; the accumulator is added behind, to nearest even" if unit.late else ""
    aligned = f"Addends are aligned to the greatest and cut {unit.fraction_bits} binary digits behind its point"
    return f"{aligned}, added exactly,\nthen {kept}{late}.{told}"


@dataclass(frozen=True, repr=False)
class Mma(Family):
    """mma or wgmma in all its forms. Called with logical matrices; `mma_form` has those of a Program."""

    def form(self, name: str) -> Instruction:
        """The form of a full name.

        >>> from isa_models import instruction
        >>> [operand.dtype for operand in instruction("mma.volta.m8n8k4.f32.f16").operands]
        ['f32', 'f16', 'f16']
        """
        if (fields := FORM.read(name)) is None:
            raise unknown_name("instruction", name, self.forms(), f"simdnn explain {self.name}")
        return mma_form(MmaShape(**fields))

    def forms(self) -> list[str]:
        """A form of each generation, type and length of sums, of the rows and columns that PTX has."""
        return [
            MmaShape(self.name, arch, operands, unit.results[0], 64 if self.name == "wgmma" else 16, 8, k).name
            for arch in UNITS[self.name]
            for operands, unit in units_of(self.name, arch).items()
            for k in unit.ks
        ]

    def __call__(self, *arrays: Any, lanes: int | None = None, **options: Any) -> Array:
        """(acc, a, b, *, arch, a_dtype=None, dst_dtype=None) -> D (…, M, N).

        `a` (…, M, K), `b` (…, K, N) of one type, or of two in f8 or bytes; acc (…, M, N) f32 or f16, of bytes s32, or
        None for zeros of `dst_dtype` (f32, of bytes s32). K is what one instruction takes (`UNITS`). f32 operands are
        tf32, whose 13 low bits are not read.
        """
        if len(arrays) != 3:
            raise InvalidArgument(f"{self.name} takes acc (or None), a and b; met {counted(len(arrays), 'operand')}")
        unknown = [name for name in options if name not in ("arch", "a_dtype", "dst_dtype")]
        if unknown:
            raise InvalidArgument(f"{self.name} takes arch, a_dtype and dst_dtype; not known: {', '.join(unknown)}")
        return _called(self.name, *(held(f"{self.name}: an operand", a) for a in arrays), **options)


def _called(
    name: str, acc: Any, a: Any, b: Any, *, arch: str, a_dtype: str | None = None, dst_dtype: str | None = None
) -> Array:
    left, right = np.asarray(a), np.asarray(b)
    if left.ndim < 2 or right.ndim < 2 or left.shape[-1] != right.shape[-2]:
        raise InvalidArgument(f"{name}: a (…, M, K) {left.shape} and b (…, K, N) {right.shape} do not fit")
    types = [name_of(matrix.dtype) for matrix in (left, right)]
    operands = a_dtype or types[0]
    operands = next((t for units in UNITS[name].values() for t in units if fmt(t).container == operands), operands)
    stored, weights = fmt(operands).lanes, "" if types[0] == types[1] else types[1]
    if types[0] != stored or weights and not any(set(types) <= set(pair) for pair in MIXED):
        raise InvalidArgument(f"{name}: operands of {types[0]} and {types[1]}; {operands} needs {stored} twice")
    (m, k), n = left.shape[-2:], right.shape[-1]
    sums = "f32" if fmt(operands).is_float else "s32"
    total = np.zeros((m, n), fmt(dst_dtype or sums).dtype) if acc is None else np.asarray(acc)
    if total.shape[-2:] != (m, n):
        raise InvalidArgument(f"{name}: acc of shape {total.shape}; (…, {m}, {n}) is needed")
    result = name_of(total.dtype)
    if dst_dtype not in (None, result):
        raise InvalidArgument(f"{name}: dst_dtype={dst_dtype!r} with an accumulator of {result}; they are one register")
    form = mma_form(MmaShape(name, arch, operands, result, m, n, k, weights))
    values = [
        ArrayValue(np.ascontiguousarray(x).reshape(*x.shape[:-2], -1), dtype)
        for x, dtype in ((total, result), (left, stored), (right, weights or stored))
    ]
    with unwarned():
        found = cast(ArrayValue, form.apply(*values)).array
    return np.ascontiguousarray(found).reshape(*found.shape[:-1], m, n)


def _documented(name: str, arch: str, text: str) -> Mma:
    def documented() -> None: ...

    k = UNITS[name][arch]["f16"].ks[-1]
    documented.__doc__ = f"""{text}

    >>> import numpy as np
    >>> from isa_models import instruction
    >>> a, b = np.full((1, {k}), 0.5, np.float16), np.ones(({k}, 1), np.float16)
    >>> instruction("{name}")(None, a, b, arch="{arch}").tolist()
    [[{k / 2}]]
    """
    brings = tuple(UNITS[name])
    return Mma(name, (), "f32", documented, _MANUAL, {1024: brings}, native=False, whole=True)


GPU_REGISTRY["mma"] = _documented("mma", "ampere", "A warp's product on tensor cores; each form says how it adds up.")
GPU_REGISTRY["wgmma"] = _documented("wgmma", "hopper", "The product of four warps on Hopper's tensor cores.")
