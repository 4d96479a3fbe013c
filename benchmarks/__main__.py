"""`python -m benchmarks`: one thread, GEMM 1024 cubed; each kernel's speed as a ratio to NumPy's f32 matmul.

All are timed in turn, round by round in one process, so that a host that changes its clock or shares its cores
disturbs the ratios little; the least time of each counts. A target is a goal for the ratio, not a test: the exit
status is 0.
"""

from __future__ import annotations

import argparse
import os

for _name in ("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "OMP_NUM_THREADS", "VECLIB_MAXIMUM_THREADS"):
    os.environ[_name] = "1"  # NumPy's BLAS reads it when it is loaded

from benchmarks import gemm  # noqa: E402
from benchmarks.whose import clock  # noqa: E402


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--size", type=int, default=1024, help="m = n = k (1024, to which the targets belong)")
    parser.add_argument("--rounds", type=int, default=7, help="measurements of each; the least counts (7)")
    parser.add_argument("--machine", help="whose blocking the kernels take (the machine that this host behaves like)")
    args = parser.parse_args()
    print(gemm.report(args.size, args.rounds, clock(args.machine)))


if __name__ == "__main__":
    main()
