"""`simdnn bench` answers problems: values that are checked, losses by design, figures, reasons."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import simdnn
from simdnn.benchdnn import values
from simdnn.benchdnn.answer import cost
from simdnn.benchdnn.asked import task
from tests.benchdnn.lines import answers, cases
from tests.effort import one_in

# answers


def test_a_matmul_and_its_figures() -> None:
    [found] = answers("--matmul", "--dt=u8:s8:s32", "--machine=icx", "64x512:512x64")
    assert (found.status, found.implementation, found.max_error) == ("PASSED", "gemm:avx512_core_vnni", 0)
    assert found.cycles and found.time_us and found.gops and found.gb_s
    assert found.gops == pytest.approx(2e-3 * 64 * 512 * 64 / found.time_us)
    assert found.gb_s == pytest.approx(1e-3 * (64 * 512 + 512 * 64 + 4 * 64 * 64) / found.time_us, rel=0.02)


@pytest.mark.parametrize("machine", ["zen4", "hsw", "spr"])
def test_a_batch_is_what_matmul_takes(machine: str) -> None:
    """Three and four dimensions, which broadcast; every product's values are compared."""
    one, *several = answers("--matmul", f"--machine={machine}", "20x30:30x40", "3x20x30:3x30x40", "2x1x9x8:1x3x8x7")
    assert one.cycles and several[0].cycles and 2.5 * one.cycles < several[0].cycles < 3.2 * one.cycles
    assert [(found.status, found.max_error, found.note) for found in several] == [("PASSED", 0, "")] * 2
    src, weights = np.ones((3, 20, 30), np.float32), np.ones((3, 30, 40), np.float32)
    assert simdnn.matmul(src, weights, machine=machine).cycles == several[0].cycles


def test_a_batch_on_a_gpu_is_one_kernel() -> None:
    words = ("--matmul", "--machine=b580", "--dt=f16:f16:f32", "--bia-dt=f32", "--bia_mask=8")
    one, six, shared = answers(*words[:-1], "20x30:30x40", words[-1], "2x3x20x30:2x3x30x40", "2x3x20x30:2x1x30x40")
    assert one.cycles and six.cycles and one.cycles <= six.cycles < 3 * one.cycles
    assert (one.status, six.status, shared.status) == ("PASSED",) * 3 and six.max_error == shared.max_error == 0
    assert shared.gb_s and six.gb_s and shared.gb_s < six.gb_s


@one_in(2)
@pytest.mark.parametrize(
    "words",
    [
        # documented examples
        "--dt=f32:s8:f32 --attr-fpmath=bf16:true --attr-scales=wei:per_ocic:bf16:2x1 "
        "--attr-zero-points=wei:per_ocic:s8:2x1 6x4:4x5",
        "--dt=u8:s8:u8 --attr-zero-points=src:common:1+dst:common:2 10x30:30x20",
        "--bia-dt=f32 --bia_mask=4 2x10x30:2x30x20",
        # each type with all that its kernels have, on odd sizes
        "--dt=u8:s8:s8,s8:s8:u8,u8:s8:f32,s8:s8:bf16 --bia-dt=f32 --attr-post-ops=,relu "
        "--attr-scales=src:common:0.25+wei:per_oc+dst:common:2 --attr-zero-points=src:common:3+dst:common:-2 "
        "7x33:33x17",
        "--dt=f32,bf16,bf16:bf16:f32 --bia-dt=f32 --attr-post-ops=relu,select:f32.per_oc:per_tensor+relu 7x33:33x17",
        "--machine=skx,clx --isa=avx2, --dt=u8:s8:s32,s8:s8:s32 9x70:70x19",
        # scales that are no powers of two, so that roundings show
        "--dt=s8:s8:s8,u8:s8:f32,u8:s8:bf16 --attr-scales=src:common:0.3+wei:common:0.7+dst:common:1.1 9x70:70x19",
        "--dt=f32:u8:f32,bf16:s4:bf16 --attr-fpmath=bf16:true --attr-scales=wei:common:0.3 --wtag=any 9x64:64x19",
        "--attr-fpmath=bf16 9x70:70x19",
        "--attr-post-ops=swish:300 20x30:30x40",  # infinities on the way
        "--dt=f8_e4m3 --attr-post-ops=linear:3:1 5x256:256x32",  # beyond 448, where kernels saturate
    ],
)
def test_matmuls_pass(words: str) -> None:
    for found in answers("--matmul", *words.split()):
        assert found.status == "PASSED", found
        assert found.max_error is not None


