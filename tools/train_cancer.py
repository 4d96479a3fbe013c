"""Trains the cancer network in plain NumPy and writes the two files that `workloads.cancer()` reads.

    python -m tools.train_cancer [--out FOLDER]

Seeded, as tools/train_digits.py, whose steps it takes. Needs scikit-learn (extra `dev`), from which the data come. The
held-out samples take no part in training or in the features' means and deviations.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tools.train_digits import Weights, adam, backward, forward
from workloads.networks import DATA_FILES, F32, cancer_layers

SEED = 2026
HELD_OUT = 0.25  # of each class
EPOCHS = 60
BATCH = 32
LEARNING_RATE = 3e-3
SHAPES = {"fc1": (30, 48), "fc2": (48, 24), "fc3": (24, 2)}


def main(argv: Sequence[str] | None = None) -> None:
    """Loads, splits, trains, reports held-out accuracy, and writes samples and weights."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--out", type=Path, default=DATA_FILES, help="folder for the two .npz files")
    out: Path = parser.parse_args(argv).out

    features, labels = load_cancer()
    held_out = split(labels)
    samples = standardized(features, ~held_out)
    weights = train(samples[~held_out], labels[~held_out], EPOCHS)

    correct = forward(samples[held_out], cancer_layers(weights))[0].argmax(axis=1) == labels[held_out]
    print(f"held-out accuracy {correct.mean():.4f} ({correct.sum()} of {correct.size})")
    out.mkdir(parents=True, exist_ok=True)
    np.savez_compressed(out / "cancer_samples.npz", samples=samples[:, :, 0, 0], labels=labels, held_out=held_out)
    arrays: dict[str, Any] = dict(weights)
    np.savez_compressed(out / "cancer_weights.npz", **arrays)


def load_cancer() -> tuple[NDArray[np.float64], NDArray[np.uint8]]:
    """Features (569, 30) and labels (569,): 0 malignant, 1 benign."""
    from sklearn import datasets  # here alone: training and its test need it, nothing else does

    data = datasets.load_breast_cancer()
    return data.data, data.target.astype(np.uint8)


def split(labels: NDArray[np.uint8]) -> NDArray[np.bool_]:
    """True for the held-out samples: the same share of each class, drawn with `SEED`."""
    rng = np.random.Generator(np.random.PCG64(SEED))
    held_out = np.zeros(labels.size, dtype=bool)
    for label in np.unique(labels):
        members = np.flatnonzero(labels == label)
        held_out[rng.choice(members, round(HELD_OUT * members.size), replace=False)] = True
    return held_out


def standardized(features: NDArray[np.float64], known: NDArray[np.bool_]) -> F32:
    """Samples (N, 30, 1, 1): each feature less its mean, over its deviation, both of the known samples."""
    mean, deviation = features[known].mean(axis=0), features[known].std(axis=0)
    samples: F32 = ((features - mean) / deviation).astype(np.float32)[:, :, None, None]
    return samples


def train(samples: F32, labels: NDArray[np.uint8], epochs: int) -> Weights:
    """Cross-entropy by Adam with decoupled weight decay and a cosine schedule."""
    rng = np.random.Generator(np.random.PCG64([SEED, 1]))
    weights: Weights = {}
    for name, shape in SHAPES.items():
        weights[f"{name}.weights"] = rng.standard_normal(shape, dtype=np.float32) * np.float32((2 / shape[0]) ** 0.5)
        weights[f"{name}.bias"] = np.zeros(shape[1], dtype=np.float32)
    moments = {key: (np.zeros_like(w), np.zeros_like(w)) for key, w in weights.items()}
    batches = -(-len(samples) // BATCH)
    step, steps = 0, epochs * batches
    for _ in range(epochs):
        for picked in np.array_split(rng.permutation(len(samples)), batches):
            gradients = backward(samples[picked], labels[picked], cancer_layers(weights))
            step += 1
            rate = LEARNING_RATE * 0.5 * (1 + np.cos(np.pi * step / steps))
            for key, gradient in gradients.items():
                weights[key] = adam(weights[key], gradient, moments[key], step, rate)
    return weights


if __name__ == "__main__":
    main()
