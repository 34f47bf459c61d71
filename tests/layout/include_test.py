#!/usr/bin/env python3
"""Holds the source tree to the rules in rules.py. Python's standard library is enough.

  include_test.py [ROOT]        checks the tree at ROOT (default: this one); exit 1 and one line per violation
  include_test.py --self-test   feeds every check a tree that breaks it, and one that does not
"""

import pathlib
import re
import shutil
import subprocess
import sys

import rules

SOURCES = {".h", ".cc"}
INCLUDE = re.compile(r'^\s*#\s*include\s+["<]([^">]+)[">]')


def list_files(root):
    """The files that belong to the tree: git's view if there is one, else all but hidden and build folders."""
    names = []
    if shutil.which("git"):
        git = subprocess.run(["git", "-C", root, "ls-files", "-z", "-co", "--exclude-standard"], capture_output=True)
        names = [name for name in git.stdout.decode().split("\0") if name]
    if not names:
        names = [str(path.relative_to(root)) for path in root.rglob("*") if path.is_file()]
        names = [name for name in names if not name.startswith(("build/", ".git", ".cache/")) or name == ".gitignore"]
    return sorted(name for name in set(names) if (root / name).is_file())


def without_comments(text):
    """Keeps line numbers and strings; blanks // and /* */ comments."""
    token = re.compile(r'"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'|//[^\n]*|/\*.*?\*/', re.S)

    def blank(match):
        found = match.group(0)
        return re.sub(r"[^\n]", " ", found) if found.startswith("/") else found

    return token.sub(blank, text)


def folder_of(name, folders):
    """The deepest of `folders` that contains the file or is it, or None."""
    inside = [folder for folder in folders if name == folder or name.startswith(folder + "/")]
    return max(inside, key=len, default=None)


def is_home(name, homes):
    return any(name.startswith(home) if home.endswith("/") else name == home for home, _ in homes)


class Tree:
    def __init__(self, root):
        self.names = list_files(root)
        self.texts = {}
        for name in self.names:
            try:
                self.texts[name] = (root / name).read_text()
            except UnicodeDecodeError:
                pass  # Binary: nothing to read here.

    def sources(self):
        """(name, lines without comments) of our C++."""
        for name, text in self.texts.items():
            if pathlib.PurePath(name).suffix in SOURCES:
                yield name, without_comments(text).split("\n")

    def includes(self):
        """(name, line number, included) of our C++; what is ours is named from the root of the tree."""
        for name, lines in self.sources():
            for number, line in enumerate(lines, 1):
                if match := INCLUDE.match(line):
                    included = match.group(1)
                    if included.startswith("sheaf/v1/"):
                        included = "proto/" + included
                    yield name, number, included


def check_table(_tree):
    """No two folders include each other, not even in a detour."""
    done = set()

    def visit(folder, path):
        if folder in path:
            yield f"rules.py: folders include each other: {' -> '.join(path + [folder])}"
        elif folder not in done:
            for next_folder in rules.MAY_INCLUDE[folder]:
                yield from visit(next_folder, path + [folder])
            done.add(folder)

    for folder in rules.MAY_INCLUDE:
        yield from visit(folder, [])


def circles(edges):
    """The sets of nodes that reach each other by `edges` (node -> {node: where it is said})."""
    found, number, lowest, stack = [], {}, {}, []

    def visit(node):
        number[node] = lowest[node] = len(number)
        stack.append(node)
        for target in edges.get(node, {}):
            if target not in number:
                visit(target)
            if target in stack:
                lowest[node] = min(lowest[node], lowest[target])
        if lowest[node] == number[node]:
            members = [stack.pop()]
            while members[-1] != node:
                members.append(stack.pop())
            if len(members) > 1:
                found.append(sorted(members))

    for node in sorted(edges):
        if node not in number:
            visit(node)
    return found


def check_circles(tree):
    """No file of ours includes itself by way of others, and no folder itself; a header and its source are one file here."""
    files, folders = {}, {}
    for name, number, included in tree.includes():
        if included not in tree.texts or folder_of(name, rules.SEES_EVERYTHING):
            continue
        source, target = (str(pathlib.PurePath(path).parent) for path in (name, included))
        where = f"{name}:{number}"
        for edges, start, end in ((files, name.rsplit(".", 1)[0], included.rsplit(".", 1)[0]), (folders, source, target)):
            if start != end:
                edges.setdefault(start, {}).setdefault(end, where)
    for what, edges in (("files", files), ("folders", folders)):
        for members in circles(edges):
            for start in members:
                for end in members:
                    if where := edges.get(start, {}).get(end):
                        yield f"{where}: {what} include each other in a circle of {len(members)}: {start} -> {end}"


def check_includes(tree):
    folders = list(rules.MAY_INCLUDE)
    for name, number, included in tree.includes():
        target = folder_of(included, folders)
        if target is None or folder_of(name, rules.SEES_EVERYTHING):
            continue
        source = folder_of(name, folders)
        if source is None:
            yield f"{name}:{number}: no rule says what this folder may include; add it to rules.py"
        elif target != source and target not in rules.MAY_INCLUDE[source]:
            yield f"{name}:{number}: {source} may not include {target} ({included})"
        elif interface := rules.INTERFACE_HEADERS.get((source, target)):
            if included.removeprefix(target + "/") not in interface:
                yield f"{name}:{number}: {source} may only include the interface of {target}: not {included}"


def check_third_party(tree):
    for name, number, included in tree.includes():
        for what, pattern, homes in rules.THIRD_PARTY:
            if re.fullmatch(f"(?:{pattern}).*", included) and not is_home(name, homes):
                yield f"{name}:{number}: {what} ({included}) outside its home"


def check_python_imports(tree):
    for name, text in tree.texts.items():
        if not name.startswith(rules.PYTHON_PACKAGE):
            continue
        for number, line in enumerate(text.split("\n"), 1):
            # Of "from a import b" both a and a.b.
            match = re.match(r"\s*(?:import ([\w.]+)|from ([\w.]+) import (\w+))", line)
            imported = (match.group(1) or f"{match.group(2)}.{match.group(3)}") if match else ""
            for what, pattern, homes in rules.PYTHON_IMPORTS:
                if re.match(pattern, imported) and not is_home(name, homes):
                    yield f"{name}:{number}: {what} ({imported}) outside its home"


def check_own_header_first(tree):
    """Then the build itself proves that the header compiles on its own."""
    first = {}
    for name, number, included in tree.includes():
        first.setdefault(name, (number, included))
    for name, (number, included) in first.items():
        own = name.removesuffix(".cc") + ".h"
        if name.endswith(".cc") and own in tree.texts and included != own:
            yield f"{name}:{number}: includes {included} before its own header {own}"


def check_bans(tree):
    for name, lines in tree.sources():
        for what, pattern, homes in rules.BANS:
            if is_home(name, homes):
                continue
            for number, line in enumerate(lines, 1):
                if match := re.search(pattern, line):
                    yield f"{name}:{number}: {what} outside its home: {match.group(0)}"


def check_names(tree):
    for name in tree.names:
        for part in pathlib.PurePath(name).parts:
            if part.split(".")[0] in rules.BANNED_NAMES:
                yield f"{name}: the name {part} says nothing about what is inside"


def check_pragma_once(tree):
    for name, text in tree.texts.items():
        if name.endswith(".h") and not re.search(r"^#pragma once$", text, re.M):
            yield f"{name}: has no #pragma once"


def check_text(tree):
    for name, text in tree.texts.items():
        for number, line in enumerate(text.split("\n"), 1):
            for what, pattern in rules.BANNED_TEXT:
                if match := re.search(pattern, line):
                    yield f"{name}:{number}: {what}: {match.group(0)}"


CHECKS = [
    check_table,
    check_circles,
    check_includes,
    check_third_party,
    check_python_imports,
    check_own_header_first,
    check_bans,
    check_names,
    check_pragma_once,
    check_text,
]


def violations(root):
    tree = Tree(root)
    assert any(name.endswith(".h") for name in tree.texts), f"no headers under {root}: wrong folder?"
    return [violation for check in CHECKS for violation in check(tree)]


def main(argv):
    if argv[1:] == ["--self-test"]:
        import include_self_test

        return include_self_test.run()
    root = pathlib.Path(argv[1] if len(argv) > 1 else pathlib.Path(__file__).parents[2]).resolve()
    found = violations(root)
    for violation in found:
        print(violation)
    print(f"{len(found)} violations of the layout rules" if found else "the layout rules hold")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))
