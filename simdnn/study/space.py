"""A study's file: the axes of a design space, and the points that their product gives."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import prod
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

import workloads
from isa_models import InvalidArgument, MachineFileError, SimdnnError, machine, what_if
from isa_models.errors import unknown_name
from isa_models.machines.shipped import machine_file
from isa_models.machines.toml_table import Reader, Table, read_toml
from simdnn.primitives.checks import one_of
from simdnn.study.kinds import FILES, KINDS, text
from simdnn.study.points import Point

MOST_POINTS = 100_000
_DEEPEST = 8  # tables in each other
_SCALARS = (bool, int, float, str)
Bindings = dict[str, Any]  # parameter or dotted key of a figure -> value


@dataclass(frozen=True)
class Space:
    """A study's runs: its points, and of each what the file says of it (`axes` first).

    Two points have one key where the file calls one machine by two names.
    """

    name: str
    kind: str
    values: bool
    scheduler: str
    axes: tuple[str, ...]
    points: tuple[Point, ...]
    given: tuple[Bindings, ...]

    @property
    def columns(self) -> tuple[str, ...]:
        """All parameters that a point may have, those of the axes first."""
        return tuple(dict.fromkeys((*self.axes, *itertools.chain.from_iterable(self.given))))


def read_space(source: Path | Mapping[str, Any], figures: Mapping[str, Any] = MappingProxyType({})) -> Space:
    """The space of a file, or of a mapping with a file's content (whose files are found from the working directory).

    `figures` of the machines stand beside its [fixed], or in place of what stands there.

    Raises `InvalidArgument` or `UnknownName` that name the key, the value met and what is allowed.
    """
    try:
        if isinstance(source, Path):
            return _Reader(source, _with(read_toml(source), figures), source.parent).space()
        return _Reader(Path("study"), _with(_plain(source), figures), Path()).space()
    except RecursionError:
        raise InvalidArgument("a study of tables and lists too deep in each other, or one that holds itself") from None
    except MachineFileError as error:
        raise InvalidArgument(str(error)) from None


def _with(data: dict[str, Any], figures: Mapping[str, Any]) -> dict[str, Any]:
    """A file's content with figures in [fixed]."""
    fixed = data.get("fixed", {})
    if not figures or not isinstance(fixed, dict):
        return data
    return {**data, "fixed": {**dict(_flat(Table(Reader(Path()), "fixed", fixed), fixed)), **_plain(figures)}}


