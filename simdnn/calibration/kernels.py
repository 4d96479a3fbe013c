"""`simdnn verify --timing`: a machine's clock beside this host's own time for the package's compiled kernels.

One thread, data warm. Cycles are medians of samples that nothing disturbed (`programs`); the speed-ups over
f32 of the same shape are formed within one run. They are worth comparing on the machine itself, or one near to it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from numpy.typing import NDArray

from isa_models.errors import counted
from isa_models.formats import fmt
from isa_models.isa import host_caps
from isa_models.machines.cpu_record import Machine
from isa_models.readings.arrays import on_a_line
from simdnn.calibration.programs import LEAST, measure
from simdnn.kernels import ConvProblem, Epilogue, Kernel, MatmulProblem, Parameters, kernels
from simdnn.kernels.common.epilogue import Decompression
from simdnn.kernels.common.kernel import KernelKind
from simdnn.kernels.common.params import Param
from simdnn.kernels.common.problems import Problem
from simdnn.program.records import Program
from simdnn.progress import Progress
from simdnn.timing.estimate import estimate_program


@dataclass(frozen=True)
class Variant:
    """A kernel by what stands behind the family in its name, and its types.

    Compressed weights have f32 scales by groups of `GROUP` along K, and are multiplied in the source's type.
    """

    name: str
    kernel: str
    src: str
    weights: str
    dst: str
    family: str = ""  # "": the one of the problem, gemm or conv

    def name_in(self, family: str) -> str:
        """The name of the kernel for problems of a family."""
        return f"{self.family or family}:{self.kernel}"

    @property
    def decompression(self) -> Decompression | None:
        if fmt(self.src).is_float == fmt(self.weights).is_float:
            return None
        return Decompression((self.src,), Param("wei", GROUP, 1, "f32"))


GROUP = 128

WIDE = (
    Variant("f32", "avx512_core", "f32", "f32", "f32"),
    Variant("bf16", "avx512_core_bf16", "bf16", "bf16", "f32"),
    Variant("int8 fast", "avx512_core_int8", "u8", "s8", "s32"),
    Variant("int8 exact", "avx512_core_int8_exact", "u8", "s8", "s32"),
    Variant("int8 vnni", "avx512_core_vnni", "u8", "s8", "s32"),
)
NEWER = (  # in Sapphire Rapids, not in Zen 4
    Variant("f16", "avx512_core_fp16", "f16", "f16", "f16"),
    Variant("bf16 amx", "avx512_core_amx", "bf16", "bf16", "f32"),
    Variant("int8 amx", "avx512_core_amx_int8", "u8", "s8", "s32"),
)
NARROW = (
    Variant("f32 avx2", "avx2", "f32", "f32", "f32"),
    Variant("int8 fast avx2", "avx2_int8", "u8", "s8", "s32"),
    Variant("int8 exact avx2", "avx2_int8_exact", "u8", "s8", "s32"),
)
BUFFERED = tuple(
    Variant(f"wdec {weights}{mark}", isa, "bf16", weights, "f32", "wdec")
    for isa, mark in (("avx512_core_bf16", ""), ("avx512_core_amx", " amx"))
    for weights in ("s8", "s4")
)
FUSED = tuple(  # no more than 16 rows
    Variant(f"wdec fused {weights}", "avx512_core_bf16", "bf16", weights, "f32", "wdec_fused")
    for weights in ("s8", "s4")
)
#: m, n, k and the variants. The last shape's weights are 268 MB in f32 and 34 MB in s4: they come from DRAM.
GEMMS = (
    *((size, size, size, WIDE + NEWER) for size in (64, 128, 256, 512, 1024)),
    *((size, size, size, NARROW) for size in (128, 512)),
    *((m, 3072, 768, WIDE + NEWER + BUFFERED + FUSED) for m in (1, 16)),
    (4, 3072, 768, WIDE[:2] + BUFFERED + FUSED),
    (128, 3072, 768, WIDE + NEWER + BUFFERED),
    (512, 3072, 768, WIDE[:2] + NEWER + BUFFERED),
    *((m, 8192, 8192, (*WIDE[:2], WIDE[-1], *NEWER, *BUFFERED, *FUSED)) for m in (1, 16)),
)
#: name of a ResNet-50 layer: ic, ih, oc, kernel, stride, padding
CONVOLUTIONS = {
    "conv1": (3, 224, 64, 7, 2, 3),
    "layer1.0.conv2": (64, 56, 64, 3, 1, 1),
    "layer1.0.conv3": (64, 56, 256, 1, 1, 0),
    "layer2.0.conv2": (128, 56, 128, 3, 2, 1),
    "layer3.1.conv2": (256, 14, 256, 3, 1, 1),
    "layer4.1.conv3": (512, 7, 2048, 1, 1, 0),
}


def problems(target: Machine) -> Iterator[tuple[str, Variant, Problem]]:
    """The cases that are measured on a machine: shape, variant, problem. Without AVX-512 AVX2 has all shapes."""
    wide = target.supports("avx512_core")
    for m, n, k, variants in GEMMS if wide else [(*shape, NARROW) for shape in dict.fromkeys(g[:3] for g in GEMMS)]:
        for v in variants:
            problem = MatmulProblem(m, n, k, v.src, v.weights, Epilogue(v.dst), decompression=v.decompression)
            yield f"{m}x{k}x{n}", v, problem
    for name, (ic, size, oc, taps, stride, pad) in CONVOLUTIONS.items():
        for v in WIDE + NEWER if wide else NARROW:
            yield (
                name,
                v,
                ConvProblem(
                    1, ic, size, size, oc, taps, taps, v.src, v.weights, Epilogue(v.dst), (stride, stride), (pad,) * 4
                ),
            )


def wanted(target: Machine, only: str) -> list[tuple[str, Variant, Problem]]:
    """Problems of kernels that a machine has whose shape and kernel hold `only`."""
    found = (item for item in problems(target) if only in f"{item[0]} {item[1].name}")
    return [item for item in found if target.supports(_kind(*item[1:]).isa)]


def row(target: Machine, shape: str, variant: Variant, problem: Problem, samples: int) -> dict[str, Any]:
    """Predicted and measured cycles of one kernel."""
    kernel, runs_here = build(target, variant, problem)
    cost = estimate_program(kernel.program, target)
    found = {"shape": shape, "kernel": variant.name, "predicted": cost.cycles, "bound": cost.bound}
    if not runs_here:
        return found
    met = measure(kernel.program, inputs(kernel, problem), samples)
    return found | {
        "measured": met.cycles,
        "predicted/measured": cost.cycles / met.cycles,
        "spread": met.spread,
        "quiet": met.quiet,
        "ghz": met.ghz,
        "macs_per_cycle": problem.macs / met.cycles,
        "predicted_macs_per_cycle": problem.macs / cost.cycles,
    }


def build(target: Machine, variant: Variant, problem: Problem) -> tuple[Kernel, bool]:
    """The kernel that a machine runs, and whether this host has its instructions."""
    kind = _kind(variant, problem)
    return kind.build(problem, target), kind.isa in host_caps()


def _kind(variant: Variant, problem: Problem) -> KernelKind:
    family = "gemm" if isinstance(problem, MatmulProblem) else "conv"
    return next(kind for kind in kernels() if kind.name == variant.name_in(family))


def inputs(kernel: Kernel, problem: Problem) -> dict[str, NDArray[Any]]:
    """Random operands as the kernel's program reads them, and an array for each of its other tensors."""
    return _buffers(kernel.program, kernel.prepare(*_operands(problem), _parameters(problem)))


