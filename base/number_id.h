// NumberId: a number that says what it names, so that two kinds cannot be swapped, nor an id with a count.
//
//   using CallId = NumberId<struct CallIdTag>;
//   const CallId first(1);
//
// For what is named by a text see base/id.h.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <functional>

namespace sheaf {

template <typename Tag>
class NumberId {
 public:
  // Names nothing.
  constexpr NumberId() = default;
  explicit constexpr NumberId(int64_t value) : value_(value) {}

  constexpr int64_t value() const { return value_; }

  friend auto operator<=>(const NumberId&, const NumberId&) = default;
  friend bool operator==(const NumberId&, const NumberId&) = default;

 private:
  int64_t value_ = 0;
};

}  // namespace sheaf

// Whoever gives such numbers gives them one after the other: no stranger chooses them.
template <typename Tag>
struct std::hash<sheaf::NumberId<Tag>> {
  size_t operator()(sheaf::NumberId<Tag> id) const { return std::hash<int64_t>()(id.value()); }
};
