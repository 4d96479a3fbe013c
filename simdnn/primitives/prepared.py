"""Primitives made ready ahead of their numbers, and kept: the next call of the kind runs at once.

A call's kind is all that its decisions go by: shapes, types, what the attribute says, where it runs, modes in force.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, fields, replace
from types import ModuleType
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from isa_models import Unimplemented
from isa_models.forks import ForkLock
from isa_models.readings.arrays import Array, copied_to_a_line
from isa_models.readings.turned import copied_in_order
from simdnn.kernels.common.kept import Known, kept, known_of, made_of
from simdnn.kernels.common.spec import Apart, ConvProblem, Epilogue, Kernel, Parameters, Problem
from simdnn.kernels.table import count
from simdnn.primitives import arrays
from simdnn.primitives.attr import Attr
from simdnn.primitives.costs import built
from simdnn.primitives.descriptors import plain_weights
from simdnn.primitives.dispatch import Choice
from simdnn.primitives.mathmode import COLD_WEIGHTS, EXACT_INT8, FPMATH
from simdnn.primitives.reorder import Reordered, panels_of
from simdnn.primitives.resolve import Resolved, bias_values
from simdnn.primitives.result import Result
from simdnn.primitives.run import Target, priced, told, values, whole
from simdnn.primitives.verbose_line import note
from simdnn.primitives.written import written

if TYPE_CHECKING:
    from simdnn.explanations.departures import Departures
    from simdnn.explanations.element import Explainer
    from simdnn.explanations.steps import Explanation
    from simdnn.numerics.bound import Inputs

_MOST = 256  # kinds of calls that are known
_LOCK = ForkLock()
_known: dict[Hashable, Prepared] = {}


@dataclass(frozen=True, eq=False)
class Prepared:
    """A primitive that is ready to run, its kernel chosen; `given` is the attribute that its problem was made of."""

    choice: Choice
    target: Target
    given: Resolved
    parameters: Parameters  # all but a bias
    src: tuple[int, ...]  # the shapes of operands as the kernel takes them
    weights: tuple[int, ...]
    shape: tuple[int, ...] = ()  # the output's of a matmul, or of a convolution of one spatial dimension

    def __post_init__(self) -> None:
        library = self.target.library
        if library and (why := library.order_unknown(self.choice.request.problem, self.choice.kind.name)):
            raise Unimplemented(why)

    def __getstate__(self) -> dict[str, Any]:
        """The fields alone, without what was found from them since."""
        return {field.name: getattr(self, field.name) for field in fields(self)}

    @functools.cached_property
    def problem(self) -> Problem:
        """The problem, and what the kernel's kind decided of it."""
        return self.choice.problem

    @functools.cached_property
    def kernel(self) -> Kernel:
        """The kernel, which takes a whole batch."""
        return whole(self.choice.kernel, self.problem, self.shape)

    @functools.cached_property
    def _estimate(self) -> dict[str, Any]:
        """The fields of a result that an estimate has, too."""
        own = {"find_kernel": functools.partial(_kept, self.choice), "find_type": functools.partial(_type, self.choice)}
        return vars(priced(self.choice, self.target)) | own

    def run(self, src: Array, weights: Array, bias: Array | None = None) -> Result:
        """The result on checked arrays. It keeps copies: the user's may change before somebody asks about it."""
        told(self.choice, self.target)
        parameters = self.parameters
        in_sums = self.problem.epilogue.bias_in_sums
        if bias is not None:
            parameters = replace(parameters, bias=bias_values(bias.copy(), self.given.shape, in_sums))
        own = self._copied(_shaped(src, self.src)), kept(_shaped(weights, self.weights))
        ran = Operands(self, *own, parameters)
        left = ran.outputs()
        scales = self.kernel.scales(left) if self.kernel.scales else None
        if scales is not None and self.shape:
            scales = scales.reshape(*self.shape[:-1], -1)
        output = self.kernel.finish(left)
        result = Result(**self._estimate, output=output, _operands=ran, dst_scales=scales)
        note(result, lambda: written(self.given, self.problem))
        return result

    def _copied(self, src: Array) -> Array:
        """A copy of the source: of a convolution's with channels last, as kernels of CPUs read it."""
        if not isinstance(self.problem, ConvProblem):
            return copied_to_a_line(src)
        image = range(2, src.ndim)
        return copied_in_order(src.transpose(0, *image, 1)).transpose(0, -1, *(axis - 1 for axis in image))

    def rebuilt(self, epilogue: Epilogue) -> Kernel:
        """The kernel with another epilogue."""
        problem = replace(self.problem, epilogue=epilogue)
        return whole(built(self.choice.kind, problem, self.choice.request.machine), problem, self.shape)


