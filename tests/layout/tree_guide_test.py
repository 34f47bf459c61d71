#!/usr/bin/env python3
"""Types what docs/guides/tree.md says: three servers, two workers, two relays.

  tree_guide_test.py FOLDER_OF_BINARIES
"""

import os
import pathlib
import re
import sys
import tempfile
import time

import walkthrough_test

GUIDE = pathlib.Path(__file__).resolve().parents[2] / "docs/guides/tree.md"
PORTS_ON_PAGE = ["7433", "7443", "7453"]
# (part of a line, what it must print)
walkthrough_test.PRINTS = [
    ("numpy.load", "[0.0, 6.0, 0.0, 0.0]"),
    ("round describe", "2 of 2, combining 6 clients"),
    ("round list", "SUCCEEDED"),
]


class Shell(walkthrough_test.Shell):
    def __init__(self, binaries, directory):
        super().__init__(binaries, directory)
        del self.environment["SHEAF_LISTEN"]
        self.ports = {on_page: walkthrough_test.free_port() for on_page in PORTS_ON_PAGE}
        self.environment["SHEAF_SERVER"] = self.local("127.0.0.1:7433")

    def local(self, line):
        for on_page, port in self.ports.items():
            line = line.replace(f"127.0.0.1:{on_page}", f"127.0.0.1:{port}")
        return line

    def type(self, line):
        line = self.local(line).replace("ROUND", self.round or "")
        if line.endswith("&"):
            return self.start(line.removesuffix("&"))
        return self.run(line)

    def start(self, line):
        super().start(line)
        if listen := re.search(r"--listen (\S+)", line):
            self.wait_for(listen.group(1))

    def wait_for_server(self):
        """Each has an address of its own."""

    def wait_for(self, address):
        deadline = time.monotonic() + walkthrough_test.SECONDS_MAX
        while self.execute(f"sheaf --server {address} server info").returncode != 0:
            assert time.monotonic() < deadline, self.logs()


def main(argv):
    if len(argv) != 2:
        print(__doc__, file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory() as directory:
        shell = Shell(os.path.abspath(argv[1]), directory)
        try:
            for block in re.findall(r"```sh\n(.*?)```", GUIDE.read_text(), re.S):
                for line in filter(None, map(str.strip, block.splitlines())):
                    shell.type(line)
            shell.stop()
            assert "of the core's thread, more than" not in shell.logs(), shell.logs()
        finally:
            shell.kill()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))
