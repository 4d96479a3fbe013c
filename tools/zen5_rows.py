"""Rows of Zen 5: Zen 4's on units of full width, with the latencies and throughputs that InstLatx64 listed of a Zen 5.

The listing is that of a Ryzen 9 9950X, InstLatx64 at 087af2c. What it has of a form is "documented"; a form with a
memory operand or a mask that it has not takes latency and ports of the form without, and is "estimated", as are rows
that stay as on Zen 4.

- A vector instruction of one uop that runs more than three times a cycle has four ports; otherwise ports are Zen 4's,
  and a throughput that these do not explain is an `interval`. OSACA's zen5.yml (RRZE-HPC/OSACA) has the same ports.
- General instructions run on as many of the six ALUs as their throughput says: all, those that multiply and shift
  (three), two, one. OSACA's zen5.yml has multiplications and shifts on three and jumps on the three others.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from isa_models.machines.instruction_row import form_widths
from tools.machine_row import VECTOR, Row, port_bound

LISTING = "AuthenticAMD/AuthenticAMD0B40F40_K20_GraniteRidge_02_512b_InstLatX64.txt"
#: ` 2409 AVX512F    :{EVEX} VADDPS zmm, zmm, zmm     L:   0.46ns=   1.99c  T:   0.12ns=   0.498c`
LINE = re.compile(
    r" *\d+ \S+ *: *(?:\{\w+\})? *(\w+) +(\S.*?) +L:(?: *[\d.]+ns= *([\d.]+)c| *\[[^]]*\]) +T:.*?= *([\d.]+)c\s*"
)
OPERAND = re.compile(  # with the number of a register: xmm1, k2, r1_64
    r"(?P<kind>[xyz]mm|k|r(?=\d_)|r\d+|cl|i\d+|m\d+|agen\w+)(?P<number>\d)?(?:(?P<general>\d)_(?P<bits>\d+))?"
    r"(?P<mask>\{k\})?"
)
ADDRESSES = {"[r64 + r64]": "agen2", "[r64 + r64 * 8]": "agens", "[r64 + r64 + disp8]": "agen3"}
ADDRESSES |= {"[r64 + r64 * 8 + disp8]": "agen3s"}
GATHERS = re.compile(r"vp?(gather|scatter)")
ALIKE = {"cmovz": "cmovnz", "setz": "setc"}  # the listing has the latter
ALUS = tuple(f"ALU{number}" for number in range(6))
MULTIPLYING, BRANCHING = ALUS[:3], ALUS[3:]
ALL_VECTOR = ("FP0", "FP1", "FP2", "FP3")
SHARES = ((0.3, ALUS), (0.4, MULTIPLYING), (0.6, MULTIPLYING[:2]))  # most cycles for one, and its ALUs
#: between vectors, masks and general registers: latency, and cycles there and back with the listed instruction
TRANSFERS = (
    ("vmov[dq]", "r(32|64),xmm", 4, "vmovd 7.0"),
    ("vmov[dq]", "xmm,r(32|64)", 3, "vmovd 7.0"),
    ("kmov[bdwq]", "r(32|64),k", 3, "kmov 9.0"),
    ("kmov[bdwq]", "k,r(32|64)", 6, "kmov 9.0"),
    ("vpextr[bwdq]|vextractps", "r(32|64),xmm,i8", 6, "vpinsr 10.9"),
    ("vpinsr[bwdq]", "xmm,xmm,r(32|64),i8", 5, "vpextr 10.9"),
    ("vcvtt?s[sd]2u?si", "r(32|64),xmm", 7, "vcvtsi2ss 12.9, vmovd 7.0, a conversion 3"),
    ("vcvtu?si2s[sd]", "xmm,xmm,r(32|64)", 6, "vcvtss2si 12.9, vmovd 7.0, a conversion 3"),
)
AT_RENAME, FOUR_A_CYCLE = 0.2, 0.3  # cycles: less than any port takes, and more than four ports do
ON_BRANCHING = "OSACA zen5.yml (RRZE-HPC): jumps and what is fused with them on three of six ALUs"


@dataclass(frozen=True)
class Figures:
    """Listed figures of a form: cycles from operand to result (None: not given), and for one of many."""

    latency: float | None
    throughput: float


def listing(instlatx64: Path) -> dict[tuple[str, str], Figures]:
    """Figures by mnemonic and form. Of a form listed twice those of different registers count: with one register in
    all places an instruction may be made at rename.
    """
    found: dict[tuple[str, str], tuple[bool, Figures]] = {}
    for line in (instlatx64 / LISTING).read_text(encoding="utf-8", errors="replace").splitlines():
        if not (parts := LINE.fullmatch(line)):
            continue
        mnemonic, figures = parts[1].lower(), Figures(float(parts[3]) if parts[3] else None, float(parts[4]))
        form, sources = form_of(mnemonic, parts[2])
        apart = len(set(sources)) > 1
        idiom = len(sources) > 1 and not apart and (sources[0] or figures.throughput < AT_RENAME)
        if not form or idiom and VECTOR.search(form):
            continue
        known = found.get((mnemonic, form))
        if known is None or apart and not known[0] or GATHERS.match(mnemonic):
            found[mnemonic, form] = apart, figures
    return {key: figures for key, (_, figures) in found.items()}


def form_of(mnemonic: str, operands: str) -> tuple[str, list[str]]:
    """A form's key, empty where it is no single instruction's, and the numbers that the registers it reads have there.

    >>> form_of("vpaddd", "zmm1, zmm1, zmm2"), form_of("lea", "r64, [r64 + r64]")
    (('zmm,zmm,zmm', ['1', '2']), ('r64,agen2', ['']))
    >>> form_of("vgatherdpd", "zmm {k}, [ym32] + KMOVW"), form_of("vaddps", "ymm LS pair")
    (('zmm{k},m64', ['']), ('', []))
    """
    if GATHERS.match(mnemonic):
        element = "m64" if mnemonic.endswith(("pd", "q")) else "m32"
        operands = re.sub(r"\[[xyz]m\d+\]", element, operands.removesuffix(" + KMOVW"))
    forms, numbers = [], []
    for operand in map(str.strip, operands.split(",")):
        name = ADDRESSES.get(operand, re.sub(r"^imm?(?=\d)", "i", re.sub(r"\[m(?:em)?(\d+)\]", r"m\1", operand)))
        if not (parts := OPERAND.fullmatch(name.replace(" {", "{"))):
            return "", []
        kind, number, mask = parts["kind"], parts["number"] or parts["general"] or "", parts["mask"] or ""
        forms.append((f"r{parts['bits']}" if parts["bits"] else kind) + mask)
        numbers += [number] if kind[0] in "xyzkr" else []
    return ",".join(forms), numbers if len(numbers) < 3 else numbers[1:]


def register_form(form: str) -> str:
    """The form without memory and mask that does the same work.

    >>> register_form("zmm{k},zmm,m32bcst"), register_form("xmm,m128,i8"), register_form("ymm,m64")
    ('zmm,zmm,zmm', 'xmm,xmm,i8', 'ymm,xmm')
    """
    width = next((name for name in ("zmm", "ymm", "xmm") if name in form), "")
    of_bits = {"128": "xmm", "256": "ymm", "512": "zmm"}

    def register(memory: re.Match[str]) -> str:
        whole = width if memory[2] else of_bits.get(memory[1], "xmm")
        return whole if width else f"r{memory[1]}"

    return re.sub(r"\bm(\d+)(bcst)?", register, form.replace("{k}", ""))


def zen5_rows(zen4: Iterable[Row], listed: Mapping[tuple[str, str], Figures]) -> Iterator[Row]:
    """Zen 4's rows as Zen 5 has them."""
    for row in zen4:
        mnemonic = ALIKE.get(row.mnemonic, row.mnemonic)
        own, work = (listed.get((mnemonic, form)) for form in (row.form, register_form(row.form)))
        yield _as_zen5(row, own, own if own and not any(form_widths(row.mnemonic, row.form)[:2]) else work)