@one_in(2)
@pytest.mark.parametrize(
    "words",
    [
        'mb1ic16ih9oc16oh9kh3ph1n"name"',
        "--dt=u8:s8:s32,s8:s8:f32 --dir=FWD_B,FWD_D --attr-scales=wei:per_oc ic17oc19ih8oh4kh1ph0sh2",
        "--dt=f32,u8:s8:f32 g4ic16oc16_ih7kh3ph1dh1",
        "--dt=f32,u8:s8:f32 g16mb1ic16oc16_ih7kh3ph1",
        "--dt=u8:s8:f32 --attr-zero-points=src:common:2 ic8oc8_iw9kw3pw1",
        "--dt=bf16 ic3ih12oc16oh6kh5sh2ph2",
        "ic8ih9oc8oh3kh1ph0sh2",  # the last rows are not read
        "--dt=f32,u8:s8:s8 --attr-post-ops=,sum+add:f32:per_oc+max:f32:per_tensor mb1g2ic8id5ih6iw7oc4kd3kh2kw1pd1sh2",
    ],
)
def test_convolutions_pass(words: str) -> None:
    for found in answers("--conv", "--mb=1", *words.split()):
        assert found.status == "PASSED", found
        assert found.max_error == 0


@one_in(3)
@pytest.mark.parametrize(
    ("words", "note"),
    [
        ("--matmul --dt=bf16 --stag=ba 24x40:40x17", "src in ba is copied"),
        ("--matmul --stag=acb --dtag=bac 2x5x40:2x40x17", "src in acb is copied"),
        ("--matmul --dtag=AB16b16a 24x40:40x17", "dst in AB16b16a is copied"),
        ("--matmul --strides=48x1::20x1 24x40:40x17", "dst in 20x1 is copied"),
        ("--matmul --wtag=BA16a48b4a --dt=u8:s8:s32 24x40:40x17", "weights come in the kernel's own layout"),
        ("--matmul --runtime_dims_masks=3:1 24x40:40x17", "runtime dimensions are known ones here"),
        ("--matmul --bia-dt=bf16 --bia_mask=3 24x40:40x17", ""),
        ("--matmul --bia-dt=s8 --attr-post-ops=add:f16:1+mul:s8:per_oc:ab+max:u8:3 24x40:40x17", ""),
        ("--matmul --attr-post-ops=tanh:0:0:2.5+swish:1.5+gelu_erf 24x40:40x17", ""),
        ("--matmul --attr-post-ops=ge:f32:2 24x40:40x17", "values not checked: no bound on what ge"),
        ("--conv --alg=wino ic3ih5oc4kh3ph1", "computed direct, not by Winograd"),
        ("--conv --attr-post-ops=relu+dw:k3s2p1+linear:2:1 ic16ih8oc24kh1", "two kernels, one after the other"),
        (
            "--conv --dispatch=onednn --dt=s8:s8:u8 --attr-scales=dst:common:2+attr_post_op_dw_wei:per_oc "
            "--attr-post-ops=dw:k3s1p1:s8+relu ic16ih8oc24kh1",
            "two kernels, one after the other",
        ),
        (
            "--conv --dt=u8:s8:u8 --attr-scales=src:common:0.5+attr_post_op_dw_wei:per_oc --attr-post-ops=dw:k3s1p1:s8 "
            "ic16ih8oc24kh1",
            "two kernels",
        ),
        ("--conv --stag=abx --dtag=nChw16c ic3ih5oc4kh3", "dst in nChw16c is copied"),
        ("--conv --stag=ncw --wtag=wio ic3iw5oc4kw3", "src in ncw is copied"),
        ("--conv --strides=400x1x70x5::400x1x60x5 ic3ih5oc4kh3", "dst in 400x1x60x5 is copied"),
    ],
)
def test_layouts_and_operations_with_a_note(words: str, note: str) -> None:
    """Values are compared all the same, but where no bound on an error is known."""
    (found,) = answers(*words.split())
    assert found.status == "PASSED" and note in found.note, found
    assert (found.max_error is None) == ("not checked" in found.note)


