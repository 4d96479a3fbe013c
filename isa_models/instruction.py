"""An instruction: its operands, its semantics as one function over the algebra, and where the manual states it."""

from __future__ import annotations

import contextlib
import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar, cast

import numpy as np

from isa_models.algebra import Value
from isa_models.aliases import instructions_like_intrinsic
from isa_models.errors import InvalidArgument, UnknownName, counted, shortly, some, unknown_name
from isa_models.formats import fmt, name_of
from isa_models.isa import implied
from isa_models.keywords import keywords
from isa_models.plugins import Registry, load, with_failures
from isa_models.readings.arrays import Array, ArrayValue, held, unwarned
from isa_models.records.display import InNotebooks

TILE_ROWS = 16  # of a whole tile register, of AMX's palette 1
TILE_ROW_BITS = 512
MOST_LANES = 4096  # four times the largest register: a tile
F = TypeVar("F", bound=Callable[..., Any])
#: "load": the last operand may be in memory. "element": one element of it alone is. "evex": it may be where the machine
#: has EVEX encodings. "store": the destination may be. "masked": either side is, in as many lanes as a register says.
#: "none": neither side may be.
MemoryForm = Literal["load", "element", "evex", "store", "masked", "none"]
#: "product": of 32-bit integers. "conversion": from one type to another. "dot": four products of bytes, added up.
#: "math": a quotient or a root. NVIDIA's: "special": a table of the special function unit. "packed": two results in one
#: register. "alu": comparisons, choices, bits and sums of integers. "shuffle": numbers traded between threads.
#: "none": no instruction stands for it.
Rate = Literal["f32", "product", "conversion", "dot", "math", "special", "packed", "alu", "shuffle", "none"]


@dataclass(frozen=True)
class Operand:
    """A register operand: `per` lanes of `dtype` for each lane of the result, or (0) `count` in all, however many."""

    name: str
    dtype: str
    per: float = 1
    count: int = 1  # one: to broadcast


_WIDTHS = {8: "a byte", 16: "a word", 32: "a doubleword"}


