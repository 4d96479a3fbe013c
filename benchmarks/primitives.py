"""oneDNN's primitives beside products on this host, timed from inside the library, beside the clock's prediction.

    python -m benchmarks.primitives measure -o FILE.csv    (minutes; needs the package onednn, see `benchmarks.onednn`)
    python -m benchmarks.primitives agree ROUND.csv … -o FILE.csv    (each problem's fastest round)
    python -m benchmarks.primitives [FILE.csv] -o FILE.csv           (the table; without a file the recorded one)

Problems have sizes of networks: one thread, warm data, no cap. Predicted are the cycles of the same call here
(`dispatch="onednn"`), which `-o` writes beside those measured. Handles and enumerations are those of oneDNN 3.x's
dnnl_types.h.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from math import prod
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pandas as pd
from numpy.typing import NDArray

import simdnn
from benchmarks.cells import RECORDED
from benchmarks.onednn import ANY, INFERENCE, SCALES, TYPES, Primitive, dims, environment
from simdnn.cli.output import table

_NAMES = ["primitive", "problem"]
_NUMPY: dict[str, Any] = {"bf16": ml_dtypes.bfloat16, "f32": np.float32, "s8": np.int8, "u8": np.uint8}
_ELTWISE = {"relu": 0x20, "tanh": 0x21, "logistic": 0x29, "exp": 0x2A, "log": 0x2D, "pow": 0x30, "gelu_erf": 0x31}
_POOLING = {"max": 0x1FF, "avg_exclude_padding": 0x3FF}
_RESAMPLING = {"nearest": 0x2FFF0, "linear": 0x2FFF1}
_ADD, _MEAN, _SOFTMAX, _LOG_SOFTMAX, _DECONVOLUTION = 0x1FFF0, 0x2FFF6, 0x30000, 0x30001, 10
_SCALED_AND_SHIFTED, _GIVEN = 2 | 4, 1
#: arguments of an execution
_INDEX = {
    "src": 1,
    "src0": 1,
    "src1": 2,
    "dst": 17,
    "weights": 33,
    "mean": 49,
    "variance": 50,
    "scale": 51,
    "shift": 52,
}
_EXECUTED = 255
_LAST = (0, 2, 3, 1)  # dimensions as they lie with the channels last


@dataclass(frozen=True)
class Tensor:
    """A shape and type, and how its dimensions lie in memory, the outermost first; None: as the library likes."""

    shape: tuple[int, ...]
    dtype: str = "f32"
    order: tuple[int, ...] | None = ()  # (): in rows

    @property
    def lies(self) -> tuple[int, ...]:
        return self.order or tuple(range(len(self.shape)))

    def drawn(self, rng: np.random.Generator) -> NDArray[Any]:
        """Values of a type, laid out as it says."""
        shape = [self.shape[axis] for axis in self.lies]
        if self.dtype in ("u8", "s8"):
            values = rng.integers(0 if self.dtype == "u8" else -100, 100, shape)
        else:
            values = rng.standard_normal(shape, np.float32)
        return values.astype(_NUMPY[self.dtype]).transpose(np.argsort(self.lies))


@dataclass(frozen=True)
class Problem:
    """A call of a function of `simdnn`, and how the library is asked for the same.

    `plan` creates a primitive's descriptor, (library, where to, engine, descriptors by argument, attributes).
    """

    primitive: str
    text: str
    tensors: dict[str, Tensor]
    dst: Tensor
    plan: Callable[..., int]
    arguments: tuple[Any, ...] = ()
    options: dict[str, Any] = field(default_factory=dict)
    positive: tuple[str, ...] = ()  # tensors that hold variances
    scale: float = 0.0  # of the destination

    @property
    def function(self) -> str:
        return {"logsoftmax": "softmax", "layer normalization": "layer_normalization"}.get(
            self.primitive, self.primitive.replace(" ", "_")
        )

    def data(self) -> dict[str, NDArray[Any]]:
        """Values of its sources."""
        rng = np.random.default_rng(0)
        found = {name: tensor.drawn(rng) for name, tensor in self.tensors.items()}
        return found | {name: np.abs(found[name]) + np.float32(0.1) for name in self.positive}

    def cycles(self, machine: str) -> float:
        """The clock's answer."""
        data, options = self.data(), dict(self.options)
        if self.scale:
            options["scales"] = {"dst": self.scale}
        if "weights" in data:  # whose groups are no dimension here
            data["weights"] = data["weights"].reshape(-1, *data["weights"].shape[-3:])
        call = getattr(simdnn, self.function)
        sources = [data.pop(name) for name in ("src", "src0", "src1", "weights") if name in data]
        found = call(
            *sources, *self.arguments, machine=machine, dispatch="onednn", dst=self.dst.dtype, **data, **options
        )
        return float(found.cycles)


