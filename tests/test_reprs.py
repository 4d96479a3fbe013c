"""An object as a notebook or a prompt shows it: a line or two, with sizes and where to look."""

from __future__ import annotations

import inspect
import pickle
import re
import subprocess
import sys
from typing import Any

import numpy as np
import pandas as pd
import pytest

import isa_models
import simdnn
import workloads
from simdnn.networks.float16_writer import Float16Report
from simdnn.networks.precision import Mode

LOOP = "vpdpbusd zmm0, zmm1, zmm2\nvpaddd zmm3, zmm3, zmm0\n"
LONG = {"wei": np.ones(4096, np.float32)}


def network() -> simdnn.Network:
    pytest.importorskip("onnx")
    from workloads.export import onnx_model

    return simdnn.load(onnx_model(workloads.digits()))


OF_THE_INSIDE = ("graph", "node", "program", "kernel", "cost")


def product() -> Any:
    return simdnn.estimate("matmul", m=4, n=32, k=64, dt="f32", machine="zen4")


SHOWN: dict[str, tuple[Any, tuple[str, ...]]] = {
    "network": (network, ("8 nodes", "3 Conv", "25,866 parameters", "images", "logits")),
    "graph": (lambda: network().graph, ("8 nodes",)),
    "node": (lambda: network().graph.nodes[0], ("Conv", "images")),
    "estimate of a network": (
        lambda: network().estimate({"images": (1, 1, 8, 8)}, machine="zen4"),
        ("8 nodes on zen4", "cycles", ".to_frame()"),
    ),
    "few threads at work": (
        lambda: simdnn.estimate("matmul", m=130, n=70, k=300, dt="f32", machine="zen4", threads=8),
        ("2 of 8 threads at work",),
    ),
    "analysis": (lambda: simdnn.analyze(LOOP, machine="zen4"), ("2 instructions on zen4", "cycles an iteration")),
    "program": (lambda: product().kernel.program, ("Program('gemm:avx512_core'", "instructions")),
    "kernel": (lambda: product().kernel, ("Kernel(computes f32", "Program('gemm:avx512_core'")),
    "cost": (lambda: product().cost, ("cycles on zen4", ".traffic")),
    "machine": (lambda: isa_models.machine("zen4"), ("'zen4'", "cores", "L2 1,024 KiB", "zen4.toml")),
    "GPU": (lambda: isa_models.machine("b580"), ("'b580'", "GB/s")),
    "report of f16": (lambda: Float16Report("f16", ["conv"] * 500), ("500 nodes converted", "kept 0")),
    "attributes": (lambda: simdnn.Attr(exact_int8=False, scales=LONG), ("exact_int8=False", "4096 float32")),
}


@pytest.mark.parametrize("name", SHOWN)
def test_a_repr_is_short_and_says_what_it_is(name: str) -> None:
    make, told = SHOWN[name]
    shown = repr(make())
    assert len(shown) <= 320 and "\n" not in shown
    assert all(text in shown for text in told), shown


@pytest.mark.parametrize("name", [name for name in SHOWN if name not in OF_THE_INSIDE])
def test_a_notebook_has_a_form_of_its_own(name: str) -> None:
    make, _ = SHOWN[name]
    assert make()._repr_html_().startswith("<")


def test_a_machines_tables_show_their_first_rows() -> None:
    assert len(repr(isa_models.machine("zen4").instructions)) < 2000


def test_a_program_lists_itself_as_text() -> None:
    assert str(product().kernel.program).splitlines()[1].startswith("parallel for")


OUTCOMES = [
    "Analysis",
    "Blocks",
    "Comparison",
    "Conversion",
    "ErrorBound",
    "Estimate",
    "Quantized",
    "Reordered",
    "Result",
]


@pytest.mark.parametrize("name", [*OUTCOMES, "Witness"])
def test_an_outcome_made_by_hand_of_wrong_parts_is_refused(name: str) -> None:
    """Which part is wrong, its type, and who makes one."""
    kind = getattr(simdnn, name)
    needed = [p for p in inspect.signature(kind).parameters.values() if p.default is p.empty]
    with pytest.raises(simdnn.InvalidArgument, match=rf"^{name} met \w+=b'x'; its type is .+; .+ makes one$"):
        kind(*[b"x" for _ in needed])
    with pytest.raises(simdnn.InvalidArgument, match=f"^{name} without .*; needed: .*makes one$"):
        kind()


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"src": 3}, r"Mode met src=3; its type is str$"),
        ({"isas": ("avx2", 5)}, r"Mode met isas=\('avx2', 5\); its type is tuple\[str, ...\]$"),
        ({"layers": (("conv1",),)}, r"Mode met layers=.*; its type is tuple\[tuple\[str, str\], ...\]$"),
    ],
)
def test_a_mode_of_wrong_parts_is_refused(change: dict[str, Any], told: str) -> None:
    parts: dict[str, Any] = {"name": "mine", "title": "", "src": "f32", "weights": "s8", "isas": ("avx2",)}
    assert Mode(**parts).src == "f32"
    with pytest.raises(simdnn.InvalidArgument, match=told):
        Mode(**parts | change)


