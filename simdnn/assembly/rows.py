"""The row of a machine's table for an instruction that is spelled otherwise there.

uops.info lists the same ports, uops and latency for the spellings that are made equal here on all the machines that
ship (looked through for their instructions): legacy and VEX encodings, double and single precision outside of division
and roots, scalars and the 128-bit form, 32-bit and 64-bit general registers, merging masks, unaligned and aligned
moves. A form with a memory operand is its register form and a load. Such a row says what it was taken from.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Iterator
from dataclasses import replace

from isa_models.machines.cpu_record import Machine
from isa_models.machines.instruction_row import InstructionTiming
from isa_models.machines.provenance import Provenance, weakest

#: (mnemonic, form) patterns and their replacement, tried in this order, each on the outcome of those before it
_FMA = r"v(?:fn?m(?:add|sub)|fmaddsub|fmsubadd)(?:132|213|231)(p|s)"
_AS_SINGLE = (
    r"v(add|sub|mul|min|max|and|andn|or|xor|unpckl|unpckh|shuf|blendv|blend|permil|perm|movnt|blendm|mova|movu|"
    r"movmsk|hadd|hsub|addsub|cmp|round|rndscale|getexp|getmant|range|fixupimm|scalef|reduce)(p|s)d"
)
_SPELLINGS: tuple[tuple[re.Pattern[str], str], ...] = (
    (re.compile(r"vp(and|andn|or|xor|ternlog|blendm)q|vp(blendm)[bw]"), r"vp\1\2d"),
    (re.compile(r"vp(and|andn|or|xor)d"), r"vp\1"),
    (re.compile(rf"{_FMA}[sd]"), r"vfmadd231\1s"),
    (re.compile(rf"{_FMA}h"), r"vfmadd231\1h"),
    (re.compile(r"vfmadd231s([sh])"), r"vfmadd231p\1"),
    (re.compile(r"v(add|sub|mul|min|max|cmp|rndscale|scalef)sh"), r"v\1ph"),
    (re.compile(r"vsubph"), "vaddph"),
    (re.compile(r"v(min|max)ph"), "vminph"),
    (re.compile(_AS_SINGLE), r"v\1\2s"),
    (re.compile(r"v(add|sub|mul|min|max|cmp|round|rndscale|scalef|addsub|hsub)ss"), r"v\1ps"),
    (re.compile(r"vsubps|vaddsubps"), "vaddps"),
    (re.compile(r"vhsubps"), "vhaddps"),
    (re.compile(r"v(min|max)ps"), "vminps"),
    (re.compile(r"vmov(dqa|dqu|lddqu|aps|apd|upd)(8|16|32|64)?|vlddqu"), "vmovups"),
    (re.compile(r"vmovntp[sd]|vmovntdq"), "vmovntps"),
    (re.compile(r"v(insert|extract)[if]64x2"), r"v\1i32x4"),
    (re.compile(r"vinsert[if](32x4|64x2|128)"), "vinserti128"),
    (re.compile(r"vinsert[if](32x8|64x4)"), "vinserti64x4"),
    (re.compile(r"vextract[if](32x4|64x2|128)"), "vextracti128"),
    (re.compile(r"vextract[if](32x8|64x4)"), "vextracti64x4"),
    (re.compile(r"vshuf[if](32x4|64x2)"), "vshufi32x4"),
    (re.compile(r"vbroadcastsd"), "vbroadcastss"),
    (re.compile(r"vbroadcast[if]32x2"), "vpbroadcastq"),
    (re.compile(r"vpbroadcastq"), "vpbroadcastd"),
    (re.compile(r"vbroadcast[if](32x2|64x2|32x4)"), "vbroadcasti32x4"),
    (re.compile(r"vbroadcast[if](32x8|64x4)"), "vbroadcasti64x4"),
    (re.compile(r"vpmov([sz])x(\w\w)"), "vpmovsxwd"),
    (re.compile(r"vps(rl|ra)vq"), "vpsllvq"),
    (re.compile(r"vps(ll|rl|ra)v[wd]"), "vpsllvd"),
    (re.compile(r"vps(ll|rl|ra)[wdq]"), "vpslld"),
    (re.compile(r"vp(add|sub)[bwdq]"), "vpaddd"),
    (re.compile(r"vp(add|sub)u?s[bw]"), "vpaddsb"),
    (re.compile(r"vp(min|max)[su][bwd]"), "vpminsd"),
    (re.compile(r"vpabs[bwdq]"), "vpabsd"),
    (re.compile(r"vpmovu?s(qb|qw|qd)"), r"vpmov\1"),
    (re.compile(r"vpsh(ld|rd)(v?)[wq]"), r"vpsh\1\2d"),
    (re.compile(r"vpmadd52huq"), "vpmadd52luq"),
    (re.compile(r"v(getexp|getmant|reduce)sd"), r"v\1ss"),
    (re.compile(r"v(range|fixupimm|fpclass)s[sd]"), r"v\1ps"),
    (re.compile(r"vfpclass(pd|sh)"), r"vfpclassps"),
    (re.compile(r"v(rcp|rsqrt)14pd"), r"v\g<1>14ps"),
    (re.compile(r"v(rcp|rsqrt)14sd"), r"v\g<1>14ss"),
    (re.compile(r"vf(c?)(mul|madd)csh"), r"vf\1\2cph"),
    (re.compile(r"vcvt(pd2udq|pd2uqq|ps2uqq|s[sd]2usi)"), r"vcvtt\1"),
    (re.compile(r"vcvt(t?)ph2uqq"), r"vcvt\1ph2qq"),
    (re.compile(r"vcvtuqq2ph"), "vcvtqq2ph"),
    (re.compile(r"vpmul(dq|udq|hw|huw|hrsw|lw)"), "vpmullw"),
    (re.compile(r"vpavg[bw]"), "vpavgb"),
    (re.compile(r"vpcmp(eq|gt)[bwdq]|vpcmpu?[bwdq]"), "vpcmpd"),
    (re.compile(r"vptestn?m[bwdq]"), "vptestmd"),
    (re.compile(r"vpack[su]s(dw|wb)"), "vpackssdw"),
    (re.compile(r"v?punpck[lh](bw|wd|dq|qdq)"), "vpunpckldq"),
    (re.compile(r"vunpck[lh]ps"), "vunpcklps"),
    (re.compile(r"vperm(q|pd|ps)"), "vpermd"),
    (re.compile(r"vperm[it]2(pd|ps|q)"), "vpermt2d"),
    (re.compile(r"k(mov|xnor|and|or|xor|andn|not|ortest|test|add|shiftl|shiftr)[bwd]"), r"k\1w"),
    (re.compile(r"k(xnor|and|or|xor|andn|not|ortest|test|add)q"), r"k\1w"),
    (re.compile(r"vmov([hl])pd"), r"vmov\1ps"),
    (re.compile(r"vmovlps"), "vmovq"),
    (re.compile(r"vmov[hl]p[sd]"), "vunpcklps"),
    (re.compile(r"vmovsldup"), "vmovshdup"),
    (re.compile(r"vmov(lhps|hlps)"), "vunpcklps"),
)
#: under a mask these are another operation: a load that merges, a move that is not eliminated
_CHANGED_BY_A_MASK = re.compile(r"v(p?mov(?!ddup|s[hl]dup)|p?broadcast|cvt|p?expand|p?compress|p?gather|p?scatter)\w*")
_OWN_UNDER_A_MASK = re.compile(r"vmov\w*|vpmov[sz]x\w*")  # and one of their spellings is another one
_MASKED_MOVES = re.compile(r"vmov([au]p[sd]|dq[au](32|64))")  # of bytes and words merging is an operation of its own
CALL = "call", "-"
_EXTENDING_LOADS = {"movzx": ("movzx", "r64,m8"), "movsx": ("movsxd", "r64,m32")}  # of 8 and 16 bits, no ALU's work
_SCALAR_SPELLINGS = {
    "sub": "add",
    "and": "add",
    "or": "add",
    "xor": "add",
    "neg": "dec",
    "not": "neg",
    "inc": "dec",
    "dec": "neg",
    "sar": "shl",
    "shr": "shl",
    "movsx": "movzx",
    "movsxd": "movzx",
    "movzx": "movsxd",
    "cdqe": "dec",
    "test": "cmp",
    "prefetcht1": "prefetcht0",
    "prefetcht2": "prefetcht0",
    "prefetchnta": "prefetcht0",
    "prefetchw": "prefetcht0",
    "jmp": "jnz",
    "shl": "shr",
    "rol": "shl",
    "ror": "rol",
    "rcr": "rcl",
    "shrd": "shld",
    "shrx": "shlx",
    "sarx": "shlx",
    "btr": "bts",
    "btc": "bts",
    "cwde": "cdqe",
    "cbw": "cdqe",
    "cwd": "cdq",
    "bsf": "bsr",
    "sbb": "adc",
    "adox": "adcx",
}


def spellings(mnemonic: str, form: str) -> Iterator[tuple[str, str]]:
    """Forms that cost what this one does, itself first.

    >>> list(spellings("addsd", "xmm,xmm"))[-1]
    ('vaddps', 'xmm,xmm,xmm')
    """
    seen: dict[tuple[str, str], None] = {}
    queue = [(mnemonic, form)]
    while queue:
        key = queue.pop(0)
        if key in seen:
            continue
        seen[key] = None
        yield key
        queue += _next(*key)


def _next(mnemonic: str, form: str) -> Iterator[tuple[str, str]]:
    """The names and forms, the nearest first, whose row an instruction may have in place of its own."""
    parts = form.split(",")
    if mnemonic.startswith("lock "):
        yield from ((f"lock {name}", spelled) for name, spelled in _next(mnemonic.removeprefix("lock "), form))
        return
    if "mm" in parts:
        yield mnemonic, ",".join("xmm" if part == "mm" else part for part in parts)
    if mnemonic[0] not in "vk" and (mnemonic[:3] == "cvt" or any(p.startswith(("xmm", "mm")) for p in parts)):
        # The legacy form has its destination among the sources, or it has two operands in both encodings.
        yield "v" + mnemonic, form
        yield "v" + mnemonic, ",".join([parts[0], *parts])
        return
    yield from _next_vector(mnemonic, form) if mnemonic[0] in "vk" else _next_scalar(mnemonic, form)


def _next_vector(mnemonic: str, form: str) -> Iterator[tuple[str, str]]:
    """Names and forms for a VEX or EVEX encoding or an operation of masks: other spellings, then without the mask."""
    if mnemonic == "vmovsd" and "{k}" in form:
        yield "vmovss", form.replace("m64", "m32")
    elif mnemonic == "vmovsd":
        yield ("vmovq" if "m64" in form.split(",") else "vmovss"), form
    changed = "{k}" in form and _CHANGED_BY_A_MASK.fullmatch(mnemonic)
    if changed and _OWN_UNDER_A_MASK.fullmatch(mnemonic):
        if _MASKED_MOVES.fullmatch(mnemonic):
            yield "vmovups", form
        return
    for pattern, spelled in _SPELLINGS:
        if match := pattern.fullmatch(mnemonic):
            yield match.expand(spelled), form
    if "{k}" in form and not changed:
        yield mnemonic, form.replace("{k}", "")


def _next_scalar(mnemonic: str, form: str) -> Iterator[tuple[str, str]]:
    """Names and forms for general registers: other spellings, then wider registers, other constants, wider memory."""
    parts = form.split(",")
    if mnemonic in ("mov", *_EXTENDING_LOADS) and parts[0] == "r16" and parts[1][0] in "rm":  # keeps the other bits
        yield "mov", f"r8,{parts[1][0]}8"
    if mnemonic in _EXTENDING_LOADS and parts[-1] in ("m8", "m16"):
        yield _EXTENDING_LOADS[mnemonic]
    if mnemonic in _SCALAR_SPELLINGS:
        yield _SCALAR_SPELLINGS[mnemonic], form
    if mnemonic in ("div", "idiv", "mul", "movbe"):  # each width has its own time
        return
    for narrow in (r"^r(16|32)\b", r"\br(8|16|32)\b"):
        wide = re.sub(narrow, "r64", form)
        if wide != form:
            yield mnemonic, wide
    if mnemonic in ("movzx", "movsx") and parts[-1] == "r16":
        yield mnemonic, form.replace("r16", "r8")
    if "i11" in parts:
        yield mnemonic, form.replace("i11", "i32")
    if "i32" in parts:
        yield mnemonic, form.replace("i32", "i8")
    elif "i8" in parts:
        yield mnemonic, form.replace("i8", "i32")
    if mnemonic in ("add", "sub") and parts[1:] in (["i8"], ["i32"]):  # small sums are done at rename in 64 bits alone
        yield mnemonic, f"{parts[0]},r64"
    wide = re.sub(r"\bm(8|16|32)\b", "m64", form)
    if wide != form and not mnemonic.startswith(("prefetch", "movs", "movz", "imul")):
        yield mnemonic, wide


def _registers_for_memory(form: str) -> Iterator[str]:
    """Register forms that, with a load, do what a form with a memory source does."""
    parts = form.split(",")
    at = next((i for i, part in enumerate(parts) if re.match(r"m\d", part)), 0)
    if not at:
        return
    vector = next((p[:3] for p in (*parts[:at], *parts[at + 1 :]) if p[1:3] == "mm"), "")
    for register in dict.fromkeys((vector, "xmm", "ymm", "r64") if vector else ("r64", "r32")):
        if register:
            yield ",".join([*parts[:at], register, *parts[at + 1 :]])


def one_by_one(mnemonic: str) -> bool:
    """Whether an instruction moves the elements of a vector one by one, each at an address of its own."""
    return "gather" in mnemonic or "scatter" in mnemonic


def assumption(mnemonic: str) -> str:
    """The assumption that stands for the row of an instruction without one."""
    if not one_by_one(mnemonic):
        return "one uop"
    return f"one {'load' if 'gather' in mnemonic else 'store'} a lane, at least"


class Rows:
    """A machine with the rows that other spellings ask for; `machine` is what the clock reads."""

    def __init__(self, base: Machine) -> None:
        self.base = base
        self.found = dict(base.instructions)
        idioms = base.core.zero_idioms
        legacy = {name[1:] for name in idioms if name.startswith("v")}
        twins = {name[:-1] + end for name in idioms | legacy for end in "sd" if name.endswith("ps")}
        core = replace(base.core, zero_idioms=idioms | legacy | {name.replace("ps", "pd") for name in twins} | twins)
        self.machine = replace(base, instructions=self.found, core=core)

    def get(self, mnemonic: str, form: str) -> InstructionTiming | None:
        """The row of a form, made from another spelling's where the table has none; None without either."""
        key = mnemonic, form
        if key == CALL and key not in self.found:
            self.found[key] = self._call()
        if key not in self.found and (row := self._from(mnemonic, form)) is not None:
            self.found[key] = row
        return self.found.get(key)

    def _call(self) -> InstructionTiming:
        """The cost of a call beside the function: at least a branch."""
        row = self.find("jmp", "rel")
        return replace(
            row, mnemonic="call", form="-", provenance=Provenance("a branch; the function apart", "estimated")
        )

    def find(self, mnemonic: str, form: str) -> InstructionTiming:
        """The row of a form, as `get`; raises `UnknownTiming`, which says what is near, where there is none."""
        row = self.get(mnemonic, form)
        return self.base.timing(mnemonic, form) if row is None else row

    def _from(self, mnemonic: str, form: str) -> InstructionTiming | None:
        for other in spellings(mnemonic, form):
            row = self.base.instructions.get(other)
            if row is not None and (not row.eliminated or "mov" in other[0]):  # small sums at rename are a form's own
                return self._masked(self._renamed(row, mnemonic, form, "as"), other)
        for name, shape in spellings(mnemonic, form):
            for registers in _registers_for_memory(shape):
                for other in spellings(name, registers):
                    if other in self.base.instructions and not self.base.instructions[other].eliminated:
                        made = self._renamed(self.base.instructions[other], mnemonic, form, "a load and")
                        return self._masked(made, other)
        return None

    def _masked(self, row: InstructionTiming, found: tuple[str, str]) -> InstructionTiming:
        """A row that was made from the one `found`, with the cycles that a mask of narrow elements adds to that."""
        masks = self.base.core.narrow_masks
        longer = masks.cycles_of(row.mnemonic, row.form) - masks.cycles_of(*found)
        if longer <= 0:
            return row
        latency, source = row.latency + longer, f"{row.source}; its mask {longer:g} cycles more"
        provenance = Provenance(source, row.confidence)
        own = max(latency, row.accumulator_latency + longer)
        return replace(row, latency=latency, accumulator_latency=own, provenance=provenance)

    @staticmethod
    def _renamed(row: InstructionTiming, mnemonic: str, form: str, how: str) -> InstructionTiming:
        source = f"{how} {row.mnemonic} {row.form}: {row.source}"
        mmx = "mm" in form.split(",")  # which Intel runs on fewer ports
        standing = weakest([row.confidence, "estimated" if mmx else "documented"])
        return replace(row, mnemonic=mnemonic, form=form, provenance=Provenance(source, standing))

    def assuming(self, keys: Iterable[tuple[str, str]]) -> Rows:
        """The rows and one for each form of `keys`: one uop on any port of its kind; vectors 4 cycles, else 1.

        That of a gather or scatter is of one element: the uop that loads or stores it, and nothing beside.
        """
        other = Rows(self.base)
        other.found.update(self.found)
        for mnemonic, form in keys:
            vector = any(part[1:3] == "mm" for part in form.split(","))
            row = self.find(*(("vpaddd", "xmm,xmm,xmm") if vector else ("add", "r64,r64")))
            latency = 4.0 if vector else 1.0
            if one_by_one(mnemonic):
                row, latency = replace(row, uops=()), 0.0
            other.found[mnemonic, form] = replace(
                row,
                mnemonic=mnemonic,
                form=form,
                latency=latency,
                accumulator_latency=latency,
                slots=1,
                provenance=Provenance(f"assumed: {assumption(mnemonic)}, {latency:g} cycles", "estimated"),
            )
        return other


@functools.lru_cache(maxsize=16)
def rows(base: Machine) -> Rows:
    """The rows of a machine, made once."""
    return Rows(base)
