"""`make pictures`: the pictures of docs/images, each from the table beside it, which says the command that makes it.

    python tools/draw_pictures.py                    draw all from tables: those that take seconds are computed anew
    python tools/draw_pictures.py --compute NAME …   compute these tables anew, too, whatever they take

A picture holds the digest of the table that it shows; tests/test_repository_pictures.py finds those that are stale.
"""

from __future__ import annotations

import argparse
import hashlib
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

import simdnn
from simdnn import Attr, Quant, cli, plot, plot_study, study
from simdnn.assembly.timeline import Timeline
from simdnn.plot.canvas import SYMBOLS, color, figure_of, legend, ticks_at
from simdnn.plot.timeline import loop_of
from workloads import super_resolution as sr

ROOT = Path(__file__).parents[1]
IMAGES = ROOT / "docs" / "images"
DOTS = 150  # an inch


@dataclass(frozen=True)
class Picture:
    """A picture: its table, as `compute` makes it by what `command` says, and how the table is drawn.

    `quick`: the table takes seconds, and is made with the picture.
    """

    command: str
    compute: Callable[[], pd.DataFrame]
    draw: Callable[[pd.DataFrame], Axes]
    quick: bool = True


# -- the tables, and how they are drawn -----------------------------------------------------------------------------
def super_resolution() -> pd.DataFrame:
    """Modes of the network, and as a row of its own what bicubic interpolation reaches."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "totals.csv")
        if cli.main(["run", "sr", "--machine", "zen4", "-o", str(path)]):
            raise SystemExit("simdnn run sr failed; simdnn fetch-models sr fetches the network and the photos")
        return pd.concat([pd.read_csv(path)[["mode", "speed_up", "psnr_db"]], bicubic()])


def bicubic() -> pd.DataFrame:
    """The quality of the photos where no network enlarges them."""
    originals = [sr.middle(sr.photo(name)) for name in sr.PHOTOS]
    psnr = [sr.psnr(sr.resized(sr.resized(one, sr.SIZE // sr.FACTOR), sr.SIZE), one) for one in originals]
    return pd.DataFrame({"mode": ["bicubic"], "psnr_db": [float(np.mean(psnr))]})


def draw_super_resolution(frame: pd.DataFrame) -> Axes:
    modes, bicubic = frame[frame["mode"] != "bicubic"], frame[frame["mode"] == "bicubic"]
    ax = plot.plot_quality_speed(modes, "psnr_db", "peak signal-to-noise ratio (dB)")
    height = float(bicubic["psnr_db"].iloc[0])
    ax.axhline(height, color="grey", linestyle="--", linewidth=1)
    ax.text(
        0.99, height, "bicubic interpolation", transform=ax.get_yaxis_transform(), ha="right", va="bottom", color="grey"
    )
    ax.set_title("A network that doubles the size of photos, on a modelled Zen 4")
    return ax


TUNED, MOST_LOST = ("zen4", "clx", "spr"), 0.05  # machines, and the loss in dB that the picture is about

_BY_LAYER = "by layer"
_NAMED = ("f32", "bf16", "fpmath-bf16", "int8-vnni")  # the modes that are told apart in the picture


def tuning_sr() -> pd.DataFrame:
    """Recipes that ran over all photos on each machine. A first run takes long; it is kept in build."""
    kept = ROOT / "build" / "tuning-sr.jsonl"
    kept.parent.mkdir(exist_ok=True)
    found = simdnn.tune("sr", machine=list(TUNED), max_loss=MOST_LOST, results=kept)
    return tuned_rows(found.runs)


def tuned_rows(runs: pd.DataFrame) -> pd.DataFrame:
    """Recipes as runs hold them; `mode`: that of the whole network, or that each layer has its own."""
    mode = runs["recipe"].str.extract(r"^all (\S+)$")[0].fillna(_BY_LAYER)
    return runs.assign(mode=mode)[["machine", "mode", "cycles", "speed_up", "quality", "loss"]]


def draw_tuning_sr(frame: pd.DataFrame) -> Axes:
    axes = plot.panels(len(TUNED), (4.2, 4.0))
    low = frame["quality"][frame["quality"] > frame["quality"].max() - 0.5].min() - 0.04
    for ax, machine in zip(axes, TUNED, strict=True):
        rows = frame[(frame["machine"] == machine) & (frame["quality"] >= low)].sort_values("speed_up")
        f32 = rows["quality"] + rows["loss"]
        front = rows[rows["quality"] >= rows["quality"][::-1].cummax()[::-1]]
        (steps,) = ax.step(front["speed_up"], front["quality"], where="pre", color=color(0), linewidth=1)
        single = rows[rows["mode"] != _BY_LAYER].drop_duplicates(["speed_up", "quality"])
        recipes = ax.plot(
            *_at(rows[rows["mode"] == _BY_LAYER]),
            "o",
            color=color(0),
            markersize=5,
            label="a mode for each layer",
            zorder=4,  # over names and their boxes
        )
        ones = ax.plot(*_at(single), "s", color=color(1), markersize=6, label="one mode for all layers", zorder=4)
        for row in single[single["mode"].isin(_NAMED)].to_dict("records"):
            left = row["speed_up"] > 0.6 * rows["speed_up"].max()
            away, side = ((-6, -11), "right") if left else ((6, 5), "left")
            where = (row["speed_up"], row["quality"])
            box = {"facecolor": "white", "edgecolor": "none", "pad": 0.5, "alpha": 0.8}  # over the front's line
            ax.annotate(row["mode"], where, away, textcoords="offset points", fontsize=8, ha=side, bbox=box)
        bound = float(f32.iloc[0]) - MOST_LOST
        ax.axhline(bound, color="grey", linestyle="--", linewidth=1)
        best, tuned = (part[part["quality"] >= bound]["speed_up"].max() for part in (single, rows))
        ax.set_title(
            f"{simdnn.machine(machine).title.split(' (')[0]} ({machine})\n{tuned / best:.2f} x one mode", fontsize=9
        )
        ax.set_xlabel("speed-up over f32")
        ax.set_ylim(low, frame["quality"].max() + 0.02)
        ax.grid(alpha=0.3)
    axes[0].set_ylabel("peak signal-to-noise ratio (dB)")
    legend(axes[-1], [*recipes, *ones], title=f"dashed: {MOST_LOST:g} dB below f32")
    return axes[0]


def _at(rows: pd.DataFrame) -> tuple[pd.Series, pd.Series]:
    return rows["speed_up"], rows["quality"]


WRITING = ("zen4", "spr", "b580")
WRITTEN = ("f32", "bf16", "s8-weights", "s4-g32", "mxfp8", "mxfp6", "mxfp4", "nvfp4", "int8-token")
_RUN_LLM = ["run", "llm", "--machine", ",".join(WRITING), "--values-of", WRITING[0], "--modes", ",".join(WRITTEN)]


def language_model() -> pd.DataFrame:
    """Modes of the network on each machine, a row for the prompt and one for a token after it."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "totals.csv")
        if cli.main([*_RUN_LLM, "-o", str(path)]):
            raise SystemExit("simdnn run llm failed; simdnn fetch-models llm fetches the network and the news")
        columns = ["machine", "phase", "mode", "tokens_per_s", "speed_up", "perplexity", "next_token", "samples"]
        return pd.read_csv(path)[[*columns, "values_of"]]


