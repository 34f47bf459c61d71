#!/usr/bin/env python3
"""Draws docs/pictures/rounds-ahead.svg: where the time of four workers goes, with 0, 1, 2 and 4 rounds announced ahead.

    PATH=build/release/bin:$PATH PYTHONPATH=build/release/python /usr/bin/python3 docs/guides/draw_rounds_ahead.py

Runs eight rounds for each, of four tasks that sleep for 300 ms to prepare and for 300 ms to compute, on this machine.
What is drawn is what `sheaf round trace` says of them.
"""

import json
import pathlib
import subprocess
import tempfile
import time

import numpy

import sheaf

PICTURE = pathlib.Path(__file__).resolve().parents[1] / "pictures/rounds-ahead.svg"
AHEAD = (0, 1, 2, 4)
ROUNDS, WORKERS, SECONDS = 8, 4, 0.3
# Two shades of each, in turns, so that neighbouring rounds can be told apart.
COLOURS = {"prepare": ("#e0a030", "#f0c878"), "compute": ("#2f6f9f", "#7fb0d4")}
LEFT, TOP, WIDTH, LANE, GAP = 120, 64, 760, 7, 5


@sheaf.computation
def sleep(task):
    time.sleep(SECONDS)
    model = task.params["model"]
    time.sleep(SECONDS)
    return {"model": model}


def said(server, *words):
    return json.loads(subprocess.run(["sheaf", "--server", server.address, *words, "-o", "json"], check=True,
                                     capture_output=True, text=True).stdout)


def spans_of(server, round):
    """(worker, phase, begin, end) of each attempt of the round, in seconds of the server's clock."""
    created = numpy.datetime64(said(server, "round", "describe", round)["round"]["createTime"].rstrip("Z"), "us")
    with tempfile.TemporaryDirectory() as directory:
        trace = pathlib.Path(directory) / "trace.json"
        subprocess.run(["sheaf", "--server", server.address, "round", "trace", round, "-o", trace], check=True,
                       capture_output=True)
        events = json.loads(trace.read_text())["traceEvents"]
    names = {event["pid"]: event["args"]["name"] for event in events if event["name"] == "process_name"}
    for event in events:
        if event["ph"] == "X" and event["name"] in COLOURS and names[event["pid"]].startswith("worker "):
            begin = created.astype(int) / 1e6 + event["ts"] / 1e6
            yield names[event["pid"]], event["name"], begin, begin + event["dur"] / 1e6


def run(ahead):
    """The spans of each round, and when the last one ended; times count from when the second one ended, by when the
    programs of all workers have started."""
    with sheaf.local(workers=WORKERS, computations=[sleep], prepare_ahead=1) as server:
        results = server.loop("sleep", rounds=ROUNDS + 2, ahead=ahead, apply=lambda result: None, tasks=WORKERS,
                              broadcast=lambda: {"model": numpy.zeros(1)}, outputs={"model": sheaf.mean((1,))})
        ids = [result.round.id for result in results]
        rounds = [list(spans_of(server, id)) for id in ids]
    start = max(end for _, _, _, end in rounds[1])
    return [[(worker, phase, begin - start, end - start) for worker, phase, begin, end in spans]
            for spans in rounds], max(end for _, _, _, end in rounds[-1]) - start


def drawn(runs):
    scale = WIDTH / max(seconds for _, seconds in runs.values())
    height = WORKERS * (2 * LANE + GAP) + 28
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{LEFT + WIDTH + 20}" height="{TOP + height * len(runs) + 24}" '
           f'font-family="sans-serif" font-size="12" fill="#333">', '<rect width="100%" height="100%" fill="white"/>',
           f'<text x="{LEFT}" y="20">{ROUNDS} rounds of {WORKERS} tasks on {WORKERS} workers; each task prepares for '
           f'{SECONDS * 1000:.0f} ms and computes for {SECONDS * 1000:.0f} ms</text>']
    for number, (phase, (colour, _)) in enumerate(COLOURS.items()):
        out.append(f'<rect x="{LEFT + 90 * number}" y="32" width="12" height="12" fill="{colour}"/>'
                   f'<text x="{LEFT + 90 * number + 18}" y="42">{phase}</text>')
    for panel, (ahead, (rounds, seconds)) in enumerate(runs.items()):
        top = TOP + panel * height
        out.append(f'<text x="{LEFT - 12}" y="{top + 34}" text-anchor="end" font-weight="bold">K = {ahead}</text>'
                   f'<text x="{LEFT - 12}" y="{top + 52}" text-anchor="end">{seconds:.1f} s</text>')
        workers = sorted({worker for spans in rounds for worker, _, _, _ in spans})
        for number, spans in enumerate(rounds):
            for worker, phase, begin, end in spans:
                if end <= 0:
                    continue
                x, until = max(begin, 0) * scale, end * scale
                y = top + workers.index(worker) * (2 * LANE + GAP) + (LANE if phase == "compute" else 0)
                out.append(f'<rect x="{LEFT + x:.1f}" y="{y}" width="{until - x:.1f}" height="{LANE - 1}" '
                           f'fill="{COLOURS[phase][number % 2]}"/>')
        out.append(f'<line x1="{LEFT + seconds * scale:.1f}" x2="{LEFT + seconds * scale:.1f}" y1="{top - 4}" '
                   f'y2="{top + height - 26}" stroke="#b33" stroke-dasharray="4 3"/>')
    bottom = TOP + height * len(runs)
    for second in range(int(WIDTH / scale) + 1):
        out.append(f'<text x="{LEFT + second * scale:.1f}" y="{bottom + 8}" text-anchor="middle">{second} s</text>')
    return "\n".join([*out, "</svg>\n"])


def main():
    PICTURE.write_text(drawn({ahead: run(ahead) for ahead in AHEAD}))


sheaf.work(otherwise=main)
