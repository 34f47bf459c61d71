#include "server/core/sync/parked_polls.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "base/status_macros.h"
#include "proto/time.h"
#include "server/core/sync/pace.h"
#include "server/core/sync/sync_messages.h"

namespace sheaf {
namespace {

// Of the bytes of all open requests, polls that wait may have one in so many: the rest is for those that work.
constexpr int64_t kParkedShare = 4;
// Of parked calls, so many are looked at in one batch at most: each takes some 10 us, with its answer.
constexpr int kLookedAtMax = 512;
// When the server ends, more than these come back in twice the time: a server takes some 10,000 calls a second.
constexpr size_t kBackAtOnceMax = 2000;

}  // namespace

bool ParkedPolls::HasRoomFor(const v1::SyncRequest& request, const std::string& population) const {
  const Limits& limits = context_.limits;
  const int64_t percent = limits.population_percent_max;
  return num_parked_.Of(population) < num_parked_.Max(population, limits.parked_polls_max, percent) &&
         // In memory, with what the parser did not know and kept.
         static_cast<int64_t>(request.SpaceUsedLong()) <= limits.parked_poll_bytes_max &&
         bytes_.Of(population) < bytes_.Max(population, limits.open_request_bytes_max / kParkedShare, percent);
}

void ParkedPolls::Park(const v1::SyncRequest& request, const Poll& poll, absl::Time now,
                       Reply<v1::SyncResponse> reply) {
  const WorkerProfile& worker = poll.worker;
  parked_.push_back({.population = worker.population,
                     .worker = worker.name,
                     .slot = worker.slot,
                     .poll_id = request.poll_id(),
                     .want = poll.want,
                     .want_announced = poll.want_announced,
                     .held = {request.held().begin(), request.held().end()},
                     .caller = worker.caller,
                     .call = poll.call,
                     .number = ++num_ever_parked_,
                     .bytes = static_cast<int64_t>(request.ByteSizeLong()),
                     .looked_at = rounds_.work().version(),
                     .arrival_time = now,
                     .until = now + std::min(FromProto(request.wait()), context_.limits.poll_wait_max),
                     .reply = std::move(reply)});
  const auto parked = std::prev(parked_.end());
  by_worker_[{worker.population, worker.name}] = parked;
  by_call_.emplace(poll.call, parked);
  by_until_.emplace(std::pair(parked->until, parked->number), parked);
  if (poll.want + poll.want_announced > 0)
    wanting_[worker.population].emplace(std::pair(parked->looked_at, parked->number), parked);
  for (const v1::HeldLease& held : parked->held) {
    const std::optional<TaskId> id = TaskId::Parse(held.task());
    // When it is carried over, the call is answered.
    if (id) parked->held_rounds.insert(context_.store.PlaceOf(*id).value_or(*id).round);
  }
  for (const RoundId& round : parked->held_rounds) by_held_.emplace(std::pair(round, parked->number), parked);
  num_parked_.Add(worker.population, 1);
  context_.figures.Of(worker.slot).parked_polls.Add(1);
  bytes_.Add(worker.population, parked->bytes);
}

ParkedPolls::List::iterator ParkedPolls::Unpark(List::iterator parked) {
  by_worker_.erase({parked->population, parked->worker});
  by_call_.erase(parked->call);
  by_until_.erase({parked->until, parked->number});
  if (const auto wanting = wanting_.find(parked->population); wanting != wanting_.end()) {
    wanting->second.erase({parked->looked_at, parked->number});
    if (wanting->second.empty()) wanting_.erase(wanting);
  }
  for (const RoundId& round : parked->held_rounds) by_held_.erase({round, parked->number});
  num_parked_.Add(parked->population, -1);
  context_.figures.Of(parked->slot).parked_polls.Add(-1);
  bytes_.Add(parked->population, -parked->bytes);
  return parked_.erase(parked);
}

void ParkedPolls::Abandon(CallId call) {
  const auto found = by_call_.find(call);
  if (found == by_call_.end()) return;
  const Reply<v1::SyncResponse> reply = std::move(found->second->reply);
  Unpark(found->second);
  context_.figures.polls_abandoned.Add();
  reply(absl::CancelledError("the caller has gone"));
}

void ParkedPolls::EndThoseOf(const TokenId& token) {
  void_tokens_.insert(token);
  has_more_ = true;
}

void ParkedPolls::Supersede(const std::string& population, const WorkerName& worker) {
  const auto found = by_worker_.find({population, worker});
  if (found == by_worker_.end()) return;
  const WorkerProfile* profile = workers_.Find(population, worker);
  v1::SyncResponse response =
      profile == nullptr ? v1::SyncResponse() : BeginResponse(*profile, rounds_, context_.limits);
  SetPace(is_draining_ ? drain_pace() : Pace::kSoon, response);
  const Reply<v1::SyncResponse> reply = std::move(found->second->reply);
  Unpark(found->second);
  reply(std::move(response));
}

void ParkedPolls::Tick(absl::Time now) {
  int left = kLookedAtMax;
  // Before anything is handed out.
  SendAway(left);
  TellOfRounds(now, left);
  TellOfNews(now, left);
  EndWaits(now, left);
  HandOut(now, left);
  has_more_ = left <= 0 || grants_.IsBatchFull();
}

absl::Time ParkedPolls::NextTick() const {
  if (has_more_) return absl::InfinitePast();
  return by_until_.empty() ? absl::InfiniteFuture() : by_until_.begin()->first.first;
}

void ParkedPolls::BeginDrain() {
  is_draining_ = true;
  const bool is_soon = context_.store.GetInfo().is_shared && parked_.size() <= kBackAtOnceMax;
  drain_pace_ = is_soon ? Pace::kAfterHandover : Pace::kAfterRestart;
  // The batch's tick answers them.
  has_more_ = true;
}

void ParkedPolls::EndThoseOf(const std::string& population, absl::Time now) {
  for (auto it = by_worker_.lower_bound({population, WorkerName()});
       it != by_worker_.end() && it->first.first == population; ++it) {
    auto node = by_until_.extract({it->second->until, it->second->number});
    it->second->until = node.key().first = now;
    by_until_.insert(std::move(node));
  }
}

void ParkedPolls::SendAway(int& left) {
  if (void_tokens_.empty()) return;
  for (auto it = parked_.begin(); it != parked_.end() && left > 0;) {
    if (!void_tokens_.contains(it->caller->token)) {
      ++it;
      continue;
    }
    --left;
    const TokenId token = it->caller->token;
    const Reply<v1::SyncResponse> reply = std::move(it->reply);
    it = Unpark(it);
    reply(absl::UnauthenticatedError(fmt::format("token {} is no longer valid", token)));
  }
  if (left > 0) void_tokens_.clear();
}

void ParkedPolls::TellOfRounds(absl::Time now, int& left) {
  while (!changed_rounds_.empty() && left > 0) {
    const RoundId round = *changed_rounds_.begin();
    const auto held = by_held_.lower_bound({round, 0});
    if (held == by_held_.end() || held->first.first != round) {
      changed_rounds_.erase(changed_rounds_.begin());
      continue;
    }
    --left;
    Answer(held->second, now);
  }
}

void ParkedPolls::TellOfNews(absl::Time now, int& left) {
  while (!told_.empty() && left > 0) {
    const auto found = by_worker_.find(*told_.begin());
    if (found != by_worker_.end()) {
      --left;
      Answer(found->second, now);
    }
    told_.erase(told_.begin());
  }
}

void ParkedPolls::EndWaits(absl::Time now, int& left) {
  while (!by_until_.empty() && left > 0 && (is_draining_ || by_until_.begin()->first.first <= now)) {
    --left;
    Answer(by_until_.begin()->second, now);
  }
}

void ParkedPolls::HandOut(absl::Time now, int& left) {
  if (served_version_ == rounds_.work().version() || left <= 0) return;
  const int64_t version = rounds_.work().version();
  for (auto population = wanting_.begin(); population != wanting_.end();) {
    const std::string name = population->first;
    while (population != wanting_.end() && rounds_.work().IsThereFor(name)) {
      const auto parked = population->second.begin()->second;
      if (!HasNewWork(*parked)) break;
      // Those for whose leases this batch has no room any more are looked at again in the next.
      if (left <= 0 || grants_.IsBatchFull()) return;
      --left;
      const auto key = population->second.begin()->first;
      if (!Answer(parked, now) && !grants_.IsBatchFull()) {
        parked->looked_at = version;
        auto node = population->second.extract(key);
        node.key().first = version;
        population->second.insert(std::move(node));
      }
      population = wanting_.find(name);
    }
    population = wanting_.upper_bound(name);
  }
  served_version_ = version;
}

bool ParkedPolls::Answer(List::iterator parked, absl::Time now) {
  std::optional<absl::StatusOr<v1::SyncResponse>> response =
      TryAnswer(*parked, rounds_.work().IsThereFor(parked->population), now);
  if (!response) return false;
  const bool has_leases = response->ok() && !(*response)->leases().empty();
  (has_leases ? context_.figures.polls_with_leases : context_.figures.polls_without_leases).Add();
  context_.figures.poll_wait_seconds.Observe(absl::ToDoubleSeconds(now - parked->arrival_time));
  const Reply<v1::SyncResponse> reply = std::move(parked->reply);
  Unpark(parked);
  reply(*std::move(response));
  return true;
}

bool ParkedPolls::HasNewWork(const Parked& parked) const {
  const RoundWork::Rounds* rounds = rounds_.work().In(parked.population);
  return rounds != nullptr && rounds->rbegin()->first > parked.looked_at;
}

std::optional<absl::StatusOr<v1::SyncResponse>> ParkedPolls::TryAnswer(const Parked& parked, bool may_have_work,
                                                                       absl::Time now) {
  const WorkerProfile* worker = workers_.Find(parked.population, parked.worker);
  if (worker == nullptr) return absl::StatusOr<v1::SyncResponse>(v1::SyncResponse());  // Pruned: it calls again.
  const CallTimes times{.arrival = parked.arrival_time, .now = now};
  v1::SyncResponse response = BeginResponse(*worker, rounds_, context_.limits);
  if (may_have_work && parked.want + parked.want_announced > 0 && !is_draining_ && !worker->is_draining) {
    grants_.BeginAnswer();
    const auto num_opened = std::count_if(parked.held.begin(), parked.held.end(),
                                          [this](const v1::HeldLease& held) { return renewal_.WaitsForNews(held); });
    const absl::Status granted = grants_
                                     .Grant(*worker,
                                            {.poll_id = parked.poll_id,
                                             .want = parked.want - static_cast<int32_t>(num_opened),
                                             .want_announced = parked.want_announced},
                                            times, response)
                                     .status();
    if (!granted.ok()) return granted;
  }
  const bool is_changed = std::any_of(parked.held_rounds.begin(), parked.held_rounds.end(),
                                      [&](const RoundId& round) { return changed_rounds_.contains(round); });
  const bool is_over = parked.until <= now || is_draining_ || told_.contains({parked.population, parked.worker});
  if (response.leases().empty() && !is_changed && !is_over) return std::nullopt;
  for (const v1::HeldLease& held : parked.held) {
    absl::StatusOr<v1::LeaseUpdate> update = renewal_.Renew(held, *worker, times);
    if (!update.ok()) return update.status();
    *response.add_held() = *std::move(update);
  }
  SetPace(is_draining_ ? drain_pace() : Pace::kSoon, response);
  return response;
}

}  // namespace sheaf
