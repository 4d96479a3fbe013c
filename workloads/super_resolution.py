"""Photos to enlarge twice: what is cut from each, how it is made small, and how an enlargement is judged.

A sample is the middle 96x96 of a photo, halved by bicubic interpolation; the network is to give the 96x96 back. The
quality is the peak signal-to-noise ratio over all 8-bit RGB values. Bicubic enlargement stands beside it: R. Keys,
"Cubic convolution interpolation for digital image processing", IEEE ASSP 29 (1981), with a = -0.5, the kernel widened
by the factor where pictures become smaller, as imaging libraries do.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from isa_models.errors import InvalidArgument
from workloads import packages, tfjs
from workloads.real import Data, Metric, Outputs, RealNetwork

if TYPE_CHECKING:
    import onnx

F32 = NDArray[np.float32]
U8 = NDArray[np.uint8]
SIZE, FACTOR = 96, 2
PHOTOS = (
    "astronaut.png",
    "camera.png",
    "chelsea.png",
    "coffee.png",
    "coins.png",
    "gravel.png",
    "hubble_deep_field.jpg",
    "moon.png",
    "motorcycle_left.png",
    "motorcycle_right.png",
    "page.png",
    "rocket.jpg",
)
CALIBRATION_PHOTOS = ("brick.png", "grass.png", "ihc.png", "retina.jpg")


def model() -> onnx.ModelProto:
    """The network. `SimdnnError` where not fetched."""
    return tfjs.read(packages.path("sr", "model.json"))


def data(model: onnx.ModelProto, count: int, seed: int) -> Data:
    """`count` of the photos; the seed decides which ones, and their order."""
    if not 1 <= count <= len(PHOTOS):
        raise InvalidArgument(f"{count} photos; there are {len(PHOTOS)}")
    order = np.random.default_rng(seed).permutation(len(PHOTOS))[:count]
    originals, others = (
        [middle(photo(name)) for name in names] for names in ([PHOTOS[i] for i in order], CALIBRATION_PHOTOS)
    )
    small = [resized(original, SIZE // FACTOR) for original in originals]
    name = model.graph.input[0].name

    def score(answers: Sequence[U8], _: Sequence[U8]) -> dict[str, float]:
        return {"psnr_db": float(np.mean([psnr(a, b) for a, b in zip(answers, originals, strict=True)]))}

    return Data(
        samples=[{name: as_input(image)} for image in small],
        calibration=[{name: as_input(resized(image, SIZE // FACTOR))} for image in others],
        answer=as_picture,
        score=score,
        pictures={"original": originals[0], "bicubic": resized(small[0], SIZE)},
        picture=as_picture,
    )


def photo(name: str) -> U8:
    """(H, W, 3) of a fetched photo; grey ones have three equal channels. `SimdnnError` where not fetched."""
    import matplotlib.image  # it takes a second to load

    values = matplotlib.image.imread(packages.path("sr", name))
    whole = values if values.dtype == np.uint8 else np.rint(values * 255).astype(np.uint8)
    return np.repeat(whole[:, :, None], 3, 2) if whole.ndim == 2 else whole[:, :, :3]


def middle(image: U8) -> U8:
    """The middle `SIZE` rows and columns."""
    top, left = ((n - SIZE) // 2 for n in image.shape[:2])
    return image[top : top + SIZE, left : left + SIZE]


def resized(image: U8, size: int) -> U8:
    """`image` (N, N, C) as (size, size, C), by bicubic interpolation, borders repeated.

    >>> resized(np.full((4, 4, 1), 7, np.uint8), 2)[:, :, 0].tolist()
    [[7, 7], [7, 7]]
    """
    weights = _bicubic(len(image), size)
    mixed = np.einsum("yi,xj,ijc->yxc", weights, weights, image.astype(np.float64), optimize=True)
    return _pixels(mixed)


def _bicubic(old: int, new: int) -> NDArray[np.float64]:
    """(new, old): how much of each old pixel is in each new one. Pixel centres lie at halves."""
    step = old / new
    centres = (np.arange(new) + 0.5) * step - 0.5
    d = np.abs(centres[:, None] - np.arange(old)) / max(step, 1)
    near, far = (1.5 * d - 2.5) * d * d + 1, ((-0.5 * d + 2.5) * d - 4) * d + 2
    weights = np.where(d < 1, near, np.where(d < 2, far, 0))
    share: NDArray[np.float64] = weights / weights.sum(axis=1, keepdims=True)  # what lies outside is left out
    return share


def as_input(image: U8) -> F32:
    """(1, 3, H, W) with values from 0 to 1."""
    return (image.transpose(2, 0, 1)[None] / 255).astype(np.float32)


def as_picture(outputs: Outputs) -> U8:
    """(H, W, 3) of the only output; what is no number is black."""
    values = np.nan_to_num(next(iter(outputs.values()))[0].astype(np.float64), posinf=1, neginf=0)
    return _pixels(values.transpose(1, 2, 0) * 255)


def _pixels(values: NDArray[np.float64]) -> U8:
    whole: U8 = np.clip(np.rint(values), 0, 255).astype(np.uint8)
    return whole


def psnr(image: NDArray[Any], original: NDArray[Any]) -> float:
    """Peak signal-to-noise ratio of 8-bit values, in dB.

    >>> round(psnr(np.full((2, 2), 100), np.full((2, 2), 110)), 2)
    28.13
    """
    error = np.mean((image.astype(np.float64) - original) ** 2)
    return float("inf") if error == 0 else float(10 * np.log10(255**2 / error))


NETWORK = RealNetwork(
    name="sr",
    title="RDN x2",
    samples="photos",
    count=len(PHOTOS),
    metrics=(Metric("psnr_db", "peak signal-to-noise ratio, dB"),),
    model=model,
    data=data,
    pictures=True,
)
