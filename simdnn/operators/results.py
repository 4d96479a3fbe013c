"""Results of primitives beside products, and how they are run."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from os import PathLike
from typing import Any

from isa_models import GpuMachine, Machine, SimdnnError
from isa_models.readings.arrays import Array
from simdnn.networks.network import Network
from simdnn.networks.result import NetworkEstimate, NetworkResult
from simdnn.operators.fusing import fused
from simdnn.operators.graph_builder import Ending
from simdnn.operators.recorded_passes import RecordingKernels
from simdnn.operators.table import gathered, graph_of
from simdnn.primitives import Attr
from simdnn.primitives.run import Target

_NODE = re.compile(r"^node '[^']*' \([^)]*\): ")  # how a run of a network begins its errors
Where = str | PathLike[str] | Machine | GpuMachine


@dataclass(frozen=True, eq=False, repr=False)
class OperatorEstimate(NetworkEstimate):
    """The cost of a primitive of a few passes; `to_frame` has a row a pass."""

    @property
    def implementation(self) -> str:
        """The kernels that run, in the order of their first call."""
        return " + ".join(dict.fromkeys(call.implementation for run in self.nodes for call in run.calls))


@dataclass(frozen=True, eq=False, repr=False)
class OperatorResult(OperatorEstimate, NetworkResult):
    """A primitive's `output`, with what it costs."""

    @property
    def output(self) -> Array:
        return self.outputs["dst"]


@contextmanager
def errors_of(primitive: str) -> Iterator[None]:
    """Errors within name the primitive, in place of the node of its own graph that met them."""
    try:
        yield
    except SimdnnError as error:
        raise type(error)(_NODE.sub(f"{primitive}: ", str(error), count=1)) from None


def computed(
    primitive: str,
    sources: Mapping[str, Any],
    options: Mapping[str, Any],
    end: Ending,
    where: tuple[Where, str | None, int, str, str],
) -> OperatorResult:
    """Values and cost of a primitive; `where`: its machine, isa, threads, engine and dispatch."""
    (_, isa, *_), target = where, Target.of(*where)
    made = graph_of(primitive, gathered(primitive, sources), options, end, target)
    kernels = RecordingKernels(replace(target, dispatch="fastest"), Attr(), lanes=made.lanes)
    with errors_of(primitive):
        found = Network(made.graph).run_by(kernels, made.feeds)
    nodes = fused(found.nodes, kernels, primitive, made.around(target.threads), made.streamed)
    return OperatorResult(found.machine, isa, found.threads, nodes, found.outputs)
