"""What the examples in the headers of cli refer to."""

CLI = """
extern Host& host; extern Session& session; extern Arguments& global; extern std::vector<std::string> args; extern int64_t limit;
extern InterruptGuard& guard; extern std::string dir; extern std::string bytes; extern std::string text; extern absl::Status status;
extern std::ostream& out; extern std::ostream& err; extern v1::Round& round; extern absl::Time now;
"""

CLI_OF = {
    "arguments.h": "extern std::string round_, file_; extern int64_t limit_;",
    "command.h": "extern absl::Status PrintQueue(Session&);",
    "commands/paging.h": "extern v1::ListTasksRequest& request;",
    "demo/run.h": "extern bool keep; extern Program& program;",
    "demo/training.h": "extern std::unique_ptr<Program> MakeReco(uint64_t seed);",
    "processes/interrupt.h": "extern ChildProcess& server; extern absl::Status Work();",
    "processes/supervised_transport.h": "extern Transport& inner; extern LocalFederation& federation;",
    "session.h": "extern std::string round_;",
    "terminal/recall_plot.h": "extern std::vector<double> recall;",
    "trace_events.h": "extern std::vector<v1::Task> tasks;",
}

FOLDERS = {
    "cli": (["base/status_macros.h", "sdk/cpp/client/grpc_transport.h", "workloads/reco/dataset.h"], CLI, CLI_OF),
}
