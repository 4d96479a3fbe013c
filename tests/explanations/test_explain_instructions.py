"""Single instructions explained: their steps, examples, operands and refusals."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

import simdnn
from isa_models import REGISTRY, instruction
from isa_models.formats import fmt
from isa_models.instruction import GPU_REGISTRY, Family
from isa_models.intel_gpu.packing import pack_a, pack_b
from isa_models.readings.arrays import ArrayValue
from simdnn.cli import main
from simdnn.explanations.operand_text import explained
from tests.effort import one_in
from tests.primitives.problems import Array

FORMS = [name for name, found in GPU_REGISTRY.items() if not isinstance(found, Family)]
EVERY = [name for name in sorted(REGISTRY) if not REGISTRY[name].configures] + [*FORMS, "dpas.s8.u8.8.1.x8.s32"]
#: the command reads numbers by their types: one instruction of each signature shows that
FIRST_OF_TYPES = set(
    {
        (*(o.dtype for o in found.operands), *found.immediates): name
        for name, found in ((name, instruction(name)) for name in reversed(EVERY))
    }.values()
)


@one_in(4)
@pytest.mark.parametrize("name", EVERY)
def test_every_instruction(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    definition = explained(name)  # of a product of matrices one output
    rng = np.random.default_rng(len(name))
    width = min(definition.caps)
    lanes = definition.lanes(width) if not definition.tile else 16
    sizes = [definition.operand_lanes(o, lanes) for o in definition.operands]
    arrays = {
        o.name: rng.integers(0, 2, size).astype(bool)
        if fmt(o.dtype).is_truth
        else rng.integers(0, 256, size * fmt(o.dtype).bits // 8, np.uint8).view(fmt(o.dtype).dtype)
        for o, size in zip(definition.operands, sizes, strict=True)
    }
    imm = dict.fromkeys(definition.immediates, 1)
    extra = {"lanes": lanes} if definition.takes_lanes else {}
    found = simdnn.explain(name, **arrays, **imm, **extra)
    values = [ArrayValue(array, o.dtype) for array, o in zip(arrays.values(), definition.operands, strict=True)]
    assert found.value.tobytes() == definition.apply(*values, lanes=lanes, **imm).array.tobytes()
    last = {row.at.split(" (")[0]: row.value for row in found.rows}  # the last step of each lane is the lane
    assert list(last) == [f"lane {lane}" for lane in range(lanes)]
    for met, wanted in zip(last.values(), found.value, strict=True):
        assert met == wanted or np.isnan(float(wanted))
    if name in FIRST_OF_TYPES:
        words = [f"--{key}={','.join(str(number(x)) for x in value)}" for key, value in arrays.items()]
        words += [f"--{key}=1" for key in imm] + [f"--{key}={value}" for key, value in extra.items()]
        assert main(["explain", name, *words, "--json"]) == 0
        assert len(json.loads(capsys.readouterr().out)["value"]) == lanes
        assert main(["explain", name]) == 0  # what it takes
        shown = capsys.readouterr().out.splitlines()[-1]
        assert shown.startswith(f"simdnn explain {definition.name} --")
        assert main(shown.split()[1:]) == 0


@pytest.mark.parametrize("most", [1, pytest.param(6, marks=pytest.mark.sweep)])
def test_examples_of_families(most: int, capsys: pytest.CaptureFixture[str]) -> None:
    """Each family names forms, each form an example, and each example runs; what sets a state has none."""
    for name in (name for name, found in GPU_REGISTRY.items() if isinstance(found, Family)):
        assert main(["explain", name]) == 0
        forms = capsys.readouterr().out.partition("shows one):")[2].split()
        assert forms
        for form in forms[:: max(1, len(forms) // most)]:
            assert main(["explain", form]) == 0
            shown = capsys.readouterr().out.splitlines()[-1]
            assert shown.startswith("simdnn explain ") and main(shown.split()[1:]) == 0
    assert main(["explain", "ldtilecfg"]) == 0
    assert "no value to explain" in capsys.readouterr().out
    assert main(["explain", "ldtilecfg", "--a", "1"]) == 1


def test_a_form_without_a_float_model(capsys: pytest.CaptureFixture[str]) -> None:
    """The default is taken, and the title says which; another one is refused with the choices."""
    words = ["--acc", "1", "--a", "1,2", "--b", "1,2"]
    assert main(["explain", "dpas.bf16.bf16.8.1.x8.f32", *words]) == 0
    text = capsys.readouterr().out
    assert text.startswith("dpas.bf16.bf16.8.1.x8.f32.sequential: ") and "others: stage_fused" in text
    assert "a[1] * b[1] = 2 * 2 = 4" in text and "0 * 0" not in text and "<<" not in text
    assert main(["explain", "dpas.bf16.bf16.8.1.x8.f32.serial", *words]) != 0
    assert "sequential" in capsys.readouterr().err


PRODUCTS = [
    *[form for family in ("mma", "wgmma", "dpas") for form in instruction(family).forms()],  # type: ignore[attr-defined]
    "dpas.s2.u4.8.3.x8.s32.null",
    "mma.ada.m16n8k32.f32.f8_e4m3.f8_e5m2",
]


@one_in(3)
@pytest.mark.parametrize("name", PRODUCTS)
def test_an_element_of_a_product_of_matrices(name: str) -> None:
    """One output from a row and a column has the bits that the whole instruction gives it."""
    form, rng = instruction(name), np.random.default_rng(0)
    one = form.element()
    assert one is not None
    types = {o.name: o.dtype for o in one.operands}
    k = next(int(o.per) for o in one.operands if o.name == "a")
    rows, columns = getattr(form, "shape").m, getattr(form, "shape").n  # noqa: B009
    a, b = (drawn(rng, shape, types[side]) for side, shape in (("a", (rows, k)), ("b", (k, columns))))
    acc = drawn(rng, (rows, columns), types["acc"]) if "acc" in types else None
    of = getattr(form, "shape")  # noqa: B009
    more = {"arch": of.arch} if hasattr(of, "arch") else {"b_dtype": of.b}
    whole = instruction(name.split(".")[0])(acc, a, b, a_dtype=getattr(of, "operands", "") or of.a, **more)
    given = {"acc": [] if acc is None else acc[1, 2:3], "a": a[1], "b": b[:, 2]}
    found = simdnn.explain(name, **{key: given[key] for key in types}, lanes=None)
    assert np.asarray(found.value).tobytes() == whole[1, 2].tobytes() and len(found.rows) > k


def test_whole_registers_of_a_product_have_all_outputs() -> None:
    """As many packed words as DPAS takes: sixteen sums, of words that the manual's layout names."""
    a, b = np.zeros((1, 32), np.int8), np.zeros((32, 16), np.int8)
    a[0, 4], b[4, 0] = 3, 5
    acc, words = np.full(16, 100, np.int32), {"a": pack_a(a, "s8"), "b": pack_b(b, "s8")}
    found = simdnn.explain("dpas.s8.s8.8.1.x16.s32", acc=acc, **words)
    assert found.value.tolist() == [115] + [100] * 15 and "a.s8[4] * b.s8[64] = 3 * 5 = 15" in str(found)


