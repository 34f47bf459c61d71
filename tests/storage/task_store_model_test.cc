// Goal: each store on a database and the memory store are one machine. Random operations run on both side by side;
// every answer is compared, and every so often everything either store can show. Batches are committed or rolled back
// at random, and the database is closed and opened again in between.
#include <catch2/catch.hpp>
#include <cstdlib>
#include <set>
#include <span>

#include "base/random.h"
#include "storage/memory/memory_task_store.h"
#include "tests/conformance/task_store_suite.h"

namespace sheaf {
namespace {

constexpr int kNumOperations = 20'000;

std::string Say(const absl::Status& status) { return status.ToString(); }
std::string Say(const std::string& value) { return value; }
std::string Say(bool value) { return value ? "yes" : "no"; }
std::string Say(int64_t value) { return std::to_string(value); }
std::string Say(absl::Time value) { return absl::FormatTime(value, absl::UTCTimeZone()); }
std::string Say(TaskStore::BlobUse value) { return std::to_string(static_cast<int>(value)); }
std::string Say(const std::optional<TaskId>& value) { return value ? value->ToString() : "none"; }
std::string Say(const TaskStore::CreateRoundResult& value) { return Say(value.created) + Describe(value.round); }
std::string Say(const TaskStore::DeletedRounds& value) {
  std::string text;
  for (const RoundId& round : value.rounds) text += round.value() + "\n";
  for (const std::string& digest : value.aggregate_digests) text += digest + "\n";
  return text;
}
std::string Say(const TaskStore::WorkerAge& value) {
  return value.name.value() + " of " + value.population + " " + Say(value.last_seen_time);
}
template <typename Record>
std::string Say(const Record& record) {
  return Describe(record);
}
template <typename Value>
std::string Say(const std::vector<Value>& values) {
  std::string text;
  for (const Value& value : values) text += Say(value) + "\n";
  return text;
}
template <typename Value>
std::string Say(const absl::StatusOr<Value>& value) {
  return value.ok() ? Say(*value) : Say(value.status());
}

class Model {
 public:
  Model(uint64_t seed, const StoreKind& kind) : random_(seed), name_(kind.name), database_(kind.make()) {}

  void Run() {
    for (int i = 0; i < kNumOperations;) {
      Both([](TaskStore& s) { return s.BeginBatch(); });
      for (uint64_t n = random_.Below(8) + 1; n > 0; --n, ++i) Step();
      if (random_.Chance(0.2)) {
        memory_.RollbackBatch();
        database_->store().RollbackBatch();
      } else {
        Both([](TaskStore& s) { return s.CommitBatch(); });
      }
      if (random_.Chance(0.03)) Compare();
      if (random_.Chance(0.005)) database_->Reopen();
    }
    Compare();
  }

 private:
  template <typename Operation>
  void Both(Operation operation) {
    std::string expected = Say(operation(static_cast<TaskStore&>(memory_)));
    std::string actual = Say(operation(database_->store()));
    if (expected != actual) FAIL("memory answers\n" << expected << "\n" << name_ << " answers\n" << actual);
  }

  void Compare() {
    std::string expected = Dump(memory_, now_);
    std::string actual = Dump(database_->store(), now_);
    if (expected != actual) FAIL("memory has\n" << expected << "\n" << name_ << " has\n" << actual);
  }

  // Small worlds meet: few ids, so that operations hit each other's rows.
  std::string Name(std::string_view prefix, int count) { return fmt::format("{}{}", prefix, random_.Below(count)); }
  RoundId AnyRound() {
    return RoundId(fmt::format("r-{}", num_rounds_ - std::min<int64_t>(num_rounds_, random_.Below(6))));
  }
  TaskId AnyTask() { return {AnyRound(), static_cast<int32_t>(random_.Below(9)) - 1}; }
  std::string Population() { return random_.Chance(0.9) ? "p0" : "p1"; }
  absl::Duration Soon() { return absl::Seconds(random_.Below(60)); }
  AttemptOutcome Outcome() { return static_cast<AttemptOutcome>(random_.Below(6)); }

  // A task with its current token, mostly.
  std::pair<TaskId, LeaseToken> AnyLease() {
    auto held = memory_.ListLeases(Population(), WorkerName(Name("w", 4)));
    if (held->empty() || random_.Chance(0.1)) return {AnyTask(), LeaseToken(Name("t-", 50))};
    const TaskRecord& task = (*held)[random_.Below(held->size())];
    return {task.id, random_.Chance(0.9) ? task.lease_token : LeaseToken("stale")};
  }

