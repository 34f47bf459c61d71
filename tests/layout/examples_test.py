#!/usr/bin/env python3
"""Compiles the examples in the headers of the folders in examples/.

  examples_test.py COMPILE_COMMANDS     exit 1 and the compiler's words if one does not compile
  examples_test.py --self-test COMPILER

An example is the lines of a header that begin with "//" and three spaces; a block of which no line ends as a statement does
is none, but a table or a picture. What it refers to is declared in examples/. It is the body of a function that returns
absl::Status, unless it begins with a function of its own, in a namespace inside its header's.
"""

import concurrent.futures
import json
import pathlib
import re
import subprocess
import sys
import tempfile

import examples
import headers_test
import include_test

DECLARATION = re.compile(r"(?:extern|using) [^;]*;")
NAME = re.compile(r"(\w+)\s*(?:,|$)")
STATEMENT_END = re.compile(r"[;{}]\s*(?://.*)?$")
NAMESPACE = re.compile(r"^namespace (sheaf[\w:]*) \{", re.M)
FUNCTION = re.compile(r"(?!return )[\w:&<>]+ \w+\([^\[]*\) \{$")


def example_of(text):
    """The lines of the example, numbered; empty if there is none."""
    blocks = [[]]
    for number, line in enumerate(text.split("\n"), 1):
        if line.startswith("//   "):
            blocks[-1].append((number, line[5:]))
        else:
            blocks.append([])
    return [line for block in blocks if any(STATEMENT_END.search(code) for _, code in block) for line in block]


def declarations(common, own):
    """Those of the folder that the header does not replace, and its own."""
    replaced = {name for each in DECLARATION.findall(own) for name in NAME.findall(each.rstrip(";"))}
    kept = [each for each in DECLARATION.findall(common)
            if not replaced & set(NAME.findall(each.rstrip(";")))]
    return "\n".join(kept + DECLARATION.findall(own))


def unit_of(root, names, folder, folders):
    """One source with all examples of a folder, but for those of a deeper one in the table; how many they are."""
    includes, common, by_header = folders[folder]
    headers = [name for name in names if name.endswith(".h") and include_test.folder_of(name, folders) == folder]
    lines = [f'#include "{name}"' for name in includes + headers]
    count = 0
    for name in headers:
        header = (root / name).read_text()
        example = example_of(header)
        if not example:
            continue
        count += 1
        namespace = (NAMESPACE.findall(header) or ["sheaf"])[0]
        lines += [f"namespace {namespace}::example_{count} {{", declarations(common, by_header.get(name[len(folder) + 1:], ""))]
        body = not FUNCTION.match(example[0][1])
        lines += ["absl::Status Example() {"] if body else []
        before = 0
        for number, line in example:
            # Not before each: a text may go on over several lines.
            lines += [line] if number == before + 1 else [f'#line {number} "{name}"', line]
            before = number
        lines += ["return absl::OkStatus();", "}", "}"] if body else ["}"]
    unused = [name for name in by_header if f"{folder}/{name}" not in headers]
    if unused:
        lines.append(f"#error examples/ names headers that are not there: {' '.join(unused)}")
    return "\n".join(lines) + "\n", count


def errors_of(root, command, text):
    """Nothing, or what the compiler says. A status that an example ignores is an error."""
    with tempfile.TemporaryDirectory() as build:
        unit = pathlib.Path(build) / "examples.cc"
        unit.write_text(text)
        done = subprocess.run(command + ["-O0", "-fsyntax-only", "-Werror=unused-result", unit], cwd=root,
                              capture_output=True, text=True)
    return done.stderr if done.returncode else None


def check(root, command, folders):
    """How many examples there are, and what the compiler says."""
    names = include_test.list_files(root)
    units = [unit_of(root, names, folder, folders) for folder in folders]
    errors = [f"{name}: has an example, and examples/ has no table for its folder" for name in names
              if name.endswith(".h") and not include_test.folder_of(name, folders) and example_of((root / name).read_text())]
    with concurrent.futures.ThreadPoolExecutor(max_workers=2) as pool:
        errors += pool.map(lambda unit: errors_of(root, command, unit[0]), units)
    return sum(count for _, count in units), [each for each in errors if each]


def self_test(compiler):
    good = "// A noun.\n//\n//   const int n = Twice(m);   // 4\n//\n//   2 -> 4\n#pragma once\nint Twice(int n);\n"
    function = "// A verb.\n//\n//   int Four(int n) {\n//     return Twice(n);\n//   }\n#pragma once\n"
    function += "namespace sheaf::verbs {\nint Twice(int n);\n}\n"
    status = "#pragma once\nnamespace absl { struct Status {}; inline Status OkStatus() { return {}; } }\n"
    with tempfile.TemporaryDirectory() as folder:
        root = pathlib.Path(folder)
        (root / "a/b").mkdir(parents=True)
        (root / "status.h").write_text(status)
        table = {"a": (["status.h"], "extern int m;", {}), "a/b": (["status.h"], "", {})}
        command = [compiler, "-std=c++20", f"-I{root}"]
        (root / "a/noun.h").write_text(good)
        (root / "a/b/verb.h").write_text(function)
        passes = check(root, command, table) == (2, [])
        (root / "a/noun.h").write_text(good.replace("Twice(m)", "Thrice(m)", 1))
        (root / "noun.h").write_text(good)
        errors = "".join(check(root, command, table)[1])
    caught = "a/noun.h:3" in errors and errors.startswith("noun.h: has")
    print("an example that does not compile is caught, and one of no table" if passes and caught else f"{passes} {errors}")
    return 0 if passes and caught else 1


def main(argv):
    if len(argv) == 3 and argv[1] == "--self-test":
        return self_test(argv[2])
    if len(argv) != 2:
        print(__doc__, file=sys.stderr)
        return 2
    root = pathlib.Path(__file__).resolve().parents[2]
    commands = [c for c in json.loads(pathlib.Path(argv[1]).read_text()) if c["file"].startswith(f"{root}/")]
    count, errors = check(root, headers_test.common_command(commands), examples.FOLDERS)
    print("\n".join(errors))
    print(f"{count} examples compiled" if not errors else "some examples do not compile")
    return 1 if errors else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))
