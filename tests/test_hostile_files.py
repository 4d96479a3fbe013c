"""Files of each kind that a command reads, broken: one line that names the file, and no traceback."""

from __future__ import annotations

import os
import random
import threading
from pathlib import Path

import numpy as np
import onnx
import pytest

from isa_models.host import pipes
from simdnn.cli import main
from tests.effort import one_in
from tests.networks.models import small_cnn
from tests.streams import error_line

NOISE = random.Random(1).randbytes(3000)
#: what stands in a file; None: a link to itself
CONTENTS: dict[str, bytes | None] = {
    "noise": NOISE,
    "nothing": b"",
    "utf-16": 'base = "zen4"\n--matmul 4x8:8x4\n'.encode("utf-16"),
    "latin-1": 'title = "Z\u00fcrich"\n'.encode("latin-1"),
    "an archive": b"PK\3\4" + NOISE,
    "an object file": b"\x7fELF" + NOISE,
    "brackets": b"[" * 100_000,
    "a list": b"[1, 2]",
    "a loop": None,
}
COMMANDS = (
    *("machines check FILE.toml", "run digits --machine FILE.toml", "study FILE.toml", "analyze FILE.o"),
    *("inspect FILE.onnx", "lint FILE.onnx --machine zen4", "tune FILE.onnx", "run FILE.onnx"),
    *(
        "run net.onnx --feeds FILE.npz",
        "run net.onnx --labels FILE.npy --feeds net.npz",
        "run net.onnx --recipe FILE.json",
    ),
    "report FILE.json -o page.html",
    "explain matmul --machine zen4 --dt u8:s8:s32 --at 0,0 --src FILE.npy --weights FILE.npy",
)


@one_in(2)
@pytest.mark.parametrize("content", CONTENTS)
@pytest.mark.parametrize("command", COMMANDS)
def test_a_broken_file_is_one_line(
    command: str, content: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    if "net." in command:
        onnx.save(small_cnn(), "net.onnx")
        np.savez("net.npz", x=np.ones((1, 3, 12, 12), np.float32))
    file = next(word.partition("=")[2] or word for word in command.split() if "FILE" in word)
    data = CONTENTS[content]
    if data is None:
        Path(file).symlink_to(file)
    else:
        Path(file).write_bytes(data)
    status = main(command.split())
    line = error_line(capsys)
    assert status in (1, 2) and len(line) < 1100, line


@pytest.mark.parametrize("command", COMMANDS)
def test_a_pipe_is_told_and_not_waited_for(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    if "net." in command:
        onnx.save(small_cnn(), "net.onnx")
        np.savez("net.npz", x=np.ones((1, 3, 12, 12), np.float32))
    os.mkfifo(next(word.partition("=")[2] or word for word in command.split() if "FILE" in word))
    assert main(command.split()) in (1, 2)
    line = error_line(capsys)
    assert "a device or a pipe" in line and "did you mean" not in line


def test_a_batch_comes_by_a_pipe_to_which_somebody_writes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pipe = tmp_path / "batch"
    os.mkfifo(pipe)
    writer = threading.Thread(target=pipe.write_text, args=("--dt=f32 4x8:8x4\n",), daemon=True)
    writer.start()
    assert main(["bench", "--matmul", "--machine=zen4", f"--batch={pipe}"]) == 0
    writer.join()
    assert "4x8:8x4" in capsys.readouterr().out
    monkeypatch.setattr(pipes, "_WAIT_S", 0.01)
    assert main(["bench", "--matmul", f"--batch={pipe}"]) == 2
    assert "nobody has written to it" in error_line(capsys)


@pytest.mark.parametrize("content", ["noise", "utf-16", "an archive", "a loop"])
def test_a_batch_file_that_is_no_text(content: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file, data = tmp_path / "batch", CONTENTS[content]
    file.write_bytes(data) if data is not None else file.symlink_to(file)
    assert main(["bench", f"--batch={file}"]) == 2
    assert "batch" in error_line(capsys)


@pytest.mark.parametrize(
    ("labels", "said"),
    [(np.array([0.5]), "labels of float64; integers"), (np.array([17]), r"label 17; the outputs have classes 0 to 9")],
)
def test_labels_that_are_no_classes(
    labels: np.ndarray, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    onnx.save(small_cnn(), tmp_path / "net.onnx")
    np.savez(tmp_path / "net.npz", x=np.ones((1, 3, 12, 12), np.float32))
    np.save(tmp_path / "labels.npy", labels)
    files = ["--feeds", str(tmp_path / "net.npz"), "--labels", str(tmp_path / "labels.npy")]
    assert main(["run", str(tmp_path / "net.onnx"), "--modes", "f32", *files]) == 2
    assert said in error_line(capsys)
