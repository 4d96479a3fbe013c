"""Pictures: what they hold, that names don't cover one another, and that nothing global changes."""

from __future__ import annotations

import itertools
from pathlib import Path

import matplotlib
import numpy as np
import pandas as pd
import pytest
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from isa_models import InvalidArgument
from simdnn import plot
from simdnn.networks import precision as modes

MODES = [name for name, mode in modes.MODES.items() if mode.default]
SPEED = [1.0, 1.8, 1.57, 1.39, 2.82]


def totals(accuracy: list[float]) -> pd.DataFrame:
    return pd.DataFrame({"mode": list(MODES), "speed_up": SPEED, "accuracy": accuracy, "images": 360})


def layers(count: int) -> pd.DataFrame:
    rows = [(f"layer{i}", 1 + i % 2, mode, 10.0 + i) for i in range(count) for mode in MODES]
    return pd.DataFrame(rows, columns=["layer", "count", "mode", "time_us"])


def boxes(ax: Axes) -> tuple[list[matplotlib.transforms.Bbox], matplotlib.transforms.Bbox]:
    """The places of the texts inside the axes, and of the figure, in pixels."""
    figure = ax.figure
    assert isinstance(figure, Figure)
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    renderer = canvas.get_renderer()
    return [text.get_window_extent(renderer) for text in ax.texts], figure.bbox


def test_many_names_stay_near_their_points() -> None:
    """All modes, half of them in two heaps."""
    rng = np.random.default_rng(3)
    names = list(modes.MODES)
    heap = [(1.0, 30.0), (1.8, 30.0)]
    points = [heap[i % 2] if i % 4 < 2 else (rng.uniform(1, 4), rng.uniform(27, 30)) for i in range(len(names))]
    frame = pd.DataFrame({"mode": names, "speed_up": [p[0] for p in points], "quality": [p[1] for p in points]})
    ax = plot.plot_quality_speed(frame, "quality", "quality")
    places, _ = boxes(ax)
    for one, other in itertools.combinations(places, 2):
        assert not one.overlaps(other)
    within = ax.transAxes.inverted()
    for text, place in zip(ax.texts, places, strict=True):
        x, y = within.transform(ax.transData.transform(points[names.index(text.get_text())]))
        (x0, y0), (x1, y1) = within.transform(place.get_points())
        assert max(x0 - x, x - x1, 0) < 0.2 and max(y0 - y, y - y1, 0) < 0.2


def test_an_accuracy_that_tells_no_modes_apart_leaves_the_picture_to_the_error() -> None:
    frame = totals([0.9944] * 5).assign(sqnr_db=[np.inf, 52.0, 19.0, 41.0, 41.0])
    ax = plot.plot_accuracy_speed(frame)
    assert "signal to error" in ax.get_ylabel() and "99.44% in every mode" in ax.get_ylabel()
    assert "f32 (reference)" in {text.get_text() for text in ax.texts}
    few, some = (frame.assign(accuracy=[0.95 - wrong / 360] + [0.95] * 4) for wrong in (5, 6))
    assert "93.61% to 95.00%" in plot.plot_accuracy_speed(few).get_ylabel()  # five answers may be chance
    assert plot.plot_accuracy_speed(some).get_ylabel() == "accuracy on 360 held-out samples (%)"


@pytest.mark.parametrize(
    "accuracy",
    [[0.9944] * 5, [0.99, 0.99, 0.91, 0.985, 0.985], [1.0] * 5, [0.1, 0.1, 0.1, 0.1, 1.0], [0.0] * 5],
)
def test_names_stand_apart_and_inside(accuracy: list[float]) -> None:
    ax = plot.plot_accuracy_speed(totals(accuracy))
    places, figure = boxes(ax)
    assert {text.get_text() for text in ax.texts} == {*MODES}
    for one, other in itertools.combinations(places, 2):
        assert not one.overlaps(other)
    for place in places:
        assert figure.x0 <= place.x0 and place.x1 <= figure.x1 and figure.y0 <= place.y0 and place.y1 <= figure.y1


