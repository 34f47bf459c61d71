#!/usr/bin/env python3
"""Types what docs/guides/watch-it.md says, and holds what the server then serves to Prometheus' own rules.

  watch_it_test.py FOLDER_OF_BINARIES

Every line of the guide's `sh` blocks is run, in order, on free ports and in a temporary directory. promtool's lines are
left out where there is none (`deploy/install-packages.sh prometheus` installs it).
"""

import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

import monitoring_test
import walkthrough_test

ROOT = pathlib.Path(__file__).resolve().parents[2]
GUIDE = ROOT / "docs/guides/watch-it.md"
HTTP_ON_PAGE = "7480"

# (part of a line, what it must print)
PRINTS = [
    ("'<title>'", "<title>Sheaf</title>"),
    ("'^sheaf_tasks'", 'sheaf_tasks{population="default",state="QUEUED"} 0'),
    ("'^sheaf_build_info'", 'sheaf_build_info{version="'),
]


class Shell(walkthrough_test.Shell):
    def __init__(self, binaries, directory):
        super().__init__(binaries, directory)
        self.http = walkthrough_test.free_port()
        for name in ("deploy", "tests"):
            (pathlib.Path(directory) / name).symlink_to(ROOT / name)
        if promtool := shutil.which("promtool"):
            self.environment["PATH"] += ":" + os.path.dirname(promtool)

    def type(self, line):
        if "prometheus.token" in line and "curl" not in line:
            # The first token must be an operator's; the guide on security says so.
            self.run("sheaf token create admin --role operator --to admin.token")
            self.environment["SHEAF_TOKEN_FILE"] = "admin.token"
        if "ROUND" in line and self.round is None:
            # Whoever reads the guide has one.
            self.run("sheaf server selftest --loops 1")
            self.round = re.search(r"\br-\w{8}\b", self.execute("sheaf round list").stdout).group(0)
        line = line.replace(HTTP_ON_PAGE, self.http)
        if line.startswith("promtool") and not shutil.which("promtool"):
            return print(f"left out, there is no promtool: {line}")
        if not line.startswith("curl"):
            return super().type(line)
        said = self.execute(line)
        print(f"$ {line}\n{said.stdout}{said.stderr}", flush=True)
        assert said.returncode == 0, f"ended with {said.returncode}\n{self.logs()}"
        for part, text in PRINTS:
            assert part not in line or text in said.stdout, f"does not print {text}"

    def curl(self, *options):
        return subprocess.run(["curl", "-s", "-i", *options, f"http://127.0.0.1:{self.http}/metrics"],
                              cwd=self.directory, capture_output=True, text=True, timeout=30).stdout


def lines_of(page):
    for block in re.findall(r"```sh\n(.*?)```", page, re.S):
        yield from filter(None, map(str.strip, block.splitlines()))


def unknown_metrics(page):
    known = monitoring_test.metrics_of((ROOT / "docs/reference/metrics.md").read_text())
    named = set(re.findall(r"`((?:sheaf|process)_[a-z_]+)`", page))
    # Of a histogram the page names the whole.
    return sorted(name for name in named if name not in known and name + "_bucket" not in known)


def check_served(shell):
    """Who may ask, and whether Prometheus takes it."""
    assert "HTTP/1.1 401" in shell.curl(), "whoever has no token is served"
    shell.run("sheaf token create lab --role viewer --for lab --to lab.token")
    shell.run("sheaf token create edge --role worker --to edge.token")
    for name in ("lab.token", "edge.token"):
        secret = (pathlib.Path(shell.directory) / name).read_text().strip()
        assert "HTTP/1.1 403" in shell.curl("-H", f"authorization: Bearer {secret}"), f"{name} is served"
    secret = (pathlib.Path(shell.directory) / "prometheus.token").read_text().strip()
    head, _, text = shell.curl("-H", f"authorization: Bearer {secret}").replace("\r\n", "\n").partition("\n\n")
    assert "HTTP/1.1 200" in head and "content-type: text/plain; version=0.0.4; charset=utf-8" in head.lower(), head
    if promtool := shutil.which("promtool"):
        done = subprocess.run([promtool, "check", "metrics"], input=text, capture_output=True, text=True)
        assert done.returncode == 0, f"promtool check metrics:\n{done.stdout}{done.stderr}"


def main(argv):
    if len(argv) != 2:
        print(__doc__, file=sys.stderr)
        return 2
    page = GUIDE.read_text()
    assert not unknown_metrics(page), f"the guide names {unknown_metrics(page)}, which there is not"
    with tempfile.TemporaryDirectory() as directory:
        shell = Shell(os.path.abspath(argv[1]), directory)
        try:
            for line in lines_of(page):
                shell.type(line)
            check_served(shell)
            assert "of the core's thread, more than" not in shell.logs(), shell.logs()
        finally:
            shell.kill()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))
