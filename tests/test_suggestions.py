"""The suggestion of an error: the name that is meant, or none where nothing is like it."""

from __future__ import annotations

import inspect
import math
import re
from typing import Any

import numpy as np
import pytest

import isa_models
import simdnn
from isa_models import InvalidArgument, SimdnnError, UnknownName, gpu_machine_names, machine_names
from isa_models.aliases import ALIASES, FIELDS
from isa_models.errors import nearest
from isa_models.formats import FORMATS
from isa_models.isa import caps
from simdnn.benchdnn import attributes
from simdnn.cli import main
from simdnn.libraries import LIBRARIES
from simdnn.networks.precision import MODES, choose
from simdnn.primitives.accumulation import ACC_MODES
from simdnn.primitives.attr import ARGUMENTS, MASK_NAMES, POST_OPS
from simdnn.primitives.checks import ATTR_FIELDS
from simdnn.primitives.descriptors import PLAIN
from simdnn.primitives.mathmode import FPMATH_MODES
from tests.streams import error_line

PRIMITIVES = ("matmul", "convolution", "inner_product", "pooling", "layer_normalization", "eltwise")
PRIMITIVES = (*PRIMITIVES, "binary", "deconvolution")
FUNCTIONS = [one for name in dir(simdnn) if callable(one := getattr(simdnn, name)) and not isinstance(one, type)]
PARAMETERS = {name for one in FUNCTIONS for name in inspect.signature(one).parameters}
PARAMETERS |= {"mb", "ic", "ih", "iw", "src_batch", "shape"}  # of `estimate`, `MemoryDesc`
BLOCKS = ("q4_0", "q5_0", "q8_0")
F32 = np.ones((4, 8), np.float32), np.ones((8, 4), np.float32)


def meant(call: object) -> list[str]:
    """The names that an error asks after, or that it calls the nearest."""
    with pytest.raises(SimdnnError) as error:
        call()  # type: ignore[operator]
    found = re.search(r"did you mean (.*?)\?|the nearest (?:is|are) (.*?)\.(?: |$)", str(error.value))
    return re.findall(r"'([^']*)'", found[1] or found[2]) if found else []


@pytest.mark.parametrize(
    ("where", "word", "said"),
    [
        ("machine", "genoa", "did you mean 'zen4'?"),
        ("machine", "zen2", "it is not here; the nearest is 'zen3'."),
        ("machine", "EPYC 7763", "it is not here; the nearest is 'zen3'."),
        ("machine", "Ryzen 9 5950X", "it is not here; the nearest is 'zen3'."),
        ("machine", "t4", "it is not here; the nearest is 'v100'."),
        ("machine", "Core i5-8250U", "it is not here; the nearest is 'hsw'."),
        ("machine", "Core i7-1065G7", "it is not here; the nearest is 'icx'."),
        ("machine", "i9-11900K", "it is not here; the nearest is 'icx'."),
        ("machine", "i7-10875H", "it is not here; the nearest is 'hsw'."),
        ("machine", "jetson orin", "it is not here; the nearest is 'a100'."),
        ("machine", "i9-14900k", "it is not here; the nearest is 'adl-p'."),
        ("machine", "Arc A750", "it is not here; the nearest is 'a770'."),
        ("machine", "Arc A770", "did you mean 'a770'?"),
        ("machine", "GeForce RTX 4090", "did you mean 'rtx4090'?"),
        ("machine", "Zen 4", "did you mean 'zen4'?"),
        ("isa", "avx10.2", "it is not here; the nearest is 'avx512_core_fp16'."),
        ("isa", "avx512f", "did you mean 'avx512_core'?"),
    ],
)
def test_other_hardware_is_the_nearest_and_not_meant(where: str, word: str, said: str) -> None:
    with pytest.raises(SimdnnError) as error:
        FOREIGN[where](word)
    assert said in str(error.value)


