#include "server/standby.h"

#include <utility>

#include "base/status_macros.h"
#include "server/core/access/access_control.h"

namespace sheaf {

absl::StatusOr<std::unique_ptr<Standby>> Standby::Start(const std::vector<TokenRecord>& tokens,
                                                        std::shared_ptr<PayloadStore> payloads, const Clock& clock,
                                                        Random& random, Runtime::Options options) {
  std::unique_ptr<Standby> standby(new Standby());
  RETURN_IF_ERROR(standby->store_.BeginBatch());
  RETURN_IF_ERROR(ReplaceTokens(standby->store_, tokens));
  RETURN_IF_ERROR(standby->store_.CommitBatch());
  standby->shared_payloads_ = std::move(payloads);
  options.forwarding = {.owner = &standby->forwarder_, .payloads = standby->shared_payloads_.get()};
  ASSIGN_OR_RETURN(standby->runtime_,
                   Runtime::Start(standby->store_, standby->payloads_, clock, random, std::move(options)));
  return standby;
}

Standby::~Standby() { forwarder_.SetOwner(std::nullopt); }

}  // namespace sheaf
