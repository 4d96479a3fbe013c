"""The one table of kernels, whatever the target: each target's rows, in the order in which they are shown."""

from __future__ import annotations

import copyreg
from collections.abc import Collection
from typing import Any

from simdnn.kernels.common.spec import KernelKind
from simdnn.kernels.intel_gpu import rows as intel_gpu
from simdnn.kernels.nvidia import rows as nvidia
from simdnn.kernels.x86 import rows as x86

KERNELS: tuple[KernelKind, ...] = (*x86.KERNELS, *intel_gpu.KERNELS, *nvidia.KERNELS)
_NAMED = {kind.name: kind for kind in KERNELS}
assert len(_NAMED) == len(KERNELS)


def kind_of(name: str) -> KernelKind | None:
    """The row of a name, or None."""
    return _NAMED.get(name)


def rows_for(isa: Collection[str]) -> tuple[KernelKind, ...]:
    """The rows of the target that has these ISA caps: all of x86, whatever the caps; of a GPU its platform's."""
    return tuple(kind for kind in (*intel_gpu.KERNELS, *nvidia.KERNELS) if kind.isa in isa) or x86.KERNELS


def _reduced(kind: KernelKind) -> str | tuple[Any, ...]:
    """A row of the table pickles and copies by its name."""
    return (kind_of, (kind.name,)) if kind_of(kind.name) is kind else kind.__reduce_ex__(2)


copyreg.pickle(KernelKind, _reduced)
