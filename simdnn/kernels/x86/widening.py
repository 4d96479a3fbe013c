"""Weights of f16 and bf16 that become f32 ahead of their tiles, where many rows meet them and threads lose nothing."""

from __future__ import annotations

from dataclasses import replace
from operator import itemgetter

from isa_models import Machine
from isa_models.formats import fmt
from simdnn.kernels.common.code import pieces
from simdnn.kernels.common.problems import MatmulProblem, Problem
from simdnn.kernels.common.sums import Options
from simdnn.kernels.x86.blocking import SECOND_LEVEL, Blocking, Waits, busy, chunk, outrun, row_blocks
from simdnn.kernels.x86.code import Unit
from simdnn.kernels.x86.dots import BF16_STORED, F16, Dot
from simdnn.kernels.x86.gemm import Gemm, gemm
from simdnn.kernels.x86.register_blocks import waits_in

#: rows for which weights are not widened ahead: where wide units wait for the second cache, and elsewhere
_FEW, _MANY = 64, 256
#: stages one after the other: how many turns threads share, and half cycles of one for each step of K
Turns = list[tuple[int, float]]
_CONVERTED = 4  # half cycles of a vector: a load that widens takes two units, and a store a cycle


def widened(name: str, problem: Problem, unit: Unit, dot: Dot, options: Options, machine: Machine) -> Gemm | None:
    """A matmul of f16 or bf16 weights that each panel makes f32 of, for as many rows as leave threads enough to share.

    None where few rows meet the weights, or the second cache does not keep a panel; and where on some number of the
    machine's cores one would have more to do than with tiles that widen weights as they load them.
    """
    if dot not in (F16, BF16_STORED) or options.tile or not isinstance(problem, MatmulProblem):
        return None
    own, narrow = replace(dot, wei="f32", load_uops=0), replace(dot, wei="f32")  # with tiles as without a buffer
    caches = outrun(machine, unit, own)
    panel = min(options.cut or problem.k, problem.k) * 2 * unit.width // 8  # bytes of two vectors
    few = _FEW if unit.masks and any(cache.exposed for cache in caches[1:2]) else _MANY
    if problem.m <= few or panel > 2 * SECOND_LEVEL or problem.wei_tag != "any":
        return None
    cores = [*(1 << power for power in range((machine.cores - 1).bit_length())), machine.cores]
    turns = _loading(gemm(name, problem, unit, dot, options), machine)
    most = [_longest(turns, some) for some in cores]
    options = replace(options, widens=problem.m)
    able: list[tuple[float, int, Gemm]] = []
    for wide, levels in ((own, caches), (narrow, ())):
        found = gemm(name, problem, unit, wide, replace(options, caches=levels))
        for parts in range(1, problem.m // _FEW + 1):
            turns = _ahead(found, machine, -(-problem.m // parts))
            if all(_longest(turns, some) <= work for some, work in zip(cores, most, strict=True)):
                able.append((_longest(turns, 1), -(-problem.m // parts), found))
    if not able:
        return None
    _, rows, found = min(able, key=itemgetter(0))
    return gemm(name, problem, unit, found.product.dot, replace(found.product.options, widens=rows))


def _longest(turns: Turns, threads: int) -> float:
    """The work of the thread that has most.

    >>> _longest([(5, 2.0), (1, 1.0)], 4)
    5.0
    """
    return sum(-(-count // threads) * work for count, work in turns)


def _ahead(gemm: Gemm, machine: Machine, together: int) -> Turns:
    """The turns of panels that are widened for some rows at a time."""
    p, turns, wide = gemm.product, Turns(), replace(gemm.product.dot, load_uops=0)
    for panels, vectors, waits in _panels(gemm, machine):
        for times, _, rows in pieces("m", p.rows, together):
            tiles = [(count, Blocking(height, vectors)) for _, height, count in row_blocks(rows, gemm.blocks.highest)]
            work = sum(count * (busy(wide, tile) + 2 * waits.of(tile)) for count, tile in tiles)
            turns.append((times * panels, work + _CONVERTED * vectors))
    return turns


def _loading(gemm: Gemm, machine: Machine) -> Turns:
    """The turns of tiles that widen weights as they load them."""
    p, blocks, turns = gemm.product, gemm.blocks, Turns()
    row = p.source_steps.column * fmt(p.source_steps.source.read).bits // 8
    for panels, vectors, waits in _panels(gemm, machine):
        for _, height, count in blocks.rows:
            tile, together = Blocking(height, vectors), chunk(count, height * row, blocks.second_level)
            turns.append((count // together * panels, together * (busy(p.dot, tile) + 2 * waits.of(tile))))
    return turns


def _panels(gemm: Gemm, machine: Machine) -> list[tuple[int, int, Waits]]:
    """Panels of a width: how many, their vectors, and what a step of theirs waits for."""
    p, layout = gemm.product, gemm.blocks.layout
    widths = (layout.full, layout.width), (min(1, layout.tail), layout.tail)
    return [(n, columns // p.unit.lanes, waits_in(p, machine.caches, columns)) for n, columns in widths if n]
