"""Rows of the machine files are what tools/make_machine_rows.py writes, and the script reads what it names."""

from __future__ import annotations

import re
import shutil
import tomllib
from pathlib import Path

import pytest

from isa_models.machines.rows import keys as keys_of
from isa_models.machines.shipped import MACHINES_DIR
from tools import extract_timing, make_machine_rows, zen5_rows
from tools.machine_row import Row, read


@pytest.mark.parametrize("name", make_machine_rows.UARCH)
def test_rows_are_the_generators(name: str) -> None:
    """Sorted, as few as can be, in its formatting, and with its overrides: a row changed by hand mostly shows."""
    text = (MACHINES_DIR / f"{name}.toml").read_text(encoding="utf-8").split(make_machine_rows.MARK)[1]
    written = tomllib.loads(text)["instructions"]["rows"]
    rows = read(written)
    assert text == make_machine_rows.instructions(rows)
    keys = [key for row in written for key in keys_of(row)]
    assert sorted(keys) == [(row.mnemonic, row.form) for row in rows]
    for mnemonics, forms, changed in make_machine_rows.OVERRIDES.get(name, []) if name != "zen5" else []:
        met = [row for row in rows if re.fullmatch(mnemonics, row.mnemonic) and re.fullmatch(forms, row.form)]
        assert met or name in ("clx", "gnr"), (mnemonics, forms)  # which inherit some
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
ZEN5 = """CPU#000 Type: "a name that holds L: and T: "
  47 AMD64               :{REX}  MOVSX r64, r16                          L:   0.23ns=   1.00c  T:   0.04ns=   0.189c
  60 AMD64               :{REX}  SUB r64, r64                            L:   0.03ns=   0.14c  T:   0.03ns=   0.144c
2254 AMD64               :{REX}  SUB r1_64, r2_64                        L:   0.23ns=   1.00c  T:   0.04ns=   0.187c
 329 AMD64               :{REX}  IMUL r64, r64                           L:   0.69ns=   2.98c  T:   0.08ns=   0.331c
 206 AMD64               :{REX}  LEA r64, [r64 + r64 * 8 + disp8]        L:   0.46ns=   1.99c  T:   0.11ns=   0.452c
1316 AVX                 :{VEX}  VPANDN xmm, xmm, xmm                    L:   0.04ns=   0.17c  T:   0.04ns=   0.170c
1317 AVX                 :{VEX}  VPANDN xmm1, xmm1, xmm2                 L:   0.24ns=   1.05c  T:   0.06ns=   0.253c
2567 AVX512F             :{EVEX} VDIVPS zmm, zmm, zmm                    L:   2.31ns=   9.95c  T:   0.58ns=   2.486c
2568 AVX512F             :{EVEX} VDIVPS zmm (x/1.0f)                     L:   2.31ns=   1.95c  T:   0.58ns=   1.486c
3045 AVX512F             :{EVEX} VMOVUPS zmm LS pair                     L:   2.55ns=  10.95c  T:   0.27ns=   1.180c
3123 AVX512F             :{EVEX} VBROADCASTSS zmm, [m32]                 L: [memory dep.]      T:   0.12ns=   0.497c
3236 AVX512F             :{EVEX} VGATHERDPS zmm {k}, [zm32] + KMOVW      L:   6.97ns=  29.98c  T:   2.91ns=  12.499c
2359 AVX512BW            :{VEX}  KMOVD [mem32], k                        L: [memory dep.]      T:   0.12ns=   0.498c
1172 AVX                 :{VEX}  VMOVD r32, xmm                          L: [diff. reg. set]   T:   0.12ns=   0.498c
"""


@pytest.fixture
def checkouts(tmp_path: Path) -> tuple[Path, Path]:
    """Repositories of timings, as tools/make_machine_rows.py takes them."""
    server, zen5 = tmp_path / extract_timing.SERVER, tmp_path / zen5_rows.LISTING
    for path in (tmp_path / "uops", server.parent, zen5.parent):
        path.mkdir()
    zen5.write_text(ZEN5, encoding="utf-8")
    for table in extract_timing.TABLES.values():
        (tmp_path / "uops" / f"{table}.csv").write_text(UOPS, encoding="utf-8")
    server.write_text(ICX, encoding="utf-8")
    return tmp_path, tmp_path


def test_timings_of_checkouts(checkouts: tuple[Path, Path]) -> None:
    rows = extract_timing.timings(*checkouts)
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

    made = {(row.mnemonic, row.form): row for row in make_machine_rows.Generator("adl-p", rows).rows()}
    assert {key: row.latency for key, row in made.items() if key[0] in ("vfmadd231ps", "setz")} == {
        ("vfmadd231ps", "zmm,zmm,zmm"): 7,
        ("vfmadd231ps", "ymm,ymm,ymm"): 7,
        ("setz", "r8"): 1,
    }
    assert made["vfmadd231ps", "ymm,ymm,ymm"].uops == (("p0", "p1"),)
    assert made["vzeroupper", "-"].slots == 4


