"""Outputs of onnxruntime's CPU provider on small quantized and float models, for CPUs that few have.

    python tools/record_onnxruntime.py avx512_core_vnni                         # what this host's CPU has
    qemu-x86_64 -cpu Haswell .venv/bin/python tools/record_onnxruntime.py avx2  # Debian's qemu-user: AVX2, no VNNI

writes the models, their feeds and, under the ISA cap's name, what came out into tests/vectors/onnxruntime: models.npz,
blocks.npz of weights in blocks and products of a vector, and many_blocks.npz of weights in nine blocks.
MLAS asks the CPU what it has and knows no option to cap it: another CPU, real or emulated, is the only way. How the
stored outputs were made stands beside them, in README.md.
"""

from __future__ import annotations

import argparse
import itertools
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

FOLDER = Path(__file__).parents[1] / "tests" / "vectors" / "onnxruntime"
TYPES = {"u8": np.uint8, "s8": np.int8}
SIZES = ((1, 7, 3), (5, 33, 18), (9, 258, 5), (3, 301, 40))  # M, K, N
#: channels, filters, groups, kernel, strides, padding, dilation
CONVOLUTIONS = (
    (3, 8, 1, (3, 3), (1, 1), (1, 1, 1, 1), (1, 1)),
    (5, 7, 1, (2, 3), (2, 1), (0, 1, 2, 0), (1, 2)),
    (16, 9, 1, (1, 1), (1, 1), (0, 0, 0, 0), (1, 1)),
    (6, 4, 2, (3, 2), (1, 2), (1, 0, 1, 2), (2, 1)),
    (4, 4, 4, (3, 3), (1, 1), (1, 1, 1, 1), (1, 1)),
    (1, 1, 1, (3, 4), (1, 1), (0, 2, 1, 0), (1, 1)),
    (8, 6, 2, (1, 3), (1, 1), (0, 1, 0, 1), (1, 1)),
)


class Model:
    """A graph as it grows: its nodes, constants and feeds."""

    def __init__(self) -> None:
        self.nodes: list[Any] = []
        self.constants: dict[str, Any] = {}
        self.feeds: dict[str, Any] = {}

    def node(self, op: str, inputs: str, output: str = "y", domain: str = "", **attributes: Any) -> None:
        """A node; inputs are names, apart by blanks."""
        self.nodes.append(helper.make_node(op, inputs.split(), [output], domain=domain, **attributes))

    def quantized(self, name: str, values: Any, scale: Any, zero: Any) -> None:
        """Constants `name`, its scale `name_s` and its zero point `name_z`."""
        zeros = np.full(np.shape(scale), zero, values.dtype)
        self.constants |= {name: values, f"{name}_s": np.asarray(scale, np.float32), f"{name}_z": zeros}

    def proto(self, result: int) -> bytes:
        """The model, whose output has the ONNX type `result`."""

        def tensor(name: str, values: Any) -> Any:
            kind = helper.np_dtype_to_tensor_dtype(values.dtype)
            return helper.make_tensor_value_info(name, kind, values.shape)

        graph = helper.make_graph(
            self.nodes,
            "recorded",
            [tensor(name, values) for name, values in self.feeds.items()],
            [helper.make_tensor_value_info("y", result, None)],
            [numpy_helper.from_array(np.asarray(values), name) for name, values in self.constants.items()],
        )
        opsets = [helper.make_opsetid("", 20), helper.make_opsetid("com.microsoft", 1)]
        found: bytes = helper.make_model(graph, opset_imports=opsets, ir_version=10).SerializeToString()
        return found


def drawn(rng: np.random.Generator, dtype: str, shape: tuple[int, ...]) -> Any:
    """Integers, most of them as large as can be, so that pairs saturate."""
    info = np.iinfo(TYPES[dtype])
    values = rng.integers(info.min, info.max + 1, shape)
    return np.where(rng.random(shape) < 0.6, rng.choice([info.max, info.min], shape), values).astype(info.dtype)


