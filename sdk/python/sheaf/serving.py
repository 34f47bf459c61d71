"""The executable's side of a worker: docs/reference/runner.md in Python.

`sheaf-worker` starts the executable: --run for a process per task, --serve for one that stays.
"""

from __future__ import annotations

import io
import json
import os
import pathlib
import stat
import sys
import sysconfig
import time
import traceback
from collections.abc import Callable, Mapping
from typing import Any

import numpy

from sheaf import safetensors
from sheaf.computations import Computation, registered
from sheaf.declared_output import tensors_of
from sheaf.dtypes import Array
from sheaf.leased_task import LeasedTask
from sheaf.safetensors import Safetensors
from sheaf.update import Declined, Update, WrongTask

_VERSION = 1
_READS, _WRITES = 3, 4
# The ends of a task in one-shot mode.
_DECLINED, _FAILED, _WRONG = 10, 11, 12
# So many row numbers travel in a line; more travel in a file. A line has 1 MiB at the most.
_ROWS_IN_LINE_MAX = 4096
_PROGRESS_SECONDS = 0.1

_HOW_TO_START = """\
This file computes tasks for sheaf-worker, which starts it:

    sheaf-worker --server HOST:7433 --run {name}="python3 {file}" --data NAME=PATH

To try it here, without a server: {name}.try_run(outputs=.., data=..)
"""


class Lines:
    """The two pipes to the worker: lines of JSON."""

    def __init__(self) -> None:
        for descriptor in (_READS, _WRITES):
            # What the executable starts is not to hold them open.
            os.set_inheritable(descriptor, False)
        self._reads = io.open(_READS, "rb", buffering=1 << 16, closefd=False)

    def receive(self) -> Any:
        """The next line; None at the end."""
        line = self._reads.readline()
        return json.loads(line) if line else None

    @staticmethod
    def send(line: Mapping[str, Any]) -> None:
        rest = memoryview(json.dumps(line, separators=(",", ":")).encode() + b"\n")
        try:
            while rest:
                rest = rest[os.write(_WRITES, rest) :]
        except BrokenPipeError:
            # The worker has gone, and takes this process with it.
            raise SystemExit(_FAILED) from None

    def ask(self, line: Mapping[str, Any], answer: str) -> str:
        """Sends a question; the file that answers it."""
        self.send(line)
        said = self.receive()
        if said is None:
            raise SystemExit(_FAILED)
        return str(said[answer])


class _Progress:
    """Passes progress on, a few times a second at the most: a computation may say it after each step."""

    def __init__(self) -> None:
        self._said_at = 0.0

    def is_due(self) -> bool:
        now = time.monotonic()
        if now - self._said_at < _PROGRESS_SECONDS:
            return False
        self._said_at = now
        return True


class ResidentRunner:
    """What fetches for a task of an executable that stays."""

    def __init__(self, lines: Lines, directory: str) -> None:
        self._lines = lines
        self._directory = directory
        self._broadcast: Safetensors | None = None
        self._num_questions = 0
        self._progress = _Progress()

    def broadcast(self) -> Safetensors:
        if self._broadcast is None:
            name = self._lines.ask({"broadcast": True}, "broadcast")
            self._broadcast = safetensors.open_file(os.path.join(self._directory, name))
        return self._broadcast

    def rows(self, wanted: Mapping[str, Array]) -> Mapping[str, Array]:
        if self._broadcast is not None:
            return {tensor: self._broadcast[tensor][rows] for tensor, rows in wanted.items()}
        if sum(len(rows) for rows in wanted.values()) <= _ROWS_IN_LINE_MAX:
            name = self._lines.ask({"rows": {tensor: rows.tolist() for tensor, rows in wanted.items()}}, "rows")
        else:
            self._num_questions += 1
            question = f"wanted-{self._num_questions}.safetensors"
            safetensors.write(os.path.join(self._directory, question), wanted)
            name = self._lines.ask({"rows": question}, "rows")
        path = os.path.join(self._directory, name)
        found = safetensors.open_file(path, is_writable=True)
        # The memory stays mapped; the disk does not fill with rows that were read.
        os.unlink(path)
        return found

    def progress(self, done: int) -> None:
        if self._progress.is_due():
            self._lines.send({"progress": done})


class OneShotRunner:
    """What a task of an executable that ends with it finds in its directory."""

    def __init__(self, directory: str) -> None:
        self._directory = directory
        self._progress = _Progress()
        # A pipe, if a worker listens; whoever tries it by hand has other things there.
        try:
            self.has_lines = stat.S_ISFIFO(os.fstat(_WRITES).st_mode)
        except OSError:
            self.has_lines = False

    def broadcast(self) -> Safetensors:
        return safetensors.open_file(os.path.join(self._directory, "params.safetensors"))

    def rows(self, wanted: Mapping[str, Array]) -> Mapping[str, Array]:
        broadcast = self.broadcast()
        return {tensor: numpy.array(broadcast[tensor][rows]) for tensor, rows in wanted.items()}

    def progress(self, done: int) -> None:
        if self.has_lines and self._progress.is_due():
            Lines.send({"progress": done})


