"""Functions in LLVM text, as code of this host that Python can call."""

from __future__ import annotations

import ctypes
from typing import Any

import llvmlite.binding as llvm


def linked(text: str, name: str, *arguments: Any) -> tuple[Any, tuple[Any, ...]]:
    """The function `name` of a module, which takes `arguments` (ctypes) and returns an i32, and what keeps it alive."""
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    target = llvm.Target.from_default_triple()
    jit = llvm.create_lljit_compiler(target.create_target_machine(jit=True, codemodel="small", reloc="pic"))
    library = llvm.JITLibraryBuilder().add_ir(text).add_current_process().export_symbol(name).link(jit, name)
    return ctypes.CFUNCTYPE(ctypes.c_int32, *arguments)(library[name]), (jit, library)
