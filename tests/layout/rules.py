"""The layout rules of the tree, as tables. include_test.py holds the tree to them."""

# --- Who may include whom -----------------------------------------------------------------------------------------
#
# A file belongs to the deepest folder below that contains it, and may include its own folder and those listed. A file
# with a row of its own belongs to that: the mains whose tables name the demonstrations.

# The rooms of the server's core, and which of the others each may include. Whoever comes later knows those before.
CORE_ROOMS = {
    "limits": [],
    # What is counted of the work of all others.
    "figures": ["limits"],
    "batches": ["limits", "figures"],
    "requests": ["limits"],
    "rounds": ["limits", "figures", "batches", "requests"],
    "access": ["limits", "figures", "batches", "requests"],
    "workers": ["limits", "figures", "batches", "requests", "access", "rounds"],
    "broadcasts": ["limits", "figures", "batches", "requests", "access", "rounds"],
    "contributions": ["limits", "figures", "batches", "requests", "rounds"],
    "uploads": ["limits", "figures", "batches", "requests", "access", "rounds", "broadcasts", "contributions"],
    "lifecycle": ["limits", "figures", "batches", "requests", "rounds", "broadcasts", "contributions"],
    "leases": ["limits", "figures", "batches", "requests", "access", "rounds", "workers", "lifecycle"],
    "sync": ["limits", "figures", "batches", "requests", "access", "rounds", "workers", "uploads", "contributions", "lifecycle",
             "leases"],
    "inspection": ["limits", "figures", "batches", "requests", "access", "rounds", "workers", "lifecycle", "leases", "sync"],
}
CORE = ["server/core"] + [f"server/core/{room}" for room in CORE_ROOMS]

# The rooms of aggregation, likewise.
AGGREGATION_ROOMS = {
    "memory": [],
    "wire": [],
    "exact": ["memory"],
    "cells": ["memory", "wire", "exact"],
    "output": ["wire", "exact", "cells"],
    "sparse": ["memory", "wire", "cells", "output"],
    # The rows of the table aggregation/operators.h.
    "operators": ["memory", "wire", "exact", "cells", "output", "sparse"],
}
# What others see of it.
AGGREGATION = ["aggregation", "aggregation/wire"]

MAY_INCLUDE = {
    "base": [],
    "proto": [],
    "tls": ["base"],
    "settings": ["base"],
    **{
        f"aggregation/{room}": ["base", "proto"] + [f"aggregation/{other}" for other in others]
        for room, others in AGGREGATION_ROOMS.items()
    },
    "aggregation": ["base", "proto"] + [f"aggregation/{room}" for room in AGGREGATION_ROOMS],
    "storage": ["base"],
    # The stores, each behind the interface above it.
    "storage/files": ["base", "storage"],
    "storage/memory": ["base", "storage", "storage/files"],
    "storage/sql": ["base", "storage"],
    "storage/sqlite": ["base", "storage", "storage/files", "storage/sql"],
    "storage/postgres": ["base", "storage", "storage/directory", "storage/files", "storage/sql"],
    # Their table: which of them a data directory is opened with.
    "storage/directory": ["base", "storage", "storage/files", "storage/sql", "storage/sqlite"],
    "sdk/cpp/client": ["base", "proto", "tls", "aggregation/wire"],
    "sdk/cpp/program": ["base", "proto", "aggregation/wire", "sdk/cpp/client"],
    "sdk/cpp/computation": ["base", "proto", "aggregation/wire"],
    "probe": ["base", "proto"] + AGGREGATION + ["aggregation/output", "sdk/cpp/client", "sdk/cpp/computation"],
    "workloads": ["base", "proto"] + AGGREGATION + ["sdk/cpp/client", "sdk/cpp/program", "sdk/cpp/computation"],
    # What is stored is not what the API says: here the one becomes the other (docs/adr/0018).
    "server/stored": ["base", "proto", "storage"],
    # What joins the rooms.
    "server/core": ["base", "proto"] + AGGREGATION + ["storage"] + CORE[1:],
    **{
        f"server/core/{room}": ["base", "proto"] + AGGREGATION + ["server/stored", "storage"]
        + [f"server/core/{other}" for other in others]
        for room, others in CORE_ROOMS.items()
    },
    # The rows of the limits have what the algebra fixes, too.
    "server/core/limits": ["base", "proto"] + AGGREGATION + ["aggregation/output"],
    # The pipeline of a call knows no transport; the rows of its table are the handlers' to make.
    "server/calls": ["base", "proto", "storage"] + CORE,
    "server/handlers": ["base", "proto", "tls", "server/calls", "storage"] + CORE,
    # Sockets that listen, and the certificate, for any transport.
    "server/net": ["base", "tls"],
    # The transports: each knows the pipeline of calls, and neither the core nor what answers.
    "server/rpc": ["base", "proto", "tls", "server/calls", "server/net"],
    "server/http": ["base", "proto", "tls", "server/calls", "server/core/limits", "server/net"],
    # What is counted, as text: it reads the figures that others keep, and is a route of HTTP.
    "server/metrics": ["base", "proto", "tls", "server/calls", "server/http", "storage"] + CORE,
    # The pages, which are constants: routes of HTTP that know nothing of the server.
    "server/web": ["base", "server/http"],
    # The binary: main and runtime join the parts.
    "server": ["base", "proto", "tls", "settings"] + AGGREGATION
    + ["storage", "storage/directory", "storage/memory", "storage/postgres", "server/calls", "server/handlers", "server/http",
       "server/metrics", "server/net", "server/rpc", "server/web"] + CORE,
    # Starting executables and ending them: of tasks it knows nothing.
    "worker/processes": ["base"],
    "worker/runners": ["base", "proto", "settings"] + AGGREGATION + ["aggregation/output", "sdk/cpp/computation",
                       "worker/processes"],
    # A round on another server, as calls and as settings.
    "worker/relay": ["base", "proto", "settings", "sdk/cpp/client"],
    "worker": ["base", "proto", "settings"] + AGGREGATION
    + ["sdk/cpp/client", "sdk/cpp/computation", "worker/processes", "worker/relay", "worker/runners"],
    "worker/main.cc": ["worker", "probe", "workloads"],
    # A store that no server runs on is looked after from the command line (docs/adr/0011).
    "cli": ["base", "proto", "sdk/cpp/client", "sdk/cpp/program", "probe", "storage/directory", "storage/postgres"],
    "cli/demo": ["base", "proto", "sdk/cpp/client", "sdk/cpp/program", "workloads", "cli"],
}

