"""The numbers of a loop: bit for bit what the instructions' functions give, in the registers that code names."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import simdnn
from isa_models import REGISTRY, InvalidArgument, SimdnnError, Unimplemented, instruction
from isa_models.formats import fmt
from simdnn.assembly.values import Values
from simdnn.calibration.hostcheck import adversarial
from simdnn.cli import main
from tests.effort import examples, one_in

KERNEL = """
1:  vmovups zmm12, [rdx]
    vpdpbusd zmm0, zmm12, dword ptr [rsi]{1to16}
    vpmaddubsw zmm4, zmm12, zmm5
    vpaddsw zmm6, zmm6, zmm4
    vmovdqu64 [rdi+rax*8], zmm6
    add rsi, 4
    add rdx, 64
    add rax, 8
    dec rcx
    jnz 1b
"""


def values(text: str, given: dict[str, Any] | None = None, **options: Any) -> Values:
    return simdnn.analyze(text, assume=True).values(given, **options)


def lanes(text: str, given: dict[str, Any], **options: Any) -> list[Any]:
    found: list[Any] = values(text, given, **options).written[-1].lanes.tolist()
    return found


def test_a_kernel_is_what_its_instructions_give() -> None:
    rng = np.random.default_rng(1)
    a, b = rng.integers(0, 256, 3 * 64).astype(np.uint8), rng.integers(-128, 128, 12).astype(np.int8)
    acc, other, out = np.arange(16, dtype=np.int32), rng.integers(-128, 128, 64).astype(np.int8), np.zeros(96, np.int16)
    total = rng.integers(-32768, 32768, 32).astype(np.int16)
    start = {"zmm0": acc, "zmm5": other, "zmm6": total, "rdx": a, "rsi": b, "rdi": out}
    found = values(KERNEL, start, iterations=3)
    for k in range(3):
        row = a[64 * k : 64 * k + 64]
        acc = instruction("vpdpbusd")(acc, row, np.tile(b[4 * k : 4 * k + 4], 16))
        pairs = instruction("vpmaddubsw")(row, other)
        total = instruction("vpaddsw")(total, pairs)
    assert [one.place for one in found.written] == ["zmm12", "zmm0", "zmm4", "zmm6", "[rdi + 128]"]
    assert [one.dtype for one in found.written] == ["f32", "s32", "s16", "s16", "u32"]
    for one, expected in zip(found.written, (a[128:], acc, pairs, total, total), strict=True):
        assert one.lanes.tobytes() == expected.tobytes()
    assert found.registers["zmm0"].tobytes() == acc.tobytes()
    assert not out.any()  # the caller's arrays stay as they are


THREE = sorted(
    name
    for name, one in REGISTRY.items()
    if not one.tile
    and not one.immediates
    and not one.moves
    and one.operands[0].per
    and len(one.operands) <= 3
    and all(o.per <= 8 for o in one.operands)
    and not one.configures
    and "b1" not in (one.result, *(o.dtype for o in one.operands))  # masks: tests/isa_models/test_masks.py
)


@one_in(3)
@pytest.mark.parametrize("name", [n for n in THREE if not n.startswith(("vpdpbs", "vpdpbu", "vpdpw"))])
@examples(4)
@given(seed=st.integers(0, 2**32 - 1), wide=st.booleans())
def test_any_instruction(name: str, seed: int, wide: bool) -> None:
    """Operands in the encoding's order, at the register widths that lanes ask for; the upper part is cleared."""
    one = instruction(name)
    width = max(one.caps) if wide else min(one.caps)
    count, rng = one.lanes(width), np.random.default_rng(seed)
    arrays = [adversarial(o.dtype, (one.operand_lanes(o, count),), rng) for o in one.operands]
    result = one(*arrays)
    sizes = [
        width if one.destructive else max(128, 8 * result.nbytes),
        *(8 * x.nbytes for x in arrays[one.destructive :]),
    ]
    registers = [f"{'xyz'[(max(128, size) // 128).bit_length() - 1]}mm{number}" for number, size in enumerate(sizes)]
    start = {}
    for register, array in zip(registers[not one.destructive :], arrays, strict=True):
        data = array.view(np.uint8)
        start[register] = np.pad(data, (0, max(0, 16 - len(data))))
    written = values(f"{one.mnemonic(width)} {', '.join(registers)}", start)
    (met,) = written.written
    assert met.dtype == one.result and met.place == registers[0]
    assert met.lanes.tobytes() == result.tobytes()
    whole = written.registers[f"zmm{registers[0][3:]}"]
    assert whole[: result.nbytes].tobytes() == result.tobytes() and not whole[result.nbytes :].any()


