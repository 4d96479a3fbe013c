"""Problem descriptors: `64x512:512x64` of a matmul, `mb1ic64ih56oc64oh56kh3ph1n"name"` of a convolution,
`mb1ic256ih6oc10` of an inner product.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from math import prod

from isa_models import InvalidArgument, Unimplemented
from isa_models.errors import counted
from simdnn.libraries import MOST_DIMS

_MOST_DIGITS = 12  # sizes beyond are refused as no tensor has them
_FIELD = re.compile(r"(mb|g|[io]c|[iokspd][dhw])(\d*)")
_NORM_FIELD = re.compile(r"(mb|g|ic|i[dhw])(\d*)")
_NUMBER = r"(\d+(?:\.\d*)?(?:e[-+]?\d+)?)"
_EPSILON = re.compile(f"eps{_NUMBER}")
_IP_FIELD = re.compile(r"(mb|[io]c|i[dhw])(\d*)")


@dataclass(frozen=True)
class MatmulDims:
    """Dimensions as written, and as they are computed: `batch` products of (m, k) by (k, n)."""

    src: tuple[int, ...]
    wei: tuple[int, ...]
    dst: tuple[int, ...]  # empty where not written
    name: str = ""

    @property
    def ndims(self) -> int:
        return len(self.src)

    @property
    def folded(self) -> bool:
        """Whether all products share one matrix of weights, so that the batch is rows of one product."""
        return prod(self.wei[:-2]) == 1

    @property
    def sizes(self) -> tuple[int, int, int, int]:
        """(batch, m, k, n); `Unimplemented` for dimensions that make no product."""
        if len(self.src) != len(self.wei) or len(self.src) < 2:
            raise Unimplemented(
                f"{counted(len(self.src), 'dimension')} of src, {len(self.wei)} of weights; what works: 2 each"
            )
        if self.src[-1] != self.wei[-2]:
            raise Unimplemented(
                f"K is {self.src[-1]} in src and {self.wei[-2]} in weights; what works: the same in both"
            )
        pairs = list(zip(self.src[:-2], self.wei[:-2], strict=True))
        if differ := next((pair for pair in pairs if pair[0] != pair[1] and 1 not in pair), None):
            raise Unimplemented(
                f"a batch is {differ[0]} in src and {differ[1]} in weights; what works: the same in both, or 1 in one"
            )
        result = (*(b if a == 1 else a for a, b in pairs), self.src[-2], self.wei[-1])
        if self.dst and self.dst != result:
            raise Unimplemented(f"dst of {'x'.join(map(str, self.dst))}; the product is {'x'.join(map(str, result))}")
        if 0 in (*result, self.src[-1]):
            raise Unimplemented("a dimension of 0: nothing is computed; what works: at least 1")
        batch, m = prod(result[:-2]), self.src[-2]
        return (1, batch * m, self.src[-1], self.wei[-1]) if self.folded else (batch, m, self.src[-1], self.wei[-1])


def matmul_dims(text: str) -> MatmulDims:
    """The dimensions of `MxK:KxN[:MxN][n"name"]`, further ones in front of M and K allowed.

    >>> matmul_dims('64x512:512x32n"up"').sizes
    (1, 64, 512, 32)
    >>> matmul_dims("3x5x12:1x12x17").sizes  # one matrix of weights: rows of one product
    (1, 15, 12, 17)

    Raises `InvalidArgument` for another syntax.
    """
    sizes, _, name = text.partition("n")
    tensors = []
    for part in sizes.removesuffix("_").split(":"):
        numbers = part.split("x")
        if len(numbers) > MOST_DIMS or not all(map(_is_size, numbers)):
            raise InvalidArgument(f"matmul problem {_short(text)}: {_short(part)} is no MxK, as in 64x512:512x64")
        tensors.append(tuple(map(int, numbers)))
    if not 2 <= len(tensors) <= 3:
        raise InvalidArgument(f"matmul problem {_short(text)}: src:weights are needed, as in 64x512:512x64")
    return MatmulDims(tensors[0], tensors[1], tensors[2] if len(tensors) == 3 else (), name.strip('"'))


@dataclass(frozen=True)
class Axis:
    """One spatial dimension: input, output, kernel, stride, padding before, dilation (0: dense taps)."""

    i: int = 1
    o: int = 1
    k: int = 1
    s: int = 1
    p: int = 0
    d: int = 0

    @property
    def after(self) -> int:
        """The padding behind the input; negative where its last elements are not read."""
        return (self.o - 1) * self.s - self.i + (self.k - 1) * (self.d + 1) + 1 - self.p


@dataclass(frozen=True)
class ConvDims:
    """A convolution as written, what was left out filled in. `depth` and `height` are trivial in fewer dimensions."""

    mb: int
    groups: int
    ic: int
    oc: int
    depth: Axis
    height: Axis
    width: Axis
    has_groups: bool = False
    name: str = ""
    written: int = 2  # spatial dimensions of the descriptor


def conv_dims(text: str, transposed: bool = False) -> ConvDims:
    """The convolution that a descriptor means, by benchdnn's rules for what is left out.

    mb is 2, g and strides 1, dilations 0 (dense); an output or a padding is derived from the other (both missing: no
    padding); an axis that is not named repeats the one before it (depth, height, width). `transposed`: a
    deconvolution's, whose output is what a convolution of the same sizes would read.

    >>> c = conv_dims('ic3ih224oc64oh112kh7sh2ph3n"conv1"')
    >>> c.mb, c.width, c.name
    (2, Axis(i=224, o=112, k=7, s=2, p=3, d=0), 'conv1')

    Raises `InvalidArgument` for another syntax and for sizes that give no output.
    """
    entries = "g mb ic oc, and i o k s p d with d h w, as in mb1ic64ih56oc64oh56kh3ph1"
    given, name = _entries(f"convolution problem {_short(text)}", text, _FIELD, entries)
    if given.get("g") == 0:
        raise InvalidArgument(f"convolution problem {_short(text)}: g is 0")
    axes = [_axis(text, name, given, transposed) for name in "dhw"]
    if not any(axes):
        raise InvalidArgument(f"convolution problem {_short(text)}: no input or kernel size, as in ih56kh3")
    depth, height, width = axes
    if depth:  # a cube or square where later axes are not named
        height = height or depth
    width = width or height
    return ConvDims(
        given.get("mb", 2),
        given.get("g", 1),
        given["ic"],
        given["oc"],
        depth or Axis(),
        height or Axis(),
        width or Axis(),
        "g" in given,
        name,
        3 if axes[0] else 2 if axes[1] else 1,
    )


@dataclass(frozen=True)
class IpDims:
    """An inner product as written: `mb` rows of `ic` channels of sizes `spatial`, the last of d, h and w."""

    mb: int
    ic: int
    oc: int
    spatial: tuple[int, ...] = ()
    name: str = ""

    @property
    def ndims(self) -> int:
        """Dimensions of the source and of the weights; the destination has two."""
        return 2 + len(self.spatial)

    @property
    def terms(self) -> int:
        """How many products an output adds up."""
        return self.ic * prod(self.spatial)


def ip_dims(text: str) -> IpDims:
    """The inner product that a descriptor means; mb is 2, and a cube or a square where later axes are not named.

    >>> ip_dims('mb1ic256ih6oc4096n"fc6"')
    IpDims(mb=1, ic=256, oc=4096, spatial=(6, 6), name='fc6')
    >>> ip_dims("mb1ic8oc8").spatial
    ()

    Raises `InvalidArgument` for another syntax and for sizes of 0.
    """
    where = f"inner product {_short(text)}"
    given, name = _entries(where, text, _IP_FIELD, "mb ic oc id ih iw, as in mb1ic256ih6iw6oc10")
    if zero := [key for key, size in given.items() if not size]:
        raise InvalidArgument(f"{where}: {zero[0]} is 0")
    axes = [given.get(f"i{axis}") for axis in "dhw"]
    first = next((number for number, size in enumerate(axes) if size), len(axes))
    spatial: list[int] = []
    for size in axes[first:]:
        spatial.append(size or spatial[-1])
    return IpDims(given.get("mb", 2), given["ic"], given["oc"], tuple(spatial), name)


@dataclass(frozen=True)
class WindowDims:
    """A pooling or resampling as written: images (N, C), an axis for each spatial dimension."""

    mb: int
    channels: int
    axes: tuple[Axis, ...]
    name: str = ""

    @property
    def shape(self) -> tuple[int, ...]:
        """The source's."""
        return self.mb, self.channels, *(axis.i for axis in self.axes)


