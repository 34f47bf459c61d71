#include "worker/relay/relayed_spec.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "absl/time/time.h"
#include "base/checksum.h"
#include "base/status_macros.h"
#include "proto/time.h"

namespace sheaf {
namespace {

// The round below ends this much earlier than the attempt, so that what it has can still be handed in.
constexpr double kDeadlineShare = 0.9;

absl::Status SetWork(const v1::Lease& lease, const RelayOptions& options, v1::RoundSpec& spec) {
  if (options.slots > 0) {
    v1::OpenSlots& open = *spec.mutable_open_slots();
    open.set_count(static_cast<int32_t>(options.slots));
    open.mutable_task()->set_payload(lease.payload());
    open.mutable_task()->set_data_selector(lease.data_selector());
    spec.set_goal(open.count());
    return absl::OkStatus();
  }
  if (!spec.mutable_listed()->ParseFromString(lease.payload()) || spec.listed().tasks().empty()) {
    return absl::InvalidArgumentError(
        fmt::format("the payload of task {} lists no tasks for a relay to pass on: make it a serialised ListedTasks, "
                    "or start the relay with --relay-slots",
                    lease.task()));
  }
  spec.set_goal(spec.listed().tasks_size());
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<v1::RoundSpec> RelayedSpec(const v1::Lease& lease, const RelayOptions& options) {
  v1::RoundSpec spec;
  RETURN_IF_ERROR(SetWork(lease, options, spec));
  spec.set_population(options.population);
  spec.set_job(lease.round());
  *spec.mutable_computation() = lease.computation();
  *spec.mutable_aggregate() = lease.aggregate();
  spec.set_min_goal(std::max(1, static_cast<int32_t>(std::ceil(options.min_share * spec.goal()))));
  // A server of 0.1 does not say it: the server below has a default.
  if (const absl::Duration whole = FromProto(lease.attempt_deadline()); whole > absl::ZeroDuration()) {
    *spec.mutable_deadline() = ToProto(whole * kDeadlineShare);
  }
  spec.set_min_clients(options.min_clients);
  spec.set_priority(lease.priority());
  // Nor this. The round above may be EPHEMERAL: then nothing of it is written down below, either.
  spec.set_durability(lease.durability() == v1::DURABILITY_UNSPECIFIED ? v1::EPHEMERAL : lease.durability());
  spec.set_broadcast_digest(lease.broadcast_digest());
  spec.set_release(v1::PARTIAL_AGGREGATE);
  return spec;
}

std::string RelayedRequestId(const v1::Lease& lease) {
  // The token is a secret between worker and server above.
  constexpr size_t kCharacters = 40;
  return "relay-" + Sha256Hex("relayed under " + lease.lease_token()).substr(0, kCharacters);
}

}  // namespace sheaf