def _as_zen5(row: Row, own: Figures | None, work: Figures | None) -> Row:
    """A row of Zen 4 on Zen 5's units; `work`: the figures of what it does between registers."""
    vector, uops, latency = bool(VECTOR.search(row.form)), row.uops, row.latency
    timed, transfer = own if GATHERS.match(row.mnemonic) else work, _transfer(row)
    if transfer:
        latency = transfer[0]
    elif timed and timed.latency is not None and uops:
        latency = max(1.0, float(round(timed.latency)))
    if not vector:
        uops = tuple(_alus(ports, work if len(uops) == 1 else None) for ports in uops)
    elif re.fullmatch(r"vbroadcasts[sd] zmm,m(32|64)", f"{row.mnemonic} {row.form}"):
        uops, latency = (), 0.0  # on Zen 4 half as many run as of 256 bits
    elif len(uops) == 1 and work and work.throughput < FOUR_A_CYCLE:
        uops = (ALL_VECTOR,)
    slots = 1 if row.form.startswith("m512") and row.slots == 2 else row.slots  # Zen 4 stores 512 bits in two halves
    accumulated = row.accumulator_latency
    return replace(
        row,
        slots=slots,
        uops=uops,
        latency=latency,
        accumulator_latency=accumulated if accumulated is not None and accumulated < latency else None,
        interval=_interval(row, own, work if uops else None, max(port_bound(uops, 1), slots / 8)),
        occupancy=1,
        source=ON_BRANCHING if uops == (BRANCHING,) else _source(row, own, uops),
        confidence="documented" if own else "estimated",
    )


