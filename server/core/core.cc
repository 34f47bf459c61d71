#include "server/core/core.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/log.h"
#include "base/status_macros.h"

namespace sheaf {
namespace {

constexpr absl::Duration kHousekeepingInterval = absl::Minutes(10);
// An upload is as old as the first look after it was last used, and goes at a look: it lives longer by two of these.
constexpr absl::Duration kUploadLookInterval = absl::Minutes(1);
// Short against leases, long against a batch.
constexpr absl::Duration kRestAfterRollback = absl::Milliseconds(200);

}  // namespace

Core::Core(TaskStore& store, PayloadStore& payloads, Executor& executor, Random& random, Options options)
    : context_{.store = store,
               .payloads = payloads,
               .executor = executor,
               .random = random,
               .parallel = options.parallel != nullptr ? *options.parallel : one_by_one_,
               .folds = options.folds != nullptr ? *options.folds : at_once_,
               .receptions = options.receptions != nullptr ? *options.receptions : at_once_,
               .limits = options.limits},
      data_directory_(std::move(options.data_directory)),
      requires_tokens_(options.requires_tokens),
      access_(context_),
      rounds_(context_),
      creations_(context_, rounds_),
      workers_(context_),
      desk_(context_, rounds_, workers_),
      watch_(context_, rounds_),
      unmet_(context_, rounds_, workers_),
      task_listing_(context_),
      retention_(context_, rounds_),
      worker_retention_(context_) {
  access_.set_on_void([this](const TokenId& token) {
    desk_.EndPollsOf(token);
    watch_.EndWaitsOf(token);
  });
  rounds_.set_on_closed([this](const RoundId& round) {
    desk_.OnRoundClosed(round);
    retention_.OnRoundClosed();
  });
}

absl::Status Core::Recover(absl::Time now) {
  start_time_ = now;
  RETURN_IF_ERROR(access_.Recover(requires_tokens_, now));
  RETURN_IF_ERROR(rounds_.Recover(now));
  if (!rounds_.live().empty()) LogInfo("live rounds that go on: {}", rounds_.live().size());
  return absl::OkStatus();
}

void Core::Tick(absl::Time now, absl::Time read_until) {
  Executor& executor = context_.executor;
  executor.NoteWork("tokens");
  access_.Tick(now);
  executor.NoteWork("deadlines of rounds");
  rounds_.Tick(now, read_until);
  executor.NoteWork("leases and polls");
  desk_.Tick(now, read_until);
  executor.NoteWork("watches");
  watch_.Tick(now);
  executor.NoteWork("retention");
  retention_.Tick(now);
  executor.NoteWork("records of workers");
  worker_retention_.Tick(now);
  if (now >= next_housekeeping_) KeepHouse(now);
  if (now >= next_upload_look_) {
    next_upload_look_ = now + kUploadLookInterval;
    context_.receptions.Run("stale uploads",
                            [&payloads = context_.payloads, now, keep = context_.limits.unreferenced_keep] {
                              payloads.DeleteStaleUploads(now, keep);
                            });
  }
}

absl::Time Core::NextTick(absl::Time /*now*/) const {
  return std::max(rest_until_, std::min({access_.NextTick(), rounds_.NextTick(), desk_.NextTick(), watch_.NextTick(),
                                         retention_.NextTick(), worker_retention_.NextTick(), next_housekeeping_,
                                         next_upload_look_}));
}

absl::Status Core::OnRollback(absl::Time now) {
  access_.OnRollback(now);
  RETURN_IF_ERROR(rounds_.OnRollback(now));
  workers_.OnRollback();
  desk_.Wake();
  rest_until_ = now + kRestAfterRollback;
  return absl::OkStatus();
}

void Core::BeginDrain(absl::Time now) {
  desk_.BeginDrain(now);
  watch_.BeginDrain(now);
  unmet_.BeginDrain(now);
  task_listing_.BeginDrain();
}

void Core::CheckpointAll(absl::Time /*now*/) { rounds_.CheckpointAll(); }

absl::StatusOr<Core::UploadAnswer> Core::AskUpload(const TaskId& id, const LeaseToken& token, int64_t size_bytes,
                                                   const Identity& caller) {
  if (!caller.OwnsLease(token.value())) return UploadAnswer::kLeaseLost;
  ASSIGN_OR_RETURN(const TaskRecord task, context_.store.GetTaskState(id));
  const LiveRound* round = rounds_.Find(id.round);
  if (round == nullptr || round->state != RoundState::kCollecting) return UploadAnswer::kNotNeeded;
  if (task.state == TaskState::kLeased && task.lease_token == token) {
    if (size_bytes <= round->spec.contribution_bytes_max()) {
      return round->spec.durability() == v1::DURABLE ? UploadAnswer::kSendToDisk : UploadAnswer::kSendToMemory;
    }
    return absl::ResourceExhaustedError(
        fmt::format("a contribution of {} bytes is over the {} that round {} takes (contribution_bytes_max); create "
                    "the round with a higher one, or send less",
                    size_bytes, round->spec.contribution_bytes_max(), round->id));
  }
  return task.state == TaskState::kSucceeded && task.lease_token == token ? UploadAnswer::kNotNeeded
                                                                          : UploadAnswer::kLeaseLost;
}

void Core::KeepHouse(absl::Time now) {
  next_housekeeping_ = now + kHousekeepingInterval;
  workers_.Prune(now);
  access_.Prune(now);
}

}  // namespace sheaf
