"""The kernels there are, as rows: which problems each takes and which generator builds it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from isa_models import Machine
from simdnn.kernels.code import unit_of
from simdnn.kernels.depthwise import Depthwise
from simdnn.kernels.dots import BF16, FMA, MADDUBS, MADDWD, VNNI, Dot
from simdnn.kernels.gemm import Gemm, Options
from simdnn.kernels.gemv import Gemv
from simdnn.kernels.order import Order, order_of
from simdnn.kernels.spec import ConvProblem, Kernel, KernelKind, MatmulProblem, Problem


def _types(problem: Problem, sources: tuple[str, ...], weights: str) -> str:
    if problem.src not in sources or problem.wei != weights:
        return f"computes {'/'.join(sources)} sources with {weights} weights, not {problem.src}:{problem.wei}"
    return ""


def is_depthwise(problem: Problem) -> bool:
    return isinstance(problem, ConvProblem) and problem.groups > 1 and problem.groups == problem.ic == problem.oc


@dataclass(frozen=True)
class _Row:
    """A GEMM or convolution kernel: a dot product on a unit."""

    dot: Dot
    isa: str
    sources: tuple[str, ...]
    weights: str
    suffix: str = ""

    def accepts(self, operation: type[MatmulProblem] | type[ConvProblem]) -> Callable[[Problem], str]:
        def answer(problem: Problem) -> str:
            if not isinstance(problem, operation):
                return f"computes {'matmul' if operation is MatmulProblem else 'convolution'} only"
            if is_depthwise(problem):
                return "depthwise convolutions have a kernel of their own"
            if problem.epilogue.dst == "bf16" and not unit_of(self.isa).masks:
                return f"{self.isa} has no kernel that stores bf16"
            if isinstance(problem, ConvProblem) and problem.epilogue.zp_wei:
                return "a convolution has no weights zero point"
            return _types(problem, self.sources, self.weights)

        return answer

    def options(self, problem: Problem) -> Options:
        """Where sums are cut and what else follows oneDNN 3.13 (docs/numerics.md, rules 4, 5, 7, 8 and 9)."""
        wide = unit_of(self.isa).masks
        conv = isinstance(problem, ConvProblem)
        k = problem.ic // problem.groups if isinstance(problem, ConvProblem) else problem.k
        fast = self.dot is MADDUBS
        split = -(-k // 2) if fast and not conv and not wide and 256 < k < 768 else 0
        cut = 0
        if self.dot.acc == "f32" and not conv:
            cut = 512 if wide and k <= 1024 else 1024
        elif self.dot is FMA and wide:
            cut = 1280
        elif self.dot is FMA and k > 2048:
            cut = 320
        merged = self.dot.acc == "s32" and not wide and not (conv and self.dot is MADDWD)
        halve = conv and fast and problem.src == "s8"
        order = order_of(problem, self.dot, wide, halve) if isinstance(problem, ConvProblem) else Order()
        return Options(halve, merged, cut, split, order, through_float=conv and not wide)

    def build(self, name: str) -> Callable[[Problem, Machine], Kernel]:
        def make(problem: Problem, machine: Machine) -> Kernel:
            return Gemm(name, problem, unit_of(self.isa), self.dot, self.options(problem)).kernel()

        return make


def _depthwise(isa: str, source_types: tuple[str, ...], halves: bool = False, suffix: str = "") -> KernelKind:
    """`halves`: s8 sources make it halve its weights, as the library does without VNNI."""
    integer = "u8" in source_types
    name = f"dw:{isa}" + ("_int8" if integer else "") + suffix

    def accepts(problem: Problem) -> str:
        if not isinstance(problem, ConvProblem) or not is_depthwise(problem):
            return "computes depthwise convolutions only"
        if problem.src not in source_types:
            return f"computes {'/'.join(source_types)} sources, not {problem.src}"
        if problem.epilogue.dst == "bf16" and not unit_of(isa).masks:
            return f"{isa} has no kernel that stores bf16"
        if problem.epilogue.zp_wei:
            return "a convolution has no weights zero point"
        return _types(problem, source_types, "s8" if integer else problem.src)

    def build(problem: Problem, machine: Machine) -> Kernel:
        assert isinstance(problem, ConvProblem)
        unit = unit_of(isa)
        halve = halves and problem.src == "s8"
        return Depthwise(name, problem, unit, halve, integer and not unit.masks).kernel()

    return KernelKind(name, isa, "s16" if integer else "f32", accepts, build, ConvProblem, exact=not halves)


def _gemv(isa: str, dtype: str, plain: bool) -> KernelKind:
    name = f"gemv:{isa}" + ("_plain" if plain else "") + ("_bf16" if plain and dtype == "bf16" else "")

    def accepts(problem: Problem) -> str:
        if not isinstance(problem, MatmulProblem) or 1 not in (problem.m, problem.n):
            return "computes matrix times vector only (M = 1 or N = 1)"
        if problem.epilogue.dst == "bf16" and not unit_of(isa).masks:
            return f"{isa} has no kernel that stores bf16"
        stored_plain = problem.n > 1 and problem.wei_tag == "ab"
        if plain != stored_plain:
            return "wants " + ("plain (K, N) weights with M = 1" if plain else "weights contiguous along K")
        return _types(problem, (dtype,), dtype)

    def build(problem: Problem, machine: Machine) -> Kernel:
        assert isinstance(problem, MatmulProblem)
        return Gemv(name, problem, unit_of(isa), plain).kernel()

    return KernelKind(name, isa, "bf16" if dtype == "bf16" and not plain else "f32", accepts, build)


_INT8 = ("u8", "s8")
_ROWS = (
    _Row(FMA, "avx512_core", ("f32",), "f32"),
    _Row(FMA, "avx2", ("f32",), "f32"),
    _Row(BF16, "avx512_core_bf16", ("bf16",), "bf16"),
    _Row(VNNI, "avx512_core_vnni", _INT8, "s8"),
    _Row(MADDUBS, "avx512_core", _INT8, "s8", "_int8"),
    _Row(MADDUBS, "avx2", _INT8, "s8", "_int8"),
    _Row(MADDWD, "avx512_core", _INT8, "s8", "_int8_exact"),
    _Row(MADDWD, "avx2", _INT8, "s8", "_int8_exact"),
)
_GEMV = (("avx2", "f32"), ("avx512_core_bf16", "bf16"))
_DEPTHWISE: tuple[tuple[str, tuple[str, ...], bool, str], ...] = (
    ("avx512_core", ("f32",), False, ""),
    ("avx2", ("f32",), False, ""),
    ("avx512_core_bf16", ("bf16",), False, ""),
    ("avx512_core_vnni", _INT8, False, ""),
    ("avx512_core", _INT8, True, ""),
    ("avx2", _INT8, True, ""),
    ("avx512_core", _INT8, False, "_exact"),
    ("avx2", _INT8, False, "_exact"),
)


def _kinds() -> tuple[KernelKind, ...]:
    kinds = []
    for family, operation in (("gemm", MatmulProblem), ("conv", ConvProblem)):
        for row in _ROWS:
            name = f"{family}:{row.isa}{row.suffix}"
            exact = row.dot is not MADDUBS
            accepts, build = row.accepts(operation), row.build(name)
            kinds.append(KernelKind(name, row.isa, row.dot.compute, accepts, build, operation, exact))
    kinds += [_gemv(isa, dtype, plain) for isa, dtype in _GEMV for plain in (False, True)]
    kinds += [_depthwise(*row) for row in _DEPTHWISE]
    assert len({kind.name for kind in kinds}) == len(kinds)
    return tuple(kinds)


KERNELS: tuple[KernelKind, ...] = _kinds()
