"""Loops in assembly: what is read of them, what the clock says of measured ones, and what junk yields."""

from __future__ import annotations

import json
import os
import struct
import warnings
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import simdnn
from isa_models import InvalidArgument, SimdnnError, Unimplemented, UnknownName, UnknownTiming
from simdnn.assembly import assembler
from simdnn.assembly.analysis import read_body
from simdnn.assembly.assembler import machine_code
from simdnn.assembly.limits import REMEDIES
from simdnn.cli import main
from tests.effort import examples

VECTORS = Path(__file__).parents[1] / "vectors"
LOOPS: list[dict[str, Any]] = json.loads((VECTORS / "loops_zen4.json").read_text())["loops"]

KERNEL = """
# a kernel with what a compiler puts around it
    .text
    .globl dot
dot:
    xor eax, eax
.L2:
    vmovups zmm12, [rdx]
    vpdpbusd zmm0, zmm12, dword ptr [rsi]{1to16}
    vpdpbusd zmm1, zmm12, dword ptr [rsi+4]{1to16}
    add rsi, 8
    add rdx, 64
    dec rcx
    jnz .L2
    ret
    .cfi_endproc
    .section .rodata
.LC0: .long 1
"""
ATT = """
1:  vmovups (%rdx), %zmm12
    vpdpbusd (%rsi){1to16}, %zmm12, %zmm0
    vpdpbusd 4(%rsi){1to16}, %zmm12, %zmm1
    addq $8, %rsi
    addq $64, %rdx
    decq %rcx
    jnz 1b
"""


def cycles(text: str, **options: Any) -> float:
    return simdnn.analyze(text, **options).cycles_per_iteration


# -- measured loops ------------------------------------------------------------------------------------------------


def test_measured_loops() -> None:
    known = [loop for loop in LOOPS if loop["name"] != "transpose_pack_perm_512"]  # open: docs/validation/cpu-loops.md
    errors = [cycles("\n".join(loop["body"])) / loop["cycles_per_iteration"] - 1 for loop in known]
    assert sum(abs(e) for e in errors) / len(errors) <= 0.02, [f"{e:+.1%}" for e in errors]


# -- what is read --------------------------------------------------------------------------------------------------


def test_both_syntaxes_hex_and_bytes_are_one_loop() -> None:
    body = read_body(KERNEL)
    code = machine_code("\n".join(one.text for one in body.instructions[:-1]) + "\njnz .L")
    assert len(body.instructions) == 7  # neither xor nor ret
    whole = cycles(KERNEL)
    assert whole == cycles(ATT, syntax="att") == cycles(code.hex(" ")) == simdnn.analyze(code).cycles_per_iteration


def test_innermost_loop() -> None:
    nested = "1: mov rax, 5\n2: vaddps zmm0, zmm0, zmm1\n dec rax\n jnz 2b\n dec rcx\n jnz 1b\n3: dec rdx\n jnz 3b"
    found = simdnn.analyze(nested)
    assert [one.mnemonic for one in found.body] == ["vaddps", "dec", "jnz"]
    assert found.notes == ("loop 1 of 2, at line 2, is read; there are others at line 7",)
    assert [one.mnemonic for one in simdnn.analyze(nested, loop=2).body] == ["dec", "jnz"]
    with pytest.raises(InvalidArgument, match="loop 3: the code has 2 innermost loops"):
        simdnn.analyze(nested, loop=3)


def test_marks() -> None:
    text = "vdivps zmm0, zmm0, zmm1\n# LLVM-MCA-BEGIN\nvaddps zmm0, zmm0, zmm1\n# LLVM-MCA-END\nvdivps zmm0, zmm0, zmm1"
    assert cycles(text) == cycles("vaddps zmm0, zmm0, zmm1") == 3
    with pytest.raises(InvalidArgument, match="1 BEGIN and 0 END"):
        simdnn.analyze("# OSACA-BEGIN\nnop")
    iaca = "mov ebx, 111\n.byte 0x64, 0x67, 0x90\nvaddps zmm0, zmm0, zmm1\nmov ebx, 222\n.byte 0x64, 0x67, 0x90"
    assert cycles(iaca) == 3


