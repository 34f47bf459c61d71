"""Computations: functions that run where the data is."""

from __future__ import annotations

import functools
import json
import os
import pathlib
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Union, overload

import numpy

from sheaf import safetensors
from sheaf.declared_output import DeclaredOutput, tensors_of
from sheaf.dtypes import Array, to_array
from sheaf.errors import InvalidArgument
from sheaf.leased_task import LeasedTask
from sheaf.safetensors import Safetensors
from sheaf.sparse import Sparse
from sheaf.update import Update

if TYPE_CHECKING:
    from sheaf.operators import Output

Returned = Union[Update, Mapping[str, Any], Iterator[Union[Update, Mapping[str, Any]]]]
Function = Callable[[LeasedTask], Returned]

_registered: dict[str, Computation] = {}


class Computation:
    """A function of a `sheaf.LeasedTask` with the name that rounds ask for. Made by `@sheaf.computation`."""

    def __init__(self, function: Function, name: str) -> None:
        self.function = function
        self.name = name
        self.__doc__ = function.__doc__

    def __call__(self, task: LeasedTask) -> Returned:
        return self.function(task)

    def __repr__(self) -> str:
        return f"<sheaf.Computation {self.name}>"

    def updates(self, task: LeasedTask) -> Iterator[Update]:
        """What the function returns for the task, one client after the other. TypeError if it is none of what it may be."""
        returned: Any = self.function(task)
        if isinstance(returned, Mapping):
            yield _update_of(returned, self.name)
        elif isinstance(returned, (Iterator, list, tuple)):
            for update in returned:
                yield _update_of(update, self.name)
        else:
            yield _update_of(returned, self.name)

    def try_run(self, *, outputs: Mapping[str, Output], data: str | os.PathLike[str] | Mapping[str, Any] | None = None,
                params: Mapping[str, Any] | None = None, config: Any = None, payload: Any = None, data_selector: str = "",
                seed: int = 0) -> Update:
        """Runs the function here, without a server or a worker, and checks what it returns as a worker does.

        outputs, params (the broadcast), config, payload, data_selector: as in a round. data: a path, or a mapping from names
        to paths. Returns the update, its values as they would travel. Raises what the function raises, and InvalidArgument
        for what a worker would refuse. Of a function that returns several clients' updates: `try_updates`.
        """
        updates = self.try_updates(outputs=outputs, data=data, params=params, config=config, payload=payload,
                                   data_selector=data_selector, seed=seed)
        if len(updates) != 1:
            raise InvalidArgument(f"{self.name} returned {len(updates)} updates, and not one; see try_updates")
        return updates[0]

    def try_updates(self, *, outputs: Mapping[str, Output],
                    data: str | os.PathLike[str] | Mapping[str, Any] | None = None,
                    params: Mapping[str, Any] | None = None, config: Any = None, payload: Any = None,
                    data_selector: str = "", seed: int = 0) -> list[Update]:
        """As `try_run`, of a function that returns the updates of several clients."""
        datasets = data if isinstance(data, Mapping) else {} if data is None else {"data": data}
        declared = [DeclaredOutput.of(name, output) for name, output in outputs.items()]
        entry = {
            "version": 1, "computation": self.name, "config": _as_json(config), "payload": _as_json(payload), "seed": seed,
            "data_selector": data_selector, "data": {name: os.fspath(path) for name, path in datasets.items()},
            "broadcast": None if params is None else "here", "outputs": [output.entry() for output in declared],
        }
        task = LeasedTask(entry, _Here(params or {}))
        return [_as_sent(update, declared) for update in self.updates(task)]


def _update_of(value: Any, name: str) -> Update:
    if isinstance(value, Update):
        return value
    if isinstance(value, Mapping):
        return Update(value)
    raise TypeError(f"{name} returned a {type(value).__name__}; it returns a sheaf.Update, a dict of values, or a generator "
                    "of these, one for each client")


def _as_json(value: Any) -> Any:
    """What a computation finds in task.json of the bytes that the server was given."""
    return value if isinstance(value, bytes) else json.loads(json.dumps(value))


def _as_sent(update: Update, declared: list[DeclaredOutput]) -> Update:
    tensors_of(update, declared)
    values: dict[str, Any] = {}
    for output in declared:
        tensors = output.tensors(update[output.name])
        if output.operand == "dense":
            values[output.name] = tensors[output.name]
        elif output.operand == "sparse":
            values[output.name] = Sparse(tensors[f"{output.name}.indices"], tensors[f"{output.name}.values"], output.shape)
        else:
            values[output.name] = update[output.name]
    return Update(values, update.weight, update.metrics)


class _Here:
    """The runner of a trial: the parameters are in this process."""

    def __init__(self, params: Mapping[str, Any]) -> None:
        self._params = params

    @functools.cached_property
    def _tensors(self) -> Safetensors:
        return Safetensors(bytes(safetensors.Encoded(broadcast_tensors(self._params))), what="the broadcast")

    def broadcast(self) -> Safetensors:
        return self._tensors

    def rows(self, wanted: Mapping[str, Array]) -> Mapping[str, Array]:
        # A number has one row.
        return {tensor: numpy.array(numpy.atleast_1d(self._tensors[tensor])[rows]) for tensor, rows in wanted.items()}

    def progress(self, done: int) -> None:
        """Nobody waits."""


def broadcast_tensors(values: Mapping[str, Any]) -> dict[str, Array]:
    """The tensors of a broadcast: arrays as they are, of a sparse tensor its three parts."""
    tensors: dict[str, Array] = {}
    for name, value in values.items():
        tensors |= Sparse.of(value).tensors(name) if Sparse.is_sparse(value) else {name: to_array(value)}
    return tensors


@overload
def computation(function: Function, /) -> Computation: ...
@overload
def computation(*, name: str) -> Callable[[Function], Computation]: ...


def computation(function: Function | None = None, /, *, name: str | None = None) -> Any:
    """Makes a function a computation that rounds can ask for, under its own name or the given one.

        @sheaf.computation
        def mean_age(task):
            ages = numpy.loadtxt(task.data / "ages.csv")
            return sheaf.Update({"age": ages.mean()}, weight=len(ages))

    It returns a `sheaf.Update`, a dict of values alone, or is a generator of these: then each is one client's, and the worker
    combines them. It raises `sheaf.Declined` where there is no data that the task is about, `sheaf.WrongTask` if no worker
    could do it; any other exception is a failed attempt. `sheaf.work()` serves all computations of a file.
    InvalidArgument if another function has the name.
    """

    def register(function: Function) -> Computation:
        made = Computation(function, name or function.__name__)
        before = _registered.get(made.name)
        # A cell of a notebook that is run again defines the same function anew.
        if before is not None and _place_of(before.function) != _place_of(function):
            raise InvalidArgument(f"there are two computations {made.name!r}; give one of them another name")
        _registered[made.name] = made
        return made

    return register if function is None else register(function)


def _place_of(function: Function) -> tuple[str, str]:
    return function.__module__, function.__qualname__


def registered() -> Mapping[str, Computation]:
    """The computations of this process, by name."""
    return _registered


def source_of(made: Computation) -> pathlib.Path | None:
    """The file that defines it. None if there is none (a cell of a notebook, a prompt)."""
    path = pathlib.Path(made.function.__code__.co_filename)
    return path.resolve() if path.is_file() else None
