"""Record what this CPU's own instructions give, for the tests of hosts that lack them.

    python tools/record_x86.py tests/vectors/x86_zen4.npz
    python tools/record_x86.py tests/vectors/x86_spr.npz tdpbf16ps tdpbssd tdpbsud tdpbusd tdpbuud vfmadd231ph …

The file holds, for each instruction (those named, or `NAMES`) at 128 bits or in whole tiles, its operands and results
as unsigned bit patterns, and `cpu`, the CPU that gave them.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from isa_models import instruction
from isa_models.isa import host_caps
from simdnn import numerics
from simdnn.calibration.hostcheck import Array, inputs_of, parameters_of, program_of

NAMES = (
    "vpdpbusd",
    "vpdpbusds",
    "vpdpwssd",
    "vpdpwssds",
    "vdpbf16ps",
    "vcvtneps2bf16",
    "vcvtne2ps2bf16",
    "vpmaddubsw",
    "vpmaddwd",
    "vfmadd231ps",
    "vfmadd213ps",
    "vcvtps2dq",
    "vaddps",
    "vmulps",
    "vdivps",
    "vminps",
    "vmaxps",
)
WIDTH, VECTORS = 128, 320
TILES, TILE_VECTORS = 8192, 12  # a tile is 64 registers of 128 bits


def cpu() -> str:
    """The CPU as Linux names it: vendor, family, model, stepping."""
    fields: dict[str, str] = {}
    for line in Path("/proc/cpuinfo").read_text().split("\n\n")[0].splitlines():
        name, _, value = line.partition(":")
        fields[name.strip()] = value.strip()
    return f"{fields['vendor_id']} family {fields['cpu family']} model {fields['model']} stepping {fields['stepping']}"


def bits(array: Array) -> Array:
    return np.ascontiguousarray(array).view(f"u{array.itemsize}")


def record(names: Sequence[str]) -> dict[str, Array]:
    """Results of the host's own instructions, with the first of each instruction's parameters (see `parameters_of`)."""
    rng = np.random.default_rng(20240)
    arrays: dict[str, Array] = {"cpu": np.array(cpu())}
    for name in names:
        definition = instruction(name)
        width, vectors = (TILES, TILE_VECTORS) if definition.tile else (WIDTH, VECTORS)
        if not host_caps().intersection(definition.caps[width]):
            sys.exit(f"this CPU has no {name}")
        inputs = inputs_of(definition, width, vectors, rng)
        out = numerics.run(program_of(definition, width, vectors), inputs, engine="compiled", native=True)["out"]
        first = out.reshape(vectors, len(parameters_of(definition)), -1)[:, 0]
        arrays |= {f"{name}.{operand}": bits(array) for operand, array in inputs.items()}
        arrays[f"{name}.out"] = bits(first)
    return arrays


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    np.savez_compressed(sys.argv[1], allow_pickle=False, **record(sys.argv[2:] or NAMES))
