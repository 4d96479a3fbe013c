"""The kernels of x86 CPUs as rows: which problems each takes and which generator builds it."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from isa_models import Machine
from isa_models.machines.cpu_record import AMX_ACCUMULATIONS
from simdnn.kernels.common.spec import ConvProblem, GroupScales, Kernel, KernelKind, MatmulProblem, Problem
from simdnn.kernels.common.sums import Options
from simdnn.kernels.x86 import expanded
from simdnn.kernels.x86.amx import TILED_BF16, TILED_F16, TILED_S8, TILED_U8, tiled_gemm
from simdnn.kernels.x86.as_s8 import WIDENED, as_s8, taking
from simdnn.kernels.x86.code import unit_of
from simdnn.kernels.x86.decompressor import refuses_groups
from simdnn.kernels.x86.depthwise import Depthwise
from simdnn.kernels.x86.dots import (
    BF16,
    BF16_EMULATED,
    BF16_STORED,
    F16,
    F16_DOWN,
    FMA,
    FP16,
    MADDUBS,
    MADDWD,
    MULTIPLY_ADD,
    TF32,
    TF32_CUT,
    VNNI,
    Dot,
)
from simdnn.kernels.x86.fused import fused_gemm, refuses_fusion
from simdnn.kernels.x86.gemm import compressed_gemm, gemm, grouped_gemm
from simdnn.kernels.x86.gemv import Gemv
from simdnn.kernels.x86.ref_int8 import RefInt8
from simdnn.libraries.onednn.sums import (
    bias_comes_first,
    cut_as_emulated,
    cut_by_channels,
    cut_decompressed,
    cut_for_tiles,
    not_cut,
    older_kernel,
)


def _types(problem: Problem, sources: tuple[str, ...], weights: str) -> str:
    if problem.src not in sources or problem.wei != weights:
        return f"computes {'/'.join(sources)} sources with {weights} weights, not {problem.src}:{problem.wei}"
    return ""


@dataclass(frozen=True)
class Row:
    """A GEMM or convolution kernel: a dot product on a unit. `suffix` ends its name, "gemm:avx512_core_int8"."""

    dot: Dot
    isa: str
    sources: tuple[str, ...]
    weights: str
    suffix: str = ""
    sums: Callable[[Dot, str, Problem], Options] = cut_by_channels
    library: str = ""  # whose slow form this is, where nobody else wants it

    def accepts(self, operation: type[MatmulProblem] | type[ConvProblem]) -> Callable[[Problem], str]:
        def answer(problem: Problem) -> str:
            if isinstance(problem, MatmulProblem) and problem.decompression:
                return "does not decompress weights"
            if isinstance(problem, MatmulProblem) and problem.zero_points:
                return "takes common zero points only, and no reductions"
            if isinstance(problem, MatmulProblem) and self.weights == "s8" and problem.wei in WIDENED:
                if reason := self.refuses_widened(problem):
                    return reason
                problem = as_s8(problem)
            if isinstance(problem, MatmulProblem) and problem.group_scales:
                if reason := self.refuses_groups(problem, problem.group_scales):
                    return reason
            if not isinstance(problem, operation):
                return f"computes {'matmul' if operation is MatmulProblem else 'convolution'} only"
            if isinstance(problem, ConvProblem) and problem.depthwise:
                return "depthwise convolutions have a kernel of their own"
            if isinstance(problem, ConvProblem) and expanded.is_stored(problem) and self.weights != "s8":
                if reason := self.refuses_stored(problem):
                    return reason
                problem = expanded.as_floats(problem)
            if isinstance(problem, ConvProblem) and problem.epilogue.zp_wei:
                return "a convolution has no weights zero point"
            if isinstance(problem, ConvProblem) and problem.wei_tag != "any":
                options = self.options(problem)
                if options.halve or options.order.fold:
                    return "halves or folds its weights, which it takes in its own layout only (wei_tag='any')"
            if isinstance(problem, ConvProblem) and 2 * problem.kh * problem.kw > (self.dot.chain or math.inf):
                return f"adds {self.dot.chain} products in f16: kernels of up to {self.dot.chain // 2} taps"
            if self.reference and problem.epilogue.wei_scale:
                return "the reference multiplies each product by the weights' scale: no kernel here does"
            return _types(problem, self.sources, self.weights)

        return answer

    @property
    def reference(self) -> bool:
        """Whether this is oneDNN's reference for floats, of which matmuls alone are made here."""
        return self.dot == MULTIPLY_ADD

    @property
    def narrows_weights(self) -> bool:
        """Whether f32 weights become something else before they are multiplied."""
        return self.weights == "f32" and (self.dot.wei != "f32" or bool(self.dot.rounds))

    def refuses_widened(self, problem: MatmulProblem) -> str:
        """Why integer weights of another type cannot become s8 on their way to the kernel; empty where they can."""
        if problem.wei_tag != "any":
            return f"makes s8 of {problem.wei} weights ahead of time: wei_tag='any'"
        if problem.wei == "u8" and self.dot.saturates:
            return "stores u8 weights less 128, and saturates: no library's bits"
        if problem.wei == "u8" and problem.group_scales:
            return "stores u8 weights less 128, a zero point, and takes scales along K without one"
        return ""

    def refuses_stored(self, problem: ConvProblem) -> str:
        """Why a convolution of floats cannot have weights stored as integers; empty where it can."""
        if self.narrows_weights and self.options(expanded.as_floats(problem)).order.fold:
            return "narrows the weights that it folds from floats only"
        return expanded.refused(problem, self.isa, self.dot.wei)

    def refuses_groups(self, problem: MatmulProblem, scales: GroupScales) -> str:
        """Why scales that change along K cannot be had; empty where they can."""
        e = problem.epilogue
        lengths = [g for g in (scales.src, scales.wei) if g]
        if self.dot.acc != "s32":
            return "has scales along K for integers only"
        if e.zp_src or e.zp_wei or e.dst == "s32":
            return "takes scales along K without zero points, to a floating-point or 8-bit destination"
        if any(problem.k % g or max(lengths) % g for g in lengths):
            return f"groups of {lengths} that neither nest nor divide K = {problem.k}"
        if scales.group % 4:
            return f"takes k in fours: groups of a multiple of 4, not {scales.group}"
        return ""

    def options(self, problem: Problem) -> Options:
        """Where the sums of a problem are cut, and what follows them."""
        return self.sums(self.dot, self.isa, problem)

    def build(self, name: str) -> Callable[[Problem, Machine], Kernel]:
        def make(problem: Problem, machine: Machine) -> Kernel:
            if isinstance(problem, MatmulProblem) and self.narrows_weights:
                if problem.wei_tag != "any":  # plain weights are converted by the program itself
                    return compressed_gemm(name, problem, unit_of(self.isa), self.dot, self.options(problem)).kernel()
            if isinstance(problem, MatmulProblem) and problem.group_scales:
                return grouped_gemm(name, problem, unit_of(self.isa), self.dot).kernel()
            return gemm(name, problem, unit_of(self.isa), self.dot, self.options(problem)).kernel()

        return make

    def kind(self, operation: type[MatmulProblem] | type[ConvProblem]) -> KernelKind:
        """The row of the kernel table for matmuls or for convolutions."""
        family = "gemm" if operation is MatmulProblem else "conv"
        name = f"{family}:{self.isa}{self.suffix}"
        build = self.build(name)
        return KernelKind(
            name,
            self.isa,
            self.dot.compute,
            self.accepts(operation),
            taking(build) if self.weights == "s8" else expanded.taking(build, self.dot.narrow_sums),
            operation,
            self.dot is not MADDUBS,
            self.library,
            more_than=f"{family}:{self.isa}" if self.dot in (TF32, TF32_CUT) else "",
            narrow_sums=self.dot.narrow_sums,
            sources=self.sources,
            weights=(self.weights, *(WIDENED if self.weights == "s8" and operation is MatmulProblem else ())),
        )


