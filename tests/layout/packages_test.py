#!/usr/bin/env python3
"""deploy/packages.txt is complete: on a new Debian machine nothing that we include, find, run or link would be missing.

  packages_test.py [FOLDER OF BINARIES]
  packages_test.py --self-test

apt is asked what it would install for our list on a machine that has nothing ("--simulate" with an empty status
file). Then every file we use must belong to a package of that answer. Exit 77 (skipped) where apt or its index is missing.
"""

import glob
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

import include_test
import rules

ROOT = pathlib.Path(__file__).resolve().parents[2]

# What CMake finds by a name that is not a file's: find_package(NAME) -> a file of it.
PACKAGES_FOUND = {
    "Threads": "libc.so",
    "Protobuf": "google/protobuf/message.h",
    "SQLite3": "sqlite3.h",
    "PostgreSQL": "libpq-fe.h",
    "OpenSSL": "openssl/ssl.h",
    "Boost": "boost/version.hpp",
    "CURL": "curl/curl.h",
    "PkgConfig": "/usr/bin/pkg-config",
    "Python3": "/usr/bin/python3",
    "Eigen3": "/usr/share/eigen3/cmake/Eigen3Config.cmake",
}
# What scripts, CMake and tests run.
PROGRAMS = ["g++", "cmake", "ctest", "ninja", "pkg-config", "protoc", "grpc_cpp_plugin", "grpc_python_plugin", "python3",
            "ss", "bash", "curl", "sed", "awk", "grep"]
PYTHON_MODULES = ["build", "google/protobuf", "grpc", "hypothesis", "mypy", "numpy", "pytest", "scipy", "setuptools", "sklearn",
                  "tqdm", "wheel"]
# Somebody else's project: what it finds is what we install.
ELSEWHERE = "tests/out_of_tree/"


def run(*command):
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def listed(section):
    """The packages of one section of packages.txt."""
    names, is_in = [], False
    for line in (ROOT / "deploy/packages.txt").read_text().splitlines():
        if line.startswith("["):
            is_in = line.startswith(f"[{section}]")
        elif is_in and line.split("#")[0].strip():
            names.append(line.split()[0])
    assert names, f"packages.txt has no section [{section}]"
    return names


def installed_from_nothing(packages):
    """What apt would install for `packages` on an empty machine, and what every Debian has."""
    with tempfile.NamedTemporaryFile() as empty:
        plan = run("apt-get", "install", "--simulate", "--no-install-recommends", "-o", f"Dir::State::status={empty.name}",
                   *packages)
    required = run("dpkg-query", "-W", "-f", "${Priority} ${Package}\n")
    return set(re.findall(r"^Inst (\S+)", plan, re.M)) | set(re.findall(r"^required (\S+)", required, re.M))


def spellings(path):
    """The names that dpkg may know a file by: Debian 12 merges /usr, and some files are links."""
    real = os.path.realpath(path)
    return list(dict.fromkeys([path, real, path.removeprefix("/usr"), real.removeprefix("/usr")]))


def files_of(packages):
    """Every file of those of the packages that are installed here."""
    files = set()
    for path in glob.glob("/var/lib/dpkg/info/*.list"):
        if os.path.basename(path).removesuffix(".list").split(":")[0] in packages:
            files.update(pathlib.Path(path).read_text().split("\n"))
    return files


def owner(path):
    """The package that a file belongs to, for the message."""
    for candidate in spellings(path):
        found = subprocess.run(["dpkg", "-S", candidate], capture_output=True, text=True)
        if found.returncode == 0:
            return found.stdout.split(":")[0]
    return "no Debian package"


def header_folders():
    """Where g++ looks for <...>."""
    said = subprocess.run(["g++", "-E", "-v", "-x", "c++", "/dev/null"], capture_output=True, text=True).stderr
    # Eigen's headers lie in a folder that its CMake package names, and libpq's in one that CMake knows.
    return re.search(r"search starts here:\n(.*?)End of search", said, re.S).group(1).split() + ["/usr/include/eigen3", "/usr/include/postgresql"]


