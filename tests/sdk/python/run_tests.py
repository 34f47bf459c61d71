#!/usr/bin/env python3
"""Runs tests of the Python package with pytest, against the package and the programs of a build.

  run_tests.py FOLDER_OF_PACKAGE FOLDER_OF_BINARIES TEST_FILE...

Exit 77 (skipped) where a Debian package is missing: deploy/install-packages.sh python test brings them.
"""

import importlib
import os
import sys

NEEDED = ["google.protobuf", "grpc", "hypothesis", "numpy", "pytest", "scipy", "sklearn", "tqdm"]


def main(arguments: list[str]) -> int:
    if len(arguments) < 3:
        print(__doc__, file=sys.stderr)
        return 2
    package, binaries, *files = arguments
    for name in NEEDED:
        try:
            importlib.import_module(name)
        except ImportError as missing:
            print(f"skipped: {missing}; deploy/install-packages.sh python test brings it")
            return 77
    # Also for the processes that tests start.
    package = os.path.abspath(package)
    os.environ["PYTHONPATH"] = package
    os.environ["PYTHONDONTWRITEBYTECODE"] = "1"
    os.environ["SHEAF_BINARIES"] = os.path.abspath(binaries)
    sys.path.insert(0, package)
    import pytest

    folder = os.path.dirname(os.path.abspath(__file__))
    return int(pytest.main(["-q", "-p", "no:cacheprovider", "-o", "faulthandler_timeout=60", "--durations=3", "--rootdir", folder,
                            *(os.path.join(folder, file) for file in files)]))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
