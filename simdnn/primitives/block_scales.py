"""Blocks that share a scale: simdnn.quantize_mx and quantize_nvfp4 make an array of narrow codes; values and cost."""

from __future__ import annotations

import functools
from dataclasses import dataclass, replace
from math import prod
from os import PathLike
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from isa_models import InvalidArgument, Machine, Unimplemented
from isa_models.block_formats import block_format
from isa_models.errors import shortly
from isa_models.formats import fmt, name_of
from isa_models.keywords import typed_parts
from isa_models.readings.arrays import Array
from isa_models.records.alike import Alike
from isa_models.records.display import shape_and_type
from simdnn.explanations.block_dot import DotSide, explain_dot
from simdnn.explanations.scaled_block import explain_block, explain_stored
from simdnn.explanations.steps import Explanation
from simdnn.kernels.common.scaled import ELEMENTS, RULES, Scaled, scaled
from simdnn.kernels.x86.code import unit_of
from simdnn.kernels.x86.scaled import scaled_quantization
from simdnn.primitives import arrays
from simdnn.primitives.attr import Attr, Quant, TwoLevelQuant
from simdnn.primitives.checks import gpu_of, integer, keywords, one_of, target_of, vector_cap
from simdnn.primitives.costs import priced_program
from simdnn.primitives.result import Priced
from simdnn.program.records import Program

if TYPE_CHECKING:
    from simdnn.timing.estimate import Cost

_GROUP = 16  # elements of a block of NVFP4


