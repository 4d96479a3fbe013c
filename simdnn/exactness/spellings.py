"""The spellings of "compute integer weights in floats" that oneDNN's proposal weighs, run side by side on one product.

Source: oneDNN, branch `rfcs`, `rfcs/20231002-Compute-type`, "Proposal for weight decompression", sections 3.b to 3.e.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

import isa_models
from isa_models import SimdnnError
from isa_models.formats import fmt
from isa_models.machines.loader import AnyMachine
from isa_models.readings.arrays import Array
from simdnn.exactness import measures
from simdnn.late import frames, pd
from simdnn.primitives import Attr, arrays, matmul
from simdnn.primitives.checks import integer, keywords, one_of
from simdnn.primitives.result import Result
from simdnn.progress import each

SOURCES = ("f32", "bf16", "f16", "u8", "s8")
WEIGHTS = ("f32", "bf16", "f16", "s8", "u8", "s4", "u4")
WANTED = ("tf32", "bf16", "f16")
_DIVISOR = 97  # of the integers that floating-point sources are made from: few of them have short fractions


@dataclass(frozen=True)
class Asked:
    """The meaning of a spelling here: the attribute, and the compute type where it is a requirement, not a hint."""

    attr: Attr
    required: str = ""


Spelling = Callable[[str, bool], Asked | str]  # (mode, whether weights are integers): or the proposal's own refusal


def _apply_to_int(mode: str, integral: bool) -> Asked:
    """The attribute that oneDNN built in the end: the mode counts for integers where a flag inside it says so."""
    return Asked(Attr(fpmath=mode, apply_to_int=integral))


def _nothing(mode: str, integral: bool) -> Asked:
    return Asked(Attr(fpmath="strict"))


def _math_mode(mode: str, integral: bool) -> Asked:
    """Section 3.c: the mode alone says it, also for integers; `strict` leaves mixed types ambiguous."""
    return Asked(Attr(fpmath=mode, apply_to_int=integral and mode != "strict"))


def _compute_type(mode: str, integral: bool) -> Asked | str:
    """Section 3.d, as it recommends: a requirement above the mode, and allowed beside an integral input alone."""
    if not integral:
        return "no integral input"
    return Asked(Attr(fpmath=mode, apply_to_int=True), "f32" if mode == "strict" else mode)


def _intmath_mode(mode: str, integral: bool) -> Asked:
    """Section 3.e: a requirement for primitives with integral weights; floating ones go by `fpmath_mode` alone."""
    if not integral or mode == "strict":
        return Asked(Attr(fpmath="strict"))
    return Asked(Attr(fpmath=mode, apply_to_int=True), mode)


#: how each spelling is written for a mode, its section of the proposal, and what it comes to
SPELLINGS: tuple[tuple[str, str, Spelling], ...] = (
    ("fpmath={mode}, apply_to_int", "built", _apply_to_int),
    ("force_fpmath, fpmath_mode={mode}", "3.b", _apply_to_int),  # a flag beside the mode says what the built one says
    ("math_mode={mode}", "3.c", _math_mode),
    ("compute_type={type}", "3.d", _compute_type),
    ("intmath_mode={mode}", "3.e", _intmath_mode),
)


@keywords
def spellings(
    *, m: int, n: int, k: int, dt: str = "f32:s8", machine: str | AnyMachine, want: str = "bf16", seed: int = 0
) -> pd.DataFrame:
    """Each spelling of a wish for `want`, and of a wish for f32, on one product of seeded data: its type, cycles, bits.

    `dt` is "src:weights" in types of `SOURCES` and `WEIGHTS`; the product is (m, k) x (k, n). A row each, the first
    where nothing is said; columns: spelling, section (of the proposal), computes, implementation, cycles, bits (equal
    numbers: equal bits), relative_error (the largest error over the largest output, from f64), and refused: why there
    are no figures. `InvalidArgument` and `UnknownName` for sizes, types and machines that are not there.

    >>> frame = spellings(m=8, n=32, k=64, machine="clx").set_index("spelling")
    >>> frame.loc[["math_mode=bf16", "compute_type=bf16"], ["computes", "refused"]].values.tolist()
    [['f32', ''], ['', 'clx has no bf16']]
    """
    src_type, _, wei_type = dt.partition(":") if isinstance(dt, str) else (dt, "", "")
    one_of("source type", src_type, SOURCES)
    one_of("weights type", wei_type, WEIGHTS)
    one_of("want", want, WANTED)
    m, n, k = (integer(name, value) for name, value in (("m", m), ("n", n), ("k", k)))
    target, seed = isa_models.machine(machine), integer("seed", seed, 0)
    arrays.check_memory({"src": ((m, k), "f64"), "weights": ((k, n), "f64")})
    src, weights = _data((m, k), (k, n), src_type, wei_type, seed)
    exact = src.astype(np.float64) @ weights.astype(np.float64)
    integral = not fmt(wei_type).is_float
    asked: list[tuple[str, str, Asked | str]] = [("nothing said", "", _nothing("strict", integral))]
    for text, section, spelling in SPELLINGS:
        for mode in (want, "strict"):
            name = text.format(mode=mode, type="f32" if mode == "strict" else mode)
            asked.append((name, section, spelling(mode, integral)))
    seen: dict[bytes, int] = {}
    rows = []
    for name, section, wish in each(asked, lambda one: one[0]):
        row: dict[str, Any] = {"spelling": name, "section": section, "computes": "", "implementation": ""}
        row |= {"cycles": np.nan, "bits": 0, "relative_error": np.nan, "refused": ""}
        found = _outcome(src, weights, target, wish)
        if isinstance(found, Result):
            output = found.output.astype(np.float64)
            row |= {"computes": found.compute_dtype, "implementation": found.implementation, "cycles": found.cycles}
            row["bits"] = seen.setdefault(found.output.tobytes(), len(seen) + 1)
            row["relative_error"] = measures.errors(output, exact)["max_abs_error"] / np.abs(exact).max()
        rows.append(row | ({} if isinstance(found, Result) else {"refused": found}))
    return frames.shown(pd.DataFrame(rows))


def _outcome(src: Array, weights: Array, machine: AnyMachine, asked: Asked | str) -> Result | str:
    """The product, or why there is none."""
    if isinstance(asked, str):
        return asked
    try:
        found = matmul(src, weights, machine=machine, attr=asked.attr)
    except SimdnnError as error:
        return f"{type(error).__name__}: {error}"
    if asked.required and found.compute_dtype != asked.required:
        return f"{machine.name} has no {asked.required}"
    return found


def _data(src: tuple[int, int], wei: tuple[int, int], src_type: str, wei_type: str, seed: int) -> tuple[Array, Array]:
    """A source of numbers that are not negative, and weights of all numbers that a type holds but its least."""
    rng = np.random.default_rng(seed)
    numbers = rng.integers(0, 127 if src_type == "s8" else 255, src)
    source = numbers / _DIVISOR if fmt(src_type).is_float else numbers
    form = fmt("s8" if fmt(wei_type).is_float else wei_type)
    least, most = max(form.low, -form.high), form.high
    weights = rng.integers(least, most, wei)
    made: Array = source.astype(fmt(src_type).dtype)
    return made, weights.astype(fmt(wei_type).dtype)
