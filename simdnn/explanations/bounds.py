"""How far a kernel's outputs may be from exact arithmetic: bounds found from its Program alone, beside the true error.

Exact means: the user's own numbers (before they are converted, halved or blocked), the same sums and epilogue without a
rounding, a saturation or a wrap. A bound is the program's, not a formula's: the program is run in the reading that
bounds errors (`isa_models.readings.bounds`), so each instruction counts with the roundings that its semantics has.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from isa_models import Unimplemented
from isa_models.formats import fmt, name_of, numbers
from isa_models.keywords import typed_parts
from isa_models.readings.arrays import Array
from isa_models.readings.shades import COUNTS, DRIFT, EXACT, HELD, KINDS, SIZE, SPREAD, WORST, beside_exact, count
from isa_models.records.alike import Alike
from isa_models.records.display import InNotebooks, shape_and_type
from isa_models.roundoff import roundoff
from simdnn.explanations.departures import Departures
from simdnn.kernels.common.epilogue import Parameters
from simdnn.kernels.common.kernel import Kernel
from simdnn.kernels.common.origin import Origin, origins_of
from simdnn.kernels.common.problems import MatmulProblem
from simdnn.late import frames, pd

Shades = dict[str, tuple[Array, str]]
#: bounds are sums and products of less than 2**30 numbers, none negative, which f64 rounds
_OWN = 1 + 2.0**-20
CERTAINTY = 0.99
#: Azuma's inequality: errors whose mean is 0, whatever came before, add up to less than this times the root of the sum
#: of their bounds' squares, with that certainty. For n equal ones it is lambda sqrt(n) u (Higham and Mary, "A New
#: Approach to Probabilistic Rounding Error Analysis", SIAM Journal on Scientific Computing 41(5), 2019); with the
#: partial sums' own sizes see Ipsen and Zhou, "Probabilistic Error Analysis for Inner Products", SIAM Journal on Matrix
#: Analysis and Applications 41(4), 2020
_DEVIATIONS = float(np.sqrt(2 * np.log(2 / (1 - CERTAINTY))))


@typed_parts("a result's error_bound")
@dataclass(frozen=True, eq=False, repr=False)
class ErrorBound(Alike, InNotebooks):
    """Bounds of |output - exact| for each output element, and what it really is; arrays are f64 of the output's shape.

    Bounds take the operands' magnitudes, and no luck with signs: what cancels out counts in full.
    """

    worst: Array  # never exceeded; inf where a step may overflow, or where an operand is not finite
    probable: Array  # exceeded with a chance of at most 1 - `certainty`, if roundings to nearest err at random
    error: Array  # |output - exact|, where f64 can tell (to 2**-50 of `magnitude`)
    magnitude: Array  # the same sums of the magnitudes: |source| times |weights|, and so on
    rounded: Array  # int64, (kinds, …): roundings of each of `kinds` on the longest path from an operand
    certainty: float = CERTAINTY

    @property
    def kinds(self) -> tuple[str, ...]:
        """The formats that roundings are counted by; "other" is all else: aligned sums, integers, bits cut off."""
        return tuple(name for name, _ in KINDS)

    def to_frame(self) -> pd.DataFrame:
        """A frame of one row: worst, probable, error (the greatest of each), tightness (the greatest error over its
        worst bound), worst_relative (the greatest bound over its magnitude), certainty, and for each of `kinds` the
        roundings on the longest path."""
        with np.errstate(all="ignore"):
            share, relative = self.error / self.worst, self.worst / self.magnitude
        row = {
            "worst": _most(self.worst),
            "probable": _most(self.probable),
            "error": _most(self.error),
            "tightness": _most(np.nan_to_num(share, nan=0.0)),
            "worst_relative": _most(np.nan_to_num(relative, nan=0.0, posinf=np.inf)),
            "certainty": self.certainty,
        }
        counts = {
            f"roundings_{name.replace(', ', '_')}": int(_most(n))
            for name, n in zip(self.kinds, self.rounded, strict=True)
        }
        return frames.shown(pd.DataFrame([row | counts]))

    def _summary(self) -> dict[str, Any]:
        """The frame's row, without roundings that there are none of."""
        (row,) = self.to_frame().to_dict("records")
        kept = {str(name): value for name, value in row.items() if value or "roundings" not in str(name)}
        return {"outputs": shape_and_type(self.error), **kept}

    def __repr__(self) -> str:
        row = self.to_frame().iloc[0]
        paths = ", ".join(
            f"{int(_most(n))} {name}" for name, n in zip(self.kinds, self.rounded, strict=True) if n.any()
        )
        figures = f"worst {row['worst']:.3g}, probable {row['probable']:.3g}, true error {row['error']:.3g}"
        return f"ErrorBound({figures}; roundings: {paths or 'none'})"


