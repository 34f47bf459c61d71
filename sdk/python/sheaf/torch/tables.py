"""Tables: the weights of embeddings, of which a worker holds the rows that were looked up."""

from __future__ import annotations

import contextlib
import functools
import weakref
from collections.abc import Callable, Iterator
from typing import Any, Union

import numpy
import torch
from torch import nn
from torch.nn import functional

from sheaf.dtypes import Array

Embedding = Union[nn.Embedding, nn.EmbeddingBag]
Fetch = Callable[[Array], Array]
"""Row numbers, sorted and unique, shape [n], int64 -> their values, shape [n, width]."""

_FIRST_ROWS = 64

_OPTIMIZERS: weakref.WeakSet[torch.optim.Optimizer] = weakref.WeakSet()
"""Those made in this process: what they remember of a table's rows grows with it."""


def _note_optimizers() -> None:
    add = torch.optim.Optimizer.add_param_group

    @functools.wraps(add)
    def noted(self: torch.optim.Optimizer, param_group: dict[str, Any]) -> None:
        _OPTIMIZERS.add(self)
        add(self, param_group)

    torch.optim.Optimizer.add_param_group = noted  # type: ignore[assignment]


_note_optimizers()


def embeddings(model: nn.Module) -> Iterator[tuple[str, Embedding]]:
    """The modules whose weights are tables, by the names of these weights.

    A weight that another module has, too (tied weights), is none: there, somebody computes with all of it.
    """
    users: dict[int, int] = {}
    for module in model.modules():
        for parameter in module.parameters(recurse=False):
            users[id(parameter)] = users.get(id(parameter), 0) + 1
    for prefix, module in model.named_modules():
        if isinstance(module, (nn.Embedding, nn.EmbeddingBag)) and users[id(module.weight)] == 1:
            yield (f"{prefix}.weight" if prefix else "weight"), module


@contextlib.contextmanager
def without_memory() -> Iterator[None]:
    """Embeddings that are made inside have weights without elements (device "meta"), however many rows they have."""
    made: dict[Any, Callable[..., None]] = {kind: vars(kind)["__init__"] for kind in (nn.Embedding, nn.EmbeddingBag)}

    def made_on_meta(make: Callable[..., None]) -> Callable[..., None]:
        def init(self: nn.Module, *arguments: Any, **options: Any) -> None:
            # One that is given its weight has it.
            if options.get("_weight") is None:
                options["device"] = "meta"
            make(self, *arguments, **options)

        return init

    for kind, make in made.items():
        kind.__init__ = made_on_meta(make)
    try:
        yield
    finally:
        for kind, make in made.items():
            kind.__init__ = make


class _Lookup(torch.autograd.Function):
    """Rows of a table. Their gradient goes to the table's parameter itself, which may have grown since.

    `anchor` is there to be wanted a gradient of.
    """

    @staticmethod
    def forward(context: Any, anchor: torch.Tensor, table: Table, places: torch.Tensor) -> torch.Tensor:  # type: ignore[override]
        context.table, context.places = table, places
        return table.weight.detach()[places]

    @staticmethod
    def backward(context: Any, gradient: torch.Tensor) -> tuple[None, None, None]:  # type: ignore[override]
        weight = context.table.weight
        if weight.grad is None:
            weight.grad = torch.zeros_like(weight)
        weight.grad.index_add_(0, context.places, gradient)
        return None, None, None