@dataclass(frozen=True)
class _TileRow(Row):
    """A GEMM or convolution kernel on AMX tiles; `dot` is that of the first source."""

    sums: Callable[[Dot, str, Problem], Options] = cut_for_tiles

    def refuses_groups(self, problem: MatmulProblem, scales: GroupScales) -> str:
        return "has no scales along K on tiles"

    def build(self, name: str) -> Callable[[Problem, Machine], Kernel]:
        def make(problem: Problem, machine: Machine) -> Kernel:
            dot = TILED_S8 if problem.src == "s8" else self.dot
            packed = self.narrows_weights and isinstance(problem, MatmulProblem) and problem.wei_tag != "any"
            unit, order, options = unit_of(self.isa), _accumulation(machine), self.options(problem)
            return tiled_gemm(name, problem, unit, dot, order, options, compressed=packed).kernel()

        return make


def _accumulation(machine: Machine | None) -> str:
    """The order in which a machine's tile products are added up."""
    return machine.amx_accumulation if machine else AMX_ACCUMULATIONS[0]


def _depthwise(isa: str, source_types: tuple[str, ...], halves: bool = False, suffix: str = "") -> KernelKind:
    """`halves`: s8 sources make it halve its weights, as the library does without VNNI."""
    integer = "u8" in source_types
    name = f"dw:{isa}" + ("_int8" if integer else "") + suffix

    def accepts(problem: Problem) -> str:
        if not isinstance(problem, ConvProblem) or not problem.depthwise:
            return "computes depthwise convolutions only"
        if problem.src not in source_types:
            return f"computes {'/'.join(source_types)} sources, not {problem.src}"
        if problem.epilogue.zp_wei:
            return "a convolution has no weights zero point"
        if problem.wei_tag != "any":
            return "reads depthwise weights in its own layout only (wei_tag='any')"
        return _types(problem, source_types, "s8" if integer else problem.src)

    def build(problem: Problem, machine: Machine) -> Kernel:
        assert isinstance(problem, ConvProblem)
        unit = unit_of(isa)
        halve = halves and problem.src == "s8"
        merged = integer and older_kernel(isa, problem)
        bias_first = bias_comes_first(problem, suffix == "_bf16_stored")
        return Depthwise(name, problem, unit, halve, merged, bias_first).kernel()

    compute, weights = ("s16", ("s8",)) if integer else ("f32", source_types)
    return KernelKind(
        name, isa, compute, accepts, build, ConvProblem, not halves, sources=source_types, weights=weights
    )


