"""Rows of matmuls over compressed weights: a kernel makes floats of integers and narrow floats as it multiplies."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

from isa_models import Machine
from isa_models.formats import fmt
from simdnn.kernels.common.kernel import Kernel, KernelKind, Want
from simdnn.kernels.common.narrow_floats import NARROW, is_narrow
from simdnn.kernels.common.problems import MatmulProblem
from simdnn.kernels.common.sums import Options
from simdnn.kernels.x86.amx import TILED_BF16, TILED_F16, accumulation_of, tiled_gemm
from simdnn.kernels.x86.amx_blocks import decompressed
from simdnn.kernels.x86.around import around
from simdnn.kernels.x86.as_s8 import WIDENED
from simdnn.kernels.x86.blocking import outrun
from simdnn.kernels.x86.code import Unit, unit_of
from simdnn.kernels.x86.decompressor import refuses_groups
from simdnn.kernels.x86.dots import BF16, FMA, FP16, MULTIPLY_ADD, Dot
from simdnn.kernels.x86.fused import fused_gemm, refuses_fusion
from simdnn.kernels.x86.gemm import compressed_gemm
from simdnn.kernels.x86.narrow import TABLE, by_fields, undecodable
from simdnn.kernels.x86.widened import from_codes
from simdnn.libraries.onednn.sums import cut_by_channels, cut_decompressed
from simdnn.libraries.onednn.tile_blocks import compressed_blocks
from simdnn.libraries.onednn.tile_cuts import compressed_chain
from simdnn.libraries.onednn.tiles import cut_for_tiles

_DECOMPRESSING: tuple[tuple[str, Dot, tuple[str, ...], str], ...] = (
    ("avx512_core_bf16", BF16, ("bf16", "f32"), ""),
    ("avx512_core_fp16", FP16, ("f16", "f32"), ""),
    ("avx512_core_amx", TILED_BF16, ("bf16", "f32"), ""),
    ("avx512_core_amx_fp16", TILED_F16, ("f16", "f32"), ""),
    ("avx512_core", FMA, ("f32", "bf16", "f16"), ""),
    ("avx2", FMA, ("f32",), ""),
    ("avx512_core", MULTIPLY_ADD, ("f32", "bf16", "f16"), "_ref"),
    ("avx2", MULTIPLY_ADD, ("f32",), "_ref"),
)
#: weights that become floats in two ways: the other one than a row's own, and the suffix of a row that goes it
_OTHERWISE = (("arithmetic", "_arith", ("f4_e2m1",)), ("table", "_table", ("f6_e2m3", "f6_e3m2")))


def compressed_kinds() -> list[KernelKind]:
    """All rows over compressed weights, in the table's order."""
    kinds = [around(_decompressing(*row)) for row in _DECOMPRESSING]
    wide = [row[:3] for row in _DECOMPRESSING if unit_of(row[0]).masks and row[1] != MULTIPLY_ADD]
    fused = [row[:3] for row in _DECOMPRESSING if row[1] in (BF16, FMA)]
    for by, suffix, weights in _OTHERWISE:
        kinds += [around(_otherwise(_decompressing(*row, suffix), by, weights)) for row in wide]
    kinds += [_decompressing(*row, fused=True) for row in fused]
    for by, suffix, weights in _OTHERWISE[1:]:
        masked = [row for row in fused if row in wide]
        kinds += [_otherwise(_decompressing(*row, suffix, fused=True), by, weights) for row in masked]
    return kinds


def _decompressing(isa: str, dot: Dot, sources: tuple[str, ...], suffix: str = "", fused: bool = False) -> KernelKind:
    """Matmul over compressed weights; the reference form multiplies and adds apart, its scales in the weights."""
    name, makes = f"wdec{'_fused' * fused}:{isa}{suffix}", _fused if fused else _in_panels
    return KernelKind(
        name,
        isa,
        dot.compute,
        partial(makes, name, unit_of(isa), dot),
        sources=sources,
        weights=("s8", *WIDENED, *(() if dot == MULTIPLY_ADD else NARROW)),
        multiplied=dot.wei,
        accumulates=(dot.acc,),
        takes=("decompression",),
        needs="decompression",
        mixes=True,
        registered=dot != MULTIPLY_ADD,
        wants=(
            partial(_undecodable, unit_of(isa)),
            partial(_computes, dot),
            partial(refuses_groups, dot=dot),
            partial(_cut_in_groups, dot, unit_of(isa)),
            *([refuses_fusion] if fused else []),
        ),
    )


