#!/usr/bin/env python3
"""Runs tests of the dashboard in Node.

  run_tests.py FOLDER_OF_BINARIES TEST_FILE...

Exit 77 (skipped) where Node or the packages of web/ are missing: `npm ci` in web/ brings them.
"""

import os
import pathlib
import shutil
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
WEB = HERE.parents[1] / "web"


def main(arguments: list[str]) -> int:
    if len(arguments) < 2:
        print(__doc__, file=sys.stderr)
        return 2
    binaries, *files = arguments
    for program, package in [("node", "nodejs"), ("protoc", "protobuf-compiler")]:
        if shutil.which(program) is None:
            print(f"SKIP: there is no {program}; Debian's package {package} brings it")
            return 77
    for package in [WEB, HERE.parents[1] / "sdk/js"]:
        if not (package / "node_modules").is_dir():
            where = package.relative_to(HERE.parents[1])
            print(f"SKIP: {where} has no node_modules; `npm ci` in {where} brings the packages that it is built with")
            return 77
    environment = os.environ | {"SHEAF_BINARIES": os.path.abspath(binaries), "SHEAF_SOURCE": str(HERE.parents[1])}
    return subprocess.run(["node", str(HERE / "run_tests.mjs"), *files], env=environment).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
