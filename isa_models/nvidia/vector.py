"""PTX instructions of a warp's CUDA cores that the kernels need: one row each, by type; a register is 32 lanes.

Source: PTX ISA, "Floating Point Instructions", "Half Precision Floating Point Instructions", "Data Movement and
Conversion Instructions". `.rn` rounds to nearest even; subnormals count in full (no `.ftz`). A NaN result is the
canonical one, 7FFFFFFFH of f32 and 7FFFH of f16.

Runs of them over a block of M rows are written as one form (`isa_models.gpu.block_forms`): "fma.rn.f32.8x32.outer",
"add.rn.f32.8x32.row".
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from isa_models.algebra import Value
from isa_models.formats import fmt
from isa_models.gpu.block_forms import block_form
from isa_models.gpu.naming import NAME, Naming
from isa_models.instruction import FORMS, GPU_REGISTRY, Instruction, Operand, define, example
from isa_models.nvidia.platforms import PLATFORMS, WARP
from isa_models.rounding import round_to, widen_f16

#: comparisons, choices, bits and sums of integers, which have a pipe of their own beside the one of f32 arithmetic
ALU = frozenset(("and", "lop3", "mov", "or", "prmt", "ptx_add", "ptx_max", "ptx_shr", "ptx_sub", "selp", "set", "shl"))
ALU |= {"shr", "xor"}
MANUAL = "PTX ISA, Instructions: "
CAPS = {WARP * 32: tuple(PLATFORMS)}
_BF16 = {WARP * 32: tuple(name for name, p in PLATFORMS.items() if p.warp_product("bf16"))}  # sm_80 and later


def canonical(value: Value) -> Value:
    """f32 lanes, each NaN the canonical one."""
    nan = value.view("u32").literal(0x7FFFFFFF).view("f32")
    return value.is_nan().rarely(value, lambda: value.is_nan().where(nan, value))


def row(
    name: str,
    signature: str,
    function: Callable[..., Value],
    text: str,
    call: str,
    result: str,
    caps: dict[int, tuple[str, ...]] = CAPS,
    **facts: Any,
) -> None:
    facts.setdefault("rate", "alu" if name.split(".")[0] in ALU else "f32")
    doc = example(name, text, call, result)
    manual = MANUAL + name.split(".")[0]
    define(name, signature, caps, manual, GPU_REGISTRY, doc=doc, native=False, warp=WARP, **facts)(function)


def _add(a: Value, b: Value) -> Value:
    return canonical(a + b)


def _fma(acc: Value, a: Value, b: Value) -> Value:
    return canonical(a.fma(b, acc))


def _max(a: Value, b: Value) -> Value:
    """The one that is a number; +0 is greater than -0."""
    zeros = a.view("u32") & b.view("u32")
    greater = (a > b).where(a, a.eq(b).where(zeros.view("f32"), b))
    return canonical(a.is_nan().where(b, b.is_nan().where(a, greater)))


def _zero(a: Value, b: Value) -> Value:
    return a ^ b


row("add.rn.f32", "f32 <- f32, f32", _add, "Sum.", "[2.5], [1]", "[3.5]", ways=("row",))
row(
    "fma.rn.f32",
    "f32 <- f32, f32, f32",
    _fma,
    "acc + a * b, rounded once.",
    "[1], [2], [3]",
    "[7.0]",
    accumulates=True,
    ways=("row", "outer"),
)
row(
    "fma.rn.f32.apart",
    "f32 <- f32, f32, f32",
    lambda acc, a, b: _fma(acc, a, b),
    "fma.rn.f32 into a register of its own.",
    "[1], [2], [3]",
    "[7.0]",
)
row(
    "ptx_max.f32",
    "f32 <- f32, f32",
    _max,
    "The greater, or the one that is a number (PTX: max.f32).",
    "[2], [5]",
    "[5.0]",
    chooses=True,
)
convert = functools.partial(row, rate="conversion")
convert(
    "cvt.rn.f16.f32", "f16 <- f32", lambda a: round_to(canonical(a), "f16"), "To f16, nearest even.", "[1.5]", "[1.5]"
)
convert("cvt.f32.f16", "f32 <- f16", lambda a: canonical(widen_f16(a)), "f16 as f32, exactly.", "[1.5]", "[1.5]")
convert(
    "cvt.rn.bf16.f32",
    "bf16 <- f32",
    lambda a: round_to(canonical(a), "bf16"),
    "To bf16, nearest even.",
    "[1.5]",
    "[1.5]",
    caps=_BF16,
)
row(
    "mov.b32.bf16",
    "f32 <- bf16",
    lambda a: (a.view("u16").to("u32") << 16).view("f32"),
    "bf16 as f32: its bits above 16 zeros (PTX: mov.b32 d, {0, a}).",
    "[1.5]",
    "[1.5]",
    caps=_BF16,
)
row("xor.b32", "u32 <- u32, u32", _zero, "Exclusive or.", "[12], [10]", "[6]", clears=True)


# -- memory -----------------------------------------------------------------------------------------------------------
@dataclass(frozen=True, repr=False)
class SharedLoad(Instruction):
    """Loads of a fragment from shared memory; each element goes to the registers of `copies` threads.

    Shared memory holds what was in global memory, or (`widened`) that in a wider type: the threads that brought it
    there converted it, each element once.
    """

    @property
    def widened(self) -> bool:
        return self.operands[0].dtype != self.result


_LOADED = ("f32", "f16", "bf16", "u32", "s8", "u8", "f8_e4m3", "f8_e5m2")
SHARED = Naming("ld.shared.{dtype}.to{copies}", dtype=_LOADED)
WIDENED = Naming("ld.shared.{dtype}.{stored}.to{copies}", dtype=("f32",), stored=("f16",))


@functools.cache
def _shared_load(name: str) -> SharedLoad | None:
    """The form of a name such as "ld.shared.f16.to2", or "ld.shared.f32.f16.to2"."""
    if (fields := SHARED.read(name) or WIDENED.read(name)) is None:
        return None
    stored, dtype = fields.get("stored", fields["dtype"]), fields["dtype"]
    return SharedLoad(
        name,
        (Operand("a", stored),),
        dtype,
        _copy() if stored == dtype else _widen(),
        MANUAL + "ld",
        CAPS,
        native=False,
        moves=True,
        partial=True,
        copies=fields["copies"],
        warp=WARP,
    )


def _widen() -> Callable[[Value], Value]:
    """f16 as f32, exactly."""

    def widen(a: Value) -> Value:
        return canonical(widen_f16(a))

    return widen


def _copy() -> Callable[[Value], Value]:
    """A function of its own for each instruction: its docstring belongs to it."""

    def copy(a: Value) -> Value:
        return a

    return copy


for _type in ("f32", "f16", "bf16", "s32", "u32", "s16", "u16", "s8", "u8"):
    _call, _result = ("[1.5]", "[1.5]") if fmt(_type).is_float else ("[7]", "[7]")
    for _way in ("ld.global", "st.global"):
        row(f"{_way}.{_type}", f"{_type} <- {_type}", _copy(), "A copy.", _call, _result, moves=True, partial=True)

    def _same(a: Value, lanes: int) -> Value:
        return a.permute([0] * lanes)

    define(
        f"ld.global.{_type}.same",
        f"{_type} <- {_type}*0",
        CAPS,
        MANUAL + "ld",
        GPU_REGISTRY,
        moves=True,
        native=False,
        warp=WARP,
        doc=example(
            f"ld.global.{_type}.same",
            "One address for all lanes.",
            f"{_call}, lanes=2",
            f"[{_result[1:-1]}, {_result[1:-1]}]",
        ),
    )(_same)


row(
    "ld.global.cg.f32",
    "f32 <- f32",
    _copy(),
    "A copy, from the cache that all SMs share: where the kernel before left it.",
    "[1.5]",
    "[1.5]",
    moves=True,
    partial=True,
    apart=True,
)


# -- copies -----------------------------------------------------------------------------------------------------------
COPIED = Naming("{unit}.to{copies}", unit=NAME)


@functools.cache
def _copied(name: str) -> Instruction | None:
    """An instruction that each of several threads executes on the same elements, as "cvt.f32.f16.to2"."""
    if (fields := COPIED.read(name)) is None:
        return None
    found = GPU_REGISTRY.get(fields["unit"]) or block_form(fields["unit"])
    return replace(found, name=name, copies=fields["copies"]) if found and found.warp and not found.moves else None


FORMS.append(_copied)
FORMS.append(_shared_load)
