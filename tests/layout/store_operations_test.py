#!/usr/bin/env python3
"""Holds the simulation's table of crash points to the interfaces of the stores: no operation may be forgotten.

  store_operations_test.py              every pure virtual method of TaskStore, TaskQueries and PayloadStore is a row of
                                        tests/simulation/store_operation.cc and passes its crash point in the decorator
  store_operations_test.py --self-test  shows that this can fail
"""

import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
STORES = {
    "TaskStore": ("storage/task_store.h", "tests/simulation/crashing_task_store.cc"),
    "TaskQueries": ("storage/task_queries.h", "tests/simulation/crashing_task_store.cc"),
    "PayloadStore": ("storage/payload_store.h", "tests/simulation/crashing_payload_store.cc"),
}


def methods_of(store, header):
    """The pure virtual methods of the class."""
    body = header[re.search(rf"^class {store}\b[^;]*?{{", header, re.M).end():]
    body = re.sub(r"//[^\n]*", "", body)
    return re.findall(r"\bvirtual\b[^;{}]*?\b(\w+)\((?:[^;{}]*)\)(?: const)? = 0;", body)


def check(table, headers, decorators):
    rows = re.findall(r'\{StoreOperation::(k\w+), "(\w+)::(\w+)"', table)
    problems = []
    for store in STORES:
        methods = methods_of(store, headers[store])
        listed = [method for _, owner, method in rows if owner == store]
        problems += [f"{store}::{method} is no row of store_operation.cc" for method in methods if method not in listed]
        problems += [f"{store}::{method} is a row of store_operation.cc and no operation"
                     for method in listed if method not in methods]
        for name, owner, method in rows:
            if owner == store and f"StoreOperation::{name}" not in decorators[store]:
                problems.append(f"{store}::{method} does not pass its crash point")
    return problems


def read(name):
    return (ROOT / name).read_text()


def main(arguments):
    table = read("tests/simulation/store_operation.cc")
    headers = {store: read(names[0]) for store, names in STORES.items()}
    decorators = {store: read(names[1]) for store, names in STORES.items()}
    problems = check(table, headers, decorators)
    if arguments != ["--self-test"]:
        for problem in problems:
            print(problem)
        return 1 if problems else 0
    assert not problems, problems
    assert len(methods_of("TaskStore", headers["TaskStore"])) > 20
    assert len(methods_of("TaskQueries", headers["TaskQueries"])) > 10
    assert len(methods_of("PayloadStore", headers["PayloadStore"])) > 20
    new = {**headers, "TaskStore": headers["TaskStore"].replace("virtual absl::Status DeleteToken",
                                                                "virtual void Wipe() = 0;\n  virtual absl::Status DeleteToken")}
    assert check(table, new, decorators) == ["TaskStore::Wipe is no row of store_operation.cc"]
    assert check(table.replace("TaskQueries::GetRound", "TaskQueries::GetLoop"), headers, decorators)
    assert check(table, headers, {**decorators, "PayloadStore": ""})
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