def draw_language_model(frame: pd.DataFrame) -> Axes:
    phases = list(dict.fromkeys(frame["phase"]))
    axes = plot.panels(len(phases) * len(WRITING), (4.6, 4.0), columns=len(WRITING))
    places = [(phase, machine) for phase in phases for machine in WRITING]
    for ax, (phase, machine) in zip(axes, places, strict=True):
        rows = frame[(frame["phase"] == phase) & (frame["machine"] == machine)]
        plot.plot_quality_speed(rows, "perplexity", "perplexity", ax, higher_is_better=False)
        ax.set_xlabel("tokens per second")
        ax.set_title(f"{simdnn.machine(machine).title.split(' (')[0]} ({machine}), {phase}", fontsize="medium")
    return axes[0]


ROWS, STORED, CROSSING_MACHINES = (1, 4, 16, 64, 512), ("f32", "bf16", "s8", "s4"), ("zen4", "clx", "spr")
SIZE = 4096


def crossing(machine: str, m: int, weights: str) -> simdnn.Estimate:
    """The product of m rows by weights of 4096 x 4096. `Unimplemented` where the machine has no kernel for it."""
    options: dict[str, Any] = {"dt": "f32" if weights == "f32" else "bf16:bf16:f32"}
    if weights in ("s8", "s4"):
        scales = {"wei": Quant(None, groups=(128, 1), dtype="f32")}
        options = {"dt": f"f32:{weights}:f32", "attr": Attr(fpmath="bf16", apply_to_int=True, scales=scales)}
    found: simdnn.Estimate = simdnn.estimate("matmul", m=m, n=SIZE, k=SIZE, machine=machine, **options)
    return found


