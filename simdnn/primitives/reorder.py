"""simdnn.reorder: an array in another type or layout, made ahead of time; values and cost, as any primitive's."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from os import PathLike
from typing import TYPE_CHECKING, Any

import numpy as np

from isa_models import GpuMachine, InvalidArgument, Machine, Unimplemented
from isa_models.formats import check_codes, fmt, name_of
from isa_models.isa import implied
from isa_models.keywords import typed_parts
from isa_models.readings.arrays import Array
from isa_models.records.alike import Alike
from simdnn.kernels.common import pack
from simdnn.kernels.common.pack import Blocked, Layout
from simdnn.kernels.common.weight_cache import KnownWeights
from simdnn.kernels.gpu.problem import GpuMatmulProblem
from simdnn.kernels.x86 import packing
from simdnn.primitives import arrays, narrow_reorder
from simdnn.primitives.checks import keywords, one_of, target_of
from simdnn.primitives.costs import priced_program
from simdnn.primitives.descriptors import PLAIN, MemoryDesc, plain_weights, weights_desc
from simdnn.primitives.dispatch import Choice
from simdnn.primitives.result import Conversion, Priced
from simdnn.program.records import Program

if TYPE_CHECKING:
    from simdnn.timing.estimate import Cost

_STRONGEST = ("avx512_core_bf16", "avx512_core", "avx2")
_BY_COLUMNS = ("ba", "acb")
_OFTEN = 3  # weights of one layout that are packed: a network's own are twice at most
_LEAST, _OFTENER = 1 << 11, 32  # bytes, and how often fewer are packed by NumPy, which takes some 50 us longer
_WIDENED = (("s8", "s16"), ("f16", "f32"), ("bf16", "f32"))  # types whose numbers another one has, too


@typed_parts("simdnn.reorder")
@dataclass(frozen=True, eq=False)
class Reordered(Alike, Priced):
    """The outcome of `simdnn.reorder`: data in the layout `desc`, and what it cost; `matmul` takes it as weights."""

    desc: MemoryDesc
    source: MemoryDesc  # what it was made of
    machine: Machine
    isa: str  # the ISA cap whose instructions made it
    tensors: Mapping[str, Array]  # by the names that the kernel's program has; nobody changes them
    program: Program

    def __post_init__(self) -> None:
        for array in self.tensors.values():
            array.setflags(write=False)

    @functools.cached_property
    def cost(self) -> Cost:
        """The clock's full answer, on one core; raises `UnknownTiming`."""
        return priced_program(self.program, self.machine)

    @property
    def output(self) -> Array:
        """The data: flat in memory's order where the layout is a kernel's own, "ba" or "acb", else of its shape."""
        flat = np.concatenate(list(self.tensors.values()))
        return flat if self.desc.blocked or self.desc.tag in _BY_COLUMNS else flat.reshape(self.desc.shape)

    def plain(self) -> Array:
        """The data as an ordinary array of the desc's shape and type."""
        return self.values.copy()

    @property
    def values(self) -> Array:
        """The data as an ordinary array that cannot be written to: what products multiply."""
        return self._known.values

    @functools.cached_property
    def _known(self) -> KnownWeights:
        """The data, with what kernels make of it."""
        desc = self.desc
        if desc.blocked:
            values = pack.plain(self.tensors, desc.blocked, desc.shape)
        elif desc.tag in _BY_COLUMNS:
            *outer, rows, columns = desc.shape
            values = self.tensors["wei"].reshape(*outer, columns, rows).swapaxes(-1, -2)
        else:
            values = self.tensors["wei"]
        known = KnownWeights(np.ascontiguousarray(values).reshape(desc.shape), stays=True)
        if desc.blocked:
            known.add(desc.blocked, self.tensors)
        return known

    @functools.cached_property
    def described(self) -> str:
        """All that its layouts tell, in a text: calls look up what they decided by it."""
        return f"{self.desc!r} {self.desc.blocked!r} {self.source!r}"

    def _summary(self) -> dict[str, Any]:
        where = {"machine": self.machine.name, "isa": self.isa}
        return {"from": self.source, "to": self.desc, "bytes": self.desc.nbytes, **where, **self._cost_summary()}

    def __repr__(self) -> str:
        return f"Reordered({self.source} to {self.desc} on {self.machine.name})"


