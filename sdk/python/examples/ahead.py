#!/usr/bin/env python3
"""Rounds that never wait: a federation on this machine whose data take as long to read as a round takes to compute.

    python3 ahead.py 0           # Reads, computes, reads, computes.
    python3 ahead.py 1           # Reads for the next round while one computes.

With a server of yours, a worker is sheaf-worker --server HOST:7433 --serve fit="python3 ahead.py" --prepare-ahead 1.
"""

import sys
import time

import numpy

import sheaf

SECONDS = 0.3


@sheaf.computation
def fit(task):
    data = read(task.data_selector)
    # From here on the task needs the model: the next line waits until the round is open.
    model = task.params["model"]
    time.sleep(SECONDS)
    return {"step": data.mean() - model}


def read(selector):
    time.sleep(SECONDS)
    return numpy.random.default_rng(int(selector)).normal(40, 10, 100)


def program(ahead="1", rounds="8"):
    model = numpy.zeros(())

    def apply(result):
        model[...] += result["step"]

    with sheaf.local(workers=4, computations=[fit], prepare_ahead=1) as server:
        begin = time.monotonic()
        for number, result in enumerate(server.loop(
                "fit", rounds=int(rounds), ahead=int(ahead), apply=apply, broadcast=lambda: {"model": model},
                tasks=["1", "2", "3", "4"], outputs={"step": sheaf.mean(())}), 1):
            print(f"round {number}: {result['step']:+.2f} after {time.monotonic() - begin:.1f} s", flush=True)


sheaf.work(otherwise=lambda: program(*sys.argv[1:]))
