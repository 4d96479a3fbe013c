"""Rows that measurements contradict, each with what replaces it and why, and the tile instructions' rows."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from tools.machine_row import Row

FP12 = ("FP1", "FP2")
LANE = "core: on FP1 and FP2, latency measured; uops.info has FP0 to FP3 and 1 cycle"
# machine -> (mnemonic pattern, form pattern) -> changed fields. The reason is the source.
FMA = ("vfn?madd(132|213|231)ps", "zmm(\\{k\\})?,zmm,(zmm|m512|m32bcst)")
SERVER_FMA = {"latency": 4, "source": "InstLatx64 on Cascade Lake: 4 cycles; uops.info has 4 to 5 by operand"}
TWO_ALUS = {
    "uops": (("ALU0", "ALU3"),),
    "confidence": "estimated",
    "source": "uops: two a cycle; core: 4 of them and 4 shifts take 2.6 cycles, so not on the same two",
}
LANES_OF_ONE_ADDRESS = (
    "emr: one in 4.08 cycles where all lanes read one address, as rwc has it of 8 lanes of 32 bits (emr 4.10 there); "
    "3.0 where they lie apart"
)
DIVISION = (
    "core: beside 12 and 20 vmulps one takes 2.0 cycles of their ports, 4.0 at 512 bits (vdivpd 5.9); the rest is "
    "uops.info's, latency an upper bound"
)
ZEN_SCALARS: list[tuple[str, str, dict[str, Any]]] = [
    ("sh[lr]|sar|ro[lr]", "r64,cl", {"latency": 1, "source": "core: 1 cycle from the register and from cl"}),
    ("cmovz|setz|adc|sbb", "r64,r64|r8", TWO_ALUS),
]
_F16_EXTREMES, _F16_SUMS = "v(max|min)[ps]h", "v(add|sub|mul|fn?m(add|sub)(132|213|231))[ps]h"
_F16_FOUR: dict[str, Any] = {
    "latency": 4,
    "accumulator_latency": None,
    "source": "emr: chains of vaddph, vsubph, vmulph, vmaxph, vfmadd213ph, vfmadd231ph, vaddsh, vmulsh and "
    "vfmadd231sh take 4.00 cycles a step up to 256 bits",
}
GOLDEN_COVE: list[tuple[str, str, dict[str, Any]]] = [
    ("vmov[dq]", "r(32|64),xmm|xmm,r(32|64)", {"latency": 2, "source": "emr: to and fro 4.0 cycles"}),
    ("and|or|xor", "r64,i(8|32)", {"latency": 1, "source": "emr: 12 of them in a chain take 12.0 cycles"}),
    (_F16_EXTREMES, "[xy]mm.*", _F16_FOUR),
    (
        "vcvtps2ph",
        "m256(\\{k\\})?,zmm,i8",
        {
            "interval": 1.0,
            "source": "emr: one in 1.00 cycles (256 bits 0.54), so on rwc; four, and four vmulps beside them, in 4.00",
        },
    ),
]
#: what Redwood Cove has otherwise; from one 512-bit unit to the other is `core.other_unit`'s
REDWOOD_COVE: list[tuple[str, str, dict[str, Any]]] = [
    (
        "vmul[ps][sd]",
        ".*",
        {
            "latency": 3,
            "source": "rwc: 256 bits 3; a chain of 512 bits 3.5 a step: 3 on one unit, 4 from one to the other",
        },
    ),
    (
        _F16_SUMS,
        ".*",
        {
            "latency": 4,
            "accumulator_latency": None,
            "source": "rwc: vmulph, vaddph, vfmadd231ph 4 cycles at 256 bits, chains of 512 bits 4.1 to 5.3",
        },
    ),
    (
        "vpdp(busd|wssd)s?|vpmadd(wd|ubsw)|vpmul(hu?|l)w",
        "zmm.*",
        {
            "latency": 5,
            "accumulator_latency": None,
            "source": "rwc: vpdpbusd, vpmaddwd: one chain 5.44 a step, two 5.05, 256 bits 5: 1 from unit to unit",
        },
    ),
    (
        "vpmulld",
        "zmm.*",
        {"latency": 10, "source": "rwc: as other products, a cycle from unit to unit apart", "confidence": "estimated"},
    ),
    (
        "vpbroadcast[bw]",
        "[xyz]mm(\\{k\\})?,m(8|16)",
        {"uops": (), "latency": 0, "source": "rwc: vpbroadcastw, 2 (512 bits) and 3 (256 bits) a cycle: no port's"},
    ),
    (
        "vcvtps2ph",
        "m128(\\{k\\})?,ymm,i8",
        {"uops": (("p0", "p1"), ("p5",)), "source": "rwc: one in a cycle to memory, as from a register"},
    ),
    ("vp?gatherd(ps|d)", "zmm.*", {"interval": 8.2, "source": "rwc: one in 8.2 cycles"}),
    ("vp?gatherd(ps|d)", "ymm.*", {"interval": 4.1, "source": "rwc: one in 4.1 cycles"}),
    ("vp?gather[dq](pd|q)", "zmm.*", {"interval": 4.1, "source": LANES_OF_ONE_ADDRESS, "confidence": "estimated"}),
    ("vp?gatherq(ps|d)", "ymm.*", {"interval": 4.1, "source": LANES_OF_ONE_ADDRESS, "confidence": "estimated"}),
]
OVERRIDES: dict[str, list[tuple[str, str, dict[str, Any]]]] = {
    "skx": [(*FMA, SERVER_FMA)],
    "clx": [(*FMA, SERVER_FMA)],
    "zen4": [
        *ZEN_SCALARS,
        (
            "vbroadcasts[sd]",
            "zmm(\\{k\\})?,m(32|64)",
            {
                "uops": (("FP2",),),
                "occupancy": 1,
                "confidence": "estimated",
                "source": "core: one a cycle; uops.info has FP1 and FP2, but 5 x 4 tiles of multiply-adds lose nothing "
                "to them",
            },
        ),
        (
            "vpternlog[dq]",
            ".*i8",
            {"latency": 1, "source": "core: eight in a chain take 8.0 cycles, by the destination and by a source"},
        ),
        ("vextract[if]128", "(xmm|m128),ymm,i8", {"latency": 3, "uops": (FP12,), "source": LANE, "interval": 0}),
        ("vextract[if]32x4", "(xmm|m128),ymm,i8", {"latency": 3, "uops": (FP12,), "source": LANE, "interval": 0}),
        ("vextract[if](64x4|32x8)", "(ymm|m256),zmm,i8", {"latency": 4, "uops": (FP12,), "source": LANE}),
        (
            "vcvtps2ph",
            "m256,zmm,i8",
            {"interval": 1.67, "source": "core: six in 10.0 cycles, like microcode; uops.info 1.50"},
        ),
        (
            "vcvtps2ph",
            "m128,ymm,i8",
            {"interval": 2.0, "source": "core: six in 12.0 cycles, like microcode; uops.info 2.00"},
        ),
        ("v(div|sqrt)[ps][sd]", "[xy]mm.*", {"occupancy": 2, "confidence": "estimated", "source": DIVISION}),
        ("v(div|sqrt)p[sd]", "zmm.*", {"occupancy": 4, "confidence": "estimated", "source": DIVISION}),
        ("vdivpd", "zmm.*", {"occupancy": 6, "confidence": "estimated", "source": DIVISION}),
    ],
    "zen5": ZEN_SCALARS,
    "spr": [*GOLDEN_COVE, (_F16_SUMS, "[xy]mm.*", _F16_FOUR)],
    "gnr": [*GOLDEN_COVE, *REDWOOD_COVE],
}
# Tile instructions, which no table of uops lists. "optman": Intel's Optimization Reference Manual 248966-050, Table
# 20-2, read at second hand; "bench": a third party's measurements on a Xeon 6962P. Loads and stores of a tile's lines
# are `[core]`'s. LLVM 19's rows (latency 100, throughput 0.25) are placeholders and were left aside.
PRODUCTS = ("tdpbf16ps", "tdpbssd", "tdpbsud", "tdpbusd", "tdpbuud")
SUM = "from accumulator to accumulator 16, as a chain of tdpbf16ps on one tile takes 16.2 to 16.4 a product (bench"
LINES = "its lines are loads; latency 45 from memory is often quoted and was not read: less some 14 of its lines"
BEHIND = "latency as the throughput: 4 products and 4 stores of their sums take 116 cycles"


def tile_rows(
    products: Iterable[str], product: str, chain: float, load: str, stored: str, zero: str, config: Row
) -> list[Row]:
    """The rows of a machine with AMX; `chain`: cycles from sum to sum; the words are where its figures come from."""
    unit = [
        Row(name, "tmm,tmm,tmm", 52, 1, (("TMUL",),), product, "estimated", occupancy=16, accumulator_latency=chain)
        for name in products
    ]
    moves = [
        Row("tileloadd", "tmm,m8192", 31, 1, (), f"{load}; {LINES}", "estimated"),
        Row(
            "tileloaddt1",
            "tmm,m8192",
            31,
            1,
            (),
            f"as tileloadd, its lines apart from L1: {load}; {LINES}",
            "estimated",
        ),
        Row("tilestored", "m8192,tmm", 16, 1, (("p4",),), f"{stored}; {BEHIND}", "estimated", occupancy=16),
        Row("tilezero", "tmm", 0, 1, (), zero, "documented"),
    ]
    return [*unit, *moves, config]


TILES = {
    "spr": tile_rows(
        PRODUCTS,
        "emr: one in 16.1 cycles, from a source 52.8 (optman: 52), from the accumulator 16.3",
        16,
        "emr: one in 8.4 cycles",
        "emr: one in 16.0 cycles, a line a cycle",
        "emr: one in 0.25 cycles; taken as done at rename",
        Row(
            "ldtilecfg",
            "m512",
            201,
            1,
            (("p0",),),
            "emr: one in 201 cycles; taken as the latency, too",
            "estimated",
            interval=201,
        ),
    ),
    "gnr": tile_rows(
        (*PRODUCTS, "tdpfp16ps"),
        f"as Sapphire Rapids (optman: latency 52), for f16 too; rwc: 16.66 a round on one tile, "
        f"its two loads beside; {SUM})",
        16.66,
        "bench: one in 8.4 cycles",
        "bench: one in 16.1 cycles, a line a cycle",
        "bench: 0.50 cycles; taken as done at rename",
        Row(
            "ldtilecfg",
            "m512",
            204,
            1,
            (("p0",),),
            "bench: one in 182 to 216 cycles; latency as Sapphire Rapids",
            "estimated",
            interval=199,
        ),
    ),
}
