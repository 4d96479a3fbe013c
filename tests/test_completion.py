"""The words that bash offers at a tab, by the script that `simdnn completion bash` prints."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

import isa_models
from simdnn.cli import COMMANDS
from simdnn.cli.completion import SHELLS, script

pytest.importorskip("shtab")
ASKED = """
source "$1"
shift
COMP_WORDS=("$@")
COMP_CWORD=$(($# - 1))
_shtab_simdnn 2>/dev/null
printf '%s\\n' "${COMPREPLY[@]}"
"""


@pytest.fixture(scope="module")
def scripts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("completion")
    for shell in SHELLS:
        (folder / shell).write_text(script(shell) + "\n", encoding="utf-8")
    return folder


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        ("ru", "run"),
        ("run --mach", "--machine"),
        ("run digits --machine ze", "zen3 zen4 zen5"),
        ("run mobilenet", "mobilenet-v1 mobilenet-v2"),
        ("run my", "my.onnx"),
        ("run digits --modes f32,int8-v", "f32,int8-vnni"),
        ("run digits --dispatch one", "onednn"),
        ("run digits --isa avx512_core_bf", "avx512_core_bf16"),
        ("bench --machine v", "v100"),
        ("explain vpdpbus", "vpdpbusd vpdpbusds"),
        ("analyze loop.s --compare-with ic", "icx"),
        ("machines show sk", "skx"),
        ("list inst", "instructions"),
        ("fetch-models mini", "minilm"),
        ("study my", "my.onnx"),
        ("completion fi", "fish"),
    ],
)
@pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash")
def test_bash(words: str, offered: str, scripts: Path, tmp_path: Path) -> None:
    (tmp_path / "my.onnx").touch()
    done = subprocess.run(
        ["bash", "-c", ASKED, "bash", str(scripts / "bash"), "simdnn", *words.split()],
        capture_output=True,
        text=True,
        timeout=300,
        check=True,
        cwd=tmp_path,
    )
    assert sorted(set(done.stdout.split())) == offered.split(), done.stderr


@pytest.mark.parametrize("shell", SHELLS)
def test_every_command_and_machine_is_known(shell: str, scripts: Path) -> None:
    text = (scripts / shell).read_text(encoding="utf-8")
    for name in (*(name for name, _, _ in COMMANDS), *isa_models.machine_names(), *isa_models.gpu_machine_names()):
        assert name in text, name
    if shutil.which(shell):
        subprocess.run([shell, "-n", str(scripts / shell)], check=True, timeout=300)
