"""The timings that the machine files are made from: what other people measured, as their published files have it.

`timings(assemblystats, instlatx64)` reads two checkouts, and make_machine_rows.py calls it:
- https://github.com/ashvardanian/AssemblyStats (Apache-2.0) at fbeccff, whose folder uops/ holds the tables of
  https://uops.info/table as CSV;
- https://github.com/InstLatx64/InstLatx64 at 087af2c, its listing of an Ice Lake-SP (`SERVER`).
Values are copied as they stand; reading them is the work of make_machine_rows.py. They are other people's: keep the
checkouts outside of the repository.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator
from pathlib import Path

TABLES = {
    "Haswell": "haswell",
    "Skylake-X": "skylakex",
    "Cascade Lake": "cascadelake",
    "Ice Lake (client)": "icelake",
    "Alder Lake-P": "alderlakep",
    "Zen 3": "zen3",
    "Zen 4": "zen4",
}
SERVER = "GenuineIntel/GenuineIntel00606A6_ICX_InstLatX64.txt"
#: ` 2449 AVX512F         : VFMADD231PS zmm, zmm, zmm      L:   2.00ns=  4.0c  T:   0.25ns=  0.50c`
LISTED = re.compile(
    r" *\d+ \w+ *: (?:\{\w+\} *)?(\w+) ([xyz]mm(?:, *(?:[xyz]mm|r32|r64|imm8))*) +L:.* T: .*= *([\d.]+)c *"
)

MNEMONICS = set(
    """
    vmovups vmovaps vmovdqu vmovdqa vmovdqu8 vmovdqu16 vmovdqu32 vmovdqu64 vmovdqa32 vmovdqa64 vmovd vmovq vmovss
    vmovntps vmovntdq vlddqu vmaskmovps vpmaskmovd
    vpbroadcastb vpbroadcastw vpbroadcastd vpbroadcastq vbroadcastss vbroadcastf128 vbroadcasti128
    vbroadcastf32x4 vbroadcasti32x4 vbroadcastf64x4 vbroadcasti64x4 vbroadcastf32x8 vbroadcasti32x8
    vpmaddubsw vpmaddwd vpdpbusd vpdpbusds vpdpwssd vpdpwssds vdpbf16ps vcvtneps2bf16 vcvtne2ps2bf16 vcvtph2ps vcvtps2ph
    vcvtph2psx vcvtps2phx vfmadd231ph vaddph vmulph
    vfmadd132ps vfmadd213ps vfmadd231ps vfnmadd231ps vfmadd231ss vaddps vsubps vmulps vdivps vminps vmaxps vsqrtps
    vaddss vmulss vrcp14ps vrsqrt14ps vrndscaleps vroundps vscalefps vhaddps
    vpmovsxbw vpmovsxbd vpmovsxwd vpmovsxdq vpmovzxbw vpmovzxbd vpmovzxwd vpmovzxdq
    vpmovdb vpmovsdb vpmovusdb vpmovdw vpmovsdw vpmovusdw vpmovwb vpmovswb vpmovuswb vcvtdq2ps vcvtps2dq vcvttps2dq
    vpackssdw vpackusdw vpacksswb vpackuswb
    vpaddb vpaddw vpaddd vpaddq vpsubb vpsubw vpsubd vpsubq vpaddsw vpaddsb vpaddusb vpaddusw vpsubsb vpsubsw vpsubusb
    vpsubusw vpmulld vpmullw vpmullq vpmuludq vpmulhw vpmulhuw vpavgb
    vpminsb vpminub vpminsw vpminuw vpminsd vpminud vpmaxsb vpmaxub vpmaxsw vpmaxuw vpmaxsd vpmaxud
    vpminsq vpminuq vpmaxsq vpmaxuq
    vpabsb vpabsw vpabsd
    vpand vpandn vpor vpxor vpandd vpandq vpandnd vpandnq vpord vporq vpxord vpxorq vandps vandnps vorps vxorps
    vpternlogd vpternlogq
    vpsllw vpslld vpsllq vpsrlw vpsrld vpsrlq vpsraw vpsrad vpsraq vpslldq vpsrldq vpsllvd vpsrlvd
    vpunpcklbw vpunpckhbw vpunpcklwd vpunpckhwd vpunpckldq vpunpckhdq vpunpcklqdq vpunpckhqdq vunpcklps vunpckhps
    vpinsrb vpinsrw vpinsrd vpinsrq vpextrb vpextrw vpextrd vpextrq
    vinserti128 vinsertf128 vextracti128 vextractf128 vextracti32x4 vextractf32x4 vextracti64x4 vextractf64x4
    vextractf32x8 vextracti32x8 vinserti32x4 vinsertf32x4 vinserti64x4 vinsertf64x4
    vpermq vpermpd vpermd vpermps vpermw vpermb vpermt2w vpermt2d vpermt2ps vpermt2b vpermi2w vpermi2d vpermi2b
    vperm2i128 vperm2f128 vshufi32x4 vshuff32x4 vshufi64x2 vpshufb vpshufd vpshuflw vpshufhw vshufps vpermilps vpalignr
    vmovhlps vmovlhps vmovshdup vmovsldup vpsadbw vpblendvb vblendvps vblendps vpblendd vpblendw vpblendmd vblendmps
    vpmovmskb vmovmskps vpcmpeqb vpcmpeqd vpcmpgtb vpcmpgtd vpcmpd vpcmpud vpcmpub vcmpps vptestmd
    kmovb kmovw kmovd kmovq kxnorw kortestw
    add sub dec inc lea mov cmp test and or xor imul shl sar jnz jz jmp movzx movsxd nop prefetcht0
    vpcmpeqw vpcmpgtw vpcmpeqq vpcmpgtq vpsignb vpsignw vpsignd vphaddw vphaddd vphaddsw vphsubw vphsubd vphsubsw
    vphminposuw vmpsadbw vdppd vdpps vroundss vroundsd vtestpd vtestps vcomisd vcomiss vucomisd vucomiss
    vmovddup vmovhps vmovlps vmovntdqa vmaskmovpd vpmaskmovq vbroadcastsd vextractps vinsertps vpsllvq vpsrlvq
    vpmovsxbq vpmovsxwq vpmovzxbq vpmovzxwq vcvtdq2pd vcvtpd2dq vcvttpd2dq vcvtpd2ps vcvtps2pd
    vcvtsi2ss vcvtsi2sd vcvtss2si vcvtsd2si vcvttss2si vcvttsd2si vcvtss2sd vcvtsd2ss vdivsd vdivss vsqrtsd vsqrtss
    vdivpd vsqrtpd vrcpss vrcpps vrsqrtss vrsqrtps vpcmpistrm vpcmpestrm vpcmpistri vpcmpestri
    vsubph vminph vmaxph vdivph vsqrtph vrcpph vrsqrtph vscalefph vrndscaleph vreduceph vgetexpph vgetmantph vcmpph
    vfpclassph vfpclassps vfmadd132ph vfmadd213ph vfmulcph vfmaddcph vfcmulcph vfcmaddcph
    vaddsh vmulsh vdivsh vsqrtsh vrcpsh vrsqrtsh vfmadd231sh vcomish vucomish vmovsh vmovw
    vcvtph2w vcvtph2uw vcvttph2w vcvttph2uw vcvtw2ph vcvtuw2ph vcvtph2dq vcvttph2dq vcvtdq2ph vcvtph2udq vcvttph2udq
    vcvtudq2ph vcvtph2qq vcvttph2qq vcvtqq2ph vcvtph2pd vcvtpd2ph vcvtsh2ss vcvtss2sh vcvtsh2sd vcvtsd2sh vcvtsi2sh
    vcvtusi2sh vcvtsh2si vcvttsh2si vcvtsh2usi vcvttsh2usi
    vcvtqq2pd vcvtqq2ps vcvtuqq2pd vcvtuqq2ps vcvtps2qq vcvttps2qq vcvttps2uqq vcvtpd2qq vcvttpd2qq vcvttpd2uqq
    vcvtps2udq vcvttps2udq vcvtudq2ps vcvtudq2pd vcvttpd2udq vcvtusi2ss vcvtusi2sd vcvttss2usi vcvttsd2usi
    vcompressps vcompresspd vexpandps vexpandpd vpcompressb vpcompressw vpcompressd vpcompressq vpexpandb vpexpandw
    vpexpandd vpexpandq vscatterdps vscatterdpd vscatterqps vscatterqpd vpscatterdd vpscatterdq vpscatterqd vpscatterqq
    vpmovb2m vpmovw2m vpmovd2m vpmovq2m kshiftlb kshiftlw kshiftld kshiftlq kshiftrb kshiftrw kshiftrd kshiftrq
    kunpckbw kunpckwd kunpckdq valignd valignq vplzcntd vplzcntq vpopcntb vpopcntw vpopcntd vpopcntq vprold vprolq
    vprord vprorq vprolvd vprolvq vprorvd vprorvq vpshldd vpshrdd vpshldvd vpshrdvd vpmovqb vpmovqw vpmovqd vrcp14ss
    vrsqrt14ss vpsravw vpsllvw vpsrlvw vpmulhrsw vrndscaless vrndscalesh
    vgetexpss vgetexpsh vgetmantss vgetmantsh vreducess vreducesh
    vgetexpps vgetmantps vreduceps vrangeps vfixupimmps vpconflictd vpconflictq vpmadd52luq vpmultishiftqb vdbpsadbw
    vpshufbitqmb vpbroadcastmb2q vpbroadcastmw2d
    vaesdec vaesdeclast vaesenc vaesenclast vaesimc vaeskeygenassist vpclmulqdq vgf2p8mulb vgf2p8affineqb
    vgf2p8affineinvqb
    """.split()
)
# Suffixes of the same instruction in another encoding. uops.info lists zeroing masks (Z), embedded rounding (SAE, ER)
# and short registers apart; those are left out.
ENCODINGS = {"EVEX", "10", "28", "6F", "01", "09", "21", "29", "31", "39", "85", "89", "8B", "6E", "7E", "R4"}
#: what lea adds up: one register and a constant, two registers, one of them scaled, and these with a constant
SUMS = {"B_D8": "AGEN", "B_I": "AGEN2", "B_IS": "AGENS", "B_I_D8": "AGEN3", "B_IS_D8": "AGEN3S"}
UNWANTED = {"AL", "AX", "EAX", "RAX", "0", "R16", "R8h", "R8l", "M8", "M16", "I16", "R32", "M2"}
# Instructions that no kernel needs but loops in other people's assembly hold: forms, and which of them have rows.
GENERAL_FORMS = """
    : cdq cdqe cqo vzeroupper
    K, K: knotw ktestw
    K, K, I8: kshiftlw
    K, K, K: kaddw kandnw kandw korw kunpckbw kxorw
    K, YMM, YMM, I8 / K, ZMM, ZMM, I8: vpcmpb
    K, ZMM: vpmovd2m
    M32 / M64: div idiv mul
    M64: lock-dec
    M64, M64: pop push
    M512, K, ZMM / M256, K, YMM: vcompresspd vcompressps vpcompressb vpcompressd vpcompressq vpcompressw
    M64, I8: bt bts lock-bts
    M64, R64: adc cmpxchg lock-add lock-cmpxchg lock-xadd lock-xchg movbe movnti xadd
    M16, R16 / M32, R32 / R16, M16 / R32, M32 / R64, M64: movbe
    M8: mul setz
    MM, MM: paddw
    MM, MM, I8 / MM, M64, I8: pshufw
    R32: div idiv mul
    R32, R32: crc32
    R32, XMM: movmskps
    R64: bswap div idiv mul neg
    R64, CL: shr
    R64, I8: adc bt bts rcl rol shr
    R64, M8 / R64, R8: movzx
    R64, R32: movsxd
    R64, R64: adc adcx blsi blsmsk blsr bsr bt bts cmovz cmpxchg crc32 lzcnt popcnt sbb tzcnt xadd xchg
    R64, R64, CL / R64, R64, I8: shld
    R64, R64, I8: imul rorx
    R64, R64, I32: imul
    R64, R64, R64: andn bextr bzhi mulx pdep pext shlx
    R8: mul setz
    R8, M8 / R8, R8: mov
    XMM, M32, XMM: vgatherqps vpgatherqd
    XMM, M32, XMM / YMM, M32, YMM: vgatherdps vpgatherdd
    XMM, K, M32 / YMM, K, M32 / ZMM, K, M32: vgatherdps vgatherqps vpgatherdd vpgatherqd
    XMM, M64, XMM / YMM, M64, YMM: vgatherdpd vgatherqpd vpgatherdq vpgatherqq
    XMM, K, M64 / YMM, K, M64 / ZMM, K, M64: vgatherdpd vgatherqpd vpgatherdq vpgatherqq
    XMM, MM: movq2dq
    XMM, M32: cvtss2sd rcpss rsqrtss
    XMM, M32 / XMM, M64: cvtsi2sd cvtsi2ss
    XMM, M64: cvtsd2ss
    XMM, R32: cvtsi2sd cvtsi2ss movd
    XMM, R64: cvtsi2sd cvtsi2ss movq
    XMM, XMM: cvtsd2ss cvtss2sd rcpss rsqrtss vptest
    XMM, XMM / XMM, M128: blendvpd blendvps pblendvb sha1msg1 sha1msg2 sha1nexte sha256msg1 sha256msg2 sha256rnds2
    XMM, XMM, I8 / XMM, M128, I8: sha1rnds4
    XMM, YMM: vpmovqd
    YMM, YMM: vplzcntd vpopcntd vptest
    YMM, YMM, I8: vprold
    YMM, YMM, YMM: vpmadd52luq vpmuldq vpmultishiftqb
    YMM, YMM, YMM, I8: valignd vpshldd
    YMM, ZMM: vpmovqd
    XMM, K / YMM, K / ZMM, K: vpmovm2b vpmovm2w vpmovm2d vpmovm2q
    ZMM, ZMM: vcvtpd2qq vcvtps2udq vcvtqq2pd vcvtudq2ps vgetexpps vpcompressd vpconflictd vpexpandd vplzcntd
        vpopcntd
    ZMM, ZMM, I8: vgetmantps vprold vreduceps
    ZMM, ZMM, ZMM: vpmadd52luq vpmultishiftqb vprolvd
    ZMM, ZMM, ZMM, I8: valignd vdbpsadbw vfixupimmps vpshldd vrangeps
