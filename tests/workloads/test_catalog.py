"""The shipped tables against the networks' published totals, and bad tables against their error messages."""

from __future__ import annotations

import csv
from math import prod
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import workloads
from isa_models.errors import InvalidArgument, UnknownName
from workloads import ConvLayer, MatmulLayer
from workloads.catalog import CATALOG

LAYERS = Path(workloads.__file__).parent / "layers"

# Multiply-accumulates in units of 1e9, as published, with the number of decimals published.
PUBLISHED_GMACS = {
    "alexnet": "0.71",  # torchvision model documentation, "GFLOPS" (which counts multiply-accumulates)
    "vgg16": "15.47",  # torchvision
    "vgg16-cifar10": "0.31",  # H. Li et al., Pruning Filters for Efficient ConvNets, ICLR 2017, table 1: 3.13e8
    "resnet18": "1.81",  # torchvision
    "resnet50": "4.09",  # torchvision
    "mobilenet-v2": "0.30",  # torchvision
    "vit-b16": "17.56",  # torchvision
    "mobilenet-v1": "0.569",  # arXiv:1704.04861, table 4: 569 million mult-adds
}

# Parameters as published, and what the tables leave out: (published total, biases + normalization + embeddings).
# Encoders and decoders: a layer has 4 h + f + h biases and 4 h normalization values (h hidden, f feed-forward).
PUBLISHED_PARAMETERS = {
    "alexnet": (61_100_840, 64 + 192 + 384 + 256 + 256 + 4096 + 4096 + 1000),  # torchvision; biases
    "vgg16": (138_357_544, 2 * 64 + 2 * 128 + 3 * 256 + 6 * 512 + 2 * 4096 + 1000),  # torchvision; biases
    "resnet18": (11_689_512, 2 * 4800 + 1000),  # torchvision; batch normalization of 4800 channels, bias of fc
    "resnet50": (25_557_032, 2 * 26560 + 1000),  # torchvision
    "resnet50-v1": (25_557_032, 2 * 26560 + 1000),  # the place of the stride changes no weight
    # akamaster/pytorch_resnet_cifar10: 464 154, its shortcuts without weights; here 1x1 convolutions and normalization
    "resnet32-cifar10": (464_154 + 2560 + 2 * 96, 2 * (1136 + 96) + 10),
    "mobilenet-v1": (4_231_976, 2 * 10944 + 1000),  # trainable, Keras applications
    "mobilenet-v2": (3_504_872, 2 * 17056 + 1000),  # torchvision
    # torchvision; biases, class token, 197 positions, normalization
    "vit-b16": (86_567_656, 768 + 768 + 197 * 768 + 12 * (9 * 768 + 3072) + 2 * 768 + 1000),
    # bert-base-uncased: 30522 words, 512 positions, 2 segments, normalization, pooler
    "bert-base": (109_482_240, (30522 + 512 + 2 + 2) * 768 + 12 * (9 * 768 + 3072) + 769 * 768),
    # all-MiniLM-L6-v2: the same with hidden 384 and 6 layers
    "minilm": (22_713_216, (30522 + 512 + 2 + 2) * 384 + 6 * (9 * 384 + 1536) + 385 * 384),
    # GPT-2: the word embedding is the head's matrix; 1024 positions; QKV, output and FFN biases
    "gpt2-prefill": (124_439_808, 1024 * 768 + 12 * (9 * 768 + 3072) + 2 * 768),
    "llama2-7b-decode-ctx128": (6_738_415_616, 32000 * 4096 + 65 * 4096),  # embedding; RMS normalization, no bias
    "llama3-8b-decode-ctx128": (8_030_261_248, 128256 * 4096 + 65 * 4096),
}
SAME_WEIGHTS = [
    ("bert-base", "bert-base-384", "bert-base-512"),
    ("gpt2-prefill", "gpt2-decode"),
    *(
        tuple(f"{m}-{job}" for job in ("prefill128", "prefill2048", "decode-ctx128", "decode-ctx2048"))
        for m in ("llama2-7b", "llama3-8b")
    ),
]


@pytest.mark.parametrize("name", PUBLISHED_GMACS)
def test_macs_equal_the_published_total(name: str) -> None:
    published = PUBLISHED_GMACS[name]
    assert f"{workloads.load(name).macs / 1e9:.{len(published.split('.')[1])}f}" == published


