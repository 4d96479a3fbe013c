"""`simdnn verify --timing --threads N`: what N threads gain over one, measured on this host beside predicted.

The kernels of `kernels`, compiled, their parallel loops shared out as the engine does, each thread on a core of its own
(`cores`). Both times are measured in the same run, one after the other, over the same data, which is warm.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from isa_models.errors import counted
from isa_models.machines.cpu_record import Machine
from simdnn.calibration.cores import chosen, share_a_core
from simdnn.calibration.kernels import Variant, against, build, frame_of, inputs
from simdnn.calibration.programs import LEAST
from simdnn.calibration.team import Team, measure
from simdnn.kernels.common.problems import Problem
from simdnn.progress import Progress
from simdnn.timing.estimate import estimate_program


def row(
    target: Machine, shape: str, variant: Variant, problem: Problem, teams: tuple[Team, Team], samples: int
) -> dict[str, Any]:
    """Predicted and measured cycles of one kernel on a thread and on a team; `teams` are both."""
    kernel, runs_here = build(target, variant, problem)
    alone, shared = (estimate_program(kernel.program, target, threads=team.size) for team in teams)
    found = {
        "shape": shape,
        "kernel": variant.name,
        "predicted_alone": alone.cycles,
        "predicted": shared.cycles,
        "predicted_scaling": alone.cycles / shared.cycles,
        "bound": shared.bound,
    }
    if not runs_here:
        return found
    buffers = inputs(kernel, problem)
    one, many = (measure(kernel.program, buffers, samples, team) for team in teams)
    return found | {
        "measured_alone": one.cycles,
        "measured": many.cycles,
        "scaling": one.cycles / many.cycles,
        "predicted/measured": shared.cycles / many.cycles,
        "spread": max(one.spread, many.spread),
        "quiet": min(one.quiet, many.quiet),
        "ghz": many.ghz,
    }


def compare(target: Machine, threads: int, samples: int, only: str, progress: Progress) -> pd.DataFrame:
    """All rows whose shape and kernel hold `only`."""
    cpus = chosen(threads)
    teams = Team(cpus[:1]), Team(cpus)
    return frame_of(
        target, only, progress, lambda shape, kernel, problem: row(target, shape, kernel, problem, teams, samples)
    )


def where(threads: int) -> str:
    """A sentence on the processors that threads are pinned to, and on whether any two are one core's."""
    cpus = chosen(threads)
    pairs = [(a, b) for i, a in enumerate(cpus) for b in cpus[i + 1 :]]
    found = {pair: share_a_core(*pair) for pair in pairs}
    text = f"threads are pinned to processors {', '.join(map(str, cpus))}, which the system calls cores of their own"
    if together := [pair for pair, shared in found.items() if shared]:
        said = " and ".join(map(str, together[0]))
        return f"{text}; but {said} share one: a loop that fills dispatch shows it, and no prediction holds for that"
    if None in found.values():
        return f"{text}; whether they are could not be measured: neighbours were at work all the time"
    return f"{text}, and a loop that fills dispatch runs as fast on one while it runs on the others"


def summary(frame: pd.DataFrame) -> str:
    """Errors of the predicted scaling by kernel, over the rows that were measured undisturbed."""
    lines = []
    quiet = frame[frame["quiet"] >= LEAST]
    for kernel, part in quiet.groupby("kernel", sort=False):
        errors = (part["predicted_scaling"] / part["scaling"] - 1).to_numpy(float)
        worst = int(np.argmax(np.abs(errors)))
        lines.append(
            f"{kernel}: {counted(len(part), 'shape')}, {part['scaling'].median():.2f} times as fast in the median, "
            f"predicted {part['predicted_scaling'].median():.2f}; "
            f"mean absolute error of a row {np.abs(errors).mean():.1%}, "
            f"worst {errors[worst]:+.1%} ({part['shape'].iloc[worst]})"
        )
    return "\n".join(
        [*lines, f"{counted(len(frame) - len(quiet), 'row')} with fewer than {LEAST} quiet samples left out"]
    )


def drawn(frame: pd.DataFrame, name: str) -> Figure:
    """Predicted over measured scaling."""
    both = frame[["scaling", "predicted_scaling"]].to_numpy(float)
    return against(
        frame,
        "scaling",
        "predicted_scaling",
        [float(np.nanmin(both)), float(np.nanmax(both))],
        xlabel="measured on this host, times as fast as one thread",
        ylabel=f"predicted for {name}",
    )
