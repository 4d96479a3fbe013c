"""A layer's shape: the one record that tables hold, data generators fill and primitives run."""

from __future__ import annotations

from dataclasses import dataclass, fields
from math import prod

from isa_models.errors import InvalidArgument
from isa_models.records.display import InNotebooks

MATMUL_KINDS = ("weight", "act")


@dataclass(frozen=True)
class ConvLayer(InNotebooks):
    """A forward convolution of one image: source (ic, ih, iw), weights (oc, ic/groups, kh, kw), result (oc, oh, ow).

    `stride` and `pad` hold for both axes; there is no dilation. `count` says how often the network repeats the layer.
    A fully connected layer of a convolutional network is the case ih = iw = kh = kw = 1.
    Raises `InvalidArgument` where the sizes contradict one another.

    >>> ConvLayer("conv1", 3, 224, 224, 64, 112, 112, 7, 7, stride=2, pad=3).macs
    118013952
    """

    name: str
    ic: int
    ih: int
    iw: int
    oc: int
    oh: int
    ow: int
    kh: int
    kw: int
    stride: int = 1
    pad: int = 0
    groups: int = 1
    count: int = 1

    def __post_init__(self) -> None:
        _check_sizes(self, zero_allowed=("pad",))
        for channels in ("ic", "oc"):
            if getattr(self, channels) % self.groups:
                raise InvalidArgument(
                    f"layer {self.name!r}: {channels}={getattr(self, channels)} is no multiple of groups={self.groups}"
                )
        for out, size, kernel in (("oh", self.ih, self.kh), ("ow", self.iw, self.kw)):
            expected = (size + 2 * self.pad - kernel) // self.stride + 1
            if getattr(self, out) != expected:
                raise InvalidArgument(
                    f"layer {self.name!r}: {out}={getattr(self, out)}, but input {size}, kernel {kernel}, "
                    f"stride {self.stride} and pad {self.pad} give {expected}"
                )

    @property
    def macs(self) -> int:
        """Multiply-accumulates of one occurrence (`count` is not included)."""
        return self.oh * self.ow * prod(self.weights_shape)

    @property
    def src_shape(self) -> tuple[int, ...]:
        """NCHW with one image."""
        return (1, self.ic, self.ih, self.iw)

    @property
    def weights_shape(self) -> tuple[int, ...]:
        """OIHW, or goihw where there are groups."""
        kernel = (self.ic // self.groups, self.kh, self.kw)
        return (self.oc, *kernel) if self.groups == 1 else (self.groups, self.oc // self.groups, *kernel)

    @property
    def parameters(self) -> int:
        """Weights of all occurrences, without bias and normalization."""
        return prod(self.weights_shape) * self.count


@dataclass(frozen=True)
class MatmulLayer(InNotebooks):
    """`batch` products (m, k) x (k, n) -> (m, n); `count` says how often the network repeats the layer.

    `kind` is "weight" where the right side is trained, "act" where both sides are activations (attention).
    Raises `InvalidArgument` for sizes below 1 or another kind.

    >>> MatmulLayer("qk^T", m=128, n=128, k=64, batch=12, count=12, kind="act").macs
    12582912
    """

    name: str
    m: int
    n: int
    k: int
    batch: int = 1
    count: int = 1
    kind: str = "weight"

    def __post_init__(self) -> None:
        _check_sizes(self)
        if self.kind not in MATMUL_KINDS:
            raise InvalidArgument(f"layer {self.name!r}: kind={self.kind!r}; allowed: {', '.join(MATMUL_KINDS)}")

    @property
    def macs(self) -> int:
        """Multiply-accumulates of one occurrence, all of its batch (`count` is not included)."""
        return self.batch * self.m * self.n * self.k

    @property
    def src_shape(self) -> tuple[int, ...]:
        """(M, K) of one product of the batch."""
        return (self.m, self.k)

    @property
    def weights_shape(self) -> tuple[int, ...]:
        """(K, N) of one product of the batch."""
        return (self.k, self.n)

    @property
    def parameters(self) -> int:
        """Weights of all occurrences, without bias and normalization; 0 where both sides are activations."""
        return self.batch * self.n * self.k * self.count if self.kind == "weight" else 0


Layer = ConvLayer | MatmulLayer


def _check_sizes(layer: Layer, zero_allowed: tuple[str, ...] = ()) -> None:
    """Every integer field is a true integer of at least 1 (or 0 where allowed)."""
    for field in fields(layer):
        if field.type != "int":
            continue
        value, least = getattr(layer, field.name), 0 if field.name in zero_allowed else 1
        if not isinstance(value, int) or isinstance(value, bool) or value < least:
            raise InvalidArgument(
                f"layer {layer.name!r}: {field.name}={value!r}; an integer of at least {least} is needed"
            )
