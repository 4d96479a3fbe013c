"""Calls of primitives beside products for a case of benchdnn: cost, and values compared with the definition."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

import simdnn
from isa_models import Unimplemented
from isa_models.formats import fmt
from isa_models.readings.arrays import Array
from simdnn.benchdnn import attributes, definitions
from simdnn.benchdnn.attributes import AskedPostOp, Parameter
from simdnn.benchdnn.layouts import Moved
from simdnn.networks.shadows import shadow
from simdnn.operators.estimate import estimate
from simdnn.operators.results import OperatorEstimate

if TYPE_CHECKING:
    from simdnn.benchdnn.options import Case

_LARGEST = 10**9  # bytes of operands beyond which values are not computed
#: what oneDNN multiplies by the source's scale behind the operator, not ahead of it
_SCALES_RESULTS = ("softmax", "layer_normalization", "group_normalization")
_MOST_STEPS = 3 * 10**8  # elements that windows read, beyond which values are not computed
#: post-operations that can make a small error any size
STEEP = ("exp", "log", "pow", "round", "sqrt", "ge", "gt", "le", "lt", "eq", "ne")
Make = Callable[[tuple[int, ...], str], Array]


@dataclass(frozen=True)
class OperatorTask:
    """One call: the primitive's name, its sources' shapes and types, its other arguments.

    `rows`: arrays beside the sources, by name; `listed`: sources are one argument; `last`: a library is asked about an
    image whose channels lie last.
    """

    case: Case
    primitive: str
    sources: Mapping[str, tuple[tuple[int, ...], str]]
    output: tuple[int, ...]
    dst: str
    options: Mapping[str, Any] = field(default_factory=dict)
    rows: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    listed: bool = False
    last: bool = False
    post_ops: tuple[AskedPostOp, ...] = ()
    moves: tuple[Moved, ...] = ()
    more: tuple[OperatorTask, ...] = ()  # passes beside it, whose cost counts
    remarks: tuple[str, ...] = ()
    steps: int = 1  # elements of the source that an output reads

    @property
    def _library(self) -> bool:
        """Whether a library's bits are asked for, whose programs scale results by themselves."""
        return bool(self.case.where["dispatch"] != "fastest")

    def cost(self) -> OperatorEstimate:
        """The cost of one call, without data and without copies."""
        types = ":".join([*(dtype for _, dtype in self.sources.values()), self.dst])
        shapes: dict[str, Any] = {name: shape for name, (shape, _) in self.sources.items()}
        if self.listed:
            shapes = {"sources": list(shapes.values())}
        rows: dict[str, Any] = {name: True for name in self.rows if name != "wei_scales"}
        rows |= {"tag": "axb"} if self.last else {}
        given = {**shapes, **rows, **self.options, **self._ending(_shadow)}
        found: OperatorEstimate = estimate(self.primitive, dt=types, **self.case.where, **given)
        return found

    def _ending(self, make: Make) -> dict[str, Any]:
        """The arguments of what stands behind the operator, whose arrays `make` draws."""
        found: dict[str, Any] = {}
        scales, points = self.parameters("attr-scales", make), self.parameters("attr-zero-points", make)
        post_ops = [self._post_op(op, make) for op in self.post_ops]
        if self.primitive in _SCALES_RESULTS and "src" in scales and not self._library:
            post_ops.insert(0, ("linear", scales.pop("src"), 0.0))
        found |= {"scales": scales} if scales else {}
        found |= {"zero_points": points} if points else {}
        found |= {"post_ops": post_ops} if post_ops else {}
        held = [op for op in self.post_ops if op.kind == "sum"]
        return found | ({"into": make(self.output, held[0].dtype or self.dst)} if held else {})

    def _post_op(self, op: AskedPostOp, make: Make) -> Any:
        if op.kind == "sum":
            return "sum", *op.numbers
        if op.kind == "select":
            return "select", make(self._along(op.mask), "f32"), make(self._along(op.condition), "s8")
        if op.kind in (*definitions.BINARY, "prelu"):
            return op.kind, make(self._along(op.mask), "f32")
        return (op.kind, *op.numbers) if op.numbers else op.kind

    def _along(self, mask: int | str) -> tuple[int, ...]:
        """The shape of an operand that varies along the dimensions of a mask."""
        bits = attributes.mask_bits(Parameter("dst", mask), "convolution", len(self.output), False)
        return tuple(size if bits >> i & 1 else 1 for i, size in enumerate(self.output))

    def parameters(self, option: str, make: Make) -> dict[str, Any]:
        """Scales (2.0 where the text names none) or zero points (1) by argument."""
        found: dict[str, Any] = {}
        usual = 2.0 if option == "attr-scales" else 1.0
        for parameter in attributes.parameters(option, self.case.options.get(option, "")):
            name, shape = self._parameter(option, parameter)
            value = usual if parameter.value is None else float(parameter.value)
            found[name] = (
                value if shape is None else abs(make(shape, "f32")) + 0.5 if usual == 2 else make(shape, "f32")
            )
            if option == "attr-zero-points":
                found[name] = int(value) if shape is None else make(shape, "s8").astype(np.int32)
        return found

    def _parameter(self, option: str, parameter: Parameter) -> tuple[str, tuple[int, ...] | None]:
        """The argument's name here, and the shape of its values; None where it is one."""
        names = {"src": "src0"} if self.primitive == "binary" else {}
        names |= {f"msrc{i}": f"src{i}" for i in range(len(self.sources))} if self.listed else {}
        name = names.get(parameter.argument, parameter.argument)
        common = parameter.mask in (0, "common", "host_scalar") and not parameter.groups
        known = (*self.sources, "dst", *(("wei",) if self.primitive == "deconvolution" else ()))
        if name in known and common:
            return name, None
        if self.primitive == "conversion" and name in known:
            return name, self._along(parameter.mask)  # of groups: one an element, which is as much work
        per_oc = name == "wei" and name in known and parameter.mask in ("per_oc", 1, 3) and option == "attr-scales"
        if self.primitive == "deconvolution" and option == "attr-zero-points" and parameter.mask in ("per_dim_1", 2):
            return name, (self.output[1] if name == "dst" else self.sources["src"][0][1],)
        if per_oc:
            return name, (self.output[1],)
        works = "common ones" if self.primitive != "deconvolution" else "common ones, those by channel"
        raise Unimplemented(
            f"--{option} of {parameter.argument} with mask {parameter.mask}; what works: {works} of {', '.join(known)}"
        )

    @property
    def nbytes(self) -> float:
        """Bytes of the sources and of the destination."""
        sizes = [math.prod(shape) * fmt(dtype).bytes for shape, dtype in self.sources.values()]
        return sum(sizes) + math.prod(self.output) * fmt(self.dst).bytes

    @property
    def too_big(self) -> str:
        """Why values are not computed; empty where they are."""
        steep = next((op.kind for op in self.post_ops if op.kind in STEEP), "")
        if steep:
            return f"values not checked: no bound on what {steep} makes of a rounding"
        size, steps = self.nbytes, math.prod(self.output) * self.steps
        if steps > _MOST_STEPS:
            return f"values not checked: {steps:.2g} elements of windows, at most {_MOST_STEPS:.0e} are"
        return f"values not checked: {size:.2g} bytes, at most {_LARGEST:.0e} are" if size > _LARGEST else ""

    def check(self) -> tuple[float, int]:
        """The largest error against the definition in float64, and how many outputs roundings do not explain."""
        rng = np.random.default_rng(len(self.case.text))
        make = partial(_drawn, rng)
        multiplies = self.primitive == "reduction" and self.options["algorithm"] == "mul"
        draw = partial(_factors, rng, self.steps) if multiplies else make
        sources = [draw(shape, dtype) for shape, dtype in self.sources.values()]
        if self.last:
            sources = [np.moveaxis(np.ascontiguousarray(np.moveaxis(x, 1, -1)), -1, 1) for x in sources]
        rows = {name: make(shape, self._type_of_row(name)) for name, shape in self.rows.items()}
        if "variance" in rows:
            rows["variance"] = abs(rows["variance"]) + np.float32(0.5)
        ending = self._ending(make)
        call: Callable[..., Any] = getattr(simdnn, self.primitive)
        operands = [sources] if self.listed else sources
        dst = {} if self.primitive in ("shuffle", "lrn") else {"dst": self.dst}
        found = call(*operands, **rows, **self.options, **self.case.where, **dst, **ending).output
        return definitions.compared(found, self._wanted(sources, rows, ending), self.dst)

    def _type_of_row(self, name: str) -> str:
        if name == "bias":
            return self.case.bias_type
        return "s8" if name == "condition" else "f32"

    def _wanted(self, sources: list[Array], rows: dict[str, Array], ending: Mapping[str, Any]) -> definitions.Floats:
        scales, points = dict(ending.get("scales", {})), ending.get("zero_points", {})
        behind = scales.pop("src", 1.0) if self._library and self.primitive in _SCALES_RESULTS else 1.0
        names = [f"src{i}" for i in range(len(sources))] if self.listed else list(self.sources)
        names = ["wei" if name == "weights" and self.primitive == "deconvolution" else name for name in names]
        wide = []
        for name, array in zip(names, sources, strict=True):
            factor = 1.0 if name == "wei" and np.ndim(scales.get(name, 1.0)) else scales.get(name, 1.0)
            wide.append((_wide(array) - self._spread(points.get(name, 0))) * np.asarray(factor, np.float32))
        if self.primitive == "deconvolution" and np.ndim(scales.get("wei", 1.0)):
            rows = {**rows, "wei_scales": scales["wei"]}
        ops = [
            op if isinstance(op, str) else tuple(_wide(x) if isinstance(x, np.ndarray) else x for x in op)
            for op in ending.get("post_ops", ())
        ]
        into = ending.get("into")
        exact = definitions.exact(self.primitive, wide, rows, self.options) * behind
        exact = definitions.after(exact, ops, None if into is None else _wide(into))
        return np.asarray(exact / scales.get("dst", 1.0) + self._spread(points.get("dst", 0)), np.float64)

    def _spread(self, point: Any) -> Any:
        """A zero point as it broadcasts over an image where it is one a channel."""
        row = self.primitive == "deconvolution" and np.ndim(point)
        return point.reshape(-1, *[1] * (len(self.output) - 2)) if row else point


