"""The one runner of workloads in precision modes: a row a layer and mode, and totals, with equal columns for all kinds.

A layer table, a classifier with its data, an ONNX graph and a fetched network with data differ in what runs and in how
its quality is told; each is one `WorkPart` or several, and says what one mode gives (`InMode`). Shared, and here:
which modes run and in which order, refusals, modes that change nothing, sums, speed-ups, errors of the whole.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import as_completed
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any, Protocol

import numpy as np

from isa_models import InvalidArgument, SimdnnError, Unimplemented
from isa_models.errors import counted, some
from isa_models.keywords import keywords
from isa_models.machines.provenance import weakest
from isa_models.records.alike import Alike
from simdnn.exactness import measures
from simdnn.kernels.table import kind_of
from simdnn.late import pd
from simdnn.networks.precision import MODES, Mode
from simdnn.progress import Progress, shows
from simdnn.workers import WORTH_WORKERS, pool

Row = dict[str, Any]
NOTHING = "no mode could be run: "  # how the reason begins where all modes were refused
FREE = ("constant", "view")  # implementations of what costs nothing
ERRORS = {"max_abs_error": "max", "relative_l2": "max", "sqnr_db": "min"}  # and how the worst is found
_SUMS = ("macs", "cycles", "time_us", "bytes", "cycles_mb1", "outputs", *measures.COUNTS)
#: columns of totals in their order, as far as a workload has them; those of its own quality follow the phase
_FIRST = ("layer", "count", "mode", "phase")
_AFTER_QUALITY = ("speed_up", "computes", "implementation")
_LAST = ("departures", "confidence", "values_of", "note", "refused")


@dataclass(eq=False)
class InMode:
    """The outcome of a part in one mode.

    `layers`: a row each. `wholes`: what no sum over layers tells, as quality; a row, or a row a `phase`; none for a
    layer of a table. `ran`: equal for two modes that were one run; None where that is not told.
    """

    layers: list[Row]
    wholes: list[Row] = field(default_factory=list)
    ran: tuple[Any, ...] | None = None
    notes: list[str] = field(default_factory=list)
    same: list[str] = field(default_factory=list)  # other modes that would be this run


class WorkPart(Protocol):
    """A piece of a workload that runs by itself: a layer of a table, or a whole network.

    `base`: the mode that always runs, first, as times and errors are told against it; None: what is asked for alone.
    `refusals`: errors with which one mode may be refused while others go on. `hides`: what a mode gives that is the
    very run of another has no row of its own.
    """

    @property
    def name(self) -> str: ...
    @property
    def macs(self) -> int: ...
    @property
    def base(self) -> Mode | None: ...
    @property
    def hides(self) -> bool: ...
    @property
    def refusals(self) -> tuple[type[SimdnnError], ...]: ...

    def reference(self) -> Any:
        """The values to compare with; found once."""

    def in_mode(self, mode: Mode, isa: str | None, reference: Any) -> InMode:
        """The part in one mode, under an ISA cap."""

    def refused(self, mode: Mode, reason: str) -> InMode:
        """The row that stands for the part in a mode that it refuses."""


@dataclass(frozen=True, eq=False, repr=False)
class Frames(Alike):
    """`layers`: a row a layer or node and mode. `totals`: a row a mode, or a mode and phase. `pictures`: what each mode
    made of the first sample; empty where outputs are no pictures.
    """

    layers: pd.DataFrame
    totals: pd.DataFrame
    pictures: Mapping[str, Any] = field(default_factory=dict)

    def __repr__(self) -> str:
        return f"Frames({counted(len(self.totals), 'row')} in .totals, {len(self.layers)} in .layers)"

    def _repr_html_(self) -> str:
        return str(self.totals.to_html(max_rows=40))


@shows
def run_modes(
    parts: Sequence[WorkPart],
    modes: Mapping[Mode, str | None],
    *,
    isa: str | None = None,
    jobs: int = 1,
    progress: Progress | None = None,
) -> Frames:
    """All parts in all modes, each under its ISA cap; `isa` caps a base that is not among them.

    `jobs` is the number of worker processes for several parts. Raises `SimdnnError` where nothing could be run.
    """
    rows, wholes = rows_in_modes(parts, modes, isa=isa, jobs=jobs, progress=progress)
    layers, base = pd.DataFrame(rows), parts[0].base
    summed = totals(layers, wholes, base.name if base else "f32")
    layers, summed = asked(layers, base, modes), asked(summed, base, modes)
    reasons = layers["refused"] if len(layers) else summed["refused"]
    if (summed["refused"] != "").all() and (reasons != "").all():
        raise nothing_ran(summed["refused"].iloc[0])
    return Frames(layers, summed)


@shows
def rows_in_modes(
    parts: Sequence[WorkPart],
    modes: Mapping[Mode, str | None],
    *,
    isa: str | None = None,
    jobs: int = 1,
    progress: Progress | None = None,
) -> tuple[list[Row], list[Row]]:
    """A row for each layer or node and mode, and the rows of what no sum of them tells; the base is among the modes."""
    found: dict[str, dict[str, InMode]] = {}
    for part, runs in _map(parts, modes, isa, jobs, progress):
        found[part.name] = runs
        if progress and len(parts) > 1:
            progress(len(found), len(parts), part.name)
    ordered = [(mode, run) for part in parts for mode, run in found[part.name].items()]
    layers = [row | {"mode": mode} for mode, run in ordered for row in run.layers]
    if layers and all(row["refused"] != "" for row in layers):  # no figures to sum up
        raise nothing_ran(layers[0]["refused"])
    return layers, [{"mode": mode} | row for mode, run in ordered for row in run.wholes]


def asked(frame: pd.DataFrame, base: Mode | None, modes: Mapping[Mode, str | None]) -> pd.DataFrame:
    """The rows of the modes asked for: without those of a base that is not among them."""
    if base is None or base.name not in MODES or base in modes:
        return frame
    return frame[frame["mode"] != base.name].reset_index(drop=True)


def product_type(implementation: str, compute_dtype: str) -> str:
    """The type of a layer's products, by which values of two machines are told to be alike: their order of sums may
    differ, and not whether a step on the way to an integer sum may saturate.

    >>> product_type("gemm:avx2_int8", "s8"), product_type("gemm:avx512_core_vnni", "s8")
    ('s8 saturating', 's8')
    """
    kinds = filter(None, map(kind_of, implementation.split(" + ")))
    return compute_dtype if all(kind.exact for kind in kinds) else f"{compute_dtype} saturating"


def nothing_ran(reason: str) -> Unimplemented:
    """The error for rows that are all refused, with the first one's reason."""
    return Unimplemented(f"{NOTHING}{reason}")


