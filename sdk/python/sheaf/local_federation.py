"""A whole federation on this machine, for notebooks, tests and trying things out."""

from __future__ import annotations

import contextlib
import os
import pathlib
import shlex
import shutil
import site
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Union

from sheaf.computations import Computation, source_of
from sheaf.errors import Error, InvalidArgument, NotFound
from sheaf.server import Server, connect

Data = Mapping[str, Union[str, "os.PathLike[str]"]]
Command = Union[str, Sequence[str]]

_START_SECONDS = 15.0
_STOP_SECONDS = 10.0
_LOOK_SECONDS = 0.005
_LOG_LINES = 5


def find_binary(name: str) -> str:
    """sheafd or sheaf-worker: in SHEAF_BINARIES, on the PATH, or in the build that this package comes from. NotFound."""
    folders = [os.environ.get("SHEAF_BINARIES", ""), os.fspath(pathlib.Path(__file__).resolve().parents[2] / "bin")]
    path = os.pathsep.join([folders[0], os.environ.get("PATH", os.defpath), folders[1]])
    found = shutil.which(name, path=path)
    if found is None:
        raise NotFound(f"there is no {name} on the PATH; put Sheaf's programs there, or name their folder in SHEAF_BINARIES")
    return found


class _Process:
    """A process of the federation, which ends with this one."""

    def __init__(self, directory: pathlib.Path, name: str, command: Sequence[str]) -> None:
        self.name = name
        self.log = directory / f"{name}.log"
        # What the environment says of the user's own server is not meant for this one.
        environment = {key: value for key, value in os.environ.items() if not key.startswith("SHEAF_")}
        setpriv = shutil.which("setpriv")
        # Also when this process is killed.
        guard = [setpriv, "--pdeathsig", "TERM", "--"] if setpriv else []
        with open(self.log, "wb") as log:
            # Ctrl-C is for the program, which then ends these in order.
            self._process = subprocess.Popen([*guard, *command], stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                                             env=environment, cwd=directory, start_new_session=True)

    def check(self) -> None:
        code = self._process.poll()
        if code is not None:
            lines = self.log.read_text(errors="replace").splitlines()[-_LOG_LINES:]
            raise Error("\n".join([f"{self.name} ended with {code}; it wrote:", *lines]))

    def terminate(self) -> None:
        self._process.terminate()

    def wait(self) -> None:
        try:
            self._process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


@contextlib.contextmanager
def local(workers: int = 2, *, computations: Sequence[Computation] = (), serve: Mapping[str, Command] | None = None,
          run: Mapping[str, Command] | None = None, data: Data | Sequence[Data] | None = None, concurrency: int = 1,
          prepare_ahead: int = 1, store: str = "memory", directory: str | os.PathLike[str] | None = None,
          worker_options: Sequence[str] = ()) -> Iterator[Server]:
    """A server and workers on 127.0.0.1, as long as the `with` block lasts; gives the connected server.

        with sheaf.local(workers=4, computations=[mean_age], data={"people": "people"}) as server:
            print(server.run("mean_age", outputs={"age": sheaf.weighted_mean(shape=())}, tasks=20)["age"])

    computations: functions made by `@sheaf.computation`. The workers' processes import the files that define them, so that
    what runs is what a deployment would run. One that no file defines, such as a notebook's, is copied with what it refers to,
    which takes cloudpickle. Executables get a PYTHONPATH with which they can import what this process can. serve, run: commands
    for other executables, by the names of their computations, as of `sheaf-worker --serve` and `--run`. data: paths by name, for all workers, or one
    such mapping for each worker. concurrency: tasks that one worker computes at a time. prepare_ahead: tasks of
    announced rounds that it prepares beside those (see `Server.announce`, and `ahead` of `Server.loop`). store: "memory", or "sqlite". directory:
    where the store and the logs are kept; without it they are removed. worker_options: further options of `sheaf-worker`.

    NotFound: there is no sheafd or sheaf-worker (see SHEAF_BINARIES). Error, with the end of its log, if one does not start.
    """
    if workers < 1:
        raise InvalidArgument(f"a federation of {workers} workers computes nothing")
    if isinstance(data, Sequence) and len(data) != workers:
        raise InvalidArgument(f"there are {workers} workers, and data for {len(data)}")
    with contextlib.ExitStack() as stack:
        if directory is None:
            home = pathlib.Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="sheaf-local-")))
        else:
            home = pathlib.Path(directory).resolve()
            home.mkdir(parents=True, exist_ok=True)
        commands = _commands([(made.name, _file_of(made, home)) for made in computations], serve or {}, run or {})
        options = [*commands, "--concurrency", str(concurrency), "--prepare-ahead", str(prepare_ahead), *worker_options]
        server = _start(stack, home, "sheafd", ["--listen", "127.0.0.1:0", "--data-dir", os.fspath(home / "store"), "--store",
                                                store, "--port-file", os.fspath(home / "port"), "--log-level", "warning"])
        # The file appears in one step, once the server serves.
        _await((home / "port").exists, [server])
        address = (home / "port").read_text().strip()
        processes = []
        for number in range(workers):
            own = data[number] if isinstance(data, Sequence) else data or {}
            flags = [flag for name, path in own.items() for flag in ("--data", f"{name}={os.path.abspath(path)}")]
            processes.append(_start(stack, home, "sheaf-worker", ["--server", address, "--name", f"local-{number + 1}",
                                                                   "--log-level", "warning", *options, *flags],
                                    f"worker-{number + 1}"))
        # All at once, and then one by one: it takes as long as the slowest.
        stack.callback(_terminate, processes)
        connected = stack.enter_context(connect(address))
        _await(lambda: len(connected.workers()) == workers, [server, *processes])
        yield connected


