#include "server/shared_server.h"

#include <optional>
#include <utility>

#include "base/log.h"
#include "base/status_macros.h"
#include "server/core/access/access_control.h"

namespace sheaf {

absl::StatusOr<std::unique_ptr<SharedServer>> SharedServer::Start(const std::vector<TokenRecord>& tokens,
                                                                  std::shared_ptr<PayloadStore> payloads,
                                                                  ShardDirectory* directory, const Clock& clock,
                                                                  Random& random, Runtime::Options options) {
  std::unique_ptr<SharedServer> server(new SharedServer(clock));
  RETURN_IF_ERROR(server->tokens_.BeginBatch());
  RETURN_IF_ERROR(ReplaceTokens(server->tokens_, tokens));
  RETURN_IF_ERROR(server->tokens_.CommitBatch());
  server->store_options_ = {.core = {.limits = options.limits,
                                     .data_directory = options.data_directory,
                                     .requires_tokens = options.requires_tokens},
                            .idle_max = std::exchange(options.idle_max, absl::InfiniteDuration())};
  options.forwarder = &server->router_;
  options.before_calls = [&](Runtime& runtime) {
    server->AddStore(runtime, kHomeShard, std::move(payloads));
    if (directory != nullptr) server->router_.SetDirectory(*directory, runtime.pool(), runtime.parts().core);
  };
  ASSIGN_OR_RETURN(server->runtime_,
                   Runtime::Start(server->tokens_, server->nothing_, clock, random, std::move(options)));
  return server;
}

SharedStore& SharedServer::AddStore(Runtime& runtime, Shard shard, std::shared_ptr<PayloadStore> payloads) {
  SharedStore::Options options = store_options_;
  options.core.shard = shard;
  auto store = std::make_unique<SharedStore>(runtime, std::move(payloads), clock_, options);
  SharedStore& added = *store;
  {
    MutexLock lock(mutex_);
    stores_.emplace(shard, std::move(store));
  }
  router_.Add(shard, added.forwarder());
  return added;
}

SharedStore& SharedServer::store(Shard shard) {
  MutexLock lock(mutex_);
  return *stores_.at(shard);
}

std::vector<SharedStore*> SharedServer::stores() {
  std::vector<SharedStore*> all;
  MutexLock lock(mutex_);
  for (const auto& [shard, store] : stores_) all.push_back(store.get());
  return all;
}

absl::Status SharedServer::Stop() {
  absl::Status status;
  const std::vector<SharedStore*> all = stores();
  status.Update(runtime_->Stop([&] {
    for (SharedStore* store : all) status.Update(store->BeginDrain());
  }));
  for (SharedStore* store : all) status.Update(store->Finish());
  return status;
}

SharedServer::~SharedServer() {
  if (runtime_ == nullptr) return;
  if (const absl::Status status = Stop(); !status.ok()) {
    LogWarning("the last checkpoint failed: {}", status.ToString());
  }
}

}  // namespace sheaf