# These see everything that is built.
SEES_EVERYTHING = ["tests", "bench"]

# Of some folders, only these files may be included from outside (by the includers named, or by all).
INTERFACE_HEADERS = {
    # Storage's interface; the stores behind it are for the binary to choose.
    **{
        (room, "storage"): ["blob_view.h", "ids.h", "payload_store.h", "records.h", "second_lease.h", "carried_task.h", "shard.h", "task_queries.h", "task_store.h", "transitions.h"]
        for room in CORE
    },
    # The messages that are stored are that room's own.
    **{
        (room, "server/stored"): ["attempt_timings.h", "interval.h", "round_progress.h", "round_release.h", "round_spec.h",
                                  "run_times.h",
                                  "worker_description.h"]
        for room in CORE
    },
    ("server/stored", "storage"): ["ids.h", "records.h"],
    # Handlers speak of the core's records, and move large bytes to the payload store past the core (docs/adr/0004).
    ("server/calls", "storage"): ["shard.h", "shard_directory.h"],
    ("server/metrics", "storage"): ["ids.h", "payload_store.h", "records.h", "shard.h", "transitions.h"],
    ("server/handlers", "storage"): ["ids.h", "payload_store.h", "records.h", "transitions.h"],
}

# --- What stands in one place -------------------------------------------------------------------------------------
#
# (what, pattern, [(home, reason)]). A home is a file, or a folder with a trailing slash. tests/ and bench/ are not
# exempt: they appear here where they need something.

