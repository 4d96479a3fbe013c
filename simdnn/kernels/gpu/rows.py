"""The kernels of GPUs as rows: what a unit of a platform multiplies, and what it asks of a problem.

A row does a matmul, and by it the convolution whose pixels are the rows of its source (`implicit`). Depthwise
convolutions have a kernel of their own on the vector pipe of each platform. The rows themselves are those of
`intel_gpu.rows` and `nvidia.rows`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from isa_models import GpuMachine, Unimplemented
from isa_models.errors import OutOfRegisters
from isa_models.formats import fmt
from isa_models.gpu.platforms import Platform
from simdnn.kernels.common.epilogue import Epilogue
from simdnn.kernels.common.kernel import Kernel, KernelKind
from simdnn.kernels.common.narrow_floats import NARROW
from simdnn.kernels.gpu import depthwise
from simdnn.kernels.gpu.grid import lanes_for
from simdnn.kernels.gpu.implicit import as_convolution, view_copies
from simdnn.kernels.gpu.problem import GpuConvProblem, GpuMatmulProblem

INTEGERS = ("s8", "u8", "s4", "u4")
STORED = (*INTEGERS, *NARROW)  # weights that floats are made of
FLOATS = ("f32", "bf16", "f16")
_SPARE = (0, 24, 48, 96, 144)  # registers that a tile leaves, one after the other
Want = Callable[[Platform, GpuMatmulProblem], str]
Generator = Callable[[GpuMatmulProblem, GpuMachine], Kernel]


@dataclass(frozen=True)
class GpuRow:
    """A row of the kernel table: what a unit of a platform multiplies.

    Each of `wants(platform, problem)` answers why a problem of these types cannot be had, or "".
    """

    target: str
    platform: Platform
    unit: str  # mad | dp4a | dpas | fma | mma
    generator: Generator
    sources: tuple[str, ...]
    weights: tuple[str, ...]
    compute: str = ""  # the type multiplied; "": the one that operands are stored in
    decompresses: bool = False  # weights stored as integers, or as narrow floats, for a floating source
    strategy: str = ""  # how zero points are taken
    unasked: str = ""  # why that strategy runs only where it is asked for
    suffix: str = ""  # of the name
    tags: tuple[str, ...] = ("any", "ab", "ba")  # layouts of the weights that are read
    sums: str = ""  # the type of the unit's accumulators, where it is narrower than 32 bits
    mixes: bool = False  # floats of two types: `wants` says which
    scales_groups: bool = False  # of integers: sums of groups of K, each by its scale
    promotes: int = 0  # what the products of a partial sum are a multiple of, where a problem may say how many
    wants: tuple[Want, ...] = ()

    def kinds(self) -> tuple[KernelKind, KernelKind]:
        """The rows of the table: matmul and convolution."""
        name = f"{self.platform.name}_{self.unit}{self.suffix}"
        matmul = KernelKind(
            f"gemm:{name}",
            self.platform.name,
            self.compute,
            self.matmul,
            GpuMatmulProblem,
            target=self.target,
            sources=self.sources,
            weights=self.weights,
            multiplied=self.compute,
            accumulates=self.accumulates,
            promotes=self.promotes,
            tags=self.tags,
            takes=self.takes,
            mixes=self.decompresses or self.mixes,
            needs="decompression" if self.decompresses else "zero_points" if self.strategy else "",
            strategies=(self.strategy,) if self.strategy else (),
            unasked=self.unasked or self.narrow,
            wants=(self.wanted,),
            refine=self.refined,
        )
        convolution = replace(
            matmul,
            name=f"conv:{name}",
            generator=self.convolution,
            operation=GpuConvProblem,
            tags=("any",),
            takes=(*self.takes, "depth"),
            sizes=(_not_depthwise,),
            wants=(self.wanted_of_convolution,),
            refine=self.refined_convolution,
        )
        return matmul, convolution

    # -- what it takes --------------------------------------------------------------------------------------------
    @property
    def narrow(self) -> str:
        """Why "fastest" takes it only where its sums are asked for; empty where they have 32 bits."""
        return f"its sums are of {self.sums}: acc_mode={self.sums!r} takes it" if self.sums else ""

    @property
    def takes(self) -> tuple[str, ...]:
        """The parameters by group that it takes."""
        own = ("decompression",) if self.decompresses else ("zero_points",) if self.strategy else ()
        return (*own, "group_scales") if self.scales_groups and self.integer else own

    @property
    def integer(self) -> bool:
        """Whether integers are among its sources."""
        return not all(fmt(dtype).is_float for dtype in self.sources)

    @property
    def accumulates(self) -> tuple[str, ...]:
        """The types of its sums: f32 of floats, or a narrower one; s32 of integers."""
        if self.sums:
            return (self.sums,)
        multiplied = (self.compute,) if self.compute else self.sources
        return tuple(dict.fromkeys("f32" if fmt(dtype).is_float else "s32" for dtype in multiplied))

    def wanted(self, problem: GpuMatmulProblem) -> str:
        """Why a matmul of these types cannot be had; empty where it can."""
        return next(filter(None, (want(self.platform, problem) for want in self.wants)), "")

    def wanted_of_convolution(self, problem: GpuConvProblem) -> str:
        """Why a convolution of these types cannot be had; empty where it can."""
        return self.wanted(problem.product) or self.without_sums(problem.product)

    def without_sums(self, product: GpuMatmulProblem) -> str:
        """Why a strategy would do no more than another one: the source's zero point alone needs sums of the weights,
        which every strategy has from before the run.
        """
        zeros = product.zero_points
        if zeros and not zeros.wei and not zeros.strategy and self.strategy != "precomputed":
            return "does the work of 'precomputed' where weights have no zero point"
        return ""

    # -- what it makes of it --------------------------------------------------------------------------------------
    def refined(self, p: GpuMatmulProblem) -> GpuMatmulProblem:
        """The problem as the generator is asked."""
        on_matrices = self.unit == "dpas" and fmt(self.compute or p.src).is_float
        p = replace(p, float_model=p.float_model if on_matrices else "", sums=self.sums)
        if p.zero_points:
            zeros = replace(p.zero_points, strategy=self.strategy, wei_range=(0, 0), src_range=(0, 0))
            return replace(p, zero_points=zeros)
        if p.decompression:
            return replace(p, decompression=replace(p.decompression, computes=(self.compute,)), compute=self.compute)
        if self.compute == "tf32":
            return replace(p, src="tf32", wei="tf32")
        return replace(p, compute=self.compute if self.compute != p.src else "")

    def refined_convolution(self, p: GpuConvProblem) -> GpuConvProblem:
        """The convolution whose product is refined."""
        found = self.refined(p.product)
        return replace(
            p,
            src=found.src,
            wei=found.wei,
            epilogue=found.epilogue,
            float_model=found.float_model,
            zero_points=found.zero_points,
            decompression=found.decompression,
        )

    def matmul(self, problem: GpuMatmulProblem, machine: GpuMachine) -> Kernel:
        """The kernel of a matmul, of the greatest tile that leaves room for what is computed behind the sums."""
        p, name = self.refined(problem), f"gemm:{self.platform.name}_{self.unit}{self.suffix}"
        for spare in _SPARE:
            try:
                return named(self.generator(replace(p, spare=spare), machine), name)
            except OutOfRegisters:
                continue
        raise _no_room(p.epilogue, machine)

    def convolution(self, problem: GpuConvProblem, machine: GpuMachine) -> Kernel:
        """The kernel of a convolution."""
        p = self.refined_convolution(problem)
        kernel = as_convolution(self.matmul(p.product, machine), p)
        return replace(kernel, copies=tuple(view_copies(p, kernel.program).items()))


def named(kernel: Kernel, name: str) -> Kernel:
    """The kernel, and its programs, by another name."""
    if kernel.name == name:
        return kernel
    programs = [p and p.renamed(p.name.replace(kernel.name, name, 1)) for p in (kernel.program, kernel.timed)]
    assert programs[0] is not None
    return replace(kernel, name=name, program=programs[0], timed=programs[1])


def depthwise_kind(target: str, platform: Platform) -> KernelKind:
    """The row of depthwise convolutions on a platform's vector pipe, in f32."""
    return KernelKind(
        f"conv:{platform.name}_depthwise",
        platform.name,
        "f32",
        _depthwise,
        GpuConvProblem,
        target=target,
        sources=(*FLOATS, "s8", "u8"),
        weights=(*FLOATS, "s8", "u8"),
        multiplied="f32",
        accumulates=("f32",),
        tags=("any",),
        takes=("decompression", "zero_points", "depth"),
        sizes=(_depthwise_alone,),
        wants=(_no_strategy,),
    )


