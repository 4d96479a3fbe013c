"""Choice among kernels that are made up here, so that each rule shows alone."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import simdnn
from isa_models import Machine, Unimplemented, UnknownTiming, cpu_machine, machine
from isa_models.isa import implied
from simdnn import Attr, libraries
from simdnn.kernels import KERNELS, ConvProblem, Epilogue, Kernel, KernelKind, MatmulProblem, Problem
from simdnn.kernels.common.epilogue import Decompression
from simdnn.primitives.candidates import Request
from simdnn.primitives.costs import estimate_program, least_cycles
from simdnn.primitives.dispatch import Choice, choose
from simdnn.program.records import Program
from simdnn.timing.causes import Work
from simdnn.timing.estimate import Cost
from tests.effort import one_in


class Clock:
    """A clock whose answers are given: cycles by kernel name, or an error."""

    def __init__(self, **cycles: float) -> None:
        self.cycles = cycles
        self.asked: list[str] = []

    def __call__(self, program: Program, *_: object) -> Any:
        self.asked.append(program.name)
        if program.name not in self.cycles:
            raise UnknownTiming(f"no timing for {program.name}")
        return cost_of(program, self.cycles[program.name])


def cost_of(program: Program, cycles: float) -> Cost:
    """A made-up cost, at 1 GHz."""
    work = Work(program.itself, machine("skx"), (), cycles)
    return Cost("skx", cycles, cycles / 1e9, "", "compute", cycles, (), (), tuple, Counter(), "estimated", work)


def kind(name: str, isa: str = "avx2", *, reason: str = "", exact: bool = True, computes: str = "f32") -> KernelKind:
    def build(*_: object) -> Kernel:
        return Kernel(name, Program(name, isa, (), ()), dict, dict, computes)  # type: ignore[arg-type]

    return KernelKind(
        name,
        isa,
        computes,
        build,
        exact=exact,
        sources=("f32", "f16", "bf16", "u8"),
        weights=("f32", "f16", "s8"),
        takes=("decompression",),
        wants=(lambda _: reason,),
    )


def picks(name: str) -> Any:
    """A library that always takes `name`."""
    return lambda problem, isa, fpmath: (name, f"lib:{name}")


def no_floor(*_: object) -> float:
    """Made-up clocks know no peak."""
    return 0.0


def request(*kinds: KernelKind, clock: Clock, src: str = "f32", cap: str = "avx512_core", **more: Any) -> Request:
    problem = MatmulProblem(2, 3, 4, src, "f32" if src == "f32" else "s8", Epilogue())
    options = {"exact_int8": False, "fpmath": "strict", "dispatch": "fastest"} | more
    return Request(problem, machine("skx"), implied(cap), kinds=kinds, estimator=clock, floor=no_floor, **options)


def reasons_of(choice: Choice) -> list[str]:
    """The reasons in the order of the table."""
    reason = dict(choice.frame()[["implementation", "reason"]].itertuples(index=False))
    return [reason[candidate.kind.name] for candidate in choice.candidates]


def test_fastest_takes_the_fewest_cycles_and_tells_all() -> None:
    clock = Clock(slow=20, fast=10)
    kinds = kind("slow"), kind("fast"), kind("other", reason="computes s8 only"), kind("vnni", "avx512_core_vnni")
    choice = choose(request(*kinds, clock=clock))
    assert choice.kind.name == choice.kernel.name == "fast" and choice.cost.cycles == 10
    frame = choice.frame().set_index("implementation")
    assert list(frame.columns) == ["isa", "cycles", "chosen", "reason"]
    assert frame["cycles"].fillna(-1).to_dict() == {"slow": 20, "fast": 10, "other": -1, "vnni": -1}
    assert frame["chosen"].to_dict() == {"slow": False, "fast": True, "other": False, "vnni": False}
    assert frame["reason"].to_dict() == {
        "slow": "more cycles",
        "fast": "fewest cycles",
        "other": "computes s8 only",
        "vnni": "isa: needs avx512_core_vnni",
    }


def test_nothing_is_built_or_estimated_twice() -> None:
    clock = Clock(a=1, b=2)
    kinds = kind("a"), kind("b")
    first = choose(request(*kinds, clock=clock))
    first.frame()
    assert choose(request(*kinds, clock=clock)) is first and first.cost is first.cost
    choose(request(*kinds, clock=clock, dispatch="onednn", library=picks("b"))).frame()
    assert clock.asked == ["a", "b"]


def test_onednn_needs_no_clock_to_choose() -> None:
    clock = Clock()
    kinds = kind("gemm:a"), kind("gemm:b", "avx512_core")
    choice = choose(request(*kinds, clock=clock, dispatch="onednn", library=picks("gemm:b")))
    assert choice.kind.name == "gemm:b" and clock.asked == []
    assert reasons_of(choice) == ["no timing for gemm:a", "no timing for gemm:b"]
    with pytest.raises(UnknownTiming, match="gemm:b"):
        _ = choice.cost


def test_onednn_is_told_apart_from_the_fastest() -> None:
    clock = Clock(a=1, b=2)
    choice = choose(request(kind("a"), kind("b"), clock=clock, dispatch="onednn", library=picks("b")))
    assert choice.kind.name == "b"
    assert reasons_of(choice) == ["not oneDNN's choice", "oneDNN's choice: lib:b"]


def test_a_name_takes_that_kernel_or_none() -> None:
    clock = Clock(slow=2, fast=1)
    kinds = kind("slow"), kind("fast"), kind("other", reason="computes s8 only")
    choice = choose(request(*kinds, clock=clock, dispatch="slow"))
    assert choice.kind.name == "slow"
    assert reasons_of(choice) == ["named", "not named", "computes s8 only"]
    with pytest.raises(Unimplemented, match="dispatch='other': computes s8 only"):
        choose(request(*kinds, clock=clock, dispatch="other"))


def test_sums_in_f16_must_be_allowed() -> None:
    narrow = replace(kind("narrow", computes="f16"), accumulates=("f16",))
    problem = MatmulProblem(2, 3, 4, "f16", "f16", Epilogue("f32"))
    for mode, name in (("strict", "wide"), ("bf16", "wide"), ("f16", "narrow"), ("any", "narrow")):
        asked = request(kind("wide"), narrow, clock=Clock(wide=2, narrow=1), fpmath=mode)
        choice = choose(replace(asked, problem=problem))
        assert choice.kind.name == name
    choice = choose(replace(request(kind("wide"), narrow, clock=Clock(wide=2, narrow=1)), problem=problem))
    assert reasons_of(choice) == ["fewest cycles", "adds up in f16, which fpmath strict does not allow"]


def test_exactness_comes_before_the_library() -> None:
    kinds = kind("gemm:fast", exact=False), kind("gemm:exact")
    asked = request(*kinds, clock=Clock(), src="u8", dispatch="onednn", exact_int8=True, library=picks("gemm:fast"))
    assert choose(asked).kind.name == "gemm:exact"


@pytest.mark.parametrize(
    ("problem", "isa", "name", "library"),
    [
        (MatmulProblem(1, 9, 9, "f32", "f32", Epilogue("f32")), "avx512_core", "gemv:avx2", "brg_matmul:avx2"),
        (MatmulProblem(1, 9, 9, "f32", "f32", Epilogue("f32"), "ab"), "avx2", "gemv:avx2_plain", "brg_matmul:avx2"),
        (
            MatmulProblem(2, 9, 9, "u8", "s8", Epilogue()),
            "avx512_core_fp16",
            "gemm:avx512_core_vnni",
            "brg_matmul:avx10_1_512",
        ),
        (
            MatmulProblem(2, 9, 9, "s8", "s8", Epilogue(zp_src=True), moves_in_s8=True),
            "avx2",
            "gemm:avx2_int8_exact",
            "gemm:jit",
        ),
        (
            ConvProblem(1, 8, 9, 9, 8, 3, 3, "u8", "s8", Epilogue(), groups=8),
            "avx512_core",
            "dw:avx512_core_int8",
            "jit_int8:avx512_core",
        ),
        (ConvProblem(1, 6, 9, 9, 6, 3, 3, "u8", "s8", Epilogue(), groups=2), "avx2", "conv:avx2_int8_exact", "ref:any"),
    ],
)
def test_what_the_library_picks(problem: Problem, isa: str, name: str, library: str) -> None:
    assert libraries.choose("onednn", problem, isa) == (name, library)
    assert name in {kind.name for kind in KERNELS}


def test_the_library_takes_f16_where_the_cpu_has_its_arithmetic() -> None:
    problem = MatmulProblem(2, 3, 4, "f16", "f16", Epilogue("f32"))
    assert libraries.choose("onednn", problem, "avx512_core_amx") == ("gemm:avx512_core_f16", "brg_matmul:avx10_1_512")
    for isa in ("avx512_core_bf16", "avx512_core", "avx2"):
        with pytest.raises(Unimplemented, match=f"refuses f16 under {isa}"):
            libraries.choose("onednn", problem, isa)


def test_the_library_has_no_bf16_below_avx512() -> None:
    with pytest.raises(Unimplemented, match="no bf16 under avx2"):
        libraries.choose("onednn", MatmulProblem(2, 3, 4, "bf16", "bf16", Epilogue("f32")), "avx2")


def test_a_kernel_of_unknown_cost_is_out_of_the_race() -> None:
    choice = choose(request(kind("known"), kind("unknown"), clock=Clock(known=1e9)))
    assert choice.kind.name == "known"
    assert reasons_of(choice) == ["fewest cycles", "no timing for unknown"]
    with pytest.raises(UnknownTiming, match="no timing for b"):
        choose(request(kind("a"), kind("b"), clock=Clock()))


INT8 = (
    kind("fast2", exact=False),
    kind("exact2"),
    kind("fast512", "avx512_core", exact=False),
    kind("exact512", "avx512_core"),
    kind("vnni", "avx512_core_vnni"),
)


@pytest.mark.parametrize(
    ("cap", "exact", "able"),
    [
        ("avx2", False, {"fast2"}),
        ("avx2", True, {"exact2"}),
        ("avx512_core", False, {"fast2", "fast512"}),
        ("avx512_core_vnni", False, {"vnni"}),
        ("avx512_core_vnni", True, {"exact2", "exact512", "vnni"}),
    ],
)
def test_exact_int8(cap: str, exact: bool, able: set[str]) -> None:
    clock = Clock(fast2=4, exact2=8, fast512=2, exact512=4, vnni=1)
    choice = choose(request(*INT8, clock=clock, src="u8", cap=cap, exact_int8=exact))
    assert {c.kind.name for c in choice.candidates if not c.reason} == able
    out = [c.reason for c in choice.candidates if c.reason]
    assert all(reason.startswith(("isa: ", "exact_int8: ")) for reason in out)


@pytest.mark.parametrize(
    ("cycles", "taken", "reasons"),
    [
        ({"fast2": 4, "exact2": 4}, "exact2", ["not exact, and no fewer cycles", "exact at no more cycles"]),
        ({"fast2": 4, "exact2": 3}, "exact2", ["not exact, and no fewer cycles", "exact at no more cycles"]),
        ({"fast2": 4, "exact2": 5}, "fast2", ["fewest cycles", "exact, but more cycles"]),
        ({"fast2": 4}, "fast2", ["fewest cycles", "no timing for exact2"]),
    ],
)
def test_an_exact_kernel_that_costs_no_more_runs_unless_the_fast_path_is_asked_for(
    cycles: dict[str, float], taken: str, reasons: list[str]
) -> None:
    asked = request(*INT8[:2], clock=Clock(**cycles), src="u8", cap="avx2", exact_int8=None)
    choice = choose(asked)
    assert choice.kind.name == taken and reasons_of(choice) == reasons
    assert choose(replace(asked, exact_int8=False)).kind.name == "fast2"
    library = choose(replace(asked, dispatch="onednn", library=picks("fast2")))
    assert library.kind.name == "fast2" and "not asked for" in reasons_of(library)[1]


def test_exactness_is_weighed_on_the_threads_asked_for() -> None:
    """On four cores both wait for memory."""

    def clock(program: Program, _machine: Any, _cold: Any, threads: int = 1) -> Any:
        alone = {"fast2": 4.0, "exact2": 6.0}[program.name]
        return cost_of(program, max(alone / threads, 2.0))

    asked = replace(request(*INT8[:2], clock=Clock(), src="u8", cap="avx2", exact_int8=None), estimator=clock)
    assert choose(asked).kind.name == "fast2"
    many = choose(replace(asked, threads=4))
    reasons = ["not exact, and no fewer cycles on 4 cores", "exact at no more cycles on 4 cores"]
    assert reasons_of(many) == reasons


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("target", ["skx", "hsw"])
def test_depthwise_int8_is_exact_where_that_is_free(target: str, threads: int) -> None:
    rng = np.random.default_rng(0)
    src = rng.integers(-128, 128, (1, 48, 9, 9)).astype(np.int8)
    weights = (rng.integers(-64, 64, (48, 1, 3, 3)) * 2 + 1).astype(np.int8)  # odd: what halving loses
    where: dict[str, Any] = {"groups": 48, "padding": 1, "machine": target, "threads": threads}
    r, fast, exact = (
        simdnn.convolution(src, weights, attr=simdnn.Attr(exact_int8=on), **where) for on in (None, False, True)
    )
    assert (r.output == exact.output).all() and (fast.output != exact.output).any()
    assert (r.implementation, r.cycles) == (exact.implementation, exact.cycles) and r.cycles <= fast.cycles
    assert any(reason.startswith("exact at no more cycles") for reason in r.dispatch["reason"])


def test_an_exact_kernel_without_a_fast_counterpart_is_the_normal_one() -> None:
    choice = choose(request(kind("depthwise"), kind("fast", reason="no groups", exact=False), clock=Clock(depthwise=1)))
    assert choice.kind.name == "depthwise"


TYPES = tuple(kind(name, computes=name) for name in ("f32", "tf32", "bf16", "f16"))


@pytest.mark.parametrize(
    ("mode", "able", "reason"),
    [
        ("strict", {"f32"}, "fpmath strict computes in f32"),
        ("tf32", {"f32", "tf32"}, "fpmath tf32 computes in f32 or tf32"),
        ("bf16", {"f32", "tf32", "bf16"}, "fpmath bf16 computes in f32 or tf32 or bf16"),
        ("f16", {"f32", "tf32", "f16"}, "fpmath f16 computes in f32 or tf32 or f16"),
        ("any", {"f32", "tf32", "bf16", "f16"}, ""),
    ],
)
def test_a_math_mode_allows_types_of_f32_problems(mode: str, able: set[str], reason: str) -> None:
    clock = Clock(f32=4, tf32=3, bf16=2, f16=1)
    choice = choose(request(*TYPES, clock=clock, fpmath=mode))
    assert {c.kind.name for c in choice.candidates if not c.reason} == able
    assert {c.reason for c in choice.candidates if c.reason} == ({reason} if reason else set())
    assert choice.cost.cycles == min(clock.cycles[name] for name in able)
    elsewhere = choose(request(*TYPES, clock=clock, fpmath=mode, src="bf16"))
    assert elsewhere.kind.name == "f16"  # only f32 data is converted down, and the mode has no say over the rest


def test_a_math_mode_does_not_move_the_library() -> None:
    for mode in ("strict", "bf16", "any"):
        asked = request(*TYPES, clock=Clock(), fpmath=mode, dispatch="onednn", library=picks("f32"))
        assert choose(asked).kind.name == "f32"


def test_compressed_weights_say_their_types() -> None:
    clock = Clock(f32=4, tf32=3, bf16=2, f16=1)
    for computes, name in ((("f32",), "f32"), (("bf16",), "bf16"), (("f32", "bf16"), "bf16")):
        problem = MatmulProblem(2, 3, 4, "f32", "s8", Epilogue("f32"), decompression=Decompression(computes))
        asked = replace(request(*TYPES, clock=clock), problem=problem)
        assert choose(asked).kind.name == name  # the mode itself, strict here, has been asked before


def test_refusal_names_the_nearest() -> None:
    near, far = kind("near", "avx512_core_vnni"), kind("far", reason="computes convolution only")
    with pytest.raises(Unimplemented) as error:
        choose(request(near, far, clock=Clock(), src="u8"))
    assert str(error.value) == (
        "no matmul kernel for u8:s8:s32 on skx up to avx512_core: near: isa: needs avx512_core_vnni"
    )
    with pytest.raises(Unimplemented, match="computes convolution only"):
        choose(request(far, clock=Clock()))


def test_what_cannot_win_is_not_timed() -> None:
    """The frame has its cycles, found when it is asked for, or the bound that rules it out."""
    timed: list[str] = []

    def clock(program: Program, target: Machine, cold: tuple[str, ...]) -> Any:
        timed.append(program.name.split()[0])
        return estimate_program(program, target, cold)

    problem = MatmulProblem(32, 64, 64, "f32", "f32", Epilogue("f32"))
    request = Request(problem, cpu_machine("clx"), implied("avx512_core"), False, "tf32", "fastest", estimator=clock)
    choice = choose(request)
    assert choice.kind.name == "gemm:avx512_core" and timed == ["gemm:avx512_core"]
    frame = choice.frame().set_index("implementation")
    least = frame.loc["gemm:avx512_core", "cycles"]
    assert frame.loc["gemm:avx512_core_tf32", "cycles"] > least
    for row in (found for found in KERNELS if found.name in ("gemm:avx2", "gemm:avx2_tf32_cut")):
        bound = least_cycles(row, problem, request.machine)
        assert bound > least and np.isnan(frame.loc[row.name, "cycles"]) and row.name not in timed
        assert frame.loc[row.name, "reason"].endswith(
            f"ruled out by a bound, at least {int(bound):,} at its unit's peak rate"
        )


@one_in(3)
@pytest.mark.parametrize("name", ["clx", "zen4", "spr"])
@pytest.mark.parametrize("dt", ["f32:f32", "bf16:bf16", "u8:s8", "f16:f16"])
def test_floors_are_below_estimates(name: str, dt: str) -> None:
    src, wei = dt.split(":")
    for m, n, k in ((1, 48, 200), (40, 96, 64)):
        problem = MatmulProblem(m, n, k, src, wei, Epilogue("s32" if src == "u8" else "f32"))
        model = cpu_machine(name)
        for one in KERNELS:
            if model.supports(one.isa) and one.operation is MatmulProblem and not one.accepts(problem):
                cost = estimate_program(one.build(problem, model).program, model, ())
                assert least_cycles(one, problem, model) <= cost.cycles


@pytest.mark.parametrize(
    ("name", "dt", "sizes", "attr"),
    [
        ("gnr", "u8:s8:s32", (16, 2, 100), None),  # 512 bits wide at 3.15 GHz, 256 at 3.6
    ],
)
def test_the_least_time_is_taken_where_clocks_differ(
    name: str, dt: str, sizes: tuple[int, int, int], attr: Attr | None
) -> None:
    shape = dict(zip("mnk", sizes, strict=True))
    found = simdnn.estimate("matmul", **shape, dt=dt, machine=name, attr=attr)
    frame = found.dispatch.dropna(subset=["cycles"]).set_index("implementation")
    others = {
        kernel: simdnn.estimate("matmul", **shape, dt=dt, machine=name, attr=attr, dispatch=kernel).seconds
        for kernel in frame.index
    }
    assert found.seconds == min(others.values()) and found.cycles > frame["cycles"].min()
    assert frame.loc[found.implementation, "reason"] == "least time"
    assert frame.loc[frame["cycles"].idxmin(), "reason"].startswith("more time: fewer cycles, at ")


@one_in(2, "primitive")
@pytest.mark.parametrize(
    "primitive,problem",
    [
        (
            "convolution",
            {"machine": "gnr", "dt": "bf16", "ic": 32, "oc": 32, "groups": 32, "ih": 9, "iw": 9, "kh": 1, "kw": 1},
        ),
        ("matmul", {"machine": "zen4", "dt": "bf16:u4:bf16", "m": 1, "n": 6, "k": 256}),
        ("matmul", {"machine": "zen5", "dt": "bf16:u4:bf16", "m": 40, "n": 46, "k": 34}),
        ("matmul", {"machine": "adl-p", "dt": "bf16", "m": 577, "n": 116, "k": 175}),
        ("matmul", {"machine": "zen4", "dt": "f32", "m": 383, "n": 164, "k": 567, "attr": Attr(fpmath="f16")}),
        (
            "matmul",
            {"machine": "zen4", "dt": "f32", "m": 9, "n": 33, "k": 67, "src_batch": 4, "wei_batch": 4}
            | {"attr": Attr(fpmath="f16")},
        ),
        (
            "convolution",
            {"machine": "skx", "dt": "s8:s8:f32", "ic": 84, "oc": 109, "ih": 15, "iw": 15, "kh": 5, "kw": 5}
            | {"padding": 2},
        ),
    ],
)
def test_under_a_library_every_candidate_has_cycles_or_a_reason(primitive: str, problem: dict[str, Any]) -> None:
    """Others than the one that it takes, and columns that end within a vector, whose rows nothing stands behind."""
    attr = {"attr": Attr(fpmath="bf16", apply_to_int=True)} if "u4" in problem["dt"] else {}
    frame = simdnn.estimate(primitive, dispatch="onednn", **problem, **attr).dispatch
    assert frame["cycles"].iloc[0] > 0 and (frame["reason"] != "").all()
