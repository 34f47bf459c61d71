#include "server/shared_store.h"

#include <fmt/format.h>

#include <utility>

#include "base/status_macros.h"
#include "server/core/access/access_control.h"

namespace sheaf {

SharedStore::SharedStore(Runtime& front, std::shared_ptr<PayloadStore> payloads, const Clock& clock,
                         const Options& options)
    : front_(front),
      clock_(clock),
      options_(options),
      shared_payloads_(std::move(payloads)),
      owner_(options.core.shard),
      router_(shared_payloads_ == nullptr
                  ? static_cast<Forwarder&>(owner_)
                  : transfers_.emplace(owner_, *shared_payloads_, front.parts().methods, front.parts().dispatcher,
                                       front.parts().core.limits(), clock),
              front.pool()) {}

void SharedStore::SetOwner(std::optional<GrpcForwarder::Owner> owner) {
  owner_.SetOwner(std::move(owner));
  router_.SendOn();
}

void SharedStore::Hold() {
  router_.Hold();
  owner_.SetOwner(std::nullopt);
}

absl::Status SharedStore::Serve(TaskStore& store, PayloadStore& payloads, Random& random) {
  auto served = std::make_unique<Served>(store, payloads, random, clock_, front_, options_);
  RETURN_IF_ERROR(served->parts.core.Recover(clock_.Now()));
  {
    MutexLock lock(served_mutex_);
    served_ = std::move(served);
  }
  is_finished_ = false;
  served_->threads.core.Start(served_->parts.runner, served_->parts.core);
  front_.ShowStore(served_->parts, served_->threads, store, payloads);
  if (options_.core.shard == kHomeShard) {
    // The store itself says who may call, and so at once.
    front_.parts().pipeline.SetAccess(served_->parts.core.access());
  }
  router_.Serve(served_->parts.methods, served_->parts.dispatcher);
  return absl::OkStatus();
}

absl::Status SharedStore::SetTokens(const std::vector<TokenRecord>& tokens) {
  absl::Status status;
  RETURN_IF_ERROR(served_->threads.core.RunInBatch([&](absl::Time now) {
    status = ReplaceTokens(served_->store, tokens);
    if (status.ok()) status = served_->parts.core.access().Reload(now);
  }));
  return status;
}

void SharedStore::SendAway(const std::string& population) {
  MutexLock lock(served_mutex_);
  if (served_ == nullptr) return;
  Core& core = served_->parts.core;
  served_->threads.core.Post([&core, population](absl::Time now) { core.polls().EndThoseOf(population, now); });
}

absl::Status SharedStore::HandOver(absl::Duration grace) {
  router_.Hold();
  front_.HideStore(options_.core.shard);
  absl::Status status = BeginDrain();
  if (!router_.WaitUntilNoneHere(clock_, grace)) {
    return absl::DeadlineExceededError(fmt::format("shard {} has calls that are not answered", options_.core.shard));
  }
  if (options_.core.shard == kHomeShard) status.Update(GiveAccessBack());
  status.Update(Finish());
  std::unique_ptr<Served> gone;
  {
    MutexLock lock(served_mutex_);
    gone = std::move(served_);
  }
  return status;
}

absl::Status SharedStore::GiveAccessBack() {
  absl::StatusOr<std::vector<TokenRecord>> tokens = absl::UnknownError("not read yet");
  absl::Status status = served_->threads.core.RunInBatch([&](absl::Time) { tokens = ReadTokens(served_->store); });
  status.Update(tokens.status());
  // Otherwise they are what they were before this server had the store.
  if (status.ok()) status = front_.SetTokens(*tokens);
  front_.parts().pipeline.SetAccess(front_.parts().core.access());
  return status;
}

absl::Status SharedStore::BeginDrain() {
  if (served_ != nullptr) return served_->threads.BeginDrain(served_->parts.core);
  SetOwner(std::nullopt);
  return absl::OkStatus();
}

absl::Status SharedStore::Finish() {
  if (served_ == nullptr || std::exchange(is_finished_, true)) return absl::OkStatus();
  return served_->threads.Finish(served_->parts.core);
}

}  // namespace sheaf
