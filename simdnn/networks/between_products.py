"""Kernels between products as operators call them: element by element, along dimensions, moves.

Each call computes values and notes what it costs; the programs are made in the machine's vocabulary, CPU or GPU.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from isa_models import GpuMachine, InvalidArgument, UnknownTiming
from isa_models.machines.provenance import Confidence
from isa_models.readings.arrays import Array, memory_bytes
from simdnn.kernels.common.copy import CopyProblem, copying
from simdnn.kernels.common.elementwise import MapProblem, collapse, elementwise
from simdnn.kernels.common.expression import Element, trace
from simdnn.kernels.common.pool import PoolProblem, pool_inputs, pool_output, pooling
from simdnn.kernels.common.reduce import ReduceProblem, merge, reduction
from simdnn.kernels.common.vocabulary import Vocabulary
from simdnn.kernels.x86.code import unit_of
from simdnn.kernels.x86.vocabulary import X86Vocabulary
from simdnn.networks.calls import Build, Call, behind, kernel_cost, words_for
from simdnn.networks.model import Graph
from simdnn.networks.shadows import shaded, shadow
from simdnn.networks.types import bits, label
from simdnn.primitives import Attr
from simdnn.primitives.run import Target

if TYPE_CHECKING:
    from simdnn.timing.estimate import Cost

SMALL = 1 << 14  # elements, and multiply-accumulates, up to which reading a program is quicker than compiling it
READINGS = 3  # of one small program, after which compiling it pays
FLOATS = ("f32", "f16", "bf16")  # types with kernels of their own
Formula = Callable[..., Element]
Run = Callable[[dict[str, Array], int], Any]
Values = Callable[[], Array]  # of an operator, worked out where somebody asks for them


@dataclass
class KernelsBetween:
    """Kernels on `target` under `attr` for all but products; `calls` fills as operators run."""

    target: Target
    attr: Attr
    values: bool = True
    calls: list[Call] = field(default_factory=list)
    held: int = 0  # bytes of the values that other nodes have made and somebody still reads
    turns: int = 0  # of all loops together
    body: Callable[[Graph, Sequence[Any]], list[Any]] = lambda graph, inputs: []  # runs a control-flow body

    # -- element by element --------------------------------------------------------------------------------------
    def map(
        self,
        formula: Formula,
        *operands: Array,
        dst: np.dtype[Any] | None = None,
        name: str = "map",
        values: Values | None = None,
    ) -> Array:
        """`formula` over operands that broadcast; floats of the kernels' types, or integers that it takes as s32.

        The result has `dst`'s type, or the first operand's. A library's own `values` stand in for those of the kernel,
        which then does not run: the cost alone is its.
        """
        dtype = operands[0].dtype if dst is None else dst
        shape = self.broadcast(*operands)
        self.allocate(shape, dtype, shadowed=not self.values)
        if prod(shape) == 0:
            return np.zeros(shape, dtype)
        dims, strides = collapse(shape, [strides_of(a.shape, shape) for a in operands])
        expression = trace(formula, [label(a.dtype) for a in operands])
        problem = MapProblem(expression, dims, tuple(strides), label(dtype))
        run = self.called(name, elementwise, problem)
        if not self.values:
            return shadow(shape, dtype)
        if values is not None:
            return values()
        found: Array = run({f"src{i}": a for i, a in enumerate(operands)}, problem.size)
        return found.reshape(shape)

    def plain(self, result: Array, *operands: Array, steps: int = 1) -> Array:
        """`result`, which NumPy computed from `operands`; its cost is estimated as `steps` multiply-adds an element.

        The estimate's program reads and writes the same bytes. Text has no cost that is known.
        """
        if result.size == 0:
            return result
        if any(a.dtype.kind == "O" for a in (result, *operands)):
            self.unknown("text has no kernel here; its cost is not known")
            return result
        size = max(1, max(a.nbytes for a in (result, *operands)) // 4)
        strides = tuple((1,) if 2 * a.size >= result.size else (0,) for a in operands[:3]) or ((0,),)
        problem = MapProblem(_work(len(strides), steps), (size,), strides, "f32")
        self.called("map", elementwise, problem, "estimated", implementation="estimate:map")
        return result

    def shadows(self, *operands: Array) -> bool:
        """Whether only the cost is asked for, and some operand is a shadow of many elements: it has no values."""
        return not self.values and any(a.size > 64 and not any(a.strides) for a in operands)

    # -- along dimensions ----------------------------------------------------------------------------------------
    def reduce(
        self,
        kind: str,
        x: Array,
        axes: Sequence[int],
        divisor: int = 1,
        dst: np.dtype[Any] | None = None,
        order: str = "turns",
        values: Values | None = None,
    ) -> Array:
        """`kind` in an `order` (see `simdnn.kernels.common.reduce`) over `axes`, which stay as dimensions of 1.

        Types: f32, f16, bf16. `values` as in `map`.
        """
        axes = [a % x.ndim for a in axes] if x.ndim else []
        shape = tuple(1 if i in axes else n for i, n in enumerate(x.shape))
        dtype = x.dtype if dst is None else dst
        dims, reduced = merge(x.shape, frozenset(axes))
        problem = ReduceProblem(kind, dims, reduced, label(x.dtype), label(dtype), divisor, order)
        run = self.called("reduce", reduction, problem)
        if not self.values:
            return shadow(shape, dtype)
        return (run({"src": x}, x.size) if values is None else values()).reshape(shape)

    def pool(
        self,
        problem: PoolProblem,
        padded: Array,
        counts: Array | None,
        values: Values | None = None,
        source: Array | None = None,
    ) -> Array:
        """Results of a pooling over the `padded` images, nchw; `counts` (oh, ow) divide means; `values` as in `map`."""
        run = self.called("pool", pooling, problem)
        shape = (problem.mb, problem.c, problem.oh, problem.ow)
        if not self.values:
            return shadow(shape, padded.dtype)
        if values is not None:
            return values().reshape(shape)
        size = prod(shape) * problem.kh * problem.kw
        return pool_output(problem, run(pool_inputs(problem, padded, counts), size))

    # -- moves ---------------------------------------------------------------------------------------------------
    def moved(self, result: Array, run: int | None = None, source: tuple[int, ...] | None = None) -> Array:
        """`result`, made by moving elements alone: in runs of `run` neighbours (None: all), or from a source with these
        strides, in elements.
        """
        if result.size == 0:
            return result
        if result.dtype.kind == "O":
            self.unknown("text has no kernel here; its cost is not known")
            return result
        if source is not None:
            dims, strides = collapse(result.shape, [tuple(abs(s) for s in source)])
            dims, stride = (dims, strides[0]) if strides[0][-1] == 1 else ((*dims, 1), (*strides[0], 1))
            dims, stride = (dims[:-1], stride[:-1]) if dims[-1] == 1 and len(dims) > 1 else (dims, stride)
        else:
            run = max(1, min(run or result.size, result.size))
            dims, stride = (max(1, result.size // run), run), (run, 1)
        size = min(8, result.dtype.itemsize)
        self.called("copy", copying, CopyProblem(dims, stride, size))
        return result if self.values else shaded(result)

    # -- bookkeeping ---------------------------------------------------------------------------------------------
    @property
    def on_gpu(self) -> bool:
        return isinstance(self.target.machine, GpuMachine)

    @functools.cached_property
    def words(self) -> Vocabulary:
        """The vocabulary of everything but products."""
        return words_for(self.target.machine, self.target.caps)

    def called(
        self,
        task: str,
        build: Build,
        problem: Any,
        confidence: Confidence = "measured",
        implementation: str = "",
        **product: Any,
    ) -> Run:
        """Note a call of the kernel that `build(problem, words)` makes; the answer runs it on inputs of some work.

        Of a `product`: its `macs`, its `compute_dtype`, and the library's strongest cap in place of `words`' own.
        """
        library, words = self.target.library, self.words
        if product and library is not None:
            words = X86Vocabulary(unit_of(library.tier_of(self.target.caps)))
        kernel = build(problem, words)
        implementation = implementation or f"{task}:{words.isa}"
        machine = behind(self.target.machine) if self.goes_on and not product else self.target.machine
        cost = functools.partial(kernel_cost, build, problem, words, machine, self.target.threads)
        self.calls.append(Call(implementation, cost, confidence=confidence, task="" if product else task, **product))
        return lambda inputs, work: kernel.finish(
            self._run(kernel.program, kernel.prepare(inputs), self._engine(work, problem))
        )

    @property
    def goes_on(self) -> bool:
        """Whether a pass of the same operator was called last."""
        return bool(self.calls) and not self.calls[-1].macs

    def unknown(self, why: str) -> None:
        """A call whose cost nobody knows: an error for who asks."""
        self.calls.append(Call("unknown", functools.partial(_fail, why)))

    def _engine(self, work: int, *what: Hashable) -> str:
        """The engine for some work: what is small and has not been asked for often is read."""
        if self.target.engine != "auto" or work > SMALL:
            return self.target.engine
        return "reference" if next(_asked(self.target.machine.name, *what)) < READINGS else "auto"

    def _run(self, program: Any, inputs: dict[str, Array], engine: str) -> dict[str, Array]:
        from simdnn import numerics  # brings LLVM, which a cost alone doesn't need

        with np.errstate(all="ignore"):
            return numerics.run(program, inputs, engine=engine, threads=self.target.threads)

    def broadcast(self, *operands: Array) -> tuple[int, ...]:
        """The common shape."""
        try:
            return np.broadcast_shapes(*(a.shape for a in operands))
        except ValueError:
            raise InvalidArgument(f"shapes {', '.join(str(a.shape) for a in operands)} do not broadcast") from None

    def allocate(self, shape: Sequence[int], dtype: np.dtype[Any], shadowed: bool = False) -> None:
        """`InvalidArgument` for an output that this host cannot hold beside what is held; shadows take no memory."""
        needed, limit = prod(shape) * bits(dtype) // 8, max(0, memory_bytes() // 2 - self.held)
        if any(n < 0 for n in shape) or len(shape) > 64:
            raise InvalidArgument(f"an output of shape {tuple(shape)!s:.80}")
        if needed > limit and not shadowed or needed > 1 << 44:
            raise InvalidArgument(
                f"an output of shape {tuple(shape)} takes {needed:.3g} bytes; {limit:.3g} are at hand"
            )


@functools.lru_cache(maxsize=4096)
def _asked(*what: Hashable) -> Iterator[int]:
    """Counts how often something has been asked for."""
    return itertools.count()


def _fail(why: str) -> Cost:
    raise UnknownTiming(why)


@functools.lru_cache(maxsize=64)
def _work(operands: int, steps: int) -> Any:
    """A formula of `steps` multiply-adds in a chain over `operands` values."""

    def formula(*values: Element) -> Element:
        total = functools.reduce(lambda a, b: a + b, values)
        for i in range(steps - len(values) + 1):
            total = total.fma(values[0], 1.0 + i % 4)
        return total

    return trace(formula, ["f32"] * operands)


def strides_of(shape: tuple[int, ...], into: tuple[int, ...]) -> tuple[int, ...]:
    """Element strides of a contiguous array of `shape` as it broadcasts `into` a shape."""
    own = [0 if n == 1 else prod(shape[i + 1 :]) for i, n in enumerate(shape)]
    return (0,) * (len(into) - len(shape)) + tuple(own)
