// CrashPoint: where the server's power fails. Both store decorators pass it before and after each operation; at the
// n-th passage it throws, and the simulated server, which catches that, is gone.
//
//   point.Arm(17);
//   point.PassBefore(StoreOperation::kCommitBatch);   // 16 times nothing, then ServerCrash.
#pragma once

#include <cstdint>

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
  void Disarm() { left_ = 0; }
  bool is_armed() const { return left_ > 0; }
  int64_t num_passages() const { return num_passages_; }

  void PassBefore(StoreOperation operation) {
    Statistics::Passages& passages = statistics_.OfOperation(operation);
    ++passages.count;
    Pass(passages.crashes_before);
  }
  void PassAfter(StoreOperation operation) { Pass(statistics_.OfOperation(operation).crashes_after); }

  // While it is, every commit answers RESOURCE_EXHAUSTED,
  bool disk_is_full = false;
  // and so does everything that writes payloads.
  bool payload_disk_is_full = false;

 private:
  void Pass(int64_t& crashes) {
    ++num_passages_;
    if (left_ == 0 || --left_ > 0) return;
    ++crashes;
    throw ServerCrash();
  }

  Statistics& statistics_;
  int64_t left_ = 0;
  int64_t num_passages_ = 0;
};

}  // namespace sheaf::simulation
