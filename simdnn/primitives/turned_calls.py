"""Calls of convolutions whose own machine code turns the axes of images: there, and back.

Kernels of CPUs read and leave images whose channels are last. Where an image is small, what Python does around the two
turns takes longer than they do.
"""

from __future__ import annotations

import numpy as np

from isa_models.formats import fmt
from isa_models.host.memory import address
from isa_models.readings.arrays import Array
from isa_models.readings.transposed_copy import AxisTurn, turning_of
from simdnn.kernels.common.kernel import Kernel

TIMES = 64  # calls after which Python asks whether there is code that turns axes by now
_MOST = 1 << 20  # bytes of images: of larger ones turns take much longer than what is around them


def channels_last(image: Array) -> Array:
    """A view of an image in the order in which kernels of CPUs read it."""
    return image.transpose(0, *range(2, image.ndim), 1)


def channels_first(image: Array) -> Array:
    """A view of an image whose channels are last in the order in which users have it."""
    return image.transpose(0, -1, *range(1, image.ndim - 1))


def turns_of(src: Array, read: Array, output: Array) -> tuple[AxisTurn, AxisTurn] | None:
    """The calls that turn a user's image like `src`, which programs `read` as it is then, and what they leave of an
    output like one, back to it. None where there are none, or not yet.
    """
    if max(src.nbytes, output.nbytes) > _MOST or (address(read), read.nbytes) != (address(src), src.nbytes):
        return None
    count, channels, *image = output.shape
    left = np.empty((count, *image, channels), output.dtype)
    ahead = turning_of(channels_last(np.empty(src.shape, src.dtype)), TIMES)
    behind = turning_of(channels_first(left), TIMES)
    return (ahead, behind) if ahead and behind else None


def only_turns(kernel: Kernel) -> bool:
    """Whether a kernel's output is what its program leaves, turned, and nothing else: told by numbered elements."""
    outputs = [tensor for tensor in kernel.program.tensors if tensor.kind == "output"]
    if len(outputs) != 1 or outputs[0].nbytes > _MOST:
        return False
    dtype = fmt(outputs[0].dtype).dtype
    bits = f"u{dtype.itemsize}"
    numbers = np.arange(outputs[0].size)
    for shift in range(0, _MOST.bit_length(), 8 * dtype.itemsize):
        left = (numbers >> shift).astype(bits)
        output = kernel.finish({outputs[0].name: left.view(dtype)})
        if output.dtype != dtype or output.size != left.size or output.ndim < 3:
            return False
        count, channels, *image = output.shape
        if (output.view(bits) != channels_first(left.reshape(count, *image, channels))).any():
            return False
    return True
