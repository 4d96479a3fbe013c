"""One line for each executed primitive, in the grammar of oneDNN's verbose log.

    simdnn_verbose,v1,primitive,exec,cpu,matmul,<implementation>,undef,<memory>,<attributes>,,128x768:768x3072,<ms>

Fields are oneDNN's (developer guide, "Verbose mode"). The time is the one predicted for the machine, `unknown` where
none can be; behind the attributes stand the type that products were formed in and the machine. `simdnn bench
--from-verbose` reads such lines as it reads oneDNN's.
"""

from __future__ import annotations

from isa_models import UnknownTiming
from simdnn.kernels.gpu_gemm import GpuMatmulProblem
from simdnn.kernels.spec import ConvProblem, MatmulProblem, Placing, Problem
from simdnn.result import Estimate


def line(result: Estimate) -> str:
    """The line of an executed primitive."""
    problem = result.problem
    if isinstance(problem, MatmulProblem):
        kind, propagation, auxiliary, memory, sizes = "matmul", "undef", "", _matmul_memory(problem), _matmul(problem)
    else:
        kind, propagation, auxiliary = "convolution", "forward_inference", "alg:convolution_direct"
        memory, sizes = _conv_memory(problem), _convolution(problem)
    attributes = " ".join([*_attributes(result), f"compute:{result.compute_dtype}", f"machine:{result.machine.name}"])
    fields = ("simdnn_verbose", "v1", "primitive", "exec", "cpu", kind, result.implementation, propagation, memory,
              attributes, auxiliary, sizes, _milliseconds(result))  # fmt: skip
    return ",".join(fields)


def _milliseconds(result: Estimate) -> str:
    try:
        return f"{result.seconds * 1e3:.6g}"
    except UnknownTiming:  # a machine without the figure
        return "unknown"


def _matmul_memory(p: MatmulProblem) -> str:
    wei = "a:any:any" if p.wei_tag == "any" else f":blocked:{p.wei_tag}"  # a: the library chose it
    bias = ["bia:f32::blocked:ab::f0_mask2"] if p.epilogue.bias else []
    src, dst = (f"{name}:{dtype}::blocked:ab::f0" for name, dtype in (("src", p.src), ("dst", p.epilogue.dst)))
    return " ".join([src, f"wei:{p.wei}:{wei}::f0", *bias, dst])


def _conv_memory(p: ConvProblem) -> str:
    bias = "bia:f32::blocked:a::f0" if p.epilogue.bias else "bia:undef::undef:::"
    src, dst = (f"{name}:{dtype}:a:blocked:acdb::f0" for name, dtype in (("src", p.src), ("dst", p.epilogue.dst)))
    plain = "abcde" if p.groups > 1 else "abcd"
    wei = "a:any:any" if p.wei_tag == "any" else f":blocked:{plain}"
    return f"{src} wei:{p.wei}:{wei}::f0 {bias} {dst}"


#: as oneDNN writes them; the mask of an add says the dimensions along which its values run, of both primitives channels
_POST_OPS = {"relu": "eltwise_relu", "sum": "sum", "add:common": "binary_add:f32:0", "add:per_oc": "binary_add:f32:2",
             "add:full": "binary_add:f32:per_tensor"}  # fmt: skip


def _attributes(result: Estimate) -> list[str]:
    """The attributes that are not the default, as oneDNN writes them."""
    problem, found = result.problem, []
    compressed = isinstance(problem, MatmulProblem) and problem.decompression is not None
    if result.fpmath != "strict" or compressed:
        found.append(f"attr-fpmath:{result.fpmath}" + (":true" if compressed else ""))
    if scales := _scales(problem):
        found.append("attr-scales:" + "+".join(scales))
    if points := _zero_points(problem):
        found.append("attr-zero-points:" + "+".join(points))
    ops = [_POST_OPS[name] for name in problem.epilogue.post_ops]
    return [*found, "attr-post-ops:" + "+".join(ops)] if ops else found


def _per_oc(problem: Problem) -> int:
    """The mask of one value for each output channel."""
    return 2 if isinstance(problem, MatmulProblem) else 1 if problem.groups == 1 else 3


def _scales(problem: Problem) -> list[str]:
    e = problem.epilogue
    found = ["src:0:f32"] if e.src_scale else []
    grouped = problem.group_scales if isinstance(problem, MatmulProblem) else None
    if grouped:
        named = (("src", grouped.src, f"1x{grouped.src}"), ("wei", grouped.wei, f"{grouped.wei}x1"))
        return [f"{name}:3:f32:{groups}" for name, group, groups in named if group]
    if e.wei_scale:
        found.append(f"wei:{_per_oc(problem) if e.wei_scale == 'per_oc' else 0}:f32")
    if isinstance(problem, MatmulProblem) and problem.decompression and problem.decompression.scale:
        found.append(_placed(problem.decompression.scale))
    return [*found, "dst:0:f32"] if e.dst_scale else found


def _zero_points(problem: Problem) -> list[str]:
    e = problem.epilogue
    found = [f"{name}:0:s32" for name, there in (("src", e.zp_src), ("wei", e.zp_wei)) if there]
    if isinstance(problem, MatmulProblem) and problem.decompression and problem.decompression.zero_point:
        found.append(_placed(problem.decompression.zero_point))
    return [*found, "dst:0:s32"] if e.dst_zero_point else found


def _placed(placing: Placing) -> str:
    if placing.placing == "grouped":
        return f"wei:3:{placing.dtype}:{placing.group}x1"
    return f"wei:{2 if placing.placing == 'per_oc' else 0}:{placing.dtype}"


def _matmul(p: MatmulProblem) -> str:
    if not isinstance(p, GpuMatmulProblem) or p.batch.count == 1:
        return f"{p.m}x{p.k}:{p.k}x{p.n}"
    src, wei = str(p.batch).split(":")
    return f"{src}x{p.m}x{p.k}:{wei}x{p.k}x{p.n}"


def _convolution(p: ConvProblem) -> str:
    top, left, _, _ = p.padding
    groups = f"g{p.groups}" if p.groups > 1 else ""
    height = f"ih{p.ih}oh{p.oh}kh{p.kh}sh{p.strides[0]}dh{p.dilation[0] - 1}ph{top}"
    width = f"iw{p.iw}ow{p.ow}kw{p.kw}sw{p.strides[1]}dw{p.dilation[1] - 1}pw{left}"
    return f"{groups}mb{p.mb}_ic{p.ic}oc{p.oc}_{height}_{width}"
