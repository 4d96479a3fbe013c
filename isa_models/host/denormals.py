"""The floating-point state of a thread, where somebody has switched denormals off: values here are of CPUs that keep
them unless an instruction says otherwise, whatever `torch.set_flush_denormal` or a library made with -ffast-math did.
"""

from __future__ import annotations

import ctypes
import functools
import platform
from collections.abc import Callable, Iterator
from contextlib import contextmanager

LEAST, ONE = 5e-324, 1.0  # whose product is not 0 where denormals are kept
_USUAL = 0x1F80  # of MXCSR: denormals are kept, to nearest even, no exception interrupts
_EXCHANGE = """
declare void @llvm.x86.sse.stmxcsr(ptr)
declare void @llvm.x86.sse.ldmxcsr(ptr)
define i32 @exchange(i32 %new) nounwind {
entry:
  %place = alloca i32
  call void @llvm.x86.sse.stmxcsr(ptr %place)
  %old = load volatile i32, ptr %place
  store volatile i32 %new, ptr %place
  call void @llvm.x86.sse.ldmxcsr(ptr %place)
  ret i32 %old
}
"""


@contextmanager
def kept() -> Iterator[None]:
    """Within, this thread keeps denormals; where it did not, its state is the usual one meanwhile, rounding to nearest.
    An x86 CPU's, others are left as they are.
    """
    if LEAST * ONE or platform.machine().lower() not in ("x86_64", "amd64"):
        yield
        return
    before = exchange()(_USUAL)
    try:
        yield
    finally:
        exchange()(before)


@functools.cache
def exchange() -> Callable[[int], int]:
    """The function that gives an x86 thread another MXCSR and answers with the one before."""
    from isa_models.host.machine_code import linked  # brings LLVM, which hardly anybody needs for this

    code = linked("denormals", _EXCHANGE, ["exchange"])
    found = ctypes.CFUNCTYPE(ctypes.c_uint32, ctypes.c_uint32)(code["exchange"])
    found.code = code  # type: ignore[attr-defined]  # which lives as long
    return found