def pool_dims(text: str) -> WindowDims:
    """The pooling that a descriptor means, by the rules of convolutions for what is left out.

    >>> pool_dims("mb1ic64ih112kh3sh2ph1").axes[0]
    Axis(i=112, o=56, k=3, s=2, p=1, d=0)
    """
    entries = "mb ic, and i o k s p d with d h w, as in mb1ic64ih112kh3sh2ph1"
    where = f"pooling problem {_short(text)}"
    given, name = _entries(where, text, _FIELD, entries, ("ic",))
    return WindowDims(given.get("mb", 2), given["ic"], _spread(where, [_axis(text, a, given) for a in "dhw"]), name)


def resampling_dims(text: str) -> WindowDims:
    """The resampling that a descriptor means: sizes of input and output.

    >>> [axis.o for axis in resampling_dims("mb96ic768_ih17oh34").axes]
    [34, 34]
    """
    where = f"resampling problem {_short(text)}"
    given, name = _entries(where, text, _FIELD, "mb ic, and i o with d h w, as in mb1ic64ih14oh28", ("ic",))
    axes = [Axis(given[f"i{a}"], given.get(f"o{a}") or given[f"i{a}"]) if given.get(f"i{a}") else None for a in "dhw"]
    return WindowDims(given.get("mb", 2), given["ic"], _spread(where, axes), name)


