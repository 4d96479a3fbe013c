"""A model brought to a newer operator set, where an old one lacks a type or an attribute."""

from __future__ import annotations

from typing import TYPE_CHECKING

from simdnn.networks.load import onnx_package

if TYPE_CHECKING:
    import onnx

DOMAINS = ("", "ai.onnx")


def version(model: onnx.ModelProto) -> int:
    """The opset of the standard operators."""
    return next((o.version for o in model.opset_import if o.domain in DOMAINS), 1)


def raised(model: onnx.ModelProto, least: int) -> tuple[onnx.ModelProto, str]:
    """The model at opset `least` or above, by onnx's own converter; where that fails, as it is, with the reason."""
    if version(model) >= least:
        return model, ""
    package = onnx_package()
    try:
        made = package.version_converter.convert_version(model, least)
        package.shape_inference.infer_shapes(made)  # what the converter got wrong shows here rather than when it runs
    except Exception as error:  # the C++ side's errors have no documented type
        return model, " ".join(str(error).split())[:120]
    return made, ""
