"""benchdnn's drivers of one operator: --softmax, --eltwise, --binary, --pool and --lnorm, with values and cost."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from isa_models import InvalidArgument, Unimplemented
from isa_models.errors import unknown_name
from isa_models.formats import fmt
from isa_models.readings.arrays import Array
from simdnn.benchdnn import attributes, definitions
from simdnn.benchdnn.descriptors import Axis, pool_axes
from simdnn.benchdnn.subset import DIRECTIONS, OPTIONS, Option, data_types, integer, one_of, tag
from simdnn.operators import primitives
from simdnn.operators.estimate import estimate
from simdnn.operators.graphs import BINARY, ELTWISE
from simdnn.operators.primitives import OperatorEstimate

if TYPE_CHECKING:
    from simdnn.benchdnn.options import Case

_SOFTMAX = {"softmax": False, "softmax_accurate": False, "logsoftmax": True, "softmax_log": True}
_POOLING = {"max": "max", "avg_np": "avg_exclude_padding", "avg_p": "avg_include_padding"}
_POOLING |= {f"pooling_{name}": name for name in ("max", "avg_exclude_padding", "avg_include_padding")}
_LARGEST = 10**9  # bytes of operands beyond which values are not computed
_SIZES = re.compile(r"\d{1,12}(x\d{1,12}){0,11}")


@dataclass(frozen=True)
class Tensors:
    """The shapes of an operator's sources, as written."""

    shapes: tuple[tuple[int, ...], ...]
    name: str = ""


@dataclass(frozen=True)
class PoolDims:
    """A pooling as written: images (N, C), height and width."""

    mb: int
    channels: int
    height: Axis
    width: Axis
    name: str = ""


def tensors(text: str, count: int) -> Tensors:
    """The shapes of `count` sources, AxBxC[:DxExF][n"name"].

    >>> tensors('8x64:1x64n"bias"', 2)
    Tensors(shapes=((8, 64), (1, 64)), name='bias')
    """
    sizes, _, name = text.partition("n")
    parts = sizes.removesuffix("_").split(":")
    if len(parts) != count or not all(map(_SIZES.fullmatch, parts)):
        example = ":".join(["8x64", "1x64"][:count])
        raise InvalidArgument(f"problem {text[:60]!r}; {count} shape{'s' * (count > 1)} needed, as in {example}")
    shapes = tuple(tuple(map(int, part.split("x"))) for part in parts)
    if any(0 in shape for shape in shapes):
        raise InvalidArgument(f"problem {text[:60]!r}: a dimension of 0; at least 1 is needed")
    return Tensors(shapes, name.strip('"'))


def pool_dims(text: str) -> PoolDims:
    """The pooling that a descriptor means, by the rules of convolutions for what is left out.

    >>> pool_dims("mb1ic64ih112kh3sh2ph1").height
    Axis(i=112, o=56, k=3, s=2, p=1, d=0)
    """
    given, name, axes = pool_axes(text)
    if axes[0] is not None:
        raise Unimplemented("three spatial dimensions: no kernel here; what works: one and two")
    height, width = axes[1] or Axis(), axes[2] or axes[1]
    assert width is not None
    return PoolDims(given.get("mb", 2), given["ic"], height, width, name)


DIMS: Mapping[str, Callable[[str], Tensors | PoolDims]] = {
    "softmax": lambda text: tensors(text, 1),
    "eltwise": lambda text: tensors(text, 1),
    "lnorm": lambda text: tensors(text, 1),
    "binary": lambda text: tensors(text, 2),
    "pool": pool_dims,
}
DRIVERS = tuple(DIMS)


def _number(text: str) -> object:
    try:
        found = float(text)
    except ValueError:
        found = math.nan
    if not math.isfinite(found):
        raise InvalidArgument(f"{text[:40]!r}; a finite number is needed")
    return found


def _algorithm(text: str) -> object:
    every = (*_SOFTMAX, *_POOLING, *ELTWISE, *BINARY)
    if text and _plain(text) not in every:
        raise unknown_name("--alg", text[:40], every)
    return text


def _plain(text: str) -> str:
    return re.sub("^(eltwise|binary)_", "", text.lower())


def _flags(text: str) -> object:
    if set(text.upper()) - set("GCHM"):
        raise InvalidArgument(f"--flags={text[:20]!r}; letters of G, C, H and M are needed")
    return text


def _refused(name: str) -> Option:
    return Option(name, "", lambda text: text, DRIVERS)