@typed_parts("simdnn.quantize_mx")
@dataclass(frozen=True, eq=False)
class Blocks(Alike, Priced):
    """The outcome of `quantize_mx`, `quantize_nvfp4` and `quantize_ggml`, and what `ggml_blocks` reads: blocks of
    `group` elements along `axis`, a scale each.

    `output`: codes in ml_dtypes' type (int8 for "s8"), in the array's shape. `scales`: ml_dtypes float8_e8m0fnu,
    float8_e4m3fn for NVFP4, f32 of ggml's, in that shape with `axis` divided by the group. `tensor_scale`: NVFP4's,
    f32; else None. `source` is the array itself, None where blocks were read. Of ggml's: `dtype` is its name of the
    block, `offsets` (like the scales) are added to codes * scales, None where there are none, and `stored` (…, bytes)
    has the blocks as its files lay them out, `axis` last. The cost is known where a machine was named.
    """

    output: Array
    scales: Array
    tensor_scale: np.float32 | None
    dtype: str
    group: int
    axis: int
    source: Array | None  # what was quantized
    rule: str  # how a block's scale was found; "nvfp4" for NVFP4, "ggml" for ggml's
    machine: Machine | None = None
    isa: str = ""  # the ISA cap whose instructions are used
    program: Program | None = None
    offsets: Array | None = None
    stored: Array | None = None

    @functools.cached_property
    def cost(self) -> Cost:
        """The clock's full answer on one core; raises `InvalidArgument` without a machine, `UnknownTiming`."""
        if self.program is None or self.machine is None:
            raise InvalidArgument("no machine was named, so there is no cost: pass machine=…")
        return priced_program(self.program, self.machine)

    def dequantize(self) -> NDArray[np.float32]:
        """The f32 values (the array's shape): code * scale, with NVFP4 code * f32(scale * tensor_scale), with ggml's
        code * scale + offset.
        """
        codes, scales = self.output.astype(np.float32), self.scales.astype(np.float32)
        with np.errstate(all="ignore"):
            if self.stored is not None:
                codes *= np.repeat(scales, self.group, self.axis)
                return codes if self.offsets is None else codes + np.repeat(self.offsets, self.group, self.axis)
            if not fmt(self.dtype).is_float:
                codes = codes / np.float32(64)
            if self.tensor_scale is not None:
                scales = (scales * self.tensor_scale).astype(np.float32)
            values: NDArray[np.float32] = (codes * np.repeat(scales, self.group, self.axis)).astype(np.float32)
        return values

    def explain(self, *at: int) -> Explanation:
        """How one block came about, that of `scales[at]`: amax, the rule, the scale, what became of each element.

        `str()` of the result is the text, `steps` the frame, `value` what the codes stand for, `exact` the source.
        Raises `InvalidArgument` for another number of indices, or one beyond the scales.

        >>> import numpy as np, simdnn
        >>> print(simdnn.quantize_mx(np.array([7.4, 1, -0.6, 0], np.float32), "f4_e2m1", group=4).explain(0))
        block 0 of Blocks(f4_e2m1 4, 4 along axis 0)
        2**floor(log2 amax) / 2**e_max: the OCP specification, oneDNN's dynamic_mx, ggml, torchao's default
        <BLANKLINE>
          amax     greatest magnitude = 7.4
          floor    2**(floor(log2 7.4) - 2) = 2**0 = 1
          f4_e2m1  [0]  7.4 / 1 = 7.4 -> 6, stands for 6   <- saturates
          f4_e2m1  [1]  1 / 1 = 1 -> 1, stands for 1
          f4_e2m1  [2]  -0.6 / 1 = -0.6 -> -0.5, stands for -0.5   <- rounds
          f4_e2m1  [3]  0 / 1 = 0 -> 0, stands for 0
        <BLANKLINE>
        of 4 elements 1 saturate, 1 are rounded
        """
        shape = self.scales.shape
        if len(at) != len(shape):
            raise InvalidArgument(f"explain{at}; {len(shape)} indices are needed, of a scale in {shape}")
        place = [integer("index", i, 0) for i in at]
        if any(i >= size for i, size in zip(place, shape, strict=True)):
            raise InvalidArgument(f"explain{at}; the scales have the shape {shape}")
        first = place[self.axis] * self.group
        inside = tuple(slice(first, first + self.group) if i == self.axis else at for i, at in enumerate(place))
        kept, scale = self.dequantize()[inside], self.scales.astype(np.float32)[tuple(place)]
        source = kept if self.source is None else arrays.native(self.source)[inside].astype(np.float32)
        title = f"block {', '.join(map(str, place))} of {self!r}"
        if self.stored is not None:
            offset = None if self.offsets is None else self.offsets[tuple(place)]
            form = block_format(self.dtype)
            return explain_stored(form, title, source, self.output[inside].astype(np.int8), kept, scale, offset)
        p = Scaled(1, 1, self.group, 1, "f32", self.dtype, self.rule)
        return explain_block(p, title, source, kept, scale, self.tensor_scale)

    def explain_dot(self, weights: Blocks, at: tuple[int, ...] = ()) -> Explanation:
        """How one element of these blocks, a source (M, K) or (K,), times `weights` (K, N) or (K,) comes about: codes,
        the numbers they stand for, scales, sums, and what rounds.

        `at`: (row, column); left out where there is one. Both share scales along K. Sums are those of a kernel that
        multiplies in f32 (`simdnn.matmul(…, dispatch="wdec:avx512_core")`), k ascending. Raises `InvalidArgument` for
        blocks that do not fit, `Unimplemented` for those of ggml's.

        >>> import numpy as np, simdnn
        >>> x, w = (simdnn.quantize_mx(np.array(v, np.float32), "f4_e2m1", group=2) for v in ([3, 1], [0.5, -6]))
        >>> print(x.explain_dot(w))
        element of Blocks(f4_e2m1 2, 2 along axis 0) by Blocks(f4_e2m1 2, 2 along axis 0)
        f32 sums of element * scale by element * scale, k ascending, one rounding each
        <BLANKLINE>
          fma    k=0  0x07 (6) * 0.5 x 0x01 (0.5) * 1 = 1.5; sum 1.5
          fma    k=1  0x04 (2) * 0.5 x 0x0f (-6) * 1 = -6; sum -4.5
          block  sum of k = 0 to 1 = -4.5
        <BLANKLINE>
        of 2 products 0 sums are rounded
        """
        if not isinstance(weights, Blocks):
            raise InvalidArgument(f"weights is a {type(weights).__name__}; blocks of simdnn.quantize_mx are needed")
        shapes = (
            f"source {self.output.shape} along axis {self.axis}, weights {weights.output.shape} along {weights.axis}"
        )
        for side, axis in ((self, self.output.ndim - 1), (weights, 0)):
            if side.stored is not None:
                raise Unimplemented(f"blocks of {side.dtype}, ggml's: those of quantize_mx and quantize_nvfp4 work")
            if side.output.ndim > 2 or side.axis % side.output.ndim != axis:
                raise InvalidArgument(f"{shapes}; (M, K) along K and (K, N) along K are needed")
        if self.output.shape[-1] != weights.output.shape[0]:
            raise InvalidArgument(f"{shapes}: K differs")
        rows, columns = np.atleast_2d(self.output).shape[0], weights.output.reshape(len(weights.output), -1).shape[1]
        place = tuple(integer("index", i, 0) for i in at) or (0, 0)
        if len(place) != 2 or not at and rows * columns > 1 or place[0] >= rows or place[1] >= columns:
            raise InvalidArgument(f"at={at!r}; a row below {rows} and a column below {columns} are needed")
        title = f"{'element ' + str(place) if at else 'element'} of {self!r} by {weights!r}"
        return explain_dot(title, self._side(place[0], 1), weights._side(place[1], 0))

    def _side(self, number: int, axis: int) -> DotSide:
        """One row (axis 1) or column of blocks, each element with its scale."""
        codes, scales = (
            v.reshape((1, -1) if axis else (-1, 1)) if v.ndim == 1 else v for v in (self.output, self.scales)
        )
        one = codes.take(number, 1 - axis), scales.take(number, 1 - axis).astype(np.float32).repeat(self.group)
        return DotSide(self.dtype, *one, self.group, self.tensor_scale)

    def attr(self, argument: str, **fields: Any) -> Attr:
        """The attribute of a product of these "wei" (K, N) or "src" (M, K): `simdnn.Attr(**fields)` with their scales.

        "wei" may be a convolution's weights (OC, IC/G, KH, KW) in blocks along their input channels, axis 1.

        A tensor scale, or mxint8's 2**-6, becomes the other side's common f32 scale, or multiplies what stands there; a
        common scale that stands here already, as the other side's blocks leave it, multiplies the blocks' scales.
        Raises `InvalidArgument` where blocks do not lie along K, and for other scales that stand here.

        >>> import numpy as np, simdnn
        >>> w = simdnn.quantize_nvfp4(np.ones((32, 2), np.float32), axis=0)
        >>> {key: (q.dtype, q.groups) for key, q in w.attr("wei").scales.items()}
        {'wei': ('f8_e4m3', (16, 1)), 'src': ('f32', None)}
        """
        one_of("argument", argument, ("wei", "src"))
        filters = argument == "wei" and self.output.ndim in (4, 5)
        along = 1 if filters else {"wei": 0, "src": 1}[argument]
        if self.output.ndim != 2 and not filters or self.axis != along:
            shape = f"{self.output.shape} in blocks along axis {self.axis}"
            raise InvalidArgument(f"codes {shape}; {argument} is a matrix with blocks along K: axis={along}")
        if self.offsets is not None:
            raise InvalidArgument(
                f"{self.dtype} has minima, which no attribute holds; matmul takes the blocks themselves"
            )
        groups = (self.group, 1) if argument == "wei" and not filters else (1, self.group)
        scales = dict(fields.pop("scales", {}))
        tensor = _common(argument, scales[argument]) if argument in scales else None
        kind = name_of(self.scales.dtype)
        blocks = Quant(self.scales, mask=3, groups=groups, dtype=kind)
        scales[argument] = blocks if tensor is None else TwoLevelQuant.of(blocks, tensor)
        common = self.tensor_scale
        if self.stored is None and not fmt(self.dtype).is_float:
            common = np.float32(2.0**-6)
        if common is not None:
            other = "src" if argument == "wei" else "wei"
            scales[other] = _times(scales[other], common) if other in scales else common
        return Attr(scales=scales, **fields)

    def _summary(self) -> dict[str, Any]:
        arrays = {"codes": self.output, "scales": self.scales, "offsets": self.offsets}
        parts = {name: shape_and_type(array) for name, array in arrays.items() if array is not None}
        tensor = {} if self.tensor_scale is None else {"tensor_scale": float(self.tensor_scale)}
        blocks = {"type": self.dtype, "blocks": f"{self.group} along axis {self.axis}", "rule": self.rule}
        cost = {"machine": self.machine.name, "isa": self.isa, **self._cost_summary()} if self.machine else {}
        return blocks | parts | tensor | cost

    def __repr__(self) -> str:
        shape = "x".join(map(str, self.output.shape))
        kind = "" if self.tensor_scale is None else f", tensor scale {self.tensor_scale:.4g}"
        where = f" on {self.machine.name}" if self.machine else ""
        return f"Blocks({self.dtype} {shape}, {self.group} along axis {self.axis}{kind}{where})"