def test_a_branch_whose_label_is_not_in_the_text() -> None:
    assert len(read_body("nop\njz .Lout\nnop\ndec rcx\njnz .Ltop").instructions) == 5


def object_file(*functions: tuple[str, str]) -> bytes:
    """An ELF object of these functions, written by hand: null, text, symbols, names."""
    code, names, symbols = b"", b"\0", b"\0" * 24
    for name, text in functions:
        own = machine_code(text)
        symbols += struct.pack("<IBBHQQ", len(names), 0x12, 0, 1, len(code), len(own))
        names += name.encode() + b"\0"
        code += own
    parts = (code, symbols, names)
    starts = [64, 64 + len(code), 64 + len(code) + len(symbols)]
    table = 64 + sum(map(len, parts))
    head = b"\x7fELF\x02\x01\x01".ljust(16, b"\0")
    head += struct.pack("<HHIQQQIHHHHHH", 1, 62, 1, 0, 0, table, 0, 64, 0, 0, 64, 4, 0)
    sections = b"\0" * 64
    for kind, flags, start, part, link in zip((1, 2, 3), (6, 0, 0), starts, parts, (0, 3, 0), strict=True):
        sections += struct.pack("<IIQQQQIIQQ", 0, kind, flags, 0, start, len(part), link, 0, 1, 0)
    return head + b"".join(parts) + sections


def test_functions_of_an_object_file(tmp_path: Path) -> None:
    data = object_file(("add", "1: vaddps zmm0, zmm0, zmm1\ndec rcx\njnz 1b\nret"), ("mul", "vmulps zmm0, zmm0, zmm1"))
    path = tmp_path / "kernels.o"
    path.write_bytes(data)
    assert len(simdnn.analyze(path, function="add").body) == 3
    assert len(simdnn.analyze(data, function="mul").body) == 1
    with pytest.raises(InvalidArgument, match="2 functions; name one of add, mul"):
        simdnn.analyze(path)
    with pytest.raises(UnknownName, match="'ad'.*add"):
        simdnn.analyze(path, function="ad")


# -- what the clock is told ----------------------------------------------------------------------------------------


def test_addresses_that_advance_carry_nothing() -> None:
    """A store feeds the load of the next iteration only where both stay at their place."""
    still = cycles("vmovups zmm0, [rsi]\nvaddps zmm0, zmm0, zmm1\nvmovups [rsi], zmm0")
    moving = cycles("vmovups zmm0, [rsi]\nvaddps zmm0, zmm0, zmm1\nvmovups [rsi], zmm0\nadd rsi, 64")
    symbolic = cycles("vmovups zmm0, [rsi]\nvaddps zmm0, zmm0, zmm1\nvmovups [rsi], zmm0\nadd rsi, r8")
    other = cycles("vmovups zmm0, [rsi]\nvaddps zmm0, zmm0, zmm1\nvmovups [rdi], zmm0")
    assert still == 15  # 12 to forward, 3 to add
    assert max(moving, symbolic, other) < 4


def test_an_index_and_its_scale_are_followed() -> None:
    """The load reads what the iteration before has stored, 4 bytes behind."""
    behind = "movss xmm0, [rsi+rcx*4-4]\naddss xmm0, xmm1\nmovss [rsi+rcx*4], xmm0\ninc rcx"
    assert cycles(behind) == 9 + 3
    assert cycles(behind.replace("-4]", "+4]")) < 2


def test_legacy_zero_idioms_and_moves() -> None:
    assert cycles("pxor xmm0, xmm0\naddps xmm0, xmm1\nmovaps xmm2, xmm0\nmulps xmm2, xmm2") < 1.1
    assert cycles("pxor xmm0, xmm2\naddps xmm0, xmm1") > 3


