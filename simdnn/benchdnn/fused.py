"""A depthwise convolution fused behind another one (`dw:k3s1p1`): two kernels here, one after the other, as they are in
oneDNN on a CPU (`ref_fused_convolution`).
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING

from isa_models import Unimplemented
from isa_models.formats import fmt
from simdnn.benchdnn.descriptors import Axis, ConvDims
from simdnn.kernels.common.windows import window_count
from simdnn.libraries import LIBRARIES

if TYPE_CHECKING:
    from simdnn.benchdnn.answer import Answer
    from simdnn.benchdnn.options import Case

_DEPTHWISE = re.compile(r"dw:k(\d{1,4})s(\d{1,4})p(\d{1,4})(?::(\w+))?")
_SCALES = re.compile(r"attr_post_op_dw_(wei|dst):(.*)")


def parts(case: Case) -> tuple[Case, Case] | None:
    """The two convolutions of a case, or None where it is one."""
    before, entry, after = _split(case.options.get("attr-post-ops", ""))
    if entry is None or not isinstance(case.dims, ConvDims):
        return None
    if library := LIBRARIES.get(case.options["dispatch"]):
        _refuse(case, f"--dispatch={case.options['dispatch']} with post-operation {entry[0]!r}", library.title)
    k, s, p = (int(entry[n]) for n in (1, 2, 3))
    dims, types = case.dims, case.options["dt"].split(":")
    src, wei, between = types * 3 if len(types) == 1 else types
    behind = "s8" if not fmt(between).is_float else between
    scales = [part for part in case.options["attr-scales"].split("+") if part]
    own = [":".join(found.groups()) for part in scales if (found := _SCALES.fullmatch(part))]
    own += [
        "src" + part.removeprefix("dst") for part in scales if part.startswith("dst:")
    ]  # it is read as it was written
    first = {"attr-post-ops": before, "dtag": "any", "dt": f"{src}:{wei}:{between}"}
    first["attr-scales"] = "+".join(part for part in scales if not _SCALES.fullmatch(part))
    second = {"attr-post-ops": after, "stag": "any", "wtag": "any", "attr-zero-points": "", "strides": ""}
    second |= {"dt": f"{between}:{behind}:{entry[4] or between}", "attr-scales": "+".join(own)}
    axes = [Axis(axis.o, window_count(axis.o, k, s, padding=2 * p), k, s, p) for axis in (dims.height, dims.width)]
    deep = replace(dims, groups=dims.oc, ic=dims.oc, depth=Axis(), height=axes[0], width=axes[1], has_groups=True)
    chosen = dict(case.options)
    return replace(case, options=chosen | first), replace(case, dims=deep, options=chosen | second)


def _refuse(case: Case, asked: str, title: str) -> None:
    """Raises where a library is not known to run the two convolutions of a case one after the other."""
    options = case.options
    if options["dispatch"] != "onednn":
        raise Unimplemented(f"{asked}: fused kernels of {title} are not modelled")
    if options["dtag"] not in ("any", "axb", "undef", "") or options["strides"]:
        raise Unimplemented(f"{asked} and --dtag={options['dtag']}, --strides={options['strides']}: any and axb work")
    if re.search(r"sum|prelu|select", options["attr-post-ops"]) or options["attr-zero-points"]:
        raise Unimplemented(f"{asked} beside sums, slopes, choices or zero points, which {title} does not fuse")


def _split(text: str) -> tuple[str, re.Match[str] | None, str]:
    """The post-operations ahead of the depthwise convolution, itself, and those behind it."""
    entries = text.split("+")
    for number, entry in enumerate(entries):
        if found := _DEPTHWISE.fullmatch(entry):
            return "+".join(entries[:number]), found, "+".join(entries[number + 1 :])
    return text, None, ""


def joined(first: Answer, second: Answer) -> Answer:
    """One answer for both; the first that did not pass where one did not."""
    if first.status != "PASSED" or second.status != "PASSED":
        failed = first if first.status != "PASSED" else second
        return replace(failed, problem=first.problem)
    cycles, time = (first.cycles or 0) + (second.cycles or 0), (first.time_us or 0) + (second.time_us or 0)
    work = sum((one.gops or 0) * (one.time_us or 0) for one in (first, second))
    moved = sum((one.gb_s or 0) * (one.time_us or 0) for one in (first, second))
    errors = [one.max_error for one in (first, second) if one.max_error is not None]
    return replace(
        first,
        implementation=f"{first.implementation}+{second.implementation}",
        cycles=cycles,
        time_us=time,
        gops=work / time,
        gb_s=moved / time,
        max_error=max(errors) if len(errors) == 2 else None,
        note="; ".join(dict.fromkeys(filter(None, ("two kernels, one after the other", first.note, second.note)))),
    )