def _times(given: Any, factor: np.float32) -> Quant:
    """Scales times a factor, in f32: those of blocks as their tensor's."""
    quant = given if isinstance(given, Quant) else Quant(given)
    if quant.groups is not None:
        own = np.float32(1 if quant.tensor_scale is None else quant.tensor_scale)
        return TwoLevelQuant.of(quant, float(own * factor))
    if quant.values is None:
        return quant
    return replace(quant, values=(quant.values.astype(np.float32) * factor).astype(np.float32), dtype="f32")


def _common(argument: str, given: Any) -> float:
    """The one scale that stands where blocks are to go."""
    quant = given if isinstance(given, Quant) else Quant(given)
    if quant.values is None or quant.values.size != 1 or quant.groups is not None:
        raise InvalidArgument(
            f"scales[{argument!r}]={quant}; blocks of their own go there, beside a common scale alone"
        )
    return float(quant.values.reshape(-1)[0])


@keywords
def quantize_mx(
    array: Array,
    dtype: str,
    *,
    group: int = 32,
    rule: str = "floor",
    axis: int = -1,
    machine: str | PathLike[str] | Machine | None = None,
    isa: str | None = None,
) -> Blocks:
    """Quantize f32, f16 or bf16 to MX: `dtype` codes, and a power of two (e8m0) for each `group` along `axis`.

    `dtype`: "f8_e4m3" or "f8_e5m2" (mxfp8), "f6_e2m3" or "f6_e3m2" (mxfp6), "f4_e2m1" (mxfp4), "s8" (mxint8: 64ths
    from -127 to 127). With amax the greatest magnitude of a block and e_max the exponent of the type's greatest value,
    `rule` finds the scale 2**e, e from -127 to 127:

    - "floor": e = floor(log2 amax) - e_max: OCP's specification, oneDNN, ggml, torchao's default. Clips up to a quarter
      off the greatest of a block (mxfp4).
    - "ceil": e = ceil(log2 amax) - e_max: clips nothing, and may waste a bit.
    - "even": floor, of amax rounded to the element's mantissa bits, halves up: torchao's EVEN.
    - "rceil": the least e with amax / greatest <= 2**e, the quotient in f32: NVIDIA's cuBLAS, torchao's RCEIL.

    Elements are x * 2**-e rounded once, to nearest even, saturating. A block of zeros has the least scale; one with NaN
    or infinity the scale NaN, and codes 0. On a `machine` (a CPU) the values come from a program there, and the result
    has its cost; codes are written one a byte.

    Raises `InvalidArgument` for types that do not fit, and a group that does not divide the axis; `Unimplemented` on
    GPUs and below AVX2.

    >>> import numpy as np, simdnn
    >>> x = np.array([[1, -7, 0.3, 0]], np.float32)
    >>> for rule in ("floor", "ceil"):
    ...     q = simdnn.quantize_mx(x, "f4_e2m1", group=4, rule=rule)
    ...     print(q.output.astype(float).tolist(), q.scales.astype(float).tolist(), q.dequantize().tolist())
    [[1.0, -6.0, 0.5, 0.0]] [[1.0]] [[1.0, -6.0, 0.5, 0.0]]
    [[0.5, -4.0, 0.0, 0.0]] [[2.0]] [[1.0, -8.0, 0.0, 0.0]]
    """
    one_of("dtype", dtype, ELEMENTS)
    one_of("rule", rule, RULES)
    problem, along = _problem(array, dtype, integer("group", group), rule, axis)
    return _quantized(problem, array, along, None, machine, isa)


