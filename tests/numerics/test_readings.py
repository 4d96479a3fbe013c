"""Every instruction at every width: compiled code, portable and native, against the reference reading."""

from __future__ import annotations

import zlib
from dataclasses import replace

import numpy as np
import pytest

from isa_models import REGISTRY, instruction
from isa_models.formats import fmt
from isa_models.instruction import Instruction
from isa_models.isa import host_caps
from simdnn import numerics
from simdnn.calibration import hostcheck
from simdnn.calibration.hostcheck import HostCheck, check_host, compare
from simdnn.numerics.compiled import _Stage
from simdnn.numerics.native import own_width
from simdnn.program.check import verify
from simdnn.program.records import Affine, Loop, Memory, Op, Program, Register, Tensor
from tests.effort import one_in

VALUED = {name: definition for name, definition in REGISTRY.items() if not definition.configures}
#: the classes whose semantics are more than one operation: 2**20 lanes each
DEEP = (
    "vpmaddubsw",
    "vpmaddwd",
    "vpdpbusd",
    "vpdpbusds",
    "vpdpwssd",
    "vpdpwssds",
    "vdpbf16ps",
    "vcvtneps2bf16",
    "vcvtph2ps",
    "vcvtps2ph",
    "vfmadd231ps",
    "vfmadd213ps",
    "vcvtps2dq",
)


@one_in(2, "native")
@pytest.mark.parametrize("native", [False, True], ids=["portable", "native"])
@pytest.mark.parametrize("name", sorted(VALUED))
def test_every_instruction(name: str, native: bool) -> None:
    definition = instruction(name)
    checked = 0
    for width in definition.caps:
        if native and not own_width(definition, width, host_caps()):
            continue
        rng = np.random.default_rng([width, zlib.crc32(name.encode())])
        found = compare(definition, width, native, 24 if definition.tile else 600, rng)
        assert found.mismatches == 0, found.first
        checked += found.vectors
    if not checked:
        pytest.skip(f"this CPU shows no {name}")
    assert checked >= (12 if definition.tile else 600)


