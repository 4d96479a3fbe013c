"""`python -m benchmarks.recipes [NETWORK,…]`: the recipes of docs/validation/tuning.md, priced by the present clock.

They are kept in docs/validation/data/recipes.json: what `simdnn tune NETWORK … --json` chose for each machine, with the
cycles and the loss that the page shows. Pricing runs no values but those of calibration: some seconds a recipe. With
`keep FILE.json` (the output of such a command) the recipes that it chose are put in place of those that were kept.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import isa_models
import workloads
from isa_models.errors import unknown_name
from simdnn.networks.sequential import Place
from simdnn.tuning.tune import fetched

KEPT = Path(__file__).parents[1] / "docs" / "validation" / "data" / "recipes.json"
Kept = dict[str, dict[str, dict[str, Any]]]  # by network, by machine: cycles, loss, layers of each mode


def kept() -> Kept:
    """The recipes of the page."""
    found: Kept = json.loads(KEPT.read_text(encoding="utf-8"))
    return found


def recipe(layers: Mapping[str, Sequence[str]]) -> dict[str, str]:
    """The mode of each layer, of the layers of each mode.

    >>> recipe({"f32": ["fc"], "bf16": ["conv1", "conv2"]})
    {'fc': 'f32', 'conv1': 'bf16', 'conv2': 'bf16'}
    """
    return {layer: mode for mode, names in layers.items() for layer in names}


def chosen(found: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Recipes that a search chose, by machine, of the JSON that `simdnn tune` prints.

    >>> row = {"row": 0, "machine": "zen4", "cycles": 9.6, "loss": 0.01234567, "chosen": True}
    >>> chosen({"front": [row], "recipes": {"0": {"a": "f32", "b": "f32"}}})
    {'zen4': {'cycles': 10, 'loss': 0.012346, 'layers': {'f32': ['a', 'b']}}}
    """
    rows = [row for row in found["front"] if row["chosen"]]
    made = {}
    for row in rows:
        layers: dict[str, list[str]] = {}
        for layer, mode in found["recipes"][str(row["row"])].items():
            layers.setdefault(mode, []).append(layer)
        made[row["machine"]] = {"cycles": round(row["cycles"]), "loss": round(row["loss"], 6), "layers": layers}
    return made


def keep(path: str) -> None:
    """Put what a search chose in place of what was kept."""
    found = json.loads(Path(path).read_text(encoding="utf-8"))
    content = kept() if KEPT.exists() else {}
    content.setdefault(found["model"], {}).update(chosen(found))
    ordered = {name: content[name] for name in workloads.REAL_NETWORKS if name in content}
    KEPT.write_text(json.dumps(ordered, indent=1) + "\n", encoding="utf-8")


def priced(networks: Sequence[str]) -> list[dict[str, Any]]:
    """network, machine, cycles as kept and now, change in per cent, of each recipe; those alone of networks that have
    been fetched.
    """
    rows, known = [], kept()
    for name in networks:
        if name not in known:
            raise unknown_name("network with recipes", name, known)
        own = known[name]
        subject, *_ = fetched(workloads.REAL_NETWORKS[name], Place(next(iter(own))))
        for machine, one in own.items():
            now = subject.on(isa_models.machine(machine)).priced(recipe(one["layers"])).cycles
            change = 100 * (now / one["cycles"] - 1)
            rows.append({"network": name, "machine": machine, "kept": one["cycles"], "now": now, "change_%": change})
            print(f"{name:8}{machine:8}{one['cycles']:>14,.0f}{now:>14,.0f}{change:>8.2f} %", flush=True)
    return rows


def main(*words: str) -> None:
    """Price, or keep what a search chose."""
    if words[:1] in (("-h",), ("--help",)):
        print(__doc__)
        return
    if words[:1] == ("keep",):
        for path in words[1:]:
            keep(path)
        return
    print(f"{'network':8}{'machine':8}{'kept':>14}{'now':>14}{'change':>10}")
    priced(words[0].split(",") if words else list(kept()))


if __name__ == "__main__":
    main(*sys.argv[1:])
