"""The price of quantization: accuracy by scheme and machine, and the channels that fast int8 spoils."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

import isa_models
from simdnn.exactness import measures
from simdnn.explanations.departures import HALVED, SATURATED
from simdnn.late import frames, pd
from simdnn.networks import sequential as network
from simdnn.networks.precision import MODES, Mode
from simdnn.networks.sequential import LayerRun, Place
from simdnn.quantize import ACTIVATIONS, WEIGHTS, Scheme
from workloads import Classifier

MACHINES = ("skx", "icx", "clx", "zen4")
SCHEMES = tuple(Scheme(w, a, p) for w in WEIGHTS for a in ACTIVATIONS[:2] for p in (100.0, 99.9))
_SHARES = {"saturated_share": SATURATED, "halved_share": (HALVED,)}
_COLUMNS = (
    "network",
    "machine",
    "isa",
    "weights",
    "activations",
    "percentile",
    "mode",
    "accuracy",
    "lost",
    "sqnr_db",
    *_SHARES,
    "cycles",
)
_KINDS = ("int8-exact", "int8-fast")


def accuracy_table(
    net: Classifier,
    machines: Iterable[str] = MACHINES,
    schemes: Sequence[Scheme] = SCHEMES,
    *,
    isa: str | None = None,
    dispatch: str = "fastest",
) -> pd.DataFrame:
    """The network's accuracy over its held-out images: in f32, and in int8 by each scheme, exact and fast.

    A row per machine, scheme and mode: network, machine, isa, weights, activations, percentile, mode ("f32",
    "int8-exact", "int8-fast": what the machine gives where exactness is not asked for, with VNNI the same bits),
    accuracy, lost (accuracy below f32's), sqnr_db (of the last layer's outputs against f32's), saturated_share and
    halved_share (of all outputs of all layers: `Result.departures`), cycles (of the batch). `isa`: a cap for all
    machines.
    """
    rows: list[dict[str, Any]] = []
    for name in machines:
        machine = isa_models.cpu_machine(name)
        f32 = MODES["f32"]
        target = Place(name, str(f32.isa(machine, isa)), dispatch=dispatch)
        own = isa or _strongest(machine)
        reference = network.execute(network.prepare(net, f32), net.test_images, f32, target)
        exactly = network.accuracy(reference[-1].values, net.test_labels)
        about = {"network": net.name, "machine": name, "isa": own}
        rows.append(about | _measured("f32", reference, reference, net) | {"lost": 0.0})
        for scheme in schemes:
            for kind in _KINDS:
                runs = _run(net, scheme, kind, Place(name, own, dispatch=dispatch), target)
                row: dict[str, Any] = about | {"weights": scheme.weights, "activations": scheme.activations}
                row |= {"percentile": scheme.percentile} | _measured(kind, runs, reference, net)
                rows.append(row | {"lost": exactly - row["accuracy"]})
    return frames.shown(pd.DataFrame(rows)[list(_COLUMNS)])


def lossy_channels(
    net: Classifier, machine: str, scheme: Scheme = SCHEMES[0], *, isa: str | None = None, dispatch: str = "fastest"
) -> pd.DataFrame:
    """Where fast int8 loses accuracy: a row per layer and output channel, those that lose most first.

    Each layer is given what the exact layers before it yield, so that a loss is told where it arises: layer, channel,
    implementation, saturated_share and halved_share (of the channel's outputs), changed_share (that differ from the
    exact ones), error (root of the mean squared difference, over that of the channel's exact values).
    """
    model = isa_models.cpu_machine(machine)
    own = isa or _strongest(model)
    target, f32 = Place(machine, own, dispatch=dispatch), MODES["f32"]
    calibrated = Place(machine, str(f32.isa(model, isa)), dispatch=dispatch)
    stored = network.activations(net, calibrated, scheme)
    exact = network.prepare(net, MODES["int8-exact"], stored, scheme=scheme)
    fast = network.prepare(net, MODES["int8-fast"], stored, scheme=scheme)
    source, rows = net.test_images, []
    for index, layer in enumerate(net.layers):
        (wanted,) = network.execute(exact[index : index + 1], source, MODES["int8-exact"], target)
        (met,) = network.execute(fast[index : index + 1], source, MODES["int8-fast"], target)
        source = wanted.values
        maps = {
            share: np.add.reduce([met.result.departure_map(kind) for kind in kinds]) for share, kinds in _SHARES.items()
        }
        for channel in range(layer.bias.size):
            a, b = (run.values[:, channel].astype(np.float64) for run in (wanted, met))
            scale = float(np.sqrt((a**2).mean()))
            rows.append(
                {
                    "layer": layer.name,
                    "channel": channel,
                    "implementation": met.result.implementation,
                    **{share: float((counts[:, channel] > 0).mean()) for share, counts in maps.items()},
                    "changed_share": float((a != b).mean()),
                    "error": float(np.sqrt(((a - b) ** 2).mean())) / scale if scale else 0.0,
                }
            )
    frame = pd.DataFrame(rows)
    return frames.shown(frame).sort_values("error", ascending=False, kind="stable", ignore_index=True)


def _strongest(machine: isa_models.Machine) -> str:
    """The strongest ISA cap of a machine that has integer kernels here."""
    caps = ("avx512_core_vnni", "avx512_core", "avx2_vnni", "avx2")
    return next(cap for cap in caps if machine.supports(cap))


def _run(net: Classifier, scheme: Scheme, kind: str, target: Place, calibrated: Place) -> list[LayerRun]:
    mode: Mode = MODES[kind]
    stored = network.activations(net, calibrated, scheme)
    return network.execute(network.prepare(net, mode, stored, scheme=scheme), net.test_images, mode, target)


def _measured(mode: str, runs: list[LayerRun], reference: list[LayerRun], net: Classifier) -> dict[str, Any]:
    outputs = sum(run.result.output.size for run in runs)
    return {
        "mode": mode,
        "accuracy": network.accuracy(runs[-1].values, net.test_labels),
        "sqnr_db": measures.errors(runs[-1].values, reference[-1].values)["sqnr_db"],
        **{
            share: sum(run.result.departed.outputs(*kinds) for run in runs) / outputs
            for share, kinds in _SHARES.items()
        },
        "cycles": sum(run.cycles for run in runs),
    }
