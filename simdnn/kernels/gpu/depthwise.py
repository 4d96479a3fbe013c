"""Depthwise convolution on a GPU's vector pipe: lanes run over channels, a thread makes neighbouring pixels of a row.

Matrix instructions would multiply zeros here, a group having one channel. Everything is multiplied and added up in f32,
tap after tap; sums of 8-bit integers are exact there for as many taps as `accepts` lets through. CPUs multiply in the
source's own type, in tiles with the epilogue of their products, so theirs is a kernel beside this one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from itertools import product
from math import prod

import numpy as np

from isa_models import GpuMachine
from isa_models.formats import fmt
from isa_models.readings.arrays import Array
from isa_models.readings.transposed_copy import in_order
from simdnn.kernels.common.code import Code, op
from simdnn.kernels.common.epilogue import Parameters
from simdnn.kernels.common.kernel import Kernel
from simdnn.kernels.common.narrow_floats import NARROW
from simdnn.kernels.common.postops import RELU
from simdnn.kernels.common.problems import ConvProblem
from simdnn.kernels.common.roles import PARAMETERS
from simdnn.kernels.common.vocabulary import filled, steps_of
from simdnn.kernels.gpu.grid import spread
from simdnn.kernels.gpu.postop import BlockPostOps
from simdnn.kernels.gpu.words import words_of
from simdnn.program.check import verify
from simdnn.program.records import SOURCE, WEIGHTS, Affine, Program, Register, Tensor

_PIXELS = 4  # of a thread
_MOST_TAPS = 225  # 255 - -128 times 128, so often, is still below 2**24; and a kernel's text stays short


def accepts(p: ConvProblem) -> bool:
    """Whether the kernel does a problem: a channel a group, of weights of bytes or more without a zero point."""
    if not p.depthwise or fmt(p.wei).bits < 8 or p.wei in NARROW:  # which are not loaded one by one
        return False
    return p.tap_rows * p.kw <= _MOST_TAPS and not p.epilogue.zp_wei


class GpuDepthwise:
    """The generator for one problem on one machine, whose vectors hold `lanes` channels."""

    def __init__(self, problem: ConvProblem, machine: GpuMachine, lanes: int) -> None:
        self.problem, self.machine, self.words = problem, machine, words_of(machine)
        p = problem
        self.lanes, self.pixels = lanes, min(_PIXELS if p.strides[1] < _PIXELS else 1, p.ow)
        *self.outer, self.columns = p.axes  # rows, and planes ahead of them; pixels of a row
        runs = -(-p.ow // self.pixels)
        self.grid = spread((p.mb, *(axis.o for axis in self.outer), runs, -(-p.oc // self.lanes)), machine)
        *full, runs, channels = self.grid.full
        self.dest = (*full, runs * self.pixels, channels * self.lanes)
        sides = zip(self.dest[1:-1], p.axes, strict=True)
        self.source = (full[0], *((n - 1) * axis.stride + axis.reach for n, axis in sides), self.dest[-1])

    # -- program --------------------------------------------------------------------------------------------------
    @property
    def name(self) -> str:
        return f"conv:{self.machine.platform.name}_depthwise"

    @cached_property
    def program(self) -> Program:
        p, body = self.problem, [*self.start(), *self.taps(), *self.epilogue()]
        code = self.grid.nest(body)
        return verify(Program(f"{self.name} {p}", self.machine.platform.name, tuple(self.tensors()), tuple(code)))

    def tensors(self) -> list[Tensor]:
        p = self.problem
        return [
            Tensor("src", p.src, prod(self.source), role=SOURCE),
            Tensor("wei", p.wei, self.taps_of_a_channel * self.dest[-1], role=WEIGHTS),
            *(Tensor(name, "f32", size, role=PARAMETERS.get(name, "")) for name, size in self.parameters.items()),
            *self.post_ops.tensors(self.dest[-1], prod(self.dest)),
            Tensor("dst", p.epilogue.dst, prod(self.dest), "output"),
        ]

    @cached_property
    def post_ops(self) -> BlockPostOps:
        """Post-operations behind the sums, but for relu, over one row of channels."""
        e = self.problem.epilogue
        return BlockPostOps(e.post_ops, self.words, 1, self.lanes, e.dst)

    @property
    def parameters(self) -> dict[str, int]:
        """Tensors that the epilogue reads, f32, and their elements."""
        e, channels = self.problem.epilogue, self.dest[-1]
        asked = {
            "zp_src": e.zp_src,
            "src_scale": e.src_scale,
            "wei_scale": bool(e.wei_scale),
            "bias": e.bias,
            "zero": RELU in e.post_ops,
            "dst_scale": e.dst_scale,
            "dst_zero_point": e.dst_zero_point,
        }
        return {name: channels if name in ("wei_scale", "bias") else 1 for name, wanted in asked.items() if wanted}

    @property
    def taps_of_a_channel(self) -> int:
        return self.problem.tap_rows * self.problem.kw

    def register(self, name: str) -> Register:
        return Register(name, "f32", self.lanes)

    def start(self) -> Code:
        """Sums of zero, and the parameters."""
        bits = [self.register(f"c{i}").as_("u32") for i in range(self.pixels)]
        code: Code = [op(self.words.names["xor"], r, r, r) for r in bits]
        for name, size in self.parameters.items():
            at = self.channel * self.lanes if size > 1 else Affine()
            code += self.words.load(name, name, "f32", at, self.lanes, same=size == 1)
        return [*code, *self.post_ops.column(0, self.channel * self.lanes), *self.post_ops.start()]

    def as_float(self, name: str, tensor: str, dtype: str, at: Affine) -> Code:
        """A vector of a tensor in a register as f32."""
        code, value = self.words.load(name, tensor, dtype, at, self.lanes), self.register(name)
        return code if fmt(dtype).is_float else [*code, *self.words.apply("float", value, value)]

    def taps(self) -> Code:
        """Row by row of the kernel; a pixel of the source is loaded once for all that read it."""
        p, steps, code = self.problem, steps_of(self.source), Code()
        c, columns = self.channel, self.columns
        base = self.position(steps, [axis.stride for axis in p.axes])
        for row, taps in enumerate(product(*(range(axis.k) for axis in self.outer))):
            moved = zip(taps, self.outer, steps[1:], strict=False)
            line = base + sum(tap * axis.dilation * step for tap, axis, step in moved)
            loaded: set[int] = set()
            for w in range(columns.k):
                at = c * self.lanes + (row * columns.k + w) * self.dest[-1]
                code += self.as_float("k", "wei", p.wei, at)
                for i in range(self.pixels):
                    column = i * columns.stride + w * columns.dilation
                    value = self.register(f"x{column % self.reach}")
                    if column not in loaded:
                        loaded.add(column)
                        code += self.as_float(value.name, "src", p.src, line + column * steps[-2])
                        if p.epilogue.zp_src:
                            code += self.words.apply("sub", value, value, self.register("zp_src"))
                    acc = self.register(f"c{i}")
                    code += self.words.apply("fma", acc, value, self.register("k"), acc)
        return code

    @property
    def channel(self) -> Affine:
        """A thread's vector of channels."""
        return self.grid.index(len(self.grid.extents) - 1)

    def position(self, steps: Sequence[int], strides: Sequence[int]) -> Affine:
        """A thread's first element in a tensor of these steps, where pixels lie as far apart as `strides` say."""
        image, *places, run, channel = (self.grid.index(axis) for axis in range(len(self.grid.extents)))
        moved = zip([*places, run * self.pixels], strides, steps[1:], strict=False)
        return image * steps[0] + sum((at * (s * step) for at, s, step in moved), channel * self.lanes)

    @property
    def reach(self) -> int:
        """Pixels of a row of the source from the first to the last that one tap reads: what is kept at a time."""
        return (self.pixels - 1) * self.columns.stride + 1

    def epilogue(self) -> Code:
        p, code, steps = self.problem, Code(), steps_of(self.dest)
        dst, first = p.epilogue.dst, self.position(steps, [1] * len(p.axes))
        before = ("src_scale", "mul"), ("wei_scale", "mul"), ("bias", "add")
        for i in range(self.pixels):
            acc, at = self.register(f"c{i}"), first + i * steps[-2]
            code += self.with_parameters(acc, before)
            for number, post_op in enumerate(p.epilogue.post_ops):
                if post_op == RELU:
                    code += self.words.apply("max", acc, acc, self.register("zero"))
                else:
                    code += self.post_ops.code(number, acc, 0, self.channel * self.lanes, at)
            code += self.with_parameters(acc, (("dst_scale", "mul"), ("dst_zero_point", "add")))
            if not fmt(dst).is_float:
                code += self.words.apply("nearest", acc, acc)
                acc = acc.as_("s32")
            code += self.words.store("dst", dst, at, acc)
        return code

    def with_parameters(self, acc: Register, steps: Sequence[tuple[str, str]]) -> Code:
        """Steps with those parameters that there are."""
        asked = ((name, step) for name, step in steps if name in self.parameters)
        return [made for name, step in asked for made in self.words.apply(step, acc, acc, self.register(name))]

    # -- between the user's arrays and the program's -----------------------------------------------------------------
    def kernel(self) -> Kernel:
        return Kernel(self.name, self.program, self.prepare, self.finish, "f32", ("wei",))

    def prepare(self, src: Array, weights: Array, given: Parameters) -> dict[str, Array]:
        """Channels last, filled up; pixels beyond the edge hold the zero point."""
        p, channels = self.problem, self.dest[-1]
        edges = ((0, 0), *((axis.before, axis.behind) for axis in p.axes), (0, 0))
        padded = np.pad(np.moveaxis(src, 1, -1), edges, constant_values=src.dtype.type(given.zp_src))
        inside = padded[(slice(None), *(slice(size) for size in self.source[1:-1]))]

        def per_channel(values: Array | None) -> Array:
            assert values is not None
            return filled(np.broadcast_to(values.astype(np.float32).reshape(-1), (p.oc,)), (channels,))

        made: dict[str, Callable[[], Array]] = {
            "zp_src": lambda: np.array([given.zp_src], np.float32),
            "src_scale": lambda: np.array([given.src_scale], np.float32),
            "wei_scale": lambda: per_channel(given.wei_scale),
            "bias": lambda: per_channel(given.bias),
            "zero": lambda: np.zeros(1, np.float32),
            "dst_scale": lambda: np.array([1], np.float32) / np.float32(given.dst_scale),
            "dst_zero_point": lambda: np.array([given.dst_zero_point], np.float32),
        }
        taps = weights.reshape(p.oc, self.taps_of_a_channel).T
        found = {"src": filled(inside, self.source), "wei": filled(taps, (self.taps_of_a_channel, channels))}
        found |= self.post_ops.arrays(given, per_channel, self.outputs)
        return found | {name: made[name]() for name in self.parameters}

    def outputs(self, values: Array) -> Array:
        """An array as large as the output, channels last, filled up."""
        p = self.problem
        return filled(values.reshape(p.mb, *(axis.o for axis in p.axes), p.oc), self.dest)

    def finish(self, outputs: Mapping[str, Array]) -> Array:
        p = self.problem
        sizes = p.mb, *(axis.o for axis in p.axes), p.oc
        inside = outputs["dst"].reshape(self.dest)[tuple(slice(size) for size in sizes)]
        return in_order(np.moveaxis(inside, -1, 1))
