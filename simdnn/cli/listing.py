"""`simdnn list`: what machines, workloads, ISA caps, kernels and instructions there are."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterable, Mapping
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any, TypeVar

import isa_models
from isa_models import GpuMachine, InvalidArgument, Machine, MachineFileError, UnknownName
from isa_models.errors import shortly, some, what_is_known
from isa_models.isa import caps, host_caps, implied
from isa_models.machines.loader import gpu_machine
from isa_models.plugins import failures, load
from simdnn.cli import output
from simdnn.cli.output import Rows

if TYPE_CHECKING:
    from simdnn.kernels import KernelKind

M = TypeVar("M", Machine, GpuMachine)
NAMED = 6  # of a kind, in the line of all kinds


def add(subparsers: Any) -> None:
    """Describe the command to argparse."""
    parser = subparsers.add_parser(
        "list",
        description="Lists what there is of a kind; without one, which kinds there are and how many of each.",
    )
    parser.add_argument("what", nargs="?", choices=tuple(LISTS), help="the kind (a line for each)")
    parser.add_argument("pattern", nargs="?", metavar="PATTERN", help="only names like this, as 'vpdp*' or '*:xe2_*'")
    parser.add_argument("--machine", metavar="M", help="of the kernels or modes, those that can run on this machine")
    parser.add_argument("--json", action="store_true", help="JSON on standard output instead of tables")
    parser.set_defaults(function=main)


def main(args: argparse.Namespace) -> int:
    """The command."""
    if args.machine and args.what not in ("kernels", "modes"):
        raise InvalidArgument(f"--machine={args.machine} belongs to `simdnn list kernels` and `simdnn list modes`")
    tables = {what: LISTS[what]() for what in ([args.what] if args.what else LISTS)}
    if args.machine and args.what == "modes":
        from simdnn.networks.precision import MODES

        target = isa_models.machine(args.machine)
        tables["modes"] = [row for row in tables["modes"] if MODES[row["mode"]].isa(target)]
    elif args.machine:
        from simdnn.primitives.run import Target

        able = Target.of(args.machine, None, 1, "auto", "fastest").caps
        tables["kernels"] = [row for row in tables["kernels"] if row["isa"] in able]
    if args.pattern:
        known, listed = [_name(row) for row in tables[args.what]], f"simdnn list {args.what}"
        tables[args.what] = [row for row in tables[args.what] if fnmatchcase(_name(row).lower(), args.pattern.lower())]
        if not tables[args.what]:
            begun = any(name.lower().startswith(args.pattern.lower()) for name in known)
            others = f": did you mean '{args.pattern}*'?" if begun else what_is_known(args.pattern, known, listed)
            raise UnknownName(f"none of {args.what} is like {shortly(args.pattern)}{others}")
    for failure in failures():
        _warn(failure)
    if args.json:
        output.print_json(tables[args.what] if args.what else tables)
    elif args.what:
        print(output.table(tables[args.what]))
    else:
        print(output.table([_overview(what, rows) for what, rows in tables.items()]))
        print("\nsimdnn list KIND has a row for each; --json has all of them")
    return 0


def _overview(what: str, rows: Rows) -> dict[str, Any]:
    """A kind in a line; the first column of its rows is the name."""
    return {"kind": what, "count": len(rows), "names": some([_name(row) for row in rows], NAMED)}


def _name(row: Mapping[str, Any]) -> str:
    return str(next(iter(row.values())))


def _sound(read: Callable[[str], M], names: Iterable[str]) -> list[M]:
    """The machines of these names; of a file in a user's package that breaks its schema a warning."""
    found = []
    for name in names:
        try:
            found.append(read(name))
        except MachineFileError as error:
            _warn(str(error))
    return found


def _warn(text: str) -> None:
    print(f"simdnn: warning: {text}", file=sys.stderr)


def machines() -> Rows:
    """The machines that have names, with the ISA caps of each."""
    rows = _sound(isa_models.cpu_machine, isa_models.machine_names())
    gpus = _sound(gpu_machine, isa_models.gpu_machine_names())
    return [
        {
            "machine": m.name,
            "cores": m.cores,
            "base_ghz": float(m.frequency.base_ghz),
            "instruction_forms": len(m.instructions),
            "title": m.title,
            "isa": " ".join(m.isa),
        }
        for m in rows
    ] + [
        {
            "machine": g.name,
            "cores": g.stacks * g.xe_cores,
            "base_ghz": float(g.ghz),
            "instruction_forms": 0,
            "title": g.title,
            "isa": g.platform.name,
        }
        for g in gpus
    ]


