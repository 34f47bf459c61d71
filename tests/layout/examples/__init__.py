"""What the examples in headers refer to, so that examples_test.py can compile them: large folders in files of their name."""

from examples import aggregation, cli, sdk, server, storage, tests, worker, workloads

BASE = """
extern absl::Time now; extern int n; extern size_t offset, size; extern uint64_t key;
extern std::string name, id, header, body, method, error, piece; extern absl::Status status;
extern ParallelFor& parallel; extern std::vector<int>& squares; extern v1::ResultVerdict& verdict;
"""

BASE_OF = {
    "log.h": "extern LogScope::Source& call;",
    "ordered_for.h": "extern ByteSink& take; extern absl::Status Render(int64_t i, std::string& text);",
}

BENCH = "extern Clock& clock;"

BENCH_OF = {
    "http_clients.h": "extern v1::SyncRequest& request; extern HttpClients::OnAnswer on_answer;",
    "crowd.h": "extern Transport& transport; extern std::vector<std::unique_ptr<Transport>> connections; "
               "extern double capacity;",
    "closed_loop.h": "extern std::vector<std::unique_ptr<Caller>> callers; extern ChildProcess& server;",
    "listening_workers.h": "extern std::string address;",
    "noop_workers.h": "extern std::unique_ptr<ChildProcess> server; extern int num_leases;",
    "delays.h": "extern Setup& setup; extern std::unique_ptr<ChildProcess> server;",
    "postgres_servers.h": "extern Setup& setup; extern SyncLoad load;",
    "skip_locked.h": "extern Setup& setup; extern std::string conninfo;",
}

PROBE = """
extern Transport& wire; extern Transport& transport; extern Timer& timer; extern Clock& clock; extern Random& random;
extern EventQueue& queue; extern ProtocolWorker& worker; extern ProtocolWorker::Observer& observer; extern absl::Duration lease;
extern History& history; extern std::string round; extern std::vector<int64_t> counts; extern v1::GetRoundRequest& request;
extern v1::RoundSpec& spec; extern int64_t num_tasks; extern int64_t i; extern std::string file;
"""

PROTO = "extern Transport& transport; extern v1::GetRoundRequest& request; extern RoundHandlers& rounds;"

SETTINGS = "extern CommandSyntax& syntax; extern std::vector<std::string>& arguments;"

TLS = """
extern Clock& clock; extern CertificateFiles& files; extern LoadedCertificates& loaded; extern ServingCertificate& certificate;
extern absl::Status Use(const LoadedCertificates&);
"""

# Folder: (what else the examples include, declarations, declarations by header: what differs from the folder's).
FOLDERS = {
    "base": (["absl/container/node_hash_map.h", "base/byte_sink.h", "sheaf/v1/work_service.pb.h", "unordered_map"], BASE, BASE_OF),
    "bench": (["base/status_macros.h", "fmt/core.h"], BENCH, BENCH_OF),
    "probe": (["base/log.h", "base/status_macros.h", "sdk/cpp/client/grpc_transport.h"], PROBE, {}),
    "proto": (["sdk/cpp/client/transport.h", "server/handlers/method_rows.h"], PROTO, {}),
    "settings": (["base/status_macros.h", "fmt/core.h"], SETTINGS, {}),
    "tls": (["base/clock.h", "base/status_macros.h"], TLS, {}),
}

for large in (aggregation, cli, sdk, server, storage, tests, worker, workloads):
    FOLDERS |= large.FOLDERS
