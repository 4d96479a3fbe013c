"""Pictures of outputs: images, where sums saturate, how far two runs lie apart."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray

from isa_models import InvalidArgument
from isa_models.errors import shortly
from isa_models.keywords import keywords
from simdnn.plot.canvas import color, columns_of, figure_of, ink, new_axes, panels


@keywords
def plot_pictures(pictures: Mapping[str, NDArray[np.uint8]], ax: Axes | None = None) -> Axes:
    """Pictures (H, W, 3) side by side, each under its name; the Axes of the first one, or `ax`, which they share."""
    if not isinstance(pictures, Mapping) or not pictures:
        raise InvalidArgument(f"pictures={shortly(pictures)}; images by their names are needed, as {{'f32': image}} is")
    for name, values in pictures.items():
        if not _drawable(values) or values.ndim not in (2, 3):
            raise InvalidArgument(f"picture {name!r} is {shortly(values)}; an array of numbers (H, W, 3) is needed")
    count = len(pictures)
    if ax is None:
        axes = panels(count, (2.6, 2.9))
    else:
        ax.set_axis_off()
        axes = [ax.inset_axes((place / count, 0.0, 0.96 / count, 1.0)) for place in range(count)]
    for part, (name, values) in zip(axes, pictures.items(), strict=True):
        part.imshow(values, interpolation="nearest")
        part.set_title(name, parse_math=False)
        part.set_axis_off()
    return axes[0] if ax is None else ax


@keywords
def saturation_map(
    counts: NDArray[Any], channel: int | None = None, ax: Axes | None = None, what: str = "saturated pairs"
) -> Axes:
    """Where pairs saturate: an image of `Result.saturation`, dark where none does.

    Of other departures: `Result.departure_map("halved weights")`, with `what="halved weights"` for the texts.
    (M, N) of a matmul as it is. Of a convolution (N, C, H, W) the pixels of channel `channel`, all images added; None:
    of all channels.
    """
    if not _drawable(counts) or counts.ndim not in (2, 4) or not counts.size:
        met = f"of shape {counts.shape}" if _drawable(counts) else shortly(counts)
        raise InvalidArgument(f"counts {met}; counts by output of a matmul or convolution are needed")
    if counts.ndim == 4:
        if channel is not None and not 0 <= channel < counts.shape[1]:
            raise InvalidArgument(f"channel={channel}; the output has channels 0 to {counts.shape[1] - 1}")
        picked = counts if channel is None else counts[:, channel : channel + 1]
        values, labels = picked.sum(axis=(0, 1)), ("output column x", "output row y")
    else:
        values, labels = counts, ("output channel n", "row m")
    ax = ax if ax is not None else new_axes((7, 4.5))
    image = ax.imshow(values, aspect="auto", interpolation="nearest", cmap="inferno", vmin=0, vmax=max(1, values.max()))
    figure_of(ax).colorbar(image, ax=ax, label=what, ticks=MaxNLocator(integer=True))
    ax.set_xlabel(labels[0])
    ax.set_ylabel(labels[1])
    ax.xaxis.set_major_locator(MaxNLocator(integer=True))
    ax.yaxis.set_major_locator(MaxNLocator(integer=True))
    share = float((counts > 0).mean())
    ax.set_title(f"{share:.2%} of {counts.size} outputs met {what}")
    return ax


@keywords
def error_histogram(frame: pd.DataFrame, ax: Axes | None = None) -> Axes:
    """How often outputs differ by how much: b - a of `Comparison.outputs`; equal ones are only told in the title."""
    columns_of(frame, ("a", "b"))
    error = (frame["b"] - frame["a"]).to_numpy(np.float64)
    ax = ax if ax is not None else new_axes((7, 4.5))
    shown = error[np.isfinite(error) & (error != 0)]
    if len(shown):
        ax.hist(shown, bins=min(61, max(11, len(np.unique(shown)))), color=color(3))
        ax.set_yscale("log")
        ax.axvline(0, color=ink(), linewidth=0.8)
    else:
        ax.text(0.5, 0.5, "no output differs", transform=ax.transAxes, ha="center", va="center")
    ax.set_xlabel("b - a")
    ax.set_ylabel("outputs")
    ax.set_title(f"{len(shown)} of {len(frame)} outputs differ")
    return ax


def _drawable(values: object) -> bool:
    """Whether this is an array of real numbers."""
    return isinstance(values, np.ndarray) and values.dtype.kind in "biuf"
