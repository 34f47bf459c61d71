#!/usr/bin/env python3
"""Types what docs/start.md says from "A server of your own" on, and checks that it holds.

  walkthrough_test.py FOLDER_OF_BINARIES

Every line of the pages' `sh` blocks is run, in order, on a free port and in a temporary directory. ROUND stands for the
round created last. Lines that are meant to fail, and what must be printed, are in the tables below.
"""

import os
import pathlib
import re
import shlex
import signal
import socket
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
PORT_ON_PAGE = "7433"
SECONDS_MAX = 60

# (part of a line, exit code it must end with)
FAILS = [("coordinate_average", 2)]
# (part of a line, what it must print)
PRINTS = [
    ("numpy.load", "'per_client.values': [1.0, 0.6666666865348816, 0.3333333432674408]"),
    ("numpy.load", "'per_coordinate.values': [1.0, 1.0, 1.0]"),
    ("numpy.load", "'sum': [0.0, 2.0, 0.0, 1.0]"),
    ("coordinate_average", "coordinate_mean"),
    ("round explain", "gpu"),
]


def lines_of(page):
    """The shell lines of sections 3 and later."""
    text = page.read_text()
    text = text[text.index("\n## 3. "):]
    for block in re.findall(r"```sh\n(.*?)```", text, re.S):
        for line in block.splitlines():
            if line := re.sub(r"\s+# .*$", "", line).strip():
                yield line


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return str(probe.getsockname()[1])


class Shell:
    """Runs lines as a person at a terminal would: one after the other, some in the background."""

    def __init__(self, binaries, directory):
        self.port = free_port()
        self.environment = {
            "PATH": f"{binaries}:/usr/bin:/bin",
            "HOME": directory,
            "SHEAF_LISTEN": f"127.0.0.1:{self.port}",
            "SHEAF_SERVER": f"127.0.0.1:{self.port}",
        }
        self.directory, self.background, self.round = directory, [], None
        (pathlib.Path(directory) / "docs").symlink_to(ROOT / "docs")

    def type(self, line):
        line = line.replace(PORT_ON_PAGE, self.port)
        if "ROUND" in line:
            line = line.replace("ROUND", self.round)
        if line.endswith("&"):
            return self.start(line.removesuffix("&"))
        if line.startswith("kill "):
            return self.stop()
        return self.run(line)

    def start(self, line):
        log = open(pathlib.Path(self.directory) / f"{len(self.background)}.log", "w")
        self.background.append(subprocess.Popen(shlex.split(line), cwd=self.directory, env=self.environment,
                                                stdin=subprocess.DEVNULL, stdout=log, stderr=log))
        if line.startswith("sheafd"):
            self.wait_for_server()

    def wait_for_server(self):
        deadline = time.monotonic() + SECONDS_MAX
        while self.execute("sheaf server info").returncode != 0:
            assert time.monotonic() < deadline, f"the server did not come up: {self.logs()}"

    def execute(self, line):
        return subprocess.run(["bash", "-c", line], cwd=self.directory, env=self.environment, stdin=subprocess.DEVNULL,
                              capture_output=True, text=True, timeout=SECONDS_MAX)

    def run(self, line):
        done = self.execute(line)
        said = done.stdout + done.stderr
        print(f"$ {line}\n{said}", flush=True)
        expected = next((code for part, code in FAILS if part in line), 0)
        assert done.returncode == expected, f"ended with {done.returncode}, not {expected}\n{self.logs()}"
        for part, text in PRINTS:
            assert part not in line or text in said, f"does not print {text}"
        if "round create" in line and done.returncode == 0:
            self.round = re.search(r"\br-\w{8}\b", done.stdout).group(0)

    def stop(self):
        """Workers first, so that they can say goodbye."""
        for process in reversed(self.background):
            process.send_signal(signal.SIGTERM)
            assert process.wait(SECONDS_MAX) == 0, f"{process.args} ended with {process.returncode}\n{self.logs()}"
        self.background = []

    def kill(self):
        for process in self.background:
            process.kill()
            process.wait()

    def logs(self):
        return "\n".join(path.read_text() for path in sorted(pathlib.Path(self.directory).glob("*.log")))


def main(argv):
    if len(argv) != 2:
        print(__doc__, file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory() as directory:
        shell = Shell(os.path.abspath(argv[1]), directory)
        try:
            for line in lines_of(ROOT / "docs/start.md"):
                shell.type(line)
            assert not shell.background, "the page leaves processes running"
            # As tests/slow_batches.h.
            assert "of the core's thread, more than" not in shell.logs(), shell.logs()
        finally:
            shell.kill()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))
