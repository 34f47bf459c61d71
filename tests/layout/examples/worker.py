"""What the examples in the headers of worker refer to."""

WORKER = """
extern Transport& transport; extern Clock& clock; extern Random& random; extern Runner& runner; extern BlobCache& cache;
extern std::shared_ptr<Inbox> inbox; extern std::function<void()> wake; extern std::string digest; extern absl::Time now;
extern std::shared_ptr<v1::Lease> lease; extern std::shared_ptr<RunControl> control; extern std::shared_ptr<PreparedTask> task;
extern std::shared_ptr<TaskInputs> inputs; extern ComputationTable& table; extern ComputationParts& parts; extern ThreadPool& pool;
"""

WORKER_OF = {
    "blob_cache.h": "extern std::shared_ptr<const std::string> Fetch(const std::string& digest);",
    "computation_table.h": "extern Waiter& waiter; extern std::vector<std::string> allowed;",
    "config.h": "extern std::vector<std::string> arguments;",
    "inbox.h": "extern std::shared_ptr<Attempt> attempt;",
    "relay_runner.h": "extern Waiter& waiter; extern RelayRunner::Spawn spawn; extern RelayOptions& options;",
    "runner.h": "extern void OnPrepared(absl::StatusOr<std::shared_ptr<PreparedTask>>); "
                "extern void OnRun(absl::StatusOr<RunOutcome>);",
    "runtime.h": "extern WorkerConfig& config;",
    "sequence_driver.h": "extern std::vector<v1::RowSelection> selections; extern absl::Duration timeout; "
                         "extern std::function<void(absl::Time)> on_done;",
    "thread_pool.h": "extern int concurrency; extern Runner::RunDone on_done;",
    "worker_loop.h": "extern void WaitUntil(absl::Time);",
    "worker_main.h": "using Stations = std::vector<float>; extern DataSource<Stations>& stations; "
                     "extern TaskFunction<Stations>& StationMean;",
}

COMPUTATIONS = ["probe/computations/noop.h", "probe/computations/slow.h"]

PROCESSES = """
extern Clock& clock; extern ProcessHost& host; extern ProcessSpec& spec; extern KeeperDescriptors& descriptors;
extern std::string path, directory;
"""

RELAY = """
extern Transport& transport; extern Transport& below; extern v1::Lease& lease; extern v1::RoundSpec& spec;
extern Settings& settings; extern Environment& environment; extern std::vector<std::string> arguments;
extern std::shared_ptr<const std::string> broadcast;
"""

RUNNERS = """
extern Clock& clock; extern std::unique_ptr<ProcessHost> host; extern BroadcastFiles& files; extern TaskDirectory& directory;
extern ExecutableSurroundings& surroundings; extern ProcessLimits& limits; extern RunControl& control; extern v1::Lease& lease;
extern std::string path, scratch, digest, bytes; extern int64_t bytes_max;
"""

RUNNERS_OF = {
    "executable_config.h": "extern Settings& settings; extern Environment& environment; extern std::vector<std::string> arguments;",
    "executable_task.h": "extern ExecutableTask::Parts& parts; extern TaskInputs Fetch(const InputRequest&);",
    "executable_use.h": "extern int processes_max;",
    "result_contribution.h": "extern std::vector<NamedTensor> tensors;",
    "task_directory.h": "extern std::string task;",
}

FOLDERS = {
    "worker": (["base/status_macros.h", "fmt/core.h", "sdk/cpp/client/blob_client.h"] + COMPUTATIONS, WORKER, WORKER_OF),
    "worker/processes": (["base/status_macros.h", "fcntl.h", "fmt/core.h", "signal.h"], PROCESSES, {}),
    "worker/relay": (["base/log.h", "base/status_macros.h", "worker/relay/relayed_spec.h"], RELAY, {}),
    "worker/runners": (["base/status_macros.h", "fmt/core.h"], RUNNERS, RUNNERS_OF),
}
