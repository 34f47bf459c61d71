"""Shows that each check of include_test.py can fail: one broken file each, and what must be said of it."""

import pathlib
import tempfile

import include_test

# file -> text: a tree that keeps every rule.
GOOD = {
    "base/clock.h": "#pragma once\n",
    "base/clock.cc": '#include "base/clock.h"\n\nauto a = absl::Now();  // The home of the clock.\n',
    "storage/task_store.h": "#pragma once\n",
    "storage/memory/memory_task_store.h": '#pragma once\n#include "storage/task_store.h"\n',
    "server/core/core.h": '#pragma once\n#include "storage/task_store.h"\n',
    "server/core/core.cc": '#include "server/core/core.h"\n\n// Never calls absl::Now() or sleep_for().\nint lifetime(int);\n',
    "proto/sheaf/v1/task.proto": "// A task.\n",
    "worker/worker.cc": '#include "sdk/cpp/client/transport.h"\n#include "sheaf/v1/task.pb.h"\n',
    "worker/main.cc": '#include "workloads/tags/computation.h"\n',
    "cli/demo/tags.cc": '#include "workloads/tags/program.h"\n',
    "sdk/python/sheaf/calls.py": "from sheaf.v1 import round_pb2\n",
    "sdk/python/sheaf/grpc_channel.py": "import grpc\n",
    "sdk/python/sheaf/http_channel.py": "import http.client\n",
    "sdk/python/sheaf/serving.py": "import numpy\nfrom sheaf.calls import call\n",
    "docs/start.md": "Look into ~/sheaf, build/release/bin and https://example.org/home/page.\n",
}

# (changed file, its text, part of the message that must come).
BAD = [
    ("base/clock.h", '#pragma once\n#include "storage/task_store.h"\n', "base may not include storage"),
    ("aggregation/sum.h", '#pragma once\n#include "storage/task_store.h"\n', "aggregation may not include storage"),
    ("storage/rows.h", '#pragma once\n#include "sheaf/v1/task.pb.h"\n', "storage may not include proto"),
    ("server/core/core.cc", '#include "server/core/core.h"\n#include "storage/arguments.h"\n',
     "may only include the interface of storage"),
    ("server/core/core.cc", '#include "server/core/core.h"\n#include "server/rpc/server.h"\n',
     "server/core may not include server/rpc"),
    ("worker/worker.cc", '#include "server/core/core.h"\n', "worker may not include server/core"),
    ("worker/worker.cc", '#include "workloads/tags/computation.h"\n', "worker may not include workloads"),
    ("cli/parser.cc", '#include "workloads/tags/program.h"\n', "cli may not include workloads"),
    ("workloads/tags/computation.cc", '#include "worker/runner.h"\n', "workloads may not include worker"),
    ("server/main.cc", '#include "worker/worker.h"\n', "server may not include worker"),
    ("cli/main.cc", '#include "storage/task_store.h"\n', "cli may not include storage"),
    ("storage/task_store.h", '#pragma once\n#include "storage/memory/memory_task_store.h"\n',
     "files include each other in a circle of 2: storage/task_store -> storage/memory/memory_task_store"),
    ("storage/table.cc", '#include "storage/memory/memory_task_store.h"\n',
     "folders include each other in a circle of 2: storage -> storage/memory"),
    ("web/page.cc", '#include "base/clock.h"\n', "no rule says"),
    ("server/core/core.cc", '#include <string>\n#include "server/core/core.h"\n', "before its own header"),
    ("server/core/core.h", "#pragma once\n#include <grpcpp/grpcpp.h>\n", "gRPC (grpcpp/grpcpp.h) outside its home"),
    ("worker/worker.cc", '#include "sheaf/v1/work_service.grpc.pb.h"\n', "gRPC (proto/sheaf/v1/work_service.grpc.pb.h)"),
    ("storage/sql/rows.cc", "#include <sqlite3.h>\n", "SQLite (sqlite3.h) outside its home"),
    ("server/core/core.cc", '#include "server/core/core.h"\nauto t = absl::Now();\n', "clock read outside its home"),
    ("worker/worker.cc", "auto t = std::chrono::steady_clock::now();\n", "clock read outside its home"),
    ("tests/some_test.cc", "srand(time(nullptr));\n", "clock read outside its home: time(nullptr"),
    ("tests/some_test.cc", "std::mt19937 bits;\n", "source of randomness outside its home"),
    ("tests/some_test.cc", "std::this_thread::sleep_for(1s);\n", "sleep outside its home"),
    ("cli/main.cc", "std::thread t(Run);\n", "thread outside its home"),
    ("server/core/core.cc", '#include "server/core/core.h"\nabsl::Mutex m;\n', "lock other than base/mutex.h"),
    ("worker/worker.cc", "SystemClock clock;\n", "concrete clock or randomness outside its home"),
    ("server/core/core.cc", '#include "server/core/core.h"\nMemoryTaskStore s;\n', "concrete store outside its home"),
    ("sdk/python/sheaf/serving.py", "import json\nimport grpc.aio\n", "gRPC (grpc.aio) outside its home"),
    ("sdk/python/sheaf/serving.py", "import http.client\n", "HTTP (http.client) outside its home"),
    ("sdk/python/sheaf/serving.py", "from sheaf import v1\n", "the protocol (sheaf.v1) outside its home"),
    ("sdk/python/sheaf/serving.py", "    import torch\n", "scipy or torch (torch) outside its home"),
    ("base/util/text.h", "#pragma once\n", "the name util says nothing"),
    ("worker/helpers.cc", "\n", "the name helpers.cc says nothing"),
    ("base/clock.h", "// #pragma once\n", "has no #pragma once"),
    ("docs/start.md", "cd /ho" + "me/anna/sheaf\n", "path of one machine"),
    ("deploy/run.sh", "curl https://py" + "pi.org\n", "host of a package registry"),
    ("base/clock.cc", '#include "base/clock.h"\n// TO' + "DO: think.\n", "unfinished work"),
]


def violations_of(files):
    with tempfile.TemporaryDirectory() as folder:
        root = pathlib.Path(folder)
        for name, text in files.items():
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_text(text)
        return include_test.violations(root)


def run():
    failures = [f"the good tree: {violation}" for violation in violations_of(GOOD)]
    for name, text, expected in BAD:
        found = violations_of({**GOOD, name: text})
        if not any(violation.startswith(name) and expected in violation for violation in found):
            failures.append(f"not caught: {expected!r} in {name}; found {found}")

    allowed = include_test.rules.MAY_INCLUDE
    allowed["base"].append("storage")
    if not any("include each other" in violation for violation in violations_of(GOOD)):
        failures.append("not caught: a table in which base and storage include each other")
    allowed["base"].remove("storage")

    for failure in failures:
        print(failure)
    print(f"{len(failures)} failures" if failures else f"each of {len(BAD) + 1} broken trees is caught")
    return 1 if failures else 0
