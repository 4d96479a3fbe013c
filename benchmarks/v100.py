"""`python -m benchmarks.v100`: a published float16 report of two GPUs, predicted beside published.

Published: kexinzhao/Paddle_benchmark, float16_benchmark.md at 1e5a0ed4: one V100, tensor cores on in float16, and one
Titan Xp, which has none; cuDNN 7.1.1, CUDA 9.0, ms a batch averaged over 1000 iterations, images of 3x224x224, and on
the V100 also of 3x32x32 (CIFAR-10).

Predicted: each convolution and fully connected layer by `simdnn.estimate`, all its data from memory, launch included.
cuDNN's kernels for tensor cores want channels last, the framework's tensors have them first (NVIDIA, Convolutional
Layers User's Guide, on tensor layouts): in float16 on a V100 each convolution's source, weights and result are brought
from one layout to the other, by a kernel each. What stands between the layers is the networks' of Paddle's float16 demo
(paddle/contrib/float16/float16_inference_demo.py): VGG-16 with a bias, batch normalization, relu and (8 of 13 times)
dropout, which scales in inference, each a kernel; ResNet-50 (v1, stride in the first 1x1) and ResNet-32 with batch
normalization, relu and additions. They take their bytes at the memory's sustained rate and a launch. The images come
over PCIe, from the host, at the rate that clpeak found on a V100; in float16 a kernel casts them.

The host prepares operator after operator, the device works behind: an operator begins when it is prepared and the one
before is done. How long the host takes for a convolution and for another operator is nowhere published; both are solved
from the two cells in `FITTED` and nothing else is fitted. A convolution's time is what a profiler sees: from the end of
the operator before, or the host's turning to this one, to its end.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from math import prod
from typing import Any

import pandas as pd

import simdnn
import workloads
from isa_models.formats import fmt
from isa_models.machines.loader import gpu_machine
from workloads.layer import ConvLayer

TYPES = {"float32": "f32", "float16": "f16"}


@dataclass(frozen=True)
class Network:
    """A network of the report: its layer table, the side of its images, and how many classes it tells apart."""

    table: str
    side: int
    classes: int


NETWORKS = {
    "VGG-16": Network("vgg16", 224, 1000),
    "ResNet-50": Network("resnet50-v1", 224, 1000),
    "VGG-16 CIFAR-10": Network("vgg16-cifar10", 32, 10),
    "ResNet-32 CIFAR-10": Network("resnet32-cifar10", 32, 10),
}
IMAGENET, CIFAR = (1, 2, 4, 8, 16, 32, 64, 128), (1, 2, 4, 8, 32, 64, 128, 256, 512)  # batches
V100, TITAN = "v100", "titan_xp"

#: (GPU, network, type, part): ms by batch, as far as they are given; beyond, memory ran out or the table ends
PUBLISHED: Mapping[tuple[str, str, str, str], tuple[float, ...]] = {
    (V100, "VGG-16", "float32", "total"): (14.64, 10.24, 23.54, 28.41, 53.62, 83.84),
    (V100, "VGG-16", "float16", "total"): (3.94, 4.62, 6.21, 9.39, 15.82, 28.54, 56.23),
    (V100, "VGG-16", "float32", "convolutions"): (12.0, 6.96, 18.6, 21.4, 41.3, 60.7),
    (V100, "VGG-16", "float16", "convolutions"): (1.81, 2.11, 2.95, 4.57, 8.0, 14.6),
    (V100, "ResNet-50", "float32", "total"): (9.34, 9.59, 11.10, 14.46, 22.89, 39.9, 69.31),
    (V100, "ResNet-50", "float16", "total"): (8.97, 8.55, 9.14, 8.90, 12.13, 18.74, 31.92, 59.47),
    (V100, "ResNet-50", "float32", "convolutions"): (5.8, 5.54, 6.59, 8.45, 13.87, 24.5, 41.1),
    (V100, "ResNet-50", "float16", "convolutions"): (4.5, 4.67, 4.23, 4.27, 5.66, 8.84, 15.3),
    (V100, "VGG-16 CIFAR-10", "float32", "total"): (3.94, 4.10, 4.08, 4.48, 6.90, 9.03, 14.04, 24.63, 45.36),
    (V100, "VGG-16 CIFAR-10", "float16", "total"): (3.78, 3.68, 3.76, 3.79, 4.14, 4.64, 6.45, 10.29, 17.90),
    (V100, "ResNet-32 CIFAR-10", "float32", "total"): (5.30, 4.87, 4.77, 4.98, 5.26, 5.80, 8.10, 12.91, 22.2),
    (V100, "ResNet-32 CIFAR-10", "float16", "total"): (5.77, 5.77, 5.29, 5.80, 5.74, 5.03, 5.23, 7.37, 11.53),
    (TITAN, "VGG-16", "float32", "total"): (5.79, 9.02, 14.75, 30.87, 71.33),
    (TITAN, "VGG-16", "float16", "total"): (5.47, 8.01, 13.41, 27.82, 67.04),
    (TITAN, "ResNet-50", "float32", "total"): (8.56, 8.23, 9.97, 14.63, 24.78),
    (TITAN, "ResNet-50", "float16", "total"): (8.50, 8.18, 9.89, 13.90, 22.98),
}


#: the cells that the host's two times are solved from; they count for nothing else
FITTED = ((V100, "ResNet-50", "float16", "convolutions", 1), (V100, "ResNet-50", "float16", "total", 1))
PCIE_GB_S = 10.64  # clpeak on a V100-SXM2-16GB, enqueueWriteBuffer (README of krrishnarraj/clpeak)
DROPPED = ("conv1_1", "conv2_1", "conv3_1", "conv3_2", "conv4_1", "conv4_2", "conv5_1", "conv5_2")  # VGG-16, dropout


@dataclass(frozen=True)
class Operator:
    """An operator of the framework: the device's milliseconds, and whether it is a convolution."""

    name: str
    ms: float
    convolution: bool = False


