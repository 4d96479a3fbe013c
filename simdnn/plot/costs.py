"""Subjects of pictures of costs: one result, several, or several with names; each as costs of kernels that add up."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from isa_models import InvalidArgument
from isa_models.errors import counted
from simdnn.networks.result import NetworkEstimate
from simdnn.primitives.result import Priced
from simdnn.timing.causes import CAUSES, LAUNCH, MEMORY, RESULTS

if TYPE_CHECKING:
    from simdnn.timing.estimate import Cost

Costed = Priced | NetworkEstimate
_WANTED = "a Result, an Estimate, a NetworkResult, a list of them, or a mapping from names to them is needed"


def named(results: Any) -> dict[str, Costed]:
    """The results by their names: what a mapping says, else the kernel and the machine."""
    if isinstance(results, Costed):
        results = [results]
    if isinstance(results, Mapping):
        found = {str(name): result for name, result in results.items()}
    elif isinstance(results, Sequence) and not isinstance(results, str | bytes):
        found = {}
        for result in results:
            name = title(result) if isinstance(result, Costed) else ""
            count = sum(other.startswith(name) for other in found)
            found[f"{name} ({count + 1})" if name in found else name] = result
    else:
        raise InvalidArgument(f"results: met {type(results).__name__}; {_WANTED}")
    if wrong := [type(result).__name__ for result in found.values() if not isinstance(result, Costed)]:
        raise InvalidArgument(f"results: met {wrong[0]}; {_WANTED}")
    if not found:
        raise InvalidArgument("no results; nothing to draw")
    return found


def title(result: Costed) -> str:
    """The title of a result, for people."""
    if isinstance(result, NetworkEstimate):
        return f"{counted(len(result.nodes), 'node')} on {result.machine.name}"
    kernel, machine = getattr(result, "implementation", type(result).__name__), getattr(result, "machine", None)
    return f"{kernel} on {machine.name}" if machine else str(kernel)


def costs(result: Costed) -> Iterator[Cost]:
    """The cost of each kernel that a result ran."""
    if isinstance(result, NetworkEstimate):
        for run in result.nodes:
            for call in run.calls:
                yield call.find_cost()
    else:
        yield result.cost


def cycles_by_cause(result: Costed) -> dict[str, float]:
    """Cycles by `timing.causes.CAUSES`, those that a result has none of left out; they add up to all."""
    found = dict.fromkeys(CAUSES, 0.0)
    for cost in costs(result):
        for cause, cycles in cost.work.causes(cost.cycles).items():
            found[cause] += cycles
    return {cause: cycles for cause, cycles in found.items() if cycles}


def cycles_by_instruction(result: Costed) -> dict[str, float]:
    """Cycles of work by instruction, most first, and behind them what is waited for; they add up to all."""
    found: dict[str, float] = {}
    waits = dict.fromkeys((LAUNCH, RESULTS, MEMORY), 0.0)
    for cost in costs(result):
        causes = cost.work.causes(cost.cycles)
        working = cost.cycles - sum(causes.get(name, 0.0) for name in waits)
        for form in cost.forms:
            found[form.instruction] = found.get(form.instruction, 0.0) + form.cycles_share * working
        for name in waits:
            waits[name] += causes.get(name, 0.0)
    ordered = dict(sorted(found.items(), key=lambda item: -item[1]))
    return ordered | {name: cycles for name, cycles in waits.items() if cycles}


def bytes_by_level(result: Costed) -> dict[str, tuple[int, int]]:
    """Bytes read and written by level, the nearest first."""
    found: dict[str, tuple[int, int]] = {}
    for cost in costs(result):
        for level in cost.levels:
            read, written = found.get(level.level, (0, 0))
            found[level.level] = read + level.read_bytes, written + level.written_bytes
    return found