@keywords
def quantize_nvfp4(
    array: Array,
    *,
    tensor_scale: float | None = None,
    axis: int = -1,
    machine: str | PathLike[str] | Machine | None = None,
    isa: str | None = None,
) -> Blocks:
    """Quantize f32, f16 or bf16 to NVFP4: f4_e2m1 codes, an f8_e4m3 scale for each 16 along `axis`, one f32 for all.

    In f32, each step rounded to nearest even: t = amax of the array / (448 * 6), or `tensor_scale` (1.0: one level
    alone); scale = e4m3(amax of 16 / 6 / t), at most 448; element = x / (scale * t), rounded, at most 6. Where a scale
    rounds to 0 its 16 codes are 0. On a `machine` (a CPU) the values come from a program there, and the result has its
    cost; codes are written one a byte.

    Raises `InvalidArgument` for NaN and infinity, and where 16 does not divide the axis; `Unimplemented` on GPUs and
    below AVX2.

    >>> import numpy as np, simdnn
    >>> q = simdnn.quantize_nvfp4(np.arange(16, dtype=np.float32))
    >>> q.output.astype(float)[[1, 5, 15]].tolist(), float(q.scales[0]), round(float(q.tensor_scale), 6)
    ([0.5, 2.0, 6.0], 448.0, 0.00558)
    """
    problem, along = _problem(array, "f4_e2m1", _GROUP, "nvfp4", axis)
    if not np.isfinite(array.astype(np.float32)).all():
        raise InvalidArgument("the array has NaN or infinity; finite values are needed to find scales")
    given = None if tensor_scale is None else _positive(tensor_scale)
    return _quantized(replace(problem, find=given is None), array, along, given, machine, isa)


