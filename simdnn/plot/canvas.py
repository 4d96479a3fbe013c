"""The canvas and tools of every picture: figures, colours, markers, ticks, legends; and how one is kept."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from itertools import cycle, islice
from pathlib import Path
from typing import Any, Literal

import matplotlib
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure, SubFigure

from isa_models import InvalidArgument
from isa_models.errors import unknown_name
from isa_models.keywords import keywords
from simdnn import files
from simdnn.primitives.checks import integer

POINTS_SIZE = (7.5, 5.0)  # width and height in inches
_MOST_PANELS = 400
MOST_NAMED = 20  # names in a legend, and ticks that are all written
SYMBOLS = "osD^vP<>Xph*"
HATCHES = ("", "///", "...", "xxx", "\\\\\\", "ooo", "+++", "---", "**", "||")
STYLES: tuple[Literal["-", "--", ":", "-."], ...] = ("-", "--", ":", "-.")

_apart: ContextVar[bool] = ContextVar("apart", default=False)


@keywords
@contextmanager
def apart() -> Iterator[None]:
    """Within this, new pictures are figures that pyplot does not know: no window, no backend, nothing to close."""
    token = _apart.set(True)
    try:
        yield
    finally:
        _apart.reset(token)


def new_axes(size: tuple[float, float] = POINTS_SIZE) -> Axes:
    """Axes in a new figure of pyplot's, as a notebook shows it at the end of a cell."""
    return panels(1, size)[0]


