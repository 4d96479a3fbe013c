"""Primitives made ready ahead of their numbers, and kept: the next call of the kind runs at once.

A call's kind is all that its decisions go by: shapes, types, what the attribute says, where it runs, modes in force.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Hashable, Iterator, Mapping
from dataclasses import dataclass, fields, replace
from logging import INFO
from types import ModuleType
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from isa_models import Unimplemented
from isa_models.host.environment import variables
from isa_models.host.forks import ForkLock
from isa_models.host.memory import address, empty
from isa_models.plugins import Registry
from isa_models.readings.arrays import Array, copied_to_a_line, is_masked
from isa_models.readings.transposed_copy import copied_in_order
from isa_models.records.alike import alike
from simdnn import verbose
from simdnn.kernels.common.epilogue import Epilogue, Parameters
from simdnn.kernels.common.kernel import Apart, Kernel
from simdnn.kernels.common.pack import Blocked
from simdnn.kernels.common.problems import ConvProblem, Problem
from simdnn.kernels.common.weight_cache import (
    BesidePanels,
    InPanels,
    KnownWeights,
    Made,
    borrowed,
    keep,
    kept,
    recalled,
)
from simdnn.libraries import VARIABLES
from simdnn.primitives import arrays, mathmode, on_image
from simdnn.primitives.attr import Attr
from simdnn.primitives.attribute_text import written
from simdnn.primitives.costs import Outlives, built
from simdnn.primitives.descriptors import plain_weights
from simdnn.primitives.dispatch import Choice
from simdnn.primitives.reorder import Packer, Reordered, packer
from simdnn.primitives.resolve import Resolved, bias_values
from simdnn.primitives.result import Result
from simdnn.primitives.run import LOG, Target, priced, told, values, whole
from simdnn.primitives.turned_calls import TIMES, channels_first, channels_last, only_turns, turns_of
from simdnn.primitives.verbose_line import note

if TYPE_CHECKING:
    from simdnn.explanations.departures import Departures  # needed where somebody asks for departures
    from simdnn.explanations.element import Explainer
    from simdnn.explanations.steps import Explanation
    from simdnn.numerics.bound import Inputs
    from simdnn.numerics.calls import Call

READ = (*mathmode.VARIABLES, *verbose.VARIABLES, *VARIABLES)  # variables of the environment that calls go by
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
    def verbose(self) -> bool:
        """Whether the environment asks for a line of each call."""
        return verbose.wanted()

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
        own = {"find_kernel": functools.partial(_kept, self.choice), "find_told": functools.partial(_told, self.choice)}
        return vars(priced(self.choice, self.target)) | own

    @functools.cached_property
    def apart(self) -> Apart | None:
        """The way of arrays to the program, where what is not of the source is kept with the weights: not where
        parameters hold numbers of one call alone.
        """
        prepare, given = self.kernel.prepare, self.parameters
        of_no_call = given.previous is None and given.reductions is None
        return prepare if isinstance(prepare, Apart) and of_no_call else None

    @functools.cached_property
    def at_once(self) -> bool:
        """Whether runs with weights that stay are calls of machine code that is bound to them."""
        return self.apart is not None and self.target.threads == 1 and self.target.engine != "reference"

    @functools.cached_property
    def _panels(self) -> Blocked | None:
        """The layout of the kernel's weights where that holds them as the user stores them."""
        blocked = self.kernel.blocked
        return blocked if blocked and blocked.dtype == self.problem.wei and not blocked.rounds else None

    def run(self, src: Array, weights: Array | KnownWeights, bias: Array | None = None) -> Result:
        """The result on checked arrays. It keeps copies: the user's may change before somebody asks about it."""
        if LOG.isEnabledFor(INFO):
            told(self.choice, self.target)
        parameters, kernel = self.parameters, self.kernel
        if bias is not None:
            in_sums = self.problem.epilogue.bias_in_sums
            parameters = replace(parameters, bias=bias_values(bias.copy(), self.given.shape, in_sums))
        known = weights if isinstance(weights, KnownWeights) else kept(_shaped(weights, self.weights))
        if known.values.shape != self.weights:
            known = kept(known.values.reshape(self.weights))
        copied = self._copied(_shaped(src, self.src))
        left = self._outputs(copied, known, parameters)
        operands = Operands(self, copied, known.own(self._panels), parameters)
        output = kernel.finish(left)
        if self._is_odd(known.values):
            target = self.target
            again = functools.partial(values, kernel, copied, parameters=parameters, engine=target.engine)
            output = on_image.outputs(cast("ConvProblem", self.problem), self._leaves_out, output, known.values, again)
        scales = kernel.scales(left) if kernel.scales else None
        if scales is not None and self.shape:
            scales = scales.reshape(*self.shape[:-1], -1)
        result = Result.of(self._estimate, output, operands, scales)
        if self.verbose:
            note(result, written(self.given, self.problem))
        return result

    @functools.cached_property
    def _leaves_out(self) -> str:
        """Which taps beside the image a library's kernel leaves out."""
        library = self.target.library
        return library.leaves_out(self.problem, self.choice.library) if library else ""

    def _is_odd(self, weights: Array) -> bool:
        """Whether weights that are infinite or NaN tell taps that are left out from zeros."""
        return bool(self._leaves_out) and not np.isfinite(weights).all()

    def takes(self, weights: Array | Reordered) -> bool:
        """Whether `again` takes weights like these, as they are."""
        if isinstance(weights, Reordered):
            return weights._known.values.shape == self.weights
        return weights.shape == self.weights and weights.dtype.isnative

    def again(self, src: Array, weights: Array | KnownWeights) -> Result:
        """`run` without a bias on arrays of this machine's byte order: one call of machine code where that is ready for
        the weights, and one that packs them where no product met them before.
        """
        known = weights if isinstance(weights, KnownWeights) else recalled(weights)
        inputs: Any = self._latest.get(None) if known is None else known.made.get((self, None))
        call = None if inputs is None else inputs.call
        if known is None and self._is_odd(cast("Array", weights)):
            call = None
        if call and src.flags.c_contiguous and not LOG.isEnabledFor(INFO):
            own = self._in_panels(weights) if known is None else known  # type: ignore[arg-type]  # an array is not known
            if own is not None and (made := call(src, *own.tensors.values())) is not None:
                copied, output = made
                return Result.of(self._estimate, output, Operands(self, copied, own, self.parameters))
            call = inputs.call = None
        known = borrowed(weights) if known is None else known  # type: ignore[arg-type]
        result = self.run(src, known)
        if call is None:
            self._have_call(known, result)
        return result

    def _in_panels(self, weights: Array) -> InPanels | BesidePanels | None:
        """Weights packed by a program, where there is one."""
        blocked, panels = self._panels, self._packer and self._packer(weights)
        if not panels:
            return None
        return InPanels(panels, blocked, self.weights) if blocked else BesidePanels(panels, copied_to_a_line(weights))

    def _have_call(self, known: KnownWeights, result: Result) -> None:
        """Make ready what runs the program at once, where it reads and leaves the very arrays of a result."""
        inputs: Any = known.made.get((self, None)) if known.stays else self._latest.get(None)
        if inputs is None or inputs.bound is None or self.apart is None:
            return
        inputs.call = False
        if self._is_odd(known.values):
            return
        if self.verbose or self.kernel.scales or not (known.stays or self._packer):
            return
        names = () if known.stays or self.kernel.blocked is None else tuple(self.kernel.blocked.sizes)
        src, output = result._operands.src, result.output
        left = {room.name: empty(room.size, room.dtype) for room in inputs.bound.rooms if room.comes_back}
        both = [*self.apart.source(src).values(), *left.values()]
        if [*map(_place, both)] == [_place(src), _place(self.kernel.finish(left))]:
            inputs.call = engines().call_of(inputs.bound, src, output, *names)
        elif isinstance(self.problem, ConvProblem) and len(both) == 2:
            if self._only_turns and (turns := turns_of(src, both[0], output)):
                call = engines().call_of(inputs.bound, channels_last(src), output, *names, turns=turns)
                inputs.call = call and functools.partial(_viewed, call)
            else:
                call = engines().call_of(inputs.bound, *both, *names, copies=False)
                inputs.call = call and functools.partial(self._turned, iter(range(TIMES)), call, *left)

    @functools.cached_property
    def _only_turns(self) -> bool:
        return only_turns(self.kernel)

    def _turned(
        self, left: Iterator[int], call: Call, output: str, src: Array, *weights: Array
    ) -> tuple[Array, Array] | None:
        """A call on a copy of an image whose channels are last, as those of the output are, which is turned back; None
        after some, when machine code may turn axes.
        """
        assert self.apart is not None
        if next(left, None) is None:
            return None
        copied = self._copied(src)
        (image,) = self.apart.source(copied).values()
        made = call(image, *weights)
        return None if made is None else (copied, self.kernel.finish({output: made[1]}))

    def _outputs(self, src: Array, known: KnownWeights, parameters: Parameters) -> Mapping[str, Array]:
        """All that the program leaves."""
        target, apart, kernel = self.target, self.apart, self.kernel
        program = kernel.program
        if apart is None:
            inputs = kernel.prepare(src, known.values, parameters)
        else:
            source, stays = apart.source(src), known.stays
            panels = None if stays else self._packed(known)
            if panels and apart.panels_alone:
                source, beside, stays = {**source, **panels}, self._given(apart, known, parameters), True
            else:
                beside = self._beside(apart, known, parameters)
            if stays and self.at_once and (left := beside.to(program).run(source)) is not None:
                return left
            inputs = {**source, **beside}
        with np.errstate(all="ignore"):  # NaN, Inf and overflow are values like others here
            outputs: Mapping[str, Array] = engines().run(program, inputs, engine=target.engine, threads=target.threads)
            return outputs

    def _beside(self, apart: Apart, known: KnownWeights, parameters: Parameters) -> Inputs:
        """The program's inputs that no source is in: kept with the weights."""
        what = self, None if parameters.bias is None else parameters.bias.tobytes()
        if (inputs := known.made.get(what)) is None:
            if known.stays:
                self._packed(known)
            inputs = engines().Inputs(apart.beside(known.values, parameters))
            keep(known, what, inputs)
        return cast("Inputs", inputs)

    def _given(self, apart: Apart, known: KnownWeights, parameters: Parameters) -> Inputs:
        """The program's inputs that neither source nor weights are in: kept until a call has another bias."""
        assert self.kernel.blocked is not None
        bias = None if parameters.bias is None else parameters.bias.tobytes()
        if (inputs := self._latest.get(bias)) is None:
            made = apart.beside(known.values, parameters)
            inputs = engines().Inputs({name: made[name] for name in made.keys() - self.kernel.blocked.sizes.keys()})
            self._latest.clear()
            self._latest[bias] = inputs
        return inputs

    @functools.cached_property
    def _latest(self) -> dict[bytes | None, Inputs]:
        """Inputs of the latest call, by its bias."""
        return {}

    @functools.cached_property
    def _packer(self) -> Packer | None:
        """The way of weights into the kernel's own layout; None where it has none."""
        problem, blocked = self.problem, self.kernel.blocked
        if blocked is None or self.target.engine == "reference":
            return None
        return packer(blocked, plain_weights(problem).tag, problem.wei)

    def _packed(self, known: KnownWeights) -> Made | None:
        """The weights' panels, where a program makes them."""
        if self._packer is None:
            return None
        blocked = self.kernel.blocked
        if (panels := known.made.get(blocked)) is None and (panels := self._packer(known.values)):
            known.add(blocked, panels)
        return panels

    def _copied(self, src: Array) -> Array:
        """A copy of the source: of a convolution's with channels last, as kernels of CPUs read it."""
        if not isinstance(self.problem, ConvProblem):
            return copied_to_a_line(src)
        return channels_first(copied_in_order(channels_last(src)))

    def rebuilt(self, epilogue: Epilogue) -> Kernel:
        """The kernel with another epilogue."""
        problem = replace(self.problem, epilogue=epilogue)
        return whole(built(self.choice.kind, problem, self.choice.request.machine), problem, self.shape)


