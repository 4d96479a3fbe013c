"""Vector instructions of each vendor's GPUs as kernels write them: a table of names, and short runs of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache

from isa_models import GpuMachine, Unimplemented, instruction
from isa_models.formats import fmt
from simdnn.kernels.common.code import Code, op
from simdnn.program.records import Affine, Memory, Place, Register

_INTEL = {
    "add": "add.f32",
    "sub": "sub.f32",
    "mul": "mul.f32",
    "div": "div.f32",
    "min": "min.f32",
    "max": "max.f32",
    "sqrt": "sqrt.f32",
    "fma": "mad.f32.apart",
    "and": "and.u32",
    "or": "or.u32",
    "xor": "xor.u32",
    "float": "mov.f32.s32",
    "nearest": "mov.s32.f32.sat",
    "iadd": "add.s32",
    "isub": "sub.s32",
    "imax": "max.s32",
    "shl": "shl.u32",
    "shr": "shr.u32",
    "sar": "asr.s32",
    "f32<-f16": "mov.f32.f16",
    "f32<-bf16": "mov.f32.bf16",
    "f16<-f32": "mov.f16.f32",
    "bf16<-f32": "mov.bf16.f32",
    "s32<-s8": "mov.s32.s8",
    "s32<-u8": "mov.s32.u8",
    "s32<-s16": "mov.s32.s16",
    "s32<-u16": "mov.s32.u16",
    "s8<-s32": "mov.s8.s32.sat",
    "u8<-s32": "mov.u8.s32.sat",
}
_NVIDIA = {
    "add": "add.rn.f32",
    "sub": "sub.rn.f32",
    "mul": "mul.rn.f32",
    "div": "div.rn.f32",
    "sqrt": "sqrt.rn.f32",
    "fma": "fma.rn.f32.apart",
    "and": "and.b32",
    "or": "or.b32",
    "xor": "xor.b32",
    "float": "cvt.rn.f32.s32",
    "nearest": "cvt.rni.s32.f32",
    "iadd": "ptx_add.s32",
    "isub": "ptx_sub.s32",
    "imax": "ptx_max.s32",
    "shl": "shl.b32",
    "shr": "ptx_shr.u32",
    "sar": "ptx_shr.s32",
    "f32<-f16": "cvt.f32.f16",
    "f32<-bf16": "mov.b32.bf16",
    "f16<-f32": "cvt.rn.f16.f32",
    "bf16<-f32": "cvt.rn.bf16.f32",
    "s32<-s8": "cvt.s32.s8",
    "s32<-u8": "cvt.s32.u8",
    "s32<-s16": "cvt.s32.s16",
    "s32<-u16": "cvt.s32.u16",
    "s8<-s32": "cvt.sat.s8.s32",
    "u8<-s32": "cvt.sat.u8.s32",
}
_INTEGER = {
    "float": ("s32", "f32"),
    "nearest": ("f32", "s32"),
    **dict.fromkeys(("and", "or", "xor"), ("u32", "u32")),
    **dict.fromkeys(("shl", "shr"), ("u32", "u32")),
    **dict.fromkeys(("iadd", "isub", "imax", "sar"), ("s32", "s32")),
}


@dataclass(frozen=True)
class Words:
    """One vendor's names. Registers are of any number of lanes; the clock charges each pass of the pipe.

    What a vendor has no instruction for is made of others: of two numbers the one that `compared` says, by a mask and
    `select`; the nearest integer of what `whole` rounds; folded lanes of those that `shuffle` brings down.
    """

    names: Mapping[str, str]
    load_name: str
    splat_name: str
    store_name: str
    fused: str  # acc + a * b, into acc
    compared: Mapping[str, str] = field(default_factory=dict)  # min, max: PTX's own lose a NaN
    select: str = ""
    whole: str = ""
    shuffle: str = ""

    def named(self, step: str, what: str) -> str:
        if step not in self.names:
            raise Unimplemented(f"{what} on this GPU: no instruction here for it")
        return self.names[step]

    def apply(self, step: str, dst: Register, *sources: Register, **immediates: int) -> Code:
        """A step of a formula (`simdnn.kernels.common.expression`); `fma` is a * b + c. `dst` may be a source."""
        before, after = _INTEGER.get(step, ("f32", "f32"))
        result, values = dst.as_(after), [source.as_(before) for source in sources]
        if step == "fma":
            a, b, c = values
            return [op(self.names["fma"], result, c, a, b)]
        if compare := self.compared.get(step):
            mask = Register("mask", "u32", dst.lanes)
            words = (v.as_("u32") for v in values)
            return [op(compare, mask, *values), op(self.select, result.as_("u32"), mask, *words)]
        if step == "nearest" and self.whole:
            whole = Register("whole", "f32", dst.lanes)
            return [op(self.whole, whole, *values), op(self.names[step], result, whole)]
        return [op(self.named(step, step), result, *values, **immediates)]

    def load(self, dst: str, tensor: str, dtype: str, at: Affine, lanes: int, same: bool = False) -> Code:
        """`lanes` neighbouring elements (`same`: one for all lanes) in 32-bit lanes: floats as f32, integers as s32."""
        wide = "f32" if fmt(dtype).is_float else "s32"
        narrow = Register(dst if dtype == wide else f"{dst}_", dtype, lanes)
        name = (self.splat_name if same else self.load_name).format(dtype)
        code: Code = [op(name, narrow, Memory(tensor, at, dtype, 1 if same else lanes))]
        if dtype != wide:
            name = self.named(f"{wide}<-{dtype}", f"operands of {dtype}")
            code.append(op(name, Register(dst, wide, lanes), narrow))
        return code

    def store(self, tensor: str, dtype: str, at: Affine, src: Register) -> Code:
        """A register of f32 or s32 as elements of a type; integers are saturated."""
        place: Place = Memory(tensor, at, dtype, src.lanes)
        if dtype == src.dtype:
            return [op(self.store_name.format(dtype), place, src)]
        narrow = Register("narrow", dtype, src.lanes)
        name = self.named(f"{dtype}<-{src.dtype}", f"{dtype} from {src.dtype}")
        return [op(name, narrow, src), op(self.store_name.format(dtype), place, narrow)]

    def fold(self, step: str, register: Register) -> Code:
        """All lanes combined into the first; their number is a power of two."""
        code, lanes = Code(), register.lanes
        while lanes > 1:
            whole, lanes = Register(register.name, "f32", lanes), lanes // 2
            half = Register(register.name, "f32", lanes)
            if self.shuffle:
                other = Register("other", "f32", lanes)
                code += [op(self.shuffle, other, whole), *self.apply(step, half, half, other)]
            else:
                code.append(op(f"{self.names[step]}.fold", half, whole))
        return code


INTEL = Words(_INTEL, "load.{}", "load_splat.{}", "store.{}", "mad.f32", whole="rnde.f32")
NVIDIA = Words(
    _NVIDIA,
    "ld.global.{}",
    "ld.global.{}.same",
    "st.global.{}",
    "fma.rn.f32",
    compared={"max": "set.gt.u32.f32", "min": "set.lt.u32.f32"},
    select="lop3.b32.select",
    shuffle="shfl.down.f32",
)


def words_of(machine: GpuMachine) -> Words:
    """The names of a machine's vendor, as far as its generation has the instructions."""
    return _words(machine.nvidia, machine.platform.name)


@lru_cache
def _words(nvidia: bool, platform: str) -> Words:
    words = NVIDIA if nvidia else INTEL
    return replace(words, names={step: name for step, name in words.names.items() if _has(platform, name)})


def _has(platform: str, name: str) -> bool:
    return any(platform in caps for caps in instruction(name).caps.values())
