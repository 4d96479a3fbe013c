"""Kernels: generators of Programs. `kernels` is the table that dispatch chooses from, `KERNELS` what it ships with."""

from simdnn.kernels.common.spec import ConvProblem, Epilogue, Kernel, KernelKind, MatmulProblem, Parameters, Problem
from simdnn.kernels.table import KERNELS, kernels, kind_of, register

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
