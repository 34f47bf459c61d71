// What a round does, from creation to its aggregate, seen through the handlers.
#include <fmt/format.h>
#include <google/protobuf/unknown_field_set.h>
#include <google/protobuf/util/json_util.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <cstring>
#include <utility>
#include <vector>

#include "aggregation/round_accumulator.h"
#include "aggregation/wire/safetensors.h"
#include "base/checksum.h"
#include "base/clock.h"
#include "base/retry_hint.h"
#include "proto/time.h"
#include "server/core/uploads/upload_names.h"
#include "server/stored/round_progress.h"
#include "tests/server/core_federation.h"

namespace sheaf {
namespace {

constexpr int64_t kLargeElements = 32 << 10;

using Catch::Matchers::Contains;
using Verdict = v1::ResultVerdict;

// The first element of the released sum.
float FirstOf(const std::string& file) {
  const auto view = SafetensorsView::Parse(file);
  REQUIRE(view.ok());
  const auto tensor = view->Find("x");
  REQUIRE(tensor.ok());
  float value = 0;
  std::memcpy(&value, (*tensor)->data.data(), sizeof value);
  return value;
}

// Leases one task for `worker` and hands in `value` for it.
Verdict::Verdict Contribute(CoreFederation& server, const std::string& worker, float value) {
  const v1::SyncResponse granted = server.Sync(Ask(worker, 1));
  REQUIRE(granted.leases_size() == 1);
  v1::SyncRequest request = Ask(worker, 0);
  *request.add_results() = Result(granted.leases(0), value);
  return server.Sync(request).verdicts(0).verdict();
}

bool HasJson(const google::protobuf::Message& message) {
  std::string json;
  const auto status = google::protobuf::util::MessageToJsonString(message, &json);
  INFO(status.ToString());
  CHECK(status.ok());
  return status.ok();
}

// A field of a later version, most likely.
void AddUnknown(google::protobuf::Message& message, size_t size) {
  message.GetReflection()->MutableUnknownFields(&message)->AddLengthDelimited(1000, std::string(size, 'u'));
}

absl::Status StatusOfCreate(CoreFederation& server, const v1::RoundSpec& spec) {
  v1::CreateRoundRequest request;
  request.set_request_id("r");
  *request.mutable_spec() = spec;
  return server.Call<v1::CreateRoundResponse>("RoundService/CreateRound", request).status();
}

TEST_CASE("A round succeeds with its last contribution and releases the sum") {
  CoreFederation server;
  const std::string round = server.CreateRound(SumRound(3));
  for (int i = 1; i <= 3; ++i) REQUIRE(Contribute(server, "w", static_cast<float>(i)) == Verdict::ACCEPTED);
  const v1::Round done = server.GetRound(round);
  REQUIRE(done.state() == v1::SUCCEEDED);
  REQUIRE(done.aggregate().num_contributions() == 3);
  REQUIRE(done.tasks().succeeded() == 3);
  REQUIRE(FirstOf(server.ReadAggregate(round)) == 6);
  REQUIRE(server.payloads().ListRounds()->empty());
}

TEST_CASE("The phases of a round add up to its wall time") {
  CoreFederation server;
  const std::string round = server.CreateRound(SumRound(1));
  server.Advance(absl::Seconds(2));
  const v1::SyncResponse granted = server.Sync(Ask("w", 1));
  server.Advance(absl::Seconds(3));
  v1::SyncRequest request = Ask("w", 0);
  *request.add_results() = Result(granted.leases(0), 1);
  *request.mutable_results(0)->mutable_timings()->mutable_compute() = ToProto(absl::Seconds(1));
  server.Sync(request);
  const v1::RoundPhases phases = server.GetRound(round).phases();
  REQUIRE(FromProto(phases.wait()) == absl::Seconds(2));
  REQUIRE(FromProto(phases.compute()) == absl::Seconds(1));
  REQUIRE(FromProto(phases.upload()) == absl::Seconds(2));
}

TEST_CASE("The same request_id gets the same round") {
  CoreFederation server;
  v1::CreateRoundRequest request;
  request.set_request_id("once");
  *request.mutable_spec() = SumRound(1);
  const auto first = server.Call<v1::CreateRoundResponse>("RoundService/CreateRound", request);
  const auto again = server.Call<v1::CreateRoundResponse>("RoundService/CreateRound", request);
  REQUIRE(first->round().id() == again->round().id());
}

TEST_CASE("A repeated creation gets its round, also if that took the last room; another is refused") {
  Limits limits;
  limits.live_rounds_max = 1;
  CoreFederation server(limits);
  v1::CreateRoundRequest request;
  request.set_request_id("once");
  *request.mutable_spec() = SumRound(1);
  const auto first = server.Call<v1::CreateRoundResponse>("RoundService/CreateRound", request);
  const auto again = server.Call<v1::CreateRoundResponse>("RoundService/CreateRound", request);
  REQUIRE(again.ok());
  CHECK(first->round().id() == again->round().id());
  request.set_request_id("another");
  const auto other = server.Call<v1::CreateRoundResponse>("RoundService/CreateRound", request);
  CHECK(absl::IsResourceExhausted(other.status()));
}

TEST_CASE("A round of many tasks is created over several batches, and all who ask for it meanwhile get the same") {
  Limits limits;
  limits.tasks_per_batch_max = 2;
  CoreFederation server(limits);
  v1::CreateRoundRequest request;
  request.set_request_id("q");
  *request.mutable_spec() = SumRound(7);
  for (int i = 0; i < 7; ++i) {
    request.mutable_spec()->mutable_listed()->mutable_tasks(i)->set_payload(std::to_string(i));
  }
  v1::CreateRoundRequest other = request;
  other.mutable_spec()->mutable_listed()->mutable_tasks(6)->set_payload("7");
  v1::CreateRoundRequest wrong = request;
  wrong.mutable_spec()->clear_aggregate();
  const auto create = [&](const v1::CreateRoundRequest& asked) {
    return server.CallInOneBatch<v1::CreateRoundResponse>("RoundService/CreateRound", asked);
  };
  const auto first = create(request), second = create(request), third = create(other), fourth = create(wrong);
  CHECK_FALSE(first->has_value());
  server.Run();
  REQUIRE((first->has_value() && second->has_value() && third->has_value() && fourth->has_value()));
  REQUIRE((*first)->ok());
  REQUIRE((*second)->ok());
  CHECK((**first)->round().id() == (**second)->round().id());
  CHECK(absl::IsAlreadyExists((*third)->status()));
  CHECK_THAT(std::string((*third)->status().message()), Contains("listed.tasks[6].payload"));
  CHECK(absl::IsInvalidArgument((*fourth)->status()));
  CHECK(server.store().ListRounds({})->size() == 1);
  for (int i = 0; i < 7; ++i) {
    CHECK(server.store().GetTask({RoundId((**first)->round().id()), i})->payload == std::to_string(i));
  }

  // A server that ends before the last batch has created nothing.
  request.set_request_id("q2");
  const auto unanswered = create(request);
  server.CrashAndRestart();
  CHECK_FALSE(unanswered->has_value());
  CHECK(server.store().ListRounds({})->size() == 1);
  const auto again = server.Call<v1::CreateRoundResponse>("RoundService/CreateRound", request);
  REQUIRE(again.ok());
  CHECK(again->round().tasks().queued() == 7);
}

TEST_CASE("A round of many tasks for which there is no room any more when they are stored is not created") {
  Limits limits;
  limits.tasks_per_batch_max = 2;
  limits.live_rounds_max = 1;
  limits.population_percent_max = 100;
  CoreFederation server(limits);
  v1::CreateRoundRequest request;
  request.set_request_id("large");
  *request.mutable_spec() = SumRound(5);
  const auto large = server.CallInOneBatch<v1::CreateRoundResponse>("RoundService/CreateRound", request);
  server.CreateRound(SumRound(1));
  server.Run();
  REQUIRE(large->has_value());
  CHECK(absl::IsResourceExhausted((*large)->status()));
  CHECK(server.store().ListRounds({})->size() == 1);
}

TEST_CASE("A wrong spec is refused with the field and the reason, and nothing is created") {
  CoreFederation server;
  v1::RoundSpec spec = SumRound(2);
  spec.mutable_aggregate()->mutable_outputs(0)->set_operator_("average");
  REQUIRE(absl::IsInvalidArgument(StatusOfCreate(server, spec)));
  REQUIRE_THAT(std::string(StatusOfCreate(server, spec).message()),
               Catch::Contains("average") && Catch::Contains("weighted_mean"));
  spec = SumRound(2);
  spec.set_goal(3);
  REQUIRE_THAT(std::string(StatusOfCreate(server, spec).message()), Catch::Contains("spec.goal is 3"));
  REQUIRE(absl::IsInvalidArgument(StatusOfCreate(server, SumRound(0))));
  spec = SumRound(1);
  spec.set_broadcast_digest(std::string(64, 'a'));
  REQUIRE(absl::IsNotFound(StatusOfCreate(server, spec)));
  REQUIRE(server.Call<v1::ListRoundsResponse>("RoundService/ListRounds", v1::ListRoundsRequest())->rounds().empty());
}

TEST_CASE("A number of tasks cannot be derived from a goal or a factor that is none") {
  CoreFederation server;
  v1::RoundSpec spec = SumRound(0);
  spec.mutable_open_slots();
  spec.set_goal(-5);
  CHECK_THAT(std::string(StatusOfCreate(server, spec).message()), Contains("spec.goal is -5"));
  spec.set_goal(5);
  for (const double factor : {std::nan(""), -2.0, 0.5, 101.0, 1e308, HUGE_VAL, -HUGE_VAL}) {
    spec.set_over_selection(factor);
    INFO(factor);
    CHECK_THAT(std::string(StatusOfCreate(server, spec).message()), Contains("spec.over_selection must lie between"));
  }
  spec.set_over_selection(100);
  spec.set_goal(INT32_MAX);
  CHECK_THAT(std::string(StatusOfCreate(server, spec).message()), Contains("tasks_per_round_max"));
}

TEST_CASE("The number of open slots is the goal times the over-selection, rounded up") {
  CoreFederation server;
  v1::RoundSpec spec = SumRound(0);
  spec.mutable_open_slots();
  spec.set_goal(5);
  CHECK(server.GetRound(server.CreateRound(spec)).tasks().queued() == 7);
  spec.set_over_selection(1.5);
  CHECK(server.GetRound(server.CreateRound(spec)).tasks().queued() == 8);
  spec.set_over_selection(1);
  CHECK(server.GetRound(server.CreateRound(spec)).tasks().queued() == 5);
}

TEST_CASE("The durations of a spec are kept in the form in which JSON can say them") {
  CoreFederation server;
  v1::RoundSpec spec = SumRound(1);
  spec.mutable_deadline()->set_seconds(-1);
  spec.mutable_deadline()->set_nanos(2'000'000'000);
  spec.mutable_attempt_deadline()->set_seconds(1);
  spec.mutable_attempt_deadline()->set_nanos(-5);
  spec.mutable_lease_duration()->set_nanos(INT32_MAX);
  const v1::Round round = server.GetRound(server.CreateRound(spec));
  CHECK(HasJson(round));
  CHECK(FromProto(round.spec().deadline()) == absl::Seconds(1));
  CHECK(FromProto(round.spec().attempt_deadline()) == absl::Seconds(1) - absl::Nanoseconds(5));
  CHECK(FromProto(round.spec().lease_duration()) == absl::Nanoseconds(INT32_MAX));
}

TEST_CASE("What a server does not know of a spec is neither kept nor handed on") {
  CoreFederation server;
  v1::RoundSpec spec = SumRound(1);
  AddUnknown(spec, 1 << 20);
  AddUnknown(*spec.mutable_computation(), 1 << 20);
  AddUnknown(*spec.mutable_aggregate()->mutable_outputs(0), 1 << 20);
  AddUnknown(*spec.mutable_deadline(), 1 << 20);
  const std::string round = server.CreateRound(spec);
  CHECK(server.GetRound(round).ByteSizeLong() < 1000);
  const v1::SyncResponse granted = server.Sync(Ask("w", 1));
  REQUIRE(granted.leases_size() == 1);
  CHECK(granted.leases(0).ByteSizeLong() < 1000);
}

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

TEST_CASE("At the deadline a round succeeds with min_goal contributions and fails with fewer") {
  for (const int contributions : {1, 2}) {
    CoreFederation server;
    v1::RoundSpec spec = SumRound(4);
    spec.set_min_goal(2);
    *spec.mutable_deadline() = ToProto(absl::Seconds(100));
    const std::string round = server.CreateRound(spec);
    for (int i = 0; i < contributions; ++i) Contribute(server, "w", 1);
    server.Advance(absl::Seconds(99));
    REQUIRE(server.GetRound(round).state() == v1::COLLECTING);
    server.Advance(absl::Seconds(1));
    REQUIRE(server.GetRound(round).state() == (contributions == 2 ? v1::SUCCEEDED : v1::FAILED));
  }
}

TEST_CASE("Nothing is released below min_clients") {
  CoreFederation server;
  v1::RoundSpec spec = SumRound(1);
  spec.set_min_clients(2);
  const std::string round = server.CreateRound(spec);
  Contribute(server, "w", 1);
  REQUIRE(server.GetRound(round).state() == v1::FAILED);
  REQUIRE_THAT(server.GetRound(round).error(), Catch::Contains("min_clients = 2"));
}

TEST_CASE("A round that no task can complete fails at once, with the reason") {
  CoreFederation server;
  const std::string round = server.CreateRound(SumRound(2));
  const v1::SyncResponse granted = server.Sync(Ask("w", 2));
  v1::SyncRequest request = Ask("w", 0);
  *request.add_results() = Failure(granted.leases(0), "no such data", true);
  *request.add_results() = Result(granted.leases(1), 1);
  server.Sync(request);
  REQUIRE(server.GetRound(round).state() == v1::FAILED);
  REQUIRE_THAT(server.GetRound(round).error(), Catch::Contains("1 of 2 tasks failed for good"));
}

TEST_CASE("A round of which no task is left is released at once if it has min_goal contributions") {
  CoreFederation server;
  v1::RoundSpec spec = SumRound(3);
  spec.set_min_goal(2);
  const std::string round = server.CreateRound(spec);
  const v1::SyncResponse granted = server.Sync(Ask("w", 3));
  v1::SyncRequest request = Ask("w", 0);
  *request.add_results() = Failure(granted.leases(0), "no such data", true);
  *request.add_results() = Result(granted.leases(1), 1);
  server.Sync(request);
  REQUIRE(server.GetRound(round).state() == v1::COLLECTING);
  request.clear_results();
  *request.add_results() = Result(granted.leases(2), 1);
  server.Sync(request);
  REQUIRE(server.GetRound(round).state() == v1::SUCCEEDED);
}

TEST_CASE("A metric is the mean over the clients of a round, however many one contribution combines") {
  CoreFederation server;
  const v1::RoundSpec spec = SumRound(2);
  const std::string round = server.CreateRound(spec);
  const v1::SyncResponse granted = server.Sync(Ask("w", 2));
  RoundAccumulator three = RoundAccumulator::Create(spec.aggregate()).value();
  v1::Contribution one;
  REQUIRE(one.ParseFromString(Result(granted.leases(0), 1).contribution()));
  for (int i = 0; i < 3; ++i) three.Accumulate(three.Validate(one).value());
  v1::Contribution partial = three.PartialAggregate();
  (*partial.mutable_metrics())["loss"] = 9;
  (*one.mutable_metrics())["loss"] = 1;
  v1::SyncRequest request = Ask("w", 0);
  for (const auto& [lease, contribution] : {std::pair(0, &partial), std::pair(1, &one)}) {
    v1::TaskResult& result = *request.add_results() = Result(granted.leases(lease), 1);
    result.set_contribution(contribution->SerializeAsString());
  }
  server.Sync(request);
  REQUIRE(server.GetRound(round).state() == v1::SUCCEEDED);
  CHECK(server.GetRound(round).aggregate().num_clients() == 4);
  CHECK(server.GetRound(round).metrics().at("loss") == 7);
}

TEST_CASE("A cancelled round tells its workers to stop, and what comes after is late") {
  CoreFederation server;
  const std::string round = server.CreateRound(SumRound(2));
  const v1::Lease lease = server.Sync(Ask("w", 1)).leases(0);
  v1::CancelRoundRequest cancel;
  cancel.set_request_id("c");
  cancel.set_round(round);
  REQUIRE(server.Call<v1::CancelRoundResponse>("RoundService/CancelRound", cancel).ok());
  REQUIRE(server.Call<v1::CancelRoundResponse>("RoundService/CancelRound", cancel).ok());
  v1::SyncRequest request = Ask("w", 0);
  *request.add_held() = Held(lease, 1);
  REQUIRE(server.Sync(request).held(0).verdict() == v1::LeaseUpdate::CANCELLED);
  request = Ask("w", 0);
  *request.add_results() = Result(lease, 1);
  REQUIRE(server.Sync(request).verdicts(0).verdict() == Verdict::LATE);
}

TEST_CASE("A watcher hears of the end of a round at once") {
  CoreFederation server;
  const std::string round = server.CreateRound(SumRound(1));
  v1::GetRoundRequest watch;
  watch.set_round(round);
  watch.set_etag(server.GetRound(round).etag());
  *watch.mutable_wait() = ToProto(absl::Seconds(30));
  const auto answer = server.CallLater<v1::GetRoundResponse>("RoundService/GetRound", watch);
  REQUIRE_FALSE(answer->has_value());
  Contribute(server, "w", 1);
  REQUIRE(answer->has_value());
  REQUIRE((**answer)->round().state() == v1::SUCCEEDED);
}

TEST_CASE("A restart in the middle of a round loses nothing that was accepted") {
  Limits limits;
  // With and without a checkpoint in between.
  limits.checkpoint_contributions = GENERATE(1, 2, 100);
  CoreFederation server(limits);
  const std::string round = server.CreateRound(SumRound(4));
  for (int i = 0; i < 3; ++i) REQUIRE(Contribute(server, "w", 1) == Verdict::ACCEPTED);
  server.CrashAndRestart();
  REQUIRE(server.GetRound(round).num_contributions() == 3);
  REQUIRE(Contribute(server, "w", 0.5f) == Verdict::ACCEPTED);
  REQUIRE(server.GetRound(round).state() == v1::SUCCEEDED);
  REQUIRE(FirstOf(server.ReadAggregate(round)) == 3.5f);
}

TEST_CASE("However many rounds are live, all go on after a restart") {
  constexpr size_t kRounds = 2100;
  CoreFederation server;
  for (size_t i = 0; i < kRounds; ++i) server.CreateRound(SumRound(1));
  server.CrashAndRestart();
  CHECK(server.core().rounds().all().size() == kRounds);
}

TEST_CASE("A round that can no longer reach min_goal when its server starts fails at once") {
  CoreFederation server;
  const std::string round = server.CreateRound(SumRound(2));
  const v1::Lease lease = server.Sync(Ask("w", 1)).leases(0);
  // As a server of 0.1 left it.
  REQUIRE(server.store().BeginBatch().ok());
  REQUIRE(server.store()
              .EndAttempt({.task = *TaskId::Parse(lease.task()),
                           .token = LeaseToken(lease.lease_token()),
                           .outcome = AttemptOutcome::kFailed,
                           .to = TaskState::kFailed,
                           .now = server.clock().Now()})
              .ok());
  REQUIRE(server.store().CommitBatch().ok());
  server.CrashAndRestart();
  CHECK(server.GetRound(round).state() == v1::FAILED);
}

TEST_CASE(
    "After a restart with a clock that was set back a round ends within its deadline, and no task waits for years") {
  CoreFederation server;
  v1::RoundSpec spec = SumRound(1);
  spec.mutable_deadline()->set_seconds(3600);
  const std::string round = server.CreateRound(spec);
  const std::string retried = server.CreateRound(SumRound(1));
  server.Sync(Ask("w", 2));
  server.clock().Advance(-absl::Hours(24 * 365));
  server.CrashAndRestart();
  // The leases end within their duration.
  server.Advance(absl::Minutes(1));
  CHECK(server.GetTask(retried + "/0").state() == v1::QUEUED);
  server.Advance(absl::Hours(1));
  CHECK(server.GetRound(round).state() == v1::FAILED);
}

TEST_CASE("What lies in the spool takes up the same room there after a restart, and none when its round has ended") {
  Limits limits;
  limits.spool_bytes_max = 60;  // One contribution, and not two.
  CoreFederation server(limits);
  const std::string first = server.CreateRound(SumRound(2));
  REQUIRE(Contribute(server, "w", 1) == Verdict::ACCEPTED);
  server.CrashAndRestart();
  v1::SyncRequest request = Ask("w", 0);
  *request.add_results() = Result(server.Sync(Ask("w", 1)).leases(0), 1);
  const absl::Status refused = server.Call<v1::SyncResponse>("WorkService/Sync", request).status();
  CHECK_THAT(refused.ToString(), Contains("spool_bytes_max = 60"));
  // A checkpoint has made room.
  CHECK(server.Sync(request).verdicts(0).verdict() == Verdict::ACCEPTED);
  REQUIRE(server.GetRound(first).state() == v1::SUCCEEDED);
  for (int i = 0; i < 3; ++i) {
    server.CreateRound(SumRound(1));
    CHECK(Contribute(server, "w", 1) == Verdict::ACCEPTED);
  }
}

TEST_CASE("Of the checkpoints of a round only the newest stays") {
  Limits limits;
  limits.checkpoint_contributions = 1;
  CoreFederation server(limits);
  const RoundId round(server.CreateRound(SumRound(4)));
  for (int i = 1; i <= 3; ++i) {
    REQUIRE(Contribute(server, "w", 1) == Verdict::ACCEPTED);
    CHECK(server.payloads().ReadCheckpoint(round, fmt::format("c{}", i)).ok());
    CHECK(absl::IsNotFound(server.payloads().ReadCheckpoint(round, fmt::format("c{}", i - 1)).status()));
  }
}

TEST_CASE("Two results of one batch are both there after a restart, although a checkpoint is due after each") {
  Limits limits;
  limits.checkpoint_contributions = 1;
  limits.checkpoint_spool_bytes = 1;
  CoreFederation server(limits);
  const std::string round = server.CreateRound(SumRound(3));
  const v1::SyncResponse granted = server.Sync(Ask("w", 3));
  REQUIRE(granted.leases_size() == 3);
  v1::SyncRequest request = Ask("w", 0);
  for (int i = 0; i < 2; ++i) *request.add_results() = Result(granted.leases(i), 1);
  REQUIRE(server.Sync(request).verdicts_size() == 2);
  server.CrashAndRestart();
  REQUIRE(server.GetRound(round).num_contributions() == 2);
  request.clear_results();
  *request.add_results() = Result(granted.leases(2), 0.5f);
  REQUIRE(server.Sync(request).verdicts(0).verdict() == Verdict::ACCEPTED);
  REQUIRE(server.GetRound(round).state() == v1::SUCCEEDED);
  REQUIRE(FirstOf(server.ReadAggregate(round)) == 2.5f);
}

// A round of a sum of kWide elements, and a result of values that are all `value`, or of all magnitudes.
constexpr int64_t kWide = 1 << 14;
v1::RoundSpec WideRound(int num_tasks) {
  v1::RoundSpec spec = SumRound(num_tasks);
  spec.mutable_aggregate()->mutable_outputs(0)->set_dense_shape(0, kWide);
  spec.mutable_retry()->set_failed_max(100);
  return spec;
}

v1::TaskResult WideResult(const v1::Lease& lease, const std::function<float(int64_t)>& value_of) {
  v1::TaskResult result = Result(lease, 1);
  v1::Contribution contribution;
  REQUIRE(contribution.ParseFromString(result.contribution()));
  v1::Tensor& tensor = *contribution.mutable_outputs(0)->mutable_dense();
  tensor.set_shape(0, kWide);
  tensor.clear_data();
  for (int64_t i = 0; i < kWide; ++i) {
    const float value = value_of(i);
    tensor.mutable_data()->append(reinterpret_cast<const char*>(&value), sizeof value);
  }
  result.set_contribution(contribution.SerializeAsString());
  return result;
}

// One bin of all elements.
constexpr int64_t kBinBytes = 8 * kWide;

TEST_CASE("A contribution that would make the accumulators too large is refused before it is recorded") {
  Limits limits;
  limits.accumulator_bytes_max = 4 * kBinBytes;
  CoreFederation server(limits);
  const std::string round = server.CreateRound(WideRound(4));
  v1::SyncRequest request = Ask("w", 0);
  *request.add_results() = WideResult(server.Sync(Ask("w", 1)).leases(0),
                                      [](int64_t i) { return std::ldexp(1.5f, static_cast<int>(i % 250) - 125); });
  const v1::ResultVerdict refused = server.Sync(request).verdicts(0);
  CHECK(refused.verdict() == Verdict::REJECTED);
  CHECK_THAT(refused.message(), Contains("accumulator_bytes_max = 524288"));
  CHECK(server.GetRound(round).num_contributions() == 0);
  CHECK(server.core().rounds().Find(RoundId(round))->accumulator_bytes <= kBinBytes);
}

TEST_CASE("The memory that a round's accumulators may take is the same after each restart") {
  const bool restarts = GENERATE(false, true);
  Limits limits;
  limits.accumulator_bytes_max = 3 * kBinBytes + kBinBytes / 2;
  CoreFederation server(limits);
  const std::string round = server.CreateRound(WideRound(20));
  int num_accepted = 0;
  for (int i = 0; i < 8; ++i) {
    if (restarts) server.CrashAndRestart();
    const v1::SyncResponse granted = server.Sync(Ask(fmt::format("w{}", i), 1));
    REQUIRE(granted.leases_size() == 1);
    v1::SyncRequest request = Ask(fmt::format("w{}", i), 0);
    // Each of another size: a bin of its own.
    *request.add_results() = WideResult(granted.leases(0), [i](int64_t) { return std::ldexp(1.0f, 30 * i - 120); });
    num_accepted += server.Sync(request).verdicts(0).verdict() == Verdict::ACCEPTED ? 1 : 0;
  }
  INFO((restarts ? "with" : "without") << " restarts");
  CHECK(num_accepted == 3);
  CHECK(server.GetRound(round).num_contributions() == num_accepted);
}

TEST_CASE(
    "What waits to be folded counts against the accumulators' memory; what may fit once it is folded comes again") {
  Limits limits;
  limits.accumulator_bytes_max = 2 * kBinBytes + kBinBytes / 2;
  CoreFederation server(limits);
  const std::string round = server.CreateRound(WideRound(4));
  const v1::SyncResponse granted = server.Sync(Ask("w", 3));
  REQUIRE(granted.leases_size() == 3);
  v1::SyncRequest request = Ask("w", 0);
  for (const v1::Lease& lease : granted.leases()) *request.add_results() = WideResult(lease, [](int64_t) { return 1; });
  // Each might need a bin of its own: there is room for two.
  const absl::Status busy = server.Call<v1::SyncResponse>("WorkService/Sync", request).status();
  CHECK(absl::IsResourceExhausted(busy));
  CHECK(RetryAfter(busy).has_value());
  // All fit into one.
  const v1::SyncResponse again = server.Sync(request);
  CHECK(again.verdicts(2).verdict() == Verdict::ACCEPTED);
  CHECK(server.GetRound(round).num_contributions() == 3);
}

TEST_CASE("An EPHEMERAL round spools nothing, and its tasks run again after a crash") {
  CoreFederation server;
  v1::RoundSpec spec = SumRound(3);
  spec.set_durability(v1::EPHEMERAL);
  const std::string round = server.CreateRound(spec);
  Contribute(server, "w", 1);
  Contribute(server, "w", 1);
  REQUIRE(server.payloads().ListRounds()->empty());
  server.CrashAndRestart();
  REQUIRE(server.GetRound(round).num_contributions() == 0);
  for (int i = 0; i < 3; ++i) Contribute(server, "w", 2);
  REQUIRE(FirstOf(server.ReadAggregate(round)) == 6);
}

TEST_CASE("An EPHEMERAL round that a crash finds sealing collects its contributions again") {
  CoreFederation server;
  v1::RoundSpec spec = SumRound(2);
  spec.set_durability(v1::EPHEMERAL);
  const std::string round = server.CreateRound(spec);
  REQUIRE(Contribute(server, "w", 1) == Verdict::ACCEPTED);
  const v1::SyncResponse granted = server.Sync(Ask("w", 1));
  v1::SyncRequest last = Ask("w", 0);
  *last.add_results() = Result(granted.leases(0), 1);
  // Accepted, and the process ends before the batch in which the aggregate is made.
  const auto answer = server.CallInOneBatch<v1::SyncResponse>("WorkService/Sync", last);
  REQUIRE(answer->has_value());
  REQUIRE((**answer)->verdicts(0).verdict() == Verdict::ACCEPTED);
  server.CrashAndRestart();
  REQUIRE(server.GetRound(round).state() == v1::COLLECTING);
  for (int i = 0; i < 2; ++i) REQUIRE(Contribute(server, "w", 3) == Verdict::ACCEPTED);
  REQUIRE(server.GetRound(round).state() == v1::SUCCEEDED);
  REQUIRE(FirstOf(server.ReadAggregate(round)) == 6);
}

// As Contribute, with the metric "loss".
void ContributeWithLoss(CoreFederation& server, double loss) {
  const v1::SyncResponse granted = server.Sync(Ask("w", 1));
  v1::TaskResult result = Result(granted.leases(0), 1);
  v1::Contribution contribution;
  contribution.ParseFromString(result.contribution());
  (*contribution.mutable_metrics())["loss"] = loss;
  result.set_contribution(contribution.SerializeAsString());
  v1::SyncRequest request = Ask("w", 0);
  *request.add_results() = result;
  REQUIRE(server.Sync(request).verdicts(0).verdict() == Verdict::ACCEPTED);
}

TEST_CASE("What an EPHEMERAL round forgot in a crash is not in its metrics either") {
  const bool forgets = GENERATE(true, false);
  Limits limits;
  limits.checkpoint_contributions = 2;
  CoreFederation server(limits);
  v1::RoundSpec spec = SumRound(4);
  spec.set_durability(v1::EPHEMERAL);
  const std::string round = server.CreateRound(spec);
  // The first two are in a checkpoint.
  for (const double loss : {1.0, 2.0}) ContributeWithLoss(server, loss);
  if (forgets) ContributeWithLoss(server, 100);
  server.CrashAndRestart();
  REQUIRE(server.GetRound(round).num_contributions() == 2);
  for (const double loss : {4.0, 5.0}) ContributeWithLoss(server, loss);
  REQUIRE(server.GetRound(round).metrics().at("loss") == 3);
}

TEST_CASE("The metrics that a checkpoint of an EPHEMERAL round contains outlive every crash after it") {
  // Of the process that wrote the checkpoint, or of the one after.
  const bool restarts_before = GENERATE(false, true);
  Limits limits;
  limits.checkpoint_contributions = 2;
  CoreFederation server(limits);
  v1::RoundSpec spec = SumRound(5);
  spec.set_durability(v1::EPHEMERAL);
  const std::string round = server.CreateRound(spec);
  for (const double loss : {1.0, 2.0}) ContributeWithLoss(server, loss);
  if (restarts_before) server.CrashAndRestart();
  ContributeWithLoss(server, 4);
  const auto stored = DecodeProgress(*server.store().GetRound(RoundId(round)));
  REQUIRE(stored.ok());
  REQUIRE(stored->metrics.contains("loss"));
  CHECK(stored->metrics.at("loss") == 3);
}

TEST_CASE("A graceful stop checkpoints what was accepted in the same batch") {
  CoreFederation server;
  v1::RoundSpec spec = SumRound(3);
  spec.set_durability(v1::EPHEMERAL);
  const std::string round = server.CreateRound(spec);
  const v1::SyncResponse granted = server.Sync(Ask("w", 2));
  v1::SyncRequest request = Ask("w", 0);
  for (const v1::Lease& lease : granted.leases()) *request.add_results() = Result(lease, 1);
  server.Post([&](absl::Time now) {
    server.core().sync().Answer(request, CallId(), Identity::Anybody(), now,
                                [](const absl::StatusOr<v1::SyncResponse>& answer) {
                                  REQUIRE(answer->verdicts(0).verdict() == Verdict::ACCEPTED);
                                });
    server.core().CheckpointAll(now);
  });
  server.Run();
  server.CrashAndRestart();
  REQUIRE(server.GetRound(round).num_contributions() == 2);
}

TEST_CASE("A checkpoint of an EPHEMERAL round has two contributions and min_clients clients more than the last one") {
  for (const int min_clients : {0, 3}) {
    Limits limits;
    limits.checkpoint_contributions = 1;
    CoreFederation server(limits);
    v1::RoundSpec spec = SumRound(10);
    spec.set_durability(v1::EPHEMERAL);
    spec.set_min_clients(min_clients);
    const std::string round = server.CreateRound(spec);
    const int more = std::max(2, min_clients);
    for (int kept = 0; kept < 3 * more; kept += more) {
      for (int i = 1; i < more; ++i) REQUIRE(Contribute(server, "w", 1) == Verdict::ACCEPTED);
      server.Run();
      server.CrashAndRestart();
      REQUIRE(server.GetRound(round).num_contributions() == kept);
      for (int i = 0; i < more; ++i) REQUIRE(Contribute(server, "w", 1) == Verdict::ACCEPTED);
      server.Run();
      server.CrashAndRestart();
      REQUIRE(server.GetRound(round).num_contributions() == kept + more);
    }
  }
}

TEST_CASE("A broadcast whose round ended before a crash is deleted after the restart") {
  Limits limits;
  CoreFederation server(limits);
  const std::string former = *server.payloads().PutBlob("model of round 1");
  const std::string current = *server.payloads().PutBlob("model of round 2");
  const std::string fresh = *server.payloads().PutBlob("model of round 3");
  v1::RoundSpec spec = SumRound(1);
  spec.set_broadcast_digest(former);
  server.CreateRound(spec);
  REQUIRE(Contribute(server, "w", 1) == Verdict::ACCEPTED);
  spec.set_broadcast_digest(current);
  server.CreateRound(spec);
  server.CrashAndRestart();
  REQUIRE(server.payloads().HasBlob(former));  // For a moment: the next round may name it again.
  server.Advance(limits.broadcast_linger);
  REQUIRE_FALSE(server.payloads().HasBlob(former));
  REQUIRE(server.payloads().HasBlob(current));
  REQUIRE(server.payloads().HasBlob(fresh));
}

// An upload of `bytes` that only has to be finished; its id.
std::string AlmostUpload(CoreFederation& server, const std::string& bytes) {
  v1::StartUploadRequest start;
  start.set_request_id("upload");
  start.set_size_bytes(static_cast<int64_t>(bytes.size()));
  start.set_digest(Sha256Hex(bytes));
  const auto upload = server.Call<v1::StartUploadResponse>("BlobService/StartUpload", start);
  REQUIRE(upload.ok());
  v1::WriteChunkRequest chunk;
  chunk.set_upload_id(upload->upload_id());
  chunk.set_data(bytes);
  REQUIRE(server.Call<v1::WriteChunkResponse>("BlobService/WriteChunk", chunk).ok());
  return upload->upload_id();
}

// How long it is promised to be kept.
absl::Duration FinishUpload(CoreFederation& server, const std::string& upload_id) {
  v1::FinishUploadRequest finish;
  finish.set_upload_id(upload_id);
  const auto finished = server.Call<v1::FinishUploadResponse>("BlobService/FinishUpload", finish);
  REQUIRE(finished.ok());
  return FromProto(finished->keep());
}

TEST_CASE("A broadcast is deleted when its round has ended, however lately it was uploaded") {
  Limits limits;
  CoreFederation server(limits);
  const std::string bytes = "a model of each round";
  FinishUpload(server, AlmostUpload(server, bytes));
  v1::RoundSpec spec = SumRound(1);
  spec.set_broadcast_digest(Sha256Hex(bytes));
  server.CreateRound(spec);
  REQUIRE(Contribute(server, "w", 1) == Verdict::ACCEPTED);
  REQUIRE(server.payloads().HasBlob(spec.broadcast_digest()));
  server.Advance(limits.broadcast_linger + absl::Seconds(1));
  CHECK_FALSE(server.payloads().HasBlob(spec.broadcast_digest()));
}

TEST_CASE("A broadcast that was just uploaded stays for its round, although another's of the same bytes is retired") {
  Limits limits;
  CoreFederation server(limits);
  const std::string bytes = "the model that both start from";
  const std::string upload = AlmostUpload(server, bytes);
  v1::RoundSpec spec = SumRound(1);
  spec.set_broadcast_digest(*server.payloads().PutBlob(bytes));
  server.CreateRound(spec);
  REQUIRE(Contribute(server, "w", 1) == Verdict::ACCEPTED);
  server.Advance(limits.broadcast_linger - absl::Seconds(1));
  const absl::Duration keep = FinishUpload(server, upload);

  // As long as it was told.
  server.Advance(keep - absl::Seconds(1));
  CHECK(server.payloads().HasBlob(spec.broadcast_digest()));
  server.Advance(absl::Minutes(20));
  CHECK_FALSE(server.payloads().HasBlob(spec.broadcast_digest()));
}

TEST_CASE("An aggregate that the next round broadcasts stays readable when that round has ended") {
  Limits limits;
  CoreFederation server(limits);
  const std::string first = server.CreateRound(SumRound(1));
  REQUIRE(Contribute(server, "w", 1) == Verdict::ACCEPTED);
  v1::RoundSpec spec = SumRound(1);
  spec.set_broadcast_digest(server.GetRound(first).aggregate().digest());
  server.CreateRound(spec);
  REQUIRE(Contribute(server, "w", 2) == Verdict::ACCEPTED);
  server.Advance(limits.broadcast_linger);
  REQUIRE(FirstOf(server.ReadAggregate(first)) == 1);
}

TEST_CASE("Of the rounds that have ended as many are kept as the limit says, with their aggregates") {
  Limits limits;
  limits.ended_rounds_max = 2;
  CoreFederation server(limits);
  const auto run_round = [&](float value) {
    const std::string round = server.CreateRound(SumRound(1));
    REQUIRE(Contribute(server, "w", value) == Verdict::ACCEPTED);
    server.Advance(absl::Seconds(1));
    return server.GetRound(round);
  };
  // The last releases the same bytes as the first, whose round goes.
  std::vector<v1::Round> rounds;
  for (const float value : {1.0f, 2.0f, 3.0f, 1.0f}) rounds.push_back(run_round(value));
  const std::string live = server.CreateRound(SumRound(1));
  server.Advance(absl::Seconds(10));
  for (const v1::Round& round : rounds) {
    v1::GetRoundRequest request;
    request.set_round(round.id());
    const bool is_kept = round.id() == rounds[2].id() || round.id() == rounds[3].id();
    const auto found = server.Call<v1::GetRoundResponse>("RoundService/GetRound", request);
    CHECK(found.status().code() == (is_kept ? absl::StatusCode::kOk : absl::StatusCode::kNotFound));
  }
  CHECK(server.GetRound(live).state() == v1::COLLECTING);
  CHECK_FALSE(server.payloads().HasBlob(rounds[1].aggregate().digest()));
  CHECK(FirstOf(server.ReadAggregate(rounds[2].id())) == 3);
  CHECK(FirstOf(server.ReadAggregate(rounds[3].id())) == 1);
}

TEST_CASE("However fast rounds end, not many more are kept than the limit says") {
  Limits limits;
  limits.ended_rounds_max = 2;
  CoreFederation server(limits);
  for (int i = 0; i < 200; ++i) {
    server.CreateRound(SumRound(1));
    REQUIRE(Contribute(server, "w", static_cast<float>(i)) == Verdict::ACCEPTED);
  }
  v1::ListRoundsRequest request;
  request.set_page_size(200);
  const auto rounds = server.Call<v1::ListRoundsResponse>("RoundService/ListRounds", request);
  REQUIRE(rounds.ok());
  CHECK(rounds->rounds_size() < 2 + 70);
  CHECK(server.payloads().ListBlobs()->size() < 2 + 70);
}

TEST_CASE("A round keeps its aggregate when one with the same is deleted before its end is durable") {
  Limits limits;
  limits.ended_rounds_max = 0;
  CoreFederation server(limits);
  server.CreateRound(SumRound(1));
  REQUIRE(Contribute(server, "w", 1) == Verdict::ACCEPTED);
  const std::string second = server.CreateRound(SumRound(1));
  v1::SyncRequest request = Ask("w", 0);
  *request.add_results() = Result(server.Sync(Ask("w", 1)).leases(0), 1);
  server.CallInOneBatch<v1::SyncResponse>("WorkService/Sync", request);
  // The next batch writes the second aggregate and deletes the first round.
  server.clock().Advance(absl::Seconds(10));
  server.Run();
  REQUIRE(server.GetRound(second).state() == v1::SUCCEEDED);
  REQUIRE(FirstOf(server.ReadAggregate(second)) == 1);
}

TEST_CASE("An aggregate that is deleted with another's of the same bytes, before its round has it, is written again") {
  CoreFederation server;
  const std::string round = server.CreateRound(SumRound(1));
  HeldJobs& jobs = server.HoldJobs();
  REQUIRE(Contribute(server, "w", 1) == Verdict::ACCEPTED);
  while (server.payloads().ListBlobs()->empty()) REQUIRE(jobs.RunNext());
  REQUIRE(server.payloads().DeleteBlob(server.payloads().ListBlobs()->front().digest).ok());
  server.LetJobsRun();
  REQUIRE(server.GetRound(round).state() == v1::SUCCEEDED);
  CHECK(FirstOf(server.ReadAggregate(round)) == 1);
}

TEST_CASE("Blobs that no round names are deleted when they are old, but not while a program is about to name them") {
  Limits limits;
  CoreFederation server(limits);
  const std::string round = server.CreateRound(SumRound(1));
  REQUIRE(Contribute(server, "w", 1) == Verdict::ACCEPTED);
  const std::string forgotten = *server.payloads().PutBlob("uploaded, and never named");
  const std::string wanted = *server.payloads().PutBlob("about to be named");
  // Their time begins with the first look that finds them.
  server.Advance(absl::Minutes(10));
  server.Advance(limits.unreferenced_keep - absl::Minutes(1));
  REQUIRE(server.payloads().HasBlob(forgotten));
  for (int i = 0; i < 150; ++i) {
    v1::StartUploadRequest request;
    request.set_request_id("upload");
    request.set_digest(wanted);
    request.set_size_bytes(17);
    const auto answer = server.Call<v1::StartUploadResponse>("BlobService/StartUpload", request);
    REQUIRE(answer->verdict() == v1::StartUploadResponse::ALREADY_STORED);
    server.Advance(absl::Seconds(5));
  }
  CHECK_FALSE(server.payloads().HasBlob(forgotten));
  CHECK(server.payloads().HasBlob(wanted));
  CHECK(FirstOf(server.ReadAggregate(round)) == 1);
}

TEST_CASE("Rounds and workers of long ago are forgotten, however few they are") {
  Limits limits;
  CoreFederation server(limits);
  const std::string round = server.CreateRound(SumRound(1));
  REQUIRE(Contribute(server, "w", 1) == Verdict::ACCEPTED);
  const std::string digest = server.GetRound(round).aggregate().digest();
  server.Advance(limits.ended_keep - absl::Minutes(1));
  CHECK(server.GetRound(round).state() == v1::SUCCEEDED);
  server.Advance(absl::Hours(2));
  CHECK(server.store().GetRound(RoundId(round)).status().code() == absl::StatusCode::kNotFound);
  CHECK_FALSE(server.payloads().HasBlob(digest));
  CHECK(server.store().ListWorkers({})->empty());
}

TEST_CASE("A contribution whose upload is gone, and was begun anew by a late request, is lost and not rejected") {
  CoreFederation server;
  server.CreateRound(SumRound(1));
  const v1::Lease lease = server.Sync(Ask("w", 1)).leases(0);
  v1::StartUploadRequest start;
  start.set_request_id("upload");
  start.set_digest(std::string(64, 'a'));
  start.set_size_bytes(100);
  start.mutable_contribution()->set_task(lease.task());
  start.mutable_contribution()->set_lease_token(lease.lease_token());
  const auto begun = server.Call<v1::StartUploadResponse>("BlobService/StartUpload", start);
  REQUIRE(begun->verdict() == v1::StartUploadResponse::SEND);
  v1::SyncRequest request = Ask("w", 0);
  v1::TaskResult& result = *request.add_results();
  result.set_task(lease.task());
  result.set_lease_token(lease.lease_token());
  result.set_upload_id(begun->upload_id());
  CHECK(server.Sync(request).verdicts(0).verdict() == Verdict::LEASE_LOST);
  const v1::Task task = server.GetTask(lease.task());
  CHECK(task.state() == v1::QUEUED);
  CHECK(task.num_lost() == 1);
  CHECK(task.num_failed() == 0);
}

// Hands in `upload_id` under the lease; the verdict.
v1::ResultVerdict HandInUpload(CoreFederation& server, const v1::Lease& lease, const std::string& upload_id) {
  v1::SyncRequest request = Ask("w", 0);
  v1::TaskResult& result = *request.add_results();
  result.set_task(lease.task());
  result.set_lease_token(lease.lease_token());
  result.set_upload_id(upload_id);
  return server.Sync(request).verdicts(0);
}

TEST_CASE("An upload that was not finished is rejected, naming FinishUpload, and its attempt failed and is not lost") {
  CoreFederation server;
  server.CreateRound(SumRound(1));
  const v1::Lease lease = server.Sync(Ask("w", 1)).leases(0);
  const std::string bytes = Result(lease, 1).contribution();
  v1::StartUploadRequest start;
  start.set_request_id("upload");
  start.set_digest(Sha256Hex(bytes));
  start.set_size_bytes(static_cast<int64_t>(bytes.size()));
  start.mutable_contribution()->set_task(lease.task());
  start.mutable_contribution()->set_lease_token(lease.lease_token());
  v1::WriteChunkRequest chunk;
  chunk.set_upload_id(server.Call<v1::StartUploadResponse>("BlobService/StartUpload", start)->upload_id());
  chunk.set_data(bytes);
  REQUIRE(server.Call<v1::WriteChunkResponse>("BlobService/WriteChunk", chunk).ok());

  const v1::ResultVerdict verdict = HandInUpload(server, lease, chunk.upload_id());
  CHECK(v1::ResultVerdict::Verdict_Name(verdict.verdict()) == "REJECTED");
  CHECK_THAT(verdict.message(), Catch::Contains("call FinishUpload"));
  const v1::Task task = server.GetTask(lease.task());
  CHECK(task.state() == v1::QUEUED);
  CHECK(task.num_failed() == 1);
  CHECK(task.num_lost() == 0);
  CHECK_THAT(task.last_error(), Catch::Contains("before FinishUpload"));
}

TEST_CASE("An upload that the disk damaged is rejected by name, its task goes to another, and the call goes on") {
  CoreFederation server;
  server.CreateRound(SumRound(3));
  const v1::SyncResponse leased = server.Sync(Ask("w", 3));
  const v1::Lease& lease = leased.leases(0);
  const std::string bytes = Result(lease, 1).contribution();
  v1::StartUploadRequest start;
  start.set_request_id("upload");
  start.set_digest(Sha256Hex(bytes));
  start.set_size_bytes(static_cast<int64_t>(bytes.size()));
  start.mutable_contribution()->set_task(lease.task());
  start.mutable_contribution()->set_lease_token(lease.lease_token());
  v1::WriteChunkRequest chunk;
  chunk.set_upload_id(server.Call<v1::StartUploadResponse>("BlobService/StartUpload", start)->upload_id());
  chunk.set_data(bytes);
  REQUIRE(server.Call<v1::WriteChunkResponse>("BlobService/WriteChunk", chunk).ok());
  v1::FinishUploadRequest finish;
  finish.set_upload_id(chunk.upload_id());
  REQUIRE(server.Call<v1::FinishUploadResponse>("BlobService/FinishUpload", finish).ok());
  server.payloads().DamageUpload(UploadId(chunk.upload_id()));

  v1::SyncRequest request = Ask("w", 0);
  v1::TaskResult& damaged = *request.add_results();
  damaged.set_task(lease.task());
  damaged.set_lease_token(lease.lease_token());
  damaged.set_upload_id(chunk.upload_id());
  *request.add_results() = Result(leased.leases(1), 1);
  *request.add_held() = Held(leased.leases(2), 1);
  const v1::SyncResponse answer = server.Sync(request);
  REQUIRE(answer.verdicts_size() == 2);
  CHECK(v1::ResultVerdict::Verdict_Name(answer.verdicts(0).verdict()) == "REJECTED");
  CHECK_THAT(answer.verdicts(0).message(), Catch::Contains(chunk.upload_id()) && Catch::Contains("damaged"));
  CHECK(v1::ResultVerdict::Verdict_Name(answer.verdicts(1).verdict()) == "ACCEPTED");
  REQUIRE(answer.held_size() == 1);
  CHECK(answer.held(0).verdict() == v1::LeaseUpdate::HELD);
  const v1::Task task = server.GetTask(lease.task());
  CHECK(task.state() == v1::QUEUED);
  CHECK(task.num_lost() == 1);
  CHECK(task.num_failed() == 0);
  CHECK_THAT(task.last_error(), Catch::Contains("damaged on the server's disk"));
  // It is gone, and a new attempt uploads anew.
  CHECK(absl::IsNotFound(server.payloads().GetUpload(UploadId(chunk.upload_id())).status()));
}

TEST_CASE("An upload that was never begun for its lease is rejected, naming StartUpload, and its attempt failed") {
  CoreFederation server;
  server.CreateRound(SumRound(1));
  const std::string well_formed = "c-" + std::string(64, 'a') + "-" + std::string(32, 'b');
  int num_failed = 0;
  for (const std::string& id : {std::string("c-nonsense"), well_formed}) {
    INFO(id);
    server.Advance(absl::Minutes(5));
    const v1::Lease lease = server.Sync(Ask("w", 1)).leases(0);
    const v1::ResultVerdict verdict = HandInUpload(server, lease, id);
    CHECK(v1::ResultVerdict::Verdict_Name(verdict.verdict()) == "REJECTED");
    CHECK_THAT(verdict.message(), Catch::Contains(id) && Catch::Contains("StartUpload"));
    const v1::Task task = server.GetTask(lease.task());
    CHECK(task.num_failed() == ++num_failed);
    CHECK(task.num_lost() == 0);
    CHECK_THAT(task.last_error(), Catch::Contains("never begun"));
  }
}

TEST_CASE("A contribution over the round's limit is refused before it is uploaded") {
  CoreFederation server;
  v1::RoundSpec spec = SumRound(1);
  spec.set_contribution_bytes_max(1000);
  const std::string round = server.CreateRound(spec);
  const v1::Lease lease = server.Sync(Ask("w", 1)).leases(0);
  v1::StartUploadRequest request;
  request.set_request_id("upload");
  request.set_digest(std::string(64, 'a'));
  request.mutable_contribution()->set_task(lease.task());
  request.mutable_contribution()->set_lease_token(lease.lease_token());
  request.set_size_bytes(1001);
  const auto refused = server.Call<v1::StartUploadResponse>("BlobService/StartUpload", request);
  REQUIRE(absl::IsResourceExhausted(refused.status()));
  REQUIRE_THAT(std::string(refused.status().message()),
               Catch::Contains("1001") && Catch::Contains("1000") && Catch::Contains(round));
  request.set_size_bytes(1000);
  const auto accepted = server.Call<v1::StartUploadResponse>("BlobService/StartUpload", request);
  REQUIRE(accepted.ok());
  REQUIRE(accepted->verdict() == v1::StartUploadResponse::SEND);
}

TEST_CASE("A checkpoint deletes the contributions that it covers") {
  Limits limits;
  limits.checkpoint_contributions = 2;
  CoreFederation server(limits);
  const std::string round = server.CreateRound(SumRound(4));
  Contribute(server, "w", 1);
  const auto spooled = server.store().ListContributions(RoundId(round), 0, 10);
  Contribute(server, "w", 1);
  const auto record = server.store().GetRound(RoundId(round));
  REQUIRE(record->checkpoint_sequence == 2);
  REQUIRE(absl::IsNotFound(server.payloads().ReadFromSpool(RoundId(round), spooled->front().payload).status()));
}

TEST_CASE("Explain says that no worker offers the computation") {
  CoreFederation server;
  v1::RoundSpec spec = SumRound(1);
  spec.mutable_computation()->set_name("unheard_of");
  v1::ExplainRoundRequest request;
  request.set_round(server.CreateRound(spec));
  REQUIRE(server.Sync(Ask("w", 1)).leases().empty());
  const auto explained = server.Call<v1::ExplainRoundResponse>("InspectionService/ExplainRound", request);
  REQUIRE(explained.ok());
  REQUIRE_THAT(explained->ShortDebugString(),
               Catch::Contains("offers the computation") && Catch::Contains("unheard_of"));
  v1::DescribeQueueRequest queue;
  REQUIRE(server.Call<v1::DescribeQueueResponse>("InspectionService/DescribeQueue", queue)->num_unschedulable() == 1);
}

TEST_CASE("Where each task has a requirement of its own, some are explained, all are counted, and nobody waits") {
  constexpr int kTasks = 10'000;
  CoreFederation server;
  v1::RoundSpec spec = SumRound(kTasks);
  for (int i = 0; i < kTasks; ++i) {
    (*spec.mutable_listed()->mutable_tasks(i)->mutable_requirements())["client"] = std::to_string(i);
  }
  const std::string round = server.CreateRound(spec);
  v1::SyncRequest seventeen = Ask("w", 0);
  (*seventeen.mutable_labels())["client"] = "17";
  server.Sync(seventeen);
  const SystemClock clock;
  const absl::Time start = clock.Now();
  const auto queue =
      server.Call<v1::DescribeQueueResponse>("InspectionService/DescribeQueue", v1::DescribeQueueRequest());
  CHECK(queue->num_unschedulable() == kTasks - 1);
  // Milliseconds; minutes if the tasks are looked through for each requirement.
  CHECK(clock.Now() - start < absl::Seconds(2));
  v1::ExplainRoundRequest request;
  request.set_round(round);
  const auto explained = server.Call<v1::ExplainRoundResponse>("InspectionService/ExplainRound", request);
  REQUIRE(explained.ok());
  CHECK(explained->reasons_size() < 20);
  CHECK_THAT(explained->reasons(explained->reasons_size() - 1), Contains("9989 further requirements"));
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

// A disk that is full, and then perhaps cannot be read either.
class FailingStore final : public MemoryTaskStore {
 public:
  absl::Status CommitBatch() override {
    if (!commit_fails) return MemoryTaskStore::CommitBatch();
    RollbackBatch();
    return absl::ResourceExhaustedError("the disk is full");
  }
  absl::StatusOr<RoundRecord> GetRound(const RoundId& id) override {
    if (read_fails) return absl::InternalError("the disk cannot be read");
    return MemoryTaskStore::GetRound(id);
  }
  bool commit_fails = false;
  bool read_fails = false;
};

// A core and what runs it, without handlers.
class BareCore final : public Executor {
 public:
  explicit BareCore(FailingStore& store, const Limits& limits = {})
      : core_(store, payloads_, *this, random_, {.limits = limits}), runner_(store, payloads_, core_) {
    REQUIRE(core_.Recover(clock_.Now()).ok());
  }
  Core& core() { return core_; }
  PayloadStore& payloads() { return payloads_; }
  absl::Status Run() { return runner_.Run(std::exchange(inbox_, {}), clock_.Now()); }
  // Runs until nothing more comes. The answer, which nobody gets whose batch fails.
  absl::StatusOr<v1::SyncResponse> Sync(const v1::SyncRequest& request) {
    absl::StatusOr<v1::SyncResponse> answer;
    absl::Status committed;
    Post([&](absl::Time now) {
      core_.sync().Answer(request, CallId(), Identity::Anybody(), now,
                          [&](auto response) { answer = std::move(response); });
    });
    while (!inbox_.empty()) committed.Update(Run());
    if (!committed.ok()) return committed;
    return answer;
  }
  void Post(Event event) override { inbox_.push_back(std::move(event)); }
  void Defer(Deferred deferred) override { runner_.Defer(std::move(deferred)); }

 private:
  ManualClock clock_;
  SeededRandom random_{1};
  MemoryPayloadStore payloads_;
  std::vector<Event> inbox_;
  Core core_;
  BatchRunner runner_;
};

TEST_CASE("A round that cannot be read after a batch failed is not taken for ended: the server stops") {
  FailingStore store;
  BareCore server(store);
  RoundId id;
  server.Post([&](absl::Time now) {
    v1::CreateRoundRequest request;
    request.set_request_id("create");
    *request.mutable_spec() = SumRound(1);
    id = server.core().new_rounds().Create(request, now)->id;
  });
  REQUIRE(server.Run().ok());
  store.commit_fails = true;
  CHECK(server.Run().code() == absl::StatusCode::kResourceExhausted);
  CHECK(server.core().rounds().Find(id) != nullptr);
  store.read_fails = true;
  const absl::Status status = server.Run();
  CHECK(status.code() == absl::StatusCode::kInternal);
  CHECK_THAT(std::string(status.message()), Contains("cannot be read"));
  CHECK(server.core().rounds().Find(id) != nullptr);
}

TEST_CASE("What batches that failed have left in the spool takes up no room in it") {
  FailingStore store;
  Limits limits;
  limits.spool_bytes_max = 60;  // One contribution, and not two.
  BareCore server(store, limits);
  server.Post([&](absl::Time now) {
    v1::CreateRoundRequest request;
    request.set_request_id("create");
    *request.mutable_spec() = SumRound(2);
    REQUIRE(server.core().new_rounds().Create(request, now).ok());
  });
  REQUIRE(server.Run().ok());
  v1::SyncRequest hand_in = Ask("w", 0);
  *hand_in.add_results() = Result(server.Sync(Ask("w", 1))->leases(0), 1);

  store.commit_fails = true;
  for (int i = 0; i < 3; ++i) {
    INFO(i);
    CHECK_THAT(server.Sync(hand_in).status().ToString(), Contains("the disk is full"));
    CHECK(server.payloads().ListRounds()->empty());
  }
  store.commit_fails = false;
  const auto accepted = server.Sync(hand_in);
  INFO(accepted.status().ToString());
  REQUIRE(accepted.ok());
  CHECK(accepted->verdicts(0).verdict() == Verdict::ACCEPTED);
}

TEST_CASE("An upload that was handed in while commits failed is there to be handed in again, and then gone") {
  FailingStore store;
  BareCore server(store);
  server.Post([&](absl::Time now) {
    v1::CreateRoundRequest request;
    request.set_request_id("create");
    *request.mutable_spec() = SumRound(1);
    REQUIRE(server.core().new_rounds().Create(request, now).ok());
  });
  REQUIRE(server.Run().ok());
  const v1::Lease lease = server.Sync(Ask("w", 1))->leases(0);
  const std::string bytes = Result(lease, 1).contribution();
  const UploadId upload = ContributionUploadId(Sha256Hex(bytes), *TaskId::Parse(lease.task()),
                                               LeaseToken(lease.lease_token()), *Identity::Anybody());
  PayloadStore& payloads = server.payloads();
  REQUIRE(payloads.StartUpload(upload, static_cast<int64_t>(bytes.size()), Sha256Hex(bytes)).ok());
  REQUIRE(payloads.WriteChunk(upload, 0, bytes).ok());
  REQUIRE(payloads.FinishUpload(upload).ok());
  v1::SyncRequest hand_in = Ask("w", 0);
  v1::TaskResult& result = *hand_in.add_results();
  result.set_task(lease.task());
  result.set_lease_token(lease.lease_token());
  result.set_upload_id(upload.value());

  store.commit_fails = true;
  for (int i = 0; i < 2; ++i) CHECK_FALSE(server.Sync(hand_in).ok());
  store.commit_fails = false;
  const auto taken = server.Sync(hand_in);
  REQUIRE(taken.ok());
  CHECK(v1::ResultVerdict::Verdict_Name(taken->verdicts(0).verdict()) == "ACCEPTED");
  CHECK(payloads.GetUpload(upload).status().code() == absl::StatusCode::kNotFound);
  CHECK(store.GetTask(*TaskId::Parse(lease.task()))->num_lost == 0);
}

TEST_CASE("Of a round whose batch failed nothing is left: nobody may read its broadcast for it") {
  FailingStore store;
  BareCore server(store);
  v1::CreateRoundRequest request;
  request.set_request_id("create");
  *request.mutable_spec() = SumRound(1);
  request.mutable_spec()->set_population("lab");
  request.mutable_spec()->set_broadcast_digest(*server.payloads().PutBlob("the model of another population"));
  Identity ann;
  ann.populations = {"lab"};
  const auto may_read = [&] {
    return server.core().broadcasts().readers().MayRead(request.spec().broadcast_digest(), ann);
  };
  store.commit_fails = true;
  server.Post([&](absl::Time now) { CHECK(server.core().new_rounds().Create(request, now).ok()); });
  CHECK_FALSE(server.Run().ok());
  CHECK_FALSE(may_read());
  store.commit_fails = false;
  server.Post([&](absl::Time now) { CHECK(server.core().new_rounds().Create(request, now).ok()); });
  CHECK(server.Run().ok());
  CHECK(may_read());
}

TEST_CASE("A worker whose batch failed is recorded with its next call") {
  FailingStore store;
  BareCore server(store);
  const v1::SyncRequest request = Ask("w", 1);
  for (const bool commit_fails : {true, false}) {
    store.commit_fails = commit_fails;
    server.Post([&](absl::Time now) {
      server.core().sync().Answer(request, CallId(), Identity::Anybody(), now,
                                  [](const auto& answer) { CHECK(answer.ok()); });
    });
    CHECK(server.Run().ok() != commit_fails);
    CHECK(store.ListWorkers({.population = "default"})->empty() == commit_fails);
  }
}

TEST_CASE("What a contribution was to add to the accumulators takes no room there when its batch has failed") {
  FailingStore store;
  Limits limits;
  limits.accumulator_bytes_max = 2 * kBinBytes + kBinBytes / 2;
  BareCore server(store, limits);
  const auto sync = [&](const v1::SyncRequest& request) {
    absl::StatusOr<v1::SyncResponse> answer;
    server.Post([&](absl::Time now) {
      server.core().sync().Answer(request, CallId(), Identity::Anybody(), now,
                                  [&](auto response) { answer = response; });
    });
    // It is so large that it is looked at beside the core first.
    for (int i = 0; i < 2; ++i) CHECK(server.Run().ok() != store.commit_fails);
    return answer;
  };
  server.Post([&](absl::Time now) {
    v1::CreateRoundRequest request;
    request.set_request_id("create");
    *request.mutable_spec() = WideRound(1);
    REQUIRE(server.core().new_rounds().Create(request, now).ok());
  });
  REQUIRE(server.Run().ok());
  v1::SyncRequest hand_in = Ask("w", 0);
  *hand_in.add_results() = WideResult(sync(Ask("w", 1))->leases(0), [](int64_t) { return 1; });
  for (const bool commit_fails : {true, true, true, false}) {
    store.commit_fails = commit_fails;
    const auto answer = sync(hand_in);
    INFO(answer.status().ToString());
    REQUIRE(answer.ok());
    CHECK(answer->verdicts(0).verdict() == Verdict::ACCEPTED);
  }
}

// Keeps what it is given until it is told.
class HeldCalls final : public CallPool {
 public:
  void Run(const std::string& /*client*/, Length /*length*/, std::function<void()> work) override {
    held.push_back(std::move(work));
  }
  std::vector<std::function<void()>> held;
};

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

// A SumRound with contributions too large to be folded, or looked at, on the core's thread.
v1::RoundSpec LargeRound(int num_tasks) {
  v1::RoundSpec spec = SumRound(num_tasks);
  spec.mutable_aggregate()->mutable_outputs(0)->set_dense_shape(0, kLargeElements);
  return spec;
}

v1::TaskResult LargeResult(const v1::Lease& lease) {
  v1::Contribution contribution;
  v1::OutputValue& output = *contribution.add_outputs();
  output.set_name("x");
  output.mutable_dense()->set_dtype(v1::FLOAT32);
  output.mutable_dense()->add_shape(kLargeElements);
  const std::vector<float> ones(kLargeElements, 1);
  output.mutable_dense()->set_data(
      std::string(reinterpret_cast<const char*>(ones.data()), ones.size() * sizeof(float)));
  v1::TaskResult result;
  result.set_task(lease.task());
  result.set_lease_token(lease.lease_token());
  result.set_contribution(contribution.SerializeAsString());
  return result;
}

v1::SyncRequest HandInLarge(const v1::Lease& lease) {
  v1::SyncRequest request = Ask("w", 0);
  *request.add_results() = LargeResult(lease);
  return request;
}

TEST_CASE("A large contribution is looked at beside the core, and judged on what is true by then") {
  CoreFederation server;
  server.CreateRound(LargeRound(2));
  const v1::SyncResponse granted = server.Sync(Ask("w", 2));
  HeldJobs& jobs = server.HoldJobs();
  const auto first = server.CallLater<v1::SyncResponse>("WorkService/Sync", HandInLarge(granted.leases(0)));
  const auto second = server.CallLater<v1::SyncResponse>("WorkService/Sync", HandInLarge(granted.leases(1)));
  CHECK(!first->has_value());
  // Their leases end meanwhile; but the results came in time.
  server.Advance(absl::Minutes(1));
  CHECK(server.GetTask(granted.leases(0).task()).state() == v1::LEASED);
  REQUIRE(jobs.RunNext());
  server.Run();
  REQUIRE(first->has_value());
  REQUIRE((*first)->ok());
  CHECK((**first)->verdicts(0).verdict() == v1::ResultVerdict::ACCEPTED);
  // An operator takes the other one away.
  v1::RequeueTaskRequest requeue;
  requeue.set_request_id("requeue");
  requeue.set_task(granted.leases(1).task());
  REQUIRE(server.Call<v1::RequeueTaskResponse>("InspectionService/RequeueTask", requeue).ok());
  server.LetJobsRun();
  REQUIRE(second->has_value());
  REQUIRE((*second)->ok());
  CHECK((**second)->verdicts(0).verdict() == v1::ResultVerdict::LEASE_LOST);
  CHECK(server.GetTask(granted.leases(0).task()).state() == v1::TASK_SUCCEEDED);
  CHECK(server.GetTask(granted.leases(1).task()).state() == v1::QUEUED);
}

TEST_CASE("What a call with a large contribution says of other leases counts from when it came") {
  CoreFederation server;
  server.CreateRound(LargeRound(2));
  const v1::SyncResponse granted = server.Sync(Ask("w", 2));
  server.HoldJobs();
  server.Advance(absl::Seconds(20));
  v1::SyncRequest request = HandInLarge(granted.leases(0));
  *request.add_held() = Held(granted.leases(1), 1);
  const auto answer = server.CallLater<v1::SyncResponse>("WorkService/Sync", request);
  server.Advance(absl::Seconds(20));
  CHECK(server.GetTask(granted.leases(1).task()).state() == v1::LEASED);
  server.LetJobsRun();
  REQUIRE(answer->has_value());
  REQUIRE((*answer)->ok());
  CHECK((**answer)->held(0).verdict() == v1::LeaseUpdate::HELD);
}

TEST_CASE("A round whose contributions are still being folded can be cancelled, and leaves nothing behind") {
  CoreFederation server;
  const std::string round = server.CreateRound(LargeRound(3));
  const v1::SyncResponse granted = server.Sync(Ask("w", 3));
  for (int i = 0; i < 2; ++i) server.Sync(HandInLarge(granted.leases(i)));
  HeldJobs& jobs = server.HoldJobs();
  const auto last = server.CallLater<v1::SyncResponse>("WorkService/Sync", HandInLarge(granted.leases(2)));
  // It is received, accepted, and waits to be folded; then the round would be released.
  REQUIRE(jobs.RunNext());
  server.Run();
  REQUIRE(last->has_value());
  CHECK(server.GetRound(round).state() == v1::SEALING);
  CHECK(!jobs.empty());
  server.LetJobsRun();
  CHECK(server.GetRound(round).state() == v1::SUCCEEDED);
  CHECK(server.GetRound(round).aggregate().num_contributions() == 3);
  CHECK(server.payloads().ListRounds()->empty());

  const std::string other = server.CreateRound(LargeRound(3));
  const v1::SyncResponse leases = server.Sync(Ask("w", 3));
  server.HoldJobs();
  const auto accepted = server.CallLater<v1::SyncResponse>("WorkService/Sync", HandInLarge(leases.leases(0)));
  REQUIRE(jobs.RunNext());
  server.Run();
  REQUIRE(accepted->has_value());
  // A checkpoint behind the fold, too.
  server.Post([&](absl::Time now) { server.core().CheckpointAll(now); });
  server.Run();
  v1::CancelRoundRequest cancel;
  cancel.set_request_id("cancel");
  cancel.set_round(other);
  REQUIRE(server.Call<v1::CancelRoundResponse>("RoundService/CancelRound", cancel).ok());
  server.LetJobsRun();
  CHECK(server.GetRound(other).state() == v1::CANCELLED);
  CHECK(server.payloads().ListRounds()->empty());
}

TEST_CASE("A checkpoint that is still being written when the process ends is as if it had never been asked for") {
  CoreFederation server;
  const std::string round = server.CreateRound(LargeRound(2));
  const v1::SyncResponse granted = server.Sync(Ask("w", 2));
  server.Sync(HandInLarge(granted.leases(0)));
  HeldJobs& jobs = server.HoldJobs();
  server.Post([&](absl::Time now) { server.core().CheckpointAll(now); });
  server.Run();
  SECTION("written") { REQUIRE(jobs.RunNext()); }
  SECTION("given up, because the server is stopping") {
    jobs.set_is_stopping(true);
    REQUIRE(jobs.RunNext());
    jobs.set_is_stopping(false);
    server.Run();
    CHECK(jobs.empty());
  }
  SECTION("not begun") {}
  server.CrashAndRestart();
  server.LetJobsRun();
  server.Sync(HandInLarge(granted.leases(1)));
  CHECK(server.GetRound(round).aggregate().num_contributions() == 2);
  const std::string aggregate = server.ReadAggregate(round);
  float last = 0;
  std::memcpy(&last, aggregate.data() + aggregate.size() - sizeof last, sizeof last);
  CHECK(last == 2);
}

TEST_CASE("Large contributions that wait to be folded are limited in memory, and come back when there is room") {
  Limits limits;
  limits.unfolded_bytes_max = kLargeElements * 6;
  CoreFederation server(limits);
  const std::string round = server.CreateRound(LargeRound(3));
  const v1::SyncResponse granted = server.Sync(Ask("w", 3));
  HeldJobs& jobs = server.HoldJobs();
  std::vector<std::shared_ptr<std::optional<absl::StatusOr<v1::SyncResponse>>>> answers;
  for (int i = 0; i < 2; ++i) {
    answers.push_back(server.CallLater<v1::SyncResponse>("WorkService/Sync", HandInLarge(granted.leases(i))));
    REQUIRE(jobs.RunNext(granted.leases(i).lease_token()));
    if (i == 0) server.Run();
  }
  server.Run();
  REQUIRE(answers[0]->has_value());
  CHECK((*answers[0])->ok());
  // The first is not folded yet.
  REQUIRE(answers[1]->has_value());
  CHECK(absl::IsResourceExhausted((*answers[1])->status()));
  CHECK(RetryAfter((*answers[1])->status()).has_value());
  server.LetJobsRun();
  for (int i = 1; i < 3; ++i) server.Sync(HandInLarge(granted.leases(i)));
  CHECK(server.GetRound(round).aggregate().num_contributions() == 3);
}

TEST_CASE("A lease that ended while its contribution was looked at is taken back when there was no room for that") {
  Limits limits;
  limits.unfolded_bytes_max = kLargeElements * 6;
  CoreFederation server(limits);
  server.CreateRound(LargeRound(2));
  const v1::SyncResponse granted = server.Sync(Ask("w", 2));
  HeldJobs& jobs = server.HoldJobs();
  server.CallLater<v1::SyncResponse>("WorkService/Sync", HandInLarge(granted.leases(0)));
  REQUIRE(jobs.RunNext(granted.leases(0).lease_token()));
  server.Run();
  // While the first waits to be folded there is no room for another.
  const auto second = server.CallLater<v1::SyncResponse>("WorkService/Sync", HandInLarge(granted.leases(1)));
  server.Advance(absl::Minutes(1));
  CHECK(server.GetTask(granted.leases(1).task()).state() == v1::LEASED);
  REQUIRE(jobs.RunNext(granted.leases(1).lease_token()));
  server.Run();
  REQUIRE(second->has_value());
  CHECK(absl::IsResourceExhausted((*second)->status()));
  CHECK(server.GetTask(granted.leases(1).task()).state() == v1::QUEUED);
  server.LetJobsRun();
}

}  // namespace
}  // namespace sheaf