def _sizes(shape: Sequence[int]) -> str:
    return "x".join(map(str, shape))


# -- problems ---------------------------------------------------------------------------------------------------------
def deconvolution(
    dtype: str, ic: int, oc: int, size: int, taps: int, stride: int, padding: int, groups: int = 1
) -> Problem:
    out = (size - 1) * stride + taps - 2 * padding
    weights = (groups * oc, ic, taps, taps)
    own = weights if groups == 1 else (groups, oc, ic, taps, taps)
    around = dims(padding, padding)

    def plan(library: Any, to: Any, engine: Any, d: dict[str, Any], attr: Any) -> int:
        create = library.dnnl_deconvolution_forward_primitive_desc_create
        kind, steps = (INFERENCE, _DECONVOLUTION), dims(stride, stride)
        return int(
            create(to, engine, *kind, d["src"], d["weights"], None, d["dst"], steps, dims(), around, around, attr)
        )

    return Problem(
        "deconvolution",
        f"{dtype}>{dtype} {groups}x{ic}>{oc} {size}x{size} k{taps} s{stride} p{padding}",
        {
            "src": Tensor((1, groups * ic, size, size), dtype, None),
            "weights": Tensor(own, "s8" if dtype == "u8" else dtype, None),
        },
        Tensor((1, groups * oc, out, out), dtype, None),
        plan,
        options={"strides": (stride,) * 2, "padding": (padding,) * 4, "groups": groups},
    )


def pooling(algorithm: str, dtype: str, c: int, size: int, taps: int, stride: int, padding: int, last: bool) -> Problem:
    out, order = (size + 2 * padding - taps) // stride + 1, _LAST if last else ()
    behind = (out - 1) * stride + taps - size - padding

    def plan(library: Any, to: Any, engine: Any, d: dict[str, Any], attr: Any) -> int:
        window = dims(stride, stride), dims(taps, taps), dims(), dims(padding, padding), dims(behind, behind)
        create = library.dnnl_pooling_forward_primitive_desc_create
        return int(create(to, engine, INFERENCE, _POOLING[algorithm], d["src"], d["dst"], *window, attr))

    return Problem(
        "pooling",
        f"{algorithm[:3]} {dtype} {c}x{size}x{size} k{taps} s{stride} p{padding} {'last' if last else 'rows'}",
        {"src": Tensor((1, c, size, size), dtype, order)},
        Tensor((1, c, out, out), dtype, order),
        plan,
        ((taps, taps), algorithm),
        {"strides": (stride,) * 2, "padding": (padding, padding, behind, behind)},
    )


def softmax(dtype: str, shape: tuple[int, ...], axis: int, logarithm: bool = False) -> Problem:
    def plan(library: Any, to: Any, engine: Any, d: dict[str, Any], attr: Any) -> int:
        create, kind = library.dnnl_softmax_forward_primitive_desc_create, _LOG_SOFTMAX if logarithm else _SOFTMAX
        return int(create(to, engine, INFERENCE, kind, d["src"], d["dst"], axis, attr))

    name, text = "logsoftmax" if logarithm else "softmax", f"{dtype} {_sizes(shape)} axis {axis}"
    tensor = Tensor(shape, dtype)
    return Problem(name, text, {"src": tensor}, tensor, plan, (axis,), {"logarithm": logarithm})


def layer_normalization(dtype: str, shape: tuple[int, ...]) -> Problem:
    def plan(library: Any, to: Any, engine: Any, d: dict[str, Any], attr: Any) -> int:
        create, epsilon = library.dnnl_layer_normalization_forward_primitive_desc_create, ctypes.c_float(1e-5)
        of = d["src"], d["dst"], d["statistics"], epsilon, _SCALED_AND_SHIFTED
        return int(create(to, engine, INFERENCE, *of, attr))

    tensor, row = Tensor(shape, dtype), Tensor(shape[-1:])
    tensors = {"src": tensor, "scale": row, "shift": row}
    return Problem("layer normalization", f"{dtype} {_sizes(shape)}", tensors, tensor, plan)


