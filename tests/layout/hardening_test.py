#!/usr/bin/env python3
"""Looks in the binaries for the protections that cmake/hardening.cmake asks for. Needs readelf (binutils).

  hardening_test.py BIN_DIRECTORY [--not-fortified]   checks sheafd, sheaf and sheaf-worker in it; exit 1, one line per lack
  hardening_test.py --self-test COMPILER          shows that each check can fail, on a program built without
"""

import pathlib
import re
import subprocess
import sys
import tempfile

BINARIES = ["sheafd", "sheaf", "sheaf-worker"]


def readelf(option, binary):
    return subprocess.run(["readelf", "-W", option, binary], capture_output=True, check=True, text=True).stdout


def is_pie(binary):
    return re.search(r"FLAGS_1.*\bPIE\b", readelf("-d", binary))


def has_full_relro(binary):
    return "GNU_RELRO" in readelf("-l", binary) and re.search(r"BIND_NOW|FLAGS_1.*\bNOW\b", readelf("-d", binary))


def has_data_stack(binary):
    stack = re.search(r"GNU_STACK.*", readelf("-l", binary))
    return stack and "RWE" not in stack.group(0)


def has_stack_protector(binary):
    return "__stack_chk_fail" in readelf("--dyn-syms", binary)


def is_fortified(binary):
    return re.search(r"\b__(?!stack)\w+_chk\b", readelf("--dyn-syms", binary))


def finds_only_system_libraries(binary):
    return not re.search(r"\b(RPATH|RUNPATH)\b", readelf("-d", binary))


CHECKS = {
    "is not position-independent (PIE)": is_pie,
    "leaves its relocations writable (full RELRO)": has_full_relro,
    "has an executable stack": has_data_stack,
    "has no stack protector": has_stack_protector,
    "is not fortified (_FORTIFY_SOURCE)": is_fortified,
    "looks for libraries in a directory of its own (RPATH)": finds_only_system_libraries,
}


def lacks(binary, fortified):
    checks = {text: check for text, check in CHECKS.items() if fortified or check is not is_fortified}
    return [text for text, check in checks.items() if not check(binary)]


def self_test(compiler):
    with tempfile.TemporaryDirectory() as directory:
        source = pathlib.Path(directory, "bare.cc")
        source.write_text("int main() { return 0; }\n")
        binary = pathlib.Path(directory, "bare")
        bare = ["-no-pie", "-fno-stack-protector", "-U_FORTIFY_SOURCE",
                "-Wl,-z,norelro,-z,lazy,-z,execstack,-rpath,/nowhere"]
        subprocess.run([compiler, source, "-o", binary, *bare], check=True, stderr=subprocess.DEVNULL)
        passed = set(CHECKS) - set(lacks(binary, fortified=True))
    for text in sorted(passed):
        print(f"a bare program passes the check: {text}")
    return 1 if passed else 0


def main(arguments):
    if arguments[0] == "--self-test":
        return self_test(arguments[1])
    failed = False
    for name in BINARIES:
        for text in lacks(pathlib.Path(arguments[0], name), "--not-fortified" not in arguments):
            print(f"{name} {text}")
            failed = True
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
