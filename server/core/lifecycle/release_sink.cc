#include "server/core/lifecycle/release_sink.h"

#include <cstdint>
#include <string_view>
#include <utility>

#include "aggregation/wire/safetensors.h"
#include "base/status_macros.h"

namespace sheaf {

void BlobRelease::Release(FoldStrand& strand, Done done) {
  strand.Release<v1::Aggregate>([this](const AggregateRelease& release) { return Write(release); }, std::move(done));
}

absl::StatusOr<v1::Aggregate> BlobRelease::Write(const AggregateRelease& release) const {
  v1::Aggregate aggregate;
  int64_t size_bytes = 0;
  ASSIGN_OR_RETURN(*aggregate.mutable_digest(), payloads_.WriteBlob([&](const ByteSink& take) {
    const ByteSink take_or_stop = UnlessStopping(background_, take);
    return WriteSafetensors(release.tensors, {}, [&](std::string_view piece) {
      size_bytes += static_cast<int64_t>(piece.size());
      return take_or_stop(piece);
    });
  }));
  aggregate.set_size_bytes(size_bytes);
  aggregate.set_num_contributions(release.num_contributions);
  aggregate.set_num_clients(release.num_clients);
  for (const v1::OutputSummary& output : release.outputs) *aggregate.add_outputs() = output;
  for (const v1::FoldCounters& fold : release.folds) *aggregate.add_folds() = fold;
  return aggregate;
}

}  // namespace sheaf