  void Create() {
    TaskStore::CreateRoundParams params;
    int64_t number = random_.Chance(0.9) ? ++num_rounds_ : random_.Below(num_rounds_ + 1);
    params.round = {
        .id = RoundId(fmt::format("r-{}", number)),
        .population = Population(),
        .job = Name("j", 2),
        .request_id = fmt::format("q-{}", random_.Chance(0.9) ? num_rounds_ : random_.Below(num_rounds_ + 1)),
        .spec = random_.Token(20),
        .state = random_.Chance(0.8) ? RoundState::kCollecting : RoundState::kAnnounced,
        .create_time = now_,
        .deadline_time = now_ + absl::Minutes(random_.Below(20)),
        .broadcast_digest = Name("b", 3),
        .progress = random_.Token(3),
        .task_digests = Name("d", 3)};
    for (uint64_t n = random_.Below(8); n > 0; --n) {
      params.tasks.push_back({.payload = random_.Chance(0.5) ? random_.Token(5) : "",
                              .data_selector = random_.Chance(0.5) ? random_.Token(5) : "",
                              .requirement = random_.Chance(0.6) ? "" : Name("q", 2)});
    }
    if (random_.Chance(0.3)) Stage(params);
    Both([&](TaskStore& s) { return s.CreateRound(params); });
    // Nothing stays staged: only one of the two would forget it when it is opened again.
    params.may_create = false;
    Both([&](TaskStore& s) { return s.CreateRound(params); });
  }

  // Some of the tasks, perhaps not as they should be.
  void Stage(TaskStore::CreateRoundParams& params) {
    std::set<std::string> texts;
    for (const TaskStore::NewTask& task : params.tasks) texts.insert(task.requirement);
    const std::vector<std::string> requirements(texts.begin(), texts.end());
    while (!params.tasks.empty() && random_.Chance(0.8)) {
      const size_t count = 1 + random_.Below(params.tasks.size());
      const int64_t num_staged = random_.Chance(0.95) ? params.num_staged : static_cast<int64_t>(random_.Below(3));
      Both([&](TaskStore& s) {
        return s.StageTasks({.round = params.round.id,
                             .create_time = params.round.create_time,
                             .requirements = requirements,
                             .num_staged = num_staged,
                             .tasks = std::span(params.tasks).first(count)});
      });
      params.num_staged += static_cast<int64_t>(count);
      params.tasks.erase(params.tasks.begin(), params.tasks.begin() + static_cast<std::ptrdiff_t>(count));
    }
  }

  void Lease() {
    TaskStore::LeaseTasksParams params{
        .round = AnyRound(),
        .worker = WorkerName(Name("w", 4)),
        .poll_id = random_.Token(4),
        .per_worker_max = random_.Chance(0.3) ? static_cast<int32_t>(random_.Below(4)) : 0,
        .now = now_,
        .expire_time = now_ + Soon(),
        .attempt_deadline_time = now_ + Soon() * 2};
    for (uint64_t n = random_.Below(4); n > 0; --n) params.tokens.emplace_back(random_.Token(8));
    for (uint64_t n = random_.Below(3); n > 0; --n) params.fulfilled_requirements.push_back(Name("q", 3));
    if (random_.Chance(0.4)) return LeaseAgain(params);
    Both([&](TaskStore& s) { return s.LeaseTasks(params); });
  }

  void LeaseAgain(const TaskStore::LeaseTasksParams& like) {
    const TaskStore::LeaseAgainParams params{.round = like.round,
                                             .worker = like.worker,
                                             .poll_id = like.poll_id,
                                             .tokens = like.tokens,
                                             .fulfilled_requirements = like.fulfilled_requirements,
                                             .per_worker_max = like.per_worker_max,
                                             .lost_max = static_cast<int32_t>(random_.Below(3)),
                                             .failed_max = static_cast<int32_t>(random_.Below(3)),
                                             .begun_by = now_ - (random_.Chance(0.5) ? absl::ZeroDuration() : Soon()),
                                             .candidates_max = random_.Chance(0.8) ? 64 : 1,
                                             .now = now_,
                                             .expire_time = like.expire_time,
                                             .attempt_deadline_time = like.attempt_deadline_time};
    Both([&](TaskStore& s) { return s.LeaseAgain(params); });
  }

