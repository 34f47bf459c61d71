#include "server/core/lifecycle/round_manager.h"

#include <fmt/format.h>

#include <algorithm>
#include <tuple>
#include <utility>

#include "base/check.h"
#include "base/log.h"
#include "base/plural.h"
#include "base/status_macros.h"
#include "base/utf8.h"
#include "proto/time.h"
#include "server/core/rounds/round_spec.h"
#include "server/core/rounds/spec_difference.h"
#include "server/stored/round_spec.h"
#include "storage/transitions.h"

namespace sheaf {
namespace {

// Without 0, 1, 8 and 9 an id is read aloud without mistakes.
constexpr int kRoundIdCharacters = 8;

constexpr int kPage = 1000;
constexpr size_t kReasonBytesMax = 1024;

}  // namespace

absl::Status RoundManager::Recover(absl::Time now) {
  RoundId after;
  do {
    ASSIGN_OR_RETURN(const std::vector<RoundRecord> page,
                     context_.store.ListRounds({.states = {RoundState::kCollecting, RoundState::kSealing},
                                                .after = std::exchange(after, RoundId()),
                                                .limit = kPage}));
    for (const RoundRecord& record : page) {
      RETURN_IF_ERROR(DeleteCovered(record));
      RETURN_IF_ERROR(Load(record, now));
    }
    if (static_cast<int>(page.size()) == kPage) after = page.back().id;
  } while (!after.empty());
  RETURN_IF_ERROR(LimitTimes(now));
  // A server of 0.1 went on with rounds that could not reach their goal.
  for (const auto& [id, round] : live_) {
    context_.executor.Post([this, id = id](absl::Time at) {
      if (LiveRound* live = Find(id); live != nullptr) CheckExhausted(*live, at);
    });
  }
  // None waits for longer.
  recovered_until_ = asked_time_ = now + context_.limits.retry_backoff_max;
  // What a crash left of rounds that had ended.
  ASSIGN_OR_RETURN(const std::vector<RoundId> stored, context_.payloads.ListRounds());
  for (const RoundId& id : stored) {
    if (Find(id) != nullptr) continue;
    // Strays, and what the file system does not let go, keep no server from its rounds.
    const absl::Status deleted = context_.payloads.DeleteRound(id);
    if (!deleted.ok()) LogWarning("what is left of round {} stays on disk: {}", id, deleted.ToString());
  }
  // The broadcasts that were to be deleted soon are known from the store alone.
  ASSIGN_OR_RETURN(const std::vector<PayloadStore::BlobInfo> blobs, context_.payloads.ListBlobs());
  for (const PayloadStore::BlobInfo& blob : blobs) {
    ASSIGN_OR_RETURN(const TaskStore::BlobUse use, context_.store.GetBlobUse(blob.digest));
    if (use == TaskStore::BlobUse::kFormer) retired_broadcasts_[blob.digest] = now + context_.limits.broadcast_linger;
  }
  return absl::OkStatus();
}

absl::Status RoundManager::LimitTimes(absl::Time now) {
  RETURN_IF_ERROR(context_.store.BeginBatch());
  for (const auto& [id, round] : live_) {
    if (round->state != RoundState::kCollecting) continue;
    const absl::StatusOr<bool> limited =
        context_.store.LimitTimes({.round = id,
                                   .now = now,
                                   .deadline_time_max = now + FromProto(round->spec.deadline()),
                                   .expire_time_max = now + FromProto(round->spec.lease_duration()),
                                   .attempt_deadline_time_max = now + FromProto(round->spec.attempt_deadline()),
                                   .available_time_max = now + context_.limits.retry_backoff_max});
    if (!limited.ok()) {
      context_.store.RollbackBatch();
      return limited.status();
    }
    if (!*limited) continue;
    LogWarning("the clock was set back while the server was down: the times of round {} were brought nearer", id);
    deadlines_.erase({round->deadline_time, id});
    round->deadline_time = std::min(round->deadline_time, now + FromProto(round->spec.deadline()));
    deadlines_.insert({round->deadline_time, id});
  }
  return context_.store.CommitBatch();
}

absl::Status RoundManager::OnRollback(absl::Time now) {
  for (auto it = live_.begin(); it != live_.end();) {
    LiveRound& round = *it->second;
    const absl::StatusOr<RoundRecord> record = context_.store.GetRound(round.id);
    // What cannot be read has not ended for that; but what is assumed of it may be wrong.
    if (!record.ok() && !absl::IsNotFound(record.status())) return record.status();
    if (!record.ok() || IsFinal(record->state)) {
      const std::string digest = round.spec.broadcast_digest();
      it = Erase(it);
      if (!digest.empty() && !retired_broadcasts_.contains(digest)) ForgetReaders(digest);
      continue;
    }
    round.state = record->state;
    if (round.state == RoundState::kCollecting) deadlines_.insert({round.deadline_time, round.id});
    round.recorded = record->num_contributions;
    // No checkpoint would make room for it, and the disk may be full.
    if (round.recorded == round.checkpoint_sequence) DropSpool(round);
    WorkMayHaveCome(round);
    if (round.state == RoundState::kSealing) seal_again_[round.id] = now + kSealAgainAfter;
    ASSIGN_OR_RETURN(round.progress, DecodeProgress(*record));
    round.progress.metrics = round.submitted_metrics;
    ++it;
  }
  return absl::OkStatus();
}

RoundRecord RoundManager::RecordOf(const v1::CreateRoundRequest& request, const PreparedRound& prepared,
                                   absl::Time now) {
  const v1::RoundSpec& spec = prepared.spec;
  return {.population = spec.population(),
          .job = spec.job(),
          .request_id = request.request_id(),
          .spec = EncodeSpec(spec),
          .create_time = now,
          .deadline_time = now + FromProto(spec.deadline()),
          .broadcast_digest = spec.broadcast_digest(),
          .task_digests = prepared.task_digests};
}

absl::Status RoundManager::CheckNew(const PreparedRound& prepared) const {
  const v1::RoundSpec& spec = prepared.spec;
  RETURN_IF_ERROR(CheckBroadcast(spec));
  return CheckRoom(spec.population(), static_cast<int64_t>(prepared.tasks.size()));
}

absl::Status RoundManager::CheckBroadcast(const v1::RoundSpec& spec) const {
  if (spec.broadcast_digest().empty() || context_.payloads.HasBlob(spec.broadcast_digest())) return absl::OkStatus();
  return absl::NotFoundError(
      fmt::format("the broadcast {} was not uploaded; upload it first (sheaf round create --broadcast FILE does both)",
                  spec.broadcast_digest()));
}

absl::StatusOr<RoundRecord> RoundManager::Validate(const v1::CreateRoundRequest& request, const PreparedRound& prepared,
                                                   absl::Time now) const {
  RETURN_IF_ERROR(CheckBroadcast(prepared.spec));
  RoundRecord record = RecordOf(request, prepared, now);
  record.tasks.queued = static_cast<int64_t>(prepared.tasks.size());
  return record;
}

absl::StatusOr<RoundRecord> RoundManager::Create(const v1::CreateRoundRequest& request, absl::Time now) {
  ASSIGN_OR_RETURN(PreparedRound prepared, PrepareRound(request.spec(), context_.limits));
  if (request.validate_only()) return Validate(request, prepared, now);
  const absl::Status refusal = CheckNew(prepared);
  TaskStore::CreateRoundParams params{.round = RecordOf(request, prepared, now), .may_create = refusal.ok()};
  params.round.id = NewId();
  params.tasks.swap(prepared.tasks);
  absl::StatusOr<TaskStore::CreateRoundResult> created = context_.store.CreateRound(params);
  params.tasks.swap(prepared.tasks);
  // A repeated request gets its round, also if that was what took the last room.
  if (absl::IsNotFound(created.status()) && !refusal.ok()) return refusal;
  RETURN_IF_ERROR(created.status());
  if (created->created) {
    ASSIGN_OR_RETURN(std::vector<std::string> requirements, context_.store.ListRequirements(created->round.id));
    RETURN_IF_ERROR(Begin(created->round, RequirementIndex(std::move(requirements)), now));
  }
  return OnCreated(request, prepared, *std::move(created));
}

RoundId RoundManager::NewId() { return RoundId("r-" + context_.random.Token(kRoundIdCharacters)); }

absl::StatusOr<std::optional<RoundRecord>> RoundManager::FindCreated(const v1::CreateRoundRequest& request,
                                                                     const PreparedRound& prepared) {
  const absl::Status refusal = CheckNew(prepared);
  RoundRecord record = RecordOf(request, prepared, absl::Time());
  record.id = RoundId("r-");
  absl::StatusOr<TaskStore::CreateRoundResult> created =
      context_.store.CreateRound({.round = std::move(record), .may_create = false});
  if (absl::IsNotFound(created.status())) {
    RETURN_IF_ERROR(refusal);
    return std::nullopt;
  }
  RETURN_IF_ERROR(created.status());
  ASSIGN_OR_RETURN(RoundRecord round, OnCreated(request, prepared, *std::move(created)));
  return round;
}

absl::StatusOr<RoundRecord> RoundManager::Create(const v1::CreateRoundRequest& request, const PreparedRound& prepared,
                                                 StagedRound& staged, absl::Time now) {
  const absl::Status refusal = CheckNew(prepared);
  RoundRecord record = RecordOf(request, prepared, now);
  record.id = staged.id;
  record.create_time = staged.create_time;
  absl::StatusOr<TaskStore::CreateRoundResult> created =
      context_.store.CreateRound({.round = std::move(record),
                                  .num_staged = staged.num_staged,
                                  .tasks = {prepared.tasks.begin() + staged.num_staged, prepared.tasks.end()},
                                  .may_create = refusal.ok()});
  if (absl::IsNotFound(created.status()) && !refusal.ok()) return refusal;
  RETURN_IF_ERROR(created.status());
  if (created->created) RETURN_IF_ERROR(Begin(created->round, std::move(staged.requirements), now));
  return OnCreated(request, prepared, *std::move(created));
}

absl::Status RoundManager::Begin(const RoundRecord& record, RequirementIndex requirements, absl::Time now) {
  RETURN_IF_ERROR(Load(record, std::move(requirements), now));
  context_.executor.Defer([this, digest = record.broadcast_digest, now](const absl::Status& commit) {
    const auto touched = touched_blobs_.find(digest);
    // From here on the broadcast lives as its rounds do, and not for as long as one was waited for.
    if (commit.ok() && touched != touched_blobs_.end()) {
      touched->second = std::min(touched->second, now + context_.limits.broadcast_linger);
    }
  });
  return absl::OkStatus();
}

absl::StatusOr<RoundRecord> RoundManager::OnCreated(const v1::CreateRoundRequest& request,
                                                    const PreparedRound& prepared,
                                                    TaskStore::CreateRoundResult created) {
  if (created.created) return std::move(created.round);
  // Else whoever knows an id could look into another population.
  if (created.round.population != prepared.spec.population()) {
    return absl::AlreadyExistsError(
        fmt::format("request_id {} created a round of another population; choose another", request.request_id()));
  }
  ASSIGN_OR_RETURN(const std::string difference, DifferenceFrom(created.round, request.spec(), prepared));
  if (difference.empty()) return std::move(created.round);
  return absl::AlreadyExistsError(
      fmt::format("request_id {} created round {} with another spec ({}); choose another request_id for another round",
                  request.request_id(), created.round.id, difference));
}

absl::StatusOr<std::string> RoundManager::DifferenceFrom(const RoundRecord& earlier, const v1::RoundSpec& asked,
                                                         const PreparedRound& prepared) {
  ASSIGN_OR_RETURN(const v1::RoundSpec stored, DecodeSpec(earlier));
  if (std::string difference = SpecDifference(stored, asked, prepared.spec); !difference.empty()) return difference;
  const std::vector<TaskStore::NewTask>& tasks = prepared.tasks;
  if (earlier.tasks.total() != static_cast<int64_t>(tasks.size())) {
    return fmt::format("{} tasks -> {}", earlier.tasks.total(), tasks.size());
  }
  size_t first = 0;
  size_t end = tasks.size();
  // An older version stored none.
  if (const std::string& digests = earlier.task_digests; !digests.empty()) {
    if (digests == prepared.task_digests) return std::string();
    const auto other = std::mismatch(digests.begin(), digests.end(), prepared.task_digests.begin()).first;
    first = static_cast<size_t>(other - digests.begin()) / kTaskDigestBytes * kDigestedTasks;
    end = std::min(end, first + kDigestedTasks);
  }
  TaskStore::ListTasksParams page{.round = earlier.id, .limit = kPage};
  if (first > 0) page.after = TaskId{earlier.id, static_cast<int32_t>(first - 1)};
  for (size_t i = first; i < end;) {
    ASSIGN_OR_RETURN(const std::vector<TaskRecord> known, context_.store.ListTasks(page));
    if (known.empty()) return absl::DataLossError(fmt::format("tasks of round {} are missing", earlier.id));
    for (const TaskRecord& task : known) {
      const TaskStore::NewTask& wanted = tasks[i];
      for (const auto& [name, had, has] : {std::tuple("payload", &task.payload, &wanted.payload),
                                           std::tuple("data_selector", &task.data_selector, &wanted.data_selector),
                                           std::tuple("requirements", &task.requirement, &wanted.requirement)}) {
        if (*had != *has) return fmt::format("listed.tasks[{}].{}", i, name);
      }
      if (++i == end) break;
    }
    page.after = known.back().id;
  }
  return std::string(end - first < tasks.size() ? "listed.tasks" : "");
}

absl::StatusOr<RoundRecord> RoundManager::Cancel(const RoundId& id, const std::string& reason, absl::Time now) {
  ASSIGN_OR_RETURN(RoundRecord record, context_.store.GetRound(id));
  if (record.state == RoundState::kCancelled) return record;
  LiveRound* round = Find(id);
  if (round == nullptr || round->state != RoundState::kCollecting) {
    return absl::FailedPreconditionError(
        fmt::format("round {} is {}; only a round that is COLLECTING can be cancelled", id, Name(record.state)));
  }
  End(*round, RoundState::kCancelled, reason.empty() ? "cancelled by request" : CutUtf8(reason, kReasonBytesMax), now);
  return context_.store.GetRound(id);
}

absl::Status RoundManager::CheckRoom(const std::string& population, int64_t num_tasks) const {
  const Limits& limits = context_.limits;
  const int64_t percent = limits.population_percent_max;
  if (num_live_.total() >= limits.live_rounds_max) {
    return absl::ResourceExhaustedError(
        fmt::format("{} rounds are live, live_rounds_max = {}; wait for some to end, or cancel them", num_live_.total(),
                    limits.live_rounds_max));
  }
  if (num_live_.Of(population) >= num_live_.Max(population, limits.live_rounds_max, percent)) {
    return absl::ResourceExhaustedError(
        fmt::format("{} rounds of population '{}' are live: it may have population_percent_max = {} % of what others "
                    "leave of live_rounds_max = {}; wait for some of its rounds to end, or cancel them",
                    num_live_.Of(population), population, percent, limits.live_rounds_max));
  }
  if (num_live_tasks_.total() + num_tasks > limits.live_tasks_max) {
    return absl::ResourceExhaustedError(fmt::format(
        "the live rounds have {} tasks, and {} more would be over live_tasks_max = {}; wait for some rounds "
        "to end, or cancel them",
        num_live_tasks_.total(), num_tasks, limits.live_tasks_max));
  }
  if (num_live_tasks_.Of(population) + num_tasks > num_live_tasks_.Max(population, limits.live_tasks_max, percent)) {
    return absl::ResourceExhaustedError(fmt::format(
        "the live rounds of population '{}' have {} tasks, and {} more would be over population_percent_max "
        "= {} % of what others leave of live_tasks_max = {}; wait for some of its rounds to end, or cancel "
        "them",
        population, num_live_tasks_.Of(population), num_tasks, percent, limits.live_tasks_max));
  }
  return absl::OkStatus();
}

void RoundManager::WorkMayHaveCome(LiveRound& round) {
  NoteNoWork(round);
  ByWorkVersion& rounds = by_population_[round.spec.population()];
  rounds.erase(round.work_version);
  round.work_version = ++work_version_;
  rounds.emplace(round.work_version, &round);
  with_work_[round.spec.population()].emplace(round.work_version, &round);
  round.may_have_work = true;
}

void RoundManager::NoteNoWork(const LiveRound& round) {
  const auto rounds = with_work_.find(round.spec.population());
  if (rounds == with_work_.end()) return;
  rounds->second.erase(round.work_version);
  if (rounds->second.empty()) with_work_.erase(rounds);
}

bool RoundManager::HasWork(const std::string& population) {
  for (auto rounds = with_work_.find(population); rounds != with_work_.end(); rounds = with_work_.find(population)) {
    const LiveRound& round = *rounds->second.begin()->second;
    if (round.may_have_work && round.state == RoundState::kCollecting) return true;
    NoteNoWork(round);
  }
  return false;
}

void RoundManager::WorkMayHaveCome(absl::Time now) {
  if (asked_time_ <= recovered_until_) {
    for (const auto& [id, round] : live_) WorkMayHaveCome(*round);
  }
  asked_time_ = now;
  // The store may round the end of a backoff up: until then the task is still waiting, and is looked for once more.
  constexpr absl::Duration kRounding = absl::Milliseconds(1);
  for (auto it = delayed_.begin(); it != delayed_.end() && it->first <= now;) {
    if (LiveRound* round = Find(it->second); round != nullptr) WorkMayHaveCome(*round);
    it = it->first + kRounding <= now ? delayed_.erase(it) : std::next(it);
  }
}

const RoundManager::ByWorkVersion* RoundManager::RoundsOf(const std::string& population) const {
  const auto found = by_population_.find(population);
  return found == by_population_.end() ? nullptr : &found->second;
}

const RoundManager::ByWorkVersion* RoundManager::RoundsWithWork(const std::string& population) const {
  const auto found = with_work_.find(population);
  return found == with_work_.end() ? nullptr : &found->second;
}

RoundManager::LiveMap::iterator RoundManager::Erase(LiveMap::iterator round) {
  const std::string& population = round->second->spec.population();
  NoteNoWork(*round->second);
  const auto rounds = by_population_.find(population);
  rounds->second.erase(round->second->work_version);
  if (rounds->second.empty()) by_population_.erase(rounds);
  deadlines_.erase({round->second->deadline_time, round->first});
  num_live_.Add(population, -1);
  num_live_tasks_.Add(population, -round->second->num_tasks);
  spool_disk_bytes_.Add(population, -round->second->spool_disk_bytes);
  return live_.erase(round);
}

LiveRound* RoundManager::Find(const RoundId& id) {
  const auto found = live_.find(id);
  return found == live_.end() ? nullptr : found->second.get();
}

void RoundManager::CheckExhausted(LiveRound& round, absl::Time now) {
  if (round.state != RoundState::kCollecting) return;
  const absl::StatusOr<TaskCounts> counts = context_.store.CountTasks(round.id);
  if (!counts.ok()) return;
  const TaskCounts& tasks = *counts;
  // A BURIED task may still be requeued by an operator; a FAILED one was said to be beyond help.
  const int64_t num_possible = tasks.succeeded + tasks.queued + tasks.leased + tasks.buried;
  if (num_possible >= round.spec.min_goal()) {
    if (tasks.queued + tasks.leased == 0 && tasks.succeeded >= round.spec.min_goal()) BeginSealing(round, now);
    return;
  }
  End(round, RoundState::kFailed,
      fmt::format("{} of {} tasks failed for good, so at most {} contributions can come; min_goal is {}", tasks.failed,
                  tasks.total(), num_possible, round.spec.min_goal()),
      now);
}

void RoundManager::Tick(absl::Time now, absl::Time read_until) {
  folded_here_bytes_ = 0;
  std::vector<RoundId> due;
  for (auto it = deadlines_.begin(); it != deadlines_.end() && it->first <= read_until; it = deadlines_.erase(it)) {
    due.push_back(it->second);
  }
  for (const RoundId& id : due) {
    LiveRound* round = Find(id);
    if (round == nullptr || round->state != RoundState::kCollecting) continue;
    if (round->recorded >= round->spec.min_goal()) {
      BeginSealing(*round, now);
    } else {
      End(*round, RoundState::kFailed,
          fmt::format("the deadline passed with {}; min_goal is {}", Counted(round->recorded, "contribution"),
                      round->spec.min_goal()),
          now);
    }
  }
  for (auto it = seal_again_.begin(); it != seal_again_.end();) {
    if (it->second > now) {
      ++it;
      continue;
    }
    const RoundId id = it->first;
    it = seal_again_.erase(it);
    context_.executor.Post([this, id](absl::Time at) { Seal(id, at); });
  }
  RetireBroadcasts(now);
}

void RoundManager::RetireBroadcasts(absl::Time now) {
  std::vector<std::string> due;
  for (const auto& [digest, time] : retired_broadcasts_) {
    if (time <= now) due.push_back(digest);
  }
  if (due.empty()) return;
  for (const std::string& digest : due) retired_broadcasts_[digest] = now + context_.limits.broadcast_linger;
  // What this batch says of the rounds that had it may yet come to nothing.
  context_.executor.Defer([this, due = std::move(due), now](const absl::Status& commit) {
    if (!commit.ok()) return;
    for (const std::string& digest : due) {
      if (IsUnused(digest, now)) {
        const absl::Status status = DeleteBlob(digest);
        if (!status.ok()) LogWarning("broadcast {} stays on disk: {}", digest, status.ToString());
      }
      retired_broadcasts_.erase(digest);
      ForgetReaders(digest);
    }
  });
}

bool RoundManager::IsUnused(const std::string& digest, absl::Time now) const {
  const absl::StatusOr<TaskStore::BlobUse> use = context_.store.GetBlobUse(digest);
  if (!use.ok() || *use == TaskStore::BlobUse::kCurrent) return false;
  const auto touched = touched_blobs_.find(digest);
  if (touched != touched_blobs_.end() && touched->second > now) return false;
  return std::none_of(live_.begin(), live_.end(),
                      [&](const auto& entry) { return entry.second->written_aggregate == digest; });
}

absl::Status RoundManager::DeleteBlob(const std::string& digest) const {
  ASSIGN_OR_RETURN(PayloadStore::BlobRemains remains, context_.payloads.DeleteBlob(digest));
  context_.receptions.Run("deleted blobs", [remains = std::move(remains)]() mutable { remains.reset(); });
  return absl::OkStatus();
}

void RoundManager::ForgetReaders(const std::string& digest) {
  std::set<std::string> populations;
  for (const auto& [id, round] : live_) {
    if (round->spec.broadcast_digest() == digest) populations.insert(round->spec.population());
  }
  readers_.Set(digest, std::move(populations));
}

absl::Time RoundManager::NextTick() const {
  absl::Time next = absl::InfiniteFuture();
  if (!deadlines_.empty()) next = deadlines_.begin()->first;
  for (const auto& [digest, time] : retired_broadcasts_) next = std::min(next, time);
  for (const auto& [id, time] : seal_again_) next = std::min(next, time);
  return next;
}

void RoundManager::TouchBroadcast(const std::string& digest, absl::Duration keep, absl::Time now) {
  std::erase_if(touched_blobs_, [now](const auto& entry) { return entry.second <= now; });
  absl::Time& until = touched_blobs_.try_emplace(digest, now).first->second;
  until = std::max(until, now + keep);
  const auto found = retired_broadcasts_.find(digest);
  if (found != retired_broadcasts_.end()) found->second = until;
}

void RoundManager::End(LiveRound& round, RoundState to, const std::string& error, absl::Time now) {
  const absl::StatusOr<RoundRecord> moved =
      context_.store.MoveRound({.round = round.id, .from = round.state, .to = to, .now = now, .error = error});
  if (!moved.ok()) {
    LogError("round {} cannot become {}: {}", round.id, Name(to), moved.status().ToString());
    return;
  }
  LogInfo("round {} {}: {}", round.id, Name(to), error);
  round.state = to;
  on_closed_(round.id);
  context_.executor.Defer([this, id = round.id, now](const absl::Status& commit) {
    if (commit.ok()) Forget(id, now);
  });
}

void RoundManager::Forget(const RoundId& id, absl::Time now) {
  const auto found = live_.find(id);
  if (found == live_.end()) return;
  const std::string digest = found->second->spec.broadcast_digest();
  if (!digest.empty()) retired_broadcasts_[digest] = now + context_.limits.broadcast_linger;
  FoldStrand strand = std::move(found->second->strand);
  Erase(found);
  // Behind a checkpoint that is still being written.
  std::move(strand).Retire([&payloads = context_.payloads, id] {
    const absl::Status status = payloads.DeleteRound(id);
    if (!status.ok()) LogWarning("the spool of round {} stays on disk until the next start: {}", id, status.ToString());
  });
}

}  // namespace sheaf
