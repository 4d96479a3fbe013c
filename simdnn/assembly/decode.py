"""Machine code to instructions: what each reads and writes, and its operands' classes, by iced-x86."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import iced_x86 as iced

from isa_models.errors import InvalidArgument
from isa_models.instruction import TILE_ROW_BITS, TILE_ROWS
from isa_models.records.frozen import Frozen

MOST_CODE = 1 << 20  # bytes, in which a loop is looked for


def _names(kind: Any) -> dict[int, str]:
    return {value: name.lower() for name, value in vars(kind).items() if name.isupper() and isinstance(value, int)}


_MNEMONICS = _names(iced.Mnemonic)
_REGISTERS = _names(iced.Register)
MNEMONICS, REGISTERS = frozenset(_MNEMONICS.values()), frozenset(_REGISTERS.values())
_READS = {iced.OpAccess.READ, iced.OpAccess.COND_READ, iced.OpAccess.READ_WRITE, iced.OpAccess.READ_COND_WRITE}
_WRITES = {iced.OpAccess.WRITE, iced.OpAccess.COND_WRITE, iced.OpAccess.READ_WRITE, iced.OpAccess.READ_COND_WRITE}
_SHORT_IMMEDIATES = {
    iced.OpKind.IMMEDIATE8,
    iced.OpKind.IMMEDIATE8_2ND,
    iced.OpKind.IMMEDIATE8TO16,
    iced.OpKind.IMMEDIATE8TO32,
    iced.OpKind.IMMEDIATE8TO64,
}
_LONG_IMMEDIATES = {
    iced.OpKind.IMMEDIATE16,
    iced.OpKind.IMMEDIATE32,
    iced.OpKind.IMMEDIATE32TO64,
    iced.OpKind.IMMEDIATE64,
}
IMMEDIATES = _SHORT_IMMEDIATES | _LONG_IMMEDIATES
_BRANCHES = {iced.FlowControl.CONDITIONAL_BRANCH, iced.FlowControl.UNCONDITIONAL_BRANCH}
_NEAR = {iced.OpKind.NEAR_BRANCH16, iced.OpKind.NEAR_BRANCH32, iced.OpKind.NEAR_BRANCH64}
NO_NAMES: Mapping[int, str] = Frozen({})
_CALLS = {iced.FlowControl.CALL, iced.FlowControl.INDIRECT_CALL}
#: what a called function may leave changed (System V ABI): flags, masks, vectors, and general registers but rbx, rbp,
#: rsp and r12 to r15
_CHANGED_BY_CALLS = (
    *("rax", "rcx", "rdx", "rsi", "rdi", "r8", "r9", "r10", "r11", "%cf", "%zf"),
    *(f"zmm{number}" for number in range(32)),
    *(f"k{number}" for number in range(8)),
)
_QUAD_INDEX = re.compile(r"(?:gather|scatter)(?:pf\d)?q")
_CLASSES = (("zmm", "zmm"), ("ymm", "ymm"), ("xmm", "xmm"), ("tmm", "tmm"), ("mm", "mm"), ("k", "k"), ("st", "st"))
_CARRY, _OTHER_FLAGS = "%cf", "%zf"  # no names of registers, so that none can be taken for them
#: x86's conditions read the same unit's flags at the same cost: one row stands for each kind
_CONDITIONAL = re.compile(r"(j|cmov|set)(?!mp|rcxz|ecxz)\w+")
_CONDITION_OF = {"j": "jnz", "cmov": "cmovz", "set": "setz"}
_MASK = re.compile(r"^(vp?(?:gather|scatter)\w+ [^,]+), (k\d)")  # which the formatter writes as an operand
#: which Intel's syntax has behind the last register
_ROUNDING = re.compile(r"^(v[^,]+(?<! ))\{(r[nduz])?e?(-?sae)\}(.*?)(, (?:0x)?[0-9A-F]+)?$")
_STACKED = {  # as which mov they are, or what they move
    "push": {"r64": "m64,r64", "i8": "m64,i32", "i32": "m64,i32", "m64": "m64,m64"},
    "pop": {"r64": "r64,m64", "m64": "m64,m64"},
}
_NO_RESULT = {"vzeroupper", "vzeroall"}  # they name every register, but nobody waits for them
_SHIFTS = {"shl", "shr", "sal", "sar", "rol", "ror", "rcl", "rcr", "shld", "shrd"}
_OTHER_NAMES = {"sal": "shl", "endbr64": "nop", "fnop": "nop"}


def register_name(register: Any) -> str:
    """The whole register that a register is part of."""
    return _REGISTERS[iced.RegisterExt.full_register(register)]


def part_name(register: Any) -> str:
    """The register as it is written: eax, xmm1."""
    return _REGISTERS[register]


def operand_registers(raw: Any) -> list[Any]:
    """The registers among an instruction's operands, in their order."""
    return [raw.op_register(k) for k in range(raw.op_count) if raw.op_kind(k) == iced.OpKind.REGISTER]


