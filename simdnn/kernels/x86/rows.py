"""The kernels of x86 CPUs as rows: which problems each takes and which generator builds it."""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial

from isa_models import Machine
from isa_models.errors import OutOfRegisters
from isa_models.isa import implied
from simdnn.kernels.common.kernel import Kernel, KernelKind
from simdnn.kernels.common.problems import ConvProblem, MatmulProblem, Problem
from simdnn.kernels.common.sums import Options, Order
from simdnn.kernels.x86.amx import TILED_BF16, TILED_F16, TILED_S8, TILED_U8, accumulation_of, tiled_gemm
from simdnn.kernels.x86.around import around
from simdnn.kernels.x86.as_s8 import WIDENED, as_s8, fed
from simdnn.kernels.x86.blocking import outrun
from simdnn.kernels.x86.code import Unit, unit_of
from simdnn.kernels.x86.depthwise import FLOAT, INTEGER, PAIRS, Depthwise, DepthwiseDot
from simdnn.kernels.x86.dots import (
    BF16,
    BF16_EMULATED,
    BF16_STORED,
    F16,
    F16_DOWN,
    F16_LOADED,
    FMA,
    FP16,
    MADDUBS,
    MADDWD,
    MULTIPLY_ADD,
    MULTIPLY_ADD_BF16,
    MULTIPLY_ADD_F16,
    REFERENCES,
    TF32,
    TF32_CUT,
    VNNI,
    WORDS,
    Dot,
)
from simdnn.kernels.x86.expanded import STORED, as_floats, expanding, is_stored, refuses_stored
from simdnn.kernels.x86.gemm import compressed_gemm, gemm, grouped_gemm
from simdnn.kernels.x86.rows_blocks import repacked, tiled, vec_dot
from simdnn.kernels.x86.rows_compressed import compressed_kinds
from simdnn.kernels.x86.rows_reference import ref_conv, ref_float, ref_int8
from simdnn.kernels.x86.rows_vectors import vector_kinds
from simdnn.kernels.x86.widening import widened
from simdnn.libraries.onednn.blocking import depthwise_tile, words_tile
from simdnn.libraries.onednn.order import depthwise_by_gemm
from simdnn.libraries.onednn.sums import (
    cut_as_emulated,
    cut_as_gemm,
    cut_by_channels,
    cut_by_columns,
    cut_widened,
    ends_as_reference,
    in_one_chain,
    not_cut,
    older_kernel,
    starts_from_bias,
)
from simdnn.libraries.onednn.tiles import cut_for_tiles
from simdnn.libraries.onnxruntime.sums import cut_as_sgemm, cut_in_blocks, cut_in_columns, in_one_line, one_chain
from simdnn.program.check import drafts

Sums = Callable[[Dot, str, Problem], Options]
Multiplies = Callable[["Row", str, Problem, Machine], Kernel]
_INT8 = ("u8", "s8")
#: a library's dot product by the type of weights that it makes f32 of as it loads them
_READ = {"bf16": BF16_STORED, "f16": F16}


# -- products: a matmul, or a convolution, of a dot product on a unit -------------------------------------------------
def on_vectors(row: Row, name: str, problem: Problem, machine: Machine) -> Kernel:
    """Tiles of vector registers; plain weights that are rounded are brought to panels by the program itself."""
    unit, dot = unit_of(row.isa), row.dot
    if isinstance(problem, MatmulProblem) and row.narrows_weights and problem.wei_tag != "any":
        return compressed_gemm(name, problem, unit, dot, row.options(problem)).kernel()
    if isinstance(problem, MatmulProblem) and problem.group_scales:
        return grouped_gemm(name, problem, unit, dot).kernel()
    options = replace(row.options(problem), caches=outrun(machine, unit, dot))
    if options.direct and isinstance(problem, ConvProblem):
        from simdnn.kernels.x86.direct import direct  # a library's

        kernel = gemm(name, problem, unit, dot, replace(options, tile=None)).kernel()
        narrower = replace(unit, width=32 * options.lanes) if options.lanes else unit
        loading = F16_LOADED if dot == F16 else _READ.get(problem.read, dot)
        return replace(kernel, timed=direct(name, problem, narrower, loading, options))
    own = replace(options, packs=0, tile=None) if options.packs else options
    kernel = (widened(name, problem, unit, dot, own, machine) or gemm(name, problem, unit, dot, own)).kernel()
    if options.packs and dot.wei == "f16":
        return replace(kernel, timed=gemm(name, problem, unit, FMA, options).program)
    if options.packs and isinstance(problem, MatmulProblem):
        plain = problem if problem.wei_tag != "any" else replace(problem, wei_tag="ab")
        by_parts = replace(options, cut=options.packs, split_k=0, order=Order())
        return replace(kernel, timed=gemm(name, plain, unit, dot, by_parts).program)
    return kernel


