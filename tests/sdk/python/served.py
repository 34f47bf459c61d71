"""Computations for the tests of serving."""

import os

import numpy

import sheaf


@sheaf.computation
def add(task):
    print("what an executable prints goes nowhere near the worker")
    return sheaf.Update({"n": task.payload + task.attempt}, weight=2, loss=0.5)


@sheaf.computation
def pick(task):
    first = task.rows("w", [2, 0])
    second = task.rows("w", numpy.arange(task.config))
    none = task.rows_of({"w": []})["w"]
    assert none.shape == (0, 2)
    first += 1
    return {"sum": first.sum() + second.sum(), "whole": task.params["w"].sum(), "again": task.rows("w", [1])[0, 0]}


@sheaf.computation
def clients(task):
    for number in range(task.payload):
        task.progress()
        yield sheaf.Update({"n": number}, weight=number + 1)


@sheaf.computation
def decline(task):
    raise sheaf.Declined("no records of 2024")


@sheaf.computation
def wrong(task):
    raise sheaf.WrongTask("no such column")


@sheaf.computation
def fail(task):
    return {"n": numpy.loadtxt("secret-name-of-a-patient.csv")}


@sheaf.computation
def unreturned(task):
    return {"n": numpy.zeros(3)}


@sheaf.computation
def leave(task):
    os._exit(3)


if __name__ == "__main__":
    sheaf.work()