def test_spellings() -> None:
    f = np.arange(4, dtype=np.float32)
    whole = np.arange(16, dtype=np.float32)
    # legacy: the destination is a source, and keeps what is above 128 bits
    found = values("addps xmm1, xmm2", {"zmm1": whole, "xmm2": f})
    assert found.registers["zmm1"].view(np.float32).tolist() == [0, 2, 4, 6, *range(4, 16)]
    assert values("vaddps xmm1, xmm1, xmm2", {"zmm1": whole, "xmm2": f}).registers["zmm1"][16:].any() == np.False_
    assert lanes("psrld xmm1, 1", {"xmm1": np.arange(4, dtype=np.uint32)}) == [0, 0, 1, 1]
    assert lanes("vxorps xmm1, xmm1, xmm1", {}) == [0] * 4
    assert lanes("pshufd xmm0, xmm1, 27", {"xmm1": np.arange(4, dtype=np.uint32)}) == [3, 2, 1, 0]
    assert lanes(
        "vpermd ymm0, ymm1, ymm2",
        {"ymm1": np.arange(8, dtype=np.uint32)[::-1].copy(), "ymm2": np.arange(8, dtype=np.uint32)},
    ) == [*range(7, -1, -1)]
    # lowest lanes: to and from general registers and memory
    assert lanes("movq xmm0, xmm1", {"xmm1": np.array([5, 6], np.uint64)}) == [5, 0]
    assert lanes("vmovd xmm0, eax\nvpextrd ecx, xmm0, 0\nvpbroadcastd ymm1, ecx", {"rax": -7}) == [2**32 - 7] * 8
    assert lanes("vpinsrb xmm0, xmm1, eax, 3", {"xmm1": np.zeros(16, np.uint8), "rax": 0x1FF})[:5] == [0, 0, 0, 255, 0]
    assert lanes("vmovss [rdi], xmm0", {"xmm0": f + 1, "rdi": np.zeros(4, np.uint8)}) == [1.0]
    # widths that only memory tells
    eight = np.arange(8, dtype=np.float32)
    halves = values("vcvtneps2bf16 xmm0, ymmword ptr [rsi]", {"rsi": eight}).written[0].lanes
    assert halves.dtype == ml_dtypes.bfloat16 and halves.astype(int).tolist() == [*range(8)]
    assert lanes("vpmovsxbd ymm0, qword ptr [rsi]", {"rsi": np.arange(-4, 4).astype(np.int8)}) == [*range(-4, 4)]


def test_memory_is_one_buffer_for_each_pointer() -> None:
    text = "vmovups xmm0, [rsi]\nvaddps xmm0, xmm0, xmm0\nvmovups [rsi], xmm0\nvmovups xmm1, [rdi]"
    found = values(text, {"rsi": np.ones(4, np.float32)}, iterations=5)
    assert found.written[2].lanes.tolist() == [32.0] * 4
    assert found.written[2].place == "[rsi]"
    assert (found.written[3].lanes == values(text, iterations=1).written[3].lanes).all() == np.False_  # drawn later
    again = values(text, {"rsi": np.ones(4, np.float32)}, iterations=9)
    assert (found.written[3].lanes == again.written[3].lanes).all()  # untouched memory stays
    other = values(text, {"rsi": np.ones(4, np.float32)}, seed=1)
    assert (found.written[3].lanes != other.written[3].lanes).any()


