// CrashPoint: where the server's power fails. Both store decorators pass it before and after each operation; at the
// n-th passage it throws, and the simulated server, which catches that, is gone.
//
//   point.Arm(17);
//   point.PassBefore(StoreOperation::kCommitBatch);   // 16 times nothing, then ServerCrash.
#pragma once

#include <cstdint>
#include <optional>

#include "tests/simulation/statistics.h"
#include "tests/simulation/store_operation.h"

namespace sheaf::simulation {

// Not a std::exception: nobody but the simulated server may catch it.
struct ServerCrash {};

class CrashPoint {
 public:
  // `statistics` outlives the point.
  explicit CrashPoint(Statistics& statistics) : statistics_(statistics) {}

  // 0 disarms.
  void Arm(int64_t passages) { left_ = passages; }
  // Besides: at the next passage before, or after, this operation. However rare it is, some crash falls there.
  void Aim(StoreOperation operation, bool is_after) { aim_ = {operation, is_after}; }
  void Disarm() {
    left_ = 0;
    aim_.reset();
  }
  bool is_armed() const { return left_ > 0; }
  int64_t num_passages() const { return num_passages_; }

  void PassBefore(StoreOperation operation) {
    Statistics::Passages& passages = statistics_.OfOperation(operation);
    ++passages.count;
    Pass({operation, false}, passages.crashes_before);
  }
  void PassAfter(StoreOperation operation) {
    Pass({operation, true}, statistics_.OfOperation(operation).crashes_after);
  }

  // While it is, every commit answers RESOURCE_EXHAUSTED,
  bool disk_is_full = false;
  // and so does everything that writes payloads.
  bool payload_disk_is_full = false;

 private:
  struct Place {
    StoreOperation operation;
    bool is_after;
    friend bool operator==(const Place&, const Place&) = default;
  };

  void Pass(Place place, int64_t& crashes) {
    ++num_passages_;
    const bool is_last = left_ > 0 && --left_ == 0;
    if (!is_last && aim_ != place) return;
    Disarm();
    ++crashes;
    throw ServerCrash();
  }

  Statistics& statistics_;
  int64_t left_ = 0;
  std::optional<Place> aim_;
  int64_t num_passages_ = 0;
};

}  // namespace sheaf::simulation
