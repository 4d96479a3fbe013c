"""The columns of a study: what one layer in one mode cost, and how far its values are from the reference."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import sqrt
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from simdnn.explanations.departures import CLIPPED, HALVED, ROUNDED, SATURATED, WRAPPED, Departures, percent
from simdnn.primitives.result import Estimate, Result
from simdnn.timing.cpu.peak import peak_macs_per_cycle

if TYPE_CHECKING:
    from simdnn.timing.estimate import Cost

COST_COLUMNS = (
    "implementation",
    "compute_dtype",
    "macs",
    "cycles",
    "time_us",
    "gops",
    "bytes",
    "gb_s",
    "bound",
    "share_of_peak",
    "confidence",
)
#: how many outputs met each kind of departure from exact integers (`Result.departures`), and any of them
DEPARTURE_COLUMNS = {
    "saturated_outputs": SATURATED,
    "halved_outputs": (HALVED,),
    "wrapped_outputs": (WRAPPED,),
    "rounded_outputs": (ROUNDED,),
    "clipped_outputs": (CLIPPED,),
}
COUNTS = (*DEPARTURE_COLUMNS, "departed_outputs")
SHARES = tuple(column.replace("_outputs", "_share") for column in COUNTS)
VALUE_COLUMNS = ("max_abs_error", "relative_l2", "sqnr_db", "outputs", *COUNTS, *SHARES)
_BLOCK = 1 << 15  # elements that are compared at a time


def cost(result: Estimate, isa: str, macs: int, times: float = 1, ahead: Cost | None = None) -> dict[str, Any]:
    """`COST_COLUMNS` of a kernel that is run `times` times for `macs` multiply-accumulates in all; `ahead`: what makes
    its source each time, in cycles and time.

    `gops` counts 2 operations a multiply-accumulate. `bytes` are the program's inputs and outputs, each once; `gb_s` is
    their rate, as benchdnn counts it (`Result.traffic` tells the levels of memory apart). `share_of_peak` is against
    `peak_macs_per_cycle` of the type computed in, under the ISA cap `isa`.
    """
    cycles, seconds = (
        times * (own + more)
        for own, more in (
            (result.cycles, ahead.cycles if ahead else 0),
            (result.seconds, ahead.seconds if ahead else 0),
        )
    )
    moved = times * result.nbytes
    return {
        "implementation": result.implementation,
        "compute_dtype": result.compute_dtype,
        "macs": macs,
        "cycles": cycles,
        "time_us": seconds * 1e6,
        "gops": 2 * macs / seconds / 1e9,
        "bytes": moved,
        "gb_s": moved / seconds / 1e9,
        "bound": result.bound,
        "share_of_peak": macs / cycles / peak_macs_per_cycle(result.machine, result.compute_dtype, isa),
        "confidence": result.confidence,
    }


def values(result: Result, real: NDArray[Any], reference: NDArray[Any], times: int = 1) -> dict[str, float]:
    """`VALUE_COLUMNS`: the errors of the output as real numbers, and how many outputs departed from exact integers."""
    return errors(real, reference) | departures([(result.departed, times)])


def departures(results: Iterable[tuple[Departures, int]]) -> dict[str, float]:
    """Outputs, `COUNTS` and `SHARES` of them, of results that each stand for several."""
    found: dict[str, float] = dict.fromkeys(("outputs", *COUNTS), 0)
    for departed, times in results:
        counts = {column: departed.outputs(*kinds) for column, kinds in DEPARTURE_COLUMNS.items()}
        counts |= {"outputs": departed.departing.size, "departed_outputs": int(departed.departing.sum())}
        for column, count in counts.items():
            found[column] += count * times
    return found | shares(found)


def shares(counts: Mapping[str, float]) -> dict[str, float]:
    """`SHARES` of counted outputs; 0 of none."""
    outputs = max(1, counts["outputs"])
    return {share: counts[count] / outputs for share, count in zip(SHARES, COUNTS, strict=True)}


def departed_text(counts: Mapping[str, float]) -> str:
    """The kinds that some output met and the share of outputs that did, e.g. "halved weights 99.8 %"; "" where none.

    >>> departed_text(dict.fromkeys(DEPARTURE_COLUMNS, 0) | {"outputs": 8, "halved_outputs": 8, "clipped_outputs": 1})
    'halved weights 100 %, clipped destination 12.5 %'
    """
    kinds = [(kind, counts[column] / max(1, counts["outputs"])) for column, (kind, *_) in DEPARTURE_COLUMNS.items()]
    return ", ".join(f"{kind} {percent(share)}" for kind, share in kinds if share > 0)


def errors(values: NDArray[Any], reference: NDArray[Any]) -> dict[str, float]:
    """Largest absolute error, relative L2 error and signal-to-quantization-noise ratio in dB, taken in f64.

    Equal arrays give an infinite ratio.

    >>> errors(np.array([3.0, 4.5]), np.array([3.0, 4.0]))
    {'max_abs_error': 0.5, 'relative_l2': 0.1, 'sqnr_db': 20.0}
    """
    return errors_over([values], [reference])


def errors_over(values: Sequence[NDArray[Any]], reference: Sequence[NDArray[Any]]) -> dict[str, float]:
    """`errors` of several arrays taken as one, each beside its reference of the same size.

    >>> errors_over([np.array([3.0]), np.array([[4.5]])], [np.array([3.0]), np.array([[4.0]])])
    {'max_abs_error': 0.5, 'relative_l2': 0.1, 'sqnr_db': 20.0}
    """
    largest, noise, signal = [0.0], 0.0, 0.0
    for one, other in zip(values, reference, strict=True):
        found, wanted = one.reshape(-1), other.reshape(-1)
        for at in range(0, found.size, _BLOCK):  # what fits a cache is widened there
            exact = wanted[at : at + _BLOCK].astype(np.float64)
            with np.errstate(invalid="ignore"):  # of infinities, which no figure is for
                error = found[at : at + _BLOCK].astype(np.float64) - exact
            largest.append(np.abs(error).max())
            # not error @ error: a BLAS splits even that among threads, which wait for each other on a busy host
            noise += float(np.square(error, out=error).sum())
            signal += float(np.square(exact, out=exact).sum())
    relative = sqrt(noise) / sqrt(signal) if signal else float("inf" if noise else 0)
    return {
        "max_abs_error": float(np.max(largest)),
        "relative_l2": relative,
        "sqnr_db": -20 * float(np.log10(relative)) if relative else float("inf"),
    }
