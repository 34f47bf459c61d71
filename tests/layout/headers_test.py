#!/usr/bin/env python3
"""Every header of ours compiles on its own.

  headers_test.py COMPILE_COMMANDS_JSON    after a build, for the generated headers
  headers_test.py --self-test COMPILER

A header with a source file of its name needs no test: the source includes it first (include_test.py holds that), so
the build has compiled it on its own. The others are compiled here, with the include folders of our sources.
"""

import concurrent.futures
import json
import os
import pathlib
import shlex
import shutil
import subprocess
import sys
import tempfile
import time

import include_test

def common_command(commands):
    """The compiler, and every include folder, definition and language flag that any of our files is compiled with."""
    compiler, kept = None, {}
    for command in commands:
        words = command.get("arguments") or shlex.split(command["command"])
        words = [word for word in words if os.path.basename(word) not in ("ccache", "sccache")]
        compiler = compiler or words[0]
        for word, following in zip(words[1:], words[2:] + [""]):
            if word == "-isystem":
                kept[(word, following)] = None
            elif word.startswith(("-I", "-D", "-std=")):
                kept[(word,)] = None
    return [compiler] + [word for words in kept for word in words]


def compile_alone(root, header, command, folder):
    """Nothing, or what the compiler says. With ccache what was compiled once is not compiled again."""
    unit = folder / (header.replace("/", "_") + ".cc")
    unit.write_text(f'#include "{header}"\n')
    if shutil.which("ccache"):
        command = ["ccache"] + command + ["-O0", "-c", unit, "-o", unit.with_suffix(".o")]
    else:
        command = command + ["-O0", "-fsyntax-only", unit]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True)
    return done.stderr if done.returncode else None


def unproven_headers(names, commands):
    """Headers without a source file; and those of the tests where headers are precompiled: there a source file proves
    nothing. The product's are proven by every build without precompiled headers: any with ccache, such as CI's."""
    sources = set(names)
    precompiled = any("cmake_pch" in json.dumps(command) for command in commands)
    return [n for n in names if n.endswith(".h") and
            (n.removesuffix(".h") + ".cc" not in sources or (precompiled and n.startswith("tests/")))]


def check(root, commands, folder):
    folder.mkdir(exist_ok=True)
    command = common_command(commands)
    headers = unproven_headers(include_test.list_files(root), commands)
    with concurrent.futures.ThreadPoolExecutor(max_workers=2) as pool:
        errors = pool.map(lambda h: compile_alone(root, h, command, folder), headers)
        return len(headers), [f"{h} does not compile on its own:\n{e}" for h, e in zip(headers, errors) if e]


def self_test(compiler):
    with tempfile.TemporaryDirectory() as folder:
        root = pathlib.Path(folder)
        (root / "good.h").write_text("#pragma once\n#include <string>\nstd::string Text();\n")
        (root / "bad.h").write_text("#pragma once\nstd::string Text();\n")
        (root / "main.cc").write_text("int main() {}\n")
        commands = [{"file": str(root / "main.cc"), "command": f"{compiler} -std=c++20 -I{root} -c main.cc"}]
        count, errors = check(root, commands, root / "units")
    caught = count == 2 and len(errors) == 1 and errors[0].startswith("bad.h")
    print("a header that lacks an include is caught" if caught else f"not caught; found {errors}")
    return 0 if caught else 1


def main(argv):
    if len(argv) == 3 and argv[1] == "--self-test":
        return self_test(argv[2])
    if len(argv) != 2:
        print(__doc__, file=sys.stderr)
        return 2
    start = time.monotonic()
    root = pathlib.Path(__file__).resolve().parents[2]
    commands = [c for c in json.loads(pathlib.Path(argv[1]).read_text()) if c["file"].startswith(f"{root}/")]
    ours = [c for c in commands if "/build/" not in c["file"].removeprefix(str(root))]
    count, errors = check(root, ours, pathlib.Path(argv[1]).parent / "headers_test")
    print("\n".join(errors))
    print(f"{count} headers compiled, {len(errors)} do not compile alone; {time.monotonic() - start:.0f} s")
    return 1 if errors else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))
