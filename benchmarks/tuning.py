"""`python -m benchmarks.tuning NETWORK [MACHINE [MAX_LOSS]]`: what `simdnn.tune` finds beside one mode for the whole
network, and beside the layers that onnxruntime's error analysis leaves in f32, all in the same cycles and quality.

onnxruntime ranks layers by the signal to error of their outputs in its int8 model (`qdq_loss_debug`); the worst ones go
back to f32 until the quality is within the bound. Rows are kept in build/tuning-NETWORK.jsonl, from which a second call
goes on.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

import isa_models
import simdnn
import workloads
from simdnn.study.exploration import print_progress
from simdnn.study.results import Results
from simdnn.tuning.measured import RecipeRuns
from simdnn.tuning.subjects import ModelSubject
from simdnn.tuning.tune import fetched
from simdnn.tuning.tuned import text_of

INT8 = "int8-vnni"
BACK = (0, 1, 2, 4, 6, 8, 12, 16, 24, 32)  # layers that return to f32


class _Reader:
    """Feeds as onnxruntime's calibration takes them."""

    def __init__(self, feeds: Sequence[Mapping[str, Any]]) -> None:
        self.feeds = iter(feeds)

    def get_next(self) -> Any:
        return next(self.feeds, None)

    def __iter__(self) -> Iterator[Mapping[str, Any]]:
        return self.feeds


def ranked(subject: ModelSubject) -> list[str]:
    """Layers by onnxruntime's signal to error of their outputs, the worst first."""
    import onnx
    from onnxruntime import quantization
    from onnxruntime.quantization import qdq_loss_debug as debug

    with tempfile.TemporaryDirectory() as folder:
        plain, narrow, *augmented = (str(Path(folder) / name) for name in ("f.onnx", "q.onnx", "fa.onnx", "qa.onnx"))
        onnx.save(subject.calibrated.mixable.model, plain)
        quantization.quantize_static(
            plain,
            narrow,
            _Reader(subject.calibration),
            op_types_to_quantize=["Conv", "MatMul", "Gemm"],
            per_channel=True,
            extra_options={"ActivationSymmetric": False},
        )
        for source, target in zip((plain, narrow), augmented, strict=True):
            debug.modify_model_output_intermediate_tensors(source, target)
        found = [debug.collect_activations(name, _Reader(subject.calibration[:1])) for name in augmented]
        errors = debug.compute_activation_error(debug.create_activation_matching(found[1], found[0]))
    gives = {node.name: node.output[0] for node in subject.calibrated.mixable.model.graph.node}
    known = {layer: errors[gives[layer]]["qdq_err"] for layer in subject.layers if gives[layer] in errors}
    worst = sorted(known, key=lambda layer: float(np.min(known[layer])))
    return [*worst, *(layer for layer in subject.layers if layer not in known)]


def rows(network: str, machine: str, max_loss: float, kept: Path) -> pd.DataFrame:
    """choice, cycles, speed_up, quality, loss: each the fastest of its kind within the loss."""
    target = isa_models.machine(machine)
    tuned = simdnn.tune(network, machine=machine, results=kept, progress=print_progress)
    subject, judge, _, _ = fetched(workloads.REAL_NETWORKS[network], target)
    assert isinstance(subject, ModelSubject)
    runs = RecipeRuns(subject, judge, Results(kept))
    base = runs.row(dict.fromkeys(subject.layers, "f32"))
    found: list[tuple[str, dict[Any, Any]]] = [("tune", row) for row in tuned.runs.to_dict("records")]
    found += [("one mode", row) for row in tuned.runs.to_dict("records") if row["recipe"].startswith("all ")]
    order = ranked(subject)
    for count in BACK:
        modes = {layer: "f32" if layer in order[:count] else INT8 for layer in subject.layers}
        row = runs.row(modes)
        found.append(("onnxruntime's ranking", row | {"recipe": text_of(modes)}))
        print(f"{count} layers in f32: {row['cycles']:.0f} cycles, {row['quality']:.4f}", file=sys.stderr)
        if base["quality"] - row["quality"] <= max_loss:
            break
    lines = []
    for choice in dict.fromkeys(name for name, _ in found):
        good = [row for name, row in found if name == choice and base["quality"] - row["quality"] <= max_loss]
        best = min(good, key=lambda row: float(row["cycles"]), default=None)
        if best is None:
            lines.append({"choice": choice, "recipe": f"none loses at most {max_loss:g}"})
            continue
        figures = {"cycles": best["cycles"], "speed_up": base["cycles"] / best["cycles"], "quality": best["quality"]}
        loss = base["quality"] - best["quality"]
        lines.append({"choice": choice, **figures, "loss": loss, "recipe": best["recipe"]})
    return pd.DataFrame(lines)


def main(network: str, machine: str = "zen4", max_loss: str = "0.05") -> None:
    """Print the table."""
    kept = Path("build") / f"tuning-{network}.jsonl"
    kept.parent.mkdir(exist_ok=True)
    print(rows(network, machine, float(max_loss), kept).to_string(index=False))


if __name__ == "__main__":
    main(*sys.argv[1:])
