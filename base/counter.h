// Counter and Gauge: numbers that are counted where work is done, and read by whoever looks on. Nothing is decided by
// them. Either costs one relaxed atomic operation, and orders nothing: what is read of two of them may be of two
// moments.
//
//   Counter refused;
//   refused.Add();
//   Gauge parked;
//   parked.Add(-1);
//
// Thread-safe.
#pragma once

#include <atomic>
#include <cstdint>

namespace sheaf {

// Only grows.
class Counter {
 public:
  void Add(int64_t by = 1) { value_.fetch_add(by, std::memory_order_relaxed); }
  int64_t value() const { return value_.load(std::memory_order_relaxed); }

 private:
  std::atomic<int64_t> value_ = 0;
};

class Gauge {
 public:
  Gauge() = default;
  explicit Gauge(int64_t value) : value_(value) {}
  void Add(int64_t by) { value_.fetch_add(by, std::memory_order_relaxed); }
  void Set(int64_t value) { value_.store(value, std::memory_order_relaxed); }
  int64_t value() const { return value_.load(std::memory_order_relaxed); }

 private:
  std::atomic<int64_t> value_ = 0;
};

}  // namespace sheaf
