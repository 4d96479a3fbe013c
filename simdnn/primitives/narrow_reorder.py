"""Reorders to floats of at most a byte and from them: which there are, and their values (docs/numerics.md, rule 16)."""

from __future__ import annotations

import numpy as np

from isa_models import InvalidArgument, Machine, Unimplemented
from isa_models.formats import fmt
from isa_models.readings.arrays import Array
from simdnn.kernels.common.narrow_floats import is_narrow
from simdnn.kernels.x86 import convert
from simdnn.kernels.x86.code import unit_of
from simdnn.libraries import no_reorder
from simdnn.primitives import arrays
from simdnn.primitives.checks import vector_cap
from simdnn.primitives.descriptors import MemoryDesc
from simdnn.program.records import Program


def takes_part(source: str, target: str) -> bool:
    """Whether a narrow float is converted, or made."""
    return is_narrow(source) or is_narrow(target)


def conversion(source: MemoryDesc, desc: MemoryDesc, machine: Machine, caps: frozenset[str]) -> Program:
    """The program that converts a plain array. Raises `InvalidArgument` for another shape, `Unimplemented` for pairs
    that the library refuses or does not write, for layouts, and below AVX2.
    """
    if source.shape != desc.shape:
        raise InvalidArgument(f"desc of shape {desc.shape} for an array of shape {source.shape}")
    if desc.blocked or desc.tag not in ("any", source.tag):
        raise Unimplemented(f"reorder of {source.dtype} to {desc}: narrow floats keep their layout, {source.tag!r}")
    if desc.dtype not in convert.PAIRS.get(source.dtype, ()):
        said = no_reorder(source.dtype, desc.dtype)
        works = "; ".join(f"{name} to {', '.join(targets)}" for name, targets in convert.PAIRS.items())
        raise Unimplemented(f"reorder of {source.dtype} to {desc.dtype}: {said}; what works: {works}")
    cap = vector_cap(caps)
    if not cap:
        raise Unimplemented(f"reorder of {source.dtype} to {desc.dtype} on {machine.name}: needs avx2")
    size = int(np.prod(source.shape))
    return convert.conversion(source.dtype, desc.dtype, size, unit_of(cap), "avx512_core_fp16" in caps)


def values(program: Program, array: Array, desc: MemoryDesc, engine: str) -> dict[str, Array]:
    """The array that the program makes of another."""
    from simdnn import numerics  # brings LLVM

    plain, tensor = arrays.native(array).reshape(-1), program.tensor["plain"]
    with np.errstate(all="ignore"):
        outputs = numerics.run(program, {"plain": plain.view(fmt(tensor.dtype).dtype)}, engine=engine)
    return {"wei": outputs["wei"].view(fmt(desc.dtype).dtype)}
