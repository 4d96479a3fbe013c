"""Quality against speed: one point a mode, and the front that none beats."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.patheffects import withStroke
from matplotlib.transforms import Bbox

from isa_models import InvalidArgument
from isa_models.keywords import keywords
from simdnn.networks.precision import MODES
from simdnn.plot.canvas import MOST_NAMED, SYMBOLS, color, columns_of, figure_of, ink, new_axes, sizes_apart
from simdnn.study.pareto import pareto

_PLACES = {name: place for place, name in enumerate(MODES)}
AREA = 80  # of a mark, in square points, as `scatter` takes it
MARK = AREA**0.5 / 2 + 1.5  # half of one with its ring, in points
#: answers by which two modes must differ to be told apart: chance puts five or fewer all on one side more often than
#: once in 20 (sign test: 2 * 0.5^5 = 6.3 %)
TELLING = 6


@keywords
def plot_accuracy_speed(frame: pd.DataFrame, ax: Axes | None = None) -> Axes:
    """Accuracy against speed: one point a mode, from the frame of `study.totals`.

    Across: the speed-up over f32. Up: a network's accuracy in percent where it was measured and tells modes apart (by
    six answers, where the frame has their number in `images`: fewer may be chance), else the signal-to-noise ratio in
    dB, of the worst layer where there are several and no accuracy; f32 is the reference there and is drawn as a line.
    """
    columns_of(frame, ("mode", "speed_up"))
    column = "sqnr_db" if "accuracy" in frame or "worst_layer_sqnr_db" not in frame else "worst_layer_sqnr_db"
    whose, told = "" if column == "sqnr_db" else ", worst layer", ""
    if "accuracy" in frame:
        label = f"accuracy on {int(frame['images'].iloc[0])} held-out samples" if "images" in frame else "accuracy"
        if _tells_apart(frame) or column not in frame or np.isfinite(frame[column]).sum() < 2:
            return plot_quality_speed(frame, "accuracy", label, ax, percent=True)
        least, most = (f"{share:.2%}" for share in (frame["accuracy"].min(), frame["accuracy"].max()))
        told = f"\n({label}: {least} in every mode)" if least == most else f"\n({label}: {least} to {most})"
    ax = plot_quality_speed(frame, column, f"signal to error against f32{whose} (dB){told}", ax)
    if np.isposinf(frame[column]).any():
        _draw_reference(ax)
    return ax


def _draw_reference(ax: Axes) -> None:
    """The line of f32, and its name beside it where that covers no mark and no other name."""
    own, dots = looks(["f32"])["f32"][0], figure_of(ax).dpi / 72
    marks = [ax.transData.transform(point) for drawn in ax.collections for point in np.asarray(drawn.get_offsets())]
    taken = [Bbox([at - MARK * dots, at + MARK * dots]) for at in marks]
    taken += [text.get_window_extent().padded(4 * dots) for text in ax.texts]  # which titles and labels may move
    ax.axvline(1, color=own, linestyle="--")
    along = ax.get_xaxis_transform()  # x in data, y in parts of the axes
    name = ax.annotate("f32 (reference)", (1, 0), (0, 0), xycoords=along, textcoords="offset points", rotation=90)
    name.set(color=own, va="bottom")
    free = 1 - name.get_window_extent().height / ax.bbox.height
    places = [(side, up) for side in (4, -4) for up in np.linspace(0.02, 0.98, 25) * free]
    for side, up in [*places, places[0]]:  # the first one where none is free
        name.xy = (1, up)
        name.set(x=side, ha="left" if side > 0 else "right")
        if not any(name.get_window_extent().overlaps(other) for other in taken):
            return


def _tells_apart(frame: pd.DataFrame) -> bool:
    """Whether the accuracies of two modes differ by more than chance may do; at all, where nobody tells of how many."""
    apart = float(frame["accuracy"].max() - frame["accuracy"].min())
    return round(apart * float(frame["images"].iloc[0])) >= TELLING if "images" in frame else apart > 0


@keywords
def plot_quality_speed(
    frame: pd.DataFrame,
    column: str,
    label: str,
    ax: Axes | None = None,
    *,
    percent: bool = False,
    higher_is_better: bool = True,
) -> Axes:
    """A quality against speed, better ones higher up: one point a mode; `percent` for shares.

    Speed is that in tokens per second where the frame has `tokens_per_s` for all modes, else the speed-up over f32.

    What is better where it is lower (errors, perplexities) is drawn by its logarithm where it spans more than a factor
    of ten. Points with a ring are the Pareto-optimal ones: no other mode is as good in both and better in one; the line
    of steps through them is the front. Points in one place are drawn one inside the other.
    """
    columns_of(frame, ("mode", "speed_up", column))
    if frame[column].isna().all() or not np.isfinite(frame["speed_up"]).any():
        raise InvalidArgument(f"no mode has a {column} and a finite speed_up; nothing to draw")
    ax = ax if ax is not None else new_axes()
    counted = "tokens_per_s" in frame and bool(frame["tokens_per_s"].notna().all())
    points = frame.assign(x=frame["tokens_per_s" if counted else "speed_up"], y=frame[column] * (100 if percent else 1))
    points = points[np.isfinite(points["y"]) & np.isfinite(points["x"])]
    points = points.assign(best=pareto(points["x"], points["y"] if higher_is_better else -points["y"]))
    points = points.sort_values("y", ascending=not higher_is_better)
    ax.set_ylabel(f"{label} (%)" if percent else label)
    speed = "tokens per second" if counted else "speed-up over f32"
    ax.set_xlabel(f"{speed} (more is faster; ringed: none is better in both)")
    drawn = _shared(ax)
    most = max(points["x"] if counted else [1.0, *points["x"]])
    ax.set_xlim(0, max([1.25 * most, *(other.get_xlim()[1] for other in drawn["x"])]))
    _pad_y(ax, list(points["y"]), top=100.0 if percent else None)
    if not higher_is_better:
        _lower_is_better(ax, points["y"].min(), points["y"].max())
    ax.grid(alpha=0.3)
    how = looks(points["mode"])
    front = points[points["best"]].sort_values("x")
    if len(front) > 1:
        ax.plot(front["x"], front["y"], ":", drawstyle="steps-pre", color="grey", linewidth=0.8, label="front")
    sizes = sizes_apart(ax, list(zip(points["x"], points["y"], strict=True)), AREA)
    for point, size in zip(points.itertuples(), sizes, strict=True):
        own, marker = how[str(point.mode)]
        ring = ink() if point.best else "none"
        ax.scatter(point.x, point.y, s=size, color=own, marker=marker, edgecolor=ring, alpha=0.8, zorder=3)
    if len(points) <= MOST_NAMED:
        named = [(str(p.mode), float(p.x), float(p.y)) for p in points.itertuples()]
        _label(ax, named, {name: own for name, (own, _) in how.items()})
    return ax


def _lower_is_better(ax: Axes, least: float, most: float) -> None:
    """Turn the axis upside down, as a logarithm where values span more than a factor of ten."""
    if 0 < 10 * least < most:
        ax.set_yscale("log")
        margin = (most / least) ** 0.15
        ax.set_ylim(least / margin, most * margin)
    ax.invert_yaxis()


def looks(modes: Iterable[object]) -> dict[str, tuple[Any, str]]:
    """A colour and a marker for each mode: its own where the package knows it, others behind those, in turn."""
    names = list(dict.fromkeys(map(str, modes)))
    others = iter(range(len(_PLACES), len(_PLACES) + len(names)))
    places = {name: _PLACES[name] if name in _PLACES else next(others) for name in names}
    return {name: (color(place), SYMBOLS[place % len(SYMBOLS)]) for name, place in places.items()}


def _label(ax: Axes, points: list[tuple[str, float, float]], colors: Mapping[str, Any]) -> None:
    """A name beside each point, as near as it covers nothing, with a line to the point where that is not near.

    Places are found within the axes and kept as data, so that names follow their points where axes that share a scale
    change it later.
    """
    within = ax.transData + ax.transAxes.inverted()
    at = [(float(x), float(y)) for x, y in (within.transform((x, y)) for _, x, y in points)]
    across, up = (MARK * figure_of(ax).dpi / 72 / pixels for pixels in (ax.bbox.width, ax.bbox.height))
    taken = [(x - across, x + across, y) for x, y in at]
    for (name, _, _), (x, y) in zip(points, at, strict=True):
        halo = [withStroke(linewidth=3, foreground=ax.get_facecolor())]  # above the front, and lines of the grid
        text = ax.text(0, 0, name, va="center", color=colors[name], parse_math=False, path_effects=halo)
        width, line = text.get_window_extent().width / ax.bbox.width, text.get_window_extent().height / ax.bbox.height
        places = _places((x, y), (width, line), (across, up), len(points))
        start, height = next((place for place in places if _free(place, width, line, taken)), places[0])
        taken.append((start, start + width, height))
        text.set_position(_data(ax, start, height))
        nearest = min(max(x, start), start + width)
        if abs(height - y) > 1.5 * line or abs(nearest - x) > 2 * across:
            ends = (_data(ax, x, y), _data(ax, nearest, height + (line / 2 if height < y else -line / 2)))
            ax.plot(*zip(*ends, strict=True), color=colors[name], linewidth=0.7, zorder=2)


def _data(ax: Axes, x: float, y: float) -> tuple[float, float]:
    """A place within the axes, from 0 to 1, as data."""
    found = (ax.transAxes + ax.transData.inverted()).transform((x, y))
    return float(found[0]), float(found[1])


def _places(
    point: tuple[float, float], size: tuple[float, float], mark: tuple[float, float], count: int
) -> list[tuple[float, float]]:
    """Where a name may begin, within the axes: right, below, above, left; then a line further away, and so on.

    `size` is the name's, `mark` half of its point's, both in parts of the axes.
    """
    (x, y), (width, line), (across, up) = point, size, mark
    right, middle, left = x + 1.3 * across, x - width / 2, x - width - 1.3 * across
    lower, upper = (y + way * (up + 0.6 * line) for way in (-1, 1))
    found = [(right, y), (middle, lower), (middle, upper), (left, y)]
    for step in range(count):
        for height in (lower - step * line, upper + step * line):
            found += [(right, height), (left, height), (middle, height)]
    edge = line / 2
    inside = [(a, b) for a, b in found if a >= 0.01 and a + width <= 0.99 and edge <= b <= 1 - edge]
    return inside or found[:1]


def _free(place: tuple[float, float], width: float, line: float, taken: Sequence[tuple[float, float, float]]) -> bool:
    """Whether a name of that width at `place` covers none of the spans (from, to, height)."""
    start, height = place
    return not any(
        start < end and start + width > begin and abs(height - other) < 0.9 * line for begin, end, other in taken
    )


def _pad_y(ax: Axes, values: list[float], top: float | None) -> None:
    """A margin around the points, never less than a hundredth of them, so that equal values don't look far apart."""
    if not values:
        return
    margin = max(0.01 * max(map(abs, values)), 0.15 * (max(values) - min(values))) or 1.0
    high = max(values) + margin
    low, high = min(values) - margin, high if top is None else min(high, top + 0.25)
    limits = [limit for other in _shared(ax)["y"] for limit in other.get_ylim()]
    ax.set_ylim(min(low, *limits) if limits else low, max(high, *limits) if limits else high)


def _shared(ax: Axes) -> dict[str, list[Axes]]:
    """Other axes with something drawn that share this one's scale across ("x") or up ("y")."""
    groups = {"x": ax.get_shared_x_axes(), "y": ax.get_shared_y_axes()}
    return {way: [o for o in group.get_siblings(ax) if o is not ax and o.has_data()] for way, group in groups.items()}