def _compute(computation: Computation, task: LeasedTask, directory: str, *, sends: bool) -> dict[str, float]:
    """Runs the task and writes what it returns. The numbers of the result; none if updates were sent."""
    updates = computation.updates(task)
    first = next(updates, None)
    if first is None:
        raise Declined(f"{computation.name} returned the updates of no clients")
    second = next(updates, None)
    if second is None:
        _write(first, task, os.path.join(directory, "result.safetensors"))
        return first.numbers()
    if not sends:
        raise RuntimeError("several clients' updates are combined by sheaf-worker, and none listens here")
    number = 0
    update: Update | None = first
    while update is not None:
        number += 1
        name = f"update-{number}.safetensors"
        _write(update, task, os.path.join(directory, name))
        Lines.send({"update": name, "metrics": update.numbers()})
        update, second = second, None
        if update is None:
            update = next(updates, None)
    return {}


def _write(update: Update, task: LeasedTask, path: str) -> None:
    safetensors.write(path, tensors_of(update, task.outputs))


def _find(name: str) -> Computation:
    found = registered().get(name)
    if found is None:
        raise LookupError(f"this executable has no computation {name!r}; it has {', '.join(registered()) or 'none'}")
    return found


def _check_version(entry: Mapping[str, Any]) -> None:
    if entry["version"] < _VERSION:
        raise LookupError(f"the worker speaks version {entry['version']} of runner.md, which is too old")


def _kind_of(error: BaseException) -> str:
    """The type of an error, and where in the user's files it was raised: nothing that data could be in."""
    ours = os.path.dirname(os.path.abspath(__file__))
    foreign = [ours, *(sysconfig.get_paths()[key] for key in ("stdlib", "platstdlib", "purelib", "platlib")), "<frozen"]
    kind = type(error).__name__
    place = ""
    for frame, line in traceback.walk_tb(error.__traceback__):
        path = frame.f_code.co_filename
        if not path.startswith(tuple(foreign)) and "dist-packages" not in path:
            place = f" in {os.path.basename(path)}:{line}"
    return kind + place


def _failed(error: Exception) -> dict[str, Any]:
    traceback.print_exc()
    return {"failed": _kind_of(error), "message": str(error), "is_permanent": isinstance(error, WrongTask)}


def _serve() -> None:
    lines = Lines()
    while (said := lines.receive()) is not None:
        try:
            entry, directory = said["task"], said["directory"]
            _check_version(entry)
            task = LeasedTask(entry, ResidentRunner(lines, directory))
            numbers = _compute(_find(entry["computation"]), task, directory, sends=True)
            lines.send({"done": True, "metrics": numbers})
        except Declined as declined:
            lines.send({"declined": str(declined)})
        except Exception as error:
            lines.send(_failed(error))
        # What a traceback or a pipe still holds back is written before somebody asks for it.
        sys.stdout.flush()


def _run_one(directory: str) -> int:
    runner = OneShotRunner(directory)
    try:
        entry = json.loads(pathlib.Path(directory, "task.json").read_bytes())
        _check_version(entry)
        numbers = _compute(_find(entry["computation"]), LeasedTask(entry, runner), directory, sends=runner.has_lines)
        if numbers:
            unfinished = pathlib.Path(directory, "metrics.json.unfinished")
            unfinished.write_text(json.dumps(numbers))
            unfinished.rename(pathlib.Path(directory, "metrics.json"))
        return 0
    except Declined as declined:
        print(declined, file=sys.stderr)
        return _DECLINED
    except Exception as error:
        said = _failed(error)
        if runner.has_lines:
            Lines.send(said)
        return _WRONG if said["is_permanent"] else _FAILED


def work(otherwise: Callable[[], object] | None = None) -> None:
    """Computes tasks for the sheaf-worker that started this file, with the computations that it defines.

    The last line of a file. With `--serve` it returns when the worker has no more tasks; with `--run` it ends the process
    after its one task. In a module that is imported it does nothing. In a file that no worker started, it calls `otherwise`;
    without that it says how to start it, and ends the process with code 2.
    """
    if sys._getframe(1).f_globals.get("__name__") != "__main__":
        return
    if os.environ.get("SHEAF_SERVE"):
        _serve()
        return
    if directory := os.environ.get("SHEAF_TASK_DIR"):
        code = _run_one(directory)
        sys.stdout.flush()
        sys.exit(code)
    if otherwise is not None:
        otherwise()
        return
    name = next(iter(registered()), "NAME")
    sys.stderr.write(_HOW_TO_START.format(name=name, file=os.path.basename(sys.argv[0]) or "FILE"))
    sys.exit(2)