@one_in(3, "native")
@pytest.mark.parametrize("native", [False, True], ids=["portable", "native"])
@pytest.mark.parametrize("name", DEEP)
def test_a_million_lanes(name: str, native: bool) -> None:
    definition = instruction(name)
    if native and not own_width(definition, 512, host_caps()):
        pytest.skip(f"this CPU shows no {name}")
    rng = np.random.default_rng(zlib.crc32(name.encode()))
    found = compare(definition, 512, native, (1 << 20) // definition.lanes(512), rng)
    assert found.mismatches == 0, found.first


def test_the_table_covers_every_instruction_and_finds_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same instructions are compared above, on more vectors; here only the integer additions are."""

    def some(definition: Instruction, width: int, native: bool, vectors: int, rng: np.random.Generator) -> HostCheck:
        if definition.name.startswith("vpadd"):
            return compare(definition, width, native, vectors, rng)
        return HostCheck(vectors)

    monkeypatch.setattr(hostcheck, "compare", some)
    table = check_host(vectors=32, seed=1, jobs=1)
    assert set(table.instruction) == set(VALUED)
    assert len(table) == sum(len(d.caps) for d in VALUED.values())
    assert set(table.status) <= {"ok", "not on this CPU"}
    here = [
        bool(host_caps().intersection(REGISTRY[n].caps[w])) for n, w in zip(table.instruction, table.width, strict=True)
    ]
    assert ((table.vectors > 0) == np.array(here)).all() and (table.portable_vectors > 0).all()


def test_a_wrong_model_is_found_and_shown() -> None:
    wrong = replace(instruction("vpaddb"), function=lambda a, b: a - b)
    found = compare(wrong, 256, False, 50, np.random.default_rng(0))
    assert found.mismatches == found.vectors == 50
    assert found.first.startswith("portable: a [") and " gives [" in found.first


@pytest.mark.parametrize("name", ["vaddps", "vaddpd", "vmulps", "vmulpd"])
def test_the_first_nan_stays_the_first_in_any_register(name: str) -> None:
    """Of 16 registers all the others meet the last: an assembler would swap those of the upper half with it."""
    registers = [
        Register(f"r{i}", instruction(name).result, 256 // fmt(instruction(name).result).bits) for i in range(16)
    ]
    words = [register.as_("u32") for register in registers]
    ops = [Op("vmovdqu", word, (Memory("src", Affine(8 * i), "u32", 8),)) for i, word in enumerate(words)]
    for i, register in enumerate(registers[:-1]):
        ops.append(Op(name, register, (register, registers[-1])))
        ops.append(Op("vmovdqu", Memory("dst", Affine(8 * i), "u32", 8), (words[i],)))
    tensors = Tensor("src", "u32", 128), Tensor("dst", "u32", 128, "output")
    program = verify(Program(f"nans.{name}", "avx2", tensors, (Loop("s", 1, tuple(ops)),)))
    nans = {"src": np.arange(0x7FF80000, 0x7FF80000 + 128, dtype=np.uint32)}
    met, expected = (
        numerics.run(program, nans, engine=engine, native=native)["dst"]
        for engine, native in (("compiled", "always"), ("reference", True))
    )
    assert (met == expected).all()


@pytest.mark.parametrize(
    ("name", "read", "of"),
    [("vpmovsxbw", "s8", 16), ("vpaddd", "s32", 8), ("vfmadd231ps", "f32", 8), ("vcvtph2ps", "f16", 8)],
)
def test_an_instruction_that_is_timed_reads_memory_itself_where_the_program_says_so(
    name: str, read: str, of: int
) -> None:
    """Exact int8 under AVX2 was timed with a load before each widening, and seemed to take a fifth longer."""
    definition = instruction(name)
    result = Register("r", definition.result, 256 // fmt(definition.result).bits)
    held = [Register("r", operand.dtype, of) for operand in definition.operands[:-1]]
    begin = Op("vmovdqu", result.as_("u32"), (Memory("other", Affine(), "u32", 8),))
    op = Op(name, result, (*held, Memory("src", Affine(), read, of)))
    end = Op("vmovdqu", Memory("dst", Affine(), "u32", 8), (result.as_("u32"),))
    tensors = Tensor("src", read, of), Tensor("other", "u32", 8), Tensor("dst", "u32", 8, "output")
    program = verify(Program(f"reads.{name}", "avx2", tensors, (Loop("i", 1, (begin, op, end)),)))
    text = _Stage(program, frozenset({"avx2"}), "s", program.body[0], True, (), always=True).text
    (line,) = (line for line in text.splitlines() if f'asm "{name} ' in line)
    assert ',*m"(' in line and f"ptr elementtype(<{of} x " in line
    given = {t.name: (np.arange(t.size) % 7 + 1).astype(fmt(t.dtype).dtype) for t in tensors[:2]}
    met, expected = (
        numerics.run(program, given, engine=engine, native=native)["dst"]
        for engine, native in (("compiled", "always"), ("reference", True))
    )
    assert (met == expected).all()


def test_an_instruction_whose_memory_form_only_some_hosts_have_reads_a_register() -> None:
    """`vpslld ymm, m256, imm8` has no VEX encoding: under AVX2 alone the process would end at it."""
    result, read = Register("r", "u32", 8), Memory("src", Affine(), "u32", 8)
    body = (
        Op("vpslld", result, (read,), immediates=(("imm", 3),)),
        Op("vmovdqu", replace(read, tensor="dst"), (result,)),
    )
    tensors = Tensor("src", "u32", 8), Tensor("dst", "u32", 8, "output")
    program = verify(Program("reads.none", "avx512_core", tensors, (Loop("i", 1, body),)))
    text = _Stage(program, frozenset({"avx2"}), "s", program.body[0], True, (), always=True).text
    assert '"vpslld ' in text and '*m"' not in text
