"""Drivers of one operator: each answered with values that agree with the definition, or with the reason."""

from __future__ import annotations

import numpy as np
import pytest

import simdnn
from simdnn.benchdnn import answer, definitions, read
from simdnn.benchdnn.answer import Answer
from simdnn.benchdnn.operator_calls import task
from tests.effort import one_in

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
    "--softmax --sdt=f32 --ddt=u8 --attr-scales=dst:common:0.01 "
    "--attr-post-ops=add:f32:per_oc+mul:f32:per_tensor 3x8x5",
    "--eltwise --dt=s32,f8_e5m2,u8:f32 --alg=elu_dst,clip_v2 --alpha=-1 --beta=2 --attr-post-ops=sum:0.5+relu:-1 4x9",
    "--eltwise --alg=logistic_dst --tag=aBx8b,axb 2x5x7",
    "--binary --sdt=f32 --ddt=s8 --alg=SELECT,add --stag=abx:axb "
    "--attr-post-ops=sum:0.5:2:s8+select:f32.per_oc:2,max:s8 2x3x4:1x3x1",
    "--binary 4x1:4x5 8x3x5:8",
    "--pool --dt=f32,s8:u8 --alg=max,avg_np --tag=axb,aBx4b --attr-post-ops=add:f32:per_oc ic6iw9kw3sw2pw1 "
    "mb1ic3id5kd3pd1",
    "--pool --dt=f8_e5m2,f8_e4m3 --alg=max,avg_np ic6ih7kh3ph1",
    "--lnorm --dt=f32:bf16 --flags=G,GCH,M,CM,GCHM --stat_tag=ba --tag=ntc:abx 3x4x6",
    "--bnorm --dt=f32,s8 --flags=,GCHR,CHA --tag=axb mb2ic5ih3iw4_eps0.5",
    "--gnorm --flags=,CH,GCH,G --dt=bf16:f32 g3mb2ic6iw5",
    "--reduction --alg=sum,mul,max,min,mean --sdt=s8,f32 --ddt=f32 2x3x4:2x1x1",
    "--reduction --alg=mul --sdt=s8,u8,f32 --ddt=s8,f32 --attr-post-ops=,sum+linear:2:1+add:f32 15x12x3x50:15x1x1x1",
    "--reduction --alg=norm_lp_max,norm_lp_sum,norm_lp_power_p_max,norm_lp_power_p_sum --p=1,2,3 --eps=0.5 5x4:1x4",
    "--prelu --sdt=f32,bf16:f32,u8:s8 2x3x4:1x3x1",
    "--concat --sdt=f32,s8,s32 --ddt=f32 --axis=0,1 --stag=abx:axb --attr-scales=,msrc1:common:0.5 2x3x4:2x3x4",
    "--sum --sdt=f32:s8:u8,s32 --ddt=s8,f32 --scales=0.5,2 --dtag=undef,axb 3x5x2",
    "--shuffle --dt=f32,s8 --axis=1 --group=3 --tag=abx,aBx16b 2x12x5",
    "--resampling --alg=nearest,linear --sdt=f32,u8 --ddt=f32 mb1ic3ih4oh9iw5ow3 ic2iw7ow14",
    "--lrn --alg=ACROSS,lrn_within_channel --dt=f32,bf16 --tag=axb,aBx8b mb1ic9ih4_ls3_beta1.0_k2 ic7iw9ls5alpha0.5",
    "--lrn --dispatch=onednn --machine=spr --alg=,WITHIN --tag=abx,axb mb1ic16ih5",
    "--softmax --dispatch=onednn --machine=spr --sdt=f32,s8 --ddt=u8 --attr-scales=src:common:64+dst:common:0.5 2x9x16",
    "--lnorm --dispatch=onednn --machine=spr --dt=f32:s8 --flags=,GCH --attr-scales=src:common:3 2x19x16",
    "--pool --dispatch=onednn --machine=spr --dt=u8,f32 --alg=avg_np mb1ic8ih7kh3ph1 ic3id5kd3pd1",
    "--resampling --dispatch=onednn --machine=spr --alg=nearest,linear mb1ic3ih4oh9iw5ow3",
    "--eltwise --dispatch=onednn --machine=spr --alg=log,tanh --tag=axb 2x5x7",
    "--gnorm --dispatch=onednn --tag=abx,axb g1ic3ih4",
    "--softmax --dispatch=onednn --stag=axb --axis=1,2 2x3x4",
    "--bnorm --dispatch=onednn --machine=zen4 --tag=axb,aBx16b mb2ic16ih3",
    "--pool --dispatch=onednn --dt=s8,f32 --tag=axb,aBx8b --alg=avg_np ic6iw9kw3sw2pw1",
    "--reduction --dispatch=onednn --alg=mean --stag=abx,axb --dtag=axb,aBx16b 2x3x4:2x1x1",
    "--deconv --dispatch=onednn --dt=f32,u8:s8:s8 --stag=axb --dtag=axb --bia-dt=bf16 ic8ih5oc4oh9kh3sh2ph1",
    "--deconv --dispatch=onednn --dt=f32,u8:s8:s8 ic8ih5oc4oh9kh3sh2ph1 ic3ih4oc4oh5kh2ph0",
    "--deconv --dt=f32,bf16 --dir=FWD_B mb1ic8oc6ih5kh3sh2ph1",
    "--deconv --dt=u8:s8:s32,s8:s8:u8 --attr-zero-points=,src:common:3+dst:common:2 --stag=abx g2mb1ic8oc6iw5kw3 ",
    "--deconv --dt=s8:s8:f32 --attr-scales=src:common:0.5+wei:per_oc --attr-post-ops=sum:0.5+relu "
    "ic4oc4id3ih4kd2kh3sh2",
    "--reorder --sdt=f32,s8,s32,bf16 --ddt=s8,u8,f16,s32,f8_e4m3 --stag=abx --dtag=abx,axb,ABx16a16b 2x17x5",
    "--reorder --sdt=f32 --ddt=s8 --attr-scales=src:per_dim_01+dst:common:2 --attr-zero-points=dst:common:3 2x5x4",
    "--reorder --sdt=s8 --ddt=f32 --attr-zero-points=src:common:-7 --attr-post-ops=sum:0.5 --runtime-dim-mask=63 3x4",
    "--deconv --dt=u8:s8:u8,s8:s8:s32 --attr-zero-points=src:per_dim_1+dst:per_dim_1 ic4oc5ih3kh3",
    "--deconv --dt=f32:bf16:f32,f32:f16:f32 --attr-fpmath=,bf16 ic4oc5ih3kh3",
    "--reorder --ddt=s8 --oflag=s8s8_comp:1 --attr-scales=src:per_dim_01 --dtag=ABc2b8a4b 4x4x2",
    "--concat --axis=1 --stag=abx:axb:axb 2x3x4:2x0x4:2x2x4",
    "--reorder --sdt=s4,u4,f4_e2m1 --ddt=f32 --attr-scales=src:per_dim_01:f32:2x1 --stag=ab --dtag=ba 6x8",
    "--reorder --sdt=f32 --ddt=s4,u4,f4_e2m1 --dtag=ba 6x8",
    "--reorder --sdt=f32 --ddt=s8 --stag=hwio --dtag=OIhw4i16o4i --oflag=s8s8_comp:1+zp_comp:1 32x16x3x3",
]


