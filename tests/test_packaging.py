"""The wheel and the sdist hold what the packages read at run time, and the wheel works away from the sources."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]
PACKAGES = ("simdnn", "isa_models", "workloads")
pytestmark = pytest.mark.skipif(
    not all(map(importlib.util.find_spec, ("build", "hatchling"))), reason="building offline needs build and hatchling"
)


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with an sdist, and a wheel built from it."""
    folder = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(folder), str(ROOT)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


def package_files() -> set[str]:
    """Every file of the three packages, code and data, as a path in the wheel."""
    found = (path for package in PACKAGES for path in (ROOT / package).rglob("*") if path.is_file())
    return {path.relative_to(ROOT).as_posix() for path in found if "__pycache__" not in path.parts}


def test_wheel_holds_every_file(built: Path) -> None:
    (wheel,) = built.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        inside = {name for name in archive.namelist() if ".dist-info/" not in name}
        (metadata,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        described = archive.read(metadata).decode()
    assert inside == package_files()
    assert {"workloads/layers/resnet50.csv", "workloads/data_files/digits_weights.npz"} <= inside
    assert {f"{package}/py.typed" for package in PACKAGES} <= inside
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    assert f"\nVersion: {version}\n" in described and "\nLicense-Expression: Apache-2.0\n" in described
    assert "\nAuthor: The simdnn developers\n" in described
    assert described.partition("\n\n")[2].startswith("# simdnn\n")  # the index shows the readme


def test_addresses_are_those_of_the_checkout(tmp_path: Path) -> None:
    """Links of the readme become absolute where the git remote is known, and stay in a wheel made of the sdist."""
    from tools import project_addresses

    for command in ("init -q", "remote add origin git@example.org:group/simdnn.git"):
        subprocess.run(["git", "-C", str(tmp_path), *command.split()], check=True)
    who = ["-c", "user.name=somebody", "-c", "user.email=somebody@example.org"]
    subprocess.run(["git", "-C", str(tmp_path), *who, "commit", "-q", "--allow-empty", "-m", "first"], check=True)
    (tmp_path / "README.md").write_text("![picture](docs/a.png) and [page](docs/a.md#b), [here](#c)", "utf-8")
    found: dict[str, Any] = {}
    project_addresses.AddressHook(str(tmp_path), {}).update(found)
    _, commit = project_addresses.source(tmp_path) or ("", "")
    base = "https://example.org/group/simdnn"
    assert len(commit) == 40 and found["urls"]["Source"] == f"{base}/tree/{commit}"
    picture, page = f"{base}/raw/{commit}/docs/a.png", f"{base}/blob/{commit}/docs/a.md#b"
    assert found["readme"]["text"] == f"![picture]({picture}) and [page]({page}), [here](#c)"
    unpacked = tmp_path / "unpacked"
    unpacked.mkdir()
    assert project_addresses.source(unpacked) is None  # nothing known, nothing claimed
    (unpacked / "PKG-INFO").write_text(f"Name: simdnn\nProject-URL: Source, {found['urls']['Source']}\n", "utf-8")
    assert project_addresses.source(unpacked) == (base, commit)


def test_citation_names_this_version() -> None:
    cited = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    for line in (f"version: {project['version']}", f"license: {project['license']}", "cff-version: 1.2.0"):
        assert f"\n{line}\n" in f"\n{cited}", line
    assert project["authors"][0]["name"] in cited


def test_sdist_holds_sources_and_licence(built: Path) -> None:
    (sdist,) = built.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        inside = {name.split("/", 1)[1] for name in archive.getnames()}
    assert package_files() <= inside
    assert {"LICENSE", "README.md", "pyproject.toml", "Makefile", "tests/test_packaging.py"} <= inside


def test_unpacked_wheel_finds_its_data(built: Path, tmp_path: Path) -> None:
    (wheel,) = built.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path)
    code = (
        f"import sys; sys.path.insert(0, {str(tmp_path)!r}); import workloads; "
        "print(workloads.__file__, *(len(workloads.load(name).layers) for name in workloads.names()))"
    )
    done = subprocess.run([sys.executable, "-I", "-c", code], cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(str(tmp_path)) and " 54 " in done.stdout  # ResNet-50: 53 convolutions and fc
