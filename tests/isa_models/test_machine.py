"""Machine files: complete, sourced, as the generator writes them, and refused with the key where broken."""

from __future__ import annotations

import importlib.util
import itertools
import re
import shutil
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

from isa_models.errors import MachineFileError, UnknownName, UnknownTiming
from isa_models.instruction import REGISTRY
from isa_models.isa import caps, implied
from isa_models.machines.cpu_record import form_widths
from isa_models.machines.loader import cpu_machine as machine
from isa_models.machines.provenance import CONFIDENCES, weakest
from isa_models.machines.rows import keys as keys_of
from isa_models.machines.shipped import COMPILERS_NAMES, MACHINES_DIR, machine_names
from isa_models.machines.shipped import lists_row as _lists
from isa_models.machines.what_if import what_if
from tools.machine_row import read

ROOT = Path(__file__).parents[2]
ALL = ("adl-p", "clx", "gnr", "hsw", "icx", "skx", "spr", "zen4", "zen5")
FREE = ("nop", "prefetcht0", "tilezero", "vzeroupper")
VNNI = ("clx", "gnr", "icx", "spr", "zen4")
BF16 = ("gnr", "spr", "zen4")
FP16 = ("gnr", "spr")
BITS = {"xmm": 128, "ymm": 256, "zmm": 512}


