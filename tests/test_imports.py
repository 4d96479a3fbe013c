"""Imports run down only, as CONTRIBUTING.md says: between packages and modules of simdnn there is no circle."""

from __future__ import annotations

import ast
import functools
from collections import defaultdict
from collections.abc import Iterator
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

from tests.sources import parsed, statements

ROOT = Path(__file__).parents[1]
PACKAGES = ("isa_models", "simdnn", "workloads")


#: what stands on each floor, the highest first; `simdnn` itself, the facade, offers the names of what lies below
FLOORS = (
    {"simdnn.cli", "simdnn.__main__"},
    {
        "simdnn.study",
        "simdnn.benchdnn",
        "simdnn.assembly",
        "simdnn.calibration",
        "simdnn.teach",
        "simdnn.plot",
        "simdnn.plot_study",
        "simdnn.reporting",
        "simdnn.tuning",
    },
    {"simdnn.networks", "simdnn.operators", "simdnn.exactness", "simdnn.quantize"},
    {"simdnn.primitives"},
    {"simdnn.explanations"},
    {"simdnn.kernels", "simdnn.numerics", "simdnn.timing"},
    {"simdnn.libraries", "simdnn.kernels.common"},
    {"simdnn.program"},
    {
        "isa_models",
        "workloads",
        "simdnn.files",
        "simdnn.frames",
        "simdnn.garbage",
        "simdnn.late",
        "simdnn.progress",
        "simdnn.verbose",
        "simdnn.version",
        "simdnn.workers",
    },
)


def unit(module: str) -> str:
    """The unit that a module belongs to: isa_models, workloads, or a package or module right below simdnn.

    Words that all kernels share are apart from the rows that use them, as libraries stand in between.
    """
    if module.startswith("simdnn.kernels.common."):
        return "simdnn.kernels.common"
    return ".".join(module.split(".")[: 2 if module.startswith("simdnn.") else 1])


def imported(tree: ast.Module) -> Iterator[str]:
    """The modules that a file imports at run time, within functions too."""
    for_types = {
        id(within)
        for node in statements(tree)
        if isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"
        for one in node.body
        for within in statements(one)
    }
    for node in statements(tree):
        if id(node) in for_types:
            continue
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


@functools.cache
def imports_of(path: Path) -> frozenset[str]:
    return frozenset(imported(parsed(path)))


@pytest.fixture(scope="module")
def edges() -> dict[str, set[str]]:
    found: dict[str, set[str]] = defaultdict(set)
    for package in PACKAGES:
        for path in (ROOT / package).rglob("*.py"):
            own = unit(".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"))
            for other in imports_of(path):
                if other.split(".")[0] in PACKAGES and unit(other) != own:
                    found[own].add(unit(other))
    return found


def test_imports_run_down(edges: dict[str, set[str]]) -> None:
    """Units of one floor may know each other, but for kernels, numerics and timing; there is no circle."""
    floor = {unit: number for number, units in enumerate(FLOORS) for unit in units}
    known = {one: others - {"simdnn"} for one, others in edges.items() if one != "simdnn"}  # but the facade
    assert known.keys() | set().union(*known.values()) <= floor.keys()
    assert [(one, other) for one, others in known.items() for other in others if floor[other] < floor[one]] == []
    tuple(TopologicalSorter(known).static_order())


#: modules that import each other inside a function: codes of a format's values are rounded as instructions round
CIRCLE = {f"isa_models.{name}" for name in ("algebra", "formats", "readings.arrays", "rounding", "roundoff")}


def test_no_circle_hides_within_a_package() -> None:
    """No module reaches itself again by imports at run time, those inside functions as well; but one old circle."""
    found = {
        ".".join(path.relative_to(ROOT).with_suffix("").parts): set(imports_of(path))
        for package in PACKAGES
        for path in (ROOT / package).rglob("*.py")
        if path.name != "__init__.py"
    }
    names = {name: names | {one.rpartition(".")[0] for one in names} for name, names in found.items()}
    known = {name: others & names.keys() - {name} for name, others in names.items()}
    for one in CIRCLE:
        known[one] -= CIRCLE
    tuple(TopologicalSorter(known).static_order())


@pytest.mark.parametrize(
    ("one", "may"),
    [
        ("isa_models", set()),
        ("workloads", {"isa_models"}),
        ("simdnn.program", {"isa_models"}),
        ("simdnn.kernels.common", {"isa_models", "simdnn.program"}),
        ("simdnn.libraries", {"isa_models", "simdnn.kernels.common"}),
        ("simdnn.kernels", {"isa_models", "simdnn.program", "simdnn.kernels.common", "simdnn.libraries"}),
        ("simdnn.numerics", {"isa_models", "simdnn.program", "simdnn.progress"}),
        ("simdnn.timing", {"isa_models", "simdnn.program", "simdnn.late"}),
    ],
)
def test_what_each_floor_stands_on(edges: dict[str, set[str]], one: str, may: set[str]) -> None:
    assert edges[one] <= may


def test_kernels_of_one_target_know_no_other_targets() -> None:
    """x86 and the GPUs share what stands in `common`, which knows none of them."""
    rooms: dict[str, set[str]] = defaultdict(set)
    for path in (ROOT / "simdnn" / "kernels").rglob("*.py"):
        names = (name.split(".") for name in imports_of(path))
        rooms[path.parent.name] |= {parts[2] for parts in names if parts[:2] == ["simdnn", "kernels"]}
    gpus = {"gpu", "intel_gpu", "nvidia"}
    assert rooms["common"].isdisjoint({"x86", *gpus})
    assert rooms["x86"].isdisjoint(gpus)
    assert all("x86" not in rooms[name] for name in gpus)
    assert rooms["gpu"].isdisjoint({"intel_gpu", "nvidia"})
    assert "nvidia" not in rooms["intel_gpu"] and "intel_gpu" not in rooms["nvidia"]


def test_vendors_know_each_other_in_no_room() -> None:
    """Instructions' shared parts of both vendors' GPUs stand in `isa_models.gpu`, which knows neither."""
    rooms: dict[str, set[str]] = defaultdict(set)
    for path in (ROOT / "isa_models").rglob("*.py"):
        names = (name.split(".") for name in imports_of(path))
        rooms[path.parent.name] |= {parts[1] for parts in names if parts[:1] == ["isa_models"] and len(parts) > 1}
    assert rooms["gpu"].isdisjoint({"intel_gpu", "nvidia", "x86"})
    assert rooms["intel_gpu"].isdisjoint({"nvidia", "x86"}) and rooms["nvidia"].isdisjoint({"intel_gpu", "x86"})
