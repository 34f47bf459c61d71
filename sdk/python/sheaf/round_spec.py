"""What a round is to do, from the arguments of `Server.run`, `create`, `announce` and `loop`."""

from __future__ import annotations

import dataclasses
import datetime
import json
import os
from collections.abc import Iterable, Mapping
from typing import Any, Literal, Optional, Required, TypedDict, Union

import numpy

from sheaf.dtypes import PROTOCOL_NAMES
from sheaf.errors import InvalidArgument
from sheaf.operators import Output
from sheaf.v1 import aggregation_pb2, round_pb2, task_pb2, tensor_pb2

Seconds = Union[int, float, datetime.timedelta]


@dataclasses.dataclass(frozen=True)
class Task:
    """One task that a program lists.

    payload: what it tells its computation: anything that JSON can say, or bytes. At most 64 KiB.
    data_selector: which of the worker's data it is about, for example "client:17".
    requires: labels that a worker must carry to be given it.
    tasks: the tasks that it stands for, if it is for a relay, which passes them on to a server of its own: `sheaf.Task`s, of
        which each may stand for others again, or data selectors. Then there is no payload; 64 KiB, as a serialised
        sheaf.v1.ListedTasks.
    """

    payload: Any = None
    data_selector: str = ""
    requires: Mapping[str, str] = dataclasses.field(default_factory=dict)
    tasks: Iterable[Union[Task, str]] | None = None


@dataclasses.dataclass(frozen=True)
class Slots:
    """Interchangeable tasks, for the workers that ask first.

    count: how many; None makes the round's goal, times `over_selection`.
    per_worker_max: most of them that one worker is given; None is no limit.
    task: what each of them is.
    """

    count: int | None = None
    per_worker_max: int | None = None
    task: Task = Task()


Tasks = Union[int, Slots, Iterable[Union[Task, str]]]
Broadcast = Union[Mapping[str, Any], os.PathLike[str], bytes, str]


class RoundOptions(TypedDict, total=False):
    """The arguments of a round. What is left out is the server's default.

    outputs: what is returned and how it is combined: an operator (`sheaf.weighted_mean(..)`) for each name. Required.
    tasks: a number of interchangeable tasks, `sheaf.Slots(..)`, or a list of `sheaf.Task`s or data selectors (text).
        May be left out if there is a goal.
    broadcast: what all tasks receive: a mapping from names to arrays (or `sheaf.Sparse`), a `pathlib.Path` of a safetensors file,
        bytes, or the digest that `upload` returned.
    config: what the computation is told: anything that JSON can say, or bytes. At most 64 KiB.
    version_min: lowest version of the computation that understands `config`.
    numerics: the arithmetic: "exact" (the default), "f64" or "f32".
    goal: contributions that complete the round; all of its tasks if left out.
    min_goal: with so many it succeeds at its deadline; the goal if left out.
    over_selection: of a goal without a number of tasks: how many tasks there are for each contribution (1.3).
    deadline: the round ends after this time, in seconds (or a timedelta), whatever happens (one hour).
    attempt_deadline: one attempt at a task may take this long.
    announce_deadline: of a round that is announced: it fails if it is not opened within this time (one hour; of a loop, as
        long as the rounds before it may take).
    lease_duration: a worker without progress for this long loses its task (30 s).
    min_clients: release nothing unless at least so many clients are combined.
    priority: 1 (most urgent) to 5.
    failed_max: attempts at a task that failed, before it is given up (4).
    lost_max: attempts at a task whose worker vanished, before it is given up (16).
    straggler: what is done about attempts that take much longer than others of the round did: a mapping of the fields of
        `StragglerPolicy`, such as `dict(speculate=True)`, or `dict(deadline_factor=4)`. Durations are seconds.
    continues: id of a round whose tasks that still run when it has its goal go on in this one (see `buffered` of `Server.loop`).
    staleness: of a round that continues another, what it takes over: a mapping of the fields of `StalenessPolicy`, such as
        `dict(max=5)`: a task goes on through five rounds at most. `dict(function="polynomial", exponent=0.5)` multiplies
        the weight of a contribution by (1 + staleness)^-exponent; all means of the round must be weighted.
    durability: "durable" (the default), or "ephemeral": nothing individual ever reaches the server's disk.
    contribution_bytes_max: largest contribution.
    job: groups the rounds of one program; jobs of one priority take turns.
    population: another one than the connection's.
    """

    outputs: Required[Mapping[str, Output]]
    tasks: Tasks
    broadcast: Optional[Broadcast]
    config: Any
    version_min: int
    numerics: Literal["exact", "f64", "f32"]
    goal: int
    min_goal: int
    over_selection: float
    deadline: Seconds
    attempt_deadline: Seconds
    announce_deadline: Seconds
    lease_duration: Seconds
    min_clients: int
    priority: int
    failed_max: int
    lost_max: int
    straggler: Mapping[str, Any]
    continues: str
    staleness: Mapping[str, Any]
    durability: Literal["durable", "ephemeral"]
    contribution_bytes_max: int
    job: str
    population: str


