#!/usr/bin/env python3
"""Measures programs and computations in Python: prints a Markdown table of medians, and from the 10th to the 90th percentile.

  bench/python.py FOLDER_OF_PACKAGE FOLDER_OF_BINARIES

bench/run.sh --only python builds what it needs and calls it.
"""

import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time

NUM_ROUNDS = 100
TASKS = 2000
GIB = 1 << 30

COMPUTATIONS = """
import numpy, time
import sheaf

@sheaf.computation
def noop(task):
    return {"n": 1.0}

@sheaf.computation
def one(task):
    shape = task.outputs[0].shape
    return {"w": sheaf.Sparse([0], [1.0], shape)}

@sheaf.computation
def look(task):
    begin = time.perf_counter()
    task.params["w"][0]
    return {"ms": 1e3 * (time.perf_counter() - begin)}

@sheaf.computation
def descend(task):
    return {name: 0.1 * value for name, value in task.params.items()}
"""

COPY = """#!/bin/sh
exec cp "$0.result" "$SHEAF_TASK_DIR/result.safetensors"
"""


def timed(function):
    begin = time.perf_counter()
    function()
    return time.perf_counter() - begin


def write_file(array):
    with tempfile.NamedTemporaryFile(buffering=0) as file:
        data = memoryview(array).cast("B")
        for begin in range(0, len(data), 2 << 20):
            file.write(data[begin : begin + (2 << 20)])
        os.fdatasync(file.fileno())


def start_bare(copy):
    """Seconds that the process of the computation `copy` takes without a worker."""
    with tempfile.TemporaryDirectory() as directory:
        environment = {"SHEAF_TASK_DIR": directory, "PATH": os.environ["PATH"]}
        return timed(lambda: subprocess.run([copy, directory], env=environment, check=True))


def worker_cpu_seconds():
    """CPU time of this process's sheaf-worker and its keepers; not of the programs that they start."""
    parents, names, seconds = {}, {}, {}
    for stat in pathlib.Path("/proc").glob("[0-9]*/stat"):
        try:
            head, tail = stat.read_text().rsplit(")", 1)
        except OSError:
            continue
        pid, fields = int(stat.parent.name), tail.split()
        parents[pid], names[pid] = int(fields[1]), head.partition("(")[2]
        seconds[pid] = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def is_ours(pid):
        return pid == os.getpid() or (pid in parents and names[pid].startswith("sheaf-") and is_ours(parents[pid]))

    return sum(seconds[pid] for pid in seconds if pid != os.getpid() and is_ours(pid))


def worker_seconds(server, computation, outputs):
    """How long a worker has a task, as it says itself: from the lease that came to the result that goes."""
    result = server.run(computation, outputs=outputs, tasks=1, progress=False)
    command = [os.path.join(os.environ["SHEAF_BINARIES"], "sheaf"), "task", "describe", f"{result.round.id}/0"]
    shown = subprocess.run([*command, "--server", server.address, "-o", "json"], capture_output=True, check=True).stdout
    (attempt,) = json.loads(shown)["task"]["attempts"]
    parts = (attempt["timings"].get(part, "0s") for part in ("download", "prepare", "compute", "upload"))
    return sum(float(part.removesuffix("s")) for part in parts)


def spread(samples, scale=1e3):
    ordered = sorted(samples)
    low, median, high = (scale * ordered[round(share * (len(ordered) - 1))] for share in (0.1, 0.5, 0.9))
    return f"{median:.3g} ({low:.3g} to {high:.3g})"