def tool(name: str) -> ModuleType:
    """A script of tools/, which is no package."""
    spec = importlib.util.spec_from_file_location(name, ROOT / "tools" / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def test_names_and_cache() -> None:
    assert machine_names() == ALL
    assert machine("zen4") is machine("zen4")
    assert machine(machine("clx")) is machine("clx")
    with pytest.raises(UnknownName, match="did you mean 'zen5'"):
        machine("zen6")


@pytest.mark.parametrize("name", ALL)
def test_every_figure_has_a_standing(name: str) -> None:
    target = machine(name)
    assert target.name == name
    for row in target.instructions.values():
        assert row.source.strip() and row.confidence in CONFIDENCES, (row.mnemonic, row.form)
    for key, provenance in target.provenance.items():
        assert provenance.source.strip() and provenance.confidence in CONFIDENCES, key
    keys = ["cores", "frequency.base_ghz", "core.dispatch_slots", "core.scheduler", "core.load", "dram.gb_s_core"]
    keys += [f"caches.{level}.load_bytes_per_cycle" for level in ("L1", "L2", "L3")]
    assert target.confidence_of(*keys) in CONFIDENCES
    assert target.confidence_of("dram") == "estimated"
    with pytest.raises(UnknownName, match="dram.gb_s_core"):
        target.confidence_of("dram.gb_s_cor")


def test_weakest() -> None:
    assert weakest(["measured", "documented"]) == "documented"
    assert weakest([]) == "measured"


# What kernels need.
ARITHMETIC = """
    vpmaddubsw vpmaddwd vfmadd231ps vfmadd213ps vaddps vsubps vmulps vdivps vminps vmaxps vpackssdw vpackusdw
    vpacksswb vpackuswb vpaddb vpaddw vpaddd vpsubb vpsubw vpsubd vpmulld vpmullw vpminsb vpminub vpminsw
    vpminuw vpminsd vpminud vpmaxsb vpmaxub vpmaxsw vpmaxuw vpmaxsd vpmaxud vandps vorps vxorps vpunpcklbw
    vpunpckhbw vpunpcklwd vpunpckhwd vpunpckldq vpunpckhdq vpunpcklqdq vpunpckhqdq vpshufb vpsadbw
""".split()
EVEX_LOGIC = "vpandd vpandnd vpord vpxord vpandq vpxorq vpermt2w vpermi2d vpermt2d".split()
SHIFTS = "vpslld vpsrld vpsrad vpsllw vpsrlw vpsraw".split()
WIDEN = {"vpmovsxbw": 2, "vpmovzxbw": 2, "vpmovsxwd": 2, "vpmovzxwd": 2, "vpmovsxbd": 4, "vpmovzxbd": 4}
NARROW = {"vpmovdb": 4, "vpmovsdb": 4, "vpmovusdb": 4, "vpmovdw": 2, "vpmovsdw": 2, "vpmovusdw": 2}


def register(bits: int) -> str:
    return "xmm" if bits <= 128 else "ymm" if bits == 256 else "zmm"


def needed(name: str) -> list[tuple[str, str]]:
    """The rows that a machine must have."""
    rows: list[tuple[str, str]] = []
    for w, b in BITS.items():
        rows += [(m, f"{w},{w},{last}") for m in ARITHMETIC + EVEX_LOGIC for last in (w, f"m{b}")]
        rows += [(m, f"{w},{w},i8") for m in SHIFTS]
        for m in ("vmovups", "vmovdqu8", "vmovdqu16", "vmovdqu32"):
            rows += [(m, f) for f in (f"{w},m{b}", f"m{b},{w}", f"{w}{{k}},m{b}", f"m{b}{{k}},{w}", f"{w},{w}")]
        rows += [("vpbroadcastd", f"{w},{s}") for s in ("m32", "xmm", "r32")]
        rows += [("vpbroadcastb", f"{w},m8"), ("vpbroadcastw", f"{w},m16"), ("vpbroadcastb", f"{w},xmm")]
        rows += [("vbroadcastss", f"{w},m32"), ("vbroadcastss", f"{w},xmm"), ("vpermilps", f"{w},{w},i8")]
        rows += [("vshufps", f"{w},{w},{w},i8"), ("vmovshdup", f"{w},{w}")]
        rows += [(m, f"{w},{s}") for m in ("vcvtdq2ps", "vcvtps2dq") for s in (w, f"m{b}")]
        rows += [("vcvtph2ps", f"{w},{register(b // 2)}"), ("vcvtph2ps", f"{w},m{b // 2}")]
        rows += [("vcvtps2ph", f"{register(b // 2)},{w},i8"), ("vcvtps2ph", f"m{b // 2},{w},i8")]
        for m, ratio in WIDEN.items():
            rows += [(m, f"{w},{register(b // ratio)}"), (m, f"{w},m{b // ratio}"), (m, f"{w}{{k}},m{b // ratio}")]
        for m, ratio in NARROW.items():
            rows += [(m, f"{register(b // ratio)},{w}"), (m, f"m{b // ratio},{w}"), (m, f"m{b // ratio}{{k}},{w}")]
        if name in VNNI:
            rows += [
                (m, f"{w},{w},{s}")
                for m in ("vpdpbusd", "vpdpbusds", "vpdpwssd", "vpdpwssds")
                for s in (w, f"m{b}", "m32bcst")
            ]
        if name in FP16:
            rows += [(m, f"{w},{w},{s}") for m in ("vfmadd231ph", "vaddph", "vmulph") for s in (w, f"m{b}", "m16bcst")]
            rows += [("vcvtph2psx", f"{w},{register(b // 2)}"), ("vcvtph2psx", f"{w},m{b // 2}")]
            rows += [("vcvtps2phx", f"{register(b // 2)},{w}")]
        if name in BF16:
            rows += [("vdpbf16ps", f"{w},{w},{s}") for s in (w, f"m{b}", "m32bcst")]
            rows += [("vcvtne2ps2bf16", f"{w},{w},{w}"), ("vcvtneps2bf16", f"{register(b // 2)},{w}")]
        if w != "zmm":
            rows += [(m, f"{w},{w},{s}") for m in ("vpand", "vpandn", "vpor", "vpxor") for s in (w, f"m{b}")]
            rows += [("vmovdqu", f"{w},m{b}"), ("vmovdqu", f"m{b},{w}"), ("vhaddps", f"{w},{w},{w}")]
            rows += [("vpblendvb", f"{w},{w},{w},{w}"), ("vblendvps", f"{w},{w},{w},{w}")]
            rows += [("vmaskmovps", f"{w},{w},m{b}"), ("vmaskmovps", f"m{b},{w},{w}")]
    rows += [("vinserti128", "ymm,ymm,xmm,i8"), ("vextracti128", "xmm,ymm,i8"), ("vextractf128", "xmm,ymm,i8")]
    rows += [("vextracti32x4", "xmm,zmm,i8"), ("vextracti64x4", "ymm,zmm,i8"), ("vextractf64x4", "ymm,zmm,i8")]
    rows += [("vinserti32x4", "zmm,zmm,xmm,i8"), ("vinserti64x4", "zmm,zmm,ymm,i8"), ("vpermq", "ymm,ymm,i8")]
    rows += [("vpermd", "ymm,ymm,ymm"), ("vpermd", "zmm,zmm,zmm"), ("vmovhlps", "xmm,xmm,xmm")]
    rows += [("vbroadcasti32x4", "zmm,m128"), ("vbroadcasti128", "ymm,m128"), ("vbroadcastf32x4", "zmm,m128")]
    rows += [("vmovd", "xmm,r32"), ("vmovd", "r32,xmm"), ("vmovd", "xmm,m32"), ("vmovd", "m32,xmm")]
    rows += [("kmovw", "k,r32"), ("kmovd", "k,r32"), ("kmovq", "k,r64"), ("kmovw", "r32,k"), ("kmovw", "k,k")]
    rows += [(m, f"r64,{s}") for m in ("add", "sub", "cmp") for s in ("r64", "i8")]
    rows += [("dec", "r64"), ("inc", "r64"), ("lea", "r64,agen"), ("mov", "r64,r64"), ("mov", "r64,m64")]
    rows += [("mov", "m64,r64"), ("test", "r64,r64"), ("jnz", "rel"), ("dec+jnz", "r64"), ("sub+jnz", "r64,i8")]
    if name in ("gnr", "spr"):
        rows += [(f"tdp{kind}", "tmm,tmm,tmm") for kind in ("bf16ps", "bssd", "bsud", "busd", "buud")]
        rows += [("tileloadd", "tmm,m8192"), ("tilestored", "m8192,tmm"), ("tilezero", "tmm"), ("ldtilecfg", "m512")]
    if name in ("gnr", "icx", "spr", "zen4"):
        rows += [("vpermb", "zmm,zmm,zmm")]
    return [row for row in rows if machine(name).supports("avx512_core") or not of_avx512(*row)]


def of_avx512(mnemonic: str, form: str) -> bool:
    """Whether only EVEX has it: masks, 512 bits, typed moves and logic, narrowing."""
    new = (*EVEX_LOGIC, *NARROW, "vmovdqu8", "vmovdqu16", "vmovdqu32")
    return mnemonic in new or bool(re.search(r"zmm|\bk\b", form)) or (mnemonic == "vpbroadcastd" and "r32" in form)


@pytest.mark.parametrize("name", ALL)
def test_no_gaps(name: str) -> None:
    gaps = [f"{m} {f}" for m, f in needed(name) if not machine(name).has(m, f)]
    assert not gaps, f"{name} lacks {len(gaps)} rows: {'; '.join(gaps)}"


@pytest.mark.parametrize("name", ALL)
def test_no_row_is_free(name: str) -> None:
    """Every row takes dispatch slots, and one with a result either time or a place in the renamer."""
    for row in machine(name).instructions.values():
        assert row.slots > 0 or row.mnemonic == "nop", (row.mnemonic, row.form)
        work = row.uops or row.load_bits or row.store_bits or row.eliminated or row.mnemonic in FREE
        assert work, (row.mnemonic, row.form)
        assert row.latency > 0 or not row.uops, (row.mnemonic, row.form)


def test_isa_and_rows_agree() -> None:
    for name in ALL:
        target = machine(name)
        assert target.supports("avx512_core_vnni") == target.has("vpdpbusd", "zmm,zmm,zmm")
        assert target.supports("avx512_core_bf16") == target.has("vdpbf16ps", "zmm,zmm,zmm")
        assert target.supports("avx512_core_fp16") == target.has("vfmadd231ph", "zmm,zmm,zmm")
        assert target.supports("avx512_core_amx") == target.has("tdpbf16ps", "tmm,tmm,tmm")
        assert target.supports("avx512_core_amx_fp16") == target.has("tdpfp16ps", "tmm,tmm,tmm")


@pytest.mark.parametrize("cap", caps())
def test_a_machine_may_have_any_isa_cap(cap: str) -> None:
    """What an instruction may need and a machine may have are one list."""
    have = tuple(sorted(implied(cap), key=caps().index))
    assert what_if("zen4", {"isa": list(have)}).isa == have  # type: ignore[union-attr]  # a CPU
    assert {c for one in REGISTRY.values() for needed in one.caps.values() for c in needed} <= set(caps())


def test_granite_rapids_claims_no_measurement_of_its_core() -> None:
    """Its core was never measured, only its tile instructions: what comes from Sapphire Rapids' says so."""
    rows = machine("gnr").instructions.values()
    assert {row.mnemonic for row in rows if row.confidence != "estimated"} == {"tilezero"}
    assert machine("gnr").confidence_of("core") == "estimated"


@pytest.mark.parametrize(
    ("name", "mnemonic", "latency", "throughput"),
    [
        ("clx", "vpdpbusd", 5, 0.5),
        ("icx", "vpdpbusd", 5, 0.5),
        ("zen4", "vpdpbusd", 4, 1),
        ("clx", "vpmaddubsw", 5, 0.5),
        ("icx", "vpmaddubsw", 5, 0.5),
        ("zen4", "vpmaddubsw", 3, 1),
        ("clx", "vfmadd231ps", 4, 0.5),
        ("icx", "vfmadd231ps", 4, 0.5),
        ("zen4", "vfmadd231ps", 4, 1),
        ("zen4", "vdpbf16ps", 6, 1),
        ("skx", "vfmadd231ps", 4, 0.5),
        ("spr", "vfmadd231ps", 4, 0.5),
        ("spr", "vfmadd231ph", 5, 0.5),
        # measured: 6.02 in a chain by itself, 5.7 in several; 5 within one of the two units
        ("spr", "vpdpbusd", 6, 0.5),
        ("gnr", "vpmaddubsw", 6, 0.5),
    ],
)
def test_published_figures_of_512_bits(name: str, mnemonic: str, latency: float, throughput: float) -> None:
    row = machine(name).timing(mnemonic, "zmm,zmm,zmm")
    assert row.latency == latency
    assert row.occupancy / len(row.uops[0]) == throughput


@pytest.mark.parametrize(
    ("mnemonic", "latency", "throughput"),
    [("vfmadd231ps", 5, 0.5), ("vmulps", 5, 0.5), ("vaddps", 3, 1), ("vpmaddubsw", 5, 1), ("vpaddd", 1, 0.5)],
)
def test_published_figures_of_haswell(mnemonic: str, latency: float, throughput: float) -> None:
    row = machine("hsw").timing(mnemonic, "ymm,ymm,ymm")
    assert (row.latency, 1 / len(row.uops[0])) == (latency, throughput)
    assert not any(re.search(r"zmm|\bk\b", form) for _, form in machine("hsw").instructions)


def test_unknown_timing_names_who_has_the_row() -> None:
    with pytest.raises(UnknownTiming) as caught:
        machine("skx").timing("vpdpbusd", "zmm,zmm,zmm")
    assert "'skx'" in str(caught.value) and "clx, gnr, icx, spr, zen4" in str(caught.value)
    with pytest.raises(UnknownTiming, match=r"nearest form there: 'zmm,zmm,zmm'.*none") as caught:
        machine("zen4").timing("vpdpbusd", "zmm,zmm,zm")
    assert "\n" not in str(caught.value)
    with pytest.raises(UnknownTiming, match="nearest mnemonic there: 'vpmaddubsw'"):
        machine("zen4").timing("vpmaddubs", "zmm,zmm,zmm")


def test_rows_are_found_in_the_files_text() -> None:
    """What the error for a missing row goes by."""
    for name in ALL:
        table = machine(name).instructions
        assert all(_lists(name, *key) for key in list(table)[::50])
        assert not _lists(name, "vpdpbusd", "zmm,zmm,m51")


def test_form_widths() -> None:
    assert form_widths("vmovups", "m512{k},zmm") == (0, 512, 512)
    assert form_widths("vmulps", "zmm,zmm,m32bcst") == (32, 0, 512)
    assert form_widths("add", "m64,r64") == (64, 64, 0)
    assert form_widths("cmp", "m64,i8") == (64, 0, 0)
    assert form_widths("imul", "m64") == (64, 0, 0)


@pytest.mark.parametrize("name", ALL)
def test_rows_are_the_generators(name: str) -> None:
    """Sorted, as few as can be, in its formatting, and with its overrides: a row changed by hand mostly shows."""
    module = tool("make_machine_rows")
    text = (MACHINES_DIR / f"{name}.toml").read_text(encoding="utf-8").split(module.MARK)[1]
    written = tomllib.loads(text)["instructions"]["rows"]
    rows = read(written)
    assert text == module.instructions(rows)
    keys = [key for row in written for key in keys_of(row)]
    assert sorted(keys) == [(row.mnemonic, row.form) for row in rows]
    for mnemonics, forms, changed in module.OVERRIDES.get(name, []) if name != "zen5" else []:
        met = [row for row in rows if re.fullmatch(mnemonics, row.mnemonic) and re.fullmatch(forms, row.form)]
        assert met or name == "clx", (mnemonics, forms)  # Cascade Lake inherits those
        for row in met:
            assert row.source == changed["source"] and row.latency == changed.get("latency", row.latency)


# Invented figures in the columns of the tables that the tools read.
UOPS = """instruction,family,latency,throughput,uops,ports
"VFMADD231PS (ZMM, ZMM, ZMM)",AVX512EVEX,7,0.50 / 1.00,1 / 1,1*p0
"VFMADD231PS_ER (ZMM, ZMM, ZMM)",AVX512EVEX,9,0.50 / 1.00,1 / 1,1*p0
"VFMADD231PS (YMM, YMM, YMM)",AVX,[6;7],0.50 / 0.50,1 / 1,1*p01
"VFMADD231PS_EVEX (YMM, YMM, YMM)",AVX512EVEX,8,0.50 / 0.50,1 / 1,1*p01
"VGATHERDPS (YMM, VSIB_YMM, YMM)",AVX2GATHER,[≤0;22],4.00 / 5.00,4 / 5,1*p0+8*p23+1*p5
"SETZ (R8h)",BASE,3,0.50 / 0.50,1 / 1,1*p06
"SETZ (R8l)",BASE,1,0.50 / 0.50,1 / 1,1*p06
"ADD (R32, R32)",BASE,1,0.25 / 0.25,1 / 1,1*p0156
"VZEROUPPER",AVX,,1.00,4 / 0,
"FSIN",X87,50,50,50 / 50,
"""
ICX = """AVX512F flags, and a line of another kind
 2449 AVX512F         : VFMADD231PS zmm, zmm, zmm                 L:   2.00ns=  4.0c  T:   0.25ns=  0.50c
 3026 AVX512F         : VFMADD231PS zmm, zmm, [m512]              L: [memory dep.]    T:   0.75ns=  1.50c
 4231 AVX512_VNNI     : {EVEX}VPDPBUSD zmm, zmm, zmm              L:   2.71ns=  5.4c  T:   0.30ns=  0.60c
 2791 AVX512F         : VCVTPS2DQ zmm, zmm                        L:   2.00ns=  4.0c  T:   0.25ns=  0.50c
 2827 AVX512F         : VCVTPS2DQ + VCVTDQ2PS zmm                 L:   4.00ns=  8.0c  T:   0.46ns=  0.92c
 3173 AVX512F         : VPXORD zmm1, zmm1, zmm1                   L:   0.10ns=  0.2c  T:   0.10ns=  0.21c
"""


@pytest.fixture
def checkouts(tmp_path: Path) -> tuple[Path, Path]:
    """Repositories of timings, as tools/make_machine_rows.py takes them."""
    extract = tool("extract_timing")
    server = tmp_path / extract.SERVER
    for path in (tmp_path / "uops", server.parent):
        path.mkdir()
    for table in extract.TABLES.values():
        (tmp_path / "uops" / f"{table}.csv").write_text(UOPS, encoding="utf-8")
    server.write_text(ICX, encoding="utf-8")
    return tmp_path, tmp_path


def test_timings_of_checkouts(checkouts: tuple[Path, Path]) -> None:
    rows = tool("extract_timing").timings(*checkouts)
    assert [(row["instruction"], row["operands"], row["latency"]) for row in rows if row["uarch"] == "Skylake-X"] == [
        ("VFMADD231PS", "ZMM, ZMM, ZMM", "7"),
        ("VFMADD231PS", "YMM, YMM, YMM", "[6;7]"),
        ("VGATHERDPS", "YMM, M32, YMM", "[≤0;22]"),
        ("SETZ", "R8", "1"),
        ("VZEROUPPER", "", ""),
    ]
    assert [(row["instruction"], row["throughput"]) for row in rows if row["uarch"] == "Ice Lake-SP"] == [
        ("VFMADD231PS", "0.50"),
        ("VPDPBUSD", "0.60"),
        ("VCVTPS2DQ", "0.50"),
    ]

    made = {(row.mnemonic, row.form): row for row in tool("make_machine_rows").Generator("adl-p", rows).rows()}
    assert {key: row.latency for key, row in made.items() if key[0] in ("vfmadd231ps", "setz")} == {
        ("vfmadd231ps", "zmm,zmm,zmm"): 7,
        ("vfmadd231ps", "ymm,ymm,ymm"): 7,
        ("setz", "r8"): 1,
    }
    assert made["vfmadd231ps", "ymm,ymm,ymm"].uops == (("p0", "p1"),)
    assert made["vzeroupper", "-"].slots == 4


def test_machine_rows_are_made_of_checkouts(
    checkouts: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The script as it is called, on copies of the files: heads stay, and `--check` tells before and after."""
    module = tool("make_machine_rows")
    monkeypatch.setattr(module, "ROOT", tmp_path)
    copies = tmp_path / "isa_models" / "machines"
    shutil.copytree(MACHINES_DIR, copies)
    folders = [str(path) for path in checkouts]
    assert module.main(*folders, check=True) == 1 and "icx: " in capsys.readouterr().out
    assert (copies / "icx.toml").read_bytes() == (MACHINES_DIR / "icx.toml").read_bytes()
    assert module.main(*folders, check=False) == 0 and module.main(*folders, check=True) == 0
    head, _, rows = (copies / "icx.toml").read_text(encoding="utf-8").partition(module.MARK)
    assert (MACHINES_DIR / "icx.toml").read_text(encoding="utf-8").startswith(head) and "vfmadd231ps" in rows
    (checkouts[1] / tool("extract_timing").SERVER).unlink()
    with pytest.raises(SystemExit, match="no file .*GenuineIntel"):
        module.main(*folders, check=True)


# -- broken files ---------------------------------------------------------------------------------------------------


def small_file() -> str:
    """The Zen 4 file with three instruction rows."""
    module = tool("make_machine_rows")
    head, mark, rows = (MACHINES_DIR / "zen4.toml").read_text(encoding="utf-8").partition(module.MARK)
    wanted = {("vpdpbusd", "zmm,zmm,zmm"), ("vmulps", "zmm,zmm,zmm"), ("vmovups", "zmm,m512")}
    few = [row for row in read(tomllib.loads(rows)["instructions"]["rows"]) if (row.mnemonic, row.form) in wanted]
    return head + mark + str(module.instructions(few))


def sub(pattern: str, replacement: str) -> Callable[[str], str]:
    def change(text: str) -> str:
        changed, count = re.subn(pattern, replacement, text, count=1, flags=re.M)
        assert count == 1 and changed != text, f"the test's own pattern {pattern!r} changed nothing"
        return changed

    return change


MUTATIONS: list[tuple[Callable[[str], str], str]] = [
    (sub(r"^name = .*\n", ""), "'name'"),
    (sub(r'^name = "zen4"', "name = 4"), "'name'"),
    (sub(r'"avx512_core_vnni"', '"avx512_vnni"'), "'isa'"),
    (sub(r"^isa = \[.*\]", 'isa = "avx2"'), "'isa'"),
    (sub(r"^cores = \{value = 96", "cores = {value = 0"), "'cores.value'"),
    (sub(r"^cores = \{value = 96", 'cores = {value = "96"'), "'cores.value'"),
    (sub(r"^cores = .*", "cores = 96"), "'cores'"),
    (sub(r"^base_ghz = \{value = 3.69, ", "base_ghz = {"), "'frequency.base_ghz.value'"),
    (sub(r"^base_ghz", "bass_ghz"), "'frequency.base_ghz'"),
    (sub(r"^\[frequency\]", "[frequency]\nturbo_ghz = {value = 4.0}"), "'frequency.turbo_ghz'"),
    (sub(r"^\[core\]", "[kernel]"), "'core.ports'"),
    (sub(r"^dispatch_slots = \{value = 6", "dispatch_slots = {value = 6.5"), "'core.dispatch_slots.value'"),
    (sub(r"^dispatch_slots = \{value = 6", "dispatch_slots = {value = true"), "'core.dispatch_slots.value'"),
    (sub(r"(^dispatch_slots = .*)documented", r"\1guessed"), "'core.dispatch_slots.confidence'"),
    (sub(r'(^retire_slots = .*)source = "[^"]*"', r'\1source = ""'), "'core.retire_slots.source'"),
    (sub(r"^reorder_buffer = .*\n", ""), "'core.reorder_buffer'"),
    (sub(r"^load_queue = \{value = 88", "load_queue = {value = -1"), "'core.load_queue.value'"),
    (sub(r"^load_ports = \{value = \[\"LD0\"", 'load_ports = {value = ["LD7"'), "'core.load_ports.value'"),
    (sub(r'^load_ports = \{value = \["LD0", "LD1"\]', "load_ports = {value = []"), "'core.load_ports.value'"),
    (sub(r'"FP0", "FP1", "FP2"', '"FP0", "FP0", "FP2"'), "'core.ports.value'"),
    (sub(r"\[0\.5, 0\.932\]", "[0.5, 9.32]"), "'core.addend_chain_use.value'"),
    (sub(r"\[0\.5, 0\.932\]", "[0.0, 0.932]"), "'core.addend_chain_use.value'"),
    (sub(r'^ports = \["LD0", "LD1"\]', 'ports = ["LD0", "FP0"]'), "'core.scheduler[3].ports'"),
    (sub(r'^ports = \["LD0", "LD1"\]', 'ports = ["LD0"]'), "'core.scheduler'"),
    (sub(r"^size = 32", "size = 0"), "'core.scheduler[0].size'"),
    (sub(r'^banks = \[\["FP0"', 'banks = [["FP4"'), "'core.scheduler[0].banks[0]'"),
    (sub(r"^pipes = 2", "pipes = 3"), "'core.load'"),
    (sub(r"^latency = 8\n", ""), "'core.load[3].latency'"),
    (sub(r"^commit_cycles = 2", "commit_cycles = 0"), "'core.store[2].commit_cycles'"),
    (sub(r"^size_bytes = \{value = 1048576", "size_bytes = {value = 1024"), "'caches.L2.size_bytes'"),
    (sub(r"^line_bytes = \{value = 64", 'line_bytes = {value = "64"'), "'caches.L1.line_bytes.value'"),
    (sub(r"^ways = \{value = 8", "ways = {value = 7"), "'caches.L1.ways.value'"),
    (sub(r"\[0\.5, 0\.5\]", "[0.5, 1.99]"), "'caches.L3.keeps.value'"),
    (sub(r"\[0\.5, 0\.5\]", "[inf, 0.5]"), "'caches.L3.keeps.value'"),
    (sub(r"^latency_ns = .*\n", ""), "'dram.latency_ns'"),
    (sub(r"^gb_s_socket = \{value = 460", "gb_s_socket = {value = 1"), "'dram.gb_s_socket.value'"),
    (sub(r"^\[sources\]", "[sources]\nodd = 3"), "'sources.odd'"),
    (sub(r"^\[instructions\]", "[orders]"), "'instructions'"),
    (sub(r"latency = 4, slots", "latency = -4, slots"), "'instructions.vpdpbusd zmm,zmm,zmm.latency'"),
    (sub(r'(vpdpbusd.*)"FP1"', r'\1"FP9"'), "'instructions.vpdpbusd zmm,zmm,zmm.uops[0]'"),
    (sub(r'(vpdpbusd.*)"FP1"', r'\1"LD0"'), "'instructions.vpdpbusd zmm,zmm,zmm.uops[0]'"),
    (sub(r"(vpdpbusd.*)uops = \[\[.*?\]\]", r"\1uops = [[]]"), "'instructions.vpdpbusd zmm,zmm,zmm.uops'"),
    (sub(r"(vpdpbusd.*)uops = \[\[.*?\]\]", r'\1uops = "FP0"'), "'instructions.vpdpbusd zmm,zmm,zmm.uops'"),
    (sub(r"(vpdpbusd.*)occupancy = 2", r"\1ocupancy = 2"), "'instructions.vpdpbusd zmm,zmm,zmm.ocupancy'"),
    (sub(r"(vpdpbusd.*)slots = 1, ", r"\1"), "'instructions.vpdpbusd zmm,zmm,zmm.slots'"),
    (sub(r'(vpdpbusd.*), source = "[^"]*"', r"\1"), "'instructions.vpdpbusd zmm,zmm,zmm.source'"),
    (sub(r'(vpdpbusd.*), confidence = "[^"]*"', r"\1"), "'instructions.vpdpbusd zmm,zmm,zmm.confidence'"),
    (sub(r"^(  \{mnemonic = \"vpdpbusd.*\n)", r"\1\1"), "'instructions.vpdpbusd zmm,zmm,zmm.form'"),
    (sub(r"rows = \[(.|\n)*\]", "rows = []"), "'instructions.rows'"),
    (sub(r"^\[dram\]", "[dram"), "'(file)'"),
    (sub(r"^banks = .*", 'banks = [["FP0"], ["FP1"], ["FP2"]]'), "'core.scheduler[0].banks'"),
    (sub(r"^dispatch_slots = \{value = 6", "dispatch_slots = {value = 1000000000"), "'core.dispatch_slots.value'"),
    (sub(r"^dispatch_slots = \{value = 6", "dispatch_slots = {value = 0x" + "f" * 9000), "'core.dispatch_slots.value'"),
    (sub(r"^dispatch_slots = \{value = 6", "dispatch_slots = {value = " + "9" * 9000), "'(file)'"),
    (sub(r"^latency_ns = \{value = [\d.]+", "latency_ns = {value = nan"), "'dram.latency_ns.value'"),
    (sub(r"^latency_ns = \{value = [\d.]+", "latency_ns = {value = inf"), "'dram.latency_ns.value'"),
    (sub(r"^\[dram\]", "x = " + "[" * 5000 + "]" * 5000), "'(file)'"),
    (sub(r"^\[dram\]", '[dram]\n"' + "k" * 9000 + '" = 1'), "'dram.kkk"),
    (lambda text: text[: len(text) // 2], "'(file)'"),
    (lambda text: text[: len(text) // 3].rpartition("\n[")[0], "'"),
    (lambda text: "", "'sources'"),
    (lambda text: "\0", "'(file)'"),
]


def test_the_small_file_is_good(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(small_file(), encoding="utf-8")
    mine = machine(path)
    assert mine.timing("vpdpbusd", "zmm,zmm,zmm") == machine("zen4").timing("vpdpbusd", "zmm,zmm,zmm")
    assert machine(str(path)) is mine


@pytest.mark.parametrize("index", range(len(MUTATIONS)))
def test_broken_files_name_the_key(index: int, tmp_path: Path) -> None:
    change, key = MUTATIONS[index]
    path = tmp_path / "broken.toml"
    path.write_text(change(small_file()), encoding="utf-8")
    with pytest.raises(MachineFileError) as caught:
        machine(path)
    message = str(caught.value)
    assert f"key {key}" in message and "expected" in message and "met" in message and "\n" not in message
    assert len(message) < 600


def test_any_key_gone_or_of_another_kind_is_an_error_or_optional(tmp_path: Path) -> None:
    """Delete or blank each line of the head in turn: a typed error or a machine, never another exception."""
    lines = small_file().splitlines(keepends=True)
    path = tmp_path / "broken.toml"
    refused = 0
    for index, how in itertools.product(range(len(lines)), ("delete", "nonsense")):
        line = lines[index]
        if line.startswith("#") or not line.strip():
            continue
        changed = "" if how == "delete" else re.sub(r"=.*", '= ["?", 1, {a = 1}]', line)
        path.write_text("".join([*lines[:index], changed, *lines[index + 1 :]]), encoding="utf-8")
        try:
            machine(path)
        except MachineFileError as error:
            refused += 1
            assert "\n" not in str(error)
    assert refused > 1.5 * sum(1 for line in lines if line.strip() and not line.startswith("#"))


def test_missing_file(tmp_path: Path) -> None:
    with pytest.raises(UnknownName, match="no machine file .*none.toml.*zen4"):
        machine(tmp_path / "none.toml")
    (tmp_path / "folder.toml").mkdir()
    with pytest.raises(UnknownName, match="no machine file .*folder.toml"):
        machine(tmp_path / "folder.toml")


def test_what_is_no_file_of_text(tmp_path: Path) -> None:
    for data in (b"\xff\xfe\0", bytes(range(256)), "name = 'x'".encode("utf-16")):
        other = tmp_path / "binary.toml"
        other.write_bytes(data)
        with pytest.raises(MachineFileError, match="expected TOML"):
            machine(other)
    with other.open("wb") as stream:
        stream.truncate(1 << 30)
    with pytest.raises(MachineFileError, match="at most 16777216 bytes, met 1073741824"):
        machine(other)
    for name in ("a\0.toml", "x" * 5000, "", "/dev/zero", str(tmp_path)):
        with pytest.raises((UnknownName, MachineFileError)):
            machine(name)


def test_compilers_names() -> None:
    assert machine("znver4") is machine("ZEN4") is machine("zen4")
    assert set(COMPILERS_NAMES.values()) == set(machine_names())
    with pytest.raises(UnknownName, match=r"unknown machine 'skylake': did you mean 'skx' \(skylake-avx512\)\?"):
        machine("skylake")