def drawn(rng: np.random.Generator, shape: tuple[int, ...], dtype: str) -> Array:
    """Numbers of all sizes that a sum loses some digits of; integers of the whole range."""
    form = fmt(dtype)
    if not form.is_float:
        return rng.integers(form.low, form.high, shape, endpoint=True).astype(form.dtype)
    return (rng.standard_normal(shape) * 2.0 ** rng.integers(-4, 4, shape)).astype(np.float32).astype(form.dtype)


def test_the_example_of_a_product_shows_what_its_unit_loses(capsys: pytest.CaptureFixture[str]) -> None:
    """Products 24 digits below the accumulator: V100 cuts them off, Ampere does not; more than a row is refused."""
    for name, value in (("mma.volta.m16n8k4.f32.f16", 4096.0), ("mma.ampere.m16n8k8.f32.f16", 4096 + 2.0**-10)):
        assert main(["explain", name]) == 0
        assert main([*capsys.readouterr().out.splitlines()[-1].split()[1:], "--json"]) == 0
        found = json.loads(capsys.readouterr().out)
        assert found["value"] == [value] and found["exact"] == [4096 + 2.0**-10]
    assert main(["explain", "mma.volta.m16n8k4.f32.f16", "--acc", "1", "--a", "1,2,3,4,5", "--b", "1"]) == 2
    assert "operand a has 5 lanes" in capsys.readouterr().err


