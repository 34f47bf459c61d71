#!/usr/bin/env python3
"""Puts what our programs really print into the documentation. A layout test fails while the two differ.

A block below a line  <!-- output of `sheafd --help` -->  belongs to this script: it runs the command with the binaries
of BIN, in an empty environment, and replaces the block. The line may go on with  without `Options`  or  only `Options`
to leave out all paragraphs, or all but those, that begin so.

  docs/reference/generate_outputs.py BIN            rewrites the pages; BIN is for example build/release/bin
  docs/reference/generate_outputs.py BIN --check    exit 1 if it would change one
"""

import pathlib
import re
import shlex
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
BLOCK = re.compile(r"(<!-- output of `([^`]+)`(?: (without|only) `([^`]+)`)? -->\n\n?)```text\n.*?```", re.S)


def output_of(command, binaries):
    words = shlex.split(command)
    done = subprocess.run([binaries / words[0]] + words[1:], env={}, stdin=subprocess.DEVNULL, capture_output=True,
                          text=True, timeout=30)
    if done.returncode != 0:
        raise SystemExit(f"{command} ended with {done.returncode}: {done.stderr.strip()}")
    return done.stdout.rstrip()


def refreshed(text, binaries):
    def block(match):
        head, command, choice, beginning = match.groups()
        paragraphs = output_of(command, binaries).split("\n\n")
        if choice:
            paragraphs = [p for p in paragraphs if p.startswith(beginning) == (choice == "only")]
        return head + "```text\n" + "\n\n".join(paragraphs) + "\n```"

    return BLOCK.sub(block, text)


def main(argv):
    if len(argv) < 2:
        print(__doc__, file=sys.stderr)
        return 2
    binaries, stale = pathlib.Path(argv[1]).resolve(), []
    for page in sorted(ROOT.glob("docs/**/*.md")):
        text = page.read_text()
        new_text = refreshed(text, binaries)
        if new_text != text:
            stale.append(page.relative_to(ROOT))
            if "--check" not in argv:
                page.write_text(new_text)
    if "--check" in argv and stale:
        print(f"the programs print something else now than {', '.join(map(str, stale))} says; "
              "run docs/reference/generate_outputs.py build/release/bin")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))
