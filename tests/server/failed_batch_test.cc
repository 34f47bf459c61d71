// What a batch leaves whose commit fails.
#include <catch2/catch.hpp>
#include <string>
#include <utility>
#include <vector>

#include "base/checksum.h"
#include "base/clock.h"
#include "server/core/uploads/upload_names.h"
#include "tests/server/core_federation.h"
#include "tests/server/wide_round.h"

namespace sheaf {
namespace {

using Catch::Matchers::Contains;
using Verdict = v1::ResultVerdict;

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
  // Runs until nothing more comes. The first error.
  absl::Status RunAll() {
    absl::Status committed;
    while (!inbox_.empty()) committed.Update(Run());
    return committed;
  }
  // The answer, which nobody gets whose batch fails.
  absl::StatusOr<v1::SyncResponse> Sync(const v1::SyncRequest& request) {
    absl::StatusOr<v1::SyncResponse> answer;
    Post([&](absl::Time now) {
      core_.sync().Answer(request, CallId(), Identity::Anybody(), now,
                          [&](auto response) { answer = std::move(response); });
    });
    const absl::Status committed = RunAll();
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
  const UploadId upload = ContributionUploadId(kHomeShard, Sha256Hex(bytes), *TaskId::Parse(lease.task()),
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

TEST_CASE("The gauges of a queue are right again after a batch that failed") {
  FailingStore store;
  BareCore server(store);
  const auto create = [&](const std::string& request_id) {
    server.Post([&, request_id](absl::Time now) {
      v1::CreateRoundRequest request;
      request.set_request_id(request_id);
      *request.mutable_spec() = SumRound(3);
      CHECK(server.core().new_rounds().Create(request, now).ok());
    });
    absl::Status status = server.Run();
    server.core().RefreshFigures();
    return status;
  };
  REQUIRE(create("one").ok());
  const PopulationFigures& figures = server.core().figures().populations[0];
  const auto num = [&](TaskState state) { return figures.tasks[static_cast<size_t>(state)].value(); };
  CHECK(num(TaskState::kQueued) == 3);
  store.commit_fails = true;
  CHECK_FALSE(create("two").ok());
  CHECK(num(TaskState::kQueued) == 3);
  CHECK_FALSE(server.Sync(Ask("w", 2)).ok());
  server.core().RefreshFigures();
  CHECK(num(TaskState::kQueued) == 3);
  CHECK(num(TaskState::kLeased) == 0);
  CHECK(figures.rounds[static_cast<size_t>(RoundState::kCollecting)].value() == 1);
  store.commit_fails = false;
  REQUIRE(server.Sync(Ask("w", 2)).ok());
  server.core().RefreshFigures();
  CHECK(num(TaskState::kLeased) == 2);
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

TEST_CASE("Where the batch that opened a round failed, it is announced, and nobody reads its broadcast") {
  FailingStore store;
  BareCore server(store);
  RoundId id;
  server.Post([&](absl::Time now) {
    v1::CreateRoundRequest request;
    request.set_request_id("create");
    *request.mutable_spec() = SumRound(1);
    request.mutable_spec()->set_announced(true);
    request.mutable_spec()->mutable_announce_deadline()->set_seconds(600);
    id = server.core().new_rounds().Create(request, now)->id;
  });
  REQUIRE(server.Run().ok());
  const absl::Time announced_until = store.GetRound(id)->deadline_time;
  v1::OpenRoundRequest open;
  open.set_request_id("open");
  open.set_round(id.value());
  open.set_broadcast_digest(*server.payloads().PutBlob("the broadcast"));
  Identity reader;
  reader.populations = {"default"};
  const auto may_read = [&] { return server.core().broadcasts().readers().MayRead(open.broadcast_digest(), reader); };
  const auto try_open = [&] {
    server.Post(
        [&](absl::Time now) { server.core().openings().Open(open, now, [](const absl::StatusOr<RoundRecord>&) {}); });
    return server.RunAll();
  };
  CHECK_FALSE(may_read());
  store.commit_fails = true;
  CHECK(try_open().code() == absl::StatusCode::kResourceExhausted);
  CHECK_FALSE(may_read());
  const LiveRound* live = server.core().rounds().Find(id);
  REQUIRE(live != nullptr);
  CHECK(live->state == RoundState::kAnnounced);
  CHECK(live->spec.broadcast_digest().empty());
  CHECK(live->deadline_time == announced_until);
  store.commit_fails = false;
  REQUIRE(try_open().ok());
  CHECK(may_read());
  CHECK(live->state == RoundState::kCollecting);
}

}  // namespace
}  // namespace sheaf
