"""One line for each executed primitive, in the grammar of oneDNN's verbose log.

    simdnn_verbose,v1,primitive,exec,cpu,matmul,<implementation>,undef,<memory>,<attributes>,,128x768:768x3072,<ms>

Fields are oneDNN's (developer guide, "Verbose mode"). `simdnn bench --from-verbose` reads such lines, too.
"""

from __future__ import annotations

from collections.abc import Sequence

from isa_models.formats import fmt
from simdnn.kernels.common.problems import ConvProblem, MatmulProblem, Problem


def family(name: str) -> str:
    """The library's implementation without its instructions.

    >>> family("brg_matmul:avx512_core_vnni")
    'brg_matmul'
    """
    return name.partition(":")[0]


def instructions(name: str) -> str:
    """The ISA cap of the library's implementation.

    >>> instructions("brg_matmul:avx512_core_vnni")
    'avx512_core_vnni'
    """
    return name.partition(":")[2]


def is_on_tiles(name: str) -> bool:
    """Whether the library's implementation is one of those for tiles.

    >>> is_on_tiles("brg_matmul:avx10_1_512_amx"), is_on_tiles("brg_matmul:avx512_core_vnni")
    (True, False)
    """
    return "amx" in instructions(name)


def line(problem: Problem, implementation: str, words: Sequence[str], time: str) -> str:
    """The line of a problem; `words` tell its attribute and what else is to be said, `time` is in milliseconds."""
    if isinstance(problem, MatmulProblem):
        kind, propagation, auxiliary, memory, sizes = "matmul", "undef", "", _matmul_memory(problem), _matmul(problem)
    else:
        kind, propagation, auxiliary = "convolution", "forward_inference", "alg:convolution_direct"
        memory, sizes = _conv_memory(problem), _convolution(problem)
    head = ("simdnn_verbose", "v1", "primitive", "exec", "cpu", kind)
    return ",".join([*head, implementation, propagation, memory, " ".join(words), auxiliary, sizes, time])


def _matmul_memory(p: MatmulProblem) -> str:
    front = len(p.batch.extents)
    rows, matrix = "abcdefghijkl"[: front + 2], "abcdefghijkl"[front : front + 2]
    tag = rows if p.wei_tag == "ab" else rows[:front] + matrix[::-1]
    wei = "a:any:any" if p.wei_tag == "any" else f":blocked:{tag}"  # a: the library chose it
    bias = [f"bia:f32::blocked:{rows}::f0_mask{1 << front + 1}"] if p.epilogue.bias else []
    types = (("src", _held(p.src)), ("dst", p.epilogue.dst))
    src, dst = (f"{name}:{dtype}::blocked:{rows}::f0" for name, dtype in types)
    return " ".join([src, f"wei:{p.blocks or _held(p.wei)}:{wei}::f0", *bias, dst])


def _conv_memory(p: ConvProblem) -> str:
    bias = "bia:f32::blocked:a::f0" if p.epilogue.bias else "bia:undef::undef:::"
    types = (("src", _held(p.src)), ("dst", p.epilogue.dst))
    src, dst = (f"{name}:{dtype}:a:blocked:acdb::f0" for name, dtype in types)
    plain = "abcde" if p.groups > 1 else "abcd"
    wei = "a:any:any" if p.wei_tag == "any" else f":blocked:{plain}"
    return f"{src} wei:{_held(p.wei)}:{wei}::f0 {bias} {dst}"


def _held(dtype: str) -> str:
    """The type that operands are stored in: a problem in tf32 is one of f32."""
    return fmt(dtype).lanes


def _matmul(p: MatmulProblem) -> str:
    if p.batch.count == 1:
        return f"{p.m}x{p.k}:{p.k}x{p.n}"
    src, wei = p.batch.sides
    return f"{src}x{p.m}x{p.k}:{wei}x{p.k}x{p.n}"


def _convolution(p: ConvProblem) -> str:
    top, left, _, _ = p.padding
    groups = f"g{p.groups}" if p.groups > 1 else ""
    height = f"ih{p.ih}oh{p.oh}kh{p.kh}sh{p.strides[0]}dh{p.dilation[0] - 1}ph{top}"
    width = f"iw{p.iw}ow{p.ow}kw{p.kw}sw{p.strides[1]}dw{p.dilation[1] - 1}pw{left}"
    planes = ""
    if d := p.depth:
        planes = f"_id{d.i}od{d.o}kd{d.k}sd{d.stride}dd{d.dilation - 1}pd{d.front}"
    return f"{groups}mb{p.mb}_ic{p.ic}oc{p.oc}{planes}_{height}_{width}"