def number(x: Any) -> int | float:
    return int(x) if x.dtype.kind in "iub" else float(x)


def test_text_of_an_instruction() -> None:
    found = simdnn.explain("vpmaddubsw", [255, 255], [127, 127])
    assert str(found).splitlines()[-5:] == [
        "lane 0",
        "  a[0] * b[0] = 255 * 127 = 32385",
        "  a[1] * b[1] = 255 * 127 = 32385",
        "  32385 + 32385 = 64770",
        "  saturate to s16: 64770 -> 32767   <- saturates",
    ]
    assert found.value.tolist() == [32767] and found.exact.tolist() == [64770]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: simdnn.explain("vpmadubsw", a=[1, 1], b=[1, 1]), "did you mean 'vpmaddubsw'"),
        (lambda: simdnn.explain("vpmaddubsw", a=[1, 1]), "without b"),
        (lambda: simdnn.explain("vpmaddubsw", a=[1, 1], b=[1, 1], c=[2]), "with c"),
        (lambda: simdnn.explain("vpmaddubsw", a=[300, 1], b=[1, 1]), "u8 .0 .. 255"),
        (lambda: simdnn.explain("vpmaddubsw", a=[1, 1, 1], b=[1, 1]), "lanes"),
        (lambda: simdnn.explain("vpslld", a=[1], imm=900), "a byte is 0 to 255"),
        (lambda: simdnn.explain("vpaddd", a=[[1], [2]], b=[[1], [2]]), "one vector"),
    ],
)
def test_wrong_operands(call: Any, message: str) -> None:
    with pytest.raises(simdnn.SimdnnError, match=message):
        call()


def test_an_instructions_steps_have_types_and_its_operands_lanes() -> None:
    found = simdnn.explain("vpmaddubsw", a=[255, 255, 1, 2], b=[127, 127, 3, 4])
    assert len(found.lanes) == len(found.rows) and [dtype for dtype, _ in found.lanes[:4]] == [
        "s32",
        "s32",
        "s32",
        "s16",
    ]
    assert [lane.item() for _, lane in found.lanes] == [row.value for row in found.rows]
    assert [(name, dtype, lanes.tolist()) for name, dtype, lanes in found.operands] == [
        ("a", "u8", [255, 255, 1, 2]),
        ("b", "s8", [127, 127, 3, 4]),
    ]
    whole = simdnn.explain("vpackssdw", a=[1, 2], b=[3, 4])
    assert [len(lanes) for _, _, lanes in whole.operands] == [4, 4]  # filled up as the instruction reads them


def test_lanes_alike_are_told_once() -> None:
    """Of a tile's row the sums that were given something, one zero, and how many more; the record has every lane."""
    found = simdnn.explain("tdpbssd", acc=[1, 2], a=[1, 2, 3, 4], b=[1, 2, 3, 4])
    text = str(found).splitlines()
    assert text[-5:] == ["lane 2 (row 0, column 2)", "  0", "… 13 lanes alike", "", found.remarks[0]]
    assert len(found.value) == 16 == len({row["at"] for row in found.record()["steps"]})
    assert "alike" not in str(simdnn.explain("vpaddd", a=[1, 1, 1], b=[1, 1, 1]))


def test_operands_as_they_are_written() -> None:
    from isa_models import instruction
    from simdnn.explanations.operand_text import arguments, example

    definition = instruction("vpmaddubsw")
    assert arguments(definition, {"a": "0x10, 2", "b": "-1,1"}) == {"a": [16, 2], "b": [-1, 1]}
    assert example(instruction("vpshufd"))["imm"] == "0"
    with pytest.raises(simdnn.InvalidArgument, match="operand a holds 'x'; integers of u8 are needed"):
        arguments(definition, {"a": "1,x"})
    with pytest.raises(simdnn.InvalidArgument, match="no operand 'c'; it takes a, b"):
        arguments(definition, {"c": "1"})