@pytest.mark.parametrize(
    ("words", "implementation"),
    [
        ("ic24ih7oc17kh3ph1", "jit_uni_ncsp:conv+brg_conv_fwd:avx512_core"),
        ("--attr-post-ops=relu ic24ih7oc17kh1", "jit_uni_ncsp:conv+brgconv_1x1:avx512_core"),
        ("--dir=FWD_B g16ic16ih9oc16kh3ph1", "jit_uni_ncsp:conv+brdgmm_dw:avx512_core"),
        ("ic24ih7oc17kh1", "jit_uni_ncsp:matmul+brg_matmul:avx512_core"),
        ("ic24ih7oc1kh1", "a product of 1x24 weights"),
        ("g2ic16ih7oc16kh3", "jit_uni_ncsp:conv+jit:avx512_core"),
        ("--wtag=abx ic24ih7oc17kh3", "jit_uni_ncsp:conv+ref:any"),
        ("--wtag=xba ic24ih7oc17kh3", "jit_uni_ncsp:conv+brg_conv_fwd:avx512_core"),
        ("--dt=bf16 ic24ih7oc17kh3", "x64:gemm:jit"),
        ("--isa=avx2 ic24ih7oc17kh3", "x64:gemm:jit"),
        ("--dt=u8:s8:u8 ic24ih7oc17kh3", "ref:any"),
        ("--dtag=any --dt=bf16 ic24ih7oc17kh3", "x64:gemm:jit"),
        ("--dtag=axb ic24ih7oc17kh3", "ref:any"),
        ("--stag=axb --dtag=axb g2ic16ih7oc6kh3", "jit:avx512_core"),
        ("--stag=axb --dtag=axb --dt=u8:s8:u8 --wtag=xba ic24ih7oc17kh3", "x64:gemm_s8u8s32:jit"),
        ("--stag=any --dtag=any --strides=1200x1x168x24::850x1x85x17 ic24ih7oc17kh3", "brg_conv_fwd:avx512_core"),
    ],
)
def test_convolutions_over_layouts_of_a_library(words: str, implementation: str) -> None:
    """Names of the library for problems of these kinds; bits are recorded (tests/vectors/onednn_layouts)."""
    asked = "--dispatch=onednn --machine=zen4 --stag=abx --dtag=abx"
    (case,) = cases("--conv", *asked.split(), *words.split())
    if ":" in implementation:
        assert cost(task(case)).library == implementation
    else:
        (found,) = answers("--conv", *asked.split(), *words.split())
        assert implementation in found.reason


