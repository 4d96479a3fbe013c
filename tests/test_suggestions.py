"""What an error suggests: the name that is meant, or none where nothing is like it."""

from __future__ import annotations

import inspect
import math
import re
from typing import Any

import numpy as np
import pytest

import isa_models
import simdnn
from isa_models import InvalidArgument, SimdnnError
from isa_models.errors import ALIASES, nearest
from isa_models.formats import FORMATS
from isa_models.isa import caps
from simdnn.benchdnn import attributes
from simdnn.cli import main
from simdnn.networks.precision import MODES
from tests.streams import error_line

F32 = np.ones((4, 8), np.float32), np.ones((8, 4), np.float32)


def meant(call: object) -> list[str]:
    """The names that an error asks after."""
    with pytest.raises(SimdnnError) as error:
        call()  # type: ignore[operator]
    found = re.search(r"did you mean (.*?)\?", str(error.value))
    return re.findall(r"'([^']*)'", found[1]) if found else []


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


def test_what_others_call_it_is_known_here() -> None:
    """Each alias leads to a name of some list, and none hides a name of its own list."""
    known = {*FORMATS, *caps(), *MODES, *attributes.TYPES, *attributes._POST_OPS}
    for word, names in ALIASES.items():
        assert set(names) & known, word
        assert nearest(word, names)[0] == names[0]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["rum", "digits"], "did you mean 'run'? choose from"),
        (["bnech"], "did you mean 'bench'?"),
        (["run", "digits", "--dispatch", "onednnn"], "did you mean 'onednn'?"),
        (["run", "digits", "--machnie", "zen4"], "did you mean --machine?"),
        (["run", "digits", "--modes", "tf32"], "did you mean 'fpmath-tf32'?"),
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


@pytest.mark.parametrize("field", [name for name in simdnn.Attr.__dataclass_fields__])
def test_fields_of_an_attribute_given_to_a_primitive(field: str) -> None:
    """The likeliest mistake of all, on each primitive."""
    image, kernel = np.ones((1, 2, 3, 3), np.float32), np.ones((2, 2, 1, 1), np.float32)
    calls: list[tuple[Any, tuple[Any, ...], dict[str, Any]]] = [
        (simdnn.matmul, F32, {}),
        (simdnn.convolution, (image, kernel), {}),
        (simdnn.estimate, ("matmul",), {"m": 4, "n": 4, "k": 4}),
    ]
    for call, operands, sizes in calls:
        with pytest.raises(InvalidArgument, match=rf"write attr=simdnn.Attr\({field}=…\)"):
            call(*operands, machine="zen4", **sizes, **{field: "bf16"})


def test_a_call_without_a_machine_names_one() -> None:
    """Every function that needs one."""
    asked = [
        function
        for name in dir(simdnn)
        if callable(function := getattr(simdnn, name)) and not isinstance(function, type)
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
    with pytest.raises(SimdnnError, match="unknown machine 'a100'(?!.*ARM)"):
        isa_models.machine("a100")


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
        (lambda: simdnn.matmul(*F32, machine="epyc"), ["zen5", "zen4"]),
        (lambda: simdnn.matmul(*F32, machine="zen4", dst="f64"), ["f32"]),
        (lambda: simdnn.matmul(*F32, machine="zen4", wei_tag="col"), ["ba"]),
        (lambda: simdnn.matmul(*F32, machine="zen4", dispatch="mkldnn"), ["onednn"]),
        (lambda: simdnn.estimate("gemm", m=4, n=4, k=4, machine="zen4"), ["matmul"]),
    ],
)
def test_other_words_and_capitals(call: object, names: list[str]) -> None:
    assert meant(call) == names
