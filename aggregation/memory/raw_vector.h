// RawVector: a std::vector of numbers whose resize() leaves them unset, for whoever writes all of them next: once, and
// on the thread that needs them.
//
//   RawVector<int64_t> keys;
//   keys.resize(size);
//   parallel.Run(n, [&](int i) { keys[static_cast<size_t>(i)] = i; });
#pragma once

#include <memory>
#include <type_traits>
#include <utility>
#include <vector>

namespace sheaf {

template <typename T>
class RawAllocator : public std::allocator<T> {
 public:
  static_assert(std::is_trivially_default_constructible_v<T>);
  template <typename Other>
  struct rebind {
    using other = RawAllocator<Other>;
  };

  template <typename U, typename... Args>
  void construct(U* at, Args&&... args) {
    if constexpr (sizeof...(Args) == 0) {
      ::new (static_cast<void*>(at)) U;
    } else {
      ::new (static_cast<void*>(at)) U(std::forward<Args>(args)...);
    }
  }
};

template <typename T>
using RawVector = std::vector<T, RawAllocator<T>>;

}  // namespace sheaf
