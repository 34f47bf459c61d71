"""What the tests share: a server, workers in this process, and the folders of the build."""

import contextlib
import os
import pathlib
import subprocess
import time

import hypothesis
import pytest

import sheaf
from grpc_worker import GrpcWorker

SECONDS_MAX = 30

# What fails is printed, to be given to hypothesis.reproduce_failure; nothing is kept in the tree. No example has a
# deadline: the machine may be busy with something else.
hypothesis.settings.register_profile("sheaf", database=None, deadline=None, print_blob=True)
hypothesis.settings.load_profile("sheaf")


class Sheafd:
    """A sheafd of a test's own, which can be killed and started again under its address."""

    def __init__(self, directory, *options):
        self.directory, self.options = pathlib.Path(directory), options
        self.address, self._http, self.process = "127.0.0.1:0", "127.0.0.1:0", None
        self.start()

    def url(self, scheme="http"):
        """Of its HTTP/1.1; the same after a restart."""
        return f"{scheme}://{self._http}"

    def start(self):
        port_file, http_file = self.directory / "port", self.directory / "http-port"
        port_file.unlink(missing_ok=True)
        http_file.unlink(missing_ok=True)
        with open(self.directory / "sheafd.log", "ab") as log:
            self.process = subprocess.Popen(
                [os.path.join(os.environ["SHEAF_BINARIES"], "sheafd"), "--listen", self.address, "--port-file", port_file,
                 "--http", self._http, "--http-port-file", http_file, "--data-dir", self.directory / "store",
                 "--log-level", "warning", *self.options], stdout=log, stderr=log)
        give_up_at = time.monotonic() + SECONDS_MAX
        while not (port_file.exists() and http_file.exists()):
            assert self.process.poll() is None and time.monotonic() < give_up_at, self.log()
            time.sleep(0.005)
        self.address, self._http = port_file.read_text().strip(), http_file.read_text().strip()

    def log(self):
        return (self.directory / "sheafd.log").read_text()

    def kill(self):
        self.process.kill()
        self.process.wait()


@pytest.fixture(scope="session")
def sheafd(tmp_path_factory):
    """One server for all tests, in memory."""
    process = Sheafd(tmp_path_factory.mktemp("sheafd"), "--store", "memory")
    yield process
    process.process.terminate()
    process.process.wait()


@pytest.fixture(params=["grpc", "http"])
def address(request, sheafd):
    """Of that server, by each wire that there is."""
    return sheafd.address if request.param == "grpc" else sheafd.url()


@pytest.fixture
def server(address):
    with sheaf.connect(address) as connected:
        yield connected


@pytest.fixture
def offer(sheafd):
    """offer(name=function): a worker in this process that computes with these functions."""
    with contextlib.ExitStack() as stack:
        def start(address=sheafd.address, **functions):
            worker = GrpcWorker(address, functions)
            stack.callback(worker.close)
            return worker

        yield start
