"""`python -m benchmarks.v100`: inference on a V100, float32 beside float16, predicted beside published.

Published: kexinzhao/Paddle_benchmark, float16_benchmark.md at 1e5a0ed4: one V100, cuDNN 7.1.1, CUDA 9.0, tensor cores
on in float16, ms a batch averaged over 1000 iterations, images of 3x224x224.

Predicted: each convolution and fully connected layer by `simdnn.estimate`, all its data from memory, launch included.
cuDNN's kernels for tensor cores want channels last, the framework's tensors have them first (NVIDIA, Convolutional
Layers User's Guide, on tensor layouts): in float16 each convolution's source, weights and result are brought from one
layout to the other, by a kernel each. What stands between the layers is the networks' of Paddle's float16 demo
(paddle/contrib/float16/float16_inference_demo.py): VGG-16 with a bias, batch normalization, relu and (8 of 13 times)
dropout, which scales in inference, each a kernel; ResNet-50 (v1, stride in the first 1x1) with batch normalization,
relu and additions. They take their bytes at the memory's sustained rate and a launch. The images come over PCIe, from
the host, at the rate that clpeak found on a V100; in float16 a kernel casts them.

The host prepares operator after operator, the device works behind: an operator begins when it is prepared and the one
before is done. How long the host takes for a convolution and for another operator is nowhere published; both are solved
from the two cells in `FITTED` and nothing else is fitted. A convolution's time is what a profiler sees: from the end of
the operator before, or the host's turning to this one, to its end.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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


#: the cells that the host's two times are solved from; they count for nothing else
FITTED = (("ResNet-50", "float16", "convolutions", 1), ("ResNet-50", "float16", "total", 1))
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
    return elements * fmt(dtype).bytes / (machine.sustained_gb_s * 1e6) + machine.launch_us / 1e3


def operators(network: str, batch: int, dtype: str) -> list[Operator]:
    """The operators of a batch in their order, the images' way to the device first."""
    image = batch * 3 * 224 * 224
    found = [Operator("feed", image * 4 / (PCIE_GB_S * 1e6))]
    if dtype == "f16":
        found.append(Operator("cast", element_ms(1.5 * image, "f32")))
    for layer in workloads.load(NETWORKS[network]).layers:
        assert isinstance(layer, ConvLayer)
        size = batch * layer.oc * layer.oh * layer.ow
        ms = layer_ms(layer, batch, dtype)
        found += [Operator(layer.name, ms, not is_connected(layer))] * layer.count
        behind = _behind_vgg(layer) if network == "VGG-16" else _behind_resnet(layer)
        found += [Operator(name, element_ms(share * size, dtype)) for name, share in behind * layer.count]
    return [*found, Operator("softmax", element_ms(2 * batch * 1000, dtype))]


Behind = list[tuple[str, float]]  # operators behind a layer: elements read and written for each of its outputs


def _behind_vgg(layer: ConvLayer) -> Behind:
    found: Behind = [("bias", 2)]
    if not is_connected(layer) or layer.name == "fc6":
        found += [("normalize", 2), ("relu", 2)]
    if layer.name in (*DROPPED, "conv5_3", "fc6"):
        found.append(("dropout", 2 if layer.name != "conv5_3" else 0.5))  # the last one's behind the pooling
    last = {"conv1_2", "conv2_2", "conv3_3", "conv4_3", "conv5_3"}
    return [*found, ("pool", 1.25)] if layer.name in last else found


def _behind_resnet(layer: ConvLayer) -> Behind:
    if is_connected(layer):
        return [("bias", 2)]
    part = layer.name.split(".")[-1]
    found: Behind = [("normalize", 2)]
    first = layer.name.split(".")[-2:-1] == ["0"]  # of a stage: its addition waits for the shortcut's layer
    if part == "downsample" or part == "conv3" and not first:
        found += [("add", 3), ("relu", 2)]
    elif part != "conv3":
        found.append(("relu", 2))
    if layer.name == "conv1":
        found.append(("pool", 1.25))
    return [*found, ("pool", 1)] if layer.name == "layer4.2.conv3" else found


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
    (network, name, part, batch), whole = FITTED[0], FITTED[1]
    sequence = operators(network, batch, TYPES[name])
    wanted = Times(PUBLISHED[network, name, part][0], PUBLISHED[whole[:3]][0])
    count = sum(operator.convolution for operator in sequence)
    host = Host(0.0, 0.0)
    for _ in range(100):
        met = run(sequence, host)
        convolution = host.convolution + (wanted.convolutions - met.convolutions) / count
        other = (wanted.total - sequence[-1].ms - count * convolution) / (len(sequence) - count)
        host = Host(max(0.0, convolution), max(0.0, other))
    return host


def predicted(network: str, batch: int, dtype: str) -> Times:
    """The times of a batch of images."""
    return run(operators(network, batch, dtype), host_times())


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


def near(found: pd.DataFrame, name: str) -> pd.Series[bool]:
    """Which cells of a type are within 20 %, those that the host's times were solved from left out."""
    fitted = {(network, part, batch) for network, kind, part, batch in FITTED if kind == name}
    cells = found.set_index(["network", "part", "batch"])[f"{name}_ratio"].dropna()
    return cells[[cell not in fitted for cell in cells.index]].between(0.8, 1.2)


def main() -> None:
    """Print the table, and how many cells are near."""
    found, host = table(), host_times()
    print("V100, 3x224x224, ms a batch: predicted, published, predicted / published; speed-up of float16 over float32")
    print(found.to_string(index=False, na_rep="-"))
    print(f"the host's time: {1e3 * host.convolution:.0f} us a convolution, {1e3 * host.other:.0f} us another operator")
    cells = pd.concat([near(found, name) for name in TYPES])
    print(f"{int(cells.sum())} of {len(cells)} times within 20 %; {len(FITTED)} more are fitted")
    speedups = (found["speedup_predicted"] / found["speedup_published"]).dropna()
    print(f"{int(speedups.between(0.8, 1.2).sum())} of {len(speedups)} speed-ups within 20 %")


if __name__ == "__main__":
    main()
