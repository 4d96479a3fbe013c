"""Pictures of costs: their figures are the results', ticks stand where things were run, hostile inputs are refused."""

from __future__ import annotations

import functools
import itertools
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import matplotlib
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.text import Text

import simdnn
from isa_models import InvalidArgument, SimdnnError, formats, machine
from simdnn import Attr, Quant, plot, plot_study
from simdnn.networks.precision import MODES
from simdnn.plot.canvas import figure_of
from simdnn.plot.costs import cycles_by_cause, cycles_by_instruction
from simdnn.plot.formats import rounded
from simdnn.study import trace
from simdnn.timing.causes import CAUSES
from simdnn.timing.system import Span
from tests.effort import examples, one_in

F32 = simdnn.estimate("matmul", m=8, n=64, k=128, dt="f32", machine="zen4")
INT8 = simdnn.estimate("matmul", m=8, n=64, k=128, dt="u8:s8:s32", machine="zen4")
THREADS = simdnn.estimate("matmul", m=64, n=256, k=256, dt="f32", machine="zen4", threads=4)
ON_GPU = simdnn.estimate("matmul", m=128, n=128, k=128, dt="s8:s8:s32", machine="b580")
LOOP = simdnn.analyze("vpdpbusd zmm0, zmm1, zmm2\nvpaddd zmm3, zmm3, zmm0", machine="icx")
NAMES = list(itertools.islice(MODES, 5))


@functools.cache
def compressed(m: int) -> simdnn.Estimate:
    by_group = {
        "scales": {"wei": Quant(None, groups=(32, 1), dtype="f32")},
        "zero_points": {"wei": Quant(None, groups=(32, 1), dtype="s8")},
    }
    attr = Attr(fpmath="bf16", apply_to_int=True, **by_group)
    return simdnn.estimate("matmul", m=m, n=256, k=256, dt="f32:u4:f32", machine="zen4", attr=attr)


@functools.cache
def many(count: int) -> dict[str, simdnn.Estimate]:
    """Results of as many names, of few problems: pictures cost time, not the clock."""
    few = [simdnn.estimate("matmul", m=m, n=16 * m, k=64, dt="f32", machine="zen4") for m in (1, 2, 4, 8)]
    return {f"layer with a name {i}": few[i % 4] for i in range(count)}


def totals(count: int = 5) -> pd.DataFrame:
    return pd.DataFrame({"mode": NAMES[:count], "speed_up": np.linspace(1, 3, count), "accuracy": 0.9, "images": 360})


def layers(count: int) -> pd.DataFrame:
    rows = [(f"layer{i}", 1, mode, 1.0 + i) for i in range(count) for mode in NAMES[:2]]
    return pd.DataFrame(rows, columns=["layer", "count", "mode", "time_us"])


def space() -> pd.DataFrame:
    rows = [
        (m, slots, mode, float(m * slots), m / 1e3, 40.0 + m)
        for m in (1, 16, 64)
        for slots in (4, 6)
        for mode in ("f32", "bf16")
    ]
    frame = pd.DataFrame(rows, columns=["m", "core.dispatch_slots", "mode", "gops", "time_us", "sqnr_db"])
    frame.attrs["axes"] = ["m", "core.dispatch_slots", "mode"]
    return frame.assign(pareto=True)


def overheads() -> pd.DataFrame:
    rows = [("b580", "precomputed", g, 1 / g) for g in (32, 128, 4096)] + [("b580", "bias", "any", 0.12)]
    return pd.DataFrame(rows, columns=["gpu", "strategy", "group", "overhead"])