def test_names_stand_apart_in_small_panels() -> None:
    """Narrow pictures side by side: names are as wide as they are drawn, not as in a picture by itself."""
    names = ["f32", "bf16", "s8-weights", "s4-g32", "mxfp8", "mxfp6", "mxfp4", "nvfp4", "int8-token"]
    speeds = [
        [1.0, 5.524, 3.878, 4.235, 3.553, 3.762, 4.581, 4.401, 4.837],
        [1.0, 1.966, 1.579, 1.859, 1.218, 1.385, 2.109, 2.032, 3.898],
    ]
    perplexity = [39.40, 39.52, 39.51, 58.09, 41.67, 41.80, 106.0, 54.51, 41.15]
    for ax, speed in zip(plot.panels(6, (4.6, 4.0), columns=3), speeds, strict=False):
        frame = pd.DataFrame({"mode": names, "speed_up": speed, "perplexity": perplexity})
        plot.plot_quality_speed(frame, "perplexity", "perplexity", ax, higher_is_better=False)
        places, _ = boxes(ax)
        for one, other in itertools.combinations(places, 2):
            assert not one.overlaps(other)
        assert all(ax.bbox.x0 <= place.x0 and place.x1 <= ax.bbox.x1 for place in places)


def test_the_reference_is_named_where_no_mode_is() -> None:
    """Modes as fast as f32 stand on its line, and names of others reach it."""
    names = ["f32", "int8-fast", "mxfp4", "nvfp4", "s4-weights", "f8-tensor"]
    errors = [np.inf, 41.5, 24.5, 25.3, 19.7, 31.4]
    speeds = [[1.0, 1.53, 1.0, 1.0, 0.99, 0.99], [1.0, 3.46, 1.45, 1.45, 1.44, 1.43]]
    for ax, speed in zip(plot.panels(3), speeds, strict=False):
        plot.plot_accuracy_speed(pd.DataFrame({"mode": names, "speed_up": speed, "sqnr_db": errors}), ax)
        places, _ = boxes(ax)
        assert len(places) == len(names)
        for one, other in itertools.combinations(places, 2):
            assert not one.overlaps(other)
        assert all(ax.bbox.x0 <= place.x0 and ax.bbox.y0 <= place.y0 and place.y1 <= ax.bbox.y1 for place in places)


def test_points_are_the_frame() -> None:
    ax = plot.plot_accuracy_speed(totals([0.9, 0.91, 0.92, 0.93, 0.94]))
    points = sorted(tuple(np.round(c.get_offsets().data[0], 6)) for c in ax.collections)
    assert points == sorted(zip(SPEED, [90.0, 91.0, 92.0, 93.0, 94.0], strict=True))
    assert "accuracy on 360 held-out samples (%)" in ax.get_ylabel() and "f32" in ax.get_xlabel()
    low, high = ax.get_ylim()
    assert low < 90 and high > 94


def test_layer_tables_show_noise_and_f32_as_a_line() -> None:
    frame = pd.DataFrame({"mode": list(MODES), "speed_up": SPEED, "sqnr_db": [np.inf, 52, 12, 40, 40]})
    ax = plot.plot_accuracy_speed(frame)
    assert len(ax.collections) == 4 and "dB" in ax.get_ylabel()
    assert [1, 1] in [list(line.get_xdata()) for line in ax.lines]


def test_layers() -> None:
    ax = plot.plot_layers(layers(6))
    assert len(ax.patches) == 6 * len(MODES)
    assert [text.get_text() for text in ax.get_yticklabels()][:2] == ["layer0", "layer1 (x2)"]
    assert max(patch.get_width() for patch in ax.patches) == 2 * 15.0  # two of layer5
    assert ax.get_ylim()[0] > ax.get_ylim()[1]  # the first layer on top


