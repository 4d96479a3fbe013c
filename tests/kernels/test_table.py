"""The one table of kernels: what dispatch tells and takes is the same on every target."""

from __future__ import annotations

import json
from dataclasses import is_dataclass, replace
from functools import partial
from types import FunctionType, MethodType
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import simdnn
from isa_models import InvalidArgument, Unimplemented, formats, gpu_machine_names
from simdnn import Attr
from simdnn.cli import main
from simdnn.kernels import KERNELS
from simdnn.kernels.common.epilogue import Epilogue, GroupScales
from simdnn.kernels.common.problems import ConvProblem, MatmulProblem
from simdnn.kernels.table import rows_for
from tests.effort import examples
from tests.params import along_k

MACHINES = ("skx", "b580", "a770", "dg1", "max1550", "v100")
GPUS = MACHINES[1:]
#: problem -> data type, attribute
PROBLEMS: dict[str, tuple[str, Attr]] = {
    "f32": ("f32", Attr(fpmath="any")),
    "f16": ("f16", Attr()),
    "stored": ("f16:s8:f32", Attr(fpmath="any", apply_to_int=True, scales={"wei": 0.5})),
    "integers": ("s8:s8:s32", Attr()),
    "zero points": ("s8:s8:f32", Attr(zero_points={"wei": 3, "src": 1})),
}


def asked(name: str, machine: str, **more: Any) -> simdnn.Estimate:
    dt, attr = PROBLEMS[name]
    return simdnn.estimate("matmul", m=8, n=20, k=32, dt=dt, attr=attr, machine=machine, **more)


def cases() -> list[tuple[str, str]]:
    lacks = {("integers", "v100"), ("zero points", "v100"), ("f32", "skx"), ("stored", "skx")}  # no such; slow to time
    return [(name, machine) for name in PROBLEMS for machine in MACHINES if (name, machine) not in lacks]


@pytest.mark.parametrize("name,machine", cases())
def test_every_candidate_has_cycles_or_a_reason_and_runs_by_its_name(name: str, machine: str) -> None:
    found = asked(name, machine)
    frame = found.dispatch.set_index("implementation")
    assert frame.index[frame.chosen].tolist() == [found.implementation] and frame.reason.all()
    assert len(frame) >= 4 and found.cycles == frame.cycles[found.implementation]
    able = frame[frame.cycles.notna()]
    if not (
        name == "integers" and machine == "skx"
    ):  # an exact kernel gives way to a faster one only where that is fast
        assert found.seconds == min(asked(name, machine, dispatch=str(other)).seconds for other in able.index)
    for other, row in able.iterrows():
        assert asked(name, machine, dispatch=other).implementation == other
        assert asked(name, machine, dispatch=other).cycles == row.cycles
        if row.reason == "more cycles":
            assert row.cycles > found.cycles
    for other in frame.index[frame.cycles.isna()][:2]:
        if not frame.reason[other].startswith(("its ", "exact_int8: not", "a slow form")):  # these run where named
            with pytest.raises(Unimplemented, match=other):
                asked(name, machine, dispatch=other)


def test_equal_cycles_are_told() -> None:
    reasons = asked("f32", "b580").dispatch.set_index("implementation").reason
    assert reasons["gemm:xe2_dpas_bf16"] == "fewest cycles"
    assert reasons["gemm:xe2_dpas_f16"].startswith("as many cycles; the first of the table")


