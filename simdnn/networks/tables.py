"""A layer table in precision modes: each layer by itself on seeded data."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

import isa_models
from isa_models import InvalidArgument, SimdnnError, Unimplemented, UnknownTiming
from isa_models.errors import shortly, some
from isa_models.formats import fmt
from isa_models.keywords import keywords
from isa_models.machines.loader import AnyMachine
from simdnn.exactness import measures
from simdnn.late import pd
from simdnn.networks import sequential as network
from simdnn.networks.narrow_weights import NarrowMode
from simdnn.networks.precision import MODES, Mode, choose, of_activations
from simdnn.networks.runner import (
    Frames,
    InMode,
    Row,
    asked,
    check_scoped,
    nothing_ran,
    rows_in_modes,
    run_modes,
)
from simdnn.primitives import Attr, Quant, convolution, matmul
from simdnn.primitives.mathmode import cold_weights
from simdnn.primitives.result import Estimate, Result
from simdnn.primitives.run import Target
from simdnn.progress import Progress
from simdnn.quantize import quantize_weights, weight_scales
from workloads import ConvLayer, Layer, MatmulLayer, Workload, data

if TYPE_CHECKING:
    from simdnn.timing.estimate import Cost


@dataclass(frozen=True)
class TableLayer:
    """One layer of a table in all modes, a `runner.Part`: what a worker process is handed."""

    layer: Layer
    machine: str | AnyMachine
    modes: tuple[tuple[Mode, str], ...]  # and the ISA cap of each
    threads: int
    values: bool
    dispatch: str
    seed: int
    cold: frozenset[str]  # modes in which the network's weights do not stay in the caches from run to run
    fpmath_layers: str = "*"  # in math modes: patterns of the layers that are in the mode
    base: Mode | None = None
    hides: bool = False
    refusals: tuple[type[SimdnnError], ...] = (Unimplemented, UnknownTiming)

    @property
    def name(self) -> str:
        return self.layer.name

    @property
    def macs(self) -> int:
        return self.layer.macs

    def where(self, isa: str) -> dict[str, Any]:
        """The keyword arguments that primitives share."""
        return {"machine": self.machine, "isa": isa, "threads": self.threads, "dispatch": self.dispatch}

    def reference(self) -> Result | None:
        """The layer in f32, under the machine's own ISA where f32 wasn't asked for; None where values aren't."""
        if not self.values:
            return None
        f32 = MODES["f32"]
        isa = dict(self.modes).get(f32) or f32.isa(isa_models.machine(self.machine))
        if isa is None:
            raise InvalidArgument(f"machine {self.machine!r} has none of {', '.join(f32.isas)}, which f32 values need")
        with cold_weights("f32" in self.cold):
            return _primitive(self, f32, isa)

    def in_mode(self, mode: Mode, isa: str | None, reference: Result | None) -> InMode:
        """One row: cost, and with values the errors against f32."""
        cap = str(isa)
        mode = of_activations(mode) if self._of_activations else mode
        batch = self.layer.batch if isinstance(self.layer, MatmulLayer) else 1
        with cold_weights(mode.name in self.cold):
            run = _primitive if self.values else _estimate
            result = reference if reference and mode == MODES["f32"] else run(self, mode, cap)
            priced = _estimate(self, mode, cap) if batch > 1 else result  # one kernel; values are of one product
            ahead = self._ahead(mode, cap)
        found = measures.cost(priced, cap, self.macs, ahead=ahead)
        if isinstance(result, Result) and reference:
            found |= measures.values(result, result.output, reference.output, times=batch)
        notes = NarrowMode.kept(mode.narrow, not isinstance(self.layer, MatmulLayer))
        return InMode([self._row(mode) | found | {"refused": ""} | ({"note": notes[0]} if notes else {})])

    def _ahead(self, mode: Mode, isa: str) -> Cost | None:
        """The cost of quantizing the source as it comes, where a mode does so."""
        where = self.where(isa) | {"engine": "auto"}
        return network.ahead(mode, not isinstance(self.layer, MatmulLayer), self.layer.src_shape, Target.of(**where))

    def estimated(self, mode: Mode, isa: str) -> Estimate:
        """The layer's cost in a mode, all products of a batch in one kernel."""
        mode = of_activations(mode) if self._of_activations else mode
        with cold_weights(mode.name in self.cold):
            return _estimate(self, mode, isa)

    def refused(self, mode: Mode, reason: str) -> InMode:
        return InMode([self._row(mode) | {"implementation": "refused", "refused": reason}])

    @property
    def _of_activations(self) -> bool:
        """Whether both operands come from layers before: products of a batch, as in attention, store no weights."""
        return isinstance(self.layer, MatmulLayer) and self.layer.batch > 1

    def _row(self, mode: Mode) -> Row:
        return {"layer": self.layer.name, "count": self.layer.count, "mode": mode.name}


