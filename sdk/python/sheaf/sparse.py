"""Sparse tensors: one value made of three parts, never three values.

    grad = sheaf.Sparse(indices=[3, 17], values=rows, shape=(1000, 64))     # Rows 3 and 17 of a table of 1000.
    grad = sheaf.Sparse.of(module.weight.grad)                              # Of torch, scipy or TensorFlow.
    table[grad.indices[:, 0]] -= grad.values
"""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy

from sheaf.dtypes import Array, to_array
from sheaf.errors import InvalidArgument

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

# The parts of every Sparse there is, by identity: contributed one by one they would give wrong sums without an error.
_parts: weakref.WeakValueDictionary[int, Array] = weakref.WeakValueDictionary()


class Sparse:
    """A sparse tensor of `shape`: at the coordinate `indices[i]` of the leading dimensions is the block `values[i]`.

    indices: integers of shape [n, r], or [n], which means [n, 1]. r is how many leading dimensions they address: all of
        them for single values, 1 for rows of a table. In any order; a coordinate may occur more than once, then its
        values are added.
    values: shape [n, *shape[r:]].
    shape: of the dense tensor that this stands for.

    InvalidArgument if these do not fit each other, or an index is out of range.
    """

    __slots__ = ("indices", "values", "shape")

    indices: Array
    """int32 or int64, shape [n, r]."""
    values: Array
    """Shape [n, *shape[r:]]."""
    shape: tuple[int, ...]

    def __init__(self, indices: ArrayLike, values: ArrayLike, shape: Sequence[int]) -> None:
        self.shape = tuple(int(size) for size in shape)
        self.values = to_array(values)
        if self.values.ndim == 0:
            raise InvalidArgument("the values of a Sparse are an array: one value, or one row of values, for each index")
        self.indices = self._checked_indices(to_array(indices))
        _parts[id(self.values)] = self.values
        _parts[id(self.indices)] = self.indices

    def _checked_indices(self, indices: Array) -> Array:
        num_blocks = len(self.values)
        if indices.size == 0 and num_blocks == 0:
            columns = indices.shape[1] if indices.ndim == 2 else len(self.shape) - self.values.ndim + 1
            indices = numpy.empty((0, max(columns, 0)), numpy.int64)
        if indices.dtype.kind not in "iu":
            raise InvalidArgument(f"the indices of a Sparse are integers, and not {indices.dtype}")
        if indices.dtype not in (numpy.dtype("int32"), numpy.dtype("int64")):
            indices = indices.astype(numpy.int64)
        if indices.ndim == 1:
            indices = indices[:, None]
        if indices.ndim != 2 or len(indices) != num_blocks:
            raise InvalidArgument(
                f"indices of shape {list(indices.shape)} and values of shape {list(self.values.shape)} do not fit: there "
                "is one block of values for each row of indices"
            )
        columns = indices.shape[1]
        if columns > len(self.shape) or self.values.shape[1:] != self.shape[columns:]:
            raise InvalidArgument(
                f"{columns} index columns into shape {list(self.shape)} need values of shape "
                f"{[num_blocks, *self.shape[columns:]]}, and not {list(self.values.shape)}"
            )
        for column, size in enumerate(self.shape[:columns]):
            if num_blocks and not (0 <= indices[:, column].min() and indices[:, column].max() < size):
                wrong = int(numpy.argmax((indices[:, column] < 0) | (indices[:, column] >= size)))
                raise InvalidArgument(f"indices[{wrong}, {column}] is {indices[wrong, column]}, outside [0, {size})")
        return indices

    @property
    def index_dims(self) -> int:
        """How many leading dimensions the indices address."""
        return int(self.indices.shape[1])

    @property
    def dtype(self) -> numpy.dtype[Any]:
        """Of the values."""
        dtype: numpy.dtype[Any] = self.values.dtype
        return dtype

    @property
    def rows(self) -> Array:
        """The row numbers, shape [n], of a Sparse whose indices address one dimension. InvalidArgument otherwise."""
        if self.index_dims != 1:
            raise InvalidArgument(f"its indices address {self.index_dims} dimensions, so that they are no row numbers")
        return self.indices[:, 0]

    def __len__(self) -> int:
        """How many blocks it has."""
        return len(self.values)

    def __repr__(self) -> str:
        return f"<sheaf.Sparse {self.dtype} {list(self.shape)}: {len(self)} of shape {list(self.values.shape[1:])}>"

    @classmethod
    def of(cls, value: Any, shape: Sequence[int] | None = None) -> Sparse:
        """From a sparse matrix of scipy, a sparse tensor of torch, TensorFlow's IndexedSlices or SparseTensor, or a Sparse.

        `shape` is for IndexedSlices that do not say theirs. InvalidArgument if it is none of these.
        """
        if isinstance(value, Sparse):
            return value
        if callable(getattr(value, "tocoo", None)):
            matrix = value.tocoo()
            return cls(numpy.stack([matrix.row, matrix.col], axis=1), matrix.data, matrix.shape)
        if getattr(value, "is_sparse", False) is True:
            # Of torch, and maybe hybrid: values with dimensions of their own.
            return cls(to_array(value._indices()).T, to_array(value._values()), tuple(value.shape))
        if all(hasattr(value, part) for part in ("values", "indices", "dense_shape")):
            dense_shape = shape if value.dense_shape is None else to_array(value.dense_shape).tolist()
            if dense_shape is None:
                raise InvalidArgument("these IndexedSlices have no dense_shape: give sheaf.Sparse.of the table's as `shape`")
            return cls(to_array(value.indices), to_array(value.values), dense_shape)
        raise InvalidArgument(f"a {_name_of(value)} is no sparse tensor that is known here; make a sheaf.Sparse of its parts")

    @staticmethod
    def is_sparse(value: Any) -> bool:
        """Whether `of` takes it."""
        return (
            isinstance(value, Sparse)
            or callable(getattr(value, "tocoo", None))
            or getattr(value, "is_sparse", False) is True
            or all(hasattr(value, part) for part in ("values", "indices", "dense_shape"))
        )

    @classmethod
    def from_dense(cls, array: ArrayLike, index_dims: int | None = None) -> Sparse:
        """The entries of a dense array that are not zero; with `index_dims`, the blocks with any such entry."""
        dense = to_array(array)
        columns = dense.ndim if index_dims is None else index_dims
        touched = (dense != 0).any(axis=tuple(range(columns, dense.ndim)))
        return cls(numpy.argwhere(touched), dense[touched], dense.shape)

    def to_dense(self) -> Array:
        """The dense array. Values at one coordinate are added, in their order."""
        dense = numpy.zeros(self.shape, self.dtype)
        numpy.add.at(dense, tuple(self.indices.T), self.values)
        return dense

    def to_scipy(self) -> Any:
        """A scipy.sparse.coo_matrix. InvalidArgument if this is no matrix of single values."""
        import scipy.sparse

        if len(self.shape) != 2 or self.index_dims != 2:
            raise InvalidArgument(f"scipy has matrices of single values, and this is {self!r}")
        return scipy.sparse.coo_matrix((self.values, (self.indices[:, 0], self.indices[:, 1])), shape=self.shape)

    def to_torch(self) -> Any:
        """A sparse torch.Tensor, not coalesced."""
        import torch

        indices = torch.from_numpy(numpy.array(self.indices.T, numpy.int64))
        return torch.sparse_coo_tensor(indices, torch.from_numpy(numpy.array(self.values)), self.shape)

    def tensors(self, name: str) -> dict[str, Array]:
        """Its parts as a safetensors file has them: `name`.indices, `name`.values, `name`.dense_shape."""
        return {
            f"{name}.indices": self.indices,
            f"{name}.values": self.values,
            f"{name}.dense_shape": numpy.array(self.shape, numpy.int64),
        }


def is_part(value: object) -> bool:
    """Whether this very array is the indices or the values of a Sparse."""
    return _parts.get(id(value)) is value


def _name_of(value: object) -> str:
    return f"{type(value).__module__}.{type(value).__qualname__}"
