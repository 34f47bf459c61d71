// Reception: a contribution as it came in, checked as far as that takes nothing but its bytes and its round's spec. It
// costs what the bytes cost (reading, hashing, parsing, looking at every value), so that large ones are received beside
// the core's thread.
//
//   Reception reception = Receive(payloads, limits, parallel, budget, *round.strand.validator(), bytes_max, result);
//   if (reception.refusal) LogInfo("{}", reception.refusal->told);       // The worker's fault.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "aggregation/contribution_validator.h"
#include "aggregation/refusal.h"
#include "server/core/limits/limits.h"
#include "server/core/limits/memory_budget.h"
#include "sheaf/v1/work_service.pb.h"
#include "storage/payload_store.h"

namespace sheaf {

struct Reception {
  // Of the stores, or no room for it now: nobody's fault, and nothing else is set.
  absl::Status error;
  // As the upload was found; nothing if there is none of this name. Unless it is finished it was not looked into.
  std::optional<PayloadStore::Upload> upload;
  // Why it is refused; then it is not valid.
  std::optional<Refusal> refusal;
  int64_t size_bytes = 0;
  // Of the result, if it carries them.
  std::string_view bytes;
  // SHA-256, hex.
  std::string digest;
  std::optional<ValidContribution> valid;
  // For what it takes in memory until it is folded.
  MemoryClaim claim;
};

// `result` has a contribution or the upload of one, and outlives the reception. Thread-safe, if `budget` is.
Reception Receive(PayloadStore& payloads, const Limits& limits, ParallelFor& parallel, MemoryBudget& budget,
                  const ContributionValidator& validator, int64_t contribution_bytes_max, const v1::TaskResult& result);

}  // namespace sheaf
