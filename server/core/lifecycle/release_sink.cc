#include "server/core/lifecycle/release_sink.h"

#include <cstdint>
#include <string_view>
#include <utility>

#include "aggregation/wire/safetensors.h"
#include "base/status_macros.h"

namespace sheaf {

absl::StatusOr<v1::Aggregate> BlobRelease::Write(const std::function<absl::Status(const ByteSink& take)>& write) const {
  v1::Aggregate aggregate;
  int64_t size_bytes = 0;
  ASSIGN_OR_RETURN(*aggregate.mutable_digest(), payloads_.WriteBlob([&](const ByteSink& take) {
    const ByteSink take_or_stop = UnlessStopping(background_, take);
    return write([&](std::string_view piece) {
      size_bytes += static_cast<int64_t>(piece.size());
      return take_or_stop(piece);
    });
  }));
  aggregate.set_size_bytes(size_bytes);
  return aggregate;
}

void ValuesRelease::Release(FoldStrand& strand, Done done) {
  const auto write = [this](const AggregateRelease& release) -> absl::StatusOr<v1::Aggregate> {
    ASSIGN_OR_RETURN(v1::Aggregate aggregate,
                     Write([&](const ByteSink& take) { return WriteSafetensors(release.tensors, {}, take); }));
    aggregate.set_num_contributions(release.num_contributions);
    aggregate.set_num_clients(release.num_clients);
    for (const v1::OutputSummary& output : release.outputs) *aggregate.add_outputs() = output;
    for (const v1::FoldCounters& fold : release.folds) *aggregate.add_folds() = fold;
    return aggregate;
  };
  strand.Release<v1::Aggregate>(write, std::move(done));
}

void PartialAggregateRelease::Release(FoldStrand& strand, Done done) {
  const auto write = [this](const RoundAccumulator& sum) -> absl::StatusOr<v1::Aggregate> {
    ASSIGN_OR_RETURN(v1::Aggregate aggregate,
                     Write([&](const ByteSink& take) { return sum.WritePartialAggregate(take); }));
    aggregate.set_num_contributions(sum.num_contributions());
    aggregate.set_num_clients(sum.num_clients());
    return aggregate;
  };
  strand.Do<absl::StatusOr<v1::Aggregate>>(write, std::move(done));
}

}  // namespace sheaf
