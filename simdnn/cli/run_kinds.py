"""The kinds of workload that `simdnn run` takes: what each one runs, how its quality is told, what its title says."""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np

import workloads
from isa_models import InvalidArgument, SimdnnError
from isa_models.readings.arrays import Array
from simdnn.cli import output
from simdnn.cli.inspect import shapes_of, taken_as_1
from simdnn.networks.classified import run_classifier
from simdnn.networks.precision import MODES, Mode
from simdnn.networks.runner import Frames
from simdnn.networks.tables import run_table
from simdnn.workers import MOST_WORKERS
from workloads import RealNetwork

Modes = Mapping[Mode, str]


@dataclass(frozen=True)
class QualityAxis:
    """The quality that a picture draws against speed."""

    column: str
    title: str
    percent: bool = False
    higher_is_better: bool = True


@dataclass(frozen=True, eq=False)
class WorkloadOutcome:
    """What a workload gave. `about` says beside the frames what the figures mean. `rows`: layers are shown though
    nobody asked for them. `quality`: formats of its own figures by column. `axis`: None: accuracy, or the worst layer.
    `content`: what JSON says besides.
    """

    frames: Frames
    about: str = ""
    rows: bool = False
    quality: Mapping[str, str] = field(default_factory=dict)
    axis: QualityAxis | None = None
    content: Mapping[str, Any] = field(default_factory=dict)


def known_modes(network: RealNetwork | None) -> Mapping[str, Mode]:
    """The modes that a command line may name."""
    if network is None:
        return MODES
    from simdnn.networks import real

    return real.modes_of(network)


def layer_table(args: argparse.Namespace, modes: Modes, progress: output.Progress) -> WorkloadOutcome:
    """Layers by themselves on seeded data; `--layers` says which of them run."""
    frames = run_table(
        workloads.load(args.workload),
        args.machine,
        [mode.name for mode in modes],
        isa=args.isa,
        layers=args.layers or "*",
        values=not args.no_values,
        seed=args.seed,
        jobs=min(os.cpu_count() or 1, MOST_WORKERS),
        progress=progress,
        **_where(args),
    )
    return WorkloadOutcome(frames, rows=True)


def classifier(args: argparse.Namespace, modes: Modes, progress: output.Progress) -> WorkloadOutcome:
    """A trained classifier over its held-out data."""
    net = workloads.NETWORKS[args.workload]()
    names = [mode.name for mode in modes]
    frames = run_classifier(net, args.machine, names, isa=args.isa, progress=progress, **_where(args))
    samples = len(net.test_images)
    about = f"Per sample: cycles in one batch of {samples} samples, cycles_mb1 for a sample by itself."
    return WorkloadOutcome(frames, about, rows=True)


def onnx_model(args: argparse.Namespace, modes: Modes, progress: output.Progress) -> WorkloadOutcome:
    """An ONNX model on feeds, or on random data."""
    from simdnn.networks.modes import random_feeds, run_model
    from simdnn.networks.network import load

    network = load(args.workload)
    network.check_operators()
    shapes = shapes_of(args.shape)
    sizes, open_sizes = network.sizes(shapes) if args.feeds is None else ({}, [])
    taken = taken_as_1(open_sizes)
    alone = args.no_values and not any(mode.is_integer for mode in modes)  # shapes will do
    with _about(taken):
        given = sizes if alone and args.feeds is None else _feeds(args, network, shapes, random_feeds)
        frames = run_model(
            args.workload,
            given,
            modes,
            machine=args.machine,
            isa=args.isa,
            values=not args.no_values,
            layers=bool(args.layers),
            progress=progress,
            **_where(args),
        )
    stored = "; it is stored in integers" if network.is_integer else ""
    against = "its own graph with exact sums" if network.is_integer else "f32"
    data = f"random data, seed {args.seed}" if args.feeds is None else args.feeds.name
    errors = "" if args.no_values else f"; errors against {against} on {data}"
    return WorkloadOutcome(
        frames,
        f"{args.workload} on {args.machine}{stored}{errors}{taken}",
        rows=args.no_values and args.modes is None,
        axis=QualityAxis("sqnr_db", f"signal to error against {against} (dB)"),
        content={"taken_as_1": open_sizes},
    )


def fetched(args: argparse.Namespace, network: RealNetwork, modes: Modes, progress: output.Progress) -> WorkloadOutcome:
    """A fetched network with its data."""
    from simdnn.networks import real

    frames = real.run_real(
        network,
        modes,
        machine=args.machine,
        isa=args.isa,
        count=args.samples,
        seed=args.seed,
        values=not args.no_values,
        layers=bool(args.layers),
        progress=progress,
        **_where(args),
    )
    about = f"{network.title} on {args.machine}"
    if not args.no_values:
        explained = "; ".join(f"{metric.name}: {metric.title}" for metric in network.metrics)
        samples = f"{frames.totals['samples'].max():.0f} {network.samples}, seed {args.seed}"
        about = f"{about}, {samples}; {explained}"
    first = network.metrics[0]
    return WorkloadOutcome(
        frames,
        about,
        quality={metric.name: metric.form for metric in network.metrics},
        axis=QualityAxis(first.name, first.title, "%" in first.form, first.higher_is_better),
        content={"seed": args.seed},
    )


def _where(args: argparse.Namespace) -> dict[str, Any]:
    return {"threads": args.threads, "dispatch": args.dispatch, "fpmath_layers": args.fpmath_layers}


def _feeds(args: argparse.Namespace, network: Any, shapes: Any, random_feeds: Any) -> dict[str, Array]:
    if args.feeds is None:
        made: dict[str, Array] = random_feeds(network, shapes, args.seed)
        return made
    return read_feeds(args.feeds)


@contextmanager
def _about(taken: str) -> Iterator[None]:
    """Errors tell which sizes were taken, as those may be their cause."""
    try:
        yield
    except SimdnnError as error:
        raise type(error)(f"{error}{taken}") from None


def read_feeds(path: Path) -> dict[str, Array]:
    """Arrays by input name from an .npz file."""
    try:
        with np.load(path, allow_pickle=False) as file:
            return {name: file[name] for name in file.files}
    except (OSError, ValueError, BadZipFile, AttributeError) as error:
        reason = " ".join(str(error).split())[:80]
        raise InvalidArgument(f"{path} holds no feeds ({reason}); an .npz is needed") from None
