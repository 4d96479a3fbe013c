"""A depthwise convolution as a library's kernel goes through it, for the clock alone: pixels by vectors of channels,
over the image as it is.

    for each run of lines whose windows reach over the image alike, each block of pixels, each few vectors of channels:
        for each tap that lies on the image: its weights, its pixels, multiply-accumulate

Columns of a kernel next to each other share their pixels where there are registers for them (`held`): each brings one
new pixel. Values come from `Depthwise`. An instruction here may stand for another one of as many uops on the same
ports, which this package lacks: `vpand` for a masked move, an idiom of zero, which takes a slot alone, for one on
general registers, a load of 16 bytes for one of an address.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from simdnn.kernels.common.code import Code, loop, nest, op
from simdnn.kernels.common.problems import ConvProblem
from simdnn.kernels.common.sums import RegisterTile
from simdnn.kernels.x86.code import Unit, broadcast32, load_float, zero
from simdnn.kernels.x86.direct import OutputKind, blocks_along, kinds_along, on_image
from simdnn.kernels.x86.dots import BF16, BF16_EMULATED, FMA, VNNI
from simdnn.kernels.x86.epilogue import Plan, TileSums, finish_tile
from simdnn.kernels.x86.tile import weights_of
from simdnn.program.check import verify
from simdnn.program.records import SOURCE, WEIGHTS, Affine, Memory, Op, Program, Register, Tensor

#: instructions on general registers a tap, counted in the library's code: pointers, and how far the block reaches over
#: the image's two edges; where it looks at one edge, or at none, taps take as long. Those that load: both addresses of
#: the tap, and how far it reaches over either edge. With s8, it also asks first whether all of the tap lies beside the
#: image
_SLOTS, _LOADS = 18, 4
_ASKED = 3
_RECORD = 12  # elements of 32 bits that these have, 40 bytes, on whole loads
#: slots that stay empty behind the four branches that are taken at a tap of pixels that are not held: half a group each
_BRANCHES = 10
#: slots of the jump to the pixels beside an edge of the image: three instructions, half a group behind it
_EDGE = 6


@dataclass(frozen=True)
class Walk:
    """One convolution, the unit, and the library's tile: `rows` pixels by `vectors` of channels."""

    problem: ConvProblem
    unit: Unit
    tile: RegisterTile
    plan: Plan
    emulated: bool = False  # bf16 by an older kernel, without bf16 arithmetic
    widens: bool = False  # bf16 to f32, and multiplies that

    @property
    def held(self) -> bool:
        """Whether pixels of a column stay in registers for the next."""
        return self.tile.held

    @property
    def acc(self) -> str:
        return "s32" if self.integer else "f32"

    def program(self, name: str) -> Program:
        p = self.problem
        pixels = p.mb * p.oh * p.ow
        tensors = [
            Tensor("src", p.src, p.mb * p.ih * p.iw * p.ic, role=SOURCE),
            Tensor("wei", p.read or p.wei, p.kh * p.kw * p.ic, role=WEIGHTS),
            *([] if self.emulated else [Tensor.constant("taps", "u32", bytes(4 * _RECORD * p.kh * p.kw))]),
            *([Tensor.constant("constants", "u32", bytes([255] * 4 + [128] * 4))] if self.integer else []),
            *self.plan.tensors(self.unit, p.oc, 1, pixels * p.oc),
            Tensor("dst", p.epilogue.dst, pixels * p.oc, "output"),
        ]
        code: Code = []
        for lines in kinds_along(p.axes[0]):
            code += nest([("n", p.mb), ("e", lines.times), ("y", lines.count)], self.line(lines), parallel=True)
        return verify(Program(f"{name} {p}", self.unit.isa, tuple(tensors), tuple(code)))

    def line(self, lines: OutputKind) -> Code:
        """All tiles of a line; neighbours whose windows lie on the image in a loop."""
        code: Code = []
        for first, height, count in self.blocks():
            pixel = Affine.var("r") * height + first
            for channel, vectors, times in self.channels():
                body = self.block(lines, pixel, first, height, channel, vectors)
                code += nest([("r", count), ("j", times)], body)
        return code

    def blocks(self) -> Iterator[tuple[int, int, int]]:
        """(first pixel, pixels, how many) of tiles alike."""
        return blocks_along(self.problem.axes[1], self.tile.rows)

    def inside(self, pixel: int, w: int) -> bool:
        """Whether a pixel's tap of a column lies on the image."""
        return on_image(self.problem.axes[1], pixel, w)

    def channels(self) -> Iterator[tuple[Affine, int, int]]:
        """(first channel, vectors, how many) of blocks of channels."""
        lanes, most = self.unit.lanes, self.tile.vectors
        vectors = -(-self.problem.ic // lanes)
        whole, rest = divmod(vectors, most)
        if whole:
            yield Affine.var("j") * (most * lanes), most, whole
        if rest:
            yield Affine(whole * most * lanes), rest, 1

    def block(self, lines: OutputKind, pixel: Affine, first: int, height: int, channel: Affine, vectors: int) -> Code:
        """One tile from nothing to the destination; `first`: a pixel that reaches over the image as its first does."""
        p, unit = self.problem, self.unit
        (rows, columns), n, y, u = p.axes, Affine.var("n"), Affine.var("y"), Affine.var("u")
        sums = [[unit.reg(f"c{i}_{j}", self.acc) for j in range(vectors)] for i in range(height)]
        line = n * p.ih + (y + lines.first) * rows.stride + (u + lines.tap) * rows.dilation + -rows.before
        begin = line * (p.iw * p.ic) + (pixel * columns.stride + -columns.before) * p.ic + channel
        code: Code = [zero(acc) for row in sums for acc in row]
        if self.integer:
            code.append(broadcast32(unit.reg("mask"), "constants", Affine()))
        if self.shifted:
            code.append(broadcast32(unit.reg("shift"), "constants", Affine(1)))
        body: Code = []
        for w in range(p.kw):
            body += self.column(sums, first, begin, (u + lines.tap) * p.kw + w, channel, w)
        code += loop("u", lines.taps, body)
        if self.shifted:
            code += loop("u", p.kh - lines.taps, self.beside(sums, p.kw, channel))
        return code + self.stored(sums, lines, pixel, channel)

    def column(
        self, sums: list[list[Register]], first: int, begin: Affine, tap: Affine, channel: Affine, w: int
    ) -> Code:
        """One tap, of column `w`, of a tile's pixels; beside the image a shifted source counts all the same."""
        p, columns, names = self.problem, self.problem.axes[1], self.names(len(sums[0]))
        inside, code = [self.inside(first + i, w) for i in range(len(sums))], self.looked_up(tap)
        if not (any(inside) or self.shifted):
            return code
        at = tap * p.ic + channel
        code += self.found(at, len(sums[0]))
        if self.shifted and not all(inside):
            code += 2 * (self.slots(_EDGE) + self.found(at, len(sums[0])))  # for the pixels beside either edge
        for i, row in enumerate(sums):
            place = i * columns.stride + w * columns.dilation
            if not inside[i]:
                code += [s for j, acc in enumerate(row) for s in self.product(acc, "shift", names[j]) if self.shifted]
                continue
            new = w == 0 or i == len(sums) - 1 or not self.inside(first + i + 1, w - 1)
            for j, acc in enumerate(row):
                source = begin + place * p.ic + j * self.unit.lanes
                if p.src == "f32" and self.unit.masks and not self.held:
                    value = Memory("src", source, "f32", self.unit.lanes)
                    code.append(op("vfmadd231ps", acc, acc, self.unit.reg(names[j], "f32"), value))
                    continue
                alone = "v" if p.src == "f32" else "a"  # which weights of f32 may have
                a = f"a{place % (len(sums) + p.kw - 1)}_{j}" if self.held else alone
                code += self.source(a, source) if new or not self.held else []
                code += self.product(acc, a, names[j])
        return code

    def beside(self, sums: list[list[Register]], taps: int, channel: Affine) -> Code:
        """Taps beside the image of a source that is shifted: products of the shift."""
        code: Code = []
        names = self.names(len(sums[0]))
        for w in range(taps):
            code += self.looked_up(Affine(w)) + self.found(channel + w * self.problem.ic, len(sums[0]))
            code += [s for row in sums for j, acc in enumerate(row) for s in self.product(acc, "shift", names[j])]
        return code

    def names(self, vectors: int) -> list[str]:
        """Registers of weights: those first that the epilogue wants later, and that hold no pixel."""
        if self.problem.src == "f32" and not self.held:
            return ["p", "a", "b0", "b1"][:vectors]
        return weights_of(vectors)

    def looked_up(self, tap: Affine) -> Code:
        """The search for the pixels and weights of a tap, as the library has it."""
        if self.emulated:
            return []
        record = Memory("taps", tap * _RECORD, "u32", 4)
        load = op("vmovdqu", Register.of("p", "u32", record.lanes), record)
        slots = _SLOTS + _ASKED * self.shifted + (0 if self.held else _BRANCHES)
        loads = _LOADS + self.shifted
        return [load] * loads + self.slots(slots - loads)

    def slots(self, count: int) -> Code:
        """Empty ones, one for each instruction."""
        return [zero(self.unit.reg("p"))] * count

    def found(self, at: Affine, vectors: int) -> Code:
        """The weights of a tap."""
        names = self.names(vectors)
        return [s for j, name in enumerate(names) for s in self.weights(name, at + j * self.unit.lanes)]

    def stored(self, sums: list[list[Register]], lines: OutputKind, pixel: Affine, channel: Affine) -> Code:
        """A tile's epilogue. Lanes of integers are put in order first, where a register was filled by quarters."""
        p, unit = self.problem, self.unit
        first = (Affine.var("n") * p.oh + Affine.var("y") + lines.first) * p.ow + pixel
        rows = [(first + i) * p.oc + channel for i in range(len(sums))]
        final = TileSums(unit, sums, [unit.lanes] * len(sums[0]), rows, channel, rows)
        by_quarters = self.integer and unit.masks
        order = [op("vpermd", acc.as_("u32"), unit.reg("mask"), acc.as_("u32")) for row in sums for acc in row]
        return [*(order if by_quarters else ()), *finish_tile(self.plan, final)]

    @property
    def integer(self) -> bool:
        return self.problem.wei == "s8"

    @property
    def shifted(self) -> bool:
        return self.problem.src == "s8"

    def weights(self, register: str, at: Affine) -> Code:
        unit, p = self.unit, self.problem
        if p.read:
            return load_float(unit, register, "wei", p.read, at, unit.lanes)
        if p.wei != "s8":
            return self._float(register, "wei", p.wei, at)
        if not unit.masks:
            return [op("vpmovsxbd", unit.reg(register, "s32"), Memory("wei", at, "s8", unit.lanes))]
        value = unit.reg(register)
        return [self.quarters(value, "wei", at), op("vpand", value, value, unit.reg("mask"))]

    def source(self, register: str, at: Affine) -> Code:
        unit, p = self.unit, self.problem
        if p.wei != "s8":
            return self._float(register, "src", p.src, at)
        if not unit.masks:
            name, kind = ("vpmovzxbd", "u32") if p.src == "u8" else ("vpmovsxbd", "s32")
            return [op(name, unit.reg(register, kind), Memory("src", at, p.src, unit.lanes))]
        value = unit.reg(register)
        shift = [op("vpaddb", value.as_("s8"), value.as_("s8"), unit.reg("shift", "s8"))]
        return [self.quarters(value, "src", at), *(shift if self.shifted else ())]

    @staticmethod
    def quarters(value: Register, tensor: str, at: Affine) -> Op:
        """The 16 bytes at `at` into each quarter of a register."""
        return op("vbroadcasti32x4", value, Memory(tensor, at, "u32", 4))

    def _float(self, register: str, tensor: str, dtype: str, at: Affine) -> Code:
        if dtype == "bf16" and not self.widens:
            return [op("vpmovzxwd", self.unit.reg(register), Memory(tensor, at, "u16", self.unit.lanes))]
        return load_float(self.unit, register, tensor, dtype, at, self.unit.lanes)

    def product(self, acc: Register, a: str, b: str) -> list[Op]:
        dot = VNNI if self.integer else FMA
        if self.problem.wei == "bf16" and not self.widens:
            dot = BF16_EMULATED if self.emulated else BF16
        return dot.emit(self.unit, acc.name, a, b, "t0")
