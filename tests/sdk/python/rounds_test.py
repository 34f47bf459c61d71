"""Rounds from a program's side, on a real server."""

import datetime
import inspect
import io
import pathlib
import os
import signal
import sys
import threading
import time

import numpy
import pytest

import sheaf
from conftest import Sheafd
from sheaf.round_spec import RoundOptions, round_spec
from sheaf.round_view import RoundView
from sheaf.v1 import round_pb2

N = {"n": sheaf.sum(())}


def test_a_round_runs_from_its_broadcast_to_its_result(server, offer):
    def train(task):
        rows = task.rows("table", [3, 1])
        assert task.config == {"rate": 0.5} and task.min_clients == 2
        return sheaf.Update({"w": task.params["w"] * task.payload, "table": sheaf.Sparse([3, 1], rows, (5, 2)),
                             "words": {"a": 1, task.data_selector: 2}}, weight=task.payload, loss=task.payload)

    offer(train=train)
    table = numpy.arange(10.0).reshape(5, 2)
    result = server.run(
        "train", broadcast={"w": numpy.float32([1, 2]), "table": table}, config={"rate": 0.5}, min_clients=2,
        tasks=[sheaf.Task(1, "client:1"), sheaf.Task(3, "client:2")],
        outputs={"w": sheaf.weighted_mean(2, "float32"), "table": sheaf.coordinate_mean((5, 2), index_dims=1),
                 "words": sheaf.keyed_sum(str, dtype="int64")})
    assert list(result) == ["w", "table", "words"] and result["w"].tolist() == [2.5, 5.0]
    assert result["table"].rows.tolist() == [1, 3] and numpy.array_equal(result["table"].values, table[[1, 3]])
    assert dict(result["words"]) == {"a": 2, "client:1": 2, "client:2": 2}
    assert result.num_clients == result.num_contributions == 2 and result.metrics == {"loss": 2.0}
    assert result.summaries["w"] == sheaf.Summary("weight of all contributions", 4.0, 2, 2)
    assert result.summaries["table"].touched == 2
    assert set(result.phases) == {"wait", "download", "prepare", "compute", "upload", "fold", "commit"}
    with pytest.raises(KeyError, match="has no output 'v'; it has w, table, words"):
        result["v"]


def test_a_small_round_takes_no_calls_but_to_create_it_and_to_wait(server, offer, monkeypatch):
    offer(double=lambda task: {"w": 2 * task.params["w"]})
    made, channel = [], server._connection.channel
    for name in ("call", "begin"):
        function = getattr(channel, name)
        monkeypatch.setattr(channel, name, lambda method, *more, _function=function: made.append(method.path) or _function(method, *more))
    for size in (5, 1 << 16):
        w = numpy.arange(float(size))
        assert (server.run("double", outputs={"w": sheaf.sum(size)}, tasks=1, broadcast={"w": w})["w"] == 2 * w).all()
    assert made[0] == "/sheaf.v1.RoundService/CreateRound" and set(made[1:]) == {made[0], "/sheaf.v1.RoundService/GetRound"}


def test_the_values_of_a_result_are_views_of_what_was_read(server, offer):
    offer(ones=lambda task: {"w": numpy.ones(1000), "s": sheaf.Sparse([[3]], [1.0], (9,))})
    result = server.run("ones", outputs={"w": sheaf.sum(1000), "s": sheaf.sparse_sum(9)}, tasks=1)
    assert not result["w"].flags.owndata and not result["s"].values.flags.owndata
    assert result["w"] is result["w"]


def test_a_result_is_kept_as_the_file_that_it_was(server, offer, tmp_path):
    offer(one=lambda task: {"n": 1.0})
    server.run("one", outputs=N, tasks=1).save(tmp_path / "n.safetensors")
    assert sheaf.safetensors.open_file(tmp_path / "n.safetensors")["n"] == 1


