"""Choices in formulas: registers of all ones or zeros, and tables that are looked up by the lanes of a register."""

from __future__ import annotations

from simdnn.kernels.common.expression import Element

SIGN = 0x80000000
_OF_TWO = 16  # lanes of registers whose permutation takes two of them (vpermt2ps)
Table = tuple[float, ...]


def negative(x: Element) -> Element:
    """All ones where the sign bit is set, else zeros."""
    return x.read_as("s32").shift("sar", 31)


def below(x: Element, y: Element | float) -> Element:
    """All ones where x < y."""
    return negative(x - y)


def opposite(mask: Element) -> Element:
    """All ones where there were zeros."""
    return mask.bits("xor", 0xFFFFFFFF)


def select(mask: Element, yes: Element, no: Element) -> Element:
    """`yes` where the mask is all ones, else `no`."""
    return no.bits("xor", no.bits("xor", yes).bits("and", mask))


def nonzero(x: Element) -> Element:
    """All ones where an s32 is not 0."""
    return negative(x.bits("or", -x))


def zero(x: Element) -> Element:
    """All ones where an s32 is 0."""
    return opposite(nonzero(x))


def lookup(index: Element, table: Table, lanes: int) -> Element:
    """The entry of a table by the low bits of an s32 index; a register holds `lanes` entries."""
    if len(table) == lanes:
        return index.permuted(table)
    if len(table) == 2 * lanes == 2 * _OF_TWO:
        return index.permuted_twice(table)
    half = len(table) // 2
    low, high = lookup(index, table[:half], lanes), lookup(index, table[half:], lanes)
    upper = index.shift("shl", 32 - half.bit_length()).shift("sar", 31)
    return select(upper, high, low)
