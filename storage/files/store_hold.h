// StoreHold and HoldGate: how one process looks at a store in peace while a server works on it.
//
//   ASSIGN_OR_RETURN(auto hold, StoreHold::Take(directory));   // A backup: now nothing that it needs goes away.
//
//   if (gate.Enter()) {                                        // The server: else it deletes later.
//     const absl::Status deleted = files.Unlink(path);
//     gate.Leave();
//     return deleted;
//   }
//
// An advisory lock on "<directory>/HOLD". While it is held the server goes on accepting and folding, but neither writes
// its log back into the database nor deletes payloads: both only put off. The kernel releases it when its holder ends,
// however it ends.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "base/mutex.h"

namespace sheaf {

class StoreHold {
 public:
  // Waits until the server is not in the middle of deleting, and until no other process has the hold. NOT_FOUND,
  // PERMISSION_DENIED. A store that no server has opened yet has no such file and needs no hold.
  static absl::StatusOr<std::unique_ptr<StoreHold>> Take(const std::string& directory);
  ~StoreHold();
  StoreHold(const StoreHold&) = delete;
  StoreHold& operator=(const StoreHold&) = delete;

 private:
  explicit StoreHold(int descriptor) : descriptor_(descriptor) {}
  const int descriptor_;
};

// Thread-safe; entries may nest.
class HoldGate {
 public:
  static absl::StatusOr<std::unique_ptr<HoldGate>> Open(const std::string& directory);
  ~HoldGate();
  HoldGate(const HoldGate&) = delete;
  HoldGate& operator=(const HoldGate&) = delete;

  // False if somebody holds the store; never waits.
  bool Enter() EXCLUDES(mutex_);
  void Leave() EXCLUDES(mutex_);

 private:
  explicit HoldGate(int descriptor) : descriptor_(descriptor) {}

  const int descriptor_;
  Mutex mutex_;
  int num_inside_ GUARDED_BY(mutex_) = 0;
};

}  // namespace sheaf