def on_tiles(row: Row, name: str, problem: Problem, machine: Machine) -> Kernel:
    """AMX tiles. The row's dot product is that of its first source; another one takes s8."""
    dot = TILED_S8 if problem.src == "s8" else row.dot
    packed = row.narrows_weights and isinstance(problem, MatmulProblem) and problem.wei_tag != "any"
    unit, order, options = unit_of(row.isa), accumulation_of(machine), row.options(problem)
    own = replace(options, blocks=None, apart=())
    kernel = tiled_gemm(name, problem, unit, dot, order, own, compressed=packed).kernel()
    if isinstance(problem, MatmulProblem) and problem.tiles and not options.blocks:
        library = replace(options, line_by_line=True)
        return replace(kernel, timed=tiled_gemm(name, problem, unit, dot, order, library, compressed=packed).program)
    if options.blocks and isinstance(problem, MatmulProblem):
        from simdnn.kernels.x86.amx_blocks import in_blocks  # a library's

        return replace(kernel, timed=in_blocks(name, problem, unit, dot, order, replace(options, cut=0)))
    if isinstance(problem, ConvProblem) and problem.tiles:
        from simdnn.kernels.x86.amx_lines import as_library  # a library's

        return replace(kernel, timed=as_library(name, problem, unit, dot, order, replace(options, cut=0)))
    return kernel


