#!/usr/bin/env python3
"""Types what docs/guides/scale-out.md says, with a PostgreSQL of its own and Debian's HAProxy; its owner is killed on the way.

  scale_out_test.py FOLDER_OF_BINARIES
"""

import os
import pathlib
import re
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/layout"))
import walkthrough_test  # noqa: E402

GUIDE = ROOT / "docs/guides/scale-out.md"
STORE_ON_PAGE = "postgresql://sheaf@db.example/sheaf"
PORTS_ON_PAGE = ["7400", "7433", "7434", "7443", "7444", "7453", "7454"]
HAPROXY = "/usr/sbin/haproxy"


class Cluster:
    """tests/postgres/cluster.py, with an empty database."""

    def __enter__(self):
        self.process = subprocess.Popen([sys.executable, "-B", ROOT / "tests/postgres/cluster.py"], stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, text=True)
        _, port, user = self.process.stdout.readline().split()
        self.store = f"postgresql://{user}@127.0.0.1:{port}/postgres"
        return self

    def __exit__(self, *_):
        self.process.stdin.close()
        self.process.wait()


class Shell(walkthrough_test.Shell):
    def __init__(self, binaries, directory, store):
        super().__init__(binaries, directory)
        del self.environment["SHEAF_LISTEN"], self.environment["SHEAF_SERVER"]
        self.environment["PATH"] += ":/usr/sbin"
        self.store = store
        self.ports = {on_page: walkthrough_test.free_port() for on_page in PORTS_ON_PAGE}

    def local(self, text):
        text = text.replace(STORE_ON_PAGE, self.store)
        for on_page, port in self.ports.items():
            text = text.replace(f"127.0.0.1:{on_page}", f"127.0.0.1:{port}").replace(f" port {on_page}", f" port {port}")
        return text

    def until(self, what, holds):
        deadline = time.monotonic() + walkthrough_test.SECONDS_MAX
        while not holds():
            assert time.monotonic() < deadline, f"not in time: {what}\n{self.logs()}"
            time.sleep(0.05)

    def process_of(self, word):
        return next(each for each in self.background if any(word in argument for argument in each.args))

    def type(self, line):
        line = self.local(line)
        if line.startswith("export "):
            name, _, value = line.removeprefix("export ").partition("=")
            self.environment[name] = value
        elif line.startswith("sleep "):
            # The shell of a person has jobs; here they are processes of this one.
            seconds, pattern = re.fullmatch(r"sleep (\d+); kill -9 \$\(pgrep -f (\S+)\)", line).groups()
            time.sleep(int(seconds))
            self.process_of(pattern).kill()
        elif line.startswith("wait %"):
            process = self.process_of(line.removeprefix("wait %"))
            assert process.wait(walkthrough_test.SECONDS_MAX) == 0, self.logs()
            self.background.remove(process)
        elif line.startswith("kill %"):
            process = self.process_of(line.removeprefix("kill %"))
            process.terminate()
            process.wait(walkthrough_test.SECONDS_MAX)
            self.background.remove(process)
        elif line.startswith("sheafd"):
            self.start_and_wait(line, re.search(r"--listen (\S+)", line).group(1))
        elif line.startswith("haproxy"):
            self.start_and_wait(line, "127.0.0.1:" + self.ports["7400"])
        else:
            super().type(line)

    def start_and_wait(self, line, address):
        """As a person does, who is slower than a server."""
        self.start(line.removesuffix("&"))
        self.until("calls are taken", lambda: self.execute(f"sheaf --server {address} server info").returncode == 0)

    def wait_for_server(self):
        """Each has an address of its own."""


def blocks_of(page):
    """Lines to type, and the file that is to be written before those behind it."""
    for kind, block in re.findall(r"```(sh|haproxy)\n(.*?)```", page, re.S):
        yield from [("file", block)] if kind == "haproxy" else [("line", line) for line in block.splitlines() if line.strip()]


def main(argv):
    if len(argv) != 2:
        print(__doc__, file=sys.stderr)
        return 2
    assert os.path.exists(HAPROXY), f"{HAPROXY} is missing: deploy/install-packages.sh test"
    with tempfile.TemporaryDirectory() as directory, Cluster() as cluster:
        shell = Shell(os.path.abspath(argv[1]), directory, cluster.store)
        try:
            for kind, text in blocks_of(GUIDE.read_text()):
                if kind == "file":
                    (pathlib.Path(directory) / "haproxy.cfg").write_text(shell.local(text))
                else:
                    shell.type(text.strip())
            said = shell.logs()
            assert re.search(r"Duplicated:\s+0\b.*Lost:\s+0\b", said, re.S), said
            owners = re.findall(r"listening on (\S+), HTTP on \S+, data in", said)
            # The first was killed, and the second drained.
            assert len(owners) == 3 and len(set(owners)) == 3, said
            assert said.count("forwarding calls to the server that owns the store") == 2, said
            # The one that is left takes over from the owner that stops.
            owner = shell.process_of(owners[-1])
            owner.terminate()
            assert owner.wait(walkthrough_test.SECONDS_MAX) == 0, said
            started = time.monotonic()
            shell.until("the last server serves", lambda: shell.execute("sheaf server info").returncode == 0)
            print(f"served again {time.monotonic() - started:.2f} s after the owner had stopped")
        finally:
            shell.kill()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))