def round_spec(computation: str, options: RoundOptions, population: str) -> round_pb2.RoundSpec:
    """The message, but for the broadcast, which is uploaded. InvalidArgument if an argument is of the wrong kind."""
    unknown = set(options) - set(RoundOptions.__annotations__)
    if unknown:
        raise TypeError(f"a round has no argument {', '.join(sorted(unknown))}; it has {', '.join(RoundOptions.__annotations__)}")
    if "outputs" not in options:
        raise TypeError("a round needs outputs: what is returned, and how it is combined")
    spec = round_pb2.RoundSpec(population=options.get("population") or population)
    spec.computation.name = computation
    spec.computation.version_min = options.get("version_min", 0)
    spec.computation.config = to_bytes(options.get("config"), "config")
    _set_outputs(spec.aggregate, options["outputs"], options.get("numerics", "exact"))
    _set_tasks(spec, options.get("tasks"), options.get("goal", 0))
    for name in ("job", "continues", "goal", "min_goal", "over_selection", "min_clients", "priority", "contribution_bytes_max"):
        if name in options:
            setattr(spec, name, options[name])  # type: ignore[literal-required]
    for name in ("deadline", "attempt_deadline", "announce_deadline", "lease_duration"):
        if name in options:
            seconds = seconds_of(options[name], name)  # type: ignore[literal-required]
            getattr(spec, name).FromNanoseconds(round(seconds * 1e9))
    for name in ("failed_max", "lost_max"):
        if name in options:
            setattr(spec.retry, name, options[name])  # type: ignore[literal-required]
    if "straggler" in options:
        _set_straggler(spec.straggler, options["straggler"])
    if "staleness" in options:
        _set_staleness(spec.staleness, options["staleness"])
    if "durability" in options:
        spec.durability = _choice(round_pb2.Durability, options["durability"], "durability")
    return spec


def _set_straggler(policy: round_pb2.StragglerPolicy, options: Mapping[str, Any]) -> None:
    fields = [field.name for field in policy.DESCRIPTOR.fields]
    unknown = set(options) - set(fields)
    if unknown:
        raise InvalidArgument(f"straggler has no {', '.join(sorted(unknown))}; it has {', '.join(fields)}")
    policy.SetInParent()
    for name, value in options.items():
        if name == "age_min":
            policy.age_min.FromNanoseconds(round(seconds_of(value, "straggler age_min") * 1e9))
            continue
        try:
            setattr(policy, name, value)
        except (TypeError, ValueError) as error:
            raise InvalidArgument(f"straggler {name}: {error}") from error


def _set_staleness(policy: round_pb2.StalenessPolicy, options: Mapping[str, Any]) -> None:
    fields = [field.name for field in policy.DESCRIPTOR.fields]
    unknown = set(options) - set(fields)
    if unknown:
        raise InvalidArgument(f"staleness has no {', '.join(sorted(unknown))}; it has {', '.join(fields)}")
    policy.SetInParent()
    for name, value in options.items():
        if name == "function":
            policy.function = _choice(round_pb2.StalenessFunction, value, "staleness function")
            continue
        try:
            setattr(policy, name, value)
        except (TypeError, ValueError) as error:
            raise InvalidArgument(f"staleness {name}: {error}") from error


def output_spec(name: str, output: Output) -> aggregation_pb2.OutputSpec:
    """The message for one output."""
    if not isinstance(output, Output):
        raise InvalidArgument(f"output {name!r} is a {type(output).__name__}, and not an operator such as "
                              "sheaf.weighted_mean(shape=())")
    spec = aggregation_pb2.OutputSpec(
        name=name, operator=output.operator, dtype=tensor_pb2.DType.Value(PROTOCOL_NAMES[output.dtype]),
        dense_shape=output.shape, index_dims=output.index_dims, min_contributors=output.min_contributors,
        drop_zeros=output.drop_zeros, nnz_max=output.nnz_max,
    )
    if output.key_type:
        spec.key_type = aggregation_pb2.KeyType.Value(output.key_type)
    if output.form:
        spec.form = _choice(aggregation_pb2.OutputForm, output.form, "form")
    if output.non_finite != "reject":
        spec.non_finite = _choice(aggregation_pb2.NonFinitePolicy, output.non_finite, "non_finite", "_non_finite")
    return spec


