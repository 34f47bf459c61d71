"""Rounds that are announced before their broadcast is known, and loops that announce them ahead."""

import asyncio
import contextlib
import pathlib
import sys
import time

import numpy
import pytest

import sheaf
import sheaf.aio
from sheaf.calls import CREATE_ROUND, METHODS

N = {"n": sheaf.sum(())}
W = {"w": sheaf.sum(3)}


def add_one(task):
    return {"w": task.params["w"] + 1}


def states(server, job):
    return [round.state for round in server.rounds(job=job)][::-1]


def test_an_announced_round_is_opened_with_its_broadcast(server, offer):
    offer(add_one=add_one)
    round = server.announce("add_one", outputs=W, tasks=2, announce_deadline=60)
    assert round.state == "ANNOUNCED" and not round.has_ended and "waits for its broadcast" in round.explain()
    w = numpy.float64([1, 2, 3])
    opened = round.open({"w": w})
    assert opened is round and round.state in ("COLLECTING", "SEALING", "SUCCEEDED")
    assert round.result()["w"].tolist() == [4, 6, 8]
    # Asking again, as somebody does who has not heard the answer.
    assert round.open({"w": w}).state == "SUCCEEDED"


def test_a_broadcast_of_any_kind_opens_a_round(server, offer, tmp_path):
    offer(add_one=add_one, one=lambda task: {"n": 1.0})
    w = numpy.zeros(3)
    sheaf.safetensors.write(tmp_path / "w.safetensors", {"w": w})
    large = {"w": w, "more": numpy.random.default_rng(1).random(200_000)}
    for broadcast in (tmp_path / "w.safetensors", (tmp_path / "w.safetensors").read_bytes(), server.upload({"w": w}), large):
        assert server.announce("add_one", outputs=W, tasks=1).open(broadcast).result()["w"].tolist() == [1, 1, 1]
    assert server.announce("one", outputs=N, tasks=1).open().result()["n"] == 1


def test_what_cannot_be_opened_says_why(server, offer):
    offer(add_one=add_one)
    w, other = {"w": numpy.zeros(3)}, {"w": numpy.ones(3)}
    round = server.announce("add_one", outputs=W, tasks=1).open(w)
    with pytest.raises(sheaf.FailedPrecondition, match="was opened with the broadcast [0-9a-f]{64}, and cannot be opened with another"):
        round.open(other)
    round.result()
    with pytest.raises(sheaf.FailedPrecondition, match="cannot be opened with another"):
        round.open(other)
    with pytest.raises(sheaf.FailedPrecondition, match="was not announced: it was open from its creation on"):
        server.create("nobody", outputs=N, tasks=1).open(w)
    late = server.announce("nobody", outputs=N, tasks=1, announce_deadline=0.05)
    late.wait()
    with pytest.raises(sheaf.FailedPrecondition, match="is FAILED.*cannot be opened any more"):
        late.open(w)
    cancelled = server.announce("nobody", outputs=N, tasks=1).cancel("enough")
    with pytest.raises(sheaf.FailedPrecondition, match="is CANCELLED, enough: it cannot be opened any more"):
        cancelled.open(w)
    with pytest.raises(sheaf.NotFound):
        server.announce("nobody", outputs=N, tasks=1).open("0" * 64)
    with pytest.raises(sheaf.InvalidArgument, match="comes when it is opened: round.open"):
        server.announce("add_one", outputs=W, tasks=1, broadcast=w)
    with pytest.raises(sheaf.InvalidArgument, match="announce_deadline is for announced rounds"):
        server.create("add_one", outputs=W, tasks=1, announce_deadline=1)


@pytest.mark.parametrize("ahead", [0, 1, 4])
def test_a_loop_gives_the_same_values_however_many_rounds_are_ahead(server, offer, ahead):
    offer(add_one=add_one)
    w = numpy.zeros(3)
    seen = []
    for result in server.loop("add_one", rounds=6, ahead=ahead, outputs=W, tasks=1, broadcast=lambda: {"w": w}):
        w = w + result["w"]
        seen.append(w[0])
    assert seen == [1, 3, 7, 15, 31, 63]


