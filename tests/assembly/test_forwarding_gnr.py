"""Masks of narrow elements, old destinations and values through memory on a Redwood Cove, by loops measured there."""

from __future__ import annotations

import functools

import pytest

from tests.loops import cycles_of

cycles = functools.partial(cycles_of, "gnr")


@pytest.mark.parametrize("mask", ["{k1}", "{k1}{z}"])
@pytest.mark.parametrize(
    ("operation", "plain", "masked"),
    [
        ("vpaddb", 1.0, 3.0),
        ("vpaddw", 1.0, 3.0),
        ("vpaddd", 1.0, 1.0),
        ("vpminuw", 1.0, 3.0),
        ("vpavgb", 1.0, 3.0),
        ("vpshufb", 1.0, 3.0),
        ("vpunpcklwd", 1.0, 3.0),
        ("vpackssdw", 3.0, 5.0),
        ("vpermb", 3.0, 5.0),
        ("vpermw", 4.0, 6.0),
        ("vpermd", 3.0, 3.0),
        ("vpmullw", 5.0, 7.0),
        ("vpmaddubsw", 5.0, 7.0),
        ("vpmaddwd", 5.0, 5.0),
        ("vmulph", 4.0, 5.0),
        ("vfmadd231ph", 4.0, 5.0),
    ],
)
def test_a_mask_of_bytes_words_or_halves_takes_longer(operation: str, plain: float, masked: float, mask: str) -> None:
    """Four in a chain of their first source, 256 bits, a step."""
    assert cycles([f"{operation} ymm1, ymm1, ymm3"] * 4) / 4 == pytest.approx(plain, rel=0.03)
    assert cycles([f"{operation} ymm1{mask}, ymm1, ymm3"] * 4) / 4 == pytest.approx(masked, rel=0.03)


@pytest.mark.parametrize("operation", ["vpaddb", "vpsubw", "vpackssdw", "vpermb"])
def test_a_mask_of_512_bits_loses_nothing_from_unit_to_unit(operation: str) -> None:
    step = 3.0 if operation in ("vpaddb", "vpsubw") else 5.0
    assert cycles([f"{operation} zmm1{{k1}}, zmm1, zmm3"] * 4) / 4 == pytest.approx(step, rel=0.03)


@pytest.mark.parametrize(("form", "step"), [("vpmovm2b ymm1, k7", 3.0), ("vpmovm2w ymm1, k7", 3.0)])
def test_masks_spread_over_a_register_wait_for_what_it_held(form: str, step: float) -> None:
    assert cycles([form]) == pytest.approx(step, rel=0.02)
    assert cycles([form] * 4) == pytest.approx(4 * step, rel=0.02)


@pytest.mark.parametrize(
    ("work", "measured"),
    [
        (["vmulss xmm1, xmm1, xmm2"], 7.94),
        (["vmulss xmm1, xmm1, xmm2", "vaddss xmm1, xmm1, xmm3"], 10.9),
        (["vmulss xmm1, xmm1, xmm2"] * 2, 11.0),
        (["vpaddd xmm1, xmm1, xmm2"] * 6, 11.0),
        (["vpaddd xmm1, xmm1, xmm2"] * 12, 17.0),
        (["vmulps xmm1, xmm1, xmm2"], 8.0),
        (["vaddps xmm1, xmm1, xmm2"], 8.0),  # whose result is late, for a store, too
        (["vmulps ymm1, ymm1, ymm2"], 9.0),
        (["vaddps ymm1, ymm1, ymm2"], 8.9),
        (["vpaddd ymm1, ymm1, ymm2"] * 6, 12.0),
        (["vmulps zmm1, zmm1, zmm2"], 10.4),  # which a store of 512 bits has late
        (["vaddps zmm1, zmm1, zmm2"], 9.5),
        (["vpaddd zmm1, zmm1, zmm2"] * 2, 8.0),
        (["vpaddd zmm1, zmm1, zmm2"] * 6, 12.0),
    ],
)
def test_a_value_that_goes_round_through_memory(work: list[str], measured: float) -> None:
    register = work[0].split()[1].rstrip(",")
    move = "vmovss" if "ss " in work[0] else "vmovups"
    assert cycles([f"{move} {register}, [rsi]", *work, f"{move} [rsi], {register}"]) == pytest.approx(
        measured, rel=0.03
    )


@pytest.mark.parametrize("operation", ["vpslld", "vpsraw"])
@pytest.mark.parametrize("width", ["ymm", "zmm"])
def test_the_count_of_a_shift_comes_a_longer_way(operation: str, width: str) -> None:
    assert cycles([f"{operation} {width}1, {width}1, xmm3"] * 4) == pytest.approx(4.0, rel=0.02)
    assert cycles([f"{operation} {width}1, {width}2, xmm1"] * 4) == pytest.approx(16.0, rel=0.02)


def test_a_byte_spread_from_memory_takes_a_port() -> None:
    assert cycles([f"vpbroadcastb ymm{i}, [rsi+{i}]" for i in range(4)]) == pytest.approx(4.0, rel=0.02)
    assert cycles([f"vpbroadcastw ymm{i}, [rsi+{2 * i}]" for i in range(4)]) == pytest.approx(1.33, rel=0.1)


@pytest.mark.parametrize(
    ("register", "places", "operation", "steps", "apart", "measured", "within"),
    [
        ("xmm", 12, "vmulps", 1, False, 9.72, 0.04),
        ("xmm", 16, "vmulps", 1, False, 11.8, 0.04),
        ("xmm", 16, "vpaddd", 1, False, 10.5, 0.04),
        ("ymm", 16, "vmulps", 1, True, 14.0, 0.07),
        ("zmm", 8, "vmulps", 1, True, 12.9, 0.07),
        ("zmm", 16, "vmulps", 1, True, 19.2, 0.04),
        ("zmm", 8, "vpaddd", 3, False, 15.7, 0.06),
        ("zmm", 16, "vpaddd", 3, False, 30.2, 0.03),
        ("zmm", 16, "vpaddd", 8, False, 64.1, 0.02),
    ],
)
def test_loads_are_sent_in_vain_before_what_they_read_is_stored(
    register: str, places: int, operation: str, steps: int, apart: bool, measured: float, within: float
) -> None:
    """Places that are loaded, worked on and stored in each round, each store behind its own work or behind all."""
    size = {"xmm": 16, "ymm": 32, "zmm": 64}[register]
    lines, stores = list[str](), list[str]()
    for i in range(places):
        if steps == 1:
            lines.append(f"{operation} {register}{i}, {register}15, [rdi+{size * i}]")
        else:
            lines.append(f"vmovups {register}{i}, [rdi+{size * i}]")
            lines += [f"{operation} {register}{i}, {register}{i}, {register}20"] * steps
        (stores if apart else lines).append(f"vmovups [rdi+{size * i}], {register}{i}")
    assert cycles([*lines, *stores]) == pytest.approx(measured, rel=within)
