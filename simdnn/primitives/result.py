"""Results of primitives: values, what they cost, and where both come from."""

from __future__ import annotations

import hashlib
import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, is_dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from isa_models import GpuMachine, Machine, SimdnnError
from isa_models.errors import no_attribute
from isa_models.host import denormals
from isa_models.keywords import typed_parts
from isa_models.machines.provenance import Confidence
from isa_models.readings.arrays import Array
from isa_models.records.alike import Alike
from isa_models.records.display import InNotebooks
from simdnn.kernels.common.kernel import Kernel
from simdnn.kernels.common.problems import INNER, ConvProblem, MatmulProblem, Problem
from simdnn.late import frames, pd
from simdnn.libraries import is_reference
from simdnn.primitives import descriptors as memory
from simdnn.primitives.checks import integer
from simdnn.primitives.costs import Outlives
from simdnn.primitives.descriptors import MemoryDesc
from simdnn.progress import working
from simdnn.version import version

if TYPE_CHECKING:
    from simdnn.explanations.bounds import ErrorBound
    from simdnn.explanations.departures import Departures
    from simdnn.explanations.steps import Explanation
    from simdnn.primitives.prepared import Operands
    from simdnn.timing.estimate import Cost


@typed_parts("an estimate's conversion")
@dataclass(frozen=True)
class Conversion(InNotebooks):
    """The cost, once, to bring the user's weights to the kernel's type and layout, ahead of the runs.

    The column sums that integer kernels with s8 sources or zero points also want are not in it.
    """

    cycles: float
    seconds: float
    read_bytes: int
    written_bytes: int
    confidence: Confidence

    def _summary(self) -> dict[str, Any]:
        return vars(self)


def sources(machine: Machine | GpuMachine) -> dict[str, str]:
    """The sources of all numbers on a machine: its name, the digest of its file, the package's version."""
    digest = hashlib.sha256(machine.path.read_bytes()).hexdigest()
    return {"machine": machine.name, "machine_sha256": digest, "simdnn": version()}


class Priced(ABC, InNotebooks):
    """Anything with a cost: a primitive's kernel, a reorder, a quantization."""

    @property
    @abstractmethod
    def cost(self) -> Cost:
        """The clock's full answer; the properties below are parts of it."""

    @property
    def cycles(self) -> float:
        """Core cycles of one run, whatever the clock: `clock` says which one makes `seconds` of them."""
        return self.cost.cycles

    @property
    def seconds(self) -> float:
        """The time of one run: `cycles` at the clock that the machine holds for such code (`clock`)."""
        return self.cost.seconds

    @property
    def clock(self) -> str:
        """The clock by which `seconds` follow from `cycles`: GHz, the machine's figure, and the kind of code."""
        return self.cost.clock

    @property
    def bound(self) -> str:
        """The part that sets the time: compute, latency, front-end, or a memory level."""
        return self.cost.bound

    @property
    def confidence(self) -> Confidence:
        """The weakest standing among the figures used: measured, documented or estimated."""
        return self.cost.confidence

    @property
    def instructions(self) -> pd.DataFrame:
        """Frame: instruction, form, count, uops, ports, cycles_share."""
        return self.cost.instructions

    @property
    def causes(self) -> pd.DataFrame:
        """Frame: cause, cycles, share: what the cycles go to, waiting included; they add up to `cycles`.

        Causes: dot products, operand loads, decompression, conversion, zero points, epilogue, packing and copying,
        element by element, set-up and loop control; launch; waiting for results, waiting for memory.
        """
        return self.cost.causes

    @property
    def traffic(self) -> pd.DataFrame:
        """Frame: level, read_bytes, written_bytes, bytes_per_cycle, share_of_peak."""
        return self.cost.traffic

    def _cost_summary(self) -> dict[str, Any]:
        """The cost for a table, or why there is none."""
        try:
            return {
                "cycles": self.cycles,
                "time_us": self.seconds * 1e6,
                "bound": self.bound,
                "confidence": self.confidence,
            }
        except SimdnnError as error:  # a figure is missing
            return {"cost": f"none: {error}"}


