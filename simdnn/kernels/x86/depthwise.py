"""Depthwise convolution: lanes run over channels, every tap is one multiply-accumulate a lane."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache

import numpy as np

from isa_models.formats import fmt
from isa_models.readings.arrays import Array
from isa_models.readings.transposed_copy import in_order
from simdnn.kernels.common.code import Code, loop, nest, op, pieces
from simdnn.kernels.common.edges import Edges
from simdnn.kernels.common.epilogue import Parameters
from simdnn.kernels.common.kernel import Apart, Kernel
from simdnn.kernels.common.pack import Blocked, Layout, filled, halved, inputs_of, wrap32
from simdnn.kernels.common.problems import ConvProblem, SpatialAxis
from simdnn.kernels.common.weight_cache import made_of
from simdnn.kernels.x86.code import Unit, load32, load_float, zero
from simdnn.kernels.x86.direct import OutputRun, blocks_along, on_image, runs_along
from simdnn.kernels.x86.epilogue import Plan, TileSums, add_parts, finish_tile
from simdnn.kernels.x86.source import Source
from simdnn.program.check import verify
from simdnn.program.records import WEIGHTS, Affine, Memory, Op, Program, Register, Tensor

_ROWS = {512: 12, 256: 6}  # pixels of a tile: accumulators that cover the latency of the multiply-accumulate
_FEW_TAPS = 25  # of an image that is read where it is: more make the text of a program long


@dataclass(frozen=True)
class DepthwiseDot:
    """How one tap is taken: the weights' type in memory, how many of them a lane has (zeros behind the first), the
    loads that widen, and the multiply-accumulate.
    """

    wei: str
    acc: str
    compute: str
    depth: int = 1

    @property
    def floats(self) -> bool:
        return self.acc == "f32"

    def emit(self, unit: Unit, acc: Register, a: str, b: str) -> tuple[Op, ...]:
        """One tap's products, added to a register."""
        return _emitted(self, unit, acc, a, b)


@lru_cache(maxsize=1 << 12)
def _emitted(dot: DepthwiseDot, unit: Unit, acc: Register, a: str, b: str) -> tuple[Op, ...]:
    """One tap's products, added to a register: programs of all shapes have the same."""
    if dot.wei == "bf16":
        return (op("vdpbf16ps", acc, acc, unit.reg(a, "bf16"), unit.reg(b, "bf16")),)
    if dot.floats:
        return (op("vfmadd231ps", acc, acc, unit.reg(a, "f32"), unit.reg(b, "f32")),)
    product = unit.reg("t", "s32")
    return op("vpmaddwd", product, unit.reg(a, "s16"), unit.reg(b, "s16")), op("vpaddd", acc, acc, product)


@lru_cache(maxsize=1 << 12)
def _widened(dot: DepthwiseDot, unit: Unit, name: str, tensor: str, read: str, lanes: int) -> Op:
    """The first elements of a tensor, widened to 32 bits."""
    if dot == PAIRS:
        return op("vpmovzxwd", unit.reg(name), Memory(tensor, Affine(), "u16", lanes))
    register = unit.reg(name, "u32" if read == "u8" else "s32")
    return op(_EXTEND[read], register, Memory(tensor, Affine(), read, lanes))


#: s8 weights are stored as words with a zero beside each, so that vpmaddwd multiplies the source's low word alone
INTEGER = DepthwiseDot("s16", "s32", "s16", 2)
FLOAT = DepthwiseDot("f32", "f32", "f32")
#: as words are, so that vdpbf16ps flushes denormals and multiplies the low halves alone
PAIRS = DepthwiseDot("bf16", "f32", "bf16", 2)
_EXTEND = {"u8": "vpmovzxbd", "s8": "vpmovsxbd"}


