"""Output of commands: aligned tables, JSON, files, progress."""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from isa_models.errors import SimdnnError, how_to_install, unknown_name
from simdnn import files
from simdnn.cli import folding
from simdnn.cli.folding import Column, terminal_width
from simdnn.late import pd

FILE_FORMATS = (".csv", ".json", ".parquet")
PICTURE_FORMATS = (".png", ".pdf", ".svg")
MOST_CHARACTERS = 120  # of a name in a table; files have it whole
_NAMES = ("node", "layer", "layers")  # columns of names that a model brings, which may be of any length


Rows = Sequence[Mapping[str, Any]]  # of the same columns


def table(
    frame: pd.DataFrame | Rows,
    formats: Mapping[str, Callable[[Any], str]] = {},  # noqa: B006  # never written
    fit: bool = True,
) -> str:
    """Columns in their order, two blanks between; numbers to the right. Missing values are a dash.

    In a terminal that is narrower, words are folded within their columns, and columns that have no place in it stand
    below their row, unless nothing shall `fit`; elsewhere each row is a line.

    >>> print(table([{"mode": "f32", "cycles": 1234.5}, {"mode": "bf16", "cycles": None}], {"cycles": "{:.0f}".format}))
    mode  cycles
    f32     1234
    bf16       -
    """
    columns = []
    for name, values, right in _columns(frame):
        show = formats.get(name, _legible if name in _NAMES else str)
        columns.append(Column(name, [folding.NOTHING if value is None else show(value) for value in values], right))
    return "\n".join(folding.rows(columns, terminal_width() if fit else None))


def _legible(value: object) -> str:
    return legible(str(value))


def legible(name: str, most: int = MOST_CHARACTERS) -> str:
    r"""A name in a line: control characters as escapes, of a long one its two ends.

    >>> legible("two\nlines"), legible("encoder/" * 20 + "MatMul", 24)
    ('two\\nlines', 'encoder/enco…oder/MatMul')
    """
    text = name if name.isprintable() else "".join(c if c.isprintable() else repr(c)[1:-1] for c in name)
    half = most // 2 - 1
    return text if len(text) <= most else f"{text[: most - half - 1]}…{text[-half:]}"


def _columns(frame: pd.DataFrame | Rows) -> list[tuple[str, list[Any], bool]]:
    """Each column's name, its values, None for those that are missing, and whether they are numbers."""
    if isinstance(frame, Sequence):  # whose commands need no pandas
        names = list(frame[0]) if frame else []
        lists = {name: [row[name] for row in frame] for name in names}
        return [(name, some, all(isinstance(x, int | float | None) for x in some)) for name, some in lists.items()]
    return [
        (
            str(name),
            [None if pd.isna(value) else value for value in frame[name]],
            pd.api.types.is_numeric_dtype(frame[name]),
        )
        for name in frame.columns
    ]


def records(frame: pd.DataFrame) -> list[dict[str, Any]]:
    """Rows as JSON's own types. JSON has no infinity and no NaN: both become null.

    >>> import pandas as pd
    >>> records(pd.DataFrame({"a": [1.5, float("inf")]}))
    [{'a': 1.5}, {'a': None}]
    """
    rows: list[dict[str, Any]] = json.loads(frame.to_json(orient="records", double_precision=15))
    return rows


def print_json(content: Any) -> None:
    """JSON on standard output; what is missing must be None, as JSON has no NaN."""
    print(json.dumps(content, indent=2, allow_nan=False))


def add_options(
    parser: argparse.ArgumentParser | argparse._ArgumentGroup,
    instead_of: str = "the table",
    file: str = "also write FILE.csv, .json or .parquet",
    metavar: str = "FILE",
) -> None:
    """The options `--json` (`instead_of` what it prints; "": there is none), `-o` and `--force`.

    Under the last one files are replaced whoever wrote them; `simdnn.cli.main` reads it.
    """
    if instead_of:
        parser.add_argument("--json", action="store_true", help=f"JSON on standard output instead of {instead_of}")
    parser.add_argument("-o", "--output", type=Path, metavar=metavar, help=file)
    parser.add_argument("--force", action="store_true", help="replace files that simdnn did not write, too")


def check_path(path: Path | None, formats: tuple[str, ...] = ()) -> None:
    """Refuses a path that could not be written, before the work whose result it shall hold; no formats: any will do."""
    if path is None:
        return
    if formats and path.suffix.lower() not in formats:
        raise unknown_name("file format", path.suffix or path.name, formats)
    if path.suffix.lower() == ".parquet" and importlib.util.find_spec("pyarrow") is None:
        raise SimdnnError(f"{path} needs pyarrow: {how_to_install('parquet')}; or write .csv or .json")
    if path.suffix.lower() in PICTURE_FORMATS:
        check_drawing()
    files.check(path)
    folder = path.parent
    if not folder.is_dir():
        raise SimdnnError(f"{path} cannot be written: there is no folder {folder}")
    replaced = not path.exists() or path.is_file()
    if path.exists() and not os.access(path, os.W_OK) or replaced and not os.access(folder, os.W_OK):
        raise SimdnnError(f"{path} cannot be written: permission denied")


def check_drawing() -> None:
    """Load what draws, before the work whose result it shall draw: $MPLBACKEND may name what matplotlib refuses."""
    try:
        import matplotlib  # noqa: F401
    except (ImportError, ValueError) as error:
        named = os.environ.get("MPLBACKEND")
        about = f" (environment variable MPLBACKEND: {named[:40]!r})" if named else ""
        raise SimdnnError(f"no picture can be drawn: matplotlib does not load{about}: {str(error):.200}") from None


def write(path: Path, frame: pd.DataFrame, content: Mapping[Any, Any]) -> None:
    """`frame` as CSV or Parquet, or `content` as JSON, by the path's suffix."""
    suffix = path.suffix.lower()
    with files.replacing(path) as partial:
        if suffix == ".csv":
            frame.to_csv(partial, index=False)
        elif suffix == ".parquet":
            frame.to_parquet(partial, index=False)
        else:
            text = json.dumps({**files.MARK, **content}, indent=2, allow_nan=False)
            partial.write_text(text + "\n", encoding="utf-8")


@contextmanager
def kept_in(path: Path | None) -> Iterator[None]:
    """An interrupt meanwhile says where the results are that a command has by then, if it keeps them."""
    try:
        yield
    except KeyboardInterrupt as interrupt:
        if path is not None and path.exists():
            interrupt.args = (f"what is done is kept in {path}",)
        raise
