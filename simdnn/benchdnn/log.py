"""oneDNN's verbose log read as benchdnn problems: one for each matmul, convolution and inner product that was executed.

Read are the lines of oneDNN 3 (`onednn_verbose,v1,primitive,exec,…`), of 2 (without the version), of 1
(`dnnl_verbose,exec,…`), each with or without a time stamp, and simdnn's own. Types, layouts, attributes and sizes
become options, as benchdnn writes them. What cannot be read of these is told with the reason. benchdnn's own report of
times (--mode=P) has the problem in its words, of any driver.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

MARKER = re.compile(r"(?:onednn|mkldnn|dnnl|simdnn)_verbose,")
#: name, type, flags, kind, tag and strides of a memory descriptor; the type stood behind `_` before oneDNN 3.5
_MEMORY = re.compile(r"^(src|wei|bia|dst)[:_](\w+):(\w*):(\w*):([^:]*)(?::(\d+(?:x\d+)*)?:?.*?(?:_mask(\d+))?)?$")
_DRIVERS = {"matmul": "matmul", "convolution": "conv", "inner_product": "ip"}
_PLAIN_TAG = re.compile(r"[a-l]+")
_OLD_SIZES = re.compile(r"(?:b(\d+))?m(\d+)n(\d+)k(\d+)")  # oneDNN 1
_OLD_ATTRIBUTE = re.compile(r"(\w+):('[^']*'|[^;]*);")


_TEMPLATE = "Output template: perf,"
_TIMED = "%prb%", "%-time%"  # a problem, and its least time in milliseconds


@dataclass(frozen=True)
class Executed:
    """One executed primitive: benchdnn's words for it, the implementation and the milliseconds that the log names.

    `reason` says why it cannot be read; `words` then hold the line.
    """

    words: tuple[str, ...]
    implementation: str
    ms: float | None
    reason: str = ""


def executed(lines: Iterable[str]) -> Iterator[Executed | str]:
    """The matmuls, convolutions and inner products of a log, and the name of the kind of every other primitive.

    >>> line = "onednn_verbose,v1,primitive,exec,cpu,matmul,brg_matmul:avx512_core,undef,src:f32::blocked:ab::f0 "
    >>> line += "wei:f32:a:blocked:BA16a64b::f0 dst:f32::blocked:ab::f0,,,128x768:768x3072,0.5"
    >>> [item] = executed([line])
    >>> item.words
    ('--matmul', '--dt=f32:f32:f32', '--stag=ab', '--wtag=any', '--dtag=ab', '128x768:768x3072')

    A line whose kind cannot be read counts as kind "unreadable", a partition of oneDNN's graph interface as "graph".
    """
    names: list[str] = []  # of the fields of benchdnn's report
    for line in lines:
        if line.startswith(_TEMPLATE):
            names = line[len(_TEMPLATE) :].strip().split(",")
        elif line.startswith("perf,") and {*_TIMED} <= {*names}:
            yield _reported(names, line.strip().split(",")[1:])
        if not (marker := MARKER.search(line)):
            continue
        fields = line[marker.end() :].strip().split(",")
        if "exec" not in fields[:4]:
            continue
        before = fields[: fields.index("exec")]
        fields = fields[len(before) + 1 :]
        if marker[0].startswith("mkldnn"):
            fields.insert(0, "cpu")  # before oneDNN 1 there was no engine, and no type beside each layout
        kind = fields[1] if len(fields) > 1 else "unreadable"
        if "graph" in before:
            yield "graph"
        elif kind not in _DRIVERS:
            yield kind or "unreadable"
        elif marker[0].startswith("mkldnn"):
            yield _unreadable(fields, "a log of mkldnn, before oneDNN 1: it tells no types")
        else:
            yield _executed(fields)


def _reported(names: list[str], fields: list[str]) -> Executed | str:
    """A line of benchdnn's report, by the names in its template."""
    if len(fields) != len(names):
        return "unreadable"
    known = dict(zip(names, fields, strict=True))
    words = tuple(word for word in known[_TIMED[0]].split() if not word.startswith("--mode="))
    return Executed(words, known.get("%impl%", ""), _milliseconds(known[_TIMED[1]]))


def _unreadable(fields: list[str], reason: str) -> Executed:
    return Executed((",".join(fields),), fields[2] if len(fields) > 2 else "", _milliseconds(fields[-1]), reason)


def _executed(fields: list[str]) -> Executed:
    """The entry of engine, kind, implementation, propagation, memory, attributes, auxiliary, problem, time."""
    if len(fields) < 8:
        return _unreadable(fields, f"a line cut short: {len(fields)} of 9 fields behind 'exec'")
    engine, kind, implementation, propagation, memory, attributes, auxiliary, problem = fields[:8]
    tensors = {found[1]: found for part in memory.split() if (found := _MEMORY.match(part))}
    if missing := [name for name in ("src", "wei", "dst") if name not in tensors]:
        return _unreadable(fields, f"no memory descriptor of {', '.join(missing)} that can be read")
    if not problem:
        return _unreadable(fields, "no sizes")
    words = [f"--{_DRIVERS[kind]}", "--dt=" + ":".join(tensors[name][2] for name in ("src", "wei", "dst"))]
    if engine.split(":")[0] != "cpu":
        words.append(f"--engine={engine}")
    words += [f"--{name[0]}tag={_tag(tensors[name])}" for name in ("src", "wei", "dst")]
    if strides := [tensors[name][6] or "" for name in ("src", "wei", "dst")] if kind == "matmul" else []:
        words += [f"--strides={':'.join(strides)}"] if any(strides) else []
    if kind != "matmul":
        words.append(f"--dir={_direction(propagation)}")
        words += [f"--alg={part[4:]}" for part in auxiliary.split() if part.startswith("alg:")]
    elif auxiliary.startswith("runtime_dims_masks:"):
        words.append("--" + auxiliary.replace(":", "=", 1))
    if "bia" in tensors and tensors["bia"][2] != "undef":
        words.append(f"--bia-dt={tensors['bia'][2]}")
        words += [f"--bia_mask={tensors['bia'][7]}"] if kind == "matmul" and tensors["bia"][7] else []
    words += [f"--{part.replace(':', '=', 1)}" for part in attributes.split() if part.startswith("attr-")]
    for name, value in _OLD_ATTRIBUTE.findall(attributes) if "attr-" not in attributes else ():
        if name == "post_ops":
            words.append("--attr-post-ops=" + "+".join(part for part in value.strip("'").split(";") if part))
        elif name != "scratchpad_mode":
            return _unreadable(fields, f"attribute {name}:{value} of oneDNN 1, which later versions do not have")
    ms = _milliseconds(fields[8]) if len(fields) > 8 else None
    return Executed((*words, _sizes(problem)), implementation, ms)


def _sizes(problem: str) -> str:
    """The sizes as benchdnn has them: those of oneDNN 1's matmul become dimensions.

    >>> _sizes("b10m20n30k40")
    '10x20x40:10x40x30'
    """
    if not (found := _OLD_SIZES.fullmatch(problem)):
        return problem
    batch, m, n, k = (f"{found[1]}x" if found[1] else ""), found[2], found[3], found[4]
    return f"{batch}{m}x{k}:{batch}{k}x{n}"


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
