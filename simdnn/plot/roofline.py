"""The roofline of a machine: what its units and each level of its memory allow, and what kernels reach."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import cycle
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from isa_models import GpuMachine, InvalidArgument, Machine, SimdnnError
from isa_models import machine as machine_of
from isa_models.errors import counted
from isa_models.keywords import keywords
from simdnn.networks.result import NetworkEstimate
from simdnn.plot.canvas import MOST_NAMED, STYLES, SYMBOLS, color, columns_of, finite, ink, legend, new_axes
from simdnn.plot.costs import Costed, named
from simdnn.primitives.result import Estimate
from simdnn.timing.cpu.peak import peak_macs_per_cycle

_TYPES = ("f32", "tf32", "bf16", "f16", "s8")
NEAR = 1.15  # by which the operations a byte of two levels differ that are drawn one inside the other
_FEW = 6  # points that have the names of levels beside them
_LETTER, _LINE = 0.011, 0.08  # width and height that a name takes, in parts of the axes
_MOST_LABELLED = 12  # points that have their name beside them


@dataclass(frozen=True)
class Reached:
    """The point that a kernel reaches: operations a byte of each level that moves any, and 1e9 operations a second."""

    name: str
    group: str  # points of one have one marker
    gops: float
    intensity: dict[str, float]


@keywords
def plot_roofline(results: Any, machine: Any = None, ax: Axes | None = None) -> Axes:
    """Speed against operations a byte, under the roofs of a machine: one for each compute type and memory level.

    `results`: a Result, an Estimate or a NetworkResult (a point for each node with products), a list of them, a mapping
    from names to them, or a frame with `gops` and `ai_ops_per_byte` (and a name in `layer`, `name` or `mode`). Each
    result has a point for each level that moves bytes, joined by a line: hierarchical, in the level's colour. Roofs are
    those of as many cores as the results ran on; compute types that nothing uses are drawn thin. `machine`: by default
    the one of the results; a frame needs it, or one machine's name in its column `machine`.
    """
    if isinstance(results, pd.DataFrame):
        points, used, threads = _of_frame(results), set[tuple[str, str]](), 1
        target = _machine(machine, list(results["machine"].unique()) if "machine" in results else ())
    else:
        given = named(results)
        points = [point for name, result in given.items() for point in _points(name, result)]
        used = {pair for result in given.values() for pair in _computed(result)}
        machines = {result.machine for result in given.values() if hasattr(result, "machine")}
        target = _machine(machine, sorted(machines, key=lambda one: str(one.name)))
        threads = max((getattr(result, "threads", 1) for result in given.values()), default=1)
    if not points:
        raise InvalidArgument("no result has multiply-accumulates and a time; nothing to draw")
    ax = ax if ax is not None else new_axes((8.5, 5.2))
    memory, compute = levels(target, threads), peaks(target, threads, used)
    styles = {name: color(place) for place, name in enumerate(memory)}
    across = [value for point in points for value in point.intensity.values()]
    ridges = [max(compute.values()) / rate for rate in memory.values()]
    low, high = min([*across, *ridges]) / 4, max([*across, *ridges]) * 8
    bottom = min([*(point.gops for point in points), *(rate * min(across) for rate in memory.values())]) / 3
    ax.set_xscale("log")
    ax.set_yscale("log")
    ax.set_xlim(low, high)
    ax.set_ylim(bottom, 2.2 * max(*compute.values(), *(point.gops for point in points)))
    _roofs(ax, memory, compute, styles, used, (low, high))
    groups = list(dict.fromkeys(point.group for point in points))
    marks = dict(zip(groups, cycle(SYMBOLS if len(groups) <= len(SYMBOLS) else "o"), strict=False))
    _draw(ax, points, styles, marks)
    ax.set_xlabel("operations a byte moved by a level")
    ax.set_ylabel("speed (1e9 operations a second)")
    cores = "" if isinstance(target, GpuMachine) else f", {counted(threads, 'core')}"
    ax.set_title(f"{target.title or target.name}{cores}", parse_math=False, fontsize="medium")
    ax.grid(alpha=0.3, which="major")
    named_marks = marks if len(marks) > 1 or len(points) == 1 else {}
    legend(ax, _keys(memory, styles, named_marks))
    return ax


def _keys(memory: Mapping[str, float], styles: Mapping[str, Any], marks: Mapping[str, str]) -> list[Line2D]:
    """The legend's entries: memory levels with their rates, then results by their marks, or how many those are."""
    keys = [
        Line2D([], [], color=styles[name], linestyle=style, marker=".", label=f"{name}: {_figure(rate)} GB/s")
        for (name, rate), style in zip(memory.items(), cycle(STYLES), strict=False)
    ]
    shown = marks if len(marks) <= len(SYMBOLS) else {f"{len(marks)} results": "o"}
    return keys + [
        Line2D([], [], color="grey", marker=mark, linestyle="none", label=name) for name, mark in shown.items()
    ]


