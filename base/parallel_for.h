// ParallelFor: a loop whose rounds may run at once.
//
//   parallel.Run(n, [&](int i) { squares[i] = i * i; });   // Returns when all parts are done.
//
// Code that is free of threads takes one; a binary hands it threads, a simulation an InlineFor. Parts must not depend
// on each other, so that what comes out is the same.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>

namespace sheaf {

class ParallelFor {
 public:
  virtual ~ParallelFor() = default;
  // Calls body(0), ..., body(n - 1), each once, in any order and from any thread. `body` does not throw.
  virtual void Run(int n, const std::function<void(int)>& body) = 0;
  // How many parts may run at once: into how many it is worth to divide something.
  virtual int num_threads() const = 0;
};

// One after the other, in the caller's thread.
class InlineFor final : public ParallelFor {
 public:
  void Run(int n, const std::function<void(int)>& body) override {
    for (int i = 0; i < n; ++i) body(i);
  }
  int num_threads() const override { return 1; }
};

// Calls body(begin, end) for each part of [0, n), of `part_max` but for the last. What is one part is done at once,
// here.
template <typename Body>
void RunInParts(ParallelFor& parallel, int64_t n, int64_t part_max, const Body& body) {
  if (n <= part_max) return body(int64_t{0}, n);
  parallel.Run(static_cast<int>((n + part_max - 1) / part_max),
               [&](int i) { body(i * part_max, std::min((i + 1) * part_max, n)); });
}

}  // namespace sheaf
