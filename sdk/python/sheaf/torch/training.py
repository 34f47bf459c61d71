"""The program's side: the model, and how it takes over what rounds release."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy
import torch
from torch import nn

from sheaf.dtypes import Array
from sheaf.errors import InvalidArgument
from sheaf.operators import Output, weighted_coordinate_mean, weighted_mean
from sheaf.result import Result
from sheaf.server import Server
from sheaf.server_optimizer import FedAvg, ServerOptimizer
from sheaf.torch.tables import embeddings


class Training:
    """A model that rounds train: what they broadcast, what they return, and how it moves the model.

        training = sheaf.torch.Training(Tagger(), optimizer=sheaf.FedAdam(0.1))
        for result in training.rounds(server, "tags", rounds=20, tasks=50):
            print(result.metrics["loss"])

    model: it is moved in place. optimizer: without it, FedAvg with rate 1. tables: the operator of the tables' rows; the
    default divides each row by the weight of the clients that touched it. whole: that of all other parameters.

    InvalidArgument, naming it, if a parameter is not float32.
    """

    def __init__(self, model: nn.Module, *, optimizer: ServerOptimizer | None = None,
                 tables: Callable[..., Output] = weighted_coordinate_mean,
                 whole: Callable[..., Output] = weighted_mean) -> None:
        self.model = model
        self.optimizer = optimizer or FedAvg()
        self.outputs: Mapping[str, Output] = _outputs(model, tables, whole)

    def broadcast(self) -> Mapping[str, Array]:
        """All parameters and buffers, by their names in the model's state_dict; views, not copies."""
        return {name: tensor.detach().numpy() for name, tensor in self.model.state_dict().items()}

    def apply(self, result: Mapping[str, Any]) -> None:
        """Moves the model by what a round released."""
        self.optimizer.move(self.broadcast(), result)

    def rounds(self, server: Server, computation: str, /, **options: Any) -> Iterator[Result]:
        """Rounds one after the other; each is applied before its result comes. options: as of `Server.loop`.

        With `ahead=1` workers prepare the next round while one runs, and the next runs while the loop's body evaluates the model.
        """
        yield from server.loop(computation, outputs=self.outputs, broadcast=self.broadcast, apply=self.apply, **options)


def _outputs(model: nn.Module, tables: Callable[..., Output], whole: Callable[..., Output]) -> dict[str, Output]:
    names = {name for name, _ in embeddings(model)}
    is_trained = {name: parameter.requires_grad for name, parameter in model.named_parameters()}
    outputs = {}
    for name, tensor in model.state_dict().items():
        # Buffers that count, and what is frozen, are sent and not returned.
        if not is_trained.get(name, tensor.is_floating_point()):
            continue
        if tensor.dtype != torch.float32:
            raise InvalidArgument(f"{name!r} is {tensor.dtype}; parameters are trained in torch.float32")
        if tensor.device.type != "cpu" or not tensor.is_contiguous():
            raise InvalidArgument(f"{name!r} does not lie in this machine's memory in one piece: use model.cpu()")
        shape, dtype = tuple(tensor.shape), numpy.float32
        outputs[name] = tables(shape, dtype, index_dims=1) if name in names else whole(shape, dtype)
    return outputs