def test_tasks_are_a_number_slots_a_goal_or_a_list(server, offer):
    offer(one=lambda task: {"n": 1.0})
    assert server.run("one", outputs=N, tasks=numpy.int64(3))["n"] == 3
    assert server.run("one", outputs=N, tasks=["a", "b"])["n"] == 2
    assert server.run("one", outputs=N, tasks=sheaf.Slots(2, per_worker_max=2, task=sheaf.Task({"x": 1})))["n"] == 2
    assert server.run("one", outputs=N, goal=2, over_selection=2.0)["n"] == 2
    assert server.run("one", outputs=N, tasks=(sheaf.Task(number) for number in range(4)))["n"] == 4


@pytest.mark.parametrize("because, options", [
    ("needs tasks, or a goal", {}), ("has nothing to do", {"tasks": 0}), ("has nothing to do", {"tasks": []}),
    ("tasks is a number, or a list", {"tasks": "client:1"}), ("tasks is a number, or a list", {"tasks": True}),
    ("a task is a sheaf.Task or a data selector", {"tasks": [1]}),
    ("deadline is a positive number of seconds", {"tasks": 1, "deadline": -1}),
    ("numerics is 'exact' or 'f64' or 'f32'", {"tasks": 1, "numerics": "f16"}),
    ("config is neither bytes nor what JSON can say", {"tasks": 1, "config": object()}),
    ("a broadcast is a mapping", {"tasks": 1, "broadcast": "not a digest"}),
    ("the parts of one sparse tensor", {"tasks": 1, "outputs": {"w.indices": sheaf.sum(2), "w.values": sheaf.sum(2)}}),
    ("outputs is a mapping", {"tasks": 1, "outputs": [sheaf.sum(2)]}),
])
def test_arguments_that_are_no_round_are_refused_before_anything_is_sent(server, because, options):
    with pytest.raises(sheaf.InvalidArgument, match=because):
        server.create("one", **{"outputs": N, **options})


def test_an_argument_that_a_round_does_not_have_is_named():
    with pytest.raises(TypeError, match="a round has no argument task; it has outputs, tasks"):
        round_spec("one", {"outputs": N, "task": 1}, "default")
    with pytest.raises(TypeError, match="a round needs outputs"):
        round_spec("one", {"tasks": 1}, "default")
    with pytest.raises(sheaf.InvalidArgument, match="straggler has no factr; it has speculate, .*factor"):
        round_spec("one", {"outputs": N, "tasks": 1, "straggler": {"factr": 2}}, "default")
    with pytest.raises(sheaf.InvalidArgument, match="staleness function is 'constant' or 'polynomial', and not 'linear'"):
        round_spec("one", {"outputs": N, "tasks": 1, "staleness": {"function": "linear"}}, "default")
    with pytest.raises(sheaf.InvalidArgument, match="staleness max: "):
        round_spec("one", {"outputs": N, "tasks": 1, "staleness": {"max": "much"}}, "default")
    with pytest.raises(sheaf.InvalidArgument, match="straggler factor: "):
        round_spec("one", {"outputs": N, "tasks": 1, "straggler": {"factor": "much"}}, "default")


def test_all_of_a_round_can_be_said():
    options = {
        "outputs": N, "tasks": sheaf.Slots(9, 2, sheaf.Task("p", "d", {"gpu": "yes"})), "broadcast": "00", "config": b"c",
        "version_min": 2, "numerics": "f64", "goal": 8, "min_goal": 7, "over_selection": 1.5, "deadline": 60,
        "attempt_deadline": datetime.timedelta(seconds=1.5), "announce_deadline": 30, "lease_duration": 2.5, "min_clients": 3, "priority": 1,
        "failed_max": 5, "lost_max": 6, "durability": "ephemeral", "contribution_bytes_max": 1000, "job": "j",
        "population": "p", "straggler": {"speculate": True, "factor": 2.5, "age_min": datetime.timedelta(seconds=2)},
        "continues": "r-before", "staleness": {"function": "constant", "max": 5},
    }
    assert set(options) == set(RoundOptions.__annotations__)
    spec = round_spec("one", options, "default")
    spec.broadcast_digest = "00"
    # The listed tasks are the other way to say what there is to do.
    unset = {field.name for field in spec.DESCRIPTOR.fields} - {field.name for field, _ in spec.ListFields()}
    # Tasks are slots here; only relays ask for partial aggregates; and `announce` announces.
    assert unset == {"listed", "release", "announced"}
    assert spec.straggler.speculate and spec.straggler.factor == 2.5 and spec.straggler.age_min.seconds == 2
    assert spec.continues == "r-before" and spec.staleness.max == 5
    assert spec.attempt_deadline.ToMilliseconds() == 1500 and spec.open_slots.task.payload == b'"p"'


