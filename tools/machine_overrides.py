"""Rows that measurements contradict, each with what replaces it and why, and rows that no table of uops lists."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from tools.machine_gathers import GOLDEN_COVE_GATHERS, ZEN4_GATHERS, redwood_cove_gathers
from tools.machine_row import ZEN_ALUS, ZEN_STORES, Override, Row
from tools.machine_zen3 import ZEN3, ZEN3_ADDED

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
DIVISION = (
    "core: beside 12 and 20 vmulps one takes 2.0 cycles of their ports, 4.0 at 512 bits (vdivpd 5.9); the rest is "
    "uops.info's, latency an upper bound"
)
ZEN_SCALARS: list[Override] = [
    ("movbe", "r\\d+,m\\d+", {"latency": 1, "source": "uops: 5 cycles of 32 and 64 bits, a load's and one"}),
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
_SIGNED_LOAD: Override = (
    "movsxd",
    "r64,m32",
    {
        "latency": 1,
        "source": "emr: one in 0.51 cycles; on a Redwood Cove 12 of them, of any width, each at the address that "
        "the one before loaded, take 72.0 cycles (movzx, mov 60.0); uops: latency up to 6, movzx up to 5",
        "confidence": "estimated",
    },
)
GOLDEN_COVE: list[Override] = [
    _SIGNED_LOAD,
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
EXCHANGED = (
    "rwc: cmpxchg of registers 5 cycles, in memory 4, and one for what stands between two, which is taken (three 16.0, "
    "with a mov each 18.0; four in memory 17.1 and 20.0); 6 from rax to rax"
)
MASKS = "with vmovd and 15 operations under the mask, or behind ten comparisons, a cycle less than with 3"
XADD = "rwc: one on one place 1.13 cycles, four on four lines 4.0, with 1 to 8 nops as four slots: from store to load 0"
HALVES_WIDENED = "rwc: in a chain with vpabsd 9.0 (ymm) cycles, 1 of them vpabsd's and 1 core.bypass's"
HALVES_LOADED = (
    "rwc: from address to address, with vpermd (3, and 1 of core.bypass) and vmovq (2) 17.0 cycles, of 128 bits with "
    "vpshufd 15.0, 6 the load's"
)
SCATTERS = (
    "rwc: 3 cycles and half of one a lane, one for its mask and one for whatever else stands between two (16, 8 and 4 "
    "lanes 12.0, 8.0, 6.0, with a load, a sum or one to eight nops 13.0, 9.1, 7.0, which is taken), lanes of one "
    "address and apart alike, but 16 lanes in 16 lines 16.1; its stores among the cycles"
)


def _scatters() -> Iterator[Override]:
    """The cycles of each form of a scatter, which go by its lanes."""
    for mnemonics, form, lanes in (
        ("v(pscatterdd|scatterdps)", "m32\\{k\\},zmm", 16),
        ("v(pscatter[dq]d|scatter[dq]ps)", "m32\\{k\\},ymm", 8),
        ("v(pscatterdd|scatterdps)", "m32\\{k\\},xmm", 4),
        ("v(pscatter[dq]q|scatter[dq]pd)", "m64\\{k\\},zmm", 8),
        ("v(pscatter[dq]q|scatter[dq]pd)", "m64\\{k\\},ymm", 4),
        ("v(pscatter[dq]q|scatter[dq]pd)", "m64\\{k\\},xmm", 2),
    ):
        uops = (("p0",), ("p0",) if "zmm" in form else ("p0", "p1"), ("p0", "p1", "p5", "p6", "pB"))
        yield mnemonics, form, {"interval": 5 + lanes / 2, "uops": uops, "source": SCATTERS}


#: what Redwood Cove has otherwise; from one 512-bit unit to the other is `core.other_unit`'s
REDWOOD_COVE: list[Override] = [
    (
        "sha256msg1",
        "xmm,xmm",
        {"interval": 4.5, "source": "rwc: six independent ones 27.0 cycles, four in a chain 21.9"},
    ),
    (
        "sha256rnds2",
        "xmm,xmm",
        {"latency": 6, "source": "rwc: from source to result 6 cycles; from its destination 4, which is not modelled"},
    ),
    ("sha1msg2", "xmm,xmm", {"latency": 5, "source": "rwc: four in a chain take 19.9 cycles"}),
    ("mul", "m8", {"latency": 3, "source": "rwc: one, whose product is a factor of the next, takes 3.0 cycles"}),
    (
        "vdpps",
        "(xmm,xmm,xmm|ymm,ymm,ymm),i8",
        {
            "interval": 5,
            "source": "rwc: four independent ones 20.0 cycles, beside eight products, shuffles or vpand, too",
        },
    ),
    (
        "and|or|xor",
        r"r\d+,m\d+|m(32|64),.*",
        {
            "latency": 1,
            "source": "rwc: four in a chain, each on another word, and four on one place by a constant 4.0 cycles",
        },
    ),
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
        "vpermw",
        "([xyz]mm,){2}([xyz]mm|m128|m256|m512)",
        {"latency": 3, "accumulator_latency": 4, "source": "rwc: four in a chain 12.0 cycles, by the index 16.0"},
    ),
    (
        "vpermt2b",
        "([xyz]mm,){2}([xyz]mm|m128|m256|m512)",
        {"accumulator_latency": 4, "source": "rwc: four in a chain by the first table 16.0 cycles, by the second 20.0"},
    ),
    ("k(or)?test[bwdq]", "k,k", {"latency": 2, "source": "rwc: with setc, cmov or adc and kmov 5.0 cycles"}),
    (
        "vps(ll|rl|ra)[wdq]",
        "(ymm,ymm|zmm,zmm),xmm",
        {"accumulator_latency": 1, "source": "rwc: four in a chain of what is shifted 4.0 cycles"},
    ),
    (
        "vgf2p8affine(inv)?qb",
        "[xyz]mm,.*",
        {"latency": 3, "source": "rwc: four in a chain 12.0 cycles, by either operand"},
    ),
    (
        "vp?(expand(p[sd]|[dq])|compress(p[sd]|[bwdq]))",
        "[xyz]mm\\{k\\},.*",
        {"latency": 3, "source": "rwc: four in a chain 12.0 cycles, by what is moved or kept; from the mask 6"},
    ),
    (
        "vpexpand[bw]",
        "[xyz]mm\\{k\\},.*",
        {"latency": 5, "source": "rwc: four in a chain 20.0 cycles, by what is moved or kept; from the mask 8"},
    ),
    (
        "vfc?m(ul|add)c[ps]h",
        "[xy]mm,.*",
        {"latency": 8, "source": "rwc: four in a chain 32.0 cycles, by an operand and by the sum"},
    ),
    (
        "vfc?m(ul|add)cph",
        "zmm,.*",
        {
            "latency": 10,
            "uops": (("p0", "p5"),) * 2,
            "source": "rwc: eight in 8.0 cycles; four in a chain 41 to 42, core.other_unit's cycles among them",
        },
    ),
    ("kmov[bwdq]", "k,r(32|64)|r(32|64),k", {"latency": 2, "source": f"rwc: four there and back 16.0 cycles, {MASKS}"}),
    (
        "kmovq",
        "k,m64",
        {"latency": 3, "source": "rwc: from address to address, with kmovq (2), 10.0 cycles, 5 the load's"},
    ),
    (
        "vp?blendv(b|p[sd])",
        "[xy]mm,[xy]mm,([xy]mm|m128|m256),[xy]mm",
        {
            "latency": 2,
            "accumulator_latency": 3,
            "source": "rwc: eight in a chain by either source 16.0 cycles, by the signs that choose 24.0",
        },
    ),
    ("bt[src]", "r64,r64", {"latency": 1, "source": "rwc: four in a chain 4.0 cycles, by either operand"}),
    ("vdivps", "[xy]mm,.*", {"latency": 11, "source": "rwc: one in a chain 11.0 cycles, with vshufps 12.0"}),
    ("vsqrtps", "[xy]mm,.*", {"latency": 12, "source": "rwc: one in a chain 12.0 cycles, with vshufps 13.0"}),
    ("vcvtph2ps", "ymm,xmm", {"latency": 7, "source": f"{HALVES_WIDENED}, vpmovzxwd, vpacksswb 11.0, 3 theirs"}),
    ("vcvtph2ps", "xmm,xmm", {"latency": 5, "source": f"{HALVES_WIDENED}, with vpermilps 7.0 (core.bypass: 1)"}),
    ("vcvtph2ps", "[xy]mm,m(64|128)", {"latency": 5, "source": HALVES_LOADED}),
    (
        "vcvtph2psx?",
        "zmm,(ymm|m256)",
        {"interval": 1.07, "source": "rwc: two to eight in 1.06 to 1.08 cycles each, beside as many stores 1.05"},
    ),
    *(
        (mnemonics, form, {"latency": latency, "source": f"rwc: with vmovd {latency + 2}.0 cycles"})
        for mnemonics, form, latency in (
            ("vpmovmskb|vmovmskp[sd]", "r32,xmm", 2),
            ("vpmovmskb", "r32,ymm", 3),
            ("vmovmskp[sd]", "r32,ymm", 4),
        )
    ),
    ("cmpxchg", "r64,r64", {"latency": 6, "interval": 6, "source": EXCHANGED}),
    ("cmpxchg", "m64,r64", {"interval": 5, "source": EXCHANGED}),
    ("xadd", "m64,r64", {"latency": 1, "source": XADD}),
    *_scatters(),
    (
        "vpbroadcastw",
        "[xyz]mm,m16",
        {"uops": (), "latency": 0, "source": "rwc: vpbroadcastw, 2 (512 bits) and 3 (256 bits) a cycle: no port's"},
    ),
    *redwood_cove_gathers(),
]
SIGNED_LOADS = (
    "core: 5 cycles from the address, beside 1 to 5 additions each takes one of the 4 ALUs; movzx 4, and none"
)
TO_GENERAL = (
    "core: to and fro {cycles} cycles; beside 1 to 6 additions it takes as long as four more, so a result of all four "
    "ALUs (products, loads and stores run beside it)"
)
#: to general registers, and from them to masks: latencies of round trips; that of vmovd takes 6
ZEN4_TRANSFERS: list[Override] = [
    (
        mnemonics,
        forms,
        {
            "latency": latency,
            "uops": (*uops, *[(alu,) for alu in ZEN_ALUS]),
            "source": TO_GENERAL.format(cycles=cycles),
        },
    )
    for mnemonics, forms, latency, uops, cycles in (
        ("vmov[dq]", "r(32|64),xmm", 3, (ZEN_STORES,), 6),
        ("kmov[bdw]", "r32,k", 3, (ZEN_STORES,), 9),
        ("kmovq", "r64,k", 4, (ZEN_STORES,), 10),
        ("v?pmovmskb|v?movmskp[sd]", "r32,[xy]mm", 5, (ZEN_STORES,), "with vmovd 8"),
        ("vpextr[bwdq]|vextractps", "r(32|64),xmm,i8", 4, (("FP1", "FP2", "FP3"), ZEN_STORES), "with vpinsrd 8"),
    )
] + [
    ("vmov[dq]", "xmm,r(32|64)", {"latency": 3, "source": "core: to and fro 6 cycles"}),
    ("kmov[bdwq]", "k,r(32|64)", {"latency": 6, "source": "core: to and fro 9 cycles, kmovq 10"}),
]


def _merged(core: str = "") -> Override:
    """movbe into a register of 16 bits, which waits for the rest of it."""
    source = f"uops: MOVBE (R16, M16) MOVBE{core}; latency from the register that it is merged into"
    return "movbe", "r16,m16", {"latency": 1, "source": source, "confidence": "estimated"}


_SWAPPED = "a Redwood Cove: eight of 16 bits to memory take 4.5 cycles (uops.info: one each); latency is an upper bound"
_STORED_SWAPPED: Override = ("movbe", "m16,r16", {"interval": 0.0, "source": _SWAPPED, "confidence": "estimated"})
ZEN_VECTORS: list[Override] = [  # what a Zen 5 was listed with, too
    (
        "vpternlog[dq]",
        ".*i8",
        {"latency": 1, "source": "core: eight in a chain take 8.0 cycles, by the destination and by a source"},
    ),
    ("vextract[if]128", "(xmm|m128),ymm,i8", {"latency": 3, "uops": (FP12,), "source": LANE, "interval": 0}),
    ("vextract[if]32x4", "(xmm|m128),ymm,i8", {"latency": 3, "uops": (FP12,), "source": LANE, "interval": 0}),
    ("vextract[if](64x4|32x8)", "(ymm|m256),zmm,i8", {"latency": 4, "uops": (FP12,), "source": LANE}),
    (
        "vp?expand(p[sd]|[bwdq])",
        "ymm(\\{k\\})?,(ymm|m256)",
        {"interval": 1.0, "source": "core: four in 4.00 cycles"},
    ),
    (
        "valignd|vperm([bdqw]|p[sd]|i2[bdw]|t2([bdw]|ps))",
        "zmm,zmm,(zmm|m512)(,i8)?",
        {"latency": 5, "source": "core: four in a chain take 20.0 cycles, by each source; uops.info has 6"},
    ),
    (
        "vp?(expand|compress)(p[sd]|[bwdq])",
        "zmm,(zmm|m512)",
        {"latency": 5, "source": "core: four in a chain take 20.1 cycles; uops.info has 8"},
    ),
    ("vpconflict[dq]", "zmm,(zmm|m512)", {"latency": 6, "source": "core: four in a chain take 24.0 cycles"}),
    (
        "vshuf(f32x4|i32x4|i64x2)",
        "ymm,ymm,(ymm|m256),i8",
        {"latency": 3, "uops": (FP12,), "source": "core: twelve in 6.0 cycles, four in a chain in 12.0"},
    ),
]


def _chained(mnemonics: str, forms: str, latency: float, **more: Any) -> Override:
    """A latency that InstLatx64 (087af2c) listed on the core itself, where uops.info has another or an upper bound."""
    source = f"InstLatx64: {latency} cycles in a chain; uops.info has more"
    return mnemonics, forms, {"latency": latency, "confidence": "documented", "source": source, **more}


RECIPROCALS = [
    _chained("v(rcp|rsqrt)(14ps|ph)", "(xmm,(xmm|m128)|ymm,(ymm|m256))", 4),
    _chained("v(rcp|rsqrt)(14ps|ph)", "zmm,(zmm|m512)", 6),
]
_CHAINS_OF_F16 = f"{_F16_EXTREMES}|{_F16_SUMS}|vcvtt?ph2u?w|vcvtu?w2ph|vget(exp|mant)[ps]h"
ALDER_LAKE: list[Override] = [
    _chained("v(add|sub)(ps|ss|pd|sd)", "[xy]mm.*", 2),  # 3 into other operations: `late_results`
    _chained(_CHAINS_OF_F16, "[xyz]mm.*", 4, accumulator_latency=None),
    _chained("vfc?m(add|ul)cph|v(rndscale|scalef)[ps]h", "[xyz]mm.*", 8, accumulator_latency=None),
    _chained("vreduce[ps]h", "[xyz]mm.*", 12),
    _chained("sh[lr]x|sarx|rorx", "r64,r64,(r64|i8)", 1, interval=0.0),
    _chained("andn|bls(i|msk|r)|bzhi|bts|or", "r64,r64(,r64)?", 1),
    _chained("bextr", "r64,r64,r64", 2),
    _chained("sh[lr]|sar", "r64,cl", 1),
    *GOLDEN_COVE_GATHERS,
]
OVERRIDES: dict[str, list[Override]] = {
    "hsw": [_merged()],
    "skx": [(*FMA, SERVER_FMA), _merged(), *RECIPROCALS],
    "clx": [(*FMA, SERVER_FMA), _merged(), *RECIPROCALS],
    "icx": [_merged(", client core"), *RECIPROCALS],
    "adl-p": [_merged(), _STORED_SWAPPED, _SIGNED_LOAD, *RECIPROCALS, *ALDER_LAKE],
    "zen3": ZEN3,
    "zen4": [
        *ZEN_SCALARS,
        *ZEN4_GATHERS,
        *ZEN4_TRANSFERS,
        *ZEN_VECTORS,
        ("movsxd", "r64,m32", {"uops": (ZEN_ALUS,), "latency": 1, "source": SIGNED_LOADS}),
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
    "zen5": [*ZEN_SCALARS, *ZEN4_GATHERS, *ZEN_VECTORS],
    "spr": [
        *GOLDEN_COVE,
        _merged(", Alder Lake-P"),
        _STORED_SWAPPED,
        (_F16_SUMS, "[xy]mm.*", _F16_FOUR),
        *GOLDEN_COVE_GATHERS,
    ],
    "gnr": [*GOLDEN_COVE, _merged(", Alder Lake-P"), _STORED_SWAPPED, *REDWOOD_COVE],
}
# Tile instructions, which no table of uops lists. "optman": Intel's Optimization Reference Manual 248966-050, Table
# 20-2, read at second hand; "bench": a third party's measurements on a Xeon 6962P. Loads and stores of a tile's lines
# are `[core]`'s. LLVM 19's rows (latency 100, throughput 0.25) are placeholders and were left aside.
PRODUCTS = ("tdpbf16ps", "tdpbssd", "tdpbsud", "tdpbusd", "tdpbuud")
SUM = "from accumulator to accumulator 16, as a chain of tdpbf16ps on one tile takes 16.2 to 16.4 a product (bench"
LINES = "its lines are loads; latency 45 from memory is often quoted and was not read: less some 14 of its lines"
PAST_L1 = (
    "rwc: one in 18.5 cycles, from L1 and from L2 alike "
    "(rows 1088 bytes apart 17 to 18.5, 1024 19.3; 8 rows 9.5, 4 5.5)"
)
BEHIND = (
    "a store takes the unit as long as a product: rwc, blocks of n steps of four loads and four products with four "
    "stores 64 n + 61 to 86 cycles, n pairs of a product and a store of its sum 28.5 n; emr 64 n + 61 to 67"
)


def tile_rows(
    products: Iterable[str], product: str, chain: float, load: str, stored: str, zero: str, config: Row
) -> list[Row]:
    """The rows of a machine with AMX; `chain`: cycles from sum to sum; the words are where its figures come from."""
    unit = [
        Row(name, "tmm,tmm,tmm", 52, 1, (("TMUL",),), product, "estimated", occupancy=16, accumulator_latency=chain)
        for name in products
    ]
    moves = [
        Row("tileloadd", "tmm,m8192", 31, 1, (("TLOAD",),), f"{load}; {LINES}", "estimated", occupancy=8),
        Row("tileloaddt1", "tmm,m8192", 31, 1, (("TLOAD",),), f"{PAST_L1}; {LINES}", "estimated", occupancy=19),
        Row("tilestored", "m8192,tmm", 16, 1, (("TMUL",),), f"{stored}; {BEHIND}", "estimated", occupancy=16),
        Row("tilezero", "tmm", 0, 1, (), zero, "documented"),
    ]
    return [*unit, *moves, config]


NOPS = (
    "core: 8, 13, 16, 24, 30, 36 and 48 nops and dec/jnz take (nops / 2 + 1) / 6 cycles; a nop behind another integer "
    "instruction takes no slot either, behind a vector one it does"
)
ADDED = {
    "zen3": ZEN3_ADDED,
    "zen4": (
        Row("nop+nop", "r64", 1, 1, (), NOPS, "measured"),
        *[Row("movsx", form, 1, 1, (ZEN_ALUS,), SIGNED_LOADS, "measured") for form in ("r64,m8", "r64,m16")],
    ),
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
        f"as Sapphire Rapids (optman: latency 52), for f16 too; rwc: tdpfp16ps, tdpbf16ps, tdpbusd from a result to a "
        f"source 51.9 to 52.1, four tiles 64.0 for four; 16.66 a round on one tile, "
        f"its two loads beside; {SUM})",
        16.66,
        "rwc: one in 8.3 cycles (8 rows 4.4, 1 to 4 rows 3.1)",
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
