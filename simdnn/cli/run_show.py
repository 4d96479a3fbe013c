"""How `simdnn run` shows frames: one table printer for all kinds of workload, within the width of a terminal."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from simdnn.cli import output
from simdnn.cli.folding import fitted, terminal_width
from simdnn.exactness import measures
from simdnn.late import pd

Format = Callable[[Any], str]

WIDTH = 120  # of a table in a file or a pipe
NAME = 36  # characters of a name that are shown, unless all columns are asked for
_NAMES = ("layer", "implementation", "computes")
#: kinds of departure that are shown where there are some
RARE = tuple(column.removesuffix("_outputs") for column in measures.DEPARTURE_COLUMNS if column != "saturated_outputs")
_COSTS = ("cycles", "cycles_mb1", "time_us", "gops", "gb_s", "bound", "share_of_peak")
_ERRORS = ("max_abs_error", "sqnr_db")
_SHARES = ("saturated_share", *(f"{kind}_share" for kind in RARE))
_NAMED = ("machine", "layer", "op", "count", "mode", "phase", "implementation")
LAYERS = (*_NAMED, *_COSTS, *_ERRORS, *_SHARES, "confidence")
#: of totals, behind the mode, the phase and the workload's own figures of quality
TOTALS = (
    "tokens_per_s",
    "speed_up",
    "computes",
    "implementation",
    *_COSTS,
    *_ERRORS,
    "worst_layer_sqnr_db",
    *_SHARES,
    "values_of",
    "confidence",
)
#: what is put away, first to last, where a table is wider than a terminal
_LEAST_OF_LAYERS = (
    "confidence",
    "gb_s",
    "gops",
    "share_of_peak",
    "op",
    "cycles_mb1",
    "bound",
    "max_abs_error",
    "time_us",
)
_LEAST_OF_TOTALS = (
    *("implementation", "worst_layer_sqnr_db", "gops", "gb_s", "share_of_peak", "computes", "cycles_mb1", "bound"),
    *("confidence", "max_abs_error", "time_us"),
)
_LEAST_OF_POINTS = (*_LEAST_OF_LAYERS, "implementation")
_ALWAYS = ("machine", "layer", "mode", "phase", "cycles", "speed_up", "sqnr_db", "implementation")
HEADINGS = {
    "share_of_peak": "peak",
    "max_abs_error": "max_abs",
    "worst_layer_sqnr_db": "worst_sqnr_db",
    **{share: share.removesuffix("_share") for share in _SHARES},
}
FORMATS: dict[str, Format] = {
    "cycles": "{:.0f}".format,
    "cycles_mb1": "{:.0f}".format,
    "time_us": lambda us: f"{us:.1f}" if us >= 1 else f"{us:.3g}",
    "gops": "{:.1f}".format,
    "gb_s": "{:.1f}".format,
    "share_of_peak": "{:.0%}".format,
    "max_abs_error": "{:.2g}".format,
    "sqnr_db": "{:.1f}".format,
    "worst_layer_sqnr_db": "{:.1f}".format,
    **dict.fromkeys(_SHARES, lambda share: "<0.01%" if 0 < share < 0.0001 else f"{share:.2%}"),
    "accuracy": "{:.2%}".format,
    "speed_up": "{:.2f}".format,
    "tokens_per_s": "{:.1f}".format,
}


def layers(frame: pd.DataFrame, wide: bool = False) -> str:
    """The rows of layers or nodes, a layer's name only on its first line, and what was put away."""
    return _shown(frame, LAYERS, FORMATS, () if wide else _LEAST_OF_LAYERS, ())


def points(frame: pd.DataFrame, axes: Sequence[str], measures: Sequence[str], formats: Mapping[str, Format]) -> str:
    """The rows of a study, and what was put away: a parameter never is."""
    return _shown(frame, (*axes, *measures), {**FORMATS, **formats}, _LEAST_OF_POINTS, axes, "-o FILE.csv has")


def totals(frame: pd.DataFrame, quality: Mapping[str, str], wide: bool = False) -> str:
    """A row a mode, and what was put away. `quality`: formats of the workload's own figures, by column."""
    own = [name for name in dict.fromkeys(("accuracy", "metric", *quality)) if name in frame]
    formats = FORMATS | {name: form.format for name, form in quality.items()}
    return _shown(frame, ("machine", "mode", "phase", *own, *TOTALS), formats, () if wide else _LEAST_OF_TOTALS, own)


def _shown(
    frame: pd.DataFrame,
    columns: Sequence[str],
    formats: Mapping[str, Format],
    least: Sequence[str],
    own: Sequence[str],
    where: str = "--wide shows",
) -> str:
    """A table of the columns that the frame has: `own` ones and those that differ, as many as a terminal takes when the
    `least` of them give way; all where none may.
    """
    known = [name for name in columns if name in frame and frame[name].notna().any()]
    known = [name for name in known if not (name in _SHARES[1:] and not (frame[name] > 0).any())]
    alike: list[str] = []
    if least and len(frame) > 1:
        alike = [n for n in known if n not in (*_ALWAYS, *own) and frame[n].nunique(dropna=False) == 1]
    kept, away = [name for name in known if name not in alike], []
    most = terminal_width() or WIDTH
    for name in least:
        if max(map(len, _table(frame, kept, formats).splitlines())) <= most:
            break
        if name in kept and name not in own:
            kept.remove(name)
            away.append(name)
    text = _table(frame, kept, formats, fit=True) if least else _table(frame, kept, formats, cut=False)
    notes = []
    if alike:
        same = (f"{HEADINGS.get(n, n)} {formats.get(n, str)(frame[n].iloc[0])}" for n in alike)
        notes.append(f"alike in all rows: {', '.join(same)}")
    if away:
        notes.append(f"{where} {', '.join(HEADINGS.get(name, name) for name in away)}")
    note = f"({'; '.join(notes)})" if notes else ""
    return "\n".join([text, *([fitted(note, terminal_width() or len(note))] if notes else [])])


def _cut(text: str) -> str:
    """The end of a name: what tells layers, and kernels after one another, apart."""
    return text if len(text) <= NAME else "…" + text[1 - NAME :]


def _table(
    frame: pd.DataFrame, columns: list[str], formats: Mapping[str, Format], cut: bool = True, fit: bool = False
) -> str:
    """The table, its long names `cut`; within the width of a terminal where it shall `fit`."""
    shown = frame[columns]
    if cut:
        shown = shown.assign(**{n: shown[n].map(_cut, na_action="ignore") for n in _NAMES if n in columns})
    if "layer" in columns:
        shown = shown.assign(layer=shown["layer"].where(shown["layer"] != shown["layer"].shift(), ""))
    named = {HEADINGS.get(name, name): form for name, form in formats.items()}
    return output.table(shown.rename(columns=HEADINGS), named, fit)
