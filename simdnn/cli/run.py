"""`simdnn run`: a workload on a machine in several precision modes, speed and error of each."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Any

import isa_models
import workloads
from isa_models import InvalidArgument
from isa_models.errors import some
from isa_models.machines.loader import AnyMachine
from simdnn.cli import output, run_blame, run_help, run_kinds, run_porting, run_prompt, run_show
from simdnn.cli.options import Takes, add_set, add_shape, check, check_model, comma_list, machine_with
from simdnn.late import pd
from simdnn.libraries import LIBRARIES, versions
from simdnn.networks.precision import MODES, Mode, choose, choose_each, recipe
from simdnn.networks.runner import Frames
from simdnn.networks.sequential import Place
from simdnn.progress import Progress, shown
from workloads import RealNetwork

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_Choice = tuple[run_kinds.Modes, dict[Mode, str]]  # the modes that run on a machine, those left out with the reason

_SHARED = frozenset({"machine", "set", "isa", "modes", "threads", "dispatch"})
_ALWAYS = _SHARED | {"json", "output", "layers", "fpmath_layers", "plot", "wide"}
_RECIPE = _ALWAYS | {"recipe"}
_REAL = _RECIPE | {"samples", "seed", "no_values", "values_of"}
_BLAMED = _SHARED - {"modes"} | {"blame", "calibrate", "json", "output"}
TAKES: Takes = {
    "layer tables": _ALWAYS | {"seed", "no_values"},
    "layer tables with --no-values": _ALWAYS | {"no_values"},
    "networks that classify labelled data": _RECIPE,
    "MODEL.onnx": _RECIPE | {"no_values", "shape", "seed", "calibrate"},
    "MODEL.onnx with --feeds": _RECIPE | {"no_values", "feeds", "calibrate", "labels"},
    "MODEL.onnx with --blame": _BLAMED | {"seed", "shape"},
    "MODEL.onnx with --blame and --feeds": _BLAMED | {"feeds", "labels"},
    "MODEL.onnx with --no-values": _RECIPE | {"no_values", "shape"},
    "fetched networks": _REAL,
    "fetched networks that make pictures": _REAL | {"pictures"},
    "fetched language models": _REAL,
    "fetched language models with --prompt": _SHARED | {"prompt", "recipe"},
}


def add(subparsers: Any) -> None:
    """Describe the command to argparse."""
    parser = subparsers.add_parser(
        "run",
        usage="simdnn run WORKLOAD [OPTIONS]",
        description="Runs each layer of a workload in each precision mode: cost on the modelled machine, and values.",
        epilog=run_help.epilog(),
    )
    parser.add_argument(
        "workload",
        metavar="WORKLOAD",
        help="a name of `simdnn list workloads`, a layer table.csv, "
        f"a MODEL.onnx, or, once fetched, {', '.join(workloads.REAL_NETWORKS)} (minilm "
        "with --no-values: the layer table of that name)",
    )
    parser.add_argument("--machine", default="zen4", help="names of `simdnn list machines`, or machine.toml (zen4)")
    _add_modes(parser.add_argument_group("precision"))
    _add_kernels(parser.add_argument_group("kernels and machines"))
    _add_data(parser.add_argument_group("data"))
    _add_outputs(parser.add_argument_group("what is shown"))
    parser.set_defaults(function=main)


def _add_modes(parser: argparse._ArgumentGroup) -> None:
    """Options that say in which precision which layers run."""
    parser.add_argument("--modes", type=comma_list, metavar="MODE,…", help="some of those below, as f32,int8-vnni")
    parser.add_argument(
        "--recipe",
        type=Path,
        metavar="FILE.json",
        help="beside the modes: each layer in its own, as `simdnn tune` saves it",
    )
    parser.add_argument(
        "--layers",
        metavar="PATTERN",
        help="only layers of that name, as 'layer3.*': of a layer table those run; of a network, which runs as a "
        "whole, those rows are shown ('*': all; models and fetched networks show none unless asked)",
    )
    parser.add_argument(
        "--fpmath-layers",
        default="*",
        metavar="PATTERN,…",
        help="in math modes: the layers that are in the mode, as 'conv*'; the others stay strict (all)",
    )


def _add_kernels(parser: argparse._ArgumentGroup) -> None:
    """Options that say which kernels run, and whether values are computed."""
    add_set(parser)
    parser.add_argument("--isa", help="ISA cap: kernels beyond it are not used (the machine's own)")
    parser.add_argument("--threads", type=_integer(1, 1024), default=1, metavar="N", help="threads of a kernel (1)")
    parser.add_argument("--no-values", action="store_true", help="cost alone; nothing is computed")
    parser.add_argument(
        "--values-of",
        metavar="MACHINE",
        help="a fetched network on several machines: compute values on this one alone where a mode multiplies the same "
        "types on the others, which then differ in the order of sums alone (each machine computes its own)",
    )
    parser.add_argument(
        "--dispatch",
        choices=("fastest", *LIBRARIES),
        default="fastest",
        help=f"how kernels are picked: by estimated cycles, or as {versions()} does (fastest)",
    )


def _add_data(parser: argparse._ArgumentGroup) -> None:
    """Options that say what it runs on."""
    seed = _integer(0, 2**32 - 1)
    parser.add_argument("--seed", type=seed, metavar="N", default=0, help="of data that are drawn (0)")
    counts = ", ".join(f"{network.name}: {network.count}" for network in workloads.REAL_NETWORKS.values())
    parser.add_argument(
        "--samples", type=_integer(1, 5000), metavar="N", help=f"how many a fetched network is judged by ({counts})"
    )
    add_shape(parser)
    parser.add_argument(
        "--feeds", type=Path, metavar="FILE.npz", help="an ONNX model's inputs, also several, or a folder (random ones)"
    )
    parser.add_argument(
        "--calibrate", type=Path, metavar="FILE.npz", help="what int8 modes of an ONNX model take ranges from (--feeds)"
    )
    parser.add_argument(
        "--labels",
        type=Path,
        metavar="FILE.npy",
        help="classes of --feeds: what is shown has an ONNX model's accuracy",
    )


def _add_outputs(parser: argparse._ArgumentGroup) -> None:
    """Options that say what is shown and written."""
    parser.add_argument("--blame", metavar="MODE", help="which layers of an ONNX model make the error of a mode")
    parser.add_argument("--wide", action="store_true", help="all columns, also those that are alike in all rows")
    output.add_options(parser)
    parser.add_argument(
        "--plot",
        type=Path,
        metavar="FILE",
        help="draw accuracy, or where that tells no modes apart the error, against speed (with --layers or "
        "--no-values: time of each layer, and what integers lost there) into FILE.png, .pdf or .svg",
    )
    parser.add_argument("--prompt", metavar="TEXT", help="what a language model writes on after, in f32 or --modes")
    parser.add_argument("--pictures", type=Path, metavar="FILE", help="pictures that a network makes, side by side")


def main(args: argparse.Namespace) -> int:
    """The command: checks what can be checked first, runs, writes."""
    network = workloads.REAL_NETWORKS.get(args.workload)
    if network and args.no_values and args.workload in workloads.names():
        network = None  # the layer table of that name
    check_model(args.workload, {*workloads.names(), *workloads.REAL_NETWORKS}, tables=True)
    check(args, _kind(args, network), TAKES)
    if args.blame is not None:
        args.machine = machine_with(args.machine, args.set)
        return run_blame.main(args)
    named = comma_list(args.machine) if " with " not in args.machine else []  # which may list figures
    machines = [machine_with(name, args.set) for name in dict.fromkeys(named or [args.machine])]
    if network and args.prompt is not None:
        args.machine = machine_with(args.machine, args.set)
        own = _recipes(args, {args.machine: isa_models.machine(args.machine)})
        return run_prompt.main(args, network, own[args.machine][0])
    output.check_path(args.output, output.FILE_FORMATS)
    output.check_path(args.plot, output.PICTURE_FORMATS)
    output.check_path(args.pictures, output.PICTURE_FORMATS)
    if args.pictures and len(machines) > 1:
        raise InvalidArgument(f"--pictures of {len(machines)} machines; one is needed, whose modes stand side by side")
    first = _lending(args, dict(zip(named, machines, strict=False)))
    chosen = _chosen(args, network, machines)
    left: dict[str, str] = {}
    outcomes: dict[str, run_kinds.WorkloadOutcome] = {}
    with shown() as progress:
        for name in sorted(machines, key=lambda name: name != first):
            modes, lacking = chosen[name]
            args.machine = name
            lender = (first, outcomes[first]) if first in outcomes else None
            outcomes[name] = _run(args, network, modes, progress, lender)
            about = f" on {name}" if len(machines) > 1 else ""
            left |= {f"{mode.name}{about}": reason for mode, reason in lacking.items()}
        ported = run_porting.compared(args, machines, progress) if _is_model(args) else None
    args.machine = ", ".join(machines)
    one = len(machines) == 1
    outcome = outcomes[machines[0]] if one else run_kinds.beside({name: outcomes[name] for name in machines})
    return _tell(args, outcome, left, ported)


def _lending(args: argparse.Namespace, machines: dict[str, str]) -> str:
    """The machine whose values stand for all, as it is called once its figures are set; "" where each has its own."""
    if args.values_of is None:
        return ""
    if args.no_values:
        raise InvalidArgument("--values-of with --no-values; there are none to show")
    if args.values_of not in machines or len(machines) < 2:
        raise InvalidArgument(f"--values-of {args.values_of!r:.60}; one of several in --machine is needed")
    return machines[args.values_of]


def _chosen(args: argparse.Namespace, network: RealNetwork | None, machines: list[str]) -> dict[str, _Choice]:
    """The modes of each machine; of several a machine leaves out those named that it lacks and another one has."""
    names = ["f32"] if args.modes is None and _is_model(args) and args.no_values else args.modes
    for name in names or ():
        if name.lower().endswith(".json"):
            raise InvalidArgument(f"--modes {name}: names of modes are needed; a recipe's file is for --recipe")
    known = run_kinds.known_modes(args, network, _is_model(args))
    targets = {name: isa_models.machine(name) for name in machines}
    choices = choose_each([(one, args.isa) for one in targets.values()], names, known)
    found = dict(zip(targets, choices, strict=True))
    for name, (modes, _) in found.items():
        if not modes:
            choose(targets[name], names, args.isa, known)  # which says why
    recipes = _recipes(args, targets)
    both: dict[str, _Choice] = {
        name: ({**modes, **recipes[name][0]}, {**lacking, **recipes[name][1]})
        for name, (modes, lacking) in found.items()
    }
    for runs, _ in both.values():
        if "fpmath_layers" in args.given and not any(part.fpmath for mode in runs for part in mode.parts):
            math = ", ".join(name for name, mode in MODES.items() if mode.fpmath)
            raise InvalidArgument(f"--fpmath-layers without a math mode among the modes: --modes with one of {math}")
    return both


def _tell(
    args: argparse.Namespace,
    outcome: run_kinds.WorkloadOutcome,
    left: dict[str, str],
    ported: run_porting.Ported | None,
) -> int:
    """Write what was found; the exit status."""
    layers, totals = _asked(args, outcome), outcome.frames.totals
    content = {
        "workload": args.workload,
        "machine": args.machine,
        **outcome.content,
        "layers": output.records(layers),
        "totals": output.records(totals),
        "left_out": left,
    }
    if _is_model(args):
        content["rows"] = content["totals"]  # what scripts read of a model's modes
    if ported is not None:
        content["porting"] = run_porting.content(ported)
    if args.output:
        written = pd.concat([layers, totals], ignore_index=True) if len(layers) else totals
        output.write(args.output, written, content)
    notes = [f"{mode}: left out, {reason}" for mode, reason in left.items()]
    notes += [*_remarks(outcome.frames), *_other_options(args), *_draw(args, outcome)]
    if args.json:
        output.print_json(content)
    else:
        _print(args, outcome, layers, notes)
        if ported is not None:
            print(f"\n{run_porting.text(ported)}")
    return 1 if (totals["refused"] != "").any() else 0


def _run(
    args: argparse.Namespace,
    network: RealNetwork | None,
    modes: run_kinds.Modes,
    progress: Progress,
    lender: tuple[str, run_kinds.WorkloadOutcome] | None,
) -> run_kinds.WorkloadOutcome:
    if network:
        return run_kinds.fetched(args, network, modes, progress, lender)
    kind = run_kinds.onnx_model if _is_model(args) else run_kinds.classifier if _is_network(args) else None
    return (kind or run_kinds.layer_table)(args, modes, progress)


def _recipe(args: argparse.Namespace) -> run_kinds.Modes:
    """The recipe that is to run beside the modes; `args.tuned` is what its file tells."""
    args.ranges, args.tuned = None, {}
    if args.recipe is None:
        return {}
    from simdnn.tuning.tuned import read_recipe

    content = read_recipe(args.recipe)
    args.ranges, args.tuned = content["ranges"] or None, content
    return {recipe(content["modes"]): args.isa}


def _other_options(args: argparse.Namespace) -> list[str]:
    """A remark on options that a recipe was tuned with and this run has otherwise, where its file tells them."""
    here = Place(args.machine, args.isa, args.threads, args.dispatch).options
    own = {name: value for name, value in args.tuned.items() if name in here}
    other = [f"{name} {value or 'any'}" for name, value in own.items() if value != here[name]]
    return [f"recipe: tuned with {', '.join(other)}, which this run has otherwise"] if other else []


def _recipes(args: argparse.Namespace, targets: Mapping[str, AnyMachine]) -> dict[str, _Choice]:
    """The recipe on each machine; left out where a machine lacks the mode of a layer. Raises where all of them do."""
    found: dict[str, _Choice] = {name: ({}, {}) for name in targets}
    errors: list[InvalidArgument] = []
    for mode, cap in _recipe(args).items():
        for name, target in targets.items():
            try:
                for layer, _ in mode.layers:
                    mode.isa_at(layer, target, cap)
            except InvalidArgument as error:
                errors.append(error)
                found[name] = {}, {mode: str(error)}
            else:
                found[name] = {mode: cap}, {}
    if errors and len(errors) == len(targets):
        raise errors[0]
    return found


def _asked(args: argparse.Namespace, outcome: run_kinds.WorkloadOutcome) -> pd.DataFrame:
    """The rows of layers that are asked for, or shown anyway. Raises `InvalidArgument` for a pattern without any."""
    layers = outcome.frames.layers
    if args.layers is None:
        return layers if outcome.rows else layers.iloc[:0]
    found = layers[[fnmatchcase(name, args.layers) for name in layers["layer"]]]
    if found.empty:
        names = some(list(dict.fromkeys(layers["layer"])))
        raise InvalidArgument(f"layers={args.layers!r} matches none of {args.workload}; they are {names}")
    return found.reset_index(drop=True)


def _remarks(frames: Frames) -> list[str]:
    """Messages about modes: notes, and refusals with the layers that they were met in."""
    totals, layers = (_placed(frame) for frame in (frames.totals, frames.layers))
    found = [f"{m}: {text}" for m, text in zip(totals["place"], totals["note"], strict=True) if text]
    met: set[str] = set()
    if "refused" in layers:
        for (mode, reason), part in layers[layers["refused"] != ""].groupby(["place", "refused"], sort=False):
            found.append(f"{mode}: refused in {', '.join(part['layer'])}: {reason}")
            met.add(str(mode))
    rest = totals[(totals["refused"] != "") & ~totals["place"].isin(met)]
    found += [f"{m}: refused: {text}" for m, text in zip(rest["place"], rest["refused"], strict=True)]
    return list(dict.fromkeys(found))  # phases have the notes of their mode


def _placed(frame: pd.DataFrame) -> pd.DataFrame:
    """Rows with the mode, and where there are several machines the machine, that remarks are about."""
    if "mode" not in frame:
        return frame
    return frame.assign(place=frame["mode"] + " on " + frame["machine"] if "machine" in frame else frame["mode"])


def _kind(args: argparse.Namespace, network: RealNetwork | None) -> str:
    """Which of `TAKES` a command line is about."""
    if network and network.continues:
        return "fetched language models" + (" with --prompt" if args.prompt is not None else "")
    if network:
        return "fetched networks" + (" that make pictures" if network.pictures else "")
    if _is_model(args):
        if args.blame is not None:
            return "MODEL.onnx with --blame" + (" and --feeds" if args.feeds else "")
        if args.feeds:
            return "MODEL.onnx with --feeds"
        return "MODEL.onnx with --no-values" if args.no_values and not _calibrates(args) else "MODEL.onnx"
    if _is_network(args):
        return "networks that classify labelled data"
    return "layer tables with --no-values" if args.no_values else "layer tables"


def _is_model(args: argparse.Namespace) -> bool:
    return bool(args.workload.lower().endswith(".onnx"))


def _calibrates(args: argparse.Namespace) -> bool:
    """Whether a mode among those named takes ranges from data."""
    return any(MODES[name].is_integer for name in args.modes or () if name in MODES)


def _is_network(args: argparse.Namespace) -> bool:
    """Whether real images are to be classified; without values the network is a table of layers like any other."""
    return args.workload in workloads.NETWORKS and not args.no_values


def _print(
    args: argparse.Namespace, outcome: run_kinds.WorkloadOutcome, layers: pd.DataFrame, notes: list[str]
) -> None:
    if outcome.about:
        print(f"{outcome.about}\n")
    if len(layers):
        print(f"{run_show.layers(layers, args.wide)}\n\nTotal of {args.workload} on {args.machine}\n")
    print(run_show.totals(outcome.frames.totals, outcome.quality, args.wide))
    if notes:
        print("\n" + "\n".join(notes))


def _draw(args: argparse.Namespace, outcome: run_kinds.WorkloadOutcome) -> list[str]:
    """The pictures asked for, a panel a phase, and a note for each."""
    paths = [path for path in (args.plot, args.pictures) if path]
    if paths:
        from simdnn import plot  # matplotlib takes a second to load

        with plot.apart():
            if args.plot:
                plot.save(_drawn(args, outcome), args.plot)
            if args.pictures:
                plot.save(plot.plot_pictures(outcome.frames.pictures), args.pictures)
    return [f"picture: {path}" for path in paths]


def _drawn(args: argparse.Namespace, outcome: run_kinds.WorkloadOutcome) -> Axes:
    from simdnn import plot

    by_layer = args.no_values or args.layers is not None
    frame = _asked(args, outcome) if by_layer else outcome.frames.totals
    frame = outcome.frames.layers if frame.empty else frame[frame["refused"] == ""]
    keys = [name for name in ("machine", "phase") if name in frame and frame[name].notna().any()]
    parts = [part for _, part in frame.groupby(keys, sort=False)] if keys else [frame]
    row = frame["phase"].nunique() if len(keys) == 2 else None  # machines are rows
    panels = plot.panels(len(parts), columns=row) if len(parts) > 1 else [None]
    for panel, part in zip(panels, parts, strict=True):
        axis = outcome.axis
        if by_layer:
            ax = plot.plot_layers(part, panel)
        elif axis is None:
            ax = plot.plot_accuracy_speed(part, panel)
        else:
            how = {"percent": axis.percent, "higher_is_better": axis.higher_is_better}
            ax = plot.plot_quality_speed(part, axis.column, axis.title, panel, **how)
        where = part["machine"].iloc[0] if "machine" in keys else args.machine
        phase = f", {part['phase'].iloc[0]}" if "phase" in keys else ""
        ax.set_title(f"{_for_people(args.workload)} on {_for_people(where)}{phase}", parse_math=False)
    return ax


def _for_people(name: object) -> str:
    """A name as a title has it: of a file its stem."""
    path = Path(str(name))
    return path.stem.replace("_", " ") if path.suffix else str(name)


def _integer(least: int, most: int) -> Callable[[str], int]:
    def parse(text: str) -> int:
        # int() alone would take "1_000"; and refuses thousands of digits with an error of its own
        if not (text.isascii() and text.isdigit() and len(text) <= 18 and least <= int(text) <= most):
            raise argparse.ArgumentTypeError(f"{text[:40]!r}; an integer from {least} to {most} is needed")
        return int(text)

    return parse
