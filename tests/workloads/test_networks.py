"""The shipped digits network: its data, its accuracy, and the script that trained it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import workloads
from isa_models.errors import InvalidArgument
from tools import train_digits
from workloads.networks import DATA_FILES, Classifier


@pytest.fixture(scope="module")
def digits() -> Classifier:
    return workloads.digits()


def test_held_out_accuracy(digits: Classifier) -> None:
    correct = digits.reference(digits.test_images).argmax(axis=1) == digits.test_labels
    assert correct.mean() >= 0.98


def test_split(digits: Classifier) -> None:
    """All 1797 images, none on both sides, the same number of each class held out."""
    sides = [{image.tobytes() for image in images} for images in (digits.train_images, digits.test_images)]
    assert not sides[0] & sides[1]
    assert len(digits.train_images) == len(digits.train_labels) == 1437
    assert len(digits.test_images) == len(digits.test_labels) == 360
    assert (np.bincount(digits.test_labels) == 36).all()


def test_images_are_scikit_learns(digits: Classifier) -> None:
    datasets = pytest.importorskip("sklearn.datasets")
    data = datasets.load_digits()
    held_out = train_digits.split(data.target)
    assert (digits.test_images[:, 0] * 16 == data.images[held_out]).all()
    assert (digits.test_labels == data.target[held_out]).all()
    assert (digits.train_images[:, 0] * 16 == data.images[~held_out]).all()


def test_types_and_ranges(digits: Classifier) -> None:
    assert digits.test_images.dtype == np.float32 and digits.test_images.shape[1:] == (1, 8, 8)
    assert digits.test_images.min() == 0 and digits.test_images.max() == 1
    for layer in digits.layers:
        assert layer.weights.dtype == layer.bias.dtype == np.float32
        assert not layer.weights.flags.writeable


def test_files_are_small() -> None:
    assert sum(path.stat().st_size for path in DATA_FILES.iterdir()) < 250_000  # two networks


def test_reference_by_hand(digits: Classifier) -> None:
    """One output of the strided second convolution, summed in Python."""
    first, second = digits.layers[:2]
    source = Classifier(**{**vars(digits), "layers": (first,)}).reference(digits.test_images[:1])
    result = Classifier(**{**vars(digits), "layers": (first, second)}).reference(digits.test_images[:1])
    total = float(second.bias[5])
    for c in range(16):
        for i in range(3):
            for j in range(3):
                y, x = 2 * 3 + i - 1, 2 * 1 + j - 1  # output (3, 1), stride 2, pad 1
                if 0 <= y < 8 and 0 <= x < 8:
                    total += float(source[0, c, y, x]) * float(second.weights[5, c, i, j])
    assert result.shape == (1, 32, 4, 4)
    assert result[0, 5, 3, 1] == pytest.approx(max(total, 0), abs=1e-5)


def test_training_forward_equals_reference(digits: Classifier) -> None:
    logits, _ = train_digits.forward(digits.test_images[:50], digits.layers)
    np.testing.assert_allclose(logits, digits.reference(digits.test_images[:50]), atol=1e-4)


def test_gradients_equal_finite_differences(digits: Classifier) -> None:
    """d loss / d weight of each layer at its steepest weight, against a central difference."""
    images, labels = digits.train_images[:8], digits.train_labels[:8]
    weights = train_digits.initial_weights(np.random.default_rng(0))
    gradients = train_digits.backward(images, labels, workloads.networks.digits_layers(weights))

    def loss() -> float:
        logits = train_digits.forward(images, workloads.networks.digits_layers(weights))[0].astype(np.float64)
        return float((np.log(np.exp(logits).sum(axis=1)) - logits[np.arange(8), labels]).mean())

    for key, gradient in gradients.items():
        at = np.unravel_index(np.abs(gradient).argmax(), gradient.shape)
        middle, step = weights[key][at], np.float32(1e-2)
        weights[key][at] = middle + step
        above = loss()
        weights[key][at] = middle - step
        difference = (above - loss()) / (2 * float(step))
        weights[key][at] = middle
        assert difference == pytest.approx(float(gradient[at]), rel=0.05), key


def test_a_few_epochs_learn(digits: Classifier) -> None:
    images, labels = digits.train_images[:400], digits.train_labels[:400]
    first, again = (train_digits.train(images[:100], labels[:100], epochs=1) for _ in range(2))
    assert all(np.allclose(first[key], again[key], atol=1e-3) for key in first)
    weights = train_digits.train(images, labels, epochs=4)
    logits, _ = train_digits.forward(images, workloads.networks.digits_layers(weights))
    assert (logits.argmax(axis=1) == labels).mean() > 0.6  # guessing gives 0.1


def test_the_script_writes_what_the_package_reads(
    digits: Classifier, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("sklearn")
    monkeypatch.setattr(train_digits, "EPOCHS", 1)
    train_digits.main(["--out", str(tmp_path)])
    assert capsys.readouterr().out.startswith("held-out accuracy 0.")
    monkeypatch.setattr(workloads.networks, "DATA_FILES", tmp_path)
    trained = workloads.digits.__wrapped__()
    assert (trained.test_images == digits.test_images).all()
    shapes = [(layer.name, layer.weights.shape) for layer in trained.layers]
    assert shapes == [(layer.name, layer.weights.shape) for layer in digits.layers]


def test_as_a_table(digits: Classifier) -> None:
    workload = workloads.load("digits")
    assert [layer.name for layer in workload.layers] == ["conv1", "conv2", "conv3", "fc"]
    assert workload.macs == 8 * 8 * 16 * 9 + 4 * 4 * 32 * 16 * 9 + 2 * 2 * 64 * 32 * 9 + 256 * 10
    assert workload.parameters == sum(layer.weights.size for layer in digits.layers)


@pytest.mark.parametrize("shape", [(8, 8), (2, 1, 8, 9), (2, 3, 8, 8)])
def test_images_of_another_shape(digits: Classifier, shape: tuple[int, ...]) -> None:
    with pytest.raises(InvalidArgument, match=r"digits needs \(N, 1, 8, 8\)"):
        digits.reference(np.zeros(shape, np.float32))


@pytest.mark.parametrize("name", list(workloads.NETWORKS))
def test_as_an_onnx_model(name: str) -> None:
    onnx, runtime = pytest.importorskip("onnx"), pytest.importorskip("onnxruntime")
    from workloads.export import onnx_model

    network = workloads.NETWORKS[name]()
    model = onnx_model(network)
    onnx.checker.check_model(model, full_check=True)
    session = runtime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    (logits,) = session.run(None, {"images": network.test_images[:20]})
    np.testing.assert_allclose(logits, network.reference(network.test_images[:20]), rtol=1e-4, atol=1e-4)
