"""The package's own exceptions: each message says the value met, what is allowed, and the nearest thing that works."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping, Sequence

_FEW = 40  # names that still fit an error message
_MOST = 1000  # characters of a message
_MOST_QUOTED = 160  # of a value within it
_QUOTED = re.compile(r"'[^'\n]*'|\"[^\"\n]*\"")


def bounded(message: str) -> str:
    """A message of one line and at most a thousand characters; what is quoted in it is cut in the middle first.

    >>> found = bounded(f"unknown machine {'zen' * 1000!r}: did you mean 'zen4'?")
    >>> len(found), found[:21], found[-29:]
    (198, "unknown machine 'zenz", "zenzen': did you mean 'zen4'?")
    """
    if len(message) > _MOST:
        message = _QUOTED.sub(lambda found: _cut(found[0], _MOST_QUOTED), message)
    if not message.isprintable():
        message = " ".join("".join(c if c.isprintable() or c.isspace() else "?" for c in message).split())
    return _cut(message, _MOST)


def _cut(text: str, most: int) -> str:
    """A text with its middle left out where it is longer."""
    head = 2 * most // 3
    return text if len(text) <= most else f"{text[:head]} … {text[len(text) - (most - head - 3) :]}"


class SimdnnError(Exception):
    """Base of every error that simdnn and isa_models raise on purpose. Its message is one line of bounded length."""

    def __init__(self, *args: object) -> None:
        super().__init__(*(bounded(arg) if isinstance(arg, str) else arg for arg in args))

    def __str__(self) -> str:  # KeyError below would print the repr of its message
        return str(self.args[0]) if self.args else ""


class InvalidArgument(SimdnnError, ValueError):
    """A value outside what is allowed: shape, type, attribute."""


class Unimplemented(SimdnnError, NotImplementedError):
    """A legal request that no kernel here can do."""


class UnknownTiming(SimdnnError, KeyError):
    """A cost that the machine's table does not hold. Never counted as zero."""


class UnknownName(SimdnnError, KeyError):
    """A machine, instruction, workload or ISA that does not exist."""


class MachineFileError(SimdnnError, ValueError):
    """A machine file that breaks its schema: which key, what was expected."""


class ProgramError(SimdnnError, ValueError):
    """A Program that fails verification; the message names the instruction."""


#: what others call a thing, or a word for several of them, and the names here; one of a list that is meant stands first
ALIASES: Mapping[str, tuple[str, ...]] = {
    "avx512": ("avx512_core",),
    "avx512f": ("avx512_core",),
    "avx512bw": ("avx512_core",),
    "avx_512": ("avx512_core",),
    "avx10": ("avx512_core_fp16",),
    "avx10_1": ("avx512_core_fp16",),
    "avx10_1_512": ("avx512_core_fp16",),
    "vnni": ("avx512_core_vnni", "avx2_vnni"),
    "avx512_vnni": ("avx512_core_vnni",),
    "avx_vnni": ("avx2_vnni",),
    "avx512_bf16": ("avx512_core_bf16",),
    "avx512_fp16": ("avx512_core_fp16",),
    "amx": ("avx512_core_amx",),
    "amx_int8": ("avx512_core_amx",),
    "amx_bf16": ("avx512_core_amx",),
    "fp8": ("f8_e4m3", "f8_e5m2"),
    "f8": ("f8_e4m3", "f8_e5m2"),
    "float8": ("f8_e4m3", "f8_e5m2"),
    "e4m3": ("f8_e4m3",),
    "e5m2": ("f8_e5m2",),
    "fp4": ("f4_e2m1",),
    "mxfp4": ("f4_e2m1",),
    "int8": ("s8", "u8", "int8-fast", "int8-exact", "int8-vnni"),
    "i8": ("s8",),
    "uint8": ("u8",),
    "ui8": ("u8",),
    "int4": ("s4", "u4"),
    "i4": ("s4",),
    "uint4": ("u4",),
    "int2": ("s2", "u2"),
    "int32": ("s32",),
    "i32": ("s32",),
    "float": ("f32",),
    "fp32": ("f32",),
    "float32": ("f32",),
    "single": ("f32",),
    "double": ("f64", "f32"),
    "fp64": ("f64", "f32"),
    "float64": ("f64", "f32"),
    "f64": ("f32",),
    "half": ("f16",),
    "fp16": ("f16",),
    "float16": ("f16",),
    "bfloat16": ("bf16",),
    "tf32": ("fpmath-tf32",),
    "bf16": ("fpmath-bf16",),
    "f16": ("fpmath-f16",),
    "gelu": ("gelu_erf", "gelu_tanh"),
    "sigmoid": ("logistic",),
    "silu": ("swish",),
    "multiply": ("mul",),
    "leaky_relu": ("relu",),  # which takes a slope
}
#: the same of primitives, machines, rules of dispatch and layouts
_OTHER_ALIASES: Mapping[str, tuple[str, ...]] = {
    "gemm": ("matmul",),
    "linear": ("inner_product",),
    "dense": ("inner_product",),
    "mkldnn": ("onednn",),
    "dnnl": ("onednn",),
    "ort": ("onnxruntime",),
    "llama.cpp": ("ggml",),
    "epyc": ("zen5", "zen4"),
    "ryzen": ("zen5", "zen4"),
    "xeon": ("gnr", "spr", "icx", "clx"),
    "arc": ("b580", "a770"),
    "row": ("ab",),
    "row_major": ("ab",),
    "col": ("ba",),
    "col_major": ("ba",),
    "column_major": ("ba",),
}
_LIKE = 0.6  # difflib's least ratio of two names that may be meant for each other
_BEGUN = 3  # letters of a name that say which one is meant


