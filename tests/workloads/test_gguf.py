"""The GGUF reader: what it reads, bit for bit, and what it says of files that are broken or hostile."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from isa_models import InvalidArgument, SimdnnError, Unimplemented, UnknownName
from isa_models.block_encoders import ENCODED, encode_blocks
from tests.workloads import gguf_file
from tests.workloads.gguf_file import Raw, content
from workloads import gguf

METADATA = {
    "general.architecture": "llama",
    "n": 3,
    "below": -5,
    "eps": 0.5,
    "yes": True,
    "tokens": ["a", "ü", ""],
    "kinds": [1, -2, 3],
}
FILE_SETTINGS = settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])


def small() -> bytes:
    rng = np.random.default_rng(0)
    q, q8 = rng.integers(0, 16, (2, 1, 32)), rng.integers(-128, 128, (2, 2, 32))
    tensors = {
        "norm": gguf_file.f32(rng.normal(size=5)),
        "half": Raw((2, 3), 1, rng.normal(size=6).astype("<f2").tobytes()),
        "q4": gguf_file.q4_1(q, rng.normal(size=(2, 1)), rng.normal(size=(2, 1))),
        "q8": gguf_file.q8_0(q8, rng.normal(size=(2, 2))),
    }
    return content(METADATA, tensors)


def read(tmp_path: Path, data: bytes) -> gguf.Gguf:
    path = tmp_path / "model.gguf"
    path.write_bytes(data)
    return gguf.read(path)


def test_metadata(tmp_path: Path) -> None:
    found = read(tmp_path, small())
    assert {**found.metadata, "kinds": found.metadata["kinds"].tolist()} == METADATA
    assert found.get("n", int) == 3 and found.get("eps", float) == 0.5 and found.get("missing", int, 7) == 7
    for key, kind in (("missing", int), ("n", str), ("yes", int), ("tokens", str)):
        with pytest.raises(InvalidArgument, match=key):
            found.get(key, kind)
    assert {name: (t.type, t.shape) for name, t in found.tensors.items()} == {
        "norm": ("F32", (5,)),
        "half": ("F16", (2, 3)),
        "q4": ("Q4_1", (2, 32)),
        "q8": ("Q8_0", (2, 64)),
    }
    with pytest.raises(UnknownName, match="q4"):
        found.array("q5")


@FILE_SETTINGS
@given(st.integers(1, 4), st.integers(1, 3), st.integers(0, 2**32 - 1))
def test_every_type_is_dequantized_bit_for_bit(tmp_path: Path, rows: int, groups: int, seed: int) -> None:
    """Against one rounded multiplication and one rounded addition for each number, over all finite f16 scales."""
    rng = np.random.default_rng(seed)
    halves = rng.integers(0, 1 << 16, (2, rows, groups)).astype(np.uint16).view(np.float16)
    d, m = np.where(np.isfinite(halves), halves, np.float16(0.37))
    u4, s8 = rng.integers(0, 16, (rows, groups, 32)), rng.integers(-128, 128, (rows, groups, 32))
    raw = Raw((rows, groups), 1, d.astype("<f2").tobytes())
    plain = rng.normal(size=(rows, 3)).astype(np.float32)
    found = read(
        tmp_path,
        content(
            {}, {"q4": gguf_file.q4_1(u4, d, m), "q8": gguf_file.q8_0(s8, d), "f16": raw, "f32": gguf_file.f32(plain)}
        ),
    )
    for name, q in (("q4", u4), ("q8", s8)):
        values = found.array(name)
        assert values.dtype == np.float32 and values.shape == (rows, groups * 32)
        for i in np.ndindex(q.shape):
            wanted = np.float32(q[i]) * np.float32(d[i[:2]])
            wanted = wanted + np.float32(m[i[:2]]) if name == "q4" else wanted
            assert values[i[0], i[1] * 32 + i[2]].tobytes() == np.float32(wanted).tobytes()
    np.testing.assert_array_equal(found.array("f16"), d.astype(np.float32))
    np.testing.assert_array_equal(found.array("f32"), plain)


def test_every_block_type_is_read(tmp_path: Path) -> None:
    """Each type by its number in a file, with the values that ggml's own functions gave."""
    recorded = np.load(Path(__file__).parents[1] / "vectors" / "ggml" / "blocks.npz")
    numbers = {"q5_0": 6, "q5_1": 7, "q2_K": 10, "q3_K": 11, "q4_K": 12, "q5_K": 13, "q6_K": 14, "q8_K": 15}
    stored = {name: recorded[f"{name}.stored"] for name in numbers}
    values = {name: recorded[f"{name}.values"] for name in numbers}
    raws = {name: Raw(values[name].shape, number, stored[name].tobytes()) for name, number in numbers.items()}
    raws["bf16"] = Raw((1, 2), 30, np.array([0x3FC0, 0xFF80], "<u2").tobytes())
    found = read(tmp_path, content({}, raws))
    for name in numbers:
        assert np.array_equal(found.array(name).view(np.uint32), values[name].view(np.uint32)) or np.array_equal(
            found.array(name), values[name], equal_nan=True
        )
    assert found.array("bf16").tolist() == [[1.5, -np.inf]]


