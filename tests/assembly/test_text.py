"""Assembly text as compilers and people write it: what is taken for code, which loop is read, what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import simdnn
from isa_models import InvalidArgument, SimdnnError, UnknownName
from simdnn.assembly.analysis import read_body
from simdnn.assembly.assembler import machine_code
from simdnn.assembly.files import hexadecimal
from simdnn.assembly.text import read_text

#: as gcc 12 writes a reduction: Intel syntax, a remainder, a constant, debug information, a cold part behind
GCC = """
	.file	"k.c"
	.intel_syntax noprefix
	.text
.Ltext0:
	.p2align 4
	.globl	dotf
	.type	dotf, @function
dotf:
.LFB6392:
	.loc 1 4 71 view -0
	.cfi_startproc
	movsx	rcx, DWORD PTR [rsi]
	test	rdx, rdx
	jle	.L9
	vmovaps	ymm1, YMMWORD PTR .LC0[rip]
	.p2align 4,,10
	.p2align 3
.L4:
	vmovups	ymm4, YMMWORD PTR [rdi+rax]
	vfmadd231ps	ymm1, ymm4, YMMWORD PTR [rcx+rax]
	add	rax, 32
	cmp	rsi, rax
	jne	.L4
	vzeroupper
	ret
.L9:
	mov	eax, OFFSET FLAT:.LC1
	jmp	.L4
	.cfi_endproc
.LFE6392:
	.size	dotf, .-dotf
	.globl	sum
	.type	sum, @function
sum:
.L12:
	add	eax, DWORD PTR [rdi]
	dec	rdx
	jne	.L12
	ret
	.size	sum, .-sum
	.section	.rodata.cst32,"aM",@progbits,32
	.align 32
.LC0:
	.long	1065353216
	.ascii	"a ; ret \\" # jne\\n"
.LC1:	.quad	.LC0
	.section	.text.unlikely,"ax",@progbits
	ud2
	.section	.debug_info,"",@progbits
	.uleb128 0x1
	.string "jne .L4"
	.ident	"GCC: (Debian 12.2.0-14) 12.2.0"
	.section	.note.GNU-stack,"",@progbits
"""
#: as clang writes for other systems' linkers
DARWIN = """
	.section	__TEXT,__text,regular,pure_instructions
	.build_version macos, 10, 4
	.globl	_f                              ## -- Begin function f
	.p2align	4, 0x90
_f:                                     ## @f
	.cfi_startproc
## %bb.0:
	movss	LCPI0_0(%rip), %xmm0
LBB0_1:                                 ## =>This Inner Loop Header: Depth=1
	addss	(%rdi,%rax,4), %xmm0
	incq	%rax
	cmpq	%rax, %rcx
	jne	LBB0_1
	retq
	.cfi_endproc
	.section	__TEXT,__literal4,4byte_literals
LCPI0_0:
	.long	0x3f800000
.subsections_via_symbols
"""
WINDOWS = """
	.def	@feat.00;
	.scl	3;
	.type	0;
	.endef
	.globl	@feat.00
.set @feat.00, 0
	.section	.rdata,"dr"
	.globl	__real@3f800000
__real@3f800000:
	.long	0x3f800000
	.text
	.def	f; .scl 2; .type 32; .endef
f:
.seh_proc f
	movss	__real@3f800000(%rip), %xmm0
.LBB0_1:
	addss	(%rdi,%rax,4), %xmm0
	incq	%rax
	cmpq	%rax, %rcx
	jne	.LBB0_1
	retq
	.seh_endproc
