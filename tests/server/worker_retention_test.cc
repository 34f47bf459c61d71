// Which workers are forgotten, and that nobody waits for it.
#include <fmt/format.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "tests/server/core_federation.h"

namespace sheaf {
namespace {

using Names = std::vector<std::string>;

// Longer than the server rests between two looks.
constexpr absl::Duration kLookPause = absl::Minutes(11);

Limits Keeping(int64_t worker_records_max) {
  Limits limits;
  limits.ended_keep = absl::Hours(24);
  limits.workers_max = 1;
  limits.worker_records_max = worker_records_max;
  return limits;
}

// Each a second after the one before.
void Call(CoreFederation& server, const std::string& population, const Names& names) {
  REQUIRE(server.store().BeginBatch().ok());
  for (const std::string& name : names) {
    server.clock().Advance(absl::Seconds(1));
    REQUIRE(server.store()
                .SawWorker({.name = WorkerName(name), .population = population, .now = server.clock().Now()})
                .ok());
  }
  REQUIRE(server.store().CommitBatch().ok());
}

// The names of those that are remembered, by name.
Names Known(CoreFederation& server, const std::string& population) {
  Names names;
  const auto known = server.store().ListWorkers({.population = population, .limit = 100'000});
  REQUIRE(known.ok());
  for (const WorkerRecord& worker : *known) names.push_back(worker.name.value());
  return names;
}

Names Numbered(const std::string& name, int from, int to) {
  Names names;
  for (int i = from; i < to; ++i) names.push_back(fmt::format("{}{:05}", name, i));
  return names;
}

TEST_CASE("Workers not seen for as long as ended rounds are kept are forgotten, in every population") {
  CoreFederation server(Keeping(100));
  Call(server, "a", {"old", "calls"});
  Call(server, "b", {"old"});
  server.Advance(absl::Hours(23));
  Call(server, "a", {"calls", "new"});
  server.Advance(absl::Minutes(59));
  CHECK(Known(server, "a") == Names{"calls", "new", "old"});
  server.Advance(kLookPause);
  CHECK(Known(server, "a") == Names{"calls", "new"});
  CHECK(Known(server, "b").empty());
}

TEST_CASE("Of too many workers those go that were not seen for the longest, of the population that has most") {
  CoreFederation server(Keeping(8));
  Call(server, "small", {"oldest", "older"});
  Call(server, "crowd", {"z", "y", "x", "w", "v", "u", "t", "s", "r", "q"});
  Call(server, "middle", {"a", "b", "c"});
  // Seen again: no longer the first to go.
  Call(server, "crowd", {"z"});
  server.Advance(kLookPause);
  CHECK(Known(server, "small") == Names{"older", "oldest"});
  CHECK(Known(server, "middle") == Names{"a", "b", "c"});
  CHECK(Known(server, "crowd") == Names{"q", "r", "z"});
}

TEST_CASE("What cannot be shared evenly is left to populations that have little more than their part") {
  CoreFederation server(Keeping(7));
  Call(server, "a", Numbered("a", 0, 4));
  Call(server, "b", Numbered("b", 0, 10));
  server.Advance(kLookPause);
  CHECK(Known(server, "a") == Numbered("a", 0, 4));
  CHECK(Known(server, "b") == Numbered("b", 7, 10));
}

TEST_CASE("More populations than workers may be remembered: as many are left") {
  CoreFederation server(Keeping(4));
  for (int i = 0; i < 10; ++i) Call(server, fmt::format("p{}", i), {"only"});
  server.Advance(kLookPause);
  CHECK(Known(server, "").size() == 4);
}

TEST_CASE("A worker that holds a task is not forgotten, however many others there are") {
  CoreFederation server(Keeping(2));
  server.CreateRound(SumRound(1));
  REQUIRE(server.Sync(Ask("holds", 1)).leases_size() == 1);
  Call(server, "default", {"first", "second", "third"});
  // Before the lease runs out.
  server.CrashAndRestart();
  CHECK(Known(server, "default") == Names{"holds", "second", "third"});
}

TEST_CASE("A great many too many workers are forgotten in parts, all of them in a few looks") {
  CoreFederation server(Keeping(500));
  Call(server, "few", Numbered("few", 0, 20));
  Call(server, "crowd", Numbered("w", 0, 12'000));
  server.Advance(kLookPause);
  size_t num_left = Known(server, "crowd").size();
  CHECK(num_left == 12'000);  // The first part looks at some.
  size_t most_at_once = 0;
  for (int i = 0; i < 200; ++i) {
    server.Advance(absl::Milliseconds(20));
    const size_t num_now = Known(server, "crowd").size();
    most_at_once = std::max(most_at_once, num_left - num_now);
    num_left = num_now;
  }
  CHECK(most_at_once > 0);
  CHECK(most_at_once <= 300);
  CHECK(Known(server, "crowd") == Numbered("w", 11'520, 12'000));
  CHECK(Known(server, "few") == Numbered("few", 0, 20));
}

TEST_CASE("Whoever calls while the server looks for workers to forget stays") {
  CoreFederation server(Keeping(1000));
  Call(server, "crowd", Numbered("w", 0, 3000));
  // The oldest call in the middle of it.
  for (int i = 0; i < 200; ++i) {
    server.Advance(absl::Milliseconds(20));
    if (i == 5) Call(server, "crowd", Numbered("w", 0, 10));
    if (i == 5) Call(server, "crowd", {"newcomer"});
  }
  const Names known = Known(server, "crowd");
  for (const std::string& name : Numbered("w", 0, 10)) CHECK(std::count(known.begin(), known.end(), name) == 1);
  CHECK(std::count(known.begin(), known.end(), "newcomer") == 1);
  CHECK(known.size() >= 1000);
  server.Advance(kLookPause);
  for (int i = 0; i < 200; ++i) server.Advance(absl::Milliseconds(20));
  CHECK(Known(server, "crowd").size() == 1000);
}

TEST_CASE("Old workers are forgotten in parts, however many are old") {
  CoreFederation server(Keeping(100'000));
  Call(server, "crowd", Numbered("w", 0, 3000));
  server.Advance(absl::Hours(25));
  const size_t num_left = Known(server, "crowd").size();
  CHECK(num_left >= 2700);
  CHECK(num_left < 3000);
  for (int i = 0; i < 60; ++i) server.Advance(absl::Milliseconds(20));
  CHECK(Known(server, "crowd").empty());
}

}  // namespace
}  // namespace sheaf
