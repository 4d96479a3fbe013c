"""`simdnn bench --from-verbose`: oneDNN's verbose log read, and its problems priced."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from isa_models import InvalidArgument, UnknownName
from simdnn.benchdnn import answer, read
from simdnn.benchdnn.log import Executed, executed
from simdnn.cli import main
from tests.benchdnn.lines import cases, texts
from tests.effort import examples

LOG = """\
onednn_verbose,v1,info,oneDNN v3.9.0 (commit 0)
onednn_verbose,v1,primitive,info,template:operation,engine,primitive,implementation,prop_kind,memory_descriptors,attributes,auxiliary,problem_desc,exec_time
onednn_verbose,v1,primitive,create:cache_miss,cpu,matmul,brg_matmul:avx512_core,undef,src:f32::blocked:ab::f0 wei:f32:a:blocked:BA16a64b::f0 dst:f32::blocked:ab::f0,,,128x768:768x3072,3.5
onednn_verbose,v1,primitive,exec,cpu,reorder,jit:uni,undef,src:f32::blocked:ab::f0 dst:f32::blocked:BA16a64b::f0,,,768x3072,0.5
onednn_verbose,v1,primitive,exec,cpu,matmul,brg_matmul:avx512_core_vnni,undef,src:u8::blocked:ab::f0 wei:s8:a:blocked:BA16a64b::f0 bia:f32::blocked:ab::f0_mask2 dst:f32::blocked:ab::f0,attr-scratchpad:user attr-scales:src0:0:f32+wei:2:f32 attr-post-ops:eltwise_relu,,128x768:768x3072,1.5
onednn_verbose,v1,1693533460193.346924,primitive,exec,cpu,matmul,brg_matmul:avx512_core,undef,src:f32::blocked:ab::f0 wei:f32::blocked:ba::f0 dst:f32::blocked:ab::f0,attr-post-ops:binary_add:f64:2,,1x16:16x8,0.25
onednn_verbose,primitive,exec,cpu,convolution,jit:avx512_core,forward_training,src_f32::blocked:aBcd16b:f0 wei_f32::blocked:ABcd16b16a:f0 bia_f32::blocked:a:f0 dst_f32::blocked:aBcd16b:f0,,alg:convolution_direct,mb1_ic64oc64_ih56oh56kh3sh1dh0ph1_iw56ow56kw3sw1dw0pw1,1.95
onednn_verbose,v1,primitive,exec,cpu,matmul,brg_matmul:avx512_core,undef,bad
"""  # noqa: E501  # lines are the library's


def test_a_log_becomes_problems() -> None:
    found = list(executed(LOG.splitlines()))
    assert [item if isinstance(item, str) else item.ms for item in found] == ["reorder", 1.5, 0.25, 1.95, None]
    quantized, added, older, cut = (item for item in found if isinstance(item, Executed))
    assert cut.reason == "a line cut short: 5 of 9 fields behind 'exec'"
    assert texts(*quantized.words) == [
        "--matmul --dt=u8:s8:f32 --stag=ab --dtag=ab --attr-scales=src0:0:f32+wei:2:f32 --attr-post-ops=eltwise_relu "
        "--bia-dt=f32 --bia_mask=2 128x768:768x3072"
    ]
    assert "--wtag=ba" in added.words and answer(cases(*added.words)[0]).status == "UNIMPLEMENTED"
    assert older.words[1:6] == ("--dt=f32:f32:f32", "--stag=any", "--wtag=any", "--dtag=any", "--dir=FWD_D")


OLD_AND_NEW = [  # the line behind "…verbose,", its words or the reason why it is not answered
    (
        "dnnl_verbose,exec,cpu,matmul,gemm:jit,undef,src_f32::blocked:abc:f0 wei_f32::blocked:acb:f0 "
        "dst_f32::blocked:abc:f0,scratchpad_mode:user;post_ops:'eltwise_relu;';,,b10m20n30k40,0.1",
        "--matmul --dt=f32:f32:f32 --stag=abc --wtag=acb --dtag=abc --attr-post-ops=eltwise_relu 10x20x40:10x40x30",
    ),
    (
        "onednn_verbose,v1,1701245378920.128906,primitive,exec,cpu,matmul,brg_matmul:avx512_core_bf16,undef,"
        "src:f32::blocked:ab::f0 wei:s8:ap:blocked:BA16a64b::f0 dst:f32::blocked:ab::f0,attr-fpmath:bf16:true "
        "attr-scales:wei:2:f32,,16x64:64x48,0.5",
        "--matmul --dt=f32:s8:f32 --stag=ab --wtag=any --dtag=ab --attr-fpmath=bf16:true --attr-scales=wei:2:f32 "
        "16x64:64x48",
    ),
    (
        "onednn_verbose,1693533460193.346924,primitive,exec,cpu,matmul,brg:avx512_core,undef,src_f32::blocked:ab::f0 "
        "wei_f32::blocked:ba::f0 dst_f32::blocked:ab::f0,attr-scratchpad:user ,,16x64:64x48:16x48,0.5",
        "--matmul --dt=f32:f32:f32 --stag=ab --wtag=ba --dtag=ab --attr-scratchpad=user 16x64:64x48:16x48",
    ),
    (
        "onednn_verbose,v1,primitive,exec,cpu,matmul,brg_matmul:avx512_core,undef,src:f32::blocked:ab:128x1:f0 "
        "wei:f32::blocked:ab::f0 dst:f32::blocked:ab::f0,,,16x64:64x48,0.5",
        "--matmul --dt=f32:f32:f32 --stag=ab --wtag=ab --dtag=ab --strides=128x1:: 16x64:64x48",
    ),
    (
        "onednn_verbose,v1,primitive,exec,cpu,convolution,brg_conv_fwd:avx512_core,forward_inference,"
        "src:u8:a:blocked:acdb::f0 wei:s8:a:blocked:AcdB16b64a4b::f8:s8m1 bia:undef::undef::: "
        "dst:u8:a:blocked:acdb::f0,"
        "attr-acc-mode:any attr-zero-points:src0:0:s32,alg:convolution_direct,"
        "mb1_ic64oc64_ih28oh28kh3sh1dh0ph1_iw28ow28kw3sw1dw0pw1,0.5",
        "--conv --dt=u8:s8:u8 --stag=any --wtag=any --dtag=any --dir=FWD_I --alg=convolution_direct "
        "--attr-acc-mode=any "
        "--attr-zero-points=src0:0:s32 mb1_ic64oc64_ih28oh28kh3sh1dh0ph1_iw28ow28kw3sw1dw0pw1",
    ),
    (
        "dnnl_verbose,exec,cpu,matmul,gemm:ref,undef,src_s8::blocked:ba:f0 wei_s8::blocked:ab:f0 "
        "dst_s32::blocked:ab:f0,oscale:0:2;zero_points:'src:0:-2_wei:0:2';,,m10n20k2,0.4",
        "attribute oscale:0:2 of",
    ),
    (
        "mkldnn_verbose,exec,convolution,jit_1x1:avx2,forward_training,fsrc:nChw8c fwei:OIhw8i8o fbia:undef "
        "fdst:nChw8c,"
        "alg:convolution_direct,mb1_g1ic8oc5_ih14oh14kh1sh1dh0ph0_iw14ow14kw1sw1dw0pw0,2.9",
        "a log of mkldnn",
    ),
    (
        "onednn_verbose,v1,primitive,exec,cpu,matmul,any,undef,wei:f32::blocked:ab::f0,,,1x1:1x1,1",
        "no memory descriptor of src, dst",
    ),
]


@pytest.mark.parametrize(("line", "wanted"), OLD_AND_NEW)
def test_lines_of_several_versions(line: str, wanted: str) -> None:
    [item] = executed([line])
    assert isinstance(item, Executed) and item.ms is not None
    assert item.reason.startswith(wanted) if item.reason else " ".join(item.words) == wanted
    if not item.reason and "--strides" not in wanted:
        assert all(found.status == "PASSED" for found in map(answer, cases("--mode=P", *item.words)))


def test_an_inner_product_is_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    line = (
        "onednn_verbose,v1,primitive,exec,cpu,inner_product,brgemm:avx512_core_vnni,forward_inference,"
        "src:u8::blocked:acdb::f0 wei:s8:a:blocked:AB16b64a4b::f0 bia:f32::blocked:a::f0 dst:f32::blocked:ab::f0,"
        "attr-scales:src0:0:f32+wei:1:f32 attr-post-ops:eltwise_relu,,mb4ic8ih3iw3oc10,0.5"
    )
    [item] = executed([line])
    assert isinstance(item, Executed)
    assert " ".join(item.words) == (
        "--ip --dt=u8:s8:f32 --stag=acdb --wtag=any --dtag=ab --dir=FWD_I --bia-dt=f32 "
        "--attr-scales=src0:0:f32+wei:1:f32 --attr-post-ops=eltwise_relu mb4ic8ih3iw3oc10"
    )
    path = tmp_path / "log"
    path.write_text(f"{line}\n{line.replace('forward_inference', 'backward_data')}\n")
    assert main(["bench", "--from-verbose", str(path), "--machine", "clx"]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[1].startswith("PASSED  gemm:avx512_core_vnni") and lines[1].endswith("mb4ic8ih3iw3oc10")
    assert lines[2].startswith("UNIMPLEMENTED:--dir=BWD_D: no backward inner product")
    assert lines[3] == "lines:2 predicted:1 unimplemented:1 skipped:0"


def test_a_report_of_benchdnn_is_read() -> None:
    """Its template names the fields; a line with others is unreadable, one before any template is none."""
    line = 'perf,cpu,jit:avx2,"a",--mode=P --softmax --axis=1 128x1000,0,0.1,0.02,0,0.03,0'
    template = "Output template: perf,%engine%,%impl%,%name%,%prb%,%Gops%,%+ctime%,%-time%,%-Gflops%,%0time%,%0Gflops%"
    wanted = Executed(("--softmax", "--axis=1", "128x1000"), "jit:avx2", 0.02)
    assert list(executed([line, template, line, line[:-2], "total perf: min(ms):0.02"])) == [wanted, "unreadable"]
    assert list(executed(["Output template: perf,%engine%,%-time%", "perf,cpu,0.02"])) == []


def test_what_is_no_execution_is_left_out() -> None:
    text = """onednn_verbose,v1,info,oneDNN v3.13.2 (commit N/A)