@dataclass(frozen=True)
class Row:
    """A GEMM and a convolution kernel: a dot product on a unit. `suffix` ends their names, "gemm:avx512_core_int8".

    `weights`: the type that the kernel's own layout is made of. Integers of other types are brought to it: in a matmul
    of integers ahead of time (`as_s8`), in a convolution of floats by the program (`expanded`).
    """

    dot: Dot
    isa: str
    sources: tuple[str, ...]
    weights: str
    suffix: str = ""
    sums: Sums = cut_by_channels
    library: str = ""  # whose slow form this is, where nobody else wants it
    multiplies: Multiplies = on_vectors
    operations: tuple[type[Problem], ...] = (MatmulProblem, ConvProblem)  # that there is a kernel of
    depthwise: bool = False  # takes depthwise convolutions, too, which others leave to kernels of their own

    def name(self, operation: type[Problem]) -> str:
        """The kernel's name."""
        return f"{'gemm' if issubclass(operation, MatmulProblem) else 'conv'}:{self.isa}{self.suffix}"

    def kind(self, operation: type[MatmulProblem] | type[ConvProblem]) -> KernelKind:
        """The row of the kernel table for matmuls or for convolutions."""
        matmul, integers = operation is MatmulProblem, self.weights == "s8"
        others = WIDENED if integers and matmul else STORED if not (integers or matmul) else ()
        grouped = ("group_scales",) if self.dot.acc == "s32" and self.multiplies is on_vectors else ()
        of_matmul = self.refuses_widened, self.refuses_groups
        of_convolution = self.refuses_stored, self.refuses_zero_point, self.refuses_layout, self.refuses_taps
        return KernelKind(
            self.name(operation),
            self.isa,
            self.dot.compute,
            self.kernel,
            operation,
            exact=not self.dot.saturates,
            library=self.library,
            more_than=replace(self, suffix="").name(operation) if self.dot in (TF32, TF32_CUT) else "",
            sources=self.sources,
            weights=(self.weights, *others),
            multiplied=self.dot.wei,
            accumulates=(self.dot.acc,),
            promotes=self.promotes(matmul),
            unasked=self.unasked,
            tags=("any", "ab", "ba") if matmul else ("any", "oihw"),
            takes=grouped if matmul else ("depth",),
            mixes=self.weights not in self.sources,
            sizes=() if matmul or self.depthwise else (_not_depthwise,),
            wants=of_matmul if matmul else of_convolution,
        )

    @property
    def reference(self) -> bool:
        """Whether this is oneDNN's reference for floats; this package has its matmuls alone."""
        return self.dot in REFERENCES

    @property
    def narrows_weights(self) -> bool:
        """Whether f32 weights become something else before they are multiplied."""
        return self.weights == "f32" and (self.dot.wei != "f32" or bool(self.dot.rounds))

    @property
    def unasked(self) -> str:
        """Why "fastest" takes this row only where the type of its sums is asked for; empty where it takes it."""
        narrow = self.dot.narrow_sums and self.dot.integer
        return f"adds up in {self.dot.acc}, which saturates: acc_mode={self.dot.acc!r} takes it" if narrow else ""

    # -- what it asks of a problem ----------------------------------------------------------------------------------
    def refuses_widened(self, problem: MatmulProblem) -> str:
        """Why integer weights of another type cannot become s8 on their way to the kernel; empty where they can."""
        if problem.wei not in WIDENED:
            return ""
        if problem.wei == "u8" and problem.wei_tag != "any":
            return "makes s8 of u8 weights ahead of time: wei_tag='any'"
        if problem.wei == "u8" and self.dot.saturates:
            return "stores u8 weights less 128, and saturates: no library's bits"
        if problem.wei == "u8" and problem.group_scales:
            return "stores u8 weights less 128, a zero point, and takes scales along K without one"
        return ""

    def refuses_groups(self, problem: MatmulProblem) -> str:
        """Why scales that change along K cannot be had; empty where they can."""
        e, scales = problem.epilogue, problem.group_scales
        if scales is None:
            return ""
        lengths = scales.lengths(problem.k)
        if e.zp_src or e.zp_wei:
            return "takes scales along K without zero points"
        if any(problem.k % g or max(lengths) % g for g in lengths):
            return f"groups of {lengths} that neither nest nor divide K = {problem.k}"
        if problem.scale_period % 4 and problem.scale_period != problem.k:
            return f"takes k in fours: groups of a multiple of 4, not {problem.scale_period}"
        return ""

    def refuses_stored(self, problem: ConvProblem) -> str:
        """Why a convolution of floats cannot have weights stored as integers; empty where it can."""
        if not is_stored(problem):
            return ""
        if self.narrows_weights and self.options(as_floats(problem)).order.fold:
            return "narrows the weights that it folds from floats only"
        return refuses_stored(problem, self.isa, self.dot.wei)

    def refuses_zero_point(self, problem: ConvProblem) -> str:
        """Why a weights zero point cannot be had; empty where it can."""
        return "" if is_stored(problem) else _no_zero_point(problem)

    def refuses_layout(self, problem: ConvProblem) -> str:
        """Why a convolution cannot read plain weights; empty where it can."""
        options = self.options(problem) if problem.wei_tag != "any" else Options()
        if options.halve or options.order.fold:
            return "halves or folds its weights, which it takes in its own layout only (wei_tag='any')"
        return ""

    def refuses_taps(self, problem: ConvProblem) -> str:
        """Why the taps of a convolution are too many; empty where they are not."""
        most = (problem.promote or self.dot.chain) if self.dot.narrow_sums else math.inf
        if self.dot.depth * problem.tap_rows * problem.kw > most:
            return f"adds {most} products in {self.dot.acc}: kernels of up to {int(most) // self.dot.depth} taps"
        return ""

    # -- what it makes of it ----------------------------------------------------------------------------------------
    def options(self, problem: Problem) -> Options:
        """Where the sums of a problem are cut, and what follows them."""
        if self.dot.narrow_sums and problem.promote:
            return self.sums(replace(self.dot, chain=problem.promote), self.isa, problem)
        found = self.sums(self.dot, self.isa, problem)
        return replace(found, cut=problem.promote) if problem.promote else found

    def promotes(self, matmul: bool) -> int:
        """The step in which a problem may say how many products a partial sum has; 0 where it may not."""
        taken = self.dot.narrow_sums or matmul and self.dot.acc == "f32" and self.multiplies is on_vectors
        return self.dot.depth if taken and not self.library else 0

    def kernel(self, problem: Problem, machine: Machine) -> Kernel:
        """The kernel of a problem, whose weights may be stored in another type than those of the row."""
        name = self.name(type(problem))
        if isinstance(problem, MatmulProblem) and problem.wei in WIDENED:
            return fed(self.multiplies(self, name, as_s8(problem), machine), problem)
        if isinstance(problem, ConvProblem) and is_stored(problem):
            scaled = self.dot.narrow_sums and bool(problem.epilogue.wei_scale)
            with drafts():
                kernel = self.multiplies(self, name, as_floats(problem, scaled), machine)
            return expanding(kernel, problem, scaled)
        return self.multiplies(self, name, problem, machine)


