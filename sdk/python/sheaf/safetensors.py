"""Files of tensors: broadcasts, aggregates and results are safetensors.

8 bytes of little-endian header length, a JSON header {name: {dtype, shape, data_offsets}, "__metadata__": {..}}, then the
raw little-endian bytes. No code, checked as a whole, read in place.
Format: https://github.com/huggingface/safetensors#format

    sheaf.safetensors.write("w.safetensors", {"w": numpy.zeros((3, 4))})
    sheaf.safetensors.open_file("w.safetensors")["w"]      # A read-only numpy.ndarray over the mapped file: no copy.
"""

from __future__ import annotations

import json
import mmap
import os
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple, TypeGuard

import numpy

from sheaf.dtypes import OF_SAFETENSORS, Array
from sheaf.errors import InvalidArgument

_PREFIX_BYTES = 8
# The format's own limits.
HEADER_BYTES_MAX = 100_000_000
RANK_MAX = 32
_METADATA = "__metadata__"
_NAMES = {dtype: name for name, dtype in OF_SAFETENSORS.items()}


class _Place(NamedTuple):
    """Where a tensor lies. `dtype` is None if it is one that numpy does not have (BF16, for example)."""

    dtype: numpy.dtype[Any] | None
    dtype_name: str
    shape: tuple[int, ...]
    begin: int
    end: int


class Safetensors(Mapping[str, Array]):
    """The tensors of a safetensors file, by name, as views of its bytes.

    `data` is the whole file: bytes, a mapped file, an array of bytes. It is untrusted: InvalidArgument, naming `what`,
    if it is malformed. Arrays are read-only if `data` is.
    """

    def __init__(self, data: Any, *, what: str = "the file") -> None:
        self._data = memoryview(data).cast("B")
        self._what = what
        self.metadata: dict[str, str] = {}
        self._places = self._parse()

    def __getitem__(self, name: str) -> Array:
        place = self._places.get(name)
        if place is None:
            raise KeyError(f"{self._what} has no tensor {name!r}; it has {', '.join(self._places) or 'none'}")
        if place.dtype is None:
            raise TypeError(f"tensor {name!r} of {self._what} is of type {place.dtype_name}, which numpy does not have")
        if place.begin == place.end:
            return numpy.empty(place.shape, place.dtype)
        count = (place.end - place.begin) // place.dtype.itemsize
        return numpy.frombuffer(self._data, place.dtype, count, place.begin).reshape(place.shape)

    def __iter__(self) -> Iterator[str]:
        return iter(self._places)

    def __len__(self) -> int:
        return len(self._places)

    def __contains__(self, name: object) -> bool:
        return name in self._places

    def __repr__(self) -> str:
        tensors = (f"{name}: {place.dtype_name} {list(place.shape)}" for name, place in self._places.items())
        return f"<safetensors {', '.join(tensors)}>"

    def _malformed(self, what: str) -> InvalidArgument:
        return InvalidArgument(f"{self._what} is not a safetensors file: {what}")

    def _parse(self) -> dict[str, _Place]:
        size = len(self._data)
        if size < _PREFIX_BYTES:
            raise self._malformed("it ends before its header does")
        header_bytes = int.from_bytes(self._data[:_PREFIX_BYTES], "little")
        if header_bytes > size - _PREFIX_BYTES:
            raise self._malformed("it ends before its header does")
        if header_bytes > HEADER_BYTES_MAX:
            raise self._malformed(f"its header has {header_bytes} bytes, and {HEADER_BYTES_MAX} are the most")
        begin = _PREFIX_BYTES + header_bytes
        places = {}
        for name, entry in self._header(bytes(self._data[_PREFIX_BYTES:begin])).items():
            if name == _METADATA:
                self.metadata = self._checked_metadata(entry)
            else:
                places[name] = self._place(name, entry, begin, size)
        end = begin
        # The format wants every byte to belong to exactly one tensor.
        for name, place in sorted(places.items(), key=lambda item: (item[1].begin, item[1].end)):
            if place.begin != end:
                raise self._malformed(f"tensor {name[:128]!r} leaves a gap before it or overlaps another")
            end = place.end
        if end != size:
            raise self._malformed("there are bytes behind the last tensor")
        return places

    def _header(self, text: bytes) -> dict[str, Any]:
        def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
            found = dict(pairs)
            if len(found) != len(pairs):
                raise self._malformed("its header names something twice")
            return found

        try:
            header = json.loads(text.decode(), object_pairs_hook=unique)
        except InvalidArgument:
            raise
        except (ValueError, RecursionError):
            header = None
        if not isinstance(header, dict):
            raise self._malformed("its header is not a JSON object")
        return header

    def _checked_metadata(self, entry: object) -> dict[str, str]:
        if not isinstance(entry, dict) or not all(isinstance(value, str) for value in entry.values()):
            raise self._malformed("__metadata__ is not an object of strings")
        return entry

    def _place(self, name: str, entry: object, data_begin: int, size: int) -> _Place:
        entry = entry if isinstance(entry, dict) else {}
        dtype_name, shape, offsets = (entry.get(field) for field in ("dtype", "shape", "data_offsets"))
        if not isinstance(dtype_name, str):
            raise self._malformed(f"tensor {name[:128]!r} has no dtype")
        if not _is_sizes(shape) or len(shape) > RANK_MAX:
            raise self._malformed(f"tensor {name[:128]!r} has no shape, or a malformed one")
        if not _is_sizes(offsets) or len(offsets) != 2:
            raise self._malformed(f"tensor {name[:128]!r} has no data_offsets, or malformed ones")
        begin, end = (data_begin + offset for offset in offsets)
        if begin > end or end > size:
            raise self._malformed(f"tensor {name[:128]!r} lies outside the file")
        dtype = OF_SAFETENSORS.get(dtype_name)
        if dtype is not None and _product(shape) * dtype.itemsize != end - begin:
            raise self._malformed(f"tensor {name[:128]!r} has data_offsets that do not fit its shape and dtype")
        return _Place(dtype, dtype_name, tuple(shape), begin, end)


