"""Which rows of an array are other ones than before, bit by bit: a NaN is itself, and -0.0 is not 0.0."""

from __future__ import annotations

from typing import Any

import numpy

from sheaf.dtypes import Array

# Compared at a time. Larger blocks are not faster, and take memory.
_BLOCK_BYTES = 2 << 20
# Of a row with fewer units than this, one column after the other is looked at: numpy takes its time for each row.
_FEW_UNITS = 16
_UNITS: list[type[numpy.unsignedinteger[Any]]] = [numpy.uint64, numpy.uint32, numpy.uint16, numpy.uint8]


class RowComparison:
    """Compares arrays with copies of what they were, and brings the copies up to date. Not thread-safe.

        comparison = RowComparison()
        rows = comparison.update(kept, table, rows_max=1000)

    Its own memory is that of a block, however large the arrays are, and is used again.
    """

    def __init__(self) -> None:
        self._differs = numpy.empty(0, numpy.bool_)
        self._flags = numpy.empty(0, numpy.bool_)

    def update(self, kept: Array, now: Array, rows_max: int) -> Array | None:
        """Copies the rows of `now` that changed into `kept`; their numbers, int64, shape [n], ascending. None if they are
        more than `rows_max`.

        kept: C-contiguous and little-endian, shape [rows, row...] or a scalar, which is one row. now: of the same shape and
        dtype, in any order of bytes and memory.
        """
        num_rows = len(kept) if kept.ndim else 1
        row_bytes = kept.nbytes // max(num_rows, 1)
        if row_bytes == 0:
            return numpy.empty(0, numpy.int64)
        if row_bytes > _BLOCK_BYTES and kept.size > num_rows:
            return self._update_long_rows(kept, now, rows_max)
        unit = next(unit for unit in _UNITS if row_bytes % unit().itemsize == 0)
        old = kept.reshape(num_rows, -1).view(unit)
        new = now.reshape(1) if now.ndim == 0 else now
        step = max(_BLOCK_BYTES // row_bytes, 1)
        found: list[Array] | None = [numpy.empty(0, numpy.int64)]
        num_found = 0
        for begin in range(0, num_rows, step):
            before = old[begin : begin + step]
            after = new[begin : begin + step].astype(kept.dtype, order="C", copy=False).reshape(len(before), -1).view(unit)
            if found is not None:
                changed = self._changed(before, after)
                num_found += len(changed)
                if num_found <= rows_max:
                    before[changed] = after[changed]
                    found.append(changed + begin)
                    continue
                # Whoever asks takes all of it then: comparing the rest would be of no use.
                found = None
            before[...] = after
        return None if found is None else numpy.concatenate(found)

    def _update_long_rows(self, kept: Array, now: Array, rows_max: int) -> Array | None:
        """The same of rows of which none fits a block: each is compared as a column of its elements."""
        rows = [row for row in range(len(kept)) if self._is_changed(kept[row], now[row])]
        return numpy.array(rows, numpy.int64) if len(rows) <= rows_max else None

    def _is_changed(self, kept: Array, now: Array) -> bool:
        changed = self.update(kept.reshape(-1), now.reshape(-1), 0)
        return changed is None

    def _changed(self, before: Array, after: Array) -> Array:
        """The numbers of the rows that differ, in matrices of unsigned integers."""
        num_rows, num_units = before.shape
        if self._differs.size < before.size:
            self._differs = numpy.empty(before.size, numpy.bool_)
        differs = self._differs[: before.size].reshape(before.shape)
        numpy.not_equal(before, after, out=differs)
        if num_units == 1:
            return numpy.flatnonzero(differs)
        if self._flags.size < num_rows:
            self._flags = numpy.empty(num_rows, numpy.bool_)
        flags = self._flags[:num_rows]
        if num_units < _FEW_UNITS:
            flags[:] = differs[:, 0]
            for column in range(1, num_units):
                flags |= differs[:, column]
        else:
            differs.any(axis=1, out=flags)
        return numpy.flatnonzero(flags)
