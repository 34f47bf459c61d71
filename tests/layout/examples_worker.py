"""What the examples in probe/, workloads/ and worker/ refer to; see examples.py."""

PROBE = """
extern Transport& wire; extern Transport& transport; extern Timer& timer; extern Clock& clock; extern Random& random;
extern EventQueue& queue; extern ProtocolWorker& worker; extern ProtocolWorker::Observer& observer; extern absl::Duration lease;
extern History& history; extern std::string round; extern std::vector<int64_t> counts; extern v1::GetRoundRequest& request;
extern v1::RoundSpec& spec; extern int64_t num_tasks; extern int64_t i; extern std::string file;
"""

WORKLOADS = """
extern Connection& server; extern std::string path; extern std::string text; extern Random& random; extern v1::Lease& lease;
extern int client; extern RoundPlan& plan; extern SafetensorsView& aggregate;
"""

WORKLOADS_OF = {
    "brute_force.h": "extern std::vector<int> clients; extern std::vector<v1::Contribution> contributions; "
                     "extern v1::Contribution ContributionOf(int client);",
    "client_sampling.h": "extern uint64_t seed; extern int number; extern TagsDataset& dataset;",
    "hitters/program.h": "extern HittersDataset& dataset;",
    "reco/config.h": "extern RecoDataset& dataset;",
    "reco/model.h": "extern RecoDataset& dataset; extern RecoConfig& config; extern std::vector<float> rows;",
    "reco/program.h": "extern RecoDataset& dataset;",
    "snapshot.h": "extern std::vector<std::string> names; extern uint64_t kNamesMax;",
    "tags/config.h": "extern TagsDataset& dataset;",
    "tags/model.h": "extern TagsDataset& dataset; extern TagsConfig& config; extern std::vector<float> w, b;",
    "tags/program.h": "extern TagsDataset& dataset;",
}

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
    "runner.h": "extern void OnPrepared(absl::StatusOr<std::shared_ptr<PreparedTask>>); extern void OnRun(absl::StatusOr<std::string>);",
    "runtime.h": "extern WorkerConfig& config;",
    "sequence_driver.h": "extern std::vector<v1::RowSelection> selections; extern absl::Duration timeout; "
                         "extern std::function<void(absl::Time)> on_done;",
    "thread_pool.h": "extern int concurrency; extern Runner::RunDone on_done;",
    "worker_loop.h": "extern void WaitUntil(absl::Time);",
    "worker_main.h": "using Stations = std::vector<float>; extern DataSource<Stations>& stations; extern TaskFunction<Stations>& StationMean;",
}

COMPUTATIONS = ["probe/computations/noop.h", "probe/computations/slow.h"]

FOLDERS = {
    "probe": (["base/log.h", "base/status_macros.h", "sdk/cpp/client/grpc_transport.h"], PROBE, {}),
    "worker": (["base/status_macros.h", "fmt/core.h", "sdk/cpp/client/blob_client.h"] + COMPUTATIONS, WORKER, WORKER_OF),
    "workloads": (["base/status_macros.h", "fmt/core.h"], WORKLOADS, WORKLOADS_OF),
}
