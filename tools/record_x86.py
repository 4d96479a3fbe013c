"""Record what this CPU's own instructions give, for the tests of hosts that lack them.

    python tools/record_x86.py tests/vectors/x86_zen4.npz

The file holds, for each instruction at 128 bits, its operands and results as unsigned bit patterns, and `cpu`, the CPU
that gave them.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

from isa_models import instruction
from simdnn import numerics
from simdnn.hostcheck import Array, inputs_of, program_of

NAMES = (
    "vpdpbusd", "vpdpbusds", "vpdpwssd", "vpdpwssds", "vdpbf16ps", "vcvtneps2bf16", "vcvtne2ps2bf16",
    "vpmaddubsw", "vpmaddwd", "vfmadd231ps", "vfmadd213ps", "vcvtps2dq", "vaddps", "vmulps", "vdivps", "vminps",
    "vmaxps",
)  # fmt: skip
WIDTH = 128
VECTORS = 320


def cpu() -> str:
    """The CPU as Linux names it: vendor, family, model, stepping."""
    fields: dict[str, str] = {}
    for line in Path("/proc/cpuinfo").read_text().split("\n\n")[0].splitlines():
        name, _, value = line.partition(":")
        fields[name.strip()] = value.strip()
    return f"{fields['vendor_id']} family {fields['cpu family']} model {fields['model']} stepping {fields['stepping']}"


def bits(array: Array) -> Array:
    return np.ascontiguousarray(array).view(f"u{array.itemsize}")


def record() -> dict[str, Array]:
    rng = np.random.default_rng(20240)
    arrays: dict[str, Array] = {"cpu": np.array(cpu())}
    for name in NAMES:
        definition = instruction(name)
        inputs = inputs_of(definition, WIDTH, VECTORS, rng)
        out = numerics.run(program_of(definition, WIDTH, VECTORS), inputs, engine="compiled", native=True)["out"]
        arrays |= {f"{name}.{operand}": bits(array) for operand, array in inputs.items()}
        arrays[f"{name}.out"] = bits(out.reshape(VECTORS, -1))
    return arrays


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    np.savez_compressed(sys.argv[1], allow_pickle=False, **record())
