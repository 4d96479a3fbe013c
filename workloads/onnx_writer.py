"""An ONNX model written node by node, for formats that are not ONNX; needs the `onnx` package."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from isa_models.errors import InvalidArgument, Unimplemented, how_to_install

if TYPE_CHECKING:
    import onnx

OPSET = 22  # the first whose Conv takes bf16
_IR_VERSION = 10  # of the first release with that opset
Ports = Mapping[str, tuple[str, Sequence[int | str]]]  # name -> NumPy's name of the element type, dimensions


class Writer:
    """Collects nodes and constants; `model` gives the ModelProto.

    >>> writer = Writer()
    >>> doubled = writer.put("Mul", ["x", writer.hold("two", np.float32(2))], "y")
    >>> writer.model("g", {"x": ("float32", ["n"])}, {"y": ("float32", ["n"])}).graph.node[0].op_type
    'Mul'
    """

    def __init__(self) -> None:
        try:
            import onnx
        except ImportError:
            raise Unimplemented(
                f"this model is run as ONNX, which needs the onnx package: {how_to_install('onnx')}"
            ) from None
        self.helper: Any = onnx.helper
        self._from_array: Any = onnx.numpy_helper.from_array
        self.nodes: list[Any] = []
        self.constants: dict[str, Any] = {}
        self._names: set[str] = set()

    def put(self, op: str, inputs: Sequence[str], name: str, **attributes: Any) -> str:
        """A node, and the name of its only output, which is the node's own."""
        self._take(name)
        self.nodes.append(self.helper.make_node(op, inputs, [name], name, **attributes))
        return name

    def hold(self, name: str, values: NDArray[Any] | np.generic) -> str:
        """A constant, and its name."""
        self._take(name)
        self.constants[name] = self._from_array(np.ascontiguousarray(values).reshape(np.shape(values)), name)
        return name

    def _take(self, name: str) -> None:
        if not name or name in self._names:
            raise InvalidArgument(f"two values of one name, or one without: {name!r:.60}")
        self._names.add(name)

    def model(self, title: str, inputs: Ports, outputs: Ports, opset: int = OPSET) -> onnx.ModelProto:
        """The whole model, in an opset and version 1 of other domains that its nodes are of."""
        ports = [
            [
                self.helper.make_tensor_value_info(name, self.helper.np_dtype_to_tensor_dtype(np.dtype(kind)), dims)
                for name, (kind, dims) in group.items()
            ]
            for group in (inputs, outputs)
        ]
        graph = self.helper.make_graph(self.nodes, title, *ports, list(self.constants.values()))
        others = sorted({node.domain for node in self.nodes} - {""})
        imports = [self.helper.make_opsetid("", opset), *(self.helper.make_opsetid(domain, 1) for domain in others)]
        made: onnx.ModelProto = self.helper.make_model(
            graph, opset_imports=imports, ir_version=_IR_VERSION, producer_name="simdnn"
        )
        return made
