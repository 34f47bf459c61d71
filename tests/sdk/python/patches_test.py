"""Loops over models of which a round changes some rows, on a real server: fewer bytes, and nothing else is different."""

import asyncio
import contextlib
import hashlib

import numpy
import pytest

import sheaf
import sheaf.aio
from sheaf import sent_broadcast
from sheaf.safetensors import Encoded

NUM_ROWS, WIDTH = 20_000, 64
ROUNDS = 4
# Of a broadcast, from the second round on.
SHARE_MAX = 0.05

WORKER = """
import hashlib
import numpy
import sheaf
from sheaf.safetensors import Encoded

@sheaf.computation
def look(task):
    '''What the broadcast looks like from here, whole and by rows.'''
    params = {name: task.params[name] for name in task.params}
    digest = hashlib.sha256(bytes(Encoded(params))).digest()
    rows = numpy.random.default_rng(task.seed).integers(0, len(params["table"]), 500)
    assert (task.rows("table", rows).view(numpy.uint32) == params["table"][rows].view(numpy.uint32)).all()
    return {"digest": numpy.frombuffer(digest, numpy.uint8).astype(numpy.int64)}
"""

TRAINED = """
import numpy
import sheaf
import sheaf.torch
import torch
from torch import nn
from torch.nn import functional

class Words(nn.Module):
    def __init__(self):
        super().__init__()
        self.words = nn.EmbeddingBag(20_000, 64, mode="mean")
        self.norm = nn.BatchNorm1d(64)
        self.out = nn.Linear(64, 8)

    def forward(self, words, offsets):
        return self.out(self.norm(self.words(words, offsets)))

@sheaf.computation
def train(task):
    torch.manual_seed(task.payload)
    rng = numpy.random.default_rng(task.payload)
    model = sheaf.torch.load(task, Words)
    optimizer = torch.optim.SGD(model.parameters(), 0.5)
    words = torch.from_numpy(rng.integers(0, 20_000, 120))
    optimizer.zero_grad()
    loss = functional.cross_entropy(model(words, torch.arange(0, 120, 6)), torch.from_numpy(rng.integers(0, 8, 20)))
    loss.backward()
    optimizer.step()
    return sheaf.torch.update(model, weight=20, loss=loss.item())
"""


def module_of(text, name, folder, monkeypatch):
    """A module of a file, as a program and its workers import it."""
    (folder / f"{name}.py").write_text(text)
    monkeypatch.syspath_prepend(str(folder))
    return __import__(name)


def count_bytes(server, monkeypatch):
    """What travels towards the server with broadcasts, call by call: names and bytes."""
    sent, channel = [], server._connection.channel

    def note(method, request):
        name = method.path.rpartition("/")[2]
        if name in ("StartUpload", "WriteChunk", "FinishUpload", "CreateRound", "OpenRound"):
            sent.append((name, len(request.SerializeToString())))

    if isinstance(server, sheaf.aio.Server):
        call = channel.call

        async def counted(method, request, attempt):
            note(method, request)
            return await call(method, request, attempt)

        monkeypatch.setattr(channel, "call", counted)
        return sent
    for function_name in ("call", "begin"):
        def counted(method, request, attempt, _function=getattr(channel, function_name)):
            note(method, request)
            return _function(method, request, attempt)

        monkeypatch.setattr(channel, function_name, counted)
    return sent


