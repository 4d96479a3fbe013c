"""Tensors that need not be zeros before a run: those that it writes whole."""

from dataclasses import replace

import numpy as np
import pytest

import simdnn
from simdnn import numerics
from simdnn.numerics import covered
from simdnn.numerics.covered import as_left, left_out
from simdnn.program.records import Affine, Loop, Memory, Op, Program, Register, Tensor, walk


@pytest.mark.parametrize(
    ("m", "n", "machine"), [(64, 64, "zen4"), (37, 45, "zen4"), (37, 45, "skx"), (5, 5, "hsw"), (1, 33, "zen4")]
)
def test_products_write_all_of_their_output(m: int, n: int, machine: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(covered, "_LEAST", 1)
    for dt in ("f32", "u8:s8:s32", "u8:s8:u8", "bf16:bf16:bf16"):
        try:
            kernel = simdnn.estimate("matmul", m=m, n=n, k=24, dt=dt, machine=machine).kernel
        except simdnn.Unimplemented:
            continue
        assert left_out(kernel.program, kernel.program.tensor["dst"]) == ()


def test_lines_that_are_asked_for_are_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(covered, "_LEAST", 1)
    kernel = simdnn.estimate("matmul", m=64, n=64, k=256, dt="u8:s8:s32", machine="spr", isa="avx512_core_amx").kernel
    assert any(op.definition.ahead for op, _ in walk(kernel.program.body))
    assert left_out(kernel.program, kernel.program.tensor["dst"]) == ()


def test_what_is_written_in_part_or_read_starts_as_zeros(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(covered, "_LEAST", 1)
    program = simdnn.estimate("matmul", m=32, n=64, k=24, dt="f32", machine="zen4").kernel.program
    assert left_out(program, program.tensor["dst"]) == ()
    larger = replace(program.tensor["dst"], size=program.tensor["dst"].size + 1)
    tensors = tuple(larger if t.name == "dst" else t for t in program.tensors)
    assert left_out(replace(program, tensors=tensors), larger) != ()
    assert left_out(_shortened(program), program.tensor["dst"]) != ()
    assert left_out(program, program.tensor["src"]) != ()


def test_the_few_places_that_are_left_out_are_zeros(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(covered, "_LEAST", 1)
    program = simdnn.estimate("matmul", m=32, n=64, k=24, dt="f32", machine="zen4").kernel.program
    dst = program.tensor["dst"]
    larger = replace(dst, size=dst.size + 5)
    longer = replace(program, tensors=tuple(larger if t is dst else t for t in program.tensors))
    assert left_out(longer, larger) == (slice(dst.size, dst.size + 5),)
    monkeypatch.setattr(covered, "empty", lambda size, dtype: np.full(size // dtype.itemsize, 7, dtype))
    inputs = {t.name: np.ones(t.size, np.float32) for t in program.tensors if t.kind == "input"}
    left = numerics.run(longer, inputs)["dst"]
    assert (left[dst.size :] == 0).all() and (left[: dst.size] == 24).all()
    monkeypatch.setattr(covered, "_MOST", 0)
    monkeypatch.setattr(covered, "_found", {})
    assert left_out(longer, larger) is None


def test_memory_of_the_run_before_serves_where_no_run_writes_what_is_cleared() -> None:
    """A convolution's copy of its taps has room behind it, which the last products read."""
    kernel = simdnn.estimate(
        "convolution", mb=1, ic=3, ih=116, iw=116, oc=12, kh=5, kw=5, dt="bf16:bf16:f32", padding=2, machine="gnr"
    ).kernel
    program, planes = kernel.program, kernel.program.tensor["planes"]
    assert left_out(program, planes) and as_left(program, planes)
    store = next(op for op, _ in walk(program.body) if isinstance(op.dst, Memory) and op.dst.tensor == "planes")
    behind = replace(store, dst=replace(store.dst, index=Affine(planes.size - store.dst.lanes)))
    writes = replace(program, name="writes", body=(*program.body, behind))
    assert left_out(writes, planes) == left_out(program, planes) and not as_left(writes, planes)
    assert not as_left(program, replace(planes, kind="output"))


@pytest.mark.parametrize("groups", [1, 32])
def test_a_copy_with_padding_is_written_before_it_is_read(groups: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(covered, "_LEAST", 1)
    taps = 7 if groups > 1 else 3  # depthwise kernels of up to 25 taps read the image where it is
    image = {"mb": 1, "ic": 32, "ih": 9, "iw": 11, "oc": 32, "kh": taps, "kw": taps, "groups": groups, "padding": 1}
    program = simdnn.estimate("convolution", **image, dt="f32", machine="icx").kernel.program
    padded = program.tensor["padded"]
    assert left_out(program, padded) == ()
    for i in range(3):  # without what fills an edge, or copies the image
        assert left_out(replace(program, body=program.body[:i] + program.body[i + 1 :]), padded) != ()


def _shortened(program: Program) -> Program:
    """The program without the last iteration of its outermost loop."""
    *first, last = program.body
    assert isinstance(last, Loop)
    inner = last
    chain = [last]
    while inner.extent == 1:
        (inner,) = inner.body  # type: ignore[assignment]
        chain.append(inner)
    made: Loop = replace(inner, extent=inner.extent - 1)
    for loop in reversed(chain[:-1]):
        made = replace(loop, body=(made,))
    return replace(program, body=(*first, made))


def test_a_run_leaves_nothing_of_what_the_memory_held() -> None:
    """Large outputs lie where others were."""
    src, weights = np.full((256, 8), 2, np.float32), np.ones((8, 256), np.float32)
    for number in range(4):
        output = simdnn.matmul(src * number, weights, machine="zen4", engine="compiled").output
        assert (output == 16 * number).all()
        output[:] = np.nan
        del output


def test_sums_that_are_put_down_and_taken_up_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """oneDNN's order of a long f32 sum has a part of it in the output for a while."""
    program = simdnn.estimate("matmul", m=32, n=64, k=1024, dt="f32", machine="zen4").kernel.program
    dst = program.tensor["dst"]
    reads = {src for op, _ in program.ops() for src in op.srcs if isinstance(src, Memory) and src.tensor == "dst"}
    monkeypatch.setattr(covered, "_LEAST", 1)
    assert reads and left_out(program, dst) == ()


@pytest.mark.parametrize(
    ("order", "whole"),
    [
        (("write", "read"), True),
        (("read", "write"), False),
        (("write", "read beside"), False),
        (("write in a loop", "read"), False),  # nobody asks whether the loop wrote all
        (("write", "read in a loop"), True),
    ],
)
def test_a_read_behind_its_own_write(order: tuple[str, ...], whole: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(covered, "_LEAST", 1)
    x, at = Register("x", "f32", 16), Affine.var("i") * 16
    here = Memory("o", at, "f32", 16)
    load = Op("vmovups", x, (Memory("a", at, "f32", 16),))
    write, read = Op("vmovups", here, (x,)), Op("vmovups", x, (here,))
    turned = Memory("o", Affine() + 48 + Affine.var("i") * -16, "f32", 16)
    steps = {"write": write, "read": read, "read beside": Op("vmovups", x, (turned,))}
    steps |= {"write in a loop": Loop("n", 1, (write,)), "read in a loop": Loop("n", 2, (read,))}
    body = Loop("i", 4, (load, *(steps[name] for name in order)), True)
    program = Program("p", "avx512_core", (Tensor("a", "f32", 64), Tensor("o", "f32", 64, "output")), (body,))
    assert (left_out(program, program.tensor["o"]) == ()) is whole
