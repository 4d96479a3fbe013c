"""Math mode and exact int8: a call's word, then the scope's, the thread's, the environment's."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import simdnn
from isa_models import InvalidArgument, Unimplemented
from simdnn.primitives import mathmode
from simdnn.primitives.mathmode import EXACT_INT8, FPMATH, FPMATH_MODES, exact_int8, fpmath_mode

MODES = st.sampled_from(FPMATH_MODES)


@pytest.fixture(autouse=True)
def clean(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for setting in (FPMATH, EXACT_INT8):
        for variable in setting.variables:
            monkeypatch.delenv(variable, raising=False)
    yield
    FPMATH.set_default(None)
    EXACT_INT8.set_default(None)


def test_defaults() -> None:
    assert mathmode.get_default_fpmath_mode() == "strict"
    assert EXACT_INT8.effective(None) is False and EXACT_INT8.asked_for(None) is None


def test_what_is_shipped_holds_inside_whatever_is_set_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SIMDNN_EXACT_INT8", "1")
    with exact_int8(False), fpmath_mode("bf16"):
        assert EXACT_INT8.asked_for(None) is False
        with mathmode.as_shipped(EXACT_INT8), mathmode.as_shipped(FPMATH):
            assert EXACT_INT8.asked_for(None) is None and FPMATH.effective(None) == "strict"
            assert EXACT_INT8.asked_for(True) is True
    assert EXACT_INT8.asked_for(None) is True


@given(call=st.none() | MODES, scopes=st.lists(MODES, max_size=3), thread=st.none() | MODES, variable=st.none() | MODES)
def test_precedence(call: str | None, scopes: list[str], thread: str | None, variable: str | None) -> None:
    with pytest.MonkeyPatch.context() as patch:
        if variable:
            patch.setenv("ONEDNN_DEFAULT_FPMATH_MODE", variable.upper())
        mathmode.set_default_fpmath_mode(thread)
        entered = [fpmath_mode(mode) for mode in scopes]
        for scope in entered:
            scope.__enter__()
        try:
            wanted = next((m for m in (call, *reversed(scopes), thread, variable) if m), "strict")
            assert FPMATH.effective(call) == wanted
        finally:
            for scope in reversed(entered):
                scope.__exit__()
            mathmode.set_default_fpmath_mode(None)


def test_a_default_set_within_a_scope_waits_for_its_end() -> None:
    with fpmath_mode("bf16"):
        mathmode.set_default_fpmath_mode("tf32")
        assert mathmode.get_default_fpmath_mode() == "bf16"
    assert mathmode.get_default_fpmath_mode() == "tf32"


def test_a_scope_ends_with_an_exception_and_can_be_reused() -> None:
    scope = fpmath_mode("f16")
    for _ in range(2):
        with pytest.raises(KeyError), scope, fpmath_mode("any"):
            raise KeyError
        assert mathmode.get_default_fpmath_mode() == "strict"


def test_a_decorated_function_runs_within_the_scope() -> None:
    @fpmath_mode("bf16")
    def mode(depth: int = 2) -> list[str]:
        return [mathmode.get_default_fpmath_mode(), *(mode(depth - 1) if depth else [])]

    assert mode() == ["bf16"] * 3
    assert mathmode.get_default_fpmath_mode() == "strict"

    def generator() -> Iterator[str]:
        yield ""

    async def coroutine() -> None:
        pass

    for function in (generator, coroutine):
        with pytest.raises(InvalidArgument, match=f"{function.__name__} runs after its call has returned; use `with`"):
            fpmath_mode("bf16")(function)


def test_each_asyncio_task_has_its_own_scopes() -> None:
    async def work(mode: str, gate: asyncio.Event) -> list[str]:
        found = [mathmode.get_default_fpmath_mode()]
        with fpmath_mode(mode):
            await asyncio.sleep(0)
            found.append(mathmode.get_default_fpmath_mode())
            await gate.wait()
            found.append(mathmode.get_default_fpmath_mode())
            found.append(await asyncio.to_thread(mathmode.get_default_fpmath_mode))
        return [*found, mathmode.get_default_fpmath_mode()]

    async def main() -> list[list[str]]:
        gates = [asyncio.Event() for _ in range(3)]
        tasks = [asyncio.create_task(work(m, g)) for m, g in zip(("bf16", "tf32", "any"), gates, strict=True)]
        for gate in gates:  # they leave in the order in which they came
            await asyncio.sleep(0.001)
            gate.set()
        return [await task for task in tasks]

    with fpmath_mode("f16"):
        found = asyncio.run(main())
    assert found == [["f16", mode, mode, mode, "f16"] for mode in ("bf16", "tf32", "any")]


def test_a_scope_that_a_generator_holds_ends_where_it_ends() -> None:
    """It is in force where the values are taken; leaving it takes no other scope off."""

    def held() -> Iterator[str]:
        with fpmath_mode("bf16"):
            yield mathmode.get_default_fpmath_mode()

    values = held()
    assert next(values) == mathmode.get_default_fpmath_mode() == "bf16"
    with fpmath_mode("tf32"):
        assert next(values, None) is None
        assert mathmode.get_default_fpmath_mode() == "tf32"
    assert mathmode.get_default_fpmath_mode() == "strict"


def test_a_primitive_follows_the_threads_own_scope() -> None:
    """Workers of one pool, each in another mode, and what they computed in."""
    src, weights = np.ones((8, 64), np.float32), np.ones((64, 48), np.float32)

    def work(mode: str | None) -> str:
        if mode is None:
            return simdnn.matmul(src, weights, machine="zen4").compute_dtype
        with fpmath_mode(mode):
            return simdnn.matmul(src, weights, machine="zen4").compute_dtype

    with fpmath_mode("bf16"), ThreadPoolExecutor(4) as pool:
        found = list(pool.map(work, ["bf16", None, "strict", "tf32"] * 4))
        assert found == ["bf16", "f32", "f32", "f32"] * 4
        assert work(None) == "bf16"


def test_an_integer_call_takes_no_mode_of_its_own_and_none_of_the_scope() -> None:
    """The scope's mode concerns f32 data; a call that names one for integers is refused."""
    src, weights = np.ones((8, 64), np.uint8), np.ones((64, 48), np.int8)
    with fpmath_mode("bf16"):
        assert simdnn.matmul(src, weights, machine="zen4").compute_dtype == "s8"
        with pytest.raises(InvalidArgument, match="fpmath='bf16' for u8 x s8"):
            simdnn.matmul(src, weights, machine="zen4", attr=simdnn.Attr(fpmath="bf16"))


