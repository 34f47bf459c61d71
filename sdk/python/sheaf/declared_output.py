"""What a round wants returned, as a computation sees it: one entry of `outputs` in task.json.

    outputs = [DeclaredOutput.parse(entry) for entry in task["outputs"]]
    tensors = tensors_of({"w": array, "grad": sparse}, outputs)         # For result.safetensors.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy

from sheaf.dtypes import OF_SAFETENSORS, SAFETENSORS_NAMES, Array, to_array
from sheaf.errors import InvalidArgument
from sheaf.keyed import Keyed
from sheaf.sparse import Sparse, is_part

if TYPE_CHECKING:
    from sheaf.operators import Output

_PARTS = ("indices", "values", "dense_shape", "keys", "key_offsets")


class DeclaredOutput(NamedTuple):
    """One output: its name, operator, what it takes ("dense", "sparse" or "keyed"), dtype and shape."""

    name: str
    operator: str
    operand: str
    dtype: numpy.dtype[Any]
    shape: tuple[int, ...]
    index_dims: int = 0
    key_type: str = ""

    @classmethod
    def parse(cls, entry: Mapping[str, Any]) -> DeclaredOutput:
        """From task.json. KeyError or InvalidArgument if it is not of that form."""
        dtype = OF_SAFETENSORS.get(entry["dtype"])
        if dtype is None:
            raise InvalidArgument(f"output {entry['name']!r} has the dtype {entry['dtype']!r}, which is not known here")
        return cls(entry["name"], entry["operator"], entry["operand"], dtype, tuple(entry["shape"]),
                   entry.get("index_dims") or 0, entry.get("key_type") or "")

    @classmethod
    def of(cls, name: str, output: Output) -> DeclaredOutput:
        """As the server would declare it."""
        own = 1 if output.operator == "slices_sum" else len(output.shape)
        return cls(name, output.operator, output.operand, output.dtype, output.shape,
                   (output.index_dims or own) if output.operand == "sparse" else 0, output.key_type)

    def entry(self) -> dict[str, Any]:
        """As it stands in task.json."""
        entry: dict[str, Any] = {
            "name": self.name, "operator": self.operator, "operand": self.operand, "dtype": SAFETENSORS_NAMES[self.dtype],
            "shape": list(self.shape),
        }
        if self.operand == "sparse":
            entry["index_dims"] = self.index_dims
        if self.operand == "keyed":
            entry["key_type"] = self.key_type
        return entry

    def tensors(self, value: Any) -> dict[str, Array]:
        """The tensors that a result has for this output. InvalidArgument, naming it, if the value is not of its kind."""
        if self.operand == "dense":
            return {self.name: self._dense(value)}
        if self.operand == "sparse":
            return self._sparse(value).tensors(self.name)
        table = self._keyed(value)
        return table.tensors(self.name, is_text=self.key_type != "INT64_KEYS")

    def _refused(self, why: str) -> InvalidArgument:
        return InvalidArgument(f"output {self.name!r}, operator {self.operator!r}: {why}")

    def _dense(self, value: Any) -> Array:
        if Sparse.is_sparse(value):
            raise self._refused(
                "it takes a dense array, and this is a sparse tensor; a sparse tensor is one operand: declare the output "
                "with a sparse operator, such as sheaf.sparse_sum or sheaf.slices_sum, or return its to_dense()"
            )
        if is_part(value):
            raise self._refused(
                "this array is the indices or the values of a sheaf.Sparse, which are never summed one by one: declare the "
                "output with a sparse operator, such as sheaf.sparse_sum or sheaf.slices_sum, and return the Sparse itself"
            )
        if isinstance(value, Mapping):
            raise self._refused("it takes a dense array, and this is a mapping; sheaf.keyed_sum takes those")
        array = to_array(value)
        if array.shape != self.shape:
            raise self._refused(f"the array has shape {list(array.shape)}, expected {list(self.shape)}")
        return self._converted(array)

    def _sparse(self, value: Any) -> Sparse:
        if not Sparse.is_sparse(value):
            raise self._refused(
                f"it takes a sheaf.Sparse, and this is a {type(value).__name__}; make one of the indices and values, or with "
                "sheaf.Sparse.from_dense"
            )
        sparse = Sparse.of(value, self.shape)
        if sparse.shape != self.shape:
            raise self._refused(f"the Sparse has shape {list(sparse.shape)}, expected {list(self.shape)}")
        if sparse.index_dims != self.index_dims:
            raise self._refused(
                f"the indices address {sparse.index_dims} dimensions, expected {self.index_dims}; index_dims of the output "
                "says how many"
            )
        values = self._converted(sparse.values)
        return sparse if values is sparse.values else Sparse(sparse.indices, values, sparse.shape)

    def _keyed(self, value: Any) -> Keyed:
        if not isinstance(value, Mapping):
            raise self._refused(f"it takes a sheaf.Keyed or a dict, and this is a {type(value).__name__}")
        table = value if isinstance(value, Keyed) else Keyed(value)
        wanted = self.key_type != "INT64_KEYS"
        if table.has_text_keys not in (wanted, None):
            raise self._refused(f"its keys are {'text' if wanted else 'integers'}, and these are not")
        values = self._converted(table.values_array if len(table) else numpy.empty((0, *self.shape), self.dtype))
        if values.shape[1:] != self.shape:
            raise self._refused(f"the values have shape {list(values.shape)}, expected {[len(table), *self.shape]}")
        return table if values is table.values_array else Keyed(table.keys_array, values)

    def _converted(self, value: Any) -> Array:
        """As the output's dtype, where nothing but the precision of floats is lost."""
        array = to_array(value)
        if array.dtype == self.dtype:
            return array
        kinds = array.dtype.kind + self.dtype.kind
        if array.dtype.kind not in "biuf" or kinds in ("fi", "fu"):
            what = f"of dtype {array.dtype}" if array.dtype.kind != "O" else "no array of numbers"
            raise self._refused(f"the value is {what}, expected {self.dtype}; convert it as you mean it")
        with numpy.errstate(over="ignore"):
            converted = array.astype(self.dtype)
        if kinds == "ff":
            if not numpy.array_equal(numpy.isinf(converted), numpy.isinf(array)):
                raise self._refused(f"a value is beyond the largest {self.dtype}; declare float64, or return smaller numbers")
        elif not _is_same(array, converted):
            raise self._refused(f"an integer of dtype {array.dtype} is not a {self.dtype}; declare an output that holds it")
        return converted


