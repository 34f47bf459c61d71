#!/usr/bin/env python3
"""Draws docs/pictures/time-to-recall.svg: how a model gets better with slow devices, in rounds that wait for all of their
tasks, in rounds with more tasks than they need, and in buffered rounds.

    /usr/bin/python3 docs/guides/draw_time_to_recall.py build/release/bin/tags_pace_test

Runs the trainings of that test, in virtual time, three seeds of each.
"""

import collections
import json
import math
import pathlib
import subprocess
import sys

PICTURE = pathlib.Path(__file__).resolve().parents[1] / "pictures/time-to-recall.svg"
COLOURS = {"all waited for": "#b33", "over-selected": "#e0a030", "buffered": "#2f6f9f"}
LEFT, TOP, WIDTH, HEIGHT = 60, 64, 760, 260
MINUTES = (0.1, 600)
RECALL = (0.35, 0.55)
TICKS = {0.1: "6 s", 1: "1 min", 10: "10 min", 60: "1 h", 600: "10 h"}


def x_of(minutes):
    low, high = (math.log(end) for end in MINUTES)
    return LEFT + WIDTH * (math.log(max(minutes, MINUTES[0])) - low) / (high - low)


def y_of(recall):
    return TOP + HEIGHT * (1 - (max(recall, RECALL[0]) - RECALL[0]) / (RECALL[1] - RECALL[0]))


def drawn(curves, goal=0.52):
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{LEFT + WIDTH + 40}" height="{TOP + HEIGHT + 48}" '
           'font-family="sans-serif" font-size="12" fill="#333">', '<rect width="100%" height="100%" fill="white"/>',
           f'<text x="{LEFT}" y="20">recall@5 after each round, three trainings each; 65 devices, whose tasks take '
           'log-normal times (median 1 min, sigma 1.5)</text>']
    for number, (mode, colour) in enumerate(COLOURS.items()):
        out.append(f'<rect x="{LEFT + 140 * number}" y="34" width="12" height="12" fill="{colour}"/>'
                   f'<text x="{LEFT + 140 * number + 18}" y="44">{mode}</text>')
    for minutes, label in TICKS.items():
        out.append(f'<line x1="{x_of(minutes):.1f}" x2="{x_of(minutes):.1f}" y1="{TOP}" y2="{TOP + HEIGHT}" stroke="#ddd"/>'
                   f'<text x="{x_of(minutes):.1f}" y="{TOP + HEIGHT + 18}" text-anchor="middle">{label}</text>')
    for recall in (0.35, 0.4, 0.45, 0.5):
        out.append(f'<line x1="{LEFT}" x2="{LEFT + WIDTH}" y1="{y_of(recall):.1f}" y2="{y_of(recall):.1f}" stroke="#ddd"/>'
                   f'<text x="{LEFT - 8}" y="{y_of(recall) + 4:.1f}" text-anchor="end">{recall:.2f}</text>')
    out.append(f'<line x1="{LEFT}" x2="{LEFT + WIDTH}" y1="{y_of(goal):.1f}" y2="{y_of(goal):.1f}" stroke="#333" '
               f'stroke-dasharray="4 3"/><text x="{LEFT - 8}" y="{y_of(goal) + 4:.1f}" text-anchor="end">{goal}</text>')
    for (mode, _), points in curves.items():
        path = " ".join(f"{x_of(minutes):.1f},{y_of(recall):.1f}" for minutes, recall in points)
        x, y = x_of(points[-1][0]), y_of(points[-1][1])
        out.append(f'<polyline points="{path}" fill="none" stroke="{COLOURS[mode]}" stroke-width="1.6"/>'
                   f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4" fill="{COLOURS[mode]}"/>')
    return "\n".join([*out, f'<text x="{LEFT + WIDTH / 2}" y="{TOP + HEIGHT + 38}" text-anchor="middle">virtual time '
                            'since the first round was opened</text>', "</svg>\n"])


def main(test):
    printed = subprocess.run([test, "[points]"], check=True, capture_output=True, text=True).stdout
    curves = collections.defaultdict(list)
    for line in printed.splitlines():
        if line.startswith("{"):
            point = json.loads(line)
            curves[point["mode"], point["seed"]].append((point["seconds"] / 60, point["recall"]))
    PICTURE.write_text(drawn(curves))


main(sys.argv[1])
