"""Pictures of design spaces, from the frames of `study.explore`. Each function returns the Axes; none shows it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import cycle
from typing import Any

import matplotlib
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from isa_models import InvalidArgument
from simdnn import plot
from simdnn.networks.precision import CHOICES

MOST_LINES = 20  # with a name in the legend
MOST_BARS = 60
MOST_TICKS = 10
LONGEST_BESIDE = 24  # letters of a name in a legend beside the axes
_UNITS = {
    "gops": "speed (1e9 operations a second)",
    "cycles": "cycles",
    "sqnr_db": "signal to error against f32 (dB)",
    "worst_layer_sqnr_db": "signal to error against f32, worst layer (dB)",
    "accuracy": "accuracy",
    "time_us": "modelled time (us)",
}


def plot_front(frame: pd.DataFrame, axes: Sequence[str], quality: str, ax: Axes | None = None) -> Axes:
    """Quality against time, better ones higher up: a mark for each way to compute, a colour for all else that varies.

    Points with a ring are on the Pareto front of their problem and machine. What is exact has no finite ratio of signal
    to error; such points stand on the upper edge.
    """
    how = [axis for axis in axes if axis in CHOICES]
    others = [axis for axis in axes if axis not in CHOICES]
    shown = _shown(frame, "time_us", quality)
    finite = shown[quality][np.isfinite(shown[quality])]
    span = finite.max() - finite.min() if len(finite) else 0.0
    top = (finite.max() if len(finite) else 0.0) + max(0.15 * span, 1.0 if quality.endswith("sqnr_db") else 0.01)
    ax = ax if ax is not None else plot.panels(1)[0]
    colors = dict(zip((name for name, _ in _groups(shown, others)), _colors(), strict=False))
    marks = dict(zip((name for name, _ in _groups(shown, how)), cycle("osD^vP<>Xph*"), strict=False))
    for place, (name, part) in enumerate(_groups(shown, others)):
        size = max(160 * 0.55**place, 25)  # so that marks at one place show as rings
        for way, points in _groups(part, how):
            height = points[quality].clip(upper=top)
            edges = ["black" if best else "none" for best in points["pareto"]]
            ax.scatter(
                points["time_us"],
                height,
                s=size,
                marker=marks[way],
                color=colors[name],
                edgecolors=edges,
                linewidths=1.2,
                zorder=3,
            )
    if np.isposinf(shown[quality]).any():
        ax.axhline(top, color="grey", linewidth=0.7, linestyle="--")
        ax.annotate("exact", (0.01, top), (0, 2), ("axes fraction", "data"), "offset points", color="grey")
        ax.set_ylim(top=top + 0.06 * (top - ax.get_ylim()[0]))
    ax.set_xlabel(_UNITS["time_us"] + " (ringed: none is faster and better)")
    ax.set_ylabel(_UNITS[quality])
    _logarithmic(ax, shown["time_us"])
    keys = [Line2D([], [], marker="s", linestyle="none", color=colors[name], label=name) for name in colors if name]
    keys += [Line2D([], [], marker=marks[way], linestyle="none", color="grey", label=way) for way in marks if way]
    _legend(ax, keys)
    return ax


def plot_space(frame: pd.DataFrame, axes: Sequence[str], measure: str, ax: Axes | None = None) -> Axes:
    """A measure over the axis with most numbers, a line for each combination of the others; bars without one."""
    shown = _shown(frame, measure)
    numbers = [axis for axis in axes if _is_number(shown[axis])]
    ax = ax if ax is not None else plot.panels(1)[0]
    if not numbers:
        shown = shown.head(MOST_BARS)
        names = [name for _, row in shown.iterrows() for name, _ in _groups(row.to_frame().T, axes)]
        ax.figure.set_size_inches(plot.POINTS_SIZE[0], max(2.5, 0.25 * len(shown) + 1))  # type: ignore[union-attr]
        ax.barh(range(len(shown)), shown[measure], color=next(_colors()))
        ax.set_yticks(range(len(shown)), names, fontsize=8, parse_math=False)
        ax.set_ylim(len(shown) - 0.4, -0.6)
        ax.set_xlabel(_UNITS[measure])
        return ax
    across = max(numbers, key=lambda axis: shown[axis].nunique())
    keys = []
    lines = _groups(shown, [axis for axis in axes if axis != across])
    for (name, part), color, style in zip(lines, _colors(), cycle(("-", "--", ":", "-.")), strict=False):
        part = part.sort_values(across)
        keys += ax.plot(part[across].astype(float), part[measure], style, marker=".", color=color, label=name)
    ax.set_xlabel(across, parse_math=False)
    ax.set_ylabel(_UNITS[measure])
    ax.set_ylim(bottom=0)
    _logarithmic(ax, shown[across].astype(float))
    if len(places := sorted(set(shown[across]))) <= MOST_TICKS:
        ax.set_xticks(places, [f"{place:g}" for place in places])
        ax.minorticks_off()
    _legend(ax, [key for key in keys if key.get_label()])
    return ax


def _shown(frame: pd.DataFrame, *columns: str) -> pd.DataFrame:
    """The points that have figures; `InvalidArgument` where none has."""
    if missing := [column for column in columns if column not in frame]:
        raise InvalidArgument(f"the frame lacks {', '.join(missing)}; it has {', '.join(map(str, frame.columns))}")
    shown = frame.dropna(subset=list(columns))
    if shown.empty:
        raise InvalidArgument("no point has figures; nothing to draw")
    return shown


def _groups(frame: pd.DataFrame, axes: Sequence[str]) -> Iterator[tuple[str, pd.DataFrame]]:
    """Points alike in some axes, with a name that says their values."""
    if not axes:
        yield "", frame
        return
    for values, part in frame.groupby(list(axes), sort=False, dropna=False):
        said = [_said(axis, value) for axis, value in zip(axes, values, strict=True) if value == value]  # NaN: left out
        yield " ".join(said) or "as it is", part


def _said(axis: str, value: Any) -> str:
    if isinstance(value, str) and "." not in axis:
        return value
    return f"{axis}={value:.12g}" if isinstance(value, float) else f"{axis}={value}"


def _is_number(column: pd.Series[Any]) -> bool:
    return (
        all(
            isinstance(value, (int, float, np.number)) and not isinstance(value, bool) and value == value
            for value in column
        )
        and column.nunique() > 1
    )


def _colors() -> Iterator[Any]:
    return cycle([*matplotlib.color_sequences["tab10"], *matplotlib.color_sequences["Dark2"]])


def _logarithmic(ax: Axes, values: pd.Series[float]) -> None:
    """A logarithmic scale across where the values want one."""
    if 0 < 10 * values.min() < values.max():
        ax.set_xscale("log")


def _legend(ax: Axes, keys: Sequence[Any]) -> None:
    """To the right, or below where names are long."""
    ax.grid(alpha=0.3)
    ax.set_axisbelow(True)
    if not keys:
        return
    more = f"and {len(keys) - MOST_LINES} more" if len(keys) > MOST_LINES else None
    longest = max(len(key.get_label()) for key in keys)
    below = longest > LONGEST_BESIDE
    place: Any = "outside lower center" if below else "outside right upper"
    columns = 2 if below and longest < 2 * LONGEST_BESIDE else 1
    found = ax.figure.legend(handles=keys[:MOST_LINES], title=more, fontsize=8, loc=place, ncols=columns)
    for text in found.get_texts():
        text.set_parse_math(False)
