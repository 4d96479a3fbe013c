"""x86 mask registers (AVX-512): lanes of one bit, logic on them, and the ways between masks and vectors.

Masks are of 8, 16, 32 or 64 lanes, the lowest bit first; a name ends in b, w, d or q accordingly. What a mask register
holds above an instruction's lanes becomes zero.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from isa_models.algebra import Value
from isa_models.formats import fmt
from isa_models.instruction import define, example
from isa_models.x86.widths import AVX512_ONLY, Widths

SIZES = {"b": 8, "w": 16, "d": 32, "q": 64}


def _width(bits: int) -> Widths:
    """The caps of an instruction on masks of a number of lanes."""
    return {bits: ("avx512_core",)}


_MASK: dict[str, Any] = {"whole": True, "memory": "none"}


def _as_words(name: str, end: str) -> dict[str, Any]:
    """Facts of an instruction whose words alone were measured: in other sizes it is as fast."""
    return {**_MASK, "timed_as": "" if end == "w" else f"{name}w"}


def _shown(bits: int, ones: Callable[[int], bool]) -> list[bool]:
    return [ones(i) for i in range(bits)]


def _logic(name: str, text: str, combine: Callable[[Value, Value], Value], of: Callable[[bool, bool], bool]) -> None:
    """A logic operation of two masks in all sizes."""
    for end, bits in SIZES.items():
        a, b = _shown(bits, lambda i: i % 2 > 0), _shown(bits, lambda i: i % 4 > 1)
        yields = str([of(x, y) for x, y in zip(a, b, strict=True)])
        doc = example(f"k{name}{end}", text, f"{[int(x) for x in a]}, {[int(x) for x in b]}", yields)

        @define(
            f"k{name}{end}",
            "b1 <- b1, b1",
            _width(bits),
            f"Intel SDM Vol. 2A, K{name.upper()}",
            **_as_words(f"k{name}", end),
            doc=doc,
        )
        def logic(a: Value, b: Value) -> Value:
            return combine(a, b)


_logic("and", "Both bits.", lambda a, b: a & b, lambda x, y: x and y)
_logic("andn", "The second bit, and not the first.", lambda a, b: ~a & b, lambda x, y: not x and y)
_logic("or", "Either bit, or both.", lambda a, b: a | b, lambda x, y: x or y)
_logic("xor", "Either bit, and not both.", lambda a, b: a ^ b, lambda x, y: x != y)
_logic("xnor", "Whether the bits are equal.", lambda a, b: ~(a ^ b), lambda x, y: x == y)


def _sized(end: str, bits: int) -> None:
    """The instructions of one mask, or of two with a carry or flags, in one size."""
    odd = [int(x) for x in _shown(bits, lambda i: i % 2 > 0)]

    @define(
        f"kadd{end}",
        "b1 <- b1, b1",
        _width(bits),
        "Intel SDM Vol. 2A, KADD",
        **_as_words("kadd", end),
        doc=example(
            f"kadd{end}",
            "The sum of two masks as unsigned integers; what carries out of them is lost.",
            f"{[1] * bits}, {[1] + [0] * (bits - 1)}",
            str([False] * bits),
        ),
    )
    def kadd(a: Value, b: Value) -> Value:
        word = f"u{bits}"
        return (a.view(word) + b.view(word)).view("b1").step("bit of the whole sum", lambda: [a, b])

    @define(
        f"knot{end}",
        "b1 <- b1",
        _width(bits),
        "Intel SDM Vol. 2A, KNOT",
        **_as_words("knot", end),
        doc=example(f"knot{end}", "Each bit turned.", str(odd), str([not x for x in odd])),
    )
    def knot(a: Value) -> Value:
        return ~a

    @define(
        f"kmov{end}",
        "b1 <- b1",
        _width(bits),
        "Intel SDM Vol. 2A, KMOV",
        whole=True,
        moves=True,
        doc=example(f"kmov{end}", "A copy of a mask.", str(odd), str([bool(x) for x in odd])),
    )
    def kmov(a: Value) -> Value:
        return a


def _shift(end: str, bits: int, up: bool) -> None:
    """Bits moved by an immediate."""
    name, odd = f"kshift{'l' if up else 'r'}{end}", _shown(bits, lambda i: i % 2 > 0)
    text = f"Bits moved {'up' if up else 'down'} by the immediate, zeros behind them."
    moved = [False, *odd[:-1]] if up else [*odd[1:], False]
    doc = example(name, text, f"{[int(x) for x in odd]}, imm=1", str(moved))

    @define(name, "b1 <- b1", _width(bits), f"Intel SDM Vol. 2A, {name[:-1].upper()}", **_MASK, doc=doc)
    def shift(a: Value, imm: int) -> Value:
        zeros = a.literal(0)
        if imm >= a.lanes:
            return zeros
        both, first = (zeros.concat(a), a.lanes - imm) if up else (a.concat(zeros), imm)
        return both.permute(range(first, first + a.lanes))


def _test(name: str, end: str, bits: int, text: str, flags: Callable[[Value, Value], Value], shown: list[bool]) -> None:
    """Flags of two masks; `flags` takes each of them as one unsigned integer."""
    odd = [int(x) for x in _shown(bits, lambda i: i % 2 > 0)]
    doc = example(f"{name}{end}", text, f"{odd}, {[1 - x for x in odd]}", str(shown))
    signature = f"b1 <- b1*{bits // 2}, b1*{bits // 2}"

    @define(
        f"{name}{end}",
        signature,
        _width(bits),
        f"Intel SDM Vol. 2A, {name.upper()}",
        **_as_words(name, end),
        flags=True,
        doc=doc,
    )
    def test(a: Value, b: Value) -> Value:
        return flags(a.view(f"u{bits}"), b.view(f"u{bits}"))


_ORED = "Flags: zero, whether no bit is set in either mask; carry, whether each bit is set in one."
_ANDED = "Flags: zero, whether no bit is set in both masks; carry, whether none is set in the second alone."
for _end, _bits in SIZES.items():
    _sized(_end, _bits)
    _shift(_end, _bits, up=True)
    _shift(_end, _bits, up=False)
    _test("kortest", _end, _bits, _ORED, lambda a, b: (a | b).eq(0).concat((~(a | b)).eq(0)), [False, True])
    _test("ktest", _end, _bits, _ANDED, lambda a, b: (a & b).eq(0).concat((~a & b).eq(0)), [True, False])


def _unpack(name: str, bits: int) -> None:
    """Two masks side by side: the second one below."""
    half = bits // 2
    doc = example(
        name,
        "The second mask, and the first one above it.",
        f"{[1] * half}, {[0] * half}",
        str([i >= half for i in range(bits)]),
    )

    @define(name, "b1 <- b1*0.5, b1*0.5", _width(bits), "Intel SDM Vol. 2A, KUNPCK", **_MASK, doc=doc)
    def unpack(a: Value, b: Value) -> Value:
        return b.concat(a)


for _name, _bits in (("kunpckbw", 16), ("kunpckwd", 32), ("kunpckdq", 64)):
    _unpack(_name, _bits)


def _between(end: str, bits: int) -> None:
    """A mask to lanes of all ones or zeros, and lanes to the mask of their signs."""
    ones = fmt(f"u{bits}").high

    @define(
        f"vpmovm2{end}",
        f"u{bits} <- b1",
        AVX512_ONLY,
        "Intel SDM Vol. 2C, VPMOVM2B/VPMOVM2W/VPMOVM2D/VPMOVM2Q",
        memory="none",
        doc=example(f"vpmovm2{end}", "All ones where the mask's bit is set, else zero.", "[1, 0]", f"[{ones}, 0]"),
    )
    def expand(mask: Value) -> Value:
        return mask.to(f"u{bits}") * ones

    @define(
        f"vpmov{end}2m",
        f"b1 <- s{bits}",
        AVX512_ONLY,
        "Intel SDM Vol. 2C, VPMOVB2M/VPMOVW2M/VPMOVD2M/VPMOVQ2M",
        memory="none",
        doc=example(f"vpmov{end}2m", "The sign of each lane.", "[-1, 0, 5, -7]", "[True, False, False, True]"),
    )
    def signs(a: Value) -> Value:
        return a < 0


for _end, _bits in SIZES.items():
    _between(_end, _bits)
