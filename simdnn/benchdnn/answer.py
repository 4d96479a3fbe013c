"""One answer for each case: passed with its figures, failed, or unimplemented with the reason."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from isa_models import InvalidArgument, SimdnnError, Unimplemented, UnknownTiming
from isa_models.block_formats import BLOCK_FORMATS
from isa_models.errors import counted
from isa_models.formats import fmt
from simdnn.benchdnn import fused, values
from simdnn.benchdnn.asked import task
from simdnn.benchdnn.attributes import Parameter
from simdnn.benchdnn.layouts import Moved
from simdnn.benchdnn.operator_calls import BUILDERS
from simdnn.benchdnn.operator_calls import task as operator_task
from simdnn.benchdnn.operator_tasks import OperatorTask
from simdnn.benchdnn.options import Case, Unread
from simdnn.benchdnn.tasks import Task
from simdnn.primitives import estimate
from simdnn.primitives.result import Estimate
from simdnn.primitives.run import Target

if TYPE_CHECKING:
    from simdnn.timing.estimate import Cost

MOST_MACS = 2 * 10**10  # beyond, values are not computed
MOST_BYTES = 10**9


@dataclass(frozen=True)
class Answer:
    """`status` is PASSED, FAILED or UNIMPLEMENTED. Figures are of one core, or of all of a GPU; one
    kernel takes all products of a batch.

    `gops` counts 2 operations a multiply-accumulate; `gb_s` is the inputs and outputs, once each, over the time.
    `max_error` is against the reference rounded to the destination's type; None where values were not compared, as
    in mode P, and `note` says why in mode C. The reference of a kernel that halves its weights multiplies the halved
    ones, as the kernel is meant to; `loss` is then the output's largest distance from exact arithmetic, else None.
    """

    status: str
    problem: str
    reason: str = ""
    machine: str = ""
    implementation: str = ""
    compute_dtype: str = ""
    cycles: float | None = None
    time_us: float | None = None
    gops: float | None = None
    gb_s: float | None = None
    bound: str = ""
    confidence: str = ""
    max_error: float | None = None
    loss: float | None = None
    note: str = ""


def answer(case: Case | Unread) -> Answer:
    """The answer for a case: a problem that simdnn cannot do, or that makes no sense, is unimplemented, no error."""
    if isinstance(case, Unread):
        return Answer("UNIMPLEMENTED", case.text, _line(case.reason))
    where = case.options["machine"]
    try:
        if both := fused.parts(case):
            return fused.joined(answer(both[0]), answer(both[1]))
    except SimdnnError as error:
        return Answer("UNIMPLEMENTED", case.text, _line(str(error)), where)
    wanted: Task | OperatorTask
    try:
        wanted = operator_task(case) if case.driver in BUILDERS else task(case)
        passed = _priced(wanted) if isinstance(wanted, OperatorTask) else _passed(wanted, cost(wanted))
    except SimdnnError as error:
        return Answer("UNIMPLEMENTED", case.text, _line(str(error)), where)
    except Exception as error:  # a defect, and the next problems still count
        return Answer("FAILED", case.text, f"{type(error).__name__}: {_line(str(error))}", where)
    if "C" not in case.mode:
        return passed
    unchecked = wanted.too_big if isinstance(wanted, OperatorTask) else unchecked_values(wanted)
    if reason := unchecked:
        return replace(passed, note=_joined(reason, passed.note))
    try:
        with np.errstate(all="ignore"):  # NaN, Inf and overflow are values like others here
            found = values.Check(*wanted.check(), None) if isinstance(wanted, OperatorTask) else values.check(wanted)
    except (Unimplemented, UnknownTiming) as error:
        return Answer("UNIMPLEMENTED", case.text, _line(str(error)), where)
    except Exception as error:  # what a problem that was priced raises is a defect, too
        return replace(passed, status="FAILED", reason=f"{type(error).__name__}: {_line(str(error))}")
    lossy = found.loss is not None
    note = f"lossy: halved weights, max error {found.loss:.3g} against exact arithmetic" if lossy else ""
    checked = replace(passed, max_error=_finite(found.max_error), loss=found.loss, note=_joined(note, passed.note))
    if found.wrong:
        reason = f"{counted(found.wrong, 'output')} beyond the bound, max_error {found.max_error:.3g}"
        return replace(checked, status="FAILED", reason=reason)
    return checked


def _joined(*notes: str) -> str:
    return "; ".join(filter(None, notes))


def _line(text: str) -> str:
    return " ".join(text.split())


def cost(wanted: Task) -> Estimate:
    """The cost of one call, without data."""
    attr = wanted.attr(_given)
    if wanted.pixels:
        wanted.weights_tag(attr)
    types = ":".join(wanted.types)
    found = estimate(wanted.primitive, dt=types, bias=wanted.bias, attr=attr, **wanted.case.where, **wanted.sizes)
    return replace(found, library=wanted.library_name(found.library))


def _given(option: str, parameter: Parameter, shape: tuple[int, ...]) -> float | int | None:
    """The parameter's value where the text has one; costs need no more."""
    if parameter.value is None or shape:
        return None
    if option == "attr-scales":
        return parameter.value
    if parameter.value != int(parameter.value):
        raise InvalidArgument(f"--{option}: {parameter.value}; an integer is needed")
    return int(parameter.value)


