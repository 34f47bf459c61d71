"""Executables under the real sheaf-worker, in whole federations on this machine."""

import os
import pathlib
import signal
import subprocess
import sys
import threading
import time

import numpy
import pytest

import served
import sheaf

HERE = pathlib.Path(__file__).parent
EXAMPLES = HERE.parents[2] / "sdk/python/examples"
N = {"n": sheaf.sum((), "int64")}
W = numpy.arange(20_000.0).reshape(-1, 2)
PICKED = {name: sheaf.sum(()) for name in ("sum", "whole", "again")}


@pytest.fixture(scope="module", params=["serve", "run"])
def federation(request):
    """Two workers that serve served.py: a process that stays, or one for each task."""
    names = ("add", "pick", "clients", "decline", "wrong", "fail", "unreturned", "leave")
    command = f"{sys.executable} -B {HERE / 'served.py'}"
    with sheaf.local(workers=2, **{request.param: dict.fromkeys(names, command)}) as server:
        server.mode = request.param
        yield server


def test_values_and_metrics_of_executables_arrive(federation):
    result = federation.run("add", outputs=N, tasks=[sheaf.Task(number) for number in range(10)], timeout=60)
    assert result["n"] == 45 + 10 and result.num_clients == 10 and result.metrics == {"loss": 0.5}


def test_weights_of_executables_count(federation):
    result = federation.run("add", outputs={"n": sheaf.weighted_mean(())}, tasks=[sheaf.Task(1), sheaf.Task(4)], timeout=60)
    assert result["n"] == 3.5 and result.summaries["n"].divisor_value == 4


def test_executables_fetch_rows_and_the_whole(federation):
    for rows in (3, 5000):
        result = federation.run("pick", outputs=PICKED, tasks=1, config=rows, broadcast={"w": W}, timeout=60)
        assert result["sum"] == W[[2, 0]].sum() + 4 + W[:rows].sum()
        assert result["whole"] == W.sum() and result["again"] == W[1, 0]


def test_several_clients_of_one_task_are_combined_by_the_worker(federation):
    outputs = {"n": sheaf.weighted_mean(())}
    result = federation.run("clients", outputs=outputs, tasks=[sheaf.Task(5), sheaf.Task(1)], min_clients=6, timeout=60)
    # Weighted by number + 1: 0 * 1 + 1 * 2 + 2 * 3 + 3 * 4 + 4 * 5, and once more 0 * 1.
    assert result["n"] == 40 / 16 and result.num_clients == 6 and result.num_contributions == 2


def test_a_wrong_task_fails_at_once_and_the_others_are_tried_again(federation):
    with pytest.raises(sheaf.RoundFailed, match="failed for good"):
        federation.run("wrong", outputs=N, tasks=1, timeout=60)
    for name, said in (("fail", "FileNotFoundError in served.py:|exit code 11|ended with 11"), ("unreturned", "InvalidArgument|11"),
                       ("leave", "3")):
        with pytest.raises(sheaf.RoundStuck, match=said) as raised:
            federation.run(name, outputs=N, tasks=1, failed_max=2, timeout=60)
        # Nothing that may quote data reaches the server.
        assert "secret" not in str(raised.value)
        federation.round(raised.value.round).cancel()


def test_a_declined_task_is_no_failure(federation):
    round = federation.create("decline", outputs=N, tasks=1)
    with pytest.raises(sheaf.DeadlineExceeded):
        round.wait(timeout=1)
    assert round.refresh().tasks["buried"] == 0 and round.message.num_failed_attempts == 0
    round.cancel()


@pytest.fixture
def sites(tmp_path):
    """Data of three sites, and all ages of them."""
    ages = [numpy.arange(20.0 + number, 60 + 3 * number) for number in range(3)]
    for number, own in enumerate(ages):
        (tmp_path / f"{number}").mkdir()
        numpy.savetxt(tmp_path / f"{number}" / "ages.csv", own)
    return [{"people": tmp_path / f"{number}"} for number in range(3)], numpy.concatenate(ages)


