#!/usr/bin/env python3
"""Turns what was measured into the tables and the plot of docs/reference/performance.md.

  report.py ONE_CORE_JSON ALL_CORES_JSON YARDSTICKS_JSON LOAD_BEFORE LOAD_AFTER [--write]

Without --write it only prints the tables.
"""

import json
import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs/reference/performance.md"
PLOT = ROOT / "docs/reference/aggregation.svg"
BEGIN, END = "<!-- aggregation: begin -->\n", "<!-- aggregation: end -->\n"

# What, unit, our benchmark, yardsticks (best first in the table), target in words.
ROWS = [
    ("dense `sum` EXACT f32, 4,096 elements", "G elements/s", "DenseExact/4096",
     [("plain f64", "YardstickPlainDouble/4096"), ("memcpy", "YardstickMemcpy/4096")], ">= 1.5 G, >= 0.45x f64"),
    ("the same, 1 M elements", "G elements/s", "DenseExact/1000000",
     [("plain f64", "YardstickPlainDouble/1000000"), ("memcpy", "YardstickMemcpy/1000000")], ">= 1.5 G, >= 0.45x f64"),
    ("the same, 16 M elements", "G elements/s", "DenseExact/16000000",
     [("plain f64", "YardstickPlainDouble/16000000"), ("memcpy", "YardstickMemcpy/16000000")], ">= 0.45x f64"),
    ("dense `sum` F64 f32, 1 M elements", "G elements/s", "DenseF64/1000000",
     [("plain f64", "YardstickPlainDouble/1000000")], ""),
    ("`sparse_sum` F64, D = 1e7, 100 x 100 k", "M entries/s", "SparseF64",
     [("scipy csr", "YardstickScipyCsr"), ("scipy sum_duplicates", "YardstickScipySumDuplicates"),
      ("numpy bincount", "YardstickNumpyBincount"), ("numpy add.at", "YardstickNumpyAddAt"),
      ("Eigen triplets", "YardstickEigenTriplets"), ("flat_hash_map", "YardstickHashMap"),
      ("pairwise merge (10 contributions)", "YardstickPairwiseMerge")], ">= 100 M, >= 3x scipy"),
    ("`sparse_sum` EXACT, the same", "M entries/s", "SparseExact",
     [("scipy csr", "YardstickScipyCsr"), ("flat_hash_map", "YardstickHashMap")], ">= 60 M"),
    ("`coordinate_mean` EXACT, the same", "M entries/s", "SparseCoordinateMeanExact",
     [("scipy csr", "YardstickScipyCsr")], ""),
    ("`sparse_sum` F64, Zipf indices", "M entries/s", "SparseZipfF64",
     [("scipy csr", "YardstickScipyCsrZipf"), ("numpy bincount", "YardstickNumpyBincountZipf"),
      ("flat_hash_map", "YardstickHashMapZipf")], ""),
    ("`sparse_sum` EXACT, Zipf indices", "M entries/s", "SparseZipfExact",
     [("scipy csr", "YardstickScipyCsrZipf")], ""),
    ("`sparse_sum` F64, D = 1e9", "M entries/s", "SparseHugeF64",
     [("scipy csr", "YardstickScipyCsrHuge"), ("flat_hash_map", "YardstickHashMapHuge")],
     ">= 30 M, <= 24 B x union + 64 MiB"),
    ("`sparse_sum` EXACT, D = 1e9", "M entries/s", "SparseHugeExact",
     [("scipy csr", "YardstickScipyCsrHuge")], ""),
    ("`slices_sum` F32, 64 wide, 1 M-row table, 1,000 x 1,000", "M rows/s", "RowsF32",
     [("scipy product", "YardstickScipyRows"), ("numpy add.at", "YardstickNumpyRowsAddAt")], ">= 3x scipy"),
    ("`slices_sum` F64, the same", "M rows/s", "RowsF64", [("scipy product", "YardstickScipyRows")], ">= 2x scipy"),
    ("`slices_sum` EXACT, the same", "M rows/s", "RowsExact", [("scipy product", "YardstickScipyRows")],
     ">= 1.5x scipy"),
    ("into a dense result, F32", "M rows/s", "RowsToDenseF32", [("scipy product", "YardstickScipyRows")], ">= 3x scipy"),
    ("into a dense result, F64", "M rows/s", "RowsToDenseF64", [("scipy product", "YardstickScipyRows")], ">= 2x scipy"),
    ("into a dense result, EXACT", "M rows/s", "RowsToDenseExact", [("scipy product", "YardstickScipyRows")],
     ">= 1.5x scipy"),
]