def test_options_are_asked_for_ahead_and_the_broadcast_when_the_round_before_was_applied(server, offer, request):
    offer(add_one=add_one)
    job, asked, w = f"asked-{time.monotonic_ns()}", [], numpy.zeros(3)

    def tasks():
        asked.append("tasks")
        return 1

    def broadcast():
        asked.append(f"broadcast {w[0]:g}")
        return {"w": w}

    def apply(result):
        asked.append("apply")
        w[:] = result["w"]

    for result in server.loop("add_one", rounds=3, ahead=1, apply=apply, outputs=W, tasks=tasks, broadcast=broadcast, job=job):
        asked.append("body")
        assert len([state for state in states(server, job) if state == "ANNOUNCED"]) <= 1
        # The next one runs already.
        assert states(server, job).count("SUCCEEDED") >= 1 and len(states(server, job)) == min(3, w[0] + 2)
    assert asked == ["tasks", "broadcast 0", "tasks", "apply", "broadcast 1", "tasks", "body", "apply", "broadcast 2", "body",
                     "apply", "body"]
    assert states(server, job) == ["SUCCEEDED"] * 3


def test_a_buffered_loop_takes_what_slow_workers_bring_into_a_later_round(server, offer):
    def slow(task):
        time.sleep(0.7)
        return {"n": 100.0}

    def fast(task):
        time.sleep(0.05)
        return {"n": 1.0}

    for function in (slow, fast, fast):
        offer(uneven=function)
    results, tasks = [], sheaf.Slots(3, per_worker_max=1)
    for result in server.loop("uneven", buffered=True, outputs=N, tasks=tasks, goal=2, staleness={"max": 100}):
        results.append(result)
        if result["n"] >= 100:
            break
        assert len(results) < 100, "what the slow one brings is lost"
    # It counts once, in the round that was there when it came; its worker knows nothing of it.
    assert [result["n"] >= 100 for result in results] == [False] * (len(results) - 1) + [True] and len(results) > 1
    assert all(result.num_contributions >= 2 for result in results)
    staleness = results[-1].round.contributions_by_staleness
    assert max(staleness) == len(results) - 1 and sum(staleness.values()) == results[-1].num_contributions
    assert results[0].round.contributions_by_staleness == {}
    with pytest.raises(sheaf.InvalidArgument, match="staleness has no least; it has function, exponent, max"):
        server.create("uneven", outputs=N, tasks=1, staleness={"least": 1})
    with pytest.raises(sheaf.NotFound, match="spec.continues names round r-none"):
        server.create("uneven", outputs=N, tasks=1, continues="r-none")


def test_a_loop_that_is_left_cancels_what_it_began_ahead(server, offer):
    offer(add_one=add_one)
    for apply, num_left in ((None, 3), (lambda result: None, 4)):
        job = f"left-{time.monotonic_ns()}"
        for result in server.loop("add_one", ahead=3, apply=apply, outputs=W, tasks=1, broadcast={"w": numpy.zeros(3)}, job=job):
            break
        # The one that was opened while the body ran may have come to its end.
        ended = states(server, job)
        assert ended[0] == "SUCCEEDED" and len(ended) == 1 + num_left and ended[2:] == ["CANCELLED"] * (num_left - 1)
        assert ended[1] in ("CANCELLED",) if apply is None else ended[1] in ("CANCELLED", "SUCCEEDED", "SEALING")


def test_a_loop_in_which_something_is_raised_cancels_what_it_began_ahead_and_says_in_which_round(server, offer):
    def fail(task):
        if task.params["number"] == 2:
            raise sheaf.WrongTask("no")
        return {"n": 1.0}

    offer(fail=fail)
    job, number = f"raised-{time.monotonic_ns()}", iter(range(1, 9))
    with pytest.raises(sheaf.RoundFailed) as raised:
        list(server.loop("fail", rounds=9, ahead=2, outputs=N, tasks=1, broadcast=lambda: {"number": next(number)}, job=job))
    assert "in round 2 of 9 of the loop" in raised.value.__notes__
    assert states(server, job) == ["SUCCEEDED", "FAILED", "CANCELLED", "CANCELLED"]

    def broadcast():
        raise ZeroDivisionError("no model")

    with pytest.raises(ZeroDivisionError) as failed:
        next(server.loop("fail", rounds=2, ahead=1, outputs=N, tasks=1, broadcast=broadcast))
    assert failed.value.__notes__ == ["in round 1 of 2 of the loop"]
    with pytest.raises(sheaf.InvalidArgument, match="announces 0 or more rounds ahead, and not -1"):
        next(server.loop("fail", ahead=-1, outputs=N, tasks=1))


