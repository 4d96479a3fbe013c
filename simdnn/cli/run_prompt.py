"""`simdnn run llm --prompt TEXT`: what a language model writes on, in each mode."""

from __future__ import annotations

import argparse
from collections.abc import Mapping

import isa_models
from isa_models import InvalidArgument
from simdnn.networks.precision import Mode, choose
from workloads import RealNetwork

TOKENS = 16  # written after a prompt


def main(args: argparse.Namespace, network: RealNetwork, recipes: Mapping[Mode, str | None]) -> int:
    """The text that the model writes after another, token by token as they come; `recipes` run beside the modes."""
    from simdnn.networks import real

    if not args.prompt:
        raise InvalidArgument("--prompt '' is empty; the beginning of a text is needed")
    chosen, _ = choose(isa_models.machine(args.machine), args.modes or ["f32"], args.isa, real.modes_of(network))
    where = {"machine": args.machine, "threads": args.threads, "dispatch": args.dispatch, "engine": "compiled"}
    modes: dict[Mode, str | None] = {**chosen, **recipes}
    for mode, cap in modes.items():
        pieces = real.continued(network, mode, args.prompt, TOKENS, isa=cap, ranges=args.ranges, **where)
        print(f"{mode.name}: {args.prompt}{next(pieces, '')}", end="", flush=True)  # nothing where the first one fails
        for piece in pieces:
            print(piece, end="", flush=True)
        print()
    return 0