"""


def general_forms() -> set[tuple[str, str]]:
    """(mnemonic, operands) of GENERAL_FORMS; a line that starts deeper continues the one above."""
    lines = re.sub(r"\n {8}", " ", GENERAL_FORMS).strip().splitlines()
    split = [line.strip().partition(":") for line in lines]
    return {
        (name.replace("-", " "), form)
        for forms, _, names in split
        for form in forms.split(" / ")
        for name in names.split()
    }


GENERAL = general_forms()
BROADCAST_OF = re.compile(r"V(FMADD231P[SH]|PDP|DPBF16PS|MULP[SH]|ADDP[SH]|SUBPS|MAXPS|MINPS|PADDD)")
MASK_OF = re.compile(
    r"V(MOV([UA]PS|S[SH]\b|DQ[UA])|P?(EXPAND|COMPRESS|SCATTER)|PMOV|PBROADCAST|BROADCAST|CVT"
    r"|ADDPS|MULPS|FMADD231PS|PADDD)"
)


def wanted(mnemonic: str, operands: list[str]) -> bool:
    """Whether a row is of a kind that kernels use: no short registers, masks and broadcasts for a few."""
    vector = mnemonic[0] in "VK"
    if not vector and UNWANTED & set(operands):
        return False
    if any("_1to" in operand for operand in operands) and not BROADCAST_OF.match(mnemonic):
        return False
    masked = mnemonic[0] == "V" and operands[1:2] == ["K"]
    return not masked or bool(MASK_OF.match(mnemonic)) and not any("_1to" in operand for operand in operands)


def plain(mnemonic: str, operands: str, encoding: str = "") -> str:
    """Operands as the machine files have them: a low byte register is R8, a gather's addresses are its elements, and
    what goes from memory to the stack or back has both.

    >>> plain("VGATHERDPS", "YMM, VSIB_YMM, YMM"), plain("MOVZX", "R64, R8l"), plain("LEA", "R64", "B_I_D8")
    ('YMM, M32, YMM', 'R64, R8', 'R64, AGEN3')
    """
    if mnemonic == "LEA":
        return f"{operands}, {SUMS.get(encoding, encoding)}"
    if mnemonic in ("PUSH", "POP") and operands == "M64":
        return "M64, M64"
    element = "M64" if mnemonic.endswith(("PD", "Q")) else "M32"
    return re.sub(r"VSIB_[XYZ]MM", element, operands).replace("R8l", "R8")


def rows_of(uarch: str, table: Path) -> Iterator[dict[str, str]]:
    """The wanted rows of one CSV of uops.info; of several encodings of a form the first (VEX before EVEX)."""
    seen: set[tuple[str, str]] = set()
    with table.open(newline="") as handle:
        for row in csv.DictReader(handle):
            match = re.fullmatch(r"([A-Z0-9]+?)(?:_([A-Z0-9_]+))?(?: \((.*)\))?", row["instruction"])
            if match is None:
                continue
            encoding = match[2] or ""
            operands = plain(match[1], match[3] or "", encoding)
            name = match[1]
            if encoding == "LOCK" or name == "XCHG" and operands.startswith("M"):  # which locks without the prefix
                name = f"LOCK {name}"
            known = not encoding or encoding in ENCODINGS or match[1] == "LEA" and encoding in SUMS
            kernels = match[3] and name.lower() in MNEMONICS and known
            if not (kernels and wanted(name, match[3].split(", "))) and (name.lower(), operands) not in GENERAL:
                continue
            if (name, operands) in seen:
                continue
            seen.add((name, operands))
            figures = {key: row[key] for key in ("latency", "throughput", "uops", "ports")}
            family = f"{row['family']} {encoding}".strip()
            yield {"uarch": uarch, "instruction": name, "operands": operands, "encoding": family, **figures}


def listed(uarch: str, listing: Path) -> Iterator[dict[str, str]]:
    """The wanted rows of a listing of InstLatx64; not sums of two, nor registers with themselves."""
    for line in listing.read_text(encoding="latin-1").splitlines():
        match = LISTED.fullmatch(line.rstrip())
        if match is not None and match[1].lower() in MNEMONICS:
            operands = ", ".join(part.strip() for part in match[2].upper().split(","))
            yield {"uarch": uarch, "instruction": match[1], "operands": operands, "throughput": match[3]}


def timings(assemblystats: Path, instlatx64: Path) -> list[dict[str, str]]:
    """All wanted rows: `uarch`, `instruction`, `operands` and what was measured of them."""
    tables = [(uarch, assemblystats / "uops" / f"{name}.csv") for uarch, name in TABLES.items()]
    server = instlatx64 / SERVER
    if lacking := [str(path) for path in (*(path for _, path in tables), server) if not path.is_file()]:
        raise FileNotFoundError(f"no file {', '.join(lacking)}; tools/extract_timing.py says which checkouts are read")
    return [row for table in tables for row in rows_of(*table)] + list(listed("Ice Lake-SP", server))