@typed_parts("simdnn.estimate")
@dataclass(frozen=True, eq=False, repr=False)
class Estimate(Alike, Priced):
    """The cost of one problem with the kernel chosen for it, found when it is first asked for.

    `cycles` holds the conversion of weights that come in a plain layout (wei_tag "ab", "ba", "oihw"): the kernel does
    it in every run. For "any" it is done once before, which `conversion` tells and `amortised_cycles` shares out.

    Costs are those of `threads` cores; the candidates in `dispatch` are compared on one. A figure that the machine's
    table lacks raises `UnknownTiming`.
    """

    problem: Problem
    machine: Machine | GpuMachine
    isa: str  # the ISA cap of the kernel; of a GPU its platform
    implementation: str  # the kernel's name, e.g. "gemm:avx512_core_vnni"
    find_kernel: Callable[[], Kernel]
    find_told: Callable[[], Outlives]
    threads: int
    fpmath: str  # the math mode that was in force (a hint: see `compute_dtype`)
    find_cost: Callable[[], Cost]
    find_dispatch: Callable[[], pd.DataFrame]
    find_conversion: Callable[[], Conversion | None]
    library: str  # a library's own name of its implementation, where `dispatch` asked what that picks; else ""

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            """An error, which says of what only a run has how to come by it."""
            if not name.startswith("_") and name in {*vars(Result), *vars(Result)["__annotations__"]}:
                said = f"{type(self).__name__!r} object has no attribute {name!r}"
                said += ": it is a cost without values, which a primitive called on arrays has"
                raise AttributeError(said, name=name, obj=self)
            raise no_attribute(self, name)

    @cached_property
    def kernel(self) -> Kernel:
        """The kernel: its program, and what it makes of operands."""
        return self.find_kernel()

    @property
    def reference(self) -> bool:
        """Whether the library whose choice was asked for leaves the problem to its reference implementation.

        That is a loop over elements, many times slower than the kernel that yields its bits here and whose cycles are
        told.
        """
        return is_reference(self.library)

    @property
    def threads_at_work(self) -> int:
        """How many of `threads` have any work: no more than the kernel's parallel loops make blocks, however many."""
        from simdnn.timing.cpu.threads import at_work  # which brings the simulation of several cores

        return at_work(self.kernel.program, self.threads) if self.threads > 1 else 1

    @property
    def compute_dtype(self) -> str:
        """The type that products are formed in."""
        return self.find_told().compute_dtype

    @property
    def nbytes(self) -> int:
        """Bytes of the program's inputs and outputs, each once."""
        return self.find_told().nbytes

    @property
    def accumulation(self) -> str:
        """How a tile instruction orders a sum of floats: "even_odd" or "sequential"; "" where there is none.

        It is the machine's `numerics.amx_accumulation`.
        """
        return self.kernel.accumulation

    @property
    def float_model(self) -> str | None:
        """Which candidate says how DPAS rounds floats; None where no DPAS multiplies floats."""
        return getattr(self.problem, "float_model", None) or None

    @cached_property
    def dispatch(self) -> pd.DataFrame:
        """Every candidate kernel: implementation, isa, cycles on one core, chosen, and the reason.

        The chosen one first, then the others by their cycles; behind them those that were out.
        """
        return self.find_dispatch()

    @cached_property
    def cost(self) -> Cost:
        """The clock's full answer; the properties below are parts of it."""
        return self.find_cost()

    @cached_property
    def conversion(self) -> Conversion | None:
        """The conversion of weights ahead of time; None where the kernel reads them as the user stores them.

        Raises `Unimplemented` where no reorder makes the kernel's layout.
        """
        return self.find_conversion()

    def amortised_cycles(self, runs: int) -> float:
        """Cycles of one run where the weights are converted once for `runs` of them."""
        runs = integer("runs", runs)
        return self.cycles + (self.conversion.cycles / runs if self.conversion else 0.0)

    @cached_property
    def assumes(self) -> str:
        """The share taken for granted of a cache that other cores share; "" where their part is left to them.

        Where others are at work, cold weights (`simdnn.cold_weights`) are the other end.
        """
        from simdnn.timing.memory import borrowed  # the clock is imported at first use

        if not isinstance(self.machine, Machine):
            return ""
        bytes_, shares = borrowed(self.kernel.program, self.machine, self.cost.levels, self.threads)
        last = self.machine.caches[-1].name
        return f"{bytes_ / 1e6:.1f} MB stay in {last}, {shares:.1f} times an even share of it" if bytes_ else ""

    @property
    def src_desc(self) -> MemoryDesc:
        """The source as the kernel reads it: the user's type, rows contiguous or channels last."""
        return memory.src_desc(self.problem)

    @property
    def weights_desc(self) -> MemoryDesc:
        """The weights that the kernel wants: what `simdnn.reorder` takes."""
        return memory.weights_desc(self.problem, self.kernel)

    @property
    def dst_desc(self) -> MemoryDesc:
        """The destination as the kernel writes it; its type is never narrowed."""
        return memory.dst_desc(self.problem)

    @cached_property
    def provenance(self) -> dict[str, str]:
        """The sources of the numbers: machine and digest of its file, package version, the program's signature."""
        return sources(self.machine) | {"program": self.kernel.program.signature}

    @property
    def gops(self) -> float:
        """1e9 operations a second, a multiply-accumulate counted as 2."""
        return 2e-9 * self.problem.macs / self.seconds

    def _row(self) -> dict[str, Any]:
        """One flat record: the problem, the kernel, the cost."""
        cost = {"cycles": self.cycles, "time_us": self.seconds * 1e6, "gops": self.gops}
        return self._chosen() | cost | {"bound": self.bound, "confidence": self.confidence, "assumes": self.assumes}

    def _summary(self) -> dict[str, Any]:
        """The record, or why there is no cost."""
        try:
            return self._row()
        except SimdnnError:  # a figure is missing
            return self._chosen() | self._cost_summary()

    def _chosen(self) -> dict[str, Any]:
        """The problem and the kernel."""
        left_out = ("epilogue", "decompression")
        names = [f.name for f in fields(self.problem) if f.name not in left_out and f.metadata != INNER]
        sizes = {name: getattr(self.problem, name) for name in names}
        if isinstance(self.problem, MatmulProblem) and (parts := self.problem.decompression):
            sizes |= {"wei_scale": str(parts.scale or ""), "wei_zero_point": str(parts.zero_point or "")}
        flat = {
            key: "x".join(map(str, v)) if isinstance(v, tuple) else str(v) if is_dataclass(v) else v
            for key, v in sizes.items()
        }
        return {
            "primitive": "convolution" if isinstance(self.problem, ConvProblem) else "matmul",
            **flat,
            "dst": self.problem.epilogue.dst,
            "machine": self.machine.name,
            "isa": self.isa,
            "threads": self.threads,
            "fpmath": self.fpmath,
            "implementation": self.implementation,
            "compute_dtype": self.compute_dtype,
            "macs": self.problem.macs,
        }

    def to_frame(self) -> pd.DataFrame:
        """A frame of one row: the problem, the kernel, and its cost; units stand in the columns' names."""
        printed = ["implementation", "machine", "cycles", "time_us", "gops", "bound"]
        return frames.shown(pd.DataFrame([self._row()]), printed)

    def to_json(self) -> str:
        """The summary, `instructions`, `traffic`, `dispatch` and `provenance`, of a result `departures`, too.

        Missing figures are null, never NaN.
        """
        return json.dumps(plain(self._row() | self._records() | {"provenance": self.provenance}), allow_nan=False)

    def _records(self) -> dict[str, Any]:
        """The frames of `to_json`."""
        return {name: _records(getattr(self, name)) for name in ("instructions", "traffic", "dispatch")}

    def __repr__(self) -> str:
        try:
            cost = f"{self.cycles:.0f} cycles, {self.bound}"
            if self.threads > 1:
                busy = self.threads_at_work
                cost += (
                    f", {self.threads} threads"
                    if busy == self.threads
                    else f", {busy} of {self.threads} threads at work"
                )
            cost += f"; {self.assumes}" if self.assumes else ""
        except SimdnnError as error:  # a figure is missing
            cost = f"no cost: {error}"
        return f"{type(self).__name__}({self.implementation} on {self.machine.name}: {cost})"