def _map(
    parts: Sequence[WorkPart], modes: Mapping[Mode, str | None], isa: str | None, jobs: int, progress: Progress | None
) -> Iterator[tuple[WorkPart, dict[str, InMode]]]:
    """Parts with what they gave, in the order in which they end."""
    if jobs == 1 or len(parts) < WORTH_WORKERS:
        told = progress if len(parts) == 1 else None
        yield from ((part, in_all(part, modes, isa, told)) for part in parts)
        return
    with pool(min(jobs, len(parts))) as workers:
        # the largest first, so that none of them is left for the end
        ordered = sorted(parts, key=lambda part: part.macs, reverse=True)
        running = {workers.submit(in_all, part, modes, isa): part for part in ordered}
        for future in as_completed(running):
            yield running[future], future.result()


def in_all(
    part: WorkPart, modes: Mapping[Mode, str | None], isa: str | None = None, progress: Progress | None = None
) -> dict[str, InMode]:
    """One part in each mode, by the mode's name, its base first."""
    chosen: dict[Mode, str | None] = {**({part.base: modes.get(part.base, isa)} if part.base else {}), **modes}
    reference = part.reference()
    found: dict[str, InMode] = {}
    for done, (mode, cap) in enumerate(chosen.items()):
        if progress:
            progress(done, len(chosen), mode.name)
        try:
            run = part.in_mode(mode, cap, reference)
        except part.refusals as error:
            if mode == part.base:
                raise
            run = part.refused(mode, str(error))
        twin = next((name for name, other in found.items() if run.ran and other.ran == run.ran), "")
        if twin and part.hides:
            found[twin].same.append(mode.name)
            continue
        if twin:
            run.notes.insert(0, f"changes nothing: the products, cycles and bits of {twin}")
        found[mode.name] = run
    for run in found.values():
        same = [f"{' and '.join(run.same)} would be this very run"] if run.same else []
        for whole in run.wholes:
            whole.setdefault("note", "; ".join([*run.notes, *same]))
    return found


