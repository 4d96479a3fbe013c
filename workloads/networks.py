"""Trained networks as plain data: shapes, weights, real images, and a slow forward pass in f32 to compare with.

The digits are the UCI "Optical Recognition of Handwritten Digits" data (E. Alpaydin, C. Kaynak, 1998,
doi:10.24432/C50P49, CC BY 4.0) in the copy of scikit-learn (BSD-3-Clause): 1797 images of 8x8 pixels, values 0..16.
The cancer data are the UCI "Breast Cancer Wisconsin (Diagnostic)" data (W. Wolberg, O. Mangasarian, N. Street,
W. Street, 1993, doi:10.24432/C5DW2B, CC BY 4.0) in the copy of scikit-learn: 569 samples, 30 measures of cell nuclei.
The weights come from tools/train_digits.py and tools/train_cancer.py and fall under this project's licence.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from isa_models.errors import InvalidArgument
from isa_models.keywords import typed_parts
from isa_models.records.alike import Alike
from isa_models.records.display import Brief, InNotebooks
from workloads.layer import ConvLayer, Layer, MatmulLayer
from workloads.table import Workload

F32 = NDArray[np.float32]
S = TypeVar("S", bound=np.generic)
DATA_FILES = Path(__file__).parent / "data_files"
PIXEL_MAX = 16  # scikit-learn's digits count ink in 4x4 cells


@typed_parts("a Classifier's layers")
@dataclass(frozen=True, eq=False, repr=False)
class NetworkLayer(Alike, Brief, InNotebooks):
    """One layer with its trained numbers.

    kind "conv": weights (oc, ic, kh, kw), source NCHW. kind "fc": weights (K, N); the source is flattened to (N, K)
    in the order of its axes. `bias` holds one value per output channel; `relu` clips the result at zero.
    """

    kind: str
    name: str
    weights: F32
    bias: F32
    stride: int = 1
    pad: int = 0
    relu: bool = True


@typed_parts("workloads.NETWORKS")
@dataclass(frozen=True, eq=False, repr=False)
class Classifier(Alike, Brief, InNotebooks):
    """A trained classifier and its real data. Images are f32 (N, C, H, W), pixels in 0..1; labels are u8 (N,)."""

    name: str
    title: str
    source: str
    layers: tuple[NetworkLayer, ...]
    train_images: F32
    train_labels: NDArray[np.uint8]
    test_images: F32
    test_labels: NDArray[np.uint8]

    def reference(self, images: F32) -> F32:
        """Logits (N, classes) in plain f32 NumPy: readable, slow, and the yardstick of every other path."""
        if images.ndim != 4 or images.shape[1:] != self.test_images.shape[1:]:
            shape = ", ".join(map(str, self.test_images.shape[1:]))
            raise InvalidArgument(f"images of shape {images.shape}; {self.name} needs (N, {shape})")
        x = images.astype(np.float32)
        for layer in self.layers:
            x = _convolve(x, layer) if layer.kind == "conv" else x.reshape(len(x), -1) @ layer.weights + layer.bias
            if layer.relu:
                x = np.maximum(x, np.float32(0))
        return x

    def workload(self) -> Workload:
        """The network's layers as a table of shapes, for one image."""
        rows: list[Layer] = []
        _, _, height, width = self.test_images.shape
        for layer in self.layers:
            if layer.kind == "conv":
                oc, ic, kh, kw = layer.weights.shape
                oh, ow = (_out_size(size, k, layer) for size, k in ((height, kh), (width, kw)))
                rows.append(ConvLayer(layer.name, ic, height, width, oc, oh, ow, kh, kw, layer.stride, layer.pad))
                height, width = oh, ow
            else:
                k, n = layer.weights.shape
                rows.append(MatmulLayer(layer.name, m=1, n=n, k=k))
        return Workload(self.name, self.title, self.source, tuple(rows))


def _weights(network: str) -> dict[str, NDArray[Any]]:
    """The shipped arrays of a network, by layer and kind."""
    with np.load(DATA_FILES / f"{network}_weights.npz") as data:
        return {key: _frozen(data[key]) for key in data.files}


