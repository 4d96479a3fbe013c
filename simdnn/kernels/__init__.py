"""Kernels: generators of Programs. `kernels` is the table that dispatch chooses from, `KERNELS` what it ships with."""

from simdnn.kernels.common.epilogue import Epilogue, Parameters
from simdnn.kernels.common.kernel import Kernel, KernelKind
from simdnn.kernels.common.problems import ConvProblem, MatmulProblem, Problem
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
