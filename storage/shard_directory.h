// ShardDirectory: in which shard what is, for whoever has a call and looks for the store that it is about.
//
//   ASSIGN_OR_RETURN(const Shard shard, shards_of_it.Place("phones"));
//   ASSIGN_OR_RETURN(const std::vector<Shard> shards, shards_of_it.FindBlob(digest));
//
// Thread-safe. Each asks a database, and takes as long.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "storage/shard.h"

namespace sheaf {

class ShardDirectory {
 public:
  virtual ~ShardDirectory() = default;

  // Where the population's rounds are to be: where it was placed before, or else in the shard that has fewest.
  virtual absl::StatusOr<Shard> Place(const std::string& population) = 0;
  // In which shards the blob is, in their order.
  virtual absl::StatusOr<std::vector<Shard>> FindBlob(const std::string& digest) = 0;
  // Into a shard that lacks it; OK if it has it. NOT_FOUND if it is no longer there. O(its bytes).
  virtual absl::Status CopyBlob(const std::string& digest, Shard from, Shard to) = 0;
};

}  // namespace sheaf