@dataclass(frozen=True, eq=False)
class Operands:
    """Arrays that a prepared primitive runs on, which nobody changes any more."""

    ready: Prepared
    src: Array
    weights: Array
    parameters: Parameters

    def outputs(self) -> Mapping[str, Array]:
        """All that the program leaves."""
        ready, target = self.ready, self.ready.target
        prepare, program = ready.kernel.prepare, ready.kernel.program
        if not isinstance(prepare, Apart) or self._once:
            inputs = prepare(self.src, self.weights, self.parameters)
        else:
            source, beside = prepare.source(self.src), self._beside(prepare)
            at_once = target.threads == 1 and target.engine != "reference" and known_of(self.weights)
            if at_once and (left := beside.to(program).run(source)) is not None:
                return left
            inputs = {**source, **beside}
        with np.errstate(all="ignore"):  # NaN, Inf and overflow are values like others here
            outputs: Mapping[str, Array] = engines().run(program, inputs, engine=target.engine, threads=target.threads)
            return outputs

    @property
    def _once(self) -> bool:
        """Whether parameters hold numbers of this call alone."""
        return self.parameters.previous is not None or self.parameters.reductions is not None

    def _beside(self, prepare: Apart) -> Inputs:
        """The program's inputs that no source is in: kept with the weights."""
        what = self.ready, None if self.parameters.bias is None else self.parameters.bias.tobytes()
        known = known_of(self.weights) or Known(self.weights)

        found: Any = made_of(
            self.weights, what, lambda: engines().Inputs(prepare.beside(self._packed(known), self.parameters))
        )
        return cast("Inputs", found)

    def _packed(self, known: Known) -> Array:
        """The weights, whose panels are known where a program makes them."""
        problem, blocked = self.ready.problem, self.ready.kernel.blocked
        if blocked and blocked not in known.made and self.ready.target.engine != "reference":
            tag = plain_weights(problem).tag
            if panels := panels_of(self.weights, blocked, tag, problem.wei):
                known.add(blocked, panels)
        return self.weights

    def departures(self, shape: tuple[int, ...]) -> Departures:
        """How the run departed from exact integers; `shape` is the output's."""
        ready, target = self.ready, self.ready.target
        again = functools.partial(values, engine=target.engine, threads=target.threads)
        operands = self.src, self.weights, self.parameters
        return _departures()(ready.kernel, ready.problem, *operands, shape, ready.rebuilt, again)

    def explain(self, *index: int) -> Explanation:
        """How an element of the output came about."""
        return self._explainer(*index)

    @functools.cached_property
    def _explainer(self) -> Explainer:
        from simdnn.explanations.element import Explainer

        return Explainer(self.ready.kernel, self.src, self.weights, self.parameters, self.ready.target.machine)


@functools.cache
def engines() -> ModuleType:
    """The engines, which bring LLVM: a cost alone doesn't need it."""
    from simdnn import numerics

    return numerics


@functools.cache
def _departures() -> type[Departures]:
    from simdnn.explanations.departures import Departures

    return Departures


def _shaped(array: Array, shape: tuple[int, ...]) -> Array:
    """An array of this machine's byte order and a shape, not copied where it is so."""
    array = array if array.dtype.isnative else arrays.native(array)
    return array if array.shape == shape else array.reshape(shape)


def _kept(choice: Choice) -> Kernel:
    """The kernel that ran."""
    return choice.kernel


def _type(choice: Choice) -> str:
    return choice.kernel.compute_dtype


def kind_of_call(
    target: Target, src: object, weights: object, bias: object, into: object, attr: object, *others: object
) -> Hashable:
    """All that a call's decisions go by, `others` being its further arguments; None where they go by numbers, too."""
    stored = (weights.described, weights.machine) if isinstance(weights, Reordered) else _plain(weights)
    beside = () if bias is None else _plain(bias)
    if into is not None or stored is None or beside is None or (source := _plain(src)) is None:
        return None
    if attr is not None and (not isinstance(attr, Attr) or attr.precomputed_reductions):
        return None
    modes = FPMATH.state(), EXACT_INT8.state(), COLD_WEIGHTS.state(), count()
    return target, source, stored, beside, attr and attr.content, modes, tuple(map(_exact, others))


def _plain(array: object) -> Hashable:
    """Shape and type of an ordinary array; None for anything else."""
    if not isinstance(array, np.ndarray) or isinstance(array, np.ma.MaskedArray):
        return None
    return array.shape, array.dtype


def _exact(value: object) -> Hashable:
    """A value that no equal one of another type stands for."""
    if isinstance(value, (tuple, list)):
        return tuple(map(_exact, value))
    return type(value), value


def prepared(kind: Hashable, make: Callable[[], Prepared]) -> Prepared:
    """The prepared primitive for a kind of call, kept since `make` made it; made anew where there is no kind."""
    try:
        if found := _known.get(kind):
            return found
    except TypeError:  # an argument that cannot be a key, which `make` refuses
        kind = None
    found = make()
    if kind is not None:
        with _LOCK:
            _known[kind] = found
            if len(_known) > _MOST:
                del _known[next(iter(_known))]
    return found
