"""Number formats as fields of bits, and what rounding makes of a value in each."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.patches import Rectangle

from isa_models import InvalidArgument
from isa_models.formats import FORMATS, Format, fmt
from isa_models.keywords import keywords
from isa_models.readings.arrays import ArrayValue
from isa_models.rounding import codes_of
from simdnn.plot.canvas import color, ink, new_axes

MOST_ROWS = 40
_FIELDS = {"sign": (3, ""), "exponent": (2, "///"), "mantissa": (0, ""), "number": (0, ""), "unused": (7, "...")}
_LIGHT = {"sign": 0.75, "exponent": 0.4, "mantissa": 0.2, "number": 0.2, "unused": 0.08}  # how dark a field is
_WIDEST_DIGITS = 32  # bits of a row that have their digit written


@keywords
def plot_format(
    names: str | Sequence[str],
    values: float | Sequence[float] | None = None,
    ax: Axes | None = None,
) -> Axes:
    """The bits of number formats: sign, exponent and mantissa (of integers the number), the highest bit at the left.

    `names`: one of oneDNN's names ("bf16", "f8_e4m3", "s8", …) or several. With `values`, a row for each format and
    value: the bits that are stored, and what rounding made of the value: floats to nearest even, beyond the greatest
    one to infinity (f8_e4m3: NaN; f6 and f4: the greatest); integers to nearest even, and the nearest that there is.
    Without, the range of each.
    """
    forms = [fmt(name) for name in ([names] if isinstance(names, str) else list(names))]
    if not forms:
        raise InvalidArgument(f"no formats; some of {', '.join(FORMATS)} are needed")
    if by_table := next((form for form in forms if form.values), None):
        raise InvalidArgument(f"{by_table.name} has a value for each code: there are no fields of bits to draw")
    given = None if values is None else _numbers(values)
    rows = [(form, value) for value in (given if given is not None else [None]) for form in forms]
    if len(rows) > MOST_ROWS:
        raise InvalidArgument(f"{len(rows)} rows of bits; up to {MOST_ROWS} are drawn: fewer formats or values")
    widest = max(form.bits for form in forms)
    stored = [_stored(form, value) if value is not None else ("", _range(form)) for form, value in rows]
    ax = ax if ax is not None else new_axes((max(6.0, 0.22 * widest + 4.2), 0.42 * len(rows) + 1.1))
    for place, ((form, _), (bits, text)) in enumerate(zip(rows, stored, strict=True)):
        _row(ax, place, form, bits)
        ax.text(form.bits + 0.5, place, text, va="center", fontsize="small", parse_math=False)
    ax.set_yticks(range(len(rows)), [_named(form, value, given) for form, value in rows], parse_math=False)
    ax.set_ylim(len(rows) - 0.4, -0.6)
    ax.set_xlim(-0.3, widest + 0.45 * max(len(text.get_text()) for text in ax.texts if text.get_text()) + 1)
    ax.set_xticks([])
    if given is not None and len(given) == 1:
        ax.set_xlabel(f"{_text(given[0])} in each format")
    for side in ax.spines.values():
        side.set_visible(False)
    ax.tick_params(axis="y", length=0)
    shown = {field for form in forms for field, _ in fields(form)}
    keys = [_box(0, 0, 0, field) for field in _FIELDS if field in shown]
    for key, field in zip(keys, (f for f in _FIELDS if f in shown), strict=True):
        key.set_label(field)
    ax.legend(handles=keys, loc="lower left", bbox_to_anchor=(0, 1.0), ncols=len(keys), frameon=False, fontsize="small")
    return ax


def fields(form: Format) -> list[tuple[str, int]]:
    """The fields of a format with their bits, the highest first.

    >>> fields(fmt("bf16")), fields(fmt("u8"))
    ([('sign', 1), ('exponent', 8), ('mantissa', 7)], [('number', 8)])
    """
    if form.is_float:
        own = [("sign", int(form.signed)), ("exponent", form.exponent_bits), ("mantissa", form.mantissa_bits)]
    else:
        own = [("sign", int(form.signed)), ("number", form.bits - int(form.signed))]
    own.append(("unused", form.bits - sum(bits for _, bits in own)))
    return [(name, bits) for name, bits in own if bits]


def rounded(form: Format, value: float) -> tuple[float, str]:
    """The number that a format makes of a value, and the bits that are stored, the highest first.

    >>> rounded(fmt("bf16"), 1.01), rounded(fmt("s8"), -200.0)
    ((1.0078125, '0011111110000001'), (-128.0, '10000000'))
    """
    if not form.is_float:
        if np.isnan(value):
            raise InvalidArgument(f"NaN in {form.name}; an integer format has none")
        kept = int(np.clip(np.rint(value), form.low, form.high)) if np.isfinite(value) else _end(form, value)
        return float(kept), format(kept % (1 << form.bits), f"0{form.bits}b")
    if not form.signed and value < 0:
        raise InvalidArgument(f"{value:g} in {form.name}; it has no negative values")
    exact = ArrayValue(np.array([value], np.float64), "f64")
    found = exact.view("u64") if form.name == "f64" else codes_of(exact, form)
    assert isinstance(found, ArrayValue)
    word = np.asarray(found.array).astype(f"u{form.dtype.itemsize}")
    return float(word.view(form.dtype).astype(np.float64)[0]), format(int(word[0]), f"0{form.bits}b")


def _end(form: Format, value: float) -> int:
    return form.high if value > 0 else form.low


def _numbers(values: Any) -> list[float]:
    given = np.atleast_1d(np.asarray(values, dtype=object)).ravel().tolist()
    try:
        found = [float(value) for value in given]
    except (TypeError, ValueError):
        raise InvalidArgument(f"values={values!r:.60}; numbers are needed") from None
    if not found:
        raise InvalidArgument("values is empty; a number or several are needed")
    return found


def _stored(form: Format, value: float) -> tuple[str, str]:
    kept, bits = rounded(form, value)
    if kept == value or np.isnan(kept) and np.isnan(value):
        return bits, f"{_text(kept)}  exact"
    if not np.isfinite(kept) or not np.isfinite(value):
        return bits, f"{_text(kept)}  beyond {_text(form.greatest)}"
    error = kept - value
    share = f", {abs(error / value):.1%} of it" if value and abs(error / value) >= 5e-4 else ""
    beyond = "  beyond the range;" if not form.is_float and abs(error) > 0.5 else ""
    return bits, f"{_text(kept)} {beyond} off by {error:+.3g}{share}"


def _range(form: Format) -> str:
    if not form.is_float:
        return f"{form.low:,} … {form.high:,}"
    least = 2.0 ** (1 - form.bias)
    step = 2.0**-form.mantissa_bits
    return f"to {_text(form.greatest)}, normal from {_text(least)}, next above 1: {_text(1 + step)}"


def _text(value: float) -> str:
    return f"{value:.9g}"


def _named(form: Format, value: float | None, given: Iterable[float] | None) -> str:
    return form.name if value is None or given is None or len(list(given)) == 1 else f"{_text(value)}  {form.name}"


def _row(ax: Axes, place: int, form: Format, bits: str) -> None:
    at = 0
    for field, width in fields(form):
        ax.add_patch(_box(at, place, width, field))
        for bit in range(at, at + width):
            if bit > at:
                ax.plot([bit, bit], [place - 0.35, place + 0.35], color="white", linewidth=0.5)
            if bits and form.bits <= _WIDEST_DIGITS:
                ax.text(bit + 0.5, place, bits[bit], ha="center", va="center", fontsize="small", family="monospace")
        if not bits and width >= 2:
            ax.text(at + width / 2, place, str(width), ha="center", va="center", fontsize="small")
        at += width


def _box(at: float, place: float, width: float, field: str) -> Rectangle:
    number, hatch = _FIELDS[field]
    return Rectangle(
        (at, place - 0.35), width, 0.7, facecolor=(color(number), _LIGHT[field]), edgecolor=ink(), linewidth=0.8
    )