def workload_table() -> Rows:
    """The workloads that ship, with their size at batch 1."""
    import workloads

    rows = [workloads.load(name) for name in workloads.names()]
    return [
        {
            "workload": w.name,
            "layers": sum(layer.count for layer in w.layers),
            "gmacs": round(w.macs / 1e9, 3),
            "weights_millions": round(w.parameters / 1e6, 2),
            "title": w.title,
        }
        for w in rows
    ]


def modes() -> Rows:
    """The precision modes of `simdnn run`, `tune` and studies: what they store and how they compute."""
    from simdnn.networks.precision import MODES

    return [
        {"mode": mode.name, "by_default": "yes" if mode.default else "no", "title": mode.title}
        for mode in MODES.values()
    ]


def columns() -> Rows:
    """The columns of `simdnn run`'s tables."""
    from simdnn.cli.run_help import COLUMNS
    from simdnn.cli.run_show import HEADINGS

    return [{"column": HEADINGS.get(name, name), "in_files": name, "says": text} for name, text in COLUMNS.items()]


def isa_caps() -> Rows:
    """ISA caps, the machines that have each, and whether this host's CPU does."""
    known = _sound(isa_models.cpu_machine, isa_models.machine_names())
    return [
        {
            "isa": cap,
            "this_host": "yes" if cap in host_caps() else "no",
            "machines": " ".join(m.name for m in known if m.supports(cap)) or "-",
            "implies": " ".join(c for c in caps() if c != cap and c in implied(cap)) or "-",
        }
        for cap in caps()
    ]


def kernel_table() -> Rows:
    """The kernels that `simdnn.matmul` and `simdnn.convolution` choose from.

    For each: the types that it reads, multiplies, computes and adds up in, the layouts of weights and the parameters by
    group that it takes, its strategies of zero points, and whether its sums of integers are exact.
    """
    from isa_models.formats import fmt
    from simdnn.kernels.table import kernels

    def exact(kind: KernelKind) -> str:
        floats = fmt(kind.compute_dtype).is_float if kind.compute_dtype else False
        return "-" if floats else "yes" if kind.exact else "no"

    return [
        {
            "kernel": kind.name,
            "target": kind.target,
            "isa": kind.isa,
            "sources": "/".join(kind.sources),
            "weights": "/".join(kind.weights),
            "multiplied": kind.multiplied or "as stored",
            "compute_dtype": kind.compute_dtype or "as stored",
            "accumulates": "/".join(kind.accumulates),
            "layouts": "/".join(kind.tags),
            "takes": "/".join(kind.takes) or "-",
            "zero_points": "/".join(kind.strategies) or "-",
            "exact": exact(kind),
        }
        for kind in kernels()
    ]


def libraries() -> Rows:
    """The libraries whose bits `dispatch` follows by name, and what is asked of each."""
    from simdnn.libraries import LIBRARIES

    return [
        {"library": name, "title": library.title, "version": library.version, "answers": library.answers}
        for name, library in LIBRARIES.items()
    ]


def block_formats() -> Rows:
    """The types of blocks that weights are stored in, by ggml's names; those `made` can also be quantized to."""
    from isa_models.block_encoders import ENCODED
    from isa_models.block_formats import BLOCK_FORMATS

    return [
        {
            "block": form.name,
            "elements": form.elements,
            "bytes": form.bytes,
            "bits": form.bits,
            "group": form.group,
            "made": "yes" if form.name in ENCODED else "no",
            "activations": form.activations or "-",
            "stands_for": form.about,
        }
        for form in BLOCK_FORMATS.values()
    ]


def instructions() -> Rows:
    """The instructions that are modelled, with the types of their operands and register widths in bits."""
    load()
    return [
        {
            "instruction": i.name,
            "widths": "/".join(map(str, sorted(i.caps))),
            "result": i.result,
            "operands": ", ".join(f"{o.name}:{o.dtype}" for o in i.operands),
            "manual": i.manual,
        }
        for i in sorted((*isa_models.REGISTRY.values(), *isa_models.GPU_REGISTRY.values()), key=lambda i: i.name)
    ]


LISTS: dict[str, Callable[[], Rows]] = {
    "machines": machines,
    "workloads": workload_table,
    "modes": modes,
    "columns": columns,
    "isa": isa_caps,
    "kernels": kernel_table,
    "libraries": libraries,
    "blocks": block_formats,
    "instructions": instructions,
}
