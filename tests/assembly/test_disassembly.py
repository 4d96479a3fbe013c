"""The output of objdump: functions, bytes, and the names of what is called."""

from __future__ import annotations

import pytest

import simdnn
from isa_models import InvalidArgument, UnknownName
from simdnn.assembly.analysis import read_body

#: `objdump -dr` of an object file by gcc 12: a loop that adds, one that calls
GNU = """
k.o:     file format elf64-x86-64


Disassembly of section .text:

0000000000000000 <add>:
   0:\t31 c0                \txor    %eax,%eax
   2:\t66 66 2e 0f 1f 84 00 \tdata16 cs nopw 0x0(%rax,%rax,1)
   9:\t00 00 00 00
   d:\t0f 1f 00             \tnopl   (%rax)
  10:\tc5 fc 58 05 00 00 00 \tvaddps 0x0(%rip),%ymm0,%ymm0        # 18 <add+0x18>
  17:\t00
\t\t\t14: R_X86_64_PC32\ttable-0x4
  18:\t48 ff c9             \tdec    %rcx
  1b:\t75 f3                \tjne    10 <add+0x10>
  1d:\tc3                   \tret
\t...

0000000000000020 <mul>:
  20:\tc5 fc 59 c1          \tvmulps %ymm1,%ymm0,%ymm0
  24:\te8 00 00 00 00       \tcall   29 <mul+0x9>
\t\t\t25: R_X86_64_PLT32\texpf-0x4
  29:\tc3                   \tret
"""
LLVM = """
/tmp/k.o:\tfile format elf64-x86-64

0000000000000000 <add>:
       0: c5 fc 58 c1                  \tvaddps\t%ymm1, %ymm0, %ymm0
       4: 48 ff c9                     \tdecq\t%rcx
       7: 75 f7                        \tjne\t0x0 <add>
       9: c3                           \tretq
"""


def test_objdump_is_read_by_its_bytes() -> None:
    found = simdnn.analyze(GNU, "icx", function="add")
    assert [one.text for one in found.body] == ["vaddps table(%rip), %ymm0, %ymm0", "dec %rcx", "jne 0x10"]
    assert found.cycles_per_iteration == 4
    assert simdnn.analyze(LLVM, "icx").cycles_per_iteration == 4
    assert [one.text for one in simdnn.analyze(LLVM, "icx", "intel").body][0] == "vaddps ymm0, ymm0, ymm1"


def test_functions_of_a_listing() -> None:
    with pytest.raises(InvalidArgument, match="the text has 2 functions; name one of add, mul"):
        simdnn.analyze(GNU)
    with pytest.raises(UnknownName, match="'ad'.*add"):
        simdnn.analyze(GNU, function="ad")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (GNU.replace("c5 fc 59 c1          \t", ""), "line 21: no bytes of an instruction"),
        (GNU.replace("  29:", "  19:"), "line 24: address 0x19 does not follow"),
        ("0000000000000000 <f>:\n", "holds no instructions"),
    ],
)
def test_a_listing_that_cannot_be_read(text: str, said: str) -> None:
    with pytest.raises(InvalidArgument, match=said):
        simdnn.analyze(text, function="mul" if "mul" in text else None)


def test_names_of_a_text_and_of_a_linked_program() -> None:
    text = "top:\nvaddps ymm0, ymm1, [rip+table]\njz out\ndec rcx\njnz top\n"
    shown = [one.text for one in read_body(text).instructions]
    assert shown == ["vaddps ymm0, ymm1, [rip+table]", "je out", "dec rcx", "jne top"]
    assert [one.text for one in read_body("\n".join(shown)).instructions] == shown
    linked = "0000000000001110 <f>:\n    1110:\t0f 84 1a ff ff ff    \tje     1030 <expf@plt>\n"
    assert [one.text for one in read_body(linked, "intel").instructions] == ["je expf@plt"]