def test_environment_variables_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    for variable, mode in reversed(list(zip(FPMATH.variables, ("bf16", "Tf32", "ANY"), strict=True))):
        monkeypatch.setenv(variable, mode)
        assert mathmode.get_default_fpmath_mode() == mode.lower()
    monkeypatch.setenv(FPMATH.variables[0], " ")  # as good as unset
    assert mathmode.get_default_fpmath_mode() == "tf32"


def test_bad_environment_value_is_an_error_at_first_use_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DNNL_DEFAULT_FPMATH_MODE", "bf17")
    assert FPMATH.effective("tf32") == "tf32"
    with fpmath_mode("any"):
        assert mathmode.get_default_fpmath_mode() == "any"
    with pytest.raises(InvalidArgument, match="DNNL_DEFAULT_FPMATH_MODE.*'bf17'.*'bf16'"):
        mathmode.get_default_fpmath_mode()


@pytest.mark.parametrize(("text", "on"), [("1", True), ("TRUE", True), ("on", True), ("0", False), ("No", False)])
def test_exact_int8_variable(monkeypatch: pytest.MonkeyPatch, text: str, on: bool) -> None:
    monkeypatch.setenv("SIMDNN_EXACT_INT8", text)
    assert EXACT_INT8.effective(None) is on
    mathmode.set_default_exact_int8(not on)
    assert EXACT_INT8.effective(None) is not on
    with exact_int8(on):
        assert EXACT_INT8.effective(None) is on
        assert EXACT_INT8.effective(not on) is not on


def test_exact_int8_bad_values(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SIMDNN_EXACT_INT8", "maybe")
    with pytest.raises(InvalidArgument, match="SIMDNN_EXACT_INT8.*'maybe'"):
        EXACT_INT8.effective(None)
    for value in (1, "true", None):
        with pytest.raises(InvalidArgument, match="exact_int8"):
            exact_int8(value)  # type: ignore[arg-type]


@pytest.mark.parametrize("mode", ["bf15", "BF16", "", 16, None, ["bf16"]])
def test_bad_modes(mode: object) -> None:
    with pytest.raises(InvalidArgument, match="Allowed: strict, tf32, bf16, f16, any"):
        fpmath_mode(mode)  # type: ignore[arg-type]


def test_scopes_and_defaults_belong_to_their_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """Eight threads at once, each with its own default and scope, and a ninth that sees only the environment."""
    monkeypatch.setenv("ONEDNN_DEFAULT_FPMATH_MODE", "ANY")
    count = 8
    barrier = Barrier(count + 1)

    def work(index: int) -> tuple[str, str, str]:
        before = mathmode.get_default_fpmath_mode()
        if index < count:
            mathmode.set_default_fpmath_mode(FPMATH_MODES[index % 5])
        barrier.wait()
        default = mathmode.get_default_fpmath_mode()
        with fpmath_mode(FPMATH_MODES[(index + 1) % 5]):
            barrier.wait()
            inside = mathmode.get_default_fpmath_mode()
            barrier.wait()
        return before, default, inside

    with fpmath_mode("tf32"), ThreadPoolExecutor(count + 1) as pool:
        found = list(pool.map(work, range(count + 1)))
        assert mathmode.get_default_fpmath_mode() == "tf32"
    for index, (before, default, inside) in enumerate(found):
        assert before == "any"
        assert default == (FPMATH_MODES[index % 5] if index < count else "any")
        assert inside == FPMATH_MODES[(index + 1) % 5]


@pytest.mark.parametrize("machine", ["spr", "b580", "h100", "v100"])
def test_tf32_is_no_type_of_data(machine: str) -> None:
    """The option that has it is told, on machines with tensor cores for it and without."""
    with pytest.raises(Unimplemented, match=r"f32:f32 with Attr\(fpmath='tf32'\)"):
        simdnn.estimate("matmul", m=4, n=4, k=8, dt="tf32", machine=machine)
