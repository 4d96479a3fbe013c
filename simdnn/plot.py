"""Pictures of study frames. Each function draws into `ax` (or a new figure's) and returns the Axes; none shows it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import cycle
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure, SubFigure
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray

from isa_models import InvalidArgument
from simdnn import files
from simdnn.networks.precision import MODES
from simdnn.study.pareto import pareto

_MARKERS = dict(zip(MODES, cycle("osD^vP<>Xph"), strict=False))
_COLORS = dict(zip(MODES, cycle(matplotlib.color_sequences["tab10"]), strict=False))  # pairs that do not recur
POINTS_SIZE = (7.5, 5.0)  # width and height in inches


def plot_accuracy_speed(frame: pd.DataFrame, ax: Axes | None = None) -> Axes:
    """Accuracy against speed: one point a mode, from the frame of `study.totals`.

    Across: the speed-up over f32. Up: a network's accuracy in percent where it was measured, else the signal-to-noise
    ratio in dB, of the worst layer where there are several; f32 is the reference there and is drawn as a line.
    """
    _need(frame, ("mode", "speed_up"))
    if "accuracy" in frame:
        label = f"accuracy on {int(frame['images'].iloc[0])} held-out samples"
        return plot_quality_speed(frame, "accuracy", label, ax, percent=True)
    column = "sqnr_db" if "worst_layer_sqnr_db" not in frame else "worst_layer_sqnr_db"
    whose = "" if column == "sqnr_db" else ", worst layer"
    ax = plot_quality_speed(frame, column, f"signal to error against f32{whose} (dB)", ax)
    if np.isposinf(frame[column]).any():
        ax.axvline(1, color=_COLORS["f32"], linestyle="--")
        foot = ax.get_xaxis_transform()  # x in data, y in parts of the axes
        ax.text(1.03, 0.03, "f32 (reference)", transform=foot, rotation=90, va="bottom", color=_COLORS["f32"])
    return ax


def plot_quality_speed(
    frame: pd.DataFrame,
    column: str,
    label: str,
    ax: Axes | None = None,
    *,
    percent: bool = False,
    higher_is_better: bool = True,
) -> Axes:
    """A quality against the speed-up over f32, better ones higher up: one point a mode; `percent` for shares.

    What is better where it is lower (errors, perplexities) is drawn by its logarithm where it spans more than a factor
    of ten. Points with a ring are the Pareto-optimal ones: no other mode is as good in both and better in one.
    """
    _need(frame, ("mode", "speed_up", column))
    ax = ax if ax is not None else _axes(POINTS_SIZE)
    points = frame.assign(y=frame[column] * (100 if percent else 1))
    points = points[np.isfinite(points["y"]) & np.isfinite(points["speed_up"])]
    points = points.assign(best=pareto(points["speed_up"], points["y"] if higher_is_better else -points["y"]))
    points = points.sort_values("y", ascending=not higher_is_better)
    ax.set_ylabel(f"{label} (%)" if percent else label)
    ax.set_xlabel("speed-up over f32 (more is faster; ringed: none is better in both)")
    ax.set_xlim(0, 1.25 * max([1.0, *points["speed_up"]]))
    _pad_y(ax, list(points["y"]), top=100.0 if percent else None)
    if not higher_is_better:
        if 0 < 10 * points["y"].min() < points["y"].max():
            ax.set_yscale("log")
            margin = (points["y"].max() / points["y"].min()) ** 0.15
            ax.set_ylim(points["y"].min() / margin, points["y"].max() * margin)
        ax.invert_yaxis()
    ax.grid(alpha=0.3)
    for point in points.itertuples():
        color, marker = _COLORS.get(str(point.mode)), _MARKERS.get(str(point.mode))
        ring = "black" if point.best else "none"
        ax.scatter(point.speed_up, point.y, s=80, color=color, marker=marker, edgecolor=ring, alpha=0.8, zorder=3)
    _label(ax, [(str(p.mode), float(p.speed_up), float(p.y)) for p in points.itertuples()])
    return ax


def plot_pictures(pictures: Mapping[str, NDArray[np.uint8]]) -> Axes:
    """Pictures (H, W, 3) side by side, each under its name; the first one's Axes."""
    if not pictures:
        raise InvalidArgument("no pictures; nothing to draw")
    axes = panels(len(pictures), (2.6, 2.9))
    for ax, (name, values) in zip(axes, pictures.items(), strict=True):
        ax.imshow(values, interpolation="nearest")
        ax.set_title(name)
        ax.set_axis_off()
    return axes[0]