PASTED = {
    "objdump": """
   0:\t62 f1 74 48 58 0e    \tvaddps (%rsi),%zmm1,%zmm1
   6:\t48 83 c6 40          \tadd    $0x40,%rsi
   a:\t48 39 d6             \tcmp    %rdx,%rsi
   d:\t75 f1                \tjne    0 <sum+0x10>
""",
    "gdb": """
=> 0x0000000000401010 <+16>:\tvaddps zmm1,zmm1,ZMMWORD PTR [rsi]
   0x0000000000401016 <+22>:\tadd    rsi,0x40
   0x000000000040101a <+26>:\tcmp    rsi,rdx
   0x000000000040101d <+29>:\tjne    0x401010 <sum+16>
""",
    "gdb x/i": """
   0x401010 <sum+16>:\tvaddps zmm1,zmm1,ZMMWORD PTR [rsi]
   0x401016 <sum+22>:\tadd    rsi,0x40
   0x40101a <sum+26>:\tcmp    rsi,rdx
   0x40101d <sum+29>:\tjne    0x401010 <sum+16>
""",
    "inline assembly": r"""
    "1:\n\t"
    "vaddps (%%rsi), %%zmm1, %%zmm1\n\t"
    "add $0x40, %%rsi\n\t"
    "cmp %%rdx, %%rsi\n\t"
    "jne 1b\n\t"
""",
    "perf annotate --stdio": """
 Percent |\tSource code & Disassembly of sum for cpu-clock (1050 samples, percent: local period)
--------------------------------------------------------------------------------------------
         : 3    Disassembly of section .text:
         : 5    00000000000011b0 <sum>:
         : 6    sum():
         : 7    for (int i = 0; i < n; i++)
    0.00 :   11c8:   vaddps (%rsi),%zmm1,%zmm1
   97.62 :   11d3:   add    $0x40,%rsi
    0.19 :   11d7:   cmp    %rdx,%rsi
    1.05 :   11dd:   jne    11c8 <sum+0x18>
""",
    "perf annotate --stdio --asm-raw -M intel": """
 Percent |\tSource code & Disassembly of sum for cpu-clock (1050 samples, percent: local period)
         : 5    00000000000011b0 <sum>:
   97.62 :   11b0:   62 f1 74 48 58 0e       vaddps zmm1,zmm1,ZMMWORD PTR [rsi]
    0.19 :   11b6:   48 83 c6 40             add    rsi,0x40
    0.19 :   11ba:   48 39 d6                cmp    rsi,rdx
    1.05 :   11bd:   75 f1                   jne    11b0 <sum>
""",
    "hsdis": """
  0x00007f8b1c3f0a20:   vaddps (%rsi),%zmm1,%zmm1     ;*fadd {reexecute=0 rethrow=0 return_oop=0}
                                                            ; - Sum::sum@19 (line 7)
  0x00007f8b1c3f0a2e:   add    $0x40,%rsi
  0x00007f8b1c3f0a32:   cmp    %rdx,%rsi
  0x00007f8b1c3f0a39:   jne    0x00007f8b1c3f0a20           ;*if_icmplt {reexecute=0 rethrow=0 return_oop=0}
""",
    "IDA": """
.text:0000000140001010 loc_140001010:                          ; CODE XREF: sum+2A
.text:0000000140001010                 vaddps  zmm1, zmm1, zmmword ptr [rsi]
.text:0000000140001017                 add     rsi, 40h
.text:000000014000101E                 cmp     rsi, rdx
.text:0000000140001025                 jnz     short loc_140001010
""",
    "perf annotate --stdio2": """
Samples: 1K of event 'cpu-clock', 4000 Hz, Event count (approx.): 262500000, [percent: local period]
sum() /tmp/sum
Percent
            Disassembly of section .text:

            00000000000011b0 <sum>:
            sum():
            for (int i = 0; i < n; i++)
        18:   vaddps       (%rsi),%zmm1,%zmm1
 97.62        add          $0x40,%rsi
  0.19        cmp          %rdx,%rsi
  1.05      ↑ jne          18
            ← ret
""",
    "MASM": """
top: vaddps zmm1, zmm1, zmmword ptr [rsi] ; add
    add rsi, 40h
    cmp rsi, rdx
    jne SHORT top
""",
}


@pytest.mark.parametrize("tool", PASTED)
def test_a_loop_is_read_as_it_was_pasted(tool: str) -> None:
    """A part of a listing has no head; lines of C's inline assembly are strings."""
    found = simdnn.analyze(PASTED[tool], "icx")
    assert [one.mnemonic for one in found.body] == ["vaddps", "add", "cmp", "jnz"] and not found.notes
    assert found.cycles_per_iteration == 4


def test_labels_of_hexadecimal_letters_are_no_addresses() -> None:
    assert len(simdnn.analyze("fade: vaddps zmm0, zmm0, zmm1\ndec rcx\njnz fade", "icx").body) == 3
    assert len(simdnn.analyze("10: vaddps zmm0, zmm0, zmm1\ndec rcx\njnz 10b", "icx").body) == 3
