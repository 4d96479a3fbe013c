"""Where a problem runs, which kernel that takes, and what it costs and yields there."""

from __future__ import annotations

import functools
import logging
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from isa_models import GpuMachine, InvalidArgument, Machine, Unimplemented
from isa_models.errors import counted, shortly
from isa_models.formats import fmt
from isa_models.isa import implied
from isa_models.machines.shipped import own_file
from isa_models.plugins import Registry
from isa_models.readings.arrays import Array
from simdnn.garbage import collected_later
from simdnn.kernels.common.batched import as_batched
from simdnn.kernels.common.epilogue import Parameters
from simdnn.kernels.common.kernel import Finish, Kernel
from simdnn.kernels.common.problems import MatmulProblem, Problem
from simdnn.kernels.table import rows_for
from simdnn.libraries import LIBRARIES, Library, is_reference
from simdnn.primitives import arrays, narrow_problems
from simdnn.primitives.accumulation import parted
from simdnn.primitives.attr import Attr
from simdnn.primitives.candidates import Request
from simdnn.primitives.checks import gpu_of, integer, one_of, target_of
from simdnn.primitives.costs import Outlives, estimate_on_gpu, just_built, no_floor
from simdnn.primitives.dispatch import Choice, check_dispatch, choose
from simdnn.primitives.mathmode import COLD_WEIGHTS, FPMATH_MODES
from simdnn.primitives.placed import Shape
from simdnn.primitives.reorder import Reordered, conversion
from simdnn.primitives.resolve import Resolved
from simdnn.primitives.result import Estimate

if TYPE_CHECKING:
    from simdnn.timing.estimate import Cost

LOG = logging.getLogger(__name__)
ENGINES = ("auto", "compiled", "reference")


@dataclass(frozen=True)
class Target:
    """Where and how a problem is to run: the keyword arguments that primitives share, checked."""

    machine: Machine | GpuMachine
    caps: frozenset[str]
    threads: int
    engine: str
    dispatch: str

    @property
    def library(self) -> Library | None:
        """The library whose bits are asked for, where `dispatch` names one."""
        return LIBRARIES.get(self.dispatch)

    def apart(self, src: str, wei: str) -> bool:
        """Whether a batch of single rows of these types, by one matrix of weights, is a product of a vector each."""
        return self.library is not None and self.library.vectors_apart and src == wei and fmt(src).is_float

    @staticmethod
    def of(machine: object, isa: object, threads: object, engine: object, dispatch: object) -> Target:
        """A target; without `isa` a library of `dispatch` keeps below the cap that its own variable of the environment
        says.

        Raises `UnknownName` or `InvalidArgument` for what doesn't exist or doesn't fit.
        """
        library = LIBRARIES.get(dispatch) if isa is None and isinstance(dispatch, str) else None
        if library is not None and (most := library.most_isa()):
            found = Target._of(machine, isa, threads, engine, dispatch)
            return replace(found, caps=found.caps & implied(most))
        try:
            if own_file(machine) or isinstance(machine, Machine | GpuMachine):  # others' files may change
                return _known(Registry.changes, machine, isa, threads, engine, dispatch)
        except TypeError:  # what cannot be a key is refused below
            pass
        return Target._of(machine, isa, threads, engine, dispatch)

    @staticmethod
    def _of(machine: object, isa: object, threads: object, engine: object, dispatch: object) -> Target:
        if (on := gpu_of(machine)) is not None:
            return Target._on_gpu(on, isa, threads, engine, dispatch)
        found, caps = target_of(machine, isa)
        count = integer("threads", threads)
        if count > found.cores:
            said = f"threads={count}; machine {found.name!r} has {counted(found.cores, 'core')}"
            raise InvalidArgument(f"{said}, and two threads of a core (SMT) are not modelled")
        return Target(found, caps, count, one_of("engine", engine, ENGINES), check_dispatch(dispatch))

    @staticmethod
    def _on_gpu(machine: GpuMachine, isa: object, threads: object, engine: object, dispatch: object) -> Target:
        """A target on a GPU; options that mean something on CPUs alone are refused."""
        name, platform = machine.name, machine.platform.name
        if isa is not None and not (isinstance(isa, str) and isa == platform):
            raise InvalidArgument(
                f"isa={shortly(isa)}; machine {name!r} is a GPU of platform {platform}: leave isa out"
            )
        if integer("threads", threads) != 1:
            raise InvalidArgument(f"threads={threads!r}; on {name!r} all cores work: leave it at 1")
        if isinstance(dispatch, str) and dispatch in LIBRARIES:
            raise Unimplemented(
                f"dispatch={dispatch!r} on {name!r}: what {LIBRARIES[dispatch].title} picks on GPUs is not modelled; "
                "what works: 'fastest', or a kernel's name as in r.dispatch"
            )
        rule = check_dispatch(dispatch, libraries=False)
        return Target(machine, frozenset({platform}), 1, one_of("engine", engine, ENGINES), rule)

    @property
    def gpu(self) -> GpuMachine | None:
        """The machine where it is a GPU."""
        return self.machine if isinstance(self.machine, GpuMachine) else None


