#!/usr/bin/env python3
"""A histogram over all sites, of which no bar shows fewer than five people of any one site alone.

    sheaf-worker --server HOST:7433 --serve histogram="python3 histogram.py" --data people=/srv/people   # At each site.
    python3 histogram.py HOST:7433                                                                       # Anywhere.

A site has ages.csv, with a number on each line.
"""

import sys

import numpy

import sheaf


@sheaf.computation
def histogram(task):
    ages = numpy.loadtxt(task.data / "ages.csv", ndmin=1)
    counts, _ = numpy.histogram(ages, bins=task.config["edges"])
    # Bars that are too low at this site do not leave it.
    counts[counts < task.config["count_min"]] = 0
    return {"counts": counts}


def program(address=None, sites=20):
    edges = list(range(0, 101, 10))
    with sheaf.connect(address) as server:
        counts = server.run(
            "histogram", config={"edges": edges, "count_min": 5}, tasks=sheaf.Slots(int(sites), per_worker_max=1),
            outputs={"counts": sheaf.sum(len(edges) - 1, dtype="int64")})["counts"]
    for begin, count in zip(edges, counts):
        print(f"{begin:3}-{begin + 9:<3} {'#' * round(60 * count / max(counts.max(), 1))} {count}")


sheaf.work(otherwise=lambda: program(*sys.argv[1:]))
