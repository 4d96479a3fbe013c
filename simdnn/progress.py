"""Progress of what takes long: one line on standard error that is written over, in a terminal or a notebook.

A function that may take more than two seconds has `progress=None`: the line is shown where somebody looks, never in a
pipe, a worker process or a test, and not before a second is over. `progress=function` is called instead, with (done, of
how many, what); `progress=False` shows nothing. $SIMDNN_PROGRESS=0 shows nothing anywhere. What is worth keeping is
logged: `logging.getLogger("simdnn")`.
"""

from __future__ import annotations

import functools
import multiprocessing
import os
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Sized
from contextlib import contextmanager
from time import perf_counter
from typing import Any, ParamSpec, TypeVar

from isa_models import InvalidArgument

Progress = Callable[[int, int, str], None]  # done, of how many, what
P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")
DELAY = 1.0  # seconds before a line is shown
_TELLING = 5.0  # seconds of work that tell how long the rest takes
_WIDTH = 79


class _Inside(threading.local):
    """Whether somebody around hears of progress already."""

    deep = False


_INSIDE = _Inside()


def silent(done: int, total: int, what: str) -> None:
    """Progress that nobody hears of."""


def print_progress(done: int, total: int, what: str) -> None:
    """Progress as one line on standard error that is written over, wherever that goes; the last one stays."""
    print(f"\r{done}/{total} {what:60.60}", end="\n" if done == total else "", file=sys.stderr, flush=True)


def remaining(seconds: float, done: int, left: int) -> str:
    """How long the rest takes at the pace of the work done in these seconds; empty while too few seconds tell.

    >>> remaining(60, 20, 300), remaining(10, 5, 5), remaining(1, 1, 99)
    (', about 15 min left', ', about 10 s left', '')
    """
    if seconds < _TELLING or done < 2 or left <= 0:
        return ""
    rest = seconds / done * left
    return f", about {rest / 60:.0f} min left" if rest >= 90 else f", about {rest:.0f} s left"


class ProgressLine:
    """One line on a stream, shown once `DELAY` seconds are over, and wiped at the end.

    After some seconds it tells how long the rest will take, at the pace so far.
    """

    def __init__(self, stream: Any) -> None:
        self.stream, self.text, self.drawn = stream, "", False
        self._begun = (0.0, sys.maxsize)  # when the work began, and what was done then
        self._lock = threading.Lock()
        self._timer = threading.Timer(DELAY, self._draw)
        self._timer.daemon = True

    def __call__(self, done: int, total: int, what: str) -> None:
        now = perf_counter()
        if done <= self._begun[1]:
            self._begun = now, done
        start, before = self._begun
        left = remaining(now - start, done - before, total - done)
        first, self.text = not self.text, f"{done}/{total} {what}{left}"
        if first:
            self._timer.start()
        elif self.drawn:
            self._draw()

    def _draw(self) -> None:
        with self._lock:
            if self.text:
                self.drawn = True
                print(f"\r{self.text[:_WIDTH]:{_WIDTH}}", end="", file=self.stream, flush=True)

    def wipe(self) -> None:
        """Leave the place to another line, until more is told."""
        with self._lock:
            if self.drawn:
                print(f"\r{'':{_WIDTH}}\r", end="", file=self.stream, flush=True)

    def close(self) -> None:
        """Wipe the line for good."""
        self._timer.cancel()
        self.text = ""
        self.wipe()


def print_beside(told: Progress, text: str) -> None:
    """Print a line of results on standard output, where a line of progress may stand in the same terminal."""
    if isinstance(told, ProgressLine):
        told.wipe()
    print(text, flush=True)


def watched() -> bool:
    """Whether standard error is a terminal or a notebook's, of no worker process."""
    if os.environ.get("SIMDNN_PROGRESS") == "0" or multiprocessing.parent_process() is not None or sys.stderr is None:
        return False
    shell = sys.modules.get("IPython")
    in_notebook = shell is not None and type(shell.get_ipython()).__name__ == "ZMQInteractiveShell"
    return bool(sys.stderr.isatty() or in_notebook)


@contextmanager
def shown(progress: Progress | bool | None = None) -> Iterator[Progress]:
    """Whom to tell: the caller's own function, or a line where somebody looks and nobody around tells already."""
    if progress is not None and progress is not False and not callable(progress):
        raise InvalidArgument(
            f"progress={progress!r:.60}; a function is needed, called with (done, of how many, what), or None, or False"
        )
    before = _INSIDE.deep
    line = ProgressLine(sys.stderr) if progress is None and not before and watched() else None
    _INSIDE.deep = True
    try:
        yield line or (progress if callable(progress) else silent)
    finally:
        _INSIDE.deep = before
        if line:
            line.close()


def each(things: Iterable[T], named: Callable[[T], str], told: Progress | None = None) -> Iterator[T]:
    """The things one by one, each told before it is worked on: to `told`, or in a line of its own.

    >>> heard = []
    >>> list(each("ab", str.upper, lambda *given: heard.append(given))), heard
    (['a', 'b'], [(0, 2, 'A'), (1, 2, 'B')])
    """
    with shown() as line:
        for done, thing in enumerate(things):
            total = len(things) if isinstance(things, Sized) else done + 1
            (told or line)(done, total, named(thing))
            yield thing


def shows(function: Callable[P, R]) -> Callable[P, R]:
    """The function, whose keyword `progress` may be None or False: within it, it is who to tell."""

    @functools.wraps(function)
    def wrapped(*args: P.args, **kwargs: P.kwargs) -> R:
        with shown(kwargs.get("progress")) as told:  # type: ignore[arg-type]
            kwargs["progress"] = told
            return function(*args, **kwargs)

    return wrapped