def _alus(ports: tuple[str, ...], work: Figures | None) -> tuple[str, ...]:
    """The ALUs of a uop, by the throughput of its instruction or, where that is not listed, by those of Zen 4."""
    if not ports[0].startswith("ALU"):
        return BRANCHING if ports[0].startswith("BR") else ports
    if work:
        for cycles, alus in SHARES:
            if work.throughput < cycles:
                return alus
    return {4: ALUS, 2: MULTIPLYING}.get(len(ports), ports)


def _transfer(row: Row) -> tuple[float, str] | None:
    """Latency of a transfer between files of registers, and what it comes from."""
    for mnemonics, forms, latency, measured in TRANSFERS:
        if re.fullmatch(mnemonics, row.mnemonic) and re.fullmatch(forms, row.form):
            return latency, measured
    return None


def _interval(row: Row, own: Figures | None, work: Figures | None, explained: float) -> float:
    """Cycles between two, where ports and slots do not explain what is listed."""
    load, store, _ = form_widths(row.mnemonic, row.form)
    if GATHERS.match(row.mnemonic):
        return own.throughput if own else row.interval
    if not VECTOR.search(row.form):
        return row.interval
    if store or load and work is None:
        return 0.0  # what Zen 4's pipes for loads and stores take
    if work is None:
        return round(row.interval / row.occupancy, 3)
    return work.throughput if work.throughput > 1.15 * explained + 0.1 else 0.0


def _source(row: Row, own: Figures | None, uops: tuple[tuple[str, ...], ...]) -> str:
    transfer = _transfer(row)
    if own is None and not transfer:
        return f"as Zen 4 on units of full width: {row.source}"
    said = [f"latency {own.latency:.1f}"] if own and own.latency is not None else []
    said += [f"with {transfer[1]} cycles"] if transfer else []
    said += [f"one in {own.throughput:.2f}"] if own else []
    vector, timed = VECTOR.search(row.form), transfer or own and own.latency is not None
    ports = "which says on how many ALUs" if not vector else "ports as Zen 4's" if timed else "the rest as Zen 4's"
    return f"InstLatx64 on Zen 5: {', '.join(said)}; {ports if uops else 'no port'}"