@keywords
def totals(frame: pd.DataFrame, wholes: Sequence[Row] = (), base: str = "f32") -> pd.DataFrame:
    """One row a mode (and phase) over all layers and their counts, `speed_up` over the base's time where that was run.

    Costs are sums, rates follow from the sums, `computes` has the types of products by their multiply-accumulates,
    `bound` is the one that most time goes to, `share_of_peak` is weighted by time, `confidence` is the weakest.
    Errors: `worst_layer_max_abs_error`, `worst_layer_relative_l2`, `worst_layer_sqnr_db`, each of the layer that is
    worst in it; of a network that was run from end to end, and of one layer alone, also `max_abs_error`,
    `relative_l2`, `sqnr_db` of its outputs. `departures` tells the kinds of departure from exact integers with the
    share of outputs that met each. A mode with a refused layer has no totals.

    `wholes`: rows of what no sum tells, by mode and phase; they overrule sums.
    """
    if lacking := [name for name in ("mode", "refused") if name not in frame]:
        raise InvalidArgument(f"the frame lacks {', '.join(lacking)}; one that run_layers made is needed")
    if not wholes:
        keys = [key for key in ("mode", "phase") if key in frame]
        wholes = [dict(zip(keys, some, strict=True)) for some in frame[keys].drop_duplicates().itertuples(index=False)]
    rows = [_total(whole, _layers_of(frame, whole)) for whole in wholes]
    times = {row.get("phase"): row["time_us"] for row in rows if row["mode"] == base and "time_us" in row}
    for row in rows:
        row["speed_up"] = times.get(row.get("phase"), np.nan) / (row.get("time_us") or np.nan)
    made = pd.DataFrame(rows)
    quality = [
        name for whole in wholes for name in whole if name not in (*_FIRST, *_SUMS, *ERRORS, *_LAST, *_AFTER_QUALITY)
    ]
    quality += [name for name in ("accuracy", "images") if name in made]
    first = [*_FIRST, *dict.fromkeys(quality), *_AFTER_QUALITY]
    middle = [name for name in made if name not in (*first, *_LAST)]
    return made[[name for name in (*first, *middle, *_LAST) if name in made]]


def computed(products: Iterable[tuple[str, float]]) -> str:
    """The types that products are computed in, by (type, multiply-accumulates): the most first, with their shares.

    >>> computed([("s8", 60), ("f32", 40), ("", 0)]), computed([("f32", 2), ("f32", 1)])
    ('s8 60%, f32 40%', 'f32')
    >>> computed([("s8", 999), ("s16", 1)])
    's8 100%, s16 <1%'
    """
    macs: dict[str, float] = {}
    for name, count in products:
        if count:
            macs[name] = macs.get(name, 0) + count
    ordered = sorted(macs.items(), key=lambda entry: -entry[1])
    shares = [(name, count / sum(macs.values())) for name, count in ordered]
    if len(shares) == 1:
        return shares[0][0]
    return ", ".join(f"{name} {f'{share:.0%}' if share >= 0.005 else '<1%'}" for name, share in shares)


def _layers_of(frame: pd.DataFrame, whole: Row) -> pd.DataFrame:
    """The layers that a row of totals is about."""
    if frame.empty:
        return frame
    mine = frame["mode"] == whole["mode"]
    found: pd.DataFrame = frame[mine & (frame["phase"] == whole["phase"])] if "phase" in whole else frame[mine]
    return found


def _total(whole: Row, part: pd.DataFrame) -> Row:
    """A row of totals: what `whole` says, and the sums, weakest figures and worst errors of its layers."""
    row: Row = {"layer": "total", "mode": whole["mode"], "note": "", "refused": ""}
    if not len(part):
        return row | whole
    if "note" in part:
        row["note"] = "; ".join(dict.fromkeys(part["note"].dropna()))
    times = part["count"]
    time_us = float((part["time_us"] * times).sum(skipna=False))
    refused = part[part["refused"] != ""]
    ran = part["implementation"][~part["implementation"].isin(FREE)].unique()
    names = None if len(refused) else ran[0] if len(ran) == 1 else f"{len(ran)} kernels"
    row |= {"count": int(times.sum()), "implementation": names}
    for column in _SUMS:
        if column in part:
            row[column] = (part[column] * times).sum(skipna=False)
    row["gops"] = 2e-3 * row["macs"] / time_us if time_us else 0.0
    if "bytes" in part:
        row["gb_s"] = 1e-3 * row["bytes"] / time_us
        row["share_of_peak"] = (part["share_of_peak"] * part["time_us"] * times).sum(skipna=False) / time_us
    row["refused"] = refused["refused"].iloc[0] if len(refused) else ""
    if not len(refused):
        row["computes"] = computed(zip(part["compute_dtype"], part["macs"] * times, strict=True))
        row["bound"] = (part["time_us"] * times).groupby(part["bound"]).sum().idxmax()
        row["confidence"] = weakest(part["confidence"])
    for column, worst in ERRORS.items():
        if column in part:
            if "accuracy" in part or len(part) == 1:  # whose last layer's outputs are those of all
                row[column] = part[column].iloc[-1]
            row[f"worst_layer_{column}"] = getattr(part[column], worst)() if not len(refused) else np.nan
    if "outputs" in part:
        row |= measures.shares(row)
        row["departures"] = "" if len(refused) else measures.departed_text(row) or "none"
    for column in ("accuracy", "images"):
        if column in part:
            row[column] = part[column].iloc[0]
    return row | whole


def check_scoped(names: Sequence[str], fpmath_layers: str) -> None:
    """`InvalidArgument` for a pattern of the comma list `fpmath_layers` that matches none of the layers' names."""
    if not names:
        raise InvalidArgument("there is no layer to run")
    for pattern in fpmath_layers.split(","):
        if not any(fnmatchcase(name, pattern) for name in names):
            raise InvalidArgument(f"fpmath_layers={pattern!r} matches none of the layers; they are {some(names)}")
