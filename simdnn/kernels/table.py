"""The one table of kernels, whatever the target: each target's rows, in the order in which they are shown.

Those of users' packages stand behind them. The rows of a target, and the generators that they name, are imported when
one of them is asked for.
"""

from __future__ import annotations

import copyreg
import functools
from collections.abc import Collection
from importlib import import_module
from typing import Any

from isa_models.gpu.platforms import PLATFORMS
from isa_models.plugins import Registry, load
from simdnn.kernels.common.kernel import KernelKind

_TARGETS = ("x86", "intel_gpu", "nvidia")
_NAMED: Registry[str, KernelKind] = Registry("kernel")


@functools.cache
def _own(target: str) -> tuple[KernelKind, ...]:
    """This package's rows of a target, which are in the table from then on."""
    rows: tuple[KernelKind, ...] = import_module(f"simdnn.kernels.{target}.rows").KERNELS
    named = {kind.name: kind for kind in rows}
    assert len(named) == len(rows) and all(_NAMED.get(name, kind) is kind for name, kind in named.items())
    _NAMED.begin(named)
    return rows


def own_kernels() -> tuple[KernelKind, ...]:
    """This package's own rows."""
    return tuple([kind for target in _TARGETS for kind in _own(target)])


def register(*kinds: KernelKind) -> None:
    """Add rows to the table."""
    own_kernels()
    for kind in kinds:
        _NAMED[kind.name] = kind


def kernels() -> tuple[KernelKind, ...]:
    """All rows: `KERNELS`, which are this package's own, and those of users' packages."""
    own = {kind.name: kind for kind in own_kernels()}
    load()
    return tuple((own | _NAMED).values())


def kind_of(name: str) -> KernelKind | None:
    """The row of a name, or None."""
    found = _NAMED.get(name) if isinstance(name, str) else None
    if found is None:
        own_kernels()
        found = _NAMED.find(name)
    return found


def rows_for(isa: Collection[str]) -> tuple[KernelKind, ...]:
    """The rows of the target that has these ISA caps: all of x86, whatever the caps; of a GPU its platform's."""
    (platform,) = isa if len(isa) == 1 else ("",)
    gpu = PLATFORMS.get(platform)
    _own("x86" if gpu is None else "nvidia" if gpu.warp else "intel_gpu")
    load()
    return _rows_for(platform if gpu else "", Registry.changes)


@functools.lru_cache(maxsize=64)
def _rows_for(platform: str, changes: int) -> tuple[KernelKind, ...]:
    if platform:
        return tuple([kind for kind in _NAMED.values() if kind.target != "x86" and kind.isa == platform])
    return tuple([kind for kind in _NAMED.values() if kind.target == "x86"])


def _reduced(kind: KernelKind) -> str | tuple[Any, ...]:
    """A row of the table pickles and copies by its name."""
    return (kind_of, (kind.name,)) if kind_of(kind.name) is kind else kind.__reduce_ex__(2)


copyreg.pickle(KernelKind, _reduced)
