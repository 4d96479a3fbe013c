"""`python -m benchmarks.clock`: how long the clock itself takes on this host, and how that grows.

Figures: a loop (`simdnn.analyze`), a product of random odd sizes with all its candidates, products that differ from one
met before in trip counts alone, all random products together, primitives of any kind, and networks without values.
Then time by the length of a loop, by the number of products, and by a network's layers. Milliseconds of processor time,
so that neighbours disturb them little; medians.
"""

from __future__ import annotations

import argparse
import itertools
import json
import random
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd

import simdnn
import workloads
from simdnn.cli.output import table
from simdnn.networks.tables import run_table

LOOPS = Path(__file__).parents[1] / "tests" / "vectors" / "loops_zen4.json"
MACHINES = ("hsw", "skx", "clx", "icx", "zen4", "zen5", "spr", "gnr", "adl-p")
TYPES = ("f32", "u8:s8:s32", "s8:s8:s32", "bf16:bf16:f32")
NETWORKS = ("resnet50", "mobilenet-v1", "vgg16")
GPUS = ("a770", "b580", "v100", "a100", "h100", "rtx4090")
POST_OPS = ("relu", "tanh", "gelu_erf", "swish")
LARGEST = 600  # of the random sizes


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.clock", description=__doc__)
    parser.add_argument("--shapes", type=int, default=1000, help="random points (1000)")
    parser.add_argument("--seed", type=int, default=1, help="of the draw (1)")
    print(report(**vars(parser.parse_args())))


def report(shapes: int, seed: int) -> str:
    """The figures, and how they grow."""
    estimate(next(random_products(seed + 1)))  # what the first one imports and reads is no part of the others
    loops = [ms(partial(simdnn.analyze, body, machine="zen4")) for body in bodies()]
    points = [ms(partial(estimate, point)) for point in itertools.islice(random_products(seed), shapes)]
    trips = [ms(partial(estimate, point)) for point in taller()]
    kinds = [ms(partial(estimate, point)) for point in itertools.islice(random_kinds(seed), shapes)]
    networks = {name: ms(partial(network, name)) for name in NETWORKS}
    rows = [
        ("a loop", len(loops), statistics.median(loops), max(loops)),
        ("a product of random sizes", len(points), statistics.median(points), max(points)),
        ("other trip counts alone", len(trips), statistics.median(trips), max(trips)),
        ("all random products", 1, sum(points), sum(points)),
        ("a primitive of any kind", len(kinds), statistics.median(kinds), max(kinds)),
        ("all of any kind", 1, sum(kinds), sum(kinds)),
        *((f"{name} on a machine, without values", 1, taken, taken) for name, taken in networks.items()),
    ]
    figures = pd.DataFrame(rows, columns=["what", "cases", "median_ms", "most_ms"])
    shown = dict.fromkeys(("median_ms", "most_ms", "ms", "ms_each"), "{:.1f}".format)
    return "\n\n".join(table(frame, shown) for frame in (figures, by_length(), by_number(points), by_layers()))


def ms(run: Callable[[], object]) -> float:
    """Milliseconds of processor time that a call takes."""
    start = time.process_time()
    run()
    return 1e3 * (time.process_time() - start)


def bodies() -> list[str]:
    """Inner loops of kernels."""
    return ["\n".join(loop["body"]) for loop in json.loads(LOOPS.read_text())["loops"]]


def random_products(seed: int) -> Iterator[dict[str, Any]]:
    """Products of any sizes, types and machine."""
    draw = random.Random(seed)
    while True:
        sizes = {name: draw.randint(1, LARGEST) for name in "mnk"}
        yield {"machine": draw.choice(MACHINES), "dt": draw.choice(TYPES), **sizes}


def random_kinds(seed: int) -> Iterator[dict[str, Any]]:
    """Products, convolutions and inner products, some on GPUs, half of them with a post-operation."""
    draw = random.Random(seed)
    for product in random_products(seed):
        kind = draw.choices(("matmul", "convolution", "inner_product"), (5, 4, 1))[0]
        point = {name: product[name] for name in ("machine", "dt")}
        if kind == "matmul":
            point = dict(product)
        elif kind == "inner_product":
            point |= {name: draw.randint(1, LARGEST) for name in ("mb", "ic", "oc")}
        else:
            taps, groups = draw.choice((1, 1, 3, 3, 5, 7)), draw.choice((1, 1, 1, 0))
            inputs, outputs, side = draw.randint(1, 200), draw.randint(1, 200), draw.randint(taps, 40)
            point |= {"ic": inputs, "oc": outputs if groups else inputs, "groups": groups or inputs}
            point |= {
                "ih": side,
                "iw": side,
                "kh": taps,
                "kw": taps,
                "padding": taps // 2,
                "strides": draw.choice((1, 2)),
            }
        if draw.random() < 0.2:
            point["machine"] = draw.choice(GPUS)
        if draw.random() < 0.5:
            point["attr"] = simdnn.Attr(post_ops=[draw.choice(POST_OPS)])
        yield {"primitive": kind, **point}


def taller() -> list[dict[str, Any]]:
    """Products that differ in the number of full blocks of rows alone; the first one is met before."""
    points = [{"machine": "icx", "dt": "f32", "m": 28 * rows, "n": 512, "k": 256} for rows in range(3, 24)]
    estimate(points[0])
    return points[1:]


def estimate(point: dict[str, Any]) -> None:
    """Cost and candidates of a point; what a machine has no kernel for counts with its refusal."""
    try:
        _ = simdnn.estimate(**{"primitive": "matmul", **point}).dispatch
    except simdnn.SimdnnError:
        pass


def network(name: str) -> None:
    """All layers of a table of layers."""
    run_table(workloads.load(name), "zen4", ["f32"], values=False)


def by_length() -> pd.DataFrame:
    """Loops of independent instructions."""
    rows = []
    for length in (8, 32, 128, 512):
        lines = [f"vpaddd zmm{i % 24}, zmm30, zmm31" for i in range(length)]
        body = "\n".join([".L:", *lines, "dec rcx", "jnz .L"])
        rows.append((length, ms(partial(simdnn.analyze, body, machine="zen4"))))
    return pd.DataFrame(rows, columns=["instructions_of_a_loop", "ms"])


def by_number(points: list[float]) -> pd.DataFrame:
    """Milliseconds of a product behind others, from which parts of it are known."""
    rows = []
    count = 10
    while count <= len(points):
        rows.append((count, statistics.mean(points[count // 2 : count])))
        count *= 3
    return pd.DataFrame(rows, columns=["products_before", "ms_each"])


def by_layers() -> pd.DataFrame:
    """Layers of ResNet-50 behind those before them, in a type that nothing above has met: how many differ from all."""
    whole = workloads.load("resnet50")
    met, rows = set[object](), []
    for first, last in itertools.pairwise((0, 6, 18, 54)):
        part = replace(whole, layers=whole.layers[first:last])
        new = {replace(layer, name="", count=1) for layer in part.layers} - met
        met |= new
        taken = ms(partial(run_table, part, "zen4", ["int8-vnni"], values=False))
        rows.append((last - first, len(new), taken, taken / max(1, len(new))))
    return pd.DataFrame(rows, columns=["layers_of_resnet50", "new", "ms", "ms_each"])


if __name__ == "__main__":
    main()
