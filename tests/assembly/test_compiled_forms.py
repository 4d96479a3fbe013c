"""Instructions that compilers choose for kernels' loops have a cost on every machine that has them."""

from __future__ import annotations

import pytest

import simdnn
from tests.loops import cycles_of

COMPILED = {  # ISA cap to lines of loops that gcc makes of DNN kernels, and what libraries write
    "avx512_core": """
        vscatterdps [rdi+zmm31*4]{k1}, zmm0
        vscatterdpd [rdi+ymm31*8]{k1}, zmm0
        vpscatterdd [rdi+ymm31*4]{k1}, ymm0
        vgatherdps ymm0{k1}, [rsi+ymm31*4]
        vgatherqpd zmm0{k1}, [rsi+zmm31*8]
        vcompressps zmm1{k1}, zmm0
        vcompressps [rdi]{k1}, zmm0
        vpcompressd ymm1{k1}, ymm0
        vexpandps zmm0{k1}{z}, [rsi]
        vexpandpd ymm0{k1}, ymm2
        vmovdqa32 zmm8{k1}, zmm12
        vmovdqa64 zmm8{k1}, zmm12
        vmovaps ymm1{k1}, ymm2
        vmovapd xmm1{k1}{z}, xmm2
        vmovupd [rdi]{k1}, ymm0
        vmovupd zmm0{k1}{z}, [rsi]
        vmovdqu8 ymm0{k1}{z}, [rsi]
        vmovdqu16 [rdi]{k1}, zmm0
        vpmovb2m k1, zmm0
        vpmovw2m k1, ymm0
        vpmovq2m k1, xmm0
        kunpckbw k1, k2, k3
        kunpckwd k1, k2, k3
        kunpckdq k1, k2, k3
        kshiftrb k1, k2, 4
        kshiftrw k1, k2, 8
        kshiftrq k1, k2, 32
        valignq zmm0, zmm1, zmm2, 3
        vcvtqq2ps ymm0, [rsi]
        vcvtuqq2pd zmm0, [rsi]
        vcvttpd2qq zmm0, [rsi]
        vcvttps2udq zmm0, [rsi]
        vcvttss2usi eax, dword ptr [rsi]
        vcvtusi2ss xmm0, xmm1, eax
        vplzcntd xmm0, xmm1
        vprold xmm0, [rsi], 7
        vprorvd zmm0, zmm1, zmm2
        vrndscaless xmm0, xmm1, xmm2, 4
        vextractf64x2 xmm0, zmm1, 2
        vinserti64x2 zmm0, zmm1, xmm2, 3
        vbroadcasti32x2 zmm0, xmm1
        vpabsq zmm0, [rsi]
        vpmovusqb xmm0, zmm1
        vpmovsqw [rdi], zmm1
        vgetexppd ymm0, ymm1
        vrangeps ymm0, ymm1, ymm2, 4
        vreduceps zmm0, zmm1, 8
        vrcp14pd zmm0, zmm1
        vfpclassps k1, zmm0, 16
        vmovshdup zmm0{k1}, zmm1
        vcvtps2uqq zmm0, ymm1
    """,
    "avx512_core_fp16": """
        vrcpph ymm0, ymm1
        vrcpph zmm0, zmm1
        vrsqrtph zmm0, zmm1
        vsqrtph zmm0, zmm1
        vdivph zmm0, zmm1, zmm2
        vsubph zmm0, zmm1, [rsi]
        vminph ymm0, ymm1, ymm2
        vmaxph zmm0, zmm1, [rsi]
        vscalefph zmm0, zmm1, zmm2
        vrndscaleph zmm0, [rsi], 4
        vcmpph k1, zmm0, zmm1, 1
        vfmadd213ph zmm0, zmm1, [rsi]
        vfmadd132ph ymm0, ymm1, [rsi]
        vfnmadd231ph zmm0, zmm1, zmm2
        vfmsub132ph zmm0, zmm1, [rsi]
        vfmadd231sh xmm0, xmm1, word ptr [rsi]
        vsubsh xmm0, xmm1, word ptr [rsi]
        vmaxsh xmm0, xmm1, xmm2
        vmovsh xmm0, xmm1, xmm2
        vmovw xmm0, word ptr [rsi]
        vcvtw2ph zmm0, [rsi]
        vcvttph2w zmm0, [rsi]
        vcvtsh2ss xmm0, xmm1, word ptr [rsi]
        vcvtph2pd zmm0, xmm1
        vcomish xmm0, xmm1
    """,
    "avx512_core_amx": """
        tileloaddt1 tmm4, [rsi+r15]
    """,
}
MACHINES = {
    "avx512_core": ("skx", "clx", "icx", "spr", "gnr", "zen4", "zen5"),
    "avx512_core_fp16": ("spr", "gnr"),
    "avx512_core_amx": ("spr", "gnr"),
}


@pytest.mark.parametrize(("cap", "name"), [(cap, name) for cap, names in MACHINES.items() for name in names])
def test_what_compilers_choose_has_a_row(cap: str, name: str) -> None:
    lines = [line.strip() for line in COMPILED[cap].strip().splitlines()]
    loop = simdnn.analyze("\n".join(["1:", *lines, "dec rcx", "jnz 1b"]), machine=name)
    assert not loop.assumed and len(loop.body) == len(lines) + 2


@pytest.mark.parametrize("line", ["add eax, 32", "sub eax, 1000", "sub r8d, r9d", "add eax, [rsi]"])
def test_sums_at_rename_leave_the_others_their_cycle(line: str) -> None:
    assert cycles_of("gnr", [line] * 8) == pytest.approx(8)
