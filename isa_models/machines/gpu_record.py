"""GPUs as data: one TOML file each in `isa_models/machines/gpu`, with a source and a confidence for every figure.

    >>> from isa_models import machine
    >>> a770 = machine("a770")
    >>> a770.engines, a770.peak_ops("s8") / 1e12
    (512, 275.2512)

A GPU is `stacks` of `xe_cores`; a core has `engines_per_core` in-order engines that switch between threads, a vector
pipe and (not on Xe-LP) a systolic pipe each, and shares its L1. The cores of a stack share L2 and DRAM. On NVIDIA's the
core is an SM, the engine one of its four partitions with a warp scheduler, the thread a warp, the vector pipe its CUDA
cores and the systolic pipe its tensor cores.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from isa_models.errors import UnknownTiming, unknown_name
from isa_models.gpu.platforms import MOST_GRFS, Platform
from isa_models.keywords import keywords_of_methods, typed_parts
from isa_models.machines.identity import Identical
from isa_models.machines.provenance import Confidence, Provenance, weakest, weakest_below
from isa_models.records.display import InNotebooks
from isa_models.records.frozen import Frozen

#: operand types that a file may have rates of
SYSTOLIC_TYPES = ("tf32", "f16", "bf16", "f8_e4m3", "f8_e5m2", "s8", "s4")
#: of Intel's: operand type -> the type whose systolic rate it has
_SYSTOLIC_AS = {"bf16": "f16", "u8": "s8", "u4": "s4", "s2": "s4", "u2": "s4"}


@dataclass(frozen=True, slots=True)
class GpuCache(InNotebooks):
    """A cache: L1 of one Xe-core, or L2 of one stack. `bytes_per_cycle` flow towards each core."""

    name: str
    size_bytes: int
    line_bytes: int
    bytes_per_cycle: float


@dataclass(frozen=True, slots=True)
class Latency:
    """Cycles from issue to use."""

    dpas: Mapping[int, float]  # by repeat count; empty without a systolic array
    vector: float
    vector_wide: float  # for each further register-sized pass
    math: float
    l1: float
    slm: float
    l2: float
    dram: float
    barrier: float
    mma: float = 0.0  # NVIDIA: of one mma instruction of a warp

    def dpas_of(self, repeats: int) -> float:
        """Between the counts that are known, along a line.

        >>> from isa_models import machine
        >>> machine("max1100").latency.dpas_of(5)
        25.0
        """
        low = max(n for n in self.dpas if n <= repeats)
        high = min(n for n in self.dpas if n >= repeats)
        if low == high:
            return self.dpas[low]
        return self.dpas[low] + (self.dpas[high] - self.dpas[low]) * (repeats - low) / (high - low)


@keywords_of_methods
@typed_parts("isa_models.machine")
@dataclass(frozen=True, slots=True, eq=False)
class GpuMachine(Identical):
    """One GPU. Rates are operations a clock of one engine, a multiply-accumulate being two."""

    name: str
    title: str
    vendor: str
    platform: Platform
    xe_cores: int  # of one stack
    engines_per_core: int
    stacks: int
    ghz: float  # that times are given at: the vendor's graphics clock, or the one clock that is known
    max_ghz: float | None
    base_ghz: float | None
    threads: int  # of an engine with 128 registers each
    vector_ops: Mapping[str, float]  # "f32", "f16", "dp4a"
    s32_multiply_share: float  # rate of 32-bit integer products over that of f32
    systolic_ops: Mapping[str, float]  # "tf32", "f16", "s8", "s4"
    co_issue: bool  # vector and systolic pipe at once, for different threads
    latency: Latency
    caches: tuple[GpuCache, GpuCache]
    dram_gb_s: float  # of one stack: the vendor's figure
    sustained_gb_s: float  # what a streaming kernel gets of that, where it is known
    provenance: Mapping[str, Provenance] = field(repr=False)
    path: Path
    conversion_share: float = 1.0  # rate of conversions between types over that of f32
    #: NVIDIA: rate of the pipe of comparisons, choices, bits and sums of integers over that of f32; 0: it is f32's pipe
    alu_share: float = 0.0
    special_share: float = 0.0  # NVIDIA: rate of the special function unit over that of f32; 0: not known
    launch_us: float = 0.0  # between a kernel's end and the start of the next one in line; 0: not modelled
    staged_us: float = 0.0  # beside, of a kernel whose threads bring operands into shared memory
    read_gb_s: float = 0.0  # as `sustained_gb_s`, of a kernel that writes nothing; 0: the same
    mma_share: float = 1.0  # what mma of a single warp reaches of a rate that is wgmma's
    dpas_share: float = 1.0  # what DPAS reach of their rate, one after another
    f16_sums_share: float = 1.0  # rate of products with f16 sums over that with f32 sums
    #: by operand type, what power leaves while matrix pipes never rest
    full_load_ghz: Mapping[str, float] = field(default_factory=lambda: Frozen({}))
    #: operations of a product of f16 that take as much energy as one lane's instruction beside; 0: this is not known
    lane_ops: float = 0.0

    def __repr__(self) -> str:
        caches = ", ".join(
            f"{name} {level.size_bytes >> 10:,} KiB" for name, level in zip(("L1", "L2"), self.caches, strict=True)
        )
        return (
            f"GpuMachine({self.name!r}: {self.title}; {self.engines} engines at {self.ghz} GHz; {caches}, "
            f"{self.dram_gb_s * self.stacks:.0f} GB/s; {self.path.name})"
        )

    @property
    def engines(self) -> int:
        return self.stacks * self.xe_cores * self.engines_per_core

    @property
    def l1(self) -> GpuCache:
        return self.caches[0]

    @property
    def l2(self) -> GpuCache:
        return self.caches[1]

    @property
    def nvidia(self) -> bool:
        return bool(self.platform.warp)

    def clock_under(self, load: Mapping[str, float]) -> float:
        """GHz of a kernel that keeps matrix pipes at work on operands of some types for a share of its time each.

        Power grows with what they do in a second, so a kernel that leaves them idle at times runs at a higher clock.
        `load` is found at `ghz`.

        >>> from isa_models import machine
        >>> h100 = machine("h100")
        >>> h100.clock_under({"bf16": 1.0}), h100.clock_under({"bf16": 0.5})
        (1.5, 1.98)
        """
        taken = sum(share / self.full_load_ghz.get(kind, math.inf) for kind, share in load.items())
        return min(self.ghz, 1 / taken if taken else math.inf)

    def stream_gb_s(self, read: float, written: float) -> float:
        """GB/s that a stack's memory sustains. Bytes written, and twice as many bytes read, go at `sustained_gb_s`, a
        triad's rate; the other bytes read go at `read_gb_s`.

        >>> from isa_models import machine
        >>> h100 = machine("h100")
        >>> h100.stream_gb_s(2, 1) == h100.sustained_gb_s, h100.stream_gb_s(1, 0) == h100.read_gb_s
        (True, True)
        """
        mixed = min(read + written, 3 * written)
        seconds = mixed / self.sustained_gb_s + (read + written - mixed) / (self.read_gb_s or self.sustained_gb_s)
        return (read + written) / seconds if seconds else self.sustained_gb_s

    def threads_of(self, registers: int) -> int:
        """Threads of an engine that use up to `registers` GRFs each: large-GRF mode halves them."""
        if registers > MOST_GRFS:
            raise unknown_name("number of GRFs", registers, ["128", "256"])
        return self.threads if registers <= MOST_GRFS // 2 else self.threads // 2

    def systolic_rate(self, a: str, b: str) -> tuple[float, str]:
        """Operations a clock of DPAS with these operand types, and the type whose rate it is.

        The wider operand decides. `UnknownTiming` where there is no such rate.
        """
        alike = {"u8": "s8"} if self.nvidia else _SYSTOLIC_AS
        kinds = [alike.get(dtype, dtype) for dtype in (a, b)]
        kind = "s8" if "s8" in kinds else kinds[0]
        if kind not in self.systolic_ops:
            have = ", ".join(self.systolic_ops) or "no DPAS at all (DP4A works)"
            unit = "mma" if self.nvidia else "DPAS"
            raise UnknownTiming(f"machine {self.name!r} has no rate of {unit} for {a} x {b}; it has {have}")
        return self.systolic_ops[kind], kind

    def dpas_rate(self, a: str, b: str) -> float:
        """Operations a clock that an engine's DPAS reach.

        >>> from isa_models import machine
        >>> stack = machine("max1550_stack")
        >>> stack.dpas_rate("bf16", "bf16") / stack.systolic_rate("bf16", "bf16")[0] == stack.dpas_share
        True
        """
        return self.systolic_rate(a, b)[0] * self.dpas_share

    def mma_rate(self, a: str, b: str, result: str = "f32", grouped: bool = False) -> float:
        """Operations a clock of NVIDIA's mma of one warp, or (`grouped`) of four, with sums of a type."""
        share = 1.0 if grouped or not self.platform.warp_groups else self.mma_share
        return self.systolic_rate(a, b)[0] * share * (self.f16_sums_share if result == "f16" else 1.0)

    def peak_ops(self, dtype: str) -> float:
        """Operations a second of all engines: systolic, or for "dp4a" and "f32" the vector pipe."""
        rate = self.vector_ops[dtype] if dtype in ("f32", "dp4a") else self.systolic_rate(dtype, dtype)[0]
        return rate * self.engines * self.ghz * 1e9

    def confidence_of(self, *keys: str) -> Confidence:
        """The weakest standing among figures by dotted keys; a key that ends a level covers all below it."""
        return weakest([weakest_below(self, key) for key in keys])