def _positive(value: Any) -> np.float32:
    known = isinstance(value, (int, float, np.integer, np.floating)) and not isinstance(value, bool)
    if not (known and 0 < value <= np.finfo(np.float32).max):
        raise InvalidArgument(f"tensor_scale={shortly(value)}; a positive f32 is needed, or None")
    return np.float32(value)


def _problem(array: Array, dtype: str, group: int, rule: str, axis: int) -> tuple[Scaled, int]:
    """The arguments checked; the axis counted from the first."""
    source = arrays.type_of("array", array)
    if source not in arrays.FLOATS:
        raise InvalidArgument(f"array of {source}; floats are quantized: {', '.join(arrays.FLOATS)}")
    along = integer("axis", axis, -array.ndim)
    if not array.ndim or not array.size or along >= array.ndim:
        raise InvalidArgument(f"axis={axis} of an array of shape {array.shape}; an axis with elements is needed")
    along %= array.ndim
    size = array.shape[along]
    if size % group:
        nearest = max(n for n in range(1, min(group, size) + 1) if size % n == 0)
        filled = f"or fill it up with zeros to {-(-size // group) * group}"
        choice = f"group={nearest} does, {filled}" if rule != "nvfp4" else f"NVFP4 has no other, {filled}"
        raise InvalidArgument(f"blocks of {group} do not divide the {size} elements of axis {along}; {choice}")
    outer, inner = prod(array.shape[:along]), prod(array.shape[along + 1 :])
    return Scaled(outer, size // group, group, inner, source, dtype, rule), along


def _quantized(
    p: Scaled, array: Array, axis: int, given: np.float32 | None, machine: object, isa: str | None
) -> Blocks:
    quantized = _plain(p, array, given) if machine is None else _on_cpu(p, array, given, machine, isa)
    if machine is None and isa is not None:
        raise InvalidArgument(f"isa={isa!r} without a machine; name one, e.g. machine='spr'")
    codes, scales, tensor_scale, *where = quantized
    few = [size // p.group if i == axis else size for i, size in enumerate(array.shape)]
    kind = fmt("f8_e4m3" if p.rule == "nvfp4" else "e8m0").dtype
    output = codes.view(fmt(p.dst).dtype).reshape(array.shape)
    shared = scales.view(kind).reshape(few)
    return Blocks(output, shared, tensor_scale, p.dst, p.group, axis, array, p.rule, *where)


def _plain(p: Scaled, array: Array, given: np.float32 | None) -> tuple[Any, ...]:
    """Codes, scales and the tensor's scale by the formulas."""
    values = arrays.native(array).astype(np.float32).reshape(p.outer, p.blocks, p.group, p.inner)
    return scaled(p, values, given)


def _on_cpu(p: Scaled, array: Array, given: np.float32 | None, machine: Any, isa: str | None) -> tuple[Any, ...]:
    """Codes, scales, the tensor's scale, the machine, its unit and the program that found them."""
    if gpu_of(machine) is not None:
        raise Unimplemented(f"blocks on {machine!r:.40}: no kernel here for GPUs; CPUs work, and machine=None")
    where, caps = target_of(machine, isa)
    cap = vector_cap(caps)
    if not cap:
        raise Unimplemented(f"blocks on {where.name}: the kernel needs avx2")
    program = scaled_quantization(p, unit_of(cap))
    from simdnn import numerics  # brings LLVM

    inputs = {"src": arrays.native(array).reshape(-1)}
    if given is not None:
        inputs["tensor_scale"] = np.array([given], np.float32)
    with np.errstate(all="ignore"):
        outputs = numerics.run(program, inputs)
    tensor_scale = None if p.rule != "nvfp4" else given if given is not None else np.float32(outputs["tensor_scale"][0])
    return outputs["codes"], outputs["scales"], tensor_scale, where, cap, program