def _operands(problem: Problem) -> tuple[NDArray[Any], NDArray[Any]]:
    rng = np.random.default_rng(0)
    if isinstance(problem, MatmulProblem):
        shapes: tuple[tuple[int, ...], ...] = ((problem.m, problem.k), (problem.k, problem.n))
    else:
        p = problem
        shapes = ((p.mb, p.ic, p.ih, p.iw), (p.oc, p.ic // p.groups, p.kh, p.kw))
    found = []
    for shape, dtype in zip(shapes, (problem.src, problem.wei), strict=True):
        if fmt(dtype).is_float:
            values = rng.standard_normal(shape, dtype=np.float32)
            found.append(values.astype(fmt(dtype).dtype))
        else:
            kind = fmt(dtype)
            found.append(rng.integers(int(kind.low), int(kind.high) + 1, shape).astype(kind.dtype))
    return found[0], found[1]


def _parameters(problem: Problem) -> Parameters:
    if not isinstance(problem, MatmulProblem) or not problem.decompression:
        return Parameters()
    scales = np.random.default_rng(1).uniform(0.01, 0.1, (problem.k // GROUP, problem.n)).astype(np.float32)
    return Parameters(wei_scale=scales)


def _buffers(program: Program, inputs: dict[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
    """An array for each tensor, from the beginning of a line on as a library's are."""
    found = {}
    for tensor in program.tensors:
        found[tensor.name] = buffer = on_a_line(tensor.size, fmt(tensor.dtype).dtype)
        if tensor.kind == "constant":
            buffer[:] = np.frombuffer(tensor.data, buffer.dtype)
        elif tensor.kind == "input":
            buffer[:] = inputs[tensor.name].reshape(-1)
    return found


def frame_of(
    target: Machine,
    only: str,
    progress: Progress,
    measured: Callable[[str, Variant, Problem], dict[str, Any]],
) -> pd.DataFrame:
    """A row for each of the problems that are `wanted`; `progress` hears of each beforehand."""
    todo = wanted(target, only)
    rows = []
    for number, (shape, variant, problem) in enumerate(todo):
        progress(number, len(todo), f"{shape} {variant.name}")
        rows.append(measured(shape, variant, problem))
    return pd.DataFrame(rows)


def compare(target: Machine, samples: int, only: str, progress: Progress) -> pd.DataFrame:
    """All rows whose shape and kernel hold `only`, with the speed-ups over f32 of the same shape."""
    frame = frame_of(
        target, only, progress, lambda shape, variant, problem: row(target, shape, variant, problem, samples)
    )
    narrow = {variant.name for variant in NARROW}
    for column in ("predicted", "measured"):
        if column in frame:
            own = {(shape, kernel): value for shape, kernel, value in frame[["shape", "kernel", column]].to_numpy()}
            frame[f"{column}_speed_up"] = [
                own.get((shape, (NARROW if kernel in narrow else WIDE)[0].name), np.nan) / value
                for (shape, kernel), value in own.items()
            ]
    return frame


def summary(frame: pd.DataFrame) -> str:
    """Errors of the ratio by kernel, over the rows that were measured undisturbed."""
    lines = []
    for kernel, part in frame[frame["quiet"] >= LEAST].groupby("kernel", sort=False):
        errors = part["predicted/measured"].to_numpy(float) - 1
        worst = int(np.argmax(np.abs(errors)))
        lines.append(
            f"{kernel}: {counted(len(part), 'shape')}, mean error {errors.mean():+.1%}, "
            f"mean absolute {np.abs(errors).mean():.1%}, worst {errors[worst]:+.1%} ({part['shape'].iloc[worst]})"
        )
    left_out = int((frame["quiet"] < LEAST).sum())
    return "\n".join([*lines, f"{counted(left_out, 'row')} with fewer than {LEAST} quiet samples left out"])


def against(frame: pd.DataFrame, measured: str, predicted: str, ends: Sequence[float], **axes_are: str) -> Figure:
    """One column over another, a dot for each shape, a colour for each kernel; the line is equality."""
    figure = Figure(figsize=(7, 6), layout="constrained")
    axes = figure.add_subplot()
    for kernel, part in frame.groupby("kernel", sort=False):
        axes.scatter(part[measured], part[predicted], s=18, label=str(kernel))
    axes.plot(ends, ends, color="black", linewidth=0.8)
    axes.set(**axes_are)
    axes.legend(fontsize="small")
    return figure


def drawn(frame: pd.DataFrame, name: str) -> Figure:
    """Predicted over measured cycles."""
    return against(
        frame,
        "measured",
        "predicted",
        [frame["measured"].min(), frame["measured"].max()],
        xscale="log",
        yscale="log",
        xlabel="measured on this host, cycles",
        ylabel=f"predicted for {name}, cycles",
    )
