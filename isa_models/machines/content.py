"""The content of a machine's file, whole: what it takes over from its base, and what differs.

``base`` is the name of a machine that ships, or a file's path relative to the one that names it. All else in such a
file is a difference (`differences` tells how they are written), of figures without a source as well: three lines are a
machine.
"""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

from isa_models.errors import MachineFileError, SimdnnError, did_you_mean
from isa_models.machines.differences import Content, applied, differences
from isa_models.machines.shipped import HOST, gpu_machine_names, host_path, machine_file, machine_names
from isa_models.machines.toml_table import Table, broken, read_toml, table_of

Lineage = tuple[tuple[Path, int], ...]  # a file, its base and so on, each with the time of its last change
_BASE, _SOURCES = "base", "sources"
_MOST_FILES = 32
_IDENTITY = ("name", "title", "vendor", "uarch", "platform", _SOURCES)  # texts that say which machine it is


def content(path: Path) -> Content:
    """A file's content with nothing left to inherit, its sources spelled out. Callers don't change it.

    Raises `MachineFileError` for what is no TOML, for a base that isn't there or leads back to the file, and for a
    difference from what the base hasn't got.
    """
    return _content(lineage(path))


def open_table(path: Path) -> Table:
    """The whole content as a table, its sources read."""
    return table_of(path, content(path))


def lineage(path: Path) -> Lineage:
    """The file and all files that it inherits from: the key of caches of what was read."""
    found: dict[Path, int] = {}
    after: Path | None = path
    while after is not None:
        if after in found:
            met = " -> ".join(one.name for one in (*found, after))
            raise broken(path, _BASE, "a file that doesn't inherit from itself", met)
        if len(found) == _MOST_FILES:
            raise broken(path, _BASE, f"at most {_MOST_FILES} files that inherit from each other", "more")
        found[after] = _changed_ns(after)
        after = _base_of(after, found[after])
    return tuple(found.items())


@functools.lru_cache(maxsize=1024)
def names_a_platform(files: Lineage) -> bool:
    """Whether one of the files says that the machine is a GPU."""
    return any("platform" in _read(*file) for file in files)


def _changed_ns(path: Path) -> int:
    try:
        return path.stat().st_mtime_ns
    except OSError:  # `read_toml` says what is wrong
        return 0


@functools.lru_cache(maxsize=8)
def _read(path: Path, changed_ns: int) -> Content:
    return read_toml(path)


@functools.lru_cache(maxsize=1024)
def _base_of(path: Path, changed_ns: int) -> Path | None:
    """The file of a file's base; None where it has none."""
    name = _read(path, changed_ns).get(_BASE)
    if name is None:
        return None
    if not isinstance(name, str) or "\0" in name or not name.strip():
        raise broken(path, _BASE, f"a machine that ships ({', '.join(_known())}) or a file", name)
    found = machine_file(name) or (host_path() if name == HOST else (path.parent / name).resolve())
    if not found.is_file():
        known = _known()
        hint = did_you_mean(name, known) or f"one of {', '.join(known)}, or a file's path from {str(path.parent)!r}"
        raise broken(path, _BASE, f"a machine that ships or a file ({hint})", name)
    return found


@functools.lru_cache(maxsize=16)
def _content(files: Lineage) -> Content:
    (path, changed_ns), *bases = files
    own = _read(path, changed_ns)
    if not bases:
        if _SOURCES not in own:
            raise broken(path, _SOURCES, f"a table, or {_BASE} = 'zen4' for what the file doesn't say itself", None)
        return _spelled(own, _table(own.get(_SOURCES)))
    inherited = _content(tuple(bases))
    sources = _table(inherited.get(_SOURCES)) | _table(own.get(_SOURCES))
    own = _spelled(own, sources)
    said = {key: value for key, value in own.items() if key != _BASE and key not in _IDENTITY}
    try:
        found = applied(str(inherited.get("name")), inherited, differences(said))
    except SimdnnError as error:
        raise MachineFileError(f"{path}: {error}") from None
    identity = {key: own[key] for key in _IDENTITY if key in own}
    return found | {"name": path.stem, _SOURCES: sources} | identity


def _known() -> tuple[str, ...]:
    return *machine_names(), *gpu_machine_names()


def _table(value: object) -> dict[str, Any]:
    """A table, empty where the value is something else; the schema then tells the fault."""
    return value if isinstance(value, dict) else {}


def _spelled(content: Content, sources: dict[str, Any]) -> Content:
    """A content whose sources have the keys of ``[sources]`` spelled out; the schema tells a fault."""
    return {key: value if key == _SOURCES else _spell(value, sources) for key, value in content.items()}


def _spell(value: Any, sources: dict[str, Any]) -> Any:
    if isinstance(value, list) and value and isinstance(value[0], dict):
        return [_spell(one, sources) for one in value]
    if not isinstance(value, dict):
        return value
    found = {key: _spell(one, sources) if isinstance(one, (dict, list)) else one for key, one in value.items()}
    if isinstance(source := found.get("source"), str):
        short, colon, rest = source.partition(":")
        if colon and isinstance(sources.get(short), str):
            found["source"] = f"{sources[short]}: {rest.strip()}"
    return found
