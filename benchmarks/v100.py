"""`python -m benchmarks.v100`: inference on a V100, float32 beside float16, predicted beside published.

Published: kexinzhao/Paddle_benchmark, float16_benchmark.md at 1e5a0ed4: one V100, cuDNN 7.1.1, CUDA 9.0, tensor cores
on in float16, ms a batch averaged over 1000 iterations, images of 3x224x224.

Predicted: each convolution and fully connected layer by `simdnn.estimate`, all its data from memory, launch included.
cuDNN's kernels for tensor cores want channels last, the framework's tensors have them first (NVIDIA, Convolutional
Layers User's Guide, on tensor layouts): in float16 each convolution's source, weights and result are brought from one
layout to the other, by a kernel each. Between the layers stand kernels that go element by element, as a framework
without fusion runs them. All these take their bytes at the memory's rate and a launch. VGG-16: bias and relu behind
every layer, 5 poolings, softmax. ResNet-50 (v1, stride in the first 1x1): batch normalization behind every convolution,
49 relu, 16 additions, 2 poolings, bias, softmax.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from math import prod
from typing import Any

import pandas as pd

import simdnn
import workloads
from isa_models.formats import fmt
from isa_models.gpu_machine import gpu_machine
from workloads.layer import ConvLayer

BATCHES = (1, 2, 4, 8, 16, 32, 64, 128)
TYPES = {"float32": "f32", "float16": "f16"}
NETWORKS = {"VGG-16": "vgg16", "ResNet-50": "resnet50-v1"}

#: ms by batch from 1 on, as far as they are given; beyond, memory ran out or the table ends
PUBLISHED: Mapping[tuple[str, str, str], tuple[float, ...]] = {
    ("VGG-16", "float32", "total"): (14.64, 10.24, 23.54, 28.41, 53.62, 83.84),
    ("VGG-16", "float16", "total"): (3.94, 4.62, 6.21, 9.39, 15.82, 28.54, 56.23),
    ("VGG-16", "float32", "convolutions"): (12.0, 6.96, 18.6, 21.4, 41.3, 60.7),
    ("VGG-16", "float16", "convolutions"): (1.81, 2.11, 2.95, 4.57, 8.0, 14.6),
    ("ResNet-50", "float32", "total"): (9.34, 9.59, 11.10, 14.46, 22.89, 39.9, 69.31),
    ("ResNet-50", "float16", "total"): (8.97, 8.55, 9.14, 8.90, 12.13, 18.74, 31.92, 59.47),
    ("ResNet-50", "float32", "convolutions"): (5.8, 5.54, 6.59, 8.45, 13.87, 24.5, 41.1),
    ("ResNet-50", "float16", "convolutions"): (4.5, 4.67, 4.23, 4.27, 5.66, 8.84, 15.3),
}


@dataclass(frozen=True)
class Times:
    """Milliseconds of a batch, by kind of kernel."""

    convolutions: float
    connected: float
    elements: float

    @property
    def total(self) -> float:
        return self.convolutions + self.connected + self.elements


def is_connected(layer: ConvLayer) -> bool:
    """Whether a layer of a table is a fully connected one: one pixel in, one out."""
    return (layer.ih, layer.iw, layer.kh, layer.kw) == (1, 1, 1, 1)


@cache
def layer_ms(layer: ConvLayer, batch: int, dtype: str) -> float:
    """One layer by itself, weights and source from memory; of an f16 convolution with its changes of layout."""
    with simdnn.cold_weights():
        if is_connected(layer):
            found = simdnn.estimate("matmul", m=batch, n=layer.oc, k=layer.ic, dt=dtype, machine="v100")
        else:
            sizes: dict[str, Any] = {name: getattr(layer, name) for name in ("ic", "ih", "iw", "oc", "kh", "kw")}
            taps: dict[str, Any] = {"strides": layer.stride, "padding": layer.pad}
            found = simdnn.estimate("convolution", mb=batch, dt=dtype, machine="v100", **sizes, **taps)
    return 1e3 * found.seconds + (layout_ms(layer, batch) if dtype == "f16" and not is_connected(layer) else 0.0)


def layout_ms(layer: ConvLayer, batch: int) -> float:
    """Source, weights and result of an f16 convolution from one layout to another."""
    source, result = layer.ic * layer.ih * layer.iw, layer.oc * layer.oh * layer.ow
    sizes = batch * source, prod(layer.weights_shape), batch * result
    return sum(element_ms(2 * size, "f16") for size in sizes)


def element_ms(elements: float, dtype: str) -> float:
    """One kernel that reads and writes so many elements in all."""
    machine = gpu_machine("v100")
    return elements * fmt(dtype).bytes / (machine.dram_gb_s * 1e6) + machine.launch_us / 1e3


def elementwise(network: str, layers: tuple[ConvLayer, ...]) -> list[tuple[float, int]]:
    """(elements read and written for one image, how many such kernels) between the layers."""
    found: list[tuple[float, int]] = []
    for layer in layers:
        size = layer.oc * layer.oh * layer.ow
        if network == "VGG-16":
            found.append((2 * size, 2 * layer.count))  # bias, relu (softmax for the last)
        else:
            found.append((2 * size, layer.count))  # normalization, the bias of the last
    if network == "VGG-16":
        sides = ((64, 224), (128, 112), (256, 56), (512, 28), (512, 14))
        return [*found, *((channels * side * side * 1.25, 1) for channels, side in sides)]
    stem, stages = 64 * 112 * 112, ((256, 56, 3), (512, 28, 4), (1024, 14, 6), (2048, 7, 3))
    found += [(2 * stem, 1), (stem * 1.25, 1), (2048 * 50, 1), (2 * 1000, 1)]  # relu, poolings, softmax
    for channels, side, blocks in stages:
        wide = channels * side * side
        found += [(2 * wide / 4, 2 * blocks), (3 * wide, blocks), (2 * wide, blocks)]  # two relu, addition, relu
    return found


def predicted(network: str, batch: int, dtype: str) -> Times:
    """The times of a batch of images."""
    layers = tuple(layer for layer in workloads.load(NETWORKS[network]).layers if isinstance(layer, ConvLayer))
    sums = [0.0, 0.0]
    for layer in layers:
        sums[is_connected(layer)] += layer.count * layer_ms(layer, batch, dtype)
    elements = sum(count * element_ms(batch * size, dtype) for size, count in elementwise(network, layers))
    return Times(sums[0], sums[1], elements)


def table() -> pd.DataFrame:
    """A row for each network, part, batch: ms predicted and published, their ratio, and both speed-ups."""
    rows = []
    for network in NETWORKS:
        for batch_number, batch in enumerate(BATCHES):
            times = {name: predicted(network, batch, dtype) for name, dtype in TYPES.items()}
            for part in ("convolutions", "total"):
                row: dict[str, object] = {"network": network, "part": part, "batch": batch}
                speed: dict[str, dict[str, float]] = {"predicted": {}, "published": {}}
                for name in TYPES:
                    ms = getattr(times[name], part)
                    measured = PUBLISHED[network, name, part][batch_number : batch_number + 1]
                    speed["predicted"][name] = ms
                    row |= {f"{name}_ms": round(ms, 2), f"{name}_published": measured[0] if measured else None}
                    row[f"{name}_ratio"] = round(ms / measured[0], 2) if measured else None
                    speed["published"] |= dict.fromkeys([name] if measured else [], *measured)
                for source, both in speed.items():
                    row[f"speedup_{source}"] = round(both["float32"] / both["float16"], 2) if len(both) == 2 else None
                rows.append(row)
    return pd.DataFrame(rows).sort_values(["network", "part", "batch"], ascending=[False, True, True])


def main() -> None:
    """Print the table, and how many cells are near."""
    found = table()
    print("V100, 3x224x224, ms a batch: predicted, published, predicted / published; speed-up of float16 over float32")
    print(found.to_string(index=False, na_rep="-"))
    ratios = pd.concat([found[f"{name}_ratio"] for name in TYPES]).dropna()
    speedups = (found["speedup_predicted"] / found["speedup_published"]).dropna()
    for what, cells in (("times", ratios), ("speed-ups", speedups)):
        print(f"{int(((cells >= 0.8) & (cells <= 1.2)).sum())} of {len(cells)} {what} within 20 %")


if __name__ == "__main__":
    main()
