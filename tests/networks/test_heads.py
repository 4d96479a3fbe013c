"""Attention over queries, keys and values that other nodes make, beside onnxruntime: its bits where they are asked for,
and the same values to float rounding by this package's own order.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

ml_dtypes = pytest.importorskip("ml_dtypes")
pytest.importorskip("onnx")
from onnx import helper  # noqa: E402

import simdnn  # noqa: E402
from simdnn import Unimplemented  # noqa: E402
from simdnn.networks.ops.heads import block_of_keys  # noqa: E402
from tests.effort import examples  # noqa: E402
from tests.networks import peer  # noqa: E402
from tests.networks.peer import Arrays, model  # noqa: E402

MICROSOFT = "com.microsoft"
F32 = np.float32


def alike(
    op: str, inputs: str, feeds: Arrays, held: Arrays, outputs: str = "y", domain: str = MICROSOFT, **where: Any
) -> None:
    """All outputs have the library's bits by its rule, and its values by another."""
    names = ["" if name == "-" else name for name in inputs.split()]
    node = helper.make_node(op, names, outputs.split(), domain=domain, **where)
    made = model([node], feeds, held, opset=21 if domain else 23)
    del made.graph.output[:]
    made.graph.output.extend(helper.make_empty_tensor_value_info(name) for name in outputs.split())
    made.opset_import.append(helper.make_opsetid(MICROSOFT, 1))
    wanted, net = peer.session(made.SerializeToString(), threads=1).run(None, feeds), simdnn.load(made)
    host = peer.of_its_second_cache()
    found, near = (net.run(feeds, **{**host, "dispatch": rule}).outputs for rule in ("onnxruntime", "fastest"))
    for name, value in zip(outputs.split(), wanted, strict=True):
        assert (found[name].dtype, found[name].shape) == (value.dtype, value.shape)
        assert found[name].tobytes() == value.tobytes(), name
        np.testing.assert_allclose(
            near[name], value, rtol=0, atol=2e-6 * max(1e-3, float(np.abs(value).max(initial=0)))
        )
    assert net.estimate(machine="zen4", dispatch="onnxruntime").cycles > 0


@examples(12)
@given(
    steps=st.sampled_from([1, 2, 7]),
    places=st.sampled_from([1, 6, 33, 70]),
    size=st.sampled_from([4, 5, 16]),
    more=st.sampled_from(["", "b", "m", "a", "m a", "pk pv", "causal", "present"]),
    seed=st.integers(0, 1 << 20),
)
def test_heads_with_keys_of_their_own(steps: int, places: int, size: int, more: str, seed: int) -> None:
    """Without masks, sums or what was kept, in tiles; else a softmax of all scores."""
    rng = np.random.default_rng(seed)
    places = steps if more == "causal" else places
    shapes = {"q": (2, steps, 3 * size), "k": (2, places, 3 * size), "v": (2, places, 3 * size)}
    shapes |= {"a": (1, 3, steps, places), "pk": (2, 3, 2, size), "pv": (2, 3, 2, size), "b": (9 * size,)}
    feeds: Arrays = {"m": rng.integers(0, 2, (2, places)).astype(np.int32)}
    feeds |= {name: rng.standard_normal(shape).astype(F32) for name, shape in shapes.items()}
    order = ["q", "k", "v", *(name if name in more.split() else "-" for name in ("b", "m", "a", "pk", "pv"))]
    outputs = "y k1 v1" if more in ("pk pv", "present") else "y"
    kept = {name: value for name, value in feeds.items() if name in order}
    alike("MultiHeadAttention", " ".join(order), kept, {}, outputs, num_heads=3, unidirectional=int(more == "causal"))


@pytest.mark.parametrize(("steps", "places"), [(3, 700), (1, 700), (70, 5)])
def test_tiles(steps: int, places: int) -> None:
    """Keys of more than one tile, whose sums are scaled again; queries of more than one."""
    rng = np.random.default_rng(places)
    feeds = {"q": rng.standard_normal((1, steps, 64)), "k": rng.standard_normal((1, places, 64))}
    feeds = {name: value.astype(F32) for name, value in {**feeds, "v": feeds["k"][..., ::-1]}.items()}
    alike("MultiHeadAttention", "q k v", feeds, {}, num_heads=1)


def test_a_tile_is_what_the_second_cache_holds() -> None:
    from simdnn.networks.kernels import Kernels
    from simdnn.primitives import Attr
    from simdnn.primitives.run import Target

    sizes = [
        block_of_keys(Kernels(Target.of(name, None, 1, "auto", "onnxruntime"), Attr()), 128) for name in ("zen4", "hsw")
    ]
    assert sizes == [512, 128]