def test_flags_carry_only_what_computes_with_them() -> None:
    assert cycles("adc rax, rbx\nadc rdx, rbx") == pytest.approx(2, rel=0.01)
    assert cycles("add rax, rbx\nadd rdx, rbx\ncmp rsi, rdi\njz .Lout") == pytest.approx(1, rel=0.01)


def test_what_limits() -> None:
    found = simdnn.analyze("\n".join(f"vfmadd231ps zmm{i}, zmm30, zmm31" for i in range(12)))
    assert found.bound == "compute" and "FP0 and FP1 are full: 12 uops" in found.sentence
    assert found.ports.set_index("port")["share"]["FP0"] == pytest.approx(1, abs=0.02)
    chain = simdnn.analyze("vaddps xmm1, xmm0, xmm2\nvmulps xmm0, xmm1, xmm2")
    assert chain.bound == "latency" and len(chain.chain) == 2 and chain.cycles_per_iteration == 6
    assert simdnn.analyze("\n".join("nop" for _ in range(12))).bound == "front-end"


@pytest.mark.parametrize(("nops", "cycles"), [(8, 0.998), (13, 1.318), (16, 1.498), (24, 2.163), (48, 4.157)])
def test_two_nops_take_one_slot_of_a_zen4(nops: int, cycles: float) -> None:
    """As measured on one; in front of vector instructions they do not join."""
    loop = "\n".join(["1:", *["nop"] * nops, "dec rcx", "jnz 1b"])
    assert simdnn.analyze(loop, machine="zen4").cycles_per_iteration == pytest.approx(cycles, rel=0.015)
    mixed = "\n".join(["1:", *["vpaddd ymm0, ymm14, ymm15", "nop"] * 12, "dec rcx", "jnz 1b"])
    assert simdnn.analyze(mixed, machine="zen4").cycles_per_iteration == pytest.approx(4.153, rel=0.015)
    assert simdnn.analyze("vmovups [rsi], zmm0\nvmovups [rsi+64], zmm0\nadd rsi, 128").bound == "store"


