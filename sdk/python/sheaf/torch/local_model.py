"""A worker's copy of a model: received, trained, and what training has changed."""

from __future__ import annotations

import dataclasses
import functools
import weakref
from collections.abc import Callable, Mapping
from typing import Any

import numpy
import torch
from torch import nn

from sheaf.dtypes import Array
from sheaf.errors import InvalidArgument
from sheaf.leased_task import LeasedTask
from sheaf.sparse import Sparse
from sheaf.torch.tables import Table, embeddings, without_memory
from sheaf.update import Update


@dataclasses.dataclass(frozen=True)
class _Received:
    """What came with the task, by name: tables, and whole tensors that outputs are returned of."""

    tables: Mapping[str, Table]
    whole: Mapping[str, Array]


_RECEIVED: weakref.WeakKeyDictionary[nn.Module, _Received] = weakref.WeakKeyDictionary()


def load(task: LeasedTask, make_model: Callable[[], nn.Module]) -> Any:
    """The model that `make_model` makes, with the parameters that the round has sent.

        model = sheaf.torch.load(task, Tagger)

    make_model: the module's class, or a function without arguments. What it does to the values of embeddings takes neither
    time nor memory. The rows of a table are fetched when they are first looked up; all other parameters and buffers now.
    InvalidArgument, naming it, if a parameter is not of the shape that the round says.
    """
    with without_memory():
        model = make_model()
    declared = {output.name: output for output in task.outputs}
    tables = {}
    for name, module in embeddings(model):
        # One that is frozen is looked up, too, and not returned.
        if name not in declared or declared[name].operand == "sparse":
            if name in declared:
                _check_shape(name, module.weight, declared[name].shape)
            tables[name] = Table(module, functools.partial(task.rows, name))
    whole = {name: tensor for name, tensor in model.state_dict(keep_vars=True).items() if name not in tables}
    sent = task.rows_of({name: numpy.arange(len(tensor) if tensor.ndim else 1) for name, tensor in whole.items()})
    for name, tensor in whole.items():
        if name in declared:
            _check_shape(name, tensor, declared[name].shape)
        _set(model, name, tensor, torch.from_numpy(sent[name]).reshape(tensor.shape))
    returned = {name: sent[name] for name in whole if name in declared}
    _RECEIVED[model] = _Received({name: table for name, table in tables.items() if name in declared},
                                 {name: values.copy() for name, values in returned.items()})
    return model


def update(model: nn.Module, weight: float = 1, metrics: Mapping[str, float] | None = None,
           **more_metrics: float) -> Update:
    """What training has changed of a model that `load` returned: for a computation to return.

        return sheaf.torch.update(model, weight=len(examples), loss=loss)

    Of tables the rows that differ, of all else the differences. weight, metrics: as of `sheaf.Update`.
    """
    if model not in _RECEIVED:
        raise InvalidArgument("sheaf.torch.update takes the model that sheaf.torch.load returned")
    received = _RECEIVED[model]
    values: dict[str, Any] = {}
    for name, table in received.tables.items():
        rows, deltas = table.changes()
        values[name] = Sparse(rows, deltas, (table.num_rows, table.width))
    now = model.state_dict()
    for name, before in received.whole.items():
        values[name] = now[name].detach().cpu().numpy() - before.reshape(now[name].shape)
    return Update(values, weight, metrics, **more_metrics)


def _check_shape(name: str, tensor: torch.Tensor, shape: tuple[int, ...]) -> None:
    if tuple(tensor.shape) != tuple(shape):
        raise InvalidArgument(f"{name!r} has shape {list(tensor.shape)} in the model of this worker, and {list(shape)} in the "
                              "round: program and worker need the same model")


def _set(model: nn.Module, name: str, tensor: torch.Tensor, values: torch.Tensor) -> None:
    if not tensor.is_meta:
        with torch.no_grad():
            tensor.copy_(values)
        return
    # Of an embedding without memory whose weight is tied: all that have it get the same new one.
    made = nn.Parameter(values.to(tensor.dtype).clone(), requires_grad=tensor.requires_grad)
    for module in model.modules():
        for key, parameter in list(module.named_parameters(recurse=False)):
            if parameter is tensor:
                setattr(module, key, made)