@pytest.mark.parametrize(
    ("words", "implementation"),
    [
        ("--dtag=ba 12x30:30x20", "ref:any"),
        ("--dt=s8:s8:s8 --dtag=ba 12x30:30x20", "ref_int8:any"),
        ("--dt=bf16 --stag=ba --wtag=BA16a64b2a 12x30:30x20", "brg_matmul:avx512_core_bf16"),
        ("--stag=ba 1x30:30x20", "brg_matmul:avx2"),
        ("--stag=acbd --wtag=adbc --dtag=acbd 2x3x12x30:2x3x30x20", "brg_matmul:avx512_core"),
        ("--wtag=cab 1x12x30:1x30x20", "brg_matmul:avx512_core"),
        ("--stag=ba 12x30:30x1", "brg_matmul:avx2"),
        ("--strides=34x1:: 12x30:30x1", "brg_matmul:avx512_core"),
        ("--wtag=BA16a64b 2x3:3x1", "brg_matmul:avx512_core"),
        ("--dt=s8:s8:s8 --wtag=BA16a64b4a --dtag=AB16b16a 11x13:13x16", "ref_int8:any"),
    ],
)
def test_matmuls_over_layouts_of_a_library(words: str, implementation: str) -> None:
    (case,) = cases("--matmul", "--dispatch=onednn", "--machine=zen4", *words.split())
    assert cost(task(case)).library == implementation


def test_a_copy_takes_time() -> None:
    rows, columns = (answers("--matmul", "--mode=P", f"--stag={tag}", "64x64:64x64")[0] for tag in ("ab", "ba"))
    assert rows.cycles and columns.cycles and columns.cycles > 1.2 * rows.cycles
    share = int(columns.note.split("%")[0].split()[-1]) / 100
    assert share == pytest.approx(1 - rows.cycles / columns.cycles, abs=0.01)


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        ("--matmul --attr-post-ops=sum:0.5:0.5 2x3:3x4", "post-operation 'sum:0.5:0.5'"),
        ("--matmul --attr-post-ops=add:s4:per_oc 2x3:3x4", "post-operation 'add:s4:per_oc'"),
        ("--matmul --attr-post-ops=prelu:per_dim_0 2x3:3x4", "prelu with mask per_dim_0"),
        ("--matmul --attr-post-ops=add:f64 2x3:3x4", "post-operation 'add:f64'"),
        ("--matmul --dt=f32:s8:f32 2x3:3x4", "ambiguous"),
        ("--matmul --dt=f64 2x3:3x4", "f64 source"),
        ("--matmul --dt=f4_e3m0 2x3:3x4", "unknown data type 'f4_e3m0'"),
        ("--matmul --dt=u8:s8:s32 --attr-fpmath=bf16 2x3:3x4", "a math mode says how f32 data is computed"),
        ("--matmul --stag=bc 2x3:3x4", "--stag=bc: no layout of 2 dimensions"),
        ("--matmul --dtag=aB0b 2x3:3x4", "--dtag=aB0b"),
        (
            "--matmul --dispatch=onednn --attr-scales=src:common:0.3 --runtime_dims_masks=3:3 2x3000:3000x4",
            "another GEMM",
        ),
        ("--matmul --dispatch=onnxruntime --runtime_dims_masks=3:3 2x3:3x4", "learns at run time"),
        ("--matmul --strides=8:: 2x3:3x4", "--strides=8::; 2 numbers"),
        ("--matmul --bia-dt=f64 2x3:3x4", "--bia-dt=f64"),
        ("--matmul --engine=gpu 2x3:3x4", "--engine=gpu: not modelled; 'zen4' is a CPU, --machine=b580 a GPU"),
        ("--matmul --machine=b580 --engine=cpu 2x3:3x4", "--engine=cpu: not modelled; 'b580' is a GPU, --machine=zen4"),
        ("--matmul --machine=skx --isa=avx512_core_vnni 2x3:3x4", "lacks avx512_core_vnni"),
        ("--matmul --dt=s8 --attr-scales=wei:mx:e8m0:1x32 2x3:3x4", "mx scales"),
        ("--matmul --dt=f32:s8:f32 --attr-fpmath=bf16:true --attr-scales=wei:per_ocic:f16:5x1 2x6:6x4", "not divide K"),
        ("--matmul 2x3:4x5", "K is 3 in src and 4 in weights"),
        ("--conv --dispatch=onednn --attr-post-ops=sum+dw:k3s1p1 ic16ih8oc24kh1", "which oneDNN does not fuse"),
        ("--conv --dispatch=onednn --dtag=abx --attr-post-ops=dw:k3s1p1 ic16ih8oc24kh1", "any and axb work"),
        ("--matmul 99999x99999:99999x99999999999", "bytes"),
        ("--conv --dir=BWD_D ic3ih5oc4kh3", "no backward convolution"),
        ("--conv --dispatch=onednn --alg=wino ic3ih5oc4kh3", "no Winograd"),
        ("--conv --dispatch=onednn --stag=abx ic3ih5oc4kh3", "16 channels and more"),
        ("--conv --dispatch=onednn --stag=axb --dtag=aBx16b ic3ih5oc4kh3", "other kernels over such layouts"),
        ("--conv --dispatch=onednn --wtag=abx --mode=C ic3ih5oc4kh3", "its older GEMM over these layouts"),
        (
            "--conv --dispatch=onednn --isa=avx512_core --dt=u8:s8:s32 --stag=axb --wtag=hwio --dtag=axb --mode=C "
            "ic45ih6oc8kh3",
            "new pairs after half of 405 products",
        ),
        ("--matmul --dispatch=onnxruntime --dtag=ba 2x3:3x4", "dst_tag='ba': what works"),
        ("--matmul --dispatch=onednn --wtag=AB16a64b 2x3:3x4", "other kernels over such layouts"),
        ("--conv --dispatch=onnxruntime --alg=wino ic3ih5oc4kh3", "no Winograd"),
        ("--conv --dispatch=onnxruntime --attr-post-ops=dw:k3s1p1 ic16ih8oc24kh1", "fused kernels of onnxruntime"),
        ("--conv --stag=ab ic3ih5oc4kh3", "--stag=ab: no layout of 4 dimensions"),
        ("--conv g3ic4ih5oc6kh3", "groups=3 does not divide ic=4"),
    ],
)
def test_reasons(words: str, reason: str) -> None:
    for found in answers(*words.split()):
        assert found.status == "UNIMPLEMENTED" and reason in found.reason
        assert found.cycles is None


