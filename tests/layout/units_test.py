#!/usr/bin/env python3
"""The systemd units: systemd understands them, the binaries understand what they are given, and the docs name the
directory that the unit makes.

  units_test.py BIN_DIRECTORY
  units_test.py --self-test

systemd itself is not run. Exit 77 (skipped) where systemd-analyze is missing.
"""

import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

import include_test

ROOT = pathlib.Path(__file__).resolve().parents[2]
UNITS = ROOT / "deploy/systemd"


def settings(text, name):
    return re.findall(rf"^{name}=(.*)$", text, re.M)


def complaints_of_systemd(unit, text, drop_ins):
    """What systemd-analyze says of the unit, but that its binary is not installed here."""
    with tempfile.TemporaryDirectory() as directory:
        path = pathlib.Path(directory, unit)
        path.write_text(text)
        for name, drop_in in drop_ins.items():
            folder = pathlib.Path(directory, unit + ".d")
            folder.mkdir(exist_ok=True)
            (folder / name).write_text(drop_in)
        said = subprocess.run(["systemd-analyze", "verify", path], capture_output=True, text=True)
        return [line for line in (said.stdout + said.stderr).splitlines()
                if unit in line and "is not executable: No such file" not in line]


def wrong_directories(state_directory, texts):
    """Directories below /var/lib of ours that no unit makes."""
    for name, text in texts.items():
        for number, line in enumerate(text.split("\n"), 1):
            for found in re.findall(r"/var/lib/(sheaf[\w-]*)", line):
                if found != state_directory:
                    yield f"{name}:{number}: /var/lib/{found}, and the unit makes /var/lib/{state_directory}"


def refused_variables(binary, drop_in, directory):
    """Runs the binary with the drop-in's environment, %d being `directory`; what it says is wrong with it."""
    environment = {"PATH": os.environ["PATH"]}
    for setting in settings(drop_in, "Environment"):
        name, value = setting.split("=", 1)
        environment[name] = value.replace("%d", str(directory))
    run = subprocess.run([binary, "--print-config"], env=environment, capture_output=True, text=True)
    problems = [run.stderr] if run.returncode else []
    for name, value in environment.items():
        if name.startswith("SHEAF_") and not re.search(rf"{re.escape(value)}\s+env {name}\b", run.stdout):
            problems.append(f"{binary.name} does not take {name}={value}")
    return problems


def check_credentials(drop_in):
    """Each variable of the drop-in names a credential that it loads, and each credential is used."""
    loaded = {setting.split(":")[0] for setting in settings(drop_in, "LoadCredential")}
    used = {value for setting in settings(drop_in, "Environment") for value in re.findall(r"%d/(\S+)", setting)}
    return [f"the credential {name} is {'not loaded' if name in used else 'not used'}" for name in loaded ^ used]


def self_test():
    problems = []
    if not complaints_of_systemd("x.service", "[Service]\nExecStart=/bin/true\nNoSuchSetting=yes\n", {}):
        problems.append("a setting that does not exist passes")
    if not list(wrong_directories("sheaf", {"a.md": "sheafd --data-dir /var/lib/sheafd"})):
        problems.append("another directory passes")
    if not check_credentials("[Service]\nLoadCredential=a:/b\nEnvironment=SHEAF_X=%d/c\n"):
        problems.append("a credential that is not loaded passes")
    print("\n".join(problems) or "what is wrong is found")
    return 1 if problems else 0


def main(arguments):
    if not shutil.which("systemd-analyze"):
        print("skipped: there is no systemd-analyze here")
        return 77
    if arguments == ["--self-test"]:
        return self_test()
    binaries = pathlib.Path(arguments[0])
    problems = []
    for unit in sorted(UNITS.glob("*.service")):
        text = unit.read_text()
        drop_ins = {path.name: path.read_text() for path in sorted((UNITS / (unit.name + ".d")).glob("*.conf"))}
        problems += complaints_of_systemd(unit.name, text, drop_ins)
        for name, drop_in in drop_ins.items():
            problems += [f"{name}: {problem}" for problem in check_credentials(drop_in)]
            with tempfile.TemporaryDirectory() as directory:
                problems += refused_variables(binaries / unit.stem, drop_in, directory)
        for state_directory in settings(text, "StateDirectory"):
            # This file has a wrong one to find.
            texts = {name: content for name, content in include_test.Tree(ROOT).texts.items()
                     if not name.endswith("units_test.py")}
            problems += wrong_directories(state_directory, texts)
    print("\n".join(problems) or "the units hold")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
