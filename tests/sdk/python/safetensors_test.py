"""The file format: what is read is what was written, and what is malformed is refused by name."""

import json

import numpy
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

import sheaf
from sheaf import safetensors
from sheaf.dtypes import OF_SAFETENSORS

DTYPES = st.sampled_from(sorted(OF_SAFETENSORS.values(), key=str))
TENSORS = st.dictionaries(
    st.text(min_size=1, max_size=8).filter(lambda name: name != "__metadata__"),
    DTYPES.flatmap(lambda dtype: arrays.arrays(dtype, arrays.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4))),
    max_size=5)


def file_of(header, data=b""):
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + data


def entry(dtype="F32", shape=(1,), offsets=(0, 4)):
    return {"dtype": dtype, "shape": list(shape), "data_offsets": list(offsets)}


@given(TENSORS, st.dictionaries(st.text(), st.text(), max_size=3))
def test_what_is_read_is_what_was_written(tensors, metadata):
    encoded = safetensors.Encoded(tensors, metadata)
    data = bytes(encoded)
    assert len(data) == encoded.size
    read = safetensors.Safetensors(data)
    assert sorted(read) == sorted(tensors) and read.metadata == metadata
    for name, array in tensors.items():
        assert read[name].dtype == array.dtype and read[name].shape == array.shape
        assert read[name].tobytes() == array.tobytes()


@given(TENSORS, st.integers(0, 400), st.integers(0, 400))
def test_any_range_of_an_encoded_file_is_that_of_its_bytes(tensors, offset, length):
    encoded = safetensors.Encoded(tensors)
    assert b"".join(encoded.pieces(offset, length)) == bytes(encoded)[offset : offset + length]


@given(TENSORS, st.data())
def test_a_damaged_file_is_read_or_refused_and_never_worse(tensors, data):
    damaged = bytearray(bytes(safetensors.Encoded(tensors)))
    at = data.draw(st.integers(0, len(damaged) - 1))
    damaged[at] = data.draw(st.integers(0, 255))
    try:
        read = safetensors.Safetensors(damaged[: data.draw(st.integers(0, len(damaged)))])
    except sheaf.InvalidArgument:
        return
    for name in read:
        try:
            assert read[name].nbytes <= len(damaged)
        except TypeError:
            assert "numpy does not have" in str(pytest.raises(TypeError, read.__getitem__, name).value)


@pytest.mark.parametrize("because, data", [
    ("ends before its header does", b"\0\0"),
    ("ends before its header does", (2**63).to_bytes(8, "little") + b"{}"),
    ("not a JSON object", file_of(b"[]")),
    ("not a JSON object", file_of(b"{")),
    ("not a JSON object", file_of(b'{"w": ' + b"[" * 100_000)),
    ("not a JSON object", file_of(b"\xff")),
    ("names something twice", file_of(b'{"w": {}, "w": {}}')),
    ("has no dtype", file_of({"w": [1]})),
    ("has no dtype", file_of({"w": {**entry(), "dtype": 1}})),
    ("has no shape", file_of({"w": entry(shape=[-1])})),
    ("has no shape", file_of({"w": entry(shape=[True])})),
    ("has no shape", file_of({"w": entry(shape=[1.0])})),
    ("has no shape", file_of({"w": entry(shape=[1] * 33)})),
    ("has no data_offsets", file_of({"w": entry(offsets=[0])})),
    ("lies outside the file", file_of({"w": entry()})),
    ("lies outside the file", file_of({"w": entry(offsets=(4, 0))}, bytes(4))),
    ("do not fit its shape", file_of({"w": entry(shape=[2])}, bytes(4))),
    ("do not fit its shape", file_of({"w": entry(shape=[2**40, 2**40])}, bytes(4))),
    ("leaves a gap before it or overlaps", file_of({"v": entry(), "w": entry()}, bytes(4))),
    ("leaves a gap before it or overlaps", file_of({"w": entry(offsets=(4, 8))}, bytes(8))),
    ("bytes behind the last tensor", file_of({"w": entry()}, bytes(5))),
    ("not an object of strings", file_of({"__metadata__": {"a": 1}})),
])
def test_a_malformed_file_is_refused_with_the_reason(because, data):
    with pytest.raises(sheaf.InvalidArgument, match=because):
        safetensors.Safetensors(data)


def test_a_type_that_numpy_does_not_have_is_named_when_it_is_asked_for():
    read = safetensors.Safetensors(file_of({"b": entry("BF16", [2]), "w": entry(offsets=(4, 8))}, bytes(8)))
    assert list(read) == ["b", "w"] and read["w"] == 0
    with pytest.raises(TypeError, match="'b' of the file is of type BF16"):
        read["b"]


def test_a_mapped_file_is_read_only_and_not_copied(tmp_path):
    path = tmp_path / "w.safetensors"
    safetensors.write(path, {"w": numpy.arange(100_000.0)})
    assert [each.name for each in tmp_path.iterdir()] == ["w.safetensors"]
    read = safetensors.open_file(path)["w"]
    assert not read.flags.writeable and not read.flags.owndata and read[99_999] == 99_999
    own = safetensors.open_file(path, is_writable=True)["w"]
    own[0] = 7
    assert safetensors.open_file(path)["w"][0] == 0