#: in the order in which the cross product runs: the last one fastest
OPERATOR_OPTIONS: Mapping[str, Option] = {
    option.name: option
    for option in (
        *(Option(o.name, o.default, o.check, DRIVERS, o.kept) for o in OPTIONS.values() if o.kept),
        Option("dir", "FWD_D", one_of("--dir", DIRECTIONS, str.upper), ("softmax", "eltwise", "lnorm", "pool")),
        Option("dt", "f32", data_types("--dt", (1, 2)), ("eltwise", "lnorm", "pool")),
        Option("sdt", "f32", data_types("--sdt", (1, 2)), ("softmax", "binary")),
        Option("ddt", "f32", data_types("--ddt", (1,)), ("softmax", "binary")),
        *(Option(name, "any", tag, DRIVERS) for name in ("tag", "stag", "dtag", "stat_tag")),
        Option("alg", "", _algorithm, ("softmax", "eltwise", "binary", "pool")),
        Option("axis", "1", integer, ("softmax",)),
        Option("alpha", "0", _number, ("eltwise",)),
        Option("beta", "0", _number, ("eltwise",)),
        Option("flags", "", _flags, ("lnorm",)),
        Option("mb", "0", integer, ("softmax", "eltwise", "pool")),
        Option("attr-scales", "", lambda text: attributes.parameters("attr-scales", text), DRIVERS),
        *(_refused(name) for name in OPTIONS if name.startswith("attr-") and name != "attr-scales"),
    )
}


@dataclass(frozen=True)
class OperatorTask:
    """One call: the primitive's name, its sources' shapes and types, its other arguments."""

    case: Case
    primitive: str
    sources: Mapping[str, tuple[tuple[int, ...], str]]
    dst: str
    options: Mapping[str, Any] = field(default_factory=dict)
    rows: tuple[str, ...] = ()  # of f32: scale, shift

    @property
    def where(self) -> dict[str, Any]:
        """The keyword arguments that say on what it runs."""
        return {"machine": self.case.options["machine"], "isa": self.case.options["isa"] or None}

    def cost(self) -> OperatorEstimate:
        """The cost of one call, without data."""
        types = ":".join([*(dtype for _, dtype in self.sources.values()), self.dst])
        shapes: dict[str, Any] = {name: shape for name, (shape, _) in self.sources.items()}
        given: dict[str, Any] = {**shapes, **dict.fromkeys(self.rows, True), **self.options, "scales": self.scales}
        found: OperatorEstimate = estimate(self.primitive, dt=types, **self.where, **given)
        return found

    @property
    def scales(self) -> dict[str, float]:
        """Common scales by argument; 2.0 where the text names none."""
        known = {"src": "src0" if self.primitive == "binary" else "src", "src1": "src1", "dst": "dst"}
        found = {}
        for parameter in attributes.parameters("attr-scales", self.case.options["attr-scales"]):
            if parameter.argument not in known or parameter.mask not in (0, "common", "host_scalar"):
                raise Unimplemented(
                    f"--attr-scales of {parameter.argument} with mask {parameter.mask}; what works: common ones of "
                    f"{', '.join(known)}"
                )
            found[known[parameter.argument]] = 2.0 if parameter.value is None else float(parameter.value)
        return found

    @property
    def nbytes(self) -> float:
        """Bytes of the sources and about as many of the destination as the first source has elements."""
        sizes = [math.prod(shape) * fmt(dtype).bytes for shape, dtype in self.sources.values()]
        shape, _ = next(iter(self.sources.values()))
        return sum(sizes) + math.prod(shape) * fmt(self.dst).bytes

    @property
    def too_big(self) -> str:
        """Why values are not computed; empty where they are."""
        size = self.nbytes
        return f"values not checked: {size:.2g} bytes, at most {_LARGEST:.0e} are" if size > _LARGEST else ""

    def check(self) -> tuple[float, int]:
        """The largest error against the definition in float64, and how many outputs roundings do not explain."""
        rng = np.random.default_rng(len(self.case.text))
        sources = {name: _drawn(rng, dtype, shape) for name, (shape, dtype) in self.sources.items()}
        rows = {name: _drawn(rng, "f32", next(iter(sources.values())).shape[-1:]) for name in self.rows}
        call: Callable[..., Any] = getattr(primitives, self.primitive)
        names = {"src0", "src1"} & set(sources) or {"src"}
        operands = [sources[name] for name in sorted(names)]
        found = call(*operands, **rows, **self.options, **self.where, dst=self.dst, scales=self.scales).output
        wide = [a.astype(np.float32) * np.float32(self.scales.get(n, 1.0)) for n, a in sorted(sources.items())]
        exact = definitions.exact(self.primitive, [w.astype(np.float64) for w in wide], rows, self.options)
        return definitions.compared(found, exact / self.scales.get("dst", 1.0), self.dst)