BANS = [
    (
        "clock read",
        r"\babsl::Now\s*\(|_clock::now\b|\bstd::time\s*\(|(?<![\w:.>])time\s*\(\s*(?:nullptr|NULL|0|&)|"
        r"\bclock_gettime\s*\(|\bgettimeofday\s*\(",
        [
            ("base/clock.cc", "SystemClock is the clock"),
            ("base/cpu_time.cc", "what a thread's work costs: said in the log, and decides nothing"),
            ("tests/e2e/stepped_clock.cc", "stands before the C library's, to step it"),
            ("tests/cpu_time.h", "the CPU time of a thread, which is no time of day"),
        ],
    ),
    (
        "source of randomness",
        r"\brandom_device\b|\bmt19937|\bdefault_random_engine\b|(?<![\w:.>])s?rand\s*\(|\bdrand48\b|\bRAND_bytes\b|"
        r"\bgetrandom\s*\(|/dev/u?random",
        [
            ("base/random.cc", "SystemRandom and SeededRandom are the chance"),
        ],
    ),
    (
        "secret of the process",
        r"\bgetauxval\s*\(|\bAT_RANDOM\b",
        [
            ("base/process_secret.cc", "keys the hashes of what strangers send; no result and no order depends on it"),
        ],
    ),
    (
        "sleep",
        r"\bsleep_for\b|\bsleep_until\b|\bSleepFor\s*\(|\bu?sleep\s*\(|\bnanosleep\s*\(",
        [],
    ),
    (
        "thread",
        r"\bstd::j?thread\b|\bpthread_create\b|\bstd::async\b",
        [
            ("server/threads/aggregation_pool.h", "the helpers of large folds"),
            ("server/threads/aggregation_pool.cc", "the helpers of large folds"),
            ("server/threads/call_threads.h", "the threads of calls that move bytes"),
            ("server/threads/call_threads.cc", "the threads of calls that move bytes"),
            ("server/threads/strand_pool.h", "the threads beside the core"),
            ("server/threads/strand_pool.cc", "the threads beside the core"),
            ("server/threads/core_thread.h", "the core's thread"),
            ("server/threads/core_thread.cc", "the core's thread"),
            ("bench/http_clients.cc", "the thread of the clients"),
            ("bench/child_process.h", "the thread that reads what a server logs"),
            ("bench/child_process.cc", "the thread that reads what a server logs"),
            ("bench/skip_locked.cc", "a thread for each connection of the yardstick, whose calls wait"),
            ("bench/measure_http_overload.cc", "the thread of the crowd, of another priority"),
            ("server/net/listener.h", "the thread that takes connections"),
            ("server/net/listener.cc", "the thread that takes connections"),
            ("server/http/event_loop.h", "the threads of HTTP"),
            ("server/http/event_loop.cc", "the threads of HTTP"),
            ("server/net/certificate_watch.h", "the thread that looks at the certificate"),
            ("server/net/certificate_watch.cc", "the thread that looks at the certificate"),
            ("server/shard_keeper.h", "looks at a database, which may not answer for long"),
            ("server/shard_keeper.cc", "looks at a database, which may not answer for long"),
            ("storage/postgres/postgres_heartbeat.h", "says that an owner lives whose only thread reads for long"),
            ("probe/faulty_network.h", "the proxy of a selftest"),
            ("probe/faulty_network.cc", "the proxy of a selftest"),
            ("sdk/cpp/client/http_transport.cc", "the thread that a client's connections of HTTP belong to"),
            ("tests/sdk/little_http_server.h", "a test's server, one for each connection"),
            ("tests/sdk/little_http_server.cc", "a test's server, one for each connection"),
            ("tests/storage/postgres_shards_test.cc", "two servers that place populations at the same time"),
            ("tests/postgres/postgres_payload_store_test.cc", "two servers at the same time"),
            ("tests/server/shard_router_test.cc", "calls that come while shards do"),
            ("tests/server/store_router_test.cc", "calls that come while a store comes and goes"),
            ("tests/storage/postgres_shards_test.cc", "servers that place and copy at the same time"),
            ("tests/storage/postgres_task_store_test.cc", "a server that migrates while another waits"),
            ("tests/e2e/postgres_servers_test.cc", "a program whose rounds go on while servers are upgraded"),
            ("worker/thread_pool.h", "the computations' threads"),
            ("worker/thread_pool.cc", "the computations' threads"),
        ],
    ),
    (
        "lock other than base/mutex.h",
        r"\bstd::(?:recursive_|shared_|timed_)?mutex\b|\bstd::condition_variable\b|\babsl::(?:Mutex|CondVar)\b|"
        r"\bpthread_mutex",
        [("base/mutex.h", "the annotated mutex")],
    ),
    (
        "concrete clock or randomness",
        r"\bSystemClock\b|\bSystemRandom\b",
        [
            ("base/", "where they are defined"),
            ("server/main.cc", "a binary's main chooses the real thing"),
            ("worker/worker_main.cc", "a binary's main chooses the real thing"),
            ("sdk/cpp/client/server_connection.cc", "chooses for the mains of programs"),
            ("sdk/cpp/client/http_transport.cc", "ends calls in time, as gRPC does by a clock of its own"),
            ("cli/main.cc", "a binary's main chooses the real thing"),
            ("tests/", "end-to-end tests run real parts"),
            ("bench/", "they are what is measured"),
        ],
    ),
    (
        "concrete store",
        r"\bMemoryTaskStore\b|\bSqlTaskStore\b|\bSqliteConnection\b|\bMemoryPayloadStore\b|\bLocalPayloadStore\b|"
        r"\bFilePayloadStore\b|\bPostgresConnection\b",
        [
            ("storage/", "where they are defined"),
            ("server/main.cc", "a binary's main chooses the real thing"),
            ("server/shared_server.h", "a server that forwards calls has an empty one of its own"),
            ("server/shard_keeper.h", "only a database is divided into shards"),
            ("server/shard_keeper.cc", "only a database is divided into shards"),
            ("tests/", "they are what is tested"),
            ("bench/", "they are what is measured"),
        ],
    ),
    (
        "what gRPC calls internal",
        r"\bgrpc::internal\b|grpcpp/impl/",
        [
            ("server/rpc/raw_service.h", "the base of all services, as generated code includes it"),
            ("server/rpc/raw_service.cc", "services of bytes, as gRPC's generated code makes them (docs/adr/0017)"),
            ("sdk/cpp/client/grpc_transport.cc", "messages as bytes, by the header that generated code includes"),
        ],
    ),
]

