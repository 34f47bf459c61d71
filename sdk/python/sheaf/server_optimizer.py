"""How a program moves its model by what a round released.

    optimizer = sheaf.FedAdam(learning_rate=0.1)
    for result in server.loop("tags", rounds=20, outputs=.., tasks=50, broadcast=lambda: model):
        optimizer.move(model, result)

For every element x of the model, its delta d and its moments m and v:

    FedAvg       x += rate * d
    FedAvgM      m = beta1 * m + d                                      x += rate * m
    FedAdagrad   v = v + d^2                                            x += rate * d / (sqrt(v) + tau)
    FedAdam      m = beta1 * m + (1 - beta1) * d
                 v = beta2 * v + (1 - beta2) * d^2                      x += rate * m / (sqrt(v) + tau)
    FedYogi      m as FedAdam's
                 v = v - (1 - beta2) * d^2 * sign(v - d^2)              x += rate * m / (sqrt(v) + tau)

(Reddi et al., Adaptive Federated Optimization, 2021; FedAvgM: Hsu et al., 2019.) m begins at 0 and v at tau^2. As in those
papers, neither has a bias correction. A delta is the direction of the step: negate gradients.

The same table and the same bits as the C++ library's. Moments are float32, the arithmetic between them is double. The moments
of a row are made when a `sheaf.Sparse` first touches it, and change only when it is touched: a row that no client touched
neither decays nor moves on. Where the delta of a dense tensor is 0, the element does both. Memory: O(rows touched).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, MutableMapping
from typing import Any, ClassVar

import numpy

from sheaf.dtypes import Array, to_array
from sheaf.errors import InvalidArgument
from sheaf.sparse import Sparse


class _Moments:
    """The moments of one tensor: those of row `rows[i]` are at `slots[i]`."""

    def __init__(self, width: int, first: float | None, second: float | None) -> None:
        self.width = width
        self.rows = numpy.empty(0, numpy.int64)
        self.slots = numpy.empty(0, numpy.int64)
        # None: the optimiser keeps none.
        self._begin = (first, second)
        self.arrays: list[Array | None] = [None if begin is None else numpy.empty((0, width), numpy.float32)
                                           for begin in self._begin]

    def slots_of(self, rows: Array) -> Array:
        """The places of these rows, which are sorted and unique; those that are new begin."""
        at = numpy.searchsorted(self.rows, rows)
        is_known = numpy.zeros(len(rows), bool)
        inside = at < len(self.rows)
        is_known[inside] = self.rows[at[inside]] == rows[inside]
        if not is_known.all():
            new = rows[~is_known]
            begin = len(self.rows)
            self.rows = numpy.insert(self.rows, at[~is_known], new)
            self.slots = numpy.insert(self.slots, at[~is_known], numpy.arange(begin, begin + len(new)))
            self._grow(begin + len(new))
            at = numpy.searchsorted(self.rows, rows)
        return self.slots[at]

    def _grow(self, num_slots: int) -> None:
        for which, begin in enumerate(self._begin):
            array = self.arrays[which]
            if array is None or num_slots <= len(array):
                continue
            # An eighth more, so that adding rows stays cheap.
            grown = numpy.full((num_slots + num_slots // 8, self.width), begin, numpy.float32)
            grown[: len(array)] = array
            self.arrays[which] = grown


class ServerOptimizer:
    """What the five have in common. learning_rate and tau above 0; beta1, the memory of m, and beta2, that of v, in [0, 1)."""

    _keeps_first: ClassVar[bool] = False
    _keeps_second: ClassVar[bool] = False

    def __init__(self, learning_rate: float = 1.0, *, beta1: float = 0.9, beta2: float = 0.99, tau: float = 1e-3) -> None:
        self.learning_rate, self.beta1, self.beta2, self.tau = learning_rate, beta1, beta2, tau
        is_valid = all(value > 0 and math.isfinite(value) for value in (learning_rate, tau)) and all(
            0 <= beta < 1 for beta in (beta1, beta2))
        if not is_valid:
            raise InvalidArgument("a server optimiser needs a learning rate and a tau above 0, and betas from 0 to below 1")
        self._moments: dict[str, _Moments] = {}

    def move(self, model: Mapping[str, Array], deltas: Mapping[str, Any]) -> None:
        """Moves each tensor of the model that `deltas` has, in place.

        model: float32 arrays. deltas: for a name, an array of the tensor's shape, or a `sheaf.Sparse` of rows of it; of names
        that the model does not have, nothing is taken. InvalidArgument, before anything has moved, if one does not fit.
        """
        moves = [(name, model[name], self._checked(name, model[name], deltas[name])) for name in deltas if name in model]
        for name, weights, delta in moves:
            self._move(name, weights, delta)

    def _checked(self, name: str, weights: Array, delta: Any) -> Sparse | Array:
        if not isinstance(weights, numpy.ndarray) or weights.dtype != numpy.float32 or not weights.flags.writeable:
            raise InvalidArgument(f"tensor {name!r} of a model is a float32 array that can be written to")
        whole: Sparse | Array = Sparse.of(delta) if Sparse.is_sparse(delta) else to_array(delta)
        if tuple(whole.shape) != weights.shape:
            raise InvalidArgument(f"a delta of shape {list(whole.shape)} does not fit tensor {name!r} of {list(weights.shape)}")
        width = int(numpy.prod(weights.shape[whole.index_dims if isinstance(whole, Sparse) else 0 :], dtype=numpy.int64))
        moments = self._moments.get(name)
        if moments is not None and moments.width != width:
            raise InvalidArgument(f"the rows of tensor {name!r} had {moments.width} elements before, and {width} now")
        if isinstance(whole, Sparse):
            if whole.index_dims not in (1, weights.ndim):
                raise InvalidArgument(f"the indices into tensor {name!r} address neither rows nor single elements")
            if len(numpy.unique(_linear(whole))) != len(whole):
                raise InvalidArgument(f"a row of tensor {name!r} is there twice; add its deltas first")
        return whole

    def _move(self, name: str, weights: Array, delta: Sparse | Array) -> None:
        if isinstance(delta, Sparse):
            rows = _linear(delta)
            order = numpy.argsort(rows)
            rows = rows[order]
            width = int(numpy.prod(weights.shape[delta.index_dims :], dtype=numpy.int64))
            deltas = delta.values[order].reshape(len(rows), width)
        else:
            rows, width = numpy.zeros(1, numpy.int64), weights.size
            deltas = delta.reshape(1, width)
        if width == 0 or not len(rows):
            return
        # The model's own memory, row by row.
        table = weights.reshape(-1, width)
        in_place = numpy.shares_memory(table, weights)
        moments = self._moments.get(name)
        if moments is None:
            moments = self._moments[name] = _Moments(
                width, 0.0 if self._keeps_first else None, self.tau * self.tau if self._keeps_second else None)
        slots = moments.slots_of(rows) if self._keeps_first or self._keeps_second else rows
        # As the C++ library: what is released is float32, what is computed with is double.
        d = deltas.astype(numpy.float32, copy=False).astype(numpy.float64)
        first, second = (None if array is None else array[slots] for array in moments.arrays)
        step = self._step(d, first, second)
        for array, moved in zip(moments.arrays, (first, second)):
            if array is not None:
                array[slots] = moved
        table[rows] = (table[rows] + step).astype(numpy.float32)
        if not in_place:
            weights[...] = table.reshape(weights.shape)

    def _step(self, d: Array, m: Any, v: Any) -> Array:
        """What to add, in double; moves the moments in place."""
        raise NotImplementedError

    def _average(self, d: Array, m: Array) -> None:
        m[...] = self.beta1 * m.astype(numpy.float64) + (1 - self.beta1) * d

    def _adaptive(self, moment: Array, v: Array) -> Array:
        rate: Array = self.learning_rate * moment.astype(numpy.float64)
        step: Array = rate / (numpy.sqrt(v.astype(numpy.float64)) + self.tau)
        return step


def _linear(sparse: Sparse) -> Array:
    """One number for each coordinate."""
    if sparse.index_dims == 1:
        linear: Array = sparse.rows.astype(numpy.int64)
    else:
        linear = numpy.ravel_multi_index(tuple(sparse.indices.T), sparse.shape[: sparse.index_dims]).astype(numpy.int64)
    return linear


class FedAvg(ServerOptimizer):
    """x += rate * d"""

    def _step(self, d: Array, m: Any, v: Any) -> Array:
        step: Array = self.learning_rate * d
        return step


class FedAvgM(ServerOptimizer):
    """m = beta1 * m + d; x += rate * m"""

    _keeps_first = True

    def _step(self, d: Array, m: Any, v: Any) -> Array:
        m[...] = self.beta1 * m.astype(numpy.float64) + d
        step: Array = self.learning_rate * m.astype(numpy.float64)
        return step


class FedAdagrad(ServerOptimizer):
    """v = v + d^2; x += rate * d / (sqrt(v) + tau)"""

    _keeps_second = True

    def _step(self, d: Array, m: Any, v: Any) -> Array:
        v[...] = v.astype(numpy.float64) + d * d
        return self._adaptive(d, v)


class FedAdam(ServerOptimizer):
    """m = beta1 * m + (1 - beta1) * d; v = beta2 * v + (1 - beta2) * d^2; x += rate * m / (sqrt(v) + tau)"""

    _keeps_first = _keeps_second = True

    def _step(self, d: Array, m: Any, v: Any) -> Array:
        self._average(d, m)
        v[...] = self.beta2 * v.astype(numpy.float64) + (1 - self.beta2) * (d * d)
        return self._adaptive(m, v)


class FedYogi(ServerOptimizer):
    """m as FedAdam's; v = v - (1 - beta2) * d^2 * sign(v - d^2); x += rate * m / (sqrt(v) + tau)"""

    _keeps_first = _keeps_second = True

    def _step(self, d: Array, m: Any, v: Any) -> Array:
        self._average(d, m)
        square = d * d
        wide = v.astype(numpy.float64)
        v[...] = wide - (1 - self.beta2) * square * numpy.sign(wide - square)
        return self._adaptive(m, v)
