"""Products are composed: one nest of parts for each kind of machine, and no product that is another one."""

import importlib
import inspect
import pkgutil
from typing import Any

import pytest

import simdnn.kernels
from isa_models.machines.loader import gpu_machine
from simdnn.kernels.common.batch import Batch
from simdnn.kernels.common.epilogue import Decompression, Epilogue, ZeroPoints
from simdnn.kernels.common.params import Param
from simdnn.kernels.common.problems import MatmulProblem
from simdnn.kernels.gpu.operands import ByGroup
from simdnn.kernels.gpu.problem import GpuMatmulProblem
from simdnn.kernels.intel_gpu.compute import GpuComputeGemm
from simdnn.kernels.intel_gpu.gemm import GpuGemm
from simdnn.kernels.intel_gpu.upconvert import GpuUpconvertGemm
from simdnn.kernels.intel_gpu.zero import GpuZeroGemm
from simdnn.kernels.nvidia.compute import SmComputeGemm
from simdnn.kernels.nvidia.gemm import SmGemm
from tests.params import along_k


def classes() -> list[type]:
    """Every class of the kernels."""
    modules = pkgutil.walk_packages(simdnn.kernels.__path__, "simdnn.kernels.")
    found = (cls for m in modules for _, cls in inspect.getmembers(importlib.import_module(m.name), inspect.isclass))
    return sorted({c for c in found if c.__module__.startswith("simdnn.kernels.")}, key=lambda c: c.__qualname__)


def generators() -> list[type]:
    """Every class of the kernels that makes a program and a kernel."""
    return [cls for cls in classes() if hasattr(cls, "program") and hasattr(cls, "kernel")]


def test_operands_have_tables_only_where_something_changes_along_k() -> None:
    """A plain operand answers nothing for tables that it does not have."""
    asked = [cls for cls in classes() if hasattr(cls, "tables")]
    assert len(asked) >= 6 and all(issubclass(cls, ByGroup) for cls in asked)
    for generator, name, grouped in ((GpuGemm, "b580", False), (SmGemm, "v100", False), (SmComputeGemm, "v100", True)):
        more: dict[str, Any] = {"compute": "f16", "decompression": SCALE} if grouped else {}
        problem = GpuMatmulProblem(8, 32, 64, "f16", "s8" if grouped else "f16", Epilogue("f32"), **more)
        product = generator(problem, gpu_machine(name))
        assert isinstance(product.weights, ByGroup) == grouped and not isinstance(product.source, ByGroup)


def test_no_generator_is_another_one() -> None:
    found = generators()
    assert {"Gemm", "Fused", "BlockGemm", "WarpGemm"} <= {cls.__name__ for cls in found}
    heirs = [cls.__name__ for cls in found if any(issubclass(cls, other) for other in found if other is not cls)]
    assert heirs == []


POINTS = ZeroPoints(32, along_k("wei", 32, "u4"), strategy="direct")
BOTH = ZeroPoints(32, along_k("wei", 32, "s8"), along_k("src", 32, "u8"))
SCALE = Decompression(("f16",), Param("wei", 32, 1, "f32"), Param("wei", 0, 1, "s8"))


@pytest.mark.parametrize(
    "generator,name,src,wei,more,stored,multiplied",
    [
        (GpuGemm, "a770", "s8", "s8", {}, "s8", "s8"),
        (GpuZeroGemm, "b580", "u8", "u4", {"zero_points": POINTS}, "u4", "s8"),
        (GpuUpconvertGemm, "a770", "u8", "s8", {"zero_points": BOTH}, "s8", "f16"),
        (GpuComputeGemm, "a770", "f32", "u4", {"compute": "f16", "decompression": SCALE}, "u4", "f16"),
        (GpuComputeGemm, "a770", "f32", "f32", {"compute": "bf16", "wei_tag": "ab"}, "f32", "bf16"),
        (SmGemm, "v100", "f16", "f16", {}, "f16", "f16"),
        (SmComputeGemm, "v100", "f32", "s8", {"compute": "f16", "decompression": SCALE}, "s8", "f16"),
    ],
)
def test_weights_name_what_they_are_stored_as_and_multiplied_as(
    generator: Any, name: str, src: str, wei: str, more: dict[str, Any], stored: str, multiplied: str
) -> None:
    problem = GpuMatmulProblem(8, 32, 64, src, wei, Epilogue("f32"), batch=Batch(), **more)
    product = generator(problem, gpu_machine(name))
    assert (product.weights.stored, product.weights.multiplied) == (stored, multiplied)
    assert product.problem is problem
    assert product.kernel().program.tensor["dst"].kind == "output"


@pytest.mark.parametrize("src,wei,stored,multiplied", [("f32", "f32", "f32", "bf16"), ("f32", "u4", "u4", "bf16")])
def test_panels_of_x86_too(src: str, wei: str, stored: str, multiplied: str) -> None:
    from simdnn.kernels.common.sums import Options
    from simdnn.kernels.x86.code import unit_of
    from simdnn.kernels.x86.dots import BF16
    from simdnn.kernels.x86.gemm import compressed_gemm, gemm

    d = None if wei == "f32" else Decompression(("bf16",), Param("wei", 32, 1, "f32"))
    problem = MatmulProblem(8, 32, 64, src, wei, Epilogue("f32"), "ab", d)
    product = compressed_gemm("a", problem, unit_of("avx512_core_bf16"), BF16, Options())
    assert (product.weights.stored, product.weights.multiplied) == (stored, multiplied)
    packed = gemm("b", problem, unit_of("avx512_core_bf16"), BF16, Options())
    assert type(packed) is type(product) and type(packed.weights) is not type(product.weights)
