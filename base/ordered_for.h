// OrderedFor: a loop whose parts are made at once, and handed over one by one, in order.
//
//   const absl::Status written = OrderedFor<std::string>(
//       parallel, {.num_parts = 1000, .waiting_max = 16}, [] { return std::make_unique<std::string>(); },
//       [&](int64_t i, std::string& text) { return Render(i, text); },    // Of several at once, on any thread.
//       [&](const std::string& text) { return take(text); });             // Of one at a time: 0, 1, 2, ...
//
// What is handed over, and the error that ends it, do not depend on how many threads there are: the first error in
// order is the one that a plain loop would meet, and nothing behind it is handed over.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "base/mutex.h"
#include "base/parallel_for.h"

namespace sheaf {

struct OrderedParts {
  int64_t num_parts = 0;
  // Parts that are made, or being made, before one of them is handed over: what bounds memory. Threads wait for each
  // other after so many.
  int waiting_max = 1;
};

// Some parts in turn, made by several threads. Whoever has made the next one hands it over, and those behind it that
// wait: nobody waits for anybody. Thread-safe.
template <typename Part>
class OrderedHandover {
 public:
  using Room = std::function<std::unique_ptr<Part>()>;
  using Give = std::function<absl::Status(Part& part)>;

  // Both outlive it.
  OrderedHandover(const Room& room, const Give& give) : room_(room), give_(give) {}

  // So many parts follow, numbered from 0. All before have come.
  void Expect(int num_parts) EXCLUDES(mutex_) {
    MutexLock lock(mutex_);
    next_ = 0;
    made_ = std::vector<std::optional<Made>>(static_cast<size_t>(num_parts));
  }

  // Where to make a part: one that was handed over, if there is any. Null after an error: no part is needed.
  std::unique_ptr<Part> Place() EXCLUDES(mutex_) {
    MutexLock lock(mutex_);
    if (!status_.ok()) return nullptr;
    if (unused_.empty()) return room_();
    std::unique_ptr<Part> place = std::move(unused_.back());
    unused_.pop_back();
    return place;
  }

  // Part i, or why there is none.
  void Put(int i, std::unique_ptr<Part> part, absl::Status status) EXCLUDES(mutex_) {
    {
      MutexLock lock(mutex_);
      made_[static_cast<size_t>(i)] = Made{std::move(part), std::move(status)};
    }
    while (std::optional<Made> next = BeginGiving()) {
      if (next->status.ok()) next->status = give_(*next->part);
      EndGiving(*std::move(next));
    }
  }

  absl::Status status() const EXCLUDES(mutex_) {
    MutexLock lock(mutex_);
    return status_;
  }

 private:
  struct Made {
    std::unique_ptr<Part> part;
    absl::Status status;
  };

  // The next part in order, if it is there and nobody is giving one: whoever is will look for it afterwards.
  std::optional<Made> BeginGiving() EXCLUDES(mutex_) {
    MutexLock lock(mutex_);
    if (is_giving_ || !status_.ok() || next_ == made_.size() || !made_[next_].has_value()) return std::nullopt;
    is_giving_ = true;
    return std::exchange(made_[next_++], std::nullopt);
  }

  void EndGiving(Made given) EXCLUDES(mutex_) {
    MutexLock lock(mutex_);
    is_giving_ = false;
    status_ = std::move(given.status);
    unused_.push_back(std::move(given.part));
  }

  const Room& room_;
  const Give& give_;
  mutable Mutex mutex_;
  // The first error in order.
  absl::Status status_ GUARDED_BY(mutex_);
  size_t next_ GUARDED_BY(mutex_) = 0;
  bool is_giving_ GUARDED_BY(mutex_) = false;
  // Until they are handed over.
  std::vector<std::optional<Made>> made_ GUARDED_BY(mutex_);
  std::vector<std::unique_ptr<Part>> unused_ GUARDED_BY(mutex_);
};

// `room` makes places for parts, each used again and again; `make` fills one in; `give` hands it over. The first error
// in order, of `make` or `give`.
template <typename Part>
absl::Status OrderedFor(ParallelFor& parallel, const OrderedParts& parts,
                        const std::function<std::unique_ptr<Part>()>& room,
                        const std::function<absl::Status(int64_t i, Part& part)>& make,
                        const std::function<absl::Status(Part& part)>& give) {
  OrderedHandover<Part> handover(room, give);
  for (int64_t begin = 0; begin < parts.num_parts && handover.status().ok(); begin += parts.waiting_max) {
    const auto count = static_cast<int>(std::min<int64_t>(parts.waiting_max, parts.num_parts - begin));
    handover.Expect(count);
    parallel.Run(count, [&](int i) {
      std::unique_ptr<Part> part = handover.Place();
      if (part == nullptr) return;
      absl::Status status = make(begin + i, *part);
      handover.Put(i, std::move(part), std::move(status));
    });
  }
  return handover.status();
}

}  // namespace sheaf
