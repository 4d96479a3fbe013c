"""Schemas: how ONNX describes an operator in an operator set, and whether a node has the inputs and attributes that it
asks for.
"""

from __future__ import annotations

from functools import cache, lru_cache
from typing import Any

_MANY = 1000  # more inputs than a schema without an end counts
_KINDS = {1: "float", 2: "int", 3: "str", 6: "a list of floats", 7: "a list of integers", 8: "a list of texts"}
_INTERNAL = "__"  # begins names of attributes that runtimes set for themselves (`isInternalSymbol`)


@lru_cache(maxsize=1024)
def find(name: str, version: int, domain: str = "") -> Any:
    """The onnx package's record of an operator; None where it has none in that operator set."""
    import onnx.defs

    try:
        return onnx.defs.get_schema(name, version, domain)
    except Exception:  # what the C++ side raises has no documented type
        return None


@cache
def names() -> frozenset[str]:
    """The operators of all operator sets that the onnx package has records of."""
    import onnx.defs

    return frozenset(schema.name for schema in onnx.defs.get_all_schemas())


def wrong_inputs(proto: Any, version: int, domain: str) -> str:
    """The fault of a node's inputs in words; empty where they fit, or where ONNX does not know the operator."""
    asked = find(proto.op_type, version, domain)
    if asked is None:
        return ""
    least, most, given = asked.min_input, asked.max_input, len(proto.input)
    if not least <= given <= most:
        allowed = str(least) if least == most else f"{least} or more" if most > _MANY else f"{least} to {most}"
        return f"has {given} inputs; {proto.op_type} takes {allowed}"
    left_out = (port.name for port, name in zip(asked.inputs, proto.input, strict=False) if not name and _must(port))
    return next((f"leaves out input {name!r}, which {proto.op_type} needs" for name in left_out), "")


def wrong_attributes(proto: Any, version: int, domain: str) -> str:
    """The fault of a node's attributes in words; empty where they fit, or where ONNX does not know the operator."""
    allowed = _attributes(proto.op_type, version, domain)
    if allowed is None:
        return ""
    for given in proto.attribute:
        if given.name.startswith(_INTERNAL):
            continue
        if given.name not in allowed:
            return f"has attribute {given.name!r:.60}, which {proto.op_type} has not in operator set {version}"
        if given.type != allowed[given.name][0]:
            kind = _KINDS.get(allowed[given.name][0], "another kind")
            return f"has attribute {given.name}={_value(given)!r:.60}; {kind} is needed"
    names = {given.name for given in proto.attribute}
    missing = (name for name, (_, needed) in allowed.items() if needed and name not in names)
    return next((f"leaves out attribute {name!r}, which {proto.op_type} needs" for name in missing), "")


def _value(attribute: Any) -> Any:
    """An attribute's value as a message shows it."""
    import onnx.helper

    found = onnx.helper.get_attribute_value(attribute)
    return found.decode("utf-8", "replace") if isinstance(found, bytes) else found


@lru_cache(maxsize=1024)
def _attributes(name: str, version: int, domain: str) -> dict[str, tuple[int, bool]] | None:
    """Attributes by name: the number of the type (onnx.proto, AttributeType), and whether a node must have it."""
    asked = find(name, version, domain)
    return asked and {name: (int(a.type.value), bool(a.required)) for name, a in asked.attributes.items()}


def _must(port: Any) -> bool:
    """Whether a formal input may not be left out."""
    return bool(port.option == type(port.option).Single)
