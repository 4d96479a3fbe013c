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
from typing import Any, ClassVar

LIBRARY = Path(os.environ.get("DNNLROOT", sys.prefix)) / "lib" / "libdnnl.so"
_CPU, _IN_ORDER, _IMPLEMENTATION = 1, 1, 8
TYPES = {"f16": 1, "bf16": 2, "f32": 3, "s32": 4, "s8": 5, "u8": 6, "s4": 11, "u4": 12}
_STRICT_MATH, _BF16_MATH = 0, 1
ANY, _AB = 1, 3
_ABCD = ("a", "ab", "abc", "abcd", "abcde", "abcdef")  # the layouts of NumPy's arrays, from 2 on
_QUERIES = {"src": 129, "wei": 131, "dst": 133}
INFERENCE, _DIRECT = 96, 1
_ALLOCATE = ctypes.c_void_p(-1)
_ARGUMENTS = {"src": 1, "dst": 17, "wei": 33}
SCALES = 4096  # of an argument, added to it


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


class Primitive:
    """A primitive of the library in this process, with its arguments in memory; `run` executes it."""

    arguments: Any

    def __init__(self) -> None:
        self.library = ctypes.CDLL(str(LIBRARY))
        self.engine, self.stream, self.primitive = (ctypes.c_void_p() for _ in range(3))
        self._call("dnnl_engine_create", ctypes.byref(self.engine), _CPU, ctypes.c_size_t(0))
        self._call("dnnl_stream_create", ctypes.byref(self.stream), self.engine, _IN_ORDER)
        self.implementation = ""
        self.query = self.library.dnnl_primitive_desc_query_md
        self.query.restype = ctypes.c_void_p

    def create(self, plan: ctypes.c_void_p) -> None:
        """Make the primitive that is planned; its implementation's name."""
        name = ctypes.c_char_p()
        self._call("dnnl_primitive_create", ctypes.byref(self.primitive), plan)
        self._call("dnnl_primitive_desc_query", plan, _IMPLEMENTATION, 0, ctypes.byref(name))
        self.implementation = (name.value or b"").decode()

    def run(self) -> None:
        """Execute it on tensors in its own layouts."""
        self._execute(self.primitive, self.arguments)
        self._call("dnnl_stream_wait", self.stream)

    def _execute(self, primitive: ctypes.c_void_p, arguments: Any) -> None:
        self._call("dnnl_primitive_execute", primitive, self.stream, len(arguments), arguments)

    def _arguments(self, memories: dict[int, int]) -> Any:
        return (_Argument * len(memories))(*(_Argument(index, memory) for index, memory in memories.items()))

    def _descriptor(self, sizes: tuple[int, ...], dtype: str, layout: int) -> ctypes.c_void_p:
        descriptor = ctypes.c_void_p()
        create = "dnnl_memory_desc_create_with_tag"
        self._call(create, ctypes.byref(descriptor), len(sizes), dims(*sizes), TYPES[dtype], layout)
        return descriptor

    def _filled(self, descriptor: ctypes.c_void_p, values: Callable[[int], bytes]) -> int:
        """Memory with the bytes that `values` has for its size, zeros behind them."""
        memory, pointer = ctypes.c_void_p(), ctypes.c_void_p()
        self._call("dnnl_memory_create", ctypes.byref(memory), descriptor, self.engine, _ALLOCATE)
        get_size = self.library.dnnl_memory_desc_get_size
        get_size.restype = ctypes.c_size_t
        size = get_size(descriptor)
        raw = values(size)
        self._call("dnnl_memory_map_data", memory, ctypes.byref(pointer))
        ctypes.memset(pointer, 0, size)
        ctypes.memmove(pointer, raw, min(size, len(raw)))
        self._call("dnnl_memory_unmap_data", memory, pointer)
        return int(memory.value or 0)

    def _call(self, name: str, *arguments: Any) -> None:
        status = getattr(self.library, name)(*arguments)
        if status:
            raise SystemExit(f"{name}: status {status} (3: unimplemented)")


def dims(*sizes: int) -> Any:
    """Sizes as the library takes them, zeros behind them."""
    return (ctypes.c_int64 * 12)(*sizes)


