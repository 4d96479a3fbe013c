"""Meanings of encoded instructions: the package's own definition, and how its operands stand in the code."""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass

import iced_x86 as iced

from isa_models.formats import fmt
from isa_models.instruction import REGISTRY, Instruction
from isa_models.plugins import load
from simdnn.assembly.decode import IMMEDIATES, Decoded, operand_registers

#: spellings with the same bits, whose element types the operation does not look at: the instruction, and bits of a lane
_SAME_BITS: dict[str, tuple[str, int]] = {
    **{
        f"v{p}{op}{end}": (f"vp{op}", bits)
        for op in ("and", "andn", "or", "xor")
        for p, end, bits in (("p", "d", 32), ("p", "q", 64), ("", "ps", 32), ("", "pd", 64))
    },
    **dict.fromkeys(("vmovaps", "vmovntps"), ("vmovups", 32)),
    **dict.fromkeys(("vmovdqa", "vmovdqa32", "vlddqu", "vmovntdq", "vmovntdqa"), ("vmovdqu", 32)),
    **dict.fromkeys(("vmovdqa64", "vmovdqu64", "vmovapd", "vmovupd", "vmovntpd"), ("vmovdqu", 64)),
    "vmovsd": ("vmovq", 64),
    "vpternlogq": ("vpternlogd", 64),
    "vpermi2ps": ("vpermi2d", 32),
    "vpermi2pd": ("vpermi2q", 64),
    "vcvtph2psx": ("vcvtph2ps", 32),
    **{f"vextract{t}64x2": (f"vextract{t}32x4", 64) for t in "if"},
    **{f"vextract{t}32x8": (f"vextract{t}64x4", 32) for t in "if"},
    **{f"vinsert{t}64x2": (f"vinsert{t}32x4", 64) for t in "if"},
    **{f"vinsert{t}32x8": (f"vinsert{t}64x4", 32) for t in "if"},
}
#: of a 256-bit register there are two blocks, as in the instruction before EVEX
_AT_256 = {
    f"v{verb}{t}{form}": f"v{verb}{t}128" for verb in ("extract", "insert") for t in "if" for form in ("32x4", "64x2")
}
#: operations on the lowest lane whose packed form has another name than theirs with p in place of s
_LOWEST_LANE = {
    "vcvtss2sd": "vcvtps2pd",
    "vcvtsd2ss": "vcvtpd2ps",
    "vcvtss2sh": "vcvtps2phx",
    "vcvtsh2ss": "vcvtph2ps",
    "vcvtsi2ss": "vcvtdq2ps",
    "vcvtsi2sd": "vcvtdq2pd",
    "vcvtusi2ss": "vcvtudq2ps",
    "vcvtusi2sd": "vcvtudq2pd",
    "vcvtss2si": "vcvtps2dq",
    "vcvttss2si": "vcvttps2dq",
    "vcvtss2usi": "vcvtps2udq",
    "vcvttss2usi": "vcvttps2udq",
}
CLEARED = {"vzeroupper": 16, "vzeroall": 0}  # from which byte on, of the 16 registers that VEX has
_ELEMENTS = {"vmovss", "movss", "vmovsd", "movsd"}
#: they set flags, which nothing here looks at
_COMPARISONS = {f"{v}{u}comis{end}" for v in ("", "v") for u in ("", "u") for end in "sdh"}
_GATHERED = re.compile(r"vp?(gather|scatter)([dq])(d|q|ps|pd)")


@dataclass(frozen=True)
class Meaning:
    """An instruction's definition, and the encoded operands that the definition's operands are, by number.

    `legacy`: it keeps what its register holds above the result. `lowest`: the lowest lane alone is computed, and the
    other lanes are those of `rest`, an encoded operand.
    """

    definition: Instruction
    sources: tuple[int, ...]
    immediates: tuple[int, ...]
    lanes: int
    mask_bits: int  # of a lane that a mask has a bit for
    legacy: bool = False
    lowest: bool = False
    rest: int = 0


@dataclass(frozen=True)
class Elements:
    """A gather or scatter: the types of an element and of an index."""

    dtype: str
    index: str
    store: bool


def is_vector(one: Decoded) -> bool:
    """Whether an instruction computes with vector or mask registers; a comparison that sets flags does not count."""
    if one.mnemonic in _COMPARISONS:
        return False
    return one.mnemonic in CLEARED or any(not r.startswith("r") for r in one.registers)


def elements_of(one: Decoded) -> Elements | None:
    """The elements that a gather or scatter moves; None for any other instruction.

    >>> from simdnn.assembly.analysis import read_body
    >>> elements_of(read_body("vgatherdps zmm0{k1}, [rsi + 4*zmm1]").instructions[0])
    Elements(dtype='f32', index='s32', store=False)
    """
    found = _GATHERED.fullmatch(one.mnemonic)
    if found is None:
        return None
    verb, index, element = found.groups()
    dtype = {"d": "s32", "q": "u64", "ps": "f32", "pd": "f64"}[element]
    return Elements(dtype, {"d": "s32", "q": "s64"}[index], verb == "scatter")