@examples(12)
@given(
    steps=st.sampled_from([1, 1, 2, 5]),
    past=st.sampled_from([0, 3, 40]),
    kind=st.sampled_from(["", "rotary", "packed", "window", "softcap", "smooth", "sink", "bias", "ragged"]),
    seed=st.integers(0, 1 << 20),
)
def test_heads_that_share_keys(steps: int, past: int, kind: str, seed: int) -> None:
    rng = np.random.default_rng(seed)
    batch, heads, groups, size, total = 2, 6, 2, 16, past + steps
    if kind == "packed" or kind == "rotary":
        batch = 1
    widths = {"q": heads * size, "k": groups * size, "v": groups * size}
    feeds: Arrays = {name: rng.standard_normal((batch, steps, n)).astype(F32) for name, n in widths.items()}
    if kind == "packed":
        feeds = {"q": np.concatenate(list(feeds.values()), 2)}
    if past:
        feeds |= {name: rng.standard_normal((batch, groups, past, size)).astype(F32) for name in ("pk", "pv")}
    lengths = np.full(batch, total - 1, np.int32)
    if kind == "ragged" and past:
        lengths[1] -= 1
    feeds |= {"l": lengths, "t": np.array(total, np.int32)}
    held = {name: rng.standard_normal((total, 8)).astype(F32) for name in "cs"} if kind in ("rotary", "packed") else {}
    if kind == "sink":
        feeds["z"] = rng.standard_normal(heads).astype(F32)
    if kind == "bias":
        feeds["a"] = rng.standard_normal((1, heads, steps, total)).astype(F32)
    order = ["q", "k", "v", "pk", "pv", "l", "t", "c", "s", "-", "a", "z"]
    where: Arrays = {
        "rotary": {"do_rotary": 1},
        "packed": {"do_rotary": 1, "rotary_interleaved": 1},
        "window": {"local_window_size": 3},
        "softcap": {"softcap": 3.0},
        "smooth": {"smooth_softmax": 1},
    }.get(kind, {})
    inputs = " ".join(name if name in feeds or name in held else "-" for name in order)
    alike("GroupQueryAttention", inputs, feeds, held, "y k1 v1", num_heads=heads, kv_num_heads=groups, **where)


@examples(12)
@given(
    half=st.sampled_from([1, 3, 8, 11]),
    neighbours=st.booleans(),
    by_heads=st.booleans(),
    part=st.booleans(),
    seed=st.integers(0, 1 << 20),
)
def test_rotations(half: int, neighbours: bool, by_heads: bool, part: bool, seed: int) -> None:
    """Of neighbours those behind the last whole eight pairs, but the first, are rounded at each step."""
    rng = np.random.default_rng(seed)
    size = 2 * half + 4 * part
    x = rng.standard_normal((2, 3, 4, size) if by_heads else (2, 4, 3 * size)).astype(F32)
    tables = {name: rng.standard_normal((9, half)).astype(F32) for name in "cs"}
    at = rng.integers(0, 9, (2, 4)) if seed % 2 else np.array([3])
    where = {"num_heads": 3, "rotary_embedding_dim": 2 * half} if part else {"num_heads": 3}
    alike("RotaryEmbedding", "x p c s", {"x": x}, {"p": at, **tables}, interleaved=int(neighbours), **where)