@keywords
def reorder(
    array: Array,
    desc: MemoryDesc,
    *,
    machine: str | PathLike[str] | Machine,
    isa: str | None = None,
    engine: str = "auto",
) -> Reordered:
    """Bring `array` into the type and layout of `desc`, as a program on `machine` does: its bits and its cost.

    `desc` is what `simdnn.estimate(…).weights_desc` asks for, or a plain one: "ab" or "ba" for a matrix, "abc" or "acb"
    for several (a batch's count stands for its sizes), the array's own layout for more dimensions. Types: as they are;
    f32 to bf16, f16 or tf32, to nearest even as the machine's instructions round (tf32 is kept as f32); bf16 or f16 to
    f32. Between f8_e4m3 or f8_e5m2 and f32, bf16, f16, from f32 to f4_e2m1 and e8m0, and back, plain layouts are
    converted as oneDNN 3.13 does it: by way of f16 to f8, without saturating, and below avx512_core_fp16 without the
    sign of zero. Raises `InvalidArgument` where the shapes differ, `Unimplemented` for other conversions and where the
    machine has no instruction for one, `UnknownTiming` when an unknown cost is asked.

    >>> import numpy as np, simdnn
    >>> attr = simdnn.Attr(fpmath="bf16")
    >>> wanted = simdnn.estimate("matmul", m=128, n=48, k=64, machine="zen4", attr=attr).weights_desc
    >>> packed = simdnn.reorder(np.ones((64, 48), np.float32), wanted, machine="zen4")
    >>> packed.output.dtype.name, packed.output.shape  # flat, as the kernel reads it
    ('bfloat16', (3072,))
    >>> simdnn.matmul(np.ones((128, 64), np.float32), packed, machine="zen4", attr=attr).output[0, 0]
    np.float32(64.0)
    """
    found, caps = target_of(machine, isa)
    one_of("engine", engine, ("auto", "compiled", "reference"))
    if not isinstance(desc, MemoryDesc):
        example = "simdnn.MemoryDesc(array.shape, 'bf16', 'ab')"
        raise InvalidArgument(f"desc={desc!r:.60}; a simdnn.MemoryDesc is needed, as {example}")
    dtype = arrays.type_of("array", array, ("e8m0",))
    source = MemoryDesc(array.shape, dtype, PLAIN.get(array.ndim, ("any",))[0])
    if narrow_reorder.takes_part(dtype, desc.dtype):
        made = narrow_reorder.conversion(source, desc, found, caps)
        return Reordered(desc, source, found, made.isa, narrow_reorder.values(made, array, desc, engine), made)
    blocked = _wanted(desc, source, caps)
    if blocked.isa not in caps:
        raise Unimplemented(f"{desc} is made by {blocked.isa}, which {found.name!r} does not have up to this isa")
    need = packing.CONVERSIONS.get((dtype, blocked.dtype), "")
    if dtype != blocked.dtype and need not in implied(blocked.isa):
        works = ", ".join(f"{a} to {b}" for (a, b), cap in packing.CONVERSIONS.items() if cap in caps)
        missing = f", which needs {need}" if need else ""
        raise Unimplemented(f"reorder of {dtype} to {blocked.dtype}{missing}: on {found.name} work {works}")
    rows = _of_matrices(desc) and (desc.blocked is not None or desc.tag in _BY_COLUMNS)
    program = packing.reorder("ab" if rows else "oihw", dtype, blocked)
    from simdnn import numerics  # brings LLVM

    with np.errstate(all="ignore"):
        tensors = numerics.run(program, {"plain": arrays.native(array).reshape(-1)}, engine=engine)
    return Reordered(desc, source, found, blocked.isa, {name: tensors[name] for name in blocked.sizes}, program)


def conversion(choice: Choice) -> Conversion | None:
    """The reorder from NumPy's own layout that a kernel's weights need ahead of time; None where it is given another.

    Raises `Unimplemented` where no reorder makes the kernel's layout.
    """
    problem, kernel, machine, cold = choice.problem, choice.kernel, choice.request.machine, choice.request.cold_weights
    if isinstance(machine, GpuMachine):
        if not isinstance(problem, GpuMatmulProblem):
            return None
        from simdnn.primitives import gpu_conversion  # with kernels that CPUs do not need

        return gpu_conversion.conversion(problem, machine, kernel.program, cold)
    plain, wanted = plain_weights(problem), weights_desc(problem, kernel)
    if problem.wei_tag != "any" or wanted == plain:
        return None
    if kernel.blocked is None:
        raise Unimplemented(f"the cost of bringing weights into the layout of {kernel.name}: no reorder makes it")
    program = packing.reorder(plain.tag, problem.wei, kernel.blocked)
    cost = priced_program(program, machine, ("plain",) if cold else ())
    sizes = {kind: sum(t.nbytes for t in program.tensors if t.kind == kind) for kind in ("input", "output")}
    return Conversion(cost.cycles, cost.seconds, sizes["input"], sizes["output"], cost.confidence)


