#!/usr/bin/env python3
"""A median (or any other quantile) over all sites, by bisection: each round asks how many are below a number.

    sheaf-worker --server HOST:7433 --serve below="python3 quantile.py" --data people=/srv/people        # At each site.
    python3 quantile.py HOST:7433 0.5                                                                    # Anywhere.

A site has ages.csv, with a number on each line. It returns two counts and no age.
"""

import sys

import numpy

import sheaf

LEAST, MOST, WITHIN = 0.0, 128.0, 0.01


@sheaf.computation
def below(task):
    ages = numpy.loadtxt(task.data / "ages.csv", ndmin=1)
    return {"below": numpy.count_nonzero(ages < task.config), "all": len(ages)}


def quantile(server, share, sites):
    """The number that `share` of all are below, within WITHIN."""
    least, most = LEAST, MOST
    outputs = {name: sheaf.sum((), dtype="int64") for name in ("below", "all")}
    rounds = server.loop("below", outputs=outputs, tasks=sheaf.Slots(sites, per_worker_max=1),
                         config=lambda: (least + most) / 2)
    for result in rounds:
        middle = (least + most) / 2
        print(f"{result['below']} of {result['all']} are below {middle:g}")
        least, most = (middle, most) if result["below"] < share * result["all"] else (least, middle)
        if most - least < WITHIN:
            return (least + most) / 2


def program(address=None, share=0.5, sites=20):
    with sheaf.connect(address) as server:
        print(f"{float(share):.0%} are below {quantile(server, float(share), int(sites)):.2f}")


sheaf.work(otherwise=lambda: program(*sys.argv[1:]))