def _samples(images: NDArray[Any], labels: NDArray[Any], held_out: NDArray[np.bool_]) -> dict[str, NDArray[Any]]:
    """The fields of a `Classifier` that hold its samples: those to train on, and those held out to test."""
    return {
        "train_images": _frozen(images[~held_out]),
        "train_labels": _frozen(labels[~held_out]),
        "test_images": _frozen(images[held_out]),
        "test_labels": _frozen(labels[held_out]),
    }


@cache
def digits() -> Classifier:
    """The digits network: three 3x3 convolutions and a fully connected layer, with 1437 training and 360 test images.

    >>> digits().test_images.shape
    (360, 1, 8, 8)
    """
    with np.load(DATA_FILES / "digits_images.npz") as data:
        images = (data["images"][:, None] / PIXEL_MAX).astype(np.float32)
        labels, held_out = data["labels"], data["held_out"].astype(bool)
    return Classifier(
        name="digits",
        title="Handwritten digits: 3 convolutions and a fully connected layer, one 8x8 image",
        source="UCI Optical Recognition of Handwritten Digits (CC BY 4.0) via scikit-learn; tools/train_digits.py",
        layers=digits_layers(_weights("digits")),
        **_samples(images, labels, held_out),
    )


def digits_layers(weights: dict[str, Any]) -> tuple[NetworkLayer, ...]:
    """The architecture, with arrays named LAYER.weights and LAYER.bias; the training script builds on it too."""

    def layer(kind: str, name: str, **shape: Any) -> NetworkLayer:
        return NetworkLayer(kind, name, weights[f"{name}.weights"], weights[f"{name}.bias"], **shape)

    return (
        layer("conv", "conv1", pad=1),
        layer("conv", "conv2", stride=2, pad=1),
        layer("conv", "conv3", stride=2, pad=1),
        layer("fc", "fc", relu=False),
    )


@cache
def cancer() -> Classifier:
    """The cancer network: three fully connected layers over 30 standardized measures, 427 training, 142 test samples.

    A sample is an "image" of 30 channels and one pixel. Its values can be negative, as pixels cannot.

    >>> cancer().test_images.shape
    (142, 30, 1, 1)
    """
    with np.load(DATA_FILES / "cancer_samples.npz") as data:
        samples = data["samples"][:, :, None, None]
        labels, held_out = data["labels"], data["held_out"].astype(bool)
    return Classifier(
        name="cancer",
        title="Malignant or benign from 30 measures of cell nuclei: 3 fully connected layers, one sample",
        source="UCI Breast Cancer Wisconsin (Diagnostic) (CC BY 4.0) via scikit-learn; tools/train_cancer.py",
        layers=cancer_layers(_weights("cancer")),
        **_samples(samples, labels, held_out),
    )


def cancer_layers(weights: dict[str, Any]) -> tuple[NetworkLayer, ...]:
    """The architecture, with arrays named LAYER.weights and LAYER.bias; the training script builds on it too."""

    def layer(name: str, relu: bool) -> NetworkLayer:
        return NetworkLayer("fc", name, weights[f"{name}.weights"], weights[f"{name}.bias"], relu=relu)

    return layer("fc1", True), layer("fc2", True), layer("fc3", False)


#: networks whose weights and data ship with the package
NETWORKS: dict[str, Callable[[], Classifier]] = {"digits": digits, "cancer": cancer}


def _convolve(x: F32, layer: NetworkLayer) -> F32:
    """Sums one kernel element at a time: (N, ic, oh, ow) sources against (oc, ic) weights."""
    oc, _, kh, kw = layer.weights.shape
    oh, ow = _out_size(x.shape[2], kh, layer), _out_size(x.shape[3], kw, layer)
    padded = np.pad(x, ((0, 0), (0, 0), (layer.pad, layer.pad), (layer.pad, layer.pad)))
    out = np.broadcast_to(layer.bias[:, None, None], (len(x), oc, oh, ow)).copy()
    for i in range(kh):
        for j in range(kw):
            window = padded[:, :, i : i + oh * layer.stride : layer.stride, j : j + ow * layer.stride : layer.stride]
            out += np.einsum("nchw,oc->nohw", window, layer.weights[:, :, i, j])
    return out


def _out_size(size: int, kernel: int, layer: NetworkLayer) -> int:
    return (size + 2 * layer.pad - kernel) // layer.stride + 1


def _frozen(array: NDArray[S]) -> NDArray[S]:
    """Makes an array read-only: `digits` hands every caller the same ones."""
    array.setflags(write=False)
    return array