def products(rng: np.random.Generator, src: str, wei: str, size: tuple[int, int, int]) -> dict[str, bytes | Model]:
    """MatMulInteger, QLinearMatMul and QGemm, weights constant and not."""
    m, k, n = size
    name = f"{src}_{wei}_{m}x{k}x{n}"
    found: dict[str, Any] = {}
    for op in ("MatMulInteger", "QLinearMatMul", "QGemm"):
        if (src, wei) == ("s8", "u8") and op != "MatMulInteger":
            continue  # which onnxruntime has not
        one = Model()
        scale = rng.uniform(0.001, 0.1, n) if op != "MatMulInteger" and n % 2 else rng.uniform(0.001, 0.1)
        one.quantized("b", drawn(rng, wei, (k, n)), scale, 0 if np.ndim(scale) else int(drawn(rng, wei, ())))
        one.quantized("a", drawn(rng, src, (m, k)), 0.02, int(drawn(rng, src, ())))
        one.quantized("q", np.zeros((), TYPES[src]), rng.uniform(1, 30), int(drawn(rng, src, ())))
        one.feeds["a"] = one.constants.pop("a")
        if k % 2 and op == "MatMulInteger":
            one.feeds["b"] = one.constants.pop("b")
        kind = TensorProto.UINT8 if src == "u8" else TensorProto.INT8
        if op == "MatMulInteger":
            one.node(op, "a b a_z b_z")
            kind = TensorProto.INT32
        elif op == "QLinearMatMul":
            one.node(op, "a a_s a_z b b_s b_z q_s q_z")
        else:
            one.constants["c"] = rng.integers(-9999, 9999, n).astype(np.int32)
            one.node(op, "a a_s a_z b b_s b_z c q_s q_z", domain="com.microsoft")
        found[f"{op}_{name}"] = (one, kind)
    return found


