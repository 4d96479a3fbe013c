"""Compressed weights as they lie in memory, and their rows in registers.

A kernel's own layout is panels of columns, row by row; 4-bit weights there have two rows in a byte. Plain rows
("ab") are read in place, 4-bit ones two columns to a byte. What else is plain is brought into panels first.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import numpy.typing as npt

from isa_models.formats import decode, fmt
from isa_models.readings.arrays import Array, to_a_line
from simdnn.kernels.common.code import Code, op
from simdnn.kernels.common.narrow_floats import is_narrow
from simdnn.kernels.common.pack import Blocked, Layout, filled
from simdnn.kernels.common.weight_cache import made_of
from simdnn.kernels.x86.code import Unit, broadcast32, load32, zero
from simdnn.kernels.x86.constants import Constants
from simdnn.kernels.x86.narrow import Decoding, LookUp, by_fields
from simdnn.kernels.x86.narrow import widen as widen_codes
from simdnn.kernels.x86.packing import Packing
from simdnn.kernels.x86.packing import stored as plain
from simdnn.kernels.x86.tile import Panel
from simdnn.program.records import WEIGHTS, Affine, Memory, Op, Register, Tensor


def in_nibbles(dtype: str) -> bool:
    """Whether weights of a type are stored two to a byte."""
    return fmt(dtype).bits == 4


@dataclass(frozen=True)
class StoredRows:
    """Weights (k, n) of type `wei`, an integer, a float of at most a byte or f32, laid out as `tag` says; `layout` has
    the kernel's panels. `by`: "table" or "arithmetic" of codes that become floats either way; "": nibbles by a table.
    """

    unit: Unit
    wei: str
    tag: str
    k: int
    n: int
    layout: Layout
    by: str = ""
    words: Constants | None = None  # of floats that become f32

    @property
    def nibbles(self) -> bool:
        return in_nibbles(self.wei)

    @property
    def direct(self) -> bool:
        """Whether rows are read as the user stores them: whole bytes, and without masks whole registers of them."""
        if self.nibbles:
            return self.tag == "ab" and self.n > 1
        return self.tag == "ab" and (self.unit.masks or self.n % self.unit.lanes == 0)

    @property
    def paired(self) -> bool:
        """Whether a byte holds two rows, the first one's nibble low."""
        return self.nibbles and not self.direct

    @property
    def looked_up(self) -> bool:
        """Whether nibbles become floats by a table of sixteen in a register, rather than integers by shifts."""
        return self.nibbles and self.unit.masks and self.by != "arithmetic"

    @cached_property
    def decoding(self) -> Decoding | LookUp | None:
        """How codes one a byte become floats."""
        return decoding_of(self.words, self.wei, self.by) if self.words else None

    @property
    def held(self) -> int:
        """Registers that `setup` fills, one at least."""
        return held_of(self.decoding)

    @property
    def floats(self) -> bool:
        """Whether `load` leaves f32."""
        return self.wei == "f32" or self.looked_up or is_narrow(self.wei)

    @property
    def _dtype(self) -> str:
        return "u8" if self.nibbles or is_narrow(self.wei) else self.wei

    @property
    def _rows(self) -> int:
        """Rows of elements in memory, in panels."""
        return -(-self.k // 2) if self.nibbles else self.k

    @property
    def _packed_tag(self) -> str:
        """Nibbles that are not read in place are neighbours along K, a single column's ones, too."""
        return "ba" if self.nibbles else self.tag

    @property
    def _packing(self) -> Packing | None:
        if self.tag == "any" or self.direct:
            return None
        blocked = Blocked(self.unit.isa, self._dtype, replace(self.layout, depth=1, icp=self._rows), self._rows)
        return Packing(self.unit, plain(self._packed_tag, self._dtype, blocked), blocked, to="stored")

    @property
    def halves(self) -> bool:
        """Whether `setup` leaves half a register of scratch."""
        return isinstance(self.decoding, Decoding) and self.decoding.fields.special

    def tensors(self) -> list[Tensor]:
        constants = self.decoding.tensors() if self.decoding else self.words.tensors() if self.words else []
        if self.looked_up:
            constants = [Tensor.constant("nibbles", "f32", _values(self.wei).tobytes())]
        elif self.wei == "u4":
            constants = [Tensor.constant("nibble", "u32", np.uint32(15).tobytes())]
        return constants + self._weights()

    def _weights(self) -> list[Tensor]:
        if self.direct:
            return [Tensor("stored", self._dtype, -(-self.k * self.n // (1 + self.nibbles)), role=WEIGHTS)]
        found = [Tensor("plain", self._dtype, self._rows * self.n, role=WEIGHTS)] if self._packing else []
        kind = "scratch" if self._packing else "input"
        for name, width in (("", self.layout.full * self.layout.width), ("_tail", self.layout.tail)):
            found += [Tensor(f"stored{name}", self._dtype, self._rows * width, kind, role=WEIGHTS)] if width else []
        return found

    def stage(self) -> Code:
        """The stage from plain weights to panels; empty where they are read in place."""
        return self._packing.stage() if self._packing else []

    def arrays(self, weights: Array) -> dict[str, Array]:
        """The tensors of weights (k, n) in their storage type."""
        what = "stored", self.wei, self.layout, self.tag
        return dict(made_of(weights, what, lambda: self._arrays(weights)))

    def _arrays(self, weights: Array) -> dict[str, Array]:
        if is_narrow(self.wei):
            rows = weights.view(np.uint8)
        else:
            rows = weights.astype({"s4": np.int8, "u4": np.uint8}[self.wei]) if self.nibbles else weights
        if self.direct:
            return {"stored": to_a_line(_bytes(rows.T).T if self.nibbles else rows).reshape(-1)}
        rows = _bytes(rows) if self.nibbles else rows
        if self._packing:
            return {"plain": to_a_line(rows.T if self._packed_tag == "ba" else rows).reshape(-1)}
        wide = filled(rows, self.layout.channels)
        whole = self.layout.full * self.layout.width
        panels = wide[:, :whole].reshape(len(rows), self.layout.full, self.layout.width).transpose(1, 0, 2)
        return {"stored": to_a_line(panels).reshape(-1), "stored_tail": wide[:, whole:].reshape(-1)}

    # -- rows in registers ------------------------------------------------------------------------------------------
    def setup(self, kept: Sequence[str], scratch: str) -> Code:
        """Loads what `load` finds in the registers `kept`, if it wants it."""
        if self.decoding:
            return self.decoding.setup(kept, scratch)
        return [load32(self.unit, self.unit.reg(kept[0], "f32"), "nibbles", Affine(), 16)] if self.looked_up else []

    def load(self, to: Sequence[str], scratch: str, kept: Sequence[str], panel: Panel, j: int, row: Affine) -> Code:
        """One row or two from `row` on to the registers `to`, of vector `j` of a panel: 32-bit integers, or f32
        where weights are floats or `looked_up`.

        Two rows begin at an even one.
        """
        table = kept[0]
        if self.paired:
            return self._pair(to, scratch, table, panel, j, row)
        unit, live = self.unit, panel.lanes[j] if self.direct else self.unit.lanes
        width = panel.vectors * unit.lanes
        if self.direct:
            tensor, at, stride = "stored", row * self.n + panel.dst + j * unit.lanes, self.n
        else:
            tensor, stride = panel.tensor.replace("wei", "stored"), width
            at = panel.number * (self._rows * width) + row * width + j * unit.lanes
        if self.nibbles:
            rows = enumerate(to)
            return [o for i, r in rows for o in self._columns(r, scratch, table, _half(at + i * stride), live)]
        if self.wei == "f32":
            return [load32(unit, unit.reg(r, "f32"), tensor, at + i * stride, live) for i, r in enumerate(to)]
        code: Code = []
        for i, r in enumerate(to):
            place = Memory(tensor, at + i * stride, self._dtype, live)
            code += self.decoding.load(r, place, scratch, kept) if self.decoding else [widen(unit, r, place)]
        return code

    def _arithmetic(self, register: str, scratch: str, other: str) -> Code:
        """A narrow float's codes as f32, without a table."""
        assert self.words
        return widen_codes(self.words, register, fmt(self.wei), (scratch, other))

    def _pair(self, to: Sequence[str], scratch: str, table: str, panel: Panel, j: int, row: Affine) -> Code:
        """The two nibbles of each byte of a panel, or the low ones alone."""
        unit, width = self.unit, panel.vectors * self.unit.lanes
        at = panel.number * (self._rows * width) + _half(row) * width + j * unit.lanes
        low, high = unit.reg(to[0]), unit.reg(to[-1])
        tensor = panel.tensor.replace("wei", "stored")
        code: Code = [op("vpmovzxbd", low, Memory(tensor, at, "u8", unit.lanes))]
        if len(to) > 1 and (self.wei == "u4" or self.looked_up or is_narrow(self.wei)):
            code += [op("vpsrld", high, low, imm=4)]
            code += self._lowest(to[1], scratch, table) if self.wei != "u4" or self.looked_up else []
        elif len(to) > 1:
            code += [op("vpslld", high, low, imm=24), op("vpsrad", high.as_("s32"), high.as_("s32"), imm=28)]
        return code + self._lowest(to[0], scratch, table)

    def _columns(self, register: str, scratch: str, table: str, at: Affine, live: int) -> Code:
        """A row's `live` nibbles, two to a byte, from byte `at` on."""
        packed = Register(register, "u8", 16)
        size = -(-live // 2)
        whole = {8: ("vmovq", "u64"), 4: ("vmovd", "u32")}.get(size)
        code: Code
        if whole:
            name, dtype = whole
            code = [op(name, packed.as_(dtype), Memory("stored", at, dtype, 1))]
        elif self.unit.masks:
            code = [op("vmovdqu8", packed, Memory("stored", at, "u8", size))]
        else:
            code = [zero(packed)]
            code += [op("vpinsrb", packed, packed, Memory("stored", at + i, "u8", 1), imm=i) for i in range(size)]
        odd = Register(scratch, "u8", 16)
        code += [
            op("vpsrlw", odd.as_("u16"), packed.as_("u16"), imm=4),
            op("vpunpcklbw", packed, packed, odd),
            op("vpmovzxbd", self.unit.reg(register), Register(register, "u8", self.unit.lanes)),
        ]
        return code + self._lowest(register, scratch, table)

    def _lowest(self, register: str, scratch: str, table: str) -> Code:
        """The lowest four bits of each lane as a number."""
        value = self.unit.reg(register)
        if self.looked_up:
            return [op("vpermps", value.as_("f32"), value, self.unit.reg(table, "f32"))]
        if is_narrow(self.wei):
            return self._arithmetic(register, scratch, table)
        if self.wei == "u4":
            mask = self.unit.reg(scratch)
            return [broadcast32(mask, "nibble", Affine()), op("vpand", value, value, mask)]
        signed = value.as_("s32")
        return [op("vpslld", value, value, imm=28), op("vpsrad", signed, signed, imm=28)]


def decoding_of(words: Constants, wei: str, by: str) -> Decoding | LookUp | None:
    """How codes one a byte become floats; None of other weights."""
    if in_nibbles(wei) or not is_narrow(wei):
        return None
    return (Decoding if by != "table" and by_fields(fmt(wei), fmt("f16")) else LookUp)(words, wei)


def held_of(decoding: Decoding | LookUp | None) -> int:
    """Registers that are held to decode: of nibbles a table's."""
    return max(1, len(decoding.constants) if decoding else 0)


def odd_nibbles(wei: str, tag: str, k: int, n: int) -> str:
    """The fault of plain 4-bit weights whose rows or columns share a byte; empty where nothing is."""
    run_length = n if tag == "ab" else k
    if not in_nibbles(wei) or tag == "any" or run_length % 2 == 0 or n == 1 or (k == 1 and tag == "ab"):
        return ""
    run = f"rows (N = {n})" if tag == "ab" else f"columns (K = {k})"
    return f"reads plain {wei} weights in whole bytes: {run} of an even length, or wei_tag='any'"


def widen(unit: Unit, register: str, source: Memory) -> Op:
    """Bytes to 32-bit lanes."""
    name, wide = ("vpmovsxbd", "s32") if source.dtype == "s8" else ("vpmovzxbd", "u32")
    return op(name, unit.reg(register, wide), source)


def _values(wei: str) -> npt.NDArray[np.float32]:
    """The number that each nibble stands for.

    >>> _values("s4").astype(int).tolist()
    [0, 1, 2, 3, 4, 5, 6, 7, -8, -7, -6, -5, -4, -3, -2, -1]
    """
    if is_narrow(wei):
        return decode(np.arange(16, dtype=np.uint8), wei)
    nibbles = np.arange(16)
    return np.where((nibbles > 7) & (wei == "s4"), nibbles - 16, nibbles).astype(np.float32)


def _half(at: Affine) -> Affine:
    return Affine(at.const // 2, tuple((name, coefficient // 2) for name, coefficient in at.terms))


def _bytes(rows: Array) -> Array:
    """Two rows in a byte, the first one's nibble low."""
    if len(rows) % 2:
        rows = np.concatenate([rows, np.zeros_like(rows[:1])])
    low, high = rows[0::2].astype(np.uint8) & 15, rows[1::2].astype(np.uint8) & 15
    return (low | high << 4).astype(np.uint8)
