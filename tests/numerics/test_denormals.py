"""Values on a thread that flushes denormals, as `torch.set_flush_denormal` and libraries with -ffast-math leave it."""

from __future__ import annotations

import platform
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import onnx
import pytest

import simdnn
from isa_models import instruction
from isa_models.host import denormals
from tests.networks.models import model

pytestmark = pytest.mark.skipif(platform.machine().lower() not in ("x86_64", "amd64"), reason="the state is x86's")

FLUSHED = 0x9FC0  # of MXCSR: denormals are zeros as operands and as results
SMALL = (np.random.default_rng(0).standard_normal((4, 64)) * 2.0**-70).astype(np.float32)
WEIGHTS = (np.random.default_rng(1).standard_normal((64, 16)) * 2.0**-70).astype(np.float32)


@contextmanager
def flushed() -> Iterator[None]:
    before = denormals.exchange()(FLUSHED)
    try:
        yield
        assert denormals.exchange()(FLUSHED) & FLUSHED == FLUSHED  # it is the caller's again
    finally:
        denormals.exchange()(before)


def squared(x: Any) -> Any:
    made = model([onnx.helper.make_node("Mul", ["x", "x"], ["y"])], {"x": x.shape}, ["y"])
    return simdnn.load(made).run({"x": x}, machine="spr").outputs["y"]


COMPUTED: dict[str, Callable[[], Any]] = {
    "compiled": lambda: simdnn.matmul(SMALL, WEIGHTS, machine="spr", engine="compiled").output,
    "called again": lambda: [simdnn.matmul(SMALL, WEIGHTS, machine="zen4").output for _ in range(3)][-1],
    "reference": lambda: simdnn.matmul(SMALL, WEIGHTS, machine="hsw", engine="reference").output,
    "onednn": lambda: simdnn.matmul(SMALL, WEIGHTS, machine="spr", dispatch="onednn", threads=2).output,
    "a network": lambda: squared(SMALL),
    "an instruction": lambda: instruction("vmulps")(SMALL, SMALL),
    "explained": lambda: np.float32(simdnn.matmul(SMALL, WEIGHTS, machine="spr").explain(1, 2).value),
}


@pytest.mark.parametrize("what", COMPUTED)
def test_denormals_are_kept(what: str) -> None:
    usual = COMPUTED[what]()
    assert (np.abs(usual) < np.finfo(np.float32).tiny).all() and usual.any()
    with flushed():
        assert float(np.float32(1e-30) * np.float32(1e-10)) == 0
        found = COMPUTED[what]()
    assert found.tobytes() == usual.tobytes()
