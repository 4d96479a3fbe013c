"""Outputs of onnxruntime's CPU provider on small models of an operator or two, into
tests/vectors/onnxruntime/operators.npz:

    python -m tools.record_onnxruntime_operators avx512_core_vnni  # the ISA cap that this host's CPU has

Models are drawn from a seed of each family's own: one more family changes no other.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime

from tools.onnxruntime_draws import MICROSOFT, ML, Arrays, Draws, node

FOLDER = Path(__file__).parents[1] / "tests" / "vectors" / "onnxruntime"


def recurrent(draws: Draws) -> None:
    """LSTM and GRU: one direction and two, long sums, states, peepholes, clipped, without a bias."""
    cases: tuple[tuple[str, int, int, int, int, str, dict[str, Any]], ...] = (
        ("LSTM", 4, 3, 20, 11, "b h c p", {}),
        ("LSTM", 2, 1, 300, 16, "", {"clip": 0.7}),
        ("LSTM", 3, 2, 9, 8, "b", {"direction": "bidirectional", "input_forget": 1}),
        ("GRU", 4, 3, 20, 11, "b h", {}),
        ("GRU", 3, 1, 300, 16, "b", {"linear_before_reset": 1}),
        ("GRU", 3, 2, 9, 8, "", {"direction": "bidirectional", "linear_before_reset": 1}),
    )
    for op, steps, batch, width, hidden, more, attributes in cases:
        gates, sides = {"LSTM": 4, "GRU": 3}[op], 1 + ("direction" in attributes)
        constants = {
            "w": draws.floats(sides, gates * hidden, width, scale=width**-0.5),
            "r": draws.floats(sides, gates * hidden, hidden, scale=hidden**-0.5),
            "b": draws.floats(sides, 2 * gates * hidden, scale=0.4),
            "h": draws.floats(sides, batch, hidden),
            "c": draws.floats(sides, batch, hidden),
            "p": draws.floats(sides, 3 * hidden, scale=0.4),
        }
        names = ["x", "w", "r", *(key if key in more.split() else "-" for key in ("b", "", "h", "c", "p"))]
        names = names[: 8 if op == "LSTM" else 6]
        layer = node(op, " ".join(names), "y last", hidden_size=hidden, **attributes)
        kept = {key: value for key, value in constants.items() if key in names}
        draws.add(f"{op}_{width}_{sides}", [layer], {"x": draws.floats(steps, batch, width)}, kept, "y last")


def quantized_recurrent(draws: Draws) -> None:
    """LSTM on integers, one scale and one a gate."""
    for scales in ((1,), (1, 32)):
        constants: Arrays = {}
        for key, width in (("w", 9), ("r", 8)):
            constants[key] = draws.integers("s8", 1, width, 32)
            constants[f"{key}_s"] = (draws.rng.random(scales) * 0.01 + 0.001).astype(np.float32)
            constants[f"{key}_z"] = np.zeros(scales, np.int8)
        constants["b"] = draws.floats(1, 64, scale=0.4)
        layer = node("DynamicQuantizeLSTM", "x w r b - - - - w_s w_z r_s r_z", domain=MICROSOFT, hidden_size=8)
        draws.add(str(len(scales)), [layer], {"x": draws.floats(4, 3, 9)}, constants)


def convolutions(draws: Draws) -> None:
    """Conv of f32 over one and three dimensions, and of one tap with padding."""
    cases: tuple[tuple[str, tuple[int, ...], int, tuple[int, ...], int, int, tuple[int, ...]], ...] = (
        ("line", (2, 16, 20), 5, (3,), 1, 1, (1, 1)),
        ("line_groups", (1, 6, 30), 3, (4,), 3, 2, (0, 2)),
        ("line_filter", (1, 40, 12), 1, (5,), 1, 1, (2, 2)),
        ("line_depthwise", (1, 4, 9), 4, (3,), 4, 1, (1, 1)),
        ("volume", (1, 5, 4, 5, 4), 6, (2, 3, 2), 1, 1, (1, 0, 1, 0, 1, 1)),
        ("volume_pixel", (1, 3, 3, 3, 3), 4, (3, 3, 3), 1, 1, (0,) * 6),
        ("volume_groups", (1, 8, 4, 4, 4), 8, (1, 2, 2), 2, 2, (0,) * 6),
        ("padded", (1, 20, 4, 5), 5, (1, 1), 1, 1, (1, 1, 0, 2)),
        ("padded_wide", (1, 144, 3, 3), 16, (1, 1), 1, 1, (1, 1, 1, 1)),
        ("padded_groups", (1, 6, 3, 4), 9, (1, 1), 3, 2, (0, 1, 2, 0)),
    )
    for name, shape, filters, taps, groups, stride, pads in cases:
        dims = len(taps)
        constants = {"w": draws.floats(filters, shape[1] // groups, *taps), "b": draws.floats(filters)}
        layer = node("Conv", "x w b", kernel_shape=taps, group=groups, strides=[stride] * dims, pads=pads)
        draws.add(name, [layer], {"x": draws.floats(*shape)}, constants)


def integer_volumes(draws: Draws) -> None:
    """QLinearConv over three dimensions: odd channels, whose pairs cross taps; groups; depthwise."""
    for src, wei, channels, filters, groups in (
        ("u8", "s8", 3, 4, 1),
        ("u8", "u8", 4, 4, 1),
        ("s8", "s8", 6, 6, 2),
        ("u8", "s8", 5, 5, 5),
    ):
        zero = 128 if wei == "u8" else 0
        constants = {
            "w": draws.integers(wei, filters, channels // groups, 2, 3, 2),
            "xs": np.float32(0.02),
            "xz": draws.integers(src),
            "ws": (draws.rng.random(filters) * 0.05 + 0.01).astype(np.float32),
            "ys": np.float32(draws.rng.uniform(1, 5)),
            "yz": draws.integers(src),
            "b": draws.rng.integers(-3000, 3000, filters).astype(np.int32),
        }
        constants["wz"] = np.full(filters, zero, constants["w"].dtype)
        layer = node("QLinearConv", "x xs xz w ws wz ys yz b", group=groups, pads=[1, 0, 1, 0, 1, 0])
        draws.add(f"{src}_{wei}_{groups}", [layer], {"x": draws.integers(src, 1, channels, 3, 4, 4)}, constants)


def normalizations(draws: Draws) -> None:
    """Lengths below and above those that have a kernel, with tails of one to seven elements."""
    for n in (5, 8, 13, 20, 33):
        constants = {"g": draws.floats(n), "b": draws.floats(n), "c": draws.floats(n)}
        feeds, skip = {"x": draws.floats(40, n)}, {"x": draws.floats(3, 12, n), "s": draws.floats(3, 12, n)}
        for op, inputs, given, domain in (
            ("LayerNormalization", "x g b", feeds, ""),
            ("SimplifiedLayerNormalization", "x g", feeds, ""),
            ("SkipLayerNormalization", "x s g b c", skip, MICROSOFT),
            ("SkipSimplifiedLayerNormalization", "x s g", skip, MICROSOFT),
        ):
            kept = {key: value for key, value in constants.items() if key in inputs.split()}
            where: dict[str, Any] = {} if domain else {"axis": -1}
            draws.add(f"{op}_{n}", [node(op, inputs, domain=domain, epsilon=1e-5, **where)], given, kept)


def means(draws: Draws) -> None:
    """LogSoftmax, means of images and of windows: channels in whole blocks and others, strides, opsets."""
    for axis in (-1, 1):
        draws.add(f"LogSoftmax_{axis}", [node("LogSoftmax", "x", axis=axis)], {"x": draws.floats(3, 21, 17)}, {})
    for shape in ((2, 16, 5, 7), (1, 5, 6, 5), (2, 3, 11), (1, 2, 3, 4, 3)):
        sizes = "x".join(map(str, shape))
        draws.add(f"global_{sizes}", [node("GlobalAveragePool", "x")], {"x": draws.floats(*shape)}, {})
        for stride, opset in ((1, 17), (3, 17), (1, 19)):
            dims = len(shape) - 2
            where: dict[str, Any] = {"kernel_shape": [3] * dims, "strides": [stride] * dims, "pads": [1] * 2 * dims}
            layer = node("AveragePool", "x", **where)
            draws.add(f"windows_{sizes}_{stride}_{opset}", [layer], {"x": draws.floats(*shape)}, {}, opset=opset)


def attention(draws: Draws) -> None:
    """Attention of floats and integers, with masks of each kind, a past and what is added; embeddings."""
    heads, width, batch, steps = 3, 15, 2, 4
    masks = {
        "none": None,
        "ends": np.array([3, 4]),
        "both": np.array([3, 4, 1, 0]),
        "lines": np.array([[1, 0, 1, 1], [0, 0, 0, 0]]),
        "places": draws.rng.integers(0, 2, (batch, steps, steps)),
    }
    for name, mask in masks.items():
        weights = draws.floats(24, 3 * width, scale=0.2)
        where: dict[str, Any] = {"domain": MICROSOFT, "num_heads": heads, "unidirectional": int(name == "none")}
        feeds = {"x": draws.floats(batch, steps, 24)}
        feeds |= {} if mask is None else {"m": mask.astype(np.int32)}
        added = {"a": draws.floats(1, heads, steps, steps)} if name in ("none", "lines") else {}
        inputs = f"x w b {'-' if mask is None else 'm'} - {' '.join(added)}"
        constants = {"w": weights, "b": draws.floats(3 * width, scale=0.3)}
        draws.add(name, [node("Attention", inputs, **where)], feeds | added, constants)
        if name in ("none", "ends"):
            past = {"p": draws.floats(2, batch, heads, 2, width // heads)}
            constants = {"w": draws.integers("s8", 24, 3 * width), "b": constants["b"], "xs": np.float32(0.02)}
            constants |= {"ws": np.float32(0.003), "xz": np.uint8(120), "wz": np.int8(0)}
            layer = node("QAttention", f"x w b xs ws {'-' if mask is None else 'm'} xz wz p", "y present", **where)
            integers = {"x": draws.integers("u8", batch, steps, 24)}
            draws.add(f"integers_{name}", [layer], {**feeds, **integers, **past}, constants, "y present")
    tables = {"t0": draws.floats(30, 24), "t1": draws.floats(9, 24), "t2": draws.floats(2, 24)}
    tables |= {"g": draws.floats(24), "b": draws.floats(24)}
    feeds = {"i": draws.rng.integers(0, 30, (batch, 6)), "s": draws.rng.integers(0, 2, (batch, 6))}
    feeds = {key: value.astype(np.int32) for key, value in (feeds | {"m": feeds["s"]}).items()}
    layer = node("EmbedLayerNormalization", "i s t0 t1 t2 g b m", "y ends", MICROSOFT, epsilon=1e-5)
    draws.add("embeddings", [layer], feeds, tables, "y ends")


def heads(draws: Draws) -> None:
    """MultiHeadAttention in tiles and with masks, GroupQueryAttention of several steps and of one, rotations."""
    for name, steps, places, size, inputs in (
        ("tiles", 5, 70, 16, "q k v"),
        ("one_step", 1, 33, 5, "q k v b"),
        ("mask", 4, 7, 8, "q k v - m"),
        ("added", 3, 20, 8, "q k v - - a"),
        ("past", 2, 9, 8, "q k v - - - pk pv"),
    ):
        feeds = {"q": draws.floats(2, steps, 3 * size)}
        feeds |= {key: draws.floats(2, places, 3 * size) for key in "kv"}
        given = {"m": draws.rng.integers(0, 2, (2, places)).astype(np.int32), "a": draws.floats(1, 3, steps, places)}
        given |= {key: draws.floats(2, 3, 4, size) for key in ("pk", "pv")} | {"b": draws.floats(9 * size)}
        feeds |= {key: value for key, value in given.items() if key in inputs.split()}
        outputs = "y k1 v1" if name == "past" else "y"
        draws.add(name, [node("MultiHeadAttention", inputs, outputs, MICROSOFT, num_heads=3)], feeds, {}, outputs)
    for name, steps, past, where in (
        ("first", 6, 0, {"do_rotary": 1, "rotary_interleaved": 1}),
        ("next", 1, 21, {"do_rotary": 1}),
        ("window", 3, 9, {"local_window_size": 4}),
        ("cap", 2, 5, {"softcap": 4.0}),
        ("smooth", 1, 5, {"smooth_softmax": 1}),
    ):
        feeds = {key: draws.floats(1, steps, count * 32) for key, count in (("q", 4), ("k", 2), ("v", 2))}
        feeds |= {key: draws.floats(1, 2, past, 32) for key in ("pk", "pv")} if past else {}
        feeds |= {"l": np.array([past + steps - 1], np.int32), "t": np.array(past + steps, np.int32)}
        tables = {key: draws.floats(40, 16) for key in "cs"} if "do_rotary" in where else {}
        inputs = f"q k v {'pk pv' if past else '- -'} l t {' '.join(tables)}"
        layer = node("GroupQueryAttention", inputs, "y k1 v1", MICROSOFT, num_heads=4, kv_num_heads=2, **where)
        draws.add(f"groups_{name}", [layer], feeds, tables, "y k1 v1")
    for half, neighbours in ((8, 0), (11, 1), (3, 1)):
        tables = {key: draws.floats(9, half) for key in "cs"}
        layer = node("RotaryEmbedding", "x p c s", domain=MICROSOFT, interleaved=neighbours)
        draws.add(f"turned_{half}", [layer], {"x": draws.floats(2, 3, 4, 2 * half), "p": np.array([2])}, tables)


def elements(draws: Draws) -> None:
    """Functions by registers of four, with elements left over, and those of the C library."""
    special = np.array([0.0, -0.0, np.inf, -np.inf, 1e-40, 88.8, -88, -104.5, 30000, -1e20, 5], np.float32)
    functions: tuple[tuple[str, Arrays], ...] = (
        ("Elu", {"alpha": 0.7}),
        ("Selu", {}),
        ("Celu", {"alpha": 0.7}),
        ("Softplus", {}),
        ("Sin", {}),
        ("Cos", {}),
        ("Mish", {}),
    )
    for op, where in functions:
        for count in (3, 1026):
            x = np.concatenate([draws.floats(count, scale=3), special])
            draws.add(f"{op}_{count}", [node(op, "x", **where)], {"x": x}, {}, opset=18)
    for power in (0.5, -1.0, 2.2, 3.0):
        feeds = {"x": np.abs(draws.floats(65, scale=4))}
        draws.add(f"Pow_{power}", [node("Pow", "x e")], feeds, {"e": np.float32(power)})
    draws.add("Gelu", [node("Gelu", "x", approximate="tanh")], {"x": draws.floats(131, scale=3)}, {}, opset=20)


def few_bits(draws: Draws) -> None:
    """MatMulNBits whose weights are made floats first: 2 bits, zero points in floats, groups in another order."""
    for name, bits, level, rows in (("two", 2, 0, 3), ("zeros", 4, 4, 1), ("zeros_0", 4, 0, 3), ("groups", 4, 4, 3)):
        constants = {"b": draws.integers("u8", 7, 3, 32 * bits // 8), "s": np.abs(draws.floats(7, 3, scale=0.05))}
        inputs = "a b s"
        if name.startswith("zeros"):
            constants["z"], inputs = draws.floats(7, 3, scale=3), "a b s z"
        if name == "groups":
            constants["g"], inputs = draws.rng.permutation(np.arange(85) // 32).astype(np.int32), "a b s - g"
        where = {"K": 85, "N": 7, "bits": bits, "block_size": 32, "accuracy_level": level}
        layer = node("MatMulNBits", inputs, "y", MICROSOFT, **where)
        draws.add(name, [layer], {"a": draws.floats(rows, 85)}, constants)


def a_tree(draws: Draws, features: int, depth: int) -> list[tuple[str, int, float, int, int]]:
    """A tree's nodes: mode, feature, threshold, and where its branches go."""
    nodes: list[tuple[str, int, float, int, int]] = []

    def grow(left: int) -> int:
        at = len(nodes)
        nodes.append(("LEAF", 0, 0.0, 0, 0))
        if left and draws.rng.random() > 0.2:
            mode = str(draws.rng.choice(["BRANCH_LEQ", "BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE", "BRANCH_GT"]))
            feature, bound = int(draws.rng.integers(features)), float(np.round(draws.rng.standard_normal(), 1))
            nodes[at] = (mode, feature, bound, grow(left - 1), grow(left - 1))
        return at

    grow(depth)
    return nodes


