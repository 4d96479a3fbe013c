"""The lower part of `simdnn run --help`: precision modes by kind; and the columns of its tables, for `simdnn list`."""

from __future__ import annotations

from simdnn.kernels.common.scaled import RULES
from simdnn.networks.narrow_weights import NARROW_MODES
from simdnn.networks.precision import MODES, Mode

_USUAL = "modes, where none is named (those that the machine has; on GPUs f16, too)"
_MORE = "more of them (`simdnn list modes` tells each; names in mx…: also with -ceil, -even, -rceil)"
_LAST = (
    "columns: `simdnn list columns` tells each. A terminal shows those that find a place there and are not alike in "
    "all rows; --wide shows all. A model stored in integers on several CPUs has also a table of where their outputs "
    "part.\n\n"
    "Exit status: 0; 1 where a layer was refused or something failed; 2 for wrong usage."
)

#: the columns of a run's tables by their names in files, and what each says
COLUMNS = {
    "machine": "where several are named",
    "layer": "a layer's name; in the totals the row is of the whole workload",
    "op": "the node's operator, of a model",
    "count": "how often the workload has the layer",
    "mode": "the precision mode",
    "phase": "of a language model: the prompt, or one token more",
    "implementation": "the kernel that ran, as `simdnn list kernels` has it; in the totals, how many",
    "accuracy": "share of labelled samples that are classified as labelled",
    "tokens_per_s": "of a language model",
    "speed_up": "cycles of f32 over those of this mode; of a model stored in integers, cycles as stored",
    "computes": "types of the products, by multiply-accumulates",
    "cycles": "of one occurrence of a layer; in the totals, of all",
    "cycles_mb1": "of a sample that comes alone",
    "time_us": "cycles at the clock of that kind of code, in microseconds",
    "gops": "1e9 operations a second; a multiply-accumulate is two",
    "gb_s": "1e9 bytes a second: inputs and outputs once each, over the time",
    "bound": "what sets the time: compute, latency, front-end, L1, L2, L3, DRAM, launch",
    "share_of_peak": "share of one core's multiply-accumulates in the mode",
    "max_abs_error": "the largest error against the f32 mode on the same data; in the totals, of a network's outputs",
    "sqnr_db": "signal over error against the f32 mode, in decibels; in the totals, of a network's outputs",
    "worst_layer_sqnr_db": "in the totals: of the layer that is worst",
    "saturated_share": "share of outputs that met a saturating step on the way to the accumulator (pairs in 16 bits)",
    "halved_share": "share of outputs whose weights were halved (s8 convolutions without VNNI)",
    "rounded_share": "share of outputs whose sums were beyond 2**24 when they became f32",
    "wrapped_share": "share of outputs whose sums were beyond 32 bits",
    "clipped_share": "share of outputs beyond the destination's type",
    "values_of": "the machine whose quality a row shows (--values-of)",
    "confidence": "the weakest standing of any machine figure used: measured, documented, estimated",
}


def kind_of(mode: Mode) -> str:
    """The kind of a mode, by what it makes smaller."""
    sources = NARROW_MODES[mode.narrow].reads if mode.narrow else ""
    if mode.src == "f32" != mode.weights and not sources:
        return "stored weights"
    if mode.narrow:
        return "small floats"
    if mode.fpmath:
        return "f32 data"
    return "integers" if mode.src in ("u8", "s8") else "floats"


def _names_a_rule(mode: Mode) -> bool:
    """Whether scales of blocks are found by another rule than that of OCP's specification."""
    rule = NARROW_MODES[mode.narrow].weights.scale if mode.narrow else ""
    return rule in RULES and rule != "floor"


def epilog() -> str:
    """Modes by kind, each by its name, those that run by default with their titles."""
    usual = [f"  {mode.name:14}  {mode.title}" for mode in MODES.values() if mode.default]
    kinds: dict[str, list[str]] = {}
    for mode in MODES.values():
        if not mode.default and not _names_a_rule(mode):
            kinds.setdefault(kind_of(mode), []).append(mode.name)
    others = [f"  {kind:14}  {' '.join(names)}" for kind, names in kinds.items()]
    return "\n".join([_USUAL, *usual, "", _MORE, *others, "", _LAST])
