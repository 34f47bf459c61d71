// Refusal: why a contribution is not taken, in two texts. Its worker is told all: the message may quote a key, a
// position or a value. Everybody else, and the store, gets the kind of error and the output it is in, and nothing that
// came from the contribution.
//
//   const absl::Status status =
//       RefusedAs(RefusalKind::kNonFinite, "w", absl::InvalidArgumentError("output 'w': w[patient-4711] is NaN"));
//   const Refusal refusal = RefusalOf(status);
//   const std::string& for_its_worker = refusal.told;         // "output 'w': w[patient-4711] is NaN"
//   const std::string for_everybody = refusal.Summary();      // "output 'w': a value is not finite"
//
// The kind travels inside the status, beside its message, so a refusal that nobody gave a kind says nothing of its
// contribution.
#pragma once

#include <string>
#include <string_view>

#include "absl/status/status.h"

namespace sheaf {

// The texts are in refusal.cc.
enum class RefusalKind {
  kUnspecified,
  kNotParsed,
  kTooLarge,
  kTooManyParts,
  kTooManyEntries,
  kMetrics,
  kRoundFull,
  kUpload,
  kUploadUnfinished,
  kUploadUnknown,
  kUnknownOutput,
  kRepeatedOutput,
  kMissingOutput,
  kWrongOperand,
  kMixedOperands,
  kWeight,
  kNumClients,
  kState,
  kStale,
  kDType,
  kShape,
  kNumBytes,
  kIndex,
  kNonFinite,
  kTooManyRows,
  kKeyType,
  kKeyLength,
};

struct Refusal {
  // For the worker that made the contribution, and nobody else.
  std::string told;
  RefusalKind kind = RefusalKind::kUnspecified;
  // As the round's spec names it; empty if the error is in none.
  std::string output;

  // For everybody, and for the store.
  std::string Summary() const;
};

// `status`, which is not OK, with its kind. `output` is a name of the round's spec, never one of the contribution.
absl::Status RefusedAs(RefusalKind kind, std::string_view output, absl::Status status);

// What `status`, which is not OK, says. Of the kind kUnspecified unless RefusedAs gave it one.
Refusal RefusalOf(const absl::Status& status);

}  // namespace sheaf