@pytest.mark.parametrize("machine", ["b580", "dg1"])
def test_strategies_are_rows_and_two_run_only_where_asked_for(machine: str) -> None:
    rng = np.random.default_rng(0)
    src, wei = rng.integers(-9, 9, (5, 64)).astype(np.int8), rng.integers(-9, 9, (64, 7)).astype(np.int8)
    points = {"wei": rng.integers(-5, 5, (2, 7)).astype(np.int8)}
    best = simdnn.matmul(src, wei, machine=machine, dst="f32", attr=Attr(zero_points=points))
    frame = best.dispatch.set_index("implementation")
    families = {name.rsplit("_", 2 if name.endswith("in_kernel") else 1)[1]: name for name in frame.index}
    assert "zero_point_strategy='bias' takes it" in frame.reason[families["bias"]]
    assert "reductions={'src': R} are missing" in frame.reason[families["precomputed"]]
    for strategy in ("direct", "bias", "upconvert"):
        by_name = simdnn.matmul(
            src, wei, machine=machine, dst="f32", attr=Attr(zero_points=points), dispatch=families[strategy]
        )
        attr = Attr(zero_points=points, zero_point_strategy=strategy)
        by_strategy = simdnn.matmul(src, wei, machine=machine, dst="f32", attr=attr)
        assert by_name.implementation == by_strategy.implementation == families[strategy]
        assert (by_name.output == best.output).all() and by_name.cycles == by_strategy.cycles


def test_zero_points_of_more_than_16_bits_are_refused_with_what_takes_them() -> None:
    ones = np.ones((4, 8), np.int8)
    with pytest.raises(Unimplemented, match="zero_point_strategy='bias' takes it"):
        simdnn.matmul(ones, ones.T.copy(), machine="b580", attr=Attr(zero_points={"wei": 1 << 15}))


@pytest.mark.parametrize("machine", GPUS)
def test_convolutions_tell_their_candidates(machine: str) -> None:
    sizes: dict[str, Any] = {"ic": 8, "ih": 6, "iw": 6, "oc": 8, "kh": 3, "kw": 3}
    found = {g: simdnn.estimate("convolution", dt="f16", machine=machine, groups=g, **sizes) for g in (1, 8)}
    assert found[8].implementation.endswith("_depthwise")
    assert (
        simdnn.estimate("convolution", dt="f16", machine=machine, dispatch=found[1].implementation, **sizes).cycles
        == found[1].dispatch.cycles.min()
    )
    with pytest.raises(Unimplemented, match="have a kernel of their own"):
        simdnn.estimate("convolution", dt="f16", machine=machine, groups=8, dispatch=found[1].implementation, **sizes)


@pytest.mark.parametrize("machine", GPUS)
def test_what_a_gpu_has_not_is_said_once(machine: str) -> None:
    with pytest.raises(Unimplemented, match=r"dispatch='onednn' on .* is not modelled; what works: 'fastest'"):
        asked("f32", machine, dispatch="onednn")
    with pytest.raises(Unimplemented, match="needs avx2"):
        asked("f32", machine, dispatch="gemm:avx2")
    with pytest.raises(InvalidArgument, match="did you mean .*Allowed: fastest, or a kernel's name") as caught:
        asked("f32", machine, dispatch=asked("f32", machine).implementation + "x")
    assert "onednn" not in str(caught.value)


def test_a_gpus_kernel_is_refused_on_a_cpu() -> None:
    with pytest.raises(Unimplemented, match="'gemm:xe2_mad': isa: needs xe2"):
        asked("f32", "zen4", dispatch="gemm:xe2_mad")


def test_list_kernels(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["list", "kernels", "--json"]) == 0
    rows = {row["kernel"]: row for row in json.loads(capsys.readouterr().out)}
    assert list(rows) == [kind.name for kind in KERNELS] and all(row["sources"] for row in rows.values())
    assert {row["target"] for row in rows.values()} == {"x86", "intel_gpu", "nvidia"}
    assert rows["gemm:xe_hpg_dpas_in_kernel"]["zero_points"] == "in_kernel"
    assert rows["ref_int8:avx2"]["zero_points"] == "direct/in_kernel/precomputed/bias/upconvert"
    tiled = rows["gemm:avx512_core_amx_down"]
    assert [tiled[key] for key in ("weights", "multiplied", "accumulates", "layouts")] == [
        "f32",
        "bf16",
        "f32",
        "any/ab/ba",
    ]
    assert rows["gemm:xe2_dpas_wdec_bf16"]["compute_dtype"] == "bf16"
    for machine in MACHINES:
        assert main(["list", "kernels", "--machine", machine, "--json"]) == 0
        mine = {row["kernel"] for row in json.loads(capsys.readouterr().out)}
        for name in ("f32", "f16"):
            assert set(asked(name, machine).dispatch.dropna().implementation) <= mine < rows.keys()
    assert main(["list", "machines", "--machine", "zen4"]) == 2 and "list kernels" in capsys.readouterr().err