def run_table(
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
) -> Frames:
    """Each layer of a workload in each mode: its cost, and the error of its values against the f32 mode.

    Layers of one shape are run once, under the first one's name, and their counts are added. `layers` is a pattern of
    names (as in a shell); `modes` are names, or modes of one's own, `None` all that the machine can do; `values=False`
    takes the cost alone. `fpmath_layers`: in modes that are math modes, layers that no pattern of this comma list
    matches stay strict. `jobs` is the number of worker processes (not of modelled threads); a script that asks for
    several runs its own code under `if __name__ == "__main__"`. A layer that a mode cannot do keeps its row, with the
    reason in `refused` and no figures.
    """
    parts, chosen = _parts(
        workload,
        machine,
        modes,
        isa=isa,
        layers=layers,
        threads=threads,
        values=values,
        dispatch=dispatch,
        seed=seed,
        fpmath_layers=fpmath_layers,
    )
    return run_modes(parts, chosen, jobs=jobs, progress=progress)


@partial(keywords, name="run_layers")
def _parts(
    workload: Workload,
    machine: str | AnyMachine,
    modes: Iterable[str | Mode] | None,
    *,
    isa: str | None = None,
    layers: str = "*",
    threads: int = 1,
    values: bool = True,
    dispatch: str = "fastest",
    seed: int = 0,
    fpmath_layers: str = "*",
) -> tuple[list[TableLayer], Mapping[Mode, str | None]]:
    """The layers to run, and the modes with their ISA caps; arguments as for `run_table`."""
    if not isinstance(workload, Workload):
        raise InvalidArgument(f"workload={shortly(workload)}; one is needed, as workloads.load('resnet50') is")
    model = isa_models.machine(machine)
    own = {mode.name: mode for mode in modes or () if isinstance(mode, Mode)}
    names = None if modes is None else [mode.name if isinstance(mode, Mode) else mode for mode in modes]
    chosen, _ = choose(model, names, isa, {**MODES, **own})
    last = model.caches[-1].size_bytes
    cold = frozenset(mode.name for mode in chosen if workload.parameters * fmt(mode.weights).bytes > last)
    check_scoped([layer.name for layer in workload.layers], fpmath_layers)
    parts = [
        TableLayer(layer, machine, tuple(chosen.items()), threads, values, dispatch, seed, cold, fpmath_layers)
        for layer in select(workload, layers, fpmath_layers)
    ]
    return parts, chosen


@keywords
def run_layers(
    workload: Workload,
    machine: str | AnyMachine = "zen4",
    modes: Iterable[str | Mode] | None = None,
    *,
    jobs: int = 1,
    progress: Progress | None = None,
    **options: Any,
) -> pd.DataFrame:
    """The layers of `run_table`, which takes the same options; `totals` of the frame are its totals."""
    parts, chosen = _parts(workload, machine, modes, **options)
    rows, _ = rows_in_modes(parts, chosen, jobs=jobs, progress=progress)
    found = asked(pd.DataFrame(rows), parts[0].base, chosen)
    if (found["refused"] != "").all():
        raise nothing_ran(found["refused"].iloc[0])
    return found


def run_layer(layer: Layer, machine: str | AnyMachine, mode: str | Mode, **options: Any) -> Mapping[Any, Any]:
    """The row of one layer in one mode, as `run_layers` tells it: of one row alone no frame is made."""
    parts, chosen = _parts(Workload(layer.name, "", "", (layer,)), machine, [mode], **options)
    rows, _ = rows_in_modes(parts, chosen)
    if len(rows) == 1:
        return rows[0]
    found = asked(pd.DataFrame(rows), parts[0].base, chosen)
    if (found["refused"] != "").all():
        raise nothing_ran(found["refused"].iloc[0])
    return found.iloc[0].to_dict()


