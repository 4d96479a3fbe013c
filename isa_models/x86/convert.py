"""x86 integer conversions: widening, truncating and saturating moves, packs, and between s32 and f32."""

from __future__ import annotations

from isa_models.algebra import Value
from isa_models.formats import fmt
from isa_models.instruction import define, example
from isa_models.rounding import round_to
from isa_models.x86.floats import integral
from isa_models.x86.widths import AVX512_BW, AVX512_FP16, AVX512_ONLY, Widths

_LETTER = {8: "b", 16: "w", 32: "d", 64: "q"}


def _widen(source: str, bits: int) -> None:
    sign = "sx" if fmt(source).signed else "zx"
    name = f"vpmov{sign}{_LETTER[fmt(source).bits]}{_LETTER[bits]}"
    result = source[0] + str(bits)

    @define(
        name,
        f"{result} <- {source}",
        AVX512_BW,
        f"Intel SDM Vol. 2B, PMOV{sign.upper()}",
        doc=example(name, f"Widen {source} to {result}.", f"[{fmt(source).low}, 1]", f"[{fmt(source).low}, 1]"),
    )
    def widen(a: Value) -> Value:
        return a.to(result)


for _source, _bits in (("s8", 16), ("s8", 32), ("s16", 32), ("s32", 64)):
    _widen(_source, _bits)
    _widen(_source.replace("s", "u"), _bits)


def _narrow(kind: str, bits: int, target: int) -> None:
    name = f"vpmov{kind}{_LETTER[bits]}{_LETTER[target]}"
    sign = "s" if kind == "s" else "u"
    source, result = f"{sign}{bits}", f"{sign}{target}"
    text = f"Narrow {source} to {result}: " + ("the low bits." if not kind else "saturating.")
    yields = [fmt(result).high if kind else 1, 2]
    manual = {8: "VPMOVDB/VPMOVSDB/VPMOVUSDB", 16: "VPMOVDW/VPMOVSDW/VPMOVUSDW"}[target]
    if bits == 16:
        manual = "VPMOVWB/VPMOVSWB/VPMOVUSWB"

    @define(
        name,
        f"{result} <- {source}",
        AVX512_ONLY,
        f"Intel SDM Vol. 2C, {manual}",
        saturates=bool(kind),
        memory="store",
        doc=example(name, text, f"[{(1 << target) + 1}, 2]", str(yields)),
    )
    def narrow(a: Value) -> Value:
        return a.saturate(result) if kind else a.to(result)


for _kind in ("", "s", "us"):
    for _bits, _target in ((32, 8), (32, 16), (16, 8)):
        _narrow(_kind, _bits, _target)


def _pack(name: str, source: str, result: str) -> None:
    block = 128 // fmt(source).bits  # lanes of each source in a 128-bit block
    high = fmt(source).high
    ones, top = ([v] * block for v in (1, high))
    doc = example(
        name,
        f"Each 128-bit block: {block} lanes of the first, then of the second, {source} saturated to {result}.",
        f"{ones}, {top}",
        str([1] * block + [fmt(result).high] * block),
    )

    @define(
        name,
        f"{result} <- {source}*0.5, {source}*0.5",
        AVX512_BW,
        "Intel SDM Vol. 2B, PACKSSWB/PACKSSDW, PACKUSDW, PACKUSWB",
        saturates=True,
        whole=True,
        doc=doc,
    )
    def pack(a: Value, b: Value) -> Value:
        n = min(block, a.lanes)
        order = [
            k for start in range(0, a.lanes, n) for base in (start, a.lanes + start) for k in range(base, base + n)
        ]
        return a.concat(b).permute(order).saturate(result)


_pack("vpackssdw", "s32", "s16")
_pack("vpackusdw", "s32", "u16")
_pack("vpacksswb", "s16", "s8")
_pack("vpackuswb", "s16", "u8")