def trees(draws: Draws, features: int, ids: Any, what: str) -> dict[str, Any]:
    """Attributes of an ensemble of seven trees, whose leaves give a weight to each of `ids`."""
    found: dict[str, list[Any]] = {}

    def note(group: str, **values: Any) -> None:
        for key, value in values.items():
            found.setdefault(f"{group}_{key}", []).append(value)

    for tree in range(7):
        for at, (mode, feature, bound, yes, no) in enumerate(a_tree(draws, features, 4)):
            where = {"treeids": tree, "nodeids": at}
            branches = {"truenodeids": yes, "falsenodeids": no, "missing_value_tracks_true": int(mode == "BRANCH_LT")}
            note("nodes", **where, featureids=feature, values=bound, modes=mode, **branches)
            for one in ids if mode == "LEAF" else ():
                note(what, **where, ids=int(one), weights=float(draws.rng.standard_normal() / 7))
    return found


def ensembles(draws: Draws) -> None:
    """Trees: all aggregates, two classes from one score and from two, three classes, missing values."""
    samples = np.round(draws.floats(12, 4), 1)
    samples[3, 1] = np.nan
    for how, count, base in (("SUM", 1, [0.3]), ("AVERAGE", 3, []), ("MIN", 2, [0.1, -0.2]), ("MAX", 1, [])):
        where: dict[str, Any] = {
            "n_targets": count,
            "aggregate_function": how,
            **({"base_values": base} if base else {}),
        }
        layer = node("TreeEnsembleRegressor", "x", domain=ML, **trees(draws, 4, range(count), "target"), **where)
        draws.add(f"{how}_{count}", [layer], {"x": samples}, {})
    for name, ids, labels, base, kind in (
        ("one_score", [0], [0, 1], [0.2], "LOGISTIC"),
        ("two_scores", [0, 1], [0, 1], [], "SOFTMAX"),
        ("two_bases", [0], [5, 8], [0.2, -0.1], "NONE"),
        ("three", range(3), [1, 2, 3], [0.1, 0.2, 0.3], "SOFTMAX_ZERO"),
    ):
        where = {"classlabels_int64s": labels, "post_transform": kind, **({"base_values": base} if base else {})}
        layer = node("TreeEnsembleClassifier", "x", "y scores", ML, **trees(draws, 4, ids, "class"), **where)
        draws.add(name, [layer], {"x": samples.astype(np.float64) if name == "three" else samples}, {}, "y scores")


