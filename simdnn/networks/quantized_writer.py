"""Nodes of a float model written anew with integers or narrow floats, by each scheme of `quantize_onnx`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from isa_models.readings.arrays import Array
from simdnn import quantize
from simdnn.networks import large_tensors
from simdnn.networks.load import DOMAINS, onnx_package
from simdnn.networks.narrow_weights import NARROW_MODES, NarrowMode
from simdnn.networks.onnx_rewriting import PRODUCTS, fresh, names_read, node_name, refill
from simdnn.networks.opset import version
from simdnn.networks.tensors import array_of
from simdnn.networks.types import has_number, label

if TYPE_CHECKING:
    import onnx

Ranges = Mapping[str, tuple[float, float]]  # the least and greatest value by tensor
_BITS = {"s8": 8, "s4": 4}
INT4_OPSET = 21  # the first in which DequantizeLinear takes 4 bits
LEAST_GROUP = 16  # that MatMulNBits allows


def _by_groups(w: Array, bits: int, group: int) -> tuple[Array, Array]:
    """Integers around their middle of weights (N, K) in groups along K, as MatMulNBits has them, and their scales."""
    w = np.pad(w, ((0, 0), (0, -w.shape[1] % group)))
    blocks, middle = w.reshape(len(w), -1, group), 1 << (bits - 1)
    most = np.abs(blocks).max(2)
    scales = np.where(most > 0, most / (middle - 1), 1).astype(np.float32)
    whole = np.clip(np.rint(blocks / scales[:, :, None]), 1 - middle, middle - 1).astype(np.int16) + middle
    stored: Array = whole.astype(np.uint8)
    if bits == 4:
        stored = stored[:, :, 0::2] | (stored[:, :, 1::2] << 4)
    return stored, scales


def _values(scale: Any) -> Array:
    """The numbers of a scale, whether it comes alone or in a `Quant`."""
    return np.asarray(getattr(scale, "values", scale))


class QuantizedWriter:
    """Writes quantized nodes in place of float ones."""

    def __init__(
        self,
        model: Any,
        known: Mapping[str, Array],
        per_channel: bool,
        sources: str,
        ranges: Ranges,
    ) -> None:
        self.onnx, self.model, self.graph = onnx_package(), model, model.graph
        self.known = dict(known)
        for tensor in self.graph.initializer:
            if tensor.data_type == 1 and tensor.data_location == 0:
                self.known[tensor.name] = array_of(tensor, None)
        self.per_channel, self.sources, self.ranges = per_channel, sources, ranges
        self.nodes: list[Any] = []
        self.taken = {n for node in self.graph.node for n in (*node.input, *node.output)} | set(self.known)
        self.quantized: dict[str, str] = {}

    def run(self, wanted: Callable[[str], bool], scheme: str, weights: str, group: int) -> onnx.ModelProto:
        """The model, the wanted nodes of it by a scheme."""
        for position, node in enumerate(list(self.graph.node)):
            product = node.op_type in PRODUCTS and node.domain in DOMAINS
            if not product or not wanted(node_name(node, position)) or self.lack(node):
                self.nodes.append(node)
            elif scheme == "static":
                self.static(node)
            elif scheme == "dynamic":
                self.dynamic(node)
            elif weights in NARROW_MODES:
                self.blocks(node, NARROW_MODES[weights])
            else:
                self.packed(node, _BITS[weights], group)
        self.finish()
        made: onnx.ModelProto = self.model
        return made

    def lack(self, node: Any) -> str:
        """Why a product stays as it is; "" where its weights are constant and of a shape that the schemes know."""
        w = self.known.get(node.input[1]) if len(node.input) > 1 and node.output else None
        if w is None:
            return self.unknown(node)
        if w.ndim < 2 or (node.op_type != "Conv" and w.ndim != 2):
            return f"weights of shape {w.shape}; a matrix is needed"
        if not np.isfinite(w).all():
            return "weights that are no finite numbers"
        attributes = {a.name: a for a in node.attribute}
        scaled = any(n in attributes and attributes[n].f != 1.0 for n in ("alpha", "beta"))
        turned = "transA" in attributes and attributes["transA"].i
        return "alpha, beta or transA" if node.op_type == "Gemm" and (scaled or turned) else ""

    def unknown(self, node: Any) -> str:
        """Why the weights of a product are not known as f32."""
        name = node.input[1] if len(node.input) > 1 else ""
        stored = next((tensor for tensor in self.graph.initializer if tensor.name == name), None)
        if stored is not None:
            dtype = self.onnx.helper.tensor_dtype_to_np_dtype(stored.data_type)
            return f"weights of {label(dtype)}; those of f32 are quantized"
        if any(name in one.output and one.op_type == "DequantizeLinear" for one in self.graph.node):
            return "weights that are stored in integers already"
        return "weights that are not known before it runs"

    def turned(self, node: Any) -> bool:
        """Whether weights are (N, K)."""
        return node.op_type == "Conv" or any(a.name == "transB" and a.i for a in node.attribute)

    def integers(self, w: Array, axis: int) -> tuple[Array, Array]:
        """s8 weights, and their scales: one a channel along `axis`, or one."""
        scales = quantize.weight_scales(w, axis)
        if not self.per_channel:
            scales = np.full_like(
                scales, scales[np.abs(w).max(axis=tuple(i for i in range(w.ndim) if i != axis)).argmax()]
            )
        return quantize.quantize_weights(w, scales, axis), scales if self.per_channel else scales[:1]

    # -- schemes -------------------------------------------------------------------------------------------------
    def static(self, node: Any) -> None:
        """Source and weights through integers and back; the kernel multiplies the integers."""
        if node.input[0] not in self.ranges:  # computed from constants alone
            self.nodes.append(node)
            return
        axis = 0 if self.turned(node) else 1
        w = self.known[node.input[1]]
        values, scales = large_tensors.once(w, ("static", axis, self.per_channel), lambda: self.integers(w, axis))
        zeros: Any = np.zeros(scales.size, np.int8) if self.per_channel else np.int8(0)
        parts = {"s8": values, "scale": scales if self.per_channel else scales[0], "zero": zeros}
        integers = [self.hold(f"{node.input[1]}_{part}", v) for part, v in parts.items()]
        back = self.fresh(f"{node.input[1]}_dq")
        more: dict[str, Any] = {"axis": axis} if self.per_channel else {}
        self.put("DequantizeLinear", integers, [back], **more)
        node.input[0], node.input[1] = self.source(node.input[0]), back
        self.nodes.append(node)

    def source(self, name: str) -> str:
        """A value through integers and back."""
        if name not in self.quantized:
            low, high = self.ranges[name]
            if self.sources == "u8":
                step = np.float32((high - low) / 255 or 1.0)
                zero: Any = np.uint8(np.clip(np.rint(-low / step), 0, 255))
            else:
                step, zero = np.float32(max(-low, high) / 127 or 1.0), np.int8(0)
            scale, point = self.hold(f"{name}_scale", step), self.hold(f"{name}_zero", zero)
            whole, back = self.fresh(f"{name}_q"), self.fresh(f"{name}_dq")
            self.put("QuantizeLinear", [name, scale, point], [whole])
            self.put("DequantizeLinear", [whole, scale, point], [back])
            self.quantized[name] = back
        return self.quantized[name]

    def dynamic(self, node: Any) -> None:
        """Integers whose scale is found at each run; sums in s32, then scaled."""
        w, bias = self.known[node.input[1]], (list(node.input) + [""])[2]
        if self.turned(node) and node.op_type == "Gemm":
            w = w.T
        values, scales = self.integers(w, 0 if node.op_type == "Conv" else 1)
        rank = w.ndim
        shape = (1, -1) + (1,) * (rank - 2) if node.op_type == "Conv" else (-1,)
        name = self.hold(f"{node.input[1]}_s8", np.ascontiguousarray(values))
        factor = self.hold(f"{node.input[1]}_scale", scales.reshape(shape) if self.per_channel else scales[0])
        x, step, zero, sums, real, scale = (
            self.fresh(f"{node.output[0]}_{p}") for p in ("q", "step", "zero", "sum", "f32", "scale")
        )
        self.put("DynamicQuantizeLinear", [node.input[0]], [x, step, zero])
        kept = list(node.attribute) if node.op_type == "Conv" else []
        self.put("ConvInteger" if node.op_type == "Conv" else "MatMulInteger", [x, name, zero], [sums])
        self.nodes[-1].attribute.extend(kept)
        self.nodes[-1].name = node.name
        self.put("Cast", [sums], [real], to=1)
        self.put("Mul", [step, factor], [scale])
        if not bias:
            self.put("Mul", [real, scale], [node.output[0]])
            return
        scaled = self.fresh(f"{node.output[0]}_scaled")
        self.put("Mul", [real, scale], [scaled])
        if node.op_type == "Conv" and bias in self.known:
            bias = self.hold(f"{bias}_nc", self.known[bias].reshape(shape))
        self.put("Add", [scaled, bias], [node.output[0]])

    def packed(self, node: Any, bits: int, group: int) -> None:
        """Weights in groups along K, with a scale each; zero points stay at the middle."""
        w = self.known[node.input[1]]
        w = w if self.turned(node) else w.T  # (N, K)
        bias = (list(node.input) + [""])[2]
        flat_bias = not bias or (
            bias in self.known and self.known[bias].size == self.known[bias].shape[-1] == w.shape[0]
        )
        if node.op_type == "Conv" and (bits == 8 or version(self.model) >= INT4_OPSET):
            self.filters(node, f"s{bits}")
            return
        if node.op_type == "Conv" or not flat_bias:
            self.nodes.append(node)
            return
        inner = w.shape[1]
        group = min(group, max(LEAST_GROUP, inner & -inner))  # the largest that divides K
        held = self.known[node.input[1]]
        stored, scales = large_tensors.once(held, (bits, group, self.turned(node)), lambda: _by_groups(w, bits, group))
        names = [self.hold(f"{node.input[1]}_s{bits}", stored), self.hold(f"{node.input[1]}_scale", scales.reshape(-1))]
        more = ["", "", self.hold(f"{bias}_flat", self.known[bias].reshape(-1))] if bias else []
        self.put(
            "MatMulNBits",
            [node.input[0], *names, *more],
            [node.output[0]],
            "com.microsoft",
            K=inner,
            N=len(w),
            bits=bits,
            block_size=group,
        )
        self.nodes[-1].name = node.name
        if not any(o.domain == "com.microsoft" for o in self.model.opset_import):
            self.model.opset_import.append(self.onnx.helper.make_opsetid("com.microsoft", 1))

    def blocks(self, node: Any, mode: NarrowMode) -> None:
        """Weights as narrow floats with their scales; a convolution keeps its own where they would be in blocks."""
        if node.op_type == "Conv":
            self.narrow_filters(node, mode)
            return
        w, bias = self.known[node.input[1]], (list(node.input) + [""])[2]
        w = w.T if self.turned(node) else w  # (K, N)
        flat = not bias or bias in self.known and self.known[bias].size == self.known[bias].shape[-1] == w.shape[1]
        if w.ndim != 2 or not flat:
            self.nodes.append(node)
            return
        held, form = self.known[node.input[1]], mode.weights
        codes, scales = large_tensors.once(held, (form, self.turned(node)), lambda: form.store(np.ascontiguousarray(w)))
        named = {} if has_number(codes.dtype) else {"dtype": form.dtype}  # bytes, whose type the node tells
        codes = codes.view(np.uint8) if named else codes
        names = [self.hold(f"{node.input[1]}_{form.dtype}", codes)]
        for argument in ("wei", "src"):
            found = scales.get(argument)
            names.append("" if found is None else self.hold(f"{node.input[1]}_{argument}_scale", _values(found)))
        names += [self.hold(f"{bias}_flat", self.known[bias].reshape(-1))] if bias else []
        if mode.reads:
            named["source"] = mode.reads
        self.own("MatMulBlocks", node, [node.input[0], *names], **named)

    def narrow_filters(self, node: Any, mode: NarrowMode) -> None:
        """A convolution's weights as narrow floats with one scale, or one an output channel."""
        w, form = self.known[node.input[1]], mode.weights
        if not mode.of_filters:
            self.nodes.append(node)
            return
        codes, scales = large_tensors.once(w, (form, "filters"), lambda: form.filters(w, len(w)))
        parts = {form.dtype: codes, "wei_scale": _values(scales["wei"])}
        names = [self.hold(f"{node.input[1]}_{part}", values) for part, values in parts.items()]
        named = {"source": mode.reads} if mode.reads else {}
        self.own("ConvBlocks", node, [node.input[0], *names, *node.input[2:]], **named)
        self.nodes[-1].attribute.extend(node.attribute)

    def own(self, op: str, node: Any, inputs: list[str], **attributes: Any) -> None:
        """An operator of this package's own domain in place of a node."""
        self.put(op, inputs, [node.output[0]], "simdnn", **attributes)
        self.nodes[-1].name = node.name
        if not any(o.domain == "simdnn" for o in self.model.opset_import):
            self.model.opset_import.append(self.onnx.helper.make_opsetid("simdnn", 1))

    def filters(self, node: Any, dtype: str) -> None:
        """A convolution's weights with a scale for each output channel; a depthwise one keeps its own."""
        w = self.known[node.input[1]]
        group = next((a.i for a in node.attribute if a.name == "group"), 1)
        if 1 < group == len(w) and w.shape[1] == 1:
            self.nodes.append(node)
            return
        rows = w.reshape(len(w), -1)
        stored, scales = quantize.compress_weights(np.ascontiguousarray(rows.T), dtype, rows.shape[1])
        parts = {dtype: np.ascontiguousarray(stored.T).reshape(w.shape), "scale": scales[0]}
        back = self.fresh(f"{node.input[1]}_dq")
        self.put("DequantizeLinear", [self.hold(f"{node.input[1]}_{n}", v) for n, v in parts.items()], [back], axis=0)
        node.input[1] = back
        self.nodes.append(node)

    # -- writing -------------------------------------------------------------------------------------------------
    def put(self, op: str, inputs: list[str], outputs: list[str], domain: str = "", **attributes: Any) -> None:
        name = self.fresh(f"{op}_{outputs[0]}")
        self.nodes.append(self.onnx.helper.make_node(op, inputs, outputs, name, domain=domain, **attributes))

    def hold(self, name: str, values: Any) -> str:
        name = self.fresh(name)
        values = np.asarray(values)
        here = large_tensors.named(self.onnx.TensorProto, name, values)
        self.graph.initializer.append(self.onnx.numpy_helper.from_array(values, name) if here is None else here)
        return name

    def fresh(self, name: str) -> str:
        return fresh(name, self.taken)

    def finish(self) -> None:
        """The nodes into the graph; parameters that nobody reads any more go, and shapes are told anew by who asks."""
        refill(self.graph.node, self.nodes)
        read = names_read(self.graph)
        for ports in (self.graph.initializer, self.graph.input):
            refill(ports, [p for p in ports if p.name in read or p.name not in self.known])
        del self.graph.value_info[:]
