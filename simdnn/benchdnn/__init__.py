"""benchdnn's command language: options and problem descriptors read, each problem answered with a result or a reason.

The syntax is that of oneDNN 3.13's benchdnn (its documents knobs_*.md, driver_matmul.md and driver_conv.md).
"""

from simdnn.benchdnn.answer import Answer, answer
from simdnn.benchdnn.options import Case, Line, read
from simdnn.benchdnn.subset import SUBSET

__all__ = ["SUBSET", "Answer", "Case", "Line", "answer", "read"]
