#!/usr/bin/env python3
"""Types what docs/guides/behind-a-proxy.md says, through a proxy that wants a password; then takes server and proxy away.

  behind_a_proxy_test.py FOLDER_OF_BINARIES

The hosts of the guide exist nowhere: whatever reaches the server has come by the proxy.
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
sys.path.insert(0, str(ROOT / "tests/e2e"))
import walkthrough_test  # noqa: E402

GUIDE = ROOT / "docs/guides/behind-a-proxy.md"
HTTP_ON_PAGE, PROXY_ON_PAGE, SERVER = "7434", "proxy.example.org:3128", "sheaf.example.org"
ROUND = """{"computation": {"name": "one_hot"},
  "aggregate": {"outputs": [{"name": "counters", "operator": "sum", "dtype": "INT64", "denseShape": [4]}]},
  "openSlots": {"count": 20, "task": {"payload": "Mw=="}}}"""


def certificates(directory):
    """As docs/guides/secure.md makes them, for the name of this guide's server."""
    page = (ROOT / "docs/guides/secure.md").read_text()
    script = re.search(r"```sh\n(openssl .*?)```", page, re.S).group(1).replace("DNS:localhost", f"DNS:{SERVER}")
    subprocess.run(["bash", "-euc", script], cwd=directory, check=True, capture_output=True)


def lines_of(page):
    for block in re.findall(r"```sh\n(.*?)```", page, re.S):
        yield from filter(None, map(str.strip, block.splitlines()))


class Shell(walkthrough_test.Shell):
    def __init__(self, binaries, directory):
        super().__init__(binaries, directory)
        del self.environment["SHEAF_LISTEN"], self.environment["SHEAF_SERVER"]
        self.http = walkthrough_test.free_port()
        self.proxies = []
        self.proxy = self.start_proxy("open")
        self.locked = self.start_proxy("locked", "me:s@crt")
        # Before there is a server; the others, as the guide on security says.
        self.run("(umask 077; sheafd --create-operator-token --data-dir sheaf-data > admin.token)")

    def start_proxy(self, name, *credentials):
        port, log = (pathlib.Path(self.directory) / f"{name}.{kind}" for kind in ("port", "requests"))
        self.proxies.append(subprocess.Popen([sys.executable, "-B", ROOT / "tests/e2e/connect_proxy.py", port, log, *credentials]))
        self.until("the proxy listens", port.exists)
        log.touch()
        return port.read_text()

    def until(self, what, holds):
        deadline = time.monotonic() + walkthrough_test.SECONDS_MAX
        while not holds():
            assert time.monotonic() < deadline, f"not in time: {what}\n{self.logs()}"
            time.sleep(0.05)

    def url(self):
        return f"https://{SERVER}:{self.http}"

    def sheaf(self, arguments, **variables):
        """The exit code, and what it says."""
        done = subprocess.run(["sheaf", *arguments.split()], cwd=self.directory, env={**self.environment, **variables},
                              stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=walkthrough_test.SECONDS_MAX,
                              executable=self.environment["PATH"].split(":")[0] + "/sheaf")
        return done.returncode, done.stdout + done.stderr

    def type(self, line):
        is_locked = f"@{PROXY_ON_PAGE}" in line
        line = line.replace(PROXY_ON_PAGE, self.locked if is_locked else self.proxy).replace(HTTP_ON_PAGE, self.http)
        line = line.replace("0.0.0.0", "127.0.0.1")
        if line.startswith("export "):
            for pair in line.removeprefix("export ").split():
                name, _, value = pair.partition("=")
                self.environment[name] = value
            return
        if "worker list" in line:
            self.until("the worker has come", lambda: " WAITING " in self.execute(line).stdout)
        super().type(line)
        if line.startswith("sheafd"):
            for name, role in (("edge", "worker"), ("training", "submitter")):
                if not (pathlib.Path(self.directory) / f"{name}.token").exists():
                    self.run(f"sheaf --server 127.0.0.1:{self.port} --tls-ca ca.pem --token-file admin.token token create {name} "
                             f"--role {role} --for default --to {name}.token")

    def wait_for_server(self):
        info = f"sheaf --server 127.0.0.1:{self.port} --tls-ca ca.pem --token-file admin.token server info"
        self.until("the server is up", lambda: self.execute(info).returncode == 0)

    def requests(self, name):
        return (pathlib.Path(self.directory) / f"{name}.requests").read_text()

    def kill(self):
        super().kill()
        for proxy in self.proxies:
            proxy.kill()
            proxy.wait()


def check_proxies(shell):
    """What the guide says of variables and errors."""
    tunnel = f"CONNECT {SERVER}:{shell.http} HTTP/1.1"
    assert tunnel in shell.requests("open") and tunnel in shell.requests("locked")
    assert "refused" not in shell.requests("locked"), shell.requests("locked")
    info = "--token-file admin.token server info"
    for wrong, says in [(f"http://{shell.locked}", "answered 407"), (f"http://me:wrong@{shell.locked}", "in HTTPS_PROXY"),
                        ("http://127.0.0.1:1", "http://127.0.0.1:1: Connection refused; check HTTPS_PROXY"),
                        ("http://nowhere.invalid:1", "no host of the name of the proxy")]:
        code, said = shell.sheaf(info, HTTPS_PROXY=wrong)
        assert code == 5 and says in said and "me:wrong" not in said, (wrong, said)
    # Without the proxy nobody knows the host.
    for exempt in (SERVER, ".example.org", "*", "a, example.org"):
        code, said = shell.sheaf(info, NO_PROXY=exempt)
        assert code == 5 and f"no host of this name: {SERVER}" in said, (exempt, said)
    code, said = shell.sheaf(info, NO_PROXY="other.example.org,10.0.0.0/8")
    assert code == 0, said
    # This machine is reached without one, whatever the environment says.
    code, said = shell.sheaf(f"--server https://127.0.0.1:{shell.http} {info}", HTTPS_PROXY="http://nowhere.invalid:1")
    assert code == 0, said
    # By a path, which this server does not have.
    code, said = shell.sheaf(f"--server {shell.url()}/elsewhere {info}")
    assert code != 0 and "/elsewhere/" in said, said


def check_round(shell):
    """A round of a worker behind the proxy, while the proxy, and then the server, go and come back."""
    (pathlib.Path(shell.directory) / "round.json").write_text(ROUND)
    code, said = shell.sheaf("--token-file training.token round create --wait -f round.json")
    assert code == 0 and "SUCCEEDED" in said, said + shell.logs()
    # The server: a tunnel leads nowhere, and says so.
    server = next(each for each in shell.background if each.args[0] == "sheafd")
    server.kill()
    server.wait()
    code, said = shell.sheaf("--token-file admin.token server info")
    assert code == 5 and f"the proxy http://{shell.locked} answered 502 Bad Gateway" in said, said
    shell.background.remove(server)
    shell.type(next(line for line in lines_of(GUIDE.read_text()) if line.startswith("sheafd")))
    started = time.monotonic()
    code, said = shell.sheaf("--token-file training.token round create --wait -f round.json")
    assert code == 0 and "SUCCEEDED" in said, said + shell.logs()
    print(f"a round through the proxy ended {time.monotonic() - started:.1f} s after the server was back")


def main(argv):
    if len(argv) != 2:
        print(__doc__, file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory() as directory:
        certificates(directory)
        shell = Shell(os.path.abspath(argv[1]), directory)
        try:
            for line in lines_of(GUIDE.read_text()):
                shell.type(line)
            check_proxies(shell)
            check_round(shell)
        finally:
            shell.kill()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))
