"""A real text recogniser in each precision mode: how many characters it reads right, and how long a line takes."""

from __future__ import annotations

from collections.abc import Mapping
from os import PathLike
from typing import Any

import pandas as pd

from isa_models import InvalidArgument, SimdnnError
from isa_models.arrays import Array
from simdnn.graph.load import read
from simdnn.graph.modes import Progress, in_mode
from simdnn.graph.network import load
from simdnn.modes import Mode
from workloads import ocr, packages

LINES = 40  # read where no number is given


def run_ocr(
    modes: Mapping[Mode, str],
    *,
    machine: str = "zen4",
    isa: str | None = None,
    lines: int = LINES,
    seed: int = 0,
    progress: Progress | None = None,
    **where: Any,
) -> pd.DataFrame:
    """A row a mode, with columns as of `study.totals`: `accuracy` is that of characters, `whole_lines` the share of
    lines without an error, `images` their number; costs are those of one line that comes alone.

    `modes` maps each to the ISA cap that it runs under (as `modes.choose` finds them), `isa` caps the f32 that
    `speed_up` is over; `where` are other arguments of `Network.run`. int8 modes take their ranges from lines of other
    digits than those that are read. A mode that a node refuses has the reason in `refused`. Raises `SimdnnError` with
    the command that fetches the model where it is not there.
    """
    path = packages.path("ocr", "recogniser.onnx")
    test, calibration = ocr.draw(*ocr.digits(), lines, seed)
    letters, name = alphabet(path), load(path).inputs[0].name
    where["machine"] = machine
    f32_us = load(path).estimate({name: test.images[:1].shape}, isa=isa, **where).seconds * 1e6
    rows = []
    for position, (mode, cap) in enumerate(modes.items()):
        row: dict[str, Any] = {"mode": mode.name}
        try:
            if progress:
                progress(position * lines, len(modes) * lines, f"lines, {mode.name}")
            network, attr = in_mode(path, mode, {name: calibration.images})
            texts: list[str] = []
            for image in test.images:
                result = network.run({name: image[None]}, isa=cap, attr=attr, **where)
                texts.append(ocr.decode(_scores(result.outputs), letters))
                if progress:
                    progress(position * lines + len(texts), len(modes) * lines, f"lines, {mode.name}")
            whole = sum(a == b for a, b in zip(texts, test.texts, strict=True)) / lines
            row |= {"accuracy": ocr.character_accuracy(texts, test.texts), "whole_lines": whole, "images": lines}
            time_us = result.seconds * 1e6
            row |= {"speed_up": f32_us / time_us, "cycles": result.cycles, "time_us": time_us, "macs": result.macs}
            row |= {"gops": 2e-3 * result.macs / time_us, "confidence": result.confidence, "refused": ""}
        except SimdnnError as error:
            row |= {"refused": str(error)}
        rows.append(row)
    frame = pd.DataFrame(rows)
    if (frame["refused"] != "").all():
        raise SimdnnError(f"no mode could be run: {frame['refused'].iloc[0]}")
    return frame


def alphabet(model: str | PathLike[str]) -> list[str]:
    """The text of each class of a recogniser: none for the blank, the dictionary in its metadata, and the space."""
    proto, _ = read(model)
    found = next((entry.value for entry in proto.metadata_props if entry.key == "character"), None)
    if found is None:
        raise InvalidArgument(f"{model} has no dictionary; metadata `character` with one text a line is needed")
    return ["", *found.split("\n"), " "]


def _scores(outputs: Mapping[str, Array]) -> Array:
    """(places, classes) of the only line."""
    scores: Array = next(iter(outputs.values()))[0]
    return scores
