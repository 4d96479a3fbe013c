"""`python -m benchmarks.tuning NETWORK [MACHINE,… [MAX_LOSS [MODE,… [SAMPLES]]]]`: `simdnn.tune` beside other choices.

They are one mode for the whole network, and the layers that other tools leave in f32, in the same cycles and quality.

Of onnxruntime's ranking of layers the worst go back to f32 until the quality is within the bound; which layers do is
NNCF's own choice, where it is installed (`benchmarks.choices`). Rows are kept in build/tuning-NETWORK.jsonl, from which
a second call goes on.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pandas as pd

import simdnn
import workloads
from benchmarks.choices import nncf_layers, onnxruntime_order
from simdnn.networks.sequential import Place
from simdnn.progress import print_progress
from simdnn.study.results import Results
from simdnn.tuning.measured import RecipeRuns
from simdnn.tuning.subjects import ModelSubject
from simdnn.tuning.tune import fetched
from simdnn.tuning.tuned import Tuned, text_of

INT8 = "int8-vnni"
BACK = (0, 1, 2, 4, 6, 8, 12, 16, 24, 32, 45, 60, 90, 120, 150)  # layers that return to f32
Rows = list[dict[Any, Any]]


def rows(
    network: str, machines: list[str], max_loss: float, modes: list[str] | None, samples: int | None, kept: Path
) -> pd.DataFrame:
    """machine, choice, cycles, speed_up, quality, loss: each the fastest of its kind within the loss."""
    tuned = simdnn.tune(
        network,
        machine=machines,
        max_loss=max_loss,
        modes=modes,
        samples=samples,
        results=kept,
        progress=print_progress,
    )
    others = _Others(network, machines[0], max_loss, samples)
    found = [line for machine in machines for line in _compared(tuned, others, machine, max_loss, kept)]
    return pd.DataFrame(found)


class _Others:
    """The layers that other tools choose, whatever the machine."""

    def __init__(self, network: str, machine: str, max_loss: float, samples: int | None) -> None:
        subject, judge, _, _ = fetched(workloads.REAL_NETWORKS[network], Place(machine), samples)
        assert isinstance(subject, ModelSubject)
        self.network, self.samples = network, samples
        self.ranking, self.order = onnxruntime_order(subject)
        self.nncf = nncf_layers(subject, judge, max_loss)


def _compared(tuned: Tuned, others: _Others, machine: str, max_loss: float, kept: Path) -> Rows:
    subject, judge, _, _ = fetched(workloads.REAL_NETWORKS[others.network], Place(machine), others.samples)
    runs = RecipeRuns(subject, judge, Results(kept))
    base = runs.row(dict.fromkeys(subject.layers, "f32"))
    known = tuned.runs[tuned.runs["machine"] == machine].to_dict("records")
    found: list[tuple[str, dict[Any, Any]]] = [("f32", {**base, "recipe": "all f32"})]
    found += [("one mode", row) for row in known if row["recipe"].startswith("all ")]
    found += [("tune", row) for row in known]

    def run(choice: str, integer: set[str]) -> float:
        modes = {layer: INT8 if layer in integer else "f32" for layer in subject.layers}
        row = runs.row(modes)
        found.append((choice, row | {"recipe": text_of(modes)}))
        return float(base["quality"] - row["quality"])

    for count in [count for count in BACK if count < len(others.order)]:
        if run(others.ranking, set(others.order[count:])) <= max_loss:
            break
    if others.nncf:
        run(*others.nncf)
    lines = []
    for choice in dict.fromkeys(name for name, _ in found):
        rows = [row for name, row in found if name == choice and not row.get("refused")]
        good = [row for row in rows if base["quality"] - row["quality"] <= max_loss + 1e-12]
        best = min(good or rows, key=lambda row: float(row["cycles"] if good else -row["quality"]))
        said = best["recipe"] if good else f"none loses at most {max_loss:g}; the best: {best['recipe']}"
        loss = base["quality"] - best["quality"]
        figures = {"cycles": best["cycles"], "speed_up": base["cycles"] / best["cycles"], "quality": best["quality"]}
        lines.append({"machine": machine, "choice": choice, **figures, "loss": loss, "recipe": said})
    return lines


def main(network: str, machines: str = "zen4", max_loss: str = "0.05", modes: str = "", samples: str = "") -> None:
    """Print the table."""
    kept = Path("build") / f"tuning-{network}.jsonl"
    kept.parent.mkdir(exist_ok=True)
    chosen = modes.split(",") if modes else None
    count = int(samples) if samples else None
    print(rows(network, machines.split(","), float(max_loss), chosen, count, kept).to_string(index=False))


if __name__ == "__main__":
    main(*sys.argv[1:])
