"""The operators: how the contributions to an output combine. One function for each row of the server's table.

    outputs = {
        "w": sheaf.weighted_mean(shape=(64, 10), dtype="float32"),
        "table": sheaf.slices_sum(shape=(100_000, 16), dtype="float32", min_contributors=3),
        "words": sheaf.keyed_sum(str, dtype="int64", drop_zeros=True),
    }

There is no default operator, because the choice decides the result. docs/reference/operators.md says what each means. An
argument that would mean nothing for an operator does not exist. The server checks the rest when the round is created:
means of integers, for example.

Arguments that several have:

shape: sizes of the dimensions of the dense tensor that the output is or stands for; () for a number.
dtype: of the values contributed and released: float32, float64, int32, int64 or uint64.
non_finite: "reject" refuses contributions with NaN or an infinity; "propagate" treats them as IEEE 754 does. For floats.
index_dims: how many leading dimensions of `shape` the indices address; the rest is the shape of a block of values. None is
    the operator's own: 1 for `slices_sum`, else all.
form: "sparse" or "dense": what is released. None is the operator's own.
min_contributors: release a coordinate or key only if at least so many clients touched it.
drop_zeros: leave out coordinates or keys whose released values are all zero.
nnz_max: a contribution with more rows is rejected. None: no limit but its size.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal, Optional

import numpy

from sheaf.dtypes import output_dtype
from sheaf.errors import InvalidArgument

if TYPE_CHECKING:
    from numpy.typing import DTypeLike

Shape = Sequence[int]
NonFinite = Literal["reject", "propagate"]
Form = Optional[Literal["sparse", "dense"]]
Operand = Literal["dense", "sparse", "keyed"]


@dataclasses.dataclass(frozen=True)
class Output:
    """One output of a round: what an operator's function returns."""

    operator: str
    operand: Operand
    dtype: numpy.dtype[Any]
    shape: tuple[int, ...]
    index_dims: int = 0
    min_contributors: int = 0
    drop_zeros: bool = False
    non_finite: NonFinite = "reject"
    nnz_max: int = 0
    key_type: str = ""
    form: str = ""


def _shape(shape: Shape) -> tuple[int, ...]:
    return tuple(int(size) for size in ([shape] if isinstance(shape, int) else shape))


def _dense(operator: str, shape: Shape, dtype: DTypeLike, non_finite: NonFinite) -> Output:
    return Output(operator, "dense", output_dtype(dtype), _shape(shape), non_finite=non_finite)


def _sparse(operator: str, shape: Shape, dtype: DTypeLike, non_finite: NonFinite, index_dims: int | None,
            min_contributors: int, nnz_max: int | None, *, drop_zeros: bool = False, form: Form = None) -> Output:
    return Output(
        operator, "sparse", output_dtype(dtype), _shape(shape), index_dims=index_dims or 0, non_finite=non_finite,
        min_contributors=min_contributors, drop_zeros=drop_zeros, nnz_max=nnz_max or 0, form=form or "",
    )


def sum(shape: Shape, dtype: DTypeLike = "float64", *, non_finite: NonFinite = "reject") -> Output:
    """Element by element, the sum of all contributions."""
    return _dense("sum", shape, dtype, non_finite)


def mean(shape: Shape, dtype: DTypeLike = "float64", *, non_finite: NonFinite = "reject") -> Output:
    """Element by element, the sum divided by the number of contributions. Floats only."""
    return _dense("mean", shape, dtype, non_finite)


def weighted_mean(shape: Shape, dtype: DTypeLike = "float64", *, non_finite: NonFinite = "reject") -> Output:
    """Element by element, the sum of weight * value divided by the sum of weights. Floats only."""
    return _dense("weighted_mean", shape, dtype, non_finite)


def min(shape: Shape, dtype: DTypeLike = "float64", *, non_finite: NonFinite = "reject") -> Output:
    """Element by element, the smallest value."""
    return _dense("min", shape, dtype, non_finite)


def max(shape: Shape, dtype: DTypeLike = "float64", *, non_finite: NonFinite = "reject") -> Output:
    """Element by element, the largest value."""
    return _dense("max", shape, dtype, non_finite)


def count(shape: Shape, dtype: DTypeLike = "float64", *, non_finite: NonFinite = "reject") -> Output:
    """Element by element, how many clients' values are not zero. Takes `dtype`, releases int64."""
    return _dense("count", shape, dtype, non_finite)


def sparse_sum(shape: Shape, dtype: DTypeLike = "float64", *, index_dims: int | None = None, form: Form = None,
               min_contributors: int = 0, drop_zeros: bool = False, nnz_max: int | None = None,
               non_finite: NonFinite = "reject") -> Output:
    """At each coordinate, the sum of all entries there. Released sparse."""
    return _sparse("sparse_sum", shape, dtype, non_finite, index_dims, min_contributors, nnz_max, drop_zeros=drop_zeros,
                   form=form)


