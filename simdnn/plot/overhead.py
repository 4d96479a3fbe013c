"""The cost of zero points against the length of a group, beside what their proposal promises."""

from __future__ import annotations

from itertools import cycle

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from isa_models import InvalidArgument
from isa_models.keywords import keywords
from simdnn.plot.canvas import MOST_NAMED, STYLES, SYMBOLS, colors, columns_of, finite, legend, new_axes, ticks_at

GIVEN, MATRIX = 0.05, (0.10, 0.15)  # the proposal's: with reductions given; the term as a matrix


@keywords
def plot_overhead(frame: pd.DataFrame, ax: Axes | None = None) -> Axes:
    """Overhead against the length of a group, with the proposal's line at 5 % and its band from 10 to 15 %.

    `frame` has `group` (how many k share a zero point; text, as "any", for what does not depend on it) and `overhead`,
    a share of the plain product's time (0.05 is 5 %). A line for each combination of the other columns' texts and whole
    numbers (machine, strategy, m …); ticks at the groups.
    """
    columns_of(frame, ("group", "overhead"))
    frame = finite(frame, ["overhead"]).reset_index(drop=True)
    group = pd.to_numeric(frame["group"], errors="coerce")
    if not (group > 0).any():
        raise InvalidArgument("no row has a group above 0; nothing to draw")
    others = [c for c in frame if c not in ("group", "overhead") and not pd.api.types.is_float_dtype(frame[c])]
    keys = [c for c in others if frame[c].nunique(dropna=False) > 1]
    ax = ax if ax is not None else new_axes()
    words = "proposal: 10 to 15 % as a matrix", "proposal: 5 % with sums given"
    band = ax.axhspan(100 * MATRIX[0], 100 * MATRIX[1], color="grey", alpha=0.2, linewidth=0, label=words[0])
    line = ax.axhline(100 * GIVEN, color="grey", linestyle="--", linewidth=1, label=words[1])
    ends = group[group > 0].min(), group.max()
    lines = list(frame.groupby(keys, sort=False, dropna=False)) if keys else [((), frame)]
    handles: list[Line2D] = []
    for (values, part), own, mark, style in zip(lines, colors(), cycle(SYMBOLS), cycle(STYLES), strict=False):
        name = " ".join(f"{v}" if isinstance(v, str) else f"{k} {v}" for k, v in zip(keys, values, strict=True))
        at = group.loc[part.index]
        part = part.assign(group=at).sort_values("group")
        across = part["group"].to_numpy(np.float64)
        up = 100 * part["overhead"].to_numpy(np.float64)
        if np.isnan(across).all():  # the same for all groups
            across, up = np.array(ends), np.repeat(up[:1], 2)
        size = max(8 - len(handles), 4) if len(lines) <= MOST_NAMED else 3  # later ones do not cover those before
        handles += ax.plot(across, up, style, marker=mark, markersize=size, color=own, label=name)
    ticks_at(ax, group[group > 0], log=bool(ends[1] > ends[0]))
    ax.axhline(0, color="grey", linewidth=0.6)
    low, high = ax.get_ylim()
    ax.set_ylim(low, max(high, 20.0))
    ax.set_xlabel("group (k that share a zero point)")
    ax.set_ylabel("overhead over the product without zero points (%)")
    ax.grid(alpha=0.3)
    legend(ax, [band, line, *(handle for handle in handles if keys)])
    return ax
