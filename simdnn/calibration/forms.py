"""Forms that are measured: the package's instructions in each form that this host has, as text for the assembler."""

from __future__ import annotations

import functools
import re

import iced_x86 as iced

from isa_models.errors import InvalidArgument
from isa_models.instruction import REGISTRY, Instruction
from isa_models.machines.loader import cpu_machine as machine
from isa_models.machines.shipped import machine_names
from simdnn.assembly.assembler import machine_code
from simdnn.calibration.sampler import TILES_AT

COPIES = 24  # of an instruction in the loop for throughput
DESTINATIONS = 12  # different ones among them, of general registers and masks those that are there
_POINTER = {8: "byte", 16: "word", 32: "dword", 64: "qword", 128: "xmmword", 256: "ymmword", 512: "zmmword"}
#: general instructions beside the package's, that loops are made of
_GENERAL = frozenset(
    """
    add sub and or xor lea imul shl shr cmovz adc sbb bswap tzcnt lzcnt popcnt bsr blsr bzhi pext pdep andn rorx shlx
    movzx movsxd setz crc32 vdivps vdivpd vsqrtps vaddpd vmulpd vfmadd231pd
    vaddss vmulss vdivss vdivsd vsqrtss vsqrtsd vsqrtpd vrcpps vrsqrtps vroundss vcvtsi2ss vcvtsi2sd vcvttss2si
    vcvttsd2si vcvtss2sd vcvtsd2ss vcvtps2pd vcvtpd2ps vcvtdq2pd vcvttpd2dq vpcmpeqw vpcmpgtw vpcmpeqq vpcmpgtq vpsignb
    vpsignw vpsignd vphaddw vphaddd vphsubw vphsubd vmpsadbw vphminposuw vdpps vinsertps vextractps vmovddup vmovhps
    vmovlps vpsllvq vpsrlvq vpclmulqdq vaesenc vgf2p8mulb
    """.split()
)


@functools.cache
def host_features() -> frozenset[str]:
    """CPUID features of this host as LLVM names them, without punctuation."""
    import llvmlite.binding as llvm  # for this question alone

    return frozenset(re.sub(r"[._-]", "", name) for name, on in llvm.get_host_cpu_features().items() if on)


def host_has(code: bytes) -> bool:
    """Whether this host's CPU has every instruction of some code."""
    names = {value: name for name, value in vars(iced.CpuidFeature).items() if name.isupper()}
    alike = {"intel8086": "", "intel386": "", "intel486": "", "cmov": "cx8", "x64": "64bit", "cpuid": ""}
    for one in iced.Decoder(64, code):
        for feature in one.cpuid_features():
            name = re.sub("_", "", names[feature]).lower()
            name = alike.get(name, name)
            if name and name not in host_features() and not name.startswith(("intel", "sse", "mmx")):
                return False
    return True


def forms() -> list[tuple[str, str]]:
    """(mnemonic, form) of the package's instructions and some general ones: registers, loads, stores; no masks."""
    wanted = {name for one in REGISTRY.values() for name in _spelled(one)} | _GENERAL
    found: dict[tuple[str, str], None] = {}
    for name in machine_names():
        for mnemonic, form in machine(name).instructions:
            if mnemonic in wanted and not re.search(r"\{k\}|bcst|\bcl\b|,1$|agen", form):
                found[mnemonic, form] = None
    return [key for key in found if _usable(*key)]


def _spelled(one: Instruction) -> set[str]:
    return {one.name} | ({one.evex} if one.evex else set())


def _usable(mnemonic: str, form: str) -> bool:
    """Whether the assembler has the form and this host the instruction."""
    try:
        return host_has(machine_code(text(mnemonic, form, 0, 1, 2)))
    except InvalidArgument:
        return False


def repeated(mnemonic: str, form: str) -> list[str]:
    """The loop, less its end, by which a form's throughput is told: `COPIES` that do not wait for each other, unless
    by what they read of their own destinations or of flags.
    """
    return [text(mnemonic, form, i % DESTINATIONS, 14, 15, i) for i in range(COPIES)]


def text(mnemonic: str, form: str, destination: int, source: int, other: int, turn: int = 0) -> str:
    """An instruction's line: registers by number, memory at rsi (loads) or rdi (stores), at each `turn` elsewhere.

    No number up to 13 names a register that 14 or 15 names. A tile's rows are r15 apart. Loads go through the bytes of
    one line: those of several lines would wait for each other, on a Zen where they read one bank (four bytes of each
    line), on a Golden Cove where they read one place of their lines.
    """
    if mnemonic == "ldtilecfg":
        return f"{mnemonic} [rsi+{TILES_AT}]"
    numbers = iter((destination, source, other, other))
    parts = []
    for position, operand in enumerate(form.split(",")):
        if match := re.match(r"m(\d+)", operand):
            base, bits, line = "rdi" if position == 0 else "rsi", int(match[1]), turn % 16 * 64
            if on_tiles(mnemonic, form):
                parts.append(f"[{base}+r15+{line}]")
            else:
                parts.append(f"{_POINTER[bits]} ptr [{base}+{line if position == 0 else turn * bits // 8 % 64}]")
            next(numbers, None)
        elif operand[0] == "i":
            parts.append("3")
        elif operand == "tmm":
            number = next(numbers)
            parts.append(f"tmm{number - 8 if number > 13 else number % 6}")
        elif operand[1:3] == "mm":
            parts.append(f"{operand}{next(numbers)}")
        elif operand == "k":
            number = next(numbers)
            parts.append(f"k{number - 8 if number > 13 else 1 + number % 5}")
        else:
            parts.append(_general(operand, next(numbers)))
    return f"{mnemonic} {', '.join(parts)}"


def _general(kind: str, number: int) -> str:
    names = ("rax", "rbx", "r8", "r9", "r10", "r11", "r12", "r13")
    name = f"r{number}" if number > 13 else names[number % len(names)]
    if kind in ("r64", "agen"):
        return name
    if kind == "r32":
        return name + "d" if name[1].isdigit() else "e" + name[1:]
    return name + "b" if name[1].isdigit() else name[1] + "l"


def on_tiles(mnemonic: str, form: str) -> bool:
    """Whether a form works on tiles, whose shapes must be set before."""
    return "tmm" in form.split(",") or mnemonic == "ldtilecfg"


def accumulates(mnemonic: str) -> bool:
    """Whether an instruction adds to its destination."""
    return any(one.accumulates for one in REGISTRY.values() if mnemonic in _spelled(one))


def chained(mnemonic: str, form: str) -> bool:
    """Whether one instruction can feed the next through its last register source: latency by a chain of it alone."""
    parts = form.split(",")
    sources = [part for part in parts[1:] if not part.startswith("i")]
    memory = any(re.match(r"m\d", part) for part in parts)
    return bool(sources) and not memory and parts[0] == sources[-1]
