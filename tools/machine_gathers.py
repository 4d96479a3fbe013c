"""Rows of gathers and scatters that measurements contradict, each with what replaces it and why."""

from __future__ import annotations

from collections.abc import Iterator

from tools.machine_row import Override

#: a gather's mnemonics, form and cycles: from index or mask to the result where lanes lie apart, and on a Redwood Cove
#: where all read one address; one there
LANES: list[tuple[str, str, float, float, float]] = [
    ("vp?gatherd(ps|d)", "xmm,m32,xmm", 22, 28, 2.28),
    ("vp?gatherd(ps|d)", "ymm,m32,ymm", 24, 30, 4.1),
    ("vp?gather([dq](pd|q)|q(ps|d))", "xmm,m(32|64),xmm", 20, 20, 2.08),
    ("vp?gather[dq](pd|q)", "ymm,m64,ymm", 23, 29, 2.44),
    ("vp?gatherd(ps|d)", "xmm\\{k\\},m32", 21, 27, 2.16),
    ("vp?gatherd(ps|d)", "ymm\\{k\\},m32", 23, 29, 4.1),
    ("vp?gatherd(ps|d)", "zmm\\{k\\},m32", 26, 32, 8.2),
    ("vp?gather([dq](pd|q)|q(ps|d))", "xmm\\{k\\},m(32|64)", 19, 19, 2.16),
    ("vp?gather[dq](pd|q)", "ymm\\{k\\},m64", 22, 28, 2.16),
    ("vp?gather[dq](pd|q)", "zmm\\{k\\},m64", 23, 29, 4.1),
    ("vp?gatherq(ps|d)", "ymm\\{k\\},m32", 23, 29, 4.1),
]


def redwood_cove_gathers() -> Iterator[Override]:
    """Gathers on a Redwood Cove, where all lanes read one address."""
    for mnemonics, form, apart, latency, interval in LANES:
        source = f"rwc: one in {interval} cycles where all lanes read one address, {latency} from index or mask to the "
        source += f"result ({apart} where they lie apart, as InstLatx64 has it of an Alder Lake)"
        yield mnemonics, form, {"interval": interval, "latency": latency, "source": source}


#: of a client's core, whose rows a Golden Cove has
GOLDEN_COVE_GATHERS: list[Override] = [
    (
        mnemonics,
        form,
        {
            "latency": apart,
            "confidence": "documented",
            "source": f"InstLatx64 of an Alder Lake: {apart} in a chain, as a Redwood Cove takes",
        },
    )
    for mnemonics, form, apart, *_ in LANES
]
GATHERS = (
    "core: cycles for one where pointers move (the middle of five processes; to a fifth less where none does), "
    "latency from the index, and from what the destination held; its uops are of 256 bits at most"
)


def moved(
    mnemonics: str, form: str, cycles: float, latency: float = 1, kept: float = 1, source: str = GATHERS
) -> Override:
    """A gather or scatter: cycles for one, from its index or mask to the result, and from what its destination held."""
    figures = {"interval": cycles, "occupancy": 1, "latency": latency, "source": source}
    return mnemonics, form, figures | ({"accumulator_latency": kept} if kept < latency else {})


ZEN4_GATHERS = [
    moved("vp?gatherd(ps|d)", "ymm,m32,ymm", 10.55, 20, 8),
    moved("vp?gatherd(ps|d)", "xmm,m32,xmm", 6, 15, 4),
    moved("vp?gatherq(ps|d)", "xmm,m32,xmm", 5, 15, 4),
    moved("vp?gatherd(pd|q)", "ymm,m64,ymm", 5.9, 15, 4),
    moved("vp?gatherq(pd|q)", "ymm,m64,ymm", 5, 15, 4),
    moved("vp?gather[dq](pd|q)", "xmm,m64,xmm", 4, 12, 3),
    moved("vp?gatherd(ps|d)", "zmm\\{k\\},m32", 21.5, 34, 17),
    moved("vp?gatherd(ps|d)", "ymm\\{k\\},m32", 10.57, 21, 9),
    moved("vp?gatherd(ps|d)", "xmm\\{k\\},m32", 6, 15, 5),
    moved("vp?gatherd(pd|q)", "zmm\\{k\\},m64", 11.15, 24, 11),
    moved("vp?gatherq(pd|q)", "zmm\\{k\\},m64", 11.85, 26, 11.8),
    moved("vp?gatherq(ps|d)", "ymm\\{k\\},m32", 11.6, 23, 11.6),
    moved("vp?gatherq(ps|d)", "xmm\\{k\\},m32", 5, 15, 5),
    moved("vp?gather[dq](pd|q)", "ymm\\{k\\},m64", 5, 15, 5),
    moved("vp?gather[dq](pd|q)", "xmm\\{k\\},m64", 4, 12, 3),
    moved("vp?scatterd(ps|d)", "m32\\{k\\},zmm", 24.45),
    moved("vp?scatterd(ps|d)", "m32\\{k\\},ymm", 12),
    moved("vp?scatterq(ps|d)", "m32\\{k\\},ymm", 12.4),
    moved("vp?scatterd(pd|q)", "m64\\{k\\},zmm", 10.7),
    moved("vp?scatterq(pd|q)", "m64\\{k\\},zmm", 12.8),
    moved("vp?scatter[dq](ps|d)", "m32\\{k\\},xmm", 7),
    moved("vp?scatterd(pd|q)", "m64\\{k\\},ymm", 6),
    moved("vp?scatterq(pd|q)", "m64\\{k\\},ymm", 7),
    moved("vp?scatter[dq](pd|q)", "m64\\{k\\},xmm", 4),
]