@pytest.mark.parametrize("name", ["Analysis", "Blocks", "Comparison", "ErrorBound", "Estimate", "Quantized", "Witness"])
def test_an_outcome_without_parts_has_a_repr(name: str) -> None:
    kind = getattr(simdnn, name)
    assert re.fullmatch(rf"<{name} of parts that cannot be shown: \w+Error: .+>", repr(kind.__new__(kind)))


def test_attributes_show_what_differs() -> None:
    assert repr(simdnn.Attr()) == "Attr()"
    assert repr(simdnn.Attr(fpmath="bf16", post_ops=["relu"])) == "Attr(fpmath='bf16', post_ops=('relu',))"
    assert "Quant(0.5" in repr(simdnn.Attr(scales={"src": 0.5}))


def test_frames_show_their_point_on_80_columns() -> None:
    """The chosen kernel and its reason stand first; what does not fit is named."""
    rng = np.random.default_rng(0)
    src, weights = rng.integers(0, 256, (8, 64)).astype(np.uint8), rng.integers(-128, 128, (64, 64)).astype(np.int8)
    fast = simdnn.matmul(src, weights, machine="skx")
    frames = {
        "dispatch": (fast.dispatch, ("implementation", "cycles", "reason", "rows more")),
        "reasons": (simdnn.compare((src, weights), "skx", "icx").reasons, ("reason", "side", "elements", "detail")),
        "ranges": (
            simdnn.ranges("matmul", weights=weights, machine="skx"),
            ("channel", "unsafe_pairs", "44 rows more"),
        ),
    }
    for name, (frame, told) in frames.items():
        text = repr(frame)
        assert max(map(len, text.splitlines())) <= 80 and "..." not in text, text
        assert all(word in text for word in told), (name, text)
    assert fast.dispatch["chosen"].tolist()[0] and repr(fast.dispatch).splitlines()[1].split()[0] == fast.implementation
    able = fast.dispatch["cycles"].notna().tolist()
    assert able == sorted(able, reverse=True)  # what was out stands behind what could run
    again = pickle.loads(pickle.dumps(fast.dispatch))
    assert repr(again) == repr(fast.dispatch)
    assert fast.dispatch.shape[1] == 5


def test_frames_hold_whole_texts_where_pandas_keeps_them_as_objects() -> None:
    """As pandas 2 does, which an option of pandas 3 brings back: texts were cut to their first letter."""
    code = """
import pandas as pd
pd.set_option("future.infer_string", False)
import simdnn
found = simdnn.estimate("matmul", m=8, n=64, k=64, dt="u8:s8:s32", machine="skx")
print(found.implementation in found.dispatch["implementation"].tolist())
"""
    if pd.__version__.startswith("2."):
        code = code.replace('pd.set_option("future.infer_string", False)', "")
    ran = subprocess.run([sys.executable, "-W", "ignore", "-c", code], capture_output=True, text=True)
    assert ran.stdout == "True\n", ran.stderr


def test_parts_of_frames_print_like_the_whole() -> None:
    """Rows chosen or sorted keep the printed columns; a few columns, or sums, print as pandas has them."""
    frame = simdnn.estimate("matmul", m=8, n=64, k=64, dt="u8:s8:s32", machine="skx").dispatch
    for part in (frame.head(2), frame.dropna(), frame.sort_values("cycles"), frame[frame["cycles"].notna()]):
        assert repr(part).startswith("implementation  ") and "..." not in repr(part)
    plain = pd.DataFrame(frame)
    assert repr(frame[["cycles"]].head(1)) == repr(plain[["cycles"]].head(1))
    assert repr(frame.groupby("isa")["cycles"].min()) == repr(plain.groupby("isa")["cycles"].min())
    assert repr(frame.T) == repr(plain.T)
    assert frame.head(2)._repr_html_() and frame[["isa"]]._repr_html_()  # type: ignore[operator]


def test_wide_frames_name_what_does_not_fit() -> None:
    """None prints dots for columns: `Result.to_frame` has 30 of them, a loop's instructions a long source."""
    src, weights = np.ones((4, 64), np.uint8), np.ones((64, 16), np.int8)
    made = simdnn.matmul(src, weights, machine="skx")
    compared = simdnn.compare((src, weights), "skx", "icx")
    frames = [made.to_frame(), made.instructions, made.traffic, made.causes, made.explain(0, 0).steps, compared.outputs]
    frames += [compared.to_frame(), simdnn.analyze("vpdpbusd zmm0, zmm1, zmm2", machine="icx").instructions]
    frames += [simdnn.matmul(src.astype(np.int8), weights, machine="h100").instructions]
    frames += [simdnn.remedies("matmul", src=src, weights=weights, machine="skx")]
    for frame in frames:
        lines = repr(frame).splitlines()
        assert max(map(len, lines)) <= 80 and "..." not in repr(frame), repr(frame)


def test_frames_of_many_columns_show_those_that_matter_first_in_notebooks() -> None:
    frame = simdnn.estimate("matmul", m=4, n=8, k=8, machine="zen4").dispatch
    html = str(frame._repr_html_())
    places = [html.index(f"<th>{name}</th>") for name in (*frame.printed, "isa")]  # type: ignore[attr-defined]
    assert places == sorted(places) and list(frame.columns)[1] == "isa"