def _not_depthwise(problem: ConvProblem) -> str:
    return "depthwise convolutions have a kernel of their own" if problem.depthwise and not problem.depth else ""


def _no_zero_point(problem: ConvProblem) -> str:
    return "a convolution has no weights zero point" if problem.epilogue.zp_wei else ""


# -- depthwise convolutions -------------------------------------------------------------------------------------------
def _depthwise(
    isa: str, sources: tuple[str, ...], dot: DepthwiseDot, suffix: str = "", halves: bool = False, library: str = ""
) -> KernelKind:
    """`halves`: s8 sources make it halve its weights, as the library does without VNNI."""
    name = f"dw:{isa}{suffix}"
    return KernelKind(
        name,
        isa,
        dot.compute,
        partial(_depthwise_kernel, name, unit_of(isa), dot, halves),
        ConvProblem,
        exact=not halves,
        library=library,
        sources=sources,
        weights=sources if dot.floats else ("s8",),
        multiplied=dot.wei,
        accumulates=(dot.acc,),
        tags=("any",),
        sizes=(_depthwise_alone,),
        wants=(_no_zero_point,),
    )


def _depthwise_alone(problem: ConvProblem) -> str:
    return "" if problem.depthwise else "computes depthwise convolutions only"


def _depthwise_kernel(
    name: str, unit: Unit, dot: DepthwiseDot, halves: bool, problem: ConvProblem, machine: Machine
) -> Kernel:
    integer = not dot.floats
    starts = starts_from_bias(problem, unit.isa)
    reference = ends_as_reference(problem, unit.isa) if integer else problem.src == "f32" and depthwise_by_gemm(problem)
    merged = integer and older_kernel(unit.isa, problem) and not reference
    found = Depthwise(name, problem, unit, dot, halves and problem.src == "s8", merged, starts, reference)
    if problem.tiles != "onednn":
        return found.kernel()
    channels = -(-problem.ic // unit.lanes) * unit.lanes  # a mask leaves some of the last vector out, in no less time
    whole = replace(problem, ic=channels, oc=channels, groups=channels)
    from simdnn.kernels.x86.depthwise_direct import Walk  # a library's
    from simdnn.kernels.x86.depthwise_words import WordsWalk

    timed: Walk | WordsWalk
    if integer and not {"avx512_core_vnni", "avx2_vnni"} & implied(unit.isa):
        timed = WordsWalk(whole, unit, words_tile(whole, unit.masks), found.channel_plan)
    else:
        emulated = problem.wei == "bf16" and "avx512_core_bf16" not in implied(unit.isa)
        widens = problem.wei == "bf16" and dot.wei == "f32" and not emulated
        tile = depthwise_tile(problem, unit.masks, emulated)
        timed = Walk(whole, unit, tile, found.channel_plan, emulated, widens)
    with suppress(OutOfRegisters):  # behind sums whose end wants some that the library frees on the stack
        return replace(found.kernel(), timed=timed.program(name))
    return found.kernel()


def _mixed(dot: Dot, isa: str, weights: str) -> Row:
    """Floats of any type by f16 or bf16 weights: both widened to f32."""
    others = tuple(dtype for dtype in _FLOATS if dtype != weights)
    if dot in REFERENCES:
        return Row(dot, isa, others, weights, f"_by_{weights}_ref", not_cut, "onednn", operations=(MatmulProblem,))
    return Row(dot, isa, others, weights, f"_by_{weights}", cut_widened, operations=(MatmulProblem,))


_FLOATS = ("f32", "bf16", "f16")
_convolves = partial(Row, operations=(ConvProblem,))
_tiles = partial(Row, sums=cut_for_tiles, multiplies=on_tiles)
_ROWS = (
    Row(FMA, "avx512_core", ("f32",), "f32"),
    Row(FMA, "avx2", ("f32",), "f32"),
    Row(BF16, "avx512_core_bf16", ("bf16",), "bf16"),
    Row(BF16, "avx512_core_bf16", ("f32",), "f32", "_down"),
    Row(F16, "avx512_core", ("f16",), "f16", "_f16"),
    Row(F16, "avx2", ("f16",), "f16", "_f16"),
    Row(BF16_STORED, "avx512_core", ("bf16",), "bf16", "_bf16_stored"),
    Row(BF16_STORED, "avx2", ("bf16",), "bf16", "_bf16_stored"),
    Row(BF16_EMULATED, "avx512_core", ("bf16",), "bf16", "_bf16_emulated", cut_as_emulated, "onednn", depthwise=True),
    _convolves(BF16, "avx512_core_bf16", ("bf16",), "bf16", "_copied", cut_as_gemm, "onednn", depthwise=True),
    *(
        _convolves(FMA, isa, ("f32",), "f32", "_taps", cut_by_columns, "onednn", depthwise=True)
        for isa in ("avx512_core", "avx2")
    ),
    _convolves(BF16, "avx512_core_bf16", ("bf16",), "bf16", "_pairs", in_one_chain, "onednn", depthwise=True),
    _convolves(F16, "avx512_core", ("f16",), "f16", "_f16_taps", cut_by_columns, "onednn", depthwise=True),
    Row(F16_DOWN, "avx512_core", ("f32",), "f32", "_f16_down"),
    Row(F16_DOWN, "avx2", ("f32",), "f32", "_f16_down"),
    Row(FP16, "avx512_core_fp16", ("f16",), "f16"),
    Row(FP16, "avx512_core_fp16", ("f32",), "f32", "_down"),
    Row(TF32, "avx512_core", ("f32",), "f32", "_tf32"),
    Row(TF32, "avx2", ("f32",), "f32", "_tf32"),
    Row(TF32_CUT, "avx512_core", ("f32",), "f32", "_tf32_cut"),
    Row(TF32_CUT, "avx2", ("f32",), "f32", "_tf32_cut"),
    Row(MULTIPLY_ADD, "avx512_core", ("f32",), "f32", "_ref", not_cut, "onednn", operations=(MatmulProblem,)),
    Row(MULTIPLY_ADD, "avx2", ("f32",), "f32", "_ref", not_cut, "onednn", operations=(MatmulProblem,)),
    Row(
        MULTIPLY_ADD_BF16, "avx512_core", ("bf16",), "bf16", "_bf16_ref", not_cut, "onednn", operations=(MatmulProblem,)
    ),
    Row(MULTIPLY_ADD_F16, "avx512_core", ("f16",), "f16", "_f16_ref", not_cut, "onednn", operations=(MatmulProblem,)),
    *(_mixed(dot, isa, "f16") for dot in (F16, MULTIPLY_ADD_F16) for isa in ("avx512_core", "avx2")),
    *(_mixed(dot, isa, "bf16") for dot in (BF16_STORED, MULTIPLY_ADD_BF16) for isa in ("avx512_core", "avx2")),
    Row(FMA, "avx512_core", ("f32",), "f32", "_sgemm", cut_as_sgemm, "onnxruntime", operations=(MatmulProblem,)),
    Row(FMA, "avx2", ("f32",), "f32", "_sgemm", cut_as_sgemm, "onnxruntime", operations=(MatmulProblem,)),
    Row(FMA, "avx512_core", ("f32",), "f32", "_chain", one_chain, "onnxruntime", operations=(MatmulProblem,)),
    Row(FMA, "avx2", ("f32",), "f32", "_chain", one_chain, "onnxruntime", operations=(MatmulProblem,)),
    Row(FMA, "avx512_core", ("f32",), "f32", "_nchwc", cut_in_blocks, "onnxruntime", operations=(ConvProblem,)),
    Row(FMA, "avx2", ("f32",), "f32", "_nchwc", cut_in_blocks, "onnxruntime", operations=(ConvProblem,)),
    *(
        _convolves(FMA, isa, ("f32",), "f32", "_columns", cut_in_columns, "onnxruntime", depthwise=True)
        for isa in ("avx512_core", "avx2")
    ),
    Row(VNNI, "avx512_core_vnni", _INT8, "s8"),
    Row(VNNI, "avx2_vnni", _INT8, "s8"),
    Row(MADDUBS, "avx512_core", _INT8, "s8", "_int8"),
    Row(MADDUBS, "avx2", _INT8, "s8", "_int8"),
    Row(MADDUBS, "avx512_core", ("u8",), "s8", "_int8_line", in_one_line, "onnxruntime", depthwise=True),
    Row(MADDUBS, "avx2", ("u8",), "s8", "_int8_line", in_one_line, "onnxruntime", depthwise=True),
    Row(WORDS, "avx512_core", _INT8, "s8", "_int8_s16"),
    Row(WORDS, "avx2", _INT8, "s8", "_int8_s16"),
    Row(MADDWD, "avx512_core", _INT8, "s8", "_int8_exact"),
    Row(MADDWD, "avx2", _INT8, "s8", "_int8_exact"),
    _tiles(TILED_BF16, "avx512_core_amx", ("bf16",), "bf16"),
    _tiles(TILED_BF16, "avx512_core_amx", ("f32",), "f32", "_down"),
    _tiles(TILED_F16, "avx512_core_amx_fp16", ("f16",), "f16"),
    _tiles(TILED_F16, "avx512_core_amx_fp16", ("f32",), "f32", "_down"),
    Row(
        *(TILED_F16, "avx512_core_amx_fp16", ("f16",), "f16", "_taps", cut_for_tiles, "onednn", on_tiles),
        operations=(ConvProblem,),
        depthwise=True,
    ),
    _tiles(TILED_U8, "avx512_core_amx", _INT8, "s8", "_int8"),
)
_DEPTHWISE: tuple[tuple[str, tuple[str, ...], DepthwiseDot, str, bool, str], ...] = (
    ("avx512_core", ("f32",), FLOAT, "", False, ""),
    ("avx2", ("f32",), FLOAT, "", False, ""),
    ("avx512_core_bf16", ("bf16",), FLOAT, "", False, ""),
    ("avx512_core_bf16", ("bf16",), PAIRS, "_pairs", False, "onednn"),
    ("avx512_core", ("f16",), FLOAT, "_f16", False, ""),
    ("avx2", ("f16",), FLOAT, "_f16", False, ""),
    ("avx512_core", ("bf16",), FLOAT, "_bf16_stored", False, ""),
    ("avx2", ("bf16",), FLOAT, "_bf16_stored", False, ""),
    ("avx512_core_vnni", _INT8, INTEGER, "_int8", False, ""),
    ("avx2_vnni", _INT8, INTEGER, "_int8", False, ""),
    ("avx512_core", _INT8, INTEGER, "_int8", True, ""),
    ("avx2", _INT8, INTEGER, "_int8", True, ""),
    ("avx512_core", _INT8, INTEGER, "_int8_exact", False, ""),
    ("avx2", _INT8, INTEGER, "_int8_exact", False, ""),
)


def _kinds() -> tuple[KernelKind, ...]:
    matmuls = [row for row in _ROWS if MatmulProblem in row.operations]
    kinds = [row.kind(MatmulProblem) if row.weights == "s8" else around(row.kind(MatmulProblem)) for row in matmuls]
    convolutions = [row for row in _ROWS if ConvProblem in row.operations]
    kinds += [row.kind(ConvProblem) if row.weights == "s8" else around(row.kind(ConvProblem)) for row in convolutions]
    kinds += vector_kinds()
    kinds += compressed_kinds()
    kinds += [around(_depthwise(*row)) if row[2].floats else _depthwise(*row) for row in _DEPTHWISE]
    kinds += [ref_int8(isa) for isa in ("avx512_core", "avx2")]
    kinds += [ref_float(isa) for isa in ("avx512_core", "avx2")]
    kinds += [ref_conv(isa) for isa in ("avx512_core", "avx2")]
    kinds += [row(isa) for row in (vec_dot, repacked) for isa in ("avx512_core_vnni", "avx2_vnni", "avx2")]
    kinds.append(tiled("avx2"))
    assert len({kind.name for kind in kinds}) == len(kinds)
    return tuple(kinds)


KERNELS: tuple[KernelKind, ...] = _kinds()
