#include "sdk/cpp/program/rounds_ahead.h"

#include <algorithm>
#include <utility>

#include "base/checksum.h"
#include "base/status_macros.h"
#include "proto/time.h"
#include "sdk/cpp/client/round_client.h"

namespace sheaf {
namespace {

// What a server takes a deadline to be that nobody has set, and the longest that it takes.
constexpr absl::Duration kDeadlineDefault = absl::Hours(1);
constexpr absl::Duration kDeadlineMax = absl::Hours(24 * 365);

// Where a server creates a round that names no population.
constexpr char kPopulationDefault[] = "default";

// So many patches of a broadcast are sent before the next whole one, which is as many as servers take.
constexpr int kPatchesMax = 32;

// What the server says of a patch that it does not take, or whose base has gone.
bool MayTakeWhole(const absl::Status& status) {
  return absl::IsInvalidArgument(status) || absl::IsResourceExhausted(status) || absl::IsNotFound(status);
}

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
  // So that workers prepare the first, too, while its broadcast is made and sent.
  if (num_planned_ == 0) RETURN_IF_ERROR(Announce());
  const absl::Time start = server_.clock.Now();
  number_ = announced_.empty() ? num_planned_ + 1 : announced_.front().number;
  if (announced_.empty()) {
    ASSIGN_OR_RETURN(BegunRound planned, Plan(number_));
    RETURN_IF_ERROR(Begin(planned));
    planned.took = server_.clock.Now() - start;
    return planned;
  }
  // Until it is open it is one of those that end with this.
  RETURN_IF_ERROR(Begin(announced_.front()));
  BegunRound opened = std::move(announced_.front());
  announced_.pop_front();
  opened.took += server_.clock.Now() - start;
  return opened;
}

absl::Status RoundsAhead::Begin(BegunRound& begun) {
  if (options_.patch && sent_.broadcast.takes_patches && sent_.num_patches < kPatchesMax) {
    ASSIGN_OR_RETURN(std::optional<std::string> patch, options_.patch(number_, sent_.broadcast.digest));
    const int64_t patch_bytes = sent_.patch_bytes + (patch ? static_cast<int64_t>(patch->size()) : 0);
    if (patch && patch_bytes <= sent_.whole_bytes) {
      const absl::StatusOr<UploadedBroadcast> uploaded = BeginWith(begun, *patch);
      if (uploaded.ok()) {
        sent_.broadcast.digest = uploaded->digest;
        sent_.patch_bytes = patch_bytes;
        ++sent_.num_patches;
        begun.plan.broadcast = *std::move(patch);
        return absl::OkStatus();
      }
      if (!MayTakeWhole(uploaded.status())) return uploaded.status();
    }
  }
  ASSIGN_OR_RETURN(std::string whole, options_.broadcast(number_));
  ASSIGN_OR_RETURN(sent_.broadcast, BeginWith(begun, whole));
  sent_.whole_bytes = static_cast<int64_t>(whole.size());
  sent_.patch_bytes = sent_.num_patches = 0;
  begun.plan.broadcast = std::move(whole);
  return absl::OkStatus();
}

absl::StatusOr<UploadedBroadcast> RoundsAhead::BeginWith(BegunRound& begun, std::string_view broadcast) {
  const bool is_announced = !begun.round.id().empty();
  UploadedBroadcast uploaded;
  if (is_announced && static_cast<int64_t>(broadcast.size()) <= kInlineBytesMax) {
    ASSIGN_OR_RETURN(begun.round, OpenRound(server_.transport, server_.random, begun.round.id(), broadcast));
    uploaded.digest = Sha256Hex(broadcast);
    // Only uploads are told, and what the server said of one is so of the next.
    uploaded.takes_patches = !broadcast.empty() && sent_.broadcast.takes_patches;
    return uploaded;
  }
  if (!broadcast.empty()) {
    const std::string& named = begun.plan.spec.population();
    ASSIGN_OR_RETURN(uploaded, UploadBroadcast(server_.transport, server_.random, broadcast,
                                               named.empty() ? std::string(kPopulationDefault) : named));
  }
  if (is_announced) {
    ASSIGN_OR_RETURN(begun.round, OpenRoundWith(server_.transport, server_.random, begun.round.id(), uploaded.digest));
    return uploaded;
  }
  v1::RoundSpec spec = begun.plan.spec;
  spec.set_broadcast_digest(uploaded.digest);
  ASSIGN_OR_RETURN(begun.round, CreateRound(server_.transport, server_.random.Token(16), spec));
  return uploaded;
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

}  // namespace sheaf
