"""Files that commands write: a user's are never overwritten unasked, own ones are, and nothing is half written."""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import simdnn
import workloads
from isa_models import InvalidArgument, SimdnnError
from simdnn import files, plot
from simdnn.calibration import host
from simdnn.cli import main
from simdnn.study import trace
from simdnn.tuning.tuned import read_recipe
from tests.streams import error_line

LOOP = "l: vaddps ymm0, ymm0, ymm1\ndec rcx\njnz l\n"
STUDY = '[study]\nkind = "matmul"\n[axes]\nm = [1, 2]\n[fixed]\nn = 8\nk = 8\nmachine = "zen4"\n'
BENCH = ["bench", "--matmul", "--mode=P", "4x8:8x4"]
RUN = ["run", "digits", "--no-values", "--modes", "f32"]
COMMANDS = {  # a command that writes the file named last
    "bench.csv": [*BENCH, "-o"],
    "bench.json": [*BENCH, "-o"],
    "bench.parquet": [*BENCH, "-o"],
    "trace.json": [*BENCH, "--trace"],
    "trace": [*BENCH, "--trace"],
    "run.csv": [*RUN, "-o"],
    "run.png": [*RUN, "--plot"],
    "explain.csv": ["explain", "vpmaddubsw", "--a", "255,255", "--b", "127,127", "-o"],
    "explain.json": ["explain", "vpmaddubsw", "--a", "255,255", "--b", "127,127", "-o"],
    "study.csv": ["study", "file.toml", "-o"],
    "study.png": ["study", "file.toml", "--plot"],
    "loop.txt": ["analyze", "loop.s", "--timeline", "-o"],
    "loop.kanata": ["analyze", "loop.s", "--timeline", "konata", "-o"],
    "loop.json": ["analyze", "loop.s", "--timeline", "perfetto", "-o"],
}
USERS = {  # what somebody else may have put there
    ".csv": b"name,cycles\na,1\n",
    ".json": b'{"simdnn": 1}',
    ".parquet": b"PAR1 thesis PAR1",
    ".png": b"\x89PNG thesis",
    ".kanata": b"Kanata\t0004\nC=\t0\n",
}


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "loop.s").write_text(LOOP)
    (tmp_path / "file.toml").write_text(STUDY)
    yield tmp_path


