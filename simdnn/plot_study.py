"""Pictures of design spaces, from the frames of `study.explore`.

Each function draws into `ax`, or into a new figure of pyplot's, and returns the Axes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import cycle
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.colors import LogNorm
from matplotlib.lines import Line2D

from isa_models import InvalidArgument
from simdnn.networks.precision import CHOICES
from simdnn.plot.canvas import (
    MOST_NAMED,
    POINTS_SIZE,
    STYLES,
    SYMBOLS,
    colors,
    columns_of,
    figure_of,
    ink,
    legend,
    new_axes,
    sizes_apart,
    ticks_at,
)
from simdnn.study.exploration import quality_of

MOST_BARS = 60
GREY = "#c4c4c4"  # of lines beyond those that have names
HEAP = 4.0  # pixels within which points lie in one place
MOST_CELLS = 20  # of a heat map that have their value written, along each side
LONGEST_BESIDE = 24  # letters of a name in a legend beside the axes
_UNITS = {
    "gops": "speed (1e9 operations a second)",
    "gb_s": "memory traffic (1e9 bytes a second)",
    "cycles": "cycles",
    "cycles_per_iteration": "cycles an iteration",
    "speed_up": "speed-up",
    "sqnr_db": "signal to error against f32 (dB)",
    "worst_layer_sqnr_db": "signal to error against f32, worst layer (dB)",
    "accuracy": "accuracy (share of samples)",
    "max_abs": "largest error",
    "time_us": "modelled time (us)",
}


def plot_front(
    frame: pd.DataFrame, axes: Sequence[str] | None = None, quality: str | None = None, ax: Axes | None = None
) -> Axes:
    """Quality against time, better ones higher up: a mark for each way to compute, a colour for all else that varies.
    Without `axes` and `quality`, the study's own axes, and its accuracy or ratio of signal to error.

    Points with a ring are on the Pareto front of their problem and machine, which the dotted steps of their colour
    draw. Points in one place are drawn one inside the other. What is exact has no finite ratio of signal to error; such
    points stand on the upper edge.
    """
    axes, quality = _axes(frame, axes), quality or quality_of(frame)
    if quality is None:
        raise InvalidArgument("no column tells a quality; values = true in [study] adds errors, plot_space draws speed")
    how = [axis for axis in axes if axis in CHOICES]
    others = [axis for axis in axes if axis not in CHOICES]
    shown = _shown(frame, ["time_us", quality], axes)
    shown = shown[np.isfinite(shown["time_us"].astype(float))]
    if shown.empty:
        raise InvalidArgument("no point has a finite time_us; nothing to draw")
    shown = shown if "pareto" in shown else shown.assign(pareto=False)
    ax = ax if ax is not None else new_axes()
    top = _frame_of_front(ax, shown["time_us"].astype(float), shown[quality])
    palette = dict(zip((name for name, _ in _groups(shown, others)), colors(), strict=False))
    marks = dict(zip((name for name, _ in _groups(shown, how)), cycle(SYMBOLS), strict=False))
    drawn = []
    for name, part in _groups(shown, others):
        best = part[part["pareto"].astype(bool)].sort_values("time_us")
        if len(best) > 1:
            height = best[quality].clip(upper=top)
            ax.plot(best["time_us"], height, ":", drawstyle="steps-post", color=palette[name], linewidth=1.0, zorder=2)
        drawn += [(name, way, row) for way, points in _groups(part, how) for row in points.to_dict("records")]
    places = [(float(row["time_us"]), min(float(row[quality]), top)) for _, _, row in drawn]
    for (name, way, row), (x, y), size in zip(drawn, places, sizes_apart(ax, places, 150), strict=True):
        edge, width = (ink(), 1.4) if row["pareto"] else ("white", 0.7)
        ax.scatter(x, y, s=size, marker=marks[way], color=palette[name], edgecolors=edge, linewidths=width, zorder=3)
    _name_heaps(ax, [(name, way) for name, way, _ in drawn], places)
    if np.isposinf(shown[quality]).any():
        ax.axhline(top, color="grey", linewidth=0.7, linestyle="--")
        ax.annotate("exact", (0.01, top), (0, 2), ("axes fraction", "data"), "offset points", color="grey")
    ax.set_xlabel(_unit("time_us") + " (ringed: none is faster and better)")
    ax.set_ylabel(_unit(quality))
    keys = [Line2D([], [], marker="s", linestyle="none", color=palette[name], label=name) for name in palette if name]
    keys += [Line2D([], [], marker=marks[way], linestyle="none", color="grey", label=way) for way in marks if way]
    _keys(ax, keys)
    return ax


def _frame_of_front(ax: Axes, times: pd.Series[float], quality: pd.Series[float]) -> float:
    """Limits with room around all points; the height at which what is exact stands, above all others."""
    finite = quality[np.isfinite(quality)]
    low, high = (finite.min(), finite.max()) if len(finite) else (0.0, 0.0)
    margin = max(0.15 * (high - low), 1.0 if str(quality.name).endswith("sqnr_db") else 0.01)
    top = float(high + margin)
    _logarithmic(ax, times)
    least, most = times.min(), times.max()
    if ax.get_xscale() == "log":
        wide = (most / least) ** 0.06
        ax.set_xlim(least / wide, most * wide)
    else:
        wide = 0.06 * (most - least) or 1
        ax.set_xlim(least - wide, most + wide)
    ax.set_ylim(low - margin, top + (0.06 * (top - low + margin) if np.isposinf(quality).any() else 0.0))
    return top


def _name_heaps(ax: Axes, names: Sequence[tuple[str, str]], places: Sequence[tuple[float, float]]) -> None:
    """Beside points that lie in one place, what is equal there."""
    heaps: list[tuple[Any, list[int]]] = []
    for number, pixel in enumerate(ax.transData.transform(np.reshape(places, (-1, 2)))):
        near = next((members for at, members in heaps if np.hypot(*(at - pixel)) < HEAP), None)
        if near is None:
            heaps.append((pixel, [number]))
        else:
            near.append(number)
    for _, members in heaps:
        ways = list(dict.fromkeys(names[number][1] for number in members))
        groups = list(dict.fromkeys(names[number][0] for number in members))
        same = ways if len(ways) > 1 else groups
        if len(members) > 1 and len(same) > 1 and len(heaps) <= MOST_NAMED:
            text = " = ".join(same) if len(same) <= 3 else f"{same[0]} = … = {same[-1]} ({len(same)})"
            x, y = places[members[0]]
            left = ax.transAxes.inverted().transform(ax.transData.transform((x, y)))[0] > 0.7
            offset = (-8, -14) if left else (8, -14)
            ax.annotate(
                text,
                (x, y),
                offset,
                textcoords="offset points",
                ha="right" if left else "left",
                fontsize="x-small",
                parse_math=False,
            )


def plot_space(
    frame: pd.DataFrame, axes: Sequence[str] | None = None, measure: str | None = None, ax: Axes | None = None
) -> Axes:
    """A measure over the axis with most numbers, a line for each combination of the others; bars without one.
    Without `axes` and `measure`, the study's own axes, and its speed or cycles.

    Lines that lie on each other differ in the size of their marks: later ones are smaller. Of more than there are names
    for, those that reach highest are named, and all others are grey. Lines that span more than a factor of a hundred
    go by a logarithmic scale.
    """
    axes, measure = _axes(frame, axes), measure or ("gops" if "gops" in frame else "cycles")
    shown = _shown(frame, [measure], axes)
    numbers = [axis for axis in axes if _is_number(shown[axis])]
    if not numbers:
        return _bars(shown.head(MOST_BARS), axes, measure, ax)
    ax = ax if ax is not None else new_axes()
    across = max(numbers, key=lambda axis: shown[axis].nunique())
    keys = []
    lines = list(_groups(shown, [axis for axis in axes if axis != across]))
    lines, lower = _highest(lines, measure)
    for _, part in lower:
        part = part.sort_values(across)
        ax.plot(part[across].astype(float), part[measure], color=GREY, linewidth=0.6, zorder=1)
    looks = zip(lines, colors(), cycle(STYLES), cycle(SYMBOLS), strict=False)
    for place, ((name, part), color, style, mark) in enumerate(looks):
        part = part.sort_values(across)
        size = max(9.0 - 1.5 * place, 3.0) if len(lines) <= MOST_NAMED else 3.0
        across_values = part[across].astype(float)
        keys += ax.plot(across_values, part[measure], style, marker=mark, markersize=size, color=color, label=name)
    if lower:
        keys.append(Line2D([], [], color=GREY, linewidth=0.6, label=f"{len(lower)} lower ones"))
    ax.set_xlabel(_unit(across), parse_math=False)
    ax.set_ylabel(_unit(measure))
    tops = [part[measure].max() for _, part in (*lines, *lower)]
    if 0 < 100 * min(tops) < max(tops) and (shown[measure] > 0).all():
        ax.set_yscale("log")
    else:
        ax.set_ylim(bottom=0)
    ticks_at(ax, shown[across].astype(float))
    _keys(ax, [key for key in keys if key.get_label()])
    return ax


def _highest(
    lines: Sequence[tuple[str, pd.DataFrame]], measure: str
) -> tuple[list[tuple[str, pd.DataFrame]], list[tuple[str, pd.DataFrame]]]:
    """The lines that get a name, those that reach highest first, and all others; few ones stay in their order."""
    if len(lines) <= MOST_NAMED:
        return list(lines), []
    high = sorted(lines, key=lambda line: -float(line[1][measure].max()))
    return high[: MOST_NAMED - 1], high[MOST_NAMED - 1 :]


def plot_heat(frame: pd.DataFrame, x: str, y: str, value: str, ax: Axes | None = None) -> Axes:
    """A measure over two variables of a study as a heat map: a column for each value of `x`, a row for each of `y`.

    Numbers are in their order, names in that of the frame. A cell without a figure stays empty. Values that span more
    than a factor of a hundred are coloured by their logarithm. Raises `InvalidArgument` where several points fall into
    one cell: another axis varies there, and `frame[frame.AXIS == …]` picks one of its values.
    """
    if len({x, y, value}) < 3:
        raise InvalidArgument(f"x={x!r}, y={y!r}, value={value!r}; three different columns are needed")
    shown = _shown(frame, [value, x, y])
    shown = shown[np.isfinite(pd.to_numeric(shown[value], errors="coerce"))]
    if shown.empty:
        raise InvalidArgument(f"no point has a finite {value}; nothing to draw")
    twice = shown[shown.duplicated([x, y], keep=False)]
    if len(twice):
        first = twice.iloc[0]
        other = [str(c) for c in frame.attrs.get("axes", ()) if c not in (x, y) and twice[c].nunique() > 1]
        raise InvalidArgument(
            f"{len(twice)} points share cells, as at {x}={first[x]} {y}={first[y]}; a map has one in each: "
            f"pick one value of {' and '.join(other) or 'what else varies'}"
        )
    columns, rows = _in_order(shown[x]), _in_order(shown[y])
    values = shown.pivot(index=y, columns=x, values=value).reindex(index=rows, columns=columns).to_numpy(np.float64)
    if ax is None:
        ax = new_axes((min(max(5.0, 0.7 * len(columns) + 2.5), 14.0), min(max(3.2, 0.45 * len(rows) + 1.5), 12.0)))
    low, high = np.nanmin(values), np.nanmax(values)
    norm = LogNorm(low, high) if 0 < 100 * low < high else None
    image = ax.imshow(values, origin="lower", aspect="auto", interpolation="nearest", cmap="viridis", norm=norm)
    figure_of(ax).colorbar(image, ax=ax, label=_unit(value))
    for way, places in ((ax.xaxis, columns), (ax.yaxis, rows)):
        step = -(-len(places) // MOST_NAMED)
        way.set_ticks(range(0, len(places), step), [_text(place) for place in places[::step]], parse_math=False)
    if max(map(len, map(_text, columns))) > 6 and len(columns) > 5:
        ax.tick_params(axis="x", labelrotation=45)
    if max(values.shape) <= MOST_CELLS:
        for (row, column), number in np.ndenumerate(values):
            if np.isfinite(number):
                red, green, blue, _ = image.cmap(image.norm(number))  # light letters on what is dark
                color = "white" if 0.3 * red + 0.6 * green + 0.1 * blue < 0.5 else "black"
                ax.text(column, row, f"{number:.3g}", ha="center", va="center", color=color, fontsize="small")
    ax.set_xlabel(_unit(x), parse_math=False)
    ax.set_ylabel(_unit(y), parse_math=False)
    return ax


def _bars(shown: pd.DataFrame, axes: Sequence[str], measure: str, ax: Axes | None) -> Axes:
    names = [name for _, row in shown.iterrows() for name, _ in _groups(row.to_frame().T, axes)]
    ax = ax if ax is not None else new_axes((POINTS_SIZE[0], max(2.5, 0.25 * len(shown) + 1)))
    ax.barh(range(len(shown)), shown[measure], color=next(colors()))
    ax.set_yticks(range(len(shown)), names, fontsize=8, parse_math=False)
    ax.set_ylim(len(shown) - 0.4, -0.6)
    ax.set_xlabel(_unit(measure))
    return ax


def _axes(frame: pd.DataFrame, axes: Sequence[str] | None) -> Sequence[str]:
    """The axes given, else the study's own."""
    if axes is None and "axes" not in frame.attrs:
        raise InvalidArgument("axes: the frame has lost its study's (frame.attrs); the columns that vary are needed")
    return frame.attrs["axes"] if axes is None else axes