@dataclass(eq=False)
class Operands:
    """Arrays that a prepared primitive runs on, which nobody changes any more."""

    ready: Prepared
    src: Array
    known: KnownWeights | InPanels | BesidePanels
    parameters: Parameters

    def __eq__(self, other: object) -> bool:
        """Whether they are the same arrays for the same primitive, in whatever layout the weights are kept."""
        return isinstance(other, Operands) and alike(self._parts(), other._parts())

    def _parts(self) -> tuple[object, ...]:
        return self.ready, self.src, self.weights, self.parameters

    @property
    def weights(self) -> Array:
        """Weights in C order, in the type that the user stores."""
        return self.known.values

    def departures(self, shape: tuple[int, ...]) -> Departures:
        """How the run departed from exact integers; `shape` is the output's."""
        ready, target = self.ready, self.ready.target
        again = functools.partial(values, engine=target.engine, threads=target.threads)
        operands = self.src, self.weights, self.parameters
        return _departures()(ready.kernel, ready.problem, *operands, shape, ready.rebuilt, again)

    def explain(self, *index: int) -> Explanation:
        """How an element of the output came about."""
        ready = self.ready
        if not ready._leaves_out:
            return self._explainer(*index)
        weights = on_image.seen(cast("ConvProblem", ready.problem), ready._leaves_out, self.weights, index)
        return replace(self._explainer, weights=weights, on_image=ready._leaves_out == "all")(*index)

    @functools.cached_property
    def _explainer(self) -> Explainer:
        from simdnn.explanations.element import Explainer  # brings LLVM

        return Explainer(self.ready.kernel, self.src, self.weights, self.parameters, self.ready.target.machine)


