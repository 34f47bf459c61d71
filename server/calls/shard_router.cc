#include "server/calls/shard_router.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/checksum.h"
#include "base/retry_hint.h"
#include "base/status_macros.h"
#include "server/core/requests/names.h"

namespace sheaf {
namespace {

// All servers hear of a new shard within a tenth of a second.
constexpr absl::Duration kAskAgainAfter = absl::Milliseconds(100);
// Some 150 bytes each.
constexpr size_t kBroadcastsMax = 20'000;
// More than a database places.
constexpr size_t kPlacedMax = 20'000;

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

// Between whom the pool's threads are shared.
std::string ClientOf(const ForwardedCaller& caller) {
  return caller.identity->name.empty() ? std::string(caller.connection) : caller.identity->name;
}

bool Contains(const std::vector<Shard>& shards, Shard shard) {
  return std::find(shards.begin(), shards.end(), shard) != shards.end();
}

}  // namespace

void ShardRouter::Add(Shard shard, Forwarder& store) {
  MutexLock lock(mutex_);
  const bool is_new = stores_.emplace(shard, &store).second;
  SHEAF_CHECK(is_new, "shard {} is there already", shard);
}

void ShardRouter::SetDirectory(ShardDirectory& directory, CallPool& pool, Core& core) {
  MutexLock lock(mutex_);
  asked_ = {.directory = &directory, .pool = &pool, .core = &core};
}

ShardRouter::Asked ShardRouter::asked() const {
  MutexLock lock(mutex_);
  return asked_;
}

void ShardRouter::SetPlacement(const std::map<std::string, Shard>& placed, bool is_anew) {
  MutexLock lock(mutex_);
  if (is_anew) placed_.clear();
  for (const auto& [population, shard] : placed) placed_[population] = shard;
}

bool ShardRouter::is_here() const {
  MutexLock lock(mutex_);
  const auto home = stores_.find(kHomeShard);
  return home != stores_.end() && home->second->is_here();
}

std::optional<Shard> ShardRouter::Find(const Subject& subject) const {
  if (asked_.directory == nullptr) return kHomeShard;
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
      // Of what no file can have as its digest the first says so.
      if (stores_.size() > 1 && IsSha256Hex(std::string(subject.name))) return std::nullopt;
      return kHomeShard;
  }
  return kHomeShard;
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
    pool = asked_.pool;
    shard = Find(subject);
    // It may have been deleted since it was there.
    if (stores_.size() > 1 && !BroadcastOf(request).empty()) shard.reset();
    if (!shard) is_abandoned_.emplace(call, false);
  }
  if (shard) return ForwardTo(*shard, call, method, caller, request, response, std::move(done));
  const Asking asking = {.id = call,
                         .method = &method,
                         .caller = std::make_shared<const KeptCaller>(caller),
                         .request = &request,
                         .response = response,
                         .done = std::move(done)};
  pool->Run(ClientOf(caller), CallPool::Length::kShort, [this, subject, asking] { AskAndForward(asking, subject); });
}

absl::Status ShardRouter::MayAsk(const Asking& asking, const Subject& subject, Core& core) {
  const Identity& caller = *asking.caller->get().identity;
  RETURN_IF_ERROR(caller.CheckRole(asking.method->name, asking.method->traits.roles));
  if (!subject.may_be_first) return absl::OkStatus();
  RETURN_IF_ERROR(ValidateName("population", subject.name));
  return asking.method->check_scope(*asking.request, caller, core);
}

void ShardRouter::AskAndForward(const Asking& asking, const Subject& subject) {
  if (absl::Status status = MayAsk(asking, subject, *asked().core); !status.ok()) {
    {
      MutexLock lock(mutex_);
      is_abandoned_.erase(asking.id);
    }
    return asking.done(std::move(status));
  }
  if (subject.kind == Subject::kBroadcast) {
    Readers readers = {.digest = std::string(subject.name)};
    {
      MutexLock lock(mutex_);
      is_abandoned_.erase(asking.id);
      const auto found = broadcasts_.find(readers.digest);
      if (found != broadcasts_.end()) readers.untried = found->second;
    }
    return ForwardToReaders(asking, std::move(readers));
  }
  const absl::StatusOr<Shard> shard = Prepare(asking, subject);
  bool is_abandoned = false;
  {
    MutexLock lock(mutex_);
    is_abandoned = is_abandoned_[asking.id];
    is_abandoned_.erase(asking.id);
  }
  if (!shard.ok()) return asking.done(shard.status());
  if (is_abandoned) return asking.done(absl::CancelledError("the caller has gone"));
  ForwardTo(*shard, asking.id, *asking.method, asking.caller->get(), *asking.request, asking.response, asking.done);
}

