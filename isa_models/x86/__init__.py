"""x86 instructions by family; importing this package registers them."""

from isa_models.x86 import (
    amx,
    bf16,
    block_shuffles,
    compares,
    convert,
    dot,
    f16,
    floats,
    fma,
    integer,
    masks,
    memory,
    partial,
    prefetch,
    shuffle,
)

__all__ = [
    "amx",
    "bf16",
    "block_shuffles",
    "compares",
    "convert",
    "dot",
    "f16",
    "floats",
    "fma",
    "integer",
    "masks",
    "memory",
    "partial",
    "prefetch",
    "shuffle",
]
