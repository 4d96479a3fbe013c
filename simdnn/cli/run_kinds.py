"""The kinds of workload that `simdnn run` takes: what each one runs, how its quality is told, what its title says."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import workloads
from isa_models import InvalidArgument, SimdnnError
from isa_models.readings.arrays import Array
from simdnn import workers
from simdnn.cli import numpy_files
from simdnn.cli.options import shapes_of, taken_as_1
from simdnn.late import pd
from simdnn.networks.classifier import run_classifier
from simdnn.networks.precision import MODES, Mode
from simdnn.networks.runner import Frames
from simdnn.networks.tables import run_table
from simdnn.progress import Progress
from workloads import RealNetwork

if TYPE_CHECKING:
    from simdnn.networks.model import Port
    from simdnn.networks.network import Network

Modes = Mapping[Mode, str | None]


@dataclass(frozen=True)
class QualityAxis:
    """The quality that a picture draws against speed."""

    column: str
    title: str
    percent: bool = False
    higher_is_better: bool = True


@dataclass(frozen=True, eq=False)
class WorkloadOutcome:
    """The outcome of a workload. `about` says beside the frames what the figures mean. `rows`: layers are shown though
    nobody asked for them. `quality`: formats of its own figures by column. `axis`: None: accuracy, or the worst layer.
    `content`: what JSON says besides.
    """

    frames: Frames
    about: str = ""
    rows: bool = False
    quality: Mapping[str, str] = field(default_factory=dict)
    axis: QualityAxis | None = None
    content: Mapping[str, Any] = field(default_factory=dict)


def beside(outcomes: Mapping[str, WorkloadOutcome]) -> WorkloadOutcome:
    """The outcome of a workload on several machines, by their names, as one: a column says which machine."""

    def joined(frames: Mapping[str, pd.DataFrame]) -> pd.DataFrame:
        parts = [frame.assign(machine=name) for name, frame in frames.items() if len(frame)]
        whole = pd.concat(parts, ignore_index=True) if parts else next(iter(frames.values()))
        return whole[["machine", *(name for name in whole if name != "machine")]] if parts else whole

    layers = joined({name: outcome.frames.layers for name, outcome in outcomes.items()})
    totals = joined({name: outcome.frames.totals for name, outcome in outcomes.items()})
    if "values_of" in totals:
        totals["values_of"] = totals["values_of"].fillna(totals["machine"])
    first = next(iter(outcomes.values()))
    about = "\n".join(dict.fromkeys(outcome.about for outcome in outcomes.values() if outcome.about))
    return replace(first, frames=Frames(layers, totals), about=about)


def known_modes(args: argparse.Namespace, network: RealNetwork | None, is_model: bool) -> Mapping[str, Mode]:
    """The modes that a command line may name: of a user's model the one that tables call "as stored", too."""
    if network is not None:
        from simdnn.networks import real

        return real.modes_of(network)
    if is_model and args.modes is not None:
        from simdnn.networks.modes import STORED

        return {**MODES, STORED.name: STORED} if STORED.name in args.modes else MODES
    return MODES


def layer_table(args: argparse.Namespace, modes: Modes, progress: Progress) -> WorkloadOutcome:
    """Layers by themselves on seeded data; `--layers` says which of them run."""
    frames = run_table(
        workloads.load(args.workload),
        args.machine,
        [mode.name for mode in modes],
        isa=args.isa,
        layers=args.layers or "*",
        values=not args.no_values,
        seed=args.seed,
        jobs=workers.most(),
        progress=progress,
        **_where(args),
    )
    return WorkloadOutcome(frames, rows=True)


def classifier(args: argparse.Namespace, modes: Modes, progress: Progress) -> WorkloadOutcome:
    """A trained classifier over its held-out data."""
    net = workloads.NETWORKS[args.workload]()
    names = [mode if mode.layers else mode.name for mode in modes]
    frames = run_classifier(net, args.machine, names, isa=args.isa, progress=progress, **_where(args))
    samples = len(net.test_images)
    about = f"Per sample: cycles in one batch of {samples} samples, cycles_mb1 for a sample by itself."
    return WorkloadOutcome(frames, about, rows=True)