class Model:
    """What a loop broadcasts, how each round changes it, and what is sent for each."""

    def __init__(self, sent):
        self._rng = numpy.random.default_rng(3)
        self.tensors = {"table": self._rng.random((NUM_ROWS, WIDTH), numpy.float32), "bias": self._rng.random(WIDTH),
                        "steps": numpy.full((), 0)}
        self._sent, self.shares, self._digest = sent, [], None
        self.size = Encoded(self.tensors).size

    def broadcast(self):
        self._digest = hashlib.sha256(bytes(Encoded(self.tensors))).digest()
        self._sent.clear()
        return self.tensors

    def apply(self, result):
        assert result["digest"].astype(numpy.uint8).tobytes() == self._digest, "the worker has seen something else"
        self.shares.append(sum(size for _, size in self._sent) / self.size)
        rows = self._rng.choice(NUM_ROWS, 300, replace=False)
        self.tensors["table"][rows] += 1
        self.tensors["table"][rows[0]] = -0.0
        self.tensors["table"][rows[1], 7:9] = numpy.array([0x7FC01234, 0xFF800001], numpy.uint32).view(numpy.float32)
        self.tensors["bias"] *= -1
        self.tensors["steps"][...] += 1

    def check(self):
        assert self.shares[0] > 1 and len(self.shares) == ROUNDS
        assert max(self.shares[1:]) <= SHARE_MAX, self.shares


LOOK = {"outputs": {"digest": sheaf.sum(32, "int64")}, "tasks": 1, "rounds": ROUNDS}


@pytest.mark.parametrize("ahead", [0, 2])
def test_a_loop_sends_the_rows_that_changed_and_workers_see_the_whole(ahead, tmp_path, monkeypatch):
    look = module_of(WORKER, "looking", tmp_path, monkeypatch).look
    with sheaf.local(workers=1, computations=[look]) as server:
        model = Model(count_bytes(server, monkeypatch))
        for result in server.loop("look", ahead=ahead, broadcast=model.broadcast, apply=model.apply, **LOOK):
            pass
    model.check()


def test_so_does_a_loop_of_an_event_loop(tmp_path, monkeypatch):
    look = module_of(WORKER, "looking", tmp_path, monkeypatch).look

    async def program(address):
        async with sheaf.aio.connect(address) as server:
            model = Model(count_bytes(server, monkeypatch))
            async with contextlib.aclosing(server.loop("look", ahead=1, broadcast=model.broadcast, apply=model.apply, **LOOK)) as results:
                async for result in results:
                    pass
            model.check()

    with sheaf.local(workers=1, computations=[look]) as server:
        asyncio.run(program(server.address))


def train(server, train, rounds=ROUNDS, **options):
    """Two clients a round; the bits of the trained model, and the losses."""
    import sheaf.torch
    import torch

    torch.manual_seed(1)
    training = sheaf.torch.Training(train.Words(), optimizer=sheaf.FedAdam(0.1))
    tasks = iter([[sheaf.Task(2 * number), sheaf.Task(2 * number + 1)] for number in range(rounds)])
    losses = [result.metrics["loss"] for result in
              training.rounds(server, "train", rounds=rounds, tasks=lambda: next(tasks), **options)]
    return {name: array.tobytes() for name, array in training.broadcast().items()}, losses


@pytest.mark.parametrize("ahead", [0, 1])
def test_a_model_in_torch_is_trained_to_the_same_bits_with_a_few_percent_of_the_bytes(ahead, tmp_path, monkeypatch):
    pytest.importorskip("torch")
    made = module_of(TRAINED, "trained", tmp_path, monkeypatch)
    whole = NUM_ROWS * WIDTH * 4
    with sheaf.local(workers=2, computations=[made.train]) as server:
        sent = count_bytes(server, monkeypatch)
        trained = train(server, made, ahead=ahead)
        in_patches = sum(size for _, size in sent)
        sent.clear()
        monkeypatch.setattr(sent_broadcast, "PATCHES_MAX", 0)
        assert trained == train(server, made, ahead=ahead)
        # The model that both begin with is there from the first time.
        in_wholes = sum(size for _, size in sent)
    print(f"ahead {ahead}: {in_wholes:,} B for {ROUNDS - 1} rounds in wholes, {in_patches - whole:,} B in patches")
    assert in_wholes > (ROUNDS - 1) * whole and in_patches <= whole + (ROUNDS - 1) * SHARE_MAX * whole