def support_vectors(draws: Draws) -> None:
    """Kernels of all four kinds; pairs of two and three classes, with probabilities and without; regression."""
    for kind, classes, likely in (
        ("RBF", 3, True),
        ("LINEAR", 2, False),
        ("POLY", 3, False),
        ("SIGMOID", 2, True),
    ):
        counts = [int(n) for n in draws.rng.integers(3, 7, classes)]
        pairs, total = classes * (classes - 1) // 2, sum(counts)
        where: dict[str, Any] = {"kernel_type": kind, "kernel_params": [0.3, 0.5, 3.0], "vectors_per_class": counts}
        where |= {"support_vectors": draws.floats(total * 5).tolist(), "rho": draws.floats(pairs).tolist()}
        where |= {"coefficients": draws.floats((classes - 1) * total).tolist()}
        if likely:
            where |= {"prob_a": [-1.1] * pairs, "prob_b": draws.floats(pairs).tolist()}
        layer = node("SVMClassifier", "x", "y scores", ML, classlabels_ints=list(range(classes)), **where)
        draws.add(f"{kind}_{classes}", [layer], {"x": draws.floats(9, 5)}, {}, "y scores")
        given = {key: where[key] for key in ("kernel_type", "kernel_params", "support_vectors")}
        given |= {"rho": [0.2], "coefficients": draws.floats(total).tolist(), "n_supports": total}
        draws.add(f"{kind}_value", [node("SVMRegressor", "x", domain=ML, **given)], {"x": draws.floats(9, 5)}, {})


