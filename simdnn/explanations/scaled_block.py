"""A block that shares a scale, explained: its greatest magnitude, the rule, the scale, and what became of elements."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from isa_models.block_formats import BlockFormat
from isa_models.formats import fmt
from isa_models.readings.arrays import Array
from simdnn.explanations.steps import ExplainedStep, Explanation, text_of
from simdnn.kernels.common.scaled import RULES, Scaled

_HIDDEN = 23  # mantissa bits of f32


def explain_block(
    p: Scaled, title: str, source: Array, kept: Array, scale: np.float32, tensor_scale: np.float32 | None
) -> Explanation:
    """One block: `source` and what its codes stand for, `kept` (f32, one axis), its scale, and NVFP4's of the tensor.

    A step has the value that was stored beside the one that was asked for, and says "saturates" beyond the type's
    greatest element, "rounds" otherwise.
    """
    amax = np.abs(source).max()
    first = _nvfp4(p, amax, scale, tensor_scale) if tensor_scale is not None else _mx(p, amax, scale)
    step = scale if tensor_scale is None else np.float32(scale * tensor_scale)
    elements = [_element(p, i, source[i], kept[i], step) for i in range(source.size)]
    rows = [
        ExplainedStep("", "amax", f"greatest magnitude = {_text(amax)}", float(amax), float(amax)),
        *first,
        *elements,
    ]
    notes = [row.note for row in elements]
    remark = f"of {source.size} elements {notes.count('saturates')} saturate, {notes.count('rounds')} are rounded"
    about = (RULES[p.rule],) if p.rule in RULES else ()
    left = next((row for row in elements if row.note), None)
    return Explanation(title, about, kept, source, tuple(rows), left, (remark,))


def explain_stored(
    form: BlockFormat,
    title: str,
    source: Array,
    codes: Array,
    kept: Array,
    scale: np.float32,
    offset: np.float32 | None,
) -> Explanation:
    """One group of a stored block: `codes` * scale + offset are `kept`; what `source` loses is told by element."""
    rows = [ExplainedStep("", "d", f"d = {_text(scale)}", float(scale), float(scale))]
    if offset is not None:
        rows.append(ExplainedStep("", "m", f"m = {_text(offset)}", float(offset), float(offset)))
    added = "" if offset is None else f" + {_text(offset)}"
    elements = []
    for i, (given, code, stands) in enumerate(zip(source, codes.tolist(), kept, strict=True)):
        text = f"{_text(given)} -> {code} * {_text(scale)}{added} = {_text(stands)}"
        lost = "" if given == stands else "rounds"
        elements.append(ExplainedStep(f"[{i}]", form.name, text, float(stands), float(given), lost))
    lossy = [row for row in elements if row.note]
    remark = f"of {source.size} elements {len(lossy)} are rounded"
    left = lossy[0] if lossy else None
    return Explanation(title, (form.about,), kept, source, (*rows, *elements), left, (remark,))


def _mx(p: Scaled, amax: np.float32, scale: np.float32) -> Iterator[ExplainedStep]:
    """The rule, with the block's numbers."""
    if not np.isfinite(amax):
        yield ExplainedStep(
            "", p.rule, "a block with NaN or infinity has the scale NaN, and codes 0", float(scale), None
        )
        return
    power = int(np.log2(scale))
    text = f"{_asked(p, amax)} = 2**{power} = {_text(scale)}" if amax else f"a block of zeros has 2**{power}"
    if amax and power in (-127, 127):
        text += ", the end of e8m0"
    yield ExplainedStep("", p.rule, text, float(scale), float(scale))


def _asked(p: Scaled, amax: np.float32) -> str:
    if p.rule == "rceil":
        return f"least 2**e >= {_text(amax)} / {p.greatest:g} = {_text(amax / np.float32(p.greatest))}"
    if p.rule != "even":
        return f"2**({p.rule}(log2 {_text(amax)}) - {p.top})"
    dropped = _HIDDEN - p.mantissa
    bits = (int(amax.view(np.uint32)) + (1 << dropped - 1)) >> dropped << dropped
    rounded = np.uint32(bits).view(np.float32)
    near = _text(rounded)
    return f"{_text(amax)} to {p.mantissa} bits of mantissa = {near}; 2**(floor(log2 {near}) - {p.top})"


def _nvfp4(p: Scaled, amax: np.float32, scale: np.float32, tensor: np.float32) -> Iterator[ExplainedStep]:
    """The two levels; the scale's own rounding to f8_e4m3 is a step."""
    six = np.float32(p.greatest)
    with np.errstate(all="ignore"):
        wanted = np.float32(np.float32(amax / six) / tensor) if tensor > 0 else np.float32(0)
        step = np.float32(scale * tensor)
    yield ExplainedStep("", "tensor", f"t = {_text(tensor)}", float(tensor), float(tensor))
    text = f"f8_e4m3({_text(amax)} / {p.greatest:g} / t) = f8_e4m3({_text(wanted)}) = {_text(scale)}"
    lost = "" if wanted == scale else "saturates" if wanted > fmt("f8_e4m3").greatest else "rounds"
    yield ExplainedStep("", "scale", text, float(scale), float(wanted), lost)
    yield ExplainedStep("", "step", f"{_text(scale)} * t = {_text(step)}", float(step), float(scale) * float(tensor))


def _element(p: Scaled, i: int, given: np.float32, kept: np.float32, step: np.float32) -> ExplainedStep:
    if not np.isfinite(step) or not step:
        text = f"{_text(given)} -> {_text(kept)}"
        lost = "" if kept == given else "rounds"
        return ExplainedStep(f"[{i}]", p.dst, text, float(kept), float(given), lost)
    asked, element = float(given) / float(step), float(kept) / float(step)
    text = f"{_text(given)} / {_text(step)} = {asked:.6g} -> {element:.6g}, stands for {_text(kept)}"
    lost = "" if asked == element else "saturates" if abs(asked) > p.greatest else "rounds"
    return ExplainedStep(f"[{i}]", p.dst, text, float(kept), float(given), lost)


def _text(number: np.float32) -> str:
    return text_of(float(number), "f32")
