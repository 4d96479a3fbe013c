"""Time by layer: a bar a mode."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from numpy.typing import NDArray

from isa_models.keywords import keywords
from simdnn.plot.canvas import HATCHES, columns_of, figure_of, finite, legend, new_axes
from simdnn.plot.points import looks

MOST_BARS = 40  # layers with names in large letters
TALLEST = 14.0  # inches


@keywords
def plot_layers(frame: pd.DataFrame, ax: Axes | None = None) -> Axes:
    """Time of each layer, all its occurrences, as one bar a mode: from the frame of `study.run_layers`.

    Where there is no place for all names, those of the layers that take longest are written.
    """
    columns_of(frame, ("layer", "count", "mode", "time_us"))
    frame = finite(frame, ["time_us", "count"])
    layers = list(dict.fromkeys(frame["layer"]))
    modes = list(dict.fromkeys(map(str, frame["mode"])))
    inches = 0.09 * len(layers) * (len(modes) + 1) + 1
    ax = ax if ax is not None else new_axes((8, min(max(3.0, inches), TALLEST)))
    height, how = 0.8 / len(modes), looks(modes)
    longest = pd.Series(0.0, index=layers)
    for index, mode in enumerate(modes):
        part = frame[frame["mode"].map(str) == mode].set_index("layer")
        time = (part["time_us"] * part["count"]).groupby(level=0, sort=False).sum().reindex(layers)
        longest = longest.combine(time.fillna(0.0), max)
        where = np.arange(len(layers)) + (index - (len(modes) - 1) / 2) * height
        hatch = HATCHES[index % len(HATCHES)] if inches <= TALLEST else ""
        ax.barh(where, time, height, color=how[mode][0], label=mode, hatch=hatch, edgecolor="white", linewidth=0)
    counts = frame.drop_duplicates("layer").set_index("layer")["count"]
    size = 8 if len(layers) <= MOST_BARS else 6
    shown = [(place, layers[place]) for place in _named(longest.to_numpy(), _letters(ax, size))]
    texts = [f"{name} (x{counts[name]})" if counts[name] > 1 else str(name) for _, name in shown]
    ax.set_yticks([place for place, _ in shown], texts, parse_math=False)
    ax.tick_params(axis="y", labelsize=size)
    ax.set_ylim(len(layers) - 0.4, -0.6)  # the first layer on top, as it runs
    ax.set_xlabel("modelled time, all occurrences (us)")
    ax.grid(axis="x", alpha=0.3)
    ax.set_axisbelow(True)
    legend(ax, ax.containers, title="mode")
    return ax


def _letters(ax: Axes, size: int) -> int:
    """How many lines of so large letters stand below each other beside the axes."""
    inches = ax.get_window_extent().height / figure_of(ax).dpi
    return max(1, int(72 * inches / (1.35 * size)))


def _named(times: NDArray[Any], lines: int) -> list[int]:
    """The places that have a name: the longest times, as far apart as names need."""
    apart = len(times) / lines
    found: list[int] = []
    for place in np.argsort(-times, kind="stable"):
        if all(abs(place - other) >= apart for other in found):
            found.append(int(place))
    return sorted(found)
