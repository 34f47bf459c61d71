#include "server/core/contributions/spools.h"

#include <fmt/format.h>

#include <vector>

#include "base/log.h"
#include "base/status_macros.h"

namespace sheaf {

absl::Status Spools::CheckRoom(const LiveRound& round, int64_t size_bytes) const {
  if (!IsSpooled(round)) return absl::OkStatus();
  const Limits& limits = context_.limits;
  const PopulationShare& spooled = rounds_.spooled_bytes();
  const std::string& population = round.spec.population();
  const int64_t max = spooled.Max(population, limits.spool_bytes_max, limits.population_percent_max);
  // Its first goes as long as there is any room: one may be as large as all that is shared.
  const int64_t own_max = spooled.Of(population) == 0 ? limits.spool_bytes_max : max;
  if (spooled.total() + size_bytes <= limits.spool_bytes_max && spooled.Of(population) + size_bytes <= own_max) {
    return absl::OkStatus();
  }
  return limits.RefuseShare(
      &Limits::spool_bytes_max,
      fmt::format(
          "contributions that no checkpoint covers yet take {} bytes of disk, {} of them of population '{}', and "
          "{} more would be over",
          spooled.total(), spooled.Of(population), population, size_bytes));
}

void Spools::Drop(LiveRound& round) {
  if (round.spool_disk_bytes == 0) return;
  const absl::StatusOr<int64_t> segment = context_.payloads.RollSpool(round.id);
  if (!segment.ok()) {
    LogWarning("what was not accepted stays in the spool of round {}: {}", round.id, segment.status().ToString());
    return;
  }
  const int64_t dropped_bytes = round.spool_disk_bytes;
  rounds_.CountSpooled(round, -dropped_bytes);
  round.strand.Do<absl::Status>(
      [&payloads = context_.payloads, id = round.id, through = *segment](RoundAccumulator&) {
        return payloads.DeleteSpoolSegments(id, through);
      },
      [this, id = round.id, dropped_bytes](const absl::Status& deleted, absl::Time) {
        LiveRound* live = rounds_.Find(id);
        if (deleted.ok() || live == nullptr) return;
        rounds_.CountSpooled(*live, dropped_bytes);
        LogWarning("what was not accepted stays in the spool of round {}: {}", id, deleted.ToString());
      });
}

absl::Status Spools::DeleteCovered(const RoundRecord& record) const {
  // The first contribution that the checkpoint does not contain, and the segments in front of its own. Those behind a
  // checkpoint are never needed again, and what nobody needs of a contribution nobody should find on the disk.
  ASSIGN_OR_RETURN(const std::vector<ContributionRecord> first,
                   context_.store.ListContributions(record.id, record.checkpoint_sequence, 1));
  // Nothing that is written from here on goes into a segment that is deleted.
  ASSIGN_OR_RETURN(const int64_t newest, context_.payloads.RollSpool(record.id));
  // Segments grow with the sequence numbers.
  const absl::Status deleted =
      context_.payloads.DeleteSpoolSegments(record.id, first.empty() ? newest : first.front().payload.segment - 1);
  if (absl::IsAborted(deleted)) return deleted;
  if (!deleted.ok()) LogWarning("a covered segment of round {} stays on disk: {}", record.id, deleted.ToString());
  return absl::OkStatus();
}

}  // namespace sheaf
