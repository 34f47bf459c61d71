"""Tables: a value, or a row of values, at each key of an open set of keys.

    words = sheaf.Keyed({"libc6": 3, "zlib1g": 1})
    words["libc6"]                                        # 3
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Union

import numpy

from sheaf.dtypes import Array, to_array
from sheaf.errors import InvalidArgument

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

Key = Union[str, int]
_KEY_BYTES_MAX = 1024


class Keyed(Mapping[Key, Any]):
    """A mapping from keys, all text or all integers, to values.

    keys: text (at most 1024 bytes in UTF-8), bytes, or integers of 64 bits; or a mapping from keys to values.
    values: shape [n] for numbers, [n, ...] for rows.

    Bytes that are not UTF-8 become text as file names do ("surrogateescape"), so that nothing is lost. A key may occur more
    than once in what is contributed: its values are added. InvalidArgument if keys and values do not fit.
    """

    __slots__ = ("keys_array", "values_array", "_positions")

    values_array: Array
    """Shape [n, ...]."""
    keys_array: Array | list[str]
    """int64 of shape [n], or a list of n texts."""

    def __init__(self, keys: Mapping[Any, Any] | Sequence[Any] | Array, values: ArrayLike | None = None) -> None:
        if isinstance(keys, Mapping):
            if values is not None:
                raise InvalidArgument("the values of a Keyed are in the mapping already")
            values = list(keys.values())
            keys = list(keys)
        if values is None:
            raise InvalidArgument("a Keyed needs values, one for each key")
        self.values_array = to_array(values)
        if self.values_array.ndim == 0 or len(self.values_array) != len(keys):
            raise InvalidArgument(
                f"{len(keys)} keys and values of shape {list(self.values_array.shape)} do not fit: there is one value, or "
                "one row of values, for each key"
            )
        self.keys_array = _checked_keys(keys)
        self._positions: dict[Key, int] | None = None

    @property
    def has_text_keys(self) -> bool | None:
        """True for text, False for integers, None if there are no keys."""
        return None if not len(self.keys_array) else isinstance(self.keys_array, list)

    def __getitem__(self, key: Key | bytes) -> Any:
        if self._positions is None:
            keys = self.keys_array if isinstance(self.keys_array, list) else self.keys_array.tolist()
            self._positions = {each: position for position, each in enumerate(keys)}
        return self.values_array[self._positions[_text_of(key) if isinstance(key, bytes) else key]]

    def __iter__(self) -> Iterator[Key]:
        return iter(self.keys_array if isinstance(self.keys_array, list) else self.keys_array.tolist())

    def __len__(self) -> int:
        return len(self.keys_array)

    def __repr__(self) -> str:
        return f"<sheaf.Keyed {self.values_array.dtype} of {len(self)} keys>"

    @staticmethod
    def encoded(keys: list[str]) -> list[bytes]:
        """The bytes that keys are on the wire."""
        return [key.encode(errors="surrogateescape") for key in keys]

    def tensors(self, name: str, *, is_text: bool) -> dict[str, Array]:
        """Its parts as a safetensors file has them: `name`.keys, `name`.values, and for text `name`.key_offsets."""
        parts = {f"{name}.values": self.values_array}
        if not is_text:
            return parts | {f"{name}.keys": numpy.asarray(self.keys_array, numpy.int64)}
        keys = self.encoded([key for key in self.keys_array if isinstance(key, str)])
        offsets = numpy.zeros(len(keys) + 1, numpy.int64)
        numpy.cumsum([len(key) for key in keys], out=offsets[1:])
        joined = numpy.frombuffer(b"".join(keys), numpy.uint8)
        return parts | {f"{name}.keys": joined, f"{name}.key_offsets": offsets}

    @classmethod
    def from_tensors(cls, keys: Array, offsets: Array | None, values: Array) -> Keyed:
        """From those parts, which are untrusted. `offsets` is None for integers. InvalidArgument if they do not fit."""
        if offsets is None:
            if keys.dtype != numpy.int64 or keys.ndim != 1:
                raise InvalidArgument("the integer keys of a table are not int64 of shape [n]")
            return cls(keys, values)
        is_whole = (
            keys.dtype == numpy.uint8 and keys.ndim == 1 and offsets.dtype == numpy.int64 and offsets.ndim == 1
            and len(offsets) > 0 and offsets[0] == 0 and offsets[-1] == len(keys) and bool((numpy.diff(offsets) >= 0).all())
        )
        if not is_whole:
            raise InvalidArgument("the text keys of a table do not fit their offsets")
        joined, ends = keys.tobytes(), offsets.tolist()
        return cls([joined[begin:end] for begin, end in zip(ends, ends[1:])], values)


def _text_of(key: bytes) -> str:
    return key.decode(errors="surrogateescape")


def _checked_keys(keys: Sequence[Any] | Array) -> Array | list[str]:
    if isinstance(keys, numpy.ndarray) and keys.dtype.kind == "i" and keys.ndim == 1:
        return keys.astype(numpy.int64, copy=False)
    listed: list[Any] = keys.tolist() if isinstance(keys, numpy.ndarray) else list(keys)
    if all(isinstance(key, (str, bytes)) for key in listed):
        texts = [_text_of(key) if isinstance(key, bytes) else key for key in listed]
        for key in texts:
            if len(key) > _KEY_BYTES_MAX // 4 and len(key.encode(errors="surrogateescape")) > _KEY_BYTES_MAX:
                raise InvalidArgument(f"the key {key[:32]!r}... has more than {_KEY_BYTES_MAX} bytes")
        return texts
    if all(isinstance(key, (int, numpy.integer)) and not isinstance(key, bool) for key in listed):
        if all(-(2**63) <= key < 2**63 for key in listed):
            return numpy.array(listed, numpy.int64)
        raise InvalidArgument("an integer key has 64 bits at the most")
    raise InvalidArgument("the keys of a Keyed are all text, or all integers")