@pytest.mark.parametrize(("name", "cap"), [("skylake", "avx2"), ("tremont", "sse41"), ("n100", "avx2_vnni")])
def test_what_a_core_lacks_beside_the_nearest_is_told(name: str, cap: str) -> None:
    with pytest.raises(UnknownName) as error:
        isa_models.machine(name)
    assert f"(isa={cap!r}, --isa {cap}, leaves out what {name} does not have)" in str(error.value)
    assert cap in {"sse41", *isa_models.machine("adl-p").isa}


@pytest.mark.parametrize(("name", "here"), [("ZEN4", "zen4"), ("H100", "h100"), ("Max1550_Stack", "max1550_stack")])
def test_capitals_do_not_matter_in_a_machines_name(name: str, here: str) -> None:
    assert isa_models.machine(name) is isa_models.machine(here)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("_mm512_mask_dpbusd_epi32", "an intrinsic; named alike are vpdpbusd, vpdpbusds"),
        ("_mm256_maddubs_epi16", "an intrinsic; named alike are vpmaddubsw"),
        ("_mm_cvtneps_pbh", "an intrinsic; named alike are vcvtneps2bf16"),
        ("_tile_dpbssd", "an intrinsic; named alike are tdpbssd"),
        ("_mm512_nonsense_ps", "unknown instruction '_mm512_nonsense_ps'. "),
    ],
)
def test_intrinsics_lead_to_instructions(name: str, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SimdnnError) as error:
        isa_models.instruction(name)
    assert said in str(error.value)
    assert main(["explain", name]) == 2
    assert said.replace("instruction ", "instruction or primitive ") in capsys.readouterr().err


@pytest.mark.parametrize(
    ("attr", "said"), [("bf16", "simdnn.Attr(fpmath='bf16')"), ({"fpmath": "bf16"}, "simdnn.Attr(**attr)")]
)
def test_what_is_no_attribute_is_told_how_it_becomes_one(attr: Any, said: str) -> None:
    with pytest.raises(InvalidArgument) as error:
        simdnn.matmul(*F32, machine="zen4", attr=attr)
    assert str(error.value).endswith(f"a simdnn.Attr is needed: {said}")


@pytest.mark.parametrize(
    ("isa", "names"),
    [
        ("avx512", ["avx512_core"]),
        ("AVX512F", ["avx512_core"]),
        ("amx", ["avx512_core_amx"]),
        ("neon", []),
        ("avx512_core_vni", ["avx512_core_vnni"]),
        ("avx512_vnni", ["avx512_core_vnni"]),
    ],
)
def test_isa_caps(isa: str, names: list[str]) -> None:
    assert meant(lambda: simdnn.matmul(*F32, machine="spr", isa=isa)) == names


@pytest.mark.parametrize(
    ("dtype", "names"),
    [
        ("fp8", ["f8_e4m3", "f8_e5m2"]),
        ("int8", ["s8", "u8"]),
        ("uint8", ["u8"]),
        ("float32", ["f32"]),
        ("fp16", ["f16"]),
        ("bfloat16", ["bf16"]),
        ("F32", ["f32"]),
        ("complex", []),
    ],
)
def test_types(dtype: str, names: list[str]) -> None:
    assert meant(lambda: simdnn.estimate("matmul", m=4, n=4, k=4, dt=dtype, machine="zen4")) == names
    assert meant(lambda: attributes.data_type("--dt", dtype)) == names


@pytest.mark.parametrize(
    ("name", "names"),
    [("gelu", ["gelu_erf", "gelu_tanh"]), ("silu", ["swish"]), ("rely", ["relu"]), ("sigmoid", ["logistic"])],
)
def test_post_operations(name: str, names: list[str]) -> None:
    assert meant(lambda: attributes.post_ops(name)) == names
    assert meant(lambda: simdnn.Attr(post_ops=[name])) == names