@pytest.mark.parametrize(
    "words",
    [
        "--dt=f8_e4m3 5x64:64x9",
        "--dt=f8_e4m3:f8_e5m2:f32 5x64:64x9",
        "--dt=bf16:f8_e4m3:f32 --wtag=any 5x64:64x9",
        "--dt=f32:f4_e2m1:f32 --attr-scales=wei:per_ocic:e8m0:32x1 5x64:64x9",
        "--dt=f8_e4m3:f8_e4m3:bf16 --attr-scales=wei:per_ocic:e8m0:32x1+src:per_ocic:e8m0:1x32 5x64:64x9",
        "--dt=f32:f32:f4_e2m1 --attr-scales=dst:common:0.5 5x64:64x9",
    ],
)
def test_narrow_floats(words: str) -> None:
    (found,) = answers("--matmul", "--machine=spr", *words.split())
    assert found.status == "PASSED" and found.max_error == 0, found


def test_scales_that_are_found() -> None:
    for mask in ("mx:e8m0:1x32", "dynamic_mx:e8m0:1x32", "dynamic_fp:f8_e4m3:1x16"):
        (found,) = answers("--matmul", "--dt=f32:f32:f8_e4m3", f"--attr-scales=dst:{mask}", "5x64:64x32")
        assert found.status == "PASSED" and "scales are found" in found.note, found


def test_a_large_problem_is_priced_alone() -> None:
    [found] = answers("--matmul", "4096x4096:4096x4096")
    assert found.status == "PASSED" and found.max_error is None and "values not checked: 6.9e+10" in found.note