def own_attention(draws: Draws) -> None:
    """ONNX's own Attention: masks, causal, capped, steps that see nothing, shared keys, a past; and its rotations."""
    for name, heads, groups, steps, places, size, more, attributes in (
        ("floats", 2, 2, 5, 7, 16, "mask", {}),
        ("shared", 4, 2, 6, 6, 8, "", {"is_causal": 1}),
        ("step", 2, 1, 1, 9, 24, "past", {"is_causal": 1, "scale": 1.0}),
        ("truths", 2, 2, 4, 5, 160, "truths", {"softcap": 3.0}),
        ("lengths", 2, 1, 3, 5, 8, "lengths", {"is_causal": 1}),
    ):
        where: dict[str, Any] = {**attributes, "opset": 24 if more == "lengths" else 23}
        feeds = {"q": draws.floats(2, heads, steps, size)}
        feeds |= {key: draws.floats(2, groups, places, size) for key in ("k", "v")}
        if more in ("mask", "truths"):
            mask = draws.floats(steps, places)
            feeds["m"] = mask if more == "mask" else mask > 0.5
        if more == "past":
            feeds |= {key: draws.floats(2, groups, 3, size) for key in ("pk", "pv")}
        if more == "lengths":
            feeds["n"] = np.array([5, 2])
        names = {"mask": "q k v m", "truths": "q k v m", "past": "q k v - pk pv", "lengths": "q k v - - - n"}
        outputs, opset = "y a b" if more == "past" else "y", where.pop("opset")
        draws.add(name, [node("Attention", names.get(more, "q k v"), outputs, **where)], feeds, {}, outputs, opset)
    for side in (0, 1):
        feeds = {"x": draws.floats(2, 3, 4, 24), "c": draws.floats(2, 4, 11), "s": draws.floats(2, 4, 11)}
        turned: dict[str, Any] = {"interleaved": side, "rotary_embedding_dim": 22, "num_heads": 3}
        draws.add(f"turned_{side}", [node("RotaryEmbedding", "x c s", **turned)], feeds, {}, opset=23)


