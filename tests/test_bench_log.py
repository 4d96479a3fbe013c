"""`simdnn bench --from-verbose`: oneDNN's verbose log read, and its problems priced."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from isa_models import InvalidArgument, UnknownName
from simdnn.benchdnn import answer, read
from simdnn.benchdnn.log import Executed, executed
from simdnn.cli import main
from tests.test_bench import cases, texts

LOG = """\
onednn_verbose,v1,info,oneDNN v3.9.0 (commit 0)
onednn_verbose,v1,primitive,info,template:operation,engine,primitive,implementation,prop_kind,memory_descriptors,attributes,auxiliary,problem_desc,exec_time
onednn_verbose,v1,primitive,create:cache_miss,cpu,matmul,brg_matmul:avx512_core,undef,src:f32::blocked:ab::f0 wei:f32:a:blocked:BA16a64b::f0 dst:f32::blocked:ab::f0,,,128x768:768x3072,3.5
onednn_verbose,v1,primitive,exec,cpu,reorder,jit:uni,undef,src:f32::blocked:ab::f0 dst:f32::blocked:BA16a64b::f0,,,768x3072,0.5
onednn_verbose,v1,primitive,exec,cpu,matmul,brg_matmul:avx512_core_vnni,undef,src:u8::blocked:ab::f0 wei:s8:a:blocked:BA16a64b::f0 bia:f32::blocked:ab::f0_mask2 dst:f32::blocked:ab::f0,attr-scratchpad:user attr-scales:src0:0:f32+wei:2:f32 attr-post-ops:eltwise_relu,,128x768:768x3072,1.5
onednn_verbose,v1,1693533460193.346924,primitive,exec,cpu,matmul,brg_matmul:avx512_core,undef,src:f32::blocked:ab::f0 wei:f32::blocked:ba::f0 dst:f32::blocked:ab::f0,attr-post-ops:binary_add:f32:2,,1x16:16x8,0.25
onednn_verbose,primitive,exec,cpu,convolution,jit:avx512_core,forward_training,src_f32::blocked:aBcd16b:f0 wei_f32::blocked:ABcd16b16a:f0 bia_f32::blocked:a:f0 dst_f32::blocked:aBcd16b:f0,,alg:convolution_direct,mb1_ic64oc64_ih56oh56kh3sh1dh0ph1_iw56ow56kw3sw1dw0pw1,1.95
onednn_verbose,v1,primitive,exec,cpu,matmul,brg_matmul:avx512_core,undef,bad
"""  # noqa: E501  # lines are the library's


def test_a_log_becomes_problems() -> None:
    found = list(executed(LOG.splitlines()))
    assert [item if isinstance(item, str) else item.ms for item in found] == ["reorder", 1.5, 0.25, 1.95, "unreadable"]
    quantized, added, older = (item for item in found if isinstance(item, Executed))
    assert texts(*quantized.words) == [
        "--matmul --dt=u8:s8:f32 --stag=ab --dtag=ab --attr-scales=src0:0:f32+wei:2:f32 --attr-post-ops=eltwise_relu "
        "--bia-dt=f32 --bia_mask=2 128x768:768x3072"
    ]
    assert "--wtag=ba" in added.words and answer(cases(*added.words)[0]).status == "UNIMPLEMENTED"
    assert older.words[1:6] == ("--dt=f32:f32:f32", "--stag=any", "--wtag=any", "--dtag=any", "--dir=FWD_D")


def test_predicted_beside_logged(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "log"
    path.write_text(LOG)
    assert main(["bench", "--from-verbose", str(path), "--machine", "clx"]) == 1  # one post-operation is not there
    lines = capsys.readouterr().out.splitlines()
    quantized = lines[1].split()
    assert quantized[:2] == ["PASSED", "gemm:avx512_core_vnni"]
    assert float(quantized[2]) / 1500 == pytest.approx(1 / float(quantized[4]), rel=0.01) and quantized[3] == "1500"
    assert lines[2].startswith("UNIMPLEMENTED:post-operation 'add:f32:2'")
    assert lines[-2:] == ["lines:3 predicted:2 unimplemented:1 skipped:2", "skipped: 1 reorder, 1 unreadable"]


def test_a_log_without_executions_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "log"
    path.write_text("nothing here\n")
    assert main(["bench", "--from-verbose", str(path)]) == 0
    assert "lines:0 predicted:0 unimplemented:0 skipped:0" in capsys.readouterr().out


@settings(max_examples=200, deadline=None)
@given(st.lists(st.tuples(st.integers(0, len(LOG) - 1), st.characters()), max_size=12))
def test_a_damaged_log_is_read_without_a_crash(damage: list[tuple[int, str]]) -> None:
    text = list(LOG)
    for position, character in damage:
        text[position] = character
    for item in executed("".join(text).splitlines()):
        if isinstance(item, Executed):
            with contextlib.suppress(InvalidArgument, UnknownName):
                read(item.words)
