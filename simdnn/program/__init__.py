"""The one description of a kernel, and its proof: what every other floor reads.

`operands` holds tensors, registers, memory and its affine addresses, `records` the operations and loops over them;
`check` proves a program sound; `tiles` configures AMX tile registers. A program of one's own is written with the names
here:

>>> from simdnn import program
>>> str(2 * program.Affine.var("k") + 3)
'2*k + 3'
"""

from simdnn.program.check import verify
from simdnn.program.records import (
    Affine,
    Loop,
    Memory,
    Op,
    Place,
    Program,
    Register,
    Statement,
    Tensor,
    listing,
    walk,
)

__all__ = [
    "Affine",
    "Loop",
    "Memory",
    "Op",
    "Place",
    "Program",
    "Register",
    "Statement",
    "Tensor",
    "listing",
    "verify",
    "walk",
]
