"""Loops with masks against this CPU: the code itself runs, from the registers and bytes that the model is given."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
import pytest

import simdnn
from isa_models.host.machine_code import linked
from isa_models.isa import host_caps

BYTES = 256
LOOPS = {
    "comparisons": """
        vpcmpeqb k2, zmm0, zmm1
        vpcmpgtw k3{k1}, zmm0, zmm1
        vpcmpud k4, zmm0, [rsi], 5
        vpcmpltq k5{k1}, zmm0, zmm1
        vcmpps k6, zmm0, zmm1, 13
        vcmppd k7{k1}, zmm0, [rsi], 3""",
    "tests of bits": """
        vptestmb k2{k1}, zmm0, zmm1
        vptestnmd k3, ymm0, [rsi]
        vptestmq k4, xmm0, xmm1
        vfpclassps k5{k1}, zmm0, 0x56
        vfpclasspd k6, ymm0, 0x81
        vpcmpneqw k7, ymm0, ymm1""",
    "loads": """
        vmovups zmm2{k1}{z}, [rsi]
        vmovupd zmm3{k1}, [rsi + 64]
        vmovdqu8 zmm4{k1}, [rsi]
        vmovdqu16 ymm5{k1}{z}, [rsi + 3]
        vmovdqu64 zmm6{k1}{z}, [rsi]
        vpmovzxbd zmm7{k1}, [rsi + 5]""",
    "operands in memory": """
        vpaddd zmm2{k1}{z}, zmm0, [rsi]
        vpsubb zmm3{k1}, zmm0, [rsi + 64]
        vpaddd zmm4{k1}, zmm0, dword ptr [rsi]{1to16}
        vpmaddwd ymm5{k1}, ymm0, [rsi]
        vpandq zmm6{k1}, zmm0, [rsi]
        vpbroadcastd zmm7{k1}, [rsi + 4]""",
    "stores": """
        vmovups [rsi]{k1}, zmm0
        vmovdqu8 [rsi + 64]{k1}, zmm1
        vmovupd [rsi + 128]{k1}, ymm0
        vpmovdb [rsi + 192]{k1}, zmm1
        vmovdqu16 [rsi + 224]{k1}, xmm1
        vmovdqu8 zmm2, [rsi + 64]""",
    "expansion and compression": """
        vpexpandd zmm2{k1}{z}, zmm0
        vexpandpd zmm3{k1}, [rsi + 8]
        vpcompressd zmm4{k1}, zmm0
        vcompresspd ymm5{k1}{z}, ymm1
        vpcompressd [rsi + 64]{k1}, zmm1
        vpexpandq xmm6{k1}, [rsi]""",
    "expansion and compression of bytes and words": """
        vpexpandb zmm2{k1}{z}, zmm0
        vpexpandw ymm3{k1}, [rsi + 8]
        vpcompressb zmm4{k1}, zmm0
        vpcompressw xmm5{k1}{z}, xmm1
        vpcompressb [rsi + 64]{k1}, zmm1
        vpcompressw [rsi + 160]{k1}, ymm0
        vpexpandb xmm6{k1}, [rsi + 3]""",
    "blends": """
        vpblendmb zmm2{k1}, zmm0, zmm1
        vpblendmw ymm3{k1}{z}, ymm0, [rsi]
        vpblendmd zmm4{k1}, zmm0, dword ptr [rsi]{1to16}
        vpblendmq xmm5{k1}{z}, xmm0, xmm1
        vblendmps zmm6{k1}{z}, zmm0, [rsi + 64]
        vblendmpd ymm7{k1}, ymm0, ymm1""",
    "shuffles": """
        vpshufb zmm2{k1}, zmm0, zmm1
        vpermd zmm3{k1}{z}, zmm0, [rsi]
        vpermt2w zmm4{k1}, zmm0, zmm1
        vpermi2d zmm5{k1}, zmm0, zmm1
        vpalignr zmm6{k1}{z}, zmm0, zmm1, 5
        vpshufd zmm7{k1}, zmm0, 0x4e""",
    "shuffles of floats": """
        vshufps zmm2{k1}{z}, zmm0, [rsi + 64], 0x1b
        vpermt2ps zmm3{k1}{z}, zmm0, zmm1
        vpermi2pd zmm4{k1}, zmm0, zmm1
        vpermilps zmm5{k1}, zmm0, zmm1
        vpermilpd zmm6{k1}{z}, zmm0, 0x5a
        vpermpd zmm7{k1}, zmm0, zmm1""",
    "blocks": """
        vshufi32x4 zmm2{k1}, zmm0, zmm1, 0xe4
        vshuff64x2 zmm3{k1}{z}, zmm0, zmm1, 0x1b
        vextracti64x4 ymm4{k1}, zmm0, 1
        vextracti32x8 ymm5{k1}{z}, zmm0, 1
        vinserti64x2 zmm6{k1}, zmm0, xmm1, 2
        vinsertf32x8 zmm7{k1}, zmm0, [rsi], 1""",
    "quadwords and words": """
        vpermt2q zmm2{k1}, zmm0, zmm1
        vpermq zmm3{k1}{z}, zmm0, 0x1b
        vpunpcklbw zmm4{k1}, zmm0, zmm1
        vunpckhpd zmm5{k1}{z}, zmm0, zmm1
        vpternlogq zmm6{k1}, zmm0, zmm1, 0xca
        vpshuflw zmm7{k1}, zmm0, 0x72""",
    "shifts and extremes": """
        vpsllvw zmm2{k1}, zmm0, zmm1
        vpsravd zmm3{k1}{z}, zmm0, [rsi]
        vpminuq zmm4{k1}, zmm0, zmm1
        vpmaxsq zmm5{k1}, zmm0, zmm1
        vpmuludq zmm6{k1}{z}, zmm0, zmm1
        vpmuldq zmm7{k1}, zmm0, zmm1""",
    "lowest lanes": """
        vaddss xmm2, xmm0, xmm1
        vsqrtss xmm3, xmm0, [rsi]
        vfnmadd213ss xmm4, xmm0, xmm1
        vmovss xmm5, xmm0, xmm1
        mulss xmm6, xmm0
        subsd xmm7, xmm1""",
    "rounding, and lanes moved": """
        vrndscaleps zmm2{k1}, zmm0, 0x2b
        vcvttps2dq zmm3{k1}{z}, zmm0
        valignd zmm4{k1}, zmm0, zmm1, 5
        valignq ymm5{k1}{z}, ymm0, [rsi], 3
        vbroadcastsd zmm6{k1}, qword ptr [rsi + 8]
        vrndscaless xmm7, xmm0, xmm1, 0x11""",
    "upper parts cleared": """
        vaddps zmm2, zmm0, zmm1
        vzeroupper
        vpaddd ymm3, ymm0, ymm1""",
    "lowest lanes moved": """
        vmovsd xmm2, xmm0, xmm1
        movsd xmm3, xmm1
        movss xmm4, [rsi]
        vmovsd xmm5, [rsi + 8]
        vmovsd [rsi + 64], xmm0
        movss xmm6, xmm0""",
    "conversions": """
        vcvttps2dq zmm2{k1}, zmm0
        vcvtps2udq zmm3{k1}{z}, [rsi]
        vcvtps2pd zmm4, ymm0
        vcvtpd2ps ymm5{k1}, zmm1
        vcvtudq2pd zmm6, ymm1
        vrndscaleps zmm7{k1}, zmm0, 0x2b""",
    "conversions of the lowest lane": """
        vcvtss2sd xmm2, xmm0, xmm1
        cvtsd2ss xmm3, xmm1
        vcvttss2si eax, xmm0
        vcvtsi2ss xmm4, xmm1, eax
        vfnmsub231sd xmm5, xmm0, xmm1
        vrndscaless xmm6, xmm0, xmm1, 9
        vucomiss xmm0, xmm1""",
    "other shuffles": """
        valignd zmm2{k1}, zmm0, zmm1, 19
        valignq ymm3, ymm0, [rsi], 3
        vinsertps xmm4, xmm0, xmm1, 0x9c
        vextracti32x4 xmm5{k1}{z}, ymm0, 1
        vinsertf64x2 ymm6{k1}, ymm0, xmm1, 1
        vcvtph2ps zmm7, ymm0""",
    "gathers": """
        vpsrld zmm2, zmm0, 27
        vgatherdps zmm3{k1}, [rsi + 4*zmm2]
        vpsrlq zmm4, zmm1, 59
        vpgatherqq zmm5{k2}, [rsi + 8*zmm4]
        vpgatherqd ymm6{k3}, [rsi + 4*zmm4 + 3]
        vpgatherdd ymm7{k4}, [rsi + ymm2]""",
    "gathers by the signs of a register": """
        vpsrld ymm2, ymm0, 27
        vmovdqa ymm4, ymm1
        vgatherdps ymm3, [rsi + 4*ymm2], ymm4
        vpsrlq ymm5, ymm1, 59
        vpgatherqd xmm6, [rsi + 4*ymm5], xmm0
        vgatherdpd ymm7, [rsi + 8*xmm2], ymm1""",
    "scatters": """
        vpsrld zmm2, zmm0, 27
        vscatterdps [rsi + 4*zmm2]{k1}, zmm1
        vpsrlq zmm4, zmm1, 59
        vpscatterqq [rsi + 8*zmm4]{k2}, zmm0
        vmovups zmm3, [rsi]""",
}
HOST = pytest.mark.skipif("avx512_core_vbmi" not in host_caps(), reason="this CPU has no masks, or few instructions")


def on_this_cpu(text: str, vectors: np.ndarray[Any, Any], masks: list[int], memory: np.ndarray[Any, Any]) -> None:
    """Run code with zmm0 to zmm7, k1 to k7 and the bytes at rsi; the arrays hold what it leaves."""
    lines = [f"vmovdqu64 zmm{i}, [rdi + {64 * i}]" for i in range(8)]
    lines += [f"kmovq k{i}, [rdx + {8 * i}]" for i in range(1, 8)]
    lines += [line.strip() for line in text.strip().splitlines()]
    lines += [f"vmovdqu64 [rdi + {64 * i}], zmm{i}" for i in range(8)]
    lines += [f"kmovq [rdx + {8 * i}], k{i}" for i in range(1, 8)]
    code = "; ".join(lines)
    changed = ",".join(
        [*(f"~{{xmm{i}}}" for i in range(8)), *(f"~{{k{i}}}" for i in range(1, 8)), "~{rax}", "~{memory}"]
    )
    ir = f"""define i32 @masked(ptr %v, ptr %m, ptr %k) {{
      call void asm sideeffect inteldialect "{code}", "{{rdi}},{{rsi}},{{rdx}},{changed}"(ptr %v, ptr %m, ptr %k)
      ret i32 0
    }}"""
    made = linked("masked", ir, ["masked"])
    function = ctypes.CFUNCTYPE(ctypes.c_int32, *[ctypes.c_void_p] * 3)(made["masked"])
    held = np.array([0, *masks], np.uint64)
    function(vectors.ctypes.data, memory.ctypes.data, held.ctypes.data)
    masks[:] = [int(x) for x in held[1:]]


@HOST
@pytest.mark.parametrize("name", LOOPS)
def test_masks_as_this_cpu_has_them(name: str) -> None:
    rng = np.random.default_rng(0)
    for turn in range(6):
        vectors = rng.integers(0, 256, (8, 64), np.uint8)
        vectors[1, ::3] = vectors[0, ::3]  # some lanes are equal
        vectors[:2].view(np.float32)[:, turn::5] = [[np.nan], [-np.inf]] if turn % 2 else [[0.0], [-0.0]]
        memory = rng.integers(0, 256, BYTES, np.uint8)
        masks = [int.from_bytes(rng.bytes(8), "little") if turn else 0, *[2**64 - 1] * 6]
        given = {f"zmm{i}": vectors[i].copy() for i in range(8)} | {f"k{i + 1}": mask for i, mask in enumerate(masks)}
        found = simdnn.analyze(LOOPS[name], machine="zen5").values(given | {"rsi": memory.copy()})
        on_this_cpu(LOOPS[name], vectors, masks, memory)
        for i in range(8):
            assert (found.registers[f"zmm{i}"] == vectors[i]).all(), (name, turn, i)
        for i, mask in enumerate(masks):
            assert int.from_bytes(found.registers[f"k{i + 1}"][:8].tobytes(), "little") == mask, (name, turn, i + 1)
        assert (found.memory["rsi"] == memory).all(), (name, turn)


def test_bytes_that_a_mask_leaves_out_are_not_touched() -> None:
    """A loop's rest at the end of an array, as kernels read and write it."""
    src = np.arange(5, dtype=np.float32)
    loop = "vmovups zmm0{k1}{z}, [rsi]\nvaddps zmm1{k1}{z}, zmm0, [rsi]\nvmovups [rsi]{k1}, zmm1\n"
    found = simdnn.analyze(loop, machine="zen5").values({"rsi": src, "k1": 0b11111})
    assert found.memory["rsi"].view(np.float32).tolist() == [0, 2, 4, 6, 8]
    with pytest.raises(simdnn.InvalidArgument, match="moves bytes 0 to 23 of the array at rsi, which has 20"):
        simdnn.analyze(loop, machine="zen5").values({"rsi": src, "k1": 0b111111})
