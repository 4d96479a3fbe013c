"""`simdnn explain`: one instruction, or one output element of a problem, step by step."""

from __future__ import annotations

import argparse
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from isa_models import REGISTRY, Instruction, InvalidArgument, instruction
from isa_models.aliases import instructions_like_intrinsic
from isa_models.errors import counted, unknown_name
from isa_models.formats import fmt, name_of
from isa_models.instruction import GPU_REGISTRY, Family
from isa_models.plugins import with_failures
from isa_models.readings.arrays import memory_bytes
from simdnn.benchdnn.asked import task
from simdnn.benchdnn.descriptors import Axis, conv_dims, matmul_dims
from simdnn.benchdnn.options import Unread, read
from simdnn.benchdnn.values import parameter_values
from simdnn.cli import numpy_files, output, words
from simdnn.cli.options import machine_with
from simdnn.explanations.lanes import explain
from simdnn.explanations.operand_text import arguments, example, explained, whole
from simdnn.explanations.steps import Explanation
from simdnn.primitives import Attr, convolution, matmul
from simdnn.primitives.block_scales import Blocks, quantize_mx, quantize_nvfp4
from simdnn.primitives.result import Result

USAGE = """\
simdnn explain INSTRUCTION [--OPERAND NUMBERS …] [--IMMEDIATE N]
                      [--lanes N] [--json] [-o FILE [--force]]
       simdnn explain matmul MxK:KxN --at [BATCH,…,]ROW,COLUMN [OPTIONS]
                      [--json] [-o FILE]
       simdnn explain conv PROBLEM --at N,C,Y,X [OPTIONS] [--json] [-o FILE]
       simdnn explain dot --src NUMBERS --weights NUMBERS
                      [--dt SRC:WEIGHTS] [--group N] [--rule RULE] [--json]"""
DESCRIPTION = "Shows every step that made a lane of an instruction, or an output element of a kernel, with its values."
NOTES = (
    "An instruction: its operands by name, comma lists of numbers (0x10, -3, 1.5, nan, inf), e.g. "
    "vpmaddubsw --a 255,255 --b 127,127. Without operands: what it takes. Of a GPU's product of matrices "
    "(mma.hopper.m16n8k16.f32.f16, dpas.s8.s8.8.8.x16.s32) one output is explained: --a is a row, --b a column.",
    "An element: problems as `simdnn bench` reads them (64x512:512x64, ic16ih8oc8kh3ph1), with random data of their "
    "types' whole range (--seed N); or --src FILE.npy --weights FILE.npy in place of the problem (conv: --strides, "
    "--padding, --dilation, --groups). Options: --dt SRC:WEIGHTS:DST (u8:s8:s32), --machine M (zen4), --isa ISA, "
    "--set KEY=VALUE (a figure of the machine), "
    "--exact, --dispatch fastest|onednn, --attr-zero-points and --attr-scales as `simdnn bench` reads them "
    "(src:common:3+wei:per_oc; what they leave open is random). Long chains are cut in the text and whole in --json, "
    "-o FILE.csv or .parquet.",
    "A dot product of blocks: comma lists of numbers, quantized as simdnn.quantize_mx does it (--rule floor, ceil, "
    "even or rceil; --group 32, or all where there are fewer) or to NVFP4 (f4_e2m1 by --rule nvfp4), then multiplied: "
    "codes, what they stand for, scales, sums, and what rounds. --dt f8_e4m3:f8_e4m3.",
)
EPILOG = "\n\n".join(NOTES)
PRIMITIVES = {"matmul": "matmul", "conv": "convolution", "convolution": "convolution"}
DOT = "dot"
_DOT_OPTIONS = ("src", "weights", "dt", "group", "rule")
_ATTRIBUTES = ("attr-zero-points", "attr-scales")
_ELEMENT_OPTIONS = (
    *_ATTRIBUTES,
    "at",
    "dt",
    "machine",
    "set",
    "isa",
    "dispatch",
    "seed",
    "src",
    "weights",
    "strides",
    "padding",
    "dilation",
    "groups",
)
_FLAGS = ("json", "exact", "force")


def add(subparsers: Any) -> None:
    """Describe the command to argparse, which leaves all words to the command: options depend on the instruction."""
    words.add(subparsers, "explain", main, usage=USAGE, description=DESCRIPTION, epilog=EPILOG)


