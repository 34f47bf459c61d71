// The command line of 0.1 at a server of today, and today's at a server of 0.1.
#include <google/protobuf/util/json_util.h>

#include <nlohmann/json.hpp>
#include <set>

#include "cli/files.h"
#include "probe/one_hot.h"
#include "proto/time.h"
#include "tests/compat/command_storm.h"
#include "tests/compat/released.h"
#include "tests/e2e/rounds.h"

namespace sheaf {
namespace {

using Catch::Matchers::Contains;

std::string WriteSpec(const Federation& federation, const v1::RoundSpec& spec) {
  std::string json;
  REQUIRE(google::protobuf::util::MessageToJsonString(spec, &json).ok());
  const std::string path = federation.directory() + "/round.json";
  REQUIRE(WriteFile(path, json, Overwrite::kYes).ok());
  return path;
}

// Its last word is the id.
std::string CreateBySheaf(const Federation& federation, const v1::RoundSpec& spec) {
  CommandRun run = federation.Sheaf({"round", "create", "-f", WriteSpec(federation, spec)});
  INFO(run.out << run.err);
  REQUIRE(run.exit_code == 0);
  while (!run.out.empty() && run.out.back() == '\n') run.out.pop_back();
  return run.out.substr(run.out.find_last_of(" \n") + 1);
}

TEST_CASE("A round that a command line makes, awaits and reads while all are killed has each contribution once") {
  const Pairing pairing = GENERATE(from_range(BothWays()));
  INFO(pairing.who);
  Federation federation({.programs = pairing.programs});
  CommandStorm storm(federation, {"w1", "w2", "w3", "w4"});
  constexpr int kTasks = 120;
  v1::RoundSpec spec = OneHotRound({.num_tasks = kTasks, .work = absl::Milliseconds(200), .lease = absl::Seconds(1)});
  spec.mutable_retry()->set_lost_max(1000);
  const std::string round = CreateBySheaf(federation, spec);

  const CommandRun waited = storm.Sheaf({"round", "wait", round, "--timeout", "50s"});
  INFO(waited.out << waited.err);
  REQUIRE(waited.exit_code == 0);
  const std::string path = federation.directory() + "/result.safetensors";
  const CommandRun result = federation.Sheaf({"round", "result", round, "-o", path});
  INFO(result.err);
  REQUIRE(result.exit_code == 0);
  const absl::StatusOr<std::vector<int64_t>> counts = OneHotCounts(*ReadFile(path), OneHotForm::kMeeting);
  REQUIRE(counts.ok());
  CHECK(*counts == std::vector<int64_t>(kTasks, 1));
  CHECK(storm.num_server_kills() > 0);
  CHECK(storm.num_worker_kills() > 0);
  Measured("{}: {} tasks counted once; server killed {} times, workers {}", pairing.who, kTasks,
           storm.num_server_kills(), storm.num_worker_kills());
}

TEST_CASE("A selftest loses nothing at a server of the other version that is killed meanwhile") {
  const Pairing pairing = GENERATE(from_range(BothWays()));
  INFO(pairing.who);
  Federation federation({.programs = pairing.programs});
  CommandStorm storm(federation, {});
  const CommandRun run = storm.Sheaf({"server", "selftest", "--loops", "1", "--workers", "6", "-o", "json"});
  INFO(run.out << run.err);
  CHECK(run.exit_code == 0);
  CHECK_THAT(run.out, Contains("\"lost\": 0") && Contains("\"duplicated\": 0") && Contains("\"roundsReleased\": 1"));
  CHECK(storm.num_server_kills() > 0);
  Measured("{}: server killed {} times", pairing.who, storm.num_server_kills());
}

// "rounds[].id": of each value that stands in it.
void CollectPaths(const nlohmann::json& json, const std::string& path, std::set<std::string>& paths) {
  if (json.is_object()) {
    for (const auto& [key, value] : json.items()) CollectPaths(value, path + "." + key, paths);
  } else if (json.is_array()) {
    for (const nlohmann::json& value : json) CollectPaths(value, path + "[]", paths);
  } else {
    paths.insert(path);
  }
}

TEST_CASE("Every command that looks works at a server of the other version, and its JSON has what 0.1's had") {
  const Pairing pairing = GENERATE(from_range(BothWays()));
  INFO(pairing.who);
  Federation federation({.programs = pairing.programs});
  federation.StartWorker("w1");
  const std::string ended = CreateBySheaf(federation, OneHotRound({.num_tasks = 3}));
  REQUIRE(federation.Sheaf({"round", "wait", ended}).exit_code == 0);
  const std::string waits = CreateBySheaf(federation, OneHotRound({.num_tasks = 3, .num_gated = 2}));
  WaitUntil("the task that may is done", absl::Seconds(10),
            [&] { return RoundOf(federation.transport(), waits).num_contributions() == 1; });

  const std::vector<std::vector<std::string>> commands = {{"round", "list"},
                                                          {"round", "describe", ended},
                                                          {"round", "describe", waits},
                                                          {"round", "explain", waits},
                                                          {"task", "list"},
                                                          {"queue", "describe"},
                                                          {"task", "describe", ended + "/0"},
                                                          {"worker", "list"},
                                                          {"server", "info"},
                                                          {"task", "list", "--round", waits, "--state", "QUEUED"},
                                                          {"round", "watch", ended},
                                                          {"round", "list", "--state", "COLLECTING"}};
  for (const std::vector<std::string>& words : commands) {
    INFO(fmt::format("sheaf {}", fmt::join(words, " ")));
    federation.programs().sheaf = pairing.programs.sheaf;
    const CommandRun table = federation.Sheaf(words);
    INFO(table.out << table.err);
    CHECK(table.exit_code == 0);
    CHECK(!(table.out + table.err).empty());
    if (words[1] == "watch") continue;

    std::set<std::string> of_released, of_today;
    for (auto [sheaf, paths] : {std::pair(Released().sheaf, &of_released), {Programs().sheaf, &of_today}}) {
      federation.programs().sheaf = sheaf;
      std::vector<std::string> in_json = words;
      in_json.insert(in_json.end(), {"-o", "json"});
      const CommandRun run = federation.Sheaf(in_json);
      INFO(run.err);
      CHECK(run.exit_code == 0);
      const nlohmann::json json = nlohmann::json::parse(run.out, nullptr, false);
      REQUIRE(json.is_object());
      CollectPaths(json, "", *paths);
    }
    std::vector<std::string> missing;
    std::set_difference(of_released.begin(), of_released.end(), of_today.begin(), of_today.end(),
                        std::back_inserter(missing));
    CHECK(missing == std::vector<std::string>());
  }
}

TEST_CASE("Every command that changes something works at a server of the other version") {
  const Pairing pairing = GENERATE(from_range(BothWays()));
  INFO(pairing.who);
  Federation federation({.programs = pairing.programs});
  federation.StartWorker("w1");
  const auto must = [&](const std::vector<std::string>& words) {
    const CommandRun run = federation.Sheaf(words);
    INFO(fmt::format("sheaf {}\n{}{}", fmt::join(words, " "), run.out, run.err));
    REQUIRE(run.exit_code == 0);
  };
  // The worker makes no progress while it computes: its task is taken away from it, and comes back.
  const std::string round = CreateBySheaf(federation, OneHotRound({.num_tasks = 1, .work = absl::Seconds(2)}));
  WaitUntil("the task runs", absl::Seconds(10),
            [&] { return TaskOf(federation.transport(), round + "/0").state() == v1::LEASED; });
  must({"task", "requeue", round + "/0"});
  must({"round", "wait", round, "--timeout", "20s"});
  CHECK(TaskOf(federation.transport(), round + "/0").num_attempts() == 2);
  CHECK(CountsOf(federation.transport(), round) == std::vector<int64_t>(1, 1));

  const std::string cancelled = CreateBySheaf(federation, OneHotRound({.num_tasks = 1, .num_gated = 1}));
  must({"round", "cancel", cancelled});
  CHECK(RoundOf(federation.transport(), cancelled).state() == v1::CANCELLED);

  must({"worker", "drain", "w1"});
  must({"worker", "drain", "w1", "--undo"});

  const std::string file = federation.directory() + "/operator.token";
  must({"token", "create", "admin", "--role", "operator", "--to", file});
  CHECK(federation.Sheaf({"token", "list"}).exit_code != 0);
  const CommandRun listed = federation.Sheaf({"--token-file", file, "token", "list", "-o", "json"});
  const nlohmann::json json = nlohmann::json::parse(listed.out, nullptr, false);
  REQUIRE(json.contains("tokens"));
  must({"--token-file", file, "token", "revoke", json.at("tokens").at(0).at("id").get<std::string>()});
}

}  // namespace
}  // namespace sheaf
