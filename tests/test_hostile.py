"""Hostile inputs to every public function: a typed error of one bounded line, soon and in little memory."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pandas as pd
import pytest

import isa_models
import simdnn
import workloads
from isa_models.errors import bounded
from simdnn import Attr, MemoryDesc, Quant, SimdnnError, plot, study
from simdnn.cli import main
from tests.effort import one_in
from tests.streams import error_line
from tests.work import at_most

F, W = np.ones((4, 8), np.float32), np.ones((8, 5), np.float32)
U, S = np.ones((4, 8), np.uint8), np.ones((8, 5), np.int8)
LONG = "x" * 100_000
EMPTY = np.zeros((0, 2**40), np.float32)
ONES = np.broadcast_to(np.float32(1), (2**20, 2**20))
ITSELF: list[Any] = []
ITSELF.append(ITSELF)


def matmul(src: Any = F, weights: Any = W, **options: Any) -> Any:
    return simdnn.matmul(src, weights, **{"machine": "zen4", **options})


def estimate(**given: Any) -> Any:
    return simdnn.estimate("matmul", **{"m": 4, "n": 8, "k": 16, "machine": "zen4", **given})


def explore(axes: Any, **options: Any) -> Any:
    fixed = {"machine": "zen4", "n": 4, "k": 4}
    return study.explore({"study": {"kind": "matmul"}, "axes": axes, "fixed": fixed}, **options)


CALLS: list[tuple[Callable[[], Any], str]] = [
    # texts of 100 000 characters
    (lambda: matmul(machine=LONG), "unknown machine 'xxx"),
    (lambda: matmul(isa=LONG), "unknown ISA 'xxx"),
    (lambda: matmul(dispatch=LONG), "dispatch 'xxx"),
    (lambda: matmul(engine=LONG), "engine 'xxx.*Allowed: auto"),
    (lambda: matmul(wei_tag=LONG), "Allowed: any, ab, ba"),
    (lambda: estimate(dt=LONG), "xxx"),
    (lambda: Attr(post_ops=[LONG]), "post-operation 'xxx"),
    (lambda: Attr(post_ops=LONG), "a list is needed"),
    (lambda: Attr(fpmath=LONG), "xxx"),
    (lambda: simdnn.load(LONG), "no model file"),
    (lambda: simdnn.load("digits"), "no model file 'digits': it is a workload that ships, which `simdnn run digits`"),
    (lambda: simdnn.load(""), "no model file ''$"),
    (lambda: matmul(dispatch=None), "dispatch None. Allowed: fastest, onednn"),
    (lambda: matmul().departure_map("halved weight"), "did you mean 'halved weights'. Allowed"),
    (lambda: isa_models.instruction(LONG), "unknown instruction 'xxx"),
    (lambda: simdnn.analyze("nop", "zen4", syntax=LONG), "xxx"),  # type: ignore[arg-type]
    (lambda: explore({LONG: [1]}), "xxx"),
    (lambda: simdnn.what_if("zen4", {LONG: 1}), "at most 200 characters"),
    (lambda: simdnn.what_if("zen4", {"instructions." + "[a-z" * 10_000 + ".uops": 1}), "at most 200 characters"),
    (lambda: simdnn.what_if("zen4", {"a." * 30_000 + "b": 1}), "at most 200 characters"),
    (lambda: simdnn.machine("a\nb\x1b[31m"), "unknown machine"),
    # numbers
    (lambda: matmul(threads=10**9), "threads=1000000000"),
    (lambda: matmul(threads=10**400), "more than 64 bits"),
    (lambda: matmul(threads=True), "threads=True"),
    (lambda: matmul(threads=1.5), "threads=1.5"),
    (lambda: estimate(m=10**18), "m=1000000000000000000"),
    (lambda: estimate(m=0), "m=0"),
    (lambda: estimate(m=-1), "m=-1"),
    (lambda: estimate(m=1.5), "m=1.5"),
    (lambda: estimate(m="3"), "m='3'"),
    (lambda: Quant(1.0, groups=(0, 1)), "groups=0"),
    (lambda: Attr(scales={"src": float("nan")}), "NaN"),
    (lambda: Attr(scales={"src": [np.inf]}), "Inf"),
    (lambda: Attr(scales={"dst": 0.0}), "holds 0"),
    (lambda: Attr(scales={"dst": np.float32(1e-45)}), "no reciprocal"),
    (lambda: Attr(post_ops=["relu"] * 10**6), "at most 32"),
    (lambda: simdnn.explain("vpbroadcastd", [1], lanes=10**6), "lanes=1000000; a whole number from 1 to"),
    (lambda: simdnn.explain("vpbroadcastd", [1], lanes=True), "lanes=True"),
    (lambda: simdnn.explain("vaddps", np.ones(10**6, np.float32), np.ones(10**6, np.float32)), "4096 lanes"),
    # what is no name, no shape, no path
    (lambda: isa_models.instruction([1]), "the name of one"),  # type: ignore[arg-type]
    (lambda: simdnn.explain(np.ones(2)), "the name of one"),  # type: ignore[arg-type]
    (lambda: MemoryDesc(3, "f32"), "shape 3"),  # type: ignore[arg-type]
    (lambda: MemoryDesc((4, 8), ["f32"]), "data type"),  # type: ignore[arg-type]
    (lambda: simdnn.unpack_nibbles(np.zeros(4, np.uint8), [1], 8), "dtype"),  # type: ignore[arg-type]
    (lambda: simdnn.unpack_nibbles(np.zeros(0, np.uint8), "s4", (0, 2**70)), "sizes up to"),
    (lambda: Attr(post_ops=[np.array([1, 2])]), "post-operation"),
    (lambda: simdnn.what_if("zen4", 3), "a dict is needed"),  # type: ignore[arg-type]
    (lambda: explore({"m": [1]}, results=3), "a path is needed"),
    (lambda: explore({"m": [1]}, results="a\0"), "NUL"),
    (lambda: explore({"m": range(10**10)}), "at most 100000 points"),
    (lambda: explore({"m": ITSELF}), "holds itself"),
    (lambda: simdnn.load("a\0b"), "no model file"),
    (lambda: simdnn.load("/dev/zero"), "no model file"),
    # arrays
    (lambda: matmul(EMPTY), "empty"),
    (lambda: simdnn.quantize_dynamic(EMPTY, machine="zen4"), "empty"),
    (lambda: isa_models.instruction("vaddps")(EMPTY, EMPTY), "bytes"),
    (lambda: simdnn.pack_nibbles(np.zeros((0, 2**40), ml_dtypes.int4)), "bytes"),
    (lambda: matmul(F.astype(object)), "object"),
    (lambda: matmul(np.zeros((4, 8), [("a", "f4")])), "allowed: f32"),
    (lambda: matmul(F.astype("S3")), "allowed: f32"),
    (lambda: matmul(ONES, ONES), "bytes"),
    (lambda: matmul(bias=np.broadcast_to(np.float32(1), 2**40)), "bytes"),
    (lambda: Attr(scales={"wei": ONES}), "bytes"),
    (lambda: Attr(post_ops=[("add", ONES)]), "bytes"),
    (lambda: isa_models.instruction("vaddps")(ONES, ONES), "bytes"),
    (lambda: simdnn.ranges("matmul", weights=np.broadcast_to(np.int8(1), (2**20, 2**20)), machine="skx"), "bytes"),
    (lambda: simdnn.quantize_dynamic(ONES, machine="zen4"), "bytes"),
    # calls that no function takes, and values of other types than it has
    (lambda: simdnn.analyze(), "analyze without code; needed: code$"),  # type: ignore[call-arg]
    (lambda: simdnn.matmul(F, machine="zen4"), "matmul without weights; needed: src, weights, machine"),  # type: ignore[call-arg]
    (
        lambda: simdnn.spellings("matmul", m=4, n=8, k=16),
        "spellings met 1 argument .*allowed: none; by their names: m,",
    ),  # type: ignore[call-arg, misc]
    (lambda: simdnn.matmul(F, W, src=F, machine="zen4"), "matmul is given src twice"),  # type: ignore[misc]
    (lambda: matmul(isa=[]), "ISA"),
    (lambda: simdnn.Network("m.onnx"), "did you mean simdnn.load"),  # type: ignore[arg-type]
    (lambda: study.run_layers("resnet50"), "workload='resnet50'; one is needed, as workloads.load"),  # type: ignore[arg-type]
    (lambda: study.run_layers(workloads.load("resnet50"), modes=3), r"modes=3; its type is Iterable\[str | Mode"),  # type: ignore[arg-type]
    (lambda: study.totals(pd.DataFrame({"mode": []})), "the frame lacks refused"),
    (lambda: study.select(None), "select met workload=None; its type is Workload"),  # type: ignore[arg-type]
    (lambda: explore({"m": [1]}, figures=3), "figures=3; its type is Mapping"),
    (lambda: plot.plot_roofline(estimate(), ax=3), "plot_roofline met ax=3; its type is Axes"),
    (lambda: plot.panels(10**6), "up to 400 axes"),
    (lambda: plot.panels(1, (0, 1)), "width, height"),
    (lambda: plot.plot_format(3), "names=3"),
    (lambda: plot.plot_pictures({"a": np.ones(3)}), "picture 'a'"),
    (lambda: plot.saturation_map(F.astype(complex)), "counts by output"),
]


@one_in(2)
@pytest.mark.parametrize("number", range(len(CALLS)), ids=[f"{i} {said}" for i, (_, said) in enumerate(CALLS)])
def test_a_typed_error_of_one_line(number: int) -> None:
    call, said = CALLS[number]
    with at_most(calls=1_000_000), pytest.raises(SimdnnError, match=said) as raised:
        call()
    assert "\n" not in str(raised.value) and len(str(raised.value)) <= 1000 and len(repr(raised.value)) < 2000


@pytest.mark.parametrize("threads", [np.int64(3), np.uint8(2)])
def test_integers_of_numpy_work(threads: Any) -> None:
    assert estimate(m=np.int32(4), threads=threads).cycles > 0
    assert matmul(threads=threads).output.shape == (4, 5)
    assert MemoryDesc((np.int64(4), 8), "f32").shape == (4, 8)  # type: ignore[arg-type]


def test_arrays_as_numpy_has_them_work() -> None:
    numbers = np.arange(32, dtype=np.float32).reshape(4, 8)
    wanted = matmul(numbers).output
    for same in (numbers.astype(">f4"), np.asfortranarray(numbers), numbers[::-1][::-1]):
        assert matmul(same).output.tobytes() == wanted.tobytes()


def test_messages_keep_what_they_suggest() -> None:
    message = bounded(f"unknown machine {'zen' * 40_000!r}: did you mean 'zen4'? Known: icx, zen4")
    assert message.endswith("': did you mean 'zen4'? Known: icx, zen4") and len(message) < 250
    assert len(bounded("a long list: " + ", ".join(map(str, range(10**5))))) == 1000
    assert bounded("two\nlines \x1b[31m") == "two lines ?[31m"


# -- files of TOML -----------------------------------------------------------------------------------------------------

TOML = {
    "dotted": "a." * 30_000 + "a = 1",
    "header": "[" + "a." * 30_000 + "a]",
    "quoted": '"a".' * 30_000 + "a = 1",
    "inline": "x = {b = 1, " + "a . " * 30_000 + "a = 1}",
    "arrays": "x = " + "[" * 100_000,
    "tables": "x = " + "{a = " * 50_000,
    "one word": "a" * 2_000_000,
    "brackets": "[ " * 1_000_000,
    "digits": "x = " + "9" * 1_000_000,
    "nul": "a\0 = 1",
    "surrogates": "a = '\ud800'",
}


@one_in(3)
@pytest.mark.parametrize("name", TOML)
def test_hostile_toml(name: str, tmp_path: Path) -> None:
    path = tmp_path / "hostile.toml"
    path.write_bytes(TOML[name].encode("utf-8", "surrogatepass"))
    for read in (lambda: isa_models.machine(path), lambda: study.explore(path)):
        with at_most(calls=20_000), pytest.raises(SimdnnError, match="hostile.toml") as raised:
            read()
        assert len(str(raised.value)) < 1000


# -- the command -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "words",
    [
        ("run", b"\xff\xfe.onnx"),
        ("study", b"\xff\xfe.toml"),
        ("list", LONG),
        ("run", "/"),
        ("study", "/"),
        ("analyze", "/"),
        ("inspect", "/"),
        ("bench", "--batch=/"),
        ("explain", LONG),
        ("--" + LONG,),
    ],
    ids=str,
)
def test_hostile_words(words: tuple[str | bytes, ...], capsys: pytest.CaptureFixture[str]) -> None:
    try:
        status: object = main([os.fsdecode(word) for word in words])
    except SystemExit as ended:
        status = ended.code
    assert status in (1, 2) and len(error_line(capsys)) < 1100


def test_a_study_that_is_terminated_leaves_nothing_behind(tmp_path: Path) -> None:
    path = tmp_path / "long.toml"
    path.write_text(
        '[study]\nkind = "matmul"\n[axes]\nm = [' + ", ".join(map(str, range(1, 4000))) + "]\n"
        '[fixed]\nmachine = "zen4"\nn = 512\nk = 512\n'
    )
    words = [sys.executable, "-m", "simdnn", "study", str(path), "--jobs", "2"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        rows = path.with_suffix(".jsonl")
        while process.poll() is None and not (rows.exists() and rows.read_bytes().count(b"\n") > 1):
            time.sleep(0.05)
        process.send_signal(signal.SIGTERM)
        out, error = process.communicate(timeout=300)
    assert (process.returncode, out) == (128 + signal.SIGTERM, "") and "what is done is kept" in error
    assert "leaked" not in error and "Traceback" not in error


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_that_may_not_be_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "s.toml"
    path.write_text('[study]\nkind = "matmul"\n[axes]\nm = [1]\n[fixed]\nmachine = "zen4"\nn = 4\nk = 4\n')
    tmp_path.chmod(0o500)
    assert main(["study", str(path)]) == 2
    assert "cannot be written: Permission denied" in error_line(capsys)


def test_memory_stays_small() -> None:
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss < 4 << 20  # KiB, after all of the above
