"""The kernels of a GPU as operators call them: those of `simdnn.networks.kernels`, made for its vector pipe."""

from __future__ import annotations

import functools
from collections.abc import Callable
from math import prod
from typing import TYPE_CHECKING, Any

from isa_models import GpuMachine
from isa_models.machines.provenance import Confidence
from isa_models.readings.arrays import Array
from simdnn.kernels.gpu import elementwise as gpu_elementwise
from simdnn.kernels.gpu import move as gpu_move
from simdnn.kernels.gpu import reduce as gpu_reduce
from simdnn.kernels.gpu.grid import Spread
from simdnn.kernels.x86 import copy, elementwise, pool, reduce
from simdnn.networks.kernels import Call, Kernels, Run
from simdnn.primitives.checks import one_of
from simdnn.primitives.gpu import Given
from simdnn.primitives.run import ENGINES, Target

if TYPE_CHECKING:
    from simdnn.timing.estimate import Cost

#: a CPU's generator -> a GPU's for the same problems
_BUILT: dict[Any, Callable[[Any, GpuMachine], Spread]] = {
    elementwise.elementwise: gpu_elementwise.elementwise,
    reduce.reduction: gpu_reduce.reduction,
    pool.pooling: gpu_reduce.pooling,
    copy.copying: gpu_move.copying,
}


def target_of(machine: GpuMachine, isa: object, threads: object, engine: object, dispatch: object) -> Target:
    """Where a network is to run, checked; what means something on CPUs alone is refused."""
    Given(isa, threads, dispatch).check(machine)
    caps = frozenset({machine.platform.name})
    return Target(machine, caps, 1, one_of("engine", engine, ENGINES), "fastest")  # type: ignore[arg-type]  # a GPU


class GpuKernels(Kernels):
    """Kernels on a GPU, one launch each."""

    @property
    def gpu(self) -> GpuMachine:
        assert isinstance(self.target.machine, GpuMachine)
        return self.target.machine

    def called(self, name: str, build: Any, problem: Any, confidence: Confidence = "measured") -> Run:
        """Note a call of a kernel and return what runs it, by the GPU's generator in place of `build`."""
        made = _BUILT[build]
        kernel = made(problem, self.gpu)
        name = name if ":" in name else f"{name}:{self.gpu.platform.name}"
        self.calls.append(Call(name, functools.partial(program_cost, made, problem, self.gpu), confidence=confidence))

        def run(inputs: dict[str, Array], work: int) -> Array:
            return kernel.finish(self._run(kernel.program, kernel.prepare(inputs), work))

        return run

    def _batch(self, a: Array, b: Array, bias: Array | None, shape: tuple[int, ...], options: dict[str, Any]) -> Array:
        """All products in one kernel."""
        return self._product(a, b, bias, 1, self._engine(prod(shape) * a.shape[-1]), options)

    def _where(self) -> dict[str, Any]:
        return {"machine": self.target.machine}


@functools.lru_cache(maxsize=4096)
def program_cost(made: Any, problem: Any, machine: GpuMachine) -> Cost:
    """The clock's answer for a program."""
    from simdnn.timing.gpu.estimate import estimate_gpu

    return estimate_gpu(made(problem, machine).program, machine)