def measure(sheaf, numpy, server, copy):
    n = {"n": sheaf.sum(())}

    def run(tasks):
        server.run("noop", outputs=n, tasks=tasks, progress=False)

    run(20)
    single = [timed(lambda: run(1)) for _ in range(NUM_ROUNDS)]
    yield "one no-op task, created to result", "ms", spread(single), "<= 10"

    def connect_and_run():
        with sheaf.connect(server.address) as other:
            other.run("noop", outputs=n, tasks=10, progress=False)

    yield "connect, and ten no-op tasks to their result", "ms", spread([timed(connect_and_run) for _ in range(20)]), "<= 50"
    cpu = worker_cpu_seconds()
    many = sorted(timed(lambda: run(TASKS)) for _ in range(3))
    cpu = worker_cpu_seconds() - cpu
    yield "no-op tasks, one worker of 2 processes", "tasks/s", f"{TASKS / many[1]:,.0f}", ">= 1,000"
    # Of sheaf-worker and its keepers, without the programs: what the worker itself costs.
    yield "worker's CPU time for each of them", "ms", f"{1e3 * cpu / 3 / TASKS:.3g}", "<= 1"
    # Of one task at a time, with the time of the program itself.
    yield "worker's and program's time for one of them", "ms", spread([worker_seconds(server, "noop", n) for _ in range(NUM_ROUNDS)]), ""

    # The same process, once without a worker and once as a task, in turns.
    bare, task = [], []
    for _ in range(NUM_ROUNDS):
        bare.append(start_bare(copy))
        task.append(worker_seconds(server, "copy", n))
    yield "a process that copies a file, without a worker", "ms", spread(bare), ""
    yield "the same as a one-shot task, beside that", "ms", spread([one - alone for one, alone in zip(task, bare)]), "<= 5"

    shapes = {"w1": (64, 64), "b1": 64, "w2": (64, 10), "b2": 10}
    model = {name: numpy.zeros(shape, numpy.float32) for name, shape in shapes.items()}
    outputs = {name: sheaf.weighted_mean(value.shape, value.dtype) for name, value in model.items()}

    def round_of_digits():
        # Another broadcast each time, as in training.
        model["b2"] += 1
        server.run("descend", outputs=outputs, tasks=10, broadcast=model, progress=False)

    round_of_digits()
    rounds = [timed(round_of_digits) for _ in range(NUM_ROUNDS)]
    yield "a round of digits without its arithmetic: 20 KB up, ten tasks, 20 KB down", "ms", spread(rounds), "<= 40"

    w = {"w": numpy.zeros(64 << 17)}
    looks = []
    digest = server.upload(w)
    for _ in range(10):
        result = server.run("look", outputs={"ms": sheaf.mean(())}, tasks=1, broadcast=digest, progress=False)
        looks.append(float(result["ms"]) / 1e3)
    yield "64 MiB of broadcast that the worker has, until numpy reads it", "ms", spread(looks), "<= 5"

    w = {"w": numpy.random.default_rng(1).random(GIB // 8)}
    rates, alone = [], []
    for _ in range(3):
        w["w"][0] += 1
        rates.append(GIB / 1e9 / timed(lambda: server.upload(w)))
        alone.append(GIB / 1e9 / timed(lambda: write_file(w["w"])))
    yield "1 GiB of broadcast, up", "GB/s", spread(rates, 1), ">= 0.5"
    yield "for comparison: 1 GiB written to a new file there, and flushed", "GB/s", spread(alone, 1), ""
    outputs = {"w": sheaf.sparse_sum_to_dense(GIB // 4, "float32")}
    round = server.create("one", outputs=outputs, tasks=1).wait(progress=False)
    rates = [GIB / 1e9 / timed(round.result) for _ in range(3)]
    yield "1 GiB of result, down", "GB/s", spread(rates, 1), ">= 0.5"


def main(arguments):
    if len(arguments) != 2:
        print(__doc__, file=sys.stderr)
        return 2
    package, binaries = map(os.path.abspath, arguments)
    sys.path.insert(0, package)
    os.environ["SHEAF_BINARIES"] = binaries
    import numpy

    import sheaf

    print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}\n\n| What | Unit | Measured | Target |\n|---|---|---|---|")
    with tempfile.TemporaryDirectory() as directory:
        file = pathlib.Path(directory, "computations.py")
        file.write_text(COMPUTATIONS)
        command = [sys.executable, "-m", "sheaf", str(file)]
        copy = pathlib.Path(directory, "copy.sh")
        sheaf.safetensors.write(f"{copy}.result", {"n": numpy.ones(())})
        copy.write_text(COPY)
        copy.chmod(0o755)
        with sheaf.local(workers=1, serve=dict.fromkeys(("noop", "one", "look", "descend"), command), run={"copy": [str(copy)]},
                         concurrency=2, store="sqlite", worker_options=["--env", f"PYTHONPATH={package}"]) as server:
            for what, unit, measured, target in measure(sheaf, numpy, server, copy):
                print(f"| {what} | {unit} | {measured} | {target} |", flush=True)
    print(f"\nload {os.getloadavg()[0]:.1f} at the end")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