@dataclass(frozen=True, repr=False)
class Instruction(InNotebooks):
    """One instruction at all its register widths. Call it with NumPy arrays; `apply` takes Values of any reading."""

    name: str
    operands: tuple[Operand, ...]
    result: str
    function: Callable[..., Any]
    manual: str
    caps: Mapping[int, tuple[str, ...]] = field(hash=False)  # register width in bits -> ISA caps that bring it
    immediates: tuple[str, ...] = ()
    immediate_bits: int = 8  # a byte on x86; an operand of a GPU's instruction may be any number of its lanes' width
    #: named parameters for what manuals leave open, with their possible values; the first is the default, and what
    #: the host's own instruction does where there is one
    choices: Mapping[str, tuple[str, ...]] = field(default_factory=dict, hash=False)
    accumulates: bool = False  # operand 0 is the destination's old value: an addend, needed late by the unit
    steady: bool = False  # what a shortcut may assume of its accumulator holds for its result again
    overwrites: bool = False  # operand 0 is the destination's old value: a factor or a table, needed early
    evex: str = ""  # the mnemonic at 512 bits, where it differs
    mnemonic_of_form: str = ""  # where the name is that of one form of a mnemonic, which another name has
    mask: bool = False  # operand 0 is the mask in braces beside the destination; lanes that it leaves out are zeroed
    selects: bool = False  # with `mask`: lanes that it leaves out are those of the operand behind it
    mask_bits: int = 0  # of a lane that a mask in braces has a bit for, where they are not those of the result's type
    native: bool = True  # the host's own instruction may stand in for `function`
    clears: bool = False  # zero whatever its operands hold, where all of them are one register
    moves: bool = False  # loads, stores, broadcasts: nothing is computed
    chooses: bool = False  # each lane of the result is an operand's, or says how two compare
    saturates: bool = False
    whole: bool = False  # lanes cross their neighbours: only whole registers make sense
    partial: bool = False  # its memory operand may hold fewer lanes than the register, without a mask
    tile: bool = False  # its registers are tiles: rows of 64 bytes, and each row of the result is computed alike
    apart: bool = False  # what it loads passes the first cache by: it leaves that to others
    ahead: str = (
        ""  # "load" | "store": it asks for a line that is needed later so; nothing waits for it, no value comes
    )
    configures: bool = False  # it sets a state; there is no value to look at
    timed_as: str = ""  # the mnemonic whose timing rows it has, where it has none of its own
    flags: bool = False  # its result are flags, zero and carry, which no operand of its encoding names
    memory: MemoryForm = "load"  # what its encodings take from memory, and to it
    registers: bool = True  # whether an encoding has vector registers alone
    rate: Rate = "f32"  # the vector operations of a GPU that are as fast
    warp: int = 0  # lanes of each register, where a GPU has one number for all; 0: registers of any number of lanes
    family: str = ""  # the instruction whose operands' types choose this form of it
    ways: tuple[str, ...] = ()  # how a run of them goes through a block of rows (`isa_models.gpu.block_forms`)
    copies: int = 1  # threads of a warp that execute it on the same element, each into a register of its own
    takes_lanes: bool = field(default=False)  # the function wants `lanes` (a broadcast cannot know it)

    @property
    def signature(self) -> str:
        """E.g. "vpmaddubsw: s16 <- a u8*2, b s8*2", as the definition has it, with the operands' names."""
        parts = [
            f"{o.name} {o.dtype}" + (("" if o.per == 1 else f"*{o.per:g}") if o.per else f"[{o.count}]")
            for o in self.operands
        ]
        choices = [f"{name} ({' or '.join(values)})" for name, values in self.choices.items()]
        return f"{self.name}: {self.result} <- {', '.join([*parts, *self.immediates, *choices])}"

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.signature}; {self.manual})"

    def _summary(self) -> dict[str, Any]:
        says, *_ = self.doc.split("\n\n>>>")
        widths = ", ".join(f"{width} ({' or '.join(caps)})" for width, caps in self.caps.items())
        return {"instruction": self.signature, "does": says, "bits (ISA caps)": widths, "manual": self.manual}

    def __reduce__(self) -> tuple[Callable[[str], Instruction], tuple[str]]:
        """An instruction pickles and copies by its name: its function is code of the package."""
        return instruction, (self.name,)

    @property
    def doc(self) -> str:
        return inspect.getdoc(self.function) or ""

    @property
    def destructive(self) -> bool:
        """Whether operand 0 and the destination are one register."""
        return self.accumulates or self.overwrites

    @property
    def greatest_immediate(self) -> int:
        return (1 << self.immediate_bits) - 1

    @property
    def immediate_range(self) -> str:
        """The numbers that an immediate may be, in words."""
        return f"{_WIDTHS[self.immediate_bits]} is 0 to {self.greatest_immediate}"

    def mnemonic(self, width: int) -> str:
        return self.evex if self.evex and width == 512 else self.mnemonic_of_form or self.name

    @keywords
    def lanes(self, width: int) -> int:
        """Lanes of the result where the widest register is `width` bits."""
        unit = max(fmt(self.result).bits, *(int(fmt(o.dtype).bits * o.per) for o in self.operands))
        return width // unit

    def operand_lanes(self, operand: Operand, lanes: int) -> int:
        return round(operand.per * lanes) if operand.per else operand.count

    def pieces(self) -> Pieces | None:
        """How a product of matrices (operands `acc`, `a`, `b`) is compiled piece by piece; None where it is whole."""
        return None

    def element(self) -> Instruction | None:
        """One output of a product of matrices, from a number of `acc`, a row of `a`, a column of `b`; else None."""
        return None

    def apply(self, *operands: Value, lanes: int | None = None, **immediates: int | str) -> Any:
        """The result's Value from operands' Values, in the reading that they belong to."""
        for name, given in immediates.items():
            if name in self.choices:
                if not isinstance(given, str) or given not in self.choices[name]:
                    raise InvalidArgument(
                        f"{self.name}: {name}={shortly(given)}; one of {', '.join(self.choices[name])}"
                    )
            elif type(given) is not int and not _is_integer(given) or not 0 <= int(given) <= self.greatest_immediate:
                raise InvalidArgument(f"{self.name}: immediate {name} is {shortly(given)}, {self.immediate_range}")
        extra = {"lanes": lanes} if self.takes_lanes else {}
        return self.function(*operands, **extra, **immediates)

    def __call__(self, *arrays: Any, lanes: int | None = None, **immediates: int | str) -> Array:
        """The result for arrays of the operands' element types: lanes in the last axis, any leading axes.

        Tiles are (…, rows, lanes of a row).
        """
        values = self.values(arrays, immediates)
        lanes = self.lanes_of(values, lanes, self.lanes(512) if self.takes_lanes else 1)
        with unwarned():
            result = cast(ArrayValue, self.apply(*values, lanes=lanes, **immediates))
        if getattr(result, "dtype", None) != self.result:
            met = getattr(result, "dtype", type(result).__name__)
            raise InvalidArgument(f"{self.name}: its function gives {met}, its signature {self.result}")
        found = np.ascontiguousarray(result.array)
        return found.reshape(*found.shape[:-1], -1, self.row_lanes(self.result)) if self.tile else found

    def lanes_of(self, values: Sequence[Value], lanes: int | None, otherwise: int) -> int:
        """Lanes of the result: those asked for; where nobody asks, as many as operands make, or `otherwise`.

        Raises `InvalidArgument` for what is no number of lanes, and of an instruction that `takes_lanes` for another
        one than its operands make.
        """
        told = zip(values, self.operands, strict=True) if self.takes_lanes else ()
        met = [int(v.lanes / o.per) for v, o in told if o.per]
        if lanes is None:
            return met[0] if met else otherwise
        if not _is_integer(lanes) or not 1 <= lanes <= MOST_LANES or met and lanes != met[0]:
            allowed = f"operands make {met[0]}" if met else f"a whole number from 1 to {MOST_LANES} is needed"
            raise InvalidArgument(f"{self.name}: lanes={shortly(lanes)}; {allowed}")
        return int(lanes)

    @keywords
    def values(self, arrays: Sequence[Any], immediates: Mapping[str, int | str]) -> list[ArrayValue]:
        """The operands that arrays or plain numbers stand for; `InvalidArgument` where they do not fit."""
        arrays = [held(f"{self.name}: an operand", array) for array in arrays]
        if self.tile:
            arrays = [self._flat(o, array) for o, array in zip(self.operands, arrays, strict=False)]
        values = self._check(arrays)
        missing = [i for i in self.immediates if i not in immediates]
        known = (*self.immediates, *self.choices)
        unknown = [i for i in immediates if i not in known]
        if missing or unknown:
            raise InvalidArgument(
                f"{self.name} takes the immediates ({', '.join(known)}); "
                f"missing: {missing or 'none'}, not known: {unknown or 'none'}"
            )
        allowed = [self.lanes(width) for width in sorted(self.caps)]
        met = int(values[0].lanes / self.operands[0].per) if self.operands[0].per else 0
        if self.whole and met not in allowed:
            raise InvalidArgument(f"{self.name} works on whole registers: {allowed} lanes of its result, met {met}")
        return values

    @staticmethod
    def row_lanes(dtype: str) -> int:
        """Elements of a tile's row."""
        return TILE_ROW_BITS // fmt(dtype).bits

    def _flat(self, operand: Operand, raw: Any) -> Array:
        """A tile with its rows one behind the other."""
        array, wide = plain(f"{self.name}: operand {operand.name}", raw), self.row_lanes(operand.dtype)
        if array.ndim < 2 or array.shape[-1] != wide or not 1 <= array.shape[-2] <= TILE_ROWS:
            raise InvalidArgument(
                f"{self.name}: operand {operand.name} is a tile of 1 to {TILE_ROWS} rows of {wide} {operand.dtype}, "
                f"met shape {array.shape}"
            )
        return array.reshape(*array.shape[:-2], -1)

    def _check(self, arrays: Sequence[Any]) -> list[ArrayValue]:
        if len(arrays) != len(self.operands):
            names = ", ".join(f"{o.name}: {o.dtype}" for o in self.operands)
            raise InvalidArgument(
                f"{self.name} takes {counted(len(self.operands), 'operand')} ({names}), met {len(arrays)}"
            )
        values = []
        lanes = None
        for operand, raw in zip(self.operands, arrays, strict=True):
            array = plain(f"{self.name}: operand {operand.name}", raw)
            met = name_of(array.dtype)
            if met != operand.dtype and not isinstance(raw, np.ndarray | np.generic):
                array, met = _from_python(self.name, operand, array), operand.dtype
            if met != operand.dtype:
                raise InvalidArgument(
                    f"{self.name}: operand {operand.name} is {operand.dtype} ({fmt(operand.dtype).dtype}), met {met}"
                )
            if operand.count > 1 and array.shape[-1] != operand.count:
                raise InvalidArgument(
                    f"{self.name}: operand {operand.name} has {counted(array.shape[-1], 'lane')}; "
                    f"{operand.count} are needed"
                )
            if operand.per:
                count = array.shape[-1] / operand.per
                if count != int(count) or count < 1 or (lanes is not None and count != lanes):
                    raise InvalidArgument(
                        f"{self.name}: operand {operand.name} has {counted(array.shape[-1], 'lane')}, "
                        f"but one lane of the result takes {operand.per:g} of {operand.dtype}"
                        + (f" and the operands before it make {counted(lanes, 'lane')}" if lanes is not None else "")
                    )
                lanes = int(count)
            values.append(ArrayValue(array.astype(fmt(operand.dtype).dtype, copy=False), operand.dtype))
        return values