@functools.lru_cache(maxsize=256, typed=True)
@collected_later()
def _known(changes: int, *asked: Any) -> Target:
    """A target on a machine that stays as it is while nothing is registered."""
    return Target._of(*asked)


def attr_of(attr: object) -> Attr:
    """The attribute given, or one that says nothing."""
    if attr is None:
        return Attr()
    if not isinstance(attr, Attr):
        mode = isinstance(attr, str) and attr in FPMATH_MODES
        hint = ": simdnn.Attr(**attr)" if isinstance(attr, dict) else f": simdnn.Attr(fpmath={attr!r})" if mode else ""
        raise InvalidArgument(f"attr={attr!r:.60}; a simdnn.Attr is needed{hint}")
    return attr


def resolved(shape: Shape, attr: object, target: Target, dst: object = None, blocks: bool = False) -> Resolved:
    """The attribute of a call on its problem's shape: from here on nobody asks the attribute again. `blocks`: weights
    are stored in blocks, whose own rows refuse types.

    Raises `Unimplemented` for types that nothing on the target multiplies, and what `Resolved.of` raises.
    """
    said = attr_of(attr)
    if blocks:
        return Resolved.of(said, shape)
    if "tf32" in (shape.src, shape.wei):
        raise Unimplemented(
            f"{shape.src} source with {shape.wei} weights: tf32 is how numbers of f32 are multiplied, none "
            "is stored in it; what works: f32:f32 with Attr(fpmath='tf32')"
        )
    if target.gpu:
        from simdnn.primitives import gpu_problems  # with kernels that CPUs do not need

        gpu_problems.check_types(target.gpu, shape, said.apply_to_int)
    elif shape.primitive == "matmul" and narrow_problems.of_narrow(shape.src, shape.wei, str(dst)):
        arrays.check_narrow_types(shape.src, shape.wei, said.apply_to_int)
    else:
        arrays.check_types(shape.primitive, shape.src, shape.wei, said.apply_to_int)
    given = Resolved.of(said, shape)
    if target.library:
        for kind, found in (("scales", given.scales), ("zero_points", given.zero_points)):
            for argument, one in found.items():
                target.library.check_parameter_type(shape.primitive, kind, argument, one.param.dtype)
    return given


class Modes(Protocol):
    """Modes in force: of math, of sums, and whether int8 must be exact."""

    @property
    def fpmath(self) -> str: ...
    @property
    def exact_int8(self) -> bool | None: ...
    @property
    def acc_mode(self) -> str: ...
    @property
    def forced(self) -> bool: ...


def chosen(problem: Problem, target: Target, given: Modes) -> Choice:
    """The kernel for a problem under the modes that it was made in; raises `Unimplemented` or `UnknownTiming`."""
    return told(choice_of(problem, target, given), target)


