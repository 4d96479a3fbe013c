"""The recipes of one network on one machine that were run, kept as a study's rows are; and the search among them."""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from itertools import product
from math import inf, prod
from typing import Any

import numpy as np

from isa_models import SimdnnError
from isa_models.machines.content import lineage
from simdnn.networks.runner import Progress
from simdnn.study.points import Outcome, package_digest, refused
from simdnn.study.results import Results
from simdnn.tuning.judge import Judge
from simdnn.tuning.search import Additive, Modes, Worth, confirmed
from simdnn.tuning.subjects import RecipeRun, Subject

_LOG = logging.getLogger(__name__)
Recipe = dict[str, str]
MOST_PAIRS = 400  # of neighbours' modes that are priced before a search
MOST_A_ROUND = 48  # recipes that a round of the search runs


class RecipeRuns:
    """Rows of recipes by their modes; each is run once, or read from `kept`. `modes`: those known, in order."""

    def __init__(self, subject: Subject, judge: Judge, kept: Results, progress: Progress | None) -> None:
        self.subject, self.judge, self.kept, self.progress = subject, judge, kept, progress
        self.layers = subject.layers
        self.modes: list[Recipe] = []
        self.points: dict[Modes, Worth] = {}
        self._rows: dict[Modes, dict[str, Any]] = {}
        self.total = 0  # recipes that are to be run, as far as is known
        self.losses = kept.losses

    # -- rows ----------------------------------------------------------------------------------------------------
    def row(self, modes: Mapping[str, str]) -> dict[str, Any]:
        """cycles, time_us, quality and sqnr_db of a recipe, and in `refused` why it has none."""
        key = tuple(modes[layer] for layer in self.layers)
        if key not in self._rows:
            found = self._known(dict(modes))
            self._rows[key] = found
            self.modes.append(dict(modes))
            energy = inf if found["refused"] else 10 ** (-found["sqnr_db"] / 10)
            self.points[key] = Worth(inf if found["refused"] else found["cycles"], energy, key)
            _LOG.debug("recipe %d: %s: %s", len(self.modes), modes, found)
            if self.progress:
                self.progress(len(self.modes), max(self.total, len(self.modes)), "recipes")
        return self._rows[key]

    def at(self, key: Modes) -> dict[str, Any]:
        return self.row(dict(zip(self.layers, key, strict=True)))

    @property
    def base(self) -> dict[str, Any]:
        """f32."""
        return self.at(("f32",) * len(self.layers))

    @cached_property
    def reference(self) -> RecipeRun:
        """The run of f32, which others are compared with."""
        return self.subject.run(dict.fromkeys(self.layers, "f32"))

    def _known(self, modes: Recipe) -> dict[str, Any]:
        key = hashlib.sha256(json.dumps([self._identity, modes]).encode()).hexdigest()[:16]
        if not self.kept.has(key, self._stamp):
            try:
                outcome = Outcome({"refused": "", **self._run(modes)}, self._stamp)
            except SimdnnError as error:
                if set(modes.values()) == {"f32"}:
                    raise
                outcome = Outcome(refused(str(error)), self._stamp)
            self.kept.add(key, outcome, {"machine": self.subject.machine.name, **modes})
        return dict(self.kept.known[key].row)

    def _run(self, modes: Recipe) -> dict[str, float]:
        run = self.reference if set(modes.values()) == {"f32"} else self.subject.run(modes)
        sqnr_db = self.judge.sqnr_db(run.outputs, self.reference.outputs)
        quality = self.judge.quality(run.outputs, self.reference.outputs, sqnr_db)
        return {"cycles": run.cycles, "time_us": run.seconds * 1e6, "quality": quality, "sqnr_db": sqnr_db}

    @cached_property
    def _identity(self) -> str:
        """A digest of the network, the data and how it is judged; a metric is known by its name."""
        metric = (
            getattr(self.judge.metric, "__qualname__", type(self.judge.metric).__name__) if self.judge.metric else ""
        )
        labels = b"" if self.judge.labels is None else np.ascontiguousarray(self.judge.labels).tobytes()
        own = hashlib.sha256(f"tune {self.subject.machine.name} {self.judge.measure} {metric} ".encode() + labels)
        for part in self.subject.content():
            own.update(part)
        return own.hexdigest()

    @cached_property
    def _stamp(self) -> dict[str, str]:
        table = hashlib.sha256()
        for file, _ in lineage(self.subject.machine.path):
            table.update(file.read_bytes())
        return {"simdnn": package_digest(), "machine": table.hexdigest()[:16]}

    # -- the search ----------------------------------------------------------------------------------------------
    def search(self, names: Sequence[str]) -> list[str]:
        """Run what the front needs; what is to be said of it."""
        self.total = 1 + len(self.layers) * (len(names) - 1)
        options, notes = self._options(names)
        count = prod(map(len, options))
        if count <= self.subject.enumerable:
            lacking = [key for key in product(*options) if key not in self._rows]
            self.total = len(self.modes) + len(lacking)
            for key in lacking:
                self.at(key)
            return [f"all {count} recipes were run: the front is the true one", *notes]
        alone = [
            {mode: (row["cycles"] - self.base["cycles"], self._energy(row)) for mode, row in self._alone(place, some)}
            for place, some in enumerate(options)
        ]
        model = Additive(self.base["cycles"], options, alone, self._pairs(options))
        self.total = len(self.modes) + MOST_A_ROUND
        rounds = confirmed(model, self._measured, self.points, MOST_A_ROUND)
        pairs = "" if model.pairs else "; borders were not priced beforehand"
        often = f"{rounds} round{'s' * (rounds > 1)}"
        found = f"{len(self.modes)} of {count} recipes were run, in {often}, chosen by an additive model"
        return [f"{found}: a recipe that is better than the model says may be missing{pairs}", *notes]

    def _options(self, names: Sequence[str]) -> tuple[list[list[str]], list[str]]:
        """The modes that each layer can have, and why it lacks some: refused, or without any effect."""
        options, notes = [], []
        for place, layer in enumerate(self.layers):
            found, same, lacking = [], [], {}
            for mode, row in self._alone(place, names):
                if row["refused"]:
                    lacking[mode] = row["refused"]
                elif mode != "f32" and "f32" in names and row == self.base:
                    same.append(mode)
                else:
                    found.append(mode)
            options.append(found or ["f32"])
            if same:
                notes.append(f"{layer}: {', '.join(same)} would be f32")
            notes += [f"{layer}: no {mode}: {reason}" for mode, reason in lacking.items()]
        return options, notes

    def _alone(self, place: int, modes: Sequence[str]) -> Iterator[tuple[str, dict[str, Any]]]:
        """Each mode with the row of the recipe in which one layer alone has it."""
        for mode in modes:
            yield mode, self.at(self._with({place: mode}))

    def _with(self, own: Mapping[int, str]) -> Modes:
        return tuple(own.get(place, "f32") for place in range(len(self.layers)))

    def _energy(self, row: Mapping[str, Any]) -> float:
        return float(10 ** (-row["sqnr_db"] / 10))

    def _pairs(self, options: Sequence[Sequence[str]]) -> dict[tuple[int, int], dict[tuple[str, str], float]]:
        """What neighbours' modes add to the cycles beyond what each adds alone; nothing where there are too many."""
        some = {(i, j): [(a, b) for a in options[i] for b in options[j]] for i, j in self.subject.edges}
        if sum(map(len, some.values())) > MOST_PAIRS:
            return {}
        base = self.base["cycles"]
        found: dict[tuple[int, int], dict[tuple[str, str], float]] = {}
        for (i, j), pairs in some.items():
            found[i, j] = {}
            for a, b in pairs:
                if "f32" not in (a, b):
                    apart = sum(self.at(self._with({k: mode}))["cycles"] - base for k, mode in ((i, a), (j, b)))
                    both = self._with({i: a, j: b})
                    whole = self.subject.cycles(dict(zip(self.layers, both, strict=True)))
                    found[i, j][a, b] = whole - base - apart
        return found

    def _measured(self, key: Modes) -> Worth:
        self.at(key)
        return self.points[key]