@dataclass(frozen=True)
class Host:
    """Milliseconds in which the host prepares an operator."""

    convolution: float
    other: float

    def of(self, operator: Operator) -> float:
        return self.convolution if operator.convolution else self.other


@dataclass(frozen=True)
class Times:
    """Milliseconds of a batch: what a profiler gives to convolutions, and all of it."""

    convolutions: float
    total: float


def is_connected(layer: ConvLayer) -> bool:
    """Whether a layer of a table is a fully connected one: one pixel in, one out."""
    return (layer.ih, layer.iw, layer.kh, layer.kw) == (1, 1, 1, 1)


@cache
def layer_ms(layer: ConvLayer, batch: int, dtype: str, gpu: str = V100) -> float:
    """One layer by itself, weights and source from memory; of an f16 convolution on tensor cores with its layouts."""
    with simdnn.cold_weights():
        if is_connected(layer):
            found = simdnn.estimate("matmul", m=batch, n=layer.oc, k=layer.ic, dt=dtype, machine=gpu)
        else:
            sizes: dict[str, Any] = {name: getattr(layer, name) for name in ("ic", "ih", "iw", "oc", "kh", "kw")}
            taps: dict[str, Any] = {"strides": layer.stride, "padding": layer.pad}
            found = simdnn.estimate("convolution", mb=batch, dt=dtype, machine=gpu, **sizes, **taps)
    laid_out = dtype == "f16" and not is_connected(layer) and gpu_machine(gpu).systolic_ops
    return 1e3 * found.seconds + (layout_ms(layer, batch, gpu) if laid_out else 0.0)


def layout_ms(layer: ConvLayer, batch: int, gpu: str) -> float:
    """Source, weights and result of an f16 convolution from one layout to another."""
    source, result = layer.ic * layer.ih * layer.iw, layer.oc * layer.oh * layer.ow
    sizes = batch * source, prod(layer.weights_shape), batch * result
    return sum(element_ms(2 * size, "f16", gpu) for size in sizes)


def element_ms(elements: float, dtype: str, gpu: str) -> float:
    """One kernel that reads and writes `elements` elements in all."""
    machine = gpu_machine(gpu)
    return elements * fmt(dtype).bytes / (machine.sustained_gb_s * 1e6) + machine.launch_us / 1e3


def operators(network: str, batch: int, dtype: str, gpu: str = V100) -> list[Operator]:
    """The operators of a batch in their order, the images' way to the device first."""
    asked = NETWORKS[network]
    image = batch * 3 * asked.side**2
    found = [Operator("feed", image * 4 / (PCIE_GB_S * 1e6))]
    if dtype == "f16":
        found.append(Operator("cast", element_ms(1.5 * image, "f32", gpu)))
    layers = [layer for layer in workloads.load(asked.table).layers if isinstance(layer, ConvLayer)]
    names = {layer.name for layer in layers}
    for layer in layers:
        size = batch * layer.oc * layer.oh * layer.ow
        ms = layer_ms(layer, batch, dtype, gpu)
        found += [Operator(layer.name, ms, not is_connected(layer))] * layer.count
        behind = _behind_vgg(layer) if network.startswith("VGG") else _behind_resnet(layer, names)
        found += [Operator(name, element_ms(share * size, dtype, gpu)) for name, share in behind * layer.count]
        if layer.name == layers[-2].name and not network.startswith("VGG"):
            found.append(Operator("pool", element_ms(size, dtype, gpu)))
    return [*found, Operator("softmax", element_ms(2 * batch * asked.classes, dtype, gpu))]


Behind = list[tuple[str, float]]  # operators behind a layer: elements read and written for each of its outputs


def _behind_vgg(layer: ConvLayer) -> Behind:
    found: Behind = [("bias", 2)]
    if not is_connected(layer) or layer.name == "fc6":
        found += [("normalize", 2), ("relu", 2)]
    if layer.name in (*DROPPED, "conv5_3", "fc6"):
        found.append(("dropout", 2 if layer.name != "conv5_3" else 0.5))  # the last one's behind the pooling
    last = {"conv1_2", "conv2_2", "conv3_3", "conv4_3", "conv5_3"}
    return [*found, ("pool", 1.25)] if layer.name in last else found