def choice_of(problem: Problem, target: Target, given: Modes) -> Choice:
    """The choice that `chosen` logs."""
    if target.library:
        target.library.check(problem)
    acc_mode, every = parted(given.acc_mode)
    request = Request(
        problem if problem.promote == every else replace(problem, promote=every),
        target.machine,
        target.caps,
        exact_int8=given.exact_int8,
        fpmath=given.fpmath,
        dispatch=target.dispatch,
        cold_weights=COLD_WEIGHTS.effective(None),
        threads=target.threads,
        kinds=rows_for(target.caps),
        acc_mode=acc_mode,
    )
    choice = choose(replace(request, estimator=estimate_on_gpu, floor=no_floor) if target.gpu else request)
    if target.library and given.forced and given.fpmath != "strict":
        target.library.check_forced(problem, choice.library)
    return choice


def told(choice: Choice, target: Target) -> Choice:
    """The choice, as the log tells it for each call."""
    problem = choice.request.problem
    LOG.debug("%s on %s, dispatch %s: %s", choice.kind.name, target.machine.name, target.dispatch, problem)
    if choice.library and is_reference(choice.library):
        LOG.info(
            "%s falls back to its reference implementation %s on %s: %s",
            target.dispatch,
            choice.library,
            target.machine.name,
            problem,
        )
    return choice


def priced(choice: Choice, target: Target) -> Estimate:
    """The cost alone."""
    return Estimate(
        choice.problem,
        target.machine,
        choice.kind.isa,
        choice.kind.name,
        functools.partial(just_built, choice.kind, choice.problem, target.machine),
        functools.partial(_told, choice),
        target.threads,
        choice.request.fpmath,
        functools.partial(_cost, choice, target.threads),
        choice.frame,
        functools.partial(conversion, choice),
        choice.library,
    )


def _told(choice: Choice) -> Outlives:
    return choice.told


def _cost(choice: Choice, threads: int) -> Cost:
    return choice.cost_on(threads)


def check_reordered(weights: Array | Reordered, choice: Choice, target: Target) -> None:
    """`InvalidArgument` where weights were brought to another layout, or for another machine, than the kernel wants."""
    if not isinstance(weights, Reordered):
        return
    wanted = priced(choice, target).weights_desc
    if (weights.desc, weights.machine) != (wanted, target.machine):
        raise InvalidArgument(
            f"weights were reordered to {weights.desc} for {weights.machine.name}; {choice.kind.name} on "
            f"{target.machine.name} wants {wanted}: reorder them to the weights_desc of this very problem"
        )


def values(kernel: Kernel, src: Array, weights: Array, parameters: Parameters, engine: str, threads: int = 1) -> Array:
    """The output that a kernel makes of checked arrays."""
    return kernel.finish(outputs(kernel, src, weights, parameters, engine, threads))


def outputs(
    kernel: Kernel, src: Array, weights: Array, parameters: Parameters, engine: str, threads: int = 1
) -> Mapping[str, Array]:
    """All that a kernel's program leaves."""
    from simdnn import numerics  # brings LLVM, which a cost alone doesn't need

    inputs = kernel.prepare(src, weights, parameters)
    with np.errstate(all="ignore"):  # NaN, Inf and overflow are values like others here
        return numerics.run(kernel.program, inputs, engine=engine, threads=threads)


def whole(kernel: Kernel, problem: Problem, shape: tuple[int, ...]) -> Kernel:
    """The kernel, fed with all products of a batch where `shape`, the output's, is that of several; or with an output
    of `shape`, one dimension of an image.
    """
    if not isinstance(problem, MatmulProblem) and shape:
        shaped = replace(kernel, finish=functools.partial(_reshaped, kernel.finish, shape))
        return shaped.with_others(functools.partial(whole, problem=problem, shape=shape))
    if not isinstance(problem, MatmulProblem) or len(shape) < 3:
        return kernel
    return as_batched(kernel, problem.batch, problem.epilogue.post_ops, shape)


def _reshaped(finish: Finish, shape: tuple[int, ...], left: Mapping[str, Array]) -> Array:
    return finish(left).reshape(shape)