@pytest.mark.parametrize(
    ("machine", "names"), [("m1", []), ("zen44", ["zen4"]), ("skylake", ["skx"]), ("V10", ["v100"]), ("tpu", [])]
)
def test_machines(machine: str, names: list[str]) -> None:
    assert meant(lambda: isa_models.machine(machine)) == names


def test_several_machines_are_no_name() -> None:
    for call in (isa_models.machine, lambda machine: simdnn.analyze("nop", machine)):
        with pytest.raises(InvalidArgument, match=r"machine=\['zen4', 'icx'\]; a name such as 'zen4'"):
            call(["zen4", "icx"])  # type: ignore[operator]


def test_what_others_call_it_is_known_here() -> None:
    """Each alias leads to names of this package alone, and is none of them itself in the list that it leads to."""
    lists = [FORMATS, caps(), MODES, attributes._POST_OPS, POST_OPS, LIBRARIES, PRIMITIVES, ARGUMENTS, MASK_NAMES]
    lists += [
        PARAMETERS,
        BLOCKS,
        machine_names(),
        gpu_machine_names(),
        FPMATH_MODES,
        ACC_MODES,
        *PLAIN.values(),
        ATTR_FIELDS,
        dir(simdnn),
    ]
    known = {"fastest", "any", "compiled", "reference"}.union(*lists)
    for word, names in ALIASES.items():
        assert names and set(names) <= known and word not in names, word
        assert nearest(word, names)[0] == names[0]


def test_other_names_of_fields_lead_to_those_of_results() -> None:
    made = simdnn.matmul(*F32, machine="zen4"), simdnn.analyze("nop", "zen4")
    for word, names in FIELDS.items():
        assert set(names) <= {*dir(made[0]), *dir(made[1])} and not all(hasattr(one, word) for one in made), word
    with pytest.raises(AttributeError, match=r"'cycles': did you mean 'cycles_per_iteration'\?"):
        made[1].cycles  # type: ignore[attr-defined]  # noqa: B018


@pytest.mark.parametrize(
    ("name", "meant"),
    [("time", "'seconds'"), ("latency", "'cycles' or 'seconds'"), ("flops", "'gops'"), ("bottleneck", "'bound'")],
)
def test_other_names_of_a_results_fields(name: str, meant: str) -> None:
    for made in (simdnn.estimate("matmul", m=4, n=4, k=4, machine="zen4"), simdnn.matmul(*F32, machine="zen4")):
        with pytest.raises(AttributeError, match=f"no attribute '{name}': did you mean {meant}\\?"):
            getattr(made, name)


def product(**given: Any) -> None:
    simdnn.estimate("matmul", **({"m": 4, "n": 4, "k": 32, "machine": "zen4"} | given))


#: where people write a word
FOREIGN: dict[str, Any] = {
    "dt": lambda word: product(dt=word),
    "isa": lambda word: product(isa=word, machine="spr"),
    "machine": lambda word: product(machine=word),
    "primitive": lambda word: simdnn.estimate(word, machine="zen4", m=4, n=4, k=4),
    "post_ops": lambda word: simdnn.Attr(post_ops=[word]),
    "wei_tag": lambda word: simdnn.matmul(*F32, machine="zen4", wei_tag=word),
    "tag": lambda word: simdnn.MemoryDesc((4, 8, 2, 2), "f32", word),
    "dispatch": lambda word: product(dispatch=word),
    "fpmath": lambda word: simdnn.Attr(fpmath=word),
    "acc_mode": lambda word: simdnn.Attr(acc_mode=word),
    "engine": lambda word: simdnn.matmul(*F32, machine="zen4", engine=word),
    "scales": lambda word: simdnn.Attr(scales={word: 1.0}),
    "mask": lambda word: simdnn.Quant(1.0, mask=word),
}


