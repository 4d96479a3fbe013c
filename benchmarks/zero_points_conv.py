"""`python -m benchmarks.zero_points_conv`: what a source zero point costs the convolutions of YOLOv8n, per GPU.

oneDNN's pull request 2267 measured the whole network in int8 with and without zero points. Here are its convolutions
alone (Ultralytics' yolov8.yaml, scale n, 640 x 640, one image), u8 x s8 to u8 with scales, each with a common zero
point of the source and without; their times added up, a launch for each where the machine names one.
"""

from __future__ import annotations

from functools import cache

import pandas as pd

import simdnn
from simdnn import Attr, Quant

PUBLISHED = {"a770": 100 * (2.6763831 / 2.4270376 - 1), "b580": 100 * (1.42166 / 1.2961 - 1)}  # ATSM/DG2, BMG
Conv = tuple[int, int, int, int, int]  # side of the source, channels in, out, side of the kernel, stride


def c2f(side: int, into: int, out: int, blocks: int) -> list[Conv]:
    """1x1, bottlenecks of two 3x3 on half the channels, 1x1 over all that were made."""
    half = out // 2
    inner = [(side, half, half, 3, 1)] * (2 * blocks)
    return [(side, into, out, 1, 1), *inner, (side, (2 + blocks) * half, out, 1, 1)]


def detect(side: int, channels: int) -> list[Conv]:
    """Boxes (64) and classes (80) of one scale."""
    heads = ([(side, channels, n, 3, 1), (side, n, n, 3, 1), (side, n, n, 1, 1)] for n in (64, 80))
    return [conv for head in heads for conv in head]


YOLOV8N: list[Conv] = [
    (640, 3, 16, 3, 2),
    (320, 16, 32, 3, 2),
    *c2f(160, 32, 32, 1),
    (160, 32, 64, 3, 2),
    *c2f(80, 64, 64, 2),
    (80, 64, 128, 3, 2),
    *c2f(40, 128, 128, 2),
    (40, 128, 256, 3, 2),
    *c2f(20, 256, 256, 1),
    (20, 256, 128, 1, 1),
    (20, 512, 256, 1, 1),
    *c2f(40, 384, 128, 1),
    *c2f(80, 192, 64, 1),
    (80, 64, 64, 3, 2),
    *c2f(40, 192, 128, 1),
    (40, 128, 128, 3, 2),
    *c2f(20, 384, 256, 1),
    *detect(80, 64),
    *detect(40, 128),
    *detect(20, 256),
]


@cache
def seconds(machine: str, conv: Conv, zero_point: bool) -> float:
    """One convolution."""
    side, ic, oc, kernel, stride = conv
    attr = Attr(
        scales={"src": Quant(None), "wei": Quant(None, mask="per_oc"), "dst": Quant(None)},
        zero_points={"src": Quant(None)} if zero_point else {},
    )
    return simdnn.estimate(
        "convolution",
        ic=ic,
        ih=side,
        iw=side,
        oc=oc,
        kh=kernel,
        kw=kernel,
        strides=stride,
        padding=kernel // 2,
        dt="u8:s8:u8",
        machine=machine,
        attr=attr,
    ).seconds


def table() -> pd.DataFrame:
    """Milliseconds of all convolutions without and with a source zero point, and the extra in per cent."""
    rows = []
    for machine, published in PUBLISHED.items():
        plain, zero = (1e3 * sum(seconds(machine, conv, z) for conv in YOLOV8N) for z in (False, True))
        rows.append((machine, round(plain, 3), round(zero, 3), round(100 * (zero / plain - 1), 1), round(published, 1)))
    return pd.DataFrame(rows, columns=["gpu", "plain_ms", "zero_point_ms", "extra", "published"])


if __name__ == "__main__":
    print(table().to_string(index=False))
