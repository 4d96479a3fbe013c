"""Where cycles go: stacked bars by instruction or by cause, and the pressure on each port."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import EngFormatter

from isa_models import GpuMachine, InvalidArgument
from isa_models.errors import unknown_name
from isa_models.keywords import keywords
from simdnn.assembly.analysis import Analysis
from simdnn.plot.canvas import HATCHES, MOST_NAMED, color, figure_of, ink, legend, new_axes
from simdnn.plot.costs import cycles_by_cause, cycles_by_instruction, named, title
from simdnn.primitives.result import Estimate
from simdnn.timing.causes import CAUSES, LAUNCH, MEMORY, RESULTS

MOST_PARTS = 10  # of a stack that have a name each; the others are one
OTHERS = "others"
MOST_HATCHED = 60  # bars that are wide enough for hatches
_WAITS = (LAUNCH, RESULTS, MEMORY)
_BY = {"cause": cycles_by_cause, "instruction": cycles_by_instruction}


@keywords
def plot_cycles(results: Any, by: str = "instruction", ax: Axes | None = None) -> Axes:
    """Stacked bars of cycles, a bar a result: `by` "instruction", or by "cause" (what instructions are for).

    `results`: a Result, an Estimate or a NetworkResult, a list of them, or a mapping from names to them. The parts add
    up to the cycles of the run; what is waited for (results, memory, a GPU's launch) is hollow, on top. Causes are
    those of `Result.causes`.
    """
    if by not in _BY:
        raise unknown_name("by", by, _BY)
    bars = {name: _BY[by](result) for name, result in named(results).items()}
    parts = _parts(list(bars.values()))
    ax = ax if ax is not None else new_axes((min(max(5.5, 0.7 * len(bars) + 4.0), 15.0), 4.5))
    bottom = np.zeros(len(bars))
    handles = []
    for place, part in enumerate(parts):
        known = part if part != OTHERS else None
        height = np.array([_height(bar, known, parts) for bar in bars.values()])
        width = 1.0 if len(bars) > MOST_HATCHED else 0.8 if len(bars) > 1 else 0.5
        look = _look(part, place, hatched=len(bars) <= MOST_HATCHED)
        handles.append(ax.bar(range(len(bars)), height, width, bottom, label=part, linewidth=0.5, **look))
        bottom += height
    _names(ax, list(bars))
    ax.set_xlim(-0.8, len(bars) - 0.2)
    ax.set_ylim(0, 1.05 * max(bottom.max(), 1.0))
    ax.set_ylabel("cycles")
    ax.yaxis.set_major_formatter(EngFormatter())
    ax.grid(axis="y", alpha=0.3)
    ax.set_axisbelow(True)
    legend(ax, handles[::-1], title=f"by {by}")
    return ax


def _look(part: str, place: int, hatched: bool) -> dict[str, Any]:
    """Colours and hatch of a part, by its cause or its place; what is waited for is hollow, or grey without hatches."""
    waits, number = part in _WAITS, CAUSES.index(part) if part in CAUSES else place
    face = "none" if waits else color(number)
    if not hatched:
        return {"facecolor": "lightgrey" if waits else face, "hatch": "", "edgecolor": face}
    hatch = ("", "///", "...")[_WAITS.index(part)] if waits else HATCHES[number % len(HATCHES)]
    return {"facecolor": face, "hatch": hatch, "edgecolor": "grey" if waits else "white"}


def _parts(bars: Sequence[dict[str, float]]) -> list[str]:
    """The names in a stack from below: the largest, or in the order of causes; then others, then waits."""
    total: dict[str, float] = {}
    for bar in bars:
        for name, cycles in bar.items():
            total[name] = total.get(name, 0.0) + cycles
    work = [name for name in total if name not in _WAITS]
    largest = sorted(work, key=lambda name: -total[name])
    kept = largest[:MOST_PARTS] if len(work) > MOST_PARTS + 1 else work
    order = sorted(kept, key=CAUSES.index) if set(kept) <= set(CAUSES) else kept
    more = [OTHERS] if len(kept) < len(work) else []
    return [*order, *more, *(name for name in _WAITS if name in total)]


def _height(bar: dict[str, float], part: str | None, parts: Sequence[str]) -> float:
    if part is not None:
        return bar.get(part, 0.0)
    return sum(cycles for name, cycles in bar.items() if name not in parts)


def _names(ax: Axes, names: Sequence[str]) -> None:
    """The names of bars: all of them aslant where they are few, else one in several."""
    step = max(1, -(-len(names) // (2 * MOST_NAMED)))
    inches = ax.get_window_extent().width / figure_of(ax).dpi
    ax.set_xticks(range(0, len(names), step), names[::step], parse_math=False)
    if 0.085 * (max(map(len, names)) + 2) * len(names) / step > inches:
        steep = 25 if len(names) <= 6 else 60
        aslant: dict[str, Any] = {"rotation": steep, "ha": "right", "rotation_mode": "anchor"}
        for text in ax.get_xticklabels():
            text.set(**aslant)
        ax.tick_params(axis="x", labelsize="small" if len(names) <= MOST_NAMED else "x-small")


@keywords
def plot_ports(analysis_or_result: Analysis | Estimate, ax: Axes | None = None) -> Axes:
    """Port pressure: cycles of work on each port in an iteration of a loop, beside the cycles that the iteration takes.

    Takes what `simdnn.analyze` hands back, or a Result or Estimate, whose inner loop with most work is drawn; on a GPU
    the pipes of an engine, in a workgroup of the longest stage.
    """
    if isinstance(analysis_or_result, Estimate) and isinstance(analysis_or_result.machine, GpuMachine):
        ports, cycles, what = _pipes(analysis_or_result)
        name, each = title(analysis_or_result), "a workgroup"
    else:
        from simdnn.plot.timeline import loop_of

        loop = loop_of(analysis_or_result)
        ports, cycles, what = loop.timing.port_cycles, loop.timing.cycles, loop.timing.bound
        name, each = loop.title, "an iteration"
    busy = {port: work for port, work in ports.items() if work > 1e-9}
    if not busy:
        raise InvalidArgument(f"{name}: no port has any work in the loop; nothing to draw")
    ax = ax if ax is not None else new_axes((6.5, max(2.4, 0.32 * len(busy) + 1.4)))
    shares = [min(1.0, work / cycles) for work in busy.values()]
    full = [share >= 0.9 for share in shares]
    bars = ax.barh(range(len(busy)), list(busy.values()), 0.7, color=color(0), edgecolor=ink(), linewidth=0)
    for bar, share, is_full in zip(bars, shares, full, strict=True):
        if is_full:
            bar.set(hatch="///", facecolor=color(3), edgecolor="white")
        at = (bar.get_width(), bar.get_y() + bar.get_height() / 2)
        box = {"facecolor": ax.get_facecolor(), "edgecolor": "none", "pad": 1.0}
        inside: dict[str, Any] = {"xytext": (-4, 0), "ha": "right"} if share > 0.8 else {"xytext": (4, 0), "ha": "left"}
        ax.annotate(f"{share:.0%}", at, textcoords="offset points", va="center", fontsize="small", bbox=box, **inside)
    ax.axvline(cycles, color=ink(), linestyle="--", linewidth=1)
    ax.set_yticks(range(len(busy)), list(busy))
    ax.set_ylim(len(busy) - 0.4, -0.6)
    ax.set_xlim(0, 1.12 * max(cycles, *busy.values()))
    ax.set_xlabel(f"cycles of work in {each} (dashed: {cycles:,.4g} that it takes, {what})")
    ax.set_title(name, parse_math=False, fontsize="medium")
    ax.grid(axis="x", alpha=0.3)
    ax.set_axisbelow(True)
    return ax


def _pipes(estimate: Estimate) -> tuple[dict[str, float], float, str]:
    from simdnn.timing.gpu.estimate import gpu_time  # needed by pictures of GPUs alone

    kernel, machine = estimate.kernel, estimate.machine
    assert isinstance(machine, GpuMachine)
    stages = gpu_time(kernel.timed or kernel.program, machine, copies=dict(kernel.copies)).stages
    longest = max(stages, key=lambda stage: stage.stage.cycles * stage.stage.tiles)
    return dict(longest.engine.busy), longest.stage.cycles, longest.bound
