"""Rows of Zen 3 that measurements on one contradict, each with what replaces it and why."""

from __future__ import annotations

from tools.machine_row import Override

SHUFFLES = "core: twelve in a chain take 12 cycles; uops.info has 3 at 256 bits, behind an operation on floats"
ZEN3: list[Override] = [
    ("vshufps|vunpck[lh]ps|vblendps|vmovddup|vmovs[hl]dup", "ymm,.*", {"latency": 1, "source": SHUFFLES}),
    ("vpermilps", "ymm,(ymm|m256),i8", {"latency": 1, "source": SHUFFLES}),
    (
        "vpermilps",
        "ymm,ymm,(ymm|m256)",
        {"latency": 3, "source": "core: twelve in a chain by the indices take 36 cycles; uops.info has 5 at 256 bits"},
    ),
    ("vperm(d|ps)", "ymm,ymm,(ymm|m256)", {"interval": 1.33, "source": "core: 24 take 31.9 cycles"}),
    ("bsr", "r64,r64", {"interval": 4.0, "source": "core: 24 take 97 cycles"}),
]
