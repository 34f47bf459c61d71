#!/usr/bin/env python3
"""Makes states of partial aggregates, as docs/reference/partial-aggregates.md defines them.

  state({"name": "w", "operator": "sum", "dtype": "FLOAT32", "denseShape": [3]}, "EXACT", [{"dense": [1, -2.5, 0.1]}])

Python's standard library is enough.
"""

import math
import struct
import zlib
from fractions import Fraction

WEIGHTED = {"weighted_mean", "weighted_coordinate_mean", "weighted_client_mean"}
DENSE = {"sum", "mean", "weighted_mean", "min", "max", "count"}
CODES = {"FLOAT32": "f", "FLOAT64": "d", "INT32": "i", "INT64": "q", "UINT64": "Q"}
CHUNK = 1024


def number(value, dtype):
    """A value of the vectors as the dtype holds it."""
    if dtype not in ("FLOAT32", "FLOAT64"):
        return int(value)
    wide = float.fromhex(value) if isinstance(value, str) else float(value)
    return to_float32(wide) if dtype == "FLOAT32" else wide


def to_float32(value):
    return struct.unpack("<f", struct.pack("<f", value))[0]


def canonical(value):
    return math.nan if value != value else value + 0


def string(data):
    return struct.pack("<q", len(data)) + data


def integers(values):
    return struct.pack(f"<{len(values)}q", *values)


# A cell is the list of what it was given: pairs of a value and a weight.


def exact_chunk(cells):
    left = [int(sum(Fraction(v) * Fraction(w) for v, w in cell if math.isfinite(v)) * 2**1280) for cell in cells]
    bins = []
    for k in range(-40, 38):
        digits = [(n + 2**31) % 2**32 - 2**31 for n in left]
        left = [(n - digit) >> 32 for n, digit in zip(left, digits)]
        if any(digits):
            bins.append(struct.pack(f"<h{len(digits)}i", k, *digits))
    flags = []
    for position, cell in enumerate(cells):
        values = [v for v, _ in cell]
        flag = any(v != v for v in values) + 2 * (math.inf in values) + 4 * (-math.inf in values)
        if flag:
            flags.append(struct.pack("<HB", position, flag))
    return struct.pack("<H", len(bins)) + b"".join(bins) + struct.pack("<H", len(flags)) + b"".join(flags)


def float_chunk(cells, rounded, code):
    sums = []
    for cell in cells:
        total = 0.0
        for value, weight in cell:
            total = rounded(total + rounded(value * weight))
        sums.append(canonical(total))
    return struct.pack(f"<{len(sums)}{code}", *sums)


def integer_chunk(cells):
    sums = [sum(value for value, _ in cell) for cell in cells]
    width = 0 if not any(sums) else 8 if all(-(2**63) <= s < 2**63 for s in sums) else 16
    return bytes([width]) + b"".join(s.to_bytes(width, "little", signed=True) for s in sums if width)


def extreme_chunk(cells, best, code):
    values = [[canonical(value) for value, _ in cell] for cell in cells]
    return struct.pack(f"<{len(cells)}{code}", *(math.nan if any(v != v for v in cell) else best(cell) for cell in values))


def chunk_of(operator, dtype, numerics):
    """The function that writes a chunk of cells."""
    if operator == "count":
        return lambda cells: integers([sum(value != 0 for value, _ in cell) for cell in cells])
    if operator.endswith(("min", "max")):
        return lambda cells: extreme_chunk(cells, min if operator.endswith("min") else max, CODES[dtype])
    if dtype not in ("FLOAT32", "FLOAT64"):
        return integer_chunk
    if numerics == "EXACT":
        return exact_chunk
    return lambda cells: float_chunk(cells, *((float, "d") if numerics == "F64" else (to_float32, "f")))


def write_cells(cells, write_chunk):
    return b"".join(write_chunk(cells[at:at + CHUNK]) for at in range(0, len(cells), CHUNK))


def signature(output, numerics, index_dims, is_counted):
    parts = [output["name"], output["operator"], output["dtype"], numerics,
             "[" + ", ".join(map(str, output.get("denseShape", []))) + "]", f"index_dims={index_dims}",
             output.get("keyType", "KEY_TYPE_UNSPECIFIED"),
             "non_finite=" + str(output.get("nonFinite") == "PROPAGATE_NON_FINITE").lower(),
             "counted=" + str(is_counted).lower()]
    return " ".join(parts).encode()


def state(output, numerics, clients):
    operator, dtype, shape = output["operator"], output["dtype"], output.get("denseShape", [])
    is_keyed, is_dense, is_weighted = operator == "keyed_sum", operator in DENSE, operator in WEIGHTED
    index_dims = 0 if is_keyed or is_dense else output.get("indexDims") or (1 if operator == "slices_sum" else len(shape))
    is_counted = output.get("minContributors", 0) > 1 or operator == "coordinate_mean"
    width = math.prod(shape[index_dims:])

    rows, weights, contributors = ({0: [[] for _ in range(width)]} if is_dense else {}), {}, {}
    all_weights = []
    for client in clients:
        weight = number(client.get("weight", 1), "FLOAT32")
        all_weights.append((weight, 1))
        values = [number(value, dtype) for value in client["dense" if is_dense else "values"]]
        if is_dense:
            keys = [0]
        elif is_keyed:
            keys = [key.encode() if isinstance(key, str) else key for key in client["keys"]]
        else:
            keys = [linear(index, shape) for index in client["indices"]]
        for i, key in enumerate(keys):
            row = rows.setdefault(key, [[] for _ in range(width)])
            for cell, value in zip(row, values[i * width:]):
                cell.append((value, weight if is_weighted else 1))
        for key in set(keys):
            contributors[key] = contributors.get(key, 0) + 1
            weights.setdefault(key, []).append((weight, 1))

    keys = sorted(rows)
    body = struct.pack("<q", len(clients))
    if is_keyed:
        body += struct.pack("<q", len(keys))
        for key in keys:
            body += string(key) if isinstance(key, bytes) else struct.pack("<q", key)
            body += struct.pack("<q", contributors[key]) if is_counted else b""
    elif not is_dense:
        body += struct.pack("<q", len(keys)) + integers(keys)
        if is_counted or operator == "weighted_coordinate_mean":
            body += integers([contributors[key] for key in keys])
        if operator == "weighted_coordinate_mean":
            weight_numerics = "EXACT" if numerics == "EXACT" else "F64"
            body += write_cells([weights[key] for key in keys], chunk_of("sum", "FLOAT64", weight_numerics))
    if operator in ("weighted_mean", "weighted_client_mean"):
        body += exact_chunk([all_weights])
    body += write_cells([cell for key in keys for cell in rows[key]], chunk_of(operator, dtype, numerics))

    covered = b"SHAO" + struct.pack("<I", 2) + string(signature(output, numerics, index_dims, is_counted)) + string(body)
    return covered + struct.pack("<I", zlib.crc32(covered))


def linear(index, shape):
    key = 0
    for position, size in zip(index, shape):
        key = key * size + position
    return key