DRAWN: dict[str, Callable[..., Axes]] = {
    "roofline": lambda **k: plot.plot_roofline({"f32": F32, "int8": INT8}, **k),
    "roofline of a gpu": lambda **k: plot.plot_roofline(ON_GPU, **k),
    "roofline of 20": lambda **k: plot.plot_roofline(many(20), **k),
    "roofline of 200": lambda **k: plot.plot_roofline(list(many(200).values()), **k),
    "cycles": lambda **k: plot.plot_cycles(F32, **k),
    "cycles by cause": lambda **k: plot.plot_cycles([F32, INT8, compressed(1)], by="cause", **k),
    "cycles of a gpu": lambda **k: plot.plot_cycles(ON_GPU, by="cause", **k),
    "cycles of 20": lambda **k: plot.plot_cycles(many(20), **k),
    "cycles of 200": lambda **k: plot.plot_cycles(many(200), by="cause", **k),
    "traffic": lambda **k: plot.plot_traffic(F32, **k),
    "traffic of 20": lambda **k: plot.plot_traffic(many(20), **k),
    "traffic of 200": lambda **k: plot.plot_traffic(many(200), **k),
    "ports of a loop": lambda **k: plot.plot_ports(LOOP, **k),
    "ports of a kernel": lambda **k: plot.plot_ports(INT8, **k),
    "ports of a gpu": lambda **k: plot.plot_ports(ON_GPU, **k),
    "timeline of a loop": lambda **k: plot.plot_timeline(LOOP, **k),
    "timeline of a kernel": lambda **k: plot.plot_timeline(INT8, iterations=2, **k),
    "format": lambda **k: plot.plot_format("bf16", **k),
    "formats": lambda **k: plot.plot_format(list(formats.FORMATS), **k),
    "format of values": lambda **k: plot.plot_format(["f32", "f16", "f8_e4m3", "s8"], [0.1, 70000, np.inf], **k),
    "overhead": lambda **k: plot.plot_overhead(overheads(), **k),
    "spans": lambda **k: plot.plot_spans(THREADS, **k),
    "spans of a gpu": lambda **k: plot.plot_spans(ON_GPU, **k),
    "accuracy": lambda **k: plot.plot_accuracy_speed(totals(), **k),
    "layers of 20": lambda **k: plot.plot_layers(layers(20), **k),
    "layers of 200": lambda **k: plot.plot_layers(layers(200), **k),
    "pictures": lambda **k: plot.plot_pictures(
        {"a": np.zeros((4, 4, 3), np.uint8), "b": np.zeros((4, 4, 3), np.uint8)}, **k
    ),
    "saturation": lambda **k: plot.saturation_map(np.eye(6, dtype=int), **k),
    "errors": lambda **k: plot.error_histogram(pd.DataFrame({"a": [1, 2], "b": [1, 3]}), **k),
    "front": lambda **k: plot_study.plot_front(space(), ["m", "mode"], "sqnr_db", **k),
    "space": lambda **k: plot_study.plot_space(space(), ["m", "core.dispatch_slots", "mode"], "gops", **k),
    "bars": lambda **k: plot_study.plot_space(space(), ["mode"], "gops", **k),
    "heat": lambda **k: plot_study.plot_heat(space().query("mode == 'f32'"), "m", "core.dispatch_slots", "gops", **k),
}


def shown(ax: Axes, axis: Axis) -> list[Text]:
    """The labels of the ticks that are drawn: those within the limits."""
    low, high = sorted(axis.get_view_interval())
    return [tick.label1 for tick in axis.get_major_ticks() if low <= tick.get_loc() <= high and tick.label1.get_text()]


@one_in(3)
@pytest.mark.parametrize("name", DRAWN)
def test_draws_into_pyplots_current_figure_or_into_the_axes_given(name: str) -> None:
    """Without `ax` one new figure of pyplot's, which is the current one, and nothing there is cut off; with it none."""
    plt.close("all")
    found = DRAWN[name]()
    assert [plt.gcf()] == [plt.figure(number) for number in plt.get_fignums()] == [figure_of(found)]
    if name != "saturation" and not name.startswith(("heat", "pictures")):
        assert plt.gca() is found
    holds_its_texts(found)
    own, ax = plt.subplots(figsize=(7, 5))
    assert DRAWN[name](ax=ax) is ax and len(plt.get_fignums()) == 2
    assert tuple(own.get_size_inches()) == (7, 5) and ax.has_data() | bool(ax.child_axes)


