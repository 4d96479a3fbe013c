"""A trained network on a machine in several precision modes: its accuracy, and the cost of each layer."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import pandas as pd

import isa_models
from isa_models.machines.loader import AnyMachine
from simdnn.exactness import measures
from simdnn.networks import sequential as network
from simdnn.networks.precision import MODES, Mode, choose
from simdnn.quantize import Scheme
from simdnn.study.layers import Progress, Row, check_scoped
from workloads import Classifier


def run_network(
    net: Classifier,
    machine: str | AnyMachine = "zen4",
    modes: Iterable[str] | None = None,
    *,
    isa: str | None = None,
    threads: int = 1,
    dispatch: str = "fastest",
    percentile: float = 100.0,
    fpmath_layers: str = "*",
    progress: Progress | None = None,
) -> pd.DataFrame:
    """A trained network over its held-out images as one batch: each layer's cost for one image, and `accuracy`.

    `accuracy` is the network's in the row's mode. `cycles_mb1` is what the layer takes for an image that comes alone,
    without values. Errors are of the layer's output against the f32 mode's, so they include what earlier layers added.
    `fpmath_layers` as in `run_layers`.
    """
    model = isa_models.machine(machine)
    chosen, _ = choose(model, modes, isa)
    f32 = MODES["f32"]
    f32_isa = choose(model, ["f32"], isa)[0][f32]
    target = network.Place(machine, f32_isa, threads, dispatch)
    schemes = {mode: _scheme(mode, percentile) for mode in chosen}
    stored = {
        scheme.activations: network.activations(net, target, scheme)
        for scheme in {schemes[mode].activations: schemes[mode] for mode in chosen if mode.is_integer}.values()
    }
    images, shapes = net.test_images, net.workload().layers
    check_scoped([layer.name for layer in shapes], fpmath_layers)
    reference = network.execute(network.prepare(net, f32), images, f32, target)
    rows: list[Row] = []
    for done, (mode, cap) in enumerate(chosen.items()):
        if progress:
            progress(done, len(chosen), mode.name)
        where = replace(target, isa=cap)
        scheme = schemes[mode]
        prepared = network.prepare(net, mode, stored.get(scheme.activations, ()), fpmath_layers, scheme)
        runs = reference if mode == f32 else network.execute(prepared, images, mode, where)
        accuracy = network.accuracy(runs[-1].values, net.test_labels)
        for run, wanted, step, shape in zip(runs, reference, prepared, shapes, strict=True):
            row: Row = {"layer": shape.name, "count": 1, "mode": mode.name}
            row |= measures.cost(run.result, cap, shape.macs, times=1 / len(images))
            row |= measures.values(run.result, run.values, wanted.values)
            row["cycles_mb1"] = network.estimate_one(step, shape, mode, where).cycles
            rows.append(row | {"accuracy": accuracy, "images": len(images), "refused": ""})
    return pd.DataFrame(rows)


def _scheme(mode: Mode, percentile: float) -> Scheme:
    """How a mode quantizes a network."""
    weights = "per_tensor" if mode.per_tensor else "per_channel"
    return Scheme(weights, "s8" if mode.src == "s8" else "asymmetric", percentile)
