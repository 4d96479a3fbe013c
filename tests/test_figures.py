"""Figures that a page says of a table of measurements: each is computed from the table, and the sentence holds them."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import simdnn
import workloads
from benchmarks import gemm_grid
from simdnn import study
from tests.effort import one_in

ROOT = Path(__file__).parents[1]


def table(name: str) -> pd.DataFrame:
    return pd.read_csv(ROOT / "docs" / "validation" / "data" / f"{name}.csv")


def errors(found: pd.DataFrame, predicted: str, measured: str) -> pd.Series:
    """How far predictions are off, in per cent of what was measured."""
    return (100 * (found[predicted] / found[measured] - 1)).abs()


def loops(name: str, part: str = "") -> pd.Series:
    """Errors of loops on a Zen 4; of one part those that were measured alike in every process."""
    found = table(name)
    found = found[(found["part"] == part) & (found["stable"] == "yes")] if part else found
    measured = next(column for column in found if column in ("measured cycles", "recorded cycles"))
    return errors(found, next(column for column in found if column.startswith("predicted")), measured)


def within(found: pd.Series, *most: float) -> list[int]:
    return [int((found <= bound).sum()) for bound in most]


def rates(name: str, wider: float = 15) -> list[int]:
    """How many published rates there are, and how many are met within 10 % and within a wider bound."""
    found = table(name)["error, %"].abs()
    return [len(found), *within(found, 10, wider)]


def grid(machine: str, half: str, name: str = "gemm-grid") -> list[str]:
    """A half of a grid of times but those the host hides: how many, within 10 and 25 %, the median error."""
    found = table(name)
    rows = found[(found["machine"] == machine) & (found["half"] == half)]
    error = rows[rows["us"] > gemm_grid.HOST_US.get(machine, 0)]["error, %"].abs()
    return [f"{number}" for number in (len(error), *within(error, 10, 25))] + [f"{error.median():.0f}"]


def attention(machine: str, kernel: str, half: str) -> list[str]:
    """A half of the rates of attention in one kernel: how many, those within 10 %, the median error."""
    found = table("attention-rates")
    rows = found[(found["machine"] == machine) & (found["kernel"] == kernel) & (found["half"] == half)]
    error = rows["error, %"].abs()
    return [f"{len(rows)}", f"{within(error, 10)[0]}", f"{error.median():.0f}"]


def number_and_mean(found: pd.Series) -> list[str]:
    return [f"{len(found)}", f"{found.mean():.1f}"]


def cells(name: str = "cells-zen4") -> list[int]:
    """Kernels of a library on a core: products, convolutions, pairs of types and caps."""
    found = table(name)
    sizes = found["shape"].str.count("x") + 1
    return [int((sizes <= 4).sum()), int((sizes > 4).sum()), found["column"].nunique()]


def primitives() -> list[str]:
    found = errors(table("primitives-zen4"), "predicted_cycles", "cycles")
    return [str(within(found, 25)[0]), str(len(found)), f"{found.median():.1f}"]


def decibels() -> list[str]:
    """Signal to error of a product on `spr` in bf16, f16 and tf32, which no kernel rounds to unless it is named."""
    rng = np.random.default_rng(0)
    src, weights = (rng.standard_normal(shape, np.float32) for shape in ((64, 768), (768, 96)))
    exact = src.astype(np.float64) @ weights
    named = {"bf16": "fastest", "f16": "fastest", "tf32": "gemm:avx512_core_tf32"}
    outputs = (
        simdnn.matmul(src, weights, machine="spr", attr=simdnn.Attr(fpmath=mode), dispatch=name).output
        for mode, name in named.items()
    )
    return [f"{10 * np.log10((exact**2).sum() / ((exact - output) ** 2).sum()):.0f}" for output in outputs]


def saturated_digits() -> list[str]:
    """What saturating int8 loses beside exact int8, by README's own table, which is run elsewhere."""
    shown = re.findall(r"(?m)^ +(\S+) +99.44%.* ([\d.]+) +[\d.]+%  ", (ROOT / "README.md").read_text(encoding="utf-8"))
    ratio = {mode: float(decibels) for mode, decibels in shown}
    exact, fast = ratio["int8-vnni"], ratio["int8-fast"]
    return [f"{exact - fast:.0f}"]