def _viewed(call: Call, src: Array, *weights: Array) -> tuple[Array, Array] | None:
    """A call that copies an image with its channels last, and leaves the output as the user has it."""
    made = call(src, *weights)
    return None if made is None else (channels_first(made[0]), made[1])


@functools.cache
def engines() -> ModuleType:
    """The engines, which bring LLVM: a cost alone doesn't need it."""
    from simdnn import numerics

    return numerics


@functools.cache
def _departures() -> type[Departures]:
    from simdnn.explanations.departures import Departures  # needed where somebody asks for departures

    return Departures


def _shaped(array: Array, shape: tuple[int, ...]) -> Array:
    """An array of this machine's byte order and a shape, not copied where it is so."""
    array = array if array.dtype.isnative else arrays.native(array)
    return array if array.shape == shape else array.reshape(shape)


def _place(array: Array) -> tuple[int, int, bool]:
    """Where the elements of an array lie, and whether in C order."""
    return address(array), array.nbytes, array.flags.c_contiguous


def _kept(choice: Choice) -> Kernel:
    """The kernel that ran."""
    return choice.kernel


def _told(choice: Choice) -> Outlives:
    return Outlives.of(choice.kernel)


def prepared_of(result: Result) -> Prepared:
    """The primitive that a result came of."""
    return result._operands.ready


