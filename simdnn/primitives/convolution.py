"""simdnn.convolution: forward convolution of nchw sources with oihw or goihw weights."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from os import PathLike
from typing import NamedTuple

import numpy as np

from isa_models import GpuMachine, InvalidArgument, Machine
from isa_models.errors import counted
from isa_models.readings.arrays import Array
from simdnn.kernels.common.epilogue import Parameters
from simdnn.kernels.common.narrow_floats import NARROW
from simdnn.kernels.common.problems import ConvProblem
from simdnn.primitives import arrays, narrow_problems
from simdnn.primitives.attr import Attr
from simdnn.primitives.channel_groups import refuse_groups
from simdnn.primitives.checks import keywords
from simdnn.primitives.one_factor import with_one_factor
from simdnn.primitives.postops import refuse_choices, with_operands
from simdnn.primitives.prepared import Prepared, exact, kind_of_call, prepared
from simdnn.primitives.problems import CONV_SIZES, Taps, conv_problem, conv_shape, layouts_of, tensors
from simdnn.primitives.reorder import Reordered, known_or_plain, plain_of
from simdnn.primitives.repeated_calls import at_once
from simdnn.primitives.resolve import Resolved, need_values, resolve
from simdnn.primitives.result import Result
from simdnn.primitives.run import Target, check_reordered, choice_of, resolved
from simdnn.primitives.zero_points import ADDED, refuse_strategy


@at_once
@keywords
def convolution(
    src: Array,
    weights: Array | Reordered,
    bias: Array | None = None,
    *,
    strides: int | Sequence[int] = 1,
    padding: int | Sequence[int] = 0,
    dilation: int | Sequence[int] = 1,
    groups: int = 1,
    machine: str | PathLike[str] | Machine | GpuMachine,
    isa: str | None = None,
    dst: str | None = None,
    attr: Attr | None = None,
    threads: int = 1,
    engine: str = "auto",
    dispatch: str = "fastest",
    src_tag: str = "any",
    wei_tag: str = "any",
    dst_tag: str = "any",
    into: Array | None = None,
) -> Result:
    """Convolve `src` (N, IC, IH, IW) with `weights` (OC, IC/G, KH, KW) or (G, OC/G, IC/G, KH, KW): bits and cost.

    `strides` and `dilation` (1: dense taps): one integer or (vertical, horizontal); `padding` also (top, left,
    bottom, right). Types: f32, bf16 and f16, each with its own; u8 or s8 with s8 weights; f32, bf16 or f16 with weights
    of s8, u8, s4 or u4 under `Attr(apply_to_int=True)`: floats are made of them once a run, less a common zero point
    that their type holds, and scales (common, (OC,)) multiply the sums. `bias` is f32 (OC,). `dst`: s32 (default for
    integers without scales), f32 (else), bf16, f16, s8, u8. `wei_tag`: "any" (the kernel's own layout, made ahead of
    time: see `simdnn.reorder`, whose outcome may stand for the weights), "oihw" (as given: the kernel brings them into
    its own). Kernels here read and write channels last; a library of `dispatch` takes others over `src_tag` and
    `dst_tag` "nchw" or "nhwc" and `wei_tag` "oihw" or "hwio" (words for any number of dimensions), whose bits these
    are. f8_e4m3 and f8_e5m2, each with its own, become floats that a unit multiplies; `dst` is f32 or that type.
    On CPUs weights of f8 and f6 also go with f32, bf16 and f16, made floats of once a run, scales as those of integers.
    `into` (N, OC, OH, OW) holds what the post-operation sum adds to. The output is (N, OC, OH, OW).

    Three spatial dimensions: `src` (N, IC, ID, IH, IW), `weights` (OC, IC/G, KD, KH, KW) or with G ahead; one integer
    for all three axes or three of them, `padding` also (front, top, left, back, bottom, right).

    One spatial dimension: `src` (N, IC, IW), `weights` (OC, IC/G, KW) or with G ahead, one integer for each option,
    `padding` also (left, right).

    Zero points of source and destination are common, or one a channel (arrays (IC,) and (OC,)) on CPUs.

    On a GPU: the types that `matmul` has there; depthwise convolutions run on its vector pipe. Raises
    `InvalidArgument` for shapes that do not fit, `Unimplemented` with what works for what no kernel computes.

    >>> import numpy as np, simdnn
    >>> src, weights = np.ones((1, 16, 6, 6), np.float32), np.ones((32, 16, 3, 3), np.float32)
    >>> r = simdnn.convolution(src, weights, padding=1, machine="zen4")
    >>> r.output.shape, r.output[0, 0, :2, :2].tolist()
    ((1, 32, 6, 6), [[64.0, 96.0], [96.0, 144.0]])
    """
    tags = src_tag, wei_tag, dst_tag
    call = ConvolutionCall(src, weights, bias, dst, attr, tags, into, strides, padding, dilation, groups)
    return convolution_on(Target.of(machine, isa, threads, engine, dispatch), call)


class ConvolutionCall(NamedTuple):
    """The arguments of `convolution` as its caller writes them, but for where it runs; `tags` of source, weights and
    destination. `turned`: of a transposed convolution.
    """

    src: Array
    weights: Array | Reordered
    bias: Array | None = None
    dst: str | None = None
    attr: Attr | None = None
    tags: tuple[str, str, str] = ("any", "any", "any")
    into: Array | None = None
    strides: int | Sequence[int] = 1
    padding: int | Sequence[int] = 0
    dilation: int | Sequence[int] = 1
    groups: int = 1
    turned: bool = False

    def kind(self, target: Target) -> Hashable:
        """All that the decisions of a call go by."""
        taps = self.strides, self.padding, self.dilation, self.groups, self.turned
        operands = self.src, self.weights, self.bias, self.into
        return kind_of_call(target, *operands, self.attr, self.dst, exact(self.tags), exact(taps))


def convolution_on(target: Target, call: ConvolutionCall) -> Result:
    """`convolution` for who has checked once where it runs."""
    ready = prepared(call.kind(target), lambda: _prepared(target, call))
    return ready.run(call.src, known_or_plain(call.weights), call.bias)


def _prepared(target: Target, call: ConvolutionCall) -> Prepared:
    """The primitive made ready for any numbers, or the refusal."""
    src, (values, wei) = call.src, plain_of(call.weights)
    types = arrays.type_of("src", src), wei
    spatial = 3 if src.ndim == 5 else 1 if src.ndim == 3 and _of_lines(values, call.groups) else 2
    taps = Taps.of(call.strides, call.padding, call.dilation, call.groups, spatial, call.turned)
    dims = ("N", "IC", *("ID", "IH", "IW")[3 - spatial :])
    arrays.check_shape("src", src, dims, "; one image is src[None]" if src.ndim == 3 else "")
    oihw = _oihw(values, taps.groups, spatial)
    if spatial == 1:  # rows of an image of one row
        src, oihw = src[:, :, None], (*oihw[:2], 1, *oihw[2:])
    mb, ic, *image = src.shape
    oc, group_ic, *kernel = oihw
    if ic != (wanted := group_ic * taps.groups):
        last = f"; the last dimension has {wanted}: np.moveaxis(src, -1, 1) is nchw" if src.shape[-1] == wanted else ""
        raise InvalidArgument(
            f"src has {counted(ic, 'channel')}, but weights {values.shape} with groups={taps.groups} take "
            f"{group_ic} x {taps.groups} = {wanted}{last}"
        )
    bias = arrays.bias_of(call.bias)
    sizes = dict(zip(CONV_SIZES, (mb, ic, *image[-2:], oc, *kernel[-2:]), strict=True))
    sizes |= {"id": image[0], "kd": kernel[0]} if spatial == 3 else {}
    given = resolved(conv_shape(sizes, taps, *types), call.attr, target)
    need_values(given)
    problem, parameters = problem_of(sizes, taps, given, call.dst, bias, call.tags, target)
    arrays.check_memory(tensors(problem))
    shape = (mb, oc, problem.ow) if spatial == 1 else ()
    parameters = with_operands(parameters, given.post_ops, problem, call.into, shape)
    choice = choice_of(problem, target, given)
    check_reordered(call.weights, choice, target)
    return Prepared(choice, target, given, parameters, src.shape, oihw, shape)


def problem_of(
    sizes: Mapping[str, int],
    taps: Taps,
    given: Resolved,
    dst: str | None,
    bias: Array | bool | None,
    tags: tuple[object, object, object],
    target: Target,
) -> tuple[ConvProblem, Parameters]:
    """The problem that a kernel of the target's machine is asked, and its numbers; refusals name what works."""
    given, library = given.folded, target.library
    layouts = layouts_of(*tags, bool(library))
    if target.gpu:
        from simdnn.primitives import gpu_problems  # with kernels that CPUs do not need

        return gpu_problems.convolution_problem(target.gpu, sizes, taps, given, dst, bias, tags[1])
    refuse_groups(given, "on a CPU")
    if target.library:
        refuse_choices(given.post_ops, target.dispatch)
    if given.shape.src in NARROW:
        epilogue, parameters = narrow_problems.of_convolution(given, dst, bias, target.library)
    else:
        epilogue, parameters = resolve(given, dst, bias)
    if target.library and target.library.one_factor and given.shape.integer:
        epilogue, parameters = with_one_factor(epilogue, parameters, bias, target.library.title)
    if (rows := np.size(parameters.zp_src)) not in (1, sizes["ic"]):
        raise InvalidArgument(
            f"zero_points['src'] with {counted(rows, 'value')}; allowed: 1, or {sizes['ic']}, one a channel"
        )
    refuse_strategy(given, ADDED, "a convolution on a CPU")
    problem = conv_problem(sizes, taps, given.shape, epilogue, "any" if library else tags[1], layouts)
    return (library.asked(problem, target.caps) if library and library.asked else problem), parameters


def _of_lines(weights: Array, groups: object) -> bool:
    """Whether weights are of one spatial dimension: (OC, IC/G, KW), or with as many groups ahead as are asked for."""
    return weights.ndim == 3 or weights.ndim == 4 and groups != 1 and weights.shape[0] == groups


def _oihw(weights: Array, groups: int, spatial: int = 2) -> tuple[int, ...]:
    """(OC, IC/G, KH, KW) of oihw or goihw weights; with three spatial dimensions KD ahead of KH, with one no KH."""
    kernel = ("KD", "KH", "KW")[3 - spatial :]
    grouped = ", ".join(("G", "OC/G", "IC/G", *kernel))
    if weights.ndim != 3 + spatial:
        arrays.check_shape("weights", weights, ("OC", "IC/G", *kernel), f" (or {3 + spatial}: ({grouped}))")
        return weights.shape
    arrays.check_shape("weights", weights, ("G", "OC/G", "IC/G", *kernel))
    if weights.shape[0] != groups:
        raise InvalidArgument(
            f"weights ({grouped}) of shape {weights.shape} with groups={groups}; pass groups={weights.shape[0]}"
        )
    return (weights.shape[0] * weights.shape[1], *weights.shape[2:])
