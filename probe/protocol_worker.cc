#include "probe/protocol_worker.h"

#include <algorithm>
#include <charconv>
#include <utility>

#include "base/retry_hint.h"
#include "base/version.h"
#include "probe/one_hot.h"
#include "proto/time.h"

namespace sheaf {
namespace {

constexpr absl::Duration kPauseFirst = absl::Milliseconds(20);
constexpr absl::Duration kPauseMax = absl::Milliseconds(500);
// A server that is busy with others still answers within this.
constexpr absl::Duration kAnswerTime = absl::Seconds(2);

bool IsRefusal(const absl::Status& status) {
  return absl::IsInvalidArgument(status) || absl::IsPermissionDenied(status) || absl::IsUnauthenticated(status) ||
         absl::IsUnimplemented(status) || absl::IsFailedPrecondition(status);
}

}  // namespace

absl::Time ProtocolWorker::Step(absl::Time now) {
  DropLapsed(now);
  const bool is_waiting = open_call_ != 0;
  const bool may_send = !is_waiting || is_open_call_parked_;
  // What it holds is renewed three times per lease.
  const absl::Time renewal = last_sent_ + options_.lease / 3;
  const bool is_renewal_due = !held_.empty() && now >= renewal;
  if (may_send && now >= next_call_ && (!is_waiting || HasResult(now) || is_renewal_due)) Send(now);
  absl::Time next = held_.empty() ? absl::InfiniteFuture() : last_sent_ + options_.lease / 3;
  if (open_call_ == 0) next = std::min(next, next_call_);
  for (const auto& [token, held] : held_) {
    if (held.done_time > now) next = std::min(next, held.done_time);
  }
  return std::max(next, next_call_);
}

bool ProtocolWorker::HasResult(absl::Time now) const {
  return std::any_of(held_.begin(), held_.end(),
                     [&](const auto& entry) { return entry.second.done_time <= now && entry.second.result_call == 0; });
}

int ProtocolWorker::NumUnfinished(absl::Time now) const {
  return static_cast<int>(
      std::count_if(held_.begin(), held_.end(), [&](const auto& entry) { return entry.second.done_time > now; }));
}

void ProtocolWorker::DropLapsed(absl::Time now) {
  // A result is offered for another lease: whether it is too late the server decides.
  std::erase_if(held_, [&](const auto& entry) {
    const Held& held = entry.second;
    return now >= held.expire_time + (held.done_time <= now ? options_.lease : absl::ZeroDuration());
  });
}

void ProtocolWorker::Send(absl::Time now) {
  v1::SyncRequest request;
  // It needs nothing of later ones, and 0.1 refuses whoever speaks them.
  request.set_protocol_version(kProtocolVersionMin);
  request.set_worker(options_.name);
  request.set_population(options_.population);
  request.set_software_version("sheaf server selftest");
  v1::OfferedComputation& offer = *request.add_computations();
  offer.set_name(kSelftestComputation);
  offer.set_version(1);
  open_call_ = ++last_call_;
  for (auto& [token, held] : held_) {
    if (held.done_time > now || held.result_call != 0) {
      v1::HeldLease& lease = *request.add_held();
      lease.set_task(held.lease.task());
      lease.set_lease_token(token);
      lease.set_progress(++progress_);
      continue;
    }
    held.result_call = open_call_;
    int64_t index = 0;
    const std::string& payload = held.lease.payload();
    std::from_chars(payload.data(), payload.data() + payload.size(), index);
    v1::TaskResult& result = *request.add_results();
    result.set_task(held.lease.task());
    result.set_lease_token(token);
    const absl::StatusOr<v1::Contribution> contribution =
        OneHotContribution(OneHotAggregate(options_.num_tasks), index, OneHotForm::kAlone);
    if (contribution.ok()) {
      result.set_contribution(contribution->SerializeAsString());
    } else {
      result.mutable_failure()->set_message(std::string(contribution.status().message()));
    }
  }
  const absl::Duration wait = options_.lease / 4;
  if (const int want = options_.concurrency - NumUnfinished(now); want > 0) {
    // Both ways to hear again of a lease whose answer was lost.
    if (num_silences_ == 0 || random_.Chance(0.5)) poll_id_ = random_.Token(16);
    request.set_poll_id(poll_id_);
    request.set_want(want);
    *request.mutable_wait() = ToProto(wait);
  }
  last_sent_ = now;
  is_open_call_parked_ = request.want() > 0;
  Call(transport_, kSync, request, {.timeout = wait + kAnswerTime},
       [this, &queue = queue_, generation = generation_, current = *generation_, call = open_call_,
        sent = now](absl::StatusOr<v1::SyncResponse> answer) {
         queue.Post([this, generation, current, call, sent, answer = std::move(answer)](absl::Time when) mutable {
           if (*generation == current) OnAnswer(std::move(answer), call, sent, when);
         });
       });
}

void ProtocolWorker::OnAnswer(absl::StatusOr<v1::SyncResponse> answer, int64_t call, absl::Time sent, absl::Time now) {
  const bool is_newest = call == open_call_;
  if (is_newest) open_call_ = 0;
  for (auto& [token, held] : held_) {
    if (held.result_call == call) held.result_call = 0;
  }
  if (!answer.ok()) {
    if (IsRefusal(answer.status())) observer_.OnRefused(answer.status());
    if (is_newest) OnSilence(answer.status(), now);
    return;
  }
  if (is_newest) {
    if (num_silences_ > 0) observer_.OnRecovered(now - first_silence_);
    num_silences_ = 0;
    const absl::Duration soonest = FromProto(answer->next_min());
    const absl::Duration latest = std::max(soonest, FromProto(answer->next_max()));
    next_call_ = now + (latest > soonest ? random_.Between(soonest, latest) : soonest);
  }
  for (const v1::ResultVerdict& verdict : answer->verdicts()) {
    held_.erase(verdict.lease_token());
    finished_.insert(verdict.lease_token());
  }
  for (const v1::LeaseUpdate& update : answer->held()) {
    const auto held = held_.find(update.lease_token());
    if (held == held_.end()) continue;
    if (update.verdict() == v1::LeaseUpdate::HELD) {
      held->second.expire_time = sent + FromProto(update.remaining());
    } else if (held->second.done_time > now) {
      // Of a finished one the verdict on its result decides.
      held_.erase(held);
    }
  }
  for (const v1::Lease& lease : answer->leases()) Take(lease, sent, now);
}

void ProtocolWorker::OnSilence(const absl::Status& status, absl::Time now) {
  if (num_silences_++ == 0) first_silence_ = now;
  const absl::Duration bound = std::min(kPauseMax, kPauseFirst * (int64_t{1} << std::min(num_silences_, 10)));
  next_call_ = now + PauseAfter(status, bound, random_);
}

void ProtocolWorker::Take(const v1::Lease& lease, absl::Time sent, absl::Time now) {
  const absl::Time expire_time = sent + FromProto(lease.remaining());
  if (finished_.contains(lease.lease_token()) || expire_time <= now) return;
  const auto [held, is_new] = held_.try_emplace(lease.lease_token());
  held->second.expire_time = expire_time;
  if (!is_new) return;
  held->second.lease = lease;
  held->second.done_time = now + DrawWork();
  observer_.OnLease(lease, now);
}

absl::Duration ProtocolWorker::DrawWork() {
  const double kind = random_.Fraction();
  if (kind < 0.7) return random_.Between(absl::ZeroDuration(), options_.lease / 4);
  if (kind < 0.95) return random_.Between(options_.lease / 4, options_.lease);
  // Lives on renewals.
  return random_.Between(options_.lease, 2 * options_.lease);
}

void ProtocolWorker::Vanish(absl::Time now, std::string new_name) {
  for (const auto& [token, held] : held_) observer_.OnAbandoned(held.lease.task(), token, now);
  ++*generation_;
  held_.clear();
  poll_id_.clear();
  open_call_ = 0;
  num_silences_ = 0;
  last_sent_ = next_call_ = absl::InfinitePast();
  options_.name = std::move(new_name);
}

}  // namespace sheaf
