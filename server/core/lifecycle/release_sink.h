// ReleaseSink: what a round releases is written as, and where to. ValuesRelease makes the results a blob;
// PartialAggregateRelease does so with the operators' states, for a server above this one.
//
//   ValuesRelease sink(payloads, background);
//   sink.Release(round.strand, [](const absl::StatusOr<v1::Aggregate>& released, absl::Time) {
//     if (released.ok()) LogInfo("released {}", released->digest());
//   });
//   const bool is_still_there = sink.Has(aggregate);
//
// A release may be asked for again, after an error or a crash: it then is the same, to the bit. The core's.
#pragma once

#include <functional>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/byte_sink.h"
#include "server/core/batches/background.h"
#include "server/core/rounds/fold_strand.h"
#include "sheaf/v1/round.pb.h"
#include "storage/payload_store.h"

namespace sheaf {

class ReleaseSink {
 public:
  // In an event of the core. OUT_OF_RANGE if it can never be released: a sum does not fit. After any other error it is
  // tried again.
  using Done = std::function<void(absl::StatusOr<v1::Aggregate> aggregate, absl::Time now)>;

  virtual ~ReleaseSink() = default;
  // Has what the strand's accumulator contains written, beside the core and behind all folds that were asked for.
  // `done` hears what it is.
  virtual void Release(FoldStrand& strand, Done done) = 0;
  // What was written is still there.
  virtual bool Has(const v1::Aggregate& aggregate) const = 0;
};

// A blob, named by its digest. Errors of releases also as PayloadStore::WriteBlob; CANCELLED if the process is about to
// end.
class BlobRelease : public ReleaseSink {
 public:
  // All outlive this.
  BlobRelease(PayloadStore& payloads, const Background& background) : payloads_(payloads), background_(background) {}

  bool Has(const v1::Aggregate& aggregate) const override { return payloads_.HasBlob(aggregate.digest()); }

 protected:
  // With digest and size. Thread-safe.
  absl::StatusOr<v1::Aggregate> Write(const std::function<absl::Status(const ByteSink& take)>& write) const;

 private:
  PayloadStore& payloads_;
  const Background& background_;
};

// A safetensors file.
class ValuesRelease final : public BlobRelease {
 public:
  using BlobRelease::BlobRelease;
  void Release(FoldStrand& strand, Done done) override;
};

// A serialised v1::Contribution (RoundAccumulator::PartialAggregate).
class PartialAggregateRelease final : public BlobRelease {
 public:
  using BlobRelease::BlobRelease;
  void Release(FoldStrand& strand, Done done) override;
};

}  // namespace sheaf