def _decompressing(isa: str, dot: Dot, sources: tuple[str, ...], suffix: str = "", fused: bool = False) -> KernelKind:
    """Matmul over compressed weights; the reference form multiplies and adds apart, its scales in the weights."""
    name, unit, reference = f"wdec{'_fused' * fused}:{isa}{suffix}", unit_of(isa), dot == MULTIPLY_ADD

    def accepts(problem: Problem) -> str:
        if not isinstance(problem, MatmulProblem) or problem.decompression is None:
            return "computes matmul with compressed weights only"
        d = problem.decompression
        if problem.src not in sources:
            return f"computes {'/'.join(sources)} sources, not {problem.src}"
        if dot.compute not in d.computes or d.reference != reference:
            return f"computes in {dot.compute}" + (" as the library's reference does" if reference else "")
        return refuses_groups(problem, dot) or (refuses_fusion(problem) if fused else "")

    def build(problem: Problem, machine: Machine) -> Kernel:
        assert isinstance(problem, MatmulProblem)
        if fused:
            return fused_gemm(name, problem, unit, dot).kernel()
        if dot in (TILED_BF16, TILED_F16):
            return tiled_gemm(name, problem, unit, dot, _accumulation(machine), Options(), compressed=True).kernel()
        return compressed_gemm(name, problem, unit, dot, cut_decompressed(dot, isa, problem)).kernel()

    weights, narrow = ("s8", *WIDENED), dot.narrow_sums
    return KernelKind(name, isa, dot.compute, accepts, build, narrow_sums=narrow, sources=sources, weights=weights)