def holds_its_texts(ax: Axes) -> None:
    """All texts lie within the figure, the names along an axis apart, the legend on no curve."""
    figure = figure_of(ax)
    canvas = FigureCanvasAgg(figure)
    canvas.draw()  # warnings are errors: no glyph is missing
    renderer, whole = canvas.get_renderer(), figure.bbox.padded(2)
    legend = ax.get_legend()
    named = shown(ax, ax.yaxis)
    texts = [ax.xaxis.label, ax.yaxis.label, *shown(ax, ax.xaxis), *named, *(legend.get_texts() if legend else [])]
    for text in (*(texts if ax.axison else []), ax.title):
        box = text.get_window_extent(renderer)
        if text.get_text() and box.width:
            assert whole.x0 <= box.x0 and box.x1 <= whole.x1 and whole.y0 <= box.y0 and box.y1 <= whole.y1, text
    for one, other in itertools.pairwise(named):
        inner = one.get_window_extent(renderer).padded(-1), other.get_window_extent(renderer).padded(-1)
        assert not inner[0].overlaps(inner[1]), (one.get_text(), other.get_text())
    if legend:  # beside the axes, or the strip above them: on no curve
        box, inside = legend.get_window_extent(renderer), ax.get_window_extent(renderer).padded(-2)
        assert not box.overlaps(inside)


def test_the_users_style_is_honoured() -> None:
    with plt.rc_context(
        {"figure.figsize": (3.0, 3.5), "axes.prop_cycle": matplotlib.cycler(color=["#123456", "#654321"])}
    ):
        ax = plot.plot_cycles(F32)
        assert tuple(figure_of(ax).get_size_inches()) == (3.0, 3.5)
        assert matplotlib.colors.to_hex(ax.patches[0].get_facecolor()) == "#123456"


def test_pictures_apart_are_no_figures_of_pyplots(tmp_path: Path) -> None:
    plt.close("all")
    with plot.apart():
        plot.save(plot.plot_cycles(F32), tmp_path / "a.png")
    assert plt.get_fignums() == [] and (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")
    assert figure_of(plot.plot_cycles(F32)).number in plt.get_fignums()


def test_commands_leave_no_figure_open(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from simdnn.cli import main

    plt.close("all")
    monkeypatch.chdir(tmp_path)
    Path("a.csv").write_text("layer,M,N,K,batch,count,macs,kind\none,4,16,8,1,1,512,weight\n")
    Path("a.toml").write_text(
        '[study]\nkind = "matmul"\n[fixed]\nmachine = "zen4"\nm = 4\nn = 16\n[axes]\nk = [8, 16]\n'
    )
    assert main(["run", "a.csv", "--machine", "zen4", "--no-values", "--plot", "a.png"]) == 0
    assert main(["study", "a.toml", "--plot", "b.png"]) == 0
    assert plt.get_fignums() == [] and Path("a.png").exists() and Path("b.png").exists()


def test_pyplot_is_loaded_when_the_first_picture_is_drawn() -> None:
    code = "import sys, simdnn.plot, simdnn.plot_study; assert 'matplotlib.pyplot' not in sys.modules"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_a_notebook_shows_what_its_cells_draw(tmp_path: Path) -> None:
    """A small notebook, executed: each cell's picture is among its outputs."""
    nbformat = pytest.importorskip("nbformat")
    pytest.importorskip("ipykernel")
    from tests.lessons import executed

    setup = "import simdnn\nfrom simdnn import plot\nr = simdnn.estimate('matmul', m=4, n=16, k=16, machine='zen4')"
    cells = [
        setup,
        "plot.plot_cycles(r, by='cause');",
        "plot.plot_format(['f32', 'bf16'], 0.1)",
        "x = plot.plot_roofline(r)",
    ]
    book = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in cells])
    cells = executed(book, tmp_path).cells
    shown = [["image/png" in output.get("data", {}) for output in cell.outputs] for cell in cells]
    assert [sum(found) for found in shown] == [0, 1, 1, 1]


