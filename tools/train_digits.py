"""Trains the digits network in plain NumPy and writes the two files that `workloads.digits()` reads.

    python tools/train_digits.py [--out FOLDER]

Seeded: the same NumPy on the same machine with one BLAS thread (OPENBLAS_NUM_THREADS=1) gives the same weights, in less
than a minute. Needs scikit-learn (extra `dev`), from which the images come. The held-out images take no part in
training or in any choice below.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from workloads.networks import DATA_FILES, F32, PIXEL_MAX, NetworkLayer, digits_layers

SEED = 2026
HELD_OUT_PER_CLASS = 36
# Chosen by five-fold cross-validation within the training images (0.992; without `moved` 0.971).
EPOCHS = 80
BATCH = 64
LEARNING_RATE = 3e-3
WEIGHT_DECAY = 1e-2
TURN, SCALE, SHIFT = 0.12, 0.06, 0.4  # standard deviations: radians, relative, pixels
SHAPES = {"conv1": (16, 1, 3, 3), "conv2": (32, 16, 3, 3), "conv3": (64, 32, 3, 3), "fc": (256, 10)}

Weights = dict[str, F32]


def main(argv: Sequence[str] | None = None) -> None:
    """Loads, splits, trains, reports held-out accuracy, and writes images and weights."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--out", type=Path, default=DATA_FILES, help="folder for the two .npz files")
    out: Path = parser.parse_args(argv).out

    pixels, labels = load_digits()
    held_out = split(labels)
    images = (pixels[:, None] / PIXEL_MAX).astype(np.float32)
    weights = train(images[~held_out], labels[~held_out], EPOCHS)

    correct = forward(images[held_out], digits_layers(weights))[0].argmax(axis=1) == labels[held_out]
    print(f"held-out accuracy {correct.mean():.4f} ({correct.sum()} of {correct.size})")
    out.mkdir(parents=True, exist_ok=True)
    np.savez_compressed(out / "digits_images.npz", images=pixels, labels=labels, held_out=held_out)
    arrays: dict[str, Any] = dict(weights)
    np.savez_compressed(out / "digits_weights.npz", **arrays)


def load_digits() -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    """Images (1797, 8, 8) with values 0..16, and labels (1797,)."""
    from sklearn import datasets  # here alone: training and its test need it, nothing else does

    data = datasets.load_digits()
    return data.images.astype(np.uint8), data.target.astype(np.uint8)


def split(labels: NDArray[np.uint8]) -> NDArray[np.bool_]:
    """True for the held-out images: the same number of each class, drawn with `SEED`."""
    rng = np.random.Generator(np.random.PCG64(SEED))
    held_out = np.zeros(labels.size, dtype=bool)
    for label in np.unique(labels):
        held_out[rng.choice(np.flatnonzero(labels == label), HELD_OUT_PER_CLASS, replace=False)] = True
    return held_out


