"""Tasks that stand for others: relays pass them on, and each client is counted once."""

import contextlib
import subprocess

import pytest

import sheaf
from sheaf.local_federation import find_binary
from sheaf.round_spec import round_spec
from sheaf.v1 import round_pb2

OUTPUTS = {"letters": sheaf.sum(shape=(), dtype="int64"), "names": sheaf.keyed_sum(str, dtype="int64")}


@sheaf.computation
def measure(task):
    name = task.payload["name"]
    return {"letters": len(name), "names": {name: 1}}


@contextlib.contextmanager
def relay(above, below, *options):
    process = subprocess.Popen([find_binary("sheaf-worker"), "--server", above.address, "--relay", below.address, *options])
    try:
        yield
    finally:
        process.terminate()
        assert process.wait(30) == 0


def test_the_clients_of_two_edges_are_each_counted_once():
    names = ["ann", "berta", "cleo", "dora", "emil"]
    with (sheaf.local(workers=1, computations=[measure]) as north, sheaf.local(workers=2, computations=[measure]) as south,
          sheaf.local(workers=1, computations=[measure]) as root,
          relay(root, north, "--label", "site=north"), relay(root, south, "--label", "site=south")):
        tasks = [sheaf.Task({"name": name}) for name in names]
        result = root.run("measure", outputs=OUTPUTS, tasks=[
            sheaf.Task(tasks=tasks[:2], requires={"site": "north"}), sheaf.Task(tasks=tasks[2:], requires={"site": "south"})])
        assert result["letters"] == sum(map(len, names))
        assert dict(result["names"]) == dict.fromkeys(names, 1)
        assert (result.num_contributions, result.num_clients) == (2, 5)


def test_a_task_stands_for_others_as_the_payload_of_one():
    inner = [sheaf.Task({"b": 1}, requires={"y": "2", "x": "1"}), "client:7"]
    spec = round_spec("measure", {"outputs": OUTPUTS, "tasks": [sheaf.Task(tasks=[sheaf.Task(tasks=iter(inner)), "client:8"])]}, "p")
    outer = round_pb2.ListedTasks.FromString(spec.listed.tasks[0].payload).tasks
    assert outer[1].data_selector == "client:8"
    innermost = round_pb2.ListedTasks.FromString(outer[0].payload).tasks
    assert innermost[0].payload == b'{"b":1}' and innermost[0].requirements == {"x": "1", "y": "2"}
    assert innermost[1].data_selector == "client:7"


@pytest.mark.parametrize("task, words", [
    (sheaf.Task(1, tasks=["client:1"]), "has no payload of its own"), (sheaf.Task(tasks=[]), "stands for no others"),
    (sheaf.Task(tasks="client:1"), "stands for a list"), (sheaf.Task(tasks=[3]), "not a int"),
])
def test_a_task_that_stands_for_others_wrongly_is_refused(task, words):
    with pytest.raises(sheaf.InvalidArgument, match=words):
        round_spec("measure", {"outputs": OUTPUTS, "tasks": [task]}, "p")