def _is_integer(value: object) -> bool:
    return isinstance(value, (int, np.integer)) and not isinstance(value, bool)


def plain(what: str, raw: Any) -> Array:
    """An array of what was given; of numbers beyond s64 some in u64, which NumPy alone would make floats of.

    Raises `InvalidArgument` for what NumPy makes no array of, as of lists of several lengths, and for none at all.
    """
    try:
        array = np.atleast_1d(np.asarray(raw))
    except Exception:  # whatever an object's own way to become an array raises
        array = np.empty(0, object)
    kind = array.dtype.kind
    if not array.size or kind in "USMmc" or kind == "O" and not all(isinstance(one, int) for one in array.flat):
        raise InvalidArgument(f"{what}: met {shortly(raw)}; a number or an array of numbers is needed")
    if array.dtype.kind == "f" and isinstance(raw, list) and all(isinstance(number, int) for number in raw):
        with contextlib.suppress(OverflowError):
            return np.array(raw, np.uint64)
    return array


def _from_python(name: str, operand: Operand, array: Array) -> Array:
    """Plain Python numbers in the operand's type, refused where they do not fit."""
    form = fmt(operand.dtype)
    if not form.is_float and (array.dtype.kind not in "iub" or array.min() < form.low or array.max() > form.high):
        raise InvalidArgument(
            f"{name}: operand {operand.name} is {operand.dtype} ({form.low} .. {form.high}), met {array.tolist()}"
        )
    return array.astype(np.float32).astype(form.dtype) if form.is_float else array.astype(form.dtype)