def norms(draws: Draws) -> None:
    """Groups of channels, means and norms over any dimensions, and a softmax of scores far below the greatest."""
    for opset, parameters in ((18, 2), (21, 6)):
        feeds = {"x": draws.floats(2, 6, 5, 7), "s": draws.floats(parameters), "b": draws.floats(parameters)}
        draws.add(f"groups_{opset}", [node("GroupNormalization", "x s b", num_groups=2)], feeds, {}, opset=opset)
    x = {"x": draws.floats(3, 4, 5, 7)}
    draws.add("variance", [node("MeanVarianceNormalization", "x")], x, {})
    for p in (1, 2):
        draws.add(f"line_{p}", [node("LpNormalization", "x", axis=2, p=p)], x, {})
        draws.add(f"windows_{p}", [node("LpPool", "x", kernel_shape=[2, 3], p=p + 1)], x, {}, opset=18)
    for equation in ("abcd->ad", "abcd->dba", "abcd->"):
        draws.add(f"sum_{len(equation)}", [node("Einsum", "x", equation=equation)], x, {})
    far = {"x": draws.floats(4, 37, scale=50)}
    draws.add("far", [node("Softmax", "x", axis=-1)], far, {})


def halves(draws: Draws) -> None:
    """Models of f16: what stands between casts, what has a kernel, what a body takes the place of."""

    def f16(*shape: int, scale: float = 1.0) -> Any:
        return draws.floats(*shape, scale=scale).astype(np.float16)

    w = {"w": f16(16, 3, 3, 3, scale=0.3), "b": f16(16), "v": f16(16, 16, 1, 1, scale=0.3)}
    for name in ("s", "t", "m", "d"):
        w[name] = abs(f16(16)) + np.float16(0.5)
    first = [node("Conv", "x w b", "c", pads=[1] * 4), node("BatchNormalization", "c s t m d", "n")]
    for kind, opset in (("Relu", 18), ("LeakyRelu", 16), ("LeakyRelu", 20), ("Elu", 18), ("Sigmoid", 13)):
        nodes = [*first, node(kind, "n", "r"), node("Conv", "r v", "u"), node("Add", "u r")]
        draws.add(f"images_{kind}_{opset}", nodes, {"x": f16(1, 3, 6, 7)}, w, opset=opset)
    sizes = {"r": np.array([1, 5, 2, 8]), "i": np.array([1, 5, 16]), "k": np.float16(0.35)}
    parts = {f"{name}{part}": f16(16, *(16,) * (part == "w"), scale=0.25) for name in "abcd" for part in "wb"}
    for opset in (13, 17):
        nodes, feeds = [], {"x": f16(1, 5, 16)}
        for name, axes in zip("abc", ([0, 2, 1, 3], [0, 2, 3, 1], [0, 2, 1, 3]), strict=True):
            nodes += [node("MatMul", f"x {name}w", f"{name}0"), node("Add", f"{name}0 {name}b", f"{name}1")]
            nodes += [node("Reshape", f"{name}1 r", f"{name}2"), node("Transpose", f"{name}2", f"{name}3", perm=axes)]
        nodes += [node("MatMul", "a3 b3", "p"), node("Mul", "p k", "q"), node("Softmax", "q", "s", axis=-1)]
        nodes += [
            node("MatMul", "s c3", "o"),
            node("Transpose", "o", "o1", perm=[0, 2, 1, 3]),
            node("Reshape", "o1 i", "o2"),
        ]
        nodes += [node("MatMul", "o2 dw", "e"), node("Add", "e db", "f"), node("Add", "f x", "y0")]
        more = {"g": f16(16), "h": f16(16)}
        normal = [node("LayerNormalization", "y0 g h")] if opset > 13 else [node("Mul", "y0 g")]
        draws.add(f"attention_{opset}", [*nodes, *normal], feeds, {**sizes, **parts, **more}, opset=opset)
    lines = {"x": f16(1, 6, 32), "z": f16(1, 6, 32)}
    held = {"s": f16(32), "b": f16(32)}
    draws.add("skip", [node("SkipLayerNormalization", "x z s b", "y - - t", MICROSOFT)], lines, held, "y t")
    heads = {name: f16(1, 6, 4 * 8 if name == "q" else 2 * 8) for name in "qkv"}
    cache = {"pk": f16(1, 2, 3, 8), "pv": f16(1, 2, 3, 8)}
    ends = {"n": np.array([8], np.int32), "l": np.array(9, np.int32)}
    query = node("GroupQueryAttention", "q k v pk pv n l", "y a c", MICROSOFT, num_heads=4, kv_num_heads=2)
    draws.add("grouped", [query], heads | cache, ends, "y a c")
    own = {name: f16(1, 3, 5, 8) for name in "qkv"} | {"m": f16(5, 5)}
    draws.add("own", [node("Attention", "q k v m", softcap=4.0)], own, {}, opset=23)
    step = {"s": abs(f16(32)) + np.float16(0.01), "o": np.zeros(32, np.int8)}
    draws.add("quantized", [node("QuantizeLinear", "x s o", axis=2)], {"x": lines["x"]}, step, opset=21)
    edges = [node("Cast", "x", "h", to=10), node("Mul", "h h", "q"), node("Cast", "q", to=1)]
    draws.add("edges", edges, {"x": draws.floats(4, 9)}, {})


