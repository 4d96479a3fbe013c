"""The onnx package's backend node tests, all of those whose operators are supported.

Values come from a Zen 4's kernels. Tolerances are the cases' own, but where a result is f16 or bf16: there one unit in
the last place (and its half for sums that round on the way) is allowed: kernels sum in f32, ONNX does not say how.
"""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

import simdnn
from isa_models import Unimplemented

pytest.importorskip("onnx")
from tests.networks.backend import Case, array, cases, missing, shipped, wide  # noqa: E402

ULPS = {"float16": 2.0**-9, "bfloat16": 2.0**-6}
#: cases that cannot pass, with the reason
LEFT_OUT = {
    "test_scan_sum": "Scan before opset 9",
    "test_training_dropout": "draws at random",
    "test_bernoulli": "draws at random",
}
#: data that releases up to 1.20 ship and later ones have put right
OLD_DATA = {
    "test_l2normalization_axis_0": "a line of zeros stays one",
    "test_qlinearmatmul_2D_int8_float": "saturation, where the data wrap",
    "test_qlinearmatmul_3D_int8_float": "saturation, where the data wrap",
}
LEAST = 0.85  # of all cases; fewer passes mean that something broke


def refusal(case: Case) -> str:
    """Why a case is not run; empty where it is."""
    reasons = [why for start, why in LEFT_OUT.items() if case.name.startswith(start)]
    reasons += [why for start, why in OLD_DATA.items() if shipped() and case.name.startswith(start)]
    if reasons:
        return reasons[0]
    try:
        names = missing(simdnn.load(case.model).graph)
    except Unimplemented as error:
        return str(error)[:60]
    if names:
        return f"no operator {names[0]}"
    if any(node.op_type == "SequenceMap" for node in case.model.graph.node):
        return "SequenceMap (its expansion into a Loop runs)"
    kinds = {v.type.WhichOneof("value") for v in (*case.model.graph.input, *case.model.graph.output)}
    return "" if kinds <= {"tensor_type", "sequence_type"} else "optionals"


def check(case: Case) -> None:
    net = simdnn.load(case.model)
    for inputs, outputs in case.data:
        feeds = {port.name: array(v) for port, v in zip(net.graph.inputs, inputs, strict=True)}
        result = net.run(feeds, machine="zen4", dispatch="onednn")
        pairs = [(result.outputs[port.name], array(v)) for port, v in zip(net.outputs, outputs, strict=True)]
        for one, other in pairs:
            if isinstance(other, list):
                assert len(one) == len(other)
        for got, want in [p for a, b in pairs for p in (zip(a, b, strict=True) if isinstance(b, list) else [(a, b)])]:
            assert (got.shape, got.dtype) == (want.shape, want.dtype)
            if want.dtype.kind == "O":
                assert (got == want).all()
                continue
            rtol = max(case.rtol, ULPS.get(want.dtype.name, 0))
            np.testing.assert_allclose(
                wide(got), wide(want), rtol=rtol, atol=max(case.atol, rtol / 100 if rtol > 1e-3 else 0)
            )


def one_of_each() -> list[Case]:
    """The first case of each operator, or set of them, that a model is made of; pools are for the sweep below."""
    first: dict[frozenset[str], Case] = {}
    for case in cases(pools=False):
        first.setdefault(frozenset(node.op_type for node in case.model.graph.node), case)
    return list(first.values())


def test_a_case_of_each_operator() -> None:
    passes(one_of_each())


@pytest.mark.sweep
@pytest.mark.parametrize("part", range(4))
def test_node_cases(part: int) -> None:
    passes(cases()[part::4])


def passes(mine: list[Case]) -> None:
    """Every case passes or is left out with a reason; `-rP` shows the counts."""
    skipped: Counter[str] = Counter()
    failed: dict[str, str] = {}
    for case in mine:
        if why := refusal(case):
            skipped[why] += 1
            continue
        try:
            check(case)
        except Exception as error:  # collected, so that one run shows them all
            failed[case.name] = " ".join(str(error).split())[:200]
    passed = len(mine) - sum(skipped.values()) - len(failed)
    print(f"{passed} passed, {sum(skipped.values())} left out, {len(failed)} failed: {dict(skipped.most_common())}")
    assert not failed
    assert passed >= LEAST * len(mine)