def test_machines_side_by_side(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "kernel.s"
    path.write_text(KERNEL)
    for kind, *option in (["konata", "--compare-with", "icx"], ["text", "--values"], ["text", "--json"]):
        assert main(["analyze", str(path), "--timeline", kind, *option]) == 2  # none is dropped or mixed in
        assert f"--timeline and {option[0]} both want standard output" in capsys.readouterr().err
    assert main(["analyze", str(path), "-mcpu=zen4,icx", "--timeline", "konata"]) == 2
    assert "--timeline and several machines both want standard output" in capsys.readouterr().err
    assert main(["analyze", str(path), "--compare-with", "icx"]) == 0
    out = capsys.readouterr().out
    assert "zen4" in out and "icx" in out and "icx: " in out


# -- unknown and hostile -------------------------------------------------------------------------------------------


def test_a_loop_that_leaves_names_those_that_do_not() -> None:
    leaving = ".La:\nvaddps zmm0, zmm0, zmm1\nint3\ndec eax\njnz .La\n"
    plain = ".Lb:\nvmulps zmm0, zmm0, zmm1\ndec ecx\njnz .Lb\n"
    with pytest.raises(InvalidArgument, match=r"interrupts.*\(--loop N, loop=N\): 2 \(line 6\); or mark"):
        simdnn.analyze(leaving + plain, loop=1)
    assert simdnn.analyze(leaving + plain, loop=2).cycles_per_iteration == 3
    with pytest.raises(InvalidArgument, match="cannot be timed; mark"):
        simdnn.analyze(leaving)


CALLING = "top:\nvaddps zmm0, zmm0, zmm1\ncall expf\nvdivps zmm5, zmm5, zmm6\ndec rbx\njnz top\n"


def test_a_call_is_read_around() -> None:
    found = simdnn.analyze(CALLING)
    assert found.at_least and found.calls == 1 and [one.text for one in found.body][1] == "call expf"
    assert 1 < found.cycles_per_iteration < 12  # no register that a call may change carries a value round
    assert str(found).startswith("zen4: at least ") and "1 call not counted" in found.sentence
    assert found.notes[0].startswith("'call expf': read around")
    priced = simdnn.analyze(CALLING.replace("call expf", "call expf\ncall [rip+g]"), assume_call=20)
    assert not priced.at_least and priced.cycles_per_iteration == pytest.approx(priced.timing.cycles + 40)
    assert "2 calls of 20 cycles added by assumption" in priced.sentence
    kept = simdnn.analyze("call f\nimul rbx, rbx\nimul rbx, rbx")  # which a call does not change
    assert kept.cycles_per_iteration == 6 and kept.bound == "latency"
    for cost in (-1, float("nan"), float("inf")):
        with pytest.raises(InvalidArgument, match="assume_call: met"):
            simdnn.analyze(CALLING, assume_call=cost)
    with pytest.raises(Unimplemented, match="no semantics here for 'call expf'"):
        found.values()


def test_a_call_on_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "loop.s"
    path.write_text(CALLING)
    assert main(["analyze", str(path)]) == 0
    assert capsys.readouterr().out.startswith("zen4: at least ")
    assert main(["analyze", str(path), "--assume-call", "30", "--compare-with", "icx"]) == 0
    assert "at least" not in capsys.readouterr().out
    assert main(["analyze", str(path), "--assume-call=-3"]) == 2
    assert main(["analyze", str(path), "--json"]) == 0
    assert '"at_least": true' in capsys.readouterr().out


@pytest.mark.parametrize("cut", [4, 20, 63, 70, 200])
def test_broken_object_files(cut: int) -> None:
    data = object_file(("add", "vaddps zmm0, zmm0, zmm1"))
    with pytest.raises(InvalidArgument):
        simdnn.analyze(data[:cut])
    with pytest.raises(InvalidArgument):
        simdnn.analyze(data[:-200] + b"\xff" * 200)


@examples(60)
@given(st.binary(min_size=1, max_size=40))
def test_junk_never_crashes(code: bytes) -> None:
    try:
        found = simdnn.analyze(code, assume=True)
    except SimdnnError:
        return
    assert found.cycles_per_iteration > 0 and found.sentence


# -- timelines -----------------------------------------------------------------------------------------------------


def test_timelines_are_ordered_and_well_formed() -> None:
    found = simdnn.analyze(KERNEL)
    timeline = found.timeline
    assert len(timeline.events) == 3 * 6  # dec and jnz are one
    for event in timeline.events:
        starts = [start for _, start, _ in event.stages()]
        assert starts == sorted(starts) and event.dispatched < event.retired and event.done <= event.retired
    assert [event.retired for event in timeline.events] == sorted(event.retired for event in timeline.events)
    events = json.loads(timeline.perfetto())["traceEvents"]
    assert all(event["dur"] > 0 for event in events if event["ph"] == "X")
    lines = timeline.konata().splitlines()
    assert lines[0] == "Kanata\t0004"
    for letter in "ILR":
        assert sum(line.startswith(f"{letter}\t") for line in lines) == len(timeline.events)
    started = [line.split("\t")[1:] for line in lines if line[0] == "S"]
    ended = [line.split("\t")[1:] for line in lines if line[0] == "E"]
    assert sorted(started) == sorted(ended)
    drawn = str(timeline).splitlines()
    assert len(drawn) == 2 + len(timeline.events) and all("R" in line for line in drawn[2:])


def test_timelines_of_two_machines(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "kernel.s"
    path.write_text("vaddps zmm0, zmm0, zmm1\n")
    both = ["analyze", str(path), "--machine", "zen4", "--compare-with", "icx"]
    assert main([*both, "--timeline"]) == 0
    shown = capsys.readouterr().out
    assert shown.startswith("   ") and "cycles an iteration" in shown
    assert shown.count("icx: vaddps") == shown.count("zen4: vaddps") == 3
    for kind, name, starts in (("konata", "t.konata", "Kanata"), ("perfetto", "t.perfetto", "{"), ("text", "t", "")):
        assert main([*both, "--timeline", kind, "-o", str(tmp_path / name)]) == 0
        written = (tmp_path / name).read_text()
        assert written.startswith(starts) and "] icx: vaddps" in written or kind == "text" and "icx: v" in written
        assert "Kanata" not in capsys.readouterr().out


# -- the command ---------------------------------------------------------------------------------------------------


@pytest.fixture
def loop_file(tmp_path: Path) -> str:
    path = tmp_path / "loop.s"
    path.write_text("vpdpbusd xmm0, xmm1, [rsi]\n")
    return str(path)


def test_given_registers(loop_file: str, capsys: pytest.CaptureFixture[str]) -> None:
    given = ["--set", "xmm0=s32:0", "--set", "xmm1=u8:255", "--set", "rsi=s8:127,-1,2,3,4,5,6,7,8,9,10,11,12,13,14,15"]
    assert main(["analyze", loop_file, "--values", "--iterations", "2", *given]) == 0
    assert capsys.readouterr().out.endswith("  xmm0 s32: 66810 11220 19380 27540\n")


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ("xmm1", "REGISTER=NUMBER or REGISTER=TYPE:NUMBERS, TYPE of s8, u8,"),
        ("xmm1=", "met '', allowed are whole numbers"),
        ("xmm1=u8:256", "u8 goes from 0 to 255"),
        ("xmm1=int8:1", "TYPE of s8"),
        ("xmm1=f32:one", "met 'one', allowed are f32 numbers"),
        ("foo=5", "no register 'foo'"),
        ("rsi=s8:1,2", "the array at rsi, which has 2"),
        ("xmm1=5", "xmm1 takes a NumPy array of 16 bytes, met int"),
    ],
)
def test_registers_that_cannot_be_given(
    value: str, said: str, loop_file: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["analyze", loop_file, "--values", "--set", value]) == 2
    assert said in capsys.readouterr().err