def test_a_wrong_kernel_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    right = values.matmul_on

    def wrong(*arguments: Any, **named: Any) -> Any:
        result = right(*arguments, **named)
        output = result.output.copy()
        output[0, 0] += 1
        return replace(result, output=output)

    monkeypatch.setattr(values, "matmul_on", wrong)
    for found in answers("--matmul", "--dt=f32,u8:s8:s32,u8:s8:u8", "4x8:8x8"):
        assert found.status == "FAILED" and found.max_error == 1 and "1 output beyond" in found.reason


def test_a_crash_is_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    def crash(*_: Any, **__: Any) -> Any:
        raise ZeroDivisionError("in the kernel")

    monkeypatch.setattr(values, "matmul_on", crash)
    [found] = answers("--matmul", "4x8:8x8")
    assert (found.status, found.reason) == ("FAILED", "ZeroDivisionError: in the kernel")


def test_the_reference_is_a_plain_convolution() -> None:
    [case] = cases("--conv", "--dir=FWD_D", "g2mb1ic4ih5iw6oc6kh3kw2sh2ph1dh1")
    wanted = task(case)
    rng = np.random.default_rng(0)
    src = rng.integers(-4, 5, (1, 4, 5, 6)).astype(np.float32)
    wei = rng.integers(-4, 5, (6, 2, 3, 2)).astype(np.float32)
    got, magnitude = values.reference(wanted, src, wei, None, wanted.attr(lambda *_: 1.0))
    s = wanted.sizes
    padded = np.pad(src, ((0, 0), (0, 0), s["padding"][::2], s["padding"][1::2]))
    for oc, y, x in np.ndindex(*got.shape[1:]):
        total = 0.0
        for ic, ky, kx in np.ndindex(2, 3, 2):
            row, column = y * s["strides"][0] + ky * s["dilation"][0], x * s["strides"][1] + kx * s["dilation"][1]
            total += padded[0, oc // 3 * 2 + ic, row, column] * wei[oc, ic, ky, kx]
        assert got[0, oc, y, x] == total and magnitude[0, oc, y, x] >= abs(total)


def test_data_are_the_same_on_every_machine_and_do_not_saturate() -> None:
    for found in answers("--matmul", "--machine=skx", "--isa=avx2,avx512_core", "--dt=u8:s8:s32", "16x256:256x16"):
        assert found.max_error == 0 and "vnni" not in found.implementation


# inner products


@pytest.mark.parametrize(
    ("words", "matmul"),
    [
        ("--ip mb5ic8ih3oc7", "--bia-dt=f32 5x72:72x7"),
        ("--ip --dir=FWD_I --mb=3 mb5ic64oc7", "3x64:64x7"),
        ("--ip --dir=FWD_I --wtag=abx mb5ic64ih1oc7", "--wtag=ba 5x64:64x7"),
        ("--ip --dir=FWD_I --stag=nhwc --wtag=hwio mb5ic8ih3oc7", "--wtag=ab 5x72:72x7"),
        (
            "--ip --dt=u8:s8:u8 --bia-dt=f32 --attr-scales=src:common:0.5+wei:0+dst:common:2 "
            "--attr-zero-points=src:common:3 --attr-post-ops=sum:2+relu mb5ic65oc7",
            "--dt=u8:s8:u8 --bia-dt=f32 --attr-scales=src:common:0.5+wei:common+dst:common:2 "
            "--attr-zero-points=src:common:3 --attr-post-ops=sum:2+relu 5x65:65x7",
        ),
        (
            "--ip --dt=s8:s8:f32 --machine=icx,skx,b580 --attr-scales=wei:per_oc --attr-post-ops=add:f32:per_oc "
            "mb5ic65oc7",
            "--dt=s8:s8:f32 --bia-dt=f32 --machine=icx,skx,b580 --attr-scales=wei:per_oc "
            "--attr-post-ops=add:f32:per_oc "
            "5x65:65x7",
        ),
    ],
)
def test_an_inner_product_is_the_matmul_of_its_channels(words: str, matmul: str) -> None:
    found, meant = answers(*words.split()), answers("--matmul", *matmul.split())
    assert [one.status for one in found] == ["PASSED"] * len(meant) and all(one.max_error == 0 for one in found)
    assert [replace(one, problem="") for one in found] == [replace(one, problem="") for one in meant]
    assert all(one.problem.startswith("--ip ") for one in found)


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        ("--dir=BWD_D", "no backward inner product"),
        ("--stag=bacd", "rows contiguous"),
        ("--wtag=iohw", "output channels in the middle"),
        ("--stag=nchw --wtag=ohwi", "in another order"),
        ("--stag=abc", "no plain layout of 4 dimensions"),
        ("--attr-scales=wei:per_dim_1", "with mask per_dim_1"),
        ("--attr-scales=wei:per_oc:f32:4x1", "groups of wei"),
        ("--dispatch=onednn --wtag=abx", "--dispatch=onednn of --ip in abx; what works: any"),
        ("--dispatch=onednn --dt=u8:u8:s32", "oneDNN has no inner product u8:u8:s32"),
        ("--dispatch=onednn --isa=avx512_core --dt=bf16 --stag=axb", "rows of one pixel"),
        ("--dispatch=onednn --dt=f32 --attr-scales=src:common:2", "scales of integers alone"),
        ("--dispatch=onnxruntime", "kernels for inner products are not modelled"),
    ],
)
def test_what_inner_products_do_not_do(words: str, reason: str) -> None:
    [found] = answers("--ip", *words.split(), "ic8ih3oc4")
    assert found.status == "UNIMPLEMENTED" and reason in found.reason


