"""Whatever the package hands out pickles, copies, compares, prints within some lines and has a form for notebooks.

The classes are found by walking the annotations of the public functions: a new one takes part on the day it is public.
"""

from __future__ import annotations

import contextlib
import copy
import functools
import pickle
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import isa_models
import simdnn
import simdnn.study
import workloads
from isa_models import errors
from isa_models.records.alike import alike
from simdnn.program.records import Affine, Loop
from tests import objects
from tests.effort import one_in

pytest.importorskip("onnx")  # the networks among them

PUBLIC = objects.public([simdnn, isa_models, workloads, simdnn.study])
NEAR = PUBLIC | {found for kind in PUBLIC for found in objects.of_methods(kind)}
ALL = objects.reached(PUBLIC)
LOOP = "vpdpbusd zmm0, zmm1, [rsi]\nvpaddd zmm3, zmm3, zmm0\n"
RNG = np.random.default_rng(0)
U8, S8 = RNG.integers(0, 256, (2, 32), np.uint8), RNG.integers(-128, 128, (32, 4)).astype(np.int8)
F32, WEI = RNG.standard_normal((2, 32)).astype(np.float32), RNG.standard_normal((32, 4)).astype(np.float32)


def samples() -> list[Any]:
    """One of each class at least, or what leads to one."""
    from simdnn.networks.float16_writer import Float16Report
    from simdnn.timing.tile_rests import Gap
    from tests.networks.models import small_cnn
    from workloads.real import CostPhase, Data, StoredVariant

    image = {"x": RNG.standard_normal((1, 3, 12, 12)).astype(np.float32)}
    network = simdnn.load(small_cnn())
    loop = simdnn.analyze(LOOP, machine="zen5")
    fast = simdnn.matmul(U8, S8, machine="skx")
    orders = simdnn.invariance("matmul", over={"machine": ["skx", "clx"]}, m=4, n=8, k=64, dt="u8:s8:s32")
    scale = simdnn.Quant(None, groups=(32, 1))
    stored = simdnn.Attr(fpmath="strict", apply_to_int=True, scales={"wei": scale})
    groups = simdnn.Attr(scales={"src": simdnn.Quant(None, groups=(1, 32)), "wei": scale})
    points = simdnn.Attr(zero_points={"src": simdnn.Quant(None, mask=0), "wei": simdnn.Quant(None, mask=0)})
    wanted = simdnn.estimate("matmul", m=2, n=4, k=32, machine="zen4").weights_desc
    return [
        simdnn.estimate("matmul", m=2, n=4, k=32, machine="zen4", attr=simdnn.Attr(post_ops=["relu"])),
        isa_models.machine("zen4"),
        isa_models.what_if("zen4", {"core.dispatch_slots": 8}),
        isa_models.machine("spr"),
        isa_models.machine("b580"),
        isa_models.machine("v100"),
        isa_models.instruction("vpmaddubsw"),
        isa_models.instruction("dpas.s8.s8.8.8.x16.s32"),
        isa_models.instruction("dpas.s8.s8.8.8.x16.s32").pieces(),
        network.run(image, machine="zen4"),
        network.estimate(image, machine="zen4"),
        network,
        simdnn.tune(network, machine="zen4", feeds=[image], modes=["f32", "fpmath-bf16"]),
        simdnn.run_model(network, image, ["f32"], machine="zen4"),
        Float16Report("f16", ["conv"], {"softmax": "sums"}),
        loop,
        loop.timeline,
        loop.values(),
        fast,
        fast.error_bound,
        fast.explain(0, 0),
        workloads.load("digits"),
        workloads.digits(),
        *workloads.REAL_NETWORKS.values(),
        simdnn.matmul(F32, WEI, machine="b580", attr=simdnn.Attr(post_ops=["relu"])),
        simdnn.convolution(np.ones((1, 4, 5, 5), "f4"), np.ones((4, 4, 3, 3), "f4"), machine="zen4"),
        simdnn.compare((U8, S8), "skx", "clx"),
        simdnn.softmax(F32, machine="zen4"),
        simdnn.attention(F32[None], F32[None], F32[None], machine="zen4"),
        simdnn.estimate("attention", heads=1, lq=128, lk=128, d=32, dt="f16", machine="a100").fused,
        simdnn.quantize_dynamic(F32, machine="zen4"),
        simdnn.quantize_mx(F32, "f4_e2m1"),
        simdnn.compress_weights(WEI, "u4", group=16),
        simdnn.reorder(WEI, wanted, machine="zen4"),
        simdnn.Attr(scales={"wei": 0.5}, post_ops=["relu"]),
        *orders.attrs["witnesses"].values(),
        next(fast.kernel.program.ops()),
        Affine.var("k").steps(4, 3),
        isa_models.formats.fmt("bf16"),
        isa_models.instruction("dpas"),
        isa_models.gpu.platforms.PLATFORMS["pascal"].cuda_cores,
        simdnn.estimate("matmul", m=2, n=16, k=64, dt="f32:s4:f32", machine="zen4", attr=stored),
        simdnn.estimate("matmul", m=2, n=16, k=64, dt="u8:s8:s32", machine="b580", attr=points),
        simdnn.estimate("matmul", m=2, n=16, k=64, dt="f8_e4m3", machine="spr"),
        Gap(1272.5, 2300, 640),
        simdnn.estimate("matmul", m=2, n=16, k=64, dt="u8:s8:f32", machine="b580", attr=groups),
        simdnn.estimate("convolution", ic=4, oc=4, id=3, ih=3, iw=3, kd=2, kh=2, kw=2, machine="zen4"),
        fast.kernel.program.straight[0][0],
        workloads.MatmulLayer("fc", 1, 8, 8),
        Data([image], [image], len, max, [CostPhase("one", image)]),
        StoredVariant("int8", str),
    ]