# Third-party headers with one home: (what, pattern of the include, [(home, reason)]).
THIRD_PARTY = [
    ("gRPC", r"grpc(?:pp)?/|.*\.grpc\.pb\.h", [("server/rpc/", "the server's side"), ("sdk/cpp/client/", "the client's side"),
      ("tests/", "both sides are tested"), ("bench/", "the bare calls are the yardstick")]),
    ("SQLite", r"sqlite3\.h", [("storage/sqlite/", "the connection"),
      ("tests/crash/", "a disk and a memory that fail beneath it")]),
    ("libpq", r"libpq-fe\.h", [("storage/postgres/postgres_connection.cc", "the connection"),
      ("tests/postgres/", "databases for tests"), ("bench/skip_locked.cc", "the bare cycle is the yardstick")]),
    ("OpenSSL", r"openssl/", [("base/", "SHA-256 and randomness"), ("tls/", "certificates"), ("server/http/", "TLS on the socket itself"),
      ("tests/server/http/", "its client")]),
    ("libcurl", r"curl/", [("sdk/cpp/client/", "HTTP/1.1 as a client, and proxies")]),
    ("Boost", r"boost/", [("server/http/", "Beast's grammar of HTTP/1.1, and Asio's loops"),
      ("bench/", "its echo is the yardstick")]),
    ("libdeflate", r"libdeflate\.h", [("base/checksum.cc", "CRC-32"),
      ("tests/server/dashboard_routes_test.cc", "what the server sends, decompressed")]),
    ("spdlog", r"spdlog/", [("base/log.cc", "the log")]),
    ("CLI11", r"CLI/", [("settings/command_line.cc", "flags of the servers"), ("cli/parser.cc", "commands"),
      ("tests/simulation/", "a program by itself"), ("bench/", "a program by itself")]),
    ("toml++", r"toml\+\+/", [("settings/config_file.cc", "configuration files")]),
    ("prometheus-cpp", r"prometheus/", [("server/metrics/", "the text of /metrics")]),
    (
        "yaml-cpp",
        r"yaml-cpp/",
        [("cli/input/yaml_document.cc", "rounds as YAML"), ("tests/e2e/compose_test.cc", "aliases, as Docker reads them")],
    ),
    ("std ranges", r"ranges", []),  # clang-14 cannot compile libstdc++ 12's views.
]

# --- The Python package -------------------------------------------------------------------------------------------
#
# What its modules may import, beside Python's own and each other: (what, pattern of the module, [(home, reason)]).

PYTHON_PACKAGE = "sdk/python/sheaf/"
PYTHON_IMPORTS = [
    ("gRPC", r"grpc\b", [(PYTHON_PACKAGE + "grpc_channel.py", "one wire")]),
    ("HTTP", r"(?:http|urllib|ssl|socket)\b", [(PYTHON_PACKAGE + name, reason) for name, reason in (
      ("http_channel.py", "the other wire"), ("http_proxy.py", "the URL of a proxy"), ("address.py", "the URL of a server"),
      ("connect_answer.py", "what statuses are called"), ("security.py", "certificates"))]),
    # Computations know no protocol: it would take them longer to import than to compute a small task.
    ("the protocol", r"(?:sheaf\.v1|google\.protobuf)\b", [(PYTHON_PACKAGE + name, "of programs") for name in
      ("aio.py", "calls.py", "round_calls.py", "round_spec.py", "round_view.py", "rounds_ahead.py", "server.py",
       "transfer.py")]),
    ("scipy or torch", r"(?:scipy|torch)\b", [(PYTHON_PACKAGE + "sparse.py", "only where there is one to convert to"),
      (PYTHON_PACKAGE + "torch/", "torch's models")]),
    ("cloudpickle", r"cloudpickle\b", [(PYTHON_PACKAGE + "local_federation.py", "functions of notebooks")]),
    ("tqdm", r"tqdm\b", [(PYTHON_PACKAGE + "progress_bar.py", "the bar")]),
]

# --- What stands nowhere ------------------------------------------------------------------------------------------

# Names that invite everything and say nothing.
BANNED_NAMES = ["util", "utils", "common", "helper", "helpers", "misc"]

# (what, pattern), in every text file. The patterns do not match themselves.
BANNED_TEXT = [
    ("path of one machine", r"(?<![\w.$}*-])/(?:home|root|work|Users|mnt)/[\w.]"),
    ("host of a package registry", r"\bdeb\.debian\.org|\bpypi\.org|\bregistry\.npmjs|\bproxy\.golang"),
    ("unfinished work", r"\bTO[D]O\b|\bFIX[M]E\b|\bX[X]X\b"),
]