def element_of(
    form: Instruction, a: str, b: str, k: int, add: Callable[[Value | None, Value, Value], Value]
) -> Instruction:
    """One output of a product of matrices: `add` gets acc, if the form has it, and `k` elements of each type."""
    types, names = {"a": a, "b": b}, [operand.name for operand in form.operands]

    def function(*values: Value) -> Value:
        given = dict(zip(names, values, strict=True))
        return add(given.get("acc"), given["a"], given["b"])

    first, *more = form.doc.split(".", 1)
    function.__doc__ = ".".join([f"One of {first.split(',')[0]}: a row of a by a column of b", *more])
    operands = tuple(Operand(o.name, types[o.name], k) if o.name in types else o for o in form.operands)
    width = max(fmt(form.result).bits, *(k * fmt(dtype).bits for dtype in types.values()))
    return Instruction(
        form.name,
        operands,
        form.result,
        function,
        form.manual,
        {width: next(iter(form.caps.values()))},
        accumulates=form.accumulates,
        native=False,
        whole=True,
    )


@dataclass(frozen=True)
class Pieces(InNotebooks):
    """A product of matrices in pieces: `one` makes a part of a row from a row of `a` and some columns of `b`, added to
    that part of `acc`. A row has `columns` of them, the result `rows` rows.
    """

    one: Instruction
    rows: int
    columns: int = 1


@dataclass(frozen=True, repr=False)
class Family(Instruction):
    """An instruction whose operand types its arguments choose. A Program names one form: "dpas.s8.s8.8.8.x16.s32"."""

    def form(self, name: str) -> Instruction:
        """The form that a full name stands for; `UnknownName` where there is none."""
        raise unknown_name("instruction", name, self.forms(), "simdnn list instructions")

    def forms(self) -> list[str]:
        """Full names of its forms; where these are too many, of some of each kind."""
        return [name for name, form in GPU_REGISTRY.items() if form.family == self.name]


REGISTRY: Registry[str, Instruction] = Registry("instruction")  # of x86 CPUs: what this host may have itself
GPU_REGISTRY: Registry[str, Instruction] = Registry("instruction")  # of GPUs, families among them
#: makers of forms too many to list: a full name to its Instruction, or None for another maker's name
FORMS: list[Callable[[str], Instruction | None]] = []