class Table:
    """The weight of one embedding of a worker's model: a parameter with the rows that were looked up so far.

    It grows when rows are looked up that it does not have; so do its gradient and what optimisers remember of it. Rows that
    were not looked up neither decay nor move. Memory: O(rows looked up).
    """

    def __init__(self, module: Embedding, fetch: Fetch) -> None:
        self._module, self._fetch = module, fetch
        self.num_rows, self.width = module.num_embeddings, module.embedding_dim
        self._dtype = module.weight.dtype
        # Sorted; row rows[i] is at places[i] of the parameter.
        self._rows = numpy.empty(0, numpy.int64)
        self._places = numpy.empty(0, numpy.int64)
        # As they came, by place.
        self._fetched = torch.zeros(0, self.width, dtype=self._dtype)
        is_trained = module.weight.requires_grad
        self.weight = nn.Parameter(torch.zeros(0, self.width, dtype=self._dtype), requires_grad=is_trained)
        self._anchor = torch.zeros((), requires_grad=is_trained)
        module.weight = self.weight
        module.forward = self._look_up  # type: ignore[assignment]

    def hold(self, rows: Array) -> Array:
        """Fetches those of `rows` (sorted, unique) that are not here; the place of each in the parameter."""
        if rows.size and (rows[0] < 0 or rows[-1] >= self.num_rows):
            wrong = rows[0] if rows[0] < 0 else rows[-1]
            raise IndexError(f"{wrong} was looked up in an embedding of {self.num_rows} rows")
        new = rows[~numpy.isin(rows, self._rows, assume_unique=True)]
        if new.size:
            self._append(new, torch.from_numpy(self._fetch(new)).reshape(len(new), self.width))
        return self._places[numpy.searchsorted(self._rows, rows)]

    def changes(self) -> tuple[Array, Array]:
        """The rows that differ from what was fetched, sorted, and by how much: shapes [n] and [n, width]."""
        deltas = (self.weight.detach().cpu() - self._fetched)[torch.from_numpy(self._places)].numpy()
        is_changed = (deltas != 0).any(axis=1)
        return self._rows[is_changed], deltas[is_changed]

    def _append(self, rows: Array, values: torch.Tensor) -> None:
        begin, end = len(self._rows), len(self._rows) + len(rows)
        at = numpy.searchsorted(self._rows, rows)
        self._rows = numpy.insert(self._rows, at, rows)
        self._places = numpy.insert(self._places, at, numpy.arange(begin, end))
        if end > len(self._fetched):
            self._grow(max(_FIRST_ROWS, 2 * len(self._fetched), end))
        self._fetched[begin:end] = values
        with torch.no_grad():
            self.weight[begin:end] = values.to(self.weight.device)

    def _grow(self, num_places: int) -> None:
        old = self.weight.shape
        self._fetched = _longer(self._fetched, num_places)
        self.weight.data = _longer(self.weight.data, num_places)
        if self.weight.grad is not None:
            # A gradient of another shape is refused, so that it goes first.
            gradient, self.weight.grad = self.weight.grad, None
            self.weight.grad = _longer(gradient, num_places)
        for optimizer in list(_OPTIMIZERS):
            begin = optimizer.defaults.get("initial_accumulator_value", 0.0)
            state = optimizer.state.get(self.weight, {})
            for key, value in state.items():
                if isinstance(value, torch.Tensor) and value.shape == old:
                    state[key] = _longer(value, num_places, begin if key == "sum" else 0.0)

    def _look_up(self, input: torch.Tensor, *arguments: Any, **options: Any) -> torch.Tensor:
        """What the embedding computes, with the rows that this input needs as its whole weight."""
        module = self._module
        rows, inverse = numpy.unique(input.detach().cpu().numpy(), return_inverse=True)
        rows = rows.astype(numpy.int64)
        places = torch.from_numpy(self.hold(rows)).to(self.weight.device)
        if module.max_norm is not None:
            with torch.no_grad():
                torch.embedding_renorm_(self.weight.detach(), places, module.max_norm, module.norm_type)
        weight = _Lookup.apply(self._anchor, self, places)
        ids = torch.from_numpy(inverse).reshape(input.shape).to(input.device)
        padding = numpy.flatnonzero(rows == module.padding_idx)
        padding_idx = int(padding[0]) if padding.size else None
        if isinstance(module, nn.Embedding):
            return functional.embedding(ids, weight, padding_idx, scale_grad_by_freq=module.scale_grad_by_freq)
        return _bags(module, weight, padding_idx, ids, *arguments, **options)


def _bags(module: nn.EmbeddingBag, weight: torch.Tensor, padding_idx: int | None, ids: torch.Tensor,
          offsets: torch.Tensor | None = None, per_sample_weights: torch.Tensor | None = None) -> torch.Tensor:
    return functional.embedding_bag(ids, weight, offsets, scale_grad_by_freq=module.scale_grad_by_freq, mode=module.mode,
                                    per_sample_weights=per_sample_weights, include_last_offset=module.include_last_offset,
                                    padding_idx=padding_idx)


def _longer(tensor: torch.Tensor, num_rows: int, begin: float = 0.0) -> torch.Tensor:
    """With further rows, of `begin`."""
    longer = tensor.new_full((num_rows, tensor.shape[1]), begin)
    longer[: len(tensor)] = tensor
    return longer
