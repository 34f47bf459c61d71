"""Broadcasts and results, through a real server."""

import asyncio
import functools
import hashlib
import pathlib

import numpy
import pytest

import sheaf
import sheaf.aio
from conftest import Sheafd


def test_a_broadcast_travels_once_from_memory_bytes_or_a_file(server, offer, tmp_path):
    offer(add=lambda task: {"n": float(task.params["w"].sum())})
    w = numpy.random.default_rng(2).integers(0, 9, 700_000).astype(float)
    path = tmp_path / "w.safetensors"
    sheaf.safetensors.write(path, {"w": w})
    digests = {server.upload(content) for content in ({"w": w}, path, path.read_bytes(), bytearray(path.read_bytes()))}
    assert digests == {hashlib.sha256(path.read_bytes()).hexdigest()}
    for broadcast in ({"w": w}, path, digests.pop()):
        assert server.run("add", outputs={"n": sheaf.sum(())}, tasks=1, broadcast=broadcast)["n"] == w.sum()
    with pytest.raises(sheaf.NotFound, match="cannot read"):
        server.upload(pathlib.Path("nowhere.safetensors"))
    with pytest.raises(sheaf.InvalidArgument, match="leaves a gap|lies outside|safetensors"):
        server.upload((10).to_bytes(8, "little") + b'{"w": {}} ' + bytes(3))


@pytest.mark.parametrize("wire", ["grpc", "http"])
def test_a_broadcast_and_a_result_of_a_hundred_megabytes_come_back_as_they_were(wire, tmp_path, offer):
    sheafd = Sheafd(tmp_path)
    try:
        with sheaf.connect(sheafd.address if wire == "grpc" else sheafd.url()) as server:
            w = numpy.random.default_rng(3).random(25_000_000, numpy.float32)
            digest = server.upload({"w": w})
            offer(sheafd.address, size=lambda task: {"w": sheaf.Sparse([24_999_999], [2.0], (25_000_000,))})
            result = server.run("size", outputs={"w": sheaf.sparse_sum_to_dense(25_000_000, "float32")}, tasks=1,
                                broadcast=digest)
            assert result["w"][-1] == 2 and result["w"].sum() == 2 and result["w"].nbytes == 100_000_000
    finally:
        sheafd.kill()


def test_an_upload_is_for_the_population_of_the_connection(address, monkeypatch):
    populations = []

    def noted(call, method, request, attempt):
        if method.path.endswith("/StartUpload"):
            populations.append(request.population)
        return call(method, request, attempt)

    with sheaf.connect(address, population="wards") as server:
        channel = server._connection.channel
        monkeypatch.setattr(channel, "call", functools.partial(noted, channel.call))
        server.upload({"w": numpy.zeros(3)})

    async def upload():
        async with sheaf.aio.connect(address, population="phones") as server:
            channel = server._connection.channel
            monkeypatch.setattr(channel, "call", functools.partial(noted, channel.call))
            await server.upload({"w": numpy.ones(3)})

    asyncio.run(upload())
    assert populations == ["wards", "phones"]