def meaning_of(one: Decoded) -> Meaning | None:
    """The meaning of an instruction; None where its name, width, operands, mask or rounding has none here."""
    raw = one.raw
    if raw.rounding_control != iced.RoundingControl.NONE or (found := _definition(one)) is None:
        return None
    definition, legacy, lowest, mask_bits = found
    if raw.has_op_mask and (legacy or lowest or definition.partial):
        return None  # which lanes the mask is of is not said by the result's
    operand = definition.operands[-1]
    if raw.is_broadcast and fmt(definition.result).bits < fmt(operand.dtype).bits * operand.per:
        return None  # narrowing: how many lanes is in no register
    width, immediates = _width(one, definition), _immediates(one)
    sources = _sources(one, definition, legacy, lowest)
    if sources is None or width not in definition.caps or lowest and _has_long_integer(one):
        return None
    return Meaning(
        definition,
        sources,
        immediates,
        1 if lowest else definition.lanes(width),
        mask_bits or definition.mask_bits or fmt(definition.result).bits,
        legacy,
        lowest,
        0 if legacy or definition.destructive else 1,
    )


@functools.cache
def _by_mnemonic() -> dict[str, list[Instruction]]:
    """Instructions by mnemonic, one for each of its forms."""
    load()
    found: dict[str, list[Instruction]] = {}
    for one in REGISTRY.values():
        for name in dict.fromkeys((one.mnemonic_of_form or one.name, one.evex)):
            if name and not one.tile:
                found.setdefault(name, []).append(one)
    return found


def _definition(one: Decoded) -> tuple[Instruction, bool, bool, int] | None:
    """The instruction's definition; whether it is a legacy form, and one of the lowest lane; bits of a masked lane."""
    for mnemonic, legacy in ((one.mnemonic, False), ("v" + one.mnemonic, True)):
        same, mask_bits = _SAME_BITS.get(mnemonic, (mnemonic, 0))
        if mnemonic in _AT_256 and _widest(one) == 256:
            same, mask_bits = _AT_256[mnemonic], 64 if mnemonic.endswith("64x2") else 32
        lowest = one.mnemonic in _ELEMENTS and one.memory is None
        forms = _by_mnemonic().get(same)
        if not forms:
            forms, lowest = _by_mnemonic().get(_LOWEST_LANE.get(same) or re.sub(r"s([sdh])$", r"p\1", same)), True
        if forms:
            return next((form for form in forms if _is_of(one, form)), forms[0]), legacy, lowest, mask_bits
    return None


def _is_of(one: Decoded, form: Instruction) -> bool:
    """Whether an instruction is of this form of its mnemonic: what its result goes to, and how many immediates."""
    raw = one.raw
    register = raw.op_register(0) if raw.op_count and raw.op_kind(0) == iced.OpKind.REGISTER else iced.Register.NONE
    counted = len(_immediates(one)) == len(form.immediates)
    return counted and iced.RegisterExt.is_k(register) == fmt(form.result).is_truth


def _sources(one: Decoded, definition: Instruction, legacy: bool, lowest: bool) -> tuple[int, ...] | None:
    """Numbers of the encoded operands that the definition's operands are; None where the forms do not match."""
    last = one.raw.op_count - len(_immediates(one))
    count = len(definition.operands) - definition.mask
    if len(_immediates(one)) != len(definition.immediates):
        return None
    if lowest:
        return tuple(range(last - count, last))
    if last == count + 1 and not (definition.destructive or definition.flags):
        return tuple(range(1, last))
    if last == count and (definition.destructive or definition.flags or legacy):
        return tuple(range(last))
    return None


def _immediates(one: Decoded) -> tuple[int, ...]:
    raw = one.raw
    return tuple(raw.immediate(k) & 255 for k in range(raw.op_count) if raw.op_kind(k) in IMMEDIATES)


def _has_long_integer(one: Decoded) -> bool:
    """Whether an operand is a general register of 64 bits, or memory in its place."""
    long = any(iced.RegisterExt.is_gpr64(register) for register in operand_registers(one.raw))
    return long or "si2s" in one.mnemonic and one.memory is not None and one.memory.bytes == 8


def _widest(one: Decoded) -> int:
    """Bits of the widest vector register; 0 without one."""
    sizes = [iced.RegisterExt.size(r) for r in operand_registers(one.raw) if iced.RegisterExt.is_vector_register(r)]
    return 8 * max(sizes, default=0)


def _width(one: Decoded, definition: Instruction) -> int:
    """Bits of the widest vector register, or of what memory stands for one, or of masks; 0 without a register."""
    widest = _widest(one)
    if not widest and any(map(iced.RegisterExt.is_k, operand_registers(one.raw))):
        return next(iter(definition.caps))
    return max(widest, 8 * one.memory.bytes if one.memory else 0) if widest else 0
