#include "base/retry_hint.h"

#include <catch2/catch.hpp>

namespace sheaf {
namespace {

TEST_CASE("A status says when to try again, or not") {
  const absl::Status plain = absl::ResourceExhaustedError("full");
  CHECK_FALSE(RetryAfter(plain).has_value());
  CHECK_FALSE(RetryAfter(absl::OkStatus()).has_value());
  const absl::Status hinted = WithRetryAfter(plain, absl::Milliseconds(1500));
  CHECK(RetryAfter(hinted) == absl::Milliseconds(1500));
  CHECK(hinted.code() == plain.code());
  CHECK(hinted.message() == plain.message());
  CHECK(RetryAfter(WithRetryAfter(plain, absl::ZeroDuration())) == absl::Milliseconds(1));
  CHECK(RetryAfter(WithRetryAfter(plain, absl::Hours(100))) == absl::Minutes(5));
}

TEST_CASE("A hint travels in a header, and a header that is no hint changes nothing") {
  const absl::Status plain = absl::ResourceExhaustedError("full");
  CHECK(RetryHeaderValue(absl::Milliseconds(1500)) == "1500");
  CHECK(RetryAfter(WithRetryHeader(plain, "1500")) == absl::Milliseconds(1500));
  for (const char* value : {"", "-1", "1.5", "1s", " 1", "99999999999999999999"}) {
    INFO(value);
    CHECK(WithRetryHeader(plain, value) == plain);
  }
  CHECK(WithRetryHeader(absl::OkStatus(), "1500").ok());
}

TEST_CASE("Those who were refused together wait as long as they were told, and come back one by one") {
  SeededRandom random(1);
  const absl::Status hinted = WithRetryAfter(absl::ResourceExhaustedError("full"), absl::Seconds(2));
  absl::Duration shortest = absl::InfiniteDuration(), longest;
  for (int i = 0; i < 1000; ++i) {
    const absl::Duration pause = PauseAfter(hinted, absl::Milliseconds(100), random);
    shortest = std::min(shortest, pause);
    longest = std::max(longest, pause);
  }
  CHECK(shortest >= absl::Seconds(2));
  CHECK(shortest < absl::Seconds(2.1));
  CHECK(longest < absl::Seconds(4));
  CHECK(longest > absl::Seconds(3.9));
  for (int i = 0; i < 100; ++i) {
    CHECK(PauseAfter(absl::UnavailableError("away"), absl::Milliseconds(100), random) < absl::Milliseconds(100));
  }
}

}  // namespace
}  // namespace sheaf
