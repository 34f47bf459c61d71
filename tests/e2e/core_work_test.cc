// What is largest that a server allows, of tasks, requirements, leases and rounds: none of it holds the core's thread,
// where everybody would wait for it. The fixture fails the test if a batch did (see slow_batches.h).
#include "proto/methods.h"
#include "tests/e2e/rounds.h"

namespace sheaf {
namespace {

// tasks_per_round_max.
constexpr int kTasks = 100'000;

v1::RoundSpec ASumRound() {
  v1::RoundSpec spec;
  spec.mutable_computation()->set_name("noop");
  v1::OutputSpec& output = *spec.mutable_aggregate()->add_outputs();
  output.set_name("x");
  output.set_operator_("sum");
  output.set_dtype(v1::FLOAT32);
  output.add_dense_shape(1);
  return spec;
}

v1::CreateRoundRequest Request(const std::string& request_id, v1::RoundSpec spec) {
  v1::CreateRoundRequest request;
  request.set_request_id(request_id);
  *request.mutable_spec() = std::move(spec);
  return request;
}

absl::StatusOr<v1::CreateRoundResponse> Create(Federation& federation, const v1::CreateRoundRequest& request) {
  return BlockingCall(federation.transport(), kCreateRound, request, {.timeout = absl::Seconds(60)});
}

v1::Round Cancel(Federation& federation, const std::string& round) {
  v1::CancelRoundRequest request;
  request.set_request_id("cancel-" + round);
  request.set_round(round);
  const auto cancelled = BlockingCall(federation.transport(), kCancelRound, request, {.timeout = absl::Seconds(60)});
  INFO(cancelled.status().ToString());
  REQUIRE(cancelled.ok());
  return cancelled->round();
}

TEST_CASE("A round of 100000 tasks, each with a requirement of its own, is created, created again, and cancelled") {
  Federation federation;
  v1::RoundSpec spec = ASumRound();
  for (int i = 0; i < kTasks; ++i) {
    v1::TaskSpec& task = *spec.mutable_listed()->add_tasks();
    task.set_payload(fmt::format("task {}", i));
    (*task.mutable_requirements())["zone"] = std::to_string(i);
  }
  const v1::CreateRoundRequest request = Request("request-1", spec);
  const absl::Time start = federation.clock().Now();
  const auto created = Create(federation, request);
  INFO(created.status().ToString());
  REQUIRE(created.ok());
  Measured("created within {}", absl::FormatDuration(federation.clock().Now() - start));
  const std::string round = created->round().id();
  CHECK(created->round().tasks().queued() == kTasks);
  const auto again = Create(federation, request);
  REQUIRE(again.ok());
  CHECK(again->round().id() == round);
  spec.mutable_listed()->mutable_tasks(kTasks - 2)->set_payload("another");
  const absl::Status other = Create(federation, Request("request-1", spec)).status();
  CHECK(absl::IsAlreadyExists(other));
  CHECK_THAT(std::string(other.message()), Catch::Contains("listed.tasks[99998].payload"));

  v1::SyncRequest poll = APoll("w1", "poll-1", 1);
  (*poll.mutable_labels())["zone"] = "77777";
  const v1::SyncResponse response = SyncOnce(federation.transport(), poll);
  REQUIRE(response.leases_size() == 1);
  CHECK(response.leases(0).payload() == "task 77777");
  const v1::Round cancelled = Cancel(federation, round);
  CHECK(cancelled.state() == v1::CANCELLED);
  CHECK(cancelled.tasks().cancelled() == kTasks);
  const v1::Task task = TaskOf(federation.transport(), response.leases(0).task());
  CHECK(task.state() == v1::TASK_CANCELLED);
}

TEST_CASE("A round of 100000 open slots that ends with its goal cancels all others") {
  Federation federation;
  v1::RoundSpec spec = ASumRound();
  spec.mutable_open_slots()->set_count(kTasks);
  spec.mutable_open_slots()->mutable_task()->set_payload(std::string(600, 'p'));
  spec.set_goal(1);
  const std::string round = StartRound(federation, spec);
  v1::SyncRequest poll = APoll("w1", "poll-1", 1);
  const v1::SyncResponse response = SyncOnce(federation.transport(), poll);
  REQUIRE(response.leases_size() == 1);
  v1::SyncRequest result = APoll("w1", "", 0);
  v1::TaskResult& done = *result.add_results();
  done.set_task(response.leases(0).task());
  done.set_lease_token(response.leases(0).lease_token());
  v1::Contribution contribution;
  v1::OutputValue& output = *contribution.add_outputs();
  output.set_name("x");
  output.mutable_dense()->set_dtype(v1::FLOAT32);
  output.mutable_dense()->add_shape(1);
  output.mutable_dense()->set_data(std::string(4, '\0'));
  done.set_contribution(contribution.SerializeAsString());
  CHECK(VerdictsOf(SyncOnce(federation.transport(), result)) == std::vector<std::string>{"ACCEPTED"});
  const v1::Round ended = Await(federation, round);
  CHECK(ended.tasks().cancelled() == kTasks - 1);
}

TEST_CASE("A list of the few tasks of a kind among 1200000 is whole, and holds nobody up") {
  Federation federation;
  std::vector<std::string> rounds;
  for (int i = 0; i < 12; ++i) {
    v1::RoundSpec spec = ASumRound();
    spec.mutable_open_slots()->set_count(kTasks);
    spec.set_goal(1);
    rounds.push_back(StartRound(federation, spec));
  }
  const auto list = [&](v1::ListTasksRequest request) {
    request.set_page_size(10);
    const auto page = BlockingCall(federation.transport(), kListTasks, request, {.timeout = absl::Seconds(60)});
    INFO(page.status().ToString());
    REQUIRE(page.ok());
    CHECK(page->next_page_token().empty());
    return page->tasks_size();
  };
  v1::ListTasksRequest buried;
  buried.add_states(v1::BURIED);
  const absl::Time start = federation.clock().Now();
  CHECK(list(buried) == 0);
  Measured("none found within {}", absl::FormatDuration(federation.clock().Now() - start));
  CHECK(SyncOnce(federation.transport(), APoll("w1", "poll-1", 3)).leases_size() == 3);
  v1::ListTasksRequest leased;
  leased.add_states(v1::LEASED);
  CHECK(list(leased) == 3);
  v1::ListTasksRequest of_worker;
  of_worker.set_worker("w1");
  CHECK(list(of_worker) == 3);
  of_worker.set_round(rounds[3]);
  of_worker.set_worker("w2");
  CHECK(list(of_worker) == 0);
}

TEST_CASE("A round of which 100000 tasks are leased is cancelled") {
  Federation federation;
  v1::RoundSpec spec = ASumRound();
  spec.mutable_open_slots()->set_count(kTasks);
  spec.set_goal(1);
  const std::string round = StartRound(federation, spec);
  std::optional<v1::Lease> lease;
  for (int i = 0; i * 256 < kTasks; ++i) {
    const v1::SyncResponse response =
        SyncOnce(federation.transport(), APoll(fmt::format("w{}", i), fmt::format("poll-{}", i), 256));
    REQUIRE(response.leases_size() > 0);
    lease = response.leases(0);
  }
  CHECK(RoundOf(federation.transport(), round).tasks().leased() == kTasks);
  CHECK(Cancel(federation, round).tasks().cancelled() == kTasks);
  v1::SyncRequest held = APoll("w390", "poll-2", 1);
  AddHeld(*lease, 1, held);
  const v1::SyncResponse response = SyncOnce(federation.transport(), held);
  REQUIRE(response.held_size() == 1);
  CHECK(response.held(0).verdict() == v1::LeaseUpdate::CANCELLED);
}

}  // namespace
}  // namespace sheaf
