#include "server/stored/round_progress.h"

#include <fmt/format.h>

#include "server/stored/round.pb.h"
#include "server/stored/unreadable.h"

namespace sheaf {
namespace {

void Put(absl::Duration duration, google::protobuf::Duration& stored) {
  stored.set_seconds(absl::IDivDuration(duration, absl::Seconds(1), &duration));
  stored.set_nanos(static_cast<int32_t>(absl::ToInt64Nanoseconds(duration)));
}

absl::Duration Get(const google::protobuf::Duration& stored) {
  return absl::Seconds(stored.seconds()) + absl::Nanoseconds(stored.nanos());
}

}  // namespace

std::string EncodeProgress(const RoundProgress& progress) {
  stored::v1::RoundProgress stored;
  stored::v1::RoundPhases& phases = *stored.mutable_phases();
  Put(progress.wait, *phases.mutable_wait());
  Put(progress.download, *phases.mutable_download());
  Put(progress.prepare, *phases.mutable_prepare());
  Put(progress.compute, *phases.mutable_compute());
  Put(progress.upload, *phases.mutable_upload());
  stored.set_bytes_down(progress.bytes_down);
  stored.mutable_metrics()->insert(progress.metrics.begin(), progress.metrics.end());
  return stored.SerializeAsString();
}

absl::StatusOr<RoundProgress> DecodeProgress(const RoundRecord& record) {
  stored::v1::RoundProgress stored;
  if (!stored.ParseFromString(record.progress)) {
    return Unreadable(fmt::format("the progress of round {}", record.id), "it is no RoundProgress");
  }
  const stored::v1::RoundPhases& phases = stored.phases();
  return RoundProgress{.wait = Get(phases.wait()),
                       .download = Get(phases.download()),
                       .prepare = Get(phases.prepare()),
                       .compute = Get(phases.compute()),
                       .upload = Get(phases.upload()),
                       .bytes_down = stored.bytes_down(),
                       .metrics = Metrics(stored.metrics().begin(), stored.metrics().end())};
}

}  // namespace sheaf