def test_the_examples_run_as_their_first_lines_say(sites, monkeypatch):
    data, ages = sites
    # The python3 that has numpy.
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    commands = {name: f"python3 -B {EXAMPLES / file}" for name, file in
                (("mean_age", "mean_age.py"), ("histogram", "histogram.py"), ("below", "quantile.py"), ("digits", "digits.py"))}
    with sheaf.local(workers=3, serve=commands, data=data) as server:
        def run(example, *arguments):
            return subprocess.run(["/usr/bin/python3", EXAMPLES / example, server.address, *arguments], capture_output=True,
                                  text=True, check=True, timeout=60).stdout

        assert f"{len(ages)} people at 3 sites are {ages.mean():.2f} years old" in run("mean_age.py", "3")
        assert run("histogram.py", "3").count("#") > 60
        median = float(run("quantile.py", "0.5", "3").split()[-1])
        assert numpy.count_nonzero(ages < median - 0.01) < 0.5 * len(ages) <= numpy.count_nonzero(ages < median + 0.01)
        assert "round   2  accuracy 0." in run("digits.py", "iid", "2")


def test_a_federation_serves_the_functions_of_a_module(sites):
    data, ages = sites
    with sheaf.local(workers=3, computations=[served.add], data=data) as server:
        assert server.run("add", outputs=N, tasks=[sheaf.Task(2)], timeout=60)["n"] == 3


def test_nothing_is_lost_or_doubled_while_processes_of_executables_are_killed(tmp_path):
    """Whatever is killed, each task counts once, and no process is left."""
    stop = threading.Event()
    killed = []

    def storm():
        random = numpy.random.default_rng(1)
        while not stop.wait(0.05):
            found = processes_of(str(HERE / "served.py"))
            if found:
                try:
                    os.kill(found[random.integers(len(found))], signal.SIGKILL)
                    killed.append(1)
                except ProcessLookupError:
                    pass

    command = f"{sys.executable} -B {HERE / 'served.py'}"
    with sheaf.local(workers=2, serve={"add": command}, concurrency=2) as server:
        tasks = [sheaf.Task(number) for number in range(100)]
        round = server.create("add", outputs={"n": sheaf.sum((), "int64"), }, tasks=tasks, failed_max=1000)
        thread = threading.Thread(target=storm)
        thread.start()
        time.sleep(3)
        stop.set()
        thread.join()
        result = round.result(timeout=90)
        # Each returns its number plus its attempt: what is over the sum of the numbers is the attempts that counted.
        assert result.num_clients == 100 and result["n"] >= sum(range(100)) + 100
        assert killed
    give_up_at = time.monotonic() + 10
    while processes_of(str(HERE / "served.py")):
        assert time.monotonic() < give_up_at, "a process of an executable outlived its worker"
        time.sleep(0.05)


def processes_of(path):
    found = []
    for process in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            words = (process / "cmdline").read_bytes().split(b"\0")
            if path.encode() in words:
                found.append(int(process.name))
        except OSError:
            pass
    return found


def test_a_worker_whose_host_of_processes_was_killed_says_so_and_ends(sheafd, tmp_path):
    command = [os.path.join(os.environ["SHEAF_BINARIES"], "sheaf-worker"), "--server", sheafd.address, "--scratch", tmp_path,
               "--serve", "unasked=true"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as worker:
        hosts = []
        give_up_at = time.monotonic() + 30
        while not hosts and time.monotonic() < give_up_at:
            time.sleep(0.01)
            children = pathlib.Path(f"/proc/{worker.pid}/task/{worker.pid}/children").read_text().split()
            hosts = [int(pid) for pid in children if pathlib.Path(f"/proc/{pid}/comm").read_text() == "sheaf-processes\n"]
        os.kill(hosts[0], signal.SIGKILL)
        assert worker.wait(30) == 1
        assert "was killed: ending, so that it is started anew" in worker.stderr.read()
    assert list(tmp_path.iterdir()) == []
