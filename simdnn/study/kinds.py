"""Subjects of a study: the kinds, the parameters that a point of each has, and how a point is measured."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from isa_models import GpuMachine, InvalidArgument, Unimplemented
from isa_models.formats import fmt
from isa_models.isa import caps
from isa_models.machines.loader import AnyMachine
from isa_models.machines.toml_table import Table
from simdnn.exactness import measures
from simdnn.kernels.common.windows import window_count
from simdnn.libraries import LIBRARIES
from simdnn.networks.classifier import run_network
from simdnn.networks.precision import ANY_ISA, GPUS, MODES, Mode
from simdnn.networks.runner import totals
from simdnn.networks.tables import run_layer, run_layers
from simdnn.primitives.accumulation import check_acc_mode
from simdnn.primitives.attr import STRATEGIES
from simdnn.primitives.checks import one_of
from simdnn.primitives.mathmode import FPMATH_MODES
from workloads import NETWORKS, ConvLayer, MatmulLayer, load
from workloads.data import SRC_TYPES

Parameters = Mapping[str, Any]
Row = dict[str, Any]
Check = Callable[[Table, str, object], object]  # the value, or an error that says what is allowed

_GROUP = 128  # k that share a scale where nothing else is said


@dataclass(frozen=True)
class Kind:
    """One kind of study. `measure` takes a point's machine and parameters and gives the `columns`."""

    title: str
    needed: tuple[str, ...]
    parameters: Mapping[str, Check]
    measure: Callable[[AnyMachine, Parameters, bool], Row]
    columns: tuple[str, ...]
    values: bool = True  # whether numbers can be computed, and compared with f32's


# -- what a parameter may be -------------------------------------------------------------------------------------------


def _integer(least: int, most: int) -> Check:
    return lambda table, key, value: table.integer_of(key, value, least, most)


def _name(*known: str) -> Check:
    return lambda table, key, value: one_of(f"{table.reader.path}: key {table.path(key)!r}:", value, known)


def text(table: Table, key: str, value: object) -> str:
    """A text that is not empty."""
    if not isinstance(value, str) or not value.strip():
        raise table.error(key, "a non-empty string", value)
    return value


def _truth(table: Table, key: str, value: object) -> object:
    if not isinstance(value, bool):
        raise table.error(key, "true or false", value)
    return value


def _acc_mode(table: Table, key: str, value: object) -> object:
    try:
        return check_acc_mode(value)
    except InvalidArgument as error:
        raise InvalidArgument(f"{table.reader.path}: key {table.path(key)!r}: {error}") from None


# -- how a point is measured -------------------------------------------------------------------------------------------


def _matmul(machine: AnyMachine, given: Parameters, values: bool) -> Row:
    layer = MatmulLayer("matmul", given["m"], given["n"], given["k"], given.get("batch", 1))
    if layer.k % (group := given.get("group", 1)):
        raise InvalidArgument(f"group={group} does not divide k={layer.k}")
    return _one_layer(layer, machine, given, values)


def _convolution(machine: AnyMachine, given: Parameters, values: bool) -> Row:
    stride, pad = given.get("strides", 1), given.get("padding", 0)
    sizes = {name: given[name] for name in ("ic", "ih", "iw", "oc", "kh", "kw")}
    oh, ow = (window_count(sizes[i], sizes[k], stride, padding=2 * pad) for i, k in (("ih", "kh"), ("iw", "kw")))
    if oh < 1 or ow < 1:
        raise InvalidArgument(
            f"kernel {sizes['kh']}x{sizes['kw']} is larger than the source {sizes['ih']}x"
            f"{sizes['iw']} with padding={pad}"
        )
    groups = given.get("groups", 1)
    layer = ConvLayer("convolution", **sizes, oh=oh, ow=ow, stride=stride, pad=pad, groups=groups)
    return _one_layer(layer, machine, given, values)


def _one_layer(layer: MatmulLayer | ConvLayer, machine: AnyMachine, given: Parameters, values: bool) -> Row:
    return _record(run_layer(layer, machine, _mode(given), values=values, **_where(given)))


def _workload(machine: AnyMachine, given: Parameters, values: bool) -> Row:
    name, mode, where = given["workload"], _mode(given), _where(given)
    scoped = {key: given[key] for key in ("layers", "fpmath_layers") if key in given}
    if values and name in NETWORKS:
        if scoped.pop("layers", "*") != "*" or mode.name not in MODES:
            raise Unimplemented(
                f"{name} is classified as a whole, in a mode that has a name: leave layers and types out, or values"
            )
        frame = run_network(
            NETWORKS[name](),
            machine,
            [mode.name],
            **scoped,
            **{key: value for key, value in where.items() if key != "seed"},
        )
    else:
        frame = run_layers(load(name), machine, [mode], values=values, **scoped, **where)
    return _record(totals(frame).iloc[0].to_dict())


