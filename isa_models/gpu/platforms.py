"""Facts of a platform for GPU kernels and the clock, so that a refusal can name it.

Each vendor's are rows of its own: `isa_models.intel_gpu.platforms` and `isa_models.nvidia.platforms`.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

PLATFORMS: dict[str, Platform] = {}  # of all vendors
MOST_GRFS = 256  # registers of a thread in large-GRF mode, which halves the threads of an engine
RESERVED_GRFS = 8  # estimated: thread payload, addresses and loop counters, which Programs do not name


@dataclass(frozen=True)
class WarpProduct:
    """A product that a warp forms at a time: m x k of A by k x n of B, in one type.

    `copies`: how many threads hold each element of A, and of B. `sizes`: rows and columns of the workgroups that a
    library has kernels for; without any, those are taken that cost the least. `warps`: how many warps form the products
    of neighbouring rows together, each its own, from one B that lies in shared memory (wgmma). `widest`: the most
    columns, where there are forms of any multiple of `n` up to it.
    """

    m: int
    n: int
    k: int
    copies: tuple[int, int] = (1, 1)
    sizes: Collection[tuple[int, int]] = ()
    warps: int = 1
    widest: int = 0

    def columns_for(self, columns: int) -> int:
        """Columns of the widest form that a workgroup's columns are a multiple of.

        >>> [WarpProduct(16, 8, 16, widest=256).columns_for(n) for n in (64, 208, 320)]
        [64, 208, 160]
        """
        wide = range(max(self.n, self.widest), self.n - 1, -self.n)
        return next((n for n in wide if columns % n == 0), self.n)


@dataclass(frozen=True)
class Platform:
    """A generation of GPUs: its registers, and what its matrix instructions multiply.

    Intel's have DPAS, or (`exec_size` 0) none; `floats`: operand type -> accumulator types. NVIDIA's have a `warp`;
    `cuda_cores` and `tensor_cores` say what one multiplies, the latter by operand type, and `warp_groups` what four of
    them do.
    """

    name: str
    title: str
    grf_bytes: int
    exec_size: int = 0
    floats: tuple[tuple[str, tuple[str, ...]], ...] = ()
    why_not: tuple[tuple[str, str], ...] = ()  # "tf32" or "acc", which one might expect: why it is not there
    mixed_integers: bool = True  # operands of different widths, and 2 bits
    dpasw: bool = False
    block_loads: bool = False  # messages that read a block of a plain matrix, in DPAS order, straight from L1

    warp: int = 0  # lanes of each register
    cuda_cores: WarpProduct | None = None
    tensor_cores: tuple[tuple[str, WarpProduct], ...] = field(default=(), repr=False)
    warp_groups: tuple[tuple[str, WarpProduct], ...] = field(default=(), repr=False)
    async_copies: bool = False  # from memory into shared memory, past the registers (cp.async, TMA)
    cluster: int = 1  # neighbouring workgroups that what one of them loads can be sent to (TMA multicast)

    @property
    def has_matrix_unit(self) -> bool:
        """Whether there is a systolic array, or tensor cores."""
        return bool(self.exec_size or self.tensor_cores)

    @property
    def multiplied(self) -> tuple[str, ...]:
        """Types of operands that the kernels of a platform with warps take as they are stored.

        Without tensor cores, f16 is widened to f32 on CUDA cores, as libraries do: a GP102 (Pascal) multiplies f16 at
        1/64 of f32's rate.
        """
        taken = (dtype for dtype in self.matrix_types if dtype != "tf32")
        return (*taken, "f32") if self.tensor_cores else ("f16", "f32")

    @property
    def matrix_types(self) -> tuple[str, ...]:
        """Types of operands that tensor cores take in kernels here."""
        return tuple(dict((*self.warp_groups, *self.tensor_cores)))

    def warp_product(self, dtype: str) -> WarpProduct | None:
        """The product that a warp forms in a type: on tensor cores where they take it, f32 on CUDA cores."""
        return dict(self.tensor_cores).get(dtype, self.cuda_cores if dtype == "f32" else None)

    def accumulators(self, dtype: str) -> tuple[str, ...]:
        """Types of the accumulator and the result for float operands of `dtype`; empty: not such operands."""
        return dict(self.floats).get(dtype, ())


def register(*platforms: Platform) -> dict[str, Platform]:
    """Add platforms, by their names, to those of all vendors; the answer holds these alone."""
    found = {platform.name: platform for platform in platforms}
    PLATFORMS.update(found)
    return found
