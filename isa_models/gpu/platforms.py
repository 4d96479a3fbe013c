"""Intel GPU platforms: what each one's matrix engine takes, so that a refusal can name the platform.

Types are those of IGA's per-platform tables (intel-graphics-compiler, visa/iga, Model*.hpp), less what the vISA
verifier rejects (visa/G4_Verifier.cpp, IsaVerification.cpp): narrow float accumulators before Xe-HPC, fp8 before Xe3P.
"""

from __future__ import annotations

from dataclasses import dataclass

from isa_models.errors import unknown_name

MOST_GRFS = 256  # registers of a thread in large-GRF mode, which halves the threads of an engine
RESERVED_GRFS = 8  # estimated: thread payload, addresses and loop counters, which Programs do not name

_F32 = ("f32",)
_BF16 = ("f32", "bf16")
_F16 = ("f32", "f16")
_NARROW_ACC = (("acc", "the encoding has bf16 and f16 ones, but the vISA verifier takes them from Xe-HPC on"),)
_NO_TF32 = (("tf32", "a B580 reports that it has no tf32 matrix multiply, although IGA lists it"),)


@dataclass(frozen=True)
class Platform:
    """What DPAS is on a platform; `exec_size` 0: there is none. `floats`: operand type -> accumulator types."""

    name: str
    title: str
    grf_bytes: int
    exec_size: int = 0
    floats: tuple[tuple[str, tuple[str, ...]], ...] = ()
    why_not: tuple[tuple[str, str], ...] = ()  # "tf32" or "acc", which one might expect: why it is not there
    mixed_integers: bool = True  # operands of different widths, and 2 bits
    dpasw: bool = False
    block_loads: bool = False  # messages that read a block of a plain matrix, in DPAS order, straight from L1

    def accumulators(self, dtype: str) -> tuple[str, ...]:
        """Types of the accumulator and the result for float operands of `dtype`; empty: not such operands."""
        return dict(self.floats).get(dtype, ())


_HPG = (("bf16", _F32), ("f16", _F32))
_XE2 = (("bf16", _BF16), ("f16", _F16))

PLATFORMS: dict[str, Platform] = {
    p.name: p
    for p in (
        Platform("xe_lp", "Xe-LP (DG1)", 32),
        Platform("xe_lpg", "Xe-LPG (Meteor Lake)", 32),
        Platform("arl_h", "Xe-LPG+ (Arrow Lake H)", 32, 8, _HPG, _NARROW_ACC),
        Platform("xe_hp", "Xe-HP", 32, 8, _HPG, dpasw=True),
        Platform("xe_hpg", "Xe-HPG", 32, 8, _HPG, _NARROW_ACC, dpasw=True),
        Platform("xe_hpc", "Xe-HPC", 64, 16, (*_XE2, ("tf32", _F32)), block_loads=True),
        Platform("xe2", "Xe2", 64, 16, _XE2, _NO_TF32, block_loads=True),
        Platform("xe3", "Xe3", 64, 16, _XE2, _NO_TF32, block_loads=True),
        Platform("xe3p", "Xe3P", 64, 16, _XE2, _NO_TF32, mixed_integers=False, block_loads=True),
    )
}


def platform(name: str) -> Platform:
    """The platform called `name`; `UnknownName` with the nearest one otherwise."""
    try:
        return PLATFORMS[name]
    except KeyError:
        raise unknown_name("Intel GPU platform", name, PLATFORMS) from None
