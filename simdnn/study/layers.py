"""A workload on a machine in several precision modes, one row a layer and mode, and their totals."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import as_completed
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from typing import Any

import numpy as np
import pandas as pd

import isa_models
from isa_models import InvalidArgument, Unimplemented, UnknownTiming
from isa_models.formats import fmt
from isa_models.machines.loader import AnyMachine
from isa_models.machines.provenance import weakest
from simdnn.exactness import measures
from simdnn.networks import sequential as network
from simdnn.networks.precision import MODES, Mode, choose
from simdnn.primitives import Attr, Quant, convolution, matmul
from simdnn.primitives.gpu import gpu_of
from simdnn.primitives.mathmode import cold_weights
from simdnn.primitives.result import Estimate, Result
from simdnn.quantize import quantize_weights, weight_scales
from simdnn.study.workers import pool
from workloads import Layer, MatmulLayer, Workload, data

Progress = Callable[[int, int, str], None]  # done, of how many, what
Row = dict[str, Any]
WORTH_WORKERS = 3  # fewer layers are done before worker processes have started


@dataclass(frozen=True)
class _Job:
    """All modes of one layer: what a worker process is handed."""

    layer: Layer
    machine: str | AnyMachine
    modes: tuple[tuple[Mode, str], ...]  # and the ISA cap of each
    threads: int
    values: bool
    dispatch: str
    seed: int
    cold: frozenset[str]  # modes in which the network's weights do not stay in the caches from run to run
    fpmath_layers: str = "*"  # in math modes: patterns of the layers that are in the mode

    def where(self, isa: str) -> dict[str, Any]:
        """The keyword arguments that primitives share."""
        return {"machine": self.machine, "isa": isa, "threads": self.threads, "dispatch": self.dispatch}


def run_layers(
    workload: Workload,
    machine: str | AnyMachine = "zen4",
    modes: Iterable[str | Mode] | None = None,
    *,
    isa: str | None = None,
    layers: str = "*",
    threads: int = 1,
    values: bool = True,
    dispatch: str = "fastest",
    seed: int = 0,
    jobs: int = 1,
    fpmath_layers: str = "*",
    progress: Progress | None = None,
) -> pd.DataFrame:
    """Each layer of a workload in each mode: its cost, and the error of its values against the f32 mode.

    Layers of one shape are run once, under the first one's name, and their counts are added. `layers` is a pattern of
    names (as in a shell); `modes` are names, or modes of one's own, `None` all that the machine can do; `values=False`
    takes the cost alone. `fpmath_layers`: in modes that are math modes, layers that no pattern of this comma list
    matches stay strict. `jobs` is the number of worker processes (not of modelled threads); a script that asks for
    several runs its own code under `if __name__ == "__main__"`. A layer that a mode cannot do keeps its row, with the
    reason in `refused` and no figures.
    """
    model = isa_models.machine(machine)
    own = {mode.name: mode for mode in modes or () if isinstance(mode, Mode)}
    names = None if modes is None else [mode.name if isinstance(mode, Mode) else mode for mode in modes]
    chosen, _ = choose(model, names, isa, {**MODES, **own})
    last = model.caches[-1].size_bytes
    cold = frozenset(mode.name for mode in chosen if workload.parameters * fmt(mode.weights).bytes > last)
    check_scoped([layer.name for layer in workload.layers], fpmath_layers)
    todo = [
        _Job(layer, machine, tuple(chosen.items()), threads, values, dispatch, seed, cold, fpmath_layers)
        for layer in select(workload, layers, fpmath_layers)
    ]
    rows: dict[str, list[Row]] = {}
    for job, found in _map(todo, jobs):
        rows[job.layer.name] = found
        if progress:
            progress(len(rows), len(todo), job.layer.name)
    frame = pd.DataFrame([row for job in todo for row in rows[job.layer.name]])
    if (frame["refused"] != "").all():
        raise Unimplemented(f"nothing could be run: {frame['refused'].iloc[0]}")
    return frame


def check_scoped(names: Sequence[str], fpmath_layers: str) -> None:
    for pattern in fpmath_layers.split(","):
        if not any(fnmatchcase(name, pattern) for name in names):
            raise InvalidArgument(f"fpmath_layers={pattern!r} matches none of the layers; they are {some(names)}")


def select(workload: Workload, pattern: str = "*", apart: str = "*") -> list[Layer]:
    """The layers whose names match a shell pattern, those of one shape merged into the first.

    Layers that patterns of the comma list `apart` match are not merged with others.

    >>> import workloads
    >>> [(layer.name, layer.count) for layer in select(workloads.load("resnet50"), "layer1.*.conv2")]
    [('layer1.0.conv2', 3)]
    """
    merged: dict[tuple[Layer, bool], Layer] = {}
    for layer in workload.layers:
        if fnmatchcase(layer.name, pattern):
            alone = any(fnmatchcase(layer.name, part) for part in apart.split(","))
            shape = replace(layer, name="", count=1), alone
            known = merged.get(shape)
            merged[shape] = replace(known, count=known.count + layer.count) if known else layer
    if not merged:
        names = some([layer.name for layer in workload.layers])
        raise InvalidArgument(f"layers={pattern!r} matches none of {workload.name}; they are {names}")
    return list(merged.values())


def totals(frame: pd.DataFrame) -> pd.DataFrame:
    """One row a mode over all layers and their counts, with `speed_up` over the f32 mode's time where that was run.

    Costs are sums, rates follow from the sums, `bound` is the one that most time goes to, `share_of_peak` is weighted
    by time, `confidence` is the weakest. Errors: `worst_layer_max_abs_error`, `worst_layer_relative_l2`,
    `worst_layer_sqnr_db`, each of the layer that is worst in it; of a network that was run from end to end, and of one
    layer alone, also `max_abs_error`, `relative_l2`, `sqnr_db` of its outputs. A mode with a refused layer has no
    totals.
    """
    rows = [_total(str(mode), part) for mode, part in frame.groupby("mode", sort=False)]
    times = {row["mode"]: row["time_us"] for row in rows}
    for row in rows:
        row["speed_up"] = times.get("f32", np.nan) / row["time_us"]
    return pd.DataFrame(rows)


def _total(mode: str, part: pd.DataFrame) -> Row:
    times = part["count"]
    time_us = float((part["time_us"] * times).sum(skipna=False))
    refused = part[part["refused"] != ""]
    row: Row = {"layer": "total", "count": int(times.sum()), "mode": mode}
    names = part["implementation"].unique()
    row["implementation"] = names[0] if len(names) == 1 else f"{len(names)} kernels"
    for column in ("macs", "cycles", "time_us", "bytes", "cycles_mb1", "outputs", *measures.COUNTS):
        if column in part:
            row[column] = (part[column] * times).sum(skipna=False)
    row["gops"] = 2e-3 * row["macs"] / time_us
    row["gb_s"] = 1e-3 * row["bytes"] / time_us
    row["share_of_peak"] = (part["share_of_peak"] * part["time_us"] * times).sum(skipna=False) / time_us
    row["refused"] = refused["refused"].iloc[0] if len(refused) else ""
    if not len(refused):
        row["bound"] = (part["time_us"] * times).groupby(part["bound"]).sum().idxmax()
        row["confidence"] = weakest(part["confidence"])
    if "max_abs_error" in part:
        for column, worst in (("max_abs_error", "max"), ("relative_l2", "max"), ("sqnr_db", "min")):
            if "accuracy" in part or len(part) == 1:  # whose last layer's outputs are those of all
                row[column] = part[column].iloc[-1]
            row[f"worst_layer_{column}"] = getattr(part[column], worst)(skipna=False)
        row |= measures.shares(row)
    for column in ("accuracy", "images"):
        if column in part:
            row[column] = part[column].iloc[0]
    return row


def _layer_rows(job: _Job) -> list[Row]:
    """All modes of one layer."""
    layer = job.layer
    batch = layer.batch if isinstance(layer, MatmulLayer) else 1
    together = batch > 1 and gpu_of(job.machine) is not None  # one kernel; values are those of one product
    run = _primitive if job.values else _estimate
    with cold_weights("f32" in job.cold):
        reference = _reference(job) if job.values else None
    rows = []
    for mode, isa in job.modes:
        try:
            with cold_weights(mode.name in job.cold):
                result = reference if reference and mode == MODES["f32"] else run(job, mode, isa)
                priced = _estimate(job, mode, isa) if together else result
            found = measures.cost(priced, isa, layer.macs, times=1 if together else batch)
            if isinstance(result, Result) and reference:
                found |= measures.values(result, result.output, reference.output, times=batch)
            found["refused"] = ""
        except (Unimplemented, UnknownTiming) as error:
            found = {"implementation": "refused", "refused": str(error)}
        rows.append({"layer": layer.name, "count": layer.count, "mode": mode.name} | found)
    return rows


def _reference(job: _Job) -> Result:
    """The layer in f32, the yardstick of the others, under the machine's own ISA where f32 wasn't asked for."""
    f32 = MODES["f32"]
    isa = dict(job.modes).get(f32) or f32.isa(isa_models.machine(job.machine))
    if isa is None:
        raise InvalidArgument(f"machine {job.machine!r} has none of {', '.join(f32.isas)}, which f32 values need")
    return _primitive(job, f32, isa)


def _primitive(job: _Job, mode: Mode, isa: str) -> Result:
    """The layer through its primitive on seeded data; the destination is f32, integers are scaled in the kernel."""
    layer = job.layer
    narrowed = mode.weight_group or mode.per_tensor  # from f32, here
    tensors = data.tensors(layer, f"{mode.src}:{'f32' if narrowed else mode.weights}", job.seed)
    scales = {"src": tensors.src_scale, "wei": tensors.wei_scale} if mode.is_integer else {}
    weights = tensors.weights
    if mode.weight_group:
        weights, scales["wei"] = network.compressed(weights, mode)
    if mode.per_tensor:
        row = weights.reshape(1, -1)
        largest = weight_scales(row, 0)
        weights, scales["wei"] = quantize_weights(row, largest, 0).reshape(weights.shape), largest
    where = job.where(isa) | {"dst": "f32", "attr": _attr(job, mode, scales)}
    if isinstance(layer, MatmulLayer):
        return matmul(tensors.src, weights, **where)
    where |= {"strides": layer.stride, "padding": layer.pad, "groups": layer.groups}
    return convolution(tensors.src, weights, **where)


def _estimate(job: _Job, mode: Mode, isa: str) -> Estimate:
    """The cost of what `_primitive` runs, without data."""
    layer = job.layer
    outputs = layer.n if isinstance(layer, MatmulLayer) else layer.oc
    count = 1 if mode.per_tensor else outputs
    scales: dict[str, Any] = {"src": 1.0, "wei": np.ones(count, np.float32)} if mode.is_integer else {}
    if mode.weight_group:
        along_k = Quant(None, groups=(network.group_of(mode, layer.k), 1)) if isinstance(layer, MatmulLayer) else None
        scales["wei"] = along_k or Quant(None, mask="per_oc")
    return network.estimate_layer(
        layer, f"{mode.src}:{mode.weights}:f32", attr=_attr(job, mode, scales), **job.where(isa)
    )


def _attr(job: _Job, mode: Mode, scales: dict[str, Any]) -> Attr:
    compressed = bool(mode.weight_group)
    fpmath = mode.fpmath_of(job.layer.name, job.fpmath_layers)
    return Attr(fpmath=fpmath, apply_to_int=compressed, scales=scales, exact_int8=mode.exact_int8)


def _map(todo: Sequence[_Job], jobs: int) -> Iterator[tuple[_Job, list[Row]]]:
    """Jobs with their rows, in the order in which they end."""
    if jobs == 1 or len(todo) < WORTH_WORKERS:
        yield from ((job, _layer_rows(job)) for job in todo)
        return
    with pool(min(jobs, len(todo))) as workers:
        # the largest first, so that none of them is left for the end
        ordered = sorted(todo, key=lambda job: job.layer.macs, reverse=True)
        running = {workers.submit(_layer_rows, job): job for job in ordered}
        for future in as_completed(running):
            yield running[future], future.result()


def some(names: Sequence[str], most: int = 8) -> str:
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more