def batch_normalization(dtype: str, c: int, size: int, last: bool) -> Problem:
    def plan(library: Any, to: Any, engine: Any, d: dict[str, Any], attr: Any) -> int:
        create, epsilon = library.dnnl_batch_normalization_forward_primitive_desc_create, ctypes.c_float(1e-5)
        return int(create(to, engine, INFERENCE, d["src"], d["dst"], epsilon, _SCALED_AND_SHIFTED | _GIVEN, attr))

    tensor = Tensor((1, c, size, size), dtype, _LAST if last else ())
    rows = dict.fromkeys(("scale", "shift", "mean", "variance"), Tensor((c,)))
    text = f"{dtype} {c}x{size}x{size} {'last' if last else 'rows'}"
    return Problem("batch normalization", text, {"src": tensor, **rows}, tensor, plan, positive=("variance",))


def eltwise(algorithm: str, dtype: str, size: int, alpha: float = 0.0, beta: float = 0.0) -> Problem:
    def plan(library: Any, to: Any, engine: Any, d: dict[str, Any], attr: Any) -> int:
        create, numbers = library.dnnl_eltwise_forward_primitive_desc_create, map(ctypes.c_float, (alpha, beta))
        return int(create(to, engine, INFERENCE, _ELTWISE[algorithm], d["src"], d["dst"], *numbers, attr))

    tensor = Tensor((size,), dtype)
    arguments = (algorithm, alpha, beta)
    return Problem("eltwise", f"{algorithm} {dtype} {size}", {"src": tensor}, tensor, plan, arguments)


def binary(dtype: str, first: tuple[int, ...], second: tuple[int, ...]) -> Problem:
    def plan(library: Any, to: Any, engine: Any, d: dict[str, Any], attr: Any) -> int:
        create = library.dnnl_binary_primitive_desc_create
        return int(create(to, engine, _ADD, d["src0"], d["src1"], d["dst"], attr))

    tensors = {"src0": Tensor(first, dtype), "src1": Tensor(second, dtype)}
    text = f"add {dtype} {_sizes(first)} + {_sizes(second)}"
    return Problem("binary", text, tensors, tensors["src0"], plan, ("add",))


def reduction(dtype: str, shape: tuple[int, ...], axes: list[int]) -> Problem:
    def plan(library: Any, to: Any, engine: Any, d: dict[str, Any], attr: Any) -> int:
        create, numbers = library.dnnl_reduction_primitive_desc_create, map(ctypes.c_float, (1.0, 0.0))
        return int(create(to, engine, _MEAN, d["src"], d["dst"], *numbers, attr))

    out = Tensor(tuple(1 if axis in axes else size for axis, size in enumerate(shape)), dtype)
    text = f"mean {dtype} {_sizes(shape)} over {axes}"
    return Problem("reduction", text, {"src": Tensor(shape, dtype)}, out, plan, (axes, "mean"))


def resampling(algorithm: str, c: int, size: int, out: int, last: bool) -> Problem:
    def plan(library: Any, to: Any, engine: Any, d: dict[str, Any], attr: Any) -> int:
        create = library.dnnl_resampling_forward_primitive_desc_create
        return int(create(to, engine, INFERENCE, _RESAMPLING[algorithm], None, d["src"], d["dst"], attr))

    source, target = (Tensor((1, c, n, n), "f32", _LAST if last else ()) for n in (size, out))
    text = f"{algorithm} f32 {c}x{size}x{size}>{out} {'last' if last else 'rows'}"
    return Problem("resampling", text, {"src": source}, target, plan, ((out, out), algorithm))


def conversion(src: str, dst: str, shape: tuple[int, ...]) -> Problem:
    def plan(library: Any, to: Any, engine: Any, d: dict[str, Any], attr: Any) -> int:
        return int(library.dnnl_reorder_primitive_desc_create(to, d["src"], engine, d["dst"], engine, attr))

    tensors = {"src": Tensor(shape, src)}
    return Problem("conversion", f"{src}>{dst} {_sizes(shape)}", tensors, Tensor(shape, dst), plan, scale=0.1)


