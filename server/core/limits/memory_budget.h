// MemoryBudget: bytes that some kind of work may hold in memory at once.
//
//   std::optional<MemoryClaim> claim = budget.Claim(size_bytes, limits.unfolded_bytes_max);
//   if (!claim) return absl::ResourceExhaustedError("come back later");
//   reception.claim = *std::move(claim);       // Given back where the claim ends, on whatever thread.
//
// Thread-safe. A claim may outlive its budget.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>

namespace sheaf {

class MemoryClaim {
 public:
  MemoryClaim() = default;
  MemoryClaim(MemoryClaim&& other) noexcept : held_(std::move(other.held_)), bytes_(std::exchange(other.bytes_, 0)) {}
  MemoryClaim& operator=(MemoryClaim&& other) noexcept {
    std::swap(held_, other.held_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  ~MemoryClaim() {
    if (held_ != nullptr) held_->fetch_sub(bytes_, std::memory_order_relaxed);
  }

  // What was found to take more than it said: it is there already.
  void Grow(int64_t bytes) {
    if (held_ == nullptr) return;
    held_->fetch_add(bytes, std::memory_order_relaxed);
    bytes_ += bytes;
  }

 private:
  friend class MemoryBudget;
  using Held = std::atomic<int64_t>;
  MemoryClaim(std::shared_ptr<Held> held, int64_t bytes) : held_(std::move(held)), bytes_(bytes) {}

  std::shared_ptr<Held> held_;
  int64_t bytes_ = 0;
};

class MemoryBudget {
 public:
  // Nothing if there is no room; but one that finds nothing else there gets in, however large.
  std::optional<MemoryClaim> Claim(int64_t bytes, int64_t bytes_max) {
    int64_t held = held_->load(std::memory_order_relaxed);
    do {
      if (held > 0 && held + bytes > bytes_max) return std::nullopt;
    } while (!held_->compare_exchange_weak(held, held + bytes, std::memory_order_relaxed));
    return MemoryClaim(held_, bytes);
  }
  int64_t bytes() const { return held_->load(std::memory_order_relaxed); }

 private:
  std::shared_ptr<MemoryClaim::Held> held_ = std::make_shared<MemoryClaim::Held>(0);
};

}  // namespace sheaf