def crossing_cycles(machine: str, m: int, weights: str) -> float:
    """Cycles of such a product, its weights in no cache; NaN where there is no kernel."""
    with simdnn.cold_weights():
        try:
            return crossing(machine, m, weights).cycles
        except simdnn.Unimplemented:
            return float("nan")


def weights_crossing() -> pd.DataFrame:
    rows = [(c, m, w, crossing_cycles(c, m, w)) for c in CROSSING_MACHINES for m in ROWS for w in STORED]
    return pd.DataFrame(rows, columns=["machine", "m", "weights", "cycles"])


def draw_weights_crossing(frame: pd.DataFrame) -> Axes:
    axes = plot.panels(len(CROSSING_MACHINES), (4.2, 3.8))
    for ax, machine in zip(axes, CROSSING_MACHINES, strict=True):
        cycles = frame[frame["machine"] == machine].pivot(index="m", columns="weights", values="cycles")
        handles = []
        for place, weights in enumerate(STORED):
            style = {"color": color(place), "marker": SYMBOLS[place], "linestyle": ("-", "--", "-.", ":")[place]}
            speed = (cycles["f32"] / cycles[weights]).dropna()
            handles += ax.plot(speed.index, speed, markersize=8 - place, label=weights, **style)
        ticks_at(ax, ROWS)
        ax.set_ylim(0, 1.08 * (frame.pivot(index=["machine", "m"], columns="weights", values="cycles").pipe(_most)))
        ax.set_title(f"{simdnn.machine(machine).title.split(' (')[0]} ({machine})", fontsize="medium")
        ax.set_xlabel("rows of the source (M)")
        ax.grid(alpha=0.3)
    axes[0].set_ylabel("speed-up over weights in f32")
    legend(axes[-1], handles, title="weights stored in")
    return axes[0]


def _most(cycles: pd.DataFrame) -> float:
    return float(max((cycles["f32"] / cycles[weights]).max() for weights in STORED))


UNITS = ROOT / "docs" / "studies" / "zen4_units.toml"


def zen4_units() -> pd.DataFrame:
    with tempfile.TemporaryDirectory() as folder:  # where no rows of an earlier run are kept
        frame = study.explore(Path(shutil.copy(UNITS, folder)))
    return frame[["machine", "mode", "time_us", "sqnr_db", "pareto"]]


def draw_zen4_units(frame: pd.DataFrame) -> Axes:
    ax = plot_study.plot_front(frame, ["machine", "mode"], "sqnr_db")
    ax.set_title(
        "What a Zen 4 would gain from units of full width, and loses with one port for VNNI", fontsize="medium"
    )
    return ax


def kernels() -> dict[str, simdnn.Estimate]:
    """Products of a language model's size on one core of a Zen 4, weights from memory."""
    with simdnn.cold_weights():
        return {
            "f32, 1 row": crossing("zen4", 1, "f32"),
            "s4 weights, 1 row": crossing("zen4", 1, "s4"),
            "f32, 64 rows": crossing("zen4", 64, "f32"),
            "u8 x s8, 64 rows": simdnn.estimate("matmul", m=64, n=SIZE, k=SIZE, dt="u8:s8:s32", machine="zen4"),
        }


