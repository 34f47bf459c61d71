// StrongId: a string that says what it names, so that two kinds cannot be swapped.
//
//   using RoundId = StrongId<struct RoundIdTag>;
#pragma once

#include <fmt/format.h>

#include <compare>
#include <functional>
#include <string>
#include <string_view>
#include <utility>

#include "base/key_hash.h"

namespace sheaf {

template <typename Tag>
class StrongId {
 public:
  StrongId() = default;
  explicit StrongId(std::string value) : value_(std::move(value)) {}
  explicit StrongId(std::string_view value) : value_(value) {}
  explicit StrongId(const char* value) : value_(value) {}

  const std::string& value() const { return value_; }
  bool empty() const { return value_.empty(); }

  friend auto operator<=>(const StrongId&, const StrongId&) = default;  // NOLINT(modernize-use-nullptr)
  friend bool operator==(const StrongId&, const StrongId&) = default;

  template <typename H>
  friend H AbslHashValue(H h, const StrongId& id) {
    return H::combine(std::move(h), id.value_);
  }

 private:
  std::string value_;
};

}  // namespace sheaf

template <typename Tag>
struct fmt::formatter<sheaf::StrongId<Tag>> : fmt::formatter<std::string_view> {
  template <typename Context>
  auto format(const sheaf::StrongId<Tag>& id, Context& context) const {
    return fmt::formatter<std::string_view>::format(id.value(), context);
  }
};

// Workers choose their names.
template <typename Tag>
struct std::hash<sheaf::StrongId<Tag>> {
  size_t operator()(const sheaf::StrongId<Tag>& id) const { return sheaf::KeyHash()(id.value()); }
};