def test_every_gpu_has_rows() -> None:
    for name in gpu_machine_names():
        kinds = rows_for({simdnn.estimate("matmul", m=8, n=8, k=8, machine=name).isa})
        assert len({kind.isa for kind in kinds}) == 1 and any(kind.name.endswith("_depthwise") for kind in kinds)


def written_out(call: object) -> bool:
    """Whether a callable is a function of a module, bound at most to data that a reader can see."""
    if isinstance(call, partial):
        return written_out(call.func)
    if isinstance(call, MethodType):
        return is_dataclass(call.__self__) and written_out(call.__func__)
    return isinstance(call, FunctionType) and call.__closure__ is None and "<" not in call.__qualname__


@pytest.mark.parametrize("target", ["x86", "intel_gpu", "nvidia"])
def test_a_rows_facts_are_fields(target: str) -> None:
    """No row hides what it takes in a closure, and it says the types that it stores, multiplies and adds up."""
    kinds = [kind for kind in KERNELS if kind.target == target]
    assert kinds
    for kind in kinds:
        assert all(map(written_out, (kind.generator, kind.refine, *kind.sizes, *kind.wants))), kind.name
        assert kind.sources and kind.weights and kind.tags and kind.accumulates, kind.name
        assert {*kind.sources, *kind.weights, *kind.accumulates} <= formats.FORMATS.keys(), kind.name
        assert not kind.needs or kind.needs in kind.takes, kind.name


def test_refusals_read_the_fields() -> None:
    rows = {kind.name: kind for kind in KERNELS}
    problem = MatmulProblem(8, 16, 32, "f16", "f16", Epilogue("f32"))
    for name in ("gemm:avx2", "gemm:avx512_core_vnni", "gemm:avx512_core_amx_int8", "ref_int8:avx2"):
        kind = rows[name]
        types = f"computes {'/'.join(kind.sources)} sources with {'/'.join(kind.weights)} weights, not f16:f16"
        assert kind.accepts(problem) == types
        assert replace(kind, sources=("f16",), weights=("f16",), wants=()).accepts(problem) == ""
        assert replace(kind, sources=("f16",), weights=("f16",), tags=("ab",)).accepts(problem).endswith("works: 'ab'")
    grouped = MatmulProblem(8, 16, 32, "u8", "s8", Epilogue("f32"), group_scales=GroupScales(wei=along_k("wei", 16)))
    on_tiles, on_vectors = rows["gemm:avx512_core_amx_int8"], rows["gemm:avx512_core_vnni"]
    assert (on_tiles.accepts(grouped), on_vectors.accepts(grouped)) == ("takes no scales along K (wei by 16)", "")
    assert replace(on_vectors, takes=()).accepts(grouped) == on_tiles.accepts(grouped)
    assert rows["wdec:avx2"].accepts(problem) == "computes with compressed weights only"


@examples(50)
@given(
    st.tuples(*[st.integers(1, 300)] * 3),
    st.sampled_from(("f32", "bf16", "f16", "u8", "s8", "f8_e4m3")),
    st.sampled_from(("f32", "bf16", "f16", "s8", "s4")),
    st.sampled_from(("any", "ab", "ba")),
    st.booleans(),
)
def test_what_a_row_says_of_a_form_it_says_of_all_sizes(
    sizes: tuple[int, int, int], src: str, wei: str, tag: str, grouped: bool
) -> None:
    m, n, k = sizes
    scales = GroupScales(wei=along_k("wei", 8)) if grouped else None
    product = MatmulProblem(m, n, k, src, wei, Epilogue("f32"), tag, group_scales=scales)
    image = ConvProblem(2, 2 * m, n, n, k, 1, 1, src, wei, Epilogue("f32"), wei_tag=tag)
    for problem in (product, image):
        for kind in KERNELS:
            if isinstance(problem, kind.operation):
                assert kind.refuses(problem.form) in ("", kind.accepts(problem)), kind.name
