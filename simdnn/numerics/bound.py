"""A program bound to inputs that stay: a run of it finds their addresses ready, and asks for those of the others alone.

What a call of a small primitive takes is Python's time, most of it for arrays that are the same in every call.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from numpy import ndarray

from isa_models.formats import fmt
from isa_models.host.memory import LINE, address
from isa_models.readings.arrays import Array
from simdnn.numerics import compiled
from simdnn.numerics.buffers import constant_of, input_of
from simdnn.numerics.covered import as_left, maker
from simdnn.numerics.runner import runner
from simdnn.program.check import verify
from simdnn.program.records import Program, Tensor, walk

_UNBOUND = "unbound"


class Inputs(dict[str, Any]):
    """Inputs that stay, and the program that is bound to them."""

    bound: Bound | None = None
    call: Any = None  # what runs the program on them at once, for who made it ready; False where nothing does

    def to(self, program: Program) -> Bound:
        """The program, bound to these."""
        if self.bound is None or self.bound.program is not program:
            self.bound = Bound(program, self)
        return self.bound


class Given(NamedTuple):
    """An input that comes with each run: its place among the tensors, and the bytes whose multiple its address is."""

    place: int
    tensor: Tensor
    dtype: Any
    line: int


class Room(NamedTuple):
    """Memory that a run writes: its place among the tensors, bytes, and what makes it as a run may find it."""

    place: int
    name: str
    size: int
    dtype: Any
    make: Any
    comes_back: bool
    private: bool
    stays: bool  # whether a run may find what the one before left there


class Bound:
    """A proved program with some of its inputs, which nobody changes any more."""

    def __init__(self, program: Program, inputs: Mapping[str, Any]) -> None:
        self.program = verify(program)
        self.code: compiled.Compiled | None = None  # once it is made well
        self.addresses: list[int] = []  # 0 for those that a run has to find
        self._held: list[Array] = []  # arrays at those addresses
        self.given: list[Given] = []
        self.rooms: list[Room] = []
        self.large = self.program.executed >= compiled.SHARED_OPS
        read = _bytes_read(program)
        for place, tensor in enumerate(program.tensors):
            place_of = 0
            if tensor.kind == "constant" or tensor.name in inputs:
                array = constant_of(tensor) if tensor.kind == "constant" else input_of(program, tensor, inputs)
                self._held.append(array)
                place_of = address(array)
            elif tensor.kind == "input":
                once = read[tensor.name] <= tensor.nbytes  # no more than a copy to the beginning of a line would
                self.given.append(Given(place, tensor, fmt(tensor.dtype).dtype, 1 if once else LINE))
            else:
                make, dtype = maker(program, tensor), fmt(tensor.dtype).dtype
                size, back, private = tensor.size * dtype.itemsize, tensor.kind == "output", tensor.kind == "private"
                stays = private or as_left(program, tensor)
                self.rooms.append(Room(place, tensor.name, size, dtype, make, back, private, stays))
            self.addresses.append(place_of)
        self._running: compiled.Compiled | None = None  # the code that `_run` calls
        self._run: Callable[..., int] = max

    def run(self, others: Mapping[str, Any]) -> dict[str, Array] | None:
        """The outputs, from the inputs that are not bound; None where a run wants more than one call a stage, raises
        the alarm, or finds no memory: `numerics.run` does it then.
        """
        code = self.ready() if self.large or self.code is None else self.code
        if code is None:
            return None
        if code is not self._running:
            places = [*(one.place for one in self.given), *(room.place for room in self.rooms)]
            self._run, self._running = runner(code.stages, self.addresses, places), code
        arrays: list[Array] = []
        for _, tensor, dtype, line in self.given:
            array: Any = others.get(tensor.name)
            plain = type(array) is ndarray and array.dtype == dtype and array.size == tensor.size
            if not (plain and array.flags.c_contiguous) or line > 1 and address(array) % line:
                array = input_of(self.program, tensor, others)
            arrays.append(array)
        outputs: dict[str, Array] = {}
        for _, name, size, dtype, make, comes_back, *_ in self.rooms:
            try:
                array = make(size, dtype)
            except MemoryError:
                return None
            arrays.append(array)
            if comes_back:
                outputs[name] = array
        return None if self._run(arrays[0], *arrays) else outputs

    def ready(self) -> compiled.Compiled | None:
        """The machine code, kept once it is made well; of a large program asked for each time, which more cores may
        share by now.
        """
        code = compiled.at_once(self.program)
        self.code = None if code is None or code.hasty else code
        return code


def _bytes_read(program: Program) -> Counter[str]:
    """The bytes that all loads of a run take from each tensor."""
    read: Counter[str] = Counter()
    for op, times in walk(program.body):
        if (place := op.memory) is not None and place is not op.dst:
            read[place.tensor] += times * place.bits // 8
    return read


def unbound(program: Program) -> Bound:
    """A proved program bound to nothing but its constants, kept with it: all inputs come with each run."""
    kept = vars(program)
    if (found := kept.get(_UNBOUND)) is None:
        found = kept[_UNBOUND] = Bound(program, {})
    return found