def onnx_model(args: argparse.Namespace, modes: Modes, progress: Progress) -> WorkloadOutcome:
    """An ONNX model on feeds, or on random data."""
    from simdnn.networks.feeds import random_feeds
    from simdnn.networks.modes import run_model
    from simdnn.networks.network import load

    network = load(args.workload)
    network.check_operators()
    parts = [part for mode in modes for part in mode.parts]
    calibrates = any(part.is_integer for part in parts) and not network.is_integer
    if args.calibrate is not None and not calibrates:
        raise InvalidArgument("--calibrate without a mode that takes ranges from data: --modes with int8-vnni, e.g.")
    shapes = shapes_of(args.shape)
    sizes, open_sizes = network.sizes(shapes) if args.feeds is None else ({}, [])
    taken = taken_as_1(open_sizes)
    alone = args.no_values and not any(part.is_integer for part in parts)  # shapes will do
    labels = None if args.labels is None else numpy_files.one(args.labels, "labels")
    calibrate = None if args.calibrate is None else read_feeds(args.calibrate, network)
    with _about(taken):
        feeds: list[Any] = [sizes if alone else random_feeds(network, shapes, args.seed)] if args.feeds is None else []
        feeds = feeds or read_feeds(args.feeds, network)
        frames = run_model(
            args.workload,
            feeds,
            modes,
            calibrate=calibrate,
            labels=labels,
            machine=args.machine,
            isa=args.isa,
            values=not args.no_values,
            layers=bool(args.layers),
            progress=progress,
            ranges=args.ranges,
            **_where(args),
        )
    picked = "; kernels by estimated cycles (--dispatch: a library's)" if args.dispatch == "fastest" else ""
    stored = f"; it is stored in integers{picked}" if network.is_integer else ""
    against = "its own graph with exact sums" if network.is_integer else "f32"
    data = f"random data, seed {args.seed}" if args.feeds is None else _file_and_count(args.feeds, feeds)
    errors = "" if args.no_values else f"; errors against {against} on {data}"
    apart = "" if calibrate is None else f"; ranges of int8 from {_file_and_count(args.calibrate, calibrate)}"
    return WorkloadOutcome(
        frames,
        f"{args.workload} on {args.machine}{stored}{errors}{apart}{taken}",
        rows=args.no_values and args.modes is None,
        axis=None if labels is not None else QualityAxis("sqnr_db", f"signal to error against {against} (dB)"),
        content={"taken_as_1": open_sizes},
    )


def _file_and_count(path: Path, feeds: Sequence[Any]) -> str:
    """A file's name, and how many feeds it holds where there are several."""
    return path.name + (f" ({len(feeds)} feeds)" if len(feeds) > 1 else "")


def fetched(
    args: argparse.Namespace,
    network: RealNetwork,
    modes: Modes,
    progress: Progress,
    lender: tuple[str, WorkloadOutcome] | None = None,
) -> WorkloadOutcome:
    """A fetched network with its data; `lender`: the machine whose values stand for this one's, and what it gave."""
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
        lender=lender and real.Lender(lender[0], lender[1].frames),
        ranges=args.ranges,
        progress=progress,
        **_where(args),
    )
    about = f"{network.title} on {args.machine}"
    if not args.no_values:
        explained = "; ".join(f"{metric.name}: {metric.title}" for metric in network.metrics)
        samples = f"{frames.totals['samples'].max():.0f} {network.samples}, seed {args.seed}"
        about = f"{about}, {samples}; {explained}; max_abs, sqnr_db: of the first one's outputs"
    first = network.metrics[0]
    return WorkloadOutcome(
        frames,
        about,
        quality={metric.name: metric.form for metric in network.metrics},
        axis=QualityAxis(first.name, first.title, first.is_share, first.higher_is_better),
        content={"seed": args.seed},
    )


def _where(args: argparse.Namespace) -> dict[str, Any]:
    return {"threads": args.threads, "dispatch": args.dispatch, "fpmath_layers": args.fpmath_layers}


@contextmanager
def _about(taken: str) -> Iterator[None]:
    """Errors tell which sizes were taken, as those may be their cause."""
    try:
        yield
    except SimdnnError as error:
        raise type(error)(f"{error}{taken}") from None


def read_feeds(path: Path, network: Network) -> list[dict[str, Array]]:
    """The feeds in an .npz file, or in those of a folder in the order of their names.

    A file holds arrays by input name, an .npy file that of a model's only input. Where they have one dimension more
    than the input, or several times its first size, it holds as many feeds; an array that has the input's own shape
    then belongs to each of them.
    """
    files = sorted(path.glob("*.npz")) if path.is_dir() else [path]
    if not files:
        raise InvalidArgument(f"{path} holds no feeds (a folder without .npz files); an .npz in it is needed")
    names = [port.name for port in network.inputs]
    return [feed for file in files for feed in _apart(file, numpy_files.by_name(file, "feeds", names), network)]


def _apart(path: Path, arrays: dict[str, Array], network: Network) -> list[dict[str, Array]]:
    """The feeds of one file."""
    stacks = {port.name: parts for port in network.inputs if (parts := _stacked(port, arrays.get(port.name)))}
    counts = {name: len(parts) for name, parts in stacks.items()}
    if len(set(counts.values())) > 1:
        told = ", ".join(f"{count} of {name}" for name, count in counts.items())
        raise InvalidArgument(f"{path} holds feeds by input: {told}; as many of each are needed")
    count = next(iter(counts.values()), 1)
    return [{**arrays, **{name: parts[i] for name, parts in stacks.items()}} for i in range(count)]


def _stacked(port: Port, array: Array | None) -> list[Array]:
    """The arrays of several feeds that lie in one; none where it is that of one feed."""
    if array is None or port.dims is None:
        return []
    if array.ndim == len(port.dims) + 1:
        return list(array)
    first = port.dims[0] if array.ndim == len(port.dims) and port.dims else ""
    if not isinstance(first, int) or first < 1 or array.shape[0] == first or array.shape[0] % first:
        return []
    return list(array.reshape(-1, first, *array.shape[1:]))
