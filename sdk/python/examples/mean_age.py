#!/usr/bin/env python3
"""The mean age of people whose records stay where they are.

    sheaf-worker --server HOST:7433 --serve mean_age="python3 mean_age.py" --data people=/srv/people     # At each site.
    python3 mean_age.py HOST:7433                                                                        # Anywhere.

A site has ages.csv, with a number on each line. It returns their mean, and how many there are as its weight.
"""

import sys

import numpy

import sheaf


@sheaf.computation
def mean_age(task):
    ages = numpy.loadtxt(task.data / "ages.csv", ndmin=1)
    if not len(ages):
        raise sheaf.Declined("there are no ages here")
    return sheaf.Update({"age": ages.mean()}, weight=len(ages))


def program(address=None, sites=20):
    with sheaf.connect(address) as server:
        # One task for each site: who has done one gets no other.
        tasks = sheaf.Slots(int(sites), per_worker_max=1)
        result = server.run("mean_age", outputs={"age": sheaf.weighted_mean(shape=())}, tasks=tasks, min_clients=3)
        people = result.summaries["age"].divisor_value
        print(f"{people:.0f} people at {result.num_clients} sites are {result['age']:.2f} years old on average")


sheaf.work(otherwise=lambda: program(*sys.argv[1:]))