@pytest.mark.parametrize(
    ("where", "asked"),
    [
        (
            "dt",
            "int4:s4,u4 uint4:u4 e4m3:f8_e4m3 fp8_e5m2:f8_e5m2 float8_e4m3fn:f8_e4m3 nvfp4:f4_e2m1 half:f16",
        ),
        (
            "dt",
            "mxfp8:f8_e4m3,f8_e5m2 float:f32 byte:u8 fp6:f6_e2m3,f6_e3m2 nf4:f4_e2m1,u4 qint8:s8 int16:s16",
        ),
        ("isa", "avx10:avx512_core_fp16 avx10.2:avx512_core_fp16 sse4.2:sse41 avx:avx2 avx512vl:avx512_core"),
        ("isa", "amx-fp16:avx512_core_amx_fp16 x86-64-v4:avx512_core avxvnni:avx2_vnni skylake-avx512:avx512_core"),
        (
            "machine",
            "h800:h100,h200 a30:a100 rtx3080:rtx4090 t4:v100 p100:titan_xp icelake:icx sapphire-rapids:spr i9:adl-p",
        ),
        ("machine", "genoa:zen4 turin:zen5 zen2:zen3 milan:zen3 lunarlake:lnl pvc:max1550,max1100 broadwell:hsw"),
        ("primitive", "mm:matmul mha:attention,matmul fc:inner_product conv2d:convolution avgpool:pooling"),
        ("primitive", "relu:eltwise layernorm:layer_normalization depthwise:convolution conv_transpose:deconvolution"),
        (
            "post_ops",
            "hswish:hardswish relu6:clip residual:sum,add eltwise_relu:relu binary_add:add bias:add",
        ),
        ("wei_tag", "NT:ba transposed:ba nchw:ab row-major:ab blocked:any T:ba"),
        ("tag", "NCHW:nchw channels_last:nhwc,any HWC:nhwc,any"),
        ("dispatch", "openvino:onednn llama.cpp:ggml mlas:onnxruntime auto:fastest gemm:avx512:gemm:avx512_core"),
        ("fpmath", "highest:strict fast:any float32:strict tensorfloat32:tf32 half:f16"),
        ("engine", "llvm:compiled numpy:reference c:compiled"),
        ("scales", "weights:wei input:src x:src output:dst"),
        ("mask", "per_tensor:common per_channel:per_oc"),
    ],
)
def test_words_of_other_packages(where: str, asked: str) -> None:
    call = FOREIGN[where]
    for word, names in (re.fullmatch(r"(gemm:avx512|[^:]*):(.*)", pair).groups() for pair in asked.split()):  # type: ignore[union-attr]
        assert ",".join(meant(lambda word=word: call(word))) == names, (where, word)  # type: ignore[misc]


@pytest.mark.parametrize(
    ("function", "word", "names"),
    [
        (simdnn.convolution, "ph", ["padding"]),
        (simdnn.convolution, "g", ["groups"]),
        (simdnn.estimate, "batch", ["mb"]),
        (simdnn.estimate, "sw", ["strides"]),
        (simdnn.matmul, "device", ["machine"]),
        (simdnn.matmul, "cores", ["threads"]),
        (simdnn.matmul, "out_dtype", ["dst"]),
        (simdnn.matmul, "activation", ["attr"]),
        (simdnn.estimate, "weights", ["dt"]),
        (simdnn.softmax, "dim", ["axis"]),
    ],
)
def test_arguments_of_other_packages(function: Any, word: str, names: list[str]) -> None:
    needed = {"primitive": "convolution", "machine": "zen4"} if function is simdnn.estimate else {"machine": "zen4"}
    assert meant(lambda: function(**needed, **{word: 1})) == names


def test_the_primitive_is_looked_at_before_the_machine() -> None:
    assert meant(lambda: simdnn.estimate("matmull")) == ["matmul"]  # type: ignore[call-overload]


