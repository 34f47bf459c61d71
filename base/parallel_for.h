// ParallelFor: a loop whose rounds may run at once.
//
//   parallel.Run(n, [&](int i) { squares[i] = i * i; });   // Returns when all parts are done.
//
// Code that is free of threads takes one; a binary hands it threads, a simulation an InlineFor. Parts must not depend
// on each other, so that what comes out is the same.
#pragma once

#include <functional>

namespace sheaf {

class ParallelFor {
 public:
  virtual ~ParallelFor() = default;
  // Calls body(0), ..., body(n - 1), each once, in any order and from any thread. `body` does not throw.
  virtual void Run(int n, const std::function<void(int)>& body) = 0;
};

// One after the other, in the caller's thread.
class InlineFor final : public ParallelFor {
 public:
  void Run(int n, const std::function<void(int)>& body) override {
    for (int i = 0; i < n; ++i) body(i);
  }
};

}  // namespace sheaf