  // Into a younger one, as the store may expect.
  void CarryOver() {
    const RoundId one = AnyRound();
    const RoundId other = AnyRound();
    const auto first = memory_.GetRound(one);
    const auto second = memory_.GetRound(other);
    const bool is_younger = first.ok() && second.ok() && first->create_time < second->create_time;
    const TaskStore::CarryOverParams params{.from = is_younger ? one : other,
                                            .to = is_younger ? other : one,
                                            .staleness_max = static_cast<int32_t>(random_.Below(4)),
                                            .now = now_};
    if (first.ok() && second.ok() && first->create_time == second->create_time && one != other) return;
    Both([&](TaskStore& s) { return s.CarryOver(params); });
  }

  void EndAttempt() {
    auto [task, token] = AnyLease();
    TaskStore::EndAttemptParams params{
        .task = task,
        .token = token,
        .outcome = Outcome(),
        .to = random_.Chance(0.7) ? TaskState::kQueued : static_cast<TaskState>(random_.Below(6) + 1),
        .available_time = now_ + (random_.Chance(0.5) ? absl::ZeroDuration() : Soon()),
        .error = random_.Chance(0.5) ? random_.Token(4) : "",
        .timings = random_.Token(2),
        .now = now_};
    Both([&](TaskStore& s) { return s.EndAttempt(params); });
  }

  void Contribute() {
    auto [task, token] = AnyLease();
    TaskStore::RecordContributionParams params{.task = task,
                                               .token = token,
                                               .digest = random_.Token(6),
                                               .size_bytes = static_cast<int64_t>(random_.Below(1000)) - 5,
                                               .num_clients = static_cast<int64_t>(random_.Below(5)),
                                               .payload = {.segment = 1, .offset = 2, .length = 3, .crc = 4},
                                               .timings = random_.Token(2),
                                               .progress = random_.Token(6),
                                               .now = now_};
    Both([&](TaskStore& s) { return s.RecordContribution(params); });
  }

  void Move() {
    TaskStore::MoveRoundParams params{.round = AnyRound(),
                                      .from = static_cast<RoundState>(random_.Below(6) + 1),
                                      .to = static_cast<RoundState>(random_.Below(6) + 1),
                                      .now = now_,
                                      .error = random_.Token(4),
                                      .aggregate = random_.Token(4),
                                      .aggregate_digest = Name("b", 3)};
    Both([&](TaskStore& s) { return s.MoveRound(params); });
  }

  void Delete() {
    if (random_.Chance(0.3)) {
      const TaskStore::ListWorkerAgesParams params{.after = WorkerName(random_.Chance(0.5) ? Name("w", 4) : ""),
                                                   .after_population = random_.Chance(0.5) ? Population() : "",
                                                   .limit = static_cast<int>(random_.Below(6))};
      Both([&](TaskStore& s) { return s.ListWorkerAges(params); });
      const absl::Time seen_before = now_ - Soon() * 10;
      std::vector<TaskStore::WorkerAge> old = *memory_.ListWorkerAges(params);
      std::erase_if(old, [&](const auto& worker) { return worker.last_seen_time >= seen_before; });
      // Some were seen since.
      if (!old.empty() && random_.Chance(0.3)) old.back().last_seen_time -= absl::Seconds(1);
      return Both([&](TaskStore& s) { return s.DeleteWorkers(old); });
    }
    const TaskStore::DeleteEndedRoundsParams params{.ended_by = now_ - Soon() * 10,
                                                    .keep_max = static_cast<int64_t>(random_.Below(6)),
                                                    .tasks_limit = static_cast<int64_t>(random_.Below(20)) + 1};
    Both([&](TaskStore& s) { return s.DeleteEndedRounds(params); });
  }

