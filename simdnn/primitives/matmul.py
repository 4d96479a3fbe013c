"""simdnn.matmul: dst (M, N) = src (M, K) x weights (K, N), or a batch of such products."""

from __future__ import annotations

from dataclasses import replace
from os import PathLike
from typing import TYPE_CHECKING, Any

import numpy as np

from isa_models import GpuMachine, InvalidArgument, Machine, Unimplemented
from isa_models.block_formats import block_format
from isa_models.readings.arrays import Array
from simdnn.kernels.common.epilogue import Parameters
from simdnn.kernels.common.layouts import ANY_LAYOUTS, Layouts
from simdnn.kernels.common.postops import sums_differ
from simdnn.kernels.common.problems import MatmulProblem
from simdnn.libraries import Form
from simdnn.primitives import arrays, narrow_problems
from simdnn.primitives.attr import Attr
from simdnn.primitives.blocks_product import multiply, nothing_beside, products_of_blocks
from simdnn.primitives.checks import keywords
from simdnn.primitives.decompress import decompression
from simdnn.primitives.groups import group_scales, params_of, with_groups
from simdnn.primitives.one_factor import with_one_factor
from simdnn.primitives.postops import refuse_choices, with_operands
from simdnn.primitives.prepared import Prepared, kind_of_call, prepared
from simdnn.primitives.problems import matmul_problem, matrices_of, tensors
from simdnn.primitives.products import Products, products_of
from simdnn.primitives.reorder import Reordered, known_or_plain, plain_of
from simdnn.primitives.repeated_calls import at_once
from simdnn.primitives.resolve import DESTINATIONS, Resolved, moves_in_s8, need_values, resolve
from simdnn.primitives.result import Result
from simdnn.primitives.run import Target, check_reordered, choice_of, resolved
from simdnn.primitives.zero_points import check_reductions, on_cpu, with_tables

if TYPE_CHECKING:
    from simdnn.primitives.block_scales import Blocks


@at_once
@keywords
def matmul(
    src: Array,
    weights: Array | Reordered | Blocks,
    bias: Array | None = None,
    *,
    machine: str | PathLike[str] | Machine | GpuMachine,
    isa: str | None = None,
    dst: str | None = None,
    attr: Attr | None = None,
    threads: int = 1,
    engine: str = "auto",
    dispatch: str = "fastest",
    wei_tag: str = "any",
    into: Array | None = None,
) -> Result:
    """Multiply `src` (M, K) by `weights` (K, N) as a kernel on `machine` does: its bits and its cost.

    Types: f32 x f32, bf16 x bf16, f16 x f16, on CPUs any of them x bf16 or f16, both widened to f32; u8 or s8 x s8, u8,
    s4 or u4 (ml_dtypes int4, uint4), in integers: the last three become s8 ahead of time, u8 less 128; and f32, bf16 or
    f16 x s8, u8, s4 or u4 with `Attr(apply_to_int=True)`: weights are then decompressed, (w - zero point) * scale, and
    products formed in floating point. Their scales and zero points are common, (N,), or (K/G, N). So are weights of
    floats of at most a byte, also of a registered format on CPUs: `codes.view(formats.fmt(name).element)`. `bias` is
    f32 (N,).
    `dst`: s32 (default for integers without scales), f32 (else), bf16, f16, s8, u8. `wei_tag` is the weights' layout in
    memory: "any" (the kernel's own, made ahead of time: see `simdnn.reorder`, whose outcome may stand for the weights),
    "ab" (rows of N), "ba" (K contiguous).

    Weights may be blocks of ggml's, `simdnn.quantize_ggml(…, axis=0)` or `simdnn.ggml_blocks`: an f32 source is then
    quantized by blocks as ggml does it, and the sums are its bits, whichever kernel runs.

    `dispatch`: "fastest" (least estimated time among the kernels that may run), "onednn" (what oneDNN 3.13 picks on
    CPUs), "ggml" (its dot products of blocks), "ggml-repack" (as llama.cpp has them), "onnxruntime" (what its CPU
    provider does with integers and f32), "fbgemm" (PyTorch's dynamically quantized Linear), or a kernel's name, such as
    "gemm:avx512_core_tf32" with `Attr(fpmath="tf32")`: that one, or `Unimplemented` with the reason. `r.dispatch` lists
    names and reasons, on GPUs as on CPUs. f16 data is multiplied and added up in f32; a math mode "f16" or "any" also
    allows f16 arithmetic (AVX512_FP16), whose sums of 128 products are kept in f16 (docs/numerics.md).

    On a GPU ("a770", …): s8, u8, s4, u4 in any pair, bf16 x bf16, f16 x f16, and f32 x f32 on its vector pipes (or
    rounded to what the math mode allows and the matrix unit takes); without DPAS bf16 and f16 are widened to f32. How
    DPAS rounds floats is not published: `Attr(float_model=…)` names the candidate. Integers take scales and zero points
    by column, by token and by group along K, in any nest (`Attr(zero_point_strategy=…)`, docs/numerics_gpus.md). On
    NVIDIA's f32 on CUDA cores; on tensor cores with f32 sums (`isa_models.nvidia.fused_sum`) f16 ("v100" and later),
    bf16 and f32 as tf32 ("a100", "rtx4090", "h100"), f8 in any pair ("rtx4090", "l40s", "h100"), and s8, u8 with s32
    sums, both with common scales and one a column. All of them decompress weights as CPUs do, integers and floats of at
    most a byte.

    Every machine takes batches, (…, M, K) x (…, K, N), whose dimensions in front broadcast: one kernel does them all.
    Parameters are shared by all products; "add" and `into` have the output's shape. Products with one matrix of
    weights, (…, M, K) x (K, N), are rows of a single one, so that M counts the rows of them all.

    `into`: what the destination holds before, for the post-operation "sum"; of the output's shape and type.

    Raises `InvalidArgument`, `Unimplemented`, `UnknownName` or `UnknownTiming`, each naming what works.

    >>> import numpy as np, simdnn
    >>> src, weights = np.full((2, 64), 255, np.uint8), np.full((64, 16), 127, np.int8)
    >>> without, vnni = (simdnn.matmul(src, weights, machine=machine) for machine in ("skx", "clx"))
    >>> int(without.output[0, 0]), int(vnni.output[0, 0])  # 32 pairs at 32767 each, and the sum
    (1048544, 2072640)
    >>> int(without.saturation[0, 0]), vnni.implementation
    (32, 'gemm:avx512_core_vnni')
    """
    return matmul_on(Target.of(machine, isa, threads, engine, dispatch), src, weights, bias, dst, attr, wei_tag, into)