def roofline() -> pd.DataFrame:
    rows = [
        (name, result.gops, level.level, 2 * result.problem.macs / level.bytes)
        for name, result in kernels().items()
        for level in result.cost.levels
        if level.bytes
    ]
    return pd.DataFrame(rows, columns=["name", "gops", "level", "ai_ops_per_byte"])


def one_row() -> dict[str, simdnn.Estimate]:
    """One row by weights of 4096 x 4096 from memory, by the type that these are stored in."""
    with simdnn.cold_weights():
        return {weights: crossing("zen4", 1, weights) for weights in STORED}


def cycles() -> pd.DataFrame:
    found = [result.causes.assign(weights=weights) for weights, result in one_row().items()]
    return pd.concat(found)[["weights", "cause", "cycles"]]


def draw_cycles(_: pd.DataFrame) -> Axes:
    ax = plot.plot_cycles({f"{weights} weights": result for weights, result in one_row().items()}, by="cause")
    ax.set_title("One row by 4096 x 4096 weights from memory, Zen 4", fontsize="medium")
    return ax


def small_product() -> simdnn.Estimate:
    """The product whose inner loop the timeline shows."""
    return simdnn.estimate("matmul", m=4, n=32, k=64, dt="u8:s8:s32", machine="zen4")


def timeline() -> pd.DataFrame:
    loop = loop_of(small_product())
    return pd.DataFrame([vars(event) for event in Timeline.of(loop.machine, loop.steps, loop.texts, 2).events])


PICTURES = {
    "super_resolution_zen4": Picture(
        "simdnn fetch-models sr; simdnn run sr --machine zen4", super_resolution, draw_super_resolution, quick=False
    ),
    "weights_crossing": Picture(
        "simdnn.estimate('matmul', m=M, n=4096, k=4096, …) within simdnn.cold_weights()",
        weights_crossing,
        draw_weights_crossing,
        quick=False,
    ),
    "tuning_sr": Picture(
        "simdnn fetch-models sr; simdnn tune sr --machine zen4,clx,spr --max-loss 0.05",
        tuning_sr,
        draw_tuning_sr,
        quick=False,
    ),
    "language_model": Picture(
        f"simdnn fetch-models llm; simdnn {' '.join(_RUN_LLM)}", language_model, draw_language_model, quick=False
    ),
    "zen4_units": Picture("simdnn study docs/studies/zen4_units.toml", zen4_units, draw_zen4_units),
    "roofline_zen4": Picture("simdnn.plot.plot_roofline", roofline, lambda _: plot.plot_roofline(kernels())),
    "cycles_zen4": Picture("simdnn.plot.plot_cycles", cycles, draw_cycles),
    "timeline_zen4": Picture(
        "simdnn.plot.plot_timeline", timeline, lambda _: plot.plot_timeline(small_product(), iterations=2)
    ),
}


# -- tables and digests ---------------------------------------------------------------------------------------------
def table(name: str) -> pd.DataFrame:
    """The stored table of a picture."""
    return pd.read_csv(IMAGES / f"{name}.csv", comment="#")


def digest(name: str) -> str:
    """A picture's note on the table that it shows."""
    return f"table sha256 {hashlib.sha256((IMAGES / f'{name}.csv').read_bytes()).hexdigest()}"


def store(name: str) -> None:
    """Compute a picture's table anew."""
    text = PICTURES[name].compute().to_csv(index=False, float_format="%.6g", lineterminator="\n")
    (IMAGES / f"{name}.csv").write_text(f"# {PICTURES[name].command}\n{text}", encoding="utf-8")


def draw(name: str) -> None:
    """Draw a picture from its table."""
    with plot.apart():
        figure = figure_of(PICTURES[name].draw(table(name)))
        marks = {"Software": "simdnn", "Description": digest(name)}
        figure.savefig(IMAGES / f"{name}.png", dpi=DOTS, metadata=marks)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--compute", nargs="+", default=[], choices=PICTURES, metavar="NAME")
    asked = parser.parse_args().compute
    for name, picture in PICTURES.items():
        if picture.quick or name in asked:
            store(name)
        draw(name)
        print(IMAGES / f"{name}.png")


if __name__ == "__main__":
    main()
