"""Cut the rows that the machine files are made from out of uops.info's tables.

    python tools/extract_timing.py ASSEMBLYSTATS_CHECKOUT ICX_ROWS.csv > timing.csv

ASSEMBLYSTATS_CHECKOUT is a checkout of https://github.com/ashvardanian/AssemblyStats (Apache-2.0) at fbeccff, whose
folder uops/ holds the tables of https://uops.info/table as CSV. ICX_ROWS.csv has the rows of "Ice Lake-SP",
taken from InstLatx64 (GenuineIntel00606A6_ICX_InstLatX64.txt at 087af2c): instruction, form, uarch, latency,
rthroughput, source. Values are copied as they stand; reading them is the work of make_machine_rows.py. The output is
other people's table: keep it outside of the repository.
"""

from __future__ import annotations

import csv
import re
import sys
from collections.abc import Iterator
from pathlib import Path

COLUMNS = ("uarch", "instruction", "operands", "encoding", "latency", "throughput", "uops", "ports", "source")
TABLES = {
    "Haswell": "haswell",
    "Skylake-X": "skylakex",
    "Cascade Lake": "cascadelake",
    "Ice Lake (client)": "icelake",
    "Alder Lake-P": "alderlakep",
    "Zen 4": "zen4",
}

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
    """.split()
)
# Suffixes of the same instruction in another encoding. uops.info lists zeroing masks (Z), embedded rounding (SAE, ER)
# and short registers apart; those are left out.
ENCODINGS = {"EVEX", "10", "28", "6F", "01", "09", "21", "29", "31", "39", "85", "89", "8B", "B_D8", "6E", "7E", "R4"}
UNWANTED = {"AL", "AX", "EAX", "RAX", "0", "R16", "R8h", "R8l", "M8", "M16", "I16", "R32", "M2"}
# Instructions that no kernel needs but loops in other people's assembly hold: forms, and which of them have rows.
GENERAL_FORMS = """
    : cdq cdqe cqo vzeroupper
    K, K: knotw ktestw
    K, K, I8: kshiftlw
    K, K, K: kaddw kandw kunpckbw
    K, YMM, YMM, I8 / K, ZMM, ZMM, I8: vpcmpb
    K, ZMM: vpmovd2m
    M64, XMM: vmovhps
    MM, MM: paddw
    R32, XMM: movmskps
    R64: bswap mul neg
    R64, CL: shr
    R64, I8: bt shr
    R64, M8 / R64, R8: movzx
    R64, R32: movsxd
    R64, R64: adc bsr cmovz lzcnt popcnt sbb tzcnt
    R64, R64, I8: rorx
    R64, R64, R64: andn bextr mulx pdep shlx
    R64, XMM: vcvttsd2si vcvttss2si
    R8: setz
    XMM, M32, XMM / YMM, M32, YMM / ZMM, K, M32: vgatherdps vpgatherdd
    XMM, MM: movq2dq
    XMM, XMM: vcomiss vcvtdq2pd vptest vrcpps vrsqrtps vsqrtpd vucomisd vucomiss
    XMM, XMM, I8: vpcmpestri vpcmpistri
    XMM, XMM, R32 / XMM, XMM, R64: vcvtsi2sd vcvtsi2ss
    XMM, XMM, XMM: vaesenc vcvtsd2ss vcvtss2sd vdivpd vdivsd vdivss vphaddd vrcpss vrsqrtss vsqrtsd vsqrtss
    XMM, XMM, XMM, I8: vdppd vdpps vinsertps vpclmulqdq
    XMM, YMM: vcvtpd2ps vcvttpd2dq vpmovqd
    YMM, XMM: vbroadcastsd vcvtdq2pd vcvtps2pd
    YMM, YMM: vplzcntd vpopcntd vptest vrcpps vrsqrtps vsqrtpd vtestps
    YMM, YMM, I8: vprold
    YMM, YMM, YMM: vaesenc vdivpd vphaddd vpmadd52luq vpmuldq vpmultishiftqb vpsignd
    YMM, YMM, YMM, I8: valignd vdpps vgf2p8affineqb vmpsadbw vpshldd
    YMM, ZMM: vcvtpd2ps vpmovqd
    ZMM, K: vpmovm2d
    ZMM, M512: vmovntdqa
    ZMM, XMM: vbroadcastsd
    ZMM, YMM: vcvtps2pd
    ZMM, ZMM: vcvtpd2qq vcvtps2udq vcvtqq2pd vcvtudq2ps vgetexpps vpcompressd vpconflictd vpexpandd vplzcntd
        vpopcntd vsqrtpd
    ZMM, ZMM, I8: vgetmantps vprold vreduceps
    ZMM, ZMM, ZMM: vaesenc vdivpd vpmadd52luq vpmultishiftqb vprolvd
    ZMM, ZMM, ZMM, I8: valignd vdbpsadbw vfixupimmps vgf2p8affineqb vpclmulqdq vpshldd vrangeps