def layouts(draws: Draws) -> None:
    """Sums behind convolutions, whose other summand lies in blocks of channels or in none."""
    w = {"a": draws.floats(16, 3, 3, 3, scale=0.3), "b": draws.floats(16), "c": draws.floats(16, 16, 3, 3, scale=0.2)}
    w |= {"lo": np.float32(-1), "hi": np.float32(1)} | {name: abs(draws.floats(16)) + 0.5 for name in "stmd"}
    first, last = node("Conv", "x a b", "u", pads=[1] * 4), [node("Conv", "r c", "v", pads=[1] * 4), node("Add", "v r")]
    for kind in ("LeakyRelu", "Tanh", "HardSwish", "Softplus", "Clip"):
        inputs = "u lo hi" if kind == "Clip" else "u"
        draws.add(kind, [first, node(kind, inputs, "r"), *last], {"x": draws.floats(1, 3, 7, 8)}, w)
    silu = [node("Sigmoid", "u", "g"), node("Mul", "u g", "r")]
    draws.add("silu", [first, *silu, *last], {"x": draws.floats(1, 3, 7, 8)}, w)
    normal = [node("Relu", "u", "g"), node("BatchNormalization", "g s t m d", "r")]
    draws.add("normalized", [first, *normal, *last], {"x": draws.floats(1, 3, 7, 8)}, w)
    for mode, corners in (("nearest", "asymmetric"), ("linear", "half_pixel"), ("linear", "align_corners")):
        where = {"mode": mode, "coordinate_transformation_mode": corners, "nearest_mode": "floor"}
        nodes = [first, node("Resize", "u - k", "r", **where), *last]
        held = {**w, "k": np.array([1, 1, 2, 3], np.float32)}
        draws.add(f"resized_{mode}_{corners}", nodes, {"x": draws.floats(1, 3, 4, 5)}, held)
    pooled = [node("MaxPool", "x", "r", kernel_shape=[2, 2]), *last]
    draws.add("pooled", pooled, {"x": draws.floats(1, 16, 5, 6)}, w)
    grouped = [node("Conv", "x g", "r", group=2, pads=[1] * 4), *last]
    draws.add("grouped", grouped, {"x": draws.floats(1, 16, 5, 6)}, {**w, "g": draws.floats(16, 8, 3, 3, scale=0.2)})