def main(parser: argparse.ArgumentParser, args: argparse.Namespace) -> int:
    """The command."""
    plain, options = _options(args.words)
    if not args.words or "help" in options:
        parser.print_help()
        return 0
    if not plain:
        raise InvalidArgument("nothing to explain; an instruction, e.g. vpmaddubsw, or matmul or conv is needed")
    subject, *rest = plain
    if not _is_instruction(subject) and _is_instruction(subject.lower()):
        subject = subject.lower()  # as manuals write it
    path = Path(options.pop("output")) if "output" in options else None
    output.check_path(path, output.FILE_FORMATS)
    options.pop("force", None)  # `simdnn.cli.main` reads it
    as_json = options.pop("json", None) is not None
    if subject == DOT:
        found = _dot(rest, options)
    elif subject in PRIMITIVES:
        found = _element(PRIMITIVES[subject], rest, options)
    elif _is_instruction(subject):
        if rest:
            raise InvalidArgument(f"{rest[0]!r} behind {subject}; operands are named: {_example(explained(subject))}")
        if not options:
            if path or as_json:
                raise InvalidArgument(
                    f"-o and --json are for steps; {subject} without operands has none: {_example(explained(subject))}"
                )
            print(_usage_of(explained(subject)))
            return 0
        found = _instruction(subject, options)
    else:
        if instructions_like_intrinsic(subject, REGISTRY):
            instruction(subject)  # which refuses it with their names
        error = unknown_name(
            "instruction or primitive",
            subject,
            [*REGISTRY, *GPU_REGISTRY, *PRIMITIVES, DOT],
            "simdnn list instructions",
        )
        raise with_failures(type(error)(f"{error}; primitives: {', '.join([*PRIMITIVES, DOT])}"))
    _write(found, path, as_json)
    return 0


def _is_instruction(name: str) -> bool:
    """Whether a name is one's, or that of a family with a form behind it."""
    here = name in REGISTRY or {name, name.split(".")[0]} & GPU_REGISTRY.keys()
    return bool(here or REGISTRY.find(name) or GPU_REGISTRY.find(name))


def _write(found: Explanation, path: Path | None, as_json: bool) -> None:
    if path:
        frame = found.steps
        if path.suffix.lower() == ".parquet":
            frame = frame.astype({"value": float, "exact": float})
        output.write(path, frame, found.record())
    if as_json:
        output.print_json(found.record())
    else:
        print(found)


def _options(words: Sequence[str]) -> tuple[list[str], dict[str, str]]:
    """Words without and with a name; a name's value is behind its "=", or the next word.

    Values of --set stand in lines.
    """
    plain: list[str] = []
    options: dict[str, str] = {}
    rest: Iterator[str] = iter(words)
    for word in rest:
        if word in ("-h", "--help"):
            options["help"] = ""
            continue
        name, equals, value = word.partition("=")
        if name == "-o":
            name = "--output"
        if not name.startswith("--"):
            plain.append(word)
            continue
        key = name[2:]
        if key in options and key != "set":
            raise InvalidArgument(f"{name} is given twice")
        if key not in _FLAGS and not equals:
            found = next(rest, None)
            if found is None or (found.startswith("--") and not found.startswith("--0x")):
                raise InvalidArgument(f"{name} without a value")
            value = found
        elif key in _FLAGS and equals:
            raise InvalidArgument(f"{word}: {name} takes no value")
        options[key] = value if key != "set" else "\n".join(filter(None, (options.get(key), value)))
    return plain, options


# -- an instruction ----------------------------------------------------------------------------------------------------
def _usage_of(definition: Instruction) -> str:
    text = definition.doc.split("\n\n>>>")[0]
    if isinstance(definition, Family):
        forms = textwrap.wrap(" ".join(definition.forms()), 100, break_on_hyphens=False)
        return "\n".join([text, definition.manual, "", "forms (`simdnn explain FORM` shows one):", *forms])
    call = "It sets a state of the machine; there is no value to explain."
    call = call if definition.configures else _example(definition)
    return f"{definition.signature}\n{text}\n{definition.manual}\n\n{call}"


def _example(definition: Instruction) -> str:
    """A call that shows something."""
    words = [f"--{name} {text}" for name, text in example(definition).items()]
    return " ".join([f"simdnn explain {definition.name}", *words])


def _instruction(name: str, options: dict[str, str]) -> Explanation:
    definition = explained(name)
    if definition.configures:
        explain(name)
    names = [operand.name for operand in definition.operands]
    for key in options:
        if key not in (*names, *definition.immediates, *definition.choices, "lanes"):
            raise InvalidArgument(f"{name} has no operand {key!r}; {_example(definition)}")
    return explain(name, **arguments(definition, options))