def test_listing_of_a_zen_5(checkouts: tuple[Path, Path]) -> None:
    """Single instructions alone, and of one register in all places only where there is no other line."""
    found = {key: (one.latency, one.throughput) for key, one in zen5_rows.listing(checkouts[1]).items()}
    assert found == {
        ("movsx", "r64,r16"): (1.0, 0.189),
        ("sub", "r64,r64"): (1.0, 0.187),
        ("imul", "r64,r64"): (2.98, 0.331),
        ("lea", "r64,agen3s"): (1.99, 0.452),
        ("vpandn", "xmm,xmm,xmm"): (1.05, 0.253),
        ("vdivps", "zmm,zmm,zmm"): (9.95, 2.486),
        ("vbroadcastss", "zmm,m32"): (None, 0.497),
        ("vgatherdps", "zmm{k},m32"): (29.98, 12.499),
        ("kmovd", "m32,k"): (None, 0.498),
        ("vmovd", "r32,xmm"): (None, 0.498),
    }


FOUR, ONE, FP01, FP12 = ("ALU0", "ALU1", "ALU2", "ALU3"), ("ALU1",), ("FP0", "FP1"), ("FP1", "FP2")


@pytest.mark.parametrize(
    ("mnemonic", "form", "zen4", "uops", "latency", "interval", "confidence"),
    [
        ("sub", "r64,r64", (FOUR,), (zen5_rows.ALUS,), 1, 0, "documented"),
        ("sub", "r64,m64", (FOUR,), (zen5_rows.ALUS,), 1, 0, "estimated"),
        ("imul", "r64,r64", (ONE,), (("ALU0", "ALU1", "ALU2"),), 3, 0, "documented"),
        ("lea", "r64,agen3s", (("ALU1", "ALU2"),), (("ALU0", "ALU1"),), 2, 0, "documented"),
        ("and", "r64,r64", (FOUR,), (zen5_rows.ALUS,), 7, 0, "estimated"),
        ("jmp", "rel", (("BR0", "BR1"),), (("ALU3", "ALU4", "ALU5"),), 7, 0, "estimated"),
        ("vpandn", "xmm,xmm,xmm", (FP12,), (("FP0", "FP1", "FP2", "FP3"),), 1, 0, "documented"),
        ("vdivps", "zmm,zmm,zmm", (FP01,), (FP01,), 10, 2.486, "documented"),
        ("vdivps", "zmm{k},zmm,m32bcst", (FP01,), (FP01,), 10, 2.486, "estimated"),
        ("vdivps", "ymm,ymm,ymm", (FP01,), (FP01,), 7, 4, "estimated"),
        ("vbroadcastss", "zmm,m32", (FP12,), (), 0, 0, "documented"),
        ("vgatherdps", "zmm{k},m32", (FP01, FP12), (FP01, FP12), 30, 12.499, "documented"),
        ("vmovd", "r32,xmm", (("FP4", "FP5"),), (("FP4", "FP5"),), 4, 0, "documented"),
    ],
)
def test_rows_of_a_zen_5(
    checkouts: tuple[Path, Path],
    mnemonic: str,
    form: str,
    zen4: tuple[tuple[str, ...], ...],
    uops: tuple[tuple[str, ...], ...],
    latency: float,
    interval: float,
    confidence: str,
) -> None:
    """Rows of a Zen 4 of latency 7 and, of vectors, one in 8 cycles that holds its ports for two."""
    vector = mnemonic[0] == "v"
    row = Row(mnemonic, form, 7, 1, zen4, "where from", "measured", 1 + vector, 8.0 * vector)
    (made,) = zen5_rows.zen5_rows([row], zen5_rows.listing(checkouts[1]))
    assert (made.uops, made.latency, made.interval, made.occupancy) == (uops, latency, interval, 1)
    assert made.confidence == confidence


def test_machine_rows_are_made_of_checkouts(
    checkouts: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The script as it is called, on copies of the files: heads stay, and `--check` tells before and after."""
    monkeypatch.setattr(make_machine_rows, "ROOT", tmp_path)
    copies = tmp_path / "isa_models" / "machines"
    shutil.copytree(MACHINES_DIR, copies)
    folders = [str(path) for path in checkouts]
    assert make_machine_rows.main(*folders, check=True) == 1 and "icx: " in capsys.readouterr().out
    assert (copies / "icx.toml").read_bytes() == (MACHINES_DIR / "icx.toml").read_bytes()
    assert make_machine_rows.main(*folders, check=False) == 0 and make_machine_rows.main(*folders, check=True) == 0
    head, _, rows = (copies / "icx.toml").read_text(encoding="utf-8").partition(make_machine_rows.MARK)
    assert (MACHINES_DIR / "icx.toml").read_text(encoding="utf-8").startswith(head) and "vfmadd231ps" in rows
    (checkouts[1] / extract_timing.SERVER).unlink()
    with pytest.raises(SystemExit, match="no file .*GenuineIntel"):
        make_machine_rows.main(*folders, check=True)