class Depthwise:
    """The generator for one problem with groups = ic = oc. `starts`: a sum of floats starts from the bias, and from
    what the destination held; `reference`: from that alone, and it ends as a reference implementation does.
    """

    def __init__(
        self,
        name: str,
        problem: ConvProblem,
        unit: Unit,
        dot: DepthwiseDot,
        halve: bool,
        merged_scales: bool,
        starts: bool = False,
        reference: bool = False,
    ) -> None:
        self.name = name
        self.problem = problem
        self.unit = unit
        self.halve = halve
        self.merged_scales = merged_scales
        self.reference = reference
        self.dot = dot
        e = problem.epilogue
        self.starts = starts and dot.floats and not (e.src_scale or e.wei_scale)

    @cached_property
    def channels(self) -> int:
        """Channels with the padding of whole vectors."""
        return -(-self.problem.groups // self.unit.lanes) * self.unit.lanes

    @cached_property
    def source(self) -> Source:
        """The source as one group, as it is. A copy has the padding around it where taps are many, as each edge of the
        image has code of its own else; and where channels fill no vectors, which loads without masks widen whole.
        """
        p = self.problem
        icp = p.ic if self.unit.masks else self.channels
        as_it_is = icp == p.ic and p.kh * p.kw <= _FEW_TAPS
        return Source(p.src, p.src, p.mb, p.ih, p.iw, 1, p.ic, icp, (0, 0, 0, 0) if as_it_is else p.padding)

    @cached_property
    def axes(self) -> list[SpatialAxis]:
        """The axes of the image as it is read."""
        axes = self.problem.axes
        if self.source.copied:
            return [axis._replace(i=axis.before + axis.i + axis.behind, before=0, behind=0) for axis in axes]
        return list(axes)

    @cached_property
    def plan(self) -> Plan:
        p = self.problem
        edges = "position" if any(p.padding) else "channel"
        compensate = edges if p.epilogue.zp_src else ""
        integer = self.dot.acc == "s32"
        return Plan(
            p.epilogue,
            integer,
            compensate,
            self.halve,
            self.merged_scales,
            reference=self.reference,
            nan_to_bound=self.merged_scales,
        )

    @property
    def channel_plan(self) -> Plan:
        """The epilogue of a library's kernel, which has taps beside the image in its sums."""
        lacks = self.problem.src == "s8" or self.problem.epilogue.zp_src
        return replace(self.plan, compensate="channel" if lacks else "")

    @cached_property
    def program(self) -> Program:
        p = self.problem
        code = self.source.stage(self.unit)
        rows, columns = self.axes
        height = -(-p.ow // -(-p.ow // _ROWS[self.unit.width]))
        for lines in runs_along(rows):
            for count, channel, live in pieces("j", p.groups, self.unit.lanes):
                body: Code = []
                for first, pixels, times in blocks_along(columns, height):
                    body += loop("r", times, self.tile(lines, first, pixels, channel, live))
                code += nest([("n", p.mb), ("y", lines.count), ("j", count)], body, parallel=True)
        outputs = p.mb * p.oh * p.ow * p.oc
        tensors = [
            *self.source.tensors(),
            Tensor("wei", self.dot.wei, p.kh * p.kw * self.channels * self.dot.depth, role=WEIGHTS),
            *self.plan.tensors(self.unit, self.channels, p.oh * p.ow, outputs),
            Tensor("dst", p.epilogue.dst, outputs, "output"),
        ]
        return verify(Program(f"{self.name} {p}", self.unit.isa, tuple(tensors), tuple(code)))

    def tile(self, lines: OutputRun, first: int, count: int, channel: Affine, live: int) -> Code:
        """`count` neighbouring pixels of a line, one vector of channels; `first`: a pixel of those alike."""
        p, unit = self.problem, self.unit
        accumulators = [unit.reg(f"c{i}", self.dot.acc) for i in range(count)]
        pixel, y = Affine.var("r") * count + first, Affine.var("y") + lines.first
        numbers = [(Affine.var("n") * p.oh + y) * p.ow + pixel + i for i in range(count)]
        positions = [(y * p.ow + pixel + i) * self.channels + channel for i in range(count)]
        rows_of_dst = [x * p.oc + channel for x in numbers]
        final = TileSums(unit, [[acc] for acc in accumulators], [live], rows_of_dst, channel, positions)
        bias = self.starts and p.epilogue.bias
        code: Code = [load32(unit, acc, "bias", channel, unit.lanes) if bias else zero(acc) for acc in accumulators]
        if self.dot.floats and any(axis.before or axis.behind for axis in self.axes):
            code.append(zero(unit.reg("z")))
        code += add_parts(self.plan, final, self.held)
        ahead, behind = lines.tap, lines.tap + lines.taps
        code += loop("u", ahead, self.beside_the_image(accumulators, 0, channel))
        code += loop("u", lines.taps, self.row(accumulators, lines, first, channel, live))
        code += loop("u", p.kh - behind, self.beside_the_image(accumulators, behind, channel))
        return code + finish_tile(self.plan.without((*self.held, *("bias",) * bias)), final)

    def row(self, sums: list[Register], lines: OutputRun, first: int, channel: Affine, live: int) -> Code:
        """The taps of a row on the image. Where a pixel is another one's next tap, it stays in its register for it."""
        s, (rows, columns), count = self.source, self.axes, len(sums)
        u = Affine.var("u") + lines.tap
        line = (Affine.var("y") + lines.first) * rows.stride + u * rows.dilation + -rows.before
        begin = Affine.var("n") * s.image + line * s.row + channel
        begin = begin + ((Affine.var("r") * count + first) * columns.stride + -columns.before) * s.pixel
        shared = self.unit.masks and columns.stride == columns.dilation
        code: Code = []
        for w in range(columns.k):
            code.append(self.load_weights(u * columns.k + w, channel))
            for i, acc in enumerate(sums):
                if not on_image(columns, first + i, w):
                    code += self.dot.emit(self.unit, acc, "z", "b") if self.dot.floats else ()
                    continue
                name = f"a{(i + w) % count}" if shared else "a"
                if not shared or w == 0 or i == count - 1:
                    place = i * columns.stride + w * columns.dilation
                    code += self.load_source(name, begin + place * s.pixel, live)
                code += self.dot.emit(self.unit, acc, name, "b")
        return code

    def beside_the_image(self, sums: list[Register], first: int, channel: Affine) -> Code:
        """The taps of a row beside the image, zeros, which floats are multiplied by: an infinity becomes a NaN."""
        if not self.dot.floats:
            return []
        tap = (Affine.var("u") + first) * self.problem.kw + Affine.var("w")
        body: Code = [self.load_weights(tap, channel)]
        for acc in sums:
            body += self.dot.emit(self.unit, acc, "z", "b")
        return loop("w", self.problem.kw, body)

    def load_weights(self, tap: Affine, channel: Affine) -> Op:
        """The weights of a tap."""
        register = self.unit.reg("b", "f32" if self.dot == FLOAT else "u32")
        return load32(self.unit, register, "wei", (tap * self.channels + channel) * self.dot.depth, self.unit.lanes)

    @property
    def held(self) -> tuple[str, ...]:
        """The parts that a sum of floats starts from, beside the bias."""
        early = self.dot.floats and (self.starts or self.reference)
        return ("sum",) * (early and self.plan.sums_first)

    def load_source(self, name: str, at: Affine, live: int) -> Code:
        """One vector of channels, widened to 32 bits."""
        unit, s = self.unit, self.source
        lanes = live if unit.masks or s.read == "f32" else unit.lanes
        if self.dot == FLOAT:
            return load_float(unit, name, s.tensor, s.read, at, lanes)
        return [_widened(self.dot, unit, name, s.tensor, s.read, lanes).at(at)]

    def kernel(self) -> Kernel:
        return Kernel(
            self.name,
            self.program,
            Apart(self.pixels, self.beside, panels_alone=not (self.halve or self.plan.compensate)),
            self.finish,
            self.dot.compute,
            blocked=self.blocked,
            halves=self.halve,
        )

    @property
    def blocked(self) -> Blocked | None:
        """The weights' layout: all channels beside one another, in pairs each with a zero; not where halved."""
        p, depth = self.problem, self.dot.depth
        layout = Layout(1, p.groups, self.channels, 0, depth, depth)
        return None if self.halve else Blocked(self.unit.isa, self.dot.wei, layout, 1, p.kh, p.kw)

    def pixels(self, src: Array) -> dict[str, Array]:
        """The source's tensor: rows of channels."""
        return {"src": in_order(src.transpose(0, 2, 3, 1)).reshape(-1)}

    def beside(self, weights: Array, p: Parameters) -> dict[str, Array]:
        """The program's other inputs."""
        problem = self.problem
        taps = weights.reshape(problem.groups, problem.kh, problem.kw)  # s16 or f32 where a reorder has widened them
        if self.halve:
            taps = halved(taps)
        panels = made_of(weights, self.blocked or "halved", lambda: {"wei": self.weights(taps)})
        inputs: dict[str, Array] = {**panels, **self.plan.inputs(p, self.padded)}
        if self.plan.compensate:
            inputs["comp"] = self.compensation(taps, p.zp_src)
        return inputs_of(self.program, inputs)

    def padded(self, values: Array) -> Array:
        return filled(values, self.channels)

    def weights(self, taps: Array) -> Array:
        """(kh, kw, channel), widened."""
        moved = self.padded(np.ascontiguousarray(taps.transpose(1, 2, 0)))
        if self.dot == FLOAT:
            return moved.astype(np.float32).reshape(-1)
        words = np.zeros((*moved.shape, 2), fmt(self.dot.wei).dtype)
        words[..., 0] = moved
        return words.reshape(-1)

    def compensation(self, taps: Array, zero_point: int | Array) -> Array:
        """-zero point x sum of the weights whose taps fall on the image; one zero point, or one a channel."""
        p = self.problem
        zero_point = np.asarray(zero_point, np.int64)
        w = taps.astype(np.int64)
        if self.plan.compensate == "channel":
            return self.padded(wrap32(-zero_point * w.sum(axis=(1, 2))))
        edges = Edges.of(p)
        return edges.spread(self.padded(wrap32(-zero_point * edges.sums(w)))).reshape(-1)

    def finish(self, outputs: Mapping[str, Array]) -> Array:
        """dst in nchw."""
        p = self.problem
        return in_order(outputs["dst"].reshape(p.mb, p.oh, p.ow, p.oc).transpose(0, 3, 1, 2))
