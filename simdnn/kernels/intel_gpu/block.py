"""The blocks of Intel's matrix instructions: DPAS, and DP4A and mad where that lacks a type, or is lacking."""

from __future__ import annotations

from dataclasses import dataclass

from isa_models import GpuMachine
from isa_models.formats import fmt
from isa_models.intel_gpu.dpas import DpasShape
from isa_models.intel_gpu.product_steps import DOT, PRODUCT
from simdnn.kernels.gpu.tile import Block

VECTOR_K = 8  # k of a step on the vector pipe: 32 bytes of f32 in a row of A


@dataclass(frozen=True)
class XeBlock(Block):
    """A DPAS, or the DP4As or mads that do the work of one."""

    model: str = ""  # how DPAS adds up floats

    @property
    def instruction(self) -> str:
        match self.unit:
            case "dpas":
                return DpasShape(self.wei, self.src, self.acc, self.acc, self.m, self.n, self.model).name
            case "mad":
                return PRODUCT.of(m=self.m, n=self.n, k=self.k)
        return DOT.of(b=self.wei, a=self.src, m=self.m, n=self.n)

    def rate(self, machine: GpuMachine) -> float:
        if self.unit == "dpas":
            return machine.dpas_rate(self.src, self.wei)
        return machine.vector_ops["f32" if self.unit == "mad" else "dp4a"]


def block_of(machine: GpuMachine, m: int, src: str, wei: str, model: str, sums: str = "") -> XeBlock:
    """The block for a problem of `m` rows: eight of them, or as many as there are; `sums` where they are narrow."""
    platform = machine.platform
    rows = min(8, m)
    if fmt(src).is_float and (src == "f32" or not platform.exec_size):
        return XeBlock(rows, 16, VECTOR_K, src, wei, "mad")
    if platform.exec_size:
        shape = DpasShape(wei, src, "f32" if fmt(src).is_float else "s32", "null", rows, platform.exec_size, model)
        return XeBlock(rows, platform.exec_size, shape.k, src, wei, "dpas", model=model, sums=sums)
    return XeBlock(rows, 16, 32, src, wei, "dp4a")
