"""safetensors files: what is written is read; broken and hostile ones are refused in one line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from isa_models import InvalidArgument, SimdnnError, Unimplemented
from tests.effort import examples
from workloads import safetensors

KINDS = {
    "F64": np.float64,
    "F32": np.float32,
    "F16": np.float16,
    "BF16": ml_dtypes.bfloat16,
    "I64": np.int64,
    "I32": np.int32,
    "I16": np.int16,
    "I8": np.int8,
    "U64": np.uint64,
    "U32": np.uint32,
    "U16": np.uint16,
    "U8": np.uint8,
    "BOOL": np.bool_,
    "F8_E4M3": ml_dtypes.float8_e4m3fn,
    "F8_E5M2": ml_dtypes.float8_e5m2,
}


def write(path: Path, header: Any, body: bytes, length: int | None = None) -> Path:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    path.write_bytes((len(text) if length is None else length).to_bytes(8, "little") + text + body)
    return path


def entry(start: int, end: int, *shape: int, kind: str = "U8") -> dict[str, Any]:
    return {"dtype": kind, "shape": list(shape), "data_offsets": [start, end]}


def test_powers_of_two_and_halves_of_bytes(tmp_path: Path) -> None:
    header = {"s": entry(0, 3, 3, kind="F8_E8M0"), "q": entry(3, 6, 2, 3, kind="F4")}
    found = safetensors.read(write(tmp_path / "mx.safetensors", header, bytes([127, 0, 255, 0x21, 0x83, 0xF0])))
    assert found["s"].astype(float)[:2].tolist() == [1, 2.0**-127] and np.isnan(found["s"].astype(float)[2])
    assert found["q"].astype(float).tolist() == [[0.5, 1, 1.5], [-0.0, 0, -6]]
    with pytest.raises(SimdnnError, match="an even number of elements"):
        safetensors.read(write(tmp_path / "odd.safetensors", {"q": entry(0, 2, 3, kind="F4")}, b"12"))


@examples(60)
@given(
    parts=st.lists(st.tuples(st.sampled_from(sorted(KINDS)), st.lists(st.integers(0, 4), max_size=3)), max_size=5),
    order=st.randoms(use_true_random=False),
)
def test_what_is_written_is_read(
    tmp_path_factory: pytest.TempPathFactory, parts: list[tuple[str, list[int]]], order: Any
) -> None:
    rng = np.random.default_rng(0)
    arrays = {f"t{i}": rng.integers(0, 2, shape).astype(KINDS[kind]) for i, (kind, shape) in enumerate(parts)}
    header, body = {"__metadata__": {"format": "pt"}}, b""
    for name, (kind, shape) in zip(arrays, parts, strict=True):
        start, body = len(body), body + arrays[name].tobytes()
        header[name] = entry(start, len(body), *shape, kind=kind)
    names = list(header)
    order.shuffle(names)
    path = write(tmp_path_factory.getbasetemp() / "made.safetensors", {n: header[n] for n in names}, body)
    found = safetensors.read(path)
    assert found.keys() == arrays.keys()
    for name, wanted in arrays.items():
        assert found[name].dtype == wanted.dtype
        np.testing.assert_array_equal(found[name], wanted)
        assert not found[name].flags.writeable


@pytest.mark.parametrize(
    ("header", "body", "message"),
    [
        ({"a": entry(0, 4, 4)}, b"123", "holds 3 bytes of tensors; its header states 4"),
        ({"a": entry(0, 4, 4)}, b"12345", "holds 5 bytes of tensors; its header states 4"),
        ({"a": entry(0, 4, 4), "b": entry(5, 6, 1)}, b"123456", "'b' starts at byte 5; the one before it ends at 4"),
        ({"a": entry(0, 4, 4), "b": entry(3, 5, 2)}, b"12345", "'b' starts at byte 3; the one before it ends at 4"),
        ({"a": entry(0, 4, 4), "b": entry(0, 4, 4)}, b"1234", "'b' starts at byte 0; the one before it ends at 4"),
        ({"a": entry(0, 1 << 60, 1 << 60)}, b"1", "at most 8589934592 elements"),
        ({"a": entry(0, 1 << 33, 1 << 33)}, b"1", "holds 1 bytes of tensors; its header states 8589934592"),
        ({"a": entry(0, 4, 2, kind="F32")}, b"1234", "lies in 4 bytes; its shape and type need 8"),
        ({"a": entry(4, 0, 4)}, b"1234", "a start and an end are needed"),
        ({"a": entry(-4, 0, 4)}, b"1234", "a start and an end are needed"),
        ({"a": entry(0, 4, -4)}, b"1234", "of shape"),
        ({"a": entry(0, 4, 4, kind="F6_E2M3")}, b"1234", "has type 'F6_E2M3'; what works: F64"),
        ({"a": {"dtype": "U8", "shape": [4]}}, b"1234", "'data_offsets' is None"),
        ({"a": {"dtype": "U8", "shape": [True], "data_offsets": [0, 1]}}, b"1", "of shape"),
        ({"a": {"dtype": "U8", "shape": [1], "data_offsets": [0, 1.0]}}, b"1", "a start and an end are needed"),
        ({"a": 3}, b"", "'dtype' is None"),
        ([], b"", "holds a JSON list"),
        (b"{", b"", "is no JSON"),
        (b"\xff\xfe", b"", "is no JSON"),
        (b"[" * 100_000, b"", "nested too deep"),
    ],
)
def test_broken_files(tmp_path: Path, header: Any, body: bytes, message: str) -> None:
    with pytest.raises((InvalidArgument, Unimplemented), match=message) as error:
        safetensors.read(write(tmp_path / "bad.safetensors", header, body))
    assert len(str(error.value).splitlines()) == 1


@pytest.mark.parametrize("length", [3, 1 << 20, 1 << 63, (1 << 64) - 1])
def test_wrong_lengths_of_the_header(tmp_path: Path, length: int) -> None:
    with pytest.raises(InvalidArgument, match="truncated"):
        safetensors.read(write(tmp_path / "bad.safetensors", {"a": entry(0, 1, 1)}, b"1", length))


def test_every_truncation_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path / "made.safetensors", {"a": entry(0, 4, 4), "b": entry(4, 8, 2, 2)}, b"12345678")
    whole = path.read_bytes()
    assert len(safetensors.read(path)) == 2
    for length in range(len(whole)):
        path.write_bytes(whole[:length])
        with pytest.raises(SimdnnError):
            safetensors.read(path)
    with pytest.raises(InvalidArgument, match="none cannot be read"):
        safetensors.read(tmp_path / "none")


@pytest.mark.parametrize("order", ["<", ">"])
def test_what_is_written_is_read_again(tmp_path: Path, order: str) -> None:
    rng = np.random.default_rng(1)
    kinds = [*KINDS.values(), ml_dtypes.float8_e8m0fnu, ml_dtypes.float4_e2m1fn]
    given = {f"t{i}": rng.integers(0, 2, (3, 4)).astype(kind) for i, kind in enumerate(kinds)}
    given["f32 codes"] = rng.standard_normal((2, 6)).astype(f"{order}f4")
    given["four bits"] = rng.integers(0, 16, (5, 2)).astype(np.uint8).view(ml_dtypes.float4_e2m1fn)
    given["none"] = np.zeros((0, 3), np.float16)
    safetensors.write(tmp_path / "x.safetensors", given)
    found = safetensors.read(tmp_path / "x.safetensors")
    assert list(found) == list(given)
    for name, values in given.items():
        assert found[name].dtype == values.dtype.newbyteorder("=") and found[name].shape == values.shape
        assert np.array_equal(found[name].astype(np.float64), values.astype(np.float64), equal_nan=True), name


@pytest.mark.parametrize(
    "name,values",
    [("c", np.zeros(2, complex)), ("__metadata__", np.zeros(2)), ("o", np.zeros(3, ml_dtypes.float4_e2m1fn))],
)
def test_what_the_format_lacks_is_not_written(tmp_path: Path, name: str, values: Any) -> None:
    with pytest.raises(InvalidArgument):
        safetensors.write(tmp_path / "x.safetensors", {name: values})
    assert not list(tmp_path.iterdir())