def _is_same(integers: Array, converted: Array) -> bool:
    """Whether the conversion of integers kept each of them."""
    if converted.dtype.kind == "f":
        # Not a comparison: it would round both. Beyond 2^63 the way back does not end in an integer.
        bits = 24 if converted.dtype == numpy.float32 else 53
        return all(_fits(int(value), bits) for value in (integers.min(initial=0), integers.max(initial=0))) or all(
            int(value) == int(integer) for value, integer in zip(converted.flat, integers.flat)
        )
    limits = numpy.iinfo(converted.dtype)
    least, most = int(integers.min(initial=0)), int(integers.max(initial=0))
    return int(limits.min) <= least and most <= int(limits.max)


def _fits(integer: int, bits: int) -> bool:
    return abs(integer) <= 1 << bits


def tensors_of(values: Mapping[str, Any], outputs: Sequence[DeclaredOutput]) -> dict[str, Array]:
    """The tensors of a whole result. InvalidArgument if a value is missing, beside the outputs, or wrong."""
    names = [output.name for output in outputs]
    for name in values:
        if name not in names:
            whole, _, part = name.rpartition(".")
            if whole in names and part in _PARTS:
                raise InvalidArgument(
                    f"there is no output {name!r}: return the whole sheaf.Sparse or sheaf.Keyed as {whole!r}, it is one value"
                )
            raise InvalidArgument(f"there is no output {name!r}; the round declares {', '.join(names)}")
    tensors: dict[str, Array] = {}
    for output in outputs:
        if output.name not in values:
            raise InvalidArgument(f"the output {output.name!r} is missing; return a value for each of {', '.join(names)}")
        tensors |= output.tensors(values[output.name])
    return tensors
