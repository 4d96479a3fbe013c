"""Every class that the public functions hand out, found by their annotations, and an object of each."""

from __future__ import annotations

import ast
import functools
import importlib
import inspect
import types
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import fields, is_dataclass
from typing import Any, get_args, get_type_hints

from isa_models import SimdnnError
from isa_models.algebra import Value

_FEW = 8  # objects of a class whose parts are looked at
PACKAGES = ("simdnn", "isa_models", "workloads")


def _own(made: type | Callable[..., Any]) -> bool:
    """Whether a class or function is the package's."""
    return made.__module__.split(".")[0] in PACKAGES


@functools.cache
def _names(module: str) -> dict[str, Any]:
    """The names that a module's annotations use: its own, and those that only type checkers import."""
    known = importlib.import_module(module)
    found = dict(vars(known))
    for block in ast.parse(inspect.getsource(known)).body:
        if isinstance(block, ast.If) and "TYPE_CHECKING" in ast.unparse(block.test):
            for line in block.body:
                if isinstance(line, ast.ImportFrom) and str(line.module).split(".")[0] in PACKAGES:
                    found |= {name.asname or name.name: _names(str(line.module))[name.name] for name in line.names}
                else:
                    exec(ast.unparse(line), found)
    return found


def _classes(hint: Any) -> Iterator[type]:
    """The package's own classes within a type."""
    own = isinstance(hint, type) and _own(hint)
    if own and not issubclass(hint, Exception | Value):  # a reading's values are registers' content
        yield hint
    for part in hint if isinstance(hint, list) else get_args(hint):
        yield from _classes(part)


def returned(function: Callable[..., Any]) -> set[type]:
    """The package's classes that a function returns, itself or within a container."""
    return set(_classes(get_type_hints(function, _names(function.__module__)).get("return")))


def _function(member: Any) -> Callable[..., Any] | None:
    """The function behind a member of a class: a method, a property, one that is kept."""
    for name in ("fget", "func", "find", "__func__"):
        member = getattr(member, name, None) or member
    return member if isinstance(member, types.FunctionType) else None


def _members(kind: type) -> Iterator[tuple[str, Any]]:
    for base in kind.__mro__:
        if _own(base):
            yield from ((name, member) for name, member in vars(base).items() if not name.startswith("_"))


def of_methods(kind: type) -> set[type]:
    """The package's classes that methods and properties of a class return."""
    functions = filter(None, (_function(member) for _, member in _members(kind)))
    own = (function for function in functions if _own(function))
    return {found for function in own for found in returned(function)}


def of_fields(kind: type) -> set[type]:
    """The package's classes in the public fields of a record."""
    found = set()
    for base in kind.__mro__ if is_dataclass(kind) else ():
        for name, text in vars(base).get("__annotations__", {}).items():
            if not name.startswith("_") and _own(base):
                holder = types.SimpleNamespace(__annotations__={name: text})
                found.update(_classes(get_type_hints(holder, _names(base.__module__))[name]))
    return found


def public(modules: Iterable[types.ModuleType]) -> set[type]:
    """The public classes of modules, and those that their public functions return."""
    found: set[type] = set()
    for module in modules:
        for name in module.__all__:
            one = getattr(module, name)
            found.update(_classes(one) if isinstance(one, type) else returned(one) if inspect.isfunction(one) else ())
    return found


def reached(kinds: Iterable[type]) -> set[type]:
    """Those classes, and all that their fields and methods lead to."""
    found: set[type] = set()
    left = set(kinds)
    while left:
        found |= left
        left = {other for kind in left for other in of_methods(kind) | of_fields(kind)} - found
    return found


def harvest(samples: Iterable[Any]) -> dict[type, list[Any]]:
    """The first few objects of each class: the samples, and what their fields and properties lead to."""
    found: dict[type, list[Any]] = {}
    left = list(samples)
    for one in left:  # grows
        if isinstance(one, list | tuple | set | frozenset) and not _own(type(one)):
            left.extend(list(one)[:3])
        elif isinstance(one, Mapping):
            left.extend(list(one.values())[:3])
        elif _own(type(one)) and len(met := found.setdefault(type(one), [])) < _FEW:
            met.append(one)
            left.extend(_parts(one))
    return found


def _parts(one: Any) -> Iterator[Any]:
    names = dict.fromkeys(name for name, member in _members(type(one)) if not inspect.isfunction(member))
    for name in [*names, *(field.name for field in (fields(one) if is_dataclass(one) else ()))]:
        try:
            yield getattr(one, name, None)
        except (SimdnnError, ValueError):  # a figure that there is not
            continue
