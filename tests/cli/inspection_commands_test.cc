#include <catch2/catch.hpp>
#include <iostream>

#include "cli/commands/paging.h"
#include "cli/terminal/errors.h"
#include "tests/cli/command_run.h"
#include "tests/cli/sample_messages.h"

namespace sheaf {
namespace {

using Catch::Matchers::Contains;

v1::Worker SampleWorker(const std::string& name) {
  v1::Worker worker;
  worker.set_name(name);
  worker.set_software_version("0.1.0");
  auto* offer = worker.add_computations();
  offer->set_name("tags");
  offer->set_version(1);
  worker.mutable_last_seen_time()->set_seconds(1'769'860'799);
  return worker;
}

TEST_CASE("task list shows who holds what, and passes its filters on") {
  CommandRun run;
  run.server.On(kListTasks, [](const v1::ListTasksRequest&) -> absl::StatusOr<v1::ListTasksResponse> {
    v1::ListTasksResponse response;
    *response.add_tasks() = RetriedTask();
    return response;
  });
  CHECK(run({"task", "list", "--round", "r-8b3n5r6y", "--state", "leased", "--state", "SUCCEEDED", "--worker",
             "demo-2"}) == 0);
  CHECK(run.out() ==
        "TASK           STATE   DATA        WORKER  ATTEMPTS  FAILED  LOST  AGE  LAST ERROR\n"
        "r-8b3n5r6y/17  LEASED  client:912  demo-2         2       0     1  40s  the lease expired\n");
  CHECK(run.server.requests.back() ==
        "population: \"default\" round: \"r-8b3n5r6y\" states: LEASED states: TASK_SUCCEEDED worker: \"demo-2\" "
        "page_size: 1000");
  CHECK(run({"task", "list", "--no-headers"}) == 0);
  CHECK_THAT(run.out(), !Contains("TASK "));
}

TEST_CASE("A list pages to its end, or up to the limit and says so") {
  CommandRun run;
  run.server.On(kListTasks, [](const v1::ListTasksRequest& request) -> absl::StatusOr<v1::ListTasksResponse> {
    v1::ListTasksResponse response;
    const int first = request.page_token().empty() ? 0 : std::stoi(request.page_token());
    for (int i = first; i < std::min(first + std::min(request.page_size(), 2), 5); ++i) {
      response.add_tasks()->set_id("r-1/" + std::to_string(i));
    }
    const int next = first + response.tasks_size();
    if (next < 5) response.set_next_page_token(std::to_string(next));
    return response;
  });
  CHECK(run({"task", "list", "--no-headers"}) == 0);
  CHECK_THAT(run.out(), Contains("r-1/0") && Contains("r-1/4"));
  CHECK(run.err().empty());
  CHECK(run({"task", "list", "--limit", "3"}) == 0);
  CHECK_THAT(run.out(), Contains("r-1/2") && !Contains("r-1/3"));
  CHECK(run.err() == "note: these are the first 3; --limit 0 shows all, --page-token 3 the next\n");
  CHECK(run({"task", "list", "--limit", "3", "-o", "json"}) == 0);
  CHECK_THAT(run.out(), Contains("\"nextPageToken\": \"3\""));
  CHECK(run({"task", "list", "--limit", "3", "--page-token", "3", "--no-headers"}) == 0);
  CHECK_THAT(run.out(), Contains("r-1/3") && Contains("r-1/4") && !Contains("r-1/2"));
  CHECK(run.err().empty());
}

TEST_CASE("A server whose pages are empty, or larger than asked for, does not keep a list going for ever") {
  for (const bool is_empty : {false, true}) {
    CommandRun run;
    int num_pages = 0;
    run.server.On(kListTasks, [&](const v1::ListTasksRequest& request) -> absl::StatusOr<v1::ListTasksResponse> {
      v1::ListTasksResponse response;
      // In the end, lest the test does not.
      if (++num_pages == 100) return response;
      for (int i = 0; i < (is_empty ? 0 : request.page_size() + 1); ++i) response.add_tasks()->set_id("r-1/0");
      response.set_next_page_token(std::to_string(num_pages));
      return response;
    });
    CHECK(run({"task", "list", "--limit", "0"}) == 1);
    CHECK(num_pages == 1);
    CHECK_THAT(run.err(), Contains("pages do not go on"));
  }
}

TEST_CASE("A list without an end is read up to what the memory of a command may take, and says how to go on") {
  CommandRun run;
  ImmediateTimer timer;
  Host host{.in = run.in,
            .out = std::cout,
            .err = std::cerr,
            .clock = run.clock,
            .random = run.random,
            .pause = nullptr,
            .environment = [](const std::string&) { return std::nullopt; },
            .connect = [&](const std::string&, const ChannelOptions&) -> absl::StatusOr<std::unique_ptr<Transport>> {
              return std::make_unique<BorrowedTransport>(run.server);
            },
            .timer = timer};
  int num_pages = 0;
  run.server.On(kListTasks, [&](const v1::ListTasksRequest&) -> absl::StatusOr<v1::ListTasksResponse> {
    v1::ListTasksResponse response;
    response.add_tasks()->set_last_error(std::string(1000, 'e'));
    if (++num_pages < 1000) response.set_next_page_token(std::to_string(num_pages));
    return response;
  });
  Session session(host, {});
  const auto listed = ListAll(
      session, kListTasks, {}, 0, [](auto& page) { return page.mutable_tasks(); }, 50'000);
  CHECK(absl::IsResourceExhausted(listed.status()));
  CHECK(num_pages < 60);
  CHECK_THAT(HintOf(listed.status()), Contains("--limit") && Contains("--page-token"));
}

TEST_CASE("A server that repeats a page does not keep a list going for ever") {
  CommandRun run;
  run.server.On(kListTasks, [](const v1::ListTasksRequest&) -> absl::StatusOr<v1::ListTasksResponse> {
    v1::ListTasksResponse response;
    response.add_tasks();
    response.set_next_page_token("again");
    return response;
  });
  CHECK(run({"task", "list"}) == 1);
}

TEST_CASE("task describe shows every attempt") {
  CommandRun run;
  run.server.On(kGetTask, [](const v1::GetTaskRequest&) -> absl::StatusOr<v1::GetTaskResponse> {
    v1::GetTaskResponse response;
    *response.mutable_task() = RetriedTask();
    return response;
  });
  CHECK(run({"task", "describe", "r-8b3n5r6y/17"}) == 0);
  CHECK(run.out() ==
        R"(Task:        r-8b3n5r6y/17
State:       LEASED
Data:        client:912
Worker:      demo-2
Attempts:    2, of these 0 failed, 1 lost
Last error:  the lease expired
Created:     40s ago

Attempts
  #  WORKER  OUTCOME  LEASED   ENDED             TOOK  DOWNLOAD  PREPARE  COMPUTE  UPLOAD   DOWN   UP  ERROR
  1  demo-1  LOST     39s ago  9s ago             30s         -        -        -       -    0 B  0 B  the lease expired
  2  demo-2  RUNNING  3s ago   (expires in 26s)  3.5s     1.2ms    300us     85ms       -  58 kB  0 B
)");
  CHECK(run({"task", "describe", "r-8b3n5r6y/17", "--time", "iso"}) == 0);
  CHECK_THAT(run.out(), Contains("2026-01-31T11:59:56.500Z"));
}

TEST_CASE("task requeue says what it did, under a key of its own") {
  CommandRun run;
  run.server.On(kRequeueTask, [](const v1::RequeueTaskRequest& request) -> absl::StatusOr<v1::RequeueTaskResponse> {
    CHECK(request.request_id().size() == 16);
    v1::RequeueTaskResponse response;
    response.mutable_task()->set_id(request.task());
    return response;
  });
  CHECK(run({"task", "requeue", "r-1/3"}) == 0);
  CHECK(run.out() == "task r-1/3 is queued again\n");
}

TEST_CASE("queue describe shows what waits and how fast it moves, and notes what nobody can run") {
  CommandRun run;
  run.server.On(kDescribeQueue, [](const v1::DescribeQueueRequest&) -> absl::StatusOr<v1::DescribeQueueResponse> {
    v1::DescribeQueueResponse response;
    response.set_population("default");
    response.set_num_live_rounds(1);
    response.mutable_tasks()->set_queued(21);
    response.mutable_tasks()->set_leased(3);
    response.mutable_tasks()->set_succeeded(26);
    response.mutable_oldest_age()->set_seconds(3);
    response.mutable_oldest_age()->set_nanos(800'000'000);
    response.set_num_unschedulable(4);
    response.set_num_parked_polls(5);
    response.set_leases_per_second(11.94);
    response.set_completions_per_second(12.06);
    return response;
  });
  CHECK(run({"queue", "describe"}) == 0);
  CHECK(
      run.out() ==
      "POPULATION  ROUNDS  QUEUED  DELAYED  LEASED  SUCCEEDED  FAILED  BURIED  OLDEST  LEASES/S  DONE/S  WAITING "
      "WORKERS\n"
      "default          1      21        0       3         26       0       0    3.8s      11.9    12.1                "
      "5\n");
  CHECK_THAT(run.err(), Contains("note: 4 queued tasks fit no worker seen lately"));
  CHECK(run({"queue", "describe", "-o", "json"}) == 0);
  CHECK(run.out() ==
        R"({
 "population": "default",
 "tasks": {
  "queued": "21",
  "leased": "3",
  "succeeded": "26",
  "failed": "0",
  "cancelled": "0",
  "buried": "0"
 },
 "numLiveRounds": "1",
 "numDelayed": "0",
 "numUnschedulable": "4",
 "numParkedPolls": "5",
 "leasesPerSecond": 11.94,
 "completionsPerSecond": 12.06,
 "numUnschedulableIsPartial": false,
 "oldestAge": "3.800s"
}
)");
  CHECK(run.err().empty());
}

TEST_CASE("worker list says in one word what each worker does") {
  CommandRun run;
  run.server.On(kListWorkers, [](const v1::ListWorkersRequest&) -> absl::StatusOr<v1::ListWorkersResponse> {
    v1::ListWorkersResponse response;
    *response.add_workers() = SampleWorker("demo-1");
    response.mutable_workers(0)->set_num_leased(2);
    response.mutable_workers(0)->set_num_succeeded(1234);
    *response.add_workers() = SampleWorker("demo-2");
    response.mutable_workers(1)->set_is_parked(true);
    *response.add_workers() = SampleWorker("demo-3");
    response.mutable_workers(2)->set_is_draining(true);
    response.mutable_workers(2)->set_num_leased(1);
    *response.add_workers() = SampleWorker("demo-4");
    *response.add_workers() = SampleWorker("demo-5");
    response.mutable_workers(4)->set_is_draining(true);
    (*response.mutable_workers(4)->mutable_labels())["zone"] = "eu";
    (*response.mutable_workers(4)->mutable_labels())["gpu"] = "yes";
    return response;
  });
  CHECK(run({"worker", "list"}) == 0);
  CHECK(run.out() ==
        "WORKER  STATE     LEASED  SUCCEEDED  FAILED  LOST  LAST SEEN  VERSION  LABELS           OFFERS\n"
        "demo-1  WORKING        2      1,234       0     0         1s  0.1.0    -                tags/1\n"
        "demo-2  WAITING        0          0       0     0         1s  0.1.0    -                tags/1\n"
        "demo-3  DRAINING       1          0       0     0         1s  0.1.0    -                tags/1\n"
        "demo-4  AWAY           0          0       0     0         1s  0.1.0    -                tags/1\n"
        "demo-5  DRAINED        0          0       0     0         1s  0.1.0    gpu=yes,zone=eu  tags/1\n");
  CHECK(run({"worker", "list", "--state", "waiting", "--no-headers"}) == 0);
  CHECK(run.out() == "demo-2  WAITING  0  0  0  0  1s  0.1.0  -  tags/1\n");
}

TEST_CASE("server info shows version, store and limits") {
  CommandRun run;
  run.server.On(kGetServerInfo, [](const v1::GetServerInfoRequest&) -> absl::StatusOr<v1::GetServerInfoResponse> {
    v1::GetServerInfoResponse response;
    response.set_version("0.1.0");
    response.set_protocol_version_min(1);
    response.set_protocol_version_max(2);
    response.mutable_start_time()->set_seconds(1'769'860'728);
    response.set_store("sqlite");
    response.set_schema_version(1);
    response.set_data_directory("/var/lib/sheaf");
    response.add_operators("sum");
    response.add_operators("mean");
    (*response.mutable_limits())["tasks_per_round_max"] = 100'000;
    response.set_num_workers(8);
    response.set_num_refused_calls(1234);
    return response;
  });
  CHECK(run({"server", "info"}) == 0);
  CHECK(run.out() ==
        R"(Server:          127.0.0.1:7433
State:           SERVING
Version:         0.1.0
Protocol:        1 to 2
Up for:          1m12s
Store:           sqlite, schema 1
Data directory:  /var/lib/sheaf
Live rounds:     0
Workers:         8
Refused calls:   1,234
Operators:       sum, mean

Limits
  tasks_per_round_max  100,000
)");
}

TEST_CASE("version needs no server") {
  CommandRun run;
  CHECK(run({"version"}) == 0);
  const std::string version = run.out();
  CHECK_THAT(version, Catch::Matchers::StartsWith("sheaf ") && Contains(" (protocol 1 to 2)"));
  CHECK(run({"--version"}) == 0);
  CHECK(run.out() == version);
  CHECK(run({"version", "-o", "json"}) == 0);
  CHECK_THAT(run.out(), Contains("\"protocolVersionMax\":2"));
  CHECK(run.connected_to.empty());
}

}  // namespace
}  // namespace sheaf
