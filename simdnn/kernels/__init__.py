"""Kernels: generators of Programs. `kernels` is the table that dispatch chooses from, `KERNELS` what it ships with."""

from simdnn.kernels.common.spec import ConvProblem, Epilogue, Kernel, KernelKind, MatmulProblem, Parameters, Problem
from simdnn.kernels.table import kernels, kind_of, own_kernels, register

__all__ = [
    "KERNELS",
    "ConvProblem",
    "Epilogue",
    "Kernel",
    "KernelKind",
    "MatmulProblem",
    "Parameters",
    "Problem",
    "kernels",
    "kind_of",
    "register",
]


def __getattr__(name: str) -> tuple[KernelKind, ...]:
    if name == "KERNELS":
        return own_kernels()
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