# What is shared out among the cores: what, unit, benchmark.
CORES_ROWS = [
    ("checking a dense contribution of 16 M elements, EXACT", "G elements/s", "ValidateDenseExact/16000000"),
    ("the same, F64", "G elements/s", "ValidateDenseF64/16000000"),
    ("checking a sparse contribution of 4 M entries", "M entries/s", "ValidateEntries"),
    ("checking one of 250 k row slices, 64 wide", "M rows/s", "ValidateRows"),
    ("releasing a dense `sum` of 16 M elements, EXACT", "G elements/s", "ReleaseDenseExact/16000000"),
    ("the same, F64", "G elements/s", "ReleaseDenseF64/16000000"),
    ("releasing a dense `mean` of 1 M elements, EXACT", "G elements/s", "ReleaseDenseMean/1000000"),
    ("releasing a `sparse_sum`, EXACT", "M entries/s", "ReleaseSparseExact"),
    ("releasing a `slices_sum`, F32", "M rows/s", "ReleaseRowsF32"),
    ("the same, F64", "M rows/s", "ReleaseRowsF64"),
    ("the same, EXACT", "M rows/s", "ReleaseRowsExact"),
    ("a whole round of `sparse_sum`, EXACT", "M entries/s", "SparseExact"),
    ("a whole round of `slices_sum`, F32", "M rows/s", "RowsF32"),
    ("the same, F64", "M rows/s", "RowsF64"),
    ("the same, EXACT", "M rows/s", "RowsExact"),
]


def rates(benchmark, yardsticks):
    found = dict(yardsticks)
    memory = {}
    for run in benchmark["benchmarks"]:
        if run.get("aggregate_name") != "median":
            continue
        name = run["run_name"].replace("/iterations:1", "").replace("/manual_time", "").replace("/real_time", "")
        found[name] = run["items_per_second"]
        if "bytes_per_coordinate" in run:
            memory[name] = run["bytes_per_coordinate"]
    return found, memory


def table(found, memory):
    lines = ["| What | Sheaf | State per coordinate | Against, in the same run | Target |", "|---|---|---|---|---|"]
    for what, unit, ours, yardsticks, target in ROWS:
        scale = 1e9 if unit.startswith("G") else 1e6
        against = [f"{found[ours] / found[name]:.2f}x {label} ({found[name] / scale:.3g})"
                   for label, name in yardsticks if name in found]
        state = f"{memory[ours]:.0f} B" if ours in memory else ""
        lines.append(f"| {what} | **{found[ours] / scale:.3g}** {unit} | {state} | {'; '.join(against)} | {target} |")
    return "\n".join(lines) + "\n"


def cores_table(one, all_cores, num_cores):
    """The same work on one core and on all, of what was measured on both."""
    lines = [f"| What | One core | {num_cores} cores | Ratio |", "|---|---|---|---|"]
    for what, unit, name in CORES_ROWS:
        if name not in one or name not in all_cores:
            continue
        scale = 1e9 if unit.startswith("G") else 1e6
        lines.append(f"| {what} | {one[name] / scale:.3g} {unit} | {all_cores[name] / scale:.3g} {unit} | "
                     f"{all_cores[name] / one[name]:.2f}x |")
    return "\n".join(lines) + "\n"


def plot(found):
    """Horizontal bars: ours beside the best yardstick of each row, as multiples of that yardstick."""
    bars = []
    for what, _, ours, yardsticks, _ in ROWS:
        known = [(found[name], label) for label, name in yardsticks if name in found and label != "memcpy"]
        if known:
            best, label = max(known)
            bars.append((what.replace("`", ""), found[ours] / best, label))
    height, left, width = 22, 380, 420
    longest = max(ratio for _, ratio, _ in bars)
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{left + width + 170}" height="{height * len(bars) + 40}" '
           f'font-family="sans-serif" font-size="12">',
           f'<rect width="100%" height="100%" fill="white"/>',
           f'<text x="{left}" y="16" fill="#333">speed as a multiple of the best yardstick in the same run</text>']
    one = left + width / longest
    for i, (what, ratio, label) in enumerate(bars):
        y = 26 + i * height
        length = width * ratio / longest
        out.append(f'<text x="{left - 8}" y="{y + 13}" text-anchor="end" fill="#333">{what}</text>')
        out.append(f'<rect x="{left}" y="{y + 3}" width="{length:.1f}" height="{height - 8}" fill="#2f6f9f"/>')
        out.append(f'<text x="{left + length + 6:.1f}" y="{y + 13}" fill="#333">{ratio:.2f}x {label}</text>')
    out.append(f'<line x1="{one:.1f}" x2="{one:.1f}" y1="22" y2="{26 + height * len(bars)}" stroke="#b33" '
               f'stroke-dasharray="4 3"/>')
    out.append("</svg>\n")
    return "\n".join(out)


def main():
    benchmark, shared = json.load(open(sys.argv[1])), json.load(open(sys.argv[2]))
    found, memory = rates(benchmark, json.load(open(sys.argv[3])))
    all_cores, _ = rates(shared, {})
    text, cores = table(found, memory), cores_table(found, all_cores, shared["context"]["num_cpus"])
    print(text)
    print(cores)
    if "--write" not in sys.argv:
        return
    note = (f"Medians of alternating repeats; load average {sys.argv[4]} before, {sys.argv[5]} after (the benchmark is "
            f"one). One core.\n\n")
    cores_note = "\nOn all cores of the machine, in the same run; a release hands its pieces to nobody:\n\n"
    page = PAGE.read_text()
    before, rest = page.split(BEGIN)
    PAGE.write_text(before + BEGIN + note + text + "\n![Speed against the best yardstick](aggregation.svg)\n" +
                    cores_note + cores + END + rest.split(END)[1])
    PLOT.write_text(plot(found))


main()
