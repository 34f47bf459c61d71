// InspectStore: what a store holds and how large it is, in numbers. Reads only, while a server runs too. It never looks
// into a contribution.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace sheaf {

struct StoreSummary {
  // "process 1234" if one works on it.
  std::string holder;
  int schema_version = 0;
  // Of this build.
  int newest_version = 0;
  // What is committed lies in the log until it is written back into the database.
  int64_t database_bytes = 0;
  int64_t log_bytes = 0;
  // Of the database: used again before it grows.
  int64_t num_free_pages = 0;
  int64_t page_bytes = 0;

  struct Table {
    std::string name;
    int64_t num_rows = 0;
    // With its indexes.
    int64_t num_bytes = 0;
  };
  std::vector<Table> tables;

  struct Files {
    // "blobs", "spools", "checkpoints" or "uploads".
    std::string kind;
    int64_t num_files = 0;
    int64_t num_bytes = 0;
  };
  std::vector<Files> files;

  struct Count {
    std::string state;
    int64_t number = 0;
  };
  // Every state, in the order of their numbers.
  std::vector<Count> rounds;
  std::vector<Count> tasks;
  // Infinite if there is no round.
  absl::Time oldest_round_time = absl::InfiniteFuture();
  absl::Time newest_round_time = absl::InfinitePast();
};

// `scratch` and codes as for VerifyStore; DATA_LOSS if the database cannot be read.
absl::StatusOr<StoreSummary> InspectStore(const std::string& directory, const std::string& scratch);

}  // namespace sheaf
