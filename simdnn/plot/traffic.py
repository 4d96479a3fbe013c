"""Bytes between the levels of the memory."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, NullLocator

from isa_models import InvalidArgument
from isa_models.keywords import keywords
from simdnn.plot.canvas import MOST_NAMED, STYLES, SYMBOLS, bytes_text, color, legend, new_axes
from simdnn.plot.costs import bytes_by_level, named

MOST_GROUPS = 6  # results whose bars stand side by side; more are lines over the results
_SPAN = 50.0  # between the largest and the smallest, from which a logarithmic scale shows more


@keywords
def plot_traffic(results: Any, ax: Axes | None = None) -> Axes:
    """Bytes that each memory level hands towards the core (read) and takes back (written).

    `results`: a Result, an Estimate or a NetworkResult, a list of them, or a mapping from names to them. Up to six
    stand side by side as bars in each level, read ones filled and written ones hatched; of more, each level is a line
    over the results. Where nothing is moved no bar stands. Bytes that span more than a factor of fifty are drawn by
    their logarithm.
    """
    found = {name: bytes_by_level(result) for name, result in named(results).items()}
    levels = list(dict.fromkeys(level for one in found.values() for level in one))
    moved = [side for one in found.values() for sides in one.values() for side in sides if side]
    if not moved:
        raise InvalidArgument("no level moves a byte; nothing to draw")
    few = len(found) <= MOST_GROUPS
    ax = ax if ax is not None else new_axes((7.5, 4.2) if few else (min(4.0 + 0.3 * len(found), 15.0), 4.5))
    if max(moved) > _SPAN * min(moved):
        ax.set_yscale("log")
        ax.set_ylim(min(moved) / 3, max(moved) * 3)
    if few:
        _bars(ax, found, levels)
    else:
        _lines(ax, found, levels)
    ax.set_ylabel("bytes")
    ax.yaxis.set_major_formatter(FuncFormatter(lambda value, _: bytes_text(value)))
    ax.yaxis.set_minor_locator(NullLocator())
    ax.grid(axis="y", alpha=0.3)
    ax.set_axisbelow(True)
    return ax


def _bars(ax: Axes, moved: dict[str, dict[str, tuple[int, int]]], levels: list[str]) -> None:
    width = 0.8 / (2 * len(moved))
    handles = []
    for place, (name, one) in enumerate(moved.items()):
        for side, (word, hatch) in enumerate((("read", ""), ("written", "////"))):
            height = np.array([one.get(level, (0, 0))[side] for level in levels], float)
            where = np.arange(len(levels)) + (2 * place + side + 0.5) * width - 0.4
            label = word if len(moved) == 1 else f"{name}, {word}"
            face = color(place) if not side else "none"
            bars = ax.bar(where, height, width, label=label, facecolor=face, edgecolor=color(place), hatch=hatch)
            handles.append(bars)
            for bar, value in zip(bars, height, strict=True):
                if value and len(moved) <= 2:
                    at, text, size = (bar.get_x() + width / 2, value), bytes_text(value), "small"
                    if len(moved) > 1:
                        text, size = text.replace(" ", "\n"), "x-small"
                    ax.annotate(text, at, (0, 2), textcoords="offset points", ha="center", fontsize=size)
    ax.set_xticks(range(len(levels)), levels)
    ax.set_xlim(-0.6, len(levels) - 0.4)
    ax.set_xlabel("memory level")
    legend(ax, handles)


def _lines(ax: Axes, moved: dict[str, dict[str, tuple[int, int]]], levels: list[str]) -> None:
    handles = []
    for place, level in enumerate(levels):
        for side, word in enumerate(("read", "written")):
            up = np.array([one.get(level, (0, 0))[side] or np.nan for one in moved.values()], float)
            if np.isfinite(up).any():
                mark: dict[str, Any] = {"marker": SYMBOLS[place], "markersize": 5 if len(moved) <= 40 else 2.5}
                fill: dict[str, Any] = {"markerfacecolor": "none"} if side else {}
                style = STYLES[side]
                handles += ax.plot(up, style, color=color(place), linewidth=1, label=f"{level}, {word}", **mark, **fill)
    step = max(1, -(-len(moved) // (2 * MOST_NAMED)))
    ax.set_xticks(range(0, len(moved), step), list(moved)[::step], parse_math=False)
    for text in ax.get_xticklabels():
        text.set(rotation=60, ha="right", rotation_mode="anchor", fontsize="x-small")
    legend(ax, handles)
