"""Which ISA caps bring an instruction at each register width, and the sections of the manual (Intel SDM Vol. 2)."""

from __future__ import annotations

Widths = dict[int, tuple[str, ...]]


def _widths(narrow: tuple[str, ...], wide: tuple[str, ...]) -> Widths:
    return {128: narrow, 256: narrow, 512: wide}


#: AVX2 below 512 bits, AVX-512 (F, BW, DQ) at 512
AVX512_BW = _widths(("avx2",), ("avx512_core",))
#: AVX2 alone, where AVX-512 has another instruction for the purpose
AVX2: Widths = {128: ("avx2",), 256: ("avx2",)}
#: AVX2 instructions that take apart or fill a 256-bit register
AVX2_256: Widths = {256: ("avx2",)}
#: new in AVX-512, with VL
AVX512_ONLY = _widths(("avx512_core",), ("avx512_core",))
#: AVX-512 instructions that fill what is wider than 128 bits
AVX512_WIDE: Widths = {256: ("avx512_core",), 512: ("avx512_core",)}
#: AVX-512 instructions that take apart or fill a 512-bit register
AVX512_512: Widths = {512: ("avx512_core",)}
#: instructions on whole 128-bit registers
SSE_128: Widths = {128: ("avx2",)}
#: AVX2 has it at 256 bits, AVX-512 at 256 and 512 (no 128-bit form)
CROSSING: Widths = {256: ("avx2",), 512: ("avx512_core",)}
#: AVX512_VNNI, and AVX-VNNI at 128 and 256 bits
AVX_VNNI = _widths(("avx512_core_vnni", "avx2_vnni"), ("avx512_core_vnni",))
AVX_VNNI_INT8: Widths = {128: ("avx2_vnni_int8",), 256: ("avx2_vnni_int8",)}
AVX_VNNI_INT16: Widths = {128: ("avx2_vnni_int16",), 256: ("avx2_vnni_int16",)}
AVX512_BF16 = _widths(("avx512_core_bf16",), ("avx512_core_bf16",))
AVX512_FP16 = _widths(("avx512_core_fp16",), ("avx512_core_fp16",))
#: tiles, by the bits of a whole one
AMX: Widths = {8192: ("avx512_core_amx",)}
AMX_FP16: Widths = {8192: ("avx512_core_amx_fp16",)}
#: what an AMX instruction reads or writes beside tiles
AMX_CONFIG: Widths = {512: ("avx512_core_amx",)}
#: a byte of the line that kernels ask for ahead of time: any, and those on tiles
PREFETCH: Widths = {128: ("avx2",)}
PREFETCH_W: Widths = {128: ("avx512_core_amx",)}
AVX512_VBMI = _widths(("avx512_core_vbmi",), ("avx512_core_vbmi",))
