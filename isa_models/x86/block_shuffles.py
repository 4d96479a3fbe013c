"""x86 shuffles of 128-bit blocks: extracts, inserts, blocks chosen by an immediate; and alignment across a register."""

from __future__ import annotations

from typing import Any

from isa_models.algebra import Value
from isa_models.formats import fmt
from isa_models.instruction import define, example
from isa_models.x86.shuffle import fields
from isa_models.x86.widths import AVX2_256, AVX512_512, AVX512_ONLY, Widths


def _part(name: str, dtype: str, per: int, caps: Widths, manual: str, **facts: Any) -> None:
    n = next(iter(caps)) // fmt(dtype).bits // per
    values = list(range(n * per))
    shown = [float(v) for v in values[n : 2 * n]] if dtype == "f32" else values[n : 2 * n]

    @define(
        name,
        f"{dtype} <- {dtype}*{per}",
        caps,
        f"Intel SDM Vol. 2C, {manual}",
        whole=True,
        memory="store",
        **facts,
        doc=example(name, f"The part of {n} lanes that the immediate names.", f"{values}, imm=1", str(shown)),
    )
    def take(a: Value, imm: int) -> Value:
        return a.permute(range(imm % per * n, imm % per * n + n))


_part("vextracti128", "u32", 2, AVX2_256, "VEXTRACTI128/VEXTRACTI32x4/VEXTRACTI64x4")
_part("vextractf128", "f32", 2, AVX2_256, "VEXTRACTF128/VEXTRACTF32x4/VEXTRACTF64x4")
_part("vextracti32x4", "u32", 4, AVX512_512, "VEXTRACTI128/VEXTRACTI32x4/VEXTRACTI64x4")
_part("vextractf32x4", "f32", 4, AVX512_512, "VEXTRACTF128/VEXTRACTF32x4/VEXTRACTF64x4")
_part("vextracti64x4", "u32", 2, AVX512_512, "VEXTRACTI128/VEXTRACTI32x4/VEXTRACTI64x4", mask_bits=64)
_part("vextractf64x4", "f32", 2, AVX512_512, "VEXTRACTF128/VEXTRACTF32x4/VEXTRACTF64x4", mask_bits=64)


def _insert(name: str, dtype: str, parts: int, caps: Widths, manual: str, **facts: Any) -> None:
    n = next(iter(caps)) // fmt(dtype).bits // parts
    zeros, ones = [0] * (n * parts), [1] * n
    shown = zeros[:n] + ones + zeros[2 * n :]
    yields = str([float(v) for v in shown] if dtype == "f32" else shown)

    @define(
        name,
        f"{dtype} <- {dtype}, {dtype}*{1 / parts}",
        caps,
        f"Intel SDM Vol. 2C, {manual}",
        whole=True,
        **facts,
        doc=example(
            name,
            f"The first, with the {n} lanes that the immediate names taken from the second.",
            f"{zeros}, {ones}, imm=1",
            yields,
        ),
    )
    def insert(a: Value, b: Value, imm: int) -> Value:
        start = imm % parts * n
        order = [a.lanes + k - start if start <= k < start + n else k for k in range(a.lanes)]
        return a.concat(b.pad(a.lanes)).permute(order)


_insert("vinserti128", "u32", 2, AVX2_256, "VINSERTI128/VINSERTI32x4/VINSERTI64x4")
_insert("vinsertf128", "f32", 2, AVX2_256, "VINSERTF128/VINSERTF32x4/VINSERTF64x4")
_insert("vinserti32x4", "u32", 4, AVX512_512, "VINSERTI128/VINSERTI32x4/VINSERTI64x4")
_insert("vinserti64x4", "u32", 2, AVX512_512, "VINSERTI128/VINSERTI32x4/VINSERTI64x4", mask_bits=64)
_insert("vinsertf64x4", "f32", 2, AVX512_512, "VINSERTF128/VINSERTF32x4/VINSERTF64x4", mask_bits=64)


_EVEX_CROSSING: Widths = {256: ("avx512_core",), 512: ("avx512_core",)}


def _of_128_bits(name: str, dtype: str, **facts: Any) -> None:
    """Blocks of 128 bits: the lower half of them from the first, the upper from the second."""
    n = 128 // fmt(dtype).bits
    lanes = min(_EVEX_CROSSING) // fmt(dtype).bits
    shown = [*range(n, 2 * n), *range(lanes, lanes + n)]
    text = "Blocks of 128 bits that the immediate's fields name: from the first, and then from the second."
    call = f"{[*range(lanes)]}, {[*range(lanes, 2 * lanes)]}, imm=1"

    @define(
        name,
        f"{dtype} <- {dtype}, {dtype}",
        _EVEX_CROSSING,
        "Intel SDM Vol. 2C, VSHUFF32x4/VSHUFF64x2/VSHUFI32x4/VSHUFI64x2",
        whole=True,
        **facts,
        doc=example(name, text, call, str([float(v) for v in shown] if fmt(dtype).is_float else shown)),
    )
    def shuffle(a: Value, b: Value, imm: int) -> Value:
        blocks = a.lanes // n
        bits = (blocks - 1).bit_length()
        picks = [f + (blocks if i >= blocks // 2 else 0) for i, f in enumerate(fields(imm, blocks, bits))]
        return a.concat(b).permute([n * block + k for block in picks for k in range(n)])


_of_128_bits("vshufi32x4", "u32")
_of_128_bits("vshufi64x2", "u64", timed_as="vshufi32x4")
_of_128_bits("vshuff32x4", "f32", timed_as="vshufi32x4")
_of_128_bits("vshuff64x2", "f64", timed_as="vshufi32x4")


def _two_of_four(name: str, dtype: str, manual: str) -> None:
    n = 128 // fmt(dtype).bits
    first, second = [*range(2 * n)], [*range(2 * n, 4 * n)]
    shown = [*range(n, 2 * n), *[0] * n]
    text = "Each half: the block of 128 bits of both that two bits of the immediate name, or zeros by bit 3."

    @define(
        name,
        f"{dtype} <- {dtype}, {dtype}",
        AVX2_256,
        f"Intel SDM Vol. 2C, {manual}",
        whole=True,
        doc=example(
            name,
            text,
            f"{first}, {second}, imm=0x81",
            str([float(v) for v in shown] if fmt(dtype).is_float else shown),
        ),
    )
    def two_of_four(a: Value, b: Value, imm: int) -> Value:
        both = a.concat(b)
        both = both.concat(both.literal(0))
        picks = [4 if half & 8 else half & 3 for half in fields(imm, 2, 4)]
        return both.permute([n * block + k for block in picks for k in range(n)])


_two_of_four("vperm2i128", "u32", "VPERM2I128")
_two_of_four("vperm2f128", "f32", "VPERM2F128")


def _align(end: str, dtype: str, **facts: Any) -> None:
    name, n = f"valign{end}", 128 // fmt(dtype).bits
    first, second = [1] * n, [*range(5, 5 + n)]

    @define(
        name,
        f"{dtype} <- {dtype}, {dtype}",
        AVX512_ONLY,
        "Intel SDM Vol. 2C, VALIGND/VALIGNQ",
        whole=True,
        **facts,
        doc=example(
            name,
            "The second's lanes from the one that the immediate names on, then the first's.",
            f"{first}, {second}, imm=1",
            str([*second[1:], 1]),
        ),
    )
    def align(a: Value, b: Value, imm: int) -> Value:
        start = imm % a.lanes
        return b.concat(a).permute(range(start, start + a.lanes))


_align("d", "u32")
_align("q", "u64", timed_as="valignd")
