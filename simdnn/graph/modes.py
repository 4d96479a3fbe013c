"""A network in each precision mode: the model changed, or the kernels told, and what comes out beside f32."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from os import PathLike
from typing import TYPE_CHECKING, Any

import numpy as np

from isa_models import InvalidArgument, SimdnnError, Unimplemented
from isa_models.arrays import Array
from isa_models.formats import fmt
from simdnn.graph.float16 import float16_report, transpile_float16
from simdnn.graph.network import Network, load
from simdnn.graph.quantize import Ranges, quantize_onnx, ranges_of
from simdnn.graph.types import is_float
from simdnn.measures import errors
from simdnn.modes import MODES, Mode
from simdnn.primitives import Attr

if TYPE_CHECKING:
    import onnx
    import pandas as pd

    Model = str | PathLike[str] | onnx.ModelProto
Progress = Callable[[int, int, str], None]


@dataclass(frozen=True, eq=False)
class Calibrated:
    """A model and the feeds that its int8 forms take their ranges from; they are run once, when first needed."""

    model: Model
    feeds: Sequence[Mapping[str, Array]]

    @cached_property
    def ranges(self) -> Ranges:
        return ranges_of(self.model, self.feeds)


def in_mode(calibrated: Calibrated, mode: Mode) -> tuple[Network, Attr]:
    """The network and the attribute that put a model in a mode.

    `Unimplemented` where nothing of the model can be put in it, so that f32 is not shown under its name.
    """
    model = calibrated.model
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
    """Seeded data for every input: floats from a standard normal distribution, integers from 0 to 9."""
    rng = np.random.default_rng(seed)
    if unknown := [name for name in shapes if name not in {port.name for port in network.inputs}]:
        inputs = ", ".join(map(str, network.inputs))
        raise InvalidArgument(f"a shape for {unknown[0]!r}; the inputs are {inputs}")
    found: dict[str, Array] = {}
    for port in network.inputs:
        dims = shapes.get(port.name, port.dims)
        if dims is None or any(not isinstance(d, int) for d in dims):
            raise InvalidArgument(f"input {port} has no fixed shape; give one, as in --shape {port.name}=1,3,224,224")
        dtype = port.dtype or np.dtype(np.float32)
        sizes = [int(d) for d in dims]
        data = rng.normal(size=sizes) if is_float(dtype) else rng.integers(0, 2 if dtype.kind == "b" else 10, sizes)
        found[port.name] = data.astype(dtype)
    return found


def compare_modes(
    model: Model,
    feeds: Mapping[str, Array],
    modes: Mapping[Mode, str],
    *,
    progress: Progress | None = None,
    **where: Any,
) -> pd.DataFrame:
    """A row a mode: cycles, time, speed-up over f32, the error of all outputs against f32's, and the departures of
    the integer kernels from exact arithmetic (kinds, and the share of these kernels' outputs that met them).

    `modes` maps each to the ISA cap that it runs under; `where` are the other arguments of `Network.run`. A mode that
    a node refuses has the reason in `refused`.
    """
    import pandas as pd

    calibrated = Calibrated(model, [feeds])
    chosen = {MODES["f32"]: where.pop("isa", None), **modes}
    reference: list[Array] = []
    rows = []
    for position, (mode, isa) in enumerate(chosen.items()):
        if progress:
            progress(position, len(chosen), mode.name)
        row: dict[str, Any] = {"mode": mode.name}
        try:
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always", RuntimeWarning)
                network, attr = in_mode(calibrated, mode)
                result = network.run(feeds, attr=attr, isa=isa, **where)
            row |= {"cycles": result.cycles, "time_us": result.seconds * 1e6, "macs": result.macs}
            outputs = [v.astype(np.float64) for v in result.outputs.values() if is_float(v.dtype)]
            reference = reference or outputs
            row |= _errors(outputs, reference)
            row |= {"departures": result.departures.attrs["summary"], "confidence": result.confidence}
            row |= {"note": "; ".join(str(w.message) for w in caught), "refused": ""}
        except SimdnnError as error:
            if not reference:
                raise
            row |= {"refused": str(error)}
        rows.append(row)
    frame = pd.DataFrame(rows)
    frame.insert(3, "speed_up", frame["cycles"].iloc[0] / frame["cycles"])
    return frame if MODES["f32"] in modes else frame.iloc[1:].reset_index(drop=True)


def _errors(values: list[Array], reference: list[Array]) -> dict[str, float]:
    """Errors over all outputs taken as one."""
    if not values:
        return {}
    found = errors(*(np.concatenate([v.reshape(-1) for v in group]) for group in (values, reference)))
    return {name: found[name] for name in ("max_abs_error", "sqnr_db")}