def panels(count: int, size: tuple[float, float] = POINTS_SIZE, most: int = 4) -> list[Axes]:
    """Axes side by side in one figure, each of `size` (width, height) in inches, at most so many in a row."""
    columns = min(count, most)
    rows = -(-count // columns)
    figure = Figure(figsize=(size[0] * columns, size[1] * rows), layout="constrained")
    axes = list(figure.subplots(rows, columns, squeeze=False).flat)
    for ax in axes[count:]:
        ax.remove()
    return axes[:count]


def plot_layers(frame: pd.DataFrame, ax: Axes | None = None) -> Axes:
    """Time of each layer, all its occurrences, as one bar a mode: from the frame of `study.run_layers`."""
    _need(frame, ("layer", "count", "mode", "time_us"))
    layers = list(dict.fromkeys(frame["layer"]))
    modes = list(dict.fromkeys(frame["mode"]))
    ax = ax if ax is not None else _axes((8, max(3.0, 0.09 * len(layers) * (len(modes) + 1) + 1)))
    height = 0.8 / len(modes)
    for index, mode in enumerate(modes):
        part = frame[frame["mode"] == mode].set_index("layer")
        time = (part["time_us"] * part["count"]).reindex(layers)
        where = np.arange(len(layers)) + (index - (len(modes) - 1) / 2) * height
        ax.barh(where, time, height, color=_COLORS.get(mode), label=mode)
    counts = frame.drop_duplicates("layer").set_index("layer")["count"]
    ax.set_yticks(range(len(layers)), [f"{name} (x{counts[name]})" if counts[name] > 1 else name for name in layers])
    ax.tick_params(axis="y", labelsize=8)
    ax.set_ylim(len(layers) - 0.4, -0.6)  # the first layer on top, as it runs
    ax.set_xlabel("modelled time, all occurrences (us)")
    ax.grid(axis="x", alpha=0.3)
    ax.set_axisbelow(True)
    ax.legend(title="mode")
    return ax


def saturation_map(
    counts: NDArray[Any], channel: int | None = None, ax: Axes | None = None, what: str = "saturated pairs"
) -> Axes:
    """Where pairs saturate: an image of `Result.saturation`, dark where none does.

    Of other departures: `Result.departure_map("halved weights")`, with `what="halved weights"` for the texts.
    (M, N) of a matmul as it is. Of a convolution (N, C, H, W) the pixels of channel `channel`, all images added; None:
    of all channels.
    """
    counts = np.asarray(counts)
    if counts.ndim not in (2, 4) or not counts.size:
        raise InvalidArgument(f"counts of shape {counts.shape}; counts by output of a matmul or convolution are needed")
    if counts.ndim == 4:
        if channel is not None and not 0 <= channel < counts.shape[1]:
            raise InvalidArgument(f"channel={channel}; the output has channels 0 to {counts.shape[1] - 1}")
        picked = counts if channel is None else counts[:, channel : channel + 1]
        values, labels = picked.sum(axis=(0, 1)), ("output column x", "output row y")
    else:
        values, labels = counts, ("output channel n", "row m")
    ax = ax if ax is not None else _axes((7, 4.5))
    image = ax.imshow(values, aspect="auto", interpolation="nearest", cmap="inferno", vmin=0, vmax=max(1, values.max()))
    ax.figure.colorbar(image, ax=ax, label=what, ticks=MaxNLocator(integer=True))
    ax.set_xlabel(labels[0])
    ax.set_ylabel(labels[1])
    ax.xaxis.set_major_locator(MaxNLocator(integer=True))
    ax.yaxis.set_major_locator(MaxNLocator(integer=True))
    share = float((counts > 0).mean())
    ax.set_title(f"{share:.2%} of {counts.size} outputs met {what}")
    return ax


def error_histogram(frame: pd.DataFrame, ax: Axes | None = None) -> Axes:
    """How often outputs differ by how much: b - a of `Comparison.outputs`; equal ones are only told in the title."""
    _need(frame, ("a", "b"))
    error = (frame["b"] - frame["a"]).to_numpy(np.float64)
    ax = ax if ax is not None else _axes((7, 4.5))
    shown = error[np.isfinite(error) & (error != 0)]
    if len(shown):
        ax.hist(shown, bins=min(61, max(11, len(np.unique(shown)))), color=matplotlib.color_sequences["tab10"][3])
        ax.set_yscale("log")
        ax.axvline(0, color="black", linewidth=0.8)
    else:
        ax.text(0.5, 0.5, "no output differs", transform=ax.transAxes, ha="center", va="center")
    ax.set_xlabel("b - a")
    ax.set_ylabel("outputs")
    ax.set_title(f"{len(shown)} of {len(frame)} outputs differ")
    return ax


def save(ax: Axes, path: Path) -> None:
    """Write the picture that `ax` belongs to, in the format that the path's suffix names.

    Raises `InvalidArgument` where a file is there that this package did not write (`simdnn.files`).
    """
    figure = ax.figure
    while isinstance(figure, SubFigure):
        figure = figure.figure
    with files.replacing(path) as partial:
        figure.savefig(partial, dpi=150, metadata=files.PICTURE_MARKS.get(path.suffix.lower()))


def _axes(size: tuple[float, float]) -> Axes:
    """Axes in a figure that pyplot doesn't know: nothing to close, no backend chosen."""
    return Figure(figsize=size, layout="constrained").add_subplot()


def _label(ax: Axes, points: list[tuple[str, float, float]]) -> None:
    """A name beside each point, as near as it covers nothing, with a line to the point where that is not near."""
    within = ax.transData + ax.transAxes.inverted()
    at = [(float(x), float(y)) for x, y in (within.transform((x, y)) for _, x, y in points)]
    taken = [(x - 0.015, x + 0.015, y) for x, y in at]
    for (name, _, _), (x, y) in zip(points, at, strict=True):
        width = 0.012 * len(name)
        places = _places(x, y, width, len(points))
        start, height = next((place for place in places if _free(place, width, taken)), places[0])
        taken.append((start, start + width, height))
        color = _COLORS.get(name)
        ax.text(start, height, name, transform=ax.transAxes, va="center", color=color)
        nearest = min(max(x, start), start + width)
        if abs(height - y) > 0.06 or abs(nearest - x) > 0.03:
            ax.plot(
                [x, nearest],
                [y, height + (0.02 if height < y else -0.02)],
                color=color,
                linewidth=0.7,
                zorder=2,
                transform=ax.transAxes,
            )


def _places(x: float, y: float, width: float, count: int) -> list[tuple[float, float]]:
    """Where a name may begin, within the axes: right, below, above, left; then a line further away, and so on."""
    found = [(x + 0.02, y), (x - width / 2, y - 0.05), (x - width / 2, y + 0.05), (x - width - 0.02, y)]
    for step in range(1, count + 1):
        for height in (y - 0.05 * step, y + 0.05 * step):
            found += [(x + 0.02, height), (x - width - 0.02, height), (x - width / 2, height)]
    inside = [(a, b) for a, b in found if a >= 0.01 and a + width <= 0.99 and 0.03 <= b <= 0.97]
    return inside or found[:1]


def _free(place: tuple[float, float], width: float, taken: list[tuple[float, float, float]]) -> bool:
    """Whether a name of that width at `place` covers none of the spans (from, to, height)."""
    start, height = place
    return not any(start < end and start + width > begin and abs(height - other) < 0.045 for begin, end, other in taken)


def _pad_y(ax: Axes, values: list[float], top: float | None) -> None:
    """A margin around the points, never less than a hundredth of them, so that equal values don't look far apart."""
    if not values:
        return
    margin = max(0.01 * max(map(abs, values)), 0.15 * (max(values) - min(values))) or 1.0
    high = max(values) + margin
    ax.set_ylim(min(values) - margin, high if top is None else min(high, top + 0.25))


def _need(frame: pd.DataFrame, columns: Sequence[str]) -> None:
    missing = [column for column in columns if column not in frame]
    if missing:
        raise InvalidArgument(f"the frame lacks {', '.join(missing)}; it has {', '.join(map(str, frame.columns))}")
    if frame.empty:
        raise InvalidArgument("the frame has no rows; nothing to draw")
