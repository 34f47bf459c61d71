#include "server/core/lifecycle/new_rounds.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <tuple>
#include <utility>
#include <vector>

#include "base/status_macros.h"
#include "proto/time.h"
#include "server/core/contributions/refold.h"
#include "server/core/rounds/continuation.h"
#include "server/core/rounds/round_states.h"
#include "server/core/rounds/spec_difference.h"
#include "server/stored/round_spec.h"
#include "storage/transitions.h"

namespace sheaf {
namespace {

// Without 0, 1, 8 and 9 an id is read aloud without mistakes.
constexpr int kRoundIdCharacters = 8;

constexpr int kPage = 1000;

}  // namespace

RoundRecord NewRounds::RecordOf(const v1::CreateRoundRequest& request, const PreparedRound& prepared, absl::Time now) {
  const v1::RoundSpec& spec = prepared.spec;
  return {.population = spec.population(),
          .job = spec.job(),
          .request_id = request.request_id(),
          .spec = EncodeSpec(spec),
          .state = spec.announced() ? RoundState::kAnnounced : RoundState::kCollecting,
          .create_time = now,
          .deadline_time = now + FromProto(spec.announced() ? spec.announce_deadline() : spec.deadline()),
          .broadcast_digest = spec.broadcast_digest(),
          .task_digests = prepared.task_digests};
}

absl::Status NewRounds::CheckNew(const PreparedRound& prepared) const {
  const v1::RoundSpec& spec = prepared.spec;
  RETURN_IF_ERROR(broadcasts_.CheckStored(spec.broadcast_digest()));
  RETURN_IF_ERROR(CheckContinues(spec));
  return rounds_.CheckRoom(spec.population(), static_cast<int64_t>(prepared.tasks.size()));
}

absl::Status NewRounds::CheckContinues(const v1::RoundSpec& spec) const {
  if (spec.continues().empty()) return absl::OkStatus();
  const RoundId id(spec.continues());
  const absl::StatusOr<RoundRecord> before = context_.store.GetRound(id);
  if (!before.ok() && !absl::IsNotFound(before.status())) return before.status();
  // Whoever knows an id of another population learns nothing of it.
  if (!before.ok() || before->population != spec.population()) {
    return absl::NotFoundError(
        fmt::format("spec.continues names round {}, and population '{}' has no such round", id, spec.population()));
  }
  ASSIGN_OR_RETURN(const v1::RoundSpec spec_before, DecodeSpec(*before));
  RETURN_IF_ERROR(CheckContinuation(id, spec_before, spec));
  if (!HandsOutTasks(before->state)) {
    return absl::FailedPreconditionError(fmt::format(
        "spec.continues names round {}, which is {}: none of its tasks runs any more; create the round that "
        "continues it before it has its goal",
        id, Name(before->state)));
  }
  if (const LiveRound* other = rounds_.SuccessorOf(id); other != nullptr) {
    return absl::FailedPreconditionError(fmt::format(
        "spec.continues names round {}, which round {} continues already; continue that one", id, other->id));
  }
  return absl::OkStatus();
}

absl::StatusOr<RoundRecord> NewRounds::Validate(const v1::CreateRoundRequest& request, const PreparedRound& prepared,
                                                absl::Time now) const {
  RETURN_IF_ERROR(broadcasts_.CheckStored(prepared.spec.broadcast_digest()));
  RETURN_IF_ERROR(CheckContinues(prepared.spec));
  RoundRecord record = RecordOf(request, prepared, now);
  record.tasks.queued = static_cast<int64_t>(prepared.tasks.size());
  return record;
}

absl::StatusOr<RoundRecord> NewRounds::Create(const v1::CreateRoundRequest& request, absl::Time now) {
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

RoundId NewRounds::NewId() {
  return RoundId(NamePrefix('r', context_.shard) + context_.random.Token(kRoundIdCharacters));
}

absl::StatusOr<std::optional<RoundRecord>> NewRounds::FindCreated(const v1::CreateRoundRequest& request,
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

absl::StatusOr<RoundRecord> NewRounds::Create(const v1::CreateRoundRequest& request, const PreparedRound& prepared,
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

absl::Status NewRounds::Begin(const RoundRecord& record, RequirementIndex requirements, absl::Time now) {
  ASSIGN_OR_RETURN(std::unique_ptr<LiveRound> round, Refold(context_, record, std::move(requirements), now));
  broadcasts_.OnRoundAdded(round->spec.broadcast_digest(), round->spec.population());
  PopulationFigures& figures = rounds_.queue().Of(rounds_.Add(std::move(round)));
  figures.rounds_created.Add();
  figures.tasks_created.Add(record.tasks.total());
  broadcasts_.OnRoundCreated(record.broadcast_digest, now);
  return absl::OkStatus();
}

absl::StatusOr<RoundRecord> NewRounds::OnCreated(const v1::CreateRoundRequest& request, const PreparedRound& prepared,
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

absl::StatusOr<std::string> NewRounds::DifferenceFrom(const RoundRecord& earlier, const v1::RoundSpec& asked,
                                                      const PreparedRound& prepared) {
  ASSIGN_OR_RETURN(v1::RoundSpec stored, DecodeSpec(earlier));
  // Of an announced round it came with OpenRound.
  if (stored.announced()) stored.clear_broadcast_digest();
  if (std::string difference = SpecDifference(stored, asked, prepared.spec); !difference.empty()) return difference;
  const std::vector<TaskStore::NewTask>& tasks = prepared.tasks;
  const auto num_tasks = static_cast<int64_t>(tasks.size());
  bool has_as_many = earlier.tasks.total() == num_tasks;
  if (earlier.tasks.total() > num_tasks && !stored.continues().empty()) {
    // Those that were carried over lie behind its own.
    const auto is_own = [&](int64_t index) -> absl::StatusOr<bool> {
      ASSIGN_OR_RETURN(const TaskRecord task, context_.store.GetTaskState({earlier.id, static_cast<int32_t>(index)}));
      return !task.origin;
    };
    ASSIGN_OR_RETURN(const bool is_last_own, is_own(num_tasks - 1));
    ASSIGN_OR_RETURN(const bool is_next_own, is_own(num_tasks));
    has_as_many = is_last_own && !is_next_own;
  }
  if (!has_as_many) return fmt::format("{} tasks -> {}", earlier.tasks.total(), num_tasks);
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

}  // namespace sheaf
