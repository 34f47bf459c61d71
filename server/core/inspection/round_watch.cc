#include "server/core/inspection/round_watch.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/status_macros.h"
#include "proto/time.h"
#include "server/core/inspection/views.h"
#include "storage/transitions.h"

namespace sheaf {
namespace {

// A request that is larger in memory is answered at once: those that wait count as open requests.
constexpr size_t kRequestBytesMax = 4096;
constexpr absl::Duration kMoment = absl::Milliseconds(200);

absl::StatusOr<v1::GetRoundResponse> Read(TaskQueries& queries, const RoundId& id) {
  ASSIGN_OR_RETURN(const RoundRecord record, queries.GetRound(id));
  v1::GetRoundResponse response;
  ASSIGN_OR_RETURN(*response.mutable_round(), ToProto(record));
  return response;
}

}  // namespace

void RoundWatch::Get(const v1::GetRoundRequest& request, CallId call, const IdentityPtr& caller, absl::Time now,
                     Reply<v1::GetRoundResponse> reply) {
  absl::StatusOr<v1::GetRoundResponse> response = Read(context_.store, RoundId(request.round()));
  const absl::Time until = now + std::min(FromProto(request.wait()), context_.limits.poll_wait_max);
  // A call that is made again because its batch failed keeps the time it came at: it may have waited long enough.
  const bool may_wait = until > std::max(now, newest_tick_);
  if (!response.ok() || is_draining_ || !may_wait || request.SpaceUsedLong() > kRequestBytesMax ||
      request.etag() != response->round().etag() || IsFinal(static_cast<RoundState>(response->round().state()))) {
    return reply(std::move(response));
  }
  const std::string& population = response->round().spec().population();
  const Limits& limits = context_.limits;
  if (num_waiting_.Of(population) >= num_waiting_.Max(population, limits.watches_max, limits.population_percent_max)) {
    return reply(limits.RefuseShare(
        &Limits::watches_max,
        fmt::format("{} calls wait for a round to change, {} of them in population '{}', which may have",
                    num_waiting_.total(), num_waiting_.Of(population), population)));
  }
  num_waiting_.Add(population, 1);
  context_.figures.waiting_watches.Add(1);
  waiting_.push_back({.call = call,
                      .caller = caller,
                      .round = RoundId(request.round()),
                      .population = population,
                      .etag = request.etag(),
                      .not_before = now + kMoment,
                      .until = until,
                      .reply = std::move(reply)});
}

std::list<RoundWatch::Waiting>::iterator RoundWatch::Erase(std::list<Waiting>::iterator waiting) {
  num_waiting_.Add(waiting->population, -1);
  context_.figures.waiting_watches.Add(-1);
  return waiting_.erase(waiting);
}

void RoundWatch::Abandon(CallId call) {
  const auto found =
      std::find_if(waiting_.begin(), waiting_.end(), [&](const Waiting& waiting) { return waiting.call == call; });
  if (found == waiting_.end()) return;
  const Reply<v1::GetRoundResponse> reply = std::move(found->reply);
  Erase(found);
  reply(absl::CancelledError("the caller has gone"));
}

void RoundWatch::EndWaitsOf(const TokenId& token) {
  for (auto it = waiting_.begin(); it != waiting_.end();) {
    if (it->caller->token != token) {
      ++it;
      continue;
    }
    const Reply<v1::GetRoundResponse> reply = std::move(it->reply);
    it = Erase(it);
    reply(absl::UnauthenticatedError(fmt::format("token {} is no longer valid", token)));
  }
}

bool RoundWatch::IsDue(Waiting& waiting, Versions& versions, absl::Time now) {
  const LiveRound* live = rounds_.Find(waiting.round);
  if (live == nullptr || IsFinal(live->state) || now >= waiting.until || is_draining_) return true;
  if (now < waiting.not_before) return false;
  waiting.has_passed_moment = true;
  const auto [version, is_new] = versions.try_emplace(waiting.round);
  if (is_new) {
    const absl::StatusOr<RoundRecord> record = context_.store.GetRound(waiting.round);
    // Of one that cannot be read: none, so that its watchers hear why.
    if (record.ok()) version->second = std::to_string(record->version);
  }
  return version->second != waiting.etag;
}

void RoundWatch::Tick(absl::Time now) {
  newest_tick_ = now;
  Versions versions;
  for (auto it = waiting_.begin(); it != waiting_.end();) {
    if (!IsDue(*it, versions, now)) {
      ++it;
      continue;
    }
    it->reply(Read(context_.store, it->round));
    it = Erase(it);
  }
}

absl::Time RoundWatch::NextTick() const {
  absl::Time next = absl::InfiniteFuture();
  // Past its first moment a watcher is looked at in every batch; nothing changes between batches.
  for (const Waiting& waiting : waiting_) {
    next = std::min(next, waiting.has_passed_moment ? waiting.until : waiting.not_before);
  }
  return next;
}

void RoundWatch::BeginDrain(absl::Time now) {
  is_draining_ = true;
  Tick(now);
}

}  // namespace sheaf