def levels(machine: Machine | GpuMachine, threads: int = 1) -> dict[str, float]:
    """1e9 bytes a second that each memory level hands to a number of cores (a GPU: to all)."""
    if isinstance(machine, GpuMachine):
        cores = machine.xe_cores * machine.stacks
        caches = {"L1": machine.l1, "L2": machine.l2}
        found = {name: cache.bytes_per_cycle * cores * machine.ghz for name, cache in caches.items()}
        return found | {"DRAM": machine.sustained_gb_s * machine.stacks}
    ghz = machine.frequency.ghz(512 if machine.supports("avx512_core") else 256)
    found = {cache.name: cache.beside(ghz).load_bytes_per_cycle * ghz * threads for cache in machine.caches}
    return found | {"DRAM": min(machine.dram.gb_s_core * threads, machine.dram.gb_s_socket)}


def peaks(
    machine: Machine | GpuMachine, threads: int = 1, used: set[tuple[str, str]] | None = None
) -> dict[tuple[str, str], float]:
    """1e9 operations a second by compute type and ISA cap: of what is used, and of each type at the machine's best."""
    found = {}
    best = machine.isa[-1] if isinstance(machine, Machine) else machine.platform.name
    wanted = sorted(used or ()) + [(kind, best) for kind in _TYPES if kind not in {kind for kind, _ in used or ()}]
    for kind, isa in wanted:
        try:
            macs = peak_macs_per_cycle(machine, kind, isa)
        except (SimdnnError, KeyError):
            continue  # the machine has no unit for it
        if isinstance(machine, GpuMachine):
            found[kind, isa] = 2 * macs * machine.ghz
        else:
            tiles = "amx" in isa and kind != "f32"
            found[kind, isa] = 2 * macs * machine.frequency.ghz(512 if "avx512" in isa else 256, tiles=tiles) * threads
    if not found:
        raise InvalidArgument(f"{machine.name}: no unit for any of {', '.join(_TYPES)} is known")
    return found


def _machine(given: Any, of_results: Sequence[Any]) -> Machine | GpuMachine:
    """The machine whose roofs are drawn."""
    if given is not None:
        return machine_of(Path(given) if isinstance(given, PathLike) else given)
    names = [one if isinstance(one, str) else str(one.name) for one in of_results]
    if len(names) != 1:
        met = f"results of {', '.join(names)}" if names else "a frame without a machine"
        raise InvalidArgument(f"{met}: one machine's roofs are drawn; machine=NAME picks it")
    return machine_of(of_results[0]) if isinstance(of_results[0], str) else of_results[0]


def _points(name: str, result: Costed) -> list[Reached]:
    if isinstance(result, Estimate):
        ops = 2.0 * result.problem.macs
        return [_point(name, name, ops, result.seconds, {lv.level: lv.bytes for lv in result.cost.levels})]
    found = []
    if isinstance(result, NetworkEstimate):
        for run in result.nodes:
            if run.macs:
                moved: dict[str, float] = {}
                for call in run.calls:
                    for level in call.find_cost().levels:
                        moved[level.level] = moved.get(level.level, 0.0) + level.bytes
                found.append(_point(run.node.name or run.node.op, name, 2.0 * run.macs, run.cost.seconds, moved))
    return found


def _point(name: str, group: str, ops: float, seconds: float, moved: dict[str, float]) -> Reached:
    return Reached(name, group, 1e-9 * ops / seconds, {level: ops / size for level, size in moved.items() if size})


def _computed(result: Costed) -> set[tuple[str, str]]:
    """The compute types that a result used, with the ISA cap of each kernel."""
    if isinstance(result, Estimate):
        return {(result.compute_dtype, result.isa)}
    return set()