def matmul_on(
    target: Target,
    src: Array,
    weights: Array | Reordered | Blocks,
    bias: Array | None = None,
    dst: str | None = None,
    attr: Attr | None = None,
    wei_tag: str = "any",
    into: Array | None = None,
    runtime_dims: str = "",
    src_tag: str = "any",
    dst_tag: str = "any",
) -> Result:
    """`matmul` for who has checked once where its products run; the last three arguments are `simdnn.estimate`'s."""
    if not isinstance(weights, np.ndarray | Reordered):
        from simdnn.primitives.block_scales import Blocks  # which few programs have

        if isinstance(weights, Blocks):
            products = products_of_blocks(src, weights)
            nothing_beside(weights.dtype, bias, into)
            codes = block_format(weights.dtype).codes
            given = resolved(products.of_types(arrays.type_of("src", src), codes), attr, target, dst, blocks=True)
            return multiply(src, weights, products, given, target, dst, wei_tag)
    kind = kind_of_call(target, src, weights, bias, into, attr, dst, wei_tag, runtime_dims, src_tag, dst_tag)
    tags = src_tag, wei_tag, dst_tag
    ready = prepared(kind, lambda: _prepared(target, src, weights, bias, dst, attr, tags, into, runtime_dims))
    return ready.run(src, known_or_plain(weights), bias)


def _prepared(
    target: Target,
    src: Array,
    weights: Array | Reordered,
    bias: Array | None,
    dst: str | None,
    attr: Attr | None,
    tags: tuple[str, str, str],
    into: Array | None,
    runtime_dims: str,
) -> Prepared:
    """The primitive made ready for any numbers, or the refusal; `tags` of source, weights and destination."""
    wei_tag, layouts = matrices_of(*tags)
    values, wei = plain_of(weights)
    types = arrays.type_of("src", src), wei
    products = products_of(src, values, target.apart(*types), runtime_dims, layouts)
    bias = arrays.bias_of(bias)
    given = resolved(products.of_types(*types), _of_all_rows(attr, src.shape[-2], products.m), target, dst)
    need_values(given)
    problem, parameters = problem_of(products, given, dst, bias, wei_tag, target)
    check_reductions(given, src)
    arrays.check_memory(tensors(problem))
    parameters = with_operands(parameters, given.post_ops, problem, into, products.shape)
    choice = choice_of(problem, target, given)
    check_reordered(weights, choice, target)
    rows, columns = src.shape, values.shape
    if products.batch.count == 1:
        rows, columns = (products.m, products.k), (products.k, products.n)
    return Prepared(choice, target, given, parameters, rows, columns, products.shape)


