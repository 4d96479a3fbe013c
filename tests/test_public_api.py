"""The names that scripts depend on, their signatures, and what importing them brings along."""

from __future__ import annotations

import inspect
import subprocess
import sys
from pathlib import Path

import pytest

import isa_models
import simdnn

SIGNATURES = {
    simdnn.matmul: "src weights bias machine isa dst attr threads engine dispatch wei_tag into",
    simdnn.convolution: "src weights bias strides padding dilation groups machine isa dst attr threads engine dispatch "
    "src_tag wei_tag dst_tag into",
    simdnn.run_model: "model feeds modes calibrate labels metric machine isa values layers progress fpmath_layers "
    "ranges threads dispatch",
    simdnn.reorder: "array desc machine isa engine",
    simdnn.MemoryDesc: "shape dtype tag blocked",
    simdnn.estimate: "primitive dt bias machine isa attr threads dispatch shape",
    simdnn.Attr: "fpmath apply_to_int scales zero_points precomputed_reductions exact_int8 post_ops "
    "float_model check zero_point_strategy acc_mode",
    simdnn.Quant: "values mask groups dtype mode",
    simdnn.quantize_mx: "array dtype group rule axis machine isa",
    simdnn.quantize_ggml: "array dtype axis",
    simdnn.ggml_blocks: "stored dtype",
    simdnn.quantize_nvfp4: "array tensor_scale axis machine isa",
}


@pytest.mark.parametrize("function", SIGNATURES, ids=lambda f: f.__name__)
def test_signature(function: object) -> None:
    parameters = inspect.signature(function).parameters  # type: ignore[arg-type]
    assert " ".join(parameters) == SIGNATURES[function]  # type: ignore[index]


def test_keywords() -> None:
    parameters = inspect.signature(simdnn.matmul).parameters
    assert parameters["machine"].default is inspect.Parameter.empty
    keyword_only = [name for name, p in parameters.items() if p.kind is p.KEYWORD_ONLY]
    assert keyword_only == "machine isa dst attr threads engine dispatch wei_tag into".split()
    defaults = {name: p.default for name, p in parameters.items() if p.default is not inspect.Parameter.empty}
    assert defaults == {
        "bias": None,
        "isa": None,
        "dst": None,
        "attr": None,
        "threads": 1,
        "engine": "auto",
        "dispatch": "fastest",
        "wei_tag": "any",
        "into": None,
    }


def test_names() -> None:
    for name in simdnn.__all__:
        assert hasattr(simdnn, name), name
    for error in "InvalidArgument Unimplemented UnknownTiming UnknownName MachineFileError ProgramError".split():
        assert issubclass(getattr(simdnn, error), simdnn.SimdnnError)
        assert getattr(simdnn, error) is getattr(isa_models, error)
    assert simdnn.machine is isa_models.machine and simdnn.instruction is isa_models.instruction
    assert simdnn.__version__


def test_names_are_there_before_they_are_imported() -> None:
    """Also in a listing, which holds nothing else, whatever was imported."""
    assert simdnn.plot and sorted(simdnn.__all__) == simdnn.__all__
    assert dir(simdnn) == sorted([*simdnn.__all__, "__version__"])
    names: dict[str, object] = {}
    exec("from simdnn import *", names)
    assert names.keys() - {"__builtins__"} == set(simdnn.__all__)
    with pytest.raises(AttributeError, match="no attribute 'matmull'"):
        simdnn.matmull  # type: ignore[attr-defined]  # noqa: B018
    modules = {path.stem for path in Path(simdnn.__file__).parent.iterdir()}
    assert not modules & set(simdnn.__all__)  # whoever imports such a module would put it in the name's place


SHOWN = "from simdnn.cli import main; main(['analyze', '-'])"


@pytest.mark.parametrize(
    ("code", "heavy"),
    [
        ("import simdnn", "numpy pandas matplotlib llvmlite iced_x86"),
        ("import simdnn; simdnn.matmul", "pandas matplotlib llvmlite"),
        (
            "from simdnn import estimate; estimate('matmul', m=1, n=1, k=1, machine='zen4')",
            "matplotlib simdnn.networks simdnn.explanations simdnn.kernels.intel_gpu simdnn.kernels.nvidia",
        ),
        ("from simdnn.cli import main; main(['bench', '--matmul', '--mode=P', '8x8:8x8'])", "pandas matplotlib"),
        ("import simdnn.cli; simdnn.cli._parser('').format_help()", "numpy pandas"),
        (SHOWN, "pandas matplotlib simdnn.kernels simdnn.numerics"),  # llvmlite runs the core model
    ],
)
def test_heavy_packages_are_left_out(code: str, heavy: str) -> None:
    """Of what is asked for, no more is imported than it needs."""
    code = f"import sys; {code}; print([m for m in {heavy.split()!r} if m in sys.modules])"
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, input="4883c001", capture_output=True, text=True, timeout=300)
    assert (done.returncode, done.stdout.splitlines()[-1:]) == (0, ["[]"]), done.stderr


def test_modules_keep_their_names() -> None:
    """Functions of the package must not hide its modules (`simdnn.program.check` proves programs)."""
    from simdnn.program import check as verify

    assert inspect.ismodule(verify)
