"""The computation `slow` of the storms, in Python: takes as long as its payload says, and adds 1 at the index that it says.

In sparse outputs at 0, too, where all contributions meet.
"""

import re
import time

import numpy

import sheaf


@sheaf.computation
def slow(task):
    payload = task.payload.decode() if isinstance(task.payload, bytes) else str(task.payload)
    duration, index = payload.split()
    number, unit = re.fullmatch(r"([\d.]+)(ms|s)?", duration).groups()
    time.sleep(float(number) / (1000 if unit == "ms" else 1))
    values = {}
    for output in task.outputs:
        if output.operand == "sparse":
            values[output.name] = sheaf.Sparse([int(index), 0], numpy.ones(2, numpy.int64), output.shape)
        else:
            values[output.name] = numpy.zeros(output.shape, numpy.int64)
            values[output.name][int(index)] = 1
    return values


sheaf.work()