@keywords
def panels(count: int, size: tuple[float, float] = POINTS_SIZE, columns: int | None = None) -> list[Axes]:
    """Axes side by side in one new figure, each of `size` (width, height) in inches; `columns` in a row (at most four).

    A `figure.figsize` of the user's own in `matplotlib.rcParams` takes the place of `size`.
    """
    count, columns = integer("count", count), None if columns is None else integer("columns", columns)
    if count > _MOST_PANELS:
        raise InvalidArgument(f"count={count}; up to {_MOST_PANELS} axes are drawn in a figure")
    if not all(np.isfinite(side) and side > 0 for side in size):
        raise InvalidArgument(f"size={size!r}; (width, height) in inches is needed, as {POINTS_SIZE} is")
    if matplotlib.rcParams["figure.figsize"] != matplotlib.rcParamsDefault["figure.figsize"]:
        size = tuple(matplotlib.rcParams["figure.figsize"])
    columns = columns or max(1, min(count, 4))
    rows = -(-count // columns)
    figure = _figure((size[0] * columns, size[1] * rows))
    axes = list(figure.subplots(rows, columns, squeeze=False).flat)
    for ax in axes[count:]:
        ax.remove()
    if not _apart.get():
        figure.sca(axes[0])
    return axes[:count]


def _figure(size: tuple[float, float]) -> Figure:
    if _apart.get():
        return Figure(figsize=size, layout="constrained")
    import matplotlib.pyplot as plt  # it chooses a backend, and takes its time

    return plt.figure(figsize=size, layout="constrained")


def figure_of(ax: Axes) -> Figure:
    """The whole figure that `ax` belongs to."""
    figure = ax.figure
    while isinstance(figure, SubFigure):
        figure = figure.figure
    return figure


@keywords
def save(ax: Axes, path: str | os.PathLike[str]) -> None:
    """Write the picture that `ax` belongs to, in the format that the path's suffix names.

    Raises `UnknownName` for a format that matplotlib does not write, and `InvalidArgument` where a file is there that
    this package did not write (`simdnn.files`).
    """
    path, figure = Path(path), figure_of(ax)
    formats = [f".{name}" for name in figure.canvas.get_supported_filetypes()]
    if path.suffix.lower() not in formats:
        raise unknown_name("file format", path.suffix or path.name, formats)
    with files.replacing(path) as partial:
        tight = None if figure.get_layout_engine() else "tight"  # a legend beside the axes is not cut off
        figure.savefig(partial, dpi=150, bbox_inches=tight, metadata=files.PICTURE_MARKS.get(path.suffix.lower()))


# -- what is drawn with ------------------------------------------------------------------------------------------------
def ink() -> str:
    """The colour of texts and of the edges of marks, as the user's style has it."""
    return str(matplotlib.rcParams["text.color"])


def colors() -> Iterator[Any]:
    """The colours of the user's style, then others that do not recur soon."""
    own = matplotlib.rcParams["axes.prop_cycle"].by_key().get("color", matplotlib.color_sequences["tab10"])
    return cycle([*own, *matplotlib.color_sequences["Dark2"]])


def color(number: int) -> Any:
    """The `number`-th of `colors`."""
    return next(islice(colors(), number, None))


def sizes_apart(ax: Axes, points: Sequence[tuple[float, float]], size: float) -> list[float]:
    """The size of each mark, drawn in this order: smaller than what it would cover, so that marks at one place show.

    The limits of `ax` must stand already.
    """
    drawn: list[tuple[float, float]] = []
    found = []
    near = size**0.5 * figure_of(ax).dpi / 72 / 2  # half a mark, in pixels
    for x, y in ax.transData.transform(np.reshape(points, (-1, 2))):
        below = sum(np.hypot(x - other_x, y - other_y) < near for other_x, other_y in drawn)
        found.append(max(size * 0.5**below, 10.0))
        drawn.append((x, y))
    return found


def legend(ax: Axes, handles: Sequence[Any], title: str | None = None, below: bool = False) -> None:
    """A legend beside the axes, or below, where it lies on nothing: of the first `MOST_NAMED` names."""
    if not handles:
        return
    if len(handles) > MOST_NAMED:
        title = f"{title + ', ' if title else ''}and {len(handles) - MOST_NAMED} more"
    where: dict[str, Any] = {"loc": "upper left", "bbox_to_anchor": (1.01, 1.0), "borderaxespad": 0.0}
    if below:
        where = {"loc": "upper left", "bbox_to_anchor": (0.0, -0.14), "borderaxespad": 0.0, "ncols": 2}
    found = ax.legend(handles=handles[:MOST_NAMED], title=title, fontsize="small", title_fontsize="small", **where)
    for text in found.get_texts():
        text.set_parse_math(False)


def ticks_at(ax: Axes, values: Iterable[float], log: bool | None = None) -> None:
    """Ticks along x at the values that were run, as long as they are few; logarithmic where they span a decade."""
    places = sorted({float(v) for v in values if np.isfinite(v)})
    if not places:
        return
    if log if log is not None else 0 < 10 * places[0] <= places[-1]:
        ax.set_xscale("log")
    if len(places) <= MOST_NAMED:
        ax.xaxis.set_ticks(places, [f"{place:,.6g}" for place in places])
        ax.xaxis.set_ticks([], minor=True)


def bytes_text(value: float) -> str:
    """A number of bytes in the unit that fits: 1.5 MB.

    >>> bytes_text(1_500_000), bytes_text(0)
    ('1.5 MB', '0 B')
    """
    for unit, size in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if abs(value) >= size:
            return f"{value / size:.3g} {unit}"
    return f"{value:.3g} B"


def columns_of(frame: object, columns: Sequence[str]) -> pd.DataFrame:
    """The frame itself where it has these columns, and rows; `InvalidArgument` otherwise."""
    if not isinstance(frame, pd.DataFrame):
        raise InvalidArgument(f"met {type(frame).__name__}; a pandas DataFrame with {', '.join(columns)} is needed")
    missing = [column for column in columns if column not in frame]
    if missing:
        raise InvalidArgument(
            f"the frame lacks {', '.join(missing)}; it has {', '.join(map(str, frame.columns)) or 'none'}"
        )
    if frame.empty:
        raise InvalidArgument("the frame has no rows; nothing to draw")
    return frame


def finite(frame: pd.DataFrame, columns: Sequence[str], above: float | None = None) -> pd.DataFrame:
    """The rows whose figures are finite (and more than `above`); `InvalidArgument` where none is."""
    values = frame[list(columns)].apply(pd.to_numeric, errors="coerce")
    good = np.isfinite(values.to_numpy(np.float64)).all(axis=1)
    if above is not None:
        good &= (values.to_numpy(np.float64) > above).all(axis=1)
    if not good.any():
        bound = "" if above is None else f" above {above:g}"
        raise InvalidArgument(f"no row has a finite {' and '.join(columns)}{bound}; nothing to draw")
    kept: pd.DataFrame = frame.loc[good]
    return kept
