#include "proto/time.h"

#include <catch2/catch.hpp>

namespace sheaf {
namespace {

TEST_CASE("Durations come back from the wire as they were, to the nanosecond") {
  for (const absl::Duration duration : {absl::ZeroDuration(), absl::Nanoseconds(1), absl::Seconds(1.5),
                                        absl::Hours(24 * 365), -absl::Seconds(1.5), -absl::Nanoseconds(1)}) {
    INFO(absl::FormatDuration(duration));
    CHECK(FromProto(ToProto(duration)) == duration);
  }
}

TEST_CASE("Times come back from the wire as they were; one that never comes is unset") {
  for (const absl::Time time : {absl::UnixEpoch(), absl::FromUnixNanos(1'700'000'000'123'456'789)}) {
    CHECK(FromProto(ToProto(time)) == time);
  }
  CHECK(ToProto(absl::InfiniteFuture()).ByteSizeLong() == 0);
  CHECK(ToProto(absl::InfinitePast()).ByteSizeLong() == 0);
}

}  // namespace
}  // namespace sheaf
