#!/usr/bin/env python3
"""The documentation says what is there. Python's standard library is enough.

  docs_test.py [FOLDER OF BINARIES]
  docs_test.py --self-test
"""

import pathlib
import re
import subprocess
import sys

import include_test

ROOT = pathlib.Path(__file__).resolve().parents[2]


def pages():
    return {name: text for name, text in include_test.Tree(ROOT).texts.items() if name.endswith(".md")}


def anchors(text):
    """The fragments that the headings of a page answer to."""
    headings = re.findall(r"^#+ (.*)$", text, re.M)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}


def broken_links(texts, exists):
    for name, text in texts.items():
        for target in re.findall(r"\]\(([^)\s]+)\)", text):
            if re.match(r"\w+:", target):
                continue
            path, _, fragment = target.partition("#")
            linked = (pathlib.PurePosixPath(name).parent / path) if path else pathlib.PurePosixPath(name)
            linked = str(pathlib.PurePosixPath(*normalised(linked.parts)))
            if not exists(linked):
                yield f"{name}: links to {target}, which is not there"
            elif fragment and linked in texts and fragment not in anchors(texts[linked]):
                yield f"{name}: {linked} has no heading #{fragment}"


def normalised(parts):
    kept = []
    for part in parts:
        if part == "..":
            kept.pop()
        elif part != ".":
            kept.append(part)
    return kept


def drawn_moves(text):
    """One set of moves per Mermaid state diagram; [*] left out."""
    diagrams = re.findall(r"```mermaid\nstateDiagram-v2\n(.*?)```", text, re.S)
    return [{move for move in re.findall(r"^\s*(\S+) --> ([^\s:]+)", diagram, re.M) if "[*]" not in move}
            for diagram in diagrams]


def coded_moves(source, kind):
    moves = re.findall(rf"\{{{kind}::k(\w+), {kind}::k(\w+),", source)
    return {(start.upper(), end.upper()) for start, end in moves}


def differing_moves(text, source):
    diagrams = drawn_moves(text)
    if len(diagrams) != 2:
        yield f"architecture.md: expected two state diagrams, found {len(diagrams)}"
        return
    for drawn, kind in zip(diagrams, ("RoundState", "TaskState")):
        coded = coded_moves(source, kind)
        for start, end in sorted(drawn - coded):
            yield f"architecture.md: {kind} {start} --> {end} is not in storage/transitions.cc"
        for start, end in sorted(coded - drawn):
            yield f"architecture.md: {kind} {start} --> {end} is missing"


def unknown_tests(texts, test_texts):
    """Names of tests that no test has, in tables whose last column is headed "Shown by". They stand in quotes."""
    for page, text in texts.items():
        for table in re.findall(r"^\|[^\n]*\| Shown by \|\n((?:\|[^\n]*\|\n?)+)", text, re.M):
            for row in table.splitlines():
                for name in re.findall(r'"([^"]+)"', row.rstrip("| ").rpartition("|")[2]):
                    if not any(name in test for test in test_texts):
                        yield f"{page}: no test is called \"{name}\""


def joined_literals(text):
    """C++ joins string literals that follow each other."""
    return re.sub(r'"\s*\n\s*"', "", text)


def undocumented_commands(overview, page):
    """Commands that the overview lists and cli.md does not show."""
    listed = re.search(r"^Commands\n(.*?)\n\n", overview, re.S | re.M)
    for noun, verbs in re.findall(r"^  (\w+)[ \t]*(\S*)", listed.group(1) if listed else "", re.M):
        for verb in verbs.split("|"):
            command = f"sheaf {noun} {verb}".rstrip()
            if f"`{command} --help`" not in page:
                yield f"docs/reference/cli.md: shows no `{command} --help`"


def uncommented(rpc):
    """Rows of rpc.md, hence fields and values of the protos, that say nothing."""
    for name in re.findall(r"^\| `(\w+)` \|.*\|  \|$", rpc, re.M):
        yield f"proto/sheaf/v1: {name} has no comment"


