// CrashPoint: where the server's power fails. Both store decorators pass it before and after each operation; at the
// n-th passage it throws, and the simulated server, which catches that, is gone.
//
//   point.Arm(17);
//   point.Pass();   // 16 times nothing, then ServerCrash.
#pragma once

#include <cstdint>

namespace sheaf::simulation {

// Not a std::exception: nobody but the simulated server may catch it.
struct ServerCrash {};

class CrashPoint {
 public:
  // 0 disarms.
  void Arm(int64_t passages) { left_ = passages; }
  void Disarm() { left_ = 0; }
  bool is_armed() const { return left_ > 0; }
  int64_t num_passages() const { return num_passages_; }

  void Pass() {
    ++num_passages_;
    if (left_ > 0 && --left_ == 0) throw ServerCrash();
  }

  // While it is, every commit answers RESOURCE_EXHAUSTED,
  bool disk_is_full = false;
  // and so does everything that writes payloads.
  bool payload_disk_is_full = false;

 private:
  int64_t left_ = 0;
  int64_t num_passages_ = 0;
};

}  // namespace sheaf::simulation
