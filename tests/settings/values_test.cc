// Texts of values, and back.
#include "settings/values.h"

#include <catch2/catch.hpp>

namespace sheaf {
namespace {

using Catch::Matchers::Contains;

template <typename T>
std::string Complaint(const absl::StatusOr<T>& value) {
  CHECK(value.status().code() == absl::StatusCode::kInvalidArgument);
  return std::string(value.status().message());
}

TEST_CASE("Sizes are bytes, or have binary units") {
  CHECK(*ParseBytes("1") == 1);
  CHECK(*ParseBytes("70000B") == 70'000);
  CHECK(*ParseBytes("3KiB") == 3 << 10);
  CHECK(*ParseBytes("64MiB") == 64 << 20);
  CHECK(*ParseBytes("16GiB") == int64_t{16} << 30);
  CHECK(*ParseBytes("8388607TiB") == int64_t{8388607} << 40);
  for (const char* text : {"", "0", "-1", "64MB", "64 MiB", "MiB", "1.5GiB", "8388608TiB", "99999999999999999999"}) {
    INFO(text);
    CHECK_THAT(Complaint(ParseBytes(text, "2MiB")), Contains("is not a size such as \"65536\" or \"2MiB\""));
  }
}

TEST_CASE("A size is written in the largest unit that it is a multiple of, and read back as it was") {
  CHECK(FormatBytes(1) == "1");
  CHECK(FormatBytes(1023) == "1023");
  CHECK(FormatBytes(1024) == "1KiB");
  CHECK(FormatBytes(1536 << 10) == "1536KiB");
  CHECK(FormatBytes(int64_t{256} << 30) == "256GiB");
  CHECK(FormatBytes(int64_t{1} << 40) == "1TiB");
  for (const int64_t bytes : {int64_t{1}, int64_t{70'000}, int64_t{3} << 19, int64_t{1} << 62}) {
    CHECK(*ParseBytes(FormatBytes(bytes)) == bytes);
  }
}

TEST_CASE("Numbers are whole and within their bounds") {
  CHECK(*ParseNumber("256", {.max = 256}) == 256);
  CHECK(*ParseNumber("0", {.min = 0}) == 0);
  CHECK(Complaint(ParseNumber("0", {})) == "\"0\" is not a whole number greater than 0");
  for (const char* text : {"", "many", "0", "257", "2.5", "2 ", "99999999999999999999"}) {
    INFO(text);
    CHECK_THAT(Complaint(ParseNumber(text, {.max = 256})), Contains("is not a whole number from 1 to 256"));
  }
}

TEST_CASE("Durations have units; a bare number means seconds") {
  CHECK(*ParseDuration("1h30m", {}) == absl::Minutes(90));
  CHECK(*ParseDuration("200ms", {}) == absl::Milliseconds(200));
  CHECK(*ParseDuration("5", {}) == absl::Seconds(5));
  CHECK(*ParseDuration("0", {.may_be_zero = true}) == absl::ZeroDuration());
  CHECK(*ParseDuration("inf", {.may_be_infinite = true}) == absl::InfiniteDuration());
  for (const char* text : {"", "soon", "30 bananas", "0", "0s", "-3s", "inf"}) {
    INFO(text);
    CHECK_THAT(Complaint(ParseDuration(text, {}, "20s")), Contains("is not a duration such as \"20s\" or \"5m\""));
  }
  CHECK_FALSE(ParseDuration("-1s", {.may_be_zero = true, .may_be_infinite = true}).ok());
}

TEST_CASE("A truth is true or false") {
  CHECK(*ParseTruth("true"));
  CHECK_FALSE(*ParseTruth("false"));
  CHECK_THAT(Complaint(ParseTruth("yes")), Contains("\"yes\" is neither true nor false"));
}

}  // namespace
}  // namespace sheaf
