"""Progress of what takes long: one line on standard error that is written over, in a terminal or a notebook.

A function that works through a list has `progress=None`: the line is shown where somebody looks, never in a pipe, a
worker process or a test, and not before a second is over. `progress=function` is called instead, with (done, of how
many, what); `progress=False` shows nothing. One without a list may tell by `working` what it is at, and for how long;
the engines tell how far they are. $SIMDNN_PROGRESS=0 shows nothing anywhere. What is worth keeping is logged:
`logging.getLogger("simdnn")`.
"""

from __future__ import annotations

import functools
import multiprocessing
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Sized
from contextlib import ExitStack, contextmanager
from time import monotonic, perf_counter, sleep
from typing import Any, ParamSpec, TypeVar

from isa_models import InvalidArgument
from isa_models.host.environment import variable

Progress = Callable[[int, int, str], None]  # done, of how many, what
P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")
DELAY = 1.0  # seconds before a line is shown
_SOON, _EVERY = 0.5, 0.1  # seconds after which `Late` tells first, and tells again
_TELLING = 5.0  # seconds of work that tell how long the rest takes
_BEAT = 0.25  # seconds between two looks at the lines that are open
_SILENT = 3.0  # seconds that nothing is told for, after which a line counts them
_WIDTH = 79


class _Inside(threading.local):
    """Whether somebody around hears of progress already, and the line of whoever is at work without a list."""

    deep = False
    line: ProgressLine | None = None


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

    After some seconds it tells how long the rest will take, at the pace so far. With `work` it tells that, and the
    seconds that it has taken, wherever nobody tells more.
    """

    def __init__(self, stream: Any, work: str = "") -> None:
        self.stream, self.text, self.work, self.drawn = stream, "", work, False
        self._from: float | None = None  # when there was something to tell
        self._told = 0.0  # when something was told last
        self._begun = (0.0, sys.maxsize)  # when the work began, and what was done then
        self._lock = threading.Lock()
        if work:
            self._wait()

    def __call__(self, done: int, total: int, what: str) -> None:
        now = perf_counter()
        if done <= self._begun[1]:
            self._begun = now, done
        start, before = self._begun
        left = remaining(now - start, done - before, total - done)
        self.text, self._told = f"{done}/{total} {what}{left}", monotonic()
        if self.drawn:
            self._draw()
        elif self._from is None:
            self._wait()

    def _wait(self) -> None:
        self._from = monotonic()
        _CLOCK.wakes(self)

    def beat(self) -> None:
        """Draw the line where it is time: first after `DELAY`, then where nobody tells how far the work is."""
        now = monotonic()
        shown = self.drawn and self.text and now - self._told < _SILENT
        if self._from is not None and now - self._from >= DELAY and not shown:
            self._draw()

    def _draw(self) -> None:
        with self._lock:
            now = monotonic()
            text = self.text or (f"{self.work}, {now - (self._from or 0.0):.0f} s" if self.work else "")
            if self.text and now - self._told >= _SILENT:
                text = f"{text[: _WIDTH - 9]} ({now - self._told:.0f} s)"
            if text:
                self.drawn = True
                print(f"\r{text[:_WIDTH]:{_WIDTH}}", end="", file=self.stream, flush=True)

    def forget(self) -> None:
        """Nobody tells more of the work."""
        self.text, self._begun = "", (0.0, sys.maxsize)

    def wipe(self) -> None:
        """Leave the place to another line, until more is told."""
        with self._lock:
            if self.drawn:
                print(f"\r{'':{_WIDTH}}\r", end="", file=self.stream, flush=True)

    def close(self) -> None:
        """Wipe the line for good."""
        self.text = self.work = ""
        _CLOCK.leaves(self)
        self.wipe()


class _Clock:
    """One thread that looks at the lines which are open, four times a second, and sleeps where there are none."""

    def __init__(self) -> None:
        self._lines: set[ProgressLine] = set()
        self._open = threading.Event()
        self._thread: threading.Thread | None = None

    def wakes(self, line: ProgressLine) -> None:
        """Look at a line from now on."""
        self._lines.add(line)
        self._open.set()
        if self._thread is None or not self._thread.is_alive():  # as after a fork
            self._thread = threading.Thread(target=self._run, name="simdnn progress", daemon=True)
            self._thread.start()

    def leaves(self, line: ProgressLine) -> None:
        """Look at a line no more."""
        self._lines.discard(line)

    def _run(self) -> None:
        while True:
            self._open.wait()
            self._open.clear()
            while self._lines:
                for line in tuple(self._lines):
                    line.beat()
                sleep(_BEAT)


_CLOCK = _Clock()


def print_beside(told: Progress, text: str) -> None:
    """Print a line of results on standard output, where a line of progress may stand in the same terminal."""
    if isinstance(told, ProgressLine):
        told.wipe()
    print(text, flush=True)


@functools.lru_cache(1)
def _is_terminal(stream: Any) -> bool:
    """Whether a stream is a terminal's: a call of the system, which every primitive would make."""
    return stream is not None and bool(stream.isatty())


