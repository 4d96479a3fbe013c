"""simdnn.blame: which layers make the error of a mode, each found by restoring it to f32 while the others stay."""

from __future__ import annotations

import glob
import warnings
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

import isa_models
from isa_models import InvalidArgument, Unimplemented
from isa_models.keywords import keywords
from isa_models.machines.loader import AnyMachine
from isa_models.readings.arrays import Array
from simdnn.late import frames, pd
from simdnn.networks.feeds import listed_feeds
from simdnn.networks.judging import NO_FLOATS, Judging, Metric, error_of, has_floats
from simdnn.networks.modes import Calibrated, in_mode
from simdnn.networks.network import Network, load
from simdnn.networks.precision import MODES, Mode, choose
from simdnn.primitives import Attr
from simdnn.progress import Progress, shows

if TYPE_CHECKING:
    from simdnn.networks.modes import Model
Outputs = list[dict[str, Any]]  # of each feed, by name
COLUMNS = ("node", "op", "sqnr_db", "share")
_LAYERS = ("Conv", "MatMul", "Gemm")


@keywords
@shows
def blame(
    model: Model,
    feeds: Mapping[str, Array] | Sequence[Mapping[str, Array]],
    *,
    mode: str,
    machine: str | AnyMachine = "zen4",
    isa: str | None = None,
    calibrate: Sequence[Mapping[str, Array]] | None = None,
    labels: Array | Sequence[int] | None = None,
    metric: Metric | None = None,
    threads: int = 1,
    dispatch: str = "fastest",
    progress: Progress | None = None,
) -> pd.DataFrame:
    """The part that each layer has in the error of a mode: one layer is restored to f32 while the others stay in it.

    `feeds`: one or several, over which errors are taken against f32's outputs; `calibrate`: feeds that int8 modes take
    their ranges from (`feeds`); `labels` and `metric` as in `simdnn.run_model`. Layers are convolutions and products;
    the network runs once more for each of them.

    A row a layer, the one that helps most first: node, op, sqnr_db (of the outputs with this layer restored) and share
    (of the squared error that goes with it; negative where the layer's error cancels others', and as errors add up and
    cancel, shares need not add up to 1), accuracy and metric where they are asked for. `attrs`: mode, sqnr_db (with
    none restored), and as that sqnr_db accuracy and metric; those of f32 are `f32_accuracy` and `f32_metric`.
    Raises `Unimplemented` for a mode that the model cannot be put in, and for a model stored in integers, which has no
    f32 to be restored to; `InvalidArgument` for labels that do not fit, and where no output holds floats.

    >>> import workloads
    >>> from workloads.export import onnx_model
    >>> net = workloads.NETWORKS["digits"]()
    >>> frame = blame(onnx_model(net), {"images": net.test_images[:4]}, mode="fpmath-bf16", machine="zen4")
    >>> sorted(frame["node"]), bool(frame["share"].is_monotonic_decreasing)
    (['conv1', 'conv2', 'conv3', 'fc'], True)
    """
    given = listed_feeds("feeds", feeds)
    samples = given if calibrate is None else listed_feeds("calibrate", calibrate)
    chosen, _ = choose(isa_models.machine(machine), [mode], isa)
    ((asked, cap),) = chosen.items()
    base = load(model)
    if base.is_integer:
        raise Unimplemented(
            "the model is stored in integers, and has no f32 that its layers could be restored to; each node's error "
            "against exact sums: simdnn run MODEL --layers '*'; where two CPUs part: --machine hsw,icx"
        )
    calibrated = Calibrated(model, samples)
    judge = Judging(None if labels is None else np.asarray(labels), metric, isinstance(feeds, Mapping))
    where: dict[str, Any] = {"machine": machine, "threads": threads, "dispatch": dispatch}
    names = [node.name for node in base.graph.nodes]
    layers = [node for node in base.graph.nodes if node.op in _LAYERS]
    if progress:
        progress(0, len(layers), f"f32, and all layers in {mode}")
    reference = _outputs(base, Attr(), given, where | {"isa": MODES["f32"].isa(isa_models.machine(machine), isa)})
    if not _floats(reference):
        raise InvalidArgument(NO_FLOATS)
    where["isa"] = cap
    rows = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        whole = _outputs(*in_mode(calibrated, asked), given, where)
        for done, layer in enumerate(layers):
            if progress:
                progress(done, len(layers), layer.name)
            found = _restored(calibrated, asked, [name for name in names if name != layer.name], given, where)
            outputs = reference if found is None else found
            share = 1 - _power(outputs, reference) / _power(whole, reference) if _power(whole, reference) else 0.0
            errors = {"sqnr_db": _sqnr_db(outputs, reference), "share": share}
            rows.append({"node": layer.name, "op": layer.op, **errors, **_judged(judge, outputs)})
    frame = frames.shown(pd.DataFrame(rows, columns=[*COLUMNS, *_judged(judge, reference)]))
    frame = frame.sort_values("share", ascending=False, kind="stable", ignore_index=True)
    frame.attrs.update(mode=mode, sqnr_db=_sqnr_db(whole, reference), **_judged(judge, whole))
    frame.attrs.update({f"f32_{name}": value for name, value in _judged(judge, reference).items()})
    return frame


def _restored(
    calibrated: Calibrated, mode: Mode, others: Sequence[str], feeds: Sequence[Any], where: Mapping[str, Any]
) -> Outputs | None:
    """The outputs with the mode in the `others` alone; None where it changes nothing of those."""
    if mode.fpmath and not mode.stores:
        network, attr = in_mode(calibrated, mode)
        return _outputs(network, attr, feeds, {**where, "fpmath_layers": _patterns(others)})
    try:
        return _outputs(*in_mode(calibrated, mode, [glob.escape(name) for name in others]), feeds, where)
    except Unimplemented:
        return None


def _patterns(names: Iterable[str]) -> str:
    """A comma list of patterns for these names; a comma within a name is any character."""
    return ",".join(glob.escape(name).replace(",", "?") for name in names)


def _outputs(network: Network, attr: Attr, feeds: Sequence[Any], where: Mapping[str, Any]) -> Outputs:
    return [dict(network.run(feed, attr=attr, **where).outputs) for feed in feeds]


def _judged(judge: Judging, outputs: Outputs) -> dict[str, float]:
    """Accuracy and metric, as far as they are asked for."""
    found = judge.row(outputs)
    return {name: found[name] for name in ("accuracy", "metric") if name in found}


def _floats(outputs: Outputs) -> list[Array]:
    return [values for one in outputs for values in one.values() if has_floats(values)]


def _sqnr_db(outputs: Outputs, reference: Outputs) -> float:
    return error_of(_floats(outputs), _floats(reference))["sqnr_db"]


def _power(outputs: Outputs, reference: Outputs) -> float:
    """The squared error of all outputs."""
    pairs = zip(_floats(outputs), _floats(reference), strict=True)
    return float(sum(np.square(a.astype(np.float64) - b.astype(np.float64)).sum() for a, b in pairs))