@pytest.mark.parametrize("kind", ["u8 8", "u8 4", "u8 2", "uint4", "int4"])
@pytest.mark.parametrize("zeros", [False, True])
def test_rows_of_a_table_in_blocks(kind: str, zeros: bool) -> None:
    rng = np.random.default_rng(5)
    indices, scales = np.array([[2, 0], [5, 2]]), rng.random((6, 3)).astype(F32)
    if kind.startswith("u8"):
        bits = int(kind[3:])
        held: Arrays = {"d": rng.integers(0, 256, (6, 40 * bits // 8)).astype(np.uint8), "s": scales}
        held["z"] = rng.integers(0, 256, (6, -(-3 * bits // 8))).astype(np.uint8)
        where: Arrays = {"bits": bits, "quantize_axis": 1}
    else:
        dtype, low = getattr(ml_dtypes, kind), -8 if kind == "int4" else 0
        held = {"d": rng.integers(low, low + 16, (6, 40)).astype(dtype), "s": scales}
        held["z"] = rng.integers(low, low + 16, (6, 3)).astype(dtype)
        where = {"quantize_axis": 1}
    held = held if zeros else {name: value for name, value in held.items() if name != "z"}
    inputs = "d i s z" if zeros else "d i s"
    alike("GatherBlockQuantized", inputs, {"i": indices}, held, block_size=16, gather_axis=0, **where)


def test_what_is_refused_by_name() -> None:
    q = np.ones((1, 2, 2, 3, 4), F32)
    packed = model([helper.make_node("MultiHeadAttention", ["q"], ["y"], domain=MICROSOFT, num_heads=2)], {"q": q}, {})
    packed.opset_import.append(helper.make_opsetid(MICROSOFT, 1))
    with pytest.raises(Unimplemented, match="three tensors work"):
        simdnn.load(packed).run({"q": q}, machine="zen4")
    feeds: Arrays = {"q": np.ones((1, 1, 8), F32), "k": np.ones((1, 1, 8), F32), "v": np.ones((1, 1, 8), F32)}
    feeds |= {"l": np.zeros(1, np.int32), "t": np.array(1, np.int32)}
    node = helper.make_node(
        *("GroupQueryAttention", ["q", "k", "v", "", "", "l", "t"], ["y"]),
        **{"domain": MICROSOFT, "num_heads": 1, "kv_num_heads": 1, "sliding_window_cache": 1},
    )
    kept = model([node], feeds, {})
    kept.opset_import.append(helper.make_opsetid(MICROSOFT, 1))
    with pytest.raises(Unimplemented, match="sliding_window_cache=1; 0 works"):
        simdnn.load(kept).run(feeds, machine="zen4")


@pytest.mark.parametrize("machine", ["zen4", "b580", "h100"])
def test_costs_alone(machine: str) -> None:
    """Of sizes alone, on CPUs and GPUs, what a run has."""
    rng = np.random.default_rng(1)
    feeds = {name: rng.standard_normal((1, 4, n * 16)).astype(F32) for name, n in (("q", 4), ("k", 2), ("v", 2))}
    feeds |= {"l": np.full(1, 3, np.int32), "t": np.array(4, np.int32)}
    held = {name: rng.standard_normal((8, 8)).astype(F32) for name in "cs"}
    node = helper.make_node(
        *("GroupQueryAttention", ["q", "k", "v", "", "", "l", "t", "c", "s"], ["y"]),
        **{"domain": MICROSOFT, "num_heads": 4, "kv_num_heads": 2, "do_rotary": 1},
    )
    made = model([node], feeds, held)
    made.opset_import.append(helper.make_opsetid(MICROSOFT, 1))
    net = simdnn.load(made)
    assert net.estimate(machine=machine).cycles == pytest.approx(net.run(feeds, machine=machine).cycles)


@examples(8)
@given(
    steps=st.sampled_from([1, 2, 7]),
    groups=st.sampled_from([1, 2]),
    flat=st.booleans(),
    more=st.sampled_from(["", "m", "truths", "pk pv", "is_causal", "softcap", "scale"]),
    seed=st.integers(0, 1 << 20),
)
def test_onnx_own_attention(steps: int, groups: int, flat: bool, more: str, seed: int) -> None:
    rng = np.random.default_rng(seed)
    heads, size, places, past = 2, int(rng.choice([4, 16])), 6, 3 if more == "pk pv" else 0
    shapes = {
        key: (2, n, length, size)
        for key, n, length in (("q", heads, steps), ("k", groups, places), ("v", groups, places))
    }
    if flat:
        shapes = {key: (2, length, n * width) for key, (_, n, length, width) in shapes.items()}
    shapes |= {key: (2, groups, past, size) for key in ("pk", "pv") if past}
    shapes |= {"m": (steps, places)} if more in ("m", "truths") else {}
    feeds = {key: rng.standard_normal(shape).astype(F32) for key, shape in shapes.items()}
    if more == "truths":
        feeds["m"] = (feeds["m"] > 0) | (np.arange(places) == 2)  # each step sees something
    where: dict[str, Any] = {"q_num_heads": heads, "kv_num_heads": groups} if flat else {}
    where |= (
        {more: {"is_causal": 1, "softcap": 2.0, "scale": 1.0}[more]}
        if more in ("is_causal", "softcap", "scale")
        else {}
    )
    inputs = "q k v m" if "m" in feeds else "q k v - pk pv" if past else "q k v"
    alike("Attention", inputs, feeds, {}, "y a b" if past else "y", "", **where)
