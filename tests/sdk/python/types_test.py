#!/usr/bin/env python3
"""The package is clean under mypy's strict rules, and so is a program that uses it; a wrong one is not.

  types_test.py FOLDER_OF_PACKAGE

Exit 77 (skipped) without mypy.
"""

import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

RIGHT = """
import numpy
import sheaf

@sheaf.computation
def mean_age(task: sheaf.LeasedTask) -> sheaf.Update:
    ages = numpy.loadtxt(task.data / "ages.csv")
    return sheaf.Update({"age": ages.mean()}, weight=len(ages))

with sheaf.connect("HOST:7433") as server:
    result = server.run("mean_age", outputs={"age": sheaf.weighted_mean(shape=())}, tasks=20, deadline=60)
    print(result["age"], result.num_clients)
"""
WRONG = RIGHT.replace("deadline=60", 'deadline="soon"')


def main(arguments: list[str]) -> int:
    if not shutil.which("mypy", path="/usr/bin:/bin"):
        print("skipped: there is no mypy here; deploy/install-packages.sh test brings it")
        return 77
    package = pathlib.Path(arguments[0]).resolve()

    def mypy(*what: str) -> subprocess.CompletedProcess[str]:
        command = ["/usr/bin/mypy", "--config-file", str(package / "pyproject.toml"), "--cache-dir", cache, *what]
        environment = {"PATH": "/usr/bin:/bin", "MYPYPATH": str(package), "HOME": cache}
        return subprocess.run(command, capture_output=True, text=True, cwd=cache, env=environment)

    with tempfile.TemporaryDirectory() as cache:
        problems = [] if (done := mypy("-p", "sheaf")).returncode == 0 else [done.stdout + done.stderr]
        for name, program, expected in (("right", RIGHT, 0), ("wrong", WRONG, 1)):
            path = os.path.join(cache, f"{name}.py")
            pathlib.Path(path).write_text(program)
            done = mypy(path)
            if done.returncode != expected:
                problems.append(f"a {name} program: {done.stdout}{done.stderr}")
    print("\n".join(problems) or "the types hold")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