def problems() -> Iterator[Problem]:
    """All problems."""
    for dtype in ("f32", "bf16", "u8"):
        for sizes in ((256, 128, 8, 4, 2, 1), (64, 64, 32, 4, 2, 1), (64, 64, 28, 3, 1, 1), (128, 64, 14, 2, 2, 0)):
            yield deconvolution(dtype, *sizes)
        yield deconvolution(dtype, 64, 3, 32, 5, 2, 2)
    yield deconvolution("f32", 1, 1, 28, 3, 2, 1, 64)
    yield deconvolution("f32", 128, 128, 14, 1, 1, 0)
    for dtype in ("f32", "bf16", "u8"):
        for last in (True, False):
            yield pooling("max", dtype, 64, 56, 3, 2, 1, last)
            yield pooling("avg_exclude_padding", dtype, 128, 28, 2, 2, 0, last)
    yield pooling("avg_exclude_padding", "f32", 512, 7, 7, 1, 0, True)
    for dtype in ("f32", "bf16"):
        yield from (softmax(dtype, shape, 1) for shape in ((128, 1000), (1024, 64), (8, 4096)))
    yield softmax("f32", (128, 1000), 1, True)
    yield softmax("f32", (16, 64, 100), 1)
    for dtype in ("f32", "bf16"):
        yield from (layer_normalization(dtype, shape) for shape in ((128, 768), (512, 64), (16, 4096)))
    for dtype in ("f32", "bf16"):
        yield from (batch_normalization(dtype, 64, 56, last) for last in (True, False))
    for dtype in ("f32", "bf16"):
        yield from (eltwise(name, dtype, 16384) for name in ("relu", "tanh", "gelu_erf", "exp", "logistic", "log"))
        yield eltwise("relu", dtype, 1 << 20)
    yield eltwise("pow", "f32", 16384, 1.0, 3.0)
    for dtype in ("f32", "bf16", "u8"):
        yield binary(dtype, (128, 768), (128, 768))
        yield binary(dtype, (1, 64, 56, 56), (1, 64, 1, 1))
    for dtype in ("f32", "bf16"):
        shapes: tuple[tuple[tuple[int, ...], list[int]], ...] = (
            ((512, 768), [1]),
            ((1, 64, 56, 56), [2, 3]),
            ((128, 1000), [0]),
        )
        yield from (reduction(dtype, shape, axes) for shape, axes in shapes)
    for last in (True, False):
        yield from (resampling(name, 64, 28, 56, last) for name in ("nearest", "linear"))
    yield conversion("f32", "s8", (128, 768))
    yield conversion("f32", "bf16", (512, 768))
    yield conversion("u8", "f32", (512, 768))


# -- the library ------------------------------------------------------------------------------------------------------
class Measured(Primitive):
    """A problem as the library runs it, on memory in its own layouts; `benchmarks.inside.timed` times it."""

    def __init__(self, problem: Problem) -> None:
        super().__init__()
        given = {**problem.tensors, "dst": problem.dst}
        statistics = Tensor(problem.dst.shape[:-1])
        described = {name: self._described(tensor) for name, tensor in (given | {"statistics": statistics}).items()}
        plan = ctypes.c_void_p()
        status = problem.plan(self.library, ctypes.byref(plan), self.engine, described, self._scaled(problem))
        if status:
            raise SystemExit(f"no primitive: status {status} (3: unimplemented)")
        self.create(plan)
        memories = {_INDEX[name]: self._bound(plan, problem, name, described[name]) for name in given}
        if problem.scale:
            scale = np.float32(problem.scale).tobytes()
            memories[SCALES | _INDEX["dst"]] = self._filled(self._described(Tensor((1,))), lambda _: scale)
        self.arguments = self._arguments(memories)

    def _described(self, tensor: Tensor) -> ctypes.c_void_p:
        if tensor.order is None:
            return self._descriptor(tensor.shape, tensor.dtype, ANY)
        found, size = ctypes.c_void_p(), len(tensor.shape)
        shape, dtype = dims(*tensor.shape), TYPES[tensor.dtype]
        lies = [tensor.shape[axis] for axis in tensor.lies]
        steps = {axis: prod(lies[place + 1 :]) for place, axis in enumerate(tensor.lies)}
        strides = dims(*(steps[axis] for axis in range(size)))
        self._call("dnnl_memory_desc_create_with_strides", ctypes.byref(found), size, shape, dtype, strides)
        return found

    def _scaled(self, problem: Problem) -> ctypes.c_void_p:
        """Attributes, with a common scale of the destination where there is one."""
        attr = ctypes.c_void_p()
        self._call("dnnl_primitive_attr_create", ctypes.byref(attr))
        if problem.scale:
            self._call("dnnl_primitive_attr_set_scales", attr, _INDEX["dst"], 0, 0, None, TYPES["f32"])
        return attr

    def _bound(self, plan: ctypes.c_void_p, problem: Problem, name: str, given: ctypes.c_void_p) -> int:
        """Memory of an argument in the layout that the primitive wants; where that is its own, values' order is not."""
        wanted = None if problem.primitive == "conversion" else self.query(plan, _EXECUTED, _INDEX[name])
        values = b"" if name == "dst" else self._in_memory(problem, name)
        return self._filled(ctypes.c_void_p(wanted) if wanted else given, lambda _: values)

    @staticmethod
    def _in_memory(problem: Problem, name: str) -> bytes:
        return problem.data()[name].transpose(problem.tensors[name].lies).tobytes()


