#include "server/standby.h"

#include <utility>

#include "base/log.h"
#include "base/status_macros.h"
#include "server/core/access/access_control.h"

namespace sheaf {

absl::StatusOr<std::unique_ptr<Standby>> Standby::Start(const std::vector<TokenRecord>& tokens, const Clock& clock,
                                                        Random& random, Runtime::Options options) {
  std::unique_ptr<Standby> standby(new Standby());
  RETURN_IF_ERROR(standby->store_.BeginBatch());
  RETURN_IF_ERROR(ReplaceTokens(standby->store_, tokens));
  RETURN_IF_ERROR(standby->store_.CommitBatch());
  options.forwarder = &standby->forwarder_;
  ASSIGN_OR_RETURN(standby->runtime_,
                   Runtime::Start(standby->store_, standby->payloads_, clock, random, std::move(options)));
  return standby;
}

Doors Standby::Stop() {
  forwarder_.SetOwner(std::nullopt);
  Doors doors = runtime_->TakeDoors();
  if (const absl::Status status = runtime_->Stop(); !status.ok()) {
    LogWarning("the server did not stop to forward in good order: {}", status.ToString());
  }
  return doors;
}

}  // namespace sheaf
