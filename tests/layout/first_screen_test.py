#!/usr/bin/env python3
"""Types the session on README.md's first screen, and checks that it shows what the page says.

  first_screen_test.py FOLDER_OF_BINARIES

round.json is the page's `json` block; the commands are those behind "$ " in its `console` block, in one shell, on a free
port and in a temporary directory. Prints what they print.
"""

import os
import pathlib
import re
import subprocess
import sys
import tempfile

import walkthrough_test

ROOT = pathlib.Path(__file__).resolve().parents[2]
SECONDS_MAX = 120


def block(page, language):
    return re.search(rf"^```{language}\n(.*?)^```", page, re.S | re.M).group(1)


def digests(text):
    return re.findall(r"^([0-9a-f]{64})  \S+\.safetensors$", text, re.M)


def run(spec, session, binaries):
    commands = [line[2:] for line in session.splitlines() if line.startswith("$ ")]
    # What runs in the background would end in order, and must not outlive this.
    script = "".join(f"echo {walkthrough_test.shlex.quote('$ ' + line)}\n{line}\n" for line in commands)
    script = f"trap 'kill $(jobs -p)' EXIT\n{script}"
    with tempfile.TemporaryDirectory() as directory:
        pathlib.Path(directory, "round.json").write_text(spec)
        address = f"127.0.0.1:{walkthrough_test.free_port()}"
        environment = {"PATH": f"{os.path.abspath(binaries)}:/usr/bin:/bin", "HOME": directory, "SHEAF_LISTEN": address,
                       "SHEAF_SERVER": address}
        done = subprocess.run(["bash", "-c", script], cwd=directory, env=environment, stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=SECONDS_MAX)
        logs = "".join(path.read_text() for path in sorted(pathlib.Path(directory).glob("*.log")))
    return done.stdout, logs


def main(argv):
    if len(argv) != 2:
        print(__doc__, file=sys.stderr)
        return 2
    page = (ROOT / "README.md").read_text()
    spec, session = block(page, "json"), block(page, "console")
    num_tasks = int(re.search(r'"count": (\d+)', spec).group(1))
    shown, logs = run(spec, session, argv[1])
    print(shown)
    assert "kill -9" in session, "the page kills nothing"
    # The same bytes from a round whose server was killed and from one that nothing disturbed, here and on the page.
    for text in (session, shown):
        assert len(digests(text)) == 2 and len(set(digests(text))) == 1, f"the digests differ\n{logs}"
        assert re.search(rf"^ +{num_tasks}$", text, re.M), f"not every task was counted once\n{logs}"
    assert digests(session) == digests(shown), "the page shows another digest"
    # The kill came in the middle of the round.
    assert "live rounds that go on: 1" in logs, f"the round had ended before the kill\n{logs}"
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))
