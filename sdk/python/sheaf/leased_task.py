"""The task that a computation is given."""

from __future__ import annotations

import base64
import functools
import pathlib
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import numpy

from sheaf.declared_output import DeclaredOutput
from sheaf.dtypes import Array
from sheaf.errors import InvalidArgument, NotFound
from sheaf.safetensors import Safetensors
from sheaf.sparse import Sparse

if TYPE_CHECKING:
    from numpy.typing import ArrayLike


class Runner(Protocol):
    """Whoever runs the executable: fetches what a task needs, and hears that it makes progress."""

    def broadcast(self) -> Safetensors:
        """The whole broadcast."""

    def rows(self, wanted: Mapping[str, Array]) -> Mapping[str, Array]:
        """For each tensor, its rows of these numbers, in this order."""

    def progress(self, done: int) -> None:
        """`done` grows."""


class Params(Mapping[str, Any]):
    """The round's broadcast: read-only arrays by name, and a `sheaf.Sparse` where its three parts were sent.

    Fetched when it is first looked into, mapped, and not copied. Empty if the round has no broadcast.
    """

    def __init__(self, fetch: Any) -> None:
        self._fetch = fetch

    @functools.cached_property
    def _tensors(self) -> Mapping[str, Array]:
        fetched: Mapping[str, Array] = self._fetch()
        return fetched

    @functools.cached_property
    def _names(self) -> list[str]:
        """With one name for each three parts."""
        wholes = [name.removesuffix(".dense_shape") for name in self._tensors if name.endswith(".dense_shape")]
        sparse = [name for name in wholes if all(f"{name}.{part}" in self._tensors for part in ("indices", "values"))]
        parts = {f"{name}.{part}" for name in sparse for part in ("indices", "values", "dense_shape")}
        return [name for name in self._tensors if name not in parts] + sparse

    def __getitem__(self, name: str) -> Any:
        if f"{name}.dense_shape" in self._tensors and name not in self._tensors:
            return Sparse(self._tensors[f"{name}.indices"], self._tensors[f"{name}.values"],
                          self._tensors[f"{name}.dense_shape"].tolist())
        return self._tensors[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)

    def __contains__(self, name: object) -> bool:
        return name in self._names


class LeasedTask:
    """One task, leased to the worker that this process runs under. See docs/reference/runner.md, task.json."""

    def __init__(self, entry: Mapping[str, Any], runner: Runner) -> None:
        self._entry = entry
        self._runner = runner
        self._done = 0

    @functools.cached_property
    def params(self) -> Params:
        """The round's broadcast: arrays by name. See Params."""
        return Params(self._runner.broadcast if self._entry.get("broadcast") else dict)

    def rows(self, tensor: str, indices: ArrayLike) -> Array:
        """Rows of one tensor of the broadcast, in the order of `indices` (integers, shape [n]; repeats are allowed).

        Shape [n, *shape of a row]. Fetches these rows and not the whole; may be called at any time, any number of times. The
        array is the caller's own. InvalidArgument if `indices` are no row numbers, NotFound if there is no broadcast.
        """
        return self.rows_of({tensor: indices})[tensor]

    def rows_of(self, indices: Mapping[str, ArrayLike]) -> Mapping[str, Array]:
        """As `rows`, of several tensors at once: row numbers by tensor give rows by tensor, for the price of one question."""
        if not self._entry.get("broadcast"):
            raise NotFound("the round has no broadcast, hence no rows")
        wanted = {tensor: _row_numbers(numbers) for tensor, numbers in indices.items()}
        found = self._runner.rows(wanted)
        rows = {tensor: found[tensor] for tensor in wanted}
        for tensor, numbers in wanted.items():
            if len(rows[tensor]) != len(numbers):
                raise InvalidArgument(f"{len(rows[tensor])} rows of {tensor!r} came for {len(numbers)} that were asked for")
        return rows

    def progress(self, done: int | None = None) -> None:
        """Says that the task makes progress: `done` is a number that grows; without it, calls are counted.

        A lease is renewed only while its task makes progress. A computation that never says so is judged by its CPU time.
        """
        self._done = self._done + 1 if done is None else done
        self._runner.progress(self._done)

    @property
    def data(self) -> pathlib.Path:
        """The path of the worker's only data. NotFound if it has none, or several; names those there are."""
        if len(self.datasets) == 1:
            return next(iter(self.datasets.values()))
        if not self.datasets:
            raise NotFound("this worker has no data: start it with --data NAME=PATH")
        raise NotFound(f"this worker has data of several names: {', '.join(self.datasets)}; choose with task.datasets[NAME]")

    @functools.cached_property
    def datasets(self) -> Mapping[str, pathlib.Path]:
        """The paths of all data of the worker, by name."""
        return {name: pathlib.Path(path) for name, path in (self._entry.get("data") or {}).items()}

    @property
    def data_selector(self) -> str:
        """What of the data the task is about; "" if it does not say."""
        return self._entry.get("data_selector") or ""

    @property
    def config(self) -> Any:
        """The round's `config`: the JSON value that it is, bytes if it is not JSON, None if there is none."""
        return _value_of(self._entry.get("config"))

    @property
    def payload(self) -> Any:
        """The task's own `payload`, as `config`."""
        return _value_of(self._entry.get("payload"))

    @functools.cached_property
    def outputs(self) -> Sequence[DeclaredOutput]:
        """What to return: one declaration for each output of the round."""
        return [DeclaredOutput.parse(output) for output in self._entry["outputs"]]

    @property
    def seed(self) -> int:
        """From 0 to below 2^53, the same in each attempt of this task."""
        return int(self._entry.get("seed") or 0)

    @functools.cached_property
    def rng(self) -> numpy.random.Generator:
        """Random numbers that begin at `seed`: the same in each attempt of this task."""
        return numpy.random.default_rng(self.seed)

    @property
    def computation(self) -> str:
        """Name of the computation."""
        return str(self._entry["computation"])

    @property
    def round(self) -> str:
        """Id of the round."""
        return str(self._entry.get("round") or "")

    @property
    def id(self) -> str:
        """Id of the task."""
        return str(self._entry.get("task") or "")

    @property
    def attempt(self) -> int:
        """1 for the first."""
        return int(self._entry.get("attempt") or 1)

    @property
    def seconds(self) -> float | None:
        """How long it may take; None if nobody says."""
        seconds = self._entry.get("seconds")
        return None if seconds is None else float(seconds)

    @property
    def min_clients(self) -> int:
        """Clients that the round combines at the least before it releases anything."""
        return int(self._entry.get("min_clients") or 1)

    @property
    def numerics(self) -> str:
        """The arithmetic of the round: "EXACT", "F64" or "F32"."""
        return str(self._entry.get("numerics") or "EXACT")

    def __repr__(self) -> str:
        return f"<sheaf.LeasedTask {self.id} of {self.computation}>"


def _row_numbers(indices: ArrayLike) -> Array:
    numbers = numpy.asarray(indices)
    if numbers.size == 0:
        return numpy.empty(0, numpy.int64)
    if numbers.ndim != 1 or numbers.dtype.kind not in "iu":
        raise InvalidArgument(f"row numbers are integers of shape [n], and not {numbers.dtype} of shape {list(numbers.shape)}")
    return numbers.astype(numpy.int64, copy=False)


def _value_of(entry: Any) -> Any:
    if isinstance(entry, dict) and list(entry) == ["base64"] and isinstance(entry["base64"], str):
        return base64.b64decode(entry["base64"])
    return entry