@functools.cache
def made() -> dict[type, list[Any]]:
    return objects.harvest(samples())


def some(kind: type) -> list[Any]:
    """Objects of the class, or of those that inherit from it."""
    found = [one for other, of in made().items() if issubclass(other, kind) for one in of]
    assert found, f"a public function leads to {kind.__name__}: add an object of it to samples()"
    return found


def by_name(kinds: set[type]) -> list[type]:
    return sorted(kinds, key=lambda kind: f"{kind.__module__}.{kind.__name__}")


each = pytest.mark.parametrize("kind", by_name(ALL), ids=lambda kind: kind.__name__)
WAYS: dict[str, Callable[[Any], Any]] = {"pickle": lambda x: pickle.loads(pickle.dumps(x)), "deepcopy": copy.deepcopy}
with contextlib.suppress(ImportError):  # scikit-learn brings it
    from joblib.externals import cloudpickle

    WAYS["joblib"] = lambda x: cloudpickle.loads(cloudpickle.dumps(x))


@one_in(3)
@each
def test_it_is_copied(kind: type) -> None:
    found = some(kind)[0]
    for name, way in WAYS.items():
        other = way(found)
        assert type(other) is type(found) and repr(other) == repr(found), name
        assert other == found if kind in NEAR else alike(other, found), f"{name} makes another {kind.__name__}"


@pytest.mark.parametrize("kind", by_name(ALL - {Loop}), ids=lambda kind: kind.__name__)  # its text is its identity
def test_its_text_is_some_lines(kind: type) -> None:
    for one in some(kind):
        text = repr(one)
        assert len(text) <= 1000 and text.count("\n") < 10, text
        assert not re.search(r" at 0x[0-9a-f]+>", text), text


@pytest.mark.parametrize("kind", by_name(NEAR), ids=lambda kind: kind.__name__)
def test_a_notebook_shows_it(kind: type) -> None:
    for one in some(kind):
        html = one._repr_html_()
        assert html.startswith("<") and len(html) <= 100_000


def test_names_of_others_are_escaped_in_notebooks() -> None:
    from onnx import helper

    from simdnn.networks.float16_writer import Float16Report
    from tests.networks.models import model

    script = "<script>alert(1)</script>"
    hostile = model([helper.make_node("Relu", [script], ["y"], script)], {script: [2, 2]}, ["y"])
    hostile.graph.name = script
    network = simdnn.load(hostile)
    found = [
        network,
        *network.inputs,
        network.run({script: np.ones((2, 2), "f4")}, machine="zen4"),
        Float16Report("f16", [script]),
        workloads.Workload(script, script, script, (workloads.MatmulLayer(script, 1, 1, 1),)),
        workloads.MatmulLayer(script, 1, 1, 1),
    ]
    for one in found:
        assert "<script" not in one._repr_html_() and "&lt;script" in one._repr_html_(), type(one).__name__


def test_one_module_writes_html_of_texts() -> None:
    """A form for notebooks is that of `isa_models.records.display`, or a frame's own."""
    root = Path(simdnn.__file__).parents[1]
    files = [path for name in objects.PACKAGES for path in (root / name).rglob("*.py")]
    own = {path.name for path in files if "def _repr_html_" in path.read_text(encoding="utf-8")}
    assert own == {"attention.py", "display.py", "frames.py", "result.py", "runner.py", "tuned.py"}


def test_a_result_without_a_cost_says_so() -> None:
    zen5 = isa_models.cpu_machine("zen5")
    rows = {key: row for key, row in zen5.instructions.items() if row.mnemonic != "vpdpbusd"}
    bare = replace(zen5, instructions=rows)
    found = simdnn.matmul(U8, S8, machine=bare, isa="avx512_core_vnni", dispatch="gemm:avx512_core_vnni")
    assert "no cost: " in repr(found) and "vpdpbusd" in repr(found)
    assert "vpdpbusd" in found._repr_html_() and "u8" in found._repr_html_()


@pytest.mark.parametrize("kind", [*errors.SimdnnError.__subclasses__(), errors.SimdnnError], ids=lambda k: k.__name__)
def test_an_error_comes_back_from_a_worker(kind: type[errors.SimdnnError]) -> None:
    found = kind("what is met; what is allowed")
    for way in WAYS.values():
        assert str(way(found)) == str(found) and type(way(found)) is kind
