"""Drivers of one operator: each answered with values that agree with the definition, or with the reason."""

from __future__ import annotations

import numpy as np
import pytest

from simdnn.benchdnn import answer, definitions, read
from simdnn.benchdnn.answer import Answer

LINES = [
    "--softmax --sdt=f32,bf16 --ddt=f32 --axis=1 2x19x16 16x100",
    "--softmax --sdt=bf16 --ddt=u8 --attr-scales=dst:common:0.00390625 --alg=SOFTMAX,LOGSOFTMAX 12x64",
    "--eltwise --dt=f32 --alg=RELU,tanh,eltwise_gelu_erf,CLIP --alpha=0 --beta=1 32x64",
    "--eltwise --dt=bf16:s8 --alg=SWISH --alpha=1 16x100",
    "--binary --sdt=f32:f32,s8:u8 --ddt=f32 --alg=ADD,MUL,GE 8x64:1x64",
    "--binary --sdt=s8 --ddt=s8 --alg=binary_sub 8x64:8x64",
    "--pool --dt=f32,u8,s8,bf16 --alg=MAX,AVG_NP,pooling_avg_include_padding mb1ic16ih14kh3sh2ph1",
    "--pool --mb=3 ic8_ih9oh4kh3sh2_iw7ow5kw3",
    "--lnorm --dt=f32,bf16:s8 --flags=CH,C,H, 2x12x64",
    "--softmax --machine=b580,hsw 8x64",
]


def answers(line: str) -> list[Answer]:
    return [answer(case) for one in read(line.split()) for case in one.cases()]


@pytest.mark.parametrize("line", LINES)
def test_values_agree_with_the_definition(line: str) -> None:
    found = answers(line)
    assert found and {one.status for one in found} == {"PASSED"}, found
    for one in found:
        assert one.cycles and one.max_error is not None and one.gb_s and one.gops is None


def test_wrong_values_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(definitions._PRIMITIVES, "softmax", lambda s, rows, o: s[0] * 0 + 1.0)  # type: ignore[index]
    (found,) = answers("--softmax 8x64")
    assert found.status == "FAILED" and "beyond the bound" in found.reason


@pytest.mark.parametrize("dst", ["f32", "bf16", "f16", "s8", "u8"])
def test_the_bound_is_one_rounding(dst: str) -> None:
    wanted = np.array([0.5, 1.3, 100.4, -3.0])
    kind = definitions.fmt(dst)
    right = (np.clip(np.rint(wanted), kind.low, kind.high) if not kind.is_float else wanted).astype(np.float32)
    assert definitions.compared(right.astype(kind.dtype), wanted, dst) == (0.0, 0)
    error, beyond = definitions.compared((right + 2).astype(kind.dtype), wanted, dst)
    assert error > 1 and beyond >= 3


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("--lnorm --flags=G 6x8", "statistics given"),
        ("--lnorm --tag=aBc 2x3x4", "--tag=aBc"),
        ("--softmax --dispatch=onednn 2x3", "a library's softmax"),
        ("--pool --dir=BWD_D ic16ih8kh2", "no backward primitive"),
        ("--binary 2x3:3x3", "broadcasts over"),
        ("--softmax --axis=4 2x3", "axis=4"),
        ("--softmax --sdt=s32 2x3", "s32"),
        ("--softmax --attr-scales=dst:per_oc 2x3", "common ones"),
        ("--eltwise --attr-post-ops=relu 2x3", "not modelled for --eltwise"),
        ("--eltwise --alg=ADD 2x3", "--alg of --eltwise"),
    ],
)
def test_what_is_not_modelled_has_a_reason(line: str, reason: str) -> None:
    (found,) = answers(line)
    assert found.status == "UNIMPLEMENTED" and reason in found.reason, found


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("--softmax --wtag=ab 2x3", "unknown option '--wtag=ab'"),
        ("--eltwise --alg=foo 2x3", "--alg 'foo'"),
        ("--binary 2x3", "2 shapes needed"),
        ("--softmax 2x0", "dimension of 0"),
        ("--eltwise --alpha=x 2x3", "finite number"),
        ("--softmax --sdt=f32:f32:f32 2x3", "1 or 2 types"),
        ("--pool ih8kh2", "ic is missing"),
        ("--pool ic16id8kd2", "three spatial"),
    ],
)
def test_what_makes_no_sense_is_wrong_usage(line: str, message: str) -> None:
    from simdnn import SimdnnError

    with pytest.raises(SimdnnError, match=message):
        read(line.split())


def test_an_algorithm_is_that_of_its_driver_alone() -> None:
    words = "--pool --alg=AVG_P ic3ih4kh2 --eltwise 2x3 --alg=TANH 2x3 --softmax 2x3".split()
    assert [case.options["alg"] for line in read(words) for case in line.cases()] == ["AVG_P", "", "TANH", ""]


def test_options_hold_by_kind_of_driver() -> None:
    """A product's types and an operator's are apart; the machine is one for all."""
    words = "--machine=icx --matmul --dt=u8:s8:s32 8x16:16x8 --softmax 8x16 --reset --eltwise 8x8 --matmul 8x16:16x8"
    texts = [case.text for line in read(words.split()) for case in line.cases()]
    assert texts == [
        "--matmul --machine=icx --dt=u8:s8:s32 8x16:16x8",
        "--softmax --machine=icx 8x16",
        "--eltwise --machine=icx 8x8",
        "--matmul --machine=icx 8x16:16x8",
    ]
