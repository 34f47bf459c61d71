#include "base/log_quota.h"

#include <catch2/catch.hpp>

namespace sheaf {
namespace {

TEST_CASE(
    "A log line that anybody can cause is written so often in a while, and the next one tells how many were not") {
  LogQuota quota(3, absl::Seconds(10));
  const absl::Time start = absl::FromUnixSeconds(1000);
  int num_written = 0;
  int64_t left_out = -1;
  for (int i = 0; i < 1000; ++i) num_written += quota.Take(start + absl::Milliseconds(i), left_out) ? 1 : 0;
  CHECK(num_written == 3);
  CHECK(left_out == 0);
  REQUIRE(quota.Take(start + absl::Seconds(11), left_out));
  CHECK(left_out == 997);
  REQUIRE(quota.Take(start + absl::Seconds(11), left_out));
  CHECK(left_out == 0);
}

TEST_CASE("Nobody writes lines of his own into the log") {
  CHECK(LogQuota::Line("population 'a\nERROR the disk is full\x1b[2J'", 0) ==
        "population \\'a\\nERROR the disk is full\\x1b[2J\\'");
  CHECK(LogQuota::Line(std::string(100'000, 'x'), 0).size() < 600);
  CHECK(LogQuota::Line("refused", 7) == "refused (and 7 more like it)");
}

}  // namespace
}  // namespace sheaf