def used_headers():
    ours = list(rules.MAY_INCLUDE) + rules.SEES_EVERYTHING
    for name, _, included in include_test.Tree(ROOT).includes():
        if include_test.folder_of(included, ours) is None and not name.startswith(ELSEWHERE):
            yield included, name


def used_cmake_packages():
    for name, text in include_test.Tree(ROOT).texts.items():
        if name.endswith(("CMakeLists.txt", ".cmake")) and not name.startswith(ELSEWHERE):
            for found in re.findall(r"^\s*find_package\(([\w-]+)", text, re.M):
                yield found, name


class Check:
    def __init__(self, *sections):
        self.sections = " ".join(sections)
        self.files = files_of(installed_from_nothing([package for section in sections for package in listed(section)]))
        self.problems = []
        self.num_checked = 0

    def needs(self, what, path):
        self.num_checked += 1
        if not path:
            self.problems.append(f"{what}: not found on this machine")
        elif self.files.isdisjoint(spellings(path)):
            self.problems.append(f"{what}: {path} is in {owner(path)}, which [{self.sections}] does not bring")


def find(patterns):
    return next((path for pattern in patterns for path in sorted(glob.glob(pattern))), None)


def check_sources():
    check = Check("build", "python", "test")
    folders = header_folders()
    for header, name in sorted(dict(used_headers()).items()):
        check.needs(f"<{header}> ({name})", find([f"{folder}/{header}" for folder in folders]))
    for package, file in sorted(dict(used_cmake_packages()).items()):
        known = PACKAGES_FOUND.get(package)
        patterns = [f"{folder}/{known}" for folder in folders + ["/usr/lib/*-linux-gnu"]] if known else []
        patterns += [f"/usr/{folder}/cmake/{name}*/{config}" for folder in ("lib", "lib/*", "share")
                     for name in (package, package.lower())
                     for config in (f"{package}Config.cmake", f"{package.lower()}-config.cmake")]
        check.needs(f"find_package({package}) ({file})", known if known and known[0] == "/" else find(patterns))
    for program in PROGRAMS:
        check.needs(program, shutil.which(program, path="/usr/bin:/bin:/usr/sbin:/sbin"))
    for module in PYTHON_MODULES:
        check.needs(f"Python's {module}", find([f"/usr/lib/python3/dist-packages/{module}/__init__.py"]))
    return check


def check_binaries(folder):
    check = Check("run")
    for name in ("sheaf", "sheafd", "sheaf-worker"):
        binary = pathlib.Path(folder) / name
        if binary.exists():
            for library in sorted(set(re.findall(r"=> (/\S+)", run("ldd", str(binary))))):
                # Sanitizers come with the compiler; what they are built into is never deployed.
                if not re.match(r"lib[a-z]+san\.so", os.path.basename(library)):
                    check.needs(f"{name} links {os.path.basename(library)}", library)
    return check


def self_test():
    """A list that lacks a package is caught."""
    check = Check("run")
    check.needs("<sqlite3.h>", "/usr/include/sqlite3.h")
    check.needs("<nosuch.h>", None)
    caught = len(check.problems) == 2 and "libsqlite3-dev" in check.problems[0]
    print("missing packages are caught" if caught else f"not caught: {check.problems}")
    return 0 if caught else 1


def main(argv):
    if not shutil.which("apt-get") or not run("apt-get", "indextargets", "--format", "$(FILENAME)", "Created-By: Packages"):
        print("skipped: there is no apt index here; `apt-get update` fetches it")
        return 77
    if argv[1:] == ["--self-test"]:
        return self_test()
    checks = [check_sources()]
    if len(argv) > 1:
        checks.append(check_binaries(argv[1]))
    problems = [problem for check in checks for problem in check.problems]
    print("\n".join(problems))
    print(f"{sum(c.num_checked for c in checks)} headers, packages, programs and libraries checked, {len(problems)} problems")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))