@keywords
def instruction(name: str) -> Instruction:
    """The instruction called `name`, or the form of one of its families.

    An intrinsic's name is refused with the instructions that are named alike.

    >>> int(instruction("vpmaddubsw")(np.array([255, 255], "u1"), np.array([127, 127], "i1"))[0])
    32767
    """
    if not isinstance(name, str):
        raise InvalidArgument(f"instruction {name!r:.80}; the name of one is needed, e.g. 'vpmaddubsw'")
    if (found := _found(name)) is not None:
        return found
    load()
    if (found := _found(name) or _found(name.lower())) is not None:  # as manuals write it
        return found
    if like := instructions_like_intrinsic(name, REGISTRY):
        raise UnknownName(f"unknown instruction {shortly(name)}: an intrinsic; named alike are {some(like, 4)}")
    raise with_failures(unknown_name("instruction", name, [*REGISTRY, *GPU_REGISTRY], "simdnn list instructions"))


def _found(name: str) -> Instruction | None:
    """The instruction of a name among those that are registered by now."""
    found = REGISTRY.get(name) or GPU_REGISTRY.get(name)
    if found is not None:
        return found
    for forms in FORMS:
        if (made := forms(name)) is not None:
            return made
    family = GPU_REGISTRY.get(name.split(".")[0])
    return family.form(name) if isinstance(family, Family) else None


_SIGNATURE = re.compile(r"(\w+)(?:\*(\d+(?:\.\d+)?))?(?:\[(\d+)\])?$")


def define(
    name: str,
    signature: str,
    caps: Mapping[int, tuple[str, ...]],
    manual: str,
    registry: dict[str, Instruction] = REGISTRY,
    **facts: Any,
) -> Callable[[F], F]:
    """Register the decorated function as instruction `name`.

    `signature` is "result <- operand, operand", each operand a type and, after a star, its lanes per lane of the
    result ("s32 <- s32, u8*4, s8*4"), or in brackets how many it has whatever the result ("bf16[512]"). Parameters of
    the function annotated `int` are immediates, those annotated `str` are in `choices`; one called `lanes` is given
    the result's lane count. A row of a family gives its docstring as `doc` (see `example`).
    """

    def register(function: F) -> F:
        made = make(name, signature, caps, manual, function, **facts)
        for cap in (cap for given in caps.values() for cap in given if registry is REGISTRY):
            implied(cap)  # refuses a name that is none; GPUs call theirs otherwise
        registry[name] = made
        return function

    return register


def example(name: str, text: str, call: str, result: str) -> str:
    """A docstring: `text`, and a doctest of instruction `name` over `call`."""
    line = f">>> instruction({name!r})({call}).tolist()".replace("'", '"')
    return f"{text}\n\n>>> from isa_models import instruction\n{line}\n{result}\n"


def make(
    name: str,
    signature: str,
    caps: Mapping[int, tuple[str, ...]],
    manual: str,
    function: Callable[..., Any],
    doc: str = "",
    **facts: Any,
) -> Instruction:
    """The Instruction that `define` registers.

    Raises `InvalidArgument` for a signature that is none or that the function does not take, `UnknownName` for a type.
    """
    function.__doc__ = doc or function.__doc__
    result, arrow, operands = (part.strip() for part in signature.partition("<-"))
    plain: Any = inspect.unwrap(function)  # whose code tells its parameters in a tenth of the time of a signature
    parameters, hints = plain.__code__.co_varnames[: plain.__code__.co_argcount], plain.__annotations__
    immediates = tuple(p for p in parameters if hints.get(p) in ("int", int) and p != "lanes")
    named = [p for p in parameters if hints.get(p) in ("str", str)]
    names = [p for p in parameters if p not in (*immediates, *named, "lanes")]
    told = [_SIGNATURE.match(text.strip()) for text in operands.split(",") if text.strip()]
    if not arrow or None in told or len(told) != len(names):
        raise InvalidArgument(
            f"{name}: signature {signature!r} of a function of ({', '.join(names)}); a type of the result, <-, and an "
            "operand for each of these are needed, as 's32 <- s32, u8*4, s8*4'"
        )
    parsed = []
    for label, match in zip(names, cast("list[re.Match[str]]", told), strict=True):
        parsed.append(Operand(label, match[1], 0 if match[3] else float(match[2] or 1), int(match[3] or 1)))
    for dtype in (result, *(operand.dtype for operand in parsed)):
        fmt(dtype)
    return Instruction(
        name, tuple(parsed), result, function, manual, caps, immediates, takes_lanes="lanes" in parameters, **facts
    )