def _most(values: Array) -> float:
    return float(np.max(values, initial=0))


@dataclass(frozen=True, eq=False)
class Bounded:
    """A kernel that ran, with its operands: what `Result.error_bound` asks."""

    departed: Departures

    def __call__(self) -> ErrorBound:
        """The bounds of all outputs; it runs the program in NumPy."""
        d = self.departed
        if isinstance(d.problem, MatmulProblem) and d.problem.blocks:
            raise Unimplemented(
                f"{d.kernel.name} quantizes its source by blocks of {d.problem.blocks}, whose integers bounds cannot "
                "follow; what works: r.explain, and r.output against src @ weights.dequantize()"
            )
        shade = _FedKernel(d.kernel, d.src, d.weights, d.parameters).outputs()
        if d.clips and (limited := self._limited(shade[HELD])).any():
            shade = np.where(limited, self._unclipped(shade[HELD]), shade)
        with np.errstate(all="ignore"):
            error = np.abs(shade[HELD] - shade[EXACT])
            worst = np.nan_to_num(shade[WORST], nan=np.inf, posinf=np.inf) * _OWN
            likely = (shade[DRIFT] + _DEVIATIONS * np.sqrt(shade[SPREAD])) * _OWN
        probable = np.minimum(np.nan_to_num(likely, nan=np.inf, posinf=np.inf), worst)
        return ErrorBound(worst, probable, error, shade[SIZE], shade[COUNTS].astype(np.int64))

    def _limited(self, output: Array) -> Array:
        """Outputs that the destination's range may have limited."""
        form = fmt(self.departed.problem.epilogue.dst)
        return ~np.isfinite(output) if form.is_float else (output <= form.low) | (output >= form.high)

    def _unclipped(self, output: Array) -> Array:
        """Outputs against results that no destination's range limits: those before the destination, in f32."""
        d, p = self.departed, self.departed.parameters
        if p.previous is not None:
            p = replace(p, previous=p.previous.astype(np.float32))
        kernel = d.rebuild(replace(d.problem.epilogue, dst="f32"))
        shade = _FedKernel(kernel, d.src, d.weights, p).outputs()
        away = np.abs(output - shade[HELD])
        shade[WORST] += away
        shade[DRIFT] += away
        shade[HELD] = output
        return shade


