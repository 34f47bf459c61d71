#include "server/stored/round_progress.h"

#include <fmt/format.h>

#include "proto/time.h"
#include "server/stored/round.pb.h"
#include "server/stored/unreadable.h"

namespace sheaf {

std::string EncodeProgress(const RoundProgress& progress) {
  stored::v1::RoundProgress stored;
  stored::v1::RoundPhases& phases = *stored.mutable_phases();
  *phases.mutable_wait() = ToProto(progress.wait);
  *phases.mutable_download() = ToProto(progress.download);
  *phases.mutable_prepare() = ToProto(progress.prepare);
  *phases.mutable_compute() = ToProto(progress.compute);
  *phases.mutable_upload() = ToProto(progress.upload);
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
  return RoundProgress{.wait = FromProto(phases.wait()),
                       .download = FromProto(phases.download()),
                       .prepare = FromProto(phases.prepare()),
                       .compute = FromProto(phases.compute()),
                       .upload = FromProto(phases.upload()),
                       .bytes_down = stored.bytes_down(),
                       .metrics = Metrics(stored.metrics().begin(), stored.metrics().end())};
}

}  // namespace sheaf
