"""Pictures made smaller and larger, and how they are judged; where fetched, the real network as onnxruntime runs it."""

from __future__ import annotations

import numpy as np
import onnxruntime
import pytest
from hypothesis import given
from hypothesis import strategies as st

import simdnn
from isa_models import InvalidArgument
from workloads import packages, tfjs
from workloads import super_resolution as sr

HERE = all((packages.folder() / "sr" / name).is_file() for name in ("model.json", *sr.PHOTOS, *sr.CALIBRATION_PHOTOS))
needs_model = pytest.mark.skipif(not HERE, reason="`simdnn fetch-models sr` has not been run")


@given(st.integers(0, 255), st.integers(2, 12), st.integers(1, 24))
def test_a_flat_picture_stays_flat(value: int, old: int, new: int) -> None:
    image = np.full((old, old, 3), value, np.uint8)
    assert (sr.resized(image, new) == value).all()


def test_bicubic_interpolation() -> None:
    """A slope stays one away from the borders; turning and mirroring a picture turns and mirrors what is made of it."""
    slope = np.broadcast_to((np.arange(24) * 8)[None, :, None], (24, 24, 1)).astype(np.uint8)
    small, large = (sr.resized(slope, size)[0, :, 0].astype(int) for size in (12, 48))
    assert (np.diff(small)[1:-1] == 16).all() and (np.diff(large)[4:-4] == 4).all()
    image = np.random.default_rng(0).integers(0, 256, (16, 16, 3)).astype(np.uint8)
    for size in (8, 32):
        made = sr.resized(image, size)
        np.testing.assert_array_equal(sr.resized(image[::-1], size), made[::-1])
        np.testing.assert_array_equal(sr.resized(image.transpose(1, 0, 2), size), made.transpose(1, 0, 2))
    step = np.zeros((16, 16, 1), np.uint8)
    step[:, 8:] = 200
    row = sr.resized(step, 32)[0, :, 0]
    assert row[12] == 0 and row.max() > 200  # cut at black, and it overshoots before white


def test_quality() -> None:
    image = np.full((4, 4, 3), 100, np.uint8)
    assert sr.psnr(image, image) == float("inf")
    assert sr.psnr(image, image + 1) == pytest.approx(48.13, abs=0.01)
    worst = sr.as_picture({"y": np.array([np.nan, np.inf, -np.inf, 0.5], np.float32).reshape(1, 1, 2, 2)})
    assert worst[:, :, 0].tolist() == [[0, 255], [0, 128]]


@needs_model
def test_the_real_network() -> None:
    """It enlarges better than bicubic interpolation (30.01 dB, 28.66 dB), and the same in onnxruntime and here."""
    model = sr.model()
    data = sr.data(model, len(sr.PHOTOS), 0)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    outputs = [{"SR": session.run(["SR"], dict(sample))[0]} for sample in data.samples]
    assert data.score([data.answer(o) for o in outputs], [])["psnr_db"] == pytest.approx(30.01, abs=0.02)
    small = [np.rint(sample["LR"][0].transpose(1, 2, 0) * 255).astype(np.uint8) for sample in data.samples]
    bicubic = data.score([sr.resized(image, sr.SIZE) for image in small], [])["psnr_db"]
    assert bicubic == pytest.approx(28.66, abs=0.02)
    found = simdnn.load(model).run({"LR": data.samples[0]["LR"][:, :, :12, :12]}, machine="zen4").outputs["SR"]
    wanted = session.run(["SR"], {"LR": data.samples[0]["LR"][:, :, :12, :12]})[0]
    np.testing.assert_allclose(found, wanted, atol=2e-5)


@needs_model
def test_which_photos() -> None:
    model = tfjs.read(packages.path("sr", "model.json"))
    few, others = sr.data(model, 3, 1), sr.data(model, 3, 2)
    assert len(few.samples) == 3 and few.samples[0]["LR"].shape == (1, 3, 48, 48)
    np.testing.assert_array_equal(few.samples[0]["LR"], sr.data(model, 5, 1).samples[0]["LR"])
    assert any((a["LR"] != b["LR"]).any() for a, b in zip(few.samples, others.samples, strict=True))
    for count in (0, 13):
        with pytest.raises(InvalidArgument, match=f"{count} photos; there are 12"):
            sr.data(model, count, 0)
    assert not set(sr.PHOTOS) & set(sr.CALIBRATION_PHOTOS)