def _child() -> None:
    """The process in which the library runs on one CPU: a line of JSON for each problem that is named on its input."""
    if hasattr(os, "sched_setaffinity"):  # the library's runtime takes as many threads as it sees cores
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    from benchmarks.inside import timed

    for problem in problems():
        primitive = Measured(problem)
        for _ in range(3):
            primitive.run()
        t = timed(primitive)
        row = [problem.primitive, problem.text, primitive.implementation, round(t.cycles), round(t.median)]
        print(json.dumps(row), flush=True)


def measure() -> pd.DataFrame:
    """Time all problems."""
    command = [sys.executable, "-m", "benchmarks.primitives", "child"]
    done = subprocess.run(command, env=os.environ | environment("default"), stdout=subprocess.PIPE, text=True)
    if done.returncode:
        print(f"the process ended with status {done.returncode}", file=sys.stderr)
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    return pd.DataFrame(rows, columns=[*_NAMES, "implementation", "cycles", "median_cycles"])


def fastest(rounds: Sequence[pd.DataFrame]) -> pd.DataFrame:
    """Each problem's fastest round: others slow down what shares a cache with them, and nothing makes it faster."""
    together = pd.concat(rounds, ignore_index=True)
    return together.loc[together.groupby(_NAMES, sort=False)["cycles"].idxmin()].reset_index(drop=True)


def beside(measured: pd.DataFrame, machine: str) -> pd.DataFrame:
    """Measured rows with the cycles that are predicted."""
    warnings.simplefilter("ignore")  # of functions beyond their domain
    known = {(problem.primitive, problem.text): problem for problem in problems()}
    found = [round(known[one.primitive, one.problem].cycles(machine)) for one in measured.itertuples()]
    return measured.assign(predicted_cycles=found)


def _report(rows: pd.DataFrame) -> None:
    rows["ratio"] = rows["predicted_cycles"] / rows["cycles"]
    print(table(rows.drop(columns="median_cycles").round(2)))
    rows["absolute"] = 100 * (rows["ratio"] - 1).abs()
    rows["of"] = np.where(rows["implementation"].str.startswith("ref"), "its reference", rows["primitive"])
    summary = rows.groupby("of", sort=False).agg(
        problems=("ratio", "count"),
        least=("ratio", "min"),
        most=("ratio", "max"),
        mean_absolute=("absolute", "mean"),
        median_absolute=("absolute", "median"),
    )
    print(table(summary.round(2).reset_index()))
    kernels = rows[rows["of"] != "its reference"]["absolute"]
    within = f"{int((kernels <= 25).sum())} of {len(kernels)} within 25 %"
    print(f"but its reference: {within}; mean {kernels.mean():.1f} %, median {kernels.median():.1f} %")


def main() -> None:
    """Measure, or print the table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.primitives", description=__doc__)
    parser.add_argument("what", nargs="*", help="measure, agree with rounds, or a file (the recorded one)")
    parser.add_argument("--machine", help="whose prediction is asked for; to be named for a file (recorded: zen4)")
    parser.add_argument("-o", "--output", type=Path, help="where rows go")
    args = parser.parse_args()
    what, *files = args.what or [str(RECORDED / f"primitives-{args.machine or 'zen4'}.csv")]
    if what == "child":
        _child()
        return
    if what in ("measure", "agree"):
        rows = measure() if what == "measure" else fastest([pd.read_csv(file) for file in files])
    else:
        if args.what and not args.machine:
            parser.error(f"{what} was measured on some core: --machine says whose prediction stands beside it")
        rows = beside(pd.read_csv(what), args.machine or "zen4")
    if args.output:
        rows.to_csv(args.output, index=False, lineterminator="\n")
    if what not in ("measure", "agree"):
        _report(rows)


if __name__ == "__main__":
    main()
