"""The recipes of one network on one machine that were run, kept as a study's rows are."""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from isa_models import SimdnnError
from isa_models.machines.content import lineage
from simdnn.study.points import Outcome, package_digest, refused
from simdnn.study.results import Results
from simdnn.tuning.judge import Judge
from simdnn.tuning.subjects import RecipeRun, Subject
from simdnn.workers import Each

_LOG = logging.getLogger(__name__)
Recipe = Mapping[str, str]
Task = tuple[
    tuple[tuple[str, str], ...], bool, bool
]  # a recipe, whether it is for few feeds, whether for its cost alone


@dataclass(frozen=True)
class Ran:
    """A recipe's run or why there is none, and what it hangs on where it ran; `failed`: not because it was refused."""

    run: RecipeRun | None
    reason: str
    stamp: dict[str, str]
    failed: bool = False


@dataclass(frozen=True, eq=False)
class Running:
    """Runs recipes of a subject, here or at a worker."""

    subject: Subject

    def __call__(self, task: Task) -> Ran:
        modes, few, cost_alone = task
        try:
            found = self.subject.priced(dict(modes)) if cost_alone else self.subject.run(dict(modes), few)
            return Ran(found, "", self.stamp)
        except SimdnnError as error:
            return Ran(None, str(error), self.stamp)

    @cached_property
    def stamp(self) -> dict[str, str]:
        """Digests of the package's code and of the machine's table."""
        table = hashlib.sha256()
        for file, _ in lineage(self.subject.machine.path):
            table.update(file.read_bytes())
        return {"simdnn": package_digest(), "machine": table.hexdigest()[:16]}


def lost(reason: str) -> Ran:
    """The value that stands for a run whose worker died."""
    return Ran(None, reason, {}, failed=True)