@pytest.mark.parametrize(
    ("name", "macs"),
    [("resnet50", 4_089_184_256), ("resnet50-v1", 3_857_973_248), ("bert-base", 11_173_625_856)],
)
def test_exact_macs(name: str, macs: int) -> None:
    """ResNet-50 v1.5: 4.0892e9, the sum that the ONNX project's own resnet50 gives; v1's paper says 3.8e9.
    BERT: 12 layers x (128 x (4 x 768^2 + 2 x 768 x 3072) + 2 x 12 x 128 x 128 x 64)."""
    assert workloads.load(name).macs == macs


@pytest.mark.parametrize("name", PUBLISHED_PARAMETERS)
def test_parameters_equal_the_published_total(name: str) -> None:
    total, outside_the_table = PUBLISHED_PARAMETERS[name]
    assert workloads.load(name).parameters == total - outside_the_table


def test_stable_diffusion_parameters() -> None:
    """The U-Net of Stable Diffusion 1.5 has 859 520 964 parameters; biases and normalization follow from the shapes."""
    conv, gemm = workloads.load("sd15-unet-conv").layers, workloads.load("sd15-unet-gemm").layers
    weights = sum(layer.parameters for layer in (*conv, *gemm))
    normalized = (".conv1", ".conv2", ".proj_in", "conv_out")  # a group normalization stands before each of these
    convs = [layer for layer in conv if isinstance(layer, ConvLayer)]
    conv_biases = sum(layer.oc for layer in convs)
    group_norms = sum(2 * layer.ic for layer in convs if layer.name.endswith(normalized))
    matmuls = [layer for layer in gemm if isinstance(layer, MatmulLayer)]
    biased = ("time_embed.0", "time_embed.2", "time_emb", "self_out", "cross_out", "geglu", "ff_out")
    gemm_biases = sum(layer.n * layer.count for layer in matmuls if layer.name.endswith(biased))
    layer_norms = sum(3 * 2 * layer.n for layer in matmuls if layer.name.endswith("ff_out"))
    assert weights + conv_biases + group_norms + gemm_biases + layer_norms == 859_520_964


@pytest.mark.parametrize("group", SAME_WEIGHTS)
def test_weights_do_not_depend_on_the_tokens(group: tuple[str, ...]) -> None:
    assert len({workloads.load(name).parameters for name in group}) == 1


@pytest.mark.parametrize("name", CATALOG)
def test_macs_column_is_the_product_of_the_sizes(name: str) -> None:
    """Read apart from the package: `macs` is that of one occurrence, without `count`."""
    with (LAYERS / f"{name}.csv").open(newline="") as file:
        for row in csv.DictReader(file):
            kind, label = row.pop("kind", None), row.pop("layer")
            size = {key: int(value) for key, value in row.items()}
            if kind is None:
                factors = [size[key] for key in ("oc", "oh", "ow", "ic", "kh", "kw")]
                assert size["macs"] * size["groups"] == prod(factors), label
            else:
                assert size["macs"] == size["batch"] * size["M"] * size["N"] * size["K"], label


@pytest.mark.parametrize("name", [n for n in CATALOG if isinstance(workloads.load(n).layers[0], ConvLayer)])
def test_sizes_chain(name: str) -> None:
    """Names are unique, and no layer reads more channels than some layer before it wrote (concatenation apart)."""
    layers = workloads.load(name).layers
    assert len({layer.name for layer in layers}) == len(layers)
    written = {layers[0].ic} if isinstance(layers[0], ConvLayer) else set()
    for layer in layers:
        assert isinstance(layer, ConvLayer)
        flattened = {c * s * s for c in written for s in (1, 6, 7)}  # the first fully connected layer reads 6x6 or 7x7
        concatenated = {a + b for a in written for b in written} if name.startswith("sd15") else set()
        assert layer.ic in written | flattened | concatenated, layer.name
        written.add(layer.oc)


def test_every_table_has_a_name_and_a_source() -> None:
    assert {path.stem for path in LAYERS.glob("*.csv")} == set(CATALOG)
    for name in workloads.names():
        workload = workloads.load(name)
        assert workload.name == name and workload.title and workload.source


