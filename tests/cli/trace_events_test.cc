// A round as a trace: what Perfetto takes, with all that happened, in its place.
#include "cli/trace_events.h"

#include <google/protobuf/text_format.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "cli/files.h"
#include "cli/processes/temporary_directory.h"
#include "proto/time.h"
#include "tests/cli/command_run.h"
#include "tests/cli/sample_messages.h"
#include "tests/cli/trace_check.h"

namespace sheaf {
namespace {

using Catch::Contains;
using Nothing = std::vector<std::string>;

const absl::Time kNow = absl::FromUnixSeconds(1'769'860'800);

std::vector<nlohmann::json> EventsOf(const std::string& json, const std::string& ph, const std::string& name) {
  std::vector<nlohmann::json> found;
  const nlohmann::json trace = nlohmann::json::parse(json);
  for (const nlohmann::json& event : trace.at("traceEvents")) {
    if (event["ph"] == ph && event["name"] == name) found.push_back(event);
  }
  return found;
}

// As many attempts at once, by one worker, as it was given tasks.
std::vector<v1::Task> OverlappingTasks(const v1::Round& round) {
  std::vector<v1::Task> tasks;
  for (int i = 0; i < 3; ++i) {
    v1::Task& task = tasks.emplace_back(TracedTask());
    task.set_id(fmt::format("{}/{}", round.id(), i));
    const absl::Duration later = absl::Milliseconds(50 * i);
    for (v1::Attempt& attempt : *task.mutable_attempts()) {
      *attempt.mutable_lease_time() = ToProto(FromProto(attempt.lease_time()) + later);
      *attempt.mutable_end_time() = ToProto(FromProto(attempt.end_time()) + later);
      for (v1::PhaseInterval& interval : *attempt.mutable_intervals()) {
        *interval.mutable_begin_time() = ToProto(FromProto(interval.begin_time()) + later);
        *interval.mutable_end_time() = ToProto(FromProto(interval.end_time()) + later);
      }
    }
  }
  return tasks;
}

TEST_CASE("A trace shows every attempt's wait, phases and end, the server, and the critical path") {
  const v1::Round round = TracedRound();
  const std::string json = TraceEvents(round, std::vector<v1::Task>{TracedTask()}, kNow);
  CHECK(TraceProblems(json) == Nothing());
  // Milliseconds of the round, as microseconds.
  const auto at = [](const nlohmann::json& event) { return event["ts"].get<double>() / 1000; };
  const std::vector<nlohmann::json> waits = EventsOf(json, "b", "wait");
  REQUIRE(waits.size() == 2);
  CHECK(at(waits[0]) == 0);
  CHECK(EventsOf(json, "i", "LOST").size() == 1);
  CHECK(EventsOf(json, "i", "SUCCEEDED").size() == 1);
  // Once on the critical path, and once in the attempt.
  const std::vector<nlohmann::json> computing = EventsOf(json, "X", "compute");
  REQUIRE(computing.size() == 2);
  CHECK(at(computing[0]) == 420);
  CHECK(computing[0]["dur"] == 500'000);
  CHECK(computing[0]["args"]["worker"] == "edge-7");
  CHECK(computing[1]["ts"] == computing[0]["ts"]);
  const std::vector<nlohmann::json> sealing = EventsOf(json, "X", "seal");
  REQUIRE(sealing.size() == 2);
  CHECK(at(sealing[1]) == 1200);
  // The server has it from when the call came.
  const std::vector<nlohmann::json> receiving = EventsOf(json, "X", "receive");
  CHECK(receiving.size() == 3);
  // The most leases at once, and none at the end.
  const std::vector<nlohmann::json> leases = EventsOf(json, "C", "leases held");
  REQUIRE(leases.size() == 4);
  CHECK(leases.back()["args"]["value"] == 0);
  for (const char* name : {"worker edge-1", "worker edge-7", "server", "round r-7k2m9q4x"}) {
    CHECK_THAT(json, Contains(fmt::format("{{\"name\":\"{}\"}}", name)));
  }
}

TEST_CASE("Attempts that a worker had at once lie on tracks of their own") {
  const v1::Round round = TracedRound();
  const std::string json = TraceEvents(round, OverlappingTasks(round), kNow);
  CHECK(TraceProblems(json) == Nothing());
  std::set<std::pair<int, int>> tracks;
  const nlohmann::json trace = nlohmann::json::parse(json);
  for (const nlohmann::json& event : trace.at("traceEvents")) {
    if (event["ph"] == "X" && event["pid"].get<int>() > 2) tracks.emplace(event["pid"].get<int>(), event["tid"].get<int>());
  }
  CHECK(tracks.size() == 6);
}

TEST_CASE("A round that runs, and one of a server that knows no critical path, can be traced, too") {
  const std::string json = TraceEvents(CollectingRound(), std::vector<v1::Task>{RetriedTask()}, kNow);
  CHECK(TraceProblems(json) == Nothing());
  CHECK(EventsOf(json, "X", "collecting").size() == 1);
  CHECK(EventsOf(json, "i", "LOST").size() == 1);
  CHECK(EventsOf(json, "i", "RUNNING").empty());
  CHECK(TraceProblems(TraceEvents(SucceededRound(), {}, kNow)) == Nothing());
  CHECK(TraceProblems(TraceEvents(v1::Round(), {}, kNow)) == Nothing());
}

TEST_CASE("What a broken server says of its times makes no trace that cannot be opened") {
  v1::Round round = TracedRound();
  v1::Task task = TracedTask();
  task.mutable_attempts(0)->set_worker("\xff\"\\\n");
  task.mutable_attempts(0)->mutable_end_time()->set_seconds(-5);
  for (v1::PhaseInterval& interval : *task.mutable_attempts(1)->mutable_intervals()) {
    std::swap(*interval.mutable_begin_time(), *interval.mutable_end_time());
  }
  task.mutable_attempts(1)->mutable_intervals(2)->mutable_end_time()->set_seconds(INT64_MAX);
  round.mutable_critical_path(1)->mutable_begin_time()->set_seconds(INT64_MIN);
  round.mutable_end_time()->set_seconds(0);
  CHECK(TraceProblems(TraceEvents(round, std::vector<v1::Task>{task}, kNow)) == Nothing());
}

TEST_CASE("The check of traces finds what it is to find") {
  const auto problems = [](const std::string& events) { return TraceProblems("{\"traceEvents\":[" + events + "]}"); };
  const std::string names = R"({"ph":"M","pid":1,"name":"process_name","args":{"name":"p"}},)"
                            R"({"ph":"M","pid":1,"tid":1,"name":"thread_name","args":{"name":"t"}},)";
  const auto slice = [](int ts, int dur) {
    return fmt::format(R"({{"ph":"X","pid":1,"tid":1,"name":"a","ts":{},"dur":{}}})", ts, dur);
  };
  CHECK(problems(names + slice(0, 4) + "," + slice(1, 3) + "," + slice(4, 1)) == Nothing());
  CHECK(problems(names + slice(0, 4) + "," + slice(1, 4)).size() == 1);
  CHECK(problems(names + slice(0, -1)).size() == 1);
  CHECK(problems(slice(0, 1)).size() == 2);
  CHECK(problems(names + R"({"ph":"M","pid":2,"tid":1,"name":"thread_name","args":{"name":"t"}})").size() == 1);
  CHECK(problems(names + R"({"ph":"C","pid":1,"tid":1,"name":"a","ts":0.5,"args":{"value":1}})").size() == 1);
  CHECK(problems(names + R"({"ph":"b","pid":1,"tid":1,"name":"a","ts":0,"id":"1","cat":"c"})").size() == 1);
  CHECK(problems(names + R"({"ph":"i","pid":1,"tid":1,"name":"a","ts":0})").size() == 1);
  CHECK(TraceProblems("[1").size() == 1);
}

TEST_CASE("round trace reads a round's tasks page by page, each with its attempts, and writes a file or stdout") {
  CommandRun run;
  run.server.On(kGetRound, [](const v1::GetRoundRequest&) -> absl::StatusOr<v1::GetRoundResponse> {
    v1::GetRoundResponse response;
    *response.mutable_round() = TracedRound();
    return response;
  });
  run.server.On(kListTasks, [](const v1::ListTasksRequest& request) -> absl::StatusOr<v1::ListTasksResponse> {
    v1::ListTasksResponse response;
    const int first = request.page_token().empty() ? 0 : std::stoi(request.page_token());
    for (int i = first; i < std::min(first + std::min(request.page_size(), 2), 6); ++i) {
      v1::Task& task = *response.add_tasks();
      task.set_id(fmt::format("r-7k2m9q4x/{}", i));
      // The third was never leased.
      task.set_num_attempts(i == 2 ? 0 : 1);
    }
    const int next = first + response.tasks_size();
    if (next < 6) response.set_next_page_token(std::to_string(next));
    return response;
  });
  std::vector<std::string> asked;
  run.server.On(kGetTask, [&](const v1::GetTaskRequest& request) -> absl::StatusOr<v1::GetTaskResponse> {
    asked.push_back(request.task());
    v1::GetTaskResponse response;
    *response.mutable_task() = TracedTask();
    response.mutable_task()->set_id(request.task());
    return response;
  });
  CHECK(run({"round", "trace", "r-7k2m9q4x"}) == 0);
  CHECK(run.err().empty());
  CHECK(TraceProblems(run.out()) == Nothing());
  CHECK(asked ==
        std::vector<std::string>{"r-7k2m9q4x/0", "r-7k2m9q4x/1", "r-7k2m9q4x/3", "r-7k2m9q4x/4", "r-7k2m9q4x/5"});

  // The task of the critical path is among few, too.
  asked.clear();
  CHECK(run({"round", "trace", "r-7k2m9q4x", "-o", "-", "--tasks", "2"}) == 0);
  CHECK(run.err() == "note: these are the first 2 tasks; --tasks 0 shows all\n");
  CHECK(asked == std::vector<std::string>{"r-7k2m9q4x/0", "r-7k2m9q4x/1", "r-7k2m9q4x/4"});

  const absl::StatusOr<TemporaryDirectory> directory = TemporaryDirectory::Create("/tmp", "sheaf-trace-");
  REQUIRE(directory.ok());
  const std::string path = directory->path() + "/trace.json";
  CHECK(run({"round", "trace", "r-7k2m9q4x", "-o", path}) == 0);
  CHECK(run.out().empty());
  CHECK_THAT(run.err(), Contains("5 tasks") && Contains("https://ui.perfetto.dev"));
  CHECK(TraceProblems(ReadFile(path).value()) == Nothing());
  CHECK(run({"round", "trace", "r-7k2m9q4x", "-o", path}) == 7);
  CHECK(run({"round", "trace", "r-7k2m9q4x", "-o", path, "--force"}) == 0);
}

}  // namespace
}  // namespace sheaf
