#include "server/shard_keeper.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/log.h"
#include "base/status_macros.h"
#include "storage/postgres/postgres_heartbeat.h"

namespace sheaf {
namespace {

constexpr absl::Duration kLookInterval = absl::Milliseconds(100);
// As soon as that another server revokes a token.
constexpr absl::Duration kTokenLook = absl::Seconds(1);
// Before what others have deleted is looked for.
constexpr absl::Duration kPayloadLook = absl::Minutes(1);
// All servers have heard of a placement, and nobody comes to the first shard for it any more.
constexpr absl::Duration kHeardOfWithin = absl::Seconds(2);
// A shard that was given away is for others to take, as long as they may need for that; and what could not be served is
// tried again.
constexpr absl::Duration kRestAfterGiving = absl::Seconds(2);
constexpr absl::Duration kRestAfterFailing = absl::Seconds(5);
// One that nobody else could serve stays for so long; twice as long each time.
constexpr absl::Duration kStay = absl::Seconds(10);
constexpr int kStayDoublingsMax = 6;
// Open calls of a store that is given away: those that wait are answered at once.
constexpr absl::Duration kGrace = absl::Seconds(10);
// How long whoever stops looks for the new owners, to whom calls that wait can still go.
constexpr absl::Duration kFarewell = absl::Seconds(1);
// Of payloads, in each shard: there are many shards.
constexpr int kConnections = 2;

}  // namespace

ShardKeeper::ShardKeeper(SharedServer& server, PostgresShards& shards, const PostgresShards::View& view,
                         const Clock& clock, Options options)
    : server_(server),
      shards_(shards),
      clock_(clock),
      options_(std::move(options)),
      next_payload_look_(clock.Now() + kPayloadLook) {
  LookAtTokens();
  Hear(view);
  thread_ = std::thread([this] { Run(); });
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
      LogWarning("whose the shards are is not known now: {}", std::string(looked.message()));
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
    Do(*kept, [this](Kept& given) {
      if (!Give(given, kGrace)) LogWarning("shard {} is taken over later: its calls are not answered", given.shard);
    });
  }
  jobs_.WaitUntilIdle(clock_, absl::InfiniteDuration());
  for (const absl::Time end = clock_.Now() + kFarewell; has_given && clock_.Now() < end;) {
    const absl::StatusOr<PostgresShards::View> view = shards_.Look();
    if (!view.ok() || view->servers.size() <= 1) return;
    HearOfOwners(*view);
    has_given = !std::all_of(kept_.begin(), kept_.end(),
                             [](const auto& entry) { return entry.second->is_elsewhere || entry.second->owned; });
    MutexLock lock(mutex_);
    if (has_given) stop_.WaitFor(mutex_, kLookInterval / 4);
  }
}

// --- Looking --------------------------------------------------------------------------------------------------------

absl::Status ShardKeeper::Look() {
  if (clock_.Now() >= next_token_look_) LookAtTokens();
  if (clock_.Now() >= next_payload_look_) LookAtPayloads();
  ASSIGN_OR_RETURN(const PostgresShards::View view, shards_.Look());
  Hear(view);
  return absl::OkStatus();
}

void ShardKeeper::Hear(const PostgresShards::View& view) {
  for (const PostgresShards::ShardView& shard : view.shards) {
    if (shard.shard != kHomeShard) Keep(shard.shard);
  }
  // After the stores are there to which calls then go.
  HearOfPlacement(view);
  HearOfOwners(view);
  Balance(view);
}

void ShardKeeper::LookAtTokens() {
  next_token_look_ = clock_.Now() + kTokenLook;
  if (token_watch_ == nullptr) {
    auto watch = PostgresTokenWatch::Open(options_.database);
    if (!watch.ok()) return;
    token_watch_ = *std::move(watch);
  }
  // While the database does not serve they are what they were.
  auto changed = token_watch_->Look();
  int64_t number = 0;
  {
    MutexLock lock(mutex_);
    if (changed.ok() && *changed) {
      tokens_ = *std::move(*changed);
      ++tokens_number_;
    }
    number = tokens_number_;
  }
  for (const auto& [shard, kept] : kept_) {
    if (!IsBusy(*kept) && kept->owned && kept->tokens_number < number)
      Do(*kept, [this](Kept& told) { TellTokens(told); });
  }
}