def test_unknown_name_suggests_the_nearest() -> None:
    with pytest.raises(UnknownName, match="'resnet-50': did you mean 'resnet50'"):
        workloads.load("resnet-50")
    with pytest.raises(InvalidArgument, match="a name or a path"):
        workloads.load(50)  # type: ignore[arg-type]


CONV_HEADER = "layer,ic,ih,iw,oc,oh,ow,kh,kw,stride,pad,groups,count,macs\n"
MATMUL_HEADER = "layer,M,N,K,batch,count,macs,kind\n"


def test_a_users_table(tmp_path: Path) -> None:
    path = tmp_path / "mine.csv"
    path.write_text("\ufeffkind,layer,M,N,K,batch,count,macs\r\nweight,a, 2,3,4,1,5,24\r\n\r\n", encoding="utf-8")
    workload = workloads.load(str(path))
    assert workload.name == "mine" and workload.macs == 120 and workload.parameters == 60
    assert workload.layers == (MatmulLayer("a", 2, 3, 4, count=5),)
    assert workloads.load(path) == workload


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "wrong columns .missing: 'layer'"),
        (CONV_HEADER, "no layer below its header"),
        (CONV_HEADER.replace(",pad", ",padding"), "missing: 'pad'; unknown: 'padding'"),
        (CONV_HEADER.replace(",ih", ",iw"), "missing: 'ih'; repeated: 'iw'"),
        (MATMUL_HEADER + "a,2,3,4,1,1,24\n", "layer 1: 7 values under 8 columns"),
        (MATMUL_HEADER + "a,2,3,4,1,1,24,weight\na,2,3,x,1,1,24,weight\n", "layer 2: K='x'; an integer"),
        (MATMUL_HEADER + "a,2,3,0,1,1,0,weight\n", "k=0; an integer of at least 1"),
        (MATMUL_HEADER + "a,2,3,4,1,1,25,weight\n", "macs=25, but the sizes give 24"),
        (MATMUL_HEADER + "a,2,3,4,1,1,24,weights\n", "kind='weights'; allowed: weight, act"),
        (MATMUL_HEADER + "a,2,3,-4,1,1,24,weight\n", "K='-4'"),
        (MATMUL_HEADER + 'a,"2,3,4,1,1,24,weight\n', "is no CSV text"),
        (CONV_HEADER + "c,3,8,8,4,9,8,3,3,1,1,1,1,100\n", "oh=9, but input 8, kernel 3, stride 1 and pad 1 give 8"),
        (CONV_HEADER + "c,3,8,8,4,8,8,3,3,1,1,2,1,100\n", "ic=3 is no multiple of groups=2"),
        (CONV_HEADER + "c,3,2,2,4,-4,-4,7,7,1,0,1,1,100\n", "oh='-4'"),
    ],
)
def test_a_broken_table_says_what_is_wrong(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "broken.csv"
    path.write_text(text)
    with pytest.raises(InvalidArgument, match=message) as caught:
        workloads.load(path)
    assert "broken.csv" in str(caught.value) and "\n" not in str(caught.value)


def test_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(InvalidArgument, match="cannot be read: No such file"):
        workloads.load(tmp_path / "absent.csv")
    with pytest.raises(InvalidArgument, match="cannot be read: Is a directory"):
        workloads.load(tmp_path)
    (tmp_path / "binary.csv").write_bytes(b"\xff\xfe\x00\x80")
    with pytest.raises(InvalidArgument, match="is no CSV text"):
        workloads.load(tmp_path / "binary.csv")


@given(st.binary(max_size=200))
def test_no_bytes_crash_the_reader(tmp_path_factory: pytest.TempPathFactory, content: bytes) -> None:
    path = tmp_path_factory.getbasetemp() / "random.csv"
    path.write_bytes(content)
    with pytest.raises(InvalidArgument):
        workloads.load(path)


@pytest.mark.parametrize("size", [0, -1, 2.0, True, "3"])
def test_a_layer_refuses_sizes_that_are_none(size: object) -> None:
    with pytest.raises(InvalidArgument, match="k="):
        MatmulLayer("a", 1, 1, size)  # type: ignore[arg-type]