@pytest.mark.parametrize("name", ["znver4", "ZEN4"])
def test_machines_by_compilers_names(name: str, loop_file: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["analyze", loop_file, f"-mcpu={name}"]) == 0
    assert capsys.readouterr().out.startswith("zen4: 4.00 cycles")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--mcpu", "znver2"], "unknown machine 'znver2': it is not here; the nearest is 'zen3'."),
        (["--mcpu", "skylake"], "did you mean 'skx' (skylake-avx512)?"),
        (["-timeline"], "unrecognized arguments: -timeline: did you mean --timeline?"),
        (["-iterations=100"], "did you mean --iterations?"),
        (["--iterations", "100"], "cycles are of endless iterations"),
        (["--loop", "1"], "loop 1: the code has 0 innermost loops; all of it is read where no loop is named"),
        (["--function", "f"], "unknown function 'f'"),
    ],
)
def test_what_a_newcomer_types(words: list[str], said: str, loop_file: str, capsys: pytest.CaptureFixture[str]) -> None:
    try:
        status = main(["analyze", loop_file, *words])
    except SystemExit as end:
        status = int(str(end.code))
    assert status == 2 and said in capsys.readouterr().err


def test_instructions_on_the_command_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["analyze", "vpdpbusd zmm0, zmm1, zmm2; vpdpbusd zmm3, zmm1, zmm2"]) == 0
    assert capsys.readouterr().out.startswith("zen4: 4.00 cycles an iteration, 0.50 instructions")
    assert main(["analyze", "vpmadubsw zmm0, zmm1, zmm2"]) == 2
    assert "did you mean 'vpmaddubsw'?" in capsys.readouterr().err
    assert main(["analyze", " "]) == 2
    assert "met no instructions" in capsys.readouterr().err
    for name in ("no file.s", "/no/al file.s", "vpdpbusd.s"):
        assert main(["analyze", name]) == 2
        assert f"{name} is not there" in capsys.readouterr().err


