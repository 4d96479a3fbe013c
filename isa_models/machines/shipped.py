"""Machines by name: those that ship, a TOML file each in this folder, GPUs in `gpu`; and users' packages'."""

from __future__ import annotations

import os
import re
from pathlib import Path

from isa_models.aliases import cap_of
from isa_models.errors import InvalidArgument, UnknownName, nearest, unknown_name
from isa_models.keywords import keywords
from isa_models.plugins import Registry, load, with_failures

MACHINES_DIR = Path(__file__).parent
GPU_MACHINES_DIR = MACHINES_DIR / "gpu"
_GPU_FOLDER = GPU_MACHINES_DIR.parts[-1:]
_FILES: Registry[str, Path] = Registry("machine")

HOST = "host"
#: what people ask for and is not here, by the names of makers and compilers
_NOT_HERE = {
    "ARM machine": r"(apple[-_ ]?)?m[1-9]([-_ ]?(pro|max|ultra))?|"
    r"(apple|graviton|cortex|neoverse|kunpeng|snapdragon|oryon|kryo|exynos|altra|axion|a64fx|aarch64|arm).*",
    "GPU of AMD's": r"(mi[-_ ]?[1-9]\d\d|rx[-_ ]?\d|radeon|instinct|gfx\d|[cr]dna|navi).*",
    "accelerator beside GPUs": r"(tpu|gaudi|habana|npu|inferentia|trainium|groq|cerebras|hexagon).*",
}
#: what compilers call the same cores (-mcpu)
COMPILERS_NAMES = {
    "haswell": "hsw",
    "core-avx2": "hsw",
    "skylake-avx512": "skx",
    "cascadelake": "clx",
    "icelake-server": "icx",
    "sapphirerapids": "spr",
    "emeraldrapids": "spr",
    "graniterapids": "gnr",
    "alderlake": "adl-p",
    "znver3": "zen3",
    "znver4": "zen4",
    "znver5": "zen5",
}


def register(folder: Path) -> None:
    """Add the machines of a folder's TOML files, GPUs in its folder `gpu`; a file's name is its machine's."""
    files = sorted((*folder.glob("*.toml"), *folder.glob("gpu/*.toml")))
    if not files:
        raise InvalidArgument(f"no machine in the folder {str(folder)!r}; a TOML file each, GPUs in its folder 'gpu'")
    for path in files:
        _FILES[path.stem] = path


def own_file(name: object) -> Path | None:
    """The file of a machine that has this very name; None for any other object."""
    return _FILES.get(name) if type(name) is str else None


def is_gpu(name: str) -> bool:
    """Whether a name is a GPU's."""
    return (path := _FILES.find(name)) is not None and path.parts[-2:-1] == _GPU_FOLDER


@keywords
def machine_names() -> tuple[str, ...]:
    """The names of CPUs: of this package and of users' packages.

    >>> machine_names()
    ('adl-p', 'clx', 'gnr', 'hsw', 'icx', 'skx', 'spr', 'zen3', 'zen4', 'zen5')
    """
    load()
    return tuple(sorted(name for name in _FILES if not is_gpu(name)))


@keywords
def gpu_machine_names() -> tuple[str, ...]:
    """The names of GPUs: of this package and of users' packages.

    >>> "a770" in gpu_machine_names()
    True
    """
    load()
    return tuple(sorted(filter(is_gpu, _FILES)))


def shipped_name(name: str) -> str:
    """The name under which a machine ships, of a compiler's or in capitals; any other name as it is.

    >>> shipped_name("znver4"), shipped_name("H100"), shipped_name("mine.toml")
    ('zen4', 'h100', 'mine.toml')
    """
    small = COMPILERS_NAMES.get(name.lower(), name.lower())
    return small if small in _FILES else name


def machine_file(name: str) -> Path | None:
    """The file of a machine that has a name; None for any other name.

    >>> path = machine_file("SKX")
    >>> path.name if path else None
    'skx.toml'
    """
    return _FILES.find(shipped_name(name))


def unknown_machine(name: str) -> UnknownName:
    """The error for a name that no machine has."""
    load()
    known = [*_FILES]
    if name.lower() in ("native", "this", "localhost"):
        return with_failures(UnknownName(f"unknown machine {name!r}: `simdnn calibrate` measures this host as 'host'"))
    if what := next((what for what, names in _NOT_HERE.items() if re.fullmatch(names, name, re.IGNORECASE)), ""):
        names = ", ".join(sorted(known))
        return with_failures(UnknownName(f"unknown machine {name!r}: there is no {what} here. Known: {names}"))
    if not nearest(name, known) and (near := nearest(name, COMPILERS_NAMES)):
        ours = f"{COMPILERS_NAMES[near[0]]!r} ({near[0]})"
        error = UnknownName(f"unknown machine {name!r}: did you mean {ours}? Known: {', '.join(sorted(known))}")
    else:
        error = unknown_name("machine", name, known, "simdnn list machines")
    less = f" (isa={cap!r}, --isa {cap}, leaves out what {name} does not have)" if (cap := cap_of(name)) else ""
    return with_failures(UnknownName(f"{error}{less}"))


def host_path() -> Path:
    """Where the machine "host" is kept: $SIMDNN_HOST, else simdnn/host.toml in the user's configuration folder."""
    if named := os.environ.get("SIMDNN_HOST"):
        return Path(named)
    return Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config") / "simdnn" / "host.toml"


def can_be_a_file(path: Path) -> bool:
    """Whether a name is one of a file rather than of a machine: it ends so, or the file is there."""
    try:
        return path.is_file() or path.suffix == ".toml" and "\0" not in str(path)
    except OSError:  # too long for a name
        return False


def lists_row(name: str, mnemonic: str, form: str) -> bool:
    """Whether a machine that ships has a row, its own or its base's, looked up in the files' text.

    To read all of them takes seconds.
    """
    if (path := machine_file(name)) is None:
        return False
    text = path.read_text(encoding="utf-8")
    lines = (
        text[found.start() : text.index("\n", found.start())] for found in re.finditer(re.escape(f'"{mnemonic}"'), text)
    )
    rows = (line.partition(", form = ")[::2] for line in lines)
    if any(f'"{form}"' in forms.partition(", latency = ")[0] for _, forms in rows):
        return True
    base = re.search(r'^base = "([\w-]+)"', text, re.MULTILINE)
    return base is not None and lists_row(base[1], mnemonic, form)


register(MACHINES_DIR)
