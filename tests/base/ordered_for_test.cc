#include "base/ordered_for.h"

#include <catch2/catch.hpp>
#include <string>

#include "tests/conformance/shuffled_for.h"

namespace sheaf {
namespace {

struct Loop {
  // Parts that there are room for; and of those, how many were in use at once.
  int num_rooms = 0;
  std::vector<int64_t> given;
  absl::Status status;
};

constexpr int64_t kNever = -1;

// Makes and gives numbers; making `bad_make`, and giving `bad_give`, fails.
Loop RunLoop(ParallelFor& parallel, const OrderedParts& parts, int64_t bad_make = kNever, int64_t bad_give = kNever) {
  Loop loop;
  loop.status = OrderedFor<int64_t>(
      parallel, parts,
      [&loop] {
        ++loop.num_rooms;
        return std::make_unique<int64_t>();
      },
      [&](int64_t i, int64_t& part) {
        part = i;
        return i >= bad_make && bad_make != kNever ? absl::OutOfRangeError("made " + std::to_string(i))
                                                   : absl::OkStatus();
      },
      [&](const int64_t& part) {
        loop.given.push_back(part);
        return part == bad_give ? absl::DataLossError("given") : absl::OkStatus();
      });
  return loop;
}

std::vector<int64_t> Numbers(int64_t n) {
  std::vector<int64_t> numbers;
  for (int64_t i = 0; i < n; ++i) numbers.push_back(i);
  return numbers;
}

TEST_CASE("Parts are handed over in order, whatever order they are made in, and no more wait than may") {
  for (uint64_t seed = 0; seed < 100; ++seed) {
    INFO("seed " << seed);
    ShuffledFor shuffled(seed);
    const Loop loop = RunLoop(shuffled, {.num_parts = 50, .waiting_max = 7});
    CHECK(loop.status.ok());
    CHECK(loop.given == Numbers(50));
    CHECK(loop.num_rooms <= 7);
  }
}

TEST_CASE("A plain loop has room for one part") {
  InlineFor one_by_one;
  const Loop loop = RunLoop(one_by_one, {.num_parts = 50, .waiting_max = 7});
  CHECK(loop.given == Numbers(50));
  CHECK(loop.num_rooms == 1);
}

TEST_CASE("The first error in order ends the loop, whatever order parts are made in") {
  for (uint64_t seed = 0; seed < 100; ++seed) {
    INFO("seed " << seed);
    ShuffledFor shuffled(seed);
    const OrderedParts parts{.num_parts = 50, .waiting_max = 16};
    // All parts from 20 on fail.
    const Loop made = RunLoop(shuffled, parts, 20);
    CHECK(made.status == absl::OutOfRangeError("made 20"));
    CHECK(made.given == Numbers(20));
    const Loop given = RunLoop(shuffled, parts, 20, 12);
    CHECK(given.status == absl::DataLossError("given"));
    CHECK(given.given == Numbers(13));
  }
}

TEST_CASE("A loop of no parts makes none") {
  ShuffledFor shuffled(1);
  const Loop loop = RunLoop(shuffled, {.num_parts = 0, .waiting_max = 4});
  CHECK(loop.status.ok());
  CHECK(loop.num_rooms == 0);
}

}  // namespace
}  // namespace sheaf