# -- figures --------------------------------------------------------------------------------------------------------
def heights(ax: Axes, place: int) -> dict[str, float]:
    """The parts of one stack by their labels."""
    return {c.get_label(): c.patches[place].get_height() for c in ax.containers if c.patches[place].get_height()}


@pytest.mark.parametrize("by", ["instruction", "cause"])
@pytest.mark.parametrize("result", [F32, INT8, THREADS, ON_GPU], ids=str)
def test_stacks_add_up_to_the_cycles_of_the_run(result: simdnn.Estimate, by: str) -> None:
    found = heights(plot.plot_cycles({"a": F32, "b": result}, by=by), 1)
    assert sum(found.values()) == pytest.approx(result.cycles)
    whole = (cycles_by_cause if by == "cause" else cycles_by_instruction)(result)
    assert {name: found[name] for name in whole if name in found} == pytest.approx(
        {n: c for n, c in whole.items() if n in found}
    )


def test_parts_of_a_stack_have_the_frames_shares() -> None:
    frame = compressed(4).causes.set_index("cause")["cycles"]
    assert heights(plot.plot_cycles(compressed(4), by="cause"), 0) == pytest.approx(frame.to_dict())
    assert frame.sum() == pytest.approx(compressed(4).cycles)
    by = compressed(4).instructions.set_index("instruction")["cycles_share"].groupby(level=0).sum()
    parts = heights(plot.plot_cycles(compressed(4)), 0)
    assert parts["vpermps"] / parts["vsubps"] == pytest.approx(by["vpermps"] / by["vsubps"])


def test_a_networks_causes_are_those_of_its_nodes() -> None:
    onnx = pytest.importorskip("onnx")
    from tests.networks.models import small_cnn

    assert onnx
    run = simdnn.load(small_cnn()).estimate({"x": (1, 3, 12, 12)}, machine="zen4")
    assert run.causes["cycles"].sum() == pytest.approx(run.cycles)
    assert {"dot products", "element by element"} <= set(run.causes["cause"])
    ax = plot.plot_cycles({"network": run}, by="cause")
    assert sum(heights(ax, 0).values()) == pytest.approx(run.cycles)
    assert len(plot.plot_roofline(run).lines) > 4
    assert (
        sum(bar.get_height() for bar in plot.plot_traffic(run).patches)
        == run.traffic[["read_bytes", "written_bytes"]].sum().sum()
    )


def test_traffic_is_the_frames() -> None:
    ax = plot.plot_traffic({"f32": F32, "int8": INT8})
    levels = [text.get_text() for text in ax.get_xticklabels()]
    assert levels == list(F32.traffic["level"])
    for container in ax.containers:
        name, side = container.get_label().split(", ")
        frame = {"f32": F32, "int8": INT8}[name].traffic
        assert [bar.get_height() for bar in container] == list(
            frame["read_bytes" if side == "read" else "written_bytes"]
        )


def test_ports_are_the_analysis() -> None:
    ax = plot.plot_ports(LOOP)
    assert [text.get_text() for text in ax.get_yticklabels()] == list(LOOP.ports["port"])
    assert [bar.get_width() for bar in ax.patches] == pytest.approx(list(LOOP.ports["cycles"]))
    assert list(ax.lines[0].get_xdata()) == [LOOP.cycles_per_iteration] * 2


def test_a_timeline_is_the_trace() -> None:
    ax = plot.plot_timeline(LOOP, iterations=3)
    assert [text.get_text() for text in ax.get_yticklabels()] == [
        "vpdpbusd zmm0, zmm1, zmm2",
        "vpaddd zmm3, zmm3, zmm0",
    ] * 3
    starts = [
        line.get_xdata()[0] for line in ax.lines if len(set(line.get_xdata())) == 1 and len(line.get_xdata()) == 2
    ]
    assert starts == [event.dispatched for event in LOOP.timeline.events]
    kernel = plot.plot_timeline(INT8, iterations=1)
    texts = [text.get_text() for text in kernel.get_yticklabels()]
    assert any(text.startswith("vpdpbusd c0_0, a") for text in texts) and texts[-1] == "dec+jnz"
    assert "inner loop over k" in kernel.get_title()


