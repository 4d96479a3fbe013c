"""Kernels: generators of Programs. `KERNELS` is the table that dispatch chooses from."""

from simdnn.kernels.common.spec import ConvProblem, Epilogue, Kernel, KernelKind, MatmulProblem, Parameters, Problem
from simdnn.kernels.table import KERNELS

__all__ = [
    "KERNELS",
    "ConvProblem",
    "Epilogue",
    "Kernel",
    "KernelKind",
    "MatmulProblem",
    "Parameters",
    "Problem",
]
