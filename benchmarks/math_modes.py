"""`python -m benchmarks.math_modes [FILE]`: the tables of docs/math_modes.md, computed; with FILE they are put there.

Each table stands in the file between `<!-- name -->` and `<!-- end -->`.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import simdnn
from simdnn import Attr, SimdnnError
from simdnn.primitives import compatible
from simdnn.primitives.mathmode import FPMATH_MODES

M, N, K = 64, 256, 512
CONV = {"ic": 64, "ih": 14, "iw": 14, "oc": 64, "kh": 3, "kw": 3, "padding": 1}


def markdown(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table in Markdown."""
    lines = [headings, ["---"] * len(headings), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def modes() -> str:
    """What each mode lets f32 data be computed in, and what machines make of it on one matmul."""
    machines = ("clx", "zen4")
    rows = []
    for mode in FPMATH_MODES:
        found = [simdnn.estimate("matmul", m=M, n=N, k=K, machine=name, attr=Attr(fpmath=mode)) for name in machines]
        rows.append([f"`{mode}`", ", ".join(compatible.computes(mode)), *(e.compute_dtype for e in found)])
    return markdown(["mode", "allowed", *machines], rows)


def query() -> str:
    """What a convolution of f32 data on zen4 answers when it is asked for its memory descriptors."""
    rows = []
    for name, index, plain in (("src", 0, "nhwc"), ("weights", 1, "oihw"), ("dst", 2, "nhwc")):
        for tag in ("any", plain):
            tags = {"src_tag": "any", "wei_tag": "any", "dst_tag": "any"}
            tags[list(tags)[index]] = tag
            cells = []
            for mode in ("strict", "bf16"):
                e = simdnn.estimate("convolution", machine="zen4", attr=Attr(fpmath=mode), **CONV, **tags)
                desc = (e.src_desc, e.weights_desc, e.dst_desc)[index]
                cells += [f"`{desc.tag}`", desc.dtype]
            rows.append([name, f"`{tag}`", "f32", *cells])
    return markdown(["asked of", "user's tag", "user's type", "strict: tag", "type", "bf16: tag", "type"], rows)


def conversion() -> str:
    """A matmul of f32 data in mode bf16 on zen4: where its weights are converted, and what a run then takes."""
    sizes: dict[str, Any] = {"n": 512, "k": 512, "machine": "zen4", "attr": Attr(fpmath="bf16")}
    rows = []
    for m in (1, 16, 128):
        inside = simdnn.estimate("matmul", m=m, wei_tag="ab", **sizes)
        ahead = simdnn.estimate("matmul", m=m, **sizes)
        once = f"{ahead.conversion.cycles:.3g}" if ahead.conversion else "0"
        shared = [f"{ahead.amortised_cycles(runs):.3g}" for runs in (1, 10, 100)]
        rows.append(
            [
                str(m),
                inside.compute_dtype,
                f"{inside.cycles:.3g}",
                ahead.compute_dtype,
                f"{ahead.cycles:.3g}",
                once,
                *shared,
            ]
        )
    return markdown(
        ["M", "`ab` in", "cycles", "`any` in", "cycles", "once before", "a run of 1", "of 10", "of 100"], rows
    )


# -- the spellings --------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Asked:
    """What a spelling comes to on one problem: the attribute here, and the type where it is a requirement."""

    attr: Attr
    required: str = ""


@dataclass(frozen=True)
class Problem:
    """src x weights on a machine."""

    src: str
    wei: str
    machine: str

    @property
    def integral(self) -> bool:
        return self.wei == "s8"


Spelling = Callable[[Problem], Asked | str]  # or the refusal by the proposal's own rule
PROBLEMS = (
    Problem("f32", "s8", "zen4"),
    Problem("f32", "s8", "clx"),
    Problem("f32", "f32", "zen4"),
    Problem("u8", "s8", "zen4"),
)


def apply_to_int(mode: str, applies: bool) -> Spelling:
    """What oneDNN built in the end, and simdnn: the mode counts for integers where a flag says so."""
    return lambda problem: Asked(Attr(fpmath=mode, apply_to_int=applies and problem.integral))


def force_fpmath(mode: str, forced: bool) -> Spelling:
    """Section 3.b: a flag beside the mode; integer inputs are then brought to the type that the mode says."""
    return apply_to_int(mode, forced)


def math_mode(mode: str) -> Spelling:
    """Section 3.c: the mode alone says it, also for integers; `strict` leaves mixed types ambiguous."""
    return lambda problem: Asked(Attr(fpmath=mode, apply_to_int=problem.integral and mode != "strict"))


def compute_type(dtype: str) -> Spelling:
    """Section 3.d, as it recommends: a requirement above the mode, and allowed beside an integral input alone."""

    def asked(problem: Problem) -> Asked | str:
        if not problem.integral:
            return "refused: no integral input"
        return Asked(Attr(fpmath="strict" if dtype == "f32" else dtype, apply_to_int=True), dtype)

    return asked


def intmath_mode(mode: str) -> Spelling:
    """Section 3.e: a requirement for primitives with integral weights; floating ones go by `fpmath_mode` alone."""

    def asked(problem: Problem) -> Asked | str:
        if not problem.integral or mode == "strict":
            return Asked(Attr(fpmath="strict"))
        return Asked(Attr(fpmath=mode, apply_to_int=True), mode)

    return asked


SPELLINGS: tuple[tuple[str, Spelling], ...] = (
    ("nothing said", apply_to_int("strict", False)),
    ("`fpmath=bf16, apply_to_int` (built)", apply_to_int("bf16", True)),
    ("`fpmath=strict, apply_to_int` (built)", apply_to_int("strict", True)),
    ("`force_fpmath`, `fpmath_mode=bf16`", force_fpmath("bf16", True)),
    ("`force_fpmath`, `fpmath_mode=strict`", force_fpmath("strict", True)),
    ("`math_mode=bf16`", math_mode("bf16")),
    ("`math_mode=strict`", math_mode("strict")),
    ("`compute_type=bf16`", compute_type("bf16")),
    ("`compute_type=f32`", compute_type("f32")),
    ("`intmath_mode=bf16`", intmath_mode("bf16")),
    ("`intmath_mode=strict`", intmath_mode("strict")),
)


def outcome(problem: Problem, spelling: Spelling) -> str:
    """The type that one problem is computed in, its cycles and its largest error over the largest output."""
    asked = spelling(problem)
    if isinstance(asked, str):
        return asked
    rng = np.random.default_rng(0)
    types = {"f32": np.float32, "u8": np.uint8, "s8": np.int8}
    numbers = rng.integers(0, 255, (M, K))
    src = numbers.astype(np.uint8) if problem.src == "u8" else (numbers / 97).astype(np.float32)
    wei = rng.integers(-127, 127, (K, N)).astype(types[problem.wei])
    try:
        r = simdnn.matmul(src, wei, machine=problem.machine, attr=asked.attr)
    except SimdnnError as error:
        return f"refused: {type(error).__name__}"
    if asked.required and r.compute_dtype != asked.required:
        return f"refused: {problem.machine} has no {asked.required}"
    exact = src.astype(np.float64) @ wei.astype(np.float64)
    error = float(np.abs(r.output.astype(np.float64) - exact).max() / np.abs(exact).max())
    return f"{r.compute_dtype}, {r.cycles:.2g} cycles, error {error:.0e}"


def spellings() -> str:
    """Each spelling of a wish for bf16 or f32 on each problem."""
    headings = ["spelling", *(f"{p.src} x {p.wei} on {p.machine}" for p in PROBLEMS)]
    return markdown(headings, [[name, *(outcome(p, spelling) for p in PROBLEMS)] for name, spelling in SPELLINGS])


TABLES: dict[str, Callable[[], str]] = {
    "modes": modes,
    "query": query,
    "conversion": conversion,
    "spellings": spellings,
}


def filled(text: str) -> str:
    """A document with its tables computed afresh."""
    for name, table in TABLES.items():
        pattern = rf"(<!-- {name} -->\n).*?(<!-- end -->)"
        if not re.search(pattern, text, re.DOTALL):
            raise SystemExit(f"no place for table {name!r}: <!-- {name} --> … <!-- end -->")
        content = f"{table()}\n"
        text = re.sub(pattern, lambda found, content=content: found[1] + content + found[2], text, flags=re.DOTALL)
    return text


def main() -> None:
    """Print the tables, or put them into a file."""
    for name in sys.argv[1:]:
        path = Path(name)
        path.write_text(filled(path.read_text(encoding="utf-8")), encoding="utf-8")
    if not sys.argv[1:]:
        print("\n\n".join(table() for table in TABLES.values()))


if __name__ == "__main__":
    main()
