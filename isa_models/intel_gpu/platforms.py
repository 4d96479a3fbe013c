"""Intel GPU platforms: what each one's matrix engine takes. A new one is a row of `PLATFORMS`.

Types are those of IGA's per-platform tables (intel-graphics-compiler, visa/iga, Model*.hpp), less what the vISA
verifier rejects (visa/G4_Verifier.cpp, IsaVerification.cpp): narrow float accumulators before Xe-HPC, fp8 before Xe3P.
"""

from __future__ import annotations

from isa_models.errors import unknown_name
from isa_models.gpu.platforms import Platform, register

_F32 = ("f32",)
_BF16 = ("f32", "bf16")
_F16 = ("f32", "f16")
_NARROW_ACC = (("acc", "the encoding has bf16 and f16 ones, but the vISA verifier takes them from Xe-HPC on"),)
_NO_TF32 = (("tf32", "a B580 reports that it has no tf32 matrix multiply, although IGA lists it"),)
_HPG = (("bf16", _F32), ("f16", _F32))
_XE2 = (("bf16", _BF16), ("f16", _F16))

PLATFORMS = register(
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


def platform(name: str) -> Platform:
    """The platform called `name`; `UnknownName` with the nearest one otherwise."""
    try:
        return PLATFORMS[name]
    except KeyError:
        raise unknown_name("Intel GPU platform", name, PLATFORMS) from None