def answers(line: str) -> list[Answer]:
    return [answer(case) for one in read(line.split()) for case in one.cases()]


@one_in(3)
@pytest.mark.parametrize("line", LINES)
def test_values_agree_with_the_definition(line: str) -> None:
    found = answers(line)
    assert found and {one.status for one in found} == {"PASSED"}, found
    for one in found:
        assert one.cycles and one.max_error is not None and one.gb_s and one.gops is None


def test_the_sources_scale_multiplies_probabilities() -> None:
    """As oneDNN does it, not what e is raised to: 17 equal ones become 1/17 each."""
    (line,) = read(["--softmax", "--sdt=f32", "--ddt=f32", "--attr-scales=src:common:4", "--axis=1", "1x17"])
    asked = task(next(iter(line.cases())))
    found = simdnn.softmax(np.ones((1, 17), np.float32), 1, machine="zen4", **asked._ending(lambda shape, dtype: None))
    np.testing.assert_allclose(found.output, 4 / 17, rtol=1e-6)


def test_wrong_values_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(definitions._PRIMITIVES, "softmax", lambda s, rows, o: s[0] * 0 + 1.0)
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
        ("--lnorm --flags=R 6x8", "letters of GCHM"),
        ("--gnorm --flags=R ic8ih3", "letters of GCH"),
        ("--lnorm --tag=aBdc 2x3x4", "no layout of 3 dimensions"),
        ("--lnorm --dispatch=onednn --tag=axb 2x3x4", "what works: abx"),
        ("--gnorm --dispatch=onednn --tag=aBx16b g1ic16ih4", "what works: abx, or axb of all"),
        ("--softmax --dispatch=ggml 2x3", "a library's softmax"),
        ("--deconv --dispatch=onednn --stag=axb ic3oc4ih4kh2", "what works: any"),
        ("--pool --dir=BWD_D ic16ih8kh2", "no backward primitive"),
        ("--binary 2x3:3x3", "broadcasts over"),
        ("--softmax --axis=4 2x3", "axis=4"),
        ("--softmax --sdt=s32 2x3", "s32"),
        ("--softmax --attr-scales=dst:per_oc 2x3", "common ones"),
        ("--eltwise --attr-dropout=0.5:1 2x3", "not modelled for --eltwise"),
        ("--pool --attr-acc-mode=f16 ic16ih8kh2", "attr-acc-mode=f16"),
        ("--reorder --cross-engine=cpu2gpu 2x3", "cross-engine"),
        ("--reorder --oflag=other:1 2x3", "--oflag=other:1"),
        ("--reorder --oflag=s8s8_comp:\u00b2 2x3", "--oflag=s8s8_comp"),
        ("--reorder --sdt=f64 2x3", "--sdt=f64"),
        ("--reduction 2x3:2x2", "or 1"),
        ("--concat 2x3:2x3x4", "--axis=1"),
        ("--deconv --dt=bf16:f32:f32 ic8oc8ih4kh3", "bf16 x f32"),
        ("--deconv --dt=u8:s8:s32 --attr-zero-points=src:per_dim_0 ic8oc8ih4kh3", "mask per_dim_0"),
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
        ("--pool ic16", "no input size"),
        ("--resampling ic16", "no input size"),
        ("--lrn ic16ih4ls", "'ls' is no entry"),
        ("--sum --sdt=f32:f99 2x3", "f99"),
        ("--reduction --p=x 2x3:2x1", "finite number"),
    ],
)
def test_what_makes_no_sense_is_wrong_usage(line: str, message: str) -> None:
    from simdnn import SimdnnError

    with pytest.raises(SimdnnError, match=message):
        read(line.split())


def test_an_algorithm_is_that_of_its_driver_alone() -> None:
    words = "--pool --alg=AVG_P ic3ih4kh2 --eltwise 2x3 --alg=TANH 2x3 --softmax 2x3".split()
    assert [case.options["alg"] for line in read(words) for case in line.cases()] == ["AVG_P", "", "TANH", ""]


def test_what_is_said_of_an_axis_without_a_size_is_left_out() -> None:
    """`sanitize_desc` of benchdnn: such an axis is the one before it, again."""
    dims = [next(iter(read(["--pool", text])[0].cases())).dims for text in ("ic8ih9kh3dh2dw7sw3", "ic8ih9kh3dh2")]
    assert dims[0].axes == dims[1].axes and len({*dims[0].axes}) == 1  # type: ignore[union-attr]


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