def _terminate(processes: list[_Process]) -> None:
    for process in processes:
        process.terminate()


def _start(stack: contextlib.ExitStack, home: pathlib.Path, program: str, options: list[str],
           name: str | None = None) -> _Process:
    process = _Process(home, name or program, [find_binary(program), *options])
    stack.callback(process.wait)
    stack.callback(process.terminate)
    return process


def _await(is_true: Callable[[], bool], processes: Sequence[_Process]) -> None:
    give_up_at = time.monotonic() + _START_SECONDS
    while not is_true():
        for process in processes:
            process.check()
        if time.monotonic() > give_up_at:
            raise Error(f"{processes[-1].name} is not there after {_START_SECONDS:g} s")
        time.sleep(_LOOK_SECONDS)


def _added_paths() -> list[str]:
    """Where this process imports from, but for what its interpreter brings: others may be served by another one."""
    own = tuple([sysconfig.get_path("stdlib"), *site.getsitepackages()])
    return [path for path in sys.path if path and not path.startswith(own) and not path.endswith(".zip")]


def _file_of(made: Computation, home: pathlib.Path) -> pathlib.Path:
    """What a worker's process loads it from (see `python -m sheaf`): what defines it, or else a copy in `home`."""
    source = source_of(made)
    if source is not None:
        return source
    try:
        import cloudpickle
    except ImportError:
        raise InvalidArgument(f"{made.name} is defined in no file that a worker's process could import: install cloudpickle "
                              "(python3-cloudpickle), or write the function into a module (in a notebook: %%writefile)") from None
    copy = home / f"{made.name}.pickle"
    copy.write_bytes(cloudpickle.dumps(made))
    return copy


def _commands(computations: Sequence[tuple[str, pathlib.Path]], serve: Mapping[str, Command], run: Mapping[str, Command]) -> list[str]:
    commands = [("--run", name, command) for name, command in run.items()]
    commands += [("--serve", name, command) for name, command in serve.items()]
    commands += [("--serve", name, [sys.executable, "-m", "sheaf", os.fspath(file)]) for name, file in computations]
    # Executables have an environment of their own. What this process can import, theirs can.
    flags = ["--env", f"PYTHONPATH={os.pathsep.join(_added_paths())}"] if commands else []
    for flag, name, command in commands:
        flags += [flag, f"{name}={command if isinstance(command, str) else shlex.join(command)}"]
    return flags