# -- a dot product of blocks ------------------------------------------------------------------------------------------
def _dot(words: Sequence[str], options: dict[str, str]) -> Explanation:
    if words:
        raise InvalidArgument(f"{words[0]!r} behind {DOT}; numbers are named: --src 3,1 --weights 0.5,-6")
    for key in options:
        if key not in _DOT_OPTIONS:
            raise unknown_name("option", f"--{key}", [f"--{name}" for name in (*_DOT_OPTIONS, *_FLAGS)])
    if "src" not in options or "weights" not in options:
        raise InvalidArgument("what is multiplied? --src 3,1 --weights 0.5,-6, numbers of one count")
    types = options.get("dt", "f8_e4m3:f8_e4m3").split(":")
    if len(types) != 2:
        raise InvalidArgument(f"--dt {options['dt']!r}; types of the source and the weights, e.g. f8_e4m3:f4_e2m1")
    sides = (_numbers(name, options[name]) for name in ("src", "weights"))
    source, weights = (_blocks(numbers, dtype, options) for numbers, dtype in zip(sides, types, strict=True))
    return explain(source, weights)


def _numbers(name: str, text: str) -> Any:
    try:
        return np.array([float(word) for word in text.split(",")], np.float32)
    except ValueError:
        raise InvalidArgument(f"--{name} {text[:40]!r}; a comma list of numbers is needed") from None


def _blocks(numbers: Any, dtype: str, options: dict[str, str]) -> Blocks:
    rule = options.get("rule", "floor")
    if rule == "nvfp4" and dtype == "f4_e2m1":
        return quantize_nvfp4(numbers)
    group = whole("--group", options["group"]) if "group" in options else min(32, len(numbers))
    return quantize_mx(numbers, dtype, group=group, rule="floor" if rule == "nvfp4" else rule)


# -- an element --------------------------------------------------------------------------------------------------------
def _element(primitive: str, words: Sequence[str], options: dict[str, str]) -> Explanation:
    exact = options.pop("exact", None) is not None
    for key in options:
        if key not in _ELEMENT_OPTIONS:
            raise unknown_name("option", f"--{key}", [f"--{name}" for name in (*_ELEMENT_OPTIONS, *_FLAGS)])
    if "at" not in options:
        raise InvalidArgument("which element? --at ROW,COLUMN of a matmul, --at N,C,Y,X of a convolution")
    at = [whole("--at", word) for word in options["at"].split(",")]
    result = _result(primitive, words, options, exact)
    return result.explain(*at)


def _result(primitive: str, words: Sequence[str], options: dict[str, str], exact: bool) -> Result:
    """The product or convolution that a command line is about, run."""
    _check_options(primitive, bool(words), options)
    figures = options.get("set", "").splitlines()
    where: dict[str, Any] = {"machine": machine_with(options.get("machine", "zen4"), figures)}
    where |= {key: options[key] for key in ("isa", "dispatch") if key in options}
    src_type, wei_type, dst = _types(options.get("dt", "u8:s8:s32" if words else ""))
    where |= {"dst": dst} if dst else {}
    taps = {
        key: [whole(f"--{key}", w) for w in options[key].split(",")]
        for key in ("strides", "padding", "dilation")
        if key in options
    }
    where |= {key: value[0] if len(value) == 1 else value for key, value in taps.items()}
    where |= {"groups": whole("--groups", options["groups"])} if "groups" in options else {}
    src, weights, more = _operands(primitive, words, options, src_type, wei_type)
    where |= more
    problem = words[0] if words else ""
    if not words and primitive == "matmul" and src.ndim == weights.ndim == 2:
        problem = f"{src.shape[0]}x{src.shape[1]}:{weights.shape[0]}x{weights.shape[1]}"
    types = f"{name_of(src.dtype)}:{name_of(weights.dtype)}:{dst or 'f32'}"
    attr = _attr(primitive, [f"--dt={types}", problem], options, src, exact)
    return (matmul if primitive == "matmul" else convolution)(src, weights, attr=attr, **where)


