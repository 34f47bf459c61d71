// What can be seen of rounds and tasks: lists, watches, timings, aggregates.
#include <fmt/format.h>
#include <google/protobuf/unknown_field_set.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "proto/time.h"
#include "tests/server/core_federation.h"

namespace sheaf {
namespace {

using Verdict = v1::ResultVerdict;

TEST_CASE("A page of rounds is cut where it grows too large for a message") {
  CoreFederation server;
  v1::RoundSpec spec = SumRound(1);
  spec.mutable_computation()->set_config(std::string(64 << 10, 'c'));
  std::vector<std::string> expected, listed;
  for (int i = 0; i < 100; ++i) expected.push_back(server.CreateRound(spec));
  v1::ListRoundsRequest request;
  request.set_page_size(1000);
  do {
    const auto page = server.Call<v1::ListRoundsResponse>("RoundService/ListRounds", request);
    REQUIRE(page.ok());
    REQUIRE(page->rounds_size() > 0);
    CHECK(page->ByteSizeLong() < 4 << 20);
    for (const v1::Round& round : page->rounds()) listed.push_back(round.id());
    request.set_page_token(page->next_page_token());
  } while (!request.page_token().empty());
  std::sort(listed.begin(), listed.end());
  std::sort(expected.begin(), expected.end());
  CHECK(listed == expected);
}

TEST_CASE("What a worker says of its time can be shown and added up, however absurd") {
  CoreFederation server;
  const std::string round = server.CreateRound(SumRound(3));
  const v1::SyncResponse granted = server.Sync(Ask("w", 3));
  REQUIRE(granted.leases_size() == 3);
  server.Advance(absl::Seconds(2));
  v1::AttemptTimings absurd;
  absurd.mutable_download()->set_seconds(INT64_MAX);
  absurd.mutable_prepare()->set_seconds(5);
  absurd.mutable_prepare()->set_nanos(-3);
  absurd.mutable_compute()->set_seconds(INT64_MIN);
  absurd.mutable_upload()->set_nanos(INT32_MAX);
  absurd.set_bytes_down(INT64_MAX);
  AddUnknown(absurd, 1 << 20);
  AddUnknown(*absurd.mutable_upload(), 1 << 20);
  v1::SyncRequest request = Ask("w", 0);
  for (int i = 0; i < 2; ++i) *request.add_results() = Result(granted.leases(i), 1);
  *request.add_results() = Failure(granted.leases(2), "broken");
  for (v1::TaskResult& result : *request.mutable_results()) *result.mutable_timings() = absurd;
  server.Sync(request);
  for (const v1::Lease& lease : granted.leases()) {
    const v1::Task task = server.GetTask(lease.task());
    CHECK(HasJson(task));
    CHECK(task.ByteSizeLong() < 1000);
    REQUIRE(task.attempts_size() == 1);
    CHECK(FromProto(task.attempts(0).timings().prepare()) == absl::Seconds(5) - absl::Nanoseconds(3));
  }
  server.Advance(absl::Minutes(2));
  REQUIRE(Contribute(server, "w", 1) == Verdict::ACCEPTED);
  const v1::Round done = server.GetRound(round);
  REQUIRE(done.state() == v1::SUCCEEDED);
  CHECK(HasJson(done));
  CHECK(done.bytes_down() > 0);
}

TEST_CASE("A list of rounds or tasks in a state that there is not is refused, whatever its number") {
  CoreFederation server;
  server.CreateRound(SumRound(1));
  for (const int number : {-1, 8, 36, 64, 100}) {
    v1::ListRoundsRequest rounds;
    rounds.mutable_states()->Add(number);
    const absl::Status of_rounds = server.Call<v1::ListRoundsResponse>("RoundService/ListRounds", rounds).status();
    CHECK(of_rounds == absl::InvalidArgumentError(fmt::format("states has {}, which is no RoundState", number)));
    v1::ListTasksRequest tasks;
    tasks.mutable_states()->Add(number);
    const absl::Status of_tasks = server.Call<v1::ListTasksResponse>("InspectionService/ListTasks", tasks).status();
    CHECK(of_tasks == absl::InvalidArgumentError(fmt::format("states has {}, which is no TaskState", number)));
  }
}

TEST_CASE(
    "The few tasks of a kind among very many are listed whole, and nobody waits for a list when the server stops") {
  Limits limits;
  CoreFederation server(limits);
  v1::RoundSpec spec = SumRound(0);
  spec.mutable_open_slots()->set_count(60'000);
  spec.set_goal(1);
  const std::string first = server.CreateRound(spec);
  const std::string second = server.CreateRound(spec);
  const v1::Lease lease = server.Sync(Ask("w", 1)).leases(0);
  v1::ListTasksRequest list;
  list.add_states(v1::LEASED);
  const auto page = server.Call<v1::ListTasksResponse>("InspectionService/ListTasks", list);
  REQUIRE(page->tasks_size() == 1);
  CHECK(page->tasks(0).id() == lease.task());
  CHECK(page->next_page_token().empty());
  list.set_round(lease.round() == first ? second : first);
  CHECK(server.Call<v1::ListTasksResponse>("InspectionService/ListTasks", list)->tasks_size() == 0);

  std::vector<absl::Status> answers;
  TaskListing listing(server.core().context());
  list.clear_round();
  for (int i = 0; i < 2; ++i) {
    listing.List(list, [&](const auto& answer) { answers.push_back(answer.status()); });
  }
  CHECK(answers.empty());
  listing.BeginDrain();
  CHECK(answers == std::vector<absl::Status>(2, absl::UnavailableError("the server is stopping")));
  server.Run();
}

TEST_CASE("Whoever stops waiting for a round takes up no room any more") {
  Limits limits;
  limits.watches_max = 1;
  CoreFederation server(limits);
  const std::string round = server.CreateRound(SumRound(1));
  v1::GetRoundRequest watch;
  watch.set_round(round);
  watch.set_etag(server.GetRound(round).etag());
  watch.mutable_wait()->set_seconds(50);
  const auto gone = server.CallLater<v1::GetRoundResponse>("RoundService/GetRound", watch);
  CHECK_FALSE(gone->has_value());
  server.AbandonmentOfNewestCall()();
  server.Run();
  REQUIRE(gone->has_value());
  CHECK((*gone)->status().code() == absl::StatusCode::kCancelled);
  const auto next = server.CallLater<v1::GetRoundResponse>("RoundService/GetRound", watch);
  CHECK_FALSE(next->has_value());
}

// Keeps what it is given until it is told.
class HeldCalls final : public CallPool {
 public:
  void Run(const std::string& /*client*/, Length /*length*/, std::function<void()> work) override {
    held.push_back(std::move(work));
  }
  std::vector<std::function<void()>> held;
};

TEST_CASE("A large answer of a batch is written outside of it, and a small one at once") {
  CoreFederation server;
  v1::RoundSpec spec = SumRound(3);
  spec.mutable_computation()->set_config(std::string(60'000, 'c'));
  server.CreateRound(spec);
  HeldCalls pool;
  const Dispatcher dispatcher(server.parts().methods, server, server.core(), server.parts().admission, &pool);
  const auto answer_to = [&](const std::string& worker, int want, v1::SyncResponse& response) {
    auto answer = std::make_shared<std::optional<absl::Status>>();
    const v1::SyncRequest request = Ask(worker, want);
    dispatcher.Dispatch("sheaf.v1.WorkService/Sync", {.id = dispatcher.NewCall()}, request, &response,
                        [answer](absl::Status status) { *answer = std::move(status); });
    server.Run();
    return answer;
  };
  v1::SyncResponse small;
  const auto at_once = answer_to("w", 1, small);
  REQUIRE(at_once->has_value());
  REQUIRE((*at_once)->ok());
  CHECK(small.leases_size() == 1);
  CHECK(pool.held.empty());
  v1::SyncResponse large;
  const auto later = answer_to("v", 2, large);
  CHECK_FALSE(later->has_value());
  REQUIRE(pool.held.size() == 1);
  pool.held[0]();
  REQUIRE(later->has_value());
  CHECK((*later)->ok());
  CHECK(large.leases_size() == 2);
}

TEST_CASE("An aggregate is looked up in a batch, and read outside of it") {
  CoreFederation server;
  const std::string id = server.CreateRound(SumRound(1));
  HeldCalls pool;
  const Dispatcher dispatcher(server.parts().methods, server, server.core(), server.parts().admission, &pool);
  v1::ReadAggregateRequest request;
  request.set_round(id);
  v1::ReadAggregateResponse response;
  std::optional<absl::Status> answer;
  const auto read = [&](int64_t answer_bytes_max) {
    answer.reset();
    dispatcher.Dispatch("sheaf.v1.RoundService/ReadAggregate", {.answer_bytes_max = answer_bytes_max}, request,
                        &response, [&](absl::Status status) { answer = std::move(status); });
    server.Run();
  };
  // There is nothing to read yet.
  read(0);
  REQUIRE(answer.has_value());
  CHECK(absl::IsFailedPrecondition(*answer));
  CHECK(pool.held.empty());
  REQUIRE(Contribute(server, "w", 7) == Verdict::ACCEPTED);
  read(0);
  CHECK_FALSE(answer.has_value());
  REQUIRE(pool.held.size() == 1);
  pool.held[0]();
  REQUIRE(answer.has_value());
  INFO(answer->ToString());
  REQUIRE(answer->ok());
  CHECK(FirstOf(response.data()) == 7);
  // No more than there is room for.
  read(10);
  pool.held[1]();
  CHECK(response.data().size() == 10);
}

}  // namespace
}  // namespace sheaf
