// A worker that cannot wait, over the wire: it is told when to come, and finds its task when it does.
#include <algorithm>
#include <catch2/catch.hpp>
#include <map>
#include <string>

#include "proto/time.h"
#include "tests/server/running_server.h"
#include "tests/wait_until.h"

namespace sheaf {
namespace {

TEST_CASE("Workers that cannot wait are told over the wire when to come, each in its turn, and find their task then") {
  Limits limits;
  limits.idle_calls_per_second = 4;
  RunningServer server(limits);
  const SystemClock clock;
  constexpr int kWorkers = 40;
  const absl::Time begin = clock.Now();
  // By the second, counted from when the first one called.
  std::map<int64_t, int> by_second;
  v1::SyncResponse first;
  for (int i = 0; i < kWorkers; ++i) {
    const auto answer = BlockingCall(server.transport(), kSync, AParkedPoll("w" + std::to_string(i), 0));
    REQUIRE(answer.ok());
    REQUIRE(answer->leases().empty());
    if (i == 0) first = *answer;
    ++by_second[absl::ToInt64Seconds(clock.Now() + FromProto(answer->next_max()) - begin)];
  }
  CHECK(FromProto(first.next_max()) == absl::Seconds(1));
  // Forty workers at four a second; a second's part may be counted to the one before or after.
  CHECK(by_second.rbegin()->first >= 8);
  for (const auto& [second, count] : by_second) CHECK(count <= 2 * limits.idle_calls_per_second + 1);

  REQUIRE(BlockingCall(server.transport(), kCreateRound, ARound("round")).ok());
  WaitUntil("the first one's time has come", absl::Seconds(10),
            [&] { return clock.Now() >= begin + FromProto(first.next_min()); });
  v1::SyncRequest again = AParkedPoll("w0", 0);
  again.set_poll_id("poll-2");
  const auto answer = BlockingCall(server.transport(), kSync, again);
  REQUIRE(answer.ok());
  CHECK(answer->leases_size() == 1);
}

}  // namespace
}  // namespace sheaf
