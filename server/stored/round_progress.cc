#include "server/stored/round_progress.h"

#include <fmt/format.h>

#include "server/stored/round.pb.h"
#include "server/stored/unreadable.h"

namespace sheaf {

std::string EncodeProgress(const RoundProgress& progress) {
  stored::v1::RoundProgress stored;
  stored.set_bytes_down(progress.bytes_down);
  stored.mutable_metrics()->insert(progress.metrics.begin(), progress.metrics.end());
  stored.set_num_speculative_wins(progress.num_speculative_wins);
  stored.mutable_run_times()->insert(progress.run_times.buckets().begin(), progress.run_times.buckets().end());
  stored.mutable_staleness()->insert(progress.staleness.begin(), progress.staleness.end());
  return stored.SerializeAsString();
}

absl::StatusOr<RoundProgress> DecodeProgress(const RoundRecord& record) {
  stored::v1::RoundProgress stored;
  if (!stored.ParseFromString(record.progress)) {
    return Unreadable(fmt::format("the progress of round {}", record.id), "it is no RoundProgress");
  }
  return RoundProgress{.bytes_down = stored.bytes_down(),
                       .metrics = Metrics(stored.metrics().begin(), stored.metrics().end()),
                       .num_speculative_wins = stored.num_speculative_wins(),
                       .run_times = RunTimes({stored.run_times().begin(), stored.run_times().end()}),
                       .staleness = {stored.staleness().begin(), stored.staleness().end()}};
}

}  // namespace sheaf
