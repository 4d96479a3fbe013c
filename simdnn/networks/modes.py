"""A network in each precision mode: the model changed, or the kernels told, and what comes out beside f32."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from os import PathLike
from typing import TYPE_CHECKING, Any

import numpy as np

from isa_models import SimdnnError, Unimplemented
from isa_models.formats import fmt
from isa_models.readings.arrays import Array
from simdnn.exactness.measures import errors
from simdnn.networks.float16 import float16_report, transpile_float16
from simdnn.networks.network import Network, load
from simdnn.networks.precision import ANY_ISA, GPUS, MODES, Mode
from simdnn.networks.quantize import Ranges, quantize_onnx, ranges_of
from simdnn.networks.result import NetworkEstimate, NetworkResult
from simdnn.networks.types import is_float
from simdnn.primitives import Attr

if TYPE_CHECKING:
    import onnx
    import pandas as pd

    Model = str | PathLike[str] | onnx.ModelProto
Progress = Callable[[int, int, str], None]
#: of a model whose products are integer ones already: all kernels of the machine, nothing changed
STORED = Mode("as stored", "an integer model's own graph", "", "", ANY_ISA, gpus=GPUS)
CALIBRATED_ON_ITSELF = "its ranges are from the very data that it is judged on"
_EXACT = "icx"  # sums of integers are exact on any machine with VNNI


@dataclass(frozen=True, eq=False)
class Calibrated:
    """A model and the feeds that its int8 forms take their ranges from; they are run once, when first needed."""

    model: Model
    feeds: Sequence[Mapping[str, Array]]

    @cached_property
    def is_integer(self) -> bool:
        """Whether the model is stored in integers, which no mode quantizes again."""
        return load(self.model).is_integer

    @cached_property
    def ranges(self) -> Ranges:
        return ranges_of(self.model, self.feeds)


def in_mode(calibrated: Calibrated, mode: Mode) -> tuple[Network, Attr]:
    """The network and the attribute that put a model in a mode.

    `Unimplemented` where nothing of the model can be put in it, so that f32 is not shown under its name.
    """
    model = calibrated.model
    if mode.is_integer and calibrated.is_integer:
        return load(model), Attr(exact_int8=mode.exact_int8)
    if mode.is_integer:
        narrow = quantize_onnx(model, calibrated.ranges, per_channel=not mode.per_tensor, sources=mode.src)
        if not any(node.op_type == "QuantizeLinear" for node in narrow.graph.node):
            raise Unimplemented("no convolution and no product here has constant weights to quantize")
        return load(narrow), Attr(exact_int8=mode.exact_int8)
    if mode.weight_group:
        narrow = quantize_onnx(model, scheme="weights", weights=mode.weights, group=mode.weight_group)
        if not any(node.op_type in ("MatMulNBits", "DequantizeLinear") for node in narrow.graph.node):
            raise Unimplemented("no product here and no convolution has constant weights to store")
        return load(narrow), Attr(fpmath=mode.fpmath, apply_to_int=True)
    if mode.src in ("f16", "bf16"):
        narrow = transpile_float16(model, dtype=mode.src)
        if not _holds(narrow, mode.src):
            reason = next(iter(float16_report(narrow).kept.values()), "there is no arithmetic")
            raise Unimplemented(f"nothing here can be {mode.src} ({reason}); what works: fpmath-{mode.src}")
        return load(narrow), Attr()
    return load(model), Attr(fpmath=mode.fpmath)


def _holds(model: onnx.ModelProto, dtype: str) -> bool:
    """Whether a parameter has a type, or a cast gives it."""
    import onnx

    wanted = onnx.helper.np_dtype_to_tensor_dtype(fmt(dtype).dtype)
    casts = (node for node in model.graph.node if node.op_type == "Cast")
    given = (attribute.i for node in casts for attribute in node.attribute if attribute.name == "to")
    return wanted in {*(values.data_type for values in model.graph.initializer), *given}


def random_feeds(network: Network, shapes: Mapping[str, Sequence[int]], seed: int) -> dict[str, Array]:
    """Seeded data for every input: floats from a standard normal distribution, integers from 0 to 9.

    Sizes that neither `shapes` nor the model states are 1.
    """
    rng = np.random.default_rng(seed)
    sizes, _ = network.sizes(shapes)
    found: dict[str, Array] = {}
    for port in network.inputs:
        dtype, dims = port.dtype or np.dtype(np.float32), sizes[port.name]
        data = rng.normal(size=dims) if is_float(dtype) else rng.integers(0, 2 if dtype.kind == "b" else 10, dims)
        found[port.name] = data.astype(dtype)
    return found


def compare_modes(
    model: Model,
    feeds: Mapping[str, Array],
    modes: Mapping[Mode, str],
    *,
    values: bool = True,
    progress: Progress | None = None,
    **where: Any,
) -> pd.DataFrame:
    """A row a mode: mode, computes (the types of its products, by multiply-accumulates), cycles, time, speed-up, of all
    outputs the error, and of its integer products how many outputs met a saturating step and the departures from exact
    arithmetic (kinds, and the share of the outputs that met them); `values=False`: the cost alone.

    `modes` maps each to the ISA cap that it runs under; `where` are the other arguments of `Network.run`. Speed and
    errors are against f32. A model that is stored in integers has no f32: its first row, against which speed is told,
    is "as stored", its errors are against its own graph with exact sums, and a mode that gives the kernels and bits of
    another row has none of its own. What a mode changes nothing of, and what it was calibrated on, is in `note`; a mode
    that a node refuses has the reason in `refused`.
    """
    import pandas as pd

    calibrated = Calibrated(model, [feeds])
    integer = calibrated.is_integer
    first = STORED if integer else MODES["f32"]
    others = {mode: isa for mode, isa in modes.items() if not (integer and mode.name == "f32")}
    chosen = {first: where.pop("isa", None), **others}
    reference = _exact_outputs(model, feeds, chosen[first], where) if integer and values else []
    rows: list[_Row] = []
    for position, (mode, isa) in enumerate(chosen.items()):
        if progress:
            progress(position, len(chosen), mode.name)
        try:
            row = _run(calibrated, mode, feeds if values else None, {"isa": isa, **where})
        except SimdnnError as error:
            if not rows:
                raise
            rows.append(_Row(mode.name, {"refused": str(error)}))
            continue
        reference = reference or row.outputs
        row.figures |= _errors(row.outputs, reference)
        twin = next((other for other in rows if other.ran == row.ran), None)
        if twin and integer:
            twin.same.append(mode.name)
            continue
        if twin:
            row.notes.append(f"changes nothing: the products, cycles and bits of {twin.mode}")
        if mode.is_integer and not integer and values:
            row.notes.append(CALIBRATED_ON_ITSELF)
        rows.append(row)
    frame = pd.DataFrame([row.record() for row in rows])
    frame.insert(4, "speed_up", frame["cycles"].iloc[0] / frame["cycles"])
    return frame if integer or MODES["f32"] in modes else frame.iloc[1:].reset_index(drop=True)


@dataclass(eq=False)
class _Row:
    """A mode, its figures, and what ran: products, cycles and bits, equal where two modes are one."""

    mode: str
    figures: dict[str, Any]
    ran: tuple[Any, ...] | None = None
    outputs: list[Array] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    same: list[str] = field(default_factory=list)  # other modes that would be this row

    def record(self) -> dict[str, Any]:
        same = [f"{' and '.join(self.same)} would be this very run"] if self.same else []
        return {"mode": self.mode, **self.figures, "note": "; ".join([*self.notes, *same])}


def _run(calibrated: Calibrated, mode: Mode, feeds: Mapping[str, Array] | None, where: dict[str, Any]) -> _Row:
    """One mode; without feeds of one's own, the cost alone."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", RuntimeWarning)
        network, attr = in_mode(calibrated, mode)
        if feeds is None:
            result = network.estimate(calibrated.feeds[0], attr=attr, **where)
        else:
            result = network.run(feeds, attr=attr, **where)
    figures = _costs(result) | {"refused": ""}
    row = _Row(mode.name, figures, notes=list(dict.fromkeys(str(w.message) for w in caught)))
    calls = (call for run in result.nodes for call in run.calls)
    row.ran = round(result.cycles, 3), *((call.implementation, call.compute_dtype) for call in calls if call.macs)
    if isinstance(result, NetworkResult):
        row.ran += tuple(v.tobytes() for v in result.outputs.values() if isinstance(v, np.ndarray))
        row.outputs = _floats(result)
        row.figures |= _departed(result)
    return row


