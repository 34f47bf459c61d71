"""A whole federation in a `with` block."""

import os
import pathlib
import subprocess
import sys
import time

import pytest

import sheaf
from sheaf import local_federation


def running(directory):
    """The processes that work in a folder."""
    found = []
    for process in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            if os.readlink(process / "cwd") == str(directory):
                found.append(int(process.name))
        except OSError:
            pass
    return found


def count(server, tasks):
    """Each task adds 1 to the last of four counters."""
    return server.run("one_hot", outputs={"counters": sheaf.sum(4, "int64")},
                      tasks=sheaf.Slots(tasks, task=sheaf.Task(3)))["counters"]


def test_a_federation_computes_as_long_as_its_block_lasts(tmp_path):
    with sheaf.local(workers=3, directory=tmp_path) as server:
        assert count(server, 20).tolist() == [0, 0, 0, 20]
        assert len(running(tmp_path)) == 4
    assert running(tmp_path) == [] and (tmp_path / "sheafd.log").exists()


def test_a_federation_ends_with_the_process_that_is_killed(tmp_path):
    program = f"import sheaf, time\nwith sheaf.local(directory={str(tmp_path)!r}) as server:\n  print(server, flush=True)\n  time.sleep(60)"
    process = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
    assert "sheaf.Server at 127.0.0.1" in process.stdout.readline()
    process.kill()
    process.wait()
    give_up_at = time.monotonic() + 20
    while running(tmp_path):
        assert time.monotonic() < give_up_at
        time.sleep(0.02)


def test_what_does_not_start_is_said_with_its_last_words(monkeypatch):
    with pytest.raises(sheaf.Error, match="(?s)worker-1 ended with 2; it wrote:.*no-such-option"):
        with sheaf.local(workers=1, worker_options=["--no-such-option"]):
            pass
    with pytest.raises(sheaf.Error, match="(?s)sheafd ended with 2; it wrote:.*store"):
        with sheaf.local(store="nowhere"):
            pass
    with pytest.raises(sheaf.InvalidArgument, match="there are 2 workers, and data for 1"):
        with sheaf.local(workers=2, data=[{}]):
            pass
    monkeypatch.setenv("SHEAF_BINARIES", "")
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setattr(local_federation, "__file__", "/nowhere/python/sheaf/local_federation.py")
    with pytest.raises(sheaf.NotFound, match="there is no sheafd on the PATH"):
        with sheaf.local():
            pass


NOTEBOOK = """
import numpy, sheaf

STEP = 2.5

def scaled(value):
    return numpy.float64(STEP * value)

@sheaf.computation
def cell(task):
    return {"x": scaled(task.payload["x"])}

with sheaf.local(workers=1, computations=[cell]) as server:
    result = server.run("cell", outputs={"x": sheaf.sum(())}, tasks=[sheaf.Task({"x": 1}), sheaf.Task({"x": 3})], progress=False)
    print(float(result["x"]))
"""


def run_from_no_file(program, **environment):
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env={**os.environ, **environment})


def test_a_function_that_no_file_defines_is_copied_to_the_workers():
    pytest.importorskip("cloudpickle")
    done = run_from_no_file(NOTEBOOK)
    assert done.stdout == "10.0\n", done.stderr


def test_a_function_that_no_file_defines_is_refused_without_cloudpickle(tmp_path):
    (tmp_path / "cloudpickle.py").write_text("raise ImportError")
    done = run_from_no_file(NOTEBOOK, PYTHONPATH=f"{tmp_path}:{os.environ.get('PYTHONPATH', '')}")
    assert "InvalidArgument: cell is defined in no file" in done.stderr and "python3-cloudpickle" in done.stderr
