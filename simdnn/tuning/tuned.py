"""The outcome of tuning: the front, its recipes, a picture, files."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Any

from isa_models import InvalidArgument
from isa_models.errors import counted, unknown_name
from isa_models.records.alike import Alike
from simdnn import files
from simdnn.late import pd
from simdnn.networks.precision import MODES
from simdnn.study.pareto import pareto
from workloads import untrusted

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from simdnn.tuning.finding import Finding

FORMAT = "simdnn recipe 1"  # of a recipe's file
KEY = "simdnn.recipe"  # of a model's metadata
_WHO_WRITES = "`simdnn tune --save` and Tuned.save write one"
_SHORT = 3  # layers in one mode that a recipe's text names one by one


@dataclass(frozen=True, eq=False, repr=False)
class Tuned(Alike):
    """A front of recipes, all of them run.

    `front`: a row a recipe, the fastest first: machine, cycles, time_us, quality, loss (quality below f32's; where
    quality is sqnr_db the error over the output, 0 in f32), sqnr_db (of the outputs against f32's), speed_up (over
    f32), recipe (as text), chosen (the row that the bounds ask for, by machine). `runs`: all recipes that were run,
    with the same columns. `measure`: what quality is. `notes`: how the front was found, and what to know of the data.
    """

    front: pd.DataFrame
    runs: pd.DataFrame
    measure: str
    notes: tuple[str, ...]
    name: str
    _recipes: Mapping[int, dict[str, str]]
    _measured: Mapping[str, Finding] = field(compare=False)  # by machine

    @property
    def best(self) -> int:
        """The row that the bounds ask for: the first machine's."""
        return int(self.front.index[self.front["chosen"]][0])

    @property
    def options(self) -> dict[str, Any]:
        """The ISA cap (None: the machine's own), the threads and the dispatch that all rows were run under."""
        return next(iter(self._measured.values())).subject.place.options

    def recipe(self, row: int) -> dict[str, str]:
        """The mode of each layer in a row of the front, by the row's label. Raises `InvalidArgument`."""
        if isinstance(row, bool) or row not in self._recipes:
            raise InvalidArgument(f"row={row!r}; the front has rows {', '.join(map(str, self._recipes))}")
        return dict(self._recipes[row])

    def table(self, row: int | None = None) -> pd.DataFrame:
        """The gain of each layer's mode: layer, mode, cycles_saved and quality_lost, both against the same recipe with
        that layer in f32; of a fetched network over the few samples of the sensitivities. `row=None`: the one that the
        bounds ask for.
        """
        row = self.best if row is None else row
        modes = self.recipe(row)
        found = self._measured[str(self.front.loc[row, "machine"])]
        groups = {group: modes[group[0]] for group in found.groups}
        back = [{**modes, **dict.fromkeys(group, "f32")} for group, mode in groups.items() if mode != "f32"]
        own, *others = found.few.rows([modes, *back])
        rows = []
        for group, mode in groups.items():
            was = own if mode == "f32" else others.pop(0)
            saved, lost = was["cycles"] - own["cycles"], was["quality"] - own["quality"]
            layer = group[0] if len(group) == 1 else f"{group[0]} and {len(group) - 1} like it"
            rows.append({"layer": layer, "mode": mode, "cycles_saved": saved, "quality_lost": lost if saved else 0.0})
        return pd.DataFrame(rows)

    def save(self, path: str | Path, row: int | None = None) -> None:
        """Write a row's recipe: FILE.json, which `simdnn run MODEL --recipe FILE` takes, or the model as FILE.onnx.

        A model stores types, casts and integers; math modes, exactness and ISA caps stand in its metadata alone.
        """
        row = self.best if row is None else row
        modes, machine = self.recipe(row), str(self.front.loc[row, "machine"])
        target, subject = Path(path), self._measured[machine].subject
        if target.suffix.lower() not in (".json", ".onnx"):
            raise unknown_name("file format", target.suffix or target.name, (".json", ".onnx"))
        content: dict[str, Any] = {
            "format": FORMAT,
            "model": self.name,
            "machine": machine,
            **self.options,
            "modes": modes,
        }
        if target.suffix.lower() == ".onnx":
            import onnx

            model = subject.onnx(modes)
            onnx.helper.set_model_props(
                model, {**{e.key: e.value for e in model.metadata_props}, KEY: json.dumps(content)}
            )
            with files.replacing(target) as partial:
                onnx.save(model, partial)
            return
        if any(MODES[mode].is_integer for mode in modes.values()):
            content["ranges"] = {name: list(pair) for name, pair in subject.ranges().items()}
        files.write_text(target, json.dumps({**files.MARK, **content}, indent=2, allow_nan=False) + "\n")

    def plot(self, ax: Axes | None = None) -> Axes:
        """Quality against time of all recipes that were run; a ring and steps for the front of each machine.

        Where every recipe has the same quality, as accuracies often are, the signal to error of the outputs tells them
        apart.
        """
        from simdnn.plot_study import plot_front  # brings Matplotlib

        quality = "quality" if self.measure == "metric" else self.measure
        frame = self.runs.assign(**{quality: self.runs["quality"]})
        machines = list(dict.fromkeys(frame["machine"]))
        title = f"{Path(self.name).name} on {', '.join(machines)}"
        if quality != "sqnr_db" and frame[quality].nunique() == 1 and frame["sqnr_db"].nunique() > 1:
            title += f" ({quality} {frame[quality].iloc[0]:.4g} in every recipe)"
            quality = "sqnr_db"
            parts = (part for _, part in frame.groupby("machine", sort=False))
            best = pd.concat([pd.Series(pareto(-part["time_us"], part[quality]), part.index) for part in parts])
        else:
            on_front = set(zip(self.front["machine"], self.front["recipe"], strict=True))
            met = zip(frame["machine"], frame["recipe"], strict=True)
            best = pd.Series([pair in on_front for pair in met], frame.index)
        ax = plot_front(frame.assign(pareto=best), ["machine"] if len(machines) > 1 else [], quality, ax)
        ax.set_title(title, parse_math=False)
        return ax

    @cached_property
    def content(self) -> dict[str, Any]:
        """The content of JSON: model, options, measure, notes, front, and the recipes by row."""
        rows: list[dict[str, Any]] = json.loads(pd.DataFrame(self.front).to_json(orient="records", double_precision=15))
        recipes = {str(row): modes for row, modes in self._recipes.items()}
        return {
            "model": self.name,
            **self.options,
            "measure": self.measure,
            "notes": list(self.notes),
            "front": [{"row": int(r), **found} for r, found in zip(self.front.index, rows, strict=True)],
            "recipes": recipes,
        }

    def to_json(self) -> str:
        """The front and the recipes of its rows."""
        return json.dumps(self.content, allow_nan=False)

    def __repr__(self) -> str:
        kinds = ", ".join(dict.fromkeys(self.front["machine"]))
        front = counted(len(self.front), "recipe")
        return f"Tuned({self.name!r} on {kinds}: {front} on the front of {len(self.runs)}; .front)"

    def _repr_html_(self) -> str:
        return str(self.front.to_html(max_rows=40))


