"""The cost of an instruction on a machine, in one form of its operands, and what the form says by itself."""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass, field

from isa_models.machines.provenance import Confidence, Provenance
from isa_models.records.display import InNotebooks

_DIVIDES = re.compile(r"v?(div|sqrt)[ps][sdh]")
#: mnemonics that no VEX instruction has, of those that also work on 128 and 256 bits
_EVEX_ALONE = re.compile(
    r"vmovdq[ua](8|16|32|64)|vp(and|andn|or|xor)[dq]|vpternlog[dq]|vperm[it]2\w+|vpblendm\w|vblendmp[sd]|valign[dq]"
    r"|vpmov(us|s)?(db|dw|qb|qw|qd|wb)|vpmov([bwdq]2m|m2[bwdq])|vrndscale\w+|vscalef\w+|vrange\w+|vget(exp|mant)\w+"
    r"|v(broadcast|extract|insert)[fi](32|64)x[248]|vcvtne\w+|vdpbf16ps|vcvt\w*u(dq|qq)2?\w*|vcompress\w+|vexpand\w+"
    r"|vp(compress|expand)\w+|vshuff(32|64)x[24]|vshufi(32|64)x[24]|vpror\w+|vprol\w+|vscatter\w+|vpscatter\w+|vp(max|min)[su]q"
)


@dataclass(frozen=True, slots=True)
class InstructionTiming(InNotebooks):
    """The cost of one instruction form on one machine.

    Loads and stores are not among `uops`: the form's memory operand says that they happen (`load_bits`, `store_bits`)
    and `Core` what they cost.
    """

    mnemonic: str
    form: str
    latency: float  # cycles from the last register operand to the result; what a load adds is in `Core.loads`
    slots: int  # places taken in the dispatch group and the reorder buffer (fused uops)
    uops: tuple[tuple[str, ...], ...]  # for each uop the ports that can run it; none: done at rename
    occupancy: int  # cycles that each uop holds its port (2: a 512-bit operation on a 256-bit unit)
    interval: float  # cycles that `unit` is taken, beyond what ports explain (dividers, microcode); 0: none
    accumulator_latency: float  # cycles from the accumulator (addend) to the result
    eliminated: bool  # a register move done by renaming: no uop, no latency
    provenance: Provenance
    load_bits: int = field(init=False)
    store_bits: int = field(init=False)
    vector_bits: int = field(init=False)  # of the widest register; 0: no vector register
    tile: bool = field(init=False)  # whether the figures are those of a full tile
    mask: bool = field(init=False)  # whether its result is in a mask register
    masked: bool = field(init=False)  # whether its result is a vector of elements that a mask chooses
    evex: bool = field(init=False)  # encoded so whatever its registers are

    def __post_init__(self) -> None:
        load_bits, store_bits, vector_bits = form_widths(self.mnemonic, self.form)
        object.__setattr__(self, "load_bits", load_bits)
        object.__setattr__(self, "store_bits", store_bits)
        object.__setattr__(self, "vector_bits", vector_bits)
        object.__setattr__(self, "tile", "tmm" in self.form.split(","))
        object.__setattr__(self, "mask", self.form.split(",")[0] == "k")
        object.__setattr__(self, "masked", self.form.startswith(("xmm{k}", "ymm{k}", "zmm{k}")))
        evex = vector_bits == 512 or "{k}" in self.form or "bcst" in self.form
        object.__setattr__(self, "evex", evex or bool(_EVEX_ALONE.fullmatch(self.mnemonic)))

    @property
    def unit(self) -> str:
        """The unit that an interval keeps busy: shared by all that lock memory, by all that divide floats, or its own.

        Divisions share one where they run on one port (Intel's cores); of AMD's, with two, it is not known.
        """
        if self.mnemonic.startswith("lock "):
            return "lock"
        divides = bool(_DIVIDES.fullmatch(self.mnemonic)) and bool(self.uops) and len(self.uops[0]) == 1
        return "divider" if divides else self.mnemonic

    @property
    def confidence(self) -> Confidence:
        return self.provenance.confidence

    @property
    def source(self) -> str:
        return self.provenance.source


#: what a form does not say: whether a first operand in memory is written, as all others write it. These work on general
#: registers, and nobody here defines them, so there is no definition to ask
_ONLY_READ = frozenset("bt cmp div idiv imul jmp ldtilecfg mul nop test".split())
_ONLY_READ |= frozenset(f"prefetch{where}" for where in ("nta", "t0", "t1", "t2", "w", "wt1"))
_READ_AND_WRITTEN = frozenset("adc add and btc btr bts cmpxchg dec inc neg not or rcl rcr rol ror sar sbb".split())
_READ_AND_WRITTEN |= frozenset("shl shld shr shrd sub xadd xchg xor".split())


@functools.lru_cache(maxsize=1 << 14)  # machines have the same forms
def form_widths(mnemonic: str, form: str) -> tuple[int, int, int]:
    """Bits loaded, bits stored, and bits of the widest vector register of a form.

    >>> form_widths("vpmovsdb", "m128,zmm")
    (0, 128, 512)
    >>> form_widths("vaddps", "ymm,ymm,m256")
    (256, 0, 256)
    """
    load = store = vector = 0
    mnemonic = mnemonic.removeprefix("lock ")
    for position, operand in enumerate(form.split(",")):
        if memory := re.match(r"m(\d+)", operand):
            bits = int(memory[1])
            writes = position == 0 and mnemonic not in _ONLY_READ
            store = bits if writes else store
            load = bits if not writes or mnemonic in _READ_AND_WRITTEN else load
        vector = max(vector, {"x": 128, "y": 256, "z": 512}.get(operand[:1], 0) if operand[1:3] == "mm" else 0)
    return load, store, vector