_TO_FLOATS = (
    ("vcvtdq2ps", "s32", "f32", AVX512_BW, "CVTDQ2PS", "[16777217, -3]", "[16777216.0, -3.0]"),
    ("vcvtudq2ps", "u32", "f32", AVX512_ONLY, "VCVTUDQ2PS", "[16777217, 4294967295]", "[16777216.0, 4294967296.0]"),
    ("vcvtdq2pd", "s32", "f64", AVX512_BW, "CVTDQ2PD", "[16777217, -3]", "[16777217.0, -3.0]"),
    ("vcvtudq2pd", "u32", "f64", AVX512_ONLY, "VCVTUDQ2PD", "[16777217, 4294967295]", "[16777217.0, 4294967295.0]"),
)


def _to_floats(name: str, source: str, result: str, caps: Widths, manual: str, call: str, shown: str) -> None:
    how = "exactly" if result == "f64" else "rounded to nearest even"
    doc = example(name, f"{source} to {result}, {how}.", call, shown)

    @define(name, f"{result} <- {source}", caps, f"Intel SDM Vol. 2A, {manual}", doc=doc)
    def convert(a: Value) -> Value:
        return a.to(result)


for _row in _TO_FLOATS:
    _to_floats(*_row)


_TO_INTEGERS = (
    ("vcvtps2dq", "even", "s32", AVX512_BW, "CVTPS2DQ", "[2.5, -3.5, 3e9]", "[2, -4, -2147483648]"),
    ("vcvttps2dq", "zero", "s32", AVX512_BW, "CVTTPS2DQ", "[2.5, -3.5, 3e9]", "[2, -3, -2147483648]"),
    ("vcvtps2udq", "even", "u32", AVX512_ONLY, "VCVTPS2UDQ", "[2.5, 3e9, -1]", "[2, 3000000000, 4294967295]"),
    ("vcvttps2udq", "zero", "u32", AVX512_ONLY, "VCVTTPS2UDQ", "[2.5, 3e9, -0.5]", "[2, 3000000000, 0]"),
)


def _to_integers(name: str, mode: str, result: str, caps: Widths, manual: str, call: str, shown: str) -> None:
    form = fmt(result)
    outside = -(2**31) if form.signed else form.high
    how = {"zero": "towards zero", "even": "to nearest even"}[mode]
    text = f"f32 to {result}, rounded {how}; out of range and NaN give {outside & 0xFFFFFFFF:X}H."

    @define(
        name,
        f"{result} <- f32",
        caps,
        f"Intel SDM Vol. 2A, {manual}",
        doc=example(name, text, call, shown),
    )
    def convert(a: Value) -> Value:
        whole = integral(a, mode)
        inside = (whole >= float(form.low)) & (whole < form.high + 1.0)
        return inside.where(inside.where(whole, a.literal(0.0)).to(result), a.view(result).literal(outside))


for _line in _TO_INTEGERS:
    _to_integers(*_line)


@define("vcvtps2pd", "f64 <- f32", AVX512_BW, "Intel SDM Vol. 2A, CVTPS2PD")
def vcvtps2pd(a: Value) -> Value:
    """f32 to f64, exactly; a NaN turns quiet.

    >>> from isa_models import instruction
    >>> instruction("vcvtps2pd")([1.5, -2]).tolist()
    [1.5, -2.0]
    """
    bits = a.view("u32")
    return a.is_nan().where(bits | 0x00400000, bits).view("f32").to("f64")


@define("vcvtpd2ps", "f32 <- f64", AVX512_BW, "Intel SDM Vol. 2A, CVTPD2PS")
def vcvtpd2ps(a: Value) -> Value:
    """f64 to f32, rounded to nearest even.

    >>> from isa_models import instruction
    >>> instruction("vcvtpd2ps")([0.1, 1e60]).tolist()
    [0.10000000149011612, inf]
    """
    return round_to(a, "f32")


@define("vcvtps2phx", "f16 <- f32", AVX512_FP16, "Intel SDM Vol. 2C, VCVTPS2PHX")
def vcvtps2phx(a: Value) -> Value:
    """f32 to f16, rounded to nearest even, denormals kept.

    >>> from isa_models import instruction
    >>> instruction("vcvtps2phx")([1.0009, 1e5]).tolist()
    [1.0009765625, inf]
    """
    return round_to(a, "f16")