"""


def general_forms() -> set[tuple[str, str]]:
    """(mnemonic, operands) of GENERAL_FORMS; a line that starts deeper continues the one above."""
    lines = re.sub(r"\n {8}", " ", GENERAL_FORMS).strip().splitlines()
    split = [line.strip().partition(":") for line in lines]
    return {(name, form) for forms, _, names in split for form in forms.split(" / ") for name in names.split()}


GENERAL = general_forms()
BROADCAST_OF = re.compile(r"V(FMADD231P[SH]|PDP|DPBF16PS|MULP[SH]|ADDP[SH]|SUBPS|MAXPS|MINPS|PADDD)")
MASK_OF = re.compile(r"V(MOV(UPS|DQU)|PMOV|PBROADCAST|BROADCAST|CVT|ADDPS|MULPS|FMADD231PS|PADDD)")


def wanted(mnemonic: str, operands: list[str]) -> bool:
    """Whether a row is of a kind that kernels use: no short registers, masks and broadcasts for a few."""
    vector = mnemonic[0] in "VK"
    if not vector and UNWANTED & set(operands):
        return False
    if any("_1to" in operand for operand in operands) and not BROADCAST_OF.match(mnemonic):
        return False
    masked = mnemonic[0] == "V" and operands[1:2] == ["K"]
    return not masked or bool(MASK_OF.match(mnemonic)) and not any("_1to" in operand for operand in operands)


def plain(operands: str) -> str:
    """Operands as the machine files have them: a low byte register is R8, a gather's addresses are M32.

    >>> plain("YMM, VSIB_YMM, YMM"), plain("R64, R8l")
    ('YMM, M32, YMM', 'R64, R8')
    """
    return re.sub(r"VSIB_[XYZ]MM", "M32", operands).replace("R8l", "R8")


def rows_of(uarch: str, table: Path) -> Iterator[dict[str, str]]:
    """The wanted rows of one CSV of uops.info; of several encodings of a form the first (VEX before EVEX)."""
    seen: set[tuple[str, str]] = set()
    with table.open(newline="") as handle:
        for row in csv.DictReader(handle):
            match = re.fullmatch(r"([A-Z0-9]+?)(?:_([A-Z0-9_]+))?(?: \((.*)\))?", row["instruction"])
            if match is None:
                continue
            operands = plain(match[3] or "")
            kernels = match[3] and match[1].lower() in MNEMONICS and (not match[2] or match[2] in ENCODINGS)
            if not (kernels and wanted(match[1], match[3].split(", "))) and (match[1].lower(), operands) not in GENERAL:
                continue
            if (match[1], operands) in seen:
                continue
            seen.add((match[1], operands))
            encoding = f"{row['family']}{' ' + match[2] if match[2] else ''}"
            figures = {key: row[key] for key in ("latency", "throughput", "uops", "ports")}
            yield {"uarch": uarch, "instruction": match[1], "operands": operands, "encoding": encoding, **figures,
                   "source": "uops.info"}


def main(checkout: str, icx: str) -> None:
    """Write the table to standard output."""
    writer = csv.DictWriter(sys.stdout, COLUMNS, lineterminator="\n")
    writer.writeheader()
    for uarch, name in TABLES.items():
        writer.writerows(rows_of(uarch, Path(checkout) / "uops" / f"{name}.csv"))
    with Path(icx).open(newline="") as handle:
        for row in csv.DictReader(handle):
            measured = row["source"].startswith("InstLatx64") and row["uarch"] == "Ice Lake-SP"
            if measured and row["instruction"] in MNEMONICS:
                writer.writerow(
                    {
                        "uarch": "Ice Lake-SP",
                        "instruction": row["instruction"].upper(),
                        "operands": row["form"],
                        "encoding": "",
                        "latency": row["latency"],
                        "throughput": row["rthroughput"],
                        "uops": "",
                        "ports": "",
                        "source": "InstLatx64",
                    }
                )


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    main(sys.argv[1], sys.argv[2])
