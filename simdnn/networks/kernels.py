"""The kernels of one machine as operators call them: each call computes values and notes what it costs.

An operator is written once, over the calls of `Kernels`, which are made in the machine's vocabulary, CPU or GPU. With
`values=False` the same code gives the cost alone: what kernels would compute is then a shadow, zeros of the right shape
and type that take no memory.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from isa_models import GpuMachine, InvalidArgument, Unimplemented, UnknownTiming
from isa_models.formats import fmt
from isa_models.machines.provenance import Confidence
from isa_models.readings.arrays import Array, memory_bytes
from simdnn.kernels.common.copy import CopyProblem, copying
from simdnn.kernels.common.elementwise import MapProblem, collapse, elementwise
from simdnn.kernels.common.expression import Element, trace
from simdnn.kernels.common.pool import PoolProblem, pool_inputs, pool_output, pooling
from simdnn.kernels.common.reduce import ReduceProblem, merge, reduction
from simdnn.kernels.common.vocabulary import Vocabulary
from simdnn.kernels.common.windows import ImageWindows
from simdnn.kernels.x86.code import unit_of
from simdnn.kernels.x86.vocabulary import X86Vocabulary
from simdnn.networks.calls import Build, Call, behind, kernel_cost, quantization, words_for
from simdnn.networks.model import Graph
from simdnn.networks.narrow_weights import NarrowForm, Scales
from simdnn.networks.plain_weights import layout_of
from simdnn.networks.types import F32, bits, is_float, label
from simdnn.primitives import Attr
from simdnn.primitives.convolution import ConvolutionCall, convolution_on
from simdnn.primitives.estimate import estimate_on
from simdnn.primitives.matmul import matmul_on
from simdnn.primitives.result import Estimate, Result
from simdnn.primitives.run import Target
from simdnn.primitives.stored_blocks import ggml_blocks

if TYPE_CHECKING:
    from simdnn.timing.estimate import Cost

SMALL = 1 << 14  # elements, and multiply-accumulates, up to which reading a program is quicker than compiling it
READINGS = 3  # of one small program, after which compiling it pays
FLOATS = ("f32", "f16", "bf16")  # types with kernels of their own
Formula = Callable[..., Element]
Run = Callable[[dict[str, Array], int], Any]
Values = Callable[[], Array]  # of an operator, worked out where somebody asks for them


@dataclass
class Kernels:
    """Kernels on `target` under `attr`; `calls` fills as operators run."""

    target: Target
    attr: Attr
    values: bool = True
    calls: list[Call] = field(default_factory=list)
    held: int = 0  # bytes of the values that other nodes have made and somebody still reads
    turns: int = 0  # of all loops together
    body: Callable[[Graph, Sequence[Any]], list[Any]] = lambda graph, inputs: []  # runs a control-flow body
    constant_weights: bool = True  # whether the second operand of the node that runs is a constant of the model
    constant_bias: bool = True  # and the third
    #: the arithmetic behind the node that runs, which a library may take into its product: none, "sum", or "other"
    followed: str = ""
    transposed: tuple[str, ...] = ()  # operands of a product, "src" and "wei", that lie the other way round in memory
    of_line: bool = False  # weights of one dimension were made a matrix of one column
    of_matrices: bool = False  # a library's products of a vector are to be formed as those of matrices

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
        """ImageWindows of a padded nchw `source`; `counts` (oh, ow) divide means; `values` as in `map`."""
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

    # -- products ------------------------------------------------------------------------------------------------
    def matmul(self, a: Array, b: Array, bias: Array | None = None, **options: Any) -> Array:
        """a (..., M, K) x b (..., K, N) as `simdnn.matmul`; what stands in front broadcasts."""
        batch = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
        m, n = a.shape[-2], b.shape[-1]
        if b.ndim == 2 and a.ndim > 2:
            return self.matmul(_flat(a), b, bias, **options).reshape(*batch, m, n)
        attr, dst, k = options.get("attr", self.attr), options.get("dst"), a.shape[-1]
        self._check_alone(b)
        tag = layout_of(self.packs(b), self.on_gpu)
        tag = "ba" if tag == "ab" and "wei" in self.transposed else tag
        target = self._for_product(a, b)
        if not self.values:
            types = f"{label(a.dtype)}:{label(b.dtype)}:{dst or _default_dst(a)}"
            sizes: dict[str, Any] = {"m": m, "n": n, "k": k, "src_batch": a.shape[:-2], "wei_batch": b.shape[:-2]}
            found = estimate_on(target, "matmul", types, bias is not None, attr, wei_tag=tag, **sizes)
            self._note_product(found, b)
            return shadow((*batch, m, n), _dst_type(dst or _default_dst(a)))
        engine = self._engine(prod(batch) * m * n * k, a.shape, a.dtype, b.shape, b.dtype)
        result = matmul_on(replace(target, engine=engine), a, b, bias, dst, attr, wei_tag=tag)
        self._note_product(result, b)
        return result.output

    def packs(self, b: Array) -> bool:
        """Whether weights are brought to the kernel's layout ahead of time: constants are, but in a library that runs
        models not those of three and more dimensions, nor of one.
        """
        return self.constant_weights and (b.ndim == 2 and not self.of_line or not self.runs_models)

    def of_vector(self, a: Array, b: Array) -> bool:
        """Whether a library that runs models takes its kernel of a vector, for weights that are no constants."""
        if not self.runs_models or self.packs(b) or self.of_matrices or not is_float(b.dtype):
            return False
        rows = prod(a.shape[:-1]) if b.ndim == 2 else a.shape[-2]
        return rows == 1 or b.shape[-1] == 1 and "wei" not in self.transposed

    def in_one_chain(self) -> Kernels:
        """The kernels that add up a product of floats in one chain, which a library has beside blocks of weights."""
        library = self.target.library
        row = library.row_for("chain", self.target.caps) if library else ""
        return replace(self, target=replace(self.target, dispatch=row or self.target.dispatch), followed="")

    def _for_product(self, a: Array, b: Array) -> Target:
        """Where a product runs: of a vector by a library's row for matrices, where that is asked for."""
        library, vector = self.target.library, replace(self, of_matrices=False).of_vector(a, b)
        if library is None or not vector:
            return self._plain
        row = library.row_for("matrices", self.target.caps) if self.of_matrices else ""
        return replace(self._plain, dispatch=row) if row else self._plain

    def quantized(self, rows: Array, form: NarrowForm, weights: Scales) -> tuple[Array, Scales]:
        """Rows (M, K) in a form of narrow floats, and the scales of their product by `weights`, which have those."""
        m, k = rows.shape
        self.calls.append(quantization(form, m, k, label(rows.dtype), self.target))
        if self.values:
            return form.read(rows, weights)
        return shadow((m, k), fmt(form.dtype).dtype), {**weights, "src": form.quant("src", k)}

    def blocks(self, a: Array, stored: Array, name: str) -> Array:
        """a (..., M, K) of f32 x weights (K, N) in blocks of ggml's type `name`, as `simdnn.ggml_blocks` takes them."""
        *batch, m, k = a.shape
        weights = ggml_blocks(stored, name)
        if not self.values:
            m, n = prod((*batch, m)), weights.output.shape[1]
            found = estimate_on(self.target, "matmul", f"f32:{name}:f32", m=m, n=n, k=k)
            self._note_product(found, stored)
            return shadow((*a.shape[:-1], n), F32)
        engine = self._engine(prod(batch) * m * weights.output.size)
        result = matmul_on(replace(self.target, engine=engine), a, weights)
        self._note_product(result, stored)
        return result.output

    def convolution(self, src: Array, weights: Array, bias: Array | None = None, **options: Any) -> Array:
        """`simdnn.convolution` of nchw sources with oihw weights, or of three spatial dimensions."""
        self._check_alone(weights)
        attr, dst, into = options.pop("attr", self.attr), options.pop("dst", None), options.pop("into", None)
        mb, ic, *deep, ih, iw = src.shape
        oc, _, *planes, kh, kw = weights.shape
        if into is None and self._by_vectors(src, weights, options):
            return self.convolved_as_products(ImageWindows.of(src.shape, weights.shape, **options), src, weights, bias)
        target = self._for_convolution(src)
        if not self.values:
            types = f"{label(src.dtype)}:{label(weights.dtype)}:{dst or _default_dst(src)}"
            sizes = {"mb": mb, "ic": ic, "ih": ih, "iw": iw, "oc": oc, "kh": kh, "kw": kw}
            sizes |= {"id": deep[0], "kd": planes[0]} if deep else {}
            found = estimate_on(target, "convolution", types, bias is not None, attr, **sizes, **options)
            self._note_product(found, weights)
            problem: Any = found.problem
            out = (*((problem.od,) if deep else ()), problem.oh, problem.ow)
            return shadow((mb, oc, *out), _dst_type(dst or _default_dst(src)))
        engine = self._engine(
            mb * oc * prod(deep) * ih * iw * weights[0].size, src.shape, src.dtype, weights.shape, weights.dtype
        )
        call = ConvolutionCall(src, weights, bias, dst, attr, into=into, **options)
        result = convolution_on(replace(target, engine=engine), call)
        self._note_product(result, weights)
        return result.output

    def _for_convolution(self, src: Array) -> Target:
        """Where a convolution runs: of floats by the row that a library takes for weights that are no constants."""
        library, varies = self.target.library, not (self.constant_weights and self.constant_bias)
        if library is None or not (self.runs_models and varies and is_float(src.dtype)):
            return self._plain
        return replace(self._plain, dispatch=library.row_for("varying", self.target.caps) or self.target.dispatch)

    def _by_vectors(self, src: Array, weights: Array, options: Mapping[str, Any]) -> bool:
        """Whether a library forms a convolution of floats as products of a vector, an image and a group each."""
        library = self.target.library
        if library is None or not self.runs_models or not is_float(src.dtype):
            return False
        window = ImageWindows.of(src.shape, weights.shape, **options)
        known = self.constant_weights and self.constant_bias
        return library.by_vectors(window, known, self.target.caps)

    def convolved_as_products(self, window: ImageWindows, src: Array, weights: Array, bias: Array | None) -> Array:
        """Each group's filters (filters, K) times its windows (K, pixels), K being channels and taps."""
        self._check_alone(weights)
        products = replace(self, constant_weights=False, transposed=(), followed="")
        if window.as_stored:  # windows of rows of the one channel, which are columns that lie in one line
            products = replace(products, transposed=("wei",), of_matrices=window.filters > 1)
        lines = self.moved(window.columns(src) if self.values else shadow(window.lines, src.dtype))
        filters = weights.reshape(window.groups, window.filters, -1)
        found = [
            [products.matmul(filters[group], lines[image, group], dst="f32") for group in range(window.groups)]
            for image in range(src.shape[0])
        ]
        result: Array = np.array(found).reshape(src.shape[0], weights.shape[0], *window.out)
        if not self.values:
            result = shadow(result.shape, result.dtype)
        return self.with_line(result, bias)

    def with_line(self, x: Array, bias: Array | None) -> Array:
        """x (N, C, …) plus a number a channel, where there is one."""
        if bias is None:
            return x
        return self.map(lambda v, b: v + b, x, bias.reshape(-1, *[1] * (x.ndim - 2)), name="add")

    def instead(self, error: Unimplemented | UnknownTiming) -> Kernels:
        """Kernels for a node that these refuse, or whose cost is unknown; there are none, so the refusal is raised."""
        raise error

    # -- bookkeeping ---------------------------------------------------------------------------------------------
    @property
    def on_gpu(self) -> bool:
        return isinstance(self.target.machine, GpuMachine)

    def _check_alone(self, weights: Array) -> None:
        """`Unimplemented` where a library that runs models may add or multiply within a product of f32."""
        library = self.target.library
        if library is None or not self.runs_models or weights.dtype != np.float32 or not self.followed:
            return
        k, n = weights.shape[-2:]
        image = weights.ndim > 3
        if image or self.followed != "sum" or k > library.part_of_k(n, k, self.packs(weights), False):
            raise Unimplemented(
                f"{library.title} may take arithmetic that follows into a product of floats, in an order not known "
                "here; what works: products that nothing is added to or multiplied by, and dispatch='fastest'"
            )

    @property
    def runs_models(self) -> bool:
        """Whether the bits are a library's that runs whole models."""
        return self.target.library is not None and self.target.library.runs_models

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

    def _note_product(self, product: Estimate, weights: Array) -> None:
        """Note a product with its weights, or a batch of them."""
        departed = (
            product.departed if isinstance(product, Result) and product.departed.can else None
        )  # else keep no operands
        self.calls.append(
            Call(
                product.implementation,
                product.find_cost,
                macs=product.problem.macs,
                departed=departed,
                compute_dtype=product.compute_dtype,
            )
        )

    @property
    def _plain(self) -> Target:
        """Where products run whose weights are no blocks: a library of blocks alone leaves those to "fastest"."""
        library = self.target.library
        return replace(self.target, dispatch="fastest") if library and library.blocks_alone else self.target

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


def shadow(shape: Sequence[int], dtype: np.dtype[Any]) -> Array:
    """Zeros that take no memory."""
    return np.broadcast_to(np.zeros((), dtype), tuple(shape))


def shaded(array: Array) -> Array:
    """A shadow in place of float values, where they are many; integers may be sizes that somebody reads."""
    is_shadow = not any(array.strides)
    return shadow(array.shape, array.dtype) if is_float(array.dtype) and array.size > 64 and not is_shadow else array


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


def _flat(a: Array) -> Array:
    """(M, K) of (..., M, K)."""
    return (
        shadow((prod(a.shape[:-1]), a.shape[-1]), a.dtype)
        if not a.flags.owndata and 0 in a.strides and a.size
        else a.reshape(-1, a.shape[-1])
    )


def _default_dst(a: Array) -> str:
    return "f32" if is_float(a.dtype) else "s32"


def _dst_type(name: str) -> np.dtype[Any]:
    from isa_models.formats import fmt

    return fmt(name).dtype