def test_a_round_is_created_looked_at_cancelled_and_found_again(server):
    round = server.create("nobody_offers_this", outputs=N, tasks=2, job="a_job")
    assert round.state == "COLLECTING" and not round.has_ended and round.job == "a_job" and round.goal == 2
    assert round.tasks["queued"] == 2 and round.num_clients == 0 and "nobody_offers_this" in repr(round)
    assert server.round(round.id).refresh().id == round.id
    assert "waits for 2 contributions" in round.explain()
    with pytest.raises(sheaf.DeadlineExceeded, match="has not ended within 0.05 s; it goes on") as raised:
        round.wait(timeout=0.05)
    assert "waits again, .cancel() ends it" in raised.value.__notes__[0]
    assert round.cancel("enough").state == "CANCELLED" and round.error == "enough"
    with pytest.raises(sheaf.RoundFailed, match=f"round {round.id} was cancelled: enough") as raised:
        round.result()
    assert (raised.value.round, raised.value.state) == (round.id, "CANCELLED")


def test_a_round_that_fails_says_why(server, offer):
    def fail(task):
        raise sheaf.WrongTask("no")

    offer(fail=fail)
    with pytest.raises(sheaf.RoundFailed, match="failed: 1 of 1 tasks"):
        server.run("fail", outputs=N, tasks=1)


def test_a_round_that_nothing_can_end_but_its_deadline_is_said_to_be_stuck(server, offer):
    def fail(task):
        raise ValueError("no")

    offer(fail=fail)
    with pytest.raises(sheaf.RoundStuck, match="(?s)is stuck: 1 of its tasks failed as often as it allows. Round .*ValueError") as raised:
        server.run("fail", outputs=N, tasks=1, failed_max=1, deadline=60)
    assert raised.value.state == "COLLECTING"
    server.round(raised.value.round).cancel()


def test_rounds_are_listed_page_by_page(sheafd, offer):
    with sheaf.connect(sheafd.address, population="listing") as server:
        ids = [server.create("one", outputs=N, tasks=1, job=f"j{number % 2}").id for number in range(205)]
        assert [round.id for round in server.rounds()] == ids[::-1]
        assert [round.id for round in server.rounds(job="j1")] == ids[1::2][::-1]
        server.round(ids[3]).cancel()
        assert [round.id for round in server.rounds(state="cancelled")] == [ids[3]]
        assert list(server.rounds(state=["SUCCEEDED", "FAILED"])) == []
        with pytest.raises(sheaf.InvalidArgument, match="there is no state 'DONE' of rounds"):
            next(server.rounds(state="done"))
        for round in server.rounds(state="collecting"):
            round.cancel()


def test_a_loop_makes_each_round_from_what_the_last_one_released(server, offer):
    offer(double=lambda task: {"w": task.params["w"]})
    w = numpy.float64([1, 10])
    rounds = []
    for result in server.loop("double", rounds=4, outputs={"w": sheaf.sum(2)}, tasks=1, broadcast=lambda: {"w": w}):
        w += result["w"]
        rounds.append(result.round.id)
    assert w.tolist() == [16, 160] and len(set(rounds)) == 4


