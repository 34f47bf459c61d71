"""The same for asyncio."""

import asyncio
import inspect

import numpy
import pytest

import sheaf
import sheaf.aio
from sheaf.server import Round, Server

N = {"n": sheaf.sum(())}


def test_whatever_a_server_and_a_round_can_do_they_can_do_in_an_event_loop():
    for plain, awaited in ((Server, sheaf.aio.Server), (Round, sheaf.aio.Round)):
        names = [name for name, _ in inspect.getmembers(plain, inspect.isfunction) if not name.startswith("_")]
        for name in names:
            own, other = (inspect.signature(getattr(each, name)) for each in (plain, awaited))
            assert list(own.parameters.values()) == list(other.parameters.values()), name
            function = getattr(awaited, name)
            assert inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function), name
    assert inspect.signature(sheaf.connect).parameters == inspect.signature(sheaf.aio.connect).parameters


def test_rounds_run_beside_each_other_in_one_event_loop(address, offer):
    offer(double=lambda task: {"w": task.params["w"] * 2}), offer(one=lambda task: {"n": 1.0})

    async def program():
        async with sheaf.aio.connect(address) as server:
            results = await asyncio.gather(*(server.run("one", outputs=N, tasks=2) for _ in range(5)))
            assert [result["n"] for result in results] == [2] * 5
            w = numpy.ones(100_000)
            async for result in server.loop("double", rounds=3, outputs={"w": sheaf.sum(100_000)}, tasks=1,
                                            broadcast=lambda: {"w": w}):
                w = result["w"]
            assert (w == 8).all()
            job = f"aio-{address[:4]}"
            round = await server.create("nobody", outputs=N, tasks=1, job=job)
            assert (await server.round(round.id)).state == "COLLECTING"
            assert [each.id async for each in server.rounds(job=job)] == [round.id]
            assert "waits for 1 contribution" in await round.explain()
            with pytest.raises(sheaf.DeadlineExceeded):
                await round.wait(timeout=0.05)
            waiting = asyncio.ensure_future(round.wait())
            await asyncio.sleep(0.05)
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting
            assert (await round.refresh()).state == "COLLECTING"
            await round.cancel()
            with pytest.raises(sheaf.RoundFailed):
                await round.result()
            with pytest.raises(sheaf.NotFound):
                await server.round("r-aaaaaaaa")
            assert (await server.info()).version and repr(server) == f"<sheaf.aio.Server at {server.address}>"
            digest = await server.upload({"w": w})
            assert len(digest) == 64

    asyncio.run(program())


@pytest.mark.parametrize("nowhere", ["127.0.0.1:1", "http://127.0.0.1:1"])
def test_a_server_that_is_not_there_is_named_in_an_event_loop_too(nowhere):
    async def program():
        async with sheaf.aio.connect(nowhere) as server:
            with pytest.raises(sheaf.Unavailable, match=f"the server at {nowhere} cannot be reached"):
                await server.info()

    asyncio.run(program())