void ShardKeeper::TellTokens(Kept& kept) {
  std::vector<TokenRecord> tokens;
  int64_t number = 0;
  {
    MutexLock lock(mutex_);
    tokens = tokens_;
    number = tokens_number_;
  }
  const absl::Status told = kept.store->SetTokens(tokens);
  if (told.ok()) kept.tokens_number = number;
  if (!told.ok()) LogWarning("shard {} has older tokens: {}", kept.shard, std::string(told.message()));
}

void ShardKeeper::LookAtPayloads() {
  next_payload_look_ = clock_.Now() + kPayloadLook;
  for (const auto& [shard, kept] : kept_) {
    if (IsBusy(*kept) || kept->owned || kept->payloads == nullptr) continue;
    Do(*kept, [](Kept& looked) { looked.payloads->DropDeleted().IgnoreError(); });
  }
}

void ShardKeeper::HearOfPlacement(const PostgresShards::View& view) {
  const absl::Time now = clock_.Now();
  std::map<std::string, Shard> placed;
  for (const PostgresShards::Placed& one : view.placed) {
    placed.emplace(one.population, one.shard);
    if (one.shard != kHomeShard && !view.is_anew) just_placed_[one.population] = now + kHeardOfWithin;
  }
  if (!placed.empty() || view.is_anew) server_.router().SetPlacement(placed, view.is_anew);
  SharedStore& home = server_.store(kHomeShard);
  for (auto population = just_placed_.begin(); population != just_placed_.end();) {
    // They wait in the first shard for a population that nobody had seen when they came.
    home.SendAway(population->first);
    population = population->second <= now ? just_placed_.erase(population) : std::next(population);
  }
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
      kept.num_returns = 0;
      kept.store->SetOwner(
          {{.name = server, .address = peer.address, .certificate = peer.certificate, .secret = peer.secret}});
    } else if (kept.free_since == absl::InfiniteFuture()) {
      kept.free_since = clock_.Now();
    }
  }
}

ShardKeeper::Kept& ShardKeeper::Keep(Shard shard) {
  std::unique_ptr<Kept>& kept = kept_[shard];
  if (kept != nullptr) return *kept;
  kept = std::make_unique<Kept>();
  kept->shard = shard;
  kept->random = options_.make_random();
  PostgresConnection::Options database = options_.database;
  database.schema = shards_.SchemaOf(shard);
  const std::string directory = fmt::format("{}/shard-{}", options_.directory, shard);
  auto payloads = OpenWaitingPayloads(database, directory, kConnections);
  if (payloads.ok()) {
    kept->payloads = *std::move(payloads);
  } else {
    LogWarning("bytes of shard {} go through its owner: {}", shard, payloads.status().ToString());
  }
  kept->store = &server_.AddStore(shard, kept->payloads);
  return *kept;
}

// --- Taking and giving ----------------------------------------------------------------------------------------------