def test_bars_say_what_integers_lost() -> None:
    frame = layers(4).assign(saturated_share=0.0, halved_share=[1e-5, *[0.0] * 19])
    frame.loc[frame["mode"] == "int8-fast", "saturated_share"] = [0.12, 0.0, 1.0, 0.5]
    ax = plot.plot_layers(frame)
    texts = ["<0.1% with halved weights", "12.0% saturated", "100.0% saturated", "50.0% saturated"]
    assert [text.get_text() for text in ax.texts] == texts
    assert all(ax.bbox.x0 < place.x0 and place.x1 < ax.bbox.x1 for place in boxes(ax)[0])
    many = pd.concat([frame.assign(layer=frame["layer"] + str(i)) for i in range(100)])
    assert not plot.plot_layers(many).texts  # bars thinner than letters


def test_axes_given_are_used_and_nothing_global_changes(tmp_path: Path) -> None:
    before, backend = dict(matplotlib.rcParams), matplotlib.get_backend(auto_select=False)
    figure = Figure()
    left, right = figure.subplots(1, 2)
    assert plot.plot_accuracy_speed(totals([0.9] * 5), left) is left
    assert plot.plot_layers(layers(2), ax=right) is right
    for suffix, head in ((".png", b"\x89PNG"), (".pdf", b"%PDF"), (".svg", b"<?xml")):
        path = tmp_path / f"picture{suffix}"
        plot.save(left, path)
        assert path.read_bytes().startswith(head)
    assert dict(matplotlib.rcParams) == before and matplotlib.get_backend(auto_select=False) == backend


def test_frames_that_cannot_be_drawn() -> None:
    with pytest.raises(InvalidArgument, match="lacks speed_up; it has mode"):
        plot.plot_accuracy_speed(pd.DataFrame({"mode": ["f32"]}))
    with pytest.raises(InvalidArgument, match="lacks sqnr_db"):
        plot.plot_accuracy_speed(pd.DataFrame({"mode": ["f32"], "speed_up": [1.0]}))
    with pytest.raises(InvalidArgument, match="no rows"):
        plot.plot_layers(layers(1).iloc[:0])


def test_what_spans_decades_is_drawn_by_its_logarithm() -> None:
    rows = {"mode": ["f32", "bf16", "int8-fast"], "speed_up": [1, 2, 3], "error": [20.0, 21.0, 1e6]}
    ax = plot.plot_quality_speed(pd.DataFrame(rows), "error", "perplexity", higher_is_better=False)
    assert ax.get_yscale() == "log"
    low, high = ax.get_ylim()  # better, which is lower here, is up
    assert low > 1e6 and 0 < high < 20
    near = pd.DataFrame(rows | {"error": [20.0, 21.0, 90.0]})
    assert plot.plot_quality_speed(near, "error", "perplexity", higher_is_better=False).get_yscale() == "linear"
    inside = [(ax.transData - ax.transAxes).transform(text.get_position()) for text in ax.texts]
    assert len(inside) == 3 and all(0 < x < 1 and 0 < y < 1 for x, y in inside)


def test_pictures_that_share_a_scale_keep_each_others_points_and_names() -> None:
    frame = pd.DataFrame({"mode": ["f32", "bf16", "int8-fast"], "speed_up": [1.0, 1.9, 2.2], "quality": [40, 39, 20.0]})
    left, right = Figure().subplots(1, 2, sharex=True, sharey=True)
    plot.plot_quality_speed(frame, "quality", "dB", left)
    plot.plot_quality_speed(
        frame.assign(quality=frame["quality"] - 30, speed_up=frame["speed_up"] / 2), "quality", "dB", right
    )
    for ax, lower, slower in ((left, 0, 1), (right, 30, 2)):
        (low, high), (_, far) = ax.get_ylim(), ax.get_xlim()
        placed = {text.get_text(): text.get_position() for text in ax.texts}
        for row in frame.itertuples():
            x, y = row.speed_up / slower, row.quality - lower
            assert low < y < high and x < far
            assert abs(placed[row.mode][1] - y) < 0.1 * (high - low) and abs(placed[row.mode][0] - x) < 0.2 * far