def _set_outputs(aggregate: aggregation_pb2.AggregateSpec, outputs: Mapping[str, Output], numerics: str) -> None:
    if not isinstance(outputs, Mapping):
        raise InvalidArgument("outputs is a mapping from names to operators, such as {\"age\": sheaf.weighted_mean(shape=())}")
    for name, output in outputs.items():
        whole, _, part = name.rpartition(".")
        if part == "indices" and output.operand == "dense" and f"{whole}.values" in outputs:
            raise InvalidArgument(
                f"outputs {name!r} and '{whole}.values' are the parts of one sparse tensor, and would be combined one by one, "
                f"which gives wrong sums without an error: declare {whole!r} with a sparse operator, such as sheaf.sparse_sum"
            )
        aggregate.outputs.append(output_spec(name, output))
    aggregate.numerics = _choice(aggregation_pb2.Numerics, numerics, "numerics")


def _set_tasks(spec: round_pb2.RoundSpec, tasks: Tasks | None, goal: int) -> None:
    if tasks is None and not goal:
        raise InvalidArgument("a round needs tasks, or a goal: how many contributions complete it")
    if tasks is None or (isinstance(tasks, (int, numpy.integer)) and not isinstance(tasks, bool)):
        tasks = Slots(None if tasks is None else int(tasks))
    if isinstance(tasks, Slots):
        if tasks.count is not None and tasks.count < 1:
            raise InvalidArgument(f"a round of {tasks.count} tasks has nothing to do")
        spec.open_slots.count = tasks.count or 0
        spec.open_slots.per_worker_max = tasks.per_worker_max or 0
        spec.open_slots.task.CopyFrom(_task_spec(tasks.task))
        return
    if isinstance(tasks, (str, bytes)) or not isinstance(tasks, Iterable):
        raise InvalidArgument("tasks is a number, or a list of sheaf.Task or of data selectors")
    spec.listed.CopyFrom(_listed(tasks))
    if not spec.listed.tasks:
        raise InvalidArgument("a round without tasks has nothing to do")


def _listed(tasks: Iterable[Task | str]) -> round_pb2.ListedTasks:
    return round_pb2.ListedTasks(
        tasks=[_task_spec(task if isinstance(task, Task) else Task(data_selector=task)) for task in tasks])


def _task_spec(task: Task) -> task_pb2.TaskSpec:
    if not isinstance(task.data_selector, str):
        raise InvalidArgument(f"a task is a sheaf.Task or a data selector (text), and not a {type(task.data_selector).__name__}")
    return task_pb2.TaskSpec(payload=_payload_of(task), data_selector=task.data_selector, requirements=task.requires)


def _payload_of(task: Task) -> bytes:
    if task.tasks is None:
        return to_bytes(task.payload, "payload")
    if task.payload is not None:
        raise InvalidArgument("a task that stands for others has no payload of its own: give each of them one")
    if isinstance(task.tasks, (str, bytes)) or not isinstance(task.tasks, Iterable):
        raise InvalidArgument("a task stands for a list of sheaf.Task or of data selectors")
    listed = _listed(task.tasks)
    if not listed.tasks:
        raise InvalidArgument("a task stands for no others: leave its tasks out, or list one at least")
    # The same tasks are the same bytes, so that the same round may be asked for again.
    payload: bytes = listed.SerializeToString(deterministic=True)
    return payload


def to_bytes(value: Any, what: str) -> bytes:
    """A config or payload on the wire: bytes as they are, nothing for None, else JSON."""
    if value is None:
        return b""
    if isinstance(value, (bytes, bytearray, memoryview)):
        return bytes(value)
    try:
        return json.dumps(value, default=_plain, allow_nan=False, separators=(",", ":")).encode()
    except (TypeError, ValueError) as error:
        raise InvalidArgument(f"{what} is neither bytes nor what JSON can say: {error}") from None


def _plain(value: Any) -> Any:
    if isinstance(value, numpy.generic):
        return value.item()
    if isinstance(value, numpy.ndarray):
        return value.tolist()
    raise TypeError(f"a {type(value).__name__} has no form in JSON")


def seconds_of(value: Seconds, what: str) -> float:
    """A length of time in seconds. InvalidArgument, naming what it is of, if it is none."""
    seconds = value.total_seconds() if isinstance(value, datetime.timedelta) else float(value)
    if not 0 < seconds < 1e10:
        raise InvalidArgument(f"{what} is a positive number of seconds, and not {value}")
    return seconds


def _choice(enum: Any, value: str, what: str, suffix: str = "") -> Any:
    choices = [name.lower().removesuffix(suffix) for name in enum.keys() if not name.endswith("_UNSPECIFIED")]
    if str(value).lower() not in choices:
        raise InvalidArgument(f"{what} is {' or '.join(map(repr, choices))}, and not {value!r}")
    return enum.Value(f"{value}{suffix}".upper())
