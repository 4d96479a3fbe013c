"""x86 instructions by family; importing this package registers them."""

from isa_models.x86 import dot, floats, integer, memory

__all__ = ["dot", "floats", "integer", "memory"]