@pytest.mark.parametrize(
    "problem",
    [
        "--dt=f32,u8:s8:s8 --stag=any,axb --dtag=any,ab mb3ic8ih3oc4",
        "--dt=bf16 --stag=abx --wtag=ab --dir=FWD_B mb2ic20oc7",
    ],
)
def test_inner_products_in_a_librarys_order(problem: str) -> None:
    for found in answers("--ip", "--dispatch=onednn", "--mode=C", *problem.split()):
        assert found.status == "PASSED" and found.cycles


# kernels that are lossy by design


@one_in(3, "machine")
@pytest.mark.parametrize("shape", ["mb1ic16ih8oc16kh3ph1", "g16mb1ic16ih8oc16kh3ph1", "g2mb1ic6ih5oc10kh3ph1sh2"])
@pytest.mark.parametrize("options", ["--dt=s8:s8:s32,s8:s8:f32,s8:s8:u8", "--dt=s8:s8:s8 --attr-scales=wei:common:0.3"])
@pytest.mark.parametrize("machine", ["skx", "hsw"])
def test_halved_weights_pass_and_tell_their_loss(shape: str, options: str, machine: str) -> None:
    """Against one product after the other, with weights halved and doubled; VNNI loses nothing."""
    fast = "--attr-exact-int8=false"
    for found in answers("--conv", f"--machine={machine}", fast, *options.split(), shape):
        assert found.status == "PASSED" and found.loss and found.max_error is not None, found
        assert found.note == f"lossy: halved weights, max error {found.loss:.3g} against exact arithmetic"
    for found in answers("--conv", "--machine=clx", *options.split(), shape):
        assert found.status == "PASSED" and found.loss is None and not found.note


def test_a_loss_beyond_the_design_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    right = values.convolution

    def wrong(*arguments: Any, **named: Any) -> Any:
        result = right(*arguments, **named)
        output = result.output.copy()
        output[0, 0, 0, 0] += 1
        return replace(result, output=output)

    monkeypatch.setattr(values, "convolution", wrong)
    [found] = answers("--conv", "--machine=skx", "--dt=s8:s8:s32", "mb1ic16ih8oc16kh3ph1")
    assert found.status == "FAILED" and found.max_error == 1 and found.loss
