"""Kernels whose source, weights or destination are narrower floats: stages around rows of wider floats."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from typing import Any

from simdnn.kernels.common.kernel import Kernel, KernelKind
from simdnn.kernels.common.narrow_floats import Narrow, is_narrow
from simdnn.kernels.common.problems import ConvProblem, MatmulProblem, Problem
from simdnn.kernels.x86.narrowed import as_f32, narrowing
from simdnn.kernels.x86.widened import from_codes
from simdnn.program.check import drafts


def around(kind: KernelKind) -> KernelKind:
    """The row, which takes narrow sources and destinations as well, by stages around its program."""
    source = kind.compute_dtype if kind.compute_dtype in kind.sources else ""
    made = partial(_staged, kind.generator, source)
    wants = (*kind.wants, _not_of_a_reference)
    return replace(kind, generator=made, plain=partial(_plain, source), takes=(*kind.takes, "narrow"), wants=wants)


def _not_of_a_reference(problem: Problem) -> str:
    narrow = problem.narrow if isinstance(problem, MatmulProblem) else None
    return "rounds once, not as a library's reference does" if narrow and narrow.reference else ""


def _plain(source: str, problem: Problem) -> Problem:
    """The problem that the row itself is asked; as it is where no stage could lead to it."""
    if isinstance(problem, ConvProblem):
        return _plain_convolution(source, problem)
    narrow = problem.narrow
    if narrow is None or narrow.reference:
        return problem
    if is_narrow(problem.src) and not source or narrow.src and not is_narrow(problem.src):
        return problem
    inner = as_f32(problem) if narrow.dynamic or is_narrow(problem.epilogue.dst) else problem
    return replace(inner, src=source if is_narrow(problem.src) else problem.src, narrow=None)


def _plain_convolution(source: str, problem: ConvProblem) -> ConvProblem:
    """The convolution of floats that the row multiplies, to f32 where a stage behind it narrows what it leaves.

    Beside f32 sources weights of bf16 or f16 become f32, as narrow ones do.
    """
    if (problem.src, source) == ("f32", "f32") and problem.wei in ("bf16", "f16"):
        return replace(problem, wei="f32", read=problem.wei if problem.tiles else "")
    if not is_narrow(problem.src) or not source:
        return problem
    found = as_f32(problem) if is_narrow(problem.epilogue.dst) else problem
    return replace(found, src=source, wei=source)


def _staged(build: Callable[[Any, Any], Kernel], source: str, problem: Problem, machine: Any) -> Kernel:
    """The row's kernel, with the stages that a problem wants."""
    if isinstance(problem, ConvProblem):
        return _staged_convolution(build, source, problem, machine)
    if problem.narrow is None:
        return build(problem, machine)
    plain = _plain(source, problem)
    ahead, behind = plain.src != problem.src, problem.narrow.dynamic or is_narrow(problem.epilogue.dst)
    with drafts() if ahead or behind else nullcontext():
        kernel = build(plain, machine)
    with drafts() if behind else nullcontext():
        kernel = from_codes(kernel, problem) if ahead else kernel
    return narrowing(kernel, problem, problem.narrow) if behind else kernel


def _staged_convolution(build: Callable[[Any, Any], Kernel], source: str, problem: ConvProblem, machine: Any) -> Kernel:
    """A convolution's kernel; a narrow source has weights of its type, which are widened once a run as it is."""
    plain = _plain_convolution(source, problem)
    if plain is problem:
        return build(plain, machine)
    with drafts():
        kernel = build(plain, machine)
    if plain.epilogue.dst == problem.epilogue.dst:
        return from_codes(kernel, problem, panels=True)
    with drafts():
        kernel = from_codes(kernel, problem, panels=True)
    return narrowing(kernel, problem, Narrow())
