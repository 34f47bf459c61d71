"""The computation "sleep" of bench/run.sh --only pipeline, as a program that stays: see pipeline_worker.cc."""

import time

import numpy

import sheaf


@sheaf.computation
def sleep(task):
    prepare, compute = (float(word.removesuffix("ms")) / 1e3 for word in task.payload.decode().split())
    time.sleep(prepare)
    # From here on the round is open.
    task.params["model"]
    time.sleep(compute)
    return {output.name: numpy.zeros(output.shape, output.dtype) for output in task.outputs}


sheaf.work()