def test_points_lie_under_the_roofs() -> None:
    for result in (F32, INT8, THREADS, ON_GPU):
        ax = plot.plot_roofline(result)
        roof = max(line.get_ydata()[0] for line in ax.lines if list(line.get_ydata())[0] == list(line.get_ydata())[-1])
        points = [line for line in ax.lines if len(line.get_xdata()) == 1]
        moved = {level.level: level.bytes for level in result.cost.levels if level.bytes}
        intensity = sorted(2 * result.problem.macs / size for size in moved.values())
        assert sorted(float(point.get_xdata()[0]) for point in points) == pytest.approx(intensity)
        assert all(
            point.get_ydata()[0] == pytest.approx(result.gops) and result.gops <= roof * 1.001 for point in points
        )
    frame = pd.DataFrame({"gops": [10.0], "ai_ops_per_byte": [3.0], "layer": ["conv"]})
    ax = plot.plot_roofline(frame, machine="zen4")
    assert [(line.get_xdata()[0], line.get_ydata()[0]) for line in ax.lines if len(line.get_xdata()) == 1][-1] == (
        3.0,
        10.0,
    )
    assert plot.plot_roofline(frame.assign(machine="icx")).get_title().startswith(machine("icx").title)


def test_roofs_are_the_machines() -> None:
    from simdnn.plot.roofline import levels, peaks

    zen4 = machine("zen4")
    ghz = zen4.frequency.ghz(512)
    assert levels(zen4)["L1"] == pytest.approx(zen4.caches[0].load_bytes_per_cycle * ghz)
    assert levels(zen4, 4)["L1"] == 4 * levels(zen4)["L1"] and levels(zen4, 96)["DRAM"] == zen4.dram.gb_s_socket
    assert peaks(zen4)["f32", zen4.isa[-1]] == pytest.approx(32 * ghz)  # 16 multiply-accumulates a cycle
    b580 = machine("b580")
    assert peaks(b580)["s8", b580.platform.name] == pytest.approx(b580.peak_ops("s8") / 1e9, rel=0.2)


def test_ticks_stand_at_the_values_that_were_run() -> None:
    ax = plot.plot_overhead(overheads())
    assert list(ax.get_xticks()) == [32, 128, 4096] and [t.get_text() for t in ax.get_xticklabels()] == [
        "32",
        "128",
        "4,096",
    ]
    line = next(line for line in ax.lines if line.get_label() == "precomputed")
    assert list(line.get_ydata()) == pytest.approx([100 / 32, 100 / 128, 100 / 4096])
    bias = next(line for line in ax.lines if line.get_label() == "bias")
    assert list(bias.get_xdata()) == [32, 4096] and list(bias.get_ydata()) == [12, 12]
    assert any(list(line.get_ydata()) == [5.0, 5.0] for line in ax.lines)  # the proposal's
    assert any(patch.get_y() == 10 and patch.get_height() == 5 for patch in ax.patches if hasattr(patch, "get_y"))
    assert list(plot_study.plot_space(space(), ["m", "mode"], "gops").get_xticks()) == [1, 16, 64]
    heat = DRAWN["heat"]()
    assert [t.get_text() for t in heat.get_xticklabels()] == ["1", "16", "64"]
    assert np.asarray(heat.images[0].get_array()).tolist() == [[4, 64, 256], [6, 96, 384]]


def test_spans_are_those_of_the_simulation() -> None:
    spans, ghz = trace.spans(THREADS)
    ax = plot.plot_spans(THREADS)
    assert {t.get_text() for t in ax.get_yticklabels()} == {span.place for span in spans}
    ends = max(path.vertices[:, 0].max() for c in ax.collections for path in c.get_paths())
    assert ends == pytest.approx(max(span.end for span in spans) / ghz / 1e3)
    plain = plot.plot_spans([Span("core 0", "tile", 0, 10), Span("core 1", "tile", 5, 20)])
    assert plain.get_xlabel() == "cycles" and len(plain.get_yticklabels()) == 2
    events = {"traceEvents": trace.events(THREADS) + trace.events(ON_GPU, 1)}
    assert any(t.get_text().startswith("core 0 of gemm") for t in plot.plot_spans(events).get_yticklabels())


