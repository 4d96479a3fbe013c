"""`simdnn run ocr` and its like: a trained network and real data in several precision modes."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

import isa_models
from isa_models import InvalidArgument
from simdnn.cli import output
from simdnn.networks.precision import choose
from workloads import RealNetwork
from workloads.real import Metric

if TYPE_CHECKING:
    from simdnn.networks.real import RealRun

FORMATS = {
    "speed_up": "{:.2f}".format,
    "tokens_per_s": "{:.1f}".format,
    "cycles": "{:.0f}".format,
    "time_us": "{:.1f}".format,
    "gops": "{:.1f}".format,
}
TOKENS = 16  # written after a prompt


def main(args: argparse.Namespace, network: RealNetwork) -> int:
    """The command, for one of `workloads.REAL_NETWORKS`."""
    from simdnn.networks import real

    _check(args)
    if args.prompt is not None:
        return _write_on(args, network)
    modes, lacking = choose(isa_models.machine(args.machine), args.modes, args.isa, real.modes_of(network))
    with output.Progress() as progress:
        run = real.run_real(
            network,
            modes,
            machine=args.machine,
            isa=args.isa,
            count=args.samples,
            seed=args.seed,
            threads=args.threads,
            dispatch=args.dispatch,
            progress=progress,
        )
    frame = run.rows
    left_out = {mode.name: reason for mode, reason in lacking.items()}
    if args.output or args.json:
        content = {
            "workload": network.name,
            "machine": args.machine,
            "seed": args.seed,
            "totals": output.records(frame),
            "left_out": left_out,
        }
        if args.output:
            output.write(args.output, frame, content)
        if args.json:
            output.print_json(content)
    refused = frame[frame["refused"] != ""]
    notes = [f"{name}: left out, {reason}" for name, reason in left_out.items()]
    notes += [f"{m}: refused: {text}" for m, text in zip(refused["mode"], refused["refused"], strict=True)]
    notes += _draw(args, network, run) if args.plot or args.pictures else []
    if not args.json:
        formats = FORMATS | {metric.name: metric.form.format for metric in network.metrics}
        about = f"{network.title} on {args.machine}, {frame['samples'].max():.0f} {network.samples}, seed {args.seed}"
        print(f"{about}; {'; '.join(map(_explained, network.metrics))}\n")
        print(output.table(frame[[c for c in frame if c in formats or c in ("mode", "phase", "confidence")]], formats))
        print("\n" + "\n".join(notes) if notes else "", end="\n" if notes else "")
    return 1 if len(refused) else 0


def _check(args: argparse.Namespace) -> None:
    """Refuses what can be refused before the work."""
    if args.prompt is not None:
        _check_prompt(args.prompt)
    output.check_path(args.output, output.FILE_FORMATS)
    output.check_path(args.plot, output.PICTURE_FORMATS)
    output.check_path(args.pictures, output.PICTURE_FORMATS)


def _check_prompt(prompt: str) -> None:
    if not prompt:
        raise InvalidArgument("--prompt '' is empty; the beginning of a text is needed")


def _write_on(args: argparse.Namespace, network: RealNetwork) -> int:
    """What a language model writes after a text, token by token as they come."""
    from simdnn.networks import real

    modes, _ = choose(isa_models.machine(args.machine), args.modes or ["f32"], args.isa, real.modes_of(network))
    where = {"machine": args.machine, "threads": args.threads, "dispatch": args.dispatch, "engine": "compiled"}
    for mode, cap in modes.items():
        pieces = real.continued(network, mode, args.prompt, TOKENS, isa=cap, **where)
        print(f"{mode.name}: {args.prompt}{next(pieces, '')}", end="", flush=True)  # nothing where the first one fails
        for piece in pieces:
            print(piece, end="", flush=True)
        print()
    return 0


def _explained(metric: Metric) -> str:
    return f"{metric.name}: {metric.title}"


def _draw(args: argparse.Namespace, network: RealNetwork, run: RealRun) -> list[str]:
    """The pictures asked for, and a note for each."""
    from simdnn import plot  # matplotlib takes a second to load

    if args.plot:
        metric, rows = network.metrics[0], run.rows[run.rows["refused"] == ""]
        phases = [str(phase) for phase in rows["phase"].unique()] if "phase" in rows else [""]
        axes = plot.panels(len(phases))
        for ax, phase in zip(axes, phases, strict=True):
            part = rows[rows["phase"] == phase] if phase else rows
            plot.plot_quality_speed(
                part,
                metric.name,
                metric.title,
                ax,
                percent="%" in metric.form,
                higher_is_better=metric.higher_is_better,
            )
            ax.set_title(f"{network.title} on {args.machine}{phase and ', '}{phase}")
        plot.save(axes[0], args.plot)
    if args.pictures:
        plot.save(plot.plot_pictures(run.pictures), args.pictures)
    return [f"picture: {path}" for path in (args.plot, args.pictures) if path]
