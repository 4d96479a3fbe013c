"""Can an int8 kernel saturate? Proof or witness for each output channel, by the interval reading of its instruction."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from os import PathLike
from typing import Any

import numpy as np

from isa_models import InvalidArgument, Machine, SimdnnError, Unimplemented, instruction
from isa_models.formats import fmt
from isa_models.readings.arrays import Array, held
from isa_models.readings.intervals import IntervalValue, Watch
from simdnn.exactness import pairs as _pairs
from simdnn.exactness.pairs import SHIFT, Pairs
from simdnn.explanations.departures import limit_of
from simdnn.kernels import kernels
from simdnn.kernels.common.batch import Batch
from simdnn.kernels.common.edges import taps_inside
from simdnn.kernels.common.epilogue import Epilogue
from simdnn.kernels.common.kernel import Kernel
from simdnn.kernels.common.problems import ConvProblem, MatmulProblem, Problem
from simdnn.late import frames, pd
from simdnn.primitives import Attr, arrays, estimate
from simdnn.primitives.checks import integer, keywords, one_of, pair
from simdnn.primitives.costs import built
from simdnn.primitives.result import Estimate

_S16 = fmt("s16")
_MOST_PLACED = 64  # inputs that a witness is tried to share, before it gets one of its own


@keywords
def ranges(
    primitive: str,
    *,
    weights: Array,
    src_range: tuple[int, int] | None = None,
    calibration: Array | None = None,
    machine: str | PathLike[str] | Machine,
    isa: str | None = None,
    attr: Attr | None = None,
    dispatch: str = "fastest",
    **shape: Any,
) -> pd.DataFrame:
    """Whether pairs of products can saturate on the way to each output channel, over all sources within `src_range`.

    `primitive`: "matmul" with weights (K, N) or "convolution" with (OC, IC/G, KH, KW), s8. `src_range`: least and
    greatest source value, as stored (default: that of `calibration`, else (0, 255)); negative ones make an s8 source.
    `shape`: m of a matmul; ih, iw, strides, padding, dilation, groups of a convolution, as in `simdnn.estimate` (an
    image just large enough for five outputs each way where it is not given).

    A row per output channel: channel, safe (proven for every input), pairs, unsafe_pairs, max_abs_pair (the greatest
    magnitude that the sum of a pair can have before it saturates), at (the positions of that pair: k; or (ic, kh, kw)),
    witness (an input that makes the channel saturate: (K,) or (IC, IH, IW); None where safe), witness_pairs (how many
    pairs saturated when it was run), safe_7bit (with weights of half the range). With `calibration`, sources (M, K) or
    (N, IC, IH, IW) as stored, also probability (share of the channel's outputs with a saturated pair).

    `frame.attrs`: implementation, reason, src_range, safe_share, safe_share_7bit, largest_weight (magnitude up to which
    any weights are safe), odd_weights (that halving rounds), probability. Raises `InvalidArgument` for misfits.

    >>> import numpy as np, simdnn
    >>> weights = np.array([[127, 60], [127, 60]], np.int8)  # 2 * 255 * 127 exceeds 32767, 2 * 255 * 60 does not
    >>> fast = simdnn.Attr(exact_int8=False)  # the exact kernel, which costs no more here, saturates nowhere
    >>> frame = simdnn.ranges("matmul", weights=weights, machine="skx", attr=fast)
    >>> frame[["safe", "max_abs_pair", "witness"]].values.tolist()
    [[False, 64770, array([255, 255], dtype=uint8)], [True, 30600, None]]
    """
    one_of("primitive", primitive, ("matmul", "convolution"))
    weights = _weights(primitive, weights)
    src, (low, high) = _source(src_range, calibration)
    found = _estimate(primitive, weights, src, calibration, dict(shape), machine, isa, attr, dispatch)
    if not isinstance(found.machine, Machine):
        raise Unimplemented(
            f"machine {found.machine.name!r} is a GPU, whose integer kernels add no pairs in 16 bits; "
            "ranges are judged for CPUs, e.g. machine='skx'"
        )
    channels = found.problem.oc if isinstance(found.problem, ConvProblem) else weights.shape[1]
    frame = pd.DataFrame({"channel": np.arange(channels)})
    about: dict[str, Any] = {"implementation": found.implementation, "src_range": (low, high)}
    if not found.kernel.saturates:
        return _always_safe(frame, about, found, weights, calibration is not None)
    if len(found.kernel.saturating) > 1:
        raise Unimplemented(
            f"{found.implementation} keeps sums of pairs in 16 bits, too, and ranges are judged of pairs alone; what "
            "works: r.saturation and r.departures, which count both in a run"
        )
    shift = SHIFT if src == "s8" else 0
    pairs = _pairs.pairs_of(found.kernel, found.problem, weights)
    _judge(frame, pairs, low + shift, high + shift)
    _witnesses(frame, pairs, found, weights, (low, high), shift)
    about["largest_weight"] = largest_weight(low + shift, high + shift)
    about["reason"] = f"{_pairs.INSTRUCTION} adds pairs of products in 16 bits"
    if calibration is not None:
        _probability(frame, about, _pairs.count(found, arrays.native(calibration), weights))
    return _finished(frame, about)


def largest_weight(low: int, high: int) -> int:
    """The magnitude up to which any two weights are safe, for u8 sources from `low` to `high`.

    >>> largest_weight(0, 255), largest_weight(0, 127)
    (64, 128)
    """

    def safe(limit: int) -> bool:
        watch = Watch()
        source = IntervalValue.between("u8", [low, low], [high, high], watch)
        most = min(limit, fmt("s8").high)
        instruction(_pairs.INSTRUCTION).apply(source, IntervalValue.between("s8", [-limit] * 2, [most] * 2, watch))
        return not watch.clips[0].possible.any()

    return max(limit for limit in range(129) if safe(limit))


# -- one kernel, in a word ---------------------------------------------------------------------------------------------
@dataclass(frozen=True, eq=False)
class Verdict:
    """Whether a kernel's sums of integers can saturate, and whether they can leave the exact ones at all, for some
    source of its type: True where some does, False where none can, None where it cannot be told. `witness`: a source,
    one row or image, that saturates `pairs` of products when it is run.
    """

    saturates: bool | None
    inexact: bool | None
    why: str = ""
    witness: Array | None = None
    pairs: int = 0


def verdict(product: Estimate, weights: Array | None) -> Verdict:
    """The verdict on the kernel of an integer product with these weights; None: they are not known before it runs."""
    kernel = product.kernel
    if weights is not None and isinstance(product.problem, MatmulProblem) and weights.ndim > 2:
        return _of_batch(product, product.problem, weights)
    if kernel.saturates:
        if weights is None:
            return Verdict(None, None, "pairs add up in 16 bits; whether they fit hangs on the weights")
        if (met := _worst(product, weights)) is not None:
            return met
        if len(kernel.saturating) > 1 and _largest_sum(product.problem, weights) > _S16.high:
            return Verdict(None, None, "sums of pairs stay in 16 bits; whether they fit hangs on the source")
    if kernel.halves:
        odd = None if weights is None else int((weights % 2 != 0).sum())
        if odd != 0:
            lost = "odd ones" if weights is None else f"{odd} of {weights.size} are odd and"
            return Verdict(False, None if odd is None else True, f"weights are halved: {lost} lose their last bit")
    if _largest_sum(product.problem, weights) >= limit_of(kernel):
        return Verdict(False, None, f"sums may reach {limit_of(kernel):,}, from where they round or wrap")
    return Verdict(False, False)


def _of_batch(product: Estimate, problem: MatmulProblem, weights: Array) -> Verdict:
    """The worst of the verdicts on each matrix of a batch of products."""
    alone = _of(product, replace(problem, batch=Batch()))
    verdicts = [verdict(alone, matrix) for matrix in weights.reshape(-1, *weights.shape[-2:])]
    return max(verdicts, key=lambda one: (one.saturates is True, one.inexact is not False, one.pairs))


def _worst(product: Estimate, weights: Array) -> Verdict | None:
    """The pair that saturates most, shown by a source that was run; None where none can."""
    plain = _bare(product)
    pairs = _pairs.pairs_of(plain.kernel, plain.problem, weights)
    least, most = pairs.sums(0, 255)  # as the kernel reads them, u8 or s8 shifted to u8
    size = _size(least, most)
    unsafe = (least < _S16.low) | (most > _S16.high)
    if not unsafe.any():
        return None
    i, form = int(np.where(unsafe, size, 0).argmax()), fmt(product.problem.src)
    asked = _numbers(plain.problem, weights, pairs, i, (form.low, form.high), most[i] > _S16.high)
    src = _pairs.inputs_for(plain.problem, [asked], 0)
    channel = int(pairs.channel[i])
    met = int(_pairs.count(plain, src, weights).reshape(1, -1)[0].sum())
    if not met:
        raise _untrusted(product)
    first, second = pairs.weight[i].tolist()
    why = f"channel {channel}: weights {first} and {second} beside each other exceed 16 bits"
    channels = np.unique(pairs.channel[unsafe]).size
    return Verdict(True, True, f"{channels} output channels can saturate; {why}", src, met)


def _untrusted(product: Estimate) -> SimdnnError:
    return SimdnnError(
        f"{product.implementation}: an input that should saturate did not; the proof is not to be trusted"
    )


def _bare(product: Estimate) -> Estimate:
    """A product whose kernel has nothing behind its sums."""
    problem: Problem = replace(product.problem, epilogue=Epilogue("s32"))
    if problem == product.problem:
        return product
    return _of(product, problem)


def _of(product: Estimate, problem: Problem) -> Estimate:
    """The estimate's kernel for another problem."""
    return replace(product, problem=problem, find_kernel=partial(_kernel, product, problem))


def _kernel(product: Estimate, problem: Problem) -> Kernel:
    """The kernel of the estimate's name for a problem."""
    kind = next(kind for kind in kernels() if kind.name == product.implementation)
    return built(kind, problem, product.machine)


def _largest_sum(problem: Problem, weights: Array | None) -> int:
    """A bound of any sum's magnitude, whatever the source and its zero point (and the weights, where not known)."""
    conv = isinstance(problem, ConvProblem)
    count = problem.ic // problem.groups * problem.kh * problem.kw if isinstance(problem, ConvProblem) else problem.k
    most = 128 * count
    if weights is not None:
        axis = tuple(range(1, weights.ndim)) if conv else -2
        most = int(np.abs(weights.astype(np.int64)).sum(axis=axis).max(initial=0))
    points = 255 * count if problem.epilogue.zp_wei or getattr(problem, "zero_points", None) else 0
    return 255 * (most + points)


# -- what is asked -----------------------------------------------------------------------------------------------------
def _weights(primitive: str, weights: Array) -> Array:
    if arrays.type_of("weights", held("weights", weights)) != "s8":
        raise InvalidArgument(f"weights of {weights.dtype}; int8 weights are judged: quantize them first")
    if primitive == "convolution" and weights.ndim == 5:
        weights = weights.reshape(-1, *weights.shape[2:])
    names = ("K", "N") if primitive == "matmul" else ("OC", "IC/G", "KH", "KW")
    arrays.check_shape("weights", weights, names)
    return arrays.native(weights)


def _source(src_range: tuple[int, int] | None, calibration: Array | None) -> tuple[str, tuple[int, int]]:
    """The source's type, and the least and greatest value."""
    src = "u8"
    if calibration is not None:
        src = arrays.type_of("calibration", calibration)
        if src not in ("u8", "s8"):
            raise InvalidArgument(f"calibration of {calibration.dtype}; sources as stored, uint8 or int8, are needed")
    if src_range is None:
        src_range = (0, 255) if calibration is None else (int(calibration.min()), int(calibration.max()))
    if not isinstance(src_range, (tuple, list)) or len(src_range) != 2:
        raise InvalidArgument(f"src_range={src_range!r}; (least, greatest) is needed")
    low, high = (integer("src_range", value, -128) for value in src_range)
    src = "s8" if low < 0 else src
    form = fmt(src)
    if not form.low <= low <= high <= form.high:
        raise InvalidArgument(f"src_range={src_range!r}; {src} has {form.low} to {form.high}, the least first")
    if calibration is not None and arrays.type_of("calibration", calibration) != src:
        raise InvalidArgument(f"src_range={src_range!r} is of s8, calibration of {calibration.dtype}")
    return src, (low, high)


def _estimate(
    primitive: str,
    weights: Array,
    src: str,
    calibration: Array | None,
    shape: dict[str, Any],
    machine: Any,
    isa: str | None,
    attr: Attr | None,
    dispatch: str,
) -> Estimate:
    """The kernel that the problem would get."""
    where: dict[str, Any] = {"machine": machine, "isa": isa, "attr": attr, "dispatch": dispatch, "dt": f"{src}:s8:s32"}
    if primitive == "matmul":
        k, n = weights.shape
        if calibration is not None:
            arrays.check_shape("calibration", calibration, ("M", "K"))
            if calibration.shape[1] != k:
                raise InvalidArgument(f"calibration (M, K) is {calibration.shape} and weights (K, N) {weights.shape}")
        return estimate("matmul", m=shape.pop("m", 1), n=n, k=k, **shape, **where)
    oc, ic, kh, kw = weights.shape
    ic *= integer("groups", shape.get("groups", 1))
    if calibration is not None:
        arrays.check_shape("calibration", calibration, ("N", "IC", "IH", "IW"))
        if calibration.shape[1] != ic:
            raise InvalidArgument(f"calibration has {calibration.shape[1]} channels; the weights take {ic}")
        shape |= {"ih": calibration.shape[2], "iw": calibration.shape[3]}
    strides, dilation = (pair(name, shape.get(name, 1)) for name in ("strides", "dilation"))
    for axis, name, taps in ((0, "ih", kh), (1, "iw", kw)):
        shape.setdefault(name, (taps - 1) * dilation[axis] + 1 + 4 * strides[axis])
    return estimate("convolution", ic=ic, oc=oc, kh=kh, kw=kw, **shape, **where)


# -- what is answered --------------------------------------------------------------------------------------------------
def _always_safe(
    frame: pd.DataFrame, about: dict[str, Any], product: Estimate, weights: Array, calibrated: bool
) -> pd.DataFrame:
    """No step of the kernel can saturate; where it halves its weights, it rounds."""
    halves = product.kernel.halves
    odd = int((weights % 2 != 0).sum()) if halves else 0
    about["reason"] = (
        f"weights are halved so that no pair saturates; {odd} of {weights.size} are odd and lose their last bit"
        if halves
        else f"no step of {product.implementation} can saturate"
    )
    about |= {"odd_weights": odd, "largest_weight": 128}
    columns = {"safe": True, "pairs": 0, "unsafe_pairs": 0, "max_abs_pair": 0, "at": None, "witness": None}
    for name, value in columns.items():
        frame[name] = value
    frame["witness_pairs"], frame["safe_7bit"] = 0, True
    if calibrated:
        frame["probability"] = 0.0
        about["probability"] = 0.0
    return _finished(frame, about)


def _judge(frame: pd.DataFrame, pairs: Pairs, low: int, high: int) -> None:
    """Columns safe, pairs, unsafe_pairs, max_abs_pair, safe_7bit."""
    channels = len(frame)
    least, most = pairs.sums(low, high)
    unsafe = (least < _S16.low) | (most > _S16.high)
    greatest = np.zeros(channels, np.int64)
    np.maximum.at(greatest, pairs.channel, np.maximum(np.abs(least), np.abs(most)))
    frame["pairs"] = np.bincount(pairs.channel, minlength=channels)
    frame["unsafe_pairs"] = np.bincount(pairs.channel[unsafe], minlength=channels)
    frame.insert(1, "safe", frame["unsafe_pairs"] == 0)
    frame["max_abs_pair"] = greatest
    seven = np.clip(np.rint(pairs.weight / 2), -64, 63).astype(np.int8)
    least, most = pairs.sums(low, high, seven)
    bad = np.bincount(pairs.channel[(least < _S16.low) | (most > _S16.high)], minlength=channels)
    frame["safe_7bit"] = bad == 0


def _witnesses(
    frame: pd.DataFrame, pairs: Pairs, product: Estimate, weights: Array, span: tuple[int, int], shift: int
) -> None:
    """Columns at, witness, witness_pairs: inputs for the worst pair of each channel, and what they did when run."""
    problem = product.problem
    least, most = pairs.sums(span[0] + shift, span[1] + shift)
    order = np.lexsort((_size(least, most), pairs.channel))
    last = np.flatnonzero(np.diff(pairs.channel[order], append=-1))
    worst = {int(pairs.channel[i]): int(i) for i in order[last]}
    shared = not isinstance(problem, ConvProblem) or bool(taps_inside(problem).all(axis=(2, 3)).any())
    asked: list[dict[int, int]] = []
    placed: dict[int, int] = {}
    at: list[Any] = [None] * len(frame)
    for channel, i in worst.items():
        at[channel] = tuple(_position(int(p), weights.shape) for p in pairs.position[i] if p >= 0)
        if frame["safe"].iloc[channel]:
            continue
        placed[channel] = _place(asked, _numbers(problem, weights, pairs, i, span, most[i] > _S16.high), shared)
    frame["at"] = at
    witness: list[Array | None] = [None] * len(frame)
    counts = np.zeros(len(frame), np.int64)
    if asked:
        fill = min(max(0, span[0]), span[1])
        src = _pairs.inputs_for(problem, asked, fill)
        for start in range(0, len(src), _CHUNK):
            met = _pairs.count(product, src[start : start + _CHUNK], weights)
            met = met.reshape(*met.shape[:2], -1).sum(axis=2)
            for channel, row in placed.items():
                if start <= row < start + _CHUNK:
                    counts[channel] = met[row - start, channel]
        for channel, row in placed.items():
            witness[channel] = src[row]
    if (counts[list(placed)] == 0).any():
        raise _untrusted(product)
    frame["witness"] = pd.Series(witness, dtype=object)
    frame["witness_pairs"] = counts


def _size(least: Array, most: Array) -> Array:
    """How large sums of pairs can be, over what 16 bits hold."""
    found: Array = np.maximum(-least / -_S16.low, most / _S16.high)
    return found


def _numbers(
    problem: Problem, weights: Array, pairs: Pairs, i: int, span: tuple[int, int], rising: bool
) -> dict[int, int]:
    """The source values that make one pair as large as it gets, up or down, by their positions (`inputs_for`)."""
    start = 0
    if isinstance(problem, ConvProblem):
        per_group = weights.shape[0] // problem.groups
        start = int(pairs.channel[i]) // per_group * int(np.prod(weights.shape[1:]))
    return {
        start + int(p): span[1] if (w > 0) == rising else span[0]
        for p, w in zip(pairs.position[i], pairs.weight[i], strict=True)
    }


_CHUNK = 256  # witnesses that are run at once


def _place(asked: list[dict[int, int]], numbers: dict[int, int], shared: bool) -> int:
    """The input that takes these numbers: one that has them free, or a new one."""
    for row in range(max(0, len(asked) - _MOST_PLACED), len(asked)) if shared else ():
        if all(asked[row].get(key, number) == number for key, number in numbers.items()):
            asked[row].update(numbers)
            return row
    asked.append(dict(numbers))
    return len(asked) - 1


def _position(flat: int, shape: tuple[int, ...]) -> int | tuple[int, ...]:
    return flat if len(shape) == 2 else tuple(int(i) for i in np.unravel_index(flat, shape[1:]))


def _probability(frame: pd.DataFrame, about: dict[str, Any], counts: Array) -> None:
    met = np.moveaxis(counts, 1, -1).reshape(-1, len(frame)) > 0
    frame["probability"] = met.mean(axis=0)
    about["probability"] = float(met.mean())


def _finished(frame: pd.DataFrame, about: dict[str, Any]) -> pd.DataFrame:
    about["safe_share"] = float(frame["safe"].mean())
    about["safe_share_7bit"] = float(frame["safe_7bit"].mean())
    frame.attrs.update({"odd_weights": 0} | about)
    return frames.shown(frame)