def _wide(array: Array) -> definitions.Floats:
    return np.asarray(array.astype(np.float32).astype(np.float64))


def _shadow(shape: tuple[int, ...], dtype: str) -> Array:
    return shadow(shape, fmt(dtype).dtype)


def _factors(rng: np.random.Generator, count: int, shape: tuple[int, ...], dtype: str) -> Array:
    """Ones of either sign and some twos, so that no product of `count` of them leaves the numbers of f32."""
    kind = fmt(dtype)
    numbers = rng.choice([1, 2], shape, p=[1 - 4 / max(count, 8), 4 / max(count, 8)])
    signs = rng.choice([-1, 1] if kind.is_float or kind.signed else [1], shape)
    factors: Array = (numbers * signs).astype(np.float32).astype(kind.dtype)
    return factors


def _drawn(rng: np.random.Generator, shape: tuple[int, ...], dtype: str) -> Array:
    """Small numbers of both signs where the type has them, which 8 bits and more hold exactly."""
    kind = fmt(dtype)
    low = 0 if not kind.is_float and not kind.signed else -16
    numbers = rng.integers(low, 17, shape)
    coarse = kind.is_float and kind.bits <= 8
    return (numbers // 4 if coarse else numbers / 4 if kind.is_float else numbers).astype(np.float32).astype(kind.dtype)
