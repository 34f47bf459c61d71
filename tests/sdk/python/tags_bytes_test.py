"""`tags` in torch, whose author says nothing of rows, moves as few bytes as the C++ workload, where they are the author's to list."""

import importlib
import json
import os
import pathlib
import random
import re
import subprocess
import sys

import numpy
import pytest

pytest.importorskip("torch")

import sheaf
import sheaf.torch

EXAMPLE = pathlib.Path(__file__).resolve().parents[3] / "sdk/python/examples/tags"
NUM_CLIENTS = 50
RATIO_MAX = 1.05


@pytest.fixture(scope="module")
def index(tmp_path_factory):
    """This machine's package index, each package once; the maintainers in the order of their packages."""
    stanzas = subprocess.run(["apt-cache", "dumpavail"], capture_output=True, text=True, errors="replace").stdout.split("\n\n")
    by_name = {}
    for stanza in stanzas:
        if re.search(r"^Tag:", stanza, re.M):
            by_name.setdefault(re.search(r"^Package: *(\S+)", stanza, re.M)[1], stanza)
    if not by_name:
        pytest.skip("this machine has no package lists: apt-get update")
    path = tmp_path_factory.mktemp("index") / "packages.txt"
    path.write_text("\n\n".join(by_name.values()) + "\n")
    in_order = (re.search(r"^Maintainer: *(.*?) *$", by_name[name], re.M)[1] for name in sorted(by_name))
    return path, list(dict.fromkeys(in_order))


def bytes_of(server, result):
    """Down and up for each task of a round, as the server has them."""
    moved = []
    for number in range(NUM_CLIENTS):
        command = [os.path.join(os.environ["SHEAF_BINARIES"], "sheaf"), "task", "describe", f"{result.round.id}/{number}",
                   "--server", server.address, "-o", "json"]
        task = json.loads(subprocess.run(command, capture_output=True, check=True).stdout)["task"]
        (attempt,) = task["attempts"]
        moved.append((int(attempt["timings"]["bytesDown"]), int(attempt["bytesUp"])))
    return numpy.array(moved)


def test_the_bytes_of_each_client_are_those_of_the_workload_that_lists_its_rows(index, tmp_path, monkeypatch):
    path, maintainers = index
    monkeypatch.syspath_prepend(str(EXAMPLE))
    tags = importlib.import_module("tags")
    packages, num_words = tags.read_packages(path)
    names = sorted(maintainers)
    clients = random.Random(1).sample([number for number, own in enumerate(packages) if len(own) <= 512], NUM_CLIENTS)

    training = sheaf.torch.Training(tags.Tagger(num_words))
    with sheaf.local(workers=1, serve={"tags": [sys.executable, str(EXAMPLE / "tags_worker.py")]}, data={"packages": path}) as server:
        result = next(iter(training.rounds(server, "tags", rounds=1, tasks=[str(client) for client in clients])))
        in_torch = bytes_of(server, result)

    # The workload asks for the package index by its command.
    command = tmp_path / "apt-cache"
    command.write_text(f"#!/bin/sh\nexec cat '{path}'\n")
    command.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    config = {"batch": 10, "examples_max": 512, "features": num_words, "labels": tags.NUM_TAGS, "learning_rate": 1.0, "seed": 7}
    shape = (num_words, tags.NUM_TAGS)
    outputs = {"rows": sheaf.weighted_coordinate_mean(shape, "float32", index_dims=1), "bias": sheaf.weighted_mean(tags.NUM_TAGS, "float32")}
    model = {"w": numpy.zeros(shape, numpy.float32), "b": numpy.zeros(tags.NUM_TAGS, numpy.float32)}
    with sheaf.local(workers=1, worker_options=["--data", "debian-index=apt"]) as server:
        result = server.run("tags", config=config, outputs=outputs, broadcast=model,
                            tasks=[f"client:{maintainers.index(names[client])}" for client in clients])
        in_cpp = bytes_of(server, result)

    ratios = in_torch / in_cpp
    total = in_torch.sum(axis=0) / in_cpp.sum(axis=0)
    print(f"{NUM_CLIENTS} clients: down {in_torch[:, 0].sum():,} of {in_cpp[:, 0].sum():,} B, {total[0]:.4f}x; up "
          f"{in_torch[:, 1].sum():,} of {in_cpp[:, 1].sum():,} B, {total[1]:.4f}x; of one client at most "
          f"{ratios[:, 0].max():.4f}x and {ratios[:, 1].max():.4f}x")
    assert in_cpp.min() > 1000 and ratios.max() <= RATIO_MAX