def test_x87_is_refused_by_name() -> None:
    with pytest.raises(
        UnknownTiming, match=r"1 instruction: 'fld m64'; no machine has timings of the x87 unit \(fld\)"
    ):
        simdnn.analyze("fld qword ptr [rsi]\nadd rsi, 8")
    with pytest.raises(UnknownTiming, match=r"3 instructions.*x87 unit \(fld, fcomi\): compile without long double"):
        simdnn.analyze("fld qword ptr [rsi]\ncpuid\nfcomi st, st(1)")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here: a wrong line ends the process")
def test_a_wrong_line_starts_no_process() -> None:
    """A fork of the assembler's process ends instead, and each text's complaint is its own."""
    code = machine_code("nop")
    process = assembler._assembler.process
    for word in ("vpaddx", "vpsubx"):
        with pytest.raises(InvalidArgument, match=f"line 2: invalid instruction mnemonic '{word}'"):
            machine_code(f"nop\n{word} zmm0, zmm1, zmm2")
        assembler.assemble.cache_clear()
        assert machine_code("nop") == code
    assert assembler._assembler.process is process is not None
    with warnings.catch_warnings(record=True) as met:  # none of files that a fork leaves open
        warnings.simplefilter("always")
        if (child := os.fork()) == 0:
            os._exit(0 if assembler._assembler.process is None and not met else 1)
    assert os.waitpid(child, 0)[1] == 0 and process.poll() is None


def test_an_interrupted_text_leaves_no_answer_to_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    code = machine_code("nop")
    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(struct, "unpack", interrupt)
        machine_code("vpaddd zmm7, zmm1, zmm2")
    assembler.assemble.cache_clear()
    assert machine_code("nop") == code


def test_instructions_as_they_are_typed(capsys: pytest.CaptureFixture[str]) -> None:
    """Names that come behind a prefix are instructions, too."""
    assert main(["analyze", "rep movsb"]) == 1
    assert "no timing for 'movsb m8,m8'" in capsys.readouterr().err


def test_more_instructions_than_a_file_name_has_characters(capsys: pytest.CaptureFixture[str]) -> None:
    loop = "; ".join(f"vdpbf16ps zmm{i}, zmm30, zmm31" for i in range(12))
    assert len(loop) > 255 and main(["analyze", loop, "--machine", "spr"]) == 0
    assert capsys.readouterr().out.startswith("spr: ")
    assert main(["analyze", "top: nop; dec rcx; jnz top"]) == 0
    assert "\nfused: dec rcx; jne top in 1 slot\n" in capsys.readouterr().out
    assert main(["analyze", "48 01 d8", "--syntax", "intel"]) == 0 and "add rax, rbx" in capsys.readouterr().out
    assert main(["analyze", "nop", "--machine", "y" * 300]) == 2
    assert "unknown machine" in capsys.readouterr().err


def test_several_machines_by_either_option(capsys: pytest.CaptureFixture[str]) -> None:
    """The same columns, and a sentence each; with --json a record each."""
    loop = "vfmadd231ps zmm0, zmm1, zmm2"
    assert main(["analyze", loop, "--machine", "icx,zen4,spr"]) == 0
    text = capsys.readouterr().out
    assert text.splitlines()[0].split() == ["icx", "zen4", "spr"]
    assert [line.split(":")[0] for line in text.splitlines()[-3:]] == ["icx", "zen4", "spr"]
    assert main(["analyze", loop, "--machine", "icx", "--compare-with", "zen4,spr"]) == 0
    assert capsys.readouterr().out == text
    assert main(["analyze", loop, "--machine", "icx,zen4,spr", "--json"]) == 0
    assert [one["machine"] for one in json.loads(capsys.readouterr().out)] == ["icx", "zen4", "spr"]


