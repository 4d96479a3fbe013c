"""LLVM text becomes machine code that is linked into this process.

Functions that many programs call (a matrix instruction's) are compiled once for a process: they are most of the text.
Code that takes long is kept for other processes.
"""

from __future__ import annotations

import functools
import hashlib
import itertools
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import llvmlite.binding as llvm

from isa_models.host.file_cache import CODE, keep, kept
from isa_models.host.forks import ForkLock, at_fork

_RARELY = '!0 = !{!"branch_weights", i32 1, i32 100000}'  # what a branch that is hardly ever taken refers to
_NUMBERS = itertools.count()  # of libraries, whose names must differ
_LOCK = ForkLock(reentrant=True)  # of all compilation
_SHARED: dict[LinkedFunction, LinkedCode] = {}  # functions that are compiled
_WORTH_S = 0.005  # processor time of a compilation whose code is kept
_LONG = 1 << 12  # characters of a function that takes some 5 ms: shorter ones are compiled together


@dataclass(frozen=True)
class LinkedFunction:
    """A function in LLVM: the lines of its body, declarations of what these call, and functions that are its own."""

    name: str
    result: str
    parameters: tuple[str, ...]
    lines: tuple[str, ...]
    declarations: tuple[str, ...]
    calls: tuple[LinkedFunction, ...] = ()

    @property
    def declaration(self) -> str:
        """The line with which another module declares the function that it calls."""
        return f"declare {self.head}"

    @property
    def definition(self) -> str:
        """The lines that define it."""
        body = "\n".join(["entry:", *self.lines])
        return f"define {self.head} nounwind alignstack(64) {{\n{body}\n}}"

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

    `hasty` code is made in less than half the time and runs longer; functions that it calls do not.
    """
    with _LOCK:
        return _linked(name, text, exported, called, hasty)


def _linked(name: str, text: str, exported: Sequence[str], called: Sequence[LinkedFunction], hasty: bool) -> LinkedCode:
    jit, image = _jit(), _image(f"{text}\n{_RARELY}", hasty)
    builder = llvm.JITLibraryBuilder().add_object_img(image).add_current_process()
    used = _shared(called)
    for function, library in used.items():
        builder.import_symbol(function, library[function])
    for symbol in exported:
        builder.export_symbol(symbol)
    return LinkedCode(jit, builder.link(jit, f"{name}{next(_NUMBERS)}"), list(dict.fromkeys(used.values())))


def _image(text: str, hasty: bool) -> bytes:
    """The machine code of a text for this CPU, kept by all that it is made from where that takes long."""
    made_from = text, _target().triple, _options(hasty), llvm.llvm_version_info
    name = f"{hashlib.sha256(repr(made_from).encode()).hexdigest()[:32]}.o"
    image = kept(name, CODE)
    if image is None:
        began = time.thread_time()
        image = _compiled(text, hasty)
        if time.thread_time() - began >= _WORTH_S:
            keep(name, image, CODE)
    return image


def _compiled(text: str, hasty: bool) -> bytes:
    module = llvm.parse_assembly(text, llvm.create_context())  # of its own: a fork may leave the global one half done
    image: bytes = _machine(hasty).emit_object(module)
    return image


def _shared(functions: Sequence[LinkedFunction]) -> dict[str, LinkedCode]:
    """The code of functions by their names, compiled once: short ones that are new together, as a module has its price,
    others each by itself, as it is kept for other processes.
    """
    new = [function for function in dict.fromkeys(functions) if function not in _SHARED]
    short = [f for f in new if not f.calls and sum(map(len, f.lines)) < _LONG]
    for some in [short, *([function] for function in new if function not in short)]:
        if some:
            called = [function for one in some for function in one.calls]
            declarations = dict.fromkeys(line for one in some for line in one.declarations)
            declarations |= dict.fromkeys(function.declaration for function in called)
            text = "\n".join([*declarations, *(one.definition for one in some)])
            _SHARED.update(dict.fromkeys(some, linked(some[0].name, text, [one.name for one in some], called)))
    return {function.name: _SHARED[function] for function in functions}


@functools.cache
def _machine(hasty: bool) -> Any:
    """The code generator for this CPU."""
    return _target().create_target_machine(**_options(hasty))


@functools.cache
def _options(hasty: bool) -> dict[str, Any]:
    """The options of the code generator."""
    # Without the last feature LLVM splits 512-bit vectors on CPUs where it thinks 256 bits kinder to the clock.
    features = f"{llvm.get_host_cpu_features().flatten()},-prefer-256-bit"
    how = {"opt": 0 if hasty else 2, "reloc": "pic", "codemodel": "small", "jit": True}
    return {"cpu": llvm.get_host_cpu_name(), "features": features, **how}


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
