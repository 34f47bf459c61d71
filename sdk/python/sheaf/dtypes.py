"""The types that values can have: numpy's, in the words of safetensors and of the protocol."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy

from sheaf.errors import InvalidArgument

if TYPE_CHECKING:
    from numpy.typing import DTypeLike

Array = numpy.ndarray[Any, Any]

# Of values that are contributed and released: numpy's name, safetensors', and the protocol's DType.
_ROWS = [
    ("float32", "F32", "FLOAT32"),
    ("float64", "F64", "FLOAT64"),
    ("int32", "I32", "INT32"),
    ("int64", "I64", "INT64"),
    ("uint64", "U64", "UINT64"),
]
SAFETENSORS_NAMES = {numpy.dtype(name): safetensors for name, safetensors, _ in _ROWS}
PROTOCOL_NAMES = {numpy.dtype(name): protocol for name, _, protocol in _ROWS}
# What a safetensors file may hold beside these and numpy has, too.
OF_SAFETENSORS = {safetensors: numpy.dtype(name).newbyteorder("<") for name, safetensors, _ in _ROWS} | {
    name: numpy.dtype(code) for name, code in
    [("F16", "<f2"), ("I16", "<i2"), ("I8", "i1"), ("U32", "<u4"), ("U16", "<u2"), ("U8", "u1"), ("BOOL", "?")]
}


def output_dtype(dtype: DTypeLike) -> numpy.dtype[Any]:
    """The dtype of an output. InvalidArgument if outputs cannot have it."""
    found = numpy.dtype(dtype)
    if found not in PROTOCOL_NAMES:
        raise InvalidArgument(f"an output cannot be of dtype {found}; use one of {', '.join(row[0] for row in _ROWS)}")
    return found


def is_sharing(value: object) -> bool:
    """Whether somebody else's tensor (torch, TensorFlow) has to be asked for its numbers."""
    return not isinstance(value, numpy.ndarray) and callable(getattr(value, "numpy", None))


def to_array(value: Any) -> Array:
    """An array of what numpy understands, or of a tensor of torch or TensorFlow. Copies only what it must."""
    if isinstance(value, numpy.ndarray):
        return value
    if callable(getattr(value, "detach", None)):
        value = value.detach().cpu()
    if is_sharing(value):
        value = value.numpy()
    return numpy.asarray(value)
