"""Modules that are imported when they are first used: pandas takes longer to import than most calls take to run."""

from __future__ import annotations

from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING

__all__ = ["frames", "pd"]


class _Late(ModuleType):
    """Stands for a module, which is imported as soon as something of it is asked for."""

    def __getattr__(self, name: str) -> object:
        return getattr(import_module(self.__name__), name)


if TYPE_CHECKING:
    import pandas as pd

    from simdnn import frames
else:
    frames = _Late("simdnn.frames")
    pd = _Late("pandas")