def _of_frame(frame: pd.DataFrame) -> list[Reached]:
    columns_of(frame, ("gops", "ai_ops_per_byte"))
    shown = finite(frame, ["gops", "ai_ops_per_byte"], above=0.0)
    column = next((c for c in ("layer", "name", "node", "mode") if c in shown), None)
    group = "mode" if "mode" in shown else None
    return [
        Reached(
            str(row[column]) if column else "",
            str(row[group]) if group else "",
            float(row["gops"]),
            {"": float(row["ai_ops_per_byte"])},
        )
        for row in shown.to_dict("records")
    ]


def _roofs(
    ax: Axes,
    memory: dict[str, float],
    compute: dict[tuple[str, str], float],
    styles: dict[str, Any],
    used: set[tuple[str, str]],
    span: tuple[float, float],
) -> None:
    top = max(compute.values())
    for (name, rate), style in zip(memory.items(), cycle(STYLES), strict=False):
        ax.plot([span[0], top / rate], [span[0] * rate, top], style, color=styles[name], linewidth=1.5, label=name)
    fastest = max(memory.values())
    heights = list[float]()
    for (kind, isa), peak in sorted(compute.items(), key=lambda item: -item[1]):
        bold = (kind, isa) in used or not used
        ax.plot(
            [peak / fastest, span[1]],
            [peak, peak],
            color=ink(),
            linewidth=1.5 if bold else 0.6,
            alpha=1 if bold else 0.5,
        )
        same = [f"{k}" for (k, _), other in compute.items() if abs(other / peak - 1) < 0.02]
        if all(abs(np.log(peak / other)) > 0.02 for other in heights):
            words = f"{', '.join(dict.fromkeys(same))}: {_figure(peak)}"
            ax.annotate(words, (span[1], peak), (-3, 2), textcoords="offset points", ha="right", fontsize="small")
            heights.append(peak)


def _draw(ax: Axes, points: Sequence[Reached], styles: dict[str, Any], marks: dict[str, str]) -> None:
    many = len(points) > MOST_NAMED
    size, edge = (4.0, 0.3) if many else (8.0, 0.7)
    for point in points:
        places = sorted((value, level) for level, value in point.intensity.items())
        across, up = [value for value, _ in places], [point.gops] * len(places)
        if len(places) > 1:
            ax.plot(across, up, color="grey", linewidth=0.4 if many else 0.8, zorder=2)
        heap: list[float] = []  # levels that move nearly the same
        for value, level in places:
            heap = [*heap, value] if heap and value < heap[0] * NEAR else [value]
            inner = size * 0.6 ** (len(heap) - 1)
            mark = ax.plot(value, point.gops, marks[point.group], color=styles.get(level, color(0)), markersize=inner)
            mark[0].set(markeredgecolor=ink(), markeredgewidth=edge, zorder=3)
    if len(points) <= _FEW:
        _name_levels(ax, points, list(styles))
    if 1 < len(points) <= _MOST_LABELLED and len(marks) == 1:
        for point in points:
            right = max(point.intensity.values(), default=1.0)
            beside: dict[str, Any] = {"textcoords": "offset points", "fontsize": "x-small", "parse_math": False}
            ax.annotate(point.name, (right, point.gops), (6, -3), **beside)


def _name_levels(ax: Axes, points: Sequence[Reached], levels: Sequence[str]) -> None:
    """Names of levels above each point's marks, one text for marks that lie too near for two; below where another point
    lies just above.
    """
    within = ax.transData + ax.transAxes.inverted()
    heights = [float(within.transform((1.0, point.gops))[1]) for point in points]
    for point, height in zip(points, heights, strict=True):
        heaps: list[tuple[list[float], list[str]]] = []
        for value, level in sorted((value, level) for level, value in point.intensity.items() if level):
            at = float(within.transform((value, point.gops))[0])
            if heaps and at - heaps[-1][0][-1] < _LETTER * (len(", ".join(heaps[-1][1])) + len(level) + 2) / 2:
                heaps[-1][0].append(at)
                heaps[-1][1].append(level)
            else:
                heaps.append(([at], [level]))
        below = any(0 < other - height < _LINE for other in heights)
        for places, names in heaps:
            middle = within.inverted().transform(((places[0] + places[-1]) / 2, height))
            text = ", ".join(level for level in levels if level in names)
            how: dict[str, Any] = {"textcoords": "offset points", "ha": "center", "fontsize": "x-small"}
            ax.annotate(text, (float(middle[0]), point.gops), (0, -14 if below else 7), **how)


def _figure(value: float) -> str:
    return f"{value:,.0f}" if value >= 1000 else f"{value:.3g}"