def test_random_numbers_suit_who_computes_with_them() -> None:
    found = values("vmovdqu64 zmm1, [rsi]\nvdpbf16ps zmm0, zmm1, zmm2")
    assert np.isfinite(found.written[1].lanes).all() and np.abs(found.written[1].lanes).max() < 100


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("vrcp14ps zmm0, zmm1\nvaddps zmm0, zmm1, zmm2\nvrsqrt14ps zmm1, zmm2", ["vrcp14ps", "vrsqrt14ps"]),
        ("vaddss xmm0{k1}, xmm1, xmm2", ["{k1}"]),
        ("vaddps zmm0, zmm1, zmm2, {rz-sae}", ["rz"]),
        ("vpslld zmm0, zmm1, xmm2", ["vpslld"]),
        ("movhps xmm0, [rsi]", ["movhps"]),
        ("vpcmpestrm xmm0, xmm1, 2", ["vpcmpestrm"]),
        ("mov [rsi], rax\nvaddps zmm0, zmm0, [rsi]", ["mov"]),
        ("mov rax, [rsi]\nvaddps zmm0, zmm0, [rax]", ["vaddps"]),
        ("movzx eax, byte ptr [rsi]\nvpbroadcastd zmm0, eax", ["rax"]),
    ],
)
def test_what_has_no_semantics_is_named(text: str, named: list[str]) -> None:
    with pytest.raises(Unimplemented) as error:
        values(text)
    assert all(name in str(error.value) for name in named) and "vaddps zmm0, zmm1, zmm2'" not in str(error.value)


@pytest.mark.parametrize(
    ("given", "options"),
    [
        ({"zmm1": np.zeros(4, np.float32)}, {}),
        ({"zmm1": 3}, {}),
        ({"rsi": "text"}, {}),
        ({"esi": 3}, {}),
        ({"nothing": 3}, {}),
        ({"rsi": np.zeros(15, np.float32)}, {}),
        ({}, {"iterations": 0}),
        ({}, {"seed": -1}),
    ],
)
def test_wrong_arguments(given: dict[str, Any], options: dict[str, int]) -> None:
    with pytest.raises(InvalidArgument):
        values("vaddps zmm0, zmm1, [rsi]", given, **options)


def test_reading_past_a_given_array_says_where() -> None:
    with pytest.raises(InvalidArgument, match="bytes 64 to 127 of the array at rsi, which has 64"):
        values("vaddps zmm0, zmm0, [rsi]\nadd rsi, 64", {"rsi": np.zeros(16, np.float32)}, iterations=2)


@examples(60)
@given(code=st.binary(min_size=1, max_size=24))
def test_junk(code: bytes) -> None:
    try:
        simdnn.analyze(code, assume=True).values(iterations=2)
    except SimdnnError as error:
        assert str(error)


def test_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "loop.s"
    path.write_text(KERNEL)
    assert main(["analyze", str(path), "--values", "--iterations", "2", "--seed", "5"]) == 0
    text = capsys.readouterr().out
    assert "values in iteration 2 (seed 5)" in text and "  zmm0 s32: " in text
    assert main(["analyze", str(path), "--values", "--iterations", "2", "--seed", "5", "--json"]) == 0
    met = json.loads(capsys.readouterr().out)["values"]
    expected = values(KERNEL, iterations=2, seed=5).written
    assert [one["lanes"] for one in met] == [one.lanes.tolist() for one in expected]
    assert fmt(met[1]["dtype"]).bits * len(met[1]["lanes"]) == 512
    path.write_text("vrcp14ps zmm0, zmm1\nvaddps zmm0, zmm1, zmm2")
    assert main(["analyze", str(path), "--values"]) == 1
    assert "no semantics here for 'vrcp14ps" in capsys.readouterr().err
    assert main(["analyze", str(path), "--seed", "3"]) == 2
