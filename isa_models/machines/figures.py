"""The figures that a machine's file states, one a row, each with its standing and its source."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from isa_models.machines.content import content
from isa_models.machines.cpu_record import Machine
from isa_models.machines.gpu_record import GpuMachine


def figure_rows(machine: Machine | GpuMachine) -> list[dict[str, str]]:
    """Rows of figure (dotted key), value, confidence, source; those of single instructions are left out.

    >>> from isa_models import machine
    >>> next(row["value"] for row in figure_rows(machine("zen4")) if row["figure"] == "core.dispatch_slots")
    '6'
    """
    values = dict(_stated("", content(machine.path)))
    return [
        {"figure": key, "value": values.get(key, ""), "confidence": p.confidence, "source": p.source}
        for key, p in machine.provenance.items()
    ]


def _stated(prefix: str, table: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """The figures of a machine's file, as text by dotted key: a figure's value, or all of a row that has one source."""
    for key, value in table.items():
        for row in value if isinstance(value, list) else [value]:
            if not isinstance(row, dict):
                continue
            general = ["general"] * bool(row.get("general"))
            name = [row["name"]] if "name" in row else [*general, str(row["bits"])] if "bits" in row else []
            own = ".".join([*([prefix] if prefix else []), key, *(name if isinstance(value, list) else [])])
            if "source" in row:
                told = {k: v for k, v in row.items() if k not in ("source", "confidence", "name", "general")}
                yield own, _text(told["value"]) if "value" in told else " ".join(f"{k}={_text(told[k])}" for k in told)
            else:
                yield from _stated(own, row)


def _text(value: Any) -> str:
    return " ".join(map(_text, value)) if isinstance(value, list) else str(value)
