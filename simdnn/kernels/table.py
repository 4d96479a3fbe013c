"""The one table of kernels, whatever the target: each target's rows, in the order in which they are shown.

Those of users' packages stand behind them.
"""

from __future__ import annotations

import copyreg
import functools
from collections.abc import Collection
from typing import Any

from isa_models.plugins import Registry, load
from simdnn.kernels.common.spec import KernelKind
from simdnn.kernels.intel_gpu import rows as intel_gpu
from simdnn.kernels.nvidia import rows as nvidia
from simdnn.kernels.x86 import rows as x86

KERNELS: tuple[KernelKind, ...] = (*x86.KERNELS, *intel_gpu.KERNELS, *nvidia.KERNELS)
_NAMED: Registry[str, KernelKind] = Registry("kernel")


def register(*kinds: KernelKind) -> None:
    """Add rows to the table."""
    for kind in kinds:
        _NAMED[kind.name] = kind


register(*KERNELS)
assert len(_NAMED) == len(KERNELS)


def kernels() -> tuple[KernelKind, ...]:
    """All rows: `KERNELS`, which are this package's own, and those of users' packages."""
    load()
    return tuple(_NAMED.values())


def kind_of(name: str) -> KernelKind | None:
    """The row of a name, or None."""
    return _NAMED.find(name)


def rows_for(isa: Collection[str]) -> tuple[KernelKind, ...]:
    """The rows of the target that has these ISA caps: all of x86, whatever the caps; of a GPU its platform's."""
    return _rows_for(frozenset(isa), kernels())


@functools.lru_cache(maxsize=64)
def _rows_for(isa: frozenset[str], known: tuple[KernelKind, ...]) -> tuple[KernelKind, ...]:
    on_gpu = tuple(kind for kind in known if kind.target != "x86" and kind.isa in isa)
    return on_gpu or tuple(kind for kind in known if kind.target == "x86")


def _reduced(kind: KernelKind) -> str | tuple[Any, ...]:
    """A row of the table pickles and copies by its name."""
    return (kind_of, (kind.name,)) if kind_of(kind.name) is kind else kind.__reduce_ex__(2)


copyreg.pickle(KernelKind, _reduced)
