"""benchdnn's command language: options and problem descriptors read, each problem answered with a result or a reason.

The syntax is that of oneDNN 3.13's benchdnn (its documents knobs_*.md, driver_matmul.md, driver_conv.md, driver_ip.md).
"""

from simdnn.benchdnn.answer import Answer, answer
from simdnn.benchdnn.options import Case, Line, Unread, read
from simdnn.benchdnn.subset import SUBSET

__all__ = ["SUBSET", "Answer", "Case", "Line", "Unread", "answer", "read"]