FAMILIES: tuple[Callable[[Draws], None], ...] = (
    recurrent,
    quantized_recurrent,
    convolutions,
    integer_volumes,
    normalizations,
    means,
    attention,
    heads,
    elements,
    few_bits,
    ensembles,
    support_vectors,
    own_attention,
    norms,
    halves,
    layouts,
)


def models() -> dict[str, tuple[bytes, Arrays]]:
    """All models and their feeds, by name."""
    found: dict[str, tuple[bytes, Arrays]] = {}
    for family in FAMILIES:
        draws = Draws(family.__name__)
        family(draws)
        found |= draws.made
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("isa", help="the ISA cap that this host's CPU has, or seems to have")
    isa, path = parser.parse_args().isa, FOLDER / "operators.npz"
    stored: Arrays = dict(np.load(path)) if path.exists() else {}
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 4
    for name, (model, feeds) in models().items():
        stored[f"{name}/model"] = np.frombuffer(model, np.uint8)
        stored |= {f"{name}/feeds/{key}": value for key, value in feeds.items()}
        session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
        for port, value in zip(session.get_outputs(), session.run(None, feeds), strict=True):
            stored[f"{name}/{isa}/{port.name}"] = value
    np.savez_compressed(path, **stored)


if __name__ == "__main__":
    main()