def _is_sizes(value: Any) -> TypeGuard[list[int]]:
    return isinstance(value, list) and all(type(size) is int and 0 <= size < 2**63 for size in value)


def _product(sizes: list[int]) -> int:
    product = 1
    for size in sizes:
        product *= size
    return product


# Reading so few bytes takes less time than mapping them.
_READ_BYTES_MAX = 64 * 1024


def open_file(path: str | os.PathLike[str], *, is_writable: bool = False) -> Safetensors:
    """The tensors of a file, mapped: no byte is copied. OSError, or InvalidArgument.

    Arrays are read-only, unless `is_writable`; then they can be written to, and the file stays as it is.
    """
    with open(path, "rb") as file:
        size = os.fstat(file.fileno()).st_size
        data: Any
        if size <= _READ_BYTES_MAX:
            data = bytearray(file.read()) if is_writable else file.read()
        else:
            data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY if is_writable else mmap.ACCESS_READ)
    return Safetensors(data, what=os.fspath(path))


class Encoded:
    """A safetensors file that was not written yet: its header, and the tensors' own memory. Nothing is copied.

    The arrays must not change while it is used.
    """

    def __init__(self, tensors: Mapping[str, Array], metadata: Mapping[str, str] | None = None) -> None:
        header: dict[str, Any] = {_METADATA: dict(metadata)} if metadata else {}
        parts: list[memoryview] = []
        offset = 0
        # Wide types first, so that all are aligned.
        for name, array in sorted(tensors.items(), key=lambda item: (-item[1].dtype.itemsize, item[0])):
            little = array.astype(array.dtype.newbyteorder("<"), order="C", copy=False)
            if little.dtype not in _NAMES:
                raise InvalidArgument(f"tensor {name!r} is of dtype {array.dtype}, which safetensors does not have")
            # Not ascontiguousarray: it makes a scalar a vector.
            part = little.reshape(-1).view(numpy.uint8).data
            end = offset + len(part)
            header[name] = {"dtype": _NAMES[little.dtype], "shape": array.shape, "data_offsets": [offset, end]}
            parts.append(part)
            offset = end
        text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
        text += b" " * (-len(text) % 8)
        self._parts = [memoryview(len(text).to_bytes(_PREFIX_BYTES, "little") + text), *parts]
        self.size = sum(len(part) for part in self._parts)

    def pieces(self, offset: int = 0, length: int | None = None) -> Iterator[memoryview]:
        """The bytes from `offset` on, `length` of them or all, in pieces as they lie in memory."""
        end = self.size if length is None else min(offset + length, self.size)
        begin = 0
        for part in self._parts:
            piece = part[max(offset - begin, 0) : max(end - begin, 0)]
            if len(piece):
                yield piece
            begin += len(part)

    def __bytes__(self) -> bytes:
        return b"".join(self._parts)


def write(path: str | os.PathLike[str], tensors: Mapping[str, Array], metadata: Mapping[str, str] | None = None) -> None:
    """Writes the file under another name and renames it: who sees it sees the whole. OSError, or InvalidArgument."""
    encoded = Encoded(tensors, metadata)
    unfinished = f"{os.fspath(path)}.unfinished"
    descriptor = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
    try:
        pieces = list(encoded.pieces())
        while pieces:
            written = os.writev(descriptor, pieces[:512])
            while pieces and written >= len(pieces[0]):
                written -= len(pieces.pop(0))
            if pieces:
                pieces[0] = pieces[0][written:]
    finally:
        os.close(descriptor)
    os.rename(unfinished, path)
