// ReleaseSink: where a round's aggregate goes when it is released. BlobRelease makes it a blob; whatever else a round
// may release into (the state of an operator, for a server above this one) is another sink.
//
//   BlobRelease sink(payloads, background);
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

// A safetensors file, named by its digest.
class BlobRelease final : public ReleaseSink {
 public:
  // All outlive this.
  BlobRelease(PayloadStore& payloads, const Background& background) : payloads_(payloads), background_(background) {}

  // Errors also as PayloadStore::WriteBlob; CANCELLED if the process is about to end.
  void Release(FoldStrand& strand, Done done) override;
  bool Has(const v1::Aggregate& aggregate) const override { return payloads_.HasBlob(aggregate.digest()); }

 private:
  // Thread-safe.
  absl::StatusOr<v1::Aggregate> Write(const AggregateRelease& release) const;

  PayloadStore& payloads_;
  const Background& background_;
};

}  // namespace sheaf