def _behind_resnet(layer: ConvLayer, names: Collection[str]) -> Behind:
    """`names` of all layers tell a block's last one, and whether its addition waits for the shortcut's layer."""
    if is_connected(layer):
        return [("bias", 2)]
    block, _, part = layer.name.rpartition(".")
    last = "conv3" if f"{block}.conv3" in names else "conv2"
    found: Behind = [("normalize", 2)]
    if part == "downsample" or part == last and f"{block}.downsample" not in names:
        found += [("add", 3), ("relu", 2)]
    elif part != last:
        found.append(("relu", 2))
    return [*found, ("pool", 1.25)] if layer.name == "conv1" and layer.stride > 1 else found


def run(sequence: Sequence[Operator], host: Host) -> Times:
    """The device behind the host."""
    prepared = done = convolutions = 0.0
    for operator in sequence:
        seen = max(prepared, done)
        prepared += host.of(operator)
        done = max(prepared, done) + operator.ms
        convolutions += (done - seen) * operator.convolution
    return Times(convolutions, done)


@cache
def host_times() -> Host:
    """Solved from `FITTED`: the convolutions' time and the total are what is published there."""
    (gpu, network, name, part, batch), whole = FITTED[0], FITTED[1]
    sequence = operators(network, batch, TYPES[name], gpu)
    wanted = Times(PUBLISHED[gpu, network, name, part][0], PUBLISHED[whole[:4]][0])
    count = sum(operator.convolution for operator in sequence)
    host = Host(0.0, 0.0)
    for _ in range(100):
        met = run(sequence, host)
        convolution = host.convolution + (wanted.convolutions - met.convolutions) / count
        other = (wanted.total - sequence[-1].ms - count * convolution) / (len(sequence) - count)
        host = Host(max(0.0, convolution), max(0.0, other))
    return host


def predicted(network: str, batch: int, dtype: str, gpu: str = V100) -> Times:
    """The times of a batch of images."""
    return run(operators(network, batch, dtype, gpu), host_times())


def batches(network: str) -> tuple[int, ...]:
    """The batches that the report's tables of a network have."""
    return IMAGENET if NETWORKS[network].side == 224 else CIFAR


def table() -> pd.DataFrame:
    """A row for each GPU, network, part and batch: ms predicted and published, their ratio, and both speed-ups."""
    rows = []
    for gpu, network, part in dict.fromkeys((gpu, network, part) for gpu, network, _, part in PUBLISHED):
        published = {name: PUBLISHED[gpu, network, name, part] for name in TYPES}
        for number, batch in enumerate(batches(network)[: max(map(len, published.values()))]):
            row: dict[str, object] = {"gpu": gpu, "network": network, "part": part, "batch": batch}
            speed: dict[str, dict[str, float]] = {"predicted": {}, "published": {}}
            for name, dtype in TYPES.items():
                ms = getattr(predicted(network, batch, dtype, gpu), part)
                measured = published[name][number : number + 1]
                speed["predicted"][name] = ms
                row |= {f"{name}_ms": round(ms, 2), f"{name}_published": measured[0] if measured else None}
                row[f"{name}_ratio"] = round(ms / measured[0], 2) if measured else None
                speed["published"] |= dict.fromkeys([name] if measured else [], *measured)
            for source, both in speed.items():
                row[f"speedup_{source}"] = round(both["float32"] / both["float16"], 2) if len(both) == 2 else None
            rows.append(row)
    return pd.DataFrame(rows)


def near(frame: pd.DataFrame, name: str) -> pd.Series[bool]:
    """Which cells of a type are within 20 %, those that the host's times were solved from left out."""
    fitted = {(gpu, network, part, batch) for gpu, network, kind, part, batch in FITTED if kind == name}
    cells = frame.set_index(["gpu", "network", "part", "batch"])[f"{name}_ratio"].dropna()
    return cells[[cell not in fitted for cell in cells.index]].between(0.8, 1.2)


def summary(frame: pd.DataFrame) -> pd.DataFrame:
    """A row a GPU and network: how many times and speed-ups are within 20 % of the published ones, and of how many."""
    rows = []
    for (gpu, network), part in frame.groupby(["gpu", "network"], sort=False):
        cells = pd.concat([near(part, name) for name in TYPES])
        ratios = (part["speedup_predicted"] / part["speedup_published"]).dropna()
        counts = {"times": len(cells), "near": int(cells.sum()), "speedups": len(ratios)}
        rows.append({"gpu": gpu, "network": network, **counts, "speedups_near": int(ratios.between(0.8, 1.2).sum())})
    return pd.DataFrame(rows)


def main() -> None:
    """Print the table, and how many cells are near."""
    found, host = table(), host_times()
    print("ms a batch: predicted, published, predicted / published; speed-up of float16 over float32")
    print(found.to_string(index=False, na_rep="-"))
    print(f"the host's time: {1e3 * host.convolution:.0f} us a convolution, {1e3 * host.other:.0f} us another operator")
    print(f"within 20 %, without the {len(FITTED)} times that are fitted")
    print(summary(found).to_string(index=False))


if __name__ == "__main__":
    main()