absl::StatusOr<Shard> ShardRouter::Prepare(const Asking& asking, const Subject& subject) {
  std::optional<Shard> shard;
  {
    MutexLock lock(mutex_);
    shard = Find(subject);
  }
  if (!shard) {
    ASSIGN_OR_RETURN(shard, asked().directory->Place(std::string(subject.name)));
    MutexLock lock(mutex_);
    if (placed_.size() < kPlacedMax) placed_[std::string(subject.name)] = *shard;
  }
  const std::string broadcast(BroadcastOf(*asking.request));
  if (IsSha256Hex(broadcast)) RETURN_IF_ERROR(PutBroadcast(broadcast, *shard));
  return *shard;
}

// --- Broadcasts -----------------------------------------------------------------------------------------------------

absl::StatusOr<std::vector<Shard>> ShardRouter::LookForBroadcast(const std::string& digest) {
  ASSIGN_OR_RETURN(std::vector<Shard> shards, asked().directory->FindBlob(digest));
  MutexLock lock(mutex_);
  if (broadcasts_.size() >= kBroadcastsMax) broadcasts_.clear();
  shards.empty() ? static_cast<void>(broadcasts_.erase(digest)) : static_cast<void>(broadcasts_[digest] = shards);
  return shards;
}

absl::Status ShardRouter::PutBroadcast(const std::string& digest, Shard shard) {
  ASSIGN_OR_RETURN(const std::vector<Shard> shards, LookForBroadcast(digest));
  if (Contains(shards, shard)) return absl::OkStatus();
  for (const Shard from : shards) {
    const absl::Status copied = asked().directory->CopyBlob(digest, from, shard);
    // It was deleted there just now.
    if (absl::IsNotFound(copied)) continue;
    if (copied.ok()) {
      MutexLock lock(mutex_);
      broadcasts_.erase(digest);
    }
    return copied;
  }
  // The shard says that there is none.
  return absl::OkStatus();
}

void ShardRouter::ForwardToReaders(const Asking& asking, Readers readers) {
  if (readers.untried.empty() && !readers.is_fresh) {
    const absl::StatusOr<std::vector<Shard>> shards = LookForBroadcast(readers.digest);
    if (!shards.ok()) return asking.done(shards.status());
    readers.is_fresh = true;
    for (const Shard shard : *shards) {
      if (!Contains(readers.tried, shard)) readers.untried.push_back(shard);
    }
  }
  if (readers.untried.empty()) {
    if (!readers.refusal.ok()) {
      // Whoever asks next may be one of the readers of another shard.
      {
        MutexLock lock(mutex_);
        broadcasts_.erase(readers.digest);
      }
      return asking.done(readers.refusal);
    }
    // Nobody has it: the first says so.
    readers.untried.push_back(kHomeShard);
  }
  const Shard next = readers.untried.front();
  readers.untried.erase(readers.untried.begin());
  readers.tried.push_back(next);
  ForwardTo(next, asking.id, *asking.method, asking.caller->get(), *asking.request, asking.response,
            [this, asking, readers = std::move(readers)](absl::Status status) mutable {
              if (!IsNotHere(status)) return asking.done(std::move(status));
              readers.refusal = std::move(status);
              const ForwardedCaller& caller = asking.caller->get();
              asked().pool->Run(ClientOf(caller), CallPool::Length::kShort,
                                [this, asking, readers = std::move(readers)] {
                                  asking.response->Clear();
                                  ForwardToReaders(asking, readers);
                                });
            });
}

// --------------------------------------------------------------------------------------------------------------------

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
    if (const auto asking = is_abandoned_.find(call); asking != is_abandoned_.end()) {
      asking->second = true;
      return;
    }
    const auto elsewhere = calls_.find(call);
    store = stores_.at(elsewhere == calls_.end() ? kHomeShard : elsewhere->second);
  }
  store->Abandon(call, method, caller);
}

}  // namespace sheaf