def _spread(where: str, axes: list[Axis | None]) -> tuple[Axis, ...]:
    """Axes from the first that is named on; one that is not is the one before it, again: a cube or a square."""
    found: list[Axis] = []
    for axis in axes:
        if axis or found:
            found.append(axis or found[-1])
    if not found:
        raise InvalidArgument(f"{where}: no input size, as in ih56")
    return tuple(found)


@dataclass(frozen=True)
class NormDims:
    """A batch or group normalization as written: the source (N, C, …), groups, and what is added to variances."""

    shape: tuple[int, ...]
    epsilon: float = 1 / 16
    groups: int = 1
    name: str = ""


def norm_dims(text: str) -> NormDims:
    """The normalization that a descriptor means.

    >>> norm_dims('g5mb3ic10ih4_eps0.5n"gn"')
    NormDims(shape=(3, 10, 4, 4), epsilon=0.5, groups=5, name='gn')
    """
    where = f"normalization problem {_short(text)}"
    epsilon = 1 / 16
    if found := _EPSILON.search(text.partition("n")[0]):
        epsilon, text = float(found[1]), text.replace(found[0], "", 1)
    given, name = _entries(where, text, _NORM_FIELD, "g mb ic id ih iw eps, as in mb2ic64ih14_eps0.001", ("ic",))
    axes = [Axis(given[f"i{a}"]) if given.get(f"i{a}") else None for a in "dhw"]
    sizes = [axis.i for axis in _spread(where, axes)] if any(axes) else []
    return NormDims((given.get("mb", 2), given["ic"], *sizes), epsilon, given.get("g", 1), name)


@dataclass(frozen=True)
class ResponseDims:
    """A local response normalization as written: the source (N, C, …), how many neighbours, and the numbers."""

    shape: tuple[int, ...]
    size: int = 5
    alpha: float = 1 / 8192
    beta: float = 0.75
    k: float = 1.0
    name: str = ""


def response_dims(text: str) -> ResponseDims:
    """The local response normalization that a descriptor means.

    >>> response_dims('mb256ic96_ih55_ls3_alpha0.5_k2n"norm1"')
    ResponseDims(shape=(256, 96, 55, 55), size=3, alpha=0.5, beta=0.75, k=2.0, name='norm1')
    """
    given: dict[str, float] = {}
    for entry in ("ls", "alpha", "beta", "k"):
        if found := re.search(f"{entry}{_NUMBER}", text.partition("n")[0]):
            given[entry], text = float(found[1]), text.replace(found[0], "", 1)
    plain = norm_dims(text)
    size = int(given.pop("ls", 5))
    return ResponseDims(plain.shape, size, **given, name=plain.name)


def _entries(
    where: str, text: str, field: re.Pattern[str], entries: str, needed: tuple[str, ...] = ("ic", "oc")
) -> tuple[dict[str, int], str]:
    """The sizes of a descriptor by their names, those that are needed among them, and the problem's own name."""
    given: dict[str, int] = {}
    position, name = 0, ""
    while position < len(text):
        if text[position] == "_":
            position += 1
        elif text[position] == "n":
            name, position = text[position + 1 :].strip('"'), len(text)
        elif match := field.match(text, position):
            key, number = match.groups()
            if not _is_size(number):
                raise InvalidArgument(f"{where}: no size behind {key!r}")
            given[key], position = int(number), match.end()
        else:
            raise InvalidArgument(f"{where}: {_short(text[position:])} is no entry; entries are {entries}")
    for key in needed:
        if not given.get(key):
            raise InvalidArgument(f"{where}: {key} is missing or 0")
    return given, name


def _axis(text: str, name: str, given: dict[str, int], transposed: bool = False) -> Axis | None:
    """The axis d, h or w; None where the descriptor has no size of it, whatever else it says."""
    i, o, k, d = (given.get(letter + name, 0) for letter in "iokd")
    s, p = given.get("s" + name, 1), given.get("p" + name)
    if not (i or o or k):
        return None
    for key, value in (("i", i), ("k", k), ("s", s)):
        if not value:
            raise InvalidArgument(f"problem {_short(text)}: {key}{name} is missing or 0")
    reach = (k - 1) * (d + 1) + 1
    if not o:
        p = p or 0
        o = (i - 1) * s + reach - 2 * p if transposed else (i - reach + 2 * p) // s + 1
        if o < 1:
            raise InvalidArgument(f"problem {_short(text)}: the sizes give o{name}={o}; at least 1 works")
    elif p is None:
        small, large = (i, o) if transposed else (o, i)
        both = (small - 1) * s - large + reach
        p = both // 2 if both >= 0 else -(-both // 2)  # towards 0, as C divides
    if p < 0:
        raise InvalidArgument(f"problem {_short(text)}: the sizes give p{name}={p}; at least 0 is needed")
    return Axis(i, o, k, s, p, d)


def _is_size(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= _MOST_DIGITS


def _short(text: str) -> str:
    return repr(text if len(text) <= 60 else text[:57] + "...")