def test_a_machine_named_twice_is_shown_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Another one of the same name is refused: its column would stand for both."""
    loop, other = "vfmadd231ps zmm0, zmm1, zmm2", tmp_path / "other.toml"
    assert main(["analyze", loop, "--machine", "zen4,znver4", "--compare-with", "zen4"]) == 0
    text = capsys.readouterr().out
    assert main(["analyze", loop]) == 0 and capsys.readouterr().out == text
    other.write_text('base = "zen4"\nname = "zen4"\ncore.dispatch_slots = 3\n')
    assert main(["analyze", loop, "--machine", f"zen4,{other}"]) == 2
    assert "two machines are called 'zen4'" in capsys.readouterr().err


def test_a_machine_that_lacks_instructions_is_left_out_beside_others(capsys: pytest.CaptureFixture[str]) -> None:
    """The others are told, with status 1; where none is left it is the error of one machine."""
    loop = "vfmadd231ps zmm0, zmm1, zmm2"
    assert main(["analyze", loop, "--machine", "hsw,icx,zen4"]) == 1
    text = capsys.readouterr().out
    assert text.splitlines()[0].split() == ["icx", "zen4"] and "hsw: left out: machine 'hsw' has no timing for" in text
    assert main(["analyze", loop, "--machine", "hsw,icx", "--json"]) == 1
    told = json.loads(capsys.readouterr().out)
    assert [sorted(one)[:2] for one in told][1] == ["left_out", "machine"] and told[0]["machine"] == "icx"
    assert main(["analyze", loop, "--machine", "hsw"]) == 1 and "no timing for" in capsys.readouterr().err
    assert main(["analyze", loop, "--machine", ","]) == 2 and "unknown machine" in capsys.readouterr().err


def test_what_a_loop_stores_and_loads_again_is_named() -> None:
    """An accumulator that is spilled: the store and the load of the pair, not another pair's."""
    loop = "vmovaps zmm3, [rsi]; vmovaps [rsi+64], zmm4; vmovaps zmm1, [rsp-64]; vaddps zmm1, zmm1, zmm3"
    found = simdnn.analyze(f"{loop}; vmovaps [rsp-64], zmm1; add rsi, 64", "icx")
    assert found.bound == "memory" and found.sentence.startswith("values go from iteration to iteration through memory")
    spilled = simdnn.analyze(
        "vmovaps zmm1, [rsp-64]; vaddps zmm1, zmm1, zmm3; vmovaps [rsp-64], zmm1; add rsi, 64", "icx"
    )
    assert "'vmovaps zmm1, [rsp-0x40]' waits for what 'vmovaps [rsp-0x40], zmm1' stores" in spilled.sentence


def test_every_bound_has_a_remedy_and_the_glossary_has_it() -> None:
    text = (Path(__file__).parents[2] / "docs" / "glossary.md").read_text(encoding="utf-8")
    rows = [row.split("|") for row in text.splitlines() if row.startswith("| `")]
    told = {bound.strip(" `"): row[3].strip() for row in rows for bound in row[1].split(",")}
    assert {bound: told[bound] for bound in REMEDIES} == REMEDIES
    assert simdnn.analyze("vfmadd231ps zmm0, zmm1, zmm2").remedy.startswith("more accumulators")
    full = simdnn.analyze("vmovups ymm1, [rsi]; vmovups [rdi], ymm1; add rsi, 32; add rdi, 32; dec rcx", "zen3")
    assert full.bound == "compute" and full.remedy == REMEDIES["store"]  # the port is of stores alone


def test_ports_of_uops_alike_and_of_stores() -> None:
    """Uops of the same ports are counted; a store's ports are those that the machine's file names for all stores."""
    assert simdnn.analyze("vmovups [rdi], zmm5", "icx").instruction_rows()[0]["ports"] == "p7/p8 p4/p9"
    assert simdnn.analyze("vmovups [rdi], zmm5", "zen4").instruction_rows()[0]["ports"] == "FP4/FP5"
    assert simdnn.analyze("mov [rdi], rax", "zen4").instruction_rows()[0]["ports"] == "-"
    assert "18*FP4/FP5" in simdnn.analyze("vgatherdps zmm1{k1}, [rsi+zmm4*4]", "zen4").instruction_rows()[0]["ports"]
