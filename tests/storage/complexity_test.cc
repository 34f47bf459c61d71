// What lists and look-ups of each store cost: a list is read page by page, and each page takes time for its own rows,
// however many come before it and after it.
#include <fmt/format.h>

#include <catch2/catch.hpp>
#include <map>
#include <memory>
#include <string>

#include "tests/conformance/store_fixture.h"
#include "tests/cpu_time.h"

namespace sheaf {
namespace {

// Small, so that few rows have many pages: what ten times as many take must fit the caches, too.
constexpr int kPage = 10;

// Reads a list to its end; `read` gives the page after the last row of the one before.
template <typename Params, typename Read, typename Cursor>
int64_t NumListed(Params params, Read read, Cursor cursor) {
  params.limit = kPage;
  int64_t num_rows = 0;
  while (true) {
    const auto page = read(params);
    REQUIRE(page.ok());
    num_rows += static_cast<int64_t>(page->size());
    if (page->size() < kPage) return num_rows;
    params.after = cursor(page->back());
  }
}

using Fixture = std::shared_ptr<StoreFixture>;

int64_t NumRounds(const Fixture& f, TaskStore::ListRoundsParams params) {
  return NumListed(
      params, [&](const auto& page) { return f->store().ListRounds(page); }, [](const auto& row) { return row.id; });
}
int64_t NumTasks(const Fixture& f, TaskStore::ListTasksParams params) {
  return NumListed(
      params, [&](const auto& page) { return f->store().ListTasks(page); }, [](const auto& row) { return row.id; });
}
int64_t NumWorkers(const Fixture& f, TaskStore::ListWorkersParams params) {
  return NumListed(
      params, [&](const auto& page) { return f->store().ListWorkers(page); }, [](const auto& row) { return row.name; });
}
int64_t NumWorkerAges(const Fixture& f) {
  TaskStore::ListWorkerAgesParams params{.limit = kPage};
  int64_t num_rows = 0;
  while (true) {
    const auto page = f->store().ListWorkerAges(params);
    REQUIRE(page.ok());
    num_rows += static_cast<int64_t>(page->size());
    if (page->size() < kPage) return num_rows;
    params.after = page->back().name;
    params.after_population = page->back().population;
  }
}
int64_t NumTokens(const Fixture& f) {
  return NumListed(
      TaskStore::ListTokensParams(), [&](const auto& page) { return f->store().ListTokens(page); },
      [](const auto& row) { return row.id; });
}

// Rounds of one task each, of `populations` in turns.
Fixture WithRounds(const StoreKind& kind, int64_t n, int64_t populations = 1) {
  auto f = std::make_shared<StoreFixture>(kind);
  f->Do([&](TaskStore& s) {
    for (int64_t i = 0; i < n; ++i) {
      f->now += absl::Seconds(1);
      REQUIRE(s.CreateRound(
                   f->RoundParams({.id = fmt::format("r-{}", i), .population = fmt::format("p{}", i % populations)}))
                  .ok());
    }
    return true;
  });
  return f;
}

Fixture WithWorkers(const StoreKind& kind, int64_t n, int64_t populations = 1) {
  auto f = std::make_shared<StoreFixture>(kind);
  f->Do([&](TaskStore& s) {
    for (int64_t i = 0; i < n; ++i) {
      REQUIRE(s.SawWorker({.name = WorkerName(fmt::format("w{}", i)),
                           .population = fmt::format("p{}", i % populations),
                           .description = "a worker",
                           .now = f->now})
                  .ok());
    }
    return true;
  });
  return f;
}

TokenRecord AToken(const StoreFixture& f, int64_t i) {
  return {.id = TokenId(fmt::format("t-{}", i)),
          .request_id = fmt::format("request-{}", i),
          .name = "name",
          .hash = fmt::format("{:064}", i),
          .roles = 1,
          .create_time = f.now};
}
Fixture WithTokens(const StoreKind& kind, int64_t n) {
  auto f = std::make_shared<StoreFixture>(kind);
  f->Do([&](TaskStore& s) {
    for (int64_t i = 0; i < n; ++i) REQUIRE(s.CreateToken(AToken(*f, i)).ok());
    return true;
  });
  return f;
}

// Of what takes O(n log n): at n = 100 the logarithm, of a map's lookups, adds up to half.
constexpr double kLinearithmic = 15;

struct Row {
  int64_t size;
  std::function<std::function<void()>(const StoreKind& kind, int64_t n)> make;
  double ratio_max = kLinear;
};

const std::map<std::string, Row>& Rows() {
  static const std::map<std::string, Row> rows = {
      {"rounds, page by page",
       {100, [](const StoreKind& kind,
                int64_t n) { return [f = WithRounds(kind, n), n] { REQUIRE(NumRounds(f, {}) == n); }; }}},
      {"rounds of one of ten populations",
       {100,
        [](const StoreKind& kind, int64_t n) {
          return [f = WithRounds(kind, n, 10), n] { REQUIRE(NumRounds(f, {.population = "p7"}) == n / 10); };
        }}},
      {"tasks of a round",
       {200,
        [](const StoreKind& kind, int64_t n) {
          auto f = std::make_shared<StoreFixture>(kind);
          f->CreateRound({.num_tasks = static_cast<int>(n)});
          return [f, n] { REQUIRE(NumTasks(f, {.round = f->round}) == n); };
        }}},
      {"tasks of a population, in many rounds",
       {100,
        [](const StoreKind& kind, int64_t n) {
          return [f = WithRounds(kind, n, 2), n] { REQUIRE(NumTasks(f, {.population = "p1"}) == n / 2); };
        }}},
      {"attempts of a task",
       {80,
        [](const StoreKind& kind, int64_t n) {
          auto f = std::make_shared<StoreFixture>(kind);
          f->CreateRound({});
          for (int64_t i = 0; i < n; ++i)
            REQUIRE(f->End(f->Lease("w"), AttemptOutcome::kLost, TaskState::kQueued).ok());
          return [f, n] { REQUIRE(f->Attempts(0).size() == static_cast<size_t>(n)); };
        }}},
      {"workers, page by page",
       {200,
        [](const StoreKind& kind, int64_t n) {
          return [f = WithWorkers(kind, n), n] { REQUIRE(NumWorkers(f, {.population = "p0"}) == n); };
        }}},
      {"workers of one of ten populations",
       {200,
        [](const StoreKind& kind, int64_t n) {
          return [f = WithWorkers(kind, n, 10), n] { REQUIRE(NumWorkers(f, {.population = "p7"}) == n / 10); };
        }}},
      {"ages of the workers of ten populations, page by page",
       {200, [](const StoreKind& kind,
                int64_t n) { return [f = WithWorkers(kind, n, 10), n] { REQUIRE(NumWorkerAges(f) == n); }; }}},
      {"tokens, page by page",
       {200,
        [](const StoreKind& kind, int64_t n) { return [f = WithTokens(kind, n), n] { REQUIRE(NumTokens(f) == n); }; }}},
      {"tokens: as many are made, revoked and deleted as there are",
       {100,
        [](const StoreKind& kind, int64_t n) {
          return [f = WithTokens(kind, n), n] {
            f->Do([&](TaskStore& s) {
              for (int64_t i = n; i < 2 * n; ++i) {
                const TokenRecord token = AToken(*f, i);
                REQUIRE(s.CreateToken(token).ok());
                REQUIRE(s.RevokeToken({.token = token.id, .now = f->now}).ok());
                REQUIRE(s.DeleteToken(token.id).ok());
              }
              return true;
            });
          };
        },
        kLinearithmic}},
  };
  return rows;
}

TEST_CASE("Ten times as long a list takes ten times as long to read, page by page") {
  for (const StoreKind& kind : StoresUnderTest()) {
    for (const auto& [name, row] : Rows()) {
      INFO(name << " on " << kind.name);
      CHECK(CpuRatio([&kind, &row = row](int64_t n) { return row.make(kind, n); }, row.size, row.ratio_max) <=
            row.ratio_max);
    }
  }
}

}  // namespace
}  // namespace sheaf
