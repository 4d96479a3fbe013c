"""A keyword that is spelt wrongly: every public function and class says which one is meant."""

from __future__ import annotations

import dataclasses
import inspect
from typing import Any

import pytest

import isa_models
import simdnn


def _takes_keywords() -> dict[str, Any]:
    """Callables that users call: functions, and the classes whose instances they make themselves."""
    found = {f"simdnn.{name}": getattr(simdnn, name) for name in simdnn.__all__}
    found |= {f"isa_models.{name}": getattr(isa_models, name) for name in isa_models.__all__}
    made = {"simdnn.Attr", "simdnn.Quant", "simdnn.MemoryDesc"}
    return {name: one for name, one in found.items() if inspect.isfunction(one) or name in made}


CALLS = _takes_keywords()


@pytest.mark.parametrize("name", CALLS)
def test_the_one_meant_is_named(name: str) -> None:
    parameters = inspect.signature(CALLS[name]).parameters.values()
    if any(one.kind is one.VAR_KEYWORD for one in parameters):
        pytest.skip("takes any keyword: below")
    for one in parameters:
        if one.kind is not one.VAR_POSITIONAL and len(one.name) > 2:
            wrong = one.name.replace("_", "") + one.name[-1]
            with pytest.raises(simdnn.InvalidArgument, match=f"did you mean .*'{one.name}'"):
                CALLS[name](**{wrong: None})
    with pytest.raises(simdnn.InvalidArgument, match="'nonsense'"):
        CALLS[name](nonsense=1)


ON_ZEN4 = {"n": 4, "k": 4, "machine": "zen4"}
OPEN = {
    "simdnn.estimate": (("matmul",), {"m": 4, **ON_ZEN4}, "thread", "threads"),
    "simdnn.invariance": (
        ("matmul",),
        {"over": {"m": [1, 2]}, "n": 4, "k": 4, "machine": "zen4"},
        "dispach",
        "dispatch",
    ),
    "simdnn.explain": (("vpaddd", [1], [2]), {}, "lane", "lanes"),
}


@pytest.mark.parametrize("name", OPEN)
def test_those_that_take_a_problem_say_so_too(name: str) -> None:
    arguments, named, wrong, right = OPEN[name]
    with pytest.raises(simdnn.InvalidArgument, match=f"'{right}'|{right}"):
        CALLS[name](*arguments, **named, **{wrong: 1})


def test_a_misspelt_field_is_a_type_error_too() -> None:
    with pytest.raises(TypeError, match="did you mean 'fpmath'"):
        simdnn.Attr(fp_math="bf16")  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="did you mean 'groups'"):
        simdnn.Quant(0.5, group=(1, 32))  # type: ignore[call-arg]
    assert dataclasses.replace(simdnn.Attr(), fpmath="bf16").fpmath == "bf16"


@pytest.mark.parametrize("name", [n for n, one in CALLS.items() if inspect.isfunction(one)])
def test_signatures_and_pickles_stay(name: str) -> None:
    import pickle

    one = CALLS[name]
    assert pickle.loads(pickle.dumps(one)) is one and one.__doc__