onednn_verbose,v1,primitive,info,template:operation,engine,primitive,implementation,prop_kind,memory_descriptors
onednn_verbose,v1,primitive,create:cache_miss,cpu,matmul,ref:any,undef,src:f32::blocked:ab::f0,,,1x1:1x1,0.5
onednn_verbose,v1,primitive,create:dispatch,matmul,cpu,matmul,brg,undef,src:f32::blocked:ab::f0,,,1x1,unsupported
onednn_verbose,primitive,exec:check,primitive,unused primitive execution argument (4113),src/common/a.cpp:74
onednn_verbose,graph,exec,cpu,100002,matmul_post_ops,matmul_0;relu_0,,in0_f32:0:strided:undef:2x3:3s1,fpm:strict,0.02
"""
    assert list(executed(text.splitlines())) == ["graph"]


def test_predicted_beside_logged(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "log"
    path.write_text(LOG)
    assert main(["bench", "--from-verbose", str(path), "--machine", "clx"]) == 1  # one post-operation is not there
    lines = capsys.readouterr().out.splitlines()
    quantized = lines[1].split()
    assert quantized[:2] == ["PASSED", "gemm:avx512_core_vnni"]
    assert float(quantized[2]) / 1500 == pytest.approx(1 / float(quantized[4]), rel=0.01) and quantized[3] == "1500"
    assert lines[2].startswith("UNIMPLEMENTED:post-operation 'add:f64:2'")
    assert lines[-3].startswith("UNIMPLEMENTED:a line cut short")
    assert lines[-2:] == ["lines:4 predicted:2 unimplemented:2 skipped:1", "skipped: 1 reorder"]


def test_a_log_without_executions_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "log"
    path.write_text("nothing here\n")
    assert main(["bench", "--from-verbose", str(path)]) == 0
    told = capsys.readouterr().out
    assert "lines:0 predicted:0 unimplemented:0 skipped:0" in told
    assert f"{path} holds no line of a primitive that ran; ONEDNN_VERBOSE=1 makes oneDNN print them" in told


@examples(200)
@given(st.lists(st.tuples(st.integers(0, len(LOG) - 1), st.characters()), max_size=12))
def test_a_damaged_log_is_read_without_a_crash(damage: list[tuple[int, str]]) -> None:
    text = list(LOG)
    for position, character in damage:
        text[position] = character
    for item in executed("".join(text).splitlines()):
        if isinstance(item, Executed):
            with contextlib.suppress(InvalidArgument, UnknownName):
                read(item.words)