def train(images: F32, labels: NDArray[np.uint8], epochs: int) -> Weights:
    """Cross-entropy by Adam with decoupled weight decay and a cosine schedule, on images moved a little."""
    rng = np.random.Generator(np.random.PCG64([SEED, 1]))
    weights = initial_weights(rng)
    moments = {key: (np.zeros_like(w), np.zeros_like(w)) for key, w in weights.items()}
    steps_per_epoch = -(-len(images) // BATCH)
    step, steps = 0, epochs * steps_per_epoch
    for _ in range(epochs):
        for picked in np.array_split(rng.permutation(len(images)), steps_per_epoch):
            gradients = backward(moved(images[picked], rng), labels[picked], digits_layers(weights))
            step += 1
            rate = LEARNING_RATE * 0.5 * (1 + np.cos(np.pi * step / steps))
            for key, gradient in gradients.items():
                weights[key] = adam(weights[key], gradient, moments[key], step, rate)
    return weights


def initial_weights(rng: np.random.Generator) -> Weights:
    """He's normal initialization; zero bias."""
    weights: Weights = {}
    for name, shape in SHAPES.items():
        fan_in = shape[0] if name == "fc" else int(np.prod(shape[1:]))
        weights[f"{name}.weights"] = rng.standard_normal(shape, dtype=np.float32) * np.float32((2 / fan_in) ** 0.5)
        weights[f"{name}.bias"] = np.zeros(shape[1] if name == "fc" else shape[0], dtype=np.float32)
    return weights


def moved(images: F32, rng: np.random.Generator) -> F32:
    """Each image (N, 1, H, W) turned, scaled and shifted a little about its middle, by bilinear interpolation."""
    n, _, height, width = images.shape
    angle = rng.normal(0, TURN, (n, 1, 1))
    scale = 1 + rng.normal(0, SCALE, (n, 1, 1))
    shift_y, shift_x = rng.normal(0, SHIFT, (2, n, 1, 1))
    y, x = np.mgrid[:height, :width].astype(float)
    y, x = y - (height - 1) / 2, x - (width - 1) / 2
    from_y = scale * (np.cos(angle) * y - np.sin(angle) * x) + shift_y + (height + 1) / 2  # in the padded image
    from_x = scale * (np.sin(angle) * y + np.cos(angle) * x) + shift_x + (width + 1) / 2
    from_y, from_x = np.clip(from_y, 0, height + 0.999), np.clip(from_x, 0, width + 0.999)
    row, col = from_y.astype(int), from_x.astype(int)
    down, right = from_y - row, from_x - col
    padded, image = np.pad(images[:, 0], ((0, 0), (1, 1), (1, 1))), np.arange(n)[:, None, None]
    upper = (1 - right) * padded[image, row, col] + right * padded[image, row, col + 1]
    lower = (1 - right) * padded[image, row + 1, col] + right * padded[image, row + 1, col + 1]
    result: F32 = ((1 - down) * upper + down * lower)[:, None].astype(np.float32)
    return result


def adam(weights: F32, gradient: F32, moments: tuple[F32, F32], step: int, rate: float) -> F32:
    """One step of Adam (D. Kingma, J. Ba, ICLR 2015) with the authors' constants; updates `moments` in place."""
    first, second = moments
    first += np.float32(0.1) * (gradient - first)
    second += np.float32(0.001) * (gradient * gradient - second)
    update = first / (1 - 0.9**step) / (np.sqrt(second / (1 - 0.999**step)) + 1e-8)
    stepped: F32 = (weights - rate * (update + WEIGHT_DECAY * weights)).astype(np.float32)
    return stepped


def forward(images: F32, layers: Sequence[NetworkLayer]) -> tuple[F32, list[tuple[F32, F32]]]:
    """Logits (N, 10), and for each layer its source laid out as a matrix and its result: what `backward` needs."""
    x, kept = images, []
    for layer in layers:
        columns = im2col(x, layer) if layer.kind == "conv" else x.reshape(len(x), -1)
        y = columns @ as_matrix(layer) + layer.bias
        if layer.kind == "conv":
            y = np.moveaxis(y, -1, 1)
        x = np.maximum(y, np.float32(0)) if layer.relu else y
        kept.append((columns, x))
    return x, kept


def backward(images: F32, labels: NDArray[np.uint8], layers: Sequence[NetworkLayer]) -> Weights:
    """Gradients of the mean cross-entropy with respect to all weights and biases."""
    logits, kept = forward(images, layers)
    exponentials = np.exp(logits - logits.max(axis=1, keepdims=True))
    upstream = exponentials / exponentials.sum(axis=1, keepdims=True)
    upstream[np.arange(len(labels)), labels] -= 1
    upstream /= len(labels)
    gradients: Weights = {}
    for index in reversed(range(len(layers))):
        layer, (columns, result) = layers[index], kept[index]
        if layer.relu:
            upstream = upstream.reshape(result.shape) * (result > 0)
        flat = (np.moveaxis(upstream, 1, -1) if layer.kind == "conv" else upstream).reshape(-1, layer.bias.size)
        gradient = columns.reshape(len(flat), -1).T @ flat
        as_stored = gradient.T if layer.kind == "conv" else gradient
        gradients[f"{layer.name}.weights"] = as_stored.reshape(layer.weights.shape)
        gradients[f"{layer.name}.bias"] = flat.sum(axis=0)
        if index:
            towards = (flat @ as_matrix(layer).T).reshape(columns.shape)
            upstream = col2im(towards, layer, kept[index - 1][1].shape) if layer.kind == "conv" else towards
    return gradients


def as_matrix(layer: NetworkLayer) -> F32:
    """Weights as (K, outputs)."""
    return layer.weights.reshape(layer.bias.size, -1).T if layer.kind == "conv" else layer.weights


def im2col(x: F32, layer: NetworkLayer) -> F32:
    """Source windows as (N, oh, ow, ic*kh*kw)."""
    _, ic, kh, kw = layer.weights.shape
    padded = np.pad(x, ((0, 0), (0, 0), (layer.pad, layer.pad), (layer.pad, layer.pad)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (kh, kw), axis=(2, 3))
    windows = windows[:, :, :: layer.stride, :: layer.stride]
    n, _, oh, ow = windows.shape[:4]
    return windows.transpose(0, 2, 3, 1, 4, 5).reshape(n, oh, ow, ic * kh * kw)


def col2im(columns: F32, layer: NetworkLayer, shape: tuple[int, ...]) -> F32:
    """The transpose of `im2col`: adds window gradients up into a source of `shape`."""
    n, ic, height, width = shape
    _, _, kh, kw = layer.weights.shape
    _, oh, ow, _ = columns.shape
    windows = columns.reshape(n, oh, ow, ic, kh, kw).transpose(0, 3, 4, 5, 1, 2)
    padded: NDArray[Any] = np.zeros((n, ic, height + 2 * layer.pad, width + 2 * layer.pad), dtype=np.float32)
    for i in range(kh):
        for j in range(kw):
            rows, cols = slice(i, i + oh * layer.stride, layer.stride), slice(j, j + ow * layer.stride, layer.stride)
            padded[:, :, rows, cols] += windows[:, :, i, j]
    return padded[:, :, layer.pad : layer.pad + height, layer.pad : layer.pad + width]


if __name__ == "__main__":
    main()