def how_to_install(extra: str) -> str:
    """How an optional part of simdnn is installed, from its sources and from a package index.

    >>> how_to_install("onnx")
    "pip install '.[onnx]' in a checkout of simdnn, pip install 'simdnn[onnx]' from a package index"
    """
    return f"pip install '.[{extra}]' in a checkout of simdnn, pip install 'simdnn[{extra}]' from a package index"


def nearest(name: object, known: Iterable[str], count: int = 1) -> list[str]:
    """The known names that are meant by another, the likeliest first; none where nothing is like it.

    What differs in capitals alone; what the name is an alias of; else what is spelt alike, has its letters in another
    order, or begins with it.

    >>> nearest("fp8", ["f32", "f8_e4m3", "f8_e5m2", "u8"]), nearest("rum", ["run", "list"]), nearest("m1", ["max1550"])
    (['f8_e4m3', 'f8_e5m2'], ['run'], [])
    """
    names, word = sorted(known), str(name).lower()
    if same := [one for one in names if one.lower() == word]:
        return same[:count]
    other = word.replace("-", "_").replace(" ", "_")
    if meant := ALIASES.get(other, ()) + _OTHER_ALIASES.get(other, ()):
        return [one for one in meant if one in names]
    alike = difflib.get_close_matches(word, names, n=count, cutoff=_LIKE)
    turned = [one for one in names if sorted(one.lower()) == sorted(word)]
    begun = [one for one in names if len(word) >= _BEGUN and one.lower().startswith(word)]
    return list(dict.fromkeys([*alike, *turned, *sorted(begun, key=len)]))[:count]


def did_you_mean(name: object, known: Iterable[str]) -> str:
    """A question after the nearest names, empty where there is none.

    >>> did_you_mean("gelu", ["relu", "gelu_erf", "gelu_tanh"])
    "did you mean 'gelu_erf' or 'gelu_tanh'?"
    """
    found = nearest(name, known)
    return f"did you mean {' or '.join(map(repr, found))}?" if found else ""


def some(names: Sequence[str], most: int = 8) -> str:
    """The first names, and how many more there are.

    >>> some(["a", "b", "c"], 2)
    'a, b and 1 more'
    """
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")


def unknown_name(kind: str, name: object, known: Iterable[str]) -> UnknownName:
    """An `UnknownName` that names the closest known one, and all of them where they are few.

    >>> print(unknown_name("machine", "zen", ["zen4", "skx"]))
    unknown machine 'zen': did you mean 'zen4'? Known: skx, zen4
    """
    return UnknownName(f"unknown {kind} {name!r}{what_is_known(name, known)}")


def what_is_known(name: object, known: Iterable[str]) -> str:
    """The end of a message about an unknown name: the closest known one, and all of them where they are few.

    >>> print(what_is_known("zen", ["zen4", "skx"]))
    : did you mean 'zen4'? Known: skx, zen4
    """
    names = sorted(known)
    question = did_you_mean(name, names)
    said = f": {question}" if question else "."
    if len(names) <= _FEW:
        return f"{said} Known: {', '.join(names)}"
    near = nearest(name, names, 4)[1:]
    others = f" Near: {', '.join(near)};" if near and str(name).lower() not in ALIASES else ""
    return f"{said}{others} {len(names)} are known (`simdnn list`)"
