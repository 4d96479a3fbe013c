"""Defaults of the math mode and of exact int8: a call's own word, else the scope's, the thread's, the environment's.

    >>> with fpmath_mode("bf16"):
    ...     FPMATH.effective(None), FPMATH.effective("strict")
    ('bf16', 'strict')

Scopes and thread defaults belong to the thread that sets them, as oneDNN's default math mode does (developer guide,
"Floating-point math mode"). Scopes are context variables besides, so that each asyncio task has its own; a thread
started within one does not see it, unless it is handed the context (`asyncio.to_thread` does). A generator runs in the
context of whoever takes its next value: a scope that it holds across a `yield` is in force there, too. Environment
variables are read at each use, so a bad value is an error where it matters and nowhere else.
"""

from __future__ import annotations

import inspect
import threading
from collections.abc import Callable, Hashable
from contextlib import ContextDecorator
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, TypeVar, cast

from isa_models import InvalidArgument
from isa_models.host.environment import variable as variable_of
from isa_models.keywords import keywords
from simdnn.primitives.checks import one_of

T = TypeVar("T")

FPMATH_MODES = ("strict", "tf32", "bf16", "f16", "any")
_YES, _NO = ("1", "true", "on", "yes"), ("0", "false", "off", "no")


class _Thread(threading.local):
    """The defaults that one thread has set, by setting."""

    defaults: tuple[tuple[Setting[Any], Any], ...] = ()
    any_set: ClassVar[bool] = False  # whether a thread ever set one


_THREAD = _Thread()
_SCOPES: ContextVar[tuple[Scope[Any], ...]] = ContextVar("scopes", default=())


@dataclass(frozen=True, eq=False)
class Setting(Generic[T]):
    """A choice with a default for each scope, thread and process. `check` validates a value given in Python."""

    variables: tuple[str, ...]  # of the environment; the first that is set counts
    check: Callable[[object], T]
    parse: Callable[[str], T]
    fallback: T

    def effective(self, call: T | None) -> T:
        """The value that holds for a call which asks for `call` (None: it doesn't say)."""
        said = self.asked_for(call)
        return self.fallback if said is None else said

    def asked_for(self, call: T | None) -> T | None:
        """The value that the call, a scope, the thread or the environment asks for; None where none of them does."""
        if call is not None:
            return self.check(call)
        for scope in reversed(_SCOPES.get()):
            if scope.setting is self:
                return cast(T | None, scope.value)
        for setting, value in _THREAD.defaults:
            if setting is self:
                return cast(T, value)
        for variable in self.variables:
            if text := (variable_of(variable) or "").strip():
                return self._from_environment(variable, text)
        return None

    def set_default(self, value: T | None) -> None:
        """Set this thread's default; None gives the word back to the environment."""
        others = tuple(one for one in _THREAD.defaults if one[0] is not self)
        _Thread.any_set = True
        _THREAD.defaults = others if value is None else (*others, (self, self.check(value)))

    def _from_environment(self, variable: str, text: str) -> T:
        try:
            return self.parse(text)
        except InvalidArgument as error:
            raise InvalidArgument(f"environment variable {variable}: {error}") from None


class Scope(ContextDecorator, Generic[T]):
    """`with` this, a setting has a value for calls of this thread that don't say otherwise. Scopes nest."""

    def __init__(self, setting: Setting[T], value: T | None) -> None:
        """`value` has been checked; None: as if neither thread nor environment asked for one."""
        self.setting = setting
        self.value = value

    def __repr__(self) -> str:
        """The value, and whether it is in force here.

        >>> fpmath_mode("bf16")
        Scope('bf16', which holds within `with` alone)
        """
        holds = "in force" if any(scope is self for scope in _SCOPES.get()) else "which holds within `with` alone"
        return f"Scope({self.value!r}, {holds})"

    def __enter__(self) -> None:
        _SCOPES.set((*_SCOPES.get(), self))

    def __exit__(self, *_: object) -> None:
        """Takes the scope's last entry off; others may have been entered since, where a generator held it."""
        entered = _SCOPES.get()
        last = max((i for i, scope in enumerate(entered) if scope is self), default=len(entered))
        _SCOPES.set(entered[:last] + entered[last + 1 :])

    def __call__(self, function: Any) -> Any:
        """A function that runs within this scope: the mode as a decorator."""
        if inspect.iscoroutinefunction(function) or inspect.isgeneratorfunction(function):
            raise InvalidArgument(f"{function.__name__} runs after its call has returned; use `with` inside it")
        return super().__call__(function)


