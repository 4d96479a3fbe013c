"""The answers of the page's views, without a browser: the package's own values and cycles, and its messages."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import simdnn
from isa_models import gpu_machine_names, machine, what_if
from simdnn.teach import comparison, instruction, kernel, loop, machines
from simdnn.teach.forms import Query
from simdnn.teach.numbers import number, numbers
from simdnn.teach.server import VIEWS, page

SMALL = {"m": "2", "k": "32", "n": "16"}


def answered(view: str, texts: dict[str, str]) -> Any:
    found = page(view, texts)
    assert not found.error, found.error
    return found.answer


# -- numbers -----------------------------------------------------------------------------------------------------------
def test_bits_are_those_in_memory() -> None:
    assert number(-1, "s4").digits == "1111" and number(200, "u8").digits == "11001000"
    assert [len(digits) for _, digits in number(1.0, "f8_e4m3").bits] == [1, 4, 3]
    for dtype, value, word in (("f32", 3.14, 0x4048F5C3), ("f16", -0.0, 0x8000), ("bf16", 2.5, 0x4020)):
        assert int(number(value, dtype).digits, 2) == word
    assert int(number(0.1, "f64").digits, 2) == 0x3FB999999999999A
    assert number(float("nan"), "f32").text == "nan" and number(True, "b1").digits == "1"
    assert [lane.text for lane in numbers(np.array([1, -2], np.int16), "s16")] == ["1", "-2"]


# -- an instruction ----------------------------------------------------------------------------------------------------
def test_an_instruction_saturates_with_its_bits() -> None:
    found = answered("instruction", {"name": "vpmaddubsw", "op.a": "255,255", "op.b": "127,127"})
    (lane,) = found.lanes
    *_, total, last = lane.steps
    assert total.value.text == "64770" and total.value.dtype == "s32" and not total.note
    assert last.value.text == "32767" and last.value.digits == "0111111111111111"
    assert last.note == "saturates" and last.exact == "64770"
    assert [(v.name, v.dtype, v.lanes[0].text) for v in found.operands] == [("a", "u8", "255"), ("b", "s8", "127")]
    row = simdnn.machine("zen4").timing("vpmaddubsw", "zmm,zmm,zmm")
    assert (row.form, row.latency) in [(cost.form, cost.latency) for cost in found.costs]


def test_a_nan_keeps_its_bits() -> None:
    """The difference of two infinities is x86's own NaN, whose sign is set, not NumPy's."""
    found = answered("instruction", {"name": "vsubps", "op.a": "inf", "op.b": "inf"})
    word = simdnn.instruction("vsubps")(np.float32([np.inf]), np.float32([np.inf])).view(np.uint32)
    assert int(found.lanes[0].steps[-1].value.digits, 2) == int(word[0]) == 0xFFC00000


def test_an_instruction_rounds() -> None:
    found = answered("instruction", {"name": "vcvtneps2bf16", "op.a": "1.00390625,1.01171875"})
    assert [lane.steps[-1].value.text for lane in found.lanes] == ["1", "1.015625"]
    assert all(lane.steps[-1].note == "rounds" for lane in found.lanes)


def test_every_instruction_has_a_page() -> None:
    """All that `simdnn list instructions` names: with their examples they answer, with bits as wide as their types."""
    from simdnn.cli.listing import instructions

    assert instruction.names() == sorted({row["instruction"] for row in instructions()})
    for name in instruction.names():
        found = answered("instruction", {"name": name})
        assert found.lanes or found.forms or found.remarks, name


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        ({"name": "vpmaddubws"}, "did you mean 'vpmaddubsw'"),
        ({"name": "vpmaddubsw", "op.a": "300,1"}, "operand a is u8 (0 .. 255), met [300, 1]"),
        ({"name": "vpmaddubsw", "op.a": "1,x"}, "operand a holds 'x'; integers of u8 are needed"),
        ({"name": "vpmaddubsw", "op.a": "1,2,3"}, "3 lanes"),
        ({"name": "vpmaddubsw", "op.q": "1"}, "no operand 'q'; it takes a, b"),
        ({"name": "vpmaddubsw", "machine": "zen44"}, "zen4"),
        ({"name": "vpshufd", "op.imm": "256"}, "256"),
        ({"name": "vfmadd231ps", "op.a": "one"}, "numbers of f32 are needed"),
        ({"name": "x" * 5000}, "5000 characters"),
    ],
)
def test_wrong_numbers_and_names_have_their_message(texts: dict[str, str], message: str) -> None:
    found = page("instruction", texts)
    assert message in found.error and found.answer is None and found.groups


def test_numbers_of_another_instruction_are_dropped() -> None:
    texts = {"name": "vpdpbusd", "of": "vpmaddubsw", "op.a": "255,255", "op.b": "127,127"}
    assert [len(vector.lanes) for vector in answered("instruction", texts).operands] == [1, 4, 4]


# -- a kernel ----------------------------------------------------------------------------------------------------------
def test_a_kernel_shows_values_beside_cycles() -> None:
    found = answered("kernel", {"machine": "zen4", "turns": "2", "lanes": "16"} | SMALL)
    result = simdnn.matmul(*operands_of(SMALL), machine="zen4")
    met = found.result
    assert (met.implementation, met.cycles, met.bound) == (result.implementation, result.cycles, result.bound)
    rows = found.pipeline.rows
    assert {row.turn for row in rows} == {0, 1}
    assert rows[0].lanes and rows[-1].lanes == ""  # loop control computes nothing
    assert all(a.end <= b.start for row in rows for a, b in zip(row.spans, row.spans[1:], strict=False))
    assert max(row.spans[-1].end for row in rows) <= found.pipeline.last
    assert found.pipeline.steady.cycles > 0 and found.base is None


def operands_of(texts: dict[str, str]) -> tuple[Any, Any]:
    from simdnn.teach.problems import operands

    return operands(Query(texts))[:2]


@pytest.mark.parametrize("name", ["zen4", "b580", "v100"])
def test_the_last_turn_leaves_the_outputs(name: str) -> None:
    """The accumulators hold the kernel's outputs after the loop's last turn."""
    texts = {"machine": name, "m": "1", "k": "16", "n": "16", "turns": "8", "lanes": "16", "data": "small"}
    texts |= {"dt": "f32:f32:f32"} if name == "v100" else {"dt": "u8:s8:s32"}
    found = answered("kernel", texts)
    src, weights = operands_of(texts)
    exact = (src.astype(np.int64) @ weights.astype(np.int64))[0].tolist()
    assert found.outputs.split()[:4] == [str(value) for value in exact[:4]]
    last = [row.lanes.split()[1:5] for row in found.pipeline.rows if row.place.startswith("c")]
    if name == "zen4":  # one accumulator, whose lanes are the outputs
        assert last[-1] == [str(value) for value in exact[:4]]


@pytest.mark.parametrize(
    ("view", "title"), [(view, title) for view, module in VIEWS.items() for title, _ in module.EXAMPLES]
)
def test_examples_answer(view: str, title: str) -> None:
    answered(view, dict(VIEWS[view].EXAMPLES)[title])


def test_a_moved_figure_moves_cycles_and_no_values() -> None:
    before = answered("kernel", {"machine": "zen4"} | SMALL)
    after = answered("kernel", {"machine": "zen4", "move.core.dispatch_slots": "1"} | SMALL)
    other = what_if("zen4", {"core.dispatch_slots": 1})
    result = simdnn.matmul(*operands_of(SMALL), machine=other, dispatch=before.result.implementation)
    assert after.result.cycles == result.cycles > after.real.cycles == before.result.cycles
    assert after.outputs == before.outputs
    assert [row.lanes for row in after.pipeline.rows] == [row.lanes for row in before.pipeline.rows]
    assert after.pipeline.last > before.pipeline.last and after.base == before.pipeline


def test_latency_ports_and_loads_move() -> None:
    moves = {"core.load.512.latency": "30", "instructions.vpdpbusd zmm,zmm,zmm.latency": "20"}
    for key, value in moves.items():
        found = answered("kernel", {"machine": "zen4", f"move.{key}": value} | SMALL)
        assert found.pipeline.last > found.base.last, key
    texts = {"machine": "zen4", "m": "4", "n": "32", "k": "64", "move.instructions.vpdpbusd zmm,zmm,zmm.uops": "1"}
    found = answered("kernel", texts)
    assert found.pipeline.steady.cycles == 2 * found.base.steady.cycles


def test_figures_of_another_machine_are_dropped() -> None:
    texts = {"machine": "skx", "moved_of": "zen4", "move.core.dispatch_slots": "6"} | SMALL
    found = page("kernel", texts)
    assert found.answer.base is None
    sliders = {field.name: field for group in found.groups for field in group.fields if field.most is not None}
    assert sliders["move.core.dispatch_slots"].value == "4"


@pytest.mark.parametrize("name", ["zen4", "skx", "spr", *gpu_machine_names()])
def test_sliders_can_stand_where_the_table_says(name: str) -> None:
    """Else a browser moves them, and a figure nobody touched is another one."""
    for figure in machines.figures(machine(name)).values():
        steps = (figure.value - figure.least) / figure.step
        assert figure.least <= figure.value <= figure.most and abs(steps - round(steps)) < 1e-9


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        ({"machine": "zen44"}, "zen44"),
        ({"m": "0"}, "m is '0'; an integer from 1 to 512 is needed"),
        ({"k": "many"}, "k is 'many'"),
        ({"m": "512", "k": "512", "n": "512"}, "the page runs at most"),
        ({"dispatch": "gemm:none"}, "gemm:none"),
        ({"dt": "u8:u8:u8"}, "u8:u8:u8"),
        ({"mode": "bf16"}, "a math mode says how f32 data is computed"),
        ({"loop": "7"}, "an integer from 1 to 1 is needed"),
        ({"move.core.dispatch_slots": "99"}, "a number from 1 to 16 is needed"),
        ({"move.core.dispatch_slots": "1.5"}, "dispatch_slots"),
    ],
)
def test_what_a_kernel_cannot_be_has_its_message(texts: dict[str, str], message: str) -> None:
    assert message in page("kernel", SMALL | texts).error


def test_loads_are_shown_as_what_reads_them() -> None:
    found = answered("kernel", {"machine": "zen4"} | SMALL)
    kinds = {row.place: row.lanes.split()[0] for row in found.pipeline.rows if row.lanes}
    assert kinds["a"] == "u8" and kinds["b0"] == "s8" and kinds["c0_0"] == "s32"


@pytest.mark.parametrize(
    ("dt", "kinds"),
    [("u8:s8:s32", {"u8", "s8", "s32"}), ("bf16:bf16:f32", {"bf16", "f32"}), ("f16:f16:f32", {"f16", "f32"})],
)
def test_packed_elements_of_a_systolic_array(dt: str, kinds: set[str]) -> None:
    found = answered("kernel", {"machine": "b580", "dt": dt} | SMALL)
    assert {row.lanes.split()[0] for row in found.pipeline.rows if row.lanes} == kinds
    loads = [row for row in found.pipeline.rows if row.text.startswith("load")]
    assert all("load" in row.told and "execute" not in row.told for row in loads) and loads
    assert {span.stage for row in found.pipeline.rows for span in row.spans} <= found.pipeline.stages.keys()


# -- two configurations ------------------------------------------------------------------------------------------------
def test_two_sides_are_those_of_compare() -> None:
    texts = {"a.machine": "skx", "b.machine": "clx", "data": "largest", "dt": "u8:s8:s32"} | SMALL
    found = answered("comparison", texts)
    peer = simdnn.compare(operands_of(texts), "skx", "clx", dst="s32")
    assert found.differing == peer.differing == 32
    assert [side.cycles for side in found.sides] == [peer.a.cycles, peer.b.cycles]
    assert found.outputs[0][0].a == str(peer.a.output[0, 0]) and found.outputs[0][0].differs
    assert [chosen for *_, chosen in found.sides[0].candidates].count(True) == 1
    assert found.reasons[0][:3] == ("saturated pairs", "a", 32)


def test_strict_beside_down_converted() -> None:
    found = answered("comparison", {"dt": "f32:f32:f32", "b.mode": "bf16"} | SMALL)
    assert [side.implementation for side in found.sides] == ["gemm:avx2", "gemm:avx512_core_bf16_down"]
    assert found.sides[0].cycles > found.sides[1].cycles and found.differing
    assert "avx9" in page("comparison", {"b.isa": "avx9"} | SMALL).error


# -- a loop ------------------------------------------------------------------------------------------------------------
def test_a_loop_is_analyzed() -> None:
    code = "vpdpbusd zmm0, zmm1, zmm2"
    found = answered("loop", {"code": code, "machine": "zen4", "turns": "3"})
    assert found.cycles == simdnn.analyze(code, "zen4").cycles_per_iteration
    assert [row.place for row in found.pipeline.rows] == ["zmm0"] * 3
    lanes = simdnn.analyze(code, "zen4").values(iterations=3).written[0].lanes
    assert found.pipeline.rows[2].lanes.split()[1:5] == [str(lane) for lane in lanes[:4]]
    slow = answered("loop", {"code": code, "machine": "zen4", "move.instructions.vpdpbusd zmm,zmm,zmm.latency": "9"})
    assert (slow.cycles, slow.base_cycles) == (9, 4)


def test_a_loop_without_values_still_has_cycles() -> None:
    found = answered("loop", {"code": "vaddpd zmm0, zmm1, zmm2\nvrcp14ps zmm3, zmm0", "machine": "zen4"})
    assert "no semantics" in found.remark and found.cycles > 0


@pytest.mark.parametrize("code", ["vpdpbusd zmm0", "hello world", "vpdpbusd zmm0, zmm1"])
def test_what_is_no_loop_has_its_message(code: str) -> None:
    found = page("loop", {"code": code})
    assert code.split()[0] in found.error and found.groups


def test_a_gpu_runs_no_loop_in_assembly() -> None:
    assert "b580" in page("loop", {"machine": "b580"}).error


def test_forms_name_what_their_answers_read() -> None:
    """A field that no answer looks at would be a control that does nothing: each view's fields are looked up."""

    class Noting(dict[str, str]):
        def __init__(self, *given: Any) -> None:
            super().__init__(*given)
            self.asked: set[str] = set()

        def get(self, key: str, default: Any = None) -> Any:
            self.asked.add(key)
            return super().get(key, default)

    for module in (kernel, comparison, loop):
        texts = Noting(module.EXAMPLES[0][1])
        fields = {field.name for group in module.groups(Query(texts)) for field in group.fields}
        texts.asked.clear()
        module.answer(Query(texts))
        assert fields <= texts.asked, module.__name__