def test_what_is_written_is_read_again(tmp_path: Path) -> None:
    """Every type of block that is made, plain numbers, and metadata of every kind."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(3, 512)).astype(np.float32)
    tensors: dict[str, Any] = {name: encode_blocks(x, name) for name in ENCODED}
    tensors |= {"plain": x, "half": x.astype(np.float16), "line": x[0]}
    metadata: dict[str, Any] = {
        **METADATA,
        "large": 1 << 40,
        "least": -(1 << 40),
        "none": [],
        "floats": np.array([1.5, 2], np.float32),
    }
    gguf.write(tmp_path / "made.gguf", metadata, tensors)
    found = gguf.read(tmp_path / "made.gguf")
    assert found.metadata.keys() == metadata.keys()
    assert all(np.array_equal(found.metadata[key], value) for key, value in metadata.items())
    for name, stored in tensors.items():
        assert found.blocks(name).dtype == stored.dtype and found.blocks(name).tobytes() == stored.tobytes()
        limit = 1.0 if name in ENCODED else 1e-3
        np.testing.assert_allclose(found.array(name), x[0] if name == "line" else x, atol=limit)
    for wrong in ({"a": x.astype(np.float64)}, {"a": [1.0]}):
        with pytest.raises(InvalidArgument, match="arrays of f32, f16 or blocks are written"):
            gguf.write(tmp_path / "wrong.gguf", {}, wrong)  # type: ignore[arg-type]
    with pytest.raises(InvalidArgument, match="metadata 'k'"):
        gguf.write(tmp_path / "wrong.gguf", {"k": {}}, {})
    with pytest.raises(SimdnnError, match="No such file"):
        gguf.write(tmp_path / "no" / "x.gguf", {}, {})


@FILE_SETTINGS
@given(st.integers(0, 2**32 - 1))
def test_blocks_of_any_bytes(tmp_path: Path, seed: int) -> None:
    """Q4_0, MXFP4 and NVFP4 number by number, as ggml-common.h and ggml-impl.h describe them."""
    rng = np.random.default_rng(seed)
    sizes = {"q4_0": (2, 18, 32), "mxfp4": (39, 17, 32), "nvfp4": (40, 36, 64)}
    stored = {name: rng.integers(0, 256, (3, size), np.uint8) for name, (_, size, _) in sizes.items()}
    stored["q4_0"][:, 1] &= 0xBF  # no infinite scale
    stored["mxfp4"][:, 0] = 255, 0, 1
    stored["nvfp4"][:, 0] = 0x7F, 0xFF, 0x80
    raws = {name: Raw((3, n), kind, stored[name].tobytes()) for name, (kind, _, n) in sizes.items()}
    found = read(tmp_path, content({}, raws))
    small = [0, 0.5, 1, 1.5, 2, 3, 4, 6, 0, -0.5, -1, -1.5, -2, -3, -4, -6]
    for row in range(3):
        block = stored["q4_0"][row]
        d = float(block[:2].copy().view("<f2")[0])
        low, high = [b & 15 for b in block[2:].tolist()], [b >> 4 for b in block[2:].tolist()]
        assert found.array("q4_0")[row].tolist() == [(q - 8) * d for q in low + high]
        block = stored["mxfp4"][row]
        low, high = [b & 15 for b in block[1:].tolist()], [b >> 4 for b in block[1:].tolist()]
        wanted = [small[q] * 2.0 ** (int(block[0]) - 127) for q in low + high]
        assert found.array("mxfp4")[row].tolist() == [
            v if abs(v) < 2.0**128 else np.copysign(np.inf, v) for v in wanted
        ]
        block, wanted = stored["nvfp4"][row], []
        for part in range(4):
            scale = int(block[part])
            exponent, mantissa = scale >> 3 & 15, scale & 7
            d = (8 + mantissa) * 2.0 ** (exponent - 10) if exponent else mantissa * 2.0**-9
            d = 0.0 if scale == 0x7F else d
            octets = block[4 + 8 * part : 12 + 8 * part].tolist()
            wanted += [small[q] * d for q in [b & 15 for b in octets] + [b >> 4 for b in octets]]
        assert found.array("nvfp4")[row].tolist() == wanted
    assert not np.signbit(found.array("mxfp4")[found.array("mxfp4") == 0]).any()


def test_truncated_anywhere(tmp_path: Path) -> None:
    whole = small()
    for length in range(1, len(whole)):
        with pytest.raises(InvalidArgument, match=r"model\.gguf: .*(file ends at|GGUF)"):
            read(tmp_path, whole[:length])
    with pytest.raises(SimdnnError, match="empty"):
        read(tmp_path, b"")
    with pytest.raises(SimdnnError, match="No such file"):
        gguf.read(tmp_path / "none.gguf")


@FILE_SETTINGS
@given(st.data())
def test_broken_anywhere(tmp_path: Path, data: st.DataObject) -> None:
    """Whatever bytes change: a file that can be read as a whole, or one typed error."""
    broken = bytearray(small())
    for _ in range(data.draw(st.integers(1, 4))):
        broken[data.draw(st.integers(0, len(broken) - 1))] = data.draw(st.integers(0, 255))
    try:
        found = read(tmp_path, bytes(broken))
    except SimdnnError as error:
        assert "\n" not in str(error)
        return
    with np.errstate(all="ignore"):
        for name in found.tensors:
            found.array(name)


def tensor(shape: tuple[int, ...], kind: int, size: int, start: int = 0) -> bytes:
    """A file with one tensor that claims a shape, a type and where it starts, and has `size` bytes of data."""
    head = b"GGUF" + struct.pack("<IQQ", 3, 1, 0) + gguf_file.text("w")
    head += struct.pack(f"<I{len(shape)}QIQ", len(shape), *shape[::-1], kind, start)
    return head + bytes(-len(head) % 32) + bytes(size)


@pytest.mark.parametrize(
    ("data", "error", "message"),
    [
        (b"GGML" + bytes(60), InvalidArgument, "starts with b'GGML'"),
        (content({}, {}, version=1), Unimplemented, "version 1; 2 and 3"),
        (content({}, {}, version=3 << 24), Unimplemented, "big-endian"),
        (b"GGUF" + struct.pack("<IQQ", 3, 1 << 60, 0), InvalidArgument, f"{1 << 60} tensors"),
        (b"GGUF" + struct.pack("<IQQ", 3, 0, 1 << 40), InvalidArgument, "metadata entries"),
        (b"GGUF" + struct.pack("<IQQQ", 3, 0, 1, 1 << 63) + bytes(32), InvalidArgument, "text of"),
        (
            b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + gguf_file.text("k") + struct.pack("<IIQ", 9, 10, 1 << 61),
            InvalidArgument,
            "values at byte",
        ),
        (
            b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + gguf_file.text("k") + struct.pack("<IIQ", 9, 9, 1),
            Unimplemented,
            "array of metadata type 9",
        ),
        (
            b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + gguf_file.text("k") + struct.pack("<I", 13) + bytes(8),
            InvalidArgument,
            "type 13",
        ),
        (b"GGUF" + struct.pack("<IQQQ", 3, 0, 1, 2) + b"\xff\xff" + bytes(16), InvalidArgument, "UTF-8"),
        (content({"general.alignment": 0}, {}), InvalidArgument, "alignment"),
        (content({"general.alignment": "x"}, {}), InvalidArgument, "alignment"),
        (
            tensor((4,), 21, 256),
            Unimplemented,
            "'w' is stored as IQ3_S; read here: F32, .*; nearest to its 3.438 bits an element is Q3_K of 3.438",
        ),
        (tensor((4,), 99, 256), InvalidArgument, "unknown type 99"),
        (tensor((33,), 8, 256), InvalidArgument, "no whole number of blocks"),
        (tensor((0, 4), 0, 256), InvalidArgument, "no whole number of blocks"),
        (tensor((1, 1, 1, 1, 4), 0, 256), InvalidArgument, "5 dimensions"),
        (tensor((65,), 0, 256), InvalidArgument, "260 bytes at byte"),
        (tensor((1 << 62, 1 << 62), 0, 256), InvalidArgument, "file ends at"),
        (tensor((4,), 0, 256, 1 << 62), InvalidArgument, "file ends at"),
        (tensor((4,), 0, 256, 4), InvalidArgument, "multiples of 32"),
        (
            content({}, {"a": Raw((1,), 0, bytes(4))}).replace(gguf_file.text("a"), gguf_file.text("")),
            InvalidArgument,
            "file ends at|multiples",
        ),
    ],
)
def test_hostile(tmp_path: Path, data: bytes, error: Any, message: str) -> None:
    with pytest.raises(error, match=message):
        read(tmp_path, data)


def test_names_twice(tmp_path: Path) -> None:
    twice = content({"k1": 1, "k2": 2}, {"t1": Raw((1,), 0, bytes(4)), "t2": Raw((1,), 0, bytes(4))})
    with pytest.raises(InvalidArgument, match="metadata 'k1' twice"):
        read(tmp_path, twice.replace(b"k2", b"k1"))
    with pytest.raises(InvalidArgument, match="tensor 't1' twice"):
        read(tmp_path, twice.replace(b"t2", b"t1"))
