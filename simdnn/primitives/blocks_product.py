"""Products with weights in ggml's blocks: what `simdnn.matmul` and `simdnn.estimate` do with them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from isa_models import InvalidArgument, Unimplemented
from isa_models.block_formats import BLOCK_FORMATS, block_format
from isa_models.readings.arrays import Array
from simdnn.kernels.common.epilogue import Epilogue, Parameters
from simdnn.kernels.common.problems import MatmulProblem
from simdnn.primitives import arrays
from simdnn.primitives.checks import one_of
from simdnn.primitives.prepared import Prepared
from simdnn.primitives.problems import WEI_TAGS, tensors
from simdnn.primitives.products import Products
from simdnn.primitives.resolve import Resolved
from simdnn.primitives.result import Result
from simdnn.primitives.run import Target, choice_of

if TYPE_CHECKING:
    from simdnn.primitives.block_scales import Blocks

WORKS = "f32 sums of f32 sources, with nothing after them, work: add or scale the outputs afterwards"


def products_of_blocks(src: Array, weights: Blocks) -> Products:
    """The product of an array and blocks; `InvalidArgument` for blocks that do not lie along K."""
    if weights.stored is None:
        raise InvalidArgument(
            "weights are Blocks of quantize_mx or quantize_nvfp4; pass weights.output with attr=weights.attr('wei')"
        )
    if weights.output.ndim != 2 or weights.axis != 0:
        where = f"{weights.output.shape} in blocks along axis {weights.axis}"
        raise InvalidArgument(f"weights {where}; a matrix (K, N) with blocks along K is needed: axis=0")
    arrays.type_of("src", src)
    return Products.of(src.shape, weights.output.shape)


def multiply(
    src: Array, weights: Blocks, products: Products, given: Resolved, target: Target, dst: str | None, wei_tag: object
) -> Result:
    """src (…, M, K) of f32 times blocks of weights (K, N)."""
    problem = problem_of(products, given, weights.dtype, dst, wei_tag, target)
    arrays.check_memory(tensors(problem))
    rows = arrays.native(src).reshape(products.m, products.k)
    assert weights.stored is not None  # which `products_of_blocks` saw
    shapes = rows.shape, weights.stored.shape
    ready = Prepared(choice_of(problem, target, given), target, given, Parameters(), *shapes, products.shape)
    return ready.run(rows, weights.stored)


def problem_of(
    products: Products, given: Resolved, blocks: str, dst: str | None, wei_tag: object, target: Target
) -> MatmulProblem:
    """The problem; `Unimplemented` for an attribute, types or a machine that no kernel has beside blocks."""
    if target.gpu:
        raise Unimplemented(f"blocks of {blocks} on {target.machine.name!r}: no kernel here for GPUs; CPUs work")
    form = block_format(blocks)
    if products.k % form.elements:
        raise InvalidArgument(f"K={products.k} is no multiple of the {form.elements} elements of a block of {blocks}")
    if products.batch.count > 1:
        raise Unimplemented(f"a batch of products with blocks of {blocks}: one matrix of weights works")
    types = given.shape.src, dst or "f32"
    if types != ("f32", "f32") or given.scales or given.zero_points or given.post_ops:
        raise Unimplemented(f"{types[0]}:{blocks}:{types[1]} with such an attribute: {WORKS}")
    one_of("wei_tag", wei_tag, WEI_TAGS[:1])
    return MatmulProblem(products.m, products.n, products.k, "f32", form.codes, Epilogue("f32"), blocks=blocks)


def nothing_beside(blocks: str, *others: object) -> None:
    """`Unimplemented` where a bias or what a destination holds stands beside blocks."""
    if any(other is not None and other is not False for other in others):
        raise Unimplemented(f"a bias or a destination beside blocks of {blocks}: {WORKS}")


def is_blocks(dtype: str) -> bool:
    """Whether a type of weights is one of blocks."""
    return dtype in BLOCK_FORMATS