bool ShardKeeper::IsBusy(const Kept& kept) {
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

void ShardKeeper::Balance(const PostgresShards::View& view) {
  const bool leaves_all = view.is_draining && !view.servers.empty();
  if (leaves_first_to_others_.exchange(leaves_all) != leaves_all) {
    LogInfo("{}", leaves_all ? "this server drains: others get what it has" : "this server takes stores again");
  }
  if (leaves_all) return GiveAll();
  std::map<std::string, int> num_owned;
  for (const std::string& server : view.servers) num_owned[server] = 0;
  // Where all are out of service each does what it can.
  if (view.is_draining) num_owned[options_.name] = 0;
  if (!num_owned.contains(options_.name)) return;
  for (const PostgresShards::ShardView& shard : view.shards) {
    if (shard.owner && num_owned.contains(shard.owner->server)) ++num_owned[shard.owner->server];
  }
  // What the look did not see yet.
  int& own = num_owned[options_.name];
  own = server_.store(kHomeShard).forwarder().is_here() ? 1 : 0;
  for (const auto& [shard, kept] : kept_) own += IsBusy(*kept) || kept->owned ? 1 : 0;
  int fewest = own;
  for (const auto& [server, number] : num_owned) fewest = std::min(fewest, number);
  const absl::Time now = clock_.Now();
  for (const auto& [shard, kept] : kept_) {
    if (IsBusy(*kept) || kept->owned || kept->is_elsewhere || kept->free_since > now) continue;
    last_free_ = now;
    // Those that have fewer are first.
    if (kept->free_since + (own - fewest) * kLookInterval > now || kept->rests_until > now) continue;
    ++own;
    Do(*kept, [this](Kept& taken) { Take(taken); });
  }
  if (GivesOne(view, own, fewest)) last_free_ = now;
}

void ShardKeeper::GiveAll() {
  for (const auto& [shard, kept] : kept_) {
    if (IsBusy(*kept) || !kept->owned) continue;
    Do(*kept, [this](Kept& given) { Give(given, absl::InfiniteDuration()); });
  }
}

bool ShardKeeper::GivesOne(const PostgresShards::View& view, int num_own, int fewest) {
  const absl::Time now = clock_.Now();
  // What is free, or was just now, is for those that have fewer.
  const bool is_calm =
      last_free_ + kRestAfterGiving < now &&
      std::all_of(view.shards.begin(), view.shards.end(),
                  [](const PostgresShards::ShardView& shard) { return shard.owner.has_value(); }) &&
      std::none_of(kept_.begin(), kept_.end(), [&](const auto& entry) { return IsBusy(*entry.second); });
  if (!is_calm || num_own < fewest + 2) return false;
  for (auto entry = kept_.rbegin(); entry != kept_.rend(); ++entry) {
    Kept& kept = *entry->second;
    if (!kept.owned || kept.stays_until > now) continue;
    Do(kept, [this](Kept& given) { Give(given, absl::InfiniteDuration()); });
    return true;
  }
  return false;
}

void ShardKeeper::Take(Kept& kept) {
  const absl::Status taken = TakeAndServe(kept);
  const absl::Time now = clock_.Now();
  kept.free_since = absl::InfiniteFuture();
  if (taken.ok()) {
    kept.stays_until = now + kStay * (1 << std::min(kept.num_returns++, kStayDoublingsMax));
    LogInfo("shard {} is served here", kept.shard);
    return;
  }
  // Whoever waits for it waits no longer.
  kept.store->SetOwner(std::nullopt);
  kept.owned.reset();
  // Somebody else was quicker: the next look shows who.
  if (absl::IsFailedPrecondition(taken) || absl::IsUnavailable(taken)) return;
  kept.rests_until = now + kRestAfterFailing;
  LogError("shard {} cannot be served: {}", kept.shard, taken.ToString());
}

absl::Status ShardKeeper::TakeAndServe(Kept& kept) {
  PostgresConnection::Options database = options_.database;
  database.schema = shards_.SchemaOf(kept.shard);
  PostgresConnection::Options for_beats = database;
  for_beats.timeout = options_.takeover_after;
  for_beats.lock_timeout = options_.takeover_after / 2;
  // While what lives is read.
  std::optional<PostgresHeartbeat> recovery;
  ASSIGN_OR_RETURN(PostgresStore store,
                   OpenPostgresStore({.conninfo = database.conninfo,
                                      .schema = database.schema,
                                      .directory = fmt::format("{}/shard-{}", options_.directory, kept.shard),
                                      .connections_max = kConnections,
                                      .server = options_.name,
                                      .address = options_.address,
                                      .peer = options_.peer,
                                      .takeover_after = options_.takeover_after,
                                      .taken =
                                          [&](const PostgresOwner::Tenure& tenure) {
                                            kept.store->Hold();
                                            recovery.emplace(for_beats, tenure, options_.beat_interval);
                                          }},
                                     *kept.random));
  kept.owned = std::move(store);
  RETURN_IF_ERROR(kept.store->Serve(kept.owned->task_store(), *kept.owned->payloads, *kept.random));
  TellTokens(kept);
  if (kept.payloads != nullptr) kept.payloads->DropAll();
  return absl::OkStatus();
}

bool ShardKeeper::Give(Kept& kept, absl::Duration patience) {
  const absl::Time end = clock_.Now() + patience;
  for (absl::Status given = absl::DeadlineExceededError(""); absl::IsDeadlineExceeded(given);) {
    given = kept.store->HandOver(kGrace);
    if (absl::IsDeadlineExceeded(given) && clock_.Now() >= end) return false;
    if (!given.ok()) LogWarning("shard {} is to be given away: {}", kept.shard, std::string(given.message()));
  }
  if (const absl::Status status = kept.owned->tasks->Release(); !status.ok()) {
    LogWarning("shard {} was not given back, and is taken over later: {}", kept.shard, std::string(status.message()));
  }
  kept.owned.reset();
  kept.free_since = absl::InfiniteFuture();
  kept.rests_until = clock_.Now() + kRestAfterGiving;
  LogInfo("shard {} is given away", kept.shard);
  return true;
}

}  // namespace sheaf