def _otherwise(kind: KernelKind, by: str, weights: tuple[str, ...]) -> KernelKind:
    """A row over narrow floats that makes f32 of them by arithmetic, or by a table, where the row itself does not."""
    wants: tuple[Want, ...] = (*kind.wants, partial(_in_one_way, by))
    return replace(kind, weights=weights, wants=wants, generator=partial(_made_by, by, kind.generator))


def _in_one_way(by: str, problem: MatmulProblem) -> str:
    """Why codes have no other way of becoming floats than a row's own; empty where they have."""
    form = fmt(problem.wei)
    fits = form.bits == 4 if by == "arithmetic" else form.bits != 4 and 1 << form.bits <= TABLE
    return "" if fits and by_fields(form, fmt("f32")) else f"makes floats of {problem.wei} in one way"


def _made_by(
    by: str, build: Callable[[MatmulProblem, Machine], Kernel], problem: MatmulProblem, machine: Machine
) -> Kernel:
    assert problem.decompression
    return build(replace(problem, decompression=replace(problem.decompression, by=by)), machine)


def _cuts(dot: Dot, unit: Unit, problem: MatmulProblem) -> Options:
    """Where sums are cut: over floats made of narrow ones as over any others."""
    if not is_narrow(problem.wei):
        tiled = dot in (TILED_BF16, TILED_F16)
        return Options(cut=compressed_chain(problem)) if tiled else cut_decompressed(dot, unit.isa, problem)
    options = (cut_for_tiles if dot in (TILED_BF16, TILED_F16) else cut_by_channels)(dot, unit.isa, problem)
    return options if problem.wei in NARROW else replace(options, split_k=0)  # no library has an order for them


def _cut_in_groups(dot: Dot, unit: Unit, problem: MatmulProblem) -> str:
    """Why K cannot be cut within groups of scales; empty where it need not be."""
    d = problem.decompression
    if dot in (TILED_BF16, TILED_F16) and d and d.scale and d.scale.group and _cuts(dot, unit, problem).split_k:
        return f"cuts K = {problem.k} into even parts, and takes no scales along K there"
    return ""


def _ahead(name: str, unit: Unit, dot: Dot, problem: MatmulProblem, machine: Machine) -> Kernel:
    """Weights of narrow floats made panels of once a run, where sums are cut as no panel by itself can be."""
    d = problem.decompression
    assert d
    floats = replace(problem, wei=problem.src, decompression=None)
    floats = replace(floats, epilogue=replace(problem.epilogue, wei_scale=d.scale))
    options = replace(_cuts(dot, unit, problem), merged_scales=d.merged)
    kernel = tiled_gemm(name, floats, unit, dot, accumulation_of(machine), options, compressed=False).kernel()
    return from_codes(kernel, problem, panels=True)


def _undecodable(unit: Unit, problem: MatmulProblem) -> str:
    """Why codes of floats cannot be decoded; empty where they can, and of integers."""
    return undecodable(unit, problem.wei) if is_narrow(problem.wei) else ""


def _computes(dot: Dot, problem: MatmulProblem) -> str:
    d, reference = problem.decompression, dot == MULTIPLY_ADD
    if d and (dot.compute not in d.computes or d.reference != reference):
        return f"computes in {dot.compute}" + (" as the library's reference does" if reference else "")
    return ""


def _in_panels(name: str, unit: Unit, dot: Dot, problem: MatmulProblem, machine: Machine) -> Kernel:
    options = _cuts(dot, unit, problem)
    stored = replace(problem, wei_tag="ab") if problem.wei in ("s4", "u4") else problem
    if dot not in (TILED_BF16, TILED_F16):
        own = replace(options, tile=None, caches=outrun(machine, unit, dot))
        kernel = compressed_gemm(name, problem, unit, dot, own, machine.caches[1].size_bytes // 2).kernel()
        if not options.tile:
            return kernel
        return replace(kernel, timed=compressed_gemm(name, stored, unit, dot, options).program)
    if options.split_k:
        return _ahead(name, unit, dot, problem, machine)
    order = accumulation_of(machine)
    kernel = tiled_gemm(name, problem, unit, dot, order, options, compressed=True).kernel()
    if not problem.tiles or is_narrow(problem.wei) or dot == TILED_F16:
        return kernel
    return replace(kernel, timed=decompressed(name, stored, unit, dot, order, options, compressed_blocks(problem)))


def _fused(name: str, unit: Unit, dot: Dot, problem: MatmulProblem, machine: Machine) -> Kernel:
    return fused_gemm(name, problem, unit, dot).kernel()
