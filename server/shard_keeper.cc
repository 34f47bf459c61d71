#include "server/shard_keeper.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/log.h"
#include "base/status_macros.h"
#include "server/net/batch_scheduling.h"
#include "storage/postgres/postgres_heartbeat.h"

namespace sheaf {
namespace {

constexpr absl::Duration kLookInterval = absl::Milliseconds(100);
// As soon as that another server revokes a token.
constexpr absl::Duration kTokenLook = absl::Seconds(1);
// A shard that was given away is for others to take, as long as they may need for that; and what could not be served is
// tried again.
constexpr absl::Duration kRestAfterGiving = absl::Seconds(2);
constexpr absl::Duration kRestAfterFailing = absl::Seconds(5);
// Open calls of a store that is given away: those that wait are answered at once.
constexpr absl::Duration kGrace = absl::Seconds(10);
// How long whoever stops looks for the new owners, to whom calls that wait can still go.
constexpr absl::Duration kFarewell = absl::Seconds(1);

}  // namespace

absl::StatusOr<std::unique_ptr<ShardKeeper>> ShardKeeper::Start(SharedServer& server, const Clock& clock,
                                                                Options options) {
  ASSIGN_OR_RETURN(auto shards, PostgresShards::Open(options.database, options.name, options.takeover_after));
  std::unique_ptr<ShardKeeper> keeper(new ShardKeeper(server, clock, std::move(options), std::move(shards)));
  // Before the first call that asks for a population: what is placed is known.
  server.SetDirectory(*keeper->shards_);
  RETURN_IF_ERROR(keeper->Look());
  keeper->thread_ = std::thread([&keeper = *keeper] { keeper.Run(); });
  return keeper;
}

ShardKeeper::~ShardKeeper() { Stop(); }

void ShardKeeper::Run() {
  for (;;) {
    {
      MutexLock lock(mutex_);
      if (!is_stopping_) stop_.WaitFor(mutex_, kLookInterval);
      if (is_stopping_) return;
    }
    absl::Status looked = Look();
    if (!looked.ok() && looked != last_look_) {
      LogWarning("what shards there are is not known now: {}", std::string(looked.message()));
    }
    last_look_ = std::move(looked);
  }
}

void ShardKeeper::Stop() {
  if (!thread_.joinable()) return;
  {
    MutexLock lock(mutex_);
    is_stopping_ = true;
    stop_.NotifyAll();
  }
  thread_.join();
  jobs_.WaitUntilIdle(clock_, absl::InfiniteDuration());
  bool has_given = false;
  for (const auto& [shard, kept] : kept_) {
    if (!kept->owned) continue;
    has_given = true;
    Do(*kept, [this](Kept& given) { Give(given); });
  }
  jobs_.WaitUntilIdle(clock_, absl::InfiniteDuration());
  if (!has_given) return;
  for (const absl::Time end = clock_.Now() + kFarewell; clock_.Now() < end;) {
    const absl::StatusOr<PostgresShards::View> view = shards_->Look();
    if (!view.ok() || view->servers.size() <= 1) return;
    HearOfOwners(*view);
    if (std::all_of(kept_.begin(), kept_.end(), [](const auto& entry) { return entry.second->is_elsewhere; })) return;
    MutexLock lock(mutex_);
    stop_.WaitFor(mutex_, kLookInterval / 4);
  }
}

absl::Status ShardKeeper::Look() {
  if (clock_.Now() >= next_token_look_) {
    next_token_look_ = clock_.Now() + kTokenLook;
    LookAtTokens();
  }
  ASSIGN_OR_RETURN(const PostgresShards::View view, shards_->Look());
  for (const PostgresShards::ShardView& shard : view.shards) {
    if (shard.shard != kHomeShard) Keep(shard.shard);
  }
  // After the stores are there to which calls then go.
  HearOfPlacement(view.placed);
  HearOfOwners(view);
  Balance(view);
  return absl::OkStatus();
}

void ShardKeeper::LookAtTokens() {
  if (token_watch_ == nullptr) {
    auto watch = PostgresTokenWatch::Open(options_.database);
    if (!watch.ok()) return;
    token_watch_ = *std::move(watch);
  }
  // While the database does not serve they are what they were.
  auto changed = token_watch_->Look();
  if (!changed.ok() || !*changed) return;
  {
    MutexLock lock(mutex_);
    tokens_ = *std::move(*changed);
  }
  for (const auto& [shard, kept] : kept_) {
    if (IsBusy(*kept) || !kept->owned) continue;
    Do(*kept, [this](Kept& told) {
      if (const absl::Status status = told.store->SetTokens(tokens()); !status.ok()) {
        LogWarning("shard {} has older tokens: {}", told.shard, std::string(status.message()));
      }
    });
  }
}

std::vector<TokenRecord> ShardKeeper::tokens() {
  MutexLock lock(mutex_);
  return tokens_;
}

void ShardKeeper::HearOfPlacement(const std::vector<PostgresShards::Placed>& placed) {
  if (placed.empty()) return;
  std::map<std::string, Shard> shards;
  for (const PostgresShards::Placed& one : placed) shards.emplace(one.population, one.shard);
  server_.router().SetPlacement(shards);
  SharedStore& home = server_.store(kHomeShard);
  if (!home.forwarder().is_here()) return;
  // They waited in the first shard for a population that nobody had seen.
  for (const auto& [population, shard] : shards) {
    if (shard != kHomeShard) home.SendAway(population);
  }
}

ShardKeeper::Kept& ShardKeeper::Keep(Shard shard) {
  std::unique_ptr<Kept>& kept = kept_[shard];
  if (kept != nullptr) return *kept;
  PostgresConnection::Options database = options_.database;
  database.schema = shards_->SchemaOf(shard);
  auto payloads = OpenWaitingPayloads(database, fmt::format("{}/shard-{}", options_.directory, shard));
  kept = std::make_unique<Kept>();
  kept->shard = shard;
  // Without payloads it moves no bytes itself.
  kept->store = &server_.AddStore(shard, payloads.ok() ? *std::move(payloads) : nullptr);
  return *kept;
}

bool ShardKeeper::IsBusy(Kept& kept) {
  MutexLock lock(mutex_);
  return kept.is_busy;
}

void ShardKeeper::Do(Kept& kept, const std::function<void(Kept&)>& job) {
  {
    MutexLock lock(mutex_);
    kept.is_busy = true;
  }
  jobs_.Run(std::to_string(kept.shard), [this, &kept, job] {
    job(kept);
    MutexLock lock(mutex_);
    kept.is_busy = false;
  });
}

void ShardKeeper::HearOfOwners(const PostgresShards::View& view) {
  for (const PostgresShards::ShardView& seen : view.shards) {
    const auto found = kept_.find(seen.shard);
    if (found == kept_.end() || IsBusy(*found->second) || found->second->owned) continue;
    Kept& kept = *found->second;
    kept.is_elsewhere = seen.owner && seen.owner->server != options_.name;
    if (kept.is_elsewhere) {
      const auto& [server, peer] = *seen.owner;
      kept.free_since = absl::InfiniteFuture();
      kept.store->SetOwner(
          {{.name = server, .address = peer.address, .certificate = peer.certificate, .secret = peer.secret}});
    } else if (kept.free_since == absl::InfiniteFuture()) {
      kept.free_since = clock_.Now();
    }
  }
}

void ShardKeeper::Balance(const PostgresShards::View& view) {
  std::map<std::string, int> num_owned;
  for (const std::string& server : view.servers) num_owned[server] = 0;
  if (!num_owned.contains(options_.name)) return;
  for (const PostgresShards::ShardView& shard : view.shards) {
    if (shard.owner && num_owned.contains(shard.owner->server)) ++num_owned[shard.owner->server];
  }
  int& own = num_owned[options_.name];
  const int fewest =
      std::min_element(num_owned.begin(), num_owned.end(), [](const auto& a, const auto& b) { return a.second < b.second; })
          ->second;
  const absl::Time now = clock_.Now();
  bool is_giving = false;
  for (const auto& [shard, kept] : kept_) {
    if (IsBusy(*kept)) {
      is_giving = true;
      continue;
    }
    // Those that have fewer are first.
    const absl::Time turn = kept->free_since + (own - fewest) * kLookInterval;
    if (kept->owned || kept->free_since > now || turn > now || kept->rests_until > now) continue;
    ++own;
    Do(*kept, [this](Kept& taken) { Take(taken); });
  }
  if (is_giving || own < fewest + 2) return;
  for (auto kept = kept_.rbegin(); kept != kept_.rend(); ++kept) {
    if (IsBusy(*kept->second) || !kept->second->owned) continue;
    return Do(*kept->second, [this](Kept& given) { Give(given); });
  }
}

void ShardKeeper::Take(Kept& kept) {
  const absl::Status taken = TakeAndServe(kept);
  kept.free_since = absl::InfiniteFuture();
  if (taken.ok()) {
    LogInfo("shard {} is served here", kept.shard);
    return;
  }
  kept.owned.reset();
  // Somebody else was quicker: the next look shows who.
  if (absl::IsFailedPrecondition(taken) || absl::IsUnavailable(taken)) return;
  kept.rests_until = clock_.Now() + kRestAfterFailing;
  LogError("shard {} cannot be served: {}", kept.shard, taken.ToString());
}

absl::Status ShardKeeper::TakeAndServe(Kept& kept) {
  PostgresConnection::Options database = options_.database;
  database.schema = shards_->SchemaOf(kept.shard);
  // While what lives is read.
  std::optional<PostgresHeartbeat> recovery;
  ASSIGN_OR_RETURN(PostgresStore store,
                   OpenPostgresStore({.conninfo = database.conninfo,
                                      .schema = database.schema,
                                      .directory = fmt::format("{}/shard-{}", options_.directory, kept.shard),
                                      .server = options_.name,
                                      .address = options_.address,
                                      .peer = options_.peer,
                                      .takeover_after = options_.takeover_after,
                                      .taken =
                                          [&](const PostgresOwner::Tenure& tenure) {
                                            kept.store->Hold();
                                            recovery.emplace(database, tenure, options_.beat_interval);
                                          }},
                                     kept.random));
  kept.owned = std::move(store);
  RETURN_IF_ERROR(kept.store->Serve(kept.owned->task_store(), *kept.owned->payloads, kept.random));
  return kept.store->SetTokens(tokens());
}

void ShardKeeper::Give(Kept& kept) {
  while (absl::IsDeadlineExceeded(kept.store->HandOver(kGrace))) {
    LogWarning("shard {} is to be given away, and has calls that are not answered", kept.shard);
  }
  if (const absl::Status status = kept.owned->tasks->Release(); !status.ok()) {
    LogWarning("shard {} was not given back, and is taken over later: {}", kept.shard, std::string(status.message()));
  }
  kept.owned.reset();
  kept.free_since = absl::InfiniteFuture();
  kept.rests_until = clock_.Now() + kRestAfterGiving;
  LogInfo("shard {} is given away", kept.shard);
}

}  // namespace sheaf
