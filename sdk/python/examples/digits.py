#!/usr/bin/env python3
"""A neural network learns to read handwritten digits that lie with fifty clients: federated averaging, in numpy.

    sheaf-worker --server HOST:7433 --serve digits="python3 digits.py"                   # As many as you like.
    python3 digits.py HOST:7433                                                          # Trains, and prints the accuracy.
    python3 digits.py HOST:7433 labels                                                   # Each client has two digits only.

The data are the 1,797 digits that scikit-learn brings (python3-sklearn). A fifth of them is for the test; the rest is dealt to
the clients. A task names its client; whichever worker gets it has the data here. For real, each client has its own.
"""

import functools
import sys

import numpy
from sklearn.datasets import load_digits

import sheaf

CLIENTS, PER_ROUND, HIDDEN = 50, 10, 64


@functools.cache
def data(split, seed):
    """(pixels, digit) for the test, and a list with those of each client."""
    pixels, digits = load_digits(return_X_y=True)
    order = numpy.random.default_rng(seed).permutation(len(digits))
    pixels, digits = (pixels[order] / 16).astype(numpy.float32), digits[order]
    num_test = len(digits) // 5
    test, own = (pixels[:num_test], digits[:num_test]), (pixels[num_test:], digits[num_test:])
    if split == "iid":
        parts = numpy.array_split(numpy.arange(len(own[1])), CLIENTS)
    else:
        # Two shards each, of digits in order: most clients see two of the ten.
        shards = numpy.array_split(numpy.argsort(own[1], kind="stable"), 2 * CLIENTS)
        dealt = numpy.random.default_rng(seed).permutation(2 * CLIENTS).reshape(CLIENTS, 2)
        parts = [numpy.concatenate([shards[first], shards[second]]) for first, second in dealt]
    return test, [(own[0][part], own[1][part]) for part in parts]


def scores(model, pixels):
    hidden = numpy.maximum(pixels @ model["w1"] + model["b1"], 0)
    return hidden, hidden @ model["w2"] + model["b2"]


def descend(model, pixels, digits, rate):
    """One step of gradient descent on the cross-entropy."""
    hidden, outputs = scores(model, pixels)
    shares = numpy.exp(outputs - outputs.max(axis=1, keepdims=True))
    error = (shares / shares.sum(axis=1, keepdims=True) - numpy.eye(10, dtype=numpy.float32)[digits]) / len(digits)
    back = error @ model["w2"].T * (hidden > 0)
    for name, gradient in (("w2", hidden.T @ error), ("b2", error.sum(axis=0)), ("w1", pixels.T @ back), ("b1", back.sum(axis=0))):
        model[name] -= rate * gradient


@sheaf.computation(name="digits")
def train_here(task):
    config = task.config
    pixels, labels = data(config["split"], config["seed"])[1][int(task.data_selector.removeprefix("client:"))]
    model = {name: array.copy() for name, array in task.params.items()}
    for _ in range(config["epochs"]):
        for batch in numpy.array_split(task.rng.permutation(len(labels)), max(len(labels) // 10, 1)):
            descend(model, pixels[batch], labels[batch], config["rate"])
        task.progress()
    return sheaf.Update({name: model[name] - task.params[name] for name in model}, weight=len(labels))


def train(server, split="iid", rounds=40, seed=1):
    """The accuracy on the test after each round."""
    rng = numpy.random.default_rng(seed)
    model = {"w1": rng.normal(0, 0.18, (64, HIDDEN)), "b1": numpy.zeros(HIDDEN), "w2": rng.normal(0, 0.18, (HIDDEN, 10)),
             "b2": numpy.zeros(10)}
    model = {name: array.astype(numpy.float32) for name, array in model.items()}
    test_pixels, test_digits = data(split, seed)[0]
    optimizer = sheaf.FedAvgM(1.0, beta1=0.6)
    results = server.loop(
        "digits", rounds=rounds, broadcast=lambda: model, config={"split": split, "seed": seed, "epochs": 5, "rate": 0.2},
        outputs={name: sheaf.weighted_mean(array.shape, array.dtype) for name, array in model.items()},
        tasks=lambda: [f"client:{client}" for client in rng.choice(CLIENTS, PER_ROUND, replace=False)])
    for result in results:
        optimizer.move(model, result)
        yield (scores(model, test_pixels)[1].argmax(axis=1) == test_digits).mean()


def program(address=None, split="iid", rounds=40):
    with sheaf.connect(address) as server:
        for number, accuracy in enumerate(train(server, split, int(rounds)), 1):
            print(f"round {number:3}  accuracy {accuracy:.3f}")


sheaf.work(otherwise=lambda: program(*sys.argv[1:]))
