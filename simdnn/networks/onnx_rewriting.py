"""Words of the passes that rewrite ONNX models: names, fields, and what reads what."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from isa_models import InvalidArgument
from isa_models.errors import did_you_mean, shortly, some
from isa_models.readings.arrays import Array
from simdnn.networks.large_tensors import lying
from simdnn.networks.load import inlined, onnx_package
from simdnn.networks.tensors import array_of, packed
from simdnn.progress import each

if TYPE_CHECKING:
    import onnx

PRODUCTS = ("Conv", "MatMul", "Gemm")  # what is quantized, and what recipes name


def expanded(model: onnx.ModelProto) -> onnx.ModelProto:
    """A copy of a model, its functions expanded in place; nodes without a name get that which a loaded model has."""
    package = onnx_package()
    made: onnx.ModelProto = package.ModelProto()
    made.CopyFrom(inlined(model) if model.functions else model)
    for position, node in enumerate(made.graph.node):
        node.name = node_name(node, position)  # before nodes come and go, so that a node is known by it in every mode
    return made


def inline_data(graph: onnx.GraphProto, folder: Path | None) -> None:
    """External tensors into the model, so that it can be saved elsewhere, but for those on an open shelf."""
    for tensor in graph.initializer:
        if tensor.data_location == 1 and lying(tensor) is None:
            tensor.raw_data = packed(array_of(tensor, folder))
            tensor.ClearField("external_data")
            tensor.data_location = 0  # DEFAULT, as onnx.proto numbers it


def names_read(graph: onnx.GraphProto) -> set[str]:
    """Names that a graph's nodes, its outputs and the bodies inside of it read."""
    found = {value.name for value in graph.output}
    for node in graph.node:
        found.update(node.input)
        for body in bodies(node):
            found |= names_read(body)
    return found


def bodies(node: onnx.NodeProto) -> list[onnx.GraphProto]:
    """The bodies of a control-flow node."""
    return [attribute.g for attribute in node.attribute if attribute.HasField("g")]


def node_name(node: onnx.NodeProto, position: int) -> str:
    """A node's name; by its operator and position where it has none."""
    return node.name or f"{node.op_type}_{position}"


def names_of(graph: onnx.GraphProto) -> list[str]:
    """The names of a graph's nodes."""
    return [node_name(node, position) for position, node in enumerate(graph.node)]


def asked(patterns: Iterable[str]) -> Callable[[str], bool]:
    """Tells whether a name fits one of the patterns of a shell; many are one expression, asked once a name.

    >>> wanted = asked(["conv*", "fc1"])
    >>> wanted("conv2"), wanted("fc1"), wanted("fc10"), asked([])("fc1")
    (True, True, False, False)
    """
    match = re.compile("|".join(map(fnmatch.translate, patterns)) or "(?!)").match
    return lambda name: match(name) is not None


def patterns_of(only: object, names: Sequence[str]) -> tuple[str, ...]:
    """`only`, patterns of nodes' names, checked: one at least fits; `names` are those that the nodes have.

    >>> patterns_of(["conv*"], ["conv1", "fc"])
    ('conv*',)
    """
    if not isinstance(only, (list, tuple)) or not all(isinstance(one, str) for one in only):
        raise InvalidArgument(f"only={shortly(only)}; a list of patterns of nodes' names is needed, as ['conv*']")
    if only and not any(map(asked(only), names)):
        said = " ".join(filter(None, ("no node has such a name;", did_you_mean(only[0], names))))
        raise InvalidArgument(f"only={shortly(only)}: {said} Nodes: {some(names)}")
    return tuple(only)


def samples(calibration: object) -> Iterator[Mapping[str, Array]]:
    """The feeds that a network is calibrated on, one after another; `InvalidArgument` for what is none."""
    several = isinstance(calibration, Iterable) and not isinstance(calibration, (str, bytes, Mapping, np.ndarray))
    for feeds in each(calibration, lambda feeds: "calibration") if several else [calibration]:  # type: ignore[arg-type]
        if not several or not isinstance(feeds, Mapping):
            kind = type(feeds).__name__
            raise InvalidArgument(f"calibration of {kind}; a list of feeds, dicts of arrays by input name, is needed")
        yield feeds


def fresh(name: str, taken: set[str]) -> str:
    """A name like this one that nothing has; taken from now on."""
    while name in taken:
        name += "_"
    taken.add(name)
    return name


def refill(field: Any, values: Iterable[Any]) -> None:
    """Put values in place of those that a repeated field holds; they may be some of them."""
    kept = list(values)
    del field[:]
    field.extend(kept)
