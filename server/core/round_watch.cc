#include "server/core/round_watch.h"

#include <algorithm>
#include <utility>

#include "base/status_macros.h"
#include "server/core/proto_time.h"
#include "server/core/views.h"
#include "storage/transitions.h"

namespace sheaf {
namespace {

constexpr absl::Duration kMoment = absl::Milliseconds(200);

absl::StatusOr<v1::GetRoundResponse> Read(TaskStore& store, const RoundId& id) {
  ASSIGN_OR_RETURN(const RoundRecord record, store.GetRound(id));
  v1::GetRoundResponse response;
  *response.mutable_round() = ToProto(record);
  return response;
}

}  // namespace

void RoundWatch::Get(const v1::GetRoundRequest& request, absl::Time now, Reply<v1::GetRoundResponse> reply) {
  absl::StatusOr<v1::GetRoundResponse> response = Read(context_.store, RoundId(request.round()));
  const absl::Duration wait = std::min(FromProto(request.wait()), context_.limits.poll_wait_max);
  if (!response.ok() || is_draining_ || wait <= absl::ZeroDuration() || request.etag() != response->round().etag() ||
      IsFinal(static_cast<RoundState>(response->round().state()))) {
    return reply(std::move(response));
  }
  waiting_.push_back({.round = RoundId(request.round()),
                      .etag = request.etag(),
                      .not_before = now + kMoment,
                      .until = now + wait,
                      .reply = std::move(reply)});
}

bool RoundWatch::IsDue(Waiting& waiting, absl::Time now) {
  const LiveRound* live = rounds_.Find(waiting.round);
  if (live == nullptr || IsFinal(live->state) || now >= waiting.until || is_draining_) return true;
  if (now < waiting.not_before) return false;
  waiting.has_passed_moment = true;
  const absl::StatusOr<RoundRecord> record = context_.store.GetRound(waiting.round);
  return !record.ok() || std::to_string(record->version) != waiting.etag;
}

void RoundWatch::Tick(absl::Time now) {
  for (auto it = waiting_.begin(); it != waiting_.end();) {
    if (!IsDue(*it, now)) {
      ++it;
      continue;
    }
    it->reply(Read(context_.store, it->round));
    it = waiting_.erase(it);
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