def _shown(frame: pd.DataFrame, figures: Sequence[str], axes: Sequence[str] = ()) -> pd.DataFrame:
    """The points that have figures; `InvalidArgument` where none has."""
    shown = columns_of(frame, [*figures, *axes]).dropna(subset=list(figures))
    if shown.empty:
        raise InvalidArgument("no point has figures; nothing to draw")
    return shown


def _unit(name: str) -> str:
    """The label of an axis: the words and the unit of a measure that is known, else the column's own name."""
    return _UNITS.get(name, name)


def _in_order(column: pd.Series[Any]) -> list[Any]:
    values = list(dict.fromkeys(column))
    return sorted(values) if all(isinstance(value, (int, float, np.number)) for value in values) else values


def _text(value: Any) -> str:
    return f"{value:,.6g}" if isinstance(value, (float, np.floating)) else str(value)


def _groups(frame: pd.DataFrame, axes: Sequence[str]) -> Iterator[tuple[str, pd.DataFrame]]:
    """Points alike in some axes, with a name that says their values."""
    if not axes:
        yield "", frame
        return
    for values, part in frame.groupby(list(axes), sort=False, dropna=False):
        said = [
            _axis_text(axis, value) for axis, value in zip(axes, values, strict=True) if value == value
        ]  # NaN: left out
        yield " ".join(said) or "as it is", part


def _axis_text(axis: str, value: Any) -> str:
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


def _logarithmic(ax: Axes, values: pd.Series[float]) -> None:
    """A logarithmic scale across where the values want one."""
    if 0 < 10 * values.min() < values.max():
        ax.set_xscale("log")


def _keys(ax: Axes, keys: Sequence[Any]) -> None:
    """A grid, and a legend to the right, or below where names are long."""
    ax.grid(alpha=0.3)
    ax.set_axisbelow(True)
    legend(ax, keys, below=bool(keys) and max(len(key.get_label()) for key in keys) > LONGEST_BESIDE)
