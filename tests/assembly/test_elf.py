"""Object files: functions, relocations, marks, and what damaged ones yield."""

from __future__ import annotations

import functools
import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import simdnn
from isa_models import InvalidArgument, SimdnnError, UnknownName
from simdnn.assembly.analysis import read_body
from simdnn.assembly.assembler import assemble
from simdnn.assembly.elf import ObjectFile
from simdnn.assembly.text import CleanText
from tests.effort import examples

COPY = """
.globl copy
.type copy, @function
copy:
1: vmovaps ymm0, ymmword ptr {source}
vmovaps ymmword ptr {target}, ymm0
add rax, 32
cmp rax, rcx
jne 1b
ret
.size copy, .-copy
"""
SCALE = """
.section .text.scale, "ax"
.globl scale
.type scale, @function
scale:
vbroadcastss ymm1, dword ptr [rip + .LC0]
1: vmulps ymm0, ymm1, ymmword ptr [rdi]
vmovups ymmword ptr [rdi], ymm0
add rdi, 32
dec rcx
jne 1b
call other
ret
.size scale, .-scale
.section .rodata
.LC0: .long 0x3f800000
.bss
a: .zero 4096
b: .zero 4096
"""


@functools.cache
def compiled(source: str = "a[rax]", target: str = "b[rax]") -> bytes:
    """An object file as a compiler leaves it: functions in sections of their own, references not yet resolved."""
    lines = (COPY.format(source=source, target=target) + SCALE).splitlines()
    return assemble(CleanText("intel", tuple(lines), (), (), ()))


def cycles(*places: str) -> float:
    return simdnn.analyze(compiled(*places), function="copy").cycles_per_iteration


def test_functions() -> None:
    found = ObjectFile(compiled())
    assert sorted(found.functions) == ["copy", "scale"]
    assert [one.mnemonic for one in read_body(compiled(), function="scale").instructions][:2] == ["vmulps", "vmovups"]
    with pytest.raises(InvalidArgument, match="2 functions; name one of copy, scale"):
        simdnn.analyze(compiled())
    with pytest.raises(UnknownName, match="did you mean 'scale'"):
        simdnn.analyze(compiled(), function="scal")


def test_static_arrays_are_apart() -> None:
    """Their addresses are zero in the file. Only what the relocations say is one place is one place."""
    assert cycles("a[rax]", "b[rax]") == cycles("a[rax]", "unknown[rax]") == cycles("one[rax]", "two[rax]") < 3
    assert cycles("a[rax-32]", "a[rax]") == cycles("one[rax-32]", "one[rax]") > 5
    assert cycles("[rip+a]", "[rip+b]") < 3 < 5 < cycles("[rip+a]", "[rip+a]")


def test_labels_are_functions_where_none_is_marked() -> None:
    text = ".globl f\nf: vaddps zmm0, zmm0, zmm1\nret\n.globl g\ng: nop\n1: vmulps zmm0, zmm0, zmm1\njnz 1b"
    data = assemble(CleanText("intel", tuple(text.splitlines()), (), (), ()))
    assert sorted(ObjectFile(data).functions) == ["f", "g"]
    assert [one.mnemonic for one in read_body(data, function="f").instructions] == ["vaddps"]
    assert [one.mnemonic for one in read_body(data, function="g").instructions] == ["vmulps", "jnz"]


def test_marks_in_an_object_file() -> None:
    mark = "mov ebx, {}\n.byte 0x64, 0x67, 0x90"
    text = f"f: vdivps zmm0, zmm0, zmm1\n{mark.format(111)}\nvaddps zmm0, zmm0, zmm1\n{mark.format(222)}\nret"
    data = assemble(CleanText("intel", tuple(text.splitlines()), (), (), ()))
    assert [one.mnemonic for one in read_body(data).instructions] == ["vaddps"]


def _analyze(data: bytes, **options: Any) -> None:
    try:
        found = simdnn.analyze(data, assume=True, **options)
    except SimdnnError as error:
        assert "\n" not in str(error) and len(str(error)) < 2000
    else:
        assert found.cycles_per_iteration > 0 and str(found) and found.timeline.events


@examples(150)
@given(st.integers(0, 1 << 32), st.sampled_from([None, "copy", "scale"]))
def test_damaged_files(seed: int, function: str | None) -> None:
    """Bits turned, fields overwritten with extremes, ends cut off."""
    rng, data = random.Random(seed), bytearray(compiled())
    for _ in range(rng.choice((1, 2, 8, 50))):
        at = rng.randrange(len(data))
        kind = rng.randrange(4)
        if kind == 0:
            data[at] ^= 1 << rng.randrange(8)
        elif kind == 1:  # the section headers are at the end
            at = max(0, len(data) - rng.randrange(64 * 14))
            width = rng.choice((1, 2, 4, 8))
            data[at : at + width] = rng.choice((b"\0", b"\xff", b"\x7f", b"\x80")) * width
        elif kind == 2:
            data[at:at] = rng.randbytes(rng.randrange(9))
        elif rng.random() < 0.2:
            del data[max(4, at) :]
    _analyze(bytes(data), function=function)


PARTS = (
    "90 75fe 75f0 ebfb eb02 7402 c3 ffe0 0f85f8ffffff e2f9 c5f458c2 62f17548fec2 ff4e08 488b06 48ffc9 66 f0 0f0b"
).split()


@examples(100)
@given(st.lists(st.sampled_from([bytes.fromhex(part) for part in PARTS]), min_size=1, max_size=40))
def test_branches_anywhere(parts: list[bytes]) -> None:
    """Loops in loops, into each other, into instructions, round themselves."""
    _analyze(b"".join(parts))
    _analyze(b"".join(parts), loop=1)