def outdated_excerpts(texts, read):
    """Code blocks that name a file ("```cpp path/to/file") and are no part of it, word for word."""
    for name, text in texts.items():
        for path, code in re.findall(r"^```\w+ ([\w./-]+)\n(.*?)^```$", text, re.S | re.M):
            if code not in read(path):
                yield f"{name}: a block is not in {path} as it stands: {code.splitlines()[0] if code else ''}"


def run_script(name, *arguments):
    done = subprocess.run([sys.executable, "-B", ROOT / "docs/reference" / name, *arguments], capture_output=True, text=True)
    return [] if done.returncode == 0 else [f"{name}: {(done.stdout + done.stderr).strip()}"]


def check(binaries):
    texts = pages()
    architecture = texts["docs/internals/architecture.md"]
    tests = [joined_literals(text) for name, text in include_test.Tree(ROOT).texts.items()
             if name.startswith("tests/") and name.endswith((".cc", ".h", ".py", ".sh"))]
    problems = list(broken_links(texts, lambda path: (ROOT / path).exists()))
    problems += differing_moves(architecture, (ROOT / "storage/transitions.cc").read_text())
    problems += unknown_tests(texts, tests)
    problems += run_script("generate_rpc.py", "--check")
    problems += run_script("generate_python.py", "--check")
    problems += uncommented(texts["docs/reference/rpc.md"])
    problems += outdated_excerpts(texts, lambda path: (ROOT / path).read_text())
    if binaries and all((binaries / name).exists() for name in ("sheaf", "sheafd", "sheaf-worker")):
        problems += run_script("generate_outputs.py", str(binaries), "--check")
        overview = subprocess.run([binaries / "sheaf", "--help"], env={}, capture_output=True, text=True).stdout
        problems += undocumented_commands(overview, texts["docs/reference/cli.md"])
    return problems


def self_test():
    cases = {
        "a link to nowhere": broken_links({"docs/a.md": "[b](b.md)"}, lambda path: False),
        "a link to no heading": broken_links({"docs/a.md": "[b](../b.md#two)", "b.md": "# One"}, lambda path: True),
        "a move drawn but not coded": differing_moves(
            "```mermaid\nstateDiagram-v2\n A --> B: x\n```\n```mermaid\nstateDiagram-v2\n```", ""),
        "a move coded but not drawn": differing_moves(
            "```mermaid\nstateDiagram-v2\n```\n```mermaid\nstateDiagram-v2\n```", "{TaskState::kA, TaskState::kB, \"\"}"),
        "a test that is not there": unknown_tests({"a.md": '| A | Shown by |\n|---|---|\n| x | "Nobody" |\n'}, ["Somebody"]),
        "a field without a comment": uncommented("| `a` | int32 | 1 | One. |\n| `b` | int32 | 2 |  |\n"),
        "an excerpt that was changed": outdated_excerpts({"docs/a.md": "```cpp a.h\nint b;\n```\n"}, lambda path: "int a;\n"),
        "a command without a section": undocumented_commands("\nCommands\n  task  list|describe\n\n", "`sheaf task list --help`"),
    }
    missed = [case for case, found in cases.items() if len(list(found)) != 1]
    fine = [
        *broken_links({"docs/a.md": "[b](../b.md#two-2) [c](https://example.org)", "b.md": "## Two (2)"}, lambda path: True),
        *unknown_tests({"a.md": '| A | Shown by |\n|---|---|\n| "x" | "Some body" |\n\n| A | B |\n|---|---|\n| x | "y" |\n'},
                       [joined_literals('"Some "\n    "body"')]),
        *outdated_excerpts({"docs/a.md": "```cpp a.h\nint a;\n```\n```cpp\nint b;\n```\n"}, lambda path: "int a;\n"),
        *undocumented_commands("\nCommands\n  version\n\n", "`sheaf version --help`"),
    ]
    print(f"not caught: {missed}; wrongly caught: {fine}" if missed or fine else f"each of {len(cases)} faults is caught")
    return 1 if missed or fine else 0


def main(argv):
    if argv[1:] == ["--self-test"]:
        return self_test()
    problems = check(pathlib.Path(argv[1]) if len(argv) > 1 else None)
    print("\n".join(problems + [f"{len(problems)} problems in the documentation"]))
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))