def _gemv(isa: str, dtype: str, plain: bool, emulated: bool = False) -> KernelKind:
    name = f"gemv:{isa}" + ("_f16" if dtype == "f16" else "_bf16_emulated" if emulated else "")
    name += ("_plain" if plain else "") + ("_bf16" if plain and dtype == "bf16" else "")

    def accepts(problem: Problem) -> str:
        if not isinstance(problem, MatmulProblem) or 1 not in (problem.m, problem.n):
            return "computes matrix times vector only (M = 1 or N = 1)"
        if problem.decompression:
            return "does not decompress weights"
        stored_plain = problem.n > 1 and problem.wei_tag == "ab"
        if plain != stored_plain:
            return "wants " + ("plain (K, N) weights with M = 1" if plain else "weights contiguous along K")
        return _types(problem, (dtype,), dtype)

    def build(problem: Problem, machine: Machine) -> Kernel:
        assert isinstance(problem, MatmulProblem)
        return Gemv(name, problem, unit_of(isa), plain, emulated).kernel()

    compute = "bf16" if dtype == "bf16" and not plain and not emulated else "f32"
    library = "onednn" if emulated else ""
    return KernelKind(name, isa, compute, accepts, build, library=library, sources=(dtype,), weights=(dtype,))


def _ref_int8(isa: str) -> KernelKind:
    """Integer matmul with scales or zero points by group or column, or u8 weights: what is left to a reference."""
    name, unit = f"ref_int8:{isa}", unit_of(isa)

    def accepts(problem: Problem) -> str:
        p = problem
        if not isinstance(p, MatmulProblem) or not (p.zero_points or p.group_scales or p.wei == "u8"):
            return "computes integer matmul with zero points or scales by group or column, or u8 weights, only"
        if p.zero_points is None and (p.epilogue.zp_src or p.epilogue.zp_wei):
            return "takes zero points by group or column"
        if p.wei_tag == "ba":
            return "reads rows of weights (wei_tag='any' or 'ab')"
        if p.wei in ("s4", "u4") and p.wei_tag != "any":
            return f"makes s8 of {p.wei} weights ahead of time: wei_tag='any'"
        if not unit.masks and p.m * p.k < unit.lanes:
            return f"{isa} has no masks: M * K of at least {unit.lanes}, not {p.m * p.k}"
        return _types(p, _INT8, p.wei if p.wei in WIDENED else "s8")

    def build(problem: Problem, machine: Machine) -> Kernel:
        assert isinstance(problem, MatmulProblem)
        return RefInt8(name, problem, unit).kernel()

    return KernelKind(name, isa, "s32", accepts, build, sources=_INT8, weights=("s8", *WIDENED))


