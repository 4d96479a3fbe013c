"""LLVM text becomes machine code that is linked into this process.

Functions that many programs call (a matrix instruction's) are compiled once for a process: they are most of the text.
"""

from __future__ import annotations

import functools
import itertools
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import llvmlite.binding as llvm

from isa_models.host.forks import ForkLock, at_fork

_RARELY = '!0 = !{!"branch_weights", i32 1, i32 100000}'  # what a branch that is hardly ever taken refers to
_NUMBERS = itertools.count()  # of libraries, whose names must differ
_LOCK = ForkLock(reentrant=True)  # of all compilation


@dataclass(frozen=True)
class LinkedFunction:
    """A function in LLVM: the lines of its body, and the declarations of what these call."""

    name: str
    result: str
    parameters: tuple[str, ...]
    lines: tuple[str, ...]
    declarations: tuple[str, ...]

    @property
    def declaration(self) -> str:
        """The line with which another module declares the function that it calls."""
        return f"declare {self.head}"

    @property
    def text(self) -> str:
        """A module with nothing else."""
        body = "\n".join(["entry:", *self.lines])
        return "\n".join([*self.declarations, f"define {self.head} nounwind alignstack(64) {{\n{body}\n}}"])

    @property
    def head(self) -> str:
        return f"{self.result} @{self.name}({', '.join(self.parameters)})"


class LinkedCode:
    """Functions of one module in memory: their addresses by name, as long as this is alive."""

    def __init__(self, jit: Any, linked: Any, used: Sequence[LinkedCode]) -> None:
        self._linked = linked
        self._keep = (jit, *used)

    def __getitem__(self, name: str) -> int:
        address: int = self._linked[name]
        return address


def linked(
    name: str, text: str, exported: Sequence[str], called: Sequence[LinkedFunction] = (), hasty: bool = False
) -> LinkedCode:
    """The code of a module, linked with functions that it declares.

    `hasty` code is made in less than half the time and runs up to five times as long; functions that it calls do not.
    """
    with _LOCK:
        return _linked(name, text, exported, called, hasty)


def _linked(name: str, text: str, exported: Sequence[str], called: Sequence[LinkedFunction], hasty: bool) -> LinkedCode:
    machine, jit = _machine(hasty), _jit()
    whole = f"{text}\n{_RARELY}"
    module = llvm.parse_assembly(whole, llvm.create_context())  # of its own: a fork may leave the global one half done
    builder = llvm.JITLibraryBuilder().add_object_img(machine.emit_object(module)).add_current_process()
    used = {function.name: _shared(function) for function in called}
    for function, library in used.items():
        builder.import_symbol(function, library[function])
    for symbol in exported:
        builder.export_symbol(symbol)
    return LinkedCode(jit, builder.link(jit, f"{name}{next(_NUMBERS)}"), list(used.values()))


@functools.cache
def _shared(function: LinkedFunction) -> LinkedCode:
    """The code of a function, compiled once."""
    return linked(function.name, function.text, [function.name])


@functools.cache
def _machine(hasty: bool) -> Any:
    """The code generator for this CPU."""
    # Without this LLVM splits 512-bit vectors on CPUs where it thinks 256 bits kinder to the clock.
    features = llvm.get_host_cpu_features().flatten() + ",-prefer-256-bit"
    cpu, opt = llvm.get_host_cpu_name(), 0 if hasty else 2
    return _target().create_target_machine(
        cpu=cpu, features=features, opt=opt, reloc="pic", codemodel="small", jit=True
    )


@functools.cache
def _jit() -> Any:
    """The linker of code into this process."""
    return llvm.create_lljit_compiler(_target().create_target_machine(jit=True, codemodel="small", reloc="pic"))


@functools.cache
def _target() -> Any:
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    llvm.initialize_native_asmparser()
    return llvm.Target.from_default_triple()


def _renew() -> None:
    """Start LLVM anew in a forked child: what it was at in another thread has no end there."""
    llvm.ffi.lib._lock._lock = threading.RLock()  # llvmlite's own, around each of its calls
    for made in (_machine, _jit, _target):
        made.cache_clear()


at_fork(after_in_child=_renew)