class Matmul(Primitive):
    """A oneDNN primitive with its memory: a matmul (m, k) x (k, n), weights in the library's own layout.

    `run` executes it once, `packing` brings the weights into that layout besides.
    """

    asked: ClassVar = {"src": _AB, "wei": ANY, "dst": _AB}  # layouts
    brought: ClassVar = ("src", "wei", "dst")  # tensors that `call` and `packing` bring into the library's own layout

    def __init__(self, types: str, *sizes: int) -> None:
        super().__init__()
        self.formats = dict(zip(("src", "wei", "dst"), types.split(":"), strict=True))
        shapes = dict(zip(self.formats, self.shapes(*sizes), strict=True))
        given = {key: self._descriptor(shapes[key], self.formats[key], tag) for key, tag in self.asked.items()}
        plan = ctypes.c_void_p()
        self.plan(plan, given, *sizes)
        self.create(plan)
        self.own = {key: ctypes.c_void_p(self.query(plan, code, 0)) for key, code in _QUERIES.items()}
        memories = {key: self._memory(descriptor, self.formats[key]) for key, descriptor in self.own.items()}
        self.arguments = self._arguments({_ARGUMENTS[key]: memory for key, memory in memories.items()})
        self.reorders = {
            key: self._reorder(key, shapes[key], memories[key])
            for key, tag in self.asked.items()
            if tag == ANY and key in self.brought
        }

    def shapes(self, *sizes: int) -> tuple[tuple[int, ...], ...]:
        """The shapes of source, weights and destination."""
        m, k, n = sizes
        return (m, k), (k, n), (m, n)

    def plan(self, plan: ctypes.c_void_p, given: dict[str, ctypes.c_void_p], *sizes: int) -> None:
        """Have the library choose an implementation."""
        create, of = "dnnl_matmul_primitive_desc_create", (given["src"], given["wei"], None, given["dst"])
        self._call(create, ctypes.byref(plan), self.engine, *of, None)

    def call(self) -> None:
        """Execute it on the user's source and destination, and weights in its own layout."""
        self._all("src", "dst")

    def packing(self) -> None:
        """Execute it on the user's tensors."""
        self._all("src", "wei", "dst")

    def _all(self, *brought: str) -> None:
        for key in [*brought[:-1], "", brought[-1]]:
            if not key:
                self._execute(self.primitive, self.arguments)
            elif key in self.reorders:
                self._execute(*self.reorders[key])
        self._call("dnnl_stream_wait", self.stream)

    def _reorder(self, key: str, shape: tuple[int, ...], own: int) -> tuple[ctypes.c_void_p, Any]:
        """A tensor from the user's layout to the primitive's; of the destination back."""
        descriptor = self._descriptor(shape, self.formats[key], self.plain_tag(len(shape)))
        ends = [(descriptor, self._memory(descriptor, self.formats[key])), (self.own[key], own)]
        (source, taken), (target, left) = ends[::-1] if key == "dst" else ends
        plan, primitive = ctypes.c_void_p(), ctypes.c_void_p()
        create = "dnnl_reorder_primitive_desc_create"
        self._call(create, ctypes.byref(plan), source, self.engine, target, self.engine, None)
        self._call("dnnl_primitive_create", ctypes.byref(primitive), plan)
        return primitive, self._arguments({_ARGUMENTS["src"]: taken, _ARGUMENTS["dst"]: left})

    @staticmethod
    def plain_tag(dims: int) -> int:
        """The layout of NumPy's arrays."""
        return _ABCD.index("abcdef"[:dims]) + 2

    @property
    def version(self) -> str:
        """The library's."""
        get = self.library.dnnl_version
        get.restype = ctypes.POINTER(_Version)
        found = get().contents
        return f"{found.major}.{found.minor}.{found.patch}"

    def _memory(self, descriptor: ctypes.c_void_p, dtype: str) -> int:
        """Memory filled with random numbers; in the weights' own layout their order does not matter."""
        import ml_dtypes
        import numpy as np

        rng = np.random.default_rng(1)
        floats: dict[str, Any] = {"f32": np.float32, "f16": np.float16, "bf16": ml_dtypes.bfloat16}

        def drawn(size: int) -> bytes:
            if dtype not in floats:
                return rng.integers(0, 256, size, np.uint8).tobytes()
            kind = np.dtype(floats[dtype])
            return rng.standard_normal(size // kind.itemsize, dtype=np.float32).astype(kind).tobytes()

        return self._filled(descriptor, drawn)


class Compressed(Matmul):
    """A oneDNN matmul with weights of few bits, which f32 scales multiply: `group` along K share one in each column."""

    brought: ClassVar = ()  # the library has no reorder of four bits

    def __init__(self, types: str, group: int, *sizes: int) -> None:
        self.group = group
        super().__init__(types, *sizes)
        _, k, n = sizes
        scales = self._memory(self._descriptor((k // group, n), "f32", _AB), "f32")
        memories = {given.index: given.memory for given in self.arguments}
        self.arguments = self._arguments(memories | {SCALES | _ARGUMENTS["wei"]: scales})

    def plan(self, plan: ctypes.c_void_p, given: dict[str, ctypes.c_void_p], *sizes: int) -> None:
        """Have the library choose an implementation that computes in the source's type."""
        mode = _BF16_MATH if self.formats["src"] == "bf16" else _STRICT_MATH
        attr, groups = ctypes.c_void_p(), dims(self.group, 1)
        self._call("dnnl_primitive_attr_create", ctypes.byref(attr))
        self._call("dnnl_primitive_attr_set_fpmath_mode_v2", attr, mode, 1)
        self._call("dnnl_primitive_attr_set_scales", attr, _ARGUMENTS["wei"], 3, 2, groups, TYPES["f32"])
        create, of = "dnnl_matmul_primitive_desc_create", (given["src"], given["wei"], None, given["dst"])
        self._call(create, ctypes.byref(plan), self.engine, *of, attr)


class Convolution(Matmul):
    """A oneDNN forward convolution of nchw sources, all tensors in the library's own layouts."""

    asked: ClassVar = {"src": ANY, "wei": ANY, "dst": ANY}

    def shapes(self, *sizes: int) -> tuple[tuple[int, ...], ...]:
        """The shapes of source, weights and destination."""
        mb, ic, size, oc, taps, stride, padding, groups = sizes
        out = (size + 2 * padding - taps) // stride + 1
        wei = (oc, ic, taps, taps) if groups == 1 else (groups, oc // groups, ic // groups, taps, taps)
        return (mb, ic, size, size), wei, (mb, oc, out, out)

    def plan(self, plan: ctypes.c_void_p, given: dict[str, ctypes.c_void_p], *sizes: int) -> None:
        """Have the library choose an implementation."""
        stride, padding = (dims(size, size) for size in sizes[5:7])
        dense = dims()
        of = given["src"], given["wei"], None, given["dst"], stride, dense, padding, padding
        create = "dnnl_convolution_forward_primitive_desc_create"
        self._call(create, ctypes.byref(plan), self.engine, INFERENCE, _DIRECT, *of, None)


class InnerProduct(Matmul):
    """A oneDNN inner product at inference of (mb, ic, side, side) by (oc, ic, side, side), in its own layouts."""

    asked: ClassVar = {"src": ANY, "wei": ANY, "dst": ANY}

    def shapes(self, *sizes: int) -> tuple[tuple[int, ...], ...]:
        """The shapes of source, weights and destination."""
        mb, ic, side, oc = sizes
        return (mb, ic, side, side), (oc, ic, side, side), (mb, oc)

    def plan(self, plan: ctypes.c_void_p, given: dict[str, ctypes.c_void_p], *sizes: int) -> None:
        """Have the library choose an implementation."""
        of = given["src"], given["wei"], None, given["dst"]
        create = "dnnl_inner_product_forward_primitive_desc_create"
        self._call(create, ctypes.byref(plan), self.engine, INFERENCE, *of, None)


def main() -> None:
    """The child process: one core, NumPy and oneDNN in turn."""
    if hasattr(os, "sched_setaffinity"):  # the library's runtime takes as many threads as it sees cores
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    import numpy as np

    size, rounds, types = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
    a = np.random.default_rng(0).standard_normal((size, size), dtype=np.float32)
    matmul = Matmul(types, size, size, size)
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
