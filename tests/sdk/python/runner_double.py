"""The worker's side of docs/reference/runner.md, as small as it can be: starts an executable, and speaks to it."""

import json
import os
import pathlib
import subprocess
import sys

import numpy

from sheaf import safetensors


class Executable:
    """An executable that runs under this double. `params`: the broadcast of all tasks."""

    def __init__(self, directory, command, params=None, **environment):
        self.directory, self.params, self.lines = pathlib.Path(directory), params or {}, []
        self._task = 0
        kept = {name: os.environ[name] for name in ("PATH", "PYTHONPATH", "PYTHONDONTWRITEBYTECODE")}
        (to_executable, self._writes), (self._reads, from_executable) = os.pipe(), os.pipe()

        def place():
            # Both are moved out of the way before one is moved onto the other.
            high = [os.dup2(end, 10 + number) for number, end in enumerate((to_executable, from_executable))]
            os.dup2(high[0], 3, inheritable=True), os.dup2(high[1], 4, inheritable=True)
            os.closerange(5, 64)

        self.process = subprocess.Popen([sys.executable, *command], env={**kept, **environment}, preexec_fn=place,
                                        close_fds=False, cwd=self.directory, text=True, stderr=subprocess.PIPE)
        os.close(to_executable), os.close(from_executable)
        self._answers = os.fdopen(self._reads)

    def say(self, line):
        os.write(self._writes, json.dumps(line).encode() + b"\n")

    def run(self, entry):
        """A task from its line to its last: what the executable said, with `values` where it is done, `updates` read."""
        self._task += 1
        home = self.directory / f"task-{self._task}"
        home.mkdir()
        self.say({"task": task_of(entry, self.params), "directory": str(home)})
        updates = []
        for text in self._answers:
            assert len(text) <= 1 << 20
            said = json.loads(text)
            self.lines.append(said)
            if "broadcast" in said:
                safetensors.write(home / "params.safetensors", self.params)
                self.say({"broadcast": "params.safetensors"})
            elif "rows" in said:
                wanted = said["rows"] if isinstance(said["rows"], dict) else safetensors.open_file(home / said["rows"])
                rows = {name: numpy.array(self.params[name][numpy.array(wanted[name], int)]) for name in wanted}
                safetensors.write(home / "rows-1.safetensors", rows)
                self.say({"rows": "rows-1.safetensors"})
            elif "update" in said:
                updates.append((dict(safetensors.open_file(home / said["update"])), said["metrics"]))
                (home / said["update"]).unlink()
            elif "progress" not in said:
                result = home / "result.safetensors"
                values = dict(safetensors.open_file(result)) if result.exists() else None
                return {**said, "values": values, "updates": updates, "files": sorted(os.listdir(home))}
        raise AssertionError(f"the executable ended with {self.process.wait()}: {self.process.stderr.read()}")

    def end(self):
        """The worker goes; the executable's exit code, and what it wrote to stderr."""
        os.close(self._writes)
        self._answers.close()
        _, errors = self.process.communicate(timeout=30)
        return self.process.returncode, errors


def task_of(entry, params):
    filled = {"version": 1, "config": None, "payload": None, "round": "r-1", "task": "r-1/0", "attempt": 1, "seed": 3,
              "seconds": None, "data_selector": "", "data": {}, "min_clients": 1, "broadcast": "00" if params else None,
              "numerics": "EXACT", "outputs": []}
    return {**filled, **entry}


def run_once(directory, command, entry, params=None):
    """One-shot: the executable's exit code, what it wrote to stderr, its values and metrics."""
    home = pathlib.Path(directory)
    (home / "task.json").write_text(json.dumps(task_of(entry, params)))
    if params is not None:
        safetensors.write(home / "params.safetensors", params)
    kept = {name: os.environ[name] for name in ("PATH", "PYTHONPATH", "PYTHONDONTWRITEBYTECODE")}
    done = subprocess.run([sys.executable, *command, str(home)], env={**kept, "SHEAF_TASK_DIR": str(home)}, cwd=home, text=True,
                          capture_output=True, timeout=60)
    result, metrics = home / "result.safetensors", home / "metrics.json"
    return (done.returncode, done.stderr, dict(safetensors.open_file(result)) if result.exists() else None,
            json.loads(metrics.read_text()) if metrics.exists() else None)
