"""The clock of Zen 5 beside what was published of one: throughputs that InstLatx64 listed of a Ryzen 9 9950X."""

from __future__ import annotations

import functools

import pytest

from tests.loops import cycles_of

cycles = functools.partial(cycles_of, "zen5")

# One in so many cycles, of many that do not depend on each other; {i} is a register's number, {at} an offset.
ON_ALUS = [
    ("add r{general}, 1", 0.190),
    ("lea r{general}, [rsi + rdi]", 0.190),
    ("lea r{general}, [rsi + rdi + 8]", 0.452),
    ("imul r{general}, rsi, 3", 0.332),
]
LISTED = [
    ("mov r{general}, qword ptr [rsi + {at}]", 0.250),
    ("mov qword ptr [rsi + {at}], r{general}", 0.497),
    ("vmovups zmm{i}, zmmword ptr [rsi + {at}]", 0.498),
    ("vmovups zmm{i}, zmmword ptr [rsi + {at} + 4]", 1.009),
    ("vmovups ymmword ptr [rsi + {at}], ymm{i}", 0.498),
    ("vmovups ymmword ptr [rsi + {at} + 48], ymm{i}", 0.995),
    ("vmovups zmmword ptr [rsi + {at}], zmm{i}", 0.995),
    ("vbroadcastss zmm{i}, dword ptr [rsi + {at}]", 0.497),
    ("vpunpcklbw zmm{i}, zmm30, zmm31", 0.254),
    ("vpermb zmm{i}, zmm30, zmm31", 0.498),
    ("vextracti32x4 xmm{i}, zmm30, 2", 0.497),
    ("vdivps zmm{i}, zmm30, zmm31", 2.486),
    ("vmovd r{general}d, xmm{i}", 0.498),
    ("kmovw r{general}d, k1", 0.498),
    ("vpgatherdd ymm{i}, dword ptr [rsi + 4*ymm14], ymm15", 5.640),
]


def twelve(text: str) -> float:
    return cycles([text.format(i=i, k=1 + i % 6, general=8 + i % 7, at=64 * i) for i in range(12)])


@pytest.mark.parametrize(("text", "listed"), LISTED)
def test_throughputs(text: str, listed: float) -> None:
    assert twelve(text) == pytest.approx(12 * listed, rel=0.03)


@pytest.mark.parametrize(("text", "listed"), ON_ALUS)
def test_throughputs_on_alus(text: str, listed: float) -> None:
    """The loop's end takes one of six, too; which one a uop gets is not known, and in the model not always the best."""
    assert twelve(text) == pytest.approx(12 * listed, rel=0.2)


@pytest.mark.parametrize("text", ["vpxord zmm{i}, zmm30, zmm30", "vpcmpgtd ymm{i}, ymm14, ymm14", "kxorw k{k}, k7, k7"])
def test_made_at_rename(text: str) -> None:
    """Listed with one in 0.17 cycles; the clock has them at eight a cycle, as all that takes a slot alone."""
    assert twelve(text) == pytest.approx(13 / 8)


@pytest.mark.parametrize(
    ("lines", "listed"),
    [
        (["mov rsi, qword ptr [rsi]"], 3.98),
        (["vaddps zmm0, zmm0, zmm1"], 1.99),
        (["vmulps ymm0, ymm0, ymm1", "vaddps ymm0, ymm0, ymm1"], 5.97),
        (["vfmadd231ps zmm0, zmm0, zmm1", "vaddps zmm0, zmm0, zmm1"], 6.97),
        (["vpdpbusd zmm0, zmm1, zmm2"], 3.98),
        (["vmovd eax, xmm0", "vmovd xmm0, eax"], 6.97),
        (["kmovw eax, k1", "kmovw k1, eax"], 8.95),
        (["vmovups ymmword ptr [rsi], ymm0", "vmovups ymm0, ymmword ptr [rsi]"], 8.95),
        (["vmovups zmmword ptr [rsi], zmm0", "vmovups zmm0, zmmword ptr [rsi]"], 10.95),
        (["vcvttss2si eax, xmm0", "vcvtsi2ss xmm0, xmm0, eax"], 12.93),
        (["vpextrb eax, xmm0, 1", "vpinsrb xmm0, xmm0, eax, 1"], 10.94),
    ],
)
def test_latencies(lines: list[str], listed: float) -> None:
    """Chains through registers and memory, four rounds."""
    assert cycles(4 * lines) == pytest.approx(4 * listed, rel=0.03)


def test_loads_of_both_kinds_share() -> None:
    """One of a vector takes as much as two of general registers (measured by jiegec on a Ryzen 9 9950X)."""
    vectors = [f"vmovups ymm{i}, ymmword ptr [rsi + {32 * i}]" for i in range(4)]
    general = [f"mov r{8 + i % 7}, qword ptr [rdx + {8 * i}]" for i in range(8)]
    assert cycles(vectors + general) == pytest.approx(4, rel=0.03)
