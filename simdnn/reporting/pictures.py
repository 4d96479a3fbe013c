"""The pictures that suit a result, as data URIs: what `simdnn.plot` draws of its frames."""

from __future__ import annotations

import base64
import io
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from isa_models import InvalidArgument
from simdnn.study.exploration import quality_of

SIZE = (8.0, 4.5)  # inches
MOST_LAYERS = 80  # rows of a picture of layers


def pictures(content: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Captions and pictures (data URIs) of what a result's file holds; none where nothing can be drawn."""
    found = []
    for caption, draw in _drawn(content):
        figure = Figure(figsize=SIZE, layout="constrained")
        try:
            draw(figure.add_subplot())
        except InvalidArgument:  # the rows lack what the picture shows
            continue
        found.append((caption, _uri(figure)))
    return found


def frame_of(rows: Sequence[Mapping[str, Any]]) -> pd.DataFrame:
    """Rows of a file as a frame of those with figures; an exact result's ratio of signal to error is infinite again."""
    frame = pd.DataFrame(list(rows))
    if "refused" in frame:
        frame = frame[frame["refused"].fillna("") == ""]
    for ratio, error in (("sqnr_db", "max_abs_error"), ("worst_layer_sqnr_db", "worst_layer_max_abs_error")):
        if ratio in frame and error in frame:
            exact = frame[ratio].isna() & (frame[error] == 0)
            frame = frame.assign(**{ratio: frame[ratio].astype(float).mask(exact, np.inf)})
    return frame


def _drawn(content: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Captions, and functions that draw into axes."""
    from simdnn import plot, plot_study  # matplotlib takes a second to load

    totals, layers = frame_of(content.get("totals") or ()), frame_of(content.get("layers") or ())
    if len(totals) > 1 and "speed_up" in totals:
        axis = content.get("quality_axis")
        for phase, part in _phases(totals):
            if axis:
                how = {"percent": axis["percent"], "higher_is_better": axis["higher_is_better"]}
                yield (
                    f"{axis['title']} against speed{phase}",
                    lambda ax, part=part, how=how: plot.plot_quality_speed(
                        part, axis["column"], axis["title"], ax, **how
                    ),
                )
            else:
                yield f"Quality against speed{phase}", lambda ax, part=part: plot.plot_accuracy_speed(part, ax)
    if len(layers) and layers["layer"].nunique() <= MOST_LAYERS:
        for phase, part in _phases(layers):

            def by_layer(ax: Axes, part: pd.DataFrame = part) -> None:
                bars = len(part) + part["layer"].nunique()
                ax.figure.set_size_inches(SIZE[0], max(3.0, 0.11 * bars + 1))  # type: ignore[union-attr]
                plot.plot_layers(part, ax)

            yield f"Time by layer{phase}", by_layer
    if content.get("points") and content.get("axes"):
        points, axes = frame_of(content["points"]), list(content["axes"])
        if quality_of(points) and "pareto" in points:
            yield "Quality against time", lambda ax: plot_study.plot_front(points, axes, ax=ax)
        measure = "gops" if "gops" in points else "cycles"
        yield f"{measure} over the axes", lambda ax: plot_study.plot_space(points, axes, measure, ax)


def _phases(frame: pd.DataFrame) -> Iterator[tuple[str, pd.DataFrame]]:
    """The rows of each phase of a network, and its name as the end of a caption."""
    if "phase" not in frame or frame["phase"].dropna().nunique() < 2:
        yield "", frame
        return
    for phase, part in frame.groupby("phase", sort=False):
        yield f", {phase}", part


def _uri(figure: Figure) -> str:
    written = io.BytesIO()
    figure.savefig(written, format="png", dpi=120)
    return "data:image/png;base64," + base64.b64encode(written.getvalue()).decode()
