"""The kernels of one machine as operators call them: each call computes values and notes what it costs.

An operator is written once, over the calls of `Kernels`, which are made in the machine's vocabulary, CPU or GPU. With
`values=False` the same code gives the cost alone: what kernels would compute is then a shadow, zeros of the right shape
and type that take no memory.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import prod
from typing import Any

import numpy as np

from isa_models import Unimplemented, UnknownTiming
from isa_models.formats import fmt
from isa_models.readings.arrays import Array
from simdnn.kernels.common.windows import ImageWindows
from simdnn.networks.between_products import KernelsBetween
from simdnn.networks.calls import Call, quantization
from simdnn.networks.narrow_weights import NarrowForm, Scales
from simdnn.networks.plain_weights import layout_of
from simdnn.networks.shadows import shadow
from simdnn.networks.types import F32, is_float, label
from simdnn.primitives.convolution import ConvolutionCall, convolution_on
from simdnn.primitives.estimate import estimate_on
from simdnn.primitives.matmul import matmul_on
from simdnn.primitives.result import Estimate, Result
from simdnn.primitives.run import Target
from simdnn.primitives.stored_blocks import ggml_blocks


@dataclass
class Kernels(KernelsBetween):
    """Kernels on `target` under `attr`, those of products too."""

    constant_weights: bool = True  # whether the second operand of the node that runs is a constant of the model
    constant_bias: bool = True  # and the third
    #: the arithmetic behind the node that runs, which a library may take into its product: none, "sum", or "other"
    followed: str = ""
    transposed: tuple[str, ...] = ()  # operands of a product, "src" and "wei", that lie the other way round in memory
    of_line: bool = False  # weights of one dimension were made a matrix of one column
    of_matrices: bool = False  # a library's products of a vector are to be formed as those of matrices

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
            return shadow((*batch, m, n), fmt(dst or _default_dst(a)).dtype)
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
            return shadow((mb, oc, *out), fmt(dst or _default_dst(src)).dtype)
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

    # -- a library, and the record of calls ----------------------------------------------------------------------
    @property
    def runs_models(self) -> bool:
        """Whether the bits are a library's that runs whole models."""
        return self.target.library is not None and self.target.library.runs_models

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
    def _plain(self) -> Target:
        """Where products run whose weights are no blocks: a library of blocks alone leaves those to "fastest"."""
        library = self.target.library
        return replace(self.target, dispatch="fastest") if library and library.blocks_alone else self.target

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


def _flat(a: Array) -> Array:
    """(M, K) of (..., M, K)."""
    if a.size and 0 in a.strides and not a.flags.owndata:  # a shadow: a reshape would copy it
        return shadow((prod(a.shape[:-1]), a.shape[-1]), a.dtype)
    return a.reshape(-1, a.shape[-1])


def _default_dst(a: Array) -> str:
    return "f32" if is_float(a.dtype) else "s32"
