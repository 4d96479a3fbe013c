"""`python -m benchmarks.loops`: assembly loops on this host beside the zen4 clock.

The loops are those of tests/vectors/loops_zen4.json (kernels' inner loops) and mixes_zen4.json (mixes of instruction
classes that compete for ports), with the cycles recorded there. Data are in the first cache; rsi and rdi point into
different pages; other registers hold zeros or what the loop before left.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import statistics
import time
from pathlib import Path
from typing import Any

import llvmlite.binding as llvm
import numpy as np
import pandas as pd

from benchmarks.cycles import QUIET, yardsticks
from simdnn.cli.output import table

VECTORS = Path(__file__).parents[1] / "tests" / "vectors"
SAMPLE_CYCLES = 500_000
SAMPLES = 15
PAGE = 4096

_CODE = """
define void @loop(i64 %n, i64 %p, i64 %q) nounwind {{
  call void asm sideeffect inteldialect "{text}",
    "{{rcx}},{{rsi}},{{rdi}},{{rdx}},{{r8}},~{{memory}},~{{rcx}},~{{flags}}{clobbered}"
    (i64 %n, i64 %p, i64 %q, i64 %q, i64 0)
  ret void
}}"""


def measure(body: list[str], expected: float) -> float:
    """Median cycles of an iteration of a loop in Intel syntax whose last two lines count rcx down."""
    text = "\\0A".join(["vzeroupper", ".p2align 6", "2:", *body[:-2], "dec rcx", "jnz 2b", "vzeroupper"])
    run, keep = _compiled(text)
    memory = np.zeros(1 << 16, np.uint8)
    first = -(-memory.ctypes.data // PAGE) * PAGE
    turns = int(SAMPLE_CYCLES / expected)
    found: list[float] = []
    end = time.perf_counter() + 5
    while len(found) < SAMPLES and time.perf_counter() < end:
        chain0, moves0 = yardsticks()
        start = time.perf_counter_ns()
        run(turns, first, first + 2 * PAGE)
        spent = time.perf_counter_ns() - start
        chain1, moves1 = yardsticks()
        if max(abs(chain1 / chain0 - 1), abs(moves1 / moves0 - 1), (moves0 + moves1) / (chain0 + chain1) - 1) <= QUIET:
            found.append(spent / turns / ((chain0 + chain1) / 2))
    del keep
    return statistics.median(found) if found else float("nan")


def _compiled(text: str) -> tuple[Any, Any]:
    """The loop as a function of iterations and two addresses, and what keeps its code alive."""
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    llvm.initialize_native_asmparser()
    features = llvm.get_host_cpu_features().flatten()
    target = llvm.Target.from_default_triple()
    machine = target.create_target_machine(
        cpu=llvm.get_host_cpu_name(), features=features, jit=True, codemodel="small", reloc="pic"
    )
    jit = llvm.create_lljit_compiler(machine)
    clobbered = "".join(f",~{{zmm{i}}}" for i in range(32)) + "".join(f",~{{ymm{i}}}" for i in range(16))
    code = _CODE.format(text=text, clobbered=clobbered)
    library = llvm.JITLibraryBuilder().add_ir(code).export_symbol("loop").link(jit, "loop")
    return ctypes.CFUNCTYPE(None, *[ctypes.c_int64] * 3)(library["loop"]), (jit, library)


def main() -> None:
    """Measure and print; `--write` puts the new cycles into mixes_zen4.json."""
    from tests.timing.test_pipeline import predicted

    parser = argparse.ArgumentParser(prog="python -m benchmarks.loops", description=__doc__)
    parser.add_argument("--write", action="store_true", help="record the mixes' cycles anew")
    write = parser.parse_args().write
    rows = []
    for name in ("loops_zen4.json", "mixes_zen4.json"):
        recorded = json.loads((VECTORS / name).read_text())
        for loop in recorded["loops"]:
            cycles = measure(loop["body"], loop["cycles_per_iteration"])
            rows.append((loop["name"], loop["cycles_per_iteration"], cycles, predicted(loop["body"])))
            if name.startswith("mixes"):
                loop["cycles_per_iteration"] = round(cycles, 3)
        if write and name.startswith("mixes"):
            (VECTORS / name).write_text(json.dumps(recorded, indent=1) + "\n")
    frame = pd.DataFrame(rows, columns=["loop", "recorded", "measured", "predicted"])
    frame["predicted/recorded"] = frame["predicted"] / frame["recorded"]
    print(table(frame, dict.fromkeys(("recorded", "measured", "predicted", "predicted/recorded"), "{:.3f}".format)))


if __name__ == "__main__":
    main()
