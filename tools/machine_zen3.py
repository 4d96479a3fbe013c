"""Rows of Zen 3 that measurements on one contradict, each with what replaces it and why."""

from __future__ import annotations

from tools.machine_gathers import moved
from tools.machine_row import ZEN_ALUS, Override, Row

TRANSFER = ("FP4",)  # vectors to memory and to general registers (`core.store_data_ports`)
SHUFFLES = "core: twelve in a chain take 12 cycles; uops.info has 3 at 256 bits, `core.bypass` to and fro among them"
TO_GENERAL = (
    "core: {trip}; in groups of six slots 1.0 cycles with an imul or a cmovz, 1.5 with a shl, 2.0 with two of them "
    "(ALU1 and 2), 1.3, 1.4, 1.5 and 2.0 with one to four lea, so ALU2"
)
FROM_GENERAL = "core: to and fro 6.0 cycles, from address to address with a vector load 9.0 (published: 7 for the load)"
INSERTED = "core: with vmovd to a general register 6.9 cycles, 2.0 from what it is put into"
INSERTED_LOADS = "core: with vpaddd and vmovd 11.0 cycles from address to address, with vpaddd alone 2.0"
LANES_PERMUTED = "core: four and four others that cross take 9.0 to 10.1 cycles, alone 5.4, with vaddps between 4.0"
BROADCAST = "core: in a chain with vpaddd 4.1 cycles (two of them `core.bypass`), with vaddps 4.2, with itself 1.7"
CONVERTED = "core: with vmovd 10.0 cycles either way, to and fro 13.0"
SIGNED_LOADS = "core: 4.9 cycles from address to address, mov and movzx 3.9; taken as an ALU's, as on Zen 4"
TWO_ALUS = (
    "core: four and eight cmovz take 2.3 and 4.5 cycles, beside as many shifts, 2, 3 and 4, 1.5, 2.0 and 3.0, so not "
    "on the same two"
)
DIVISION = (
    "core: beside 12 and 20 vmulps one takes the 7.0 and 10.9 cycles of two more, vdivpd too; latency is uops.info's"
)
#: to general registers: latencies of round trips with vmovd, which takes 4 the other way
TRANSFERS: list[Override] = [
    (mnemonics, forms, {"latency": latency, "uops": (*uops, ("ALU2",)), "source": source})
    for mnemonics, forms, latency, uops, source in (
        ("vmov[dq]", "r(32|64),xmm", 2, (TRANSFER,), TO_GENERAL.format(trip="to and fro 6.0 cycles")),
        ("v?pmovmskb|v?movmskp[sd]", "r32,xmm", 2, (TRANSFER,), TO_GENERAL.format(trip="with vmovd 6.0 cycles")),
        ("v?pmovmskb|v?movmskp[sd]", "r32,ymm", 4, (TRANSFER,), TO_GENERAL.format(trip="with vmovd 8.0 cycles")),
        (
            "vpextr[bwdq]|vextractps",
            "r(32|64),xmm,i8",
            3,
            (("FP1", "FP2"), TRANSFER),
            TO_GENERAL.format(trip="with vmovd 6.9 cycles, with vpinsrd 8.0"),
        ),
    )
]
ZEN3: list[Override] = [
    ("vshufps|vunpck[lh]ps|vblendps|vmovddup|vmovs[hl]dup", "ymm,.*", {"latency": 1, "source": SHUFFLES}),
    ("vpermilps", "ymm,(ymm|m256),i8", {"latency": 1, "source": SHUFFLES}),
    (
        "vpermilps",
        "ymm,ymm,(ymm|m256)",
        {"latency": 3, "source": "core: twelve in a chain by the indices take 36 cycles; uops.info has 5 at 256 bits"},
    ),
    ("vperm(d|ps)", "ymm,ymm,ymm", {"interval": 1.25, "source": LANES_PERMUTED}),
    ("vbroadcasts[sd]", "ymm,xmm", {"latency": 1, "source": BROADCAST}),
    ("vpbroadcast[bwdq]", "ymm,xmm", {"latency": 2, "source": BROADCAST}),
    ("vextract[fi]128", "m128,ymm,i8", {"interval": 1.0, "source": "core: four and eight of registers take 12.0"}),
    ("vpinsr[bwdq]", "xmm,xmm,m(8|16|32|64),i8", {"latency": 1, "source": INSERTED_LOADS, "confidence": "measured"}),
    ("bsr", "r64,r64", {"interval": 4.0, "source": "core: 24 take 97 cycles"}),
    ("movbe", "r\\d+,m\\d+", {"latency": 1, "source": "core: 5.0 cycles from address to address, mov 3.9"}),
    ("sh[lr]|sar|ro[lr]", "r64,cl", {"latency": 1, "source": "core: four in a chain take 3.6 to 4.1 cycles"}),
    ("cmovz|setz|adc|sbb", "r64,r64|r8", {"uops": (("ALU0", "ALU3"),), "confidence": "estimated", "source": TWO_ALUS}),
    ("movsxd", "r64,m32", {"uops": (ZEN_ALUS,), "latency": 1, "source": SIGNED_LOADS}),
    *TRANSFERS,
    ("vmov[dq]", "xmm,r(32|64)", {"latency": 4, "confidence": "measured", "source": FROM_GENERAL}),
    ("vpinsr[bdw]", "xmm,xmm,r32,i8", {"latency": 5, "accumulator_latency": 2, "source": INSERTED}),
    ("vpinsrq", "xmm,xmm,r64,i8", {"latency": 5, "accumulator_latency": 2, "source": INSERTED}),
    ("vcvtsi2s[sd]", "xmm,xmm,r(32|64)", {"latency": 7, "source": CONVERTED}),
    ("vcvtt?s[sd]2si", "r(32|64),xmm", {"latency": 6, "source": CONVERTED}),
    ("v(div|sqrt)[ps][sd]", "[xy]mm.*", {"occupancy": 2, "confidence": "estimated", "source": DIVISION}),
]
G = "core: cycles for one where pointers move, latency from the index, and from what the destination held"
ZEN3 += [
    moved("vp?gatherd(ps|d)", "ymm,m32,ymm", 11, 21, 8, G),
    moved("vp?gatherd(ps|d)", "xmm,m32,xmm", 5.8, 14.5, 4, G),
    moved("vp?gatherq(ps|d)", "xmm,m32,xmm", 5, 15, 3, G),
    moved("vp?gatherd(pd|q)", "ymm,m64,ymm", 5.8, 14.5, 4, G),
    moved("vp?gatherq(pd|q)", "ymm,m64,ymm", 5.75, 16.5, 4, G),
    moved("vp?gather[dq](pd|q)", "xmm,m64,xmm", 4, 12.3, 3, G),
]
ZEN3_ADDED = [Row("movsx", form, 1, 1, (ZEN_ALUS,), SIGNED_LOADS, "measured") for form in ("r64,m8", "r64,m16")]