@dataclass(frozen=True)
class MemoryOperand:
    """A memory operand: full register names (empty where there is none) and the bytes that it moves."""

    base: str
    index: str
    scale: int
    displacement: int
    bytes: int
    load: bool
    store: bool

    @property
    def registers(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(r for r in (self.base, self.index) if r and r != "rip"))

    @property
    def composed(self) -> bool:
        """Whether it has an index times more than one, or three parts."""
        return bool(self.index) and (self.scale > 1 or bool(self.base) and self.displacement != 0)


@dataclass(frozen=True)
class Decoded:
    """One instruction. `mnemonic` and `form` are as machine tables spell them; registers are whole ones (zmm for xmm).

    `same_sources`: its two last operands are one register (which may make a zero idiom).
    """

    address: int
    length: int
    text: str
    mnemonic: str
    form: str
    registers: tuple[str, ...]  # of the operands, in their order
    reads: tuple[str, ...]
    writes: tuple[str, ...]
    memory: MemoryOperand | None
    same_sources: bool
    target: int | None  # of a branch
    stack: bool  # moves the stack pointer by pushing or popping, which a core's stack engine does at no cost
    raw: Any

    @property
    def elements(self) -> int:
        """The elements that a gather or scatter moves one by one; 1 of everything else."""
        if not self.raw.is_vsib:
            return 1
        index = iced.RegisterExt.size(self.raw.memory_index) // (8 if _QUAD_INDEX.search(self.mnemonic) else 4)
        operands = operand_registers(self.raw)
        sizes = [iced.RegisterExt.size(r) for r in operands if iced.RegisterExt.is_vector_register(r)]
        return min([index, *(size // max(1, self.memory.bytes) for size in sizes if self.memory)])

    @property
    def is_call(self) -> bool:
        return self.raw.flow_control in _CALLS

    @property
    def is_branch(self) -> bool:
        return self.target is not None


def instructions(code: bytes, address: int = 0) -> list[Any]:
    """The instructions of `code`, iced-x86's; `InvalidArgument` for bytes that are none."""
    if not code:
        raise InvalidArgument("met no instructions; at least one is needed")
    if len(code) > MOST_CODE:
        raise InvalidArgument(
            f"met {len(code)} bytes of code, at most {MOST_CODE} are read; name a function, or mark a part"
        )
    decoder = iced.Decoder(64, code, ip=address)
    found = []
    for raw in decoder:
        if raw.is_invalid:
            at = raw.ip - address
            shown = code[at : at + 8].hex(" ")
            if decoder.last_error == iced.DecoderError.NO_MORE_BYTES:
                raise InvalidArgument(f"byte {at}: the code ends within an instruction that starts with {shown}")
            raise InvalidArgument(
                f"byte {at}: no instruction that is known here starts with {shown} (AVX10.2 and APX are not read)"
            )
        found.append(raw)
    return found


class Decoder:
    """Tells what instructions read and write, and writes their text in a syntax."""

    def __init__(self, syntax: str = "intel", names: Mapping[int, str] = NO_NAMES) -> None:
        self.names = names  # of addresses
        self.facts = iced.InstructionInfoFactory()
        self.is_att = syntax == "att"
        kind = iced.FormatterSyntax.GAS if self.is_att else iced.FormatterSyntax.INTEL
        self.formatter = iced.Formatter(kind)
        self.formatter.space_after_operand_separator = True
        self.formatter.hex_prefix, self.formatter.hex_suffix = "0x", ""
        self.formatter.small_hex_numbers_in_decimal = True
        self.formatter.branch_leading_zeros = False
        self.formatter.show_branch_size = False

    def decode(self, raws: Sequence[Any]) -> tuple[Decoded, ...]:
        """Some instructions of `instructions`, each decoded."""
        return tuple(self._one(raw) for raw in raws)

    def _one(self, raw: Any) -> Decoded:
        """One instruction, by the names that machines' tables have for it."""
        facts = self.facts.info(raw)
        mnemonic = _MNEMONICS[raw.mnemonic]
        stack = raw.is_stack_instruction
        reads, writes = self._registers(raw, facts, stack)
        if mnemonic in _NO_RESULT:
            reads, writes = (), ()
        memory = self._memory(raw, facts)
        if called := raw.flow_control in _CALLS:  # and come back from: what it pushes is popped there
            reads, writes, memory, stack = (), _CHANGED_BY_CALLS, None, False
        branch = raw.flow_control in _BRANCHES
        sources = operand_registers(raw)
        pair = sources[-2:] if memory is None else []
        form = "rel" if branch else "-" if called else self._form(raw, mnemonic)
        if stack and form in _STACKED.get(mnemonic, ()):  # the stack engine moves rsp at no cost
            form = _STACKED[mnemonic][form]
            if memory and form == "m64,m64":  # the operand that it names; no other has the bytes of the stack
                memory = replace(memory, load=mnemonic == "push", store=mnemonic == "pop")
            else:
                mnemonic = "mov"
        if conditional := _CONDITIONAL.fullmatch(mnemonic):
            mnemonic = _CONDITION_OF[conditional[1]]
        if raw.has_lock_prefix or mnemonic == "xchg" and memory is not None:  # waits for every store before it
            mnemonic = f"lock {mnemonic}"
        return Decoded(
            address=raw.ip,
            length=raw.len,
            text=self._text(raw),
            mnemonic=_OTHER_NAMES.get(mnemonic, mnemonic),
            form=form,
            registers=tuple(register_name(r) for r in sources),
            reads=reads,
            writes=writes,
            memory=memory,
            same_sources=len(pair) == 2 and pair[0] == pair[1],
            target=raw.near_branch_target if branch else None,
            stack=stack,
            raw=raw,
        )

    def _text(self, raw: Any) -> str:
        """A decoded instruction as LLVM's assembler reads it: masks in braces, the rounding last."""
        text = _MASK.sub(r"\1{\2}", " ".join(self.formatter.format(raw).split()))
        return self._named(raw, _ROUNDING.sub(r"\1\4, {\2\3}\5", text))

    def _named(self, raw: Any, text: str) -> str:
        """The text with a name for the address that a branch goes to, or that an operand beside rip has."""
        direct = raw.op_count and raw.op_kind(0) in _NEAR
        if direct:
            address = raw.near_branch_target
        elif raw.is_ip_rel_memory_operand:
            address = raw.ip_rel_memory_address
        else:
            return text
        if address not in self.names:
            return text
        name = self.names[address]
        if not direct:
            name = f"{name}(%rip)" if self.is_att else f"rip+{name}"
        number = f"{address:#x}" if address > 9 else str(address)
        return re.sub(rf"\b{number}\b", lambda _: name, text, count=1, flags=re.IGNORECASE)

    @staticmethod
    def _registers(raw: Any, facts: Any, stack: bool) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Whole registers read and written, addresses apart, and the two groups of flags that carry a value.

        What a gather's or scatter's addresses are made of counts as read: its latency is from there.
        """
        address = {raw.memory_base, raw.memory_index} if facts.used_memory() and not raw.is_vsib else set()
        reads: dict[str, None] = {}
        writes: dict[str, None] = {}
        operands = set(operand_registers(raw))
        for used in facts.used_registers():
            register, access = used.register, used.access
            if stack and register == iced.Register.RSP:
                continue
            name = register_name(register)
            partial = iced.RegisterExt.is_gpr8(register) or iced.RegisterExt.is_gpr16(register)
            if access in _WRITES:
                writes[name] = None
            kept = access == iced.OpAccess.COND_WRITE or access in _WRITES and partial  # what is not written stays
            if kept or access in _READS and (register not in address or register in operands):
                reads[name] = None
        if raw.rflags_read & iced.RflagsBits.CF:
            reads[_CARRY] = None
        if raw.rflags_read & ~iced.RflagsBits.CF & ~iced.RflagsBits.DF:
            reads[_OTHER_FLAGS] = None
        if raw.rflags_modified & iced.RflagsBits.CF:
            writes[_CARRY] = None
        if raw.rflags_modified & ~iced.RflagsBits.CF:
            writes[_OTHER_FLAGS] = None
        return tuple(reads), tuple(writes)

    @staticmethod
    def _memory(raw: Any, facts: Any) -> MemoryOperand | None:
        used = facts.used_memory()
        if not used:
            return None
        first = used[0]
        size = _size(raw, first.memory_size)
        if raw.is_vsib:  # a gather's single elements: no address is followed
            return MemoryOperand("", "", 1, 0, size, True, False)
        base, index = ("" if r == iced.Register.NONE else register_name(r) for r in (first.base, first.index))
        displacement = first.displacement
        displacement -= 1 << 64 if displacement >= 1 << 63 else 0
        load = any(u.access in _READS for u in used)
        store = any(u.access in _WRITES for u in used)
        return MemoryOperand(base, index, first.scale, displacement, size, load, store)

    @staticmethod
    def _form(raw: Any, mnemonic: str) -> str:
        if mnemonic in ("nop", "endbr64"):
            return "r64"
        parts = []
        for k in range(raw.op_count):
            kind = raw.op_kind(k)
            if kind == iced.OpKind.REGISTER:
                shifts = k == raw.op_count - 1 and raw.op_register(k) == iced.Register.CL and mnemonic in _SHIFTS
                parts.append("cl" if shifts else _register_class(raw.op_register(k)))
            elif kind in _SHORT_IMMEDIATES:
                parts.append("i8")
            elif kind in _LONG_IMMEDIATES:
                parts.append("i11" if _is_small_sum(raw, mnemonic) else "i32")
            elif mnemonic == "lea":
                parts.append(_sum(raw))
            elif mnemonic.startswith("prefetch"):
                parts.append("m8")
            else:
                size = 8 * _size(raw, raw.memory_size)
                parts.append(f"m{size}bcst" if raw.is_broadcast else f"m{size}")
        if raw.has_op_mask and parts and not parts[0].startswith("k"):
            parts[0] += "{k}"
        elif raw.has_op_mask:
            parts[0] = "k{k}"
        return ",".join(parts) or "-"


def _is_small_sum(raw: Any, mnemonic: str) -> bool:
    """Whether a constant of 11 bits is added to a 64-bit register, or taken from one: done at rename on some cores."""
    wide = raw.op_count == 2 and raw.op_kind(1) == iced.OpKind.IMMEDIATE32TO64
    constant = raw.immediate(1) - (1 << 64 if raw.immediate(1) >> 63 else 0) if wide else 0
    return (
        wide
        and mnemonic in ("add", "sub")
        and -(1 << 10) <= constant < 1 << 10
        and _register_class(raw.op_register(0)) == "r64"
    )


def _sum(raw: Any) -> str:
    """The terms of lea: a register and a constant, two registers, one of them scaled (s), these and a constant (3)."""
    base, index = (r not in (iced.Register.NONE, iced.Register.RIP) for r in (raw.memory_base, raw.memory_index))
    scaled = "s" if raw.memory_index_scale > 1 else ""
    if base and index and raw.memory_displacement:
        return "agen3" + scaled
    return "agens" if scaled else "agen2" if base and index else "agen"


def _size(raw: Any, kind: Any) -> int:
    """Bytes of a memory operand; a tile's are those of a full one."""
    tile = any(raw.op_kind(k) == iced.OpKind.REGISTER and "tmm" in _REGISTERS[raw.op_register(k)] for k in range(2))
    return TILE_ROWS * TILE_ROW_BITS // 8 if tile else int(iced.MemorySizeExt.size(kind))


def _register_class(register: Any) -> str:
    name = _REGISTERS[register]
    for start, kind in _CLASSES:
        if name.startswith(start) and name[len(start) :].isdigit():
            return kind
    return f"r{8 * iced.RegisterExt.size(register)}"
