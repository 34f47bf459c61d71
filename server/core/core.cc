#include "server/core/core.h"

#include <algorithm>
#include <utility>

#include "base/log.h"
#include "base/status_macros.h"
#include "server/core/requests/names.h"

namespace sheaf {
namespace {

constexpr absl::Duration kHousekeepingInterval = absl::Minutes(10);
// Short against leases, long against a batch.
constexpr absl::Duration kRestAfterRollback = absl::Milliseconds(200);

}  // namespace

Core::Core(TaskStore& store, PayloadStore& payloads, Executor& executor, Random& random, Options options)
    : figures_(options.watch),
      context_{.store = store,
               .payloads = payloads,
               .executor = executor,
               .random = random,
               .parallel = options.parallel != nullptr ? *options.parallel : one_by_one_,
               .folds = options.folds != nullptr ? *options.folds : at_once_,
               .receptions = options.receptions != nullptr ? *options.receptions : at_once_,
               .figures = figures_,
               .limits = options.limits,
               .shard = options.shard},
      data_directory_(std::move(options.data_directory)),
      requires_tokens_(options.requires_tokens),
      access_(context_),
      rounds_(context_.limits, figures_),
      open_blobs_(context_.payloads, context_.limits),
      broadcasts_(context_, rounds_, open_blobs_),
      inline_broadcasts_(context_, broadcasts_, open_blobs_),
      spools_(context_, rounds_),
      checkpoints_(context_, rounds_),
      fold_(context_, rounds_, checkpoints_),
      values_release_(context_.payloads, context_.folds),
      partial_aggregate_release_(context_.payloads, context_.folds),
      carry_over_(context_, rounds_, broadcasts_),
      changes_(context_, rounds_, broadcasts_),
      sealer_(context_, rounds_, carry_over_, changes_,
              {.values = values_release_, .partial_aggregate = partial_aggregate_release_}),
      closing_(context_, rounds_, changes_, sealer_),
      recovery_(context_, rounds_, broadcasts_, spools_, carry_over_, sealer_, closing_),
      new_rounds_(context_, rounds_, broadcasts_),
      creations_(context_, broadcasts_, inline_broadcasts_, new_rounds_),
      openings_(context_, rounds_, broadcasts_, inline_broadcasts_, changes_, closing_),
      workers_(context_),
      speculation_(context_, rounds_),
      attempts_(context_, rounds_, closing_, speculation_, due_),
      expiry_(context_, rounds_, attempts_, in_reception_, due_),
      renewal_(context_, rounds_, due_),
      grants_(context_, rounds_, workers_, speculation_, due_, rates_),
      polls_(context_, rounds_, workers_, grants_, renewal_),
      intake_(context_, {.rounds = rounds_,
                         .spools = spools_,
                         .checkpoints = checkpoints_,
                         .fold = fold_,
                         .closing = closing_,
                         .attempts = attempts_,
                         .speculation = speculation_,
                         .in_reception = in_reception_,
                         .due = due_}),
      sync_(context_, {.rounds = rounds_,
                       .workers = workers_,
                       .intake = intake_,
                       .grants = grants_,
                       .renewal = renewal_,
                       .polls = polls_,
                       .rates = rates_}),
      uploads_(context_, rounds_, broadcasts_),
      watch_(context_, rounds_),
      unmet_(context_, rounds_, workers_),
      task_listing_(context_),
      retention_(context_, broadcasts_),
      worker_retention_(context_) {
  // So that its counters are there, at 0, before anything happens: what goes from nothing to 5 has not risen.
  figures_.slots.Of(PopulationOrDefault(""));
  access_.set_on_void([this](const TokenId& token) {
    polls_.EndThoseOf(token);
    watch_.EndWaitsOf(token);
  });
  changes_.set_on_opened([this](const RoundId& round) { polls_.OnRoundOpened(round); });
  intake_.set_on_cancelled(
      [this](const std::string& population, const WorkerName& worker) { polls_.OnLeaseCancelled(population, worker); });
  changes_.set_on_closed([this](const RoundId& round) {
    polls_.OnRoundClosed(round);
    speculation_.OnRoundClosed(round);
    retention_.OnRoundClosed();
  });
}

absl::Status Core::Recover(absl::Time now) {
  start_time_ = now;
  RETURN_IF_ERROR(access_.Recover(requires_tokens_, now));
  RETURN_IF_ERROR(recovery_.Recover(now));
  speculation_.NoteAll();
  if (!rounds_.all().empty()) LogInfo("live rounds that go on: {}", rounds_.all().size());
  return absl::OkStatus();
}

void Core::Tick(absl::Time now, absl::Time read_until) {
  Executor& executor = context_.executor;
  executor.NoteWork("tokens");
  access_.Tick(now);
  executor.NoteWork("deadlines of rounds");
  fold_.BeginBatch();
  closing_.Tick(now, read_until);
  sealer_.Tick(now);
  broadcasts_.Tick(now);
  executor.NoteWork("leases and polls");
  expiry_.Sweep(now, read_until);
  speculation_.Tick(now);
  polls_.Tick(now);
  // It ends the batch.
  grants_.BeginBatch();
  executor.NoteWork("watches");
  watch_.Tick(now);
  executor.NoteWork("retention");
  retention_.Tick(now);
  executor.NoteWork("records of workers");
  worker_retention_.Tick(now);
  executor.NoteWork("uploads");
  uploads_.Tick(now);
  if (now >= next_housekeeping_) KeepHouse(now);
}

absl::Time Core::NextTick(absl::Time /*now*/) const {
  return std::max(rest_until_, std::min({access_.NextTick(), closing_.NextTick(), sealer_.NextTick(),
                                         broadcasts_.NextTick(), expiry_.NextSweep(), speculation_.NextTick(),
                                         polls_.NextTick(), watch_.NextTick(), retention_.NextTick(),
                                         worker_retention_.NextTick(), uploads_.NextTick(), next_housekeeping_}));
}

absl::Status Core::OnRollback(absl::Time now) {
  access_.OnRollback(now);
  RETURN_IF_ERROR(recovery_.OnRollback(now));
  speculation_.NoteAll();
  workers_.OnRollback();
  due_.AtOnce();
  rest_until_ = now + kRestAfterRollback;
  return absl::OkStatus();
}

void Core::BeginDrain(absl::Time now) {
  polls_.BeginDrain();
  watch_.BeginDrain(now);
  unmet_.BeginDrain(now);
  task_listing_.BeginDrain();
}

void Core::CheckpointAll(absl::Time /*now*/) { checkpoints_.WriteAll(); }

void Core::KeepHouse(absl::Time now) {
  next_housekeeping_ = now + kHousekeepingInterval;
  workers_.Prune(now);
  access_.Prune(now);
}

}  // namespace sheaf