  void Look() {
    Both([&](TaskStore& s) { return s.NextDueTime(now_); });
    Both([&](TaskStore& s) { return s.ListExpired(now_, 3); });
    TaskStore::ListRoundsParams rounds{.population = random_.Chance(0.5) ? Population() : "",
                                       .job = random_.Chance(0.5) ? Name("j", 2) : "",
                                       .after = random_.Chance(0.3) ? AnyRound() : RoundId(),
                                       .limit = static_cast<int>(random_.Below(5))};
    for (uint64_t n = random_.Below(3); n > 0; --n) {
      rounds.states.push_back(static_cast<RoundState>(random_.Below(6) + 1));
    }
    Both([&](TaskStore& s) { return s.ListRounds(rounds); });
    TaskStore::ListTasksParams tasks{.population = random_.Chance(0.3) ? Population() : "",
                                     .worker = WorkerName(random_.Chance(0.3) ? Name("w", 4) : ""),
                                     .limit = static_cast<int>(random_.Below(10))};
    if (random_.Chance(0.5)) tasks.round = AnyRound();
    if (random_.Chance(0.5)) tasks.after = AnyTask();
    if (random_.Chance(0.5)) tasks.states = {static_cast<TaskState>(random_.Below(6) + 1)};
    if (random_.Chance(0.3)) tasks.until = AnyTask();
    Both([&](TaskStore& s) { return s.ListTasks(tasks); });
    Both([&](TaskStore& s) { return s.SkipTasks(tasks); });
    std::string digest = Name("b", 3);
    Both([&](TaskStore& s) { return s.GetBlobUse(digest); });
    Both([&](TaskStore& s) { return s.ListFormerBroadcasts(); });
    RoundId round = AnyRound();
    Both([&](TaskStore& s) { return s.GetRound(round); });
    Both([&](TaskStore& s) { return s.CountTasks(round); });
    const absl::Time begun_after = random_.Chance(0.5) ? absl::InfinitePast() : now_ - Soon();
    Both([&](TaskStore& s) { return s.FirstLeaseTime(round, begun_after); });
    // Of a round that collects; and where the one knows it, who may have to look.
    const absl::StatusOr<RoundRecord> record = memory_.GetRound(round);
    const std::optional<absl::Time> first = database_->store().FirstAvailable(round);
    if (first && record.ok() && record->state == RoundState::kCollecting) CHECK(first == memory_.FirstAvailable(round));
    TaskId task = AnyTask();
    Both([&](TaskStore& s) { return s.GetTask(task); });
    Both([&](TaskStore& s) { return s.GetTaskState(task); });
    Both([&](TaskStore& s) { return s.PlaceOf(task); });
    Both([&](TaskStore& s) { return s.ListContributions(round, 2, 3); });
  }

  void Step() {
    if (random_.Chance(0.3)) now_ += absl::Seconds(random_.Below(10));
    uint64_t kind = random_.Below(100);
    if (kind < 4) return Create();
    if (kind < 30) return Lease();
    if (kind < 45) return Contribute();
    if (kind < 60) return EndAttempt();
    if (kind < 65) return Look();
    if (kind < 68) return CarryOver();
    if (kind < 73) return Move();
    if (kind < 80) {
      TaskId task = AnyTask();
      return Both([&](TaskStore& s) { return s.RequeueTask({.task = task, .now = now_}); });
    }
    if (kind < 86) {
      auto [task, token] = AnyLease();
      int64_t progress = random_.Below(10);
      absl::Time expire_time = now_ + Soon();
      return Both([&, id = task, its_token = token](TaskStore& s) {
        return s.RenewLease({.task = id, .token = its_token, .progress = progress, .expire_time = expire_time});
      });
    }
    if (kind < 91) {
      TaskStore::SawWorkerParams params{
          .name = WorkerName(Name("w", 4)), .population = Population(), .description = random_.Token(3), .now = now_};
      return Both([&](TaskStore& s) { return s.SawWorker(params); });
    }
    if (kind < 93) {
      const TaskStore::SetWorkerDrainingParams params = {
          .name = WorkerName(Name("w", 5)), .population = Population(), .is_draining = now_ > absl::UnixEpoch()};
      return Both([&](TaskStore& s) { return s.SetWorkerDraining(params); });
    }
    if (kind < 94) return Delete();
    RoundId round = AnyRound();
    if (kind < 98) {
      int64_t sequence = random_.Below(5);
      std::string checkpoint = random_.Token(3);
      return Both([&](TaskStore& s) {
        return s.SaveCheckpoint(
            {.round = round, .checkpoint = checkpoint, .sequence = sequence, .progress = checkpoint});
      });
    }
    Both([&](TaskStore& s) { return s.ForgetContributionsAfterCheckpoint(round, now_); });
  }

  SeededRandom random_;
  absl::Time now_ = absl::FromUnixSeconds(1'700'000'000);
  int64_t num_rounds_ = 0;
  MemoryTaskStore memory_;
  const std::string name_;
  const std::unique_ptr<StoreUnderTest> database_;
};

TEST_CASE("A database answers every operation as the memory store does, whatever the order") {
  const char* replayed = std::getenv("SHEAF_TEST_SEED");
  for (uint64_t seed :
       replayed ? std::vector<uint64_t>{std::strtoull(replayed, nullptr, 10)} : std::vector<uint64_t>{1, 2}) {
    for (const StoreKind& kind : StoresUnderTest()) {
      if (!kind.is_durable) continue;
      INFO("on " << kind.name << "; replay with SHEAF_TEST_SEED=" << seed);
      Model(seed, kind).Run();
    }
  }
}

}  // namespace
}  // namespace sheaf