"""


def read(text: str, **options: Any) -> list[str]:
    return [one.mnemonic for one in read_body(text, **options).instructions]


def test_what_compilers_write() -> None:
    body = read_body(GCC)
    assert [one.mnemonic for one in body.instructions] == ["vmovups", "vfmadd231ps", "add", "cmp", "jnz"]
    assert body.notes == ("loop 1 of 2, at line 19 (dotf), is read; there are others at line 36 (sum)",)
    assert [one.text.split()[-1] for one in body.instructions if one.mnemonic == "jnz"] == [".L4"]
    assert read(GCC, function="sum") == ["add", "dec", "jnz"]
    assert read(DARWIN) == read(WINDOWS) == ["addss", "inc", "cmp", "jnz"]
    with pytest.raises(UnknownName, match=r"unknown function 'dot': did you mean 'dotf'\? Known: dotf, sum"):
        simdnn.analyze(GCC, function="dot")


def test_the_syntax_is_seen() -> None:
    assert read_text("addq $1, %rax").syntax == "att"
    assert read_text("add rax, 1 # 100 %rax").syntax == "intel"
    assert read_text(".att_syntax\nnop").syntax == "att"
    assert read_body("1: vaddps %zmm1, %zmm0, %zmm0\ndecl %ecx\njnz 1b").instructions[0].text.startswith("vaddps %zmm1")
    with pytest.raises(InvalidArgument, match="syntax: met 'nasm', allowed are 'intel', 'att'"):
        simdnn.analyze("nop", syntax="nasm")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("text", "mnemonics"),
    [
        ("add rsi, 64; dec rcx", ["add", "dec"]),
        ("add rsi, 64 ; dec the counter", ["add"]),
        ("; add\nvaddps zmm0, zmm0, zmm1 ; and that is all", ["vaddps"]),
        ("nop // don't \"stop\nnop", ["nop", "nop"]),
        ("/* dec rcx\n dec rcx */ nop /**/; nop /* x */", ["nop", "nop"]),
        ("mov al, ';'\nnop # x", ["mov", "nop"]),
        ("a: b: nop\nc:nop", ["nop", "nop"]),
        (".data\nadd eax, eax\n.text\nnop\n.section .rodata\nret\n.previous\ndec eax", ["nop", "dec"]),
        ("nop\n.pushsection .rodata\nret\n.popsection\ndec eax\n.end\nret", ["nop", "dec"]),
        (".byte 0xc5, 0xfc\n.short 0xc158", ["vaddps"]),
        (".section .rodata\n.byte 4 # \x04\n.text\nnop", ["nop"]),  # as Clang writes tables of bytes
        ("x = 5\nadd eax, x", ["add"]),
        ("\ufeffnop\r\nnop\rnop", ["nop", "nop", "nop"]),
        ("vgatherdps zmm2{k1}, zmmword ptr [rsi + 4*zmm1]", ["vgatherdps"]),
        ("vaddps zmm0{k1}{z}, zmm1, dword ptr [rsi]{1to16}\nvaddps zmm0, zmm1, zmm2, {rn-sae}", ["vaddps", "vaddps"]),
    ],
)
def test_statements(text: str, mnemonics: list[str]) -> None:
    assert read(text.removeprefix("\ufeff")) == mnemonics


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('x: .incbin "/etc/passwd"', "line 1: directive '.incbin' is not read"),
        ('nop; .include "/etc/passwd"', "directive '.include'"),
        ('nop\n/* */ .incbin "/etc/passwd"', "line 2: directive '.incbin'"),
        ('"x": .incbin "/etc/passwd"', "no instruction, label or directive starts like"),
        ("0x1: .rept 1000000000", "no instruction, label or directive"),
        ("1: 2: .fill 1000000000", "directive '.fill'"),
        (".nops 1000000000", "directive '.nops'"),
        (".org 0x7fffffffffff", "directive '.org'"),
        (". = . + 1000000000", "moves the place of the code"),
        (".set ., 1000000000", "moves the place of the code"),
        (".macro m\nm\nm\n.endm\nm", "directive '.macro' is not read"),
        (".if 1\nnop\n.endif", "gcc -c, and the object file"),
        (".code32\nnop", "directive '.code32'"),
        ("\x7fELF", "holds the character"),
        ("jmp .", "line 1: "),
        (".set a, b\n.set b, a\nmov eax, a", "line 1: "),
        ("nop\n" + "x" * 70_000, "line 2 has 70000 characters, at most 65536"),
        ("# LLVM-MCA-BEGIN\n# LLVM-MCA-END\nnop", "no instructions"),
        ("# LLVM-MCA-END\nnop\n# LLVM-MCA-BEGIN", "BEGIN before END"),
        ("123", "3 digits: half a byte"),
        ("62f17548fe", "the code ends within an instruction that starts with 62 f1 75 48 fe"),
        ("nop\nvpdpbusd zmm0, zmm1, [rax", "line 2: a bracket without its other half: 'vpdpbusd zmm0, zmm1, [rax'"),
        ("vaddps (%rax, %zmm1, %zmm0", "line 1: a bracket without its other half"),
        ("loop.s", "'loop.s' is the name of a file, no assembly; pathlib.Path('loop.s') is read"),
        ("", "no instructions"),
        ("nop\nbogus rax\n", "line 2: invalid instruction mnemonic 'bogus'"),
        ("vaddps zmm0, zmm99, zmm1", "line 1: "),
        (".fill 100000000000\nnop", "directive '.fill' is not read"),
        ('.incbin "/etc/passwd"', "directive '.incbin'"),
        (".rept 1000000000\nnop\n.endr", "directive '.rept'"),
        ("nop\0nop", "no assembly"),
        ("\udcff", "no assembly"),
        ("ret", "returns"),
        ("jmp rax", "jumps"),
        ("x" * (1 << 20) + "y", "at most"),
        ("nop\n" * 40_000, "at most"),
        ("nop\n" * 5000, "at most 4096"),
        ("0f0b0", "5 digits"),
        ("ffff", "no instruction that is known here"),
    ],
)
def test_what_is_refused(text: str, said: str) -> None:
    with pytest.raises(InvalidArgument) as caught:
        simdnn.analyze(text)
    assert said in str(caught.value) and "\n" not in str(caught.value)


@pytest.mark.parametrize("given", [{"syntax": 3}, {"function": ["f"]}, {"loop": "1"}, {"assume_call": "20"}])
def test_arguments_of_other_types_are_told(given: dict[str, Any]) -> None:
    with pytest.raises(InvalidArgument, match=f"{next(iter(given))}: met"):
        simdnn.analyze("nop", **given)


def test_machine_code_in_digits() -> None:
    for text in (
        "c5f458c2",
        "c5 f4 58 c2",
        "0xc5,0xf4,0x58,0xc2",
        r"\xc5\xf4\x58\xc2",
        "C5F4\n58C2\n",
        "0xc5 f4 58 c2,",
    ):
        assert hexadecimal(text) == bytes.fromhex("c5f458c2")
    assert hexadecimal("0x5, 0x90") == b"\x05\x90"
    assert hexadecimal("nop") is hexadecimal("") is hexadecimal("add eax, 1") is None


def test_files(tmp_path: Path) -> None:
    path = tmp_path / "k.s"
    for data in (b"nop\n", "nop # é".encode(), b"\xef\xbb\xbfnop", "nop".encode("utf-16"), b"90"):
        path.write_bytes(data)
        assert [one.mnemonic for one in read_body(path).instructions] == ["nop"]
    for data, said in {
        b"\x00\x01\x02": "neither text nor an ELF object file: byte 0 is 0",
        b"nop \xff": "neither text (UTF-8) nor an ELF object file: byte 4 is 0xff",
        b"\xcf\xfa\xed\xfe\x07\0\0\1": "is a Mach-O file: compile for Linux",
        b"!<arch>\nk.o": "is an archive of object files: take one out (ar x)",
        b"MZ\x90": "is a PE file",
        b"\x7fELF\x02\x01" + b"\0" * 12 + b"\xb7" + b"\0" * 60: "ELF for AArch64",
        b"\x7fELF\x01\x01" + b"\0" * 12 + b"\x03" + b"\0" * 60: "ELF for 32-bit x86",
        b"": "no instructions",
    }.items():
        path.write_bytes(data)
        with pytest.raises(InvalidArgument) as caught:
            simdnn.analyze(path)
        assert said in str(caught.value)
    for where, said in (
        (tmp_path, "is a folder"),
        (tmp_path / "none.s", "is not there"),
        (Path("/dev/zero"), "is a device or a pipe"),
    ):
        with pytest.raises(InvalidArgument, match=said):
            simdnn.analyze(where)
    with path.open("wb") as stream:  # a hole: nothing is written, nothing is read
        stream.truncate(1 << 30)
    with pytest.raises(InvalidArgument, match="has 1073741824 bytes, at most"):
        simdnn.analyze(path)


@pytest.mark.parametrize("code", [None, 5, ["nop"], object()])
def test_other_types(code: Any) -> None:
    with pytest.raises(InvalidArgument, match="str, bytes and pathlib.Path are read"):
        simdnn.analyze(code)


def test_which_way_round() -> None:
    assert read("1: nop\ntest eax, eax\njz 2f\ndec rdx\n2: dec rcx\njnz 1b") == [
        "nop",
        "test",
        "jnz",
        "dec",
        "dec",
        "jnz",
    ]
    # entered at its condition, as gcc -O1 writes a while; and a part that was put behind the function's end
    assert read("jmp 2f\n1: inc rdx\n2: dec rcx\njnz 1b\nret") == ["inc", "dec", "jnz"]
    cold = read_body("1: dec rdx\njz 3f\n2: dec rcx\njnz 1b\nret\n3: cpuid\njmp 2b")
    assert [one.mnemonic for one in cold.instructions] == ["dec", "jnz", "dec", "jnz"]
    assert cold.notes == ("1 branches inside are taken as never taken",)
    # the only way round leads by a jump
    assert read("1: dec rcx\njz 9f\njmp 2f\nud2\n2: inc rdx\njmp 1b\n9: ret") == ["dec", "jnz", "jmp", "inc", "jmp"]


def test_code_without_a_loop() -> None:
    body = read_body("push rbx\nvaddps zmm0, zmm0, zmm1\nvzeroupper\nret\nint3\nint3")
    assert [one.mnemonic for one in body.instructions][-1] == "vzeroupper"
    assert body.notes == ("no loop: 3 instructions from the first on, read as one; 3 left out",)


@pytest.mark.parametrize("text", ["1: jmp 1b", "1: jnz 1b", "jmp 2f\n1: nop\n2: jmp 1b", "1: jmp 2f\n2: jmp 1b"])
def test_loops_of_jumps(text: str) -> None:
    assert simdnn.analyze(text).cycles_per_iteration > 0


def test_a_branch_into_an_instruction() -> None:
    body = read_body("b800000000 75fa")
    assert len(body.instructions) == 2
    assert body.notes == ("the branch at byte 5 goes to the middle of an instruction, and is never taken",)


def test_deep_nests_and_many_labels() -> None:
    deep = "\n".join(f"a{i}: nop" for i in range(3000)) + "\n" + "\n".join(f"jnz a{i}" for i in reversed(range(3000)))
    assert len(read_body(deep).instructions) == 2
    many = "\n".join(f"a{i}: dec rcx\njnz a{i}" for i in range(3000))
    assert "loop 1 of 3000" in read_body(many).notes[0]


def test_data_at_different_symbols_is_apart() -> None:
    """Static arrays share no bytes, though the assembler knows no address of either."""
    copy = "1: vmovaps ymm0, ymmword ptr {}[rax]\nvmovaps ymmword ptr {}[rax], ymm0\nadd rax, 32\ncmp rax, rcx\njne 1b"
    apart = simdnn.analyze(copy.format("a", "b")).cycles_per_iteration
    assert apart == simdnn.analyze(copy.format(".La", ".Lb")).cycles_per_iteration < 3
    assert simdnn.analyze(copy.format("a-32", "a")).cycles_per_iteration > 5  # reads what was stored just before


def test_errors_are_of_the_package() -> None:
    for text in ("syscall", "int3", "hlt\nrdmsr", "fadd st(0), st(1)", "paddd mm0, mm1", "lock inc dword ptr [rax]"):
        try:
            found = simdnn.analyze(text, assume=True)
        except SimdnnError as error:
            assert "\n" not in str(error)
        else:
            assert found.cycles_per_iteration > 0


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("vaddps zmm0, zmm1, zmm42", "no register 'zmm42'; there are zmm0 to zmm31"),
        ("kmovw eax, K9", "no register 'K9'; there are k0 to k7"),
        ("mov rax, r16", "no register 'r16'; there are r8 to r15"),
        ("mov r16l, al", "no register 'r16l'; there are r8 to r15"),
        ("nop\ntdpbusd tmm0, tmm1, tmm8", "line 2: no register 'tmm8'"),
    ],
)
def test_a_register_that_there_is_not_is_no_place_in_memory(text: str, said: str) -> None:
    with pytest.raises(InvalidArgument, match=said):
        simdnn.analyze(text, "spr", assume=True)


def test_lowest_bytes_of_registers_by_both_names() -> None:
    """The manual's r8l and everybody's r8b; LLVM takes the first for a place in memory."""
    assert machine_code("mov r8l, al") == machine_code("mov r8b, al") == bytes.fromhex("4188c0")
    assert machine_code("movzx R15D, R11L") == machine_code("movzx r15d, r11b")


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [
        ("vpmulld zmm4,zmm3,DWORD BCST [r13+rax*4+0x40]", "vpmulld zmm4, zmm3, dword ptr [r13+rax*4+0x40]{1to16}"),
        ("vfmadd231pd ymm5,ymm0,QWORD BCST [rdi]", "vfmadd231pd ymm5, ymm0, qword ptr [rdi]{1to4}"),
        ("vcmpps k1,zmm2,DWORD BCST [rax],0x3", "vcmpps k1, zmm2, dword ptr [rax]{1to16}, 3"),
        ("vfpclassps k1,DWORD BCST [rax]{1to16},0x3", "vfpclassps k1, dword ptr [rax]{1to16}, 3"),
        ("vcvtps2pd zmm1,DWORD BCST [rax]", "vcvtps2pd zmm1, dword ptr [rax]{1to8}"),
        ("vcvtpd2ps ymm1,QWORD BCST [rax]", "vcvtpd2ps ymm1, qword ptr [rax]{1to8}"),
        ("vcvtpd2ps xmm1,QWORD BCST [rax]{1to4}", "vcvtpd2ps xmm1, qword ptr [rax]{1to4}"),
        ("vcvtne2ps2bf16 zmm1,zmm2,DWORD BCST [rax]", "vcvtne2ps2bf16 zmm1, zmm2, dword ptr [rax]{1to16}"),
        ("vcvtneps2bf16 ymm1,DWORD BCST [rax]", "vcvtneps2bf16 ymm1, dword ptr [rax]{1to16}"),
        ("vaddph zmm1,zmm2,WORD BCST [rax]", "vaddph zmm1, zmm2, word ptr [rax]{1to32}"),
        ("vcvtps2ph ymm0,zmm0{sae},0x8", "vcvtps2ph ymm0, zmm0, {sae}, 8"),
        ("vaddps zmm1{k1},zmm2,zmm3{rn-sae}", "vaddps zmm1{k1}, zmm2, zmm3, {rn-sae}"),
        ("vcvttss2usi eax,xmm1{sae}", "vcvttss2usi eax, xmm1, {sae}"),
    ],
)
def test_broadcasts_and_roundings_as_gnu_writes_them(theirs: str, ours: str) -> None:
    """`theirs` is what objdump of binutils 2.40 prints in Intel syntax for `ours`."""
    assert machine_code(theirs) == machine_code(ours)


def test_labels_and_names_may_look_like_registers() -> None:
    assert simdnn.analyze("zmm42: dec rcx\njnz zmm42", "spr").cycles_per_iteration > 0
    assert simdnn.analyze("mov eax, dword ptr [rip + table_r20]\nadd rcx, 8", "spr").cycles_per_iteration > 0
