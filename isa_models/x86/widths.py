"""Which ISA caps bring an instruction at each register width."""

from __future__ import annotations

#: AVX2 below 512 bits, AVX-512 (F, BW, DQ) at 512
AVX512_BW: dict[int, tuple[str, ...]] = {128: ("avx2",), 256: ("avx2",), 512: ("avx512_core",)}
#: the same in AVX-512 alone (new there, with VL)
AVX512_ONLY: dict[int, tuple[str, ...]] = {128: ("avx512_core",), 256: ("avx512_core",), 512: ("avx512_core",)}
#: AVX512_VNNI, and AVX-VNNI at 128 and 256 bits
AVX_VNNI: dict[int, tuple[str, ...]] = {
    128: ("avx512_core_vnni", "avx2_vnni"),
    256: ("avx512_core_vnni", "avx2_vnni"),
    512: ("avx512_core_vnni",),
}
AVX_VNNI_INT8: dict[int, tuple[str, ...]] = {128: ("avx2_vnni_int8",), 256: ("avx2_vnni_int8",)}
AVX_VNNI_INT16: dict[int, tuple[str, ...]] = {128: ("avx2_vnni_int16",), 256: ("avx2_vnni_int16",)}
AVX512_BF16: dict[int, tuple[str, ...]] = {w: ("avx512_core_bf16",) for w in (128, 256, 512)}
AVX512_FP16: dict[int, tuple[str, ...]] = {w: ("avx512_core_fp16",) for w in (128, 256, 512)}
AVX512_VBMI: dict[int, tuple[str, ...]] = {w: ("avx512_core_vbmi",) for w in (128, 256, 512)}
