"""oneDNN's verbose log read as benchdnn problems: one for each matmul and convolution that was executed.

Read are the lines of oneDNN 3 (`onednn_verbose,v1,primitive,exec,…`, with or without a time stamp) and the older ones
without version, and simdnn's own. Types, layouts, attributes and sizes become options, as benchdnn writes them.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

_MARKER = re.compile(r"(?:onednn|dnnl|simdnn)_verbose,")
#: name, type, flags, kind and tag of a memory descriptor; the type stood behind `_` before oneDNN 3.5
_MEMORY = re.compile(r"^(src|wei|bia|dst)[:_](\w+):(\w*):(\w*):([^:]*)(?::.*?(?:_mask(\d+))?)?$")
_DRIVERS = {"matmul": "matmul", "convolution": "conv"}
_PLAIN_TAG = re.compile(r"[a-l]+")


@dataclass(frozen=True)
class Executed:
    """One executed primitive: benchdnn's words for it, the implementation and the milliseconds that the log names."""

    words: tuple[str, ...]
    implementation: str
    ms: float


def executed(lines: Iterable[str]) -> Iterator[Executed | str]:
    """The matmuls and convolutions of a log, and for every other executed primitive the name of its kind.

    >>> line = "onednn_verbose,v1,primitive,exec,cpu,matmul,brg_matmul:avx512_core,undef,src:f32::blocked:ab::f0 "
    >>> line += "wei:f32:a:blocked:BA16a64b::f0 dst:f32::blocked:ab::f0,,,128x768:768x3072,0.5"
    >>> [item] = executed([line])
    >>> item.words
    ('--matmul', '--dt=f32:f32:f32', '--stag=ab', '--wtag=any', '--dtag=ab', '128x768:768x3072')

    A line that cannot be read counts as kind "unreadable".
    """
    for line in lines:
        if not (marker := _MARKER.search(line)):
            continue
        fields = line[marker.end() :].strip().split(",")
        if "exec" not in fields[:4]:
            continue
        fields = fields[fields.index("exec") + 1 :]
        kind = fields[1] if len(fields) > 1 else "unreadable"
        if kind not in _DRIVERS:
            yield kind or "unreadable"
            continue
        yield _executed(fields) or "unreadable"


def _executed(fields: list[str]) -> Executed | None:
    """From engine, kind, implementation, propagation, memory, attributes, auxiliary, problem, time."""
    if len(fields) < 9:
        return None
    engine, kind, implementation, propagation, memory, attributes, auxiliary, problem, time = fields[:9]
    tensors = {found[1]: found for part in memory.split() if (found := _MEMORY.match(part))}
    ms = _milliseconds(time)
    if not {"src", "wei", "dst"} <= set(tensors) or ms is None or not problem:
        return None
    words = [f"--{_DRIVERS[kind]}", "--dt=" + ":".join(tensors[name][2] for name in ("src", "wei", "dst"))]
    if engine.split(":")[0] != "cpu":
        words.append(f"--engine={engine}")
    words += [f"--{name[0]}tag={_tag(tensors[name])}" for name in ("src", "wei", "dst")]
    if kind == "convolution":
        words.append(f"--dir={_direction(propagation)}")
        words += [f"--alg={part[4:]}" for part in auxiliary.split() if part.startswith("alg:")]
    elif auxiliary.startswith("runtime_dims_masks:"):
        words.append("--" + auxiliary.replace(":", "=", 1))
    if "bia" in tensors and tensors["bia"][2] != "undef":
        words.append(f"--bia-dt={tensors['bia'][2]}")
        words += [f"--bia_mask={tensors['bia'][6]}"] if kind == "matmul" and tensors["bia"][6] else []
    words += [f"--{part.replace(':', '=', 1)}" for part in attributes.split() if part.startswith("attr-")]
    return Executed((*words, problem), implementation, ms)


def _tag(memory: re.Match[str]) -> str:
    """The layout; "any" where the library chose it or data were brought to a blocked layout before."""
    flags, kind, tag = memory[3], memory[4], memory[5]
    chosen = "a" in flags or kind != "blocked"
    return tag if not chosen and _PLAIN_TAG.fullmatch(tag) else "any"


def _direction(propagation: str) -> str:
    known = {"forward_inference": "FWD_I", "forward_training": "FWD_D", "backward_data": "BWD_D"}
    return known.get(propagation, "BWD_W")


def _milliseconds(text: str) -> float | None:
    try:
        ms = float(text)
    except ValueError:
        return None
    return ms if math.isfinite(ms) and ms >= 0 else None
