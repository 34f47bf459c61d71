// How much memory the accumulators of a round may take.
#include <fmt/format.h>

#include <catch2/catch.hpp>
#include <cmath>
#include <string>

#include "base/retry_hint.h"
#include "tests/server/core_federation.h"
#include "tests/server/wide_round.h"

namespace sheaf {
namespace {

using Catch::Matchers::Contains;
using Verdict = v1::ResultVerdict;

TEST_CASE("A contribution that would make the accumulators too large is refused before it is recorded") {
  Limits limits;
  limits.accumulator_bytes_max = 4 * kBinBytes;
  CoreFederation server(limits);
  const std::string round = server.CreateRound(WideRound(4));
  v1::SyncRequest request = Ask("w", 0);
  *request.add_results() = WideResult(server.Sync(Ask("w", 1)).leases(0),
                                      [](int64_t i) { return std::ldexp(1.5f, static_cast<int>(i % 250) - 125); });
  const v1::ResultVerdict refused = server.Sync(request).verdicts(0);
  CHECK(refused.verdict() == Verdict::REJECTED);
  CHECK_THAT(refused.message(), Contains("accumulator_bytes_max = 524288"));
  CHECK(server.GetRound(round).num_contributions() == 0);
  CHECK(server.core().rounds().Find(RoundId(round))->accumulator_bytes <= kBinBytes);
}

TEST_CASE("The memory that a round's accumulators may take is the same after each restart") {
  const bool restarts = GENERATE(false, true);
  Limits limits;
  limits.accumulator_bytes_max = 3 * kBinBytes + kBinBytes / 2;
  CoreFederation server(limits);
  const std::string round = server.CreateRound(WideRound(20));
  int num_accepted = 0;
  for (int i = 0; i < 8; ++i) {
    if (restarts) server.CrashAndRestart();
    const v1::SyncResponse granted = server.Sync(Ask(fmt::format("w{}", i), 1));
    REQUIRE(granted.leases_size() == 1);
    v1::SyncRequest request = Ask(fmt::format("w{}", i), 0);
    // Each of another size: a bin of its own.
    *request.add_results() = WideResult(granted.leases(0), [i](int64_t) { return std::ldexp(1.0f, 30 * i - 120); });
    num_accepted += server.Sync(request).verdicts(0).verdict() == Verdict::ACCEPTED ? 1 : 0;
  }
  INFO((restarts ? "with" : "without") << " restarts");
  CHECK(num_accepted == 3);
  CHECK(server.GetRound(round).num_contributions() == num_accepted);
}

TEST_CASE(
    "What waits to be folded counts against the accumulators' memory; what may fit once it is folded comes again") {
  Limits limits;
  limits.accumulator_bytes_max = 2 * kBinBytes + kBinBytes / 2;
  CoreFederation server(limits);
  const std::string round = server.CreateRound(WideRound(4));
  const v1::SyncResponse granted = server.Sync(Ask("w", 3));
  REQUIRE(granted.leases_size() == 3);
  v1::SyncRequest request = Ask("w", 0);
  for (const v1::Lease& lease : granted.leases()) *request.add_results() = WideResult(lease, [](int64_t) { return 1; });
  // Each might need a bin of its own: there is room for two.
  const absl::Status busy = server.Call<v1::SyncResponse>("WorkService/Sync", request).status();
  CHECK(absl::IsResourceExhausted(busy));
  CHECK(RetryAfter(busy).has_value());
  // All fit into one.
  const v1::SyncResponse again = server.Sync(request);
  CHECK(again.verdicts(2).verdict() == Verdict::ACCEPTED);
  CHECK(server.GetRound(round).num_contributions() == 3);
}

}  // namespace
}  // namespace sheaf
