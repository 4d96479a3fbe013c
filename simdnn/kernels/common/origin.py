"""Which element of the user's arrays each element of a kernel's tensors is, found by asking `prepare` itself.

The arrays are filled with the digits of their own indices, one digit at a time, and what `prepare` makes of them is
read back. So this holds for any layout, and nothing about a layout is written a second time.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from isa_models.formats import fmt, name_of
from isa_models.readings.arrays import Array
from simdnn.kernels.common.epilogue import Parameters
from simdnn.kernels.common.kernel import Kernel

_SOURCES = ("src", "matrix", "vector")


@dataclass(frozen=True, eq=False)
class Origin:
    """Where a tensor's elements come from: an operand, the flat index of each (-1: padding), and a factor."""

    operand: str  # "src" | "weights"
    shape: tuple[int, ...]  # of the user's array
    index: Array  # of an element of the tensor, or of those that its elements, words, pack
    factor: float = 1.0
    dtype: str = ""  # of the elements

    def label(self, bit: int) -> str:
        """The element that lies at a bit of the tensor, e.g. "src[0,12]"; "padding" where the user has nothing."""
        flat = int(self.index[bit // fmt(self.dtype).bits])
        if flat < 0:
            return "padding"
        return f"{self.operand}[{','.join(str(i) for i in np.unravel_index(flat, self.shape))}]"


def origins_of(kernel: Kernel, src: Array, weights: Array, parameters: Parameters) -> dict[str, Origin]:
    """The tensors that hold the user's elements one by one (those of nibbles do not)."""
    found = _origins(kernel, src, weights, parameters, "")
    if fmt(kernel.compute_dtype).is_float:  # words may pack what the user's numbers are converted to
        found = _origins(kernel, src, weights, parameters, kernel.compute_dtype) | found
    return found


def _origins(kernel: Kernel, src: Array, weights: Array, parameters: Parameters, packed: str) -> dict[str, Origin]:
    """The tensors of the user's elements where words pack elements of a type ("": the user's own)."""
    marks = _prepared(kernel, src, weights, parameters, None, packed)
    found = {}
    for name, (values, dtype) in marks.items():
        operand, array = ("weights", weights) if name in kernel.weights else ("src", src)
        found[name] = Origin(operand, array.shape, np.zeros(values.size), float(values.max()) / 2, dtype)
    for digit in range(max(_digits(src), _digits(weights))):
        for name, (values, _) in _prepared(kernel, src, weights, parameters, digit, packed).items():
            array = weights if name in kernel.weights else src
            if found[name].factor:
                found[name].index[:] += (values / found[name].factor / 2 - 1) * float(_base(array)) ** digit
    result = {}
    for name, origin in found.items():
        mark = marks[name][0]
        index = np.where(mark == 0, -1, origin.index)
        size = (weights if name in kernel.weights else src).size
        whole = (index == np.rint(index)).all() and (index >= -1).all() and (index < size).all()
        if origin.factor in (0.5, 1.0) and np.isin(mark, (0, 2 * origin.factor)).all() and whole:
            result[name] = replace(origin, index=index.astype(np.int64))
    return result


def _base(array: Array) -> int:
    """The base of digits: twice a digit and two more is a number of the type."""
    form = fmt(name_of(array.dtype))
    return 3 if form.bits < 8 or (form.is_float and form.bits == 8) else 60


def _digits(array: Array) -> int:
    count = 1
    while _base(array) ** count < array.size:
        count += 1
    return count


def _prepared(
    kernel: Kernel, src: Array, weights: Array, parameters: Parameters, digit: int | None, packed: str
) -> dict[str, tuple[Array, str]]:
    """The tensors of elements and their types, for arrays that hold two and twice a digit of their index; or two alone
    (None)."""
    filled = []
    for array in (src, weights):
        index = np.arange(array.size).reshape(array.shape)
        digits = index * 0 if digit is None else index // _base(array) ** digit % _base(array)
        filled.append((2 * digits + 2).astype(array.dtype))
    inputs = kernel.prepare(filled[0], filled[1], parameters)
    names = (*kernel.weights, *_SOURCES)
    found = {}
    for name in names:
        if name in inputs:
            elements = inputs[name].reshape(-1)
            if elements.dtype == np.uint32:  # on GPUs, whose registers hold elements packed
                own = (weights if name in kernel.weights else src).dtype
                elements = _unpacked(elements, fmt(packed).dtype if packed else own)
            with np.errstate(all="ignore"):
                found[name] = elements.astype(np.float32), name_of(elements.dtype)
    return found


def _unpacked(words: Array, dtype: np.dtype[Any]) -> Array:
    """The elements that words pack; of 4 bits both halves of each byte, the high one 0 where it holds one element."""
    stored = words.view(np.uint8)
    if fmt(name_of(dtype)).bits == 4:
        stored = np.stack([stored & 15, stored >> 4], axis=-1).reshape(-1)
    return stored.view(dtype)
