// The part of WorkDesk that keeps calls waiting, and answers them.
#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "base/status_macros.h"
#include "server/core/proto_time.h"
#include "server/core/round_spec.h"
#include "server/core/work_desk.h"

namespace sheaf {

namespace {

// Of the bytes of all open requests, polls that wait may have one in so many: the rest is for those that work.
constexpr int64_t kParkedShare = 4;

}  // namespace

bool WorkDesk::HasRoomToPark(const v1::SyncRequest& request, const std::string& population) const {
  const Limits& limits = context_.limits;
  const int64_t percent = limits.population_percent_max;
  return num_parked_.Of(population) < num_parked_.Max(population, limits.parked_polls_max, percent) &&
         // In memory, with what the parser did not know and kept.
         static_cast<int64_t>(request.SpaceUsedLong()) <= limits.parked_poll_bytes_max &&
         parked_bytes_.Of(population) <
             parked_bytes_.Max(population, limits.open_request_bytes_max / kParkedShare, percent);
}

void WorkDesk::Park(const v1::SyncRequest& request, const WorkerProfile& worker, int32_t want, absl::Time now,
                    Reply<v1::SyncResponse> reply) {
  parked_.push_back({.population = worker.population,
                     .worker = worker.name,
                     .poll_id = request.poll_id(),
                     .want = want,
                     .held = {request.held().begin(), request.held().end()},
                     .caller = worker.caller,
                     .request = &request,
                     .bytes = static_cast<int64_t>(request.ByteSizeLong()),
                     .looked_at = rounds_.work_version(),
                     .arrival_time = now,
                     .until = now + std::min(FromProto(request.wait()), context_.limits.poll_wait_max),
                     .reply = std::move(reply)});
  parked_by_worker_[{worker.population, worker.name}] = std::prev(parked_.end());
  num_parked_.Add(worker.population, 1);
  parked_bytes_.Add(worker.population, parked_.back().bytes);
  parked_until_ = std::min(parked_until_, parked_.back().until);
}

WorkDesk::ParkedList::iterator WorkDesk::Unpark(ParkedList::iterator parked) {
  parked_by_worker_.erase({parked->population, parked->worker});
  num_parked_.Add(parked->population, -1);
  parked_bytes_.Add(parked->population, -parked->bytes);
  return parked_.erase(parked);
}

WorkDesk::Caller::Caller(const v1::SyncRequest& sync)
    : population(PopulationOrDefault(sync.population())), worker(sync.worker()), request(&sync) {}

void WorkDesk::Abandon(const Caller& caller) {
  const auto found = parked_by_worker_.find({caller.population, caller.worker});
  if (found == parked_by_worker_.end() || found->second->request != caller.request) return;
  const Reply<v1::SyncResponse> reply = std::move(found->second->reply);
  Unpark(found->second);
  reply(absl::CancelledError("the caller has gone"));
}

void WorkDesk::EndPollsOf(const TokenId& token) {
  for (auto it = parked_.begin(); it != parked_.end();) {
    if (it->caller->token != token) {
      ++it;
      continue;
    }
    const Reply<v1::SyncResponse> reply = std::move(it->reply);
    it = Unpark(it);
    reply(absl::UnauthenticatedError(fmt::format("token {} is no longer valid", token)));
  }
}

void WorkDesk::Supersede(const std::string& population, const WorkerName& worker) {
  const auto found = parked_by_worker_.find({population, worker});
  if (found == parked_by_worker_.end()) return;
  const WorkerProfile* profile = workers_.Find(population, worker);
  v1::SyncResponse response = profile == nullptr ? v1::SyncResponse() : EmptyResponse(*profile);
  SetPace(Pace::kSoon, response);
  const Reply<v1::SyncResponse> reply = std::move(found->second->reply);
  Unpark(found->second);
  reply(std::move(response));
}

void WorkDesk::ServeParked(absl::Time now) {
  const bool has_news = !closed_rounds_.empty() || !drain_changed_.empty() || is_draining_;
  bool may_have_work = HasLeasableWork();
  const bool is_new_work = may_have_work && served_version_ != rounds_.work_version();
  if (!has_news && !is_new_work && now < parked_until_) return;
  served_version_ = rounds_.work_version();
  parked_until_ = absl::InfiniteFuture();
  for (auto it = parked_.begin(); it != parked_.end();) {
    // Those for whose leases this batch has no room any more are looked at again in the next, which comes at once.
    if (may_have_work && lease_room_.IsBatchFull()) {
      may_have_work = false;
      served_version_ = -1;
      parked_until_ = now;
    }
    std::optional<absl::StatusOr<v1::SyncResponse>> response;
    if (MayHaveAnswer(*it, may_have_work, now)) response = TryAnswerParked(*it, may_have_work, now);
    if (!response) {
      if (served_version_ >= 0) it->looked_at = rounds_.work_version();
      parked_until_ = std::min(parked_until_, it->until);
      ++it;
      continue;
    }
    const Reply<v1::SyncResponse> reply = std::move(it->reply);
    it = Unpark(it);
    reply(*std::move(response));
    may_have_work = may_have_work && HasLeasableWork();
  }
  closed_rounds_.clear();
  drain_changed_.clear();
}

bool WorkDesk::MayHaveAnswer(const Parked& parked, bool may_have_work, absl::Time now) const {
  return parked.until <= now || is_draining_ || (may_have_work && parked.want > 0 && HasNewWork(parked)) ||
         (!closed_rounds_.empty() && !parked.held.empty()) ||
         (!drain_changed_.empty() && drain_changed_.contains({parked.population, parked.worker}));
}

bool WorkDesk::HasNewWork(const Parked& parked) const {
  if (parked.looked_at == rounds_.work_version()) return false;
  const RoundManager::ByWorkVersion* rounds = rounds_.RoundsOf(parked.population);
  return rounds != nullptr && rounds->rbegin()->first > parked.looked_at;
}

std::optional<absl::StatusOr<v1::SyncResponse>> WorkDesk::TryAnswerParked(const Parked& parked, bool may_have_work,
                                                                          absl::Time now) {
  const WorkerProfile* worker = workers_.Find(parked.population, parked.worker);
  if (worker == nullptr) return absl::StatusOr<v1::SyncResponse>(v1::SyncResponse());  // Pruned: it calls again.
  v1::SyncResponse response = EmptyResponse(*worker);
  if (may_have_work && parked.want > 0 && !is_draining_ && !worker->is_draining) {
    lease_room_.BeginAnswer();
    const absl::Status granted =
        Grant(*worker, parked.poll_id, parked.want, parked.arrival_time, now, response).status();
    if (!granted.ok()) return granted;
  }
  const bool is_cancelled = std::any_of(parked.held.begin(), parked.held.end(), [&](const v1::HeldLease& held) {
    const std::optional<TaskId> id = TaskId::Parse(held.task());
    return id && closed_rounds_.contains(id->round);
  });
  const bool is_over =
      parked.until <= now || is_draining_ || drain_changed_.contains({parked.population, parked.worker});
  if (response.leases().empty() && !is_cancelled && !is_over) return std::nullopt;
  for (const v1::HeldLease& held : parked.held) {
    absl::StatusOr<v1::LeaseUpdate> update = Update(held, *worker, parked.arrival_time, now);
    if (!update.ok()) return update.status();
    *response.add_held() = *std::move(update);
  }
  SetPace(Pace::kSoon, response);
  return response;
}

}  // namespace sheaf
