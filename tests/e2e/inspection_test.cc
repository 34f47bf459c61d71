// Every command that reads, on a live round.
#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>

#include "cli/commands.h"
#include "cli/input/message_input.h"
#include "proto/methods.h"
#include "proto/time.h"
#include "storage/sql/sql_task_store.h"
#include "storage/sqlite/sqlite_connection.h"
#include "storage/sqlite/sqlite_engine.h"
#include "tests/cli/trace_check.h"
#include "tests/conformance/task_store_suite.h"
#include "tests/e2e/rounds.h"

namespace sheaf {
namespace {

// Everything in the server's store, read from a copy of its files while nobody writes.
std::string DumpOf(const Federation& federation) {
  const TemporaryDirectory copy = ScratchDirectory();
  for (const char* file : {"tasks.db", "tasks.db-wal"}) {
    const std::string path = federation.data_directory() + "/" + file;
    if (std::filesystem::exists(path)) std::filesystem::copy(path, copy.path() + "/" + file);
  }
  auto connection = SqliteConnection::Open(copy.path() + "/tasks.db");
  REQUIRE(connection.ok());
  const auto store = SqlTaskStore::Open(std::make_unique<SqliteEngine>(*std::move(connection)));
  REQUIRE(store.ok());
  return Dump(**store, absl::UnixEpoch());
}

// A round in which everything occurs: a task that succeeded, one that failed and waits, one held, and untouched ones.
std::string ALiveRound(Federation& federation) {
  std::string round = StartRound(federation, OneHotRound({.num_tasks = 6, .lease = absl::Minutes(10)}));
  const v1::SyncResponse granted = SyncOnce(federation.transport(), APoll("hand", "poll-1", 3));
  REQUIRE(granted.leases_size() == 3);
  v1::SyncRequest results = APoll("hand", "poll-2", 0);
  AddResult(granted.leases(0), results);
  v1::TaskResult& failed = *results.add_results();
  failed.set_task(granted.leases(1).task());
  failed.set_lease_token(granted.leases(1).lease_token());
  failed.mutable_failure()->set_message("the sensor was off");
  AddHeld(granted.leases(2), 1, results);
  CHECK(VerdictsOf(SyncOnce(federation.transport(), results)) == std::vector<std::string>(2, "ACCEPTED"));
  return round;
}

std::string AnEndedRound(Federation& federation) {
  std::string round = StartRound(federation, OneHotRound({.num_tasks = 1}));
  const v1::SyncResponse granted = SyncOnce(federation.transport(), APoll("hand", "poll-0", 1));
  REQUIRE(granted.leases_size() == 1);
  v1::SyncRequest result = APoll("hand", "poll-0b", 0);
  AddResult(granted.leases(0), result);
  SyncOnce(federation.transport(), result);
  Await(federation, round);
  return round;
}

struct Look {
  std::vector<std::string> words;
  int exit_code = 0;
  // What -o json prints; null: some other JSON. Without `has_json` the command takes no -o json.
  const google::protobuf::Message* json = nullptr;
  bool has_json = true;
};

std::vector<Look> Looks(const std::string& live, const std::string& ended, const std::string& file,
                        const std::string& store) {
  const auto* round = &v1::GetRoundResponse::default_instance();
  return {
      {{"round", "list"}, 0, &v1::ListRoundsResponse::default_instance()},
      {{"round", "list", "--state", "collecting"}, 0, &v1::ListRoundsResponse::default_instance()},
      {{"round", "describe", live}, 0, round},
      {{"round", "describe", ended}, 0, round},
      {{"round", "watch", live, "--timeout", "200ms"}, 6},
      {{"round", "wait", live, "--timeout", "200ms"}, 6},
      {{"round", "wait", ended}, 0, round},
      {{"round", "explain", live}, 0, &v1::ExplainRoundResponse::default_instance()},
      {{"round", "explain", ended}, 0, &v1::ExplainRoundResponse::default_instance()},
      {{"round", "result", live, "-o", file}, 7, nullptr, false},
      {{"round", "result", ended, "-o", file}, 0, nullptr, false},
      {{"round", "trace", live}, 0, nullptr, false},
      {{"round", "trace", ended, "-o", "-"}, 0, nullptr, false},
      {{"task", "list"}, 0, &v1::ListTasksResponse::default_instance()},
      {{"task", "list", "--round", live, "--state", "leased"}, 0, &v1::ListTasksResponse::default_instance()},
      {{"task", "describe", live + "/0"}, 0, &v1::GetTaskResponse::default_instance()},
      {{"task", "describe", live + "/5"}, 0, &v1::GetTaskResponse::default_instance()},
      {{"queue", "describe"}, 0, &v1::DescribeQueueResponse::default_instance()},
      {{"worker", "list"}, 0, &v1::ListWorkersResponse::default_instance()},
      {{"token", "list"}, 0, &v1::ListTokensResponse::default_instance()},
      {{"server", "info"}, 0, &v1::GetServerInfoResponse::default_instance()},
      {{"server", "list"}, 0, &v1::ListServersResponse::default_instance()},
      {{"store", "inspect", store}},
      {{"store", "verify", store}},
      {{"version"}},
      {{"help", "exit-codes"}, 0, nullptr, false},
  };
}

void CheckJson(const Look& look, const std::string& text) {
  INFO(text);
  CHECK(nlohmann::json::accept(text));
  if (look.json == nullptr) return;
  const std::unique_ptr<google::protobuf::Message> message(look.json->New());
  CHECK(FromJson(text, "stdout", message.get()).ToString() == "OK");
}

// The commands that change something, or start something; the test below looks with all others.
const std::set<std::string> kChanging = {"demo tags",    "demo reco",    "demo hitters",  "round create",
                                         "round open",   "round cancel", "task requeue",  "worker drain",
                                         "server drain", "token create", "token revoke",  "server selftest",
                                         "store backup", "store copy",   "store restore", "store migrate"};

TEST_CASE("Every command that reads changes nothing, and its JSON is what the API says") {
  Federation federation;
  const std::string ended = AnEndedRound(federation);
  const std::string live = ALiveRound(federation);
  const std::string etag = RoundOf(federation.transport(), live).etag();
  const std::string before = DumpOf(federation);

  std::set<std::string> looked;
  int runs = 0;
  for (const Look& look : Looks(live, ended, federation.directory() + "/result.npz", federation.data_directory())) {
    looked.insert(look.words.size() > 1 && look.words[0] != "help" ? look.words[0] + " " + look.words[1]
                                                                   : look.words[0]);
    for (const bool json : {false, true}) {
      if (json && !look.has_json) continue;
      std::vector<std::string> words = look.words;
      if (json) words.insert(words.end(), {"-o", "json"});
      const CommandRun run = federation.Sheaf(words);
      INFO(fmt::format("sheaf {}\n{}{}", fmt::join(words, " "), run.out, run.err));
      CHECK(run.exit_code == look.exit_code);
      if (json && run.exit_code == 0) CheckJson(look, run.out);
      ++runs;
    }
  }
  for (const CommandRow& row : CommandTable()) {
    INFO(CommandName(row));
    CHECK((kChanging.contains(CommandName(row)) || looked.contains(CommandName(row))));
  }
  CHECK(RoundOf(federation.transport(), live).etag() == etag);
  CHECK(DumpOf(federation) == before);
  Measured("{} runs of {} commands; {} bytes of store dump unchanged", runs, looked.size(), before.size());
}

TEST_CASE("A server that shares its store with nobody is not drained, and says how it is ended") {
  Federation federation;
  v1::DrainServerRequest request;
  request.set_request_id("drain");
  request.set_server("server-1");
  const absl::Status refused = BlockingCall(federation.transport(), kDrainServer, request).status();
  CHECK(absl::IsFailedPrecondition(refused));
  CHECK(std::string(refused.message()).find("SIGTERM") != std::string::npos);
}

TEST_CASE("A real round's critical path is its wall time, has names for 99 % of it, and opens as a trace") {
  Federation federation;
  constexpr absl::Duration kWork = absl::Milliseconds(400);
  const std::string round = StartRound(federation, OneHotRound({.num_tasks = 6, .work = kWork}));
  for (const char* worker : {"edge-1", "edge-2"}) federation.StartWorker(worker);
  const v1::Round done = Await(federation, round);
  const absl::Duration wall = FromProto(done.end_time()) - FromProto(done.create_time());
  absl::Duration sum, computing, unnamed;
  for (const v1::PhaseInterval& interval : done.critical_path()) {
    const absl::Duration took = FromProto(interval.end_time()) - FromProto(interval.begin_time());
    sum += took;
    if (interval.phase() == "compute") computing += took;
    if (interval.phase() == "unaccounted") unnamed += took;
  }
  INFO(done.DebugString());
  CHECK(absl::AbsDuration(sum - wall) <= wall * 0.01);
  CHECK(unnamed <= wall * 0.01);
  CHECK(computing >= kWork);
  const v1::RoundPhases& phases = done.phases();
  CHECK(FromProto(phases.wait()) + FromProto(phases.download()) + FromProto(phases.prepare()) +
            FromProto(phases.compute()) + FromProto(phases.upload()) + FromProto(phases.fold()) +
            FromProto(phases.commit()) ==
        wall);
  // A worker computes what it says, after it had the lease and before the server had the result.
  for (const v1::Task& listed : TasksOf(federation.transport(), round)) {
    const v1::Task task = TaskOf(federation.transport(), listed.id());
    REQUIRE(task.attempts_size() == 1);
    for (const v1::PhaseInterval& interval : task.attempts(0).intervals()) {
      const absl::Duration took = FromProto(interval.end_time()) - FromProto(interval.begin_time());
      if (interval.phase() == "compute") CHECK(took >= kWork);
    }
  }

  const CommandRun trace = federation.Sheaf({"round", "trace", round});
  CHECK(trace.exit_code == 0);
  CHECK(TraceProblems(trace.out) == std::vector<std::string>());
  // The critical path's, and one for each task.
  int slices = 0;
  const nlohmann::json json = nlohmann::json::parse(trace.out);
  for (const nlohmann::json& event : json.at("traceEvents")) {
    slices += event["ph"] == "X" && event["name"] == "compute" ? 1 : 0;
  }
  CHECK(slices == 7);
  CHECK_THAT(federation.Sheaf({"round", "describe", round}).out,
             Catch::Contains("The critical path: ") && Catch::Contains("% computing on edge-"));
  Measured("{} on the path of {}, {} of it unaccounted for", absl::FormatDuration(sum), absl::FormatDuration(wall),
           absl::FormatDuration(unnamed));
}

TEST_CASE("What people see names the task, its worker and why an attempt failed") {
  Federation federation;
  const std::string live = ALiveRound(federation);
  std::string failed;
  for (const v1::Task& task : TasksOf(federation.transport(), live)) {
    if (!task.last_error().empty()) failed = task.id();
  }
  const CommandRun task = federation.Sheaf({"task", "describe", failed});
  CHECK_THAT(task.out, Catch::Contains("hand") && Catch::Contains("the sensor was off"));
  const CommandRun workers = federation.Sheaf({"worker", "list"});
  CHECK_THAT(workers.out, Catch::Contains("hand"));
  const CommandRun round = federation.Sheaf({"round", "describe", live});
  CHECK_THAT(round.out, Catch::Contains(live) && Catch::Contains("COLLECTING"));
}

}  // namespace
}  // namespace sheaf