NVIDIA, RATES = (f"docs/validation/{name}.md" for name in ("nvidia", "gpu-rates"))
INDEX, COSTS, LOOPS = (f"docs/validation/{name}.md" for name in ("index", "primitives-cost", "cpu-loops"))
#: (page, the sentence with places for its figures, what finds them)
SAID: list[tuple[str, str, Callable[[], list[int] | list[str]]]] = [
    ("README.md", "{2} of {0} published GEMM rates of Intel's GPUs", lambda: rates("gpu-rates")),
    ("README.md", "{2} of {0} of NVIDIA's within 15 %", lambda: rates("nvidia-rates")),
    ("README.md", "cycles of {0} kernels of oneDNN on a Zen 4", lambda: [sum(cells()[:2])]),
    (
        "README.md",
        "keeps {0} dB of signal to error in bf16, {1} dB in f16 (its sums are f16 there, too), and {2} dB",
        decibels,
    ),
    ("README.md", "the signal-to-error ratio of the outputs falls by {0} dB", saturated_digits),
    (
        INDEX,
        "| {0}, 3 of them fitted | {1} within 10 %, {2} within 15 % |",
        lambda: rates("gpu-rates"),
    ),
    (
        INDEX,
        "| {0}, 24 of them fitted | {1} within 10 %, {2} within 15 % |",
        lambda: rates("nvidia-rates"),
    ),
    (
        INDEX,
        "| {0}, half of them kept out | {1} within 10 %, {2} within 15 % |",
        lambda: rates("attention-rates"),
    ),
    *(
        (COSTS, f"| {{0}} | {{1}} | {before} | {{2}} % | {error} % |", partial(attention, machine, kernel, half))
        for machine, kernel, half, before, error in (
            ("a100", "mma", "seen", 0, 26),
            ("a100", "mma", "kept", 0, 20),
            ("h100", "mma", "seen", 5, 36),
            ("h100", "mma", "kept", 0, 34),
            ("h100", "wgmma", "seen", 3, 34),
            ("h100", "wgmma", "kept", 0, 32),
            ("rtx4090", "mma", "seen", 22, 4),
            ("rtx4090", "mma", "kept", 22, 3),
        )
    ),
    *(
        (INDEX, "| {0}, half of them kept out | {1} within 10 %, {2} within 25 % |", partial(rates, name, 25))
        for name in ("attention-grid", "attention-contexts")
    ),
    *(
        (COSTS, f"| {half} | {{0}} | {{1}} | {ten} | {{2}} | {more} | {{3}} % | {error} % |", partial(grid, *which))
        for half, ten, more, error, *which in (
            ("seen", 4, 18, 21, "a100", "seen", "attention-grid"),
            ("kept out", 6, 15, 24, "a100", "kept", "attention-grid"),
            ("seen", 10, 19, 21, "h100", "seen", "attention-grid"),
            ("kept out", 3, 8, 33, "h100", "kept", "attention-grid"),
            ("seen", 3, 12, 30, "h200", "seen", "attention-grid"),
            ("kept out", 8, 12, 29, "h200", "kept", "attention-grid"),
            ("seen", 8, 13, 32, "l40s", "seen", "attention-grid"),
            ("kept out", 5, 17, 23, "l40s", "kept", "attention-grid"),
        )
    ),
    (INDEX, "| {0} matmuls, {1} convolutions, {2} pairs of types and caps |", cells),
    (INDEX, "| {0} matmuls, {1} convolutions, {2} pairs of types without AVX-512 |", partial(cells, "cells-zen3")),
    (INDEX, "| {0} of {1} within 25 %, half within {2} %;", primitives),
    (COSTS, "{0} of {1} are within 25 %, half within {2} %.", primitives),
    *(
        (
            page,
            f"|{named} | {half} | {{0}} | {{1}} | {{2}} | {{3}} % |",
            partial(grid, machine, half.replace(" out", "")),
        )
        for page, machine in (*((NVIDIA, name) for name in ("a100", "h100", "h200", "l40s")), (RATES, "b580"))
        for half, named in (("seen", f" {machine}" + " at 2.4 GHz" * (machine == "b580")), ("kept out", ""))
    ),
    *(
        (LOOPS, f"| {name} | {{0}} | {{1}} % |", of)
        for name, of in (
            ("kept out", lambda: number_and_mean(loops("loops-zen4-others", "kept out"))),
            ("seen", lambda: number_and_mean(loops("loops-zen4-others", "seen"))),
            ("inner loops of kernels", lambda: number_and_mean(loops("loops-zen4"))),
            ("mixes", lambda: number_and_mean(loops("mixes-zen4"))),
        )
    ),
]


@pytest.mark.parametrize(("page", "sentence", "of"), SAID, ids=[f"{page}: {said[:40]}" for page, said, _ in SAID])
def test_a_page_says_what_its_table_has(page: str, sentence: str, of: Callable[[], list[int] | list[str]]) -> None:
    text = re.sub(r"\s+", " ", (ROOT / page).read_text(encoding="utf-8"))
    assert sentence.format(*of()) in text


NETWORKS = {
    "ResNet-50": "resnet50",
    "BERT-base, 128 tokens": "bert-base",
    "Llama 3 8B, one token": "llama3-8b-decode-ctx128",
}
MODES = ("f32", "fpmath-tf32", "fpmath-bf16", "fpmath-f16", "s8-weights", "s4-weights")


@one_in(3)
@pytest.mark.parametrize("network", NETWORKS)
@pytest.mark.parametrize(
    "machine", ["zen4", pytest.param("clx", marks=pytest.mark.sweep), pytest.param("spr", marks=pytest.mark.sweep)]
)
def test_speed_ups_of_networks(network: str, machine: str) -> None:
    """The table of README's speed-ups, to the last digit shown."""
    text = (ROOT / "README.md").read_text(encoding="utf-8").partition(f"\n| {network} |")[2]
    shown = next(row for row in text.split("\n") if f"| {machine} |" in f"|{row}").split(f"{machine} |")[1]
    layers = study.run_layers(workloads.load(NETWORKS[network]), machine, MODES, values=False)
    found = study.totals(layers).set_index("mode")["speed_up"]
    assert [f"{found[mode]:.2f}" for mode in MODES[1:]] == [cell.strip() for cell in shown.strip("|").split("|")]
