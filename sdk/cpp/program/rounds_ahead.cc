#include "sdk/cpp/program/rounds_ahead.h"

#include <algorithm>
#include <utility>

#include "base/status_macros.h"
#include "proto/time.h"
#include "sdk/cpp/client/blob_client.h"
#include "sdk/cpp/client/round_client.h"

namespace sheaf {
namespace {

// What a server takes a deadline to be that nobody has set, and the longest that it takes.
constexpr absl::Duration kDeadlineDefault = absl::Hours(1);
constexpr absl::Duration kDeadlineMax = absl::Hours(24 * 365);

// It waits for the end of as many rounds as there are ahead of it, each of which may take until its own deadline.
absl::Duration AnnounceDeadline(const v1::RoundSpec& spec, int ahead) {
  const absl::Duration deadline = spec.has_deadline() ? FromProto(spec.deadline()) : kDeadlineDefault;
  return std::min((ahead + 1) * deadline, kDeadlineMax);
}

}  // namespace

RoundsAhead::~RoundsAhead() {
  for (const BegunRound& begun : announced_) {
    const absl::Status cancelled =
        CancelRound(server_.transport, server_.random, begun.round.id(), "its program ended before opening it");
    // One may have failed by itself. If the server is gone for one, it is for all.
    if (!cancelled.ok() && !absl::IsFailedPrecondition(cancelled)) return;
  }
}

absl::StatusOr<BegunRound> RoundsAhead::Open() {
  // Before it opens: it may have its goal then, and what runs of it goes on in the next.
  if (options_.buffered) RETURN_IF_ERROR(Announce(std::max(options_.ahead, 1) + 1));
  const absl::Time start = server_.clock.Now();
  number_ = announced_.empty() ? num_planned_ + 1 : announced_.front().number;
  BegunRound begun;
  if (announced_.empty()) {
    ASSIGN_OR_RETURN(begun, Plan(number_));
    ASSIGN_OR_RETURN(begun.plan.broadcast, options_.broadcast(number_));
    RETURN_IF_ERROR(Create(begun));
  } else {
    ASSIGN_OR_RETURN(std::string broadcast, options_.broadcast(number_));
    ASSIGN_OR_RETURN(v1::Round round,
                     OpenRound(server_.transport, server_.random, announced_.front().round.id(), broadcast));
    begun = std::move(announced_.front());
    announced_.pop_front();
    begun.plan.broadcast = std::move(broadcast);
    begun.round = std::move(round);
  }
  begun.took += server_.clock.Now() - start;
  return begun;
}

absl::Status RoundsAhead::Announce() { return Announce(options_.ahead); }

absl::Status RoundsAhead::Announce(int ahead) {
  while (static_cast<int>(announced_.size()) < ahead && num_planned_ < options_.rounds) {
    const absl::Time start = server_.clock.Now();
    number_ = num_planned_ + 1;
    ASSIGN_OR_RETURN(BegunRound begun, Plan(number_));
    v1::RoundSpec spec = begun.plan.spec;
    if (!spec.has_announce_deadline()) {
      *spec.mutable_announce_deadline() = ToProto(AnnounceDeadline(spec, ahead));
    }
    if (options_.buffered) {
      if (!newest_.empty()) spec.set_continues(newest_);
      // The first continues none, unless its program says so.
      if (spec.continues().empty()) spec.clear_staleness();
    }
    ASSIGN_OR_RETURN(begun.round, AnnounceRound(server_.transport, server_.random, std::move(spec)));
    begun.took = server_.clock.Now() - start;
    newest_ = begun.round.id();
    announced_.push_back(std::move(begun));
  }
  return absl::OkStatus();
}

absl::StatusOr<BegunRound> RoundsAhead::Plan(int number) {
  BegunRound begun{.number = number};
  ASSIGN_OR_RETURN(begun.plan.spec, options_.plan(number));
  num_planned_ = number;
  return begun;
}

absl::Status RoundsAhead::Create(BegunRound& begun) {
  v1::RoundSpec spec = begun.plan.spec;
  if (!begun.plan.broadcast.empty()) {
    ASSIGN_OR_RETURN(*spec.mutable_broadcast_digest(),
                     UploadBlob(server_.transport, server_.random, begun.plan.broadcast));
  }
  ASSIGN_OR_RETURN(begun.round, CreateRound(server_.transport, server_.random.Token(16), spec));
  return absl::OkStatus();
}

}  // namespace sheaf