def check_fpmath(value: object) -> str:
    """A math mode by name, or `InvalidArgument` with the nearest one."""
    return one_of("fpmath mode", value, FPMATH_MODES)


def check_exact(value: object) -> bool:
    """True or False, or `InvalidArgument`."""
    return check_flag("exact_int8", value)


def check_flag(name: str, value: object) -> bool:
    """True or False, or `InvalidArgument`."""
    if isinstance(value, bool):
        return value
    raise InvalidArgument(f"{name}={value!r}; True, False or None (the default) is needed")


def _parse_fpmath(text: str) -> str:
    return check_fpmath(text.lower())


def _parse_exact(text: str) -> bool:
    return one_of("exact int8", text.lower(), _YES + _NO) in _YES


FPMATH: Setting[str] = Setting(
    ("ONEDNN_DEFAULT_FPMATH_MODE", "DNNL_DEFAULT_FPMATH_MODE", "DNNL_DEFAULT_FP_MATH_MODE"),
    check_fpmath,
    _parse_fpmath,
    "strict",
)
COLD_WEIGHTS: Setting[bool] = Setting((), lambda value: check_flag("cold_weights", value), _parse_exact, False)
EXACT_INT8: Setting[bool] = Setting(("SIMDNN_EXACT_INT8",), check_exact, _parse_exact, False)
VARIABLES = (*FPMATH.variables, *EXACT_INT8.variables)


def in_force() -> Hashable:
    """All that settings go by where a call says nothing, beside the environment: scopes and this thread's defaults."""
    entered = _SCOPES.get()
    scopes: Hashable = tuple([(scope.setting, scope.value) for scope in entered]) if entered else ()
    return scopes, _THREAD.defaults


def none_in_force() -> bool:
    """Whether settings go by nothing but the environment."""
    return not (_SCOPES.get() or _Thread.any_set and _THREAD.defaults)


@keywords
def fpmath_mode(mode: str) -> Scope[str]:
    """A scope in which calls of this thread that name no math mode use `mode`: strict, tf32, bf16, f16 or any."""
    return Scope(FPMATH, check_fpmath(mode))


@keywords
def set_default_fpmath_mode(mode: str | None) -> None:
    """This thread's default math mode, below scopes and above the environment; None: the environment's again."""
    FPMATH.set_default(mode)


@keywords
def get_default_fpmath_mode() -> str:
    """The math mode that a call here gets which names none."""
    return FPMATH.effective(None)


@keywords
def cold_weights(on: bool = True) -> Scope[bool]:
    """A scope in which the clock has weights come from DRAM at each run, not from the cache that would hold them.

    That is how a layer runs within a network whose weights together are larger than the last cache.
    """
    return Scope(COLD_WEIGHTS, check_flag("cold_weights", on))


@keywords
def exact_int8(on: bool = True) -> Scope[bool]:
    """A scope in which int8 problems of this thread use kernels that are exact (True) or the library's fast path.

    Where nothing is said at all, the fast path is taken unless an exact kernel costs no more.
    """
    return Scope(EXACT_INT8, check_exact(on))


def as_shipped(setting: Setting[T]) -> Scope[T]:
    """A scope in which a setting is what it is where neither user nor environment says anything."""
    return Scope(setting, None)


@keywords
def set_default_exact_int8(on: bool | None) -> None:
    """This thread's default for exact int8, below scopes and above `SIMDNN_EXACT_INT8`; None: that variable's again."""
    EXACT_INT8.set_default(on)
