"""Instructions that fetch a line ahead of its use: they change no value and no register."""

from __future__ import annotations

from isa_models.algebra import Value
from isa_models.instruction import define, example
from isa_models.x86.widths import PREFETCH, PREFETCH_W, Widths


def _prefetch(name: str, ahead: str, widths: Widths, source: str, text: str) -> None:
    @define(
        name,
        "u8 <- u8",
        widths,
        source,
        native=False,
        moves=True,
        ahead=ahead,
        timed_as="prefetcht0",
        registers=False,
        doc=example(name, text, "[1]", "[1]"),
    )
    def fetch(a: Value) -> Value:
        return a


_prefetch(
    "prefetcht0",
    "load",
    PREFETCH,
    "Intel SDM Vol. 2B, PREFETCHh",
    "Fetch the line of a byte into the first cache; the bytes stay as they are.",
)
_prefetch(
    "prefetchw",
    "store",
    PREFETCH_W,
    "Intel SDM Vol. 2B, PREFETCHW",
    "Fetch the line of a byte that will be stored to; the bytes stay as they are.",
)
