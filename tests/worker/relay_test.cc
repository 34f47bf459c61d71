// The round below: what it is asked for, and the calls that it takes, answered by hand.
#include <catch2/catch.hpp>
#include <memory>
#include <string>
#include <utility>

#include "base/checksum.h"
#include "proto/methods.h"
#include "proto/time.h"
#include "worker/relay/relayed_round.h"
#include "worker/relay/relayed_spec.h"

namespace sheaf {
namespace {

v1::Lease ALease() {
  v1::Lease lease;
  lease.set_task("r-above000/3");
  lease.set_round("r-above000");
  lease.set_lease_token("secret");
  lease.mutable_computation()->set_name("tags");
  lease.mutable_computation()->set_version_min(2);
  lease.mutable_aggregate()->add_outputs()->set_name("w");
  lease.set_durability(v1::EPHEMERAL);
  lease.set_priority(2);
  *lease.mutable_attempt_deadline() = ToProto(absl::Minutes(10));
  v1::ListedTasks tasks;
  for (const char* selector : {"client:1", "client:2", "client:3"}) tasks.add_tasks()->set_data_selector(selector);
  lease.set_payload(tasks.SerializeAsString());
  return lease;
}

v1::RoundSpec SpecOf(const v1::Lease& lease, const RelayOptions& options = {}) {
  const absl::StatusOr<v1::RoundSpec> spec = RelayedSpec(lease, options);
  INFO(spec.status().ToString());
  REQUIRE(spec.ok());
  return *spec;
}

v1::Round ARound(v1::RoundState state, const std::string& etag) {
  v1::Round round;
  round.set_id("r-below000");
  round.set_state(state);
  round.set_etag(etag);
  return round;
}

// Answers the call that the sequence makes now, which is `method`.
template <typename M>
typename M::Request Answer(CallSequence& sequence, const M& method, const typename M::Response& response,
                           const absl::Status& status = absl::OkStatus()) {
  const CallSequence::NextCall call = sequence.Next();
  REQUIRE(call.method == method.name);
  static_cast<typename M::Response&>(*call.response) = response;
  sequence.OnDone(status);
  return static_cast<const typename M::Request&>(*call.request);
}

v1::CreateRoundResponse Created(const v1::Round& round) {
  v1::CreateRoundResponse response;
  *response.mutable_round() = round;
  return response;
}
v1::GetRoundResponse Seen(const v1::Round& round) {
  v1::GetRoundResponse response;
  *response.mutable_round() = round;
  return response;
}
v1::ReadAggregateResponse Piece(const std::string& file, size_t offset, size_t length) {
  v1::ReadAggregateResponse response;
  response.set_data(file.substr(offset, length));
  response.set_size_bytes(static_cast<int64_t>(file.size()));
  response.set_digest(Sha256Hex(file));
  return response;
}

RelayedRound AnAttempt(RelayedRound::Params params = {}) {
  params.spec = SpecOf(ALease());
  params.request_id = "relay-1";
  return RelayedRound(std::move(params));
}

}  // namespace

TEST_CASE("A round below does what the task lists, promises what its round promises, and releases a state") {
  const v1::RoundSpec spec = SpecOf(ALease(), {.population = "wards", .min_clients = 3, .min_share = 0.5});
  CHECK(spec.population() == "wards");
  CHECK(spec.job() == "r-above000");
  CHECK(spec.computation().name() == "tags");
  CHECK(spec.computation().version_min() == 2);
  CHECK(spec.aggregate().outputs(0).name() == "w");
  CHECK(spec.listed().tasks(2).data_selector() == "client:3");
  CHECK(spec.goal() == 3);
  CHECK(spec.min_goal() == 2);
  CHECK(spec.min_clients() == 3);
  CHECK(spec.durability() == v1::EPHEMERAL);
  CHECK(spec.priority() == 2);
  CHECK(FromProto(spec.deadline()) == absl::Minutes(9));
  CHECK(spec.release() == v1::PARTIAL_AGGREGATE);

  // Also under another attempt's remaining time: whoever asks again asks for the same.
  v1::Lease later = ALease();
  *later.mutable_remaining() = ToProto(absl::Seconds(3));
  CHECK(SpecOf(later).SerializeAsString() == SpecOf(ALease()).SerializeAsString());
  CHECK(RelayedRequestId(later) == RelayedRequestId(ALease()));
  later.set_lease_token("another secret");
  CHECK(RelayedRequestId(later) != RelayedRequestId(ALease()));
  CHECK(RelayedRequestId(later).find("secret") == std::string::npos);
  CHECK(RelayedRequestId(later).size() <= 64 - std::string("-cancel").size());
}

TEST_CASE("A round above whose durability a server of 0.1 does not say is EPHEMERAL below") {
  v1::Lease lease = ALease();
  lease.clear_durability();
  CHECK(SpecOf(lease).durability() == v1::EPHEMERAL);
  lease.set_durability(v1::DURABLE);
  CHECK(SpecOf(lease).durability() == v1::DURABLE);
}

TEST_CASE("A relay that makes slots of its tasks passes on what they say") {
  v1::Lease lease = ALease();
  lease.set_payload("rate=1");
  lease.set_data_selector("ward:7");
  const v1::RoundSpec spec = SpecOf(lease, {.slots = 5});
  CHECK(spec.open_slots().count() == 5);
  CHECK(spec.goal() == 5);
  CHECK(spec.open_slots().task().payload() == "rate=1");
  CHECK(spec.open_slots().task().data_selector() == "ward:7");
}

TEST_CASE("A task that stands for no others is refused for good, with what to do") {
  for (const std::string payload : {"", "no list"}) {
    v1::Lease lease = ALease();
    lease.set_payload(payload);
    const absl::Status status = RelayedSpec(lease, {}).status();
    CHECK(status.code() == absl::StatusCode::kInvalidArgument);
    CHECK(
        std::string(status.message()) ==
        "the payload of task r-above000/3 lists no tasks for a relay to pass on: make it a serialised ListedTasks, or "
        "start the relay with --relay-slots");
  }
}

TEST_CASE("A round below is created, watched and read in pieces, and its metrics are handed on") {
  RelayedRound attempt = AnAttempt();
  const v1::CreateRoundRequest create = Answer(attempt, kCreateRound, Created(ARound(v1::COLLECTING, "1")));
  CHECK(create.request_id() == "relay-1");
  CHECK(create.spec().release() == v1::PARTIAL_AGGREGATE);
  CHECK(attempt.round() == "r-below000");
  CHECK(Answer(attempt, kGetRound, Seen(ARound(v1::SEALING, "2"))).etag() == "1");
  v1::Round ended = ARound(v1::SUCCEEDED, "3");
  (*ended.mutable_metrics())["loss"] = 0.5;
  Answer(attempt, kGetRound, Seen(ended));

  v1::Contribution partial;
  partial.set_num_clients(7);
  partial.add_outputs()->set_name("w");
  partial.mutable_outputs(0)->set_state(std::string(100, 's'));
  const std::string file = partial.SerializeAsString();
  CHECK(Answer(attempt, kReadAggregate, Piece(file, 0, 60)).offset() == 0);
  CHECK(Answer(attempt, kReadAggregate, Piece(file, 60, 1000)).offset() == 60);
  REQUIRE(attempt.done());
  CHECK(attempt.status().ok());
  v1::Contribution handed_on;
  REQUIRE(handed_on.ParseFromString(std::move(attempt).TakeContribution()));
  CHECK(handed_on.num_clients() == 7);
  CHECK(handed_on.outputs(0).state() == partial.outputs(0).state());
  CHECK(handed_on.metrics().at("loss") == 0.5);
}

TEST_CASE("A round below makes progress while workers have tasks of it or hand them in, and none while it waits") {
  RelayedRound attempt = AnAttempt();
  Answer(attempt, kCreateRound, Created(ARound(v1::COLLECTING, "1")));
  const int64_t created = attempt.progress();
  Answer(attempt, kGetRound, Seen(ARound(v1::COLLECTING, "1")));
  CHECK(attempt.progress() == created);
  v1::Round leased = ARound(v1::COLLECTING, "1");
  leased.mutable_tasks()->set_leased(1);
  Answer(attempt, kGetRound, Seen(leased));
  CHECK(attempt.progress() > created);
  const int64_t working = attempt.progress();
  Answer(attempt, kGetRound, Seen(ARound(v1::COLLECTING, "2")));
  CHECK(attempt.progress() > working);
}

TEST_CASE("A broadcast travels only where the server below lacks it, and again if it is deleted meanwhile") {
  const auto with_broadcast = [](std::shared_ptr<const std::string> bytes) {
    RelayedRound::Params params{.request_id = "relay-1", .broadcast = std::move(bytes)};
    params.spec = SpecOf(ALease(), {.population = "wards"});
    params.spec.set_broadcast_digest(Sha256Hex("model"));
    return RelayedRound(std::move(params));
  };
  const absl::Status missing = absl::NotFoundError("the broadcast was not uploaded");
  RelayedRound without = with_broadcast(nullptr);
  Answer(without, kCreateRound, {}, missing);
  CHECK(without.done());
  CHECK(without.status().ok());
  CHECK(without.needs_broadcast());

  RelayedRound with = with_broadcast(std::make_shared<const std::string>("model"));
  v1::StartUploadResponse stored;
  stored.set_verdict(v1::StartUploadResponse::ALREADY_STORED);
  for (int turn = 1; turn <= 3; ++turn) {
    Answer(with, kCreateRound, {}, missing);
    REQUIRE(!with.done());
    const v1::StartUploadRequest started = Answer(with, kStartUpload, stored);
    CHECK(started.digest() == Sha256Hex("model"));
    CHECK(started.population() == "wards");
  }
  Answer(with, kCreateRound, {}, missing);
  REQUIRE(with.done());
  CHECK(with.status() == missing);
}

TEST_CASE(
    "What a patch stands for goes to the server below as a broadcast of its own, and a restarted relay finds it") {
  // As the worker's loop put it together.
  const std::string whole = "the model that it stands for";
  const absl::Status missing = absl::NotFoundError("the broadcast was not uploaded");
  v1::StartUploadResponse stored;
  stored.set_verdict(v1::StartUploadResponse::ALREADY_STORED);
  std::vector<std::string> request_ids;
  for (int life = 1; life <= 2; ++life) {
    RelayedRound::Params params{.request_id = "relay-1", .broadcast = std::make_shared<const std::string>(whole)};
    params.spec = SpecOf(ALease());
    params.spec.set_broadcast_digest(Sha256Hex("a patch"));
    RelayedRound round(std::move(params));
    // The second time it was deleted again.
    for (int turn = 1; turn <= 2; ++turn) {
      Answer(round, kCreateRound, {}, missing);
      REQUIRE(!round.done());
      CHECK(Answer(round, kStartUpload, stored).digest() == Sha256Hex(whole));
    }
    const v1::CreateRoundRequest created = Answer(round, kCreateRound, Created(ARound(v1::COLLECTING, "1")));
    CHECK(created.spec().broadcast_digest() == Sha256Hex(whole));
    CHECK(round.is_watching());
    request_ids.push_back(created.request_id());
  }
  CHECK(request_ids[0] == request_ids[1]);
  // Under one name there is one spec.
  CHECK(request_ids[0] != "relay-1");
}

TEST_CASE("A round below that comes to nothing says why, and nothing too large or damaged is handed on") {
  RelayedRound refused = AnAttempt();
  Answer(refused, kCreateRound, {}, absl::InvalidArgumentError("spec.aggregate is empty"));
  CHECK(refused.status() == absl::InvalidArgumentError("spec.aggregate is empty"));

  RelayedRound failed = AnAttempt();
  v1::Round ended = ARound(v1::FAILED, "2");
  ended.set_error("no worker came");
  Answer(failed, kCreateRound, Created(ended));
  REQUIRE(failed.done());
  CHECK(failed.status() == absl::AbortedError("round r-below000 of the server below FAILED: no worker came"));

  RelayedRound large = AnAttempt({.bytes_max = 9});
  Answer(large, kCreateRound, Created(ARound(v1::SUCCEEDED, "1")));
  Answer(large, kReadAggregate, Piece("ten bytes.", 0, 1));
  CHECK(large.status() ==
        absl::ResourceExhaustedError("the partial aggregate of round r-below000 of the server below has "
                                     "10 bytes, and no more than 9 are passed on"));

  RelayedRound damaged = AnAttempt();
  Answer(damaged, kCreateRound, Created(ARound(v1::SUCCEEDED, "1")));
  v1::ReadAggregateResponse piece = Piece("ten bytes.", 0, 10);
  piece.set_digest(Sha256Hex("others"));
  Answer(damaged, kReadAggregate, piece);
  CHECK(damaged.status().code() == absl::StatusCode::kDataLoss);
}

}  // namespace sheaf