class Packer:
    """The way of weights, as the user stores them, into a kernel's own layout, by the program of a reorder."""

    def __init__(self, blocked: Blocked, tag: str, dtype: str) -> None:
        self.what, self.names = (tag, dtype, blocked), tuple(blocked.sizes)
        self.met = 0  # weights
        self.fill: Any = None  # what runs the program at once; False where nothing does

    def __call__(self, weights: Array) -> Mapping[str, Array] | None:
        """The panels; None the first times, which take longer to compile the program than NumPy to pack."""
        self.met += 1
        if self.met < (_OFTENER if weights.nbytes < _LEAST else _OFTEN):
            return None
        if self.fill is None:
            self.fill = self._engines.filling_of(self._program)
        if self.fill and weights.flags.c_contiguous:
            panels: Mapping[str, Array] | None = self.fill(weights)
            if panels is not None:
                return panels
            self.fill = None
        made = self._engines.run(self._program, {"plain": weights.reshape(-1)}, engine="compiled")
        return {name: made[name] for name in self.names}

    @functools.cached_property
    def _program(self) -> Program:
        return packing.reorder(*self.what)

    @functools.cached_property
    def _engines(self) -> Any:
        from simdnn import numerics  # brings LLVM

        return numerics


@functools.lru_cache(maxsize=256)
def packer(blocked: Blocked, tag: str, dtype: str) -> Packer | None:
    """The way of weights of a type into a layout; None where numbers would change."""
    return Packer(blocked, tag, dtype) if blocked.dtype == dtype or (dtype, blocked.dtype) in _WIDENED else None


def plain_of(weights: object) -> tuple[Any, str]:
    """An argument's weights as an array, and the type that the user had them in."""
    if isinstance(weights, Reordered):
        return weights.values.reshape(weights.source.shape), weights.source.dtype
    return weights, arrays.type_of("weights", weights)


def known_or_plain(weights: Any) -> Any:
    """An argument's weights as an array, or what is known of a reorder's outcome.

    Raises `InvalidArgument` for codes of a registered format that have more bits than it.
    """
    if type(weights) is Reordered:
        return weights._known
    if weights.dtype.names:
        check_codes(np.ascontiguousarray(weights).view(np.uint8), fmt(name_of(weights.dtype)))
    return weights


def _of_matrices(desc: MemoryDesc) -> bool:
    """Whether a layout is that of a matrix (K, N), or of several."""
    return len(desc.shape) in (2, 3)


def _wanted(desc: MemoryDesc, source: MemoryDesc, caps: frozenset[str]) -> Blocked:
    """The layout to make: a kernel's own, the columns of a matrix, or the elements in their order as one column."""
    spread = desc.blocked or _of_matrices(desc)  # whose sizes in front may be several, or none
    alike = spread and prod(desc.shape) == prod(source.shape) and source.shape[-2:] == desc.shape[-2:]
    if desc.shape != source.shape and not alike:
        raise InvalidArgument(f"array of shape {source.shape} for {desc}; the shapes must be the same")
    if desc.blocked:
        return desc.blocked
    if desc.tag == "any":
        raise InvalidArgument("tag 'any' is no layout to bring data to; ask for one: simdnn.estimate(…).weights_desc")
    if not _of_matrices(desc) and desc.tag not in ("oihw", "goihw", "nchw"):
        works = "matrices ab and ba, abc and acb, other arrays in their own order"
        raise Unimplemented(f"reorder to {desc.tag!r}; what works: {works}")
    isa = next((cap for cap in _STRONGEST if cap in caps), "avx2")
    count, length, columns = 1, prod(desc.shape), 1
    if desc.tag in _BY_COLUMNS:
        *outer, length, columns = desc.shape
        count = prod(outer)
    held = fmt(desc.dtype)
    layout, rounds = Layout(count, columns, 1, 0, 1, length), desc.dtype if held.container else ""
    return Blocked(isa, held.lanes, layout, length, rounds=rounds)