class RecipeRuns:
    """Rows of recipes: a recipe is run once, or read from `kept`. `few`: over the feeds of sensitivities alone.
    `lender`: another machine's rows over the same feeds, whose qualities stand for those of this one where products
    have the same types, so that a recipe that ran there is priced here alone.

    `modes`: recipes in the order in which they were asked for; `each` runs what is missing (None: this process);
    `tell` is called with the number of rows after each.
    """

    def __init__(
        self, subject: Subject, judge: Judge, kept: Results, few: bool = False, lender: RecipeRuns | None = None
    ) -> None:
        self.subject, self.judge, self.kept, self.few, self.lender = subject, judge, kept, few, lender
        self.lent = 0  # rows whose quality is another machine's
        self.modes: list[dict[str, str]] = []
        self.each: Each[Task, Ran] | None = None
        self.tell: Callable[[int], None] | None = None
        self._here = Running(subject)
        self._rows: dict[tuple[str, ...], dict[str, Any]] = {}

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "each": None, "tell": None}

    def row(self, modes: Recipe) -> dict[str, Any]:
        """cycles, time_us, quality and sqnr_db of a recipe, kernels of layers, and in `refused` why it has none."""
        return self.rows([modes])[0]

    def rows(self, recipes: Sequence[Recipe]) -> list[dict[str, Any]]:
        """Rows of recipes; those that are missing are run at once. Raises `SimdnnError` where f32 is refused, or a
        worker died; the rest is kept.
        """
        keys = [tuple(modes[layer] for layer in self.subject.layers) for modes in recipes]
        lacking = {key: modes for key, modes in zip(keys, recipes, strict=True) if key not in self._rows}
        todo: dict[Task, tuple[str, ...]] = {}
        for key, modes in lacking.items():
            lent = self._lent(key) is not None
            if self.kept.has(self._name(modes), self._here.stamp):
                self._take(key, self.kept.known[self._name(modes)].row)
            elif lent and self.kept.has(self._name(modes, lent), self._here.stamp):
                self._take(key, self.kept.known[self._name(modes, lent)].row)
                self.lent += 1
            else:
                todo[tuple(modes.items()), self.few, lent] = key
        self._run(todo)
        self.modes += [dict(modes) for modes in lacking.values()]
        return [self._rows[key] for key in keys]

    def share(self, modes: Recipe, known: Recipe) -> None:
        """Give a recipe the row of a known one that is the very same run."""
        key = tuple(modes[layer] for layer in self.subject.layers)
        if key not in self._rows:
            self._take(key, self.row(known))
            self.modes.append(dict(modes))

    def costs(self, recipes: Sequence[Recipe]) -> list[float]:
        """Cycles of recipes, whose values nobody asks for; raises `SimdnnError` where one has none."""
        tasks: list[Task] = [(tuple(modes.items()), self.few, True) for modes in recipes]
        found: dict[Task, float] = {}
        for task, ran in self._ran(list(dict.fromkeys(tasks))):
            if ran.run is None:
                raise SimdnnError(ran.reason)
            found[task] = ran.run.cycles
        return [found[task] for task in tasks]

    def _ran(self, tasks: Sequence[Task]) -> Iterator[tuple[Task, Ran]]:
        """Outcomes of tasks, in this process or at workers; one of another package is a failure."""
        each = self.each or (lambda some: ((task, self._here(task)) for task in some))
        for task, ran in each(tasks):
            if ran.stamp != self._here.stamp and not ran.failed:
                ran = lost("the package or the machine's table is another one at the worker")
            yield task, ran

    def _run(self, todo: Mapping[Task, tuple[str, ...]]) -> None:
        """Run what is missing; what has other types of products than where it was lent from is run with values."""
        if not todo:
            return
        failed: dict[str, str] = {}
        again: dict[Task, tuple[str, ...]] = {}
        for task, ran in self._ran(sorted(todo, key=_beginning)):
            modes = dict(task[0])
            if ran.failed:
                failed[ran.reason] = str(modes)
                continue
            if ran.run is None and set(modes.values()) == {"f32"}:
                raise SimdnnError(ran.reason)
            lent = self._lent(todo[task]) if task[2] else None
            if lent and ran.run and _types(json.loads(lent["implementation"])) != _types(ran.run.kernels):
                again[task[0], task[1], False] = todo[task]
                continue
            outcome = Outcome(self._judged(modes, ran, lent), ran.stamp)
            self.lent += lent is not None
            name = self._name(modes, lent is not None)
            self.kept.add(name, outcome, {"machine": self.subject.machine.name, **modes})
            self._take(todo[task], outcome.row)
            _LOG.debug("recipe %d: %s: %s", len(self._rows), modes, outcome.row)
        for reason, example in failed.items():
            raise SimdnnError(f"recipes failed, e.g. {example:.200}: {reason}; a second call goes on from what is kept")
        self._run(again)

    def _name(self, modes: Recipe, lent: bool = False) -> str:
        """The key of a row that is kept; one with another machine's quality has another one."""
        by = [self.lender.subject.machine.name] if self.lender and lent else []
        return hashlib.sha256(json.dumps([self._identity, dict(modes), *by]).encode()).hexdigest()[:16]

    def _take(self, key: tuple[str, ...], row: Mapping[str, Any]) -> None:
        self._rows[key] = dict(row)
        if self.tell:
            self.tell(len(self._rows))

    def _lent(self, key: tuple[str, ...]) -> dict[str, Any] | None:
        """The row of a recipe on the machine that lends qualities; None where it was not run there."""
        row = self.lender._rows.get(key) if self.lender else None
        return None if row is None or row["refused"] else row

    def _judged(self, modes: Recipe, ran: Ran, lent: Mapping[str, Any] | None) -> dict[str, Any]:
        if ran.run is None:
            return refused(ran.reason)
        found = {"refused": "", "cycles": ran.run.cycles, "time_us": ran.run.seconds * 1e6}
        kernels = json.dumps(ran.run.kernels)
        if lent:
            return found | {"quality": lent["quality"], "sqnr_db": lent["sqnr_db"], "implementation": kernels}
        if set(modes.values()) == {"f32"}:
            self._reference = ran.run
        sqnr_db = self.judge.sqnr_db(ran.run.outputs, self.reference.outputs)
        quality = self.judge.quality(ran.run.outputs, self.reference.outputs, sqnr_db)
        return found | {"quality": quality, "sqnr_db": sqnr_db, "implementation": kernels}

    _reference: RecipeRun | None = None

    @property
    def reference(self) -> RecipeRun:
        """The run of f32, which others are compared with."""
        if self._reference is None:
            self._reference = self.subject.run(dict.fromkeys(self.subject.layers, "f32"), self.few)
        return self._reference

    @cached_property
    def _identity(self) -> str:
        """A digest of the network, the data and how it is judged; a metric is known by its name."""
        metric = (
            getattr(self.judge.metric, "__qualname__", type(self.judge.metric).__name__) if self.judge.metric else ""
        )
        labels = b"" if self.judge.labels is None else np.ascontiguousarray(self.judge.labels).tobytes()
        where = f"{self.subject.machine.name} {self.subject.place.options}"
        told = f"tune {where} {self.judge.measure} {metric} {self.few} "
        own = hashlib.sha256(told.encode() + labels)
        for part in self.subject.content(self.few):
            own.update(part)
        return own.hexdigest()


def _beginning(task: Task) -> list[tuple[bool, str]]:
    """A key that sorts recipes so that those which begin alike follow each other: subjects keep what layers gave."""
    return [(mode != "f32", mode) for _, mode in task[0]]


def _types(kernels: Sequence[Sequence[Any]]) -> list[str]:
    """The types of products, by layer."""
    return [str(kernel[1]) for kernel in kernels]
