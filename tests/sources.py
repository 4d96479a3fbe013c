"""Modules as syntax trees, each parsed once in a process: tests of names, imports and docstrings read all of them."""

from __future__ import annotations

import ast
import functools
from collections.abc import Iterator
from pathlib import Path

_BLOCKS = ("body", "orelse", "finalbody", "handlers", "cases")


@functools.cache
def parsed(path: Path) -> ast.Module:
    """The tree of a module, which nobody changes."""
    return ast.parse(path.read_text(encoding="utf-8"))


def statements(node: ast.AST) -> Iterator[ast.AST]:
    """A module or statement and all statements within; expressions hold none, and are most of a tree.

    >>> [type(node).__name__ for node in statements(ast.parse("if a:\\n  b = lambda: c\\nelse:\\n  import d"))]
    ['Module', 'If', 'Assign', 'Import']
    """
    yield node
    for block in _BLOCKS:
        for child in getattr(node, block, ()):
            yield from statements(child)
