"""What the examples in the headers of tests refer to."""

TESTS = """
extern ManualClock& clock; extern Random& random; extern uint64_t seed; extern absl::Time now; extern Limits& limits;
extern TaskStore& store; extern PayloadStore& payloads; extern Executor& executor; extern v1::SyncRequest& request;
extern Transport& transport; extern simulation::Agenda& agenda; extern std::string bytes; extern std::string violation;
extern std::string worker; extern std::string round; extern std::vector<int64_t> counts;
"""

CRASH = "extern SimulatedDisk& disk; extern std::unique_ptr<DiskServer> server;"

GOLDEN = "extern std::set<std::string> contract; extern Transcript& transcript; extern std::string address;"

TESTS_OF = {
    "aggregation/exact_value.h": "extern double found;",
    "conformance/operator_suite.h": "extern std::span<const Operator> kMyOperators; extern Oracle MyOracle; "
                                    "extern OperatorTrial RandomTrial(Random&);",
    "conformance/shuffled_for.h": "extern RoundAccumulator& sum;",
    "conformance/store_fixture.h": "extern StoreKind& kind;",
    "cpu_time.h": "extern std::string MakeInput(int64_t); extern void Parse(const std::string&);",
    "crash/aftermath.h": "extern std::unique_ptr<SimulatedDisk> disk; extern Ledger& ledger; extern Ledger::Mark& mark; "
                         "extern DiskServer::Options& options;",
    "crash/disk_server.h": CRASH,
    "crash/disk_vfs.h": CRASH,
    "crash/script.h": CRASH,
    "crash/simulated_disk.h": "extern std::vector<std::unique_ptr<SimulatedDisk>> images;",
    "fuzz/message_mutator.h": "extern v1::Contribution& contribution; extern size_t LLVMFuzzerMutate(uint8_t*, size_t, size_t);",
    "golden/contract_listing.h": "extern std::vector<std::string> Listed(const std::string&);",
    "golden/golden_computation.h": "extern v1::TaskSpec& task;",
    "golden/likeness.h": "extern std::set<std::string> contract_of_0_1; extern v1::SyncResponse recorded, actual; "
                         "extern v1::SyncRequest next_request;",
    "golden/playback.h": GOLDEN,
    "golden/scenarios.h": "extern void Save(const Transcript&);",
    "golden/staged_server.h": "extern StagedServer::Answer on_answer;",
    "golden/transcript.h": "extern std::string text; extern void Parse(const std::string&);",
    "server/http/http_client.h": "extern RunningServer& server; extern std::string bytes;",
    "server/raw_connection.h": "extern RunningServer& server;",
    "server/slow_devices.h": "extern v1::RoundSpec& spec; extern v1::RoundSpec& spec_of_the_next;",
    "server/unread_calls.h": "extern RunningServer& server;",
    "simulation/agenda.h": "extern SimServer& server;",
    "simulation/crash_point.h": "extern CrashPoint& point;",
    "simulation/fleet/availability.h": "extern absl::Duration age;",
    "simulation/fleet/time_wheel.h": "extern void Happen(uint32_t);",
    "simulation/journal.h": "extern Journal& journal; extern int counted; extern std::string task;",
    "simulation/sim_background.h": "extern Random& chance; extern Background::Job job; extern absl::Time frozen_until; "
                                   "extern void Guard(const Background::Job&);",
    "simulation/sim_database.h": "extern SimDatabase& database;",
    "simulation/sim_server.h": "extern SimServer& server; extern std::string authorization; "
                               "extern std::shared_ptr<v1::SyncRequest> request; extern SimServer::OnAnswer on_answer;",
    "simulation/sim_servers.h": "extern Weather& weather; extern SimServer::Parts& parts; extern std::string authorization; "
                                "extern std::shared_ptr<v1::SyncRequest> request; extern SimServer::OnAnswer on_answer;",
    "simulation/world.h": "extern Statistics& statistics;",
    "slow_batches.h": "extern std::string log;",
    "wait_until.h": "extern std::vector<int> Leased();",
    "worker/living_processes.h": "extern TemporaryDirectory& folder;",
}

END_TO_END = """
extern Transport& transport; extern Random& random; extern Federation& federation; extern std::string directory;
extern std::string round; extern std::vector<int64_t> counts; extern FaultyCalls& faulty_calls;
"""

FOLDERS = {
    "tests": (["base/status_macros.h", "catch2/catch.hpp", "storage/sqlite/sqlite_connection.h"], TESTS, TESTS_OF),
    # They have types of the same names as other folders of tests.
    "tests/cli": (["absl/status/status.h", "catch2/catch.hpp"], "", {
        "trace_check.h": "extern std::string text;",
    }),
    "tests/compat": (["absl/status/status.h", "catch2/catch.hpp"], "", {
        "command_storm.h": "extern Federation& federation; extern std::string id;",
    }),
    "tests/e2e": (["absl/status/status.h", "catch2/catch.hpp", "sdk/cpp/client/round_client.h"], END_TO_END, {}),
}