def text_of(modes: Mapping[str, str]) -> str:
    """A recipe in a line: the mode that most layers have, and then the others.

    >>> text_of({"conv1": "f32", "conv2": "bf16", "conv3": "bf16"})
    'conv1 f32, conv2 conv3 bf16'
    >>> text_of(dict.fromkeys("abcdefgh", "bf16") | {"h": "f32"})
    '7 layers bf16, h f32'
    """
    if len(set(modes.values())) == 1:
        return f"all {next(iter(modes.values()))}"
    layers: dict[str, list[str]] = {}
    for layer, mode in modes.items():
        layers.setdefault(mode, []).append(layer)
    most = max(layers, key=lambda mode: len(layers[mode]))
    short = len(layers[most]) > _SHORT
    return ", ".join(
        f"{counted(len(names), 'layer')} {mode}" if short and mode == most else f"{' '.join(names)} {mode}"
        for mode, names in layers.items()
    )


def read_recipe(path: str | Path) -> dict[str, Any]:
    """A recipe's file: modes, ranges, names of model and machine, options. `InvalidArgument` for another file."""
    try:
        content = json.loads(untrusted.plain(Path(path)).decode("utf-8"))
        if not isinstance(content, dict):
            raise ValueError(f"a {type(content).__name__}")
        modes, ranges = content["modes"], content.get("ranges", {})
        good = content["format"] == FORMAT and all(isinstance(part, str) for pair in modes.items() for part in pair)
        good = good and all(_is_range(pair) for pair in ranges.values())
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        unread = (
            "no JSON" if isinstance(error, UnicodeDecodeError | RecursionError) else " ".join(str(error).split())[:80]
        )
        said = f"no {error}" if isinstance(error, KeyError) else unread
        raise InvalidArgument(f"{path} holds no recipe ({said}); {_WHO_WRITES}") from None
    if not good or not modes:
        raise InvalidArgument(f"{path} holds no recipe; {_WHO_WRITES}")
    return {**content, "ranges": {name: (float(low), float(high)) for name, (low, high) in ranges.items()}}


def _is_range(pair: object) -> bool:
    """Whether it is two finite numbers, the least first."""
    numbers = isinstance(pair, list) and len(pair) == 2 and all(isinstance(v, (int, float)) for v in pair)
    return numbers and -inf < pair[0] <= pair[1] < inf  # type: ignore[index]