def convolutions(rng: np.random.Generator, src: str, wei: str, case: Any) -> dict[str, Any]:
    """QLinearConv and ConvInteger."""
    channels, filters, groups, kernel, strides, pads, dilations = case
    where = {"group": groups, "kernel_shape": kernel, "strides": strides, "pads": pads, "dilations": dilations}
    found: dict[str, Any] = {}
    for op in ("QLinearConv", "ConvInteger"):
        one = Model()
        scale = rng.uniform(0.001, 0.1, filters) if op == "QLinearConv" else 0.1
        one.quantized("x", drawn(rng, src, (2, channels, 6, 7)), 0.02, int(drawn(rng, src, ())))
        one.quantized("w", drawn(rng, wei, (filters, channels // groups, *kernel)), scale, 0)
        one.quantized("q", np.zeros((), TYPES[src]), rng.uniform(1, 30), int(drawn(rng, src, ())))
        one.feeds["x"] = one.constants.pop("x")
        if op == "ConvInteger":
            one.node(op, "x w x_z w_z", **where)
            found[f"{op}_{src}_{wei}_{channels}_{filters}_{groups}"] = (one, TensorProto.INT32)
            continue
        one.constants["c"] = rng.integers(-9999, 9999, filters).astype(np.int32)
        one.node(op, "x x_s x_z w w_s w_z q_s q_z c", **where)
        kind = TensorProto.UINT8 if src == "u8" else TensorProto.INT8
        found[f"{op}_{src}_{wei}_{channels}_{filters}_{groups}"] = (one, kind)
    return found


def patterns(rng: np.random.Generator, src: str, wei: str) -> dict[str, Any]:
    """Quantize-dequantize models: Conv, MatMul and Gemm of dequantized operands, with and without what follows."""
    found: dict[str, Any] = {}
    for op, follows, relu, bias in (
        ("Conv", True, False, "s32"),
        ("Conv", True, True, "f32"),
        ("MatMul", True, False, ""),
        ("MatMul", False, False, ""),
        ("Gemm", True, True, "s32"),
        ("Gemm", False, False, "s32"),
    ):
        one = Model()
        scale = rng.uniform(0.01, 0.05, 6)
        one.quantized("w", drawn(rng, wei, (6, 5, 3, 3) if op == "Conv" else (24, 6)), scale, 128 if wei == "u8" else 0)
        low = int(np.iinfo(TYPES[src]).min)
        one.quantized("x", np.zeros((), TYPES[src]), 0.02, low + 128)
        one.quantized("q", np.zeros((), TYPES[src]), 0.9, low if relu else low + 100)
        one.feeds["x"] = (rng.standard_normal((1, 5, 5, 6) if op == "Conv" else (3, 24)) * 2).astype(np.float32)
        del one.constants["x"]
        one.node("QuantizeLinear", "x x_s x_z", "xq")
        one.node("DequantizeLinear", "xq x_s x_z", "xd")
        one.node("DequantizeLinear", "w w_s w_z", "wd", axis=0 if op == "Conv" else 1)
        inputs = "xd wd"
        if bias:
            one.constants["c"] = rng.integers(-3000, 3000, 6).astype(np.int32)
            one.constants["c_s"] = (np.float32(0.02) * scale.astype(np.float32)).astype(np.float32)
            inputs += " cd"
            if bias == "s32":
                one.constants["c_z"] = np.zeros(6, np.int32)
                one.node("DequantizeLinear", "c c_s c_z", "cd", axis=0)
            else:
                one.constants["cd"] = (one.constants.pop("c") * one.constants.pop("c_s")).astype(np.float32)
        where: dict[str, Any] = {"pads": [1, 0, 1, 1]} if op == "Conv" else {}
        one.node(op, inputs, "sum" if follows else "y", **where)
        if relu:
            one.node("Relu", "sum", "cut")
        if follows:
            one.node("QuantizeLinear", f"{'cut' if relu else 'sum'} q_s q_z", "yq")
            one.node("DequantizeLinear", "yq q_s q_z")
        name = f"qdq_{op}_{src}_{wei}{'_relu' * relu}{'' if follows else '_float'}"
        found[name] = (one, TensorProto.FLOAT)
    return found


def floats(rng: np.random.Generator) -> dict[str, Any]:
    """MatMul and Gemm of f32: weights constant, a bias or none; weights that are no constant."""
    found: dict[str, Any] = {}
    for m, k, n in ((1, 300, 5), (4, 700, 1), (3, 257, 33), (5, 513, 7), (2, 30, 60), (3, 140, 40)):
        for constant in (True, False):
            if not constant and 1 in (m, n):
                continue
            for op in ("MatMul", "Gemm") if k > 256 else ("MatMul",):
                one = Model()
                one.feeds["a"] = rng.standard_normal((m, k)).astype(np.float32)
                weights = rng.standard_normal((k, n)).astype(np.float32)
                (one.constants if constant else one.feeds)["b"] = weights
                one.constants |= {"c": rng.standard_normal(n).astype(np.float32)} if op == "Gemm" else {}
                one.node(op, "a b c" if op == "Gemm" else "a b")
                found[f"{op}_f32_{m}x{k}x{n}{'' if constant else '_varying'}"] = (one, TensorProto.FLOAT)
    return found


def float_convolutions(rng: np.random.Generator) -> dict[str, Any]:
    """Conv of f32: fewer channels than a block, whole blocks and parts of them, one tap, groups, depthwise."""
    found: dict[str, Any] = {}
    for channels, filters, kernel, groups, stride, pad in (
        (3, 8, 5, 1, 2, 1),
        (4, 5, 1, 1, 1, 0),
        (8, 6, 3, 1, 1, 1),
        (20, 4, 3, 1, 1, 1),
        (40, 8, 2, 1, 1, 0),
        (132, 4, 1, 1, 2, 0),
        (32, 32, 3, 2, 1, 1),
        (8, 8, 3, 8, 1, 1),
    ):
        one = Model()
        one.feeds["x"] = rng.standard_normal((2, channels, 5, 6)).astype(np.float32)
        one.constants["w"] = rng.standard_normal((filters, channels // groups, kernel, kernel)).astype(np.float32)
        one.constants["c"] = rng.standard_normal(filters).astype(np.float32)
        where: dict[str, Any] = {
            "group": groups,
            "kernel_shape": [kernel] * 2,
            "strides": [stride] * 2,
            "pads": [pad] * 4,
        }
        one.node("Conv", "x w c", "sum", **where)
        one.node("Relu", "sum")
        found[f"Conv_f32_{channels}_{filters}_{kernel}_{groups}"] = (one, TensorProto.FLOAT)
    return found


def added(rng: np.random.Generator) -> dict[str, Any]:
    """A product of dequantized operands, to which a constant is added."""
    one = Model()
    one.quantized("w", drawn(rng, "s8", (24, 6)), rng.uniform(0.01, 0.05, 6), 0)
    one.quantized("x", np.zeros((), np.uint8), 0.02, 128)
    del one.constants["x"]
    one.feeds["x"] = (rng.standard_normal((3, 24)) * 2).astype(np.float32)
    one.constants["c"] = rng.standard_normal(6).astype(np.float32)
    one.node("QuantizeLinear", "x x_s x_z", "xq")
    one.node("DequantizeLinear", "xq x_s x_z", "xd")
    one.node("DequantizeLinear", "w w_s w_z", "wd", axis=1)
    one.node("MatMul", "xd wd", "sum")
    one.node("Add", "sum c")
    return {"qdq_MatMul_u8_s8_added": (one, TensorProto.FLOAT)}


def block(rng: np.random.Generator, src: str, wei: str) -> Model:
    """Convolutions with an addition around one of them, and the operators that onnxruntime has on integers behind them,
    each between DequantizeLinear and QuantizeLinear.
    """
    one = Model()
    one.feeds["x"] = rng.standard_normal((2, 4, 6, 6)).astype(np.float32)
    low = int(np.iinfo(TYPES[src]).min)

    def through(values: str, name: str, scale: float, zero: int = 128) -> str:
        one.quantized(name, np.zeros((), TYPES[src]), scale, low + zero)
        del one.constants[name]
        one.node("QuantizeLinear", f"{values} {name}_s {name}_z", f"{name}_q")
        one.node("DequantizeLinear", f"{name}_q {name}_s {name}_z", name)
        return name

    def weights(name: str, *shape: int) -> str:
        one.quantized(name, drawn(rng, wei, shape), 0.002, 128 if wei == "u8" else 0)
        one.node("DequantizeLinear", f"{name} {name}_s {name}_z", f"{name}_d")
        return f"{name}_d"

    one.node("Conv", f"{through('x', 'a', 0.02)} {weights('w1', 8, 4, 3, 3)}", "t1", pads=[1] * 4)
    one.node("Relu", "t1", "r1")
    kept = through("r1", "b", 0.1, 0)  # which two read
    one.node("Conv", f"{kept} {weights('w2', 8, 8, 3, 3)}", "t2", pads=[1] * 4)
    one.node("Add", f"{through('t2', 'c', 0.3)} {kept}", "t3")
    one.node("Relu", "t3", "r3")
    one.node("AveragePool", through("r3", "d", 0.2, 0), "t4", kernel_shape=[2, 2], strides=[2, 2])
    one.node("Conv", f"{through('t4', 'e', 0.2, 0)} {weights('w3', 8, 8, 1, 1)}", "t5")
    one.node("LeakyRelu", through("t5", "f", 0.3, 100), "t6", alpha=0.1)
    one.node("Sigmoid", through("t6", "g", 0.2, 80), "t7")
    one.node("Mul", f"g {through('t7', 'h', 1 / 256, 0)}", "t8")
    one.node("Concat", f"{through('t8', 'i', 0.2, 10)} e", "t9", axis=1)
    one.node("GlobalAveragePool", through("t9", "j", 0.2, 10), "t10")
    one.node("Flatten", through("t10", "k", 0.1, 10), "t11")
    one.node("MatMul", f"{through('t11', 'l', 0.1, 10)} {weights('w4', 16, 7)}", "t12")
    one.node("Softmax", through("t12", "m", 0.05), "t13")
    one.node("Identity", through("t13", "n", 1 / 256, 0))
    return one


def resizes(rng: np.random.Generator) -> dict[str, Any]:
    """Resize of floats and integers."""
    found: dict[str, Any] = {}
    for mode, dtype in (("linear", "f32"), ("cubic", "f32"), ("nearest", "f32"), ("linear", "u8"), ("linear", "s8")):
        one = Model()
        shape = (1, 2, 5, 7)
        one.feeds["x"] = drawn(rng, dtype, shape) if dtype != "f32" else rng.standard_normal(shape).astype(np.float32)
        one.constants["s"] = np.array([1, 1, 2.1, 1.3], np.float32)
        one.nodes.append(helper.make_node("Resize", ["x", "", "s"], ["y"], mode=mode))
        found[f"Resize_{dtype}_{mode}"] = (one, helper.np_dtype_to_tensor_dtype(one.feeds["x"].dtype))
    return found


def more_floats(rng: np.random.Generator) -> dict[str, Any]:
    """Convolutions with weights that are no constants, and before a BatchNormalization; functions."""
    found: dict[str, Any] = {}
    one = Model()
    for name, shape in (("x", (1, 20, 6, 5)), ("w", (7, 20, 3, 3))):
        one.feeds[name] = rng.standard_normal(shape).astype(np.float32)
    one.node("Conv", "x w", pads=[1] * 4)
    found["Conv_f32_varying"] = (one, TensorProto.FLOAT)
    one = Model()
    one.feeds["x"] = rng.standard_normal((1, 4, 6, 5)).astype(np.float32)
    one.constants["w"] = rng.standard_normal((8, 4, 3, 3)).astype(np.float32)
    for name in ("scale", "shift", "mean", "variance"):
        one.constants[name] = rng.random(8).astype(np.float32) + np.float32(0.1)
    one.node("Conv", "x w", "t")
    one.node("BatchNormalization", "t scale shift mean variance")
    found["Conv_f32_norm"] = (one, TensorProto.FLOAT)
    for op in ("Sigmoid", "Tanh", "HardSigmoid", "HardSwish"):
        one = Model()
        one.feeds["x"] = (rng.standard_normal(200) * 5).astype(np.float32)
        one.node(op, "x")
        found[f"{op}_f32_function"] = (one, TensorProto.FLOAT)
    return found


def more_integers(rng: np.random.Generator) -> dict[str, Any]:
    """Zero points of their own a channel, with one channel a group; weights of floats behind a QuantizeLinear."""
    one = Model()
    one.quantized("w", drawn(rng, "s8", (4, 1, 3, 3)), np.full(4, 0.05), 0)
    one.constants["w_z"] = np.array([3, -20, 0, 7], np.int8)
    one.quantized("x", drawn(rng, "u8", (1, 4, 5, 5)), 0.02, 9)
    one.quantized("q", np.zeros((), np.uint8), 4, 128)
    one.feeds["x"] = one.constants.pop("x")
    one.node("QLinearConv", "x x_s x_z w w_s w_z q_s q_z", group=4)
    found: dict[str, Any] = {"QLinearConv_u8_s8_zeros": (one, TensorProto.UINT8)}
    one = Model()
    one.quantized("w", np.zeros((), np.int8), 0.02, 0)
    one.constants["w"] = (rng.choice([-3, 3, 1], (6, 5, 3, 3)) + rng.standard_normal((6, 5, 3, 3))).astype(np.float32)
    for name, scale in (("x", 0.02), ("q", 0.9)):
        one.quantized(name, np.zeros((), np.uint8), scale, 128)
        del one.constants[name]
    one.feeds["x"] = (rng.standard_normal((1, 5, 5, 6)) * 2).astype(np.float32)
    one.node("QuantizeLinear", "x x_s x_z", "xq")
    one.node("DequantizeLinear", "xq x_s x_z", "xd")
    one.node("QuantizeLinear", "w w_s w_z", "wq")
    one.node("DequantizeLinear", "wq w_s w_z", "wd")
    one.node("Conv", "xd wd", "sum")
    one.node("QuantizeLinear", "sum q_s q_z", "yq")
    one.node("DequantizeLinear", "yq q_s q_z")
    found["qdq_ahead_u8_s8"] = (one, TensorProto.FLOAT)
    return found


def models() -> dict[str, Any]:
    """All models by name, with the types of their outputs; the same ones every time."""
    rng = np.random.default_rng(19)
    found: dict[str, Any] = {}
    for src in TYPES:
        for wei in TYPES:
            for size in SIZES:
                found |= products(rng, src, wei, size)
            if (src, wei) != ("s8", "u8"):
                for case in CONVOLUTIONS:
                    found |= convolutions(rng, src, wei, case)
                found |= patterns(rng, src, wei)
    found |= floats(rng) | float_convolutions(rng) | added(rng)
    for src, wei in (("u8", "s8"), ("s8", "s8"), ("u8", "u8")):
        found[f"qdq_block_{src}_{wei}"] = (block(rng, src, wei), TensorProto.FLOAT)
    return found | resizes(rng) | more_floats(rng) | more_integers(rng)


def blocks(rng: np.random.Generator) -> dict[str, Any]:
    """MatMulNBits of 4 and 8 bits at accuracy levels 0 and 4: one row and three, columns left, a short last block."""
    found: dict[str, Any] = {}
    for bits in (4, 8):
        for block in (16, 32, 64, 128, 512):
            for level in (0, 4):
                for m in (1, 3):
                    zeros = (block // 16 + m + level) % 3 == 0
                    one, n, k = Model(), 5, 3 * block - 5 if block < 128 else 2 * block + 40
                    count = -(-k // block)
                    one.feeds["a"] = rng.standard_normal((m, k)).astype(np.float32)
                    one.constants["b"] = rng.integers(0, 256, (n, count, block * bits // 8)).astype(np.uint8)
                    one.constants["s"] = rng.uniform(0.01, 0.1, n * count).astype(np.float32)
                    inputs = ["a", "b", "s"]
                    if zeros:
                        one.constants["z"] = rng.integers(0, 256, n * -(-count * bits // 8)).astype(np.uint8)
                        inputs.append("z")
                    if m == 3:
                        one.constants["c"] = rng.standard_normal(n).astype(np.float32)
                        inputs += [""] * (5 - len(inputs)) + ["c"]
                    where: dict[str, Any] = {"K": k, "N": n, "bits": bits, "block_size": block, "accuracy_level": level}
                    domain = "com.microsoft"
                    one.nodes.append(helper.make_node("MatMulNBits", inputs, ["y"], domain=domain, **where))
                    name = f"MatMulNBits_{bits}_{block}_{level}_{m}{'_zeros' * zeros}"
                    found[name] = (one, TensorProto.FLOAT)
    return found


def many_blocks() -> dict[str, Any]:
    """MatMulNBits at accuracy level 4 over nine blocks, which steps of several blocks do not divide."""
    rng, found = np.random.default_rng(21), {}
    for bits, block, m in itertools.product((4, 8), (16, 32, 64), (1, 3)):
        one, n, count = Model(), 7, 9
        one.feeds["a"] = rng.standard_normal((m, count * block)).astype(np.float32)
        one.constants["b"] = rng.integers(0, 256, (n, count, block * bits // 8)).astype(np.uint8)
        one.constants["s"] = rng.uniform(0.01, 0.1, n * count).astype(np.float32)
        where: dict[str, Any] = {"K": count * block, "N": n, "bits": bits, "block_size": block, "accuracy_level": 4}
        one.nodes.append(helper.make_node("MatMulNBits", ["a", "b", "s"], ["y"], domain="com.microsoft", **where))
        found[f"MatMulNBits_{bits}_{block}_{m}"] = (one, TensorProto.FLOAT)
    return found


def vectors(rng: np.random.Generator) -> dict[str, Any]:
    """Products of a vector by weights that are no constants, in all layouts; products with factors; convolutions to one
    pixel and by one filter a group.
    """
    found: dict[str, Any] = {}
    gemms: tuple[tuple[str, int, int, int, dict[str, Any]], ...] = (
        ("row", 1, 31, 21, {}),
        ("column", 7, 77, 1, {}),
        ("by_columns", 1, 45, 7, {"transB": 1}),
        ("turned", 5, 300, 1, {"transA": 1}),
        ("turned_wide", 2, 300, 5, {"transA": 1}),
        ("factor", 1, 300, 6, {"alpha": 0.3}),
        ("factors", 3, 600, 6, {"alpha": 0.3, "beta": 0.7}),
    )
    for name, m, k, n, where in gemms:
        one = Model()
        shapes: dict[str, tuple[int, ...]] = {
            "a": (k, m) if "transA" in where else (m, k),
            "b": (n, k) if "transB" in where else (k, n),
        }
        shapes |= {"c": (n,)} if n > 1 else {}
        one.feeds = {key: rng.standard_normal(shape).astype(np.float32) for key, shape in shapes.items()}
        one.node("Gemm", " ".join(shapes), **where)
        found[f"Gemm_f32_{name}"] = (one, TensorProto.FLOAT)
    for name, channels, filters, groups, taps, size in (
        ("pixel", 18, 7, 1, (3, 2), (3, 2)),
        ("filter", 18, 1, 1, (2, 3), (4, 5)),
        ("depthwise", 5, 5, 5, (3, 3), (5, 4)),
        ("whole_width", 2, 6, 2, (2, 4), (2, 4)),
    ):
        one = Model()
        one.feeds["x"] = rng.standard_normal((2, channels, *size)).astype(np.float32)
        one.constants["w"] = rng.standard_normal((filters, channels // groups, *taps)).astype(np.float32)
        one.constants["c"] = rng.standard_normal(filters).astype(np.float32)
        one.node("Conv", "x w c", group=groups, kernel_shape=list(taps))
        found[f"Conv_f32_{name}"] = (one, TensorProto.FLOAT)
    one = Model()
    for name, shape in (("q", (2, 3, 1, 40)), ("k", (2, 3, 6, 40))):
        one.feeds[name] = rng.standard_normal(shape).astype(np.float32)
    one.constants["c"] = np.float32(6.3)
    one.node("Transpose", "k", "t", perm=[0, 1, 3, 2])
    one.node("MatMul", "q t", "p")
    one.node("Div", "p c")
    found["MatMul_f32_attention"] = (one, TensorProto.FLOAT)
    return found


def more_models() -> dict[str, Any]:
    """Models of blocks.npz; the same ones every time."""
    rng = np.random.default_rng(20)
    return blocks(rng) | vectors(rng)


def main() -> None:
    """Add what comes out on this CPU to the file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("isa", help="the ISA cap of the CPU, under which outputs are kept")
    args = parser.parse_args()
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 3
    for name, found in (("models", models()), ("blocks", more_models()), ("many_blocks", many_blocks())):
        record(FOLDER / f"{name}.npz", found, args.isa, options)


def record(file: Path, found: dict[str, Any], isa: str, options: Any) -> None:
    """Add what comes out of some models to a file."""
    stored: dict[str, Any] = dict(np.load(file)) if file.exists() else {}
    for name, (model, kind) in found.items():
        proto = model.proto(kind)
        session = onnxruntime.InferenceSession(proto, options, providers=["CPUExecutionProvider"])
        stored[f"{name}/model"] = np.frombuffer(proto, np.uint8)
        stored |= {f"{name}/feeds/{key}": values for key, values in model.feeds.items()}
        stored[f"{name}/{isa}"] = session.run(["y"], model.feeds)[0]
    file.parent.mkdir(parents=True, exist_ok=True)
    np.savez_compressed(file, **stored)
    print(f"{len(found)} models, onnxruntime {onnxruntime.__version__}: {file.stat().st_size} bytes in {file.name}")


if __name__ == "__main__":
    main()