@keywords
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


def _primitive(job: TableLayer, mode: Mode, isa: str) -> Result:
    """The layer through its primitive on seeded data; the destination is f32, integers are scaled in the kernel."""
    layer = job.layer
    narrowed = mode.weight_group or mode.narrow or mode.per_tensor  # from f32, here
    tensors = data.tensors(layer, f"{mode.src}:{'f32' if narrowed else mode.weights}", job.seed)
    scales = {"src": tensors.src_scale, "wei": tensors.wei_scale} if mode.is_integer else {}
    src, weights, zero_points, sums = tensors.src, tensors.weights, None, None
    conv = not isinstance(layer, MatmulLayer)
    narrow = NarrowMode.of(mode.narrow, conv)
    if narrow:
        outputs = layer.oc if isinstance(layer, ConvLayer) else layer.n
        weights, given = narrow.weights.filters(weights, outputs) if conv else narrow.weights.store(weights)
        src, given = narrow.read(src, given)
        scales = dict(given)
    elif mode.weight_group:
        weights, scales["wei"], zero_points = network.compressed(weights, mode)
    if zero_points is not None and mode.zero_points == "precomputed":
        sums = tensors.src.reshape(layer.src_shape[0], len(zero_points), -1).sum(-1, dtype=np.int32)
    if mode.per_tensor:
        row = weights.reshape(1, -1)
        largest = weight_scales(row, 0)
        weights, scales["wei"] = quantize_weights(row, largest, 0).reshape(weights.shape), largest
    where = job.where(isa) | {"dst": "f32", "attr": _attr(job, mode, scales, zero_points, sums)}
    if isinstance(layer, MatmulLayer):
        return matmul(src, weights, wei_tag=network.layout(layer, job.machine), **where)
    where |= {"strides": layer.stride, "padding": layer.pad, "groups": layer.groups}
    return convolution(src, weights, **where)


def _estimate(job: TableLayer, mode: Mode, isa: str) -> Estimate:
    """The cost of what `_primitive` runs, without data."""
    layer = job.layer
    outputs = layer.n if isinstance(layer, MatmulLayer) else layer.oc
    count = 1 if mode.per_tensor else outputs
    scales: dict[str, Any] = {"src": 1.0, "wei": np.ones(count, np.float32)} if mode.is_integer else {}
    zero_points, sums = None, None
    src, held = mode.src, mode.weights
    if mode.narrow:
        found = NarrowMode.of(mode.narrow, not isinstance(layer, MatmulLayer))
        src = found.source.dtype if found and found.source else src
        held = mode.weights if found else mode.src
        scales = found.quant(layer.k if isinstance(layer, MatmulLayer) else 0) if found else {}
    elif mode.weight_group and isinstance(layer, MatmulLayer):
        length = network.group_of(mode, layer.k)
        scales["wei"] = Quant(None, groups=(length, 1))
        if not fmt(mode.weights).signed:
            zero_points = Quant(None, groups=(length, 1), dtype=mode.weights)
            sums = Quant(None, groups=(1, length)) if mode.zero_points == "precomputed" else None
    elif mode.weight_group:
        network.check_zero_points(mode)
        scales["wei"] = Quant(None, mask="per_oc")
    return network.estimate_layer(
        layer,
        f"{src}:{held}:f32",
        attr=_attr(job, mode, scales, zero_points, sums),
        **job.where(isa),
    )


def _attr(job: TableLayer, mode: Mode, scales: dict[str, Any], zero_points: Any = None, sums: Any = None) -> Attr:
    return Attr(
        fpmath=mode.fpmath_of(job.layer.name, job.fpmath_layers),
        apply_to_int=bool(mode.weight_group) and not mode.is_integer,
        scales=scales,
        zero_points={} if zero_points is None else {"wei": zero_points},
        precomputed_reductions={} if sums is None else {"src": sums},
        zero_point_strategy="auto" if zero_points is None else mode.zero_points,
        exact_int8=mode.exact_int8,
        acc_mode=mode.acc_mode,
    )
