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
SMALLEST = 4.5  # points of letters that can be read
#: what bars say of their values: shares of outputs that integers lost, by column
_LOST = {"saturated_share": "saturated", "halved_share": "with halved weights"}


@keywords
def plot_layers(frame: pd.DataFrame, ax: Axes | None = None) -> Axes:
    """Time of each layer, all its occurrences, as one bar a mode: from the frame of `study.run_layers`.

    Where integers were lost, a bar says in which share of the layer's outputs (`saturated_share`, `halved_share`), if
    bars are as thick as letters. Where there is no place for all names, those of the layers that take longest are
    written.
    """
    columns_of(frame, ("layer", "count", "mode", "time_us"))
    frame = finite(frame, ["time_us", "count"])
    layers = list(dict.fromkeys(frame["layer"]))
    modes = list(dict.fromkeys(map(str, frame["mode"])))
    inches = 0.09 * len(layers) * (len(modes) + 1) + 1
    ax = ax if ax is not None else new_axes((8, min(max(3.0, inches), TALLEST)))
    height, how = 0.8 / len(modes), looks(modes)
    longest, lost = pd.Series(0.0, index=layers), []
    for index, mode in enumerate(modes):
        part = frame[frame["mode"].map(str) == mode].set_index("layer")
        time = (part["time_us"] * part["count"]).groupby(level=0, sort=False).sum().reindex(layers)
        longest = longest.combine(time.fillna(0.0), max)
        where = np.arange(len(layers)) + (index - (len(modes) - 1) / 2) * height
        hatch = HATCHES[index % len(HATCHES)] if inches <= TALLEST else ""
        ax.barh(where, time, height, color=how[mode][0], label=mode, hatch=hatch, edgecolor="white", linewidth=0)
        lost += [(x, y, text) for x, y, text in zip(time, where, _lost(part, layers), strict=True) if text]
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
    _tell(ax, lost, height * _inches(ax) * 72 / len(layers), float(longest.max()))
    legend(ax, ax.containers, title="mode")
    return ax


def _lost(part: pd.DataFrame, layers: list[str]) -> list[str]:
    """The text on a mode's bar of each layer: "" where no integer was lost."""
    shares = part[[name for name in _LOST if name in part]].groupby(level=0).max().reindex(layers)
    rows = (zip(shares.columns, row, strict=True) for row in shares.itertuples(index=False))
    return [", ".join(f"{_percent(s)} {_LOST[name]}" for name, s in row if s > 0) for row in rows]


def _percent(share: float) -> str:
    return f"{share:.1%}" if share >= 0.001 else "<0.1%"


def _tell(ax: Axes, texts: list[tuple[float, float, str]], thick: float, longest: float) -> None:
    """Write texts behind their bars, which are `thick` points high, with place for the longest of them."""
    size = min(7.0, 0.9 * thick)
    if not texts or size < SMALLEST:
        return
    ends = []
    for x, y, text in texts:
        drawn = ax.annotate(text, (x, y), (3, 0), textcoords="offset points", va="center", fontsize=size)
        ends.append((x, drawn.get_window_extent().width / ax.bbox.width))
    room = max(x / max(1 - 1.05 * width - 0.02, 0.2) for x, width in ends)
    ax.set_xlim(0, max(room, 1.05 * longest))


def _inches(ax: Axes) -> float:
    """The height of the axes."""
    return float(ax.get_window_extent().height / figure_of(ax).dpi)


def _letters(ax: Axes, size: int) -> int:
    """How many lines of so large letters stand below each other beside the axes."""
    return max(1, int(72 * _inches(ax) / (1.35 * size)))


def _named(times: NDArray[Any], lines: int) -> list[int]:
    """The places that have a name: the longest times, as far apart as names need."""
    apart = len(times) / lines
    found: list[int] = []
    for place in np.argsort(-times, kind="stable"):
        if all(abs(place - other) >= apart for other in found):
            found.append(int(place))
    return sorted(found)
