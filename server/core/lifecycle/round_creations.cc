#include "server/core/lifecycle/round_creations.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <span>
#include <utility>

#include "base/status_macros.h"

namespace sheaf {
namespace {

// Of tasks that are stored in one batch, with all that was written for them; one goes whatever its size.
constexpr size_t kBatchBytesMax = 1 << 20;

size_t BytesOf(const TaskStore::NewTask& task) {
  return task.payload.size() + task.data_selector.size() + task.requirement.size();
}

}  // namespace

bool RoundCreations::IsLarge(const v1::RoundSpec& spec) const {
  double count = spec.listed().tasks_size();
  double bytes = 0;
  if (spec.has_open_slots()) {
    const v1::OpenSlots& slots = spec.open_slots();
    count = slots.count() > 0 ? slots.count()
                              : std::ceil(spec.goal() * std::max(spec.over_selection(), kOverSelectionDefault));
    bytes = count * static_cast<double>(slots.task().ByteSizeLong());
  }
  if (count > static_cast<double>(context_.limits.tasks_per_batch_max)) return true;
  // Of few tasks.
  if (spec.has_listed()) bytes = static_cast<double>(spec.listed().ByteSizeLong());
  return bytes > kBatchBytesMax;
}

void RoundCreations::Create(const v1::CreateRoundRequest& request, absl::Time now, Reply<RoundRecord> reply) {
  if (request.broadcast().empty()) {
    const auto create = [this, &request, reply = std::move(reply)](const absl::Status& learnt, absl::Time at) {
      learnt.ok() ? CreateNamed(request, at, reply) : reply(learnt);
    };
    return broadcasts_.Learn(request.spec().broadcast_digest(), create, now);
  }
  if (request.spec().announced()) {
    return reply(absl::InvalidArgumentError(
        "spec.announced is set, so the broadcast comes with OpenRound; leave CreateRoundRequest.broadcast empty"));
  }
  StoreBroadcast(request, std::move(reply));
}

void RoundCreations::StoreBroadcast(const v1::CreateRoundRequest& request, Reply<RoundRecord> reply) {
  inline_broadcasts_.Store(
      {.bytes = request.broadcast(),
       .named = request.spec().broadcast_digest(),
       .field = "spec.broadcast_digest",
       .request_id = request.request_id(),
       .validate_only = request.validate_only()},
      [this, &request, reply = std::move(reply)](absl::StatusOr<std::string> digest, absl::Time now) {
        if (!digest.ok()) return reply(digest.status());
        const auto named = std::make_shared<v1::CreateRoundRequest>();
        named->set_request_id(request.request_id());
        named->set_validate_only(request.validate_only());
        *named->mutable_spec() = request.spec();
        named->mutable_spec()->set_broadcast_digest(*digest);
        CreateNamed(*named, now, [named, reply](absl::StatusOr<RoundRecord> record) { reply(std::move(record)); });
      });
}

void RoundCreations::CreateNamed(const v1::CreateRoundRequest& request, absl::Time now, Reply<RoundRecord> reply) {
  if (!IsLarge(request.spec())) return reply(new_rounds_.Create(request, now));
  if (const auto found = creations_.find(request.request_id()); found != creations_.end()) {
    found->second->others.push_back(
        [this, &request, reply = std::move(reply)](absl::Time at) { CreateNamed(request, at, reply); });
    return;
  }
  const auto creation = std::make_shared<Creation>();
  creation->request = &request;
  creation->reply = std::move(reply);
  creations_[request.request_id()] = creation;
  context_.receptions.Run("creation by " + request.request_id(), [this, creation] { Prepare(creation); });
}

void RoundCreations::Prepare(const CreationPtr& creation) {
  creation->prepared = PrepareRound(creation->request->spec(), context_.limits);
  if (creation->prepared.ok()) {
    std::vector<std::string>& requirements = creation->requirements;
    for (const TaskStore::NewTask& task : creation->prepared->tasks) requirements.push_back(task.requirement);
    std::sort(requirements.begin(), requirements.end());
    requirements.erase(std::unique(requirements.begin(), requirements.end()), requirements.end());
    creation->staged.requirements = RequirementIndex(requirements);
  }
  context_.executor.Post([this, creation](absl::Time now) { Begin(creation, now); });
}

void RoundCreations::Begin(const CreationPtr& creation, absl::Time now) {
  const v1::CreateRoundRequest& request = *creation->request;
  if (!creation->prepared.ok()) return End(creation, creation->prepared.status());
  if (request.validate_only()) return End(creation, new_rounds_.Validate(request, *creation->prepared, now));
  absl::StatusOr<std::optional<RoundRecord>> created = new_rounds_.FindCreated(request, *creation->prepared);
  if (!created.ok()) return End(creation, created.status());
  if (created->has_value()) return End(creation, **std::move(created));
  creation->staged.id = new_rounds_.NewId();
  creation->staged.create_time = now;
  GoOn(creation, now);
}

void RoundCreations::GoOn(const CreationPtr& creation, absl::Time now) {
  NewRounds::StagedRound& staged = creation->staged;
  std::span<const TaskStore::NewTask> next =
      std::span(creation->prepared->tasks).subspan(static_cast<size_t>(staged.num_staged));
  const auto most = std::min(next.size(), static_cast<size_t>(context_.limits.tasks_per_batch_max));
  size_t count = 0;
  for (size_t bytes = 0; count < most && (count == 0 || bytes + BytesOf(next[count]) <= kBatchBytesMax); ++count) {
    bytes += BytesOf(next[count]);
  }
  if (count == next.size()) {
    return End(creation, new_rounds_.Create(*creation->request, *creation->prepared, staged, now));
  }
  const absl::Status stored = context_.store.StageTasks({.round = staged.id,
                                                         .create_time = staged.create_time,
                                                         .requirements = creation->requirements,
                                                         .num_staged = staged.num_staged,
                                                         .tasks = next.first(count)});
  if (!stored.ok()) return End(creation, stored);
  staged.num_staged += static_cast<int64_t>(count);
  context_.executor.Defer([this, creation](const absl::Status& commit) {
    context_.executor.Post(
        [this, creation, commit](absl::Time at) { commit.ok() ? GoOn(creation, at) : End(creation, commit); });
  });
}

void RoundCreations::End(const CreationPtr& creation, absl::StatusOr<RoundRecord> result) {
  creations_.erase(creation->request->request_id());
  creation->reply(std::move(result));
  for (std::function<void(absl::Time)>& other : creation->others) context_.executor.Post(std::move(other));
  // To free many tasks takes its time, too.
  const auto tasks = std::make_shared<Creation>(std::move(*creation));
  context_.receptions.Run("creations that ended", [tasks] {
    tasks->prepared = absl::StatusOr<PreparedRound>();
    tasks->requirements = {};
  });
}

}  // namespace sheaf
