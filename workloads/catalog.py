"""The workloads shipped here, each with the origin of its layer table, and `load`, which finds one by name or path.

Every table was built from the network's published definition (shapes only; no weights) for one input. Totals of
multiply-accumulates and of parameters are held equal to the published ones by tests/workloads/test_catalog.py.
Pooling, normalization, activation and softmax are not in the tables: they hold no multiply-accumulates of weight.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from isa_models.errors import InvalidArgument, unknown_name
from workloads.networks import NETWORKS
from workloads.table import Workload, read_layers

_LAYERS = Path(__file__).parent / "layers"


class Entry(NamedTuple):
    """The subject of a shipped table, and where its shapes come from."""

    title: str
    source: str


_IMAGE = "one 224x224 image"
_TORCHVISION = "as defined by torchvision"
_RESNET = "K. He et al., Deep Residual Learning for Image Recognition, CVPR 2016"
_BERT = "J. Devlin et al., BERT, NAACL 2019; base: 12 layers, hidden 768, 12 heads"
_GPT2 = "A. Radford et al., Language Models are Unsupervised Multitask Learners, 2019; smallest: 12 layers, hidden 768"
_LLAMA2 = "H. Touvron et al., Llama 2, arXiv:2307.09288; 7B: 32 layers, hidden 4096, FFN 11008"
_LLAMA3 = "A. Dubey et al., Llama 3, arXiv:2407.21783; 8B: 32 layers, hidden 4096, FFN 14336, 8 KV heads"
_SD15 = "R. Rombach et al., CVPR 2022; U-Net of Stable Diffusion 1.5, 64x64 latents, 77 text tokens"

CATALOG: dict[str, Entry] = {
    "alexnet": Entry(f"AlexNet, {_IMAGE}", f"A. Krizhevsky, arXiv:1404.5997 (one column), {_TORCHVISION}"),
    "vgg16": Entry(f"VGG-16, {_IMAGE}", f"K. Simonyan, A. Zisserman, ICLR 2015 (configuration D), {_TORCHVISION}"),
    "vgg16-cifar10": Entry(
        "VGG-16, one 32x32 image",
        "configuration D with 512 values in its two hidden fully connected layers, as in Paddle's float16 demo",
    ),
    "resnet18": Entry(f"ResNet-18, {_IMAGE}", f"{_RESNET}, {_TORCHVISION}"),
    "resnet50": Entry(f"ResNet-50 v1.5, {_IMAGE}", f"{_RESNET}, {_TORCHVISION} (stride in the 3x3 convolution)"),
    "resnet50-v1": Entry(f"ResNet-50 v1, {_IMAGE}", f"{_RESNET} (stride in the first 1x1 convolution)"),
    "resnet32-cifar10": Entry(
        "ResNet-32, one 32x32 image",
        f"{_RESNET}, section 4.2; shortcuts by 1x1 convolutions, as in Paddle's float16 demo",
    ),
    "mobilenet-v1": Entry(f"MobileNet v1 (width 1.0), {_IMAGE}", "A. Howard et al., MobileNets, arXiv:1704.04861"),
    "mobilenet-v2": Entry(f"MobileNet v2 (width 1.0), {_IMAGE}", f"M. Sandler et al., CVPR 2018, {_TORCHVISION}"),
    "vit-b16": Entry(f"ViT-B/16, {_IMAGE}", f"A. Dosovitskiy et al., ICLR 2021, {_TORCHVISION}"),
    "bert-base": Entry("BERT base encoder, 128 tokens", _BERT),
    "bert-base-384": Entry("BERT base encoder, 384 tokens", _BERT),
    "bert-base-512": Entry("BERT base encoder, 512 tokens", _BERT),
    "minilm": Entry(
        "MiniLM-L6 sentence encoder, 128 tokens",
        "W. Wang et al., MiniLM, NeurIPS 2020; shapes of all-MiniLM-L6-v2: 6 layers, hidden 384, 12 heads",
    ),
    "gpt2-prefill": Entry("GPT-2 (124M), prefill of 1024 tokens", _GPT2),
    "gpt2-decode": Entry("GPT-2 (124M), one token after 1023", _GPT2),
    "llama2-7b-prefill128": Entry("Llama 2 7B, prefill of 128 tokens", _LLAMA2),
    "llama2-7b-prefill2048": Entry("Llama 2 7B, prefill of 2048 tokens", _LLAMA2),
    "llama2-7b-decode-ctx128": Entry("Llama 2 7B, one token, context of 128", _LLAMA2),
    "llama2-7b-decode-ctx2048": Entry("Llama 2 7B, one token, context of 2048", _LLAMA2),
    "llama3-8b-prefill128": Entry("Llama 3 8B, prefill of 128 tokens", _LLAMA3),
    "llama3-8b-prefill2048": Entry("Llama 3 8B, prefill of 2048 tokens", _LLAMA3),
    "llama3-8b-decode-ctx128": Entry("Llama 3 8B, one token, context of 128", _LLAMA3),
    "llama3-8b-decode-ctx2048": Entry("Llama 3 8B, one token, context of 2048", _LLAMA3),
    "sd15-unet-conv": Entry("Stable Diffusion 1.5 U-Net, one step: convolutions", _SD15),
    "sd15-unet-gemm": Entry("Stable Diffusion 1.5 U-Net, one step: matmuls", _SD15),
}


def names() -> tuple[str, ...]:
    """The names that `load` knows, the trained networks first.

    >>> "resnet50" in names()
    True
    """
    return (*NETWORKS, *CATALOG)


def load(name: str | Path) -> Workload:
    """The workload of that name, or that of a CSV file in the columns of the shipped tables (any name with .csv or /).

    Raises `UnknownName` with the nearest name, `InvalidArgument` for a file that cannot be read as a table.

    >>> load("resnet50").macs
    4089184256
    """
    if not isinstance(name, str | Path):
        raise InvalidArgument(f"workload {name!r}: a name or a path is needed, not {type(name).__name__}")
    text = str(name)
    if text in NETWORKS:
        return NETWORKS[text]().workload()
    if text in CATALOG:
        return Workload(text, *CATALOG[text], read_layers(_LAYERS / f"{text}.csv"))
    if isinstance(name, Path) or text.lower().endswith(".csv") or "/" in text:
        path = Path(name)
        return Workload(path.stem, f"layers of {path.name}", str(path), read_layers(path))
    raise unknown_name("workload", text, names())