def test_an_error_in_a_loop_says_in_which_round(server):
    with pytest.raises(ZeroDivisionError) as raised:
        list(server.loop("one", rounds=3, outputs=N, tasks=lambda: 1 // 0))
    assert raised.value.__notes__ == ["in round 1 of 3 of the loop"]


def test_ctrl_c_cancels_nothing_and_says_so(server):
    round = server.create("nobody_offers_this", outputs=N, tasks=1)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    # To the process, as a terminal does it: the system gives it to the thread that waits.
    threading.Timer(0.3, os.kill, [os.getpid(), signal.SIGINT]).start()
    try:
        with pytest.raises(KeyboardInterrupt) as raised:
            round.result()
    finally:
        signal.signal(signal.SIGINT, before)
    assert f"round {round.id} goes on at the server" in raised.value.__notes__[0]
    assert round.refresh().state == "COLLECTING"
    round.cancel()


def test_a_bar_shows_how_far_a_round_is(server, offer, monkeypatch):
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    gate = threading.Event()

    def slow(task):
        if task.payload:
            gate.wait(20)
        return {"n": 1.0}

    offer(slow=slow), offer(slow=slow)
    round = server.create("slow", outputs=N, tasks=[sheaf.Task(0), sheaf.Task(1)])
    threading.Timer(0.6, gate.set).start()
    round.wait(progress=True)
    assert round.id in sys.stderr.getvalue() and "/2" in sys.stderr.getvalue()


@pytest.mark.parametrize("wire", ["grpc", "http"])
def test_a_program_outlives_a_restart_of_its_server(wire, tmp_path, offer):
    sheafd = Sheafd(tmp_path)
    address = sheafd.address if wire == "grpc" else sheafd.url()
    try:
        offer(sheafd.address, one=lambda task: {"n": 1.0})
        with sheaf.connect(address) as server:
            assert server.run("one", outputs=N, tasks=1)["n"] == 1
            round = server.create("late", outputs=N, tasks=1)
            ended = []
            waiting = threading.Thread(target=lambda: ended.append(round.result(timeout=25)))
            waiting.start()
            time.sleep(0.2)
            sheafd.kill()
            time.sleep(0.5)
            sheafd.start()
            begin = time.monotonic()
            offer(sheafd.address, late=lambda task: {"n": 2.0})
            waiting.join()
            assert ended[0]["n"] == 2
            assert server.run("one", outputs=N, tasks=1)["n"] == 1
            print(f"back {time.monotonic() - begin:.1f} s after the server")
            sheafd.kill()
            with sheaf.connect(address, seconds=1) as impatient, pytest.raises(sheaf.Unavailable, match="cannot be reached"):
                impatient.round(round.id)
    finally:
        sheafd.kill()


@pytest.mark.parametrize("nowhere", ["127.0.0.1:1", "http://127.0.0.1:1", "https://127.0.0.1:1"])
def test_a_server_that_is_not_there_is_named_within_seconds(nowhere):
    begin = time.monotonic()
    with sheaf.connect(nowhere) as server, pytest.raises(sheaf.Unavailable, match=f"the server at {nowhere} cannot be"):
        server.info()
    assert time.monotonic() - begin < 6


def test_errors_are_the_servers_sentences(server):
    with pytest.raises(sheaf.NotFound, match="^there is no round r-aaaaaaaa$"):
        server.round("r-aaaaaaaa")
    with pytest.raises(sheaf.InvalidArgument, match="a mean of integers is not an integer"):
        server.create("one", outputs={"n": sheaf.mean((), "int64")}, tasks=1)
    with pytest.raises(sheaf.NotFound, match="was not uploaded"):
        server.create("one", outputs=N, tasks=1, broadcast="0" * 64)
    for each in vars(sheaf.errors).values():
        if inspect.isclass(each) and issubclass(each, sheaf.Error):
            assert each.__doc__ and each.code


def test_a_view_of_a_round_says_what_its_message_does():
    message = round_pb2.Round(id="r-1", state=round_pb2.FAILED, error="why")
    message.phases.wait.FromMilliseconds(1500)
    view = RoundView(message)
    assert view.has_ended and view.error == "why" and view.phases["wait"] == 1.5


def test_the_info_of_a_server_has_its_limits(server):
    assert server.info().limits["tasks_per_round_max"] > 0 and repr(server) == f"<sheaf.Server at {server.address}>"
    assert pathlib.Path(sheaf.__file__).with_name("py.typed").exists()
