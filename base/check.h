// SHEAF_CHECK: for what we did to ourselves. Stays on in release builds.
//
//   SHEAF_CHECK(offset <= size, "offset {} beyond the end of {}", offset, name);
//
// What the world does to us (a peer, a disk, a user) is a Status. The prefix is there because test frameworks own the short name.
#pragma once

#include <fmt/format.h>

#include <cstdio>
#include <cstdlib>
#include <string>

namespace sheaf::internal {

[[noreturn]] inline void CheckFailed(const char* file, int line, const char* condition, const std::string& detail = "") {
  std::fprintf(stderr, "%s:%d: CHECK failed: %s%s%s\n", file, line, condition, detail.empty() ? "" : ": ",
               detail.c_str());
  std::abort();
}

}  // namespace sheaf::internal

#define SHEAF_CHECK(condition, ...)                                                                                  \
  do {                                                                                                         \
    if (!(condition)) [[unlikely]]                                                                             \
      ::sheaf::internal::CheckFailed(__FILE__, __LINE__, #condition __VA_OPT__(, ::fmt::format(__VA_ARGS__))); \
  } while (false)