def sparse_sum_to_dense(shape: Shape, dtype: DTypeLike = "float64", *, index_dims: int | None = None, form: Form = None,
                        min_contributors: int = 0, nnz_max: int | None = None,
                        non_finite: NonFinite = "reject") -> Output:
    """At each coordinate, the sum of all entries there. Released dense."""
    return _sparse("sparse_sum_to_dense", shape, dtype, non_finite, index_dims, min_contributors, nnz_max, form=form)


def slices_sum(shape: Shape, dtype: DTypeLike = "float64", *, index_dims: int | None = None, form: Form = None,
               min_contributors: int = 0, drop_zeros: bool = False, nnz_max: int | None = None,
               non_finite: NonFinite = "reject") -> Output:
    """At each row, the sum of all row slices there. Released sparse."""
    return _sparse("slices_sum", shape, dtype, non_finite, index_dims, min_contributors, nnz_max, drop_zeros=drop_zeros,
                   form=form)


def coordinate_mean(shape: Shape, dtype: DTypeLike = "float64", *, index_dims: int | None = None, form: Form = None,
                    min_contributors: int = 0, drop_zeros: bool = False, nnz_max: int | None = None,
                    non_finite: NonFinite = "reject") -> Output:
    """At each coordinate, the sum divided by the number of contributions that touched it. Floats only."""
    return _sparse("coordinate_mean", shape, dtype, non_finite, index_dims, min_contributors, nnz_max,
                   drop_zeros=drop_zeros, form=form)


def weighted_coordinate_mean(shape: Shape, dtype: DTypeLike = "float64", *, index_dims: int | None = None,
                             form: Form = None, min_contributors: int = 0, drop_zeros: bool = False,
                             nnz_max: int | None = None, non_finite: NonFinite = "reject") -> Output:
    """At each coordinate, the sum of weight * value divided by the weight of those that touched it. Floats only."""
    return _sparse("weighted_coordinate_mean", shape, dtype, non_finite, index_dims, min_contributors, nnz_max,
                   drop_zeros=drop_zeros, form=form)


def client_mean(shape: Shape, dtype: DTypeLike = "float64", *, index_dims: int | None = None, form: Form = None,
                min_contributors: int = 0, drop_zeros: bool = False, nnz_max: int | None = None,
                non_finite: NonFinite = "reject") -> Output:
    """At each coordinate, the sum divided by the number of all contributions: absent counts as zero. Floats only."""
    return _sparse("client_mean", shape, dtype, non_finite, index_dims, min_contributors, nnz_max, drop_zeros=drop_zeros,
                   form=form)


def weighted_client_mean(shape: Shape, dtype: DTypeLike = "float64", *, index_dims: int | None = None, form: Form = None,
                         min_contributors: int = 0, drop_zeros: bool = False, nnz_max: int | None = None,
                         non_finite: NonFinite = "reject") -> Output:
    """At each coordinate, the sum of weight * value divided by the weight of all: absent counts as zero. Floats only."""
    return _sparse("weighted_client_mean", shape, dtype, non_finite, index_dims, min_contributors, nnz_max,
                   drop_zeros=drop_zeros, form=form)


def sparse_min(shape: Shape, dtype: DTypeLike = "float64", *, index_dims: int | None = None, min_contributors: int = 0,
               drop_zeros: bool = False, nnz_max: int | None = None, non_finite: NonFinite = "reject") -> Output:
    """At each coordinate, the smallest entry of those that touched it: absent is not zero. Released sparse."""
    return _sparse("sparse_min", shape, dtype, non_finite, index_dims, min_contributors, nnz_max, drop_zeros=drop_zeros)


def sparse_max(shape: Shape, dtype: DTypeLike = "float64", *, index_dims: int | None = None, min_contributors: int = 0,
               drop_zeros: bool = False, nnz_max: int | None = None, non_finite: NonFinite = "reject") -> Output:
    """At each coordinate, the largest entry of those that touched it: absent is not zero. Released sparse."""
    return _sparse("sparse_max", shape, dtype, non_finite, index_dims, min_contributors, nnz_max, drop_zeros=drop_zeros)


def keyed_sum(key_type: type[str] | type[int], shape: Shape = (), dtype: DTypeLike = "float64", *,
              min_contributors: int = 0, drop_zeros: bool = False, nnz_max: int | None = None,
              non_finite: NonFinite = "reject") -> Output:
    """At each key of an open set, the sum of all rows there. Released as a `sheaf.Keyed`, sorted by key.

    key_type: `str` (text or bytes) or `int`. shape: of the value at one key.
    """
    if key_type not in (str, int):
        raise InvalidArgument("key_type is str or int")
    return Output(
        "keyed_sum", "keyed", output_dtype(dtype), _shape(shape), min_contributors=min_contributors, drop_zeros=drop_zeros,
        nnz_max=nnz_max or 0, non_finite=non_finite, key_type="STRING_KEYS" if key_type is str else "INT64_KEYS",
    )


OPERATORS = [
    sum, mean, weighted_mean, min, max, count, sparse_sum, sparse_sum_to_dense, slices_sum, coordinate_mean,
    weighted_coordinate_mean, client_mean, weighted_client_mean, sparse_min, sparse_max, keyed_sum,
]
"""The functions, in the order of the table."""