def _drawn(rng: np.random.Generator, dtype: str, shape: tuple[int, ...]) -> Array:
    """Small numbers of both signs where the type has them, which f16 and the integers hold exactly."""
    kind = fmt(dtype)
    low = 0 if not kind.is_float and not kind.signed else -16
    numbers = rng.integers(low, 17, shape)
    return (numbers / 4 if kind.is_float else numbers).astype(np.float32).astype(kind.dtype)


def task(case: Case) -> OperatorTask:
    """The call of a primitive that a case asks; `Unimplemented` with the reason for what none here does."""
    options = case.options
    if not options.get("dir", "FWD_D").upper().startswith("FWD"):
        raise Unimplemented(f"--dir={options['dir']}: no backward primitive here; what works: FWD_D, FWD_I")
    if options["dispatch"] != "fastest":
        raise Unimplemented(f"--dispatch={options['dispatch']}: a library's {case.driver} is not modelled")
    for name in options:
        if name.startswith("attr-") and name != "attr-scales" and options[name]:
            raise Unimplemented(f"--{name}={options[name]}: not modelled for --{case.driver}")
    for name in ("tag", "stag", "dtag", "stat_tag"):
        plain = "abcdefghijkl"[: len(_shape(case))]
        if options[name] not in ("any", "abx", "nchw", "axb", "nhwc", plain):
            raise Unimplemented(f"--{name}={options[name]}; what works: any, abx, axb, {plain}")
    return _BUILDERS[case.driver](case)


def _shape(case: Case) -> tuple[int, ...]:
    dims = case.dims
    if isinstance(dims, PoolDims):
        return int(case.options["mb"]) or dims.mb, dims.channels, dims.height.i, dims.width.i
    assert isinstance(dims, Tensors)
    first, *rest = dims.shapes[0]
    return int(case.options.get("mb", "0")) or first, *rest


def _two(text: str) -> tuple[str, str]:
    first, _, second = text.partition(":")
    return first, second or first


def _chosen(case: Case, allowed: Mapping[str, Any], default: str) -> str:
    name = _plain(case.options["alg"]) or default
    if name not in allowed:
        raise unknown_name(f"--alg of --{case.driver}", name, allowed)
    return name


def _softmax(case: Case) -> OperatorTask:
    name = _chosen(case, _SOFTMAX, "softmax")
    options = {"axis": int(case.options["axis"]), "logarithm": _SOFTMAX[name]}
    src = _two(case.options["sdt"])[0]
    return OperatorTask(case, "softmax", {"src": (_shape(case), src)}, case.options["ddt"], options)


def _eltwise(case: Case) -> OperatorTask:
    options = {"algorithm": _chosen(case, dict.fromkeys(ELTWISE), "relu")}
    numbers = {name: float(case.options[name]) for name in ("alpha", "beta")}
    src, dst = _two(case.options["dt"])
    return OperatorTask(case, "eltwise", {"src": (_shape(case), src)}, dst, options | numbers)


def _binary(case: Case) -> OperatorTask:
    assert isinstance(case.dims, Tensors)
    options = {"algorithm": _chosen(case, dict.fromkeys(BINARY), "add")}
    left, right = _two(case.options["sdt"])
    first, second = case.dims.shapes
    if len(first) != len(second) or any(b not in (1, a) for a, b in zip(first, second, strict=True)):
        raise Unimplemented(
            f"{first} and {second}: the second source broadcasts over the first, dimension by dimension"
        )
    sources = {"src0": (first, left), "src1": (second, right)}
    return OperatorTask(case, "binary", sources, case.options["ddt"], options)


def _layer_normalization(case: Case) -> OperatorTask:
    flags = case.options["flags"].upper()
    if set(flags) & set("GM"):
        raise Unimplemented(f"--flags={flags}: statistics given, or RMS; what works: C, H, CH")
    rows = tuple(name for letter, name in (("C", "scale"), ("H", "shift")) if letter in flags)
    src, dst = _two(case.options["dt"])
    return OperatorTask(case, "layer_normalization", {"src": (_shape(case), src)}, dst, {}, rows)


def _pooling(case: Case) -> OperatorTask:
    dims = case.dims
    assert isinstance(dims, PoolDims)
    height, width = dims.height, dims.width
    options = {
        "algorithm": _POOLING[_chosen(case, _POOLING, "max")],
        "kernel": (height.k, width.k),
        "strides": (height.s, width.s),
        "dilation": (height.d + 1, width.d + 1),
        "padding": (height.p, width.p, max(height.after, 0), max(width.after, 0)),
    }
    src, dst = _two(case.options["dt"])
    return OperatorTask(case, "pooling", {"src": (_shape(case), src)}, dst, options)


_BUILDERS: Mapping[str, Callable[[Case], OperatorTask]] = {
    "softmax": _softmax,
    "eltwise": _eltwise,
    "binary": _binary,
    "lnorm": _layer_normalization,
    "pool": _pooling,
}
