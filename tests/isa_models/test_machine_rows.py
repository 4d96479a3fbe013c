"""Rows of the machine files are what tools/make_machine_rows.py writes, and the script reads what it names."""

from __future__ import annotations

import re
import shutil
import tomllib
from pathlib import Path

import pytest

from isa_models.machines.rows import keys as keys_of
from isa_models.machines.shipped import MACHINES_DIR
from tools import extract_timing, make_machine_rows
from tools.machine_row import read


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


@pytest.fixture
def checkouts(tmp_path: Path) -> tuple[Path, Path]:
    """Repositories of timings, as tools/make_machine_rows.py takes them."""
    server = tmp_path / extract_timing.SERVER
    for path in (tmp_path / "uops", server.parent):
        path.mkdir()
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
