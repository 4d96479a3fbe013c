"""Files that a user asked for: what others wrote is never overwritten unasked, and nothing is left half written.

A file that is there already is replaced where it is this package's own: where it says so (pictures, JSON, machine
files), or is a table or a timeline as commands here write them. Any other one is refused, unless `forced`. What is
written goes to a file beside it first, which then takes its place: a write that fails leaves the old one as it was.
"""

from __future__ import annotations

import json
import os
import shutil
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from importlib import import_module
from pathlib import Path

from isa_models.errors import InvalidArgument, SimdnnError

WRITER = "simdnn"
MARK = {"written_by": WRITER}  # in JSON files, at the top
#: what makes matplotlib name the writer, by suffix
PICTURE_MARKS = {".png": {"Software": WRITER}, ".svg": {"Creator": WRITER}, ".pdf": {"Creator": WRITER}}
LEGEND = "D dispatch  = waits  L load  E execute  - waits to retire  R retire"  # the first line of a timeline as text
#: how a timeline for Konata begins, and the label and first stage of its first instruction
KONATA = ("Kanata\t0004\nC=\t0\n", "\nL\t0\t0\t[0] ", "\nS\t0\t0\tDs\n")
HTML_MARK = f'<meta name="generator" content="{WRITER}">'  # in the head of a page
TOML_MARK = f"# Written by {WRITER} "
#: columns that only tables of commands have together: of run and bench, of studies, of explain, of verify
COLUMNS = (
    {"cycles", "confidence"},
    {"cycles", "refused"},
    {"machine", "refused"},
    {"at", "instruction", "value", "exact"},
    {"shape", "predicted"},
)

_forced: ContextVar[bool] = ContextVar("forced", default=False)


@contextmanager
def forced(on: bool = True) -> Iterator[None]:
    """Within this, files are replaced whoever wrote them."""
    token = _forced.set(on)
    try:
        yield
    finally:
        _forced.reset(token)


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A path to write to, of the same suffix, which takes the place of `path` where the block ends without an error.

    A device or a pipe is written to as it is. Raises `InvalidArgument` as `check` does.
    """
    check(path)
    target = Path(os.path.realpath(path))  # a link stays one
    if target.exists() and not target.is_file():
        yield target
        return
    partial = target.with_name(f".{target.stem[:80]}.{uuid.uuid4().hex[:8]}{target.suffix}")
    try:
        yield partial
        if target.exists():
            shutil.copymode(target, partial)
        os.replace(partial, target)
    except OSError as error:
        if error.filename is None or str(error.filename) != str(partial):
            raise
        raise SimdnnError(f"{path} cannot be written: {error.strerror}") from None  # nobody asked for the one beside it
    finally:
        partial.unlink(missing_ok=True)


def write_text(path: Path, text: str) -> None:
    """Write a whole file of text, in UTF-8."""
    with replacing(path) as partial:
        partial.write_text(text, encoding="utf-8")


def check(path: Path) -> None:
    """`InvalidArgument` for a folder, and where a file is there that this package did not write and that is not
    `forced`; `SimdnnError` for what is no path.
    """
    try:
        path.stat()
        another = path.is_file() and not _forced.get() and not is_own(path)
    except FileNotFoundError:
        return
    except (OSError, ValueError) as error:  # a name too long, of no text, in a file; a file that cannot be read
        reason = getattr(error, "strerror", None) or error
        raise SimdnnError(f"{path} cannot be written: {reason}") from None
    if path.is_dir():
        raise InvalidArgument(f"{path} is a folder; the path of a file is needed")
    if another:
        raise InvalidArgument(
            f"{path} is there already and was not written by {WRITER}; another path, or --force, "
            f"which replaces it (in Python: `with {WRITER}.files.forced():`)"
        )


def is_own(path: Path) -> bool:
    """Whether a file is one that this package writes, or is empty."""
    content = path.read_bytes()
    if content.startswith(b"\x89PNG"):
        return f"Software\0{WRITER}".encode() in content[:1024]
    if content.startswith(b"%PDF"):
        return f"/Creator ({WRITER})".encode() in content
    if content.startswith(b"PAR1"):
        return _is_table(_parquet_columns(path))
    try:
        text = content.decode()
    except UnicodeDecodeError:
        return False
    if text.startswith("{"):
        return _names_writer(text)
    if text.startswith("<?xml"):
        return f"<dc:title>{WRITER}</dc:title>" in text[:4096]
    if text.startswith("<!doctype html>"):
        return HTML_MARK in text[:4096]
    first, _, _ = text.partition("\n")
    machine = text.startswith("#") and TOML_MARK in text[:4096]
    timeline = first == LEGEND or text.startswith(KONATA[0]) and all(part in text for part in KONATA)
    return not text or machine or timeline or _is_table(set(first.strip().split(",")))


def _names_writer(text: str) -> bool:
    try:
        content = json.loads(text)
    except (ValueError, RecursionError):
        return False
    return all(content.get(key) == value for key, value in MARK.items())


def _is_table(columns: set[str]) -> bool:
    return any(some <= columns for some in COLUMNS)


def _parquet_columns(path: Path) -> set[str]:
    try:
        parquet = import_module("pyarrow.parquet")
    except ImportError:
        return set()
    try:
        return set(parquet.read_schema(path).names)
    except (ValueError, OSError):  # as pyarrow's own errors are
        return set()