def _of_all_rows(said: Attr | None, rows: int, every: int) -> Attr | None:
    """An attribute whose scales and zero points by row of a source are those of `every` row: products with one matrix
    of weights are rows of a single one, and share what was given for `rows` of them.
    """
    if rows == every or not isinstance(said, Attr):
        return said
    changes: dict[str, Any] = {}
    for kind in ("scales", "zero_points"):
        quant = getattr(said, kind).get("src")
        if quant is not None and isinstance(quant.values, np.ndarray) and quant.values.ndim == 2:
            values = quant.values
            if len(values) == rows and (quant.groups or values.size > 1):
                more = replace(quant, values=np.tile(values, (every // rows, 1)))
                changes[kind] = {**getattr(said, kind), "src": more}
    return replace(said, **changes) if changes else said


def problem_of(
    products: Products, given: Resolved, dst: str | None, bias: Array | bool | None, wei_tag: object, target: Target
) -> tuple[MatmulProblem, Parameters]:
    """The problem that a kernel of the target's machine is asked, and its numbers; refusals name what works."""
    if given.reductions and products.batch.count > 1:
        raise Unimplemented("precomputed_reductions of a batch: what works: a product with one matrix of weights")
    if target.gpu:
        from simdnn.primitives import gpu_problems  # with kernels that CPUs do not need

        return gpu_problems.matmul_problem(target.gpu, products, given.folded, dst, bias, wei_tag)
    _refuse_layouts(products.layouts, target, narrow_problems.takes_part(given, dst))
    if narrow_problems.takes_part(given, dst):
        problem, parameters = narrow_problems.problem_of(given, dst, bias, wei_tag, target.library, target.caps)
    else:
        problem, parameters = _on_cpu(products, given.folded, dst, bias, wei_tag, target)
    if problem.batch != products.batch:
        problem = replace(problem, batch=products.batch)
    if target.library:
        refuse_choices(given.post_ops, target.dispatch)
        target.library.check_dimensions(problem)
    return problem, parameters


def _refuse_layouts(layouts: Layouts, target: Target, of_narrow: bool) -> None:
    """Raises for layouts that only some library reads or writes, and none beside narrow floats."""
    if target.library and target.library.matrices and not of_narrow:
        return
    for name, layout in zip(("src_tag", "wei_tag", "dst_tag"), layouts, strict=True):
        copied = target.library and (name == "src_tag" or layout == "apart")  # into rows, ahead of a library's kernels
        if layout != "any" and not copied:
            raise Unimplemented(
                f"{name}={layout!r}: what works: 'any' and 'ab', and {layout!r} with dispatch='onednn', but beside "
                "floats of 8 bits and fewer"
            )


def _on_cpu(
    products: Products, given: Resolved, dst: str | None, bias: Array | bool | None, wei_tag: object, target: Target
) -> tuple[MatmulProblem, Parameters]:
    """A matmul on a CPU, and its numbers."""
    library, shape, params = target.library, given.shape, params_of(given)
    if wei_tag == "ba" and shape.k == 1 < shape.n and shape.wei in ("s4", "u4"):
        wei_tag = "ab"  # the same places in memory, where columns of one nibble share bytes
    given = given.without_single_groups
    zeros = on_cpu(given, library, wei_tag)
    stored = DESTINATIONS if shape.integer else (*DESTINATIONS, *narrow_problems.NARROWED)
    epilogue, parameters = resolve(given.without_zero_points() if zeros else given, dst, bias, stored)
    problem = replace(matmul_problem(shape, epilogue, wei_tag, products.layouts), dims=products.dims if library else 2)
    if products.runtime and not library:
        raise InvalidArgument(f"runtime_dims={products.runtime!r}: kernels here know all sizes; a library is asked so")
    behind = epilogue.post_ops
    scaled = any(scale.dtype != "f32" for scale in params.scales.values())
    if library and (products.runtime or scaled or any(op.second for op in behind) or sums_differ(behind)):
        sizes = products.dims, products.shape, products.runtime
        problem = replace(problem, left_to=library.left_to(problem, params, *sizes))
    if library and library.matrices and products.layouts != ANY_LAYOUTS:
        problem = replace(problem, left_to=library.matrices(problem, params, target.caps) or problem.left_to)
    unpacking = decompression(given, problem, library, target.caps)
    form, reference = Form(reference=zeros is not None), False
    if library and shape.integer:
        plain = problem.wei_tag == "any" and 0 < library.plain_from <= products.dims
        form = library.integers(replace(problem, wei_tag="ab") if plain else problem, params, target.caps)
        reference = form.reference
    by_points = reference or bool(library) and "src" in params.along_k
    finest = zeros.splits(shape.k) if zeros and by_points else 0
    groups = group_scales(given, form.reference, form.merged, finest)
    epilogue, parameters = with_groups(epilogue, parameters, given, groups)
    if library and shape.integer and library.one_factor:
        epilogue, parameters = with_one_factor(epilogue, parameters, bias, library.title, library.fused_bias)
    parameters = with_tables(parameters, given, zeros) if zeros else parameters
    problem = replace(
        problem,
        epilogue=epilogue,
        decompression=unpacking,
        group_scales=groups,
        reference=reference,
        zero_points=zeros and replace(zeros, reference=bool(library) and form.reference),
        moves_in_s8=shape.integer and moves_in_s8(given),
    )
    return problem, parameters