_INT8 = ("u8", "s8")
_ROWS = (
    Row(FMA, "avx512_core", ("f32",), "f32"),
    Row(FMA, "avx2", ("f32",), "f32"),
    Row(BF16, "avx512_core_bf16", ("bf16",), "bf16"),
    Row(BF16, "avx512_core_bf16", ("f32",), "f32", "_down"),
    Row(F16, "avx512_core", ("f16",), "f16", "_f16"),
    Row(F16, "avx2", ("f16",), "f16", "_f16"),
    Row(BF16_STORED, "avx512_core", ("bf16",), "bf16", "_bf16_stored"),
    Row(BF16_STORED, "avx2", ("bf16",), "bf16", "_bf16_stored"),
    Row(BF16_EMULATED, "avx512_core", ("bf16",), "bf16", "_bf16_emulated", cut_as_emulated, "onednn"),
    Row(F16_DOWN, "avx512_core", ("f32",), "f32", "_f16_down"),
    Row(F16_DOWN, "avx2", ("f32",), "f32", "_f16_down"),
    Row(FP16, "avx512_core_fp16", ("f16",), "f16"),
    Row(FP16, "avx512_core_fp16", ("f32",), "f32", "_down"),
    Row(TF32, "avx512_core", ("f32",), "f32", "_tf32"),
    Row(TF32, "avx2", ("f32",), "f32", "_tf32"),
    Row(TF32_CUT, "avx512_core", ("f32",), "f32", "_tf32_cut"),
    Row(TF32_CUT, "avx2", ("f32",), "f32", "_tf32_cut"),
    Row(MULTIPLY_ADD, "avx512_core", ("f32",), "f32", "_ref", not_cut, "onednn"),
    Row(MULTIPLY_ADD, "avx2", ("f32",), "f32", "_ref", not_cut, "onednn"),
    Row(VNNI, "avx512_core_vnni", _INT8, "s8"),
    Row(VNNI, "avx2_vnni", _INT8, "s8"),
    Row(MADDUBS, "avx512_core", _INT8, "s8", "_int8"),
    Row(MADDUBS, "avx2", _INT8, "s8", "_int8"),
    Row(MADDWD, "avx512_core", _INT8, "s8", "_int8_exact"),
    Row(MADDWD, "avx2", _INT8, "s8", "_int8_exact"),
    _TileRow(TILED_BF16, "avx512_core_amx", ("bf16",), "bf16"),
    _TileRow(TILED_BF16, "avx512_core_amx", ("f32",), "f32", "_down"),
    _TileRow(TILED_F16, "avx512_core_amx_fp16", ("f16",), "f16"),
    _TileRow(TILED_F16, "avx512_core_amx_fp16", ("f32",), "f32", "_down"),
    _TileRow(TILED_U8, "avx512_core_amx", _INT8, "s8", "_int8"),
)
_FLOATS = ("f32", "bf16", "f16")
_DECOMPRESSING: tuple[tuple[str, Dot, tuple[str, ...], str], ...] = (
    ("avx512_core_bf16", BF16, ("bf16", "f32"), ""),
    ("avx512_core_fp16", FP16, ("f16", "f32"), ""),
    ("avx512_core_amx", TILED_BF16, ("bf16", "f32"), ""),
    ("avx512_core_amx_fp16", TILED_F16, ("f16", "f32"), ""),
    ("avx512_core", FMA, _FLOATS, ""),
    ("avx2", FMA, ("f32",), ""),
    ("avx512_core", MULTIPLY_ADD, _FLOATS, "_ref"),
    ("avx2", MULTIPLY_ADD, ("f32",), "_ref"),
)
_GEMV = (("avx2", "f32"), ("avx512_core_bf16", "bf16"), ("avx512_core", "f16"), ("avx2", "f16"))
_DEPTHWISE: tuple[tuple[str, tuple[str, ...], bool, str], ...] = (
    ("avx512_core", ("f32",), False, ""),
    ("avx2", ("f32",), False, ""),
    ("avx512_core_bf16", ("bf16",), False, ""),
    ("avx512_core", ("f16",), False, "_f16"),
    ("avx2", ("f16",), False, "_f16"),
    ("avx512_core", ("bf16",), False, "_bf16_stored"),
    ("avx2", ("bf16",), False, "_bf16_stored"),
    ("avx512_core_vnni", _INT8, False, ""),
    ("avx2_vnni", _INT8, False, ""),
    ("avx512_core", _INT8, True, ""),
    ("avx2", _INT8, True, ""),
    ("avx512_core", _INT8, False, "_exact"),
    ("avx2", _INT8, False, "_exact"),
)


def _kinds() -> tuple[KernelKind, ...]:
    kinds = [row.kind(MatmulProblem) for row in _ROWS]
    kinds += [row.kind(ConvProblem) for row in _ROWS if not row.reference]
    kinds += [_gemv(isa, dtype, plain) for isa, dtype in _GEMV for plain in (False, True)]
    kinds += [_gemv("avx512_core", "bf16", plain=False, emulated=True)]
    kinds += [_decompressing(*row) for row in _DECOMPRESSING]
    kinds += [_decompressing(*row, fused=True) for row in _DECOMPRESSING if row[1] in (BF16, FMA)]
    kinds += [_depthwise(*row) for row in _DEPTHWISE]
    kinds += [_ref_int8(isa) for isa in ("avx512_core", "avx2")]
    assert len({kind.name for kind in kinds}) == len(kinds)
    return tuple(kinds)


KERNELS: tuple[KernelKind, ...] = _kinds()