def test_points_in_one_place_have_marks_of_different_sizes() -> None:
    frame = pd.DataFrame(
        {"mode": NAMES, "speed_up": [1.0, 2, 2, 2, 3], "accuracy": [0.9, 0.95, 0.95, 0.95, 0.91], "images": 9}
    )
    ax = plot.plot_accuracy_speed(frame)
    sizes = [c.get_sizes()[0] for c in ax.collections if c.get_offsets()[0][0] == 2]
    assert len(sizes) == len(set(sizes)) == 3
    front = plot_study.plot_front(space().assign(time_us=1.0, sqnr_db=50.0), ["mode"], "sqnr_db")
    assert "f32 = bf16" in [text.get_text() for text in front.texts]
    steps = [line for line in ax.lines if line.get_drawstyle() == "steps-pre"]
    assert [list(line.get_xdata()) for line in steps] == [[2, 2, 2, 3]]  # the front


@examples(60)
@given(st.floats(allow_nan=True, allow_infinity=True, width=32), st.sampled_from(sorted(formats.FORMATS)))
def test_bits_are_what_the_format_stores(value: float, name: str) -> None:
    """The bits that are drawn, read back, are the number that the text says; no other is nearer."""
    form = formats.fmt(name)
    if not form.is_float:
        if np.isnan(value):
            with pytest.raises(InvalidArgument, match="NaN"):
                rounded(form, value)
            return
        kept, bits = rounded(form, value)
        assert len(bits) == form.bits and form.low <= kept <= form.high
        assert kept == (int(bits, 2) - (1 << form.bits) * (form.signed and bits[0] == "1"))
        assert kept in (form.low, form.high) or abs(kept - value) <= 0.5
        return
    if not form.signed and value < 0:
        with pytest.raises(InvalidArgument, match="no negative values"):
            rounded(form, value)
        return
    kept, bits = rounded(form, value)
    dtype = np.dtype(f"u{form.dtype.itemsize}")
    assert len(bits) == form.bits
    back = np.array([int(bits, 2)], dtype).view(form.dtype).astype(np.float64)[0]
    np.testing.assert_equal(back, kept)
    if form.name not in ("tf32", "e8m0") and (form.nan or not np.isnan(value)):
        with np.errstate(over="ignore"):
            np.testing.assert_equal(kept, np.float64(np.float64(value).astype(form.dtype)))


