"""Lanes of registers added up, in the orders in which libraries do it (MLAS, onnxruntime's, where none is named).

Registers hold 8 or 16 lanes of f32 and go by their names; sums end in the lowest lanes of the first one. Two others,
`spare`, are used on the way.
"""

from __future__ import annotations

from collections.abc import Sequence

from simdnn.kernels.common.code import Code, op
from simdnn.program.records import Register

_SPARE = ("a", "x")


def _reg(name: str, lanes: int) -> Register:
    return Register(name, "f32", lanes)


def four(names: Sequence[str], lanes: int = 8, spare: tuple[str, str] = _SPARE) -> Code:
    """Four sums: ((0 + 1) + 2) + 3 of each four lanes, then upper halves onto lower ones."""
    c, low, high = [_reg(name, lanes) for name in names], *(_reg(name, lanes) for name in spare)
    code: Code = [op("vunpcklps", low, c[0], c[1]), op("vunpckhps", high, c[0], c[1])]
    code += [op("vunpcklps", c[0], c[2], c[3]), op("vunpckhps", c[1], c[2], c[3])]
    wide = [r.as_("f64") for r in (low, high, *c)]
    code += [op("vunpcklpd", wide[4], wide[0], wide[2]), op("vunpckhpd", wide[5], wide[0], wide[2])]
    code += [op("vaddps", c[2], c[2], c[3]), op("vunpcklpd", wide[5], wide[1], wide[3])]
    code += [op("vaddps", c[2], c[2], c[3]), op("vunpckhpd", wide[5], wide[1], wide[3])]
    return [*code, op("vaddps", c[0], c[2], c[3]), *down_to(4, names[0], lanes, spare[0])]


def two(names: Sequence[str]) -> Code:
    """Two sums of 8 lanes: 0 + 2 and 1 + 3, then the halves of the register, then the two."""
    c, other = [_reg(name, 8) for name in names], _reg(_SPARE[0], 8)
    code: Code = [op("vunpcklps", other, *c), op("vunpckhps", c[0], *c), op("vaddps", c[0], c[0], other)]
    low, high = _reg(names[0], 4), _reg(_SPARE[0], 4)
    code += down_to(4, names[0], 8)
    return [*code, op("vmovhlps", high, low, low), op("vaddps", low, low, high)]


def neighbours(name: str, spare: str = _SPARE[0]) -> Code:
    """One sum of 8 lanes: neighbours, those sums, then the halves."""
    c = _reg(name, 8)
    return [op("vhaddps", c, c, c), op("vhaddps", c, c, c), *down_to(4, name, 8, spare)]


def between_neighbours(name: str, spare: str) -> Code:
    """One sum of 8 lanes: neighbours, then the halves, then those sums."""
    c, low = _reg(name, 8), _reg(name, 4)
    return [op("vhaddps", c, c, c), *down_to(4, name, 8, spare), op("vhaddps", low, low, low)]


def halves_then_neighbours(name: str, spare: str) -> Code:
    """One sum of 8 lanes: the halves, then neighbours, then those sums."""
    low = _reg(name, 4)
    return [*down_to(4, name, 8, spare), op("vhaddps", low, low, low), op("vhaddps", low, low, low)]


def halves_then_shuffled(name: str, spare: str) -> Code:
    """One sum of 8 lanes: halves, neighbours, then these sums, in registers that `vhaddps` cannot name."""
    low, other = _reg(name, 4), _reg(spare, 4)
    code = down_to(4, name, 8, spare)
    for order in (0b10_11_00_01, 0b01_00_11_10):
        code += [op("vshufps", other, low, low, imm=order), op("vaddps", low, low, other)]
    return code


def by_halves(name: str, lanes: int, spare: str) -> Code:
    """One sum: upper halves onto lower ones."""
    low, high = _reg(name, 4), _reg(spare, 4)
    code = down_to(4, name, lanes, spare)
    for move in (op("vmovhlps", high, low, low), op("vmovshdup", high, low)):
        code += [move, op("vaddps", low, low, high)]
    return code


def down_to(least: int, name: str, lanes: int, spare: str = _SPARE[0]) -> Code:
    """Upper halves onto lower ones, until `least` lanes are left."""
    code: Code = []
    while lanes > least:
        lanes //= 2
        low, high = _reg(name, lanes), _reg(spare, lanes)
        extract = "vextractf64x4" if lanes == 8 else "vextractf128"
        code += [op(extract, high, _reg(name, 2 * lanes), imm=1), op("vaddps", low, low, high)]
    return code
