#!/usr/bin/env python3
"""Faults made by hand, one file each in faults/, to see that the tests would notice them.

  mutations.py run [NAME...]    builds and tests the committed tree with each fault, in a scratch copy; prints a table
                                and exits 1 if one is not caught. All of them, unless some are named.
  mutations.py check            every fault still applies, and docs/internals/mutations.md lists it
  mutations.py --self-test      shows that `check` can fail

A fault file says what is wrong, which check should catch it, and which text to replace by which, exactly:

  what: A result counts under whatever token it comes
  caught-by: simulation

  file: server/core/sync/contribution_intake.cc
  old:
  |task->state == TaskState::kLeased && task->lease_token == token;
  new:
  |task->state == TaskState::kLeased;
"""

import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
PAGE = "docs/internals/mutations.md"
FIRST_ROW = "| Fault | What it does | Caught by | After |\n|---|---|---|---|\n"
SECONDS_MAX = 400

# What a fault may be caught by: target and arguments. One failure is enough.
CHECKS = {
    "aggregation": ("aggregation_test", ["--abort"]),
    "arithmetic": ("aggregation_adversarial_test", ["--abort"]),
    "laws": ("operator_laws_test", ["--abort"]),
    "simulation": ("simulation_test", ["--seeds", "3000", "--exit-at-first"]),
    "many_servers": ("simulation_test", ["--many-servers", "--seeds", "3000", "--exit-at-first"]),
    "fleet": ("fleet_test", []),
    "core": ("server_core_test", ["--abort"]),
    "storage": ("storage_test", ["--abort"]),
    "crash": ("crash_test", ["--abort"]),
    "threads": ("server_threads_test", ["--abort"]),
    "rpc": ("server_rpc_test", ["--abort", "-#", "[#forwarding_test],[#shard_router_test],[#shared_store_test],[#store_router_test]"]),
    "postgres": ("storage_postgres_test", ["--abort"]),
    "postgres_payload": ("postgres_payload_test", ["--abort"]),
    "e2e_postgres": ("e2e_postgres_test", ["--abort", "-#", "[#postgres_test]"]),
    "worker": ("worker_test", ["--abort"]),
}


class Fault:
    def __init__(self, path):
        self.name = path.stem
        self.what = self.caught_by = ""
        # (file, old, new)
        self.edits = []
        part = None
        for number, line in enumerate(path.read_text().splitlines(), 1):
            if line.startswith("|") and part is not None:
                self.edits[-1][part].append(line[1:])
                continue
            key, colon, value = line.partition(":")
            if key == "what":
                self.what = value.strip()
            elif key == "caught-by":
                self.caught_by = value.strip()
            elif key == "file":
                self.edits.append([value.strip(), [], []])
            elif key in ("old", "new") and colon:
                part = 1 if key == "old" else 2
            elif line:
                raise SystemExit(f"{path}:{number}: this line is not understood: {line}")
        self.edits = [(name, "\n".join(old), "\n".join(new)) for name, old, new in self.edits]

    def problems(self, root):
        if not self.what or not self.edits:
            yield f"{self.name}: says nothing, or changes nothing"
        if self.caught_by not in CHECKS:
            yield f"{self.name}: caught-by is none of {', '.join(CHECKS)}"
        for name, old, new in self.edits:
            path = root / name
            count = path.read_text().count(old) if path.is_file() and old else 0
            if count != 1:
                yield (f"{self.name}: its text is in {name} {count} times, must be once; bring faults/{self.name}.fault "
                       "up to date with the code")
            if old == new:
                yield f"{self.name}: changes nothing in {name}"

    def apply(self, root):
        for name, old, new in self.edits:
            path = root / name
            path.write_text(path.read_text().replace(old, new))


def faults_in(folder):
    return [Fault(path) for path in sorted(folder.glob("*.fault"))]


def check(root, folder):
    faults = faults_in(folder)
    problems = [problem for fault in faults for problem in fault.problems(root)]
    page = (root / PAGE).read_text() if (root / PAGE).is_file() else ""
    listed = re.findall(r"^\| `(\w+)` \|", page, re.M)
    if listed != [fault.name for fault in faults]:
        problems.append(f"{PAGE} does not list the faults of tests/mutations/faults in their order; run "
                        "tests/mutations/run.sh and put its table there")
    return problems


# --- Running ---------------------------------------------------------------------------------------------------------


def call(command, cwd, seconds):
    """Exit code and output; the code is None when time ran out."""
    with subprocess.Popen(command, cwd=cwd, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          errors="replace") as process:
        try:
            output, _ = process.communicate(timeout=seconds)
            return process.returncode, output
        except subprocess.TimeoutExpired:
            process.kill()
            output, _ = process.communicate()
            return None, output


def build(scratch, targets):
    environment_free = ["ninja", "-C", "build/release", *targets]
    code, output = call(environment_free, scratch, 3600)
    return code == 0, output


