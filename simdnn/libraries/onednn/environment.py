"""The cap that oneDNN's own variables of the environment set."""

from __future__ import annotations

from isa_models import InvalidArgument, Unimplemented
from isa_models.host.environment import variables
from isa_models.isa import caps

VARIABLES = ("ONEDNN_MAX_CPU_ISA", "DNNL_MAX_CPU_ISA")  # the first that is set counts
_ALL = ("DEFAULT", "ALL", "")
#: words of the variables that are other names of a cap
_ALIAS = {
    "AVX10_1_512": "avx512_core_fp16",
    "AVX10_1_512_AMX": "avx512_core_amx",
    "AVX10_1_512_AMX_FP16": "avx512_core_amx_fp16",
}


def most_isa() -> str:
    """The strongest ISA cap that the environment lets the library use; "" where it leaves that open.

    Raises `Unimplemented` for caps that are not known here, `InvalidArgument` for words that are none of the library's.
    """
    given = next((text for text in variables(VARIABLES) if text is not None), "").strip().upper()
    if given in _ALL:
        return ""
    known = _ALIAS.get(given, given.lower())
    if known in caps():
        return known
    said = f"ONEDNN_MAX_CPU_ISA={given[:40]}"
    works = ", ".join(("AVX2", "AVX2_VNNI", "AVX512_CORE", "…_VNNI", "…_BF16", "…_FP16", "…_AMX", "DEFAULT"))
    if given in ("AVX", "AVX2_VNNI_2") or given.startswith("AVX10_2"):
        raise Unimplemented(f"{said}: a cap that is not modelled; what works: {works}")
    raise InvalidArgument(f"{said}; what oneDNN knows, and what works here: {works}")
