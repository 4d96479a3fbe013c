"""Feeds of a network: given by a user, drawn at random, the same for judging and calibrating; sizes left open."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from math import prod
from typing import Any

import numpy as np

from isa_models import InvalidArgument, SimdnnError
from isa_models.readings.arrays import Array, memory_bytes
from simdnn.networks.network import Network
from simdnn.networks.types import F32, is_float

CALIBRATED_ON_ITSELF = "its ranges are from the very data that it is judged on"
CALIBRATED_ON_PART = "{0} of the {1} feeds that it is judged on are among those that its ranges are from"
_COPIES = 8  # of an input, that drawing it and the first nodes take at the least


def listed_feeds(name: str, feeds: object) -> list[Mapping[str, Array]]:
    """One feed or several as a list; `InvalidArgument`, naming the argument, for what is neither."""
    found = [feeds] if isinstance(feeds, Mapping) else list(feeds) if isinstance(feeds, (list, tuple)) else []
    if not found or not all(isinstance(feed, Mapping) for feed in found):
        met = f" is a {type(feeds).__name__}" if hasattr(feeds, "shape") else f"={feeds!r:.60}"
        raise InvalidArgument(f"{name}{met}; a dict of arrays by input name, or a list of them, is needed")
    return found


def random_feeds(network: Network, shapes: Mapping[str, Sequence[int]], seed: int) -> dict[str, Array]:
    """Seeded data for every input: floats from a standard normal distribution, integers from 0 to 9.

    Sizes that neither `shapes` nor the model states are 1.
    """
    rng = np.random.default_rng(seed)
    sizes, _ = network.sizes(shapes)
    found: dict[str, Array] = {}
    for port in network.inputs:
        dtype, dims = port.dtype or F32, sizes[port.name]
        needed = _COPIES * dtype.itemsize * prod(dims)
        if needed > memory_bytes():
            raise InvalidArgument(
                f"input {port} of {'x'.join(map(str, dims))}: a run with values takes more than {needed:.3g} bytes, "
                f"and this host has {memory_bytes():.3g}; costs alone (run --no-values) take none"
            )
        data = rng.normal(size=dims) if is_float(dtype) else rng.integers(0, 2 if dtype.kind == "b" else 10, dims)
        found[port.name] = data.astype(dtype)
    return found


def left_open(names: Sequence[str]) -> str:
    """A clause on sizes that a model leaves open and nobody gave.

    >>> left_open(["N", "T"])
    'N = T = 1, which the model leaves open'
    """
    return f"{' = '.join(names)} = 1, which the model leaves open" if names else ""


@contextmanager
def telling_open(names: Sequence[str]) -> Iterator[None]:
    """Errors tell which sizes were taken as 1, as those may be their cause."""
    try:
        yield
    except SimdnnError as error:
        more = left_open(names)
        raise type(error)(f"{error}; {more}: feeds or shapes say more" if more else str(error)) from None


def overlap_of(judged: Sequence[Mapping[str, Any]], calibration: Sequence[Mapping[str, Any]]) -> str:
    """A sentence for feeds that judge what they calibrated; "" where none does.

    >>> one, other = ({"x": np.full(2, value)} for value in (1.0, 2.0))
    >>> overlap_of([one, other], [one]), overlap_of([one], [other])
    ('1 of the 2 feeds that it is judged on are among those that its ranges are from', '')
    """
    both = sum(any(_same(one, other) for other in calibration) for one in judged)
    if both == len(judged):
        return CALIBRATED_ON_ITSELF
    return CALIBRATED_ON_PART.format(both, len(judged)) if both else ""


def _same(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    return one is other or one.keys() == other.keys() and all(np.array_equal(one[name], other[name]) for name in one)