def circumstances() -> tuple[Hashable, ...]:
    """All that calls go by beside their arguments: modes in force, the environment, what has been registered."""
    return mathmode.in_force(), variables(READ), Registry.changes


def kind_of_call(
    target: Target, src: object, weights: object, bias: object, into: object, attr: object, *others: object
) -> Hashable:
    """All that a call's decisions go by, `others` being its further arguments; None where they go by numbers, too."""
    kind = [target, *circumstances(), *others]
    for array in (src, weights) if bias is None else (src, weights, bias):
        if isinstance(array, np.ndarray) and not is_masked(array):
            kind += array.shape, array.dtype
        elif type(array) is Reordered and array is weights:
            kind += array.described, array.machine
        else:
            return None
    if into is not None or attr is not None and (not isinstance(attr, Attr) or attr.precomputed_reductions):
        return None
    return tuple(kind) if attr is None else (*kind, attr.content)


def exact(value: object) -> Hashable:
    """A value that no equal one of another type stands for."""
    if isinstance(value, (tuple, list)):
        return tuple(map(exact, value))
    return type(value), value


def prepared(kind: Hashable, make: Callable[[], Prepared]) -> Prepared:
    """The prepared primitive for a kind of call, kept since `make` made it; made anew where there is no kind."""
    try:
        if ready := _known.get(kind):
            return ready
    except TypeError:  # an argument that cannot be a key, which `make` refuses
        kind = None
    ready = make()
    if kind is not None:
        with _LOCK:
            _known[kind] = ready
            if len(_known) > _MOST:
                del _known[next(iter(_known))]
    return ready