def _loop(machine: AnyMachine, given: Parameters, values: bool) -> Row:
    from simdnn.assembly.analysis import analyze  # brings a decoder, which other kinds of study have no use for

    if isinstance(machine, GpuMachine):
        raise Unimplemented(f"a loop on {machine.name!r}, which is a GPU; loops are of CPUs")
    which = {key: given[key] for key in ("function", "loop", "syntax") if key in given}
    found = analyze(Path(given["file"]), machine, **which)
    return {
        "cycles": found.cycles_per_iteration,
        "ipc": found.ipc,
        "bound": found.bound,
        "confidence": found.confidence,
    }


def _where(given: Parameters) -> dict[str, Any]:
    return {key: given[key] for key in ("isa", "threads", "dispatch", "seed") if key in given}


def _mode(given: Parameters) -> Mode:
    """The named mode (f32) with what else is said of types and arithmetic."""
    mode = MODES[given.get("mode", "f32")]
    own = {
        key: given[key] for key in ("src", "weights", "fpmath", "acc_mode", "exact_int8", "zero_points") if key in given
    }
    if not own and "group" not in given:
        return mode
    src, weights = own.get("src", mode.src), own.get("weights", mode.weights)
    if "group" in given and fmt(weights).is_float:
        raise InvalidArgument(
            f"group={given['group']} with weights={weights}: parameters by group are of integer weights"
        )
    if own.get("fpmath", "strict") != "strict" and not fmt(src).is_float:
        raise InvalidArgument(f"fpmath={own['fpmath']} with src={src}: math modes are of floating-point sources")
    if own.get("zero_points", "auto") != "auto" and (fmt(src).is_float or fmt(weights).signed):
        raise InvalidArgument(
            f"zero_points={own['zero_points']} with src={src} and weights={weights}: strategies are of u8 and u4 "
            "weights under integer sources"
        )
    if fmt(weights).is_float:
        own["weight_group"] = 0
    else:
        usual = _GROUP if fmt(src).is_float or not fmt(weights).signed else 0
        own["weight_group"] = given.get("group", mode.weight_group or usual)
    kernels: dict[str, Any] = {} if own.keys() <= {"exact_int8", "weight_group"} else {"isas": ANY_ISA, "gpus": GPUS}
    return replace(mode, name=f"{src}:{weights}", **kernels, **own)


def _record(row: Mapping[Any, Any]) -> Row:
    """A row of a frame in Python's own types, without what a point's parameters say already."""
    said = ("layer", "count", "mode", "speed_up")
    return {
        str(key): value.item() if isinstance(value, np.generic) else value
        for key, value in row.items()
        if key not in said
    }


_SIZE = _integer(1, 1 << 32)
_PRECISION: Mapping[str, Check] = {
    "mode": _name(*MODES),
    "src": _name(*SRC_TYPES),
    "weights": _name("f32", "bf16", "f16", "s8", "u8", "s4", "u4"),
    "zero_points": _name(*STRATEGIES),
    "fpmath": _name(*FPMATH_MODES),
    "acc_mode": _acc_mode,
    "exact_int8": _truth,
    "isa": _name(*caps()),
    "threads": _integer(1, 1024),
    "dispatch": _name("fastest", *LIBRARIES),
    "seed": _integer(0, 2**32 - 1),
}
_CONV = ("ic", "ih", "iw", "oc", "kh", "kw")

KINDS: Mapping[str, Kind] = {
    "matmul": Kind(
        "a product (m, k) x (k, n)",
        ("m", "n", "k"),
        {**dict.fromkeys(("m", "n", "k", "batch"), _SIZE), "group": _SIZE, **_PRECISION},
        _matmul,
        measures.COST_COLUMNS,
    ),
    "convolution": Kind(
        "a convolution of one image",
        _CONV,
        {**dict.fromkeys((*_CONV, "strides", "groups"), _SIZE), "padding": _integer(0, 1 << 32), **_PRECISION},
        _convolution,
        measures.COST_COLUMNS,
    ),
    "workload": Kind(
        "all layers of a network or a table",
        ("workload",),
        {"workload": text, "layers": text, "fpmath_layers": text, "group": _SIZE, **_PRECISION},
        _workload,
        measures.COST_COLUMNS,
    ),
    "loop": Kind(
        "a loop in assembly or machine code, its data in the first cache",
        ("file",),
        {"file": text, "function": text, "loop": _integer(1, 1 << 20), "syntax": _name("intel", "att")},
        _loop,
        ("cycles", "ipc", "bound", "confidence"),
        values=False,
    ),
}
#: parameters that name a file, where they end so
FILES = {"machine": ".toml", "workload": ".csv", "file": ""}
