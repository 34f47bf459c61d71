#include "server/core/rounds/round_timing.h"

#include <algorithm>

#include "proto/time.h"
#include "server/core/limits/fixed_limits.h"
#include "sheaf/v1/aggregation.pb.h"

namespace sheaf {
namespace {

void Add(absl::Duration by, absl::Duration& sum) { sum += std::max(by, absl::ZeroDuration()); }

// A round's tasks times this stay within 64 bits.
constexpr int64_t kBytesDownMax = int64_t{1} << 45;

google::protobuf::Duration Plausible(const google::protobuf::Duration& duration) {
  return ToProto(std::clamp(FromProto(duration), absl::ZeroDuration(), kRoundTimeMax));
}

}  // namespace

v1::AttemptTimings Plausible(const v1::AttemptTimings& timings) {
  v1::AttemptTimings plausible;
  if (timings.has_download()) *plausible.mutable_download() = Plausible(timings.download());
  if (timings.has_prepare()) *plausible.mutable_prepare() = Plausible(timings.prepare());
  if (timings.has_compute()) *plausible.mutable_compute() = Plausible(timings.compute());
  if (timings.has_upload()) *plausible.mutable_upload() = Plausible(timings.upload());
  plausible.set_bytes_down(std::clamp<int64_t>(timings.bytes_down(), 0, kBytesDownMax));
  return plausible;
}

void AddAttempt(const TaskRecord& task, const v1::AttemptTimings& timings, const v1::Contribution& contribution,
                int64_t num_clients, absl::Time accept_time, RoundProgress& progress) {
  const absl::Duration wall = accept_time - task.lease_time;
  const absl::Duration download = FromProto(timings.download());
  const absl::Duration prepare = FromProto(timings.prepare());
  const absl::Duration compute = FromProto(timings.compute());
  Add(task.lease_time - task.available_time, progress.wait);
  Add(download, progress.download);
  Add(prepare, progress.prepare);
  Add(compute, progress.compute);
  Add(wall - download - prepare - compute, progress.upload);
  progress.bytes_down += timings.bytes_down();
  for (const auto& [name, value] : contribution.metrics()) {
    progress.metrics[name] += value * static_cast<double>(num_clients);
  }
}

v1::RoundPhases SplitPhases(const RoundProgress& progress, const RoundInstants& instants) {
  const absl::Duration parts[] = {progress.wait, progress.download, progress.prepare, progress.compute,
                                  progress.upload};
  absl::Duration total;
  for (const absl::Duration part : parts) total += part;

  v1::RoundPhases phases;
  google::protobuf::Duration* filled[] = {phases.mutable_wait(), phases.mutable_download(), phases.mutable_prepare(),
                                          phases.mutable_compute(), phases.mutable_upload()};
  absl::Duration left = std::max(instants.accepted - instants.created, absl::ZeroDuration());
  const absl::Duration collecting = left;
  for (int i = 4; i > 0 && total > absl::ZeroDuration(); --i) {
    const absl::Duration share = collecting * absl::FDivDuration(parts[i], total);
    *filled[i] = ToProto(share);
    left -= FromProto(*filled[i]);
  }
  *filled[0] = ToProto(left);  // The rest, so that nothing is lost to rounding.
  *phases.mutable_fold() = ToProto(instants.folded - instants.accepted);
  *phases.mutable_commit() = ToProto(instants.ended - instants.folded);
  return phases;
}

}  // namespace sheaf