def _depthwise_alone(problem: GpuConvProblem) -> str:
    if depthwise.accepts(problem):
        return ""
    return "computes depthwise convolutions only, of weights of 8 bits or more (no f8) without a zero point"


def _not_depthwise(problem: GpuConvProblem) -> str:
    return "depthwise convolutions have a kernel of their own" if depthwise.accepts(problem) else ""


def _no_strategy(problem: GpuConvProblem) -> str:
    if problem.zero_points and problem.zero_points.strategy:
        return f"subtracts the zero point from each element: no {problem.zero_points.strategy!r}; what works: 'auto'"
    return ""


def _depthwise(problem: GpuConvProblem, machine: GpuMachine) -> Kernel:
    """The kernel of the widest vectors that leave room for what is computed behind the sums."""
    lanes = lanes_for(problem.oc)
    while lanes:
        try:
            return depthwise.GpuDepthwise(problem, machine, lanes).kernel()
        except OutOfRegisters:
            lanes //= 2
    raise _no_room(problem.epilogue, machine)


def _no_room(epilogue: Epilogue, machine: GpuMachine) -> Unimplemented:
    """The refusal of post-operations that a thread has no registers for."""
    kinds = ", ".join(op.kind for op in epilogue.post_ops)
    needed = "more than the registers of a thread; what works: fewer of them"
    return Unimplemented(f"post-operations {kinds} on {machine.name!r}: {needed}")
