// Counted: a number and what it counts, for people.
//
//   Counted(1, "lease");   // "1 lease"
//   Counted(2, "lease");   // "2 leases"
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <string>
#include <string_view>

namespace sheaf {

inline std::string Counted(int64_t count, std::string_view noun) {
  return fmt::format("{} {}{}", count, noun, count == 1 ? "" : "s");
}

}  // namespace sheaf
