"""What commands write: aligned tables, JSON, files, progress."""

from __future__ import annotations

import importlib.util
import json
import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pandas as pd

from isa_models import InvalidArgument, SimdnnError
from isa_models.errors import unknown_name

FILE_FORMATS = (".csv", ".json", ".parquet")
PICTURE_FORMATS = (".png", ".pdf", ".svg")


def table(frame: pd.DataFrame, formats: Mapping[str, Callable[[Any], str]] = {}) -> str:  # noqa: B006  # never written
    """Columns in their order, two blanks between; numbers to the right. Missing values are a dash.

    >>> print(table(pd.DataFrame({"mode": ["f32", "bf16"], "cycles": [1234.5, None]}), {"cycles": "{:.0f}".format}))
    mode  cycles
    f32     1234
    bf16       -
    """
    columns = []
    for name in frame.columns:
        show = formats.get(str(name), str)
        cells = [str(name), *("-" if pd.isna(value) else show(value) for value in frame[name])]
        width = max(map(len, cells))
        right = pd.api.types.is_numeric_dtype(frame[name])
        columns.append([cell.rjust(width) if right else cell.ljust(width) for cell in cells])
    return "\n".join("  ".join(row).rstrip() for row in zip(*columns, strict=True))


def records(frame: pd.DataFrame) -> list[dict[str, Any]]:
    """Rows as JSON's own types. JSON has no infinity and no NaN: both become null.

    >>> records(pd.DataFrame({"a": [1.5, float("inf")]}))
    [{'a': 1.5}, {'a': None}]
    """
    rows: list[dict[str, Any]] = json.loads(frame.to_json(orient="records", double_precision=15))
    return rows


def print_json(content: Any) -> None:
    """JSON on standard output; what is missing must be None, as JSON has no NaN."""
    print(json.dumps(content, indent=2, allow_nan=False))


def check_path(path: Path | None, formats: tuple[str, ...]) -> None:
    """Refuses a path that could not be written, before the work whose result it shall hold."""
    if path is None:
        return
    if path.suffix.lower() not in formats:
        raise unknown_name("file format", path.suffix or path.name, formats)
    if path.suffix.lower() == ".parquet" and importlib.util.find_spec("pyarrow") is None:
        raise SimdnnError(f"{path} needs pyarrow: install simdnn[parquet], or write .csv or .json")
    folder = path.parent
    if path.is_dir():
        raise InvalidArgument(f"{path} is a folder; the path of a file is needed")
    if not folder.is_dir():
        raise SimdnnError(f"{path} cannot be written: there is no folder {folder}")
    if not os.access(path if path.exists() else folder, os.W_OK):
        raise SimdnnError(f"{path} cannot be written: permission denied")


def write(path: Path, frame: pd.DataFrame, content: Any) -> None:
    """`frame` as CSV or Parquet, or `content` as JSON, by the path's suffix."""
    suffix = path.suffix.lower()
    if suffix == ".csv":
        frame.to_csv(path, index=False)
    elif suffix == ".parquet":
        frame.to_parquet(path, index=False)
    else:
        path.write_text(json.dumps(content, indent=2, allow_nan=False) + "\n", encoding="utf-8")


class Progress:
    """One line on standard error that is written over, and wiped at the end; silent where that is no terminal."""

    def __init__(self) -> None:
        self.shown = sys.stderr is not None and sys.stderr.isatty()

    def __call__(self, done: int, total: int, what: str) -> None:
        if self.shown:
            print(f"\r\x1b[K{done}/{total} {what}", end="", file=sys.stderr, flush=True)

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, *_: object) -> None:
        if self.shown:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)
