"""The examples, each with its program, on sites with data of their own."""

import importlib
import os
import pathlib
import re
import subprocess
import sys

import numpy
import pytest

import sheaf
from grpc_worker import GrpcWorker

EXAMPLES = pathlib.Path(__file__).resolve().parents[3] / "sdk/python/examples"
sys.path.insert(0, str(EXAMPLES))
NUM_SITES = 4


@pytest.fixture
def sites(tmp_path, sheafd):
    """sites(computation): workers at sites with ages of their own; the ages of all of them."""
    ages = [numpy.round(numpy.random.default_rng(number).normal(30 + 10 * number, 8, 50 + number), 2).clip(0, 99)
            for number in range(NUM_SITES)]
    workers = []

    def start(computation):
        for number, own in enumerate(ages):
            folder = tmp_path / f"site-{number}"
            folder.mkdir()
            numpy.savetxt(folder / "ages.csv", own)
            workers.append(GrpcWorker(sheafd.address, {computation.name: computation.function}, data={"people": str(folder)}))
        return numpy.concatenate(ages)

    yield start
    for worker in workers:
        worker.close()


def run(example, *arguments):
    done = subprocess.run([sys.executable, EXAMPLES / example, *arguments], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_mean_age_is_that_of_all_people(sites, sheafd):
    ages = sites(importlib.import_module("mean_age").mean_age)
    said = run("mean_age.py", sheafd.address, str(NUM_SITES))
    assert said == f"{len(ages)} people at {NUM_SITES} sites are {ages.mean():.2f} years old on average\n"


def test_a_histogram_shows_no_low_bar_of_any_site(sites, sheafd):
    module = importlib.import_module("histogram")
    ages = sites(module.histogram)
    bars = [int(line.split()[-1]) for line in run("histogram.py", sheafd.address, str(NUM_SITES)).splitlines()]
    whole, _ = numpy.histogram(ages, bins=range(0, 101, 10))
    assert len(bars) == 10 and sum(bars) > 100 and all(0 <= shown <= count for shown, count in zip(bars, whole))
    assert any(shown < count for shown, count in zip(bars, whole))


def test_a_median_is_found_by_bisection(sites, sheafd):
    ages = sites(importlib.import_module("quantile").below)
    said = run("quantile.py", sheafd.address, "0.5", str(NUM_SITES))
    median = float(re.search(r"50% are below ([\d.]+)\n$", said).group(1))
    below, above = (numpy.count_nonzero(ages < median + side) for side in (-0.01, 0.01))
    assert below < 0.5 * len(ages) <= above and said.count(" of 206 are below ") == 14


@pytest.mark.parametrize("split, accuracy", [("iid", 0.95), ("labels", 0.88)])
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_digits_are_learned_from_fifty_clients(server, offer, split, accuracy, seed):
    digits = importlib.import_module("digits")
    offer(digits=digits.train_here.function)
    curve = list(digits.train(server, split, rounds=40, seed=seed))
    print(split, seed, [f"{value:.3f}" for value in curve[::8]], f"{curve[-1]:.3f}")
    assert len(curve) == 40 and curve[-1] >= accuracy


def test_digits_print_a_curve(sheafd, offer):
    offer(digits=importlib.import_module("digits").train_here.function)
    assert re.fullmatch(r"(round +\d+  accuracy 0\.\d+\n){2}", run("digits.py", sheafd.address, "labels", "2"))


def test_the_examples_are_programs_for_people_to_read():
    for example in EXAMPLES.glob("*.py"):
        text = example.read_text()
        assert os.access(example, os.X_OK) and text.startswith("#!/usr/bin/env python3\n") and "sheaf-worker --server" in text
        assert len(text.splitlines()) < 125, example


def test_rounds_take_as_long_as_they_compute_if_their_data_were_read_ahead():
    def seconds(ahead):
        lines = run("ahead.py", ahead).splitlines()
        return [line.split()[2] for line in lines], [float(line.split()[-2]) for line in lines]

    steps, without = seconds("0")
    same, ahead = seconds("1")
    assert len(steps) == 8 and same == steps and steps[0].startswith("+39.")
    # Four rounds, when all processes have started: 0.6 s each, or 0.3 s each and what a busy machine takes.
    assert without[-1] - without[3] >= 2.3 > ahead[-1] - ahead[3]


def test_the_guide_shows_the_example_that_reads_ahead():
    guide = (EXAMPLES.parents[2] / "docs/guides/rounds-that-never-wait.md").read_text()
    for ahead in ("0", "1"):
        assert f"$ python3 sdk/python/examples/ahead.py {ahead}\n" in guide