class _Reader:
    def __init__(self, path: Path, data: dict[str, object], folder: Path) -> None:
        self.top, self.folder = Table(Reader(path), "", data), folder
        study = self.top.table("study")
        self.name = study.text("name") if study.has("name") else path.stem
        kind = study.text("kind")
        if kind not in KINDS:
            raise study.error("kind", f"one of {', '.join(KINDS)}", kind)
        self.kind_name, self.kind = kind, KINDS[kind]
        self.values = study.flag("values")
        if self.values and not self.kind.values:
            able = ", ".join(name for name, one in KINDS.items() if one.values)
            raise study.error("values", f"false for {kind!r}; values are of {able}", True)
        self.seed = study.integer("seed", 0, 2**32 - 1, 0)
        self.scheduler = study.text("scheduler") if study.has("scheduler") else ""
        study.close()
        self.machines = self._machines() if self.top.has("machines") else {}
        self.fixed = self._bindings(self.top.table("fixed"), "fixed") if self.top.has("fixed") else {}
        self.options = self._axes(self.top.table("axes")) if self.top.has("axes") else []
        self.top.close()

    def space(self) -> Space:
        for one, other in itertools.combinations([[self.fixed], *self.options], 2):
            if twice := _keys(one) & _keys(other):
                raise self.top.error(min(twice), "one place for a parameter: an axis, or [fixed]", "two")
        sizes = [len(options) for options in self.options]
        if (count := prod(sizes)) > MOST_POINTS:
            raise self.top.error("axes", f"at most {MOST_POINTS} points", f"{' x '.join(map(str, sizes))} = {count}")
        found: dict[tuple[str, str], tuple[Point, Bindings]] = {}
        for chosen in itertools.product(*self.options):
            given = {key: value for option in (*chosen, self.fixed) for key, value in option.items()}
            point = self._point(given)
            found.setdefault((point.key, given["machine"]), (point, given))
        points = tuple(point for point, _ in found.values())
        self._check_figures(points)
        axes = dict.fromkeys(key for options in self.options for option in options for key in option)
        return Space(
            self.name,
            self.kind_name,
            self.values,
            self.scheduler,
            tuple(axes),
            points,
            tuple(given for _, given in found.values()),
        )

    def _point(self, given: Bindings) -> Point:
        if missing := [key for key in ("machine", *self.kind.needed) if key not in given]:
            known = ", ".join(("machine", *self.kind.parameters))
            needed = ", ".join(("machine", *self.kind.needed))
            raise InvalidArgument(
                f"{self.top.reader.path}: a point has no {', '.join(missing)}: {self.kind_name!r} "
                f"needs {needed}, in [axes] or [fixed]; known: {known}, and figures of the machine "
                "as core.dispatch_slots"
            )
        base, figures = self.machines.get(given["machine"], (given["machine"], {}))
        own = {key: value for key, value in given.items() if "." in key}
        parameters = {key: value for key, value in given.items() if key != "machine" and "." not in key}
        if "seed" in self.kind.parameters:
            parameters.setdefault("seed", self.seed)
        return Point(self.kind_name, self.values, base, {**figures, **own}, parameters, self.folder)

    def _machines(self) -> dict[str, tuple[str, Bindings]]:
        """[machines.NAME]: a base, and figures that differ from it."""
        found = {}
        table = self.top.table("machines")
        for name in table.data:
            inner = table.table(name)
            if _ships(name):
                raise table.error(name, "a name that no machine has", name)
            base = self._machine(inner, "base", inner.text("base"), {})
            given = {key: value for key, value in inner.data.items() if key != "base"}
            found[name] = base, {key: _figure(inner, key, value) for key, value in _flat(inner, given)}
        return found

    def _axes(self, table: Table) -> list[list[Bindings]]:
        """For each axis its values; of one whose values are tables, each binds several parameters together."""
        found = []
        for key, values in _flat(table, table.data):
            if not isinstance(values, list) or not values:
                raise table.error(key, "a non-empty list (one value for all goes into [fixed])", values)
            tables = [isinstance(value, dict) for value in values]
            if any(tables) and not all(tables):
                raise table.error(key, "either tables or plain values", values)
            found.append(
                [
                    self._bindings(Table(table.reader, table.path(f"{key}[{i}]"), value), key)
                    if isinstance(value, dict)
                    else {key: self._checked(table, key, f"{key}[{i}]", value)}
                    for i, value in enumerate(values)
                ]
            )
        return found

    def _bindings(self, table: Table, name: str) -> Bindings:
        return {key: self._checked(table, key, key, value) for key, value in _flat(table, table.data)}

    def _checked(self, table: Table, key: str, place: str, value: object) -> object:
        if key == "machine":
            return self._machine(table, place, value, self.machines)
        if "." in key:
            return _figure(table, place, value)
        if key not in self.kind.parameters:
            known = ("machine", *self.kind.parameters)
            raise unknown_name(f"parameter of {self.kind_name!r} at {table.path(place)!r}:", key[:80], known)
        found = self.kind.parameters[key](table, place, value)
        if key in FILES and str(found).lower().endswith(FILES[key]) and not (self.folder / str(found)).is_file():
            raise table.error(place, f"a file, found from {str(self.folder)!r}", found)
        if key == "workload" and not str(found).lower().endswith(FILES[key]):
            one_of(f"key {table.path(place)!r}:", found, workloads.names())
        return found

    def _machine(self, table: Table, place: str, value: object, own: Mapping[str, object]) -> str:
        name = text(table, place, value)
        if name not in own and not _ships(name):
            path = self.folder / name
            machine(path if name.lower().endswith(".toml") else name)  # its error names the machines that exist
        return name

    def _check_figures(self, points: tuple[Point, ...]) -> None:
        """Refuse a figure that no point can have: a mistake in the file, not a corner of the space."""
        doubtful: dict[str, SimdnnError] = {}
        good: set[str] = set()
        tried = set()
        for point in points:
            what = point.machine, repr(point.figures)
            if what in tried or good >= point.figures.keys():
                continue
            tried.add(what)
            try:
                what_if(point.path("machine") or point.machine, point.figures)
                good |= point.figures.keys()
            except SimdnnError as error:
                doubtful |= dict.fromkeys(point.figures, error)
        for key, reason in doubtful.items():
            if key not in good:
                raise reason


def _keys(options: list[Bindings]) -> set[str]:
    return {key for option in options for key in option}


def _ships(name: str) -> bool:
    return machine_file(name) is not None


def _flat(table: Table, data: Mapping[str, object], prefix: str = "", deep: int = 0) -> Iterator[tuple[str, object]]:
    """Dotted keys with their values, from tables in each other."""
    if deep > _DEEPEST:
        raise table.error(prefix, f"at most {_DEEPEST} tables in each other", "more")
    for key, value in data.items():
        path = f"{prefix}.{key}" if prefix else str(key)
        if isinstance(value, dict):
            yield from _flat(table, value, path, deep + 1)
        else:
            yield path, value


def _figure(table: Table, place: str, value: object, deep: int = 0) -> object:
    """A value that a machine's file can hold; whether it fits is for the machine's schema to say."""
    if isinstance(value, list) and deep < 3:
        return [_figure(table, place, item, deep + 1) for item in value]
    if not isinstance(value, _SCALARS) or type(value) is int and value.bit_length() > 64:
        raise table.error(place, "a number, a text, true or false, or a list of them", value)
    return value


def _plain(value: Any) -> Any:
    """Python's and NumPy's values as TOML would give them."""
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple, range)) or isinstance(value, np.ndarray) and value.ndim:
        if len(value) > MOST_POINTS:
            raise InvalidArgument(f"a list of {len(value)} values in a study; at most {MOST_POINTS} points are run")
        return [_plain(item) for item in value]
    if isinstance(value, (np.generic, np.ndarray)):
        return value.item()
    return str(value) if isinstance(value, Path) else value
