#!/usr/bin/env python3
"""What scipy and numpy make of the same sums: prints one JSON object, benchmark name -> entries per second; on
stderr each when it is measured.

  /usr/bin/python3 bench/aggregation/yardsticks.py [REPEATS]
"""

import json
import statistics
import sys
import time

import numpy as np
import scipy.sparse as sp

repeats = int(sys.argv[1]) if len(sys.argv) > 1 else 3
rng = np.random.default_rng(1)
found = {}


def measure(name, entries, work):
    work()  # The first touch of memory is not what is measured.
    seconds = []
    for _ in range(repeats):
        begin = time.perf_counter()
        work()
        seconds.append(time.perf_counter() - begin)
    found[name] = entries / statistics.median(seconds)
    print(f"{name:<40} {found[name] / 1e6:10.1f} M entries/s", file=sys.stderr, flush=True)


def sparse(suffix, dimension, indices):
    values = rng.standard_normal(len(indices)).astype(np.float32)
    zeros = np.zeros(len(indices), np.int64)

    def coo_to_csr():
        matrix = sp.coo_matrix((values.astype(np.float64), (zeros, indices)), shape=(1, dimension)).tocsr()
        matrix.sum_duplicates()
        return matrix

    def coo_sum_duplicates():
        matrix = sp.coo_matrix((values.astype(np.float64), (zeros, indices)), shape=(1, dimension))
        matrix.sum_duplicates()
        return matrix

    measure("YardstickScipyCsr" + suffix, len(indices), coo_to_csr)
    if not suffix:
        measure("YardstickScipySumDuplicates", len(indices), coo_sum_duplicates)
    if dimension <= 10_000_000:
        def bincount():
            sums = np.bincount(indices, weights=values, minlength=dimension)
            touched = np.flatnonzero(np.bincount(indices, minlength=dimension))
            return touched, sums[touched].astype(np.float32)

        def add_at():
            sums = np.zeros(dimension)
            np.add.at(sums, indices, values)
            return sums

        measure("YardstickNumpyBincount" + suffix, len(indices), bincount)
        if not suffix:
            measure("YardstickNumpyAddAt", len(indices), add_at)


entries = 10_000_000
sparse("", 10_000_000, rng.integers(0, 10_000_000, entries))
sparse("Zipf", 10_000_000, np.minimum(10_000_000 ** rng.random(entries), 9_999_999).astype(np.int64))
sparse("Huge", 1_000_000_000, rng.integers(0, 1_000_000_000, entries))

rows, width, table = 1_000_000, 64, 1_000_000
row_indices = rng.integers(0, table, rows)
row_values = np.tile(rng.standard_normal((1000, width)).astype(np.float32), (rows // 1000, 1))


def rows_by_product():
    selector = sp.csr_matrix((np.ones(rows, np.float32), (row_indices, np.arange(rows))), shape=(table, rows))
    return selector @ row_values


def rows_add_at():
    sums = np.zeros((table, width), np.float32)
    np.add.at(sums, row_indices[:100_000], row_values[:100_000])
    return sums


measure("YardstickScipyRows", rows, rows_by_product)
measure("YardstickNumpyRowsAddAt", 100_000, rows_add_at)
json.dump(found, sys.stdout, indent=2)
print()
