"""`python -m benchmarks.math_modes [FILE]`: the tables of docs/math_modes.md, computed; with FILE they are put there.

Each table stands in the file between `<!-- name -->` and `<!-- end -->`.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import simdnn
from simdnn import Attr
from simdnn.primitives import mathmode_types
from simdnn.primitives.mathmode import FPMATH_MODES

M, N, K = 64, 256, 512
CONV = {"ic": 64, "ih": 14, "iw": 14, "oc": 64, "kh": 3, "kw": 3, "padding": 1}


def markdown(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table in Markdown."""
    lines = [headings, ["---"] * len(headings), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def modes() -> str:
    """The types that each mode lets f32 data be computed in, and what machines make of it on one matmul."""
    machines = ("clx", "zen4")
    rows = []
    for mode in FPMATH_MODES:
        found = [simdnn.estimate("matmul", m=M, n=N, k=K, machine=name, attr=Attr(fpmath=mode)) for name in machines]
        rows.append([f"`{mode}`", ", ".join(mathmode_types.computes(mode)), *(e.compute_dtype for e in found)])
    return markdown(["mode", "allowed", *machines], rows)


def query() -> str:
    """The answer of a convolution of f32 data on zen4 that is asked for its memory descriptors."""
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


PROBLEMS = (("f32:s8", "zen4"), ("f32:s8", "clx"), ("f32:f32", "zen4"), ("u8:s8", "zen4"))


def spellings() -> str:
    """Each spelling of a wish for bf16 or f32 on each problem: type, cycles, largest error over the largest output."""
    headings = ["spelling"]
    columns = []
    for dt, machine in PROBLEMS:
        frame = simdnn.spellings(m=M, n=N, k=K, dt=dt, machine=machine)
        headings.append(f"{dt.replace(':', ' x ')} on {machine}")
        columns.append([_cell(row) for row in frame.to_dict("records")])
    names = [
        f"`{name}`" + (" (built)" if how == "built" else "") for name, how in frame[["spelling", "section"]].values
    ]
    return markdown(headings, list(zip(["nothing said", *names[1:]], *columns, strict=True)))


def _cell(row: dict[str, Any]) -> str:
    if refused := str(row["refused"]):
        return f"refused: {refused.split(':')[0]}"
    return f"{row['computes']}, {row['cycles']:.2g} cycles, error {row['relative_error']:.0e}"


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