@dataclass(frozen=True, eq=False)
class _FedKernel:
    """A kernel with its operands."""

    kernel: Kernel
    src: Array
    weights: Array
    parameters: Parameters

    def outputs(self) -> Array:
        """The bounds beside each output: (FIELDS, …) of the user's shape."""
        from simdnn.numerics.bounded import bounded  # its package brings LLVM

        with np.errstate(all="ignore"):
            inputs = self.kernel.prepare(self.src, self.weights, self.parameters)
            shades = self._shades(inputs)
        found = bounded(self.kernel.program, inputs, shades)["dst"]
        at = self.kernel.finish({"dst": np.arange(self.kernel.program.tensor["dst"].size)})
        shade: Array = found[:, at]
        return shade

    # -- what was done ahead of the program ---------------------------------------------------------------------------
    def _shades(self, inputs: dict[str, Array]) -> Shades:
        """The bounds beside inputs that are not the user's numbers (converted weights, halved ones, scales), and of
        which type these are."""
        origins = origins_of(self.kernel, self.src, self.weights, self.parameters)
        found = {}
        for tensor in self.kernel.program.tensors:
            whole = not fmt(tensor.dtype).is_float
            if tensor.kind != "input" or (whole and tensor.name in self.kernel.weights and self._by_code):
                continue
            array, origin = inputs[tensor.name].reshape(-1), origins.get(tensor.name)
            if origin is not None and origin.index.size == array.view(fmt(origin.dtype).dtype).size:
                found[tensor.name] = self._of_operand(array, origin)
            elif tensor.name in self.kernel.weights and fmt(tensor.dtype).is_float:
                found[tensor.name] = _converted(array, tensor.dtype), tensor.dtype
            elif tensor.name in self.kernel.weights and fmt(name_of(self.weights.dtype)).is_float:
                raise Unimplemented(f"{self.kernel.name} packs weights in a way that bounds cannot follow")
            elif tensor.dtype == "f32":
                found[tensor.name] = self._of_parameter(array), tensor.dtype
        if self.kernel.halves:
            found |= self._halved_compensation(inputs, origins)
        return {n: (shade, dtype) for n, (shade, dtype) in found.items() if shade[WORST].any() or fmt(dtype).is_float}

    @property
    def _by_code(self) -> bool:
        """Whether weights are floats of a byte or less, whose codes, however packed, are the user's very numbers."""
        form = fmt(name_of(self.weights.dtype))
        return form.is_float and form.bits <= 8

    def _of_operand(self, array: Array, origin: Origin) -> tuple[Array, str]:
        """Elements of the source or the weights as prepared, against the user's."""
        user = numbers(self.weights if origin.operand == "weights" else self.src).reshape(-1)
        given, dtype = user.astype(np.float64), origin.dtype
        array = array.view(fmt(dtype).dtype)  # words may pack them
        shade = _off(array, np.where(origin.index < 0, array.astype(np.float64), given[origin.index] * origin.factor))
        step = roundoff(dtype) if fmt(dtype).is_float and dtype != "f32" else None
        if step is not None:  # rounded to nearest
            shade[SPREAD] = np.where(shade[WORST] > 0, step.unit * shade[SIZE] + step.least, 0) ** 2
            shade[DRIFT] = 0
        count(shade, step.digits if step else 0, shade[WORST] > 0)
        return shade, dtype

    def _halved_compensation(self, inputs: dict[str, Array], origins: dict[str, Origin]) -> Shades:
        """The bounds of what compensates for shifted sources: a sum of halved weights, and linear in them."""
        if all(origin.factor == 1 for origin in origins.values()):
            raise Unimplemented(f"{self.kernel.name} halves weights that it does not hold one by one")
        if "comp" not in inputs:
            return {}
        wide = self.weights.astype(np.int16)
        parts = [
            self.kernel.prepare(self.src, (2 * half).astype(np.int8), self.parameters)["comp"].astype(np.float64)
            for half in (wide // 2, wide % 2)
        ]
        return {"comp": (_off(inputs["comp"].reshape(-1), (parts[0] + parts[1] / 2).reshape(-1)), "s32")}

    def _of_parameter(self, array: Array) -> Array:
        """Scales, a bias: exact where they are the user's numbers or integers; those made of them are rounded once."""
        p, numbers = self.parameters, array.astype(np.float64)
        divisor = float(np.float32(p.dst_scale))
        given: tuple[object, ...] = (
            p.src_scale,
            p.wei_scale,
            p.src_group_scale,
            p.bias,
            p.previous,
            *p.operands,
            divisor,
        )
        known = np.concatenate([np.ravel(np.asarray(v, np.float64)) for v in given if v is not None])
        plain = np.isin(numbers, known) | (numbers == np.rint(numbers))
        scales = np.ravel(np.asarray(1.0 if p.wei_scale is None else p.wei_scale, np.float64))
        made = np.append(scales * p.src_scale, 1 / divisor)
        rounded = made.astype(np.float32).astype(np.float64)
        order = np.argsort(rounded)
        at = order[np.minimum(np.searchsorted(rounded, numbers, sorter=order), len(order) - 1)]
        found = (rounded[at] == numbers) & ~plain
        shade = _off(array, np.where(found, made[at], numbers))
        lost = np.where(plain | found, 0.0, roundoff("f32").unit * np.abs(numbers))
        shade[WORST] += lost
        shade[DRIFT] += lost
        return shade


def _converted(array: Array, dtype: str) -> Array:
    """Numbers that were rounded to a format ahead of the program, and nobody knows from which."""
    step, shade = roundoff(dtype), beside_exact(array)
    shade[WORST] = shade[DRIFT] = step.unit * 1.01 * shade[SIZE] + step.least / 2
    shade[SIZE] += shade[WORST]
    return shade


def _off(array: Array, meant: Array) -> Array:
    """Beside numbers that stand for others."""
    shade = beside_exact(array)
    shade[EXACT], shade[SIZE] = meant, np.maximum(shade[SIZE], np.abs(meant))
    with np.errstate(invalid="ignore"):
        shade[WORST] = shade[DRIFT] = np.abs(shade[HELD] - meant)
    return shade