def _operands(
    primitive: str, words: Sequence[str], options: Mapping[str, str], src_type: str, wei_type: str
) -> tuple[Any, Any, dict[str, Any]]:
    """Source and weights, random ones of a problem or those of two files, and what the problem says besides."""
    if words:
        if "src" in options or "weights" in options or len(words) > 1:
            raise InvalidArgument("one problem, or --src and --weights, is needed, not both")
        rng = np.random.default_rng(whole("--seed", options.get("seed", "0")))
        src_shape, wei_shape, more = _shapes(primitive, words[0])
        _check_drawn(primitive, words[0], src_shape, wei_shape)
        return _random(rng, src_shape, src_type), _random(rng, wei_shape, wei_type), more
    if "src" not in options or "weights" not in options:
        raise InvalidArgument("a problem is needed (64x512:512x64; ic16ih8oc8kh3ph1), or --src and --weights files")
    src, weights = (numpy_files.one(Path(options[name]), "array") for name in ("src", "weights"))
    for array, name, wanted in ((src, "src", src_type), (weights, "weights", wei_type)):
        if "dt" in options and name_of(array.dtype) != wanted:
            raise InvalidArgument(f"--dt says {wanted} for --{name}, and {options[name]} holds {array.dtype}")
    return src, weights, {}


def _attr(primitive: str, problem: list[str], options: dict[str, str], src: Any, exact: bool) -> Attr:
    """Scales and zero points in benchdnn's syntax, for a problem in it; what its text leaves open is random."""
    given = [f"--{key}={options[key]}" for key in _ATTRIBUTES if key in options]
    if not given:
        return Attr(exact_int8=exact or None)
    if not all(problem):
        raise InvalidArgument(f"{given[0]} without a problem; a convolution's is needed, in place of two files")
    driver = "matmul" if primitive == "matmul" else "conv"
    cases = [case for line in read([*given, *problem], driver) for case in line.cases()]
    if len(cases) > 1:
        raise InvalidArgument(f"{' '.join(given)} makes {counted(len(cases), 'problem')}; one is explained")
    (case,) = cases
    if isinstance(case, Unread):
        raise InvalidArgument(f"{case.text}: {case.reason}")
    rng = np.random.default_rng(whole("--seed", options.get("seed", "0")))
    return replace(task(case).attr(parameter_values(rng, src)), exact_int8=exact or None)


def _check_options(primitive: str, drawn: bool, options: dict[str, str]) -> None:
    """Refuses options that a problem, or files in its place, say already, or that a matmul does not have."""
    shape = ("strides", "padding", "dilation", "groups")
    for name in options:
        if name in shape and (drawn or primitive == "matmul"):
            why = "a matmul has none" if primitive == "matmul" else "the problem says it (sh2ph1dh0g2)"
            raise InvalidArgument(f"--{name} is for conv with --src and --weights; {why}")
        if name == "seed" and not drawn:
            raise InvalidArgument("--seed is for data that are drawn; --src and --weights hold theirs")


def _types(text: str) -> tuple[str, str, str | None]:
    parts = text.split(":") if text else ["u8", "s8", ""]
    parts = parts * 3 if len(parts) == 1 else parts
    if len(parts) != 3:
        raise InvalidArgument(f"--dt {text[:40]!r}; src:weights:dst is needed, e.g. u8:s8:s32")
    for name in filter(None, parts):
        fmt(name)
    return parts[0], parts[1], parts[2] or None


def _shapes(primitive: str, text: str) -> tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]]:
    """Shapes of source and weights, and what else a convolution is told."""
    if primitive == "matmul":
        dims = matmul_dims(text)
        assert dims.sizes  # or a refusal
        return dims.src, dims.wei, {}
    c = conv_dims(text)
    h, w = c.height, c.width
    if c.depth != Axis():
        raise InvalidArgument(f"{text}: a convolution of three dimensions; two are explained")
    taps = {
        "strides": (h.s, w.s),
        "dilation": (h.d + 1, w.d + 1),
        "groups": c.groups,
        "padding": (h.p, w.p, max(0, h.after), max(0, w.after)),
    }
    return (c.mb, c.ic, h.i, w.i), (c.oc, c.ic // c.groups, h.k, w.k), taps


def _check_drawn(primitive: str, problem: str, *shapes: tuple[int, ...]) -> None:
    """`InvalidArgument` where operands are more than this host's memory holds as they are drawn, 8 bytes a number."""
    needed, limit = 8 * sum(map(prod, shapes)), memory_bytes()
    if needed > limit:
        raise InvalidArgument(
            f"{problem}: drawing its operands takes {needed:.3g} bytes, and this host has {limit:.3g}; what it costs: "
            f"simdnn bench --{primitive} --mode=P {problem}"
        )


def _random(rng: np.random.Generator, shape: tuple[int, ...], dtype: str) -> Any:
    form = fmt(dtype)
    if form.is_float:
        return rng.standard_normal(shape).astype(np.float32).astype(form.dtype)
    return rng.integers(form.low, form.high, shape, endpoint=True).astype(form.dtype)