# -- what cannot be drawn -------------------------------------------------------------------------------------------
HOSTILE: dict[str, Callable[[], Any]] = {
    "no results": lambda: plot.plot_cycles([]),
    "an empty mapping": lambda: plot.plot_traffic({}),
    "no result": lambda: plot.plot_roofline([1]),
    "a number": lambda: plot.plot_cycles(3),
    "a word": lambda: plot.plot_traffic("r"),
    "by what": lambda: plot.plot_cycles(F32, by="colour"),
    "two machines": lambda: plot.plot_roofline([F32, ON_GPU]),
    "a frame without a machine": lambda: plot.plot_roofline(pd.DataFrame({"gops": [1.0], "ai_ops_per_byte": [1.0]})),
    "no figures": lambda: plot.plot_roofline(
        pd.DataFrame({"gops": [np.nan, 0.0], "ai_ops_per_byte": [1.0, 1.0]}), "zen4"
    ),
    "no such machine": lambda: plot.plot_roofline(F32, machine="zen44"),
    "no columns": lambda: plot.plot_roofline(pd.DataFrame({"gops": [1.0]}), "zen4"),
    "no frame": lambda: plot.plot_overhead([1, 2]),
    "an empty frame": lambda: plot.plot_overhead(overheads().iloc[:0]),
    "no overhead": lambda: plot.plot_overhead(overheads().assign(overhead=np.nan)),
    "no group": lambda: plot.plot_overhead(overheads().assign(group="any")),
    "not a loop": lambda: plot.plot_ports(3),
    "a timeline of a gpu": lambda: plot.plot_timeline(ON_GPU),
    "no iterations": lambda: plot.plot_timeline(LOOP, iterations=0),
    "half an iteration": lambda: plot.plot_timeline(LOOP, iterations=1.5),
    "no format": lambda: plot.plot_format("f17"),
    "no formats": lambda: plot.plot_format([]),
    "no number": lambda: plot.plot_format("f16", "pi"),
    "no values": lambda: plot.plot_format("f16", []),
    "NaN in integers": lambda: plot.plot_format("s8", np.nan),
    "too many rows": lambda: plot.plot_format("f16", list(range(100))),
    "no spans": lambda: plot.plot_spans([]),
    "no trace": lambda: plot.plot_spans({"traceEvents": [{"ph": "X"}]}),
    "no file": lambda: plot.plot_spans("/no/such/file.json"),
    "no events": lambda: plot.plot_spans(7),
    "one cell twice": lambda: plot_study.plot_heat(space(), "m", "core.dispatch_slots", "gops"),
    "one column twice": lambda: plot_study.plot_heat(space(), "m", "m", "gops"),
    "no value": lambda: plot_study.plot_heat(space().assign(gops=np.inf), "m", "mode", "gops"),
    "an empty study": lambda: plot_study.plot_heat(space().iloc[:0], "m", "mode", "gops"),
    "no axes": lambda: plot_study.plot_space(pd.DataFrame({"m": [1], "gops": [2.0]})),
    "no quality": lambda: plot_study.plot_front(space().drop(columns="sqnr_db"), ["mode"]),
    "no times": lambda: plot_study.plot_front(space().assign(time_us=np.inf), ["mode"], "sqnr_db"),
    "no speeds": lambda: plot.plot_accuracy_speed(totals().assign(speed_up=np.nan)),
    "no layers' times": lambda: plot.plot_layers(layers(3).assign(time_us=np.nan)),
    "no pictures": lambda: plot.plot_pictures({}),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_what_cannot_be_drawn_is_refused_and_leaves_no_figure(name: str) -> None:
    plt.close("all")
    with pytest.raises(SimdnnError):
        HOSTILE[name]()
    assert plt.get_fignums() == []


def test_one_point_and_figures_that_are_not_finite() -> None:
    """A sensible picture: what is finite is drawn."""
    one = space().iloc[:1]
    for ax in (
        plot_study.plot_front(one, ["m", "mode"], "sqnr_db"),
        plot_study.plot_front(space().assign(sqnr_db=np.inf), ["mode"], "sqnr_db"),
        plot_study.plot_heat(one, "m", "mode", "gops"),
        plot_study.plot_heat(
            space()
            .query("mode == 'f32' and m > 1 or m == 1 and mode == 'f32'")
            .assign(gops=[1, np.nan, 2, np.inf, 3, 4]),
            "m",
            "core.dispatch_slots",
            "gops",
        ),
        plot.plot_accuracy_speed(totals(1)),
        plot.plot_layers(layers(2).assign(time_us=[1.0, np.nan, np.inf, 2.0])),
        plot.plot_overhead(overheads().iloc[:1]),
        plot.plot_overhead(pd.concat([overheads(), overheads()]).assign(overhead=[0.1, np.nan, 0.2, np.inf] * 2)),
    ):
        FigureCanvasAgg(figure_of(ax)).draw()
        plt.close("all")


def test_causes_are_named_and_told_apart() -> None:
    found = {result: set(result.causes["cause"]) for result in (F32, INT8, compressed(8), ON_GPU)}
    assert all(causes <= set(CAUSES) and "dot products" in causes for causes in found.values())
    assert {"decompression", "zero points"} <= set(compressed(8).causes["cause"])
    assert not {"decompression", "conversion", "zero points"} & found[F32]
    assert "launch" in set(simdnn.estimate("matmul", m=8, n=8, k=8, dt="f16", machine="v100").causes["cause"])
