#include "server/calls/shard_router.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/retry_hint.h"
#include "base/status_macros.h"

namespace sheaf {
namespace {

// All servers hear of a new shard within a tenth of a second.
constexpr absl::Duration kAskAgainAfter = absl::Milliseconds(100);
// Some 150 bytes each.
constexpr size_t kBroadcastsMax = 20'000;

// Of a request that makes or opens a round: the broadcast that it names.
std::string_view BroadcastOf(const google::protobuf::Message& request) {
  if (const auto* create = dynamic_cast<const v1::CreateRoundRequest*>(&request)) {
    return create->spec().broadcast_digest();
  }
  if (const auto* open = dynamic_cast<const v1::OpenRoundRequest*>(&request)) return open->broadcast_digest();
  return {};
}

// What another shard may say otherwise.
bool IsNotHere(const absl::Status& status) { return absl::IsNotFound(status) || absl::IsPermissionDenied(status); }

}  // namespace

void ShardRouter::Add(Shard shard, Forwarder& store) {
  MutexLock lock(mutex_);
  const bool is_new = stores_.emplace(shard, &store).second;
  SHEAF_CHECK(is_new, "shard {} is there already", shard);
}

void ShardRouter::SetDirectory(ShardDirectory& directory, CallPool& pool) {
  MutexLock lock(mutex_);
  directory_ = &directory;
  pool_ = &pool;
}

void ShardRouter::SetPlacement(const std::map<std::string, Shard>& placed) {
  MutexLock lock(mutex_);
  for (const auto& [population, shard] : placed) placed_[population] = shard;
}

bool ShardRouter::is_here() const {
  MutexLock lock(mutex_);
  const auto home = stores_.find(kHomeShard);
  return home != stores_.end() && home->second->is_here();
}

std::optional<Shard> ShardRouter::Find(const Subject& subject) const {
  if (directory_ == nullptr) return kHomeShard;
  switch (subject.kind) {
    case Subject::kServer:
      return kHomeShard;
    case Subject::kNamed:
      return ShardOf(subject.name);
    case Subject::kPopulation: {
      const auto placed = placed_.find(std::string(subject.name));
      if (placed != placed_.end()) return placed->second;
      // Whoever waits for work of a population waits in the first shard, until the population is placed.
      return subject.may_be_first ? std::nullopt : std::optional(kHomeShard);
    }
    case Subject::kBroadcast:
      return stores_.size() == 1 ? std::optional(kHomeShard) : std::nullopt;
  }
  return kHomeShard;
}

bool ShardRouter::HasBroadcastIn(std::string_view digest, Shard shard) const {
  const auto found = broadcasts_.find(std::string(digest));
  return found != broadcasts_.end() && std::find(found->second.begin(), found->second.end(), shard) != found->second.end();
}

void ShardRouter::Forward(CallId call, const MethodRow& method, const ForwardedCaller& caller, const Message& request,
                          Message* response, MethodRow::Done done) {
  if (caller.forwarded_to) {
    return ForwardTo(*caller.forwarded_to, call, method, caller, request, response, std::move(done));
  }
  const Subject subject = method.about(request);
  std::optional<Shard> shard;
  CallPool* pool = nullptr;
  {
    MutexLock lock(mutex_);
    pool = pool_;
    shard = Find(subject);
    if (shard && stores_.size() > 1) {
      const std::string_view broadcast = BroadcastOf(request);
      if (!broadcast.empty() && !HasBroadcastIn(broadcast, *shard)) shard.reset();
    }
  }
  if (shard) return ForwardTo(*shard, call, method, caller, request, response, std::move(done));
  pool->Run(caller.identity->name, CallPool::Length::kShort,
            [this, subject,
             asking = Asking{.id = call,
                             .method = &method,
                             .caller = std::make_shared<const KeptCaller>(caller),
                             .request = &request,
                             .response = response,
                             .done = std::move(done)}]() mutable { AskAndForward(std::move(asking), subject); });
}

void ShardRouter::AskAndForward(Asking asking, const Subject& subject) {
  ShardDirectory* directory = nullptr;
  std::optional<Shard> shard;
  {
    MutexLock lock(mutex_);
    directory = directory_;
    shard = Find(subject);
  }
  if (subject.kind == Subject::kBroadcast) {
    absl::StatusOr<std::vector<Shard>> shards = FindBroadcast(std::string(subject.name));
    if (!shards.ok()) return asking.done(shards.status());
    return ForwardToReaders(asking, *std::move(shards));
  }
  if (!shard) {
    const absl::StatusOr<Shard> placed = directory->Place(std::string(subject.name));
    if (!placed.ok()) return asking.done(placed.status());
    shard = *placed;
    MutexLock lock(mutex_);
    placed_[std::string(subject.name)] = *placed;
  }
  if (const std::string broadcast(BroadcastOf(*asking.request)); !broadcast.empty()) {
    if (absl::Status status = PutBroadcast(broadcast, *shard); !status.ok()) return asking.done(std::move(status));
  }
  ForwardTo(*shard, asking.id, *asking.method, asking.caller->get(), *asking.request, asking.response, asking.done);
}

absl::StatusOr<std::vector<Shard>> ShardRouter::FindBroadcast(const std::string& digest) {
  ShardDirectory* directory = nullptr;
  {
    MutexLock lock(mutex_);
    directory = directory_;
    const auto found = broadcasts_.find(digest);
    if (found != broadcasts_.end()) return found->second;
  }
  ASSIGN_OR_RETURN(std::vector<Shard> shards, directory->FindBlob(digest));
  if (shards.empty()) return shards;
  MutexLock lock(mutex_);
  if (broadcasts_.size() >= kBroadcastsMax) broadcasts_.clear();
  broadcasts_[digest] = shards;
  return shards;
}

absl::Status ShardRouter::PutBroadcast(const std::string& digest, Shard shard) {
  ShardDirectory* directory = nullptr;
  {
    MutexLock lock(mutex_);
    directory = directory_;
    // It may have been put elsewhere since.
    broadcasts_.erase(digest);
  }
  ASSIGN_OR_RETURN(const std::vector<Shard> shards, FindBroadcast(digest));
  // The shard says that there is none.
  if (shards.empty() || std::find(shards.begin(), shards.end(), shard) != shards.end()) return absl::OkStatus();
  const absl::Status copied = directory->CopyBlob(digest, shards.front(), shard);
  MutexLock lock(mutex_);
  broadcasts_.erase(digest);
  return absl::IsNotFound(copied) ? absl::OkStatus() : copied;
}

void ShardRouter::ForwardToReaders(const Asking& asking, std::vector<Shard> shards) {
  // Nobody has it: the first says so.
  const Shard next = shards.empty() ? kHomeShard : shards.front();
  if (!shards.empty()) shards.erase(shards.begin());
  ForwardTo(next, asking.id, *asking.method, asking.caller->get(), *asking.request, asking.response,
            [this, asking, shards = std::move(shards)](absl::Status status) {
              if (shards.empty() || !IsNotHere(status)) {
                if (IsNotHere(status)) {
                  MutexLock lock(mutex_);
                  broadcasts_.erase(std::string(asking.method->about(*asking.request).name));
                }
                return asking.done(std::move(status));
              }
              asking.response->Clear();
              CallPool* pool = nullptr;
              {
                MutexLock lock(mutex_);
                pool = pool_;
              }
              pool->Run(asking.caller->get().identity->name, asking.method->traits.length,
                        [this, asking, shards] { ForwardToReaders(asking, shards); });
            });
}

void ShardRouter::ForwardTo(Shard shard, CallId call, const MethodRow& method, const ForwardedCaller& caller,
                            const Message& request, Message* response, MethodRow::Done done) {
  Forwarder* store = nullptr;
  {
    MutexLock lock(mutex_);
    const auto found = stores_.find(shard);
    if (found != stores_.end()) store = found->second;
    if (store != nullptr && shard != kHomeShard) calls_.emplace(call, shard);
  }
  if (store == nullptr) {
    return done(WithRetryAfter(
        absl::UnavailableError(fmt::format("this server has not heard of shard {} yet; try again", shard)),
        kAskAgainAfter));
  }
  if (shard == kHomeShard) return store->Forward(call, method, caller, request, response, std::move(done));
  store->Forward(call, method, caller, request, response, [this, call, done = std::move(done)](absl::Status status) {
    {
      MutexLock lock(mutex_);
      calls_.erase(call);
    }
    done(std::move(status));
  });
}

void ShardRouter::Abandon(CallId call, const MethodRow& method, const Identity& caller) {
  Forwarder* store = nullptr;
  {
    MutexLock lock(mutex_);
    const auto elsewhere = calls_.find(call);
    store = stores_.at(elsewhere == calls_.end() ? kHomeShard : elsewhere->second);
  }
  store->Abandon(call, method, caller);
}

}  // namespace sheaf