def _exact_outputs(model: Model, feeds: Mapping[str, Array], isa: str | None, where: Mapping[str, Any]) -> list[Array]:
    """The outputs of an integer model with exact sums; by a CPU where the machine lacks an integer kernel for one."""
    network, exact = load(model), Attr(exact_int8=True)
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        try:
            return _floats(network.run(feeds, attr=exact, isa=isa, **where))
        except (RuntimeWarning, Unimplemented):
            warnings.simplefilter("ignore", RuntimeWarning)
            return _floats(network.run(feeds, attr=exact, machine=_EXACT))


def _costs(result: NetworkEstimate) -> dict[str, Any]:
    """The figures of a row that need no values."""
    macs: dict[str, int] = {}
    for call in (call for run in result.nodes for call in run.calls if call.macs):
        macs[call.compute_dtype] = macs.get(call.compute_dtype, 0) + call.macs
    ordered = sorted(macs.items(), key=lambda entry: -entry[1])
    shares = [f"{name} {count / result.macs:.0%}" if len(macs) > 1 else name for name, count in ordered]
    return {
        "computes": ", ".join(shares),
        "cycles": result.cycles,
        "time_us": result.seconds * 1e6,
        "macs": result.macs,
        "confidence": result.confidence,
    }


def _departed(result: NetworkResult) -> dict[str, Any]:
    """Outputs of integer products that met a saturating step, and all that departed from exact integers, in words."""
    attrs = result.departures.attrs
    return {"saturated_outputs": attrs["saturated_outputs"], "departures": attrs["summary"]}


def _floats(result: NetworkResult) -> list[Array]:
    return [v.astype(np.float64) for v in result.outputs.values() if isinstance(v, np.ndarray) and is_float(v.dtype)]


def _errors(values: list[Array], reference: list[Array]) -> dict[str, float]:
    """Errors over all outputs taken as one."""
    if not values:
        return {}
    found = errors(*(np.concatenate([v.reshape(-1) for v in group]) for group in (values, reference)))
    return {name: found[name] for name in ("max_abs_error", "sqnr_db")}