def watched() -> bool:
    """Whether standard error is a terminal or a notebook's, of no worker process."""
    shell = sys.modules.get("IPython")
    in_notebook = shell is not None and type(shell.get_ipython()).__name__ == "ZMQInteractiveShell"
    if sys.stderr is None or not (in_notebook or _is_terminal(sys.stderr)):
        return False
    return variable("SIMDNN_PROGRESS") != "0" and multiprocessing.parent_process() is None


@contextmanager
def shown(progress: Progress | bool | None = None) -> Iterator[Progress]:
    """Whom to tell: the caller's own function, or a line where somebody looks and nobody around tells already."""
    if progress is not None and progress is not False and not callable(progress):
        raise InvalidArgument(
            f"progress={progress!r:.60}; a function is needed, called with (done, of how many, what), or None, or False"
        )
    before, around = _INSIDE.deep, _INSIDE.line
    line = around
    if progress is not None or before:
        line = None
    elif line is None and watched():
        line = ProgressLine(sys.stderr)
    _INSIDE.deep = True
    try:
        yield line or (progress if callable(progress) else silent)
    finally:
        _INSIDE.deep = before
        if line:
            line.forget() if line is around else line.close()


def unseen() -> bool:
    """Whether a function that is at work tells nobody so: nobody looks, or somebody around it tells."""
    return bool(_INSIDE.deep or _INSIDE.line) or not watched()


@contextmanager
def working(work: str) -> Iterator[None]:
    """While a function is at work a line tells so, and for how long, where nobody around or within it tells more.

    >>> with working("sums in f64"):
    ...     pass
    """
    if unseen():
        yield
        return
    _INSIDE.line = line = ProgressLine(sys.stderr, work)
    try:
        yield
    finally:
        _INSIDE.line = None
        line.close()


class Late:
    """Tells how far work is that mostly takes no time: from half a second on. A context manager."""

    def __init__(self, what: str) -> None:
        self.what, self._next = what, perf_counter() + _SOON  # when it is told next
        self._stack = ExitStack()
        self._told: Progress = silent

    def __enter__(self) -> Late:
        self._told = self._stack.enter_context(shown())
        return self

    def __exit__(self, *error: object) -> None:
        self._stack.close()

    def __call__(self, done: int, total: int) -> None:
        now = perf_counter()
        if now >= self._next:
            self._next = now + _EVERY
            self._told(min(done, total), total, self.what)


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
    """A decorator: a caller's `progress` (a function, None or False) reaches `function` as the one to tell."""

    @functools.wraps(function)
    def wrapped(*args: P.args, **kwargs: P.kwargs) -> R:
        with shown(kwargs.get("progress")) as told:  # type: ignore[arg-type]
            kwargs["progress"] = told
            return function(*args, **kwargs)

    return wrapped