def too_big(wanted: Task) -> str:
    """Why values are not computed; empty where they are."""
    if wanted.types[1] in BLOCK_FORMATS:
        return f"values not checked: blocks of {wanted.types[1]} are weights that somebody quantized"
    if wanted.macs > MOST_MACS:
        return f"values not checked: {wanted.macs:.2g} multiply-accumulates, at most {MOST_MACS:.0e} are"
    s = wanted.sizes
    if wanted.primitive == "matmul":
        src, wei, dst = map(math.prod, wanted.shapes.values())
    else:
        planes, kd = s.get("id", 1), s.get("kd", 1)
        src, wei = s["mb"] * s["ic"] * planes * s["ih"] * s["iw"], s["oc"] * s["ic"] * kd * s["kh"] * s["kw"]
        dst = math.prod(wanted.output)
    size = sum(count * fmt(dtype).bytes for count, dtype in zip((src, wei, dst), wanted.types, strict=True))
    return f"values not checked: {size:.2g} bytes, at most {MOST_BYTES:.0e} are" if size > MOST_BYTES else ""


def unchecked_values(wanted: Task) -> str:
    """Why values are not compared; empty where they are."""
    return too_big(wanted) or finds_scales(wanted) or values.steep(wanted)


def finds_scales(wanted: Task) -> str:
    """Why values are not compared where the destination's scales are found on the way; empty where they are given."""
    dst = wanted.attr(_given).scales.get("dst")
    found = dst is not None and dst.mode != "static"
    return "values not checked: the destination's scales are found on the way" if found else ""


def _passed(wanted: Task, priced: Estimate) -> Answer:
    moved = sum(t.nbytes for t in priced.kernel.program.tensors if t.kind in ("input", "output"))
    target = Target.of(**wanted.case.where, threads=1, engine="auto")
    copies = {move: move.cost(target) for move in wanted.moves}
    longer = 1 + sum(copy.cycles for copy in copies.values()) / priced.cycles
    return Answer(
        "PASSED",
        wanted.case.text,
        machine=priced.machine.name,
        implementation=priced.implementation,
        compute_dtype=priced.compute_dtype,
        cycles=priced.cycles * longer,
        time_us=priced.seconds * longer * 1e6,
        gops=priced.gops / longer,
        gb_s=moved / priced.seconds / longer / 1e9,
        bound=priced.bound,
        confidence=priced.confidence,
        note=_joined(*_shares(copies, priced.cycles * longer), *wanted.remarks),
    )


def _priced(wanted: OperatorTask) -> Answer:
    """The figures of an operator, its copies and the passes beside it included."""
    priced = wanted.cost()
    beside = [one.cost() for one in wanted.more]
    target = Target.of(**wanted.case.where, threads=1, engine="auto")
    copies = {move: move.cost(target) for move in wanted.moves}
    every: list[Any] = [priced, *beside, *copies.values()]
    cycles, seconds = sum(one.cycles for one in every), sum(one.seconds for one in every)
    if isinstance(priced, Estimate):  # a product, as a library has some
        implementation, bound = priced.implementation, priced.bound
    else:
        rows = priced.to_frame().sort_values("cycles", ascending=False)
        first = rows.iloc[0] if priced.cycles else {"implementation": "copy", "bound": ""}
        implementation, bound = str(first["implementation"]), str(first["bound"])
    return Answer(
        "PASSED",
        wanted.case.text,
        machine=priced.machine.name,
        implementation=implementation,
        compute_dtype="f32",
        cycles=cycles,
        time_us=seconds * 1e6,
        gb_s=wanted.nbytes / seconds / 1e9 if seconds else None,
        bound=bound,
        confidence=priced.confidence,
        note=_joined(*_shares(copies, cycles), *wanted.remarks),
    )


def _shares(copies: Mapping[Moved, Cost], cycles: float) -> list[str]:
    """The part of the time that each copy takes, in words."""
    return [f"{m.name} in {m.tag} is copied, {own.cycles / cycles:.0%} of the time" for m, own in copies.items()]


def _finite(number: float) -> float | None:
    return number if math.isfinite(number) else None
