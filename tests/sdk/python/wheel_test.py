#!/usr/bin/env python3
"""A wheel is built with Debian's tools and installed into a virtual environment, both without a network.

  wheel_test.py FOLDER_OF_PACKAGE

Exit 77 (skipped) where a tool is missing: deploy/install-packages.sh python test brings them.
"""

import importlib.util
import pathlib
import shutil
import subprocess
import sys
import tempfile
import zipfile

PROGRAM = """
import sheaf, sheaf.aio, sheaf.v1.round_pb2
assert sheaf.__file__.startswith({venv!r}), sheaf.__file__
assert sheaf.__version__ == {version!r}
sheaf.connect("127.0.0.1:1").close()
print(sheaf.__version__)
"""


def run(*command, cwd=None):
    # Whoever looks for a package index finds nobody there.
    environment = {"PATH": "/usr/bin:/bin", "PIP_NO_INDEX": "1", "PIP_DISABLE_PIP_VERSION_CHECK": "1", "HOME": cwd or "/",
                   "http_proxy": "http://127.0.0.1:1", "https_proxy": "http://127.0.0.1:1"}
    done = subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
    return done.stdout


def main(arguments):
    for module in ("build", "ensurepip", "setuptools", "wheel"):
        if importlib.util.find_spec(module) is None:
            print(f"skipped: there is no {module} here; deploy/install-packages.sh python test brings it")
            return 77
    package = pathlib.Path(arguments[0])
    with tempfile.TemporaryDirectory() as directory:
        # A copy: building leaves things behind.
        source = shutil.copytree(package, f"{directory}/source", ignore=shutil.ignore_patterns("build", "dist", "*.egg-info"))
        run(sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", directory, cwd=source)
        wheel, = pathlib.Path(directory).glob("sheaf-*.whl")
        version = wheel.name.split("-")[1]
        names = zipfile.ZipFile(wheel).namelist()
        missing = [each.name for each in (package / "sheaf").iterdir() if each.is_file() and f"sheaf/{each.name}" not in names]
        assert not missing, f"the wheel lacks {missing}"
        assert "sheaf/v1/round_pb2.pyi" in names
        venv = f"{directory}/venv"
        # Debian's numpy, grpcio and protobuf are seen.
        run(sys.executable, "-m", "venv", "--system-site-packages", venv)
        run(f"{venv}/bin/pip", "install", "--no-index", str(wheel))
        (pathlib.Path(directory) / "program.py").write_text(PROGRAM.format(venv=venv, version=version))
        print(f"{wheel.name}: {wheel.stat().st_size} bytes,", run(f"{venv}/bin/python", "-I", f"{directory}/program.py").strip())
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
