"""Roles of tensors (`Tensor.role`) that are named after an argument, or after a parameter of the epilogue."""

from __future__ import annotations

from simdnn.program.records import SCALES, SOURCE, WEIGHTS, ZEROS

ARGUMENTS = {"src": SOURCE, "wei": WEIGHTS}
PARAMETERS = {
    "comp": ZEROS,
    "terms": ZEROS,
    "zp_src": ZEROS,
    "dst_zero_point": ZEROS,
    **dict.fromkeys(("src_scale", "wei_scale", "dst_scale"), SCALES),
}