@pytest.mark.parametrize(
    ("word", "names"),
    [
        ("f4", ["f4_e2m1"]),
        ("q4", ["q4_0"]),
        ("q4_k_m", ["q4_1", "q4_0"]),
        ("int9", ["int8-fast", "int8-vnni", "int8-exact"]),
    ],
)
def test_names_of_one_stem(word: str, names: list[str]) -> None:
    calls: dict[str, Any] = {
        "f": lambda: simdnn.quantize_mx(np.ones((1, 32), np.float32), word),
        "q": lambda: simdnn.quantize_ggml(np.ones((1, 32), np.float32), word),
        "i": lambda: choose(isa_models.machine("zen4"), [word]),
    }
    assert meant(calls[word[0]]) == names


@pytest.mark.parametrize(
    ("where", "word", "said"),
    [
        ("dt", "s8s8s32", "e.g. 's8:s8:s32'"),
        ("dt", "bf16,bf16", "e.g. 'bf16:bf16:f32'"),
        ("dt", "u8:s8", "e.g. 'u8:s8:s32'"),
        ("post_ops", "softmax", "simdnn.softmax"),
        ("post_ops", "LayerNorm", "simdnn.layer_normalization"),
        ("post_ops", "quantize", "scales={'dst'"),
        ("machine", "mi300x", "there is no GPU of AMD's here"),
        ("machine", "tpu", "there is no accelerator beside GPUs here"),
        ("dispatch", "mkl", "oneMKL"),
    ],
)
def test_what_is_something_else_here(where: str, word: str, said: str) -> None:
    call = FOREIGN[where]
    with pytest.raises(SimdnnError) as error:
        call(word)
    assert said in str(error.value)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["rum", "digits"], "did you mean 'run'? choose from"),
        (["bnech"], "did you mean 'bench'?"),
        (["run", "digits", "--dispatch", "onednnn"], "did you mean 'onednn'?"),
        (["run", "digits", "--machnie", "zen4"], "did you mean --machine?"),
        (["run", "digits", "--csv", "out.csv"], "did you mean -o FILE.csv?"),
        (["run", "digits", "--modes", "tf32"], "did you mean 'fpmath-tf32'?"),
        (["run", "digits", "--batch", "8"], "did you mean --shape?"),
        (["run", "digits", "--precision", "int8"], "did you mean --modes?"),
        (["run", "model.xml"], "OpenVINO's own; the ONNX file that it was made of is needed"),
        (["study", "absent.toml"], "absent.toml"),
    ],
)
def test_the_command_line(words: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    try:
        status = main(words)
    except SystemExit as end:
        status = int(str(end.code))
    assert status in (1, 2)
    line = error_line(capsys)
    assert said in line and "none" not in line


@pytest.mark.parametrize(
    ("said", "field"),
    [
        *((name, name) for name in simdnn.Attr.__dataclass_fields__),
        *(("fpmath_mode", "fpmath"), ("src_scale", "scales"), ("accumulation_mode", "acc_mode")),
    ],
)
def test_fields_of_an_attribute_given_to_a_primitive(said: str, field: str) -> None:
    """The likeliest mistake of all, on each primitive, by oneDNN's names as well."""
    image, kernel = np.ones((1, 2, 3, 3), np.float32), np.ones((2, 2, 1, 1), np.float32)
    calls: list[tuple[Any, tuple[Any, ...], dict[str, Any]]] = [
        (simdnn.matmul, F32, {}),
        (simdnn.convolution, (image, kernel), {}),
        (simdnn.estimate, ("matmul",), {"m": 4, "n": 4, "k": 4}),
    ]
    for call, operands, sizes in calls:
        with pytest.raises(InvalidArgument, match=rf"write attr=simdnn.Attr\({field}=…\)"):
            call(*operands, machine="zen4", **sizes, **{said: "bf16"})


def test_a_call_without_a_machine_names_one() -> None:
    """Every function that needs one."""
    asked = [
        function
        for function in FUNCTIONS
        if (machine := inspect.signature(function).parameters.get("machine")) and machine.default is machine.empty
    ]
    assert {"matmul", "convolution", "estimate", "reorder", "ranges", "tune"} <= {f.__name__ for f in asked}
    for function in asked:
        with pytest.raises(InvalidArgument, match=rf"{function.__name__} needs a machine, e.g. machine='zen4'"):
            function()


@pytest.mark.parametrize("machine", ["m1", "M2 Pro", "apple-m3", "graviton3", "neoverse-v2", "aarch64"])
def test_no_arm_machine_is_here(machine: str) -> None:
    with pytest.raises(SimdnnError, match="there is no ARM machine here. Known: "):
        isa_models.machine(machine)
    with pytest.raises(SimdnnError, match="unknown machine 'a30'(?!.*ARM)"):
        isa_models.machine("a30")


@pytest.mark.parametrize("word", ["same", "SAME", "valid", "same_upper", "same_lower"])
def test_paddings_of_other_packages(word: str) -> None:
    """The advice taken gives that padding: the size of the output says so."""
    image, kernel = np.ones((1, 1, 7, 7), np.float32), np.ones((1, 1, 3, 3), np.float32)
    wrong: Any = word
    with pytest.raises(InvalidArgument, match="integers are needed") as error:
        simdnn.convolution(image, kernel, machine="zen4", padding=wrong, dilation=2)
    with pytest.raises(InvalidArgument, match="integers are needed"):
        simdnn.estimate("convolution", ic=1, ih=7, iw=7, oc=1, kh=3, kw=3, machine="zen4", padding=wrong)
    advice = re.search(r"padding=([^=]*)$", str(error.value))
    assert advice
    found = simdnn.convolution(
        image, kernel, machine="zen4", padding=eval(advice[1], {"dilation": 2, "k": 3}), dilation=2
    )
    assert found.output.shape[2:] == ((3, 3) if word == "valid" else (7, 7))
    if word != "valid":
        said = re.search(r"with (max.*) in all", str(error.value))
        assert said
        whole = eval(said[1], {"ceil": math.ceil, "max": max, "i": 7, "stride": 2, "dilation": 1, "k": 4})
        split = (whole // 2, whole // 2, whole - whole // 2, whole - whole // 2)
        wide = np.ones((1, 1, 4, 4), np.float32)
        assert simdnn.convolution(image, wide, machine="zen4", padding=split, strides=2).output.shape[2:] == (4, 4)


def test_other_keywords() -> None:
    wrong: dict[str, Any] = {"machin": "zen4"}
    assert meant(lambda: simdnn.matmul(*F32, **wrong)) == ["machine"]


@pytest.mark.parametrize(
    ("call", "names"),
    [
        (lambda: simdnn.Attr(fpmath="BF16"), ["bf16"]),
        (lambda: simdnn.Attr(acc_mode="F16"), ["f16"]),
        (lambda: simdnn.Attr(post_ops=["leaky_relu"]), ["relu"]),
        (lambda: simdnn.matmul(*F32, machine="spr", isa="AVX-512"), ["avx512_core"]),
        (lambda: simdnn.matmul(*F32, machine="spr", isa="avx10"), ["avx512_core_fp16"]),
        (lambda: simdnn.matmul(*F32, machine="epyc"), ["zen5", "zen4", "zen3"]),
        (lambda: simdnn.matmul(*F32, machine="zen4", dst="f64"), ["f32"]),
        (lambda: simdnn.matmul(*F32, machine="zen4", wei_tag="col"), ["ba"]),
        (lambda: simdnn.matmul(*F32, machine="zen4", dispatch="mkldnn"), ["onednn"]),
        (lambda: simdnn.estimate("gemm", m=4, n=4, k=4, machine="zen4"), ["matmul"]),
        (lambda: simdnn.matmul(*F32, machine="zen4", dst=np.float16), ["f16"]),
        (lambda: simdnn.matmul(*F32, machine="zen4", dst="torch.bfloat16"), ["bf16"]),
    ],
)
def test_other_words_and_capitals(call: object, names: list[str]) -> None:
    assert meant(call) == names
