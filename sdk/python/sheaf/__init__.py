"""Sheaf: federated computation, from Python.

A computation, which runs where the data is (`sheaf-worker` starts it):

    import numpy, sheaf

    @sheaf.computation
    def mean_age(task):
        ages = numpy.loadtxt(task.data / "ages.csv")
        return sheaf.Update({"age": ages.mean()}, weight=len(ages))

    sheaf.work()

A program, anywhere:

    import sheaf

    with sheaf.connect("HOST:7433") as server:
        result = server.run("mean_age", outputs={"age": sheaf.weighted_mean(shape=())}, tasks=20)
        print(result["age"], result.num_clients)
"""

import importlib
from typing import TYPE_CHECKING, Any

from sheaf import safetensors
from sheaf.computations import Computation, computation
from sheaf.declared_output import DeclaredOutput
from sheaf.errors import (AlreadyExists, DataLoss, DeadlineExceeded, Error, FailedPrecondition, Internal, InvalidArgument,
                          NotFound, OutOfRange, PermissionDenied, ResourceExhausted, RoundFailed, RoundStuck, Unauthenticated,
                          Unavailable, Unimplemented)
from sheaf.keyed import Keyed
from sheaf.leased_task import LeasedTask
from sheaf.serving import work
from sheaf.sparse import Sparse
from sheaf.update import Declined, Update, WrongTask
from sheaf.version import __version__

if TYPE_CHECKING:
    from sheaf import aio
    from sheaf.local_federation import local
    from sheaf.operators import (Output, client_mean, coordinate_mean, count, keyed_sum, max, mean, min, slices_sum, sparse_max,
                                 sparse_min, sparse_sum, sparse_sum_to_dense, sum, weighted_client_mean,
                                 weighted_coordinate_mean, weighted_mean)
    from sheaf.result import Result, Summary
    from sheaf.round_spec import RoundOptions, Slots, Task
    from sheaf.server import Round, Server, connect
    from sheaf.server_optimizer import FedAdagrad, FedAdam, FedAvg, FedAvgM, FedYogi, ServerOptimizer

# What programs need and computations do not is imported when it is first used: a computation may be a process for each task.
_OF_PROGRAMS = {
    "sheaf.local_federation": ["local"],
    "sheaf.operators": [
        "Output", "client_mean", "coordinate_mean", "count", "keyed_sum", "max", "mean", "min", "slices_sum", "sparse_max",
        "sparse_min", "sparse_sum", "sparse_sum_to_dense", "sum", "weighted_client_mean", "weighted_coordinate_mean",
        "weighted_mean",
    ],
    "sheaf.result": ["Result", "Summary"],
    "sheaf.round_spec": ["RoundOptions", "Slots", "Task"],
    "sheaf.server": ["Round", "Server", "connect"],
    "sheaf.server_optimizer": ["FedAdagrad", "FedAdam", "FedAvg", "FedAvgM", "FedYogi", "ServerOptimizer"],
}

__all__ = [
    "AlreadyExists", "Computation", "DataLoss", "DeadlineExceeded", "DeclaredOutput", "Declined", "Error",
    "FailedPrecondition", "FedAdagrad", "FedAdam", "FedAvg", "FedAvgM", "FedYogi", "Internal", "InvalidArgument", "Keyed",
    "LeasedTask", "NotFound", "OutOfRange", "Output", "PermissionDenied", "ResourceExhausted", "Result", "Round",
    "RoundFailed", "RoundOptions", "RoundStuck", "Server", "ServerOptimizer", "Slots", "Sparse", "Summary", "Task",
    "Unauthenticated", "Unavailable", "Unimplemented", "Update", "WrongTask", "__version__", "aio", "client_mean",
    "computation", "connect", "coordinate_mean", "count", "keyed_sum", "local", "max", "mean", "min", "safetensors",
    "slices_sum", "sparse_max", "sparse_min", "sparse_sum", "sparse_sum_to_dense", "sum", "weighted_client_mean",
    "weighted_coordinate_mean", "weighted_mean", "work",
]


def __getattr__(name: str) -> Any:
    if name == "aio":
        return importlib.import_module("sheaf.aio")
    for module, names in _OF_PROGRAMS.items():
        if name in names:
            value = globals()[name] = getattr(importlib.import_module(module), name)
            return value
    raise AttributeError(f"module 'sheaf' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
