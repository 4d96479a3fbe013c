"""oneDNN's own GEMM beside ours, where the `onednn` package is installed: its C API by ctypes, a process an ISA cap.

The package may be in an environment of its own, which $DNNLROOT names. The cap and the library's runtime are read from
the environment when the library loads, so each cap needs a process of its own (`python -m benchmarks.onednn SIZE ROUNDS
TYPES`, which prints a JSON object). That process times NumPy too: ratios are made within one process. Handles and
enumerations are those of oneDNN 3.x's dnnl_types.h.
"""

from __future__ import annotations

import ctypes
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

LIBRARY = Path(os.environ.get("DNNLROOT", sys.prefix)) / "lib" / "libdnnl.so"
_CPU, _IN_ORDER, _WEIGHTS_MD, _IMPLEMENTATION = 1, 1, 131, 8
_TYPES = {"bf16": 2, "f32": 3, "s32": 4, "s8": 5, "u8": 6}
_ANY, _AB = 1, 3
_ALLOCATE = ctypes.c_void_p(-1)
_ARGUMENTS = {"src": 1, "dst": 17, "wei": 33}


class _Argument(ctypes.Structure):
    _fields_ = [("index", ctypes.c_int), ("memory", ctypes.c_void_p)]


class _Version(ctypes.Structure):
    _fields_ = [("major", ctypes.c_int), ("minor", ctypes.c_int), ("patch", ctypes.c_int)]


def environment(isa: str) -> dict[str, str]:
    """Variables of a process in which the library loads, and uses an ISA cap at most."""
    runtime = str(LIBRARY.parent)
    return {
        "ONEDNN_MAX_CPU_ISA": isa.upper(),
        "LD_LIBRARY_PATH": os.pathsep.join(filter(None, [runtime, os.environ.get("LD_LIBRARY_PATH")])),
        "OCL_ICD_FILENAMES": str(LIBRARY.parent / "libintelocl.so"),
    }


def measure(size: int, rounds: int, types: str, isa: str) -> dict[str, Any]:
    """{"ms", "ratio" (to NumPy f32), "implementation", "version"} under an ISA cap; {"error"} where it refuses."""
    command = [sys.executable, "-m", "benchmarks.onednn", str(size), str(rounds), types]
    done = subprocess.run(command, env=os.environ | environment(isa), capture_output=True, text=True)
    if done.returncode:
        return {"error": (done.stderr.strip().splitlines() or ["no message"])[-1]}
    result: dict[str, Any] = json.loads(done.stdout)
    return result


class Matmul:
    """A oneDNN matmul (m, k) x (k, n) with its memory; `run` executes it once."""

    def __init__(self, m: int, k: int, n: int, types: str) -> None:
        self.library = ctypes.CDLL(str(LIBRARY))
        self.engine, self.stream = ctypes.c_void_p(), ctypes.c_void_p()
        self._call("dnnl_engine_create", ctypes.byref(self.engine), _CPU, ctypes.c_size_t(0))
        self._call("dnnl_stream_create", ctypes.byref(self.stream), self.engine, _IN_ORDER)
        src, wei, dst = types.split(":")
        descriptors = {
            "src": self._descriptor((m, k), src, _AB),
            "wei": self._descriptor((k, n), wei, _ANY),
            "dst": self._descriptor((m, n), dst, _AB),
        }
        primitive = ctypes.c_void_p()
        plan = ctypes.c_void_p()
        self._call(
            "dnnl_matmul_primitive_desc_create",
            ctypes.byref(plan),
            self.engine,
            descriptors["src"],
            descriptors["wei"],
            None,
            descriptors["dst"],
            None,
        )
        self._call("dnnl_primitive_create", ctypes.byref(primitive), plan)
        self.primitive = primitive
        query = self.library.dnnl_primitive_desc_query_md
        query.restype = ctypes.c_void_p
        descriptors["wei"] = ctypes.c_void_p(query(plan, _WEIGHTS_MD, 0))
        name = ctypes.c_char_p()
        self._call("dnnl_primitive_desc_query", plan, _IMPLEMENTATION, 0, ctypes.byref(name))
        self.implementation = (name.value or b"").decode()
        formats = {"src": src, "wei": wei, "dst": dst}
        memories = [_Argument(_ARGUMENTS[key], self._memory(descriptors[key], formats[key])) for key in descriptors]
        self.arguments = (_Argument * len(memories))(*memories)

    def run(self) -> None:
        self._call("dnnl_primitive_execute", self.primitive, self.stream, len(self.arguments), self.arguments)
        self._call("dnnl_stream_wait", self.stream)

    @property
    def version(self) -> str:
        """The library's."""
        get = self.library.dnnl_version
        get.restype = ctypes.POINTER(_Version)
        found = get().contents
        return f"{found.major}.{found.minor}.{found.patch}"

    def _descriptor(self, sizes: tuple[int, int], dtype: str, layout: int) -> ctypes.c_void_p:
        descriptor = ctypes.c_void_p()
        shape = (ctypes.c_int64 * 12)(*sizes)
        create = "dnnl_memory_desc_create_with_tag"
        self._call(create, ctypes.byref(descriptor), 2, shape, _TYPES[dtype], layout)
        return descriptor

    def _memory(self, descriptor: ctypes.c_void_p, dtype: str) -> int:
        """Memory filled with random numbers; in the weights' own layout their order does not matter."""
        import ml_dtypes
        import numpy as np

        memory, pointer = ctypes.c_void_p(), ctypes.c_void_p()
        self._call("dnnl_memory_create", ctypes.byref(memory), descriptor, self.engine, _ALLOCATE)
        get_size = self.library.dnnl_memory_desc_get_size
        get_size.restype = ctypes.c_size_t
        count = get_size(descriptor)
        rng = np.random.default_rng(1)
        if dtype in ("f32", "bf16"):
            numbers = rng.standard_normal(count // (4 if dtype == "f32" else 2), dtype=np.float32)
            raw = (numbers if dtype == "f32" else numbers.astype(ml_dtypes.bfloat16)).tobytes()
        else:
            raw = rng.integers(0, 256, count, np.uint8).tobytes()
        self._call("dnnl_memory_map_data", memory, ctypes.byref(pointer))
        ctypes.memmove(pointer, raw, len(raw))
        self._call("dnnl_memory_unmap_data", memory, pointer)
        return int(memory.value or 0)

    def _call(self, name: str, *arguments: Any) -> None:
        status = getattr(self.library, name)(*arguments)
        if status:
            raise SystemExit(f"{name}: status {status} (3: unimplemented)")


def main() -> None:
    """The child process: one core, NumPy and oneDNN in turn."""
    if hasattr(os, "sched_setaffinity"):  # the library's runtime takes as many threads as it sees cores
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    import numpy as np

    size, rounds, types = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
    a = np.random.default_rng(0).standard_normal((size, size), dtype=np.float32)
    matmul = Matmul(size, size, size, types)
    actions: tuple[Callable[[], object], ...] = (lambda: a @ a, matmul.run)
    times: list[list[float]] = [[], []]
    for number in range(rounds + 2):
        for action, found in zip(actions, times, strict=True):
            start = time.process_time()  # of all threads: the runtime may have its own
            action()
            if number > 1:
                found.append(time.process_time() - start)
    numpy, own = (min(found) for found in times)
    names = {"implementation": matmul.implementation, "version": matmul.version}
    print(json.dumps({"ms": 1e3 * own, "ratio": numpy / own, **names}))


if __name__ == "__main__":
    main()