def verdict(check_name, code, output):
    """What caught it and after how much; nothing if it was not caught."""
    if code == 0:
        return None
    if code is None:
        return f"{check_name}: it never ends", ""
    seed = re.search(r"^seed (\d+) ", output, re.M)
    after = f"{seed[1]} seed{'s' if seed[1] != '1' else ''}" if seed else ""
    invariant = re.search(r"^seed \d+ breaks an invariant: (.*)$", output, re.M)
    failed_check = re.search(r"(\S+):\d+: CHECK failed: (.*)$", output, re.M)
    # The last title before the failure: tests that only warn have one, too.
    titles = re.findall(r"^-{79}\n(.+?)\n-{79}$", output.partition(" FAILED:")[0], re.M | re.S)
    if invariant:
        return f"{check_name}: {invariant[1]}", after
    if failed_check:
        return f"{check_name}: the check `{failed_check[2].split(': ')[0]}` of {pathlib.Path(failed_check[1]).name}", after
    if titles:
        return f'{check_name}: "{" ".join(titles[-1].split())}"', ""
    return f"{check_name}: exit code {code}", after


def try_fault(scratch, fault):
    target, arguments = CHECKS[fault.caught_by]
    built, output = build(scratch, [target])
    if not built:
        raise SystemExit(f"{fault.name} does not compile:\n{output[-4000:]}")
    return verdict(fault.caught_by, *call([f"build/release/bin/{target}", *arguments], scratch, SECONDS_MAX))


def run(names):
    faults = [fault for fault in faults_in(HERE / "faults") if not names or fault.name in names]
    unknown = set(names) - {fault.name for fault in faults}
    if unknown:
        raise SystemExit(f"there is no fault {', '.join(sorted(unknown))} in {HERE / 'faults'}")
    for problem in [problem for fault in faults for problem in fault.problems(ROOT)]:
        raise SystemExit(problem)
    if subprocess.run(["git", "-C", ROOT, "diff", "--quiet", "HEAD", "--", ".", ":!docs"]).returncode != 0:
        print("note: what is not committed is not in the scratch copy", file=sys.stderr)
    place = pathlib.Path(tempfile.mkdtemp(prefix="sheaf-mutations-"))
    scratch = place / "tree"
    subprocess.run(["git", "-C", ROOT, "worktree", "add", "--quiet", "--detach", scratch, "HEAD"], check=True)
    try:
        return run_in(scratch, faults)
    finally:
        subprocess.run(["git", "-C", ROOT, "worktree", "remove", "--force", scratch])
        shutil.rmtree(place, ignore_errors=True)


def run_in(scratch, faults):
    os.environ.setdefault("CCACHE_BASEDIR", str(scratch))
    os.environ.setdefault("CCACHE_NOHASHDIR", "1")
    launcher = ["-DCMAKE_CXX_COMPILER_LAUNCHER=ccache"] if shutil.which("ccache") else []
    subprocess.run(["cmake", "--preset", "release", "-DSHEAF_TESTS=ON", *launcher], cwd=scratch, check=True, stdout=subprocess.DEVNULL)
    built, output = build(scratch, sorted({CHECKS[fault.caught_by][0] for fault in faults}))
    if not built:
        raise SystemExit(f"the tree does not build without any fault:\n{output[-4000:]}")
    survivors = []
    print(FIRST_ROW, end="", flush=True)
    for fault in faults:
        before = {name: (scratch / name).read_text() for name, _, _ in fault.edits}
        fault.apply(scratch)
        start = time.monotonic()
        found = try_fault(scratch, fault)
        for name, text in before.items():
            (scratch / name).write_text(text)
        caught, after = found or ("**nothing**", "")
        if found is None:
            survivors.append(fault.name)
        print(f"| `{fault.name}` | {fault.what} | {caught} | {after} |", flush=True)
        print(f"{fault.name}: {time.monotonic() - start:.0f} s", file=sys.stderr, flush=True)
    print(f"\n{len(faults)} faults, {len(faults) - len(survivors)} caught")
    if survivors:
        print(f"not caught: {', '.join(survivors)}")
    return 1 if survivors else 0


# --- Self-test -------------------------------------------------------------------------------------------------------


def self_test():
    with tempfile.TemporaryDirectory() as name:
        root = pathlib.Path(name)
        (root / "docs/internals").mkdir(parents=True)
        (root / PAGE).write_text("| `one` | it | x | |\n")
        (root / "code.cc").write_text("int a = 1;\nint b = 1;\n")
        text = "what: it\ncaught-by: core\n\nfile: code.cc\nold:\n|int a = 1;\nnew:\n|int a = 2;\n"

        def problems_of(changed):
            (root / "one.fault").write_text(changed)
            return check(root, root)

        assert problems_of(text) == [], problems_of(text)
        for old, new in [("int a = 1;", "int c = 1;"), ("int a = 1;", "= 1;"), ("core", "chance"), ("what: it", "what:"),
                         ("int a = 2;", "int a = 1;")]:
            assert len(problems_of(text.replace(old, new))) == 1, (old, new, problems_of(text.replace(old, new)))
        (root / "two.fault").write_text(text)
        assert len(problems_of(text)) == 1


def main(arguments):
    if arguments[:1] == ["run"]:
        return run(arguments[1:])
    if arguments == ["--self-test"]:
        self_test()
        return 0
    if arguments != ["check"]:
        print(__doc__)
        return 2
    problems = check(ROOT, HERE / "faults")
    for problem in problems:
        print(problem)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
