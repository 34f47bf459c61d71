#include "server/shared_server.h"

#include <utility>

#include "base/status_macros.h"
#include "server/core/access/access_control.h"

namespace sheaf {

absl::StatusOr<std::unique_ptr<SharedServer>> SharedServer::Start(const std::vector<TokenRecord>& tokens,
                                                                  std::shared_ptr<PayloadStore> payloads,
                                                                  const Clock& clock, Random& random,
                                                                  Runtime::Options options) {
  std::unique_ptr<SharedServer> server(new SharedServer());
  RETURN_IF_ERROR(server->store_.BeginBatch());
  RETURN_IF_ERROR(ReplaceTokens(server->store_, tokens));
  RETURN_IF_ERROR(server->store_.CommitBatch());
  server->shared_payloads_ = std::move(payloads);
  options.forwarding = {.owner = &server->forwarder_, .payloads = server->shared_payloads_.get()};
  ASSIGN_OR_RETURN(server->runtime_,
                   Runtime::Start(server->store_, server->payloads_, clock, random, std::move(options)));
  return server;
}

void SharedServer::Hold() {
  runtime_->Hold();
  forwarder_.SetOwner(std::nullopt);
}

absl::Status SharedServer::Stop() {
  forwarder_.SetOwner(std::nullopt);
  return runtime_->Stop();
}

SharedServer::~SharedServer() { forwarder_.SetOwner(std::nullopt); }

}  // namespace sheaf