@pytest.mark.parametrize("name", COMMANDS)
def test_a_users_file_stays_and_an_own_one_is_replaced(
    name: str, here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    users, path = USERS.get(Path(name).suffix, b"my thesis\n"), here / name
    path.write_bytes(users)
    assert main([*COMMANDS[name], name]) == 2
    assert f"{name} is there already and was not written by simdnn" in error_line(capsys)
    assert path.read_bytes() == users
    assert main([*COMMANDS[name], name, "--force"]) == 0
    own = path.read_bytes()
    assert own != users and files.is_own(path)
    assert main([*COMMANDS[name], name]) == 0  # as anybody does who runs a command again
    assert path.read_bytes() == own or path.suffix in (".svg", ".pdf", ".parquet")  # which hold the time
    assert sorted(found.name for found in here.iterdir() if found.name.startswith(".")) == []


def test_the_text_before_is_kept_where_a_write_fails(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    estimate = simdnn.estimate("matmul", m=4, n=8, k=8, machine="zen4")
    path = here / "t.json"
    trace.write(path, [estimate])
    before = path.read_bytes()

    def full(partial: Path, text: str, **_: object) -> int:
        with partial.open("w") as file:
            file.write(text[:10])
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_text", full)
    with pytest.raises(OSError, match="No space left"):
        trace.write(path, [estimate])
    assert path.read_bytes() == before and sorted(file.name for file in here.iterdir()) == [
        "file.toml",
        "loop.s",
        "t.json",
    ]


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full here")
def test_a_full_disk_is_one_line_and_devices_stay(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*BENCH, "--trace", "/dev/full"]) == 1
    assert "No space left" in capsys.readouterr().err
    assert main([*BENCH, "--trace", "/dev/null"]) == 0
    assert not Path("/dev/null").is_file() and not Path("/dev/full").is_file()


def test_links_and_permissions_stay(here: Path) -> None:
    (here / "real.csv").touch(mode=0o640)
    (here / "link.csv").symlink_to("real.csv")
    assert main([*BENCH, "-o", "link.csv"]) == 0
    assert (here / "link.csv").is_symlink() and (here / "real.csv").stat().st_mode & 0o777 == 0o640
    assert files.is_own(here / "real.csv")


def test_functions_refuse_as_commands_do(here: Path) -> None:
    path = here / "mine.png"
    path.write_text("thesis")
    with pytest.raises(InvalidArgument, match="simdnn.files.forced"):
        plot.save(plot.panels(1)[0], path)
    with files.forced():
        plot.save(plot.panels(1)[0], path)
    for own in (path, here / "mine.svg", here / "mine.pdf"):
        for _ in range(2):
            plot.save(plot.panels(1)[0], own)
    (here / "other.svg").write_text("<?xml version='1.0'?><svg/>")
    (here / "other.pdf").write_text("%PDF-1.7 thesis")
    assert not any(files.is_own(here / name) for name in ("other.svg", "other.pdf"))


@pytest.mark.parametrize("text", ["", "[core]\n", "# my machine\nname = 'host'\n"])
def test_a_users_machine_file_stays(text: str, here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """So do those beside it that calibration once wrote on its way."""
    monkeypatch.setattr(host, "host_table", lambda found: {})
    monkeypatch.setattr(host, "_ports_said", lambda ports: "# Ports\n")
    monkeypatch.setattr(host, "machine", lambda path: None)
    path, others = here / "m.toml", [here / "m.partial", here / "m.checked.toml"]
    for file in (path, *others):
        file.write_text(text or "keep")
    with pytest.raises(InvalidArgument, match="was not written by simdnn"):
        host.write_host(Nothing(), path)  # type: ignore[arg-type]  # no calibration is looked at
    path.unlink()
    for _ in range(2):
        host.write_host(Nothing(), path)  # type: ignore[arg-type]
    assert files.is_own(path) and [file.read_text() for file in others] == [text or "keep"] * 2


class Nothing:
    ports = None


@pytest.mark.parametrize(
    "columns",
    [
        "shape,kernel,predicted,bound",
        "mode,accuracy,samples,speed_up,cycles,time_us,bound,confidence,refused",
        "mode,cycles,time_us,speed_up,macs,note,refused",
        "m,machine,refused",
    ],
)
def test_tables_of_slow_commands_are_own(columns: str, here: Path) -> None:
    path = here / "table.csv"
    path.write_text(f"{columns}\n")
    assert files.is_own(path)


@pytest.mark.parametrize(
    "content",
    [
        b"cycles\n",
        b"a,b\n",
        b"notes",
        b"\xff\xfe",
        b"[1]",
        b'{"traceEvents": []}',
        b'{"written_by": "me"}',
        b"{",
        b"#",
        b'{"report": {"written_by": "simdnn"}}',
        b"# Written by hand, simdnn calibrate\n",
        b"PAR1",
    ],
)
def test_what_others_wrote(content: bytes, here: Path) -> None:
    path = here / "file"
    path.write_bytes(content)
    assert not files.is_own(path)


def test_json_files_say_who_wrote_them(here: Path) -> None:
    assert main([*BENCH, "-o", "b.json", "--trace", "t.json"]) == 0
    assert {json.loads((here / name).read_text())["written_by"] for name in ("b.json", "t.json")} == {"simdnn"}


def test_a_folder_that_cannot_be_written(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*BENCH, "--trace", "absent/t.json"]) == 1
    assert "there is no folder absent" in error_line(capsys)
    assert os.listdir(here / ".") and not (here / "absent").exists()


@pytest.mark.skipif(sys.platform != "linux", reason="a folder where nobody can make files")
def test_the_path_in_an_error_is_the_one_asked_for() -> None:
    """Not that of the file beside it, which is written first."""
    with pytest.raises(SimdnnError, match="^/proc/x.csv cannot be written: "):
        files.write_text(Path("/proc/x.csv"), "")


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("folder", "unknown file format 'folder'. Known: .*.png"),
        ("folder.png", "folder.png is a folder"),
        ("x.xyz", "unknown file format '.xyz'"),
        ("x" * 300 + ".png", "cannot be written: File name too long"),
        ("loop.s/x.png", "cannot be written: Not a directory"),
        ("a\0b.png", "cannot be written: .*embedded null"),
        ("\ud800.png", "cannot be written: .*surrogates not allowed"),
    ],
)
def test_a_picture_is_not_written_where_none_can_be(name: str, said: str, here: Path) -> None:
    for folder in ("folder", "folder.png"):
        (here / folder).mkdir()
    before = sorted(os.listdir(here))
    with pytest.raises(SimdnnError, match=said):
        plot.save(plot.plot_format("bf16"), name)
    assert sorted(os.listdir(here)) == before


@pytest.mark.parametrize(
    ("read", "said"),
    [
        (workloads.load, "workload file '/dev/zero' cannot be read: it is a device"),
        (plot.plot_spans, "/dev/zero: .*it is a device"),
        (lambda path: simdnn.report(path, "page.html"), "/dev/zero cannot be read: it is a device"),
        (lambda path: main(["bench", f"--from-verbose={path}"]), "--from-verbose '/dev/zero': a device"),
        (read_recipe, "holds no recipe .*it is a device"),
    ],
)
def test_what_has_no_end_is_not_read(
    read: Callable[[str], object], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nor is any of it read into memory."""
    try:
        assert read("/dev/zero") in (1, 2)
        error = error_line(capsys)
    except SimdnnError as raised:
        error = str(raised)
    assert re.search(said, error), error