def test_a_server_that_does_not_know_announced_rounds_is_told_from_one_that_does(server, monkeypatch):
    job, run = f"old-{time.monotonic_ns()}", server._connection.channel.call

    def as_an_old_server(method, request, attempt):
        if method is CREATE_ROUND:
            request.spec.announced = False
        return run(method, request, attempt)

    monkeypatch.setattr(server._connection.channel, "call", as_an_old_server)
    with pytest.raises(sheaf.Unimplemented, match="older than announced rounds"):
        server.announce("nobody", outputs=N, tasks=1, job=job)
    assert states(server, job) == ["CANCELLED"]


def test_a_small_round_that_is_announced_takes_no_calls_but_to_announce_to_open_and_to_wait(server, offer, monkeypatch):
    offer(add_one=add_one)
    made, channel = set(), server._connection.channel
    for name in ("call", "begin"):
        function = getattr(channel, name)
        monkeypatch.setattr(channel, name, lambda method, *more, _function=function: made.add(method.path.rpartition("/")[2]) or _function(method, *more))
    for _ in server.loop("add_one", rounds=3, ahead=1, outputs=W, tasks=1, broadcast={"w": numpy.zeros(3)}):
        pass
    assert made == {"CreateRound", "OpenRound", "GetRound"} and len(METHODS) > len(made)


def test_rounds_are_announced_and_looped_over_in_an_event_loop(address, offer):
    offer(add_one=add_one)

    async def program():
        async with sheaf.aio.connect(address) as server:
            round = await server.announce("add_one", outputs=W, tasks=1)
            assert round.state == "ANNOUNCED"
            assert (await (await round.open({"w": numpy.zeros(3)})).result())["w"].tolist() == [1, 1, 1]
            job, w = f"aio-ahead-{time.monotonic_ns()}", numpy.zeros(3)

            def apply(result):
                w[:] = result["w"]

            async with contextlib.aclosing(server.loop("add_one", ahead=2, apply=apply, outputs=W, tasks=1,
                                                       broadcast=lambda: {"w": w}, job=job)) as results:
                async for result in results:
                    if w[0] == 4:
                        break
            seen = [each.state async for each in server.rounds(job=job)][::-1]
            assert seen[:4] == ["SUCCEEDED"] * 4 and seen[5:] == ["CANCELLED"] * 2

    asyncio.run(program())


SLEEPER = """
import time, pathlib, sheaf

@sheaf.computation
def slow_to_read(task):
    with open(task.data / task.round, "a") as log:
        log.write("read\\n")
        log.flush()
        w = task.params["w"]
        log.write("run\\n")
    return {"w": w + 1}

sheaf.work()
"""


def test_a_resident_program_reads_its_data_before_the_round_opens(tmp_path):
    (tmp_path / "worker.py").write_text(SLEEPER)
    notes = tmp_path / "notes"
    notes.mkdir()
    with sheaf.local(workers=1, serve={"slow_to_read": [sys.executable, str(tmp_path / "worker.py")]}, data={"notes": notes},
                     prepare_ahead=1) as server:
        round = server.announce("slow_to_read", outputs=W, tasks=1)
        give_up_at = time.monotonic() + 30
        while not (notes / round.id).exists() or (notes / round.id).read_text() != "read\n":
            assert time.monotonic() < give_up_at, "nobody prepares"
            time.sleep(0.01)
        assert round.refresh().state == "ANNOUNCED"
        assert round.open({"w": numpy.zeros(3)}).result()["w"].tolist() == [1, 1, 1]
        assert (notes / round.id).read_text() == "read\nrun\n"
        # Without that, nobody begins.
    with sheaf.local(workers=1, serve={"slow_to_read": [sys.executable, str(tmp_path / "worker.py")]}, data={"notes": notes},
                     prepare_ahead=0) as server:
        round = server.announce("slow_to_read", outputs=W, tasks=1)
        time.sleep(0.3)
        assert not (notes / round.id).exists()
        assert round.open({"w": numpy.zeros(3)}).result()["w"].tolist() == [1, 1, 1]