@typed_parts("simdnn.matmul")
@dataclass(frozen=True, eq=False, repr=False)
class Result(Estimate):
    """An `Estimate` together with the values: `output` holds the exact bits that the kernel yields.

    `dst_scales`: those that a dynamic mode found, (…, M, N / columns of a group); else None.
    """

    output: Array
    _operands: Operands
    dst_scales: Array | None = None

    @classmethod
    def of(
        cls, estimate: Mapping[str, Any], output: Array, operands: Operands, dst_scales: Array | None = None
    ) -> Result:
        """A result that shares the fields of an estimate with others of its kind. `Result(**estimate, …)` would copy
        them, and to touch each takes longer than a small product.
        """
        made = object.__new__(cls)
        own = {"output": output, "_operands": operands, "dst_scales": dst_scales, "_shared": estimate}
        object.__setattr__(made, "__dict__", own)
        return made

    if not TYPE_CHECKING:  # for which the fields are those of the dataclass

        def __getattr__(self, name: str) -> Any:
            """A field that is shared."""
            try:
                return vars(self)["_shared"][name]
            except KeyError:
                raise no_attribute(self, name) from None

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        """The output, so that NumPy's functions take a result for it."""
        return np.array(self.output, dtype, copy=bool(copy) or None)

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *vars(self).get("_shared", ())})

    @cached_property
    def departed(self) -> Departures:
        """How the run departed from exact integers."""
        return self._operands.departures(self.output.shape)

    @property
    def saturation(self) -> Array | None:
        """For each output how often a step on its way to the sum saturated; None where nothing can saturate.

        Pairs of products saturate, and sums in s16; `departures` tells them apart, and all others from exact integers.
        """
        return self.departed.saturated

    @cached_property
    @working("departures from exact sums")
    def departures(self) -> pd.DataFrame:
        """Every departure from exact integer arithmetic, a row a kind that happened; empty where none did.

        Columns: kind; step (what did it); outputs (that met it) and their share of all; events (how often in all);
        changed (outputs whose sum it made another one); max_error (the largest change of a sum, before scales; of a
        clipped destination, of the result). Kinds: "saturated pair", "saturated sum" (of pairs, in s16), "halved
        weights" (an event is a product of an odd weight and a source that is not zero), "wrong reductions", "wrapped
        sum" (beyond s32), "rounded sum" (beyond 2**24 on its way to f32), "clipped destination". `attrs`: outputs,
        departing (those that met any kind), exact (none did), proven (none can, whatever the source), summary (a line
        of text).
        """
        return self.departed.frame()

    def departure_map(self, kind: str) -> Array:
        """How often a kind of `departures` happened on the way to each output: integers of the output's shape.

        Raises `InvalidArgument` for a kind that there is not.
        """
        return self.departed.counts(kind)

    @cached_property
    @working("error bounds")
    def error_bound(self) -> ErrorBound:
        """How far each output may be from exact arithmetic on the user's numbers, from the program's own roundings.

        `worst` is never exceeded, `probable` with a chance of 1 %, `error` is what it is: f64 of the output's shape.
        Found when it is first asked for, by a run in NumPy that takes some 50 times as long as engine="reference".

        >>> import numpy as np, simdnn
        >>> r = simdnn.matmul(np.ones((1, 64), "f4"), np.full((64, 16), 0.1, "f4"), machine="icx")
        >>> bound = r.error_bound
        >>> bool((bound.error <= bound.worst).all()), bool((bound.probable <= bound.worst).all())
        (True, True)
        """
        from simdnn.explanations.bounds import Bounded  # needed by bounds of errors alone

        return Bounded(self.departed)()

    def explain(self, *index: int) -> Explanation:
        """The chain of instructions that made the output element at `index`, with values, and the step at which it
        left the exact value: (row, column) of a matmul, (n, c, y, x) of a convolution.

        Raises `InvalidArgument` for an element that is not there.
        """
        with denormals.kept():
            return self._operands.explain(*index)

    def _row(self) -> dict[str, Any]:
        output = f"{'x'.join(map(str, self.output.shape))} {self.output.dtype}"
        return super()._row() | {"output": output, "departures": self.departed.summary}

    def _records(self) -> dict[str, Any]:
        facts = {name: self.departures.attrs[name] for name in ("exact", "proven")}
        return super()._records() | {"departures": _records(self.departures)} | facts


def _records(frame: pd.DataFrame) -> list[dict[str, Any]]:
    return [{str(key): value for key, value in row.items()} for row in frame.to_dict("records")]


def plain(value: Any) -> Any:
    """A value, and all within it, in JSON's types; NaN and infinities become None."""
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, list):
        return [plain(item) for item in value]
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float) and not np.isfinite(value):
        return None
    return value
